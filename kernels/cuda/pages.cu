/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary embedding and writing keys and values to pages in the pool's type, in one kernel: a block handles a row, all
 * of it or one key head with its query heads. It computes the row's angles once, in double like the reference (in
 * float the error at position 100,000 would be 2^-8).
 *
 * VERSIONS
 *  1  one block a row, one number a thread at a time.
 *  2  16 bytes a thread at a time where pairs allow; a warp has a key head, so that the scale of an 8-bit one is five
 *     shuffles; few rows get a block a key head. Counted for 32 heads of 128 with 8 key heads: 5120 numbers in and
 *     out a row, 20 kB + 20 kB, and 2048 into pages. A key goes to a place of its own in head_dim runs of a page: 32
 *     bytes touched for 1, 2 or 4, which the second level cache puts together when a prompt fills the page: 0.26 MB
 *     of it a row and layer at most. Not measured on a device yet; expected: decodes bound by the launch (the
 *     double sines of 64 pairs are made by 64 threads at once), prompts within 2 times a copy.
 *  3  queries, keys and values may be parts of one row (a joined product's): a stride.
 */
#include "kernels/cuda/backend.h"

enum {
	THREADS = 128,
	MANY_ROWS =
	    256, /* from this many rows on a block handles a whole row: angles are expensive where doubles are slow */
};

struct turn {
	int n_rot;
	bool halves, wide; /* wide: four numbers at a time */
	float magnitude;
	const double *inv_freq;
	float grow; /* of queries (kn_rope) */
	int grow_every, grow_from;
};

/* Rotates one pair. */
__device__ static inline void turn_pair(float *a, float *b, float c, float s)
{
	float u = *a, v = *b;
	*a = u * c - v * s;
	*b = u * s + v * c;
}

/* Rotates the pairs of n_heads contiguous heads. */
__device__ static void rotate(const struct turn &turn, const float *turns, float *x, int n_heads, int head_dim, int t)
{
	int half = turn.n_rot / 2;
	for (int i = t; !turn.wide && i < n_heads * half; i += THREADS) {
		int pair = i % half, a = turn.halves ? pair : 2 * pair, b = turn.halves ? pair + half : a + 1;
		float *head = x + (int64_t)(i / half) * head_dim;
		turn_pair(head + a, head + b, turns[2 * pair], turns[2 * pair + 1]);
	}
	for (int i = t; turn.wide && i < n_heads * half / 4; i += THREADS) {
		int pair = i * 4 % half, a = turn.halves ? pair : 2 * pair, b = turn.halves ? pair + half : a + 4;
		float *head = x + (int64_t)(i * 4 / half) * head_dim;
		const float *by = turns + 2 * pair;
		struct kn_f4 *first = (struct kn_f4 *)(void *)(head + a), *second = (struct kn_f4 *)(void *)(head + b);
		struct kn_f4 u = *first, v = *second;
		turn_pair(&u.x, turn.halves ? &v.x : &u.y, by[0], by[1]);
		turn_pair(turn.halves ? &u.y : &u.z, turn.halves ? &v.y : &u.w, by[2], by[3]);
		turn_pair(turn.halves ? &u.z : &v.x, turn.halves ? &v.z : &v.y, by[4], by[5]);
		turn_pair(turn.halves ? &u.w : &v.z, &v.w, by[6], by[7]);
		*first = u;
		*second = v;
	}
}

/* The factor of queries at a position, as kn_rope_grown. */
__device__ static inline float grown(const struct turn &turn, int pos)
{
	if (turn.grow == 0.0f)
		return 1.0f;
	return (float)(1 + (double)turn.grow * log((double)(1 + ((int64_t)pos + turn.grow_from) / turn.grow_every)));
}

/* The 8-bit scale of a head's elements (kv_type.h), returned in all lanes. */
__device__ static inline float scale_of(int type, const float *x, int n, int lane)
{
	float most = 0, none = 0; /* none: nonzero if an element is not finite */
	for (int d = lane; d < n; d += KN_WARP) {
		most = fmaxf(most, fabsf(x[d]));
		none = fabsf(x[d]) < INFINITY ? none : 1.0f;
	}
	most = kn_warp_max(most);
	none = kn_warp_max(none);
	float scale = most / (type == KN_KV_Q8 ? 127.0f : 448.0f);
	if (none > 0)
		return kn_bits_float(0x7FC00000u);
	return scale >= 0x1p-126f ? scale : 0.0f;
}

/* Clamps x to ±most; NaN stays NaN. */
__device__ static inline float within(float x, float most) { return x > most ? most : x < -most ? -most : x; }

/* NaN has the same bits on every backend. */
__device__ static inline uint16_t f16_of(float x)
{
	if (x != x)
		return (uint16_t)((kn_float_bits(x) >> 16 & 0x8000u) | 0x7E00u);
	return kn_float_f16(within(x, 65504.0f));
}

__device__ static inline uint8_t q8_of(float x)
{
	float q = rintf(x);
	return (uint8_t)(int8_t)(q >= 127.0f ? 127 : q > -127.0f ? (int)q : -127);
}

/* A warp writes one token's elements to its block: element d at index at + d · apart. */
__device__ static inline void put(int type, uint8_t *block, int scale_at, const float *x, int n, int at, int apart,
				  int lane)
{
	float scale = 1;
	if (kn_has_scales(type)) {
		scale = scale_of(type, x, n, lane);
		if (lane == 0)
			*(float *)(void *)(block + scale_at) = scale;
	}
	for (int d = lane; d < n; d += KN_WARP) {
		int64_t i = at + (int64_t)d * apart;
		switch (type) {
		case KN_F32: ((float *)(void *)block)[i] = x[d]; break;
		case KN_F16: ((uint16_t *)(void *)block)[i] = f16_of(x[d]); break;
		case KN_BF16: ((uint16_t *)(void *)block)[i] = kn_float_bf16(within(x[d], 0x1.FEp127f)); break;
		case KN_KV_Q8: block[i] = scale > 0 ? q8_of(x[d] / scale) : 0; break;
		default: block[i] = scale > 0 ? (uint8_t)kn_float_e4m3(x[d] / scale) : 0; break;
		}
	}
}

/* Block (row, y) has key heads y · heads_each and up. q_row, k_row: floats from a row to the next. */
__global__ void rope_kv_write(struct turn turn, struct kn_pages pages, int type, const int32_t *row_pos,
			      const int32_t *row_seq, float *q, int n_heads, int q_row, float *k, const float *v,
			      int k_row, uint8_t *k_pool, uint8_t *v_pool, int heads_each)
{
	kn_begin();
	float *turns = (float *)kn_shared(); /* [n_rot / 2][cosine, sine] */
	int t = (int)threadIdx.x, row = (int)blockIdx.x, hd = pages.head_dim, pos = row_pos[row];
	int first = (int)blockIdx.y * heads_each, group = n_heads / pages.n_kv_heads;
	int n = pages.n_kv_heads - first < heads_each ? pages.n_kv_heads - first : heads_each;
	for (int i = t; i < turn.n_rot / 2; i += THREADS) {
		double angle = (double)pos * turn.inv_freq[i];
		turns[2 * i] = (float)((double)turn.magnitude * cos(angle));
		turns[2 * i + 1] = (float)((double)turn.magnitude * sin(angle));
	}
	kn_barrier();
	q += (int64_t)row * q_row + (int64_t)first * group * hd;
	k += (int64_t)row * k_row + (int64_t)first * hd;
	v += (int64_t)row * k_row + (int64_t)first * hd;
	rotate(turn, turns, q, n * group, hd, t);
	rotate(turn, turns, k, n, hd, t);
	kn_barrier(); /* other threads rotated the values written below */
	float factor = grown(turn, pos);
	for (int i = t; factor != 1.0f && i < n * group * hd; i += THREADS)
		q[i] *= factor;
	int in_page = kn_pos_in_page(pages, pos), lane = t % KN_WARP;
	for (int h = t / KN_WARP; h < 2 * n; h += THREADS / KN_WARP) {
		int64_t at = kn_block_at(pages, row_seq[row], pos, first + h / 2);
		int scale_at = pages.scales_at + 4 * in_page;
		if (h % 2 == 0)
			put(type, k_pool + at, scale_at, k + h / 2 * hd, hd, in_page, pages.page_tokens, lane);
		else
			put(type, v_pool + at, scale_at, v + h / 2 * hd, hd, in_page * hd, 1, lane);
	}
}

/* The frequencies on the device. A model has at most two tables, which do not change while the backend is open, so
 * their address identifies them. */
static int freqs_of(struct kn_backend *b, const struct kn_rope *rope, const double **out)
{
	for (int i = 0; i < KN_N_FREQS; i++)
		if (b->freqs[i].host == rope->inv_freq) {
			*out = b->freqs[i].at;
			return 0;
		}
	struct kn_freqs *f = &b->freqs[b->next_freqs];
	b->next_freqs = (b->next_freqs + 1) % KN_N_FREQS;
	size_t bytes = (size_t)(rope->n_rot / 2) * sizeof *rope->inv_freq;
	int rc = dev_sync(b->dev); /* steps may still read the old ones */
	if (rc != 0)
		return rc;
	if (f->at != NULL)
		dev_free(b->dev, f->at);
	f->host = NULL;
	f->at = NULL;
	void *at = NULL;
	rc = dev_alloc(b->dev, bytes, &at);
	if (rc != 0)
		return rc;
	f->at = (double *)at;
	if ((rc = dev_copy_in(b->dev, f->at, rope->inv_freq, bytes)) != 0)
		return rc;
	f->host = rope->inv_freq;
	*out = f->at;
	return 0;
}

static int launch(struct kn_backend *b, const struct kn_rope *rope, float *q, int n_heads, int q_row, float *k,
		  const float *v, int k_row, const struct kn_kv *kv, int layer)
{
	struct turn turn = {};
	turn.n_rot = rope->n_rot;
	turn.halves = rope->halves;
	turn.magnitude = rope->magnitude;
	turn.grow = rope->grow;
	turn.grow_every = rope->grow_every;
	turn.grow_from = rope->grow_from;
	/* Four pairs lie in 16 bytes twice, and every head begins at a multiple of 16. */
	turn.wide = rope->n_rot % 8 == 0 && kv->head_dim % 4 == 0 && ((uintptr_t)q | (uintptr_t)k) % 16 == 0;
	if (rope->n_rot > 0 && freqs_of(b, rope, &turn.inv_freq) != 0)
		return SL_EIO;
	int n_rows = b->step->n_rows, heads_each = n_rows < MANY_ROWS ? 1 : kv->n_kv_heads;
	dim3 grid((unsigned)n_rows, (unsigned)((kv->n_kv_heads + heads_each - 1) / heads_each));
	return KN_LAUNCH(b->dev, rope_kv_write, grid, THREADS, (size_t)rope->n_rot * sizeof(float), turn,
			 kn_pages_of(b, kv, layer), kv->type, b->pos, b->seq, q, n_heads, q_row, k, v, k_row,
			 (uint8_t *)kv->k, (uint8_t *)kv->v, heads_each);
}

int kn_cuda_rope_kv_write(struct kn_backend *b, const struct kn_rope *rope, float *q, int n_heads, float *k,
			  const float *v, const struct kn_kv *kv, int layer)
{
	return launch(b, rope, q, n_heads, n_heads * kv->head_dim, k, v, kv->n_kv_heads * kv->head_dim, kv, layer);
}

int kn_cuda_qkv_rope_write(struct kn_backend *b, const struct kn_rope *rope, float *qkv, int n_heads,
			   const struct kn_kv *kv, int layer)
{
	int q_width = n_heads * kv->head_dim, kv_width = kv->n_kv_heads * kv->head_dim, row = q_width + 2 * kv_width;
	return launch(b, rope, qkv, n_heads, row, qkv + q_width, qkv + q_width + kv_width, row, kv, layer);
}

int kn_cuda_page_copy(struct kn_backend *b, const struct kn_kv *kv, int src, int dst)
{
	size_t page = kn_kv_page_bytes(kv);
	uint8_t *k = (uint8_t *)kv->k, *v = (uint8_t *)kv->v;
	int rc = kn_cuda_await_page(b, src);
	if (rc == 0)
		rc = kn_cuda_await_page(b, dst);
	if (rc == 0)
		rc = dev_copy(b->dev, k + (size_t)dst * page, k + (size_t)src * page, page);
	return rc != 0 ? rc : dev_copy(b->dev, v + (size_t)dst * page, v + (size_t)src * page, page);
}
