/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: stored conversations (/v1/conversations) and what they share with responses.
 *
 *   conversation   a document in the store, of one tenant:
 *                  {"id":"conv_…", "created_at", "metadata":{…}, "items":[items (response_items.h), each with an id]}
 *   turn           one request's input and output, appended together (conversation_hold.h)
 *   hold           a turn's lease on its conversation, so that turns do not overlap
 *   directory      the ids of a tenant's conversations, with size and expiry
 *
 * The document is written as a whole, because every answer needs all of it. conversation_proc.c has the store's atomic
 * procedures; item_page.h pages through lists of items; response_prompt.h fills in stored prompts.
 *
 * Thread: the thread of the application. Callers: gateway/api, gateway/answer.
 */
#ifndef GATEWAY_CONVERSATION_H
#define GATEWAY_CONVERSATION_H

#include <jansson.h>
#include <stdint.h>

#include "base/buf.h"
#include "cache/cache.h"
#include "gateway/conversation/conversation_proc.h"
#include "gateway/exchange/exchange.h"
#include "gateway/config/gw_config.h"

enum { CONVERSATION_MAX_ITEMS = 4096, CONVERSATION_ADD_ITEMS = 20 /* in one request: OpenAI's limit */ };

/* ---- store operations; conversation_answer_read reads the result in done ---- */

struct conversation_ref {
	struct cache_client *cache;
	uint64_t tenant;
	const char *id;
};

void conversation_ask(const struct conversation_ref *c, struct cache_op *op, cache_done *done);
void conversation_take(const struct conversation_ref *c, struct cache_op *op, const char *token, uint64_t lease_ms,
		       const char *response, bool quiet, cache_done *done);
void conversation_let(const struct conversation_ref *c, struct cache_op *op, const char *token, const char *response,
		      cache_done *done);
void conversation_forget(const struct conversation_ref *c, struct cache_op *op, cache_done *done);
void conversation_all(struct cache_client *cache, struct cache_op *op, uint64_t tenant, cache_done *done);

struct conversation_change {
	const char *token; /* of the turn that holds it; NULL: none */
	uint64_t rev;      /* the revision that it replaces; 0: a new conversation */
	const json_t *doc;
	bool bounded; /* the tenant's limits apply; they don't at the end of a turn */
};
/* 0, or SL_ENOMEM: done is not called. */
int conversation_save(const struct conversation_ref *c, const struct gw_config *cfg, struct cache_op *op,
		      const struct conversation_change *change, cache_done *done);

struct conversation_answer {
	int what; /* enum conversation_outcome, or a negative code of the store */
	uint64_t rev, left_us;
	/* Borrowed from the result. */
	const char *doc, *made;
	size_t n_doc, n_made;
};
void conversation_answer_read(const struct cache_result *r, struct conversation_answer *out);

/* ---- the document ---- */

/* items: owned in any case; metadata: borrowed, NULL: none. NULL: no memory. */
json_t *conversation_new(const char *id, json_t *items, const json_t *metadata);
/* NULL: no memory, or not a conversation. */
json_t *conversation_load(const char *bytes, size_t n);
/* {"id","object","created_at","metadata"}; a new reference. */
json_t *conversation_object(const json_t *doc);
/* Gives each item without an id one. 0, SL_ENOMEM. */
int conversation_name_items(json_t *items);
/* Its size as counted by gateway.conversations.bytes. */
size_t conversation_bytes(const json_t *doc);

/* Sends the error response for an outcome other than OK. */
void conversation_refuse(struct exchange *x, const char *id, const char *param, const struct conversation_answer *a);
void conversation_refuse_size(struct exchange *x, const char *param, size_t bytes);

#endif
