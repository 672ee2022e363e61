/* SPDX-License-Identifier: Apache-2.0
 *
 * The device layer: the small interface that kernels and their host code need, in two forms. Compiled by nvcc it is
 * CUDA; compiled by a C++ compiler, KN_EMULATED names the header (tests/emulation/emu.h) that runs the same sources on
 * the host with the execution model's own rules (blocks, warps, barriers, shared memory).
 *
 * Rules for kernels, so that both forms behave alike:
 *  - call kn_begin first: a device may start a kernel before the one before it has ended (programmatic dependent
 *    launch). One whose predecessor in the list calls kn_let_next may call it later: before that, it reads what was
 *    there before its predecessor, and writes shared memory only;
 *  - launch with KN_LAUNCH, with whole warps per block; never wait for another block;
 *  - take shared memory only from kn_shared(); use only kn_barrier(), reached by every thread of the block or by none;
 *    shuffle only with all 32 lanes;
 *  - what lanes of a warp tell each other in shared memory needs kn_warp_barrier() only, reached by all of them;
 *  - kn_in_order(), for all lanes of a warp or none, keeps the compiler from moving loads from shared memory ahead of
 *    it, which takes registers;
 *  - convert types with the functions below; write kn_fma for a fused multiply-add: nvcc gets --fmad=false, so that the
 *    same expression has the same bits in every kernel.
 *
 * All work goes to one stream and takes effect in call order, except copies aside, which have their own stream. The
 * first error is permanent: every later call returns SL_EIO until the device is closed.
 *
 * While a list is recorded (list.h), launches, dev_copy and dev_copy_out are appended to it. Every other call that
 * touches device memory first runs the list, so effects keep the order of the calls.
 */
#ifndef KERNELS_CUDA_DEVICE_H
#define KERNELS_CUDA_DEVICE_H

#include <stdint.h>

#include "kernels/plugin.h"

struct dev; /* one device with a stream for work and one for copies */

enum { KN_WARP = 32 };

/* 0: there is a usable device; otherwise *err has the reason. */
int dev_probe(const struct kn_plugin_host *host, struct sl_err *err);
/* priority: of its stream within this program; above 0: before others. */
int dev_open(const struct kn_plugin_host *host, int priority, struct dev **out, struct sl_err *err);
void dev_close(struct dev *d);
/* One line with name, architecture, memory, driver. Borrowed from d. */
const char *dev_describe(const struct dev *d);
/* Its bus address, "0000:1b:00.0"; "": none. Borrowed from d. */
const char *dev_pci(const struct dev *d);
/* Bytes of shared memory that one thread block can have: at least 48 KiB. */
int dev_shared_most(const struct dev *d);
/* The first error; "" if none. */
const char *dev_fault(const struct dev *d);

/* Zeroed. SL_ENOMEM leaves the device usable. */
int dev_alloc(struct dev *d, size_t bytes, void **out);
/* The same with any content, at first and again after each step's mark; the emulation makes it wrong. */
int dev_alloc_scratch(struct dev *d, size_t bytes, void **out);
void dev_free(struct dev *d, void *p);
/* Memory of the whole device, in bytes. False: unknown. */
bool dev_memory(struct dev *d, uint64_t *free_bytes, uint64_t *total);
/* The caller may change `host`, of any kind of memory, once this returns. */
int dev_copy_in(struct dev *d, void *to, const void *host, size_t bytes);
/* `host` is filled after the next dev_sync or mark. */
int dev_copy_out(struct dev *d, void *host, const void *from, size_t bytes);
int dev_copy(struct dev *d, void *to, const void *from, size_t bytes);
/* Waits for all work so far, including copies aside. */
int dev_sync(struct dev *d);

/* Copies aside: between pinned host memory and device memory, in call order, on a separate stream. The two streams wait
 * for each other only through dev_aside_after and dev_aside_before. Not allowed while a list is recorded. */
int dev_aside(struct dev *d, void *to, const void *from, size_t bytes);
/* Later copies aside run after all previous work of the stream. */
int dev_aside_after(struct dev *d);
/* Later work of the stream runs after all previous copies aside. */
int dev_aside_before(struct dev *d);
/* Whether no copy aside is in flight; true after a fault. */
bool dev_aside_done(struct dev *d);

/* dev_mark: dev_await of that mark waits for all work called so far, except recorded work. Only steps' marks are timed.
 */
enum { DEV_MARKS = KN_STEPS_AHEAD + 2 }; /* steps, uploads */
int dev_mark(struct dev *d, int mark);
int dev_await(struct dev *d, int mark);
/* Whether dev_await would return at once; true after a fault. */
bool dev_reached(struct dev *d, int mark);
/* The number of dev_count calls: one per command, recorded or run, and per copy from the host. */
uint64_t dev_serial(const struct dev *d);
void dev_count(struct dev *d);

/* Since dev_open. transfers: copies by dev_copy_in and dev_copy_out. allocations: of memory on the device. */
struct dev_figures {
	uint64_t launches, transfers, allocations;
};
struct dev_figures *dev_counts(struct dev *d);

/* Whether kernels may use kn_wgmma on it. */
bool dev_has_wgmma(const struct dev *d);
/* Its multiprocessors. */
int dev_processors(const struct dev *d);

/* Device time of this stream's work: the sum of all intervals that end with a dev_sync or a step's mark, each from its
 * first work on. */
uint64_t dev_busy_ns(const struct dev *d);

/* For profilers: ends the current range and starts one with that name (a literal); NULL: starts none. */
void dev_range(struct dev *d, const char *name);

/* Pinned host memory, which the device accesses directly. NULL: none available. */
void *dev_host_alloc(struct dev *d, size_t bytes);
void dev_host_free(struct dev *d, void *p);

/* ---- commands (launch.h) and lists of them (list.h) ---- */

struct kn_command;
struct kn_list;
struct dev_graph; /* commands launched as one */

const struct kn_plugin_host *dev_host(const struct dev *d);
/* Records a permanent fault found by the host, unless there is one already. Returns SL_EIO. */
int dev_fail(struct dev *d, const char *what, const char *why);
/* From now on commands are appended to l; NULL: they run at once. */
void dev_record(struct dev *d, struct kn_list *l);
struct kn_list *dev_recording(struct dev *d);
/* Runs a command now. 0 or SL_EIO. */
int dev_run(struct dev *d, const struct kn_command *c);
/* Makes a graph of the first n bytes of a list, which must not copy to the host. On SL_ENOMEM, or another error of
 * graph creation, the device remains usable. */
int dev_graph_make(struct dev *d, const struct kn_list *l, size_t n, struct dev_graph **out);
int dev_graph_run(struct dev *d, struct dev_graph *g);
void dev_graph_free(struct dev *d, struct dev_graph *g);

/* Sixteen bytes with the alignment for one load or store. */
struct alignas(16) kn_u4 {
	uint32_t x, y, z, w;
};
struct alignas(16) kn_f4 {
	float x, y, z, w;
};
struct alignas(8) kn_f2 {
	float x, y;
};
/* The least argument of kn_exp2_normal but -INFINITY. */
#define KN_EXP2_LEAST (-126.0f)

/* Both forms also provide these functions. All 32 lanes of a warp must call those marked *. Lane l has g = l / 4 and
 * t = l % 4. A pair is two 16-bit numbers in one word, the first in the lower half.
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
 *    until at most N of its groups are on their way. Other threads see them after a barrier, other lanes after
 *    one of the warp. None may be on its way when a thread ends.
 *  kn_load_once(at): 16 aligned bytes that stay unchanged while the kernel runs and this multiprocessor won't
 *    read again.
 *  kn_load_again(at): the same of what other blocks of this multiprocessor read too.
 *  kn_shared_load16(at), kn_shared_load4(at): 16, or 4, aligned bytes of shared memory.
 *  kn_prefetch(at): the line of 128 bytes there is wanted soon; it moves towards the second-level cache.
 *  kn_wgmma<NT, BF16>(d, a, b, add): by the 128 lanes of a warp group (four warps, the first a multiple of four),
 *    d[n] += A·B as kn_mma does it, for n < NT (8, 12, 16, 24), with the same bits on a device of capability 9.0 (seen on
 *    an H200); without add d[n] = A·B. B's tiles of 8 × 16 are in shared memory, each as two matrices of 8 rows of 16
 *    bytes, 128 bytes apart: kn_matrices_at(first, bytes from one tile to the next). The operation is on its way until
 *    kn_wgmma_commit() and kn_wgmma_wait<N>() (but for the last N groups): till then a and d are not to be touched.
 *    kn_wgmma_begin() before the first of a group, kn_wgmma_sees_shared() between the wait for kn_cp_async's copies and
 *    the barrier. Only where KN_CODE_HAS_WGMMA, on devices with dev_has_wgmma.
 *  kn_wgmma_rows<NT, BF16>(d, a, b, add): the same (NT 8, 16) of a B whose 16 rows are in shared memory, each as 128
 *    bytes for 64 columns, in chunks of 16 bytes: chunk i is at i XOR the row's number, modulo 8. The first row is at a
 *    multiple of 1024 bytes; the next 64 columns are group_bytes on: kn_rows_at(first row, group_bytes).
 *  kn_anew(v): v, which the compiler knows nothing about: what is made of it takes no registers before.
 *  kn_shuffle_int(v, lane) *: v of that lane.
 *  kn_any(v) *: whether v is true for any lane of the warp.
 *  kn_let_next(): after kn_begin; once every block has called it, the next kernel may start.
 *  kn_exp2_normal(x): exp2f(x), with its bits, of -INFINITY, NaN, and x of at least KN_EXP2_LEAST, in one instruction.
 *  kn_byte_perm(a, b, s): byte i is the one of the eight in a and b that bits 4i…4i+2 of s name.
 *  kn_lowest_bit(bits): the number of the lowest bit that is set; one is.
 *  kn_exp2(x): 2^x, off by at most 2^-22 of itself and not the same everywhere; 0 below 2^-126.
 *  kn_f16_float, kn_float_f16 (to the nearest, even; infinity from 65520 on), kn_f16x2_sub.
 *  kn_f16x2_fma(a, b, c): a · b + c of two float16 each, where that is a float16.
 *  kn_and_or(a, mask, bits): (a & mask) | bits, in one instruction. */

#ifdef KN_EMULATED
#include KN_EMULATED
#else
#include "kernels/cuda/device/device_cuda.h"
#endif
#include "kernels/cuda/device/launch.h"

__device__ static inline float kn_bf16_float(uint16_t h) { return kn_bits_float((uint32_t)h << 16); }

/* Rounds to nearest even; NaN stays NaN. */
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

/* Eight-bit floats: one sign, four exponent (bias 7) and three mantissa bits, no infinity (Micikevicius et al., "FP8
 * formats for deep learning", 2022). Exact. */
__device__ static inline float kn_e4m3_float(uint32_t b)
{
	if ((b & 127) == 127)
		return kn_bits_float(0x7FC00000u);
	/* Its bits, placed at the top of a float16, are 2^-8 of its value, subnormals included. */
	return kn_f16_float((uint16_t)((b & 128) << 8 | (b & 127) << 7)) * 256.0f;
}

/* Rounds to nearest even, saturating at 448; NaN stays NaN. */
__device__ static inline uint32_t kn_float_e4m3(float f)
{
	uint32_t bits = kn_float_bits(f), sign = bits >> 24 & 128, abs = bits & 0x7FFFFFFFu;
	if (abs > 0x7F800000u)
		return sign | 127;
	if (abs >= 0x43E00000u)
		return sign | 126;
	if (abs < 0x3C800000u) /* below 2^-6: adding makes the last bit 2^-9 and rounds */
		return sign | (kn_float_bits(kn_bits_float(abs) + 16384.0f) - 0x46800000u);
	return sign | (abs + 0x7FFFFu + (abs >> 20 & 1) - 0x3C000000u) >> 20;
}

/* Loads four floats, aligned to 16 bytes, at once. */
__device__ static inline void kn_take4(const float *at, float *v)
{
	struct kn_f4 f = *(const struct kn_f4 *)(const void *)at;
	v[0] = f.x;
	v[1] = f.y;
	v[2] = f.z;
	v[3] = f.w;
}

/* Whether this is the last of n blocks to get here, which may read what the others wrote before: true in all of its
 * threads. No block waits for another. *arrived is 0 before, and again after the last one. Overwrites shared memory. */
__device__ static inline bool kn_is_last_block(uint32_t *arrived, uint32_t n)
{
	uint32_t *last = (uint32_t *)kn_shared();
	kn_fence();
	kn_barrier();
	if (threadIdx.x == 0)
		*last = kn_add_global(arrived, 1) == n - 1;
	kn_barrier();
	bool is = *last != 0;
	kn_barrier(); /* the memory may be reused */
	if (is)
		kn_fence();
	if (is && threadIdx.x == 0)
		*arrived = 0;
	return is;
}

/* Fixed trees over a warp's lanes, or over each LANES adjacent ones. V: float, the value of one lane; the emulation
 * runs the same tree with the values of all lanes at once (emu.h). */
template <int LANES = KN_WARP> struct kn_sum_tree {
	template <typename V> __device__ static inline V of(V v)
	{
		for (int step = LANES / 2; step > 0; step /= 2)
			v = v + kn_shuffle_xor(v, step);
		return v;
	}
};

template <int LANES = KN_WARP> struct kn_max_tree {
	template <typename V> __device__ static inline V of(V v)
	{
		for (int step = LANES / 2; step > 0; step /= 2)
			v = fmaxf(v, kn_shuffle_xor(v, step));
		return v;
	}
};

/* The warp's sum, returned in every lane. */
__device__ static inline float kn_warp_sum(float v) { return kn_tree<kn_sum_tree<>>(v); }

__device__ static inline float kn_warp_max(float v) { return kn_tree<kn_max_tree<>>(v); }

#endif
