/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a model's matrices come from: the file of rearranged weights (weight_cache.h), or the model's own,
 * rearranged by the backend, whereupon such a file is written in the background. Matrices are asked for in
 * the same order at every start.
 */
#ifndef ENGINE_WEIGHT_STORE_H
#define ENGINE_WEIGHT_STORE_H

#include <stdbool.h>

#include "base/err.h"
#include "engine/source/convert.h"
#include "engine/source/model_file.h"
#include "engine/model/residence.h"
#include "engine/model/weight_cache.h"
#include "kernels/kernels.h"

struct weight_store;

/* cache NULL: nothing is kept. Nor is it where the backend rearranges nothing or the model is a folder. progress: of
 * what the backend rearranges, in bytes of the file; may be NULL. Borrowed: cache until weight_store_close, progress
 * until weight_store_loaded. SL_ENOMEM. */
int weight_store_open(const struct kn_ops *ops, struct kn_backend *b, const struct model_file *f,
		      const struct weight_cache_config *cache, struct convert_progress *progress,
		      struct weight_store **out, struct sl_err *err);
/* Rows first_row … first_row + n_out - 1 of t, with n_in elements each. As kn_ops.weight_load. */
int weight_store_load(struct weight_store *s, const struct model_tensor *t, int first_row, int n_out, int n_in,
		      struct kn_weight *out, struct sl_err *err);
/* All rows of n matrices of one type and width below one another. As kn_ops.weight_load_joined, which the backend has:
 * one that has
 * keeps nothing. n ≤ WEIGHT_STORE_JOINED. */
enum { WEIGHT_STORE_JOINED = 3 };
int weight_store_load_joined(struct weight_store *s, const struct model_tensor *const *t, int n, struct kn_weight *out,
			     struct sl_err *err);
/* The n matrices [n_out][n_in] of t. As kn_ops.weights_load, which the backend has: it keeps nothing. */
int weight_store_load_all(struct weight_store *s, const struct model_tensor *t, int n, int n_out, int n_in,
			  struct kn_weight *out, struct sl_err *err);
/* All are loaded: from now on a file of them is written if there was none. */
void weight_store_loaded(struct weight_store *s);
/* Where they lie, until weight_store_close. */
const struct residence *weight_store_residence(const struct weight_store *s);
/* Waits until the file is written that weight_store_loaded began. Whether it is there. */
bool weight_store_finish(struct weight_store *s);
/* Whether the weights came from a file. */
bool weight_store_was_kept(const struct weight_store *s);
/* Before the weights are freed, which must not be used any more: a file that isn't finished is given up. NULL: nothing.
 */
void weight_store_close(struct weight_store *s);

#endif
