/* SPDX-License-Identifier: Apache-2.0
 *
 * The room's front header: decisions under load. This file has the rules, which are pure (no clock, no I/O;
 * answer_load.c applies them). admission_queue.h is the queue of waiting answers, refusals.h counts refusals.
 *
 *   late    the predicted wait exceeds the tier's target; the tier's when_late decides whether the request waits, is
 *           degraded or is refused
 *   load    newcomers of a model and priority wait longer than gateway.load.high; it ends when they wait less than
 *           gateway.load.low
 *   margin  a factor on predictions, learnt from how wrong they were
 *   memo    the engine's latest prediction for a tenant
 *
 * Thread: the structs belong to their owner's thread.
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
	bool other_model, shorter; /* the ways in which it can be degraded */
	bool is_shorter;           /* it is shortened already */
	bool guess; /* the engine is idle, or no step was measured recently: the prediction refuses nothing */
};

/* *retry_ms, with LOAD_REFUSE: the time after which the request would be admitted if no other one arrived. */
enum load_verdict load_decide(const struct gw_tier_config *tier, const struct load_case *c, uint64_t *retry_ms);
/* Retry-After in seconds, rounded up. */
unsigned load_retry_s(uint64_t ms);

/* ---- the accuracy of predictions ---- */

/* The multiple of the predicted wait that 32 of 33 waits do not exceed. It is approached in fixed steps: one large step
 * up balances 32 small steps down. So 97 % of the admitted answers are in time. A late answer is wasted work; a shorter
 * queue costs nothing. */
struct load_margin {
	double log;     /* of the factor; 0: as predicted */
	uint64_t at_ns; /* when log was learnt; it halves every 30 s afterwards */
};

void load_margin_learn(struct load_margin *m, uint64_t predicted_ns, uint64_t true_ns, uint64_t now_ns);
double load_margin_factor(const struct load_margin *m, uint64_t now_ns);

/* ---- load by model and priority ---- */

struct load_levels {
	uint8_t high[PROTO_MAX_MODELS]; /* one bit per priority */
};

/* True: some level has changed. */
bool load_levels_see(struct load_levels *l, const struct proto_load *now, uint64_t high_ms, uint64_t low_ms);
bool load_is_high(const struct load_levels *l, int model, int64_t priority);

/* ---- the engine's latest prediction for a tenant ---- */

/* LOAD predicts the wait of a request whose tenant has no other request in the engine. A tenant with many requests also
 * waits for its own ones, and the engine reports that only between two steps, which may take seconds. So the last
 * prediction for each tenant is kept: the time at which its next request would begin, plus one slot's time for each
 * request sent since. */
struct load_memo {
	struct load_word {
		uint64_t tenant, until_ns, begin_ns; /* until_ns 0: unused */
		int model;
		uint8_t priority;
	} of[256];
};

/* The engine predicts that the tenant's next request of that priority begins in wait_ms. */
void load_memo_put(struct load_memo *m, uint64_t tenant, int model, uint8_t priority, uint64_t wait_ms,
		   uint64_t now_ns);
/* Another request of the tenant was sent; on average a slot becomes free every each_us. */
void load_memo_sent(struct load_memo *m, uint64_t tenant, int model, uint8_t priority, uint64_t each_us,
		    uint64_t now_ns);
/* The predicted wait of the tenant's next request; 0: unknown or outdated. */
uint64_t load_memo_find(const struct load_memo *m, uint64_t tenant, int model, uint8_t priority, uint64_t now_ns);

#endif
