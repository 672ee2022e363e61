/* SPDX-License-Identifier: Apache-2.0
 *
 * Fault points: tests make the Nth allocation, read, write, accept, KV page or launch on a device fail and check that
 * nothing crashes and nothing leaks. A point costs one relaxed load when nothing is armed.
 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>

enum fault_point {
	FAULT_ALLOC,
	FAULT_READ,
	FAULT_WRITE,
	FAULT_ACCEPT,
	FAULT_KV_PAGE,
	FAULT_DEVICE,
	FAULT_N_POINTS,
};

/* Arms a point: its nth next hit (1 = the very next) fails, then `times` - 1 further ones. */
void fault_arm(enum fault_point point, long nth, long times);
void fault_disarm_all(void);
/* How often a point was passed since the process started (only counted while any is armed). */
long fault_passes(enum fault_point point);

extern atomic_bool fault_any_armed;
bool fault_hit_slow(enum fault_point point);

/* True when this pass must fail. */
static inline bool fault_hit(enum fault_point point)
{
	return atomic_load_explicit(&fault_any_armed, memory_order_relaxed) && fault_hit_slow(point);
}

#endif
