/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of prompts without parts, for heads of 64 and 128 numbers of float16 or bfloat16: what attention_mma.h
 * computes, in its order and so with its bits, faster. All else (parts, 8 bits, other heads and pages) is computed there.
 *
 * A warp has ROWS sets of 16 queries, so that each ldmatrix of keys or values feeds 2 × ROWS mma. A thread block's warps
 * share units of 4 KiB: keys of some elements of a tile's 64 positions, values of some positions. A ring of them is
 * filled by cp.async, three units ahead of the computation and across tiles and blocks of positions. Queries, as operands,
 * and the merged values of preceding blocks of positions are in shared memory too, each lane's own at its own place: the
 * accumulators alone take half of the registers.
 *
 * Pages are never read where they may be unwritten in a way that matters: positions outside the thread block's are read
 * from its first or last page as keys, whose scores are masked, and are zero as values.
 *
 * VERSIONS
 *   1  as above.
 */
#ifndef KERNELS_CUDA_ATTENTION_PROMPTS_H
#define KERNELS_CUDA_ATTENTION_PROMPTS_H

#include "kernels/cuda/attention_mma.h"

/* WIDE: the head_dim. */
template <int WIDE, int ROWS, int WARPS> struct prompt_plan {
	static constexpr int threads = WARPS * KN_WARP;
	static constexpr int asked = QUERIES * ROWS * WARPS; /* queries per thread block */
	static constexpr int kept = 0;			     /* operands of queries in registers, as in struct plan */
	static constexpr int k_steps = WIDE / 16;
	static constexpr int slots = 4, unit = 4096;
	static constexpr int key_rows = unit / (2 * TILE);   /* elements per unit of keys */
	static constexpr int value_rows = unit / (2 * WIDE); /* positions per unit of values */
	static constexpr int key_units = WIDE / key_rows, units = key_units + TILE / value_rows; /* per tile */
	static constexpr int queries_at = slots * unit;
	static constexpr int values_at = queries_at + ROWS * k_steps * threads * 16;
	static constexpr int ends_at = values_at + ROWS * WIDE / 8 * threads * 16;
	static constexpr int all = ends_at + ROWS * threads * 4;
	static constexpr int blocks = ROWS * WIDE > 128 ? 2 : 3; /* per multiprocessor of 228 KiB and 64 Ki registers */
	static constexpr int pages = value_rows / LEAST_PAGE; /* of the values that a thread loads */
	static_assert(threads * 2 * 16 == unit && pages * WIDE == 128, "two loads a thread");
};

/* A thread block's positions, and what this thread loads next. */
template <class P> struct prompt_load {
	const int32_t *table; /* of the sequence */
	const uint8_t *keys;  /* its next keys */
	int64_t head;	      /* offset of the key head's blocks in a page's bytes */
	int from, to;	      /* positions that some query of the thread block sees */
	int page[P::pages];   /* of the next unit, looked up ahead */
};

/* A thread loads chunk t % 8 of a row, of 64 positions or elements, and the chunk 16 rows (of keys, or of values of 64
 * elements) or 64 elements (of values) further. This is the position of the first, for unit u of the tiles from `tile`
 * on. */
template <class P> __device__ static inline int unit_pos(int tile, int u, int t)
{
	int in = u % P::units;
	tile += u / P::units;
	return tile * TILE + (in < P::key_units ? t % 8 * 8 : (in - P::key_units) * P::value_rows + t / 8);
}

/* Looks up the page of unit u for start_unit, if it may start in a page of its own. Positions outside the block's are
 * taken from the nearest page that exists. */
template <class P>
__device__ static inline void find_page(const struct kn_attn_call &c, struct prompt_load<P> *l, int tile, int u, int t)
{
	int in = u % P::units, shift = c.pages.page_shift;
	if (in > 0 && in < P::key_units)
		return;
	UNROLL_FOR(int i = 0; i < (in == 0 ? 1 : P::pages); i++) {
		int index = (unit_pos<P>(tile, u, t) + 16 * i) >> shift, last = (l->to - 1) >> shift;
		index = index > last ? last : index;
		index = index < l->from >> shift ? l->from >> shift : index;
		l->page[i] = l->table[index];
	}
}

/* Starts loading unit u of the tiles from `tile` on, whose page is known. */
template <int WIDE, class P>
__device__ static inline void start_unit(const struct kn_attn_call &c, struct prompt_load<P> *l, unsigned char *ring,
					 int tile, int u, int t)
{
	const struct kn_pages &p = c.pages;
	int in = u % P::units, pos = unit_pos<P>(tile, u, t);
	int64_t page_bytes = (int64_t)p.n_layers * p.n_kv_heads * p.head_bytes;
	unsigned char *slot = ring + u % P::slots * P::unit + 16 * place_of<8>(t / 8, t % 8);
	if (in == 0)
		l->keys = c.k + l->page[0] * page_bytes + l->head +
			  ((pos & (p.page_tokens - 1)) + t / 8 * p.page_tokens) * 2;
	UNROLL_FOR(int i = 0; i < 2; i++) {
		if (in < P::key_units) {
			kn_cp_async16(slot + i * (P::unit / 2), l->keys);
			l->keys += 2 * 16 * p.page_tokens;
			continue;
		}
		int more = P::pages == 2 ? 16 * i : 0; /* positions */
		const uint8_t *at = c.v + l->page[i % P::pages] * page_bytes + l->head +
				    (((pos + more) & (p.page_tokens - 1)) * WIDE + t % 8 * 8) * 2;
		kn_cp_async16_or_zero(slot + i * (P::unit / 2), P::pages == 2 ? at : at + 128 * i,
				      pos + more >= l->from && pos + more < l->to);
	}
	kn_cp_async_commit();
}

/* Adds a unit of keys, from operand k of the queries on, to the products. */
template <int KIND, int ROWS, class P>
__device__ static inline void prompt_keys(const struct kn_u4 *asked, const unsigned char *unit, int spot, int k,
					  float (*s)[COLUMNS][4])
{
	UNROLL_FOR(int i = 0; i < P::key_rows / 16; i++) {
		uint32_t a[ROWS][4];
		UNROLL_FOR(int m = 0; m < ROWS; m++) {
			struct kn_u4 v = kn_shared_load16(&asked[(m * P::k_steps + k + i) * P::threads]);
			a[m][0] = v.x;
			a[m][1] = v.y;
			a[m][2] = v.z;
			a[m][3] = v.w;
		}
		UNROLL_FOR(int n = 0; n < COLUMNS; n += 2) {
			uint32_t b[4];
			kn_ldmatrix_x4_trans(b, unit + (spot ^ 16 * n) + i * 16 * 2 * TILE);
			UNROLL_FOR(int m = 0; m < ROWS; m++) {
				multiply<KIND>(s[m][n], a[m], b);
				multiply<KIND>(s[m][n + 1], a[m], b + 2);
			}
		}
	}
}

/* Adds a unit of values, times the weights from operand k on. */
template <int KIND, int WIDE, int ROWS, class P>
__device__ static inline void prompt_values(uint32_t (*weights)[TILE / 16][4], const unsigned char *unit, int spot, int k,
					    struct so_far<WIDE> *b)
{
	UNROLL_FOR(int i = 0; i < P::value_rows / 16; i++)
		UNROLL_FOR(int n = 0; n < WIDE / 8; n += 2) {
			uint32_t m[4];
			kn_ldmatrix_x4_trans(m, unit + (spot ^ 16 * (n % 8)) + n / 8 * (P::unit / 2) + i * 2048);
			UNROLL_FOR(int r = 0; r < ROWS; r++) {
				multiply<KIND>(b[r].value[n], weights[r][k + i], m);
				multiply<KIND>(b[r].value[n + 1], weights[r][k + i], m + 2);
			}
		}
}

__device__ static inline bool first_of_block(const struct span &s, int tile)
{
	return tile * TILE % KN_ATTN_BLOCK == 0 || tile == s.first_tile;
}

/* What a thread block computes. begin: its first query of the item. */
struct prompt_place {
	struct kn_item item;
	int kv_head, begin;
};

/* The last items first: they see most positions, and what starts last should be short. */
template <class P> __device__ static inline struct prompt_place find_place(const struct kn_attn_call &c)
{
	struct prompt_place p;
	int n = (int)(blockIdx.y * gridDim.x + blockIdx.x), y = n % (int)gridDim.y;
	p.item = c.items[(int)gridDim.x - 1 - n / (int)gridDim.y];
	p.kv_head = y / c.n_tiles;
	p.begin = y % c.n_tiles * P::asked;
	return p;
}

/* The positions [first, end) that query i of the item sees; none if there is no such query. */
__device__ static inline void seen_by_asked(const struct kn_attn_call &c, const struct kn_item &item, int i, int *first,
					    int *end)
{
	*first = *end = 0;
	if (i < item.n_rows * c.group)
		kn_seen_by(c, item.row + i / c.group, first, end);
}

/* Sets what the queries of this lane must not see to -INFINITY. */
template <int ROWS, class P>
__device__ static inline void mask(const struct kn_attn_call &c, int tile, int t, float (*s)[COLUMNS][4])
{
	struct prompt_place p = find_place<P>(c);
	UNROLL_FOR(int m = 0; m < ROWS; m++)
		UNROLL_FOR(int j = 0; j < 2; j++) {
			int first, end, i = p.begin + (t / KN_WARP * ROWS + m) * QUERIES + t % KN_WARP / 4 + 8 * j;
			seen_by_asked(c, p.item, i, &first, &end);
			first -= tile * TILE + t % 4 * 2;
			end -= tile * TILE + t % 4 * 2;
			UNROLL_FOR(int n = 0; n < COLUMNS; n++)
				UNROLL_FOR(int e = 0; e < 2; e++) {
					int pos = 8 * n + e;
					float *x = &s[m][n][2 * j + e];
					*x = pos >= first && pos < end ? *x : -INFINITY;
				}
		}
}

/* As score() and weigh() for all rows. Weights at or above 2^-126 relative to the largest, or zero, as almost all tiles
 * have, take one instruction each. fresh: no tile of the block of positions precedes. */
template <int WIDE, int ROWS, class P>
__device__ static inline void prompt_weigh(const struct kn_attn_call &c, float (*factor)[2], int tile, int t, bool masked,
					   bool fresh, float (*s)[COLUMNS][4], struct so_far<WIDE> *b)
{
	float cap = c.attn.softcap * LOG2_E, base[ROWS][2], keep[ROWS][2];
	bool tiny = false;
	UNROLL_FOR(int m = 0; m < ROWS; m++)
		UNROLL_FOR(int n = 0; n < COLUMNS; n++)
			UNROLL_FOR(int e = 0; e < 4; e++)
				s[m][n][e] *= factor[m][e / 2];
	if (cap > 0)
		UNROLL_FOR(int m = 0; m < ROWS; m++)
			UNROLL_FOR(int n = 0; n < COLUMNS; n++)
				UNROLL_FOR(int e = 0; e < 4; e++)
					s[m][n][e] = cap * tanhf(s[m][n][e]);
	if (masked)
		mask<ROWS, P>(c, tile, t, s);
	UNROLL_FOR(int m = 0; m < ROWS; m++)
		UNROLL_FOR(int j = 0; j < 2; j++) {
			float max = b[m].max[j], least = INFINITY;
			UNROLL_FOR(int n = 0; n < COLUMNS; n++) {
				max = fmaxf(max, fmaxf(s[m][n][2 * j], s[m][n][2 * j + 1]));
				least = fminf(least, fminf(s[m][n][2 * j], s[m][n][2 * j + 1]));
			}
			max = fmaxf(max, kn_shuffle_xor(max, 1));
			max = fmaxf(max, kn_shuffle_xor(max, 2));
			base[m][j] = max > -INFINITY ? max : 0.0f;
			keep[m][j] = exp2f(b[m].max[j] - base[m][j]);
			b[m].max[j] = max;
			tiny |= !(least - base[m][j] >= KN_EXP2_LEAST);
		}
	bool whole = kn_any(tiny);
	UNROLL_FOR(int m = 0; m < ROWS; m++)
		UNROLL_FOR(int n = 0; n < COLUMNS; n++)
			UNROLL_FOR(int e = 0; e < 4; e++)
				s[m][n][e] -= base[m][e / 2];
	if (whole)
		UNROLL_FOR(int m = 0; m < ROWS; m++)
			UNROLL_FOR(int n = 0; n < COLUMNS; n++)
				UNROLL_FOR(int e = 0; e < 4; e++)
					s[m][n][e] = exp2f(s[m][n][e]);
	else
		UNROLL_FOR(int m = 0; m < ROWS; m++)
			UNROLL_FOR(int n = 0; n < COLUMNS; n++)
				UNROLL_FOR(int e = 0; e < 4; e++)
					s[m][n][e] = kn_exp2_normal(s[m][n][e]);
	UNROLL_FOR(int m = 0; m < ROWS; m++)
		UNROLL_FOR(int j = 0; j < 2; j++) {
			float total = 0;
			UNROLL_FOR(int n = 0; n < COLUMNS; n++)
				UNROLL_FOR(int e = 2 * j; e < 2 * j + 2; e++)
					total += s[m][n][e];
			b[m].sum[j] = b[m].sum[j] * keep[m][j] + total;
		}
	if (fresh)
		return; /* the values are 0, and keep is 0 or 1 */
	UNROLL_FOR(int m = 0; m < ROWS; m++)
		UNROLL_FOR(int n = 0; n < WIDE / 8; n++)
			UNROLL_FOR(int e = 0; e < 4; e++)
				b[m].value[n][e] *= keep[m][e / 2];
}

/* Merges a block of positions into those before it, as merge_block; after the last one, c.out has the result. ends: the
 * maxima and sums so far, one number in each of the four lanes that have a query. */
template <int WIDE, int ROWS, class P>
__device__ static inline void prompt_merge(const struct kn_attn_call &c, struct so_far<WIDE> *b, int t, int block,
					   bool first, bool last, unsigned char *shared)
{
	struct prompt_place p = find_place<P>(c);
	struct kn_f4 *so_far = (struct kn_f4 *)(void *)(shared + P::values_at) + t;
	float *ends = (float *)(void *)(shared + P::ends_at);
	float keep[ROWS][2], take[ROWS][2], share[ROWS][2], *out[ROWS][2];
	UNROLL_FOR(int m = 0; m < ROWS; m++) {
		struct kn_u4 was = kn_shared_load16(&ends[m * P::threads + t / 4 * 4]);
		float max[2] = {-INFINITY, -INFINITY}, sum[2] = {};
		if (!first) {
			max[0] = kn_bits_float(was.x);
			sum[0] = kn_bits_float(was.y);
			max[1] = kn_bits_float(was.z);
			sum[1] = kn_bits_float(was.w);
		}
		UNROLL_FOR(int j = 0; j < 2; j++) {
			int row, head, i = p.begin + (t / KN_WARP * ROWS + m) * QUERIES + t % KN_WARP / 4 + 8 * j;
			bool there = find_query(c, p.item, p.kv_head, i, &row, &head);
			keep[m][j] = 1;
			take[m][j] = 0;
			if (there && row_sees(c, row, block))
				kn_attn_merge<true>(&max[j], &sum[j], b[m].max[j], b[m].sum[j], &keep[m][j],
						    &take[m][j]);
			share[m][j] = 1.0f / sum[j];
			out[m][j] = !there ? NULL
					   : c.out + ((int64_t)row * c.n_heads + head) * WIDE + t % 4 * 2;
			b[m].max[j] = -INFINITY;
			b[m].sum[j] = 0;
		}
		kn_barrier(); /* the other lanes have read theirs */
		ends[m * P::threads + t] = t % 4 < 2 ? (t % 2 ? sum[0] : max[0]) : (t % 2 ? sum[1] : max[1]);
	}
	UNROLL_FOR(int m = 0; m < ROWS; m++)
		UNROLL_FOR(int n = 0; n < WIDE / 8; n++) {
			struct kn_f4 *at = &so_far[(m * (WIDE / 8) + n) * P::threads], was = {};
			if (!first)
				was = *at;
			float *v = b[m].value[n];
			was.x = was.x * keep[m][0] + v[0] * take[m][0];
			was.y = was.y * keep[m][0] + v[1] * take[m][0];
			was.z = was.z * keep[m][1] + v[2] * take[m][1];
			was.w = was.w * keep[m][1] + v[3] * take[m][1];
			v[0] = v[1] = v[2] = v[3] = 0;
			if (!last) {
				*at = was;
				continue;
			}
			if (out[m][0] != NULL) {
				struct kn_f2 two = {was.x * share[m][0], was.y * share[m][0]};
				*(struct kn_f2 *)(void *)(out[m][0] + 8 * n) = two;
			}
			if (out[m][1] != NULL) {
				struct kn_f2 two = {was.z * share[m][1], was.w * share[m][1]};
				*(struct kn_f2 *)(void *)(out[m][1] + 8 * n) = two;
			}
		}
}

/* Loads a warp's queries, from query `begin` on. all_from, all_to: as in struct queries. */
template <int KIND, int WIDE, int ROWS, class P>
__device__ static inline void prompt_queries(const struct kn_attn_call &c, const struct kn_item &item, int kv_head,
					     int begin, int t, struct kn_u4 *asked, float (*factor)[2],
					     int *all_from, int *all_to)
{
	*all_from = 0;
	*all_to = INT32_MAX;
	UNROLL_FOR(int m = 0; m < ROWS; m++) {
		struct queries<P> w;
		w.rest = asked + m * P::k_steps * P::threads;
		find_queries<KIND, WIDE>(c, item, kv_head, begin + m * QUERIES, t % KN_WARP, &w);
		factor[m][0] = w.factor[0];
		factor[m][1] = w.factor[1];
		*all_from = w.all_from > *all_from ? w.all_from : *all_from;
		*all_to = w.all_to < *all_to ? w.all_to : *all_to;
	}
}

/* Waits for unit u of the tiles from `tile` on, and starts loading the unit that replaces the preceding one. */
template <int WIDE, class P>
__device__ static inline const unsigned char *prompt_unit(const struct kn_attn_call &c, struct prompt_load<P> *l,
							  unsigned char *ring, int tile, int u, int t)
{
	kn_cp_async_wait<P::slots - 2>();
	kn_barrier(); /* unit u is complete, and the preceding one is free */
	start_unit<WIDE, P>(c, l, ring, tile, u + P::slots - 1, t);
	find_page<P>(c, l, tile, u + P::slots, t);
	return ring + u % P::slots * P::unit;
}

template <int KIND, int WIDE, int ROWS, int WARPS>
__global__ void BLOCKS_AT_LEAST(WARPS *KN_WARP, (prompt_plan<WIDE, ROWS, WARPS>::blocks))
    attend_prompt(IN_PLACE struct kn_attn_call c)
{
	kn_begin();
	typedef struct prompt_plan<WIDE, ROWS, WARPS> P;
	unsigned char *ring = (unsigned char *)kn_shared();
	int t = (int)threadIdx.x, lane = t % KN_WARP;
	struct prompt_place place = find_place<P>(c);
	int end = place.begin + P::asked, n = place.item.n_rows * c.group;
	struct span s;
	end = end < n ? end : n;
	s.kv_head = place.kv_head;
	s.seq = c.row_seq[place.item.row];
	if (place.begin >= end || !find_span<false>(c, place.item, place.begin, end, &s))
		return; /* every thread of the block */
	struct prompt_load<P> l;
	l.table = c.pages.table + (int64_t)s.seq * c.pages.row;
	l.head = ((int64_t)c.pages.layer * c.pages.n_kv_heads + s.kv_head) * c.pages.head_bytes;
	l.from = s.from;
	l.to = s.to;
	UNROLL_FOR(int u = 0; u < P::slots - 1; u++) {
		find_page<P>(c, &l, s.first_tile, u, t);
		start_unit<WIDE, P>(c, &l, ring, s.first_tile, u, t);
	}
	find_page<P>(c, &l, s.first_tile, P::slots - 1, t);
	struct kn_u4 *asked = (struct kn_u4 *)(void *)(ring + P::queries_at) + t;
	float factor[ROWS][2];
	int all_from, all_to;
	prompt_queries<KIND, WIDE, ROWS, P>(c, place.item, s.kv_head, place.begin + t / KN_WARP * ROWS * QUERIES, t,
					    asked, factor, &all_from, &all_to);
	struct so_far<WIDE> b[ROWS];
	UNROLL_FOR(int m = 0; m < ROWS; m++)
		begin_block(&b[m]);
	int spot = 16 * place_of<8>(lane / 8 % 2 * 8 + lane % 8, lane / 16);
	bool first = true;
#pragma unroll 1
	for (int tile = s.first_tile; tile < s.first_tile + s.n_tiles; tile++) {
		bool last = tile + 1 == s.first_tile + s.n_tiles;
		float scores[ROWS][COLUMNS][4];
		uint32_t weights[ROWS][TILE / 16][4];
		UNROLL_FOR(int m = 0; m < ROWS; m++)
			UNROLL_FOR(int i = 0; i < COLUMNS; i++)
				UNROLL_FOR(int e = 0; e < 4; e++)
					scores[m][i][e] = 0;
		UNROLL_FOR(int u = 0; u < P::key_units; u++) {
			const unsigned char *unit = prompt_unit<WIDE, P>(c, &l, ring, tile, u, t);
			prompt_keys<KIND, ROWS, P>(asked, unit, spot, u * (P::key_rows / 16), scores);
		}
		const unsigned char *unit = prompt_unit<WIDE, P>(c, &l, ring, tile, P::key_units, t);
		prompt_weigh<WIDE, ROWS, P>(c, factor, tile, t, tile * TILE < all_from || (tile + 1) * TILE > all_to,
					    first_of_block(s, tile), scores, b);
		UNROLL_FOR(int m = 0; m < ROWS; m++)
			round_weights<KIND>(scores[m], weights[m]);
		UNROLL_FOR(int u = P::key_units; u < P::units; u++) {
			if (u > P::key_units)
				unit = prompt_unit<WIDE, P>(c, &l, ring, tile, u, t);
			prompt_values<KIND, WIDE, ROWS, P>(weights, unit, spot,
							   (u - P::key_units) * (P::value_rows / 16), b);
		}
		if ((tile + 1) * TILE % KN_ATTN_BLOCK != 0 && !last)
			continue;
		UNROLL_FOR(int m = 0; m < ROWS; m++)
			end_block(&b[m]);
		prompt_merge<WIDE, ROWS, P>(c, b, t, tile * TILE / KN_ATTN_BLOCK, first, last, ring);
		first = false;
	}
	kn_cp_async_wait<0>();
}

#endif
