/* SPDX-License-Identifier: Apache-2.0
 *
 * The prompts that a thread sends most, by their beginning: what a new process of an engine computes before it gets
 * requests. Counted by the algorithm Space-Saving (Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and
 * top-k elements in data streams", 2005) with counts that halve with time, so a beginning that makes up more than
 * 1/HOT_PROMPTS of the recent requests is always among them.
 *
 * Bounded: HOT_PROMPTS entries, HOT_TEXT_BYTES of text together; a text is kept from its second request on, and for
 * HOT_KEPT_MS at most without another, which later requests of any kind enforce. No clock. One thread.
 */
#ifndef GATEWAY_HOT_PROMPTS_H
#define GATEWAY_HOT_PROMPTS_H

#include "base/buf.h"
#include "base/proto/proto.h"

enum {
	HOT_PROMPTS = 32,
	HOT_KEY_BYTES = 512, /* prompts that agree so far are one entry */
	HOT_LEAST_BYTES = 256,
	HOT_TEXT_BYTES = 4 << 20,
	HOT_ONE_BYTES = 1 << 20,
	HOT_HALF_LIFE_MS = 300 * 1000,
	HOT_RENEW_MS = 5000, /* a text is replaced by a later one of the same beginning so often */
	HOT_KEPT_MS = 1800 * 1000,
};

struct hot_prompt {
	uint64_t key; /* 0: free */
	double heat;  /* at used_ns */
	uint64_t used_ns, text_ns;
	uint16_t model; /* in the link's list */
	uint8_t kind, shared;
	uint64_t tenant, cache_salt;
	struct sl_buf text; /* empty: it is not kept */
};

/* All zero is an empty one. */
struct hot_prompts {
	struct hot_prompt of[HOT_PROMPTS];
	size_t n_bytes; /* of all texts */
	uint64_t swept_ns;
};

/* A request was sent. Prompts below HOT_LEAST_BYTES and those whose results are vectors do not count. */
void hot_prompts_note(struct hot_prompts *h, const struct proto_submit *req, uint64_t now_ns);
/* Those with a text, the hottest first, borrowed until the next call: at most `most`. Drops what is too old. */
int hot_prompts_hottest(struct hot_prompts *h, uint64_t now_ns, const struct hot_prompt **out, int most);
/* Forgets the texts of a tenant. */
void hot_prompts_erase(struct hot_prompts *h, uint64_t tenant);
void hot_prompts_dispose(struct hot_prompts *h);

#endif
