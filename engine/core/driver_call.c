/* SPDX-License-Identifier: Apache-2.0
 *
 * The caller and the thread share struct call with a reference count of two; the last to leave frees it. The argument
 * belongs to the thread from the moment that the caller gives up.
 */
#include "engine/core/driver_call.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/beat.h"
#include "base/clock.h"

enum { TURN_MS = 50, SELECT_MS = 60000 };

struct call {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	void (*fn)(void *arg);
	void (*free_arg)(void *arg);
	void *arg;
	int users;
	bool done, given_up;
};

/* With the lock held; releases it. */
static void leave(struct call *c)
{
	bool last = --c->users == 0;
	pthread_mutex_unlock(&c->lock);
	if (!last)
		return;
	if (c->given_up)
		c->free_arg(c->arg);
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->changed);
	sl_free(c);
}

static void *run(void *call)
{
	struct call *c = call;
	c->fn(c->arg);
	pthread_mutex_lock(&c->lock);
	c->done = true;
	pthread_cond_signal(&c->changed);
	leave(c);
	return NULL;
}

static struct call *create(void (*fn)(void *arg), void *arg, void (*free_arg)(void *arg))
{
	pthread_condattr_t monotonic;
	struct call *c = sl_zalloc(sizeof *c);
	if (c == NULL)
		return NULL;
	c->fn = fn;
	c->arg = arg;
	c->free_arg = free_arg;
	c->users = 2;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	return c;
}

/* With the lock held. */
static void wait_a_turn(struct call *c)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += TURN_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	(void)pthread_cond_timedwait(&c->changed, &c->lock, &until);
}

int driver_call(const char *what, void (*fn)(void *arg), void *arg, void (*free_arg)(void *arg), unsigned limit_ms)
{
	uint64_t begin = clock_now_ns();
	struct call *c = create(fn, arg, free_arg);
	pthread_t thread;
	if (c == NULL)
		return SL_ENOMEM;
	if (pthread_create(&thread, NULL, run, c) != 0) {
		c->users = 1;
		pthread_mutex_lock(&c->lock);
		leave(c);
		return SL_ENOMEM;
	}
	pthread_detach(thread);
	int slot = beat_slot(what);
	pthread_mutex_lock(&c->lock);
	while (!c->done && clock_now_ns() - begin < limit_ms * (uint64_t)NS_PER_MS) {
		beat_touch(slot);
		wait_a_turn(c);
	}
	c->given_up = !c->done;
	int rc = c->done ? 0 : SL_ETIMEOUT;
	leave(c);
	beat_slot_close(slot);
	return rc;
}

/* ---- the backend ---- */

struct selection {
	const struct kn_ops *ops;
	struct sl_err err;
	char name[];
};

static void select_backend(void *selection)
{
	struct selection *s = selection;
	s->ops = kn_select(s->name, &s->err);
}

const struct kn_ops *driver_select(const char *backend, struct sl_err *err)
{
	if (strncmp(backend, "cuda", 4) != 0)
		return kn_select(backend, err);
	size_t n = strlen(backend) + 1;
	struct selection *s = sl_zalloc(sizeof *s + n);
	if (s == NULL) {
		sl_errf(err, SL_ENOMEM, "no memory to ask for backend \"%s\"", backend);
		return NULL;
	}
	memcpy(s->name, backend, n);
	int rc = driver_call("device driver", select_backend, s, sl_free, SELECT_MS);
	if (rc == SL_ETIMEOUT) {
		sl_errf(err, rc, "backend \"%s\": the device's driver has not answered for %d s", backend,
			SELECT_MS / 1000);
		return NULL;
	}
	if (rc != 0)
		sl_errf(&s->err, rc, "no thread to ask for backend \"%s\"", backend);
	const struct kn_ops *ops = s->ops;
	if (ops == NULL)
		*err = s->err;
	sl_free(s);
	return ops;
}
