/* SPDX-License-Identifier: Apache-2.0
 *
 * The device layer with no device: kernels run on the host by the rules of CUDA's execution model, one
 * block after the other. It exists to find mistakes, so it is strict where a device is lenient:
 *  - shared memory is as long as the launch said and full of NaNs when a block begins;
 *  - a barrier that some thread of the block never reaches, and a shuffle or a matrix operation that some lane never
 *    reaches, are faults, with the kernel's name, and like a device's they stay;
 *  - an asynchronous copy happens when it is waited for and not before, so what is read too early is no number (or, in one
 *    of the orders, at once, so what is written too early is seen); one that nobody waited for when its thread ends is
 *    a fault;
 *  - the order in which warps, and lanes in a warp, go on is the test's choice (emu_order). Each warp runs
 *    as far as it gets, so what one writes and another reads with no barrier between shows in one order
 *    or the other;
 *  - device memory is malloc's, exactly as long as asked for: a sanitizer sees every access outside;
 *  - the device is behind: a command is done when somebody waits for it (emu_queue.h), and pinned memory is read and
 *    written then, so what is changed or read too early shows.
 *
 * Threads of a block are fibres: a switch saves six registers, which is what makes whole models
 * bearable (ucontext, used on other processors, makes a system call at each). They are kept between
 * blocks, since a fibre that ended its body waits for the next one. With KN_EMU_THREADS, which builds
 * with the thread sanitizer have, they are threads of the system and the sanitizer names both lines
 * of a race.
 *
 * Where the environment names a file in SLUICE_EMULATION_FAIL_FILE, the launch that finds it there removes it and fails:
 * so a test can break the device of another process when it likes, once.
 *
 * What it can't show: memory that is not coherent between blocks, occupancy, speed, rounding of
 * the device's own exp, tanh, sin and cos.
 *
 * Thread: a device belongs to one thread at a time; several devices may run at once.
 */
#include "kernels/cuda/emu_library.h"
#include "kernels/cuda/emu_memory.h"
#include "kernels/cuda/emu_queue.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

/* What the lanes of a warp do together. */
enum together { SHUFFLE, MMA_BF16, MMA_F16, MATRICES, MATRICES_TURNED };

/* What a lane gives for it. */
struct given {
	float f;
	uint32_t a[4], b[2];
	const void *row;
};

struct emu_thread {
	struct emu_block *block;
	dim3 idx;
	int n; /* its number in the block */
	int state;
	unsigned turn; /* of what the lanes did together: two places in turn, so that one wait each is enough */
	int together;
	struct given given[2];
	struct fibre *fibre;
	struct {
		void *to;
		const void *from; /* NULL: zeros */
		unsigned group;
	} copies[MAX_COPIES]; /* on their way, in order */
	int n_copies;
	unsigned group; /* the one that is open */
};

/* What a warp got from what its lanes did together. */
struct emu_warp {
	unsigned done; /* up to which turn */
	union {
		float product[KN_WARP][4];
		uint32_t pairs[KN_WARP][4];
	} got[2];
};

struct emu_block {
	const char *kernel;
	const struct kn_command *command;
	dim3 grid, dim, idx;
	void *shared;
	size_t shared_bytes;
	int n;
	struct emu_thread *threads;
	struct emu_warp *warps;
	struct runner *runner;
	const char *misuse; /* NULL, or what a device would not have done */
};

struct dev {
	const struct kn_plugin_host *host;
	struct emu_thread *threads; /* [MAX_THREADS] */
	struct emu_warp *warps;     /* [MAX_THREADS / KN_WARP] */
	struct runner *runner;
	uint64_t serial;
	struct kn_list *recording;
	struct emu_queue queue;
	uint64_t busy_ns;
	const char *fail_file; /* NULL: none */
	char fault[192];
};

/* What was captured: a copy, as a device has one. */
struct dev_graph {
	struct kn_list list;
};

static thread_local struct emu_thread *self;

static int order_mode = EMU_FORWARD;
static uint32_t order_seed = 1;
static int fail_in; /* launches until one fails; 0: none does */
static bool no_graphs;
static char ranges[256];

extern "C" __attribute__((visibility("default"))) const char *sluice_emulation_ranges(void)
{
	static char last[sizeof ranges];
	memcpy(last, ranges, sizeof last);
	ranges[0] = '\0';
	return last;
}

extern "C" __attribute__((visibility("default"))) void sluice_emulation_order(int order, uint32_t seed)
{
	order_mode = order;
	order_seed = seed | 1;
}

extern "C" __attribute__((visibility("default"))) void sluice_emulation_fail(int n)
{
	fail_in = n;
}

extern "C" __attribute__((visibility("default"))) void sluice_device_no_graphs(bool none)
{
	no_graphs = none;
}

const dim3 &emu_thread_idx(void) { return self->idx; }
const dim3 &emu_block_idx(void) { return self->block->idx; }
const dim3 &emu_block_dim(void) { return self->block->dim; }
const dim3 &emu_grid_dim(void) { return self->block->grid; }
void *kn_shared(void) { return self->block->shared; }

static int fault(struct dev *d, const char *kernel, const char *what)
{
	if (d->fault[0] == '\0')
		snprintf(d->fault, sizeof d->fault, "%s: %s", kernel, what);
	return SL_EIO;
}

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
};

/* from goes to sleep, to goes on; in_fibre: to is a fibre and not the runner. */
static void switch_to(struct runner *r, struct fibre *from, struct fibre *to, bool in_fibre)
{
#ifdef EMU_ASAN
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
	/* A fibre is woken by the runner, which may be another thread than the last time. */
	__sanitizer_finish_switch_fiber(from->fake, in_fibre ? NULL : &r->main_bottom, in_fibre ? NULL : &r->main_size);
#endif
}

static void sleep_as(struct emu_thread *t, int state)
{
	struct runner *r = t->block->runner;
	t->state = state;
	switch_to(r, t->fibre, &r->main, false);
}

/* Never inlined: a fibre may be woken on another thread, where self is at another address. */
__attribute__((noinline)) static struct emu_thread *current(void)
{
	__asm__ volatile("" ::: "memory");
	return self;
}

static void fibre_main(void)
{
#ifdef EMU_ASAN
	struct runner *r = current()->block->runner;
	__sanitizer_finish_switch_fiber(NULL, &r->main_bottom, &r->main_size);
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

static void runner_free(struct dev *d)
{
	if (d->runner != NULL)
		for (int i = 0; i < MAX_THREADS; i++)
			free(d->runner->fibres[i].stack);
	d->host->free(d->runner);
}

static int runner_make(struct dev *d)
{
	d->runner = (struct runner *)d->host->zalloc(sizeof *d->runner);
	return d->runner != NULL ? 0 : SL_ENOMEM;
}

/* Fibres for n threads. */
static int runner_need(struct dev *d, int n)
{
	for (int i = 0; i < n; i++) {
		struct fibre *f = &d->runner->fibres[i];
		if (f->stack == NULL && posix_memalign((void **)&f->stack, 64, STACK_BYTES) != 0) {
			f->stack = NULL;
			return SL_ENOMEM;
		}
		if (!f->made)
			make_fibre(f);
		d->threads[i].fibre = f;
	}
	return 0;
}

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
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
static const char *run_warp(struct emu_block *b, struct emu_thread *lanes, uint32_t *seed)
{
	struct runner *r = b->runner;
	for (;;) {
		int shuffling = 0;
		set_order(r->lanes, KN_WARP, seed);
		for (int k = 0; k < KN_WARP; k++) {
			struct emu_thread *t = &lanes[r->lanes[k]];
			if (t->state == READY) {
				self = t;
				switch_to(r, &r->main, t->fibre, true);
			}
			shuffling += t->state == AT_SHUFFLE;
		}
		if (shuffling == 0)
			return NULL;
		if (shuffling < KN_WARP)
			return "a shuffle that not every lane reached";
		for (int i = 1; i < KN_WARP; i++)
			if (lanes[i].together != lanes[0].together)
				return "lanes of a warp at different operations";
		for (int i = 0; i < KN_WARP; i++)
			lanes[i].state = READY;
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
		for (int i = 0; i < b->n; i++)
			b->threads[i].state = READY;
		set_order(b->runner->warps, n_warps, seed);
		for (int w = 0; w < n_warps && stuck == NULL; w++)
			stuck = run_warp(b, b->threads + b->runner->warps[w] * KN_WARP, seed);
		for (int i = 0; i < b->n; i++)
			at_barrier += b->threads[i].state == AT_BARRIER;
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
	struct emu_thread *outer = self;
	const char *stuck = NULL;
	for (b->idx.z = 0; b->idx.z < b->grid.z; b->idx.z++)
		for (b->idx.y = 0; b->idx.y < b->grid.y; b->idx.y++)
			for (b->idx.x = 0; b->idx.x < b->grid.x && stuck == NULL; b->idx.x++) {
				memset(b->shared, 0xFF, b->shared_bytes);
				stuck = run_block(b, &seed);
			}
	self = outer;
	return stuck;
}

void kn_barrier(void)
{
	sleep_as(self, AT_BARRIER);
}

/* Returns when all lanes have called it; what they did together is then computed by whoever goes on first. */
static void all_lanes(void (*compute)(struct emu_thread *lanes, struct emu_warp *w, unsigned turn))
{
	struct emu_thread *t = self;
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
		/* Nobody could end the others: the run is over. */
		fprintf(stderr, "emulation: %s: a barrier that not every thread reached\n", self->block->kernel);
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

static void runner_free(struct dev *d)
{
	d->host->free(d->runner);
}

static int runner_make(struct dev *d)
{
	d->runner = (struct runner *)d->host->zalloc(sizeof *d->runner);
	if (d->runner == NULL)
		return SL_ENOMEM;
	pthread_mutex_init(&d->runner->lock, NULL);
	pthread_cond_init(&d->runner->met, NULL);
	return 0;
}

static int runner_need(struct dev *d, int n)
{
	d->runner->block.n = n;
	for (int i = 0; i < n / KN_WARP; i++)
		d->runner->warp[i].n = KN_WARP;
	return 0;
}

static void *thread_main(void *arg)
{
	self = (struct emu_thread *)arg;
	struct emu_block *b = self->block;
	unsigned n_blocks = b->grid.x * b->grid.y * b->grid.z;
	for (unsigned i = 0; i < n_blocks; i++) {
		if (self->n == 0) {
			b->idx = dim3(i % b->grid.x, i / b->grid.x % b->grid.y, i / b->grid.x / b->grid.y);
			memset(b->shared, 0xFF, b->shared_bytes);
		}
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

void kn_barrier(void)
{
	meet(self->block->runner, &self->block->runner->block, AT_BARRIER);
}

static void all_lanes(void (*compute)(struct emu_thread *lanes, struct emu_warp *w, unsigned turn))
{
	struct runner *r = self->block->runner;
	struct meeting *m = &r->warp[self->n / KN_WARP];
	meet(r, m, AT_SHUFFLE);
	if (compute == NULL)
		return;
	if (self->n % KN_WARP == 0)
		compute(self, &self->block->warps[self->n / KN_WARP], self->turn);
	meet(r, m, AT_SHUFFLE);
}
#endif

/* ---- what both have ---- */

/* The place for what this lane gives next. */
static struct given *next_turn(struct emu_thread *t, int together)
{
	t->turn++;
	t->together = together;
	return &t->given[t->turn % 2];
}

float kn_shuffle_xor(float v, int mask)
{
	struct emu_thread *t = self;
	next_turn(t, SHUFFLE)->f = v;
	all_lanes(NULL);
	return (t - t->n)[t->n ^ mask].given[t->turn % 2].f;
}

static float f16_of(uint16_t h)
{
	return kn_f16_float(h);
}

static float bf16_of(uint16_t h)
{
	return kn_bf16_float(h);
}

/* Products in float32 (those of two 11-bit numbers are exact), added to the sum one after the other. A device
 * adds them up in an order of its own. */
static void multiply(struct emu_thread *lanes, struct emu_warp *w, unsigned turn, float (*of)(uint16_t))
{
	float a[16][16], b[16][8], d[16][8];
	for (int l = 0; l < KN_WARP; l++) {
		const struct given *v = &lanes[l].given[turn % 2];
		int g = l / 4, t = l % 4;
		for (int i = 0; i < 2; i++) {
			for (int r = 0; r < 4; r++)
				a[g + r % 2 * 8][2 * t + r / 2 * 8 + i] = of((uint16_t)(v->a[r] >> 16 * i));
			for (int r = 0; r < 2; r++)
				b[2 * t + r * 8 + i][g] = of((uint16_t)(v->b[r] >> 16 * i));
		}
	}
	for (int i = 0; i < 16; i++) {
		float sum[8] = {};
		for (int k = 0; k < 16; k++)
			for (int n = 0; n < 8; n++)
				sum[n] += a[i][k] * b[k][n];
		memcpy(d[i], sum, sizeof sum);
	}
	for (int l = 0; l < KN_WARP; l++)
		for (int r = 0; r < 4; r++)
			w->got[turn % 2].product[l][r] = d[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2];
}

static void multiply_bf16(struct emu_thread *lanes, struct emu_warp *w, unsigned turn)
{
	multiply(lanes, w, turn, bf16_of);
}

static void multiply_f16(struct emu_thread *lanes, struct emu_warp *w, unsigned turn)
{
	multiply(lanes, w, turn, f16_of);
}

static void mma(int kind, float *d, const uint32_t *a, const uint32_t *b)
{
	struct emu_thread *t = self;
	struct given *v = next_turn(t, kind);
	memcpy(v->a, a, sizeof v->a);
	memcpy(v->b, b, sizeof v->b);
	all_lanes(kind == MMA_BF16 ? multiply_bf16 : multiply_f16);
	const float *sum = t->block->warps[t->n / KN_WARP].got[t->turn % 2].product[t->n % KN_WARP];
	for (int i = 0; i < 4; i++)
		d[i] += sum[i];
}

void kn_mma_bf16_16816(float *d, const uint32_t *a, const uint32_t *b)
{
	mma(MMA_BF16, d, a, b);
}

void kn_mma_f16_16816(float *d, const uint32_t *a, const uint32_t *b)
{
	mma(MMA_F16, d, a, b);
}

static void read_matrices(struct emu_thread *lanes, struct emu_warp *w, unsigned turn)
{
	uint16_t m[32][8];
	bool turned = lanes[0].together == MATRICES_TURNED;
	for (int l = 0; l < KN_WARP; l++)
		memcpy(m[l], lanes[l].given[turn % 2].row, sizeof m[l]);
	for (int l = 0; l < KN_WARP; l++)
		for (int i = 0; i < 4; i++) {
			int g = l / 4, k = l % 4 * 2;
			uint16_t low = turned ? m[8 * i + k][g] : m[8 * i + g][k];
			uint16_t high = turned ? m[8 * i + k + 1][g] : m[8 * i + g][k + 1];
			w->got[turn % 2].pairs[l][i] = low | (uint32_t)high << 16;
		}
}

static void matrices(int kind, uint32_t *r, const void *row)
{
	struct emu_thread *t = self;
	if ((uintptr_t)row % 16 != 0)
		t->block->misuse = "a row of a matrix that is not aligned";
	next_turn(t, kind)->row = row;
	all_lanes(read_matrices);
	memcpy(r, t->block->warps[t->n / KN_WARP].got[t->turn % 2].pairs[t->n % KN_WARP], 4 * sizeof *r);
}

void kn_ldmatrix_x4(uint32_t *r, const void *row)
{
	matrices(MATRICES, r, row);
}

void kn_ldmatrix_x4_trans(uint32_t *r, const void *row)
{
	matrices(MATRICES_TURNED, r, row);
}

/* The oldest n of the thread's copies. */
static void copy_now(struct emu_thread *t, int n)
{
	for (int i = 0; i < n; i++)
		if (t->copies[i].from != NULL)
			memcpy(t->copies[i].to, t->copies[i].from, 16);
		else
			memset(t->copies[i].to, 0, 16);
	t->n_copies -= n;
	memmove(t->copies, t->copies + n, (size_t)t->n_copies * sizeof t->copies[0]);
}

void kn_cp_async16_or_zero(void *shared, const void *global, bool there)
{
	struct emu_thread *t = self;
	if (((uintptr_t)shared | (uintptr_t)global) % 16 != 0)
		t->block->misuse = "an asynchronous copy that is not aligned";
	if (t->n_copies == MAX_COPIES)
		copy_now(t, 1); /* a device may be early too */
	t->copies[t->n_copies].to = shared;
	t->copies[t->n_copies].from = there ? global : NULL;
	t->copies[t->n_copies++].group = t->group;
	if (order_mode == EMU_BACKWARD)
		copy_now(t, t->n_copies);
}

void kn_cp_async16(void *shared, const void *global)
{
	kn_cp_async16_or_zero(shared, global, true);
}

void kn_cp_async_commit(void)
{
	self->group++;
}

void emu_cp_async_wait(int n)
{
	struct emu_thread *t = self;
	int ready = 0;
	while (ready < t->n_copies && t->copies[ready].group + (unsigned)n < t->group)
		ready++;
	copy_now(t, ready);
}

/* Whether somebody wants this launch to fail: then SL_EIO. */
static int struck(struct dev *d, const char *kernel)
{
	if (fail_in > 0 && --fail_in == 0)
		return fault(d, kernel, "an injected fault");
	if (d->host->device_fault())
		return fault(d, kernel, "a fault point");
	if (d->fail_file != NULL && unlink(d->fail_file) == 0)
		return fault(d, kernel, "a fault from outside");
	return 0;
}

/* Runs a kernel over its grid. */
static int launch(struct dev *d, const struct kn_command *c)
{
	const char *kernel = c->name;
	dim3 grid(c->grid[0], c->grid[1], c->grid[2]), block(c->block[0], c->block[1], c->block[2]);
	size_t shared_bytes = c->shared;
	int n = (int)(block.x * block.y * block.z);
	if (struck(d, kernel) != 0)
		return SL_EIO;
	/* The limits of every device: 48 KiB without asking for more, 65535 blocks but along x. */
	if (n < 1 || n > MAX_THREADS || n % KN_WARP != 0 || shared_bytes > 48 << 10 || grid.y > 65535 ||
	    grid.z > 65535 || grid.x < 1 || grid.y < 1 || grid.z < 1)
		return fault(d, kernel, "a launch that no device takes");
	if (runner_need(d, n) != 0)
		return fault(d, kernel, "no memory for its threads");
	struct emu_block b = {};
	b.kernel = kernel;
	b.command = c;
	b.grid = grid;
	b.dim = block;
	b.n = n;
	b.threads = d->threads;
	b.warps = d->warps;
	b.runner = d->runner;
	b.shared_bytes = shared_bytes;
	if (posix_memalign(&b.shared, 64, shared_bytes > 0 ? shared_bytes : 1) != 0)
		return fault(d, kernel, "no memory for what its threads share");
	for (int i = 0; i < n; i++) {
		struct emu_thread *t = &d->threads[i];
		unsigned u = (unsigned)i;
		t->block = &b;
		t->n = i;
		t->idx = dim3(u % block.x, u / block.x % block.y, u / block.x / block.y);
		t->turn = t->group = 0;
		t->n_copies = 0;
	}
	for (int i = 0; i < n / KN_WARP; i++)
		d->warps[i].done = 0;
	const char *stuck = run_grid(&b);
	free(b.shared);
	return stuck == NULL ? 0 : fault(d, kernel, stuck);
}

/* The device's own clock: what a command takes does not depend on the host. Kernels for products are the only ones that
 * somebody else (library.h) could be quicker at. */
static uint64_t takes_ns(const struct kn_command *c)
{
	if (c->kind == KN_PRODUCT)
		return emu_library_takes_ns((const struct dev_product_call *)kn_args_of(c));
	return c->kind == KN_CALL && (strstr(c->name, "mma") != NULL || strstr(c->name, "matvec") != NULL) ? 100000 : 1000;
}

int emu_run_now(struct dev *d, const struct kn_command *c)
{
	if (d->fault[0] != '\0')
		return SL_EIO;
	d->busy_ns += takes_ns(c);
	if (c->kind == KN_CALL)
		return launch(d, c);
	if (c->kind == KN_PRODUCT) {
		int rc = struck(d, c->name);
		return rc != 0 ? rc : dev_library_run((const struct dev_product_call *)kn_args_of(c));
	}
	const struct kn_copy *copy = (const struct kn_copy *)kn_args_of(c);
	if (copy->bytes > 0)
		memcpy(copy->to, copy->from, copy->bytes);
	return 0;
}

int dev_run(struct dev *d, const struct kn_command *c)
{
	return d->fault[0] != '\0' ? SL_EIO : emu_queue_put(d, &d->queue, c);
}

int dev_mark(struct dev *d, int mark)
{
	if (d->fault[0] != '\0')
		return SL_EIO;
	emu_queue_mark(&d->queue, mark);
	return 0;
}

int dev_await(struct dev *d, int mark)
{
	return d->fault[0] != '\0' ? SL_EIO : emu_queue_run(d, &d->queue, mark);
}

bool dev_reached(struct dev *d, int mark)
{
	return d->fault[0] != '\0' || emu_queue_reached(&d->queue, mark);
}

int dev_graph_make(struct dev *d, const struct kn_list *l, size_t n, struct dev_graph **out)
{
	struct dev_graph *g = no_graphs ? NULL : (struct dev_graph *)d->host->zalloc(sizeof *g);
	if (g == NULL)
		return SL_ENOMEM;
	g->list.host = d->host;
	g->list.owned = d->host->zalloc(n + KN_COMMAND_ALIGN);
	if (g->list.owned == NULL) {
		d->host->free(g);
		return SL_ENOMEM;
	}
	uintptr_t at = (uintptr_t)g->list.owned + KN_COMMAND_ALIGN - 1;
	g->list.at = (uint8_t *)(at / KN_COMMAND_ALIGN * KN_COMMAND_ALIGN);
	g->list.n = g->list.room = n;
	memcpy(g->list.at, l->at, n);
	emu_count_graph(1);
	*out = g;
	return 0;
}

int dev_graph_run(struct dev *d, struct dev_graph *g)
{
	return kn_list_run(d, &g->list, 0, g->list.n);
}

void dev_graph_free(struct dev *d, struct dev_graph *g)
{
	(void)emu_queue_run(d, &d->queue, EMU_ALL); /* a fault stays in d */
	kn_list_dispose(&g->list);
	d->host->free(g);
	emu_count_graph(-1);
}

int dev_probe(const struct kn_plugin_host *host, struct sl_err *err)
{
	(void)host;
	(void)err;
	return 0;
}

void dev_close(struct dev *d)
{
	(void)emu_queue_run(d, &d->queue, EMU_ALL);
	emu_queue_dispose(&d->queue);
	emu_count_device(-1);
	runner_free(d);
	d->host->free(d->threads);
	d->host->free(d->warps);
	d->host->free(d);
}

int dev_open(const struct kn_plugin_host *host, int priority, struct dev **out, struct sl_err *err)
{
	(void)priority;
	struct dev *d = (struct dev *)host->zalloc(sizeof *d);
	if (d == NULL)
		return host->errf(err, SL_ENOMEM, "no memory for the emulated device");
	d->host = host;
	d->queue.host = host;
	d->fail_file = getenv("SLUICE_EMULATION_FAIL_FILE");
	d->threads = (struct emu_thread *)host->zalloc(MAX_THREADS * sizeof *d->threads);
	d->warps = (struct emu_warp *)host->zalloc(MAX_THREADS / KN_WARP * sizeof *d->warps);
	if (d->threads == NULL || d->warps == NULL || runner_make(d) != 0) {
		host->free(d->threads);
		host->free(d->warps);
		host->free(d);
		return host->errf(err, SL_ENOMEM, "no memory for the emulated device");
	}
	emu_count_device(1);
	*out = d;
	return 0;
}

const char *dev_describe(const struct dev *d)
{
	(void)d;
	return "CUDA kernels emulated on the host, for tests";
}

const char *dev_pci(const struct dev *d)
{
	(void)d;
	return "";
}

const char *dev_fault(const struct dev *d)
{
	return d->fault;
}

int dev_alloc(struct dev *d, size_t bytes, void **out)
{
	if (d->fault[0] != '\0')
		return SL_EIO;
	void *p = emu_memory_alloc(bytes);
	if (p == NULL)
		return SL_ENOMEM;
	*out = p;
	return 0;
}

bool dev_memory(struct dev *d, uint64_t *free_bytes, uint64_t *total)
{
	(void)d;
	return emu_memory_tell(free_bytes, total);
}

void dev_free(struct dev *d, void *p)
{
	(void)kn_list_flush(d); /* a fault stays in d */
	(void)emu_queue_run(d, &d->queue, EMU_ALL);
	emu_memory_free(p);
}

void *dev_host_alloc(struct dev *d, size_t bytes)
{
	return emu_pinned_alloc(&d->queue, bytes);
}

void dev_host_free(struct dev *d, void *p)
{
	emu_pinned_free(&d->queue, p);
}

int dev_copy_in(struct dev *d, void *to, const void *host, size_t bytes)
{
	int rc = kn_list_flush(d);
	if (rc != 0 || d->fault[0] != '\0')
		return SL_EIO;
	dev_count(d);
	if (emu_is_pinned(&d->queue, host))
		return emu_queue_copy(d, &d->queue, to, host, bytes);
	rc = emu_queue_run(d, &d->queue, EMU_ALL);
	if (rc == 0 && bytes > 0)
		memcpy(to, host, bytes);
	return rc;
}

void dev_range(struct dev *d, const char *name)
{
	(void)d;
	size_t n = strlen(ranges);
	snprintf(ranges + n, sizeof ranges - n, "%s;", name != NULL ? name : "");
}

uint64_t dev_busy_ns(const struct dev *d)
{
	return d->busy_ns;
}

uint64_t dev_serial(const struct dev *d)
{
	return d->serial;
}

void dev_count(struct dev *d)
{
	d->serial++;
}

int dev_sync(struct dev *d)
{
	int rc = kn_list_flush(d);
	return rc != 0 || d->fault[0] != '\0' ? SL_EIO : emu_queue_run(d, &d->queue, EMU_ALL);
}

const struct kn_plugin_host *dev_host(const struct dev *d)
{
	return d->host;
}

int dev_fail(struct dev *d, const char *what, const char *why)
{
	return fault(d, what, why);
}

void dev_record(struct dev *d, struct kn_list *l)
{
	d->recording = l;
}

struct kn_list *dev_recording(struct dev *d)
{
	return d->recording;
}
