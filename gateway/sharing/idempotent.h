/* SPDX-License-Identifier: Apache-2.0
 *
 * Idempotency-Key: a request that is repeated with the same key gets the same answer, whether that is
 * still being made or has ended. (draft-ietf-httpapi-idempotency-key-header has the field; what is done is
 * described in etc/api.md.)
 *
 * Before the handler sees it, a request with a key asks the store for it (idempotent_gate):
 *
 *   free     a lease is left there, renewed while the answer is made; the request goes on as the one
 *            that holds it
 *   running  in this process: the request joins the answer, under the same id. Elsewhere, or an answer
 *            that can't be joined: it waits a while, then 409
 *   ended    the stored answer
 *   another request's (the bodies differ): 422
 *   unknown  Redis is configured and does not answer: it is asked again for a while, then 503. Its policy of
 *            falling back to this process's memory is not for keys: what that says means nothing. A request
 *            whose key's state is unknown never runs
 *
 * What the holder's reader got is kept beside, as far as the store takes values so large; when it is
 * whole it is stored, otherwise the lease is given back and a repetition is answered anew. An answer that a
 * failing Redis does not take is offered to it again and again, for ten minutes and as far as a thread's 16 MiB
 * go; meanwhile repetitions join it here.
 *
 *   ASKING ──► HELD ──► STORING ──► gone        waiting is ASKING again, after a pause
 *      ├─────► JOINED ─────────────► gone
 *      └─────► LETTING ────────────► gone       the store may have given a lease that has no use
 *
 * Every change of a record names the record that it changes, or none (idempotent_proc.h). So a lease that ended
 * and was taken by another gateway is neither renewed nor written over, whatever comes late.
 *
 * Thread: the exchange's.
 */
#ifndef GATEWAY_IDEMPOTENT_H
#define GATEWAY_IDEMPOTENT_H

#include <stdbool.h>
#include <stddef.h>

#include "gateway/exchange/exchange.h"
#include "gateway/sharing/coalesce.h"

struct idempotent; /* of one request; in gw_app.idempotents until it is gone */

/* True: there is no key, or it is settled what the request is (x->idempotent): the handler goes on.
 * False: x is answered, or will be, or its handler will be called. */
bool idempotent_gate(struct exchange *x);

/* NULL is allowed in all of these. */

/* The log to join, lent, with the id and time that the answer has; NULL: it holds the key. */
struct token_log *idempotent_joins(const struct idempotent *i, const char **id, int64_t *created);
/* The holder's answer is made under that name; log: what others may join. */
void idempotent_begin(struct idempotent *i, const char *id, int64_t created, struct token_log *log);
/* More of what its reader gets. */
void idempotent_keep(struct idempotent *i, const void *bytes, size_t n);
/* What was kept is all, or (whole false) something went wrong. Takes i. */
void idempotent_end(struct idempotent *i, bool whole, bool stream);

/* Ends all: the application goes. */
void idempotents_stop(struct gw_app *app);

#endif
