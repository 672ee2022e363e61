/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes in vectors of 512 bits, under the names that simd_unpack.h, simd_quantize.h and simd_int8.h use.
 */
#include "kernels/cpu/simd_512.h"

typedef uint8_t vb __attribute__((vector_size(64)));

static inline vb b_lookup(vb table, vb q) { return (vb)_mm512_shuffle_epi8((__m512i)table, (__m512i)q); }

/* Stores LANES 8-bit values. */
static inline void b_put(int8_t *at, vi q) { _mm_storeu_si128((void *)at, _mm512_cvtepi32_epi8((__m512i)q)); }

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
