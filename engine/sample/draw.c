/* SPDX-License-Identifier: Apache-2.0
 *
 * A block's largest logit and first arrival bound the scores of all its elements from below, and each block's first
 * arrival is a score to beat. So few blocks are raced, the one with the best bound first. In a block, bounds without
 * logarithms leave few candidates whose score is computed. Of a list, the likeliest candidate is raced first.
 *
 * VERSIONS (one thread of an EPYC with AVX-512, 131,072 normal logits of deviation 3, draws with filters; µs, best of
 * 7)
 *                                                  T=1   T=2   top-k 50   top-p .95   same, T=2   min-p .05   typical .95
 *   0  the element at u of the cumulated mass      204   203         57         753         857         242           876
 *   1  the race; lists one by one                  131   100         66         809         996         242           954
 *   2  lists: the likeliest first, common bounds   131   100         59         797         906         244           933
 * (2,048 such logits, an EPYC with AVX2; times the time of version 0, medians of pairs)
 *   2                                             2.63  3.46       1.38        1.25        1.73       1.18          1.19
 *   3  bounds of each score, without branches     1.01  1.01       0.97        0.98        1.00       1.11          0.94
 *   4  min-p drops by logits first (sampler.c)                                                         0.45
 */
#include "engine/sample/draw.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "engine/sample/logits.h"
#include "kernels/race.h"

_Static_assert((int)LOGITS_BLOCK == (int)RACE_BLOCK, "partial results are of the race's blocks");

struct winner {
	double score;
	int32_t id;
};

static float log_weight(const struct draw_scale *s, float l) { return (l - s->max) * s->inv_t; }

/* ---- lower bounds ---- */

/* At most race_exponential(hash), by few percent where that is below 1: -ln(1 - e) = e + e²/2 + e³/3 + … */
static double exponential_floor(uint64_t hash)
{
	double e = 1 - ((double)(hash >> 12) + 0.5) * 0x1p-52;
	return e + e * e * (0.5 + 0.333 * e);
}

/* At most race_log(x), by at most 0.06, also if x is a sum with few roundings: log2(1 + m) ≥ m for a mantissa's m. */
static double log_floor(double x)
{
	int64_t bits;
	memcpy(&bits, &x, sizeof bits);
	return (double)(bits - ((int64_t)1023 << 52)) * (0x1p-52 * 0x1.62e42fefa39efp-1) - 1e-9;
}

/* No logit below can win in a block whose first arrival has this logarithm (or a larger one), once `score` has been
 * reached. Floats round, so a little lower; race_score decides. */
static float least_logit(const struct draw_scale *s, double log_first, double score)
{
	double least = (double)s->max + (log_first - score) / (double)s->inv_t;
	return (float)(least - 1e-5 * (1 + fabs(least)));
}

/* ---- the race ---- */

static void arrive(struct winner *w, double score, int32_t id)
{
	if (score < w->score || (score == w->score && id < w->id)) {
		w->score = score;
		w->id = id;
	}
}

/* The candidates l [n ≤ RACE_BLOCK] of one block, whose ids are ids or, if that is NULL, the block's first n. Almost all
 * are ruled out by their weight and most others by a bound of their score, without branches; race_score decides. */
static void race_run(struct winner *w, const float *l, const int32_t *ids, int n, const struct draw_scale *s,
		     uint64_t key, int block)
{
	uint8_t at[RACE_BLOCK];
	uint64_t hash = race_first_hash(key, block);
	double soonest = exponential_floor(hash) / RACE_BLOCK;
	int32_t from = block * RACE_BLOCK, first_id = from + (int32_t)(hash % RACE_BLOCK);
	int heavy = logits_list_from(l, n, least_logit(s, log_floor(soonest), w->score), at), likely = 0;
	for (int i = 0; i < heavy; i++) {
		int k = at[i];
		int32_t id = ids != NULL ? ids[k] : from + k;
		double after = exponential_floor(race_mix(key + (uint32_t)id));
		after = id == first_id ? 0 : after;
		at[likely] = (uint8_t)k;
		likely += log_floor(soonest + after) - (double)log_weight(s, l[k]) <= w->score;
	}
	if (likely == 0)
		return;
	const struct race_arrival first = race_first(key, block);
	for (int i = 0; i < likely; i++) {
		int k = at[i];
		int32_t id = ids != NULL ? ids[k] : from + k;
		arrive(w, race_score(race_time(key, &first, id), log_weight(s, l[k])), id);
	}
}

int32_t draw_row(const float *l, int n, const struct draw_scale *s, uint64_t key, double *bounds)
{
	int n_blocks = (n + RACE_BLOCK - 1) / RACE_BLOCK, best = 0;
	struct winner w = {INFINITY, -1};
	for (int b = 0; b < n_blocks; b++) {
		int at = b * RACE_BLOCK;
		float most = logits_max(l + at, at + RACE_BLOCK < n ? RACE_BLOCK : n - at);
		bounds[b] = INFINITY;
		if (!(most > -INFINITY))
			continue;
		const struct race_arrival first = race_first(key, b);
		double log_first = race_log(first.time);
		bounds[b] = log_first - (double)log_weight(s, most);
		best = bounds[b] < bounds[best] ? b : best;
		if (first.id < n && l[first.id] > -INFINITY)
			arrive(&w, log_first - (double)log_weight(s, l[first.id]), first.id);
	}
	for (int i = 0; i < n_blocks; i++) {
		int b = (best + i) % n_blocks, at = b * RACE_BLOCK;
		if (bounds[b] <= w.score && bounds[b] < INFINITY)
			race_run(&w, l + at, NULL, at + RACE_BLOCK < n ? RACE_BLOCK : n - at, s, key, b);
	}
	return w.id;
}

/* ---- lists ---- */

/* How many of n ≥ 1 ascending ids are of the first one's block. */
static int run_of(const int32_t *ids, int n)
{
	int block = ids[0] / RACE_BLOCK, end = n < RACE_BLOCK ? n : RACE_BLOCK, i = 1;
	while (i < end && ids[i] / RACE_BLOCK == block)
		i++;
	return i;
}

int32_t draw_listed(const float *l, const int32_t *ids, int n, const struct draw_scale *s, uint64_t key)
{
	int likeliest = logits_argmax(l, n);
	struct winner w = {INFINITY, ids[likeliest]};
	race_run(&w, l + likeliest, ids + likeliest, 1, s, key, ids[likeliest] / RACE_BLOCK);
	for (int i = 0, m; i < n; i += m) {
		m = run_of(ids + i, n - i);
		race_run(&w, l + i, ids + i, m, s, key, ids[i] / RACE_BLOCK);
	}
	return w.id;
}
