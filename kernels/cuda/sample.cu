/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws tokens on the device, as engine/sample/sampler.h defines, from rows of logits that stay on the device. One
 * block handles a row. It sorts only the remaining candidates, at most CAP.
 *
 * The filters top-k, top-p and min-p each keep the start of the row in rank order (a value's bits made monotonic,
 * then the lower id), so together they are one rank threshold, which histograms find. The first histogram, over (max
 * - l) / temperature, has counts and the masses of the weights. If the relevant bins have few elements, these are
 * collected, sorted and filtered. Otherwise the bin in which a filter ends is subdivided by the bits of ranks until
 * few elements remain. That costs one read of the row per ten bits and occurs only with flat rows and ties.
 *
 * The draw is an exponential race, like the host's (kernels/race.h), among the collected elements or over blocks of
 * the row.
 *
 * Masses are integers: weights in units of 2^-44 of the largest. So sums do not depend on the order of threads, and a
 * draw does not depend on other work. Weights, adjusted logits and the race have the reference's bits, so a draw
 * differs from the reference's only if a filter ends within 10^-8 of a boundary between two elements.
 *
 * VERSIONS
 *  3  atomics of 32 bits: of 64 bits, shared memory has only loops that compare and swap (histograms: a loop a logit;
 *     the largest and its sum: 512 threads at one address, now 16 warps' lanes, one each). Sums before each bin by
 *     exchanges in a warp, two bins a thread, in 2 × 15 of them; before, one warp went through 32 bins a lane at strides
 *     of 256 bytes, all lanes in the same bank: 32 turns for each of 64 loads and 64 stores. Rows are read by 16 bytes a
 *     thread: 32 KiB on their way, not 8. Counted; still one block a row, so one row alone is read by one
 *     multiprocessor, some 11 µs for 128K logits.
 *  2  the draw is a race: without filters the same two reads, and two logarithms in double for 256 logits in place of
 *     an exponential and an addition in shared memory for each. Counted, not measured.
 *  1  the element at u of the cumulated mass. Counted, not measured: 256 rows of 128K logits are 134 MB, 31 µs a read
 *     at 4.3 TB/s. A greedy row is read once, one without filters twice (largest; masses of chunks, which then stay in
 *     the caches), with top-k or top-p three times (largest, histogram, candidates), log probabilities of unbiased
 *     rows cost no more reads (their tops two); so 31 to 93 µs, and 124 with log probabilities of biased rows.
 *     The histogram's two atomics a logit in shared memory are 67 million for 256 rows: 0.5 million a multiprocessor, some
 *     10 to 40 µs by how they collide, hidden behind the read only in part: to be looked at first on a device.
 *     Shared memory of 28 KiB a block lets two or three stand on a multiprocessor: 256 rows are one wave.
 */
#include "kernels/cuda/backend.h"
#include "kernels/race.h"

enum {
	THREADS = 512,
	BINS = 1024, /* a power of two, at least two for each thread */
	CAP = BINS,
	DIGIT = 10, /* bits of BINS */
	SPAN = 31,  /* range of (max - l) / temperature; beyond it the weight is zero */
};

#define UNIT 0x1p44f

typedef unsigned long long u64;

/* One row's draw, as sent to the device. */
struct sample_job {
	u64 key;
	float inv_t, top_p, min_p; /* inv_t 0: greedy */
	int32_t row, top_k;        /* row -1: none */
	int32_t first, n_bias, n_penalties,
	    n_out; /* of the adjustments: start, and the number of each kind, in order */
	int32_t want_logprob, n_top;
	int32_t said; /* 0, or 1 + a row */
	int32_t mask; /* -1: none; otherwise the index of its first word, counted from the adjustments */
};

struct sample_shared {
	u64 mass[BINS]; /* of bins, chunks or candidates; then prefix sums */
	u64 list[CAP];  /* ranks */
	uint32_t count[BINS];
	u64 warp_mass[THREADS / KN_WARP];
	uint32_t warp_count[THREADS / KN_WARP];
	u64 best, sum, before_mass;
	uint32_t found, n, before_count;
	int32_t id;
	uint32_t bad;
	int32_t n_top;
	struct kn_id_logprob top[KN_MAX_TOP];
	float max, log_z;
};

/* ---- ranks ---- */

__device__ static inline u64 rank_of(float v, int32_t id)
{
	uint32_t b = kn_float_bits(v + 0.0f); /* -0 and 0 are equal */
	b = b >> 31 ? ~b : b | 0x80000000u;
	return (u64)b << 32 | (uint32_t) ~(uint32_t)id;
}

__device__ static inline int32_t rank_id(u64 r) { return (int32_t) ~(uint32_t)r; }

__device__ static inline float rank_value(u64 r)
{
	uint32_t b = (uint32_t)(r >> 32);
	return kn_bits_float(b >> 31 ? b & 0x7FFFFFFFu : ~b);
}

/* Parameters of weights and bins. */
struct sample_scale {
	float max, inv_t;
};

/* exp((l - max) · inv_t), 0 below e^-86: the operations of engine/sample/logits.c, one by one, so that a weight has the
 * bits that it has there. */
__device__ static inline float weight_of(const struct sample_scale &c, float l)
{
	float x = (l - c.max) * c.inv_t;
	float t = x * 0x1.715476p+0f + 12582912.0f, k = t - 12582912.0f;
	float r = x - k * 0x1.62e000p-1f;
	r = r - k * 0x1.0bfbe8p-15f;
	float p = 1.0f / 5040;
	p = p * r + 1.0f / 720;
	p = p * r + 1.0f / 120;
	p = p * r + 1.0f / 24;
	p = p * r + 1.0f / 6;
	p = p * r + 0.5f;
	p = p * r + 1;
	p = p * r + 1;
	return x > -86.0f ? kn_bits_float(kn_float_bits(p) + (kn_float_bits(t) << 23)) : 0;
}

__device__ static inline u64 mass_of(const struct sample_scale &c, float l) { return (u64)(weight_of(c, l) * UNIT); }

__device__ static inline int bin_of(const struct sample_scale &c, float l)
{
	return (int)fminf((c.max - l) * c.inv_t * ((float)BINS / SPAN), (float)(BINS - 1));
}

__device__ static inline bool is_some(float l) { return l > -INFINITY; /* neither a NaN */ }

/* ---- operations of a warp ---- */

__device__ static inline uint32_t of_lane(uint32_t v, int mask)
{
	return kn_float_bits(kn_shuffle_xor(kn_bits_float(v), mask));
}

__device__ static inline u64 of_lane(u64 v, int mask)
{
	return (u64)of_lane((uint32_t)(v >> 32), mask) << 32 | of_lane((uint32_t)v, mask);
}

__device__ static inline u64 warp_largest(u64 v)
{
	for (int step = KN_WARP / 2; step > 0; step /= 2) {
		u64 o = of_lane(v, step);
		v = o > v ? o : v;
	}
	return v;
}

/* Turns v into the sum over the lanes before this one; returns the warp's. */
template <class T> __device__ static inline T sums_before(T *v, int lane)
{
	T all = *v, before = 0;
	for (int step = 1; step < KN_WARP; step *= 2) {
		T o = of_lane(all, step);
		if (lane & step)
			before += o;
		all += o;
	}
	*v = before;
	return all;
}

/* Calls f(value, id) for all elements of a row; every thread takes its own. */
template <class F> __device__ static inline void each_logit(const float *l, int n, int t, const F &f)
{
	if (n % 4 == 0 && (uintptr_t)l % 16 == 0) {
#pragma unroll 4
		for (int i = 4 * t; i < n; i += 4 * THREADS) {
			float v[4];
			kn_take4(l + i, v);
			UNROLL_FOR(int e = 0; e < 4; e++)
				f(v[e], i + e);
		}
		return;
	}
#pragma unroll 4
	for (int i = t; i < n; i += THREADS)
		f(l[i], i);
}

/* ---- operations of the whole block ---- */

/* Turns mass and count into prefix sums. */
__device__ static void add_up(struct sample_shared *s, int t)
{
	static_assert(BINS == 2 * THREADS, "two bins a thread");
	int lane = t % KN_WARP, warp = t / KN_WARP;
	kn_barrier();
	struct kn_u4 both = kn_shared_load16(&s->mass[2 * t]);
	u64 mass[2] = {(u64)both.y << 32 | both.x, (u64)both.w << 32 | both.z}, mass_before = mass[0] + mass[1];
	uint32_t count[2] = {s->count[2 * t], s->count[2 * t + 1]}, count_before = count[0] + count[1];
	u64 warp_mass = sums_before(&mass_before, lane);
	uint32_t warp_count = sums_before(&count_before, lane);
	if (lane == 0) {
		s->warp_mass[warp] = warp_mass;
		s->warp_count[warp] = warp_count;
	}
	kn_barrier();
	for (int i = 0; i < warp; i++) {
		mass_before += s->warp_mass[i];
		count_before += s->warp_count[i];
	}
	s->mass[2 * t] = mass_before + mass[0];
	s->mass[2 * t + 1] = mass_before + mass[0] + mass[1];
	s->count[2 * t] = count_before + count[0];
	s->count[2 * t + 1] = count_before + count[0] + count[1];
	kn_barrier();
}

__device__ static void clear(struct sample_shared *s, int t)
{
	kn_barrier();
	for (int i = t; i < BINS; i += THREADS) {
		s->mass[i] = 0;
		s->count[i] = 0;
	}
	if (t == 0)
		s->n = 0;
	kn_barrier();
}

/* After add_up: the first index whose count (if count is 0: mass) reaches the given value; there must be one. */
__device__ static uint32_t reach(struct sample_shared *s, uint32_t count, u64 mass, int t)
{
	for (int i = t; i < BINS; i += THREADS) {
		bool here = count > 0 ? s->count[i] >= count : s->mass[i] >= mass;
		bool before = i > 0 && (count > 0 ? s->count[i - 1] >= count : s->mass[i - 1] >= mass);
		if (here && !before)
			s->found = (uint32_t)i;
	}
	kn_barrier();
	uint32_t found = s->found;
	kn_barrier();
	return found;
}

/* Sorts the list by rank, highest first; unused entries are 0 (Batcher, "Sorting networks and their applications",
 * 1968). */
__device__ static void sort(struct sample_shared *s, int t)
{
	uint32_t n = s->n, room = 2;
	while (room < n)
		room *= 2;
	for (uint32_t i = n + (uint32_t)t; i < CAP; i += THREADS)
		s->list[i] = 0;
	for (uint32_t size = 2; size <= room; size *= 2)
		for (uint32_t step = size / 2; step > 0; step /= 2) {
			kn_barrier();
			for (uint32_t i = (uint32_t)t; i < room / 2; i += THREADS) {
				uint32_t a = i / step * step * 2 + i % step, b = a + step;
				u64 x = s->list[a], y = s->list[b];
				bool down = (a & size) == 0;
				if (down ? x < y : x > y) {
					s->list[a] = y;
					s->list[b] = x;
				}
			}
		}
	kn_barrier();
}

/* The largest rank; 0: nothing is above -inf. With sums also the total mass at inv_t 1. */
__device__ static u64 largest(struct sample_shared *s, const float *l, int n, bool sums, int t)
{
	float max = -INFINITY, sum = 0;
	int32_t at = 0;
	kn_barrier();
	if (t == 0)
		s->best = s->sum = 0;
	kn_barrier();
	each_logit(l, n, t, [&](float v, int i) {
		if (v > max) {
			if (sums)
				sum *= expf(max - v);
			max = v;
			at = i;
		}
		if (sums && is_some(v) && max < INFINITY)
			sum += expf(v - max);
	});
	u64 mine = warp_largest(max > -INFINITY ? rank_of(max, at) : 0);
	if (t % KN_WARP == 0 && mine != 0)
		kn_max_shared(&s->best, mine);
	kn_barrier();
	u64 best = s->best, mass = 0;
	if (sums && max > -INFINITY && rank_value(best) < INFINITY)
		mass = (u64)(sum * expf(max - rank_value(best)) * 0x1p36f);
	if (sums) {
		mass = sums_before(&mass, t % KN_WARP);
		if (t % KN_WARP == 0)
			kn_add_shared(&s->sum, mass);
	}
	kn_barrier();
	return best;
}

/* Computes prefix sums of counts and masses by bin. */
__device__ static void histogram(struct sample_shared *s, const float *l, int n, const struct sample_scale &c, int t)
{
	clear(s, t);
	each_logit(l, n, t, [&](float v, int) {
		if (is_some(v)) {
			int bin = bin_of(c, v);
			kn_add_shared(&s->count[bin], 1u);
			kn_add_shared(&s->mass[bin], mass_of(c, v));
		}
	});
	add_up(s, t);
}

/* Collects elements in bins up to `bin` with at least this rank into the list and sorts it; they must fit. */
__device__ static void collect(struct sample_shared *s, const float *l, int n, const struct sample_scale &c, int bin,
			       u64 least, int t)
{
	kn_barrier();
	if (t == 0)
		s->n = 0;
	kn_barrier();
	each_logit(l, n, t, [&](float v, int i) {
		if (is_some(v) && bin_of(c, v) <= bin && rank_of(v, i) >= least)
			s->list[kn_add_shared(&s->n, 1u)] = rank_of(v, i);
	});
	kn_barrier();
	sort(s, t);
}

/* After histogram: the lowest rank of the best `count` elements, or, if count is 0, of the fewest best ones with that
 * mass; *all: their mass. Overwrites the histogram. */
__device__ static u64 select(struct sample_shared *s, const float *l, int n, const struct sample_scale &c,
			     uint32_t count, u64 mass, u64 *all, int t)
{
	uint32_t bin = reach(s, count, mass, t), size = s->count[bin] - (bin > 0 ? s->count[bin - 1] : 0);
	u64 above = bin > 0 ? s->mass[bin - 1] : 0, prefix = 0;
	uint32_t n_above = bin > 0 ? s->count[bin - 1] : 0;
	int shift = 64;
	while (size > CAP) {
		int bits = shift < DIGIT ? shift : DIGIT;
		shift -= bits;
		clear(s, t);
		for (int i = t; i < n; i += THREADS) {
			float v = l[i];
			if (!is_some(v) || bin_of(c, v) != (int)bin)
				continue;
			u64 r = rank_of(v, i);
			if (shift + bits < 64 && r >> (shift + bits) != prefix)
				continue;
			int digit =
			    BINS - 1 - (int)(r >> shift & (BINS - 1) & ((1u << bits) - 1)); /* high ranks first */
			kn_add_shared(&s->count[digit], 1u);
			kn_add_shared(&s->mass[digit], mass_of(c, v));
		}
		add_up(s, t);
		uint32_t at = reach(s, count > 0 ? count - n_above : 0, mass - above, t);
		size = s->count[at] - (at > 0 ? s->count[at - 1] : 0);
		above += at > 0 ? s->mass[at - 1] : 0;
		n_above += at > 0 ? s->count[at - 1] : 0;
		prefix = prefix << bits | (u64)(BINS - 1 - at);
	}
	/* The rest: candidates, in order, with their masses. */
	clear(s, t);
	for (int i = t; i < n; i += THREADS) {
		float v = l[i];
		if (is_some(v) && bin_of(c, v) == (int)bin && (shift == 64 || rank_of(v, i) >> shift == prefix))
			s->list[kn_add_shared(&s->n, 1u)] = rank_of(v, i);
	}
	kn_barrier();
	sort(s, t);
	uint32_t have = s->n;
	for (uint32_t i = (uint32_t)t; i < have; i += THREADS) {
		s->mass[i] = mass_of(c, rank_value(s->list[i]));
		s->count[i] = 1;
	}
	add_up(s, t);
	uint32_t last = reach(s, count > 0 ? count - n_above : 0, mass - above, t);
	*all = above + s->mass[last];
	u64 rank = s->list[last];
	kn_barrier();
	return rank;
}

/* Fills the list with the k best elements; k is at most CAP and the number of elements. */
__device__ static void list_best(struct sample_shared *s, const float *l, int n, const struct sample_scale &c,
				 uint32_t k, int t)
{
	uint32_t bin = reach(s, k, 0, t), size = s->count[bin];
	u64 least = 0, all;
	if (size > CAP)
		least = select(s, l, n, c, k, 0, &all, t);
	collect(s, l, n, c, (int)bin, least, t);
}

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

/* Draws from the sorted list with its prefix sums: filters, then the race. */
__device__ static void draw_listed(struct sample_shared *s, const struct sample_scale &c, const struct sample_job &job,
				   int t)
{
	uint32_t n = s->n;
	if (job.top_k > 0 && n > (uint32_t)job.top_k)
		n = (uint32_t)job.top_k;
	weigh_list(s, c, n, t);
	if (job.top_p < 1)
		n = reach(s, 0, share_of(s->mass[n - 1], job.top_p), t) + 1;
	if (job.min_p > 0) {
		if (t == 0)
			s->found = n;
		kn_barrier();
		for (uint32_t i = (uint32_t)t + 1; i < n; i += THREADS)
			if (weight_of(c, rank_value(s->list[i])) < job.min_p)
				kn_min_shared(&s->found, i);
		kn_barrier();
		n = s->found;
	}
	struct sample_winner w = {INFINITY, 0x7FFFFFFF};
	for (uint32_t i = (uint32_t)t; i < n; i += THREADS) {
		int32_t id = rank_id(s->list[i]);
		race(&w, race_first(job.key, id / RACE_BLOCK), job.key, log_weight(c, rank_value(s->list[i])), id);
	}
	finish_race(s, w, t);
}

/* Draws from the row: all elements of at least this rank that min-p keeps. A warp takes a block of ids and races it
 * only if the block's bound (race.h) is below the warp's best so far. */
__device__ static void draw_from_row(struct sample_shared *s, const float *l, int n, const struct sample_scale &c,
				     const struct sample_job &job, u64 least, int t)
{
	int lane = t % KN_WARP, warp = t / KN_WARP, n_blocks = (n + RACE_BLOCK - 1) / RACE_BLOCK;
	struct sample_winner w = {INFINITY, 0x7FFFFFFF};
	double limit = INFINITY; /* a little above the warp's best score */
	for (int k = warp; k < n_blocks; k += THREADS / KN_WARP) {
		float mine[RACE_BLOCK / KN_WARP], most = -INFINITY;
#pragma unroll
		for (int j = 0; j < RACE_BLOCK / KN_WARP; j++) {
			int i = k * RACE_BLOCK + j * KN_WARP + lane;
			float v = i < n ? l[i] : -INFINITY;
			bool stays = is_some(v) && rank_of(v, i) >= least && weight_of(c, v) >= job.min_p;
			mine[j] = stays ? log_weight(c, v) : -INFINITY;
			most = fmaxf(most, mine[j]);
		}
		most = kn_warp_max(most);
		if (!(most > -INFINITY))
			continue;
		const struct race_arrival first = race_first(job.key, k);
		if (race_score(first.time, most) > limit)
			continue;
#pragma unroll
		for (int j = 0; j < RACE_BLOCK / KN_WARP; j++)
			if (mine[j] > -INFINITY)
				race(&w, first, job.key, mine[j], k * RACE_BLOCK + j * KN_WARP + lane);
		float best = -kn_warp_max(-(float)w.score);
		limit = (double)best + 1e-6 * (1 + (double)fabsf(best));
	}
	finish_race(s, w, t);
}

__device__ static void draw(struct sample_shared *s, const float *l, int n, const struct sample_scale &c,
			    const struct sample_job &job, int t)
{
	u64 least = 0, rank, all;
	if (job.top_k > 0 || job.top_p < 1) {
		histogram(s, l, n, c, t);
		uint32_t total = s->count[BINS - 1],
			 k = job.top_k > 0 && (uint32_t)job.top_k < total ? (uint32_t)job.top_k : 0;
		if (k > 0 && k <= CAP) {
			list_best(s, l, n, c, k, t);
			draw_listed(s, c, job, t);
			return;
		}
		all = s->mass[BINS - 1];
		if (k > 0) {
			least = select(s, l, n, c, k, 0, &all, t);
			if (job.top_p < 1)
				histogram(s, l, n, c, t);
		}
		if (job.top_p < 1) {
			u64 target = share_of(all, job.top_p);
			uint32_t bin = reach(s, 0, target, t);
			if (k == 0 && s->count[bin] <= CAP) {
				/* top_p is a share of all elements, not of those in the list. */
				struct sample_job whole = job;
				collect(s, l, n, c, (int)bin, 0, t);
				whole.top_p = 1;
				weigh_list(s, c, s->n, t);
				whole.top_k = (int32_t)reach(s, 0, target, t) + 1;
				draw_listed(s, c, whole, t);
				return;
			}
			rank = select(s, l, n, c, 0, target, &all, t);
			least = rank > least ? rank : least;
		}
	}
	draw_from_row(s, l, n, c, job, least, t);
}

/* ---- a row ---- */

/* Counts one more occurrence of token id in the n penalties, the last of which is free. */
__device__ static void say_once_more(struct sample_shared *s, struct kn_adjust *a, int n, int32_t id, int t)
{
	kn_barrier();
	if (t == 0)
		s->found = (uint32_t)n;
	kn_barrier();
	for (int i = t; i + 1 < n; i += THREADS)
		if (a[i].id == id) {
			a[i].b = a[i].more;
			s->found = (uint32_t)i;
		}
	kn_barrier();
	if (t == 0 && s->found == (uint32_t)n)
		a[n - 1].id = id;
	kn_barrier();
}

/* Saves the logit to be adjusted in `more`. */
__device__ static inline float keep(struct sample_shared *s, const float *l, struct kn_adjust *a)
{
	a->more = l[a->id];
	if (a->more == INFINITY)
		kn_add_shared(&s->bad, 1);
	return a->more;
}

/* Applies biases, penalties and exclusions, in this order, and saves the original logits in `more`. */
__device__ static void adjust(struct sample_shared *s, float *l, struct kn_adjust *a, const struct sample_job &job,
			      int t)
{
	int n = job.n_bias;
	for (int i = t; i < n; i += THREADS) {
		bool first = true;
		for (int j = 0; j < i && first; j++)
			first = a[j].id != a[i].id;
		if (!first)
			continue; /* the first entry of an id adds all of them */
		float v = keep(s, l, &a[i]);
		for (int j = i; j < n; j++)
			if (a[j].id == a[i].id)
				v += a[j].a;
		l[a[i].id] = v;
	}
	kn_barrier();
	a += n;
	for (int i = t; i < job.n_penalties; i += THREADS) {
		if (a[i].id < 0)
			continue; /* free */
		float v = keep(s, l, &a[i]);
		l[a[i].id] = (v > 0 ? v / a[i].a : v * a[i].a) - a[i].b;
	}
	kn_barrier();
	a += job.n_penalties;
	for (int i = t; i < job.n_out; i += THREADS)
		keep(s, l, &a[i]);
	kn_barrier(); /* an id may occur twice */
	for (int i = t; i < job.n_out; i += THREADS)
		kn_store_same(&l[a[i].id], -INFINITY);
	kn_barrier();
}

/* Excludes tokens that the mask does not contain. */
__device__ static void exclude_unmasked(float *l, int n, const uint32_t *mask, int t)
{
	for (int i = t; i < n; i += THREADS)
		if ((mask[i / 32] >> (i % 32) & 1) == 0)
			l[i] = -INFINITY;
	kn_barrier();
}

/* The original logit of id. */
__device__ static float said(const float *l, const struct kn_adjust *a, int n, int32_t id)
{
	for (int i = 0; i < n; i++)
		if (a[i].id == id)
			return a[i].more;
	return l[id];
}

/* The likeliest tokens by the model's unadjusted logits. */
__device__ static void tops(struct sample_shared *s, const float *l, int n, float max, int n_top, int t)
{
	const struct sample_scale c = {max, 1};
	histogram(s, l, n, c, t);
	uint32_t total = s->count[BINS - 1], k = (uint32_t)n_top < total ? (uint32_t)n_top : total;
	list_best(s, l, n, c, k, t);
	for (uint32_t i = (uint32_t)t; i < k; i += THREADS) {
		s->top[i].id = rank_id(s->list[i]);
		s->top[i].logprob = rank_value(s->list[i]) - max - s->log_z;
	}
	if (t == 0)
		s->n_top = (int32_t)k;
	kn_barrier();
}

__global__ void sample(float *logits, int n, const struct sample_job *jobs, struct kn_adjust *adjusts,
		       const int32_t *token, struct kn_drawn *out)
{
	kn_begin();
	struct sample_shared *s = (struct sample_shared *)kn_shared();
	const struct sample_job job = jobs[blockIdx.x];
	int t = (int)threadIdx.x, n_adjust = job.n_bias + job.n_penalties + job.n_out;
	if (job.row < 0)
		return; /* every thread of the block */
	float *l = logits + (int64_t)job.row * n;
	struct kn_adjust *a = adjusts + job.first;
	out += blockIdx.x;
	if (t == 0) {
		s->id = -1;
		s->bad = 0;
		s->n_top = 0;
		s->max = s->log_z = 0;
	}
	u64 best = 0;
	bool usable = true, changes = n_adjust > 0 || job.mask >= 0;
	if (!changes || job.want_logprob) {
		best = largest(s, l, n, job.want_logprob != 0, t);
		usable = best != 0 && rank_value(best) < INFINITY;
		if (job.want_logprob && usable) {
			if (t == 0) {
				s->max = rank_value(best);
				s->log_z = logf((float)s->sum * 0x1p-36f);
			}
			kn_barrier();
			if (job.n_top > 0)
				tops(s, l, n, s->max, job.n_top, t);
		}
	}
	if (usable && changes) {
		if (job.said > 0)
			say_once_more(s, a + job.n_bias, job.n_penalties, token[job.said - 1], t);
		adjust(s, l, a, job, t);
		if (job.mask >= 0)
			exclude_unmasked(l, n, (const uint32_t *)(const void *)adjusts + job.mask, t);
		best = largest(s, l, n, false, t);
		usable = s->bad == 0 && best != 0 && rank_value(best) < INFINITY;
	}
	if (usable && job.inv_t == 0) {
		if (t == 0)
			s->id = rank_id(best);
	} else if (usable) {
		const struct sample_scale c = {rank_value(best), job.inv_t};
		draw(s, l, n, c, job, t);
	}
	kn_barrier();
	if (t == 0) {
		out->id = s->id;
		out->logprob = s->id >= 0 && job.want_logprob ? said(l, a, n_adjust, s->id) - s->max - s->log_z : NAN;
		out->n_top = s->id >= 0 ? s->n_top : 0;
	}
	for (int i = t; i < s->n_top; i += THREADS)
		out->top[i] = s->top[i];
}

/* ---- the operation ---- */

static void fill_job(struct sample_job *job, const struct kn_draw *d, int n_vocab, int32_t first)
{
	job->key = d->key;
	/* At a temperature whose inverse would overflow, only the largest logits have weight. */
	job->inv_t = d->temperature == 0 ? 0 : d->temperature > 1e-30f ? 1 / d->temperature : 1e30f;
	job->top_p = d->top_p;
	job->min_p = d->min_p;
	job->row = d->row;
	job->top_k = d->top_k < (uint32_t)n_vocab ? (int32_t)d->top_k : 0;
	job->first = first;
	job->n_bias = d->n_bias;
	job->n_penalties = d->n_penalties;
	job->n_out = d->n_out;
	job->want_logprob = d->want_logprob;
	job->n_top = d->want_logprob ? d->n_top : 0;
	job->said = d->said;
}

int kn_cuda_sample(struct kn_backend *b, float *logits, int n_vocab, const struct kn_draw *draws, int n,
		   struct kn_drawn *out)
{
	int most = kn_cuda_rows(b, n);
	size_t n_adjust = 0, n_masks = 0, words = ((size_t)n_vocab + 31) / 32;
	dev_range(b->dev, "sampling");
	if (b->step == NULL || n < 1 || n_vocab < 1 || n_vocab > KN_MAX_SAMPLED_VOCAB)
		return SL_EUNSUPPORTED;
	for (int i = 0; i < n; i++) {
		if (draws[i].said > b->n_real || (draws[i].said > 0 && draws[i].n_penalties < 1))
			return SL_EUNSUPPORTED;
		n_adjust += (size_t)(draws[i].n_bias + draws[i].n_penalties + draws[i].n_out);
		n_masks += draws[i].mask != NULL;
	}
	size_t head = ((size_t)most * sizeof(struct sample_job) + KN_ALIGN - 1) / KN_ALIGN * KN_ALIGN;
	size_t bytes = head + n_adjust * sizeof(struct kn_adjust) + n_masks * words * sizeof(uint32_t);
	if (kn_cuda_room(b, &b->drawn, (size_t)most * sizeof *out) != 0)
		return SL_EIO;
	b->n_drawn = n;
	uint8_t *device, *host = kn_cuda_stage_draws(b, bytes, &device);
	if (host == NULL)
		return SL_EIO;
	struct sample_job *jobs = (struct sample_job *)(void *)host;
	struct kn_adjust *adjusts = (struct kn_adjust *)(void *)(host + head);
	int32_t first = 0, mask = (int32_t)(n_adjust * sizeof *adjusts / sizeof(uint32_t));
	for (int i = 0; i < most; i++) {
		memset(&jobs[i], 0, sizeof jobs[i]);
		jobs[i].row = jobs[i].mask = -1;
		if (i >= n)
			continue;
		int32_t each = draws[i].n_bias + draws[i].n_penalties + draws[i].n_out;
		fill_job(&jobs[i], &draws[i], n_vocab, first);
		if (each > 0)
			memcpy(adjusts + first, draws[i].adjust, (size_t)each * sizeof *adjusts);
		first += each;
		if (draws[i].mask == NULL)
			continue;
		memcpy((uint32_t *)(void *)adjusts + mask, draws[i].mask, words * sizeof(uint32_t));
		jobs[i].mask = mask;
		mask += (int32_t)words;
	}
	int rc = KN_LAUNCH(b->dev, sample, (unsigned)most, THREADS, sizeof(struct sample_shared), logits, n_vocab,
			   (const struct sample_job *)(const void *)device, (struct kn_adjust *)(void *)(device + head),
			   b->token, (struct kn_drawn *)b->drawn.at);
	return rc != 0 ? rc : kn_cuda_read_bytes(b, b->drawn.at, (size_t)n * sizeof *out, out);
}
