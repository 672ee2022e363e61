/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "engine/kv/prefix_state.h"

struct check {
	const struct prefix_tree *t;
	uint32_t n_pages, n_reclaimable, n_unused, n_idle, n_bare, n_snapshots;
	uint64_t serves, reach; /* as the nodes count them, and as the points do */
};

static void check_pages(struct check *c, const struct prefix_node *n)
{
	const struct prefix_tree *t = c->t;
	bool window = t->n_windowed > 0 && n->pages[t->n_full] >= 0;
	for (uint32_t g = 0; g < t->n_groups; g++) {
		bool there = n->filled && (g < t->n_full || window);
		BUG_IF((n->pages[g] >= 0) != there, "prefix tree: a node has some pages of a part");
		BUG_IF(there && t->of_page[n->pages[g]] != n, "prefix tree: page %d is another node's", n->pages[g]);
		c->n_pages += there;
	}
	BUG_IF(n->users > 0 && !window, "prefix tree: a window part in use is missing");
	BUG_IF(n->users > 0 && n->pins == 0, "prefix tree: a window part in use, of a node that is not pinned");
	BUG_IF(n->idle.in != (window && n->users == 0), "prefix tree: a window part is in the wrong heap");
	BUG_IF(n->by_state.in != (n->state >= 0), "prefix tree: a snapshot is in the wrong heap");
	BUG_IF(n->state >= 0 && (!n->filled || n->n_tokens < t->page_tokens), "prefix tree: a snapshot within a page");
	c->n_snapshots += n->state >= 0;
	c->n_reclaimable += n->filled && n->pins == 0 ? t->n_full : 0;
	c->n_reclaimable += n->idle.in ? t->n_windowed : 0;
	c->n_idle += n->idle.in;
	c->n_bare += n->filled && t->n_full == 0 && !window;
}

static void check_node(struct check *c, const struct prefix_node *n)
{
	uint32_t pinned = 0, below = 0;
	list_each(it, &n->children) {
		const struct prefix_node *child = list_entry(it, struct prefix_node, sibling);
		BUG_IF(child->parent != n || child->depth != n->depth + 1,
		       "prefix tree: a child with the wrong parent or depth");
		BUG_IF(n->depth > 0 && !n->filled && child->filled, "prefix tree: a filled page below one that is not");
		pinned += child->pins > 0;
		below++;
	}
	BUG_IF(n->n_children != below, "prefix tree: %u children of %u", below, n->n_children);
	BUG_IF(n->pins < pinned, "prefix tree: %u pins, %u pinned children", n->pins, pinned);
	BUG_IF(n->depth > 0 && n->n_tokens < c->t->page_tokens && !list_empty(&n->children),
	       "prefix tree: a page that is not full has children");
	bool evictable = n->filled && n->pins == 0 && list_empty(&n->children);
	BUG_IF(n->unused.in != evictable, "prefix tree: a leaf is on the wrong list");
	BUG_IF(n->depth > 0 && !n->filled && n->claimant == NULL,
	       "prefix tree: a page is neither filled nor being computed");
	check_pages(c, n);
	c->n_unused += n->unused.in;
	c->serves += n->serves;
	c->reach += c->t->n_windowed > 0 && prefix_is_point(n) ? prefix_reach(c->t, n) : 0;
}

void prefix_validate(const struct prefix_tree *t)
{
	struct check c = {.t = t};
	for (size_t i = 0; i < t->roots.n_slots; i++) {
		for (struct idmap_node *r = t->roots.slots[i]; r != NULL; r = r->next) {
			/* Depth first without a stack: down, then to the next sibling of an ancestor. */
			const struct prefix_node *root = idmap_entry(r, struct prefix_node, index);
			const struct prefix_node *n = root;
			BUG_IF(n->pins == 0 && list_empty(&n->children), "prefix tree: an unneeded root");
			while (n != NULL) {
				check_node(&c, n);
				if (!list_empty(&n->children)) {
					n = list_entry(n->children.next, struct prefix_node, sibling);
					continue;
				}
				while (n != root && n->sibling.next == &n->parent->children)
					n = n->parent;
				n = n != root ? list_entry(n->sibling.next, struct prefix_node, sibling) : NULL;
			}
		}
	}
	BUG_IF(c.n_pages != t->n_pages || c.n_reclaimable != t->n_reclaimable || c.n_bare != t->n_bare,
	       "prefix tree: %u pages, %u reclaimable, %u nodes without any; counted %u, %u, %u", c.n_pages,
	       c.n_reclaimable, c.n_bare, t->n_pages, t->n_reclaimable, t->n_bare);
	BUG_IF(c.n_unused != t->unused.n || c.n_idle != t->idle.n,
	       "prefix tree: %u leaves, %u window parts; counted %zu, %zu", c.n_unused, c.n_idle, t->unused.n,
	       t->idle.n);
	uint32_t held =
	    t->states != NULL ? (uint32_t)(kv_states_n_snapshots(t->states) - kv_states_n_free(t->states)) : 0;
	BUG_IF(c.n_snapshots != t->snapshots.n || c.n_snapshots > held,
	       "prefix tree: %zu snapshots in %u slots; counted %u", t->snapshots.n, held, c.n_snapshots);
	BUG_IF(c.serves != c.reach, "prefix tree: window parts serve %llu points, not %llu",
	       (unsigned long long)c.serves, (unsigned long long)c.reach);
}
