/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels without a device: the host runs them by the rules of CUDA's execution model, one block after the other
 * (emu_device.cu emulates the device). The emulation exists to find mistakes, so it is strict where a device is
 * lenient:
 *  - Shared memory has the launch's length and is full of NaNs when a block begins.
 *  - A barrier that some thread of the block never reaches is a fault with the kernel's name; so is a shuffle or a
 *    matrix operation that some lane never reaches. Like a device's, these faults stay.
 *  - An asynchronous copy takes effect when it is waited for, so an early read sees no number; in one of the orders it
 *    takes effect at once, so an early write shows. A copy still under way when its thread ends is a fault.
 *  - The test chooses the order in which warps, and lanes in a warp, run (emu_order). Each warp runs as far as it can,
 *    so data that passes between warps without a barrier shows in one order or the other.
 *  - Blocks run in a random order, another one at each launch, so a block that needs another one to be done shows.
 *  - Kernels that were compiled for it report what they access (emu_watch.h): a launch in which one block accesses what
 *    another one wrote is a fault, even where every order gives the right numbers.
 *
 * Threads of a block are fibres: a switch saves six registers, which makes whole models bearable (ucontext, on other
 * processors, makes a system call at each). Fibres are kept between blocks: one that ended its body waits for the next.
 * With KN_EMU_THREADS, in builds with the thread sanitizer, they are system threads, and the sanitizer reports both
 * lines of a race.
 *
 * Not emulated: incoherent memory between blocks, occupancy, speed, the rounding of the device's exp, tanh, sin and
 * cos.
 *
 * Thread: one at a time runs the blocks of a device; several devices may run at once.
 */
#include "tests/emulation/emu_blocks.h"
#include "tests/emulation/emu_thread.h"
#include "tests/emulation/emu_watch.h"

#include <stdio.h>
#include <stdlib.h>
#ifdef KN_EMU_THREADS
#include <pthread.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { MAX_THREADS = 1024, STACK_BYTES = 64 << 10, MAX_COPIES = 64 };
enum state { READY, AT_BARRIER, AT_SHUFFLE, DONE };

struct emu_blocks {
	const struct kn_plugin_host *host;
	struct emu_thread *threads; /* [MAX_THREADS] */
	struct copy *copies;        /* [MAX_THREADS][MAX_COPIES] */
	struct emu_warp *warps;     /* [MAX_THREADS / KN_WARP] */
	struct runner *runner;
	uint8_t states[MAX_THREADS], together[MAX_THREADS];
	uint32_t *order; /* [room] of the blocks of a launch */
	size_t room;
	uint32_t seed; /* of the next launch's order */
};

thread_local struct emu_thread *emu_self __attribute__((tls_model("initial-exec")));
__thread struct emu_hook emu_on_begin __attribute__((tls_model("initial-exec")));
unsigned emu_begins, emu_lets;

static int order_mode = EMU_FORWARD;
static uint32_t order_seed = 1;

extern "C" __attribute__((visibility("default"))) void sluice_emulation_order(int order, uint32_t seed)
{
	order_mode = order;
	order_seed = seed | 1;
}

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

/* Block i of the launch in the order of its blocks, with shared memory as a device leaves it. */
static void begin_block(struct emu_block *b, uint32_t i)
{
	uint32_t n = b->order[i];
	b->idx = dim3(n % b->grid.x, n / b->grid.x % b->grid.y, n / b->grid.x / b->grid.y);
	memset(b->shared, 0xFF, b->shared_bytes);
	emu_watch_block(n);
}

emu_dim emu_thread_idx(void) { return emu_self->idx; }
emu_dim emu_block_idx(void) { return emu_self->block->idx; }
emu_dim emu_block_dim(void) { return emu_self->block->dim; }
emu_dim emu_grid_dim(void) { return emu_self->block->grid; }
void *kn_shared(void) { return emu_self->block->shared; }

#ifndef KN_EMU_THREADS
/* ---- fibres ---- */

#if defined(__x86_64__)
extern "C" void sluice_emu_switch(void **from, void *to);
__asm__(".text\n"
	".p2align 4\n"
	".hidden sluice_emu_switch\n"
	".globl sluice_emu_switch\n"
	".type sluice_emu_switch,@function\n"
	"sluice_emu_switch:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size sluice_emu_switch, .-sluice_emu_switch\n");
#else
#include <ucontext.h>
#endif

struct fibre {
#if defined(__x86_64__)
	void *sp;
#else
	ucontext_t context;
#endif
	char *stack;
	void *fake; /* the address sanitizer's own stack */
	bool made;
};

/* Of the thread that runs blocks. */
struct runner {
	struct fibre main;
	struct fibre fibres[MAX_THREADS];
	const void *main_bottom;
	size_t main_size;
	uint16_t warps[MAX_THREADS / KN_WARP], lanes[KN_WARP];
	/* The warp that runs, and up to where in `lanes` it has come. */
	struct emu_thread *warp;
	uint8_t *states; /* of its lanes */
	int at;
	bool woke; /* the one that goes on was woken by the runner, not by another lane */
};

/* from goes to sleep, to goes on; in_fibre: to is a fibre and not the runner. */
static inline void switch_to(struct runner *r, struct fibre *from, struct fibre *to, bool in_fibre)
{
#ifdef EMU_ASAN
	r->woke = from == &r->main;
	__sanitizer_start_switch_fiber(&from->fake, in_fibre ? to->stack : r->main_bottom,
				       in_fibre ? (size_t)STACK_BYTES : r->main_size);
#else
	(void)r;
	(void)in_fibre;
#endif
#if defined(__x86_64__)
	sluice_emu_switch(&from->sp, to->sp);
#else
	swapcontext(&from->context, &to->context);
#endif
#ifdef EMU_ASAN
	/* The runner may be another thread than the last time. */
	bool learn = r->woke && from != &r->main;
	__sanitizer_finish_switch_fiber(from->fake, learn ? &r->main_bottom : NULL, learn ? &r->main_size : NULL);
#endif
}

/* What a lane needs first when it goes on: 32 stacks do not stay in the nearest cache. */
static inline void bring(const struct fibre *f)
{
#if defined(__x86_64__)
	__builtin_prefetch(f->sp);
	__builtin_prefetch((const char *)f->sp + 64);
#else
	(void)f;
#endif
}

/* The next lane of the warp that can go on, in the order of this pass. */
static inline struct emu_thread *next_lane(struct runner *r)
{
	while (r->at < KN_WARP) {
		struct emu_thread *t = &r->warp[r->lanes[r->at++]];
		if (r->at < KN_WARP)
			bring(r->warp[r->lanes[r->at]].fibre);
		if (r->states[t - r->warp] == READY)
			return t;
	}
	return NULL;
}

/* The next lane goes on right away, and the runner when there is none: half of the switches, and each returns to where
 * the lane before it came from, as the processor expects. */
static inline void sleep_as(struct emu_thread *t, int state)
{
	struct runner *r = t->block->runner;
	t->block->states[t->n] = (uint8_t)state;
	struct emu_thread *next = next_lane(r);
	if (next != NULL) {
		emu_self = next;
		switch_to(r, t->fibre, next->fibre, true);
	} else {
		switch_to(r, t->fibre, &r->main, false);
	}
}

/* Never inlined: a fibre may be woken on another thread, where emu_self is at another address. */
__attribute__((noinline)) static struct emu_thread *current(void)
{
	__asm__ volatile("" ::: "memory");
	return emu_self;
}

static void fibre_main(void)
{
#ifdef EMU_ASAN
	struct runner *r = current()->block->runner;
	__sanitizer_finish_switch_fiber(NULL, r->woke ? &r->main_bottom : NULL, r->woke ? &r->main_size : NULL);
#endif
	for (;;) {
		struct emu_thread *t = current();
		t->block->command->thunk(t->block->command, NULL);
		sleep_as(t, DONE);
	}
}

static void make_fibre(struct fibre *f)
{
	f->made = true;
	f->fake = NULL;
#ifdef EMU_ASAN
	__asan_unpoison_memory_region(f->stack, STACK_BYTES);
#endif
#if defined(__x86_64__)
	/* As if it had called sluice_emu_switch from its entry: six registers, where to go, no caller. */
	void **top = (void **)(void *)(f->stack + STACK_BYTES);
	void (*entry)(void) = fibre_main;
	memset(top - 8, 0, 8 * sizeof *top);
	memcpy(top - 2, &entry, sizeof entry);
	f->sp = top - 8;
#else
	getcontext(&f->context);
	f->context.uc_stack.ss_sp = f->stack;
	f->context.uc_stack.ss_size = STACK_BYTES;
	f->context.uc_link = NULL;
	makecontext(&f->context, fibre_main, 0);
#endif
}

static void runner_free(struct emu_blocks *r)
{
	if (r->runner != NULL)
		for (int i = 0; i < MAX_THREADS; i++)
			free(r->runner->fibres[i].stack);
	r->host->free(r->runner);
}

static int runner_make(struct emu_blocks *r)
{
	r->runner = (struct runner *)r->host->zalloc(sizeof *r->runner);
	return r->runner != NULL ? 0 : SL_ENOMEM;
}

/* Fibres for n threads. */
static int runner_need(struct emu_blocks *r, int n)
{
	for (int i = 0; i < n; i++) {
		struct fibre *f = &r->runner->fibres[i];
		if (f->stack == NULL && posix_memalign((void **)&f->stack, 64, STACK_BYTES) != 0) {
			f->stack = NULL;
			return SL_ENOMEM;
		}
		if (!f->made)
			make_fibre(f);
		r->threads[i].fibre = f;
	}
	return 0;
}

/* 0…n-1 as the test wants them. */
static void set_order(uint16_t *order, int n, uint32_t *seed)
{
	for (int i = 0; i < n; i++)
		order[i] = (uint16_t)(order_mode == EMU_BACKWARD ? n - 1 - i : i);
	if (order_mode != EMU_SHUFFLED)
		return;
	for (int i = n - 1; i > 0; i--) {
		int j = (int)(next_random(seed) % (uint32_t)(i + 1));
		uint16_t was = order[i];
		order[i] = order[j];
		order[j] = was;
	}
}

/* Lets a warp go on until all its lanes are at a barrier or done. NULL, or what can never go on. */
static const char *run_warp(struct emu_block *b, int first, uint32_t *seed)
{
	struct runner *r = b->runner;
	uint8_t *states = b->states + first, *together = b->together + first;
	r->warp = b->threads + first;
	r->states = states;
	for (;;) {
		int shuffling = 0, alike = 0;
		if (order_mode == EMU_SHUFFLED)
			set_order(r->lanes, KN_WARP, seed);
		r->at = 0;
		struct emu_thread *t = next_lane(r);
		if (t != NULL) {
			emu_self = t;
			switch_to(r, &r->main, t->fibre, true);
		}
		if (emu_counting)
			emu_count_warp();
		for (int i = 0; i < KN_WARP; i++)
			shuffling += states[i] == AT_SHUFFLE;
		if (shuffling == 0)
			return NULL;
		if (shuffling < KN_WARP)
			return "a shuffle that not every lane reached";
		for (int i = 0; i < KN_WARP; i++)
			alike += together[i] == together[0];
		if (alike < KN_WARP)
			return "lanes of a warp at different operations";
		memset(states, READY, KN_WARP);
	}
}

static const char *misused(const struct emu_block *b)
{
	if (b->misuse != NULL)
		return b->misuse;
	for (int i = 0; i < b->n; i++)
		if (b->threads[i].n_copies > 0)
			return "a copy that its thread never waited for";
	return NULL;
}

/* One warp after the other from barrier to barrier, each as far as it gets: so none waits for the
 * others by accident, as they would if all took turns. */
static const char *run_block(struct emu_block *b, uint32_t *seed)
{
	const char *stuck = NULL;
	for (;;) {
		int at_barrier = 0, n_warps = b->n / KN_WARP;
		memset(b->states, READY, (size_t)b->n);
		set_order(b->runner->warps, n_warps, seed);
		for (int w = 0; w < n_warps && stuck == NULL; w++)
			stuck = run_warp(b, b->runner->warps[w] * KN_WARP, seed);
		for (int i = 0; i < b->n; i++)
			at_barrier += b->states[i] == AT_BARRIER;
		if (stuck == NULL && at_barrier == 0)
			return misused(b);
		if (stuck == NULL && at_barrier < b->n)
			stuck = "a barrier that not every thread reached";
		if (stuck != NULL)
			break;
	}
	/* What they were doing is lost with their stacks. */
	for (int i = 0; i < b->n; i++)
		b->threads[i].fibre->made = false;
	return stuck;
}

static const char *run_grid(struct emu_block *b)
{
	uint32_t seed = order_seed;
	struct emu_thread *outer = emu_self;
	const char *stuck = NULL;
	if (emu_counting)
		emu_count_launch(b->kernel, (uint64_t)b->grid.x * b->grid.y * b->grid.z);
	if (order_mode != EMU_SHUFFLED) /* else for each pass */
		set_order(b->runner->lanes, KN_WARP, &seed);
	for (uint32_t i = 0; i < b->n_blocks && stuck == NULL; i++) {
		begin_block(b, i);
		stuck = run_block(b, &seed);
	}
	emu_self = outer;
	return stuck;
}

void kn_barrier(void) { sleep_as(emu_self, AT_BARRIER); }

/* Returns when all lanes have called it; what they did together is then computed by the first to continue. */
void emu_all_lanes(void (*compute)(struct emu_thread *lanes, struct emu_warp *w, unsigned turn))
{
	struct emu_thread *t = emu_self;
	sleep_as(t, AT_SHUFFLE);
	struct emu_warp *w = &t->block->warps[t->n / KN_WARP];
	if (compute != NULL && w->done != t->turn) {
		compute(t - t->n % KN_WARP, w, t->turn);
		w->done = t->turn;
	}
}

#else
/* ---- threads of the system ---- */

/* Where n threads meet. Its waiters must all be there for the same reason. */
struct meeting {
	int n, arrived, why;
	unsigned round;
};

struct runner {
	pthread_mutex_t lock;
	pthread_cond_t met;
	struct meeting block, warp[MAX_THREADS / KN_WARP];
};

static void meet(struct runner *r, struct meeting *m, int why)
{
	pthread_mutex_lock(&r->lock);
	if (m->arrived > 0 && m->why != why) {
		/* The other threads cannot be ended: the run is over. */
		fprintf(stderr, "emulation: %s: a barrier that not every thread reached\n", emu_self->block->kernel);
		abort();
	}
	m->why = why;
	unsigned round = m->round;
	if (++m->arrived == m->n) {
		m->arrived = 0;
		m->round++;
		pthread_cond_broadcast(&r->met);
	}
	while (round == m->round)
		pthread_cond_wait(&r->met, &r->lock);
	pthread_mutex_unlock(&r->lock);
}

static void runner_free(struct emu_blocks *r) { r->host->free(r->runner); }

static int runner_make(struct emu_blocks *r)
{
	r->runner = (struct runner *)r->host->zalloc(sizeof *r->runner);
	if (r->runner == NULL)
		return SL_ENOMEM;
	pthread_mutex_init(&r->runner->lock, NULL);
	pthread_cond_init(&r->runner->met, NULL);
	return 0;
}

static int runner_need(struct emu_blocks *r, int n)
{
	r->runner->block.n = n;
	for (int i = 0; i < n / KN_WARP; i++)
		r->runner->warp[i].n = KN_WARP;
	return 0;
}

static void *thread_main(void *arg)
{
	emu_self = (struct emu_thread *)arg;
	struct emu_block *b = emu_self->block;
	for (uint32_t i = 0; i < b->n_blocks; i++) {
		if (emu_self->n == 0)
			begin_block(b, i);
		meet(b->runner, &b->runner->block, DONE);
		b->command->thunk(b->command, NULL);
		meet(b->runner, &b->runner->block, DONE);
	}
	return NULL;
}

static const char *run_grid(struct emu_block *b)
{
	static pthread_t threads[MAX_THREADS];
	int made = 0;
	while (made < b->n && pthread_create(&threads[made], NULL, thread_main, &b->threads[made]) == 0)
		made++;
	if (made < b->n) {
		fprintf(stderr, "emulation: no more threads\n");
		abort();
	}
	for (int i = 0; i < made; i++)
		pthread_join(threads[i], NULL);
	return NULL;
}

void kn_barrier(void) { meet(emu_self->block->runner, &emu_self->block->runner->block, AT_BARRIER); }

void emu_all_lanes(void (*compute)(struct emu_thread *lanes, struct emu_warp *w, unsigned turn))
{
	struct runner *r = emu_self->block->runner;
	struct meeting *m = &r->warp[emu_self->n / KN_WARP];
	meet(r, m, AT_SHUFFLE);
	if (compute == NULL)
		return;
	if (emu_self->n % KN_WARP == 0)
		compute(emu_self, &emu_self->block->warps[emu_self->n / KN_WARP], emu_self->turn);
	meet(r, m, AT_SHUFFLE);
}
#endif

/* ---- what both have ---- */

/* The oldest n of the thread's copies. */
static void copy_now(struct emu_thread *t, int n)
{
	for (int i = 0; i < n; i++)
		if (t->copies[i].from != NULL) {
#ifdef KN_STANDIN
			standin_reads(t->copies[i].from, 16);
#endif
			emu_watch_read(t->copies[i].from, 16);
			memcpy(t->copies[i].to, t->copies[i].from, 16);
		} else {
			memset(t->copies[i].to, 0, 16);
		}
	t->n_copies -= n;
	memmove(t->copies, t->copies + n, (size_t)t->n_copies * sizeof t->copies[0]);
}

void emu_unaligned(void) { emu_self->block->misuse = "a load that is not aligned"; }

static void copy_async(const void *site, void *shared, const void *global, bool there)
{
	struct emu_thread *t = emu_self;
	if (((uintptr_t)shared | (uintptr_t)global) % 16 != 0)
		t->block->misuse = "an asynchronous copy that is not aligned";
	if (emu_counting)
		emu_count_access(site, shared, 16);
	if (emu_counting && there)
		emu_count_load(EMU_ASYNC, 16);
	if (t->n_copies == MAX_COPIES)
		copy_now(t, 1); /* a device may be early too */
	t->copies[t->n_copies].to = shared;
	t->copies[t->n_copies].from = there ? global : NULL;
	t->copies[t->n_copies++].group = t->group;
	if (order_mode == EMU_BACKWARD)
		copy_now(t, t->n_copies);
}

void kn_cp_async16_or_zero(void *shared, const void *global, bool there)
{
	copy_async(__builtin_return_address(0), shared, global, there);
}

void kn_cp_async16(void *shared, const void *global) { copy_async(__builtin_return_address(0), shared, global, true); }

void kn_cp_async_commit(void) { emu_self->group++; }

void emu_cp_async_wait(int n)
{
	struct emu_thread *t = emu_self;
	int ready = 0;
	while (ready < t->n_copies && t->copies[ready].group + (unsigned)n < t->group)
		ready++;
	copy_now(t, ready);
}

/* Whether a device takes a launch: 65535 blocks but along x. */
static bool fits(const struct kn_command *c, const dim3 &grid, int n)
{
	return n >= 1 && n <= MAX_THREADS && n % KN_WARP == 0 && c->shared <= EMU_SHARED_MOST && grid.y <= 65535 &&
	       grid.z <= 65535 && grid.x >= 1 && grid.y >= 1 && grid.z >= 1;
}

/* A random order of n blocks (Fisher and Yates). NULL: no memory. */
static const uint32_t *block_order(struct emu_blocks *r, uint32_t n)
{
	if (n > r->room) {
		uint32_t *grown = (uint32_t *)realloc(r->order, n * sizeof *grown);
		if (grown == NULL)
			return NULL;
		r->order = grown;
		r->room = n;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t j = next_random(&r->seed) % (i + 1);
		r->order[i] = r->order[j];
		r->order[j] = i;
	}
	return r->order;
}

const char *emu_blocks_run(struct emu_blocks *r, const struct kn_command *c)
{
	dim3 grid(c->grid[0], c->grid[1], c->grid[2]), block(c->block[0], c->block[1], c->block[2]);
	int n = (int)(block.x * block.y * block.z);
	const uint32_t *order;
	if (!fits(c, grid, n))
		return "a launch that no device takes";
	if ((order = block_order(r, grid.x * grid.y * grid.z)) == NULL)
		return "no memory for the order of its blocks";
	if (runner_need(r, n) != 0)
		return "no memory for its threads";
	struct emu_block b = {};
	b.kernel = c->name;
	b.command = c;
	b.grid = grid;
	b.dim = block;
	b.n = n;
	b.threads = r->threads;
	b.states = r->states;
	b.together = r->together;
	b.warps = r->warps;
	b.runner = r->runner;
	b.shared_bytes = c->shared;
	b.order = order;
	b.n_blocks = grid.x * grid.y * grid.z;
	if (posix_memalign(&b.shared, 64, b.shared_bytes > 0 ? b.shared_bytes : 1) != 0)
		return "no memory for what its threads share";
	for (int i = 0; i < n; i++) {
		struct emu_thread *t = &r->threads[i];
		unsigned u = (unsigned)i;
		t->block = &b;
		t->n = i;
		t->idx = dim3(u % block.x, u / block.x % block.y, u / block.x / block.y);
		t->turn = t->group = 0;
		t->copies = r->copies + (size_t)i * MAX_COPIES;
		t->n_copies = 0;
	}
	for (int i = 0; i < n / KN_WARP; i++)
		r->warps[i].done = 0;
#ifdef KN_STANDIN
	standin_shared(b.shared, b.shared_bytes);
#endif
	emu_watch_begin(b.n_blocks);
	const char *stuck = run_grid(&b), *seen = emu_watch_end();
	free(b.shared);
	return stuck != NULL ? stuck : seen;
}

void emu_blocks_free(struct emu_blocks *r)
{
	runner_free(r);
	r->host->free(r->threads);
	r->host->free(r->copies);
	r->host->free(r->warps);
	free(r->order);
	r->host->free(r);
}

int emu_blocks_make(const struct kn_plugin_host *host, struct emu_blocks **out)
{
	struct emu_blocks *r = (struct emu_blocks *)host->zalloc(sizeof *r);
	if (r == NULL)
		return SL_ENOMEM;
	r->host = host;
	r->seed = order_seed;
	r->threads = (struct emu_thread *)host->zalloc(MAX_THREADS * sizeof *r->threads);
	r->copies = (struct copy *)host->zalloc((size_t)MAX_THREADS * MAX_COPIES * sizeof *r->copies);
	r->warps = (struct emu_warp *)host->zalloc(MAX_THREADS / KN_WARP * sizeof *r->warps);
	if (r->threads == NULL || r->copies == NULL || r->warps == NULL || runner_make(r) != 0) {
		emu_blocks_free(r);
		return SL_ENOMEM;
	}
	*out = r;
	return 0;
}
