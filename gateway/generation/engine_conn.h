/* SPDX-License-Identifier: Apache-2.0
 *
 * A gateway thread's connection to one engine process: one unix socket, the protocol of base/proto/proto.h, reconnected
 * with backoff (20 ms to 500 ms). Frames written during a turn go out together at its end. When the connection ends
 * every sequence on it gets a `lost` event at once. Models are numbered as this engine numbers them. For
 * engine_link.c, which has one of each engine; its header describes the functions of the same names.
 */
#ifndef GATEWAY_ENGINE_CONN_H
#define GATEWAY_ENGINE_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "gateway/generation/link_model.h"
#include "gateway/generation/prefix_view.h"

struct engine_conn;
struct gw_thread;

/* Called on the thread's loop, each with ctx. */
struct conn_events {
	void (*on_load)(void *ctx, struct engine_conn *c, const struct proto_load *m); /* with each LOAD */
	/* It has gone down, or a model's state was reported. */
	void (*on_state)(void *ctx, struct engine_conn *c);
	/* Another process serves the socket from now on; this one ends once its connections have. */
	void (*on_leave)(void *ctx, struct engine_conn *c);
	void *ctx;
};

/* number: the engine's, in the link. name: for the log; "": the only one. first_id: of its first sequence; they grow
 * from there. name is borrowed. */
int engine_conn_create(struct gw_thread *t, int number, const char *name, const char *socket_path, uint64_t first_id,
		       const struct conn_events *events, struct engine_conn **out, struct sl_err *err);
/* It is not connected again once it has ended. */
void engine_conn_retire(struct engine_conn *c);
/* Sequences and counts from here that have not ended. */
size_t engine_conn_n_own(const struct engine_conn *c);
/* No listener may submit from now on. */
void engine_conn_stop(struct engine_conn *c);
/* Every sequence gets on_lost first. */
void engine_conn_destroy(struct engine_conn *c);

bool engine_conn_up(const struct engine_conn *c);
/* It is up and does not end: it has not cancelled a sequence by itself. */
bool engine_conn_takes(const struct engine_conn *c);
unsigned engine_conn_backoff_ms(const struct engine_conn *c);
uint64_t engine_conn_epoch(const struct engine_conn *c);
int engine_conn_n_models(const struct engine_conn *c);
const struct link_model *engine_conn_model(const struct engine_conn *c, int index);
const struct proto_stats *engine_conn_stats(const struct engine_conn *c);
/* The last LOAD of a model, or of an adapter's base; zeros while the connection is down. */
const struct proto_load *engine_conn_load(const struct engine_conn *c, int model);
uint64_t engine_conn_wait_ms(const struct engine_conn *c, int model, uint8_t priority);
bool engine_conn_idle(const struct engine_conn *c, int model);
/* A request that came now could start at once; also while nothing is known. */
bool engine_conn_has_place(const struct engine_conn *c, int model, uint8_t priority);
/* What the engine has of prompts; empty while the connection is down. */
struct prefix_view *engine_conn_prefixes(struct engine_conn *c);
/* Sequences that the engine has: those from here that have not ended, and as many from others as it last reported. */
size_t engine_conn_n_active(const struct engine_conn *c);
/* False: too many of its requests for the model fail to send one more now. *retry_ms: when it would get one. */
bool engine_conn_admits(const struct engine_conn *c, int model, uint64_t *retry_ms);

int engine_conn_submit(struct engine_conn *c, const struct proto_submit *req, const struct link_listener *listener,
		       void *ctx, uint64_t *id);
void engine_conn_lane(struct engine_conn *c, uint64_t id, uint32_t lane);
void engine_conn_hand(struct engine_conn *c, uint64_t id, const struct proto_hand *m);
void engine_conn_credit(struct engine_conn *c, uint64_t id, uint32_t n_tokens);
void engine_conn_keep(struct engine_conn *c, const struct proto_keep *k);
void engine_conn_levels(struct engine_conn *c);
void engine_conn_erase(struct engine_conn *c, uint64_t tenant);
int engine_conn_count(struct engine_conn *c, const struct proto_count *req,
		      void (*counted)(void *ctx, const struct proto_counted *m), void *ctx, uint64_t *id);
/* done is as a count's, and engine_conn_uncount serves for it, too. */
int engine_conn_adapter(struct engine_conn *c, const struct proto_adapter *req,
			void (*done)(void *ctx, const struct proto_counted *m), void *ctx, uint64_t *id);
void engine_conn_uncount(struct engine_conn *c, uint64_t id);
void engine_conn_forget(struct engine_conn *c, uint64_t id);
void engine_conn_abandon(struct engine_conn *c, uint64_t id, void (*stopped)(void *ctx), void *ctx);

#endif
