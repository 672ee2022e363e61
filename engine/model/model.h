/* SPDX-License-Identifier: Apache-2.0
 *
 * A loaded model: weights in the backend, the tokenizer, the chat template, and one forward pass.
 * A family is data (struct model_arch): what differs from plain Llama is a field, not a copy.
 */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/source/arch.h"
#include "engine/chat/chat_template.h"
#include "engine/source/convert.h"
#include "engine/token/tokenizer.h"
#include "kernels/kernels.h"

struct model;
struct residence;

struct model_info {
	struct model_arch arch;
	uint64_t file_bytes, n_params;
	uint64_t embed_bytes;                   /* of the table of embeddings */
	uint64_t expert_bytes, n_expert_params; /* of all experts */
	uint64_t text;         /* models of the same number make the same tokens of a text; once loaded; 0: unknown */
	char name[64];         /* general.name */
	char weight_types[96]; /* "Q8_0 ×29, F32 ×9" */
	char note[256];        /* as model_file_note */
};

/* Reads the file's head only: what it is and whether this build can run it. */
int model_inspect(const char *path, struct model_info *out, struct sl_err *err);
/* The same with a file of the layer that drafts (model_file_open_with); NULL: without. */
int model_inspect_with(const char *path, const char *head, struct model_info *out, struct sl_err *err);

/* Everything that model_load would refuse, without loading: architecture, size, types of the weights,
 * tokenizer, chat template. head: as above. */
int model_check(const char *path, const char *head, uint64_t max_bytes, struct sl_err *err);

/* max_bytes: a larger file is SL_ELIMIT with both numbers in the line; 0: this machine's memory. */
int model_load(const char *path, const struct kn_ops *ops, struct kn_backend *backend, int max_rows, uint64_t max_bytes,
	       struct model **out, struct sl_err *err);
/* As model_load, with the float matrices of the file converted to another type on the way, or weights kept
 * rearranged from one start to the next (weight_store.h). */
struct model_quantize {
	int type;
	int n_threads;                     /* 0: all */
	struct convert_progress *progress; /* may be NULL */
};
struct weight_cache_config;
struct model_how {
	const struct model_quantize *quantize; /* NULL: not */
	const struct weight_cache_config
	    *cache;          /* where rearranged weights are kept, until model_free; NULL: nowhere */
	const char *head;    /* as model_inspect_with's */
	bool drafts;         /* with the layer that drafts, if the files have one (draft_head.h) */
	const char *pooling; /* as model_set_pooling takes it */
	int max_want; /* the most rows of a step whose logits are wanted; 0: all. A wide step needs little memory then
		       */
	struct convert_progress
	    *rearranging; /* called while weights are rearranged, not when cached ones are used; may be NULL */
};
int model_load_as(const char *path, const struct model_how *how, const struct kn_ops *ops, struct kn_backend *backend,
		  int max_rows, uint64_t max_bytes, struct model **out, struct sl_err *err);
void model_free(struct model *m); /* NULL is allowed */

const struct model_info *model_info(const struct model *m);
/* Where its weights lie. */
const struct residence *model_residence(const struct model *m);
/* Waits until its rearranged weights are in the cache, from which they come when it is loaded again. False: they are
 * not kept. */
bool model_keep_weights(struct model *m);
/* A digest of the state of its files (model_stamp.h). False: there is none. */
bool model_stamp(const struct model *m, uint64_t digest[2]);
/* Whether its weights came rearranged from an earlier start. */
bool model_was_kept(const struct model *m);
const struct tokenizer *model_tokenizer(const struct model *m);
/* NULL when the file has none; then chat prompts are refused. */
const struct chat_template *model_template(const struct model *m);

/* What several matrices have as inputs: the rows that queries, keys and values, attention's output, gate and up, the
 * second matrix of a dense half, and the head are products of. */
enum model_site { MODEL_SITE_QKV, MODEL_SITE_O, MODEL_SITE_WIDEN, MODEL_SITE_DOWN, MODEL_SITE_HEAD, MODEL_SITES };
/* Whether w is the first of the model's matrices that a step multiplies with the inputs of a site; *layer: 0 for the
 * head. For those that watch kn_ops.matmul. */
bool model_site_of_weight(const struct model *m, const struct kn_weight *w, int *layer, enum model_site *site);
/* The site whose inputs a tensor of a file is multiplied with, by its name; false: none of these. */
bool model_site_of_tensor(const char *name, int *layer, enum model_site *site);

/* "mean", "cls", "last" or "none" instead of what the files say; NULL, "", "auto": as they say. SL_EINVAL: unknown, or
 * this family can't. */
int model_set_pooling(struct model_arch *a, const char *name, struct sl_err *err);
/* What a model can do: bits of enum proto_does. */
unsigned model_does(const struct model_arch *a);
/* The type of keys and values where the configuration names none: float32 for models that pool rows, whose results are
 * compared with each other by small differences; else kn_kv_type_auto. */
int model_kv_type(const struct model_arch *a, const struct kn_ops *ops);
/* Whether keys and queries are rotated before keys are stored (kn_kv.rotate): AUTO where that makes errors smaller. */
enum model_kv_rotation { MODEL_ROTATE_AUTO, MODEL_ROTATE_ON, MODEL_ROTATE_OFF };
/* "auto", "on", "off"; NULL and "" are auto. -1: unknown name. */
int model_kv_rotation_from_name(const char *name);
/* Of pages of a type: what kn_kv.rotate is. */
int model_kv_rotated(const struct model_arch *a, int type, enum model_kv_rotation how, const struct kn_ops *ops);
/* The layout of pages with n_layers of its layers; without memory and pages. */
struct kn_kv model_kv_layout(const struct model_arch *a, int type, int page_tokens, int n_layers);
/* Numbers of a pooled result: the model's width, or 1 for a score; 0: it pools nothing. */
int model_pooled_width(const struct model *m);

/* Rows of texts in a step that are pooled. */
struct model_text {
	struct kn_text at;
	bool ends; /* its last row is among them */
};
struct model_pooling {
	const struct model_text *texts; /* slots below max_rows */
	int n;
	float *out; /* [n][model_pooled_width], host memory: of those that end. MEAN: the sum, not divided */
};

/* One step over s->n_rows ≤ max_rows rows: writes their K and V to the pages and computes the
 * logits of the rows named in want[n_want] (indices of rows), float32 [n_want][n_vocab], into host
 * memory. SL_EIO after a device fault. */
int model_forward(struct model *m, const struct kn_step *s, const struct kn_kv *kv, const int32_t *want, int n_want,
		  float *logits);
/* The same of the first n_layers only, 1 … all: for measuring what a layer costs. */
int model_forward_part(struct model *m, const struct kn_step *s, const struct kn_kv *kv, int n_layers,
		       const int32_t *want, int n_want, float *logits);

/* Tokens drawn where the logits are (kn_ops.sample): draws[n], each from the row draw.row of want, none from a row
 * twice; drawn[n] gets what came out. Logits of rows where taken[n_want] is set are not brought to the host. */
struct model_draws {
	const struct kn_draw *draws;
	int n;
	struct kn_drawn *drawn;
	const bool *taken;
};
/* Whether the model's backend can. */
bool model_can_draw(const struct model *m);
/* As model_forward; draws may be NULL. No step may be on its way. */
int model_forward_draw(struct model *m, const struct kn_step *s, const struct kn_kv *kv, const int32_t *want,
		       int n_want, float *logits, const struct model_draws *draws);

/* As model_forward, for texts only. */
int model_forward_pool(struct model *m, const struct kn_step *s, const struct kn_kv *kv,
		       const struct model_pooling *pooling);

/* Do steps run without the host between issue and wait, and take tokens from each other (kn_step.row_from)? */
bool model_ahead(const struct model *m);
/* model_forward_draw in two parts. What s, want and draws name may be changed once model_issue returns; logits and
 * draws->drawn are filled when model_wait returns, which waits for the oldest step on its way: at most KN_STEPS_AHEAD.
 * SL_EIO from either: the device has failed, and all that was on its way with it. pooling may be NULL. */
int model_issue(struct model *m, const struct kn_step *s, const struct kn_kv *kv, const int32_t *want, int n_want,
		float *logits, const struct model_draws *draws, const struct model_pooling *pooling);
int model_wait(struct model *m);
/* Whether model_wait would not have to wait. */
bool model_ready(const struct model *m);

#endif
