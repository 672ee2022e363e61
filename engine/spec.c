/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/spec.h"

#include "base/err.h"

static const double recent = 0.25, at_first = 0.5, least_gain = 1.02;

void spec_rate_init(struct spec_rate *r)
{
	*r = (struct spec_rate){.accept = at_first, .patience = SPEC_FIRST_PATIENCE};
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

/* The length of the greatest throughput, and what it gains over none. */
static uint32_t best_length(double accept, const struct spec_now *now, uint32_t n_past, uint32_t most,
			    double draft_ns, double fixed_ns, double *gain)
{
	uint32_t best = 0;
	double plain = now->tokens / (cost_rows_ns(now->cost, now->rows) + cost_past_ns(now->cost, now->past));
	*gain = 0;
	for (uint32_t n = 1; n <= most; n++) {
		double ns = cost_rows_ns(now->cost, now->rows + n) +
			    cost_past_ns(now->cost, past_with(now, n_past, n)) + fixed_ns + n * draft_ns;
		double g = (now->tokens + expected(accept, n)) / ns / plain;
		if (g > *gain) {
			*gain = g;
			best = n;
		}
	}
	return best;
}

uint32_t spec_length(struct spec_rate *r, const struct spec_now *now, uint32_t n_past, uint32_t most,
		     double draft_ns, double fixed_ns)
{
	double gain;
	uint32_t n = best_length(r->accept, now, n_past, most, draft_ns, fixed_ns, &gain);
	if (n > 0 && gain > least_gain) {
		r->patience = SPEC_FIRST_PATIENCE;
		r->unused = 0;
		return n;
	}
	/* Where not even right drafts would pay (the machine is busy with many rows, as far as is known),
	 * it is tried as seldom as can be: what is known may be old. */
	best_length(1, now, n_past, most, draft_ns, fixed_ns, &gain);
	uint32_t patience = gain > least_gain ? r->patience : SPEC_MOST_PATIENCE;
	if (most == 0 || ++r->unused < patience)
		return 0;
	r->unused = 0;
	r->patience = 2 * r->patience < SPEC_MOST_PATIENCE ? 2 * r->patience : SPEC_MOST_PATIENCE;
	return most < SPEC_TRIAL ? most : SPEC_TRIAL;
}

void spec_now_add(struct spec_now *now, const struct spec_rate *r, uint32_t n_past, uint32_t n)
{
	now->past = past_with(now, n_past, n);
	now->rows += n;
	now->tokens += expected(r->accept, n);
}
