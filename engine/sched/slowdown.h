/* SPDX-License-Identifier: Apache-2.0
 *
 * Is what computes slowed for a while? A device by its temperature or power, as its driver reports; a processor by
 * others that use it, as the kernel reports (Documentation/accounting/psi.rst). With hysteresis:
 *
 *   CALM ──two of three readings tell of it──► SLOWED ──SLOWDOWN_QUIET readings in a row do not──► CALM
 *
 * A source that comes and goes more than SLOWDOWN_TURNS times in SLOWDOWN_TURNS_S is not steady: it then stays SLOWED
 * for SLOWDOWN_TURNS_S after it was last told of. Readings that contradict themselves are ignored.
 *
 * Pure: the caller reads, about twice a second.
 */
#ifndef ENGINE_SLOWDOWN_H
#define ENGINE_SLOWDOWN_H

#include <stdbool.h>
#include <stdint.h>

enum { SLOWDOWN_QUIET = 20, SLOWDOWN_TURNS = 6, SLOWDOWN_TURNS_S = 300 };

/* Sources. */
enum { SLOWDOWN_DEVICE, SLOWDOWN_CPU, SLOWDOWN_N };

struct slowdown_reading {
	uint64_t now_ns;
	bool has_device, has_cpu;
	uint32_t device_slowed;  /* bits of enum proto_slowed */
	uint64_t cpu_stalled_us; /* so far: while a task waited for a processor */
};

struct slowdown {
	struct slowdown_source {
		uint8_t last;   /* bits: of the last eight readings, the latest first */
		uint8_t n_calm; /* readings in a row without it, while slowed */
		bool slowed;
		bool unsteady;
		uint64_t told_ns;                  /* last told of it */
		uint64_t turns_ns[SLOWDOWN_TURNS]; /* when it became slowed, a ring */
		uint8_t n_turns;
	} of[SLOWDOWN_N];
	uint64_t at_ns, stalled_us; /* of the last reading with has_cpu; 0: none */
	double stalled;             /* share of time, a moving average */
};

/* What has changed with a reading, by source: bits. */
struct slowdown_news {
	unsigned slowed, calm, unsteady;
};

struct slowdown_news slowdown_take(struct slowdown *s, const struct slowdown_reading *r);
/* Is anything slowed? */
bool slowdown_is(const struct slowdown *s);

#endif
