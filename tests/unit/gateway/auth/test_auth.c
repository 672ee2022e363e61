/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys: the development keys' file, and the look-up of a request's key.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/auth/auth.h"
#include "gateway/auth/dev_keys.h"

/* One field, or none. */
static struct auth_key *check(struct auth *a, const char *value)
{
	struct http_field field = {"authorization", value};
	struct http_request r = {.path = "/v1/messages", .fields = &field, .n_fields = value != NULL};
	bool given;
	struct auth_key *k = auth_check(a, &r, &given);
	assert_true(given == (value != NULL));
	return k;
}

/* x-api-key counts on the paths of clients that send it, and only without an Authorization field. */
static void key_of_anthropics_clients(void **state)
{
	static const char *const paths[] = {"/v1/messages", "/v1/messages/count_tokens", "/v1/models", "/v1/models/m"};
	static const char *const others[] = {"/v1/messagesx", "/v1/chat/completions", "/api/chat", "/v1", "/"};
	struct http_field fields[] = {{"x-api-key", "sk-1"}, {"authorization", "Bearer sk-2"}};
	struct http_request r = {.fields = fields, .n_fields = 1};
	bool given;
	(void)state;
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		r.path = paths[i];
		r.n_fields = 1;
		assert_string_equal(auth_bearer(&r, &given), "sk-1");
		assert_true(given);
		r.n_fields = 2;
		assert_string_equal(auth_bearer(&r, &given), "sk-2");
		fields[1].value = "Basic eA==";
		assert_null(auth_bearer(&r, &given));
		assert_true(given);
		fields[1].value = "Bearer sk-2";
	}
	r.n_fields = 1;
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		r.path = others[i];
		assert_null(auth_bearer(&r, &given));
		assert_false(given);
	}
}

static void development_keys(void **state)
{
	char dir[] = "/tmp/sluice-auth-XXXXXX", path[64], aside[64];
	struct gw_dev_keys first, second;
	struct sl_err err = {0};
	struct stat st;
	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/dev-keys.yaml", dir);
	snprintf(aside, sizeof aside, "%s/aside", dir);
	assert_int_equal(gw_dev_keys_ensure(dir, &first, &err), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(strlen(first.key[GW_DEV_FREE]), strlen("sk-sluice-free-") + 32);
	assert_int_equal(strncmp(first.key[GW_DEV_ADMIN], "sk-sluice-admin-", 16), 0);
	assert_int_equal(gw_dev_keys_ensure(dir, &second, &err), 0);
	for (int i = 0; i < GW_N_DEV_KEYS; i++)
		assert_string_equal(first.key[i], second.key[i]);

	struct gw_tier_config tiers[] = {{.name = (char *)"free"}, {.name = (char *)"paid"}};
	struct gw_config cfg = {.state_dir = dir, .dev_keys = true, .tiers = {.items = tiers, .n = 2}};
	struct auth *a;
	char value[128];
	assert_int_equal(auth_create(&cfg, NULL, &a, &err), 0);
	snprintf(value, sizeof value, "Bearer %s", first.key[GW_DEV_PAID]);
	assert_ptr_equal(check(a, value)->tier, &tiers[1]);
	snprintf(value, sizeof value, "bearer   %s", first.key[GW_DEV_ADMIN]);
	assert_null(check(a, value)->tier);
	snprintf(value, sizeof value, "Bearer %s ", first.key[GW_DEV_PAID]);
	assert_null(check(a, value));
	value[strlen(value) - 2] = '\0';
	assert_null(check(a, value));
	assert_null(check(a, first.key[GW_DEV_PAID]));
	assert_null(check(a, "Bearer "));
	assert_null(check(a, "Basic x"));
	assert_null(check(a, NULL));
	auth_destroy(a);

	/* A file that others may read, and a link in its place, are refused. */
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(gw_dev_keys_ensure(dir, &second, &err), SL_EINVAL);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(rename(path, aside), 0);
	assert_int_equal(symlink(aside, path), 0);
	assert_true(gw_dev_keys_ensure(dir, &second, &err) < 0);
	unlink(path);
	unlink(aside);
	rmdir(dir);
}

static void configured_keys(void **state)
{
	struct gw_tier_config tier = {.name = (char *)"free"};
	/* SHA-256 of "abc" (FIPS 180-4, example B.1). */
	struct gw_key_config key = {.name = (char *)"k",
				    .tier = (char *)"free",
				    .sha256 =
					(char *)"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"};
	struct gw_config cfg = {.tiers = {.items = &tier, .n = 1}, .keys = {.items = &key, .n = 1}};
	struct auth *a;
	struct sl_err err = {0};
	(void)state;
	assert_int_equal(auth_create(&cfg, NULL, &a, &err), 0);
	assert_string_equal(check(a, "Bearer abc")->name, "k");
	assert_null(check(a, "Bearer abd"));
	auth_destroy(a);
	key.tier = (char *)"gold";
	assert_int_equal(auth_create(&cfg, NULL, &a, &err), SL_EINVAL);
	key.tier = (char *)"free";
	key.sha256 = (char *)"ba78";
	assert_int_equal(auth_create(&cfg, NULL, &a, &err), SL_EINVAL);
}

/* Counts of keys that stay go on over reloads, in whatever order states of the configuration go. */
static void counts_outlive_a_reload(void **state)
{
	struct gw_tier_config tier = {.name = (char *)"free"};
	struct gw_key_config keys[] = {
	    {.name = (char *)"k",
	     .tier = (char *)"free",
	     .sha256 = (char *)"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
	    {.name = (char *)"other",
	     .tier = (char *)"free",
	     .sha256 = (char *)"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}};
	struct gw_config cfg = {.tiers = {.items = &tier, .n = 1}, .keys = {.items = keys, .n = 2}};
	struct auth *a, *b, *c;
	struct sl_err err = {0};
	(void)state;
	assert_int_equal(auth_create(&cfg, NULL, &a, &err), 0);
	struct auth_key *in_a = check(a, "Bearer abc");
	atomic_fetch_add(in_a->n_running, 1);
	keys[0].name = (char *)"renamed";
	cfg.keys.n = 1;
	assert_int_equal(auth_create(&cfg, a, &b, &err), 0);
	struct auth_key *in_b = check(b, "Bearer abc");
	assert_string_equal(in_b->name, "renamed");
	assert_ptr_equal(in_b->n_running, in_a->n_running);
	cfg.keys.n = 0;
	assert_int_equal(auth_create(&cfg, b, &c, &err), 0);
	assert_null(check(c, "Bearer abc"));
	atomic_fetch_sub(in_a->n_running, 1);
	auth_destroy(a);
	assert_int_equal(atomic_load(in_b->n_running), 0);
	auth_destroy(b);
	auth_destroy(c);
}

/* Adapters of the configuration by their own entry, others of a folder by their base's; by tier and by tenant. */
static void grants(void **state)
{
	(void)state;
	char *paid[] = {"paid"}, *acme[] = {"acme", "dev"}, *listed[] = {"base", "base:a", "base:b"};
	const struct conf_strings all = {0}, tiers = {paid, 1}, tenants = {acme, 2};
	const struct gw_grant rules[] = {
	    {"base:a", false, &all, &tenants}, {"base:open", false, &all, &all}, {"base", true, &tiers, &all}};
	struct gw_config cfg = {.grants = {rules, 3}};
	struct gw_tier_config of_paid = {.name = "paid"}, of_free = {.name = "free"};
	const struct auth_key dev = {.name = "dev", .tenant_name = "", .tier = &of_paid},
			      stored = {.name = "k1", .tenant_name = "acme", .tier = &of_free},
			      other = {.name = "acme", .tenant_name = "corp", .tier = &of_free};
	assert_true(auth_may(&cfg, &dev, "base") && auth_may(&cfg, &other, "base"));
	assert_true(auth_may(&cfg, &dev, "base:a") && auth_may(&cfg, &stored, "base:a"));
	assert_false(auth_may(&cfg, &other, "base:a")); /* a tenant, not a key of that name */
	assert_true(auth_may(&cfg, &other, "base:open"));
	assert_true(auth_may(&cfg, &dev, "base:new"));
	assert_false(auth_may(&cfg, &stored, "base:new"));
	assert_true(auth_may(&cfg, &stored, "bases:new")); /* of another base */
	of_paid.models = (struct conf_strings){listed, 3};
	assert_true(auth_may(&cfg, &dev, "base:a"));
	assert_false(auth_may(&cfg, &dev, "base:new")); /* what the tier lists comes first */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(grants),
	    cmocka_unit_test(key_of_anthropics_clients),
	    cmocka_unit_test(development_keys),
	    cmocka_unit_test(configured_keys),
	    cmocka_unit_test(counts_outlive_a_reload),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
