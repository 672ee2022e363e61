/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of checks: bytes (UTF-8, depth) before parsing, then every key of the body against the
 * table (types, ranges, refusals), then rules beyond the table. A reader behind request_check need
 * not check types again.
 */
#include "gateway/request/request_fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_depth.h"
#include "base/range.h"
#include "base/utf8.h"
#include "gateway/request/json_mem.h"
#include "base/json/json_where.h"
#include "base/metrics.h"

enum { MAX_QUOTED = 40, MAX_METADATA = 16, MAX_METADATA_KEY = 64, MAX_METADATA_VALUE = 512 };

/* ---- errors ---- */

/* What is quoted from the request may be long and is cut at a character; the JSON library quotes
 * what it could not read, which may be a part of one. */
static void make_valid(char *text)
{
	uint8_t *s = (uint8_t *)text;
	size_t n = utf8_whole_prefix(s, strlen(text));
	text[n] = '\0';
	for (size_t i = 0; i < n;) {
		uint32_t cp;
		int len = utf8_decode(s + i, n - i, &cp);
		if (len <= 0)
			s[i] = '?';
		i += len > 0 ? (size_t)len : 1;
	}
}

int request_bad(struct request_error *e, const char *code, const char *param, const char *fmt, ...)
{
	va_list ap;
	e->code = code;
	snprintf(e->param, sizeof e->param, "%s", param);
	make_valid(e->param);
	va_start(ap, fmt);
	vsnprintf(e->message, sizeof e->message, fmt, ap);
	va_end(ap);
	make_valid(e->message);
	return SL_EINVAL;
}

static const char *type_name(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT: return "an object";
	case JSON_ARRAY: return "an array";
	case JSON_STRING: return "a string";
	case JSON_INTEGER: return "an integer";
	case JSON_REAL: return "a number";
	case JSON_TRUE:
	case JSON_FALSE: return "a boolean";
	case JSON_NULL: return "null";
	}
	return "something else";
}

int request_wrong_type(struct request_error *e, const char *param, const char *want, const json_t *got)
{
	return request_bad(e, "invalid_type", param, "Invalid type for '%s': expected %s, but got %s instead.", param,
			   want, type_name(got));
}

int request_out_of_range(struct request_error *e, const char *param, double lo, bool above, double hi, double got)
{
	char range[80];
	return request_bad(e, "invalid_value", param, "Invalid value for '%s': it must be %s, not %.10g.", param,
			   range_of(lo, above, hi, range, sizeof range), got);
}

int request_missing(struct request_error *e, const char *param)
{
	return request_bad(e, "missing_required_parameter", param, "Missing required parameter: '%s'.", param);
}

int request_refuse(struct request_error *e, const char *param, const char *instead)
{
	return request_bad(e, "unsupported_parameter", param,
			   "Unsupported parameter: '%s' is not supported by this version.%s%s", param,
			   instead != NULL ? " " : "", instead != NULL ? instead : "");
}

int request_quoted(const json_t *string)
{
	const char *s = json_string_value(string);
	size_t n = strlen(s);
	return (int)utf8_whole_prefix((const uint8_t *)s, n < MAX_QUOTED ? n : MAX_QUOTED);
}

/* ---- the bytes ---- */

/* How many bytes at the beginning are whole, correct characters. */
static size_t utf8_valid_bytes(const char *bytes, size_t n)
{
	size_t i = 0;
	uint32_t cp;
	if (utf8_valid(bytes, n))
		return n;
	for (int len; i < n && (len = utf8_decode((const uint8_t *)bytes + i, n - i, &cp)) > 0;)
		i += (size_t)len;
	return i;
}

COUNTER(parsed_total, "sluice_bodies_parsed_total", "Request bodies that were parsed");

static int check_bytes(const void *bytes, size_t n, const struct request_limits *l, struct request_error *e)
{
	if (n == 0)
		return request_bad(e, NULL, "", "The request has no body. A JSON object is needed.");
	size_t valid = utf8_valid_bytes(bytes, n);
	if (valid < n)
		return request_bad(e, NULL, "", "The body is not valid UTF-8 (byte %zu).", valid + 1);
	size_t weight;
	if (!json_measure(bytes, n, l->json_depth, &weight))
		return request_bad(e, NULL, "", "The body is nested deeper than %zu levels.", l->json_depth);
	if (l->json_values > 0 && weight > l->json_values)
		return request_bad(e, NULL, "", "The body holds too many values.");
	metric_add(&parsed_total, 1);
	return 0;
}

enum { PARSE_FLAGS = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL };

/* It is JSON all right, but no number that anything here could mean. */
static int refuse_number(const void *bytes, size_t n, const json_error_t *where, struct request_error *e)
{
	char param[sizeof e->param];
	size_t upto = where->position > 0 && (size_t)where->position < n ? (size_t)where->position : n;
	json_where(bytes, upto, param, sizeof param);
	return request_bad(e, "invalid_value", param,
			   "Invalid value for '%s': the number is too large (line %d, column %d).", param, where->line,
			   where->column);
}

/* v: what the parser made of the bytes. */
static int check_parsed(const json_t *v, const void *bytes, size_t n, const json_error_t *where,
			struct request_error *e)
{
	if (v == NULL && where->text[0] == '\0')
		return SL_ENOMEM;
	if (v == NULL && json_error_code(where) == json_error_numeric_overflow)
		return refuse_number(bytes, n, where, e);
	if (v == NULL)
		return request_bad(e, NULL, "", "The body is not valid JSON: %s (line %d, column %d).", where->text,
				   where->line, where->column);
	if (!json_is_object(v))
		return request_bad(e, NULL, "", "The body is not a JSON object.");
	return 0;
}

int request_parse_json(const void *bytes, size_t n, const struct request_limits *l, json_t **out,
		       struct request_error *e)
{
	json_error_t where;
	int rc = check_bytes(bytes, n, l, e);
	json_t *v = rc == 0 ? json_mem_load(bytes, n, PARSE_FLAGS, &where) : NULL;
	if (rc == 0)
		rc = check_parsed(v, bytes, n, &where, e);
	if (rc != 0) {
		json_decref(v);
		v = NULL;
	}
	*out = v;
	return rc;
}

int request_parse_doc(const void *bytes, size_t n, const struct request_limits *l, struct json_doc *out,
		      struct request_error *e)
{
	json_error_t where;
	*out = (struct json_doc){0};
	int rc = check_bytes(bytes, n, l, e);
	if (rc != 0)
		return rc;
	(void)json_doc_load(bytes, n, PARSE_FLAGS, out, &where);
	rc = check_parsed(out->root, bytes, n, &where, e);
	if (rc != 0)
		json_doc_dispose(out);
	return rc;
}

/* ---- the table ---- */

static unsigned type_of(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT: return TYPE_OBJ;
	case JSON_ARRAY: return TYPE_ARR;
	case JSON_STRING: return TYPE_STR;
	case JSON_INTEGER: return TYPE_INT | TYPE_NUM;
	case JSON_REAL: return TYPE_NUM;
	case JSON_TRUE:
	case JSON_FALSE: return TYPE_BOOL;
	case JSON_NULL: break;
	}
	return 0;
}

/* "a string or an array" */
static const char *types_text(unsigned types, char *out, size_t room)
{
	static const struct {
		unsigned type;
		const char *name;
	} names[] = {{TYPE_BOOL, "a boolean"}, {TYPE_INT, "an integer"}, {TYPE_NUM, "a number"},
		     {TYPE_STR, "a string"},   {TYPE_ARR, "an array"},   {TYPE_OBJ, "an object"}};
	size_t n = 0;
	out[0] = '\0';
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if ((types & names[i].type) != 0 && n < room)
			n += (size_t)snprintf(out + n, room - n, "%s%s", n ? " or " : "", names[i].name);
	return out;
}

static int check_range(const struct request_field *f, const json_t *v, struct request_error *e)
{
	double d = json_number_value(v);
	if ((f->lo == 0 && f->hi == 0) || (d >= f->lo && d <= f->hi && !(f->above && d == f->lo)))
		return 0;
	return request_out_of_range(e, f->name, f->lo, f->above, f->hi, d);
}

static int check_values(const struct request_field *f, const json_t *v, struct request_error *e)
{
	const char *s = json_string_value(v);
	size_t n = json_string_length(v);
	for (const char *p = f->values; *p != '\0'; p = strchr(p, ' ') + 1)
		if ((size_t)(strchr(p, ' ') - p) == n && memcmp(p, s, n) == 0)
			return 0;
	return request_bad(e, "invalid_value", f->name, "Invalid value for '%s': '%.*s'. Supported values are: %.*s.",
			   f->name, request_quoted(v), s, (int)strlen(f->values) - 1, f->values);
}

/* What the check of one body fills, and what it goes by. */
struct checker {
	const struct request_shape *shape;
	struct request_values *values;
	struct request_ignored *ignored;
	struct request_error *e;
};

static int check_members(struct checker *c, const char *prefix, const json_t *object);

static int check_field(struct checker *c, const struct request_field *f, const json_t *v, const json_t *object)
{
	char want[96];
	if ((type_of(v) & f->types) == 0)
		return request_wrong_type(c->e, f->name, types_text(f->types, want, sizeof want), v);
	if (f->does == FIELD_REFUSED)
		return f->harmless != NULL && f->harmless(v, object) ? 0 : request_refuse(c->e, f->name, f->instead);
	int rc = 0;
	if (json_is_number(v))
		rc = check_range(f, v, c->e);
	else if (json_is_string(v) && f->values != NULL)
		rc = check_values(f, v, c->e);
	else if (json_is_object(v) && f->members)
		rc = check_members(c, f->name, v);
	return rc;
}

/* Two names of one field must not differ. */
static int keep_value(struct checker *c, const struct request_field *f, json_t *v)
{
	struct request_values *values = c->values;
	if (f->value == VALUE_NONE || f->does == FIELD_REFUSED)
		return 0;
	const char *before = values->name[f->value];
	if (before != NULL && !json_equal(values->at[f->value], v))
		return request_bad(c->e, "invalid_value", f->name,
				   "Invalid value for '%s': '%s' is the same field with another value.", f->name,
				   before);
	values->at[f->value] = v;
	values->name[f->value] = f->name;
	return 0;
}

static bool is_plain(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || ch == '_' ||
	       ch == '-' || ch == '.' || ch == '[' || ch == ']';
}

enum { MAX_IGNORED = 16, MAX_IGNORED_NAME = 64 };

void request_ignore(struct request_ignored *out, const char *name)
{
	size_t at = strlen(out->text), n = strlen(name);
	n = n < MAX_IGNORED_NAME ? n : MAX_IGNORED_NAME;
	out->n = (uint16_t)(out->n + (out->n < UINT16_MAX));
	if (n == 0 || out->n_shown == MAX_IGNORED || at + n + sizeof ", " > sizeof out->text)
		return;
	at += (size_t)snprintf(out->text + at, sizeof out->text - at, "%s%.*s", at > 0 ? ", " : "", (int)n, name);
	for (char *p = out->text + at - n; *p != '\0'; p++)
		*p = is_plain(*p) ? *p : '_';
	out->n_shown++;
}

void request_ignore_others(struct request_ignored *out, const json_t *object, const char *within,
			   const char *const *known)
{
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)(uintptr_t)object, key, v)
	{
		char name[2 * MAX_IGNORED_NAME];
		const char *const *k = known;
		while (*k != NULL && strcmp(*k, key) != 0)
			k++;
		if (*k != NULL || json_is_null(v))
			continue;
		snprintf(name, sizeof name, "%s.%s", within, key);
		request_ignore(out, name);
	}
}

/* prefix: the object's own name, or NULL for the body. */
static int check_members(struct checker *c, const char *prefix, const json_t *object)
{
	const char *key;
	json_t *v;
	int rc = 0;
	json_object_foreach((json_t *)(uintptr_t)object, key, v)
	{
		char joined[96];
		const char *name = key;
		if (json_is_null(v))
			continue;
		if (prefix != NULL) {
			snprintf(joined, sizeof joined, "%s.%s", prefix, key);
			make_valid(joined);
			name = joined;
		}
		const struct request_shape *shape = c->shape;
		const struct request_field *f = request_rows_find(shape->rows, shape->n, shape->endpoints, name);
		if (f == NULL || (f->does == FIELD_IGNORED && shape->lists_ignored))
			request_ignore(c->ignored, name);
		if (f == NULL)
			continue;
		rc = check_field(c, f, v, object);
		if (rc == 0)
			rc = keep_value(c, f, v);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int request_check_shape(const json_t *body, const struct request_shape *shape, struct request_values *values,
			struct request_ignored *ignored, struct request_error *e)
{
	struct checker c = {shape, values, ignored, e};
	*values = (struct request_values){0};
	*ignored = (struct request_ignored){0};
	return check_members(&c, NULL, body);
}

int request_check(const json_t *body, enum request_endpoint endpoint, struct request_values *values,
		  struct request_ignored *ignored, struct request_error *e)
{
	const struct request_shape shape = {request_fields, n_request_fields, (uint8_t)endpoint, endpoint, false};
	return request_check_shape(body, &shape, values, ignored, e);
}

/* ---- small readers ---- */

json_t *request_get(const json_t *object, const char *key)
{
	json_t *v = json_object_get(object, key);
	return v == NULL || json_is_null(v) ? NULL : v;
}

bool request_text_fits(const json_t *string)
{
	return memchr(json_string_value(string), 0, json_string_length(string)) == NULL;
}

int request_check_text(const json_t *string, const char *param, struct request_error *e)
{
	if (!request_text_fits(string))
		return request_bad(e, "invalid_value", param,
				   "Invalid value for '%s': it contains the character U+0000.", param);
	return 0;
}

int request_get_label(const json_t *object, const char *key, const char *param, const char **out,
		      struct request_error *e)
{
	return request_read_label(request_get(object, key), param, out, e);
}

int request_read_label(const json_t *v, const char *param, const char **out, struct request_error *e)
{
	*out = NULL;
	if (v == NULL)
		return 0;
	if (!json_is_string(v))
		return request_wrong_type(e, param, "a string", v);
	size_t n = json_string_length(v);
	if (n > REQUEST_MAX_LABEL)
		return request_bad(e, "string_above_max_length", param,
				   "Invalid '%s': it has at most %d bytes, not %zu.", param, REQUEST_MAX_LABEL, n);
	if (n > 0)
		*out = json_string_value(v);
	return request_check_text(v, param, e);
}

/* Characters, for what OpenAI counts in them. */
static size_t n_characters(const char *s, size_t n)
{
	size_t count = 0;
	for (size_t i = 0; i < n; i++)
		count += ((uint8_t)s[i] & 0xc0) != 0x80;
	return count;
}

int request_check_metadata(json_t *m, struct request_error *e)
{
	const char *key;
	json_t *v;
	if (json_object_size(m) > MAX_METADATA)
		return request_bad(e, "object_above_max_properties", "metadata",
				   "Invalid 'metadata': at most %d pairs, not %zu.", MAX_METADATA, json_object_size(m));
	json_object_foreach(m, key, v)
	{
		char param[96];
		snprintf(param, sizeof param, "metadata.%s", key);
		if (n_characters(key, strlen(key)) > MAX_METADATA_KEY)
			return request_bad(e, "invalid_value", "metadata",
					   "Invalid 'metadata': a key has at most %d characters.", MAX_METADATA_KEY);
		if (!json_is_string(v))
			return request_wrong_type(e, param, "a string", v);
		if (n_characters(json_string_value(v), json_string_length(v)) > MAX_METADATA_VALUE)
			return request_bad(e, "string_above_max_length", param,
					   "Invalid '%.60s': a value has at most %d characters.", param,
					   MAX_METADATA_VALUE);
	}
	return 0;
}

bool request_is_empty(const json_t *v)
{
	return (json_is_array(v) && json_array_size(v) == 0) || (json_is_object(v) && json_object_size(v) == 0);
}

int request_too_long(int rc, const char *param, struct request_error *e)
{
	if (rc != SL_ELIMIT)
		return rc;
	return request_bad(e, "string_above_max_length", param, "Invalid '%s': it is too long.", param);
}

int request_get_model(const json_t *body, const char **out, struct request_error *e)
{
	const json_t *v = request_get(body, "model");
	if (v == NULL)
		return request_missing(e, "model");
	if (!json_is_string(v))
		return request_wrong_type(e, "model", "a string", v);
	size_t n = json_string_length(v);
	if (n == 0 || n > PROTO_MAX_NAME || strlen(json_string_value(v)) != n)
		return request_bad(e, "invalid_value", "model", "Invalid value for 'model': a name has 1 to %d bytes.",
				   PROTO_MAX_NAME);
	*out = json_string_value(v);
	return 0;
}

int request_put_token_ids(struct sl_buf *out, const json_t *ids, const char *param, struct request_error *e)
{
	size_t n = json_array_size(ids);
	char at[120];
	uint8_t *to;
	if (n == 0)
		return request_bad(e, "empty_array", param, "Invalid '%s': at least one token is needed.", param);
	if (n > REQUEST_MAX_PROMPT / REQUEST_TOKEN_BYTES)
		return request_too_long(SL_ELIMIT, param, e);
	int rc = buf_reserve(out, n * REQUEST_TOKEN_BYTES, &to);
	if (rc != 0)
		return request_too_long(rc, param, e);
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_array_get(ids, i);
		json_int_t id = json_integer_value(v);
		snprintf(at, sizeof at, "%.80s[%zu]", param, i);
		if (!json_is_integer(v))
			return request_wrong_type(e, at, "an integer", v);
		if (id < 0 || id > INT32_MAX)
			return request_out_of_range(e, at, 0, false, INT32_MAX, (double)id);
		for (int k = 0; k < REQUEST_TOKEN_BYTES; k++)
			*to++ = (uint8_t)((uint32_t)id >> (8 * k));
	}
	buf_commit(out, n * REQUEST_TOKEN_BYTES);
	return 0;
}

struct dump {
	struct sl_buf *out;
	int rc;
};

static int on_dump(const char *text, size_t n, void *ctx)
{
	struct dump *d = ctx;
	/* The library continues after an object's key that failed: nothing may follow it. */
	if (d->rc == 0)
		d->rc = buf_append(d->out, text, n);
	return d->rc == 0 ? 0 : -1;
}

int request_put_json(struct sl_buf *out, const json_t *v)
{
	struct dump d = {.out = out};
	int failed = json_dump_callback(v, on_dump, &d, JSON_COMPACT | JSON_ENCODE_ANY);
	return d.rc == 0 && failed ? SL_ENOMEM : d.rc;
}
