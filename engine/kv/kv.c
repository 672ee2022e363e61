/* SPDX-License-Identifier: Apache-2.0
 *
 * The page pool: an array of reference counts and, for each slab, a stack of free pages linked through their numbers. A
 * page is on its slab's stack exactly when its count is 0 and the slab belongs to the pool. Pages come from one slab
 * while it has any, then from the fullest other slab. So a busy pool reuses the same, warm memory, and free pages
 * collect in slabs that can be given away whole.
 */
#include "engine/kv/kv.h"

#include "base/alloc.h"
#include "base/fault.h"
#include "engine/kv/kv_memory.h"
#include "kernels/hadamard.h"
#include "kernels/kv_type.h"

struct kv_pool {
	const struct kn_ops *ops;
	struct kn_backend *backend;
	struct kn_kv layout; /* n_pages: the limit of page numbers */
	struct kv_groups groups;
	struct kv_memory *memory; /* NULL: its own */
	uint32_t *refs;           /* [layout.n_pages] */
	int32_t *next;            /* [layout.n_pages]: the next free page of the slab */
	struct kv_slab *slabs;
	int n_slabs;
	int16_t *page_slab; /* [layout.n_pages]: -1: in no slab, because it crosses a border */
	int current;        /* slab that pages come from */
	int n_pages, n_free;
	uint64_t own_clock, *clock;
};

size_t kv_layout_bytes(const struct kn_kv *l)
{
	size_t n = kn_kv_head_bytes(l->type, kn_kv_block_tokens(l), l->head_dim);
	if (__builtin_mul_overflow(n, (size_t)2, &n) || __builtin_mul_overflow(n, (size_t)l->n_layers, &n) ||
	    __builtin_mul_overflow(n, (size_t)l->n_kv_heads, &n))
		return SIZE_MAX;
	return n;
}

static struct kn_kv of_heads(int type, int page_tokens, int n_layers, int n_kv_heads, int head_dim)
{
	return (struct kn_kv){.type = type,
			      .page_tokens = page_tokens,
			      .n_layers = n_layers,
			      .n_kv_heads = n_kv_heads,
			      .head_dim = head_dim};
}

size_t kv_page_bytes(int type, int page_tokens, int n_layers, int n_kv_heads, int head_dim)
{
	const struct kn_kv layout = of_heads(type, page_tokens, n_layers, n_kv_heads, head_dim);
	return kv_layout_bytes(&layout);
}

static void pool_free(struct kv_pool *p)
{
	sl_free(p->refs);
	sl_free(p->next);
	sl_free(p->page_slab);
	sl_free(p->slabs);
	sl_free(p);
}

/* A pool that has no memory and no slabs yet; NULL: out of memory. */
static struct kv_pool *pool_make(const struct kn_ops *ops, struct kn_backend *b, const struct kn_kv *layout,
				 int n_slabs)
{
	struct kv_pool *p = sl_zalloc(sizeof *p);
	if (p == NULL)
		return NULL;
	size_t n = (size_t)layout->n_pages;
	p->ops = ops;
	p->backend = b;
	p->layout = *layout;
	p->groups = kv_groups_one((uint32_t)layout->page_tokens, (uint32_t)layout->n_layers);
	p->n_slabs = n_slabs;
	p->clock = &p->own_clock;
	p->refs = sl_zalloc_n(n, sizeof *p->refs);
	p->next = sl_zalloc_n(n, sizeof *p->next);
	p->page_slab = sl_zalloc_n(n, sizeof *p->page_slab);
	p->slabs = sl_zalloc_n((size_t)n_slabs, sizeof *p->slabs);
	if (p->refs == NULL || p->next == NULL || p->page_slab == NULL || p->slabs == NULL) {
		pool_free(p);
		return NULL;
	}
	for (size_t i = 0; i < n; i++)
		p->page_slab[i] = -1;
	return p;
}

static void set_slab(struct kv_pool *p, int slab, int32_t first, int32_t n_pages)
{
	p->slabs[slab] = (struct kv_slab){.first = first, .n_pages = n_pages, .free = -1};
	for (int32_t i = first; i < first + n_pages; i++)
		p->page_slab[i] = (int16_t)slab;
}

/* Whether type and sizes are valid, and the resulting bytes of keys. */
static int half_of(const struct kn_ops *ops, const struct kn_kv *l, size_t *half, struct sl_err *err)
{
	char can[64];
	if (!ops->kv_type(l->type))
		return sl_errf(err, SL_EUNSUPPORTED, "the backend %s has no KV of type %s, but %s", ops->name,
			       kn_kv_type_name(l->type), kn_kv_types_of(ops, can, sizeof can));
	if (l->latent > 0 && ops->latent_write == NULL)
		return sl_errf(err, SL_EUNSUPPORTED, "the backend %s has no latent attention", ops->name);
	if (l->rotate > 0 && !ops->rotates)
		return sl_errf(err, SL_EUNSUPPORTED,
			       "the backend %s has no rotated keys: engine.kv_rotation must not be on", ops->name);
	if (l->rotate < 0 || l->rotate > KN_MAX_ROTATED ||
	    (l->rotate > 0 &&
	     (l->latent > 0 || l->head_dim % l->rotate != 0 || kn_hadamard_block(l->rotate) != l->rotate)))
		return sl_errf(err, SL_EINVAL, "keys of %d elements cannot be rotated in blocks of %d", l->head_dim,
			       l->rotate);
	if (l->latent > 0 && l->page_tokens % 2 != 0)
		return sl_errf(err, SL_EINVAL,
			       "engine.page_tokens is %d, which is odd: a page of latent rows is two halves",
			       l->page_tokens);
	if (l->n_pages <= 0 || l->page_tokens <= 0 || l->n_layers <= 0 || l->n_kv_heads <= 0 || l->head_dim <= 0 ||
	    l->latent > l->head_dim || __builtin_mul_overflow(kv_layout_bytes(l) / 2, (size_t)l->n_pages, half))
		return sl_errf(err, SL_EINVAL, "a KV pool of %d pages of %d tokens is not possible", l->n_pages,
			       l->page_tokens);
	return 0;
}

int kv_pool_create(const struct kn_ops *ops, struct kn_backend *b, int type, int n_pages, int page_tokens, int n_layers,
		   int n_kv_heads, int head_dim, struct kv_pool **out, struct sl_err *err)
{
	struct kn_kv layout = of_heads(type, page_tokens, n_layers, n_kv_heads, head_dim);
	layout.n_pages = n_pages;
	return kv_pool_make(ops, b, &layout, out, err);
}

int kv_pool_make(const struct kn_ops *ops, struct kn_backend *b, const struct kn_kv *of, struct kv_pool **out,
		 struct sl_err *err)
{
	size_t half;
	struct kn_kv layout = *of;
	layout.k = layout.v = NULL;
	int rc = half_of(ops, &layout, &half, err);
	if (rc != 0)
		return rc;
	struct kv_pool *p = pool_make(ops, b, &layout, 1);
	if (p == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the KV pool");
	if (ops->mem_alloc(b, half, &p->layout.k) != 0 || ops->mem_alloc(b, half, &p->layout.v) != 0) {
		if (p->layout.k != NULL)
			ops->mem_free(b, p->layout.k);
		pool_free(p);
		return sl_errf(err, SL_ENOMEM, "no memory for a KV pool of %zu KiB", half >> 9);
	}
	set_slab(p, 0, 0, layout.n_pages);
	kv_pool_give_slab(p, 0);
	*out = p;
	return 0;
}

int kv_pool_create_in(struct kv_memory *memory, int i, const struct kn_ops *ops, struct kn_backend *b, int type,
		      int page_tokens, int n_layers, int n_kv_heads, int head_dim, struct kv_pool **out,
		      struct sl_err *err)
{
	const struct kn_kv layout = of_heads(type, page_tokens, n_layers, n_kv_heads, head_dim);
	return kv_pool_make_in(memory, i, ops, b, &layout, out, err);
}

int kv_pool_make_in(struct kv_memory *memory, int i, const struct kn_ops *ops, struct kn_backend *b,
		    const struct kn_kv *of, struct kv_pool **out, struct sl_err *err)
{
	struct kn_kv layout = *of;
	size_t page;
	layout.n_pages = 1;
	int rc = half_of(ops, &layout, &page, err);
	if (rc != 0)
		return rc;
	size_t slab_bytes = kv_memory_slab_bytes(memory);
	int n_slabs = kv_memory_n_slabs(memory);
	size_t half = kv_memory_half_bytes(memory);
	if (half / page > INT32_MAX)
		return sl_errf(err, SL_ELIMIT, "a KV pool of more than %d pages", INT32_MAX);
	layout.n_pages = (int)(half / page);
	struct kv_pool *p = pool_make(ops, b, &layout, n_slabs);
	if (p == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the KV pool");
	p->memory = memory;
	p->clock = kv_memory_clock(memory);
	kv_memory_halves(memory, &p->layout.k, &p->layout.v);
	for (int slab = 0; slab < n_slabs; slab++) {
		/* The pages that lie entirely between its borders. */
		size_t first = (slab_bytes * (size_t)slab + page - 1) / page,
		       end = slab_bytes * ((size_t)slab + 1) / page;
		end = end < half / page ? end : half / page;
		set_slab(p, slab, (int32_t)first, end > first ? (int32_t)(end - first) : 0);
	}
	for (int slab = kv_memory_first(memory, i); slab < kv_memory_first(memory, i + 1); slab++)
		kv_pool_give_slab(p, slab);
	*out = p;
	return 0;
}

void kv_pool_set_groups(struct kv_pool *p, const struct kv_groups *g, const struct kn_place *places)
{
	BUG_IF((int)g->n_layers != p->layout.n_layers || (int)g->page_tokens != p->layout.page_tokens,
	       "KV pool: its pages have %d layers, those of the groups %u", p->layout.n_layers, g->n_layers);
	p->groups = *g;
	p->layout.n_groups = (int)g->n_groups;
	p->layout.places = places;
}

void kv_pool_destroy(struct kv_pool *p)
{
	if (p == NULL)
		return;
	BUG_IF(p->n_free != p->n_pages, "KV pool destroyed with %d pages in use", p->n_pages - p->n_free);
	if (p->memory == NULL) {
		p->ops->mem_free(p->backend, p->layout.k);
		p->ops->mem_free(p->backend, p->layout.v);
	}
	pool_free(p);
}

/* ---- slabs ---- */

uint64_t *kv_pool_clock(struct kv_pool *p) { return p->clock; }
int kv_pool_page_limit(const struct kv_pool *p) { return p->layout.n_pages; }
const struct kv_slab *kv_pool_slab(const struct kv_pool *p, int slab) { return &p->slabs[slab]; }
int kv_pool_slab_of(const struct kv_pool *p, int32_t page) { return p->page_slab[page]; }

void kv_pool_give_slab(struct kv_pool *p, int slab)
{
	struct kv_slab *s = &p->slabs[slab];
	BUG_IF(s->own, "KV pool: slab %d is its own already", slab);
	s->own = true;
	s->free = -1;
	for (int32_t i = s->first + s->n_pages; i-- > s->first;) {
		p->next[i] = s->free;
		s->free = i;
	}
	s->n_free = s->n_pages;
	s->n_idle = 0;
	p->n_pages += s->n_pages;
	p->n_free += s->n_pages;
}

void kv_pool_take_slab(struct kv_pool *p, int slab)
{
	struct kv_slab *s = &p->slabs[slab];
	BUG_IF(!s->own || s->n_free != s->n_pages, "KV pool: slab %d with %d of %d pages free is taken", slab,
	       s->n_free, s->n_pages);
	s->own = false;
	s->free = -1;
	s->n_free = 0;
	p->n_pages -= s->n_pages;
	p->n_free -= s->n_pages;
}

/* The slab with the fewest free pages that has any. */
static int fullest(const struct kv_pool *p)
{
	int best = -1;
	for (int i = 0; i < p->n_slabs; i++) {
		if (p->slabs[i].own && p->slabs[i].n_free > 0 &&
		    (best < 0 || p->slabs[i].n_free < p->slabs[best].n_free))
			best = i;
	}
	BUG_IF(best < 0, "KV pool: %d free pages are in no slab", p->n_free);
	return best;
}

static void check_held(const struct kv_pool *p, int32_t page)
{
	BUG_IF(page < 0 || page >= p->layout.n_pages || p->refs[page] == 0, "KV page %d is not held", page);
}

int kv_page_alloc(struct kv_pool *p, int32_t *out)
{
	if (p->n_free == 0 || fault_hit(FAULT_KV_PAGE))
		return SL_ELIMIT;
	if (p->slabs[p->current].n_free == 0)
		p->current = fullest(p);
	struct kv_slab *slab = &p->slabs[p->current];
	int32_t page = slab->free;
	if (p->memory != NULL)
		kv_memory_write(p->memory, p->current);
	BUG_IF(p->refs[page] != 0, "free KV page %d has %u references", page, p->refs[page]);
	slab->free = p->next[page];
	slab->n_free--;
	p->n_free--;
	p->refs[page] = 1;
	*out = page;
	return 0;
}

void kv_page_ref(struct kv_pool *p, int32_t page)
{
	check_held(p, page);
	BUG_IF(p->refs[page] == UINT32_MAX, "KV page %d has too many references", page);
	p->refs[page]++;
}

void kv_page_unref(struct kv_pool *p, int32_t page)
{
	check_held(p, page);
	if (--p->refs[page] > 0)
		return;
	struct kv_slab *slab = &p->slabs[p->page_slab[page]];
	p->next[page] = slab->free;
	slab->free = page;
	slab->n_free++;
	p->n_free++;
}

void kv_page_set_idle(struct kv_pool *p, int32_t page, bool idle, uint64_t used)
{
	check_held(p, page);
	struct kv_slab *slab = &p->slabs[p->page_slab[page]];
	slab->n_idle += idle ? 1 : -1;
	if (idle && used > slab->used)
		slab->used = used;
}

int kv_page_clone(struct kv_pool *p, int32_t page, int32_t *out)
{
	check_held(p, page);
	int32_t copy;
	int rc = kv_page_alloc(p, &copy);
	if (rc != 0)
		return rc;
	rc = p->ops->page_copy(p->backend, &p->layout, page, copy);
	if (rc != 0) {
		kv_page_unref(p, copy);
		return rc;
	}
	*out = copy;
	return 0;
}

int kv_page_make_own(struct kv_pool *p, int32_t *page)
{
	check_held(p, *page);
	if (p->refs[*page] == 1)
		return 0;
	int32_t copy;
	int rc = kv_page_clone(p, *page, &copy);
	if (rc != 0)
		return rc;
	kv_page_unref(p, *page);
	*page = copy;
	return 0;
}

uint32_t kv_page_refs(const struct kv_pool *p, int32_t page) { return p->refs[page]; }

int kv_pool_n_pages(const struct kv_pool *p) { return p->n_pages; }
int kv_pool_n_free(const struct kv_pool *p) { return p->n_free; }
int kv_page_tokens(const struct kv_pool *p) { return p->layout.page_tokens; }
const struct kn_kv *kv_pool_layout(const struct kv_pool *p) { return &p->layout; }
const struct kv_groups *kv_pool_groups(const struct kv_pool *p) { return &p->groups; }

void kv_pool_validate(const struct kv_pool *p)
{
	int n_pages = 0, n_free = 0;
	for (int i = 0; i < p->n_slabs; i++) {
		const struct kv_slab *slab = &p->slabs[i];
		int without = 0, listed = 0;
		for (int32_t page = slab->first; page < slab->first + slab->n_pages; page++)
			without += p->refs[page] == 0;
		/* If as many pages are listed as have no reference, and the list ends, then exactly these are
		 * listed. */
		for (int32_t page = slab->free; page >= 0 && listed <= slab->n_pages; page = p->next[page], listed++)
			BUG_IF(p->page_slab[page] != i || p->refs[page] != 0,
			       "KV pool: page %d is listed as free in slab %d", page, i);
		BUG_IF(listed != slab->n_free || (slab->own ? without : 0) != listed,
		       "KV pool: slab %d has %d pages without a reference, %d are free, %d are listed", i, without,
		       slab->n_free, listed);
		BUG_IF(!slab->own && without != slab->n_pages, "KV pool: pages of a slab that is not its own are held");
		BUG_IF(slab->n_idle < 0 || slab->n_idle > slab->n_pages - slab->n_free, "KV pool: %d idle pages",
		       slab->n_idle);
		n_pages += slab->own ? slab->n_pages : 0;
		n_free += slab->n_free;
	}
	BUG_IF(n_pages != p->n_pages || n_free != p->n_free, "KV pool: %d pages, %d free; counted %d and %d",
	       p->n_pages, p->n_free, n_pages, n_free);
}
