/* SPDX-License-Identifier: Apache-2.0
 *
 * Each allocation of an admission fails once: the call ends with SL_ENOMEM and every limit is as before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "cache/limits_priv.h"
#include "cache/mem_priv.h"

enum { N_LIMITS = 3, N_ROUNDS = 30 };

struct world {
	struct cache_config cfg;
	struct mem_store *store;
	struct cache_key keys[N_LIMITS];
	uint64_t now_us;
};

static const int64_t limits[N_LIMITS][ITEM_ARGS] = {
    {CACHE_RATE, 100, 100, 60000000, 1}, {CACHE_LEASE, 100, 0, 0, 1}, {CACHE_BUDGET, 1000000, 0, 86400000000, 0}};

/* The answer is in w->res, and w->out is the caller's. */
static void eval(struct world *t, struct cache_work *w, const struct cache_proc *proc, struct cache_value *args,
		 size_t n_args)
{
	for (size_t i = 0; i < N_LIMITS; i++)
		for (size_t j = 0; j < ITEM_ARGS; j++)
			args[n_args++] = (struct cache_value){.i = limits[i][j]};
	*w = (struct cache_work){.type = WORK_EVAL,
				 .share = 1,
				 .proc = proc,
				 .n_keys = N_LIMITS,
				 .keys = t->keys,
				 .n_args = n_args,
				 .args = args};
	mem_work(t->store, &t->cfg, w, t->now_us);
	mem_store_validate(t->store);
}

static int admit(struct world *t, int id)
{
	char name[CACHE_ID_LEN + 1];
	struct cache_work w;
	struct cache_value args[ADMIT_ARGS + N_LIMITS * ITEM_ARGS] = {
	    {.p = name, .n = CACHE_ID_LEN}, {.i = 100}, {.i = 10}, {.i = 60000000}};
	snprintf(name, sizeof name, "%016d", id);
	eval(t, &w, &cache_proc_admit, args, ADMIT_ARGS);
	sl_free(w.out);
	return w.res.code;
}

/* What is left of each: admitting under an id of its own for a moment that has passed at the next look. */
static void look(struct world *t, int64_t left[N_LIMITS])
{
	struct cache_work w;
	struct cache_value args[ADMIT_ARGS + N_LIMITS * ITEM_ARGS] = {
	    {.p = "looks, no holder", .n = CACHE_ID_LEN}, {.i = INT64_C(1) << 40}, {.i = INT64_C(1) << 40}, {.i = 1}};
	eval(t, &w, &cache_proc_admit, args, ADMIT_ARGS);
	assert_int_equal(w.res.code, 0);
	for (size_t i = 0; i < N_LIMITS; i++)
		left[i] = w.res.values[ADMIT_VALUES + i * ADMIT_EACH + 1].i;
	sl_free(w.out);
}

static void a_failed_admission_changes_nothing(void **state)
{
	(void)state;
	struct world t = {.now_us = 1700000000000000};
	int n_failed = 0;
	cache_config_init(&t.cfg);
	assert_int_equal(mem_store_create(&t.cfg, &t.store), 0);
	for (size_t i = 0; i < N_LIMITS; i++)
		cache_key_make(&t.keys[i], CACHE_LIMIT, "t", &i, sizeof i);
	for (int id = 0; id < N_ROUNDS; id++) {
		int rc = SL_ENOMEM;
		for (long nth = 1; rc != 0; nth++) {
			int64_t before[N_LIMITS], after[N_LIMITS];
			look(&t, before);
			fault_arm(FAULT_ALLOC, nth, 1);
			rc = admit(&t, id);
			fault_disarm_all();
			look(&t, after);
			if (rc == 0)
				break;
			assert_int_equal(rc, SL_ENOMEM);
			assert_memory_equal(after, before, sizeof before);
			n_failed++;
		}
	}
	assert_true(n_failed > N_ROUNDS);
	mem_store_destroy(t.store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_failed_admission_changes_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
