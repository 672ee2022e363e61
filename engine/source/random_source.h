/* SPDX-License-Identifier: Apache-2.0
 *
 * A model without a file, for measuring: "random:SHAPE:TYPE" or "random:SHAPE:TYPE:SEED", where a path is asked for, is
 * what `sluice model random` would write, but its matrices are made by the backend, where they lie
 * (kn_ops.weight_random), so that eight billion weights are there in a second. TYPE is one of that command, or int4:
 * matrices of layers are that, embeddings and output BF16, as a checkpoint of that kind has them. Everything else
 * (vectors, vocabulary, description) is a GGUF file in memory.
 */
#ifndef ENGINE_RANDOM_SOURCE_H
#define ENGINE_RANDOM_SOURCE_H

#include <stdbool.h>

#include "engine/file/gguf.h"
#include "engine/source/random_model.h"

struct random_source {
	struct gguf *head; /* all but the matrices */
	struct random_matrix *matrices;
	size_t n;
	bool lacks_memory; /* private */
};

bool random_source_names(const char *path);
/* SL_EINVAL: no such shape, type or seed; the line says which there are. */
int random_source_open(const char *path, struct random_source **out, struct sl_err *err);
void random_source_close(struct random_source *s);

#endif
