/* SPDX-License-Identifier: Apache-2.0
 *
 * The room reads and writes files of weights: GGUF (here and gguf_write.h), safetensors, mapped files. This header:
 * GGUF, versions 2 and 3, little endian, read by mmap. Every count, length, dimension and offset is checked against the
 * file's size before it is used and before anything is allocated for it; a malformed file costs at most a few MiB and a
 * clear error. An open file is immutable: any thread may read it. Callers: engine/source, engine/token, cmd/model.
 * Source: the GGUF specification in the ggml repository (docs/gguf.md).
 */
#ifndef ENGINE_GGUF_H
#define ENGINE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/proto/proto.h"

struct gguf;

enum gguf_value {
	GGUF_U8,
	GGUF_I8,
	GGUF_U16,
	GGUF_I16,
	GGUF_U32,
	GGUF_I32,
	GGUF_F32,
	GGUF_BOOL,
	GGUF_STRING,
	GGUF_ARRAY,
	GGUF_U64,
	GGUF_I64,
	GGUF_F64,
};

struct gguf_array {
	enum gguf_value type; /* of the elements; never GGUF_ARRAY */
	uint64_t n;
	const uint8_t *at; /* in the mapping; strings are walked with gguf_next_string */
	const uint8_t *end;
};

enum { GGUF_MAX_DIMS = 4 };

struct gguf_tensor {
	const char *name; /* terminated, owned by the gguf */
	int type;         /* as numbered in the file; enum kn_type where known */
	int n_dims;
	uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] is the contiguous one; missing ones are 1 */
	const void *data;             /* in the mapping */
	uint64_t bytes;
};

/* The mapping lives until gguf_close; everything below borrows from it. The message of a failure
 * names the file and the offending key, tensor or offset. */
int gguf_open(const char *path, struct gguf **out, struct sl_err *err);
/* As gguf_open, but its bytes, at most `most`, are read into memory: later changes of the file have no effect. */
int gguf_read(const char *path, uint64_t most, struct gguf **out, struct sl_err *err);
void gguf_close(struct gguf *g);
const char *gguf_path(const struct gguf *g);
uint64_t gguf_file_bytes(const struct gguf *g);
uint32_t gguf_version(const struct gguf *g);

/* SL_ENOTFOUND when the key is absent; SL_EINVAL (with a message) when it has another type.
 * Integers convert between widths and signs when the value fits. */
int gguf_get_str(const struct gguf *g, const char *key, struct proto_str *out, struct sl_err *err);
int gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct sl_err *err);
int gguf_get_f32(const struct gguf *g, const char *key, float *out, struct sl_err *err);
int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct sl_err *err);
int gguf_get_array(const struct gguf *g, const char *key, struct gguf_array *out, struct sl_err *err);
/* The next string of a string array; false at its end. Bounds were checked by gguf_open. */
bool gguf_next_string(struct gguf_array *a, struct proto_str *out);
int64_t gguf_array_int(const struct gguf_array *a, uint64_t i); /* integer and bool arrays */
float gguf_array_f32(const struct gguf_array *a, uint64_t i);   /* float arrays */

size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
size_t gguf_n_keys(const struct gguf *g);
/* For `sluice model inspect`: the key's name (not terminated, in the mapping) and a short printed
 * value of one line, terminated. value_bytes is at least 1. */
struct proto_str gguf_key_at(const struct gguf *g, size_t i, char *value, size_t value_bytes);
/* The key as the file has it, for copying it to another: its name, type, and the bytes of its value. */
struct proto_str gguf_raw_key(const struct gguf *g, size_t i, enum gguf_value *type, struct proto_str *value);

#endif
