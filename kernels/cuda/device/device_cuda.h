/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNELS_CUDA_DEVICE_CUDA_H
#define KERNELS_CUDA_DEVICE_CUDA_H

#include <cuda_runtime.h>

/* Keeps arrays with constant indices in registers. */
#define UNROLL_FOR(...) _Pragma("unroll") for (__VA_ARGS__)

extern __shared__ __align__(1024) unsigned char kn_shared_bytes[];

__device__ static inline void *kn_shared(void) { return kn_shared_bytes; }

__device__ static inline void kn_barrier(void) { __syncthreads(); }

__device__ static inline void kn_warp_barrier(void) { __syncwarp(); }

__device__ static inline void kn_in_order(void) { __syncwarp(); }

__device__ static inline int kn_anew(int v)
{
	asm volatile("" : "+r"(v));
	return v;
}

/* PTX ISA, "griddepcontrol": waits for the kernels before this one and sees what they wrote. */
__device__ static inline void kn_begin(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

__device__ static inline void kn_let_next(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

__device__ static inline float kn_shuffle_xor(float v, int mask) { return __shfl_xor_sync(0xFFFFFFFFu, v, mask); }

__device__ static inline int kn_shuffle_int(int v, int lane) { return __shfl_sync(0xFFFFFFFFu, v, lane); }

__device__ static inline bool kn_any(bool v) { return __any_sync(0xFFFFFFFFu, v) != 0; }

__device__ static inline float kn_exp2_normal(float x)
{
	float r;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
	return r;
}

template <typename TREE> __device__ static inline float kn_tree(float v) { return TREE::of(v); }

__device__ static inline float kn_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }

__device__ static inline double kn_fma(double a, double b, double c) { return __fma_rn(a, b, c); }

__device__ static inline float kn_bits_float(uint32_t bits) { return __uint_as_float(bits); }

__device__ static inline uint32_t kn_float_bits(float f) { return __float_as_uint(f); }

__device__ static inline uint32_t kn_byte_perm(uint32_t a, uint32_t b, uint32_t which)
{
	return __byte_perm(a, b, which);
}

__device__ static inline int kn_lowest_bit(uint32_t bits) { return __ffs((int)bits) - 1; }

__device__ static inline float kn_exp2(float x)
{
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* Adds in shared memory and returns the old value. */
__device__ static inline uint32_t kn_add_shared(uint32_t *at, uint32_t v) { return atomicAdd(at, v); }

/* One or two atomics of 32 bits: of 64 bits shared memory has none, only a loop that compares and swaps. The sum is
 * complete at the next barrier. */
__device__ static inline void kn_add_shared(unsigned long long *at, unsigned long long v)
{
	uint32_t *half = (uint32_t *)(void *)at, low = (uint32_t)v, was = atomicAdd(half, low);
	uint32_t high = (uint32_t)(v >> 32) + (was + low < was);
	if (high != 0)
		atomicAdd(half + 1, high);
}

__device__ static inline uint32_t kn_add_global(uint32_t *at, uint32_t v) { return atomicAdd(at, v); }

/* What this thread wrote before is seen by others that see what it writes after; and the reverse for what it reads. */
__device__ static inline void kn_fence(void) { __threadfence(); }

__device__ static inline void kn_max_shared(unsigned long long *at, unsigned long long v) { atomicMax(at, v); }

__device__ static inline void kn_min_shared(uint32_t *at, uint32_t v) { atomicMin(at, v); }

/* A store that several threads may execute with the same value. */
__device__ static inline void kn_store_same(float *at, float v) { atomicExch(at, v); }

/* Exact, including subnormals (PTX ISA, cvt). */
__device__ static inline float kn_f16_float(uint16_t h)
{
	float f;
	asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
	return f;
}

__device__ static inline uint16_t kn_float_f16(float f)
{
	uint16_t h;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
	return h;
}

__device__ static inline uint32_t kn_f16x2_sub(uint32_t a, uint32_t b)
{
	uint32_t r;
	asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
	return r;
}

__device__ static inline uint32_t kn_f16x2_fma(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t r;
	asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
	return r;
}

__device__ static inline uint32_t kn_and_or(uint32_t a, uint32_t mask, uint32_t bits)
{
	uint32_t r;
	asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(a), "r"(mask), "r"(bits));
	return r;
}

__device__ static inline struct kn_u4 kn_load_once(const void *at)
{
	struct kn_u4 v;
	asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
	    : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
	    : "l"(__cvta_generic_to_global(at)));
	return v;
}

__device__ static inline struct kn_u4 kn_load_again(const void *at) { return *static_cast<const struct kn_u4 *>(at); }

__device__ static inline struct kn_u4 kn_shared_load16(const void *at)
{
	return *static_cast<const struct kn_u4 *>(at);
}

__device__ static inline uint32_t kn_shared_load4(const void *at) { return *static_cast<const uint32_t *>(at); }

__device__ static inline void kn_prefetch(const void *at)
{
	asm volatile("prefetch.global.L2 [%0];" : : "l"(__cvta_generic_to_global(at)));
}

/* ---- tensor cores (PTX ISA, "mma.m16n8k16") ---- */

__device__ static inline void kn_mma_bf16_16816(float *d, const uint32_t *a, const uint32_t *b)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
		     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ static inline void kn_mma_f16_16816(float *d, const uint32_t *a, const uint32_t *b)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
		     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ static inline uint32_t kn_shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ static inline void kn_ldmatrix_x4(uint32_t *r, const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(kn_shared_address(row))
		     : "memory");
}

__device__ static inline void kn_ldmatrix_x4_trans(uint32_t *r, const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(kn_shared_address(row))
		     : "memory");
}

/* ---- copies to shared memory beside the computation (PTX ISA, "cp.async") ---- */

__device__ static inline void kn_cp_async16(void *shared, const void *global)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
		     :
		     : "r"(kn_shared_address(shared)), "l"(__cvta_generic_to_global(global))
		     : "memory");
}

__device__ static inline void kn_cp_async16_or_zero(void *shared, const void *global, bool there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
		     :
		     : "r"(kn_shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(there ? 16 : 0)
		     : "memory");
}

__device__ static inline void kn_cp_async_commit(void) { asm volatile("cp.async.commit_group;" : : : "memory"); }

template <int N> __device__ static inline void kn_cp_async_wait(void)
{
	asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}

#include "kernels/cuda/device/device_wgmma.h"

#endif
