/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of 512 bits, under the names that simd_unpack.h and simd_quantize.h use.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/int8.h"

enum { LANES = 16 };

typedef __m512 vf;
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint8_t vb __attribute__((vector_size(64)));

static inline vf v_load(const float *at)
{
	return _mm512_loadu_ps(at);
}

static inline void v_store(float *at, vf v)
{
	_mm512_storeu_ps(at, v);
}

static inline vf v_set(float f)
{
	return _mm512_set1_ps(f);
}

static inline vf v_fma(vf a, vf b, vf c)
{
	return _mm512_fmadd_ps(a, b, c);
}

static inline vf v_max(vf a, vf b)
{
	return _mm512_max_ps(a, b);
}

static inline vf v_float(vi v)
{
	return _mm512_cvtepi32_ps((__m512i)v);
}

static inline vi v_round(vf v)
{
	return (vi)_mm512_cvtps_epi32(v);
}

static inline vf v_f16(const uint8_t *at)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at));
}

static inline vi v_i8(const uint8_t *at)
{
	return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)at));
}

static inline float v_largest(vf v)
{
	return _mm512_reduce_max_ps(v);
}

static inline float v_sum(vf v)
{
	return _mm512_reduce_add_ps(v);
}

static inline vb b_lookup(vb table, vb q)
{
	return (vb)_mm512_shuffle_epi8((__m512i)table, (__m512i)q);
}

static inline vb b_word(const int8_t *at)
{
	int32_t word;
	memcpy(&word, at, sizeof word);
	return (vb)_mm512_set1_epi32(word);
}

/* LANES values of eight bits. */
static inline void b_put(int8_t *at, vi q)
{
	_mm_storeu_si128((void *)at, _mm512_cvtepi32_epi8((__m512i)q));
}

/* -16 and -128 times the sum of all 32, -32 times those of each half. half: the sums of the halves. */
static inline void begin_of(const vi *total, int32_t *half, int32_t *begin)
{
	for (int h = 0; h < 2; h++) {
		half[h] = _mm512_reduce_add_epi32((__m512i)total[h]);
		begin[2 + h] = -32 * half[h];
	}
	begin[0] = -16 * (half[0] + half[1]);
	begin[1] = -128 * (half[0] + half[1]);
}
