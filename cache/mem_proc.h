/* SPDX-License-Identifier: Apache-2.0
 *
 * What the C counterpart of a procedure may do: read and edit the call's records in memory, on the store's
 * thread, with nobody else there. A record is bytes that the counterpart lays out as it likes (8-byte aligned).
 * Twins must fail before they change anything: edit every record to its size first, then write.
 */
#ifndef CACHE_MEM_PROC_H
#define CACHE_MEM_PROC_H

#include "cache/cache.h"

struct mem_proc {
	uint64_t now_us;
	uint32_t share; /* divide limits by it: 1, or n_gateways in place of a failing Redis */
	size_t n_keys, n_args;
	const struct cache_value *args;
	/* private */
	struct mem_store *store;
	struct cache_work *work;
};

/* Key number i's record and its size, NULL when absent. Valid until that key is edited or removed. */
void *mem_proc_find(struct mem_proc *t, size_t i, size_t *n);
/* The record with exactly n bytes (not 0; new ones zeroed), made when absent. It lives ttl_ms from now (0:
 * for ever) or as long as it would have, whichever is longer. NULL: exhausted, nothing changed. */
void *mem_proc_edit(struct mem_proc *t, size_t i, size_t n, uint64_t ttl_ms);
void mem_proc_remove(struct mem_proc *t, size_t i);
/* Appends to the answer. 0, SL_ELIMIT. Bytes are copied: SL_ENOMEM. */
int mem_proc_answer(struct mem_proc *t, int64_t i);
int mem_proc_answer_bytes(struct mem_proc *t, const void *p, size_t n);

#endif
