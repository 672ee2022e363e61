/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/spec.h"

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
	BUG_IF(n_accepted > n_compared || n_compared > n_accepted + 1, "speculation: %u of %u accepted",
	       n_accepted, n_compared);
	for (uint32_t i = 0; i < n_accepted; i++)
		r->accept += recent * (1 - r->accept);
	if (n_compared > n_accepted)
		r->accept -= recent * r->accept;
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

double spec_expected(const struct spec_rate *r, uint32_t n)
{
	return expected(r->accept, n);
}

static struct cost_past past_with(const struct spec_now *now, uint32_t n_past, uint32_t n)
{
	return (struct cost_past){
	    .positions = now->past.positions + (double)cost_positions((uint64_t)n_past + 1, n),
	    .reads = now->past.reads + n};
}

void spec_cost_learn(struct cost *c, uint32_t rows, struct cost_past past, double ns)
{
	static const double least = 0.7, most = 1.3;
	double expected = cost_step_ns(c, rows, past);
	ns = ns < least * expected ? least * expected : ns > most * expected ? most * expected : ns;
	cost_learn(c, rows, past, ns);
}

/* Fewer rows are not dearer than more, whatever was measured. */
static double rows_ns(const struct spec_now *now, uint32_t n)
{
	double ns = cost_rows_ns(now->cost, now->rows + n);
	for (uint32_t more = n + 1; more <= SPEC_MAX_DRAFT; more++) {
		double other = cost_rows_ns(now->cost, now->rows + more);
		ns = other < ns ? other : ns;
	}
	return ns;
}

static double plain_ns(const struct spec_now *now)
{
	return rows_ns(now, 0) + cost_past_ns(now->cost, now->past);
}

/* The step with a draft of n, without what drafting costs once. */
static double draft_ns(const struct spec_now *now, uint32_t n_past, uint32_t n, const struct spec_price *price)
{
	return rows_ns(now, n) + cost_past_ns(now->cost, past_with(now, n_past, n)) +
	       n * price->each_ns;
}

/* The length of the greatest throughput, and what it gains over none. */
static uint32_t best_length(double accept, const struct spec_now *now, uint32_t n_past, uint32_t most,
			    const struct spec_price *price, double *gain)
{
	uint32_t best = 0;
	double plain = now->tokens / plain_ns(now), once = price->spread > 0 ? price->once_ns / price->spread : 0;
	*gain = 0;
	for (uint32_t n = 1; n <= most; n++) {
		double adds = expected(accept, n), ns = draft_ns(now, n_past, n, price) + once * (1 + adds);
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
	uint32_t n = best_length(r->accept, now, n_past, most, price, &gain);
	if (n > 0 && gain > least_gain) {
		r->patience = SPEC_FIRST_PATIENCE;
		r->unused = 0;
		return n;
	}
	/* Where not even right drafts would pay (the machine is busy with many rows, as far as is known),
	 * it is tried as seldom as can be: what is known may be old. */
	best_length(1, now, n_past, most, price, &gain);
	uint32_t patience = gain > least_gain ? r->patience : SPEC_MOST_PATIENCE;
	if (most == 0 || ++r->unused < patience)
		return 0;
	n = most < SPEC_TRIAL ? most : SPEC_TRIAL;
	double plain = plain_ns(now), costs = draft_ns(now, n_past, n, price) - plain + price->once_ns;
	if (costs > trial_share * r->unused * plain)
		return 0;
	r->unused = 0;
	r->patience = 2 * r->patience < SPEC_MOST_PATIENCE ? 2 * r->patience : SPEC_MOST_PATIENCE;
	return n;
}

void spec_now_add(struct spec_now *now, const struct spec_rate *r, uint32_t n_past, uint32_t n)
{
	now->past = past_with(now, n_past, n);
	now->rows += n;
	now->tokens += expected(r->accept, n);
}
