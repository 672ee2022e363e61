/* SPDX-License-Identifier: Apache-2.0
 *
 * GET and DELETE /v1/streams/{id} resume and stop an event stream, on any connection and thread. `Last-Event-ID` is
 * the last event that the client has; without it the stream is sent from its beginning (HTML, 9.2 "Server-sent
 * events"). A stream that this process does not have is looked up in the store (replay_store.h).
 */
#include "base/alloc.h"
#include "gateway/resume/replay_follow.h"
#include "gateway/api/api_request.h"
#include "gateway/exchange/app_state.h"
#include "gateway/api/handlers.h"
#include "gateway/auth/owned_name.h"
#include "gateway/replay/replay_store.h"
#include "gateway/exchange/route.h"
#include "gateway/answer/stream_out.h"

/* A lookup in the store: the exchange's state. */
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
	sl_free(c);
}

static void reply_lost(struct exchange *x, int code)
{
	if (code == SL_ENOTFOUND)
		exchange_refuse(x, 404, "stream_not_found", NULL,
				"No such stream: it never existed, is no longer kept, or is not yours.");
	else if (code == SL_ECLOSED)
		exchange_refuse(
		    x, 503, "store_unavailable", NULL,
		    "The store of streams is temporarily unavailable, and this server does not have the stream.");
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
	exchange_disown(x);
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
	struct call *c = exchange_own(x, sizeof *c, on_close);
	if (c == NULL)
		return;
	*c = (struct call){.find = {.done = on_found}, .x = x, .from = from, .found = found};
	int rc = replay_store_find(x->app, &c->find, id, x->key->tenant, &log);
	if (rc != 0)
		on_found(&c->find, log, rc);
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
		/* An EventSource does not reconnect after a 204. */
		exchange_reply(x, 204, NULL, NULL, 0, NULL, 0);
		replay_unref(log);
		return;
	}
	int rc = stream_out_start(x, log, c->from, true);
	replay_unref(log);
	if (rc == SL_ERANGE)
		exchange_refuse(x, 410, "events_gone", "Last-Event-ID",
				"The events after that one are no longer kept, or there is no such event yet.");
	else if (rc != 0)
		exchange_reply_no_memory(x);
}

void api_stream(struct exchange *x)
{
	uint64_t from;
	if (next_event(http_header(http_request(x->stream), "last-event-id"), &from) == 0)
		find(x, from, read_on);
	else
		exchange_refuse(x, 400, "invalid_value", "Last-Event-ID",
				"Last-Event-ID must be the number of an event of this stream.");
}

static void stop(struct call *c, struct replay_log *log)
{
	replay_stop(log);
	replay_unref(log);
	exchange_reply(c->x, 204, NULL, NULL, 0, NULL, 0);
}

void api_stream_stop(struct exchange *x) { find(x, 0, stop); }
