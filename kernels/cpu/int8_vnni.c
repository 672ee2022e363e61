/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512 with VNNI: 8-bit products by vpdpbusd, which multiplies unsigned by signed bytes and adds four products to an
 * int32, exactly. 8-bit weights are stored with 128 added.
 *
 * VERSIONS
 *   1  written without such a processor. Expected from a prototype on one: 32 outputs by 6 rows were best, at 76 to 78
 *      % of the measured rate. Measured later, on a shared Sapphire Rapids (one thread: 0.82 Top/s of vpdpbusd alone),
 *      512 rows of 2048 × 2048: Q8_0 and Q4_0 237 to 265 GMAC/s (58 to 64 %), Q4_K 218 to 242, Q6_K 200 to 210.
 *      All types give AVX2's bits.
 *   2  few rows of Q8_0 without a panel, adding 128 on the way; prefetching 2 KB ahead instead of 8: at 4 KB and
 *      8 KB, prefetched and used lines share sets of the L1 cache. One answer of a model of 1.3 GB, two threads, runs
 *      alternating: with a panel 20.2 tokens/s (79 % of the reading rate); without one 21.5 at 8 KB, 23.0 without
 *      prefetching, 24.1 to 24.6 at 512 B to 2 KB (in one series 19.8 at 4 KB against 24); Q4_K 34.2 at 8 KB, 35.5 at
 *      512 B, 40.3 at 2 KB. Prefetching to the L2 cache only: no difference beyond noise.
 *   3  this, on a Zen 5 (two processors, 46 to 50 GB/s in most moments). Few rows of MXFP4 without a panel, its
 *      scales a vector at a time (one by one before, two thirds of an answer's time); Q4_K's scales once for eight
 *      blocks, both nibbles of a load, high nibbles where they are (their sums are shifted instead of them); a tile's
 *      streams go on with the next tile's groups: before, the second group of each tile was read with nothing asked
 *      for. One row, one thread, GB/s from the caches: MXFP4 20.7 before, 75.4 now; Q4_K 69.7 and 87.1; Q6_K and Q4_0
 *      the same. From memory (matrices of 1024 × 2048 in random order, others at work, medians of two): MXFP4 14.6 and
 *      29.4, Q4_K 22.1 and 31.7, Q6_K 16.0 and 24.2, Q4_0 26.0 and 31.7, Q8_0 31.9 and 34.3; of these the streams are
 *      26.4 to 29.4, 27.2 to 31.7, 17.5 to 24.2, 25.8 to 31.7, 31.5 to 34.3. Asking for weights 1, 3, 4, 6, 8 KB ahead
 *      without that: Q4_K 18.6, 23.6, 23.6, 22.3, 20.4.
 *      Many rows: 281 instructions for 6 rows × 32 outputs × 32 weights with offsets, 96 of them vpdpbusd, 36 more that
 *      multiply (12 scale · d, 24 fused): 132 on the two pipes that multiply are 66 cycles where vpdpbusd alone takes
 *      48. So 73 % of the int8 rate is the most for Q4_K, and 80 % without offsets; measured 324 and 338 GMAC/s at 64
 *      rows, 62 and 64 % of one thread's 525.
 */
#include "kernels/cpu/int8.h"
#include "kernels/cpu/simd_bytes_512.h"

#define INT8(name) kn_int8_##name##_vnni

enum {
	TILE_ROWS = 6,
	BIAS_NARROW = 16,
	BIAS_FINE = 32,
	BIAS_WIDE = 128,
	AHEAD = 2048,
	DIRECT_K_ROWS = 4,
	HIGH_IN_PLACE = 1
};

struct sums {
	__m512i v;
};

static inline struct sums sums_begin(const int32_t *begin) { return (struct sums){_mm512_set1_epi32(*begin)}; }

static inline struct sums sums_eights(const int32_t *begin) { return (struct sums){_mm512_set1_epi32(*begin / 2)}; }

static inline struct sums sums_zero(void) { return (struct sums){_mm512_setzero_si512()}; }

static inline struct sums sums_dot(struct sums s, vb w, vb x)
{
	return (struct sums){_mm512_dpbusd_epi32(s.v, (__m512i)w, (__m512i)x)};
}

static inline vi sums_end(struct sums s) { return (vi)s.v; }

static inline struct sums wide_begin(const struct int8_block *x) { return sums_begin(&x->begin[1]); }

static inline struct sums wide_dot(struct sums s, vb w, vb x) { return sums_dot(s, w, x); }

static inline vi wide_end(struct sums s) { return sums_end(s); }

#include "kernels/cpu/simd_int8.h"
