/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sched/spec.h"

#include "base/err.h"

static const double recent = 0.25, least_gain = 1.02, trial_share = 0.01;
static const double least_guess = 0.05, most_guess = 0.8;

void spec_rate_init(struct spec_rate *r, double accept)
{
	accept = accept > least_guess ? accept : least_guess;
	*r = (struct spec_rate){.accept = accept < most_guess ? accept : most_guess, .patience = SPEC_FIRST_PATIENCE};
}

void spec_rate_learn(struct spec_rate *r, uint32_t n_compared, uint32_t n_accepted)
{
	BUG_IF(n_accepted > n_compared || n_compared > n_accepted + 1, "speculation: %u of %u accepted", n_accepted,
	       n_compared);
	for (uint32_t i = 0; i < n_accepted; i++)
		r->accept += recent * (1 - r->accept);
	if (n_compared > n_accepted)
		r->accept -= recent * r->accept;
	else
		r->patience = SPEC_FIRST_PATIENCE; /* the draft was right: only the assumed cost of rows may be wrong */
}

static double expected(double accept, uint32_t n)
{
	double sum = 0, all = 1;
	for (uint32_t i = 0; i < n; i++) {
		all *= accept;
		sum += all;
	}
	return sum;
}

double spec_expected(const struct spec_rate *r, uint32_t n) { return expected(r->accept, n); }

static struct cost_past past_with(const struct spec_now *now, uint32_t n_past, uint32_t n)
{
	return (struct cost_past){.positions = now->past.positions + (double)cost_positions((uint64_t)n_past + 1, n),
				  .reads = now->past.reads + n};
}

void spec_cost_learn(struct cost *c, uint32_t rows, struct cost_past past, double ns)
{
	static const double least = 0.7, most = 1.3;
	double expected = cost_step_ns(c, rows, past);
	ns = ns < least * expected ? least * expected : ns > most * expected ? most * expected : ns;
	cost_learn(c, rows, past, ns);
}

/* What the rows of the step cost with so many more of them, [0..SPEC_MAX_DRAFT]. Computed once for all lengths:
 * searching the cost curve itself would take almost as long as a small model's step. */
struct curve {
	double ns[SPEC_MAX_DRAFT + 1];
	double past_ns; /* attention of the step without a draft */
};

/* Fewer rows never cost more than more rows, whatever was measured. */
static void draw_curve(const struct spec_now *now, struct curve *out)
{
	double least = cost_rows_ns(now->cost, now->rows + SPEC_MAX_DRAFT);
	for (int n = SPEC_MAX_DRAFT; n >= 0; n--) {
		double ns = cost_rows_ns(now->cost, now->rows + n);
		least = ns < least ? ns : least;
		out->ns[n] = least;
	}
	out->past_ns = cost_past_ns(now->cost, now->past);
}

static double plain_ns(const struct curve *c) { return c->ns[0] + c->past_ns; }

/* The step with a draft of n, without what drafting costs once. */
static double draft_ns(const struct curve *c, const struct spec_now *now, uint32_t n_past, uint32_t n,
		       const struct spec_price *price)
{
	return c->ns[n] + cost_past_ns(now->cost, past_with(now, n_past, n)) + n * price->each_ns;
}

/* The length of the greatest throughput, and what it gains over none. */
static uint32_t best_length(const struct curve *c, double accept, const struct spec_now *now, uint32_t n_past,
			    uint32_t most, const struct spec_price *price, double *gain)
{
	uint32_t best = 0;
	double plain = now->tokens / plain_ns(c), once = price->spread > 0 ? price->once_ns / price->spread : 0;
	double all = 1, adds = 0;
	*gain = 0;
	for (uint32_t n = 1; n <= most; n++) {
		all *= accept;
		adds += all;
		double ns = draft_ns(c, now, n_past, n, price) + once * (1 + adds);
		double g = (now->tokens + adds) / ns / plain;
		if (g > *gain) {
			*gain = g;
			best = n;
		}
	}
	return best;
}

uint32_t spec_length(struct spec_rate *r, const struct spec_now *now, uint32_t n_past, uint32_t most,
		     const struct spec_price *price)
{
	double gain;
	struct curve c;
	most = most < SPEC_MAX_DRAFT ? most : SPEC_MAX_DRAFT;
	draw_curve(now, &c);
	uint32_t n = best_length(&c, r->accept, now, n_past, most, price, &gain);
	if (n > 0 && gain > least_gain) {
		r->patience = SPEC_FIRST_PATIENCE;
		r->unused = 0;
		return n;
	}
	/* If even correct drafts would not pay (the machine seems busy with many rows), trials are as rare as possible:
	 * the measurement may be old. */
	best_length(&c, 1, now, n_past, most, price, &gain);
	uint32_t patience = gain > least_gain ? r->patience : SPEC_MOST_PATIENCE;
	if (most == 0 || ++r->unused < patience)
		return 0;
	n = most < SPEC_TRIAL ? most : SPEC_TRIAL;
	double plain = plain_ns(&c), costs = draft_ns(&c, now, n_past, n, price) - plain + price->once_ns;
	costs -= expected(r->accept, n) * plain / now->tokens; /* its gain at the measured acceptance */
	if (costs > trial_share * r->unused * plain)
		return 0;
	r->unused = 0;
	r->patience = 2 * r->patience < SPEC_MOST_PATIENCE ? 2 * r->patience : SPEC_MOST_PATIENCE;
	return n;
}

double spec_gain(const struct spec_rate *r, const struct spec_now *now, uint32_t n_past, uint32_t most,
		 const struct spec_price *price)
{
	double gain;
	struct curve c;
	draw_curve(now, &c);
	best_length(&c, r->accept, now, n_past, most < SPEC_MAX_DRAFT ? most : SPEC_MAX_DRAFT, price, &gain);
	return gain;
}

void spec_now_add(struct spec_now *now, const struct spec_rate *r, uint32_t n_past, uint32_t n)
{
	now->past = past_with(now, n_past, n);
	now->rows += n;
	now->tokens += expected(r->accept, n);
}
