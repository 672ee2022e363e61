/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's side of the protocol, without sockets. A hub holds the identifiers of all links and the events queued
 * for them; a link consumes and produces bytes. A table of functions serves the requests; the real and the echo engine
 * both implement it.
 *
 * I/O thread, except hub_post (any thread).
 */
#ifndef ENGINE_LINK_H
#define ENGINE_LINK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"
#include "base/mailbox.h"
#include "engine/engine.h"
#include "engine/sched/idmap.h"

/* The functions of the same name in engine/engine.h. */
struct eng_backend {
	int (*submit)(void *be, uint64_t id, const struct proto_submit *req);
	int (*count)(void *be, uint64_t id, const struct proto_count *req);
	void (*credit)(void *be, uint64_t id, uint32_t n_tokens);
	void (*cancel)(void *be, uint64_t id);
	void (*hand)(void *be, uint64_t id, const struct proto_hand *m);        /* NULL: it shares no pages */
	void (*keep)(void *be, const struct proto_keep *k);                     /* NULL: no model is on demand */
	void (*erase)(void *be, const struct proto_erase *m);                   /* NULL: it stores nothing */
	int (*adapter)(void *be, uint64_t id, const struct proto_adapter *ask); /* NULL: it takes none */
	void (*stats)(void *be, struct proto_stats *out);
	/* NULL: it has no prefix tree. */
	int (*prefixes)(void *be, uint64_t *cursor, bool *anew, uint64_t **changes, size_t *n);
	bool (*load)(void *be, int index, struct proto_load *out);
	int (*n_models)(void *be);
	void (*model_info)(void *be, int index, struct proto_model *out);
};

/* engine/engine.h itself; be is the struct engine (engine/core/serve.c). */
extern const struct eng_backend engine_backend;

enum {
	LINK_MAX_OUT = 4 << 20, /* unread output above it closes the link */
	LINK_KEEP = 64 << 10,   /* memory an idle buffer keeps */
};

struct event_mail;
struct link_seq;

struct link_hub {
	const struct eng_backend *backend;
	void *be;
	uint64_t epoch, next_id;
	struct idmap seqs;            /* engine-wide identifier → struct link_seq */
	struct list links;            /* struct eng_link.in_hub */
	bool closing;                 /* new requests are refused */
	bool leaving;                 /* another process takes over; requests are served until the links close */
	bool changed;                 /* something happened since the last hub_send_stats */
	bool calm;                    /* tokens alone change nothing that gateways decide by: no STATS follow them */
	bool ready[PROTO_MAX_MODELS]; /* model i is READY */
	int n_ready;
	struct mailbox box; /* struct event_mail */
	bool posted_here;   /* since hub_deliver */
	/* Each request reserves the mail for its last event, so that its end is always reported. */
	pthread_mutex_t spare_lock;
	struct event_mail *spare;
	atomic_bool lost; /* an event could not be stored: every link is closed */
};

struct eng_link {
	struct list in_hub;
	struct link_hub *hub;
	struct idmap seqs; /* the link's own identifier → struct link_seq */
	struct sl_buf in, out;
	uint64_t prefixes_read; /* cursor of the backend's prefixes */
	bool greeted;           /* HELLO was received */
	bool finished;          /* send what is in out, then close */
	bool overflow;          /* close without sending */
};

/* 0, SL_ENOMEM or SL_EIO. */
int hub_init(struct link_hub *hub, uint64_t epoch);
/* Drops unread mail and its sequences. All links and the backend must be destroyed. */
void hub_dispose(struct link_hub *hub);
/* Before any link exists. Borrows both. */
void hub_attach(struct link_hub *hub, const struct eng_backend *backend, void *be);

/* An eng_on_event: any thread; ctx is the hub. */
void hub_post(void *ctx, const struct eng_event *ev);
/* The same from the I/O thread, which delivers at the end of its turn: nothing wakes it. The events of a sequence come
 * all this way or all the other. */
void hub_post_here(struct link_hub *hub, const struct eng_event *ev);
/* A request's, from its submit until its last event is posted. NULL: unknown. */
struct link_seq *hub_seq(const struct link_hub *hub, uint64_t id);
/* Tokens, like hub_post_here: straight into the output, without a mail, unless something was kept before them. */
void hub_post_tokens_here(struct link_hub *hub, const struct link_seq *s, const struct proto_tokens *m);
/* Moves posted events into their links' output. */
void hub_deliver(struct link_hub *hub);
/* STATS, each model's LOAD and the changes in the prefix trees, to every link. */
void hub_send_stats(struct link_hub *hub);
/* Refuses new requests and cancels every sequence; their DONEs follow. */
void hub_close(struct link_hub *hub);
/* Sends LEAVE on every link, and on each that comes later. */
void hub_leave(struct link_hub *hub);
/* Sends BYE on every link and finishes it. */
void hub_bye(struct link_hub *hub, const char *reason);
/* Sequences and counts without their last event. */
size_t hub_n_live(const struct link_hub *hub);

/* 0 or SL_ENOMEM. */
int link_create(struct link_hub *hub, struct eng_link **out);
/* Cancels its sequences and frees. */
void link_destroy(struct eng_link *l);
/* Consumes n ≤ LINK_KEEP received bytes. A protocol error puts BYE into out and finishes the link. */
void link_feed(struct eng_link *l, const uint8_t *bytes, size_t n);

#endif
