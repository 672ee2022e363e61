/* SPDX-License-Identifier: Apache-2.0
 *
 * What products with activations of eight bits (kernels/cpu/int8.h) may be off by.
 */
#ifndef TESTS_KERNELS_EIGHT_BITS_H
#define TESTS_KERNELS_EIGHT_BITS_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/kernels.h"

/* Whether a table makes products of this type so: of weights in blocks as files have them. */
static inline bool eight_bits(const struct kn_ops *o, int type)
{
	return kn_type_block(type) > 1 && type != KN_INT4 && (strcmp(o->name, "cpu-avx2-int8") == 0 || strcmp(o->name, "cpu-vnni") == 0);
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

#endif
