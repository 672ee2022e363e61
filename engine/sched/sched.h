/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler: which sequences of one model compute how many tokens in the next step. Pure: it reads no clock and
 * touches no page, so a simulation can drive it. Indices are kept up to date, so a plan costs what it grants. Step
 * thread.
 *
 *  - Each decoding sequence that has credit and is due makes one token in each step. One without credit (a slow reader)
 *    or before its due time (its tier's pace) keeps its pages and takes no row.
 *  - Prefill joins in chunks, sized to keep the target time between tokens and to stop where larger steps gain no
 *    throughput (struct cost). Without decodes to protect a chunk takes the whole step, but stays short while only worse
 *    tiers or lesser weights than seen before compute: a better prompt that arrives waits for the whole step.
 *  - Order of prompts: first the best tier (a tier gains one rank per age_ns without service), then the tenant with the
 *    least service for its weight (virtual token counters: Sheng et al., "Fairness in Serving Large Language Models",
 *    2024), then its sequence with the least work left, attention included, plus the time of its arrival
 *    (sched_learn_turns), or its oldest once that has starved.
 *  - A better prompt that waits joins the step of a worse one by its share; worse prompts join a better one's step by
 *    weight, another tier with a tenth.
 *  - Tenants ahead of the prompt's tenant lose decodes that exceed their share; worse tiers, above a tenth of its time.
 *  - A sequence starts when a slot and pages for all its work are free or can be freed. When pages run out, the
 *    worst rank (no credit first, then priority, then arrival) frees all of its own and recomputes them later. A sequence
 *    that has not started takes pages and slots only from sequences without credit, from worse tiers, and, below its
 *    tenant's share, from tenants above theirs. So the best-ranked sequence with credit always advances.
 *  - Draft rows (sched_grant_draft) use the tokens and pages that a plan leaves.
 *  - No sequence starts that would push the streams of better tiers below their floor (sched_floor.h).
 *  - While a device is slowed, steps keep the tiers' targets between tokens by fewer sequences (sched_ease.h).
 *  - A sequence whose prompt another sequence is computing is skipped until it is woken.
 */
#ifndef ENGINE_SCHED_H
#define ENGINE_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/heap.h"
#include "base/list.h"
#include "base/proto/proto.h"
#include "engine/sched/cost.h"
#include "engine/sched/idmap.h"
#include "engine/sched/kv_groups.h"

enum {
	SCHED_TIERS = 8, /* priorities beyond are the last one */
	SCHED_PREFILL_WEIGHT = 1,
	SCHED_DECODE_WEIGHT = 2,
	SCHED_IDLE_TENANTS = 1024, /* remembered */
	SCHED_WEIGHT = 100,        /* a tenant's weight unless it has another */
	SCHED_MAX_WEIGHT = 10000,
};

struct sched_config {
	uint32_t step_tokens;   /* of prefill in one step */
	uint32_t most_chunk;    /* of them of one prompt, so that others share the step; 0: no such bound */
	uint32_t max_sequences; /* slots */
	struct kv_groups kv;
	uint32_t n_pages;
	uint64_t age_ns, starve_ns;
	uint64_t paused_ns;     /* no credit for that long: its slot may be given away */
	uint64_t itl_target_ns; /* prefill adds at most this to a step with decodes; 0: no such target */
	/* Steps that worse tiers' sequences must not lengthen beyond, for streams of each tier (sched_floor.h); 0:
	 * none. */
	uint64_t floor_ns[SCHED_TIERS];
};

struct sched_tenant;
struct sched_queue;

/* A sequence as the scheduler sees it. The first members belong to the owner, which calls sched_update
 * after changing them. */
struct sched_seq {
	uint64_t order;     /* of arrival, smaller is older; no two have the same: one of them must yield */
	uint64_t served_ns; /* when it last got tokens, or arrived */
	uint64_t due_ns;    /* not before (its pace); for decoding only */
	struct sched_tenant *tenant;
	uint32_t n_past;   /* tokens in its pages */
	uint32_t n_left;   /* tokens to compute before the next can be drawn; at least 1 */
	uint32_t n_cached; /* of these, while it has not started: expected to be there already */
	uint32_t n_found;  /* page indices: of n_cached, while it has not started: those that need not be allocated */
	/* Page indices held (kv_groups.h): 0 … n_pages - 1, of windowed groups from first_page on. */
	uint32_t n_pages, first_page;
	uint32_t width;   /* slots and rows of a decode step: 1, or more for beams */
	uint8_t priority; /* 0 is first */
	bool started;     /* holds a slot */
	bool prefilling;  /* more than one token of a decode step */
	bool credit;
	bool blocked; /* waits for what another one computes */
	bool whole;   /* its rows are computed in one step: n_left is at most step_tokens */

	/* A plan's answer. */
	uint32_t n_tokens; /* in this step */
	bool evict;        /* gives up its slot and pages first */

	/* The scheduler's. */
	struct sched_queue *queue; /* of its tenant and tier; NULL: not added */
	struct heap_node by_turn;  /* in the queue, while it has a prompt to compute */
	struct list by_age;
	struct list aside;         /* while a plan is made */
	uint64_t came_ns, turn_ns; /* when it was added; as when it is taken to have come */
	uint64_t positions;        /* as counted in its queue */
	uint32_t rows;
	uint32_t started_index; /* among the started, from 1 */
};

/* What a sequence would find if it started now. */
struct sched_look {
	bool blocked;
	uint32_t n_cached;       /* tokens that need not be computed */
	uint32_t n_cached_pages; /* page indices that need not be allocated, as far as rows after n_cached see them */
	uint32_t n_unpinned;     /* pages among them: counted as free so far */
};

struct sched_owner {
	void *ctx;
	void (*look)(void *ctx, struct sched_seq *s, struct sched_look *out);
	/* How many pages would be free again without s. */
	uint32_t (*pages_back)(void *ctx, const struct sched_seq *s);
	/* So many pages would help s: from elsewhere, how many there are more than before. May be NULL. */
	uint32_t (*more_pages)(void *ctx, const struct sched_seq *s, uint64_t n);
	/* In this plan no sequence yields to another: one that would need that is left out. */
	bool gentle;
};

struct sched_plan {
	struct sched_seq **run;   /* those with n_tokens > 0, decodes first */
	struct sched_seq **evict; /* to be evicted before */
	uint32_t n_run, n_evict;
	uint32_t n_decode, n_prefill;   /* rows of each kind */
	uint32_t rows_left, pages_left; /* of the step's tokens, and of pages: not yet given out */
	uint64_t next_due_ns;           /* of sequences that only wait for their pace; UINT64_MAX: none */
	bool wants_room;                /* a sequence would have got more, had the plan not been gentle */
	struct sched_seq *hopeless;     /* a beam search for which all pages are too few; NULL: none */
};

/* ---- tenants: shared by the schedulers of all models. One thread. ---- */

struct sched_tenant {
	struct idmap_node node; /* key: the tenant's digest */
	struct list idle;       /* among the idle */
	struct heap_node active;
	uint64_t active_key;
	uint64_t share;  /* tokens had, by kind and weight */
	uint32_t weight; /* of the sequence that came last */
	uint32_t n_seqs;
	uint32_t n_kept; /* within a plan: rows of decoding that it keeps */
};

struct sched_tenants {
	struct idmap all;
	struct heap active;
	struct list idle;
	size_t n_idle;
	uint64_t floor; /* the share of the tenant that left last: where all begin again when none is active */
};

/* 0 or SL_ENOMEM. */
int sched_tenants_init(struct sched_tenants *t);
/* No tenant may be active. */
void sched_tenants_dispose(struct sched_tenants *t);
/* A sequence of this tenant has come: one that was idle is lifted to the least share among the
 * active, so that idling saves nothing up. weight 0 is the usual one. NULL: out of memory. */
/* The least share of the active tenants. */
uint64_t sched_tenants_least(const struct sched_tenants *t);
struct sched_tenant *sched_tenant_enter(struct sched_tenants *t, uint64_t digest, uint32_t weight);
void sched_tenant_leave(struct sched_tenants *t, struct sched_tenant *tenant);

/* ---- one model's scheduler ---- */

struct sched;

int sched_create(const struct sched_config *cfg, struct sched **out);
/* No sequence may be left. */
void sched_destroy(struct sched *sc);
const struct sched_config *sched_config(const struct sched *sc);

/* s has its order, priority, tenant, n_left and width. SL_ENOMEM. */
int sched_add(struct sched *sc, struct sched_seq *s, uint64_t now_ns);
void sched_update(struct sched *sc, struct sched_seq *s, uint64_t now_ns);
/* Raises s to the priority of a sequence that waits for what s computes. Out of memory, s keeps its own. */
void sched_boost(struct sched *sc, struct sched_seq *s, uint8_t priority, uint64_t now_ns);
void sched_remove(struct sched *sc, struct sched_seq *s);
/* itl_ns [SCHED_TIERS]: what computes is slowed, so steps are kept so short that each tier has its target between
 * tokens (sched_ease.h); borrowed until the next call. NULL: it is not slowed any more. */
void sched_ease(struct sched *sc, const uint64_t *itl_ns);
/* A step with decodes took so long, and was to take expected_ns. */
void sched_took(struct sched *sc, double expected_ns, double ns);
/* Sequences that the last plan held for that, with their pages. */
uint32_t sched_n_held(const struct sched *sc);
/* While it holds, no further sequence starts. */
void sched_hold(struct sched *sc, bool hold);

void sched_plan(struct sched *sc, const struct sched_owner *owner, const struct cost *cost, uint32_t pages_free,
		uint64_t now_ns, struct sched_plan *out);

/* s decodes in this plan: how many of n more rows, for tokens that may follow, the plan has room for.
 * They are its tenant's. */
uint32_t sched_grant_draft(const struct sched *sc, struct sched_plan *plan, const struct sched_seq *s, uint32_t n);

/* When s would have its first token if it had credit now: ns from now. *position: how many others
 * of its tier and better ones have not started. answer_ns: how long an answer takes on the average. */
double sched_predict_ns(const struct sched *sc, const struct sched_seq *s, const struct cost *cost, double answer_ns,
			uint32_t *position);

/* The load that a new sequence of each priority would find: with n_rows of prompt, of a tenant without sequences here.
 * answer_ns [SCHED_TIERS]: of a tier and better ones. */
void sched_load(const struct sched *sc, const struct sched_tenants *tenants, const struct cost *cost,
		const double *answer_ns, uint32_t n_rows, struct proto_load *out);

/* The pending work, for sharing a device among several models (engine/sched/model_sched.h). */
struct sched_demand {
	uint32_t load;       /* of sequences that could get on now: each 2^(SCHED_TIERS - 1 - tier), by width */
	uint8_t best_tier;   /* of them; SCHED_TIERS: there are none */
	uint8_t best_prompt; /* of those with a prompt to compute */
};
void sched_demand(const struct sched *sc, uint64_t now_ns, struct sched_demand *out);

uint32_t sched_n_started(const struct sched *sc);
uint32_t sched_n_queued(const struct sched *sc);
void sched_validate(const struct sched *sc); /* BUG on a broken invariant */

#endif
