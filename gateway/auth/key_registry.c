/* SPDX-License-Identifier: Apache-2.0
 *
 * Uses the store's asynchronous interface one operation at a time: the loop runs until the response comes. Expired and
 * revoked records are kept for a month, so that lists still show them.
 */
#include "gateway/auth/key_registry.h"

#include <event2/event.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hex.h"
#include "base/list.h"
#include "gateway/auth/store.h"

enum { PATIENCE_MS = 5000, MOST_KEYS = 65536, RANDOM_BYTES = 24 };
#define MONTH_S INT64_C(2592000)

struct key_registry {
	struct event_base *base;
	struct cache *cache;
	struct cache_client *client;
	struct cache_op op; /* in progress */
	bool ended;
	int code;
	struct sl_buf bytes; /* of the result */
	size_t room;
};

static int open_client(struct key_registry *s, const struct gw_store_settings *settings, struct sl_err *err)
{
	struct cache_config c;
	gw_store_config(settings, &c);
	if (c.store == CACHE_MEMORY || c.address == NULL)
		return sl_errf(err, SL_EINVAL,
			       "the store is the gateway's memory: stored keys need Redis (cache.address, or "
			       "redis-server installed and `sluice serve`); without Redis use gateway.keys");
	c.op_timeout_ms = c.connect_timeout_ms = PATIENCE_MS;
	s->room = c.max_keys_per_tenant;
	int rc = cache_create(&c, NULL, 0, &s->cache, err);
	if (rc == 0 && cache_client_create(s->cache, s->base, &s->client) != 0)
		rc = sl_errf(err, SL_ENOMEM, "no memory");
	return rc;
}

int key_registry_open(const struct gw_store_settings *cfg, struct key_registry **out, struct sl_err *err)
{
	struct key_registry *s = sl_zalloc(sizeof *s);
	if (s == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory");
	signal(SIGPIPE, SIG_IGN);
	buf_init(&s->bytes, (size_t)MOST_KEYS * CACHE_DIGEST_LEN);
	s->base = event_base_new();
	int rc = s->base == NULL ? sl_errf(err, SL_ENOMEM, "no memory") : open_client(s, cfg, err);
	if (rc != 0) {
		key_registry_close(s);
		return rc;
	}
	*out = s;
	return 0;
}

void key_registry_close(struct key_registry *s)
{
	if (s->client != NULL)
		cache_client_destroy(s->client);
	if (s->cache != NULL)
		cache_destroy(s->cache);
	if (s->base != NULL)
		event_base_free(s->base);
	buf_dispose(&s->bytes);
	sl_free(s);
}

size_t key_registry_room(const struct key_registry *s) { return s->room; }

static void on_answer(struct cache_op *op, const struct cache_result *r)
{
	struct key_registry *s = list_entry(op, struct key_registry, op);
	s->ended = true;
	s->code = r->code;
	buf_clear(&s->bytes, SIZE_MAX);
	if (r->code == 0 && r->n > 0)
		s->code = buf_append(&s->bytes, r->bytes, r->n);
	for (size_t i = 0; s->code == 0 && i < r->n_items; i++)
		if (r->items[i].n == CACHE_DIGEST_LEN)
			s->code = buf_append(&s->bytes, r->items[i].bytes, CACHE_DIGEST_LEN);
}

static int wait_for(struct key_registry *s, struct sl_err *err)
{
	while (!s->ended && event_base_loop(s->base, EVLOOP_ONCE) == 0)
		;
	s->ended = false;
	if (s->code == 0 || s->code == SL_ENOTFOUND)
		return s->code;
	return sl_errf(err, s->code, "the store does not respond: %s (%s)", sl_code_name(s->code),
		       cache_client_state_text(s->client));
}

static int read_one(struct key_registry *s, struct stored_key *k, struct sl_err *err)
{
	struct cache_key key;
	int rc = cache_key_from_digest(&key, CACHE_IDENTITY, identity_registry, k->id, CACHE_DIGEST_LEN);
	if (rc != 0)
		return sl_errf(err, rc, "the store lists an invalid key");
	cache_get(s->client, &s->op, &key, IDENTITY_VERSION, on_answer);
	rc = wait_for(s, err);
	return rc == 0 ? identity_read(buf_data(&s->bytes), s->bytes.len, &k->identity) : rc;
}

static int by_age(const void *a, const void *b)
{
	const struct stored_key *x = a, *y = b;
	int64_t older = x->identity.created_s - y->identity.created_s;
	return older != 0 ? (older < 0 ? -1 : 1) : strcmp(x->id, y->id);
}

int key_registry_list(struct key_registry *s, struct stored_key **out, size_t *n, struct sl_err *err)
{
	cache_list(s->client, &s->op, CACHE_IDENTITY, identity_registry, on_answer);
	int rc = wait_for(s, err);
	if (rc != 0 && rc != SL_ENOTFOUND)
		return rc;
	size_t listed = rc == 0 ? s->bytes.len / CACHE_DIGEST_LEN : 0;
	struct stored_key *all = sl_zalloc_n(listed + 1, sizeof *all);
	if (all == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory");
	for (size_t i = 0; i < listed; i++)
		memcpy(all[i].id, buf_data(&s->bytes) + i * CACHE_DIGEST_LEN, CACHE_DIGEST_LEN);
	*n = 0;
	for (size_t i = 0; i < listed; i++) {
		rc = read_one(s, &all[i], err);
		if (rc == 0)
			all[(*n)++] = all[i];
		else if (rc != SL_ENOTFOUND &&
			 rc != SL_EINVAL) { /* deleted meanwhile, or not a record of this version */
			sl_free(all);
			return rc;
		}
	}
	qsort(all, *n, sizeof *all, by_age);
	*out = all;
	return 0;
}

static int put(struct key_registry *s, const struct cache_key *key, const struct identity *id, struct sl_err *err)
{
	struct sl_buf record;
	int64_t ends_s = id->revoked_s != 0 ? id->revoked_s : id->expires_s;
	int64_t keep_s = ends_s == 0 ? 0 : ends_s + MONTH_S - clock_unix_s();
	buf_init(&record, IDENTITY_RECORD_MAX);
	int rc = identity_print(&record, id);
	if (rc != 0) {
		buf_dispose(&record);
		return sl_errf(err, rc, "the record of %s: %s", id->name, sl_code_name(rc));
	}
	if (ends_s != 0 && keep_s < 1)
		keep_s = 1;
	cache_put(s->client, &s->op, key, IDENTITY_VERSION, buf_data(&record), record.len, (uint64_t)keep_s * 1000,
		  on_answer);
	rc = wait_for(s, err);
	buf_dispose(&record);
	return rc;
}

int key_registry_make(struct key_registry *s, struct identity *id, char key[KEY_REGISTRY_KEY_BYTES], struct sl_err *err)
{
	uint8_t random[RANDOM_BYTES], digest[SHA256_DIGEST_LENGTH];
	struct cache_key at;
	if (RAND_bytes(random, sizeof random) != 1)
		return sl_errf(err, SL_EIO, "no random bytes");
	size_t n = (size_t)snprintf(key, KEY_REGISTRY_KEY_BYTES, "sk-sluice-");
	hex_put(random, sizeof random, key + n);
	n += 2 * sizeof random;
	OPENSSL_cleanse(random, sizeof random);
	snprintf(id->start, sizeof id->start, "%.14s", key);
	id->created_s = clock_unix_s();
	SHA256((const uint8_t *)key, n, digest);
	identity_key(&at, digest);
	return put(s, &at, id, err);
}

int key_registry_change(struct key_registry *s, const struct stored_key *k, struct sl_err *err)
{
	struct cache_key key;
	int rc = cache_key_from_digest(&key, CACHE_IDENTITY, identity_registry, k->id, CACHE_DIGEST_LEN);
	return rc == 0 ? put(s, &key, &k->identity, err) : sl_errf(err, rc, "%s is not the id of a stored key", k->id);
}
