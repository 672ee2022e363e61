/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunks that are read without a tree say the same as the tree does, whatever a byte of them becomes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "engine/remote/remote_chunk.h"

static bool read_text(const char *text, struct remote_chunk *c) { return remote_chunk_read(text, strlen(text), c); }

#define CHUNK(delta) "{\"choices\":[{\"index\":0,\"delta\":{" delta "}}]}"

static const char *const plain[] = {
    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"a/"
    "b\",\"choices\":[{"
    "\"index\":0,\"delta\":{\"content\":\" word\"},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}]}",
    "{\"id\":\"1\",\"choices\":[{\"index\":3,\"delta\":{\"role\":null,\"content\":null,\"reasoning_content\":"
    "\"\\u0068m "
    "\\\"so\\\"\\n\\t\\\\\\/\",\"tool_calls\":null},\"finish_reason\":null,\"matched_stop\":null}],\"usage\":null}",
    " { \"choices\" : [ { \"delta\" : { \"role\" : \"assistant\", \"content\" : \"\" } , \"index\" : 12 } ] , \"x\": "
    "true "
    "} ",
    CHUNK("\"content\":\"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80\\r\\n\""),
};

static void what_is_read(void **state)
{
	(void)state;
	struct remote_chunk c;
	assert_true(read_text(plain[0], &c));
	assert_true(c.index == 0 && c.content.n == 5 && memcmp(c.content.at, " word", 5) == 0 && c.thought.n == 0);
	assert_false(read_text(plain[1], &c)); /* an escape by number */
	assert_true(read_text(plain[2], &c));
	assert_true(c.index == 12 && c.content.n + c.thought.n == 0);
	assert_true(read_text(plain[3], &c));
	assert_memory_equal(c.content.at, "gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80\r\n", c.content.n);
	assert_true(read_text(CHUNK("\"reasoning_content\":\"a\\\"b\",\"content\":\"\""), &c));
	assert_true(c.thought.n == 3 && memcmp(c.thought.at, "a\"b", 3) == 0);
}

static void what_is_left_to_the_tree(void **state)
{
	(void)state;
	static const char *const cases[] = {
	    "",
	    "[DONE]",
	    "{}",
	    "[]",
	    "{\"choices\":[]}",
	    "{\"choices\":[],\"usage\":{\"prompt_tokens\":1}}",
	    "{\"error\":{\"message\":\"x\"},\"choices\":[{\"index\":0,\"delta\":{}}]}",
	    "{\"choices\":[{\"index\":0,\"delta\":{}},{\"index\":1,\"delta\":{}}]}",
	    "{\"choices\":[{\"index\":0,\"delta\":{}}],\"choices\":[{\"index\":0,\"delta\":{}}]}",
	    "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}",
	    "{\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":{}}]}",
	    "{\"choices\":[{\"index\":-1,\"delta\":{}}]}",
	    "{\"choices\":[{\"index\":00,\"delta\":{}}]}",
	    "{\"choices\":[{\"index\":1e0,\"delta\":{}}]}",
	    "{\"choices\":[{\"delta\":{\"content\":\"x\"}}]}",
	    "{\"choices\":[{\"index\":0,\"text\":\"x\"}]}",
	    "{\"created\":99999999999999999999,\"choices\":[{\"index\":0,\"delta\":{}}]}",
	    "{\"created\":1.5,\"choices\":[{\"index\":0,\"delta\":{}}]}",
	    "{\"id\":\"\\x\",\"choices\":[{\"index\":0,\"delta\":{}}]}",
	    "{\"id\":\"\xff\",\"choices\":[{\"index\":0,\"delta\":{}}]}",
	    "{\"err\\u006fr\":1,\"choices\":[{\"index\":0,\"delta\":{}}]}",
	    CHUNK("\"content\":\"a\",\"content\":\"b\""),
	    CHUNK("\"content\":\"a\",\"reasoning_content\":\"b\""),
	    CHUNK("\"content\":\"a\\\\\",\"reasoning_content\":\"b\\\\\""),
	    CHUNK("\"content\":\"\\ud83d\""),
	    CHUNK("\"content\":\"\\q\""),
	    CHUNK("\"content\":7"),
	    CHUNK("\"tool_calls\":[{\"index\":0}]"),
	    CHUNK("\"reasoning\":\"x\""),
	    CHUNK("\"refusal\":\"x\""),
	    CHUNK("\"content\":\"x\"") "x",
	    CHUNK("\"content\":\"a\nb\""),
	};
	struct remote_chunk c;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (read_text(cases[i], &c))
			fail_msg("%s", cases[i]);
	/* A long text with escapes finds no room; one without needs none. */
	char text[REMOTE_CHUNK_ESCAPED + 200], big[REMOTE_CHUNK_ESCAPED + 2];
	memset(big, 'x', sizeof big - 1);
	big[sizeof big - 1] = '\0';
	snprintf(text, sizeof text, CHUNK("\"content\":\"%s\""), big);
	assert_true(read_text(text, &c) && c.content.n == sizeof big - 1);
	memcpy(strstr(text, "xx"), "\\n", 2);
	assert_false(read_text(text, &c));
}

static bool is_nothing(const json_t *v) { return v == NULL || json_is_null(v); }

static void expect_same(const char *text, size_t n, const struct remote_chunk *c)
{
	json_t *root = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
	const json_t *choices = json_object_get(root, "choices"), *choice = json_array_get(choices, 0),
		     *delta = json_object_get(choice, "delta"), *content = json_object_get(delta, "content"),
		     *thought = json_object_get(delta, "reasoning_content");
	bool same =
	    root != NULL && json_array_size(choices) == 1 && json_is_object(delta) &&
	    is_nothing(json_object_get(root, "error")) && is_nothing(json_object_get(root, "usage")) &&
	    is_nothing(json_object_get(choice, "finish_reason")) && is_nothing(json_object_get(choice, "logprobs")) &&
	    is_nothing(json_object_get(delta, "tool_calls")) && is_nothing(json_object_get(delta, "reasoning")) &&
	    is_nothing(json_object_get(delta, "refusal")) && json_is_integer(json_object_get(choice, "index")) &&
	    (uint64_t)json_integer_value(json_object_get(choice, "index")) == c->index &&
	    json_string_length(content) == c->content.n && json_string_length(thought) == c->thought.n &&
	    memcmp(c->content.n > 0 ? json_string_value(content) : "", c->content.at, c->content.n) == 0 &&
	    memcmp(c->thought.n > 0 ? json_string_value(thought) : "", c->thought.at, c->thought.n) == 0;
	if (!same)
		fail_msg("%.*s", (int)n, text);
	json_decref(root);
}

static uint64_t random_state = 0x2545F4914F6CDD1D;

static size_t below(size_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (size_t)(random_state % n);
}

/* One to four bytes of it changed, left out or doubled, most often to bytes that mean something. */
static size_t mutate(char *text, size_t n)
{
	static const char bytes[] = "\"\\{}[],:0123456789nulltruefalse -+.eE\n\t\xc3\xbc\xff/bfrt";
	for (size_t k = below(4) + 1; k > 0 && n > 1; k--) {
		size_t at = below(n);
		switch (below(3)) {
		case 0: text[at] = bytes[below(sizeof bytes - 1)]; break;
		case 1: memmove(text + at, text + at + 1, --n - at); break;
		default: memmove(text + at + 1, text + at, n++ - at);
		}
	}
	return n;
}

static void whatever_a_byte_becomes(void **state)
{
	(void)state;
	enum { ROUNDS = 200000 };
	unsigned n_read = 0;
	for (int i = 0; i < ROUNDS; i++) {
		char text[512];
		struct remote_chunk c;
		const char *seed = plain[below(sizeof plain / sizeof *plain)];
		size_t n = strlen(seed);
		memcpy(text, seed, n);
		n = mutate(text, n);
		char *exact = test_malloc(n);
		memcpy(exact, text, n);
		if (remote_chunk_read(exact, n, &c)) {
			n_read++;
			expect_same(exact, n, &c);
		}
		test_free(exact);
	}
	assert_in_range(n_read, ROUNDS / 20, ROUNDS);
}

/* A text as it stands in JSON, mostly plain. */
static size_t put_content(char *to)
{
	static const char *const pieces[] = {"a",   " word", "0123456789", "gr\xc3\xbc\xc3\x9f", "\xf0\x9f\x98\x80",
					     "}]}", "{",     ":"};
	static const char *const odd[] = {"\\n", "\\\"", "\"", "\\u00fc", "\xff", "\n", "\xc3", "\",\"role\":\"x"};
	size_t n = 0;
	for (size_t k = below(4); k > 0; k--)
		n += (size_t)sprintf(to + n, "%s", pieces[below(sizeof pieces / sizeof *pieces)]);
	if (below(8) == 0)
		n += (size_t)sprintf(to + n, "%s", odd[below(sizeof odd / sizeof *odd)]);
	return n;
}

/* Chunks in a row, alike or not: each is read as it is alone. */
static void what_came_before_changes_nothing(void **state)
{
	(void)state;
	static const char *const around[][2] = {
	    {"{\"id\":\"1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"", "\"},\"finish_reason\":null}]}"},
	    {"{\"id\":\"1\",\"choices\":[{\"index\":1,\"delta\":{\"content\":\"", "\"},\"finish_reason\":null}]}"},
	    {"{\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"", "\"}}]}"},
	    {"{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"", "\",\"reasoning_content\":\"\"}}]}"},
	    {"{\"choices\":[{\"delta\":{\"content\":\"", "\"},\"index\":2}]}"},
	};
	enum { ROUNDS = 50000, EVENT_BYTES = 512 };
	unsigned n_fitted = 0;
	size_t which = 0;
	struct remote_form form;
	remote_form_init(&form);
	for (int i = 0; i < ROUNDS; i++) {
		char text[EVENT_BYTES], content[128] = "";
		struct remote_chunk c, alone;
		which = below(10) == 0 ? below(sizeof around / sizeof *around) : which;
		put_content(content);
		size_t n = (size_t)snprintf(text, sizeof text, "%s%s%s", around[which][0], content, around[which][1]);
		n = below(6) == 0 ? mutate(text, n) : n;
		char *exact = test_malloc(n);
		memcpy(exact, text, n);
		bool ok = remote_form_read(&form, exact, n, &c);
		assert_int_equal(ok, remote_chunk_read(exact, n, &alone));
		if (ok)
			expect_same(exact, n, &c);
		n_fitted += ok && form.n_changed == 0;
		test_free(exact);
		if (below(500) == 0) { /* another answer */
			remote_form_dispose(&form);
			remote_form_init(&form);
		}
	}
	remote_form_dispose(&form);
	assert_in_range(n_fitted, ROUNDS / 4, ROUNDS);
}

/* An upstream whose chunks differ in more than their text costs no copies for ever, nor does a chunk that is large. */
static void forms_that_never_fit_are_given_up(void **state)
{
	(void)state;
	struct remote_form form;
	struct remote_chunk c;
	char text[4096], pad[3000];
	remote_form_init(&form);
	memset(pad, 'x', sizeof pad - 1);
	pad[sizeof pad - 1] = '\0';
	size_t n = (size_t)snprintf(text, sizeof text,
				    "{\"pad\":\"%s\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}", pad);
	assert_true(remote_form_read(&form, text, n, &c));
	assert_int_equal(form.text.len, 0);
	for (int i = 0; i < 100; i++) {
		n = (size_t)snprintf(text, sizeof text,
				     "{\"n\":%d,\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}", i);
		assert_true(remote_form_read(&form, text, n, &c));
		assert_true(c.content.n == 1 && c.content.at[0] == 'a');
	}
	assert_memory_equal(buf_data(&form.text), "{\"n\":14,", 8); /* the sixteenth that was read */
	remote_form_dispose(&form);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_read),
	    cmocka_unit_test(what_is_left_to_the_tree),
	    cmocka_unit_test(whatever_a_byte_becomes),
	    cmocka_unit_test(what_came_before_changes_nothing),
	    cmocka_unit_test(forms_that_never_fit_are_given_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
