/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads one HTTP/1.1 response from pieces (RFC 9112): the head's lines, then the body without its chunks. Pure.
 *
 *   HEAD → LENGTH, CHUNK_SIZE, UNTIL_CLOSE or OVER      the head's blank line
 *   HEAD → HEAD                                         that of an interim response (1xx)
 *   CHUNK_SIZE → CHUNK_DATA → CHUNK_END → CHUNK_SIZE    a chunk
 *   CHUNK_SIZE → TRAILER                                the last chunk
 *   LENGTH, TRAILER → OVER
 *   UNTIL_CLOSE → OVER                                  http1_read_closed
 */
#ifndef BASE_HTTP1_READ_H
#define BASE_HTTP1_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum http1_state {
	HTTP1_HEAD,
	HTTP1_LENGTH,
	HTTP1_UNTIL_CLOSE,
	HTTP1_CHUNK_SIZE,
	HTTP1_CHUNK_DATA,
	HTTP1_CHUNK_END,
	HTTP1_TRAILER,
	HTTP1_OVER,
};

enum http1_result {
	HTTP1_READ_MORE,    /* every byte is read, the response goes on */
	HTTP1_READ_DONE,    /* it is complete */
	HTTP1_READ_NO_HTTP, /* its head is not one of HTTP/1.x */
	HTTP1_READ_LONG,    /* a line, or the trailer, is too long */
	HTTP1_READ_BROKEN,  /* its chunks are malformed */
	HTTP1_READ_STOPPED, /* a callback returned false */
};

struct http1_read {
	/* A line of the head, with its end; the first is the status line, whose status is set. */
	bool (*on_line)(void *ctx, const char *line, size_t n);
	bool (*on_body)(void *ctx, const char *bytes, size_t n); /* n > 0 */
	void *ctx;
	enum http1_state state;
	struct sl_buf line; /* an incomplete one */
	size_t n_lines;     /* bytes of the head's, or the trailer's, lines */
	uint64_t left;      /* bytes of the body, or of the chunk */
	int status;         /* 0: its line has not come */
	bool chunked, has_length, keeps;
};

/* line_most: bytes of a line, of all lines of a head and of a trailer. */
void http1_read_init(struct http1_read *h, size_t line_most);
void http1_read_dispose(struct http1_read *h);
/* Before a response. */
void http1_read_begin(struct http1_read *h);
/* *used: bytes read; after DONE the rest belongs to no response. */
enum http1_result http1_read_feed(struct http1_read *h, const char *bytes, size_t n, size_t *used);
/* The connection has closed. True: that ends the response. */
bool http1_read_closed(struct http1_read *h);
/* DONE: the connection may carry another request. */
bool http1_read_keeps(const struct http1_read *h);

#endif
