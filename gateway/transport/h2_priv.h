/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of HTTP/2 share: h2.c (frames in, life and ends) and h2_out.c (what goes out).
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
	/* Of h2_out.c. */
	struct list due;     /* streams to be asked for content */
	struct list stuck;   /* those that a window holds back */
	struct list owed;    /* those with content that the library does not know of */
	uint32_t unbooked;   /* bytes of content that it does not know of, of all streams */
	uint32_t epoch;      /* counts what moves the windows of all streams */
	struct sl_buf early; /* frames of the library that came out while content was booked; go out first */
};

void h2_out_init(struct h2 *h);
void h2_out_dispose(struct h2 *h);
/* A stream has begun, or is closed. */
void h2_out_open(struct http_stream *s);
void h2_out_closed(struct http_stream *s);
/* Its source has something. */
void h2_out_ready(struct h2 *h, struct http_stream *s);
/* A WINDOW_UPDATE for the stream; of NULL one for the connection, or SETTINGS. */
void h2_out_window(struct h2 *h, struct http_stream *s);
/* RST_STREAM with the code of the stream's state, after the content that has gone out. */
void h2_out_reset(struct h2 *h, struct http_stream *s);
/* Tells the library of all content that has gone out: before it reads anything. 0, SL_ENOMEM or SL_EPROTO. */
int h2_out_book(struct h2 *h);
/* Control frames, heads and content, until there are `room` bytes or nothing more. The same. */
int h2_out_fill(struct h2 *h, struct sl_buf *out, size_t room);
/* Bytes that wait here. */
size_t h2_out_waiting(const struct h2 *h);

/* The library's callbacks. */
ssize_t h2_out_source(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room, uint32_t *flags,
		      nghttp2_data_source *source, void *user);
int h2_out_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t n,
		     nghttp2_data_source *source, void *user);

#endif
