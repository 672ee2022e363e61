/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines that a thread of its own takes away, so that a slow disk or collector delays no event loop: a bounded buffer
 * that any thread fills and the thread empties. What finds no room is dropped; the caller counts it.
 */
#ifndef GATEWAY_ASIDE_H
#define GATEWAY_ASIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct aside;

struct aside_ops {
	const char *thread; /* its name, at most 15 bytes */
	size_t max_bytes;   /* that wait */
	unsigned linger_ms; /* after a first line others are waited for so long */
	/* On the thread: whole lines, each with its newline. */
	void (*take)(void *ctx, const char *lines, size_t n);
	/* On the thread, last: nothing waits any more. */
	void (*dispose)(void *ctx);
};

/* Takes ctx, on success only. 0, SL_ENOMEM, SL_EIO. */
int aside_create(const struct aside_ops *ops, void *ctx, struct aside **out);
/* A line with its newline. False: there is no room for it. Any thread. */
bool aside_put(struct aside *a, const void *line, size_t n);
/* Does not wait: the thread takes what there is, calls dispose, and ends. NULL allowed. */
void aside_destroy(struct aside *a);
/* Waits until the threads of all that were destroyed have ended, for so long at most. False: one has not. */
bool aside_wait(unsigned ms);

#endif
