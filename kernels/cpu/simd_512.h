/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of 512 bits, under the names that the sources for all instruction sets use (simd_matmul.h).
 */
#include <immintrin.h>
#include <stdint.h>

enum { LANES = 16 };

typedef __m512 vf;
typedef int32_t vi __attribute__((vector_size(64)));

static inline vf v_load(const float *at) { return _mm512_loadu_ps(at); }

static inline void v_store(float *at, vf v) { _mm512_storeu_ps(at, v); }

static inline vf v_set(float f) { return _mm512_set1_ps(f); }

static inline vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }

static inline vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }

static inline float v_largest(vf v) { return _mm512_reduce_max_ps(v); }

/* 16 → 8 → 4 → 2 → 1. */
static inline float v_sum(vf v)
{
	__m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
	__m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
	b = _mm_add_ps(b, _mm_movehl_ps(b, b));
	return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

static inline vf v_float(vi v) { return _mm512_cvtepi32_ps((__m512i)v); }

/* To nearest, ties to even. */
static inline vi v_round(vf v) { return (vi)_mm512_cvtps_epi32(v); }

static inline vf v_f16(const uint8_t *at) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at)); }

static inline vi v_i8(const uint8_t *at) { return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)at)); }
