/* SPDX-License-Identifier: Apache-2.0
 *
 * A conversation: items that turns are added to, of a tenant, in the store. The document is JSON
 *
 *   {"id":"conv_…", "created_at", "metadata":{…}, "items":[normal items (response_items.h), each with an id]}
 *
 * and is written as a whole: an answer needs all of it anyway. conversation_proc.c serialises changes;
 * conversation_hold.h holds a conversation while its answer is generated.
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

enum { CONVERSATION_MAX_ITEMS = 4096, CONVERSATION_ADD_ITEMS = 20 /* at once, as OpenAI has it */ };

/* ---- operations: done gets what conversation_answer_read reads ---- */

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
	const char *token; /* NULL: it is not held, and is */
	uint64_t rev;      /* 0: a new one */
	const json_t *doc;
	bool bounded; /* by what its tenant may keep; not so the end of a turn */
};
/* 0, or SL_ENOMEM and then done does not come. */
int conversation_save(const struct conversation_ref *c, const struct gw_config *cfg, struct cache_op *op,
		      const struct conversation_change *change, cache_done *done);

struct conversation_answer {
	int what; /* enum conversation_outcome, or a negative code of the store */
	uint64_t rev, left_us;
	/* Borrowed, as the result is. */
	const char *doc, *made;
	size_t n_doc, n_made;
};
void conversation_answer_read(const struct cache_result *r, struct conversation_answer *out);

/* ---- the document ---- */

/* items: normal ones, taken in any case; metadata borrowed, NULL for none. NULL: no memory. */
json_t *conversation_new(const char *id, json_t *items, const json_t *metadata);
/* NULL: no memory, or nonsense. */
json_t *conversation_load(const char *bytes, size_t n);
/* {"id","object","created_at","metadata"}; a new reference. */
json_t *conversation_object(const json_t *doc);
/* Each item without an id gets one. 0, SL_ENOMEM. */
int conversation_name_items(json_t *items);
/* How many bytes of the document's bound it takes. */
size_t conversation_bytes(const json_t *doc);

/* Answers x for an outcome other than OK. */
void conversation_refuse(struct exchange *x, const char *id, const char *param, const struct conversation_answer *a);
void conversation_refuse_size(struct exchange *x, const char *param, size_t bytes);

#endif
