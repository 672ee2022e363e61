/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kernel sees when it is compiled for the emulation: the words of CUDA C++ that the sources
 * here use, and nothing else, so that a kernel using another one does not compile.
 */
#ifndef KERNELS_CUDA_EMU_H
#define KERNELS_CUDA_EMU_H

#include <math.h>
#include <string.h>

#define __global__ static
#define __device__
#define __restrict__ __restrict

struct dim3 {
	unsigned x, y, z;
	dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

struct emu_thread; /* one thread of the block that is running */

/* Of the thread that runs; a call each time, because a thread may go on elsewhere after a barrier. */
const dim3 &emu_thread_idx(void);
const dim3 &emu_block_idx(void);
const dim3 &emu_block_dim(void);
const dim3 &emu_grid_dim(void);
#define threadIdx (emu_thread_idx())
#define blockIdx (emu_block_idx())
#define blockDim (emu_block_dim())
#define gridDim (emu_grid_dim())

void *kn_shared(void);
void kn_barrier(void);
float kn_shuffle_xor(float v, int mask);

/* In which order the threads of a block go on from one barrier to the next: what is right in all of
 * them lacks no barrier that they could show. */
enum emu_order { EMU_FORWARD, EMU_BACKWARD, EMU_SHUFFLED };
extern "C" void sluice_emulation_order(int order, uint32_t seed);
/* The n-th launch from now on fails as a device fault would; 0: none. */
extern "C" void sluice_emulation_fail(int n);
/* While set, no graph can be made. */
extern "C" void sluice_emulation_no_graphs(bool none);

/* Two roundings where the device has one: within the bound of any sum of products, and much faster
 * than the library's where the processor at hand has no instruction for it. */
static inline float kn_fma(float a, float b, float c)
{
	return a * b + c;
}

static inline float kn_bits_float(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static inline uint32_t kn_float_bits(float v)
{
	uint32_t bits;
	memcpy(&bits, &v, sizeof bits);
	return bits;
}

static inline uint32_t kn_add_shared(uint32_t *at, uint32_t v)
{
	return __atomic_fetch_add(at, v, __ATOMIC_RELAXED);
}

static inline unsigned long long kn_add_shared(unsigned long long *at, unsigned long long v)
{
	return __atomic_fetch_add(at, v, __ATOMIC_RELAXED);
}

static inline void kn_max_shared(unsigned long long *at, unsigned long long v)
{
	unsigned long long was = __atomic_load_n(at, __ATOMIC_RELAXED);
	while (was < v && !__atomic_compare_exchange_n(at, &was, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static inline void kn_min_shared(uint32_t *at, uint32_t v)
{
	uint32_t was = __atomic_load_n(at, __ATOMIC_RELAXED);
	while (was > v && !__atomic_compare_exchange_n(at, &was, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static inline float kn_f16_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = h >> 10 & 31u, man = h & 0x3FFu;
	if (exp == 31)
		return kn_bits_float(sign | 0x7F800000u | man << 13);
	if (exp != 0)
		return kn_bits_float(sign | (exp + 112) << 23 | man << 13);
	float f = (float)man * 0x1.0p-24f; /* zero and subnormals, exact */
	return sign ? -f : f;
}

#endif
