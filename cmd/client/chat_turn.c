/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/client/chat_turn.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"

enum { CONTENT_MAX = 16 << 20, ARGUMENTS_MAX = 4 << 20 };

struct reading {
	struct http_call call;
	struct sse_read sse;
	struct chat_turn *turn;
	const struct chat_sink *sink;
	struct sl_buf content;
	json_t *calls;
	uint64_t begun_ns;
	bool done, broken;
};

static void copy(char *to, size_t room, const json_t *from)
{
	const char *s = json_string_value(from);
	if (s == NULL)
		return;
	snprintf(to, room, "%s", s);
	text_one_line(to, ' ');
}

/* The call with this index, made if it is the next one; NULL: none, or out of order. */
static json_t *call_at(struct reading *r, json_int_t index)
{
	if (r->calls == NULL)
		r->calls = json_array();
	size_t n = json_array_size(r->calls);
	if (index < 0 || (size_t)index > n || index >= CHAT_MAX_CALLS)
		return NULL;
	if ((size_t)index == n)
		json_array_append_new(r->calls, json_pack("{s:s,s:s,s:{s:s,s:s}}", "id", "", "type", "function",
							  "function", "name", "", "arguments", ""));
	return json_array_get(r->calls, (size_t)index);
}

static void append_string(json_t *object, const char *key, const json_t *more)
{
	const json_t *had = json_object_get(object, key);
	size_t n = json_string_length(had), m = json_string_length(more);
	if (m == 0 || n + m > ARGUMENTS_MAX)
		return;
	char *both = sl_alloc(n + m);
	if (both == NULL)
		return;
	memcpy(both, json_string_value(had), n);
	memcpy(both + n, json_string_value(more), m);
	json_object_set_new(object, key, json_stringn(both, n + m));
	sl_free(both);
}

static void take_calls(struct reading *r, const json_t *deltas)
{
	size_t i;
	json_t *delta;
	for (i = 0; i < json_array_size(deltas); i++) {
		delta = json_array_get(deltas, i);
		json_int_t index = json_integer_value(json_object_get(delta, "index"));
		json_t *call = call_at(r, index);
		const json_t *function = json_object_get(delta, "function");
		const json_t *name = json_object_get(function, "name"), *more = json_object_get(function, "arguments");
		if (call == NULL)
			continue;
		if (json_is_string(json_object_get(delta, "id")))
			json_object_set(call, "id", json_object_get(delta, "id"));
		json_t *own = json_object_get(call, "function");
		if (json_string_length(name) > 0) {
			append_string(own, "name", name);
			r->sink->call_name(r->sink->ctx, json_string_value(json_object_get(own, "name")));
		}
		if (json_string_length(more) > 0) {
			append_string(own, "arguments", more);
			r->sink->call_arguments(r->sink->ctx, json_string_value(more), json_string_length(more));
		}
	}
}

static void take_delta(struct reading *r, const json_t *delta)
{
	const json_t *text = json_object_get(delta, "content"), *thought = json_object_get(delta, "reasoning_content");
	if (!json_is_string(thought))
		thought = json_object_get(delta, "reasoning");
	size_t n = json_string_length(text), m = json_string_length(thought);
	if (n + m > 0 && r->turn->us_first == 0)
		r->turn->us_first = (clock_now_ns() - r->begun_ns) / 1000;
	if (m > 0)
		r->sink->thought(r->sink->ctx, json_string_value(thought), m);
	if (n > 0 && buf_append(&r->content, json_string_value(text), n) == 0)
		r->sink->text(r->sink->ctx, json_string_value(text), n);
	take_calls(r, json_object_get(delta, "tool_calls"));
}

static void on_event(void *ctx, const char *data, size_t n)
{
	struct reading *r = ctx;
	struct chat_turn *turn = r->turn;
	if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
		r->done = true;
		return;
	}
	json_t *all = json_loadb(data, n, 0, NULL);
	const json_t *error = json_object_get(all, "error"), *usage = json_object_get(all, "usage");
	const json_t *choice = json_array_get(json_object_get(all, "choices"), 0);
	if (all == NULL)
		snprintf(turn->why, sizeof turn->why, "an event of the stream is not JSON");
	if (error != NULL) {
		copy(turn->why, sizeof turn->why, json_object_get(error, "message"));
		if (turn->why[0] == '\0')
			snprintf(turn->why, sizeof turn->why, "the stream ended with an error");
	}
	copy(turn->model, sizeof turn->model, json_object_get(all, "model"));
	take_delta(r, json_object_get(choice, "delta"));
	copy(turn->finish, sizeof turn->finish, json_object_get(choice, "finish_reason"));
	if (json_is_object(usage)) {
		turn->n_prompt = (uint64_t)json_integer_value(json_object_get(usage, "prompt_tokens"));
		turn->n_completion = (uint64_t)json_integer_value(json_object_get(usage, "completion_tokens"));
	}
	json_decref(all);
}

static bool on_data(struct http_call *call, const char *bytes, size_t n)
{
	struct reading *r = list_entry(call, struct reading, call);
	r->broken = sse_read_feed(&r->sse, bytes, n) != 0;
	return !r->broken && r->turn->why[0] == '\0';
}

static json_t *message_of(struct reading *r)
{
	if (r->content.len == 0 && r->calls == NULL)
		return NULL;
	json_t *m = json_pack("{s:s}", "role", "assistant");
	if (r->content.len > 0)
		json_object_set_new(m, "content",
				    json_stringn_nocheck((const char *)buf_data(&r->content), r->content.len));
	else
		json_object_set_new(m, "content", json_null());
	/* Calls of an answer that was cut may lack half of their arguments. */
	if (r->calls != NULL && strcmp(r->turn->finish, "tool_calls") == 0)
		json_object_set(m, "tool_calls", r->calls);
	return m;
}

/* Why there is no whole answer, into turn->why. */
static void explain(struct reading *r, const volatile int *stop)
{
	struct chat_turn *turn = r->turn;
	if (turn->why[0] != '\0' || (stop != NULL && *stop))
		return;
	if (r->broken)
		snprintf(turn->why, sizeof turn->why, "the stream has a line that is too long");
	else if (r->call.end != HTTP_DONE || r->call.status < 200 || r->call.status >= 300)
		http_call_explain(&r->call, turn->why, sizeof turn->why);
	else if (!r->done)
		snprintf(turn->why, sizeof turn->why, "the stream ended before the answer did");
	text_one_line(turn->why, ' ');
}

int chat_turn_run(struct http_client *client, json_t *request, const struct chat_sink *sink, const volatile int *stop,
		  struct chat_turn *turn)
{
	struct reading *r = sl_zalloc(sizeof *r);
	*turn = (struct chat_turn){0};
	if (r == NULL)
		return SL_ENOMEM;
	json_object_set_new(request, "stream", json_true());
	json_object_set_new(request, "stream_options", json_pack("{s:b}", "include_usage", 1));
	char *body = json_dumps(request, JSON_COMPACT);
	*r = (struct reading){.turn = turn, .sink = sink, .begun_ns = clock_now_ns()};
	buf_init(&r->content, CONTENT_MAX);
	sse_read_init(&r->sse, SSE_READ_MAX, on_event, r);
	r->call.method = "POST";
	r->call.path = "/v1/chat/completions";
	r->call.headers[0] = "Accept: text/event-stream";
	r->call.body = body;
	r->call.n_body = body != NULL ? strlen(body) : 0;
	r->call.on_data = on_data;
	int rc = body != NULL ? http_call_run(client, &r->call, stop) : SL_ENOMEM;
	if (rc == 0)
		explain(r, stop);
	turn->end = r->call.end;
	turn->us_all = (clock_now_ns() - r->begun_ns) / 1000;
	turn->message = message_of(r);
	if (rc == 0 && turn->why[0] != '\0')
		rc = SL_EIO;
	json_decref(r->calls);
	buf_dispose(&r->content);
	sse_read_dispose(&r->sse);
	http_call_dispose(&r->call);
	sl_free(body);
	sl_free(r);
	return rc;
}

void chat_turn_dispose(struct chat_turn *turn)
{
	json_decref(turn->message);
	turn->message = NULL;
}
