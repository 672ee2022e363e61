/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines taken away by a thread: all of them, in order, in bounded memory, and to the last one at the end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "gateway/observe/aside.h"

/* What was taken; while `held`, the thread waits with what it has. */
struct taken {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool held, in_take, fails;
	char text[1 << 16];
	size_t n;
	atomic_bool disposed;
};

static bool take(void *ctx, const char *lines, size_t n)
{
	struct taken *t = ctx;
	pthread_mutex_lock(&t->lock);
	t->in_take = true;
	pthread_cond_broadcast(&t->changed);
	while (t->held)
		pthread_cond_wait(&t->changed, &t->lock);
	memcpy(t->text + t->n, lines, n);
	t->n += n;
	bool good = !t->fails;
	pthread_mutex_unlock(&t->lock);
	return good;
}

static void dispose(void *ctx) { atomic_store(&((struct taken *)ctx)->disposed, true); }

static struct metric taken, full, failed;

static struct aside_ops ops_of(size_t max_bytes, unsigned linger_ms)
{
	return (struct aside_ops){"test", "some.key", max_bytes, linger_ms, &taken, &full, &failed, take, dispose};
}

static bool put(struct aside *a, const char *text, size_t n)
{
	struct sl_buf line;
	int64_t before = metric_get(&full);
	buf_init(&line, n);
	assert_int_equal(buf_append(&line, text, n), 0);
	aside_put(a, 0, &line);
	buf_dispose(&line);
	return metric_get(&full) == before;
}

static void counts_are(int64_t n_taken, int64_t n_full, int64_t n_failed)
{
	assert_int_equal(metric_get(&taken), n_taken);
	assert_int_equal(metric_get(&full), n_full);
	assert_int_equal(metric_get(&failed), n_failed);
}

static void init(struct taken *t)
{
	metric_set(&taken, 0);
	metric_set(&full, 0);
	metric_set(&failed, 0);
	*t = (struct taken){.held = false};
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->changed, NULL);
}

static void hold(struct taken *t, bool held)
{
	pthread_mutex_lock(&t->lock);
	t->held = held;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
}

static void until_it_has_some(struct taken *t)
{
	pthread_mutex_lock(&t->lock);
	while (!t->in_take)
		pthread_cond_wait(&t->changed, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

static void lines_come_in_order_and_all_of_them(void **unused)
{
	(void)unused;
	static struct taken t;
	static char want[1 << 16];
	const struct aside_ops ops = ops_of(1 << 20, 1);
	struct aside *a;
	size_t n = 0;
	init(&t);
	assert_int_equal(aside_create(&ops, &t, &a, NULL), 0);
	for (int i = 0; i < 3000; i++) {
		int length = snprintf(want + n, sizeof want - n, "line %d\n", i);
		assert_true(put(a, want + n, (size_t)length));
		n += (size_t)length;
	}
	aside_destroy(a);
	assert_true(aside_wait(60000));
	assert_true(atomic_load(&t.disposed));
	assert_int_equal(t.n, n);
	assert_memory_equal(t.text, want, n);
	counts_are(3000, 0, 0);
}

static void a_slow_thread_drops_what_finds_no_room(void **unused)
{
	(void)unused;
	static struct taken t;
	const struct aside_ops ops = ops_of(100, 0);
	struct aside *a;
	init(&t);
	hold(&t, true);
	assert_int_equal(aside_create(&ops, &t, &a, NULL), 0);
	assert_true(put(a, "first\n", 6));
	until_it_has_some(&t);
	int n = 0;
	while (n < 1000 && put(a, "0123456789012345678\n", 20))
		n++;
	assert_int_equal(n, 5);
	aside_destroy(a);
	assert_false(aside_wait(1));
	hold(&t, false);
	assert_true(aside_wait(60000));
	assert_int_equal(t.n, 6 + 5 * 20);
	counts_are(6, 1, 0);
}

static void each_line_counts_once_whatever_becomes_of_it(void **unused)
{
	(void)unused;
	static struct taken t;
	const struct aside_ops ops = ops_of(1000, 0);
	struct aside *a;
	struct sl_buf none;
	init(&t);
	hold(&t, true);
	t.fails = true;
	assert_int_equal(aside_create(&ops, &t, &a, NULL), 0);
	buf_init(&none, 10);
	aside_put(a, SL_ENOMEM, &none); /* it could not be printed */
	assert_true(put(a, "first\n", 6));
	until_it_has_some(&t);
	assert_true(put(a, "second\n", 7) && put(a, "third\n", 6));
	aside_destroy(a);
	hold(&t, false);
	assert_true(aside_wait(60000));
	counts_are(0, 1, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(lines_come_in_order_and_all_of_them),
	    cmocka_unit_test(a_slow_thread_drops_what_finds_no_room),
	    cmocka_unit_test(each_line_counts_once_whatever_becomes_of_it),
	};
	return cmocka_run_group_tests_name("aside", tests, NULL, NULL);
}
