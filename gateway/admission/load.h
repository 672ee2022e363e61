/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules under load, as pure functions: no clock, no I/O. answer_load.c applies them.
 *
 *   predicted too late for its tier    by tier: wait all the same, be degraded, be refused
 *   load                               a model's newcomers of a priority wait longer than gateway.load.high, until they
 *                                      wait less than gateway.load.low
 */
#ifndef GATEWAY_LOAD_H
#define GATEWAY_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/proto/proto.h"
#include "gateway/config/gw_config.h"

enum load_verdict { LOAD_GO, LOAD_DEGRADE, LOAD_REFUSE };

/* What is known of one that asks. */
struct load_case {
	uint64_t predicted_ms;     /* until its first token */
	uint64_t most_ms;          /* the longest wait: limits.first_token */
	double margin;             /* what predictions are multiplied with before they are believed */
	bool other_model, shorter; /* it can be degraded in these ways */
	bool is_shorter;           /* it has been, in the latter */
	bool guess; /* nothing else runs or waits, or no step was measured of late: the prediction refuses nothing */
};

/* *retry_ms: to a refusal, in how long it would be let in if nothing else came. */
enum load_verdict load_decide(const struct gw_tier_config *tier, const struct load_case *c, uint64_t *retry_ms);
/* Seconds for Retry-After: not before. */
unsigned load_retry_s(uint64_t ms);

/* ---- how far predictions can be trusted ---- */

/* What 32 of 33 waits are not longer than, as a multiple of what was predicted; approached in steps of fixed
 * sizes, as many small ones down for a large one up. So of those that are let in 97 % are in time: an answer that
 * is late is work done for nothing, one less in the queue costs nothing. */
struct load_margin {
	double log;     /* 0: as predicted */
	uint64_t at_ns; /* learnt; half as much every half a minute from then on */
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
/* One more is sent to it; in each_us a place becomes free, on the average. */
void load_memo_sent(struct load_memo *m, uint64_t tenant, int model, uint8_t priority, uint64_t each_us,
		    uint64_t now_ns);
/* What the tenant's next one would wait; 0: that is not known, or to be asked again. */
uint64_t load_memo_find(const struct load_memo *m, uint64_t tenant, int model, uint8_t priority, uint64_t now_ns);

#endif
