/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines that a thread of its own takes away, so that a slow disk or collector delays no event loop: a bounded buffer
 * that any thread fills and the thread empties. Lines that find no room are dropped; every line is counted once.
 */
#ifndef GATEWAY_ASIDE_H
#define GATEWAY_ASIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/metrics.h"

struct aside;

struct aside_ops {
	const char *thread;                   /* its name, at most 15 bytes */
	const char *key;                      /* of the configuration, for the log */
	size_t max_bytes;                     /* that wait */
	unsigned linger_ms;                   /* after a first line others are waited for so long */
	struct metric *taken, *full, *failed; /* lines: take succeeded; there was no room; take failed */
	/* On the thread: whole lines, each with its newline. False: they are lost. */
	bool (*take)(void *ctx, const char *lines, size_t n);
	/* On the thread, last: nothing waits any more. */
	void (*dispose)(void *ctx);
};

/* Borrows ops for as long as the thread runs; takes ctx, on success only. 0, or SL_ENOMEM or SL_EIO with *err, which
 * names the key. */
int aside_create(const struct aside_ops *ops, void *ctx, struct aside **out, struct sl_err *err);
/* One line with its newline. rc: of printing it; one that could not be printed counts as one without room. Any thread.
 */
void aside_put(struct aside *a, int rc, const struct sl_buf *line);
/* Does not wait: the thread takes what there is, calls dispose, and ends. NULL allowed. */
void aside_destroy(struct aside *a);
/* Waits until the threads of all that were destroyed have ended, for so long at most. False: one has not. */
bool aside_wait(unsigned ms);

#endif
