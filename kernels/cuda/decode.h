/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights on the device to float32, eight at a time, with the bits of kernels/cpu/dequant.c: products
 * that are exact and at most one rounding. kernels/blocks.h has the layouts.
 *
 * kn_decode8<TYPE>(row, k, w): w[0…8) are the weights k…k+8 of the row; k is a multiple of 8. Rows of
 * types in blocks are whole blocks; of the others kn_decode1 takes a single one, for a row's end.
 *
 * Loads are as wide as a type's alignment in a row allows: rows begin at multiples of their own length.
 */
#ifndef KERNELS_CUDA_DECODE_H
#define KERNELS_CUDA_DECODE_H

#include "kernels/cuda/device.h"

template <class T> __device__ static inline T kn_load(const uint8_t *at)
{
	return *reinterpret_cast<const T *>(at);
}

__device__ static inline float kn_scale_at(const uint8_t *at)
{
	return kn_f16_float(kn_load<uint16_t>(at));
}

/* Element i of the values of IQ4_NL and IQ4_XS, and of twice the four-bit floats of MXFP4. */
__device__ static inline float kn_nl_value(int i)
{
	const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
	return (float)values[i];
}

__device__ static inline float kn_fp4_value(int i)
{
	const int8_t values[8] = {0, 1, 2, 3, 4, 6, 8, 12};
	return i < 8 ? (float)values[i] : -(float)values[i - 8];
}

/* 2^(e - 128), a subnormal for e < 2. */
__device__ static inline float kn_half_power(uint32_t e)
{
	return kn_bits_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

/* Scale and minimum j < 8 of Q4_K and Q5_K. */
__device__ static inline void kn_scales_k4(const uint8_t *sc, int j, float *scale, float *min)
{
	int s = j < 4 ? sc[j] & 63 : (sc[j + 4] & 15) | (sc[j - 4] >> 6) << 4;
	int m = j < 4 ? sc[j + 4] & 63 : sc[j + 4] >> 4 | (sc[j] >> 6) << 4;
	*scale = (float)s;
	*min = (float)m;
}

/* Nibble i of a run of 32 that begins with 16 low ones. */
__device__ static inline int kn_nibble(const uint8_t *qs, int i)
{
	return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
}

/* Only for types without blocks. */
template <int TYPE> __device__ static inline float kn_decode1(const uint8_t *row, int k)
{
	if (TYPE == KN_F16)
		return kn_f16_float(kn_load<uint16_t>(row + 2 * (int64_t)k));
	if (TYPE == KN_BF16)
		return kn_bf16_float(kn_load<uint16_t>(row + 2 * (int64_t)k));
	return kn_load<float>(row + 4 * (int64_t)k);
}

template <int TYPE> __device__ static inline void kn_decode8(const uint8_t *row, int k, float *w)
{
	enum {
		PLAIN = TYPE == KN_F32 || TYPE == KN_F16 || TYPE == KN_BF16,
		SMALL = TYPE == KN_Q4_0 || TYPE == KN_Q4_1 || TYPE == KN_Q5_0 || TYPE == KN_Q5_1 || TYPE == KN_Q8_0 ||
			TYPE == KN_IQ4_NL || TYPE == KN_MXFP4,
		BLOCK = SMALL ? 32 : 256,
		BYTES = TYPE == KN_Q4_0	  ? 18
			: TYPE == KN_Q4_1 ? 20
			: TYPE == KN_Q5_0 ? 22
			: TYPE == KN_Q5_1 ? 24
			: TYPE == KN_Q8_0 ? 34
			: TYPE == KN_IQ4_NL ? 18
			: TYPE == KN_MXFP4  ? 17
			: TYPE == KN_Q2_K   ? 84
			: TYPE == KN_Q3_K   ? 110
			: TYPE == KN_Q4_K   ? 144
			: TYPE == KN_Q5_K   ? 176
			: TYPE == KN_Q6_K   ? 210
					    : 136,
	};
	if (PLAIN) {
#pragma unroll
		for (int i = 0; i < 8; i++)
			w[i] = kn_decode1<TYPE>(row, k + i);
		return;
	}
	const uint8_t *at = row + (int64_t)(k / BLOCK) * BYTES;
	const int in = k % BLOCK; /* the eight lie in one run of every layout */
	if (TYPE == KN_Q8_0) {
		float d = kn_scale_at(at);
#pragma unroll
		for (int i = 0; i < 8; i += 2) {
			uint16_t two = kn_load<uint16_t>(at + 2 + in + i);
			w[i] = d * (float)(int8_t)(two & 255);
			w[i + 1] = d * (float)(int8_t)(two >> 8);
		}
	} else if (TYPE == KN_Q4_0 || TYPE == KN_IQ4_NL) {
		float d = kn_scale_at(at);
#pragma unroll
		for (int i = 0; i < 8; i++) {
			int q = kn_nibble(at + 2, in + i);
			w[i] = d * (TYPE == KN_Q4_0 ? (float)(q - 8) : kn_nl_value(q));
		}
	} else if (TYPE == KN_Q4_1) {
		float d = kn_scale_at(at), m = kn_scale_at(at + 2);
#pragma unroll
		for (int i = 0; i < 8; i++)
			w[i] = d * (float)kn_nibble(at + 4, in + i) + m;
	} else if (TYPE == KN_Q5_0 || TYPE == KN_Q5_1) {
		const int skip = TYPE == KN_Q5_1 ? 4 : 2; /* a minimum, and where the fifth bits are */
		float d = kn_scale_at(at), m = TYPE == KN_Q5_1 ? kn_scale_at(at + 2) : 0.0f;
		int fifth = at[skip + in / 8];
#pragma unroll
		for (int i = 0; i < 8; i++) {
			int q = kn_nibble(at + skip + 4, in + i) | (fifth >> i & 1) << 4;
			w[i] = TYPE == KN_Q5_0 ? d * (float)(q - 16) : d * (float)q + m;
		}
	} else if (TYPE == KN_MXFP4) {
		float d = kn_half_power(at[0]);
#pragma unroll
		for (int i = 0; i < 8; i++)
			w[i] = d * kn_fp4_value(kn_nibble(at + 1, in + i));
	} else if (TYPE == KN_Q2_K) {
		float d = kn_scale_at(at + 80), m = kn_scale_at(at + 82);
		int s = at[in / 16];
#pragma unroll
		for (int i = 0; i < 8; i++) {
			int q = at[16 + in / 128 * 32 + in % 32 + i] >> (in / 32 % 4 * 2) & 3;
			w[i] = d * (float)(s & 15) * (float)q - m * (float)(s >> 4);
		}
	} else if (TYPE == KN_Q3_K) {
		const uint8_t *sc = at + 96;
		const int j = in / 16;
		int low = j < 8 ? sc[j] & 15 : sc[j - 8] >> 4;
		int s = (low | (sc[8 + j % 4] >> 2 * (j / 4) & 3) << 4) - 32;
		float d = kn_scale_at(at + 108);
#pragma unroll
		for (int i = 0; i < 8; i++) {
			int q = at[32 + in / 128 * 32 + in % 32 + i] >> (in / 32 % 4 * 2) & 3;
			q |= (at[in % 32 + i] >> in / 32 & 1) << 2;
			w[i] = d * (float)s * (float)(q - 4);
		}
	} else if (TYPE == KN_Q4_K || TYPE == KN_Q5_K) {
		float d = kn_scale_at(at), m = kn_scale_at(at + 2), s, min;
		kn_scales_k4(at + 4, in / 32, &s, &min);
		/* Aligned: blocks are multiples of 16 bytes. */
		uint64_t qs = kn_load<uint64_t>(at + (TYPE == KN_Q5_K ? 48 : 16) + in / 64 * 32 + in % 32);
		uint64_t qh = TYPE == KN_Q5_K ? kn_load<uint64_t>(at + 16 + in % 32) : 0;
		if (in % 64 >= 32)
			qs >>= 4;
		qh >>= in / 32;
#pragma unroll
		for (int i = 0; i < 8; i++) {
			int q = (int)(qs >> 8 * i & 15) | (int)(qh >> 8 * i & 1) << 4;
			w[i] = d * s * (float)q - m * min;
		}
	} else if (TYPE == KN_Q6_K) {
		const int j = in / 32 % 4;
		float d = kn_scale_at(at + 208), s = (float)(int8_t)at[192 + in / 16];
#pragma unroll
		for (int i = 0; i < 8; i++) {
			int byte = at[in / 128 * 64 + in % 64 + i];
			int q = (j < 2 ? byte & 15 : byte >> 4) |
				(at[128 + in / 128 * 32 + in % 32 + i] >> 2 * j & 3) << 4;
			w[i] = d * s * (float)(q - 32);
		}
	} else { /* IQ4_XS */
		const int j = in / 32;
		int s = ((at[4 + j / 2] >> 4 * (j % 2) & 15) | (kn_load<uint16_t>(at + 2) >> 2 * j & 3) << 4) - 32;
		float d = kn_scale_at(at) * (float)s;
#pragma unroll
		for (int i = 0; i < 8; i++)
			w[i] = d * kn_nl_value(kn_nibble(at + 8 + j * 16, in % 32 + i));
	}
}

#endif
