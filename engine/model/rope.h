/* SPDX-License-Identifier: Apache-2.0
 *
 * From a family's description of its rotary embedding to the table of frequencies that kernels use.
 */
#ifndef ENGINE_ROPE_H
#define ENGINE_ROPE_H

#include "engine/source/arch.h"

/* Radians a position for each of the n_rot/2 pairs. n_ctx: the model's context, by which longrope
 * chooses its magnitude. */
void rope_frequencies(const struct arch_rope *r, double *inv_freq);
/* What sine and cosine are multiplied by. */
double rope_magnitude(const struct arch_rope *r, int n_ctx);

#endif
