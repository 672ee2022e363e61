/* SPDX-License-Identifier: Apache-2.0
 *
 * What a gateway thread knows of the prefixes that an engine has: the digests that it published (base/proto/
 * prefix_digest.h), and those of prompts that were sent to it lately, which it may be computing still.
 *
 * Bounded: PROTO_PREFIXES_KEPT digests; of those sent the last one in each of PREFIX_VIEW_SENT places. No clock. One
 * thread.
 */
#ifndef GATEWAY_PREFIX_VIEW_H
#define GATEWAY_PREFIX_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include "base/proto/prefix_digest.h"

enum { PREFIX_VIEW_SENT = 1024 };

struct prefix_view {
	uint64_t *slots; /* n_slots, a power of two; 0: empty */
	size_t n_slots, n;
	struct prefix_sent {
		uint64_t digest, at_ns;
	} * sent; /* PREFIX_VIEW_SENT; NULL: nothing was sent */
};

/* Whose prompt it is, as the engine numbers its models. */
struct prefix_whose {
	uint16_t model;
	uint64_t tenant, cache_salt;
};

/* All zero is an empty one. */
void prefix_view_dispose(struct prefix_view *v);
/* Forgets everything. */
void prefix_view_clear(struct prefix_view *v);
/* A decoded frame. What finds no memory is not known. */
void prefix_view_take(struct prefix_view *v, const struct proto_prefixes *m);
/* The share of the prompt that is cached there, 0 … 1: up to the last border that was published. */
double prefix_view_cached(const struct prefix_view *v, const struct prefix_digests *d,
			  const struct prefix_whose *whose);
/* The prompt goes there now. */
void prefix_view_send(struct prefix_view *v, const struct prefix_digests *d, const struct prefix_whose *whose,
		      uint64_t now_ns);
/* The share of the prompt that was sent there within the last window_ns and has not left since, less the longer ago
 * that
 * is: 0 … 1. */
double prefix_view_recent(const struct prefix_view *v, const struct prefix_digests *d, const struct prefix_whose *whose,
			  uint64_t now_ns, uint64_t window_ns);

#endif
