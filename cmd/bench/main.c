/* SPDX-License-Identifier: Apache-2.0
 *
 * sluice-bench: measurements and load generators, a program of their own so that the server carries none of them.
 */
#include <stdio.h>
#include <string.h>

#include "cmd/bench/bench.h"
#include "gateway/request/json_mem.h"
#include "gateway/transport/event_memory.h"
#include "gateway/transport/tls_memory.h"
#include "version.h"

int main(int argc, char **argv)
{
	if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
		puts("sluice-bench " SLUICE_VERSION);
		return 0;
	}
	json_mem_install();
	tls_memory_install();
	event_memory_install();
	return bench_run(argc, argv);
}
