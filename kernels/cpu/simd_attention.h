/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention within one block of positions, written once for all instruction sets: products of tiles of
 * queries with vectors of keys, the softmax of what came out, products of the weights with the values.
 * Included by the file of an instruction set after its vectors (vf, v_load, …) and ATTN_QUERIES.
 *
 * Keys lie transposed in their pages, so a vector is one element of LANES neighbouring positions and a
 * score needs no sum across lanes: it adds over the head's elements in order, as the scalar remainder
 * does, and is the same bits in every tile. Weights of positions that a query does not see are zeros,
 * which add nothing to a sum of finite values.
 *
 * VERSIONS, multiply-adds per second of one core (scores and weighing together, head of 64, 16 rows at
 * position 16,000, group of 2), predicted from 2 products a cycle at 2.6 GHz: 83 G.
 *   1  one query at a time, keys as they come, a sum across lanes each, expf a score     20 G
 *   2  this file: transposed keys, tiles of 6 × 4 vectors, exponentials in vectors        see below
 */
#include <math.h>

enum { ATTN_VECTORS = 4 };

/* e^x for x <= 0: 2^n · e^r with |r| <= ln2 / 2, e^r by its series, whose first term left out is below
 * 2^-27. 0 where the result would not be a normal number. */
static inline vf v_exp(vf x)
{
	vf low = v_max(x, v_set(-87.0f));
	vi n = v_round(low * v_set(1.44269504f));
	vf nf = v_float(n);
	vf r = v_fma(nf, v_set(-0.693359375f), low); /* ln 2 in two parts, the first of few bits */
	r = v_fma(nf, v_set(2.12194440e-4f), r);
	vf y = v_set(1.0f / 5040);
	y = v_fma(y, r, v_set(1.0f / 720));
	y = v_fma(y, r, v_set(1.0f / 120));
	y = v_fma(y, r, v_set(1.0f / 24));
	y = v_fma(y, r, v_set(1.0f / 6));
	y = v_fma(y, r, v_set(0.5f));
	y = v_fma(y, r, v_set(1.0f));
	y = v_fma(y, r, v_set(1.0f));
	y = y * (vf)((n + 127) << 23);
	return (vf)((vi)y & (vi)(x > v_set(-87.0f)));
}

/* tanh by e^-2|x|. */
static inline vf v_tanh(vf x)
{
	vi sign = (vi)x & (int32_t)0x80000000;
	vf a = (vf)((vi)x & 0x7fffffff), e = v_exp(v_set(-2.0f) * a);
	vf t = (v_set(1.0f) - e) / (v_set(1.0f) + e);
	return (vf)((vi)t | sign);
}

/* n_q queries and n_v vectors of keys; both are constants where it is inlined. */
__attribute__((always_inline)) static inline void score_tile(const float *const *q, const float *const *k,
							     const int *to, int page_tokens, int dim, float *s,
							     const int n_q, const int n_v)
{
	vf acc[ATTN_QUERIES][ATTN_VECTORS];
	UNROLL for (int i = 0; i < n_q; i++)
		UNROLL for (int v = 0; v < n_v; v++)
			acc[i][v] = v_set(0);
	for (int d = 0; d < dim; d++) {
		vf key[ATTN_VECTORS];
		UNROLL for (int v = 0; v < n_v; v++)
			key[v] = v_load(k[v] + (size_t)d * (size_t)page_tokens);
		UNROLL for (int i = 0; i < n_q; i++) {
			vf x = v_set(q[i][d]);
			UNROLL for (int v = 0; v < n_v; v++)
				acc[i][v] = v_fma(x, key[v], acc[i][v]);
		}
	}
	UNROLL for (int i = 0; i < n_q; i++)
		UNROLL for (int v = 0; v < n_v; v++)
			v_store(s + (size_t)i * KN_ATTN_BLOCK + to[v], acc[i][v]);
}

static void score_group(const float *const *q, const float *const *k, const int *to, int page_tokens, int dim,
			float *s, int n_q, int n_v)
{
#define TILE(n) \
	case n: \
		switch (n_v) { \
		case 1: score_tile(q, k, to, page_tokens, dim, s, n, 1); break; \
		case 2: score_tile(q, k, to, page_tokens, dim, s, n, 2); break; \
		case 3: score_tile(q, k, to, page_tokens, dim, s, n, 3); break; \
		default: score_tile(q, k, to, page_tokens, dim, s, n, 4); break; \
		} \
		break;
	switch (n_q) {
	TILE(1)
	TILE(2)
	TILE(3)
#if ATTN_QUERIES_MAX == 6
	TILE(4)
	TILE(5)
	TILE(6)
#endif
	default: BUG("a tile of %d queries", n_q);
	}
#undef TILE
}

static void scores(const float *const *q, int n_q, const struct kn_run *runs, int n_runs, int page_tokens, int dim,
		   float *s)
{
	const float *k[KN_ATTN_BLOCK / LANES];
	int to[KN_ATTN_BLOCK / LANES], n = 0;
	for (int r = 0; r < n_runs; r++) {
		const struct kn_run *run = &runs[r];
		int i = 0;
		/* A vector may reach past the run within its page and block: those scores are masked. */
		for (; i < run->n && run->token + i + LANES <= page_tokens &&
		       run->at + i + LANES <= KN_ATTN_BLOCK && n < KN_ATTN_BLOCK / LANES;
		     i += LANES) {
			k[n] = run->k + run->token + i;
			to[n++] = run->at + i;
		}
		for (; i < run->n; i++) {
			for (int j = 0; j < n_q; j++) {
				float sum = 0;
				for (int d = 0; d < dim; d++)
					sum = __builtin_fmaf(q[j][d], run->k[(size_t)d * (size_t)page_tokens + (size_t)(run->token + i)], sum);
				s[(size_t)j * KN_ATTN_BLOCK + (size_t)(run->at + i)] = sum;
			}
		}
	}
	for (int v = 0; v < n; v += ATTN_VECTORS)
		for (int j = 0; j < n_q; j += ATTN_QUERIES)
			score_group(q + j, k + v, to + v, page_tokens, dim, s + (size_t)j * KN_ATTN_BLOCK,
				    n_q - j < ATTN_QUERIES ? n_q - j : ATTN_QUERIES,
				    n - v < ATTN_VECTORS ? n - v : ATTN_VECTORS);
}

static void softmax(float *s, int begin, int end, int from, int to, const struct kn_attn *attn, struct kn_seen *seen,
		    float *out, int dim)
{
	vf most = v_set(-INFINITY);
	int i;
	for (i = begin; i < end; i += LANES) {
		vf x = v_load(s + i) * v_set(attn->scale);
		if (attn->softcap > 0)
			x = v_set(attn->softcap) * v_tanh(x / v_set(attn->softcap));
		if (i < from || i + LANES > to)
			x = v_within(x, i, from, to, -INFINITY);
		v_store(s + i, x);
		most = v_max(most, x);
	}
	float max = v_largest(most);
	if (max > seen->max) {
		if (seen->sum > 0) {
			float shrink = expf(seen->max - max);
			seen->sum *= shrink;
			for (int d = 0; d < dim; d++)
				out[d] *= shrink;
		}
		seen->max = max;
	}
	vf sum = v_set(0);
	for (i = begin; i < end; i += LANES) {
		vf p = v_exp(v_load(s + i) - v_set(seen->max));
		v_store(s + i, p);
		sum += p;
	}
	seen->sum += v_sum(sum);
}

/* n_v vectors of out for n_q queries, over the positions of the runs; p is of the block, at is the
 * offset of these vectors in a value. */
__attribute__((always_inline)) static inline void weigh_tile(const float *p, const struct kn_run *runs, int n_runs,
							     size_t at, int dim, float *const *out, const int n_q,
							     const int n_v)
{
	vf acc[ATTN_QUERIES][ATTN_VECTORS];
	UNROLL for (int i = 0; i < n_q; i++)
		UNROLL for (int k = 0; k < n_v; k++)
			acc[i][k] = v_load(out[i] + at + k * LANES);
	for (int r = 0; r < n_runs; r++) {
		const float *v = runs[r].v + (size_t)runs[r].token * (size_t)dim + at, *weight = p + runs[r].at;
		for (int t = 0; t < runs[r].n; t++, v += dim, weight++) {
			vf value[ATTN_VECTORS];
			UNROLL for (int k = 0; k < n_v; k++)
				value[k] = v_load(v + k * LANES);
			UNROLL for (int i = 0; i < n_q; i++) {
				vf x = v_set(weight[i * KN_ATTN_BLOCK]);
				UNROLL for (int k = 0; k < n_v; k++)
					acc[i][k] = v_fma(x, value[k], acc[i][k]);
			}
		}
	}
	UNROLL for (int i = 0; i < n_q; i++)
		UNROLL for (int k = 0; k < n_v; k++)
			v_store(out[i] + at + k * LANES, acc[i][k]);
}

static void weigh_group(const float *p, const struct kn_run *runs, int n_runs, size_t at, int dim,
			float *const *out, int n_q, int n_v)
{
#define TILE(q) \
	case q: \
		switch (n_v) { \
		case 1: weigh_tile(p, runs, n_runs, at, dim, out, q, 1); break; \
		case 2: weigh_tile(p, runs, n_runs, at, dim, out, q, 2); break; \
		case 3: weigh_tile(p, runs, n_runs, at, dim, out, q, 3); break; \
		default: weigh_tile(p, runs, n_runs, at, dim, out, q, 4); break; \
		} \
		break;
	switch (n_q) {
	TILE(1)
	TILE(2)
	TILE(3)
#if ATTN_QUERIES_MAX == 6
	TILE(4)
	TILE(5)
	TILE(6)
#endif
	default: BUG("a tile of %d queries", n_q);
	}
#undef TILE
}

/* What is left of a head after its whole vectors. */
static void weigh_rest(const float *p, const struct kn_run *runs, int n_runs, int dim, float *out)
{
	for (int d = dim / LANES * LANES; d < dim; d++)
		for (int r = 0; r < n_runs; r++)
			for (int t = 0; t < runs[r].n; t++)
				out[d] = __builtin_fmaf(p[runs[r].at + t],
							runs[r].v[(size_t)(runs[r].token + t) * (size_t)dim + (size_t)d],
							out[d]);
}

/* So many positions' values go through all queries before the next ones: they stay in the first-level
 * cache. */
enum { WEIGH_POSITIONS = 64 };

static void weigh(const float *s, int n_q, const struct kn_run *runs, int n_runs, int dim, float *const *out)
{
	int whole = dim / LANES, n;
	for (int r = 0; r < n_runs; r += n) {
		int positions = runs[r].n;
		for (n = 1; r + n < n_runs && positions + runs[r + n].n <= WEIGH_POSITIONS; n++)
			positions += runs[r + n].n;
		for (int j = 0; j < n_q; j += ATTN_QUERIES) {
			const float *p = s + (size_t)j * KN_ATTN_BLOCK;
			int group = n_q - j < ATTN_QUERIES ? n_q - j : ATTN_QUERIES;
			for (int k = 0; k < whole; k += ATTN_VECTORS)
				weigh_group(p, runs + r, n, (size_t)k * LANES, dim, out + j, group,
					    whole - k < ATTN_VECTORS ? whole - k : ATTN_VECTORS);
			for (int i = 0; i < group && whole * LANES < dim; i++)
				weigh_rest(p + i * KN_ATTN_BLOCK, runs + r, n, dim, out[j + i]);
		}
	}
}
