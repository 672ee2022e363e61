/* SPDX-License-Identifier: Apache-2.0
 *
 * A GGUF model in several files, as llama.cpp's gguf-split writes them: NAME-00001-of-00004.gguf and so on, each with
 * its own tensors; the first has the model's keys. Keys of every file: its number (split.no, from 0), the number of
 * files (split.count) and of all their tensors (split.tensors.count).
 */
#ifndef ENGINE_GGUF_SPLIT_H
#define ENGINE_GGUF_SPLIT_H

#include "engine/file/gguf.h"

enum { GGUF_MAX_PARTS = 1024 };

/* Opens the file at path and, if the model is split, all its other files, in order; path may be any of them. A missing
 * file, or one of another model, is an error that names it. The caller calls gguf_close_parts. */
int gguf_open_parts(const char *path, struct gguf ***out, size_t *n, struct sl_err *err);
void gguf_close_parts(struct gguf **parts, size_t n);

#endif
