/* SPDX-License-Identifier: Apache-2.0
 *
 * /v1/responses: create, retrieve (also as a stream, from any event on), cancel, delete, list the input items.
 *
 * A response is looked up in this process first (its event log, gateway/replay/replay.h, which all threads share), then
 * in the store, which also has the events of other gateways' responses (replay_store.h). While a handler waits, its
 * `struct call` is the exchange's state.
 */
#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/resume/replay_follow.h"
#include "gateway/api/api_count.h"
#include "gateway/api/api_form.h"
#include "gateway/api/api_request.h"
#include "gateway/api/body_reader.h"
#include "gateway/compress/compress_run.h"
#include "gateway/files/file_fetch.h"
#include "gateway/api/handlers.h"
#include "gateway/conversation/item_page.h"
#include "gateway/request/json_mem.h"
#include "gateway/auth/owned_name.h"
#include "gateway/sharing/prefix_registry.h"
#include "gateway/request/query.h"
#include "gateway/replay/replay_store.h"
#include "gateway/answer/response.h"
#include "gateway/conversation/response_prompt.h"
#include "gateway/exchange/route.h"
#include "gateway/answer/stream_out.h"

enum { END_WAIT_MS = 5000, ID_BYTES = REPLAY_MAX_ID, MAX_SNAPSHOT = 64 << 20 };

struct call {
	struct exchange *x;
	char id[ID_BYTES]; /* of the response asked for, the previous one, or the conversation */
	struct cache_op op;
	struct replay_find find;                 /* of a log that is not in this process */
	void (*found)(struct call *c, int code); /* c->log is set, unless code is negative */
	uint64_t from;                           /* retrieve, as a stream */
	struct replay_log *log;                  /* a reference, or NULL */
	struct replay_reader *reader;            /* while waiting for its end */
	struct event *timer;
	void (*ended)(struct call *c); /* once the log has ended */
	int model;                     /* create */
	bool counts;                   /* its prompt's tokens only */
	struct api_count count;
	struct file_fetch fetch; /* create: the files that its messages name */
	json_t *history;         /* meanwhile: the items before its input; a reference, or NULL */
	bool has_request;
	struct response_request request; /* create */
	struct response *own;            /* create: until the answer has it */
	struct sl_buf messages;          /* create: the prompt */
	struct compress_run *run;        /* create: while it is compressed */
	struct conversation_turn *turn;  /* in its conversation; owned */
	char made[ANSWER_ID_BYTES];      /* create, in a conversation: the new response */
};

/* ---- a call ---- */

static void call_free(struct call *c)
{
	cache_cancel(&c->op);
	file_fetch_cancel(&c->fetch);
	json_decref(c->history);
	api_count_cancel(&c->count);
	replay_find_cancel(&c->find);
	if (c->reader != NULL)
		replay_close(c->reader);
	if (c->log != NULL)
		replay_unref(c->log);
	if (c->timer != NULL)
		event_free(c->timer);
	compress_free(c->run);
	if (c->own != NULL)
		answer_response.dispose(c->own);
	buf_dispose(&c->messages);
	conversation_turn_drop(c->turn);
	if (c->has_request)
		response_request_dispose(&c->request);
	sl_free(c);
}

static void on_close(struct exchange *x) { call_free(x->state); }

/* NULL with x answered. */
static struct call *call_create(struct exchange *x)
{
	struct call *c = exchange_own(x, sizeof *c, on_close);
	if (c == NULL)
		return NULL;
	c->x = x;
	buf_init(&c->messages, REQUEST_MAX_PROMPT);
	return c;
}

static void reply_not_found(struct call *c)
{
	exchange_refuse(
	    c->x, 404, "response_not_found", "response_id",
	    "No response with the id '%.64s': it never existed, was not stored, is no longer kept, or is not yours.",
	    c->id);
}

/* A call on the response in the path, with its log if this process has it. NULL with x answered. */
static struct call *call_on_path(struct exchange *x)
{
	struct call *c = call_create(x);
	if (c == NULL || !route_part(x->route, http_request(x->stream)->path, c->id, sizeof c->id))
		return c;
	if (!owned_name_is_of(x->key, c->id)) {
		reply_not_found(c);
		return NULL;
	}
	c->log = replay_find(x->app->replay, c->id, x->key->tenant);
	return c;
}

static void reply_store_down(struct call *c)
{
	exchange_refuse(c->x, 503, "store_unavailable", NULL, "The store of responses is temporarily unavailable.");
}

/* The record that a read found; NULL with the call answered. */
static json_t *record_of(struct call *c, const struct cache_result *r)
{
	json_t *record = NULL;
	if (r->code == SL_ENOTFOUND)
		reply_not_found(c);
	else if (r->code != 0)
		reply_store_down(c);
	else if ((record = response_record_read(r->bytes, r->n)) == NULL)
		exchange_reply_no_memory(c->x);
	return record;
}

static struct call *of_op(struct cache_op *op) { return (struct call *)((char *)op - offsetof(struct call, op)); }

static void read_record(struct call *c, cache_done *done)
{
	struct cache_key key;
	response_key(&key, c->x->key, c->id);
	cache_get(c->x->app->t->cache, &c->op, &key, RESPONSE_VERSION, done);
}

static bool has_ended(const struct call *c)
{
	struct replay_usage usage;
	return replay_ended(c->log, &usage);
}

static void on_found(struct replay_find *find, struct replay_log *log, int code)
{
	struct call *c = (struct call *)(void *)((char *)find - offsetof(struct call, find));
	c->log = log;
	c->found(c, code);
}

/* Finds the events in the store: calls found, now or later. */
static void find_log(struct call *c, void (*found)(struct call *c, int code))
{
	c->found = found;
	c->find.done = on_found;
	int rc = replay_store_find(c->x->app, &c->find, c->id, c->x->key->tenant, &c->log);
	if (rc != 0)
		found(c, rc > 0 ? 0 : rc);
}

/* Replies with the response's present state. False, with nothing done: this process has none of it, since another
 * gateway generates it. */
static bool try_snapshot(struct call *c)
{
	struct sl_buf out;
	int rc;
	buf_init(&out, MAX_SNAPSHOT);
	bool is_here = c->log != NULL && replay_snapshot(c->log, &out, &rc);
	if (is_here && rc != 0)
		exchange_reply_no_memory(c->x);
	else if (is_here)
		exchange_reply(c->x, 200, "application/json", NULL, 0, buf_data(&out), out.len);
	buf_dispose(&out);
	return is_here;
}

static void reply_snapshot(struct call *c)
{
	if (!try_snapshot(c))
		reply_not_found(c); /* a stream, but of no response */
}

/* ---- stopping a response and waiting for its end ---- */

static void on_reader(void *ctx)
{
	struct call *c = ctx;
	void (*ended)(struct call * c) = c->ended;
	/* Called again for an ended log while the store works on what follows. */
	if (ended == NULL || http_answered(c->x->stream) || !has_ended(c))
		return;
	c->ended = NULL;
	evtimer_del(c->timer);
	ended(c);
}

static void on_late(evutil_socket_t fd, short what, void *ctx)
{
	struct call *c = ctx;
	(void)fd;
	(void)what;
	if (!http_answered(c->x->stream))
		exchange_refuse(c->x, 503, "overloaded", NULL, "The response has not stopped yet.");
}

static void stop_and_then(struct call *c, void (*ended)(struct call *c))
{
	static const struct timeval wait = {.tv_sec = END_WAIT_MS / 1000};
	struct gw_thread *t = c->x->app->t;
	c->ended = ended;
	c->timer = evtimer_new(t->base, on_late, c);
	if (c->timer == NULL || replay_read(c->log, t, REPLAY_NEXT, false, on_reader, c, &c->reader) != 0) {
		exchange_reply_no_memory(c->x);
		return;
	}
	evtimer_add(c->timer, &wait);
	replay_stop(c->log);
	/* It may have ended before the reader existed. */
	on_reader(c);
}

/* ---- create ---- */

/* The conversation: history (borrowed, may be NULL), then the input, each item with an id. NULL: no memory. */
static json_t *conversation(const struct response_request *r, const json_t *history)
{
	json_t *items = history != NULL ? json_copy((json_t *)(uintptr_t)history) : json_array();
	if (items != NULL && json_array_extend(items, r->input) == 0 && conversation_name_items(items) == 0)
		return items;
	json_decref(items);
	return NULL;
}

/* The call is over; its exchange becomes the answer's. */
static void start_answer(void *ctx, struct proto_str text, const char *members)
{
	struct call *c = ctx;
	struct exchange *x = c->x;
	struct response_request *r = &c->request;
	const struct answer_prompt prompt = {r->c.submit.prompt_kind, text};
	struct answer_spec spec = api_spec(x, &r->c, &answer_response, c->model);
	if (!api_form(x, &r->c, c->model, &spec))
		return;
	spec.own = c->own;
	spec.id = c->made[0] != '\0' ? c->made : NULL;
	spec.members = members;
	spec.logged = r->c.stream && r->store;
	spec.background = r->background;
	spec.keep_text = true;
	spec.prompts = &prompt;
	spec.n_prompts = 1;
	api_report(x, &r->c);
	if (members != NULL)
		c->own->digest = 0; /* a compressed prompt: its messages cannot warm the cache */
	c->own = NULL;
	exchange_disown(x);
	answer_start(x, &spec);
	call_free(c);
}

static void on_count(struct api_count *count, const struct proto_counted *m)
{
	exchange_reply_json(count->x, json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens",
						(json_int_t)m->n_tokens));
}

static void count_call(struct call *c, const json_t *history)
{
	struct request_error e;
	int rc = response_messages(&c->request, history, &c->messages, &e);
	if (!api_parsed(c->x, rc, &e))
		return;
	api_report(c->x, &c->request.c);
	api_count_start(&c->count, c->x, c->model, PROTO_PROMPT_CHAT, 0,
			(struct proto_str){(const char *)buf_data(&c->messages), c->messages.len}, "input", on_count);
}

/* Once its files are here. */
static void compose(struct call *c, const json_t *history)
{
	if (c->counts) {
		count_call(c, history);
		return;
	}
	struct response_request *r = &c->request;
	struct request_error e;
	int rc = response_messages(r, history, &c->messages, &e);
	if (rc == 0) {
		json_t *items = conversation(r, history);
		c->own = items != NULL ? response_create(r, items) : NULL;
		rc = c->own != NULL ? 0 : SL_ENOMEM;
	}
	if (c->own != NULL) {
		c->own->digest = prefix_digest(buf_data(&c->messages), c->messages.len);
		c->own->turn = c->turn;
		c->turn = NULL;
	}
	if (!api_parsed(c->x, rc, &e))
		return;
	const struct compress_ask ask = {.model = answer_longest_model(c->x, c->model),
					 .prompt = {(const char *)buf_data(&c->messages), c->messages.len},
					 .max_tokens = r->c.has_max_tokens ? r->c.max_tokens : 0};
	if (compress_start(c->x, &ask, start_answer, c, &c->run) > 0)
		start_answer(c, ask.prompt, NULL);
}

static void on_fetched(struct file_fetch *f)
{
	struct call *c = (struct call *)(void *)((char *)f - offsetof(struct call, fetch));
	compose(c, c->history);
}

/* history: borrowed; NULL: none. */
static void answer_call(struct call *c, json_t *history)
{
	struct request_error e;
	int rc = response_files(&c->request, history, &e);
	if (rc != 0) {
		api_parsed(c->x, rc, &e);
		return;
	}
	if (!request_files_lack(&c->request.files)) {
		compose(c, history);
		return;
	}
	c->history = json_incref(history);
	c->fetch = (struct file_fetch){.x = c->x, .files = &c->request.files, .done = on_fetched};
	file_fetch_start(&c->fetch);
}

static void reply_previous(struct call *c, const char *code, const char *why)
{
	exchange_refuse(c->x, 400, code, "previous_response_id", "The previous response '%.64s' %s.", c->id, why);
}

static bool is_running(const json_t *response)
{
	const char *status = json_string_value(json_object_get(response, "status"));
	return status == NULL || strcmp(status, "in_progress") == 0;
}

static void on_previous(struct cache_op *op, const struct cache_result *result)
{
	struct call *c = of_op(op);
	if (result->code == SL_ENOTFOUND) {
		reply_previous(c, "previous_response_not_found", "was not found");
		return;
	}
	json_t *record = record_of(c, result);
	if (record == NULL)
		return;
	json_t *items = json_object_get(record, "items"), *response = json_object_get(record, "response");
	if (is_running(response))
		reply_previous(c, "previous_response_not_ready", "is still being made");
	else if (json_array_extend(items, json_object_get(response, "output")) != 0)
		exchange_reply_no_memory(c->x);
	else
		answer_call(c, items);
	json_decref(record);
}

static void on_turn(void *ctx, const struct conversation_answer *a, json_t *doc)
{
	struct call *c = ctx;
	if (doc == NULL) {
		c->turn = NULL;
		conversation_refuse(c->x, c->id, "conversation", a);
		return;
	}
	json_t *items = json_object_get(doc, "items");
	size_t bytes = conversation_bytes(doc) + conversation_bytes(c->request.input);
	if (bytes > c->x->app->t->cfg->conversations.bytes ||
	    json_array_size(items) + json_array_size(c->request.input) >= CONVERSATION_MAX_ITEMS)
		conversation_refuse_size(c->x, "conversation", bytes);
	else
		answer_call(c, items);
}

/* The conversation is held from here on. */
static void take_turn(struct call *c)
{
	struct exchange *x = c->x;
	size_t n = strlen(answer_response.id_prefix);
	memcpy(c->made, answer_response.id_prefix, n);
	if (strlen(c->request.conversation) >= CONVERSATION_ID_BYTES ||
	    !owned_name_is_of(x->key, c->request.conversation)) {
		conversation_refuse(x, c->request.conversation, "conversation",
				    &(struct conversation_answer){.what = CONVERSATION_GONE});
		return;
	}
	snprintf(c->id, sizeof c->id, "%s", c->request.conversation);
	if (owned_name(x->key, c->made + n))
		c->turn = conversation_turn_take(x->app, x->key->tenant, c->id, c->made, on_turn, c);
	if (c->turn == NULL)
		exchange_reply_no_memory(x);
}

static int parse(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e)
{
	return response_request_parse(bytes, n, l, out, e);
}

static void dispose(void *r) { response_request_dispose(r); }

static void go_on(struct exchange *x, struct response_request *read, bool counts)
{
	struct request_error e;
	struct call *c = call_create(x);
	if (c == NULL)
		return;
	c->counts = counts;
	struct response_request *r = &c->request;
	*r = *read;
	memset(read, 0, sizeof *r);
	c->has_request = true;
	int rc = response_prompt_apply(x->app->t->cfg, r, &e);
	if ((rc == SL_ENOTFOUND && !exchange_refuse(x, 404, e.code, e.param, "%s", e.message)) ||
	    !api_parsed(x, rc, &e) || (c->model = api_choose_model(x, &r->c)) < 0)
		return;
	if (r->conversation != NULL) {
		take_turn(c);
		return;
	}
	if (r->previous_response_id == NULL) {
		answer_call(c, NULL);
		return;
	}
	snprintf(c->id, sizeof c->id, "%s", r->previous_response_id);
	if (!owned_name_is_of(x->key, c->id)) {
		reply_previous(c, "previous_response_not_found", "was not found");
		return;
	}
	c->log = replay_find(x->app->replay, c->id, x->key->tenant);
	if (c->log != NULL && !has_ended(c))
		reply_previous(c, "previous_response_not_ready", "is still being made");
	else
		read_record(c, on_previous);
}

static void on_read(struct exchange *x, void *read) { go_on(x, read, false); }
static void on_read_to_count(struct exchange *x, void *read) { go_on(x, read, true); }

void api_response_count(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct response_request), parse, dispose};
	body_read(x, &parser, on_read_to_count);
}

void api_response_create(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct response_request), parse, dispose};
	body_read(x, &parser, on_read);
}

/* ---- retrieve ---- */

static void on_retrieved(struct cache_op *op, const struct cache_result *result)
{
	struct call *c = of_op(op);
	json_t *record = record_of(c, result);
	if (record == NULL)
		return;
	exchange_reply_json(c->x, json_incref(json_object_get(record, "response")));
	json_decref(record);
}

static void reply_no_events(struct call *c)
{
	exchange_refuse(c->x, 410, "events_gone", "stream",
			"The events of '%.64s' are not kept, or no longer kept: request it without 'stream'.", c->id);
}

static void on_retrieved_without_events(struct cache_op *op, const struct cache_result *result)
{
	struct call *c = of_op(op);
	json_t *record = record_of(c, result);
	if (record != NULL)
		reply_no_events(c);
	json_decref(record);
}

static bool stream_query(struct exchange *x, bool *stream, uint64_t *from)
{
	const char *query = http_request(x->stream)->query;
	uint64_t after;
	*stream = false;
	*from = 0;
	if (query_get_bool(query, "stream", stream) != 0)
		return page_bad_query(x, "stream", "true or false");
	int rc = query_get_u64(query, "starting_after", &after);
	if (rc < 0)
		return page_bad_query(x, "starting_after", "the sequence_number of an event");
	if (rc > 0)
		*from = after + 1;
	if (rc > 0 && !*stream)
		return page_bad_query(x, "starting_after", "together with stream=true");
	return true;
}

/* As a stream. */
static void reply_events(struct call *c, int code)
{
	struct exchange *x = c->x;
	if (code != 0) {
		read_record(c, on_retrieved_without_events);
		return;
	}
	int rc = stream_out_start(x, c->log, c->from, false);
	if (rc == SL_ERANGE)
		reply_no_events(c);
	else if (rc != 0)
		exchange_reply_no_memory(x);
	else
		call_free(c);
}

void api_response(struct exchange *x)
{
	bool stream;
	struct call *c = call_on_path(x);
	if (c == NULL || !stream_query(x, &stream, &c->from))
		return;
	if (stream && c->log != NULL)
		reply_events(c, 0);
	else if (stream)
		find_log(c, reply_events);
	else if (!try_snapshot(c))
		read_record(c, on_retrieved);
}

/* ---- cancel ---- */

static bool in_background(const json_t *response) { return json_is_true(json_object_get(response, "background")); }

static void reply_not_background(struct call *c)
{
	exchange_refuse(c->x, 400, "not_cancellable", "response_id",
			"Only a response that was created with background=true can be cancelled.");
}

static void reply_record(struct call *c) { read_record(c, on_retrieved); }

/* Another gateway runs it, or its gateway has died. */
static void cancel_elsewhere(struct call *c, int code)
{
	if (code == 0 && !has_ended(c))
		stop_and_then(c, reply_record);
	else if (code == 0 || code == SL_ENOTFOUND)
		reply_record(c);
	else
		reply_store_down(c);
}

static void on_to_cancel(struct cache_op *op, const struct cache_result *result)
{
	struct call *c = of_op(op);
	json_t *record = record_of(c, result), *response = json_object_get(record, "response");
	if (record != NULL && in_background(response) && is_running(response))
		find_log(c, cancel_elsewhere);
	else if (record != NULL && in_background(response))
		exchange_reply_json(c->x, json_incref(response)); /* has ended: nothing to cancel */
	else if (record != NULL)
		reply_not_background(c);
	json_decref(record);
}

void api_response_cancel(struct exchange *x)
{
	struct call *c = call_on_path(x);
	struct sl_buf text;
	int rc;
	if (c == NULL)
		return;
	buf_init(&text, MAX_SNAPSHOT);
	if (c->log == NULL || !replay_snapshot(c->log, &text, &rc)) {
		read_record(c, on_to_cancel);
	} else {
		json_t *now = json_mem_load((const char *)buf_data(&text), text.len, JSON_ALLOW_NUL, NULL);
		if (now == NULL)
			exchange_reply_no_memory(x);
		else if (!in_background(now))
			reply_not_background(c);
		else if (has_ended(c))
			reply_snapshot(c);
		else
			stop_and_then(c, reply_snapshot);
		json_decref(now);
	}
	buf_dispose(&text);
}

/* ---- delete ---- */

static void on_forgotten(struct cache_op *op, const struct cache_result *result)
{
	struct call *c = of_op(op);
	if (result->code != 0)
		reply_store_down(c);
	else
		exchange_reply_json(c->x,
				    json_pack("{s:s, s:s, s:b}", "id", c->id, "object", "response", "deleted", 1));
}

static void on_deleted(struct cache_op *op, const struct cache_result *result)
{
	struct call *c = of_op(op);
	if (result->code != 0)
		reply_store_down(c);
	else if (!result->found && c->log == NULL)
		reply_not_found(c);
	else
		prefix_forget(c->x->app->t->cache, &c->op, c->x->key->tenant, c->id, on_forgotten);
}

static void delete_stored(struct call *c)
{
	struct cache_key key;
	if (c->log != NULL)
		replay_delete(c->log);
	replay_store_forget(c->x->app, c->id, c->x->key->tenant);
	response_key(&key, c->x->key, c->id);
	cache_delete(c->x->app->t->cache, &c->op, &key, on_deleted);
}

static void delete_found(struct call *c, int code)
{
	if (code == 0 && !has_ended(c))
		stop_and_then(c, delete_stored);
	else if (code == 0 || code == SL_ENOTFOUND)
		delete_stored(c);
	else
		reply_store_down(c);
}

void api_response_delete(struct exchange *x)
{
	struct call *c = call_on_path(x);
	if (c != NULL && c->log != NULL)
		delete_found(c, 0);
	else if (c != NULL)
		find_log(c, delete_found);
}

/* ---- input items ---- */

static void on_items(struct cache_op *op, const struct cache_result *result)
{
	struct call *c = of_op(op);
	struct item_page page;
	json_t *record = record_of(c, result);
	if (record != NULL && item_page_read(c->x, &page))
		item_page_reply(c->x, json_object_get(record, "items"), &page);
	json_decref(record);
}

void api_response_items(struct exchange *x)
{
	struct call *c = call_on_path(x);
	struct item_page page;
	if (c != NULL && item_page_read(x, &page))
		read_record(c, on_items);
}
