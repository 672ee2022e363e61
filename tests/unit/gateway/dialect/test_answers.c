/* SPDX-License-Identifier: Apache-2.0
 *
 * What answers of the dialects look like: a message's blocks and events, and lines of JSON. The answer is one made by
 * hand: formats only read it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parts/parts_format.h"
#include "gateway/dialect/dialect.h"

enum { ROOM = 1 << 20 };

static struct gw_app app;
static struct answer a;
static struct answer_run run;
static struct answer_choice choice;
static struct answer_parts parts;
static struct answer_split split;
static struct answer_item items[3];
static struct sl_buf logprobs[ANSWER_ALL_LISTS];
static struct sl_buf out;

static void set_text(struct sl_buf *b, const char *text)
{
	buf_init(b, ROOM);
	assert_int_equal(buf_append_str(b, text), 0);
}

/* A thought, a text and a call, or (plain) a text of a model that has neither. */
static void make(const struct answer_format *format, void *own, bool plain, const char *reason)
{
	static char model[] = "m \"1\"", tool[] = "f";
	choice = (struct answer_choice){.closed = true, .reason = reason, .logprobs = logprobs};
	set_text(&choice.text, "hello\n");
	items[0] = (struct answer_item){.kind = ANSWER_REASONING, .number = 0, .call = -1, .closed = true};
	items[1] = (struct answer_item){.kind = ANSWER_CONTENT, .number = 1, .call = -1, .closed = true};
	items[2] = (struct answer_item){.kind = ANSWER_CALL, .number = 2, .name = tool, .id = "call_1", .closed = true};
	set_text(&items[0].text, "hm");
	set_text(&items[1].text, "so");
	set_text(&items[2].text, "{ \"b\" : 1,\n\"a\" : \"\\n\"}");
	parts = (struct answer_parts){.items = items, .n_items = 3, .n_calls = 1};
	choice.parts = plain ? NULL : &parts;
	a = (struct answer){.app = &app,
			    .format = format,
			    .own = own,
			    .model = model,
			    .id = "msg_1",
			    .n = 1,
			    .n_runs = 1,
			    .runs = &run,
			    .choices = &choice,
			    .split = plain ? NULL : &split,
			    .budget = {.left = INT64_MAX}};
	run = (struct answer_run){.answer = &a, .usage = {.n_prompt = 9, .n_cached = 4, .n_completion = 2}};
	assert_non_null(own);
	buf_init(&out, ROOM);
	buf_init(&app.list, ROOM);
}

static void unmake(void)
{
	a.format->dispose(a.own);
	buf_dispose(&choice.text);
	for (int i = 0; i < 3; i++)
		buf_dispose(&items[i].text);
	buf_dispose(&out);
	buf_dispose(&app.list);
}

static void assert_out(const char *want)
{
	const char *got = buf_cstr(&out);
	if (strcmp(got, want) != 0)
		fail_msg("%s\ninstead of %s", got, want);
	buf_clear(&out, SIZE_MAX);
}

/* Without the members that clocks decide. */
static json_t *timeless(const char *text, size_t n)
{
	static const char *const times[] = {"created_at", "total_duration", "prompt_eval_duration", "eval_duration"};
	json_t *v = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
	if (v == NULL)
		fail_msg("no JSON: %.*s", (int)n, text);
	for (size_t i = 0; i < sizeof times / sizeof *times; i++)
		(void)json_object_del(v, times[i]);
	return v;
}

static void assert_json(const char *text, size_t n, const char *want)
{
	json_t *got = timeless(text, n), *w = json_loads(want, 0, NULL);
	assert_non_null(w);
	char *shown = json_dumps(got, JSON_COMPACT);
	if (!json_equal(got, w))
		fail_msg("%s\ninstead of %s", shown, want);
	free(shown);
	json_decref(got);
	json_decref(w);
}

/* One line, and nothing else. */
static void assert_line(const char *want)
{
	const char *text = buf_cstr(&out);
	assert_ptr_equal(strchr(text, '\n'), text + out.len - 1);
	assert_json(text, out.len - 1, want);
	buf_clear(&out, SIZE_MAX);
}

static void assert_whole(const char *want)
{
	assert_int_equal(a.format->whole(&a, &out), 0);
	assert_json(buf_cstr(&out), out.len, want);
	buf_clear(&out, SIZE_MAX);
}

static void tell(int i, enum answer_item_event e, const char *text)
{
	assert_int_equal(a.format->item(&a, &out, 0, &items[i], e, text, strlen(text)), 0);
}

/* ---- Anthropic's ---- */

#define USAGE "{\"input_tokens\":5,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":4,\"output_tokens\":2}"
#define HEAD "{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m \\\"1\\\"\",\"content\":["
#define EVENT(type, members) "event: " type "\ndata: {\"type\":\"" type "\"" members "}\n\n"

static void message_whole(void **state)
{
	(void)state;
	make(&answer_messages, answer_messages_create(), false, "tool_calls");
	assert_whole(
	    HEAD "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"\"},{\"type\":\"text\",\"text\":\"so\"},{"
		 "\"type\":"
		 "\"tool_use\",\"id\":\"call_1\",\"name\":\"f\",\"input\":{\"b\":1,\"a\":\"\\n\"}}],\"stop_reason\":"
		 "\"tool_use\",\"stop_sequence\":null,\"usage\":" USAGE "}");
	/* Cut short, the arguments are no JSON; an empty text is no block. */
	buf_cut(&items[2].text, 5);
	buf_clear(&items[1].text, SIZE_MAX);
	choice.reason = "length";
	assert_whole(HEAD
		     "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"\"},{\"type\":\"tool_use\",\"id\":"
		     "\"call_1\",\"name\":\"f\",\"input\":{}}],\"stop_reason\":\"max_tokens\",\"stop_sequence\":null,"
		     "\"usage\":" USAGE "}");
	unmake();
	make(&answer_messages, answer_messages_create(), true, "stop");
	assert_whole(HEAD
		     "{\"type\":\"text\",\"text\":\"hello\\n\"}],\"stop_reason\":\"end_turn\",\"stop_sequence\":null,"
		     "\"usage\":" USAGE "}");
	buf_clear(&choice.text, SIZE_MAX);
	assert_whole(HEAD "],\"stop_reason\":\"end_turn\",\"stop_sequence\":null,\"usage\":" USAGE "}");
	unmake();
}

static void message_events(void **state)
{
	(void)state;
	make(&answer_messages, answer_messages_create(), false, "tool_calls");
	assert_int_equal(a.format->begin(&a, &out), 0);
	assert_out(EVENT("message_start",
			 ",\"message\":" HEAD "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":" USAGE "}"));
	tell(0, ANSWER_ITEM_OPEN, "");
	assert_out("");
	tell(0, ANSWER_ITEM_TEXT, "h");
	assert_out(
	    EVENT("content_block_start", ",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\","
					 "\"signature\":\"\"}")
		EVENT("content_block_delta",
		      ",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"h\"}"));
	tell(0, ANSWER_ITEM_CLOSE, "");
	assert_out(EVENT("content_block_stop", ",\"index\":0"));
	/* A text that stays empty is no block. */
	tell(1, ANSWER_ITEM_OPEN, "");
	tell(1, ANSWER_ITEM_CLOSE, "");
	assert_out("");
	tell(2, ANSWER_ITEM_OPEN, "");
	assert_out(EVENT("content_block_start",
			 ",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"call_1\","
			 "\"name\":\"f\",\"input\":{}}"));
	tell(2, ANSWER_ITEM_TEXT, "{\"a");
	assert_out(EVENT("content_block_delta",
			 ",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\"}"));
	tell(2, ANSWER_ITEM_CLOSE, "");
	assert_out(EVENT("content_block_stop", ",\"index\":1"));
	assert_int_equal(a.format->close(&a, &out, 0, "tool_calls"), 0);
	assert_out("");
	assert_int_equal(a.format->end(&a, &out), 0);
	assert_out(
	    EVENT("message_delta", ",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":" USAGE)
		EVENT("message_stop", ""));
	assert_int_equal(a.format->ping(&a, &out), 0);
	assert_out(EVENT("ping", ""));
	unmake();
}

static void message_events_of_plain_text(void **state)
{
	(void)state;
	make(&answer_messages, answer_messages_create(), true, "length");
	assert_int_equal(a.format->text(&a, &out, 0, "a", 1), 0);
	assert_int_equal(a.format->text(&a, &out, 0, "\n", 1), 0);
	assert_int_equal(a.format->text(&a, &out, 0, "", 0), 0);
	assert_int_equal(a.format->close(&a, &out, 0, "length"), 0);
	assert_out(
	    EVENT("content_block_start", ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}")
		EVENT("content_block_delta", ",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}")
		    EVENT("content_block_delta", ",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\\n\"}")
			EVENT("content_block_stop", ",\"index\":0"));
	unmake();
}

/* ---- Ollama's ---- */

#define LINE(message) "{\"model\":\"m \\\"1\\\"\",\"message\":{\"role\":\"assistant\"," message "},\"done\":false}"
#define COUNTS "\"load_duration\":0,\"prompt_eval_count\":9,\"eval_count\":2"
#define CALL                                                                                                        \
	"\"tool_calls\":[{\"id\":\"call_1\",\"function\":{\"index\":0,\"name\":\"f\",\"arguments\":{\"b\":1,\"a\":" \
	"\"\\n\"}}}]"

static void chat_whole(void **state)
{
	(void)state;
	make(&answer_ollama_chat, answer_ollama_create(), false, "tool_calls");
	assert_whole("{\"model\":\"m "
		     "\\\"1\\\"\",\"message\":{\"role\":\"assistant\",\"content\":\"so\",\"thinking\":\"hm\"," CALL
		     "},\"done\":true,\"done_reason\":\"stop\"," COUNTS "}");
	unmake();
	make(&answer_ollama_chat, answer_ollama_create(), true, "length");
	assert_whole(
	    "{\"model\":\"m \\\"1\\\"\",\"message\":{\"role\":\"assistant\",\"content\":\"hello\\n\"},\"done\":true,"
	    "\"done_reason\":\"length\"," COUNTS "}");
	unmake();
}

static void chat_lines(void **state)
{
	(void)state;
	make(&answer_ollama_chat, answer_ollama_create(), false, "tool_calls");
	tell(0, ANSWER_ITEM_OPEN, "");
	tell(0, ANSWER_ITEM_TEXT, "h\n");
	assert_line(LINE("\"content\":\"\",\"thinking\":\"h\\n\""));
	tell(0, ANSWER_ITEM_CLOSE, "");
	tell(1, ANSWER_ITEM_OPEN, "");
	tell(1, ANSWER_ITEM_TEXT, "so");
	assert_line(LINE("\"content\":\"so\""));
	tell(2, ANSWER_ITEM_OPEN, "");
	tell(2, ANSWER_ITEM_TEXT, "{ \"b\" : 1,\n");
	tell(2, ANSWER_ITEM_TEXT, "\"a\" : \"\\n\"}");
	assert_out("");
	tell(2, ANSWER_ITEM_CLOSE, "");
	assert_line(LINE("\"content\":\"\"," CALL));
	/* The next call begins anew; this one is cut short. */
	tell(2, ANSWER_ITEM_OPEN, "");
	tell(2, ANSWER_ITEM_TEXT, "{\"b");
	tell(2, ANSWER_ITEM_CLOSE, "");
	assert_line(LINE("\"content\":\"\",\"tool_calls\":[{\"id\":\"call_1\",\"function\":{\"index\":0,\"name\":\"f\","
			 "\"arguments\":{}}}]"));
	assert_int_equal(a.format->ping(&a, &out), 0);
	assert_line(LINE("\"content\":\"\""));
	assert_int_equal(a.format->end(&a, &out), 0);
	assert_line("{\"model\":\"m \\\"1\\\"\",\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,"
		    "\"done_reason\":\"stop\"," COUNTS "}");
	unmake();
}

static void generated(void **state)
{
	(void)state;
	make(&answer_ollama_generate, answer_ollama_create(), false, "stop");
	tell(0, ANSWER_ITEM_TEXT, "h");
	assert_line("{\"model\":\"m \\\"1\\\"\",\"response\":\"\",\"thinking\":\"h\",\"done\":false}");
	unmake();
	make(&answer_ollama_raw, answer_ollama_create(), true, "stop");
	assert_null(a.format->item);
	a.out.wants_logprobs = true;
	set_text(&logprobs[0], "{\"token\":\"a\"}");
	assert_int_equal(a.format->text(&a, &out, 0, "a", 1), 0);
	assert_line("{\"model\":\"m \\\"1\\\"\",\"response\":\"a\",\"logprobs\":[{\"token\":\"a\"}],\"done\":false}");
	buf_dispose(&logprobs[0]);
	unmake();
}

/* ---- errors ---- */

static void assert_error(const struct reply_form *f, int status, int sent, const char *want)
{
	const struct exchange x = {.id = "req_1"};
	assert_int_equal(f->print_error(&out, &x, &(struct api_error){status, "t", "c", "p", 0}, "a \"b\""), 0);
	assert_int_equal(f->status_of != NULL ? f->status_of(status) : status, sent);
	assert_out(want);
}

static void errors(void **state)
{
	static const struct {
		int status, sent;
		const char *type;
	} cases[] = {{400, 400, "invalid_request_error"},
		     {401, 401, "authentication_error"},
		     {403, 403, "permission_error"},
		     {404, 404, "not_found_error"},
		     {405, 405, "invalid_request_error"},
		     {409, 409, "invalid_request_error"},
		     {413, 413, "request_too_large"},
		     {415, 415, "invalid_request_error"},
		     {422, 422, "invalid_request_error"},
		     {429, 429, "rate_limit_error"},
		     {500, 500, "api_error"},
		     {503, 529, "overloaded_error"}};
	char want[256];
	(void)state;
	buf_init(&out, ROOM);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		snprintf(want, sizeof want,
			 "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"a \\\"b\\\"\"},\"request_id\":"
			 "\"req_1\"}",
			 cases[i].type);
		assert_error(&messages_form, cases[i].status, cases[i].sent, want);
		assert_error(&ollama_form, cases[i].status, cases[i].status, "{\"error\":\"a \\\"b\\\"\"}");
	}
	buf_dispose(&out);
}

static void forms_are_found_by_path(void **state)
{
	struct http_field version = {"anthropic-version", "2023-06-01"};
	static const char *const messages[] = {"/v1/messages", "/v1/messages/count_tokens", "/v1/messages/x"};
	static const char *const ollama[] = {"/api", "/api/chat", "/api/x/y"};
	static const char *const others[] = {"/", "/v1/messagesx", "/apix", "/v1/chat/completions"};
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		assert_ptr_equal(dialect_form(&(struct http_request){.path = messages[i]}), &messages_form);
		assert_ptr_equal(dialect_form(&(struct http_request){.path = ollama[i]}), &ollama_form);
	}
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		assert_null(dialect_form(&(struct http_request){.path = others[i], .fields = &version, .n_fields = 1}));
	assert_null(dialect_form(&(struct http_request){.path = "/v1/models"}));
	assert_ptr_equal(
	    dialect_form(&(struct http_request){.path = "/v1/models/m", .fields = &version, .n_fields = 1}),
	    &messages_form);
}

static void times(void **state)
{
	char at[DIALECT_TIME_BYTES];
	(void)state;
	dialect_time(0, 0, at);
	assert_string_equal(at, "1970-01-01T00:00:00Z");
	dialect_time(1769850300, 7, at);
	assert_string_equal(at, "2026-01-31T09:05:00.000000007Z");
}

/* ---- models ---- */

static void models(void **state)
{
	static struct link_model m = {.name = "m", .n_ctx = 8, .n_embd = 4, .n_params = 7600000000};
	(void)state;
	buf_init(&out, ROOM);
	assert_int_equal(ollama_put_show(&out, &m, 0), 0);
	assert_non_null(strstr(buf_cstr(&out), "\"parameter_size\":\"7.6B\""));
	assert_non_null(strstr(buf_cstr(&out), "\"capabilities\":[]"));
	buf_clear(&out, SIZE_MAX);
	m.does = PROTO_DOES_GENERATE | PROTO_DOES_EMBED;
	m.parts = (struct link_parts){.format = PARTS_HERMES, .reasoning = PARTS_REASONING_THINK};
	assert_int_equal(ollama_put_show(&out, &m, 0), 0);
	assert_non_null(
	    strstr(buf_cstr(&out), "\"capabilities\":[\"completion\",\"tools\",\"thinking\",\"embedding\"]"));
	buf_clear(&out, SIZE_MAX);
	for (int running = 0; running < 2; running++) {
		assert_int_equal(ollama_put_model(&out, &m, 0, running != 0), 0);
		json_t *v = json_loadb((const char *)buf_data(&out), out.len, JSON_REJECT_DUPLICATES, NULL);
		assert_string_equal(json_string_value(json_object_get(v, "name")), "m");
		assert_true((json_object_get(v, "expires_at") != NULL) == (running != 0));
		json_decref(v);
		buf_clear(&out, SIZE_MAX);
	}
	buf_dispose(&out);
}

/* Every buffer that is full ends a writer with its code. */
static void bounded(void **state)
{
	const struct answer_format *formats[] = {&answer_messages, &answer_ollama_chat};
	(void)state;
	for (int i = 0; i < 2; i++) {
		make(formats[i], i == 0 ? answer_messages_create() : answer_ollama_create(), false, "stop");
		assert_int_equal(a.format->whole(&a, &out), 0);
		size_t n = out.len;
		buf_dispose(&out);
		for (size_t most = 0; most < n - 32; most += 7) {
			buf_init(&out, most);
			assert_int_equal(a.format->whole(&a, &out), SL_ELIMIT);
			buf_dispose(&out);
		}
		unmake();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(message_whole),
	    cmocka_unit_test(message_events),
	    cmocka_unit_test(message_events_of_plain_text),
	    cmocka_unit_test(chat_whole),
	    cmocka_unit_test(chat_lines),
	    cmocka_unit_test(generated),
	    cmocka_unit_test(errors),
	    cmocka_unit_test(forms_are_found_by_path),
	    cmocka_unit_test(times),
	    cmocka_unit_test(models),
	    cmocka_unit_test(bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
