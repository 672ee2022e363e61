/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls into a driver: one that returns, one that hangs while heartbeats go on, one that is given up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/beat.h"
#include "engine/core/driver_call.h"

struct driver {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool wedged;
	atomic_int began, ended, freed;
};

static void init(struct driver *d, bool wedged)
{
	*d = (struct driver){.wedged = wedged};
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->changed, NULL);
}

static void ask(void *driver)
{
	struct driver *d = driver;
	atomic_fetch_add(&d->began, 1);
	pthread_mutex_lock(&d->lock);
	while (d->wedged)
		pthread_cond_wait(&d->changed, &d->lock);
	pthread_mutex_unlock(&d->lock);
	atomic_fetch_add(&d->ended, 1);
}

static void release(struct driver *d)
{
	pthread_mutex_lock(&d->lock);
	d->wedged = false;
	pthread_cond_broadcast(&d->changed);
	pthread_mutex_unlock(&d->lock);
}

static void count_freed(void *driver) { atomic_fetch_add(&((struct driver *)driver)->freed, 1); }

static void test_answers(void **state)
{
	(void)state;
	struct driver d;
	init(&d, false);
	assert_int_equal(driver_call("a driver", ask, &d, count_freed, 60000), 0);
	assert_int_equal(atomic_load(&d.ended), 1);
	assert_int_equal(atomic_load(&d.freed), 0);
}

/* Its argument is freed once it returns after all. */
static void test_given_up(void **state)
{
	(void)state;
	static struct driver d;
	init(&d, true);
	assert_int_equal(driver_call("a driver", ask, &d, count_freed, 60), SL_ETIMEOUT);
	assert_int_equal(atomic_load(&d.ended), 0);
	assert_int_equal(atomic_load(&d.freed), 0);
	release(&d);
	while (atomic_load(&d.freed) == 0)
		usleep(1000);
	assert_int_equal(atomic_load(&d.ended), 1);
}

static void *call(void *driver)
{
	static int rc;
	rc = driver_call("a driver", ask, driver, count_freed, 600000);
	return &rc;
}

/* Beats keep coming after the loop that calls has been waiting for longer than one may be silent. They are counted from
 * where the call is under way, and however late a thread runs, what is missing is only later. */
static void test_beats(void **state)
{
	(void)state;
	enum { BEATS = 40, BEAT_MS = 10, STALE_MS = 200, WAIT_MS = 60000 };
	struct driver d;
	pthread_t thread;
	void *rc;
	int fds[2];
	char c = 0;
	init(&d, true);
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(pthread_create(&thread, NULL, call, &d), 0);
	while (atomic_load(&d.began) == 0)
		usleep(1000);
	assert_int_equal(beat_start(fds[1], BEAT_MS, STALE_MS), 0);
	for (int n = 0; n < BEATS;) {
		struct pollfd news = {.fd = fds[0], .events = POLLIN};
		assert_int_equal(poll(&news, 1, WAIT_MS), 1);
		assert_int_equal(read(fds[0], &c, 1), 1);
		n += c == BEAT_ALIVE;
	}
	assert_int_equal(atomic_load(&d.ended), 0);
	release(&d);
	assert_int_equal(pthread_join(thread, &rc), 0);
	assert_int_equal(*(int *)rc, 0);
	beat_stop();
	close(fds[0]);
}

/* Processors' backends are selected at once. */
static void test_select(void **state)
{
	(void)state;
	struct sl_err err = {0};
	const struct kn_ops *o = driver_select("cpu-ref", &err);
	assert_non_null(o);
	assert_string_equal(o->name, "cpu-ref");
	assert_null(driver_select("cuda-none", &err));
	assert_non_null(strstr(err.text, "cuda-none"));
	char name[200] = "cuda-";
	memset(name + 5, 'x', sizeof name - 6);
	assert_null(driver_select(name, &err));
	assert_int_equal(err.code, SL_EINVAL);
	assert_non_null(strstr(err.text, name));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_answers),
	    cmocka_unit_test(test_given_up),
	    cmocka_unit_test(test_beats),
	    cmocka_unit_test(test_select),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
