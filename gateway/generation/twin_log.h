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
#ifndef GATEWAY_TWIN_LOG_H
#define GATEWAY_TWIN_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/proto/proto.h"
#include "gateway/loop/thread.h"

struct twin_log; /* counted references */
struct twin_reader;

enum { TWIN_LOG_BYTES = 256 << 10, TWIN_ALL_BYTES = 64 << 20 };

/* ended(ctx, log): once, from the owner's thread, outside the lock. The caller has one reference. NULL:
 * no memory. */
struct twin_log *twin_log_create(void (*ended)(void *ctx, struct twin_log *log), void *ctx);
struct twin_log *twin_log_ref(struct twin_log *log);
void twin_log_unref(struct twin_log *log);
/* What the directory calls it; under the directory's lock, or before anybody else has the log. */
struct twin_name;
void twin_log_set_name(struct twin_log *log, struct twin_name *name);
struct twin_name *twin_log_name(const struct twin_log *log);
/* Its beginning is there, and it has not failed. */
bool twin_log_joinable(struct twin_log *log);

/* ---- the owner, on its thread ---- */

/* moved(ctx) is called on t; not after twin_log_end. seed: its sequence's. */
void twin_log_own(struct twin_log *log, struct gw_thread *t, uint64_t seed, void (*moved)(void *ctx), void *ctx);
void twin_log_queued(struct twin_log *log, const struct proto_queued *m);
void twin_log_tokens(struct twin_log *log, const struct proto_tokens *m); /* a decoded one */
void twin_log_choice(struct twin_log *log, const struct proto_choice *m);
/* Nothing more comes. One with an error is nobody's to join. Once. */
void twin_log_end(struct twin_log *log, const struct proto_done *m);
/* How many read it, and how many tokens the fastest of all who did has taken. */
unsigned twin_log_readers(struct twin_log *log, uint64_t *most);

/* ---- readers, each on its thread ---- */

/* From the beginning; ready(ctx) is called on t, from its loop, when there is more, and once soon. Takes
 * a reference of its own. SL_ERANGE: the beginning is not there any more, or it has failed; SL_ENOMEM. */
int twin_read(struct twin_log *log, struct gw_thread *t, void (*ready)(void *ctx), void *ctx, struct twin_reader **out);

enum twin_kind {
	TWIN_NOTHING, /* at the moment */
	TWIN_QUEUED,
	TWIN_TOKENS,
	TWIN_CHOICE,
	TWIN_DONE,
	TWIN_LOST, /* too far behind, or no memory; nothing follows */
};

struct twin_event {
	enum twin_kind kind;
	union {
		struct proto_queued queued;
		struct proto_tokens tokens; /* what they point to stays until the next call */
		struct proto_choice choice;
		struct proto_done done;
	} u;
};

/* Takes the next one. */
void twin_next(struct twin_reader *rd, struct twin_event *out);
/* The seed of the sequence; there once something was told. */
uint64_t twin_seed(struct twin_reader *rd);
/* It has gone on to token n. */
void twin_moved(struct twin_reader *rd, uint64_t n);
void twin_close(struct twin_reader *rd);

#endif
