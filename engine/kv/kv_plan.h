/* SPDX-License-Identifier: Apache-2.0
 *
 * How many pages each pool gets of one budget. Pure.
 *
 * Contexts come first: every model gets pages for one whole context, or as many as the others, so a model with a short
 * context has all of it before a longer one grows. What is left is shared in equal numbers of pages: models then hold
 * equally many tokens, whatever their layers cost, but none more than it can use.
 */
#ifndef ENGINE_KV_PLAN_H
#define ENGINE_KV_PLAN_H

#include <stdint.h>

struct kv_want {
	uint64_t page_bytes; /* that one of its pages costs, drafts included; 0: it gets none */
	uint64_t context;    /* pages of one whole context */
	uint64_t useful;     /* more pages are never used; at least context */
};

/* pages[n]. Their cost is at most budget. */
void kv_plan(const struct kv_want *wants, int n, uint64_t budget, uint64_t *pages);

#endif
