/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a GGUF file (version 3) in one pass: keys, then descriptions of tensors, then their bytes in that order. The
 * bytes stream to the disk; memory holds the head only. The file appears under its name complete or not at all.
 *
 * Faults are sticky: after the first, every call does nothing and gguf_writer_finish reports it.
 */
#ifndef ENGINE_GGUF_WRITE_H
#define ENGINE_GGUF_WRITE_H

#include "engine/file/gguf.h"

struct gguf_writer;

/* replace: a regular file of that name may be there (base/out_file.h). */
int gguf_writer_create(const char *path, bool replace, struct gguf_writer **out, struct sl_err *err);
/* To the caller's empty file, open for writing, which stays open; after a fault it is incomplete. name is for
 * messages. */
int gguf_writer_create_fd(int fd, const char *name, struct gguf_writer **out, struct sl_err *err);

void gguf_put_str(struct gguf_writer *w, const char *key, const char *s, size_t n);
void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_put_f32(struct gguf_writer *w, const char *key, float v);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool v);
/* Followed by exactly n of gguf_item_str, or by gguf_item_bytes of n elements in all. */
void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_value type, uint64_t n);
void gguf_item_str(struct gguf_writer *w, const char *s, size_t n);
void gguf_item_bytes(struct gguf_writer *w, const void *p, size_t n);
/* A key of another file, unchanged (gguf_raw_key). */
void gguf_put_raw(struct gguf_writer *w, struct proto_str key, enum gguf_value type, struct proto_str value);

/* After all keys. dims[0] is the contiguous one and a multiple of the type's block. */
void gguf_add_tensor(struct gguf_writer *w, const char *name, int type, int n_dims, const uint64_t *dims);
/* After all tensors: the next n bytes of their data, in any pieces that don't span two tensors. */
void gguf_write_data(struct gguf_writer *w, const void *p, size_t n);
/* 0 while nothing failed. */
int gguf_writer_status(const struct gguf_writer *w);

/* Gives the file its name, or removes it after a fault or when tensors lack bytes. Frees w. */
int gguf_writer_finish(struct gguf_writer *w, struct sl_err *err);
void gguf_writer_abort(struct gguf_writer *w);

#endif
