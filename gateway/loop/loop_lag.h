/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures ten times a second how late a thread's timers fire (sluice_gateway_loop_lag_seconds on /metrics). A blocked
 * loop shows there: a large body, a blocking call, a busy processor. Thread: the loop's.
 */
#ifndef GATEWAY_LOOP_LAG_H
#define GATEWAY_LOOP_LAG_H

#include "gateway/loop/timer.h"

struct loop_lag {
	struct gw_timers *timers;
	struct gw_timer timer;
	uint64_t due_ns;
};

void loop_lag_start(struct loop_lag *l, struct gw_timers *timers);
/* Does nothing if l is not started. */
void loop_lag_stop(struct loop_lag *l);

#endif
