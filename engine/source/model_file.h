/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface of this room, which owns models on disk, in any form: one GGUF file, a GGUF split in several files (any
 * part's path names it), a Hugging Face folder (config.json, tokenizer.json, safetensors), or a model that a path only
 * describes (random_source.h). In every form tensors have GGUF's names ("blk.3.attn_q.weight"), and everything is
 * checked: a tensor's bytes are in a mapping that lives until model_file_close. An open file belongs to one thread at a
 * time. Callers: engine/model, cmd/model.
 */
#ifndef ENGINE_MODEL_FILE_H
#define ENGINE_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/source/arch.h"
#include "engine/file/gguf.h"
#include "engine/token/tokenizer.h"
#include "kernels/kernels.h"

struct model_file;

struct hf_int4_matrix;

struct model_tensor {
	const char *name; /* GGUF's; terminated; owned by the file */
	int type;         /* enum kn_type where known */
	int n_dims;
	uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] is the contiguous one; missing ones are 1 */
	const void *data;             /* NULL: generated from noise, or not converted yet (model_file_bring) */
	struct kn_noise noise;
	const struct hf_int4_matrix *packed; /* its source; NULL: the file has it in this form */
	uint64_t bytes;
};

/* Opens path, a file or a folder, or what it describes. The message names the file and the offending key or tensor. */
int model_file_open(const char *path, struct model_file **out, struct sl_err *err);
void model_file_close(struct model_file *f);

const char *model_file_path(const struct model_file *f);
uint64_t model_file_bytes(const struct model_file *f);   /* of all parts */
const char *model_file_name(const struct model_file *f); /* "" when it has none */
/* A short description: "GGUF v3", "GGUF v3 in 4 parts", "safetensors in 2 parts", "made at random". */
const char *model_file_form(const struct model_file *f);

/* The family's description; SL_EUNSUPPORTED for one that this version can't run, with its name. */
int model_file_arch(const struct model_file *f, struct model_arch *out, struct sl_err *err);

size_t model_file_n_tensors(const struct model_file *f);
const struct model_tensor *model_file_tensor_at(const struct model_file *f, size_t i);
const struct model_tensor *model_file_find(const struct model_file *f, const char *name);
/* To be called before the data of t, a tensor of f, are read: converts them if the file has another form; they live
 * until model_file_let_go or model_file_close. Idempotent. SL_ENOMEM; SL_EINVAL: malformed data. */
int model_file_bring(struct model_file *f, const struct model_tensor *t, struct sl_err *err);
/* The bytes of t will not be read again, because a backend has its own copy: mapped pages leave memory, converted data
 * are freed. */
void model_file_let_go(struct model_file *f, const struct model_tensor *t);

/* Whether its matrices are in no file. */
bool model_file_is_random(const struct model_file *f);

/* Replaces every matrix of F32, F16 or BF16 by one of that type, in memory, where the type's blocks
 * fit its rows. Several threads (0: all); a piece of a few MiB at a time beside what is kept. */
struct convert_progress;
int model_file_quantize(struct model_file *f, int type, int n_threads, struct convert_progress *p, struct sl_err *err);

int model_file_tokenizer(const struct model_file *f, struct tokenizer **out, struct sl_err *err);
/* The chat template's text, borrowed; SL_ENOTFOUND when there is none. */
int model_file_template(const struct model_file *f, struct proto_str *out, struct sl_err *err);
/* A digest of the tokenizer and chat template: equal for files that tokenize alike. 0: unknown (a folder). */
uint64_t model_file_text(const struct model_file *f);
/* The GGUF behind it, for listing its keys; NULL for a Hugging Face folder. For a model without a file, the GGUF with
 * everything but the matrices. */
const struct gguf *model_file_gguf(const struct model_file *f);
/* The files behind it, GGUF's parts in order; 0 of them for a Hugging Face folder or where there is none. */
size_t model_file_n_parts(const struct model_file *f);
const struct gguf *model_file_part(const struct model_file *f, size_t i);
/* The folder behind it; NULL for GGUF. */
struct hf_folder;
const struct hf_folder *model_file_folder(const struct model_file *f);

#endif
