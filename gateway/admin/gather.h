/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks every thread of this gateway for something of its own and brings the replies together. Each thread writes its
 * part between two events, so nothing needs a lock; the thread that asked reads the parts once all are there, or those
 * that are once GATHER_MS have passed.
 */
#ifndef GATEWAY_ADMIN_GATHER_H
#define GATEWAY_ADMIN_GATHER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct gather;
struct gw_app;
struct gw_thread;

enum { GATHER_MS = 2000, GATHER_MOST = 4 /* at once, of the process */, GATHER_THREADS = 256, GATHER_WORD = 128 };

/* What one thread has written. */
struct gather_part {
	const char *word;  /* of gather_start */
	struct sl_buf out; /* the visitor's, up to GATHER_BYTES */
	size_t n, more;    /* the visitor's: entries in out, and others that it left out */
	void *own;         /* the visitor's, allocated with sl_alloc; freed with the gather; NULL */
	bool there;
};
enum { GATHER_BYTES = 256 << 10 };

/* A thread takes part from enter to leave. */
void gather_enter(struct gw_app *app);
void gather_leave(struct gw_app *app);

/* visit is called once on each thread, with its application. word: copied, shorter than GATHER_WORD. done is called on
 * t's loop, once: parts are valid during the call. SL_ELIMIT: GATHER_MOST are under way; SL_ENOMEM. */
int gather_start(struct gw_thread *t, void (*visit)(struct gw_app *app, struct gather_part *part), const char *word,
		 void (*done)(void *ctx, const struct gather_part *parts, size_t n), void *ctx, struct gather **out);
/* Before done was called: it is not called any more. */
void gather_cancel(struct gather *g);

#endif
