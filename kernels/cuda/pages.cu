/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary embedding, and keys and values into their pages, in one kernel: a block has a row. Its angles
 * are made once, in double as the reference makes them (at position 100,000 float would be off by
 * 2^-8), for all heads.
 *
 * VERSIONS
 *  1  one block a row. Not measured on a device yet; expected: bound by the launch for decodes, by double
 *     sines for long prompts on devices with few double units.
 */
#include "kernels/cuda/backend.h"

enum { THREADS = 128 };

struct turn {
	int n_rot;
	bool halves;
	float magnitude;
	const double *inv_freq;
};

/* Turns the pairs of n_heads heads that lie one after the other. */
__device__ static void rotate(const struct turn &turn, const float *turns, float *x, int n_heads, int head_dim, int t)
{
	int half = turn.n_rot / 2;
	for (int i = t; i < n_heads * half; i += THREADS) {
		int pair = i % half, a = turn.halves ? pair : 2 * pair, b = turn.halves ? pair + half : a + 1;
		float *head = x + (int64_t)(i / half) * head_dim, c = turns[2 * pair], s = turns[2 * pair + 1];
		float u = head[a], v = head[b];
		head[a] = u * c - v * s;
		head[b] = u * s + v * c;
	}
}

__global__ void rope_kv_write(struct turn turn, struct kn_pages pages, const int32_t *row_pos, const int32_t *row_seq,
			      float *q, int n_heads, float *k, const float *v, float *k_pool, float *v_pool)
{
	float *turns = (float *)kn_shared(); /* [n_rot / 2][cosine, sine] */
	int t = (int)threadIdx.x, row = (int)blockIdx.x, hd = pages.head_dim, pos = row_pos[row];
	int width = pages.n_kv_heads * hd;
	for (int i = t; i < turn.n_rot / 2; i += THREADS) {
		double angle = (double)pos * turn.inv_freq[i];
		turns[2 * i] = (float)((double)turn.magnitude * cos(angle));
		turns[2 * i + 1] = (float)((double)turn.magnitude * sin(angle));
	}
	kn_barrier();
	q += (int64_t)row * n_heads * hd;
	k += (int64_t)row * width;
	v += (int64_t)row * width;
	rotate(turn, turns, q, n_heads, hd, t);
	rotate(turn, turns, k, pages.n_kv_heads, hd, t);
	kn_barrier(); /* other threads turned what is written now */
	int in_page = pos % pages.page_tokens;
	for (int i = t; i < width; i += THREADS) {
		int64_t at = kn_page_at(pages, row_seq[row], pos, i / hd);
		int d = i % hd;
		k_pool[at + (int64_t)d * pages.page_tokens + in_page] = k[i];
		v_pool[at + (int64_t)in_page * hd + d] = v[i];
	}
}

/* The frequencies on the device: those of a model are two tables at most and do not change while the
 * backend is open, so they are known by their address. */
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
	int rc = dev_sync(b->dev); /* nobody may still be reading the ones that go */
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

int kn_cuda_rope_kv_write(struct kn_backend *b, const struct kn_rope *rope, float *q, int n_heads, float *k,
			  const float *v, const struct kn_kv *kv, int layer)
{
	struct turn turn = {};
	turn.n_rot = rope->n_rot;
	turn.halves = rope->halves;
	turn.magnitude = rope->magnitude;
	if (rope->n_rot > 0 && freqs_of(b, rope, &turn.inv_freq) != 0)
		return SL_EIO;
	return KN_LAUNCH(b->dev, rope_kv_write, (unsigned)b->step->n_rows, THREADS, (size_t)rope->n_rot * sizeof(float),
			 turn, kn_pages_of(b, kv, layer), b->pos, b->seq, q, n_heads, k, v, (float *)kv->k,
			 (float *)kv->v);
}

int kn_cuda_page_copy(struct kn_backend *b, const struct kn_kv *kv, int src, int dst)
{
	size_t page = (size_t)kv->n_layers * (size_t)kv->page_tokens * (size_t)kv->n_kv_heads * (size_t)kv->head_dim;
	float *k = (float *)kv->k, *v = (float *)kv->v;
	int rc = dev_copy(b->dev, k + (size_t)dst * page, k + (size_t)src * page, page * sizeof *k);
	return rc != 0 ? rc : dev_copy(b->dev, v + (size_t)dst * page, v + (size_t)src * page, page * sizeof *v);
}
