/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of HTTP/2: h2.c (received frames, the life of streams and connections) and h2_out.c (output).
 */
#ifndef GATEWAY_H2_PRIV_H
#define GATEWAY_H2_PRIV_H

#include <nghttp2/nghttp2.h>

#include "base/buf.h"
#include "base/list.h"
#include "gateway/transport/conn.h"
#include "gateway/transport/h2_guard.h"
#include "gateway/transport/http_stream.h"

struct h2 {
	struct conn *c;
	nghttp2_session *session;
	struct h2_guard guard;
	int64_t max_streams; /* as announced to the peer */
	bool ended;          /* GOAWAY with an error is queued: nothing more is read */
	bool draining;
	bool drain_seen;   /* the peer has seen the notice: the last GOAWAY is queued */
	bool got_settings; /* the peer's first */
	/* Used by h2_out.c only. */
	struct list due;     /* streams whose source is to be pulled */
	struct list stuck;   /* streams blocked by a window */
	struct list owed;    /* streams with unbooked bytes or an unbooked end */
	uint32_t unbooked;   /* unbooked bytes of all streams */
	uint32_t epoch;      /* counts events that change the windows of all streams */
	struct sl_buf early; /* frames that the library made during a booking; they go out first */
};

void h2_out_init(struct h2 *h);
void h2_out_dispose(struct h2 *h);
/* Called when a stream begins, and when it has closed. */
void h2_out_open(struct http_stream *s);
void h2_out_closed(struct http_stream *s);
/* The stream's source has bytes. */
void h2_out_ready(struct h2 *h, struct http_stream *s);
/* A WINDOW_UPDATE for the stream was received; s NULL: one for the connection, or SETTINGS. */
void h2_out_window(struct h2 *h, struct http_stream *s);
/* Sends RST_STREAM after the content written so far is booked. The stream's state determines the code. */
void h2_out_reset(struct h2 *h, struct http_stream *s);
/* Books all written content. Call it before the library reads input. 0, SL_ENOMEM or SL_EPROTO. */
int h2_out_book(struct h2 *h);
/* Appends control frames, heads and content, up to about `room` bytes. 0, SL_ENOMEM or SL_EPROTO. */
int h2_out_fill(struct h2 *h, struct sl_buf *out, size_t room);
/* Bytes in `early`. */
size_t h2_out_waiting(const struct h2 *h);

/* Callbacks of the library. */
ssize_t h2_out_source(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room, uint32_t *flags,
		      nghttp2_data_source *source, void *user);
int h2_out_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t n,
		     nghttp2_data_source *source, void *user);

#endif
