/* SPDX-License-Identifier: Apache-2.0
 *
 * The device layer: the little that kernels and their host code need, in two forms. Compiled by nvcc
 * it is CUDA; compiled by a C++ compiler with KN_EMULATED it is emu.h, which runs the same sources on
 * the host with the execution model's own rules (blocks, warps, barriers, shared memory).
 *
 * Rules for kernels, so that both forms mean the same:
 *  - launched with KN_LAUNCH, a whole number of warps a block, never waiting for another block;
 *  - shared memory only from kn_shared(); barriers only kn_barrier(), reached by every thread of the
 *    block or by none; shuffles only with all 32 lanes;
 *  - own conversions of types, kn_fma where a fused multiply-add is meant: nvcc gets --fmad=false, so
 *    that the same expression has the same bits in every kernel.
 *
 * Everything goes to one stream and takes effect in call order. The first error stays: from then on
 * every call returns SL_EIO until the device is closed.
 *
 * While a list is recorded (list.h), launches, dev_copy and dev_copy_out are put at its end; every other
 * call that touches the device's memory runs what is in it first, so the order of effects is that of the calls.
 */
#ifndef KERNELS_CUDA_DEVICE_H
#define KERNELS_CUDA_DEVICE_H

#include <stdint.h>

#include "kernels/plugin.h"

struct dev; /* one stream on one device */

enum { KN_WARP = 32 };

/* Whether there is a device at all; the reason in *err when not. */
int dev_probe(const struct kn_plugin_host *host, struct sl_err *err);
/* priority: of its stream among those of this program; above 0: before the others. */
int dev_open(const struct kn_plugin_host *host, int priority, struct dev **out, struct sl_err *err);
void dev_close(struct dev *d);
/* One line: name, architecture, memory, driver. Borrowed from d. */
const char *dev_describe(const struct dev *d);
/* What the first error was; "" while there is none. */
const char *dev_fault(const struct dev *d);

/* Zeroed. SL_ENOMEM leaves the device usable. */
int dev_alloc(struct dev *d, size_t bytes, void **out);
void dev_free(struct dev *d, void *p);
/* The host's memory may be changed once this returns; dev_host_alloc's after the next dev_sync. */
int dev_copy_in(struct dev *d, void *to, const void *host, size_t bytes);
/* The host's memory is filled after the next dev_sync. */
int dev_copy_out(struct dev *d, void *host, const void *from, size_t bytes);
int dev_copy(struct dev *d, void *to, const void *from, size_t bytes);
/* Waits for everything so far. */
int dev_sync(struct dev *d);

/* Memory of the host that the device reads and writes by itself (pinned). NULL: none to be had. */
void *dev_host_alloc(struct dev *d, size_t bytes);
void dev_host_free(struct dev *d, void *p);

/* ---- commands (launch.h) and lists of them (list.h) ---- */

struct kn_command;
struct kn_list;
struct dev_graph; /* commands that are launched as one */

const struct kn_plugin_host *dev_host(const struct dev *d);
/* The fault that ends it all, from the host's side; SL_EIO. The first one stays. */
int dev_fail(struct dev *d, const char *what, const char *why);
/* From now on commands go to the end of l; NULL: they are run at once. */
void dev_record(struct dev *d, struct kn_list *l);
struct kn_list *dev_recording(struct dev *d);
/* Runs a command now. 0 or SL_EIO. */
int dev_run(struct dev *d, const struct kn_command *c);
/* A graph of the first n bytes of a list, none of which copies to the host. SL_ENOMEM, or another code when the device
 * makes none, leaves the device as it was. */
int dev_graph_make(struct dev *d, const struct kn_list *l, size_t n, struct dev_graph **out);
int dev_graph_run(struct dev *d, struct dev_graph *g);
void dev_graph_free(struct dev *d, struct dev_graph *g);

#ifdef KN_EMULATED
#include "kernels/cuda/emu.h"
#else
#include "kernels/cuda/device_cuda.h"
#endif
#include "kernels/cuda/launch.h"

/* The warp's sum in every lane; the order is a fixed tree. */
__device__ static inline float kn_warp_sum(float v)
{
	for (int step = KN_WARP / 2; step > 0; step /= 2)
		v += kn_shuffle_xor(v, step);
	return v;
}

__device__ static inline float kn_warp_max(float v)
{
	for (int step = KN_WARP / 2; step > 0; step /= 2)
		v = fmaxf(v, kn_shuffle_xor(v, step));
	return v;
}

#endif
