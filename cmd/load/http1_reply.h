/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses HTTP/1.1 replies from pieces of any size: the head, then a body delimited by its length, in chunks, or by the
 * end of the connection (RFC 9112 6.3).
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
	bool keep; /* the connection can be reused */
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
/* Consumes *used bytes, at most up to the end of the reply. 0, SL_EPROTO or SL_ELIMIT. */
int http1_reply_feed(struct http1_reply *r, const struct http1_events *ev, void *ctx, const uint8_t *bytes, size_t n,
		     size_t *used);
/* The connection has ended. True: the reply is complete. */
bool http1_reply_eof(struct http1_reply *r);

#endif
