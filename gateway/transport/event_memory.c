/* SPDX-License-Identifier: Apache-2.0
 *
 * libevent keeps an entry of a few bytes for each descriptor that a loop has ever watched, until the loop is freed.
 * Such an entry is allocated between the larger blocks of its connection. After a flood of connections, one entry a
 * page kept nearly all of the flood's memory resident: 1.3 KB a connection instead of 32 bytes. So small blocks come
 * from a region of their own. It reserves address space for the largest number, and only the used pages become
 * resident.
 *
 * All blocks of the region have one size; freed ones form a list. When the region is full, malloc serves.
 *
 * Thread: any.
 */
#include "gateway/transport/event_memory.h"

#include <event2/event.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BLOCK = 32, REGION_BYTES = 128 << 20 };

union block {
	union block *next; /* free */
	uint8_t bytes[BLOCK];
	max_align_t align;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static union block *region; /* NULL: not installed */
static size_t used;         /* blocks from the start of the region; under the lock */
static union block *freed;

static bool is_small(const void *p) { return region != NULL && (uintptr_t)p - (uintptr_t)region < REGION_BYTES; }

static void *take_small(void)
{
	pthread_mutex_lock(&lock);
	union block *p = freed;
	if (p != NULL)
		freed = p->next;
	else if (used < REGION_BYTES / sizeof *p)
		p = &region[used++];
	pthread_mutex_unlock(&lock);
	return p;
}

static void *ev_alloc(size_t n)
{
	if (n == 0)
		n = 1;
	void *p = n <= BLOCK && region != NULL ? take_small() : NULL;
	return p != NULL ? p : malloc(n);
}

static void ev_free(void *p)
{
	if (!is_small(p)) {
		free(p);
		return;
	}
	union block *block = p;
	pthread_mutex_lock(&lock);
	block->next = freed;
	freed = block;
	pthread_mutex_unlock(&lock);
}

static void *ev_realloc(void *p, size_t n)
{
	if (!is_small(p))
		return realloc(p, n);
	if (n <= BLOCK)
		return p;
	void *q = malloc(n);
	if (q != NULL) {
		memcpy(q, p, BLOCK);
		ev_free(p);
	}
	return q;
}

void event_memory_install(void)
{
	if (region != NULL)
		return;
	void *p = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return;
	region = p;
	event_set_mem_functions(ev_alloc, ev_realloc, ev_free);
}

size_t event_memory_small(void)
{
	pthread_mutex_lock(&lock);
	size_t n = used * sizeof *region;
	pthread_mutex_unlock(&lock);
	return n;
}
