/* SPDX-License-Identifier: Apache-2.0
 *
 * An open GGUF file: filled by gguf.c, whose checks ensure that every pointer here is inside the mapping; read by
 * gguf_values.c.
 */
#ifndef ENGINE_GGUF_PRIV_H
#define ENGINE_GGUF_PRIV_H

#include "engine/file/gguf.h"
#include "engine/file/map_file.h"

struct gguf_key {
	struct proto_str name;
	enum gguf_value type;
	const uint8_t *at; /* of the value */
	struct gguf_array array;
};

struct gguf {
	char *path;
	struct map_file file;
	uint32_t version;
	struct gguf_key *keys;
	size_t n_keys;
	struct gguf_tensor *tensors;
	size_t n_tensors;
	uint32_t *keys_by_name;
	char *names; /* terminated names of tensors */
};

static inline uint64_t gguf_load_le(const uint8_t *p, int n)
{
	uint64_t v = 0;
	for (int i = 0; i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

/* Bytes of a scalar; 0 for strings, arrays and unknown types. */
static inline int gguf_scalar_bytes(uint32_t type)
{
	static const int sizes[] = {
	    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
	    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};
	return type <= GGUF_F64 ? sizes[type] : 0;
}

/* NULL when there is none. */
const struct gguf_key *gguf_find_key(const struct gguf *g, const char *name);

#endif
