/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512 with VNNI: 8-bit products by vpdpbusd, which multiplies unsigned by signed bytes and adds four products to an
 * int32, exactly. 8-bit weights are stored with 128 added.
 *
 * VERSIONS
 *   1  written without such a processor. Expected from a prototype on one: 32 outputs by 6 rows were best, at 76 to 78
 *      % of the measured rate. Measured later, on a shared Sapphire Rapids (one thread: 0.82 Top/s of vpdpbusd alone),
 *      512 rows of 2048 × 2048: Q8_0 and Q4_0 237 to 265 GMAC/s (58 to 64 %), Q4_K 218 to 242, Q6_K 200 to 210. All
 *          types
 *      give AVX2's bits.
 *   2  this: few rows of Q8_0 without a panel, adding 128 on the way; prefetching 2 KB ahead instead of 8: at 4 KB and
 *      8 KB, prefetched and used lines share sets of the L1 cache. One answer of a model of 1.3 GB, two threads, runs
 *      alternating: with a panel 20.2 tokens/s (79 % of the reading rate); without one 21.5 at 8 KB, 23.0 without
 *      prefetching, 24.1 to 24.6 at 512 B to 2 KB (in one series 19.8 at 4 KB against 24); Q4_K 34.2 at 8 KB, 35.5 at
 *      512 B, 40.3 at 2 KB. Prefetching to the L2 cache only: no difference beyond noise.
 */
#include "kernels/cpu/int8.h"
#include "kernels/cpu/simd_bytes_512.h"

#define INT8(name) kn_int8_##name##_vnni

enum { TILE_ROWS = 6, BIAS_NARROW = 16, BIAS_FINE = 32, BIAS_WIDE = 128, AHEAD = 2048, DIRECT_K_ROWS = 4 };

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
