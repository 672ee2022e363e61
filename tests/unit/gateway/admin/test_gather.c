/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathering from all threads: parts of each, one that does not answer in time, one that leaves with a question in its
 * inbox, questions that are given up, and how many may be under way. The threads' loops are turned by hand, so each
 * order of events is made and not waited for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "gateway/admin/gather.h"
#include "gateway/exchange/app_state.h"

enum { N = 3 };

static const struct gw_config cfg;
static struct gw_thread threads[N];
static struct gw_app apps[N];
static uint64_t now;

/* What done was called with. */
static unsigned n_done, n_there;
static size_t n_parts;
static int sum;

static int setup(void **state)
{
	struct sl_err err;
	(void)state;
	now = 1000 * NS_PER_S;
	clock_fake(&now);
	n_done = 0;
	for (int i = 0; i < N; i++) {
		assert_int_equal(gw_thread_init(&threads[i], i, &cfg, &err), 0);
		apps[i] = (struct gw_app){.t = &threads[i]};
		threads[i].app = &apps[i];
		gather_enter(&apps[i]);
	}
	return 0;
}

static void leave(int i)
{
	if (threads[i].app == NULL)
		return;
	gather_leave(&apps[i]);
	threads[i].app = NULL;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < N; i++)
		leave(i);
	for (int i = 0; i < N; i++)
		if (threads[i].base != NULL)
			gw_thread_dispose(&threads[i]);
	clock_fake(NULL);
	return 0;
}

static void turn(int i)
{
	event_base_loop(threads[i].base, EVLOOP_NONBLOCK);
	gw_read_clock(&threads[i]);
}

static void visit(struct gw_app *app, struct gather_part *part)
{
	assert_string_equal(part->word, "word");
	part->n = (size_t)app->t->index + 1;
	part->own = sl_alloc(8);
	assert_int_equal(buf_append_str(&part->out, "text"), 0);
}

static void done(void *ctx, const struct gather_part *parts, size_t n)
{
	assert_ptr_equal(ctx, &n_done);
	n_done++;
	n_parts = n;
	n_there = 0;
	sum = 0;
	for (size_t i = 0; i < n; i++) {
		if (!parts[i].there)
			continue;
		n_there++;
		sum += (int)parts[i].n;
		assert_int_equal(parts[i].out.len, 4);
	}
}

static int start(struct gather **g) { return gather_start(&threads[0], visit, "word", done, &n_done, g); }

static void all_threads_answer(void **state)
{
	struct gather *g;
	(void)state;
	assert_int_equal(start(&g), 0);
	turn(2);
	turn(1);
	assert_int_equal(n_done, 0);
	turn(0); /* its own part, which is the last: the reply comes to its inbox */
	turn(0);
	assert_int_equal(n_done, 1);
	assert_int_equal(n_there, N);
	assert_int_equal(sum, 1 + 2 + 3);
	turn(0);
	assert_int_equal(n_done, 1);
}

static void a_silent_thread_is_not_waited_for(void **state)
{
	struct gather *g;
	(void)state;
	assert_int_equal(start(&g), 0);
	turn(0);
	turn(1);
	now += GATHER_MS * NS_PER_MS + NS_PER_MS;
	for (int i = 0; i < 100 && n_done == 0; i++) {
		now += 50 * NS_PER_MS;
		event_base_loop(threads[0].base, EVLOOP_ONCE);
	}
	assert_int_equal(n_done, 1);
	assert_int_equal(n_there, 2);
	assert_int_equal(n_parts, N);
	turn(2); /* late: nobody is told */
	turn(0);
	assert_int_equal(n_done, 1);
}

static void a_thread_that_leaves_gives_nothing(void **state)
{
	struct gather *g;
	(void)state;
	assert_int_equal(start(&g), 0);
	leave(2);
	gw_thread_dispose(&threads[2]);
	turn(1);
	turn(0);
	turn(0);
	assert_int_equal(n_done, 1);
	assert_int_equal(n_there, 2);
	assert_int_equal(start(&g), 0);
	turn(0);
	turn(1);
	turn(0);
	assert_int_equal(n_done, 2);
	assert_int_equal(n_parts, 2);
}

static void who_asked_may_leave_first(void **state)
{
	struct gather *g;
	(void)state;
	assert_int_equal(start(&g), 0);
	turn(0);
	gather_cancel(g);
	leave(0);
	gw_thread_dispose(&threads[0]);
	turn(1);
	turn(2); /* the last one finds nobody to tell */
	assert_int_equal(n_done, 0);
}

static void few_are_under_way(void **state)
{
	struct gather *g[GATHER_MOST], *more;
	(void)state;
	for (int i = 0; i < GATHER_MOST; i++)
		assert_int_equal(start(&g[i]), 0);
	assert_int_equal(start(&more), SL_ELIMIT);
	gather_cancel(g[0]);
	for (int i = 0; i < N; i++)
		turn(i);
	turn(0);
	assert_int_equal(n_done, GATHER_MOST - 1);
	assert_int_equal(start(&more), 0);
	gather_cancel(more);
	for (int i = 0; i < N; i++)
		turn(i);
	turn(0);
	assert_int_equal(n_done, GATHER_MOST - 1);
}

static void without_memory_nothing_is_asked(void **state)
{
	struct gather *g;
	(void)state;
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(start(&g), SL_ENOMEM);
	fault_disarm_all();
	assert_int_equal(start(&g), 0);
	gather_cancel(g);
	for (int i = 0; i < N; i++)
		turn(i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(all_threads_answer),
	    T(a_silent_thread_is_not_waited_for),
	    T(a_thread_that_leaves_gives_nothing),
	    T(who_asked_may_leave_first),
	    T(few_are_under_way),
	    T(without_memory_nothing_is_asked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
