/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512 (F, BW, DQ, VL): inner loops on float32 activations.
 *
 * A matmul tile is 4 outputs × up to 4 rows: 16 accumulators, each weight vector dequantized once for
 * the tile's rows. Further rows read the weights again from the first-level cache.
 *
 * VERSIONS
 *   1  tile of 4 × 4, one accumulator an output and row, weights to float32 in registers.
 *      Expected: bound by the fused multiply-adds at 4 rows and more, by widening int8 to float32 at
 *      one row. It keeps activations in float32, because the engine's logits must agree with float32
 *      arithmetic to 1e-3; integer dot products on quantized activations would be several times
 *      faster and would not.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/half.h"
#include "kernels/cpu/isa.h"

enum { LANES = 16, TILE_OUT = 4, TILE_ROWS = 4, Q8_BLOCK = 32, Q8_BYTES = 34 };

/* Pairwise, halves first: 16 → 8 → 4 → 2 → 1. */
static inline float add_lanes(__m512 v)
{
	__m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
	__m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
	b = _mm_add_ps(b, _mm_movehl_ps(b, b));
	return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

/* The 16 weights from k on (k a multiple of 16) of the row at `at`. */
static inline __m512 load_weights(const uint8_t *at, int type, size_t k)
{
	switch (type) {
	case KN_F32: return _mm512_loadu_ps(at + k * 4);
	case KN_F16: return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(at + k * 2)));
	case KN_BF16: {
		__m256i h = _mm256_loadu_si256((const __m256i *)(const void *)(at + k * 2));
		return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
	}
	default: {
		const uint8_t *block = at + k / Q8_BLOCK * Q8_BYTES;
		uint16_t h;
		memcpy(&h, block, 2);
		__m128i q = _mm_loadu_si128((const __m128i *)(const void *)(block + 2 + k % Q8_BLOCK));
		__m512 d = _mm512_set1_ps(_mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))));
		return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)));
	}
	}
}

static inline float weight_at(const uint8_t *at, int type, size_t k)
{
	float f;
	uint16_t h;
	if (type == KN_F32) {
		memcpy(&f, at + k * 4, 4);
		return f;
	}
	memcpy(&h, at + k * 2, 2);
	return type == KN_F16 ? kn_f32_from_f16(h) : kn_f32_from_bf16(h);
}

/* n_o ≤ TILE_OUT outputs, n_r ≤ TILE_ROWS rows; type, n_o and n_r are constants where this is inlined. */
static inline __attribute__((always_inline)) void tile(const struct kn_weight *w, int type, int o, int n_o,
						       const float *x, int n_r, float *y)
{
	size_t row_bytes = kn_row_bytes(type, (size_t)w->n_in), n_in = (size_t)w->n_in;
	const uint8_t *at = (const uint8_t *)w->data + (size_t)o * row_bytes;
	__m512 acc[TILE_OUT][TILE_ROWS];
	for (int i = 0; i < n_o; i++)
		for (int r = 0; r < n_r; r++)
			acc[i][r] = _mm512_setzero_ps();
	size_t whole = n_in / LANES * LANES;
	for (size_t k = 0; k < whole; k += LANES)
		for (int i = 0; i < n_o; i++) {
			__m512 v = load_weights(at + (size_t)i * row_bytes, type, k);
			for (int r = 0; r < n_r; r++)
				acc[i][r] = _mm512_fmadd_ps(v, _mm512_loadu_ps(x + (size_t)r * n_in + k), acc[i][r]);
		}
	for (int i = 0; i < n_o; i++)
		for (int r = 0; r < n_r; r++) {
			float sum = add_lanes(acc[i][r]);
			for (size_t k = whole; k < n_in; k++)
				sum = __builtin_fmaf(weight_at(at + (size_t)i * row_bytes, type, k),
						     x[(size_t)r * n_in + k], sum);
			y[(size_t)r * (size_t)w->n_out + (size_t)(o + i)] = sum;
		}
}

static inline __attribute__((always_inline)) void tile_rows(const struct kn_weight *w, int type, int o, int n_o,
							    const float *x, int n_r, float *y)
{
	switch (n_r) {
	case 1: tile(w, type, o, n_o, x, 1, y); break;
	case 2: tile(w, type, o, n_o, x, 2, y); break;
	case 3: tile(w, type, o, n_o, x, 3, y); break;
	default: tile(w, type, o, n_o, x, 4, y); break;
	}
}

static inline __attribute__((always_inline)) void matmul_type(const struct kn_weight *w, int type, int o0, int o1,
							      const float *x, int n_rows, float *y)
{
	size_t n_in = (size_t)w->n_in, n_out = (size_t)w->n_out;
	for (int o = o0; o < o1;) {
		int n_o = o1 - o < TILE_OUT ? 1 : TILE_OUT;
		for (int r = 0; r < n_rows; r += TILE_ROWS) {
			int n_r = n_rows - r < TILE_ROWS ? n_rows - r : TILE_ROWS;
			const float *xr = x + (size_t)r * n_in;
			float *yr = y + (size_t)r * n_out;
			if (n_o == TILE_OUT)
				tile_rows(w, type, o, TILE_OUT, xr, n_r, yr);
			else
				tile_rows(w, type, o, 1, xr, n_r, yr);
		}
		o += n_o;
	}
}

static void matmul(const struct kn_weight *w, int o0, int o1, const float *x, int n_rows, float *y)
{
	switch (w->type) {
	case KN_F32: matmul_type(w, KN_F32, o0, o1, x, n_rows, y); break;
	case KN_F16: matmul_type(w, KN_F16, o0, o1, x, n_rows, y); break;
	case KN_BF16: matmul_type(w, KN_BF16, o0, o1, x, n_rows, y); break;
	case KN_Q8_0: matmul_type(w, KN_Q8_0, o0, o1, x, n_rows, y); break;
	default: BUG("weight type %d", w->type);
	}
}

static void scores(const float *q, const float *k, size_t stride, int n, int dim, float scale, float *out)
{
	int whole = dim / LANES * LANES;
	for (int i = 0; i < n; i++, k += stride) {
		__m512 acc = _mm512_setzero_ps();
		for (int d = 0; d < whole; d += LANES)
			acc = _mm512_fmadd_ps(_mm512_loadu_ps(q + d), _mm512_loadu_ps(k + d), acc);
		float sum = add_lanes(acc);
		for (int d = whole; d < dim; d++)
			sum = __builtin_fmaf(q[d], k[d], sum);
		out[i] = sum * scale;
	}
}

static void weigh(const float *p, const float *v, size_t stride, int n, int dim, float *out)
{
	int d = 0;
	for (; d + LANES <= dim; d += LANES) {
		__m512 acc = _mm512_loadu_ps(out + d);
		for (int i = 0; i < n; i++)
			acc = _mm512_fmadd_ps(_mm512_set1_ps(p[i]), _mm512_loadu_ps(v + (size_t)i * stride + d), acc);
		_mm512_storeu_ps(out + d, acc);
	}
	for (; d < dim; d++)
		for (int i = 0; i < n; i++)
			out[d] = __builtin_fmaf(p[i], v[(size_t)i * stride + (size_t)d], out[d]);
}

static float sum_squares(const float *x, int n)
{
	__m512 acc = _mm512_setzero_ps();
	int i = 0;
	for (; i + LANES <= n; i += LANES) {
		__m512 v = _mm512_loadu_ps(x + i);
		acc = _mm512_fmadd_ps(v, v, acc);
	}
	float sum = add_lanes(acc);
	for (; i < n; i++)
		sum = __builtin_fmaf(x[i], x[i], sum);
	return sum;
}

const struct kn_isa kn_isa_avx512 = {
    .name = "cpu-avx512",
    .matmul = matmul,
    .scores = scores,
    .weigh = weigh,
    .sum_squares = sum_squares,
};
