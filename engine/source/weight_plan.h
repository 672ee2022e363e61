/* SPDX-License-Identifier: Apache-2.0
 *
 * The type of each weight in a file: one type for all matrices, or llama.cpp's mixes, which spend more bits where
 * errors cost most.
 */
#ifndef ENGINE_WEIGHT_PLAN_H
#define ENGINE_WEIGHT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct weight_plan {
	int type; /* of most matrices */
	int more; /* of the selected matrices; equal to type if none is selected */
};

/* "q8_0", "bf16", "q4_k_m", in any case. SL_EINVAL lists the choices. */
int weight_plan_parse(const char *name, struct weight_plan *out, struct sl_err *err);

/* Whether a tensor is a matrix of a product: norms of groups and the taps of convolutions have two dimensions, too. */
bool weight_plan_covers(const char *tensor, int n_dims);

/* The type of a matrix with rows of `width` elements. If the width is not a multiple of the type's block, a type with
 * smaller blocks and no fewer bits. Vectors are always F32. tied: token_embd is also the output. */
int weight_plan_type(const struct weight_plan *p, const char *tensor, uint64_t width, int n_layers, bool tied);

#endif
