/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over pages, for decodes and prompts by one kernel.
 *
 * A block has up to KN_TILE queries that read the same key head of the same sequence: of a row that
 * stands alone the heads of a group, of rows that stand together one head each. It goes over absolute
 * blocks of KN_ATTN_BLOCK positions: scores by position, their maximum, their exponentials' sum by a
 * fixed tree, the weighted values by element, position after position. What a block of positions gives (maximum, sum,
 * values) is merged into what the ones before gave, left to right (Milakov, Gimelshein, "Online
 * normalizer calculation for softmax", 2018).
 *
 * With few queries there are too few blocks for a device. Then each takes one block of positions, puts
 * what it got into scratch memory, and a second kernel merges in the same order with the same function. The
 * bits are the same either way, so which one runs may depend on the step.
 *
 * A position that a query must not see is left out, not weighted with zero: what is there may be a page
 * nobody has written.
 *
 * VERSIONS
 *  1  as above; keys and values straight from the pool. Not measured on a device yet; expected: near
 *     half of a copy's rate for long decodes (a page of 16 tokens is 64 bytes of each key row), prompts
 *     far from any limit, since they want tensor cores.
 */
#include "kernels/cuda/backend.h"

enum {
	THREADS = 128,
	WARPS = THREADS / KN_WARP,
	MAX_HEAD = 512, /* what the shared memory of every device has room for */
#ifdef KN_EMULATED
	SCRATCH = 128 << 10, /* so that small tests meet both ways */
#else
	SCRATCH = 64 << 20, /* bytes at the most for splits */
#endif
};

struct call {
	struct kn_pages pages;
	const float *q, *k, *v;
	float *out, *parts;
	const int32_t *row_pos, *row_seq;
	const struct kn_item *items;
	struct kn_attn attn;
	int n_heads, group;  /* query heads, and how many of them share a key head */
	int heads_each;	     /* heads of a row in one block */
	int chunks;	     /* blocks for a key head: the group in parts of heads_each */
	int n_splits;	     /* blocks of positions in parts; 0: none */
};

/* [first, end) of the positions that a row sees. */
__device__ static inline void seen_by(const struct call &c, int row, int *first, int *end)
{
	*end = c.row_pos[row] + 1;
	*first = c.attn.window > 0 && *end > c.attn.window ? *end - c.attn.window : 0;
}

/* Factors of what there is and what comes, and the new maximum and sum. */
__device__ static inline void merge(float *max, float *sum, float block_max, float block_sum, float *keep, float *take)
{
	float m = fmaxf(*max, block_max);
	*keep = expf(*max - m);
	*take = expf(block_max - m);
	*sum = *sum * *keep + block_sum * *take;
	*max = m;
}

__device__ static inline float *part_of(const struct call &c, int row, int head, int block)
{
	return c.parts + (((int64_t)row * c.n_heads + head) * c.n_splits + block) * (c.pages.head_dim + 2);
}

/* A block's queries: number j is of row row[j] and head head[j], and sees [first[j], end[j]). */
struct queries {
	int n, kv_head, seq;
	int row[KN_TILE], head[KN_TILE], first[KN_TILE], end[KN_TILE];
	int from, to; /* of all */
};

__device__ static inline void find_queries(const struct call &c, struct queries *all)
{
	struct kn_item item = c.items[blockIdx.x];
	int chunk = (int)blockIdx.y % c.chunks, head = chunk * c.heads_each;
	int n_heads = c.group - head < c.heads_each ? c.group - head : c.heads_each;
	all->kv_head = (int)blockIdx.y / c.chunks;
	all->seq = c.row_seq[item.row];
	all->n = item.n_rows * n_heads;
	all->from = INT32_MAX;
	all->to = 0;
#pragma unroll
	for (int j = 0; j < KN_TILE; j++) {
		if (j >= all->n)
			continue;
		all->row[j] = item.row + j / n_heads;
		all->head[j] = all->kv_head * c.group + head + j % n_heads;
		seen_by(c, all->row[j], &all->first[j], &all->end[j]);
		all->from = all->first[j] < all->from ? all->first[j] : all->from;
		all->to = all->end[j] > all->to ? all->end[j] : all->to;
	}
}

struct shared {
	float *q;	 /* [KN_TILE][head_dim] */
	float *sum;	 /* [KN_TILE][head_dim]: values so far */
	float *weight;	 /* [KN_TILE][KN_ATTN_BLOCK] */
	float *max, *total; /* [KN_TILE][WARPS] */
	int64_t *value;	 /* [KN_ATTN_BLOCK]: where a position's values are */
};

__device__ static inline struct shared share(int head_dim)
{
	struct shared s;
	s.value = (int64_t *)kn_shared();
	s.weight = (float *)(s.value + KN_ATTN_BLOCK);
	s.max = s.weight + KN_TILE * KN_ATTN_BLOCK;
	s.total = s.max + KN_TILE * WARPS;
	s.q = s.total + KN_TILE * WARPS;
	s.sum = s.q + KN_TILE * head_dim;
	return s;
}

static size_t shared_bytes(int head_dim)
{
	return KN_ATTN_BLOCK * sizeof(int64_t) +
	       sizeof(float) * (size_t)(KN_TILE * KN_ATTN_BLOCK + 2 * KN_TILE * WARPS + 2 * KN_TILE * head_dim);
}

/* Scores of the positions of one block into s.weight, -INFINITY where a query sees nothing, and each
 * warp's maxima. */
__device__ static void score(const struct call &c, const struct queries &all, const struct shared &s, int begin, int t)
{
	const struct kn_pages &pages = c.pages;
	int hd = pages.head_dim;
	float best[KN_TILE];
#pragma unroll
	for (int j = 0; j < KN_TILE; j++)
		best[j] = -INFINITY;
	for (int i = t; i < KN_ATTN_BLOCK; i += THREADS) {
		int p = begin + i;
		float dot[KN_TILE];
#pragma unroll
		for (int j = 0; j < KN_TILE; j++)
			dot[j] = 0;
		if (p >= all.from && p < all.to) {
			int64_t at = kn_page_at(pages, all.seq, p, all.kv_head);
			const float *k = c.k + at + p % pages.page_tokens;
			s.value[i] = at + (int64_t)(p % pages.page_tokens) * hd;
			for (int d = 0; d < hd; d++) {
				float key = k[(int64_t)d * pages.page_tokens];
#pragma unroll
				for (int j = 0; j < KN_TILE; j++)
					if (j < all.n)
						dot[j] = kn_fma(s.q[j * hd + d], key, dot[j]);
			}
		}
#pragma unroll
		for (int j = 0; j < KN_TILE; j++) {
			if (j >= all.n)
				continue;
			float x = dot[j] * c.attn.scale;
			if (c.attn.softcap > 0)
				x = c.attn.softcap * tanhf(x / c.attn.softcap);
			if (p < all.first[j] || p >= all.end[j])
				x = -INFINITY;
			s.weight[j * KN_ATTN_BLOCK + i] = x;
			best[j] = fmaxf(best[j], x);
		}
	}
#pragma unroll
	for (int j = 0; j < KN_TILE; j++)
		if (j < all.n) {
			float max = kn_warp_max(best[j]);
			if (t % KN_WARP == 0)
				s.max[j * WARPS + t / KN_WARP] = max;
		}
}

/* Scores to weights, relative to the block's maximum of each query, and each warp's sums. */
__device__ static void weigh(const struct queries &all, const struct shared &s, float *max, int t)
{
#pragma unroll
	for (int j = 0; j < KN_TILE; j++) {
		if (j >= all.n)
			continue;
		const float *m = s.max + j * WARPS;
		max[j] = fmaxf(fmaxf(m[0], m[1]), fmaxf(m[2], m[3]));
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
__device__ static inline void collect(const struct call &c, const struct queries &all, const struct shared &s, int begin, int d,
				      float *part)
{
	int from = all.from > begin ? all.from - begin : 0;
	int to = all.to - begin < KN_ATTN_BLOCK ? all.to - begin : KN_ATTN_BLOCK;
#pragma unroll
	for (int j = 0; j < KN_TILE; j++)
		part[j] = 0;
	for (int i = from; i < to; i++) {
		float value = c.v[s.value[i] + d];
#pragma unroll
		for (int j = 0; j < KN_TILE; j++)
			if (j < all.n && begin + i >= all.first[j] && begin + i < all.end[j])
				part[j] = kn_fma(s.weight[j * KN_ATTN_BLOCK + i], value, part[j]);
	}
}

template <bool SPLIT> __global__ void attend(struct call c)
{
	int t = (int)threadIdx.x, hd = c.pages.head_dim;
	struct shared s = share(hd);
	struct queries all;
	find_queries(c, &all);
	float max[KN_TILE], sum[KN_TILE], block_max[KN_TILE], block_sum[KN_TILE], part[KN_TILE];
	float keep[KN_TILE], take[KN_TILE];
	int first = all.from / KN_ATTN_BLOCK, last = (all.to - 1) / KN_ATTN_BLOCK;
	if (SPLIT) {
		int mine = (int)blockIdx.z;
		if (mine < first || mine > last)
			return; /* every thread of the block */
		first = last = mine;
	}
#pragma unroll
	for (int j = 0; j < KN_TILE; j++) {
		max[j] = -INFINITY;
		sum[j] = 0;
		if (j >= all.n)
			continue;
		for (int d = t; d < hd; d += THREADS) {
			s.q[j * hd + d] = c.q[((int64_t)all.row[j] * c.n_heads + all.head[j]) * hd + d];
			s.sum[j * hd + d] = 0;
		}
	}
	for (int block = first; block <= last; block++) {
		int begin = block * KN_ATTN_BLOCK;
		kn_barrier(); /* the queries are there; the last block's weights are done with */
		score(c, all, s, begin, t);
		kn_barrier();
		weigh(all, s, block_max, t);
		kn_barrier();
#pragma unroll
		for (int j = 0; j < KN_TILE; j++) {
			keep[j] = 1;
			take[j] = 0;
			if (j >= all.n)
				continue;
			const float *part_sum = s.total + j * WARPS;
			block_sum[j] = (part_sum[0] + part_sum[1]) + (part_sum[2] + part_sum[3]);
			if (!SPLIT && block_max[j] > -INFINITY)
				merge(&max[j], &sum[j], block_max[j], block_sum[j], &keep[j], &take[j]);
		}
		for (int d = t; d < hd; d += THREADS) {
			collect(c, all, s, begin, d, part);
#pragma unroll
			for (int j = 0; j < KN_TILE; j++) {
				if (j >= all.n || !(block_max[j] > -INFINITY))
					continue;
				if (SPLIT)
					part_of(c, all.row[j], all.head[j], block)[2 + d] = part[j];
				else
					s.sum[j * hd + d] = s.sum[j * hd + d] * keep[j] + part[j] * take[j];
			}
		}
		if (SPLIT && t == 0)
#pragma unroll
			for (int j = 0; j < KN_TILE; j++) {
				if (j >= all.n || !(block_max[j] > -INFINITY))
					continue;
				float *at = part_of(c, all.row[j], all.head[j], block);
				at[0] = block_max[j];
				at[1] = block_sum[j];
			}
	}
#pragma unroll
	for (int j = 0; j < KN_TILE; j++)
		if (!SPLIT && j < all.n)
			for (int d = t; d < hd; d += THREADS)
				c.out[((int64_t)all.row[j] * c.n_heads + all.head[j]) * hd + d] = s.sum[j * hd + d] / sum[j];
}

/* A block has a row and a head; its parts are those of the blocks of positions that the row sees. */
__global__ void combine(struct call c)
{
	int row = (int)blockIdx.x, head = (int)blockIdx.y, hd = c.pages.head_dim, first, end;
	seen_by(c, row, &first, &end);
	for (int d = (int)threadIdx.x; d < hd; d += THREADS) {
		float max = -INFINITY, sum = 0, value = 0, keep, take;
		for (int block = first / KN_ATTN_BLOCK; block <= (end - 1) / KN_ATTN_BLOCK; block++) {
			const float *part = part_of(c, row, head, block);
			merge(&max, &sum, part[0], part[1], &keep, &take);
			value = value * keep + part[2 + d] * take;
		}
		c.out[((int64_t)row * c.n_heads + head) * hd + d] = value / sum;
	}
}

static int launch(struct kn_backend *b, const struct call *c, int n_items)
{
	unsigned x = (unsigned)n_items, y = (unsigned)(c->pages.n_kv_heads * c->chunks);
	size_t bytes = shared_bytes(c->pages.head_dim);
	if (n_items == 0)
		return 0;
	if (c->n_splits > 0)
		return KN_LAUNCH(b->dev, attend<true>, dim3(x, y, (unsigned)c->n_splits), THREADS, bytes, *c);
	return KN_LAUNCH(b->dev, attend<false>, dim3(x, y), THREADS, bytes, *c);
}

int kn_cuda_attention(struct kn_backend *b, const float *q, int n_heads, const struct kn_kv *kv, int layer,
		      const struct kn_attn *attn, float *out)
{
	const struct kn_step *step = b->step;
	if (kv->head_dim > MAX_HEAD)
		return SL_EUNSUPPORTED;
	struct call c = {};
	c.pages = kn_pages_of(b, kv, layer);
	c.q = q;
	c.k = (const float *)kv->k;
	c.v = (const float *)kv->v;
	c.out = out;
	c.row_pos = b->pos;
	c.row_seq = b->seq;
	c.attn = *attn;
	c.n_heads = n_heads;
	c.group = n_heads / kv->n_kv_heads;
	int n_blocks = b->last_pos / KN_ATTN_BLOCK + 1;
	size_t bytes = (size_t)step->n_rows * (size_t)n_heads * (size_t)n_blocks * (size_t)(kv->head_dim + 2) * sizeof(float);
	if (n_blocks > 1 && n_blocks <= UINT16_MAX && bytes <= SCRATCH) {
		if (kn_cuda_room(b, &b->scratch, bytes) != 0)
			return SL_EIO;
		c.n_splits = n_blocks;
		c.parts = (float *)b->scratch.at;
	}
	c.items = b->alone;
	c.heads_each = c.group < KN_TILE ? c.group : KN_TILE;
	c.chunks = (c.group + c.heads_each - 1) / c.heads_each;
	int rc = launch(b, &c, b->n_alone);
	c.items = b->together;
	c.heads_each = 1;
	c.chunks = c.group;
	if (rc == 0)
		rc = launch(b, &c, b->n_together);
	if (rc != 0 || c.n_splits == 0)
		return rc;
	return KN_LAUNCH(b->dev, combine, dim3((unsigned)step->n_rows, (unsigned)n_heads), THREADS, 0, c);
}
