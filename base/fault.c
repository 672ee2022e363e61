/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"

atomic_bool fault_any_armed;

static struct {
	atomic_long passes;
	atomic_long first; /* pass number of the first failure, 0 = not armed */
	atomic_long times;
} points[FAULT_N_POINTS];

void fault_arm(enum fault_point point, long nth, long times)
{
	atomic_store(&points[point].times, times);
	atomic_store(&points[point].first, atomic_load(&points[point].passes) + nth);
	atomic_store(&fault_any_armed, true);
}

void fault_disarm_all(void)
{
	atomic_store(&fault_any_armed, false);
	for (int i = 0; i < FAULT_N_POINTS; i++)
		atomic_store(&points[i].first, 0);
}

long fault_passes(enum fault_point point) { return atomic_load(&points[point].passes); }

bool fault_hit_slow(enum fault_point point)
{
	long pass = atomic_fetch_add(&points[point].passes, 1) + 1;
	long first = atomic_load(&points[point].first);
	return first != 0 && pass >= first && pass < first + atomic_load(&points[point].times);
}
