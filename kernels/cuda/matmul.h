/* SPDX-License-Identifier: Apache-2.0
 *
 * Definitions shared by the products: the format of activations for matrix units, and the order of summation.
 *
 * Activations become float16 (bfloat16 for weights of that type), each row times a power of two that brings its
 * largest magnitude to [2^14, 2^15), so nothing overflows: each is off by at most 2^-11 (bfloat16: 2^-8) of itself,
 * or 2^-39 of the row's largest. Weights (for quantized types, their integers) are exact. Sums are float32.
 *
 * Order: K is divided into KN_PARTS parts of whole chunks, by K alone. A part is summed from its first slab to its
 * last, then the parts in order. So a row's result has the same bits in every kernel and with any other rows.
 */
#ifndef KERNELS_CUDA_MATMUL_H
#define KERNELS_CUDA_MATMUL_H

#include "kernels/cuda/backend.h"
#include "kernels/cuda/packed.h"

enum { KN_PARTS = 8, KN_ROWS = 8 }; /* KN_ROWS: rows of a matrix unit's tile */

/* Tiles of eight rows; missing rows of the last tile are zero. The slabs of a tile are units of 512 bytes: lane l's
 * 16 bytes are numbers of row l / 4, with the k that packed.h names. sums[tile][slab][half][8 rows]: sums over the
 * units' numbers. inverse[row]: the factor for a sum. */
struct kn_rows {
	const uint8_t *units;
	const float *sums, *inverse;
	int n_rows, n_slabs;
};

/* One product: y[n_rows][n_out] = rows · wᵀ. */
struct kn_product {
	const uint8_t *w;
	const float *w_scale; /* per output, or NULL */
	struct kn_rows x;
	int n_out, n_chunks;
	float *y;
};

__device__ static inline int kn_part_begin(int part, int n_chunks)
{
	return (int)((int64_t)part * n_chunks / KN_PARTS);
}

/* Scales and stores a finished sum. */
__device__ static inline void kn_put(const struct kn_product &p, int row, int out, float sum)
{
	if (row >= p.x.n_rows || out >= p.n_out)
		return;
	sum *= p.x.inverse[row];
	if (p.w_scale != NULL)
		sum *= p.w_scale[out] * 256.0f; /* FP8: packed.h */
	p.y[(int64_t)row * p.n_out + out] = sum;
}

/* Loads the sums over a slab's halves of the activations of rows 2t and 2t + 1 of a tile. */
__device__ static inline void kn_load_sums(const struct kn_rows &x, int tile, int slab, int t, float (*sum)[2])
{
	const float *at = x.sums + ((int64_t)tile * x.n_slabs + slab) * 2 * KN_ROWS + 2 * t;
	UNROLL_FOR(int h = 0; h < 2; h++)
		UNROLL_FOR(int i = 0; i < 2; i++)
			sum[h][i] = at[h * KN_ROWS + i];
}

/* matvec.cu: up to 16 rows. mma.cu: any number. SL_EUNSUPPORTED: the type is not packed. */
int kn_cuda_matvec(struct kn_backend *b, int type, const struct kn_product *p);
int kn_cuda_mma(struct kn_backend *b, int type, const struct kn_product *p);

#endif
