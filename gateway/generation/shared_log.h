/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of a generation that several requests share: what the engine said of it, from the first word
 * on, for readers on any thread. Its owner is the generation that has the engine's sequence
 * (generation.c); its readers are generations without one.
 *
 * A log has a lock, held for the copying of one message. Who waits for more is woken by a message to its
 * thread; the owner is told the same way when the fastest reader has moved or the last one has left.
 * Bounded: beyond TWIN_LOG_BYTES nobody may join any more, what all readers have goes, and a reader that
 * is further behind than that is lost. All logs together have TWIN_ALL_BYTES: beyond it what nobody
 * reads is not kept.
 */
#ifndef GATEWAY_SHARED_LOG_H
#define GATEWAY_SHARED_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/proto/proto.h"
#include "gateway/loop/thread.h"

struct shared_log; /* counted references */
struct shared_reader;

enum { TWIN_LOG_BYTES = 256 << 10, TWIN_ALL_BYTES = 64 << 20 };

/* ended(ctx, log): once, from the owner's thread, outside the lock. The caller has one reference. NULL:
 * no memory. */
struct shared_log *shared_log_create(void (*ended)(void *ctx, struct shared_log *log), void *ctx);
struct shared_log *shared_log_ref(struct shared_log *log);
void shared_log_unref(struct shared_log *log);
/* What the directory calls it; under the directory's lock, or before anybody else has the log. */
struct coalesce_name;
void shared_log_set_name(struct shared_log *log, struct coalesce_name *name);
struct coalesce_name *shared_log_name(const struct shared_log *log);
/* Its beginning is there, and it has not failed. */
bool shared_log_joinable(struct shared_log *log);

/* ---- the owner, on its thread ---- */

/* moved(ctx) is called on t; not after shared_log_end. seed: its sequence's. */
void shared_log_own(struct shared_log *log, struct gw_thread *t, uint64_t seed, void (*moved)(void *ctx), void *ctx);
void shared_log_queued(struct shared_log *log, const struct proto_queued *m);
void shared_log_tokens(struct shared_log *log, const struct proto_tokens *m); /* a decoded one */
void shared_log_choice(struct shared_log *log, const struct proto_choice *m);
/* Nothing more comes. One with an error is nobody's to join. Once. */
void shared_log_end(struct shared_log *log, const struct proto_done *m);
/* How many read it, and how many tokens the fastest of all who did has taken. */
unsigned shared_log_readers(struct shared_log *log, uint64_t *most);

/* ---- readers, each on its thread ---- */

/* From the beginning; ready(ctx) is called on t, from its loop, when there is more, and once soon. Takes
 * a reference of its own. SL_ERANGE: the beginning is not there any more, or it has failed; SL_ENOMEM. */
int twin_read(struct shared_log *log, struct gw_thread *t, void (*ready)(void *ctx), void *ctx,
	      struct shared_reader **out);

enum coalesce_kind {
	TWIN_NOTHING, /* at the moment */
	TWIN_QUEUED,
	TWIN_TOKENS,
	TWIN_CHOICE,
	TWIN_DONE,
	TWIN_LOST, /* too far behind, or no memory; nothing follows */
};

struct shared_event {
	enum coalesce_kind kind;
	union {
		struct proto_queued queued;
		struct proto_tokens tokens; /* what they point to stays until the next call */
		struct proto_choice choice;
		struct proto_done done;
	} u;
};

/* Takes the next one. */
void twin_next(struct shared_reader *rd, struct shared_event *out);
/* The seed of the sequence; there once something was told. */
uint64_t twin_seed(struct shared_reader *rd);
/* It has gone on to token n. */
void twin_moved(struct shared_reader *rd, uint64_t n);
void twin_close(struct shared_reader *rd);

#endif
