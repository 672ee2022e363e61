/* SPDX-License-Identifier: Apache-2.0
 *
 * What cascade/again.c has of the machine.
 */
#ifndef CASCADE_DECIDE_H
#define CASCADE_DECIDE_H

#include "cascade/cascade.h"

/* A request that is new begins with what was planned. */
void casc_begin_plan(struct casc *c, struct casc_budget *budget, enum casc_plan plan, uint64_t now_ms,
		     struct casc_actions *out);

#endif
