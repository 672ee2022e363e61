/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: what happens under load. The rules here are pure (no clock, no I/O; answer_load.c applies them); the queue
 * of waiting answers is admission_queue.h, the statistics of refusals refusals.h.
 *
 *   late   the predicted wait is above the tier's target: the request waits, is degraded or is refused, by tier
 *   load   newcomers of a model and priority wait longer than gateway.load.high, until they wait less than
 *          gateway.load.low
 */
#ifndef GATEWAY_LOAD_H
#define GATEWAY_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/proto/proto.h"
#include "gateway/config/gw_config.h"

enum load_verdict { LOAD_GO, LOAD_DEGRADE, LOAD_REFUSE };

/* A request to decide on. */
struct load_case {
	uint64_t predicted_ms;     /* until its first token */
	uint64_t most_ms;          /* the longest wait: limits.first_token */
	double margin;             /* factor for predictions */
	bool other_model, shorter; /* how it can be degraded */
	bool is_shorter;           /* it has been shortened already */
	bool guess; /* the engine is idle, or no step was measured lately: the prediction refuses nothing */
};

/* *retry_ms, with a refusal: after how long it would be admitted if no other request came. */
enum load_verdict load_decide(const struct gw_tier_config *tier, const struct load_case *c, uint64_t *retry_ms);
/* Retry-After in seconds, rounded up. */
unsigned load_retry_s(uint64_t ms);

/* ---- how far predictions can be trusted ---- */

/* The multiple of the predicted wait that 32 of 33 waits do not exceed, approached in fixed steps: a large one up
 * balances 32 small ones down. So 97 % of the admitted answers are in time: a late answer is wasted work, a shorter
 * queue costs nothing. */
struct load_margin {
	double log;     /* 0: as predicted */
	uint64_t at_ns; /* when it was learnt; it halves every 30 s from then on */
};

void load_margin_learn(struct load_margin *m, uint64_t predicted_ns, uint64_t true_ns, uint64_t now_ns);
double load_margin_factor(const struct load_margin *m, uint64_t now_ns);

/* ---- load of each model's priorities ---- */

struct load_levels {
	uint8_t high[PROTO_MAX_MODELS]; /* a bit a priority */
};

/* True: some level has changed. */
bool load_levels_see(struct load_levels *l, const struct proto_load *now, uint64_t high_ms, uint64_t low_ms);
bool load_is_high(const struct load_levels *l, int model, int64_t priority);

/* ---- the engine's latest prediction for a tenant ---- */

/* LOAD predicts the wait of a request whose tenant has nothing in the engine. A tenant with many requests waits for its
 * own, and the engine reports that only between two steps, which may take seconds. So its last prediction for each
 * tenant is kept: when the tenant's next request would begin, later by one slot's time for each sent since. */
struct load_memo {
	struct load_word {
		uint64_t tenant, until_ns, begin_ns; /* of until_ns 0: unused */
		int model;
		uint8_t priority;
	} of[256];
};

/* The engine predicts that this tenant's request, of that priority, begins in wait_ms. */
void load_memo_put(struct load_memo *m, uint64_t tenant, int model, uint8_t priority, uint64_t wait_ms,
		   uint64_t now_ns);
/* One more request of the tenant is sent; on average a slot becomes free every each_us. */
void load_memo_sent(struct load_memo *m, uint64_t tenant, int model, uint8_t priority, uint64_t each_us,
		    uint64_t now_ns);
/* The predicted wait of the tenant's next request; 0: unknown or outdated. */
uint64_t load_memo_find(const struct load_memo *m, uint64_t tenant, int model, uint8_t priority, uint64_t now_ns);

#endif
