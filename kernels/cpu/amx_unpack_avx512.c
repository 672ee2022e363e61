/* SPDX-License-Identifier: Apache-2.0
 *
 * Unpacks weights from the files' layouts (kernels/blocks.h) into panels of int8 with float32 scales and offsets
 * (amx.h), 16 outputs and up to 256 weights at a time. Types whose weights are not small integers times a scale use
 * the float32 products instead.
 *
 * A tile needs four adjacent weights of an output as one word, and the words of the 16 outputs side by side: a
 * transposition of 32-bit words. Nibbles are transposed before they are unpacked, which halves the work.
 *
 * Scales are first collected as bytes or halves, then widened for all outputs at once, so that a vector load never
 * waits for scalar stores to the same line.
 */
#include <immintrin.h>

#include "kernels/blocks.h"
#include "kernels/cpu/amx.h"

enum { SMALL = KN_SMALL_BLOCK, MOST = AMX_CHUNK / SMALL, SUBS = 16 /* the smallest block */ };

typedef const uint8_t *const *rows_at;

static inline float *scales_of(uint8_t *out, int block, int b)
{
	return (float *)(void *)(out + (size_t)b * kn_amx_panel_block(block) + (size_t)(AMX_OUT * block));
}

static inline __m512 floats_of(const uint16_t *halves)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)halves));
}

static inline __m512 floats_of_u8(const uint8_t *bytes)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)bytes)));
}

static inline __m512 floats_of_i8(const int8_t *bytes)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)bytes)));
}

/* ---- transposing ---- */

/* 16 bytes of each row, as four vectors: word i of all rows. */
INLINE void turn_16(rows_at rows, size_t at, __m512i *out)
{
	__m512i v[4];
	UNROLL_FOR(int i = 0; i < 4; i++) {
		v[i] = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(rows[i] + at)));
		v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const void *)(rows[i + 4] + at)), 1);
		v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const void *)(rows[i + 8] + at)), 2);
		v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const void *)(rows[i + 12] + at)), 3);
	}
	__m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
	__m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
	out[0] = _mm512_unpacklo_epi64(a, c);
	out[1] = _mm512_unpackhi_epi64(a, c);
	out[2] = _mm512_unpacklo_epi64(b, d);
	out[3] = _mm512_unpackhi_epi64(b, d);
}

/* 32 bytes of each row, as eight vectors. */
INLINE void turn_32(rows_at rows, size_t at, __m512i *out)
{
	const __m512i even = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0),
		      odd = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
	__m512i v[8], w[8];
	UNROLL_FOR(int i = 0; i < 8; i++)
		v[i] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)(rows[i] + at))),
					  _mm256_loadu_si256((const void *)(rows[i + 8] + at)), 1);
	/* Four rows at a time: words 0 to 3 in the even quarters of a vector, 4 to 7 in the odd ones. */
	UNROLL_FOR(int i = 0; i < 8; i += 4) {
		__m512i a = _mm512_unpacklo_epi32(v[i], v[i + 1]), b = _mm512_unpackhi_epi32(v[i], v[i + 1]);
		__m512i c = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]), d = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
		w[i] = _mm512_unpacklo_epi64(a, c);
		w[i + 1] = _mm512_unpackhi_epi64(a, c);
		w[i + 2] = _mm512_unpacklo_epi64(b, d);
		w[i + 3] = _mm512_unpackhi_epi64(b, d);
	}
	UNROLL_FOR(int i = 0; i < 4; i++) {
		out[i] = _mm512_permutex2var_epi64(w[i], even, w[i + 4]);
		out[i + 4] = _mm512_permutex2var_epi64(w[i], odd, w[i + 4]);
	}
}

INLINE void put(uint8_t *out, const __m512i *v, int n)
{
	UNROLL_FOR(int i = 0; i < n; i++)
		_mm512_store_si512((void *)(out + 64 * i), v[i]);
}

/* ---- blocks of 32 ---- */

INLINE __m512i low_nibbles(__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }

INLINE __m512i high_nibbles(__m512i v) { return low_nibbles(_mm512_srli_epi16(v, 4)); }

/* The value of a nibble of the type; the type is a constant where this is inlined. */
INLINE __m512i value_of(int type, __m512i q)
{
	if (type == KN_Q4_0)
		return _mm512_sub_epi8(q, _mm512_set1_epi8(8));
	if (type == KN_IQ4_NL)
		return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)kn_nl_values)), q);
	return q;
}

INLINE void unpack_small(int type, rows_at rows, int n, uint8_t *out)
{
	uint16_t d[MOST][AMX_OUT], m[MOST][AMX_OUT];
	bool has_min = type == KN_Q4_1;
	size_t bytes = type == KN_Q8_0 ? 34 : has_min ? 20 : 18, head = has_min ? 4 : 2;
	for (int b = 0; b < n / SMALL; b++) {
		size_t at = (size_t)b * bytes;
		uint8_t *to = out + (size_t)b * kn_amx_panel_block(SMALL);
		__m512i v[8];
		for (int o = 0; o < AMX_OUT; o++) {
			d[b][o] = kn_u16_at(rows[o] + at);
			if (has_min)
				m[b][o] = kn_u16_at(rows[o] + at + 2);
		}
		if (type == KN_Q8_0) {
			turn_32(rows, at + head, v);
		} else {
			turn_16(rows, at + head, v);
			UNROLL_FOR(int i = 0; i < 4; i++) {
				v[i + 4] = value_of(type, high_nibbles(v[i]));
				v[i] = value_of(type, low_nibbles(v[i]));
			}
		}
		put(to, v, 8);
	}
	for (int b = 0; b < n / SMALL; b++) {
		float *scale = scales_of(out, SMALL, b);
		_mm512_store_ps(scale, floats_of(d[b]));
		if (has_min)
			_mm512_store_ps(scale + AMX_OUT, floats_of(m[b]));
	}
}

static void unpack_q8_0(rows_at rows, int n, uint8_t *out) { unpack_small(KN_Q8_0, rows, n, out); }

static void unpack_q4_0(rows_at rows, int n, uint8_t *out) { unpack_small(KN_Q4_0, rows, n, out); }

static void unpack_q4_1(rows_at rows, int n, uint8_t *out) { unpack_small(KN_Q4_1, rows, n, out); }

static void unpack_iq4_nl(rows_at rows, int n, uint8_t *out) { unpack_small(KN_IQ4_NL, rows, n, out); }

/* ---- blocks of 256; n is AMX_CHUNK ---- */

/* The eight six-bit scales, or minimums, of Q4_K in eight bytes (kn_scale_min). */
static inline void scales_and_mins(const uint8_t *sc, uint64_t *scales, uint64_t *mins)
{
	uint32_t a = kn_u32_at(sc), b = kn_u32_at(sc + 4), c = kn_u32_at(sc + 8);
	const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x30303030;
	*scales = (a & six) | (uint64_t)((c & four) | (a >> 2 & two)) << 32;
	*mins = (b & six) | (uint64_t)((c >> 4 & four) | (b >> 2 & two)) << 32;
}

/* [AMX_OUT] of eight bytes to [8][AMX_OUT]. */
static inline void turn_bytes(const uint64_t *in, uint8_t (*out)[AMX_OUT])
{
	__m512i a = _mm512_loadu_si512(in), b = _mm512_loadu_si512(in + 8);
	for (int i = 0; i < 8; i++, a = _mm512_srli_epi64(a, 8), b = _mm512_srli_epi64(b, 8))
		_mm_storeu_si128((void *)out[i], _mm_unpacklo_epi64(_mm512_cvtepi64_epi8(a), _mm512_cvtepi64_epi8(b)));
}

static void unpack_q4_k(rows_at rows, int n, uint8_t *out)
{
	uint64_t sc[AMX_OUT], mn[AMX_OUT];
	uint16_t d[AMX_OUT], m[AMX_OUT];
	uint8_t sc_of[MOST][AMX_OUT], mn_of[MOST][AMX_OUT], *to = out;
	(void)n;
	for (int o = 0; o < AMX_OUT; o++) {
		d[o] = kn_u16_at(rows[o]);
		m[o] = kn_u16_at(rows[o] + 2);
		scales_and_mins(rows[o] + 4, &sc[o], &mn[o]);
	}
	for (size_t g = 0; g < 4; g++, to += 2 * kn_amx_panel_block(SMALL)) {
		__m512i v[8];
		turn_32(rows, 16 + 32 * g, v);
		UNROLL_FOR(int i = 0; i < 8; i++) {
			_mm512_store_si512((void *)(to + 64 * i), low_nibbles(v[i]));
			_mm512_store_si512((void *)(to + kn_amx_panel_block(SMALL) + 64 * i), high_nibbles(v[i]));
		}
	}
	turn_bytes(sc, sc_of);
	turn_bytes(mn, mn_of);
	__m512 df = floats_of(d), mf = _mm512_sub_ps(_mm512_setzero_ps(), floats_of(m));
	for (int b = 0; b < MOST; b++) {
		float *scale = scales_of(out, SMALL, b);
		_mm512_store_ps(scale, _mm512_mul_ps(df, floats_of_u8(sc_of[b])));
		_mm512_store_ps(scale + AMX_OUT, _mm512_mul_ps(mf, floats_of_u8(mn_of[b])));
	}
}

static void unpack_q6_k(rows_at rows, int n, uint8_t *out)
{
	int8_t sc[SUBS][AMX_OUT];
	uint16_t d[AMX_OUT];
	const __m512i middle = _mm512_set1_epi8(32), high = _mm512_set1_epi8(48);
	(void)n;
	for (int o = 0; o < AMX_OUT; o++) {
		for (int i = 0; i < SUBS; i++)
			sc[i][o] = (int8_t)rows[o][192 + i];
		d[o] = kn_u16_at(rows[o] + 208);
	}
	for (int half = 0; half < 2; half++) {
		uint8_t *to = out + 8 * (size_t)half * kn_amx_panel_block(SUBS);
		__m512i l[16], h[8];
		turn_32(rows, 64 * (size_t)half, l);
		turn_32(rows, 64 * (size_t)half + 32, l + 8);
		turn_32(rows, 128 + 32 * (size_t)half, h);
		/* Word i of the 32 weights 32j …: half a block of 32 is a block of its own here. */
		for (int i = 0; i < 8; i++) {
			uint8_t *word = to + (size_t)(i / 4) * kn_amx_panel_block(SUBS) + 64 * (i % 4);
			const __m512i q[4] = {
			    _mm512_or_si512(low_nibbles(l[i]), _mm512_and_si512(_mm512_slli_epi16(h[i], 4), high)),
			    _mm512_or_si512(low_nibbles(l[8 + i]), _mm512_and_si512(_mm512_slli_epi16(h[i], 2), high)),
			    _mm512_or_si512(high_nibbles(l[i]), _mm512_and_si512(h[i], high)),
			    _mm512_or_si512(high_nibbles(l[8 + i]), _mm512_and_si512(_mm512_srli_epi16(h[i], 2), high)),
			};
			for (int j = 0; j < 4; j++)
				_mm512_store_si512((void *)(word + 2 * (size_t)j * kn_amx_panel_block(SUBS)),
						   _mm512_sub_epi8(q[j], middle));
		}
	}
	__m512 df = floats_of(d);
	for (int b = 0; b < SUBS; b++)
		_mm512_store_ps(scales_of(out, SUBS, b), _mm512_mul_ps(df, floats_of_i8(sc[b])));
}

struct kn_amx_type kn_amx_type_of(int type)
{
	switch (type) {
	case KN_Q8_0: return (struct kn_amx_type){unpack_q8_0, SMALL, false};
	case KN_Q4_0: return (struct kn_amx_type){unpack_q4_0, SMALL, false};
	case KN_Q4_1: return (struct kn_amx_type){unpack_q4_1, SMALL, true};
	case KN_IQ4_NL: return (struct kn_amx_type){unpack_iq4_nl, SMALL, false};
	case KN_Q4_K: return (struct kn_amx_type){unpack_q4_k, SMALL, true};
	case KN_Q6_K: return (struct kn_amx_type){unpack_q6_k, SUBS, false};
	default: return (struct kn_amx_type){0};
	}
}
