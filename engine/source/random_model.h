/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files with random weights in the shapes of real models, for tests and benchmarks: the same arithmetic on noise.
 * The same seed makes the same file for any number of threads.
 */
#ifndef ENGINE_RANDOM_MODEL_H
#define ENGINE_RANDOM_MODEL_H

#include "engine/source/arch.h"
#include "engine/source/convert.h"
#include "engine/source/weight_plan.h"
#include "kernels/kernels.h"

/* Shape i from 0, its name and description; NULL past the last. */
const char *random_shape_at(size_t i, struct model_arch *out);
/* SL_EINVAL lists the names. */
int random_shape_find(const char *name, struct model_arch *out, struct sl_err *err);

struct random_model {
	const char *path;
	const char *name; /* general.name */
	struct model_arch arch;
	struct weight_plan plan;
	const char *tokenizer; /* a GGUF file whose tokenizer and vocabulary size are used; or NULL */
	uint64_t seed;
	int n_threads;
	bool keep; /* an existing file of that name is not replaced */
};
int random_model_write(const struct random_model *m, struct convert_progress *p, struct sl_err *err);

/* A matrix that has not been written. */
struct random_matrix {
	char name[64];
	int type;
	uint64_t n_in, n_out, n; /* n of them, in one tensor */
	struct kn_noise noise;   /* the same numbers as random_model_write writes */
};
/* Writes everything except the matrices to fd, which is empty, open for writing, and stays open. Calls matrix for each
 * of them instead, in the file's order. m->path is for messages; m->tokenizer is NULL. */
int random_model_head(const struct random_model *m, int fd, void (*matrix)(void *ctx, const struct random_matrix *x),
		      void *ctx, struct sl_err *err);

/* Writes tokenizer keys for a vocabulary of n tokens, at least RANDOM_LEAST_VOCAB: every byte, words of an invented
 * language merged letter by letter, and control tokens for chats (engine/source/random_vocab.c). */
enum { RANDOM_LEAST_VOCAB = 300, RANDOM_MOST_VOCAB = 400000 };
/* words: BERT's tokenizer, with ASCII characters and invented words. */
void random_vocab_write(struct gguf_writer *w, int n, bool words);

#endif
