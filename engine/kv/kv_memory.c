/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes of slabs. A slab is a multiple of the largest page, as small as possible with KV_MEMORY_SLABS / 2 slabs: then
 * no page of that size crosses a border. Pages of another size do, unless it divides the slab, and a page that crosses
 * a border is unused. So where sizes do not divide each other, a slab has several of the largest pages.
 */
#include "engine/kv/kv_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"

enum { LEAST_UNEVEN = 8 }; /* largest pages per slab: at most an eighth of a slab is lost at borders */

struct kv_memory {
	const struct kn_ops *ops;
	struct kn_backend *backend;
	void *k, *v;
	size_t slab_bytes, half_bytes;
	int n_slabs, n_pools;
	int first[KV_MEMORY_POOLS + 1];
	int owner[KV_MEMORY_SLABS], n_owned[KV_MEMORY_POOLS];
	bool written[KV_MEMORY_SLABS];
	uint64_t clock;
};

/* Slabs of each pool: its part of what all want, rounded down and at least one; what rounding left goes to the pools
 * that lack most. */
static void count_parts(const struct kv_memory *m, const double *want, double all, int *part)
{
	int left = m->n_slabs;
	for (int i = 0; i < m->n_pools; i++) {
		int later = m->n_pools - 1 - i;
		part[i] = (int)((double)m->n_slabs * want[i] / all);
		part[i] = part[i] > 0 ? part[i] : 1;
		part[i] = part[i] < left - later ? part[i] : left - later;
		left -= part[i];
	}
	for (; left > 0; left--) {
		int most = 0;
		double lack = 0;
		for (int i = 0; i < m->n_pools; i++) {
			double lacks = (double)m->n_slabs * want[i] / all - part[i];
			if (i == 0 || lacks > lack) {
				most = i;
				lack = lacks;
			}
		}
		part[most]++;
	}
}

static void set_parts(struct kv_memory *m, const size_t *page_bytes, const uint64_t *pages)
{
	double want[KV_MEMORY_POOLS] = {0}, all = 0;
	int part[KV_MEMORY_POOLS] = {0}, at = 0;
	for (int i = 0; i < m->n_pools; i++) {
		want[i] = (double)page_bytes[i] * (pages != NULL ? (double)pages[i] : 1);
		all += want[i];
	}
	count_parts(m, want, all, part);
	for (int i = 0; i < m->n_pools; i++) {
		m->first[i] = at;
		m->n_owned[i] = part[i];
		for (int k = 0; k < part[i]; k++)
			m->owner[at++] = i;
	}
	m->first[m->n_pools] = at;
}

int kv_memory_create(const struct kn_ops *ops, struct kn_backend *b, uint64_t bytes, const size_t *page_bytes,
		     const uint64_t *wanted, int n, struct kv_memory **out, struct sl_err *err)
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
	/* One pool alone uses all pages: its last slab may be smaller. */
	uint64_t n_slabs = n == 1 ? (pages + each - 1) / each : pages / each;
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
	size_t half = m->half_bytes = n == 1 ? (size_t)(pages * largest / 2) : m->slab_bytes * (size_t)m->n_slabs;
	if (ops->mem_alloc(b, half, &m->k) != 0 || ops->mem_alloc(b, half, &m->v) != 0) {
		if (m->k != NULL)
			ops->mem_free(b, m->k);
		sl_free(m);
		return sl_errf(err, SL_ENOMEM, "no memory for KV pools of %zu KiB", half >> 9);
	}
	set_parts(m, page_bytes, wanted);
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
size_t kv_memory_half_bytes(const struct kv_memory *m) { return m->half_bytes; }
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

/* ---- memory that the system gets back ---- */

void kv_memory_write(struct kv_memory *m, int slab) { m->written[slab] = true; }
bool kv_memory_is_written(const struct kv_memory *m, int slab) { return m->written[slab]; }

/* Where the slab lies in each half: [*from, *to). */
static void place_of(const struct kv_memory *m, int slab, size_t *from, size_t *to)
{
	*from = m->slab_bytes * (size_t)slab;
	*to = *from + m->slab_bytes < m->half_bytes ? *from + m->slab_bytes : m->half_bytes;
}

/* The whole pages of the system between two places. */
static uint64_t give_back(uint8_t *from, uint8_t *to)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = ((uintptr_t)from + page - 1) / page * page, end = (uintptr_t)to / page * page;
	if (first >= end || madvise((void *)first, end - first, MADV_DONTNEED) != 0)
		return 0;
	return end - first;
}

uint64_t kv_memory_discard(struct kv_memory *m, int slab)
{
	size_t from, to;
	if (m->ops->memory != NULL || !m->written[slab])
		return 0;
	place_of(m, slab, &from, &to);
	m->written[slab] = false;
	return give_back((uint8_t *)m->k + from, (uint8_t *)m->k + to) +
	       give_back((uint8_t *)m->v + from, (uint8_t *)m->v + to);
}

uint64_t kv_memory_bytes_of(const struct kv_memory *m, int slab)
{
	size_t from, to;
	place_of(m, slab, &from, &to);
	return 2 * (uint64_t)(to - from);
}

uint64_t kv_memory_withheld(const struct kv_memory *m)
{
	uint64_t all = 0;
	for (int slab = 0; slab < m->n_slabs; slab++)
		all += m->owner[slab] == KV_MEMORY_WITHHELD ? kv_memory_bytes_of(m, slab) : 0;
	return all;
}
