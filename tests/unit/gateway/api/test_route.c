/* SPDX-License-Identifier: Apache-2.0
 *
 * The route table: exact paths, default deny, and the description that /openapi.json gives of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "gateway/exchange/route.h"
#include "gateway/api/www.h"

static void matches_exactly(void **state)
{
	static const char *const unknown[] = {"",
					      "/v1",
					      "//v1/models",
					      "/v1/models/",
					      "/v1/models//a",
					      "/v1/models/a/",
					      "/v1/models/a//b",
					      "/v1/responses/a/b",
					      "/v1/%6dodels",
					      "/v1%2Fmodels",
					      "/V1/models",
					      "/v1/models?",
					      "/v1/./models",
					      "/live/",
					      "/metrics/",
					      "/api",
					      "/api/chat/",
					      "/v1/messages/",
					      "*",
					      "http://localhost/live",
					      "/www/",
					      "/www/../live",
					      "/www/a/b"};
	const char *allow;
	(void)state;
	for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
		if (route_find("GET", unknown[i], &allow) != NULL || allow != NULL)
			fail_msg("%s has a route", unknown[i]);
	}
	char part[8];
	const struct route *r = route_find("GET", "/v1/models/a", &allow);
	assert_non_null(r);
	assert_string_equal(r->name, "model");
	assert_true(route_part(r, "/v1/models/a", part, sizeof part));
	assert_string_equal(part, "a");
	assert_true(route_part(r, "/v1/models/1234567", part, sizeof part));
	assert_false(route_part(r, "/v1/models/12345678", part, sizeof part));
	/* Names of models may have parts (openai-python sends them as they are, openai-node as %2F). */
	assert_ptr_equal(route_find("GET", "/v1/models/a/b", &allow), r);
	assert_true(route_part(r, "/v1/models/a/b", part, sizeof part));
	assert_string_equal(part, "a/b");
	assert_string_equal(route_methods("/v1/streams/a"), "GET, HEAD, DELETE, OPTIONS");
	assert_ptr_equal(route_find("HEAD", "/v1/models/a", &allow), r);
	assert_null(route_find("POST", "/v1/models", &allow));
	assert_string_equal(allow, "GET, HEAD, OPTIONS");
	assert_null(route_find("GET", "/v1/chat/completions", &allow));
	assert_string_equal(allow, "POST, OPTIONS");
}

static const char *const methods[] = {"GET", "POST", "DELETE", "PUT", "PATCH"};
enum { N_METHODS = sizeof methods / sizeof *methods };

/* A path that the route's pattern means, with a name of its kind. */
static void path_of(const struct route *r, char *out, size_t room)
{
	const char *name = strncmp(r->path, "/v1/responses/", 14) == 0       ? "resp_1"
			   : strncmp(r->path, "/v1/conversations/", 18) == 0 ? "conv_1"
			   : strncmp(r->path, "/v1/streams/", 12) == 0       ? "chatcmpl-1"
			   : strncmp(r->path, "/v1/probe/", 10) == 0         ? "probe_1"
			   : strncmp(r->path, "/v1/files/", 10) == 0         ? "file-1"
									     : "x";
	size_t n = 0;
	for (const char *p = r->path; *p != '\0'; p++) {
		if (*p == '{') {
			n += (size_t)snprintf(out + n, room - n, "%s", name);
			p = strchr(p, '}');
		} else {
			out[n++] = *p;
		}
		assert_true(n < room);
	}
	out[n] = '\0';
}

/* Every served path refuses other methods with 405 and its own methods; nothing below it is served. */
static void every_path_refuses_other_methods_and_what_is_below_it(void **state)
{
	(void)state;
	for (size_t i = 0; i < n_routes; i++) {
		char path[96], below[128];
		const char *allow;
		path_of(&routes[i], path, sizeof path);
		assert_ptr_equal(route_find(routes[i].method, path, &allow), &routes[i]);
		for (int k = 0; k < N_METHODS; k++) {
			const struct route *r = route_find(methods[k], path, &allow);
			if (r == NULL && (allow == NULL || strstr(allow, routes[i].method) == NULL ||
					  strstr(allow, methods[k]) != NULL))
				fail_msg("%s %s: allowed is %s", methods[k], path, allow != NULL ? allow : "nothing");
			snprintf(below, sizeof below, "%s/unknown", path);
			r = route_find(methods[k], below, &allow);
			if (r != NULL && r->path[strlen(r->path) - 1] != '}')
				fail_msg("%s %s is served", methods[k], below);
			/* An item, a model and an answer may have any name. */
			if (allow != NULL && strcmp(routes[i].name, "conversation_items") != 0 &&
			    strcmp(routes[i].name, "models") != 0 && strcmp(routes[i].name, "admin_streams") != 0)
				fail_msg("%s %s: allowed is %s", methods[k], below, allow);
		}
	}
}

static void unknown_names_are_unknown_paths(void **state)
{
	static const char *const unknown[][2] = {{"POST", "/v1/chat/foo"},
						 {"GET", "/v1/chat/foo"},
						 {"POST", "/v1/embeddings/x"},
						 {"GET", "/v1/embeddings/x"},
						 {"POST", "/v1/responses/compact"},
						 {"PUT", "/v1/responses/x"},
						 {"GET", "/v1/responses/resp_1/unknown"},
						 {"POST", "/v1/responses/resp_1/input_items/x"},
						 {"PUT", "/v1/conversations/x"},
						 {"POST", "/v1/streams/x"},
						 {"POST", "/v1/models/a/b"},
						 {"DELETE", "/v1/models/a/permissions"},
						 {"POST", "/v1/moderations"},
						 {"POST", "/v1/messages/batches"},
						 {"POST", "/api/pull"},
						 {"DELETE", "/api/delete"},
						 {"POST", "/v1/images/generations"},
						 {"PUT", "/v1/files/x"},
						 {"POST", "/v1/files/file-1/content/x"},
						 {"GET", "/v1/uploads"}};
	const char *allow;
	(void)state;
	for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
		if (route_find(unknown[i][0], unknown[i][1], &allow) != NULL || allow != NULL)
			fail_msg("%s %s: %s", unknown[i][0], unknown[i][1], allow != NULL ? allow : "served");
	assert_null(route_find("OPTIONS", "/v1/models/a/b", &allow));
	assert_string_equal(allow, "GET, HEAD, OPTIONS");
}

static void escapes_are_undone(void **state)
{
	static const char *const good[][2] = {{"a", "a"},
					      {"org%2Fname", "org/name"},
					      {"org%2fname%3Aq8", "org/name:q8"},
					      {"%C3%A9", "\xc3\xa9"},
					      {"%252F", "%2F"},
					      {"", ""}};
	static const char *const bad[] = {"%", "a%2", "%2", "%zz", "%2g", "%00", "%0a", "%7F", "%ff", "%C3", "%%2F"};
	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		char text[24];
		snprintf(text, sizeof text, "%s", good[i][0]);
		assert_true(route_unescape(text));
		assert_string_equal(text, good[i][1]);
	}
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		char text[24];
		snprintf(text, sizeof text, "%s", bad[i]);
		if (route_unescape(text))
			fail_msg("%s is taken", bad[i]);
	}
}

/* What may be seen without a key is written down here once more, so that no row becomes public by a slip. */
static void only_these_are_public(void **state)
{
	static const char *const public[] = {
	    "/live",        "/ready",     "/health",      "/openapi.json",      "/",     "/www/{file}",
	    "/favicon.ico", "/client.js", "/client.d.ts", "/www/vendor/{file}", "/admin"};
	(void)state;
	for (size_t i = 0; i < n_routes; i++) {
		bool known = false;
		for (size_t k = 0; k < sizeof public / sizeof public[0]; k++)
			known = known || strcmp(public[k], routes[i].path) == 0;
		if (known != (routes[i].access == ACCESS_PUBLIC))
			fail_msg("%s", routes[i].path);
		assert_true((routes[i].access == ACCESS_ADMIN) == (strcmp(routes[i].path, "/metrics") == 0));
		bool operates = strncmp(routes[i].path, "/v1/admin/", 10) == 0 ||
				strcmp(routes[i].path, "/v1/load_lora_adapter") == 0 ||
				strcmp(routes[i].path, "/v1/unload_lora_adapter") == 0;
		assert_true((routes[i].access == ACCESS_ADMIN_ONLY) == operates);
	}
}

static void openapi_says_what_is_served(void **state)
{
	const struct www_file *f = www_find("openapi.json");
	json_error_t e;
	(void)state;
	assert_non_null(f);
	json_t *doc = json_loadb((const char *)f->bytes, f->n_bytes, JSON_REJECT_DUPLICATES, &e);
	if (doc == NULL)
		fail_msg("openapi.json: %s, line %d", e.text, e.line);
	assert_string_equal(json_string_value(json_object_get(doc, "openapi")), "3.1.0");
	const json_t *paths = json_object_get(doc, "paths");
	size_t n = 0;
	for (size_t i = 0; i < n_routes; i++) {
		const char *method = strcmp(routes[i].method, "GET") == 0    ? "get"
				     : strcmp(routes[i].method, "POST") == 0 ? "post"
									     : "delete";
		const json_t *op = json_object_get(json_object_get(paths, routes[i].path), method);
		if (op == NULL)
			fail_msg("%s %s is not documented", method, routes[i].path);
		/* "security": [] stands exactly at what is public. */
		assert_true((json_object_get(op, "security") != NULL) == (routes[i].access == ACCESS_PUBLIC));
	}
	const char *path;
	json_t *item;
	json_object_foreach((json_t *)(uintptr_t)paths, path, item) n += json_object_size(item);
	assert_int_equal(n, n_routes);
	json_decref(doc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(matches_exactly),
	    cmocka_unit_test(every_path_refuses_other_methods_and_what_is_below_it),
	    cmocka_unit_test(unknown_names_are_unknown_paths),
	    cmocka_unit_test(escapes_are_undone),
	    cmocka_unit_test(only_these_are_public),
	    cmocka_unit_test(openapi_says_what_is_served),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
