/* SPDX-License-Identifier: Apache-2.0
 *
 * The upstream's events as tokens, and back as what clients get: the tokens go through the gateway's own parser of
 * calls and reasoning.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/remote/remote_answer.h"
#include "engine/remote/remote_fault.h"
#include "gateway/parts/parts.h"

struct rig {
	struct proto_submit asked;
	struct remote_answer a;
	struct remote_frame f;
	char said[4096]; /* events of the parser: c(…) content, r(…) reasoning, [NAME…] a call */
	char open;
	struct parts *parts;
	struct parts_tools *tools;
	struct parts_marker markers[PARTS_MAX_LITERALS];
	int ends;
};

static void say(struct rig *r, const char *text, size_t n)
{
	size_t at = strlen(r->said);
	assert_true(at + n + 2 < sizeof r->said);
	memcpy(r->said + at, text, n);
	r->said[at + n] = '\0';
}

static void open_as(struct rig *r, char kind)
{
	static const char *const begin[] = {"c(", "r("};
	if (r->open == kind)
		return;
	if (r->open != 0)
		say(r, ")", 1);
	r->open = kind;
	if (kind != 0)
		say(r, begin[kind == 'r'], 2);
}

static int on_part(void *ctx, const struct parts_event *e)
{
	struct rig *r = ctx;
	if (e->kind == PARTS_CONTENT || e->kind == PARTS_REASONING)
		open_as(r, e->kind == PARTS_CONTENT ? 'c' : 'r');
	else
		open_as(r, 0);
	if (e->kind == PARTS_CALL_BEGIN)
		say(r, "[", 1);
	if (e->n > 0)
		say(r, e->text, e->n);
	if (e->kind == PARTS_CALL_BEGIN)
		say(r, ":", 1);
	if (e->kind == PARTS_CALL_END)
		say(r, e->cut ? "!]" : "]", e->cut ? 2 : 1);
	return 0;
}

static void start(struct rig *r, uint8_t kind)
{
	static const struct parts_tool find[] = {{.name = "find"}, {.name = "go\"od"}};
	struct proto_model m = {0};
	const char *literals[PARTS_MAX_LITERALS];
	*r = (struct rig){.asked = {PROTO_SUBMIT_OFF, .prompt_kind = kind, .max_tokens = 20}};
	remote_answer_init(&r->a, &r->asked, 1000);
	remote_frame_init(&r->f);
	remote_model_parts(&m);
	size_t n = parts_format_literals((enum parts_format)m.format, (enum parts_reasoning)m.reasoning, literals,
					 PARTS_MAX_LITERALS);
	size_t k = 0;
	for (size_t i = 0; i < n; i++)
		if (m.markers[i] >= 0)
			r->markers[k++] = (struct parts_marker){m.markers[i], literals[i]};
	assert_int_equal(k, 4);
	assert_int_equal(parts_tools_create(find, 2, &r->tools), 0);
	const struct parts_init init = {.format = (enum parts_format)m.format,
					.reasoning = (enum parts_reasoning)m.reasoning,
					.tools = r->tools,
					.markers = r->markers,
					.n_markers = k,
					.on_event = on_part,
					.ctx = r};
	assert_int_equal(parts_create(&init, &r->parts), 0);
}

/* Delivers what waits, `most` tokens at a time. */
static void deliver(struct rig *r, uint32_t most)
{
	enum remote_next next;
	while ((next = remote_answer_next(&r->a)) != REMOTE_NEXT_NONE) {
		if (next == REMOTE_NEXT_END) {
			remote_answer_take_end(&r->a);
			r->ends++;
			continue;
		}
		assert_int_equal(remote_answer_look(&r->a, most, &r->f), 0);
		assert_true(r->f.tokens.n > 0 && r->f.tokens.n <= most);
		const char *text = r->f.tokens.text.at;
		for (uint16_t i = 0; i < r->f.tokens.n; i++) {
			assert_int_equal(parts_feed(r->parts, (int32_t)r->f.list[i].id, text, r->f.list[i].n_bytes), 0);
			text += r->f.list[i].n_bytes;
		}
		remote_answer_drop(&r->a, &r->f);
	}
}

static const char *finish(struct rig *r)
{
	deliver(r, 3);
	assert_int_equal(parts_finish(r->parts), 0);
	open_as(r, 0);
	return r->said;
}

static void stop(struct rig *r)
{
	parts_destroy(r->parts);
	parts_tools_destroy(r->tools);
	remote_answer_dispose(&r->a);
	remote_frame_dispose(&r->f);
}

static bool event(struct rig *r, const char *json) { return remote_answer_event(&r->a, json, strlen(json)); }

static void takes(struct rig *r, const char *json)
{
	if (!event(r, json))
		fail_msg("%s: %s", json, r->a.why);
}

#define DELTA(d) "{\"choices\":[{\"index\":0,\"delta\":" d ",\"finish_reason\":null}]}"
#define STOP "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}"

static void text_passes_byte_for_byte(void **state)
{
	(void)state;
	struct rig r;
	start(&r, PROTO_PROMPT_CHAT);
	takes(&r, DELTA("{\"role\":\"assistant\",\"content\":\"\"}"));
	takes(&r, DELTA("{\"content\":\"  a <think>\"}"));
	takes(&r, DELTA("{\"content\":\"</think><tool_call>{\\\"name\\\": \\\"find\\\"}\\n \"}"));
	takes(&r, STOP);
	assert_false(r.a.complete);
	takes(&r, "[DONE]");
	assert_true(r.a.complete);
	assert_string_equal(finish(&r), "c(  a <think></think><tool_call>{\"name\": \"find\"}\n )");
	assert_int_equal(r.a.choices[0].finish, PROTO_FINISH_STOP);
	assert_int_equal(remote_answer_tokens(&r.a), 2);
	assert_int_equal(r.ends, 1);
	stop(&r);
}

static void reasoning_and_calls(void **state)
{
	(void)state;
	struct rig r;
	start(&r, PROTO_PROMPT_CHAT);
	takes(&r, DELTA("{\"reasoning_content\":\"hm \"}"));
	takes(&r, DELTA("{\"reasoning\":\"so\"}"));
	takes(&r, DELTA("{\"content\":\"Well.\"}"));
	takes(
	    &r,
	    DELTA("{\"tool_calls\":[{\"index\":0,\"id\":\"x\",\"function\":{\"name\":\"find\",\"arguments\":\"\"}}]}"));
	takes(&r,
	      DELTA("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\\\": \\\"\\\\n</tool\"}}]}"));
	takes(&r, DELTA("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"_call>\\\"}\"}}]}"));
	takes(&r,
	      DELTA("{\"tool_calls\":[{\"index\":1,\"function\":{\"name\":\"go\\\"od\",\"arguments\":\"oops\"}}]}"));
	takes(&r, "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}");
	assert_string_equal(finish(&r), "r(hm so)c(Well.)[find:{\"a\": \"\\n</tool_call>\"}][go\"od:oops]");
	stop(&r);
}

static void a_call_that_the_length_cuts(void **state)
{
	(void)state;
	struct rig r;
	start(&r, PROTO_PROMPT_CHAT);
	takes(&r, DELTA("{\"tool_calls\":[{\"function\":{\"name\":\"find\",\"arguments\":\"{\\\"a\"}}]}"));
	takes(&r, "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}");
	assert_string_equal(finish(&r), "[find:{\"a!]");
	assert_int_equal(r.a.choices[0].finish, PROTO_FINISH_LENGTH);
	stop(&r);
}

static void a_long_delta_is_several_tokens(void **state)
{
	(void)state;
	struct rig r;
	char json[8192], text[3001];
	start(&r, PROTO_PROMPT_CHAT);
	for (size_t i = 0; i + 3 <= sizeof text; i += 3)
		memcpy(text + i, "\xe2\x82\xac", 3);
	text[3000] = '\0';
	snprintf(json, sizeof json, DELTA("{\"content\":\"%s\"}"), text);
	takes(&r, json);
	uint32_t n = 0;
	while (remote_answer_next(&r.a) == REMOTE_NEXT_TOKENS) {
		assert_int_equal(remote_answer_look(&r.a, 1, &r.f), 0);
		assert_true(r.f.tokens.text.n <= REMOTE_TOKEN_TEXT && r.f.tokens.text.n % 3 == 0);
		remote_answer_drop(&r.a, &r.f);
		n++;
	}
	assert_int_equal(n, 6);
	assert_int_equal(remote_answer_tokens(&r.a), 1);
	stop(&r);
}

static void log_probabilities(void **state)
{
	(void)state;
	struct rig r;
	start(&r, PROTO_PROMPT_CHAT);
	r.asked.flags = PROTO_SUBMIT_WANT_LOGPROBS;
	r.asked.n_top_logprobs = 1;
	takes(
	    &r,
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ab\"},\"logprobs\":{\"content\":["
	    "{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97],\"top_logprobs\":[{\"token\":\"x\",\"logprob\":-0.25}]},"
	    "{\"token\":\"b\",\"logprob\":-1,\"bytes\":null,\"top_logprobs\":[{\"token\":\"b\",\"logprob\":-1},"
	    "{\"token\":\"c\",\"logprob\":-2}]}]}}]}");
	assert_int_equal(remote_answer_look(&r.a, 10, &r.f), 0);
	assert_int_equal(r.f.tokens.n, 2);
	assert_int_equal(r.f.tokens.n_top, 1);
	assert_int_equal(r.f.list[0].n_bytes, 1); /* each has its own text */
	const struct proto_pieces *p = &r.f.tokens.pieces;
	for (int i = 0; i < 2; i++) {
		struct proto_str own = p->of(p->ctx, r.f.list[i].id), top = p->of(p->ctx, r.f.tops[i].id);
		assert_memory_equal(own.at, i == 0 ? "a" : "b", 1);
		assert_memory_equal(top.at, i == 0 ? "x" : "b", 1);
	}
	assert_true(fabsf(r.f.list[0].logprob + 0.5F) < 1e-6F && fabsf(r.f.tops[0].v + 0.25F) < 1e-6F);
	assert_int_equal(r.f.tokens.text.n, 2);
	stop(&r);
}

/* The ids of the tokens that wait, of all choices. */
static size_t ids_of(struct rig *r, uint32_t *out, size_t room)
{
	size_t n = 0;
	while (remote_answer_next(&r->a) != REMOTE_NEXT_NONE) {
		if (remote_answer_next(&r->a) == REMOTE_NEXT_END) {
			remote_answer_take_end(&r->a);
			continue;
		}
		assert_int_equal(remote_answer_look(&r->a, 10, &r->f), 0);
		for (uint16_t i = 0; i < r->f.tokens.n && n < room; i++)
			out[n++] = r->f.list[i].id;
		remote_answer_drop(&r->a, &r->f);
	}
	return n;
}

static void ids_of_tokens(void **state)
{
	(void)state;
	struct rig r;
	uint32_t ids[16];
	start(&r, PROTO_PROMPT_CHAT);
	r.asked.flags = PROTO_SUBMIT_WANT_IDS;
	takes(&r, "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a b\"},\"token_ids\":[1,0,7]}]}");
	assert_int_equal(remote_answer_look(&r.a, 10, &r.f), 0);
	assert_int_equal(r.f.tokens.n, 3);
	assert_int_equal(r.f.list[2].n_bytes, 3); /* the last one has the text */
	assert_int_equal(ids_of(&r, ids, 16), 3);
	assert_true(ids[0] == 1 && ids[1] == 0 && ids[2] == 7);
	assert_int_equal(remote_answer_tokens(&r.a), 3);
	/* Reasoning is marked by what is no token of the vocabulary; ids that are none are not known. */
	takes(&r, "{\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"x\"},\"token_ids\":[2]}]}");
	takes(&r, "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"y\"},\"token_ids\":[-1,\"z\",9]}]}");
	takes(&r, "{\"choices\":[{\"index\":0,\"delta\":{},\"token_ids\":[3],\"finish_reason\":\"stop\"}]}");
	assert_int_equal(ids_of(&r, ids, 16), 7);
	assert_true(ids[0] > PROTO_NO_ID && ids[1] == 2 && ids[2] > PROTO_NO_ID);
	assert_true(ids[3] > PROTO_NO_ID && ids[4] > PROTO_NO_ID && ids[5] == 9 && ids[6] == 3);
	stop(&r);
}

static void ids_beside_log_probabilities(void **state)
{
	(void)state;
	struct rig r;
	uint32_t ids[16];
	start(&r, PROTO_PROMPT_TEXT);
	r.asked.flags = PROTO_SUBMIT_WANT_IDS | PROTO_SUBMIT_WANT_LOGPROBS;
	takes(&r, "{\"choices\":[{\"index\":0,\"text\":\"ab\",\"token_ids\":[4,5],\"logprobs\":{\"tokens\":[\"a\","
		  "\"b\"],\"token_logprobs\":[-1,-2]}}]}");
	takes(&r, "{\"choices\":[{\"index\":0,\"text\":\"c\",\"token_ids\":[6,7],\"logprobs\":{\"tokens\":[\"c\"],"
		  "\"token_logprobs\":[-1]}}]}");
	assert_int_equal(ids_of(&r, ids, 16), 3);
	assert_true(ids[0] == 4 && ids[1] == 5 && ids[2] > PROTO_NO_ID);
	stop(&r);
}

/* What is repeated may come divided otherwise. */
static void tokens_are_the_same_however_they_come(void **state)
{
#define LISTED(token, bytes) "{\"token\":\"" token "\",\"bytes\":[" bytes "],\"logprob\":-1}"
#define SPELT(content, list)                                                               \
	"{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" content "\"},\"logprobs\":" \
	"{\"content\":[" list "]}}]}"
	static const char one[] = LISTED("one", "111,110,101"), first[] = LISTED("\xef\xbf\xbd", "195"),
			  second[] = LISTED("\xef\xbf\xbd", "169"), two[] = LISTED(" two", "32,116,119,111");
	static const uint16_t lengths[] = {3, 0, 2, 4};
	char all[2][512];
	(void)state;
	snprintf(all[0], sizeof all[0], SPELT("one\xc3\xa9 two", "%s,%s,%s,%s"), one, first, second, two);
	snprintf(all[1], sizeof all[1], SPELT("\xc3\xa9 two", "%s,%s"), second, two);
	for (int apart = 0; apart < 2; apart++) {
		char head[512];
		struct rig r;
		start(&r, PROTO_PROMPT_CHAT);
		r.asked.flags = PROTO_SUBMIT_WANT_IDS;
		snprintf(head, sizeof head, SPELT("one", "%s,%s"), one, first);
		if (apart)
			takes(&r, head);
		takes(&r, all[apart]);
		assert_int_equal(remote_answer_look(&r.a, 10, &r.f), 0);
		assert_int_equal(r.f.tokens.n, 4);
		for (int i = 0; i < 4; i++) {
			assert_int_equal(r.f.list[i].n_bytes, lengths[i]);
			assert_true(isnan(r.f.list[i].logprob)); /* nobody asked for them */
		}
		assert_memory_equal(r.f.tokens.text.at, "one\xc3\xa9 two", 9);
		assert_null(r.f.tokens.pieces.of);
		stop(&r);
	}
#undef LISTED
#undef SPELT
}

static void arguments_are_divided_alike(void **state)
{
#define ARGUMENTS(text) DELTA("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"" text "\"}}]}")
#define BEGIN(text) DELTA("{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":\"" text "\"}}]}")
	static const char *const ways[2][4] = {
	    {BEGIN("{\\\"city\\\": \\\"K\xc3\xb6"), ARGUMENTS("ln"), ARGUMENTS(" (am Rhein)\\\"}"), NULL},
	    {BEGIN(""), ARGUMENTS("{\\\"city\\\": \\\"K\xc3\xb6ln (am Rhe"), ARGUMENTS("in)\\\"}"), NULL}};
	uint16_t lengths[2][32], n[2];
	char text[2][256] = {"", ""};
	(void)state;
	for (int way = 0; way < 2; way++) {
		struct rig r;
		start(&r, PROTO_PROMPT_CHAT);
		r.asked.flags = PROTO_SUBMIT_WANT_IDS;
		for (int i = 0; ways[way][i] != NULL; i++)
			takes(&r, ways[way][i]);
		takes(&r, "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}");
		assert_int_equal(remote_answer_look(&r.a, 32, &r.f), 0);
		n[way] = r.f.tokens.n;
		for (uint16_t i = 0; i < n[way]; i++)
			lengths[way][i] = r.f.list[i].n_bytes;
		memcpy(text[way], r.f.tokens.text.at, r.f.tokens.text.n);
		stop(&r);
	}
	assert_string_equal(text[0], text[1]);
	assert_non_null(strstr(text[0], "K\xc3\xb6ln (am Rhein)"));
	assert_int_equal(n[0], n[1]);
	assert_memory_equal(lengths[0], lengths[1], n[0] * sizeof lengths[0][0]);
#undef ARGUMENTS
#undef BEGIN
}

/* A call's text is its tokens. */
static void listed_tokens_of_calls_count_once(void **state)
{
	(void)state;
	struct rig r;
	start(&r, PROTO_PROMPT_CHAT);
	r.asked.flags = PROTO_SUBMIT_WANT_IDS;
	takes(&r, "{\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\","
		  "\"arguments\":\"{}\"}}]},\"logprobs\":{\"content\":[{\"token\":\"{}\",\"logprob\":-1}]}}]}");
	assert_int_equal(remote_answer_tokens(&r.a), 1);
	stop(&r);
}

static void paced_readers_get_words(void **state)
{
	(void)state;
	struct rig r;
	start(&r, PROTO_PROMPT_CHAT);
	r.asked.rate_tps = 10;
	takes(&r, DELTA("{\"content\":\" one two  three\"}"));
	assert_int_equal(remote_answer_look(&r.a, 10, &r.f), 0);
	assert_int_equal(r.f.tokens.n, 2);
	assert_int_equal(r.f.list[0].n_bytes, 4);
	assert_int_equal(r.f.tokens.text.n, 15);
	assert_int_equal(remote_answer_tokens(&r.a), 1);
	remote_answer_drop(&r.a, &r.f);
	takes(&r, DELTA("{\"content\":\"\\n\\nfour\"}"));
	assert_int_equal(remote_answer_look(&r.a, 10, &r.f), 0);
	assert_int_equal(r.f.tokens.n, 2);
	assert_int_equal(r.f.list[0].n_bytes, 2);
	stop(&r);
}

static void choices_of_a_completion(void **state)
{
	(void)state;
	struct rig r;
	start(&r, PROTO_PROMPT_TEXT);
	r.asked.n = r.asked.best_of = 2;
	takes(&r, "{\"choices\":[{\"index\":1,\"text\":\"b\"},{\"index\":0,\"text\":\"a\"}]}");
	takes(&r, "{\"choices\":[{\"index\":1,\"text\":\"\",\"finish_reason\":\"length\"}]}");
	assert_false(remote_answer_ended(&r.a));
	takes(&r, "{\"choices\":[{\"index\":0,\"text\":\"c\",\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":"
		  "3,\"completion_tokens\":5}}");
	assert_true(r.a.complete);
	assert_int_equal(remote_answer_tokens(&r.a), 5);
	stop(&r);
}

static void stops_are_found(void **state)
{
	(void)state;
	struct rig r;
	start(&r, PROTO_PROMPT_CHAT);
	r.asked.n_stops = 2;
	r.asked.stops[0] = (struct proto_str){"x", 1};
	r.asked.stops[1] = (struct proto_str){"end", 3};
	takes(&r, "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\",\"stop_reason\":\"end\"}]}");
	assert_int_equal(r.a.choices[0].stop, PROTO_STOP_STRING);
	assert_int_equal(r.a.choices[0].stop_at, 1);
	stop(&r);
}

static void usages(void **state)
{
	(void)state;
	static const struct {
		const char *usage;
		bool is_false;
		uint32_t n;
	} cases[] = {
	    {"{\"prompt_tokens\":7,\"completion_tokens\":4,\"prompt_tokens_details\":{\"cached_tokens\":5}}", false, 4},
	    {"{\"prompt_tokens\":7,\"completion_tokens\":-4}", true, 1},
	    {"{\"prompt_tokens\":7,\"completion_tokens\":21}", true, 1},
	    {"{\"prompt_tokens\":7,\"completion_tokens\":4.5}", true, 1},
	    {"{\"prompt_tokens\":1001,\"completion_tokens\":4}", true, 1},
	    {"{\"prompt_tokens\":7,\"completion_tokens\":\"4\"}", true, 1},
	    {"{\"prompt_tokens\":7,\"completion_tokens\":0}", true, 1},
	    {"{\"prompt_tokens\":7,\"completion_tokens\":4,\"prompt_tokens_details\":{\"cached_tokens\":8}}", true, 1},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct rig r;
		char json[512];
		start(&r, PROTO_PROMPT_CHAT);
		takes(&r, DELTA("{\"content\":\"a\"}"));
		takes(&r, STOP);
		snprintf(json, sizeof json, "{\"choices\":[],\"usage\":%s}", cases[i].usage);
		takes(&r, json);
		assert_int_equal(r.a.usage.is_false, cases[i].is_false);
		assert_int_equal(remote_answer_tokens(&r.a), cases[i].n);
		stop(&r);
	}
}

static void bad_events(void **state)
{
	(void)state;
	static const struct {
		const char *json;
		enum proto_fault fault;
	} cases[] = {
	    {"", PROTO_FAULT_EVENT},
	    {"{", PROTO_FAULT_EVENT},
	    {"[]", PROTO_FAULT_EVENT},
	    {"{}", PROTO_FAULT_EVENT},
	    {"{\"choices\":[5]}", PROTO_FAULT_EVENT},
	    {"{\"choices\":[{\"index\":1,\"delta\":{\"content\":\"x\"}}]}", PROTO_FAULT_EVENT},
	    {"{\"choices\":[{\"index\":-1}]}", PROTO_FAULT_EVENT},
	    {DELTA("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"x\"}}]}"), PROTO_FAULT_EVENT},
	    {DELTA("{\"tool_calls\":[{\"index\":-5,\"function\":{\"name\":\"f\"}}]}"), PROTO_FAULT_EVENT},
	    {DELTA("{\"tool_calls\":[{\"index\":99999999999,\"function\":{\"name\":\"f\"}}]}"), PROTO_FAULT_EVENT},
	    {"{\"error\":{\"message\":\"m\"}}", PROTO_FAULT_SERVER},
	    {"{\"error\":\"m\"}", PROTO_FAULT_SERVER},
	    {"{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"content_filter\"}]}", PROTO_FAULT_SERVER},
	    {"[DONE]", PROTO_FAULT_CUT},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct rig r;
		start(&r, PROTO_PROMPT_CHAT);
		assert_false(event(&r, cases[i].json));
		assert_int_equal(r.a.fault, cases[i].fault);
		assert_true(r.a.why[0] != '\0');
		stop(&r);
	}
	struct rig r;
	start(&r, PROTO_PROMPT_CHAT);
	takes(&r, STOP);
	assert_false(event(&r, DELTA("{\"content\":\"more\"}")));
	stop(&r);
}

static void an_answer_without_end(void **state)
{
	(void)state;
	struct rig r;
	int n = 0;
	start(&r, PROTO_PROMPT_CHAT);
	while (event(&r, DELTA("{\"content\":\"x\"}")))
		n++;
	assert_int_equal(r.a.fault, PROTO_FAULT_LONG);
	assert_true(n < 1000);
	stop(&r);
}

static void errors_are_told(void **state)
{
	(void)state;
	struct remote_error e;
	char json[2000] = "{\"error\":{\"code\":\"c\",\"param\":\"tools[0]\",\"message\":\"a\\nb ";
	for (int i = 0; i < 200; i++)
		strcat(json, "\xe2\x82\xac");
	strcat(json, "\"}}");
	assert_true(remote_error_read(json, strlen(json), &e));
	assert_string_equal(e.code, "c");
	assert_string_equal(e.param, "tools[0]");
	assert_int_equal(strncmp(e.message, "a b \xe2\x82\xac", 7), 0);
	assert_int_equal((strlen(e.message) - 4) % 3, 0); /* whole characters */
	assert_false(remote_error_read("<html>", 6, &e));
	assert_false(remote_error_read("{\"error\":{\"message\":5}}", 24, &e));
	struct remote_call c = {.fault = PROTO_FAULT_CUT};
	assert_true(remote_fault_retries(&c));
	c.n_head = 1;
	assert_false(remote_fault_retries(&c)); /* something came */
	c.n_head = 0;
	c.fresh = true;
	assert_false(remote_fault_retries(&c)); /* once is enough */
	for (int i = 0; i < PROTO_FAULTS; i++) {
		struct remote_failure f;
		struct remote_call one = {.fault = (enum proto_fault)i};
		remote_failure_of(&one, &f);
		assert_true(f.error != PROTO_ERR_NONE && f.message[0] != '\0' &&
			    remote_fault_name((enum proto_fault)i) != NULL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(text_passes_byte_for_byte),
	    cmocka_unit_test(reasoning_and_calls),
	    cmocka_unit_test(a_call_that_the_length_cuts),
	    cmocka_unit_test(a_long_delta_is_several_tokens),
	    cmocka_unit_test(log_probabilities),
	    cmocka_unit_test(ids_of_tokens),
	    cmocka_unit_test(ids_beside_log_probabilities),
	    cmocka_unit_test(tokens_are_the_same_however_they_come),
	    cmocka_unit_test(arguments_are_divided_alike),
	    cmocka_unit_test(listed_tokens_of_calls_count_once),
	    cmocka_unit_test(paced_readers_get_words),
	    cmocka_unit_test(choices_of_a_completion),
	    cmocka_unit_test(stops_are_found),
	    cmocka_unit_test(usages),
	    cmocka_unit_test(bad_events),
	    cmocka_unit_test(an_answer_without_end),
	    cmocka_unit_test(errors_are_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
