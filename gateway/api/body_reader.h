/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses and checks request bodies and cleanses users' messages. Small bodies are read at once; large ones on a thread
 * of their own, so that a megabyte does not block an event loop for tens of milliseconds. A body that names files is
 * read again once their texts have been fetched, which then count as its bytes.
 */
#ifndef GATEWAY_BODY_READER_H
#define GATEWAY_BODY_READER_H

#include <stddef.h>

#include "gateway/request/request_fields.h"

struct body_reader; /* of the process */
struct exchange;

enum { BODY_AT_ONCE = 32 << 10 }; /* bytes; a tenth of a millisecond or so, to a few for text that needs work */

/* How one kind of request is read; static. parse is pure: any thread calls it, and its result does not point into the
 * bytes. */
struct body_parser {
	size_t size; /* of the result */
	/* 0, SL_EINVAL with *e, SL_ENOMEM; SL_EAGAIN: texts of l->files are to be fetched. */
	int (*parse)(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e);
	void (*dispose)(void *out); /* a result, or zeros */
};

/* out: the result, borrowed; a callee that keeps it leaves zeros. */
typedef void body_done(struct exchange *x, void *out);

int body_reader_create(struct body_reader **out);
/* No exchange waits any more; the threads that asked still run. */
void body_reader_destroy(struct body_reader *r);

/* Takes and reads x's body and calls done, now or later from the loop; not if the body is wrong (x is answered) or x
 * has closed. Until then x's state and on_close belong to the reader. */
void body_read(struct exchange *x, const struct body_parser *parser, body_done *done);

#endif
