/* SPDX-License-Identifier: Apache-2.0
 *
 * An intrusive doubly linked ring. A node that is in no list points at itself, so list_remove is
 * always safe after list_init.
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define list_entry(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

/* `it` may be removed inside the loop; its successor may not. */
#define list_each_safe(it, tmp, head) \
	for (struct list *it = (head)->next, *tmp = it->next; it != (head); it = tmp, tmp = it->next)
#define list_each(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)

static inline void list_init(struct list *l) { l->next = l->prev = l; }

static inline bool list_empty(const struct list *l) { return l->next == l; }

static inline void list_push_back(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

static inline void list_push_front(struct list *head, struct list *node) { list_push_back(head->next, node); }

/* Moves all nodes of `from`, in order, to the end of `to`. */
static inline void list_append(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	from->prev->next = to;
	to->prev->next = from->next;
	to->prev = from->prev;
	list_init(from);
}

static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/* All nodes of from go, in their order, to the end of to. */
static inline void list_move_all(struct list *from, struct list *to)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#endif
