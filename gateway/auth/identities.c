/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash table of entries, each in one of three lists: NEW (in its first query), KNOWN, UNKNOWN. Each list has its own
 * bound and evicts only its own oldest entry, never one that is being queried. An expired entry stays in its list while
 * it is queried again.
 *
 * entry_move owns the transitions and the counts.
 */
#include "gateway/auth/identities.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

enum { BUCKETS = 1024, PAYERS = 1024, RETRY_MS = 1000 };
enum list_kind { NEW, KNOWN, UNKNOWN, N_LISTS };

struct entry {
	struct entry *next; /* in its bucket */
	struct list age;    /* in lists[kind], the oldest first */
	struct identities *home;
	enum list_kind kind;
	uint8_t digest[IDENTITY_DIGEST_BYTES];
	struct cache_op op;
	struct list waiters; /* struct identity_wait */
	uint64_t asked_ns;
	size_t payer;       /* index of the querying address, during the query; PAYERS: none */
	uint64_t until_ns;  /* valid until */
	uint64_t stale_ns;  /* KNOWN: valid until, if the store fails */
	struct identity id; /* KNOWN */
};

struct payer {
	size_t n_asked; /* queries in progress */
	double tokens;
	uint64_t at_ns; /* 0: full */
};

struct identities {
	struct cache_client *client;
	struct identities_config cfg;
	uint64_t seed;
	struct entry *buckets[BUCKETS];
	struct list lists[N_LISTS];
	size_t n[N_LISTS], most[N_LISTS];
	struct payer payers[PAYERS]; /* by hash: two addresses may share one */
};

void identities_config_init(struct identities_config *cfg)
{
	*cfg = (struct identities_config){.known_ms = 30000,
					  .unknown_ms = 2000,
					  .stale_ms = 300000,
					  .most_known = 1024,
					  .most_unknown = 1024,
					  .most_asked = 1024,
					  .tries = 20,
					  .tries_per_s = 2};
}

/* ---- addresses ---- */

static size_t payer_of(const struct identities *all, const struct net_addr *from)
{
	struct net_addr group = net_addr_group(from);
	return XXH3_64bits_withSeed(&group, sizeof group, all->seed) % PAYERS;
}

/* Charges an unknown key to the address. asked_ns: when its query began; responses arrive in any order. */
static bool pay(struct identities *all, size_t payer, uint64_t asked_ns)
{
	struct payer *p = &all->payers[payer];
	double most = all->cfg.tries, s = asked_ns > p->at_ns ? (double)(asked_ns - p->at_ns) / 1e9 : 0;
	double tokens = p->at_ns == 0 ? most : p->tokens + s * all->cfg.tries_per_s;
	p->tokens = tokens < most ? tokens : most;
	p->at_ns = asked_ns > p->at_ns ? asked_ns : p->at_ns;
	if (p->tokens < 1)
		return false;
	p->tokens -= 1;
	return true;
}

static bool may_ask(const struct identities *all, size_t payer)
{
	return all->payers[payer].n_asked < all->most[NEW] / 2;
}

/* Ends e's query, if there is one. Returns the querying address. */
static size_t end_query(struct entry *e)
{
	size_t payer = e->payer;
	if (payer < PAYERS)
		e->home->payers[payer].n_asked--;
	e->payer = PAYERS;
	return payer;
}

/* ---- entries ---- */

static struct entry **bucket_of(struct identities *all, const uint8_t *digest)
{
	return &all->buckets[XXH3_64bits_withSeed(digest, IDENTITY_DIGEST_BYTES, all->seed) % BUCKETS];
}

static struct entry *find(struct identities *all, const uint8_t *digest)
{
	struct entry *e = *bucket_of(all, digest);
	while (e != NULL && CRYPTO_memcmp(e->digest, digest, sizeof e->digest) != 0)
		e = e->next;
	return e;
}

static void entry_free(struct entry *e)
{
	struct identities *all = e->home;
	struct entry **at = bucket_of(all, e->digest);
	BUG_IF(!list_empty(&e->waiters), "auth: a key is evicted while requests wait for it");
	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	cache_cancel(&e->op);
	(void)end_query(e);
	list_remove(&e->age);
	all->n[e->kind]--;
	sl_free(e);
}

/* False: no entry can be evicted. */
static bool make_room(struct identities *all, enum list_kind kind)
{
	if (all->n[kind] < all->most[kind])
		return true;
	list_each(it, &all->lists[kind]) {
		struct entry *e = list_entry(it, struct entry, age);
		if (cache_op_busy(&e->op))
			continue;
		entry_free(e);
		return true;
	}
	return false;
}

static struct entry *entry_create(struct identities *all, const uint8_t *digest)
{
	struct entry *e = make_room(all, NEW) ? sl_zalloc(sizeof *e) : NULL;
	if (e == NULL)
		return NULL;
	e->home = all;
	e->kind = NEW;
	e->payer = PAYERS;
	memcpy(e->digest, digest, sizeof e->digest);
	list_init(&e->waiters);
	list_push_back(&all->lists[NEW], &e->age);
	all->n[NEW]++;
	struct entry **at = bucket_of(all, digest);
	e->next = *at;
	*at = e;
	return e;
}

/* False: no room; e was freed. */
static bool entry_move(struct entry *e, enum list_kind to)
{
	struct identities *all = e->home;
	if (to != e->kind && !make_room(all, to)) {
		entry_free(e);
		return false;
	}
	list_remove(&e->age);
	all->n[e->kind]--;
	e->kind = to;
	all->n[to]++;
	list_push_back(&all->lists[to], &e->age);
	return true;
}

/* ---- results ---- */

static void call_waiters(struct list *waiters, enum identity_verdict v, const struct identity *id)
{
	while (!list_empty(waiters)) {
		struct identity_wait *w = list_entry(waiters->next, struct identity_wait, node);
		list_remove(&w->node);
		w->done(w, v, id);
	}
}

/* code: of the response and its parsing; read: the record, if code is 0. */
static enum identity_verdict settle(struct entry *e, int code, const struct identity *read)
{
	struct identities *all = e->home;
	uint64_t now = clock_now_ns();
	uint64_t asked_ns = e->asked_ns;
	size_t payer = end_query(e);
	if (code != 0 && code != SL_ENOTFOUND) {
		if (e->kind == KNOWN && now < e->stale_ns) {
			e->until_ns = now + RETRY_MS * NS_PER_MS;
			return IDENTITY_KNOWN;
		}
		entry_free(e);
		return IDENTITY_UNAVAILABLE;
	}
	if (code != 0 || read == NULL || !identity_valid(read, clock_unix_s())) {
		e->until_ns = now + all->cfg.unknown_ms * NS_PER_MS;
		(void)entry_move(e, UNKNOWN);
		return payer < PAYERS && !pay(all, payer, asked_ns) ? IDENTITY_TOO_MANY : IDENTITY_UNKNOWN;
	}
	e->id = *read;
	e->until_ns = now + all->cfg.known_ms * NS_PER_MS;
	e->stale_ns = now + all->cfg.stale_ms * NS_PER_MS;
	(void)entry_move(e, KNOWN);
	return IDENTITY_KNOWN;
}

static void on_answer(struct cache_op *op, const struct cache_result *r)
{
	struct entry *e = list_entry(op, struct entry, op);
	struct identity id = e->id, read = {0};
	struct list waiters;
	int code = r->code == 0 ? identity_read(r->bytes, r->n, &read) : r->code;
	if (code == SL_EINVAL && r->code == 0) {
		log_warn("a stored key has an invalid record");
		code = SL_ENOTFOUND;
	}
	if (code == 0)
		id = read;
	list_init(&waiters);
	list_move_all(&e->waiters, &waiters);
	/* settle may free the entry, and a waiter may look the key up again. */
	enum identity_verdict v = settle(e, code, &read);
	call_waiters(&waiters, v, v == IDENTITY_KNOWN ? &id : NULL);
}

static void ask(struct entry *e)
{
	struct cache_key key;
	identity_key(&key, e->digest);
	cache_get(e->home->client, &e->op, &key, IDENTITY_VERSION, on_answer);
}

enum identity_verdict identities_find(struct identities *all, const uint8_t digest[IDENTITY_DIGEST_BYTES],
				      const struct net_addr *from, struct identity_wait *w, const struct identity **out)
{
	struct entry *e = find(all, digest);
	uint64_t now = clock_now_ns();
	if (e != NULL && e->kind != NEW && now < e->until_ns) {
		if (e->kind == UNKNOWN || !identity_valid(&e->id, clock_unix_s()))
			return IDENTITY_UNKNOWN;
		(void)entry_move(e, KNOWN); /* to the end of the list */
		*out = &e->id;
		return IDENTITY_KNOWN;
	}
	if (e == NULL || !cache_op_busy(&e->op)) {
		/* A key that was valid a moment ago is always queried. */
		size_t payer = e != NULL && e->kind == KNOWN ? PAYERS : payer_of(all, from);
		if (payer < PAYERS && !may_ask(all, payer))
			return IDENTITY_TOO_MANY;
		if (e == NULL)
			e = entry_create(all, digest);
		if (e == NULL)
			return IDENTITY_UNAVAILABLE;
		e->payer = payer;
		e->asked_ns = now;
		if (payer < PAYERS)
			all->payers[payer].n_asked++;
		ask(e);
	}
	list_push_back(&e->waiters, &w->node);
	return IDENTITY_ASKED;
}

void identity_wait_cancel(struct identity_wait *w) { list_remove(&w->node); }

struct identities_counts identities_count(const struct identities *all)
{
	return (struct identities_counts){all->n[KNOWN], all->n[UNKNOWN], all->n[NEW]};
}

struct identities *identities_create(struct cache_client *client, const struct identities_config *cfg)
{
	struct identities *all = sl_zalloc(sizeof *all);
	if (all == NULL)
		return NULL;
	all->client = client;
	if (cfg != NULL)
		all->cfg = *cfg;
	else
		identities_config_init(&all->cfg);
	all->seed = all->cfg.seed;
	BUG_IF(all->seed == 0 && RAND_bytes((uint8_t *)&all->seed, sizeof all->seed) != 1, "auth: no random bytes");
	for (int i = 0; i < N_LISTS; i++)
		list_init(&all->lists[i]);
	all->most[NEW] = all->cfg.most_asked;
	all->most[KNOWN] = all->cfg.most_known;
	all->most[UNKNOWN] = all->cfg.most_unknown;
	return all;
}

void identities_destroy(struct identities *all)
{
	if (all == NULL)
		return;
	for (int i = 0; i < N_LISTS; i++)
		while (!list_empty(&all->lists[i]))
			entry_free(list_entry(all->lists[i].next, struct entry, age));
	sl_free(all);
}
