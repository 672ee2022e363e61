/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler: from the sequences of one model and a clock to the next step's plan. Pure: it
 * reads and writes only its arguments, so a simulation can drive it.
 *
 * The rules, in this order:
 *  - Every sequence that decodes, has credit and is due makes one token in each step.
 *  - Prefill fills what is left of the step's tokens, in chunks. Candidates are ordered by
 *    starvation (nothing computed for starve_ns: oldest first), then priority, one better for each
 *    age_ns without progress, then by their tenant's share so far (struct sched_tenants), then the
 *    least work left, then arrival.
 *  - A sequence starts only when pages for all it has to compute are there or can be had.
 *  - Pages run out: whoever is worse ranked gives up all of its own and computes them again later.
 *    Ranks: priority, then arrival. Sequences without credit go first, whatever their rank; a
 *    sequence that has not started takes pages only from those or from lower priorities. So the
 *    best ranked sequence with credit always advances.
 */
#ifndef ENGINE_SCHED_H
#define ENGINE_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "engine/idmap.h"

struct sched_config {
	uint32_t step_tokens;
	uint32_t max_sequences; /* started at a time */
	uint32_t page_tokens;
	uint64_t age_ns, starve_ns;
	uint64_t paused_ns; /* no credit for that long: its place may be given away */
};

struct sched_seq {
	/* What is: filled by the caller. */
	uint64_t order;      /* of arrival, smaller is older */
	uint64_t share;      /* of its tenant */
	uint64_t served_ns;  /* when it last got tokens, or arrived */
	uint64_t due_ns;     /* not before (its pace) */
	uint32_t n_past;     /* tokens in its pages */
	uint32_t n_left;     /* tokens to compute before the next can be drawn; at least 1 */
	uint32_t n_pages;    /* held */
	uint8_t priority;    /* 0 is first */
	bool started;        /* holds a place, and pages once something was computed */
	bool prefilling;     /* more than the one token of a decode step */
	bool credit;
	/* What to do: filled by sched_plan. */
	uint32_t n_tokens; /* in this step */
	bool evict;        /* gives up its place and pages first */
	/* Used within sched_plan. */
	bool starved;
	int64_t class;
};

struct sched_plan {
	uint32_t n_decode, n_prefill; /* rows of each kind */
	uint64_t next_due_ns;         /* of those who only wait for their pace; UINT64_MAX: none */
};

/* order_mem: room for n pointers. */
void sched_plan(const struct sched_config *cfg, struct sched_seq *seqs, size_t n,
		struct sched_seq **order_mem, uint32_t pages_free, uint64_t now_ns,
		struct sched_plan *out);

/* ---- shares of tenants: virtual token counters (Sheng et al., "Fairness in Serving Large
 *      Language Models", 2024). One thread. ---- */

enum { SCHED_PREFILL_WEIGHT = 1, SCHED_DECODE_WEIGHT = 2, SCHED_IDLE_TENANTS = 1024 };

struct sched_tenant {
	struct idmap_node node; /* key: the tenant's digest */
	struct list place;      /* among the active or the idle */
	uint64_t share;
	uint32_t n_seqs;
};

struct sched_tenants {
	struct idmap all;
	struct list active, idle;
	size_t n_idle;
};

/* 0 or SL_ENOMEM. */
int sched_tenants_init(struct sched_tenants *t);
/* No tenant may be active. */
void sched_tenants_dispose(struct sched_tenants *t);
/* A sequence of this tenant has come: one that was idle is lifted to the least share among the
 * active, so that idling saves nothing up. NULL: out of memory. */
struct sched_tenant *sched_tenant_enter(struct sched_tenants *t, uint64_t digest);
void sched_tenant_leave(struct sched_tenants *t, struct sched_tenant *tenant);

#endif
