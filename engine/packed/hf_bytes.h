/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices of a byte for each weight, [out][K]: integers (I8), or floats of four bits of exponent and three of mantissa
 * (F8_E4M3), with scales in a float each (or, of fp8, in F8_E8M0). A weight is scale · (q - zero), zero only of
 * integers.
 *
 *  scales of       shape of weight_scale or weight_scale_inv, by which weights are multiplied
 *  the tensor      [], [1]
 *  an output       [out][1], [out]
 *  a group along K [out][K/group]
 *  a block         [⌈out/rows⌉][⌈K/width⌉], 128 × 128 in DeepSeek's and Qwen's folders
 *
 * What it becomes, if K is a multiple of 32, is Q8_0, 8.5 bits for a weight:
 *
 *  I8, zero points 0  the same integers; scales are rounded to float16, by at most 2^-11 of the scale and 2^-25
 *  I8, others         rounded again, by at most 1/254 of the largest of 32 weights
 *  F8_E4M3            likewise. That is a fifth of the rounding which fp8 itself has cost weights of normal
 *                     distribution (root mean square 0.005 and 0.026 of their deviation), for half the bytes of BF16.
 *                     No backend multiplies e4m3 weights from a file
 *
 * Rows of other widths, or of integers with groups that are no multiple of 32, become BF16, off by at most 2^-9 of
 * each.
 *
 * Sources: DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, 3.3, and its weight_dequant; compressed-tensors'
 * naive_quantized; transformers' finegrained_fp8.
 */
#ifndef ENGINE_HF_BYTES_H
#define ENGINE_HF_BYTES_H

#include "engine/packed/hf_matrix.h"

#endif
