/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill and decode apart: pages of prompts that one engine computes and another one decodes from, through the area
 * that both map (engine/handover/hand_area.h). Pages have the bits that they were computed with, so an answer is the
 * same either way.
 *
 *   offer     the computing engine's: as steps of a prompt land, its whole pages are copied into an offer, chunk by chunk
 *   await     the decoding engine's: the sequence waits, as for a page that another one computes, while others start and
 *             run. tick takes pages as they come, straight into the prefix tree, at most HAND_TICK_BYTES in one
 *             iteration of the step thread. Sequences with the same text wait with it
 *   resolved  all pages have come, or more can't be expected: the sequence starts with what is there, and computes the
 *             rest and its last token itself. HANDED says why (base/proto)
 *
 * A page that is taken belongs to the tree at once: between two ticks a wait holds no page, so nothing is left when it
 * ends. Only for models without recurrent layers, with pages in the host's memory. Step thread.
 *
 * Where layers are in groups (kv_groups.h) an index has a record for each group, in their order; one without a payload
 * stands for a page of a windowed group that the offering engine no longer has.
 */
#ifndef ENGINE_KV_HAND_H
#define ENGINE_KV_HAND_H

#include <stdatomic.h>

#include "base/proto/proto.h"
#include "engine/handover/hand_area.h"
#include "engine/kv/prefix.h"
#include "engine/kv/prefix_disk.h"

enum {
	HAND_TICK_BYTES = 4 << 20,
	HAND_TICK_MS = 1,     /* between two looks, while the step thread has nothing else to do */
	HAND_SPARE_MS = 1000, /* an offer's lease is so much longer than its reader waits */
};

struct kv_hand;
struct kv_hand_wait;

struct kv_hand_config {
	struct hand_area *area;
	struct hand_writer *writer; /* NULL: this engine offers nothing */
	struct prefix_tree *prefix;
	struct kv_pool *pool; /* in the host's memory */
	uint32_t row;         /* of a sequence's pages: numbers for each group */
	const void *model;    /* bytes that describe everything that keys and values depend on */
	size_t n_model;
	const atomic_ullong *steps; /* that the engine has run */
	/* A wait has ended. */
	void (*handed)(void *ctx, uint64_t id, const struct proto_handed *m);
	void *ctx;
};

/* Of a sequence; zeros: neither offers nor awaits. */
struct kv_hand_turn {
	struct proto_hand ask; /* HAND_OFFER, until the offer ends */
	uint64_t lease_ns;
	uint32_t next; /* page index to be offered next */
	bool begun;
	struct disk_key key; /* of the page before it */

	struct kv_hand_wait *wait;  /* NULL: it waits for nothing */
	struct proto_handed result; /* of the last wait, until it is reported */
	uint32_t n_came;            /* tokens in its pages */
	unsigned long long steps;   /* of the engine when all pages were there */
	bool unreported;
};

struct kv_hand_text {
	uint64_t salt;
	struct prefix_origin origin;
	const int32_t *tokens;
	uint32_t n; /* of the prompt, of which the last must be computed by the engine that decodes */
};

/* SL_ENOMEM. */
int kv_hand_create(const struct kv_hand_config *cfg, struct kv_hand **out);
/* Nobody may wait. NULL is allowed. */
void kv_hand_destroy(struct kv_hand *h);

/* ---- the engine that computes ---- */

/* The sequence offers its prompt's pages. */
void kv_hand_offer(struct kv_hand_turn *t, const struct proto_hand *m, uint64_t now_ns);
/* The first n_past tokens are in pages[], [groups][row]. */
void kv_hand_publish(struct kv_hand *h, struct kv_hand_turn *t, const struct kv_hand_text *text, uint32_t n_past,
		     const int32_t *pages, uint64_t now_ns);
/* The sequence ends: what it has not offered does not come. */
void kv_hand_end(struct kv_hand *h, struct kv_hand_turn *t);

/* ---- the engine that decodes ---- */

/* The sequence, which has not started, awaits its prompt's pages. Reports at once if it can't. */
void kv_hand_await(struct kv_hand *h, struct kv_hand_turn *t, uint64_t id, const struct kv_hand_text *text,
		   const struct proto_hand *m, uint64_t now_ns);
/* No more pages come than those that are offered now. */
void kv_hand_over(struct kv_hand_turn *t);
/* Whether a sequence with this text waits: w is then woken in the tree. match: of the text, now. */
bool kv_hand_waits(struct kv_hand *h, const struct kv_hand_text *text, const struct prefix_match *match,
		   struct prefix_waiter *w);
/* It starts: the result is reported, if it was not. */
void kv_hand_started(struct kv_hand *h, struct kv_hand_turn *t, uint64_t id);
/* It ends, or no longer wants to wait. Others that wait with it are woken. */
void kv_hand_leave(struct kv_hand *h, struct kv_hand_turn *t);

/* Waiters may have been woken. */
void kv_hand_tick(struct kv_hand *h, uint64_t now_ns);
/* Whether tick is to be called again within HAND_TICK_MS. */
bool kv_hand_waiting(const struct kv_hand *h);

#endif
