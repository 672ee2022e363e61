/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws tokens on the device, as engine/sample/sampler.h defines, from rows of logits that stay on the device.
 *
 * A row is in chunks of RACE_BLOCK ids. First every chunk is surveyed, by many blocks a row: its largest logit and,
 * where they are needed, sums of its weights. One block a row then works on the chunks that matter: most have no logit
 * near the largest.
 *
 * The filters top-k, top-p and min-p each keep the start of the row in rank order (a value's bits made monotonic,
 * then the lower id), so together they are one rank threshold.
 *  - top-k: k chunks have a logit of at least the k-th largest of the chunks' largest, so what is below is left out.
 *  - top-p: a histogram over (max - l) / temperature has the masses of the weights. Only logits within a bound take
 *    part: all others together have less than the mass that top-p leaves out (n · e^-bound).
 * If few elements remain, they are collected, sorted and filtered. Otherwise the bin in which a filter ends is
 * subdivided by the bits of ranks until few elements remain. That costs one read of the row per ten bits and occurs
 * only with flat rows and ties.
 *
 * The draw is an exponential race, like the host's (kernels/race.h), among the collected elements or over chunks of
 * the row, those first whose bound is lowest.
 *
 * Kernels: survey_rows, sample, and if the step has a row that is not greedy, race_rows.
 *
 * Masses are integers: weights in units of 2^-44 of the largest. So sums do not depend on the order of threads, and a
 * draw does not depend on other work. Weights, adjusted logits and the race have the reference's bits, so a draw
 * differs from the reference's only if a filter ends within 10^-8 of a boundary between two elements. (The mass that is
 * beyond the bound is a sum of floats, in a fixed order, off by at most 10^-6 of itself.)
 *
 * VERSIONS
 *  4  measured on an H200: version 3 takes 18.5 us for a greedy row of 128K logits, 67 us for 256 of them, and some
 *     860 us for 256 flat rows with top-p: each row was read four times, by one block, and each logit cost a weight (27
 *     instructions) and three atomics. Now the first read is by blocks of 8192 logits, and finds all that greedy rows
 *     and rows without filters take. The histogram weighs what is within the bound: 30 % of flat rows over 20 with
 *     top-p 0.95, few per cent of a model's, in few chunks. top-k reads the k best chunks. Races read the chunks with
 *     the lowest bounds, some 25 of 501, instead of all; they are a kernel of their own, since with them `sample` would
 *     not fit into the 64 registers that two blocks a multiprocessor leave. On an H100, in turns: 256 flat rows with
 *     top-p 885 -> 560 us (150 asked); a step of one greedy row, 6.08 ms, up to 0.02 ms longer, of 64 the same.
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

/* The likeliest tokens by the model's unadjusted logits; the list has them if it has the best elements. */
__device__ static void tops(struct sample_shared *s, const struct sample_row &row, const struct sample_scale &c,
			    uint32_t n_top, bool has_best, int t)
{
	if (!has_best) {
		uint32_t listed;
		u64 least = threshold(s, row, c, n_top, 1, &listed, t);
		(void)collect(
		    s, row, t, [&](int i) { return least == 0 || row.most[i] >= rank_value(least); },
		    [&](float v, int i) { return rank_of(v, i) >= least; });
	}
	uint32_t k = n_top < s->n ? n_top : s->n;
	for (uint32_t i = (uint32_t)t; i < k; i += THREADS) {
		s->top[i].id = rank_id(s->list[i]);
		s->top[i].logprob = rank_value(s->list[i]) - c.max - s->verdict.log_z;
	}
	if (t == 0)
		s->n_top = (int32_t)k;
	kn_barrier();
}

__device__ static inline int n_adjusts(const struct sample_job &job)
{
	return job.n_bias + job.n_penalties + job.n_out;
}

/* Whether the logits change before the draw. */
__device__ static inline bool changes(const struct sample_job &job) { return n_adjusts(job) > 0 || job.mask >= 0; }

__device__ static inline struct sample_row row_of(float *logits, int n, float *marks, const struct sample_job &job,
						  int number)
{
	int n_chunks = chunks_of(n);
	float *l = logits + (int64_t)job.row * n, *at = marks + (int64_t)number * N_MARKS * n_chunks;
	return {l, n, n_chunks, n % 4 == 0 && (uintptr_t)l % 16 == 0, NULL, {at, at + n_chunks, at + 2 * n_chunks}};
}

/* A block for a part of a row: rows that do not change. */
__global__ void __launch_bounds__(SURVEY_THREADS)
    survey_rows(float *logits, int n, const struct sample_job *jobs, float *marks)
{
	kn_begin();
	const struct sample_job job = jobs[blockIdx.y];
	int t = (int)threadIdx.x, first = (int)blockIdx.x * PART, end = first + PART;
	if (job.row < 0 || changes(job))
		return;
	const struct sample_row row = row_of(logits, n, marks, job, (int)blockIdx.y);
	survey<SURVEY_TOGETHER>(row, job, first + t / KN_WARP, end < row.n_chunks ? end : row.n_chunks,
				SURVEY_THREADS / KN_WARP, t % KN_WARP);
}

/* Adjusts the row's logits. */
__device__ static void change(struct sample_shared *s, float *l, int n, const struct sample_job &job,
			      struct kn_adjust *adjusts, const int32_t *token, int t)
{
	struct kn_adjust *a = adjusts + job.first;
	kn_barrier();
	if (job.said > 0)
		say_once_more(s, a + job.n_bias, job.n_penalties, token[job.said - 1], t);
	adjust(s, l, a, job, t);
	if (job.mask >= 0)
		exclude_unmasked(l, n, (const uint32_t *)(const void *)adjusts + job.mask, t);
}

/* What a log probability takes. */
__device__ static void measure(struct sample_shared *s, const struct sample_row &row, float max, int t)
{
	float log_z = log_sum(s, row, max, t);
	if (t == 0) {
		s->verdict.max = max;
		s->verdict.log_z = log_z;
	}
	kn_barrier();
}

/* The row as it is, where log probabilities are wanted, then as it is drawn from. */
__device__ static void work(struct sample_shared *s, const struct sample_row &row, const struct sample_job &job,
			    struct kn_adjust *adjusts, const int32_t *token, int t)
{
#pragma unroll 1
	for (int drawing = !job.want_logprob; drawing < 2; drawing++) {
		if (drawing && changes(job))
			change(s, row.l, row.n, job, adjusts, token, t);
		if (changes(job))
			survey_row(row, job, t);
		u64 best = largest(s, row, t);
		const struct sample_scale c = {rank_value(best), drawing ? job.inv_t : 1};
		uint32_t k = drawing ? (uint32_t)job.top_k : (uint32_t)job.n_top;
		if (best == 0 || !(c.max < INFINITY) || s->bad != 0)
			return; /* every thread of the block */
		if (!drawing)
			measure(s, row, c.max, t);
		if (drawing && job.inv_t == 0) {
			if (t == 0)
				s->id = rank_id(best);
			return;
		}
		if (!drawing && k == 0)
			continue;
		bool has_best = k > 0 && k <= CAP && list_best(s, row, c.max, k, t);
		if (drawing)
			draw(s, row, c, job, has_best, t);
		else
			tops(s, row, c, k, has_best, t);
	}
}

/* By one thread. */
__device__ static inline void tell(const struct sample_shared *s, const struct kn_adjust *adjusts, struct kn_drawn *out)
{
	const struct sample_job &job = s->job;
	out->id = s->id;
	out->logprob = NAN;
	if (s->id >= 0 && job.want_logprob)
		out->logprob =
		    said(s->row.l, adjusts + job.first, n_adjusts(job), s->id) - s->verdict.max - s->verdict.log_z;
}

/* Blocks of `sample` that stand on a multiprocessor: 256 rows are one wave. For compute capability 8 it would spill. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define SAMPLE_BLOCKS 1
#else
#define SAMPLE_BLOCKS 2
#endif

/* A block for a row. */
__global__ void __launch_bounds__(THREADS, SAMPLE_BLOCKS)
    sample(float *logits, int n, const struct sample_job *jobs, struct kn_adjust *adjusts, const int32_t *token,
	   float *marks, struct sample_verdict *verdicts, struct kn_drawn *out)
{
	kn_begin();
	struct sample_shared *s = (struct sample_shared *)kn_shared();
	int t = (int)threadIdx.x;
	if (jobs[blockIdx.x].row < 0)
		return; /* every thread of the block */
	out += blockIdx.x;
	if (t == 0) {
		s->job = jobs[blockIdx.x];
		s->row = row_of(logits, n, marks, s->job, (int)blockIdx.x);
		s->row.most = (float *)(s + 1);
		s->id = -1;
		s->bad = 0;
		s->n_top = 0;
		s->verdict = {0, {0, 0}, 0, 0, false};
	}
	kn_barrier();
	work(s, s->row, s->job, adjusts, token, t);
	kn_barrier();
	bool drawn = s->id >= 0 || s->verdict.open;
	if (t == 0) {
		verdicts[blockIdx.x] = s->verdict;
		tell(s, adjusts, out);
		out->n_top = drawn ? s->n_top : 0;
	}
	for (int i = t; i < s->n_top; i += THREADS)
		out->top[i] = s->top[i];
}

/* The races over rows that `sample` left. */
__global__ void __launch_bounds__(THREADS)
    race_rows(float *logits, int n, const struct sample_job *jobs, const struct kn_adjust *adjusts, float *marks,
	      const struct sample_verdict *verdicts, struct kn_drawn *out)
{
	kn_begin();
	struct sample_shared *s = (struct sample_shared *)kn_shared();
	int t = (int)threadIdx.x;
	if (jobs[blockIdx.x].row < 0 || !verdicts[blockIdx.x].open)
		return; /* every thread of the block */
	if (t == 0) {
		s->job = jobs[blockIdx.x];
		s->row = row_of(logits, n, marks, s->job, (int)blockIdx.x);
		s->row.most = s->row.marks.most;
		s->verdict = verdicts[blockIdx.x];
	}
	kn_barrier();
	draw_from_row(s, t);
	if (t == 0)
		tell(s, adjusts, out + blockIdx.x);
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

static size_t marks_bytes(int n, int n_vocab)
{
	size_t bytes = (size_t)n * N_MARKS * (size_t)chunks_of(n_vocab) * sizeof(float);
	return (bytes + KN_ALIGN - 1) / KN_ALIGN * KN_ALIGN;
}

/* The kernels, for n jobs at `draws` of the device, with the adjustments `head` bytes after them. */
static int launch(struct kn_backend *b, float *logits, int n_vocab, int n, uint8_t *draws, size_t head, bool races)
{
	const struct sample_job *jobs = (const struct sample_job *)(const void *)draws;
	struct kn_adjust *adjusts = (struct kn_adjust *)(void *)(draws + head);
	struct kn_drawn *out = (struct kn_drawn *)b->drawn.at;
	float *marks = (float *)b->scratch.at;
	struct sample_verdict *verdicts =
	    (struct sample_verdict *)(void *)((uint8_t *)b->scratch.at + marks_bytes(n, n_vocab));
	int n_chunks = chunks_of(n_vocab);
	dim3 parts((unsigned)((n_chunks + PART - 1) / PART), (unsigned)n);
	size_t shared = sizeof(struct sample_shared);
	int rc = KN_LAUNCH(b->dev, survey_rows, parts, SURVEY_THREADS, 0, logits, n_vocab, jobs, marks);
	if (rc == 0)
		rc = KN_LAUNCH(b->dev, sample, (unsigned)n, THREADS, shared + (size_t)n_chunks * sizeof(float), logits,
			       n_vocab, jobs, adjusts, b->token, marks, verdicts, out);
	if (rc == 0 && races)
		rc = KN_LAUNCH(b->dev, race_rows, (unsigned)n, THREADS, shared, logits, n_vocab, jobs, adjusts, marks,
			       verdicts, out);
	return rc;
}

int kn_cuda_sample(struct kn_backend *b, float *logits, int n_vocab, const struct kn_draw *draws, int n,
		   struct kn_drawn *out)
{
	int most = kn_cuda_rows(b, n);
	bool races = false;
	size_t n_adjust = 0, n_masks = 0, words = ((size_t)n_vocab + 31) / 32;
	dev_range(b->dev, "sampling");
	if (b->step == NULL || n < 1 || n_vocab < 1 || n_vocab > KN_MAX_SAMPLED_VOCAB)
		return SL_EUNSUPPORTED;
	for (int i = 0; i < n; i++) {
		if (draws[i].said > b->n_real || (draws[i].said > 0 && draws[i].n_penalties < 1))
			return SL_EUNSUPPORTED;
		n_adjust += (size_t)(draws[i].n_bias + draws[i].n_penalties + draws[i].n_out);
		n_masks += draws[i].mask != NULL;
		races = races || draws[i].temperature > 0;
	}
	size_t head = ((size_t)most * sizeof(struct sample_job) + KN_ALIGN - 1) / KN_ALIGN * KN_ALIGN;
	size_t bytes = head + n_adjust * sizeof(struct kn_adjust) + n_masks * words * sizeof(uint32_t);
	size_t scratch = marks_bytes(most, n_vocab) + (size_t)most * sizeof(struct sample_verdict);
	if (kn_cuda_room(b, &b->drawn, (size_t)most * sizeof *out) != 0 || kn_cuda_room(b, &b->scratch, scratch) != 0)
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
	int rc = launch(b, logits, n_vocab, most, device, head, races);
	return rc != 0 ? rc : kn_cuda_read_bytes(b, b->drawn.at, (size_t)n * sizeof *out, out);
}
