/* SPDX-License-Identifier: Apache-2.0
 *
 * One state of the configuration, immutable and counted. Threads hold the newest, a request holds the
 * one it began with until it has ended; so nothing is locked and nothing is freed too early.
 */
#ifndef GATEWAY_SNAPSHOT_H
#define GATEWAY_SNAPSHOT_H

#include <stdatomic.h>

#include "gateway/config/gw_config.h"

enum { SNAPSHOT_PATH_BYTES = 4096 };

struct gw_snapshot {
	struct gw_config cfg; /* what it points to is owner's */
	void *owner;
	void (*release)(void *owner); /* NULL: nothing to release; any thread */
	/* What the application makes of cfg for all threads (app.c): NULL until it has. */
	void *shared;
	void (*release_shared)(void *shared);
	void *cascade; /* struct cascade_state; NULL: there is none */
	void (*release_cascade)(void *cascade);
	/* Where cfg's certificate is when the configuration names none. */
	char cert[SNAPSHOT_PATH_BYTES], key[SNAPSHOT_PATH_BYTES];
	atomic_int refs;
};

/* With one reference, the caller's. owner is taken also on failure, which is SL_ENOMEM. */
int gw_snapshot_create(const struct gw_config *cfg, void *owner, void (*release)(void *owner),
		       struct gw_snapshot **out);
struct gw_snapshot *gw_snapshot_ref(struct gw_snapshot *s);
/* NULL is allowed. */
void gw_snapshot_unref(struct gw_snapshot *s);

#endif
