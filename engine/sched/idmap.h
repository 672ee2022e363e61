/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash table from 64-bit identifiers to nodes embedded in their owners. If growth fails, chains become longer, so an
 * insertion never fails. One thread.
 */
#ifndef ENGINE_IDMAP_H
#define ENGINE_IDMAP_H

#include <stddef.h>
#include <stdint.h>

struct idmap_node {
	struct idmap_node *next;
	uint64_t key;
};

struct idmap {
	struct idmap_node **slots;
	size_t n_slots; /* a power of two */
	size_t n;
	size_t hint; /* all slots before it are empty */
};

#define idmap_entry(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

/* 0 or SL_ENOMEM. */
int idmap_init(struct idmap *m);
/* The table must be empty; BUG otherwise. */
void idmap_dispose(struct idmap *m);
/* NULL when there is none. */
struct idmap_node *idmap_find(const struct idmap *m, uint64_t key);
/* node->key is set by the caller and must not be in the table. */
void idmap_insert(struct idmap *m, struct idmap_node *node);
/* BUG when node is not in the table. */
void idmap_remove(struct idmap *m, struct idmap_node *node);
/* Any node; NULL when empty. For tear-down. */
struct idmap_node *idmap_any(struct idmap *m);

#endif
