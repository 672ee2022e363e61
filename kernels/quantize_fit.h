/* SPDX-License-Identifier: Apache-2.0
 *
 * The quantizers' searches: for a few values, the scale, or scale and offset, with the least squared error on the grid
 * of storable values. Private to kernels/.
 */
#ifndef KERNELS_QUANTIZE_FIT_H
#define KERNELS_QUANTIZE_FIT_H

#include <stdbool.h>
#include <stdint.h>

/* The value of a stored index, times a scale: lowest + index, or sixteen ascending values. */
struct kn_grid {
	int lowest, n;
	const int8_t *values;
};

/* Values below KN_TINY count as zero and values beyond KN_HUGE are refused, so that squares and reciprocals stay in
 * float's range. Float16 scales have a smaller range anyway. */
#define KN_TINY 1e-18f
#define KN_HUGE 1e18f

int kn_grid_index(const struct kn_grid *g, float v); /* the nearest; v may be anything finite */
float kn_grid_value(const struct kn_grid *g, int index);

/* The scale (of either sign) of x ≈ scale · value; 0 for zeros. n: 16, 32 or 128. */
float kn_fit_scale(const struct kn_grid *g, const float *x, int n);
/* x ≈ scale · q + offset, 0 ≤ q ≤ max, scale ≥ 0; the offset is not above zero where asked. */
void kn_fit_affine(int max, bool no_positive, const float *x, int n, float *scale, float *offset);
/* Σ (x - scale · value)² and Σ (x - scale · q - offset)² with the nearest index of each. */
float kn_scale_error(const struct kn_grid *g, const float *x, int n, float scale);
float kn_affine_error(int max, const float *x, int n, float scale, float offset);

/* v / scale, 0 for a scale of 0. */
static inline float kn_over(float v, float scale) { return scale == 0 ? 0 : v / scale; }

/* The nearest integer from lo to hi, ties to even. */
static inline int kn_round_to(float v, int lo, int hi)
{
	v = v < (float)lo ? (float)lo : v > (float)hi ? (float)hi : v;
	/* At 1.5 · 2^23 the last place is one: no library call, and the same everywhere. */
	return (int)(v + 12582912.0f - 12582912.0f);
}

#endif
