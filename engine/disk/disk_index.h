/* SPDX-License-Identifier: Apache-2.0
 *
 * Which pages are stored where, and which of them goes first. Pure: no files, no clock, no lock; the caller has one.
 *
 *   lru   the page whose last use is longest ago (when it was written, until its first use)
 *   lfu   the page used least often. A page that comes is worth as much as the last one that went, and its uses
 *         besides (LFU with dynamic aging: Arlitt et al., "Evaluating Content Management Techniques for Web Proxy
 *         Caches", 2000), so what was popular once does not stay for ever
 *   ttl   the page that was written first
 *
 * Of pages that were used together the deepest goes first: a page without the pages before it is of no use.
 */
#ifndef ENGINE_DISK_INDEX_H
#define ENGINE_DISK_INDEX_H

#include "base/heap.h"
#include "base/list.h"
#include "engine/disk/disk_key.h"
#include "engine/sched/idmap.h"

enum disk_policy { DISK_LRU, DISK_LFU, DISK_TTL, DISK_POLICIES };

struct disk_segment;

/* A stored page. The first members are the caller's, constant while it is in the index but for segment and at. */
struct disk_entry {
	struct disk_key key;
	struct disk_segment *segment;
	struct list in_segment;
	uint64_t at, payload_bytes;
	uint64_t owner, created_s;
	uint64_t depth;
	bool damaged; /* it is not found any more, and goes soon */

	/* The index's. */
	struct idmap_node by_key;
	struct heap_node by_worth;
	struct list by_age; /* oldest first */
	uint64_t came, used, n_uses;
	double worth; /* lfu */
};

struct disk_index {
	struct idmap entries;
	struct heap by_worth;
	struct list by_age;
	enum disk_policy policy;
	uint64_t clock;
	double floor; /* lfu: what the last one that went was worth */
};

/* 0 or SL_ENOMEM. */
int disk_index_init(struct disk_index *x, enum disk_policy policy);
/* It must be empty. */
void disk_index_dispose(struct disk_index *x);
/* False: there is a page of that key, or of one that differs in its upper half only. Fast if entries come in about the
 * order of created_s. */
bool disk_index_add(struct disk_index *x, struct disk_entry *e);
void disk_index_remove(struct disk_index *x, struct disk_entry *e);
/* NULL: there is none. */
struct disk_entry *disk_index_find(const struct disk_index *x, struct disk_key key);
/* Several pages that are used together get the same time if only the first call says `begin`. */
void disk_index_use(struct disk_index *x, struct disk_entry *e, bool begin);
/* The page that goes first; NULL: there is none. */
struct disk_entry *disk_index_worst(const struct disk_index *x);
/* It makes room for another one: lfu remembers its worth. The caller removes it. */
void disk_index_evicting(struct disk_index *x, const struct disk_entry *e);
struct disk_entry *disk_index_oldest(const struct disk_index *x);
const char *disk_policy_name(enum disk_policy p);

#endif
