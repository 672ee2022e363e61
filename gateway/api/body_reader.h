/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading of request bodies: parsed, checked, users' messages cleansed. What is small is read at once;
 * what is large on a thread of its own, so that a megabyte holds no loop for tens of milliseconds.
 */
#ifndef GATEWAY_BODY_READER_H
#define GATEWAY_BODY_READER_H

#include <stddef.h>

#include "gateway/request/request_fields.h"

struct body_reader; /* of the process */
struct exchange;

enum { BODY_AT_ONCE = 32 << 10 }; /* bytes; a tenth of a millisecond or so, to a few for text that needs work */

/* How one kind of request is read; static. Pure: any thread calls it, and what it makes does not point
 * into the bytes. */
struct body_parser {
	size_t size; /* of what it makes */
	/* 0, SL_EINVAL with *e, SL_ENOMEM. */
	int (*parse)(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e);
	void (*dispose)(void *out); /* of what was made, or of zeros */
};

/* out: what was made, lent; who keeps it leaves zeros. */
typedef void body_done(struct exchange *x, void *out);

int body_reader_create(struct body_reader **out);
/* Nobody waits any more; the threads that asked are still there. */
void body_reader_destroy(struct body_reader *r);

/* Reads x's body, which is taken, and calls done, now or later from the loop: not when the body is wrong,
 * which x is told, nor when x has gone by then. Until then x's state and on_close are the reader's. */
void body_read(struct exchange *x, const struct body_parser *parser, body_done *done);

#endif
