/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/generation/routing.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <xxhash.h>

static const double most_above_average = 1.25;

static void weigh(const struct gw_routing *r, const struct route_candidate *c, double parts[GW_ROUTE_PARTS])
{
	parts[GW_ROUTE_OCCUPANCY] = r->weights[GW_ROUTE_OCCUPANCY] * c->occupancy;
	parts[GW_ROUTE_ACTIVE] = r->weights[GW_ROUTE_ACTIVE] * c->n_active;
	parts[GW_ROUTE_CACHE] = -r->weights[GW_ROUTE_CACHE] * c->cached;
	parts[GW_ROUTE_QUEUE] = r->weights[GW_ROUTE_QUEUE] * c->predicted_s;
	parts[GW_ROUTE_RECENT] = -r->weights[GW_ROUTE_RECENT] * c->recent;
}

static double sum(const double parts[GW_ROUTE_PARTS])
{
	double all = 0;
	for (int i = 0; i < GW_ROUTE_PARTS; i++)
		all += parts[i];
	return all;
}

static double cost_of(const struct gw_routing *r, const struct route_candidate *c)
{
	double parts[GW_ROUTE_PARTS];
	weigh(r, c, parts);
	return sum(parts);
}

/* Is a to be preferred to b? The load of one that is bounded: more than `bound` requests. */
static bool is_better(const struct gw_routing *r, const struct route_candidate *a, const struct route_candidate *b,
		      uint64_t key, double bound)
{
	switch ((enum gw_routing_policy)r->policy) {
	case GW_ROUTE_BY_COST: return cost_of(r, a) < cost_of(r, b);
	case GW_ROUTE_ROUND_ROBIN: return false;
	case GW_ROUTE_LEAST_REQUESTS: return a->n_active < b->n_active;
	case GW_ROUTE_BY_PREFIX: {
		bool a_full = a->n_active + 1 > bound, b_full = b->n_active + 1 > bound;
		if (a_full != b_full)
			return b_full;
		return XXH3_64bits_withSeed(&key, sizeof key, a->name) >
		       XXH3_64bits_withSeed(&key, sizeof key, b->name);
	}
	case GW_ROUTE_BY_KV: return a->cached != b->cached ? a->cached > b->cached : a->n_active < b->n_active;
	}
	return false;
}

struct route_choice route_choose(const struct gw_routing *r, const struct route_candidate *all, int n, uint64_t key,
				 uint64_t turn)
{
	struct route_choice choice = {.engine = -1, .policy = r->policy, .n_candidates = n};
	double n_active = 1;
	if (n <= 0)
		return choice;
	for (int i = 0; i < n; i++)
		n_active += all[i].n_active;
	double bound = ceil(most_above_average * n_active / n);
	const struct route_candidate *best = &all[turn % (uint64_t)n];
	for (int i = 1; i < n; i++) {
		const struct route_candidate *c = &all[(turn + (uint64_t)i) % (uint64_t)n];
		if (is_better(r, c, best, key, bound))
			best = c;
	}
	choice.engine = best->engine;
	choice.cached = best->cached;
	weigh(r, best, choice.parts);
	choice.cost = sum(choice.parts);
	return choice;
}

bool route_took_turn(const struct route_choice *c)
{
	return c->cached == 0 || (c->policy != GW_ROUTE_BY_COST && c->policy != GW_ROUTE_BY_KV);
}

static const char *const route_policies[] = {"cost", "round_robin", "least_requests", "prefix", "kv", NULL};

const char *route_policy_name(int policy) { return route_policies[policy]; }
