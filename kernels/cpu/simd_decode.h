/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights to float32 in vectors, for every type, written once over the few primitives that an instruction set's file
 * defines before it includes this (simd_matmul.h lists them). kernels/blocks.h has the layouts; dequant.c is the plain
 * form, and both give the same bits.
 *
 * Nearly all types are affine: a weight is scale · q + offset with a small unsigned q, the product
 * exact, so one fused multiply-add rounds as dequant.c does. For q < 16 an instruction set may look
 * the value up in a vector of the sixteen possible ones instead (struct map).
 *
 * A decoder takes n weights and puts vector number v of them at out + v·STEP. Only for types without blocks may n not
 * be a multiple of LANES; the rest is then padded with zeros to a vector.
 */

#define NOT_INLINED __attribute__((noinline))

static inline float f16_at(const uint8_t *at) { return _cvtsh_ss(kn_u16_at(at)); }

static inline __attribute__((always_inline)) void put(float *out, int v, vf values) { v_store(out + v * STEP, values); }

/* Moves bit `from` of every lane to bit `to`, with at most one shift. */
INLINE vi move_bit(vi v, int from, int to) { return to > from ? v << (to - from) : to < from ? v >> (from - to) : v; }

static void decode_rest(int type, const uint8_t *at, size_t n, float *out)
{
	float rest[LANES] = {0};
	kn_dequantize(type, at, n, rest);
	v_store(out, v_load(rest));
}

#define DECODE_FLOATS(name, type, bytes, load)                                   \
	static void name(const uint8_t *at, size_t n, float *out)                \
	{                                                                        \
		for (; n >= LANES; n -= LANES, at += (bytes)*LANES, out += STEP) \
			v_store(out, load);                                      \
		if (n > 0)                                                       \
			decode_rest(type, at, n, out);                           \
	}
DECODE_FLOATS(decode_f32, KN_F32, 4, v_load((const void *)at))
DECODE_FLOATS(decode_f16, KN_F16, 2, v_f16(at))
DECODE_FLOATS(decode_bf16, KN_BF16, 2, (vf)(v_u16(at) << 16))

/* Converts the float16s at the heads of a chunk's blocks of 32 together. A scale in memory is then broadcast without
 * the shuffle unit, which limits the decoders. */
struct scales {
	float of[CHUNK / 32];
};

INLINE struct scales scales_at(const uint8_t *at, size_t n, size_t block_bytes)
{
	uint16_t half[CHUNK / 32] = {0};
	struct scales s = {0};
	for (size_t i = 0; i < n / 32; i++, at += block_bytes)
		half[i] = kn_u16_at(at);
	UNROLL_FOR(int i = 0; i < CHUNK / 32; i += LANES)
		v_store(s.of + i, v_f16((const uint8_t *)(half + i)));
	return s;
}

static void decode_q8_0(const uint8_t *at, size_t n, float *out)
{
	struct scales s = scales_at(at, n, 34);
	for (size_t i = 0; i < n / 32; i++, at += 34, out += 32 / LANES * STEP) {
		vf d = v_set(s.of[i]);
		UNROLL_FOR(int l = 0; l < 32; l += LANES)
			put(out, l / LANES, d * v_float(v_i8(at + 2 + l)));
	}
}

/* ---- nibbles ---- */

/* 16 bytes: their low nibbles, then their high ones. */
INLINE void decode_nibbles(const uint8_t *qs, struct map low, struct map high, int apart, float *out)
{
	UNROLL_FOR(int l = 0; l < 16; l += LANES) {
		vi q = v_u8(qs + l);
		put(out, l / LANES, map_at(low, q));
		put(out, (l + apart) / LANES, map_at(high, q >> 4));
	}
}

static void decode_q4_0(const uint8_t *at, size_t n, float *out)
{
	struct scales s = scales_at(at, n, 18);
	for (size_t i = 0; i < n / 32; i++, at += 18, out += 32 / LANES * STEP) {
		struct map map = map_centred(s.of[i], 8, 15);
		decode_nibbles(at + 2, map, map, 16, out);
	}
}

static void decode_int4(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 128, at += 66) {
		struct map map = map_centred(f16_at(at), 8, 15);
		for (int i = 0; i < 4; i++, out += 32 / LANES * STEP)
			decode_nibbles(at + 2 + 16 * i, map, map, 16, out);
	}
}

static void decode_q4_1(const uint8_t *at, size_t n, float *out)
{
	struct scales d = scales_at(at, n, 20), m = scales_at(at + 2, n, 20);
	for (size_t i = 0; i < n / 32; i++, at += 20, out += 32 / LANES * STEP) {
		struct map map = map_affine(d.of[i], m.of[i], 15);
		decode_nibbles(at + 4, map, map, 16, out);
	}
}

/* The same through a table of sixteen values. */
INLINE void decode_lookup(const uint8_t *qs, struct lookup t, float *out)
{
	UNROLL_FOR(int l = 0; l < 16; l += LANES) {
		vi q = v_u8(qs + l);
		put(out, l / LANES, lookup_at(t, q & 15));
		put(out, (l + 16) / LANES, lookup_at(t, q >> 4));
	}
}

static void decode_iq4_nl(const uint8_t *at, size_t n, float *out)
{
	struct scales s = scales_at(at, n, 18);
	for (size_t i = 0; i < n / 32; i++, at += 18, out += 32 / LANES * STEP)
		decode_lookup(at + 2, lookup_of(kn_nl_values, s.of[i]), out);
}

static void decode_iq4_xs(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 256, at += 136) {
		float d = f16_at(at);
		UNROLL_FOR(int i = 0; i < 8; i++, out += 32 / LANES * STEP)
			decode_lookup(at + 8 + 16 * i, lookup_of(kn_nl_values, d * (float)kn_scale_iq4(at, i)), out);
	}
}

static void decode_mxfp4(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 32, at += 17, out += 32 / LANES * STEP)
		decode_lookup(at + 1, lookup_of(kn_fp4_values, kn_e8m0_half(at[0])), out);
}

/* ---- five bits ---- */

INLINE void decode_five(const uint8_t *qs, uint32_t qh, vf d, vf m, float *out)
{
	UNROLL_FOR(int l = 0; l < 16; l += LANES) {
		vi q = v_u8(qs + l);
		put(out, l / LANES, v_fma(v_float((q & 15) | v_bits16(qh >> l)), d, m));
		put(out, (l + 16) / LANES, v_fma(v_float(q >> 4 | v_bits16(qh >> (l + 16))), d, m));
	}
}

static void decode_q5_0(const uint8_t *at, size_t n, float *out)
{
	struct scales s = scales_at(at, n, 22);
	for (size_t i = 0; i < n / 32; i++, at += 22, out += 32 / LANES * STEP) {
		vf d = v_set(s.of[i]);
		decode_five(at + 6, kn_u32_at(at + 2), d, -16 * d, out);
	}
}

static void decode_q5_1(const uint8_t *at, size_t n, float *out)
{
	struct scales d = scales_at(at, n, 24), m = scales_at(at + 2, n, 24);
	for (size_t i = 0; i < n / 32; i++, at += 24, out += 32 / LANES * STEP)
		decode_five(at + 8, kn_u32_at(at + 4), v_set(d.of[i]), v_set(m.of[i]), out);
}

/* ---- blocks of 256 ---- */

/* d times each of the 8 bytes of `packed`, minus `less`. */
static inline void scale_bytes(uint64_t packed, int less, float d, float *out)
{
	__m256i bytes =
	    _mm256_sub_epi32(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)packed)), _mm256_set1_epi32(less));
	_mm256_storeu_ps(out, _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(bytes)));
}

/* The scales of a block, as floats in memory. These functions are not inlined: otherwise the compiler takes each scale
 * out of a register by two shuffles instead of a load, and the shuffle unit limits the decoders. */

/* The eight scales and negative minimums of Q4_K and Q5_K at once (kn_scale_min). */
static NOT_INLINED void scales_and_minimums(const uint8_t *at, float *scale, float *offset)
{
	uint64_t a = kn_u32_at(at + 4), b = kn_u32_at(at + 8), c = kn_u32_at(at + 12);
	uint64_t s = (c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4;
	uint64_t m = (c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4;
	scale_bytes((a & 0x3f3f3f3f) | s << 32, 0, f16_at(at), scale);
	scale_bytes((b & 0x3f3f3f3f) | m << 32, 0, -f16_at(at + 2), offset);
}

static void decode_q4_k(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 256, at += 144) {
		float scale[8], offset[8];
		scales_and_minimums(at, scale, offset);
		UNROLL_FOR(int g = 0; g < 4; g++, out += 64 / LANES * STEP) {
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
		UNROLL_FOR(int g = 0; g < 4; g++, out += 64 / LANES * STEP) {
			vf d0 = v_set(scale[2 * g]), m0 = v_set(offset[2 * g]);
			vf d1 = v_set(scale[2 * g + 1]), m1 = v_set(offset[2 * g + 1]);
			UNROLL_FOR(int l = 0; l < 32; l += LANES) {
				vi q = v_u8(at + 48 + 32 * g + l), h = v_u8(at + 16 + l);
				vi low = (q & 15) | (move_bit(h, 2 * g, 4) & 16);
				vi high = q >> 4 | (move_bit(h, 2 * g + 1, 4) & 16);
				put(out, l / LANES, v_fma(v_float(low), d0, m0));
				put(out, (l + 32) / LANES, v_fma(v_float(high), d1, m1));
			}
		}
	}
}

static NOT_INLINED void scales_q2(const uint8_t *at, float *scale, float *offset)
{
	uint64_t sc[2];
	float d = f16_at(at + 80), m = f16_at(at + 82);
	memcpy(sc, at, sizeof sc);
	for (int i = 0; i < 2; i++) {
		scale_bytes(sc[i] & 0x0f0f0f0f0f0f0f0f, 0, d, scale + 8 * i);
		scale_bytes(sc[i] >> 4 & 0x0f0f0f0f0f0f0f0f, 0, -m, offset + 8 * i);
	}
}

static void decode_q2_k(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 256, at += 84) {
		float scale[16], offset[16];
		scales_q2(at, scale, offset);
		/* Runs of 16, in the order that loads every byte once. */
		UNROLL_FOR(int h = 0; h < 4; h++)
			UNROLL_FOR(int l = 0; l < 16; l += LANES) {
				vi q = v_u8(at + 16 + 16 * h + l);
				UNROLL_FOR(int j = 0; j < 4; j++) {
					int i = h / 2 * 8 + 2 * j + h % 2;
					put(out, (16 * i + l) / LANES,
					    map_at(map_affine(scale[i], offset[i], 3), q >> 2 * j));
				}
			}
		out += 256 / LANES * STEP;
	}
}

/* kn_scale_q3 of four scales at once, without subtracting 32. */
static NOT_INLINED void scales_q3(const uint8_t *at, float *scale)
{
	uint32_t a = kn_u32_at(at + 96), b = kn_u32_at(at + 100), c = kn_u32_at(at + 104);
	uint64_t first = (b & 0x0f0f0f0f) | (c >> 2 & 0x03030303) << 4;
	uint64_t second = (b >> 4 & 0x0f0f0f0f) | (c >> 6 & 0x03030303) << 4;
	first = first << 32 | (a & 0x0f0f0f0f) | (c & 0x03030303) << 4;
	second = second << 32 | (a >> 4 & 0x0f0f0f0f) | (c >> 4 & 0x03030303) << 4;
	scale_bytes(first, 32, f16_at(at + 108), scale);
	scale_bytes(second, 32, f16_at(at + 108), scale + 8);
}

static void decode_q3_k(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 256, at += 110, out += 256 / LANES * STEP) {
		float scale[16];
		scales_q3(at, scale);
		UNROLL_FOR(int h = 0; h < 4; h++)
			UNROLL_FOR(int l = 0; l < 16; l += LANES) {
				vi q = v_u8(at + 32 + 16 * h + l), high = v_u8(at + h % 2 * 16 + l) >> (h / 2 * 4);
				UNROLL_FOR(int j = 0; j < 4; j++) {
					int i = h / 2 * 8 + 2 * j + h % 2;
					vi whole = (q >> 2 * j & 3) | (move_bit(high, j, 2) & 4);
					put(out, (16 * i + l) / LANES, map_at(map_centred(scale[i], 4, 7), whole));
				}
			}
	}
}

static NOT_INLINED void scales_q6(const uint8_t *at, float *scale, float *offset)
{
	for (int i = 0; i < 16; i += LANES) {
		vf s = v_set(f16_at(at + 208)) * v_float(v_i8(at + 192 + i));
		v_store(scale + i, s);
		v_store(offset + i, -32 * s);
	}
}

static void decode_q6_k(const uint8_t *at, size_t n, float *out)
{
	for (; n > 0; n -= 256, at += 210, out += 256 / LANES * STEP) {
		float scale[16], offset[16];
		scales_q6(at, scale, offset);
		UNROLL_FOR(int h = 0; h < 4; h++)
			UNROLL_FOR(int l = 0; l < 16; l += LANES) {
				const uint8_t *ql = at + h / 2 * 64 + h % 2 * 16 + l;
				vi q[2] = {v_u8(ql), v_u8(ql + 32)}, high = v_u8(at + 128 + 16 * h + l);
				UNROLL_FOR(int j = 0; j < 4; j++) {
					int i = h / 2 * 8 + 2 * j + h % 2;
					vi whole =
					    (move_bit(q[j % 2], j / 2 * 4, 0) & 15) | (move_bit(high, 2 * j, 4) & 48);
					put(out, (16 * i + l) / LANES,
					    v_fma(v_float(whole), v_set(scale[i]), v_set(offset[i])));
				}
			}
	}
}

static void (*const decoders[])(const uint8_t *at, size_t n, float *out) = {
    [KN_F32] = decode_f32,   [KN_F16] = decode_f16,       [KN_BF16] = decode_bf16,     [KN_Q4_0] = decode_q4_0,
    [KN_Q4_1] = decode_q4_1, [KN_Q5_0] = decode_q5_0,     [KN_Q5_1] = decode_q5_1,     [KN_Q8_0] = decode_q8_0,
    [KN_Q2_K] = decode_q2_k, [KN_Q3_K] = decode_q3_k,     [KN_Q4_K] = decode_q4_k,     [KN_Q5_K] = decode_q5_k,
    [KN_Q6_K] = decode_q6_k, [KN_IQ4_NL] = decode_iq4_nl, [KN_IQ4_XS] = decode_iq4_xs, [KN_MXFP4] = decode_mxfp4,
    [KN_INT4] = decode_int4,
};
