/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"

enum { MAX_KEY_BYTES = 512 };

struct auth {
	EVP_MD *sha256; /* found once: finding it costs more than a digest */
	struct auth_key *keys;
	size_t n;
};

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

int auth_create(const struct gw_config *cfg, struct auth **out, struct sl_err *err)
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
	*out = a;
	return 0;
}

void auth_destroy(struct auth *a)
{
	if (a == NULL)
		return;
	for (size_t i = 0; i < a->n; i++)
		BUG_IF(atomic_load(&a->keys[i].running) != 0, "key %s still runs %d generations",
		       a->keys[i].name, atomic_load(&a->keys[i].running));
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
