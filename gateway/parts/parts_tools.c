/* SPDX-License-Identifier: Apache-2.0
 *
 * Declared tools: their names and the types of their arguments. Only the top level of a schema matters, because only
 * whole arguments are texts.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_scan.h"
#include "gateway/parts/parts_priv.h"

enum { MAX_ARGUMENTS = 4096 };

struct argument {
	char *name; /* owned */
	size_t n;
	unsigned types;
};

struct tool {
	char *name;            /* owned */
	struct argument *args; /* owned */
	size_t n_args;
};

struct parts_tools {
	struct tool *tools; /* owned */
	size_t n;
};

/* ---- types ---- */

static unsigned type_named(struct proto_str raw)
{
	static const struct {
		const char *name;
		unsigned type;
	} names[] = {{"string", TYPE_STRING},   {"number", TYPE_NUMBER}, {"integer", TYPE_NUMBER},
		     {"boolean", TYPE_BOOLEAN}, {"object", TYPE_OBJECT}, {"array", TYPE_ARRAY},
		     {"null", TYPE_NULL}};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strlen(names[i].name) == raw.n && memcmp(names[i].name, raw.at, raw.n) == 0)
			return names[i].type;
	return 0;
}

static bool key_is(struct proto_str key, const char *name)
{
	return key.n == strlen(name) && memcmp(key.at, name, key.n) == 0;
}

/* "type": a name or a list of names. */
static unsigned declared(struct json_scan *s)
{
	struct proto_str raw;
	unsigned types = 0;
	char c = json_scan_peek(s);
	if (c == '"')
		return json_scan_string(s, &raw) ? type_named(raw) : 0;
	if (c != '[') {
		json_scan_skip(s);
		return 0;
	}
	json_scan_array(s);
	while (json_scan_item(s)) {
		if (json_scan_peek(s) == '"' && json_scan_string(s, &raw))
			types |= type_named(raw);
		else
			json_scan_skip(s);
	}
	return types;
}

static unsigned type_of_value(char first)
{
	switch (first) {
	case '"': return TYPE_STRING;
	case '{': return TYPE_OBJECT;
	case '[': return TYPE_ARRAY;
	case 't':
	case 'f': return TYPE_BOOLEAN;
	case 'n': return TYPE_NULL;
	default: return TYPE_NUMBER;
	}
}

/* "enum": the types of its values. */
static unsigned enumerated(struct json_scan *s)
{
	unsigned types = 0;
	if (json_scan_peek(s) != '[') {
		json_scan_skip(s);
		return 0;
	}
	json_scan_array(s);
	while (json_scan_item(s)) {
		types |= type_of_value(json_scan_peek(s));
		json_scan_skip(s);
	}
	return types;
}

static unsigned types_of(struct json_scan *s, int levels);

/* "anyOf" and "oneOf": the union of their schemas' types. */
static unsigned alternatives(struct json_scan *s, int levels)
{
	unsigned types = 0;
	if (json_scan_peek(s) != '[' || levels == 0) {
		json_scan_skip(s);
		return 0;
	}
	json_scan_array(s);
	while (json_scan_item(s))
		types |= types_of(s, levels - 1);
	return types;
}

/* The types of a schema; alternatives are followed for a few levels. */
static unsigned types_of(struct json_scan *s, int levels)
{
	struct proto_str key;
	unsigned types = 0, values = 0;
	if (json_scan_peek(s) != '{') {
		json_scan_skip(s);
		return 0;
	}
	json_scan_object(s);
	while (json_scan_key(s, &key)) {
		if (key_is(key, "type")) {
			types |= declared(s);
		} else if (key_is(key, "anyOf") || key_is(key, "oneOf")) {
			types |= alternatives(s, levels);
		} else if (key_is(key, "enum")) {
			values |= enumerated(s);
		} else if (key_is(key, "const")) {
			values |= type_of_value(json_scan_peek(s));
			json_scan_skip(s);
		} else {
			json_scan_skip(s);
		}
	}
	return types != 0 ? types : values;
}

/* ---- tools ---- */

static int add_argument(struct tool *t, struct proto_str raw, struct json_scan *s)
{
	if (t->n_args == MAX_ARGUMENTS)
		return SL_ELIMIT;
	struct argument *more = sl_realloc_n(t->args, t->n_args + 1, sizeof *more);
	if (more == NULL)
		return SL_ENOMEM;
	t->args = more;
	struct argument *a = &more[t->n_args];
	*a = (struct argument){.name = sl_alloc(raw.n + 1)};
	if (a->name == NULL)
		return SL_ENOMEM;
	t->n_args++;
	a->n = json_unescape(raw, a->name);
	if (a->n == SIZE_MAX)
		a->n = 0;
	a->name[a->n] = '\0';
	a->types = types_of(s, 3);
	return 0;
}

static int read_properties(struct tool *t, struct json_scan *s)
{
	struct proto_str key;
	int rc = 0;
	if (json_scan_peek(s) != '{') {
		json_scan_skip(s);
		return 0;
	}
	json_scan_object(s);
	while (rc == 0 && json_scan_key(s, &key))
		rc = add_argument(t, key, s);
	return rc;
}

static int read_schema(struct tool *t, const char *schema, size_t n)
{
	struct json_scan s;
	struct proto_str key;
	int rc = 0;
	json_scan_init(&s, schema, n);
	if (!json_scan_object(&s))
		return SL_EINVAL;
	while (rc == 0 && json_scan_key(&s, &key)) {
		if (key_is(key, "properties"))
			rc = read_properties(t, &s);
		else
			json_scan_skip(&s);
	}
	return rc != 0 ? rc : json_scan_end(&s) ? 0 : SL_EINVAL;
}

static int read_tool(struct tool *t, const struct parts_tool *from)
{
	size_t n = strlen(from->name);
	if (n == 0 || n > PARTS_MAX_NAME)
		return SL_EINVAL;
	t->name = sl_strdup(from->name);
	if (t->name == NULL)
		return SL_ENOMEM;
	return from->schema != NULL ? read_schema(t, from->schema, from->n_schema) : 0;
}

int parts_tools_create(const struct parts_tool *tools, size_t n, struct parts_tools **out)
{
	struct parts_tools *t = sl_zalloc(sizeof *t);
	int rc = n > PARTS_MAX_TOOLS ? SL_ELIMIT : 0;
	*out = NULL;
	if (t != NULL && rc == 0 && n > 0)
		t->tools = sl_zalloc_n(n, sizeof *t->tools);
	if (t == NULL || (rc == 0 && n > 0 && t->tools == NULL))
		rc = SL_ENOMEM;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		t->n++;
		rc = read_tool(&t->tools[i], &tools[i]);
	}
	if (rc != 0)
		parts_tools_destroy(t);
	else
		*out = t;
	return rc;
}

void parts_tools_destroy(struct parts_tools *t)
{
	if (t == NULL)
		return;
	for (size_t i = 0; i < t->n; i++) {
		for (size_t k = 0; k < t->tools[i].n_args; k++)
			sl_free(t->tools[i].args[k].name);
		sl_free(t->tools[i].args);
		sl_free(t->tools[i].name);
	}
	sl_free(t->tools);
	sl_free(t);
}

const char *tools_name(const struct parts_tools *t, size_t i) { return t->tools[i].name; }

bool tools_find(const struct parts_tools *t, const char *name, size_t n, size_t *out)
{
	for (size_t i = 0; i < t->n; i++)
		if (strlen(t->tools[i].name) == n && memcmp(t->tools[i].name, name, n) == 0) {
			*out = i;
			return true;
		}
	return false;
}

unsigned tools_types(const struct parts_tools *t, size_t tool, const char *key, size_t n)
{
	const struct tool *of = &t->tools[tool];
	for (size_t i = 0; i < of->n_args; i++)
		if (of->args[i].n == n && memcmp(of->args[i].name, key, n) == 0)
			return of->args[i].types;
	return 0;
}

const char *tools_argument(const struct parts_tools *t, size_t tool, size_t i)
{
	return i < t->tools[tool].n_args ? t->tools[tool].args[i].name : NULL;
}
