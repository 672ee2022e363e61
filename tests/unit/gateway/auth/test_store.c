/* SPDX-License-Identifier: Apache-2.0
 *
 * The store as the configuration wants it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/server/gateway_procs.h"
#include "gateway/auth/store.h"

static void nothing_said_is_memory_with_defaults(void **state)
{
	(void)state;
	struct cache_config want, got;
	cache_config_init(&want);
	gw_store_config(&(struct gw_store_settings){0}, &got);
	assert_memory_equal(&got, &want, sizeof got);
}

static void an_address_is_redis(void **state)
{
	(void)state;
	struct cache_config got;
	struct gw_store_settings s = {.address = (char *)"localhost:6379"};
	gw_store_config(&s, &got);
	assert_int_equal(got.store, CACHE_REDIS);
	assert_string_equal(got.address, "localhost:6379");
	assert_null(got.user);
	s.address = s.user = s.password_file = (char *)"";
	gw_store_config(&s, &got);
	assert_int_equal(got.store, CACHE_MEMORY);
	assert_null(got.address);
	assert_null(got.password_file);
	s.kind = GW_STORE_REDIS; /* then cache_create says what is missing */
	struct cache *c;
	struct sl_err err;
	assert_int_equal(gw_store_create(&s, gateway_procs, GATEWAY_PROCS, &c, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "address"));
}

static void every_number_arrives(void **state)
{
	(void)state;
	struct cache_config got;
	struct gw_store_settings s = {.kind = GW_STORE_MEMORY,
				      .prefix = (char *)"p:",
				      .database = 1,
				      .connect_timeout_ms = 2,
				      .timeout_ms = 4,
				      .backoff_min_ms = 5,
				      .backoff_max_ms = 6,
				      .failures = 7,
				      .operations = 8,
				      .keys_per_tenant = 9,
				      .gateways = 10,
				      .value_bytes = 11,
				      .log_bytes = 12,
				      .memory_bytes = 1 << 20};
	gw_store_config(&s, &got);
	assert_string_equal(got.prefix, "p:");
	assert_int_equal(got.database, 1);
	assert_int_equal(got.connect_timeout_ms, 2);
	assert_int_equal(got.op_timeout_ms, 4);
	assert_int_equal(got.backoff_least_ms, 5);
	assert_int_equal(got.backoff_most_ms, 6);
	assert_int_equal(got.breaker_failures, 7);
	assert_int_equal(got.max_ops, 8);
	assert_int_equal(got.max_keys_per_tenant, 9);
	assert_int_equal(got.n_gateways, 10);
	assert_int_equal(got.max_value_bytes, 11);
	assert_int_equal(got.max_log_bytes, 12);
	assert_int_equal(got.memory_bytes, 1 << 20);
	s.timeout_ms = UINT64_MAX;
	gw_store_config(&s, &got);
	assert_int_equal(got.op_timeout_ms, UINT32_MAX);
	struct cache *c;
	struct sl_err err;
	s.timeout_ms = 4;
	assert_int_equal(gw_store_create(&s, gateway_procs, GATEWAY_PROCS, &c, &err), 0);
	cache_destroy(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nothing_said_is_memory_with_defaults),
	    cmocka_unit_test(an_address_is_redis),
	    cmocka_unit_test(every_number_arrives),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
