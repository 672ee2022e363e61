/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/client/batch_file.h"

#define REQUEST(id) \
	"{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"" id "\"}}"

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static char *get(const char *path)
{
	static char text[4096];
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	text[fread(text, 1, sizeof text - 1, f)] = '\0';
	fclose(f);
	return text;
}

static int enter(void **state)
{
	const char *tmp = getenv("TMPDIR");
	static char folder[4096];
	snprintf(folder, sizeof folder, "%s/batch-XXXXXX", tmp != NULL ? tmp : "/tmp");
	*state = folder;
	return mkdtemp(folder) == NULL || chdir(folder) != 0;
}

static void refused(const char *in, const char *out, const char *want)
{
	struct batch_file f;
	struct sl_err err = {0};
	put("in", in);
	if (out != NULL)
		put("out", out);
	assert_true(batch_file_open(&f, "in", "out", &err) < 0);
	assert_string_equal(err.text, want);
	batch_file_dispose(&f);
	unlink("out");
}

static void bad_lines_are_named(void **state)
{
	(void)state;
	refused("nonsense\n", NULL, "in: request 1: not a JSON object");
	refused(REQUEST("a") "\n\n{}\n", NULL, "in: request 2: custom_id: a string of 1 to 512 bytes is needed");
	refused("{\"custom_id\":\"a\",\"method\":\"GET\"}", NULL, "in: request 1: method: \"POST\" is needed");
	refused("{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/metrics\",\"body\":{}}", NULL,
		"in: request 1: url: one of /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings is "
		"needed");
	refused("{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/responses\",\"body\":[]}", NULL,
		"in: request 1: body: an object is needed");
	refused("{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/responses\",\"body\":{\"stream\":true}}", NULL,
		"in: request 1: body.stream: a batch is not streamed");
	refused(REQUEST("b") "\n" REQUEST("a") "\n" REQUEST("b"), NULL, "in: requests 1 and 3 have the same custom_id");
	refused(REQUEST("a"), "{\"x\":1}\n", "out: line 1 is not a result of a batch");
	refused(REQUEST("a"), "{\"custom_id\":\"z\"}\n", "out: line 1: in has no request with the custom_id \"z\"");
}

static void the_output_is_the_journal(void **state)
{
	(void)state;
	struct batch_file f, second;
	struct batch_request r;
	struct sl_err err = {0};
	put("in", REQUEST("a") "\r\n\n" REQUEST("b") "\n" REQUEST("c"));
	put("out", "{\"custom_id\":\"b\"}\n{\"custom_id\":\"b\"}\n{\"custom_id\":\"a\",\"resp");
	assert_int_equal(batch_file_open(&f, "in", "out", &err), 0);
	assert_int_equal(f.n, 3);
	assert_int_equal(f.n_done, 1);
	assert_true(!f.lines[0].done && f.lines[1].done && !f.lines[2].done);
	/* The unfinished line is gone. */
	assert_string_equal(get("out"), "{\"custom_id\":\"b\"}\n{\"custom_id\":\"b\"}\n");
	assert_true(batch_file_open(&second, "in", "out", &err) < 0);
	assert_string_equal(err.text, "out: another `sluice batch` is writing it");
	batch_file_dispose(&second);

	assert_int_equal(batch_file_request(&f, 2, &r, &err), 0);
	assert_string_equal(r.custom_id, "c");
	json_t *result = json_pack("{s:s}", "custom_id", r.custom_id);
	assert_int_equal(batch_file_add(&f, 2, result, &err), 0);
	json_decref(result);
	batch_request_release(&r);
	assert_int_equal(f.n_done, 2);
	batch_file_dispose(&f);
	assert_string_equal(get("out"), "{\"custom_id\":\"b\"}\n{\"custom_id\":\"b\"}\n{\"custom_id\":\"c\"}\n");
}

static void what_changes_meanwhile_is_seen(void **state)
{
	(void)state;
	struct batch_file f;
	struct batch_request r;
	struct sl_err err = {0};
	unlink("out");
	put("in", REQUEST("a") "\n");
	assert_int_equal(batch_file_open(&f, "in", "out", &err), 0);
	put("in", REQUEST("b") "\n");
	assert_true(batch_file_request(&f, 0, &r, &err) < 0);
	assert_string_equal(err.text, "in: request 1 was changed meanwhile");
	put("in", "");
	assert_true(batch_file_request(&f, 0, &r, &err) < 0);
	batch_file_dispose(&f);
	assert_true(batch_file_open(&f, "in", "in", &err) < 0);
	assert_string_equal(err.text, "in is the input");
	batch_file_dispose(&f);
	assert_true(batch_file_open(&f, "none", "out", &err) < 0);
	batch_file_dispose(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(bad_lines_are_named),
	    cmocka_unit_test(the_output_is_the_journal),
	    cmocka_unit_test(what_changes_meanwhile_is_seen),
	};
	return cmocka_run_group_tests(tests, enter, NULL);
}
