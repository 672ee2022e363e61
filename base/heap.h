/* SPDX-License-Identifier: Apache-2.0
 *
 * An intrusive pairing heap (Fredman, Sedgewick, Sleator, Tarjan, "The pairing heap", 1986): the least node is the
 * root, inserting takes one comparison, removing any node takes amortized O(log n). Nothing allocates, so nothing can
 * fail. A node outside a heap has `in` unset.
 */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>

struct heap_node {
	struct heap_node *child, *next, *prev; /* prev: the left sibling, or the parent of a first child */
	bool in;
};

/* True when a comes before b. Must not change while both are in a heap. */
typedef bool heap_before(const struct heap_node *a, const struct heap_node *b);

struct heap {
	struct heap_node *top; /* NULL: empty */
	heap_before *before;
	size_t n;
};

#define heap_entry(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

static inline void heap_init(struct heap *h, heap_before *before) { *h = (struct heap){.before = before}; }

void heap_insert(struct heap *h, struct heap_node *n);
/* BUG when n is in no heap; it must be in this one. */
void heap_remove(struct heap *h, struct heap_node *n);

/* Calls see for at most `most` nodes, each before its descendants. Where it returns false, the descendants, which do
 * not come before the node, are skipped. */
void heap_walk(const struct heap *h, size_t most, bool (*see)(void *ctx, struct heap_node *n), void *ctx);

#endif
