/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNELS_CPU_DEQUANT_H
#define KERNELS_CPU_DEQUANT_H

#include "kernels/kernels.h"

/* One row of a matrix as float32, exactly up to one rounding (kernels/blocks.h). */
void kn_dequantize_row(const struct kn_weight *w, int row, float *y);

#endif
