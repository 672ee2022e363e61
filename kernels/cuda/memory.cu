/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's memory as the engine plans with it, and pages that lie on the host meanwhile.
 *
 * Copies of pages go to the one stream that steps go to, from and to pinned memory, so nobody waits for them: a page that is
 * brought out is read before a later step writes there, one that is brought in is there before a later step reads it,
 * and a place on the host may be another page's at once.
 */
#include "kernels/cuda/backend.h"

#include "kernels/cuda/matmul.h"

enum {
	GRAPH_BYTES = 1 << 20,	   /* of one, some thousand nodes */
	PART_BYTES = 128 << 20,	   /* parts of products and of attention: both are bounded by what a device can do at once */
	ROW_BYTES = 4,		   /* of a converted activation, with the sums beside it; half of it is growth */
	STEP_INTS = 16,		   /* of a row, with growth */
	STEP_SEQ_PAGES = 64 << 10, /* entries of page tables in one step */
};

/* What rooms grow to in the widest step, and graphs; a bound from above, for none of it is known before it comes. */
static uint64_t later(const struct kn_backend *b)
{
	uint64_t rows = (uint64_t)b->max_rows + KN_ROWS, bytes = PART_BYTES;
	bytes += rows * (uint64_t)b->widest_in * ROW_BYTES;
	bytes += (rows * STEP_INTS + STEP_SEQ_PAGES) * sizeof(int32_t);
	if (b->library != NULL)
		bytes += (rows + (uint64_t)b->longest_out) * (uint64_t)b->widest_in * sizeof(uint16_t) * 3 / 2;
	return bytes + (uint64_t)KN_MAX_GRAPHS * GRAPH_BYTES;
}

bool kn_cuda_memory(struct kn_backend *b, struct kn_memory *out)
{
	*out = {};
	if (!dev_memory(b->dev, &out->free, &out->total))
		return false;
	out->later = later(b);
	return true;
}

int kn_cuda_settle(struct kn_backend *b)
{
	return dev_sync(b->dev);
}

int kn_cuda_host_alloc(struct kn_backend *b, size_t bytes, void **out)
{
	*out = dev_host_alloc(b->dev, bytes);
	return *out != NULL ? 0 : SL_ENOMEM;
}

void kn_cuda_host_free(struct kn_backend *b, void *p)
{
	(void)dev_sync(b->dev); /* copies may be on their way; after a fault none is */
	dev_host_free(b->dev, p);
}

int kn_cuda_page_out(struct kn_backend *b, const struct kn_kv *kv, int page, void *host)
{
	size_t half = kn_kv_page_bytes(kv), at = (size_t)page * half;
	int rc = dev_copy_out(b->dev, host, (const uint8_t *)kv->k + at, half);
	return rc != 0 ? rc : dev_copy_out(b->dev, (uint8_t *)host + half, (const uint8_t *)kv->v + at, half);
}

int kn_cuda_page_in(struct kn_backend *b, const struct kn_kv *kv, const void *host, int page)
{
	size_t half = kn_kv_page_bytes(kv), at = (size_t)page * half;
	int rc = dev_copy_in(b->dev, (uint8_t *)kv->k + at, host, half);
	return rc != 0 ? rc : dev_copy_in(b->dev, (uint8_t *)kv->v + at, (const uint8_t *)host + half, half);
}
