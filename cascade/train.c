/* SPDX-License-Identifier: Apache-2.0
 *
 * Logistic regression by stochastic gradient descent with per-weight step sizes (AdaGrad: Duchi et al., 2011), so that
 * rare n-grams learn as fast as the bias. The settings seed the shuffle and sums have a fixed order: equal input gives
 * bit-identical results.
 *
 * Weights of n-grams decay once per pass, not per example, so that an example's cost depends only on its own n-grams.
 */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "cascade/learn.h"

/* SplitMix64 (Steele et al., 2014). */
static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static void shuffle(uint32_t *order, size_t n, uint64_t *random)
{
	for (size_t i = n; i > 1; i--) {
		size_t k = (size_t)(draw(random) % i);
		uint32_t t = order[i - 1];
		order[i - 1] = order[k];
		order[k] = t;
	}
}

struct trainer {
	struct casc_weights *w, *seen; /* seen: sums of squared gradients */
	double rate;
};

static void move(float *weight, float *seen, float gradient, double rate)
{
	*seen += gradient * gradient;
	*weight -= (float)(rate * (double)gradient / (1e-6 + sqrt((double)*seen)));
}

static float score_of(const struct casc_weights *w, const struct casc_example *e)
{
	return casc_sigmoid(casc_weights_logit(w, e->dense, e->grams, e->n_grams));
}

static void learn(struct trainer *t, const struct casc_example *e)
{
	float g = score_of(t->w, e) - (e->hard ? 1.0f : 0.0f);
	move(&t->w->bias, &t->seen->bias, g, t->rate);
	for (int i = 0; i < CASC_N_FEATURES; i++)
		if (e->dense[i] != 0)
			move(&t->w->dense[i], &t->seen->dense[i], g * e->dense[i], t->rate);
	if (e->n_grams == 0)
		return;
	float each = g / sqrtf((float)e->n_grams);
	for (uint32_t i = 0; i < e->n_grams; i++) {
		uint32_t at = e->grams[i] >> (32 - t->w->bits);
		move(&t->w->grams[at], &t->seen->grams[at], each, t->rate);
	}
}

static void shrink(struct casc_weights *w, double decay)
{
	float keep = (float)(1 - decay);
	for (size_t i = 0; i < (size_t)1 << w->bits; i++)
		w->grams[i] *= keep;
	for (int i = 0; i < CASC_N_FEATURES; i++)
		w->dense[i] *= keep;
}

/* ---- evaluation ---- */

struct scored {
	float score;
	bool hard;
};

static int by_score(const void *a, const void *b)
{
	float x = ((const struct scored *)a)->score, y = ((const struct scored *)b)->score;
	return x < y ? -1 : x > y;
}

/* Rank sum (Mann and Whitney); equal scores share a rank. */
static double area(const struct scored *s, size_t n, double n_hard)
{
	double ranks = 0, n_easy = (double)n - n_hard;
	for (size_t i = 0, to; i < n; i = to) {
		for (to = i + 1; to < n && s[to].score == s[i].score;)
			to++;
		for (size_t k = i; k < to; k++)
			ranks += s[k].hard ? ((double)i + (double)to + 1) / 2 : 0;
	}
	return n_hard > 0 && n_easy > 0 ? (ranks - n_hard * (n_hard + 1) / 2) / (n_hard * n_easy) : 0;
}

static double cross_entropy(double p, bool hard)
{
	double q = hard ? p : 1 - p;
	return -log(q > 1e-12 ? q : 1e-12);
}

static void measure(const struct casc_weights *w, const struct casc_example *examples, const uint32_t *order, size_t n,
		    struct scored *room, struct casc_fit *out)
{
	*out = (struct casc_fit){.n = (uint32_t)n};
	for (size_t i = 0; i < n; i++) {
		const struct casc_example *e = &examples[order[i]];
		room[i] = (struct scored){score_of(w, e), e->hard};
		out->n_hard += e->hard;
		out->loss += cross_entropy((double)room[i].score, e->hard);
		out->accuracy += (room[i].score >= 0.5f) == e->hard;
	}
	if (n == 0)
		return;
	double mean = (double)out->n_hard / (double)n;
	for (size_t i = 0; i < n; i++)
		out->base_loss += cross_entropy(mean, room[i].hard);
	out->loss /= (double)n;
	out->base_loss /= (double)n;
	out->accuracy /= (double)n;
	qsort(room, n, sizeof *room, by_score);
	out->auc = area(room, n, out->n_hard);
}

static int check(const struct casc_example *examples, size_t n, const struct casc_train_settings *s, struct sl_err *err)
{
	size_t hard = 0;
	if (s->bits < CASC_BITS_MIN || s->bits > CASC_BITS_MAX)
		return sl_errf(err, SL_EINVAL, "bits must be between %d and %d", CASC_BITS_MIN, CASC_BITS_MAX);
	if (!(s->rate > 0 && s->rate <= 100) || !(s->decay >= 0 && s->decay < 1) ||
	    !(s->held_out >= 0 && s->held_out <= 0.9))
		return sl_errf(err, SL_EINVAL,
			       "rate must be above 0, decay at least 0 and below 1, held_out between 0 and 0.9");
	for (size_t i = 0; i < n; i++)
		hard += examples[i].hard;
	if (n > UINT32_MAX || hard == 0 || hard == n)
		return sl_errf(err, SL_EINVAL, "%zu outcomes, %zu of them hard: both kinds are needed", n, hard);
	return 0;
}

int casc_train(const struct casc_example *examples, size_t n, const struct casc_train_settings *s,
	       struct casc_weights **out, struct casc_fit *trained, struct casc_fit *held_out, struct sl_err *err)
{
	int rc = check(examples, n, s, err);
	if (rc != 0)
		return rc;
	struct trainer t = {.w = casc_weights_create(s->bits), .seen = casc_weights_create(s->bits), .rate = s->rate};
	uint32_t *order = sl_zalloc_n(n, sizeof *order);
	struct scored *room = sl_zalloc_n(n, sizeof *room);
	uint64_t random = s->seed;
	size_t n_held = (size_t)((double)n * s->held_out), n_learn = n - n_held;
	if (t.w == NULL || t.seen == NULL || order == NULL || room == NULL) {
		rc = sl_errf(err, SL_ENOMEM, "no memory for %zu outcomes", n);
	} else {
		for (size_t i = 0; i < n; i++)
			order[i] = (uint32_t)i;
		/* The last examples of the first shuffle are held out. */
		shuffle(order, n, &random);
		for (uint32_t epoch = 0; epoch < s->epochs; epoch++) {
			shuffle(order, n_learn, &random);
			for (size_t i = 0; i < n_learn; i++)
				learn(&t, &examples[order[i]]);
			shrink(t.w, s->decay);
		}
		measure(t.w, examples, order, n_learn, room, trained);
		measure(t.w, examples, order + n_learn, n_held, room, held_out);
		*out = t.w;
		t.w = NULL;
	}
	sl_free(order);
	sl_free(room);
	casc_weights_destroy(t.w);
	casc_weights_destroy(t.seen);
	return rc;
}
