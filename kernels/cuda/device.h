/* SPDX-License-Identifier: Apache-2.0
 *
 * The device layer: the small interface that kernels and their host code need, in two forms. Compiled by nvcc it is
 * CUDA; compiled by a C++ compiler, KN_EMULATED names the header (tests/emulation/emu.h) that runs the same sources on
 * the host with the execution model's own rules (blocks, warps, barriers, shared memory).
 *
 * Rules for kernels, so that both forms mean the same:
 *  - launched with KN_LAUNCH, a whole number of warps a block, never waiting for another block;
 *  - shared memory only from kn_shared(); barriers only kn_barrier(), reached by every thread of the
 *    block or by none; shuffles only with all 32 lanes;
 *  - own conversions of types, kn_fma where a fused multiply-add is meant: nvcc gets --fmad=false, so
 *    that the same expression has the same bits in every kernel.
 *
 * Everything goes to one stream and takes effect in call order, but for copies aside, which have a stream of their own.
 * The first error stays: from then on every call returns SL_EIO until the device is closed.
 *
 * While a list is recorded (list.h), launches, dev_copy and dev_copy_out are put at its end; every other call that
 * touches the device's memory runs what is in it first, so the order of effects is that of the calls.
 */
#ifndef KERNELS_CUDA_DEVICE_H
#define KERNELS_CUDA_DEVICE_H

#include <stdint.h>

#include "kernels/plugin.h"

struct dev; /* one stream on one device, and one for copies */

enum { KN_WARP = 32 };

/* Whether there is a device at all; the reason in *err when not. */
int dev_probe(const struct kn_plugin_host *host, struct sl_err *err);
/* priority: of its stream among those of this program; above 0: before the others. */
int dev_open(const struct kn_plugin_host *host, int priority, struct dev **out, struct sl_err *err);
void dev_close(struct dev *d);
/* One line: name, architecture, memory, driver. Borrowed from d. */
const char *dev_describe(const struct dev *d);
/* Its address on the bus, "0000:1b:00.0"; "": it has none. Borrowed from d. */
const char *dev_pci(const struct dev *d);
/* The first error; "" if none. */
const char *dev_fault(const struct dev *d);

/* Zeroed. SL_ENOMEM leaves the device usable. */
int dev_alloc(struct dev *d, size_t bytes, void **out);
void dev_free(struct dev *d, void *p);
/* Of the whole device, in bytes; false: unknown. */
bool dev_memory(struct dev *d, uint64_t *free_bytes, uint64_t *total);
/* The host's memory may be changed once this returns; dev_host_alloc's after the next dev_sync, or a mark behind it. */
int dev_copy_in(struct dev *d, void *to, const void *host, size_t bytes);
/* The host's memory is filled after the next dev_sync, or a mark behind it. */
int dev_copy_out(struct dev *d, void *host, const void *from, size_t bytes);
int dev_copy(struct dev *d, void *to, const void *from, size_t bytes);
/* Waits for everything so far, copies aside too. */
int dev_sync(struct dev *d);

/* Copies aside: between pinned memory of the host and the device's, in the order of these calls, on a stream of their
 * own, and neither stream waits for the other except by dev_aside_after and dev_aside_before. Nothing may be recorded
 * meanwhile. */
int dev_aside(struct dev *d, void *to, const void *from, size_t bytes);
/* Those called from now on come after everything that the stream was given so far. */
int dev_aside_after(struct dev *d);
/* What the stream is given from now on comes after all of them so far. */
int dev_aside_before(struct dev *d);
/* Whether none of them is on its way; true after a fault. */
bool dev_aside_done(struct dev *d);

/* What was called so far, which is in no list, is what dev_await of this mark waits for. */
enum { DEV_MARKS = KN_STEPS_AHEAD };
int dev_mark(struct dev *d, int mark);
int dev_await(struct dev *d, int mark);
/* Whether dev_await would not have to wait; true after a fault. */
bool dev_reached(struct dev *d, int mark);
/* How often dev_count was called: for every command, recorded or run, and every copy from the host. */
uint64_t dev_serial(const struct dev *d);
void dev_count(struct dev *d);

/* How long work of this stream was on the device: of each stretch that a dev_sync ended, from its first work on. */
uint64_t dev_busy_ns(const struct dev *d);

/* For profilers: what comes from now on is of the range of that name (static), and no more of the one before; NULL: of
 * none. */
void dev_range(struct dev *d, const char *name);

/* Memory of the host that the device reads and writes directly (pinned). NULL: none available. */
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

/* Sixteen bytes, loaded and stored at once where they are aligned. */
struct alignas(16) kn_u4 {
	uint32_t x, y, z, w;
};
struct alignas(16) kn_f4 {
	float x, y, z, w;
};

/* What both forms have, beside the above. All 32 lanes of a warp call those marked *; lane l has g = l / 4
 * and t = l % 4; a pair is two 16-bit numbers in one word, the lower one first.
 *
 *  kn_mma_bf16_16816(d, a, b) *, kn_mma_f16_16816: d[4] += A·B, A of 16 × 16, B of 16 × 8, sums in float32.
 *    a[4]: pairs A[g][2t], A[g + 8][2t], A[g][2t + 8], A[g + 8][2t + 8];
 *    b[2]: pairs down a column, B[2t][g], B[2t + 8][g];
 *    d[4]: D[g][2t], D[g][2t + 1], D[g + 8][2t], D[g + 8][2t + 1].
 *  kn_ldmatrix_x4(r, row) *, kn_ldmatrix_x4_trans: four matrices of 8 × 8 16-bit numbers from shared memory;
 *    lane l gives the address of row l % 8 of matrix l / 8 (16 bytes, aligned). r[i]: the pair M[g][2t] of
 *    matrix i, transposed M[2t][g] and M[2t + 1][g].
 *  kn_cp_async16(shared, global), kn_cp_async16_or_zero(…, there): 16 aligned bytes, or zeros, on their way to
 *    shared memory; kn_cp_async_commit() makes a group of this thread's since the last, kn_cp_async_wait<N>() waits
 *    until at most N of its groups are on their way. Other threads see them after a barrier. None may be on its
 *    way when a thread ends.
 *  kn_load_once(at): 16 aligned bytes that stay unchanged while the kernel runs and this multiprocessor won't
 *    read again.
 *  kn_byte_perm(a, b, s): byte i is the one of the eight in a and b that bits 4i…4i+2 of s name.
 *  kn_f16_float, kn_float_f16 (to the nearest, even; infinity from 65520 on), kn_f16x2_sub. */

#ifdef KN_EMULATED
#include KN_EMULATED
#else
#include "kernels/cuda/device_cuda.h"
#endif
#include "kernels/cuda/launch.h"

__device__ static inline float kn_bf16_float(uint16_t h) { return kn_bits_float((uint32_t)h << 16); }

/* To the nearest, even; no number stays none. */
__device__ static inline uint16_t kn_float_bf16(float f)
{
	uint32_t bits = kn_float_bits(f);
	if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

__device__ static inline uint32_t kn_pair_bf16(float low, float high)
{
	return kn_float_bf16(low) | (uint32_t)kn_float_bf16(high) << 16;
}

__device__ static inline uint32_t kn_pair_f16(float low, float high)
{
	return kn_float_f16(low) | (uint32_t)kn_float_f16(high) << 16;
}

/* Floats of eight bits, one sign, four exponent (bias 7) and three mantissa bits, no infinity (Micikevicius et
 * al., "FP8 formats for deep learning", 2022). Exact. */
__device__ static inline float kn_e4m3_float(uint32_t b)
{
	if ((b & 127) == 127)
		return kn_bits_float(0x7FC00000u);
	/* As a float16's high bits it is 2^-8 of itself, subnormals included. */
	return kn_f16_float((uint16_t)((b & 128) << 8 | (b & 127) << 7)) * 256.0f;
}

/* To the nearest, even; what is beyond 448 becomes 448; no number stays none. */
__device__ static inline uint32_t kn_float_e4m3(float f)
{
	uint32_t bits = kn_float_bits(f), sign = bits >> 24 & 128, abs = bits & 0x7FFFFFFFu;
	if (abs > 0x7F800000u)
		return sign | 127;
	if (abs >= 0x43E00000u)
		return sign | 126;
	if (abs < 0x3C800000u) /* below 2^-6: the sum's last bit is 2^-9, and the sum rounds */
		return sign | (kn_float_bits(kn_bits_float(abs) + 16384.0f) - 0x46800000u);
	return sign | (abs + 0x7FFFFu + (abs >> 20 & 1) - 0x3C000000u) >> 20;
}

/* Four floats that are aligned to 16 bytes, by one load. */
__device__ static inline void kn_take4(const float *at, float *v)
{
	struct kn_f4 f = *(const struct kn_f4 *)(const void *)at;
	v[0] = f.x;
	v[1] = f.y;
	v[2] = f.z;
	v[3] = f.w;
}

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
