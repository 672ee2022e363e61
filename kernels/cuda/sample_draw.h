/* SPDX-License-Identifier: Apache-2.0
 *
 * The draw from a row (sample.cu): the races among listed elements and over chunks, and the ranks that filters keep.
 */
#ifndef KERNELS_CUDA_SAMPLE_DRAW_H
#define KERNELS_CUDA_SAMPLE_DRAW_H

#include "kernels/cuda/sample_row.h"

/* ---- the draw ---- */

__device__ static inline u64 share_of(u64 mass, float share)
{
	double want = (double)mass * (double)share;
	u64 least = (u64)want;
	least += (double)least < want;
	return least < 1 ? 1 : least > mass ? mass : least;
}

/* In the order of scores. */
__device__ static inline u64 order_of(double score)
{
	u64 b;
	memcpy(&b, &score, sizeof b);
	return b >> 63 ? ~b : b | (u64)1 << 63;
}

struct sample_winner {
	double score;
	int32_t id;
};

__device__ static inline void race(struct sample_winner *w, const struct race_arrival &first, u64 key, float x,
				   int32_t id)
{
	double score = race_score(race_time(key, &first, id), x);
	if (score < w->score || (score == w->score && id < w->id)) {
		w->score = score;
		w->id = id;
	}
}

__device__ static inline float log_weight(const struct sample_scale &c, float l) { return (l - c.max) * c.inv_t; }

/* Selects the row's token among the threads' winners. */
__device__ static void finish_race(struct sample_shared *s, const struct sample_winner &w, int t)
{
	kn_barrier();
	if (t == 0) {
		s->best = 0;
		s->found = 0xFFFFFFFFu;
	}
	kn_barrier();
	u64 mine = ~order_of(w.score), largest = warp_largest(mine);
	if (t % KN_WARP == 0)
		kn_max_shared(&s->best, largest);
	kn_barrier();
	if (mine == s->best)
		kn_min_shared(&s->found, (uint32_t)w.id);
	kn_barrier();
	if (t == 0)
		s->id = (int32_t)s->found;
	kn_barrier();
}

/* Computes prefix sums of the masses of the list's first n elements. */
__device__ static void weigh_list(struct sample_shared *s, const struct sample_scale &c, uint32_t n, int t)
{
	kn_barrier();
	for (uint32_t i = (uint32_t)t; i < BINS; i += THREADS) {
		s->mass[i] = i < n ? mass_of(c, rank_value(s->list[i])) : 0;
		s->count[i] = 0;
	}
	add_up(s, t);
}

/* Draws from the sorted list: filters, then the race. */
__device__ static void draw_listed(struct sample_shared *s, const struct sample_scale &c, uint32_t top_k, float top_p,
				   int t)
{
	uint32_t n = s->n;
	if (n > top_k)
		n = top_k;
	weigh_list(s, c, n, t);
	if (top_p < 1)
		n = reach(s, 0, share_of(s->mass[n - 1], top_p), t) + 1;
	if (s->job.min_p > 0) {
		if (t == 0)
			s->found = n;
		kn_barrier();
		for (uint32_t i = (uint32_t)t + 1; i < n; i += THREADS)
			if (weight_of(c, rank_value(s->list[i])) < s->job.min_p)
				kn_min_shared(&s->found, i);
		kn_barrier();
		n = s->found;
	}
	struct sample_winner w = {INFINITY, 0x7FFFFFFF};
#pragma unroll 1
	for (uint32_t i = (uint32_t)t; i < n; i += THREADS) {
		int32_t id = rank_id(s->list[i]);
		race(&w, race_first(s->job.key, id / RACE_BLOCK), s->job.key, log_weight(c, rank_value(s->list[i])),
		     id);
	}
	finish_race(s, w, t);
}

/* A race over the row: among all elements of at least the rank s->verdict.least that min-p keeps. */
struct sample_race {
	struct sample_winner w; /* this lane's */
	double limit;           /* a little above the best score so far */
};

/* No element of a chunk scores below this; INFINITY: none takes part. */
__device__ static inline double bound_of(const struct sample_shared *s, int chunk)
{
	float most = chunk < s->row.n_chunks ? s->row.most[chunk] : -INFINITY;
	if (!is_some(most) || (s->verdict.least != 0 && most < rank_value(s->verdict.least)) ||
	    weight_of(s->verdict.scale, most) < s->job.min_p)
		return INFINITY;
	return race_score(race_first(s->job.key, chunk).time, log_weight(s->verdict.scale, most));
}

__device__ static inline bool stays(const struct sample_shared *s, float v, int id)
{
	return is_some(v) && rank_of(v, id) >= s->verdict.least && weight_of(s->verdict.scale, v) >= s->job.min_p;
}

/* A warp races the elements of a chunk that can be below the limit, and lowers it. */
__device__ static void race_chunk(const struct sample_shared *s, struct sample_race *r, int chunk, int lane)
{
	float v[EACH];
	uint32_t chosen = 0;
	const struct race_arrival first = race_first(s->job.key, chunk);
	double log_first = race_log(first.time);
	load_chunk(s->row.l, s->row.n, s->row.wide, chunk, lane, v);
#pragma unroll 1
	for (int e = 0; e < EACH; e++) {
		if (stays(s, v[0], id_of(chunk, lane, e)) &&
		    log_first - (double)log_weight(s->verdict.scale, v[0]) <= r->limit)
			chosen |= 1u << e;
		UNROLL_FOR(int i = 0; i + 1 < EACH; i++) /* registers have no index */
			v[i] = v[i + 1];
	}
#pragma unroll 1
	while (chosen != 0) {
		int id = id_of(chunk, lane, kn_lowest_bit(chosen));
		chosen &= chosen - 1;
		race(&r->w, first, s->job.key, log_weight(s->verdict.scale, s->row.l[id]), id);
	}
	float best = -kn_warp_max(-(float)r->w.score);
	double limit = (double)best + 1e-6 * (1 + (double)fabsf(best));
	r->limit = limit < r->limit ? limit : r->limit;
}

/* Races the warp's chunk with the lowest bound, of one in each lane, if it can be below the limit; it has none then. */
__device__ static bool race_next(const struct sample_shared *s, struct sample_race *r, int first, double *bound,
				 int lane)
{
	float lowest = -kn_warp_max(-(float)*bound);
	if (!(lowest < INFINITY) || (double)lowest > r->limit)
		return false; /* the whole warp */
	int chosen = (int)-kn_warp_max((float)*bound == lowest ? -(float)lane : -(float)KN_WARP);
	if (lane == chosen)
		*bound = INFINITY;
	race_chunk(s, r, first + chosen * WARPS, lane);
	return true;
}

/* The lowest limit of all warps. */
__device__ static void share_limit(struct sample_shared *s, struct sample_race *r, int t)
{
	kn_barrier();
	if (t % KN_WARP == 0)
		s->warp_limit[t / KN_WARP] = r->limit;
	kn_barrier();
	for (int i = 0; i < WARPS; i++)
		r->limit = s->warp_limit[i] < r->limit ? s->warp_limit[i] : r->limit;
}

/* A warp has a chunk for each lane, and races first the ones with the lowest bounds (race.h): few are read. After
 * their first, the warps share their limits, so that the others are few. */
__device__ static void draw_from_row(struct sample_shared *s, int t)
{
	int lane = t % KN_WARP;
	struct sample_race r = {{INFINITY, 0x7FFFFFFF}, INFINITY};
#pragma unroll 1
	for (int base = t / KN_WARP; base - t / KN_WARP < s->row.n_chunks; base += THREADS) {
		double bound = bound_of(s, base + lane * WARPS);
		bool shared = false;
#pragma unroll 1
		while (race_next(s, &r, base, &bound, lane) || !shared)
			if (!shared) {
				share_limit(s, &r, t);
				shared = true;
			}
	}
	finish_race(s, r.w, t);
}

/* After a survey: a power such that all elements below it have less than the share of all mass that top_p leaves out.
 */
__device__ static float least_power(struct sample_shared *s, const struct sample_row &row, const struct sample_scale &c,
				    float top_p, int t)
{
	u64 mine = 0;
	for (int k = t; k < row.n_chunks; k += THREADS)
		if (is_some(row.most[k]))
			mine += (u64)(row.marks.mass[k] * kn_exp2(fmaxf(power_of(c, row.most[k]), -126.0f)) * 0x1p36f);
	float mass = (float)sum_of_all(s, mine, t) * 0x1p-36f, out = (1 - top_p) * mass / (float)row.n;
	float least = logf(out) * 0x1.715476p+0f - 0.1f; /* more than roundings are, and a bin */
	return out > 0 && least > -SPAN ? least : -INFINITY;
}

/* After histogram: lists the fewest best elements with that mass, of which *listed remain. False: they do not fit. */
__device__ static bool list_mass(struct sample_shared *s, const struct sample_row &row, const struct sample_scale &c,
				 u64 mass, uint32_t *listed, int t)
{
	int bin = (int)reach(s, 0, mass, t);
	/* An element of a bin has at least the weight of its end: that many elements may be too many. */
	float end = expf((float)(bin + 1) * (-(float)SPAN / BINS));
	if ((double)s->mass[bin] > (double)end * (double)UNIT * CAP || !collect_bins(s, row, c, bin, t))
		return false;
	weigh_list(s, c, s->n, t);
	*listed = reach(s, 0, mass, t) + 1;
	return true;
}

/* The lowest rank that the filters keep, of the best k if k is above 0, then of the fewest with a share of top_p. Or
 * the list has the best elements, sorted, of which *listed remain. */
__device__ static u64 threshold(struct sample_shared *s, const struct sample_row &row, const struct sample_scale &c,
				uint32_t k, float top_p, uint32_t *listed, int t)
{
	u64 least = 0, kept = 0; /* kept: mass so far */
	*listed = 0;
	for (int filter = k > 0 ? 0 : 1; filter < (top_p < 1 ? 2 : 1); filter++) {
		bool counts = filter == 0;
		float power = k > 0 ? -INFINITY : least_power(s, row, c, top_p, t);
		u64 target = 0;
		for (;;) {
			u64 all = histogram(s, row, c, power, counts, t);
			kept = k == 0 || counts ? all : kept;
			target = counts ? 0 : share_of(kept, top_p);
			if (s->mass[BINS - 1] >= target || power == -INFINITY)
				break;
			power = -INFINITY; /* roundings: not seen yet */
		}
		if (counts && k >= s->count[BINS - 1])
			continue;
		if (k == 0 && list_mass(s, row, c, target, listed, t))
			return 0;
		u64 rank = select(s, row, c, counts ? k : 0, target, &kept, t);
		least = rank > least ? rank : least;
	}
	return least;
}

/* Draws from the list if it has the best elements; otherwise the row is left to race_rows. */
__device__ static void draw(struct sample_shared *s, const struct sample_row &row, const struct sample_scale &c,
			    const struct sample_job &job, bool has_best, int t)
{
	uint32_t listed = (uint32_t)job.top_k;
	float top_p = job.top_p;
	u64 least = 0;
	if (!has_best) {
		least = threshold(s, row, c, (uint32_t)job.top_k, job.top_p, &listed, t);
		top_p = 1; /* it was a share of all elements, not of those in the list */
	}
	if (listed > 0) {
		draw_listed(s, c, listed, top_p, t);
		return;
	}
	if (t == 0) {
		s->verdict.open = true;
		s->verdict.scale = c;
		s->verdict.least = least;
	}
}

#endif
