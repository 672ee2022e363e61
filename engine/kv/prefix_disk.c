/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "engine/kv/prefix_state.h"

void prefix_set_sink(struct prefix_tree *t, const struct prefix_sink *sink)
{
	BUG_IF(sink != NULL && (t->n_full != 1 || t->n_windowed > 0 || t->states != NULL),
	       "prefix tree: pages of %u groups on disk", t->n_groups);
	t->has_sink = sink != NULL;
	if (sink != NULL)
		t->sink = *sink;
}

void prefix_set_origin(struct prefix_tree *t, const struct prefix_origin *origin) { t->origin = *origin; }

void prefix_wake(struct prefix_tree *t, struct list *waiters) { list_append(&t->woken, waiters); }

/* ---- names ---- */

void prefix_name_node(const struct prefix_tree *t, struct prefix_node *n)
{
	if (!t->has_sink)
		return;
	if (n->parent == NULL) {
		n->owner = t->origin.owner;
		n->forgotten = t->origin.nameless ? UINT64_MAX : 0;
		n->key = disk_key_root(t->sink.model, t->origin.variant, n->index.key);
		return;
	}
	n->owner = n->parent->owner;
	n->forgotten = n->parent->forgotten;
	n->key = disk_key_next(n->parent->key, n->tokens, t->page_tokens);
}

void prefix_keys(const struct prefix_tree *t, uint64_t salt, struct disk_key variant, const int32_t *tokens,
		 uint32_t first, uint32_t n, struct disk_key *parent, struct disk_key *out)
{
	struct disk_key at = disk_key_root(t->sink.model, variant, salt);
	for (uint32_t i = 0; i < first + n; i++) {
		if (i == first)
			*parent = at;
		at = disk_key_next(at, tokens + (size_t)i * t->page_tokens, t->page_tokens);
		if (i >= first)
			out[i - first] = at;
	}
}

static struct disk_page page_of(const struct prefix_tree *t, const struct prefix_node *n)
{
	return (struct disk_page){.model = t->sink.model,
				  .key = n->key,
				  .parent = n->parent->key,
				  .tokens = n->tokens,
				  .n_tokens = n->n_tokens,
				  .depth = n->depth,
				  .owner = n->owner};
}

/* ---- to the disk ---- */

static bool to_be_written(const struct prefix_node *n)
{
	return n->filled && !n->saved && n->forgotten == 0 && list_empty(&n->unsaved);
}

void prefix_left_at(struct prefix_tree *t, struct prefix_node *n, uint64_t began)
{
	struct list path;
	if (!t->has_sink)
		return;
	list_init(&path);
	for (; n->depth > 0; n = n->parent) {
		if (n->forgotten < began)
			n->forgotten = 0;
		if (to_be_written(n))
			list_push_front(&path, &n->unsaved);
	}
	list_append(&t->unsaved, &path);
}

bool prefix_next_unsaved(struct prefix_tree *t, struct disk_page *p, int32_t *page)
{
	if (list_empty(&t->unsaved))
		return false;
	struct prefix_node *n = list_entry(t->unsaved.next, struct prefix_node, unsaved);
	list_remove(&n->unsaved);
	n->saved = true;
	*p = page_of(t, n);
	*page = n->pages[0];
	return true;
}

void prefix_going(struct prefix_tree *t, struct prefix_node *n)
{
	list_remove(&n->unsaved);
	if (!t->has_sink || n->forgotten > 0)
		return;
	const struct disk_page p = page_of(t, n);
	t->sink.going(t->sink.ctx, &p, n->pages[0], n->saved);
}

/* ---- from the disk ---- */

void prefix_touch(struct prefix_tree *t, uint64_t salt, const int32_t *tokens, uint32_t n)
{
	struct prefix_node *at = prefix_root(t, salt, false), *next;
	for (uint32_t i = 0; at != NULL && i < n; i++, at = next)
		if ((next = prefix_child(t, at, tokens + (size_t)i * t->page_tokens)) == NULL)
			break;
	++*t->tick;
	if (at != NULL && at->depth > 0)
		prefix_touch_node(t, at);
}

uint32_t prefix_adopt(struct prefix_tree *t, uint64_t salt, const int32_t *tokens, uint32_t first, uint32_t n,
		      int32_t *pages, bool saved)
{
	struct prefix_node *at = n > 0 ? prefix_root(t, salt, first == 0) : NULL;
	++*t->tick;
	for (uint32_t i = 0; at != NULL && i < first + n; i++) {
		const int32_t *its = tokens + (size_t)i * t->page_tokens;
		struct prefix_node *next = prefix_child(t, at, its);
		bool made = next == NULL && i >= first;
		if (i >= first)
			next = prefix_place(t, at, its, pages, i - first);
		if (next == NULL || !next->filled)
			break;
		next->saved = made ? saved : next->saved;
		at = next;
	}
	/* A root that got nothing below it is of no use. */
	if (at != NULL && at->depth == 0 && at->n_children == 0 && at->pins == 0)
		prefix_touch_node(t, at);
	return at != NULL && at->depth > first ? at->depth - first : 0;
}

uint32_t prefix_held(const struct prefix_tree *t, uint64_t salt, const int32_t *tokens, uint32_t n, uint32_t from,
		     uint32_t *n_whole)
{
	struct idmap_node *root = idmap_find(&t->roots, salt);
	const struct prefix_node *at = root != NULL ? idmap_entry(root, struct prefix_node, index) : NULL;
	uint32_t held = 0;
	bool whole = true;
	*n_whole = 0;
	for (; at != NULL && held < n; held++) {
		at = prefix_child(t, at, tokens + (size_t)held * t->page_tokens);
		if (at == NULL || !at->filled)
			break;
		whole = held < from || (whole && prefix_has_window(t, at));
		*n_whole += held >= from && whole;
	}
	return held;
}

/* ---- forgetting ---- */

/* Marks n and all below it; drops those that are unused, from the deepest up. */
static void forget_below(struct prefix_tree *t, struct prefix_node *root)
{
	struct prefix_node *n = root;
	for (;;) {
		while (!list_empty(&n->children))
			n = list_entry(n->children.next, struct prefix_node, sibling);
		/* n is a leaf, and so far none of its siblings before it stays. */
		for (;;) {
			struct prefix_node *up = n->parent;
			struct list *next = n->sibling.next;
			if (n == root)
				return;
			n->forgotten = n->forgotten == UINT64_MAX ? UINT64_MAX : *t->tick;
			n->saved = false;
			list_remove(&n->unsaved);
			bool goes = n->filled && n->pins == 0 && list_empty(&n->children);
			bool last = next == &up->children;
			/* The root goes with its last child. */
			bool ends = goes && up == root && last && root->pins == 0 && root->n_children == 1;
			if (goes)
				prefix_drop_leaf(t, n);
			if (ends)
				return;
			if (!last) {
				n = list_entry(next, struct prefix_node, sibling);
				break;
			}
			n = up;
		}
	}
}

void prefix_tree_forget(struct prefix_tree *t, uint64_t owner, bool all)
{
	++*t->tick;
	for (size_t i = 0; t->has_sink && i < t->roots.n_slots; i++) {
		struct idmap_node *next, *it = t->roots.slots[i];
		for (; it != NULL; it = next) {
			next = it->next;
			struct prefix_node *root = idmap_entry(it, struct prefix_node, index);
			if (all || root->owner == owner)
				forget_below(t, root);
		}
	}
}
