/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices of four-bit floats (e2m1: 0, ½, 1, 1½, 2, 3, 4, 6 and their negatives), two in a byte, the first in its low
 * nibble, with one scale for some of them along K.
 *
 *  form   scales                                                             a weight is
 *  nvfp4  e4m3 for 16; an F32 for all, weight_scale_2 or, as its inverse,    e2m1 · scale · weight_scale_2,
 *         weight_global_scale                                                e2m1 · scale / weight_global_scale
 *  mxfp4  e8m0 (a power of two) for 32                                       e2m1 · 2^(e - 127)
 *
 * MXFP4 becomes KN_MXFP4: the same numbers in another order, 4.25 bits for a weight. It has one matrix [n_out][n_in/2],
 * or blocks [n_out][n_in/32][16] with scales [n_out][n_in/32], or those of several: [n][n_out][n_in/32][16].
 *
 * NVFP4 becomes Q6_K (6.56 bits; the file has 4.5): twice an e2m1 is an integer of six bits, and so is an e4m3 scale in
 * units of 2^-6 of the binade of the largest of the 16 in a block of 256. So a weight is exact in everything but the
 * block's own scale, which is a float16 with an error of at most 2^-11 of it and 2^-25; a scale more than 8 times below
 * the block's largest is off by at most 2^-7 of that one. Rows that are no multiple of 256 become Q8_0, others yet BF16
 * (hf_bytes.h has their errors).
 *
 * Sources: Open Compute Project, "Microscaling Formats (MX) Specification", 2023, 5.3 and 6.3; NVIDIA, "Pretraining
 * Large Language Models with NVFP4", 2025, appendix on the format; compressed-tensors' pack_fp4_to_uint8.
 */
#ifndef ENGINE_HF_FP4_H
#define ENGINE_HF_FP4_H

#include "engine/packed/hf_matrix.h"

#endif
