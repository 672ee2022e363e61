/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's side of HTTP/1.1 for measurements: a reply's head and its body, by length, in chunks
 * or to the end of the connection (RFC 9112 6.3), from pieces of any size.
 */
#ifndef CMD_HTTP1_REPLY_H
#define CMD_HTTP1_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP1_LINE_MAX = 16 << 10 };

enum http1_state {
	HTTP1_STATUS_LINE,
	HTTP1_FIELDS,
	HTTP1_BODY, /* `left` bytes */
	HTTP1_BODY_TO_END,
	HTTP1_CHUNK_SIZE,
	HTTP1_CHUNK, /* `left` bytes */
	HTTP1_CHUNK_END,
	HTTP1_TRAILER,
	HTTP1_DONE,
};

struct http1_reply {
	enum http1_state state;
	int status;
	bool keep; /* the connection may be used again */
	bool chunked, has_length;
	uint64_t left;
	size_t n_line;
	char line[HTTP1_LINE_MAX];
};

struct http1_events {
	void (*on_head)(void *ctx, int status);
	void (*on_body)(void *ctx, const uint8_t *bytes, size_t n);
};

void http1_reply_init(struct http1_reply *r);
/* Takes bytes up to the end of the reply; *used of them. 0, SL_EPROTO or SL_ELIMIT. */
int http1_reply_feed(struct http1_reply *r, const struct http1_events *ev, void *ctx, const uint8_t *bytes, size_t n,
		     size_t *used);
/* The connection has ended: is the reply whole? */
bool http1_reply_eof(struct http1_reply *r);

#endif
