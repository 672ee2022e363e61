/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of noise on the device, in the layout of a file's type (kernels/blocks.h), for weights without a file: pack.cu
 * packs them like any other rows.
 *
 * Floats are those of engine/source/random_model.c, bit for bit: each row has its own generator, and a value is the
 * sum of four uniform 16-bit values. In a block the bits of all codes are random, the small scales are constant, and
 * d gives the requested spread. If the codes are not symmetric about zero, the block's minimum removes their mean,
 * or, without a minimum, the scale gets a random sign: otherwise all outputs would share a multiple of the
 * activations' sum.
 *
 * VERSIONS
 *  1  a thread a block, a byte at a time. Counted for 16 GB of an 8B model in BF16: a store of 4 bytes and a hash of
 *     about 15 integer operations a weight, some 0.1 s; the packing after it reads them once more. Not measured on a
 *     device.
 */
#include "kernels/cuda/backend.h"
#include "kernels/cuda/packed.h"

enum { THREADS = 128 };

static constexpr uint64_t COUNTER = 0xD1342543DE82EF95u;

/* Parameters that all blocks share. */
struct noise {
	uint64_t seed;
	float unit;     /* floats: factor of the sum of four; blocks: d */
	float min;      /* m / d, for types with a minimum */
	uint32_t e, up; /* MXFP4: the exponent, and how many of 2^16 blocks have one more */
};

/* SplitMix64's finalizer after an increment (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
 * 2014). */
__device__ static inline uint64_t mix(uint64_t z)
{
	z += 0x9E3779B97F4A7C15u;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}

/* Writes row first + blockIdx.x of floats. */
template <int TYPE> __global__ void float_rows(struct noise n, int first, int n_in, uint8_t *to, int64_t row_bytes)
{
	kn_begin();
	uint64_t state = mix(n.seed ^ mix((uint64_t)first + blockIdx.x));
	to += (int64_t)blockIdx.x * row_bytes;
	for (int i = (int)threadIdx.x; i < n_in; i += THREADS) {
		uint64_t z = mix(state + (uint64_t)i * COUNTER);
		int32_t sum = (int32_t)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
		float v = (float)(sum - 131070) * n.unit;
		if (TYPE == KN_F32)
			reinterpret_cast<float *>(to)[i] = v;
		else
			reinterpret_cast<uint16_t *>(to)[i] = TYPE == KN_BF16 ? kn_float_bf16(v) : kn_float_f16(v);
	}
}

__device__ static inline void put_half(uint8_t *to, uint32_t h)
{
	to[0] = (uint8_t)h;
	to[1] = (uint8_t)(h >> 8);
}

/* Offsets of d and m in a block, and its small scales: n_sc bytes of sc, then n_more bytes of more. */
template <int TYPE> struct block_form {
	static constexpr int d = TYPE == KN_Q2_K ? 80 : TYPE == KN_Q3_K ? 108 : TYPE == KN_Q6_K ? 208 : 0;
	static constexpr int m = TYPE == KN_Q2_K                                                            ? 82
				 : TYPE == KN_Q4_1 || TYPE == KN_Q5_1 || TYPE == KN_Q4_K || TYPE == KN_Q5_K ? 2
													    : -1;
	static constexpr int sc_at = TYPE == KN_Q2_K                      ? 0
				     : TYPE == KN_Q3_K                    ? 96
				     : TYPE == KN_Q4_K || TYPE == KN_Q5_K ? 4
				     : TYPE == KN_IQ4_XS                  ? 2
									  : 0;
	static constexpr int n_sc = TYPE == KN_Q2_K                      ? 16
				    : TYPE == KN_Q3_K                    ? 8
				    : TYPE == KN_Q4_K || TYPE == KN_Q5_K ? 8
				    : TYPE == KN_IQ4_XS                  ? 2
									 : 0;
	static constexpr int n_more =
	    TYPE == KN_Q3_K || TYPE == KN_Q4_K || TYPE == KN_Q5_K || TYPE == KN_IQ4_XS ? 4 : 0;
	/* Scales of 4 (Q2_K, Q4_K, Q5_K, with a minimum of 4), and of 33 - 32 (Q3_K, IQ4_XS). */
	static constexpr uint32_t sc = TYPE == KN_Q2_K     ? 0x44u
				       : TYPE == KN_Q3_K   ? 0x11u
				       : TYPE == KN_IQ4_XS ? 0xAAu
							   : 4u;
	static constexpr uint32_t more = TYPE == KN_Q3_K ? 0xAAu : TYPE == KN_IQ4_XS ? 0x11u : 0x44u;
};

/* Writes row first + blockIdx.x of blocks of `bytes` bytes. */
template <int TYPE>
__global__ void block_rows(struct noise n, int first, int n_blocks, int bytes, uint8_t *to, int64_t row_bytes)
{
	kn_begin();
	typedef block_form<TYPE> form;
	uint64_t state = mix(n.seed ^ mix((uint64_t)first + blockIdx.x));
	to += (int64_t)blockIdx.x * row_bytes;
	for (int b = (int)threadIdx.x; b < n_blocks; b += THREADS) {
		uint8_t *at = to + (int64_t)b * bytes;
		uint64_t count = (uint64_t)b * 32, word = 0; /* a block has at most 31 words of eight bytes */
		for (int i = 0; i < bytes; i++) {
			if (i % 8 == 0)
				word = mix(state + (count + (uint64_t)i / 8) * COUNTER);
			at[i] = (uint8_t)(word >> i % 8 * 8);
		}
		word = mix(state + (count + 31) * COUNTER);
		if (TYPE == KN_MXFP4) {
			at[0] = (uint8_t)(n.e + ((word & 0xFFFF) < n.up ? 1 : 0));
			continue;
		}
		uint32_t d = kn_float_f16(n.unit);
		if (form::m >= 0)
			put_half(at + form::m, kn_float_f16(n.min * kn_f16_float((uint16_t)d)));
		else if (TYPE != KN_Q6_K)
			d |= (uint32_t)(word & 1) << 15;
		put_half(at + form::d, d);
		for (int i = 0; i < form::n_sc; i++)
			at[form::sc_at + i] = (uint8_t)form::sc;
		for (int i = 0; i < form::n_more; i++)
			at[form::sc_at + form::n_sc + i] = (uint8_t)form::more;
		for (int i = 0; TYPE == KN_Q6_K && i < 16; i++)
			at[192 + i] = (uint8_t)(word >> i & 1 ? 4 : 256 - 4);
	}
}

/* ---- on the host ---- */

/* Root mean square, over all codes, of d's factor in a weight; *min: m / d. */
static double of_codes(int type, float *min)
{
	*min = 0;
	switch (type) {
	case KN_Q4_0:
	case KN_INT4: return 4.63681;               /* √21.5: of -8…7 */
	case KN_Q5_0: return 9.24662;               /* √85.5 */
	case KN_Q8_0: return 73.9020;               /* √5461.5 */
	case KN_Q4_1: *min = -7.5f; return 4.60977; /* √21.25: of 0…15 about their mean */
	case KN_Q5_1: *min = -15.5f; return 9.23309;
	case KN_Q2_K: *min = 1.5f; return 4 * 1.11803;
	case KN_Q3_K: return 2.34521;
	case KN_Q4_K: *min = 7.5f; return 4 * 4.60977;
	case KN_Q5_K: *min = 15.5f; return 4 * 9.23309;
	case KN_Q6_K: return 4 * 18.4797;
	case KN_IQ4_NL:
	case KN_IQ4_XS: return 67.4389; /* of kn_nl_values */
	default: return 5.85235;        /* MXFP4: of kn_fp4_values */
	}
}

template <int TYPE>
static int launch_rows(struct kn_backend *b, const struct noise &n, int64_t row_bytes, int first, int n_rows, int n_in,
		       uint8_t *to)
{
	if constexpr (TYPE == KN_F32 || kn_form<TYPE>::none) {
		return KN_LAUNCH(b->dev, float_rows<TYPE>, (unsigned)n_rows, THREADS, 0, n, first, n_in, to, row_bytes);
	} else {
		int n_blocks = n_in / b->host->type_block(TYPE), bytes = (int)(row_bytes / n_blocks);
		return KN_LAUNCH(b->dev, block_rows<TYPE>, (unsigned)n_rows, THREADS, 0, n, first, n_blocks, bytes, to,
				 row_bytes);
	}
}

int kn_cuda_noise_rows(struct kn_backend *b, const struct kn_noise *noise, int type, int64_t row_bytes, int first,
		       int n_rows, int n_in, void *to)
{
	struct noise n = {noise->seed, noise->spread * 1.7320508f / 65536.0f, 0, 0, 0};
	if (type == KN_F32)
		return launch_rows<KN_F32>(b, n, row_bytes, first, n_rows, n_in, (uint8_t *)to);
	if (type != KN_F16 && type != KN_BF16)
		n.unit = (float)((double)noise->spread / of_codes(type, &n.min));
	if (type == KN_MXFP4) { /* a mix of two powers of two with the right mean square */
		int e;
		double r = 2 * frexp((double)n.unit, &e);
		n.up = (uint32_t)((r * r - 1) / 3 * 65536);
		e += 127;
		n.e = (uint32_t)(e < 0 ? 0 : e > 253 ? 253 : e);
	}
	return kn_of_packed(type, (int)SL_EUNSUPPORTED, [&](auto t) {
		return launch_rows<decltype(t)::type>(b, n, row_bytes, first, n_rows, n_in, (uint8_t *)to);
	});
}
