/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/remote/remote_count.h"

#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json/json_depth.h"
#include "engine/remote/remote_priv.h"

enum { MOST_COUNTS = 64, ANSWER_MS = 5000, RESULT_DEPTH = 8, NONE_S = 60 };

struct count {
	struct list node; /* remote.counts */
	struct remote *r;
	struct remote_call call;
	struct event *timer;
	struct sl_buf body;
	uint64_t id;
	uint8_t wants;
	uint32_t guess;
};

static const char keeps[] = "The server that runs this model keeps its tokens to itself.";
static const char away[] = "The server that runs this model does not tell its tokens now.";

static struct count *of_call(struct remote_call *c)
{
	return (struct count *)(void *)((char *)c - offsetof(struct count, call));
}

/* ---- what comes of it ---- */

static void post(struct remote *r, uint64_t id, const struct proto_counted *m)
{
	struct eng_event ev = {.kind = ENG_COUNTED, .id = id, .u.counted = *m};
	hub_post_here(r->hub, &ev);
}

static void post_error(struct remote *r, uint64_t id, uint8_t error, const char *why)
{
	const struct proto_counted m = {.error = error, .message = {why, strlen(why)}};
	post(r, id, &m);
}

static bool lists(uint8_t wants) { return (wants & (PROTO_COUNT_IDS | PROTO_COUNT_TEXT)) != 0; }

/* Without the upstream. */
static void post_guess(struct remote *r, uint64_t id, uint8_t wants, uint32_t guess, uint8_t error, const char *why)
{
	if (lists(wants))
		post_error(r, id, error, why);
	else
		post(r, id, &(struct proto_counted){.n_tokens = guess});
}

/* Ids as the frame has them. False: they are none. */
static bool read_ids(const json_t *list, uint8_t *out)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *v = json_array_get(list, i);
		json_int_t id = json_integer_value(v);
		if (!json_is_integer(v) || id < 0 || id >= PROTO_NO_ID)
			return false;
		for (int k = 0; k < 4; k++)
			out[i * 4 + (size_t)k] = (uint8_t)(id >> (8 * k));
	}
	return true;
}

static bool post_tokens(const struct count *c, const json_t *root)
{
	const json_t *list = json_object_get(root, "tokens"), *count = json_object_get(root, "count");
	size_t n = json_array_size(list);
	json_int_t told = json_integer_value(count);
	if (!json_is_integer(count) || told < 0 || told > UINT32_MAX)
		return false;
	struct proto_counted m = {.n_tokens = (uint32_t)told};
	if ((c->wants & PROTO_COUNT_IDS) == 0) {
		post(c->r, c->id, &m);
		return true;
	}
	uint8_t *ids = (json_int_t)n == told && n <= PROTO_MAX_LISTED ? sl_alloc(n * 4 + 1) : NULL;
	bool ok = ids != NULL && read_ids(list, ids);
	m.ids = (struct proto_str){(const char *)ids, n * 4};
	if (ok)
		post(c->r, c->id, &m);
	sl_free(ids);
	return ok;
}

static bool post_text(const struct count *c, const json_t *root)
{
	const json_t *text = json_object_get(root, "prompt");
	struct proto_counted m = {.n_tokens = c->guess, .text = {json_string_value(text), json_string_length(text)}};
	bool ok = json_is_string(text) && m.text.n <= PROTO_MAX_COUNTED_TEXT;
	if (ok)
		post(c->r, c->id, &m);
	return ok;
}

static void count_free(struct count *c)
{
	remote_call_stop(&c->call);
	remote_call_dispose(&c->call);
	list_remove(&c->node);
	c->r->n_counts--;
	if (c->timer != NULL)
		event_free(c->timer);
	buf_dispose(&c->body);
	sl_free(c);
}

/* A refusal is the request's own fault, and what the upstream does not serve it lacks: neither is asked again in vain.
 */
static void post_failed(const struct count *c)
{
	struct remote_failure f;
	bool none = c->call.status == 404 || c->call.status == 405 || c->call.status == 501;
	remote_failure_of(&c->call, &f);
	if (none)
		c->r->no_counts_ns = clock_now_ns() + NONE_S * NS_PER_S;
	else if (c->call.fault == PROTO_FAULT_REFUSED) {
		post_error(c->r, c->id, f.error, f.message);
		return;
	}
	post_guess(c->r, c->id, c->wants, c->guess, none ? PROTO_ERR_BAD_REQUEST : PROTO_ERR_NOT_READY,
		   none ? keeps : away);
}

static void on_end(struct remote_call *call)
{
	struct count *c = of_call(call);
	const char *at = call->text.len > 0 ? (const char *)buf_data(&call->text) : "";
	if (remote_call_failed(call)) {
		post_failed(c);
		count_free(c);
		return;
	}
	json_t *root =
	    !json_deeper_than(at, call->text.len, RESULT_DEPTH) ? json_loadb(at, call->text.len, 0, NULL) : NULL;
	bool ok = (c->wants & PROTO_COUNT_TEXT) != 0 ? post_text(c, root) : post_tokens(c, root);
	json_decref(root);
	if (!ok)
		post_guess(c->r, c->id, c->wants, c->guess, PROTO_ERR_NOT_READY, away);
	count_free(c);
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
	struct count *c = ctx;
	(void)fd;
	(void)what;
	post_guess(c->r, c->id, c->wants, c->guess, PROTO_ERR_NOT_READY, away);
	count_free(c);
}

/* ---- asking ---- */

/* Only a list, or a text that is not tokens yet, is a question for the upstream. */
static bool may_ask(const struct remote *r, const struct proto_count *req)
{
	bool tokens = req->prompt_kind == PROTO_PROMPT_TOKENS, text = (req->wants & PROTO_COUNT_TEXT) != 0;
	return r->cfg.dialect == ENG_REMOTE_VLLM && (r->models[req->model].does & PROTO_DOES_GENERATE) != 0 &&
	       breaker_closed(&r->breaker) && req->prompt_kind != PROTO_PROMPT_PAIR && tokens == text &&
	       clock_now_ns() >= r->no_counts_ns;
}

static struct count *count_new(struct remote *r, uint64_t id, const struct proto_count *req, uint32_t guess)
{
	struct count *c = sl_zalloc(sizeof *c);
	if (c == NULL)
		return NULL;
	c->r = r;
	c->id = id;
	c->wants = req->wants;
	c->guess = guess;
	buf_init(&c->body, REMOTE_BODY_BYTES);
	list_init(&c->node);
	list_push_back(&r->counts, &c->node);
	r->n_counts++;
	c->timer = evtimer_new(r->base, on_timer, c);
	return c;
}

static int send_question(struct count *c)
{
	const struct timeval late = {.tv_sec = ANSWER_MS / 1000};
	c->call = (struct remote_call){.kind = REMOTE_WHOLE,
				       .path = (c->wants & PROTO_COUNT_TEXT) != 0 ? "/detokenize" : "/tokenize",
				       .at_origin = true,
				       .body = (const char *)buf_data(&c->body),
				       .n_body = c->body.len,
				       .on_end = on_end};
	if (c->timer == NULL || event_add(c->timer, &late) != 0)
		return SL_ENOMEM;
	return remote_call_start(c->r->http, &c->call);
}

int remote_count(struct remote *r, uint64_t id, const struct proto_count *req)
{
	struct remote_refusal why = {0};
	double ratio = r->bytes_per_token > 0 ? r->bytes_per_token : REMOTE_BYTES_PER_TOKEN;
	uint32_t guess = remote_length_guess(remote_length_of(req->prompt_kind, req->prompt), ratio);
	if (req->model >= r->n_models) {
		post_error(r, id, PROTO_ERR_NO_MODEL, "There is no such model.");
		return 0;
	}
	if (!may_ask(r, req) || r->n_counts >= MOST_COUNTS) {
		bool full = r->n_counts >= MOST_COUNTS;
		post_guess(r, id, req->wants, guess, full ? PROTO_ERR_OVERLOADED : PROTO_ERR_BAD_REQUEST,
			   full ? away : keeps);
		return 0;
	}
	struct count *c = count_new(r, id, req, guess);
	int rc = c != NULL ? remote_body_count(req, r->models[req->model].upstream,
					       (enum eng_remote_dialect)r->cfg.dialect, &c->body, &why)
			   : SL_ENOMEM;
	if (rc == 0)
		rc = send_question(c);
	if (rc == SL_EINVAL || rc == SL_ELIMIT)
		post_error(r, id, rc == SL_EINVAL ? why.error : PROTO_ERR_OVERLOADED,
			   rc == SL_EINVAL ? why.message : "The request is too large.");
	if (rc != 0 && c != NULL)
		count_free(c);
	return rc == SL_EINVAL || rc == SL_ELIMIT ? 0 : rc;
}

void remote_count_dispose(struct remote *r)
{
	while (!list_empty(&r->counts))
		count_free(list_entry(r->counts.next, struct count, node));
}
