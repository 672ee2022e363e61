/* SPDX-License-Identifier: Apache-2.0
 *
 * GET and DELETE /v1/streams/{id}: going on with an event stream that broke off, on whatever
 * connection and thread, and ending one. `Last-Event-ID` says what the client has; without it the
 * stream comes from its beginning (HTML, 9.2 "Server-sent events").
 */
#include "gateway/app_state.h"
#include "gateway/handlers.h"
#include "gateway/route.h"
#include "gateway/stream_out.h"

static struct replay_log *find(struct exchange *x)
{
	char id[REPLAY_MAX_ID];
	struct replay_log *log = NULL;
	if (route_part(x->route, http_request(x->stream)->path, id, sizeof id))
		log = replay_find(x->app->replay, id, x->key->tenant);
	if (log == NULL)
		exchange_error(x, &(struct api_error){404, "invalid_request_error", "stream_not_found", NULL, 0},
			       "No such stream: it never was, is no longer kept, or is not yours.");
	return log;
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

void api_stream(struct exchange *x)
{
	uint64_t from;
	if (next_event(http_header(http_request(x->stream), "last-event-id"), &from) != 0) {
		exchange_error(x, &(struct api_error){400, "invalid_request_error", "invalid_value", "Last-Event-ID", 0},
			       "Last-Event-ID must be the number of an event of this stream.");
		return;
	}
	struct replay_log *log = find(x);
	if (log == NULL)
		return;
	if (replay_delivered(log, from)) {
		/* Tells an EventSource not to come back. */
		exchange_reply(x, 204, NULL, NULL, 0, NULL, 0);
		replay_unref(log);
		return;
	}
	int rc = stream_out_start(x, log, from, true);
	replay_unref(log);
	if (rc == SL_ERANGE)
		exchange_error(x, &(struct api_error){410, "invalid_request_error", "events_gone", "Last-Event-ID", 0},
			       "The events after that one are no longer kept, or there is no such event yet.");
	else if (rc != 0)
		exchange_error(x, &(struct api_error){503, "server_error", "overloaded", NULL, 1},
			       "The server is out of memory.");
}

void api_stream_stop(struct exchange *x)
{
	struct replay_log *log = find(x);
	if (log == NULL)
		return;
	replay_stop(log);
	replay_unref(log);
	exchange_reply(x, 204, NULL, NULL, 0, NULL, 0);
}
