/* SPDX-License-Identifier: Apache-2.0
 *
 * What the C twin of a procedure may do: read and edit the call's records in memory, on the store's
 * thread, with nobody else there. A record is bytes that the twin lays out as it likes (8-byte aligned).
 * Twins must fail before they change anything: edit every record to its size first, then write.
 */
#ifndef CACHE_TWIN_H
#define CACHE_TWIN_H

#include "cache/cache.h"

struct cache_twin {
	uint64_t now_us;
	uint32_t share; /* divide limits by it: 1, or n_gateways in place of a failing Redis */
	size_t n_keys, n_args;
	const struct cache_value *args;
	/* private */
	struct mem_store *store;
	struct cache_work *work;
};

/* Key number i's record and its size, NULL when absent. Valid until that key is edited or removed. */
void *cache_twin_find(struct cache_twin *t, size_t i, size_t *n);
/* The record with exactly n bytes (not 0; new ones zeroed), made when absent. It lives ttl_ms from now (0:
 * for ever) or as long as it would have, whichever is longer. NULL: exhausted, nothing changed. */
void *cache_twin_edit(struct cache_twin *t, size_t i, size_t n, uint64_t ttl_ms);
void cache_twin_remove(struct cache_twin *t, size_t i);
/* Appends to the answer. 0, SL_ELIMIT. Bytes are copied: SL_ENOMEM. */
int cache_twin_answer(struct cache_twin *t, int64_t i);
int cache_twin_answer_bytes(struct cache_twin *t, const void *p, size_t n);

#endif
