/* SPDX-License-Identifier: Apache-2.0
 *
 * Unpacks interleaved weights (int8.h) to panels: bytes, with scale and offset in float32. This is done once for all
 * rows, so the multiplying code handles three kinds of weights instead of thirteen types:
 *
 *   narrow  a scale for 32 weights from -16 to 15; an offset for some
 *   fine    a scale for 16 weights from -32 to 31; an offset for Q2_K
 *   wide    a scale for 32 weights from -128 to 127
 *   plain   Q8_0, used from memory without a panel
 *
 * An instruction set's file includes this after defining
 *
 *   LANES                        floats in a vector
 *   vf, vi, vb                   a vector of floats, of int32, of bytes
 *   v_load v_store v_set v_fma v_float    of floats, as in simd_matmul.h
 *   v_f16 v_i8                   LANES halves to floats, LANES bytes to int32
 *   b_lookup                     values[q] of every byte q < 16
 *   BIAS_NARROW BIAS_FINE BIAS_WIDE   added to a signed weight in a panel: nothing, or what makes it
 *                                unsigned (16, 32, 128)
 *   WIDE_MASKED                  defined if wide weights use their signs as masks: masked_less, the initial
 *                                value of the sums, is stored in place of an offset
 */
#include <string.h>

#include "kernels/blocks.h"
#include "kernels/cpu/int8.h"

enum {
	BYTES = 4 * LANES,   /* of a vector */
	WORD = 4 * INT8_OUT, /* bytes of a panel that hold four weights of all outputs of a group */
	SCALES = 4 * INT8_OUT,
	FINE_BLOCK = INT8_BLOCK / 2,
};

enum kind { NARROW, FINE, WIDE, PLAIN };

/* The offset of Q8_0's 32 weights in a block, after the scales. */
enum { HALVES = 2 * INT8_OUT, WORDS_4 = 4 * WORD };

/* A panel block: the weights of a group, [weights / 4][INT8_OUT][4], scale [INT8_OUT], offset the same. */
INLINE size_t panel_block(enum kind kind)
{
	if (kind == PLAIN)
		return HALVES + 8 * WORD;
	return (kind == FINE ? FINE_BLOCK : INT8_BLOCK) * INT8_OUT + 2 * SCALES;
}

/* Bytes of a group's panel of n weights. */
INLINE size_t panel_bytes(enum kind kind, int n)
{
	return (size_t)(n / (kind == FINE ? FINE_BLOCK : INT8_BLOCK)) * panel_block(kind);
}

typedef uint8_t vb16 __attribute__((vector_size(16)));
typedef uint16_t vh16 __attribute__((vector_size(32)));

INLINE vb b_load(const uint8_t *at)
{
	vb v;
	memcpy(&v, at, sizeof v);
	return v;
}

/* Broadcasts four bytes from memory to every 32-bit lane. */
INLINE vb b_word(const int8_t *at)
{
	int32_t word;
	memcpy(&word, at, sizeof word);
	return (vb)((vi){0} + word);
}

INLINE void b_store(uint8_t *at, vb v) { memcpy(at, &v, sizeof v); }

INLINE vb16 b16_load(const uint8_t *at)
{
	vb16 v;
	memcpy(&v, at, sizeof v);
	return v;
}

/* Scale and offset of a panel block, from the file's float16s, each times a small integer per output: d·s and m·o. */
struct factors {
	const uint8_t *d, *m; /* float16 [INT8_OUT]; m NULL: no offset */
	float m_sign;
};

INLINE void put_scales(uint8_t *out, struct factors f, vb16 s, vb16 o)
{
	float *scale = (float *)(void *)out;
	uint8_t bytes[2][INT8_OUT];
	memcpy(bytes[0], &s, sizeof s);
	memcpy(bytes[1], &o, sizeof o);
	UNROLL_FOR(int l = 0; l < INT8_OUT; l += LANES) {
		vf d = v_f16(f.d + 2 * l) * v_float(v_i8(bytes[0] + l));
		v_store(scale + l, d);
		if (f.m != NULL)
			v_store(scale + INT8_OUT + l,
				v_set(f.m_sign) * v_f16(f.m + 2 * l) * v_float(v_i8(bytes[1] + l)));
	}
}

/* The same without integers. */
INLINE void put_halves(uint8_t *out, const uint8_t *d, const uint8_t *m, float extra)
{
	float *scale = (float *)(void *)out;
	UNROLL_FOR(int l = 0; l < INT8_OUT; l += LANES) {
		vf ds = v_f16(d + 2 * l);
		v_store(scale + l, ds);
		if (m != NULL)
			v_store(scale + INT8_OUT + l,
				extra != 0 ? v_fma(ds, v_set(extra), v_f16(m + 2 * l)) : v_f16(m + 2 * l));
	}
}

#ifdef WIDE_MASKED
enum { HAS_MASKED = 1 };
#else
enum { HAS_MASKED = 0 };
#endif

/* Copies the weights and scales of a block to a wide panel. */
INLINE void end_wide(uint8_t *out)
{
#ifdef WIDE_MASKED
	UNROLL_FOR(int i = 0; i < WORD; i += BYTES)
		masked_less(out + i, WORD, out + 8 * WORD + SCALES + i);
#else
	(void)out;
#endif
}

static void unpack_q8_0(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= INT8_BLOCK, at += HALVES + 8 * WORD, out += panel_block(WIDE)) {
		UNROLL_FOR(int i = 0; i < 8 * WORD; i += BYTES)
			b_store(out + i, b_load(at + HALVES + i) + (uint8_t)BIAS_WIDE);
		put_halves(out + 8 * WORD, at, NULL, 0);
		end_wide(out);
	}
}

/* 32 nibbles of each output, `added` to each. */
INLINE void put_nibbles(uint8_t *out, const uint8_t *qs, uint8_t added)
{
	UNROLL_FOR(int i = 0; i < WORDS_4; i += BYTES) {
		vb q = b_load(qs + i);
		b_store(out + i, (q & 15) + added);
		b_store(out + WORDS_4 + i, (q >> 4) + added);
	}
}

static void unpack_q4_0(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= INT8_BLOCK, at += HALVES + WORDS_4, out += panel_block(NARROW)) {
		put_nibbles(out, at + HALVES, (uint8_t)(BIAS_NARROW - 8));
		put_halves(out + 8 * WORD, at, NULL, 0);
	}
}

static void unpack_q4_1(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= INT8_BLOCK, at += 2 * HALVES + WORDS_4, out += panel_block(NARROW)) {
		put_nibbles(out, at + 2 * HALVES, BIAS_NARROW);
		put_halves(out + 8 * WORD, at, at + HALVES, 0);
	}
}

typedef uint32_t vw __attribute__((vector_size(4 * LANES)));

/* Nibbles and their fifth bits. */
INLINE void put_fives(uint8_t *out, const uint8_t *qh, const uint8_t *qs)
{
	put_nibbles(out, qs, 0);
	UNROLL_FOR(int l = 0; l < WORD; l += BYTES) {
		vw bits = (vw)b_load(qh + l);
		UNROLL_FOR(int i = 0; i < 8; i++) {
			/* Spreads four bits to four bytes: bit i to 8i = i + 7i. */
			vw spread = ((bits >> 4 * i & 15) * 0x00204081u & 0x01010101u) << 4;
			uint8_t *word = out + i * WORD + l;
			b_store(word, (b_load(word) | (vb)spread) + (uint8_t)(BIAS_NARROW - 16));
		}
	}
}

static void unpack_q5_0(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= INT8_BLOCK, at += HALVES + WORD + WORDS_4, out += panel_block(NARROW)) {
		put_fives(out, at + HALVES, at + HALVES + WORD);
		put_halves(out + 8 * WORD, at, NULL, 0);
	}
}

static void unpack_q5_1(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= INT8_BLOCK, at += 2 * HALVES + WORD + WORDS_4, out += panel_block(NARROW)) {
		put_fives(out, at + 2 * HALVES, at + 2 * HALVES + WORD);
		put_halves(out + 8 * WORD, at, at + HALVES, 16);
	}
}

/* 32 nibbles of each output through a table. */
INLINE void put_values(uint8_t *out, const uint8_t *qs, vb table)
{
	UNROLL_FOR(int i = 0; i < WORDS_4; i += BYTES) {
		vb q = b_load(qs + i);
		b_store(out + i, b_lookup(table, q & 15));
		b_store(out + WORDS_4 + i, b_lookup(table, q >> 4));
	}
}

/* The table, repeated for every 16 bytes of a vector, plus `added`. */
INLINE vb table_of(const int8_t *values, uint8_t added)
{
	uint8_t all[BYTES];
	for (int i = 0; i < BYTES; i++)
		all[i] = (uint8_t)(values[i % 16] + added);
	return b_load(all);
}

static void unpack_iq4_nl(const uint8_t *at, int n, uint8_t *out)
{
	vb table = table_of(kn_nl_values, BIAS_WIDE);
	for (; n > 0; n -= INT8_BLOCK, at += HALVES + WORDS_4, out += panel_block(WIDE)) {
		put_values(out, at + HALVES, table);
		put_halves(out + 8 * WORD, at, NULL, 0);
		end_wide(out);
	}
}

/* kn_e8m0_half of LANES bytes. */
INLINE vf v_e8m0_half(const uint8_t *at)
{
	vi e = v_i8(at) & 255, tiny = e < 2;
	return (vf)((tiny & (e + 1) << 21) | (~tiny & (e - 1) << 23));
}

static void unpack_mxfp4(const uint8_t *at, int n, uint8_t *out)
{
	vb table = table_of(kn_fp4_values, BIAS_NARROW);
	for (; n > 0; n -= INT8_BLOCK, at += INT8_OUT + WORDS_4, out += panel_block(NARROW)) {
		float *scale = (float *)(void *)(out + 8 * WORD);
		put_values(out, at + INT8_OUT, table);
		UNROLL_FOR(int l = 0; l < INT8_OUT; l += LANES)
			v_store(scale + l, v_e8m0_half(at + l));
	}
}

static void unpack_iq4_xs(const uint8_t *at, int n, uint8_t *out)
{
	vb table = table_of(kn_nl_values, BIAS_WIDE);
	for (; n > 0; n -= KN_K_BLOCK, at += 2 * HALVES + 4 * INT8_OUT + 32 * WORD) {
		const uint8_t *sl = at + 2 * HALVES;
		vh16 high;
		memcpy(&high, at + HALVES, sizeof high);
		UNROLL_FOR(int b = 0; b < 8; b++, out += panel_block(WIDE)) {
			vb16 upper = __builtin_convertvector((high >> 2 * b & 3) << 4, vb16);
			vb16 low = b16_load(sl + b / 2 * INT8_OUT) >> 4 * (b % 2) & 15;
			put_values(out, sl + 4 * INT8_OUT + b * WORDS_4, table);
			put_scales(out + 8 * WORD, (struct factors){.d = at}, (low | upper) - 32, low);
			end_wide(out);
		}
	}
}

/* Scales and minima of the eight blocks of Q4_K and Q5_K, of a group's outputs (kn_scale_min): [8][INT8_OUT]. */
struct k_scales {
	uint8_t scale[8 * INT8_OUT], min[8 * INT8_OUT];
};

INLINE void scales_of_k(const uint8_t *sc, uint8_t *scale, uint8_t *min)
{
	UNROLL_FOR(int i = 0; i < 4 * INT8_OUT; i += BYTES) {
		vb s = b_load(sc + i), m = b_load(sc + 4 * INT8_OUT + i), both = b_load(sc + 8 * INT8_OUT + i);
		b_store(scale + i, s & 63);
		b_store(scale + 4 * INT8_OUT + i, (both & 15) | (s >> 2 & 48));
		b_store(min + i, m & 63);
		b_store(min + 4 * INT8_OUT + i, both >> 4 | (m >> 2 & 48));
	}
}

/* A panel block's scale and offset. d: the super-block's scale, m: its minimum, negated. */
INLINE void put_k_scales(bool fifth, uint8_t *out, const vf *d, const vf *m, const struct k_scales *s, int block)
{
	float *scale = (float *)(void *)out;
	UNROLL_FOR(int l = 0; l < INT8_OUT; l += LANES) {
		vf ds = d[l / LANES] * v_float(v_i8(s->scale + block * INT8_OUT + l));
		vf offset = m[l / LANES] * v_float(v_i8(s->min + block * INT8_OUT + l));
		v_store(scale + l, ds);
		v_store(scale + INT8_OUT + l, fifth ? v_fma(ds, v_set(16), offset) : offset);
	}
}

INLINE void unpack_k(bool fifth, const uint8_t *at, int n, uint8_t *out)
{
	size_t heads = 2 * HALVES + 12 * INT8_OUT;
	const uint8_t added = (uint8_t)(BIAS_NARROW - (fifth ? 16 : 0));
	for (; n > 0; n -= KN_K_BLOCK) {
		const uint8_t *sc = at + 2 * HALVES, *qh = at + heads, *qs = qh + (fifth ? 8 * WORD : 0);
		struct k_scales scales;
		vf d[INT8_OUT / LANES], m[INT8_OUT / LANES];
		scales_of_k(sc, scales.scale, scales.min);
		UNROLL_FOR(int l = 0; l < INT8_OUT; l += LANES) {
			d[l / LANES] = v_f16(at + 2 * l);
			m[l / LANES] = v_set(-1) * v_f16(at + HALVES + 2 * l);
		}
		UNROLL_FOR(int g = 0; g < 4; g++, qs += 8 * WORD, out += 2 * panel_block(NARROW)) {
			uint8_t *next = out + panel_block(NARROW);
			UNROLL_FOR(int i = 0; i < 8 * WORD; i += BYTES) {
				vb q = b_load(qs + i), low = q & 15, high = q >> 4;
				vb h = fifth ? b_load(qh + i) : q;
				b_store(out + i, (fifth ? low | (h >> 2 * g & 1) << 4 : low) + added);
				b_store(next + i, (fifth ? high | (h >> (2 * g + 1) & 1) << 4 : high) + added);
			}
			put_k_scales(fifth, out + 8 * WORD, d, m, &scales, 2 * g);
			put_k_scales(fifth, next + 8 * WORD, d, m, &scales, 2 * g + 1);
		}
		at = qs;
	}
}

static void unpack_q4_k(const uint8_t *at, int n, uint8_t *out) { unpack_k(false, at, n, out); }

static void unpack_q5_k(const uint8_t *at, int n, uint8_t *out) { unpack_k(true, at, n, out); }

/* The byte offset, in a vector of words, of the four weights 32j + i … of half h. */
INLINE uint8_t *fine_at(uint8_t *out, int h, int j, int i)
{
	return out + (size_t)(8 * h + 2 * j + i / (4 * WORD)) * panel_block(FINE) + i % (4 * WORD);
}

static void unpack_q6_k(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= KN_K_BLOCK, at += 210 * INT8_OUT, out += 16 * panel_block(FINE)) {
		const uint8_t *qh = at + 32 * WORD, *sc = qh + 16 * WORD;
		struct factors f = {.d = sc + 16 * INT8_OUT};
		for (int h = 0; h < 2; h++)
			for (int i = 0; i < 8 * WORD; i += BYTES) {
				vb high = b_load(qh + 8 * h * WORD + i);
				vb q[2] = {b_load(at + 16 * h * WORD + i), b_load(at + (16 * h + 8) * WORD + i)};
				UNROLL_FOR(int j = 0; j < 4; j++)
					b_store(fine_at(out, h, j, i),
						((j < 2 ? q[j % 2] & 15 : q[j % 2] >> 4) | (high >> 2 * j & 3) << 4) +
						    (uint8_t)(BIAS_FINE - 32));
			}
		for (int s = 0; s < 16; s++) {
			vb16 scale = b16_load(sc + s * INT8_OUT);
			put_scales(out + (size_t)s * panel_block(FINE) + 4 * WORD, f, scale, scale);
		}
	}
}

static void unpack_q2_k(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= KN_K_BLOCK, at += 84 * INT8_OUT, out += 16 * panel_block(FINE)) {
		const uint8_t *qs = at + 16 * INT8_OUT;
		struct factors f = {.d = qs + 16 * WORD, .m = qs + 16 * WORD + HALVES, .m_sign = -1};
		for (int h = 0; h < 2; h++)
			for (int i = 0; i < 8 * WORD; i += BYTES) {
				vb q = b_load(qs + 8 * h * WORD + i);
				UNROLL_FOR(int j = 0; j < 4; j++)
					b_store(fine_at(out, h, j, i), (q >> 2 * j & 3) + BIAS_FINE);
			}
		for (int s = 0; s < 16; s++) {
			vb16 sc = b16_load(at + s * INT8_OUT);
			put_scales(out + (size_t)s * panel_block(FINE) + 4 * WORD, f, sc & 15, sc >> 4);
		}
	}
}

static void unpack_q3_k(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= KN_K_BLOCK, at += 110 * INT8_OUT, out += 16 * panel_block(FINE)) {
		const uint8_t *qs = at + 8 * WORD, *sc = qs + 16 * WORD;
		struct factors f = {.d = sc + 12 * INT8_OUT};
		for (int h = 0; h < 2; h++)
			for (int i = 0; i < 8 * WORD; i += BYTES) {
				vb q = b_load(qs + 8 * h * WORD + i), third = b_load(at + i) >> 4 * h;
				UNROLL_FOR(int j = 0; j < 4; j++)
					b_store(fine_at(out, h, j, i),
						((q >> 2 * j & 3) | (third >> j & 1) << 2) + (uint8_t)(BIAS_FINE - 4));
			}
		for (int s = 0; s < 16; s++) {
			vb16 low = b16_load(sc + s % 8 * INT8_OUT), high = b16_load(sc + (8 + s % 4) * INT8_OUT);
			low = (s < 8 ? low & 15 : low >> 4) | (high >> 2 * (s / 4) & 3) << 4;
			put_scales(out + (size_t)s * panel_block(FINE) + 4 * WORD, f, low - 32, low);
		}
	}
}

struct type {
	void (*unpack)(const uint8_t *at, int n, uint8_t *out);
	enum kind kind;
	bool has_offset;
};

static const struct type types[] = {
    [KN_Q4_0] = {unpack_q4_0, NARROW, false},   [KN_Q4_1] = {unpack_q4_1, NARROW, true},
    [KN_Q5_0] = {unpack_q5_0, NARROW, false},   [KN_Q5_1] = {unpack_q5_1, NARROW, true},
    [KN_Q8_0] = {unpack_q8_0, WIDE, false},     [KN_Q2_K] = {unpack_q2_k, FINE, true},
    [KN_Q3_K] = {unpack_q3_k, FINE, false},     [KN_Q4_K] = {unpack_q4_k, NARROW, true},
    [KN_Q5_K] = {unpack_q5_k, NARROW, true},    [KN_Q6_K] = {unpack_q6_k, FINE, false},
    [KN_IQ4_NL] = {unpack_iq4_nl, WIDE, false}, [KN_IQ4_XS] = {unpack_iq4_xs, WIDE, false},
    [KN_MXFP4] = {unpack_mxfp4, NARROW, false},
};
