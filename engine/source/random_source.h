/* SPDX-License-Identifier: Apache-2.0
 *
 * A model without a file, for measurements. The path "random:SHAPE:TYPE" or "random:SHAPE:TYPE:SEED" means the model
 * that `sluice model random` would write, but the backend makes its matrices in its own memory (kn_ops.weight_random):
 * eight billion weights take a second. TYPE is one of that command's, or int4: then layers' matrices are int4,
 * embeddings and output BF16, as in int4 checkpoints. The rest (vectors, vocabulary, description) is a GGUF file in
 * memory.
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
/* SL_EINVAL: no such shape, type or seed; the message lists them. */
int random_source_open(const char *path, struct random_source **out, struct sl_err *err);
void random_source_close(struct random_source *s);

#endif
