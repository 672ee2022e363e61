/* SPDX-License-Identifier: Apache-2.0
 *
 * What the operations mean: one table of tests over the memory store and over a real redis-server, so
 * that both mean the same. Time passes by the rig's clock for memory; in Redis every life (and every
 * score of a list) is shortened by as much.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cache/priv.h"
#include "tests/support/cache_rig.h"
#include "tests/support/on_both.h"

/* ---- a procedure of the test's own ---- */

struct tally {
	int64_t n;
	char last[8];
};

/* KEYS: counter. ARGV: now, by, text of up to 8 bytes. Answers count, the text before, now. */
static int tally_twin(struct cache_twin *t)
{
	size_t n;
	struct tally *had = cache_twin_find(t, 0, &n);
	struct tally before = had == NULL ? (struct tally){0} : *had;
	size_t n_last = strnlen(before.last, sizeof before.last);
	int rc = cache_twin_answer(t, before.n + t->args[0].i);
	if (rc == 0)
		rc = cache_twin_answer_bytes(t, before.last, n_last);
	if (rc == 0)
		rc = cache_twin_answer(t, (int64_t)t->now_us);
	if (rc != 0)
		return rc;
	struct tally *now = cache_twin_edit(t, 0, sizeof *now, 60000);
	if (now == NULL)
		return SL_ENOMEM;
	now->n = before.n + t->args[0].i;
	memset(now->last, 0, sizeof now->last);
	memcpy(now->last, t->args[1].p, t->args[1].n < 8 ? t->args[1].n : 8);
	return 0;
}

static const struct cache_proc tally = {
    "tally",
    "local n = redis.call('HINCRBY', KEYS[1], 'n', ARGV[2])\n"
    "local last = redis.call('HGET', KEYS[1], 'last') or ''\n"
    "redis.call('HSET', KEYS[1], 'last', ARGV[3])\n"
    "redis.call('PEXPIRE', KEYS[1], 60000)\n"
    "return {n, last, tonumber(ARGV[1])}\n",
    tally_twin};
static const struct cache_proc *const procs[] = {&tally};

/* ---- the world ---- */

struct world {
	struct rig g;
	bool redis;
};

static void open_world(struct world *w)
{
	w->g.cfg.max_value_bytes = 4096;
	w->g.cfg.max_log_bytes = 20000;
	w->g.cfg.max_keys_per_tenant = 8;
	w->g.cfg.memory_bytes = 1 << 20;
	w->g.cfg.max_ops = 64;
	if (w->redis) {
		w->g.cfg.store = CACHE_REDIS;
		w->g.cfg.address = server.address;
		redis_server_number(&server, "FLUSHALL");
	}
	rig_open_with(&w->g, procs, 1);
	if (w->redis)
		rig_turn_until_state(&w->g, CACHE_IS_UP);
}

static int set_up(void **state, bool redis)
{
	static struct world w;
	if (redis && !installed)
		return 0;
	rig_init(&w.g);
	w.redis = redis;
	open_world(&w);
	*state = &w;
	return 0;
}

static int set_up_memory(void **state) { return set_up(state, false); }
static int set_up_redis(void **state) { return set_up(state, true); }

static int tear_down(void **state)
{
	struct world *w = *state;
	if (w != NULL)
		rig_close(&w->g);
	return 0;
}

static struct world *world_of(void **state) { return state_of(state); }

static void pass_ms(struct world *w, uint64_t ms)
{
	w->g.now_us += ms * 1000;
	if (w->redis)
		redis_server_number(&server,
				    "EVAL %s 0 %llu",
				    "for _, key in ipairs(redis.call('KEYS', '*')) do\n"
				    "  if redis.call('TYPE', key).ok == 'zset' then\n"
				    "    for _, m in ipairs(redis.call('ZRANGE', key, 0, -1)) do\n"
				    "      redis.call('ZINCRBY', key, -ARGV[1], m)\n"
				    "    end\n"
				    "  end\n"
				    "  local left = redis.call('PTTL', key)\n"
				    "  if left >= 0 then redis.call('PEXPIRE', key, left - ARGV[1]) end\n"
				    "end return 0",
				    (unsigned long long)ms);
}

/* ---- operations that are waited for ---- */

static int code_of(struct world *w, struct answer *a)
{
	const struct cache_result *r = rig_wait(&w->g, a);
	assert_false(r->degraded);
	return r->code;
}

static int put_v(struct world *w, const struct cache_key *key, uint8_t version, const void *p, size_t n,
		 uint64_t ttl_ms)
{
	struct answer a = {0};
	cache_put(w->g.cl, &a.op, key, version, p, n, ttl_ms, on_answer);
	int rc = code_of(w, &a);
	answer_reset(&a);
	return rc;
}

static int put(struct world *w, const struct cache_key *key, const char *text, uint64_t ttl_ms)
{
	return put_v(w, key, 1, text, strlen(text), ttl_ms);
}

/* The value as text, or NULL and *code. */
static const char *get_v(struct world *w, const struct cache_key *key, uint8_t version)
{
	static char text[8192];
	struct answer a = {0};
	cache_get(w->g.cl, &a.op, key, version, on_answer);
	int rc = code_of(w, &a);
	if (rc == 0) {
		assert_true(a.r.n < sizeof text);
		memcpy(text, a.r.bytes, a.r.n);
		text[a.r.n] = '\0';
	} else {
		assert_int_equal(rc, SL_ENOTFOUND);
	}
	answer_reset(&a);
	return rc == 0 ? text : NULL;
}

static const char *get(struct world *w, const struct cache_key *key) { return get_v(w, key, 1); }

static bool forget(struct world *w, const struct cache_key *key)
{
	struct answer a = {0};
	cache_delete(w->g.cl, &a.op, key, on_answer);
	assert_int_equal(code_of(w, &a), 0);
	bool found = a.r.found;
	answer_reset(&a);
	return found;
}

static int append(struct world *w, const struct cache_key *key, uint64_t first, uint32_t n, const char *text,
		  struct cache_result *r)
{
	struct answer a = {0};
	cache_log_append(w->g.cl, &a.op, key, first, n, text, strlen(text), 60000, on_answer);
	int rc = code_of(w, &a);
	*r = a.r;
	answer_reset(&a);
	return rc;
}

static void read_log(struct world *w, struct answer *a, const struct cache_key *key, uint64_t from, size_t max)
{
	cache_log_read(w->g.cl, &a->op, key, from, max, on_answer);
	(void)code_of(w, a);
}

/* Which of the keys a..h are listed, in order. */
static const char *listed(struct world *w, enum cache_kind kind, const char *tenant)
{
	static char names[64];
	struct answer a = {0};
	cache_list(w->g.cl, &a.op, kind, tenant, on_answer);
	assert_int_equal(code_of(w, &a), 0);
	size_t n = 0;
	for (size_t i = 0; i < a.r.n_items; i++)
		for (char c = 'a'; c <= 'z'; c++) {
			struct cache_key key;
			cache_key_make(&key, kind, tenant, &c, 1);
			assert_int_equal(a.r.items[i].n, CACHE_DIGEST_LEN);
			if (memcmp(a.r.items[i].bytes, cache_key_digest(&key), CACHE_DIGEST_LEN) == 0)
				names[n++] = c;
		}
	assert_int_equal(n, a.r.n_items);
	names[n] = '\0';
	answer_reset(&a);
	return names;
}

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

	struct answer a = {0};
	cache_delete_all(w->g.cl, &a.op, CACHE_SESSION, "tenant", on_answer);
	assert_int_equal(code_of(w, &a), 0);
	assert_int_equal(a.r.n_deleted, 2);
	answer_reset(&a);
	assert_null(get(w, &key));
	rig_key(&key, CACHE_SESSION, "d");
	assert_null(get(w, &key));
	assert_string_equal(listed(w, CACHE_SESSION, "tenant"), "");
	assert_string_equal(listed(w, CACHE_SESSION, "other"), "o");
	cache_delete_all(w->g.cl, &a.op, CACHE_SESSION, "tenant", on_answer);
	assert_int_equal(code_of(w, &a), 0);
	assert_int_equal(a.r.n_deleted, 0);
	answer_reset(&a);
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

/* ---- procedures ---- */

static void a_procedure_edits_and_answers(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	rig_key(&key, CACHE_SHARED, "tally");
	const char *texts[] = {"one", "", "three"};
	const char *before = "";
	for (int i = 0; i < 3; i++) {
		struct answer a = {0};
		const struct cache_value args[2] = {{.i = 5}, {.p = texts[i], .n = strlen(texts[i])}};
		cache_eval(w->g.cl, &a.op, &tally, &key, 1, args, 2, on_answer);
		assert_int_equal(code_of(w, &a), 0);
		assert_int_equal(a.r.n_values, 3);
		assert_int_equal(a.r.values[0].i, 5 * (i + 1));
		assert_non_null(a.r.values[1].p);
		assert_int_equal(a.r.values[1].n, strlen(before));
		assert_memory_equal(a.r.values[1].p, before, strlen(before));
		assert_true(a.r.values[2].i == (int64_t)w->g.now_us);
		before = texts[i];
		answer_reset(&a);
	}
	assert_true(forget(w, &key));
}

static void a_procedure_survives_flushed_scripts(void **state)
{
	struct world *w = world_of(state);
	if (w->redis)
		redis_server_number(&server, "SCRIPT FLUSH");
	a_procedure_edits_and_answers(state);
	struct cache_key key;
	struct cache_result r;
	if (w->redis)
		redis_server_number(&server, "SCRIPT FLUSH");
	rig_key(&key, CACHE_REPLAY, "l");
	assert_int_equal(append(w, &key, 0, 1, "x", &r), 0);
}

static void keys_of_a_call_are_one_tenants_and_kinds(void **state)
{
	struct world *w = world_of(state);
	struct cache_key keys[2];
	const struct cache_value args[2] = {{.i = 5}, {.p = "", .n = 0}};
	struct answer a = {0};
	rig_key(&keys[0], CACHE_SHARED, "a");
	rig_key(&keys[1], CACHE_LIMIT, "a");
	cache_eval(w->g.cl, &a.op, &tally, keys, 2, args, 2, on_answer);
	assert_int_equal(code_of(w, &a), SL_EINVAL);
	answer_reset(&a);
	cache_key_make(&keys[1], CACHE_SHARED, "tenanu", "a", 1);
	cache_eval(w->g.cl, &a.op, &tally, keys, 2, args, 2, on_answer);
	assert_int_equal(code_of(w, &a), SL_EINVAL);
	answer_reset(&a);
	cache_eval(w->g.cl, &a.op, &tally, keys, 0, args, 2, on_answer);
	assert_int_equal(code_of(w, &a), SL_EINVAL);
	answer_reset(&a);
}

static void a_local_call_is_of_this_process(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	const struct cache_value args[2] = {{.i = 5}, {.p = "", .n = 0}};
	rig_key(&key, CACHE_SHARED, "tally");
	for (int i = 0; i < 2; i++) {
		struct answer a = {0};
		cache_eval(w->g.cl, &a.op, &tally, &key, 1, args, 2, on_answer);
		code_of(w, &a);
		answer_reset(&a);
	}
	struct answer a = {0};
	cache_eval_local(w->g.cl, &a.op, &tally, &key, 1, args, 2, on_answer);
	assert_int_equal(code_of(w, &a), 0);
	assert_int_equal(a.r.values[0].i, w->redis ? 5 : 15);
	answer_reset(&a);
}

/* ---- operations ---- */

static void done_is_never_called_within_the_call(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	rig_key(&key, CACHE_SESSION, "k");
	struct answer a = {0}, b = {0};
	cache_get(w->g.cl, &a.op, &key, 1, on_answer);
	cache_list(w->g.cl, &b.op, CACHE_LIMIT, "tenant", on_answer); /* refused */
	assert_int_equal(a.n_done + b.n_done, 0);
	assert_true(cache_op_busy(&a.op) && cache_op_busy(&b.op));
	rig_wait(&w->g, &a);
	rig_wait(&w->g, &b);
	assert_false(cache_op_busy(&a.op) || cache_op_busy(&b.op));
	answer_reset(&a);
	answer_reset(&b);
}

static void of_too_many_operations_one_more_is_refused(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	rig_key(&key, CACHE_SESSION, "k");
	enum { MANY = 70 };
	static struct answer a[MANY];
	int64_t refused = metric_get(&cache_m_refused);
	for (int i = 0; i < MANY; i++)
		cache_get(w->g.cl, &a[i].op, &key, 1, on_answer);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(rig_wait(&w->g, &a[i])->code, i < 64 ? SL_ENOTFOUND : SL_ELIMIT);
	assert_int_equal(metric_get(&cache_m_refused) - refused, MANY - 64);
	for (int i = 0; i < MANY; i++)
		answer_reset(&a[i]);
	assert_null(get(w, &key)); /* and then there is room again */
}

static void answers_come_in_order(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	rig_key(&key, CACHE_SHARED, "k");
	static struct answer a[60];
	for (int i = 0; i < 60; i += 2) {
		char text[8];
		int n = snprintf(text, sizeof text, "%d", i);
		cache_put(w->g.cl, &a[i].op, &key, 1, text, (size_t)n, 0, on_answer);
		cache_get(w->g.cl, &a[i + 1].op, &key, 1, on_answer);
	}
	for (int i = 0; i < 60; i += 2) {
		assert_int_equal(code_of(w, &a[i]), 0);
		assert_int_equal(code_of(w, &a[i + 1]), 0);
		assert_int_equal(atoi((const char *)a[i + 1].r.bytes), i);
		answer_reset(&a[i]);
		answer_reset(&a[i + 1]);
	}
}

static void a_cancelled_operation_never_ends(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	rig_key(&key, CACHE_SESSION, "k");
	static struct answer a[20];
	for (int i = 0; i < 20; i++)
		cache_put(w->g.cl, &a[i].op, &key, 1, "x", 1, 0, on_answer);
	struct answer refused = {0};
	cache_list(w->g.cl, &refused.op, CACHE_LIMIT, "tenant", on_answer);
	cache_cancel(&refused.op);
	for (int i = 0; i < 20; i += 2)
		cache_cancel(&a[i].op);
	cache_cancel(&a[0].op); /* idle: nothing */
	for (int i = 1; i < 20; i += 2)
		rig_wait(&w->g, &a[i]);
	assert_non_null(get(w, &key));
	for (int i = 0; i < 20; i++) {
		assert_int_equal(a[i].n_done, i % 2);
		answer_reset(&a[i]);
	}
	assert_int_equal(refused.n_done, 0);
	/* What is under way at the end doesn't matter when it was cancelled. */
	cache_put(w->g.cl, &a[0].op, &key, 1, "y", 1, 0, on_answer);
	cache_cancel(&a[0].op);
}

struct chain {
	struct cache_op op;
	struct world *w;
	struct cache_op *other;
	int n_done;
};

static void on_chain(struct cache_op *op, const struct cache_result *r)
{
	struct chain *c = (struct chain *)(void *)op;
	struct cache_key key;
	rig_key(&key, CACHE_SHARED, "k");
	(void)r;
	if (c->other != NULL)
		cache_cancel(c->other);
	if (++c->n_done < 5)
		cache_get(c->w->g.cl, &c->op, &key, 1, on_chain);
}

static void from_done_everything_may_be_called(void **state)
{
	struct world *w = world_of(state);
	struct cache_key key;
	rig_key(&key, CACHE_SHARED, "k");
	struct answer other = {0};
	struct chain c = {.w = w, .other = &other.op};
	cache_get(w->g.cl, &c.op, &key, 1, on_chain);
	cache_get(w->g.cl, &other.op, &key, 1, on_answer);
	rig_turn_until(&w->g, &c.n_done, 5);
	assert_int_equal(other.n_done, 0);
	assert_false(cache_op_busy(&c.op) || cache_op_busy(&other.op));
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
	static const struct {
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
	    {"/s", "p:", "/dev/null", "first line"},
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
	    ON_BOTH(a_procedure_edits_and_answers),
	    ON_BOTH(a_procedure_survives_flushed_scripts),
	    ON_BOTH(keys_of_a_call_are_one_tenants_and_kinds),
	    ON_BOTH(a_local_call_is_of_this_process),
	    ON_BOTH(done_is_never_called_within_the_call),
	    ON_BOTH(of_too_many_operations_one_more_is_refused),
	    ON_BOTH(answers_come_in_order),
	    ON_BOTH(a_cancelled_operation_never_ends),
	    ON_BOTH(from_done_everything_may_be_called),
	    ON_MEMORY(a_flood_of_one_kind_evicts_only_that),
	    ON_MEMORY(another_type_under_a_key_is_no_answer),
	    cmocka_unit_test(a_wrong_configuration_is_named),
	};
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
