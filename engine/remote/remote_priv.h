/* SPDX-License-Identifier: Apache-2.0
 *
 * The remote engine's state (owner: remote.c) and what its files share. I/O thread.
 */
#ifndef ENGINE_REMOTE_PRIV_H
#define ENGINE_REMOTE_PRIV_H

#include <event2/event.h>

#include "base/http/sse_read.h"
#include "engine/core/link.h"
#include "engine/remote/remote.h"
#include "engine/remote/remote_answer.h"
#include "engine/remote/remote_body.h"
#include "engine/remote/remote_breaker.h"
#include "engine/remote/remote_fault.h"
#include "engine/remote/remote_http.h"
#include "engine/remote/remote_load.h"
#include "engine/sched/run_slots.h"
#include "engine/sched/wait_limits.h"

#define REMOTE_BYTES_PER_TOKEN 4.0 /* before the first usage */

enum {
	REMOTE_MAX_SEQUENCES = 65536,
	REMOTE_BODY_BYTES = 8 << 20,
	REMOTE_DEFAULT_CTX = 32768, /* of models whose context nobody states */
	REMOTE_LINGER_MS = 2000,    /* for the end of a response whose answer is complete */
};

struct remote_model {
	char name[PROTO_MAX_NAME + 1], upstream[PROTO_MAX_NAME + 1];
	uint8_t role;
	uint32_t n_ctx, n_embd;
	uint8_t does;   /* of enum proto_does */
	bool fixed_ctx; /* the configuration states it */
	struct proto_figures figures;
};

/* The upstream's list of models, requested again and again. */
struct remote_health {
	struct remote_call call;
	struct event *timer;
	uint64_t begun_ns;
};

struct remote {
	struct eng_remote_config cfg;
	struct event_base *base;
	struct link_hub *hub;
	struct remote_http *http;
	struct idmap seqs;
	struct list waiting;   /* remote_seq.in_waiting: without a stream */
	struct list lingering; /* remote_stream.node */
	struct list counts;    /* remote_count.c; n_counts of them */
	int n_counts;
	uint64_t no_counts_ns; /* until then the upstream is not asked for tokens: it has no such path */
	struct proto_stats stats;
	struct remote_model models[PROTO_MAX_MODELS];
	int n_models;
	struct breaker breaker;
	char reason[PROTO_MAX_MESSAGE]; /* why it is open */
	struct remote_fault_notes notes;
	struct remote_health health;
	struct remote_load load;
	struct run_slots slots;
	struct wait_limits wait_limits;
	/* Learned; moving averages. 0: nothing yet. */
	double ttft_ns, each_ns, bytes_per_token;
	struct remote_frame frame;
};

struct remote_seq;

/* One request to the upstream. It outlives its sequence while the response ends. */
struct remote_stream {
	struct remote_call call;
	struct list node;
	struct event *timer; /* lingering */
	struct remote *r;
	struct remote_seq *seq; /* NULL: lingering */
	struct sl_buf body;
};

/* What each event touches comes first: many streams get one each in turn, and the cost of an event is the cache lines
 * that it touches. */
struct remote_seq {
	struct idmap_node node; /* key: the engine-wide identifier */
	struct remote *r;
	struct remote_stream *stream;
	const struct link_seq *at;
	uint32_t credit;
	bool started;      /* it has a slot */
	bool failing;      /* ends with `failure` once its tokens are sent */
	uint64_t armed_ns; /* when the timer fires; UINT64_MAX: it does not */
	uint64_t started_ns, first_ns, byte_ns, deadline_ns;
	uint64_t pace_ns;          /* when the next token is due, none being early */
	struct proto_submit asked; /* scalars and stops, which are owned */
	struct sse_read sse;
	struct remote_answer answer;
	struct list in_waiting;
	struct run_slot slot;
	struct wait_entry wait_entry;
	char *stops; /* the text of asked's */
	const char *path;
	struct remote_length length;
	uint32_t n_prompt; /* estimated */
	struct event *timer;
	struct remote_failure failure;
	uint64_t arrived_ns;
};

/* ---- remote.c ---- */

/* The upstream failed, or worked, in a probe or a request. Counts, logs, opens or closes the breaker. */
void remote_failed(struct remote *r, bool probe, enum proto_fault fault, const char *why);
void remote_worked(struct remote *r, bool probe);
/* Announces every model as the breaker has it. */
void remote_announce(struct remote *r);
void remote_model_info(const struct remote *r, int index, struct proto_model *out);
/* The end of a sequence; frees it. */
void remote_seq_end(struct remote_seq *s, uint8_t finish, const struct remote_failure *failure);
/* Of enum proto_does; dialect: of enum eng_remote_dialect. */
uint8_t remote_model_does(const struct eng_remote_model *m, int dialect);

/* ---- remote_stream.c ---- */

/* Sends the request. SL_ENOMEM. */
int remote_stream_start(struct remote_seq *s);
/* One function decides what a sequence does next: the timer, credit, bytes and ends lead here. May free s. */
void remote_seq_advance(struct remote_seq *s);
/* The sequence ends: its request is closed, or left to end by itself if the answer is complete. */
void remote_stream_leave(struct remote_seq *s);
void remote_stream_free(struct remote_stream *st);

/* ---- remote_embed.c ---- */

/* The response to a request for a vector. Ends s. */
void remote_embed_end(struct remote_seq *s);

/* ---- remote_health.c ---- */

/* SL_ENOMEM. */
int remote_health_init(struct remote *r);
void remote_health_dispose(struct remote *r);
/* Looks at the upstream at the next opportunity. */
void remote_health_hurry(struct remote *r);
/* Reads a list of models; pure but for r->models. True: some changed. */
bool remote_health_read(struct remote *r, const char *json, size_t n);

#endif
