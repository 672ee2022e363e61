/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights as they lie in files to panels of int8 with scales and offsets in float32 (amx.h), 16
 * outputs and up to 256 weights at a time. kernels/blocks.h has the layouts. Types whose weights are
 * no small integers times a scale are left to the products in float32.
 *
 * Scales are collected as bytes or halves first and widened for all outputs afterwards, so that
 * storing single ones never waits for a vector load of the same line.
 */
#include <immintrin.h>

#include "kernels/blocks.h"
#include "kernels/cpu/amx.h"

enum { SMALL = KN_SMALL_BLOCK, MOST = AMX_CHUNK / SMALL, SUBS = 16 /* the smallest block */ };

/* The widest panel block's floats, scale first. */
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

/* 16 bytes of nibbles, low ones first. */
static inline __m256i nibbles(const uint8_t *at)
{
	__m128i v = _mm_loadu_si128((const void *)at);
	return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), _mm256_set1_epi8(15));
}

static inline __m256i nl_values(__m256i q)
{
	__m256i values = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)kn_nl_values));
	return _mm256_shuffle_epi8(values, q);
}

/* One block of a type with blocks of 32; type is a constant where this is inlined. */
static inline __attribute__((always_inline)) __m256i small_block(int type, const uint8_t *at)
{
	switch (type) {
	case KN_Q8_0: return _mm256_loadu_si256((const void *)(at + 2));
	case KN_Q4_0: return _mm256_sub_epi8(nibbles(at + 2), _mm256_set1_epi8(8));
	case KN_Q4_1: return nibbles(at + 4);
	case KN_Q5_0:
		return _mm256_sub_epi8(_mm256_or_si256(nibbles(at + 6), _mm256_maskz_set1_epi8(kn_u32_at(at + 2), 16)),
				       _mm256_set1_epi8(16));
	case KN_Q5_1: return _mm256_or_si256(nibbles(at + 8), _mm256_maskz_set1_epi8(kn_u32_at(at + 4), 16));
	default: return nl_values(nibbles(at + 2)); /* IQ4_NL */
	}
}

static inline __attribute__((always_inline)) void unpack_small(int type, const uint8_t *at, size_t row_bytes,
							       int n_o, int n, uint8_t *out)
{
	uint16_t d[MOST][AMX_OUT] = {0}, m[MOST][AMX_OUT] = {0};
	bool has_min = type == KN_Q4_1 || type == KN_Q5_1;
	size_t bytes = type == KN_Q8_0 ? 34 : type == KN_Q4_1 ? 20 : type == KN_Q5_0 ? 22 : type == KN_Q5_1 ? 24 : 18;
	for (int o = 0; o < n_o; o++) {
		const uint8_t *from = at + (size_t)o * row_bytes;
		uint8_t *to = out + o * SMALL;
		for (int b = 0; b < n / SMALL; b++, from += bytes, to += kn_amx_panel_block(SMALL)) {
			_mm256_store_si256((void *)to, small_block(type, from));
			d[b][o] = kn_u16_at(from);
			if (has_min)
				m[b][o] = kn_u16_at(from + 2);
		}
	}
	for (int b = 0; b < n / SMALL; b++) {
		float *scale = scales_of(out, SMALL, b);
		_mm512_store_ps(scale, floats_of(d[b]));
		if (has_min)
			_mm512_store_ps(scale + AMX_OUT, floats_of(m[b]));
	}
}

#define UNPACK_SMALL(name, type)                                                                       \
	static void name(const uint8_t *at, size_t row_bytes, int n_o, int n, uint8_t *out)            \
	{                                                                                              \
		unpack_small(type, at, row_bytes, n_o, n, out);                                        \
	}

UNPACK_SMALL(unpack_q8_0, KN_Q8_0)
UNPACK_SMALL(unpack_q4_0, KN_Q4_0)
UNPACK_SMALL(unpack_q4_1, KN_Q4_1)
UNPACK_SMALL(unpack_q5_0, KN_Q5_0)
UNPACK_SMALL(unpack_q5_1, KN_Q5_1)
UNPACK_SMALL(unpack_iq4_nl, KN_IQ4_NL)

/* ---- blocks of 256; n is AMX_CHUNK ---- */

/* The eight six-bit scales, or minimums, of Q4_K and Q5_K in eight bytes (kn_scale_min). */
static inline void scales_and_mins(const uint8_t *sc, uint64_t *scales, uint64_t *mins)
{
	uint32_t a = kn_u32_at(sc), b = kn_u32_at(sc + 4), c = kn_u32_at(sc + 8);
	const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x30303030;
	*scales = (a & six) | (uint64_t)((c & four) | (a >> 2 & two)) << 32;
	*mins = (b & six) | (uint64_t)((c >> 4 & four) | (b >> 2 & two)) << 32;
}

/* [AMX_OUT][8] bytes to [8][AMX_OUT]. */
static inline void turn(const uint64_t *in, uint8_t (*out)[AMX_OUT])
{
	for (int b = 0; b < 8; b++) {
		__m512i shift = _mm512_set1_epi64(8 * b);
		__m128i low = _mm512_cvtepi64_epi8(_mm512_srlv_epi64(_mm512_loadu_si512(in), shift));
		__m128i high = _mm512_cvtepi64_epi8(_mm512_srlv_epi64(_mm512_loadu_si512(in + 8), shift));
		_mm_storeu_si128((void *)out[b], _mm_unpacklo_epi64(low, high));
	}
}

/* Sixteen in lane l of bytes where bit `bit` of h is set. */
static inline __m256i fifth(__m256i h, int bit)
{
	return _mm256_maskz_set1_epi8(_mm256_test_epi8_mask(h, _mm256_set1_epi8((char)(1 << bit))), 16);
}

static inline __attribute__((always_inline)) void unpack_q45_k(bool five, const uint8_t *at, size_t row_bytes, int n_o,
							       uint8_t *out)
{
	uint64_t sc[AMX_OUT] = {0}, mn[AMX_OUT] = {0};
	uint16_t d[AMX_OUT] = {0}, m[AMX_OUT] = {0};
	uint8_t sc_of[MOST][AMX_OUT], mn_of[MOST][AMX_OUT];
	const __m256i low = _mm256_set1_epi8(15);
	for (int o = 0; o < n_o; o++, at += row_bytes) {
		d[o] = kn_u16_at(at);
		m[o] = kn_u16_at(at + 2);
		scales_and_mins(at + 4, &sc[o], &mn[o]);
		__m256i h = five ? _mm256_loadu_si256((const void *)(at + 16)) : low;
		const uint8_t *qs = at + (five ? 48 : 16);
		uint8_t *to = out + o * SMALL;
		for (int g = 0; g < 4; g++, to += 2 * kn_amx_panel_block(SMALL)) {
			__m256i v = _mm256_loadu_si256((const void *)(qs + 32 * g));
			__m256i a = _mm256_and_si256(v, low), b = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
			if (five) {
				a = _mm256_or_si256(a, fifth(h, 2 * g));
				b = _mm256_or_si256(b, fifth(h, 2 * g + 1));
			}
			_mm256_store_si256((void *)to, a);
			_mm256_store_si256((void *)(to + kn_amx_panel_block(SMALL)), b);
		}
	}
	turn(sc, sc_of);
	turn(mn, mn_of);
	__m512 df = floats_of(d), mf = _mm512_sub_ps(_mm512_setzero_ps(), floats_of(m));
	for (int b = 0; b < MOST; b++) {
		float *scale = scales_of(out, SMALL, b);
		_mm512_store_ps(scale, _mm512_mul_ps(df, floats_of_u8(sc_of[b])));
		_mm512_store_ps(scale + AMX_OUT, _mm512_mul_ps(mf, floats_of_u8(mn_of[b])));
	}
}

static void unpack_q4_k(const uint8_t *at, size_t row_bytes, int n_o, int n, uint8_t *out)
{
	(void)n;
	unpack_q45_k(false, at, row_bytes, n_o, out);
}

static void unpack_q5_k(const uint8_t *at, size_t row_bytes, int n_o, int n, uint8_t *out)
{
	(void)n;
	unpack_q45_k(true, at, row_bytes, n_o, out);
}

static void unpack_q6_k(const uint8_t *at, size_t row_bytes, int n_o, int n, uint8_t *out)
{
	int8_t sc[SUBS][AMX_OUT] = {{0}};
	uint16_t d[AMX_OUT] = {0};
	const __m256i low = _mm256_set1_epi8(15), high = _mm256_set1_epi8(48), middle = _mm256_set1_epi8(32);
	(void)n;
	for (int o = 0; o < n_o; o++, at += row_bytes) {
		uint8_t *to = out + o * SUBS;
		for (int half = 0; half < 2; half++) {
			const uint8_t *ql = at + 64 * half;
			__m256i qh = _mm256_loadu_si256((const void *)(at + 128 + 32 * half));
			__m256i l0 = _mm256_loadu_si256((const void *)ql), l1 = _mm256_loadu_si256((const void *)(ql + 32));
			const __m256i lows[4] = {l0, l1, _mm256_srli_epi16(l0, 4), _mm256_srli_epi16(l1, 4)};
			const __m256i highs[4] = {_mm256_slli_epi16(qh, 4), _mm256_slli_epi16(qh, 2), qh,
						  _mm256_srli_epi16(qh, 2)};
			for (int j = 0; j < 4; j++, to += 2 * kn_amx_panel_block(SUBS)) {
				__m256i q = _mm256_or_si256(_mm256_and_si256(lows[j], low), _mm256_and_si256(highs[j], high));
				q = _mm256_sub_epi8(q, middle);
				_mm_store_si128((void *)to, _mm256_castsi256_si128(q));
				_mm_store_si128((void *)(to + kn_amx_panel_block(SUBS)), _mm256_extracti128_si256(q, 1));
			}
		}
		for (int i = 0; i < SUBS; i++)
			sc[i][o] = (int8_t)at[192 + i];
		d[o] = kn_u16_at(at + 208);
	}
	__m512 df = floats_of(d);
	for (int b = 0; b < SUBS; b++)
		_mm512_store_ps(scales_of(out, SUBS, b), _mm512_mul_ps(df, floats_of_i8(sc[b])));
}

static void unpack_iq4_xs(const uint8_t *at, size_t row_bytes, int n_o, int n, uint8_t *out)
{
	int8_t sc[MOST][AMX_OUT] = {{0}};
	uint16_t d[AMX_OUT] = {0};
	(void)n;
	for (int o = 0; o < n_o; o++, at += row_bytes) {
		uint8_t *to = out + o * SMALL;
		d[o] = kn_u16_at(at);
		for (int b = 0; b < MOST; b++, to += kn_amx_panel_block(SMALL)) {
			_mm256_store_si256((void *)to, nl_values(nibbles(at + 8 + 16 * b)));
			sc[b][o] = (int8_t)kn_scale_iq4(at, b);
		}
	}
	__m512 df = floats_of(d);
	for (int b = 0; b < MOST; b++)
		_mm512_store_ps(scales_of(out, SMALL, b), _mm512_mul_ps(df, floats_of_i8(sc[b])));
}

struct kn_amx_type kn_amx_type_of(int type)
{
	switch (type) {
	case KN_Q8_0: return (struct kn_amx_type){unpack_q8_0, SMALL, false};
	case KN_Q4_0: return (struct kn_amx_type){unpack_q4_0, SMALL, false};
	case KN_Q4_1: return (struct kn_amx_type){unpack_q4_1, SMALL, true};
	case KN_Q5_0: return (struct kn_amx_type){unpack_q5_0, SMALL, false};
	case KN_Q5_1: return (struct kn_amx_type){unpack_q5_1, SMALL, true};
	case KN_IQ4_NL: return (struct kn_amx_type){unpack_iq4_nl, SMALL, false};
	case KN_Q4_K: return (struct kn_amx_type){unpack_q4_k, SMALL, true};
	case KN_Q5_K: return (struct kn_amx_type){unpack_q5_k, SMALL, true};
	case KN_Q6_K: return (struct kn_amx_type){unpack_q6_k, SUBS, false};
	case KN_IQ4_XS: return (struct kn_amx_type){unpack_iq4_xs, SMALL, false};
	default: return (struct kn_amx_type){0};
	}
}
