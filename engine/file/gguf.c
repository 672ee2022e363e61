/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader walks the head once, with a cursor that never passes the end of the file, and stores the offset of each
 * key and tensor. A count must fit into the rest of the file (every key takes at least MIN_KEY_BYTES, every tensor
 * MIN_TENSOR_BYTES) before anything is allocated for it. Keys and tensors are found through sorted indexes, which also
 * show duplicates.
 */
#include "engine/file/gguf_priv.h"

#include <limits.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "engine/file/name_index.h"
#include "kernels/kernels.h"

enum {
	MAX_KEYS = 1 << 16,
	MAX_TENSORS = 1 << 16,
	MAX_NAME = 256,
	MAX_KEY_NAME = 65535,
	MIN_KEY_BYTES = 8 + 1 + 4 + 1,
	MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
	DEFAULT_ALIGNMENT = 32,
};

/* ---- the cursor ---- */

struct cursor {
	const uint8_t *p, *end;
	bool bad;
};

static const uint8_t *take(struct cursor *c, uint64_t n)
{
	if (c->bad || n > (uint64_t)(c->end - c->p)) {
		c->bad = true;
		return NULL;
	}
	const uint8_t *at = c->p;
	c->p += n;
	return at;
}

static uint32_t take_u32(struct cursor *c)
{
	const uint8_t *p = take(c, 4);
	return p ? (uint32_t)gguf_load_le(p, 4) : 0;
}

static uint64_t take_u64(struct cursor *c)
{
	const uint8_t *p = take(c, 8);
	return p ? gguf_load_le(p, 8) : 0;
}

static struct proto_str take_str(struct cursor *c)
{
	uint64_t n = take_u64(c);
	const uint8_t *p = take(c, n);
	return (struct proto_str){.at = p ? (const char *)p : "", .n = p ? (size_t)n : 0};
}

/* ---- reading the head ---- */

/* Names go into messages of one line, so they hold no control characters. */
static bool proper_name(struct proto_str s, size_t max)
{
	return s.n > 0 && s.n <= max && !text_has_control(s.at, s.n);
}

static int fail(const struct gguf *g, struct sl_err *err, const char *what, struct proto_str name)
{
	return sl_errf(err, SL_EINVAL, "%s: %s%s%.*s%s", g->path, what, name.n ? " \"" : "",
		       (int)(name.n > 80 ? 80 : name.n), name.n ? name.at : "", name.n ? "\"" : "");
}

static int read_value(struct gguf *g, struct cursor *c, struct gguf_key *k, struct sl_err *err)
{
	k->at = c->p;
	if (k->type == GGUF_STRING) {
		take_str(c);
	} else if (k->type == GGUF_ARRAY) {
		uint32_t type = take_u32(c);
		uint64_t n = take_u64(c), bytes;
		k->array = (struct gguf_array){.type = (enum gguf_value)type, .n = n, .at = c->p};
		if (type == GGUF_STRING) {
			/* Each string takes at least its length, so n is bounded by the file. */
			if (n > (uint64_t)(c->end - c->p) / 8)
				c->bad = true;
			for (uint64_t i = 0; i < n && !c->bad; i++)
				take_str(c);
		} else if (gguf_scalar_bytes(type) == 0) {
			return fail(g, err, "array of an unsupported element type in key", k->name);
		} else if (__builtin_mul_overflow(n, (uint64_t)gguf_scalar_bytes(type), &bytes)) {
			c->bad = true;
		} else {
			take(c, bytes);
		}
		k->array.end = c->p;
	} else if (gguf_scalar_bytes(k->type) == 0) {
		return fail(g, err, "unknown value type in key", k->name);
	} else {
		take(c, (uint64_t)gguf_scalar_bytes(k->type));
	}
	return c->bad ? fail(g, err, "the file ends inside key", k->name) : 0;
}

static int read_keys(struct gguf *g, struct cursor *c, struct sl_err *err)
{
	g->keys = sl_zalloc_n(g->n_keys, sizeof *g->keys);
	if (g->keys == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory for %zu keys", g->path, g->n_keys);
	for (size_t i = 0; i < g->n_keys; i++) {
		struct gguf_key *k = &g->keys[i];
		k->name = take_str(c);
		k->type = (enum gguf_value)take_u32(c);
		if (c->bad || !proper_name(k->name, MAX_KEY_NAME))
			return sl_errf(err, SL_EINVAL, "%s: key %zu of %zu has no proper name", g->path, i + 1,
				       g->n_keys);
		int rc = read_value(g, c, k, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* The room that the terminated names of all tensors take; 0 when one is malformed. A copy of the
 * cursor runs ahead, so that a file of many short names does not cost MAX_NAME for each. */
static size_t measure_names(const struct gguf *g, struct cursor c)
{
	size_t bytes = 0;
	for (size_t i = 0; i < g->n_tensors; i++) {
		struct proto_str s = take_str(&c);
		uint32_t n_dims = take_u32(&c);
		if (c.bad || !proper_name(s, MAX_NAME) || n_dims > GGUF_MAX_DIMS)
			return 0;
		take(&c, n_dims * 8 + 4 + 8);
		bytes += s.n + 1;
	}
	return bytes;
}

/* name has room for what measure_names found, or for nothing when that found a fault. */
static int read_tensor(struct gguf *g, struct cursor *c, struct gguf_tensor *t, char **name, uint64_t *offset,
		       struct sl_err *err)
{
	struct proto_str s = take_str(c);
	if (c->bad || !proper_name(s, MAX_NAME))
		return fail(g, err, "a tensor has no proper name", (struct proto_str){0});
	if (*name != NULL) {
		memcpy(*name, s.at, s.n);
		(*name)[s.n] = '\0';
		t->name = *name;
		*name += s.n + 1;
	}
	uint32_t n_dims = take_u32(c);
	if (c->bad || n_dims == 0 || n_dims > GGUF_MAX_DIMS)
		return fail(g, err, "unsupported number of dimensions of tensor", s);
	t->n_dims = (int)n_dims;
	uint64_t elements = 1;
	for (int d = 0; d < GGUF_MAX_DIMS; d++) {
		t->dims[d] = d < t->n_dims ? take_u64(c) : 1;
		if (t->dims[d] == 0 || __builtin_mul_overflow(elements, t->dims[d], &elements) ||
		    elements > INT64_MAX / 8)
			return fail(g, err, "impossible dimensions of tensor", s);
	}
	uint32_t type = take_u32(c);
	*offset = take_u64(c);
	if (c->bad)
		return fail(g, err, "the file ends inside tensor", s);
	t->type = type <= INT_MAX ? (int)type : -1;
	/* An unknown type has no size here; the tensor's user refuses it. */
	uint64_t block = (uint64_t)kn_type_block(t->type);
	if (!kn_type_in_files(t->type)) {
		t->type = block > 0 ? -1 : t->type;
		return 0;
	}
	if (t->dims[0] % block != 0)
		return fail(g, err, "row length is no multiple of the block in tensor", s);
	if (__builtin_mul_overflow(elements / block, kn_type_block_bytes(t->type), &t->bytes))
		return fail(g, err, "impossible size of tensor", s);
	return 0;
}

static int read_tensors(struct gguf *g, struct cursor *c, struct sl_err *err)
{
	uint64_t *offsets = sl_zalloc_n(g->n_tensors, sizeof *offsets);
	g->tensors = sl_zalloc_n(g->n_tensors, sizeof *g->tensors);
	size_t name_bytes = measure_names(g, *c);
	g->names = name_bytes > 0 ? sl_zalloc(name_bytes) : NULL;
	char *name_at = g->names;
	int rc = 0;
	if (offsets == NULL || g->tensors == NULL || (name_bytes > 0 && g->names == NULL))
		rc = sl_errf(err, SL_ENOMEM, "%s: no memory for %zu tensors", g->path, g->n_tensors);
	for (size_t i = 0; i < g->n_tensors && rc == 0; i++)
		rc = read_tensor(g, c, &g->tensors[i], &name_at, &offsets[i], err);
	/* All tensors were read although measuring failed: one of the two is wrong. */
	BUG_IF(rc == 0 && g->n_tensors > 0 && g->names == NULL, "names of tensors measured otherwise than read");

	uint32_t alignment = DEFAULT_ALIGNMENT;
	if (rc == 0) {
		rc = gguf_get_u32(g, "general.alignment", &alignment, err);
		if (rc == SL_ENOTFOUND)
			rc = 0;
		else if (rc == 0 && (alignment < 8 || alignment > 65536 || (alignment & (alignment - 1)) != 0))
			rc = sl_errf(err, SL_EINVAL, "%s: general.alignment %u is not a power of two from 8 to 65536",
				     g->path, alignment);
	}
	if (rc == 0) {
		uint64_t start = (uint64_t)(c->p - g->file.at);
		start = (start + alignment - 1) / alignment * alignment;
		for (size_t i = 0; i < g->n_tensors && rc == 0; i++) {
			struct gguf_tensor *t = &g->tensors[i];
			uint64_t at, end;
			struct proto_str name = {.at = t->name, .n = strlen(t->name)};
			if (offsets[i] % alignment != 0)
				rc = fail(g, err, "misaligned offset of tensor", name);
			else if (__builtin_add_overflow(start, offsets[i], &at) ||
				 __builtin_add_overflow(at, t->bytes, &end) || end > g->file.bytes)
				rc = fail(g, err, "the file is too short for tensor", name);
			else
				t->data = g->file.at + at;
		}
	}
	sl_free(offsets);
	return rc;
}

/* ---- indexes ---- */

static struct proto_str key_name(const void *g, size_t i) { return ((const struct gguf *)g)->keys[i].name; }

static struct proto_str tensor_name(const void *g, size_t i)
{
	const char *name = ((const struct gguf *)g)->tensors[i].name;
	return (struct proto_str){.at = name, .n = strlen(name)};
}

const struct gguf_key *gguf_find_key(const struct gguf *g, const char *name)
{
	const struct proto_str want = {.at = name, .n = strlen(name)};
	size_t i = name_index_find(g->keys_by_name, g->n_keys, key_name, g, want);
	return i < g->n_keys ? &g->keys[i] : NULL;
}

/* ---- opening ---- */

static int read_head(struct gguf *g, struct sl_err *err)
{
	struct cursor c = {.p = g->file.at, .end = g->file.at + g->file.bytes};
	const uint8_t *magic = take(&c, 4);
	if (magic == NULL || memcmp(magic, "GGUF", 4) != 0)
		return sl_errf(err, SL_EINVAL, "%s: not a GGUF file", g->path);
	uint32_t version = take_u32(&c);
	uint64_t n_tensors = take_u64(&c), n_keys = take_u64(&c);
	if (c.bad)
		return sl_errf(err, SL_EINVAL, "%s: the file ends inside its head", g->path);
	if (version != 2 && version != 3)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: GGUF version %u (supported: 2 and 3, little endian)", g->path,
			       version);
	uint64_t left = (uint64_t)(c.end - c.p);
	if (n_keys > MAX_KEYS || n_keys > left / MIN_KEY_BYTES)
		return sl_errf(err, SL_EINVAL, "%s: the head declares %llu keys", g->path, (unsigned long long)n_keys);
	if (n_tensors > MAX_TENSORS || n_tensors > left / MIN_TENSOR_BYTES)
		return sl_errf(err, SL_EINVAL, "%s: the head declares %llu tensors", g->path,
			       (unsigned long long)n_tensors);
	g->version = version;
	g->n_keys = (size_t)n_keys;
	g->n_tensors = (size_t)n_tensors;

	size_t twice;
	int rc = read_keys(g, &c, err);
	if (rc != 0)
		return rc;
	if (name_index_make(key_name, g, g->n_keys, &g->keys_by_name, &twice) != 0)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", g->path);
	if (twice < g->n_keys)
		return fail(g, err, "duplicate key", g->keys[twice].name);
	rc = read_tensors(g, &c, err);
	if (rc != 0)
		return rc;
	uint32_t *index;
	if (name_index_make(tensor_name, g, g->n_tensors, &index, &twice) != 0)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", g->path);
	sl_free(index);
	if (twice < g->n_tensors)
		return fail(g, err, "duplicate tensor", tensor_name(g, twice));
	return 0;
}

/* most 0: mapped; otherwise read into memory, so many bytes at most. */
static int open_as(const char *path, uint64_t most, struct gguf **out, struct sl_err *err)
{
	struct gguf *g = sl_zalloc(sizeof *g);
	if (g != NULL)
		g->path = sl_strdup(path);
	if (g == NULL || g->path == NULL) {
		sl_free(g);
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	}
	int rc = most > 0 ? map_file_read(path, most, &g->file, err) : map_file_open(path, &g->file, err);
	if (rc == 0)
		rc = read_head(g, err);
	if (rc != 0) {
		gguf_close(g);
		return rc;
	}
	*out = g;
	return 0;
}

int gguf_open(const char *path, struct gguf **out, struct sl_err *err) { return open_as(path, 0, out, err); }

int gguf_read(const char *path, uint64_t most, struct gguf **out, struct sl_err *err)
{
	return open_as(path, most, out, err);
}

void gguf_close(struct gguf *g)
{
	if (g == NULL)
		return;
	map_file_close(&g->file);
	sl_free(g->keys);
	sl_free(g->tensors);
	sl_free(g->keys_by_name);
	sl_free(g->names);
	sl_free(g->path);
	sl_free(g);
}

const char *gguf_path(const struct gguf *g) { return g->path; }
uint64_t gguf_file_bytes(const struct gguf *g) { return g->file.bytes; }
size_t gguf_n_tensors(const struct gguf *g) { return g->n_tensors; }
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i) { return &g->tensors[i]; }
size_t gguf_n_keys(const struct gguf *g) { return g->n_keys; }
