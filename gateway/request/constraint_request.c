/* SPDX-License-Identifier: Apache-2.0
 *
 * Each field that can constrain an answer has a reader; the first one that asks for something decides the kind, and a
 * second one is an error.
 *
 * A schema is kept as the client's own bytes: the order of its properties and the spelling of its numbers matter to
 * what is made of it. They are found again in the body by the path of the field.
 */
#include "gateway/request/constraint_request.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json_depth.h"
#include "base/json/json_scan.h"
#include "base/utf8.h"
#include "gateway/request/json_mem.h"
#include "gateway/request/request_fields.h"

enum { MAX_DEPTH = 64, MAX_SCHEMA_NAME = 64, MAX_CHOICES = 1024, MAX_KEY = 256 };

struct reader {
	const char *field; /* as the client calls it */
	struct proto_str body;
	struct constraint_request *out;
	struct request_error *e;
	char param[96];
};

/* "FIELD.TAIL" */
static const char *at(struct reader *r, const char *tail)
{
	snprintf(r->param, sizeof r->param, "%s.%s", r->field, tail);
	return r->param;
}

/* ---- the client's own bytes ---- */

static bool key_is(struct proto_str raw, const char *name, size_t n)
{
	char plain[MAX_KEY];
	if (memchr(raw.at, '\\', raw.n) == NULL)
		return raw.n == n && memcmp(raw.at, name, n) == 0;
	return raw.n <= sizeof plain && json_unescape(raw, plain) == n && memcmp(plain, name, n) == 0;
}

/* Moves s into the object before it, to the value of a member. */
static bool enter(struct json_scan *s, const char *name, size_t n)
{
	struct proto_str key;
	if (!json_scan_object(s))
		return false;
	while (json_scan_key(s, &key)) {
		if (key_is(key, name, n))
			return true;
		if (!json_scan_skip(s))
			return false;
	}
	return false;
}

/* The bytes of the value at a path of names between dots. */
static bool find(struct proto_str body, const char *path, struct proto_str *out)
{
	struct json_scan s;
	json_scan_init(&s, body.at, body.n);
	for (const char *name = path; *name != '\0';) {
		size_t n = strcspn(name, ".");
		if (!enter(&s, name, n))
			return false;
		name += n + (name[n] == '.');
	}
	(void)json_scan_peek(&s); /* passes the blanks */
	const char *from = s.at;
	if (!json_scan_skip(&s))
		return false;
	*out = (struct proto_str){from, (size_t)(s.at - from)};
	return true;
}

/* ---- the kinds ---- */

static int keep(struct reader *r, enum proto_constraint kind, const char *text, size_t n, const char *param)
{
	r->out->kind = (uint8_t)kind;
	r->out->field = r->field;
	if (n > PROTO_MAX_CONSTRAINT)
		return request_too_long(SL_ELIMIT, param, r->e);
	return n > 0 ? buf_append(&r->out->text, text, n) : 0;
}

/* v, which stands at the path param. */
static int keep_json(struct reader *r, enum proto_constraint kind, const json_t *v, const char *param)
{
	struct proto_str bytes;
	if (find(r->body, param, &bytes))
		return keep(r, kind, bytes.at, bytes.n, param);
	/* Nested too deep for the scanner, perhaps: as the parser has it. */
	r->out->kind = (uint8_t)kind;
	r->out->field = r->field;
	return request_too_long(request_put_json(&r->out->text, v), param, r->e);
}

static int keep_text(struct reader *r, enum proto_constraint kind, const json_t *v, const char *param)
{
	if (v == NULL)
		return request_missing(r->e, param);
	if (!json_is_string(v))
		return request_wrong_type(r->e, param, "a string", v);
	if (json_string_length(v) == 0)
		return request_bad(r->e, "invalid_value", param, "Invalid value for '%s': it is empty.", param);
	int rc = request_check_text(v, param, r->e);
	return rc != 0 ? rc : keep(r, kind, json_string_value(v), json_string_length(v), param);
}

/* A schema that is a text of JSON. */
static int keep_schema_text(struct reader *r, const json_t *v, const char *param)
{
	const char *text = json_string_value(v);
	size_t n = json_string_length(v);
	json_error_t where;
	json_t *parsed = NULL;
	if (!json_deeper_than(text, n, MAX_DEPTH)) {
		parsed = json_mem_load(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);
		if (parsed == NULL && where.text[0] == '\0')
			return SL_ENOMEM;
	}
	bool is_schema = json_is_object(parsed) || json_is_boolean(parsed);
	json_decref(parsed);
	if (!is_schema)
		return request_bad(r->e, "invalid_value", param,
				   "Invalid value for '%s': it is not the JSON text of a schema.", param);
	return keep(r, PROTO_CONSTRAINT_JSON_SCHEMA, text, n, param);
}

static int keep_schema(struct reader *r, const json_t *v, const char *param)
{
	if (v == NULL)
		return request_missing(r->e, param);
	if (json_is_object(v) || json_is_boolean(v))
		return keep_json(r, PROTO_CONSTRAINT_JSON_SCHEMA, v, param);
	if (json_is_string(v))
		return keep_schema_text(r, v, param);
	return request_wrong_type(r->e, param, "a JSON schema", v);
}

/* ---- response_format and its like ---- */

static int check_name(struct reader *r, const json_t *v, const char *param)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
	if (v == NULL)
		return request_missing(r->e, param);
	if (!json_is_string(v))
		return request_wrong_type(r->e, param, "a string", v);
	size_t n = json_string_length(v);
	if (n == 0 || n > MAX_SCHEMA_NAME || strspn(json_string_value(v), plain) != n)
		return request_bad(r->e, "invalid_value", param,
				   "Invalid value for '%s': a name has 1 to %d letters, digits, '_' or '-'.", param,
				   MAX_SCHEMA_NAME);
	return 0;
}

/* What holds name, schema, strict; prefix: its path below the field, with a dot, or "". */
static int read_named_schema(struct reader *r, const json_t *o, const char *prefix)
{
	char tail[64];
	const json_t *strict = request_get(o, "strict"), *description = request_get(o, "description");
	snprintf(tail, sizeof tail, "%sname", prefix);
	int rc = check_name(r, request_get(o, "name"), at(r, tail));
	if (rc != 0)
		return rc;
	snprintf(tail, sizeof tail, "%sstrict", prefix);
	if (strict != NULL && !json_is_boolean(strict))
		return request_wrong_type(r->e, at(r, tail), "a boolean", strict);
	snprintf(tail, sizeof tail, "%sdescription", prefix);
	if (description != NULL && !json_is_string(description))
		return request_wrong_type(r->e, at(r, tail), "a string", description);
	snprintf(tail, sizeof tail, "%sschema", prefix);
	r->out->strict = json_is_true(strict);
	const json_t *schema = request_get(o, "schema");
	if (json_is_string(schema))
		return request_wrong_type(r->e, at(r, tail), "an object", schema);
	return keep_schema(r, schema, at(r, tail));
}

static int read_json_schema_format(struct reader *r, const json_t *v)
{
	const json_t *named = request_get(v, "json_schema");
	if (named == NULL)
		return request_missing(r->e, at(r, "json_schema"));
	if (!json_is_object(named))
		return request_wrong_type(r->e, at(r, "json_schema"), "an object", named);
	return read_named_schema(r, named, "json_schema.");
}

/* With a schema, as llama.cpp has it. */
static int read_json_object_format(struct reader *r, const json_t *v)
{
	const json_t *schema = request_get(v, "schema");
	return schema != NULL ? keep_schema(r, schema, at(r, "schema"))
			      : keep(r, PROTO_CONSTRAINT_JSON_OBJECT, "", 0, r->field);
}

/* TGI's forms: {"type", "value"}. */
static int read_value_schema(struct reader *r, const json_t *v)
{
	return keep_schema(r, request_get(v, "value"), at(r, "value"));
}

static int read_value_regex(struct reader *r, const json_t *v)
{
	return keep_text(r, PROTO_CONSTRAINT_REGEX, request_get(v, "value"), at(r, "value"));
}

static int read_value_named(struct reader *r, const json_t *v)
{
	const json_t *named = request_get(v, "value");
	if (named == NULL)
		return request_missing(r->e, at(r, "value"));
	if (!json_is_object(named))
		return request_wrong_type(r->e, at(r, "value"), "an object", named);
	return keep_schema(r, request_get(named, "schema"), at(r, "value.schema"));
}

static int read_flat_schema(struct reader *r, const json_t *v) { return read_named_schema(r, v, ""); }

struct form {
	const char *type;
	int (*read)(struct reader *r, const json_t *v); /* NULL: no constraint */
};

static const struct form response_formats[] = {{"text", NULL},
					       {"json_schema", read_json_schema_format},
					       {"json_object", read_json_object_format},
					       {"json", read_value_schema},
					       {"regex", read_value_regex},
					       {NULL, NULL}};
static const struct form text_formats[] = {
    {"text", NULL}, {"json_schema", read_flat_schema}, {"json_object", read_json_object_format}, {NULL, NULL}};
static const struct form tgi_grammars[] = {
    {"json", read_value_schema}, {"json_schema", read_value_named}, {"regex", read_value_regex}, {NULL, NULL}};

static int read_form(struct reader *r, const json_t *v, const struct form *forms)
{
	const json_t *type = request_get(v, "type");
	const char *param = at(r, "type");
	if (type == NULL)
		return request_missing(r->e, param);
	if (!json_is_string(type))
		return request_wrong_type(r->e, param, "a string", type);
	for (const struct form *f = forms; f->type != NULL; f++)
		if (strcmp(f->type, json_string_value(type)) == 0)
			return f->read != NULL ? f->read(r, v) : 0;
	return request_bad(r->e, "unsupported_value", param,
			   "Unsupported value: '%s' is '%.*s', which is not supported by this version.", param,
			   request_quoted(type), json_string_value(type));
}

static int read_response_format(struct reader *r, const json_t *v) { return read_form(r, v, response_formats); }
static int read_text_format(struct reader *r, const json_t *v) { return read_form(r, v, text_formats); }

/* ---- the other fields ---- */

/* A format says by its type that it is none. */
static bool is_off(enum request_value which, const json_t *v)
{
	if (which == VALUE_RESPONSE_FORMAT || which == VALUE_TEXT_FORMAT)
		return false;
	return request_is_empty(v) || json_is_false(v) || (json_is_string(v) && json_string_length(v) == 0);
}

static int read_schema(struct reader *r, const json_t *v) { return keep_schema(r, v, r->field); }
static int read_regex(struct reader *r, const json_t *v) { return keep_text(r, PROTO_CONSTRAINT_REGEX, v, r->field); }

static int read_object(struct reader *r, const json_t *v)
{
	(void)v;
	return keep(r, PROTO_CONSTRAINT_JSON_OBJECT, "", 0, r->field);
}

static int read_choice(struct reader *r, const json_t *v)
{
	size_t n = json_array_size(v);
	if (n > MAX_CHOICES)
		return request_bad(r->e, "array_above_max_length", r->field,
				   "Invalid '%s': it has at most %d elements, not %zu.", r->field, MAX_CHOICES, n);
	for (size_t i = 0; i < n; i++) {
		const json_t *one = json_array_get(v, i);
		snprintf(r->param, sizeof r->param, "%s[%zu]", r->field, i);
		if (!json_is_string(one))
			return request_wrong_type(r->e, r->param, "a string", one);
		if (json_string_length(one) == 0)
			return request_bad(r->e, "invalid_value", r->param, "Invalid value for '%s': it is empty.",
					   r->param);
		int rc = request_check_text(one, r->param, r->e);
		if (rc != 0)
			return rc;
	}
	return keep_json(r, PROTO_CONSTRAINT_CHOICE, v, r->field);
}

/* Lark begins with its header, or has a rule `start:` and no `::=`, which GBNF's rules have. */
static bool is_lark(const char *text)
{
	text += strspn(text, " \t\r\n");
	if (strncmp(text, "%llguidance", 11) == 0)
		return true;
	if (strstr(text, "::=") != NULL)
		return false;
	for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
		line += strspn(line, " \t\r\n");
		if (strncmp(line, "start", 5) == 0 && line[5 + strspn(line + 5, " \t")] == ':')
			return true;
	}
	return false;
}

static int read_grammar(struct reader *r, const json_t *v)
{
	if (json_is_object(v))
		return read_form(r, v, tgi_grammars);
	return keep_text(r, is_lark(json_string_value(v)) ? PROTO_CONSTRAINT_LARK : PROTO_CONSTRAINT_GBNF, v, r->field);
}

/* Ollama's: "json", or a schema. */
static int read_format(struct reader *r, const json_t *v)
{
	if (!json_is_string(v))
		return keep_schema(r, v, r->field);
	if (strcmp(json_string_value(v), "json") == 0)
		return keep(r, PROTO_CONSTRAINT_JSON_OBJECT, "", 0, r->field);
	return request_bad(r->e, "invalid_value", r->field,
			   "Invalid value for '%s': '%.*s'. It is \"json\" or a JSON schema.", r->field,
			   request_quoted(v), json_string_value(v));
}

static const struct {
	enum request_value value;
	int (*read)(struct reader *r, const json_t *v);
} fields[] = {{VALUE_RESPONSE_FORMAT, read_response_format},
	      {VALUE_TEXT_FORMAT, read_text_format},
	      {VALUE_JSON_SCHEMA, read_schema},
	      {VALUE_REGEX, read_regex},
	      {VALUE_CHOICE, read_choice},
	      {VALUE_GRAMMAR, read_grammar},
	      {VALUE_JSON_OBJECT, read_object},
	      {VALUE_FORMAT, read_format}};

int constraint_request_read(const struct request_values *values, struct proto_str text, struct constraint_request *out,
			    struct request_error *e)
{
	int rc = 0;
	*out = (struct constraint_request){0};
	buf_init(&out->text, PROTO_MAX_CONSTRAINT);
	for (size_t i = 0; i < sizeof fields / sizeof *fields && rc == 0; i++) {
		const json_t *v = values->at[fields[i].value];
		struct reader r = {.field = values->name[fields[i].value], .body = text, .out = out, .e = e};
		const char *before = out->field;
		if (v == NULL || is_off(fields[i].value, v))
			continue;
		struct constraint_request other = {0};
		buf_init(&other.text, PROTO_MAX_CONSTRAINT);
		if (before != NULL)
			r.out = &other;
		rc = fields[i].read(&r, v);
		if (rc == 0 && before != NULL && other.field != NULL)
			rc = request_bad(e, "invalid_value", r.field,
					 "Invalid value for '%s': '%s' already constrains the answer. Send only one.",
					 r.field, before);
		buf_dispose(&other.text);
	}
	if (rc != 0)
		constraint_request_dispose(out);
	return rc;
}

void constraint_request_dispose(struct constraint_request *c)
{
	buf_dispose(&c->text);
	c->kind = PROTO_CONSTRAINT_NONE;
	c->field = NULL;
}
