/* SPDX-License-Identifier: Apache-2.0
 *
 * The metrics' text, printed on a thread of its own: thousands of lines take milliseconds, in which an event loop would
 * send no tokens. The scraper belongs to the process; the other functions to the asking loop's thread.
 */
#ifndef GATEWAY_SCRAPE_H
#define GATEWAY_SCRAPE_H

#include "base/buf.h"
#include "gateway/loop/thread.h"

struct scraper;
struct scrape;

enum { SCRAPE_BYTES = 32 << 20 };

int scraper_create(struct scraper **out);
/* No scrape is wanted any more; the threads that asked still take messages. NULL allowed. */
void scraper_destroy(struct scraper *sc);

/* Calls done once, from t's loop: rc 0 with the text, or SL_ELIMIT, SL_ENOMEM. text is borrowed for the call. At once:
 * SL_ELIMIT, too many wait; SL_ENOMEM. */
int scrape_start(struct scraper *sc, struct gw_thread *t, void (*done)(void *ctx, int rc, const struct sl_buf *text),
		 void *ctx, struct scrape **out);
/* done will not be called. */
void scrape_cancel(struct scrape *s);

#endif
