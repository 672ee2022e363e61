/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses server-sent events from pieces of a body (WHATWG HTML, 9.2.6): lines end in LF, CR LF or CR; the data lines of
 * one event are joined; comments and other fields are ignored.
 */
#ifndef BASE_SSE_READ_H
#define BASE_SSE_READ_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { SSE_READ_MAX = 4 << 20 }; /* bytes of one line, and of one event's data */

struct sse_read {
	struct sl_buf line; /* an incomplete line */
	struct sl_buf data; /* the data of the current event */
	bool has_data;
	bool after_cr;                                           /* a following LF belongs to the preceding CR */
	void (*on_event)(void *ctx, const char *data, size_t n); /* data: not terminated, borrowed */
	void *ctx;
};

/* most: SSE_READ_MAX, or a lower bound. */
void sse_read_init(struct sse_read *r, size_t most, void (*on_event)(void *ctx, const char *data, size_t n), void *ctx);
void sse_read_dispose(struct sse_read *r);
/* Feeds bytes. An event without its final blank line is not reported. 0, SL_ELIMIT or SL_ENOMEM. */
int sse_read_feed(struct sse_read *r, const void *bytes, size_t n);

#endif
