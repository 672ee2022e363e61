/* SPDX-License-Identifier: Apache-2.0
 *
 * Latent rows (kernels.h: kn_kv): written to their pages, attended to, and the products of each head before and after.
 *
 * A position's row is the key and the value of all heads, so a block brings rows to shared memory once for KN_TILE
 * queries, of which neighbours are heads of one row. It goes through CHUNK positions at a time and merges their
 * weighted values into those of the chunks before (attention.h); after each block of KN_ATTN_BLOCK positions it merges
 * that into those before or writes it as a part, like the other kernels. All of it in float32, whatever the type of the
 * pages.
 *
 * The products of heads are those of matvec.cu for a matrix of each head, as one launch for up to KN_FEW_ROWS rows at a
 * time: a head's matrix is small, and the second-level cache has it for further rows. Rows are converted from where
 * they lie and results stored where they belong.
 *
 * VERSIONS
 *  1  this. Counted for 16 heads and rows of 576: 16 positions of 8 queries are 0.15 million multiply-adds, 1152 cycles
 *     of a multiprocessor's lanes, beside some 1700 of shared memory's loads. 64 decodes at 1000 positions are then some
 *     60 us a layer, where their 74 MB of float16 pages would take 20; a prompt of 2048 takes 2 ms a layer. Tensor cores
 *     would bring both to the memory's time. On an H100, deepseek-v2-lite (27 layers): 6.6, 11.3 and 21.9 ms for 1, 8
 *     and 64 decodes at 1000 positions, 274 ms for a prompt of 2048, which other models of this size take 30 for.
 */
#include "kernels/cuda/attention.h"
#include "kernels/cuda/matvec.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/rows.h"

#include <string.h>

enum {
	WRITE_THREADS = 128,
	WRITE_WARPS = WRITE_THREADS / KN_WARP,
	WRITE_HEADS = 4, /* that a warp turns */
	THREADS = 256,
	WARPS = THREADS / KN_WARP,
	CHUNK = 16,  /* positions */
	PAD = 4,     /* numbers after each row in shared memory, so that neighbours' are in other banks */
	AT_ONCE = 4, /* queries of a lane */
	F32_OUTS = THREADS / KN_WARP,
#ifdef KN_EMULATED
	SCRATCH = 64 << 10, /* so that small tests have several pieces */
#else
	SCRATCH = 64 << 20, /* upper bound of the bytes for converted rows */
#endif
};

/* ---- writing ---- */

struct write_call {
	struct turn turn;
	struct kn_pages pages;
	struct row_call norm; /* of the rows' first elements, which are contiguous only within a row */
	int type, half;       /* half: positions of a page on each side */
	const int32_t *row_pos, *row_seq;
	const float *q;
	float *q_latent;
	uint8_t *k, *v;
	int n_rows, n_heads, q_width,
	    n_tasks; /* n_tasks: of a row: one for each WRITE_HEADS heads, the last for its key */
};

/* The last elements of some heads' queries, turned. */
__device__ static inline void write_queries(const struct write_call &c, int row, int first, int lane)
{
	int width = c.pages.head_dim, latent = c.norm.width, turned = width - latent, n_rot = c.turn.n_rot,
	    half = n_rot / 2;
	const float *turns = c.turn.turns + (int64_t)row * n_rot;
	for (int head = first; head < first + WRITE_HEADS && head < c.n_heads; head++) {
		int64_t at = (int64_t)row * c.n_heads + head;
		const float *from = c.q + (at + 1) * c.q_width - turned;
		float *to = c.q_latent + at * width + latent;
		for (int i = lane; i < half; i += KN_WARP) {
			int a = c.turn.halves ? i : 2 * i, b = c.turn.halves ? i + half : a + 1;
			float x = from[a], y = from[b];
			turn_pair(&x, &y, turns[2 * i], turns[2 * i + 1], 1.0f);
			to[a] = x;
			to[b] = y;
		}
		for (int i = n_rot + lane; i < turned; i += KN_WARP)
			to[i] = from[i];
	}
}

__device__ static inline void write_key(const struct write_call &c, int row, int lane)
{
	int width = c.pages.head_dim, in_page = kn_pos_in_page(c.pages, c.row_pos[row]), token = in_page % c.half;
	uint8_t *side = in_page < c.half ? c.k : c.v;
	uint8_t *block = side + kn_block_at(c.pages, c.row_seq[row], c.row_pos[row], 0);
	float *x = c.norm.y + (int64_t)row * width;
	norm_row<true>(c.norm, (int64_t)row * width, lane, NULL);
	rotate(c.turn, c.turn.turns + (int64_t)row * c.turn.n_rot, x + c.norm.width, 1, width - c.norm.width, 1.0f,
	       lane);
	kn_warp_barrier(); /* other lanes normed and turned what is written below */
	put(c.type, block, c.pages.scales_at + 4 * token, x, width, token * width, 1, lane);
}

__global__ void latent_write(struct write_call c)
{
	kn_begin();
	int i = (int)blockIdx.x * WRITE_WARPS + (int)threadIdx.x / KN_WARP, lane = (int)threadIdx.x % KN_WARP;
	int row = i / c.n_tasks, task = i % c.n_tasks;
	if (row >= c.n_rows)
		return; /* the whole warp */
	if (task + 1 < c.n_tasks)
		write_queries(c, row, task * WRITE_HEADS, lane);
	else
		write_key(c, row, lane);
}

int kn_cuda_latent_write(struct kn_backend *b, const struct kn_rope *rope, const float *gain, float eps, const float *q,
			 int n_heads, int q_width, float *row, float *q_latent, const struct kn_kv *kv, int layer)
{
	struct write_call c = {}; /* padding must be zero in a command */
	if (kn_cuda_turns(b, rope, &c.turn) != 0)
		return SL_EIO;
	c.pages = kn_pages_of(b, kv, layer);
	c.norm.x = c.norm.y = row;
	c.norm.gain = gain;
	c.norm.eps = eps;
	c.norm.width = kv->latent;
	c.norm.wide = kv->latent % 4 == 0 && kv->head_dim % 4 == 0 && ((uintptr_t)row | (uintptr_t)gain) % 16 == 0;
	c.type = kv->type;
	c.half = kv->page_tokens / 2;
	c.row_pos = b->pos;
	c.row_seq = b->seq;
	c.q = q;
	c.q_latent = q_latent;
	c.k = (uint8_t *)kv->k;
	c.v = (uint8_t *)kv->v;
	c.n_rows = b->step->n_rows;
	c.n_heads = n_heads;
	c.q_width = q_width;
	c.n_tasks = (n_heads + WRITE_HEADS - 1) / WRITE_HEADS + 1;
	int64_t warps = (int64_t)c.n_rows * c.n_tasks;
	return KN_LAUNCH(b->dev, latent_write, (unsigned)((warps + WRITE_WARPS - 1) / WRITE_WARPS), WRITE_THREADS, 0,
			 c);
}

/* ---- attention ---- */

/* A block's queries: query i of an item is its row i / n_heads and head i % n_heads. */
struct queries {
	int n, seq, from, to; /* from, to: of the positions that one of them sees */
};

struct shared {
	float *q, *row; /* [KN_TILE][stride], [CHUNK][stride] */
	float *part;    /* [WARPS][KN_TILE][CHUNK] */
	float *weight;  /* [KN_TILE][CHUNK] */
	/* [KN_TILE]: the maximum and the sum in a block of positions, and over all of them; factors of what was before,
	 * and of a block's values */
	float *max, *sum, *max_all, *sum_all, *keep, *take;
	int *first, *end; /* [KN_TILE]: the positions that a query sees */
	int stride;
};

enum { SINGLES = 8 }; /* arrays of KN_TILE numbers */

__device__ static inline struct shared share(int width)
{
	struct shared s;
	s.stride = (width + 3) / 4 * 4 + PAD;
	s.q = (float *)kn_shared();
	s.row = s.q + KN_TILE * s.stride;
	s.part = s.row + CHUNK * s.stride;
	s.weight = s.part + WARPS * KN_TILE * CHUNK;
	s.max = s.weight + KN_TILE * CHUNK;
	s.sum = s.max + KN_TILE;
	s.max_all = s.sum + KN_TILE;
	s.sum_all = s.max_all + KN_TILE;
	s.keep = s.sum_all + KN_TILE;
	s.take = s.keep + KN_TILE;
	s.first = (int *)(s.take + KN_TILE);
	s.end = s.first + KN_TILE;
	return s;
}

static size_t shared_bytes(int width)
{
	size_t stride = (size_t)(width + 3) / 4 * 4 + PAD;
	return sizeof(float) *
	       ((KN_TILE + CHUNK) * stride + (size_t)(WARPS + 1) * KN_TILE * CHUNK + (size_t)SINGLES * KN_TILE);
}

__device__ static inline int row_of(const struct kn_attn_call &c, const struct kn_item &item, int j)
{
	return item.row + ((int)blockIdx.y * KN_TILE + j) / c.n_heads;
}

__device__ static inline int head_of(const struct kn_attn_call &c, int j)
{
	return ((int)blockIdx.y * KN_TILE + j) % c.n_heads;
}

/* Of the whole block; its queries are in shared memory afterwards. */
__device__ static inline struct queries find_queries(const struct kn_attn_call &c, const struct kn_item &item,
						     const struct shared &s)
{
	int n = item.n_rows * c.n_heads - (int)blockIdx.y * KN_TILE, t = (int)threadIdx.x, first = 0, end = 0;
	struct queries all = {n < KN_TILE ? n : KN_TILE, c.row_seq[item.row], INT32_MAX, 0};
	if (t < all.n)
		kn_seen_by(c, row_of(c, item, t), &first, &end);
	if (t < KN_TILE) {
		s.first[t] = first;
		s.end[t] = end;
		s.max_all[t] = -INFINITY;
		s.sum_all[t] = 0;
	}
	for (int j = 0; j < all.n; j++) {
		kn_seen_by(c, row_of(c, item, j), &first, &end);
		all.from = first < all.from ? first : all.from;
		all.to = end > all.to ? end : all.to;
	}
	for (int d = t; d < KN_TILE * s.stride; d += THREADS) {
		int j = d / s.stride, e = d % s.stride;
		const float *q =
		    c.q + (int64_t)row_of(c, item, j) * c.attn.q_row + (int64_t)head_of(c, j) * c.latent_row;
		s.q[d] = j < all.n && e < c.latent_row ? q[e] : 0.0f;
	}
	return all;
}

/* Element i of a row in a page, without its scale. */
__device__ static inline float latent_number(int type, const uint8_t *at, int i)
{
	switch (type) {
	case KN_F32: return ((const float *)(const void *)at)[i];
	case KN_F16: return kn_f16_float(kn_load<uint16_t>(at + 2 * i));
	case KN_BF16: return kn_bf16_float(kn_load<uint16_t>(at + 2 * i));
	case KN_KV_Q8: return (float)(int8_t)at[i];
	default: return kn_e4m3_float(at[i]);
	}
}

/* Eight numbers of a row of 16-bit elements, from 16 aligned bytes. */
__device__ static inline void latent_eight(int type, const uint8_t *at, float *to)
{
	struct kn_u4 v = kn_load_again(at);
	UNROLL_FOR(int k = 0; k < 4; k++) {
		uint32_t two = kn_word(v, k);
		to[2 * k] = type == KN_F16 ? kn_f16_float((uint16_t)two) : kn_bf16_float((uint16_t)two);
		to[2 * k + 1] =
		    type == KN_F16 ? kn_f16_float((uint16_t)(two >> 16)) : kn_bf16_float((uint16_t)(two >> 16));
	}
}

/* The rows of the chunk's positions that a query sees; the others become zeros. A warp has every WARPS-th. */
__device__ static inline void bring_rows(const struct kn_attn_call &c, const struct queries &all,
					 const struct shared &s, int begin, int t)
{
	int width = c.latent_row, bytes = c.type == KN_F32 ? 4 : c.type == KN_F16 || c.type == KN_BF16 ? 2 : 1;
	int half = c.pages.page_tokens / 2, lane = t % KN_WARP;
	for (int i = t / KN_WARP; i < CHUNK; i += WARPS) {
		int p = begin + i;
		bool there = p >= all.from && p < all.to;
		float *to = s.row + i * s.stride, scale = 1;
		const uint8_t *at = NULL;
		if (there) {
			int in_page = kn_pos_in_page(c.pages, p), token = in_page % half;
			const uint8_t *block = (in_page < half ? c.k : c.v) + kn_block_at(c.pages, all.seq, p, 0);
			at = block + (int64_t)token * width * bytes;
			if (kn_has_scales(c.type))
				scale = kn_load<float>(block + c.pages.scales_at + 4 * token);
		}
		if (there && bytes == 2 && c.wide) {
			for (int d = 8 * lane; d < width; d += 8 * KN_WARP)
				latent_eight(c.type, at + 2 * d, to + d);
			continue;
		}
#pragma unroll 4
		for (int d = lane; d < s.stride; d += KN_WARP)
			to[d] = there && d < width ? latent_number(c.type, at, d) * scale : 0.0f;
	}
}

/* Each warp's share of the products, every WARPS-th four elements: a lane has a position and AT_ONCE queries. */
__device__ static inline void multiply_chunk(const struct shared &s, int width, int t)
{
	int warp = t / KN_WARP, p = t % CHUNK, first = t % KN_WARP / CHUNK * AT_ONCE;
	float dot[AT_ONCE] = {}, x[4], q[4];
#pragma unroll 2
	for (int d = 4 * warp; d < width; d += 4 * WARPS) {
		kn_take4(s.row + p * s.stride + d, x);
		UNROLL_FOR(int j = 0; j < AT_ONCE; j++) {
			kn_take4(s.q + (first + j) * s.stride + d, q);
			UNROLL_FOR(int e = 0; e < 4; e++)
				dot[j] = kn_fma(q[e], x[e], dot[j]);
		}
	}
	UNROLL_FOR(int j = 0; j < AT_ONCE; j++)
		s.part[(warp * KN_TILE + first + j) * CHUNK + p] = dot[j];
}

/* Weights relative to the new maximum, by CHUNK lanes for each query; max and sum are of the block of positions so far.
 */
__device__ static inline void weigh(const struct kn_attn_call &c, const struct shared &s, int begin, bool anew, int t)
{
	int j = t / CHUNK, i = t % CHUNK;
	float x = 0;
	UNROLL_FOR(int k = 0; k < WARPS; k++)
		x += s.part[(k * KN_TILE + j) * CHUNK + i];
	x *= c.attn.scale;
	if (c.attn.softcap > 0)
		x = c.attn.softcap * tanhf(x / c.attn.softcap);
	bool sees = begin + i >= s.first[j] && begin + i < s.end[j];
	x = sees ? x : -INFINITY;
	float was = anew ? -INFINITY : s.max[j], sum = anew ? 0.0f : s.sum[j];
	float max = fmaxf(was, kn_tree<kn_max_tree<CHUNK>>(x)), base = max > -INFINITY ? max : 0.0f;
	float weight = sees ? expf(x - base) : 0.0f, keep = expf(was - base),
	      all_weights = kn_tree<kn_sum_tree<CHUNK>>(weight);
	s.weight[j * CHUNK + i] = weight;
	kn_warp_barrier(); /* all lanes have read what the first of them overwrites */
	if (i == 0) {
		s.keep[j] = keep;
		s.max[j] = max;
		s.sum[j] = sum * keep + all_weights;
	}
}

/* Each query's values of this thread's columns. A position without weight is skipped: what is there may be none of the
 * query's. */
template <int COLUMNS>
__device__ static inline void collect(const struct shared &s, int n_values, int t, float (*value)[COLUMNS])
{
	UNROLL_FOR(int j = 0; j < KN_TILE; j++)
		UNROLL_FOR(int k = 0; k < COLUMNS; k++)
			value[j][k] *= s.keep[j];
#pragma unroll 1
	for (int i = 0; i < CHUNK; i += 4) {
		float x[4][COLUMNS], weight[4];
		UNROLL_FOR(int e = 0; e < 4; e++)
			UNROLL_FOR(int k = 0; k < COLUMNS; k++) {
				int d = t + k * THREADS;
				x[e][k] = d < n_values ? s.row[(i + e) * s.stride + d] : 0.0f;
			}
		UNROLL_FOR(int j = 0; j < KN_TILE; j++) {
			kn_take4(s.weight + j * CHUNK + i, weight);
			UNROLL_FOR(int e = 0; e < 4; e++)
				UNROLL_FOR(int k = 0; k < COLUMNS; k++)
					value[j][k] =
					    weight[e] != 0 ? kn_fma(weight[e], x[e][k], value[j][k]) : value[j][k];
		}
	}
}

/* The values of a block of positions, for the queries that see it: a part, or merged into those before. */
template <int COLUMNS, bool PARTS>
__device__ static inline void end_block(const struct kn_attn_call &c, const struct kn_item &item,
					const struct queries &all, const struct shared &s, int block, int t,
					const float (*value)[COLUMNS], float (*total)[COLUMNS])
{
	kn_barrier(); /* factors of the last chunk are no longer needed */
	if (!PARTS && t < KN_TILE)
		kn_attn_merge<false>(&s.max_all[t], &s.sum_all[t], s.max[t], s.sum[t], &s.keep[t], &s.take[t]);
	kn_barrier();
	UNROLL_FOR(int j = 0; j < KN_TILE; j++) {
		if (j >= all.n || !kn_attn_sees(s.first[j], s.end[j], block))
			continue;
		if (!PARTS) {
			UNROLL_FOR(int k = 0; k < COLUMNS; k++)
				total[j][k] = total[j][k] * s.keep[j] + value[j][k] * s.take[j];
			continue;
		}
		float *at = kn_attn_part(c, row_of(c, item, j), head_of(c, j), block);
		if (t == 0) {
			at[0] = s.max[j];
			at[1] = s.sum[j];
		}
		UNROLL_FOR(int k = 0; k < COLUMNS; k++)
			if (t + k * THREADS < c.pages.head_dim)
				at[KN_PART_VALUES + t + k * THREADS] = value[j][k];
	}
}

template <int COLUMNS, bool PARTS>
__global__ void __launch_bounds__(THREADS, COLUMNS > 2 ? 1 : 2) attend_latent(struct kn_attn_call c)
{
	kn_begin();
	int t = (int)threadIdx.x, n_values = c.pages.head_dim;
	struct shared s = share(c.latent_row);
	struct kn_item item = c.items[blockIdx.x];
	if (item.n_rows * c.n_heads <= (int)blockIdx.y * KN_TILE)
		return; /* every thread of the block */
	struct queries all = find_queries(c, item, s);
	float total[KN_TILE][COLUMNS] = {}, value[KN_TILE][COLUMNS];
	int first = all.from / KN_ATTN_BLOCK, last = (all.to - 1) / KN_ATTN_BLOCK;
	if (PARTS) {
		int mine = (int)blockIdx.z;
		if (mine < first || mine > last)
			return; /* every thread of the block */
		first = last = mine;
	}
#pragma unroll 1
	for (int block = first; block <= last; block++) {
		int from = block * KN_ATTN_BLOCK, to = from + KN_ATTN_BLOCK < all.to ? from + KN_ATTN_BLOCK : all.to;
		int begin = all.from > from ? all.from / CHUNK * CHUNK : from;
		bool anew = true;
		UNROLL_FOR(int j = 0; j < KN_TILE; j++)
			UNROLL_FOR(int k = 0; k < COLUMNS; k++)
				value[j][k] = 0;
#pragma unroll 1
		for (; begin < to; begin += CHUNK, anew = false) {
			kn_barrier(); /* the last rows and weights are no longer needed */
			bring_rows(c, all, s, begin, t);
			kn_barrier();
			multiply_chunk(s, c.latent_row, t);
			kn_barrier();
			if (t < KN_TILE * CHUNK) /* whole warps */
				weigh(c, s, begin, anew, t);
			kn_barrier();
			collect<COLUMNS>(s, n_values, t, value);
		}
		end_block<COLUMNS, PARTS>(c, item, all, s, block, t, value, total);
	}
	UNROLL_FOR(int j = 0; j < KN_TILE; j++)
		UNROLL_FOR(int k = 0; k < COLUMNS; k++) {
			int d = t + k * THREADS;
			int64_t at = (int64_t)row_of(c, item, j) * c.n_heads + head_of(c, j);
			if (!PARTS && j < all.n && d < n_values)
				c.out[at * n_values + d] = total[j][k] / s.sum_all[j];
		}
}

int kn_attn_latent(struct kn_backend *b, const struct kn_attn_call *c, int n_items)
{
	size_t shared = shared_bytes(c->latent_row);
	dim3 grid((unsigned)n_items, (unsigned)c->n_tiles, c->n_parts > 0 ? (unsigned)c->n_parts : 1);
	bool parts = c->n_parts > 0, narrow = c->pages.head_dim <= 2 * THREADS;
	if (shared > (size_t)dev_shared_most(b->dev) || c->pages.head_dim > 4 * THREADS)
		return SL_EUNSUPPORTED;
	auto kernel = narrow ? (parts ? attend_latent<2, true> : attend_latent<2, false>)
			     : (parts ? attend_latent<4, true> : attend_latent<4, false>);
	return kn_launch(b->dev, "attend_latent", kernel, grid, THREADS, shared, *c);
}

/* ---- products of heads ---- */

void kn_cuda_head_tables_end(struct kn_backend *b)
{
	for (int i = 0; i < b->n_head_tables; i++) {
		b->host->free(b->head_tables[i].host);
		if (b->head_tables[i].at != NULL)
			dev_free(b->dev, b->head_tables[i].at);
	}
	b->host->free(b->head_tables);
	b->head_tables = NULL;
	b->n_head_tables = b->max_head_tables = 0;
}

static struct kn_head_weight head_weight(const struct kn_weight *w)
{
	return {(const uint8_t *)w->data, w->type == KN_CUDA_FP8 ? kn_cuda_fp8_scales(w) : NULL};
}

/* Whether the table is still that of these matrices. */
static bool is_of(const struct kn_head_table *t, const struct kn_weight *w, int n)
{
	bool same = t->of == w && t->n == n && t->at != NULL;
	for (int i = 0; i < n && same; i++)
		same = t->host[i].data == w[i].data;
	return same;
}

/* A table's place: of these matrices before, or a new one. NULL: no memory. */
static struct kn_head_table *place_for(struct kn_backend *b, const struct kn_weight *w)
{
	for (int i = 0; i < b->n_head_tables; i++)
		if (b->head_tables[i].of == w)
			return &b->head_tables[i];
	if (b->n_head_tables == b->max_head_tables) {
		int max = 2 * b->max_head_tables + 64;
		struct kn_head_table *grown = (struct kn_head_table *)b->host->zalloc((size_t)max * sizeof *grown);
		if (grown == NULL)
			return NULL;
		if (b->n_head_tables > 0)
			memcpy(grown, b->head_tables, (size_t)b->n_head_tables * sizeof *grown);
		b->host->free(b->head_tables);
		b->head_tables = grown;
		b->max_head_tables = max;
	}
	return &b->head_tables[b->n_head_tables++];
}

/* Brings a table to the device, which ends the recording of this step: it is made in the first step with it only. */
static int make_table(struct kn_backend *b, const struct kn_weight *w, int n, struct kn_head_table *t)
{
	size_t bytes = (size_t)n * sizeof *t->host;
	void *at = t->at;
	if (t->n < n) {
		if (dev_sync(b->dev) != 0)
			return SL_EIO;
		if (t->at != NULL)
			dev_free(b->dev, t->at);
		b->host->free(t->host);
		*t = {};
		t->host = (struct kn_head_weight *)b->host->zalloc(bytes);
		if (t->host == NULL || dev_alloc(b->dev, bytes, &at) != 0)
			return dev_fail(b->dev, "a step", "no memory for a table of heads");
	}
	t->of = w;
	t->n = n;
	t->at = (struct kn_head_weight *)at;
	for (int i = 0; i < n; i++)
		t->host[i] = head_weight(&w[i]);
	return dev_copy_in(b->dev, t->at, t->host, bytes);
}

/* Layers come in the same order in each step. */
static int table_of(struct kn_backend *b, const struct kn_weight *w, int n, const struct kn_head_weight **out)
{
	struct kn_head_table *t = NULL;
	int rc = 0;
	for (int i = 0; i < b->n_head_tables && t == NULL; i++) {
		int at = (b->next_head_table + i) % b->n_head_tables;
		if (is_of(&b->head_tables[at], w, n))
			t = &b->head_tables[at];
	}
	if (t == NULL) {
		t = place_for(b, w);
		rc = t == NULL ? dev_fail(b->dev, "a step", "no memory for tables of heads") : make_table(b, w, n, t);
	}
	if (rc != 0)
		return rc;
	b->next_head_table = (int)(t - b->head_tables) + 1;
	*out = t->at;
	return 0;
}

struct heads_product {
	const struct kn_head_weight *w;
	const float *x;
	float *y;
	struct kn_into to; /* tiles of a head's rows, then the next head's */
	int64_t x_row, y_row;
	int n_heads, x_width, y_width, n_out, n_in, n_tiles; /* n_tiles: of a head */
};

/* Block (row, head) converts a row's part of a head, as `convert` does (matmul.cu). */
__global__ void __launch_bounds__(KN_ROW_THREADS) convert_heads(struct heads_product c)
{
	kn_begin();
	int row = (int)blockIdx.x, head = (int)blockIdx.y, exponent = 0;
	int to = head * c.n_tiles * KN_ROWS + row;
	const float *x = c.x + row * c.x_row + (int64_t)head * c.x_width;
	if (!c.to.bf16)
		exponent = kn_row_exponent(x, c.n_in, true);
	if (threadIdx.x == 0)
		c.to.inverse[to] = kn_power(-exponent);
	for (int k = 4 * (int)threadIdx.x; k < c.to.n_slabs * KN_SLAB; k += 4 * KN_ROW_THREADS) { /* whole warps */
		float v[4];
		kn_load4(x, k, c.n_in, true, v);
		kn_put_units(c.to, to, k, {v[0], v[1], v[2], v[3]}, kn_power(exponent));
	}
}

/* Block (tile of outputs, NT tiles of rows, head). */
template <int TYPE, int NT>
__global__ void __launch_bounds__(MATVEC_THREADS, NT > 1 ? 1 : 2) multiply_heads(struct heads_product c)
{
	kn_begin();
	int head = (int)blockIdx.z, tile = (int)blockIdx.y * NT, first = tile * KN_ROWS, at = head * c.n_tiles + tile;
	struct kn_product p = {};
	struct kn_head_weight w = c.w[head];
	p.w = w.data;
	p.w_scale = w.scale;
	p.x = {c.to.units + (int64_t)at * c.to.n_slabs * KN_PIECE,
	       c.to.sums + kn_sum_at((int64_t)at * c.to.n_slabs, 0, 0), c.to.inverse + at * KN_ROWS,
	       c.to.n_rows - first, c.to.n_slabs};
	p.n_out = c.n_out;
	p.n_chunks = c.to.n_slabs / KN_SLABS;
	p.y = c.y + first * c.y_row + (int64_t)head * c.y_width;
	multiply<TYPE, NT>(p, c.y_row);
}

/* Block (outputs, row, head): a warp has an output, whose sum is that of matmul.cu's F32. */
__global__ void multiply_heads_f32(struct heads_product c)
{
	kn_begin();
	int lane = (int)threadIdx.x % KN_WARP, out = (int)blockIdx.x * F32_OUTS + (int)threadIdx.x / KN_WARP;
	int head = (int)blockIdx.z;
	if (out >= c.n_out)
		return; /* the whole warp */
	const float *w = (const float *)(const void *)c.w[head].data + (int64_t)out * c.n_in;
	const float *x = c.x + blockIdx.y * c.x_row + (int64_t)head * c.x_width;
	float sum = 0, v[4], xv[4];
	for (int k = 4 * lane; k < c.n_in; k += 4 * KN_WARP) {
		kn_load4(w, k, c.n_in, true, v);
		kn_load4(x, k, c.n_in, true, xv);
		UNROLL_FOR(int i = 0; i < 4; i++)
			sum = k + i < c.n_in ? kn_fma(v[i], xv[i], sum) : sum;
	}
	sum = kn_warp_sum(sum);
	if (lane == 0)
		c.y[blockIdx.y * c.y_row + (int64_t)head * c.y_width + out] = sum;
}

/* Bytes of n_rows converted rows of each head. Blocks of two tiles load the sums of a tile that the last may lack. */
static size_t converted_bytes(const struct heads_product &c, int n_rows)
{
	size_t tiles = (size_t)(n_rows + KN_ROWS - 1) / KN_ROWS * (size_t)c.n_heads, slabs = (size_t)c.to.n_slabs;
	return tiles * (slabs * (KN_PIECE + KN_SUMS) + KN_ROWS * sizeof(float)) + slabs * KN_SUMS;
}

/* n_rows rows, whose conversions fit. */
static int packed_heads(struct kn_backend *b, int type, struct heads_product c, int n_rows)
{
	size_t tiles, units, sums;
	c.n_tiles = (n_rows + KN_ROWS - 1) / KN_ROWS;
	tiles = (size_t)c.n_tiles * (size_t)c.n_heads;
	units = tiles * (size_t)c.to.n_slabs * KN_PIECE;
	sums = tiles * (size_t)c.to.n_slabs * KN_SUMS;
	if (kn_cuda_room(b, &b->scratch, converted_bytes(c, n_rows)) != 0)
		return SL_EIO;
	c.to.units = (uint8_t *)b->scratch.at;
	c.to.sums = (float *)(c.to.units + units);
	c.to.inverse = (float *)(c.to.units + units + sums);
	c.to.n_rows = n_rows;
	c.to.n_all = c.n_tiles * KN_ROWS;
	int rc = KN_LAUNCH(b->dev, convert_heads, dim3((unsigned)n_rows, (unsigned)c.n_heads), KN_ROW_THREADS,
			   KN_ROW_THREADS / KN_WARP * sizeof(float), c);
	unsigned outs = (unsigned)kn_cuda_tiles(c.n_out), heads = (unsigned)c.n_heads;
	return rc != 0 ? rc : kn_of_packed(type, (int)SL_EUNSUPPORTED, [&](auto t) {
		constexpr int of = decltype(t)::type;
		if (c.n_tiles == 1)
			return KN_LAUNCH(b->dev, (multiply_heads<of, 1>), dim3(outs, 1, heads), MATVEC_THREADS,
					 matvec_shared<1>(), c);
		return KN_LAUNCH(b->dev, (multiply_heads<of, 2>), dim3(outs, (unsigned)(c.n_tiles + 1) / 2, heads),
				 MATVEC_THREADS, matvec_shared<2>(), c);
	});
}

int kn_cuda_matmul_heads(struct kn_backend *b, const struct kn_weight *w, int n_heads, const float *x, int x_width,
			 int n_rows, float *work, float *y, int y_width)
{
	struct heads_product c = {}; /* padding must be zero in a command */
	int rc = table_of(b, w, n_heads, &c.w), most;
	(void)work;
	n_rows = kn_cuda_rows(b, n_rows);
	c.x = x;
	c.y = y;
	c.x_row = (int64_t)n_heads * x_width;
	c.y_row = (int64_t)n_heads * y_width;
	c.n_heads = n_heads;
	c.x_width = x_width;
	c.y_width = y_width;
	c.n_out = w[0].n_out;
	c.n_in = w[0].n_in;
	if (rc == 0 && w[0].type == KN_F32)
		return KN_LAUNCH(
		    b->dev, multiply_heads_f32,
		    dim3((unsigned)((c.n_out + F32_OUTS - 1) / F32_OUTS), (unsigned)n_rows, (unsigned)n_heads), THREADS,
		    0, c);
	c.to.n_slabs = (int)kn_cuda_chunks(c.n_in) * KN_SLABS;
	c.to.bf16 = w[0].type == KN_BF16;
	for (most = n_rows; most > KN_FEW_ROWS && converted_bytes(c, most) > SCRATCH;)
		most = (most / 2 + KN_FEW_ROWS - 1) / KN_FEW_ROWS * KN_FEW_ROWS;
	for (int i = 0, n; i < n_rows && rc == 0; i += n) {
		n = most < n_rows - i ? most : n_rows - i;
		c.x = x + i * c.x_row;
		c.y = y + i * c.y_row;
		rc = packed_heads(b, w[0].type, c, n);
	}
	return rc;
}
