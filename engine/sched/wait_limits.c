/* SPDX-License-Identifier: Apache-2.0
 *
 * A newcomer first needs capacity within its own and better priorities. There it may displace tenants that hold more
 * than its own, if that frees enough for its whole fan-out; otherwise it is refused and no sequence is displaced. Then
 * worse priorities are displaced until all waiting sequences fit.
 *
 * Displaced sequences are freed later, by their owner. Their number is bounded: beyond the bound, a newcomer that needs
 * to displace a sequence is refused.
 */
#include "engine/sched/wait_limits.h"

#include "base/err.h"

void wait_limits_init(struct wait_limits *l, uint64_t max_waiting, uint64_t max_running)
{
	*l = (struct wait_limits){.max_waiting = max_waiting, .max_running = max_running};
	fair_init(&l->waiting);
}

void wait_limits_dispose(struct wait_limits *l)
{
	BUG_IF(l->n_going != 0, "%llu requests are still going", (unsigned long long)l->n_going);
	for (int i = 0; i < PROTO_PRIORITIES; i++)
		BUG_IF(l->held[i] != 0, "%llu sequences of priority %d are left", (unsigned long long)l->held[i], i);
	fair_dispose(&l->waiting);
}

static uint8_t line_of(uint8_t priority) { return priority < PROTO_PRIORITIES ? priority : PROTO_PRIORITIES - 1; }

static uint32_t units_of(const struct wait_request *ask)
{
	return ask->n + (uint32_t)(ask->prompt_bytes / WAIT_UNIT_BYTES);
}

static uint64_t held_up_to(const struct wait_limits *l, uint8_t priority)
{
	uint64_t n = 0;
	for (int i = 0; i <= priority; i++)
		n += l->held[i];
	return n;
}

static struct wait_entry *entry_of(struct fair_item *it) { return list_entry(it, struct wait_entry, waits); }

static void displace(struct wait_limits *l, struct fair_item *it, struct list *displaced)
{
	struct wait_entry *e = entry_of(it);
	fair_leave(&l->waiting, it);
	l->held[e->priority] -= e->n;
	l->n_going++;
	e->state = WAIT_DISPLACED;
	list_push_back(displaced, &e->displaced);
}

/* By how much its own priority and better ones are too many for it. */
static uint64_t excess(const struct wait_limits *l, uint8_t priority, uint32_t n)
{
	uint64_t units = fair_units(&l->waiting, priority), held = held_up_to(l, priority) + n;
	uint64_t most = l->max_waiting + l->max_running;
	uint64_t by_units = units >= l->max_waiting ? units - l->max_waiting + 1 : 0,
		 by_held = held > most ? held - most : 0;
	return by_units > by_held ? by_units : by_held;
}

/* Makes room within its own priority, from tenants beyond the newcomer's share: enough, or none leaves. */
static int displace_richer(struct wait_limits *l, const struct wait_request *ask, uint8_t priority,
			   struct list *displaced)
{
	uint32_t units = units_of(ask);
	uint64_t left = excess(l, priority, ask->n), before;
	if (left > fair_richer_units(&l->waiting, ask->tenant, priority, units))
		return SL_ELIMIT;
	while (left > 0) {
		struct fair_item *it = fair_richer(&l->waiting, ask->tenant, priority, units);
		before = it != NULL ? it->units : left;
		if (it != NULL)
			displace(l, it, displaced);
		left = before < left ? left - before : 0;
	}
	return 0;
}

static void displace_worse(struct wait_limits *l, const struct wait_request *ask, uint8_t priority,
			   struct list *displaced)
{
	struct fair_item *it;
	while (excess(l, PROTO_PRIORITIES - 1, ask->n) > 0 && (it = fair_worse(&l->waiting, priority)) != NULL)
		displace(l, it, displaced);
}

int wait_limits_enter(struct wait_limits *l, struct wait_entry *e, const struct wait_request *ask,
		      struct list *displaced)
{
	uint8_t priority = line_of(ask->priority);
	BUG_IF(e->state != WAIT_OUT || ask->n == 0, "an entry that can't wait");
	if (excess(l, PROTO_PRIORITIES - 1, ask->n) > 0 &&
	    l->n_going >= PROTO_PRIORITIES * (l->max_waiting + l->max_running))
		return SL_ELIMIT;
	int rc = displace_richer(l, ask, priority, displaced);
	if (rc != 0)
		return rc;
	displace_worse(l, ask, priority, displaced);
	rc = fair_enter(&l->waiting, &e->waits, ask->tenant, priority, units_of(ask));
	if (rc != 0)
		return rc;
	e->state = WAIT_WAITING;
	e->priority = priority;
	e->n = ask->n;
	l->held[priority] += ask->n;
	return 0;
}

void wait_limits_start(struct wait_limits *l, struct wait_entry *e)
{
	if (e->state != WAIT_WAITING)
		return;
	fair_leave(&l->waiting, &e->waits);
	e->state = WAIT_STARTED;
}

void wait_limits_leave(struct wait_limits *l, struct wait_entry *e)
{
	if (e->state == WAIT_DISPLACED)
		l->n_going--;
	else if (e->state != WAIT_OUT)
		l->held[e->priority] -= e->n;
	fair_leave(&l->waiting, &e->waits);
	e->state = WAIT_OUT;
}
