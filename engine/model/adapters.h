/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of a loaded model: each has a slot, rows of a step name theirs (kn_step.row_adapter), and each product of a
 * layer gets what its rows' adapters add (kn_ops.lora_shrink, lora_expand). Rows without one are not touched. A row's
 * bits depend on its own inputs and its adapter, like all others' (kernels.h).
 */
#ifndef ENGINE_MODEL_ADAPTERS_H
#define ENGINE_MODEL_ADAPTERS_H

#include "engine/model/model.h"

struct layer;

enum { MODEL_MAX_ADAPTERS = 64 };

/* Loads an adapter (engine/adapter) into the backend's memory; its file is closed again. No step may run. *slot: its
 * number. SL_EUNSUPPORTED: the backend has no adapters; SL_ELIMIT: the model has MODEL_MAX_ADAPTERS; or as
 * adapter_open. */
int model_load_adapter(struct model *m, const char *path, int *slot, struct sl_err *err);
/* Bytes that the adapter in this slot takes. */
uint64_t model_adapter_bytes(const struct model *m, int slot);

/* ---- of the forward pass: 0, or the backend's code ---- */

/* Before a step: which rows have which adapter. */
void adapters_begin(struct model *m, const struct kn_step *s);
/* After the products of x: what adapters add to queries, keys and values; to gate and up; to attention's output; to the
 * feed-forward half's. */
int adapters_qkv(struct model *m, const struct layer *l, const float *x);
int adapters_gate_up(struct model *m, const struct layer *l, const float *x);
int adapters_o(struct model *m, const struct layer *l, const float *x, float *y);
int adapters_down(struct model *m, const struct layer *l, const float *x, float *y);
void adapters_free(struct model *m);

#endif
