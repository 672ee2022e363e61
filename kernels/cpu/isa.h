/* SPDX-License-Identifier: Apache-2.0
 *
 * What an instruction set brings: the inner loops. Everything around them (memory, threads, pages,
 * the table of operations) is cpu.c's and the same for all.
 *
 * Order of reduction, fixed for each function whatever the tile or thread:
 *   dot products over K: lane l of one accumulator adds w[k]·x[k] for k = l, l + lanes, … by fused
 *   multiply-add; the lanes are then added pairwise, halves first. What is left over after the last
 *   whole vector (or block) is added one by one at the end.
 */
#ifndef KERNELS_CPU_ISA_H
#define KERNELS_CPU_ISA_H

#include "kernels/kernels.h"

/* Floats of scratch memory that matmul needs at least for rows of n_in weights: one tile. With more it
 * decodes more at once for all rows. */
static inline size_t kn_least_tile(int n_in)
{
	enum { MAX_LANES = 16, MAX_TILE_OUT = 4 };
	return ((size_t)n_in / MAX_LANES + 1) * MAX_LANES * MAX_TILE_OUT;
}

struct kn_isa {
	const char *name; /* of the backend: "cpu-avx2" */
	/* y[r][o] for o in [o0, o1) and all rows; x is [n_rows][n_in], y is [n_rows][n_out]; tile is
	 * scratch memory of the calling thread, KN_ALIGN-aligned, of tile_floats. */
	void (*matmul)(const struct kn_weight *w, int o0, int o1, const float *x, int n_rows, float *y,
		       float *tile, size_t tile_floats);
	/* scores[i] = scale · q·k_i for n keys that lie stride floats apart. */
	void (*scores)(const float *q, const float *k, size_t stride, int n, int dim, float scale, float *scores);
	/* out[d] += Σ_i p[i]·v_i[d], i in order, for n values that lie stride floats apart. */
	void (*weigh)(const float *p, const float *v, size_t stride, int n, int dim, float *out);
	/* Σ x[i]² in the order above. */
	float (*sum_squares)(const float *x, int n);
};

extern const struct kn_isa kn_isa_avx2, kn_isa_avx512;

#endif
