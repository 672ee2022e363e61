/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/sharing/prefix_registry.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

const char prefix_registry[] = "sluice-prefixes";

uint64_t prefix_digest(const void *messages, size_t n) { return XXH3_64bits(messages, n); }

static void key_of(struct cache_key *key, uint64_t tenant, const char *name)
{
	char part[PREFIX_NAME_BYTES + 24];
	int n = snprintf(part, sizeof part, "%016llx:%s", (unsigned long long)tenant, name);
	cache_key_make(key, CACHE_SESSION, prefix_registry, part, (size_t)n);
}

/* Stores the struct itself: readers of another version or size ignore it. Callers keep names within their bounds. */
void prefix_put(struct cache_client *cl, struct cache_op *op, const struct prefix_entry *e, cache_done *done)
{
	struct cache_key key;
	key_of(&key, e->tenant, e->name);
	cache_put(cl, op, &key, PREFIX_VERSION, e, sizeof *e, PREFIX_KEEP_MS, done);
}

void prefix_forget(struct cache_client *cl, struct cache_op *op, uint64_t tenant, const char *name, cache_done *done)
{
	struct cache_key key;
	key_of(&key, tenant, name);
	cache_delete(cl, op, &key, done);
}

bool prefix_read(const uint8_t *bytes, size_t n, struct prefix_entry *out)
{
	if (n != sizeof *out)
		return false;
	memcpy(out, bytes, n);
	return memchr(out->model, '\0', sizeof out->model) != NULL &&
	       memchr(out->name, '\0', sizeof out->name) != NULL &&
	       memchr(out->response, '\0', sizeof out->response) != NULL;
}
