/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash table in shards with one lock each: any thread may accept connections of an address, and two addresses rarely
 * share a shard. An entry is created by the first count and freed by the last one, so the table never exceeds what is
 * open and needs no sweep. The hash is keyed by a random number of this process, so clients can't construct long
 * chains.
 *
 * Thread: any.
 */
#include "gateway/transport/addr_count.h"

#include <openssl/rand.h>
#include <pthread.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/err.h"

enum { SHARDS = 64, SHARD_BUCKETS = 256 };

struct addr_count {
	struct addr_count *next;
	struct net_addr group;
	int64_t n[ADDR_N_KINDS];
	uint32_t shard, bucket;
};

static struct shard {
	pthread_mutex_t lock;
	size_t n;
	struct addr_count *buckets[SHARD_BUCKETS];
} shards[SHARDS];
static uint64_t seed;

__attribute__((constructor)) static void init_shards(void)
{
	for (int i = 0; i < SHARDS; i++)
		pthread_mutex_init(&shards[i].lock, NULL);
}

static void make_seed(void)
{
	if (RAND_bytes((uint8_t *)&seed, sizeof seed) != 1)
		BUG("no random numbers");
}

int64_t addr_take(const struct net_addr *a, enum addr_kind kind, struct addr_count **out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, make_seed);
	struct net_addr group = net_addr_group(a);
	uint64_t hash = XXH3_64bits_withSeed(&group, sizeof group, seed);
	uint32_t shard = (uint32_t)(hash % SHARDS), bucket = (uint32_t)(hash / SHARDS % SHARD_BUCKETS);
	struct shard *sh = &shards[shard];
	int64_t n = 0;
	pthread_mutex_lock(&sh->lock);
	struct addr_count *c = sh->buckets[bucket];
	while (c != NULL && !net_addr_equal(&c->group, &group))
		c = c->next;
	if (c == NULL && (c = sl_zalloc(sizeof *c)) != NULL) {
		c->group = group;
		c->shard = shard;
		c->bucket = bucket;
		c->next = sh->buckets[bucket];
		sh->buckets[bucket] = c;
		sh->n++;
	}
	if (c != NULL)
		n = ++c->n[kind];
	pthread_mutex_unlock(&sh->lock);
	*out = c;
	return n;
}

void addr_give(struct addr_count *c, enum addr_kind kind)
{
	if (c == NULL)
		return;
	struct shard *sh = &shards[c->shard];
	pthread_mutex_lock(&sh->lock);
	BUG_IF(c->n[kind] <= 0, "an address counts %lld", (long long)c->n[kind] - 1);
	bool last = --c->n[kind] == 0;
	for (int k = 0; k < ADDR_N_KINDS; k++)
		last = last && c->n[k] == 0;
	if (last) {
		struct addr_count **at = &sh->buckets[c->bucket];
		while (*at != c)
			at = &(*at)->next;
		*at = c->next;
		sh->n--;
		sl_free(c);
	}
	pthread_mutex_unlock(&sh->lock);
}

size_t addr_count_entries(void)
{
	size_t n = 0;
	for (int i = 0; i < SHARDS; i++) {
		pthread_mutex_lock(&shards[i].lock);
		n += shards[i].n;
		pthread_mutex_unlock(&shards[i].lock);
	}
	return n;
}
