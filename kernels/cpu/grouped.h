/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many matrices of one shape, each with rows of its own: experts, and heads. All are one job of the pool: a
 * row alone has eight experts of a few hundred outputs, or heads of a hundred, and a fork and join for each would cost
 * as much as some of them.
 */
#ifndef KERNELS_CPU_GROUPED_H
#define KERNELS_CPU_GROUPED_H

#include "kernels/cpu/backend.h"

/* Adjacent rows of one matrix, in the order of matrices. */
struct kn_piece {
	int matrix, at, n;
	const void *packed;
};

struct kn_one_product;

struct kn_pieces {
	int n;
	size_t room;
	struct kn_piece *all;
	struct kn_one_product *products; /* KN_SETS of each piece */
};

enum { KN_SETS = 2 }; /* matrices that are multiplied with the same rows */

/* Products of n sets of matrices with x, into y[set]; all matrices of one shape. Row i of a piece is row at + i of x
 * and y. */
struct kn_sets {
	const struct kn_weight *w[KN_SETS];
	float *y[KN_SETS];
	int n;
	const float *x;
};

/* No pieces, and room for n_rows rows of n_matrices matrices, in b->pieces. n_in: the widest row. SL_ENOMEM. */
int kn_pieces_reserve(struct kn_backend *b, int n_rows, int n_matrices, int n_in);
/* The next matrix has rows at … at + n - 1. */
void kn_pieces_add(struct kn_pieces *p, int matrix, int at, int n);
void kn_pieces_run(struct kn_backend *b, const struct kn_sets *s);
void kn_pieces_free(struct kn_pieces *p); /* NULL: nothing */

#endif
