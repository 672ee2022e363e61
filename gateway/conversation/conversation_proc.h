/* SPDX-License-Identifier: Apache-2.0
 *
 * The store's atomic procedures for conversations, in Lua. For conversation.c and cache_create.
 */
#ifndef GATEWAY_CONVERSATION_PROC_H
#define GATEWAY_CONVERSATION_PROC_H

#include "cache/cache.h"

enum {
	CONVERSATION_ID_BYTES = 64,          /* of an id, with its NUL */
	CONVERSATION_TOKEN_BYTES = 33,       /* of a hold's token, with its NUL */
	CONVERSATION_MADE_BYTES = 256 << 10, /* ids of a conversation's responses */
	/* The longest lease. A longer one means that the store's clock was set back; it is cut to this. */
	CONVERSATION_LEASE_US = 20000000,
};

/* The first value of every result; more values follow on 0. */
enum conversation_outcome {
	CONVERSATION_OK,
	CONVERSATION_GONE,      /* unknown, expired or deleted */
	CONVERSATION_HELD,      /* by another request; the next value: for how many microseconds */
	CONVERSATION_FULL,      /* it has too many responses */
	CONVERSATION_CHANGED,   /* the revision differs from what the caller read */
	CONVERSATION_TOO_MANY,  /* the tenant has too many */
	CONVERSATION_TOO_LARGE, /* the tenant's are too large in total */
};

/* Keys: the conversation and the tenant's directory; of list, only the directory. Arguments → values:
 *   read    –                                                  → revision, document, responses' ids
 *   hold    token, lease_us, response's id or "", quiet        → revision, document unless quiet
 *   free    token, response's id or "" (removed again)         → –
 *   put     token or "", revision (0: a new one), document, ttl_ms, free, id, created_s, most, most_bytes
 *                                                              → revision
 *   delete  id                                                 → responses' ids
 *   list    –                                                  → lines "id created_s bytes ends_ms\n"
 * Only the holder's token can change a held conversation. Without a token, the revision must be the current one. most
 * and most_bytes: the tenant's limits, 0: none. */
extern const struct cache_proc conversation_read, conversation_hold, conversation_free, conversation_put,
    conversation_delete, conversation_list;

#endif
