/* SPDX-License-Identifier: Apache-2.0
 *
 * The atomic procedures that keep conversations in the store, in Lua.
 * gateway/conversation/conversation.h is what others use.
 */
#ifndef GATEWAY_CONVERSATION_PROC_H
#define GATEWAY_CONVERSATION_PROC_H

#include "cache/cache.h"

enum {
	CONVERSATION_ID_BYTES = 64,          /* of an id in the directory, with its NUL */
	CONVERSATION_TOKEN_BYTES = 33,       /* of a hold's name, the same */
	CONVERSATION_MADE_BYTES = 256 << 10, /* names of the responses made in one */
	/* The longest hold. One that has longer to go was taken before the store's clock was set back, and is cut to
	   that. */
	CONVERSATION_LEASE_US = 20000000,
};

/* The first value of every answer; what follows on 0. */
enum conversation_outcome {
	CONVERSATION_OK,
	CONVERSATION_GONE,      /* never was, expired, deleted */
	CONVERSATION_HELD,      /* by another request; for so many microseconds */
	CONVERSATION_FULL,      /* too many responses were made in it */
	CONVERSATION_CHANGED,   /* it is not the revision that the caller read */
	CONVERSATION_TOO_MANY,  /* of the tenant */
	CONVERSATION_TOO_LARGE, /* all of the tenant together */
};

/* Keys of each but list: the conversation, the tenant's directory; of list the directory. Arguments →
 * values:
 *   read    –                                                  → revision, document, responses' names
 *   hold    token, lease_us, response's name or "", quiet      → revision, document unless quiet
 *   free    token, response's name or ""                       → (the name is taken back)
 *   put     token or "", revision (0: a new one), document, ttl_ms, free, id, created_s, most, most_bytes
 *                                                              → revision
 *   delete  id                                                 → names
 *   list    –                                                  → lines "id created_s bytes ends_ms\n"
 * A token that holds is needed to change what is held; without one, the revision must be the one that
 * was read. most and most_bytes are the tenant's, 0: not asked. */
extern const struct cache_proc conversation_read, conversation_hold, conversation_free, conversation_put,
    conversation_delete, conversation_list;

/* All procedures of the gateway's own, for cache_create. */
enum { GATEWAY_PROCS = 7 };
extern const struct cache_proc *const gateway_procs[GATEWAY_PROCS];

#endif
