/* SPDX-License-Identifier: Apache-2.0
 *
 * The winner of a draw's race (kernels/race.h) among the logits of a row.
 */
#ifndef ENGINE_DRAW_H
#define ENGINE_DRAW_H

#include <stdint.h>

/* Logarithms of weights are (l - max) · inv_t, where max ≥ every l. */
struct draw_scale {
	float max, inv_t;
};

/* Of all n elements of l, whose ids are their indices; bounds: room for n / RACE_BLOCK + 1. One of them is finite. */
int32_t draw_row(const float *l, int n, const struct draw_scale *scale, uint64_t key, double *bounds);
/* Of n ≥ 1 candidates in ascending order of their ids. */
int32_t draw_listed(const float *l, const int32_t *ids, int n, const struct draw_scale *scale, uint64_t key);

#endif
