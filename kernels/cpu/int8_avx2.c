/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: 8-bit products by vpmaddubsw and vpmaddwd with ones. vpmaddubsw multiplies unsigned by signed bytes, adds
 * neighbouring products in 16 bits and saturates.
 *
 *   narrow, fine  every sum over 32 (or 16) weights fits in 16 bits: |w| ≤ 16 over the 16 products of a lane
 *                 is at most 16 · 16 · 127 = 32512, as is 32 · 8 · 127. Intermediate sums may wrap, no single
 *                 product saturates (2 · 63 · 127), and one vpmaddwd serves a whole block
 *   wide          |w| by activations with the sign of w: 2 · 128 · 127 = 32512 does not saturate but leaves
 *                 no room for another sum, so vpmaddwd follows every product
 *
 * VERSIONS (one thread of an AVX2 machine at 3.2 GHz; panel and activations in the L1 cache)
 *   1  this. Counted: vpmaddubsw and vpmaddwd issue twice a cycle, additions four times. Narrow: 207 GMAC/s if
 *      vpmaddubsw is the limit, 168 measured for its instructions alone, with vpaddw. Wide: 104 counted, 83 measured
 *      with vpsignb and vpaddd. The int8 rate of `bench machine` (vpmaddubsw, vpmaddwd, vpaddd) is 100. Measured, 2 × 8
 *      outputs by 1 / 2 / 3 / 4 rows: narrow 55 / 74 / 116 / 119, fine 60 / 65 / 75 / 101, wide 50 / 60 / 64 / 66.
 *      Before sums were kept in registers (settled), 4 rows: narrow 77, wide 62. Narrow, fine and wide with 8 outputs
 *      by 6 rows: 77, 88, 63; with 16 by 6: 95, 68, 56, with the accumulators in memory.
 *   2  few rows, weights from memory (8192 or 32768 × 2048, one thread, the best of many runs; GMAC/s of Q8_0 by 1 / 4
 *      / 8 / 16 rows). Before: 12 / 27 to 32 / 35 to 40 / 45 to 49, half the rate of the inner loop, which waits while
 *      a panel is filled. With the next chunk prefetched during the products: 14 / 44 / 46 to 52 / 52 to 55. With Q8_0
 *      also read without a panel, chunks of 512: 17 / 50 / 59 to 61 / 60 to 62, the rate of the L1 cache. Q4_K: 8 rows
 *      71, was 57; 1 row 19 as before, the cost of unpacking. Tried for many rows and dropped: panels of 512 or 1024
 *      along K, which stay in the L1 cache for all rows, and Q8_0 without a panel: 43 to 61, was 55 to 64. The limit
 *      there is the inner loop, not where the panel lies. The loop's instructions alone reach 72 to 80 with vpsignb, 98
 *      without. Alternatives: 16-bit products (vpmaddwd, vpaddd) 80, but activations of twice the size; activations as
 *      two 4-bit halves (vpmaddubsw, vpaddw twice) 80, and three more instructions per block. Unsigned weights
 *      saturate: 2 · 255 · 127 does not fit, and nine of ten blocks have pairs of activations that could exceed the
 *      range (computed for normally distributed ones).
 *   3  four bits, few rows, without a panel (simd_nibbles.h). Counted for 64 products of a row: three instructions to
 *      unpack a vector of nibbles, two each of vpmaddubsw and vpaddw; before, as many and a vector's store and load.
 *      Steps of the 1B shape, two threads, tokens/s by 1 / 2 / 3 / 4 rows, runs alternating: Q4_0 33.9, 50.6, 69.8,
 *      78.3 before, 32.2, 58.8, 80.1, 84.5 now; Q4_K 23.4, 37.3 to 39.7, 53.2, 65.6 before, 29.3 to 31.3, 45.9, 54.4,
 *      52.1 now, so three and more rows use the panel. Prefetching a whole block of 256, 36 lines, at once took a tenth
 *      of the time; prefetching per 32 weights takes none. Bits of Q4_K's scales are only shifted right: there are no
 *      byte shifts.
 *   4  Q6_K and Q5_K likewise; for every 32 weights the high bits are moved beside the nibbles. Counted for one row and
 *      32 weights of one of eight outputs: 2.2 cycles; reading them from memory takes 6.7. Steps of the 1B shape, two
 *      threads, tokens/s of one row, runs alternating, three rounds: Q6_K 16.7 before, 24 to 29 now; Q4_K_M (Q4_K and
 *      Q6_K) 24 to 28 before, 30 to 33 now; two rows of Q6_K 33 to 38 before, 32 to 39 now.
 *   5  wide, in panels (more than 16 rows): the sign as a mask (masked_dot). Counted for 2,048 products: two more
 *      instructions, but none on the ports of vpsignb; simulated 93.2 cycles, was 92.4 (llvm-mca, znver3). Measured: in
 *      the L1 cache 71.5 GMAC/s, was 67.0; prompts of 256 tokens of the 1B shape, runs alternating, five rounds,
 *      medians of three, tokens/s: 81.3, 83.9, 81.1, 87.0, 99.5 before, 79.7, 98.3, 87.4, 103.7, 109.1 now. The bits
 *      are the same. Tried and dropped: few rows with the correction computed on the way: 55.6, was 67.0; 16 rows in
 *      panels to use it: 63, 72, 69, 64 tokens/s, was 71, 77, 71, 77.
 */
#include <string.h>

#include "kernels/cpu/int8.h"
#include "kernels/cpu/simd_256.h"

#define INT8(name) kn_int8_##name##_avx2

enum {
	TILE_ROWS = 4,
	BIAS_NARROW = 16,
	BIAS_FINE = 32,
	BIAS_WIDE = 0,
	AHEAD = 8192,
	DIRECT_K_ROWS = 2,
	HIGH_IN_PLACE = 0
};

typedef uint8_t vb __attribute__((vector_size(32)));

static inline vb b_lookup(vb table, vb q) { return (vb)_mm256_shuffle_epi8((__m256i)table, (__m256i)q); }

/* LANES values of eight bits. */
static inline void b_put(int8_t *at, vi q)
{
	__m256i words = _mm256_packs_epi32((__m256i)q, (__m256i)q);
	__m128i both = _mm_unpacklo_epi64(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
	_mm_storel_epi64((void *)at, _mm_packs_epi16(both, both));
}

/* -16 times the sums of all 32, -32 times those of each half, in vpmaddubsw's two lanes: products of activations 0 and
 * 1 of every four, and of 2 and 3. half: the sums of the halves. */
static inline void begin_of(const vi *total, int32_t *half, int32_t *begin)
{
	int32_t lane[2][2];
	for (int h = 0; h < 2; h++) {
		__m128i four = _mm_add_epi32(_mm256_castsi256_si128((__m256i)total[h]),
					     _mm256_extracti128_si256((__m256i)total[h], 1));
		four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1));
		lane[h][0] = _mm_cvtsi128_si32(four);
		lane[h][1] = _mm_extract_epi32(four, 2);
		half[h] = lane[h][0] + lane[h][1];
		begin[2 + h] =
		    (int32_t)((uint32_t)(-32 * lane[h][0]) & 0xffff) | (int32_t)((uint32_t)(-32 * lane[h][1]) << 16);
	}
	uint32_t low = (uint32_t)(-16 * (lane[0][0] + lane[1][0])), high = (uint32_t)(-16 * (lane[0][1] + lane[1][1]));
	begin[0] = (int32_t)((low & 0xffff) | high << 16);
	begin[1] = 0;
}

struct sums {
	__m256i v;
};

/* The compiler may reorder integer additions into a tree, whose intermediate sums it then keeps in memory. This forces
 * one chain in a register. */
static inline struct sums settled(__m256i v)
{
	__asm__("" : "+x"(v));
	return (struct sums){v};
}

static inline struct sums sums_begin(const int32_t *begin) { return (struct sums){_mm256_set1_epi32(*begin)}; }

/* begin holds -16 times the sums, none of which has wrapped. */
static inline struct sums sums_eights(const int32_t *begin)
{
	return (struct sums){_mm256_srai_epi16(_mm256_set1_epi32(*begin), 1)};
}

static inline struct sums sums_zero(void) { return (struct sums){_mm256_setzero_si256()}; }

static inline struct sums sums_dot(struct sums s, vb w, vb x)
{
	return settled(_mm256_add_epi16(s.v, _mm256_maddubs_epi16((__m256i)w, (__m256i)x)));
}

static inline vi sums_end(struct sums s) { return (vi)_mm256_madd_epi16(s.v, _mm256_set1_epi16(1)); }

static inline struct sums wide_begin(const struct int8_block *x)
{
	(void)x;
	return (struct sums){_mm256_setzero_si256()};
}

static inline struct sums wide_dot(struct sums s, vb w, vb x)
{
	__m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)w), _mm256_sign_epi8((__m256i)x, (__m256i)w));
	return settled(_mm256_add_epi32(s.v, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
}

static inline vi wide_end(struct sums s) { return (vi)s.v; }

/* The same with the sign of a weight as a mask m: x ^ m is x where w ≥ 0 and -x - 1 elsewhere, so |w| · (x ^ m) lacks
 * |w| where w is negative. The total that a panel's block lacks is known in advance, and the sums begin with it. */
#define WIDE_MASKED
struct masked {
	__m256i size, mask;
};

static inline struct masked masked_of(vb w)
{
	return (struct masked){_mm256_abs_epi8((__m256i)w), _mm256_cmpgt_epi8(_mm256_setzero_si256(), (__m256i)w)};
}

static inline struct sums masked_begin(const uint8_t *less)
{
	return (struct sums){_mm256_loadu_si256((const void *)less)};
}

static inline struct sums masked_dot(struct sums s, struct masked w, vb x)
{
	__m256i pairs = _mm256_maddubs_epi16(w.size, _mm256_xor_si256((__m256i)x, w.mask));
	return settled(_mm256_add_epi32(s.v, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
}

/* Σ |w| over the negative w of the words of LANES outputs, which lie `step` bytes apart: at most 32 · 128. */
static inline void masked_less(const uint8_t *words, size_t step, uint8_t *less)
{
	__m256i sum = _mm256_setzero_si256();
	for (int k = 0; k < 8; k++) {
		vb w;
		memcpy(&w, words + (size_t)k * step, sizeof w);
		struct masked m = masked_of(w);
		sum = _mm256_sub_epi16(sum, _mm256_maddubs_epi16(m.size, m.mask));
	}
	_mm256_storeu_si256((void *)less, _mm256_madd_epi16(sum, _mm256_set1_epi16(1)));
}

#include "kernels/cpu/simd_int8.h"
