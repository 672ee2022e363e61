/* SPDX-License-Identifier: Apache-2.0
 *
 * The metrics' text, printed on a thread of its own while the loops go on: it comes once, a bounded number of scrapes
 * waits, and one that is cancelled or outlives the scraper is freed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/metrics.h"
#include "gateway/observe/scrape.h"

/* A metric that the scraper cannot print while it is held; n_printing: how often it has begun to. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool held;
static int n_printing;

static void collect(struct metric *m)
{
	pthread_mutex_lock(&lock);
	n_printing++;
	pthread_cond_broadcast(&changed);
	while (held)
		pthread_cond_wait(&changed, &lock);
	metric_set(m, n_printing);
	pthread_mutex_unlock(&lock);
}

static struct metric slow = {.kind = METRIC_GAUGE, .name = "sluice_slow", .help = "Slow.", .collect = collect};
METRICS(slow);

static void hold(bool on)
{
	pthread_mutex_lock(&lock);
	held = on;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void until_it_prints(void)
{
	pthread_mutex_lock(&lock);
	while (n_printing == 0)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static struct gw_config cfg;
static struct gw_thread loop;
static struct scraper *scraper;
static int n_done, n_texts, n_closed;

static void on_done(void *ctx, int rc, const struct sl_buf *text)
{
	(void)ctx;
	n_done++;
	n_closed += rc == SL_ECLOSED;
	n_texts += rc == 0 && memmem(buf_data(text), text->len, "\nsluice_slow ", 13) != NULL;
}

static int set_up(void **unused)
{
	struct sl_err err;
	(void)unused;
	n_done = n_texts = n_closed = n_printing = 0;
	return gw_thread_init(&loop, 0, &cfg, &err) != 0 || scraper_create(&scraper) != 0;
}

static int tear_down(void **unused)
{
	(void)unused;
	fault_disarm_all();
	scraper_destroy(scraper);
	scraper = NULL;
	gw_thread_dispose(&loop);
	return 0;
}

static void start(struct scrape **s) { assert_int_equal(scrape_start(scraper, &loop, on_done, NULL, s), 0); }

static void a_text_comes_back_once(void **unused)
{
	(void)unused;
	struct scrape *s;
	for (int i = 0; i < 3; i++)
		start(&s);
	while (n_done < 3)
		assert_int_equal(gw_thread_turn(&loop), 0);
	assert_int_equal(n_texts, 3);
	assert_int_equal(n_printing, 3);
}

static void a_bounded_number_waits_and_the_cancelled_are_not_called(void **unused)
{
	(void)unused;
	struct scrape *first, *last, *s = NULL, *none;
	int n = 0;
	hold(true);
	start(&first);
	until_it_prints();
	while (n < 100 && scrape_start(scraper, &loop, on_done, NULL, &last) == 0 && (s = last) != NULL)
		n++;
	assert_int_equal(n, 16);
	assert_int_equal(scrape_start(scraper, &loop, on_done, NULL, &none), SL_ELIMIT);
	assert_null(none);
	scrape_cancel(first);
	scrape_cancel(s);
	hold(false);
	while (n_done < n - 1)
		assert_int_equal(gw_thread_turn(&loop), 0);
	assert_int_equal(n_texts, n - 1);
	/* There is room again. */
	start(&s);
	while (n_done < n)
		assert_int_equal(gw_thread_turn(&loop), 0);
}

static void what_waits_at_the_end_is_closed(void **unused)
{
	(void)unused;
	struct scrape *s;
	pthread_t ends;
	hold(true);
	start(&s);
	until_it_prints();
	for (int i = 0; i < 4; i++)
		start(&s);
	assert_int_equal(pthread_create(&ends, NULL, (void *(*)(void *))(void *)scraper_destroy, scraper), 0);
	scraper = NULL;
	hold(false);
	while (n_done < 5)
		assert_int_equal(gw_thread_turn(&loop), 0);
	pthread_join(ends, NULL);
	assert_true(n_texts >= 1);
	assert_int_equal(n_texts + n_closed, 5);
}

static void memory_may_end(void **unused)
{
	(void)unused;
	struct scrape *s;
	int n = 0;
	for (long nth = 1; n_texts == 0; nth++) {
		assert_true(nth < 100);
		fault_arm(FAULT_ALLOC, nth, 1);
		if (scrape_start(scraper, &loop, on_done, NULL, &s) == 0)
			n++;
		else
			assert_null(s);
		while (n_done < n)
			assert_int_equal(gw_thread_turn(&loop), 0);
		fault_disarm_all();
	}
	assert_true(n_done > 1);
	scraper_destroy(scraper);
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(scraper_create(&scraper), SL_ENOMEM);
	assert_null(scraper);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(a_text_comes_back_once, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_bounded_number_waits_and_the_cancelled_are_not_called, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(what_waits_at_the_end_is_closed, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(memory_may_end, set_up, tear_down),
	};
	return cmocka_run_group_tests_name("scrape", tests, NULL, NULL);
}
