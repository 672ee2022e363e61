/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's memory for the engine's planning, and pages swapped to the host.
 *
 * Copies of pages from and to the host's pinned memory use a separate stream. A copy runs after all steps issued before
 * it, so a page copied out contains their writes, and nothing overwrites what they read. A later step waits for the
 * copies only if its sequences use a page being copied, in either direction; other steps run beside them. Pages in
 * flight are tracked by a few bits of their numbers, so a page with the same bits may wait needlessly. A host slot may
 * be reused at once, because copies are ordered.
 *
 * Copies on write (kn_cuda_page_copy) stay on the stream of the steps: the step that is issued next writes to the copy,
 * so it would have to wait at once, and a page is copied within the device in about a microsecond.
 */
#include "kernels/cuda/backend.h"

#include "kernels/cuda/matmul.h"

enum {
	GRAPH_BYTES = 1 << 20,     /* per graph of about a thousand nodes */
	PART_BYTES = 128 << 20,    /* parts of products and attention; a device's parallelism bounds both */
	ROW_BYTES = 4,             /* per converted activation with its sums; half of it allows for growth */
	STEP_INTS = 40,            /* per row, those of adapters included, with growth */
	TURN_BYTES = 3 << 10,      /* per row: angles of two tables of frequencies for heads of 256, with growth */
	STEP_SEQ_PAGES = 64 << 10, /* entries of page tables in one step */
};

/* An upper bound for scratch buffers in the widest step and for graphs: neither is known in advance. */
static uint64_t later(const struct kn_backend *b)
{
	uint64_t rows = (uint64_t)b->max_rows + KN_ROWS, bytes = PART_BYTES;
	bytes += 2 * rows * (uint64_t)b->widest_in * ROW_BYTES; /* they take turns in two rooms */
	bytes += rows * TURN_BYTES + (rows * STEP_INTS + STEP_SEQ_PAGES) * sizeof(int32_t);
	bytes += b->routed_most;
	if (b->library != NULL)
		bytes += (rows + (uint64_t)b->longest_out) *
			 ((uint64_t)b->widest_in * sizeof(uint16_t) + sizeof(float)) * 3 / 2;
	return bytes + (uint64_t)KN_MAX_GRAPHS * GRAPH_BYTES;
}

bool kn_cuda_memory(struct kn_backend *b, struct kn_memory *out)
{
	*out = {};
	kn_cuda_uploads_end(b); /* all weights are there */
	if (!dev_memory(b->dev, &out->free, &out->total))
		return false;
	out->later = later(b);
	return true;
}

int kn_cuda_settle(struct kn_backend *b) { return dev_sync(b->dev); }

int kn_cuda_host_alloc(struct kn_backend *b, size_t bytes, void **out)
{
	*out = dev_host_alloc(b->dev, bytes);
	return *out != NULL ? 0 : SL_ENOMEM;
}

void kn_cuda_host_free(struct kn_backend *b, void *p)
{
	(void)dev_sync(b->dev); /* copies may be in flight; after a fault none is */
	dev_host_free(b->dev, p);
}

static uint64_t bit_of(int page) { return (uint64_t)1 << (unsigned)page % 64; }

static uint64_t *late_of(struct kn_backend *b, int page) { return &b->late[(unsigned)page / 64 % (KN_LATE / 64)]; }

/* Copies the two halves of a page: keys, then values. */
static int copy_aside(struct kn_backend *b, const struct kn_kv *kv, int page, uint8_t *host, bool in)
{
	size_t half = kn_kv_page_bytes(kv), at = (size_t)page * half;
	uint8_t *k = (uint8_t *)kv->k + at, *v = (uint8_t *)kv->v + at;
	int rc = 0;
	if (b->aside_serial != dev_serial(b->dev) + 1) { /* plus one, because 0 means never */
		rc = dev_aside_after(b->dev);
		b->aside_serial = dev_serial(b->dev) + 1;
	}
	*late_of(b, page) |= bit_of(page);
	b->any_late = true;
	if (rc == 0)
		rc = in ? dev_aside(b->dev, k, host, half) : dev_aside(b->dev, host, k, half);
	if (rc == 0)
		rc = in ? dev_aside(b->dev, v, host + half, half) : dev_aside(b->dev, host + half, v, half);
	return rc;
}

int kn_cuda_page_out(struct kn_backend *b, const struct kn_kv *kv, int page, void *host)
{
	return copy_aside(b, kv, page, (uint8_t *)host, false);
}

int kn_cuda_page_in(struct kn_backend *b, const struct kn_kv *kv, const void *host, int page)
{
	return copy_aside(b, kv, page, (uint8_t *)const_cast<void *>(host), true);
}

static void forget_late(struct kn_backend *b)
{
	memset(b->late, 0, sizeof b->late);
	b->any_late = false;
}

bool kn_cuda_pages_there(struct kn_backend *b)
{
	if (b->any_late && dev_aside_done(b->dev))
		forget_late(b);
	return !b->any_late;
}

/* Makes the stream wait for all copies; after that none counts as in flight. */
static int await_all(struct kn_backend *b)
{
	forget_late(b);
	return dev_aside_before(b->dev);
}

int kn_cuda_await_page(struct kn_backend *b, int page)
{
	return b->any_late && (*late_of(b, page) & bit_of(page)) != 0 ? await_all(b) : 0;
}

int kn_cuda_await_pages(struct kn_backend *b, const struct kn_step *s)
{
	if (!b->any_late || s->row_seq == NULL || s->row_pos == NULL || s->page_table == NULL)
		return 0;
	for (int r = 0; r < s->n_rows; r++) {
		if (r + 1 < s->n_rows && s->row_seq[r + 1] == s->row_seq[r] && s->row_pos[r + 1] >= s->row_pos[r])
			continue; /* the next row reads the same pages and more */
		int n = s->page_tokens > 0 ? s->row_pos[r] / s->page_tokens + 1 : s->max_pages;
		int n_groups = s->n_groups > 0 ? s->n_groups : 1;
		for (int g = 0; g < n_groups; g++) {
			const int32_t *table = kn_table_of(s, s->row_seq[r], g);
			for (int i = 0; i < n && i < s->max_pages; i++)
				if (table[i] >= 0 && (*late_of(b, table[i]) & bit_of(table[i])) != 0)
					return await_all(b);
		}
	}
	return 0;
}
