/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the connection to an engine. Owner: engine_conn.c (connection, sequences, frames out); engine_conn_in.c
 * delivers frames.
 */
#ifndef GATEWAY_ENGINE_CONN_PRIV_H
#define GATEWAY_ENGINE_CONN_PRIV_H

#include <sys/un.h>

#include "base/buf.h"
#include "gateway/admission/error_limits.h"
#include "gateway/generation/engine_conn.h"
#include "gateway/generation/frame_order.h"
#include "gateway/generation/prefix_view.h"
#include "gateway/loop/thread.h"

enum { LINK_BACKOFF_MIN_MS = 20 };

enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_UP };

struct sequence {
	uint64_t id;                          /* 0: empty slot */
	const struct link_listener *listener; /* NULL: abandoned */
	void (*stopped)(void *ctx);           /* of an abandoned one */
	void *ctx;
	void (*counted)(void *ctx, const struct proto_counted *m); /* of a count, which is no more than that */
	uint32_t lane;
	/* Of a SUBMIT, for the limits of errors. */
	uint16_t model;
	uint8_t group;
	bool limited, begun; /* it counts there; its first token has come */
	uint64_t sent_ns;
};

enum { LINK_MAX_ERASES = 256 };

struct engine_conn {
	struct gw_thread *t;
	const char *name; /* borrowed */
	int number;       /* of the engine, in the link */
	char path[sizeof((struct sockaddr_un *)0)->sun_path];
	enum link_state state;
	int fd;
	struct event *readable, *writable, *tick, *retry;
	struct gw_deferred flush;
	struct sl_buf in, out;
	unsigned backoff_ms;
	uint64_t ticked_ns;          /* last tick */
	uint64_t heard_ns, since_ns; /* last byte from the engine; start of CONNECTING */
	bool want_write;
	bool overrun;  /* a frame found no room: the link goes down at the end of the turn */
	bool stopping; /* it cancels what it runs: it is about to end */
	bool retired;  /* another connection has replaced it */
	bool told;     /* the reason why the link is down is logged */
	bool foreign;  /* and what it answered instead of HELLO, as another version does */
	uint64_t next_id;
	struct sequence *slots; /* n_slots, a power of two */
	size_t n_slots, n_seqs;
	struct link_model models[PROTO_MAX_MODELS];
	int n_models;
	struct proto_stats stats;
	size_t n_then;  /* sequences here when they came */
	uint64_t epoch; /* of the last HELLO */
	/* Tenants whose texts the engine is to erase: sent again to one that starts anew, until they are old. */
	struct link_erase {
		uint64_t tenant, sent_ns; /* 0: not sent yet */
	} erases[LINK_MAX_ERASES];
	int n_erases;
	struct link_load {
		struct proto_load told;
		uint32_t unseen[PROTO_PRIORITIES]; /* submitted since */
		bool known;                        /* it was told */
	} loads[PROTO_MAX_MODELS];
	struct prefix_view prefixes;
	struct conn_events events;
	struct frame_order order; /* of the frames being delivered */
};

/* What is in l->out goes at the end of the turn. */
void link_flush_soon(struct engine_conn *l);
/* The link is up: sends what is to be erased. */
void link_send_erases(struct engine_conn *l);
/* NULL: unknown. Valid until the table changes. */
struct sequence *link_find(struct engine_conn *l, uint64_t id);
/* s: a slot of the table. */
void link_remove(struct engine_conn *l, struct sequence *s);
/* Its state, or that of a model, has changed. */
void link_notify_state(struct engine_conn *l);
/* s has no part in the limits of errors any more (gateway/admission/error_limits.h). finished: it ended well. */
void link_unlimit(const struct engine_conn *l, const struct sequence *s, bool finished);
struct error_limit_key link_limit_key(const struct engine_conn *l, int model);
/* Delivers every whole frame in l->in. An error: the link has to go down. */
int link_take_frames(struct engine_conn *l, struct sl_err *err);

#endif
