/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kernel sees when it is compiled for the emulation: the words of CUDA C++ that the sources
 * here use, and nothing else, so that a kernel using another one does not compile.
 */
#ifndef KERNELS_CUDA_EMU_H
#define KERNELS_CUDA_EMU_H

#include <math.h>
#include <string.h>

#include "kernels/half.h"

#define __global__ static
#define __device__
#define __host__
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define UNROLL_FOR(...) for (__VA_ARGS__)

struct dim3 {
	unsigned x, y, z;
	dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

#ifdef KN_STANDIN
#include "tests/standin/standin_kernel.h"
#endif

struct emu_thread; /* one thread of the block that is running */

/* The stand-in judges each address that a kernel reads: these are none of a kernel's. */
#ifdef KN_STANDIN
typedef dim3 emu_dim;
#else
typedef const dim3 &emu_dim;
#endif
/* Of the thread that runs; a call each time, because a thread may go on elsewhere after a barrier. */
emu_dim emu_thread_idx(void);
emu_dim emu_block_idx(void);
emu_dim emu_block_dim(void);
emu_dim emu_grid_dim(void);
/* Bytes of shared memory that a block can have. */
enum { EMU_SHARED_MOST = 227 << 10 };

#define threadIdx (emu_thread_idx())
#define blockIdx (emu_block_idx())
#define blockDim (emu_block_dim())
#define gridDim (emu_grid_dim())

void *kn_shared(void);
void kn_barrier(void);
void kn_warp_barrier(void);
static inline void kn_in_order(void) {}
static inline int kn_anew(int v) { return v; }
float kn_shuffle_xor(float v, int mask);
int kn_shuffle_int(int v, int lane);
bool kn_any(bool v);

/* The values of a warp's lanes: lanes that only shuffle for a while meet once for all of it, since each meeting costs
 * 32 switches. */
struct emu_lanes {
	float of[32];
};
struct emu_lanes operator+(const struct emu_lanes &a, const struct emu_lanes &b);
struct emu_lanes fmaxf(const struct emu_lanes &a, const struct emu_lanes &b);
struct emu_lanes kn_shuffle_xor(const struct emu_lanes &v, int mask);
/* What the tree makes of v and the other lanes' values. */
float emu_tree(float v, void (*tree)(struct emu_lanes *));

template <typename TREE> static void emu_run_tree(struct emu_lanes *v) { *v = TREE::of(*v); }

template <typename TREE> static inline float kn_tree(float v) { return emu_tree(v, emu_run_tree<TREE>); }

void kn_mma_bf16_16816(float *d, const uint32_t *a, const uint32_t *b);
void kn_mma_f16_16816(float *d, const uint32_t *a, const uint32_t *b);
void kn_ldmatrix_x4(uint32_t *r, const void *row);
void kn_ldmatrix_x4_trans(uint32_t *r, const void *row);
void kn_cp_async16(void *shared, const void *global);
void kn_cp_async16_or_zero(void *shared, const void *global, bool there);
void kn_cp_async_commit(void);
void emu_cp_async_wait(int n);

template <int N> static inline void kn_cp_async_wait(void) { emu_cp_async_wait(N); }

/* Products of a warp group: each of its warps has rows of its own, so a warp's are computed alone, at once. */
#define KN_CODE_HAS_WGMMA 1

struct kn_matrices {
	const uint8_t *at;
	int tile_bytes;
};

static inline struct kn_matrices kn_matrices_at(const void *shared, int tile_bytes)
{
	return {(const uint8_t *)shared, tile_bytes};
}

static inline void kn_wgmma_sees_shared(void) {}
static inline void kn_wgmma_begin(void) {}
static inline void kn_wgmma_commit(void) {}
template <int N> static inline void kn_wgmma_wait(void) {}

template <bool BF16> static inline void emu_tile(float *d, const uint32_t *a, const uint32_t *b, bool add)
{
	for (int i = 0; i < 4 && !add; i++)
		d[i] = 0;
	if (BF16)
		kn_mma_bf16_16816(d, a, b);
	else
		kn_mma_f16_16816(d, a, b);
}

template <int NT, bool BF16>
static inline void kn_wgmma(float (*d)[4], const uint32_t *a, const struct kn_matrices &b, bool add)
{
	for (int n = 0; n < NT; n++) {
		const uint8_t *tile = b.at + n * b.tile_bytes + threadIdx.x % 32 * 4;
		uint32_t both[2];
		memcpy(&both[0], tile, sizeof both[0]);
		memcpy(&both[1], tile + 128, sizeof both[1]);
		emu_tile<BF16>(d[n], a, both, add);
	}
}

static inline struct kn_matrices kn_rows_at(const void *shared, int group_bytes)
{
	return {(const uint8_t *)shared, group_bytes};
}

template <int NT, bool BF16>
static inline void kn_wgmma_rows(float (*d)[4], const uint32_t *a, const struct kn_matrices &b, bool add)
{
	int lane = (int)threadIdx.x % 32;
	for (int n = 0; n < NT; n++) {
		uint32_t both[2] = {};
		for (int i = 0; i < 4; i++) {
			int row = lane % 4 * 2 + i % 2 + i / 2 * 8, chunk = n % 8 ^ row % 8;
			uint16_t x;
			memcpy(&x, b.at + n / 8 * b.tile_bytes + row * 128 + chunk * 16 + lane / 4 * 2, sizeof x);
			both[i / 2] |= (uint32_t)x << i % 2 * 16;
		}
		emu_tile<BF16>(d[n], a, both, add);
	}
}

/* The device has so many multiprocessors, 2 at first, by which products are shared out; 0: none has these products. */
extern "C" void sluice_emulation_wgmma(int processors);

/* In which order the threads of a block go on from one barrier to the next: what is right in all of
 * them lacks no barrier that they could show. */
enum emu_order { EMU_FORWARD, EMU_BACKWARD, EMU_SHUFFLED };
extern "C" void sluice_emulation_order(int order, uint32_t seed);
/* The n-th launch from now on fails as a device fault would; 0: none. */
extern "C" void sluice_emulation_fail(int n);
/* While set, what is called is done at once, as by a device that is never behind. Else it is done when it is waited
 * for and not before, as by one that always is. */
extern "C" void sluice_emulation_eager(bool eager);
/* While set, no graph can be made. */
extern "C" void sluice_device_no_graphs(int none);

/* The names that dev_range was given since the last call, each with a semicolon behind it; borrowed until the next. */
extern "C" const char *sluice_emulation_ranges(void);
/* emu_library.cu: how many ways its library has, 0: there is none, and which of them is quicker than the kernels
 * here, -1: none. */
extern "C" void sluice_emulation_library(int n, int quick);
/* From now on it takes no way for any product. */
extern "C" void sluice_emulation_library_refuses(int yes);
/* From now on it does that with e4m3: enum dev_fp8; of sides that are multiples of 16. */
extern "C" void sluice_emulation_library_fp8(int what);
/* Products that it made since sluice_emulation_library. */
extern "C" int sluice_emulation_library_products(void);

/* Two roundings where the device has one: within the bound of any sum of products, and much faster
 * than the library's where the processor at hand has no instruction for it. */
static inline float kn_fma(float a, float b, float c) { return a * b + c; }

/* One rounding, which exact differences rely on. */
static inline double kn_fma(double a, double b, double c) { return fma(a, b, c); }

/* Zero where a device's instruction flushes what is subnormal. */
static inline float kn_exp2_normal(float x) { return x < -126.0f ? 0.0f : exp2f(x); }

static inline float kn_bits_float(uint32_t bits) { return kn_f32_from_bits(bits); }

static inline uint32_t kn_float_bits(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return bits;
}

static inline int kn_lowest_bit(uint32_t bits) { return __builtin_ctz(bits); }

static inline float kn_exp2(float x) { return x < -126.0f ? 0.0f : exp2f(x); }

static inline uint32_t kn_byte_perm(uint32_t a, uint32_t b, uint32_t which)
{
	uint64_t both = (uint64_t)b << 32 | a;
	uint32_t r = 0;
	for (int i = 0; i < 4; i++)
		r |= (uint32_t)(both >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
	return r;
}

/* Counting (emu_count.h). */
enum emu_load { EMU_ONCE, EMU_AGAIN, EMU_ASYNC, EMU_HINT };
extern bool emu_counting;
void emu_count_load(enum emu_load kind, uint64_t n);
/* This lane's access to shared memory; bytes 0: an atomic. site: the place in the kernel's code. */
void emu_count_access(const void *site, const volatile void *at, int bytes);
void emu_count_shared(const volatile void *at, int bytes);

/* Calls of kn_begin and of kn_let_next by all kernels (emu_early.cu). */
extern unsigned emu_begins, emu_lets;

/* What the running kernel waits for when it begins; run NULL: nothing. Of each thread that runs blocks. */
struct emu_hook {
	void (*run)(void *ctx);
	void *ctx;
};
extern __thread struct emu_hook emu_on_begin __attribute__((tls_model("initial-exec")));

static inline void kn_begin(void)
{
	__atomic_fetch_add(&emu_begins, 1, __ATOMIC_RELAXED);
	if (emu_on_begin.run != NULL)
		emu_on_begin.run(emu_on_begin.ctx);
}

static inline void kn_let_next(void) { __atomic_fetch_add(&emu_lets, 1, __ATOMIC_RELAXED); }

static inline uint32_t kn_add_global(uint32_t *at, uint32_t v) { return __atomic_fetch_add(at, v, __ATOMIC_SEQ_CST); }

extern "C" void sluice_emulation_fence(void); /* emu_watch.cu */

/* From here on this block may read what others wrote before theirs (emu_watch.h). */
static inline void kn_fence(void) { sluice_emulation_fence(); }

static inline uint32_t kn_add_shared(uint32_t *at, uint32_t v)
{
	if (emu_counting)
		emu_count_shared(at, 0);
	return __atomic_fetch_add(at, v, __ATOMIC_RELAXED);
}

/* As on a device: one or two atomics of 32 bits. */
static inline void kn_add_shared(unsigned long long *at, unsigned long long v)
{
	uint32_t *half = (uint32_t *)(void *)at, low = (uint32_t)v, was = kn_add_shared(half, low);
	uint32_t high = (uint32_t)(v >> 32) + (was + low < was);
	if (high != 0)
		kn_add_shared(half + 1, high);
}

static inline void kn_max_shared(unsigned long long *at, unsigned long long v)
{
	unsigned long long was = __atomic_load_n(at, __ATOMIC_RELAXED);
	if (emu_counting)
		emu_count_shared(at, 0);
	while (was < v && !__atomic_compare_exchange_n(at, &was, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static inline void kn_min_shared(uint32_t *at, uint32_t v)
{
	uint32_t was = __atomic_load_n(at, __ATOMIC_RELAXED);
	if (emu_counting)
		emu_count_shared(at, 0);
	while (was > v && !__atomic_compare_exchange_n(at, &was, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static inline void kn_store_same(float *at, float v) { __atomic_store(at, &v, __ATOMIC_RELAXED); }

static inline float kn_f16_float(uint16_t h) { return kn_f32_from_f16(h); }

static inline uint16_t kn_float_f16(float f)
{
	uint32_t bits = kn_float_bits(f), sign = bits >> 16 & 0x8000u, abs = bits & 0x7FFFFFFFu;
	if (abs > 0x7F800000u)
		return (uint16_t)(sign | 0x7FFFu);
	if (abs >= 0x477FF000u) /* 65520, half way to what 65536 would be */
		return (uint16_t)(sign | 0x7C00u);
	if (abs < 0x38800000u) /* below 2^-14: the sum's last bit is 2^-24, and the sum rounds */
		return (uint16_t)(sign | (kn_float_bits(kn_bits_float(abs) + 0.5f) - 0x3F000000u));
	return (uint16_t)(sign | (abs + 0xFFFu + (abs >> 13 & 1) - 0x38000000u) >> 13);
}

/* a - b of two float16 each. */
static inline uint32_t kn_f16x2_sub(uint32_t a, uint32_t b)
{
	uint16_t low = kn_float_f16(kn_f16_float((uint16_t)a) - kn_f16_float((uint16_t)b));
	uint16_t high = kn_float_f16(kn_f16_float((uint16_t)(a >> 16)) - kn_f16_float((uint16_t)(b >> 16)));
	return low | (uint32_t)high << 16;
}

static inline uint32_t kn_f16x2_fma(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t r = 0;
	for (int i = 0; i < 32; i += 16) {
		double product = (double)kn_f16_float((uint16_t)(a >> i)) * (double)kn_f16_float((uint16_t)(b >> i));
		float sum = (float)(product + (double)kn_f16_float((uint16_t)(c >> i)));
		r |= (uint32_t)kn_float_f16(sum) << i;
	}
	return r;
}

static inline uint32_t kn_and_or(uint32_t a, uint32_t mask, uint32_t bits) { return (a & mask) | bits; }

/* A device refuses a load from an address that is no multiple of its bytes. */
void emu_unaligned(void);

static inline void emu_aligned(const void *at, unsigned bytes)
{
	if ((uintptr_t)at % bytes != 0)
		emu_unaligned();
}

static inline struct kn_u4 kn_load_once(const void *at)
{
	emu_aligned(at, sizeof(struct kn_u4));
	if (emu_counting)
		emu_count_load(EMU_ONCE, sizeof(struct kn_u4));
	return *static_cast<const struct kn_u4 *>(at);
}

static inline struct kn_u4 kn_load_again(const void *at)
{
	emu_aligned(at, sizeof(struct kn_u4));
	if (emu_counting)
		emu_count_load(EMU_AGAIN, sizeof(struct kn_u4));
	return *static_cast<const struct kn_u4 *>(at);
}

static inline struct kn_u4 kn_shared_load16(const void *at)
{
	emu_aligned(at, sizeof(struct kn_u4));
	if (emu_counting)
		emu_count_shared(at, (int)sizeof(struct kn_u4));
	return *static_cast<const struct kn_u4 *>(at);
}

static inline uint32_t kn_shared_load4(const void *at)
{
	emu_aligned(at, sizeof(uint32_t));
	if (emu_counting)
		emu_count_shared(at, (int)sizeof(uint32_t));
	return *static_cast<const uint32_t *>(at);
}

/* Reads the line: a sanitizer sees a hint beyond an allocation, which a device would forgive. */
static inline void kn_prefetch(const void *at)
{
	if (emu_counting)
		emu_count_load(EMU_HINT, 1);
	(void)*static_cast<const volatile uint8_t *>(at);
}

#endif
