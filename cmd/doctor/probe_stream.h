/* SPDX-License-Identifier: Apache-2.0
 *
 * One request for GET /v1/probe (gateway/probe): its events, with the times at which they were sent and arrived.
 */
#ifndef CMD_DOCTOR_PROBE_STREAM_H
#define CMD_DOCTOR_PROBE_STREAM_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cmd/http/http_client.h"
#include "base/http/sse_read.h"

enum { PROBE_EVENTS_KEPT = 128 };

struct probe_stream {
	struct http_call call;
	struct sse_read sse;
	char path[128];
	uint64_t begun_ns;
	uint64_t sent_ms[PROBE_EVENTS_KEPT], came_ms[PROBE_EVENTS_KEPT]; /* came: since begun_ns */
	size_t n;
	json_t *first; /* the event that says how the request arrived; NULL: none came */
	bool last;     /* the stream is complete */
	bool stops;    /* set it: the call ends with the first event */
	bool ended;
};

/* Starts it. gzip: compression is offered, and events are not read. 0 or SL_ENOMEM. */
int probe_stream_start(struct probe_stream *p, struct http_client *c, uint32_t events, uint32_t interval_ms,
		       uint32_t quiet_ms, bool gzip);
void probe_stream_dispose(struct probe_stream *p);
/* A text of the first event; NULL: it has none. */
const char *probe_stream_text(const struct probe_stream *p, const char *name);
/* How much later than its time an event came at most, counted from the first one, and over how much time they were
 * sent and came. */
void probe_stream_times(const struct probe_stream *p, uint64_t *late_ms, uint64_t *sent_ms, uint64_t *came_ms);

#endif
