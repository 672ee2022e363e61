/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages of a model in host memory: those of pre-empted sequences, if copying them out and back is faster than
 * recomputing them. Private to engine/; step thread, except kv_swap_grow.
 *
 * A slot holds one page, byte for byte. Copies and steps take effect in the order of issue (kernels.h), so no caller
 * waits for one: a freed slot may be refilled at once, and a page that was copied out may be reused at once.
 */
#ifndef ENGINE_KV_SWAP_H
#define ENGINE_KV_SWAP_H

#include <stdint.h>

#include "base/err.h"
#include "engine/kv/kv.h"

struct kv_swap;

/* The swapped pages of a sequence. All zero: none. */
struct kv_swapped {
	int32_t *slots; /* [n_pages], owned: by index, of all groups that have the index */
	/* Page indices of the sequence: first … end - 1, of windowed groups from first_windowed on. */
	uint32_t first, first_windowed, end;
	uint32_t n_pages;
	uint32_t n_past; /* tokens in all pages up to the last of them */
};

/* Takes at most `bytes` of host memory for p's pages, at least one page: a first piece of it, kv_swap_grow the others.
 * SL_EUNSUPPORTED: the backend can't; SL_ELIMIT: less than a page; SL_ENOMEM; SL_EIO. Times a few copies, so no step
 * may be in flight. p must outlive it. */
int kv_swap_create(const struct kn_ops *ops, struct kn_backend *b, struct kv_pool *p, uint64_t bytes,
		   struct kv_swap **out, struct sl_err *err);
/* Takes the next piece, of at most KV_SWAP_PIECE bytes and at least a page, which may take tens of milliseconds. One
 * thread at a time, any, beside the step thread. 0; SL_ELIMIT: it has all; SL_ENOMEM: the host has no more. */
enum { KV_SWAP_PIECE = 32 << 20 };
int kv_swap_grow(struct kv_swap *s);
/* BUG if pages are swapped out. s may be NULL. */
void kv_swap_destroy(struct kv_swap *s);

/* The time to copy that many pages out or in, in ns. */
double kv_swap_ns(const struct kv_swap *s, uint32_t n_pages);
/* In the pieces that are there. */
uint32_t kv_swap_n_free(struct kv_swap *s);
uint32_t kv_swap_n_slots(struct kv_swap *s);
/* In all pieces. */
uint32_t kv_swap_most_slots(const struct kv_swap *s);
size_t kv_swap_page_bytes(const struct kv_swap *s);

/* Copies out pages of a sequence, the row pages[groups][row]: those whose indices and n_past *out names. They remain
 * the caller's. *out must be empty otherwise; it is empty after a fault. SL_ELIMIT: too few slots; SL_ENOMEM, SL_EIO:
 * nothing was kept. */
int kv_swap_out(struct kv_swap *s, const int32_t *pages, uint32_t row, struct kv_swapped *out);
/* How many pages that is of the indices first … end - 1, which are among those of `of`. */
uint32_t kv_swap_count(const struct kv_swap *s, const struct kv_swapped *of, uint32_t first, uint32_t end);
/* The groups that have this index, from the first on: the full ones, or all. */
uint32_t kv_swap_groups(const struct kv_swap *s, const struct kv_swapped *of, uint32_t index);
/* Copies the swapped pages of an index into those of the row. 0 or SL_EIO. */
int kv_swap_in(struct kv_swap *s, const struct kv_swapped *from, uint32_t index, const int32_t *pages, uint32_t row);
/* Frees the slots; `of` may be empty and is empty afterwards. */
void kv_swap_drop(struct kv_swap *s, struct kv_swapped *of);

#endif
