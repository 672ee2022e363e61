/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2 with FMA and F16C: inner loops on float32 activations. The product is simd_matmul.h's, over
 * the vectors defined here: of the 16 registers 12 accumulate 2 outputs × 6 rows.
 */
#include "kernels/blocks.h"
#include "kernels/cpu/int8.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/simd_256.h"
#include "kernels/kv_type.h"
#include "kernels/quantize.h"

/* Of the 16 registers 8 accumulate 4 queries × 2 vectors: four heads often share a key head, and two multiply-adds a
 * cycle with a latency of four cycles need eight sums. */
#define ATTN_QUERIES_MAX 4
enum { TILE_OUT = 2, TILE_ROWS = 6, ATTN_QUERIES = ATTN_QUERIES_MAX, SCORE_VECTORS = 2, WEIGH_VECTORS = 2 };

/* b if either is NaN; v_max likewise. */
static inline vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }

/* v where its index (first, first + 1, …) is in from … to - 1, otherwise other. */
static inline vf v_within(vf v, int first, int from, int to, float other)
{
	vi at = first + (vi){0, 1, 2, 3, 4, 5, 6, 7};
	vi in = (at >= from) & (at < to);
	return _mm256_blendv_ps(v_set(other), v, (vf)in);
}

static inline void v_sums(const vf *v, float *out)
{
	out[0] = v_sum(v[0]);
	out[1] = v_sum(v[1]);
}

static inline vi v_u8(const uint8_t *at) { return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)at)); }

static inline vi v_u16(const uint8_t *at) { return (vi)_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)at)); }

/* To nearest, ties to even. */
static inline void v_put_f16(uint16_t *at, vf v)
{
	_mm_storeu_si128((void *)at, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline vi v_bits16(uint32_t bits)
{
	vi at = (vi)_mm256_set1_epi32((int)(bits & 0xff)) >> (vi){0, 1, 2, 3, 4, 5, 6, 7};
	return at << 4 & 16;
}

struct map {
	vf scale, offset;
	int mask;
};

static inline struct map map_affine(float scale, float offset, int mask)
{
	return (struct map){v_set(scale), v_set(offset), mask};
}

static inline struct map map_centred(float scale, int middle, int mask)
{
	return map_affine(scale, -(float)middle * scale, mask);
}

static inline vf map_at(struct map m, vi q) { return v_fma(v_float(q & m.mask), m.scale, m.offset); }

/* Two tables, for q < 8 and q >= 8: a permutation selects among eight entries, bit 3 selects the table. */
struct lookup {
	vf low, high;
};

static inline struct lookup lookup_of(const int8_t *values, float d)
{
	const uint8_t *at = (const uint8_t *)values;
	return (struct lookup){v_set(d) * v_float(v_i8(at)), v_set(d) * v_float(v_i8(at + 8))};
}

static inline vf lookup_at(struct lookup t, vi q)
{
	vf low = _mm256_permutevar8x32_ps(t.low, (__m256i)q), high = _mm256_permutevar8x32_ps(t.high, (__m256i)q);
	return _mm256_blendv_ps(low, high, (vf)(q << 28));
}

#include "kernels/cpu/simd_attention.h"
#include "kernels/cpu/simd_matmul.h"
#include "kernels/cpu/simd_recurrent.h"

const struct kn_isa kn_isa_avx2 = {
    .name = "cpu-avx2",
    .tile_outputs = 16,
    LOOPS,
};

const struct kn_isa kn_isa_avx2_int8 = {
    .name = "cpu-avx2-int8",
    .tile_outputs = 16,
    LOOPS,
    KN_EIGHT_BITS(avx2, kn_int8_packed_bytes),
};
