/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv/kv_plan.h"

#include <stdbool.h>

static uint64_t least_of(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Pages of one pool at a level of pages for all: whole is set once every context is whole. */
static uint64_t pages_at(const struct kv_want *w, uint64_t level, bool whole)
{
	uint64_t more = least_of(level, w->useful);
	return !whole ? least_of(level, w->context) : more > w->context ? more : w->context;
}

static bool fits(const struct kv_want *wants, int n, uint64_t level, bool whole, uint64_t budget)
{
	for (int i = 0; i < n; i++) {
		uint64_t cost;
		if (__builtin_mul_overflow(wants[i].page_bytes, pages_at(&wants[i], level, whole), &cost) ||
		    cost > budget)
			return false;
		budget -= cost;
	}
	return true;
}

/* The highest level that fits, up to `most`; 0 always does where contexts are not whole. */
static uint64_t highest(const struct kv_want *wants, int n, uint64_t most, bool whole, uint64_t budget)
{
	uint64_t low = 0, high = most;
	while (low < high) {
		uint64_t middle = high - (high - low) / 2;
		if (fits(wants, n, middle, whole, budget))
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

void kv_plan(const struct kv_want *wants, int n, uint64_t budget, uint64_t *pages)
{
	uint64_t context = 0, useful = 0;
	for (int i = 0; i < n; i++) {
		context = wants[i].context > context ? wants[i].context : context;
		useful = wants[i].useful > useful ? wants[i].useful : useful;
	}
	uint64_t level = highest(wants, n, context, false, budget);
	bool whole = level == context;
	if (whole)
		level = highest(wants, n, useful, true, budget);
	for (int i = 0; i < n; i++)
		pages[i] = wants[i].page_bytes > 0 ? pages_at(&wants[i], level, whole) : 0;
}
