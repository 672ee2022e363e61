/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the device and pinned memory of the host. Both come from one range of addresses, so that an address says
 * what it belongs to. Addresses are never used twice: what is freed can't be touched any more, by a graph either. A
 * piece ends where a page ends (but for its alignment of 256 bytes), with an empty page behind it.
 */
#include "tests/standin/standin.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "tests/emulation/emu_alive.h"

enum { ALIGN = 256, JUNK_BYTES = 1 << 20 };

uint8_t *arena;
uint8_t arena_kind[ARENA_BYTES / ARENA_PAGE];

static uint64_t arena_used = ARENA_PAGE, size, used;
static struct piece *pieces;
static int fail_in;

extern "C" __attribute__((visibility("default"))) void sluice_emulation_memory(uint64_t bytes)
{
	struct held h;
	size = bytes;
}

extern "C" __attribute__((visibility("default"))) void sluice_emulation_no_memory(int n)
{
	struct held h;
	fail_in = n;
}

extern "C" __attribute__((visibility("default"))) void sluice_emulation_alive(struct emu_alive *out)
{
	struct held h;
	out->bytes = used;
	out->devices = streams_alive();
	out->graphs = execs_alive();
}

static int count(enum memory_kind kind)
{
	int n = 0;
	for (const struct piece *p = pieces; p != NULL; p = p->next)
		n += p->kind == kind;
	return n;
}

extern "C" __attribute__((visibility("default"))) void sluice_standin_alive(struct standin_alive *out)
{
	struct held h;
	*out = {streams_alive(),      events_alive(),       graphs_alive(),   execs_alive(),
		count(MEMORY_DEVICE), count(MEMORY_PINNED), streams_pending()};
}

static uint64_t total(void) { return size > 0 ? size : 1ull << 30; }

static void set_kind(const struct piece *p, enum memory_kind kind)
{
	uint64_t first = (uint64_t)(p->at - arena) / ARENA_PAGE,
		 last = (uint64_t)(p->at + p->bytes - 1 - arena) / ARENA_PAGE;
	memset(arena_kind + first, kind, last - first + 1);
}

static bool arena_there(void)
{
	if (arena != NULL)
		return true;
	void *p = mmap(NULL, ARENA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	arena = p != MAP_FAILED ? (uint8_t *)p : NULL;
	return arena != NULL;
}

static struct piece *take(size_t bytes, enum memory_kind kind)
{
	size_t pages = (bytes + ARENA_PAGE - 1) / ARENA_PAGE * ARENA_PAGE;
	struct piece *p = (struct piece *)calloc(1, sizeof *p);
	if (p == NULL || bytes > ARENA_BYTES / 2 || !arena_there() || arena_used + pages + ARENA_PAGE > ARENA_BYTES ||
	    mprotect(arena + arena_used, pages, PROT_READ | PROT_WRITE) != 0) {
		free(p);
		return NULL;
	}
	p->at = arena + arena_used + (pages - (bytes + ALIGN - 1) / ALIGN * ALIGN);
	p->bytes = bytes;
	p->kind = kind;
	p->next = pieces;
	pieces = p;
	arena_used += pages + ARENA_PAGE;
	set_kind(p, kind);
	if (bytes <= JUNK_BYTES)
		memset(p->at, 0xA5, bytes);
	return p;
}

const struct piece *piece_of(const void *p, size_t bytes)
{
	const uint8_t *at = (const uint8_t *)p;
	for (const struct piece *i = pieces; i != NULL; i = i->next)
		if (at >= i->at && at < i->at + i->bytes)
			return bytes <= (size_t)(i->at + i->bytes - at) ? i : NULL;
	return NULL;
}

const char *memory_name(const void *p)
{
	if (!in_arena(p))
		return "pageable memory of the host";
	switch (arena_kind[((const uint8_t *)p - arena) / ARENA_PAGE]) {
	case MEMORY_DEVICE: return "memory of the device";
	case MEMORY_PINNED: return "pinned memory";
	case MEMORY_FREED: return "memory that was freed";
	default: return "an address without memory";
	}
}

static void give_back(struct piece **at)
{
	struct piece *p = *at;
	uint8_t *first = p->at - (uintptr_t)p->at % ARENA_PAGE;
	size_t pages = (size_t)(p->at + p->bytes - first + ARENA_PAGE - 1) / ARENA_PAGE * ARENA_PAGE;
	*at = p->next;
	set_kind(p, MEMORY_FREED);
	access_forget(p->at, p->bytes);
	(void)madvise(first, pages, MADV_DONTNEED);
	(void)mprotect(first, pages, PROT_NONE);
	free(p);
}

static struct piece **find(const void *p, enum memory_kind kind)
{
	struct piece **at = &pieces;
	while (*at != NULL && ((*at)->at != p || (*at)->kind != kind))
		at = &(*at)->next;
	return *at != NULL ? at : NULL;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
	struct held h;
	cudaError_t e = capture_forbids(__func__);
	standin_counts.allocations++;
	standin_log(STANDIN_ALLOC, NULL, NULL);
	if (e != cudaSuccess || (e = standin_broken) != cudaSuccess || standin_struck(__func__, &e))
		return standin_error(e);
	bool none = (fail_in > 0 && --fail_in == 0) || bytes > total() || used > total() - bytes;
	struct piece *p = none ? NULL : take(bytes > 0 ? bytes : 1, MEMORY_DEVICE);
	if (p == NULL)
		return standin_error(cudaErrorMemoryAllocation);
	used += p->bytes;
	*out = p->at;
	return cudaSuccess;
}

/* Waits for the device, as a device's does; a broken device frees it with the process. */
cudaError_t cudaFree(void *p)
{
	struct held h;
	cudaError_t e = capture_forbids(__func__);
	standin_counts.frees++;
	standin_log(STANDIN_FREE, NULL, NULL);
	if (e != cudaSuccess || p == NULL)
		return standin_error(e);
	struct piece **at = find(p, MEMORY_DEVICE);
	if (at == NULL)
		return standin_refuse(cudaErrorInvalidValue, "cudaFree of %s that cudaMalloc did not give",
				      memory_name(p));
	streams_run_all();
	used -= (*at)->bytes;
	give_back(at);
	return standin_error(standin_broken);
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
	struct held h;
	cudaError_t e = capture_forbids(__func__);
	standin_counts.host_allocations++;
	if (e != cudaSuccess || (e = standin_broken) != cudaSuccess || standin_struck(__func__, &e))
		return standin_error(e);
	struct piece *p = take(bytes > 0 ? bytes : 1, MEMORY_PINNED);
	if (p == NULL)
		return standin_error(cudaErrorMemoryAllocation);
	*out = p->at;
	return cudaSuccess;
}

struct uses {
	const struct piece *piece;
	bool reads, writes; /* an operation that has not run may do that */
	const char *name;
};

static bool within(const struct piece *p, const void *at)
{
	return (const uint8_t *)at >= p->at && (const uint8_t *)at < p->at + p->bytes;
}

static bool argument_within(const struct piece *p, const struct kn_command *c)
{
	const void *word;
	for (size_t i = sizeof *c; i + sizeof word <= c->bytes; i += sizeof word) {
		memcpy(&word, (const uint8_t *)c + i, sizeof word);
		if (within(p, word))
			return true;
	}
	return false;
}

static void look_for_uses(const struct op *o, void *ctx)
{
	struct uses *u = (struct uses *)ctx;
	bool kernel = o->kind == OP_KERNEL && argument_within(u->piece, o->command);
	bool copy = o->kind == OP_COPY || o->kind == OP_FILL;
	bool reads = kernel || (copy && o->from != NULL && within(u->piece, o->from));
	bool writes = kernel || (copy && within(u->piece, o->to));
	u->reads |= reads;
	u->writes |= writes;
	if (reads || writes)
		u->name = o->name != NULL ? o->name : "a copy";
}

void piece_uses(const struct piece *p, bool *reads, bool *writes, const char **name)
{
	struct uses u = {p, false, false, NULL};
	streams_each_pending(look_for_uses, &u);
	*reads = u.reads;
	*writes = u.writes;
	*name = u.name;
}

/* No document promises that it waits. */
cudaError_t cudaFreeHost(void *p)
{
	struct held h;
	cudaError_t e = capture_forbids(__func__);
	bool reads, writes;
	const char *name;
	standin_counts.host_frees++;
	if (e != cudaSuccess || p == NULL)
		return standin_error(e);
	struct piece **at = find(p, MEMORY_PINNED);
	if (at == NULL)
		return standin_refuse(cudaErrorInvalidValue, "cudaFreeHost of %s that cudaMallocHost did not give",
				      memory_name(p));
	piece_uses(*at, &reads, &writes, &name);
	if (reads || writes)
		standin_finding("cudaFreeHost of memory that %s still has to use", name);
	give_back(at);
	return standin_error(standin_broken);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all)
{
	struct held h;
	*all = total();
	*free_bytes = total() > used ? total() - used : 0;
	return standin_error(standin_broken);
}
