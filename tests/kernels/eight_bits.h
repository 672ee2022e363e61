/* SPDX-License-Identifier: Apache-2.0
 *
 * What products with activations of eight bits (kernels/cpu/int8.h) may be off by.
 */
#ifndef TESTS_KERNELS_EIGHT_BITS_H
#define TESTS_KERNELS_EIGHT_BITS_H

#include <math.h>
#include <stdbool.h>

#include "kernels/kernels.h"

/* Whether a table makes products of this type so: of weights in blocks as files have them. */
static inline bool eight_bits(const struct kn_ops *o, int type)
{
	return o->eight_bits && kn_type_block(type) > 1 && type != KN_INT4;
}

/* By how much such a product of one row, n long, may be off for its activations alone: each is off by
 * half a step, which is 1/127 of the largest of its 32, or by a few units in the last place of 127 more
 * for the rounding of x · (127 / largest) and of the step. Blocks below 2^-119 are zeros. */
static inline double eight_bits_error(const double *w, const float *x, int n)
{
	double error = 0;
	for (int k = 0; k < n; k += 32) {
		double largest = 0, weights = 0;
		for (int l = k; l < k + 32 && l < n; l++) {
			largest = fmax(largest, fabs((double)x[l]));
			weights += fabs(w[l]);
		}
		error += weights * (largest < 0x1p-119 ? largest : largest / 127 * (0.5 + 4 * 127 * 0x1p-24));
	}
	return error;
}

/* What a model's logits may be off by for the rounding of activations, of their root mean square, n_products being made
 * one after the other; 0: for nothing.
 *
 * Activations of eight bits have steps of 1/127 of the largest of 32, which is at most sqrt(32) times their root mean
 * square; an error evenly spread over a step has its 1/sqrt(12). CUDA rounds them to 11 bits (beside bfloat16 to its
 * 8), evenly spread over what that may be off by, 2^-11 (2^-8) at most. Errors of products one after the other are
 * independent, so their squares add up; a norm takes the scale off, and what goes around a product by the residual
 * keeps its own. */
static inline double rounding_share(const struct kn_ops *o, int type, int n_products)
{
	if (eight_bits(o, type))
		return sqrt(32.0 / 12.0) / 127 * sqrt(n_products);
	double rounds = strncmp(o->name, "cuda", 4) != 0 ? 0 : type == KN_BF16 ? 0x1p-8 : 0x1p-11;
	return rounds / sqrt(3) * sqrt(n_products);
}

#endif
