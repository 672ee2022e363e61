/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for the pages of several pools, in slabs that move between pools. A slab belongs to one pool or to none. Every
 * pool maps all of the memory as pages of its own size, numbered from the start, and uses the pages that lie entirely
 * in its slabs. So pools of different layouts can exchange slabs without moving data. A pool that is alone has slabs
 * too, so that memory can be given back a slab at a time.
 *
 * A pool's share of the slabs is its initial number, which it can always regain (engine/step/kv_rebalance.h). Shares
 * hold about the same number of pages each. Slabs move on the step thread; shares and sizes are constant.
 */
#ifndef ENGINE_KV_MEMORY_H
#define ENGINE_KV_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/kernels.h"

enum { KV_MEMORY_POOLS = 64, KV_MEMORY_SLABS = 128 };
/* Instead of an owner: no pool; none, and no pool may take it, since its memory was given back to the system. */
enum { KV_MEMORY_NONE = -1, KV_MEMORY_WITHHELD = -2 };

struct kv_memory;

/* page_bytes[n]: the size of each pool's pages, keys and values together. wanted[n]: pages of each pool, which set its
 * share; NULL: equally many. SL_ELIMIT: not even one slab for each. SL_ENOMEM. The memory comes from b, which must
 * outlive it. */
int kv_memory_create(const struct kn_ops *ops, struct kn_backend *b, uint64_t bytes, const size_t *page_bytes,
		     const uint64_t *wanted, int n, struct kv_memory **out, struct sl_err *err);
void kv_memory_destroy(struct kv_memory *m);

int kv_memory_n_slabs(const struct kv_memory *m);
/* Bytes for keys, and as many for values. */
size_t kv_memory_slab_bytes(const struct kv_memory *m);
/* Of the keys of all slabs: the last slab of a pool that is alone may be smaller than others. */
size_t kv_memory_half_bytes(const struct kv_memory *m);
void kv_memory_halves(const struct kv_memory *m, void **k, void **v);
/* The share of pool i: slabs first(i) … first(i + 1) - 1. */
int kv_memory_first(const struct kv_memory *m, int i);
int kv_memory_part(const struct kv_memory *m, int i);
uint64_t *kv_memory_clock(struct kv_memory *m);

/* The pool that has the slab, or KV_MEMORY_NONE or _WITHHELD. */
int kv_memory_owner(const struct kv_memory *m, int slab);
void kv_memory_set_owner(struct kv_memory *m, int slab, int i);
int kv_memory_n_owned(const struct kv_memory *m, int i);

/* ---- memory that the system gets back ---- */

/* Pages of the slab are being written. */
void kv_memory_write(struct kv_memory *m, int slab);
/* Whether the slab takes memory: its pages were written since it was made or discarded. */
bool kv_memory_is_written(const struct kv_memory *m, int slab);
/* Gives the slab's memory back to the system; the contents of its pages are lost. Returns the bytes; 0 for memory of a
 * device, which is kept. */
uint64_t kv_memory_discard(struct kv_memory *m, int slab);
/* Bytes of keys and values: of the slab, of all withheld ones. */
uint64_t kv_memory_bytes_of(const struct kv_memory *m, int slab);
uint64_t kv_memory_withheld(const struct kv_memory *m);

#endif
