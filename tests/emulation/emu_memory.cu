/* SPDX-License-Identifier: Apache-2.0
 *
 * See emu_memory.h. Before each piece stand its size and, of one that holds junk, its neighbours in the list of those.
 */
#include "tests/emulation/emu_memory.h"
#include "tests/emulation/emu_watch.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

static uint64_t size, used;
static int n_devices, n_graphs, fail_in;

extern "C" __attribute__((visibility("default"))) void sluice_emulation_memory(uint64_t bytes)
{
	__atomic_store_n(&size, bytes, __ATOMIC_RELAXED);
}

extern "C" __attribute__((visibility("default"))) void sluice_emulation_no_memory(int n)
{
	__atomic_store_n(&fail_in, n, __ATOMIC_RELAXED);
}

extern "C" __attribute__((visibility("default"))) void sluice_emulation_alive(struct emu_alive *out)
{
	out->bytes = __atomic_load_n(&used, __ATOMIC_RELAXED);
	out->devices = __atomic_load_n(&n_devices, __ATOMIC_RELAXED);
	out->graphs = __atomic_load_n(&n_graphs, __ATOMIC_RELAXED);
}

/* False: there is not so much left. */
static bool take(size_t bytes)
{
	uint64_t all = __atomic_load_n(&size, __ATOMIC_RELAXED), was = __atomic_load_n(&used, __ATOMIC_RELAXED);
	do {
		if (all > 0 && (bytes > all || was > all - bytes))
			return false;
	} while (!__atomic_compare_exchange_n(&used, &was, was + bytes, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return true;
}

static bool struck(void)
{
	return __atomic_load_n(&fail_in, __ATOMIC_RELAXED) > 0 &&
	       __atomic_sub_fetch(&fail_in, 1, __ATOMIC_RELAXED) == 0;
}

struct emu_piece {
	size_t bytes;
	bool watched;
	struct emu_piece *next, **at; /* at: what points to it; NULL: in no list */
};

static_assert(sizeof(struct emu_piece) <= KN_ALIGN, "it stands in the space before an aligned piece");

static void *bytes_of(struct emu_piece *p) { return (uint8_t *)p + KN_ALIGN; }

void *emu_memory_alloc(size_t bytes)
{
	void *p = NULL;
	if (bytes > PTRDIFF_MAX - KN_ALIGN || struck() || !take(bytes))
		return NULL;
	struct emu_piece head = {bytes, true, NULL, NULL};
	if ((p = emu_watch_alloc(bytes + KN_ALIGN)) == NULL) {
		head.watched = false;
		if (posix_memalign(&p, KN_ALIGN, bytes + KN_ALIGN) != 0) {
			__atomic_fetch_sub(&used, bytes, __ATOMIC_RELAXED);
			return NULL;
		}
		memset(p, 0, bytes + KN_ALIGN);
	}
	memcpy(p, &head, sizeof head);
	return (uint8_t *)p + KN_ALIGN;
}

/* A NaN in what is a NaN's result would not show, nor a number where it adds nothing. */
static int junk_byte(bool number) { return number ? 0x41 : 0xFF; }

void *emu_junk_alloc(struct emu_piece **list, size_t bytes)
{
	void *at = emu_memory_alloc(bytes);
	if (at == NULL)
		return NULL;
	struct emu_piece *p = (struct emu_piece *)(void *)((uint8_t *)at - KN_ALIGN);
	p->next = *list;
	p->at = list;
	if (p->next != NULL)
		p->next->at = &p->next;
	*list = p;
	memset(at, junk_byte(false), bytes);
	return at;
}

void emu_junk_fill(struct emu_piece *list, bool number)
{
	for (; list != NULL; list = list->next)
		memset(bytes_of(list), junk_byte(number), list->bytes);
}

void emu_memory_free(void *at)
{
	if (at == NULL)
		return;
	struct emu_piece *p = (struct emu_piece *)(void *)((uint8_t *)at - KN_ALIGN);
	__atomic_fetch_sub(&used, p->bytes, __ATOMIC_RELAXED);
	if (p->at != NULL)
		*p->at = p->next;
	if (p->next != NULL)
		p->next->at = p->at;
	if (p->watched)
		emu_watch_free(p, p->bytes + KN_ALIGN);
	else
		free(p);
}

bool emu_memory_tell(uint64_t *free_bytes, uint64_t *total)
{
	uint64_t now = __atomic_load_n(&used, __ATOMIC_RELAXED);
	*total = __atomic_load_n(&size, __ATOMIC_RELAXED);
	*free_bytes = *total > now ? *total - now : 0;
	return *total > 0;
}

void emu_count_device(int n) { __atomic_fetch_add(&n_devices, n, __ATOMIC_RELAXED); }

void emu_count_graph(int n) { __atomic_fetch_add(&n_graphs, n, __ATOMIC_RELAXED); }
