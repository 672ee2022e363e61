/* SPDX-License-Identifier: Apache-2.0
 *
 * A model in a Hugging Face folder: config.json describes it, model.safetensors (or the parts that
 * model.safetensors.index.json lists) has the tensors, tokenizer.json and its companions the text side. Tensors get
 * GGUF's names.
 */
#ifndef ENGINE_HF_FOLDER_H
#define ENGINE_HF_FOLDER_H

#include <jansson.h>

#include "engine/file/map_file.h"
#include "engine/source/model_file.h"

struct hf_folder;

/* Reads config.json and the heads of all weights. Results are borrowed until hf_close. */
int hf_open(const char *path, struct hf_folder **out, struct sl_err *err);
void hf_close(struct hf_folder *f);

const char *hf_path(const struct hf_folder *f);
/* Maps the file of that name in the folder; close with map_file_close. */
int hf_map(const struct hf_folder *f, const char *name, struct map_file *out, struct sl_err *err);
uint64_t hf_bytes(const struct hf_folder *f);
size_t hf_n_parts(const struct hf_folder *f);
/* config.json's own model_type, and the object that describes the text model: the root or its text_config. */
const char *hf_model_type(const struct hf_folder *f);
const json_t *hf_config(const struct hf_folder *f);
const json_t *hf_root(const struct hf_folder *f); /* all of config.json */
/* What of the folder's quantization is ignored, in one line; "": nothing. */
const char *hf_note(const struct hf_folder *f);

/* How its rows are pooled, from modules.json and 1_Pooling/config.json of the sentence-transformers library: an enum
 * arch_pooling, ARCH_POOL_NONE without such files. SL_EUNSUPPORTED: an unsupported way. */
int hf_pooling(const struct hf_folder *f, enum arch_pooling *out, struct sl_err *err);
/* Tokens of the tokenizer, including added ones; 0: unknown (hf_tokenizer.c). */
int hf_count_tokens(const struct hf_folder *f);

/* The text model's tensors, under GGUF's names (in storage of f), in the files' order. Vectors of F16 or BF16 become
 * F32; embeddings and output have at most as many rows as the tokenizer has tokens (many models are published with
 * additional, untrained rows). Quantized matrices have no data yet, only their sources (hf_matrix.h). The caller frees
 * the array (sl_free). */
int hf_tensors(struct hf_folder *f, struct model_tensor **out, size_t *n, struct sl_err *err);

/* Tokens that end an answer, from generation_config.json and config.json. */
const int32_t *hf_end_ids(const struct hf_folder *f, size_t *n);
/* From tokenizer.json or, without it, from SentencePiece's tokenizer.model and the files beside it. */
bool hf_has_spm(const struct hf_folder *f);
int hf_tokenizer(const struct hf_folder *f, struct tokenizer **out, struct sl_err *err);
/* The chat template of a folder that need not be a model's: the caller frees *out (sl_free); NULL: there is none. */
int hf_read_template(const char *folder, char **out, size_t *n, struct sl_err *err);
/* SL_ENOTFOUND: there is none. */
int hf_template(const struct hf_folder *f, struct proto_str *out, struct sl_err *err);

#endif
