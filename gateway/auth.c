/* SPDX-License-Identifier: Apache-2.0
 *
 * The counters of running generations outlive a reload: a key that was there before goes on with the
 * cell it had, so what runs counts against the new limit too. Cells are counted; the last set of
 * keys that uses one frees it.
 */
#include "gateway/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"

enum { MAX_KEY_BYTES = 512 };

struct count_cell {
	atomic_int n_running, n_open;
	atomic_int users; /* sets of keys */
};

struct auth {
	EVP_MD *sha256; /* found once: finding it costs more than a digest */
	struct auth_key *keys;
	size_t n;
	const struct auth *before; /* while it is made: whose cells are taken over */
};

static struct count_cell *cell_of(const struct auth_key *k)
{
	return (struct count_cell *)(void *)((char *)k->n_running -
					     offsetof(struct count_cell, n_running));
}

static struct count_cell *cell_for(const struct auth *before, const uint8_t *digest)
{
	for (size_t i = 0; before != NULL && i < before->n; i++) {
		if (memcmp(before->keys[i].digest, digest, AUTH_DIGEST_BYTES) == 0) {
			struct count_cell *same = cell_of(&before->keys[i]);
			atomic_fetch_add(&same->users, 1);
			return same;
		}
	}
	struct count_cell *cell = sl_zalloc(sizeof *cell);
	if (cell != NULL)
		atomic_init(&cell->users, 1);
	return cell;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool digest_from_hex(const char *hex, uint8_t *out)
{
	if (strlen(hex) != 2 * AUTH_DIGEST_BYTES)
		return false;
	for (int i = 0; i < AUTH_DIGEST_BYTES; i++) {
		int hi = hex_digit(hex[2 * i]), lo = hex_digit(hex[2 * i + 1]);
		if (hi < 0 || lo < 0)
			return false;
		out[i] = (uint8_t)(hi << 4 | lo);
	}
	return true;
}

static const struct gw_tier_config *find_tier(const struct gw_config *cfg, const char *name)
{
	const struct gw_tier_config *tiers = cfg->tiers.items;
	for (size_t i = 0; i < cfg->tiers.n; i++)
		if (strcmp(tiers[i].name, name) == 0)
			return &tiers[i];
	return NULL;
}

static int add(struct auth *a, const struct gw_config *cfg, const char *name, const char *tier,
	       const uint8_t *digest, struct sl_err *err)
{
	struct auth_key *k = &a->keys[a->n];
	k->name = name;
	k->tier = find_tier(cfg, tier);
	if (k->tier == NULL && strcmp(tier, "admin") != 0)
		return sl_errf(err, SL_EINVAL, "gateway.keys.%s.tier: there is no tier \"%s\"", name, tier);
	struct count_cell *cell = cell_for(a->before, digest);
	if (cell == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the keys");
	k->n_running = &cell->n_running;
	k->n_open = &cell->n_open;
	memcpy(k->digest, digest, AUTH_DIGEST_BYTES);
	memcpy(&k->tenant, digest, sizeof k->tenant);
	a->n++;
	return 0;
}

static int add_dev_keys(struct auth *a, const struct gw_config *cfg, struct sl_err *err)
{
	static const char *const tiers[GW_N_DEV_KEYS] = {"free", "paid", "admin"};
	static const char *const names[GW_N_DEV_KEYS] = {"dev-free", "dev-paid", "dev-admin"};
	struct gw_dev_keys keys;
	int rc = gw_dev_keys_ensure(cfg->state_dir, &keys, err);
	for (int i = 0; i < GW_N_DEV_KEYS && rc == 0; i++) {
		uint8_t digest[AUTH_DIGEST_BYTES];
		SHA256((const uint8_t *)keys.key[i], strlen(keys.key[i]), digest);
		rc = add(a, cfg, names[i], tiers[i], digest, err);
	}
	OPENSSL_cleanse(&keys, sizeof keys);
	return rc;
}

int auth_create(const struct gw_config *cfg, const struct auth *before, struct auth **out,
		struct sl_err *err)
{
	struct auth *a = sl_zalloc(sizeof *a);
	if (a != NULL) {
		a->keys = sl_zalloc_n(cfg->keys.n + GW_N_DEV_KEYS, sizeof *a->keys);
		a->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	}
	if (a == NULL || a->keys == NULL || a->sha256 == NULL) {
		auth_destroy(a);
		return sl_errf(err, SL_ENOMEM, "no memory for the keys");
	}
	const struct gw_key_config *keys = cfg->keys.items;
	int rc = 0;
	a->before = before;
	for (size_t i = 0; i < cfg->keys.n && rc == 0; i++) {
		uint8_t digest[AUTH_DIGEST_BYTES];
		rc = digest_from_hex(keys[i].sha256, digest)
			 ? add(a, cfg, keys[i].name, keys[i].tier, digest, err)
			 : sl_errf(err, SL_EINVAL, "gateway.keys.%s.sha256: not 64 hex digits", keys[i].name);
	}
	if (rc == 0 && cfg->dev_keys)
		rc = add_dev_keys(a, cfg, err);
	if (rc != 0) {
		auth_destroy(a);
		return rc;
	}
	a->before = NULL;
	*out = a;
	return 0;
}

void auth_destroy(struct auth *a)
{
	if (a == NULL)
		return;
	for (size_t i = 0; i < a->n; i++) {
		struct count_cell *cell = cell_of(&a->keys[i]);
		if (atomic_fetch_sub(&cell->users, 1) > 1)
			continue;
		BUG_IF(atomic_load(&cell->n_running) != 0, "key %s still runs %d generations",
		       a->keys[i].name, atomic_load(&cell->n_running));
		BUG_IF(atomic_load(&cell->n_open) != 0, "key %s still has %d requests", a->keys[i].name,
		       atomic_load(&cell->n_open));
		sl_free(cell);
	}
	EVP_MD_free(a->sha256);
	sl_free(a->keys);
	sl_free(a);
}

struct auth_key *auth_check(struct auth *a, const struct http_request *r, bool *given)
{
	const char *value = http_header(r, "authorization");
	*given = value != NULL;
	if (value == NULL || strncasecmp(value, "Bearer ", 7) != 0)
		return NULL;
	value += 7;
	value += strspn(value, " ");
	size_t n = strlen(value);
	if (n == 0 || n > MAX_KEY_BYTES)
		return NULL;
	uint8_t digest[AUTH_DIGEST_BYTES];
	if (EVP_Digest(value, n, digest, NULL, a->sha256, NULL) != 1)
		return NULL;
	/* Every key is compared, so the time tells nothing about which one nearly matched. */
	struct auth_key *found = NULL;
	for (size_t i = 0; i < a->n; i++)
		if (CRYPTO_memcmp(a->keys[i].digest, digest, sizeof digest) == 0)
			found = &a->keys[i];
	return found;
}
