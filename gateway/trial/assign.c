/* SPDX-License-Identifier: Apache-2.0
 *
 * Each variant draws an exponential time of rate `weight` for the user, from a hash of both; the earliest wins.
 */
#include <math.h>

#include "gateway/trial/trial.h"

/* SplitMix64's finalizer (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* In (0, 1). */
static double uniform(uint64_t user, uint64_t name)
{
	uint64_t h = mix(mix(user + 0x9e3779b97f4a7c15u) ^ name);
	return ((double)(h >> 11) + 0.5) * 0x1p-53;
}

int trial_assign(const struct trial_choice *of, size_t n, uint64_t user)
{
	double earliest = INFINITY;
	int best = -1;
	for (size_t i = 0; i < n; i++) {
		if (of[i].weight <= 0)
			continue;
		double at = -log(uniform(user, of[i].name)) / of[i].weight;
		if (at < earliest) {
			earliest = at;
			best = (int)i;
		}
	}
	return best;
}
