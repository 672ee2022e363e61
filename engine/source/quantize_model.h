/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts a model on disk, in any format, to one GGUF file with other weight types. Vectors (norms, biases) become or
 * stay F32; matrices get the plan's type, even if they are already quantized.
 */
#ifndef ENGINE_QUANTIZE_MODEL_H
#define ENGINE_QUANTIZE_MODEL_H

#include "engine/source/convert.h"
#include "engine/source/hf_folder.h"
#include "engine/source/weight_plan.h"

/* SL_EINVAL: out is one of in's files, or it exists and replace is false. n_threads 0: all. */
int quantize_model(const char *in, const char *out, bool replace, const struct weight_plan *plan, int n_threads,
		   struct convert_progress *p, struct sl_err *err);

/* Writes a folder's tokenizer as GGUF keys, for n_vocab rows of weights (engine/source/hf_tokenizer.c).
 * SL_EUNSUPPORTED: GGUF cannot express it. */
int hf_write_tokenizer(const struct hf_folder *f, int n_vocab, struct gguf_writer *w, struct sl_err *err);

#endif
