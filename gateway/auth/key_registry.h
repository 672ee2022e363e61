/* SPDX-License-Identifier: Apache-2.0
 *
 * The store's keys, for `sluice keys`. Each call blocks until the store responds.
 */
#ifndef GATEWAY_KEY_REGISTRY_H
#define GATEWAY_KEY_REGISTRY_H

#include "base/err.h"
#include "gateway/config/gw_config.h"
#include "gateway/auth/identity.h"

struct key_registry;

/* A stored key. id: its digest; the first digits identify the key in commands. */
struct stored_key {
	char id[CACHE_DIGEST_LEN + 1];
	struct identity identity;
};

/* cfg is borrowed for the call. SL_EINVAL: the store is memory, which another process can't access. */
int key_registry_open(const struct gw_store_settings *cfg, struct key_registry **out, struct sl_err *err);
void key_registry_close(struct key_registry *s);
/* All keys, the oldest first; the caller frees *out. */
int key_registry_list(struct key_registry *s, struct stored_key **out, size_t *n, struct sl_err *err);
/* The maximum number of stored keys. */
size_t key_registry_room(const struct key_registry *s);
/* Creates a key and stores it under its SHA-256; fills in id's start and created_s. The caller wipes key. */
enum { KEY_REGISTRY_KEY_BYTES = 80 };
int key_registry_make(struct key_registry *s, struct identity *id, char key[KEY_REGISTRY_KEY_BYTES],
		      struct sl_err *err);
/* Replaces the record of a stored key. */
int key_registry_change(struct key_registry *s, const struct stored_key *k, struct sl_err *err);

#endif
