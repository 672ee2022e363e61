/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of weights on the device: the order in which the lanes of a warp need them for a matrix product, so that
 * every load has 16 aligned bytes per lane and 512 per warp, and each byte is read once.
 *
 * A matrix consists of tiles of 16 outputs, a tile of chunks of 256 weights per output, the last one padded with zeros.
 * A chunk is a record of fixed length; a slab is 32 weights of each output in it. Of a slab, lane l (g = l / 4, t = l %
 * 4) has the weights 4t…4t+3 and 16+4t…16+4t+3 of outputs g ("half" 0) and g + 8 (half 1). Numbered e = 0…7, those with
 * e < 4 are kn_mma's operands for the first 16 weights, those with e ≥ 4 for the others.
 *
 * A record has planes of bits, then scales ("heads"). A plane of P bits per weight is P pieces of 32 lanes × 16 bytes.
 * A lane's 16·P bytes are those of slab 0 half 0, slab 0 half 1, slab 1 half 0, … with P bytes each:
 *  P = 16, 8  weight e in its order
 *  P = 4      a word: weights 0, 2, 4, 6 are its low nibbles 0…3, weights 1, 3, 5, 7 the next four
 *  P = 2      two bytes: weights 0, 2, 4, 6 in the first, 1, 3, 5, 7 in the second, from the low bits on
 *  P = 1      a byte: weights 0, 2, 4, 6, 1, 3, 5, 7 from the low bit on
 * So a shift and a mask put pair i of a lane, weights 2i and 2i + 1, into the two halves of a word.
 *
 *  type               planes  first head, of each output    second head
 *  F16, BF16          16
 *  FP8 (own)          8       (float scales of the outputs after the last record)
 *  Q8_0               8, +128 d of each slab, float16
 *  Q4_0, IQ4_NL       4       d
 *  Q5_0               4, 1    d
 *  Q4_1, Q5_1         4 (, 1) d                             m of each slab
 *  MXFP4              4       e of each slab, a byte
 *  Q4_K, Q5_K         4 (, 1) sc, then mn of each slab, bytes   d, m
 *  Q6_K               4, 2    sc + 128 of each 16 weights   d
 *  Q3_K               2, 1    sc of each 16 weights         d
 *  Q2_K               2       sc and mn, nibbles, of each 16  d, m
 *  IQ4_XS             4       sc of each slab               d
 *  INT4               4                                     d of each half of the chunk
 *
 * The size is that of the file, except for the last chunk's padding and 2 to 3 % for Q3_K to Q5_K, whose packed
 * six-bit scales would cost 24 instructions per slab.
 */
#ifndef KERNELS_CUDA_PACKED_H
#define KERNELS_CUDA_PACKED_H

#include "kernels/cuda/device/device.h"

enum { KN_OUTS = 16, KN_SLAB = 32, KN_SLABS = 8, KN_CHUNK = KN_SLAB * KN_SLABS, KN_PIECE = 16 * KN_WARP };

/* For this backend only: e4m3 with a scale per output. */
enum { KN_CUDA_FP8 = 1 << 16 };

// clang-format off
#define KN_BLOCK_TYPES(X)                                                                    \
	X(KN_Q4_0) X(KN_Q4_1) X(KN_Q5_0) X(KN_Q5_1) X(KN_Q8_0) X(KN_IQ4_NL) X(KN_MXFP4)      \
	X(KN_Q2_K) X(KN_Q3_K) X(KN_Q4_K) X(KN_Q5_K) X(KN_Q6_K) X(KN_IQ4_XS) X(KN_INT4)
#define KN_PACKED_TYPES(X) X(KN_F16) X(KN_BF16) X(KN_CUDA_FP8) KN_BLOCK_TYPES(X)
// clang-format on

template <int TYPE> struct kn_constant {
	static constexpr int type = TYPE;
};

/* Calls f with the packed type as a kn_constant, for use in templates. Other types: returns otherwise. */
template <class R, class F> static inline R kn_of_packed(int type, R otherwise, const F &f)
{
	switch (type) {
#define OF(t) \
	case t: return f(kn_constant<t>());
		KN_PACKED_TYPES(OF)
#undef OF
	default: return otherwise;
	}
}

/* How the quants of a slab are scaled. */
enum kn_scaled { KN_PLAIN, KN_D, KN_D_128, KN_D_M, KN_E, KN_SC, KN_SC_MN, KN_SC16, KN_SC16_MN };

template <int TYPE> struct kn_form {
	static constexpr bool none = TYPE == KN_F16 || TYPE == KN_BF16 || TYPE == KN_CUDA_FP8;
	static constexpr int main = TYPE == KN_F16 || TYPE == KN_BF16        ? 16
				    : TYPE == KN_CUDA_FP8 || TYPE == KN_Q8_0 ? 8
				    : TYPE == KN_Q2_K || TYPE == KN_Q3_K     ? 2
									     : 4;
	static constexpr int more = TYPE == KN_Q6_K                                                            ? 2
				    : TYPE == KN_Q5_0 || TYPE == KN_Q5_1 || TYPE == KN_Q5_K || TYPE == KN_Q3_K ? 1
													       : 0;
	static constexpr int scaled = none                                 ? KN_PLAIN
				      : TYPE == KN_Q4_1 || TYPE == KN_Q5_1 ? KN_D_M
				      : TYPE == KN_INT4                    ? KN_D_128
				      : TYPE == KN_MXFP4                   ? KN_E
				      : TYPE == KN_IQ4_XS                  ? KN_SC
				      : TYPE == KN_Q4_K || TYPE == KN_Q5_K ? KN_SC_MN
				      : TYPE == KN_Q3_K || TYPE == KN_Q6_K ? KN_SC16
				      : TYPE == KN_Q2_K                    ? KN_SC16_MN
									   : KN_D;
	static constexpr bool by16 = scaled == KN_SC16 || scaled == KN_SC16_MN;
	static constexpr bool has_min = scaled == KN_D_M || scaled == KN_SC_MN || scaled == KN_SC16_MN;
	/* Slabs per scale: a matrix unit adds up their products before scaling. */
	static constexpr int every = scaled == KN_D_128 ? 4 : 1;
	/* Bytes of an output's heads in a record. */
	static constexpr int first = scaled == KN_PLAIN || scaled == KN_D_128 ? 0
				     : scaled == KN_E || scaled == KN_SC      ? 8
									      : 16;
	static constexpr int second = scaled == KN_D_M                                                   ? 16
				      : scaled == KN_SC_MN || scaled == KN_SC16_MN || scaled == KN_D_128 ? 4
				      : scaled == KN_SC || scaled == KN_SC16                             ? 2
													 : 0;
	static constexpr int pieces = main + more;
	static constexpr int heads_at = pieces * KN_PIECE, second_at = heads_at + KN_OUTS * first;
	static constexpr int record = second_at + KN_OUTS * second;
	/* Offsets subtracted from a code, and from a scale's byte. */
	static constexpr int off = TYPE == KN_Q8_0                      ? 128
				   : TYPE == KN_Q4_0 || TYPE == KN_INT4 ? 8
				   : TYPE == KN_Q5_0                    ? 16
				   : TYPE == KN_Q6_K                    ? 32
				   : TYPE == KN_Q3_K                    ? 4
									: 0;
	static constexpr int scale_off = TYPE == KN_Q6_K ? 128 : TYPE == KN_Q3_K || TYPE == KN_IQ4_XS ? 32 : 0;
	/* Slabs whose pieces a lane holds at once. */
	static constexpr int group = main == 16 ? 2 : main == 8 ? 4 : KN_SLABS;
	static constexpr int held = main == 16 || main == 8 ? 4 : pieces;
};

__device__ static inline uint32_t kn_word(const struct kn_u4 &v, int i)
{
	return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* ---- quants to pairs of float16 ---- */

/* Looks up the four low nibbles of n in a table of 16 bytes. */
__device__ static inline uint32_t kn_of_table(uint32_t n, uint32_t t0, uint32_t t1, uint32_t t2, uint32_t t3)
{
	uint32_t low = kn_byte_perm(t0, t1, n & 0x7777), high = kn_byte_perm(t2, t3, n & 0x7777);
	return kn_byte_perm(low, high, 0x3210 | (n & 0x8888) >> 1);
}

/* The values of IQ4_NL and IQ4_XS, or twice those of MXFP4, plus 128. */
template <int TYPE> __device__ static inline uint32_t kn_table_values(uint32_t n)
{
	if (TYPE == KN_MXFP4)
		return kn_of_table(n, 0x83828180u, 0x8C888684u, 0x7D7E7F80u, 0x74787A7Cu);
	return kn_of_table(n, 0x3F2D1801u, 0x766A5D4Fu, 0xA6998D81u, 0xF1D9C5B5u);
}

/* Expands a lane's quants of a slab and half to four pairs. piece[]: what the lane holds (struct kn_u4 *) or reads
 * (struct kn_pieces_at), from the first slab of the group on; slab is relative to the group. Exact: the integers are
 * below 2048. BF16 stays BF16; FP8 values come out times 2^-8. */
template <int TYPE, class PIECES>
__device__ static inline void kn_quants(const PIECES &piece, int slab, int half, uint32_t *q)
{
	typedef kn_form<TYPE> form;
	const uint32_t one = 0x64006400u; /* 1024 twice: a code in the low bits is added to it */
	const uint32_t off = one + (uint32_t)form::off * 0x10001u;
	if (form::main == 16) {
		const struct kn_u4 p = piece[2 * slab + half];
		UNROLL_FOR(int i = 0; i < 4; i++)
			q[i] = kn_word(p, i);
		return;
	}
	if (form::main == 8) {
		const struct kn_u4 p = piece[slab];
		UNROLL_FOR(int i = 0; i < 4; i++) {
			uint32_t w = kn_word(p, 2 * half + i / 2);
			if (TYPE == KN_CUDA_FP8) {
				uint32_t x = kn_byte_perm(w, 0, i % 2 ? 0x3424 : 0x1404);
				q[i] = (x & 0x80008000u) | (x & 0x7F007F00u) >> 1;
			} else {
				q[i] = kn_f16x2_sub(kn_byte_perm(w, one >> 8 | one, i % 2 ? 0x7372 : 0x7170), off);
			}
		}
		return;
	}
	if (TYPE == KN_IQ4_NL || TYPE == KN_IQ4_XS || TYPE == KN_MXFP4) {
		uint32_t w = kn_word(piece[slab / 2], slab % 2 * 2 + half);
		uint32_t even = kn_table_values<TYPE>(w), odd = kn_table_values<TYPE>(w >> 16);
		UNROLL_FOR(uint32_t i = 0; i < 4; i++) {
			uint32_t two = kn_and_or(kn_byte_perm(even, odd, i | (4 + i) << 8), 0x00FF00FFu, one);
			q[i] = kn_f16x2_sub(two, one + 128 * 0x10001u);
		}
		return;
	}
	uint32_t low, high = 0;
	if (form::main == 4)
		low = kn_word(piece[slab / 2], slab % 2 * 2 + half);
	else
		low = kn_byte_perm(kn_word(piece[slab / 4], slab % 4), 0, half ? 0x4342 : 0x4140);
	if (form::main == 4 && form::more == 0) {
		/* Codes at bit 4 become 16 times themselves, which multiplying undoes: one shift for four pairs. */
		const uint32_t sixteenth = 0x2C002C00u, less = form::off == 8 ? 0xD480D480u : 0xD400D400u;
		static_assert(form::more != 0 || form::main != 4 || form::off == 8 || form::off == 0,
			      "less: -64 - off");
		UNROLL_FOR(int i = 0; i < 4; i += 2) {
			const uint32_t two = i == 0 ? low : low >> 8;
			q[i] = kn_f16x2_sub(kn_and_or(two, 0x000F000Fu, one), off);
			q[i + 1] = kn_f16x2_fma(kn_and_or(two, 0x00F000F0u, one), sixteenth, less);
		}
		return;
	}
	if (form::more == 2) {
		high = kn_byte_perm(kn_word(piece[form::main + slab / 4], slab % 4), 0, half ? 0x4342 : 0x4140);
	} else if (form::more == 1) {
		uint32_t byte = kn_word(piece[form::main], slab / 2) >> (slab % 2 * 16 + half * 8) & 255;
		high = (byte | byte << 12) & 0x000F000Fu;
	}
	UNROLL_FOR(int i = 0; i < 4; i++) {
		uint32_t c = form::main == 4 ? kn_and_or(low >> 4 * i, 0x000F000Fu, one)
					     : kn_and_or(low >> 2 * i, 0x00030003u, one);
		if (form::more == 2)
			c = kn_and_or(high << 4 >> 2 * i, 0x00300030u, c);
		else if (form::more == 1)
			c |= (high >> i & 0x00010001u) << form::main;
		q[i] = kn_f16x2_sub(c, off);
	}
}

/* ---- scales ---- */

/* The heads of an output in a record. */
struct kn_heads {
	struct kn_u4 first, second;
	float d, m; /* if they apply to the whole chunk; or to its halves */
};

template <int TYPE> __device__ static inline struct kn_heads kn_load_heads(const uint8_t *record, int out)
{
	typedef kn_form<TYPE> form;
	struct kn_heads h = {};
	const uint8_t *first = record + form::heads_at + out * form::first;
	const uint8_t *second = record + form::second_at + out * form::second;
	if (form::first == 16) {
		h.first = *reinterpret_cast<const struct kn_u4 *>(first);
	} else if (form::first == 8) {
		h.first.x = reinterpret_cast<const uint32_t *>(first)[0];
		h.first.y = reinterpret_cast<const uint32_t *>(first)[1];
	}
	if (form::second == 16)
		h.second = *reinterpret_cast<const struct kn_u4 *>(second);
	if (form::second == 2 || form::second == 4)
		h.d = kn_f16_float(*reinterpret_cast<const uint16_t *>(second));
	if (form::second == 4)
		h.m = kn_f16_float(*reinterpret_cast<const uint16_t *>(second + 2));
	return h;
}

/* Byte i of sixteen, minus off, as a float. Avoids conversion instructions, which are the slowest. */
__device__ static inline float kn_byte_float(const struct kn_u4 &v, int i, int off)
{
	uint32_t bits = kn_byte_perm(kn_word(v, i / 4), 0x4B000000u, 0x7440u | (uint32_t)(i % 4));
	return kn_bits_float(bits) - (float)(8388608 + off);
}

__device__ static inline float kn_half_float(const struct kn_u4 &v, int i)
{
	return kn_f16_float((uint16_t)(kn_word(v, i / 2) >> i % 2 * 16));
}

/* Scale and minimum of slab `slab` of the chunk, for both halves of 16 weights where these have their own: a weight is
 * scale · quant - minimum. */
template <int TYPE>
__device__ static inline void kn_scales(const struct kn_heads &h, int slab, float *scale, float *min)
{
	typedef kn_form<TYPE> form;
	scale[1] = min[0] = min[1] = 0;
	switch (form::scaled) {
	case KN_D_M:
		min[0] = -kn_half_float(h.second, slab);
		scale[0] = kn_half_float(h.first, slab);
		break;
	case KN_D: scale[0] = kn_half_float(h.first, slab); break;
	case KN_D_128: scale[0] = slab < KN_SLABS / 2 ? h.d : h.m; break;
	case KN_E: {
		uint32_t e = kn_word(h.first, slab / 4) >> slab % 4 * 8 & 255; /* 2^(e - 128), a subnormal for e < 2 */
		scale[0] = kn_bits_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
		break;
	}
	case KN_SC_MN:
		min[0] = h.m * kn_byte_float(h.first, KN_SLABS + slab, 0);
		scale[0] = h.d * kn_byte_float(h.first, slab, 0);
		break;
	case KN_SC: scale[0] = h.d * kn_byte_float(h.first, slab, form::scale_off); break;
	case KN_SC16:
		UNROLL_FOR(int i = 0; i < 2; i++)
			scale[i] = h.d * kn_byte_float(h.first, 2 * slab + i, form::scale_off);
		break;
	case KN_SC16_MN:
		UNROLL_FOR(int i = 0; i < 2; i++) {
			uint32_t both = kn_word(h.first, slab / 2) >> (slab % 2 * 16 + i * 8);
			scale[i] = h.d * (kn_bits_float(0x4B000000u | (both & 15)) - 8388608.0f);
			min[i] = h.m * (kn_bits_float(0x4B000000u | (both >> 4 & 15)) - 8388608.0f);
		}
		break;
	default: scale[0] = 1; break;
	}
}

/* A lane's pieces in memory, from those of a group of slabs on: each is read when it is asked for. */
struct kn_pieces_at {
	const uint8_t *at;
	__device__ struct kn_u4 operator[](int i) const { return kn_load_once(at + i * KN_PIECE); }
};

/* Of the group of slab `slab` of the chunk. */
template <int TYPE> __device__ static inline struct kn_pieces_at kn_pieces_of(const uint8_t *record, int slab, int lane)
{
	typedef kn_form<TYPE> form;
	return {record + slab / form::group * form::held * KN_PIECE + lane * 16};
}

/* Loads a lane's pieces for a group of slabs, from slab `slab` of the chunk on. */
template <int TYPE>
__device__ static inline void kn_load_pieces(const uint8_t *record, int slab, int lane, struct kn_u4 *piece)
{
	const struct kn_pieces_at from = kn_pieces_of<TYPE>(record, slab, lane);
	UNROLL_FOR(int i = 0; i < kn_form<TYPE>::held; i++)
		piece[i] = from[i];
}

/* ---- a slab's product ---- */

/* Adds the scaled part[4], the product of half j of a slab or of all of it, to sum[4]. */
template <int TYPE>
__device__ static inline void kn_add_scaled(const float *part, const float (*scale)[2], const float (*min)[2],
					    const float (*xsum)[2], int j, float *sum)
{
	typedef kn_form<TYPE> form;
	const int which = form::by16 ? j : 0;
	UNROLL_FOR(int i = 0; i < 4; i++) {
		sum[i] = kn_fma(scale[i / 2][which], part[i], sum[i]);
		if (form::has_min) {
			sum[i] = kn_fma(-min[i / 2][which], xsum[which][i % 2], sum[i]);
		}
	}
}

/* sum[n][4] += the slab's weights of 16 outputs times the activations of n tiles of eight rows, as the lane holds both.
 * x[n]: kn_mma's operands of the slab; xsum[n][h][2]: sums of activations over the slab's halves, of rows 2t and 2t +
 * 1, for types with minimums (of all of the slab at h = 0 if it has one minimum). part[n][4]: products not scaled yet,
 * zero before the first slab of a chunk or of its second half, and after the last. */
template <int TYPE, int NT>
__device__ static inline void kn_slab_product(const struct kn_u4 *piece, const struct kn_heads *heads, int in_group,
					      int slab, const struct kn_u4 *x, const float (*xsum)[2][2],
					      float (*part)[4], float (*sum)[4])
{
	typedef kn_form<TYPE> form;
	uint32_t q[2][4];
	float scale[2][2], min[2][2];
	UNROLL_FOR(int half = 0; half < 2; half++) {
		kn_quants<TYPE>(piece, in_group, half, q[half]);
		if (form::scaled != KN_PLAIN)
			kn_scales<TYPE>(heads[half], slab, scale[half], min[half]);
	}
	UNROLL_FOR(int n = 0; n < NT; n++) {
		float *into = form::scaled == KN_PLAIN ? sum[n] : part[n];
		UNROLL_FOR(int j = 0; j < 2; j++) {
			uint32_t a[4] = {q[0][2 * j], q[1][2 * j], q[0][2 * j + 1], q[1][2 * j + 1]};
			uint32_t b[2] = {kn_word(x[n], 2 * j), kn_word(x[n], 2 * j + 1)};
			if (TYPE == KN_BF16)
				kn_mma_bf16_16816(into, a, b);
			else
				kn_mma_f16_16816(into, a, b);
			if constexpr (form::scaled != KN_PLAIN)
				if (form::by16 || (j == 1 && slab % form::every == form::every - 1)) {
					kn_add_scaled<TYPE>(part[n], scale, min, xsum[n], j, sum[n]);
					UNROLL_FOR(int i = 0; i < 4; i++)
						part[n][i] = 0;
				}
		}
	}
}

/* ---- single weights ---- */

/* A lane's eight weights of a slab and half, as float32 with the bits of kernels/cpu/dequant.c: exact products and at
 * most one rounding. */
template <int TYPE>
__device__ static inline void kn_weights8(const uint8_t *record, int slab, int half, int lane, float *w)
{
	typedef kn_form<TYPE> form;
	uint32_t q[4];
	float scale[2], min[2];
	/* Only the pieces that hold this slab, which is not known before: an array of all would be local memory. */
	kn_quants<TYPE>(kn_pieces_of<TYPE>(record, slab, lane), slab % form::group, half, q);
	kn_scales<TYPE>(kn_load_heads<TYPE>(record, half * 8 + lane / 4), slab, scale, min);
	for (int e = 0; e < 8; e++) {
		uint16_t h = (uint16_t)(q[e / 2] >> e % 2 * 16);
		float v = TYPE == KN_BF16 ? kn_bf16_float(h) : kn_f16_float(h);
		int which = form::by16 ? e / 4 : 0;
		if (form::scaled == KN_PLAIN)
			w[e] = TYPE == KN_CUDA_FP8 ? v * 256.0f : v;
		else
			w[e] = form::has_min ? scale[which] * v - min[which] : scale[which] * v;
	}
}

/* Calls take(k, weight) for every weight of row `out`, including the chunks' padding; all threads of a block share
 * the work. */
template <int TYPE, class F>
__device__ static inline void kn_each_weight(const uint8_t *w, int out, int n_chunks, const F &take)
{
	int half = out % KN_OUTS / 8;
	const uint8_t *records = w + (int64_t)(out / KN_OUTS) * n_chunks * kn_form<TYPE>::record;
	for (int i = (int)threadIdx.x; i < n_chunks * KN_SLABS * 4; i += (int)blockDim.x) {
		int slab = i / 4, t = i % 4;
		const uint8_t *record = records + (int64_t)(slab / KN_SLABS) * kn_form<TYPE>::record;
		float v[8];
		kn_weights8<TYPE>(record, slab % KN_SLABS, half, out % 8 * 4 + t, v);
		for (int e = 0; e < 8; e++)
			take(slab * KN_SLAB + e / 4 * 16 + 4 * t + e % 4, v[e]);
	}
}

#endif
