/* SPDX-License-Identifier: Apache-2.0
 *
 * Logs of rendered event streams, so that a stream can be read again from any event on, by several
 * readers at once, on whatever thread they land. One owner on one thread (an answer, gateway/answer/answer.c)
 * appends; the log lives on for a while after its end. A stream without a log (the usual case) costs
 * nothing of this.
 *
 * A log has a lock; owner and readers hold it for the copying of a few events. Who waits for more is
 * woken by a message to its thread. Bounded: a log by log_bytes (its oldest events go first), all
 * together by all_bytes (ended logs go first, then no new one is made).
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
/* No log is owned or read any more. */
void replay_destroy(struct replay *r);

/* ---- the owner, on its thread ---- */

/* stop(ctx) is called on t when the stream's end is requested; not after replay_end. SL_ENOMEM,
 * SL_ELIMIT: no room beside the other logs. */
int replay_open(struct replay *r, struct gw_thread *t, const char *id, uint64_t tenant, void (*stop)(void *ctx),
		void *ctx, struct replay_log **out);
/* n bytes of whole events. An event ends with an empty line, which JSON never holds. */
int replay_append(struct replay_log *log, const void *events, size_t n);
/* A comment, one line with its end, for readers while the log has no event: the queue position. The next one
 * replaces it. */
void replay_note(struct replay_log *log, const char *line);
/* What readers without a stream get: a JSON text, copied, replaced by the next. */
int replay_set_snapshot(struct replay_log *log, const void *json, size_t n);
/* Nothing more comes; the owner's reference goes. */
void replay_end(struct replay_log *log, const struct replay_usage *usage);
/* Nobody has read for so long. */
bool replay_abandoned(struct replay_log *log, uint64_t for_ns);

/* ---- the owner of a log whose answer runs, or ran, in another gateway (gateway/resume) ---- */

/* As replay_open, unless the tenant has one of that name: 1, and *out is that, with a reference. Its first
 * event has number `first`; readers may ask for events that are still to come. */
int replay_open_copy(struct replay *r, struct gw_thread *t, const char *id, uint64_t tenant, uint64_t first,
		     void (*stop)(void *ctx), void *ctx, struct replay_log **out);
/* Another owner on the same thread. */
void replay_hand_over(struct replay_log *log, void (*stop)(void *ctx), void *ctx);
/* Nobody has it but its owner and the directory: then it goes with the owner's reference, and is true. */
bool replay_drop_unused(struct replay_log *log);
/* Somebody reads it elsewhere. */
void replay_touch(struct replay_log *log);
bool replay_is_read(struct replay_log *log);
/* The number that the next event gets. */
uint64_t replay_next(struct replay_log *log);
/* Appends whole events from number `from` on, at most max_events and, but for the first, max_bytes. SL_ERANGE:
 * they were dropped; SL_ELIMIT, SL_ENOMEM. */
int replay_copy(struct replay_log *log, uint64_t from, uint32_t max_events, size_t max_bytes, struct sl_buf *out,
		uint32_t *n_events);
/* Is event number i these bytes? One that was dropped is taken to be. */
bool replay_matches(struct replay_log *log, uint64_t i, const void *event, size_t n);
/* What comes is not what readers that are ahead of it have: they get the events that are appended from here on. */
void replay_break(struct replay_log *log);
struct replay_log *replay_ref(struct replay_log *log);

/* ---- readers ---- */

/* The tenant's stream of that name, with a reference; NULL: there is none. */
struct replay_log *replay_find(struct replay *r, const char *id, uint64_t tenant);
void replay_unref(struct replay_log *log);
/* Asks the owner to end it. */
void replay_stop(struct replay_log *log);
bool replay_ended(struct replay_log *log, struct replay_usage *usage);
/* It has ended, and all events before number `from` are all there were. */
bool replay_delivered(struct replay_log *log, uint64_t from);
/* Appends the snapshot; false when there is none. */
bool replay_snapshot(struct replay_log *log, struct sl_buf *out, int *rc);
const char *replay_id(const struct replay_log *log);

/* Nobody finds it any more. */
void replay_forget(struct replay_log *log);
/* And what is kept of it elsewhere goes. */
void replay_delete(struct replay_log *log);
bool replay_deleted(struct replay_log *log);

#define REPLAY_NEXT UINT64_MAX /* as `from`: with what comes next */
/* A reader on thread t that begins with event number `from`; ready(ctx) is called on t, from its loop,
 * when there is more. ids: each event gets an id line, the first a retry line as well. Takes a
 * reference of its own. SL_ERANGE: what it asks for was dropped or is not there yet; SL_ENOMEM. */
int replay_read(struct replay_log *log, struct gw_thread *t, uint64_t from, bool ids, void (*ready)(void *ctx),
		void *ctx, struct replay_reader **out);
/* As http_source.pull. SL_ELIMIT: too slow, what comes next was dropped. */
ssize_t replay_pull(struct replay_reader *rd, uint8_t *dst, size_t room, bool *end);
/* Between two events: a comment goes out with the next pull. False: in the middle of one. */
bool replay_ping(struct replay_reader *rd);
void replay_close(struct replay_reader *rd);

#endif
