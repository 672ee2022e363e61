/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters of running generations outlive a reload: a key keeps its cell, so running generations count against the new
 * limit too. Cells are reference-counted; the last set of keys that uses a cell frees it.
 */
#define LOG_SUBSYSTEM LOG_ADMIN

#include "gateway/auth/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/hex.h"
#include "base/log.h"
#include "gateway/auth/auth_cell.h"
#include "gateway/auth/dev_keys.h"

enum { MAX_KEY_BYTES = 512, DIGEST_SHOWN = 6 };

struct auth {
	EVP_MD *sha256; /* fetched once: fetching costs more than a digest */
	struct auth_key *keys;
	char **origins; /* of each key; NULL: any */
	size_t n;
	const struct auth *before; /* during creation: the set whose cells are reused */
};

static bool tier_name_is(const struct auth_key *a, const struct auth_key *b)
{
	if (a->tier == NULL || b->tier == NULL)
		return a->tier == b->tier;
	return strcmp(a->tier->name, b->tier->name) == 0;
}

static struct count_cell *cell_for(const struct auth *before, const uint8_t *digest)
{
	for (size_t i = 0; before != NULL && i < before->n; i++)
		if (memcmp(before->keys[i].digest, digest, AUTH_DIGEST_BYTES) == 0)
			return count_cell_ref(count_cell_of(&before->keys[i]));
	return count_cell_create();
}

/* The list joined with blanks, as in auth_key; NULL: no memory. */
static char *join(const struct conf_strings *list)
{
	size_t n = 1;
	for (size_t i = 0; i < list->n; i++)
		n += strlen(list->items[i]) + 1;
	char *out = sl_zalloc(n), *at = out;
	for (size_t i = 0; out != NULL && i < list->n; i++) {
		size_t len = strlen(list->items[i]);
		if (i > 0)
			*at++ = ' ';
		memcpy(at, list->items[i], len);
		at += len;
	}
	return out;
}

static int add(struct auth *a, const struct gw_config *cfg, const char *name, const char *tier,
	       const struct conf_strings *origins, const uint8_t *digest, struct sl_err *err)
{
	struct auth_key *k = &a->keys[a->n];
	k->name = name;
	k->tenant_name = k->subject = k->origins = "";
	k->tier = auth_tier(cfg, tier);
	if (k->tier == NULL && strcmp(tier, "admin") != 0)
		return sl_errf(err, SL_EINVAL, "gateway.keys.%s.tier: there is no tier \"%s\"", name, tier);
	struct count_cell *cell = cell_for(a->before, digest);
	char *list = origins->n > 0 && cell != NULL ? join(origins) : NULL;
	if (cell == NULL || (list == NULL && origins->n > 0)) {
		count_cell_unref(cell, name);
		return sl_errf(err, SL_ENOMEM, "no memory for the keys");
	}
	a->origins[a->n] = list;
	if (list != NULL)
		k->origins = list;
	count_cell_use(cell, k);
	memcpy(k->digest, digest, AUTH_DIGEST_BYTES);
	memcpy(&k->tenant, digest, sizeof k->tenant);
	a->n++;
	return 0;
}

static int add_dev_keys(struct auth *a, const struct gw_config *cfg, struct sl_err *err)
{
	static const char *const tiers[GW_N_DEV_KEYS] = {"free", "paid", "admin"};
	static const char *const names[GW_N_DEV_KEYS] = {"dev-free", "dev-paid", "dev-admin"};
	const struct conf_strings any = {0};
	struct gw_dev_keys keys;
	int rc = gw_dev_keys_ensure(cfg->state_dir, &keys, err);
	for (int i = 0; i < GW_N_DEV_KEYS && rc == 0; i++) {
		uint8_t digest[AUTH_DIGEST_BYTES];
		SHA256((const uint8_t *)keys.key[i], strlen(keys.key[i]), digest);
		rc = add(a, cfg, names[i], tiers[i], &any, digest, err);
	}
	OPENSSL_cleanse(&keys, sizeof keys);
	return rc;
}

/* Those of `of` that `in` does not have. */
static void log_missing(const struct auth *of, const struct auth *in, const char *what)
{
	for (size_t i = 0; i < of->n; i++) {
		const struct auth_key *k = &of->keys[i];
		char digest[2 * DIGEST_SHOWN + 1];
		bool found = false;
		for (size_t n = 0; n < in->n && !found; n++)
			found = memcmp(in->keys[n].digest, k->digest, AUTH_DIGEST_BYTES) == 0 &&
				tier_name_is(&in->keys[n], k);
		hex_put(k->digest, DIGEST_SHOWN, digest);
		if (!found)
			log_info("keys: %s (sha256 %s) of the tier %s is %s", k->name, digest,
				 k->tier != NULL ? k->tier->name : "admin", what);
	}
}

void auth_log_changes(const struct auth *before, const struct auth *now)
{
	log_missing(before, now, "removed");
	log_missing(now, before, "added");
}

int auth_create(const struct gw_config *cfg, const struct auth *before, struct auth **out, struct sl_err *err)
{
	struct auth *a = sl_zalloc(sizeof *a);
	if (a != NULL) {
		a->keys = sl_zalloc_n(cfg->keys.n + GW_N_DEV_KEYS, sizeof *a->keys);
		a->origins = sl_zalloc_n(cfg->keys.n + GW_N_DEV_KEYS, sizeof *a->origins);
		a->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	}
	if (a == NULL || a->keys == NULL || a->origins == NULL || a->sha256 == NULL) {
		auth_destroy(a);
		return sl_errf(err, SL_ENOMEM, "no memory for the keys");
	}
	const struct gw_key_config *keys = cfg->keys.items;
	int rc = 0;
	a->before = before;
	for (size_t i = 0; i < cfg->keys.n && rc == 0; i++) {
		uint8_t digest[AUTH_DIGEST_BYTES];
		rc = hex_get(keys[i].sha256, digest, AUTH_DIGEST_BYTES)
			 ? add(a, cfg, keys[i].name, keys[i].tier, &keys[i].origins, digest, err)
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
		count_cell_unref(count_cell_of(&a->keys[i]), a->keys[i].name);
		sl_free(a->origins[i]);
	}
	sl_free(a->origins);
	EVP_MD_free(a->sha256);
	sl_free(a->keys);
	sl_free(a);
}

/* Elsewhere the field is none of ours: a proxy may have one of its own. */
static const char *api_key_field(const struct http_request *r)
{
	static const char *const paths[] = {"/v1/messages", "/v1/models"};
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		size_t n = strlen(paths[i]);
		if (strncmp(r->path, paths[i], n) == 0 && (r->path[n] == '\0' || r->path[n] == '/'))
			return http_header(r, "x-api-key");
	}
	return NULL;
}

const char *auth_bearer(const struct http_request *r, bool *given)
{
	const char *value = http_header(r, "authorization"), *key = value == NULL ? api_key_field(r) : NULL;
	*given = value != NULL || key != NULL;
	if (key != NULL)
		return key;
	if (value == NULL || strncasecmp(value, "Bearer ", 7) != 0)
		return NULL;
	value += 7;
	return value + strspn(value, " ");
}

bool auth_digest(struct auth *a, const char *bearer, uint8_t out[AUTH_DIGEST_BYTES])
{
	size_t n = strlen(bearer);
	return n > 0 && n <= MAX_KEY_BYTES && EVP_Digest(bearer, n, out, NULL, a->sha256, NULL) == 1;
}

struct auth_key *auth_find(struct auth *a, const uint8_t digest[AUTH_DIGEST_BYTES])
{
	/* Every key is compared, so the time does not reveal which one nearly matched. */
	struct auth_key *found = NULL;
	for (size_t i = 0; i < a->n; i++)
		if (CRYPTO_memcmp(a->keys[i].digest, digest, AUTH_DIGEST_BYTES) == 0)
			found = &a->keys[i];
	return found;
}

struct auth_key *auth_find_name(struct auth *a, const char *name)
{
	for (size_t i = 0; i < a->n; i++)
		if (strcmp(a->keys[i].name, name) == 0)
			return &a->keys[i];
	return NULL;
}

struct auth_key *auth_check(struct auth *a, const struct http_request *r, bool *given)
{
	uint8_t digest[AUTH_DIGEST_BYTES];
	const char *bearer = auth_bearer(r, given);
	return bearer != NULL && auth_digest(a, bearer, digest) ? auth_find(a, digest) : NULL;
}
