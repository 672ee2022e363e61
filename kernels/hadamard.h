/* SPDX-License-Identifier: Apache-2.0
 *
 * The normalized Hadamard transform of blocks of a head: keys and queries are multiplied by the same orthogonal matrix,
 * which leaves their products what they are and spreads a channel that is much larger than the others over its block
 * (Ashkboos et al., "QuaRot", 2024; Lin et al., "QServe", 2024).
 */
#ifndef KERNELS_HADAMARD_H
#define KERNELS_HADAMARD_H

#include <math.h>

/* The largest power of two that divides n > 0. */
static inline int kn_hadamard_block(int n) { return n & -n; }

/* Transforms each block of x[n] in place; block is a power of two that divides n. The order of the sums is fixed. */
static inline void kn_hadamard(float *x, int n, int block)
{
	float norm = (float)(1 / sqrt((double)block));
	for (int apart = 1; apart < block; apart *= 2)
		for (int i = 0; i < n; i += 2 * apart)
			for (int j = i; j < i + apart; j++) {
				float a = x[j], b = x[j + apart];
				x[j] = a + b;
				x[j + apart] = a - b;
			}
	for (int i = 0; i < n; i++)
		x[i] *= norm;
}

#endif
