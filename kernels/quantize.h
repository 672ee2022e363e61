/* SPDX-License-Identifier: Apache-2.0
 *
 * Between float32 and the weight types, on the host: for files that are converted, not for
 * computing. Portable, deterministic: the same bits on every machine.
 */
#ifndef KERNELS_QUANTIZE_H
#define KERNELS_QUANTIZE_H

#include "kernels/kernels.h"

/* n weights, a multiple of the type's block, to float32, exact up to one rounding (blocks.h). */
void kn_dequantize(int type, const void *at, size_t n, float *y);

#endif
