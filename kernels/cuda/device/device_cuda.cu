/* SPDX-License-Identifier: Apache-2.0
 *
 * The device layer on CUDA's runtime, which is linked statically: without a driver the first call fails with that
 * reason.
 *
 * Memory comes from plain cudaMalloc, on load; a step allocates only when a scratch buffer grows. dev_copy_in stages in
 * pinned memory itself: the runtime does so for pageable memory, but not on systems where a device reads that memory
 * in place (CUDA Runtime API, "API synchronization behavior").
 *
 * Waits for steps sleep until shortly before the expected end, then ask, and block only if the step takes longer: a
 * thread that blocks for milliseconds wakes up late, on a processor that has gone to sleep. Expected is what the same
 * graph took last, or the time before if that was less; a step that runs as no graph has no such time. Before, every
 * wait blocked: on an H200 200 us of a step of one sequence and 530 us of 256 passed outside of the device's work.
 *
 * Where the code is for compute capability 9.0 or later, the device starts a kernel while the one before it ends
 * (programmatic dependent launch); kn_begin waits for its results. Expected: from the end of one kernel to the start of
 * the next 0.6 us instead of 1 to 1.5, so 70 to 150 us of an 8B decode's 173 launches. Not measured on a device.
 *
 * A graph is captured from the stream with the same calls as a plain run. The capture is thread-local, so other
 * threads may load another model meanwhile. A failed capture leaves the device usable: the list then runs plainly,
 * which reveals real faults.
 */
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda/device/device_base.h"
#include "kernels/cuda/device/device_stream.h"
#include "kernels/cuda/device/library.h"
#include "kernels/cuda/device/spills.h"

/* Events: FIRST and up, before the first work of each mark's stretch and of the open one; MARK and up, the marks;
 * DONE, the end of what dev_sync waits for; BEFORE_ASIDE and AFTER_ASIDE, around copies aside; STAGED and up, after the
 * copy from each piece of staging memory. The last four without timing. */
enum { STAGES = 2, STAGE_BYTES = 256 << 10 };
enum {
	FIRST,
	MARK = FIRST + DEV_MARKS + 1,
	DONE = MARK + DEV_MARKS,
	BEFORE_ASIDE,
	AFTER_ASIDE,
	STAGED,
	N_EVENTS = STAGED + STAGES
};

/* The least compute capability: mma.sync of bfloat16 and cp.async. */
enum { LEAST_MAJOR = 8 };

/* What a graph took on the device, the last two times; 0: unknown. */
struct took {
	const struct dev_graph *graph;
	uint64_t ns[2];
};

enum {
	N_TOOK = 64, /* one for each graph that there is, and then some */
	EARLY_NS = 100000,
	LATE_NS = 300000,
	EARLY_PART = 128, /* asking begins that much, and that part, before */
	LEAST_NS = 50000, /* how long to ask where nothing is known */
};

/* The host's time of a step: from its first work to its expected end; 0: unknown. */
struct expected {
	struct took *took; /* of its graph; NULL: none */
	uint64_t end_ns;
};

struct dev {
	struct dev_base base;
	cudaStream_t stream, aside;
	cudaEvent_t event[N_EVENTS];
	int open, began[DEV_MARKS]; /* index from FIRST; -1: no work */
	bool working;               /* work was given since the last dev_sync or mark, */
	uint64_t working_ns;        /* at that time */
	struct took took[N_TOOK];   /* by the graphs' addresses: another graph may get one's, which only costs time */
	struct took *running;       /* of the graph launched since the last mark; NULL: none */
	struct expected expected[DEV_MARKS];
	uint64_t busy_until_ns; /* expected end of the steps so far; 0: unknown */
	uint8_t *stage;         /* [STAGES][STAGE_BYTES], pinned; NULL: none yet */
	int next_stage;
	bool in_range;
	char line[192];
	char name[160], pci[16];
	int capability;
	int processors;
	int shared_most;
	bool dependent; /* kernels may be started before the last one ends */
	struct kn_spills spills;
};

/* For tests: later allocations are pinned host memory that the device accesses over the bus, so that tests can read
 * it as in the emulation. Not managed memory: exhausting that can hang a device. */
static bool memory_on_host;
/* For tests: creating a graph fails. */
static bool no_graphs;

extern "C" __attribute__((visibility("default"))) void sluice_device_memory_on_host(int on)
{
	memory_on_host = on != 0;
}

extern "C" __attribute__((visibility("default"))) void sluice_device_no_graphs(int none) { no_graphs = none != 0; }

static int fail(struct dev *d, const char *what, cudaError_t rc) { return dev_fail(d, what, cudaGetErrorString(rc)); }

/* Why the runtime has no driver that it can use. A driver of the same major version would do. */
static int refuse_driver(const struct kn_plugin_host *host, struct sl_err *err)
{
	int driver = 0, runtime = CUDART_VERSION;
	if (cudaDriverGetVersion(&driver) != cudaSuccess)
		driver = 0;
	if (cudaRuntimeGetVersion(&runtime) != cudaSuccess)
		runtime = CUDART_VERSION;
	(void)cudaGetLastError();
	if (driver <= 0)
		return host->errf(err, SL_ENOTFOUND,
				  "no NVIDIA driver is installed; one for CUDA %d.0 or later is needed",
				  runtime / 1000);
	return host->errf(
	    err, SL_ENOTFOUND,
	    "the NVIDIA driver is too old: it is for CUDA %d.%d, and one for CUDA %d.0 or later is needed",
	    driver / 1000, driver % 1000 / 10, runtime / 1000);
}

/* Asks for attributes, which needs no context on the device. */
static int check_capability(const struct kn_plugin_host *host, struct sl_err *err)
{
	int major = 0, minor = 0;
	cudaError_t rc = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
	if (rc == cudaSuccess)
		rc = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
	if (rc != cudaSuccess)
		return host->errf(err, SL_EIO, "CUDA device 0: %s", cudaGetErrorString(rc));
	if (major < LEAST_MAJOR)
		return host->errf(err, SL_ENOTFOUND,
				  "CUDA device 0 has compute capability %d.%d; %d.0 or later is needed", major, minor,
				  LEAST_MAJOR);
	return 0;
}

int dev_probe(const struct kn_plugin_host *host, struct sl_err *err)
{
	int n = 0;
	cudaError_t rc = cudaGetDeviceCount(&n);
	if (rc == cudaErrorInsufficientDriver)
		return refuse_driver(host, err);
	if (rc == cudaErrorNoDevice || (rc == cudaSuccess && n == 0))
		return host->errf(err, SL_ENOTFOUND, "the NVIDIA driver finds no device");
	if (rc != cudaSuccess)
		return host->errf(err, SL_EIO, "%s", cudaGetErrorString(rc));
	return check_capability(host, err);
}

static void describe(struct dev *d)
{
	cudaDeviceProp p;
	size_t free_bytes = 0, all = 0;
	int driver = 0;
	snprintf(d->name, sizeof d->name, "CUDA device");
	if (cudaDeviceGetPCIBusId(d->pci, sizeof d->pci, 0) != cudaSuccess)
		d->pci[0] = '\0';
	snprintf(d->line, sizeof d->line, "CUDA device 0");
	if (cudaGetDeviceProperties(&p, 0) != cudaSuccess || cudaMemGetInfo(&free_bytes, &all) != cudaSuccess ||
	    cudaDriverGetVersion(&driver) != cudaSuccess)
		return;
	d->capability = p.major * 10 + p.minor;
	d->processors = p.multiProcessorCount;
	snprintf(d->name, sizeof d->name, "%.80s, sm_%d%d, driver for CUDA %d.%d", p.name, p.major, p.minor,
		 driver / 1000, driver % 1000 / 10);
	snprintf(d->line, sizeof d->line, "%.80s, sm_%d%d, %.1f of %.1f GiB free, driver for CUDA %d.%d", p.name,
		 p.major, p.minor, (double)free_bytes / 0x1p30, (double)all / 0x1p30, driver / 1000,
		 driver % 1000 / 10);
}

/* Destroys the handles that exist. After a fault each call reports it again, so results are ignored. */
static void drop_handles(struct dev *d)
{
	for (int i = 0; i < N_EVENTS; i++)
		if (d->event[i] != NULL)
			(void)cudaEventDestroy(d->event[i]);
	if (d->aside != NULL)
		(void)cudaStreamDestroy(d->aside);
	if (d->stream != NULL)
		(void)cudaStreamDestroy(d->stream);
	if (d->stage != NULL)
		(void)cudaFreeHost(d->stage);
}

static cudaError_t make_events(struct dev *d)
{
	cudaError_t rc = cudaSuccess;
	for (int i = 0; i < N_EVENTS && rc == cudaSuccess; i++)
		rc = cudaEventCreateWithFlags(&d->event[i],
					      cudaEventBlockingSync | (i < BEFORE_ASIDE ? 0u : cudaEventDisableTiming));
	return rc;
}

__global__ void nothing(void) { kn_begin(); }

/* Whether this build has code for the device, its own or PTX; and whether that code was compiled for an architecture
 * with dependent launches. What the driver makes of older PTX has no instruction that waits. Also how much memory a
 * block can share. */
static cudaError_t find_code(struct dev *d)
{
	cudaFuncAttributes a;
	cudaError_t rc = cudaFuncGetAttributes(&a, (const void *)nothing);
	d->dependent = rc == cudaSuccess && a.ptxVersion >= 90;
	if (rc == cudaSuccess)
		rc = cudaDeviceGetAttribute(&d->shared_most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
	return rc;
}

int dev_open(const struct kn_plugin_host *host, int priority, struct dev **out, struct sl_err *err)
{
	struct dev *d = (struct dev *)host->zalloc(sizeof *d);
	int least = 0, greatest = 0; /* smaller numbers have precedence */
	if (d == NULL)
		return host->errf(err, SL_ENOMEM, "no memory for the CUDA backend");
	d->base.host = host;
	cudaError_t rc = cudaSetDevice(0);
	if (rc == cudaSuccess)
		rc = cudaDeviceGetStreamPriorityRange(&least, &greatest);
	if (rc == cudaSuccess)
		rc = cudaStreamCreateWithPriority(&d->stream, cudaStreamNonBlocking, priority > 0 ? greatest : least);
	if (rc == cudaSuccess)
		rc = cudaStreamCreateWithPriority(&d->aside, cudaStreamNonBlocking, least);
	if (rc == cudaSuccess)
		rc = make_events(d);
	if (rc == cudaSuccess)
		rc = find_code(d);
	if (rc != cudaSuccess) {
		drop_handles(d);
		host->free(d);
		return host->errf(err, SL_EIO, "CUDA device 0: %s", cudaGetErrorString(rc));
	}
	nvtxNameCudaStreamA(d->stream, priority > 0 ? "sluice, first" : "sluice");
	nvtxNameCudaStreamA(d->aside, "sluice, pages");
	describe(d);
	*out = d;
	return 0;
}

void dev_close(struct dev *d)
{
	dev_range(d, NULL);
	(void)cudaStreamSynchronize(d->stream);
	(void)cudaStreamSynchronize(d->aside);
	drop_handles(d);
	d->base.host->free(d);
}

const char *dev_describe(const struct dev *d) { return d->line; }

cudaStream_t dev_stream(const struct dev *d) { return d->stream; }

int dev_shared_most(const struct dev *d) { return d->shared_most; }

int dev_capability(const struct dev *d) { return d->capability; }

const char *dev_pci(const struct dev *d) { return d->pci; }

const char *dev_name(const struct dev *d) { return d->name; }

void dev_range(struct dev *d, const char *name)
{
	if (d->in_range)
		(void)nvtxRangePop();
	if (name != NULL)
		(void)nvtxRangePushA(name);
	d->in_range = name != NULL;
}

/* ---- memory ---- */

static cudaError_t free_memory(void *p) { return memory_on_host ? cudaFreeHost(p) : cudaFree(p); }

/* Waits for the stream. */
static cudaError_t finish(struct dev *d)
{
	cudaError_t rc = cudaEventRecord(d->event[DONE], d->stream);
	return rc == cudaSuccess ? cudaEventSynchronize(d->event[DONE]) : rc;
}

int dev_alloc_scratch(struct dev *d, size_t bytes, void **out)
{
	void *p = NULL;
	if (d->base.fault[0] != '\0')
		return SL_EIO;
	size_t room = bytes > 0 ? bytes : 1;
	cudaError_t rc = memory_on_host ? cudaMallocHost(&p, room) : cudaMalloc(&p, room);
	if (rc == cudaErrorMemoryAllocation) {
		(void)cudaGetLastError(); /* not a fault: the caller manages with less */
		return SL_ENOMEM;
	}
	if (rc != cudaSuccess)
		return fail(d, "cudaMalloc", rc);
	d->base.counts.allocations++;
	*out = p;
	return 0;
}

int dev_alloc(struct dev *d, size_t bytes, void **out)
{
	int failed = dev_alloc_scratch(d, bytes, out);
	if (failed != 0)
		return failed;
	if (memory_on_host) {
		memset(*out, 0, bytes);
		return 0;
	}
	cudaError_t rc = cudaMemsetAsync(*out, 0, bytes, d->stream);
	if (rc == cudaSuccess)
		rc = finish(d); /* other streams may use the memory next */
	if (rc == cudaSuccess)
		return 0;
	(void)free_memory(*out);
	*out = NULL;
	return fail(d, "cudaMemset", rc);
}

bool dev_memory(struct dev *d, uint64_t *free_bytes, uint64_t *total)
{
	size_t there = 0, all = 0;
	if (d->base.fault[0] != '\0' || memory_on_host)
		return false;
	if (cudaMemGetInfo(&there, &all) != cudaSuccess) {
		(void)cudaGetLastError();
		return false;
	}
	*free_bytes = there;
	*total = all;
	return true;
}

void dev_free(struct dev *d, void *p)
{
	(void)kn_list_flush(d);          /* a fault stays in d */
	cudaError_t rc = free_memory(p); /* waits for the device */
	if (rc != cudaSuccess)
		fail(d, "cudaFree", rc);
}

void *dev_host_alloc(struct dev *d, size_t bytes)
{
	void *p = NULL;
	if (d->base.fault[0] != '\0' || cudaMallocHost(&p, bytes > 0 ? bytes : 1) != cudaSuccess) {
		(void)cudaGetLastError(); /* not a fault: the caller manages without */
		return NULL;
	}
	return p;
}

void dev_host_free(struct dev *d, void *p)
{
	cudaError_t rc = cudaFreeHost(p);
	if (rc != cudaSuccess)
		fail(d, "cudaFreeHost", rc);
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Call before giving work to the stream. */
static void begin_work(struct dev *d)
{
	if (d->working)
		return;
	d->working_ns = now_ns();
	d->working = cudaEventRecord(d->event[FIRST + d->open], d->stream) == cudaSuccess;
}

/* Copies at most STAGE_BYTES bytes by way of pinned memory. */
static cudaError_t copy_staged(struct dev *d, uint8_t *to, const uint8_t *host, size_t bytes)
{
	int i = d->next_stage;
	uint8_t *stage = d->stage + (size_t)i * STAGE_BYTES;
	cudaError_t rc = cudaEventSynchronize(d->event[STAGED + i]); /* at once if it was never recorded */
	if (rc != cudaSuccess)
		return rc;
	memcpy(stage, host, bytes);
	d->next_stage = (i + 1) % STAGES;
	rc = cudaMemcpyAsync(to, stage, bytes, cudaMemcpyDefault, d->stream);
	return rc == cudaSuccess ? cudaEventRecord(d->event[STAGED + i], d->stream) : rc;
}

/* Without pinned memory: waits for the copy. */
static cudaError_t copy_pageable(struct dev *d, void *to, const void *host, size_t bytes)
{
	cudaError_t rc = cudaMemcpyAsync(to, host, bytes, cudaMemcpyDefault, d->stream);
	return rc == cudaSuccess ? finish(d) : rc;
}

int dev_copy_in(struct dev *d, void *to, const void *host, size_t bytes)
{
	cudaError_t rc = cudaSuccess;
	if (kn_list_flush(d) != 0 || d->base.fault[0] != '\0')
		return SL_EIO;
	dev_count(d);
	d->base.counts.transfers++;
	begin_work(d);
	if (d->stage == NULL)
		d->stage = (uint8_t *)dev_host_alloc(d, (size_t)STAGES * STAGE_BYTES);
	if (d->stage == NULL)
		rc = copy_pageable(d, to, host, bytes);
	for (size_t at = 0, n; d->stage != NULL && at < bytes && rc == cudaSuccess; at += n) {
		n = bytes - at < STAGE_BYTES ? bytes - at : (size_t)STAGE_BYTES;
		rc = copy_staged(d, (uint8_t *)to + at, (const uint8_t *)host + at, n);
	}
	return rc == cudaSuccess ? 0 : fail(d, "cudaMemcpy", rc);
}

/* Both events have occurred. The time between them. */
static uint64_t add_busy(struct dev *d, cudaEvent_t first, cudaEvent_t last)
{
	float ms = 0;
	if (cudaEventElapsedTime(&ms, first, last) != cudaSuccess || !(ms > 0))
		return 0;
	d->base.busy_ns += (uint64_t)(ms * 1e6f);
	return (uint64_t)(ms * 1e6f);
}

int dev_sync(struct dev *d)
{
	if (kn_list_flush(d) != 0 || d->base.fault[0] != '\0')
		return SL_EIO;
	cudaError_t rc = finish(d);
	if (rc == cudaSuccess && d->working)
		add_busy(d, d->event[FIRST + d->open], d->event[DONE]);
	d->working = false;
	if (rc == cudaSuccess)
		rc = cudaEventSynchronize(d->event[AFTER_ASIDE]); /* at once if it was never recorded */
	return rc == cudaSuccess ? 0 : fail(d, "a step", rc);
}

int dev_aside(struct dev *d, void *to, const void *from, size_t bytes)
{
	if (d->base.fault[0] != '\0')
		return SL_EIO;
	cudaError_t rc = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, d->aside);
	if (rc == cudaSuccess)
		rc = cudaEventRecord(d->event[AFTER_ASIDE], d->aside);
	return rc == cudaSuccess ? 0 : fail(d, "a copy of a page", rc);
}

int dev_aside_after(struct dev *d)
{
	if (kn_list_flush(d) != 0 || d->base.fault[0] != '\0')
		return SL_EIO;
	cudaError_t rc = cudaEventRecord(d->event[BEFORE_ASIDE], d->stream);
	if (rc == cudaSuccess)
		rc = cudaStreamWaitEvent(d->aside, d->event[BEFORE_ASIDE], 0);
	return rc == cudaSuccess ? 0 : fail(d, "a copy of a page", rc);
}

int dev_aside_before(struct dev *d)
{
	if (d->base.fault[0] != '\0')
		return SL_EIO;
	cudaError_t rc =
	    cudaStreamWaitEvent(d->stream, d->event[AFTER_ASIDE], 0); /* returns at once if it was never recorded */
	return rc == cudaSuccess ? 0 : fail(d, "a copy of a page", rc);
}

/* Whether the event has occurred; true after a fault. */
static bool has_come(struct dev *d, int event, const char *what)
{
	if (d->base.fault[0] != '\0')
		return true;
	cudaError_t rc = cudaEventQuery(d->event[event]);
	if (rc == cudaErrorNotReady) {
		(void)cudaGetLastError();
		return false;
	}
	if (rc != cudaSuccess)
		fail(d, what, rc);
	return true;
}

bool dev_aside_done(struct dev *d) { return has_come(d, AFTER_ASIDE, "a copy of a page"); }

static struct took *took_of(struct dev *d, const struct dev_graph *g)
{
	struct took *took = &d->took[(uintptr_t)g / 64 % N_TOOK];
	if (took->graph != g)
		*took = {g, {0, 0}};
	return took;
}

/* A step begins when its first work is given, or when the one before it ends. */
static void expect(struct dev *d, int mark)
{
	struct took *took = d->running;
	uint64_t ns = took == NULL ? 0 : took->ns[0] < took->ns[1] ? took->ns[0] : took->ns[1];
	uint64_t begin = d->working_ns > d->busy_until_ns ? d->working_ns : d->busy_until_ns;
	d->expected[mark] = {took, ns > 0 ? begin + ns : 0};
	d->busy_until_ns = d->expected[mark].end_ns;
	d->running = NULL;
}

/* Keeps what the step took. */
static void learn(struct dev *d, int mark, uint64_t ns)
{
	struct took *took = d->expected[mark].took;
	if (took != NULL) {
		took->ns[1] = took->ns[0];
		took->ns[0] = ns;
	}
	d->expected[mark] = {NULL, 0};
}

/* Sleeps until shortly before the expected end of a step, then asks whether it is there, for a bounded time. */
static void await_nearly(struct dev *d, int mark)
{
	uint64_t now = now_ns(), end = d->expected[mark].end_ns, limit = now + LEAST_NS;
	if (end > now) {
		uint64_t early = EARLY_NS + (end - now) / EARLY_PART, from = end > early ? end - early : 0;
		struct timespec until = {(time_t)(from / 1000000000), (long)(from % 1000000000)};
		limit = end + LATE_NS;
		if (from > now && cudaEventQuery(d->event[MARK + mark]) == cudaErrorNotReady)
			(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	}
	while (now_ns() < limit && cudaEventQuery(d->event[MARK + mark]) == cudaErrorNotReady)
		;
	(void)cudaGetLastError(); /* "not ready"; a fault comes again */
}

int dev_mark(struct dev *d, int mark)
{
	if (d->base.fault[0] != '\0')
		return SL_EIO;
	cudaError_t rc = cudaEventRecord(d->event[MARK + mark], d->stream);
	bool timed =
	    d->working && mark < KN_STEPS_AHEAD; /* others may be awaited after their stretch's event was reused */
	expect(d, mark);
	d->began[mark] = timed ? d->open : -1;
	if (timed)
		d->open = (d->open + 1) % (DEV_MARKS + 1);
	d->working = false;
	return rc == cudaSuccess ? 0 : fail(d, "a step", rc);
}

int dev_await(struct dev *d, int mark)
{
	if (d->base.fault[0] != '\0')
		return SL_EIO;
	await_nearly(d, mark);
	cudaError_t rc = cudaEventSynchronize(d->event[MARK + mark]);
	if (rc == cudaSuccess && d->began[mark] >= 0)
		learn(d, mark, add_busy(d, d->event[FIRST + d->began[mark]], d->event[MARK + mark]));
	d->began[mark] = -1;
	return rc == cudaSuccess ? 0 : fail(d, "a step", rc);
}

bool dev_reached(struct dev *d, int mark) { return has_come(d, MARK + mark, "a step"); }

bool dev_has_wgmma(const struct dev *d)
{
#ifdef KN_WGMMA /* the build has code for 9.0a, which no other device takes */
	return d->capability == 90;
#else
	(void)d;
	return false;
#endif
}

int dev_processors(const struct dev *d) { return d->processors; }

/* ---- commands ---- */

enum { SHARED = 48 << 10 }; /* what a kernel gets without asking */

/* A kernel that needs more shared memory asks for it before its launch, and before a capture of that. */
static cudaError_t ask_for_shared(const struct kn_command *c)
{
	if (c->kind != KN_CALL || c->shared <= SHARED)
		return cudaSuccess;
	return cudaFuncSetAttribute(c->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)c->shared);
}

/* With dependent launches the device starts the kernel while the one before it ends; it waits in kn_begin. */
static cudaError_t launch(struct dev *d, const struct kn_command *c)
{
	void *where[KN_MAX_ARGS];
	cudaLaunchAttribute overlaps;
	c->thunk(c, where);
	overlaps.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	overlaps.val.programmaticStreamSerializationAllowed = 1;
	cudaLaunchConfig_t how = {dim3(c->grid[0], c->grid[1], c->grid[2]),
				  dim3(c->block[0], c->block[1], c->block[2]),
				  c->shared,
				  d->stream,
				  &overlaps,
				  d->dependent ? 1u : 0u};
	return cudaLaunchKernelExC(&how, c->kernel, where);
}

/* As dev_run, but returns the error to the caller without recording it. */
static cudaError_t issue(struct dev *d, const struct kn_command *c)
{
	if (c->kind == KN_CALL)
		return launch(d, c);
	if (c->kind == KN_PRODUCT)
		return dev_library_run((const struct dev_product_call *)kn_args_of(c)) == 0 ? cudaSuccess
											    : cudaErrorUnknown;
	const struct kn_copy *copy = (const struct kn_copy *)kn_args_of(c);
	return cudaMemcpyAsync(copy->to, copy->from, copy->bytes, cudaMemcpyDefault, d->stream);
}

int dev_run(struct dev *d, const struct kn_command *c)
{
	if (d->base.fault[0] != '\0')
		return SL_EIO;
	if (c->kind == KN_CALL)
		kn_spills_look(&d->spills, d->base.host, c);
	begin_work(d);
	cudaError_t rc = ask_for_shared(c);
	if (rc == cudaSuccess)
		rc = issue(d, c);
	if (rc == cudaSuccess)
		return 0;
	(void)cudaGetLastError();
	return fail(d, c->name != NULL ? c->name : "a copy", rc);
}

int dev_graph_make(struct dev *d, const struct kn_list *l, size_t n, struct dev_graph **out)
{
	if (d->base.fault[0] != '\0')
		return SL_EIO;
	if (no_graphs)
		return SL_ENOMEM;
	cudaGraph_t graph = NULL;
	cudaGraphExec_t exec = NULL;
	cudaError_t rc = cudaSuccess;
	for (size_t at = 0; at < n && rc == cudaSuccess; at += kn_list_at(l, at)->bytes)
		rc = ask_for_shared(kn_list_at(l, at));
	if (rc == cudaSuccess)
		rc = cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal);
	if (rc == cudaSuccess) {
		for (size_t at = 0; at < n && rc == cudaSuccess; at += kn_list_at(l, at)->bytes)
			rc = issue(d, kn_list_at(l, at));
		cudaError_t end = cudaStreamEndCapture(d->stream, &graph);
		rc = rc == cudaSuccess ? end : rc;
	}
	if (rc == cudaSuccess)
		rc = cudaGraphInstantiate(&exec, graph, 0);
	if (rc == cudaSuccess)
		rc = cudaGraphUpload(exec, d->stream);
	if (graph != NULL)
		(void)cudaGraphDestroy(graph);
	if (rc != cudaSuccess) {
		if (exec != NULL)
			(void)cudaGraphExecDestroy(exec);
		(void)cudaGetLastError();
		return SL_ENOMEM;
	}
	*out = (struct dev_graph *)exec;
	return 0;
}

int dev_graph_run(struct dev *d, struct dev_graph *g)
{
	if (d->base.fault[0] != '\0')
		return SL_EIO;
	begin_work(d);
	d->running = took_of(d, g);
	cudaError_t rc = cudaGraphLaunch((cudaGraphExec_t)g, d->stream);
	return rc == cudaSuccess ? 0 : fail(d, "a graph", rc);
}

/* After a fault the call fails again, harmlessly. */
void dev_graph_free(struct dev *, struct dev_graph *g) { (void)cudaGraphExecDestroy((cudaGraphExec_t)g); }
