/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a draft should be (Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023, has
 * the arithmetic of acceptance). Pure: it knows numbers, not sequences.
 *
 * Each request has, for each source of drafts, a moving average of how likely a drafted token is accepted, given that
 * those before it were. From that and from what steps of so many rows cost on this machine (struct cost, of steps
 * without prompts) follows the length with which the step makes the most tokens a second; if no length beats a plain
 * step, nothing is drafted. Neither acceptance nor the cost of rows can be measured without drafts. So a model's steps
 * try a short one occasionally, at intervals that grow until one is right, and while drafts pay a longer one.
 *
 * These are estimates. What drafts really cost is kept in an account of each model (struct spec_account), in plain
 * steps: a step with drafts is charged the time that it took, drafting included, and credited what plain steps would
 * have taken for the same tokens. Every step adds SPEC_SHARE of a step. While the account is not positive, nothing is
 * drafted, whatever the estimates are. So drafts lose at most that share of the time, what the account begins with,
 * and one draft. A measurement far above its expectation is other work's, and limited alike with drafts and without;
 * several in a row are not.
 */
#ifndef ENGINE_SPEC_H
#define ENGINE_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/sched/cost.h"

enum {
	SPEC_MAX_DRAFT = 16,
	SPEC_TRIAL = 2,           /* tokens of a draft that is not expected to pay */
	SPEC_FIRST_PATIENCE = 16, /* chances left unused before a trial, doubled by each until one is right */
	SPEC_MOST_PATIENCE = 256,
	SPEC_LONGER_EACH = 8,  /* drafts, then a longer one, if what its rows cost has not been measured … */
	SPEC_AGAIN_EACH = 128, /* … and if it has */
	SPEC_PLAIN_EACH = 32,  /* steps with drafts, then one without, so that its cost stays known */
	SPEC_FIRST_STEPS = 3,  /* steps that an account begins with */
	SPEC_MOST_STEPS = 12,  /* and has at most */
	SPEC_MOST_DEBT = 64,
	SPEC_SPREAD = 128, /* tokens that what is paid once is spread over, at most */
};

#define SPEC_SHARE 0.01 /* of the time, that drafts may lose */

enum spec_source { SPEC_NGRAM, SPEC_HEAD, SPEC_MODEL, SPEC_SOURCES };

struct spec_rate {
	double accept; /* 0: not begun */
};

/* Drafts of one source of a model that are not expected to pay. */
struct spec_trial {
	uint32_t unused, patience; /* chances since the last one, and before the next; patience 0: the first */
	uint32_t n_drafts;         /* that are expected to pay, since the last longer one */
};

struct spec_account {
	double steps;        /* plain steps that drafts may still lose */
	double over;         /* what plain steps take over what is expected of them */
	double beside_ns;    /* what a step takes beside computing: planning, and what comes between steps */
	double length;       /* tokens of an answer */
	uint32_t n_plain;    /* measured, of the last ones */
	uint32_t n_far[2];   /* successive steps without drafts, and with, far above what was expected */
	uint32_t n_drafting; /* steps with drafts since the last one without */
	struct spec_trial trials[SPEC_SOURCES];
};

/* Like cost_learn, for a step without prompts, but clips outliers: drafts that seem to pay only because one plain step
 * was disturbed would prevent that step's cost from being measured again. Several outliers in a row are the truth: then
 * the limits widen. */
void spec_cost_learn(struct cost *c, uint32_t rows, struct cost_past past, double ns);

/* What drafting costs beside verifying. */
struct spec_price {
	double each_ns;  /* a token */
	double draft_ns; /* a draft */
	double once_ns;  /* now, before the first one, and not again for the next `spread` tokens */
	uint32_t spread;
};

/* The step as it is planned so far. */
struct spec_now {
	const struct cost *cost;
	double beside_ns;    /* beside what cost knows of */
	double rows, tokens; /* tokens: expected to come of it */
	struct cost_past past;
};

/* accept: a guess, held within what leaves room to learn. */
void spec_rate_init(struct spec_rate *r, double accept);
/* Of a draft so many tokens were compared with the model's, and so many accepted: all compared ones, or all but the
 * last. */
void spec_rate_learn(struct spec_rate *r, struct spec_trial *t, uint32_t n_compared, uint32_t n_accepted);
/* Tokens that a draft of n adds on the average. */
double spec_expected(const struct spec_rate *r, uint32_t n);
/* How many tokens to draft, at most `most`, for a sequence of n_past tokens. `may_lose`: plain steps that drafting
 * may cost in a trial. */
uint32_t spec_length(const struct spec_rate *r, struct spec_trial *t, double may_lose, const struct spec_now *now,
		     uint32_t n_past, uint32_t most, const struct spec_price *price);
/* The throughput of the step with the best such draft, as a multiple of the throughput without. */
double spec_gain(const struct spec_rate *r, const struct spec_now *now, uint32_t n_past, uint32_t most,
		 const struct spec_price *price);
/* ---- the account ---- */

void spec_account_init(struct spec_account *a);
/* Whether something may be drafted in the next step; otherwise it is a plain one. */
bool spec_may_draft_now(struct spec_account *a);

/* A step without prompts, computed. */
struct spec_step {
	double plain_ns;    /* what its decoding rows alone were expected to take, without beside_ns */
	double expected_ns; /* the same with drafts, drafting included; plain_ns: it had none */
	double took_ns;     /* computing and drafting */
	double beside_ns;   /* the rest */
	double n_decode, n_accepted;
	bool drafted;
};
void spec_account_learn(struct spec_account *a, const struct spec_step *s);
/* An answer had n tokens. */
void spec_account_ended(struct spec_account *a, uint32_t n);

/* The step has these rows as well. */
void spec_now_add(struct spec_now *now, const struct spec_rate *r, uint32_t n_past, uint32_t n);

#endif
