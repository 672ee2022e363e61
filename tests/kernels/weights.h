/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of operations: memory between guards, random numbers, and matrices of every type that
 * are packed here from known integers, the other way round than the decoders under test go.
 */
#ifndef TESTS_KERNELS_WEIGHTS_H
#define TESTS_KERNELS_WEIGHTS_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/kernels/eight_bits.h"

#define U 0x1p-24 /* the unit roundoff of float32 */
#define N(a) ((int)(sizeof(a) / sizeof((a)[0])))

enum { GUARD = 16, N_TYPES = 17 };

static uint64_t state = 1;

static inline uint32_t next_bits(void)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 32);
}

/* Uniform in [-1, 1), with all 24 bits. */
static inline float next_float(void) { return (float)((int32_t)(next_bits() >> 7) - (1 << 24)) * 0x1p-24f; }

/* The error of a sum of n products by fused multiply-adds in any order, relative to the sum of their
 * magnitudes (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., section 3.1). */
static inline double gamma_of(int n) { return n * U / (1 - n * U); }

/* n floats between two guards, NaN; the first is KN_ALIGN-aligned. */
static inline float *guarded(const struct kn_ops *o, struct kn_backend *b, size_t n)
{
	void *p;
	assert_int_equal(o->mem_alloc(b, (n + 2 * GUARD) * sizeof(float), &p), 0);
	assert_int_equal((uintptr_t)p % KN_ALIGN, 0);
	float *f = p;
	for (size_t i = 0; i < n + 2 * GUARD; i++)
		assert_true(f[i] == 0);
	for (size_t i = 0; i < GUARD; i++)
		f[i] = f[GUARD + n + i] = -12345.75f - (float)i;
	for (size_t i = 0; i < n; i++)
		f[GUARD + i] = NAN;
	return f + GUARD;
}

static inline void check_guards(const float *f, size_t n)
{
	for (size_t i = 0; i < GUARD; i++) {
		assert_true(f[(ptrdiff_t)i - GUARD] == -12345.75f - (float)i);
		assert_true(f[n + i] == -12345.75f - (float)i);
	}
}

static inline void drop(const struct kn_ops *o, struct kn_backend *b, float *f) { o->mem_free(b, f - GUARD); }

static inline float *random_floats(const struct kn_ops *o, struct kn_backend *b, size_t n)
{
	float *f = guarded(o, b, n);
	for (size_t i = 0; i < n; i++)
		f[i] = next_float();
	return f;
}

/* ---- packing ---- */

static inline double f16_value(uint16_t h)
{
	int exp = h >> 10 & 31, man = h & 1023;
	double v = exp == 0 ? ldexp(man, -24) : ldexp(1024 + man, exp - 25);
	return h & 0x8000 ? -v : v;
}

static inline double bf16_value(uint16_t h)
{
	int exp = h >> 7 & 255, man = h & 127;
	double v = exp == 0 ? ldexp(man, -133) : ldexp(128 + man, exp - 134);
	return h & 0x8000 ? -v : v;
}

/* A float16 of either sign below 2^-5, at times subnormal. */
static inline double put_scale(uint8_t *at)
{
	uint16_t h = (uint16_t)(next_bits() & 0xA7FF);
	memcpy(at, &h, 2);
	return f16_value(h);
}

static inline int below(int n) { return (int)(next_bits() % (uint32_t)n); }

/* 32 values of four bits or more, of which four go here. */
static inline void put_nibbles(uint8_t *qs, const int *q)
{
	for (int i = 0; i < 32; i++)
		qs[i % 16] |= (uint8_t)((q[i] & 15) << (i / 16 * 4));
}

static inline void put_twos(uint8_t *qs, const int *q)
{
	for (int i = 0; i < 256; i++)
		qs[i / 128 * 32 + i % 32] |= (uint8_t)((q[i] & 3) << (i % 128 / 32 * 2));
}

/* Eight scales and eight minimums of six bits in twelve bytes. */
static inline void put_scales_and_minimums(uint8_t *sc, const int *s, const int *m)
{
	for (int i = 0; i < 4; i++) {
		sc[i] = (uint8_t)(s[i] | s[4 + i] >> 4 << 6);
		sc[4 + i] = (uint8_t)(m[i] | m[4 + i] >> 4 << 6);
		sc[8 + i] = (uint8_t)((s[4 + i] & 15) | (m[4 + i] & 15) << 4);
	}
}

static const int nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const double fp4[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

static inline void small_block(int type, uint8_t *at, double *v)
{
	int q[32];
	uint32_t fifth = 0;
	for (int i = 0; i < 32; i++) {
		q[i] = below(type == KN_Q5_0 || type == KN_Q5_1 ? 32 : 16);
		fifth |= (uint32_t)(q[i] >> 4) << i;
	}
	if (type == KN_MXFP4) {
		at[0] = (uint8_t)(120 + below(10));
		put_nibbles(at + 1, q);
		for (int i = 0; i < 32; i++)
			v[i] = ldexp(q[i] < 8 ? fp4[q[i]] : -fp4[q[i] - 8], at[0] - 127);
		return;
	}
	double d = put_scale(at), m = 0;
	uint8_t *rest = at + 2;
	if (type == KN_Q4_1 || type == KN_Q5_1) {
		m = put_scale(rest);
		rest += 2;
	}
	if (type == KN_Q5_0 || type == KN_Q5_1) {
		memcpy(rest, &fifth, 4);
		rest += 4;
	}
	if (type != KN_Q8_0)
		put_nibbles(rest, q);
	for (int i = 0; i < 32; i++)
		switch (type) {
		case KN_Q4_0: v[i] = d * (q[i] - 8); break;
		case KN_Q5_0: v[i] = d * (q[i] - 16); break;
		case KN_IQ4_NL: v[i] = d * nl[q[i]]; break;
		case KN_Q8_0:
			rest[i] = (uint8_t)below(256);
			v[i] = d * (int8_t)rest[i];
			break;
		default: v[i] = d * q[i] + m; break;
		}
}

static inline void int4_block(uint8_t *at, double *v)
{
	int q[128];
	double d = put_scale(at);
	for (int i = 0; i < 128; i++) {
		q[i] = below(16);
		v[i] = d * (q[i] - 8);
	}
	for (int i = 0; i < 4; i++)
		put_nibbles(at + 2 + 16 * i, q + 32 * i);
}

static inline void large_block(int type, uint8_t *at, double *v)
{
	int q[256], s[16], m[16], bits = type == KN_Q2_K ? 4 : 64;
	for (int i = 0; i < 16; i++) {
		s[i] = below(bits);
		m[i] = below(bits);
	}
	for (int i = 0; i < 256; i++)
		q[i] = below(type == KN_Q2_K   ? 4
			     : type == KN_Q3_K ? 8
			     : type == KN_Q5_K ? 32
			     : type == KN_Q6_K ? 64
					       : 16);
	double d, dm;
	switch (type) {
	case KN_Q2_K:
		for (int i = 0; i < 16; i++)
			at[i] = (uint8_t)(s[i] | m[i] << 4);
		put_twos(at + 16, q);
		d = put_scale(at + 80);
		dm = put_scale(at + 82);
		for (int i = 0; i < 256; i++)
			v[i] = d * s[i / 16] * q[i] - dm * m[i / 16];
		break;
	case KN_Q3_K:
		for (int i = 0; i < 256; i++)
			at[i % 32] |= (uint8_t)(q[i] >> 2 << (i / 32));
		put_twos(at + 32, q);
		for (int i = 0; i < 16; i++) {
			at[96 + i % 8] |= (uint8_t)((s[i] & 15) << (i / 8 * 4));
			at[104 + i % 4] |= (uint8_t)(s[i] >> 4 << (i / 4 * 2));
		}
		d = put_scale(at + 108);
		for (int i = 0; i < 256; i++)
			v[i] = d * (s[i / 16] - 32) * (q[i] - 4);
		break;
	case KN_Q4_K:
	case KN_Q5_K:
		d = put_scale(at);
		dm = put_scale(at + 2);
		put_scales_and_minimums(at + 4, s, m);
		for (int i = 0; i < 256; i++) {
			if (type == KN_Q5_K)
				at[16 + i % 32] |= (uint8_t)(q[i] >> 4 << (i / 32));
			at[(type == KN_Q5_K ? 48 : 16) + i / 64 * 32 + i % 32] |=
			    (uint8_t)((q[i] & 15) << (i % 64 / 32 * 4));
			v[i] = d * s[i / 32] * q[i] - dm * m[i / 32];
		}
		break;
	case KN_Q6_K:
		d = put_scale(at + 208);
		for (int i = 0; i < 16; i++)
			at[192 + i] = (uint8_t)below(256);
		for (int i = 0; i < 256; i++) {
			int in = i % 128;
			at[i / 128 * 64 + in % 64] |= (uint8_t)((q[i] & 15) << (in / 64 * 4));
			at[128 + i / 128 * 32 + in % 32] |= (uint8_t)(q[i] >> 4 << (in / 32 * 2));
			v[i] = d * (int8_t)at[192 + i / 16] * (q[i] - 32);
		}
		break;
	default: { /* IQ4_XS */
		d = put_scale(at);
		uint16_t high = 0;
		for (int i = 0; i < 8; i++) {
			high = (uint16_t)(high | s[i] >> 4 << 2 * i);
			at[4 + i / 2] |= (uint8_t)((s[i] & 15) << (i % 2 * 4));
			put_nibbles(at + 8 + 16 * i, q + 32 * i);
		}
		memcpy(at + 2, &high, 2);
		for (int i = 0; i < 256; i++)
			v[i] = d * (s[i / 32] - 32) * nl[q[i]];
		break;
	}
	}
}

struct matrix {
	uint8_t *bytes; /* 8-byte aligned and no more, as a file may have them */
	void *owned;
	double *values;
	int type, n_out, n_in;
};

/* Random values of the type, each rounded to float32 once at the most. */
static inline struct matrix make_matrix(int type, int n_out, int n_in)
{
	struct matrix m = {.type = type, .n_out = n_out, .n_in = n_in};
	size_t row = kn_row_bytes(type, (size_t)n_in), n = (size_t)n_out * (size_t)n_in;
	size_t block = (size_t)kn_type_block(type), bytes = kn_type_block_bytes(type);
	/* No byte more than the matrix has: whoever reads past its end is seen by a sanitizer. */
	m.owned = malloc(8 + row * (size_t)n_out);
	m.values = calloc(n, sizeof *m.values);
	assert_true(m.owned != NULL && m.values != NULL);
	m.bytes = (uint8_t *)m.owned + 8;
	memset(m.bytes, 0, row * (size_t)n_out);
	uint8_t *at = m.bytes;
	for (size_t i = 0; i < n; i += block, at += bytes) {
		uint16_t h = (uint16_t)next_bits();
		float f = next_float();
		if (type == KN_F32) {
			memcpy(at, &f, 4);
			m.values[i] = (double)f;
		} else if (type == KN_F16) {
			h &= 0xBFFF; /* below 2 */
			memcpy(at, &h, 2);
			m.values[i] = f16_value(h);
		} else if (type == KN_BF16) {
			h = (uint16_t)((h & 0x83FF) | 0x3C00); /* from 2^-7 to below 2 */
			memcpy(at, &h, 2);
			m.values[i] = bf16_value(h);
		} else if (block == 32) {
			small_block(type, at, m.values + i);
		} else if (block == 128) {
			int4_block(at, m.values + i);
		} else {
			large_block(type, at, m.values + i);
		}
	}
	for (size_t i = 0; i < n; i++)
		m.values[i] = (double)(float)m.values[i];
	return m;
}

static inline void drop_matrix(struct matrix *m)
{
	free(m->owned);
	free(m->values);
}

#endif
