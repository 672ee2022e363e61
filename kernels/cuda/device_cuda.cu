/* SPDX-License-Identifier: Apache-2.0
 *
 * The device layer on CUDA's runtime, which is linked statically: with no driver installed the first
 * call says so and nothing else happens.
 *
 * Memory comes from plain cudaMalloc, at load and never in a step but for a scratch buffer that grows.
 * Copies from pageable memory are staged by the runtime before the call returns, which is what
 * dev_copy_in promises; from pinned memory (dev_host_alloc) they go on by themselves.
 *
 * A graph is captured from the stream with the very calls that a plain run makes. The capture is
 * the thread's own, so that other threads may load another model meanwhile. Whatever keeps a capture from
 * succeeding leaves the device usable: the list is run plainly, which shows what a real fault is.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/list.h"

struct dev {
	const struct kn_plugin_host *host;
	cudaStream_t stream;
	uint64_t serial;
	cudaEvent_t done, marks[DEV_MARKS];
	struct kn_list *recording;
	char line[192];
	char fault[192];
};

static int fail(struct dev *d, const char *what, cudaError_t rc)
{
	if (d->fault[0] == '\0')
		snprintf(d->fault, sizeof d->fault, "%s: %s", what, cudaGetErrorString(rc));
	return SL_EIO;
}

int dev_probe(const struct kn_plugin_host *host, struct sl_err *err)
{
	int n = 0;
	cudaError_t rc = cudaGetDeviceCount(&n);
	if (rc == cudaErrorInsufficientDriver)
		return host->errf(err, SL_ENOTFOUND, "no NVIDIA driver, or one older than CUDA %d.%d needs",
				  CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
	if (rc != cudaSuccess)
		return host->errf(err, SL_EIO, "%s", cudaGetErrorString(rc));
	if (n == 0)
		return host->errf(err, SL_ENOTFOUND, "the driver names no device");
	return 0;
}

static void describe(struct dev *d)
{
	cudaDeviceProp p;
	size_t free_bytes = 0, all = 0;
	int driver = 0;
	if (cudaGetDeviceProperties(&p, 0) != cudaSuccess || cudaMemGetInfo(&free_bytes, &all) != cudaSuccess ||
	    cudaDriverGetVersion(&driver) != cudaSuccess)
		snprintf(d->line, sizeof d->line, "CUDA device 0");
	else
		snprintf(d->line, sizeof d->line, "%.80s, sm_%d%d, %.1f of %.1f GiB free, driver for CUDA %d.%d", p.name,
			 p.major, p.minor, (double)free_bytes / 0x1p30, (double)all / 0x1p30, driver / 1000,
			 driver % 1000 / 10);
}

static cudaError_t make_events(struct dev *d)
{
	cudaError_t rc = cudaEventCreateWithFlags(&d->done, cudaEventDisableTiming);
	for (int i = 0; i < DEV_MARKS && rc == cudaSuccess; i++)
		rc = cudaEventCreateWithFlags(&d->marks[i], cudaEventDisableTiming);
	return rc;
}

/* After a fault all of them report it again: there is nothing left to do about it. */
static void free_stream(struct dev *d)
{
	for (int i = 0; i < DEV_MARKS; i++)
		if (d->marks[i] != NULL)
			(void)cudaEventDestroy(d->marks[i]);
	if (d->done != NULL)
		(void)cudaEventDestroy(d->done);
	if (d->stream != NULL)
		(void)cudaStreamDestroy(d->stream);
}

int dev_open(const struct kn_plugin_host *host, int priority, struct dev **out, struct sl_err *err)
{
	struct dev *d = (struct dev *)host->zalloc(sizeof *d);
	int least = 0, greatest = 0; /* smaller numbers go first */
	if (d == NULL)
		return host->errf(err, SL_ENOMEM, "no memory for the CUDA backend");
	d->host = host;
	cudaError_t rc = cudaSetDevice(0);
	if (rc == cudaSuccess)
		rc = cudaDeviceGetStreamPriorityRange(&least, &greatest);
	if (rc == cudaSuccess)
		rc = cudaStreamCreateWithPriority(&d->stream, cudaStreamNonBlocking, priority > 0 ? greatest : least);
	if (rc == cudaSuccess)
		rc = make_events(d);
	if (rc != cudaSuccess) {
		free_stream(d);
		host->free(d);
		return host->errf(err, SL_EIO, "CUDA device 0: %s", cudaGetErrorString(rc));
	}
	describe(d);
	*out = d;
	return 0;
}

void dev_close(struct dev *d)
{
	(void)cudaStreamSynchronize(d->stream);
	free_stream(d);
	d->host->free(d);
}

const char *dev_describe(const struct dev *d)
{
	return d->line;
}

const char *dev_fault(const struct dev *d)
{
	return d->fault;
}

const struct kn_plugin_host *dev_host(const struct dev *d)
{
	return d->host;
}

uint64_t dev_serial(const struct dev *d)
{
	return d->serial;
}

void dev_count(struct dev *d)
{
	d->serial++;
}

int dev_fail(struct dev *d, const char *what, const char *why)
{
	if (d->fault[0] == '\0')
		snprintf(d->fault, sizeof d->fault, "%s: %s", what, why);
	return SL_EIO;
}

void dev_record(struct dev *d, struct kn_list *l)
{
	d->recording = l;
}

struct kn_list *dev_recording(struct dev *d)
{
	return d->recording;
}

/* ---- memory ---- */

int dev_alloc(struct dev *d, size_t bytes, void **out)
{
	void *p = NULL;
	if (d->fault[0] != '\0')
		return SL_EIO;
	cudaError_t rc = cudaMalloc(&p, bytes > 0 ? bytes : 1);
	if (rc == cudaErrorMemoryAllocation) {
		(void)cudaGetLastError(); /* not a fault: the caller does with less */
		return SL_ENOMEM;
	}
	if (rc != cudaSuccess)
		return fail(d, "cudaMalloc", rc);
	rc = cudaMemsetAsync(p, 0, bytes, d->stream);
	if (rc == cudaSuccess)
		rc = cudaStreamSynchronize(d->stream); /* others may use it on streams of their own */
	if (rc != cudaSuccess) {
		(void)cudaFree(p);
		return fail(d, "cudaMemset", rc);
	}
	*out = p;
	return 0;
}

void dev_free(struct dev *d, void *p)
{
	(void)kn_list_flush(d);		/* a fault stays in d */
	cudaError_t rc = cudaFree(p);	/* waits for the device */
	if (rc != cudaSuccess)
		fail(d, "cudaFree", rc);
}

void *dev_host_alloc(struct dev *d, size_t bytes)
{
	void *p = NULL;
	if (d->fault[0] != '\0' || cudaMallocHost(&p, bytes > 0 ? bytes : 1) != cudaSuccess) {
		(void)cudaGetLastError(); /* not a fault: the caller does without */
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

int dev_copy_in(struct dev *d, void *to, const void *host, size_t bytes)
{
	int flushed = kn_list_flush(d);
	if (flushed != 0 || d->fault[0] != '\0')
		return SL_EIO;
	dev_count(d);
	cudaError_t rc = cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, d->stream);
	return rc == cudaSuccess ? 0 : fail(d, "cudaMemcpy", rc);
}

int dev_sync(struct dev *d)
{
	int flushed = kn_list_flush(d);
	if (flushed != 0 || d->fault[0] != '\0')
		return SL_EIO;
	cudaError_t rc = cudaEventRecord(d->done, d->stream);
	if (rc == cudaSuccess)
		rc = cudaEventSynchronize(d->done);
	return rc == cudaSuccess ? 0 : fail(d, "a step", rc);
}

int dev_mark(struct dev *d, int mark)
{
	if (d->fault[0] != '\0')
		return SL_EIO;
	cudaError_t rc = cudaEventRecord(d->marks[mark], d->stream);
	return rc == cudaSuccess ? 0 : fail(d, "a step", rc);
}

int dev_await(struct dev *d, int mark)
{
	if (d->fault[0] != '\0')
		return SL_EIO;
	cudaError_t rc = cudaEventSynchronize(d->marks[mark]);
	return rc == cudaSuccess ? 0 : fail(d, "a step", rc);
}

bool dev_reached(struct dev *d, int mark)
{
	if (d->fault[0] != '\0')
		return true;
	cudaError_t rc = cudaEventQuery(d->marks[mark]);
	if (rc == cudaErrorNotReady) {
		(void)cudaGetLastError();
		return false;
	}
	if (rc != cudaSuccess)
		fail(d, "a step", rc);
	return true;
}

/* ---- commands ---- */

/* As dev_run, but an error is the caller's to judge. */
static cudaError_t issue(struct dev *d, const struct kn_command *c)
{
	if (c->kind == KN_CALL) {
		void *where[KN_MAX_ARGS];
		c->thunk(c, where);
		return cudaLaunchKernel(c->kernel, dim3(c->grid[0], c->grid[1], c->grid[2]),
					dim3(c->block[0], c->block[1], c->block[2]), where, c->shared, d->stream);
	}
	const struct kn_copy *copy = (const struct kn_copy *)kn_args_of(c);
	return cudaMemcpyAsync(copy->to, copy->from, copy->bytes,
			       c->kind == KN_COPY ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost, d->stream);
}

int dev_run(struct dev *d, const struct kn_command *c)
{
	if (d->fault[0] != '\0')
		return SL_EIO;
	cudaError_t rc = issue(d, c);
	if (rc == cudaSuccess)
		return 0;
	(void)cudaGetLastError();
	return fail(d, c->name != NULL ? c->name : "a copy", rc);
}

int dev_graph_make(struct dev *d, const struct kn_list *l, size_t n, struct dev_graph **out)
{
	if (d->fault[0] != '\0')
		return SL_EIO;
	cudaGraph_t graph = NULL;
	cudaGraphExec_t exec = NULL;
	cudaError_t rc = cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal);
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
	if (d->fault[0] != '\0')
		return SL_EIO;
	cudaError_t rc = cudaGraphLaunch((cudaGraphExec_t)g, d->stream);
	return rc == cudaSuccess ? 0 : fail(d, "a graph", rc);
}

void dev_graph_free(struct dev *d, struct dev_graph *g)
{
	(void)d;
	(void)cudaGraphExecDestroy((cudaGraphExec_t)g); /* after a fault it reports that again */
}
