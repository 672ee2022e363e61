/* SPDX-License-Identifier: Apache-2.0
 *
 * What the prefix tree has to do with pages on disk (kv_disk.h): names of nodes, which of them are to be written, pages
 * that come back; and with those of other engines (kv_hand.h). Sinks are only for trees whose layers all keep all
 * positions. Step thread.
 *
 * When a sequence ends, the whole pages of its path are to be written, those before others first, so that a process
 * that dies loses little. A page that leaves the tree unwritten has a last chance in the sink.
 */
#ifndef ENGINE_PREFIX_DISK_H
#define ENGINE_PREFIX_DISK_H

#include "engine/disk/disk_tier.h"
#include "engine/kv/prefix.h"

struct prefix_sink {
	struct disk_key model;
	/* The page leaves the tree and was not written; saved: it was, some time ago. */
	void (*going)(void *ctx, const struct disk_page *p, int32_t page, bool saved);
	void *ctx;
};

/* Whose texts a root has, beside its salt: erased by owner; variant: as in disk_key_root. nameless: what computes them
 * has no digest, so they are never stored. */
struct prefix_origin {
	uint64_t owner;
	struct disk_key variant;
	bool nameless;
};

/* Before any path begins; NULL: none any more. */
void prefix_set_sink(struct prefix_tree *t, const struct prefix_sink *sink);
/* Of roots made from now on. */
void prefix_set_origin(struct prefix_tree *t, const struct prefix_origin *origin);
/* The page to be written next, which counts as written from now on; false: none. *p's tokens are the tree's, until it
 * changes. */
bool prefix_next_unsaved(struct prefix_tree *t, struct disk_page *p, int32_t *page);
/* Keys of the pages from `first` on, of a text of at least first + n pages. */
void prefix_keys(const struct prefix_tree *t, uint64_t salt, struct disk_key variant, const int32_t *tokens,
		 uint32_t first, uint32_t n, struct disk_key *parent, struct disk_key *out);
/* The first n pages of a text, as far as they are there, count as used now. */
void prefix_touch(struct prefix_tree *t, uint64_t salt, const int32_t *tokens, uint32_t n);
/* Pages `first` … first + n - 1 of a text came from elsewhere; saved: from disk, so they need not be written. pages: as a
 * sequence's row, from that index on; where the tree has one already, pages[] gets that. The tree takes a reference to
 * each that it lacks, up to the first that it can't take: the one before it is gone, or a sequence computes it. Returns
 * how many it has now. */
uint32_t prefix_adopt(struct prefix_tree *t, uint64_t salt, const int32_t *tokens, uint32_t first, uint32_t n,
		      int32_t *pages, bool saved);
/* Of the first n pages of a text those that the tree has, up to the first that it lacks, whose window parts may be
 * gone; *n_whole: how many of them from `from` on have all their pages, up to the first that has not. */
uint32_t prefix_held(const struct prefix_tree *t, uint64_t salt, const int32_t *tokens, uint32_t n, uint32_t from,
		     uint32_t *n_whole);
/* No page of this owner, or of all, is written from now on; those that no sequence uses leave the tree. */
void prefix_tree_forget(struct prefix_tree *t, uint64_t owner, bool all);
/* They are in the tree's list of woken waiters from now on. */
void prefix_wake(struct prefix_tree *t, struct list *waiters);

#endif
