/* SPDX-License-Identifier: Apache-2.0
 *
 * The digests are a hash table with open addressing; they are hashes already. The log is a ring.
 */
#include "engine/kv/prefix_book.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "engine/kv/prefix_state.h"

enum { SLOTS = 2 * PROTO_PREFIXES_KEPT, LOG = 8192 };

struct prefix_book {
	pthread_mutex_t lock;
	size_t n;
	uint64_t n_changes; /* ever; the last LOG of them are in the log */
	uint64_t log[LOG];
	uint64_t slots[SLOTS]; /* 0: empty */
};

struct prefix_book *prefix_book_create(void)
{
	struct prefix_book *b = sl_zalloc(sizeof *b);
	if (b != NULL)
		pthread_mutex_init(&b->lock, NULL);
	return b;
}

void prefix_book_destroy(struct prefix_book *b)
{
	if (b == NULL)
		return;
	BUG_IF(b->n != 0, "the book of prefixes is destroyed with %zu in it", b->n);
	pthread_mutex_destroy(&b->lock);
	sl_free(b);
}

static size_t home_of(uint64_t digest) { return (size_t)(digest >> 1) & (SLOTS - 1); }

/* Its slot, or the empty one where it would be. */
static size_t slot_of(const struct prefix_book *b, uint64_t digest)
{
	size_t i = home_of(digest);
	while (b->slots[i] != 0 && b->slots[i] != digest)
		i = (i + 1) & (SLOTS - 1);
	return i;
}

static void note(struct prefix_book *b, uint64_t change) { b->log[b->n_changes++ % LOG] = change; }

bool prefix_book_add(struct prefix_book *b, uint64_t digest)
{
	pthread_mutex_lock(&b->lock);
	size_t i = slot_of(b, digest);
	bool is_new = b->slots[i] == 0 && b->n < PROTO_PREFIXES_KEPT;
	if (is_new) {
		b->slots[i] = digest;
		b->n++;
		note(b, digest | 1);
	}
	pthread_mutex_unlock(&b->lock);
	return is_new;
}

/* Moves up what probing would no longer find. */
static void take_out(struct prefix_book *b, size_t hole)
{
	for (size_t i = (hole + 1) & (SLOTS - 1); b->slots[i] != 0; i = (i + 1) & (SLOTS - 1)) {
		size_t home = home_of(b->slots[i]);
		if (((i - home) & (SLOTS - 1)) >= ((i - hole) & (SLOTS - 1))) {
			b->slots[hole] = b->slots[i];
			hole = i;
		}
	}
	b->slots[hole] = 0;
	b->n--;
}

void prefix_book_drop(struct prefix_book *b, uint64_t digest)
{
	pthread_mutex_lock(&b->lock);
	size_t i = slot_of(b, digest);
	BUG_IF(b->slots[i] == 0, "the book of prefixes has no such digest");
	take_out(b, i);
	note(b, digest);
	pthread_mutex_unlock(&b->lock);
}

/* All that is there. */
static size_t copy_all(const struct prefix_book *b, uint64_t *to)
{
	size_t n = 0;
	for (size_t i = 0; i < SLOTS; i++)
		if (b->slots[i] != 0)
			to[n++] = b->slots[i] | 1;
	return n;
}

static size_t copy_changes(const struct prefix_book *b, uint64_t from, uint64_t *to)
{
	size_t n = 0;
	for (uint64_t i = from; i < b->n_changes; i++)
		to[n++] = b->log[i % LOG];
	return n;
}

int prefix_book_read(struct prefix_book *b, uint64_t *cursor, bool *anew, uint64_t **changes, size_t *n)
{
	*changes = NULL;
	*n = 0;
	pthread_mutex_lock(&b->lock);
	uint64_t behind = b->n_changes - *cursor;
	*anew = behind > LOG;
	size_t most = *anew ? b->n : (size_t)behind;
	if (behind > 0 && (*changes = sl_alloc((most + 1) * sizeof **changes)) != NULL) {
		*n = *anew ? copy_all(b, *changes) : copy_changes(b, *cursor, *changes);
		*cursor = b->n_changes;
	}
	pthread_mutex_unlock(&b->lock);
	return behind > 0 && *changes == NULL ? SL_ENOMEM : 0;
}

/* ---- prompts and nodes ---- */

struct prefix_text *prefix_text_create(const struct proto_submit *req, bool shared)
{
	struct prefix_digests d;
	prefix_digests_make(req->prompt_kind, req->prompt, &d);
	struct prefix_text *t = d.n > 0 ? sl_alloc(sizeof *t + d.n * sizeof *t->of) : NULL;
	if (t == NULL)
		return NULL;
	uint64_t tenant = shared || (req->flags & PROTO_SUBMIT_SHARED_PREFIX) != 0 ? 0 : req->tenant;
	t->n_bytes = d.n_bytes;
	t->n = d.n;
	for (uint32_t i = 0; i < d.n; i++)
		t->of[i] = prefix_digest_salted(d.of[i], req->model, tenant, req->cache_salt);
	return t;
}

void prefix_set_book(struct prefix_tree *t, struct prefix_book *b) { t->book = b; }

void prefix_mark(struct prefix_tree *t, const struct prefix_path *path, uint32_t n_prompt,
		 const struct prefix_text *text)
{
	struct prefix_node *n = path->tail;
	for (uint32_t i = text->n; t->book != NULL && n != NULL && i-- > 0;) {
		uint64_t tokens = (uint64_t)n_prompt * prefix_digest_border(i) / text->n_bytes;
		while (n->depth > 0 && (n->depth > tokens / t->page_tokens || !n->filled))
			n = n->parent;
		if (n->depth == 0)
			return;
		/* Another border is closer than a page, or the text is in the book with another tail. */
		if (n->text == 0 && prefix_book_add(t->book, text->of[i]))
			n->text = text->of[i];
	}
}
