/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts a model on disk, in any format, to one GGUF file with other weight types. Vectors (norms, biases) become or
 * stay F32; matrices get the plan's type. But those that have four bits or fewer already keep what they are, since a
 * second rounding would add its error to the first and save little: GGUF's types below five bits, a folder's GPTQ, AWQ
 * and pack-quantized matrices and MXFP4 with their integers, NVFP4 as Q6_K (engine/packed). What such a matrix would
 * lose is measured.
 */
#ifndef ENGINE_QUANTIZE_MODEL_H
#define ENGINE_QUANTIZE_MODEL_H

#include "engine/source/convert.h"
#include "engine/source/hf_folder.h"
#include "engine/source/weight_plan.h"

/* Added to rows of matrices before they are converted: an adapter that is merged. */
struct quantize_change {
	bool (*touches)(void *ctx, const struct model_tensor *t);
	/* Before the rows of a matrix that it touches. */
	int (*begin)(void *ctx, const struct model_tensor *t, struct sl_err *err);
	/* To row `row` of it, counted as the input has them. Several threads call it at once. */
	void (*add)(void *ctx, uint64_t row, float *x);
	void *ctx;
	/* Where the head is the table of embeddings, the output has it a second time, as output.weight: they change
	 * apart. */
	bool unties;
};

/* What is known of matrices' inputs. */
struct quantize_inputs {
	/* Of a matrix that becomes of a type; NULL: nothing. Borrowed until the next call. */
	int (*find)(void *ctx, const struct model_tensor *t, int type, const struct kn_inputs **out,
		    struct sl_err *err);
	void *ctx;
};

struct quantize_how {
	struct weight_plan plan;
	bool replace;                         /* an existing file */
	bool requantize;                      /* also what has four bits already */
	int n_threads;                        /* 0: all */
	const struct quantize_inputs *inputs; /* NULL: values are rounded one by one */
	const struct quantize_change *change; /* NULL: none. What it touches gets the plan's type */
};

/* Matrices that kept their four bits. */
struct quantize_kept {
	size_t n;
	char types[96]; /* "MXFP4 ×84, Q4_0 ×2" */
	double loss;    /* of the plan's types: root mean square of their error over that of the weights, of a sample of
			 * rows */
};

/* SL_EINVAL: out is one of in's files, or it exists and is not to be replaced. kept, p: may be NULL. */
int quantize_model(const char *in, const char *out, const struct quantize_how *how, struct quantize_kept *kept,
		   struct convert_progress *p, struct sl_err *err);

/* Writes a folder's tokenizer as GGUF keys, for n_vocab rows of weights (engine/source/hf_tokenizer.c).
 * SL_EUNSUPPORTED: GGUF cannot express it. */
int hf_write_tokenizer(const struct hf_folder *f, int n_vocab, struct gguf_writer *w, struct sl_err *err);

#endif
