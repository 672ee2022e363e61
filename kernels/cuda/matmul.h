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

/* KN_ROWS: rows of a matrix unit's tile. KN_SUMS: bytes of the sums of a tile's slab. */
enum { KN_PARTS = 8, KN_ROWS = 8, KN_FEW_ROWS = 16, KN_SUMS = 2 * KN_ROWS * 4 };

/* Tiles of eight rows; missing rows of the last tile are zero. The slabs of a tile are units of 512 bytes: lane l's
 * four pairs are numbers of row l / 4, with the k that packed.h names. Up to KN_FEW_ROWS rows they are 16 bytes after
 * each other; of more rows pair i of all lanes are a matrix of 8 rows of 16 bytes, as kn_ldmatrix_x4 and kn_wgmma take
 * it. sums[tile][slab][t][half][2]: sums over the units' numbers of rows 2t and 2t + 1, so that a lane's four are one
 * load (kn_sum_at). inverse[row]: the factor for a sum. */
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

/* The place, in words, of pair i (0…3) of lane 4 * in + t in a unit. */
__device__ static inline int kn_unit_at(bool matrices, int in, int t, int i)
{
	return matrices ? (i * KN_ROWS + in) * 4 + t : (in * 4 + t) * 4 + i;
}

__device__ static inline int kn_part_begin(int part, int n_chunks)
{
	return (int)((int64_t)part * n_chunks / KN_PARTS);
}

/* What a finished sum stands for. */
__device__ static inline float kn_scaled(const struct kn_product &p, int row, int out, float sum)
{
	sum *= p.x.inverse[row];
	return p.w_scale != NULL ? sum * (p.w_scale[out] * 256.0f) : sum; /* FP8: packed.h */
}

/* Scales and stores a finished sum. */
__device__ static inline void kn_put(const struct kn_product &p, int row, int out, float sum)
{
	if (row < p.x.n_rows && out < p.n_out)
		p.y[(int64_t)row * p.n_out + out] = kn_scaled(p, row, out, sum);
}

/* A lane's four sums as kn_slab_product takes them: of a slab's halves, or of all of it in the first place. */
template <int TYPE> __device__ static inline void kn_take_sums(const struct kn_u4 &four, float (*sum)[2])
{
	UNROLL_FOR(int i = 0; i < 2; i++) {
		sum[0][i] = kn_bits_float(kn_word(four, i));
		sum[1][i] = kn_bits_float(kn_word(four, 2 + i));
		if (!kn_form<TYPE>::by16)
			sum[0][i] += sum[1][i];
	}
}

/* matvec.cu: up to KN_FEW_ROWS. mma.cu: more. SL_EUNSUPPORTED: the type is not packed. */
int kn_cuda_matvec(struct kn_backend *b, int type, const struct kn_product *p);
int kn_cuda_mma(struct kn_backend *b, int type, const struct kn_product *p);
/* wgmma.cu: more than KN_FEW_ROWS. KN_NOT_TAKEN: this device, or type, is for mma.cu. */
int kn_cuda_wgmma(struct kn_backend *b, int type, const struct kn_product *p);
/* mma.cu: the sums parts[KN_PARTS][n_rows][n_out] become the product. */
int kn_cuda_add_parts(struct kn_backend *b, const struct kn_product *p, const float *parts);

#endif
