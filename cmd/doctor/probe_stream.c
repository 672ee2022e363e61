/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/doctor/probe_stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

enum { SLACK_S = 30 };

static void on_event(void *ctx, const char *data, size_t n)
{
	struct probe_stream *p = ctx;
	json_t *event = json_loadb(data, n, 0, NULL);
	const json_t *at = json_object_get(event, "at_ms");
	if (json_is_integer(at) && p->n < PROBE_EVENTS_KEPT) {
		p->sent_ms[p->n] = (uint64_t)json_integer_value(at);
		p->came_ms[p->n++] = (clock_now_ns() - p->begun_ns) / NS_PER_MS;
	}
	p->last = p->last || json_is_true(json_object_get(event, "last"));
	if (p->first == NULL && json_object_get(event, "id") != NULL)
		p->first = json_incref(event);
	json_decref(event);
}

static bool on_data(struct http_call *c, const char *bytes, size_t n)
{
	struct probe_stream *p = list_entry(c, struct probe_stream, call);
	return sse_read_feed(&p->sse, bytes, n) == 0 && !(p->stops && p->n > 0);
}

static bool on_packed(struct http_call *c, const char *bytes, size_t n)
{
	(void)c, (void)bytes, (void)n;
	return true;
}

static void on_end(struct http_call *c) { list_entry(c, struct probe_stream, call)->ended = true; }

int probe_stream_start(struct probe_stream *p, struct http_client *c, uint32_t events, uint32_t interval_ms,
		       uint32_t quiet_ms, bool gzip)
{
	bool stops = p->stops;
	memset(p, 0, sizeof *p);
	p->stops = stops;
	snprintf(p->path, sizeof p->path, "/v1/probe?events=%" PRIu32 "&interval_ms=%" PRIu32 "&quiet_ms=%" PRIu32,
		 events, interval_ms, quiet_ms);
	p->call.method = "GET";
	p->call.path = p->path;
	p->call.headers[0] = gzip ? "Accept-Encoding: gzip, br, zstd" : "Accept: text/event-stream";
	p->call.on_data = gzip ? on_packed : on_data;
	p->call.on_end = on_end;
	p->call.idle_s = (events * interval_ms + quiet_ms) / 1000 + SLACK_S;
	sse_read_init(&p->sse, SSE_READ_MAX, on_event, p);
	p->begun_ns = clock_now_ns();
	int rc = http_call_start(c, &p->call);
	p->ended = rc != 0;
	return rc;
}

void probe_stream_dispose(struct probe_stream *p)
{
	http_call_dispose(&p->call);
	sse_read_dispose(&p->sse);
	json_decref(p->first);
	p->first = NULL;
}

const char *probe_stream_text(const struct probe_stream *p, const char *name)
{
	return json_string_value(json_object_get(p->first, name));
}

void probe_stream_times(const struct probe_stream *p, uint64_t *late_ms, uint64_t *sent_ms, uint64_t *came_ms)
{
	*late_ms = *sent_ms = *came_ms = 0;
	for (size_t i = 1; i < p->n; i++) {
		uint64_t sent = p->sent_ms[i] - p->sent_ms[0], came = p->came_ms[i] - p->came_ms[0];
		*sent_ms = sent;
		*came_ms = came;
		if (p->sent_ms[i] >= p->sent_ms[0] && came > sent && came - sent > *late_ms)
			*late_ms = came - sent;
	}
}
