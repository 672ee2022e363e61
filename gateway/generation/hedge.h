/* SPDX-License-Identifier: Apache-2.0
 *
 * Hedging (Dean, Barroso, "The Tail at Scale", 2013): a generation whose first token is late is submitted once more, to
 * an engine that is idle. Whichever of the two has tokens first goes on, the other is cancelled. Both have the same
 * SUBMIT and seed. It is one generation for everybody else: admitted, counted and charged once.
 *
 *   late    later than most first tokens of its engine (a learned percentile), and than `least`
 *   idle    the engine has nothing to do, for anybody that it knows of
 *   budget  of a hundred requests that may be hedged at most 100 · share are; none is in advance
 *
 * Never: what a constraint holds, several choices, beams, prompts' log probabilities, and what could not be made again
 * (remake.h) at any time. So a hedge costs at most the tokens that the loser makes until it is cancelled.
 *
 * One gateway thread; a thread has a struct hedging.
 */
#ifndef GATEWAY_HEDGE_H
#define GATEWAY_HEDGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/proto/proto.h"
#include "gateway/config/gw_config.h"

struct gw_thread;
struct hedge;
struct link_listener;

/* ---- what is learned; pure ---- */

enum { HEDGE_BUCKETS = 72, HEDGE_LEAST_TIMES = 20 };

/* The latest times to a first token of one engine: a histogram whose older half fades. */
struct hedge_times {
	uint32_t n;
	uint16_t of[HEDGE_BUCKETS]; /* four for each doubling, from a millisecond on */
};

void hedge_times_add(struct hedge_times *t, uint64_t ns);
/* What that share of them is not above; 0: there are fewer than HEDGE_LEAST_TIMES. */
uint64_t hedge_times_percentile(const struct hedge_times *t, double share);

struct hedging {
	struct hedge_times times[GW_MAX_ENGINES]; /* by engine */
	double budget;                            /* hedges that may begin */
};

void hedge_budget_add(struct hedging *h, double share);
bool hedge_budget_take(struct hedging *h);

/* ---- a generation's ---- */

enum hedge_end { HEDGE_NONE, HEDGE_GOING, HEDGE_WON, HEDGE_LOST, HEDGE_FAILED, HEDGE_LEFT, HEDGE_ENDS };

/* What became of it. */
struct hedge_told {
	enum hedge_end end; /* NONE: there was no second sequence */
	int first, second;  /* engines */
	uint32_t after_ms;  /* of its admission */
};

/* May a request like this be hedged? */
bool hedge_fits(const struct proto_submit *s);

struct hedge_of {
	const struct link_listener *listener; /* of the second sequence */
	void *ctx;                            /* its, and of left */
	/* What to submit now; false: nothing any more. */
	bool (*left)(void *ctx, struct proto_submit *out);
	uint64_t id;     /* of the first sequence, which has its credit */
	uint32_t credit; /* of either */
	uint32_t lane;
};

/* Counts a request that may be hedged. NULL: it will not be. */
struct hedge *hedge_begin(struct gw_thread *t, const struct hedge_of *of);
/* The second sequence has won: the caller cancels the first one. Its identifier, which is the caller's now; 0: it has
 * won before, or there is none. */
uint64_t hedge_win(struct hedge *h);
/* The second sequence has ended without a token. */
void hedge_fail(struct hedge *h);
/* The first one has its first token, or (left) nobody wants one any more. Cancels the second. */
void hedge_lose(struct hedge *h, bool left);
/* The second sequence runs. NULL is allowed, as in the others. */
bool hedge_is_going(const struct hedge *h);
struct hedge_told hedge_told(const struct hedge *h);
void hedge_destroy(struct hedge *h);
/* "won", "lost", … */
const char *hedge_end_name(enum hedge_end end);

#endif
