/* SPDX-License-Identifier: Apache-2.0
 *
 * What may wait in the engine: a tenant's share, a better priority's right of way, whole fan-outs, and a flood of many
 * tenants of one priority before another.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/err.h"
#include "engine/sched/wait_limits.h"

enum { WAIT = 16, RUN = 4, MANY = 64 };

struct rig {
	struct wait_limits l;
	struct wait_entry of[MANY];
	struct list displaced;
};

static void open_rig(struct rig *r)
{
	*r = (struct rig){0};
	wait_limits_init(&r->l, WAIT, RUN);
	list_init(&r->displaced);
}

static int enter_n(struct rig *r, int i, uint64_t tenant, uint8_t priority, uint32_t n, size_t bytes)
{
	const struct wait_request ask = {.tenant = tenant, .priority = priority, .n = n, .prompt_bytes = bytes};
	return wait_limits_enter(&r->l, &r->of[i], &ask, &r->displaced);
}

static int enter(struct rig *r, int i, uint64_t tenant, uint8_t priority)
{
	return enter_n(r, i, tenant, priority, 1, 0);
}

/* How many had to go; they have gone. */
static int gone(struct rig *r)
{
	int n = 0;
	list_each_safe(it, tmp, &r->displaced) {
		struct wait_entry *e = list_entry(it, struct wait_entry, displaced);
		assert_int_equal(e->state, WAIT_DISPLACED);
		list_remove(it);
		wait_limits_start(&r->l, e); /* nothing: it waits no more */
		wait_limits_leave(&r->l, e);
		n++;
	}
	return n;
}

static void close_rig(struct rig *r)
{
	gone(r);
	for (int i = 0; i < MANY; i++)
		wait_limits_leave(&r->l, &r->of[i]);
	wait_limits_dispose(&r->l);
}

static int n_of(const struct rig *r, int from, int to)
{
	int n = 0;
	for (int i = from; i < to; i++)
		n += r->of[i].state == WAIT_WAITING;
	return n;
}

static void a_tenant_alone_fills_it(void **unused)
{
	(void)unused;
	struct rig r;
	open_rig(&r);
	for (int i = 0; i < WAIT; i++)
		assert_int_equal(enter(&r, i, 1, 1), 0);
	assert_int_equal(enter(&r, WAIT, 1, 1), SL_ELIMIT);
	/* One starts, one more may wait. */
	wait_limits_start(&r.l, &r.of[0]);
	assert_int_equal(enter(&r, WAIT, 1, 1), 0);
	assert_int_equal(gone(&r), 0);
	close_rig(&r);
}

/* Others come: its share shrinks to theirs, and theirs is never less than one. */
static void the_share_shrinks(void **unused)
{
	(void)unused;
	struct rig r;
	open_rig(&r);
	for (int i = 0; i < WAIT; i++)
		assert_int_equal(enter(&r, i, 1, 1), 0);
	for (int i = 0; i < WAIT; i++)
		assert_int_equal(enter(&r, WAIT + i, 2, 1), i < WAIT / 2 ? 0 : SL_ELIMIT);
	assert_int_equal(gone(&r), WAIT / 2);
	assert_int_equal(n_of(&r, 0, WAIT), WAIT / 2);
	/* As many tenants as there is room for: one for each. */
	for (int i = 0; i < WAIT - 2; i++)
		assert_int_equal(enter(&r, 2 * WAIT + i, 10 + (uint64_t)i, 1), 0);
	gone(&r);
	assert_int_equal(n_of(&r, 0, WAIT), 1);
	assert_int_equal(n_of(&r, WAIT, 2 * WAIT), 1);
	assert_int_equal(n_of(&r, 2 * WAIT, 3 * WAIT), WAIT - 2);
	assert_int_equal(enter(&r, 3 * WAIT, 99, 1), SL_ELIMIT);
	close_rig(&r);
}

/* Many tenants of a worse priority: each newcomer of a better one is let in, and they keep what it does not need. */
static void a_better_priority_is_never_kept_out(void **unused)
{
	(void)unused;
	struct rig r;
	open_rig(&r);
	for (int i = 0; i < WAIT; i++)
		assert_int_equal(enter(&r, i, 100 + (uint64_t)i, 1), 0);
	for (int i = 0; i < WAIT; i++) {
		assert_int_equal(enter(&r, WAIT + i, 1, 0), 0);
		assert_int_equal(gone(&r), 1);
	}
	assert_int_equal(n_of(&r, 0, WAIT), 0);
	assert_int_equal(enter(&r, 2 * WAIT, 1, 0), SL_ELIMIT);
	assert_int_equal(enter(&r, 2 * WAIT, 5, 1), SL_ELIMIT);
	assert_int_equal(gone(&r), 0);
	close_rig(&r);
}

/* What has started with a worse priority, however much, keeps nobody out, and is not displaced. */
static void what_runs_is_in_nobodys_way(void **unused)
{
	(void)unused;
	struct rig r;
	open_rig(&r);
	for (int i = 0; i < WAIT + RUN; i++) {
		assert_int_equal(enter(&r, i, 7, 1), 0);
		wait_limits_start(&r.l, &r.of[i]);
	}
	assert_int_equal(enter(&r, MANY - 1, 7, 1), SL_ELIMIT);
	for (int i = 0; i < WAIT; i++)
		assert_int_equal(enter(&r, WAIT + RUN + i, 1, 0), 0);
	assert_int_equal(gone(&r), 0);
	assert_int_equal(r.of[0].state, WAIT_STARTED);
	close_rig(&r);
}

/* All of a fan-out or nothing, and it counts whole; a large prompt counts as more than one. */
static void fan_outs_count_whole(void **unused)
{
	(void)unused;
	struct rig r;
	open_rig(&r);
	assert_int_equal(enter_n(&r, 0, 1, 1, 8, 0), 0);
	assert_int_equal(enter_n(&r, 1, 1, 1, 8, 0), 0);
	assert_int_equal(enter(&r, 2, 1, 1), SL_ELIMIT);
	/* Its fan-out is as large as what would have to go is over: refused, and nobody goes. */
	assert_int_equal(enter_n(&r, 2, 2, 1, 16, 0), SL_ELIMIT);
	assert_int_equal(gone(&r), 0);
	/* A smaller one displaces one. */
	assert_int_equal(enter_n(&r, 2, 2, 1, 4, 0), 0);
	assert_int_equal(gone(&r), 1);
	assert_int_equal(n_of(&r, 0, 2), 1);
	close_rig(&r);
	open_rig(&r);
	for (int i = 0; i < 4; i++)
		assert_int_equal(enter_n(&r, i, 1, 1, 1, 3 * WAIT_UNIT_BYTES), 0);
	assert_int_equal(enter(&r, 4, 1, 1), SL_ELIMIT);
	/* One that is larger than all there is comes in when nothing is there. */
	close_rig(&r);
	open_rig(&r);
	assert_int_equal(enter_n(&r, 0, 1, 1, 1, (size_t)100 * WAIT * WAIT_UNIT_BYTES), 0);
	assert_int_equal(enter(&r, 1, 1, 1), SL_ELIMIT);
	assert_int_equal(enter(&r, 1, 2, 1), 0);
	assert_int_equal(gone(&r), 1);
	close_rig(&r);
}

/* Victims that nobody frees are bounded, too. */
static void the_displaced_are_bounded(void **unused)
{
	(void)unused;
	static struct wait_entry of[40 * (WAIT + RUN)];
	struct wait_limits l;
	struct list displaced;
	size_t n = 0;
	wait_limits_init(&l, WAIT, RUN);
	list_init(&displaced);
	/* Of eight priorities, the worst first, again and again: each displaces those before it. */
	for (int round = 0; round < 4; round++)
		for (int p = PROTO_PRIORITIES - 1; p >= 0; p--)
			for (uint64_t i = 0; i < WAIT; i++) {
				const struct wait_request ask = {
				    .tenant = i + 100 * (uint64_t)round, .priority = (uint8_t)p, .n = 1};
				if (n < sizeof of / sizeof *of && wait_limits_enter(&l, &of[n], &ask, &displaced) == 0)
					n++;
			}
	assert_true(l.n_going > 0);
	assert_true(l.n_going <= PROTO_PRIORITIES * (WAIT + RUN));
	list_each_safe(it, tmp, &displaced)
		list_remove(it);
	for (size_t i = 0; i < n; i++)
		wait_limits_leave(&l, &of[i]);
	wait_limits_dispose(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_tenant_alone_fills_it),
	    cmocka_unit_test(the_share_shrinks),
	    cmocka_unit_test(a_better_priority_is_never_kept_out),
	    cmocka_unit_test(what_runs_is_in_nobodys_way),
	    cmocka_unit_test(fan_outs_count_whole),
	    cmocka_unit_test(the_displaced_are_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
