/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels by their address, as nvcc registers them for the runtime, and their launches within a device's limits (CUDA
 * C++ Programming Guide, "Compute Capabilities").
 */
#include "tests/standin/standin.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/plugin.h"
#include "tests/emulation/emu_blocks.h"

enum { MAX_KERNELS = 4096, MAX_THREADS = 1024, MAX_Y = 65535, SHARED = 48 << 10 };
/* What a kernel may ask for (CUDA C++ Programming Guide, "Compute Capabilities"): of 9.0; of 8.6, the least of others.
 */
enum { ASKED_90 = 227 << 10, ASKED = 99 << 10 };

struct kernel {
	const void *at; /* NULL: free */
	void (*thunk)(const struct kn_command *c, void **where);
	const char *name;
	const uint32_t *sizes;
	uint32_t n_args, bytes;
	size_t shared; /* what it asked for beyond SHARED */
};

static struct kernel kernels[MAX_KERNELS];
static const struct kn_plugin_host *program;
static struct emu_blocks *blocks;
static int fail_in;
static char with_local[64];
static size_t local_bytes;

extern "C" __attribute__((visibility("default"))) void sluice_emulation_fail(int n)
{
	struct held h;
	fail_in = n;
}

extern "C" __attribute__((visibility("default"))) void sluice_standin_local_memory(const char *kernel, size_t bytes)
{
	struct held h;
	snprintf(with_local, sizeof with_local, "%s", kernel);
	local_bytes = bytes;
}

bool kernel_struck(void) { return (fail_in > 0 && --fail_in == 0) || (program != NULL && program->device_fault()); }

/* Its place in the table, or the free one for it. */
static struct kernel *find(const void *at)
{
	size_t i = (size_t)((uintptr_t)at * 0x9E3779B97F4A7C15ull >> 40) % MAX_KERNELS;
	while (kernels[i].at != NULL && kernels[i].at != at)
		i = (i + 1) % MAX_KERNELS;
	return &kernels[i];
}

void standin_kernel(const struct kn_plugin_host *host, const struct kn_command *c, size_t bytes, const uint32_t *sizes)
{
	struct held h;
	struct kernel *k = find(c->kernel);
	program = host;
	k->at = c->kernel;
	k->thunk = c->thunk;
	k->name = c->name;
	k->sizes = sizes;
	k->n_args = c->n_args;
	k->bytes = (uint32_t)((bytes + KN_COMMAND_ALIGN - 1) / KN_COMMAND_ALIGN * KN_COMMAND_ALIGN);
}

/* The arguments are read now: a device's launch copies them before it returns. */
static struct kn_command *command_of(const struct kernel *k, const dim3 &grid, const dim3 &block, void **args,
				     size_t shared)
{
	void *to[KN_MAX_ARGS], *room = NULL;
	if (posix_memalign(&room, KN_COMMAND_ALIGN, k->bytes) != 0)
		abort();
	struct kn_command *c = (struct kn_command *)room;
	memset(room, 0, k->bytes);
	c->bytes = k->bytes;
	c->kind = KN_CALL;
	c->kernel = k->at;
	c->thunk = k->thunk;
	c->name = k->name;
	c->grid[0] = grid.x, c->grid[1] = grid.y, c->grid[2] = grid.z;
	c->block[0] = block.x, c->block[1] = block.y, c->block[2] = block.z;
	c->shared = (uint32_t)shared;
	c->n_args = k->n_args;
	k->thunk(c, to);
	for (uint32_t i = 0; i < k->n_args; i++)
		memcpy(to[i], args[i], k->sizes[i]);
	return c;
}

static cudaError_t check_limits(const struct kernel *k, const dim3 &grid, const dim3 &block, size_t shared)
{
	uint64_t threads = (uint64_t)block.x * block.y * block.z;
	if (grid.x < 1 || grid.x > INT32_MAX || grid.y < 1 || grid.y > MAX_Y || grid.z < 1 || grid.z > MAX_Y)
		return standin_refuse(cudaErrorInvalidConfiguration, "%s: a grid of %u, %u, %u blocks", k->name, grid.x,
				      grid.y, grid.z);
	if (threads < 1 || threads > MAX_THREADS || block.z > 64)
		return standin_refuse(cudaErrorInvalidConfiguration, "%s: a block of %u, %u, %u threads", k->name,
				      block.x, block.y, block.z);
	if (shared > SHARED && shared > k->shared)
		return standin_refuse(cudaErrorInvalidValue, "%s: %zu bytes of shared memory, and %zu were asked for",
				      k->name, shared, k->shared > SHARED ? k->shared : (size_t)SHARED);
	return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s)
{
	struct held h;
	cudaError_t e;
	const struct kernel *k = find(f);
	if (standin_struck(__func__, &e) || (e = standin_broken) != cudaSuccess)
		return standin_error(e);
	if (k->at == NULL)
		return standin_refuse(cudaErrorInvalidDeviceFunction, "a launch of no kernel");
	if (!stream_is(s))
		return standin_refuse(cudaErrorInvalidResourceHandle, "%s in a stream that is not there", k->name);
	if ((e = check_limits(k, grid, block, shared)) != cudaSuccess)
		return e;
	struct op *o = op_new(OP_KERNEL);
	o->name = k->name;
	o->command = command_of(k, grid, block, args, shared);
	standin_counts.launches += s->capture == NULL;
	standin_log(STANDIN_LAUNCH, s, o);
	return op_give(s, o);
}

/* A kernel that may start early waits in kn_begin, which the emulation checks: so its order is that of the stream. */
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *f, void **args)
{
	for (unsigned i = 0; i < how->numAttrs; i++)
		if (how->attrs[i].id != cudaLaunchAttributeProgrammaticStreamSerialization || standin_capability() < 90)
			return standin_refuse(cudaErrorInvalidValue, "a launch with attribute %d",
					      (int)how->attrs[i].id);
	return cudaLaunchKernel(f, how->grid, how->block, args, how->dynamicSmemBytes, how->stream);
}

cudaError_t cudaFuncSetAttribute(const void *f, enum cudaFuncAttribute what, int value)
{
	struct held h;
	cudaError_t e;
	struct kernel *k = find(f);
	if (standin_struck(__func__, &e))
		return standin_error(e);
	if (f == NULL || k->at == NULL)
		return standin_refuse(cudaErrorInvalidDeviceFunction, "an attribute of no kernel");
	if (what != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
	    value > ((int)(standin_capability() == 90 ? ASKED_90 : ASKED)))
		return standin_refuse(cudaErrorInvalidValue, "%s: asks for %d bytes of shared memory", k->name, value);
	k->shared = (size_t)value;
	return standin_broken;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *f)
{
	struct held h;
	*out = {};
	if (f == NULL)
		return standin_refuse(cudaErrorInvalidDeviceFunction, "attributes of no kernel");
	const struct kernel *k = find(f);
	out->maxThreadsPerBlock = MAX_THREADS;
	out->localSizeBytes = k->at != NULL && strcmp(k->name, with_local) == 0 ? local_bytes : 0;
	out->numRegs = 32;
	out->binaryVersion = out->ptxVersion = standin_capability();
	return standin_broken;
}

cudaError_t cudaFuncGetName(const char **out, const void *f)
{
	struct held h;
	cudaError_t e;
	const struct kernel *k = find(f);
	if (standin_struck(__func__, &e))
		return standin_error(e);
	if (f == NULL || k->at == NULL)
		return standin_refuse(cudaErrorInvalidDeviceFunction, "the name of no kernel");
	*out = k->name;
	return standin_broken;
}

/* ---- running ---- */

static void *blocks_zalloc(size_t bytes) { return calloc(1, bytes); }

static const struct kn_plugin_host *own_host(void)
{
	static struct kn_plugin_host host;
	host.zalloc = blocks_zalloc;
	host.free = free;
	return &host;
}

/* The device's own clock, as the emulation's. */
uint64_t kernel_ns(const struct kn_command *c)
{
	return strstr(c->name, "mma") != NULL || strstr(c->name, "matvec") != NULL ? 100000 : 1000;
}

/* The block's shared memory, as the emulation tells of it when it begins. */
static const struct op *op_of_launch;

void standin_shared(const void *at, size_t bytes) { access_begin(op_of_launch, at, bytes); }

const char *kernel_run(const struct op *o)
{
	if (kernel_struck())
		return "as a test wants it";
	if (blocks == NULL && emu_blocks_make(own_host(), &blocks) != 0)
		abort();
	op_of_launch = o;
	const char *wrong = emu_blocks_run(blocks, o->command);
	access_end();
	return wrong;
}
