/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices that the emulation pretends to have: memory, a stream that is behind, graphs, faults and a clock. Strict
 * where a device is lenient:
 *  - device memory is malloc's, exactly as long as asked for: a sanitizer sees every access outside;
 *  - scratch memory is full of junk at first and again after each step: of a number that is none, or of another one;
 *  - the device is behind: a command runs when it is waited for (emu_queue.h), and pinned memory is read and
 *    written then, so what is changed or read too early shows. Copies aside are done as late as they may be (when the stream
 *    has to wait for them, or at the second query whether they are done), or as early, as tests choose.
 *
 * Where the environment names a file in SLUICE_EMULATION_LAUNCHES, each launch adds a line to it
 * (tests/bench/kernels.mjs). Where it names one in SLUICE_EMULATION_FAIL_FILE, the launch that finds it there removes
 * it and fails: so a test can break the device of another process when it likes, once. SLUICE_EMULATION_DEVICE names
 * another device than one that has all: the bytes of shared memory that a block can have, and a + if it has products of
 * warp groups.
 *
 * Thread: a device belongs to one thread at a time; several devices may run at once.
 */
#include "kernels/cuda/device/device_base.h"
#include "tests/emulation/emu_early.h"
#include "tests/emulation/emu_library.h"
#include "tests/emulation/emu_memory.h"
#include "tests/emulation/emu_queue.h"

#include <pthread.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct dev {
	struct dev_base base;
	struct emu_blocks *blocks;
	struct emu_early early;
	struct emu_queue queue, aside;
	bool asked;             /* whether the copies aside are done, since the last of them */
	const char *fail_file;  /* NULL: none */
	struct emu_piece *junk; /* memory of dev_alloc_scratch */
	unsigned n_steps;       /* that have run */
};

/* What was captured: a copy, as a device has one. */
struct dev_graph {
	struct kn_list list;
};

/* What is given to the device while weights are loaded: c a copy aside, p packing, 0 and 1 the end of the work with a
 * piece of memory, a and b waits for that. */
static char order[256];

static void note_order(char what)
{
	size_t n = strlen(order);
	if (n + 1 < sizeof order)
		order[n] = what;
}

/* Since the last call. */
extern "C" __attribute__((visibility("default"))) const char *sluice_emulation_uploads(void)
{
	static char last[sizeof order];
	memcpy(last, order, sizeof last);
	memset(order, 0, sizeof order);
	return last;
}

static int fail_in; /* launches until one fails; 0: none does */
static bool no_graphs, early_copies;
static uint64_t n_asides;
static char ranges[256];

extern "C" __attribute__((visibility("default"))) const char *sluice_emulation_ranges(void)
{
	static char last[sizeof ranges];
	memcpy(last, ranges, sizeof last);
	ranges[0] = '\0';
	return last;
}

extern "C" __attribute__((visibility("default"))) void sluice_emulation_fail(int n) { fail_in = n; }

extern "C" __attribute__((visibility("default"))) void sluice_emulation_early_copies(int early)
{
	early_copies = early != 0;
}

/* How often a stream was made to wait for copies aside. */
extern "C" __attribute__((visibility("default"))) uint64_t sluice_emulation_waits_for_copies(void) { return n_asides; }

extern "C" __attribute__((visibility("default"))) void sluice_device_no_graphs(int none) { no_graphs = none != 0; }

/* SL_EIO: a test wants this launch to fail. */
static int struck(struct dev *d, const char *kernel)
{
	if (fail_in > 0 && --fail_in == 0)
		return dev_fail(d, kernel, "an injected fault");
	if (d->base.host->device_fault())
		return dev_fail(d, kernel, "a fault point");
	if (d->fail_file != NULL && unlink(d->fail_file) == 0)
		return dev_fail(d, kernel, "a fault from outside");
	return 0;
}

/* ---- what was ever launched in this process ---- */

enum { MOST_KERNELS = 1024 };
static const void *kernels[MOST_KERNELS];
static int n_kernels;
static pthread_mutex_t kernels_lock = PTHREAD_MUTEX_INITIALIZER;

static void note_kernel(const void *kernel)
{
	int i = 0;
	pthread_mutex_lock(&kernels_lock);
	while (i < n_kernels && kernels[i] != kernel)
		i++;
	if (i == n_kernels && n_kernels < MOST_KERNELS)
		kernels[n_kernels++] = kernel;
	pthread_mutex_unlock(&kernels_lock);
}

/* How many different kernels: a device would have loaded, or even compiled, each at its first launch. */
extern "C" __attribute__((visibility("default"))) int sluice_emulation_kernels(void)
{
	pthread_mutex_lock(&kernels_lock);
	int n = n_kernels;
	pthread_mutex_unlock(&kernels_lock);
	return n;
}

/* ---- which device ---- */

struct named {
	int shared; /* bytes of a block */
	bool groups;
};

/* What SLUICE_EMULATION_DEVICE names, or the most that any device has. */
static struct named named_device(void)
{
	const char *text = getenv("SLUICE_EMULATION_DEVICE");
	if (text == NULL)
		return {EMU_SHARED_MOST, true};
	return {atoi(text), strchr(text, '+') != NULL};
}

static const struct named named = named_device();
static int processors = 2, shared_most = named.shared;

/* processors: how many a device with products of warp groups has; 0: one without them. */
extern "C" __attribute__((visibility("default"))) void sluice_emulation_wgmma(int n) { processors = n; }

/* What a block can have; 0, or more than that: what it has on the named device. */
extern "C" __attribute__((visibility("default"))) void sluice_emulation_shared(int bytes)
{
	shared_most = bytes > 0 && bytes < named.shared ? bytes : named.shared;
}

bool dev_has_wgmma(const struct dev *) { return processors > 0 && named.groups; }

int dev_processors(const struct dev *) { return processors; }

int dev_shared_most(const struct dev *) { return shared_most; }

/* One line: where the kernel is in this shared object, threads, shared bytes, blocks. */
static void note_launch(const struct kn_command *c)
{
	static const char *path = getenv("SLUICE_EMULATION_LAUNCHES");
	Dl_info here;
	if (path == NULL || dladdr((const void *)dev_describe, &here) == 0)
		return;
	FILE *f = fopen(path, "a");
	if (f == NULL)
		return;
	fprintf(f, "%zx %u %u %u\n", (size_t)((const uint8_t *)c->kernel - (const uint8_t *)here.dli_fbase),
		c->block[0] * c->block[1] * c->block[2], c->shared, c->grid[0] * c->grid[1] * c->grid[2]);
	fclose(f);
}

static int launch(struct dev *d, const struct kn_command *c)
{
	note_launch(c);
	if (c->shared > (uint32_t)shared_most)
		return dev_fail(d, c->name, "more shared memory than a block of this device has");
	if (struck(d, c->name) != 0)
		return SL_EIO;
	note_kernel(c->kernel);
	const char *wrong = emu_early_run(&d->early, d->blocks, d->base.host, c);
	return wrong == NULL ? 0 : dev_fail(d, c->name, wrong);
}

/* The device's own clock: what a command takes does not depend on the host. Only products are timed
 * against an alternative (library.h). */
static uint64_t takes_ns(const struct kn_command *c)
{
	if (c->kind == KN_PRODUCT)
		return emu_library_takes_ns((const struct dev_product_call *)kn_args_of(c));
	return c->kind == KN_CALL && (strstr(c->name, "mma") != NULL || strstr(c->name, "matvec") != NULL) ? 100000
													   : 1000;
}

int emu_run_kept(struct dev *d)
{
	const char *wrong = emu_early_end(&d->early, d->blocks);
	return wrong == NULL ? 0 : dev_fail(d, "a kernel that let another start", wrong);
}

int emu_run_now(struct dev *d, const struct kn_command *c)
{
	if (d->base.fault[0] != '\0' || (c->kind != KN_CALL && emu_run_kept(d) != 0))
		return SL_EIO;
	if (c->kind == KN_AFTER) {
		const struct emu_after *a = (const struct emu_after *)kn_args_of(c);
		return emu_queue_run_to(d, a->other, a->to);
	}
	if (c->kind == KN_STEP_OVER) {
		emu_junk_fill(d->junk, ++d->n_steps % 2 == 0);
		return 0;
	}
	d->base.busy_ns += takes_ns(c);
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
	if (c->kind == KN_CALL && strncmp(c->name, "pack", 4) == 0)
		note_order('p');
	return d->base.fault[0] != '\0' ? SL_EIO : emu_queue_put(d, &d->queue, c);
}

int dev_mark(struct dev *d, int mark)
{
	if (d->base.fault[0] != '\0' || (mark < KN_STEPS_AHEAD && emu_queue_step_over(d, &d->queue) != 0))
		return SL_EIO;
	if (mark >= KN_STEPS_AHEAD)
		note_order((char)('0' + mark - KN_STEPS_AHEAD));
	emu_queue_mark(&d->queue, mark);
	return 0;
}

int dev_await(struct dev *d, int mark)
{
	if (mark >= KN_STEPS_AHEAD)
		note_order((char)('a' + mark - KN_STEPS_AHEAD));
	return d->base.fault[0] != '\0' ? SL_EIO : emu_queue_run(d, &d->queue, mark);
}

bool dev_reached(struct dev *d, int mark) { return d->base.fault[0] != '\0' || emu_queue_reached(&d->queue, mark); }

int dev_graph_make(struct dev *d, const struct kn_list *l, size_t n, struct dev_graph **out)
{
	struct dev_graph *g = no_graphs ? NULL : (struct dev_graph *)d->base.host->zalloc(sizeof *g);
	if (g == NULL)
		return SL_ENOMEM;
	g->list.host = d->base.host;
	void *to = kn_list_put(&g->list, n);
	if (to == NULL) {
		d->base.host->free(g);
		return SL_ENOMEM;
	}
	memcpy(to, l->at, n);
	emu_count_graph(1);
	*out = g;
	return 0;
}

int dev_graph_run(struct dev *d, struct dev_graph *g) { return kn_list_run(d, &g->list, 0, g->list.n); }

void dev_graph_free(struct dev *d, struct dev_graph *g)
{
	(void)emu_queue_run(d, &d->queue, EMU_ALL); /* a fault stays in d */
	kn_list_dispose(&g->list);
	d->base.host->free(g);
	emu_count_graph(-1);
}

int dev_probe(const struct kn_plugin_host *, struct sl_err *) { return 0; }

static int run_all(struct dev *d)
{
	int rc = emu_queue_run(d, &d->queue, EMU_ALL);
	return rc != 0 ? rc : emu_queue_run(d, &d->aside, EMU_ALL);
}

void dev_close(struct dev *d)
{
	(void)run_all(d);
	kn_list_dispose(&d->queue.list);
	kn_list_dispose(&d->aside.list);
	emu_count_device(-1);
	emu_early_free(&d->early);
	emu_blocks_free(d->blocks);
	d->base.host->free(d);
}

int dev_open(const struct kn_plugin_host *host, int, struct dev **out, struct sl_err *err)
{
	struct dev *d = (struct dev *)host->zalloc(sizeof *d);
	if (d == NULL)
		return host->errf(err, SL_ENOMEM, "no memory for the emulated device");
	d->base.host = host;
	d->queue.list.host = d->aside.list.host = host;
	d->fail_file = getenv("SLUICE_EMULATION_FAIL_FILE");
	if (emu_blocks_make(host, &d->blocks) != 0) {
		host->free(d);
		return host->errf(err, SL_ENOMEM, "no memory for the emulated device");
	}
	emu_count_device(1);
	*out = d;
	return 0;
}

const char *dev_describe(const struct dev *) { return "CUDA kernels emulated on the host, for tests"; }

const char *dev_pci(const struct dev *) { return ""; }

int dev_alloc(struct dev *d, size_t bytes, void **out)
{
	if (d->base.fault[0] != '\0')
		return SL_EIO;
	void *p = emu_memory_alloc(bytes);
	if (p == NULL)
		return SL_ENOMEM;
	d->base.counts.allocations++;
	*out = p;
	return 0;
}

int dev_alloc_scratch(struct dev *d, size_t bytes, void **out)
{
	if (d->base.fault[0] != '\0')
		return SL_EIO;
	void *p = emu_junk_alloc(&d->junk, bytes);
	if (p == NULL)
		return SL_ENOMEM;
	*out = p;
	return 0;
}

bool dev_memory(struct dev *, uint64_t *free_bytes, uint64_t *total) { return emu_memory_tell(free_bytes, total); }

void dev_free(struct dev *d, void *p)
{
	(void)kn_list_flush(d); /* a fault stays in d */
	(void)run_all(d);
	emu_memory_free(p);
}

void *dev_host_alloc(struct dev *d, size_t bytes) { return emu_pinned_alloc(&d->queue, bytes); }

void dev_host_free(struct dev *d, void *p) { emu_pinned_free(&d->queue, p); }

int dev_copy_in(struct dev *d, void *to, const void *host, size_t bytes)
{
	int rc = kn_list_flush(d);
	if (rc != 0 || d->base.fault[0] != '\0')
		return SL_EIO;
	dev_count(d);
	d->base.counts.transfers++;
	rc = emu_queue_run(d, &d->queue, EMU_ALL);
	if (rc == 0 && bytes > 0)
		memcpy(to, host, bytes);
	return rc;
}

void dev_range(struct dev *, const char *name)
{
	size_t n = strlen(ranges);
	snprintf(ranges + n, sizeof ranges - n, "%s;", name != NULL ? name : "");
}

int dev_sync(struct dev *d)
{
	int rc = kn_list_flush(d);
	return rc != 0 || d->base.fault[0] != '\0' ? SL_EIO : run_all(d);
}

int dev_aside(struct dev *d, void *to, const void *from, size_t bytes)
{
	if (d->base.fault[0] != '\0')
		return SL_EIO;
	if (!emu_is_pinned(&d->queue, to) && !emu_is_pinned(&d->queue, from))
		return dev_fail(d, "a copy of a page", "neither side is pinned memory");
	d->asked = false;
	note_order('c');
	int rc = emu_queue_copy(d, &d->aside, to, from, bytes);
	return rc == 0 && early_copies ? emu_queue_run(d, &d->aside, EMU_ALL) : rc;
}

int dev_aside_after(struct dev *d)
{
	int rc = kn_list_flush(d);
	return rc != 0 || d->base.fault[0] != '\0' ? SL_EIO : emu_queue_after(d, &d->aside, &d->queue);
}

int dev_aside_before(struct dev *d)
{
	n_asides++;
	return d->base.fault[0] != '\0' ? SL_EIO : emu_queue_after(d, &d->queue, &d->aside);
}

bool dev_aside_done(struct dev *d)
{
	if (d->base.fault[0] == '\0' && d->asked)
		(void)emu_queue_run(d, &d->aside, EMU_ALL);
	d->asked = true;
	return d->base.fault[0] != '\0' || d->aside.first == d->aside.list.n;
}
