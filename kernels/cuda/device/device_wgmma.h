/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's form of products by a warp group (device.h; PTX ISA, "wgmma.mma_async"), which only code for 9.0a has.
 */
#ifndef KERNELS_CUDA_DEVICE_WGMMA_H
#define KERNELS_CUDA_DEVICE_WGMMA_H

/* Without a swizzle, the next 8 of k are 128 bytes on, the next 8 rows tile_bytes (PTX ISA, "Matrix descriptor"). */
struct kn_matrices {
	uint64_t descriptor;
};

__device__ static inline struct kn_matrices kn_matrices_at(const void *shared, int tile_bytes)
{
	uint64_t at = (kn_shared_address(shared) & 0x3FFFF) >> 4, rows = (uint64_t)tile_bytes >> 4;
	return {at | (uint64_t)(128 >> 4) << 16 | rows << 32};
}

/* With the swizzle of 128 bytes (bit 62), which is on address bits 4 to 6 by bits 7 to 9: the next 8 of k are 8 rows of
 * 128 bytes on, the next 64 columns group_bytes. */
__device__ static inline struct kn_matrices kn_rows_at(const void *shared, int group_bytes)
{
	uint64_t at = (kn_shared_address(shared) & 0x3FFFF) >> 4, groups = (uint64_t)group_bytes >> 4;
	return {at | groups << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62};
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define KN_CODE_HAS_WGMMA 1

__device__ static inline void kn_wgmma_begin(void) { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }

__device__ static inline void kn_wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }

template <int N> __device__ static inline void kn_wgmma_wait(void)
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(N) : "memory");
}

__device__ static inline void kn_wgmma_sees_shared(void)
{
	asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

// clang-format off
#define WGMMA_D(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define WGMMA_LIST_8 \
	"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_SUMS_8 WGMMA_D(0), WGMMA_D(1), WGMMA_D(2), WGMMA_D(3), WGMMA_D(4), WGMMA_D(5), WGMMA_D(6), WGMMA_D(7)
#define WGMMA_LIST_12 \
	"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
	"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_SUMS_12 WGMMA_D(0), WGMMA_D(1), WGMMA_D(2), WGMMA_D(3), WGMMA_D(4), WGMMA_D(5), WGMMA_D(6), WGMMA_D(7), \
	WGMMA_D(8), WGMMA_D(9), WGMMA_D(10), WGMMA_D(11)
#define WGMMA_LIST_16 \
	"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
	"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
	"%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_SUMS_16 WGMMA_D(0), WGMMA_D(1), WGMMA_D(2), WGMMA_D(3), WGMMA_D(4), WGMMA_D(5), WGMMA_D(6), WGMMA_D(7), \
	WGMMA_D(8), WGMMA_D(9), WGMMA_D(10), WGMMA_D(11), WGMMA_D(12), WGMMA_D(13), WGMMA_D(14), WGMMA_D(15)
#define WGMMA_LIST_24 \
	"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
	"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
	"%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
	"%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
	"%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_SUMS_24 WGMMA_D(0), WGMMA_D(1), WGMMA_D(2), WGMMA_D(3), WGMMA_D(4), WGMMA_D(5), WGMMA_D(6), WGMMA_D(7), \
	WGMMA_D(8), WGMMA_D(9), WGMMA_D(10), WGMMA_D(11), WGMMA_D(12), WGMMA_D(13), WGMMA_D(14), WGMMA_D(15), \
	WGMMA_D(16), WGMMA_D(17), WGMMA_D(18), WGMMA_D(19), WGMMA_D(20), WGMMA_D(21), WGMMA_D(22), WGMMA_D(23)
#define WGMMA_REST_8 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;}"
#define WGMMA_ADD_8 "%37"
#define WGMMA_REST_12 "}, {%48, %49, %50, %51}, %52, p, 1, 1, 0;}"
#define WGMMA_ADD_12 "%53"
#define WGMMA_REST_16 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;}"
#define WGMMA_ADD_16 "%69"
#define WGMMA_REST_24 "}, {%96, %97, %98, %99}, %100, p, 1, 1, 0;}"
#define WGMMA_ADD_24 "%101"
#define WGMMA_ROWS_8 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;}"
#define WGMMA_ROWS_16 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;}"
#define WGMMA(nt, n, type) WGMMA_OF(nt, n, type, WGMMA_REST_##nt)
#define WGMMA_BY_ROWS(nt, n, type) WGMMA_OF(nt, n, type, WGMMA_ROWS_##nt)
#define WGMMA_OF(nt, n, type, rest)                                                                               \
	asm volatile("{.reg .pred p;\n"                                                                  \
		     "setp.ne.b32 p, " WGMMA_ADD_##nt ", 0;\n"                                           \
		     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" WGMMA_LIST_##nt \
		     rest                                                                                \
		     : WGMMA_SUMS_##nt                                                                   \
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor), "r"(add ? 1 : 0))

template <int NT, bool BF16>
__device__ static inline void kn_wgmma(float (*d)[4], const uint32_t *a, const struct kn_matrices &b, bool add)
{
	static_assert(NT == 8 || NT == 12 || NT == 16 || NT == 24, "a width that has its instruction here");
	if constexpr (NT == 8 && BF16) WGMMA(8, 64, "bf16");
	if constexpr (NT == 8 && !BF16) WGMMA(8, 64, "f16");
	if constexpr (NT == 12 && !BF16) WGMMA(12, 96, "f16");
	if constexpr (NT == 16 && BF16) WGMMA(16, 128, "bf16");
	if constexpr (NT == 16 && !BF16) WGMMA(16, 128, "f16");
	if constexpr (NT == 24 && BF16) WGMMA(24, 192, "bf16");
	if constexpr (NT == 24 && !BF16) WGMMA(24, 192, "f16");
}

template <int NT, bool BF16>
__device__ static inline void kn_wgmma_rows(float (*d)[4], const uint32_t *a, const struct kn_matrices &b, bool add)
{
	static_assert(NT == 8 || NT == 16, "a width that has its instruction here");
	if constexpr (NT == 8 && BF16) WGMMA_BY_ROWS(8, 64, "bf16");
	if constexpr (NT == 8 && !BF16) WGMMA_BY_ROWS(8, 64, "f16");
	if constexpr (NT == 16 && BF16) WGMMA_BY_ROWS(16, 128, "bf16");
	if constexpr (NT == 16 && !BF16) WGMMA_BY_ROWS(16, 128, "f16");
}
// clang-format on
#else
#define KN_CODE_HAS_WGMMA 0
#endif

#endif
