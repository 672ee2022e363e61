/* SPDX-License-Identifier: Apache-2.0
 *
 * See emu_watch.h. Each byte of the watched memory has two stamps: of the block that wrote it last, and of the block
 * that read it. A stamp is a block's number plus a number that each launch gets for itself, so nothing has to be
 * cleared between launches. The last stamp of a launch stands for several readers.
 *
 * Memory and stamps are three areas of addresses, reserved once. Addresses are used again only when nothing is
 * allocated.
 */
#include "tests/emulation/emu_watch.h"

#ifndef KN_EMU_THREADS /* the sanitizer has these functions */

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum : size_t { AREA = (size_t)16 << 30, PAGE = 4096 };

struct launch {
	uint32_t first, several; /* stamps of the first block, and after the last */
	uint32_t me;             /* of the running block; 0: none runs */
	const char *wrong;
};

/* Kernels call at each access: no call of the C library on the way. */
static thread_local struct launch now __attribute__((tls_model("initial-exec")));
static bool watching; /* before anything is allocated */
static uint8_t *area;
static uint32_t *written, *read_by;
static size_t used, n_alive;
static uint64_t stamps;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *reserve(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p != MAP_FAILED ? p : NULL;
}

static bool reserve_areas(void)
{
	if (area != NULL)
		return true;
	written = (uint32_t *)reserve(AREA * sizeof *written);
	read_by = (uint32_t *)reserve(AREA * sizeof *read_by);
	if (written == NULL || read_by == NULL)
		return false;
	area = (uint8_t *)reserve(AREA);
	return area != NULL;
}

static size_t pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

void *emu_watch_alloc(size_t bytes)
{
	void *p = NULL;
	if (!watching || bytes > AREA)
		return NULL;
	pthread_mutex_lock(&lock);
	if (reserve_areas()) {
		if (n_alive == 0)
			used = 0;
		if (pages(bytes) <= AREA - used) {
			p = area + used;
			used += pages(bytes);
			n_alive++;
		}
	}
	pthread_mutex_unlock(&lock);
	return p;
}

void emu_watch_free(void *p, size_t bytes)
{
	size_t at = (size_t)((uint8_t *)p - area), n = pages(bytes);
	madvise(p, n, MADV_DONTNEED);
	madvise(written + at, n * sizeof *written, MADV_DONTNEED);
	madvise(read_by + at, n * sizeof *read_by, MADV_DONTNEED);
	pthread_mutex_lock(&lock);
	n_alive--;
	pthread_mutex_unlock(&lock);
}

void emu_watch_begin(uint32_t n)
{
	if (!watching)
		return;
	uint64_t first = 1 + __atomic_fetch_add(&stamps, (uint64_t)n + 1, __ATOMIC_RELAXED);
	now = {(uint32_t)first, (uint32_t)first + n, 0, NULL};
	if (first + n > UINT32_MAX)
		now.wrong = "more blocks than can be watched";
}

void emu_watch_block(uint32_t i)
{
	if (watching)
		now.me = now.first + i;
}

const char *emu_watch_end(void)
{
	now.me = 0;
	return now.wrong;
}

/* Blocks run one after the other, on one thread: nothing else is to be done. */
extern "C" void sluice_emulation_fence(void) { now.me = 0; }

/* A stamp of this launch that is not the running block's. */
static inline bool other(uint32_t stamp) { return stamp - now.first <= now.several - now.first && stamp != now.me; }

static inline size_t watched(const void *at)
{
	size_t i = (size_t)((const uint8_t *)at - area);
	return now.me != 0 && i < AREA ? i : AREA;
}

static inline void reads(const void *p, size_t n)
{
	size_t at = watched(p);
	bool wrong = false;
	if (at == AREA)
		return;
	for (size_t i = at; i < at + n; i++) {
		wrong |= other(written[i]);
		read_by[i] = other(read_by[i]) ? now.several : now.me;
	}
	if (wrong)
		now.wrong = "a block reads what another one wrote";
}

static inline void writes(const void *p, size_t n)
{
	size_t at = watched(p);
	bool wrong = false;
	if (at == AREA)
		return;
	for (size_t i = at; i < at + n; i++) {
		wrong |= other(written[i]) | other(read_by[i]);
		written[i] = now.me;
	}
	if (wrong)
		now.wrong = "a block overwrites what another one wrote or read";
}

void emu_watch_read(const void *at, size_t bytes) { reads(at, bytes); }

/* ---- what instrumented code calls ---- */

#define EXPORT extern "C" __attribute__((visibility("hidden")))
#define ACCESSES(n)                                                    \
	EXPORT void __tsan_read##n(void *p) { reads(p, n); }           \
	EXPORT void __tsan_write##n(void *p) { writes(p, n); }         \
	EXPORT void __tsan_unaligned_read##n(void *p) { reads(p, n); } \
	EXPORT void __tsan_unaligned_write##n(void *p) { writes(p, n); }

ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

EXPORT void __tsan_read_range(void *p, size_t n) { reads(p, n); }
EXPORT void __tsan_write_range(void *p, size_t n) { writes(p, n); }
EXPORT void __tsan_init(void) { watching = true; }
EXPORT void __tsan_func_entry(void *) {}
EXPORT void __tsan_func_exit(void) {}
EXPORT void __tsan_vptr_update(void **, void *) {}
EXPORT void *__tsan_memcpy(void *to, const void *from, size_t n)
{
	reads(from, n);
	writes(to, n);
	return memcpy(to, from, n);
}
EXPORT void *__tsan_memset(void *to, int c, size_t n)
{
	writes(to, n);
	return memset(to, c, n);
}

/* Atomics: as the compiler has them, in relaxed order (all lanes of a block run on one thread). */
#define ATOMICS(bits, type)                                                                                     \
	EXPORT type __tsan_atomic##bits##_load(const volatile type *p, int)                                     \
	{                                                                                                       \
		return __atomic_load_n(p, __ATOMIC_RELAXED);                                                    \
	}                                                                                                       \
	EXPORT void __tsan_atomic##bits##_store(volatile type *p, type v, int)                                  \
	{                                                                                                       \
		__atomic_store_n(p, v, __ATOMIC_RELAXED);                                                       \
	}                                                                                                       \
	EXPORT type __tsan_atomic##bits##_fetch_add(volatile type *p, type v, int)                              \
	{                                                                                                       \
		return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);                                              \
	}                                                                                                       \
	EXPORT int __tsan_atomic##bits##_compare_exchange_weak(volatile type *p, type *was, type v, int, int)   \
	{                                                                                                       \
		return __atomic_compare_exchange_n(p, was, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);       \
	}                                                                                                       \
	EXPORT int __tsan_atomic##bits##_compare_exchange_strong(volatile type *p, type *was, type v, int, int) \
	{                                                                                                       \
		return __atomic_compare_exchange_n(p, was, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);       \
	}

ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)

#else

void *emu_watch_alloc(size_t) { return NULL; }
void emu_watch_free(void *, size_t) {}
void emu_watch_begin(uint32_t) {}
void emu_watch_block(uint32_t) {}
const char *emu_watch_end(void) { return NULL; }
void emu_watch_read(const void *, size_t) {}
extern "C" void sluice_emulation_fence(void) {}

#endif
