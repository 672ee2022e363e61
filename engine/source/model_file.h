/* SPDX-License-Identifier: Apache-2.0
 *
 * The room's front header. It owns models on disk, in any format: one GGUF file, a GGUF split in several files (any
 * part's path names it), a Hugging Face folder (config.json, tokenizer.json, safetensors), or a random model that the
 * path describes (random_source.h). In every format tensors have GGUF's names ("blk.3.attn_q.weight"). Everything is
 * checked: a tensor's bytes are inside a mapping that lives until model_file_close. An open file belongs to one thread
 * at a time. Callers: engine/model, cmd/model. / /
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

struct hf_made;

struct model_tensor {
	const char *name; /* GGUF's; terminated; owned by the file */
	int type;         /* enum kn_type where known */
	int n_dims;
	uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] is contiguous; missing dimensions are 1 */
	const void *data;             /* NULL: generated from noise, or not converted yet (model_file_bring) */
	struct kn_noise noise;
	const struct hf_made *made; /* its source; NULL: the file has it in this format */
	uint64_t bytes;
};

/* Opens path: a file, a folder or a description. The message names the file and the offending key or tensor. */
int model_file_open(const char *path, struct model_file **out, struct sl_err *err);
/* The same with a GGUF file of the layer that drafts for it ("blk.N.nextn.eh_proj.weight" and its like), the layer
 * after the model's last: only tensors of such layers are taken. NULL: without. SL_EINVAL names what does not fit. */
int model_file_open_with(const char *path, const char *head, struct model_file **out, struct sl_err *err);
void model_file_close(struct model_file *f);

const char *model_file_path(const struct model_file *f);
uint64_t model_file_bytes(const struct model_file *f);   /* of all parts */
const char *model_file_name(const struct model_file *f); /* "" if it has none */
/* A short description: "GGUF v3", "GGUF v3 in 4 parts", "safetensors in 2 parts", "made at random". */
const char *model_file_form(const struct model_file *f);
/* What of the file's quantization is ignored, in one line; "": nothing. */
const char *model_file_note(const struct model_file *f);

/* The family's description; SL_EUNSUPPORTED names a family that this version cannot run. */
int model_file_arch(const struct model_file *f, struct model_arch *out, struct sl_err *err);

size_t model_file_n_tensors(const struct model_file *f);
const struct model_tensor *model_file_tensor_at(const struct model_file *f, size_t i);
const struct model_tensor *model_file_find(const struct model_file *f, const char *name);
/* Call before reading the data of t, a tensor of f: converts them if the file has another format. They live until
 * model_file_let_go or model_file_close. Idempotent. SL_ENOMEM; SL_EINVAL: malformed data. */
int model_file_bring(struct model_file *f, const struct model_tensor *t, struct sl_err *err);
/* The bytes of t will not be read again, because a backend has its own copy: mapped pages are dropped, converted data
 * are freed. */
void model_file_let_go(struct model_file *f, const struct model_tensor *t);

/* Whether no file has its matrices. */
bool model_file_is_random(const struct model_file *f);

/* Converts every matrix of F32, F16 or BF16 to that type, in memory, if the type's blocks fit its rows. Several threads
 * (0: all); needs a few MiB besides the result. */
struct convert_progress;
int model_file_quantize(struct model_file *f, int type, int n_threads, struct convert_progress *p, struct sl_err *err);

int model_file_tokenizer(const struct model_file *f, struct tokenizer **out, struct sl_err *err);
/* The chat template's text, borrowed; SL_ENOTFOUND: there is none. */
int model_file_template(const struct model_file *f, struct proto_str *out, struct sl_err *err);
/* A digest of the tokenizer and chat template: equal for files that tokenize alike. 0: unknown (a folder). */
uint64_t model_file_text(const struct model_file *f);
/* Its GGUF file, for listing keys; NULL for a Hugging Face folder. For a random model, the GGUF with everything except
 * the matrices. */
const struct gguf *model_file_gguf(const struct model_file *f);
/* Its files, GGUF parts in order, then the one of a head; 0 for a Hugging Face folder or a random model without one. */
size_t model_file_n_parts(const struct model_file *f);
const struct gguf *model_file_part(const struct model_file *f, size_t i);
/* Its folder; NULL for GGUF. */
struct hf_folder;
const struct hf_folder *model_file_folder(const struct model_file *f);

#endif
