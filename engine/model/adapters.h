/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of a loaded model: each has a slot, and rows of a step name theirs (kn_step.row_adapter). Embeddings, each
 * product of a layer and of its experts, and logits get what their rows' adapters add (kn_ops.lora_shrink, lora_expand,
 * lora_lookup; kn_experts.lora). Rows without one are not touched. A row's bits depend on its own inputs and its
 * adapter, like all others' (kernels.h).
 */
#ifndef ENGINE_MODEL_ADAPTERS_H
#define ENGINE_MODEL_ADAPTERS_H

#include "engine/model/model.h"

struct layer;

enum { MODEL_MAX_ADAPTERS = 64 };

/* ---- from a file to a slot ---- */

struct adapter;
struct chat_template;
struct model_adapter; /* an adapter in the backend's memory */

/* Opens the adapter and checks it against m, its tokens included. *template: its own, or NULL where its base's serves;
 * the caller frees it. *digest: of what it adds and of its template. SL_EUNSUPPORTED: the backend has no adapters; or
 * as adapter_open, chat_template_compile. Any thread, as pack: steps may run. */
int model_open_adapter(const struct model *m, const char *path, struct adapter **out, struct chat_template **template,
		       uint64_t *digest, struct sl_err *err);
void model_close_adapter(struct adapter *a);
/* type: KN_LORA_I8, KN_BF16 or KN_F32; -1: as its file has its numbers. Bytes that model_pack_adapter allocates. */
uint64_t model_adapter_size(const struct model *m, const struct adapter *a, int type);
int model_pack_adapter(struct model *m, const struct adapter *a, int type, struct model_adapter **out,
		       struct sl_err *err);
void model_drop_adapter(struct model *m, struct model_adapter *a); /* NULL: nothing */
/* Step thread, between steps; issued ones may be in flight, since they keep what they use. Takes a unless it fails:
 * SL_ELIMIT without a free slot, SL_ENOMEM, SL_EIO. */
int model_put_adapter(struct model *m, struct model_adapter *a, int *slot, struct sl_err *err);
void model_remove_adapter(struct model *m, int slot);
/* All of these, for a caller that runs no step. */
int model_load_adapter(struct model *m, const char *path, int *slot, struct sl_err *err);
/* Bytes that the adapter in this slot takes. */
uint64_t model_adapter_bytes(const struct model *m, int slot);

/* ---- of the forward pass: 0, or the backend's code ---- */

/* Before a step: which rows have which adapter; for kn_step.adapters. */
const struct kn_lora_rows *adapters_begin(struct model *m, const struct kn_step *s);
/* To the embeddings of the step's rows, in m->x. */
int adapters_embed(struct model *m);
/* To the logits of the step's n_want rows `want`, whose inputs are in m->normed. */
int adapters_head(struct model *m, const int32_t *want, int n_want);
/* For kn_experts.lora of a layer's mixture. */
const struct kn_expert_lora *adapters_experts(struct model *m, const struct layer *l);
/* After the products of x: what adapters add to queries, keys and values; to gate and up; to attention's output; to the
 * feed-forward half's, or the shared expert's. */
int adapters_qkv(struct model *m, const struct layer *l, const float *x);
int adapters_gate_up(struct model *m, const struct layer *l, const float *x);
int adapters_o(struct model *m, const struct layer *l, const float *x, float *y);
int adapters_down(struct model *m, const struct layer *l, const float *x, float *y);
void adapters_free(struct model *m);

#endif
