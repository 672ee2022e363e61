/* SPDX-License-Identifier: Apache-2.0
 *
 * Window parts: a node's pages of windowed layers. They are in a heap while no sequence holds them: first those that
 * serve no point (prefix_is_point), by their last use. Each point counts itself in the nodes that a hit there needs, so
 * whether a part serves one is a comparison with 0.
 */
#include "base/err.h"
#include "engine/kv/prefix_state.h"

bool prefix_window_rarer(const struct heap_node *a, const struct heap_node *b)
{
	const struct prefix_node *x = heap_entry(a, const struct prefix_node, idle);
	const struct prefix_node *y = heap_entry(b, const struct prefix_node, idle);
	if ((x->serves > 0) != (y->serves > 0))
		return x->serves == 0;
	return x->window_used != y->window_used ? x->window_used < y->window_used : x->depth < y->depth;
}

static void set_idle(struct prefix_tree *t, const struct prefix_node *n, bool idle)
{
	/* Dead parts do not make their slab look used. */
	uint64_t used = n->serves > 0 ? n->window_used : 0;
	t->n_reclaimable += idle ? t->n_windowed : -t->n_windowed;
	for (uint32_t g = t->n_full; g < t->n_groups; g++)
		kv_page_set_idle(t->pool, n->pages[g], idle, used);
}

/* Into and out of the heap, as its key changes. */
static void put(struct prefix_tree *t, struct prefix_node *n)
{
	if (t->n_windowed == 0 || !n->filled || n->users > 0 || !prefix_has_window(t, n) || n->idle.in)
		return;
	heap_insert(&t->idle, &n->idle);
	set_idle(t, n, true);
}

static void take(struct prefix_tree *t, struct prefix_node *n)
{
	if (!n->idle.in)
		return;
	heap_remove(&t->idle, &n->idle);
	set_idle(t, n, false);
}

void prefix_window_came(struct prefix_tree *t, struct prefix_node *n)
{
	n->window_used = *t->tick;
	put(t, n);
}

void prefix_window_drop(struct prefix_tree *t, struct prefix_node *n)
{
	BUG_IF(n->users > 0, "prefix tree: pages of a window in use are dropped");
	take(t, n);
	for (uint32_t g = t->n_full; g < t->n_groups && n->pages[g] >= 0; g++)
		prefix_drop_page(t, n, g);
}

void prefix_window_use(struct prefix_tree *t, struct prefix_node *n)
{
	take(t, n);
	n->users += t->n_windowed > 0;
}

void prefix_window_leave(struct prefix_tree *t, struct prefix_node *n)
{
	BUG_IF(n->users == 0 && t->n_windowed > 0, "prefix tree: a window that no sequence holds is left");
	if (t->n_windowed == 0 || --n->users > 0)
		return;
	n->window_used = *t->tick;
	put(t, n);
}

/* ---- points ---- */

uint32_t prefix_reach(const struct prefix_tree *t, const struct prefix_node *n)
{
	/* One may also go on from within this page. */
	return n->depth - kv_groups_first(t->groups, (n->depth - 1) * t->page_tokens);
}

static void serve(struct prefix_tree *t, struct prefix_node *n, bool more)
{
	for (uint32_t left = prefix_reach(t, n); left > 0; left--, n = n->parent) {
		take(t, n);
		n->serves += more ? 1u : -1u;
		n->window_used = more ? *t->tick : n->window_used;
		put(t, n);
	}
}

static void update(struct prefix_tree *t, struct prefix_node *n, bool was)
{
	if (t->n_windowed > 0 && prefix_is_point(n) != was)
		serve(t, n, !was);
}

void prefix_set_ends(struct prefix_tree *t, struct prefix_node *n, bool ends)
{
	bool was = prefix_is_point(n);
	n->ends = ends;
	update(t, n, was);
}

void prefix_set_children(struct prefix_tree *t, struct prefix_node *n, uint32_t n_children)
{
	bool was = prefix_is_point(n);
	n->n_children = n_children;
	update(t, n, was);
}
