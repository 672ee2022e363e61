/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning from logged outcomes: weights of the score, thresholds of the confidence. Pure, except that the functions
 * allocate while they run.
 */
#ifndef CASCADE_LEARN_H
#define CASCADE_LEARN_H

#include "cascade/weights.h"

/* ---- weights: casc_train ---- */

struct casc_example {
	const float *dense;    /* [CASC_N_FEATURES], borrowed like grams */
	const uint32_t *grams; /* as in struct casc_features */
	uint32_t n_grams;
	bool hard; /* the small model's answer was not good enough */
};

struct casc_train_settings {
	uint32_t bits, epochs;
	double rate;     /* learning rate (AdaGrad) */
	double decay;    /* L2, per pass over the examples */
	double held_out; /* share of examples for evaluation only, 0..0.9 */
	uint64_t seed;
};

/* How well a set of examples is separated. */
struct casc_fit {
	uint32_t n, n_hard;
	double loss;      /* mean cross entropy */
	double base_loss; /* the same, for always predicting the mean */
	double accuracy;  /* at 0.5 */
	double auc;       /* probability that a hard example scores above an easy one */
};

/* The same examples, settings and seed give the same weights. 0; SL_EINVAL: not both kinds of examples; SL_ENOMEM. */
int casc_train(const struct casc_example *examples, size_t n, const struct casc_train_settings *s,
	       struct casc_weights **out, struct casc_fit *trained, struct casc_fit *held_out, struct sl_err *err);

/* ---- fitting again: casc_refit ---- */

struct casc_refit_settings {
	struct casc_train_settings train; /* held_out is not used */
	double newest;     /* share of the examples, the last ones, that judge both; above 0, at most 0.5 */
	uint32_t least;    /* of each kind among those */
	double small_cost; /* of a token of the small model, in tokens of the large one */
	double tolerance;  /* share of the small model's answers that may be wrong without a check */
};

enum casc_refit_end {
	CASC_REFIT_TAKEN,
	CASC_REFIT_FEW,   /* too few examples of one kind */
	CASC_REFIT_WORSE, /* not better than the present weights by more than chance explains */
};

struct casc_refit {
	enum casc_refit_end end;
	double now, fresh;  /* mean cross entropy on the newest examples, which neither was fitted to */
	double gain, error; /* the loss saved and its standard error */
	float easy, hard;   /* thresholds that pay */
};

/* Fits weights to the older of the examples, which come oldest first, and compares them with `now` on the newest. They
 * are taken if their mean loss there is lower by more than twice the standard error of the difference. recent: of all
 * requests lately, with verdicts or not, for the reference. 0: *out has them if r->end is CASC_REFIT_TAKEN, else NULL;
 * SL_EINVAL with *err: a setting is out of its range; SL_ENOMEM. */
int casc_refit(const struct casc_example *examples, size_t n, const struct casc_example *recent, size_t n_recent,
	       const struct casc_weights *now, const struct casc_refit_settings *s, struct casc_weights **out,
	       struct casc_refit *r, struct sl_err *err);

/* scores and verdicts of n requests, sorted by score. easy: below it so few are hard that the small model alone is
 * wrong for at most `tolerance` of them; hard: from it on so many are that asking the small model first costs more than
 * it saves, small_cost + p > 1. Each with 97.5 % certainty by Wilson's bound (1927); 0 and 1 where none is. */
void casc_thresholds(const float *scores, const bool *hard, size_t n, double small_cost, double tolerance,
		     float *easy_at, float *hard_at);

/* ---- thresholds: casc_calibrate ---- */

struct casc_outcome {
	const float *trace; /* the confidence after each token of the small model; borrowed */
	uint32_t n;
	bool small_right, large_right;
};

/* The policy as a function of `low`: sure and drop keep their distance to it. */
struct casc_gate {
	uint16_t hold_tokens, hold_min;
	float sure_above, drop_below; /* sure = low + sure_above, drop = low - drop_below */
};

struct casc_curve_point {
	float low;                 /* the threshold */
	double small_rate;         /* share of requests that the small model answers alone */
	double quality;            /* right answers, relative to the large model alone */
	double large_tokens_saved; /* share of answer tokens that the large model did not generate */
};

enum casc_target { CASC_FOR_RATE, CASC_FOR_QUALITY };

/* The index (from 0) of the token at which this threshold would escalate the answer; -1: never. Same rules as the state
 * machine, without times. */
int64_t casc_gate_at(const struct casc_gate *g, float low, const float *trace, uint32_t n);

/* points: the curve from never to always escalating, *n_points of at most n_max (an even choice of the thresholds that
 * change the outcome). best: for CASC_FOR_RATE the highest threshold with a small_rate of at least `target`; for
 * CASC_FOR_QUALITY the lowest with a quality of at least `target`. 0; SL_EINVAL: no outcomes, or invalid traces;
 * SL_ENOTFOUND: no threshold reaches the target, but the curve is valid; SL_ENOMEM. */
int casc_calibrate(const struct casc_outcome *outcomes, size_t n, const struct casc_gate *g, enum casc_target kind,
		   double target, struct casc_curve_point *points, size_t n_max, size_t *n_points,
		   struct casc_curve_point *best, struct sl_err *err);

struct casc_early {
	float sure;
	double held, held_at_1; /* mean number of held tokens: with sure, and with sure = 1 */
};

/* How early may an answer be shown? For given low and drop, finds the lowest sure (at least low) such that, for it and
 * every higher value, at least `share` of the answers that are right with sure = 1 stay right. 0; SL_EINVAL as above.
 */
int casc_calibrate_early(const struct casc_outcome *outcomes, size_t n, const struct casc_gate *g, float low,
			 double share, struct casc_early *out, struct sl_err *err);

#endif
