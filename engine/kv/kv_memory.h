/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for the pages of several pools, in slabs that move between pools. A slab belongs to one pool or to none. Every
 * pool maps all of the memory as pages of its own size, numbered from the start, and uses the pages that lie entirely
 * in its slabs. So pools of different layouts can exchange slabs without moving data.
 *
 * A pool's share of the slabs is its initial number, which it can always regain (engine/step/kv_rebalance.h). Shares
 * hold about the same number of pages each. Slabs move on the step thread; shares and sizes are constant.
 */
#ifndef ENGINE_KV_MEMORY_H
#define ENGINE_KV_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/kernels.h"

enum { KV_MEMORY_POOLS = 64, KV_MEMORY_SLABS = 128 };

struct kv_memory;

/* page_bytes[n]: the size of each pool's pages, keys and values together. SL_ELIMIT: not even one slab for each.
 * SL_ENOMEM. The memory comes from b, which must outlive it. */
int kv_memory_create(const struct kn_ops *ops, struct kn_backend *b, uint64_t bytes, const size_t *page_bytes, int n,
		     struct kv_memory **out, struct sl_err *err);
void kv_memory_destroy(struct kv_memory *m);

int kv_memory_n_slabs(const struct kv_memory *m);
/* Bytes for keys, and as many for values. */
size_t kv_memory_slab_bytes(const struct kv_memory *m);
void kv_memory_halves(const struct kv_memory *m, void **k, void **v);
/* The share of pool i: slabs first(i) … first(i + 1) - 1. */
int kv_memory_first(const struct kv_memory *m, int i);
int kv_memory_part(const struct kv_memory *m, int i);
uint64_t *kv_memory_clock(struct kv_memory *m);

/* The pool that has the slab; -1: none. */
int kv_memory_owner(const struct kv_memory *m, int slab);
void kv_memory_set_owner(struct kv_memory *m, int slab, int i);
int kv_memory_n_owned(const struct kv_memory *m, int i);

#endif
