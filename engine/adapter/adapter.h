/* SPDX-License-Identifier: Apache-2.0
 *
 * The room reads, merges and makes low-rank adapters (Hu et al., "LoRA", 2021): what one adds to a matrix W
 * [n_out][n_in] of its base model is scale · B · A, with A [rank][n_in] and B [n_out][rank]. Two forms on disk: a
 * folder of the PEFT library (adapter_config.json, adapter_model.safetensors) and a GGUF file (general.type "adapter").
 *
 * Everything is checked before it is used: names, shapes and ranks of both halves, each number, and all of it against
 * the base. What this version does not support is refused by its key's or tensor's name.
 *
 * An open adapter is immutable; any thread may read it. Its files are read into memory, ADAPTER_MAX_BYTES of each at
 * most, and not mapped: they may be replaced or cut short while it is open. Callers: engine/model, engine/core,
 * cmd/model.
 */
#ifndef ENGINE_ADAPTER_H
#define ENGINE_ADAPTER_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/source/arch.h"
#include "engine/source/model_file.h"

/* The matrices that may have an adapter. */
enum adapter_target {
	ADAPTER_Q,
	ADAPTER_K,
	ADAPTER_V,
	ADAPTER_O,
	ADAPTER_GATE,
	ADAPTER_UP,
	ADAPTER_DOWN,
	/* Of a mixture: of the expert that computes every row, and of each of those that the router chooses. */
	ADAPTER_SHARED_GATE,
	ADAPTER_SHARED_UP,
	ADAPTER_SHARED_DOWN,
	ADAPTER_EXPERT_GATE,
	ADAPTER_EXPERT_UP,
	ADAPTER_EXPERT_DOWN,
	/* Of no layer: kept with layer 0. */
	ADAPTER_EMBED,
	ADAPTER_HEAD,
	ADAPTER_TARGETS,
	ADAPTER_DENSE_TARGETS = ADAPTER_SHARED_GATE, /* those of a dense layer come first */
};

/* Where an adapter's matrix belongs. */
struct adapter_place {
	enum adapter_target target;
	int layer;  /* 0 for EMBED, HEAD */
	int expert; /* of EXPERT_…; ADAPTER_ALL: the tensor is of all of them, one after the other. Else 0 */
};

enum { ADAPTER_MAX_RANK = 256, ADAPTER_ALL = -1 };
#define ADAPTER_MAX_BYTES ((uint64_t)32 << 30)

/* Half of an adapter's matrix, in its file's bytes: rows contiguous along `width`. */
struct adapter_half {
	const void *data; /* NULL: not there */
	int type;         /* enum kn_type */
	uint64_t width, n_rows;
	bool turned; /* the file has [width][n_rows], of a type without blocks: halves of EMBED */
};

/* What is added to one matrix of the base. */
struct adapter_matrix {
	int rank; /* 0: nothing */
	int n_in, n_out;
	float scale;
	struct adapter_half a, b;
	/* Not 0: rows of b lie otherwise in heads of this dimension than the base's do, whose rotary pairs are
	 * neighbours (or, with `apart`, halves of the head). */
	int head_dim;
	bool apart;
};

struct adapter;

/* base, arch: what it must fit; both NULL: the file is only checked in itself. SL_EINVAL, SL_EUNSUPPORTED: one line
 * that names the file and the key or tensor. Nothing of base is kept. */
int adapter_open(const char *path, const struct model_file *base, const struct model_arch *arch, struct adapter **out,
		 struct sl_err *err);
/* The same for the model at `base`, whose tokens must also be those that the adapter was trained with; NULL: without a
 * base. */
int adapter_open_with(const char *path, const char *base, struct adapter **out, struct sl_err *err);
void adapter_close(struct adapter *a); /* NULL: nothing */

const char *adapter_path(const struct adapter *a);
/* "PEFT", "GGUF". */
const char *adapter_form(const struct adapter *a);
/* Of what it adds: equal ones add the same. Not of its base. */
uint64_t adapter_digest(const struct adapter *a);
/* How it names its base, for people; "": it does not. */
const char *adapter_base_name(const struct adapter *a);
/* Of all halves, as they lie in the file. */
uint64_t adapter_bytes(const struct adapter *a);
/* Layers: all of the base's, or without one up to the last that is changed. */
int adapter_n_layers(const struct adapter *a);
/* Not of EXPERT_…, whose matrices adapter_expert has: of those it has rank 0. */
const struct adapter_matrix *adapter_at(const struct adapter *a, int layer, enum adapter_target t);
/* Experts of a target of a layer, up to the last that is changed; 0 for other targets. */
int adapter_n_experts(const struct adapter *a, int layer, enum adapter_target t);
const struct adapter_matrix *adapter_expert(const struct adapter *a, int layer, enum adapter_target t, int expert);
/* Whether any of the target's matrices is changed. */
bool adapter_has(const struct adapter *a, enum adapter_target t);

/* Row `row` of A, n_in floats; what row `row` of the base's matrix has in B, rank floats. Not scaled. */
void adapter_a_row(const struct adapter_matrix *m, int row, float *out);
void adapter_b_row(const struct adapter_matrix *m, int row, float *out);

/* ---- what is saved beside it (adapter_text.c) ---- */

/* Whether a PEFT folder has a tokenizer's files. */
bool adapter_has_tokens(const struct adapter *a);
/* SL_EUNSUPPORTED names a token that was added for the adapter, which the base's tokenizer does not have; SL_EINVAL: a
 * file of the tokenizer is malformed. */
int adapter_check_tokens(const struct adapter *a, const struct tokenizer *base, struct sl_err *err);
/* Its chat template, if it is another than its base's (n 0: the base has none); the caller frees *out, which is NULL
 * where it has none of its own. SL_EINVAL, SL_ELIMIT: a malformed one. */
int adapter_own_template(const struct adapter *a, struct proto_str base, char **out, size_t *n, struct sl_err *err);

/* ---- targets (adapter_target.c) ---- */

/* "q", "gate", "expert_up", …, as the command line and listings name them; the base's tensor in its layer
 * ("attn_q.weight"), of all experts, or of no layer. */
const char *adapter_target_name(enum adapter_target t);
const char *adapter_target_tensor(enum adapter_target t);
static inline bool adapter_is_of_experts(enum adapter_target t)
{
	return t >= ADAPTER_EXPERT_GATE && t <= ADAPTER_EXPERT_DOWN;
}
static inline bool adapter_is_of_a_layer(enum adapter_target t) { return t < ADAPTER_EMBED; }
/* "blk.3.attn_q.weight", "blk.3.ffn_up.7.weight" (an expert's), "output.weight" to its place; false: none. */
bool adapter_target_find(const char *tensor, struct adapter_place *out);
/* The base's tensor; experts' is that of all of them (ADAPTER_ALL), or of one. */
const char *adapter_target_full(const struct adapter_place *p, char out[64]);
/* The tensor that the base has for it: with `joined` it is of all experts. NULL: none. */
const struct model_tensor *adapter_target_base(const struct model_file *base, const struct adapter_place *p,
					       bool *joined);
/* The shape of the target's matrix in a base of this family, of one expert. */
void adapter_target_shape(const struct model_arch *arch, enum adapter_target t, int *n_out, int *n_in);
/* Whether rows of the target lie in GGUF files as rotary pairs, and in Hugging Face folders as halves of each head. */
bool adapter_turns_rows(const struct model_arch *arch, enum adapter_target t);

#endif
