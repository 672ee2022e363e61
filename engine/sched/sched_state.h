/* SPDX-License-Identifier: Apache-2.0
 *
 * State shared by the scheduler's files: sched.c keeps the queues and predicts waits, sched_plan.c makes plans.
 */
#ifndef ENGINE_SCHED_STATE_H
#define ENGINE_SCHED_STATE_H

#include "engine/sched/sched.h"
#include "engine/sched/sched_ease.h"
#include "engine/sched/sched_floor.h"

enum {
	SHARE_UNIT = 64, /* of a share, for a token of prefill at the usual weight */
	MIN_CHUNK = 8,   /* tokens of a prompt in a step that computes any */
	LOOK_EVERY = 64, /* steps that spare decodes: one is longer, to learn what that costs */
};

/* A tenant's sequences of one tier. */
struct sched_queue {
	struct idmap_node node; /* key: tenant and tier */
	struct sched_tenant *tenant;
	uint8_t tier;
	uint32_t weight;
	uint32_t n_seqs;           /* added, queued or not */
	uint32_t n_slots;          /* held */
	struct heap_node by_share; /* among the tier's, while something is queued */
	uint64_t share_key;        /* its share when it was inserted; the true one is not less */
	struct heap by_turn;
	struct list by_age;
	uint64_t n_rows, n_positions; /* to compute and to read, of all that is queued */
};

struct sched_tier {
	struct heap queues;
	uint64_t served_ns; /* when it last got some prefill, or began to wait for it */
	uint64_t n_rows, n_positions;
	uint64_t weight;    /* of its queues */
	uint32_t n_waiting; /* added, and without a slot */
	uint32_t n_slots;
};

struct sched {
	struct sched_config cfg;
	struct idmap queues;
	struct sched_tier tiers[SCHED_TIERS];
	struct sched_seq **started; /* [max_sequences]; the arrays below share its memory */
	uint32_t n_started, n_slots, n_queued;
	bool holds;
	uint32_t n_spared;    /* steps with a prompt beside decodes that it spares */
	double position_rows; /* what a position that is attended to costs, in rows; as last learned, at most 1 */
	struct sched_ease ease;
	/* The best that has ever been here: the least tier, and in it the greatest weight. */
	uint8_t best_tier;
	uint32_t best_weight;
	/* A plan's arrays. */
	struct sched_seq **run, **evicted, **order;
};

/* Sequences that may run at once. */
static inline uint32_t sched_slots(const struct sched *sc)
{
	return sc->ease.most < sc->cfg.max_sequences ? sc->ease.most : sc->cfg.max_sequences;
}

/* Takes a sequence out of its queue for the rest of a plan, and back. */
void sched_set_aside(struct sched *sc, struct sched_seq *s);
void sched_bring_back(struct sched *sc, struct sched_seq *s, uint64_t now_ns);
/* From here on prompts that are queued have their turns by this cost. */
void sched_learn_turns(struct sched *sc, const struct cost *cost);
/* The queue whose tenant has had least; NULL when nothing waits in this tier. */
struct sched_queue *sched_first_queue(struct sched_tier *tier);
/* Tokens of prefill in a step beside decodes that are to be spared. */
uint32_t sched_chunk_rows(const struct sched_config *cfg, const struct cost *cost, uint32_t beside, uint32_t n_past);
/* And in a step without such decodes: the whole step. For prompts of q after better ones have been seen: a short step,
 * because a better prompt that arrives meanwhile waits for all of it. */
uint32_t sched_step_rows(const struct sched *sc, const struct sched_queue *q, const struct cost *cost, uint32_t beside,
			 uint32_t n_past);

#endif
