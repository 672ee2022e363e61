/* SPDX-License-Identifier: Apache-2.0
 *
 * KV rebalancing: pools that share memory (engine/kv/kv_memory.h) move slabs between models at run time. Private to
 * engine/; step thread.
 *
 * A model that is short of pages takes, in this order:
 *  - a free slab, or a slab in which another pool uses no page;
 *  - a slab whose pages only the other model's prefix tree holds, if the model would otherwise evict younger prefixes
 *    of its own or has none to evict;
 *  - while its sequences wait for pages: from a model above its share, if it is below its own, a slab of sequences of
 *    its tier and worse ones; from any model, a slab of sequences of worse tiers; a slab of sequences
 *    without credit. These sequences are pre-empted, as few as hold pages of the slab.
 *
 * Where the memory follows from the host's, pressure on that takes slabs from the models (engine/kv/kv_pressure.h): the
 * prefixes that were used longest ago go, whichever model's they are, and the memory of their slab with them. The slab
 * is withheld until there is memory again, unless its model would have less than one whole context without it; then
 * only its memory goes, and returns as its pages are written.
 *
 * Invariants: every model can regain its share, and better tiers come first across models. Slabs cannot oscillate: no
 * sequence is pre-empted for a worse tier, and within a tier only models above their share yield, and only to models
 * below theirs.
 */
#ifndef ENGINE_KV_REBALANCE_H
#define ENGINE_KV_REBALANCE_H

#include "engine/step/internal.h"

/* Creates the memory that all inspected models share, by their kv_pages; on a device none for a single model. */
void kv_rebalance_create_memory(struct engine *e);
void kv_rebalance_destroy_memory(struct engine *e);
/* Does part of what the pressure on the host's memory asks for (engine.kv_ask). Call it in every iteration. */
void kv_rebalance_follow_pressure(struct engine *e);
/* Releases one slab; makes one usable again. Returns its bytes; 0: there is none. */
uint64_t kv_rebalance_release(struct engine *e);
uint64_t kv_rebalance_restore(struct engine *e);
/* m is ready; m will never be. */
void kv_rebalance_join(struct eng_model *m);
void kv_rebalance_leave(struct eng_model *m);
/* Takes up to n pages for `by`, a sequence of m. Returns how many m gained. */
uint32_t kv_rebalance_more_pages(struct eng_model *m, const struct sched_seq *by, uint64_t n, uint64_t now_ns);
/* Whether other models hold pages that m might get once their sequences end. */
bool kv_rebalance_may_grow(const struct eng_model *m);

#endif
