/* SPDX-License-Identifier: Apache-2.0
 *
 * A fork-join pool: the caller and n - 1 workers take parts of one job. Inside a step, workers spin for the next job,
 * because waking a sleeping thread costs more than most jobs. Between steps, a worker sleeps after about ten
 * microseconds without a job, so an idle machine stays idle.
 */
#ifndef KERNELS_CPU_POOL_H
#define KERNELS_CPU_POOL_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct kn_pool;

/* n_threads includes the caller; 1 creates no thread. SL_ENOMEM, SL_EIO. */
int kn_pool_create(int n_threads, struct kn_pool **out, struct sl_err *err);
void kn_pool_destroy(struct kn_pool *p);
int kn_pool_n_threads(const struct kn_pool *p);
/* Thread i, from 1, may only use these processors. SL_EIO: the system does not let it, and it may use what it could. */
int kn_pool_pin(struct kn_pool *p, int i, const cpu_set_t *cpus);
/* How long threads of all pools spin before they sleep: outside a step, or the caller for its workers, and inside one.
 * For tests, which share their processors with each other. */
void kn_pool_spin(uint64_t idle_ns, uint64_t step_ns);
/* The calling thread's number in its pool: 0 for the caller of kn_pool_run, the workers from 1. */
int kn_pool_self(void);
/* A step begins: wakes sleeping workers, which spin for its jobs until kn_pool_rest, for some milliseconds at most.
 * Neither function waits. */
void kn_pool_wake(struct kn_pool *p);
/* The step has ended: workers without a new step go to sleep soon. */
void kn_pool_rest(struct kn_pool *p);
/* The memory that an upcoming job reads first: thread i reads `bytes` from at + i · stride on. Idle workers in a step
 * prefetch it. It is never dereferenced, so a stale address or wrong guess is harmless. */
void kn_pool_soon(struct kn_pool *p, const void *at, size_t stride, size_t bytes);
/* Calls run(ctx, i) for every i < n once, spread over the threads, and returns when all are done.
 * Which thread takes which i varies: results must not depend on it. Caller's thread only. */
void kn_pool_run(struct kn_pool *p, int n, void (*run)(void *ctx, int i), void *ctx);

#endif
