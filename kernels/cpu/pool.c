/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool. Raising `epoch` publishes a job. The caller and the workers take parts from an atomic counter; then the
 * caller waits until the workers have left the job. Every worker enters every job, so the job's fields may be rewritten
 * once `inside` is zero again.
 *
 * An idle worker spins for IDLE_NS outside a step or STEP_NS inside one, then sleeps on the condition until the epoch
 * changes or a step begins. With fewer free cores than threads, a spinning thread may occupy the core of the thread it
 * waits for. So the caller sleeps after IDLE_NS until the last worker has left the job. A worker yields after IDLE_NS,
 * then after intervals that double, because a yield gives a whole time slice to any runnable thread, even one of the
 * lowest priority.
 *
 * VERSIONS (fork and join of two threads of an AVX2 machine, empty parts; `sluice bench machine` prints the line)
 *   1  sleep after 4000 iterations everywhere. A pause takes 13 to 500 ns: on a virtual machine that was 2 ms of
 *      spinning, elsewhere a sleep in the middle of a step whenever one thread worked alone for 50 µs. A step began by
 *      waiting until all workers were awake.
 *   2  spinning inside a step, as now. 0.5 µs, the median of 4,001 in one step.
 *   3  threads that wait inside a step prefetch what the next product reads first, because memory is idle while one
 *      thread normalizes or rotates. Expected: of a step of 54 ms, the 0.9 ms in which one thread worked alone.
 *      Measured together with dynamic shares of products (cpu.c): tests/bench/results/cpu-0.1.0.md. 16 KB to 2 MB per
 *      thread make no difference.
 *   4  the caller sleeps, workers yield rarely; before, both yielded at each iteration. While constraints were
 *      compiled at the lowest priority, engine threads waited more than 1 ms behind the compiler 212 times in 4,500
 *      tokens, then 19 times (scheduler traces, Linux 6.18, two processors). Nearly all these waits followed a yield;
 *      after a wake they are 10 µs. Rarer yields alone did not help: 613.
 *   5  this: who sleeps looks again after 100 ms (base/cond.h), so a lost wake-up costs that and not the step.
 */
#include "kernels/cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"

#if defined(__x86_64__)
#define relax() __builtin_ia32_pause()
#else
#define relax() ((void)0)
#endif

enum {
	IDLE_NS = 50000,
	STEP_NS = 2000000,
	LOOK_EVERY = 16, /* iterations of a spinning loop between clock readings */
	LINE = 64,
	LINES = 4, /* between checks for a job */
	MAX_THREADS = 256,
};

struct kn_pool {
	pthread_t *threads;
	int n_workers; /* running workers; the caller is not counted */
	pthread_mutex_t lock;
	pthread_cond_t stirred, finished;
	atomic_uint epoch; /* of the last job */
	atomic_int next;   /* part to take */
	atomic_int inside; /* workers that have not left the job yet */
	atomic_int sleeping;
	atomic_int n_started; /* workers that have taken their number */
	atomic_bool quit;
	atomic_bool in_step;
	atomic_bool caller_sleeps; /* the caller sleeps until `inside` is 0 */
	atomic_uint n_steps;       /* steps begun */
	/* What thread 0 reads first in the next job; each further thread's memory is one stride on. */
	atomic_uint n_soon; /* times it was set */
	atomic_uintptr_t soon;
	atomic_size_t soon_stride, soon_bytes;
	int n;
	void (*run)(void *ctx, int i);
	void *ctx;
};

/* What a thread still has to prefetch. */
struct errand {
	unsigned told; /* n_soon when it was looked at */
	uintptr_t at, end;
};

static _Atomic uint64_t idle_ns = IDLE_NS, step_ns = STEP_NS;

void kn_pool_spin(uint64_t idle, uint64_t step)
{
	atomic_store(&idle_ns, idle);
	atomic_store(&step_ns, step);
}

static uint64_t spins_ns(const struct kn_pool *p)
{
	bool in_step = p != NULL && atomic_load_explicit(&p->in_step, memory_order_relaxed);
	return atomic_load_explicit(in_step ? &step_ns : &idle_ns, memory_order_relaxed);
}

/* 0 in every thread that is not a worker. */
static _Thread_local int self;

int kn_pool_self(void) { return self; }

static void take_parts(struct kn_pool *p)
{
	int i;
	while ((i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->n)
		p->run(p->ctx, i);
}

/* Prefetches some lines; false: none are left. */
static bool bring_some(struct kn_pool *p, struct errand *e)
{
	unsigned told = atomic_load_explicit(&p->n_soon, memory_order_acquire);
	if (told != e->told) {
		e->told = told;
		e->at = atomic_load_explicit(&p->soon, memory_order_relaxed) +
			(uintptr_t)self * atomic_load_explicit(&p->soon_stride, memory_order_relaxed);
		e->end = e->at + atomic_load_explicit(&p->soon_bytes, memory_order_relaxed);
	}
	if (e->at >= e->end)
		return false;
	for (int i = 0; i < LINES; i++, e->at += LINE)
		__builtin_prefetch((const void *)e->at, 0, 2);
	return true;
}

/* Returns when the epoch is no longer `seen`, or the pool ends. */
static void wait_for_job(struct kn_pool *p, unsigned seen, struct errand *e)
{
	unsigned slept = atomic_load(&p->n_steps);
	uint64_t begin = clock_now_ns(), spun = 0, yield_at = IDLE_NS;
	for (int i = 1; spun < spins_ns(p); i++) {
		if (atomic_load_explicit(&p->epoch, memory_order_acquire) != seen || atomic_load(&p->quit))
			return;
		if (!bring_some(p, e))
			relax();
		if (i % LOOK_EVERY != 0)
			continue;
		spun = clock_now_ns() - begin;
		if (spun > yield_at) {
			sched_yield();
			yield_at = 2 * spun;
		}
	}
	pthread_mutex_lock(&p->lock);
	atomic_fetch_add(&p->sleeping, 1);
	/* Also detects a step that began while this thread was falling asleep. */
	while (atomic_load(&p->epoch) == seen && !atomic_load(&p->quit) && atomic_load(&p->n_steps) == slept)
		cond_wait(&p->stirred, &p->lock);
	atomic_fetch_sub(&p->sleeping, 1);
	pthread_mutex_unlock(&p->lock);
}

/* The last one wakes the caller: whichever writes second sees what the other wrote first. */
static void leave_job(struct kn_pool *p)
{
	if (atomic_fetch_sub(&p->inside, 1) != 1 || !atomic_load(&p->caller_sleeps))
		return;
	pthread_mutex_lock(&p->lock);
	pthread_cond_signal(&p->finished);
	pthread_mutex_unlock(&p->lock);
}

static void *worker(void *arg)
{
	struct kn_pool *p = arg;
	struct errand errand = {0};
	unsigned seen = 0;
	self = atomic_fetch_add(&p->n_started, 1) + 1;
	for (;;) {
		do
			wait_for_job(p, seen, &errand);
		while (atomic_load(&p->epoch) == seen && !atomic_load(&p->quit));
		if (atomic_load(&p->quit))
			return NULL;
		seen++;
		take_parts(p);
		leave_job(p);
	}
}

int kn_pool_create(int n_threads, struct kn_pool **out, struct sl_err *err)
{
	if (n_threads < 1 || n_threads > MAX_THREADS)
		return sl_errf(err, SL_EINVAL, "%d threads, not from 1 to %d", n_threads, MAX_THREADS);
	struct kn_pool *p = sl_zalloc(sizeof *p);
	if (p != NULL)
		p->threads = sl_zalloc_n((size_t)n_threads, sizeof *p->threads);
	if (p == NULL || p->threads == NULL) {
		sl_free(p);
		return sl_errf(err, SL_ENOMEM, "no memory for %d threads", n_threads);
	}
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->stirred, NULL);
	pthread_cond_init(&p->finished, NULL);
	for (int i = 0; i < n_threads - 1; i++) {
		if (pthread_create(&p->threads[i], NULL, worker, p) != 0) {
			kn_pool_destroy(p);
			return sl_errf(err, SL_EIO, "thread %d of %d can't be started", i + 1, n_threads);
		}
		p->n_workers++;
	}
	*out = p;
	return 0;
}

int kn_pool_pin(struct kn_pool *p, int i, const cpu_set_t *cpus)
{
	return pthread_setaffinity_np(p->threads[i - 1], sizeof *cpus, cpus) == 0 ? 0 : SL_EIO;
}

static void stir(struct kn_pool *p)
{
	if (atomic_load(&p->sleeping) == 0)
		return;
	pthread_mutex_lock(&p->lock);
	pthread_cond_broadcast(&p->stirred);
	pthread_mutex_unlock(&p->lock);
}

void kn_pool_destroy(struct kn_pool *p)
{
	if (p == NULL)
		return;
	pthread_mutex_lock(&p->lock);
	atomic_store(&p->quit, true);
	pthread_cond_broadcast(&p->stirred);
	pthread_mutex_unlock(&p->lock);
	for (int i = 0; i < p->n_workers; i++)
		pthread_join(p->threads[i], NULL);
	pthread_cond_destroy(&p->stirred);
	pthread_cond_destroy(&p->finished);
	pthread_mutex_destroy(&p->lock);
	sl_free(p->threads);
	sl_free(p);
}

int kn_pool_n_threads(const struct kn_pool *p) { return p->n_workers + 1; }

void kn_pool_wake(struct kn_pool *p)
{
	atomic_store(&p->in_step, true);
	atomic_fetch_add(&p->n_steps, 1);
	stir(p);
}

void kn_pool_rest(struct kn_pool *p) { atomic_store(&p->in_step, false); }

void kn_pool_soon(struct kn_pool *p, const void *at, size_t stride, size_t bytes)
{
	atomic_store_explicit(&p->soon, (uintptr_t)at, memory_order_relaxed);
	atomic_store_explicit(&p->soon_stride, stride, memory_order_relaxed);
	atomic_store_explicit(&p->soon_bytes, bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&p->n_soon, 1, memory_order_release);
}

static void wait_for_workers(struct kn_pool *p)
{
	uint64_t begin = 0, spun = 0, most = spins_ns(NULL);
	for (int i = 1; spun < most && atomic_load_explicit(&p->inside, memory_order_acquire) != 0; i++) {
		relax();
		if (i % LOOK_EVERY != 0)
			continue;
		uint64_t now = clock_now_ns();
		begin = begin == 0 ? now : begin;
		spun = now - begin;
	}
	if (atomic_load_explicit(&p->inside, memory_order_acquire) == 0)
		return;
	pthread_mutex_lock(&p->lock);
	atomic_store(&p->caller_sleeps, true);
	while (atomic_load(&p->inside) != 0)
		cond_wait(&p->finished, &p->lock);
	atomic_store(&p->caller_sleeps, false);
	pthread_mutex_unlock(&p->lock);
}

void kn_pool_run(struct kn_pool *p, int n, void (*run)(void *ctx, int i), void *ctx)
{
	if (p->n_workers == 0) {
		for (int i = 0; i < n; i++)
			run(ctx, i);
		return;
	}
	p->n = n;
	p->run = run;
	p->ctx = ctx;
	atomic_store_explicit(&p->next, 0, memory_order_relaxed);
	atomic_store_explicit(&p->inside, p->n_workers, memory_order_relaxed);
	atomic_fetch_add(&p->epoch, 1);
	stir(p);
	take_parts(p);
	wait_for_workers(p);
}
