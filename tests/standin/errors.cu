/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of calls, findings, and the device's description.
 */
#include "tests/standin/standin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

cudaError_t standin_broken;
static thread_local cudaError_t last_error;
static char fail_call[64];
static int fail_in;
static cudaError_t fail_with;
static struct standin_device device = {90, 13000, 1, 0};

extern "C" __attribute__((visibility("default"))) void sluice_standin_device(const struct standin_device *d)
{
	device.capability = d->capability != 0 ? d->capability : device.capability;
	device.driver = d->driver != 0 ? d->driver : device.driver;
	device.devices = d->devices != 0 ? d->devices : device.devices;
	device.coherent = d->coherent != 0 ? d->coherent : device.coherent;
}

extern "C" __attribute__((visibility("default"))) void sluice_standin_fail(const char *call, int n, int error)
{
	struct held h;
	snprintf(fail_call, sizeof fail_call, "%s", call);
	fail_in = n;
	fail_with = (cudaError_t)error;
}

bool standin_struck(const char *call, cudaError_t *e)
{
	if (fail_in == 0 || strcmp(call, fail_call) != 0 || --fail_in > 0)
		return false;
	*e = fail_with;
	return true;
}

static void tell(const char *fmt, va_list ap)
{
	fputs("stand-in for CUDA: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	abort();
}

void standin_finding(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	tell(fmt, ap);
	va_end(ap);
}

cudaError_t standin_error(cudaError_t e)
{
	if (e != cudaSuccess)
		last_error = e;
	return e;
}

cudaError_t standin_refuse(cudaError_t e, const char *fmt, ...)
{
	va_list ap;
	if (standin_broken != cudaSuccess)
		return standin_error(standin_broken);
	va_start(ap, fmt);
	tell(fmt, ap);
	va_end(ap);
	return standin_error(e);
}

void standin_break(cudaError_t e, const char *kernel, const char *why)
{
	if (standin_broken != cudaSuccess)
		return;
	if (strstr(why, "as a test wants it") == NULL)
		standin_finding("%s: %s", kernel, why);
	standin_broken = e;
	streams_drop_all();
}

void standin_heal(void)
{
	if (streams_alive() == 0)
		standin_broken = cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t e = standin_broken != cudaSuccess ? standin_broken : last_error;
	last_error = cudaSuccess;
	return e;
}

static const struct {
	cudaError_t e;
	const char *text;
} texts[] = {
    {cudaSuccess, "no error"},
    {cudaErrorInvalidValue, "invalid argument"},
    {cudaErrorMemoryAllocation, "out of memory"},
    {cudaErrorInvalidConfiguration, "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "invalid resource handle"},
    {cudaErrorNotReady, "device not ready"},
    {cudaErrorIllegalAddress, "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "too many resources requested for launch"},
    {cudaErrorLaunchFailure, "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"},
};

const char *cudaGetErrorString(cudaError_t error)
{
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		if (texts[i].e == error)
			return texts[i].text;
	return "unknown error";
}

/* ---- the device ---- */

int standin_capability(void) { return device.capability; }

cudaError_t cudaGetDeviceCount(int *count)
{
	struct held h;
	cudaError_t e;
	*count = 0;
	if (standin_struck(__func__, &e))
		return standin_error(e);
	if (device.driver < CUDART_VERSION / 1000 * 1000)
		return standin_error(cudaErrorInsufficientDriver);
	if (device.devices < 0) /* none */
		return standin_error(cudaErrorNoDevice);
	*count = device.devices;
	return standin_broken;
}

cudaError_t cudaSetDevice(int n)
{
	struct held h;
	cudaError_t e;
	if (standin_struck(__func__, &e))
		return standin_error(e);
	return n >= 0 && n < device.devices ? standin_broken : standin_error(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
	*p = {};
	snprintf(p->name, sizeof p->name, "Stand-in, emulated");
	size_t free_bytes;
	(void)cudaMemGetInfo(&free_bytes, &p->totalGlobalMem);
	p->sharedMemPerBlock = 48 << 10;
	p->sharedMemPerBlockOptin = 227 << 10;
	p->regsPerBlock = 65536;
	p->warpSize = KN_WARP;
	p->maxThreadsPerBlock = 1024;
	p->major = device.capability / 10;
	p->minor = device.capability % 10;
	p->multiProcessorCount = 132;
	p->l2CacheSize = 50 << 20;
	p->pageableMemoryAccess = device.coherent;
	return standin_broken;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int)
{
	struct cudaDeviceProp p;
	cudaError_t e = cudaGetDeviceProperties(&p, 0);
	switch (attr) {
	case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
	case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
	case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
	case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
	case cudaDevAttrPageableMemoryAccess:
	case cudaDevAttrPageableMemoryAccessUsesHostPageTables: *value = p.pageableMemoryAccess; break;
	default: *value = 0;
	}
	return e;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int)
{
	if (n < 13)
		return standin_refuse(cudaErrorInvalidValue, "%d bytes for a bus address", n);
	id[0] = '\0'; /* it has none, and NVML knows nothing of it */
	return standin_broken;
}

cudaError_t cudaDriverGetVersion(int *version)
{
	*version = device.driver;
	return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}
