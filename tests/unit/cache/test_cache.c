/* SPDX-License-Identifier: Apache-2.0
 *
 * What values, logs and lists mean: one table of tests over the memory store and over a real redis-server, so
 * that both mean the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/cache/cache_world.h"

/* ---- values ---- */

static void a_value_is_read_as_it_was_written(void **state)
{
	struct world *w = world_of(state);
	for (int kind = 0; kind < CACHE_N_KINDS; kind++) {
		struct cache_key key;
		rig_key(&key, (enum cache_kind)kind, "k");
		assert_null(get(w, &key));
		assert_int_equal(put(w, &key, "hello", 0), 0);
		assert_string_equal(get(w, &key), "hello");
		assert_int_equal(put(w, &key, "", 1000), 0);
		assert_string_equal(get(w, &key), "");
		uint8_t bytes[256];
		for (size_t i = 0; i < sizeof bytes; i++)
			bytes[i] = (uint8_t)i;
		assert_int_equal(put_v(w, &key, 255, bytes, sizeof bytes, 0), 0);
		assert_memory_equal(get_v(w, &key, 255), bytes, sizeof bytes);
	}
}

static void another_version_is_nothing(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	rig_key(&key, CACHE_SESSION, "k");
	assert_int_equal(put_v(w, &key, 7, "old", 3, 0), 0);
	assert_null(get_v(w, &key, 8));
	assert_string_equal(get_v(w, &key, 7), "old");
}

static void the_first_to_put_wins(void **state)
{
	struct world *w = world_of(state);
	static const enum cache_kind kinds[] = {CACHE_SHARED, CACHE_SESSION};
	for (int i = 0; i < 2; i++) {
		struct cache_key key;
		rig_key(&key, kinds[i], "k");
		struct answer a = {0};
		cache_put_absent(w->g.cl, &a.op, &key, 1, "first", 5, 5000, on_answer);
		assert_int_equal(code_of(w, &a), 0);
		assert_false(a.r.found);
		answer_reset(&a);
		cache_put_absent(w->g.cl, &a.op, &key, 1, "second", 6, 5000, on_answer);
		assert_int_equal(code_of(w, &a), 0);
		assert_true(a.r.found);
		assert_int_equal(a.r.n, 5);
		assert_memory_equal(a.r.bytes, "first", 5);
		answer_reset(&a);
		cache_put_absent(w->g.cl, &a.op, &key, 2, "third", 5, 5000, on_answer);
		assert_int_equal(code_of(w, &a), 0);
		assert_false(a.r.found);
		answer_reset(&a);
		assert_string_equal(get_v(w, &key, 2), "third");
		pass_ms(w, 6000);
		cache_put_absent(w->g.cl, &a.op, &key, 2, "later", 5, 0, on_answer);
		assert_int_equal(code_of(w, &a), 0);
		assert_false(a.r.found);
		answer_reset(&a);
	}
}

static void what_is_deleted_is_gone(void **state)
{
	struct world *w = world_of(state);
	for (int kind = 0; kind < CACHE_N_KINDS; kind++) {
		struct cache_key key;
		struct cache_result r;
		rig_key(&key, (enum cache_kind)kind, "k");
		assert_false(forget(w, &key));
		assert_int_equal(put(w, &key, "x", 0), 0);
		assert_true(forget(w, &key));
		assert_null(get(w, &key));
		assert_false(forget(w, &key));
		assert_int_equal(append(w, &key, 0, 1, "x", &r), 0);
		assert_true(forget(w, &key));
		assert_false(forget(w, &key));
	}
}

static void a_life_ends(void **state)
{
	struct world *w = world_of(state);
	struct cache_key a, b, c;
	rig_key(&a, CACHE_SESSION, "a");
	rig_key(&b, CACHE_SHARED, "b");
	rig_key(&c, CACHE_SHARED, "c");
	put(w, &a, "a", 100000);
	put(w, &b, "b", 200000);
	put(w, &c, "c", 100000);
	put(w, &c, "for ever", 0);
	pass_ms(w, 60000);
	assert_non_null(get(w, &a));
	pass_ms(w, 60000);
	assert_null(get(w, &a));
	assert_non_null(get(w, &b));
	pass_ms(w, 100000);
	assert_null(get(w, &b));
	pass_ms(w, UINT64_C(1) << 30);
	assert_string_equal(get(w, &c), "for ever");
}

static void a_new_value_has_a_new_life(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	rig_key(&key, CACHE_IDENTITY, "k");
	put(w, &key, "1", 100000);
	pass_ms(w, 60000);
	put(w, &key, "2", 100000);
	pass_ms(w, 60000);
	assert_string_equal(get(w, &key), "2");
	put(w, &key, "3", 10000);
	pass_ms(w, 20000);
	assert_null(get(w, &key));
}

static void too_large_is_refused(void **state)
{
	struct world *w = world_of(state);
	static char big[5000];
	struct cache_key key;
	rig_key(&key, CACHE_SESSION, "k");
	assert_int_equal(put_v(w, &key, 1, big, 4096, 0), 0);
	assert_int_equal(put_v(w, &key, 1, big, 4097, 0), SL_ELIMIT);
	struct answer a = {0};
	cache_log_append(w->g.cl, &a.op, &key, 0, 1, big, 4097, 1000, on_answer);
	assert_int_equal(code_of(w, &a), SL_ELIMIT);
	answer_reset(&a);
	cache_log_append(w->g.cl, &a.op, &key, 0, 0, big, 1, 1000, on_answer);
	assert_int_equal(code_of(w, &a), SL_EINVAL);
	answer_reset(&a);
	cache_log_append(w->g.cl, &a.op, &key, 0, 1, big, 1, 0, on_answer);
	assert_int_equal(code_of(w, &a), SL_EINVAL);
	answer_reset(&a);
	cache_list(w->g.cl, &a.op, CACHE_LIMIT, "tenant", on_answer);
	assert_int_equal(code_of(w, &a), SL_EINVAL);
	answer_reset(&a);
}

/* ---- logs ---- */

static void a_log_is_read_in_its_batches(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	struct cache_result r;
	struct answer a = {0};
	rig_key(&key, CACHE_REPLAY, "log");
	read_log(w, &a, &key, 0, 1000);
	assert_int_equal(a.r.code, SL_ENOTFOUND);
	answer_reset(&a);
	assert_int_equal(append(w, &key, 5, 3, "five", &r), 0);
	assert_int_equal(r.first_seq, 5);
	assert_int_equal(r.next_seq, 8);
	assert_int_equal(append(w, &key, 8, 1, "", &r), 0);
	assert_int_equal(append(w, &key, 9, 4, "nine", &r), 0);
	assert_int_equal(r.first_seq, 5);
	assert_int_equal(r.next_seq, 13);

	read_log(w, &a, &key, 6, 1000);
	assert_int_equal(a.r.code, 0);
	assert_int_equal(a.r.first_seq, 5);
	assert_int_equal(a.r.next_seq, 13);
	assert_int_equal(a.r.n_items, 3);
	assert_int_equal(a.r.items[0].first_seq, 5);
	assert_int_equal(a.r.items[0].n_items, 3);
	assert_memory_equal(a.r.items[0].bytes, "five", 4);
	assert_int_equal(a.r.items[1].first_seq, 8);
	assert_int_equal(a.r.items[1].n, 0);
	assert_int_equal(a.r.items[2].n_items, 4);
	assert_int_equal(a.r.items[2].n, 4);
	answer_reset(&a);

	read_log(w, &a, &key, 8, 3); /* at least one, then what fits */
	assert_int_equal(a.r.n_items, 1);
	assert_int_equal(a.r.items[0].first_seq, 8);
	answer_reset(&a);
	read_log(w, &a, &key, 12, 0);
	assert_int_equal(a.r.n_items, 1);
	assert_int_equal(a.r.items[0].first_seq, 9);
	answer_reset(&a);
	read_log(w, &a, &key, 13, 1000);
	assert_int_equal(a.r.code, 0);
	assert_int_equal(a.r.n_items, 0);
	answer_reset(&a);
	read_log(w, &a, &key, 4, 1000);
	assert_int_equal(a.r.code, SL_ERANGE);
	assert_int_equal(a.r.first_seq, 5);
	answer_reset(&a);
	read_log(w, &a, &key, 14, 1000);
	assert_int_equal(a.r.code, SL_ERANGE);
	assert_int_equal(a.r.next_seq, 13);
	answer_reset(&a);
}

static void an_append_may_be_repeated_and_leaves_no_gap(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	struct cache_result r;
	rig_key(&key, CACHE_REPLAY, "log");
	assert_int_equal(append(w, &key, 0, 10, "a", &r), 0);
	assert_int_equal(append(w, &key, 10, 10, "b", &r), 0);
	assert_int_equal(append(w, &key, 10, 10, "b", &r), 0); /* told again */
	assert_int_equal(r.next_seq, 20);
	assert_int_equal(append(w, &key, 0, 10, "a", &r), 0);
	assert_int_equal(r.next_seq, 20);
	assert_int_equal(append(w, &key, 15, 10, "c", &r), SL_ERANGE);
	assert_int_equal(r.next_seq, 20);
	assert_int_equal(append(w, &key, 21, 1, "c", &r), SL_ERANGE);
	struct answer a = {0};
	read_log(w, &a, &key, 0, 1000);
	assert_int_equal(a.r.n_items, 2);
	answer_reset(&a);
}

static void a_long_log_is_read_from_anywhere_and_trimmed(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	struct cache_result r;
	struct answer a = {0};
	rig_key(&key, CACHE_REPLAY, "log");
	char text[64];
	for (int i = 0; i < 100; i++) {
		snprintf(text, sizeof text, "batch %03d", i);
		assert_int_equal(append(w, &key, (uint64_t)i * 2, 2, text, &r), 0);
	}
	for (uint64_t from = 0; from < 200; from += 7) {
		read_log(w, &a, &key, from, 4096);
		assert_int_equal(a.r.code, 0);
		assert_int_equal(a.r.n_items, 100 - from / 2);
		for (size_t i = 0; i < a.r.n_items; i++) {
			assert_int_equal(a.r.items[i].first_seq, from / 2 * 2 + 2 * i);
			snprintf(text, sizeof text, "batch %03d", (int)(from / 2 + i));
			assert_memory_equal(a.r.items[i].bytes, text, a.r.items[i].n);
		}
		answer_reset(&a);
	}
	static char big[4000];
	memset(big, 'x', sizeof big - 1);
	uint64_t next = 200;
	for (int i = 0; i < 20; i++, next++)
		assert_int_equal(append(w, &key, next, 1, big, &r), 0);
	/* 20,000 bytes hold four batches of 3,999 and their headers of 40. */
	assert_int_equal(r.first_seq, 216);
	assert_int_equal(r.next_seq, 220);
	read_log(w, &a, &key, 215, 4096);
	assert_int_equal(a.r.code, SL_ERANGE);
	answer_reset(&a);
	read_log(w, &a, &key, 216, 4096);
	assert_int_equal(a.r.n_items, 1);
	answer_reset(&a);
}

static void a_log_lives_from_its_last_batch(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	struct cache_result r;
	struct answer a = {0};
	rig_key(&key, CACHE_REPLAY, "a");
	append(w, &key, 0, 1, "a", &r);
	pass_ms(w, 40000);
	append(w, &key, 1, 1, "b", &r);
	pass_ms(w, 40000);
	read_log(w, &a, &key, 0, 100);
	assert_int_equal(a.r.n_items, 2);
	answer_reset(&a);
	assert_string_equal(listed(w, CACHE_REPLAY, "tenant"), "a");
	pass_ms(w, 30000);
	read_log(w, &a, &key, 0, 100);
	assert_int_equal(a.r.code, SL_ENOTFOUND);
	answer_reset(&a);
	assert_string_equal(listed(w, CACHE_REPLAY, "tenant"), "");
	assert_int_equal(append(w, &key, 7, 1, "c", &r), 0); /* any number begins it */
	assert_int_equal(r.first_seq, 7);
}

/* ---- lists ---- */

static void a_tenants_keys_are_listed_by_their_end(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	static const struct {
		const char *name;
		uint64_t ttl_ms;
	} some[] = {{"c", 30000}, {"a", 10000}, {"d", 0}, {"b", 20000}};
	for (int i = 0; i < 4; i++) {
		rig_key(&key, CACHE_SESSION, some[i].name);
		put(w, &key, "x", some[i].ttl_ms);
	}
	rig_key(&key, CACHE_REPLAY, "r");
	put(w, &key, "x", 0);
	cache_key_make(&key, CACHE_SESSION, "other", "o", 1);
	put(w, &key, "x", 0);
	assert_string_equal(listed(w, CACHE_SESSION, "tenant"), "abcd");
	assert_string_equal(listed(w, CACHE_REPLAY, "tenant"), "r");
	assert_string_equal(listed(w, CACHE_SESSION, "other"), "o");
	assert_string_equal(listed(w, CACHE_IDENTITY, "tenant"), "");
	pass_ms(w, 15000);
	rig_key(&key, CACHE_SESSION, "b");
	put(w, &key, "again", 60000);
	assert_string_equal(listed(w, CACHE_SESSION, "tenant"), "cbd");
	rig_key(&key, CACHE_SESSION, "c");
	forget(w, &key);
	assert_string_equal(listed(w, CACHE_SESSION, "tenant"), "bd");
}

static void of_too_many_keys_the_soonest_to_end_go(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	for (char c = 'a'; c <= 'k'; c++) {
		cache_key_make(&key, CACHE_SESSION, "tenant", &c, 1);
		put(w, &key, "x", 100000 + (uint64_t)(c - 'a') * 1000);
	}
	assert_string_equal(listed(w, CACHE_SESSION, "tenant"), "defghijk");
	rig_key(&key, CACHE_SESSION, "c");
	assert_null(get(w, &key));
	rig_key(&key, CACHE_SESSION, "z"); /* ends before all others: it doesn't stay */
	assert_int_equal(put(w, &key, "x", 1000), 0);
	assert_null(get(w, &key));
	assert_string_equal(listed(w, CACHE_SESSION, "tenant"), "defghijk");
}

/* ---- memory only: shares of kinds ---- */

static void a_flood_of_one_kind_evicts_only_that(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key, limit, old;
	rig_key(&limit, CACHE_LIMIT, "limit");
	put(w, &limit, "stays", 0);
	static char big[4000];
	memset(big, 'x', sizeof big);
	rig_key(&old, CACHE_SHARED, "old");
	put(w, &old, "oldest, but used", 0);
	int64_t evicted = metric_get(&cache_m_evicted[CACHE_SHARED]);
	for (int i = 0; i < 200; i++) {
		cache_key_make(&key, CACHE_SHARED, "tenant", &i, sizeof i);
		assert_int_equal(put_v(w, &key, 1, big, sizeof big, 0), 0);
		assert_non_null(get(w, &old));
	}
	assert_true(metric_get(&cache_m_evicted[CACHE_SHARED]) > evicted + 100);
	assert_non_null(get_v(w, &key, 1));
	assert_string_equal(get(w, &limit), "stays");
	int first = 0;
	cache_key_make(&key, CACHE_SHARED, "tenant", &first, sizeof first);
	assert_null(get(w, &key));
	/* 15 % of a mebibyte. */
	assert_true(metric_get(&cache_m_bytes[CACHE_SHARED]) <= (1 << 20) / 100 * 15);
}

static void another_type_under_a_key_is_no_answer(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	struct cache_result r;
	rig_key(&key, CACHE_REPLAY, "k");
	assert_int_equal(put(w, &key, "value", 0), 0);
	assert_int_equal(append(w, &key, 0, 1, "x", &r), SL_EPROTO);
	struct answer a = {0};
	read_log(w, &a, &key, 0, 10);
	assert_int_equal(a.r.code, SL_EPROTO);
	answer_reset(&a);
	forget(w, &key);
	append(w, &key, 0, 1, "x", &r);
	cache_get(w->g.cl, &a.op, &key, 1, on_answer);
	assert_int_equal(code_of(w, &a), SL_EPROTO);
	answer_reset(&a);
	cache_put_absent(w->g.cl, &a.op, &key, 1, "x", 1, 0, on_answer);
	assert_int_equal(code_of(w, &a), SL_EPROTO);
	answer_reset(&a);
	assert_int_equal(put(w, &key, "overwritten", 0), 0);
	assert_string_equal(get(w, &key), "overwritten");
}

/* ---- configuration ---- */

static void a_wrong_configuration_is_named(void **state)
{
	(void)state;
	char empty[] = "/tmp/sluice-password-XXXXXX";
	int fd = mkstemp(empty);
	assert_true(fd >= 0);
	close(fd);
	const struct {
		const char *address, *prefix, *password_file, *says;
	} wrong[] = {
	    {"nowhere", "p:", NULL, "address nowhere"},
	    {"host:0", "p:", NULL, "address host:0"},
	    {"host:65536", "p:", NULL, "address host:65536"},
	    {"host:12x", "p:", NULL, "address host:12x"},
	    {":6379", "p:", NULL, "address :6379"},
	    {"unix:", "p:", NULL, "address unix:"},
	    {NULL, "p:", NULL, "address"},
	    {"/s", "a b", NULL, "prefix"},
	    {"/s", "0123456789012345678901234567890123", NULL, "prefix"},
	    {"/s", "p:", "/nonexistent/password", "/nonexistent/password"},
	    {"/s", "p:", "/dev/null", "cache.password_file: /dev/null: it is a device"},
	    {"/s", "p:", empty, "first line"},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct cache_config cfg;
		struct cache *c;
		struct sl_err err = {0};
		cache_config_init(&cfg);
		cfg.store = CACHE_REDIS;
		cfg.address = wrong[i].address;
		cfg.prefix = wrong[i].prefix;
		cfg.password_file = wrong[i].password_file;
		assert_true(cache_create(&cfg, NULL, 0, &c, &err) < 0);
		assert_non_null(strstr(err.text, wrong[i].says));
	}
	unlink(empty);
	struct cache_config cfg;
	struct cache *c;
	struct sl_err err = {0};
	cache_config_init(&cfg);
	cfg.max_value_bytes = cfg.memory_bytes / 11;
	assert_int_equal(cache_create(&cfg, NULL, 0, &c, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "memory"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    ON_BOTH(a_value_is_read_as_it_was_written),
	    ON_BOTH(another_version_is_nothing),
	    ON_BOTH(the_first_to_put_wins),
	    ON_BOTH(what_is_deleted_is_gone),
	    ON_BOTH(a_life_ends),
	    ON_BOTH(a_new_value_has_a_new_life),
	    ON_BOTH(too_large_is_refused),
	    ON_BOTH(a_log_is_read_in_its_batches),
	    ON_BOTH(an_append_may_be_repeated_and_leaves_no_gap),
	    ON_BOTH(a_long_log_is_read_from_anywhere_and_trimmed),
	    ON_BOTH(a_log_lives_from_its_last_batch),
	    ON_BOTH(a_tenants_keys_are_listed_by_their_end),
	    ON_BOTH(of_too_many_keys_the_soonest_to_end_go),
	    ON_MEMORY(a_flood_of_one_kind_evicts_only_that),
	    ON_MEMORY(another_type_under_a_key_is_no_answer),
	    cmocka_unit_test(a_wrong_configuration_is_named),
	};
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
