/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights to float32 in vectors, for every type, written once over the few primitives that an
 * instruction set's file defines before it includes this (each is listed in simd_matmul.h).
 * kernels/blocks.h has the layouts; dequant.c is the plain form, and both give the same bits.
 *
 * Nearly all types are affine: a weight is scale · q + offset with a small unsigned q, the product
 * exact, so one fused multiply-add rounds as dequant.c does. For q < 16 an instruction set may look
 * the value up in a vector of the sixteen possible ones instead (struct map).
 *
 * A decoder takes n weights and puts vector number v of them at out + v·STEP. Only the types without
 * blocks meet an n that is no multiple of LANES; what is left over then fills a vector with zeros.
 */

static inline float f16_at(const uint8_t *at)
{
	return _cvtsh_ss(kn_u16_at(at));
}

static inline __attribute__((always_inline)) void put(float *out, int v, vf values)
{
	v_store(out + v * STEP, values);
}

static void decode_rest(int type, const uint8_t *at, size_t n, float *out)
{
	float rest[LANES] = {0};
	kn_dequantize(type, at, n, rest);
	v_store(out, v_load(rest));
}

static void decode_f32(const uint8_t *at, size_t n, float *out)
{
	for (; n >= LANES; n -= LANES, at += 4 * LANES, out += STEP)
		v_store(out, v_load((const void *)at));
	if (n > 0)
		decode_rest(KN_F32, at, n, out);
}

static void decode_f16(const uint8_t *at, size_t n, float *out)
{
	for (; n >= LANES; n -= LANES, at += 2 * LANES, out += STEP)
		v_store(out, v_f16(at));
	if (n > 0)
		decode_rest(KN_F16, at, n, out);
}

static void decode_bf16(const uint8_t *at, size_t n, float *out)
{
	for (; n >= LANES; n -= LANES, at += 2 * LANES, out += STEP)
		v_store(out, (vf)(v_u16(at) << 16));
	if (n > 0)
		decode_rest(KN_BF16, at, n, out);
}

static void decode_q8_0(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 32, at += 34, out += 32 / LANES * STEP) {
		vf d = v_set(f16_at(at));
		UNROLL for (int l = 0; l < 32; l += LANES)
			put(out, l / LANES, d * v_float(v_i8(at + 2 + l)));
	}
}

/* ---- nibbles ---- */

/* 16 bytes: their low nibbles, then their high ones. */
static inline __attribute__((always_inline)) void decode_nibbles(const uint8_t *qs, struct map low,
								 struct map high, int apart, float *out)
{
	UNROLL for (int l = 0; l < 16; l += LANES) {
		vi q = v_u8(qs + l);
		put(out, l / LANES, map_at(low, q));
		put(out, (l + apart) / LANES, map_at(high, q >> 4));
	}
}

static void decode_q4_0(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 32, at += 18, out += 32 / LANES * STEP) {
		float d = f16_at(at);
		struct map map = map_affine(d, -8 * d, 15);
		decode_nibbles(at + 2, map, map, 16, out);
	}
}

static void decode_q4_1(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 32, at += 20, out += 32 / LANES * STEP) {
		struct map map = map_affine(f16_at(at), f16_at(at + 2), 15);
		decode_nibbles(at + 4, map, map, 16, out);
	}
}

/* The same through a table of sixteen values. */
static inline __attribute__((always_inline)) void decode_lookup(const uint8_t *qs, struct lookup t, float *out)
{
	UNROLL for (int l = 0; l < 16; l += LANES) {
		vi q = v_u8(qs + l);
		put(out, l / LANES, lookup_at(t, q & 15));
		put(out, (l + 16) / LANES, lookup_at(t, q >> 4));
	}
}

static void decode_iq4_nl(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 32, at += 18, out += 32 / LANES * STEP)
		decode_lookup(at + 2, lookup_of(kn_nl_values, f16_at(at)), out);
}

static void decode_iq4_xs(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 256, at += 136) {
		float d = f16_at(at);
		UNROLL for (int i = 0; i < 8; i++, out += 32 / LANES * STEP)
			decode_lookup(at + 8 + 16 * i,
				      lookup_of(kn_nl_values, d * (float)kn_scale_iq4(at, i)), out);
	}
}

static void decode_mxfp4(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 32, at += 17, out += 32 / LANES * STEP)
		decode_lookup(at + 1, lookup_of(kn_fp4_values, kn_e8m0_half(at[0])), out);
}

/* ---- five bits ---- */

static inline __attribute__((always_inline)) void decode_five(const uint8_t *qs, uint32_t qh, float scale,
							      float offset, float *out)
{
	vf d = v_set(scale), m = v_set(offset);
	UNROLL for (int l = 0; l < 16; l += LANES) {
		vi q = v_u8(qs + l);
		put(out, l / LANES, v_fma(v_float((q & 15) | v_bits16(qh >> l)), d, m));
		put(out, (l + 16) / LANES, v_fma(v_float(q >> 4 | v_bits16(qh >> (l + 16))), d, m));
	}
}

static void decode_q5_0(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 32, at += 22, out += 32 / LANES * STEP) {
		float d = f16_at(at);
		decode_five(at + 6, kn_u32_at(at + 2), d, -16 * d, out);
	}
}

static void decode_q5_1(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 32, at += 24, out += 32 / LANES * STEP)
		decode_five(at + 8, kn_u32_at(at + 4), f16_at(at), f16_at(at + 2), out);
}

/* ---- blocks of 256 ---- */

/* d times each of the 8 bytes of `packed`. */
static inline void scale_bytes(uint64_t packed, float d, float *out)
{
	__m256i bytes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)packed));
	_mm256_storeu_ps(out, _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(bytes)));
}

/* The eight scales and negative minimums of Q4_K and Q5_K at once (kn_scale_min). */
static inline void scales_and_minimums(const uint8_t *at, float *scale, float *offset)
{
	uint64_t a = kn_u32_at(at + 4), b = kn_u32_at(at + 8), c = kn_u32_at(at + 12);
	uint64_t s = (c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4;
	uint64_t m = (c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4;
	scale_bytes((a & 0x3f3f3f3f) | s << 32, f16_at(at), scale);
	scale_bytes((b & 0x3f3f3f3f) | m << 32, -f16_at(at + 2), offset);
}

static void decode_q4_k(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 256, at += 144) {
		float scale[8], offset[8];
		scales_and_minimums(at, scale, offset);
		UNROLL for (int g = 0; g < 4; g++, out += 64 / LANES * STEP) {
			struct map low = map_affine(scale[2 * g], offset[2 * g], 15);
			struct map high = map_affine(scale[2 * g + 1], offset[2 * g + 1], 15);
			decode_nibbles(at + 16 + 32 * g, low, high, 32, out);
			decode_nibbles(at + 32 + 32 * g, low, high, 32, out + 16 / LANES * STEP);
		}
	}
}

static void decode_q5_k(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 256, at += 176) {
		float scale[8], offset[8];
		scales_and_minimums(at, scale, offset);
		UNROLL for (int g = 0; g < 4; g++, out += 64 / LANES * STEP) {
			vf d0 = v_set(scale[2 * g]), m0 = v_set(offset[2 * g]);
			vf d1 = v_set(scale[2 * g + 1]), m1 = v_set(offset[2 * g + 1]);
			UNROLL for (int l = 0; l < 32; l += LANES) {
				vi q = v_u8(at + 48 + 32 * g + l), h = v_u8(at + 16 + l) >> 2 * g;
				put(out, l / LANES, v_fma(v_float((q & 15) | (h << 4 & 16)), d0, m0));
				put(out, (l + 32) / LANES, v_fma(v_float(q >> 4 | (h << 3 & 16)), d1, m1));
			}
		}
	}
}

static void decode_q2_k(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 256, at += 84) {
		uint64_t sc[2];
		float scale[16], offset[16], d = f16_at(at + 80), m = f16_at(at + 82);
		memcpy(sc, at, sizeof sc);
		for (int i = 0; i < 2; i++) {
			scale_bytes(sc[i] & 0x0f0f0f0f0f0f0f0f, d, scale + 8 * i);
			scale_bytes(sc[i] >> 4 & 0x0f0f0f0f0f0f0f0f, -m, offset + 8 * i);
		}
		UNROLL for (int i = 0; i < 16; i++, out += 16 / LANES * STEP) {
			struct map map = map_affine(scale[i], offset[i], 3);
			const uint8_t *qs = at + 16 + i / 8 * 32 + i % 2 * 16;
			UNROLL for (int l = 0; l < 16; l += LANES)
				put(out, l / LANES, map_at(map, v_u8(qs + l) >> (i % 8 / 2 * 2)));
		}
	}
}

static void decode_q3_k(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 256, at += 110) {
		float d = f16_at(at + 108);
		UNROLL for (int i = 0; i < 16; i++, out += 16 / LANES * STEP) {
			float scale = d * (float)kn_scale_q3(at + 96, i);
			struct map map = map_affine(scale, -4 * scale, 7);
			const uint8_t *qs = at + 32 + i / 8 * 32 + i % 2 * 16, *qh = at + i % 2 * 16;
			UNROLL for (int l = 0; l < 16; l += LANES) {
				vi q = v_u8(qs + l) >> (i % 8 / 2 * 2) & 3;
				put(out, l / LANES, map_at(map, q | (v_u8(qh + l) >> (i / 2) << 2 & 4)));
			}
		}
	}
}

static void decode_q6_k(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 256, at += 210) {
		float d = f16_at(at + 208);
		UNROLL for (int i = 0; i < 16; i++, out += 16 / LANES * STEP) {
			float scale = d * (float)(int8_t)at[192 + i];
			vf s = v_set(scale), m = v_set(-32 * scale);
			int half = i / 8, j = i % 8 / 2, odd = i % 2 * 16;
			const uint8_t *ql = at + 64 * half + j % 2 * 32 + odd, *qh = at + 128 + 32 * half + odd;
			UNROLL for (int l = 0; l < 16; l += LANES) {
				vi q = v_u8(ql + l) >> (j / 2 * 4) & 15, h = v_u8(qh + l) >> 2 * j & 3;
				put(out, l / LANES, v_fma(v_float(q | h << 4), s, m));
			}
		}
	}
}

static void (*const decoders[])(const uint8_t *at, size_t n, float *out) = {
    [KN_F32] = decode_f32,	 [KN_F16] = decode_f16,	    [KN_BF16] = decode_bf16,
    [KN_Q4_0] = decode_q4_0,	 [KN_Q4_1] = decode_q4_1,   [KN_Q5_0] = decode_q5_0,
    [KN_Q5_1] = decode_q5_1,	 [KN_Q8_0] = decode_q8_0,   [KN_Q2_K] = decode_q2_k,
    [KN_Q3_K] = decode_q3_k,	 [KN_Q4_K] = decode_q4_k,   [KN_Q5_K] = decode_q5_k,
    [KN_Q6_K] = decode_q6_k,	 [KN_IQ4_NL] = decode_iq4_nl, [KN_IQ4_XS] = decode_iq4_xs,
    [KN_MXFP4] = decode_mxfp4,
};
