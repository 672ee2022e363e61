/* SPDX-License-Identifier: Apache-2.0
 *
 * Two locks, for a core file may be written by the kernel or piped to a program (core(5)): the limit keeps
 * the former from being made, and does not count for the latter, which gets what the filter lets through:
 * no mapping at all. Both are inherited, and neither is in the way of a debugger or a leak checker.
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
		log_warn("core files can't be ruled out here: one would hold prompts and keys");
}
