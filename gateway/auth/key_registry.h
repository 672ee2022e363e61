/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of the store, for people: each call waits for its answer.
 */
#ifndef GATEWAY_KEY_REGISTRY_H
#define GATEWAY_KEY_REGISTRY_H

#include "base/err.h"
#include "gateway/config/gw_config.h"
#include "gateway/auth/identity.h"

struct key_registry;

/* A key as the store has it. id: the digest that is its record's name; its first digits name the key. */
struct stored_key {
	char id[CACHE_DIGEST_LEN + 1];
	struct identity identity;
};

/* A Redis; borrowed for the call. SL_EINVAL: the store is memory, which no other process can write to. */
int key_registry_open(const struct gw_store_settings *cfg, struct key_registry **out, struct sl_err *err);
void key_registry_close(struct key_registry *s);
/* All of them, the oldest first; *out is the caller's to sl_free. */
int key_registry_list(struct key_registry *s, struct stored_key **out, size_t *n, struct sl_err *err);
/* How many there may be. */
size_t key_registry_room(const struct key_registry *s);
/* Makes a key and keeps it by its SHA-256; fills id's start and created_s. The caller wipes key. */
enum { KEY_REGISTRY_KEY_BYTES = 80 };
int key_registry_make(struct key_registry *s, struct identity *id, char key[KEY_REGISTRY_KEY_BYTES],
		      struct sl_err *err);
/* Writes a record again. */
int key_registry_change(struct key_registry *s, const struct stored_key *k, struct sl_err *err);

#endif
