/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of stored pages. A key is a hash of the page's tokens and of its parent's key, so it names all tokens up to the
 * end of the page. The first parent is a root, a hash of everything else that keys and values depend on, or that must
 * keep them apart: model, variant and salt. A root also has the installation's secret in it, so a client can't search
 * for texts of the same key. 128 bits: that two of 2^32 pages share a key has a chance of 2^-65. Pure.
 */
#ifndef ENGINE_DISK_KEY_H
#define ENGINE_DISK_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct disk_key {
	uint64_t lo, hi;
};

static inline bool disk_key_equal(struct disk_key a, struct disk_key b) { return a.lo == b.lo && a.hi == b.hi; }

/* Of the bytes that describe a model. */
struct disk_key disk_key_model(const uint8_t *secret, size_t n_secret, const void *what, size_t n);
/* variant: of an adapter, zeros for none. salt: of the prefix tree. */
struct disk_key disk_key_root(struct disk_key model, struct disk_key variant, uint64_t salt);
struct disk_key disk_key_next(struct disk_key parent, const int32_t *tokens, uint32_t n);

#endif
