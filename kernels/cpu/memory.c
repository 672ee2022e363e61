/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the backend. Large areas (keys and values, activations of the widest step) are mapped from the system,
 * which clears each page on its first write: unused memory costs no start time and is not resident. Clearing hundreds
 * of megabytes took most of the start time. Small areas come from the heap.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cpu/host.h"
#include "kernels/kv_type.h"

enum { LARGE = 1 << 20, HEAD = KN_ALIGN };

/* Precedes the memory by KN_ALIGN bytes. */
struct head {
	size_t mapped; /* bytes, including the head; 0: from the heap */
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
		(void)madvise(p, all, MADV_HUGEPAGE); /* failure only costs speed */
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

int kn_host_mem_alloc(struct kn_backend *b, size_t bytes, void **out)
{
	(void)b;
	return kn_memory_take(bytes, out);
}

void kn_host_mem_free(struct kn_backend *b, void *p)
{
	(void)b;
	kn_memory_give(p);
}

int kn_host_upload(struct kn_backend *b, float *dst, const float *host, size_t n)
{
	(void)b;
	memcpy(dst, host, n * sizeof *dst);
	return 0;
}

int kn_host_read_back(struct kn_backend *b, const float *src, size_t n, float *host)
{
	return kn_host_upload(b, host, src, n);
}

int kn_host_gather(struct kn_backend *b, const float *x, const int32_t *rows, int n, int width, float *y)
{
	(void)b;
	for (int i = 0; i < n; i++)
		memcpy(y + (size_t)i * (size_t)width, x + (size_t)rows[i] * (size_t)width, (size_t)width * sizeof *y);
	return 0;
}

int kn_host_pool_rows(struct kn_backend *b, const float *x, const struct kn_text *texts, int n_texts, int width,
		      float *sums)
{
	(void)b;
	for (int t = 0; t < n_texts; t++) {
		float *sum = sums + (size_t)texts[t].slot * (size_t)width;
		if (texts[t].begins)
			memset(sum, 0, (size_t)width * sizeof *sum);
		for (int32_t r = texts[t].row; r < texts[t].row + texts[t].n_rows; r++)
			for (int i = 0; i < width; i++)
				sum[i] += x[(size_t)r * (size_t)width + (size_t)i];
	}
	return 0;
}

int kn_host_page_copy(struct kn_backend *b, const struct kn_kv *kv, int src, int dst)
{
	(void)b;
	size_t page = kn_kv_page_bytes(kv);
	BUG_IF(src < 0 || src >= kv->n_pages || dst < 0 || dst >= kv->n_pages, "page %d to %d of %d", src, dst,
	       kv->n_pages);
	memcpy((uint8_t *)kv->k + (size_t)dst * page, (uint8_t *)kv->k + (size_t)src * page, page);
	memcpy((uint8_t *)kv->v + (size_t)dst * page, (uint8_t *)kv->v + (size_t)src * page, page);
	return 0;
}

int kn_host_state_copy(struct kn_backend *b, const float *from, float *to, size_t n)
{
	return kn_host_upload(b, to, from, n);
}

/* Operations run synchronously. */
int kn_host_step_wait(struct kn_backend *b)
{
	(void)b;
	return 0;
}

bool kn_host_step_ready(struct kn_backend *b)
{
	(void)b;
	return true;
}
