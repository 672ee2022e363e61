/* SPDX-License-Identifier: Apache-2.0
 *
 * A wait is predicted from the present: a running request keeps its slot for its remaining need; queued requests then
 * take slots in order, each for the mean need of all.
 */
#include "engine/sched/run_slots.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/percentile.h"

static uint8_t line_of(uint8_t priority) { return priority < PROTO_PRIORITIES ? priority : PROTO_PRIORITIES - 1; }

void run_slots_init(struct run_slots *p, uint32_t most)
{
	*p = (struct run_slots){.most = most < RUN_MAX_SLOTS ? most : RUN_MAX_SLOTS};
	for (int i = 0; i < PROTO_PRIORITIES; i++)
		list_init(&p->queues[i]);
	list_init(&p->running);
}

void run_slot_enter(struct run_slots *p, struct run_slot *w, uint8_t priority, double each_ns)
{
	*w = (struct run_slot){.state = RUN_SLOT_NO_CREDIT, .priority = line_of(priority), .each_ns = each_ns};
	p->need_ns += each_ns;
	list_init(&w->node);
	p->n_waiting[w->priority]++;
}

static void occupy(struct run_slots *p, struct run_slot *w, uint64_t now_ns)
{
	list_remove(&w->node);
	list_push_back(&p->running, &w->node);
	w->state = RUN_SLOT_RUNNING;
	w->running_ns = now_ns;
	p->n_waiting[w->priority]--;
	p->n_running++;
}

bool run_slot_take(struct run_slots *p, struct run_slot *w, uint64_t now_ns)
{
	BUG_IF(w->state != RUN_SLOT_NO_CREDIT, "a slot is asked for in state %d", (int)w->state);
	if (p->most == 0 || p->n_running < p->most) {
		occupy(p, w, now_ns);
		return true;
	}
	w->state = RUN_SLOT_QUEUED;
	list_push_back(&p->queues[w->priority], &w->node);
	return false;
}

struct run_slot *run_slot_leave(struct run_slots *p, struct run_slot *w, uint64_t now_ns)
{
	enum run_slot_state was = w->state;
	list_remove(&w->node);
	w->state = RUN_SLOT_GONE;
	p->need_ns -= w->each_ns;
	if (was != RUN_SLOT_RUNNING) {
		p->n_waiting[w->priority]--;
		return NULL;
	}
	p->n_running--;
	for (int i = 0; i < PROTO_PRIORITIES; i++) {
		if (list_empty(&p->queues[i]))
			continue;
		struct run_slot *next = list_entry(p->queues[i].next, struct run_slot, node);
		occupy(p, next, now_ns);
		return next;
	}
	return NULL;
}

uint32_t run_slots_ahead(const struct run_slots *p, uint8_t priority)
{
	uint32_t n = 0;
	for (int i = 0; i <= line_of(priority); i++)
		n += p->n_waiting[i];
	return n;
}

/* The mean need of all requests here. */
static double mean_need(const struct run_slots *p)
{
	uint32_t n = p->n_running;
	for (int i = 0; i < PROTO_PRIORITIES; i++)
		n += p->n_waiting[i];
	return n > 0 && p->need_ns > 0 ? p->need_ns / n : 0;
}

/* The remaining needs of running requests, sorted. */
static uint32_t what_is_left(const struct run_slots *p, uint64_t now_ns, double left[RUN_MAX_SLOTS])
{
	uint32_t n = 0;
	list_each(it, &p->running) {
		const struct run_slot *w = list_entry(it, struct run_slot, node);
		double rest = w->each_ns - (double)(now_ns - w->running_ns);
		left[n++] = rest > w->each_ns / 16 ? rest : w->each_ns / 16;
	}
	if (n > 1)
		qsort(left, n, sizeof *left, percentile_ascending);
	return n;
}

static double wait_of(const double *left, uint32_t n, uint32_t n_free, uint32_t ahead, double each)
{
	if (ahead < n_free || n == 0)
		return 0;
	uint32_t k = ahead - n_free;
	uint32_t rounds = k / n;
	return left[k % n] + rounds * each;
}

uint64_t run_slots_wait_ns(const struct run_slots *p, uint32_t ahead, uint64_t now_ns)
{
	double left[RUN_MAX_SLOTS];
	if (p->most == 0 || ahead < p->most - p->n_running)
		return 0;
	uint32_t n = what_is_left(p, now_ns, left);
	return (uint64_t)wait_of(left, n, p->most - p->n_running, ahead, mean_need(p));
}

void run_slots_load(const struct run_slots *p, uint64_t first_ns, uint64_t now_ns, struct proto_load *out)
{
	double left[RUN_MAX_SLOTS], each = mean_need(p);
	uint32_t n = p->most > 0 ? what_is_left(p, now_ns, left) : 0, n_free = p->most - p->n_running;
	*out = (struct proto_load){0};
	for (int i = 0; i < PROTO_PRIORITIES; i++) {
		double ns = (double)first_ns +
			    (p->most > 0 ? wait_of(left, n, n_free, run_slots_ahead(p, (uint8_t)i), each) : 0);
		out->of[i] = (struct proto_line){.waiting = p->n_waiting[i],
						 .wait_us = (uint32_t)(ns / 1e3 < 4e9 ? ns / 1e3 : 4e9),
						 .places_free = p->most > 0 ? n_free : UINT32_MAX,
						 .us_per_place = p->most > 0 ? (uint32_t)(each / 1e3 / p->most) : 0};
	}
}
