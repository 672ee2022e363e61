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

/* The inverse, exact up to one rounding (blocks.h). */
void kn_dequantize(int type, const void *at, size_t n, float *y);

#endif
