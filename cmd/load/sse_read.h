/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading server-sent events from pieces of a body (WHATWG HTML, 9.2.6): lines end in LF, CR LF or
 * CR, data lines of one event are joined, comments and other fields are passed over.
 */
#ifndef CMD_SSE_READ_H
#define CMD_SSE_READ_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { SSE_READ_MAX = 4 << 20 }; /* bytes of one line, and of one event's data */

struct sse_read {
	struct sl_buf line; /* the beginning of a line whose end has not come */
	struct sl_buf data; /* of the event being read */
	bool has_data;
	bool after_cr;                                           /* an LF that comes next belongs to the CR before it */
	void (*on_event)(void *ctx, const char *data, size_t n); /* not terminated; borrowed */
	void *ctx;
};

void sse_read_init(struct sse_read *r, void (*on_event)(void *ctx, const char *data, size_t n), void *ctx);
void sse_read_dispose(struct sse_read *r);
/* The next bytes. An event whose blank line never comes is not reported. 0, SL_ELIMIT or SL_ENOMEM. */
int sse_read_feed(struct sse_read *r, const void *bytes, size_t n);

#endif
