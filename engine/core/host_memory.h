/* SPDX-License-Identifier: Apache-2.0
 *
 * The budget of the host's memory for KV pages, where engine.kv_memory is "auto" and the backend computes in host
 * memory. Private to engine/; pure.
 *
 *   available   what the process may still take (machine_memory.h)
 *   reserve     stays free, for other processes and for what no one planned: an eighth of the machine, within bounds
 *   shared      the area in which pages pass between engines (handover.memory), which fills as it is used: all engines
 *               that have it leave it free
 *   bound       engine.memory: the most that weights, work and pages may take together
 *   weights     of all models that may be loaded at once, mapped or rearranged
 *   work        activations, logits, tokenizers
 *   left        what remains of the lesser of bound and available - reserve - shared
 *   contexts    pages for one whole context of every model
 *   useful      pages for as many whole contexts as may run at once: more are never used
 *
 * Pages get enough for the contexts; half of what is left, if that is more, since further pages serve as prefix cache
 * and for sequences that run at once; never more than is left or useful. Memory of a page is taken when it is first
 * written, so the budget is a bound and not a cost.
 */
#ifndef ENGINE_HOST_MEMORY_H
#define ENGINE_HOST_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "engine/core/machine_memory.h"

struct host_needs {
	uint64_t bound;         /* 0: none */
	uint64_t weights, work; /* bytes */
	uint64_t shared;
	uint64_t contexts, useful;
};

struct host_plan {
	uint64_t total, available, reserve, left;
	uint64_t kv; /* bytes for pages */
};

uint64_t host_memory_reserve(uint64_t total);
void host_memory_plan(const struct machine_memory *now, const struct host_needs *needs, struct host_plan *out);
/* The plan as a line for the log, at most n bytes. Returns line. */
const char *host_memory_line(const struct machine_memory *now, const struct host_needs *needs,
			     const struct host_plan *p, char *line, size_t n);

#endif
