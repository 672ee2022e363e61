/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: logs of rendered event streams in memory (this file) and in the store (replay_store.h), so that a stream
 * can be read from any event on, by several readers on any threads. Streams without a log (the usual case) cost
 * nothing.
 *
 *   owner    the answer, on its thread; it appends events. The log outlives its end for a while
 *   reader   follows the log from an event on; a message to its thread wakes it
 *   copy     a log that is filled from another gateway's stream (gateway/resume)
 *
 * Each log has a lock, held while a few events are copied. A log is bounded by log_bytes (the oldest events are
 * dropped), all logs together by all_bytes (ended logs are dropped, then no new log is made).
 */
#ifndef GATEWAY_REPLAY_H
#define GATEWAY_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gateway/loop/thread.h"

struct replay;     /* all logs of the process */
struct replay_log; /* counted references */
struct replay_reader;

enum { REPLAY_MAX_ID = 64 };

struct replay_config {
	size_t log_bytes, all_bytes;
	uint64_t keep_ms; /* after the end */
};

/* For the access log, from the log's end. */
struct replay_usage {
	uint32_t n_prompt, n_completion;
};

int replay_create(const struct replay_config *cfg, struct replay **out);
/* No log may have an owner or a reader. */
void replay_destroy(struct replay *r);

/* ---- the owner, on its thread ---- */

/* stop(ctx) is called on t when a client ends the stream; not after replay_end. SL_ENOMEM; SL_ELIMIT: the other logs
 * take all memory. */
int replay_open(struct replay *r, struct gw_thread *t, const char *id, uint64_t tenant, void (*stop)(void *ctx),
		void *ctx, struct replay_log **out);
/* n bytes of whole events. An event ends with an empty line, which JSON never contains. */
int replay_append(struct replay_log *log, const void *events, size_t n);
/* A comment for readers while the log has no event, one line with its end: the queue position. Replaces the last one.
 */
void replay_note(struct replay_log *log, const char *line);
/* The answer so far as JSON, for clients that do not stream; copied, replaces the last one. */
int replay_set_snapshot(struct replay_log *log, const void *json, size_t n);
/* The log is complete; releases the owner's reference. */
void replay_end(struct replay_log *log, const struct replay_usage *usage);
/* Has the log had no reader for so long? */
bool replay_abandoned(struct replay_log *log, uint64_t for_ns);

/* ---- the owner of a log whose answer runs, or ran, in another gateway (gateway/resume) ---- */

/* As replay_open, unless the tenant has a log of that name: 1, and *out is that log, with a reference. The first event
 * has number `first`; readers may request events that do not exist yet. */
int replay_open_copy(struct replay *r, struct gw_thread *t, const char *id, uint64_t tenant, uint64_t first,
		     void (*stop)(void *ctx), void *ctx, struct replay_log **out);
/* Changes the owner, on the same thread. */
void replay_hand_over(struct replay_log *log, void (*stop)(void *ctx), void *ctx);
/* If only the owner and the directory hold it: releases the owner's reference, which frees the log, and returns true.
 */
bool replay_drop_unused(struct replay_log *log);
/* A client reads it through another gateway. */
void replay_touch(struct replay_log *log);
bool replay_is_read(struct replay_log *log);
/* The number that the next event gets. */
uint64_t replay_next(struct replay_log *log);
/* Appends whole events from number `from` on to out: at most max_events and, except for the first, max_bytes.
 * SL_ERANGE: they were dropped; SL_ELIMIT, SL_ENOMEM. */
int replay_copy(struct replay_log *log, uint64_t from, uint32_t max_events, size_t max_bytes, struct sl_buf *out,
		uint32_t *n_events);
/* Does event number i have these bytes? True for a dropped event. */
bool replay_matches(struct replay_log *log, uint64_t i, const void *event, size_t n);
/* The following events differ from those that readers ahead of the log have: these readers continue with the events
 * that are appended from now on. */
void replay_break(struct replay_log *log);
struct replay_log *replay_ref(struct replay_log *log);

/* ---- readers ---- */

/* The tenant's stream of that name, with a reference; NULL: there is none. */
struct replay_log *replay_find(struct replay *r, const char *id, uint64_t tenant);
void replay_unref(struct replay_log *log);
/* Makes the owner end the stream. */
void replay_stop(struct replay_log *log);
bool replay_ended(struct replay_log *log, struct replay_usage *usage);
/* Has it ended before event number `from`? */
bool replay_delivered(struct replay_log *log, uint64_t from);
/* Appends the snapshot; false when there is none. */
bool replay_snapshot(struct replay_log *log, struct sl_buf *out, int *rc);
const char *replay_id(const struct replay_log *log);

/* Removes it from the directory. */
void replay_forget(struct replay_log *log);
/* The same, and its copy in the store is deleted. */
void replay_delete(struct replay_log *log);
bool replay_deleted(struct replay_log *log);

#define REPLAY_NEXT UINT64_MAX /* as `from`: the next event */
/* A reader on thread t that begins with event number `from`; ready(ctx) is called on t, from its loop, when there is
 * more. ids: each event gets an id line, the first also a retry line. The reader takes its own reference. SL_ERANGE:
 * event `from` was dropped or does not exist yet; SL_ENOMEM. */
int replay_read(struct replay_log *log, struct gw_thread *t, uint64_t from, bool ids, void (*ready)(void *ctx),
		void *ctx, struct replay_reader **out);
/* As http_source.pull. SL_ELIMIT: the reader is too slow, its next event was dropped. */
ssize_t replay_pull(struct replay_reader *rd, uint8_t *dst, size_t room, bool *end);
/* Sends a comment with the next pull. False: the reader is inside an event. */
bool replay_ping(struct replay_reader *rd);
void replay_close(struct replay_reader *rd);

#endif
