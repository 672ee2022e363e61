/* SPDX-License-Identifier: Apache-2.0
 *
 * libevent keeps an entry of a few bytes for each descriptor that a loop has ever watched, for as long as the loop
 * lives. It is made when a connection comes, so it lies between what the connection needs, and once a flood has gone,
 * one such entry a page keeps nearly every page of the flood's memory resident: 1.3 KB a connection instead of 32
 * bytes. So small pieces have a place of their own: address space for the most there can be, of which only what is used
 * is ever touched.
 *
 * All pieces there have one size, and freed ones are a list. When the place is full, malloc serves.
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

enum { PIECE = 32, PLACE_BYTES = 128 << 20 };

union piece {
	union piece *next; /* free */
	uint8_t bytes[PIECE];
	max_align_t align;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static union piece *place; /* NULL: none */
static size_t used;        /* pieces from the start of place; under the lock */
static union piece *given_back;

static bool is_small(const void *p) { return place != NULL && (uintptr_t)p - (uintptr_t)place < PLACE_BYTES; }

static void *take_small(void)
{
	pthread_mutex_lock(&lock);
	union piece *p = given_back;
	if (p != NULL)
		given_back = p->next;
	else if (used < PLACE_BYTES / sizeof *p)
		p = &place[used++];
	pthread_mutex_unlock(&lock);
	return p;
}

static void *ev_alloc(size_t n)
{
	if (n == 0)
		n = 1;
	void *p = n <= PIECE && place != NULL ? take_small() : NULL;
	return p != NULL ? p : malloc(n);
}

static void ev_free(void *p)
{
	if (!is_small(p)) {
		free(p);
		return;
	}
	union piece *piece = p;
	pthread_mutex_lock(&lock);
	piece->next = given_back;
	given_back = piece;
	pthread_mutex_unlock(&lock);
}

static void *ev_realloc(void *p, size_t n)
{
	if (!is_small(p))
		return realloc(p, n);
	if (n <= PIECE)
		return p;
	void *q = malloc(n);
	if (q != NULL) {
		memcpy(q, p, PIECE);
		ev_free(p);
	}
	return q;
}

void event_memory_install(void)
{
	if (place != NULL)
		return;
	void *p = mmap(NULL, PLACE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return;
	place = p;
	event_set_mem_functions(ev_alloc, ev_realloc, ev_free);
}

size_t event_memory_small(void)
{
	pthread_mutex_lock(&lock);
	size_t n = used * sizeof *place;
	pthread_mutex_unlock(&lock);
	return n;
}
