/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix registry: the last prompt of each conversation and chain of responses, and whether the engine has computed
 * it, so that the most used ones are recomputed after a restart of the engine (gateway/answer/warm.h). An entry names
 * the response whose record has the prompt; it holds a digest, no text. In the store it is a tenant of its own, with
 * a tenant's bounds.
 */
#ifndef GATEWAY_PREFIX_REGISTRY_H
#define GATEWAY_PREFIX_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"

enum { PREFIX_VERSION = 1, PREFIX_MODEL_BYTES = 129, PREFIX_NAME_BYTES = 64, PREFIX_KEEP_MS = 24 * 3600 * 1000 };

struct prefix_entry {
	uint64_t tenant, digest, epoch; /* owner of the tokens; digest of the messages; epoch of the engine */
	int64_t used_s;
	uint32_t uses, n_prompt;
	uint8_t cleanse; /* enum cleanse_level of the prompt */
	char model[PREFIX_MODEL_BYTES];
	char name[PREFIX_NAME_BYTES];     /* of the conversation, or of the chain's last response */
	char response[PREFIX_NAME_BYTES]; /* whose record has the prompt */
};

extern const char prefix_registry[]; /* the tenant's name, for cache_list */

uint64_t prefix_digest(const void *messages, size_t n);
void prefix_put(struct cache_client *cl, struct cache_op *op, const struct prefix_entry *e, cache_done *done);
void prefix_forget(struct cache_client *cl, struct cache_op *op, uint64_t tenant, const char *name, cache_done *done);
/* False: not a valid entry. */
bool prefix_read(const uint8_t *bytes, size_t n, struct prefix_entry *out);

#endif
