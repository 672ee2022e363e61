/* SPDX-License-Identifier: Apache-2.0
 *
 * The gateway of chat_rig.h beside a real redis-server that keeps its streams. Where none is installed such tests are
 * skipped.
 */
#ifndef TESTS_SUPPORT_CHAT_STORE_H
#define TESTS_SUPPORT_CHAT_STORE_H

#include "gateway/replay/replay_store_priv.h"
#include "tests/support/chat_rig.h"
#include "tests/support/redis_server.h"

static struct redis_server server;

#define NEEDS_REDIS()                          \
	do {                                   \
		if (!redis_server_installed()) \
			skip();                \
	} while (0)

static int chat_store_set_up(void **state)
{
	redis_server_start(&server, NULL);
	chat_store_address = server.address;
	int rc = chat_set_up(state);
	struct chat_rig *c = *state;
	c->r.cfg.resume.store = true;
	c->r.cfg.threads = 1;
	c->tier.concurrency = 4;
	return rc;
}

static int tear_down(void **state)
{
	if (!redis_server_installed())
		return 0;
	chat_tear_down(state);
	redis_server_stop(&server);
	return 0;
}

static inline struct replay_store *store_of(struct chat_rig *c) { return c->app->replay_store; }

static inline bool is_quiet(struct chat_rig *c)
{
	return at_rest(c) && store_of(c)->n_spools == 0 && store_of(c)->n_follows == 0 &&
	       list_empty(&store_of(c)->errands);
}

#endif
