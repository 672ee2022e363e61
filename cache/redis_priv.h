/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files that use hiredis: the connection (redis.c), commands (redis_command.c), replies
 * (redis_reply.c), the event loop (redis_event.c), and questions to sentinels (redis_sentinel.c).
 */
#ifndef CACHE_REDIS_PRIV_H
#define CACHE_REDIS_PRIV_H

#include <event2/event.h>
#include <hiredis/async.h>
#include <hiredis/hiredis.h>

#include "cache/priv.h"
#include "cache/scripts.h"

enum { MAX_SCRIPTS = N_SCRIPTS + MAX_PROCS, SHA_LEN = 40 };

/* ---- bounded replies (redis_reply.c) ---- */

enum { MAX_REPLY_OBJECTS = 16384 };

/* Of a connection, the link's. */
struct redis_guard {
	const redisAsyncContext *ac;
	size_t objects; /* that the reply may still have */
};

/* Makes ac's reader build replies within bounds, from memory with fault points. */
void redis_reply_attach(redisAsyncContext *ac, struct redis_guard *guard);

/* What an error reply means: the failure to count, the code for the caller, and the reaction. */
enum error_action { ERROR_OF_CALL, ERROR_OF_SERVER, ERROR_RECONNECT, ERROR_NOSCRIPT };
struct redis_error {
	enum cache_failure failure;
	int code;
	enum error_action action;
};
struct redis_error redis_error_of(const redisReply *reply);

/* w's answer from a reply that is no error: *r points into reply and w->out. 0, SL_EPROTO (not what the
 * command answers), SL_ENOMEM. */
int redis_result(struct cache_work *w, const redisReply *reply, struct cache_result *r);
/* A sentinel's answer: the host that it names, within reply, and *port; NULL, and *why. */
const char *sentinel_named(const redisReply *reply, int *port, const char **why);

/* ---- commands (redis_command.c) ---- */

/* The script that w runs, -1: none. */
int redis_script_of(const struct cache *c, const struct cache_work *w);
const char *redis_script_text(const struct cache *c, int script);
/* Sends w on ac. sha NULL: the whole text (EVAL). 0, SL_ENOMEM, SL_ECLOSED. */
int redis_send(redisAsyncContext *ac, const struct cache_work *w, const char *sha, redisCallbackFn *fn, void *privdata);

/* ---- the loop (redis_event.c) ---- */

/* Attaches ac to base. A reply larger than max_reply ends the connection. closed is called when ac
 * ends, for any reason. 0 or SL_ENOMEM. */
int redis_event_attach(redisAsyncContext *ac, struct event_base *base, size_t max_reply, void (*closed)(void *ctx),
		       void *ctx);

/* ---- Sentinel (redis_sentinel.c) ---- */

struct sentinel_ask;
/* A numeric address; or host NULL and why. Called once, from the loop; it may free the question. */
typedef void sentinel_answer(void *ctx, const char *host, int port, const char *why);

/* Asks one of c's sentinels, by turn. The caller frees *out, which may be set after SL_ENOMEM, too. */
int sentinel_ask(const struct cache *c, struct event_base *base, unsigned turn, sentinel_answer *done, void *ctx,
		 struct sentinel_ask **out);
/* NULL: nothing. Not from its callbacks of hiredis. */
void sentinel_ask_free(struct sentinel_ask *a);

#endif
