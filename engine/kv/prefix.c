/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix tree, one node per page. One hash lookup finds the child of a node for the next page's tokens. A node's
 * key is a hash of its tokens, seeded with its parent's key; parent and tokens are compared, so a collision costs reuse
 * but never yields a wrong page.
 *
 * Pins. `pins` counts the paths that end at a node, plus its pinned children. Pinning walks up only as far as nodes
 * were unpinned, and a growing path moves its pin by one step, so both are cheap. Below an unpinned node all nodes are
 * unpinned: they can be evicted, leaves first. The unpinned leaves are in a heap by the time of their last use.
 *
 * A leaf with fewer tokens than a page holds is the end of some sequence. It is in no hash table, only among its
 * parent's children, a few of which, the youngest, are compared token by token.
 *
 * If all layers are windowed, nodes without a page remain above those that have one. They are bounded by the pages of
 * the pool: beyond that, leaves are evicted.
 */
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/err.h"
#include "engine/kv/prefix_state.h"

enum {
	N_GHOSTS = 1 << 15, /* evicted pages, remembered to report why they are missing */
	MAX_COMPARED = 8,   /* children examined for a common part of a page */
	MOST_BARE = 4,      /* nodes without a page, for each page of the pool */
};

/* Recently used nodes have larger numbers; among equals the deeper one is evicted first. */
static bool longer_unused(const struct heap_node *a, const struct heap_node *b)
{
	const struct prefix_node *x = heap_entry(a, const struct prefix_node, unused);
	const struct prefix_node *y = heap_entry(b, const struct prefix_node, unused);
	return x->used != y->used ? x->used < y->used : x->depth > y->depth;
}

int prefix_create(struct kv_pool *pool, uint32_t row, struct prefix_tree **out)
{
	struct prefix_tree *t = sl_zalloc(sizeof *t);
	if (t == NULL)
		return SL_ENOMEM;
	t->pool = pool;
	t->row = row;
	t->groups = kv_pool_groups(pool);
	t->page_tokens = t->groups->page_tokens;
	t->n_groups = t->groups->n_groups;
	t->n_full = t->groups->n_full;
	t->n_windowed = t->n_groups - t->n_full;
	t->tick = kv_pool_clock(pool);
	t->of_page = sl_zalloc_n((size_t)kv_pool_page_limit(pool), sizeof(void *));
	t->ghosts = sl_zalloc_n(N_GHOSTS, sizeof *t->ghosts);
	if (t->of_page == NULL || t->ghosts == NULL || idmap_init(&t->nodes) != 0)
		goto fail;
	if (idmap_init(&t->roots) != 0) {
		idmap_dispose(&t->nodes);
		goto fail;
	}
	heap_init(&t->unused, longer_unused);
	heap_init(&t->idle, prefix_window_rarer);
	heap_init(&t->snapshots, prefix_snapshot_rarer);
	list_init(&t->woken);
	list_init(&t->unsaved);
	*out = t;
	return 0;
fail:
	sl_free(t->of_page);
	sl_free(t->ghosts);
	sl_free(t);
	return SL_ENOMEM;
}

/* ---- nodes ---- */

static uint64_t root_key(uint64_t salt) { return XXH3_64bits(&salt, sizeof salt); }

static uint64_t child_key(const struct prefix_tree *t, uint64_t parent_key, const int32_t *tokens)
{
	return XXH3_64bits_withSeed(tokens, t->page_tokens * sizeof *tokens, parent_key);
}

/* Roots are indexed by salt, so two salts never share a root; a root's hash key is separate. */
static uint64_t key_of(const struct prefix_node *n) { return n->depth == 0 ? root_key(n->index.key) : n->index.key; }

static bool is_whole(const struct prefix_tree *t, const struct prefix_node *n) { return n->n_tokens == t->page_tokens; }

static struct prefix_node *find_by_key(const struct prefix_tree *t, const struct prefix_node *parent, uint64_t key,
				       const int32_t *tokens)
{
	struct idmap_node *it = idmap_find(&t->nodes, key);
	if (it == NULL)
		return NULL;
	struct prefix_node *n = idmap_entry(it, struct prefix_node, index);
	if (n->parent != parent || memcmp(n->tokens, tokens, t->page_tokens * sizeof *tokens) != 0)
		return NULL;
	return n;
}

static struct prefix_node *find_child(const struct prefix_tree *t, const struct prefix_node *parent,
				      const int32_t *tokens)
{
	return find_by_key(t, parent, child_key(t, key_of(parent), tokens), tokens);
}

static struct prefix_node *new_node(const struct prefix_tree *t, struct prefix_node *parent, const int32_t *tokens,
				    uint32_t n)
{
	struct prefix_node *node = sl_zalloc(sizeof *node + (n + t->n_groups) * sizeof *tokens);
	if (node == NULL)
		return NULL;
	node->pages = node->tokens + n;
	memset(node->pages, 0xFF, t->n_groups * sizeof *node->pages); /* -1 */
	list_init(&node->children);
	list_init(&node->sibling);
	list_init(&node->waiters);
	list_init(&node->unsaved);
	node->parent = parent;
	node->state = -1;
	node->n_tokens = n;
	if (parent != NULL) {
		node->depth = parent->depth + 1;
		memcpy(node->tokens, tokens, n * sizeof *tokens);
	}
	return node;
}

static bool is_evictable(const struct prefix_node *n) { return n->filled && n->pins == 0 && list_empty(&n->children); }

void prefix_add_page(struct prefix_tree *t, struct prefix_node *n, uint32_t group, int32_t page)
{
	kv_page_ref(t->pool, page);
	n->pages[group] = page;
	t->of_page[page] = n;
	t->n_pages++;
}

void prefix_drop_page(struct prefix_tree *t, struct prefix_node *n, uint32_t group)
{
	int32_t page = n->pages[group];
	n->pages[group] = -1;
	t->of_page[page] = NULL;
	t->n_pages--;
	kv_page_unref(t->pool, page);
}

static bool is_bare(const struct prefix_tree *t, const struct prefix_node *n)
{
	return n->filled && t->n_full == 0 && !prefix_has_window(t, n);
}

/* A filled node lost its last pin or got its first. */
static void set_idle(struct prefix_tree *t, const struct prefix_node *n, bool idle)
{
	if (!n->filled)
		return;
	t->n_reclaimable += idle ? t->n_full : -t->n_full;
	for (uint32_t g = 0; g < t->n_full; g++)
		kv_page_set_idle(t->pool, n->pages[g], idle, n->used);
}

/* After n's pins or children changed. */
static void set_unused(struct prefix_tree *t, struct prefix_node *n)
{
	bool should = is_evictable(n);
	if (should && !n->unused.in)
		heap_insert(&t->unused, &n->unused);
	else if (!should && n->unused.in)
		heap_remove(&t->unused, &n->unused);
}

static void attach(struct prefix_tree *t, struct prefix_node *n)
{
	list_push_front(&n->parent->children, &n->sibling);
	prefix_set_children(t, n->parent, n->parent->n_children + 1);
	set_unused(t, n->parent);
}

/* A new full page below parent; NULL: out of memory, or another text has the same key. */
static struct prefix_node *add_whole(struct prefix_tree *t, struct prefix_node *parent, const int32_t *tokens)
{
	uint64_t key = child_key(t, key_of(parent), tokens);
	if (idmap_find(&t->nodes, key) != NULL)
		return NULL;
	struct prefix_node *n = new_node(t, parent, tokens, t->page_tokens);
	if (n == NULL)
		return NULL;
	n->index.key = key;
	prefix_name_node(t, n);
	idmap_insert(&t->nodes, &n->index);
	attach(t, n);
	return n;
}

static void free_node(struct prefix_tree *t, struct prefix_node *n)
{
	BUG_IF(n->pins != 0 || !list_empty(&n->children), "prefix tree: a node in use is freed");
	list_append(&t->woken, &n->waiters);
	if (n->text != 0)
		prefix_book_drop(t->book, n->text);
	if (n->unused.in)
		heap_remove(&t->unused, &n->unused);
	if (n->depth == 0) {
		idmap_remove(&t->roots, &n->index);
	} else if (is_whole(t, n)) {
		idmap_remove(&t->nodes, &n->index);
		if (n->filled)
			t->ghosts[n->index.key % N_GHOSTS] = n->index.key;
	}
	if (n->filled && n->depth > 0 && is_whole(t, n))
		prefix_going(t, n);
	if (n->filled) {
		prefix_state_drop(t, n);
		prefix_set_ends(t, n, false);
		t->n_bare -= is_bare(t, n);
		prefix_window_drop(t, n);
		set_idle(t, n, false);
		for (uint32_t g = 0; g < t->n_full; g++)
			prefix_drop_page(t, n, g);
	}
	struct prefix_node *parent = n->parent;
	list_remove(&n->sibling);
	sl_free(n);
	if (parent == NULL)
		return;
	prefix_set_children(t, parent, parent->n_children - 1);
	set_unused(t, parent);
	if (parent->depth == 0 && parent->pins == 0 && list_empty(&parent->children))
		free_node(t, parent);
}

static void pin(struct prefix_tree *t, struct prefix_node *n)
{
	for (; n != NULL && n->pins++ == 0; n = n->parent) {
		set_idle(t, n, false);
		set_unused(t, n);
	}
}

static void unpin(struct prefix_tree *t, struct prefix_node *n)
{
	while (n != NULL) {
		BUG_IF(n->pins == 0, "prefix tree: a node without pins is unpinned");
		if (--n->pins > 0)
			return;
		struct prefix_node *parent = n->parent;
		n->used = *t->tick;
		set_idle(t, n, true);
		set_unused(t, n);
		if (n->depth == 0 && list_empty(&n->children))
			free_node(t, n);
		n = parent;
	}
}

/* The path continues at a child of its tail. */
static void move_tail(struct prefix_tree *t, struct prefix_path *path, struct prefix_node *to)
{
	struct prefix_node *from = path->tail;
	pin(t, to);
	path->tail = to;
	unpin(t, from);
}

/* The pages of a sequence's index; its window part may be gone. */
static void fill(struct prefix_tree *t, struct prefix_node *n, int32_t *pages, uint32_t index)
{
	n->filled = true;
	n->claimant = NULL;
	for (uint32_t g = 0; g < t->n_groups; g++) {
		int32_t page = *prefix_entry(t, pages, g, index);
		if (page >= 0)
			prefix_add_page(t, n, g, page);
	}
	t->n_bare += is_bare(t, n);
	if (n->pins == 0)
		set_idle(t, n, true);
	prefix_window_came(t, n);
	set_unused(t, n);
	list_append(&t->woken, &n->waiters);
}

/* ---- lookup ---- */

static uint32_t n_common(const int32_t *a, const int32_t *b, uint32_t n)
{
	uint32_t i = 0;
	while (i < n && a[i] == b[i])
		i++;
	return i;
}

/* The child of n that shares the longest beginning with tokens; *common of them, less than a page. */
static struct prefix_node *find_part(const struct prefix_tree *t, const struct prefix_node *n, const int32_t *tokens,
				     uint32_t n_tokens, uint32_t *common)
{
	struct prefix_node *best = NULL;
	int looked = 0;
	*common = 0;
	if (t->states != NULL)
		return NULL; /* states are of whole pages */
	list_each(it, &n->children) {
		struct prefix_node *c = list_entry(it, struct prefix_node, sibling);
		if (looked++ == MAX_COMPARED)
			break;
		if (!c->filled || !prefix_has_window(t, c))
			continue;
		uint32_t most = c->n_tokens < n_tokens ? c->n_tokens : n_tokens;
		uint32_t got = n_common(c->tokens, tokens, most);
		if (got > *common && got < t->page_tokens) {
			*common = got;
			best = c;
		}
	}
	return best;
}

/* What the tree has of a text. */
struct hit {
	struct prefix_node *at; /* where a sequence may go on; NULL: not even a root exists */
	uint32_t first;         /* the first index whose window part it needs */
	uint32_t n_unpinned;    /* pages that no sequence uses yet */
	uint32_t deepest;       /* depth of the last filled node, whose window or snapshot may be missing */
};

static struct hit walk(const struct prefix_tree *t, uint64_t salt, const int32_t *tokens, uint32_t n)
{
	struct idmap_node *root = idmap_find(&t->roots, salt);
	struct hit hit = {0};
	if (root == NULL)
		return hit;
	struct prefix_node *at = hit.at = idmap_entry(root, struct prefix_node, index);
	uint32_t n_unpinned = 0, run = 0; /* nodes up to this one with a window part */
	while ((at->depth + 1) * t->page_tokens <= n) {
		struct prefix_node *c = find_child(t, at, tokens + at->depth * t->page_tokens);
		if (c == NULL || !c->filled)
			break;
		n_unpinned += c->pins == 0 ? t->n_full : 0;
		at = c;
		run = prefix_has_window(t, at) ? run + 1 : 0;
		uint32_t first = kv_groups_first(t->groups, at->depth * t->page_tokens);
		if (run >= at->depth - first && prefix_has_state(t, at))
			hit = (struct hit){.at = at, .first = first, .n_unpinned = n_unpinned};
	}
	hit.deepest = at->depth;
	for (at = hit.at; t->n_windowed > 0 && at->depth > hit.first; at = at->parent)
		hit.n_unpinned += at->users == 0 ? t->n_windowed : 0;
	return hit;
}

static enum prefix_miss why_missing(const struct prefix_tree *t, const struct hit *hit, uint64_t salt,
				    const int32_t *tokens, uint32_t n)
{
	const struct prefix_node *at = hit->at;
	uint32_t depth = at != NULL ? at->depth : 0;
	if (n < t->page_tokens)
		return PREFIX_MISS_SHORT;
	if ((depth + 1) * t->page_tokens > n)
		return PREFIX_MISS_NONE;
	if (hit->deepest > depth)
		return PREFIX_MISS_EVICTED;
	uint64_t parent = at != NULL ? key_of(at) : root_key(salt);
	uint64_t key = child_key(t, parent, tokens + depth * t->page_tokens);
	return t->ghosts[key % N_GHOSTS] == key ? PREFIX_MISS_EVICTED : PREFIX_MISS_NEW;
}

void prefix_lookup(const struct prefix_tree *t, uint64_t salt, const int32_t *tokens, uint32_t n,
		   struct prefix_match *out)
{
	uint32_t most = n > 0 ? n - 1 : 0, common = 0;
	struct hit hit = walk(t, salt, tokens, most);
	const struct prefix_node *at = hit.at;
	*out = (struct prefix_match){.n_unpinned = hit.n_unpinned, .miss = why_missing(t, &hit, salt, tokens, most)};
	if (at == NULL)
		return;
	out->n_pages = at->depth;
	uint32_t done = at->depth * t->page_tokens;
	find_part(t, at, tokens + done, most - done, &common);
	out->n_tokens = done + common;
	/* Beyond the filled nodes: is another sequence computing the next page? */
	while ((at->depth + 1) * t->page_tokens <= most) {
		at = find_child(t, at, tokens + at->depth * t->page_tokens);
		if (at == NULL)
			break;
		if (!at->filled)
			out->pending = (struct prefix_node *)(uintptr_t)at;
	}
}

/* ---- sequences ---- */

static struct prefix_node *make_root(struct prefix_tree *t, uint64_t salt)
{
	struct prefix_node *root = new_node(t, NULL, NULL, 0);
	if (root == NULL)
		return NULL;
	root->index.key = salt;
	prefix_name_node(t, root);
	idmap_insert(&t->roots, &root->index);
	return root;
}

struct prefix_node *prefix_root(struct prefix_tree *t, uint64_t salt, bool make)
{
	struct idmap_node *it = idmap_find(&t->roots, salt);
	if (it != NULL)
		return idmap_entry(it, struct prefix_node, index);
	return make ? make_root(t, salt) : NULL;
}

struct prefix_node *prefix_child(const struct prefix_tree *t, const struct prefix_node *parent, const int32_t *tokens)
{
	return find_child(t, parent, tokens);
}

void prefix_drop_leaf(struct prefix_tree *t, struct prefix_node *n)
{
	BUG_IF(!is_evictable(n), "prefix tree: a node in use is dropped");
	free_node(t, n);
}

void prefix_touch_node(struct prefix_tree *t, struct prefix_node *n)
{
	pin(t, n);
	unpin(t, n);
}

/* A copy of n's page of each group as the sequence's own page `index`; false: no memory for all of them. */
static bool copy_pages(struct prefix_tree *t, const struct prefix_node *n, int32_t *pages, uint32_t index)
{
	for (uint32_t g = 0; g < t->n_groups; g++) {
		if (prefix_room(t) && kv_page_clone(t->pool, n->pages[g], prefix_entry(t, pages, g, index)) == 0)
			continue;
		while (g-- > 0)
			kv_page_unref(t->pool, *prefix_entry(t, pages, g, index));
		return false;
	}
	return true;
}

/* Copies the common part of a child's page into the sequence's own next page. */
static uint32_t copy_part(struct prefix_tree *t, struct prefix_node *at, const int32_t *tokens, uint32_t n,
			  int32_t *pages)
{
	uint32_t common;
	struct prefix_node *part = find_part(t, at, tokens, n, &common);
	if (part == NULL)
		return 0;
	/* Held, so that making room for the copy cannot evict it. */
	pin(t, part);
	prefix_window_use(t, part);
	bool copied = copy_pages(t, part, pages, at->depth);
	prefix_window_leave(t, part);
	unpin(t, part);
	return copied ? common : 0;
}

static void claim(struct prefix_tree *t, struct prefix_path *path, const int32_t *tokens, uint32_t n_claim)
{
	struct prefix_node *last = NULL;
	while (!path->cut && (path->tail->depth + 1) * t->page_tokens <= n_claim) {
		const int32_t *its = tokens + path->tail->depth * t->page_tokens;
		/* Another sequence is computing it, although this one did not wait. */
		if (find_child(t, path->tail, its) != NULL)
			return;
		struct prefix_node *n = add_whole(t, path->tail, its);
		if (n == NULL) {
			path->cut = true;
			return;
		}
		n->claimant = path;
		if (last == NULL)
			path->claim = n;
		else
			last->claim_next = n;
		last = n;
		move_tail(t, path, n);
	}
}

/* The sequence holds the pages of the hit. */
static void hold(struct prefix_tree *t, const struct hit *hit, struct prefix_path *path, int32_t *pages)
{
	struct prefix_node *it = hit->at;
	for (; it->depth > 0; it = it->parent) {
		uint32_t i = it->depth - 1, n = i >= hit->first ? t->n_groups : t->n_full;
		for (uint32_t g = 0; g < n; g++) {
			kv_page_ref(t->pool, it->pages[g]);
			*prefix_entry(t, pages, g, i) = it->pages[g];
		}
		for (uint32_t g = n; g < t->n_groups; g++)
			*prefix_entry(t, pages, g, i) = -1;
		if (i >= hit->first)
			prefix_window_use(t, it);
		if (it->depth == hit->first)
			path->passed = it;
	}
	path->n_passed = hit->first;
	if (hit->first == 0)
		path->passed = it;
}

uint32_t prefix_begin(struct prefix_tree *t, uint64_t salt, const int32_t *tokens, uint32_t n, uint32_t n_claim,
		      struct prefix_path *path, int32_t *pages, uint32_t *n_pages)
{
	BUG_IF(path->tail != NULL || n == 0, "prefix tree: a path begins twice");
	uint32_t most = n - 1;
	*n_pages = 0;
	*path = (struct prefix_path){.last = most / t->page_tokens};
	path->began = ++*t->tick;
	while (t->n_bare / MOST_BARE > (uint32_t)kv_pool_page_limit(t->pool) && t->unused.top != NULL)
		free_node(t, heap_entry(t->unused.top, struct prefix_node, unused));
	struct hit hit = walk(t, salt, tokens, most);
	if (hit.at == NULL)
		hit.at = make_root(t, salt);
	if (hit.at == NULL) {
		path->cut = true;
		return 0;
	}
	struct prefix_node *at = hit.at;
	pin(t, at);
	path->tail = at;
	path->n_pages = *n_pages = at->depth;
	path->parts = hit.deepest > at->depth ? hit.deepest : 0;
	hold(t, &hit, path, pages);
	uint32_t done = at->depth * t->page_tokens;
	uint32_t part = copy_part(t, at, tokens + done, most - done, pages);
	*n_pages += part > 0;
	claim(t, path, tokens, n_claim);
	return done + part;
}

/* The tree already has the page: the sequence uses it instead of its own copy. */
static void take_page(struct prefix_tree *t, int32_t theirs, int32_t *page)
{
	if (theirs == *page)
		return;
	kv_page_ref(t->pool, theirs);
	kv_page_unref(t->pool, *page);
	*page = theirs;
}

/* The tree already has this page of text; its window part may be gone, there or with the sequence. */
static void take_over(struct prefix_tree *t, struct prefix_node *n, int32_t *pages, uint32_t index)
{
	for (uint32_t g = 0; g < t->n_full; g++)
		take_page(t, n->pages[g], prefix_entry(t, pages, g, index));
	if (t->n_windowed == 0 || *prefix_entry(t, pages, t->n_full, index) < 0)
		return;
	bool there = prefix_has_window(t, n);
	t->n_bare -= is_bare(t, n);
	for (uint32_t g = t->n_full; g < t->n_groups; g++) {
		int32_t *page = prefix_entry(t, pages, g, index);
		if (there)
			take_page(t, n->pages[g], page);
		else
			prefix_add_page(t, n, g, *page);
	}
	if (!there)
		prefix_window_came(t, n);
}

struct prefix_node *prefix_place(struct prefix_tree *t, struct prefix_node *parent, const int32_t *tokens,
				 int32_t *pages, uint32_t index)
{
	struct prefix_node *n = find_child(t, parent, tokens);
	if (n != NULL) {
		if (n->filled)
			take_over(t, n, pages, index);
		return n->filled ? n : NULL;
	}
	n = add_whole(t, parent, tokens);
	if (n == NULL)
		return NULL;
	n->used = *t->tick;
	fill(t, n, pages, index);
	return n;
}

/* The next index of the path has this node. */
static void go_on(struct prefix_tree *t, struct prefix_path *path, struct prefix_node *n, int32_t *pages)
{
	uint32_t i = path->n_pages++;
	if (!n->filled)
		fill(t, n, pages, i);
	else
		take_over(t, n, pages, i);
	if (t->n_windowed == 0)
		return;
	if (*prefix_entry(t, pages, t->n_full, i) >= 0) {
		prefix_window_use(t, n);
	} else {
		path->passed = n;
		path->n_passed = i + 1;
	}
	if (i == path->last)
		prefix_set_ends(t, n, true);
}

void prefix_computed(struct prefix_tree *t, struct prefix_path *path, const int32_t *tokens, uint32_t n_past,
		     int32_t *pages)
{
	while ((path->n_pages + 1) * t->page_tokens <= n_past) {
		uint32_t i = path->n_pages;
		struct prefix_node *n = path->claim;
		if (n != NULL) {
			path->claim = n->claim_next;
			n->claim_next = NULL;
		} else if (path->cut) {
			return;
		} else {
			n = find_child(t, path->tail, tokens + i * t->page_tokens);
			if (n == NULL)
				n = add_whole(t, path->tail, tokens + i * t->page_tokens);
			if (n == NULL) {
				path->cut = true;
				return;
			}
			move_tail(t, path, n);
		}
		go_on(t, path, n, pages);
	}
}

void prefix_pass(struct prefix_tree *t, struct prefix_path *path, const int32_t *tokens, uint32_t first)
{
	while (path->n_passed < first && path->n_passed < path->n_pages) {
		struct prefix_node *n = find_child(t, path->passed, tokens + path->n_passed * t->page_tokens);
		BUG_IF(n == NULL, "prefix tree: a page of a path is missing");
		prefix_window_leave(t, n);
		path->passed = n;
		path->n_passed++;
	}
}

/* The computed part of a page that is not full, for a later sequence that continues there. Returns the node that has
 * it; NULL: none. */
static struct prefix_node *keep_part(struct prefix_tree *t, struct prefix_node *at, const int32_t *tokens,
				     uint32_t n_past, int32_t *pages)
{
	uint32_t begin = at->depth * t->page_tokens, common;
	if (t->states != NULL || n_past <= begin || n_past - begin >= t->page_tokens)
		return NULL;
	struct prefix_node *part = find_part(t, at, tokens + begin, n_past - begin, &common);
	if (common == n_past - begin)
		return part;
	part = new_node(t, at, tokens + begin, n_past - begin);
	if (part == NULL)
		return NULL;
	part->used = *t->tick;
	attach(t, part);
	fill(t, part, pages, at->depth);
	return part;
}

/* The path no longer holds window parts. */
static void leave_windows(struct prefix_tree *t, const struct prefix_path *path, struct prefix_node *tail)
{
	if (t->n_windowed == 0)
		return;
	for (struct prefix_node *n = tail; n->depth > path->n_passed; n = n->parent)
		if (n->depth <= path->n_pages)
			prefix_window_leave(t, n);
}

void prefix_end(struct prefix_tree *t, struct prefix_path *path, const int32_t *tokens, uint32_t n_past, int32_t *pages)
{
	struct prefix_node *at = path->tail;
	if (at == NULL)
		return;
	++*t->tick;
	/* From the deepest upwards: frees nodes that were claimed but not filled. */
	while (at->claimant == path && !at->filled) {
		struct prefix_node *parent = at->parent;
		BUG_IF(at->pins != 1, "prefix tree: a claimed node has %u pins", at->pins);
		pin(t, parent);
		unpin(t, at);
		free_node(t, at);
		at = parent;
	}
	struct prefix_node *part = path->cut ? NULL : keep_part(t, at, tokens, n_past, pages);
	if (part != NULL)
		prefix_set_ends(t, part, true);
	else if (!path->cut && at->depth > 0 && at->depth * t->page_tokens == n_past)
		prefix_set_ends(t, at, true);
	leave_windows(t, path, at);
	prefix_left_at(t, at, path->began);
	path->claim = path->tail = path->passed = path->answer = NULL;
	unpin(t, at);
}

void prefix_await(struct prefix_node *node, struct prefix_waiter *w)
{
	node->asked = true;
	list_push_back(&node->waiters, &w->link);
}

struct prefix_waiter *prefix_woken(struct prefix_tree *t)
{
	if (list_empty(&t->woken))
		return NULL;
	struct prefix_waiter *w = list_entry(t->woken.next, struct prefix_waiter, link);
	list_remove(&w->link);
	return w;
}

uint32_t prefix_n_exclusive(const struct prefix_tree *t, const struct prefix_path *path)
{
	uint32_t n = 0;
	for (const struct prefix_node *at = path->tail; at != NULL && at->pins == 1; at = at->parent)
		n += at->filled ? t->n_full : 0;
	const struct prefix_node *at = t->n_windowed > 0 ? path->tail : NULL;
	for (; at != NULL && at->depth > path->n_passed; at = at->parent)
		n += at->depth <= path->n_pages && at->users == 1 ? t->n_windowed : 0;
	return n;
}

uint32_t prefix_n_shared(const struct prefix_path *path)
{
	const struct prefix_node *at = path->tail;
	while (at != NULL && at->pins == 1)
		at = at->parent;
	uint32_t n = at != NULL ? at->depth : 0;
	return n < path->n_pages ? n : path->n_pages;
}

int32_t prefix_pinned_page(const struct prefix_tree *t, const struct prefix_path *path, struct prefix_pinned *at)
{
	if (t->n_full == 0)
		return -1;
	if (at->node != NULL && ++at->group < t->n_full)
		return at->node->pages[at->group];
	const struct prefix_node *n = at->node != NULL ? at->node->claim_next : path->claim;
	while (n != NULL && !n->filled)
		n = n->claim_next;
	*at = (struct prefix_pinned){.node = n};
	return n != NULL ? n->pages[0] : -1;
}

struct prefix_path *prefix_claimant(const struct prefix_node *pending) { return pending->claimant; }

/* ---- pages ---- */

uint32_t prefix_n_reclaimable(const struct prefix_tree *t) { return t->n_reclaimable; }
uint32_t prefix_n_pages(const struct prefix_tree *t) { return t->n_pages; }

/* A window part goes, and its node with it if that has nothing else and nothing needs it. */
static void drop_window(struct prefix_tree *t, struct prefix_node *n)
{
	prefix_window_drop(t, n);
	t->n_bare += is_bare(t, n);
	if (is_bare(t, n) && is_evictable(n))
		free_node(t, n);
}

static struct prefix_node *oldest_leaf(const struct prefix_tree *t)
{
	return t->unused.top != NULL ? heap_entry(t->unused.top, struct prefix_node, unused) : NULL;
}

static struct prefix_node *oldest_window(const struct prefix_tree *t)
{
	return t->idle.top != NULL ? heap_entry(t->idle.top, struct prefix_node, idle) : NULL;
}

/* Whether the window part goes before the leaf. Of the same age, a leaf does: with it, points that the part serves. */
static bool window_goes(const struct prefix_node *window, const struct prefix_node *leaf)
{
	return window != NULL && (prefix_window_dead(window) || leaf == NULL || window->window_used < leaf->used);
}

bool prefix_evict(struct prefix_tree *t)
{
	uint32_t before = t->n_pages;
	while (t->n_pages == before) {
		struct prefix_node *window = oldest_window(t), *leaf = oldest_leaf(t);
		if (window_goes(window, leaf))
			drop_window(t, window);
		else if (leaf != NULL)
			free_node(t, leaf); /* without a page, perhaps */
		else
			return false;
	}
	return true;
}

static bool is_of_window(const struct prefix_tree *t, const struct prefix_node *n, int32_t page)
{
	for (uint32_t g = t->n_full; g < t->n_groups; g++)
		if (n->pages[g] == page)
			return true;
	return false;
}

void prefix_evict_page(struct prefix_tree *t, int32_t page)
{
	struct prefix_node *n;
	while ((n = t->of_page[page]) != NULL) {
		if (is_of_window(t, n, page)) {
			drop_window(t, n);
			continue;
		}
		/* Nodes below an unpinned one are unpinned. */
		while (!list_empty(&n->children))
			n = list_entry(n->children.next, struct prefix_node, sibling);
		free_node(t, n);
	}
}

uint64_t prefix_oldest(const struct prefix_tree *t)
{
	const struct prefix_node *window = oldest_window(t), *leaf = oldest_leaf(t);
	if (window_goes(window, leaf))
		return prefix_window_dead(window) ? 0 : window->window_used;
	return leaf != NULL ? leaf->used : UINT64_MAX;
}

void prefix_set_more(struct prefix_tree *t, prefix_more_fn *more, void *ctx)
{
	t->more = more;
	t->more_ctx = ctx;
}

bool prefix_room(struct prefix_tree *t)
{
	return kv_pool_n_free(t->pool) > 0 || (t->more != NULL && t->more(t->more_ctx)) || prefix_evict(t);
}

int prefix_page_alloc(struct prefix_tree *t, int32_t *out)
{
	return prefix_room(t) ? kv_page_alloc(t->pool, out) : SL_ELIMIT;
}

void prefix_destroy(struct prefix_tree *t)
{
	if (t == NULL)
		return;
	while (prefix_evict(t))
		;
	BUG_IF(t->nodes.n != 0 || t->roots.n != 0 || t->n_pages != 0, "prefix tree destroyed with %zu nodes in use",
	       t->nodes.n);
	idmap_dispose(&t->nodes);
	idmap_dispose(&t->roots);
	sl_free(t->of_page);
	sl_free(t->ghosts);
	sl_free(t);
}
