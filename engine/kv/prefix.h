/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix tree: which pages hold the keys and values of which tokens, so that a prompt whose
 * beginning was computed before is not computed again (RadixAttention: Zheng et al., "SGLang:
 * Efficient Execution of Structured Language Model Programs", 2024).
 *
 * A node is a page of text: the path from the root is the text before it, and its tokens are those in the page. It has
 * a page of the pool for each group of layers (kv_groups.h). The tree holds one reference to every page. Sequences pin
 * the deepest node of their path; unpinned nodes are evicted when pages are short, the least recently used leaf first.
 * Each salt has its own root, so a tenant cannot learn by timing what another has sent.
 *
 * A node's pages of windowed groups, its window part, may be missing. A hit of d pages needs the full part of all d
 * nodes and the window part of those that a row behind them sees; a common part of one more page needs both of its
 * parts. Sequences hold the window parts that their next row sees, so others are reclaimable although their nodes are
 * pinned. Which parts stay under pressure:
 *  - A part serves a point if a hit there needs it. Points are where a prompt or a finished answer ends, and where
 *    texts part: there later prompts turn off.
 *  - A part that serves none goes first, before any whole node; among such parts the one that was used longest ago.
 *  - One that serves a point counts as used when it came to be one, so it goes with its node. While that stays because
 *    something below it is used, the part goes in its turn by last use.
 *
 * Where layers keep a state, a hit also needs a snapshot of the states at its end, and there are no common parts of a
 * page. Steps end where a snapshot is taken (prefix_next_snapshot), which is at these ends of pages:
 *  - the last one of a prompt, and the last one so far of an answer, which replaces the one before;
 *  - where a prompt found nodes but no snapshot: texts part there; and where another sequence waits;
 *  - every 32nd of a prompt, as far as there is room.
 * A snapshot goes with its node, or when another needs its slot: those of the last kind first, then by last use.
 *
 * A starting sequence claims nodes for the pages of its prompt that it will compute. Another sequence that needs the
 * same pages waits for them (pending) instead of computing them.
 *
 * One thread (the step thread). Pages are only copied here, never read or written otherwise.
 */
#ifndef ENGINE_PREFIX_H
#define ENGINE_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"
#include "engine/kv/kv.h"
#include "engine/kv/kv_states.h"

struct prefix_tree;
struct prefix_node;

/* A sequence's position in the tree. All zero: none. */
struct prefix_path {
	struct prefix_node *tail;   /* pinned: the deepest node, filled or claimed */
	struct prefix_node *claim;  /* its first claimed node that is not filled; NULL: none */
	uint32_t n_pages;           /* the sequence's page indices that the tree has: 0 … n_pages - 1 */
	struct prefix_node *passed; /* the node of index n_passed - 1, or the root */
	uint32_t n_passed;          /* of n_pages: those whose window part the sequence no longer holds */
	uint32_t parts;             /* pages that the tree had as the sequence began, if more than it could use */
	struct prefix_node *answer; /* with the last snapshot of its answer */
	uint32_t last;              /* the index where the sequence ended as it began */
	uint64_t began;             /* by the pool's clock */
	bool cut;                   /* the path ended early (out of memory): nothing more is added */
};

/* A waiter for a claimed node. */
struct prefix_waiter {
	struct list link; /* in a node's list of waiters, then in the tree's woken list */
};

enum prefix_miss {
	PREFIX_MISS_NONE,    /* everything reusable is reused */
	PREFIX_MISS_NEW,     /* the next page is unknown */
	PREFIX_MISS_EVICTED, /* it was evicted, or the window before it, or there is no snapshot of the states */
	PREFIX_MISS_SHORT,   /* the prompt has no full page */
};

struct prefix_match {
	uint32_t n_tokens;           /* reusable tokens: full pages, and the common part of one more */
	uint32_t n_pages;            /* page indices: whole ones */
	uint32_t n_unpinned;         /* pages among them that stop being reclaimable once this sequence starts */
	struct prefix_node *pending; /* the deepest page being computed now; NULL: none */
	enum prefix_miss miss;
};

/* 0 or SL_ENOMEM. The pool must outlive the tree. row: a sequence's `pages` below are [n_groups][row] page numbers by
 * index; those of a windowed group that it does not hold are -1. */
int prefix_create(struct kv_pool *pool, uint32_t row, struct prefix_tree **out);
/* Frees all pages. No path may be in use; BUG otherwise. */
void prefix_destroy(struct prefix_tree *t);

/* What the tree has of the first n tokens. Changes nothing. */
void prefix_lookup(const struct prefix_tree *t, uint64_t salt, const int32_t *tokens, uint32_t n,
		   struct prefix_match *out);

/* Starts a sequence of n tokens. Pins what exists of the first n - 1 (the last one's row must be computed), fills
 * pages[] with it (one reference each; a partial page is copied to a new one; of windowed groups from path->n_passed
 * on) and claims the full pages of the first n_claim tokens. Returns the number of tokens that need not be computed;
 * *n_pages indices of pages[] are filled. Running out of memory only costs reuse. */
uint32_t prefix_begin(struct prefix_tree *t, uint64_t salt, const int32_t *tokens, uint32_t n, uint32_t n_claim,
		      struct prefix_path *path, int32_t *pages, uint32_t *n_pages);
/* The first n_past tokens are now in pages[]. The tree takes the full pages too; where it already has one with the same
 * tokens, pages[] gets that one. */
void prefix_computed(struct prefix_tree *t, struct prefix_path *path, const int32_t *tokens, uint32_t n_past,
		     int32_t *pages);
/* The sequence is about to give up its pages of windowed groups before index `first`. */
void prefix_pass(struct prefix_tree *t, struct prefix_path *path, const int32_t *tokens, uint32_t first);
/* ---- models with states (kv_states.h): one for each row ---- */

/* Before any path begins. states must outlive the tree. */
void prefix_set_states(struct prefix_tree *t, struct kv_states *states);
/* Where the sequence, which has computed n_past tokens, next takes a snapshot: no step may go beyond. UINT32_MAX:
 * nowhere. */
uint32_t prefix_next_snapshot(const struct prefix_tree *t, const struct prefix_path *path, uint32_t n_past);
/* After prefix_computed of the same n_past, of which the row has the state: takes a snapshot if one is due. */
void prefix_snapshot(struct prefix_tree *t, struct prefix_path *path, uint32_t n_past, int row);
/* The same of a copy of that state in a slot (prefix_state_copy), which it takes over. */
void prefix_snapshot_copied(struct prefix_tree *t, struct prefix_path *path, uint32_t n_past, int32_t slot);
/* The row gets the last state that the path has of at most n_past tokens. Returns their number, 0: it begins anew;
 * n_past where no layer keeps a state. */
uint32_t prefix_restore(struct prefix_tree *t, struct prefix_path *path, uint32_t n_past, int row);

/* A slot for a copy of a row's state, which a snapshot gives up if none is free; -1: there is none. It is given back by
 * kv_states_give. */
int32_t prefix_state_slot(struct prefix_tree *t);
/* The same with a copy of the row's state in it, after all steps issued so far. */
int32_t prefix_state_copy(struct prefix_tree *t, int row);

/* Ends the sequence (it still owns its references to pages[]). A last page that is not full is kept for a sequence that
 * continues from there. Waiters for its claims are woken. */
void prefix_end(struct prefix_tree *t, struct prefix_path *path, const int32_t *tokens, uint32_t n_past,
		int32_t *pages);

/* Moves w to the woken list when the node is filled or abandoned. */
void prefix_await(struct prefix_node *node, struct prefix_waiter *w);
/* The next woken waiter; NULL: none. A waiter that no longer waits removes itself from its list. */
struct prefix_waiter *prefix_woken(struct prefix_tree *t);
/* Pages of the path that no other sequence uses. */
uint32_t prefix_n_exclusive(const struct prefix_tree *t, const struct prefix_path *path);
/* Page indices of the sequence, from the first on, whose full parts other sequences use. */
uint32_t prefix_n_shared(const struct prefix_path *path);
/* Pages that the path pins but its sequence does not hold yet, because another computed them first. *at begins with
 * zeros; -1: no more. */
struct prefix_pinned {
	const struct prefix_node *node;
	uint32_t group;
};
int32_t prefix_pinned_page(const struct prefix_tree *t, const struct prefix_path *path, struct prefix_pinned *at);
/* The path that claimed a pending node, as given to prefix_begin. */
struct prefix_path *prefix_claimant(const struct prefix_node *pending);

/* Pages that prefix_evict can free. */
uint32_t prefix_n_reclaimable(const struct prefix_tree *t);
uint32_t prefix_n_pages(const struct prefix_tree *t);
/* Returns the pages of a leaf or of a window part to the pool, in the order above; false if every page is in use. */
bool prefix_evict(struct prefix_tree *t);
/* Releases the page with its window part, or else with its node and everything below it, none of which may be in use.
 * No effect on a page that is not in the tree. */
void prefix_evict_page(struct prefix_tree *t, int32_t page);
/* When the page that prefix_evict would free was last used, by the pool's clock; 0: it serves no point; UINT64_MAX:
 * none. */
uint64_t prefix_oldest(const struct prefix_tree *t);
/* Called for pages before one is evicted because the pool has none left; true: it has some. */
typedef bool prefix_more_fn(void *ctx);
void prefix_set_more(struct prefix_tree *t, prefix_more_fn *more, void *ctx);
/* Ensures that a page is free. */
bool prefix_room(struct prefix_tree *t);
/* kv_page_alloc, evicting if the pool is empty. SL_ELIMIT. */
int prefix_page_alloc(struct prefix_tree *t, int32_t *out);

void prefix_validate(const struct prefix_tree *t); /* BUG on a broken invariant */

#endif
