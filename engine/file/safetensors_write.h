/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a safetensors file: descriptions of all tensors, then their bytes in that order. The file appears under its
 * name complete or not at all. Faults are sticky: after the first, every call does nothing and st_writer_finish reports
 * it.
 */
#ifndef ENGINE_SAFETENSORS_WRITE_H
#define ENGINE_SAFETENSORS_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct st_writer;

/* replace: a regular file of that name may be there (base/out_file.h). */
int st_writer_create(const char *path, bool replace, struct st_writer **out, struct sl_err *err);
/* A matrix [n_rows][width] of KN_F32, KN_F16 or KN_BF16. The name needs no escapes. */
void st_add_matrix(struct st_writer *w, const char *name, int type, uint64_t n_rows, uint64_t width);
/* After all descriptions: the next n bytes of their data. */
void st_write_data(struct st_writer *w, const void *p, size_t n);
/* Gives the file its name, or removes it after a fault or when bytes are missing. Frees w. */
int st_writer_finish(struct st_writer *w, struct sl_err *err);
void st_writer_abort(struct st_writer *w); /* NULL: nothing */

#endif
