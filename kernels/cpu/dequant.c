/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes weights to float32 in portable code; the faster decoders must match it bit for bit. kernels/blocks.h has the
 * layouts. A decoder takes one block.
 */
#include "kernels/cpu/dequant.h"

#include "kernels/blocks.h"
#include "kernels/quantize.h"

static void q8_0(const uint8_t *at, float *y)
{
	float d = kn_f16_at(at);
	for (int i = 0; i < 32; i++)
		y[i] = d * (float)(int8_t)at[2 + i];
}

/* Nibble i of 32. */
static int nibble(const uint8_t *qs, int i) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; }

static void q4_0(const uint8_t *at, float *y)
{
	for (int i = 0; i < 32; i++)
		y[i] = kn_f16_at(at) * (float)(nibble(at + 2, i) - 8);
}

static void int4(const uint8_t *at, float *y)
{
	for (int i = 0; i < 128; i++)
		y[i] = kn_f16_at(at) * (float)(nibble(at + 2 + i / 32 * 16, i % 32) - 8);
}

static void q4_1(const uint8_t *at, float *y)
{
	for (int i = 0; i < 32; i++)
		y[i] = kn_f16_at(at) * (float)nibble(at + 4, i) + kn_f16_at(at + 2);
}

static void q5_0(const uint8_t *at, float *y)
{
	uint32_t qh = kn_u32_at(at + 2);
	for (int i = 0; i < 32; i++) {
		int q = nibble(at + 6, i) | (int)(qh >> i & 1) << 4;
		y[i] = kn_f16_at(at) * (float)(q - 16);
	}
}

static void q5_1(const uint8_t *at, float *y)
{
	uint32_t qh = kn_u32_at(at + 4);
	for (int i = 0; i < 32; i++) {
		int q = nibble(at + 8, i) | (int)(qh >> i & 1) << 4;
		y[i] = kn_f16_at(at) * (float)q + kn_f16_at(at + 2);
	}
}

static void iq4_nl(const uint8_t *at, float *y)
{
	for (int i = 0; i < 32; i++)
		y[i] = kn_f16_at(at) * (float)kn_nl_values[nibble(at + 2, i)];
}

static void mxfp4(const uint8_t *at, float *y)
{
	for (int i = 0; i < 32; i++)
		y[i] = kn_e8m0_half(at[0]) * (float)kn_fp4_values[nibble(at + 1, i)];
}

static void q2_k(const uint8_t *at, float *y)
{
	const uint8_t *sc = at, *qs = at + 16;
	float d = kn_f16_at(at + 80), m = kn_f16_at(at + 82);
	for (int i = 0; i < 256; i++) {
		int q = qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3, s = sc[i / 16];
		y[i] = d * (float)(s & 15) * (float)q - m * (float)(s >> 4);
	}
}

static void q3_k(const uint8_t *at, float *y)
{
	const uint8_t *qh = at, *qs = at + 32, *sc = at + 96;
	float d = kn_f16_at(at + 108);
	for (int i = 0; i < 256; i++) {
		int q = qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
		q |= (qh[i % 32] >> i / 32 & 1) << 2;
		y[i] = d * (float)kn_scale_q3(sc, i / 16) * (float)(q - 4);
	}
}

static void q4_k(const uint8_t *at, float *y)
{
	const uint8_t *qs = at + 16;
	float d = kn_f16_at(at), m = kn_f16_at(at + 2);
	for (int i = 0; i < 256; i++) {
		int scale, min, byte = qs[i / 64 * 32 + i % 32];
		kn_scale_min(at + 4, i / 32, &scale, &min);
		y[i] = d * (float)scale * (float)(i % 64 < 32 ? byte & 15 : byte >> 4) - m * (float)min;
	}
}

static void q5_k(const uint8_t *at, float *y)
{
	const uint8_t *qh = at + 16, *qs = at + 48;
	float d = kn_f16_at(at), m = kn_f16_at(at + 2);
	for (int i = 0; i < 256; i++) {
		int scale, min, byte = qs[i / 64 * 32 + i % 32];
		int q = (i % 64 < 32 ? byte & 15 : byte >> 4) | (qh[i % 32] >> i / 32 & 1) << 4;
		kn_scale_min(at + 4, i / 32, &scale, &min);
		y[i] = d * (float)scale * (float)q - m * (float)min;
	}
}

static void q6_k(const uint8_t *at, float *y)
{
	const uint8_t *ql = at, *qh = at + 128, *sc = at + 192;
	float d = kn_f16_at(at + 208);
	for (int i = 0; i < 256; i++) {
		int j = i / 32 % 4, byte = ql[i / 128 * 64 + i % 64];
		int q = (j < 2 ? byte & 15 : byte >> 4) | (qh[i / 128 * 32 + i % 32] >> 2 * j & 3) << 4;
		y[i] = d * (float)(int8_t)sc[i / 16] * (float)(q - 32);
	}
}

static void iq4_xs(const uint8_t *at, float *y)
{
	for (int i = 0; i < 256; i++) {
		float scale = kn_f16_at(at) * (float)kn_scale_iq4(at, i / 32);
		y[i] = scale * (float)kn_nl_values[nibble(at + 8 + i / 32 * 16, i % 32)];
	}
}

static void (*const decoders[])(const uint8_t *at, float *y) = {
    [KN_Q4_0] = q4_0,     [KN_Q4_1] = q4_1,     [KN_Q5_0] = q5_0,   [KN_Q5_1] = q5_1, [KN_Q8_0] = q8_0,
    [KN_Q2_K] = q2_k,     [KN_Q3_K] = q3_k,     [KN_Q4_K] = q4_k,   [KN_Q5_K] = q5_k, [KN_Q6_K] = q6_k,
    [KN_IQ4_NL] = iq4_nl, [KN_IQ4_XS] = iq4_xs, [KN_MXFP4] = mxfp4, [KN_INT4] = int4,
};

void kn_dequantize(int type, const void *from, size_t n, float *y)
{
	const uint8_t *at = from;
	size_t block = (size_t)kn_type_block(type), bytes = kn_type_block_bytes(type);
	BUG_IF(block == 0 || n % block != 0, "%zu weights of type %d", n, type);
	switch (type) {
	case KN_F32: memcpy(y, at, n * sizeof *y); return;
	case KN_F16:
		for (size_t i = 0; i < n; i++)
			y[i] = kn_f16_at(at + 2 * i);
		return;
	case KN_BF16:
		for (size_t i = 0; i < n; i++)
			y[i] = kn_f32_from_bf16(kn_u16_at(at + 2 * i));
		return;
	default:
		for (; n > 0; n -= block, at += bytes, y += block)
			decoders[type](at, y);
	}
}

void kn_dequantize_row(const struct kn_weight *w, int row, float *y)
{
	size_t n = (size_t)w->n_in;
	kn_dequantize(w->type, (const uint8_t *)w->data + (size_t)row * kn_row_bytes(w->type, n), n, y);
}
