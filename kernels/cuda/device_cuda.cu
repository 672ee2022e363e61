/* SPDX-License-Identifier: Apache-2.0
 *
 * The device layer on CUDA's runtime, which is linked statically: with no driver installed the first
 * call says so and nothing else happens.
 *
 * Memory comes from plain cudaMalloc, at load and never in a step but for a scratch buffer that grows.
 * Copies from pageable memory are staged by the runtime before the call returns, which is what
 * dev_copy_in promises.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/device.h"

struct dev {
	const struct kn_plugin_host *host;
	cudaStream_t stream;
	uint64_t serial;
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

int dev_open(const struct kn_plugin_host *host, struct dev **out, struct sl_err *err)
{
	struct dev *d = (struct dev *)host->zalloc(sizeof *d);
	if (d == NULL)
		return host->errf(err, SL_ENOMEM, "no memory for the CUDA backend");
	d->host = host;
	cudaError_t rc = cudaSetDevice(0);
	if (rc == cudaSuccess)
		rc = cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking);
	if (rc != cudaSuccess) {
		host->free(d);
		return host->errf(err, SL_EIO, "CUDA device 0: %s", cudaGetErrorString(rc));
	}
	describe(d);
	*out = d;
	return 0;
}

void dev_close(struct dev *d)
{
	/* After a fault both report it again: there is nothing left to do about it. */
	(void)cudaStreamSynchronize(d->stream);
	(void)cudaStreamDestroy(d->stream);
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

cudaStream_t dev_stream(struct dev *d)
{
	return d->stream;
}

uint64_t dev_serial(const struct dev *d)
{
	return d->serial;
}

int dev_launched(struct dev *d, const char *kernel)
{
	d->serial++;
	cudaError_t rc = cudaGetLastError();
	return rc == cudaSuccess ? 0 : fail(d, kernel, rc);
}

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
	if (rc != cudaSuccess) {
		(void)cudaFree(p);
		return fail(d, "cudaMemset", rc);
	}
	*out = p;
	return 0;
}

void dev_free(struct dev *d, void *p)
{
	cudaError_t rc = cudaFree(p); /* waits for the device */
	if (rc != cudaSuccess)
		fail(d, "cudaFree", rc);
}

static int copy(struct dev *d, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	if (d->fault[0] != '\0')
		return SL_EIO;
	d->serial++;
	cudaError_t rc = cudaMemcpyAsync(to, from, bytes, kind, d->stream);
	return rc == cudaSuccess ? 0 : fail(d, "cudaMemcpy", rc);
}

int dev_copy_in(struct dev *d, void *to, const void *host, size_t bytes)
{
	return copy(d, to, host, bytes, cudaMemcpyHostToDevice);
}

int dev_copy_out(struct dev *d, void *host, const void *from, size_t bytes)
{
	return copy(d, host, from, bytes, cudaMemcpyDeviceToHost);
}

int dev_copy(struct dev *d, void *to, const void *from, size_t bytes)
{
	return copy(d, to, from, bytes, cudaMemcpyDeviceToDevice);
}

int dev_sync(struct dev *d)
{
	if (d->fault[0] != '\0')
		return SL_EIO;
	cudaError_t rc = cudaStreamSynchronize(d->stream);
	return rc == cudaSuccess ? 0 : fail(d, "a step", rc);
}
