/* SPDX-License-Identifier: Apache-2.0
 *
 * Paged KV (Kwon et al., "Efficient Memory Management for LLM Serving with PagedAttention", 2023):
 * a pool of fixed pages of tokens, reference-counted so that sequences can share a prefix, copied
 * on write. The pool knows no sequences; a page table is a list of page numbers held by its owner.
 * One thread (the step thread).
 */
#ifndef ENGINE_KV_H
#define ENGINE_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "kernels/kernels.h"

struct kv_pool;

/* Bytes of one page of this layout, k and v together. */
size_t kv_page_bytes(int page_tokens, int n_layers, int n_kv_heads, int head_dim);
int kv_pool_create(const struct kn_ops *ops, struct kn_backend *b, int n_pages, int page_tokens,
		   int n_layers, int n_kv_heads, int head_dim, struct kv_pool **out,
		   struct sl_err *err);
/* Every page must be free; BUG otherwise. */
void kv_pool_destroy(struct kv_pool *p);

/* A free page with one reference, or SL_ELIMIT when there is none. */
int kv_page_alloc(struct kv_pool *p, int32_t *out);
void kv_page_ref(struct kv_pool *p, int32_t page);
void kv_page_unref(struct kv_pool *p, int32_t page);
/* A new page with the contents of another. SL_ELIMIT, SL_EIO. */
int kv_page_clone(struct kv_pool *p, int32_t page, int32_t *out);
/* Makes *page writable by its one holder: itself when it has one reference, else a copy (the
 * reference moves to it). SL_ELIMIT, SL_EIO. */
int kv_page_make_own(struct kv_pool *p, int32_t *page);

uint32_t kv_page_refs(const struct kv_pool *p, int32_t page);
int kv_pool_n_pages(const struct kv_pool *p);
int kv_pool_n_free(const struct kv_pool *p);
int kv_page_tokens(const struct kv_pool *p);
const struct kn_kv *kv_pool_layout(const struct kv_pool *p);
void kv_pool_validate(const struct kv_pool *p); /* BUG on a broken invariant */
void kv_pool_dump(const struct kv_pool *p, struct sl_buf *out);

#endif
