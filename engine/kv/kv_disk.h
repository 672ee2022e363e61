/* SPDX-License-Identifier: Apache-2.0
 *
 * The tier on disk below a model's prefix tree: pages of texts that were computed are written behind, and a text that
 * comes again is read where that takes less time than computing it. A page from disk has the bits that it was computed
 * with, so an answer is the same either way.
 *
 *   look    a sequence that could start: what the tree lacks, the disk may have. If it pays, pages are allocated, the
 *           reader (disk_tier.h) fills them in place, and the sequence waits meanwhile like one whose prompt another
 *           computes: others start and run. The scheduler looks at waiting sequences in its order, up to 16 of them, so
 *           pages are read ahead by the position in the queue
 *   late    the deadline of a load passed: the sequence computes what has not come
 *   tick    loads that have ended enter the tree, with the pages that came; pages are written behind
 *
 * A load's pages belong to neither tree nor sequence until it ends; slabs that have some can't be taken
 * (kv_disk_holds). Step thread, but for what the tier's threads call.
 */
#ifndef ENGINE_KV_DISK_H
#define ENGINE_KV_DISK_H

#include "engine/kv/prefix.h"
#include "engine/kv/prefix_disk.h"
#include "engine/sched/cost.h"

struct kv_disk;

struct kv_disk_config {
	struct disk_tier *tier;
	struct prefix_tree *prefix;
	struct kv_pool *pool;    /* of one group of layers, in the host's memory */
	const struct cost *cost; /* of the model's steps */
	uint32_t step_tokens;    /* rows of a step of prompts */
	const void *model;       /* bytes that describe everything that keys and values depend on */
	size_t n_model;
	bool always;              /* read and write whatever it costs, without deadlines: for tests */
	void (*nudge)(void *ctx); /* any thread: tick has something to do */
	void *ctx;
};

/* Of a sequence: how often it looked for pages on disk, and how many page indices it should have found since. */
struct kv_disk_turn {
	uint8_t tries;
	uint32_t reach;
};

struct kv_disk_ask {
	uint64_t salt;
	struct prefix_origin origin;
	const int32_t *tokens;
	uint32_t n; /* tokens, of which the last must be computed */
	struct kv_disk_turn *turn;
	struct prefix_waiter *waiter;
};

/* Sets the tree's sink. SL_ENOMEM. */
int kv_disk_create(const struct kv_disk_config *cfg, struct kv_disk **out);
/* Ends all loads. Nobody may wait for one. NULL is allowed. */
void kv_disk_destroy(struct kv_disk *d);

/* True: ask's waiter waits for pages from disk; it is woken in the tree (prefix_woken). match: of the text, now. */
bool kv_disk_look(struct kv_disk *d, const struct kv_disk_ask *ask, const struct prefix_match *match, uint64_t now_ns);
/* How many of the text's tokens would be there if it looked now: at least those of match. Counts nothing. */
uint32_t kv_disk_foresee(struct kv_disk *d, const struct kv_disk_ask *ask, const struct prefix_match *match);
/* True: a waiter was woken. */
bool kv_disk_tick(struct kv_disk *d, uint64_t now_ns);
/* Whether loads hold pages of the slab; whether there are loads at all. */
bool kv_disk_holds(const struct kv_disk *d, int slab);
bool kv_disk_loading(const struct kv_disk *d);
/* Nothing of this owner, or of all, in memory is written any more; what is being loaded for it is dropped. The tier
 * erases what it has (disk_tier_erase). */
void kv_disk_forget(struct kv_disk *d, uint64_t owner, bool all);

#endif
