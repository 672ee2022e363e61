/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of prompts without parts, for heads of 64 and 128 numbers of float16 or bfloat16: what attention_mma.h
 * computes, in its order and so with its bits, faster. All else (parts, 8 bits, other heads and pages) is computed
 * there, and by warp groups where there are any (attention_groups.h).
 *
 * A warp has ROWS sets of 16 queries, so that each ldmatrix of keys or values feeds 2 × ROWS mma. A thread block's
 * warps share units of 8 KiB: keys of some elements of a tile's 64 positions, values of some positions. Two slots are
 * filled by cp.async, a unit ahead of the computation and across tiles and blocks of positions. Queries, as operands,
 * and the merged values of preceding blocks of positions are in shared memory too, each lane's own at its own place:
 * the accumulators of two sets alone take half of the registers.
 *
 * What nobody may have written never matters: for positions outside the thread block's, keys are read from its first or
 * last page and their scores masked, and values are zero.
 *
 * VERSIONS (4096 positions, 32 heads of 128 and 8 key heads of float16, on an H200: attention_mma.h takes 2.51 ms,
 * 2,460 instructions for a warp's tile of 64 positions and 16 queries)
 *   1  units of 4 KiB in four slots: 0.66 ms with two sets (1,620 instructions for 32 queries, 30 of them spilled
 *      registers), 0.63 with one; matrix units busy for a third of the time.
 *   2  this one: units of 8 KiB, half as many barriers; addresses are computed among the products; a weight takes
 *     one instruction where none of a tile is below 2^-126. No spills.
 */
#ifndef KERNELS_CUDA_ATTENTION_PROMPTS_H
#define KERNELS_CUDA_ATTENTION_PROMPTS_H

#include "kernels/cuda/attention_mma.h"

/* As many blocks of one set as share a multiprocessor's memory, 228 KiB where it is not less. */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1200)
#define PROMPT_BLOCKS 2
#else
#define PROMPT_BLOCKS 3
#endif

/* WIDE: the head_dim. */
template <int WIDE, int ROWS> struct prompt_plan {
	static constexpr int threads = PROMPT_WARPS * KN_WARP;
	static constexpr int asked = QUERIES * ROWS * PROMPT_WARPS; /* queries per thread block */
	static constexpr int kept = 0; /* operands of queries in registers, as in struct plan */
	static constexpr int k_steps = WIDE / 16;
	static constexpr int slots = 2, unit = 8192;
	static constexpr int key_rows = unit / (2 * TILE);   /* elements per unit of keys */
	static constexpr int value_rows = unit / (2 * WIDE); /* positions per unit of values */
	static constexpr int key_units = WIDE / key_rows, units = key_units + TILE / value_rows; /* per tile */
	static constexpr int queries_at = slots * unit;
	static constexpr int values_at = queries_at + ROWS * k_steps * threads * 16;
	static constexpr int ends_at = values_at + ROWS * WIDE / 8 * threads * 16;
	static constexpr int all = ends_at + ROWS * threads * 4;
	static constexpr int blocks = ROWS * WIDE > 128 ? 2 : PROMPT_BLOCKS; /* per multiprocessor */
	static constexpr int pages = value_rows / LEAST_PAGE;                /* of the values that a thread loads */
	static_assert(threads * 4 * 16 == unit && units % slots == 0, "four loads a thread");
};

/* A thread block's positions, and what this thread loads next. */
template <class P> struct prompt_load {
	int row, head;      /* of the table, the sequence's; the key head's block in a page */
	int from, to;       /* positions that some query of the thread block sees */
	int page[P::pages]; /* of the next unit, looked up ahead */
};

/* Offset of a page's block. There are fewer than 2^31 of them, since each has 2 KiB at least. */
__device__ static inline int64_t block_of(const struct kn_pages &p, int page, int head)
{
	return (int64_t)(page * (p.n_layers * p.n_kv_heads) + head) * (int)p.head_bytes;
}

/* Of keys, a thread loads chunk t % 8 (8 positions) of the unit's elements t / 8, t / 8 + 16…; of values, chunk t % 8 of
 * each 64 elements of the positions t / 8, t / 8 + 16…. This is its first position in unit u of the tiles from `tile` on.
 */
template <class P> __device__ static inline int unit_pos(int tile, int u, int t)
{
	int in = u % P::units;
	tile += u / P::units;
	return tile * TILE + (in < P::key_units ? t % 8 * 8 : (in - P::key_units) * P::value_rows + t / 8);
}

/* Looks up the pages of unit u for start_unit. Positions outside the block's are taken from the nearest page that
 * exists.
 */
template <class P>
__device__ static inline void find_pages(const struct kn_attn_call &c, struct prompt_load<P> *l, int tile, int u, int t)
{
	int shift = c.pages.page_shift, least = l->from >> shift, most = (l->to - 1) >> shift;
	UNROLL_FOR(int i = 0; i < (u % P::units < P::key_units ? 1 : P::pages); i++) {
		int index = (unit_pos<P>(tile, u, t) + 16 * i) >> shift;
		index = index > most ? most : index;
		index = index < least ? least : index;
		l->page[i] = c.pages.table[l->row + index];
	}
}

/* Starts loading unit u of the tiles from `tile` on, whose pages are known. */
template <int WIDE, class P>
__device__ static inline void start_unit(const struct kn_attn_call &c, struct prompt_load<P> *l, unsigned char *ring,
					 int tile, int u, int t)
{
	const struct kn_pages &p = c.pages;
	int in = u % P::units, pos = unit_pos<P>(tile, u, t);
	unsigned char *slot = ring + u % P::slots * P::unit + 16 * place_of<8>(t / 8, t % 8);
	if (in < P::key_units) {
		const uint8_t *at =
		    c.k + block_of(p, l->page[0], l->head) +
		    (uint32_t)((in * P::key_rows + t / 8) * p.page_tokens + (pos & (p.page_tokens - 1))) * 2;
		UNROLL_FOR(int i = 0; i < 4; i++)
			kn_cp_async16_or_zero(slot + i * (P::unit / 4), at + (uint32_t)(32 * i * p.page_tokens),
					      (tile + u / P::units) * TILE < l->to);
	} else {
		enum { EACH = 4 / P::pages }; /* loads of a position */
		UNROLL_FOR(int i = 0; i < P::pages; i++) {
			bool there = pos + 16 * i >= l->from && pos + 16 * i < l->to;
			const uint8_t *at = c.v + block_of(p, l->page[i], l->head) +
					    (uint32_t)(((pos + 16 * i) & (p.page_tokens - 1)) * WIDE + t % 8 * 8) * 2;
			UNROLL_FOR(int j = 0; j < EACH; j++)
				kn_cp_async16_or_zero(slot + i * 2048 + j * (P::unit / EACH), at + 128 * j, there);
		}
	}
	kn_cp_async_commit();
}

/* Where this lane's row of the first matrix is in a unit of 64 columns; chunk n is 16 n XOR this. */
__device__ static inline int spot_of(int t)
{
	int lane = t % KN_WARP;
	return 16 * place_of<8>(lane % 16, lane / 16);
}

/* Adds 16 rows of keys, times operand k of the queries, to the products. */
template <int KIND, int ROWS, class P>
__device__ static inline void prompt_keys(const struct kn_u4 *asked, const unsigned char *rows, int spot, int k,
					  float (*s)[COLUMNS][4])
{
	uint32_t a[ROWS][4];
	UNROLL_FOR(int m = 0; m < ROWS; m++) {
		struct kn_u4 v = kn_shared_load16(&asked[(m * P::k_steps + k) * P::threads]);
		a[m][0] = v.x;
		a[m][1] = v.y;
		a[m][2] = v.z;
		a[m][3] = v.w;
	}
	UNROLL_FOR(int n = 0; n < COLUMNS; n += 2) {
		uint32_t b[4];
		kn_ldmatrix_x4_trans(b, rows + (spot ^ 16 * n));
		UNROLL_FOR(int m = 0; m < ROWS; m++) {
			multiply<KIND>(s[m][n], a[m], b);
			multiply<KIND>(s[m][n + 1], a[m], b + 2);
		}
	}
}

/* Adds columns 8 from…8 to - 1 of 16 rows of values, times the weights of operand k. */
template <int KIND, int WIDE, int ROWS, class P>
__device__ static inline void prompt_values(uint32_t (*weights)[TILE / 16][4], const unsigned char *rows, int spot,
					    int k, int from, int to, struct so_far<WIDE> *b)
{
	UNROLL_FOR(int n = from; n < to; n += 2) {
		uint32_t m[4];
		kn_ldmatrix_x4_trans(m, rows + (spot ^ 16 * (n % 8)) + n / 8 * (P::unit * 64 / WIDE));
		UNROLL_FOR(int r = 0; r < ROWS; r++) {
			multiply<KIND>(b[r].value[n], weights[r][k], m);
			multiply<KIND>(b[r].value[n + 1], weights[r][k], m + 2);
		}
	}
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

/* Turns scores into weights, adds them to the sums, and rescales the values. NORMAL: see kn_exp2_normal. */
template <int KIND, int WIDE, int ROWS, bool NORMAL>
__device__ static inline void prompt_exp(float (*s)[COLUMNS][4], float (*base)[2], float (*keep)[2],
					 uint32_t (*weights)[TILE / 16][4], struct so_far<WIDE> *b)
{
	UNROLL_FOR(int m = 0; m < ROWS; m++) {
		float total[2] = {};
		UNROLL_FOR(int n = 0; n < COLUMNS; n++)
			UNROLL_FOR(int e = 0; e < 4; e++) {
				float x = s[m][n][e] - base[m][e / 2];
				s[m][n][e] = NORMAL ? kn_exp2_normal(x) : exp2f(x);
				total[e / 2] += s[m][n][e];
			}
		UNROLL_FOR(int j = 0; j < 2; j++)
			b[m].sum[j] = b[m].sum[j] * keep[m][j] + total[j];
		round_weights<KIND>(s[m], weights[m]);
		UNROLL_FOR(int n = 0; n < WIDE / 8; n++)
			UNROLL_FOR(int e = 0; e < 4; e++)
				b[m].value[n][e] *= keep[m][e / 2];
	}
}

/* As score() and weigh() for all rows. Weights that are 2^-126 of the largest or more, as almost all tiles have, take
 * one instruction each. */
template <int KIND, int WIDE, int ROWS, bool CAPS, class P>
__device__ static inline void prompt_weigh(const struct kn_attn_call &c, float (*factor)[2], int tile, int t,
					   bool masked, float (*s)[COLUMNS][4], uint32_t (*weights)[TILE / 16][4],
					   struct so_far<WIDE> *b)
{
	float cap = c.attn.softcap * LOG2_E, base[ROWS][2], keep[ROWS][2];
	bool tiny = false;
	UNROLL_FOR(int m = 0; m < ROWS; m++)
		UNROLL_FOR(int n = 0; n < COLUMNS; n++)
			UNROLL_FOR(int e = 0; e < 4; e++)
				s[m][n][e] *= factor[m][e / 2];
	if (CAPS && cap > 0)
		UNROLL_FOR(int m = 0; m < ROWS; m++)
			UNROLL_FOR(int n = 0; n < COLUMNS; n++)
				UNROLL_FOR(int e = 0; e < 4; e++)
					s[m][n][e] = cap * tanhf(s[m][n][e]);
	if (__builtin_expect(masked, 0))
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
	if (__builtin_expect(kn_any(tiny), 0))
		prompt_exp<KIND, WIDE, ROWS, false>(s, base, keep, weights, b);
	else
		prompt_exp<KIND, WIDE, ROWS, true>(s, base, keep, weights, b);
}

/* Whether the query of row j of set m sees a position of a block; false: there is none. */
template <int ROWS, class P>
__device__ static inline bool asked_sees(const struct kn_attn_call &c, int t, int m, int j, int block)
{
	struct prompt_place p = find_place<P>(c);
	int first, end, i = p.begin + (t / KN_WARP * ROWS + m) * QUERIES + t % KN_WARP / 4 + 8 * j;
	seen_by_asked(c, p.item, i, &first, &end);
	return kn_attn_sees(first, end, block);
}

/* Writes this lane's results. */
template <int WIDE, int ROWS, class P>
__device__ static inline void put_asked(const struct kn_attn_call &c, struct so_far<WIDE> *b, int t, float (*share)[2])
{
	struct prompt_place p = find_place<P>(c);
	UNROLL_FOR(int m = 0; m < ROWS; m++)
		UNROLL_FOR(int j = 0; j < 2; j++) {
			int row, head, i = p.begin + (t / KN_WARP * ROWS + m) * QUERIES + t % KN_WARP / 4 + 8 * j;
			if (!find_query(c, p.item, p.kv_head, i, &row, &head))
				continue;
			float *at = c.out + ((int64_t)row * c.n_heads + head) * WIDE + t % 4 * 2;
			UNROLL_FOR(int n = 0; n < WIDE / 8; n++) {
				float *v = &b[m].value[n][2 * j];
				*(struct kn_f2 *)(void *)(at + 8 * n) = {v[0] * share[m][j], v[1] * share[m][j]};
			}
		}
}

/* The head of the query of row j of set m, or, if there is none, some head. */
template <int ROWS, class P> __device__ static inline int head_asked(const struct kn_attn_call &c, int t, int m, int j)
{
	struct prompt_place p = find_place<P>(c);
	int row, head;
	(void)find_query(c, p.item, p.kv_head, p.begin + (t / KN_WARP * ROWS + m) * QUERIES + t % KN_WARP / 4 + 8 * j,
			 &row, &head);
	return head;
}

/* Merges a block of positions into those before it, as merge_block; after the last one, c.out has the result. seen:
 * each of the warp's queries sees a position of the block. ends: the maxima and sums so far, one number in each of the
 * four lanes that have a query. */
template <int WIDE, int ROWS, class P>
__device__ static inline void prompt_merge(const struct kn_attn_call &c, struct so_far<WIDE> *b, int t, int block,
					   bool seen, bool last, unsigned char *shared)
{
	struct kn_f4 *so_far = (struct kn_f4 *)(void *)(shared + P::values_at) + t;
	float *ends = (float *)(void *)(shared + P::ends_at), end[ROWS];
	float keep[ROWS][2], take[ROWS][2], share[ROWS][2];
	UNROLL_FOR(int m = 0; m < ROWS; m++) {
		struct kn_u4 was = kn_shared_load16(&ends[m * P::threads + t / 4 * 4]);
		float max[2] = {kn_bits_float(was.x), kn_bits_float(was.z)};
		float sum[2] = {kn_bits_float(was.y), kn_bits_float(was.w)};
		UNROLL_FOR(int j = 0; j < 2; j++) {
			keep[m][j] = 1;
			take[m][j] = 0;
			if (seen || asked_sees<ROWS, P>(c, t, m, j, block))
				kn_attn_merge<true>(&max[j], &sum[j], b[m].max[j], b[m].sum[j], &keep[m][j],
						    &take[m][j]);
			share[m][j] = sum[j];
			if (last && c.attn.sinks != NULL)
				share[m][j] = kn_attn_whole<true>(c, head_asked<ROWS, P>(c, t, m, j), max[j], sum[j]);
			share[m][j] = 1.0f / share[m][j];
			b[m].max[j] = -INFINITY;
			b[m].sum[j] = 0;
		}
		end[m] = t % 4 < 2 ? (t % 2 ? sum[0] : max[0]) : (t % 2 ? sum[1] : max[1]);
	}
	kn_barrier(); /* the other lanes have read theirs */
	UNROLL_FOR(int m = 0; m < ROWS; m++)
		ends[m * P::threads + t] = end[m];
	UNROLL_FOR(int m = 0; m < ROWS; m++)
		UNROLL_FOR(int n = 0; n < WIDE / 8; n++) {
			struct kn_f4 *at = &so_far[(m * (WIDE / 8) + n) * P::threads], was = *at;
			float *v = b[m].value[n];
			v[0] = was.x * keep[m][0] + v[0] * take[m][0];
			v[1] = was.y * keep[m][0] + v[1] * take[m][0];
			v[2] = was.z * keep[m][1] + v[2] * take[m][1];
			v[3] = was.w * keep[m][1] + v[3] * take[m][1];
			if (last)
				continue;
			*at = {v[0], v[1], v[2], v[3]};
			v[0] = v[1] = v[2] = v[3] = 0;
		}
	if (last)
		put_asked<WIDE, ROWS, P>(c, b, t, share);
}

/* Loads a warp's queries, from query `begin` on. all_from, all_to: as in struct queries. */
template <int KIND, int WIDE, int ROWS, class P>
__device__ static inline void prompt_queries(const struct kn_attn_call &c, const struct kn_item &item, int kv_head,
					     int begin, int t, struct kn_u4 *asked, float (*factor)[2], int *all_from,
					     int *all_to)
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

/* No block of positions yet. */
template <int WIDE, int ROWS, class P> __device__ static inline void begin_merge(unsigned char *shared, int t)
{
	const struct kn_f4 zero = {0, 0, 0, 0};
	UNROLL_FOR(int i = 0; i < ROWS * WIDE / 8; i++)
		((struct kn_f4 *)(void *)(shared + P::values_at))[i * P::threads + t] = zero;
	UNROLL_FOR(int m = 0; m < ROWS; m++)
		((float *)(void *)(shared + P::ends_at))[m * P::threads + t] = t % 2 == 0 ? -INFINITY : 0.0f;
}

/* Waits for unit u of a tile, after which the preceding one is free. */
template <class P> __device__ static inline const unsigned char *prompt_unit(const unsigned char *ring, int u)
{
	kn_cp_async_wait<P::slots - 2>();
	kn_barrier();
	return ring + u % P::slots * P::unit;
}

/* Starts loading the unit that replaces the one before unit u. */
template <int WIDE, class P>
__device__ static inline void load_ahead(const struct kn_attn_call &c, struct prompt_load<P> *l, unsigned char *ring,
					 int tile, int u, int t)
{
	t = kn_anew(t);
	start_unit<WIDE, P>(c, l, ring, tile, u + P::slots - 1, t);
	find_pages<P>(c, l, tile, u + P::slots, t);
}

/* The positions that the thread block's queries see. False: there are none. */
template <class P>
__device__ static inline bool find_prompt(const struct kn_attn_call &c, const struct prompt_place &place,
					  struct span *s)
{
	int end = place.begin + P::asked, n = place.item.n_rows * c.group;
	end = end < n ? end : n;
	s->kv_head = place.kv_head;
	s->seq = c.row_seq[place.item.row];
	return place.begin < end && find_span<false>(c, place.item, place.begin, end, s);
}

template <int KIND, int WIDE, int ROWS>
__global__ void BLOCKS_AT_LEAST(PROMPT_WARPS *KN_WARP, (prompt_plan<WIDE, ROWS>::blocks))
    attend_prompt(IN_PLACE struct kn_attn_call c)
{
	kn_begin();
	typedef struct prompt_plan<WIDE, ROWS> P;
	unsigned char *ring = (unsigned char *)kn_shared();
	int t = (int)threadIdx.x;
	struct prompt_place place = find_place<P>(c);
	struct span s;
	if (!find_prompt<P>(c, place, &s))
		return; /* every thread of the block */
	struct prompt_load<P> l;
	l.row = s.seq * c.pages.row;
	l.head = c.pages.layer * c.pages.n_kv_heads + s.kv_head;
	l.from = s.from;
	l.to = s.to;
	UNROLL_FOR(int u = 0; u < P::slots - 1; u++) {
		find_pages<P>(c, &l, s.first_tile, u, t);
		start_unit<WIDE, P>(c, &l, ring, s.first_tile, u, t);
	}
	find_pages<P>(c, &l, s.first_tile, P::slots - 1, t);
	struct kn_u4 *asked = (struct kn_u4 *)(void *)(ring + P::queries_at) + t;
	float factor[ROWS][2];
	int all_from, all_to;
	prompt_queries<KIND, WIDE, ROWS, P>(c, place.item, s.kv_head, place.begin + t / KN_WARP * ROWS * QUERIES, t,
					    asked, factor, &all_from, &all_to);
	begin_merge<WIDE, ROWS, P>(ring, t);
	struct so_far<WIDE> b[ROWS];
	UNROLL_FOR(int m = 0; m < ROWS; m++)
		begin_block(&b[m]);

#pragma unroll 1
	for (int tile = s.first_tile; tile * TILE < l.to; tile++) {
		bool last = (tile + 1) * TILE >= l.to;
		int spot = spot_of(kn_anew(t)); /* a register less between tiles */
		float scores[ROWS][COLUMNS][4];
		uint32_t weights[ROWS][TILE / 16][4];
		UNROLL_FOR(int m = 0; m < ROWS; m++)
			UNROLL_FOR(int i = 0; i < COLUMNS; i++)
				UNROLL_FOR(int e = 0; e < 4; e++)
					scores[m][i][e] = 0;
		UNROLL_FOR(int u = 0; u < P::key_units; u++) {
			const unsigned char *unit = prompt_unit<P>(ring, u);
			UNROLL_FOR(int i = 0; i < P::key_rows / 16; i++) {
				prompt_keys<KIND, ROWS, P>(asked, unit + i * 2048, spot, u * (P::key_rows / 16) + i,
							   scores);
				if (i == 0)
					load_ahead<WIDE, P>(c, &l, ring, tile, u, t);
			}
		}
		const unsigned char *unit = prompt_unit<P>(ring, P::key_units);
		prompt_weigh<KIND, WIDE, ROWS, ROWS == 1, P>(
		    c, factor, tile, t, tile * TILE < all_from || (tile + 1) * TILE > all_to, scores, weights, b);
		UNROLL_FOR(int u = P::key_units; u < P::units; u++) {
			if (u > P::key_units)
				unit = prompt_unit<P>(ring, u);
			UNROLL_FOR(int i = 0; i < P::value_rows / 16; i++) {
				int k = (u - P::key_units) * (P::value_rows / 16) + i;
				enum { PART = WIDE / 32 };
				prompt_values<KIND, WIDE, ROWS, P>(weights, unit + i * 2048, spot, k, 0, PART, b);
				if (i == 0)
					load_ahead<WIDE, P>(c, &l, ring, tile, u, t);
				prompt_values<KIND, WIDE, ROWS, P>(weights, unit + i * 2048, spot, k, PART, WIDE / 8,
								   b);
			}
		}
		if (ROWS == 1)
			tile = kn_anew(tile); /* what is made of it takes no registers during the products */
		if ((tile + 1) * TILE % KN_ATTN_BLOCK != 0 && !last)
			continue;
		UNROLL_FOR(int m = 0; m < ROWS; m++)
			end_block(&b[m]);
		int block = tile * TILE / KN_ATTN_BLOCK;
		prompt_merge<WIDE, ROWS, P>(c, b, t, block,
					    block * KN_ATTN_BLOCK < all_to && (block + 1) * KN_ATTN_BLOCK > all_from,
					    last, ring);
	}
	kn_cp_async_wait<0>();
}

#endif
