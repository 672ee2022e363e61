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
 */
#include "engine/kv/prefix.h"

#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/heap.h"
#include "engine/sched/idmap.h"

enum {
	N_GHOSTS = 1 << 15, /* evicted pages, remembered to report why they are missing */
	MAX_COMPARED = 8,   /* children examined for a common part of a page */
};

struct prefix_node {
	struct idmap_node index; /* among the nodes by key, or among the roots by salt */
	struct heap_node unused; /* among the unpinned leaves */
	struct prefix_node *parent;
	struct list children, sibling;
	struct list waiters;
	struct prefix_path *claimant;   /* while it is not filled */
	struct prefix_node *claim_next; /* the next node of the same claim, one level deeper */
	uint64_t used;
	uint32_t pins, depth; /* a root's depth is 0 */
	int32_t page;         /* -1: a root, or not filled yet */
	uint32_t n_tokens;
	int32_t tokens[];
};

struct prefix_tree {
	struct kv_pool *pool;
	uint32_t page_tokens;
	struct idmap nodes, roots;
	struct heap unused;
	struct list woken;
	uint64_t *tick;               /* the pool's clock */
	struct prefix_node **of_page; /* by page number: its node */
	prefix_more_fn *more;         /* frees pages for a pool that has none left; may be NULL */
	void *more_ctx;
	uint32_t n_pages, n_unpinned; /* filled nodes; the unpinned ones of them */
	uint64_t *ghosts;             /* [N_GHOSTS] keys of evicted nodes */
};

/* Recently used nodes have larger numbers; among equals the deeper one is evicted first. */
static bool longer_unused(const struct heap_node *a, const struct heap_node *b)
{
	const struct prefix_node *x = heap_entry(a, const struct prefix_node, unused);
	const struct prefix_node *y = heap_entry(b, const struct prefix_node, unused);
	return x->used != y->used ? x->used < y->used : x->depth > y->depth;
}

int prefix_create(struct kv_pool *pool, struct prefix_tree **out)
{
	struct prefix_tree *t = sl_zalloc(sizeof *t);
	if (t == NULL)
		return SL_ENOMEM;
	t->pool = pool;
	t->page_tokens = (uint32_t)kv_page_tokens(pool);
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
	list_init(&t->woken);
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

static struct prefix_node *new_node(struct prefix_node *parent, const int32_t *tokens, uint32_t n)
{
	struct prefix_node *node = sl_zalloc(sizeof *node + n * sizeof *tokens);
	if (node == NULL)
		return NULL;
	list_init(&node->children);
	list_init(&node->sibling);
	list_init(&node->waiters);
	node->parent = parent;
	node->page = -1;
	node->n_tokens = n;
	if (parent != NULL) {
		node->depth = parent->depth + 1;
		memcpy(node->tokens, tokens, n * sizeof *tokens);
	}
	return node;
}

static bool is_evictable(const struct prefix_node *n)
{
	return n->page >= 0 && n->pins == 0 && list_empty(&n->children);
}

/* A filled node lost its last pin or got its first. */
static void set_idle(struct prefix_tree *t, const struct prefix_node *n, bool idle)
{
	if (n->page < 0)
		return;
	t->n_unpinned += idle ? 1u : -1u;
	kv_page_set_idle(t->pool, n->page, idle, n->used);
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
	set_unused(t, n->parent);
}

/* A new full page below parent; NULL: out of memory, or another text has the same key. */
static struct prefix_node *add_whole(struct prefix_tree *t, struct prefix_node *parent, const int32_t *tokens)
{
	uint64_t key = child_key(t, key_of(parent), tokens);
	if (idmap_find(&t->nodes, key) != NULL)
		return NULL;
	struct prefix_node *n = new_node(parent, tokens, t->page_tokens);
	if (n == NULL)
		return NULL;
	n->index.key = key;
	idmap_insert(&t->nodes, &n->index);
	attach(t, n);
	return n;
}

static void free_node(struct prefix_tree *t, struct prefix_node *n)
{
	BUG_IF(n->pins != 0 || !list_empty(&n->children), "prefix tree: a node in use is freed");
	list_append(&t->woken, &n->waiters);
	if (n->unused.in)
		heap_remove(&t->unused, &n->unused);
	if (n->depth == 0) {
		idmap_remove(&t->roots, &n->index);
	} else if (is_whole(t, n)) {
		idmap_remove(&t->nodes, &n->index);
		if (n->page >= 0)
			t->ghosts[n->index.key % N_GHOSTS] = n->index.key;
	}
	if (n->page >= 0) {
		t->n_pages--;
		set_idle(t, n, false);
		t->of_page[n->page] = NULL;
		kv_page_unref(t->pool, n->page);
	}
	struct prefix_node *parent = n->parent;
	list_remove(&n->sibling);
	sl_free(n);
	if (parent == NULL)
		return;
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

static void fill(struct prefix_tree *t, struct prefix_node *n, int32_t page)
{
	n->page = page;
	n->claimant = NULL;
	kv_page_ref(t->pool, page);
	t->n_pages++;
	t->of_page[page] = n;
	if (n->pins == 0)
		set_idle(t, n, true);
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
	list_each(it, &n->children) {
		struct prefix_node *c = list_entry(it, struct prefix_node, sibling);
		if (looked++ == MAX_COMPARED)
			break;
		if (c->page < 0)
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

/* The deepest filled node for the first n tokens; NULL: not even a root exists. */
static struct prefix_node *walk(const struct prefix_tree *t, uint64_t salt, const int32_t *tokens, uint32_t n,
				uint32_t *n_unpinned)
{
	struct idmap_node *root = idmap_find(&t->roots, salt);
	*n_unpinned = 0;
	if (root == NULL)
		return NULL;
	struct prefix_node *at = idmap_entry(root, struct prefix_node, index);
	while ((at->depth + 1) * t->page_tokens <= n) {
		struct prefix_node *c = find_child(t, at, tokens + at->depth * t->page_tokens);
		if (c == NULL || c->page < 0)
			break;
		*n_unpinned += c->pins == 0;
		at = c;
	}
	return at;
}

static enum prefix_miss why_missing(const struct prefix_tree *t, const struct prefix_node *at, uint64_t salt,
				    const int32_t *tokens, uint32_t n)
{
	uint32_t depth = at != NULL ? at->depth : 0;
	if (n < t->page_tokens)
		return PREFIX_MISS_SHORT;
	if ((depth + 1) * t->page_tokens > n)
		return PREFIX_MISS_NONE;
	uint64_t parent = at != NULL ? key_of(at) : root_key(salt);
	uint64_t key = child_key(t, parent, tokens + depth * t->page_tokens);
	return t->ghosts[key % N_GHOSTS] == key ? PREFIX_MISS_EVICTED : PREFIX_MISS_NEW;
}

void prefix_lookup(const struct prefix_tree *t, uint64_t salt, const int32_t *tokens, uint32_t n,
		   struct prefix_match *out)
{
	uint32_t most = n > 0 ? n - 1 : 0, common = 0;
	*out = (struct prefix_match){0};
	const struct prefix_node *at = walk(t, salt, tokens, most, &out->n_unpinned);
	out->miss = why_missing(t, at, salt, tokens, most);
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
		if (at->page < 0)
			out->pending = (struct prefix_node *)(uintptr_t)at;
	}
}

/* ---- sequences ---- */

static struct prefix_node *make_root(struct prefix_tree *t, uint64_t salt)
{
	struct prefix_node *root = new_node(NULL, NULL, 0);
	if (root == NULL)
		return NULL;
	root->index.key = salt;
	idmap_insert(&t->roots, &root->index);
	return root;
}

/* Copies the common part of a child's page into the sequence's own next page. */
static uint32_t copy_part(struct prefix_tree *t, struct prefix_node *at, const int32_t *tokens, uint32_t n,
			  int32_t *page)
{
	uint32_t common;
	struct prefix_node *part = find_part(t, at, tokens, n, &common);
	if (part == NULL)
		return 0;
	/* Pinned, so that making room for the copy cannot evict it. */
	pin(t, part);
	int rc = prefix_room(t) ? kv_page_clone(t->pool, part->page, page) : SL_ELIMIT;
	unpin(t, part);
	return rc == 0 ? common : 0;
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

uint32_t prefix_begin(struct prefix_tree *t, uint64_t salt, const int32_t *tokens, uint32_t n, uint32_t n_claim,
		      struct prefix_path *path, int32_t *pages, uint32_t *n_pages)
{
	BUG_IF(path->tail != NULL || n == 0, "prefix tree: a path begins twice");
	uint32_t ignored, most = n - 1;
	*n_pages = 0;
	*path = (struct prefix_path){0};
	++*t->tick;
	struct prefix_node *at = walk(t, salt, tokens, most, &ignored);
	if (at == NULL)
		at = make_root(t, salt);
	if (at == NULL) {
		path->cut = true;
		return 0;
	}
	pin(t, at);
	path->tail = at;
	path->n_pages = at->depth;
	uint32_t done = at->depth * t->page_tokens;
	for (struct prefix_node *it = at; it->depth > 0; it = it->parent) {
		kv_page_ref(t->pool, it->page);
		pages[it->depth - 1] = it->page;
	}
	*n_pages = at->depth;
	uint32_t part = copy_part(t, at, tokens + done, most - done, &pages[*n_pages]);
	*n_pages += part > 0;
	claim(t, path, tokens, n_claim);
	return done + part;
}

/* The tree already has this page: the sequence uses it instead of its own copy. */
static void take_over(struct prefix_tree *t, const struct prefix_node *n, int32_t *page)
{
	if (n->page == *page)
		return;
	kv_page_ref(t->pool, n->page);
	kv_page_unref(t->pool, *page);
	*page = n->page;
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
		if (n->page < 0)
			fill(t, n, pages[i]);
		else
			take_over(t, n, &pages[i]);
		path->n_pages++;
	}
}

/* The computed part of a page that is not full, for a later sequence that continues there. */
static void keep_part(struct prefix_tree *t, struct prefix_node *at, const int32_t *tokens, uint32_t n_past,
		      const int32_t *pages)
{
	uint32_t begin = at->depth * t->page_tokens, common;
	if (n_past <= begin || n_past - begin >= t->page_tokens)
		return;
	find_part(t, at, tokens + begin, n_past - begin, &common);
	if (common == n_past - begin)
		return;
	struct prefix_node *part = new_node(at, tokens + begin, n_past - begin);
	if (part == NULL)
		return;
	part->used = *t->tick;
	attach(t, part);
	fill(t, part, pages[at->depth]);
}

void prefix_end(struct prefix_tree *t, struct prefix_path *path, const int32_t *tokens, uint32_t n_past,
		const int32_t *pages)
{
	struct prefix_node *at = path->tail;
	if (at == NULL)
		return;
	++*t->tick;
	/* From the deepest upwards: frees nodes that were claimed but not filled. */
	while (at->claimant == path && at->page < 0) {
		struct prefix_node *parent = at->parent;
		BUG_IF(at->pins != 1, "prefix tree: a claimed node has %u pins", at->pins);
		pin(t, parent);
		unpin(t, at);
		free_node(t, at);
		at = parent;
	}
	if (!path->cut)
		keep_part(t, at, tokens, n_past, pages);
	path->claim = path->tail = NULL;
	unpin(t, at);
}

void prefix_await(struct prefix_node *node, struct prefix_waiter *w) { list_push_back(&node->waiters, &w->link); }

struct prefix_waiter *prefix_woken(struct prefix_tree *t)
{
	if (list_empty(&t->woken))
		return NULL;
	struct prefix_waiter *w = list_entry(t->woken.next, struct prefix_waiter, link);
	list_remove(&w->link);
	return w;
}

uint32_t prefix_n_exclusive(const struct prefix_path *path)
{
	uint32_t n = 0;
	for (const struct prefix_node *at = path->tail; at != NULL && at->pins == 1; at = at->parent)
		n += at->page >= 0;
	return n;
}

int32_t prefix_pinned_page(const struct prefix_path *path, const struct prefix_node **at)
{
	const struct prefix_node *n = *at != NULL ? (*at)->claim_next : path->claim;
	while (n != NULL && n->page < 0)
		n = n->claim_next;
	*at = n;
	return n != NULL ? n->page : -1;
}

struct prefix_path *prefix_claimant(const struct prefix_node *pending) { return pending->claimant; }

/* ---- pages ---- */

uint32_t prefix_n_reclaimable(const struct prefix_tree *t) { return t->n_unpinned; }
uint32_t prefix_n_pages(const struct prefix_tree *t) { return t->n_pages; }

bool prefix_evict(struct prefix_tree *t)
{
	if (t->unused.top == NULL)
		return false;
	free_node(t, heap_entry(t->unused.top, struct prefix_node, unused));
	return true;
}

void prefix_evict_page(struct prefix_tree *t, int32_t page)
{
	struct prefix_node *n;
	while ((n = t->of_page[page]) != NULL) {
		/* Nodes below an unpinned one are unpinned. */
		while (!list_empty(&n->children))
			n = list_entry(n->children.next, struct prefix_node, sibling);
		free_node(t, n);
	}
}

uint64_t prefix_oldest(const struct prefix_tree *t)
{
	return t->unused.top != NULL ? heap_entry(t->unused.top, struct prefix_node, unused)->used : UINT64_MAX;
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

/* ---- checking ---- */

struct check {
	const struct prefix_tree *t;
	uint32_t n_pages, n_unpinned, n_unused;
};

static void check_node(struct check *c, const struct prefix_node *n)
{
	uint32_t below = 0;
	list_each(it, &n->children) {
		const struct prefix_node *child = list_entry(it, struct prefix_node, sibling);
		BUG_IF(child->parent != n || child->depth != n->depth + 1,
		       "prefix tree: a child with the wrong parent or depth");
		BUG_IF(n->depth > 0 && n->page < 0 && child->page >= 0,
		       "prefix tree: a filled page below one that is not");
		below += child->pins > 0;
	}
	BUG_IF(n->pins < below, "prefix tree: %u pins, %u pinned children", n->pins, below);
	BUG_IF(n->depth > 0 && n->n_tokens < c->t->page_tokens && !list_empty(&n->children),
	       "prefix tree: a page that is not full has children");
	BUG_IF(n->unused.in != is_evictable(n), "prefix tree: a leaf is on the wrong list");
	BUG_IF(n->page >= 0 && c->t->of_page[n->page] != n, "prefix tree: page %d is another node's", n->page);
	BUG_IF(n->depth > 0 && n->page < 0 && n->claimant == NULL,
	       "prefix tree: a page is neither filled nor being computed");
	c->n_pages += n->page >= 0;
	c->n_unpinned += n->page >= 0 && n->pins == 0;
	c->n_unused += n->unused.in;
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
	BUG_IF(c.n_pages != t->n_pages || c.n_unpinned != t->n_unpinned || c.n_unused != t->unused.n,
	       "prefix tree: %u pages, %u unpinned, %u leaves; counted %u, %u, %zu", c.n_pages, c.n_unpinned,
	       c.n_unused, t->n_pages, t->n_unpinned, t->unused.n);
}
