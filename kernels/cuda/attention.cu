/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over pages: selects the kernel for each row, splits into parts or not, merges parts, and has the kernel
 * for float32 pages and for heads too wide for tensor cores. attention.h has the shared definitions.
 *
 * The kernel here computes in float32 what attention_mma.h computes with 16-bit factors. A thread block has up to
 * KN_TILE queries: it computes scores per position, their maximum, the sum of exponentials by a fixed tree, and the
 * weighted values per element, position after position.
 *
 * A position that a query must not see is skipped, not weighted with zero: its page may be unwritten.
 *
 * VERSIONS
 *  1  one kernel, one position of keys a thread, prompts in items of 8 rows and one head.
 *  2  four positions a thread, keys by 16 bytes; prompts by rows and heads of a group, as decodes. Counted for
 *     head_dim 128 and a group of 4: of keys 1 load, 4 broadcast loads and 16 multiply-adds for 16 bytes, of values
 *     4 + 16 + 16; one SM of an H200 has 110 instructions of a thread for them (18.6 bytes a cycle): decodes should
 *     reach three quarters of a copy's rate. Prompts are bound by multiply-adds, 64 TFLOP/s at the best. Not measured
 *     on a device yet. Combining reads parts eight at a time: a sequence of 4096 is two waits for memory.
 *  3  the last block of a row's combination converts the row for the product that follows: one launch fewer a layer.
 *     Not measured on a device.
 *  4  up to 16 parts of single rows are merged by attention's own blocks (attention_merge.h), and their rows
 *     converted there if they become bfloat16: one launch fewer a layer. Counted for heads of 128 in groups of 4: a warp
 *     has 4 numbers a lane of each head, up to 8 parts at a time: 4 waits for memory, 8 above 8 parts, 1.5 and 3 us,
 *     against 2.5 to 3 for a kernel that merges and converts. Above 16 parts (4096 positions) one warp would take
 *     longer than the launch costs, and the kernel does it: one launch more a layer. A part's values begin at 16 bytes,
 *     so it is 8 bytes longer. Each block of a part has a fence and an atomic add. Not measured on a device.
 *  5  single rows by blocks of eight warps (attention_alone.h), which merge by all their threads.
 */
#include "kernels/cuda/attention.h"
#include "kernels/cuda/rows.h"

enum {
	THREADS = 64,
	WARPS = THREADS / KN_WARP,
	EACH = KN_ATTN_BLOCK / THREADS, /* consecutive positions per thread */
	COMBINE_THREADS = 128,
	AHEAD = 8,         /* parts in flight per thread */
	MERGED_PARTS = 16, /* most that the blocks of attention merge */
	MAX_HEAD = 512,    /* fits the shared memory of every device */
	/* From this many thread blocks on, parts gain nothing: a large device runs a few hundred at a time. Of those of
	 * attention_prompts.h, which parts would do without, one for each is enough. */
	ENOUGH = 1024,
	ENOUGH_PROMPT = 256,
#ifdef KN_EMULATED
	SCRATCH = 64 << 10, /* so that small tests cover both paths */
#else
	SCRATCH = 64 << 20, /* upper bound of the bytes for parts */
#endif
};
static_assert(EACH == 4, "a load of 16 bytes");

/* A block's queries. Query j has row row[j] and head head[j], and sees positions [first[j], end[j]). */
struct queries {
	int n, kv_head, seq;
	int row[KN_TILE], head[KN_TILE], first[KN_TILE], end[KN_TILE];
	int from, to; /* over all queries */
};

__device__ static inline void find_queries(const struct kn_attn_call &c, struct queries *all)
{
	struct kn_item item = c.items[blockIdx.x];
	int begin = (int)blockIdx.y % c.n_tiles * KN_TILE, n = item.n_rows * c.group - begin;
	all->kv_head = (int)blockIdx.y / c.n_tiles;
	all->seq = c.row_seq[item.row];
	all->n = n < KN_TILE ? n : KN_TILE;
	all->from = INT32_MAX;
	all->to = 0;
	UNROLL_FOR(int j = 0; j < KN_TILE; j++) {
		if (j >= all->n)
			continue;
		all->row[j] = item.row + (begin + j) / c.group;
		all->head[j] = all->kv_head * c.group + (begin + j) % c.group;
		kn_seen_by(c, all->row[j], &all->first[j], &all->end[j]);
		all->from = all->first[j] < all->from ? all->first[j] : all->from;
		all->to = all->end[j] > all->to ? all->end[j] : all->to;
	}
}

struct shared {
	float *q;           /* [KN_TILE][head_dim] */
	float *sum;         /* [KN_TILE][head_dim]: values so far */
	float *weight;      /* [KN_TILE][KN_ATTN_BLOCK] */
	float *max, *total; /* [KN_TILE][WARPS] */
	int64_t *value;     /* [KN_ATTN_BLOCK]: where a position's values are, in bytes */
	float *scale;       /* [KN_ATTN_BLOCK]: theirs */
};

__device__ static inline struct shared share(int head_dim)
{
	struct shared s;
	s.value = (int64_t *)kn_shared();
	s.weight = (float *)(s.value + KN_ATTN_BLOCK);
	s.scale = s.weight + KN_TILE * KN_ATTN_BLOCK;
	s.max = s.scale + KN_ATTN_BLOCK;
	s.total = s.max + KN_TILE * WARPS;
	s.q = s.total + KN_TILE * WARPS;
	s.sum = s.q + KN_TILE * head_dim;
	return s;
}

static size_t shared_bytes(int head_dim)
{
	return KN_ATTN_BLOCK * sizeof(int64_t) +
	       sizeof(float) * (size_t)((KN_TILE + 1) * KN_ATTN_BLOCK + 2 * KN_TILE * WARPS + 2 * KN_TILE * head_dim);
}

/* Element i at an address in a pool, without its scale. */
template <bool F32> __device__ static inline float number_at(int type, const uint8_t *at, int64_t i)
{
	if (F32)
		return ((const float *)(const void *)at)[i];
	switch (type) {
	case KN_F16: return kn_f16_float(kn_load<uint16_t>(at + 2 * i));
	case KN_BF16: return kn_bf16_float(kn_load<uint16_t>(at + 2 * i));
	case KN_KV_Q8: return (float)(int8_t)at[i];
	default: return kn_e4m3_float(at[i]);
	}
}

__device__ static inline int number_bytes(int type) { return type == KN_F16 || type == KN_BF16 ? 2 : 1; }

/* dot[query][position]: products of the queries with the keys of EACH positions from p on. */
template <bool F32>
__device__ static void multiply(const struct kn_attn_call &c, const struct queries &all, const struct shared &s, int p,
				int i, float (*dot)[EACH])
{
	const struct kn_pages &pages = c.pages;
	int hd = pages.head_dim, bytes = F32 ? 4 : number_bytes(c.type);
	const uint8_t *key[EACH];
	float scale[EACH];
	UNROLL_FOR(int e = 0; e < EACH; e++) {
		bool seen = p + e >= all.from && p + e < all.to;
		key[e] = NULL;
		scale[e] = 1;
		if (!seen)
			continue;
		int64_t at = kn_block_at(pages, all.seq, p + e, all.kv_head);
		int in = kn_pos_in_page(pages, p + e);
		key[e] = c.k + at + (int64_t)in * bytes;
		s.value[i + e] = at + (int64_t)in * hd * bytes;
		if (!F32 && kn_has_scales(c.type)) {
			scale[e] = kn_load<float>(c.k + at + pages.scales_at + in * 4);
			s.scale[i + e] = kn_load<float>(c.v + at + pages.scales_at + in * 4);
		} else {
			s.scale[i + e] = 1;
		}
	}
	/* The four positions share a page whose first one is written, so all may be read. */
	bool wide = F32 && c.wide && p + EACH > all.from && p < all.to;
	const uint8_t *four = NULL;
	if (wide)
		four = c.k + kn_block_at(pages, all.seq, p, all.kv_head) + kn_pos_in_page(pages, p) * 4;
#pragma unroll 4
	for (int d = 0; d < hd; d++) {
		int64_t at = (int64_t)d * pages.page_tokens;
		float x[EACH];
		if (wide) {
			kn_take4((const float *)(const void *)(four + 4 * at), x);
		} else {
			UNROLL_FOR(int e = 0; e < EACH; e++)
				x[e] = key[e] != NULL ? number_at<F32>(c.type, key[e], at) : 0.0f;
		}
		UNROLL_FOR(int j = 0; j < KN_TILE; j++)
			if (j < all.n)
				UNROLL_FOR(int e = 0; e < EACH; e++)
					dot[j][e] = kn_fma(s.q[j * hd + d], x[e], dot[j][e]);
	}
	if (!F32)
		UNROLL_FOR(int j = 0; j < KN_TILE; j++)
			UNROLL_FOR(int e = 0; e < EACH; e++)
				dot[j][e] *= scale[e];
}

/* Writes the scores of one block's positions to s.weight, -INFINITY where a query does not see, and each warp's
 * maxima. */
template <bool F32>
__device__ static void score(const struct kn_attn_call &c, const struct queries &all, const struct shared &s, int begin,
			     int t)
{
	int i = EACH * t, p = begin + i;
	float dot[KN_TILE][EACH];
	UNROLL_FOR(int j = 0; j < KN_TILE; j++)
		UNROLL_FOR(int e = 0; e < EACH; e++)
			dot[j][e] = 0;
	if (p + EACH > all.from && p < all.to)
		multiply<F32>(c, all, s, p, i, dot);
	UNROLL_FOR(int j = 0; j < KN_TILE; j++) {
		if (j >= all.n)
			continue;
		float best = -INFINITY;
		UNROLL_FOR(int e = 0; e < EACH; e++) {
			float x = dot[j][e] * c.attn.scale;
			if (c.attn.softcap > 0)
				x = c.attn.softcap * tanhf(x / c.attn.softcap);
			if (p + e < all.first[j] || p + e >= all.end[j])
				x = -INFINITY;
			s.weight[j * KN_ATTN_BLOCK + i + e] = x;
			best = fmaxf(best, x);
		}
		best = kn_warp_max(best);
		if (t % KN_WARP == 0)
			s.max[j * WARPS + t / KN_WARP] = best;
	}
}

/* Turns scores into weights relative to each query's maximum in the block, and computes each warp's sums. */
__device__ static void weigh(const struct queries &all, const struct shared &s, float *max, int t)
{
	UNROLL_FOR(int j = 0; j < KN_TILE; j++) {
		if (j >= all.n)
			continue;
		const float *m = s.max + j * WARPS;
		max[j] = fmaxf(m[0], m[1]);
		float total = 0;
		for (int i = t; i < KN_ATTN_BLOCK; i += THREADS) {
			float x = s.weight[j * KN_ATTN_BLOCK + i], e = x > -INFINITY ? expf(x - max[j]) : 0.0f;
			s.weight[j * KN_ATTN_BLOCK + i] = e;
			total += e;
		}
		total = kn_warp_sum(total);
		if (t % KN_WARP == 0)
			s.total[j * WARPS + t / KN_WARP] = total;
	}
}

/* Element d of the block's weighted values, for each query. */
template <bool F32>
__device__ static inline void collect(const struct kn_attn_call &c, const struct queries &all, const struct shared &s,
				      int begin, int d, float *part)
{
	int from = all.from > begin ? all.from - begin : 0;
	int to = all.to - begin < KN_ATTN_BLOCK ? all.to - begin : KN_ATTN_BLOCK;
	UNROLL_FOR(int j = 0; j < KN_TILE; j++)
		part[j] = 0;
#pragma unroll 8
	for (int i = from; i < to; i++) {
		float value = number_at<F32>(c.type, c.v + s.value[i], d);
		if (!F32)
			value *= s.scale[i];
		UNROLL_FOR(int j = 0; j < KN_TILE; j++)
			if (j < all.n && begin + i >= all.first[j] && begin + i < all.end[j])
				part[j] = kn_fma(s.weight[j * KN_ATTN_BLOCK + i], value, part[j]);
	}
}

template <bool F32, bool PARTS> __global__ void attend(struct kn_attn_call c)
{
	kn_begin();
	int t = (int)threadIdx.x, hd = c.pages.head_dim;
	struct shared s = share(hd);
	struct queries all;
	find_queries(c, &all);
	float max[KN_TILE], sum[KN_TILE], block_max[KN_TILE], block_sum[KN_TILE], part[KN_TILE];
	float keep[KN_TILE], take[KN_TILE];
	int first = all.from / KN_ATTN_BLOCK, last = (all.to - 1) / KN_ATTN_BLOCK;
	if (all.n <= 0)
		return; /* every thread of the block */
	if (PARTS) {
		int mine = (int)blockIdx.z;
		if (mine < first || mine > last)
			return; /* every thread of the block */
		first = last = mine;
	}
	UNROLL_FOR(int j = 0; j < KN_TILE; j++) {
		max[j] = -INFINITY;
		sum[j] = 0;
		if (j >= all.n)
			continue;
		for (int d = t; d < hd; d += THREADS) {
			s.q[j * hd + d] = c.q[(int64_t)all.row[j] * c.attn.q_row + all.head[j] * hd + d];
			s.sum[j * hd + d] = 0;
		}
	}
	for (int block = first; block <= last; block++) {
		int begin = block * KN_ATTN_BLOCK;
		kn_barrier(); /* the queries are loaded; the last block's weights are no longer needed */
		score<F32>(c, all, s, begin, t);
		kn_barrier();
		weigh(all, s, block_max, t);
		kn_barrier();
		UNROLL_FOR(int j = 0; j < KN_TILE; j++) {
			keep[j] = 1;
			take[j] = 0;
			if (j >= all.n)
				continue;
			const float *part_sum = s.total + j * WARPS;
			block_sum[j] = part_sum[0] + part_sum[1];
			if (!PARTS && kn_attn_sees(all.first[j], all.end[j], block))
				kn_attn_merge<false>(&max[j], &sum[j], block_max[j], block_sum[j], &keep[j], &take[j]);
		}
		for (int d = t; d < hd; d += THREADS) {
			collect<F32>(c, all, s, begin, d, part);
			UNROLL_FOR(int j = 0; j < KN_TILE; j++) {
				if (j >= all.n || !kn_attn_sees(all.first[j], all.end[j], block))
					continue;
				if (PARTS)
					kn_attn_part(c, all.row[j], all.head[j], block)[KN_PART_VALUES + d] = part[j];
				else
					s.sum[j * hd + d] = s.sum[j * hd + d] * keep[j] + part[j] * take[j];
			}
		}
		if (PARTS && t == 0)
			UNROLL_FOR(int j = 0; j < KN_TILE; j++) {
				if (j >= all.n || !kn_attn_sees(all.first[j], all.end[j], block))
					continue;
				float *at = kn_attn_part(c, all.row[j], all.head[j], block);
				at[0] = block_max[j];
				at[1] = block_sum[j];
			}
	}
	UNROLL_FOR(int j = 0; j < KN_TILE; j++)
		if (!PARTS && j < all.n) {
			float whole = kn_attn_whole<false>(c, all.head[j], max[j], sum[j]);
			for (int d = t; d < hd; d += THREADS)
				c.out[((int64_t)all.row[j] * c.n_heads + all.head[j]) * hd + d] =
				    s.sum[j * hd + d] / whole;
		}
}

/* The row as products take it, by one block. Rows that a tile lacks need no zeros: no row depends on another. */
__device__ static inline void convert_out(const struct kn_attn_call &c, const struct kn_into &to, int row)
{
	int t = (int)threadIdx.x, width = c.n_heads * c.pages.head_dim;
	bool wide = width % 4 == 0 && (uintptr_t)c.out % 16 == 0;
	const float *at = c.out + (int64_t)row * width;
	float most = 0;
	for (int i = 4 * t; i < width; i += 4 * COMBINE_THREADS)
		most = largest_of(load4(at, i, width, wide), most);
	convert_row<false, COMBINE_THREADS, 0>(to, row, t, NULL, at, width, wide, most, (float *)kn_shared());
}

/* One thread block per row and head merges the parts of all blocks of positions that the row sees. */
template <bool BASE_2> __global__ void combine(struct kn_attn_call c, struct kn_into to, uint32_t *arrived)
{
	kn_begin();
	struct kn_item item = c.items[blockIdx.x];
	int row = item.row + (int)blockIdx.z, head = (int)blockIdx.y, hd = c.pages.head_dim, first, end;
	if ((int)blockIdx.z >= item.n_rows)
		return; /* every thread of the block */
	kn_seen_by(c, row, &first, &end);
	int last = (end - 1) / KN_ATTN_BLOCK;
	first /= KN_ATTN_BLOCK;
	for (int d = (int)threadIdx.x; d < hd; d += COMBINE_THREADS) {
		float max = -INFINITY, sum = 0, value = 0, keep, take;
		for (int block = first; block <= last; block += AHEAD) {
			float part[AHEAD][3];
			UNROLL_FOR(int i = 0; i < AHEAD; i++) {
				const float *at = kn_attn_part(c, row, head, block + i < last ? block + i : last);
				part[i][0] = at[0];
				part[i][1] = at[1];
				part[i][2] = at[KN_PART_VALUES + d];
			}
			UNROLL_FOR(int i = 0; i < AHEAD; i++) {
				if (block + i > last)
					continue;
				kn_attn_merge<BASE_2>(&max, &sum, part[i][0], part[i][1], &keep, &take);
				value = value * keep + part[i][2] * take;
			}
		}
		/* As each kernel does without parts, where a division per value would be too slow. */
		sum = kn_attn_whole<BASE_2>(c, head, max, sum);
		c.out[((int64_t)row * c.n_heads + head) * hd + d] = BASE_2 ? value * (1.0f / sum) : value / sum;
	}
	if (to.units != NULL && kn_is_last_block(arrived + row, gridDim.y))
		convert_out(c, to, row);
}

/* The power of two of blocks that holds the longest sequence: the same for many steps. */
static int blocks_of(const struct kn_backend *b)
{
	int n = 1, need = b->last_pos / KN_ATTN_BLOCK + 1;
	while (n < need)
		n *= 2;
	return n;
}

/* Where it covers all rows of the step, they need no further conversion. */
static int combine_parts(struct kn_backend *b, const struct kn_attn_call *c, int n_items, bool base_2)
{
	dim3 grid((unsigned)n_items, (unsigned)c->n_heads, c->alone ? 1 : (unsigned)KN_ITEM_ROWS);
	struct kn_into to = {};
	int width = c->n_heads * c->pages.head_dim;
	bool all = n_items == (c->alone ? b->n_alone : b->n_together) && (b->n_alone == 0 || b->n_together == 0);
	if (all && b->arrived != NULL && b->step->n_rows <= b->max_rows &&
	    kn_cuda_into(b, b->step->n_rows, width, &to) != 0)
		return SL_EIO;
	int rc = kn_launch(b->dev, "combine", base_2 ? combine<true> : combine<false>, grid, COMBINE_THREADS,
			   COMBINE_THREADS / KN_WARP * sizeof(float), *c, to, b->arrived);
	if (rc == 0 && to.units != NULL)
		kn_cuda_converted(b, c->out, width, &to);
	return rc;
}

/* Whether the blocks of a key head's parts merge them: if they are few, since one warp does it, and if the rows, which
 * then go to products, need no maximum for these. Sets c->arrived and c->to. SL_EIO. */
static int merge_there(struct kn_backend *b, struct kn_attn_call *c, int n_items)
{
	struct kn_into to = {};
	if (c->n_parts > MERGED_PARTS || c->n_tiles > 1 || c->pages.head_dim % 4 != 0 || b->arrived == NULL ||
	    (uintptr_t)c->out % 16 != 0 || (int64_t)n_items * c->pages.n_kv_heads > b->n_arrived)
		return 0;
	if (b->n_together == 0 && kn_cuda_into(b, b->step->n_rows, c->n_heads * c->pages.head_dim, &to) != 0)
		return SL_EIO;
	if (to.units != NULL ? !to.bf16 : c->n_parts == 1)
		return 0;
	c->to = to;
	c->arrived = b->arrived;
	return 0;
}

/* Single rows on tensor cores: as many at a time as their parts fit. */
static int attend_alone(struct kn_backend *b, struct kn_attn_call *c, const struct kn_item *items, int n_items,
			int64_t row_bytes)
{
	int64_t most = c->n_parts > 1 ? SCRATCH / row_bytes : n_items;
	int rc = 0;
	most = most < 1 ? 1 : most < n_items ? most : n_items;
	if (c->n_parts > 1 && kn_cuda_room(b, &b->scratch, (size_t)(most * row_bytes)) != 0)
		return SL_EIO;
	c->parts = (float *)b->scratch.at;
	rc = merge_there(b, c, n_items);
	for (int64_t i = 0, n; i < n_items && rc == 0; i += n) {
		n = most < n_items - i ? most : n_items - i;
		c->items = items + i;
		rc = kn_attn_mma(b, c, (int)n);
		if (rc == 0 && c->n_parts > 1 && c->arrived == NULL)
			rc = combine_parts(b, c, (int)n, true);
	}
	if (rc == 0 && c->to.units != NULL)
		kn_cuda_converted(b, c->out, c->n_heads * c->pages.head_dim, &c->to);
	return rc;
}

static int launch_exact(struct kn_backend *b, const struct kn_attn_call *c, int n_items)
{
	size_t shared = shared_bytes(c->pages.head_dim);
	dim3 grid((unsigned)n_items, (unsigned)(c->pages.n_kv_heads * c->n_tiles),
		  c->n_parts > 0 ? (unsigned)c->n_parts : 1);
	bool parts = c->n_parts > 0;
	auto kernel = c->type == KN_F32 ? (parts ? attend<true, true> : attend<true, false>)
					: (parts ? attend<false, true> : attend<false, false>);
	return kn_launch(b->dev, "attend", kernel, grid, THREADS, shared, *c);
}

/* All items of one kind: single rows, or runs of rows. */
static int attend_items(struct kn_backend *b, struct kn_attn_call *c, const struct kn_item *items, int n_items,
			bool alone)
{
	int rows = alone ? 1 : KN_ITEM_ROWS, n_blocks = blocks_of(b);
	bool mma = c->latent_row == 0 && c->type != KN_F32 && kn_attn_mma_can(c->pages.head_dim);
	int tile = mma ? kn_attn_mma_tile(alone) : KN_TILE;
	if (n_items == 0)
		return 0;
	if (n_blocks > UINT16_MAX)
		return SL_EUNSUPPORTED; /* 16 million positions */
	c->items = items;
	c->alone = alone;
	c->n_tiles = (rows * c->group + tile - 1) / tile;
	c->n_parts = n_blocks;
	int64_t row_bytes =
	    (int64_t)c->n_heads * n_blocks * (c->pages.head_dim + KN_PART_VALUES) * (int64_t)sizeof(float);
	if (mma && alone)
		return attend_alone(b, c, items, n_items, row_bytes);
	/* Long runs of rows give enough thread blocks without parts. */
	int64_t n_rows = alone ? n_items : b->step->n_rows, blocks = n_rows * c->group / tile * c->pages.n_kv_heads;
	c->n_parts = 0;
	int enough = mma && kn_attn_prompt_can(c) ? ENOUGH_PROMPT : ENOUGH;
	if (n_blocks > 1 && n_rows * row_bytes <= SCRATCH && (alone || blocks < enough))
		c->n_parts = n_blocks;
	if (c->n_parts > 0 && kn_cuda_room(b, &b->scratch, (size_t)(n_rows * row_bytes)) != 0)
		return SL_EIO;
	c->parts = (float *)b->scratch.at;
	int rc = mma                 ? kn_attn_mma(b, c, n_items)
		 : c->latent_row > 0 ? kn_attn_latent(b, c, n_items)
				     : launch_exact(b, c, n_items);
	return rc != 0 || c->n_parts == 0 ? rc : combine_parts(b, c, n_items, mma);
}

/* Whether a kernel's 16-byte loads are aligned and within one page. */
static bool is_wide(const struct kn_kv *kv, const struct kn_pages *p)
{
	int chunk = 16 / (int)kn_kv_element_bytes(kv->type);
	return p->page_shift >= 0 && kv->page_tokens % chunk == 0 && kv->head_dim % chunk == 0 &&
	       p->head_bytes % 16 == 0 && ((uintptr_t)kv->k | (uintptr_t)kv->v) % 16 == 0;
}

int kn_cuda_attention(struct kn_backend *b, const float *q, int n_heads, const struct kn_kv *kv, int layer,
		      const struct kn_attn *attn, float *out)
{
	if (kv->latent == 0 && kv->head_dim > MAX_HEAD)
		return SL_EUNSUPPORTED;
	struct kn_attn_call c = {};
	c.pages = kn_pages_of(b, kv, layer);
	c.type = kv->type;
	c.wide = is_wide(kv, &c.pages);
	c.q = q;
	c.k = (const uint8_t *)kv->k;
	c.v = (const uint8_t *)kv->v;
	c.out = out;
	c.row_pos = b->pos;
	c.row_seq = b->seq;
	c.row_sees = b->step->row_sees != NULL ? b->sees : NULL;
	c.attn = *attn;
	if (c.attn.q_row == 0)
		c.attn.q_row = n_heads * kv->head_dim;
	c.n_heads = n_heads;
	c.group = n_heads / kv->n_kv_heads;
	if (kv->latent > 0) {
		c.latent_row = kv->head_dim;
		c.pages.head_dim = kv->latent;
	}
	int rc = attend_items(b, &c, b->alone, b->n_alone, true);
	c.arrived = NULL;
	c.to = {};
	return rc != 0 ? rc : attend_items(b, &c, b->together, b->n_together, false);
}
