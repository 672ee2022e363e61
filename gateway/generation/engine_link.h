/* SPDX-License-Identifier: Apache-2.0
 *
 * A gateway thread's link to the engine: one unix socket, the protocol of base/proto/proto.h, reconnected
 * with backoff (20 ms to 500 ms). Frames written during a turn go out together at its end. When the
 * link dies every sequence on it gets a `lost` event at once. The link knows no HTTP and no
 * generations: it has sequences, each with a listener.
 */
#ifndef GATEWAY_ENGINE_LINK_H
#define GATEWAY_ENGINE_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/proto/proto.h"

struct engine_link;
struct gw_thread;

/* A sequence's listener; all calls on the thread's loop. After on_done or on_lost, which each has, no further call.
 * NULL: not wanted. */
struct link_listener {
	void (*on_queued)(void *ctx, const struct proto_queued *m);
	void (*on_tokens)(void *ctx, const struct proto_tokens *m);
	void (*on_choice)(void *ctx, const struct proto_choice *m); /* one of several has ended */
	void (*on_done)(void *ctx, const struct proto_done *m);
	void (*on_lost)(void *ctx); /* the engine has gone */
	void (*on_verified)(void *ctx, const struct proto_verified *m);
	/* A frame of it comes soon: what that will need may be fetched ahead, and nothing else done. NULL: nothing.
	 * Where it is given ctx lives until the end of the turn in which the sequence has ended or was forgotten. */
	void (*soon)(const void *ctx);
	void (*on_prompt)(void *ctx, const struct proto_prompt_logprobs *m);
	void (*on_embedding)(void *ctx, const struct proto_embedding *m);
};

struct link_model {
	char name[PROTO_MAX_NAME + 1];
	char reason[PROTO_MAX_MESSAGE + 1];
	uint8_t state, role, does; /* does: of enum proto_does */
	uint8_t percent;           /* of its weights, while they are loaded */
	uint8_t residence;         /* enum proto_residence */
	uint8_t n_lengths;
	uint16_t parent;                     /* of an adapter: 1 + the index of its base; 0: it is none */
	uint32_t lengths[PROTO_MAX_LENGTHS]; /* of its vectors, where it declares some */
	uint32_t n_ctx, n_vocab, n_embd;
	uint64_t n_params;
	uint64_t tokenizer; /* models with the same one mean the same by a token's id; 0: unknown */
	struct link_parts {
		uint8_t format, reasoning, n_markers;
		int32_t markers[PROTO_MAX_MARKERS];
	} parts; /* as MODEL has them */
};

int engine_link_create(struct gw_thread *t, const char *socket_path, struct engine_link **out, struct sl_err *err);
/* Every sequence gets on_lost first. */
void engine_link_destroy(struct engine_link *l);

bool engine_link_up(const struct engine_link *l);
/* How long the link waits before it connects again, once this connection has ended. */
unsigned engine_link_backoff_ms(const struct engine_link *l);
/* Of the engine that it is or was connected to: changes with every start of it. 0: none yet. */
uint64_t engine_link_epoch(const struct engine_link *l);
/* Models as last announced; kept while the link is down (state then reads LOADING). */
int engine_link_n_models(const struct engine_link *l);
const struct link_model *engine_link_model(const struct engine_link *l, int index);
/* By its name; or an adapter, which is BASE:NAME, by its own NAME if no other has it. -1: none. */
int engine_link_find_model(const struct engine_link *l, const char *name);
/* An adapter's base; NULL: m is none. */
const struct link_model *engine_link_parent(const struct engine_link *l, const struct link_model *m);
const struct proto_stats *engine_link_stats(const struct engine_link *l);
/* The last ones of a model; zeros while the link is down. */
const struct proto_figures *engine_link_figures(const struct engine_link *l, int model);
/* Until the first token of a request that came now, as the engine last reported (LOAD) and with what was
 * submitted here since; 0 too when nothing is known. */
uint64_t engine_link_wait_ms(const struct engine_link *l, int model, uint8_t priority);
/* Its last LOAD reported nothing running or waiting, and nothing was submitted since. */
bool engine_link_idle(const struct engine_link *l, int model);
/* While none is free for this priority: in so many microseconds a place becomes free, on the average. */
uint64_t engine_link_place_us(const struct engine_link *l, int model, uint8_t priority);
/* on_load is called with each LOAD. */
void engine_link_on_load(struct engine_link *l, void (*on_load)(void *ctx, const struct proto_load *m), void *ctx);
/* on_state is called when the link has gone down and when a model's state was reported. */
void engine_link_on_state(struct engine_link *l, void (*on_state)(void *ctx), void *ctx);

/* Starts a sequence; *id is its identifier on this link. SL_ECLOSED when the link is down,
 * SL_ELIMIT when too much is waiting to be written. The listener and ctx are borrowed until the
 * sequence's end or engine_link_forget. */
int engine_link_submit(struct engine_link *l, const struct proto_submit *req, const struct link_listener *listener,
		       void *ctx, uint64_t *id);
/* Frames of it that come together with others are delivered together with those of the same lane (frame_order.h), and
 * behind each lane's its output goes out (gw_run_output). 0, and at first: of none. */
void engine_link_lane(struct engine_link *l, uint64_t id, uint32_t lane);
void engine_link_credit(struct engine_link *l, uint64_t id, uint32_t n_tokens);
/* How long a model on demand stays in memory without work (base/proto). Nothing while the link is down, or while too
 * much waits to be written. */
void engine_link_keep(struct engine_link *l, const struct proto_keep *k);
/* The engine's log gets this process's levels; lost like keep. */
void engine_link_levels(struct engine_link *l);
/* What the engine stores of a tenant's texts is erased. Remembered while the link is down. */
void engine_link_erase(struct engine_link *l, uint64_t tenant);
/* Counts a prompt's tokens, whatever their number. counted is called once, from the loop: m NULL, the engine
 * has gone. SL_ECLOSED, SL_ELIMIT as above. */
int engine_link_count(struct engine_link *l, const struct proto_count *req,
		      void (*counted)(void *ctx, const struct proto_counted *m), void *ctx, uint64_t *id);
/* counted will not come. Nothing when it has. */
void engine_link_uncount(struct engine_link *l, uint64_t id);
/* Cancels and forgets: no further call for it, also not on_done. */
void engine_link_forget(struct engine_link *l, uint64_t id);
/* Cancels; stopped is called once, when the engine has confirmed it or has gone. */
void engine_link_abandon(struct engine_link *l, uint64_t id, void (*stopped)(void *ctx), void *ctx);

#endif
