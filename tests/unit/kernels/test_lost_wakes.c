/* SPDX-License-Identifier: Apache-2.0
 *
 * Wake-ups that are lost, as glibc's condition variables may lose them (base/cond.h): every wait ends all the same.
 * Only each eighth one arrives here.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mailbox.h"
#include "kernels/cpu/pool.h"

static atomic_uint n_wakes;

static int wake(const char *name, pthread_cond_t *c)
{
	static _Thread_local int (*real[2])(pthread_cond_t *);
	int i = name[13] == 'b';
	if (real[i] == NULL)
		*(void **)&real[i] = dlsym(RTLD_NEXT, name);
	return atomic_fetch_add(&n_wakes, 1) % 8 == 7 ? real[i](c) : 0;
}

int pthread_cond_signal(pthread_cond_t *c) { return wake("pthread_cond_signal", c); }
int pthread_cond_broadcast(pthread_cond_t *c) { return wake("pthread_cond_broadcast", c); }

static void add(void *ctx, int i)
{
	atomic_fetch_add((atomic_int *)ctx, i + 1);
	usleep(300); /* longer than threads spin: they sleep before and after it */
}

static void every_job_ends(void **state)
{
	(void)state;
	struct kn_pool *p;
	struct sl_err err = {0};
	kn_pool_spin(1000, 1000);
	assert_int_equal(kn_pool_create(3, &p, &err), 0);
	for (int i = 0; i < 25; i++) {
		atomic_int sum = 0;
		kn_pool_wake(p);
		kn_pool_run(p, 4, add, &sum);
		kn_pool_rest(p);
		assert_int_equal(sum, 10);
		usleep(200);
	}
	assert_true(atomic_load(&n_wakes) > 25);
	atomic_store(&n_wakes, 7); /* what ends the threads arrives */
	kn_pool_destroy(p);
}

static void *send_one(void *arg)
{
	static struct mail m;
	usleep(20000);
	atomic_store(&n_wakes, 0);
	mailbox_send(arg, &m);
	return NULL;
}

static void mail_is_found(void **state)
{
	(void)state;
	struct mailbox box;
	pthread_t thread;
	assert_int_equal(mailbox_init(&box), 0);
	assert_int_equal(pthread_create(&thread, NULL, send_one, &box), 0);
	assert_non_null(mailbox_wait(&box, UINT64_MAX));
	pthread_join(thread, NULL);
	mailbox_dispose(&box);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_job_ends), cmocka_unit_test(mail_is_found)};
	alarm(120); /* what waits for ever fails */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
