/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention within one block of positions, for all instruction sets: products of tiles of queries with vectors of keys,
 * softmax of the scores, products of the weights with the values. An instruction set's file includes this after
 * defining its vectors (vf, v_load, …), ATTN_QUERIES, SCORE_VECTORS and WEIGH_VECTORS.
 *
 * Elements become float32 in registers, each time they are read: float16 by one instruction, int8 by two. The scale of
 * an int8 token multiplies its score and its weight, never its elements.
 *
 * Keys are transposed in their pages: a vector is one element of LANES adjacent positions, and a score needs no sum
 * across lanes. It adds over the head's elements in order, as the scalar remainder does, so its bits are the same in
 * every tile. Positions that a query does not see have weight zero, which adds nothing to a sum of finite values.
 *
 * VERSIONS, multiply-adds per second of one core (scores and weighting together, head of 64, 16 rows at position
 * 16,000, group of 2), predicted from 2 products a cycle at 2.6 GHz: 83 G.
 *   1  one query at a time, keys in row order, a sum across lanes and expf per score    20 G
 *   2  transposed keys, tiles of 6 × 4 vectors, exponentials in vectors                 60 to 70 G (AVX-512)
 * One row in float16, head of 64, group of 4 (AVX2, Zen 3, two threads, on a shared machine: figures of one program
 * vary by a third, so most of these differences are noise):
 *   3  float16 and int8 in registers; separate sums per block; tiles of 4 queries × 3 vectors, which spilled 3
 *      accumulators for values; the next lines prefetched. Expected: bound by reading. 4,000 positions, in the L3
 *      cache: 669 µs (one run)
 *   4  4 × 2 for values, nothing spilled: 527 µs (one run)
 *      16 layers of 4,096 positions from memory, medians of runs: 33 to 56 % of the reading rate; 15 ms, or 20 ms
 *         without
 *      prefetching (one run each). In the L2 cache, one thread: 37 to 42 % of the fp32 rate, 59 % in one run, and int8
 *      is no faster than float16: instructions cost as much as reading.
 *   5  queries packed [element][query], two steps unrolled: 12 to 18 % slower in the cache; from memory one run 1.5
 *      times faster, otherwise noise; dropped
 *   6  fewer tile sizes (1, 2, 4, 6 queries), to compile faster with sanitizers. Not timed against 4.
 * The same with pages that had been written (`bench model` used to read the kernel's zero page): 16 layers of 4,096
 * positions, 134 MB, in milliseconds, the minimum of many runs on a shared machine. A loop that only reads, page after
 * page: 4.9 with two threads, 8.3 with one; all multiply-adds, without conversions: 2.6 and 5.2.
 *                                                                                L3  memory  memory,
 *                                                                        one thread     one     two
 *   6  as above: a block of one head, the next one prefetched to the L2 cache    9.4    13.7     8.0
 *      Pages of one head are 256 KB apart and map to the same few sets: prefetched lines may be evicted before use.
 *   7  pages read for all key heads, 64 positions at a time; tiles of 4 × 2,
 *      which alone run at the rate of their multiply-adds. Expected: 5.5         9.3     –       7.4
 *   8  one prefetch for each line consumed, of the same piece of the next
 *      memory; loops unrolled to a line                                          8.5    11.1     7.1
 *      Scores take 37 % of the time, weighting 39, softmax 15. Without softmax 1 ms less from memory, because softmax
 *      reads nothing. A loop with as many multiply-adds and the same reads takes 5.9: that much can still be gained.
 *   9  exponentials of four vectors at once: softmax of 256 scores of 32 queries 6.4 → 5.5 µs
 * Tried and dropped: prefetching 4 to 24 lines with the softmax of each query, up to 1, 2, 4 or 8 pieces beyond the
 * next, while every n-th piece of values prefetches nothing, to use up the lead. Expected: 1 ms less from memory, two
 * threads. Measured, milliseconds, runs alternating: medians 10.4 without, 10.7 to 12.3 with it; on the loaded machine
 * 17.1 without, 17.9 to 18.7 with it; minimums 7.6 to 7.7 without, 7.9 to 9.9 with it. More prefetching was slower.
 * int8, one line at a time: 7.5 without, 8.0 with it.
 */
#include <float.h>
#include <math.h>
#include <string.h>

enum { EXPS = 4 };

/* e^x for x <= 0: 2^n · e^r with |r| <= ln2 / 2; e^r is its series, whose first omitted term is below 2^-27. 0 where
 * the result would be denormal. Takes n vectors, at most EXPS, at once: one long dependency chain would keep the
 * processor from starting the next. */
INLINE void v_exps(vf *x, const int n)
{
	static const float terms[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
	vf r[EXPS], y[EXPS];
	vi whole[EXPS];
	UNROLL_FOR(int k = 0; k < n; k++) {
		vf low = v_max(x[k], v_set(-87.0f));
		whole[k] = v_round(low * v_set(1.44269504f));
		vf nf = v_float(whole[k]);
		r[k] = v_fma(nf, v_set(-0.693359375f), low); /* ln 2 in two parts, the first of few bits */
		r[k] = v_fma(nf, v_set(2.12194440e-4f), r[k]);
		y[k] = v_set(1.0f / 5040);
	}
	UNROLL_FOR(size_t t = 0; t < sizeof terms / sizeof *terms; t++)
		UNROLL_FOR(int k = 0; k < n; k++)
			y[k] = v_fma(y[k], r[k], v_set(terms[t]));
	UNROLL_FOR(int k = 0; k < n; k++) {
		vf power = y[k] * (vf)((whole[k] + 127) << 23);
		x[k] = (vf)((vi)power & (vi)(x[k] > v_set(-87.0f)));
	}
}

static inline vf v_exp(vf x)
{
	v_exps(&x, 1);
	return x;
}

/* tanh by e^-2|x|. */
static inline vf v_tanh(vf x)
{
	vi sign = (vi)x & (int32_t)0x80000000;
	vf a = (vf)((vi)x & 0x7fffffff), e = v_exp(v_set(-2.0f) * a);
	vf t = (v_set(1.0f) - e) / (v_set(1.0f) + e);
	return (vf)((vi)t | sign);
}

/* The vector of elements from i on, as they are stored: without their scales. type is a constant where it
 * is inlined, here and below. */
INLINE vf v_elements(const int type, const void *at, size_t i)
{
	if (type == KN_F16)
		return v_f16((const uint8_t *)at + 2 * i);
	if (type == KN_KV_Q8)
		return v_float(v_i8((const uint8_t *)at + i));
	return v_load((const float *)at + i);
}

INLINE float element(const int type, const void *at, size_t i)
{
	if (type == KN_F16)
		return kn_f32_from_f16(((const uint16_t *)at)[i]);
	if (type == KN_KV_Q8)
		return (float)((const int8_t *)at)[i];
	return ((const float *)at)[i];
}

/* ---- what comes next ---- */

enum { LINE = 64 };

/* Each cache line read prefetches a line of the next memory: a sequence's pages are far apart, and their contiguous
 * runs are too short for the hardware prefetcher. STEPS_A_LINE: steps of `bytes` bytes that use up a line;
 * LINES_A_STEP: lines that one step uses up. */
#define STEPS_A_LINE(bytes) ((bytes) < LINE ? LINE / (bytes) : 1)
#define LINES_A_STEP(bytes) ((bytes) > LINE ? (bytes) / LINE : 1)

static inline void fetch(const uint8_t *at) { __builtin_prefetch(at, 0, 3); }

/* The tile sizes: few, because each is separate code. */
static int tile_queries(int left) { return left >= ATTN_QUERIES ? ATTN_QUERIES : left >= 4 ? 4 : left >= 2 ? 2 : 1; }

static int tile_vectors(int left, int most) { return left >= most ? most : 1; }

#if ATTN_QUERIES_MAX == 6
#define TILE_SIZES(X, ...) X(1, __VA_ARGS__) X(2, __VA_ARGS__) X(4, __VA_ARGS__) X(6, __VA_ARGS__)
#else
#define TILE_SIZES(X, ...) X(1, __VA_ARGS__) X(2, __VA_ARGS__) X(4, __VA_ARGS__)
#endif
#define TILE_CASE(n, most, tile, ...)               \
	case n:                                     \
		if (n_v == (most))                  \
			tile(__VA_ARGS__, n, most); \
		else                                \
			tile(__VA_ARGS__, n, 1);    \
		break;
/* A tile of n_q queries and n_v vectors, with both as constants behind its other arguments. */
#define SWITCH_TILE(most, tile, ...)                           \
	switch (n_q) {                                         \
		TILE_SIZES(TILE_CASE, most, tile, __VA_ARGS__) \
	default: BUG("a tile of %d queries", n_q);             \
	}

/* ---- scores ---- */

/* LANES positions of a page. */
struct keys {
	const void *at;     /* element 0 of the first position */
	const void *next;   /* an equal share of the next memory */
	const float *scale; /* where the type has them */
	int to;             /* index of the first position in the block */
};

/* One element of n_q queries and n_v vectors of keys. */
INLINE void score_step(const int type, const float *const *q, const uint8_t *const *at, int d, vf (*acc)[SCORE_VECTORS],
		       const int n_q, const int n_v)
{
	vf key[SCORE_VECTORS];
	UNROLL_FOR(int v = 0; v < n_v; v++)
		key[v] = v_elements(type, at[v], 0);
	UNROLL_FOR(int i = 0; i < n_q; i++) {
		vf x = v_set(q[i][d]);
		UNROLL_FOR(int v = 0; v < n_v; v++)
			acc[i][v] = v_fma(x, key[v], acc[i][v]);
	}
}

/* n_q queries and n_v vectors of keys; both are constants where it is inlined. */
INLINE void score_tile(const int type, const float *const *queries, const struct keys *k, int page_tokens, int dim,
		       float *s, const int n_q, const int n_v)
{
	const size_t element_bytes = kn_kv_element_bytes(type), row = (size_t)page_tokens * element_bytes;
	const int steps = STEPS_A_LINE(LANES * (int)element_bytes);
	const float *q[ATTN_QUERIES];
	const uint8_t *at[SCORE_VECTORS], *next[SCORE_VECTORS];
	vf acc[ATTN_QUERIES][SCORE_VECTORS];
	int d = 0;
	UNROLL_FOR(int v = 0; v < n_v; v++) {
		at[v] = k[v].at;
		next[v] = k[v].next;
	}
	UNROLL_FOR(int i = 0; i < n_q; i++) {
		q[i] = queries[i];
		UNROLL_FOR(int v = 0; v < n_v; v++)
			acc[i][v] = v_set(0);
	}
	for (; d + steps <= dim; d += steps) {
		UNROLL_FOR(int v = 0; v < n_v; v++) {
			fetch(next[v]);
			next[v] += LINE;
		}
		UNROLL_FOR(int u = 0; u < steps; u++) {
			score_step(type, q, at, d + u, acc, n_q, n_v);
			UNROLL_FOR(int v = 0; v < n_v; v++)
				at[v] += row;
		}
	}
	for (; d < dim; d++) {
		score_step(type, q, at, d, acc, n_q, n_v);
		UNROLL_FOR(int v = 0; v < n_v; v++)
			at[v] += row;
	}
	UNROLL_FOR(int v = 0; v < n_v; v++) {
		vf factor = v_set(1);
		if (type == KN_KV_Q8)
			factor = v_load(k[v].scale);
		UNROLL_FOR(int i = 0; i < n_q; i++) {
			if (type == KN_KV_Q8)
				acc[i][v] *= factor;
			v_store(s + (size_t)i * KN_ATTN_BLOCK + k[v].to, acc[i][v]);
		}
	}
}

INLINE void score_group(const int type, const float *const *q, const struct keys *k, int page_tokens, int dim, float *s,
			int n_q, int n_v){SWITCH_TILE(SCORE_VECTORS, score_tile, type, q, k, page_tokens, dim, s)}

/* One position alone, computed as a lane of a vector would be. */
INLINE float score_of(const int type, const float *q, const struct kn_run *run, int token, int page_tokens, int dim)
{
	float sum = 0;
	for (int d = 0; d < dim; d++)
		sum = __builtin_fmaf(q[d], element(type, run->k, (size_t)d * (size_t)page_tokens + (size_t)token), sum);
	return type == KN_KV_Q8 ? sum * run->k_scale[token] : sum;
}

INLINE void scores_of(const int type, const float *const *q, int n_q, const struct kn_run *runs, int n_runs,
		      int page_tokens, int dim, float *s)
{
	const size_t bytes = kn_kv_element_bytes(type);
	struct keys k[KN_ATTN_BLOCK / LANES];
	int n = 0;
	for (int r = 0; r < n_runs; r++) {
		const struct kn_run *run = &runs[r];
		int i = 0;
		if (type == KN_KV_Q8)
			fetch((const uint8_t *)run->k_next + ((const uint8_t *)run->k_scale - (const uint8_t *)run->k));
		/* A vector may reach past the run within its page and block: those scores are masked. */
		for (; i < run->n && run->token + i + LANES <= page_tokens && run->at + i + LANES <= KN_ATTN_BLOCK &&
		       n < KN_ATTN_BLOCK / LANES;
		     i += LANES) {
			size_t token = (size_t)(run->token + i);
			k[n++] = (struct keys){.at = (const uint8_t *)run->k + token * bytes,
					       .next = (const uint8_t *)run->k_next + token * bytes * (size_t)dim,
					       .scale = type == KN_KV_Q8 ? run->k_scale + token : NULL,
					       .to = run->at + i};
		}
		for (; i < run->n; i++)
			for (int j = 0; j < n_q; j++)
				s[(size_t)j * KN_ATTN_BLOCK + (size_t)(run->at + i)] =
				    score_of(type, q[j], run, run->token + i, page_tokens, dim);
	}
	for (int v = 0, n_v; v < n; v += n_v) {
		n_v = tile_vectors(n - v, SCORE_VECTORS);
		for (int j = 0, group; j < n_q; j += group) {
			group = tile_queries(n_q - j);
			score_group(type, q + j, k + v, page_tokens, dim, s + (size_t)j * KN_ATTN_BLOCK, group, n_v);
		}
	}
}

static void scores(int type, const float *const *q, int n_q, const struct kn_run *runs, int n_runs, int page_tokens,
		   int dim, float *s)
{
	switch (type) {
	case KN_F16: scores_of(KN_F16, q, n_q, runs, n_runs, page_tokens, dim, s); break;
	case KN_KV_Q8: scores_of(KN_KV_Q8, q, n_q, runs, n_runs, page_tokens, dim, s); break;
	default: scores_of(KN_F32, q, n_q, runs, n_runs, page_tokens, dim, s); break;
	}
}

/* ---- scores of latent rows ---- */

/* One position of a latent row. */
struct row_key {
	const uint8_t *at, *next; /* its elements, and as many bytes of the next memory */
	const float *scale;
	int to; /* index of the position in the block */
};

/* The product of query and row as the file's order has it: lanes side by side, then what a vector leaves over. */
INLINE float row_tail(const int type, vf sum, const float *q, const uint8_t *at, int width)
{
	float x = v_sum(sum);
	for (int d = width / LANES * LANES; d < width; d++)
		x = __builtin_fmaf(q[d], element(type, at, (size_t)d), x);
	return x;
}

/* n_q queries and n_v rows; both are constants where it is inlined. */
INLINE void row_tile(const int type, const float *const *queries, const struct row_key *k, int width, float *s,
		     const int n_q, const int n_v)
{
	const size_t bytes = LANES * kn_kv_element_bytes(type);
	vf acc[ATTN_QUERIES][SCORE_VECTORS];
	UNROLL_FOR(int i = 0; i < n_q; i++)
		UNROLL_FOR(int v = 0; v < n_v; v++)
			acc[i][v] = v_set(0);
	for (int d = 0; d + LANES <= width; d += LANES) {
		vf key[SCORE_VECTORS];
		size_t from = (size_t)d / LANES * bytes;
		UNROLL_FOR(int v = 0; v < n_v; v++) {
			if (from % LINE == 0)
				fetch(k[v].next + from);
			key[v] = v_elements(type, k[v].at + from, 0);
		}
		UNROLL_FOR(int i = 0; i < n_q; i++) {
			vf x = v_load(queries[i] + d);
			UNROLL_FOR(int v = 0; v < n_v; v++)
				acc[i][v] = v_fma(x, key[v], acc[i][v]);
		}
	}
	UNROLL_FOR(int i = 0; i < n_q; i++)
		UNROLL_FOR(int v = 0; v < n_v; v++) {
			float x = row_tail(type, acc[i][v], queries[i], k[v].at, width);
			s[(size_t)i * KN_ATTN_BLOCK + (size_t)k[v].to] = type == KN_KV_Q8 ? x * *k[v].scale : x;
		}
}

INLINE void row_group(const int type, const float *const *q, const struct row_key *k, int width, float *s, int n_q,
		      int n_v){SWITCH_TILE(SCORE_VECTORS, row_tile, type, q, k, width, s)}

INLINE void row_scores_of(const int type, const float *const *q, int n_q, const struct kn_run *runs, int n_runs,
			  int width, float *s)
{
	const size_t row = (size_t)width * kn_kv_element_bytes(type);
	struct row_key k[KN_ATTN_BLOCK];
	int n = 0;
	for (int r = 0; r < n_runs; r++)
		for (int i = 0; i < runs[r].n; i++) {
			size_t token = (size_t)(runs[r].token + i);
			k[n++] = (struct row_key){.at = (const uint8_t *)runs[r].k + token * row,
						  .next = (const uint8_t *)runs[r].k_next + token * row,
						  .scale = type == KN_KV_Q8 ? runs[r].k_scale + token : NULL,
						  .to = runs[r].at + i};
		}
	for (int v = 0, n_v; v < n; v += n_v) {
		n_v = tile_vectors(n - v, SCORE_VECTORS);
		for (int j = 0, group; j < n_q; j += group) {
			group = tile_queries(n_q - j);
			row_group(type, q + j, k + v, width, s + (size_t)j * KN_ATTN_BLOCK, group, n_v);
		}
	}
}

static void row_scores(int type, const float *const *q, int n_q, const struct kn_run *runs, int n_runs, int width,
		       float *s)
{
	switch (type) {
	case KN_F16: row_scores_of(KN_F16, q, n_q, runs, n_runs, width, s); break;
	case KN_KV_Q8: row_scores_of(KN_KV_Q8, q, n_q, runs, n_runs, width, s); break;
	default: row_scores_of(KN_F32, q, n_q, runs, n_runs, width, s); break;
	}
}

/* ---- weights ---- */

/* Turns n vectors of scores, less the largest score, into weights. Returns their sum plus the previous sum. */
INLINE vf weights_of(float *s, vf max, vf sum, const int n)
{
	vf p[EXPS];
	UNROLL_FOR(int k = 0; k < n; k++)
		p[k] = v_load(s + k * LANES) - max; /* weights are 0 if nothing is seen: max is -INFINITY */
	v_exps(p, n);
	UNROLL_FOR(int k = 0; k < n; k++) {
		v_store(s + k * LANES, p[k]);
		sum += p[k];
	}
	return sum;
}

static void softmax(float *s, int begin, int end, int from, int to, const struct kn_attn *attn, struct kn_seen *seen)
{
	const float cap = attn->softcap;
	const vf scale = v_set(attn->scale);
	vf most = v_set(-INFINITY);
	int i;
	for (i = begin; i < end; i += LANES) {
		vf x = v_load(s + i) * scale;
		if (cap > 0)
			x = v_set(cap) * v_tanh(x / v_set(cap));
		if (i < from || i + LANES > to)
			x = v_within(x, i, from, to, -INFINITY);
		v_store(s + i, x);
		most = v_max(most, x);
	}
	float max = v_largest(most);
	vf sum = v_set(0), less = v_set(max);
	for (i = begin; end - i > (EXPS - 1) * LANES; i += EXPS * LANES)
		sum = weights_of(s + i, less, sum, EXPS);
	for (; i < end; i += LANES)
		sum = weights_of(s + i, less, sum, 1);
	*seen = (struct kn_seen){.max = max, .sum = v_sum(sum)};
}

static void merge(const float *part, const struct kn_seen *of_part, struct kn_seen *seen, float *out, int dim)
{
	if (of_part->sum == 0)
		return;
	float max = of_part->max > seen->max ? of_part->max : seen->max;
	float before = seen->sum > 0 ? expf(seen->max - max) : 0, now = expf(of_part->max - max);
	int d = 0;
	for (; d + LANES <= dim; d += LANES)
		v_store(out + d, v_fma(v_load(part + d), v_set(now), v_load(out + d) * v_set(before)));
	for (; d < dim; d++)
		out[d] = __builtin_fmaf(part[d], now, out[d] * before);
	*seen = (struct kn_seen){.max = max, .sum = __builtin_fmaf(of_part->sum, now, seen->sum * before)};
}

/* ---- values ---- */

/* One position, n_q queries and n_v vectors of its value. */
INLINE void weigh_step(const int type, const float *weight, const uint8_t *at, vf (*acc)[WEIGH_VECTORS], const int n_q,
		       const int n_v)
{
	vf value[WEIGH_VECTORS];
	UNROLL_FOR(int k = 0; k < n_v; k++)
		value[k] = v_elements(type, at, (size_t)(k * LANES));
	UNROLL_FOR(int i = 0; i < n_q; i++) {
		vf x = v_set(weight[i * KN_ATTN_BLOCK]);
		UNROLL_FOR(int k = 0; k < n_v; k++)
			acc[i][k] = v_fma(x, value[k], acc[i][k]);
	}
}

/* n_v vectors of out for n_q queries, over the positions of the runs. p is the block's weights; from is the offset of
 * these vectors in a value. */
INLINE void weigh_tile(const int type, const float *p, const struct kn_run *runs, int n_runs, size_t from, int width,
		       float *const *out, const int n_q, const int n_v)
{
	const size_t element_bytes = kn_kv_element_bytes(type), row = (size_t)width * element_bytes;
	const int bytes = n_v * LANES * (int)element_bytes, steps = STEPS_A_LINE(bytes), lines = LINES_A_STEP(bytes);
	vf acc[ATTN_QUERIES][WEIGH_VECTORS];
	UNROLL_FOR(int i = 0; i < n_q; i++)
		UNROLL_FOR(int k = 0; k < n_v; k++)
			acc[i][k] = v_load(out[i] + from + k * LANES);
	for (int r = 0; r < n_runs; r++) {
		const struct kn_run *run = &runs[r];
		const float *weight = p + run->at, *end = weight + run->n;
		const uint8_t *at = (const uint8_t *)run->v + (size_t)run->token * row + from * element_bytes;
		/* Prefetches as many bytes of the next memory as are read now. */
		const uint8_t *next = (const uint8_t *)run->v_next + from * element_bytes * (size_t)run->n;
		for (; end - weight >= steps; weight += steps) {
			UNROLL_FOR(int l = 0; l < lines; l++) {
				fetch(next);
				next += LINE;
			}
			UNROLL_FOR(int u = 0; u < steps; u++, at += row)
				weigh_step(type, weight + u, at, acc, n_q, n_v);
		}
		for (; weight < end; weight++, at += row)
			weigh_step(type, weight, at, acc, n_q, n_v);
	}
	UNROLL_FOR(int i = 0; i < n_q; i++)
		UNROLL_FOR(int k = 0; k < n_v; k++)
			v_store(out[i] + from + k * LANES, acc[i][k]);
}

INLINE void weigh_group(const int type, const float *p, const struct kn_run *runs, int n_runs, size_t at, int width,
			float *const *out, int n_q,
			int n_v){SWITCH_TILE(WEIGH_VECTORS, weigh_tile, type, p, runs, n_runs, at, width, out)}

/* The elements of a head after its last whole vector. */
INLINE void weigh_rest(const int type, const float *p, const struct kn_run *runs, int n_runs, int width, int dim,
		       float *out)
{
	for (int d = dim / LANES * LANES; d < dim; d++)
		for (int r = 0; r < n_runs; r++)
			for (int t = 0; t < runs[r].n; t++)
				out[d] = __builtin_fmaf(
				    p[runs[r].at + t],
				    element(type, runs[r].v, (size_t)(runs[r].token + t) * (size_t)width + (size_t)d),
				    out[d]);
}

/* Multiplies the weights of n_q queries by their tokens' scales. */
static void scale_weights(float *s, int n_q, const struct kn_run *runs, int n_runs)
{
	for (int r = 0; r < n_runs; r++) {
		const float *scale = runs[r].v_scale + runs[r].token;
		fetch((const uint8_t *)runs[r].v_next +
		      ((const uint8_t *)runs[r].v_scale - (const uint8_t *)runs[r].v));
		for (int i = 0; i < n_q; i++) {
			float *p = s + (size_t)i * KN_ATTN_BLOCK + (size_t)runs[r].at;
			int t = 0;
			for (; t + LANES <= runs[r].n; t += LANES)
				v_store(p + t, v_load(p + t) * v_load(scale + t));
			for (; t < runs[r].n; t++)
				p[t] *= scale[t];
		}
	}
}

INLINE void weigh_of(const int type, const float *s, int n_q, const struct kn_run *runs, int n_runs, int width, int dim,
		     float *const *out)
{
	int whole = dim / LANES;
	for (int j = 0, group; j < n_q; j += group) {
		const float *p = s + (size_t)j * KN_ATTN_BLOCK;
		group = tile_queries(n_q - j);
		for (int k = 0, n_v; k < whole; k += n_v) {
			n_v = tile_vectors(whole - k, WEIGH_VECTORS);
			weigh_group(type, p, runs, n_runs, (size_t)k * LANES, width, out + j, group, n_v);
		}
		for (int i = 0; i < group && whole * LANES < dim; i++)
			weigh_rest(type, p + i * KN_ATTN_BLOCK, runs, n_runs, width, dim, out[j + i]);
	}
}

static void weigh(int type, float *s, int n_q, const struct kn_run *runs, int n_runs, int width, int dim,
		  float *const *out)
{
	switch (type) {
	case KN_F16: weigh_of(KN_F16, s, n_q, runs, n_runs, width, dim, out); break;
	case KN_KV_Q8:
		scale_weights(s, n_q, runs, n_runs);
		weigh_of(KN_KV_Q8, s, n_q, runs, n_runs, width, dim, out);
		break;
	default: weigh_of(KN_F32, s, n_q, runs, n_runs, width, dim, out); break;
	}
}

/* ---- elements ---- */

/* Stores x[n] as float16. NaN stays NaN: v_min and v_max then return their second operand. */
static void put_f16(const float *x, int n, uint16_t *out)
{
	enum { MOST = 65504 };
	float rest[LANES] = {0};
	uint16_t halves[LANES];
	int i = 0;
	for (; i + LANES <= n; i += LANES)
		v_put_f16(out + i, v_max(v_set(-MOST), v_min(v_set(MOST), v_load(x + i))));
	if (i == n)
		return;
	memcpy(rest, x + i, (size_t)(n - i) * sizeof *x);
	v_put_f16(halves, v_max(v_set(-MOST), v_min(v_set(MOST), v_load(rest))));
	memcpy(out + i, halves, (size_t)(n - i) * sizeof *out);
}

/* x[n] as int8; the scale. */
static float put_q8(const float *x, int n, int8_t *out)
{
	float most = 0, strange = 0; /* becomes NaN if an element is not finite */
	int i;
	vf high = v_set(0), odd = v_set(0);
	for (i = 0; i + LANES <= n; i += LANES) {
		vf v = v_load(x + i);
		high = v_max(high, (vf)((vi)v & 0x7fffffff));
		odd += v * v_set(0);
	}
	most = v_largest(high);
	strange = v_sum(odd);
	for (; i < n; i++) {
		most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
		strange += x[i] * 0;
	}
	float scale = most / 127.0f;
	if (strange != 0 || !(scale >= FLT_MIN)) {
		memset(out, 0, (size_t)n);
		return strange != 0 ? NAN : 0;
	}
	for (i = 0; i + LANES <= n; i += LANES) {
		int32_t q[LANES];
		vi rounded = v_round(v_load(x + i) / v_set(scale));
		memcpy(q, &rounded, sizeof q);
		for (int k = 0; k < LANES; k++)
			out[i + k] = (int8_t)(q[k] > 127 ? 127 : q[k] < -127 ? -127 : q[k]);
	}
	for (; i < n; i++) {
		float q = rintf(x[i] / scale);
		out[i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
	}
	return scale;
}

static float put_kv(int type, const float *x, int n, void *out)
{
	if (type == KN_KV_Q8)
		return put_q8(x, n, out);
	if (type == KN_F16)
		put_f16(x, n, out);
	else
		memcpy(out, x, (size_t)n * sizeof *x);
	return 1;
}

/* Members of every instruction set's table: all or none of them. */
#define ATTENTION \
	.scores = scores, .row_scores = row_scores, .softmax = softmax, .weigh = weigh, .merge = merge, .put_kv = put_kv
