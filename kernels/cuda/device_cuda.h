/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNELS_CUDA_DEVICE_CUDA_H
#define KERNELS_CUDA_DEVICE_CUDA_H

#include <cuda_runtime.h>

extern __shared__ __align__(16) unsigned char kn_shared_bytes[];

__device__ static inline void *kn_shared(void)
{
	return kn_shared_bytes;
}

__device__ static inline void kn_barrier(void)
{
	__syncthreads();
}

__device__ static inline float kn_shuffle_xor(float v, int mask)
{
	return __shfl_xor_sync(0xFFFFFFFFu, v, mask);
}

__device__ static inline float kn_fma(float a, float b, float c)
{
	return __fmaf_rn(a, b, c);
}

__device__ static inline float kn_bits_float(uint32_t bits)
{
	return __uint_as_float(bits);
}

__device__ static inline uint32_t kn_float_bits(float v)
{
	return __float_as_uint(v);
}

/* On shared memory; what was there. */
__device__ static inline uint32_t kn_add_shared(uint32_t *at, uint32_t v)
{
	return atomicAdd(at, v);
}

__device__ static inline unsigned long long kn_add_shared(unsigned long long *at, unsigned long long v)
{
	return atomicAdd(at, v);
}

__device__ static inline void kn_max_shared(unsigned long long *at, unsigned long long v)
{
	atomicMax(at, v);
}

__device__ static inline void kn_min_shared(uint32_t *at, uint32_t v)
{
	atomicMin(at, v);
}

/* Exact, subnormals and all (PTX ISA, cvt). */
__device__ static inline float kn_f16_float(uint16_t h)
{
	float f;
	asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
	return f;
}

#endif
