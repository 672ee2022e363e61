/* SPDX-License-Identifier: Apache-2.0
 *
 * What procedures and operations mean, of whatever kind: over the memory store and over a real redis-server alike.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/cache/cache_world.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    ON_BOTH(a_procedure_edits_and_answers),
	    ON_BOTH(a_procedure_survives_flushed_scripts),
	    ON_BOTH(keys_of_a_call_are_one_tenants_and_kinds),
	    ON_BOTH(a_local_call_is_of_this_process),
	    ON_BOTH(done_is_never_called_within_the_call),
	    ON_BOTH(of_too_many_operations_one_more_is_refused),
	    ON_BOTH(answers_come_in_order),
	    ON_BOTH(a_cancelled_operation_never_ends),
	    ON_BOTH(from_done_everything_may_be_called),
	};
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
