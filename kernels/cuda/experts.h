/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of mixtures of experts share: the choice and order of rows (route.cu), and what is done with them
 * (experts.cu).
 *
 * A slot is a row with one of its experts: slot k of row r is number r · n_used + k. The ordered slots are sorted by
 * expert, those of one expert by number, so that an expert's rows are adjacent in activations, products and groups
 * (matmul.h). Everything that depends on the choice is in device memory: launches depend on the numbers of rows and
 * experts only.
 */
#ifndef KERNELS_CUDA_EXPERTS_H
#define KERNELS_CUDA_EXPERTS_H

#include "kernels/cuda/matmul.h"

enum { KN_ROUTE_THREADS = 128 };

/* What a choice makes, in device memory, for at most n slots. */
struct kn_order {
	int32_t *chosen;   /* [n]: a slot's expert */
	float *weight;     /* [n]: and its weight */
	int32_t *place;    /* [n]: where the slot is among the ordered ones */
	int32_t *slot;     /* [n]: the reverse */
	int32_t *unit_row; /* [n]: the ordered slot's row of activations, whose tiles begin with each expert's first */
	struct kn_group *groups;
	int32_t *totals; /* groups, slots */
};

/* Rows of the caller's: a padded step has copies of the last one after them, which take part in nothing and get its
 * results. */
struct kn_real_rows {
	const int32_t *step; /* of the device: the step's rows without padding; NULL: all are real */
	int times, all;      /* times that, at most `all` */
};

__device__ static inline int kn_real(const struct kn_real_rows &r)
{
	return r.step == NULL ? r.all : *r.step * r.times;
}

/* Chooses each row's experts and orders the slots, in groups of at most group_rows rows; counts [route->n] of the
 * device, or NULL: how many rows each expert has. 0 or SL_EIO. */
int kn_cuda_route(struct kn_backend *b, const struct kn_route *route, const float *logits,
		  const struct kn_real_rows *rows, int group_rows, const struct kn_order *out, uint32_t *counts);

#endif
