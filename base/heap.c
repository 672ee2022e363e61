/* SPDX-License-Identifier: Apache-2.0 */
#include "base/heap.h"

#include "base/err.h"

/* Makes the later of two roots the first child of the other. */
static struct heap_node *meld(const struct heap *h, struct heap_node *a, struct heap_node *b)
{
	if (a == NULL || b == NULL)
		return a != NULL ? a : b;
	if (h->before(b, a)) {
		struct heap_node *t = a;
		a = b;
		b = t;
	}
	b->prev = a;
	b->next = a->child;
	if (a->child != NULL)
		a->child->prev = b;
	a->child = b;
	a->next = a->prev = NULL;
	return a;
}

/* One root of a list of siblings: pairs from the left, then melded from the right. */
static struct heap_node *merge_pairs(const struct heap *h, struct heap_node *first)
{
	struct heap_node *pairs = NULL; /* linked by next, the last pair first */
	while (first != NULL) {
		struct heap_node *a = first, *b = a->next;
		first = b != NULL ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b != NULL)
			b->next = b->prev = NULL;
		a = meld(h, a, b);
		a->next = pairs;
		pairs = a;
	}
	struct heap_node *root = NULL;
	while (pairs != NULL) {
		struct heap_node *next = pairs->next;
		pairs->next = NULL;
		root = meld(h, root, pairs);
		pairs = next;
	}
	return root;
}

void heap_insert(struct heap *h, struct heap_node *n)
{
	BUG_IF(n->in, "heap: the node is in a heap already");
	*n = (struct heap_node){.in = true};
	h->top = meld(h, h->top, n);
	h->n++;
}

void heap_remove(struct heap *h, struct heap_node *n)
{
	BUG_IF(!n->in || h->n == 0, "heap: the node is not in it");
	struct heap_node *rest = merge_pairs(h, n->child);
	if (h->top == n) {
		h->top = rest;
	} else {
		if (n->prev->child == n)
			n->prev->child = n->next;
		else
			n->prev->next = n->next;
		if (n->next != NULL)
			n->next->prev = n->prev;
		h->top = meld(h, h->top, rest);
	}
	h->n--;
	*n = (struct heap_node){0};
}

void heap_walk(const struct heap *h, size_t most, bool (*see)(void *ctx, struct heap_node *n), void *ctx)
{
	struct heap_node *n = h->top;
	while (n != NULL && most-- > 0) {
		if (see(ctx, n) && n->child != NULL) {
			n = n->child;
			continue;
		}
		/* On to the next sibling, or that of the nearest ancestor that has one. */
		while (n != NULL && n->next == NULL) {
			while (n->prev != NULL && n->prev->child != n)
				n = n->prev;
			n = n->prev;
		}
		if (n != NULL)
			n = n->next;
	}
}
