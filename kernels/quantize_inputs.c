/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounding with second-order information (Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative
 * Pre-trained Transformers", 2022; Hassibi, Stork, "Optimal Brain Surgeon", 1993). The error of an output is quadratic
 * in the errors of its weights, with the second moments H of the inputs. Once value i is rounded, the best change of
 * those after it is its error times row i of the upper Cholesky factor of H's inverse, divided by the diagonal.
 *
 * Scales come from the plain encoders (quantize.c, quantize_k.c), which fit what a block's values are when the block
 * begins. Then its values are rounded in order with these scales. All sums have one order, so the same factors give the
 * same bytes.
 */
#include "kernels/quantize.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/quantize_blocks.h"
#include "kernels/quantize_fit.h"

enum { MAX_BLOCK = KN_K_BLOCK, MAX_RUNS = 16 };

/* ---- what a block can hold ---- */

/* Value i of a block is scale · grid(index) + offset, both those of its run. */
struct holds {
	struct kn_grid grid;
	int run;
	float scale[MAX_RUNS], offset[MAX_RUNS];
};

static float half_at(const uint8_t *at) { return kn_f32_from_f16((uint16_t)(at[0] | at[1] << 8)); }

static struct holds of_scale(int lowest, int n, const uint8_t *at)
{
	return (struct holds){.grid = {.lowest = lowest, .n = n}, .run = 32, .scale = {half_at(at)}};
}

static struct holds of_affine(int n, const uint8_t *at)
{
	return (struct holds){.grid = {.n = n}, .run = 32, .scale = {half_at(at)}, .offset = {half_at(at + 2)}};
}

static struct holds of_minimums(int n, const uint8_t *at)
{
	struct holds h = {.grid = {.n = n}, .run = 32};
	float d = half_at(at), m = half_at(at + 2);
	for (int j = 0, scale, least; j < 8; j++) {
		kn_scale_min(at + 4, j, &scale, &least);
		h.scale[j] = d * (float)scale;
		h.offset[j] = -m * (float)least;
	}
	return h;
}

static struct holds of_q2_k(const uint8_t *at)
{
	struct holds h = {.grid = {.n = 4}, .run = 16};
	for (int j = 0; j < 16; j++) {
		h.scale[j] = half_at(at + 80) * (float)(at[j] & 15);
		h.offset[j] = -half_at(at + 82) * (float)(at[j] >> 4);
	}
	return h;
}

static struct holds of_q3_k(const uint8_t *at)
{
	struct holds h = {.grid = {.lowest = -4, .n = 8}, .run = 16};
	for (int j = 0; j < 16; j++)
		h.scale[j] = half_at(at + 108) * (float)kn_scale_q3(at + 96, j);
	return h;
}

static struct holds of_q6_k(const uint8_t *at)
{
	struct holds h = {.grid = {.lowest = -32, .n = 64}, .run = 16};
	for (int j = 0; j < 16; j++)
		h.scale[j] = half_at(at + 208) * (float)(int8_t)at[192 + j];
	return h;
}

static struct holds holds_of(int type, const uint8_t *at)
{
	switch (type) {
	case KN_Q4_0: return of_scale(-8, 16, at);
	case KN_Q5_0: return of_scale(-16, 32, at);
	case KN_Q8_0: return of_scale(-127, 255, at);
	case KN_Q4_1: return of_affine(16, at);
	case KN_Q5_1: return of_affine(32, at);
	case KN_Q2_K: return of_q2_k(at);
	case KN_Q3_K: return of_q3_k(at);
	case KN_Q4_K: return of_minimums(16, at);
	case KN_Q5_K: return of_minimums(32, at);
	case KN_Q6_K: return of_q6_k(at);
	default: break;
	}
	struct holds h = of_scale(0, 16, at); /* IQ4_NL */
	h.grid.values = kn_nl_values;
	return h;
}

static void pack(int type, const uint8_t *q, uint8_t *at)
{
	switch (type) {
	case KN_Q5_0:
	case KN_Q5_1:
		kn_put_fifth_bits(at + (type == KN_Q5_0 ? 2 : 4), q);
		kn_put_nibbles(at + (type == KN_Q5_0 ? 6 : 8), q);
		break;
	case KN_Q8_0:
		for (int i = 0; i < 32; i++)
			at[2 + i] = (uint8_t)(q[i] - 127);
		break;
	case KN_Q4_1: kn_put_nibbles(at + 4, q); break;
	case KN_Q2_K: kn_pack_q2_k(q, at); break;
	case KN_Q3_K: kn_pack_q3_k(q, at); break;
	case KN_Q4_K: kn_pack_q4_k(q, at); break;
	case KN_Q5_K: kn_pack_q5_k(q, at); break;
	case KN_Q6_K: kn_pack_q6_k(q, at); break;
	default: kn_put_nibbles(at + 2, q);
	}
}

bool kn_quantizes_for(int type)
{
	switch (type) {
	case KN_Q4_0:
	case KN_Q4_1:
	case KN_Q5_0:
	case KN_Q5_1:
	case KN_Q8_0:
	case KN_Q2_K:
	case KN_Q3_K:
	case KN_Q4_K:
	case KN_Q5_K:
	case KN_Q6_K:
	case KN_IQ4_NL: return true;
	default: return false;
	}
}

/* ---- rounding ---- */

typedef float f4 __attribute__((vector_size(16)));

/* x -= by · row; each element by itself, so vectors change no bits. */
static void subtract(float *x, const float *row, float by, size_t n)
{
	size_t j = 0;
	for (; j + 4 <= n; j += 4) {
		f4 a, b;
		memcpy(&a, x + j, sizeof a);
		memcpy(&b, row + j, sizeof b);
		a -= by * b;
		memcpy(x + j, &a, sizeof a);
	}
	for (; j < n; j++)
		x[j] -= by * row[j];
}

/* Rounds x[first … first + n) of a group of m values, and changes those after each. */
static void round_block(const struct holds *h, float *x, const float *factor, size_t first, size_t n, size_t m,
			uint8_t *q)
{
	for (size_t k = 0; k < n; k++) {
		size_t i = first + k, run = k / (size_t)h->run;
		const float *row = factor + i * m;
		float scale = h->scale[run], offset = h->offset[run];
		int index = kn_grid_index(&h->grid, kn_over(x[i] - offset, scale));
		float rest = (x[i] - (scale * kn_grid_value(&h->grid, index) + offset)) / row[i];
		q[k] = (uint8_t)index;
		subtract(x + i + 1, row + i + 1, rest, m - i - 1);
	}
}

static int round_group(int type, float *x, const float *factor, size_t m, uint8_t *at)
{
	size_t block = (size_t)kn_type_block(type), bytes = kn_type_block_bytes(type);
	uint8_t q[MAX_BLOCK];
	for (size_t first = 0; first < m; first += block, at += bytes) {
		if (kn_quantize_row(type, x + first, block, at) != 0)
			return SL_EINVAL;
		const struct holds h = holds_of(type, at);
		round_block(&h, x, factor, first, block, m, q);
		pack(type, q, at);
	}
	return 0;
}

int kn_quantize_row_for(int type, float *x, const struct kn_inputs *in, size_t n, void *out)
{
	int rc = 0;
	BUG_IF(n != in->n || !kn_quantizes_for(type) || in->group % MAX_BLOCK != 0, "%zu values of %zu to type %d", n,
	       in->n, type);
	for (size_t first = 0; first < n && rc == 0; first += in->group) {
		size_t m = n - first < in->group ? n - first : in->group;
		rc = round_group(type, x + first, in->factors + first * in->group, m,
				 (uint8_t *)out + kn_row_bytes(type, first));
	}
	return rc;
}

/* ---- factors ---- */

/* With the inputs in reverse order H = L Lᵀ; in their own, H = M Mᵀ with M upper triangular, whose inverse is the
 * factor. a [m][m]: its upper triangle is H's on entry and M's on return. */
static int decompose(double *a, size_t m)
{
	for (size_t j = m; j-- > 0;) {
		double diagonal = a[j * m + j];
		for (size_t k = j + 1; k < m; k++)
			diagonal -= a[j * m + k] * a[j * m + k];
		if (!(diagonal > 0) || !isfinite(diagonal))
			return SL_EINVAL;
		diagonal = a[j * m + j] = sqrt(diagonal);
		for (size_t i = 0; i < j; i++) {
			double sum = a[i * m + j];
			for (size_t k = j + 1; k < m; k++)
				sum -= a[i * m + k] * a[j * m + k];
			a[i * m + j] = sum / diagonal;
		}
	}
	return 0;
}

/* The inverse of the upper triangular a, row by row from the last, in out; zeros below the diagonal. */
static void invert(const double *a, size_t m, float *out, double *row)
{
	for (size_t i = m; i-- > 0;) {
		memset(row, 0, m * sizeof *row);
		for (size_t k = i + 1; k < m; k++)
			for (size_t j = k; j < m; j++)
				row[j] -= a[i * m + k] * (double)out[k * m + j];
		for (size_t j = i + 1; j < m; j++)
			out[i * m + j] = (float)(row[j] / a[i * m + i]);
		out[i * m + i] = (float)(1 / a[i * m + i]);
		memset(out + i * m, 0, i * sizeof *out);
	}
}

int kn_inputs_factor(float *h, size_t m, double damp)
{
	double *a = sl_zalloc_n(m, m * sizeof *a), *row = sl_zalloc_n(m, sizeof *row), mean = 0;
	int rc = a != NULL && row != NULL ? 0 : SL_ENOMEM;
	for (size_t i = 0; i < m; i++)
		mean += (double)h[i * m + i] / (double)m;
	for (size_t i = 0; i < m && rc == 0; i++) {
		for (size_t j = i; j < m; j++)
			a[i * m + j] = (double)h[i * m + j];
		a[i * m + i] += damp * mean;
	}
	if (rc == 0)
		rc = mean > 0 ? decompose(a, m) : SL_EINVAL;
	if (rc == 0)
		invert(a, m, h, row);
	sl_free(a);
	sl_free(row);
	return rc;
}
