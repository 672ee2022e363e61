/* SPDX-License-Identifier: Apache-2.0
 *
 * Paged KV (Kwon et al., "Efficient Memory Management for LLM Serving with PagedAttention", 2023): a pool of fixed
 * pages of tokens, reference-counted so that sequences can share a prefix, copied on write. The pool knows no
 * sequences; a page table is a list of page numbers held by its owner. One thread (the step thread).
 *
 * A page has the layers of one group (kv_groups.h); all groups of a model use the same pool.
 *
 * The pages of a pool lie in slabs, a run of pages each. A pool with memory of its own has one slab; pools that share
 * memory (kv_memory.h) have the slabs currently assigned to them. The room also has the prefix tree (prefix.h) and
 * swapped pages (kv_swap.h). Callers: engine/step, cmd.
 */
#ifndef ENGINE_KV_H
#define ENGINE_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "engine/sched/kv_groups.h"
#include "kernels/kernels.h"

struct kv_pool;
struct kv_memory;

/* Bytes of one page of this layout, k and v together; SIZE_MAX: too many. type: kn_kv's. n_layers: of a page. */
size_t kv_page_bytes(int type, int page_tokens, int n_layers, int n_kv_heads, int head_dim);
/* The same of a layout, whose k, v and n_pages do not matter. */
size_t kv_layout_bytes(const struct kn_kv *layout);
/* Pages of a layout, whose k and v do not matter. SL_EUNSUPPORTED: a type that the backend can't compute with, or
 * latent rows where it has none. SL_EINVAL: impossible sizes; latent rows in pages of an odd number of tokens. */
int kv_pool_make(const struct kn_ops *ops, struct kn_backend *b, const struct kn_kv *layout, struct kv_pool **out,
		 struct sl_err *err);
/* The same for keys and values of heads. */
int kv_pool_create(const struct kn_ops *ops, struct kn_backend *b, int type, int n_pages, int page_tokens, int n_layers,
		   int n_kv_heads, int head_dim, struct kv_pool **out, struct sl_err *err);
/* The i-th pool in shared memory, with its share of the slabs. The memory must outlive it. */
int kv_pool_make_in(struct kv_memory *memory, int i, const struct kn_ops *ops, struct kn_backend *b,
		    const struct kn_kv *layout, struct kv_pool **out, struct sl_err *err);
int kv_pool_create_in(struct kv_memory *memory, int i, const struct kn_ops *ops, struct kn_backend *b, int type,
		      int page_tokens, int n_layers, int n_kv_heads, int head_dim, struct kv_pool **out,
		      struct sl_err *err);
/* Its pages have n_layers of one of several groups; a new pool has one group. places: where each layer of the model
 * lies, borrowed for the pool's life. */
void kv_pool_set_groups(struct kv_pool *p, const struct kv_groups *g, const struct kn_place *places);
/* Every page must be free; BUG otherwise. */
void kv_pool_destroy(struct kv_pool *p);

/* A free page with one reference; SL_ELIMIT: there is none. */
int kv_page_alloc(struct kv_pool *p, int32_t *out);
void kv_page_ref(struct kv_pool *p, int32_t page);
void kv_page_unref(struct kv_pool *p, int32_t page);
/* A new page with the contents of another. SL_ELIMIT, SL_EIO. */
int kv_page_clone(struct kv_pool *p, int32_t page, int32_t *out);
/* Makes *page writable by its only holder: the page itself if it has one reference, otherwise a copy, to which the
 * reference moves. SL_ELIMIT, SL_EIO. */
int kv_page_make_own(struct kv_pool *p, int32_t *page);

/* ---- slabs ---- */

struct kv_slab {
	int32_t first, n_pages; /* the numbers of its pages */
	int32_t free;           /* the first of its free pages, -1: none */
	int32_t n_free;
	int32_t n_idle; /* not free, but reclaimable at once: their contents are unused */
	uint64_t used;  /* by the pool's clock: when an idle page was last used */
	bool own;
};

const struct kv_slab *kv_pool_slab(const struct kv_pool *p, int slab);
int kv_pool_slab_of(const struct kv_pool *p, int32_t page);
/* Assigns the slab to p, or takes it from p (all its pages must be free). */
void kv_pool_give_slab(struct kv_pool *p, int slab);
void kv_pool_take_slab(struct kv_pool *p, int slab);
/* The held page has become unused (since `used` on the clock), or is used again. */
void kv_page_set_idle(struct kv_pool *p, int32_t page, bool idle, uint64_t used);
/* Counts uses; one clock for all pools that share memory. */
uint64_t *kv_pool_clock(struct kv_pool *p);
/* Page numbers are below this. */
int kv_pool_page_limit(const struct kv_pool *p);

uint32_t kv_page_refs(const struct kv_pool *p, int32_t page);
int kv_pool_n_pages(const struct kv_pool *p);
int kv_pool_n_free(const struct kv_pool *p);
int kv_page_tokens(const struct kv_pool *p);
const struct kn_kv *kv_pool_layout(const struct kv_pool *p);
const struct kv_groups *kv_pool_groups(const struct kv_pool *p);
void kv_pool_validate(const struct kv_pool *p); /* BUG on a broken invariant */

#endif
