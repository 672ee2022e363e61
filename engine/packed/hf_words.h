/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices of integers of 4 or 8 bits in words of 32: GPTQ's, AWQ's and compressed-tensors' "pack-quantized". A scale
 * and a zero point belong to a group of weights along K of an output. Here for 4 bits, eight in a word (8 bits: four):
 *
 *  form    integers, I32                             zero points                          scales
 *  gptq    qweight [K/8][out], 8 of K in a word      qzeros [groups][out/8], less one     scales [groups][out]
 *  awq     qweight [K][out/8], outputs 0 2 4 6 1 3   qzeros [groups][out/8], like them    scales [groups][out]
 *          5 7 of eight from the low bits on
 *  packed  weight_packed [out][K/8]                  weight_zero_point [out/8][groups]    weight_scale [out][groups]
 *
 * A weight is scale · (q - zero). What it becomes, and the error:
 *
 *  4 bits, all zero points 8       INT4 (group size a multiple of 128) or Q4_0 (of 32): exact for float16 scales; others
 *                                  are rounded to float16, by at most 2^-11 of the scale and 2^-25
 *  4 bits, other zero points       Q4_1 with a minimum of -scale · zero in float16, off by at most 2^-11 of it
 *  8 bits, all zero points 128     Q8_0: as INT4
 *  8 bits, other zero points       Q8_0: rounded again, by at most 1/254 of the largest of 32 weights
 *  groups of any columns (g_idx)   Q8_0: likewise. Neighbours have different scales, so no type with a scale for a
 *                                  block can have the integers; reordered activations would cost a pass for each matrix
 *
 * So the bytes read for a token are those of the folder, but twice as many with g_idx.
 *
 * Sources: Frantar et al., "GPTQ", 2023, and AutoGPTQ's qlinear_cuda; Lin et al., "AWQ", 2024, and AutoAWQ's pack
 * functions; compressed-tensors' pack_to_int32.
 */
#ifndef ENGINE_HF_WORDS_H
#define ENGINE_HF_WORDS_H

#include "engine/packed/hf_matrix.h"

#endif
