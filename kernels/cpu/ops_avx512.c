/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512 (F, BW, DQ, VL): inner loops on float32 activations. The product is simd_matmul.h's, over
 * the vectors defined here: of the 32 registers 24 accumulate 4 outputs × 6 rows.
 */
#include "kernels/blocks.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/int8.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/simd_512.h"
#include "kernels/kv_type.h"
#include "kernels/quantize.h"

#define ATTN_QUERIES_MAX 6
enum { TILE_OUT = 4, TILE_ROWS = 6, ATTN_QUERIES = ATTN_QUERIES_MAX, SCORE_VECTORS = 4, WEIGH_VECTORS = 4 };

/* b if either is NaN; v_max likewise. */
static inline vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }

/* v where its index (first, first + 1, …) is in from … to - 1, otherwise other. */
static inline vf v_within(vf v, int first, int from, int to, float other)
{
	vi at = first + (vi){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
	__mmask16 in = _mm512_cmpge_epi32_mask((__m512i)at, _mm512_set1_epi32(from)) &
		       _mm512_cmplt_epi32_mask((__m512i)at, _mm512_set1_epi32(to));
	return _mm512_mask_blend_ps(in, v_set(other), v);
}

/* The same order for four vectors at once. */
static inline void v_sums(const vf *v, float *out)
{
	__m256 half[4];
	for (int i = 0; i < 4; i++)
		half[i] = _mm256_add_ps(_mm512_castps512_ps256(v[i]), _mm512_extractf32x8_ps(v[i], 1));
	__m256 a = _mm256_add_ps(_mm256_permute2f128_ps(half[0], half[1], 0x20),
				 _mm256_permute2f128_ps(half[0], half[1], 0x31)); /* four of 0, four of 1 */
	__m256 b = _mm256_add_ps(_mm256_permute2f128_ps(half[2], half[3], 0x20),
				 _mm256_permute2f128_ps(half[2], half[3], 0x31));
	__m256 c = _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xEE)); /* 0 0 2 2, 1 1 3 3 */
	c = _mm256_add_ps(_mm256_shuffle_ps(c, c, 0x88), _mm256_shuffle_ps(c, c, 0xDD));        /* 0 2 0 2, 1 3 1 3 */
	_mm_storeu_ps(out, _mm_unpacklo_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1)));
}

static inline vi v_u8(const uint8_t *at) { return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)at)); }

static inline vi v_u16(const uint8_t *at) { return (vi)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)at)); }

/* To nearest, ties to even. */
static inline void v_put_f16(uint16_t *at, vf v)
{
	_mm256_storeu_si256((void *)at, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline vi v_bits16(uint32_t bits) { return (vi)_mm512_maskz_set1_epi32((__mmask16)bits, 16); }

/* The sixteen possible values; the permutation uses only four bits of an index. */
struct map {
	vf values;
};

static inline struct map map_affine(float scale, float offset, int mask)
{
	vi q = (vi){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} & mask;
	return (struct map){v_fma(v_float(q), v_set(scale), v_set(offset))};
}

static inline struct map map_centred(float scale, int middle, int mask)
{
	vi q = (vi){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} & mask;
	return (struct map){v_set(scale) * v_float(q - middle)};
}

static inline vf map_at(struct map m, vi q) { return _mm512_permutexvar_ps((__m512i)q, m.values); }

struct lookup {
	vf values;
};

static inline struct lookup lookup_of(const int8_t *values, float d)
{
	return (struct lookup){v_set(d) * v_float(v_i8((const uint8_t *)values))};
}

static inline vf lookup_at(struct lookup t, vi q) { return _mm512_permutexvar_ps((__m512i)q, t.values); }

#include "kernels/cpu/simd_attention.h"
#include "kernels/cpu/simd_matmul.h"
#include "kernels/cpu/simd_recurrent.h"

const struct kn_isa kn_isa_avx512 = {
    .name = "cpu-avx512",
    .tile_outputs = 16,
    LOOPS,
};

const struct kn_isa kn_isa_vnni = {
    .name = "cpu-vnni",
    .tile_outputs = 32,
    LOOPS,
    KN_EIGHT_BITS(vnni, kn_int8_packed_bytes),
};

const struct kn_isa kn_isa_amx_int8 = {
    .name = "cpu-amx-int8",
    .tile_outputs = 32,
    LOOPS,
    KN_EIGHT_BITS(amx, kn_int8_packed_bytes_amx),
};

const struct kn_isa kn_isa_amx = {
    .name = "cpu-amx",
    .tile_outputs = 16,
    .packs = kn_amx_packs,
    .packed_bytes = kn_amx_packed_bytes,
    .pack = kn_amx_pack,
    .matmul_packed = kn_amx_matmul_packed,
    LOOPS,
};
