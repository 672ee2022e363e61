/* SPDX-License-Identifier: Apache-2.0
 *
 * The admission queue: bounded over all threads; the newest of the worst goes, on its own thread, unless it has left by
 * itself meanwhile; and failing allocations.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/fault.h"
#include "gateway/loop/thread.h"
#include "gateway/admission/admission_queue.h"

struct one {
	struct waiting *w;
	int displaced;
};

static void on_displaced(void *ctx) { ((struct one *)ctx)->displaced++; }

static void thread_init(struct gw_thread *t)
{
	static const struct gw_config cfg;
	*t = (struct gw_thread){0};
	assert_int_equal(gw_thread_init(t, 0, &cfg, NULL), 0);
}

static void turn(struct gw_thread *t)
{
	/* What was posted is in the inbox already. */
	assert_int_equal(gw_thread_turn(t), 0);
}

static struct admission_guest guest(uint64_t tenant, int64_t priority)
{
	return (struct admission_guest){.tenant = tenant, .priority = priority};
}

static int enter_as(struct admission_queue *r, struct gw_thread *t, size_t most, struct admission_guest who,
		    struct one *o)
{
	*o = (struct one){0};
	return admission_queue_enter(r, most, who, t, on_displaced, o, &o->w);
}

static int enter(struct admission_queue *r, struct gw_thread *t, size_t most, int priority, struct one *o)
{
	return enter_as(r, t, most, guest(1, priority), o);
}

/* Within a priority the room is shared: a tenant that comes late displaces the newest of the one with most. */
static void a_tenant_keeps_its_share(void **unused)
{
	(void)unused;
	enum { ROOM = 6 };
	struct admission_queue *r;
	struct gw_thread t;
	struct one first[ROOM], late[ROOM], none;
	thread_init(&t);
	assert_int_equal(admission_queue_create(&r), 0);
	for (int i = 0; i < ROOM; i++)
		assert_int_equal(enter_as(r, &t, ROOM, guest(1, 3), &first[i]), 0);
	assert_false(admission_queue_has_room(r, ROOM, guest(1, 3)));
	assert_true(admission_queue_has_room(r, ROOM, guest(2, 3)));
	for (int i = 0; i < ROOM / 2; i++)
		assert_int_equal(enter_as(r, &t, ROOM, guest(2, 3), &late[i]), 0);
	/* Both have half now. */
	assert_int_equal(enter_as(r, &t, ROOM, guest(2, 3), &none), SL_ELIMIT);
	assert_int_equal(enter_as(r, &t, ROOM, guest(1, 3), &none), SL_ELIMIT);
	assert_int_equal(enter_as(r, &t, ROOM, guest(2, 4), &none), SL_ELIMIT);
	turn(&t);
	for (int i = 0; i < ROOM; i++)
		assert_int_equal(first[i].displaced, i >= ROOM / 2);
	/* A third one takes of either, and of a better priority any. */
	assert_int_equal(enter_as(r, &t, ROOM, guest(3, 3), &late[3]), 0);
	assert_int_equal(enter_as(r, &t, ROOM, guest(1, 0), &late[4]), 0);
	assert_int_equal(admission_queue_count(r), ROOM);
	turn(&t);
	assert_int_equal(late[3].displaced, 0);
	for (int i = 0; i < ROOM; i++)
		admission_queue_leave(first[i].w);
	for (int i = 0; i < 5; i++)
		admission_queue_leave(late[i].w);
	assert_int_equal(admission_queue_count(r), 0);
	gw_thread_dispose(&t);
	admission_queue_destroy(r);
}

static void the_newest_of_the_worst_goes(void **unused)
{
	(void)unused;
	struct admission_queue *r;
	struct gw_thread a, b;
	struct one low[3], middle, high[4], none;
	thread_init(&a);
	thread_init(&b);
	assert_int_equal(admission_queue_create(&r), 0);
	assert_true(admission_queue_has_room(r, 1, guest(1, 9)));
	for (int i = 0; i < 3; i++)
		assert_int_equal(enter(r, i == 1 ? &a : &b, 4, 7, &low[i]), 0);
	assert_int_equal(enter(r, &a, 4, 3, &middle), 0);
	assert_int_equal(admission_queue_count(r), 4);
	/* Equals and worse ones make nobody go. */
	assert_int_equal(enter(r, &a, 4, 7, &none), SL_ELIMIT);
	assert_int_equal(enter(r, &a, 4, 9, &none), SL_ELIMIT);
	assert_false(admission_queue_has_room(r, 4, guest(1, 7)));
	assert_true(admission_queue_has_room(r, 4, guest(1, 6)));
	for (int i = 0; i < 4; i++)
		assert_int_equal(enter(r, &a, 4, 0, &high[i]), 0);
	assert_int_equal(admission_queue_count(r), 4);
	assert_int_equal(enter(r, &a, 4, 0, &none), SL_ELIMIT);
	assert_int_equal(low[0].displaced + low[1].displaced + low[2].displaced + middle.displaced, 0);
	/* One of those told has left by itself in the meantime: he is not told. */
	admission_queue_leave(low[0].w);
	turn(&b);
	assert_int_equal(low[2].displaced, 1);
	assert_int_equal(low[0].displaced, 0);
	assert_int_equal(low[1].displaced, 0);
	turn(&a);
	assert_int_equal(low[1].displaced, 1);
	assert_int_equal(middle.displaced, 1);
	admission_queue_leave(low[1].w);
	admission_queue_leave(low[2].w);
	admission_queue_leave(middle.w);
	assert_int_equal(admission_queue_count(r), 4);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(high[i].displaced, 0);
		admission_queue_leave(high[i].w);
	}
	admission_queue_leave(NULL);
	admission_queue_destroy(r);
	gw_thread_dispose(&a);
	gw_thread_dispose(&b);
}

static void memory_fails(void **unused)
{
	(void)unused;
	struct admission_queue *r;
	struct gw_thread t;
	struct one o;
	thread_init(&t);
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(admission_queue_create(&r), SL_ENOMEM);
	fault_disarm_all();
	assert_int_equal(admission_queue_create(&r), 0);
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(enter(r, &t, 4, 0, &o), SL_ENOMEM);
	fault_disarm_all();
	assert_int_equal(admission_queue_count(r), 0);
	admission_queue_destroy(r);
	admission_queue_destroy(NULL);
	gw_thread_dispose(&t);
}

/* ---- threads ---- */

enum { N_THREADS = 4, N_ROUNDS = 3000, MOST = 3 }; /* fewer than one thread alone brings */

static struct admission_queue *shared;
static atomic_int most_seen, all_displaced;

static void *come_and_go(void *arg)
{
	struct gw_thread t;
	struct one some[4] = {{0}};
	uint64_t random = (uint64_t)(uintptr_t)arg;
	thread_init(&t);
	for (int i = 0; i < N_ROUNDS; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		struct one *o = &some[random >> 40 & 3];
		if (o->w != NULL) {
			admission_queue_leave(o->w);
			atomic_fetch_add(&all_displaced, o->displaced);
			o->w = NULL;
		} else {
			(void)enter(shared, &t, MOST, (int)(random >> 50 & 7), o);
		}
		int n = (int)admission_queue_count(shared);
		if (n > atomic_load(&most_seen))
			atomic_store(&most_seen, n);
		event_base_loop(t.base, EVLOOP_NONBLOCK);
	}
	for (int i = 0; i < 4; i++)
		admission_queue_leave(some[i].w);
	gw_thread_dispose(&t);
	return NULL;
}

static void from_many_threads(void **unused)
{
	(void)unused;
	pthread_t threads[N_THREADS];
	assert_int_equal(admission_queue_create(&shared), 0);
	for (int i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, (void *)(uintptr_t)(i + 1)), 0);
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(admission_queue_count(shared), 0);
	assert_true(atomic_load(&most_seen) <= MOST);
	assert_true(atomic_load(&all_displaced) > 0);
	admission_queue_destroy(shared);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_newest_of_the_worst_goes),
	    cmocka_unit_test(a_tenant_keeps_its_share),
	    cmocka_unit_test(memory_fails),
	    cmocka_unit_test(from_many_threads),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
