/* SPDX-License-Identifier: Apache-2.0
 *
 * The text side of a Hugging Face folder as GGUF's keys, in two files: hf_tokenizer.c writes tokenizer.json, hf_spm.c a
 * SentencePiece model, which GGUF was made for.
 */
#ifndef ENGINE_HF_SPM_H
#define ENGINE_HF_SPM_H

#include "engine/file/gguf_write.h"
#include "engine/source/hf_folder.h"

/* For n_vocab rows of weights. SL_EUNSUPPORTED names what GGUF has no key for. */
int hf_write_spm(const struct hf_folder *f, int n_vocab, struct gguf_writer *w, struct sl_err *err);
/* Tokens of the model and beside it; 0: it cannot be read. */
int hf_count_spm(const struct hf_folder *f);
/* The ids that end an answer; returns how many the folder has. */
size_t hf_put_ends(const struct hf_folder *f, struct gguf_writer *w);
void hf_put_template(const struct hf_folder *f, struct gguf_writer *w);

#endif
