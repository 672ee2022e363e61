/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512 with VNNI: products of eight bits by vpdpbusd, unsigned by signed, four at a time and exact,
 * straight to int32. Weights of eight bits are stored with 128 added.
 *
 * VERSIONS
 *   1  this. Not measured: there was no such processor. With its instructions emulated it gave the bits of
 *      AVX2 for all 13 types, 1 to 131 outputs, 1 to 40 rows and two lengths. Expected from a prototype on a
 *      processor that has them: 32 outputs by 6 rows were best, at 76 to 78 % of the measured rate.
 */
#include "kernels/cpu/simd_512.h"

enum { TILE_ROWS = 6, BIAS_NARROW = 16, BIAS_FINE = 32, BIAS_WIDE = 128, AHEAD = 2048, DIRECT_K_ROWS = 4 };

struct sums {
	__m512i v;
};

static inline struct sums sums_begin(const int32_t *begin)
{
	return (struct sums){_mm512_set1_epi32(*begin)};
}

static inline struct sums sums_eights(const int32_t *begin)
{
	return (struct sums){_mm512_set1_epi32(*begin / 2)};
}

static inline struct sums sums_zero(void)
{
	return (struct sums){_mm512_setzero_si512()};
}

static inline struct sums sums_dot(struct sums s, vb w, vb x)
{
	return (struct sums){_mm512_dpbusd_epi32(s.v, (__m512i)w, (__m512i)x)};
}

static inline vi sums_end(struct sums s)
{
	return (vi)s.v;
}

static inline struct sums wide_begin(const struct int8_block *x)
{
	return sums_begin(&x->begin[1]);
}

static inline struct sums wide_dot(struct sums s, vb w, vb x)
{
	return sums_dot(s, w, x);
}

static inline vi wide_end(struct sums s)
{
	return sums_end(s);
}

#include "kernels/cpu/simd_int8.h"

void kn_int8_pack_vnni(int type, const float *x, int n_rows, int n_in, int part, int n_parts, void *packed)
{
	pack(type, x, n_rows, n_in, part, n_parts, packed);
}

void kn_int8_matmul_vnni(const struct kn_weight *w, int o0, int o1, const void *packed, int n_rows, float *y,
			 float *tile, size_t tile_floats)
{
	matmul(w, o0, o1, packed, n_rows, y, tile, tile_floats);
}
