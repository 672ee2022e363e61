/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots of engines that compute nothing themselves (echo, remote): a bounded number of answers runs at once; the others
 * wait in one queue per priority. Predictions know the remaining need of every request present, but not future
 * arrivals.
 *
 * Thread: the owner's.
 *
 *   NO_CREDIT ──run_slot_take──► RUNNING, or QUEUED while all slots are taken
 *   QUEUED ──run_slot_leave of another──► RUNNING       any ──run_slot_leave──► GONE
 */
#ifndef ENGINE_RUN_SLOTS_H
#define ENGINE_RUN_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/proto/proto.h"

enum { RUN_MAX_SLOTS = 4096 };

enum run_slot_state { RUN_SLOT_NO_CREDIT, RUN_SLOT_QUEUED, RUN_SLOT_RUNNING, RUN_SLOT_GONE };

/* One answer's; embedded in it. */
struct run_slot {
	struct list node; /* in a line, or among the placed */
	enum run_slot_state state;
	uint8_t priority;
	uint64_t running_ns;
	double each_ns; /* that it needs a slot for */
};

/* The slots of one model. most 0: unbounded. */
struct run_slots {
	uint32_t most, n_running;
	struct list queues[PROTO_PRIORITIES];
	uint32_t n_waiting[PROTO_PRIORITIES]; /* in line, or about to be */
	struct list running;
	double need_ns; /* of all that are here, together */
};

void run_slots_init(struct run_slots *p, uint32_t most);
/* A new request without credit that needs a slot for each_ns. */
void run_slot_enter(struct run_slots *p, struct run_slot *w, uint8_t priority, double each_ns);
/* On the first credit. True: RUNNING; false: QUEUED. */
bool run_slot_take(struct run_slots *p, struct run_slot *w, uint64_t now_ns);
/* w ends. Returns the request that takes its slot, or NULL. */
struct run_slot *run_slot_leave(struct run_slots *p, struct run_slot *w, uint64_t now_ns);

/* Predicted wait for a slot with `ahead` requests before it. */
uint64_t run_slots_wait_ns(const struct run_slots *p, uint32_t ahead, uint64_t now_ns);
/* Number of requests before a new one of this priority. */
uint32_t run_slots_ahead(const struct run_slots *p, uint8_t priority);
void run_slots_load(const struct run_slots *p, uint64_t first_ns, uint64_t now_ns, struct proto_load *out);

#endif
