/* SPDX-License-Identifier: Apache-2.0
 *
 * Event streams in the store, so that they outlive their gateway: the events of a logged answer are written there too,
 * and another gateway that finds the stream's owner dead may continue it. Only with a store that gateways share
 * (Redis).
 *
 * In the store, all of kind CACHE_REPLAY:
 *
 *   tenant        part            what
 *   its key's     "events ID"     log: batches of events, then the end with the usage
 *   its key's     "head ID"       what is needed to generate the answer again, and its owner; until the end
 *   run-OWNER     ID              the stream runs, and its tenant; until the end
 *   claims-OWNER  ID              the gateway that continues it after OWNER's death
 *   notes-OWNER   "stop ID", …    requests to the owner: end it; keep it, it is read elsewhere
 *   leases        GATEWAY         the gateway lives; renewed each second, expires after three
 *   gateways      GATEWAY         when it last lived; as long as its records may exist
 *
 * GATEWAY is a random name of a process, OWNER of one of its threads.
 *
 * Tokens depend only on the request and its seed, events of a logged answer only on the tokens. So continuing means
 * repeating: the same SUBMIT, rendered from the beginning; events that are stored already are compared and dropped
 * (resume.c). Two gateways that continue one stream, because each considers the other dead, append the same events.
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

/* *out NULL: this thread has no store, or the store is this process's memory. */
int replay_store_create(struct gw_app *app, struct replay_store **out);
/* No spool and no find may be left. */
void replay_store_destroy(struct replay_store *s);
/* Are writes pending that a drain should wait for? NULL allowed, as below. */
bool replay_store_busy(const struct replay_store *s);
/* Are streams stored: is there a store, and is gateway.resume.store on? */
bool replay_store_on(const struct replay_store *s);
const char *replay_store_owner(const struct replay_store *s);

/* ---- keys ---- */

enum replay_name { REPLAY_EVENTS, REPLAY_HEAD };
void replay_key(struct cache_key *out, enum replay_name name, uint64_t tenant, const char *id);

enum replay_list { REPLAY_RUN, REPLAY_CLAIMS, REPLAY_NOTE_STOP, REPLAY_NOTE_READ };
void replay_owner_key(struct cache_key *out, enum replay_list list, const char *owner, const char *id);

/* The lifetime of a running stream's records without renewal. */
uint64_t replay_run_ms(const struct gw_app *app);

/* A batch of the log begins with one of these. The end: prompt and completion tokens, u32 each, follow. */
enum { REPLAY_BATCH_EVENTS = 1, REPLAY_BATCH_END = 2, REPLAY_END_BYTES = 9 };

/* ---- spool (replay_spool.c): the owner's side ---- */

struct spool;

/* Of log, from event number `from` on (the store has the earlier ones). head: copied; background: it is continued
 * however late, even if nobody asks for it. NULL: no memory, or not on. */
struct spool *spool_open(struct replay_store *s, struct replay_log *log, uint64_t tenant, uint64_t from,
			 const void *head, size_t n_head, bool background);
/* Writes another head (copied), because more is needed to continue the stream. done(ctx) is called once, from the loop,
 * after the write succeeded or failed (then it is retried), but not after spool_end or spool_leave. False: it is not
 * written. */
bool spool_rewrite(struct spool *sp, const void *head, size_t n, void (*done)(void *ctx), void *ctx);
/* begun(ctx) is called once, from the loop, when other gateways can find and continue the stream, or when a write
 * failed, but not after spool_end or spool_leave. False: it won't be called. */
bool spool_await(struct spool *sp, void (*begun)(void *ctx), void *ctx);
/* Events were appended. */
void spool_moved(struct spool *sp);
/* The log has ended; the store owns sp from now on. */
void spool_end(struct spool *sp, const struct replay_usage *usage);
/* The owner leaves without an end: another gateway will continue. Takes sp. */
void spool_leave(struct spool *sp);
/* Does the store take writes, and does it have the head and RUN? */
bool spool_works(const struct spool *sp);

/* Its events in the store are deleted, at once or when the store answers again. */
void replay_store_forget(struct gw_app *app, const char *id, uint64_t tenant);

/* ---- leases ---- */

/* This process's lease: identifies the machine and the process. */
const char *replay_lease_text(void);
/* Is the process of that lease one of this machine, and has it ended? */
bool replay_lease_is_of_dead(const void *lease, size_t n);
void replay_lease_key(struct cache_key *out, const char *owner);

#endif
