/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots of states (kv_states.h) at the ends of nodes: where sequences may go on in models with recurrent layers.
 * Points are snapshots where later prompts are expected to turn off; the others are only there in case. A snapshot is
 * taken over those that go first: others before points, then by their last use.
 */
#include "base/err.h"
#include "engine/kv/prefix_state.h"

enum { EVERY = 32 }; /* pages of a prompt from one snapshot to the next, besides points */

bool prefix_snapshot_rarer(const struct heap_node *a, const struct heap_node *b)
{
	const struct prefix_node *x = heap_entry(a, const struct prefix_node, by_state);
	const struct prefix_node *y = heap_entry(b, const struct prefix_node, by_state);
	if (x->state_point != y->state_point)
		return !x->state_point;
	return x->state_used != y->state_used ? x->state_used < y->state_used : x->depth < y->depth;
}

void prefix_set_states(struct prefix_tree *t, struct kv_states *states) { t->states = states; }

void prefix_state_drop(struct prefix_tree *t, struct prefix_node *n)
{
	if (n->state < 0)
		return;
	heap_remove(&t->snapshots, &n->by_state);
	kv_states_give(t->states, n->state);
	n->state = -1;
}

/* It is used now. */
static void touch(struct prefix_tree *t, struct prefix_node *n, bool point)
{
	heap_remove(&t->snapshots, &n->by_state);
	n->state_used = *t->tick;
	n->state_point = n->state_point || point;
	heap_insert(&t->snapshots, &n->by_state);
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* A path that the tree grows along. */
static bool grows(const struct prefix_tree *t, const struct prefix_path *path)
{
	return t->states != NULL && path->tail != NULL && !path->cut;
}

/* The first of the path's nodes, from this depth on and up to `most`, that another sequence waits for. */
static uint32_t asked(const struct prefix_path *path, uint32_t from, uint32_t most)
{
	for (const struct prefix_node *n = path->claim; n != NULL && n->depth < most; n = n->claim_next)
		if (n->asked && n->depth >= from)
			return n->depth;
	return most;
}

uint32_t prefix_next_snapshot(const struct prefix_tree *t, const struct prefix_path *path, uint32_t n_past)
{
	uint32_t depth = n_past / t->page_tokens + 1;
	if (!grows(t, path))
		return UINT32_MAX;
	if (depth > path->last)
		return depth * t->page_tokens;
	uint32_t next = least(path->last, (depth + EVERY - 1) / EVERY * EVERY);
	if (path->parts >= depth)
		next = least(next, path->parts);
	return asked(path, depth, next) * t->page_tokens;
}

/* A slot for a snapshot; -1: none may go for it. */
static int32_t take(struct prefix_tree *t, bool point)
{
	int32_t slot = kv_states_take(t->states);
	if (slot >= 0 || t->snapshots.top == NULL)
		return slot;
	struct prefix_node *oldest = heap_entry(t->snapshots.top, struct prefix_node, by_state);
	if (oldest->state_point && !point)
		return -1;
	prefix_state_drop(t, oldest);
	return kv_states_take(t->states);
}

int32_t prefix_state_slot(struct prefix_tree *t) { return take(t, true); }

/* A slot with a copy of the row's state; -1: none. */
static int32_t copy_of(struct prefix_tree *t, bool point, int row)
{
	int32_t slot = take(t, point);
	if (slot >= 0 && kv_states_save(t->states, row, slot) != 0) {
		kv_states_give(t->states, slot);
		return -1;
	}
	return slot;
}

static void keep(struct prefix_tree *t, struct prefix_node *n, bool point, int32_t slot)
{
	n->state = slot;
	n->state_used = *t->tick;
	n->state_point = point;
	n->state_shared = false;
	heap_insert(&t->snapshots, &n->by_state);
}

/* Of the row's state, or what is in the slot if that is not -1. Whether the slot is the tree's now. */
static bool snapshot(struct prefix_tree *t, struct prefix_path *path, uint32_t n_past, int row, int32_t slot)
{
	uint32_t depth = n_past / t->page_tokens;
	if (!grows(t, path) || n_past % t->page_tokens != 0 || depth == 0 || path->n_pages != depth)
		return false;
	struct prefix_node *n = path->claim != NULL ? path->claim->parent : path->tail;
	BUG_IF(n->depth != depth, "prefix tree: a path of %u pages is at depth %u", depth, n->depth);
	bool answer = depth > path->last, point = depth >= path->last || depth == path->parts || n->asked;
	if (!point && depth % EVERY != 0)
		return false;
	/* An answer's previous one, unless others have used it. */
	if (path->answer != NULL && !path->answer->state_shared)
		prefix_state_drop(t, path->answer);
	bool there = n->state >= 0;
	path->answer = answer && !there ? n : NULL;
	if (there) {
		n->state_shared = true;
		touch(t, n, point);
		return false;
	}
	slot = slot >= 0 ? slot : copy_of(t, point, row);
	if (slot >= 0)
		keep(t, n, point, slot);
	return slot >= 0;
}

void prefix_snapshot(struct prefix_tree *t, struct prefix_path *path, uint32_t n_past, int row)
{
	(void)snapshot(t, path, n_past, row, -1);
}

void prefix_snapshot_copied(struct prefix_tree *t, struct prefix_path *path, uint32_t n_past, int32_t slot)
{
	if (!snapshot(t, path, n_past, -1, slot))
		kv_states_give(t->states, slot);
}

int32_t prefix_state_copy(struct prefix_tree *t, int row) { return copy_of(t, true, row); }

uint32_t prefix_restore(struct prefix_tree *t, struct prefix_path *path, uint32_t n_past, int row)
{
	struct prefix_node *n = path->tail;
	if (t->states == NULL)
		return n_past;
	while (n != NULL && n->depth > 0 && (n->state < 0 || n->depth * t->page_tokens > n_past))
		n = n->parent;
	if (n == NULL || n->depth == 0 || kv_states_restore(t->states, n->state, row) != 0)
		return 0;
	touch(t, n, true);
	n->state_shared = true;
	return n->depth * t->page_tokens;
}
