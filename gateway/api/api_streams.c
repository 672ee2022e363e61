/* SPDX-License-Identifier: Apache-2.0
 *
 * GET and DELETE /v1/streams/{id}: going on with an event stream that broke off, on whatever
 * connection and thread, and ending one. `Last-Event-ID` says what the client has; without it the
 * stream comes from its beginning (HTML, 9.2 "Server-sent events"). What is not in this process is looked for in
 * the store (replay_store.h).
 */
#include "base/alloc.h"
#include "gateway/api/api_request.h"
#include "gateway/exchange/app_state.h"
#include "gateway/api/handlers.h"
#include "gateway/auth/owned_name.h"
#include "gateway/replay/replay_store.h"
#include "gateway/exchange/route.h"
#include "gateway/answer/stream_out.h"

/* A stream that is being looked for in the store: the exchange's state. */
struct call {
	struct replay_find find;
	struct exchange *x;
	uint64_t from;
	void (*found)(struct call *c, struct replay_log *log); /* takes the reference */
};

static void on_close(struct exchange *x)
{
	struct call *c = x->state;
	replay_find_cancel(&c->find);
	x->state = NULL;
	sl_free(c);
}

/* The exchange is no longer the call's. */
static void part(struct call *c)
{
	c->x->state = NULL;
	c->x->on_close = NULL;
}

static void reply_lost(struct exchange *x, int code)
{
	if (code == SL_ENOTFOUND)
		exchange_error(x, &(struct api_error){404, "invalid_request_error", "stream_not_found", NULL, 0},
			       "No such stream: it never was, is no longer kept, or is not yours.");
	else if (code == SL_ECLOSED)
		exchange_error(x, &(struct api_error){503, "server_error", "store_unavailable", NULL, 1},
			       "The store of streams is not there at the moment, and this stream is not here.");
	else
		exchange_reply_no_memory(x);
}

static void on_found(struct replay_find *find, struct replay_log *log, int code)
{
	struct call *c = (struct call *)(void *)find;
	struct exchange *x = c->x;
	if (log == NULL) {
		reply_lost(x, code);
		return;
	}
	part(c);
	c->found(c, log);
	sl_free(c);
}

/* found is called, now or later, or x is answered. */
static void find(struct exchange *x, uint64_t from, void (*found)(struct call *c, struct replay_log *log))
{
	char id[REPLAY_MAX_ID];
	struct replay_log *log = NULL;
	if (!route_part(x->route, http_request(x->stream)->path, id, sizeof id) || !owned_name_is_of(x->key, id)) {
		reply_lost(x, SL_ENOTFOUND);
		return;
	}
	struct call *c = sl_zalloc(sizeof *c);
	if (c == NULL) {
		reply_lost(x, SL_ENOMEM);
		return;
	}
	*c = (struct call){.find = {.done = on_found}, .x = x, .from = from, .found = found};
	int rc = replay_store_find(x->app, &c->find, id, x->key->tenant, &log);
	if (rc == 0) {
		x->state = c;
		x->on_close = on_close;
		return;
	}
	if (rc > 0)
		found(c, log);
	else
		reply_lost(x, rc);
	sl_free(c);
}

/* The number of the event that comes next. */
static int next_event(const char *last, uint64_t *out)
{
	uint64_t n = 0;
	*out = 0;
	if (last == NULL || last[0] == '\0')
		return 0;
	for (const char *p = last; *p != '\0'; p++) {
		if (*p < '0' || *p > '9' || n > UINT32_MAX)
			return SL_EINVAL;
		n = n * 10 + (uint64_t)(*p - '0');
	}
	*out = n + 1;
	return 0;
}

static void read_on(struct call *c, struct replay_log *log)
{
	struct exchange *x = c->x;
	if (replay_delivered(log, c->from)) {
		/* Tells an EventSource not to come back. */
		exchange_reply(x, 204, NULL, NULL, 0, NULL, 0);
		replay_unref(log);
		return;
	}
	int rc = stream_out_start(x, log, c->from, true);
	replay_unref(log);
	if (rc == SL_ERANGE)
		exchange_error(x, &(struct api_error){410, "invalid_request_error", "events_gone", "Last-Event-ID", 0},
			       "The events after that one are no longer kept, or there is no such event yet.");
	else if (rc != 0)
		exchange_reply_no_memory(x);
}

void api_stream(struct exchange *x)
{
	uint64_t from;
	if (next_event(http_header(http_request(x->stream), "last-event-id"), &from) != 0) {
		exchange_error(x,
			       &(struct api_error){400, "invalid_request_error", "invalid_value", "Last-Event-ID", 0},
			       "Last-Event-ID must be the number of an event of this stream.");
		return;
	}
	find(x, from, read_on);
}

static void stop(struct call *c, struct replay_log *log)
{
	replay_stop(log);
	replay_unref(log);
	exchange_reply(c->x, 204, NULL, NULL, 0, NULL, 0);
}

void api_stream_stop(struct exchange *x) { find(x, 0, stop); }
