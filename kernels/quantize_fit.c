/* SPDX-License-Identifier: Apache-2.0
 *
 * Alternating least squares from several starts: for a trial scale every value takes its nearest index; for those
 * indices the best scale is a quotient of sums, which also gives its error. The starts surround the scale that just
 * fits the largest value: clipping one value slightly often helps the others. Float arithmetic runs in a fixed order on
 * four lanes, so every machine finds the same result.
 */
#include "kernels/quantize_fit.h"

#include <stddef.h>
#include <string.h>

/* Trial scales are extent / (steps + t), t from -SPREAD to SPREAD in steps of one fifth. */
enum { SPREAD = 6, PER_STEP = 5 };

typedef float f4 __attribute__((vector_size(16)));
typedef int32_t i4 __attribute__((vector_size(16)));

static inline f4 load(const float *x)
{
	f4 v;
	memcpy(&v, x, sizeof v);
	return v;
}

static inline float sum_of(f4 v) { return (v[0] + v[2]) + (v[1] + v[3]); }

/* kn_round_to of each lane. */
static inline f4 round_lanes(f4 v, float lo, float hi)
{
	f4 low = {lo, lo, lo, lo}, high = {hi, hi, hi, hi};
	i4 below = v<low, above = v> high;
	v = (f4)(((i4)v & ~below) | ((i4)low & below));
	v = (f4)(((i4)v & ~above) | ((i4)high & above));
	return v + 12582912.0f - 12582912.0f;
}

/* The value of the grid nearest to each lane. */
static inline f4 nearest(const struct kn_grid *g, f4 v)
{
	if (g->values == NULL)
		return round_lanes(v, (float)g->lowest, (float)(g->lowest + g->n - 1));
	for (int i = 0; i < 4; i++)
		v[i] = (float)g->values[kn_grid_index(g, v[i])];
	return v;
}

int kn_grid_index(const struct kn_grid *g, float v)
{
	if (g->values == NULL)
		return kn_round_to(v, g->lowest, g->lowest + g->n - 1) - g->lowest;
	int at = 0; /* the last value whose midpoint with the one before is not above v */
	for (int step = 8; step > 0; step /= 2)
		if (v >= 0.5f * (float)(g->values[at + step] + g->values[at + step - 1]))
			at += step;
	return at;
}

float kn_grid_value(const struct kn_grid *g, int index)
{
	return g->values == NULL ? (float)(g->lowest + index) : (float)g->values[index];
}

static float largest(const float *x, int n)
{
	float most = 0;
	for (int i = 0; i < n; i++)
		most = x[i] > most ? x[i] : -x[i] > most ? -x[i] : most;
	return most;
}

float kn_fit_scale(const struct kn_grid *g, const float *x, int n)
{
	float most = largest(x, n), best = 0, best_gain = 0;
	if (most < KN_TINY)
		return 0;
	/* A grid of values has its steps wider by its extent over that of a grid of 16 integers. */
	float extent = -kn_grid_value(g, 0), step = g->values == NULL ? 1 : extent / 8;
	for (int sign = -1; sign <= 1; sign += 2)
		for (int t = -SPREAD; t <= SPREAD; t++) {
			float inverse = (float)sign * (extent + step * (float)t / PER_STEP) / most;
			f4 xv4 = {0}, vv4 = {0};
			for (int i = 0; i < n; i += 4) {
				f4 v = nearest(g, load(x + i) * inverse);
				xv4 += load(x + i) * v;
				vv4 += v * v;
			}
			float xv = sum_of(xv4), vv = sum_of(vv4);
			/* The error is Σx² - (Σxv)² / Σv² with the scale Σxv / Σv². */
			if (vv > 0 && xv * xv > best_gain * vv) {
				best_gain = xv * xv / vv;
				best = xv / vv;
			}
		}
	return best;
}

float kn_scale_error(const struct kn_grid *g, const float *x, int n, float scale)
{
	float inverse = kn_over(1, scale);
	f4 sum = {0};
	for (int i = 0; i < n; i += 4) {
		f4 e = load(x + i) - scale * nearest(g, load(x + i) * inverse);
		sum += e * e;
	}
	return sum_of(sum);
}

float kn_affine_error(int max, const float *x, int n, float scale, float offset)
{
	float inverse = kn_over(1, scale);
	f4 sum = {0};
	for (int i = 0; i < n; i += 4) {
		f4 v = load(x + i) - offset, e = v - scale * round_lanes(v * inverse, 0, (float)max);
		sum += e * e;
	}
	return sum_of(sum);
}

/* Scale and offset of least squares for the indices that *scale and *offset lead to. */
static void improve(int max, bool no_positive, const float *x, int n, float *scale, float *offset)
{
	float inverse = kn_over(1, *scale);
	f4 q4 = {0}, qq4 = {0}, x4 = {0}, xq4 = {0};
	for (int i = 0; i < n; i += 4) {
		f4 v = load(x + i), q = round_lanes((v - *offset) * inverse, 0, (float)max);
		q4 += q;
		qq4 += q * q;
		x4 += v;
		xq4 += v * q;
	}
	float sq = sum_of(q4), sqq = sum_of(qq4), sx = sum_of(x4), sxq = sum_of(xq4);
	float det = (float)n * sqq - sq * sq;
	if (det > 0) {
		*scale = ((float)n * sxq - sq * sx) / det;
		*offset = (sx - *scale * sq) / (float)n;
	}
	if (no_positive && *offset > 0) {
		*offset = 0;
		*scale = kn_over(sxq, sqq);
	}
	if (*scale < 0)
		*scale = 0;
}

void kn_fit_affine(int max, bool no_positive, const float *x, int n, float *scale, float *offset)
{
	float low = x[0], high = x[0], best = -1;
	for (int i = 1; i < n; i++) {
		low = x[i] < low ? x[i] : low;
		high = x[i] > high ? x[i] : high;
	}
	if (no_positive && low > 0)
		low = 0;
	*scale = 0;
	*offset = low;
	if (high - low < KN_TINY)
		return;
	for (int t = -SPREAD; t <= SPREAD; t++) {
		float s = (high - low) / ((float)max + (float)t / PER_STEP), o = low;
		for (int round = 0; round < 2; round++)
			improve(max, no_positive, x, n, &s, &o);
		float error = kn_affine_error(max, x, n, s, o);
		if (best < 0 || error < best) {
			best = error;
			*scale = s;
			*offset = o;
		}
	}
}
