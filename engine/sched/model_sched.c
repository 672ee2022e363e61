/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sched/model_sched.h"

#include "base/clock.h"

void model_sched_level(struct model_share *shares, int n)
{
	uint64_t least = UINT64_MAX, most = 0;
	for (int i = 0; i < n; i++) {
		if (shares[i].demand.load > 0 && shares[i].vtime_ns < least)
			least = shares[i].vtime_ns;
		most = shares[i].vtime_ns > most ? shares[i].vtime_ns : most;
	}
	least = least < UINT64_MAX ? least : most;
	for (int i = 0; i < n; i++) {
		if (shares[i].demand.load == 0 && shares[i].vtime_ns < least)
			shares[i].vtime_ns = least;
	}
}

/* The best tier among the work of all models but i. */
static int best_beside(const struct model_share *shares, int n, int i)
{
	int best = SCHED_TIERS;
	for (int k = 0; k < n; k++) {
		if (k != i && shares[k].demand.load > 0 && shares[k].demand.best_tier < best)
			best = shares[k].demand.best_tier;
	}
	return best;
}

int model_sched_next(const struct model_share *shares, int n, const bool *skip)
{
	int least = -1, first = -1;
	for (int i = 0; i < n; i++) {
		if (skip[i])
			continue;
		if (least < 0 || shares[i].vtime_ns < shares[least].vtime_ns)
			least = i;
		if (shares[i].demand.best_prompt < best_beside(shares, n, i))
			first = i;
	}
	if (first >= 0 && shares[first].vtime_ns < shares[least].vtime_ns + MODEL_SCHED_LEAD_MS * NS_PER_MS)
		return first;
	return least;
}

uint64_t model_sched_charge(const struct model_share *shares, int n, int i, uint64_t took_ns)
{
	uint64_t all = 0, busy = 0;
	for (int k = 0; k < n; k++) {
		all += shares[k].demand.load;
		busy += shares[k].demand.load > 0;
	}
	uint64_t own = shares[i].demand.load;
	if (own == 0 || busy < 2)
		return took_ns;
	/* Its share, relative to an equal share. */
	double part = (double)own * (double)busy / (double)all;
	double least = 1.0 / MODEL_SCHED_LEAST_SHARE;
	return (uint64_t)((double)took_ns / (part > least ? part : least));
}
