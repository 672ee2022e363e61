/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sched/spec.h"

#include <math.h>

#include "base/err.h"

static const double recent = 0.25, least_gain = 1.02;
static const double least_guess = 0.05, most_guess = 0.8;

void spec_rate_init(struct spec_rate *r, double accept)
{
	accept = accept > least_guess ? accept : least_guess;
	*r = (struct spec_rate){.accept = accept < most_guess ? accept : most_guess};
}

void spec_rate_learn(struct spec_rate *r, struct spec_trial *t, uint32_t n_compared, uint32_t n_accepted)
{
	BUG_IF(n_accepted > n_compared || n_compared > n_accepted + 1, "speculation: %u of %u accepted", n_accepted,
	       n_compared);
	for (uint32_t i = 0; i < n_accepted; i++)
		r->accept += recent * (1 - r->accept);
	if (n_compared > n_accepted)
		r->accept -= recent * r->accept;
	else
		t->patience = SPEC_FIRST_PATIENCE; /* the draft was right: only the assumed cost of rows may be wrong */
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

/* One more measurement on this side of what was expected, 0: near it. Returns how often the limits double. */
static int outliers(struct cost_point *p, int side)
{
	enum { DISTURBED = 3, WIDEST = 4 };
	int n = side * p->n_outside > 0 ? side * p->n_outside + 1 : side != 0;
	n = n < DISTURBED + WIDEST ? n : DISTURBED + WIDEST;
	p->n_outside = (int8_t)(side * n);
	return n > DISTURBED ? n - DISTURBED : 0;
}

void spec_cost_learn(struct cost *c, uint32_t rows, struct cost_past past, double ns)
{
	static const double unsettled_least = 0.125, unsettled_most = 4, inside_least = 0.7, inside_most = 1.3;
	double expected = cost_step_ns(c, rows, past), least = unsettled_least, most = unsettled_most;
	struct cost_point *p = cost_point_of(c, rows);
	if (p->n_seen == COST_SETTLED) {
		int wider = outliers(p, ns > inside_most * expected ? 1 : ns < inside_least * expected ? -1 : 0);
		least = ldexp(inside_least, -wider);
		most = ldexp(inside_most, wider);
	}
	ns = ns < least * expected ? least * expected : ns > most * expected ? most * expected : ns;
	cost_learn(c, rows, past, ns);
}

/* What the rows of the step cost with so many more of them, [0..SPEC_MAX_DRAFT]. Computed once for all lengths:
 * searching the cost curve itself would take almost as long as a small model's step. */
struct curve {
	double ns[SPEC_MAX_DRAFT + 1];
	double past_ns; /* attention of the step without a draft, and what is beside it */
};

/* Fewer rows never cost more than more rows, whatever was measured. */
static void draw_curve(const struct spec_now *now, uint32_t most, struct curve *out)
{
	double least = cost_rows_ns(now->cost, now->rows + most);
	for (uint32_t n = most + 1; n-- > 0;) {
		double ns = n < most ? cost_rows_ns(now->cost, now->rows + n) : least;
		least = ns < least ? ns : least;
		out->ns[n] = least;
	}
	out->past_ns = cost_past_ns(now->cost, now->past) + now->beside_ns;
}

static double plain_ns(const struct curve *c) { return c->ns[0] + c->past_ns; }

/* The step with a draft of n, without what drafting costs once. */
static double draft_ns(const struct curve *c, const struct spec_now *now, uint32_t n_past, uint32_t n,
		       const struct spec_price *price)
{
	return c->ns[n] + cost_past_ns(now->cost, past_with(now, n_past, n)) + now->beside_ns + n * price->each_ns +
	       price->draft_ns;
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

/* A draft of n pays. What more rows cost is known from such drafts only: now and then it goes on to the next point of
 * the curve. */
static uint32_t longer(struct spec_trial *t, const struct spec_now *now, uint32_t n, uint32_t most)
{
	uint32_t rows = (uint32_t)now->rows, next = 1;
	while (next <= rows + n)
		next *= 2;
	if (next - rows > most)
		return n;
	bool measured = cost_point_seen(now->cost, next);
	if (++t->n_drafts < (measured ? SPEC_AGAIN_EACH : SPEC_LONGER_EACH))
		return n;
	t->n_drafts = 0;
	return next - rows;
}

/* A draft reaches at most the point after the last one that was measured. */
static uint32_t within_reach(const struct spec_now *now, uint32_t most)
{
	uint32_t rows = (uint32_t)now->rows, end = 2;
	while (end <= rows || (end < rows + most && cost_point_seen(now->cost, end)))
		end *= 2;
	end *= cost_point_seen(now->cost, end / 2) ? 2 : 1;
	return rows + most < end ? most : end - 1 - rows;
}

uint32_t spec_length(const struct spec_rate *r, struct spec_trial *t, double may_lose, const struct spec_now *now,
		     uint32_t n_past, uint32_t most, const struct spec_price *price)
{
	double gain;
	struct curve c;
	most = within_reach(now, most < SPEC_MAX_DRAFT ? most : SPEC_MAX_DRAFT);
	if (most == 0)
		return 0;
	draw_curve(now, most, &c);
	uint32_t n = best_length(&c, r->accept, now, n_past, most, price, &gain);
	if (n > 0 && gain > least_gain) {
		t->unused = 0;
		return longer(t, now, n, most);
	}
	t->patience = t->patience > 0 ? t->patience : SPEC_FIRST_PATIENCE;
	if (++t->unused < t->patience)
		return 0;
	/* What drafting costs is known. What the rows cost may not be, and the account pays for that. */
	n = most < SPEC_TRIAL ? most : SPEC_TRIAL;
	if (price->once_ns + price->draft_ns + n * price->each_ns > may_lose * plain_ns(&c))
		return 0;
	t->unused = 0;
	t->patience = 2 * t->patience < SPEC_MOST_PATIENCE ? 2 * t->patience : SPEC_MOST_PATIENCE;
	return n;
}

double spec_gain(const struct spec_rate *r, const struct spec_now *now, uint32_t n_past, uint32_t most,
		 const struct spec_price *price)
{
	double gain;
	struct curve c;
	most = most < SPEC_MAX_DRAFT ? most : SPEC_MAX_DRAFT;
	draw_curve(now, most, &c);
	best_length(&c, r->accept, now, n_past, most, price, &gain);
	return gain;
}

void spec_now_add(struct spec_now *now, const struct spec_rate *r, uint32_t n_past, uint32_t n)
{
	now->past = past_with(now, n_past, n);
	now->rows += n;
	now->tokens += expected(r->accept, n);
}

/* ---- the account ---- */

void spec_account_init(struct spec_account *a)
{
	*a = (struct spec_account){.steps = SPEC_FIRST_STEPS, .over = 1, .length = SPEC_SPREAD};
}

bool spec_may_draft_now(struct spec_account *a)
{
	if (a->steps > 0 && a->n_drafting < SPEC_PLAIN_EACH)
		return true;
	a->n_drafting = 0;
	return false;
}

/* Other work may make a step take three times as long as expected; more is not counted, unless it goes on. */
static double limited(uint32_t *n_far, double ns, double expected)
{
	enum { ISOLATED = 1 };
	static const double most = 3;
	*n_far = ns > most * expected ? *n_far + 1 : 0;
	return *n_far == 0 || *n_far > ISOLATED ? ns : most * expected;
}

void spec_account_learn(struct spec_account *a, const struct spec_step *s)
{
	enum { AVERAGED = 16 };
	bool waited = s->beside_ns > s->plain_ns; /* for work */
	double plain_ns = s->plain_ns + a->beside_ns;
	double all_ns =
	    limited(&a->n_far[s->drafted], s->took_ns, s->expected_ns) + (waited ? a->beside_ns : s->beside_ns);
	if (!(s->plain_ns > 0) || !(s->n_decode > 0))
		return;
	if (!s->drafted) {
		a->n_plain += a->n_plain < AVERAGED;
		a->over += (all_ns / plain_ns - a->over) / a->n_plain;
		a->beside_ns += waited ? 0 : (s->beside_ns - a->beside_ns) / a->n_plain;
	} else {
		a->steps += a->over * (s->n_decode + s->n_accepted) / s->n_decode - all_ns / plain_ns;
	}
	a->steps += SPEC_SHARE * all_ns / plain_ns;
	a->steps = a->steps < SPEC_MOST_STEPS ? a->steps : SPEC_MOST_STEPS;
	a->steps = a->steps > -SPEC_MOST_DEBT ? a->steps : -SPEC_MOST_DEBT;
}

void spec_account_ended(struct spec_account *a, uint32_t n)
{
	static const double part = 0.0625;
	a->length += part * (n - a->length);
}
