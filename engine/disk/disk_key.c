/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/disk/disk_key.h"

#include <xxhash.h>

static struct disk_key of_hash(XXH128_hash_t h) { return (struct disk_key){.lo = h.low64, .hi = h.high64}; }

struct disk_key disk_key_model(const uint8_t *secret, size_t n_secret, const void *what, size_t n)
{
	XXH128_hash_t of_secret = XXH3_128bits(secret, n_secret);
	struct disk_key of_what = of_hash(XXH3_128bits_withSeed(what, n, of_secret.low64));
	return of_hash(XXH3_128bits_withSeed(&of_what, sizeof of_what, of_secret.high64));
}

struct disk_key disk_key_root(struct disk_key model, struct disk_key variant, uint64_t salt)
{
	const uint64_t all[] = {model.hi, variant.lo, variant.hi, salt};
	return of_hash(XXH3_128bits_withSeed(all, sizeof all, model.lo));
}

/* The seed, which clients do not know, enters every step of the hash: there are no tokens that make it forget others.
 */
struct disk_key disk_key_next(struct disk_key parent, const int32_t *tokens, uint32_t n)
{
	XXH128_hash_t h = XXH3_128bits_withSeed(tokens, n * sizeof *tokens, parent.lo);
	const uint64_t all[] = {h.low64, h.high64, n};
	return of_hash(XXH3_128bits_withSeed(all, sizeof all, parent.hi));
}
