/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys outside a configuration: created for a request from a stored record, a browser token or an address,
 * reference-counted on their thread, and freed with the last answer that uses them.
 *
 * Their counts (generations, open requests) belong to the tenant, across threads: cells are found by the tenant's
 * number in a sharded table with a lock each. The first key of a tenant creates its cell, the last one frees it, so the
 * table holds only cells in use. Cells of configured keys are not in the table: their set holds them.
 */
#include <openssl/sha.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "gateway/auth/auth_cell.h"
#include "gateway/auth/cors.h"

enum { SHARDS = 32, SHARD_BUCKETS = 64, ORIGIN_BYTES = 256 };

struct count_cell {
	atomic_int n_running, n_open;
	atomic_int users;
	bool listed; /* in the table; then the shard's lock guards users */
	uint64_t tenant;
	struct count_cell *next;
};

static struct shard {
	pthread_mutex_t lock;
	struct count_cell *buckets[SHARD_BUCKETS];
} shards[SHARDS];

__attribute__((constructor)) static void init_shards(void)
{
	for (int i = 0; i < SHARDS; i++)
		pthread_mutex_init(&shards[i].lock, NULL);
}

static struct shard *shard_of(uint64_t tenant) { return &shards[tenant % SHARDS]; }

static struct count_cell **bucket_of(uint64_t tenant)
{
	return &shard_of(tenant)->buckets[tenant / SHARDS % SHARD_BUCKETS];
}

struct count_cell *count_cell_create(void)
{
	struct count_cell *c = sl_zalloc(sizeof *c);
	if (c != NULL)
		atomic_init(&c->users, 1);
	return c;
}

static struct count_cell *cell_of_tenant(uint64_t tenant)
{
	struct shard *sh = shard_of(tenant);
	pthread_mutex_lock(&sh->lock);
	struct count_cell *c = *bucket_of(tenant);
	while (c != NULL && c->tenant != tenant)
		c = c->next;
	if (c != NULL) {
		atomic_fetch_add(&c->users, 1);
	} else if ((c = count_cell_create()) != NULL) {
		c->listed = true;
		c->tenant = tenant;
		c->next = *bucket_of(tenant);
		*bucket_of(tenant) = c;
	}
	pthread_mutex_unlock(&sh->lock);
	return c;
}

struct count_cell *count_cell_ref(struct count_cell *c)
{
	atomic_fetch_add(&c->users, 1);
	return c;
}

/* Removes one user. True: it was the last. */
static bool drop_user(struct count_cell *c)
{
	if (!c->listed)
		return atomic_fetch_sub(&c->users, 1) == 1;
	struct shard *sh = shard_of(c->tenant);
	pthread_mutex_lock(&sh->lock);
	bool last = atomic_fetch_sub(&c->users, 1) == 1;
	if (last) {
		struct count_cell **at = bucket_of(c->tenant);
		while (*at != c)
			at = &(*at)->next;
		*at = c->next;
	}
	pthread_mutex_unlock(&sh->lock);
	return last;
}

void count_cell_unref(struct count_cell *c, const char *name)
{
	if (c == NULL || !drop_user(c))
		return;
	BUG_IF(atomic_load(&c->n_running) != 0, "key %s still runs %d generations", name, atomic_load(&c->n_running));
	BUG_IF(atomic_load(&c->n_open) != 0, "key %s still has %d requests", name, atomic_load(&c->n_open));
	sl_free(c);
}

struct count_cell *count_cell_of(const struct auth_key *k)
{
	return list_entry(k->n_running, struct count_cell, n_running);
}

void count_cell_use(struct count_cell *c, struct auth_key *k)
{
	k->n_running = &c->n_running;
	k->n_open = &c->n_open;
}

/* ---- keys ---- */

/* Copies text to *at and advances it. */
static const char *put(char **at, const char *text)
{
	size_t n = text == NULL ? 0 : strlen(text);
	const char *begin = *at;
	if (n > 0)
		memcpy(*at, text, n);
	(*at)[n] = '\0';
	*at += n + 1;
	return begin;
}

static size_t room_for(const char *text) { return (text == NULL ? 0 : strlen(text)) + 1; }

struct auth_key *auth_key_create(const struct auth_person *p)
{
	size_t texts = room_for(p->name) + room_for(p->tenant_name) + room_for(p->subject) + room_for(p->origins);
	struct auth_key *k = sl_zalloc(sizeof *k + texts);
	struct count_cell *cell = NULL;
	if (k != NULL)
		cell = p->of != NULL ? count_cell_ref(count_cell_of(p->of)) : cell_of_tenant(p->tenant);
	if (cell == NULL) {
		sl_free(k);
		return NULL;
	}
	char *at = (char *)(k + 1);
	k->name = put(&at, p->name);
	k->tenant_name = put(&at, p->tenant_name);
	k->subject = put(&at, p->subject);
	k->origins = put(&at, p->origins);
	if (p->digest != NULL)
		memcpy(k->digest, p->digest, AUTH_DIGEST_BYTES);
	k->kind = p->kind;
	k->tier = p->tier;
	k->tenant = p->tenant;
	k->expires_s = p->expires_s;
	k->refs = 1;
	count_cell_use(cell, k);
	return k;
}

struct auth_key *auth_key_ref(struct auth_key *k)
{
	k->refs += k->refs > 0;
	return k;
}

void auth_key_unref(struct auth_key *k)
{
	if (k == NULL || k->refs == 0 || --k->refs > 0)
		return;
	count_cell_unref(count_cell_of(k), k->name);
	sl_free(k);
}

uint64_t auth_tenant_number(const char *kind, const void *name, size_t n)
{
	uint8_t digest[SHA256_DIGEST_LENGTH], text[256];
	size_t before = strlen(kind);
	uint64_t number;
	BUG_IF(before + n > sizeof text, "auth: a tenant's name of %zu bytes", n);
	memcpy(text, kind, before);
	memcpy(text + before, name, n);
	SHA256(text, before + n, digest);
	memcpy(&number, digest, sizeof number);
	return number;
}

const struct gw_tier_config *auth_tier(const struct gw_config *cfg, const char *name)
{
	const struct gw_tier_config *tiers = cfg->tiers.items;
	for (size_t i = 0; i < cfg->tiers.n; i++)
		if (strcmp(tiers[i].name, name) == 0)
			return &tiers[i];
	return NULL;
}

bool auth_tier_may(const struct gw_tier_config *tier, const char *model)
{
	for (size_t i = 0; i < tier->models.n; i++)
		if (strcmp(tier->models.items[i], model) == 0)
			return true;
	return tier->models.n == 0;
}

static bool has(const struct conf_strings *list, const char *text)
{
	for (size_t i = 0; i < list->n; i++)
		if (strcmp(list->items[i], text) == 0)
			return true;
	return list->n == 0;
}

/* The entry of an adapter's own name, else that of its base; NULL: none. */
static const struct gw_grant *grant_of(const struct gw_grants *g, const char *model)
{
	const struct gw_grant *found = NULL;
	for (size_t i = 0; i < g->n; i++) {
		const struct gw_grant *it = &g->all[i];
		size_t n = strlen(it->name);
		if (!it->prefix && strcmp(it->name, model) == 0)
			return it;
		if (it->prefix && found == NULL && strncmp(it->name, model, n) == 0 && model[n] == ':')
			found = it;
	}
	return found;
}

bool auth_may(const struct gw_config *cfg, const struct auth_key *key, const char *model)
{
	const struct gw_grant *g = grant_of(&cfg->grants, model);
	const char *tenant = key->tenant_name != NULL && key->tenant_name[0] != '\0' ? key->tenant_name : key->name;
	return auth_tier_may(key->tier, model) &&
	       (g == NULL || (has(g->tiers, key->tier->name) && has(g->tenants, tenant)));
}

bool auth_origin_allowed(const char *origins, const char *origin)
{
	if (origins == NULL || origins[0] == '\0')
		return true;
	while (*origins != '\0') {
		char entry[ORIGIN_BYTES];
		size_t n = strcspn(origins, " ");
		if (n > 0 && n < sizeof entry) {
			memcpy(entry, origins, n);
			entry[n] = '\0';
			if (cors_matches(entry, origin))
				return true;
		}
		origins += n;
		origins += strspn(origins, " ");
	}
	return false;
}
