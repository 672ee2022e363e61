/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of an open file's keys, as numbers, strings and arrays. Their bounds were checked when
 * the file was opened.
 */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "engine/file/gguf_priv.h"

static int wrong_type(const struct gguf *g, const char *key, const char *want, struct sl_err *err)
{
	return sl_errf(err, SL_EINVAL, "%s: key \"%s\" is not %s", g->path, key, want);
}

static int missing(const struct gguf *g, const char *key, struct sl_err *err)
{
	return sl_errf(err, SL_ENOTFOUND, "%s: key \"%s\" is missing", g->path, key);
}

static struct proto_str string_at(const uint8_t *at)
{
	return (struct proto_str){.at = (const char *)at + 8, .n = (size_t)gguf_load_le(at, 8)};
}

/* The integer at `at`; *is_int false for floats. Unsigned 64-bit values above INT64_MAX are capped. */
static int64_t int_at(enum gguf_value type, const uint8_t *at, bool *is_int)
{
	*is_int = true;
	switch (type) {
	case GGUF_U8:
	case GGUF_BOOL: return at[0];
	case GGUF_I8: return (int8_t)at[0];
	case GGUF_U16: return (int64_t)gguf_load_le(at, 2);
	case GGUF_I16: return (int16_t)gguf_load_le(at, 2);
	case GGUF_U32: return (int64_t)gguf_load_le(at, 4);
	case GGUF_I32: return (int32_t)gguf_load_le(at, 4);
	case GGUF_U64: {
		uint64_t v = gguf_load_le(at, 8);
		return v > INT64_MAX ? INT64_MAX : (int64_t)v;
	}
	case GGUF_I64: return (int64_t)gguf_load_le(at, 8);
	case GGUF_F32:
	case GGUF_F64:
	case GGUF_STRING:
	case GGUF_ARRAY: break;
	}
	*is_int = false;
	return 0;
}

static float f32_at(const uint8_t *at)
{
	uint32_t bits = (uint32_t)gguf_load_le(at, 4);
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static double f64_at(const uint8_t *at)
{
	uint64_t bits = gguf_load_le(at, 8);
	double f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

int gguf_get_str(const struct gguf *g, const char *key, struct proto_str *out, struct sl_err *err)
{
	const struct gguf_key *k = gguf_find_key(g, key);
	if (k == NULL)
		return missing(g, key, err);
	if (k->type != GGUF_STRING)
		return wrong_type(g, key, "a string", err);
	*out = string_at(k->at);
	return 0;
}

int gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct sl_err *err)
{
	const struct gguf_key *k = gguf_find_key(g, key);
	if (k == NULL)
		return missing(g, key, err);
	bool is_int;
	int64_t v = int_at(k->type, k->at, &is_int);
	if (!is_int || k->type == GGUF_BOOL || v < 0 || v > UINT32_MAX)
		return wrong_type(g, key, "an integer from 0 to 2^32-1", err);
	*out = (uint32_t)v;
	return 0;
}

int gguf_get_f32(const struct gguf *g, const char *key, float *out, struct sl_err *err)
{
	const struct gguf_key *k = gguf_find_key(g, key);
	if (k == NULL)
		return missing(g, key, err);
	if (k->type == GGUF_F32)
		*out = f32_at(k->at);
	else if (k->type == GGUF_F64)
		*out = (float)f64_at(k->at);
	else
		return wrong_type(g, key, "a number with a point", err);
	return 0;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct sl_err *err)
{
	const struct gguf_key *k = gguf_find_key(g, key);
	if (k == NULL)
		return missing(g, key, err);
	if (k->type != GGUF_BOOL)
		return wrong_type(g, key, "true or false", err);
	*out = k->at[0] != 0;
	return 0;
}

int gguf_get_array(const struct gguf *g, const char *key, struct gguf_array *out, struct sl_err *err)
{
	const struct gguf_key *k = gguf_find_key(g, key);
	if (k == NULL)
		return missing(g, key, err);
	if (k->type != GGUF_ARRAY)
		return wrong_type(g, key, "a list", err);
	*out = k->array;
	return 0;
}

bool gguf_next_string(struct gguf_array *a, struct proto_str *out)
{
	if (a->type != GGUF_STRING || a->at >= a->end)
		return false;
	*out = string_at(a->at);
	a->at += 8 + out->n;
	return true;
}

int64_t gguf_array_int(const struct gguf_array *a, uint64_t i)
{
	BUG_IF(i >= a->n, "array index %llu of %llu", (unsigned long long)i, (unsigned long long)a->n);
	bool is_int;
	int64_t v = int_at(a->type, a->at + i * (uint64_t)gguf_scalar_bytes(a->type), &is_int);
	BUG_IF(!is_int, "not an array of integers");
	return v;
}

float gguf_array_f32(const struct gguf_array *a, uint64_t i)
{
	BUG_IF(i >= a->n || a->type != GGUF_F32, "not an array of f32, or index %llu of %llu", (unsigned long long)i,
	       (unsigned long long)a->n);
	return f32_at(a->at + i * 4);
}

struct proto_str gguf_raw_key(const struct gguf *g, size_t i, enum gguf_value *type, struct proto_str *value)
{
	const struct gguf_key *k = &g->keys[i];
	size_t n = (size_t)gguf_scalar_bytes(k->type);
	if (k->type == GGUF_STRING)
		n = 8 + string_at(k->at).n;
	else if (k->type == GGUF_ARRAY)
		n = (size_t)(k->array.end - k->at);
	*type = k->type;
	*value = (struct proto_str){.at = (const char *)k->at, .n = n};
	return k->name;
}

uint32_t gguf_version(const struct gguf *g) { return g->version; }

struct proto_str gguf_key_at(const struct gguf *g, size_t i, char *value, size_t value_bytes)
{
	static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
					    "bool", "string", "array", "u64", "i64", "f64"};
	const struct gguf_key *k = &g->keys[i];
	bool is_int;
	int64_t v = int_at(k->type, k->at, &is_int);
	int n_text = k->type == GGUF_STRING && string_at(k->at).n < 200 ? (int)string_at(k->at).n : 200;
	if (k->type == GGUF_BOOL)
		snprintf(value, value_bytes, "%s", v ? "true" : "false");
	else if (is_int)
		snprintf(value, value_bytes, "%lld", (long long)v);
	else if (k->type == GGUF_F32)
		snprintf(value, value_bytes, "%.9g", (double)f32_at(k->at));
	else if (k->type == GGUF_F64)
		snprintf(value, value_bytes, "%.17g", f64_at(k->at));
	else if (k->type == GGUF_STRING)
		snprintf(value, value_bytes, "%.*s", n_text, (const char *)k->at + 8);
	else
		snprintf(value, value_bytes, "%llu × %s", (unsigned long long)k->array.n, names[k->array.type]);
	text_one_line(value, ' '); /* control characters would move the terminal's cursor */
	return k->name;
}
