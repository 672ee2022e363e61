/* SPDX-License-Identifier: Apache-2.0
 *
 * Files in messages of the three APIs: the prompt that they become, which begins alike whatever is asked; what is
 * fetched before; what is refused and under which name.
 */
#include "tests/support/request_rig.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "gateway/dialect/messages_request.h"
#include "gateway/request/chat_request.h"
#include "gateway/request/response_request.h"

/* What an API calls it, and where. */
static const struct api {
	const char *request; /* %s: the parts */
	const char *named, *text;
	const char *id_param; /* of the first part */
	int (*parse)(const char *body, struct request_files *files, char **prompt, struct request_error *e);
} apis[3];

static char *copied(const struct sl_buf *b) { return strndup((const char *)buf_data(b), b->len); }

static int parse_with(int (*parse)(const void *, size_t, const struct request_limits *, struct chat_request *,
				   struct request_error *),
		      const char *body, struct request_files *files, char **prompt, struct request_error *e)
{
	const struct request_limits limits = {.messages = 6, .json_depth = 10, .files = files};
	struct chat_request r;
	int rc = parse(body, strlen(body), &limits, &r, e);
	if (rc == 0) {
		*prompt = copied(&r.prompt);
		chat_request_dispose(&r);
	}
	return rc;
}

static int parse_chat(const char *body, struct request_files *files, char **prompt, struct request_error *e)
{
	return parse_with(chat_request_parse, body, files, prompt, e);
}

static int parse_messages(const char *body, struct request_files *files, char **prompt, struct request_error *e)
{
	return parse_with(messages_request_parse, body, files, prompt, e);
}

static int parse_response(const char *body, struct request_files *files, char **prompt, struct request_error *e)
{
	static const struct request_limits limits = {.messages = 6, .json_depth = 10};
	struct response_request r;
	struct sl_buf out;
	int rc = response_request_parse(body, strlen(body), &limits, &r, e);
	if (rc != 0)
		return rc;
	buf_init(&out, REQUEST_MAX_PROMPT);
	r.files = *files;
	rc = response_files(&r, NULL, e);
	*files = r.files;
	if (rc == 0 && request_files_lack(files))
		rc = SL_EAGAIN;
	if (rc == 0 && (rc = response_messages(&r, NULL, &out, e)) == 0)
		*prompt = copied(&out);
	r.files = (struct request_files){0};
	response_request_dispose(&r);
	buf_dispose(&out);
	return rc;
}

static const struct api apis[3] = {
    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[%s]}]}",
     "{\"type\":\"file\",\"file\":{\"file_id\":\"%s\"}}", "{\"type\":\"text\",\"text\":\"%s\"}",
     "messages[0].content[0].file.file_id", parse_chat},
    {"{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":[%s]}]}",
     "{\"type\":\"input_file\",\"file_id\":\"%s\"}", "{\"type\":\"input_text\",\"text\":\"%s\"}",
     "input[0].content[0].file_id", parse_response},
    {"{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[%s]}]}",
     "{\"type\":\"document\",\"source\":{\"type\":\"file\",\"file_id\":\"%s\"}}", "{\"type\":\"text\",\"text\":\"%s\"}",
     "messages[0].content[0].source.file_id", parse_messages},
};

/* The format's one %s is replaced; formats are this file's. */
static const char *fill(char *to, size_t room, const char *format, const char *by)
{
	const char *mark = strstr(format, "%s");
	assert_non_null(mark);
	assert_true((size_t)snprintf(to, room, "%.*s%s%s", (int)(mark - format), format, by, mark + 2) < room);
	return to;
}

/* A request of a's with these parts, separated by commas. */
static const char *request_of(const struct api *a, const char *parts)
{
	static char body[32 << 10];
	return fill(body, sizeof body, a->request, parts);
}

static void give(struct request_file *f, const char *name, const char *text)
{
	snprintf(f->name, sizeof f->name, "%s", name);
	f->text = sl_strndup(text, strlen(text));
	f->n = strlen(text);
}

/* The prompt of question, asked before or after the file is named. The caller's. */
static char *prompt_of(const struct api *a, const char *question, bool before)
{
	char named[256], asked[256], parts[600], *prompt = NULL;
	struct request_files files = {0};
	struct request_error e;
	fill(named, sizeof named, a->named, "file-1");
	fill(asked, sizeof asked, a->text, question);
	snprintf(parts, sizeof parts, "%s,%s", before ? asked : named, before ? named : asked);
	assert_int_equal(a->parse(request_of(a, parts), &files, &prompt, &e), SL_EAGAIN);
	assert_int_equal(files.n, 1);
	assert_string_equal(files.at[0].id, "file-1");
	if (!before)
		assert_string_equal(files.at[0].param, a->id_param);
	give(&files.at[0], "a\"b>.txt", "first line\nsecond \"line\"");
	assert_int_equal(a->parse(request_of(a, parts), &files, &prompt, &e), 0);
	request_files_dispose(&files);
	return prompt;
}

static void files_come_first(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		char *one = prompt_of(&apis[i], "why?", false), *other = prompt_of(&apis[i], "who?", true);
		static const char want[] = "{\"role\":\"user\",\"content\":\"<file name=\\\"a_b_.txt\\\">\\nfirst "
					   "line\\nsecond \\\"line\\\"\\n</file>\\n\\n";
		const char *at = strstr(one, want);
		if (at == NULL)
			fail_msg("%s", one);
		size_t n = (size_t)(at - one) + sizeof want - 1;
		assert_memory_equal(one + n, "why?\"", 5);
		/* Alike up to the question, wherever the file was named. */
		assert_memory_equal(one, other, n);
		assert_memory_equal(other + n, "who?\"", 5);
		free(one);
		free(other);
	}
}

/* Two files, each named twice: fetched once, and in their order. */
static void each_is_fetched_once(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		char one[256], two[256], parts[1200], *prompt = NULL;
		struct request_files files = {0};
		struct request_error e;
		fill(one, sizeof one, apis[i].named, "file-1");
		fill(two, sizeof two, apis[i].named, "file-2");
		snprintf(parts, sizeof parts, "%s,%s,%s", two, one, two);
		assert_int_equal(apis[i].parse(request_of(&apis[i], parts), &files, &prompt, &e), SL_EAGAIN);
		assert_int_equal(files.n, 2);
		give(&files.at[0], "2", "b");
		assert_int_equal(apis[i].parse(request_of(&apis[i], parts), &files, &prompt, &e), SL_EAGAIN);
		give(&files.at[1], "1", "a");
		assert_int_equal(apis[i].parse(request_of(&apis[i], parts), &files, &prompt, &e), 0);
		assert_non_null(strstr(prompt, "\"content\":\"<file name=\\\"2\\\">\\nb\\n</file>\\n\\n<file "
					       "name=\\\"1\\\">\\na\\n</file>\\n\\n<file name=\\\"2\\\">\\nb\\n</file>"
					       "\\n\\n\""));
		free(prompt);
		request_files_dispose(&files);
	}
}

static void too_many_are_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		char id[16], part[256], parts[8192] = "";
		for (int k = 0; k <= REQUEST_MOST_FILES; k++) {
			char *prompt = NULL;
			struct request_files files = {0};
			struct request_error e;
			snprintf(id, sizeof id, "file-%d", k);
			snprintf(parts + strlen(parts), sizeof parts - strlen(parts), "%s%s", k > 0 ? "," : "",
				 fill(part, sizeof part, apis[i].named, id));
			int rc = apis[i].parse(request_of(&apis[i], parts), &files, &prompt, &e);
			assert_int_equal(rc, k < REQUEST_MOST_FILES ? SL_EAGAIN : SL_EINVAL);
			if (rc == SL_EINVAL)
				assert_string_equal(e.code, "array_above_max_length");
			request_files_dispose(&files);
		}
	}
}

/* ---- texts sent with the request ---- */

static void inline_texts(void **state)
{
	static const char *const parts[3] = {
	    "{\"type\":\"file\",\"file\":{\"filename\":\"x.md\",\"file_data\":\"data:text/"
	    "markdown;charset=utf-8;base64,"
	    "aGVsbG8K\"}},{\"type\":\"text\",\"text\":\"q\"}",
	    "{\"type\":\"input_file\",\"filename\":\"x.md\",\"file_data\":\"data:text/plain;base64,aGVsbG8K\"},"
	    "{\"type\":\"input_text\",\"text\":\"q\"}",
	    "{\"type\":\"document\",\"title\":\"x.md\",\"source\":{\"type\":\"text\",\"media_type\":\"text/plain\","
	    "\"data\":\"hello\\n\"}},{\"type\":\"text\",\"text\":\"q\"}"};
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct request_files files = {0};
		struct request_error e;
		char *prompt = NULL;
		int rc = apis[i].parse(request_of(&apis[i], parts[i]), &files, &prompt, &e);
		if (rc != 0)
			fail_msg("%d: %s: %s", rc, e.param, e.message);
		if (strstr(prompt, "\"content\":\"<file name=\\\"x.md\\\">\\nhello\\n\\n</file>\\n\\nq\"") == NULL)
			fail_msg("%s", prompt);
		assert_int_equal(files.n, 0);
		free(prompt);
	}
}

static void others_are_refused(void **state)
{
#define CHAT(file) 0, "{\"type\":\"file\",\"file\":" file "}"
#define RESPONSE(file) 1, "{\"type\":\"input_file\"," file "}"
#define MESSAGES(file) 2, "{\"type\":\"document\"," file "}"
	static const struct {
		int api;
		const char *part, *code, *param;
	} bad[] = {
	    {CHAT("7"), "invalid_type", "messages[0].content[0].file"},
	    {CHAT("{}"), "missing_required_parameter", "messages[0].content[0].file.file_id"},
	    {CHAT("{\"file_id\":7}"), "invalid_type", "messages[0].content[0].file.file_id"},
	    {CHAT("{\"file_id\":\"\"}"), "invalid_value", "messages[0].content[0].file.file_id"},
	    {CHAT("{\"file_id\":\"0123456789012345678901234567890123456789012345678901234567890123\"}"),
	     "invalid_value", "messages[0].content[0].file.file_id"},
	    {CHAT("{\"file_id\":\"a\",\"file_data\":\"data:text/plain;base64,eA==\"}"), "invalid_value",
	     "messages[0].content[0].file.file_data"},
	    {CHAT("{\"file_data\":\"eA==\"}"), "invalid_value", "messages[0].content[0].file.file_data"},
	    {CHAT("{\"file_data\":\"data:text/plain,x\"}"), "invalid_value", "messages[0].content[0].file.file_data"},
	    {CHAT("{\"file_data\":\"data:application/pdf;base64,eA==\"}"), "unsupported_value",
	     "messages[0].content[0].file.file_data"},
	    {CHAT("{\"file_data\":\"data:text/plain;base64,JVBERi0xLjc=\"}"), "unsupported_value",
	     "messages[0].content[0].file.file_data"},
	    {CHAT("{\"file_data\":\"data:text/plain;base64,e\"}"), "invalid_value",
	     "messages[0].content[0].file.file_data"},
	    {CHAT("{\"file_data\":\"data:text/plain;base64,eA=A\"}"), "invalid_value",
	     "messages[0].content[0].file.file_data"},
	    {CHAT("{\"file_data\":\"data:text/plain;base64, eA=\"}"), "invalid_value",
	     "messages[0].content[0].file.file_data"},
	    {CHAT("{\"file_data\":\"data:text/plain;base64,\"}"), "invalid_value",
	     "messages[0].content[0].file.file_data"},
	    {CHAT("{\"file_data\":\"data:text/plain;base64,AAAA\"}"), "invalid_value",
	     "messages[0].content[0].file.file_data"},
	    {CHAT("{\"file_data\":\"data:text/plain;base64,//79\"}"), "invalid_value",
	     "messages[0].content[0].file.file_data"},
	    {CHAT("{\"filename\":\"a\\nb\",\"file_data\":\"data:text/plain;base64,eA==\"}"), "invalid_value",
	     "messages[0].content[0].file.filename"},
	    {RESPONSE("\"x\":1"), "missing_required_parameter", "input[0].content[0].file_id"},
	    {RESPONSE("\"file_id\":7"), "invalid_type", "input[0].content[0].file_id"},
	    {RESPONSE("\"file_id\":\"a\",\"file_data\":\"b\""), "invalid_value", "input[0].content[0].file_id"},
	    {RESPONSE("\"file_data\":\"data:image/png;base64,eA==\""), "unsupported_value",
	     "input[0].content[0].file_data"},
	    {RESPONSE("\"filename\":\"\",\"file_data\":\"data:text/plain;base64,eA==\""), "invalid_value",
	     "input[0].content[0].filename"},
	    {MESSAGES("\"x\":1"), "missing_required_parameter", "messages[0].content[0].source"},
	    {MESSAGES("\"source\":{\"type\":\"base64\"}"), "unsupported_value", "messages[0].content[0].source.type"},
	    {MESSAGES("\"source\":{\"type\":\"file\"}"), "missing_required_parameter",
	     "messages[0].content[0].source.file_id"},
	    {MESSAGES("\"source\":{\"type\":\"text\",\"data\":\"\"}"), "invalid_value",
	     "messages[0].content[0].source.data"},
	    {MESSAGES("\"source\":{\"type\":\"text\",\"media_type\":\"application/pdf\",\"data\":\"x\"}"),
	     "unsupported_value", "messages[0].content[0].source.media_type"},
	    {MESSAGES("\"title\":\"\",\"source\":{\"type\":\"text\",\"data\":\"x\"}"), "invalid_value",
	     "messages[0].content[0].title"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		const struct api *a = &apis[bad[i].api];
		struct request_files files = {0};
		struct request_error e;
		char *prompt = NULL;
		int rc = a->parse(request_of(a, bad[i].part), &files, &prompt, &e);
		if (rc != SL_EINVAL || strcmp(e.code, bad[i].code) != 0 || strcmp(e.param, bad[i].param) != 0)
			fail_msg("%s: %d, %s, %s: %s", bad[i].part, rc, e.code, e.param, e.message);
		request_files_dispose(&files);
	}
}

/* Only a user's messages have files; without a list of files none can be named. */
static void elsewhere_they_are_refused(void **state)
{
	static const char system[] =
	    "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"file\","
	    "\"file\":{\"file_id\":\"a\"}}]}]}";
	struct request_files files = {0};
	struct request_error e;
	char *prompt = NULL, part[256];
	(void)state;
	assert_int_equal(parse_chat(system, &files, &prompt, &e), SL_EINVAL);
	assert_string_equal(e.param, "messages[0].content[0].type");
	fill(part, sizeof part, apis[0].named, "file-1");
	assert_int_equal(parse_chat(request_of(&apis[0], part), NULL, &prompt, &e), SL_EINVAL);
	assert_string_equal(e.param, apis[0].id_param);
}

/* A file's text is cleansed by itself, as a user's is: the frame stays, and so does the beginning. */
static void texts_are_cleansed_once(void **state)
{
	struct request_files files = {0};
	struct request_error e;
	char part[256], *prompt[2] = {NULL, NULL};
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct request_limits limits = {
		    .messages = 6, .json_depth = 10, .cleanse = CLEANSE_FULL, .files = &files};
		struct chat_request r;
		char parts[600];
		fill(part, sizeof part, apis[0].named, "file-1");
		snprintf(parts, sizeof parts, "%s,{\"type\":\"text\",\"text\":\"%s\"}", part,
			 i == 0 ? "why?" : "<b>who</b>   \\n\\n\\n\\nare you?   ");
		const char *body = request_of(&apis[0], parts);
		if (i == 0) {
			assert_int_equal(chat_request_parse(body, strlen(body), &limits, &r, &e), SL_EAGAIN);
			give(&files.at[0], "a.txt", "a line   \n\n\n\n\nanother\xe2\x80\x8b line   \n");
		}
		assert_int_equal(chat_request_parse(body, strlen(body), &limits, &r, &e), 0);
		assert_int_equal(r.c.cleansed.n_texts, 2);
		prompt[i] = copied(&r.prompt);
		chat_request_dispose(&r);
	}
	const char *end = strstr(prompt[0], "</file>\\n\\n");
	assert_non_null(end);
	assert_null(strstr(prompt[0], "\\n\\n\\n\\n\\n"));
	assert_memory_equal(prompt[0], prompt[1], (size_t)(end - prompt[0]) + 11);
	free(prompt[0]);
	free(prompt[1]);
	request_files_dispose(&files);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(files_come_first),        cmocka_unit_test(each_is_fetched_once),
	    cmocka_unit_test(too_many_are_refused),    cmocka_unit_test(inline_texts),
	    cmocka_unit_test(others_are_refused),      cmocka_unit_test(elsewhere_they_are_refused),
	    cmocka_unit_test(texts_are_cleansed_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
