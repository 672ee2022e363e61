/* SPDX-License-Identifier: Apache-2.0
 *
 * The application's state of one thread; for the application's rooms.
 */
#ifndef GATEWAY_APP_STATE_H
#define GATEWAY_APP_STATE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"
#include "gateway/auth/auth.h"
#include "gateway/generation/engine_link.h"
#include "gateway/admission/load.h"
#include "gateway/exchange/quota.h"
#include "gateway/loop/thread.h"

struct body_reader;
struct scraper;
struct identities;
struct replay;
struct replay_store;
struct replay_sweep;
struct inflight;
struct warm;
struct token_secrets;
struct shadows;
struct variant_sync;
struct admission_queue;
struct role_planner;

struct gw_app {
	struct gw_thread *t;
	struct gw_snapshot *now; /* the configuration, with the keys; counted */
	struct auth *auth;       /* now's */
	struct engine_link *link;
	bool link_was_up;        /* as on_state last reported */
	bool serving;            /* the link is up and a model is ready; counted over all threads */
	struct event *tick;      /* thread 0: engine gauges, roles */
	struct gw_deferred look; /* thread 0: the same, after news of an engine */
	uint64_t looked_ns;
	struct role_planner *roles; /* thread 0 */
	int64_t started_s;          /* seconds since 1970 */
	size_t n_exchanges;
	struct replay *replay;             /* shared by the threads, as are the next six */
	struct replay_store *replay_store; /* NULL: the store, if any, is this process's own */
	struct replay_sweep *replay_sweep;
	struct inflight *inflight;
	struct admission_queue *waiting;
	struct body_reader *bodies;
	struct scraper *scraper;
	struct load_levels levels;
	struct load_margin margin;
	struct load_memo memo;
	struct quotas quotas;
	struct list idempotents;       /* struct idempotent */
	size_t unstored_bytes;         /* of their answers, still to be stored */
	struct identities *identities; /* NULL: there is no store */
	struct token_secrets *secrets; /* NULL: there is no store */
	struct sl_buf scratch;         /* one event while it is rendered */
	struct sse_rest *sse_last;     /* of the newest stream; a reference */
	struct sl_buf list;            /* the log probabilities in it */
	struct list answers;           /* struct answer, in_app: those without an exchange */
	struct list all_answers;       /* struct answer, in_all */
	struct warm *warm;             /* NULL: there is no store */
	struct shadows *shadows;       /* of variants */
	struct variant_sync *variants; /* thread 0, where there is a store; else NULL */
	struct list turns;             /* struct conversation_turn */
};

#endif
