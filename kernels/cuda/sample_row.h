/* SPDX-License-Identifier: Apache-2.0
 *
 * A row of logits that a block draws from (sample.cu): its chunks, ranks of its elements, and what a warp or a block
 * computes of them: surveys, histograms, sorted lists.
 */
#ifndef KERNELS_CUDA_SAMPLE_ROW_H
#define KERNELS_CUDA_SAMPLE_ROW_H

#include "kernels/cuda/backend.h"
#include "kernels/race.h"

enum {
	THREADS = 512,
	WARPS = THREADS / KN_WARP,
	SURVEY_THREADS = 256,
	CHUNK = RACE_BLOCK,
	EACH = CHUNK / KN_WARP,                            /* numbers of a chunk that a lane has */
	TOGETHER = 2,                                      /* chunks that a warp loads at once, */
	SURVEY_TOGETHER = 4,                               /* chunks that a warp loads at once */
	PART = SURVEY_THREADS / KN_WARP * SURVEY_TOGETHER, /* chunks of a block of the survey */
	BINS = 1024,                                       /* a power of two, at least two for each thread */
	CAP = BINS,
	DIGIT = 10,  /* bits of BINS */
	SPAN = 31,   /* range of (max - l) / temperature; beyond it the weight is zero */
	N_MARKS = 3, /* numbers that the survey leaves for each chunk */
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

/* Parameters of weights and bins. */
struct sample_scale {
	float max, inv_t;
};

/* What is known of a row before the race over it: that it is to take place, and among which elements. */
struct sample_verdict {
	u64 least; /* rank */
	struct sample_scale scale;
	float max, log_z; /* of the unadjusted row, where a log probability is wanted */
	bool open;
};

/* What the survey leaves of a row: of each chunk the largest logit; with top-p the sum of its weights as if that were
 * the row's largest; with a log probability that at temperature 1. */
struct sample_marks {
	float *most, *mass, *all; /* [n_chunks] */
};

/* A row that a block works on. */
struct sample_row {
	float *l;
	int n, n_chunks;
	bool wide;   /* numbers are read four at a time */
	float *most; /* [n_chunks] of shared memory: the chunks' largest */
	struct sample_marks marks;
};

struct sample_shared {
	struct sample_job job; /* here, not in registers, of which there are 64 */
	struct sample_row row;
	alignas(16) u64 mass[BINS]; /* of bins, chunks or candidates; then prefix sums */
	u64 list[CAP];              /* ranks */
	uint32_t count[BINS];
	u64 warp_mass[WARPS];
	uint32_t warp_count[WARPS];
	float warp_least[WARPS];
	double warp_limit[WARPS];
	u64 best;
	uint32_t found, n;
	int32_t id;
	uint32_t bad;
	int32_t n_top;
	struct kn_id_logprob top[KN_MAX_TOP];
	struct sample_verdict verdict;
};

__host__ __device__ static inline int chunks_of(int n) { return (n + CHUNK - 1) / CHUNK; }

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

/* ---- chunks ---- */

/* The id of a lane's number e of a chunk. */
__device__ static inline int id_of(int chunk, int lane, int e)
{
	return chunk * CHUNK + e / 4 * (CHUNK / 2) + 4 * lane + e % 4;
}

/* A lane's numbers of a chunk; -INFINITY past the row's end. */
__device__ static inline void load_chunk(const float *l, int n, bool wide, int chunk, int lane, float *v)
{
	UNROLL_FOR(int e = 0; e < EACH; e++)
		v[e] = -INFINITY;
	if (wide) {
		UNROLL_FOR(int e = 0; e < EACH; e += 4)
			if (id_of(chunk, lane, e) < n)
				kn_take4(l + id_of(chunk, lane, e), v + e);
		return;
	}
	UNROLL_FOR(int e = 0; e < EACH; e++)
		if (id_of(chunk, lane, e) < n)
			v[e] = l[id_of(chunk, lane, e)];
}

/* The sum of weights of a warp's chunk whose largest is most. */
__device__ static inline float chunk_sum(const float *v, float most, float inv_t)
{
	float sum = 0;
	UNROLL_FOR(int e = 0; e < EACH; e++)
		sum += is_some(v[e]) ? expf((v[e] - most) * inv_t) : 0.0f;
	return kn_warp_sum(sum);
}

/* A warp surveys every step-th chunk from `first` on to before `end`, AT_ONCE of them at a time. */
template <int AT_ONCE>
__device__ static inline void survey(const struct sample_row &row, const struct sample_job &job, int first, int end,
				     int step, int lane)
{
	bool masses = job.inv_t != 0 && job.top_p < 1;
#pragma unroll 1
	for (int c = first; c < end; c += AT_ONCE * step) {
		float v[AT_ONCE][EACH];
		UNROLL_FOR(int j = 0; j < AT_ONCE; j++)
			load_chunk(row.l, c + j * step < end ? row.n : 0, row.wide, c + j * step, lane, v[j]);
		UNROLL_FOR(int j = 0; j < AT_ONCE; j++) {
			float most = -INFINITY;
			UNROLL_FOR(int e = 0; e < EACH; e++)
				most = fmaxf(most, v[j][e]); /* a NaN is none */
			most = kn_warp_max(most);
			float mass = masses ? chunk_sum(v[j], most, job.inv_t) : 0;
			float all = job.want_logprob ? chunk_sum(v[j], most, 1) : 0;
			if (lane != 0 || c + j * step >= end)
				continue;
			row.marks.most[c + j * step] = most;
			row.marks.mass[c + j * step] = mass;
			row.marks.all[c + j * step] = all;
		}
	}
}

/* By the whole block. */
__device__ static void survey_row(const struct sample_row &row, const struct sample_job &job, int t)
{
	kn_barrier();
	survey<TOGETHER>(row, job, t / KN_WARP, row.n_chunks, WARPS, t % KN_WARP);
	kn_barrier();
}

/* Calls then(value, id) for all elements with is(value, id) in chunks with wants(chunk); every lane takes its own, and
 * is() sees its in a fixed order. */
template <class W, class I, class T>
__device__ static inline void each_chosen(const struct sample_row &row, int t, const W &wants, const I &is,
					  const T &then)
{
	int lane = t % KN_WARP, n = row.n, n_chunks = row.n_chunks;
	const float *l = row.l;
	bool wide = row.wide;
#pragma unroll 1
	for (int c = t / KN_WARP; c < n_chunks; c += TOGETHER * WARPS) {
		float v[TOGETHER][EACH];
		uint32_t chosen = 0;
		bool any = false;
		UNROLL_FOR(int j = 0; j < TOGETHER; j++) {
			int k = c + j * WARPS;
			bool there = k < n_chunks && wants(k); /* the whole warp */
			load_chunk(l, there ? n : 0, wide, k, lane, v[j]);
			any = any || there;
		}
		if (!any)
			continue;
		UNROLL_FOR(int j = 0; j < TOGETHER; j++)
			UNROLL_FOR(int e = 0; e < EACH; e++)
				if (is(v[j][e], id_of(c + j * WARPS, lane, e)))
					chosen |= 1u << (j * EACH + e);
#pragma unroll 1
		while (chosen != 0) {
			int bit = kn_lowest_bit(chosen), id = id_of(c + bit / EACH * WARPS, lane, bit % EACH);
			chosen &= chosen - 1;
			then(l[id], id);
		}
	}
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

/* The sum over all threads, returned in each. */
__device__ static u64 sum_of_all(struct sample_shared *s, u64 mine, int t)
{
	u64 warp = sums_before(&mine, t % KN_WARP);
	kn_barrier();
	if (t % KN_WARP == 0)
		s->warp_mass[t / KN_WARP] = warp;
	kn_barrier();
	u64 sum = 0;
	for (int i = 0; i < WARPS; i++)
		sum += s->warp_mass[i];
	return sum;
}

/* After a survey: the largest rank; 0: nothing is above -inf. */
__device__ static u64 largest(struct sample_shared *s, const struct sample_row &row, int t)
{
	u64 mine = 0;
	kn_barrier();
	for (int c = t; c < row.n_chunks; c += THREADS) {
		float most = row.marks.most[c];
		u64 rank = most > -INFINITY ? rank_of(most, c) : 0;
		row.most[c] = most;
		mine = rank > mine ? rank : mine;
	}
	mine = warp_largest(mine);
	if (t % KN_WARP == 0)
		s->warp_mass[t / KN_WARP] = mine;
	if (t == 0)
		s->found = 0xFFFFFFFFu;
	kn_barrier();
	u64 best = 0;
	for (int i = 0; i < WARPS; i++)
		best = s->warp_mass[i] > best ? s->warp_mass[i] : best;
	if (best == 0)
		return 0; /* every thread of the block */
	int id = rank_id(best) * CHUNK + t;
	if (t < CHUNK && id < row.n && row.l[id] == rank_value(best))
		kn_min_shared(&s->found, (uint32_t)id);
	kn_barrier();
	return rank_of(rank_value(best), (int32_t)s->found);
}

/* After a survey: ln of the sum of all weights at temperature 1. */
__device__ static float log_sum(struct sample_shared *s, const struct sample_row &row, float max, int t)
{
	u64 mine = 0;
	for (int c = t; c < row.n_chunks; c += THREADS)
		if (row.most[c] > -INFINITY)
			mine += (u64)(row.marks.all[c] * expf(row.most[c] - max) * 0x1p36f);
	return logf((float)sum_of_all(s, mine, t) * 0x1p-36f);
}

/* An element's distance from the largest, in powers of two of its weight; NaN stays NaN. */
__device__ static inline float power_of(const struct sample_scale &c, float l)
{
	return (l - c.max) * c.inv_t * 0x1.715476p+0f;
}

/* Computes prefix sums of masses by bin, and of counts if these are wanted, of the elements whose power is at least
 * this. Returns the mass of all elements. */
__device__ static u64 histogram(struct sample_shared *s, const struct sample_row &row, const struct sample_scale &c,
				float least, bool counts, int t)
{
	float rest = 0;
	u64 others = 0;
	clear(s, t);
	each_chosen(
	    row, t, [&](int k) { return power_of(c, row.most[k]) >= least; },
	    [&](float v, int) {
		    float power = power_of(c, v);
		    bool weighs = power >= least && is_some(v);
		    rest += weighs ? 0.0f : kn_exp2(fmaxf(power, -126.0f)); /* a NaN has no weight either */
		    return weighs;
	    },
	    [&](float v, int) {
		    int bin = bin_of(c, v);
		    if (counts)
			    kn_add_shared(&s->count[bin], 1u);
		    kn_add_shared(&s->mass[bin], mass_of(c, v));
	    });
	for (int k = t; k < row.n_chunks; k += THREADS)
		if (is_some(row.most[k]) && !(power_of(c, row.most[k]) >= least))
			others += (u64)(row.marks.mass[k] * kn_exp2(fmaxf(power_of(c, row.most[k]), -126.0f)) * UNIT);
	others += (u64)(rest * UNIT);
	u64 all = least > -INFINITY ? sum_of_all(s, others, t) : 0;
	add_up(s, t);
	return all + s->mass[BINS - 1];
}

/* Collects the elements with keeps(value, id) of the chunks with wants(chunk), sorted. False: they do not fit. */
template <class W, class K>
__device__ static bool collect(struct sample_shared *s, const struct sample_row &row, int t, const W &wants,
			       const K &keeps)
{
	kn_barrier();
	if (t == 0)
		s->n = 0;
	kn_barrier();
	each_chosen(
	    row, t, wants, [&](float v, int i) { return is_some(v) && keeps(v, i); },
	    [&](float v, int i) {
		    uint32_t at = kn_add_shared(&s->n, 1u);
		    if (at < CAP)
			    s->list[at] = rank_of(v, i);
	    });
	kn_barrier();
	if (s->n > CAP)
		return false; /* every thread of the block */
	sort(s, t);
	return true;
}

/* Elements of bins up to `bin`. */
__device__ static bool collect_bins(struct sample_shared *s, const struct sample_row &row, const struct sample_scale &c,
				    int bin, int t)
{
	return collect(
	    s, row, t, [&](int k) { return bin_of(c, row.most[k]) <= bin; },
	    [&](float v, int) { return bin_of(c, v) <= bin; });
}

/* After histogram: the lowest rank of the best `count` elements, or, if count is 0, of the fewest best ones with that
 * mass; *all: their mass. Overwrites the histogram. */
__device__ static u64 select(struct sample_shared *s, const struct sample_row &row, const struct sample_scale &c,
			     uint32_t count, u64 mass, u64 *all, int t)
{
	uint32_t bin = reach(s, count, mass, t);
	u64 above = bin > 0 ? s->mass[bin - 1] : 0, prefix = 0;
	uint32_t n_above = bin > 0 ? s->count[bin - 1] : 0;
	int shift = 64;
	const auto wants = [&](int k) { return bin_of(c, row.most[k]) <= (int)bin; };
	const auto is = [&](float v, int i) {
		return is_some(v) && bin_of(c, v) == (int)bin && (shift == 64 || rank_of(v, i) >> shift == prefix);
	};
	while (!collect(s, row, t, wants, is)) {
		int bits = shift < DIGIT ? shift : DIGIT, last = shift;
		clear(s, t);
		each_chosen(
		    row, t, wants, [&](float v, int i) { return is(v, i); },
		    [&](float v, int i) {
			    uint32_t low = (uint32_t)(rank_of(v, i) >> (last - bits)) & ((1u << bits) - 1);
			    int digit = BINS - 1 - (int)low; /* high ranks first */
			    kn_add_shared(&s->count[digit], 1u);
			    kn_add_shared(&s->mass[digit], mass_of(c, v));
		    });
		add_up(s, t);
		uint32_t at = reach(s, count > 0 ? count - n_above : 0, mass - above, t);
		above += at > 0 ? s->mass[at - 1] : 0;
		n_above += at > 0 ? s->count[at - 1] : 0;
		prefix = prefix << bits | (u64)(BINS - 1 - at);
		shift -= bits;
	}
	/* The rest: candidates, in order, with their masses. */
	uint32_t have = s->n;
	clear(s, t);
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

/* The scale by which the chunks' largest logits are spread over the bins. */
__device__ static struct sample_scale spread(struct sample_shared *s, const struct sample_row &row, float max, int t)
{
	float below = 0;
	for (int k = t; k < row.n_chunks; k += THREADS)
		if (is_some(row.most[k]))
			below = fmaxf(below, max - row.most[k]);
	below = kn_warp_max(below);
	kn_barrier();
	if (t % KN_WARP == 0)
		s->warp_least[t / KN_WARP] = below;
	kn_barrier();
	for (int i = 0; i < WARPS; i++)
		below = fmaxf(below, s->warp_least[i]);
	float inv = SPAN / below;
	return {max, inv < 1e30f ? inv : 1.0f};
}

/* Fills the list, sorted, with at least the k best elements, or all if these are fewer. False: they do not fit. */
__device__ static bool list_best(struct sample_shared *s, const struct sample_row &row, float max, uint32_t k, int t)
{
	const struct sample_scale c = spread(s, row, max, t);
	clear(s, t);
	for (int i = t; i < row.n_chunks; i += THREADS)
		if (is_some(row.most[i]))
			kn_add_shared(&s->count[bin_of(c, row.most[i])], 1u);
	add_up(s, t);
	/* So many chunks have such an element. */
	int bin = s->count[BINS - 1] >= k ? (int)reach(s, k, 0, t) : BINS - 1;
	return collect_bins(s, row, c, bin, t);
}

#endif
