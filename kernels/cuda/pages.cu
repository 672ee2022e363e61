/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary embedding and writing keys and values to pages (rope.h). The angles' cosines and sines are made once a step,
 * for all layers that turn by the same frequencies, in double like the reference (in float the error at position
 * 100,000 would be 2^-8).
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
 *  4  angles once a step, not in each layer: of 8 rows and 32 layers 512 sines and cosines, not 131,072 (each block had
 *     its own), some 60 operations in double each, of which some devices do two a cycle and multiprocessor. Layers read
 *     512 bytes a row instead, from the second-level cache. One launch more a step. The library's cos and sin have a path
 *     for angles beyond 2^31, with local memory (80 bytes a thread for sm_80); here there is none. A warp has a row's
 *     key head, without blocks of other shapes for many rows.
 *  5  after a product of up to eight rows no kernel of its own (matvec.cu).
 *     Measured on an H200, 64 rows of 32 and 8 heads: 7.1 us, a chain of loads one after the other.
 *  6  a lane's loads are on their way together, and a page's place is looked up before the head is turned.
 */
#include "kernels/cuda/then.h"

enum { THREADS = 128, WARPS = THREADS / KN_WARP };

/* ---- angles ---- */

/* Cosine and sine of an angle from 0 to 2^31, off by at most some 2^-52. The angle less n · pi / 2 is exact up to the
 * last rounding: the first product's difference has no more than 53 bits. What is left is at most pi / 4, where the
 * series' next terms are below 2^-58. The same operations everywhere, so the same bits. */
__device__ static inline void cos_sin(double angle, double *c, double *s)
{
	double n = rint(angle * 0x1.45F306DC9C883p-1);
	double x = kn_fma(-n, 0x1.1A62633145C07p-54, kn_fma(-n, 0x1.921FB54442D18p0, angle)), z = x * x;
	const double odd[] = {1 / 355687428096000.0, -1 / 1307674368000.0, 1 / 6227020800.0, -1 / 39916800.0,
			      1 / 362880.0,          -1 / 5040.0,          1 / 120.0,        -1 / 6.0};
	const double even[] = {1 / 20922789888000.0, -1 / 87178291200.0, 1 / 479001600.0, -1 / 3628800.0,
			       1 / 40320.0,          -1 / 720.0,         1 / 24.0};
	double sine = odd[0], cosine = even[0];
	UNROLL_FOR(int i = 1; i < 8; i++)
		sine = kn_fma(sine, z, odd[i]);
	UNROLL_FOR(int i = 1; i < 7; i++)
		cosine = kn_fma(cosine, z, even[i]);
	sine = kn_fma(sine * z, x, x);
	cosine = kn_fma(cosine * z, z, 1 - z / 2);
	int quarter = (int)((int64_t)n & 3);
	double a = quarter % 2 == 0 ? cosine : sine, b = quarter % 2 == 0 ? sine : cosine;
	*c = quarter == 1 || quarter == 2 ? -a : a;
	*s = quarter >= 2 ? -b : b;
}

/* turns[row][half][cosine, sine] */
__global__ void find_turns(const int32_t *row_pos, int n, int half, double magnitude, const double *inv_freq,
			   float *turns)
{
	kn_begin();
	int i = (int)blockIdx.x * THREADS + (int)threadIdx.x;
	double c, s;
	if (i >= n)
		return;
	cos_sin((double)row_pos[i / half] * inv_freq[i % half], &c, &s);
	turns[2 * i] = (float)(magnitude * c);
	turns[2 * i + 1] = (float)(magnitude * s);
}

/* ---- one kernel ---- */

/* A warp for each row's key head. */
__global__ void rope_kv_write(struct rope_call c)
{
	kn_begin();
	int i = (int)blockIdx.x * WARPS + (int)threadIdx.x / KN_WARP, lane = (int)threadIdx.x % KN_WARP;
	int row = i / c.pages.n_kv_heads, head = i % c.pages.n_kv_heads;
	struct head_place to = {0, 0};
	if (row < c.n_rows) {
		to = place_of(c, row, head);
		turn_head(c, row, head, lane);
	}
	kn_barrier(); /* other lanes rotated the values written below */
	if (row < c.n_rows)
		write_head(c, to, row, head, lane);
}

/* The frequencies on the device. A model has at most two tables, which do not change while the backend is open, so
 * their address identifies them. */
static int freqs_of(struct kn_backend *b, const struct kn_rope *rope, struct kn_freqs **out)
{
	for (int i = 0; i < KN_N_FREQS; i++)
		if (b->freqs[i].host == rope->inv_freq) {
			*out = &b->freqs[i];
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
	f->turned = false;
	void *at = NULL;
	rc = dev_alloc(b->dev, bytes, &at);
	if (rc != 0)
		return rc;
	f->at = (double *)at;
	if ((rc = dev_copy_in(b->dev, f->at, rope->inv_freq, bytes)) != 0)
		return rc;
	f->host = rope->inv_freq;
	*out = f;
	return 0;
}

/* The kernel that makes the angles, once a step. A product that was recorded last stays the last: what follows it may
 * become its end. */
static int find(struct kn_backend *b, const struct kn_rope *rope, struct kn_freqs *f)
{
	int half = rope->n_rot / 2, n = b->step->n_rows * half;
	struct kn_taken last;
	if (kn_cuda_room(b, &f->turns, (size_t)n * 2 * sizeof(float)) != 0)
		return SL_EIO;
	bool back = kn_cuda_take_back(b, &last);
	int rc = KN_LAUNCH(b->dev, find_turns, (unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, b->pos, n, half,
			   (double)rope->magnitude, f->at, (float *)f->turns.at);
	if (rc == 0 && back)
		rc = kn_cuda_put_back(b, &last);
	f->turned = rc == 0;
	f->magnitude = rope->magnitude;
	return rc;
}

int kn_cuda_turns(struct kn_backend *b, const struct kn_rope *rope, struct turn *turn)
{
	struct kn_freqs *f;
	turn->n_rot = rope->n_rot;
	turn->halves = rope->halves;
	if (rope->n_rot == 0)
		return 0;
	if (freqs_of(b, rope, &f) != 0)
		return SL_EIO;
	if ((!f->turned || f->magnitude != rope->magnitude) && find(b, rope, f) != 0)
		return SL_EIO;
	turn->turns = (const float *)f->turns.at;
	return 0;
}

/* y: what the product made last, [n_out] a row; its last q_width outputs but those of keys and values, if it has these,
 * are queries. */
static int launch(struct kn_backend *b, const struct kn_rope *rope, struct rope_call *c, const struct kn_kv *kv,
		  int layer, const float *y, int q_width, int n_out)
{
	struct kn_then then = {};
	c->turn.grow = rope->grow;
	c->turn.grow_every = rope->grow_every;
	c->turn.grow_from = rope->grow_from;
	/* Four pairs lie in 16 bytes twice, and every head begins at a multiple of 16. */
	c->turn.wide = rope->n_rot % 8 == 0 && kv->head_dim % 4 == 0 && ((uintptr_t)c->q | (uintptr_t)c->k) % 16 == 0;
	if (kn_cuda_turns(b, rope, &c->turn) != 0)
		return SL_EIO;
	c->pages = kn_pages_of(b, kv, layer);
	c->type = kv->type;
	c->row_pos = b->pos;
	c->row_seq = b->seq;
	c->k_pool = (uint8_t *)kv->k;
	c->v_pool = (uint8_t *)kv->v;
	c->n_rows = b->step->n_rows;
	then.what = KN_THEN_ROPE;
	then.rope = *c;
	then.q_width = q_width;
	int rc = kn_cuda_then(b, y, n_out, &then), n = c->n_rows * kv->n_kv_heads;
	return rc == KN_NOT_TAKEN
		   ? KN_LAUNCH(b->dev, rope_kv_write, (unsigned)((n + WARPS - 1) / WARPS), THREADS, 0, *c)
		   : rc;
}

int kn_cuda_rope_kv_write(struct kn_backend *b, const struct kn_rope *rope, float *q, int n_heads, float *k,
			  const float *v, const struct kn_kv *kv, int layer)
{
	struct rope_call c = {}; /* padding must be zero in a command */
	int kv_width = kv->n_kv_heads * kv->head_dim;
	c.q = q;
	c.k = k;
	c.v = v;
	c.n_heads = n_heads;
	c.q_row = n_heads * kv->head_dim;
	c.k_row = kv_width;
	return launch(b, rope, &c, kv, layer, v, 0, kv_width);
}

int kn_cuda_qkv_rope_write(struct kn_backend *b, const struct kn_rope *rope, float *qkv, int n_heads,
			   const struct kn_kv *kv, int layer)
{
	struct rope_call c = {};
	int q_width = n_heads * kv->head_dim, kv_width = kv->n_kv_heads * kv->head_dim, row = q_width + 2 * kv_width;
	c.q = qkv;
	c.k = qkv + q_width;
	c.v = qkv + q_width + kv_width;
	c.n_heads = n_heads;
	c.q_row = c.k_row = row;
	return launch(b, rope, &c, kv, layer, qkv, q_width, row);
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
