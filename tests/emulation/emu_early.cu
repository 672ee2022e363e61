/* SPDX-License-Identifier: Apache-2.0
 *
 * A kept kernel runs on a thread of its own, since the one that waits for it is a fibre in the middle of its body.
 */
#include "tests/emulation/emu_early.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KERNELS = 64 };

static const void *letting[MOST_KERNELS];
static int n_letting;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool lets(const void *kernel)
{
	bool found = false;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < n_letting; i++)
		found = found || letting[i] == kernel;
	pthread_mutex_unlock(&lock);
	return found;
}

static void note(const void *kernel)
{
	if (lets(kernel))
		return;
	pthread_mutex_lock(&lock);
	if (n_letting < MOST_KERNELS)
		letting[n_letting++] = kernel;
	pthread_mutex_unlock(&lock);
}

static const char *run(struct emu_blocks *r, const struct kn_command *c)
{
	unsigned begins = __atomic_load_n(&emu_begins, __ATOMIC_RELAXED),
		 let = __atomic_load_n(&emu_lets, __ATOMIC_RELAXED);
	const char *wrong = emu_blocks_run(r, c);
	if (__atomic_load_n(&emu_lets, __ATOMIC_RELAXED) != let)
		note(c->kernel);
	return wrong == NULL && __atomic_load_n(&emu_begins, __ATOMIC_RELAXED) == begins
		   ? "the kernel does not call kn_begin"
		   : wrong;
}

static void *apart(void *ctx)
{
	struct emu_early *e = (struct emu_early *)ctx;
	e->wrong = run(e->second, e->held);
	return NULL;
}

static void drop(struct emu_early *e)
{
	free(e->held);
	e->held = NULL;
}

/* The kernel that is running waits for the one before it. */
static void waits(void *ctx)
{
	struct emu_early *e = (struct emu_early *)ctx;
	pthread_t t;
	emu_on_begin = {NULL, NULL};
	if (pthread_create(&t, NULL, apart, e) != 0)
		abort();
	pthread_join(t, NULL);
	drop(e);
}

static bool keep(struct emu_early *e, const struct kn_plugin_host *host, const struct kn_command *c)
{
#ifdef KN_EMU_THREADS
	(void)e, (void)host, (void)c; /* the threads of a block don't know which kernel waits */
	return false;
#else
	if (!lets(c->kernel) || emu_counting || (e->second == NULL && emu_blocks_make(host, &e->second) != 0))
		return false;
	e->held = (struct kn_command *)aligned_alloc(KN_COMMAND_ALIGN, c->bytes);
	if (e->held != NULL)
		memcpy((void *)e->held, c, c->bytes);
	return e->held != NULL;
#endif
}

const char *emu_early_run(struct emu_early *e, struct emu_blocks *r, const struct kn_plugin_host *host,
			  const struct kn_command *c)
{
	if (e->held == NULL)
		return keep(e, host, c) ? NULL : run(r, c);
	e->wrong = NULL;
	emu_on_begin = {waits, e};
	const char *wrong = run(r, c), *late = emu_early_end(e, r);
	return e->wrong != NULL ? e->wrong : wrong != NULL ? wrong : late;
}

const char *emu_early_end(struct emu_early *e, struct emu_blocks *r)
{
	emu_on_begin = {NULL, NULL};
	if (e->held == NULL)
		return NULL;
	const char *wrong = run(r, e->held);
	drop(e);
	return wrong;
}

void emu_early_free(struct emu_early *e)
{
	drop(e);
	if (e->second != NULL)
		emu_blocks_free(e->second);
	e->second = NULL;
}
