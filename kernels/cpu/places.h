/* SPDX-License-Identifier: Apache-2.0
 *
 * Which processors the threads of a pool may use: those of one NUMA node each, so that a thread does not move away from
 * what its node's caches and memory have. Threads that fit into one node share it; more are spread over the nodes by
 * their processors. Every processor that the process may use stays in use where there are as many threads.
 *
 * The nodes are read from sysfs (Documentation/admin-guide/mm/numaperf.rst, ABI/stable/sysfs-devices-node).
 */
#ifndef KERNELS_CPU_PLACES_H
#define KERNELS_CPU_PLACES_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

enum { PLACES_NODES = 64 };

enum places_how {
	PLACES_AUTO, /* where the process may use processors of several nodes, each thread keeps to one */
	PLACES_ON,   /* each thread keeps to one processor, if there is one for each */
	PLACES_OFF,
};

struct places {
	int n_nodes; /* with threads; 0: threads are not pinned */
	bool single; /* to one processor each */
	struct place_node {
		int number;
		cpu_set_t cpus; /* those that the process may use */
		int order[CPU_SETSIZE];
		int n_cpus, n_threads; /* order: one thread of each core first */
	} nodes[PLACES_NODES];
};

/* root: before every path, for tests; "": none. False: threads are not pinned, for the reason in *why, which is static.
 */
bool places_make(const char *root, const cpu_set_t *allowed, int n_threads, int how, struct places *out,
		 const char **why);
/* Of the i-th thread, from 0: the processors that it may use. */
void places_of(const struct places *p, int i, cpu_set_t *out);
/* "16 on node 0, 16 on node 1" */
void places_print(const struct places *p, char *out, size_t room);

#endif
