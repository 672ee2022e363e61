/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/core/grammar_cache.h"

#include <pthread.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "engine/token/tokenizer.h"

_Static_assert((int)CONSTRAINT_KINDS == (int)PROTO_CONSTRAINT_KINDS, "the kinds of SUBMIT");

struct entry {
	struct grammar *grammar; /* NULL: free */
	uint64_t vocab, tenant, used;
	enum constraint_kind kind;
	XXH128_hash_t text;
};

struct grammar_cache {
	pthread_mutex_t lock;
	uint64_t clock;
	struct entry entries[GRAMMAR_CACHE_ENTRIES];
	struct kept_vocab {
		uint64_t digest, used;       /* of its tokenizer */
		struct grammar_vocab *vocab; /* NULL: free */
	} vocabs[GRAMMAR_CACHE_VOCABS];
};

int grammar_cache_create(struct grammar_cache **out)
{
	struct grammar_cache *c = sl_zalloc(sizeof *c);
	if (c == NULL)
		return SL_ENOMEM;
	pthread_mutex_init(&c->lock, NULL);
	*out = c;
	return 0;
}

void grammar_cache_destroy(struct grammar_cache *c)
{
	if (c == NULL)
		return;
	for (int i = 0; i < GRAMMAR_CACHE_ENTRIES; i++)
		if (c->entries[i].grammar != NULL)
			grammar_unref(c->entries[i].grammar);
	for (int i = 0; i < GRAMMAR_CACHE_VOCABS; i++)
		if (c->vocabs[i].vocab != NULL)
			grammar_vocab_unref(c->vocabs[i].vocab);
	pthread_mutex_destroy(&c->lock);
	sl_free(c);
}

/* ---- under the lock ---- */

static struct grammar_vocab *find_vocab(struct grammar_cache *c, uint64_t digest)
{
	for (int i = 0; i < GRAMMAR_CACHE_VOCABS; i++)
		if (c->vocabs[i].vocab != NULL && c->vocabs[i].digest == digest) {
			c->vocabs[i].used = ++c->clock;
			return grammar_vocab_ref(c->vocabs[i].vocab);
		}
	return NULL;
}

/* In a free place, or in that of the least recently used one. */
static void keep_vocab(struct grammar_cache *c, uint64_t digest, struct grammar_vocab *v)
{
	struct kept_vocab *at = &c->vocabs[0];
	for (int i = 1; i < GRAMMAR_CACHE_VOCABS && at->vocab != NULL; i++)
		if (c->vocabs[i].vocab == NULL || c->vocabs[i].used < at->used)
			at = &c->vocabs[i];
	if (at->vocab != NULL)
		grammar_vocab_unref(at->vocab);
	*at = (struct kept_vocab){digest, ++c->clock, grammar_vocab_ref(v)};
}

static bool is_same(const struct entry *a, const struct entry *b)
{
	return a->vocab == b->vocab && a->tenant == b->tenant && a->kind == b->kind && XXH128_isEqual(a->text, b->text);
}

static struct entry *find(struct grammar_cache *c, const struct entry *key)
{
	for (int i = 0; i < GRAMMAR_CACHE_ENTRIES; i++)
		if (c->entries[i].grammar != NULL && is_same(&c->entries[i], key))
			return &c->entries[i];
	return NULL;
}

/* A free entry, or the least recently used one: of this tenant if it is at its share, otherwise of all. */
static struct entry *room(struct grammar_cache *c, uint64_t tenant)
{
	int n_own = 0;
	struct entry *oldest = &c->entries[0], *oldest_own = NULL;
	for (int i = 0; i < GRAMMAR_CACHE_ENTRIES; i++) {
		struct entry *e = &c->entries[i];
		bool own = e->grammar != NULL && e->tenant == tenant;
		n_own += own;
		if (own && (oldest_own == NULL || e->used < oldest_own->used))
			oldest_own = e;
		if (e->used < oldest->used)
			oldest = e;
	}
	return n_own >= GRAMMAR_CACHE_OF_TENANT ? oldest_own : oldest;
}

/* ---- compilation ---- */

static int get_vocab(struct grammar_cache *c, const struct tokenizer *t, uint64_t digest, struct grammar_vocab **out)
{
	pthread_mutex_lock(&c->lock);
	*out = find_vocab(c, digest);
	int rc = 0;
	/* Built once; other requests wait for it. It takes as long as compiling a few constraints. */
	if (*out == NULL && (rc = grammar_vocab_create(t, out)) == 0)
		keep_vocab(c, digest, *out);
	pthread_mutex_unlock(&c->lock);
	return rc;
}

/* The first mask is made here, beside the steps of other answers; what it needs too much work for is refused now. */
static int first_mask(struct grammar_vocab *v, struct grammar *g, struct sl_err *err)
{
	struct grammar_state s;
	uint32_t *mask = sl_alloc(grammar_vocab_mask_words(v) * sizeof *mask + 1);
	int rc = mask != NULL ? grammar_state_init(&s, g) : SL_ENOMEM;
	if (rc == 0) {
		rc = grammar_mask(&s, mask);
		grammar_state_dispose(&s);
	}
	sl_free(mask);
	return rc == SL_ELIMIT ? sl_errf(err, rc, "the constraint's first token takes too many steps to find") : rc;
}

static int compile(struct grammar_vocab *v, const struct grammar_cache_key *key, struct grammar **out,
		   struct sl_err *err)
{
	struct rules *rules;
	int rc = constraint_rules(key->kind, key->text.at, key->text.n, NULL, &rules, err);
	if (rc == 0)
		rc = grammar_create(v, rules, NULL, out, err);
	if (rc == 0 && (rc = first_mask(v, *out, err)) != 0) {
		grammar_unref(*out);
		*out = NULL;
	}
	return rc;
}

static struct entry entry_of(const struct grammar_cache_key *key)
{
	return (struct entry){.vocab = key->tokenizer,
			      .tenant = key->tenant,
			      .kind = key->kind,
			      .text = XXH3_128bits(key->text.at, key->text.n)};
}

struct grammar *grammar_cache_find(struct grammar_cache *c, const struct grammar_cache_key *key)
{
	const struct entry wanted = entry_of(key);
	pthread_mutex_lock(&c->lock);
	struct entry *e = find(c, &wanted);
	struct grammar *g = e != NULL ? grammar_ref(e->grammar) : NULL;
	if (e != NULL)
		e->used = ++c->clock;
	pthread_mutex_unlock(&c->lock);
	return g;
}

int grammar_cache_get(struct grammar_cache *c, const struct tokenizer *t, const struct grammar_cache_key *key,
		      struct grammar **out, struct sl_err *err)
{
	struct grammar_vocab *vocab;
	struct entry made = entry_of(key), *e;
	if ((*out = grammar_cache_find(c, key)) != NULL)
		return 0;
	int rc = get_vocab(c, t, made.vocab, &vocab);
	if (rc != 0)
		return rc;
	rc = compile(vocab, key, out, err);
	grammar_vocab_unref(vocab);
	if (rc != 0)
		return rc;
	made.grammar = grammar_ref(*out);
	pthread_mutex_lock(&c->lock);
	made.used = ++c->clock;
	e = find(c, &made);
	e = e != NULL ? e : room(c, made.tenant);
	struct grammar *old = e->grammar;
	*e = made;
	pthread_mutex_unlock(&c->lock);
	if (old != NULL)
		grammar_unref(old);
	return 0;
}
