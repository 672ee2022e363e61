/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads one HTTP/1.1 response from pieces (RFC 9112): the head's lines, then the body without its chunks. Pure.
 *
 *   HEAD → LENGTH, CHUNK_SIZE, UNTIL_CLOSE or OVER      the head's blank line
 *   HEAD → HEAD                                         that of an interim response (1xx)
 *   CHUNK_SIZE → CHUNK_DATA → CHUNK_END → CHUNK_SIZE    a chunk
 *   CHUNK_SIZE → TRAILER                                the last chunk
 *   LENGTH, TRAILER → OVER
 *   UNTIL_CLOSE → OVER                                  remote_h1_closed
 */
#ifndef ENGINE_REMOTE_H1_H
#define ENGINE_REMOTE_H1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum remote_h1_state {
	REMOTE_H1_HEAD,
	REMOTE_H1_LENGTH,
	REMOTE_H1_UNTIL_CLOSE,
	REMOTE_H1_CHUNK_SIZE,
	REMOTE_H1_CHUNK_DATA,
	REMOTE_H1_CHUNK_END,
	REMOTE_H1_TRAILER,
	REMOTE_H1_OVER,
};

enum remote_h1_result {
	REMOTE_H1_MORE,    /* every byte is read, the response goes on */
	REMOTE_H1_DONE,    /* it is complete */
	REMOTE_H1_NO_HTTP, /* its head is not one of HTTP/1.x */
	REMOTE_H1_LONG,    /* a line, or the trailer, is too long */
	REMOTE_H1_BROKEN,  /* its chunks are malformed */
	REMOTE_H1_STOPPED, /* a callback returned false */
};

struct remote_h1 {
	/* A line of the head, with its end; the first is the status line, whose status is set. */
	bool (*on_line)(void *ctx, const char *line, size_t n);
	bool (*on_body)(void *ctx, const char *bytes, size_t n); /* n > 0 */
	void *ctx;
	enum remote_h1_state state;
	struct sl_buf line; /* an incomplete one */
	size_t n_lines;     /* bytes of the head's, or the trailer's, lines */
	uint64_t left;      /* bytes of the body, or of the chunk */
	int status;         /* 0: its line has not come */
	bool chunked, has_length, keeps;
};

/* line_most: bytes of a line, of all lines of a head and of a trailer. */
void remote_h1_init(struct remote_h1 *h, size_t line_most);
void remote_h1_dispose(struct remote_h1 *h);
/* Before a response. */
void remote_h1_begin(struct remote_h1 *h);
/* *used: bytes read; after DONE the rest belongs to no response. */
enum remote_h1_result remote_h1_feed(struct remote_h1 *h, const char *bytes, size_t n, size_t *used);
/* The connection has closed. True: that ends the response. */
bool remote_h1_closed(struct remote_h1 *h);
/* DONE: the connection may carry another request. */
bool remote_h1_keeps(const struct remote_h1 *h);

#endif
