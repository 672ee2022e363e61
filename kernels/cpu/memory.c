/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the backend. What is large (keys and values, activations of the widest step) is asked of the
 * system page by page: the system clears a page when it is first written to, so a start costs nothing for what no
 * step has used yet, and such memory is not resident. Clearing hundreds of megabytes at the start was most
 * of the time that a start took. What is small comes from the heap.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cpu/backend.h"
#include "kernels/kernels.h"

enum { LARGE = 1 << 20, HEAD = KN_ALIGN };

/* Stands KN_ALIGN bytes before the memory. */
struct head {
	size_t mapped; /* bytes, the head's included; 0: of the heap */
};

int kn_memory_take(size_t bytes, void **out)
{
	size_t all;
	if (bytes == 0 || __builtin_add_overflow(bytes, HEAD + KN_ALIGN - 1, &all))
		return SL_ENOMEM;
	all = all / KN_ALIGN * KN_ALIGN;
	bool large = all >= LARGE;
	void *p = large ? mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
			: aligned_alloc(KN_ALIGN, all);
	if (p == NULL || p == MAP_FAILED)
		return SL_ENOMEM;
	if (large)
		(void)madvise(p, all, MADV_HUGEPAGE); /* without them it is slower and nothing else */
	else
		memset(p, 0, all);
	((struct head *)p)->mapped = large ? all : 0;
	*out = (uint8_t *)p + HEAD;
	return 0;
}

void kn_memory_give(void *memory)
{
	if (memory == NULL)
		return;
	struct head *h = (struct head *)(void *)((uint8_t *)memory - HEAD);
	if (h->mapped > 0)
		munmap(h, h->mapped);
	else
		free(h);
}
