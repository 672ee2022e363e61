/* SPDX-License-Identifier: Apache-2.0
 *
 * The events of a stream as its readers see them: each is one line of JSON and a blank line, with
 * every field of the wire format in its place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "gateway/answer/sse.h"

enum { ROOM = 1 << 20 };

/* The one event in the buffer as JSON; its form is checked, the buffer emptied. */
static json_t *take_event(struct sl_buf *b)
{
	json_error_t e;
	const char *text = buf_cstr(b);
	assert_int_equal(strlen(text), b->len); /* no NUL inside */
	assert_memory_equal(text, "data: ", 6);
	assert_ptr_equal(strstr(text, "\n"), text + b->len - 2); /* the first line's end is the event's */
	assert_string_equal(text + b->len - 2, "\n\n");
	assert_null(strchr(text, '\r'));
	json_t *j = json_loadb(text + 6, b->len - 8, JSON_REJECT_DUPLICATES, &e);
	if (j == NULL)
		fail_msg("%s in %s", e.text, text);
	buf_clear(b, ROOM);
	return j;
}

static void same(json_t *got, const char *pattern)
{
	json_error_t e;
	json_t *want = json_loads(pattern, 0, &e);
	assert_non_null(want);
	char *shown = json_dumps(got, JSON_PRESERVE_ORDER);
	if (!json_equal(got, want))
		fail_msg("%s instead of %s", shown, pattern);
	free(shown);
	json_decref(want);
	json_decref(got);
}

static struct sse_rest *last;

static struct sse_stream chat_with(bool usage)
{
	struct sse_stream s;
	assert_int_equal(sse_init(&s, &sse_chat_shape, "chatcmpl-1", "m \"x\"\n", 1700000000, usage, false, &last), 0);
	return s;
}

#define HEAD                                                                                 \
	"\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000," \
	"\"model\":\"m \\\"x\\\"\\n\",\"system_fingerprint\":null,"

static void the_fields_stand_in_their_order(void **state)
{
	struct sse_stream s = chat_with(true);
	struct sl_buf b;
	(void)state;
	buf_init(&b, ROOM);
	assert_int_equal(sse_content(&s, &b, 0, "hi", 2, NULL), 0);
	assert_string_equal(buf_cstr(&b), "data: {" HEAD "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},"
					  "\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n");
	buf_clear(&b, ROOM);
	assert_int_equal(sse_role(&s, &b, 0), 0);
	assert_string_equal(buf_cstr(&b),
			    "data: {" HEAD
			    "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
			    "\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n");
	buf_dispose(&b);
	sse_dispose(&s);
}

static void every_event_is_json(void **state)
{
	struct sl_buf b;
	(void)state;
	buf_init(&b, ROOM);
	for (int usage = 0; usage <= 1; usage++) {
		struct sse_stream s = chat_with(usage);
		const char *tail = usage ? ",\"usage\":null}" : "}";
		char want[1024];
#define WANT(delta, finish)                                                                                            \
	(snprintf(want, sizeof want,                                                                                   \
		  "{" HEAD "\"choices\":[{\"index\":0,\"delta\":%s,\"logprobs\":null,\"finish_reason\":%s}]%s", delta, \
		  finish, tail),                                                                                       \
	 want)
		assert_int_equal(sse_role(&s, &b, 0), 0);
		same(take_event(&b), WANT("{\"role\":\"assistant\",\"content\":\"\"}", "null"));
		assert_int_equal(sse_content(&s, &b, 0, "a", 1, NULL), 0);
		same(take_event(&b), WANT("{\"content\":\"a\"}", "null"));
		assert_int_equal(sse_finish(&s, &b, 0, "length", NULL, NULL), 0);
		same(take_event(&b), WANT("{}", "\"length\""));
#undef WANT
		sse_dispose(&s);
	}
	buf_dispose(&b);
}

static void usage_comes_without_choices(void **state)
{
	struct sse_stream s = chat_with(true);
	struct sse_usage u = {.n_prompt = UINT32_MAX, .n_cached = 7, .n_completion = UINT32_MAX};
	struct sl_buf b;
	(void)state;
	buf_init(&b, ROOM);
	assert_int_equal(sse_usage_event(&s, &b, &u), 0);
	same(take_event(&b), "{" HEAD "\"choices\":[],\"usage\":{\"prompt_tokens\":4294967295,"
			     "\"completion_tokens\":4294967295,\"total_tokens\":8589934590,"
			     "\"prompt_tokens_details\":{\"cached_tokens\":7}}}");
	buf_dispose(&b);
	sse_dispose(&s);
}

static void any_text_comes_back_as_it_was(void **state)
{
	struct sse_stream s = chat_with(false);
	struct sl_buf b;
	char all[0x80 - 1 + 64];
	size_t n = 0;
	(void)state;
	for (int c = 1; c < 0x80; c++)
		all[n++] = (char)c;
	static const char beyond[] = "\xc3\xa9\xec\x95\x88\xf0\x9f\x98\x80\xe2\x80\xa8\xe2\x80\xa9\xef\xbb\xbf";
	memcpy(all + n, beyond, sizeof beyond - 1);
	n += sizeof beyond - 1;
	buf_init(&b, ROOM);
	assert_int_equal(sse_content(&s, &b, 0, all, n, NULL), 0);
	json_t *j = take_event(&b);
	json_t *content =
	    json_object_get(json_object_get(json_array_get(json_object_get(j, "choices"), 0), "delta"), "content");
	assert_int_equal(json_string_length(content), n);
	assert_memory_equal(json_string_value(content), all, n);
	json_decref(j);
	/* What would end an event or begin a field is only text. */
	static const char evil[] = "\n\ndata: [DONE]\n\r\n: x\"},{\"";
	assert_int_equal(sse_content(&s, &b, 0, evil, sizeof evil - 1, NULL), 0);
	json_decref(take_event(&b));
	buf_dispose(&b);
	sse_dispose(&s);
}

/* Streams of one second and model share all but their ids; each has its own whatever others do. */
static void streams_of_a_second_share_their_text(void **state)
{
	(void)state;
	struct sse_rest *of_thread = NULL;
	struct sse_stream s[5];
	static const struct {
		const struct sse_shape *shape;
		const char *id, *model;
		int64_t created;
		bool shares; /* with the one before */
	} streams[] = {{&sse_chat_shape, "a", "m", 1, false},
		       {&sse_chat_shape, "bb", "m", 1, true},
		       {&sse_chat_shape, "c", "n", 1, false},
		       {&sse_chat_shape, "d", "n", 2, false},
		       {&sse_completion_shape, "e", "n", 2, false}};
	struct sl_buf b;
	buf_init(&b, ROOM);
	for (size_t i = 0; i < 5; i++) {
		assert_int_equal(sse_init(&s[i], streams[i].shape, streams[i].id, streams[i].model, streams[i].created,
					  false, false, &of_thread),
				 0);
		assert_true(i == 0 || (s[i].rest == s[i - 1].rest) == streams[i].shares);
	}
	sse_rest_unref(of_thread);
	for (size_t i = 0; i < 5; i++) {
		assert_int_equal(sse_content(&s[i], &b, 0, "x", 1, NULL), 0);
		json_t *e = take_event(&b);
		assert_string_equal(json_string_value(json_object_get(e, "id")), streams[i].id);
		assert_string_equal(json_string_value(json_object_get(e, "model")), streams[i].model);
		assert_string_equal(json_string_value(json_object_get(e, "object")), streams[i].shape->object);
		assert_int_equal(json_integer_value(json_object_get(e, "created")), streams[i].created);
		json_decref(e);
		sse_dispose(&s[i]);
	}
	buf_dispose(&b);
}

static void an_error_is_an_event_without_choices(void **state)
{
	struct sl_buf b;
	struct api_error full = {400, "invalid_request_error", "c", "p", 1}, bare = {500, "server_error", NULL, "", 0};
	(void)state;
	buf_init(&b, ROOM);
	assert_int_equal(sse_error(&b, &full, "It \"broke\"\n\n"), 0);
	same(take_event(&b), "{\"error\":{\"message\":\"It \\\"broke\\\"\\n\\n\",\"type\":\"invalid_request_error\","
			     "\"param\":\"p\",\"code\":\"c\"}}");
	assert_int_equal(sse_error(&b, &bare, ""), 0);
	same(take_event(&b), "{\"error\":{\"message\":\"\",\"type\":\"server_error\",\"param\":null,\"code\":null}}");
	buf_dispose(&b);
}

/* A blank line after a comment would dispatch an empty event: the OpenAI library for Python fails
 * on those. */
static void a_ping_is_a_comment_and_no_event(void **state)
{
	struct sl_buf b;
	(void)state;
	buf_init(&b, ROOM);
	assert_int_equal(sse_ping(&b), 0);
	assert_string_equal(buf_cstr(&b), ": ping\n");
	assert_int_equal(sse_done(&b), 0);
	assert_string_equal(buf_cstr(&b), ": ping\ndata: [DONE]\n\n");
	buf_dispose(&b);
}

/* Every kind of event into a buffer with room for `room` bytes. */
static int put(int kind, const struct sse_stream *s, struct sl_buf *b)
{
	static const struct api_error e = {500, "server_error", "c", "p", 0};
	switch (kind) {
	case 0: return sse_role(s, b, 0);
	case 1: return sse_content(s, b, 0, "text\n", 5, NULL);
	case 2: return sse_finish(s, b, 0, "stop", NULL, NULL);
	case 3: return sse_usage_event(s, b, &(struct sse_usage){1, 2, 3, 0});
	case 4: return sse_error(b, &e, "message");
	case 5: return sse_done(b);
	default: return sse_ping(b);
	}
}

static void what_does_not_fit_leaves_nothing(void **state)
{
	struct sse_stream s = chat_with(true);
	(void)state;
	for (int kind = 0; kind < 7; kind++) {
		bool fits = false;
		for (size_t room = 1; !fits; room++) {
			struct sl_buf b;
			buf_init(&b, room);
			assert_int_equal(buf_append(&b, "#", 1), 0);
			int rc = put(kind, &s, &b);
			fits = rc == 0;
			if (!fits) {
				assert_int_equal(rc, SL_ELIMIT);
				assert_int_equal(b.len, 1);
			}
			buf_dispose(&b);
			assert_true(room < 4096);
		}
		for (long nth = 1, rc = -1; rc != 0; nth++) {
			struct sl_buf b;
			buf_init(&b, ROOM);
			fault_arm(FAULT_ALLOC, nth, 1);
			rc = put(kind, &s, &b);
			fault_disarm_all();
			if (rc != 0) {
				assert_int_equal(rc, SL_ENOMEM);
				assert_int_equal(b.len, 0);
			}
			buf_dispose(&b);
		}
	}
	sse_dispose(&s);
	for (long nth = 1, rc = -1; rc != 0; nth++) {
		struct sse_rest *of_thread = NULL;
		fault_arm(FAULT_ALLOC, nth, 1);
		rc = sse_init(&s, &sse_chat_shape, "i", "m", 1, false, false, &of_thread);
		fault_disarm_all();
		if (rc != 0) {
			assert_int_equal(rc, SL_ENOMEM);
			assert_null(of_thread);
		}
		sse_dispose(&s);
		sse_rest_unref(of_thread);
	}
}

static int teardown(void **state)
{
	(void)state;
	sse_rest_unref(last);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_fields_stand_in_their_order),
	    cmocka_unit_test(every_event_is_json),
	    cmocka_unit_test(usage_comes_without_choices),
	    cmocka_unit_test(any_text_comes_back_as_it_was),
	    cmocka_unit_test(streams_of_a_second_share_their_text),
	    cmocka_unit_test(an_error_is_an_event_without_choices),
	    cmocka_unit_test(a_ping_is_a_comment_and_no_event),
	    cmocka_unit_test(what_does_not_fit_leaves_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, teardown);
}
