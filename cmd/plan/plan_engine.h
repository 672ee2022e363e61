/* SPDX-License-Identifier: Apache-2.0
 *
 * The room is `sluice plan`: which arrangement of engines on this machine holds which targets at what load. A request
 * is simulated by the engine's own scheduler (engine/sched) on a clock of the simulation's; a step takes what steps of
 * that model were measured to take here (plan_costs.h). plan_sim.h has several engines, plan.c the command.
 *
 * This file: one simulated engine. Its prefix tree is a list of beginnings that were computed; readers never pause.
 *
 * Thread: main.
 */
#ifndef CMD_PLAN_ENGINE_H
#define CMD_PLAN_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "cmd/load/workload.h"
#include "cmd/plan/plan_curve.h"
#include "engine/sched/sched.h"

enum { PLAN_PAGE = 16 };

struct plan_box {
	struct cost cost;        /* of its steps, as it has learnt them so far */
	struct plan_curve curve; /* what they take; n 0: what it has learnt, which then stays */
	/* Beside the steps: each; each token drawn, until it is on its way. What a request waits: tokenized, for each
	 * token of its prompt; and from there on for the gateway's credit. link_ns 0: it has credit at once. */
	double step_ns, token_ns, text_ns;
	uint64_t link_ns;
	uint32_t step_tokens, max_sequences, n_pages;
	uint64_t itl_target_ns; /* 0: none */
	uint32_t max_draft;     /* tokens; 0: no drafts */
	double accept;          /* how likely a drafted token is accepted, given that those before it were */
};

/* A request; the first two are given, the others found. */
struct plan_request {
	uint64_t came_ns;
	struct work work;
	uint64_t first_ns, last_ns; /* of its tokens; 0: none */
	uint64_t longest_ns;        /* between two of them */
	uint32_t n_made;
};

struct plan_seq;
struct plan_engine;

struct plan_events {
	void *ctx;
	/* r has as many tokens as were asked of this engine. It may be added to another one. */
	void (*done)(void *ctx, struct plan_engine *e, struct plan_request *r, uint64_t now_ns);
	void (*gap)(void *ctx, uint64_t ns); /* between two tokens of an answer. NULL: not wanted */
};

/* box is copied. SL_ENOMEM. */
int plan_engine_create(const struct plan_box *box, const struct plan_events *events, struct plan_engine **out);
void plan_engine_destroy(struct plan_engine *e); /* NULL allowed. Requests it still has are dropped */
/* n_answer: tokens to make here. n_there: tokens of the prompt whose keys and values came with it. SL_ENOMEM. */
int plan_engine_add(struct plan_engine *e, struct plan_request *r, uint32_t n_answer, uint32_t n_there,
		    uint64_t now_ns);
/* Begins a step if none runs and there is something to compute. */
void plan_engine_start(struct plan_engine *e, uint64_t now_ns);
/* When the step that runs ends; if none does, when a request can go on; UINT64_MAX: none waits for a time. */
uint64_t plan_engine_next(const struct plan_engine *e);
/* At that time: the tokens of the step that ran, if one did, are there. */
void plan_engine_finish(struct plan_engine *e);
uint32_t plan_engine_n_active(const struct plan_engine *e);
/* Tokens of this prompt that need not be computed. */
uint32_t plan_engine_has(const struct plan_engine *e, const struct work *w);
uint64_t plan_engine_n_prefilled(const struct plan_engine *e); /* tokens */

/* As an engine reports them (struct proto_stats). */
struct plan_figures {
	uint32_t running, waiting;
	double kv_used; /* share of the pages */
	uint64_t prefill_tokens, decode_tokens;
	double prefill_token_us, decode_step_us;
};
struct plan_figures plan_engine_figures(const struct plan_engine *e);

#endif
