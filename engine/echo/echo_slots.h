/* SPDX-License-Identifier: Apache-2.0
 *
 * Places of the echo engine: so many answers of a model go on at once, the others wait in lines, one a
 * priority. So it is overloaded as a real engine is, and its predictions are as good as they can be: what
 * everybody still needs is known, but not what comes later.
 *
 * I/O thread.
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
	double each_ns; /* that it needs a place for */
};

/* Those of one model. most 0: as many as come. */
struct echo_slots {
	uint32_t most, n_running;
	struct list queues[PROTO_PRIORITIES];
	uint32_t n_waiting[PROTO_PRIORITIES]; /* in line, or about to be */
	struct list running;
	double need_ns; /* of all that are here, together */
};

void echo_slots_init(struct echo_slots *p, uint32_t most);
/* A request has come, which will need a place for so long; it has no credit. */
void echo_slot_enter(struct echo_slots *p, struct echo_slot *w, uint8_t priority, double each_ns);
/* Credit has come: true: it has a place; false: it stands in line. */
bool echo_slot_take(struct echo_slots *p, struct echo_slot *w, uint64_t now_ns);
/* It ends. The one that got its place, or NULL. */
struct echo_slot *echo_slot_leave(struct echo_slots *p, struct echo_slot *w, uint64_t now_ns);

/* In how long one with `ahead` others before it gets a place. */
uint64_t echo_slots_wait_ns(const struct echo_slots *p, uint32_t ahead, uint64_t now_ns);
/* Those before a newcomer of this priority. */
uint32_t echo_slots_ahead(const struct echo_slots *p, uint8_t priority);
void echo_slots_load(const struct echo_slots *p, uint64_t first_ns, uint64_t now_ns, struct proto_load *out);

#endif
