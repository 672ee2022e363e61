/* SPDX-License-Identifier: Apache-2.0
 *
 * Every access to memory of the device, against the order of operations. The kernels are compiled with a call at each
 * load and store (the compilers' kernel address sanitizer, of which nothing but the calls is used), so what a kernel
 * reads and writes is known to the byte; copies, fills and products name their ranges.
 *
 * For each four bytes of the arena a cell has the last operation that wrote them, the last that read them and the last
 * before it that read them in another stream, as slot and position: of a device's two streams no reader is lost. An
 * operation that is given after another in the same stream, or waited for it by events, is in order with it; of two in
 * conflict that are not, the one that runs second is reported. Large fills are kept as ranges and reach the cells only
 * if something runs before the host knows them done.
 *
 * A kernel may read and write its thread's stack, its block's shared memory, its arguments, constants of the backend,
 * and memory of the device or pinned memory; the host's code of the backend may not touch memory of the device.
 */
#include "tests/standin/standin.h"

#include <stdlib.h>
#include <sys/mman.h>

struct cell {
	uint32_t writer, reader, other; /* slot << POS_BITS | pos; 0: none */
};

enum { GRANULE = 4, LARGE = 64 << 10, MOST_LARGE = 64, NEAR = 64 << 10 };

struct large {
	const uint8_t *at;
	size_t bytes;
	uint32_t id;
};

static struct cell *cells;
static struct large large[MOST_LARGE];
static int n_large;

#define LOCAL static thread_local __attribute__((tls_model("initial-exec")))
LOCAL const struct op *running;
LOCAL const uint8_t *shared_at;
LOCAL size_t shared_size;

extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start[], _end[];

static uint32_t id_of(const struct op *o) { return (uint32_t)o->slot << POS_BITS | o->pos; }

static int slot_of(uint32_t id) { return (int)(id >> POS_BITS); }

static uint32_t pos_of(uint32_t id) { return id & ((1u << POS_BITS) - 1); }

static void cells_there(void)
{
	if (cells != NULL)
		return;
	void *p = mmap(NULL, ARENA_BYTES / GRANULE * sizeof(struct cell), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		abort();
	cells = (struct cell *)p;
}

void access_forget(const void *p, size_t bytes)
{
	const uint8_t *at = (const uint8_t *)p;
	for (int i = 0; i < n_large; i++)
		if (large[i].at >= at && large[i].at < at + bytes)
			large[i--] = large[--n_large];
	if (cells == NULL)
		return;
	size_t first = (size_t)(at - arena) / GRANULE * sizeof(struct cell) / ARENA_PAGE * ARENA_PAGE;
	(void)madvise((uint8_t *)cells + first, bytes / GRANULE * sizeof(struct cell) + ARENA_PAGE, MADV_DONTNEED);
}

static const char *name_of(const struct op *o)
{
	return o->name != NULL ? o->name : o->kind == OP_FILL ? "a fill" : "a copy";
}

__attribute__((noinline, cold)) static void conflict(const struct op *o, const void *at, bool write, uint32_t other,
						     bool wrote)
{
	standin_finding(
	    "%s %s %p, %s, which an operation of another stream %s without an order between them (streams %d "
	    "and %d)",
	    name_of(o), write ? "writes" : "reads", at, memory_name(at), wrote ? "wrote" : "read", o->slot,
	    slot_of(other));
}

static inline bool unordered(const struct op *o, uint32_t id)
{
	return id != 0 && slot_of(id) != o->slot && o->clock.at[slot_of(id)] < pos_of(id);
}

static inline void note_read(struct cell *c, const struct op *o, uint32_t id)
{
	if (c->reader != 0 && slot_of(c->reader) != o->slot)
		c->other = c->reader;
	c->reader = id;
}

static inline void note(const struct op *o, uint32_t id, const uint8_t *at, size_t bytes, bool write)
{
	size_t first = (size_t)(at - arena) / GRANULE, last = (size_t)(at + bytes - 1 - arena) / GRANULE;
	for (size_t i = first; i <= last; i++) {
		struct cell *c = &cells[i];
		if (unordered(o, c->writer))
			conflict(o, arena + i * GRANULE, write, c->writer, true);
		if (!write) {
			note_read(c, o, id);
			continue;
		}
		if (unordered(o, c->reader))
			conflict(o, arena + i * GRANULE, write, c->reader, false);
		if (unordered(o, c->other))
			conflict(o, arena + i * GRANULE, write, c->other, false);
		c->writer = id;
	}
}

/* Those that the host knows done can be in conflict with nothing that is given later; of what was given before, nothing
 * can know the memory. */
static void settle_large(void)
{
	for (int i = 0; i < n_large; i++) {
		const struct large *l = &large[i];
		if (standin_host.at[slot_of(l->id)] < pos_of(l->id))
			for (size_t k = 0; k < l->bytes; k += GRANULE)
				cells[(size_t)(l->at + k - arena) / GRANULE].writer = l->id;
	}
	n_large = 0;
}

void access_range(const struct op *o, const void *p, size_t bytes, bool write)
{
	const uint8_t *at = (const uint8_t *)p;
	if (!in_arena(p) || bytes == 0)
		return;
	cells_there();
	if (piece_of(p, bytes) == NULL) {
		standin_break(cudaErrorIllegalAddress, name_of(o), memory_name(p));
		return;
	}
	if (o->kind == OP_FILL && bytes >= LARGE && n_large < MOST_LARGE) {
		large[n_large++] = {at, bytes, id_of(o)};
		return;
	}
	settle_large();
	note(o, id_of(o), at, bytes, write);
}

void access_begin(const struct op *o, const void *shared, size_t shared_bytes)
{
	cells_there();
	settle_large();
	shared_at = (const uint8_t *)shared;
	shared_size = shared_bytes;
	running = o;
}

void access_end(void) { running = NULL; }

__attribute__((noinline, cold)) static void illegal(const struct op *o, const void *at, size_t bytes, bool write)
{
	standin_finding("%s %s %zu bytes at %p: %s", o != NULL ? name_of(o) : "the host", write ? "writes" : "reads",
			bytes, at, memory_name(at));
}

static inline void access(const void *p, size_t bytes, bool write)
{
	const struct op *o = running;
	const uint8_t *at = (const uint8_t *)p;
	if (in_arena(p)) {
		uint8_t kind = arena_kind[(at - arena) / ARENA_PAGE];
		if (o == NULL ? kind != MEMORY_PINNED : kind != MEMORY_DEVICE && kind != MEMORY_PINNED)
			illegal(o, p, bytes, write);
		if (o != NULL)
			note(o, id_of(o), at, bytes, write);
		return;
	}
	if (o == NULL || (uintptr_t)at - ((uintptr_t)__builtin_frame_address(0) - NEAR) < 2 * NEAR)
		return;
	if ((at >= shared_at && at + bytes <= shared_at + shared_size) ||
	    (p >= (const void *)__ehdr_start && p < (const void *)_end) ||
	    (p >= (const void *)o->command && at < (const uint8_t *)o->command + o->command->bytes))
		return;
	illegal(o, p, bytes, write);
}

/* What the compilers call (gcc's manual, -fsanitize=kernel-address). */
#define CALLS(n)                                                                         \
	extern "C" void __asan_load##n##_noabort(const void *p) { access(p, n, false); } \
	extern "C" void __asan_store##n##_noabort(const void *p) { access(p, n, true); }
CALLS(1)
CALLS(2)
CALLS(4)
CALLS(8)
CALLS(16)
extern "C" void __asan_loadN_noabort(const void *p, size_t n) { access(p, n, false); }
extern "C" void __asan_storeN_noabort(const void *p, size_t n) { access(p, n, true); }
extern "C" void __asan_handle_no_return(void) {}

/* What the emulation reads for a thread (emu.cu, asynchronous copies). */
void standin_reads(const void *p, size_t bytes) { access(p, bytes, false); }
