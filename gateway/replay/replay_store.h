/* SPDX-License-Identifier: Apache-2.0
 *
 * Event streams in the store, so that they outlive their gateway: what a logged answer tells is spooled there
 * beside its replay log, and whoever finds a stream's owner dead may go on with it. Only where the store is one
 * that gateways share (Redis); otherwise nothing of this is.
 *
 * In the store, all of kind CACHE_REPLAY:
 *
 *   tenant        part            what
 *   its key's     "events ID"     log: batches of events, then the end with the usage
 *   its key's     "head ID"       what is needed to make the answer again, and its owner; until the end
 *   run-OWNER     ID              that it runs, and whose it is; until the end
 *   claims-OWNER  ID              who goes on with it, now that OWNER is dead
 *   notes-OWNER   "stop ID", …    what others ask of the owner: to end it; not to end it, it is read
 *   leases        GATEWAY         it lives; renewed each second, gone after three
 *   gateways      GATEWAY         it did, at that time; for as long as something of it may be left
 *
 * GATEWAY is a random name of a process, OWNER of a thread of it.
 *
 * The engine's tokens depend on the request and its seed alone, and the events of a logged answer on the
 * tokens alone. So going on is doing it again: the same SUBMIT, rendered from the beginning, of which what is in
 * the store already is compared and dropped (answer_resume.c). Two gateways that go on with one stream, because
 * each takes the other for dead, append the same events.
 *
 * Thread: each has its own; they share nothing.
 */
#ifndef GATEWAY_REPLAY_STORE_H
#define GATEWAY_REPLAY_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"
#include "gateway/replay/replay.h"

struct gw_app;
struct replay_store; /* of a thread */

enum {
	REPLAY_OWNER_CHARS = 24, /* "0123456789abcdef-12" with its zero */
	REPLAY_VERSION = 1,      /* of all records */
};

/* *out NULL: this thread has no store, or it is of this process. */
int replay_store_create(struct gw_app *app, struct replay_store **out);
/* No spool and no find is left. */
void replay_store_destroy(struct replay_store *s);
/* Something is on its way to the store that a drain should wait for. NULL allowed, as below. */
bool replay_store_busy(const struct replay_store *s);
/* Streams go there now: it is there and the configuration wants it. */
bool replay_store_on(const struct replay_store *s);
const char *replay_store_owner(const struct replay_store *s);

/* ---- keys ---- */

enum replay_name { REPLAY_EVENTS, REPLAY_HEAD };
void replay_key(struct cache_key *out, enum replay_name name, uint64_t tenant, const char *id);

enum replay_list { REPLAY_RUN, REPLAY_CLAIMS, REPLAY_NOTE_STOP, REPLAY_NOTE_READ };
void replay_owner_key(struct cache_key *out, enum replay_list list, const char *owner, const char *id);

/* How long what belongs to a running stream stays without being touched. */
uint64_t replay_run_ms(const struct gw_app *app);

/* A batch of the log begins with one of these. The end: prompt and completion tokens, u32 each, follow. */
enum { REPLAY_BATCH_EVENTS = 1, REPLAY_BATCH_END = 2, REPLAY_END_BYTES = 9 };

/* ---- spool (replay_spool.c): the owner's side ---- */

struct spool;

/* Of log, from event number `from` on (the store has the earlier ones). head: copied; background: it is continued
 * however late, even if nobody asks for it. NULL: no memory, or not on. */
struct spool *spool_open(struct replay_store *s, struct replay_log *log, uint64_t tenant, uint64_t from,
			 const void *head, size_t n_head, bool background);
/* More is needed to continue it: head (copied) replaces what was written. done(ctx) is
 * called once, from the loop, when the store has it or has not taken it (then it is tried again), but not after
 * spool_end or spool_leave. False: it is not written. */
bool spool_rewrite(struct spool *sp, const void *head, size_t n, void (*done)(void *ctx), void *ctx);
/* begun(ctx) is called once, from the loop, when other gateways could find and continue the stream, or when the store
 * has not taken it, but not after spool_end or spool_leave. False: it won't be called. */
bool spool_await(struct spool *sp, void (*begun)(void *ctx), void *ctx);
/* Events were appended. */
void spool_moved(struct spool *sp);
/* The log has ended; sp is the store's from here on. */
void spool_end(struct spool *sp, const struct replay_usage *usage);
/* The owner leaves without an end: another gateway will continue. Takes sp. */
void spool_leave(struct spool *sp);
/* What is written to the store would be found there. */
bool spool_works(const struct spool *sp);

/* Its events in the store are deleted, at once or when the store answers again. */
void replay_store_forget(struct gw_app *app, const char *id, uint64_t tenant);

/* ---- leases ---- */

/* The text of this process's leases: where it runs. */
const char *replay_lease_text(void);
/* Is the process of that lease on this machine, and has it gone? */
bool replay_lease_is_of_dead(const void *lease, size_t n);
void replay_lease_key(struct cache_key *out, const char *owner);

#endif
