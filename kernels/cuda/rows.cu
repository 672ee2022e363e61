/* SPDX-License-Identifier: Apache-2.0
 *
 * What is done to each row, or each number, by itself. All of it is bound by memory; none of it depends
 * on which rows are together.
 *
 * VERSIONS
 *  1  one block a row for the norm, one thread a number for the others. Not measured on a device yet;
 *     expected: within 20 % of a copy for rows of 4096, launches dominate below 16 rows.
 */
#include "kernels/cuda/backend.h"

enum { THREADS = 128, WARPS = THREADS / KN_WARP };

static unsigned blocks_of(int64_t n)
{
	return (unsigned)((n + THREADS - 1) / THREADS);
}

/* ---- the norm ---- */

__global__ void rmsnorm(const float *x, const float *gain, float eps, int width, float *y)
{
	float *sums = (float *)kn_shared(); /* [WARPS] */
	int t = (int)threadIdx.x;
	int64_t row = (int64_t)blockIdx.x * width;
	float sum = 0;
	for (int i = t; i < width; i += THREADS)
		sum = kn_fma(x[row + i], x[row + i], sum);
	sum = kn_warp_sum(sum);
	if (t % KN_WARP == 0)
		sums[t / KN_WARP] = sum;
	kn_barrier();
	sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
	float scale = 1.0f / sqrtf(sum / (float)width + eps);
	for (int i = t; i < width; i += THREADS)
		y[row + i] = x[row + i] * scale * gain[i];
}

int kn_cuda_rmsnorm(struct kn_backend *b, const float *x, const float *gain, float eps, int n_rows, int width,
		    float *y)
{
	return KN_LAUNCH(b->dev, rmsnorm, (unsigned)n_rows, THREADS, WARPS * sizeof(float), x, gain, eps, width, y);
}

/* ---- numbers ---- */

__device__ static inline int64_t number(void)
{
	return (int64_t)blockIdx.x * THREADS + threadIdx.x;
}

__global__ void silu_mul(float *gate, const float *up, int64_t n)
{
	int64_t i = number();
	if (i < n)
		gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

/* (1 + tanh(z)) / 2 is 1 / (1 + exp(-2z)), which loses nothing where tanh is close to -1. */
__global__ void gelu_mul(float *gate, const float *up, int64_t n)
{
	int64_t i = number();
	if (i >= n)
		return;
	float g = gate[i], z = 0.7978845608f * (g + 0.044715f * g * g * g);
	gate[i] = g / (1.0f + expf(-2.0f * z)) * up[i];
}

__global__ void add(float *x, const float *y, int64_t n)
{
	int64_t i = number();
	if (i < n)
		x[i] += y[i];
}

__global__ void add_row(float *x, const float *row, int64_t n, int width)
{
	int64_t i = number();
	if (i < n)
		x[i] += row[i % width];
}

__global__ void scale_by(float *x, float factor, int64_t n)
{
	int64_t i = number();
	if (i < n)
		x[i] *= factor;
}

__global__ void softcap(float *x, float cap, int64_t n)
{
	int64_t i = number();
	if (i < n)
		x[i] = cap * tanhf(x[i] / cap);
}

__global__ void gather(const float *x, const int32_t *rows, int64_t n, int width, float *y)
{
	int64_t i = number();
	if (i < n)
		y[i] = x[(int64_t)rows[i / width] * width + i % width];
}

int kn_cuda_silu_mul(struct kn_backend *b, float *gate, const float *up, int n_rows, int width)
{
	int64_t n = (int64_t)n_rows * width;
	return KN_LAUNCH(b->dev, silu_mul, blocks_of(n), THREADS, 0, gate, up, n);
}

int kn_cuda_gelu_mul(struct kn_backend *b, float *gate, const float *up, int n_rows, int width)
{
	int64_t n = (int64_t)n_rows * width;
	return KN_LAUNCH(b->dev, gelu_mul, blocks_of(n), THREADS, 0, gate, up, n);
}

int kn_cuda_add(struct kn_backend *b, float *x, const float *y, int n_rows, int width)
{
	int64_t n = (int64_t)n_rows * width;
	return KN_LAUNCH(b->dev, add, blocks_of(n), THREADS, 0, x, y, n);
}

int kn_cuda_add_row(struct kn_backend *b, float *x, const float *row, int n_rows, int width)
{
	int64_t n = (int64_t)n_rows * width;
	return KN_LAUNCH(b->dev, add_row, blocks_of(n), THREADS, 0, x, row, n, width);
}

int kn_cuda_scale(struct kn_backend *b, float *x, float factor, int n_rows, int width)
{
	int64_t n = (int64_t)n_rows * width;
	return KN_LAUNCH(b->dev, scale_by, blocks_of(n), THREADS, 0, x, factor, n);
}

int kn_cuda_softcap(struct kn_backend *b, float *x, float cap, int n_rows, int width)
{
	int64_t n = (int64_t)n_rows * width;
	return KN_LAUNCH(b->dev, softcap, blocks_of(n), THREADS, 0, x, cap, n);
}

int kn_cuda_gather(struct kn_backend *b, const float *x, const int32_t *rows, int n, int width, float *y)
{
	const int32_t *picks;
	if (kn_cuda_stage_picks(b, rows, n, &picks) != 0)
		return SL_EIO;
	int64_t all = (int64_t)kn_cuda_rows(b, n) * width;
	return KN_LAUNCH(b->dev, gather, blocks_of(all), THREADS, 0, x, picks, all, width, y);
}
