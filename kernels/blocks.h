/* SPDX-License-Identifier: Apache-2.0
 *
 * How the weight types lie in memory. A row is a run of blocks; a block holds BLOCK weights in BYTES
 * bytes, little-endian, with no padding. The layouts are those of GGUF files (the ggml library's);
 * d and m are float16, q is what is stored, "low" and "high" are the nibbles of a byte.
 *
 *  type    block bytes  fields (bytes)                        weight
 *  Q4_0       32   18   d 2 | qs 16                           d · (q - 8)
 *  Q4_1       32   20   d 2 | m 2 | qs 16                     d · q + m
 *  Q5_0       32   22   d 2 | qh 4 | qs 16                    d · (q - 16)
 *  Q5_1       32   24   d 2 | m 2 | qh 4 | qs 16              d · q + m
 *  Q8_0       32   34   d 2 | qs 32 int8                      d · q
 *  IQ4_NL     32   18   d 2 | qs 16                           d · kn_nl_values[q]
 *  MXFP4      32   17   e 1 | qs 16                           2^(e - 128) · kn_fp4_values[q]
 *  INT4      128   66  d 2 | qs 64                           d · (q - 8)
 *  Q2_K      256   84   sc 16 | qs 64 | d 2 | m 2             d · low(sc) · q - m · high(sc)
 *  Q3_K      256  110   qh 32 | qs 64 | sc 12 | d 2           d · (sc - 32) · (q - 4)
 *  Q4_K      256  144   d 2 | m 2 | sc 12 | qs 128            d · sc · q - m · mn
 *  Q5_K      256  176   d 2 | m 2 | sc 12 | qh 32 | qs 128    d · sc · q - m · mn
 *  Q6_K      256  210   ql 128 | qh 64 | sc 16 int8 | d 2     d · sc · (q - 32)
 *  IQ4_XS    256  136   d 2 | sh 2 | sl 4 | qs 128            d · (sc - 32) · kn_nl_values[q]
 *
 * Where weight i finds its bits:
 *  - Blocks of 32: nibble i is low(qs[i]) for i < 16 and high(qs[i - 16]) from there; the fifth bit of
 *    Q5 is bit i of qh.
 *  - INT4: as four blocks of 32, one after the other.
 *  - Q4_K, Q5_K: runs of 64; in run g weight l < 32 is low(qs[32g + l]) and weight 32 + l is high of
 *    the same byte; the fifth bit of Q5_K is bit 2g, or 2g + 1, of qh[l]. sc and mn: one for each 32.
 *  - Q2_K, Q3_K: halves of 128; in half h weight 32j + l (j < 4, l < 32) has bits 2j and 2j + 1 of
 *    qs[32h + l]; the third bit of Q3_K is bit 4h + j of qh[l]. sc: one for each 16.
 *  - Q6_K: halves of 128; in half h weight 32j + l has a nibble of ql[64h + 32(j % 2) + l], low for
 *    j < 2, and bits 2j and 2j + 1 of qh[32h + l] above it. sc: one for each 16.
 *  - IQ4_XS: as blocks of 32, one after the other; sc: one for each 32.
 *
 * Packed scales of six bits: Q4_K and Q5_K below (kn_scale_min); Q3_K: scale i has its low four bits in
 * low(sc[i]) for i < 8 and high(sc[i - 8]) from there, its upper two at bit 2(i / 4) of sc[8 + i % 4];
 * IQ4_XS: low four bits in a nibble of sl, in order, low first, upper two at bit 2i of sh.
 *
 * INT4 is never in files: floats and Q8_0 are converted on load. It is symmetric, with one scale per 128 weights
 * along K, like most four-bit checkpoints for 16-bit activations. A zero point would require sums of activations, a
 * multiply-add each and 1/32 bit more, and gains little if weights are centred on zero; Q4_1 and Q4_K have minimums.
 *
 * Every product above is exact in float32 (at most 11 + 6 + 7 bits), so a weight is rounded at most
 * once, in the sum with a minimum, and every implementation gives the same bits.
 */
#ifndef KERNELS_BLOCKS_H
#define KERNELS_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/half.h"

enum { KN_K_BLOCK = 256, KN_SMALL_BLOCK = 32 };

// clang-format off
/* Type, weights of a block, bytes of a block. */
#define KN_TYPES(X)                                                                                     \
	X(F32, 1, 4) X(F16, 1, 2) X(BF16, 1, 2)                                                         \
	X(Q4_0, 32, 18) X(Q4_1, 32, 20) X(Q5_0, 32, 22) X(Q5_1, 32, 24) X(Q8_0, 32, 34)                 \
	X(Q2_K, 256, 84) X(Q3_K, 256, 110) X(Q4_K, 256, 144) X(Q5_K, 256, 176) X(Q6_K, 256, 210)        \
	X(IQ4_NL, 32, 18) X(IQ4_XS, 256, 136) X(MXFP4, 32, 17) X(INT4, 128, 66)
// clang-format on

static inline uint16_t kn_u16_at(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }

static inline uint32_t kn_u32_at(const uint8_t *at) { return kn_u16_at(at) | (uint32_t)kn_u16_at(at + 2) << 16; }

static inline float kn_f16_at(const uint8_t *at) { return kn_f32_from_f16(kn_u16_at(at)); }

/* Scale and minimum j < 8 of Q4_K and Q5_K. The first four have six bits in a byte of their own; the
 * others four in sc[4 + j] and two on top of what belongs to the first four. */
static inline void kn_scale_min(const uint8_t *sc, int j, int *scale, int *min)
{
	if (j < 4) {
		*scale = sc[j] & 63;
		*min = sc[j + 4] & 63;
	} else {
		*scale = (sc[j + 4] & 15) | (sc[j - 4] >> 6) << 4;
		*min = sc[j + 4] >> 4 | (sc[j] >> 6) << 4;
	}
}

/* Scale i < 16 of Q3_K, 32 taken off. */
static inline int kn_scale_q3(const uint8_t *sc, int i)
{
	int low = i < 8 ? sc[i] & 15 : sc[i - 8] >> 4;
	return (low | (sc[8 + i % 4] >> 2 * (i / 4) & 3) << 4) - 32;
}

/* Scale i < 8 of IQ4_XS, 32 taken off; `at` is the block. */
static inline int kn_scale_iq4(const uint8_t *at, int i)
{
	int low = at[4 + i / 2] >> 4 * (i % 2) & 15;
	return (low | (kn_u16_at(at + 2) >> 2 * i & 3) << 4) - 32;
}

/* 2^(e - 128), a subnormal for e < 2. 255, elsewhere not a number, continues the sequence. */
static inline float kn_e8m0_half(uint8_t e)
{
	return kn_f32_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* The values of a nibble of IQ4_NL and IQ4_XS, and twice those of the four-bit floats of MXFP4 (one
 * sign, two exponent and one mantissa bit). */
extern const int8_t kn_nl_values[16], kn_fp4_values[16];

#endif
