/* SPDX-License-Identifier: Apache-2.0
 *
 * Idempotency-Key (draft-ietf-httpapi-idempotency-key-header; etc/api.md): a repeated request gets the first one's
 * answer, generated once. Before its handler runs, a request with a key asks the store for it (idempotent_gate):
 *
 *   free     it takes a lease, renewed while the answer is generated
 *   running  in this process: it joins the answer. Elsewhere, or not joinable: it waits a while, then 409
 *   ended    it gets the stored answer
 *   another request's (the bodies differ): 422
 *   unknown  Redis does not answer: it is asked again for a while, then 503. The request never runs
 *
 *   ASKING ──► HELD ──► STORING ──► gone        waiting is ASKING again, after a pause
 *      ├─────► JOINED ─────────────► gone
 *      └─────► RELEASING ────────────► gone       the store may have granted a lease that is not needed
 *
 * A complete answer is stored, if it fits into one value; otherwise the lease is released, and a repetition is answered
 * anew. Thread: the exchange's.
 */
#ifndef GATEWAY_IDEMPOTENT_H
#define GATEWAY_IDEMPOTENT_H

#include <stdbool.h>
#include <stddef.h>

#include "gateway/exchange/exchange.h"
#include "gateway/sharing/coalesce.h"

struct idempotent; /* of one request; in gw_app.idempotents until it is gone */

/* True: there is no key, or its state is known (x->idempotent): the handler continues. False: x has its response or
 * will get it, or its handler will be called. */
bool idempotent_gate(struct exchange *x);

/* NULL is allowed in all of these. */

/* The log to join, borrowed, with the id and time of its answer; NULL: i holds the key. */
struct token_log *idempotent_joins(const struct idempotent *i, const char **id, int64_t *created);
/* The holder's answer begins, under that id; other requests may join log. */
void idempotent_begin(struct idempotent *i, const char *id, int64_t created, struct token_log *log);
/* Appends bytes of the response. */
void idempotent_keep(struct idempotent *i, const void *bytes, size_t n);
/* The response is complete, or (whole false) failed. Takes i. */
void idempotent_end(struct idempotent *i, bool whole, bool stream);

/* Frees all of them when the application ends. */
void idempotents_stop(struct gw_app *app);

#endif
