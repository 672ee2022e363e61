/* SPDX-License-Identifier: Apache-2.0
 *
 * A model on disk, of any form, to one GGUF file with other weight types. Vectors (norms, biases)
 * become or stay F32; matrices get the plan's type, also from an already quantized one.
 */
#ifndef ENGINE_QUANTIZE_MODEL_H
#define ENGINE_QUANTIZE_MODEL_H

#include "engine/source/convert.h"
#include "engine/source/hf_folder.h"
#include "engine/source/weight_plan.h"

/* SL_EINVAL where out is one of the files of in, or is there already and not to be replaced. n_threads 0: all. */
int quantize_model(const char *in, const char *out, bool replace, const struct weight_plan *plan, int n_threads,
		   struct convert_progress *p, struct sl_err *err);

/* The tokenizer of a folder as GGUF's keys, for n_vocab rows of weights (engine/source/hf_tokenizer.c).
 * SL_EUNSUPPORTED for one that GGUF has no words for. */
int hf_write_tokenizer(const struct hf_folder *f, int n_vocab, struct gguf_writer *w, struct sl_err *err);

#endif
