/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots are the pages of one allocation; free slots form a stack of their numbers.
 */
#include "engine/kv/kv_swap.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/kv_type.h"

enum { TRIAL_PAGES = 8, TRIALS = 3 };

struct kv_swap {
	const struct kn_ops *ops;
	struct kn_backend *backend;
	struct kv_pool *pool;
	uint8_t *memory;
	size_t page_bytes;
	int32_t *free; /* [n_slots], the first n_free of them */
	uint32_t n_slots, n_free;
	double page_ns; /* of one copy */
};

static void *slot_at(const struct kv_swap *s, int32_t slot) { return s->memory + (size_t)slot * s->page_bytes; }

/* Copies pages out and back: the fastest of a few attempts, since other copies may run in between. */
static int time_copies(struct kv_swap *s)
{
	int32_t pages[TRIAL_PAGES];
	int rc = 0, n = 0;
	while (n < TRIAL_PAGES && (uint32_t)n < s->n_slots && kv_page_alloc(s->pool, &pages[n]) == 0)
		n++;
	for (int trial = 0; trial < TRIALS && n > 0 && rc == 0; trial++) {
		uint64_t begin = clock_now_ns();
		for (int32_t i = 0; i < n && rc == 0; i++)
			rc = s->ops->page_out(s->backend, kv_pool_layout(s->pool), pages[i], slot_at(s, i));
		for (int32_t i = 0; i < n && rc == 0; i++)
			rc = s->ops->page_in(s->backend, kv_pool_layout(s->pool), slot_at(s, i), pages[i]);
		if (rc == 0)
			rc = s->ops->settle(s->backend);
		double each = (double)(clock_now_ns() - begin) / (2 * n);
		s->page_ns = trial == 0 || each < s->page_ns ? each : s->page_ns;
	}
	while (n > 0)
		kv_page_unref(s->pool, pages[--n]);
	return rc;
}

int kv_swap_create(const struct kn_ops *ops, struct kn_backend *b, struct kv_pool *p, uint64_t bytes,
		   struct kv_swap **out, struct sl_err *err)
{
	void *memory;
	size_t page = 2 * kn_kv_page_bytes(kv_pool_layout(p));
	if (ops->page_out == NULL)
		return sl_errf(err, SL_EUNSUPPORTED, "the backend %s swaps no pages", ops->name);
	uint64_t n = bytes / page, most = (uint64_t)kv_pool_page_limit(p) * 4;
	n = n < most ? n : most;
	n = n < INT32_MAX ? n : INT32_MAX;
	if (n == 0)
		return sl_errf(err, SL_ELIMIT, "%llu bytes for swapped pages are less than one of %zu bytes",
			       (unsigned long long)bytes, page);
	struct kv_swap *s = sl_zalloc(sizeof *s);
	int32_t *slots = sl_zalloc_n((size_t)n, sizeof *slots);
	if (s == NULL || slots == NULL || ops->host_alloc(b, (size_t)n * page, &memory) != 0) {
		sl_free(s);
		sl_free(slots);
		return sl_errf(err, SL_ENOMEM, "no memory on the host for %llu swapped pages of %zu bytes",
			       (unsigned long long)n, page);
	}
	*s = (struct kv_swap){.ops = ops,
			      .backend = b,
			      .pool = p,
			      .memory = memory,
			      .page_bytes = page,
			      .free = slots,
			      .n_slots = (uint32_t)n,
			      .n_free = (uint32_t)n};
	for (uint32_t i = 0; i < s->n_slots; i++)
		slots[i] = (int32_t)i;
	int rc = time_copies(s);
	if (rc != 0) {
		kv_swap_destroy(s);
		return sl_errf(err, rc, "pages can't be copied to the host: %s", sl_code_name(rc));
	}
	*out = s;
	return 0;
}

void kv_swap_destroy(struct kv_swap *s)
{
	if (s == NULL)
		return;
	BUG_IF(s->n_free != s->n_slots, "%u swapped pages are left", s->n_slots - s->n_free);
	s->ops->host_free(s->backend, s->memory);
	sl_free(s->free);
	sl_free(s);
}

double kv_swap_ns(const struct kv_swap *s, uint32_t n_pages) { return s->page_ns * n_pages; }
uint32_t kv_swap_n_free(const struct kv_swap *s) { return s->n_free; }
uint32_t kv_swap_n_slots(const struct kv_swap *s) { return s->n_slots; }
size_t kv_swap_page_bytes(const struct kv_swap *s) { return s->page_bytes; }

int kv_swap_out(struct kv_swap *s, const int32_t *pages, uint32_t n, uint32_t first, uint32_t n_past,
		struct kv_swapped *out)
{
	BUG_IF(out->n_pages > 0 || n == 0, "a sequence is swapped twice, or nothing of it");
	if (n > s->n_free)
		return SL_ELIMIT;
	int32_t *slots = sl_zalloc_n(n, sizeof *slots);
	if (slots == NULL)
		return SL_ENOMEM;
	*out = (struct kv_swapped){.slots = slots, .first = first, .n_past = n_past};
	for (int rc; out->n_pages < n;) {
		int32_t slot = slots[out->n_pages] = s->free[--s->n_free];
		rc = s->ops->page_out(s->backend, kv_pool_layout(s->pool), pages[out->n_pages++], slot_at(s, slot));
		if (rc != 0) {
			kv_swap_drop(s, out);
			return rc;
		}
	}
	return 0;
}

int kv_swap_in(struct kv_swap *s, const struct kv_swapped *from, uint32_t i, int32_t page)
{
	BUG_IF(i >= from->n_pages, "swapped page %u of %u", i, from->n_pages);
	return s->ops->page_in(s->backend, kv_pool_layout(s->pool), slot_at(s, from->slots[i]), page);
}

void kv_swap_drop(struct kv_swap *s, struct kv_swapped *of)
{
	for (uint32_t i = 0; i < of->n_pages; i++)
		s->free[s->n_free++] = of->slots[i];
	sl_free(of->slots);
	*of = (struct kv_swapped){0};
}
