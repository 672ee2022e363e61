/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel writes a core file, or pipes it to a program (core(5)). The resource limit prevents the first; for the
 * second the filter excludes every mapping. Children inherit both, and neither hinders a debugger or a leak checker.
 */
#include "cmd/serve/core_dump.h"

#include <stdio.h>
#include <sys/resource.h>

#include "base/log.h"

void core_dump_settle(bool allowed)
{
	if (allowed)
		return;
	const struct rlimit none = {0, 0};
	FILE *filter = fopen("/proc/self/coredump_filter", "w");
	bool done = filter != NULL && fputs("0\n", filter) >= 0;
	if (filter != NULL)
		done = fclose(filter) == 0 && done;
	if (setrlimit(RLIMIT_CORE, &none) != 0 || !done)
		log_warn("can't prevent core files: one would hold prompts and keys");
}
