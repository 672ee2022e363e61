/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/step/turns.h"

#include "base/clock.h"
#include "base/err.h"

void turns_level(struct turn *turns, int n)
{
	uint64_t least = UINT64_MAX, most = 0;
	for (int i = 0; i < n; i++) {
		if (turns[i].demand.load > 0 && turns[i].vtime_ns < least)
			least = turns[i].vtime_ns;
		most = turns[i].vtime_ns > most ? turns[i].vtime_ns : most;
	}
	least = least < UINT64_MAX ? least : most;
	for (int i = 0; i < n; i++) {
		if (turns[i].demand.load == 0 && turns[i].vtime_ns < least)
			turns[i].vtime_ns = least;
	}
}

/* The best tier of what all but i have to do. */
static int best_beside(const struct turn *turns, int n, int i)
{
	int best = SCHED_TIERS;
	for (int k = 0; k < n; k++) {
		if (k != i && turns[k].demand.load > 0 && turns[k].demand.best_tier < best)
			best = turns[k].demand.best_tier;
	}
	return best;
}

int turns_next(const struct turn *turns, int n, const bool *skip)
{
	int least = -1, first = -1;
	for (int i = 0; i < n; i++) {
		if (skip[i])
			continue;
		if (least < 0 || turns[i].vtime_ns < turns[least].vtime_ns)
			least = i;
		if (turns[i].demand.best_prompt < best_beside(turns, n, i))
			first = i;
	}
	if (first >= 0 && turns[first].vtime_ns < turns[least].vtime_ns + TURNS_LEAD_MS * NS_PER_MS)
		return first;
	return least;
}

uint64_t turns_charge(const struct turn *turns, int n, int i, uint64_t took_ns)
{
	uint64_t all = 0, busy = 0;
	for (int k = 0; k < n; k++) {
		all += turns[k].demand.load;
		busy += turns[k].demand.load > 0;
	}
	uint64_t own = turns[i].demand.load;
	if (own == 0 || busy < 2)
		return took_ns;
	/* Its part, in even parts. */
	double part = (double)own * (double)busy / (double)all;
	double least = 1.0 / TURNS_LEAST;
	return (uint64_t)((double)took_ns / (part > least ? part : least));
}
