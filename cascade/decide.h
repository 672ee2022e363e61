/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry to the state machine for again.c.
 */
#ifndef CASCADE_DECIDE_H
#define CASCADE_DECIDE_H

#include "cascade/cascade.h"

/* Starts a new request with a given plan instead of CASC_START. */
void casc_begin_plan(struct casc *c, struct casc_budget *budget, enum casc_plan plan, uint64_t now_ms,
		     struct casc_actions *out);

#endif
