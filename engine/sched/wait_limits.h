/* SPDX-License-Identifier: Apache-2.0
 *
 * Bounds on the sequences that wait in the engine, over all tenants. base/fair.h selects the sequences that a newcomer
 * displaces when a bound is reached.
 *
 *   OUT ──wait_limits_enter──► WAITING ──wait_limits_start──► STARTED ──wait_limits_leave──► OUT
 *                                 └──wait_limits_enter of a newcomer──► DISPLACED ──wait_limits_leave──► OUT
 *
 * A request counts its whole fan-out (choices, hypotheses of a beam) plus one for each WAIT_UNIT_BYTES of its prompt.
 * Each bound covers a priority together with the better ones, so worse priorities never keep a newcomer out. Only
 * waiting sequences are displaced; the scheduler pre-empts started ones.
 *
 * Thread: any; the owner holds a lock.
 */
#ifndef ENGINE_WAIT_LIMITS_H
#define ENGINE_WAIT_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/fair.h"
#include "base/proto/proto.h"

enum { WAIT_UNIT_BYTES = 64 << 10 };

enum wait_state { WAIT_OUT, WAIT_WAITING, WAIT_STARTED, WAIT_DISPLACED };

/* Embedded in its owner; zeros: out. */
struct wait_entry {
	struct fair_item waits;
	struct list displaced; /* among a newcomer's victims, until its owner has seen it */
	enum wait_state state;
	uint8_t priority;
	uint32_t n; /* sequences */
};

struct wait_limits {
	struct fair waiting;
	uint64_t held[PROTO_PRIORITIES]; /* sequences that wait or have started */
	uint64_t n_going;
	uint64_t max_waiting, max_running;
};

struct wait_request {
	uint64_t tenant;
	uint8_t priority;
	uint32_t n; /* sequences, at least 1 */
	size_t prompt_bytes;
};

void wait_limits_init(struct wait_limits *l, uint64_t max_waiting, uint64_t max_running);
/* BUG when an entry is left. */
void wait_limits_dispose(struct wait_limits *l);
/* Appends the displaced entries to the list by their `displaced` member; they are DISPLACED, and the caller removes and
 * ends them, also after SL_ENOMEM. SL_ELIMIT: at the bound, no entry is displaced. */
int wait_limits_enter(struct wait_limits *l, struct wait_entry *e, const struct wait_request *ask,
		      struct list *displaced);
/* WAITING → STARTED; no effect in other states. */
void wait_limits_start(struct wait_limits *l, struct wait_entry *e);
/* Any state → OUT. */
void wait_limits_leave(struct wait_limits *l, struct wait_entry *e);

#endif
