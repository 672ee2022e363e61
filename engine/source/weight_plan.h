/* SPDX-License-Identifier: Apache-2.0
 *
 * Which type each weight of a file gets: one type for all matrices, or llama.cpp's mixes, which
 * spend more bits where errors cost most.
 */
#ifndef ENGINE_WEIGHT_PLAN_H
#define ENGINE_WEIGHT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct weight_plan {
	int type; /* of most matrices */
	int more; /* of the chosen ones; equal to type when nothing is chosen */
};

/* "q8_0", "bf16", "q4_k_m", in any case. SL_EINVAL lists what there is. */
int weight_plan_parse(const char *name, struct weight_plan *out, struct sl_err *err);

/* The type of a matrix with rows of width elements. Where the width is no multiple of the type's
 * block, a type of smaller blocks and no fewer bits. Vectors are always F32. tied: token_embd is
 * the output too. */
int weight_plan_type(const struct weight_plan *p, const char *tensor, uint64_t width, int n_layers, bool tied);

#endif
