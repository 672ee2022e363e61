/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of 256 bits under the names of simd_matmul.h.
 */
#include <immintrin.h>
#include <stdint.h>

enum { LANES = 8 };

typedef __m256 vf;
typedef int32_t vi __attribute__((vector_size(32)));

static inline vf v_load(const float *at) { return _mm256_loadu_ps(at); }

static inline void v_store(float *at, vf v) { _mm256_storeu_ps(at, v); }

static inline vf v_set(float f) { return _mm256_set1_ps(f); }

static inline vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }

static inline vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }

static inline float v_largest(vf v)
{
	__m128 a = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
	a = _mm_max_ps(a, _mm_movehl_ps(a, a));
	return _mm_cvtss_f32(_mm_max_ss(a, _mm_shuffle_ps(a, a, 1)));
}

/* 8 → 4 → 2 → 1. */
static inline float v_sum(vf a)
{
	__m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
	b = _mm_add_ps(b, _mm_movehl_ps(b, b));
	return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

static inline vf v_float(vi v) { return _mm256_cvtepi32_ps((__m256i)v); }

/* To nearest integer, ties to even. */
static inline vi v_round(vf v) { return (vi)_mm256_cvtps_epi32(v); }

static inline vf v_f16(const uint8_t *at) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)at)); }

static inline vi v_i8(const uint8_t *at) { return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)at)); }
