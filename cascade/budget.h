/* SPDX-License-Identifier: Apache-2.0
 *
 * The budget of escalations. Private to cascade/; struct casc_budget is in cascade.h.
 */
#ifndef CASCADE_BUDGET_H
#define CASCADE_BUDGET_H

#include "cascade/cascade.h"

void casc_budget_request(struct casc_budget *b, uint64_t now_ms);
/* Counts an escalation and returns true if the last minute's budget allows it: the policy's share of the requests, at
 * least its floor. Otherwise counts nothing and returns false. */
bool casc_budget_take(struct casc_budget *b, const struct casc_policy *p, uint64_t now_ms);

#endif
