/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts between float32 and the weight types, on the host: for converting files, not for inference. Portable,
 * deterministic: the same bits on every machine.
 */
#ifndef KERNELS_QUANTIZE_H
#define KERNELS_QUANTIZE_H

#include "kernels/kernels.h"

/* n values, a multiple of the type's block, from x into kn_row_bytes(type, n) bytes at out. A short search minimizes
 * the squared error of the scales. SL_EINVAL when a value is not finite or beyond the type's range; out then is
 * unspecified. */
int kn_quantize_row(int type, const float *x, size_t n, void *out);

/* How the inputs of a matrix are correlated, for rounding that makes the errors of its outputs small. Inputs are taken
 * in groups of `group`, a multiple of 256, the last of which may be smaller; each has a factor: from group · first on,
 * first being its first input, [m][m] floats for m inputs. With H the second moments of the inputs, it is upper
 * triangular and its transpose times itself is the inverse of H. */
struct kn_inputs {
	size_t n, group;
	const float *factors;
};
/* h [m][m] becomes its factor; of H, its upper triangle is read. `damp` times the mean of the diagonal is added to the
 * diagonal. SL_EINVAL: H is not finite, or zero; SL_ENOMEM. */
int kn_inputs_factor(float *h, size_t m, double damp);
/* Whether kn_quantize_row_for supports the type: Q2_K to Q6_K, Q4_0 to Q5_1, Q8_0 and IQ4_NL. */
bool kn_quantizes_for(int type);
/* As kn_quantize_row, one value after the other: the error of each is made good by those after it (Frantar et al.,
 * "GPTQ", 2022). Scales are those that fit what the values have become when their block begins. x is overwritten. */
int kn_quantize_row_for(int type, float *x, const struct kn_inputs *in, size_t n, void *out);

/* The inverse, exact up to one rounding (blocks.h). */
void kn_dequantize(int type, const void *at, size_t n, float *y);

#endif
