/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with weights of every type, and embedding rows.
 *
 * A warp makes one output of up to KN_TILE rows: its lanes take eight weights each, in turns, decode
 * them once and multiply them with every row; a fixed tree adds the lanes up. So the order of a sum
 * depends on the width alone, and a row's result not on its company.
 *
 * More rows than a tile are more tiles, each of which reads the weights again.
 *
 * VERSIONS
 *  1  as above, x from the caches, weights as in the file. Not measured on a device yet; expected: bound
 *     by memory for one row of f16, bf16 and Q8_0 at about half of a copy's rate (narrow loads), by decoding for
 *     the k-types; far from any limit for prompts, which want tensor cores.
 */
#include "kernels/cuda/backend.h"
#include "kernels/cuda/decode.h"

enum { THREADS = 128, OUTS = THREADS / KN_WARP, STEP = 8 * KN_WARP };

#define EACH_TYPE(X)                                                                                       \
	X(KN_F32) X(KN_F16) X(KN_BF16) X(KN_Q4_0) X(KN_Q4_1) X(KN_Q5_0) X(KN_Q5_1) X(KN_Q8_0) X(KN_IQ4_NL) \
	X(KN_MXFP4) X(KN_Q2_K) X(KN_Q3_K) X(KN_Q4_K) X(KN_Q5_K) X(KN_Q6_K) X(KN_IQ4_XS)

bool kn_cuda_can_decode(int type)
{
	switch (type) {
#define KNOWN(t) case t:
		EACH_TYPE(KNOWN)
#undef KNOWN
		return true;
	default:
		return false;
	}
}

template <int TYPE, int ROWS>
__global__ void matvec(const uint8_t *w, int64_t row_bytes, int n_out, int n_in, const float *x, int n_rows, float *y)
{
	int t = (int)threadIdx.x, lane = t % KN_WARP, first = (int)blockIdx.y * ROWS;
	int out = (int)blockIdx.x * OUTS + t / KN_WARP;
	if (out >= n_out)
		return; /* the whole warp */
	int n = n_rows - first < ROWS ? n_rows - first : ROWS, whole = n_in / 8 * 8;
	const uint8_t *row = w + out * row_bytes;
	x += (int64_t)first * n_in;
	float sum[ROWS], v[8];
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		sum[r] = 0;
	for (int k = 8 * lane; k < whole; k += STEP) {
		kn_decode8<TYPE>(row, k, v);
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			if (r < n) {
				const float *xr = x + (int64_t)r * n_in + k;
#pragma unroll
				for (int i = 0; i < 8; i++)
					sum[r] = kn_fma(v[i], xr[i], sum[r]);
			}
	}
	/* What is left of a row goes to the lane whose turn it is. */
	if (whole / 8 % KN_WARP == lane)
		for (int k = whole; k < n_in; k++) {
			v[0] = kn_decode1<TYPE>(row, k);
#pragma unroll
			for (int r = 0; r < ROWS; r++)
				if (r < n)
					sum[r] = kn_fma(v[0], x[(int64_t)r * n_in + k], sum[r]);
		}
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		if (r < n) {
			float all = kn_warp_sum(sum[r]);
			if (lane == 0)
				y[(int64_t)(first + r) * n_out + out] = all;
		}
}

template <int TYPE> static int product(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y)
{
	int64_t row_bytes = (int64_t)b->host->row_bytes(TYPE, (size_t)w->n_in);
	const uint8_t *at = (const uint8_t *)w->data;
	unsigned blocks = ((unsigned)w->n_out + OUTS - 1) / OUTS, tiles = ((unsigned)n_rows + KN_TILE - 1) / KN_TILE;
	if (n_rows == 1)
		return KN_LAUNCH(b->dev, (matvec<TYPE, 1>), blocks, THREADS, 0, at, row_bytes, w->n_out, w->n_in, x,
				 n_rows, y);
	if (n_rows <= 4)
		return KN_LAUNCH(b->dev, (matvec<TYPE, 4>), blocks, THREADS, 0, at, row_bytes, w->n_out, w->n_in, x,
				 n_rows, y);
	return KN_LAUNCH(b->dev, (matvec<TYPE, KN_TILE>), dim3(blocks, tiles), THREADS, 0, at, row_bytes, w->n_out,
			 w->n_in, x, n_rows, y);
}

int kn_cuda_matmul(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y)
{
	switch (w->type) {
#define PRODUCT(t)  \
	case t:     \
		return product<t>(b, w, x, n_rows, y);
		EACH_TYPE(PRODUCT)
#undef PRODUCT
	default:
		return SL_EUNSUPPORTED;
	}
}

/* ---- embedding rows ---- */

template <int TYPE>
__global__ void embed(const uint8_t *w, int64_t row_bytes, int n_in, const int32_t *token, float *y)
{
	int t = (int)threadIdx.x, whole = n_in / 8 * 8;
	const uint8_t *row = w + token[blockIdx.x] * row_bytes;
	float v[8];
	y += (int64_t)blockIdx.x * n_in;
	for (int k = 8 * t; k < whole; k += 8 * THREADS) {
		kn_decode8<TYPE>(row, k, v);
#pragma unroll
		for (int i = 0; i < 8; i++)
			y[k + i] = v[i];
	}
	for (int k = whole + t; k < n_in; k += THREADS)
		y[k] = kn_decode1<TYPE>(row, k);
}

template <int TYPE> static int rows_of(struct kn_backend *b, const struct kn_weight *w, float *y)
{
	return KN_LAUNCH(b->dev, embed<TYPE>, (unsigned)b->step->n_rows, THREADS, 0, (const uint8_t *)w->data,
			 (int64_t)b->host->row_bytes(TYPE, (size_t)w->n_in), w->n_in, b->token, y);
}

int kn_cuda_embed(struct kn_backend *b, const struct kn_weight *w, float *y)
{
	switch (w->type) {
#define ROWS_OF(t) \
	case t:    \
		return rows_of<t>(b, w, y);
		EACH_TYPE(ROWS_OF)
#undef ROWS_OF
	default:
		return SL_EUNSUPPORTED;
	}
}
