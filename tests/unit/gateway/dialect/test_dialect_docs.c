/* SPDX-License-Identifier: Apache-2.0
 *
 * openapi.json tells of each field of the dialects what their tables do with it, and no other field.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "gateway/api/www.h"
#include "gateway/dialect/messages_request.h"
#include "gateway/dialect/ollama_request.h"

static json_t *doc;

static int load(void **state)
{
	const struct www_file *f = www_find("openapi.json");
	(void)state;
	doc = json_loadb((const char *)f->bytes, f->n_bytes, 0, NULL);
	return doc != NULL ? 0 : -1;
}

static int unload(void **state)
{
	(void)state;
	json_decref(doc);
	return 0;
}

static bool has_type(const json_t *property, const char *want)
{
	const json_t *type = json_object_get(property, "type");
	if (json_is_string(type))
		return strcmp(json_string_value(type), want) == 0;
	for (size_t i = 0; i < json_array_size(type); i++)
		if (strcmp(json_string_value(json_array_get(type, i)), want) == 0)
			return true;
	return false;
}

static void compare(const struct request_field *f, const json_t *property)
{
	static const char *const does[] = {"honoured", "ignored", "refused"};
	static const struct {
		unsigned type;
		const char *name;
	} types[] = {{TYPE_BOOL, "boolean"}, {TYPE_INT, "integer"}, {TYPE_NUM, "number"},
		     {TYPE_STR, "string"},   {TYPE_ARR, "array"},   {TYPE_OBJ, "object"}};
	const char *told = json_string_value(json_object_get(property, "x-sluice"));
	if (property == NULL || told == NULL || strcmp(told, does[f->does]) != 0)
		fail_msg("%s is told as %s", f->name, told != NULL ? told : "nothing");
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (has_type(property, types[i].name) != ((f->types & types[i].type) != 0))
			fail_msg("%s: %s", f->name, types[i].name);
	if (f->lo != 0 || f->hi != 0)
		assert_true(json_number_value(json_object_get(property, "maximum")) == f->hi);
}

/* How many properties there are, and in them. */
static size_t compare_all(const struct request_shape *shape, const json_t *schema, const char *prefix)
{
	const char *key;
	json_t *property;
	size_t n = 0;
	json_object_foreach(json_object_get(schema, "properties"), key, property)
	{
		char name[96];
		snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", key);
		const struct request_field *f = request_rows_find(shape->rows, shape->n, shape->endpoints, name);
		if (f == NULL)
			fail_msg("%s has no row", name);
		else
			compare(f, property);
		n += 1 + compare_all(shape, property, name);
	}
	return n;
}

static void documents_are_the_tables(void **state)
{
	static const struct {
		const struct request_shape *shape;
		const char *schema;
	} all[] = {{&messages_shape, "MessagesRequest"},
		   {&messages_shape, "MessagesCountRequest"},
		   {&ollama_chat_shape, "OllamaChatRequest"},
		   {&ollama_generate_shape, "OllamaGenerateRequest"}};
	const json_t *schemas = json_object_get(json_object_get(doc, "components"), "schemas");
	(void)state;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		const struct request_shape *shape = all[i].shape;
		size_t n = 0;
		for (size_t k = 0; k < shape->n; k++) {
			n += (shape->rows[k].endpoints & shape->endpoints) != 0;
			if (k > 0)
				assert_true(strcmp(shape->rows[k - 1].name, shape->rows[k].name) < 0);
		}
		assert_int_equal(compare_all(shape, json_object_get(schemas, all[i].schema), ""), n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(documents_are_the_tables)};
	return cmocka_run_group_tests(tests, load, unload);
}
