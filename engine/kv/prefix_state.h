/* SPDX-License-Identifier: Apache-2.0
 *
 * State shared by the files of the prefix tree: prefix.c has the nodes and the paths of sequences, prefix_windows.c the
 * pages of windowed layers, prefix_states.c snapshots of states, prefix_disk.c pages on disk, prefix_check.c what must
 * hold. Private to engine/kv.
 */
#ifndef ENGINE_PREFIX_STATE_H
#define ENGINE_PREFIX_STATE_H

#include "base/heap.h"
#include "engine/kv/prefix.h"
#include "engine/kv/prefix_disk.h"
#include "engine/kv/prefix_book.h"
#include "engine/sched/idmap.h"

struct prefix_node {
	struct idmap_node index; /* among the nodes by key, or among the roots by salt */
	struct heap_node unused; /* among the unpinned leaves */
	struct heap_node idle;   /* among the window parts that no sequence holds */
	struct prefix_node *parent;
	struct list children, sibling;
	struct list waiters;
	struct prefix_path *claimant;   /* while it is not filled */
	struct prefix_node *claim_next; /* the next node of the same claim, one level deeper */
	uint64_t used, window_used;
	uint32_t pins, depth; /* a root's depth is 0 */
	uint32_t n_children;
	uint32_t users;  /* paths whose sequences hold the window part */
	uint32_t serves; /* how many nodes where a hit is expected need the window part */
	/* A snapshot at its end (prefix_states.c); -1: none. */
	int32_t state;
	struct heap_node by_state;
	uint64_t state_used;
	bool state_point, state_shared; /* a later prompt is expected there; it is not one sequence's alone */
	bool asked;                     /* a sequence waits for it */
	/* Of trees with a tier on disk (prefix_disk.c); a root's key is of the salt. */
	struct disk_key key;
	uint64_t owner;
	struct list unsaved; /* among those to be written */
	bool saved;          /* it was written, or need not be */
	/* It is not written unless a sequence that began later uses it; by the pool's clock; 0: it is */
	uint64_t forgotten;
	bool filled;
	bool ends;      /* a prompt or a finished answer ends in this page */
	int32_t *pages; /* [n_groups], behind tokens: full groups, then windowed ones; -1: not there */
	uint64_t text;  /* digest of the text up to a border in this page, in the book; 0: none */
	uint32_t n_tokens;
	int32_t tokens[];
};

struct prefix_tree {
	struct kv_pool *pool;
	const struct kv_groups *groups;
	uint32_t page_tokens, n_groups, n_full, n_windowed;
	uint32_t row; /* numbers of a sequence's row for each group */
	struct idmap nodes, roots;
	struct heap unused, idle, snapshots;
	struct kv_states *states; /* NULL: no layer keeps one */
	struct list woken;
	uint64_t *tick;               /* the pool's clock */
	struct prefix_node **of_page; /* by page number: its node */
	prefix_more_fn *more;         /* frees pages for a pool that has none left; may be NULL */
	void *more_ctx;
	uint32_t n_pages, n_reclaimable;
	uint32_t n_bare;  /* filled nodes without a page, of models whose layers are all windowed */
	uint64_t *ghosts; /* [N_GHOSTS] keys of evicted nodes */
	struct prefix_sink sink;
	bool has_sink;
	struct list unsaved; /* the one to be written first is the first */
	struct prefix_origin origin;
	struct prefix_book *book; /* NULL: nothing is published */
};

/* A page of a sequence's row. */
static inline int32_t *prefix_entry(const struct prefix_tree *t, int32_t *pages, uint32_t group, uint32_t index)
{
	return &pages[(size_t)group * t->row + index];
}

/* The node holds a reference to the page, or gives it up. */
void prefix_add_page(struct prefix_tree *t, struct prefix_node *n, uint32_t group, int32_t page);
void prefix_drop_page(struct prefix_tree *t, struct prefix_node *n, uint32_t group);

/* ---- prefix.c, for prefix_disk.c ---- */

struct prefix_node *prefix_root(struct prefix_tree *t, uint64_t salt, bool make);
/* NULL: none. */
struct prefix_node *prefix_child(const struct prefix_tree *t, const struct prefix_node *parent, const int32_t *tokens);
/* A child with these pages, as a sequence has them of that index; where the tree has some of them, pages[] gets those.
 * NULL: no memory, another text has its key, or a sequence computes it. */
struct prefix_node *prefix_place(struct prefix_tree *t, struct prefix_node *parent, const int32_t *tokens,
				 int32_t *pages, uint32_t index);
/* An unused leaf goes. */
void prefix_drop_leaf(struct prefix_tree *t, struct prefix_node *n);
/* Counts as used now, with those above it. */
void prefix_touch_node(struct prefix_tree *t, struct prefix_node *n);

/* ---- prefix_disk.c ---- */

/* A node was made; its parent and tokens are set. */
void prefix_name_node(const struct prefix_tree *t, struct prefix_node *n);
/* A sequence that began then ended here: it leaves pages that are worth writing. */
void prefix_left_at(struct prefix_tree *t, struct prefix_node *n, uint64_t began);
/* A filled node of a whole page is about to give up its page. */
void prefix_going(struct prefix_tree *t, struct prefix_node *n);

/* ---- prefix_states.c ---- */

bool prefix_snapshot_rarer(const struct heap_node *a, const struct heap_node *b);
void prefix_state_drop(struct prefix_tree *t, struct prefix_node *n);
/* Whether a sequence may go on behind n. */
static inline bool prefix_has_state(const struct prefix_tree *t, const struct prefix_node *n)
{
	return t->states == NULL || n->depth == 0 || n->state >= 0;
}

/* ---- prefix_windows.c ---- */

bool prefix_window_rarer(const struct heap_node *a, const struct heap_node *b);
static inline bool prefix_has_window(const struct prefix_tree *t, const struct prefix_node *n)
{
	return t->n_windowed == 0 || n->pages[t->n_full] >= 0;
}
/* Whether nobody holds the window part, and it is to go before any whole node. */
static inline bool prefix_window_dead(const struct prefix_node *n) { return n->idle.in && n->serves == 0; }
/* The window part is there since now, without users. */
void prefix_window_came(struct prefix_tree *t, struct prefix_node *n);
/* It goes: its pages return to the pool. It has no users. */
void prefix_window_drop(struct prefix_tree *t, struct prefix_node *n);
/* A sequence holds it, or no longer. */
void prefix_window_use(struct prefix_tree *t, struct prefix_node *n);
void prefix_window_leave(struct prefix_tree *t, struct prefix_node *n);
/* The number of nodes, n and those above it, whose window parts a hit at n needs. */
uint32_t prefix_reach(const struct prefix_tree *t, const struct prefix_node *n);
/* Whether hits are expected at n: texts part behind it, or end in it. */
static inline bool prefix_is_point(const struct prefix_node *n)
{
	return n->depth > 0 && (n->ends || n->n_children > 1);
}
void prefix_set_ends(struct prefix_tree *t, struct prefix_node *n, bool ends);
void prefix_set_children(struct prefix_tree *t, struct prefix_node *n, uint32_t n_children);

#endif
