/* SPDX-License-Identifier: Apache-2.0
 *
 * A GGUF model cut into several files, as llama.cpp's gguf-split writes them: NAME-00001-of-00004.gguf
 * and on, each with its own tensors; the model's keys stand in the first. Every part says which it is
 * (split.no, from 0), how many there are (split.count) and how many tensors all have together
 * (split.tensors.count).
 */
#ifndef ENGINE_GGUF_SPLIT_H
#define ENGINE_GGUF_SPLIT_H

#include "engine/file/gguf.h"

enum { GGUF_MAX_PARTS = 1024 };

/* Opens the file at path and, where it is a part of a split one, all others, in order: any part names
 * them all. A part that is missing or is another model's is a message with its name. The caller owes
 * gguf_close_parts. */
int gguf_open_parts(const char *path, struct gguf ***out, size_t *n, struct sl_err *err);
void gguf_close_parts(struct gguf **parts, size_t n);

#endif
