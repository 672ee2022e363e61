/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: which engines compute prompts and which decode (roles; gw_config.h). Decisions only, from figures that the
 * caller has: no clock, no I/O, no thread, no memory. Callers: gateway/generation/role_planner.h, cmd/plan's
 * simulation.
 *
 *   role       an engine of role prefill computes long prompts for those of role decode (gateway/generation/hand_over.h);
 *              without one the others have role both and compute their own
 *   demand     tokens of prompts per second, long and short ones, averaged over a few seconds
 *   pressure   a predicted time divided by its target, or what is needed of what there is: above 1 a target is missed
 *
 * Each period the planner predicts the pressure for every number of prefill engines (planner_model.c) and takes the one
 * with the least, where
 *
 *   prefill    first token of a long prompt: its computation and twice the mean wait for one of P engines, approximated
 *              as an M/D/P queue (Sakasegawa, "An approximation formula L_q = α β^ρ / (1 − ρ)", 1977), and the backlog
 *   decode     time per token on the others: a step's fixed time plus its rows', stretched by the prompts that are
 *              computed in between; with the sequences there are, or with those that there will be once as many end as
 *              come, whichever is longer; pages of keys and values in use; requests that wait for a slot. Prompts
 *              beside answers cost less where computing hides behind reading weights: as far as steps of few and of
 *              many rows are seen to take as long
 *
 * Hysteresis: it moves engines only if the pressure is at least PLANNER_WATCH or answers have missed their targets, if
 * the best number is better by PLANNER_GAIN, in two periods in a row. An engine then keeps its role for `dwell`, and
 * for so long none goes the other way. A move concerns new prompts only: what an engine has begun it finishes, whatever
 * its role is by then.
 *
 * Sources of the figures watched: NVIDIA Dynamo's planner (prefill queue, KV use), DistServe (goodput).
 */
#ifndef GATEWAY_PLANNER_H
#define GATEWAY_PLANNER_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/config/gw_config.h"

enum { PLANNER_ENGINES = 16 };
#define PLANNER_WATCH 0.8
#define PLANNER_GAIN 0.8         /* the best pressure is at most so much of the one now, */
#define PLANNER_MISSED_GAIN 0.95 /* or, while targets are missed, so much */
#define PLANNER_LATE_SHARE 0.1   /* of answers: more have missed a target */

/* An engine, as it reports. Tokens are counted since its start. */
struct planner_engine {
	int role;   /* enum gw_engine_role: now; GW_ENGINE_BOTH with `fixed`: it is left out */
	bool fixed; /* the configuration gives its role */
	bool up;    /* it serves a model whose pages can be handed over */
	uint32_t running, waiting;
	uint32_t awaiting; /* of the waiting: they wait for pages that another engine computes */
	double kv_used;    /* share of its pages */
	uint64_t prefill_tokens, decode_tokens;
	double prefill_token_us; /* without attention */
	double decode_step_us;   /* of steps without prompts */
};

/* Sums since the process began. */
struct planner_traffic {
	/* Prompts that an idle prefill engine would compute (prefill_choice.h): how many, and tokens that were not
	 * cached. */
	uint64_t n_long, long_tokens;
	uint64_t short_tokens;    /* of the others */
	uint64_t n_first, n_late; /* ended answers of tiers with a target for the first token; those that missed it */
	uint64_t n_paced, n_slow; /* likewise, of a target per token */
	double ttft_us, tpot_us;  /* mean targets of the traffic now; 0: none */
};

struct planner_view {
	uint64_t now_ns; /* of any clock that only advances */
	struct planner_engine engines[PLANNER_ENGINES];
	int n_engines;
	struct planner_traffic traffic;
};

enum planner_why {
	PLANNER_STAYS,
	PLANNER_TTFT,  /* first tokens of long prompts are or would be late */
	PLANNER_TPOT,  /* tokens are or would be slow */
	PLANNER_KV,    /* the decoding engines' pages are or would be used up */
	PLANNER_QUEUE, /* requests wait for a slot to decode in */
	PLANNER_LOST,  /* no engine that decodes is up */
	PLANNER_WHYS,
};

struct planner_pressure {
	double ttft, tpot, kv, queue;
};

struct planner_decision {
	enum planner_why why;
	int n_prefill, n_best;             /* engines of role prefill that are up: before; with the least pressure */
	struct planner_pressure now, best; /* predicted for both */
	int n_moves;
	struct planner_move {
		int engine, role;
	} moves[PLANNER_ENGINES]; /* to be applied, in this order */
};

/* ---- the planner's state; zeros at first ---- */

struct planner {
	struct planner_view last;
	bool begun;
	double n_long, long_rate, short_rate; /* per second: long prompts, their tokens, those of others */
	double lasting_rate;                  /* long_rate over a longer time */
	double decode_rate;                   /* tokens per second */
	double first_late, slow;              /* shares of the answers that ended lately */
	double token_us; /* of a prompt's token on an engine with a backlog and nothing else to do; 0: not known */
	double fixed_us; /* of a step; 0: not known */
	/* Of steps without prompts on engines: their rows and microseconds, for the line through them; sums that decay.
	 */
	struct planner_steps {
		double n, rows, us, rows_rows, rows_us;
	} steps;
	int direction, n_in_a_row;          /* of the best number, from the one now */
	int moved;                          /* the direction of the last moves */
	uint64_t moved_ns;                  /* when; 0: never */
	uint64_t since_ns[PLANNER_ENGINES]; /* when an engine got its role from the planner; 0: it has not */
};

/* One period later. roles in v are those that the last decisions led to. dwell_ns: at least so long an engine keeps a
 * role. */
struct planner_decision planner_turn(struct planner *p, const struct planner_view *v, uint64_t dwell_ns);
/* "ttft", "tpot", … */
const char *planner_why_name(enum planner_why why);

/* ---- planner_model.c ---- */

/* What one period's figures tell of all engines that take part. */
struct planner_load {
	int n;                        /* engines that are up */
	double long_rate, short_rate; /* tokens per second */
	double long_mean;             /* tokens; 0: there are no long prompts */
	double prompt_us, row_us;     /* of a prompt's token on an engine of its own; computing a row */
	double decode_us;             /* of one more row in a step that decodes */
	double fixed_us;              /* of a step */
	double rows;                  /* decoding sequences */
	double decode_rate;           /* tokens per second */
	double waits;                 /* sequences that wait for a slot to decode in */
	double backlog;               /* long prompts that wait for an engine */
	double kv;                    /* pages in use of decoding engines, in engines' worths */
	double ttft_us, tpot_us;
};

/* With n_prefill of them computing prompts, 0 … n - 1. */
struct planner_pressure planner_predict(const struct planner_load *l, int n_prefill);
double planner_most(const struct planner_pressure *p);
enum planner_why planner_worst(const struct planner_pressure *p);

#endif
