/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files behind replay_store.h, and by gateway/resume.
 */
#ifndef GATEWAY_REPLAY_STORE_PRIV_H
#define GATEWAY_REPLAY_STORE_PRIV_H

#include "base/metrics.h"
#include "gateway/exchange/app_state.h"
#include "gateway/replay/replay_store.h"
#include "gateway/loop/thread.h"
#include "gateway/loop/timer.h"

enum {
	REPLAY_LEASE_MS = 3000,
	REPLAY_BEAT_MS = 1000, /* of leases; at most between two looks for notes */
	REPLAY_GATEWAY_CHARS = 17,
};

struct replay_store {
	struct gw_app *app;
	struct cache_client *cache;
	char owner[REPLAY_OWNER_CHARS];
	struct list spools, follows, errands;
	size_t n_spools, n_follows;
	struct gw_timer beat, notes;
	struct cache_op lease_op, gateway_op, notes_op;
};

extern struct metric replay_m_spools, replay_m_failures, replay_m_lost, replay_m_follows, replay_m_continued,
    replay_m_uncontinued;

static inline bool replay_store_up(const struct replay_store *s) { return cache_client_state(s->cache) == CACHE_IS_UP; }

void spool_stop(struct spool *sp);
bool spool_is_noted(struct spool *sp, const void *digest);

#endif
