/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlines by coarse sweep. All waits in a list have the same length, so they expire in the order in which they were
 * armed. Arming and cancelling are a few pointer writes, and a tick visits expired entries only. If a reload shortens
 * the length, new waits are inserted before older ones that end later. The precision is the tick's (transport.c:
 * 250 ms).
 *
 * Thread: the owner's.
 */
#ifndef GATEWAY_DEADLINE_H
#define GATEWAY_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/list.h"

struct deadline {
	struct list node;
	uint64_t at_ns;
	void (*fire)(struct deadline *d); /* may cancel, arm and free any deadline, itself included */
};

/* Waits of one length, sorted by their end. */
struct deadline_list {
	struct list head;
	uint64_t after_ns;
};

static inline void deadline_list_init(struct deadline_list *l, uint64_t after_ms)
{
	list_init(&l->head);
	l->after_ns = after_ms * NS_PER_MS;
}

/* Applies to waits that begin from now on. */
static inline void deadline_list_set(struct deadline_list *l, uint64_t after_ms) { l->after_ns = after_ms * NS_PER_MS; }

static inline void deadline_init(struct deadline *d, void (*fire)(struct deadline *d))
{
	list_init(&d->node);
	d->at_ns = 0;
	d->fire = fire;
}

static inline void deadline_cancel(struct deadline *d) { list_remove(&d->node); }

static inline bool deadline_armed(const struct deadline *d) { return !list_empty(&d->node); }

/* Starts or restarts the wait in list l; removes it from any other list. */
static inline void deadline_arm(struct deadline_list *l, struct deadline *d, uint64_t now_ns)
{
	list_remove(&d->node);
	d->at_ns = now_ns + l->after_ns;
	struct list *before = l->head.prev;
	while (before != &l->head && list_entry(before, struct deadline, node)->at_ns > d->at_ns)
		before = before->prev;
	list_push_back(before->next, &d->node);
}

static inline void deadline_list_run(struct deadline_list *l, uint64_t now_ns)
{
	while (!list_empty(&l->head)) {
		struct deadline *d = list_entry(l->head.next, struct deadline, node);
		if (d->at_ns > now_ns)
			return;
		list_remove(&d->node);
		d->fire(d);
	}
}

#endif
