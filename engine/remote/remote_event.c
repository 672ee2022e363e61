/* SPDX-License-Identifier: Apache-2.0
 *
 * One event: a chunk of a chat or of a completion, an error, or [DONE].
 */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_depth.h"
#include "base/json/json_out.h"
#include "base/utf8.h"
#include "engine/remote/remote_chunk.h"
#include "engine/remote/remote_fault.h"
#include "engine/remote/remote_queue.h"

enum { EVENT_DEPTH = 32, MOST_CALLS = 256, MOST_NAME = 256, MOST_DELTAS = 4, SPARE_DELTAS = 256 };

static bool fail(struct remote_answer *a, enum proto_fault fault, const char *why)
{
	a->fault = fault;
	snprintf(a->why, sizeof a->why, "%s", why);
	return false;
}

static bool put_failed(struct remote_answer *a) { return fail(a, PROTO_FAULT_LONG, "more waits than may"); }

/* ---- tokens ---- */

static bool put_marker(struct remote_answer *a, uint8_t choice, uint32_t marker)
{
	const struct remote_record r = {.choice = choice, .id = marker, .logprob = NAN};
	return remote_queue_put(a, &r, "", (struct proto_str){"", 0}) == 0 || put_failed(a);
}

/* How much of the text is the next token: whole characters. */
static size_t next_piece(const char *text, size_t n)
{
	if (n <= REMOTE_TOKEN_TEXT)
		return n;
	size_t k = utf8_whole_prefix((const uint8_t *)text, REMOTE_TOKEN_TEXT);
	return k > 0 ? k : REMOTE_TOKEN_TEXT;
}

/* Where the second word begins, or the next line. */
static size_t next_word(const char *text, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		bool word = text[i] == ' ' && text[i - 1] != ' ' && i + 1 < n && text[i + 1] != ' ';
		if (word || (text[i - 1] == '\n' && text[i] != '\n'))
			return i;
	}
	return n;
}

/* For paced readers words and lines that came together are apart: each has at least one token. */
static bool put_text(struct remote_answer *a, uint8_t choice, const char *text, size_t n)
{
	while (n > 0) {
		size_t k = next_piece(text, a->asked->rate_tps > 0 ? next_word(text, n) : n);
		const struct remote_record r = {.choice = choice, .n_text = (uint16_t)k, .logprob = NAN};
		if (remote_queue_put(a, &r, text, (struct proto_str){"", 0}) != 0)
			return put_failed(a);
		text += k;
		n -= k;
	}
	return true;
}

/* As a record has it: of the token at a place of token_ids (vLLM's field; NULL: there is none), 0 where it has none. */
static uint32_t id_of(const json_t *ids, size_t at)
{
	const json_t *v = json_array_get(ids, at);
	json_int_t id = json_integer_value(v);
	return json_is_integer(v) && id >= 0 && id < PROTO_NO_ID ? (uint32_t)id + 1 : 0;
}

/* An upstream that sends far more than was asked for would be served for nothing. */
static bool count_delta(struct remote_answer *a, struct remote_choice *c)
{
	c->n_deltas++;
	if (c->n_deltas > (uint64_t)MOST_DELTAS * a->asked->max_tokens + SPARE_DELTAS)
		return fail(a, PROTO_FAULT_LONG, "the answer is longer than was asked for");
	return true;
}

static bool set_reasoning(struct remote_answer *a, uint8_t choice, bool on)
{
	struct remote_choice *c = &a->choices[choice];
	if (c->reasoning == on)
		return true;
	c->reasoning = on;
	return put_marker(a, choice, on ? REMOTE_MARK_THINK : REMOTE_MARK_THINK_END);
}

/* ---- log probabilities ---- */

/* One token of a list, in the form of chats. */
static struct proto_str piece_of(const json_t *entry, char room[PROTO_MAX_PIECE])
{
	const json_t *bytes = json_object_get(entry, "bytes"), *token = json_object_get(entry, "token");
	size_t n = json_array_size(bytes) < PROTO_MAX_PIECE ? json_array_size(bytes) : PROTO_MAX_PIECE;
	for (size_t i = 0; i < n; i++)
		room[i] = (char)(uint8_t)json_integer_value(json_array_get(bytes, i));
	if (n > 0)
		return (struct proto_str){room, n};
	n = json_string_length(token) < PROTO_MAX_PIECE ? json_string_length(token) : PROTO_MAX_PIECE;
	return (struct proto_str){n > 0 ? json_string_value(token) : "", n};
}

static float logprob_of(const json_t *v) { return json_is_number(v) ? (float)json_number_value(v) : NAN; }

static bool put_tops(struct remote_answer *a, const json_t *list, uint8_t n)
{
	char room[PROTO_MAX_PIECE];
	for (uint8_t k = 0; k < n; k++) {
		const json_t *top = json_array_get(list, k);
		if (remote_queue_put_top(a, logprob_of(json_object_get(top, "logprob")), piece_of(top, room)) != 0)
			return put_failed(a);
	}
	return true;
}

/* How much of a delta's text belongs to this token of its list: the characters that it completes, and of the last one
 * the rest, if the text is not what the tokens spell. */
static size_t text_of(struct remote_choice *c, struct proto_str piece, bool is_last, const char *text, size_t n)
{
	char room[sizeof c->part + PROTO_MAX_PIECE];
	memcpy(room, c->part, c->n_part);
	memcpy(room + c->n_part, piece.at, piece.n);
	size_t spelt = c->n_part + piece.n, k = utf8_whole_prefix((const uint8_t *)room, spelt);
	bool is_text = k <= n && memcmp(text, room, k) == 0 && (!is_last || k == n);
	c->n_part = 0;
	if (!is_text)
		return is_last ? n : 0;
	if (spelt - k <= sizeof c->part) {
		c->n_part = (uint8_t)(spelt - k);
		memcpy(c->part, room + k, spelt - k);
	}
	return k;
}

/* The tokens of a delta by their ids; the last one has its text. */
static bool put_ids(struct remote_answer *a, uint8_t choice, const json_t *ids, const char *text, size_t n)
{
	size_t n_ids = json_array_size(ids), first = next_piece(text, n);
	for (size_t i = 0; i < n_ids; i++) {
		const struct remote_record r = {.choice = choice,
						.id = id_of(ids, i),
						.n_text = (uint16_t)(i + 1 == n_ids ? first : 0),
						.logprob = NAN};
		if (!count_delta(a, &a->choices[choice]))
			return false;
		if (remote_queue_put(a, &r, text, (struct proto_str){"", 0}) != 0)
			return put_failed(a);
	}
	return put_text(a, choice, text + first, n - first);
}

/* The tokens of a delta by their log probabilities, with its text. ids: theirs, if there are as many. The log
 * probabilities themselves pass if they were asked for. */
static bool put_listed(struct remote_answer *a, uint8_t choice, const json_t *list, const json_t *ids, const char *text,
		       size_t n)
{
	bool have_ids = json_array_size(ids) == json_array_size(list),
	     wants_logprobs = (a->asked->flags & PROTO_SUBMIT_WANT_LOGPROBS) != 0;
	char room[PROTO_MAX_PIECE];
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *entry = json_array_get(list, i), *tops = json_object_get(entry, "top_logprobs");
		struct proto_str piece = piece_of(entry, room);
		size_t n_top = json_array_size(tops),
		       own = text_of(&a->choices[choice], piece, i + 1 == json_array_size(list), text, n);
		size_t first = next_piece(text, own);
		n_top = n_top < a->asked->n_top_logprobs ? n_top : a->asked->n_top_logprobs;
		const struct remote_record r = {
		    .choice = choice,
		    .id = have_ids ? id_of(ids, i) : 0,
		    .n_top = (uint8_t)n_top,
		    .n_text = (uint16_t)first,
		    .logprob = wants_logprobs ? logprob_of(json_object_get(entry, "logprob")) : NAN};
		if (!count_delta(a, &a->choices[choice]))
			return false;
		if (remote_queue_put(a, &r, text, wants_logprobs ? piece : (struct proto_str){"", 0}) != 0)
			return put_failed(a);
		if (!put_tops(a, tops, (uint8_t)n_top) || !put_text(a, choice, text + first, own - first))
			return false;
		text += own;
		n -= own;
	}
	return true;
}

/* An object NAME: LOGPROB as a list of chats, likeliest first: it may have the chosen token besides the asked ones. */
static json_t *listed_tops(const json_t *tops)
{
	json_t *list = json_array();
	const char *name;
	const json_t *v;
	json_object_foreach((json_t *)tops, name, v)
	{
		size_t at = 0;
		while (at < json_array_size(list) &&
		       json_number_value(json_object_get(json_array_get(list, at), "logprob")) >= json_number_value(v))
			at++;
		json_array_insert_new(list, at, json_pack("{s:s, s:O}", "token", name, "logprob", v));
	}
	return list;
}

/* The form of completions as that of chats. NULL: none, or no memory. */
static json_t *listed_completion(const json_t *logprobs)
{
	const json_t *tokens = json_object_get(logprobs, "tokens"), *of = json_object_get(logprobs, "token_logprobs"),
		     *tops = json_object_get(logprobs, "top_logprobs");
	json_t *list = json_is_array(tokens) ? json_array() : NULL;
	for (size_t i = 0; list != NULL && i < json_array_size(tokens); i++) {
		json_t *entry = json_pack("{s:O?, s:O?, s:o}", "token", json_array_get(tokens, i), "logprob",
					  json_array_get(of, i), "top_logprobs", listed_tops(json_array_get(tops, i)));
		json_array_append_new(list, entry);
	}
	return list;
}

/* ---- deltas ---- */

/* What the upstream says of a delta's tokens; NULL where it does not. */
struct listed {
	const json_t *logprobs, *ids;
};

/* text: a delta's, of n bytes. */
static bool put_delta(struct remote_answer *a, uint8_t choice, const char *text, size_t n, struct listed of)
{
	struct remote_choice *c = &a->choices[choice];
	bool wants_logprobs = (a->asked->flags & PROTO_SUBMIT_WANT_LOGPROBS) != 0,
	     wants_ids = (a->asked->flags & PROTO_SUBMIT_WANT_IDS) != 0;
	if (c->finish != 0)
		return n == 0 || fail(a, PROTO_FAULT_EVENT, "text follows a choice's end");
	if ((wants_logprobs || wants_ids) && json_array_size(of.logprobs) > 0)
		return put_listed(a, choice, of.logprobs, of.ids, text, n);
	if (wants_ids && json_array_size(of.ids) > 0)
		return put_ids(a, choice, of.ids, text, n);
	return n == 0 || (count_delta(a, c) && put_text(a, choice, text, n));
}

/* ---- calls ---- */

static bool put_literal(struct remote_answer *a, uint8_t choice, const char *text)
{
	return put_text(a, choice, text, strlen(text));
}

/* As the inside of a JSON string. */
static bool put_escaped(struct remote_answer *a, uint8_t choice, const char *text, size_t n)
{
	char room[JSON_ESCAPED_MAX(64)];
	while (n > 0) {
		size_t k = n < 64 ? n : utf8_whole_prefix((const uint8_t *)text, 64);
		k = k > 0 ? k : 64;
		if (!put_text(a, choice, room, (size_t)(json_escape(room, text, k) - room)))
			return false;
		text += k;
		n -= k;
	}
	return true;
}

/* The group's whole characters, or all of it. */
static bool put_group(struct remote_answer *a, uint8_t choice, bool all)
{
	struct remote_choice *c = &a->choices[choice];
	size_t n = c->n_group, whole = utf8_whole_prefix((const uint8_t *)c->group, n),
	       k = all || whole == 0 ? n : whole;
	if (!put_escaped(a, choice, c->group, k))
		return false;
	memmove(c->group, c->group + k, n - k);
	c->n_group = (uint8_t)(n - k);
	return true;
}

static bool put_arguments(struct remote_answer *a, uint8_t choice, const char *text, size_t n)
{
	struct remote_choice *c = &a->choices[choice];
	if ((a->asked->flags & PROTO_SUBMIT_WANT_IDS) == 0)
		return put_escaped(a, choice, text, n);
	while (n > 0) {
		size_t room = sizeof c->group - c->n_group, k = n < room ? n : room;
		memcpy(c->group + c->n_group, text, k);
		c->n_group = (uint8_t)(c->n_group + k);
		text += k;
		n -= k;
		if (c->n_group == sizeof c->group && !put_group(a, choice, false))
			return false;
	}
	return true;
}

static bool close_call(struct remote_answer *a, uint8_t choice)
{
	struct remote_choice *c = &a->choices[choice];
	if (!c->calling)
		return true;
	c->calling = false;
	return put_group(a, choice, true) && put_literal(a, choice, "\"}") &&
	       put_marker(a, choice, REMOTE_MARK_CALL_END);
}

static bool open_call(struct remote_answer *a, uint8_t choice, int64_t index, const json_t *name)
{
	struct remote_choice *c = &a->choices[choice];
	if (json_string_length(name) == 0 || json_string_length(name) > MOST_NAME || index <= c->call ||
	    index >= MOST_CALLS)
		return fail(a, PROTO_FAULT_EVENT, "a call has no name or a wrong index");
	if (!close_call(a, choice) || !set_reasoning(a, choice, false))
		return false;
	c->call = index;
	c->calling = true;
	return put_marker(a, choice, REMOTE_MARK_CALL) && put_literal(a, choice, "{\"name\": \"") &&
	       put_escaped(a, choice, json_string_value(name), json_string_length(name)) &&
	       put_literal(a, choice, "\", \"arguments\": \"");
}

static bool take_call(struct remote_answer *a, uint8_t choice, const json_t *call)
{
	struct remote_choice *c = &a->choices[choice];
	const json_t *function = json_object_get(call, "function"), *at = json_object_get(call, "index"),
		     *name = json_object_get(function, "name"), *text = json_object_get(function, "arguments");
	/* Without an index a name begins the next call. */
	int64_t index = json_is_integer(at) ? json_integer_value(at) : c->call + (json_string_length(name) > 0);
	if (c->finish != 0)
		return fail(a, PROTO_FAULT_EVENT, "a call follows a choice's end");
	if ((index != c->call || !c->calling) && !open_call(a, choice, index, name))
		return false;
	return count_delta(a, c) && put_arguments(a, choice, json_string_value(text), json_string_length(text));
}

static bool take_calls(struct remote_answer *a, uint8_t choice, const json_t *calls)
{
	for (size_t i = 0; i < json_array_size(calls); i++)
		if (!take_call(a, choice, json_array_get(calls, i)))
			return false;
	return true;
}

/* ---- ends ---- */

/* Which of the request's stops ended it; vLLM's field. */
static void read_stop(struct remote_answer *a, struct remote_choice *c, const json_t *reason)
{
	const struct proto_submit *s = a->asked;
	for (uint8_t i = 0; json_is_string(reason) && i < s->n_stops; i++)
		if (s->stops[i].n == json_string_length(reason) &&
		    memcmp(s->stops[i].at, json_string_value(reason), s->stops[i].n) == 0) {
			c->stop = PROTO_STOP_STRING;
			c->stop_at = i;
			return;
		}
	for (uint8_t i = 0; json_is_integer(reason) && i < s->n_stop_ids; i++)
		if ((json_int_t)s->stop_ids[i] == json_integer_value(reason)) {
			c->stop = PROTO_STOP_ID;
			c->stop_at = s->stop_ids[i];
			return;
		}
}

static bool take_finish(struct remote_answer *a, uint8_t choice, const json_t *chunk)
{
	const char *reason = json_string_value(json_object_get(chunk, "finish_reason"));
	struct remote_choice *c = &a->choices[choice];
	const struct remote_record end = {.choice = choice, .is_end = true};
	if (reason == NULL || reason[0] == '\0' || c->finish != 0)
		return true;
	if (strcmp(reason, "content_filter") == 0)
		return fail(a, PROTO_FAULT_SERVER, "its content filter ended the answer");
	if (strcmp(reason, "error") == 0)
		return fail(a, PROTO_FAULT_SERVER, "it ended the answer with an error");
	bool length = strcmp(reason, "length") == 0;
	if (length ? !put_group(a, choice, true) : !(close_call(a, choice) && set_reasoning(a, choice, false)))
		return false;
	c->finish = length ? PROTO_FINISH_LENGTH : PROTO_FINISH_STOP;
	if (!length)
		read_stop(a, c, json_object_get(chunk, "stop_reason"));
	return remote_queue_put(a, &end, "", (struct proto_str){"", 0}) == 0 || put_failed(a);
}

/* ---- chunks ---- */

/* A delta's texts; of: the tokens of the one that is not empty or, of two, of the content. */
static bool take_texts(struct remote_answer *a, uint8_t choice, struct proto_str thought, struct proto_str content,
		       struct listed of)
{
	const struct listed none = {0}, of_thought = content.n > 0 ? none : of;
	if (thought.n > 0 && !(close_call(a, choice) && set_reasoning(a, choice, true) &&
			       put_delta(a, choice, thought.at, thought.n, of_thought)))
		return false;
	if (content.n > 0 && !(close_call(a, choice) && set_reasoning(a, choice, false)))
		return false;
	return (content.n == 0 && thought.n > 0) || put_delta(a, choice, content.at, content.n, of);
}

static struct proto_str text_in(const json_t *v)
{
	size_t n = json_string_length(v);
	return (struct proto_str){n > 0 ? json_string_value(v) : "", n};
}

static bool take_chat_delta(struct remote_answer *a, uint8_t choice, const json_t *chunk)
{
	const json_t *delta = json_object_get(chunk, "delta");
	const struct listed of = {.logprobs = json_object_get(json_object_get(chunk, "logprobs"), "content"),
				  .ids = json_object_get(chunk, "token_ids")};
	const json_t *content = json_object_get(delta, "content"),
		     *thought = json_object_get(delta, "reasoning_content");
	if (!json_is_string(thought))
		thought = json_object_get(delta, "reasoning");
	if (!json_is_string(content))
		content = json_object_get(delta, "refusal");
	const json_t *calls = json_object_get(delta, "tool_calls");
	bool for_client = (a->asked->flags & PROTO_SUBMIT_WANT_LOGPROBS) != 0;
	/* A call's own text counts as tokens. */
	return take_texts(a, choice, text_in(thought), text_in(content),
			  for_client || json_array_size(calls) == 0 ? of : (struct listed){0}) &&
	       take_calls(a, choice, calls);
}

static bool take_text(struct remote_answer *a, uint8_t choice, const json_t *chunk)
{
	const json_t *text = json_object_get(chunk, "text"), *logprobs = json_object_get(chunk, "logprobs");
	json_t *list = listed_completion(logprobs);
	const struct listed of = {.logprobs = list, .ids = json_object_get(chunk, "token_ids")};
	bool ok =
	    put_delta(a, choice, json_is_string(text) ? json_string_value(text) : "", json_string_length(text), of);
	json_decref(list);
	return ok;
}

static bool take_choice(struct remote_answer *a, const json_t *chunk)
{
	json_int_t index = json_integer_value(json_object_get(chunk, "index"));
	if (!json_is_object(chunk) || index < 0 || index >= a->asked->n)
		return fail(a, PROTO_FAULT_EVENT, "a choice has a wrong index");
	bool chat = a->asked->prompt_kind == PROTO_PROMPT_CHAT;
	bool ok = chat ? take_chat_delta(a, (uint8_t)index, chunk) : take_text(a, (uint8_t)index, chunk);
	return ok && take_finish(a, (uint8_t)index, chunk);
}

/* ---- usage ---- */

/* A count that is an integer from 0 to most. */
static uint32_t count_of(const json_t *usage, const char *name, uint64_t most, bool *bad)
{
	const json_t *v = json_object_get(usage, name);
	json_int_t n = json_integer_value(v);
	if (json_is_integer(v) && n >= 0 && (uint64_t)n <= most)
		return (uint32_t)n;
	*bad = *bad || v != NULL;
	return 0;
}

static void take_usage(struct remote_answer *a, const json_t *usage)
{
	struct remote_usage *u = &a->usage;
	uint64_t asked = (uint64_t)a->asked->max_tokens * a->asked->n;
	bool bad = false;
	if (!json_is_object(usage))
		return;
	*u = (struct remote_usage){.known = true};
	asked = asked < UINT32_MAX ? asked : UINT32_MAX;
	u->n_prompt = count_of(usage, "prompt_tokens", a->prompt_most, &bad);
	u->n_completion = count_of(usage, "completion_tokens", asked, &bad);
	u->n_cached = count_of(json_object_get(usage, "prompt_tokens_details"), "cached_tokens", u->n_prompt, &bad);
	u->is_false = bad || u->n_prompt == 0 || (u->n_completion == 0 && a->choices[0].n_deltas > 0);
}

/* ---- the event ---- */

static bool take_error(struct remote_answer *a, const json_t *error)
{
	const char *text = json_string_value(json_is_string(error) ? error : json_object_get(error, "message"));
	const char *code = json_string_value(json_object_get(error, "code"));
	return fail(a, remote_fault_of_error(code != NULL ? code : ""), text != NULL ? text : "an error event");
}

static bool take_chunk(struct remote_answer *a, const json_t *root)
{
	const json_t *choices = json_object_get(root, "choices"), *error = json_object_get(root, "error");
	if (!json_is_object(root))
		return fail(a, PROTO_FAULT_EVENT, "an event is no JSON object");
	if (error != NULL && !json_is_null(error))
		return take_error(a, error);
	if (!json_is_array(choices))
		return fail(a, PROTO_FAULT_EVENT, "an event has no choices");
	for (size_t i = 0; i < json_array_size(choices); i++)
		if (!take_choice(a, json_array_get(choices, i)))
			return false;
	take_usage(a, json_object_get(root, "usage"));
	return true;
}

static bool take_plain(struct remote_answer *a, const struct remote_chunk *c)
{
	if (c->index >= a->asked->n)
		return fail(a, PROTO_FAULT_EVENT, "a choice has a wrong index");
	return take_texts(a, (uint8_t)c->index, c->thought, c->content, (struct listed){0});
}

bool remote_answer_event(struct remote_answer *a, const char *data, size_t n)
{
	static const char done[] = "[DONE]";
	struct remote_chunk plain;
	if (n == sizeof done - 1 && memcmp(data, done, n) == 0) {
		a->done = a->complete = true;
		return remote_answer_ended(a) || fail(a, PROTO_FAULT_CUT, "the stream is done before the answer");
	}
	if (a->asked->prompt_kind == PROTO_PROMPT_CHAT && remote_form_read(&a->form, data, n, &plain))
		return take_plain(a, &plain);
	if (json_deeper_than(data, n, EVENT_DEPTH))
		return fail(a, PROTO_FAULT_EVENT, "an event is nested too deep");
	json_t *root = json_loadb(data, n, JSON_ALLOW_NUL, NULL);
	bool ok = root != NULL ? take_chunk(a, root) : fail(a, PROTO_FAULT_EVENT, "an event is no JSON");
	json_decref(root);
	a->complete = a->complete || (ok && remote_answer_ended(a) && a->usage.known);
	return ok;
}
