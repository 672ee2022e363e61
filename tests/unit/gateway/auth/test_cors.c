/* SPDX-License-Identifier: Apache-2.0
 *
 * Which origins may read answers, and what a preflight is told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "gateway/auth/cors.h"

enum { MAX_REQUEST_FIELDS = 4 };

static struct gw_config with_origins(char **origins, size_t n)
{
	return (struct gw_config){.cors_origins = {.items = origins, .n = n}};
}

static const char *value_of(const struct http_field *fields, size_t n, const char *name)
{
	const char *found = NULL;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(fields[i].name, name) != 0)
			continue;
		assert_null(found); /* twice would be read as a list */
		found = fields[i].value;
	}
	return found;
}

static void an_origin_is_matched_whole(void **state)
{
	char *entries[] = {"https://a.example", "http://localhost:*"};
	struct gw_config cfg = with_origins(entries, 2);
	static const char *const yes[] = {"https://a.example", "http://localhost", "http://localhost:1",
					  "http://localhost:65535"};
	static const char *const no[] = {"",
					 "null",
					 "https://a.example.evil",
					 "https://a.exampl",
					 "https://a.example:443",
					 "http://a.example",
					 "https://evil.https://a.example",
					 "HTTPS://a.example",
					 "http://localhost:",
					 "http://localhost:x",
					 "http://localhost:80.evil.example",
					 "http://localhost:80 ",
					 "http://localhost:655350",
					 "http://localhost.evil.example",
					 "http://localhost.evil:80",
					 "https://localhost:80",
					 "http://localhost:*"};
	(void)state;
	for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
		if (!cors_allows(&cfg, yes[i]))
			fail_msg("%s is refused", yes[i]);
	for (size_t i = 0; i < sizeof no / sizeof no[0]; i++)
		if (cors_allows(&cfg, no[i]))
			fail_msg("%s is allowed", no[i]);
}

static void a_star_alone_is_no_wildcard(void **state)
{
	char *entries[] = {"*", ":*"};
	struct gw_config cfg = with_origins(entries, 2);
	(void)state;
	assert_false(cors_allows(&cfg, "https://a.example"));
	assert_false(cors_allows(&cfg, "null"));
}

static void an_answer_names_the_origin_or_none(void **state)
{
	char *entries[] = {"https://a.example"};
	struct gw_config cfg = with_origins(entries, 1), none = with_origins(NULL, 0);
	struct http_field origin = {"origin", "https://a.example"}, out[CORS_MAX_FIELDS];
	struct http_request r = {.method = "POST", .fields = &origin, .n_fields = 1};
	(void)state;
	size_t n = cors_fields(&cfg, &r, out);
	assert_string_equal(value_of(out, n, "access-control-allow-origin"), "https://a.example");
	assert_string_equal(value_of(out, n, "vary"), "Origin");
	assert_non_null(strstr(value_of(out, n, "access-control-expose-headers"), "x-request-id"));
	assert_non_null(strstr(value_of(out, n, "access-control-expose-headers"), "retry-after"));
	assert_null(value_of(out, n, "access-control-allow-credentials"));

	/* Others get no permission, but the same Vary: a cache may keep either answer. */
	origin.value = "https://b.example";
	n = cors_fields(&cfg, &r, out);
	assert_int_equal(n, 1);
	assert_string_equal(value_of(out, n, "vary"), "Origin");
	r.n_fields = 0;
	n = cors_fields(&cfg, &r, out);
	assert_int_equal(n, 1);
	assert_string_equal(value_of(out, n, "vary"), "Origin");

	r.n_fields = 1;
	assert_int_equal(cors_fields(&none, &r, out), 0);
}

static void a_preflight_has_a_method_and_an_origin(void **state)
{
	struct http_field fields[] = {{"origin", "https://a.example"}, {"access-control-request-method", "POST"}};
	struct http_request r = {.method = "OPTIONS", .fields = fields, .n_fields = 2};
	(void)state;
	assert_true(cors_is_preflight(&r));
	r.method = "POST";
	assert_false(cors_is_preflight(&r));
	r.method = "OPTIONS";
	r.n_fields = 1;
	assert_false(cors_is_preflight(&r));
	r.fields = fields + 1;
	assert_false(cors_is_preflight(&r));
}

/* The list of allowed header names for what was asked. */
static const char *headers_for(const char *asked, char *headers)
{
	static struct http_field out[CORS_PREFLIGHT_FIELDS];
	struct http_field f = {"access-control-request-headers", asked};
	struct http_request r = {.method = "OPTIONS", .fields = &f, .n_fields = asked != NULL};
	size_t n = cors_preflight_fields(&r, "POST, OPTIONS", headers, out);
	assert_true(n <= CORS_PREFLIGHT_FIELDS);
	assert_string_equal(value_of(out, n, "access-control-allow-methods"), "POST, OPTIONS");
	assert_string_equal(value_of(out, n, "access-control-max-age"), "7200");
	return value_of(out, n, "access-control-allow-headers");
}

static void a_preflight_allows_what_clients_send(void **state)
{
	char headers[CORS_HEADERS_BYTES];
	(void)state;
	assert_string_equal(headers_for(NULL, headers), "authorization, content-type");
	assert_string_equal(headers_for("", headers), "authorization, content-type");
	/* The names that the OpenAI library for JavaScript adds. */
	assert_string_equal(headers_for("authorization,content-type,x-stainless-arch,x-stainless-retry-count", headers),
			    "authorization, content-type, x-stainless-arch, x-stainless-retry-count");
	assert_string_equal(headers_for("Authorization, Content-Type , User-Agent", headers),
			    "authorization, content-type, User-Agent");
	assert_string_equal(headers_for("x-api-key,anthropic-version,anthropic-beta", headers),
			    "authorization, content-type, x-api-key, anthropic-version, anthropic-beta");
	assert_string_equal(headers_for("x-evil, cookie, x-request-id", headers),
			    "authorization, content-type, x-request-id");
}

static void what_is_no_name_is_left_out(void **state)
{
	char headers[CORS_HEADERS_BYTES];
	(void)state;
	assert_string_equal(headers_for("x-stainless-a\x01,x-stainless-\xc3\xa9,x-stainless-(b),,, ,", headers),
			    "authorization, content-type");
	char longer[80] = "x-stainless-";
	memset(longer + 12, 'a', 60);
	longer[72] = '\0';
	assert_string_equal(headers_for(longer, headers), "authorization, content-type");
}

static void however_much_is_asked_the_list_is_bounded(void **state)
{
	char headers[CORS_HEADERS_BYTES + 16], asked[16384];
	size_t n = 0;
	(void)state;
	memset(headers, '#', sizeof headers);
	for (int i = 0; i < 600; i++)
		n += (size_t)snprintf(asked + n, sizeof asked - n, "x-stainless-%d,", i);
	const char *got = headers_for(asked, headers);
	assert_true(strlen(got) < CORS_HEADERS_BYTES);
	assert_true(strlen(got) > CORS_HEADERS_BYTES - 64);
	assert_int_equal(headers[CORS_HEADERS_BYTES], '#');
	assert_null(strstr(got, ",,"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_origin_is_matched_whole),
	    cmocka_unit_test(a_star_alone_is_no_wildcard),
	    cmocka_unit_test(an_answer_names_the_origin_or_none),
	    cmocka_unit_test(a_preflight_has_a_method_and_an_origin),
	    cmocka_unit_test(a_preflight_allows_what_clients_send),
	    cmocka_unit_test(what_is_no_name_is_left_out),
	    cmocka_unit_test(however_much_is_asked_the_list_is_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
