/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools that share memory (engine/kv/kv_memory.h) give each other slabs while they run. Private to engine/; the
 * step thread's.
 *
 * Whose slabs a model that is short of pages gets, in this order:
 *  - one that is nobody's, or of which another pool uses no page;
 *  - one whose pages only the other's prefix tree holds: when the model would have to give up younger ones of
 *    its own instead, or has none to give up;
 *  - where its sequences wait for pages: one of a model that has more than its part, if it has itself less than
 *    its own, from sequences of its tier and of worse ones; one from sequences of worse tiers wherever they
 *    run; one from sequences without credit. These are pre-empted, as few as hold pages of the slab.
 * So memory goes to whom needs it, each model can always have its part back, and better tiers come first
 * over all models. It can't go to and fro: a sequence is never pre-empted for a worse tier's, and within a tier
 * only from beyond a part to below one.
 */
#ifndef ENGINE_KV_REBALANCE_H
#define ENGINE_KV_REBALANCE_H

#include "engine/step/internal.h"

/* Memory for all models that were inspected; none if they don't share any. pages: of each at least. */
void kv_rebalance_create_memory(struct engine *e, uint64_t pages);
void kv_rebalance_destroy_memory(struct engine *e);
/* m is ready, or will never be. */
void kv_rebalance_join(struct eng_model *m);
void kv_rebalance_leave(struct eng_model *m);
/* Pages for `by`, a sequence of m, at best n more; how many there are more. */
uint32_t kv_rebalance_more_pages(struct eng_model *m, const struct sched_seq *by, uint64_t n, uint64_t now_ns);

#endif
