/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of the store, for people: each call waits for its answer.
 */
#ifndef CMD_KEYS_STORE_H
#define CMD_KEYS_STORE_H

#include "base/err.h"
#include "cmd/schema.h"
#include "gateway/identity.h"

struct keys_store;

/* A key as the store has it. id: the digest that its record stands under; a few of its digits name it. */
struct stored_key {
	char id[CACHE_DIGEST_LEN + 1];
	struct identity identity;
};

/* The Redis that cfg means, or the one that `sluice serve` has started. SL_EINVAL: the store is memory,
 * which no other process can write to. */
int keys_store_open(const struct sluice_config *cfg, struct keys_store **out, struct sl_err *err);
void keys_store_close(struct keys_store *s);
/* All of them, the oldest first; *out is the caller's to sl_free. */
int keys_store_list(struct keys_store *s, struct stored_key **out, size_t *n, struct sl_err *err);
/* How many there may be. */
size_t keys_store_room(const struct keys_store *s);
/* Under the SHA-256 of key. */
int keys_store_add(struct keys_store *s, const char *key, const struct identity *id, struct sl_err *err);
/* Writes a record again. */
int keys_store_change(struct keys_store *s, const struct stored_key *k, struct sl_err *err);

#endif
