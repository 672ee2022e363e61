/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a thread's link. Owner: engine_link.c; succession.c replaces a connection.
 */
#ifndef GATEWAY_ENGINE_LINK_PRIV_H
#define GATEWAY_ENGINE_LINK_PRIV_H

#include "gateway/generation/adapter_asks.h"
#include "gateway/generation/engine_conn.h"
#include "gateway/generation/engine_link.h"
#include "gateway/generation/hot_prompts.h"
#include "gateway/generation/succession.h"
#include "gateway/loop/timer.h"

enum {
	LINK_ID_SHIFT = 56,   /* an identifier has its engine's number above it */
	LINK_HALF_SHIFT = 55, /* and this bit says which of an engine's two processes has the sequence */
	LINK_NAME_BYTES = 64,
	LINK_PATH_BYTES = 108, /* of a unix socket's address */
};

struct engine_link {
	struct gw_thread *t;
	int n_conns;
	struct engine_conn *conns[ENGINE_LINK_MAX]; /* to the processes that get requests */
	struct succession successions[ENGINE_LINK_MAX];
	struct gw_timer succession_timer;
	struct hot_prompts hot;
	char names[ENGINE_LINK_MAX][LINK_NAME_BYTES], paths[ENGINE_LINK_MAX][LINK_PATH_BYTES];
	uint64_t hashes[ENGINE_LINK_MAX]; /* of the names */
	int roles[ENGINE_LINK_MAX];       /* enum gw_engine_role, as configured */
	int n_models;
	struct link_model models[PROTO_MAX_MODELS];
	char names_of[PROTO_MAX_MODELS][PROTO_MAX_NAME + 1]; /* kept when no engine has the model any more */
	uint64_t gone_ns[PROTO_MAX_MODELS];                  /* since when no engine has it; 0: one has, or none had */
	int16_t local[PROTO_MAX_MODELS][ENGINE_LINK_MAX];    /* its index on that engine; -1: it has none */
	bool told[PROTO_MAX_MODELS][ENGINE_LINK_MAX];        /* that this one's differs is logged */
	void (*on_load)(void *ctx, const struct proto_load *m);
	void *on_load_ctx;
	void (*on_state)(void *ctx);
	void *on_state_ctx;
	struct adapter_asks asks;
	struct hedging hedging;
	uint64_t turn; /* requests so far */
	struct route_choice choice;
	struct prefix_digests digests; /* of the prompt that is being routed */
	/* Of several engines, while a caller looks at them. */
	struct link_sums {
		struct proto_stats stats;
		struct proto_figures figures;
	} * sums;
};

/* A connection to engine k whose sequences have this half of its identifiers. As engine_conn_create. */
int engine_link_conn(struct engine_link *l, int k, const char *socket_path, bool half, struct engine_conn **out,
		     struct sl_err *err);
/* The list of models follows from the connections. */
void engine_link_merge(struct engine_link *l);

#endif
