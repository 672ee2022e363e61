/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots of the echo engine: a bounded number of answers of a model run at once; the others wait in one queue per
 * priority. So the echo engine is overloaded as a real engine is. Its predictions know the remaining need of every
 * request present, but not future arrivals.
 *
 * I/O thread.
 *
 *   NO_CREDIT ──echo_slot_take──► RUNNING, or QUEUED while all slots are taken
 *   QUEUED ──echo_slot_leave of another──► RUNNING       any ──echo_slot_leave──► GONE
 */
#ifndef ENGINE_ECHO_SLOTS_H
#define ENGINE_ECHO_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/proto/proto.h"

enum { ECHO_MAX_SLOTS = 4096 };

enum echo_slot_state { ECHO_NO_CREDIT, ECHO_QUEUED, ECHO_RUNNING, ECHO_GONE };

/* One answer's; embedded in it. */
struct echo_slot {
	struct list node; /* in a line, or among the placed */
	enum echo_slot_state state;
	uint8_t priority;
	uint64_t running_ns;
	double each_ns; /* that it needs a slot for */
};

/* The slots of one model. most 0: unbounded. */
struct echo_slots {
	uint32_t most, n_running;
	struct list queues[PROTO_PRIORITIES];
	uint32_t n_waiting[PROTO_PRIORITIES]; /* in line, or about to be */
	struct list running;
	double need_ns; /* of all that are here, together */
};

void echo_slots_init(struct echo_slots *p, uint32_t most);
/* A new request without credit that needs a slot for each_ns. */
void echo_slot_enter(struct echo_slots *p, struct echo_slot *w, uint8_t priority, double each_ns);
/* On the first credit. True: RUNNING; false: QUEUED. */
bool echo_slot_take(struct echo_slots *p, struct echo_slot *w, uint64_t now_ns);
/* w ends. Returns the request that takes its slot, or NULL. */
struct echo_slot *echo_slot_leave(struct echo_slots *p, struct echo_slot *w, uint64_t now_ns);

/* Predicted wait for a slot with `ahead` requests before it. */
uint64_t echo_slots_wait_ns(const struct echo_slots *p, uint32_t ahead, uint64_t now_ns);
/* Number of requests before a new one of this priority. */
uint32_t echo_slots_ahead(const struct echo_slots *p, uint8_t priority);
void echo_slots_load(const struct echo_slots *p, uint64_t first_ns, uint64_t now_ns, struct proto_load *out);

#endif
