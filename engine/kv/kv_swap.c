/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots are the pages of several pieces of pinned memory; free slots form a stack of their numbers. Pinning 4 GiB takes
 * a second or more, so a model starts with one piece and another thread adds the others. That thread writes a piece's
 * address and then their number; the step thread puts the slots of new pieces on its stack.
 */
#include "engine/kv/kv_swap.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/kv_type.h"

enum { TRIAL_PAGES = 8, TRIALS = 3 };

struct kv_swap {
	const struct kn_ops *ops;
	struct kn_backend *backend;
	struct kv_pool *pool;
	uint8_t **pieces; /* [most pieces], the first n_pieces of them; each has per_piece slots, the last one fewer */
	atomic_uint n_pieces;
	uint32_t per_piece;
	size_t page_bytes;
	int32_t *free;                  /* [most], the first n_free of them */
	uint32_t most, n_slots, n_free; /* slots of all pieces; of those whose slots were put on the stack */
	double page_ns;                 /* of one copy */
};

static void *slot_at(const struct kv_swap *s, int32_t slot)
{
	uint32_t i = (uint32_t)slot;
	return s->pieces[i / s->per_piece] + (size_t)(i % s->per_piece) * s->page_bytes;
}

static uint32_t slots_of_pieces(const struct kv_swap *s, uint32_t n)
{
	uint64_t slots = (uint64_t)n * s->per_piece;
	return slots < s->most ? (uint32_t)slots : s->most;
}

/* Puts the slots of new pieces on the stack. */
static void take_pieces(struct kv_swap *s)
{
	uint32_t n = slots_of_pieces(s, atomic_load_explicit(&s->n_pieces, memory_order_acquire));
	while (s->n_slots < n)
		s->free[s->n_free++] = (int32_t)s->n_slots++;
}

int kv_swap_grow(struct kv_swap *s)
{
	uint32_t n = atomic_load_explicit(&s->n_pieces, memory_order_relaxed);
	uint32_t slots = slots_of_pieces(s, n + 1) - slots_of_pieces(s, n);
	void *memory;
	if (slots == 0)
		return SL_ELIMIT;
	if (s->ops->host_alloc(s->backend, slots * s->page_bytes, &memory) != 0)
		return SL_ENOMEM;
	s->pieces[n] = memory;
	atomic_store_explicit(&s->n_pieces, n + 1, memory_order_release);
	return 0;
}

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
	size_t page = 2 * kn_kv_page_bytes(kv_pool_layout(p));
	if (ops->page_out == NULL)
		return sl_errf(err, SL_EUNSUPPORTED, "the backend %s swaps no pages", ops->name);
	uint64_t n = bytes / page, most = (uint64_t)kv_pool_page_limit(p) * 4;
	n = n < most ? n : most;
	n = n < INT32_MAX ? n : INT32_MAX;
	if (n == 0)
		return sl_errf(err, SL_ELIMIT, "%llu bytes for swapped pages are less than one of %zu bytes",
			       (unsigned long long)bytes, page);
	uint64_t per_piece = KV_SWAP_PIECE / page > 0 ? KV_SWAP_PIECE / page : 1;
	struct kv_swap *s = sl_zalloc(sizeof *s);
	int32_t *slots = sl_zalloc_n((size_t)n, sizeof *slots);
	uint8_t **pieces = sl_zalloc_n((size_t)(n / per_piece + 1), sizeof *pieces);
	if (s != NULL)
		*s = (struct kv_swap){.ops = ops,
				      .backend = b,
				      .pool = p,
				      .pieces = pieces,
				      .per_piece = (uint32_t)per_piece,
				      .page_bytes = page,
				      .free = slots,
				      .most = (uint32_t)n};
	if (s == NULL || slots == NULL || pieces == NULL || kv_swap_grow(s) != 0) {
		sl_free(s);
		sl_free(slots);
		sl_free(pieces);
		return sl_errf(err, SL_ENOMEM, "no memory on the host for %llu swapped pages of %zu bytes",
			       (unsigned long long)(n < per_piece ? n : per_piece), page);
	}
	take_pieces(s);
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
	for (uint32_t i = 0; i < atomic_load(&s->n_pieces); i++)
		s->ops->host_free(s->backend, s->pieces[i]);
	sl_free(s->pieces);
	sl_free(s->free);
	sl_free(s);
}

double kv_swap_ns(const struct kv_swap *s, uint32_t n_pages) { return s->page_ns * n_pages; }

uint32_t kv_swap_n_free(struct kv_swap *s)
{
	take_pieces(s);
	return s->n_free;
}

uint32_t kv_swap_n_slots(struct kv_swap *s)
{
	take_pieces(s);
	return s->n_slots;
}

uint32_t kv_swap_most_slots(const struct kv_swap *s) { return s->most; }

size_t kv_swap_page_bytes(const struct kv_swap *s) { return s->page_bytes; }

uint32_t kv_swap_groups(const struct kv_swap *s, const struct kv_swapped *of, uint32_t index)
{
	const struct kv_groups *g = kv_pool_groups(s->pool);
	return index >= of->first_windowed ? g->n_groups : g->n_full;
}

uint32_t kv_swap_count(const struct kv_swap *s, const struct kv_swapped *of, uint32_t first, uint32_t end)
{
	const struct kv_groups *g = kv_pool_groups(s->pool);
	uint32_t windowed = of->first_windowed > first ? of->first_windowed : first;
	return kv_groups_held(g, windowed, end) - g->n_full * first;
}

/* Copies a page to the next slot. */
static int page_out(struct kv_swap *s, int32_t page, struct kv_swapped *out)
{
	int32_t slot = out->slots[out->n_pages++] = s->free[--s->n_free];
	return s->ops->page_out(s->backend, kv_pool_layout(s->pool), page, slot_at(s, slot));
}

int kv_swap_out(struct kv_swap *s, const int32_t *pages, uint32_t row, struct kv_swapped *out)
{
	uint32_t n = kv_swap_count(s, out, out->first, out->end);
	BUG_IF(out->n_pages > 0 || n == 0, "a sequence is swapped twice, or nothing of it");
	take_pieces(s);
	out->slots = n <= s->n_free ? sl_zalloc_n(n, sizeof *out->slots) : NULL;
	int rc = n > s->n_free ? SL_ELIMIT : out->slots == NULL ? SL_ENOMEM : 0;
	for (uint32_t i = out->first; i < out->end && rc == 0; i++)
		for (uint32_t g = 0; g < kv_swap_groups(s, out, i) && rc == 0; g++)
			rc = page_out(s, pages[(size_t)g * row + i], out);
	if (rc != 0)
		kv_swap_drop(s, out);
	return rc;
}

int kv_swap_in(struct kv_swap *s, const struct kv_swapped *from, uint32_t index, const int32_t *pages, uint32_t row)
{
	BUG_IF(index < from->first || index >= from->end, "swapped index %u of %u to %u", index, from->first,
	       from->end);
	uint32_t at = kv_swap_count(s, from, from->first, index);
	int rc = 0;
	for (uint32_t g = 0; g < kv_swap_groups(s, from, index) && rc == 0; g++)
		rc = s->ops->page_in(s->backend, kv_pool_layout(s->pool), slot_at(s, from->slots[at + g]),
				     pages[(size_t)g * row + index]);
	return rc;
}

void kv_swap_drop(struct kv_swap *s, struct kv_swapped *of)
{
	for (uint32_t i = 0; i < of->n_pages; i++)
		s->free[s->n_free++] = of->slots[i];
	sl_free(of->slots);
	*of = (struct kv_swapped){0};
}
