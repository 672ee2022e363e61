/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes of slabs. A slab is a multiple of the largest page, as small as possible with KV_MEMORY_SLABS / 2 slabs: then
 * no page of that size crosses a border. Pages of another size do, unless it divides the slab, and a page that crosses
 * a border is unused. So where sizes do not divide each other, a slab has several of the largest pages.
 */
#include "engine/kv/kv_memory.h"

#include "base/alloc.h"

enum { LEAST_UNEVEN = 8 }; /* largest pages per slab: at most an eighth of a slab is lost at borders */

struct kv_memory {
	const struct kn_ops *ops;
	struct kn_backend *backend;
	void *k, *v;
	size_t slab_bytes;
	int n_slabs, n_pools;
	int first[KV_MEMORY_POOLS + 1];
	int owner[KV_MEMORY_SLABS], n_owned[KV_MEMORY_POOLS];
	uint64_t clock;
};

static void set_parts(struct kv_memory *m, const size_t *page_bytes, uint64_t all)
{
	int at = 0;
	for (int i = 0; i < m->n_pools; i++) {
		/* Rounded down so that all fit; each gets at least one. */
		int part = (int)((double)m->n_slabs * (double)page_bytes[i] / (double)all);
		int later = m->n_pools - 1 - i;
		part = part > 0 ? part : 1;
		part = part < m->n_slabs - at - later ? part : m->n_slabs - at - later;
		m->first[i] = at;
		at += part;
	}
	/* The last pool gets the rest. */
	m->first[m->n_pools] = m->n_slabs;
	for (int i = 0; i < m->n_pools; i++) {
		for (int slab = m->first[i]; slab < m->first[i + 1]; slab++)
			m->owner[slab] = i;
		m->n_owned[i] = m->first[i + 1] - m->first[i];
	}
}

int kv_memory_create(const struct kn_ops *ops, struct kn_backend *b, uint64_t bytes, const size_t *page_bytes, int n,
		     struct kv_memory **out, struct sl_err *err)
{
	uint64_t largest = 0, all = 0;
	bool even = true;
	BUG_IF(n < 1 || n > KV_MEMORY_POOLS, "KV memory for %d pools", n);
	for (int i = 0; i < n; i++) {
		largest = page_bytes[i] > largest ? page_bytes[i] : largest;
		if (__builtin_add_overflow(all, page_bytes[i], &all))
			return sl_errf(err, SL_ELIMIT, "KV pages of an impossible size");
	}
	for (int i = 0; i < n; i++) {
		BUG_IF(page_bytes[i] == 0, "KV pages of no size");
		even = even && largest % page_bytes[i] == 0;
	}
	BUG_IF(largest == 0, "KV pages of no size");
	uint64_t pages = bytes / largest, each = pages / (KV_MEMORY_SLABS / 2), least = even ? 1 : LEAST_UNEVEN;
	each = each > least ? each : least;
	uint64_t n_slabs = pages / each;
	n_slabs = n_slabs < KV_MEMORY_SLABS ? n_slabs : KV_MEMORY_SLABS;
	if (n_slabs < (uint64_t)n)
		return sl_errf(err, SL_ELIMIT, "the KV memory of %llu bytes is too small to be shared",
			       (unsigned long long)bytes);
	struct kv_memory *m = sl_zalloc(sizeof *m);
	if (m == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the KV pools");
	m->ops = ops;
	m->backend = b;
	m->n_pools = n;
	m->n_slabs = (int)n_slabs;
	m->slab_bytes = (size_t)(each * largest / 2);
	size_t half = m->slab_bytes * (size_t)m->n_slabs;
	if (ops->mem_alloc(b, half, &m->k) != 0 || ops->mem_alloc(b, half, &m->v) != 0) {
		if (m->k != NULL)
			ops->mem_free(b, m->k);
		sl_free(m);
		return sl_errf(err, SL_ENOMEM, "no memory for KV pools of %zu KiB", half >> 9);
	}
	set_parts(m, page_bytes, all);
	*out = m;
	return 0;
}

void kv_memory_destroy(struct kv_memory *m)
{
	if (m == NULL)
		return;
	m->ops->mem_free(m->backend, m->k);
	m->ops->mem_free(m->backend, m->v);
	sl_free(m);
}

int kv_memory_n_slabs(const struct kv_memory *m) { return m->n_slabs; }
size_t kv_memory_slab_bytes(const struct kv_memory *m) { return m->slab_bytes; }
int kv_memory_first(const struct kv_memory *m, int i) { return m->first[i]; }
int kv_memory_part(const struct kv_memory *m, int i) { return m->first[i + 1] - m->first[i]; }
uint64_t *kv_memory_clock(struct kv_memory *m) { return &m->clock; }
int kv_memory_owner(const struct kv_memory *m, int slab) { return m->owner[slab]; }
int kv_memory_n_owned(const struct kv_memory *m, int i) { return m->n_owned[i]; }

void kv_memory_halves(const struct kv_memory *m, void **k, void **v)
{
	*k = m->k;
	*v = m->v;
}

void kv_memory_set_owner(struct kv_memory *m, int slab, int i)
{
	if (m->owner[slab] >= 0)
		m->n_owned[m->owner[slab]]--;
	m->owner[slab] = i;
	if (i >= 0)
		m->n_owned[i]++;
}
