/* SPDX-License-Identifier: Apache-2.0
 *
 * The page pool: an array of reference counts and a stack of free page numbers. A page is on the
 * stack exactly when its count is 0. The stack is last in, first out, so a busy pool keeps using the
 * same, warm memory.
 */
#include "engine/kv.h"

#include "base/alloc.h"
#include "base/fault.h"

struct kv_pool {
	const struct kn_ops *ops;
	struct kn_backend *backend;
	struct kn_kv layout;
	uint32_t *refs;  /* [n_pages] */
	int32_t *free;   /* stack of n_free page numbers */
	int n_free;
};

size_t kv_page_bytes(int page_tokens, int n_layers, int n_kv_heads, int head_dim)
{
	size_t n = 2 * sizeof(float);
	if (__builtin_mul_overflow(n, (size_t)page_tokens, &n) ||
	    __builtin_mul_overflow(n, (size_t)n_layers, &n) ||
	    __builtin_mul_overflow(n, (size_t)n_kv_heads, &n) ||
	    __builtin_mul_overflow(n, (size_t)head_dim, &n))
		return SIZE_MAX;
	return n;
}

int kv_pool_create(const struct kn_ops *ops, struct kn_backend *b, int n_pages, int page_tokens,
		   int n_layers, int n_kv_heads, int head_dim, struct kv_pool **out,
		   struct sl_err *err)
{
	size_t half;
	if (n_pages <= 0 || page_tokens <= 0 || n_layers <= 0 || n_kv_heads <= 0 || head_dim <= 0 ||
	    __builtin_mul_overflow(kv_page_bytes(page_tokens, n_layers, n_kv_heads, head_dim) / 2,
				   (size_t)n_pages, &half))
		return sl_errf(err, SL_EINVAL, "a KV pool of %d pages of %d tokens is not possible",
			       n_pages, page_tokens);
	struct kv_pool *p = sl_zalloc(sizeof *p);
	if (p == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the KV pool");
	p->ops = ops;
	p->backend = b;
	p->layout = (struct kn_kv){.type = KN_F32, .n_pages = n_pages, .page_tokens = page_tokens,
				   .n_layers = n_layers, .n_kv_heads = n_kv_heads, .head_dim = head_dim};
	p->refs = sl_zalloc_n((size_t)n_pages, sizeof *p->refs);
	p->free = sl_zalloc_n((size_t)n_pages, sizeof *p->free);
	if (p->refs == NULL || p->free == NULL || ops->mem_alloc(b, half, &p->layout.k) != 0 ||
	    ops->mem_alloc(b, half, &p->layout.v) != 0) {
		if (p->layout.k != NULL)
			ops->mem_free(b, p->layout.k);
		sl_free(p->refs);
		sl_free(p->free);
		sl_free(p);
		return sl_errf(err, SL_ENOMEM, "no memory for a KV pool of %zu MiB", half >> 19);
	}
	for (int i = 0; i < n_pages; i++)
		p->free[i] = n_pages - 1 - i;
	p->n_free = n_pages;
	*out = p;
	return 0;
}

void kv_pool_destroy(struct kv_pool *p)
{
	if (p == NULL)
		return;
	BUG_IF(p->n_free != p->layout.n_pages, "KV pool destroyed with %d pages in use",
	       p->layout.n_pages - p->n_free);
	p->ops->mem_free(p->backend, p->layout.k);
	p->ops->mem_free(p->backend, p->layout.v);
	sl_free(p->refs);
	sl_free(p->free);
	sl_free(p);
}

static void check_held(const struct kv_pool *p, int32_t page)
{
	BUG_IF(page < 0 || page >= p->layout.n_pages || p->refs[page] == 0,
	       "KV page %d is not held", page);
}

int kv_page_alloc(struct kv_pool *p, int32_t *out)
{
	if (p->n_free == 0 || fault_hit(FAULT_KV_PAGE))
		return SL_ELIMIT;
	int32_t page = p->free[--p->n_free];
	BUG_IF(p->refs[page] != 0, "free KV page %d has %u references", page, p->refs[page]);
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
	if (--p->refs[page] == 0)
		p->free[p->n_free++] = page;
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

uint32_t kv_page_refs(const struct kv_pool *p, int32_t page)
{
	return p->refs[page];
}

int kv_pool_n_pages(const struct kv_pool *p) { return p->layout.n_pages; }
int kv_pool_n_free(const struct kv_pool *p) { return p->n_free; }
int kv_page_tokens(const struct kv_pool *p) { return p->layout.page_tokens; }
const struct kn_kv *kv_pool_layout(const struct kv_pool *p) { return &p->layout; }

void kv_pool_validate(const struct kv_pool *p)
{
	int free_count = 0;
	for (int i = 0; i < p->layout.n_pages; i++)
		free_count += p->refs[i] == 0;
	BUG_IF(free_count != p->n_free, "KV pool: %d pages have no reference, %d are on the stack",
	       free_count, p->n_free);
	/* As many on the stack as have no reference, and no number twice: then they are those. */
	for (int i = 0; i < p->n_free; i++)
		BUG_IF(p->free[i] < 0 || p->free[i] >= p->layout.n_pages || p->refs[p->free[i]] != 0,
		       "KV pool: stack entry %d is page %d", i, p->free[i]);
	unsigned char *seen = sl_zalloc_n((size_t)p->layout.n_pages, 1);
	for (int i = 0; i < p->n_free && seen != NULL; i++) {
		BUG_IF(seen[p->free[i]], "KV pool: page %d is free twice", p->free[i]);
		seen[p->free[i]] = 1;
	}
	sl_free(seen);
}

void kv_pool_dump(const struct kv_pool *p, struct sl_buf *out)
{
	buf_printf(out, "kv pool: %d pages of %d tokens, %d free\n", p->layout.n_pages,
		   p->layout.page_tokens, p->n_free);
	for (int i = 0; i < p->layout.n_pages; i++)
		if (p->refs[i] > 1)
			buf_printf(out, "  page %d: %u references\n", i, p->refs[i]);
}
