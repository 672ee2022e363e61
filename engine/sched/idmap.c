/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sched/idmap.h"

#include "base/alloc.h"
#include "base/err.h"

enum { IDMAP_FIRST = 16 };

static size_t slot_of(uint64_t key, size_t n_slots)
{
	/* Fibonacci hashing: identifiers are often consecutive or share low bits. */
	return (size_t)((key * 0x9e3779b97f4a7c15ull) >> 32) & (n_slots - 1);
}

int idmap_init(struct idmap *m)
{
	*m = (struct idmap){.n_slots = IDMAP_FIRST};
	m->slots = sl_zalloc_n(m->n_slots, sizeof(void *));
	return m->slots != NULL ? 0 : SL_ENOMEM;
}

void idmap_dispose(struct idmap *m)
{
	BUG_IF(m->n != 0, "idmap disposed with %zu nodes in it", m->n);
	sl_free(m->slots);
	*m = (struct idmap){0};
}

struct idmap_node *idmap_find(const struct idmap *m, uint64_t key)
{
	struct idmap_node *node = m->slots[slot_of(key, m->n_slots)];
	while (node != NULL && node->key != key)
		node = node->next;
	return node;
}

static void grow(struct idmap *m)
{
	size_t n_slots = m->n_slots * 2;
	struct idmap_node **slots = sl_zalloc_n(n_slots, sizeof(void *));
	if (slots == NULL)
		return;
	for (size_t i = 0; i < m->n_slots; i++) {
		struct idmap_node *node = m->slots[i], *next;
		for (; node != NULL; node = next) {
			next = node->next;
			struct idmap_node **at = &slots[slot_of(node->key, n_slots)];
			node->next = *at;
			*at = node;
		}
	}
	sl_free(m->slots);
	m->slots = slots;
	m->n_slots = n_slots;
	m->hint = 0;
}

void idmap_insert(struct idmap *m, struct idmap_node *node)
{
	BUG_IF(idmap_find(m, node->key) != NULL, "idmap: the identifier is there already");
	if (m->n >= m->n_slots)
		grow(m);
	size_t slot = slot_of(node->key, m->n_slots);
	node->next = m->slots[slot];
	m->slots[slot] = node;
	m->n++;
	if (slot < m->hint)
		m->hint = slot;
}

void idmap_remove(struct idmap *m, struct idmap_node *node)
{
	struct idmap_node **at = &m->slots[slot_of(node->key, m->n_slots)];
	while (*at != NULL && *at != node)
		at = &(*at)->next;
	BUG_IF(*at == NULL, "idmap: removing a node that is not there");
	*at = node->next;
	node->next = NULL;
	m->n--;
}

struct idmap_node *idmap_any(struct idmap *m)
{
	if (m->n == 0)
		return NULL;
	while (m->slots[m->hint] == NULL)
		m->hint++;
	return m->slots[m->hint];
}
