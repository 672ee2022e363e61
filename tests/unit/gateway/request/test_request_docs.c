/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said about the fields of requests is what the parsers do: openapi.json and etc/api.md
 * against the table of fields, and the parsers against openapi.json.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/request/chat_request.h"
#include "gateway/request/completion_request.h"
#include "gateway/request/request_table.h"
#include "gateway/request/response_request.h"
#include "gateway/api/www.h"

static const struct endpoint {
	enum request_endpoint endpoint;
	const char *schema, *base;
} endpoints[] = {
    {REQUEST_CHAT, "ChatRequest", "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"},
    {REQUEST_COMPLETION, "CompletionRequest", "{\"model\":\"m\",\"prompt\":\"x\"}"},
    {REQUEST_RESPONSE, "ResponseRequest", "{\"model\":\"m\",\"input\":\"x\",\"previous_response_id\":\"resp_1\"}"},
};
enum { N_ENDPOINTS = 3 };

static json_t *doc; /* openapi.json */

static const json_t *member(const json_t *o, const char *key) { return json_object_get(o, key); }

static const json_t *schema_of(const struct endpoint *p)
{
	return member(member(member(doc, "components"), "schemas"), p->schema);
}

static bool has_string(const json_t *list, const char *want)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (json_is_string(json_array_get(list, i)) &&
		    strcmp(json_string_value(json_array_get(list, i)), want) == 0)
			return true;
	return false;
}

/* A property's type is one or a list. */
static bool has_type(const json_t *property, const char *want)
{
	const json_t *type = member(property, "type");
	return json_is_string(type) ? strcmp(json_string_value(type), want) == 0 : has_string(type, want);
}

/* ---- openapi.json and the table ---- */

static const struct {
	unsigned type;
	const char *name;
} types[] = {{TYPE_BOOL, "boolean"}, {TYPE_INT, "integer"}, {TYPE_NUM, "number"},
	     {TYPE_STR, "string"},   {TYPE_ARR, "array"},   {TYPE_OBJ, "object"}};
enum { N_TYPES = 6 };
static const char *const does[] = {"honoured", "ignored", "refused"};

static bool number_is(const json_t *property, const char *key, bool there, double want)
{
	const json_t *v = member(property, key);
	return there ? json_is_number(v) && json_number_value(v) == want : v == NULL;
}

static void compare_values(const struct request_field *f, const json_t *p)
{
	size_t n = 0;
	for (const char *s = f->values; s != NULL && *s != '\0'; s = strchr(s, ' ') + 1, n++) {
		char value[64];
		snprintf(value, sizeof value, "%.*s", (int)(strchr(s, ' ') - s), s);
		if (!has_string(member(p, "enum"), value))
			fail_msg("%s: %s is not told", f->name, value);
	}
	/* and null */
	assert_int_equal(json_array_size(member(p, "enum")), n > 0 ? n + 1 : 0);
}

static const char *const servers[] = {"vLLM", "SGLang", "TGI", "llama.cpp", "Ollama", "transformers"};
enum { N_SERVERS = 6 };

static void compare_servers(const struct request_field *f, const json_t *p)
{
	size_t n = 0;
	for (unsigned i = 0; i < N_SERVERS; i++) {
		bool has = (f->servers & 1u << i) != 0;
		n += has;
		if (has_string(member(p, "x-servers"), servers[i]) != has)
			fail_msg("%s: of %s", f->name, servers[i]);
	}
	assert_int_equal(json_array_size(member(p, "x-servers")), n);
}

static void compare(const struct request_field *f, const json_t *p, bool required)
{
	size_t n = required ? 0 : 1;
	bool range = f->lo != 0 || f->hi != 0;
	for (size_t i = 0; i < N_TYPES; i++) {
		n += (f->types & types[i].type) != 0;
		if (has_type(p, types[i].name) != ((f->types & types[i].type) != 0))
			fail_msg("%s: type %s", f->name, types[i].name);
	}
	if (has_type(p, "null") == required ||
	    (json_is_string(member(p, "type")) ? 1 : json_array_size(member(p, "type"))) != n)
		fail_msg("%s: other types", f->name);
	if (!number_is(p, "minimum", range && !f->above, f->lo) || !number_is(p, "exclusiveMinimum", f->above, f->lo) ||
	    !number_is(p, "maximum", range, f->hi))
		fail_msg("%s: another range", f->name);
	if (strcmp(json_string_value(member(p, "x-sluice")), does[f->does]) != 0)
		fail_msg("%s: it is %s", f->name, does[f->does]);
	if ((f->of != NULL) != (member(p, "x-means") != NULL) ||
	    (f->of != NULL && strcmp(json_string_value(member(p, "x-means")), f->of) != 0))
		fail_msg("%s: it means %s", f->name, f->of != NULL ? f->of : "itself");
	compare_servers(f, p);
	assert_true((member(p, "properties") != NULL) == f->members);
	compare_values(f, p);
}

/* prefix: of the object whose members these are, with its dot. How many there are. */
static size_t compare_all(enum request_endpoint endpoint, const json_t *schema, const char *prefix)
{
	const char *key;
	json_t *p;
	size_t n = 0;
	json_object_foreach((json_t *)(uintptr_t)member(schema, "properties"), key, p)
	{
		char name[96];
		snprintf(name, sizeof name, "%s%s", prefix, key);
		const struct request_field *f = request_field_find(name, endpoint);
		if (f == NULL) {
			fail_msg("%s is unknown to the parser", name);
			continue;
		}
		compare(f, p, has_string(member(schema, "required"), key));
		snprintf(name, sizeof name, "%s%s.", prefix, key);
		n += 1 + (f->members ? compare_all(endpoint, p, name) : 0);
	}
	return n;
}

static void openapi_agrees_with_the_table(void **state)
{
	(void)state;
	for (int i = 0; i < N_ENDPOINTS; i++) {
		size_t n = 0;
		for (size_t k = 0; k < n_request_fields; k++)
			n += (request_fields[k].endpoints & endpoints[i].endpoint) != 0;
		assert_int_equal(compare_all(endpoints[i].endpoint, schema_of(&endpoints[i]), ""), n);
	}
}

static void the_table_is_sorted(void **state)
{
	(void)state;
	for (size_t i = 1; i < n_request_fields; i++) {
		const struct request_field *a = &request_fields[i - 1], *b = &request_fields[i];
		int order = strcmp(a->name, b->name);
		if (order > 0 || (order == 0 && (a->endpoints & b->endpoints) != 0))
			fail_msg("%s before %s", a->name, b->name);
	}
}

/* ---- etc/api.md ---- */

static const char *cell(const struct request_field *f, enum request_endpoint endpoint)
{
	static const char *const words[] = {"yes", "ignored", "refused"};
	return (f->endpoints & endpoint) != 0 ? words[f->does] : "–";
}

/* A table's row as far as its last column. */
static void row_of(const struct request_field *f, char *out, size_t room)
{
	size_t n = (size_t)snprintf(out, room, "| `%s` | %s | %s | %s | ", f->name, cell(f, REQUEST_CHAT),
				    cell(f, REQUEST_COMPLETION), cell(f, REQUEST_RESPONSE));
	for (size_t i = 0, k = 0; i < N_TYPES; i++)
		if ((f->types & types[i].type) != 0)
			n += (size_t)snprintf(out + n, room - n, "%s%s", k++ > 0 ? " or " : "", types[i].name);
	for (const char *s = f->values; s != NULL && *s != '\0'; s = strchr(s, ' ') + 1)
		n += (size_t)snprintf(out + n, room - n, "%s%.*s", s == f->values ? ": " : ", ",
				      (int)(strchr(s, ' ') - s), s);
	if (f->above)
		n += (size_t)snprintf(out + n, room - n, ", above %g, at most %g", f->lo, f->hi);
	else if (f->hi == INT32_MAX)
		n += (size_t)snprintf(out + n, room - n, ", from %g", f->lo);
	else if (f->lo != 0 || f->hi != 0)
		n += (size_t)snprintf(out + n, room - n, ", %g to %g", f->lo, f->hi);
	snprintf(out + n, room - n, " |");
}

static char *read_text(const char *path)
{
	enum { ROOM = 1 << 18 };
	FILE *f = fopen(path, "rb");
	if (f == NULL)
		fail_msg("no %s here", path);
	char *text = malloc(ROOM);
	size_t n = fread(text, 1, ROOM - 1, f);
	text[n] = '\0';
	fclose(f);
	return text;
}

static size_t count(const char *text, const char *what)
{
	size_t n = 0;
	for (const char *p = text; (p = strstr(p, what)) != NULL; p++)
		n++;
	return n;
}

static void api_md_agrees_with_the_table(void **state)
{
	char *text = read_text("etc/api.md"), row[512];
	(void)state;
	char *fields = strstr(text, "\n| field |");
	assert_non_null(fields);
	char *end = strstr(fields, "\n\n");
	assert_non_null(end);
	*end = '\0';
	for (size_t i = 0; i < n_request_fields; i++) {
		row[0] = '\n';
		row_of(&request_fields[i], row + 1, sizeof row - 1);
		if (count(fields, row) != 1)
			fail_msg("etc/api.md has %zu rows that begin with %s", count(fields, row), row + 1);
	}
	assert_int_equal(count(fields, "\n| `"), n_request_fields);
	free(text);
}

/* What its line in the table of other servers' fields says, as far as the row alone decides. */
static void api_md_has_the_fields_of_other_servers(void **state)
{
	char *text = read_text("etc/api.md"), line[256];
	(void)state;
	char *table = strstr(text, "\n| field | of | here |");
	assert_non_null(table);
	size_t n = 0;
	for (size_t i = 0; i < n_request_fields; i++) {
		const struct request_field *f = &request_fields[i];
		size_t at = (size_t)snprintf(line, sizeof line, "\n| `%s` | ", f->name);
		if (f->servers == 0)
			continue;
		for (unsigned k = 0, any = 0; k < N_SERVERS; k++)
			if ((f->servers & 1u << k) != 0)
				at += (size_t)snprintf(line + at, sizeof line - at, "%s%s", any++ > 0 ? ", " : "",
						       servers[k]);
		snprintf(line + at, sizeof line - at, " | ");
		char *found = strstr(table, line);
		if (found == NULL) {
			fail_msg("etc/api.md has no line%s", line);
			continue;
		}
		const char *what = f->does == FIELD_REFUSED   ? "refused"
				   : f->does == FIELD_IGNORED ? "of no effect"
				   : f->of != NULL            ? "honoured as `"
							      : "honoured";
		char *end = strchr(found + 1, '\n');
		*end = '\0';
		if (strstr(found, what) == NULL ||
		    (f->of != NULL && f->does == FIELD_HONOURED && strstr(found, f->of) == NULL))
			fail_msg("etc/api.md: %s is %s", f->name, what);
		*end = '\n';
		n++;
	}
	assert_true(n > 200);
	free(text);
}

/* ---- the parsers and openapi.json ---- */

static int parse(enum request_endpoint endpoint, const char *body, struct request_error *e)
{
	const struct request_limits limits = {.messages = 4, .json_depth = 8, .prompts = 4};
	union {
		struct chat_request chat;
		struct completion_request completion;
		struct response_request response;
	} r;
	int rc;
	if (endpoint == REQUEST_CHAT) {
		if ((rc = chat_request_parse(body, strlen(body), &limits, &r.chat, e)) == 0)
			chat_request_dispose(&r.chat);
	} else if (endpoint == REQUEST_COMPLETION) {
		if ((rc = completion_request_parse(body, strlen(body), &limits, &r.completion, e)) == 0)
			completion_request_dispose(&r.completion);
	} else {
		if ((rc = response_request_parse(body, strlen(body), &limits, &r.response, e)) == 0)
			response_request_dispose(&r.response);
	}
	return rc;
}

/* The least body with the field in it; `owner` is NULL or the object that it is a member of. */
static char *body_with(const struct endpoint *p, const char *owner, const char *key, json_t *v)
{
	json_t *body = json_loads(p->base, 0, NULL), *object = body;
	if (strcmp(owner ? owner : key, "stream_options") == 0)
		json_object_set_new(body, "stream", json_true());
	if (owner != NULL) {
		object = json_object();
		json_object_set_new(body, owner, object);
		if (strcmp(owner, "prompt") == 0)
			json_object_set_new(object, "id", json_string("p"));
	}
	json_object_set(object, key, v);
	char *text = json_dumps(body, 0);
	json_decref(body);
	return text;
}

/* code NULL: it is taken. */
static void expect(const struct endpoint *p, const char *owner, const char *key, json_t *v, const char *code)
{
	char *body = body_with(p, owner, key, v), name[96];
	struct request_error e = {0};
	int rc = parse(p->endpoint, body, &e);
	snprintf(name, sizeof name, "%s%s%s", owner ? owner : "", owner ? "." : "", key);
	if (code == NULL && rc != 0)
		fail_msg("%s: not taken: %s", body, e.message);
	if (code != NULL &&
	    (rc != SL_EINVAL || strcmp(e.param, name) != 0 || e.code == NULL || strcmp(e.code, code) != 0))
		fail_msg("%s: %d, param %s, code %s, not %s", body, rc, e.param, e.code ? e.code : "null", code);
	free(body);
}

/* A value of each type; of a refused field it asks for something. */
static const char *const samples[] = {"true", "2", "0.5", "\"x\"", "[1]", "{\"type\":\"x\"}"};

static bool fits(const json_t *property, size_t type)
{
	return has_type(property, types[type].name) || (types[type].type == TYPE_INT && has_type(property, "number"));
}

static void check_types(const struct endpoint *p, const char *owner, const char *key, const json_t *property)
{
	for (size_t i = 0; i < N_TYPES; i++) {
		json_t *v = json_loads(samples[i], JSON_DECODE_ANY, NULL);
		if (!fits(property, i))
			expect(p, owner, key, v, "invalid_type");
		json_decref(v);
	}
	expect(p, owner, key, json_null(), has_type(property, "null") ? NULL : "missing_required_parameter");
}

static void check_number(const struct endpoint *p, const char *owner, const char *key, const json_t *property,
			 const char *bound, double off)
{
	const json_t *v = member(property, bound);
	if (v == NULL)
		return;
	json_t *outside = has_type(property, "integer") ? json_integer((json_int_t)(json_number_value(v) + off))
							: json_real(json_number_value(v) + off);
	expect(p, owner, key, outside, "invalid_value");
	json_decref(outside);
}

static void ranges_read_as_english(void **state)
{
	static const char *const cases[][2] = {
	    {"\"max_tokens\":-1", "Invalid value for 'max_tokens': it must be between 1 and 2147483647, not -1."},
	    {"\"temperature\":2.5", "Invalid value for 'temperature': it must be between 0 and 2, not 2.5."},
	    {"\"top_p\":0", "Invalid value for 'top_p': it must be above 0 and at most 1, not 0."},
	    {"\"logit_bias\":{\"5\":101}",
	     "Invalid value for 'logit_bias.5': it must be between -100 and 100, not 101."},
	    {"\"stop_token_ids\":[1,-7]",
	     "Invalid value for 'stop_token_ids[1]': it must be between 0 and 2147483647, not -7."}};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct request_error e = {0};
		char body[256];
		snprintf(body, sizeof body, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],%s}",
			 cases[i][0]);
		assert_int_equal(parse(REQUEST_CHAT, body, &e), SL_EINVAL);
		assert_string_equal(e.message, cases[i][1]);
	}
}

static void check_refused(const struct endpoint *p, const char *owner, const char *key, const json_t *property)
{
	const json_t *examples = member(property, "examples");
	bool both = json_array_size(examples) == 0;
	for (size_t i = 0; i < N_TYPES; i++) {
		json_t *v = json_loads(samples[i], JSON_DECODE_ANY, NULL);
		if (types[i].type == TYPE_BOOL && !both && json_is_true(json_array_get(examples, 0))) {
			json_decref(v);
			v = json_false();
		}
		if (fits(property, i))
			expect(p, owner, key, v, "unsupported_parameter");
		json_decref(v);
	}
	for (size_t i = 0; i < json_array_size(examples); i++)
		expect(p, owner, key, json_array_get(examples, i), NULL);
}

static void check_ignored(const struct endpoint *p, const char *owner, const char *key, const json_t *property)
{
	for (size_t i = 0; i < N_TYPES; i++) {
		json_t *v = json_loads(types[i].type == TYPE_OBJ ? "{}" : samples[i], JSON_DECODE_ANY, NULL);
		if (has_type(property, types[i].name) && member(property, "enum") == NULL)
			expect(p, owner, key, v, NULL);
		json_decref(v);
	}
	for (size_t i = 0; i < json_array_size(member(property, "enum")); i++)
		expect(p, owner, key, json_array_get(member(property, "enum"), i), NULL);
}

static size_t check_all(const struct endpoint *p, const char *owner, const json_t *schema)
{
	const char *key;
	json_t *property;
	size_t n = 0;
	json_object_foreach((json_t *)(uintptr_t)member(schema, "properties"), key, property)
	{
		const char *what = json_string_value(member(property, "x-sluice"));
		n++;
		check_types(p, owner, key, property);
		if (strcmp(what, "refused") == 0) {
			check_refused(p, owner, key, property);
			continue;
		}
		check_number(p, owner, key, property, "minimum", -1);
		check_number(p, owner, key, property, "exclusiveMinimum", 0);
		check_number(p, owner, key, property, "maximum", 1);
		json_t *odd = json_string("no such value");
		if (member(property, "enum") != NULL)
			expect(p, owner, key, odd, "invalid_value");
		json_decref(odd);
		if (strcmp(what, "ignored") == 0)
			check_ignored(p, owner, key, property);
		if (member(property, "properties") != NULL)
			n += check_all(p, key, property);
	}
	return n;
}

static void the_parsers_do_what_openapi_says(void **state)
{
	(void)state;
	for (int i = 0; i < N_ENDPOINTS; i++)
		assert_true(check_all(&endpoints[i], NULL, schema_of(&endpoints[i])) > 50);
}

/* What is honoured is read by somebody, and what has the same place is one field: otherwise it would be read as
 * another. (The model is looked for before anything is checked; of objects with rows for their members only those
 * count.) */
static void each_honoured_field_has_a_place_of_its_own(void **state)
{
	(void)state;
	for (size_t i = 0; i < n_request_fields; i++) {
		const struct request_field *f = &request_fields[i];
		const char *of = f->of != NULL ? f->of : f->name;
		bool is_read = f->does == FIELD_HONOURED && strchr(f->name, '.') == NULL &&
			       strcmp(f->name, "model") != 0 && !f->members;
		if (is_read && f->value == VALUE_NONE)
			fail_msg("%s is honoured and read by nobody", f->name);
		assert_true(f->value < N_REQUEST_VALUES);
		for (size_t k = 0; k < n_request_fields; k++) {
			const struct request_field *g = &request_fields[k];
			const char *its = g->of != NULL ? g->of : g->name;
			if (f->value != VALUE_NONE && g->value == f->value && (f->endpoints & g->endpoints) != 0 &&
			    strcmp(of, its) != 0 && strchr(f->name, '.') == NULL && strchr(g->name, '.') == NULL)
				fail_msg("%s and %s have one place", f->name, g->name);
		}
	}
}

/* What a field is another name of is a field of the same requests, and read in the same way. */
static void each_alias_has_its_field(void **state)
{
	(void)state;
	for (size_t i = 0; i < n_request_fields; i++) {
		const struct request_field *f = &request_fields[i];
		for (int k = 0; k < N_ENDPOINTS && f->of != NULL; k++) {
			if ((f->endpoints & endpoints[k].endpoint) == 0)
				continue;
			const struct request_field *of = request_field_find(f->of, endpoints[k].endpoint);
			if (of == NULL || of->value != f->value || of->of != NULL)
				fail_msg("%s is no other name of %s", f->name, f->of);
		}
	}
}

static int load(void **state)
{
	const struct www_file *f = www_find("openapi.json");
	(void)state;
	doc = json_loadb((const char *)f->bytes, f->n_bytes, JSON_REJECT_DUPLICATES, NULL);
	return doc != NULL ? 0 : -1;
}

static int unload(void **state)
{
	(void)state;
	json_decref(doc);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_table_is_sorted),
	    cmocka_unit_test(each_honoured_field_has_a_place_of_its_own),
	    cmocka_unit_test(each_alias_has_its_field),
	    cmocka_unit_test(openapi_agrees_with_the_table),
	    cmocka_unit_test(api_md_agrees_with_the_table),
	    cmocka_unit_test(api_md_has_the_fields_of_other_servers),
	    cmocka_unit_test(the_parsers_do_what_openapi_says),
	    cmocka_unit_test(ranges_read_as_english),
	};
	return cmocka_run_group_tests(tests, load, unload);
}
