/* SPDX-License-Identifier: Apache-2.0
 *
 * A variant's state between its answers, the store and administrators, in every order that matters; many threads at
 * once; and the store's procedure, over memory and over Redis.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/server/gateway_procs.h"
#include "gateway/variant/variant_proc.h"
#include "gateway/variant/variant_state.h"
#include "tests/support/cache_rig.h"
#include "tests/support/on_both.h"

static struct variant_state *fresh(void)
{
	static uint64_t key = 77000;
	struct variant_state *s = variant_state_get(++key, "shop", "v2");
	assert_non_null(s);
	return s;
}

static void take(struct variant_state *s, enum trial_arm arm, bool failed, uint64_t user)
{
	variant_state_take(s, arm, &(struct trial_answer){.failed = failed, .ttft_ns = 5, .user = user});
}

static int64_t answers(struct variant_state *s, enum trial_arm arm)
{
	return variant_state_view(s).sums.of[TRIAL_ANSWERS + arm];
}

static void what_is_sent_counts_once(void **state)
{
	(void)state;
	struct variant_state *s = fresh();
	struct variant_word word;
	struct trial_sums sums, store = {{0}};
	int64_t batch, again;
	take(s, TRIAL_BASE, false, 1);
	assert_true(variant_state_send(s, &word, &sums, &batch));
	assert_false(variant_state_send(s, &word, &sums, &batch));
	assert_int_equal(sums.of[TRIAL_ANSWERS], 1);
	take(s, TRIAL_BASE, false, 2);
	assert_int_equal(answers(s, TRIAL_BASE), 2);
	/* The store does not answer: the same batch goes there again, and not what came since. */
	for (int i = 0; i < 3; i++) {
		variant_state_told(s, NULL, NULL, 0);
		assert_int_equal(answers(s, TRIAL_BASE), 2);
		assert_true(variant_state_send(s, &word, &sums, &again));
		assert_int_equal(again, batch);
		assert_int_equal(sums.of[TRIAL_ANSWERS], 1);
	}
	/* The store has it, and ten of another gateway's. */
	store.of[TRIAL_ANSWERS] = 11;
	variant_state_told(s, &word, &store, 0);
	assert_int_equal(answers(s, TRIAL_BASE), 12);
	assert_true(variant_state_send(s, &word, &sums, &again));
	assert_true(again > batch);
	assert_int_equal(sums.of[TRIAL_ANSWERS], 1);
	store.of[TRIAL_ANSWERS] = 12;
	variant_state_told(s, &word, &store, 0);
	assert_int_equal(answers(s, TRIAL_BASE), 12);
	variant_state_unref(s);
}

static void another_gateways_decision_counts(void **state)
{
	(void)state;
	struct variant_state *s = fresh();
	struct variant_word word;
	struct trial_sums sums, none = {{0}};
	int64_t batch;
	assert_true(variant_state_send(s, &word, &sums, &batch));
	word.rolled = TRIAL_SLOW;
	variant_state_told(s, &word, &none, 0);
	assert_int_equal(variant_state_view(s).word.rolled, TRIAL_SLOW);
	assert_true(variant_state_weight(s, 9) == 0);
	/* Another administrator restores it and gives it a weight. */
	assert_true(variant_state_send(s, &word, &sums, &batch));
	word = (struct variant_word){.generation = 3, .weight = 2500};
	variant_state_told(s, &word, &none, 0);
	assert_true(variant_state_weight(s, 9) == 2.5);
	variant_state_unref(s);
}

static void an_administrator_is_not_overruled_by_an_old_reply(void **state)
{
	(void)state;
	struct variant_state *s = fresh();
	struct variant_word word, old;
	struct trial_sums sums, store = {{0}};
	int64_t batch;
	take(s, TRIAL_VARIANT, true, 1);
	assert_true(variant_state_send(s, &old, &sums, &batch));
	variant_state_restore(s);
	old.rolled = TRIAL_FAILS;
	store.of[TRIAL_ANSWERS + TRIAL_VARIANT] = 400;
	variant_state_told(s, &old, &store, 0);
	assert_int_equal(variant_state_view(s).word.rolled, TRIAL_ALIKE);
	assert_int_equal(answers(s, TRIAL_VARIANT), 0);
	assert_true(variant_state_send(s, &word, &sums, &batch));
	assert_int_equal(word.generation, 1);
	assert_int_equal(sums.of[TRIAL_ANSWERS + TRIAL_VARIANT], 0);
	variant_state_told(s, NULL, NULL, 0);
	variant_state_roll_back(s);
	assert_true(variant_state_weight(s, 9) == 0);
	assert_true(variant_state_view(s).word.by_hand);
	variant_state_unref(s);
}

/* The store could not be asked, and knows of later generations than this process does. */
static void an_administrator_is_not_overruled_by_a_store_that_comes_back(void **state)
{
	(void)state;
	static const struct variant_word later = {.generation = 5, .weight = 2500};
	struct variant_state *s = fresh();
	struct variant_word word;
	struct trial_sums sums, store = {{0}};
	int64_t batch;
	assert_true(variant_state_send(s, &word, &sums, &batch));
	variant_state_roll_back(s);
	variant_state_told(s, NULL, NULL, 0);
	assert_true(variant_state_send(s, &word, &sums, &batch));
	assert_int_equal(word.generation, 0);
	store.of[TRIAL_ANSWERS + TRIAL_VARIANT] = 400;
	variant_state_told(s, &later, &store, 0);
	assert_true(variant_state_view(s).word.by_hand);
	/* It is said again, to what the store has, whose weight stays. */
	assert_true(variant_state_send(s, &word, &sums, &batch));
	assert_int_equal(word.generation, 6);
	assert_int_equal(word.weight, 2500);
	assert_true(word.by_hand);
	variant_state_told(s, &word, &sums, 0);
	/* Once the store has it, another administrator's word counts. */
	assert_true(variant_state_send(s, &word, &sums, &batch));
	word = (struct variant_word){.generation = 7, .weight = 2500};
	variant_state_told(s, &word, &sums, 0);
	assert_true(variant_state_weight(s, 9) == 2.5);
	/* A weight that is set while an exchange is under way. */
	assert_true(variant_state_send(s, &word, &sums, &batch));
	variant_state_set_weight(s, 1000);
	word = (struct variant_word){.generation = 9, .by_hand = true, .weight = 4000};
	variant_state_told(s, &word, &sums, 0);
	assert_true(variant_state_view(s).word.by_hand);
	assert_int_equal(variant_state_view(s).word.generation, 10);
	assert_int_equal(variant_state_view(s).word.weight, 1000);
	variant_state_unref(s);
}

/* The look belongs to the reply that passes TRIAL_LOOK answers, whoever's they were. */
static void the_look_is_taken_by_one_reply(void **state)
{
	(void)state;
	for (int64_t before = TRIAL_LOOK - 1; before <= TRIAL_LOOK; before++) {
		struct variant_state *s = fresh();
		struct variant_word word;
		struct trial_sums sums, store = {{0}};
		int64_t batch;
		store.of[TRIAL_ANSWERS + TRIAL_VARIANT] = TRIAL_LOOK;
		store.of[TRIAL_EVENTS] = 115;
		store.of[TRIAL_HITS] = 13;
		store.of[TRIAL_EXPECTED] = 5750000;
		assert_true(variant_state_send(s, &word, &sums, &batch));
		variant_state_told(s, &word, &store, before);
		assert_int_equal(variant_state_view(s).word.rolled, before < TRIAL_LOOK ? TRIAL_FAILS : TRIAL_ALIKE);
		take(s, TRIAL_VARIANT, false, 1);
		assert_int_equal(variant_state_view(s).word.rolled, before < TRIAL_LOOK ? TRIAL_FAILS : TRIAL_ALIKE);
		variant_state_unref(s);
	}
}

enum { THREADS = 4, EACH = 5000 };

static void *answer_often(void *arg)
{
	struct variant_state *s = arg;
	for (uint64_t i = 0; i < EACH; i++) {
		struct variant_word word;
		struct trial_sums sums;
		int64_t batch;
		take(s, i % 3 == 0 ? TRIAL_VARIANT : TRIAL_BASE, false, i);
		if (i % 7 == 0 && variant_state_send(s, &word, &sums, &batch))
			variant_state_told(s, NULL, NULL, 0);
	}
	return NULL;
}

static void threads_lose_no_answer(void **state)
{
	(void)state;
	struct variant_state *s = fresh();
	pthread_t ids[THREADS];
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&ids[i], NULL, answer_often, s), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
	assert_int_equal(answers(s, TRIAL_BASE) + answers(s, TRIAL_VARIANT), THREADS * EACH);
	variant_state_unref(s);
}

static void one_key_is_one_state(void **state)
{
	(void)state;
	struct variant_state *a = variant_state_get(5, "m", "v"), *b = variant_state_get(5, "m", "v"), *all[4];
	assert_ptr_equal(a, b);
	assert_int_equal(variant_states_list(all, 4), 1);
	assert_ptr_equal(all[0], a);
	assert_string_equal(variant_state_name(a), "v");
	take(a, TRIAL_BASE, false, 1);
	variant_state_unref(a);
	variant_state_unref(b);
	assert_int_equal(answers(all[0], TRIAL_BASE), 1);
	assert_int_equal(variant_states_list(all + 1, 0), 0);
	variant_state_unref(all[0]);
	assert_int_equal(variant_states_list(all, 4), 0);
}

/* ---- the procedure ---- */

struct world {
	struct rig g;
	struct answer a;
	struct cache_key keys[2];
	int64_t batch;
};

static int set_up(void **state, bool redis)
{
	static struct world w;
	if (redis && !installed)
		return 0;
	memset(&w, 0, sizeof w);
	rig_init(&w.g);
	if (redis) {
		w.g.cfg.store = CACHE_REDIS;
		w.g.cfg.address = server.address;
		redis_server_number(&server, "FLUSHALL");
	}
	rig_open_with(&w.g, gateway_procs, GATEWAY_PROCS);
	if (redis)
		rig_turn_until_state(&w.g, CACHE_IS_UP);
	cache_key_make(&w.keys[0], CACHE_SHARED, "sluice-variants", "k", 1);
	cache_key_make(&w.keys[1], CACHE_SHARED, "sluice-variants", "kg", 2);
	*state = &w;
	return 0;
}

static int set_up_memory(void **state) { return set_up(state, false); }
static int set_up_redis(void **state) { return set_up(state, true); }

static int tear_down(void **state)
{
	struct world *w = *state;
	if (w == NULL)
		return 0;
	answer_reset(&w->a);
	rig_close(&w->g);
	return 0;
}

/* A batch that adds n to every sum; the reply's words, and the last sum. */
static void merge_batch(struct world *w, const int64_t word[4], int64_t batch, int64_t n, const int64_t expected[6])
{
	struct cache_value args[5 + TRIAL_SUMS];
	for (int i = 0; i < 4; i++)
		args[i] = (struct cache_value){.i = word[i]};
	args[4] = (struct cache_value){.i = batch};
	for (int i = 0; i < TRIAL_SUMS; i++)
		args[5 + i] = (struct cache_value){.i = n};
	answer_reset(&w->a);
	cache_eval(w->g.cl, &w->a.op, &variant_merge, w->keys, 2, args, 5 + TRIAL_SUMS, on_answer);
	const struct cache_result *r = rig_wait(&w->g, &w->a);
	assert_int_equal(r->code, 0);
	assert_false(r->degraded);
	assert_int_equal(r->n_values, VARIANT_MERGE_WORDS + TRIAL_SUMS);
	for (int i = 0; i < VARIANT_MERGE_WORDS; i++)
		assert_int_equal(r->values[i].i, expected[i]);
	for (int i = 0; i < TRIAL_SUMS; i++)
		assert_int_equal(r->values[VARIANT_MERGE_WORDS + i].i, expected[5]);
}

static void merge(struct world *w, const int64_t word[4], int64_t n, const int64_t expected[6])
{
	merge_batch(w, word, ++w->batch, n, expected);
}

#define W(gen, rolled, hand, weight) \
	(const int64_t[]) { gen, rolled, hand, weight }
#define R(gen, rolled, hand, weight, before, sum) \
	(const int64_t[]) { gen, rolled, hand, weight, before, sum }

static void sums_add_up_and_words_stay(void **state)
{
	struct world *w = state_of(state);
	merge(w, W(0, 0, 0, -1), 5, R(0, 0, 0, -1, 0, 5));
	merge(w, W(0, 0, 0, -1), -7000000000, R(0, 0, 0, -1, 5, -6999999995));
	/* Whoever rolls it back first has said why. */
	merge(w, W(0, 3, 0, -1), 0, R(0, 3, 0, -1, -6999999995, -6999999995));
	merge(w, W(0, 1, 0, -1), 0, R(0, 3, 0, -1, -6999999995, -6999999995));
	merge(w, W(0, 0, 0, -1), 1, R(0, 3, 0, -1, -6999999995, -6999999994));
	/* A later generation replaces all, and an earlier one is dropped. */
	merge(w, W(1, 0, 0, 2500), 2, R(1, 0, 0, 2500, 0, 2));
	merge(w, W(0, 1, 1, 1), 9, R(1, 0, 0, 2500, 2, 2));
	merge(w, W(1, 0, 1, 2500), 0, R(1, 0, 1, 2500, 2, 2));
	merge(w, W(1, 0, 0, 7), 3, R(1, 0, 1, 2500, 2, 5));
}

/* A gateway that got no reply sends its batch again; the first one may come late, after the next one even. */
static void a_batch_counts_once(void **state)
{
	struct world *w = state_of(state);
	const struct cache_key own = w->keys[1];
	merge_batch(w, W(0, 0, 0, -1), 1, 5, R(0, 0, 0, -1, 0, 5));
	merge_batch(w, W(0, 0, 0, -1), 1, 5, R(0, 0, 0, -1, 5, 5));
	merge_batch(w, W(0, 0, 0, -1), 2, 3, R(0, 0, 0, -1, 5, 8));
	merge_batch(w, W(0, 0, 0, -1), 1, 5, R(0, 0, 0, -1, 8, 8));
	/* What it decided counts in any case. */
	merge_batch(w, W(0, 2, 0, -1), 2, 3, R(0, 2, 0, -1, 8, 8));
	/* Another gateway's numbers are its own. */
	cache_key_make(&w->keys[1], CACHE_SHARED, "sluice-variants", "kh", 2);
	merge_batch(w, W(0, 0, 0, -1), 1, 1, R(0, 2, 0, -1, 8, 9));
	w->keys[1] = own;
	merge_batch(w, W(0, 0, 0, -1), 3, 1, R(0, 2, 0, -1, 9, 10));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_sent_counts_once),
	    cmocka_unit_test(another_gateways_decision_counts),
	    cmocka_unit_test(an_administrator_is_not_overruled_by_an_old_reply),
	    cmocka_unit_test(an_administrator_is_not_overruled_by_a_store_that_comes_back),
	    cmocka_unit_test(the_look_is_taken_by_one_reply),
	    cmocka_unit_test(threads_lose_no_answer),
	    cmocka_unit_test(one_key_is_one_state),
	    ON_BOTH(sums_add_up_and_words_stay),
	    ON_BOTH(a_batch_counts_once),
	};
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
