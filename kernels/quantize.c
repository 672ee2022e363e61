/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts float32 to the weight types: the entry points, types without blocks, and blocks of 32 and 128. quantize_k.c
 * has blocks of 256, quantize_fit.c the searches, blocks.h the layouts.
 *
 * A scale is rounded to its stored form before the values are quantized, so that they compensate.
 */
#include "kernels/quantize.h"

#include <math.h>

#include "kernels/blocks.h"
#include "kernels/quantize_blocks.h"
#include "kernels/quantize_fit.h"

/* ---- halves ---- */

/* To the nearest, ties to even; infinity from 65520 on. */
uint16_t kn_f16_from_f32(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
	if (rest >= 0x47800000) /* 65536, or not a number */
		return (uint16_t)(sign | (rest > 0x7F800000 ? 0x7E00 : 0x7C00));
	if (rest < 0x38800000) { /* below 2^-14: a multiple of 2^-24, which is the last place of 1/2 */
		float shifted = kn_f32_from_bits(rest) + 0.5f;
		memcpy(&bits, &shifted, sizeof bits);
		return (uint16_t)(sign | (bits - 0x3F000000));
	}
	rest -= 112u << 23;
	return (uint16_t)(sign | (rest + 0xFFF + (rest >> 13 & 1)) >> 13);
}

uint16_t kn_bf16_from_f32(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	if ((bits & 0x7FFFFFFF) > 0x7F800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static void put_u16(uint8_t *at, uint16_t h)
{
	at[0] = (uint8_t)h;
	at[1] = (uint8_t)(h >> 8);
}

int kn_put_f16(uint8_t *at, float v, float *stored)
{
	uint16_t h = kn_f16_from_f32(v);
	put_u16(at, h);
	*stored = kn_f32_from_f16(h);
	return isfinite(*stored) ? 0 : SL_EINVAL;
}

static int f32(const float *x, uint8_t *at)
{
	memcpy(at, x, sizeof *x);
	return 0;
}

static int f16(const float *x, uint8_t *at)
{
	float stored;
	return kn_put_f16(at, *x, &stored);
}

static int bf16(const float *x, uint8_t *at)
{
	uint16_t h = kn_bf16_from_f32(*x);
	put_u16(at, h);
	return isfinite(kn_f32_from_bf16(h)) ? 0 : SL_EINVAL;
}

/* ---- blocks of 32 ---- */

void kn_put_nibbles(uint8_t *qs, const uint8_t *q)
{
	for (int i = 0; i < 16; i++)
		qs[i] = (uint8_t)((q[i] & 15) | (q[16 + i] & 15) << 4);
}

void kn_put_fifth_bits(uint8_t *qh, const uint8_t *q)
{
	memset(qh, 0, 4);
	for (int i = 0; i < 32; i++)
		qh[i / 8] |= (uint8_t)(q[i] >> 4 << i % 8);
}

/* A scale at `at` and the index of each of n values. */
static int on_grid(const struct kn_grid *g, const float *x, int n, uint8_t *at, uint8_t *q)
{
	float d;
	int rc = kn_put_f16(at, kn_fit_scale(g, x, n), &d);
	for (int i = 0; i < n; i++)
		q[i] = (uint8_t)kn_grid_index(g, kn_over(x[i], d));
	return rc;
}

/* Scale and offset at `at` and the index of every value. */
static int affine(int max, const float *x, uint8_t *at, uint8_t *q)
{
	float scale, offset, d, m;
	kn_fit_affine(max, false, x, 32, &scale, &offset);
	int rc = kn_put_f16(at, scale, &d);
	rc = kn_put_f16(at + 2, offset, &m) != 0 ? SL_EINVAL : rc;
	for (int i = 0; i < 32; i++)
		q[i] = (uint8_t)kn_round_to(kn_over(x[i] - m, d), 0, max);
	return rc;
}

static int q8_0(const float *x, uint8_t *at)
{
	float most = 0, d;
	for (int i = 0; i < 32; i++)
		most = fmaxf(most, fabsf(x[i]));
	int rc = kn_put_f16(at, most / 127, &d);
	for (int i = 0; i < 32; i++)
		at[2 + i] = (uint8_t)kn_round_to(kn_over(x[i], d), -127, 127);
	return rc;
}

static int q4_0(const float *x, uint8_t *at)
{
	uint8_t q[32];
	int rc = on_grid(&(struct kn_grid){.lowest = -8, .n = 16}, x, 32, at, q);
	kn_put_nibbles(at + 2, q);
	return rc;
}

/* kernels/blocks.h: a scale for 128. */
static int int4(const float *x, uint8_t *at)
{
	uint8_t q[128];
	int rc = on_grid(&(struct kn_grid){.lowest = -8, .n = 16}, x, 128, at, q);
	for (int i = 0; i < 4; i++)
		kn_put_nibbles(at + 2 + 16 * i, q + 32 * i);
	return rc;
}

static int q4_1(const float *x, uint8_t *at)
{
	uint8_t q[32];
	int rc = affine(15, x, at, q);
	kn_put_nibbles(at + 4, q);
	return rc;
}

static int q5_0(const float *x, uint8_t *at)
{
	uint8_t q[32];
	int rc = on_grid(&(struct kn_grid){.lowest = -16, .n = 32}, x, 32, at, q);
	kn_put_fifth_bits(at + 2, q);
	kn_put_nibbles(at + 6, q);
	return rc;
}

static int q5_1(const float *x, uint8_t *at)
{
	uint8_t q[32];
	int rc = affine(31, x, at, q);
	kn_put_fifth_bits(at + 4, q);
	kn_put_nibbles(at + 8, q);
	return rc;
}

static int iq4_nl(const float *x, uint8_t *at)
{
	uint8_t q[32];
	int rc = on_grid(&(struct kn_grid){.values = kn_nl_values, .n = 16}, x, 32, at, q);
	kn_put_nibbles(at + 2, q);
	return rc;
}

/* The four-bit floats in ascending order, and the nibble of each. */
static const int8_t fp4_ascending[16] = {-12, -8, -6, -4, -3, -2, -1, 0, 0, 1, 2, 3, 4, 6, 8, 12};
static const uint8_t fp4_nibble[16] = {15, 14, 13, 12, 11, 10, 9, 0, 0, 1, 2, 3, 4, 5, 6, 7};

/* The scale is a power of two: the smallest that fits the largest value, or a neighbour. */
static int mxfp4(const float *x, uint8_t *at)
{
	struct kn_grid g = {.values = fp4_ascending, .n = 16};
	float most = 0, best = -1;
	int exponent = 0;
	for (int i = 0; i < 32; i++)
		most = fmaxf(most, fabsf(x[i]));
	at[0] = 0;
	if (most >= KN_TINY) {
		frexpf(most / 12, &exponent);
		for (int e = exponent - 1; e <= exponent + 1; e++) {
			float error = kn_scale_error(&g, x, 32, ldexpf(1, e));
			if (best < 0 || error < best) {
				best = error;
				at[0] = (uint8_t)(e + 128);
			}
		}
	}
	uint8_t q[32];
	float d = at[0] == 0 ? 0 : kn_e8m0_half(at[0]);
	for (int i = 0; i < 32; i++)
		q[i] = fp4_nibble[kn_grid_index(&g, kn_over(x[i], d))];
	kn_put_nibbles(at + 1, q);
	return 0;
}

/* ---- entry points ---- */

static int (*const encoders[])(const float *x, uint8_t *at) = {
    [KN_F32] = f32,
    [KN_F16] = f16,
    [KN_BF16] = bf16,
    [KN_Q4_0] = q4_0,
    [KN_Q4_1] = q4_1,
    [KN_Q5_0] = q5_0,
    [KN_Q5_1] = q5_1,
    [KN_Q8_0] = q8_0,
    [KN_IQ4_NL] = iq4_nl,
    [KN_MXFP4] = mxfp4,
    [KN_Q2_K] = kn_encode_q2_k,
    [KN_Q3_K] = kn_encode_q3_k,
    [KN_Q4_K] = kn_encode_q4_k,
    [KN_Q5_K] = kn_encode_q5_k,
    [KN_Q6_K] = kn_encode_q6_k,
    [KN_IQ4_XS] = kn_encode_iq4_xs,
    [KN_INT4] = int4,
};

int kn_quantize_row(int type, const float *x, size_t n, void *out)
{
	size_t block = (size_t)kn_type_block(type), bytes = kn_type_block_bytes(type);
	uint8_t *at = out;
	BUG_IF(block == 0 || n % block != 0, "%zu values to type %d", n, type);
	for (size_t i = 0; i < n; i += block, at += bytes) {
		for (size_t k = 0; k < block; k++)
			if (!isfinite(x[i + k]) || (block > 1 && fabsf(x[i + k]) > KN_HUGE))
				return SL_EINVAL;
		if (encoders[type](x + i, at) != 0)
			return SL_EINVAL;
	}
	return 0;
}
