/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory this process may still take: the least of what the machine has, what its control groups allow and
 * what its limits allow. Memory that only caches files counts as available. Private to engine/; any thread, no state.
 *
 * Sources, each missing one skipped: /proc/meminfo; /proc/self/cgroup and the groups it names, up to the root (version
 * 2: memory.max, memory.high; version 1: memory.limit_in_bytes); RLIMIT_AS and RLIMIT_DATA with /proc/self/statm; the
 * commit limit where vm.overcommit_memory is 2.
 */
#ifndef ENGINE_MACHINE_MEMORY_H
#define ENGINE_MACHINE_MEMORY_H

#include <stdint.h>

#include "base/err.h"

struct machine_limits {
	uint64_t address_space, data; /* bytes; UINT64_MAX: none */
};

struct machine_memory {
	uint64_t total;         /* bytes: of the machine, or of its control group if that has less */
	uint64_t available;     /* bytes that this process may still take */
	const char *limited_by; /* whose limit `available` is: "the machine", "its control group", ... */
	uint32_t stalled;       /* permille of the last ten seconds in which some thread waited for memory (PSI) */
	uint64_t events;        /* counts what its control group did to it for want of memory; only grows */
};

/* root precedes every path; "" but for tests. limits NULL: this process's. SL_EIO: /proc/meminfo can't be read. */
int machine_memory_read(const char *root, const struct machine_limits *limits, struct machine_memory *out);

#endif
