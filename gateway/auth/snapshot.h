/* SPDX-License-Identifier: Apache-2.0
 *
 * One state of the configuration, immutable and reference-counted. Threads hold the newest snapshot, a request holds
 * the one it began with until its end; so no lock is needed and nothing is freed too early.
 */
#ifndef GATEWAY_SNAPSHOT_H
#define GATEWAY_SNAPSHOT_H

#include <stdatomic.h>

#include "gateway/config/gw_config.h"

enum { SNAPSHOT_PATH_BYTES = 4096 };

struct gw_snapshot {
	struct gw_config cfg; /* owner owns what it points to */
	void *owner;
	void (*release)(void *owner); /* any thread; NULL: none */
	/* The application's data for all threads (app.c); NULL until created. */
	void *shared;
	void (*release_shared)(void *shared);
	void *cascade; /* struct cascade_state; NULL: none */
	void (*release_cascade)(void *cascade);
	void *sinks; /* struct sinks */
	void (*release_sinks)(void *sinks);
	void *variants; /* struct variants; NULL: none */
	void (*release_variants)(void *variants);
	/* The development certificate's files, if the configuration names none. */
	char cert[SNAPSHOT_PATH_BYTES], key[SNAPSHOT_PATH_BYTES];
	atomic_int refs;
};

/* Returns with the caller's reference. Owns owner, also on failure (SL_ENOMEM). */
int gw_snapshot_create(const struct gw_config *cfg, void *owner, void (*release)(void *owner),
		       struct gw_snapshot **out);
struct gw_snapshot *gw_snapshot_ref(struct gw_snapshot *s);
/* NULL allowed. */
void gw_snapshot_unref(struct gw_snapshot *s);

#endif
