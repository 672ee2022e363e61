/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/generation/routing.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <xxhash.h>

static const double most_above_average = 1.25;

/* The candidates among which the policy decides, and what it needs to know of all of them. */
struct field {
	const struct gw_routing *r;
	const struct route_candidate *all;
	int n;
	uint64_t key;
	unsigned kept; /* of all, bits */
	double bound;  /* the most requests of one, among those kept */
	int home;      /* of the prompt, among the remote ones that are kept; -1: there are not several */
};

/* ---- by the hash of its beginning ---- */

/* The most requests that one of these may have with the new one. */
static double bound_of(const struct field *f, unsigned among)
{
	double n_active = 1;
	for (int i = 0; i < f->n; i++)
		if ((among >> i & 1) != 0)
			n_active += f->all[i].n_active;
	return ceil(most_above_average * n_active / __builtin_popcount(among));
}

/* Does the prompt belong to a rather than to b? Those at the bound come last. */
static bool is_nearer(const struct route_candidate *a, const struct route_candidate *b, uint64_t key, double bound)
{
	bool a_full = a->n_active + 1 > bound, b_full = b->n_active + 1 > bound;
	if (a_full != b_full)
		return b_full;
	return XXH3_64bits_withSeed(&key, sizeof key, a->name) > XXH3_64bits_withSeed(&key, sizeof key, b->name);
}

static unsigned remote_ones(const struct field *f)
{
	unsigned remote = 0;
	for (int i = 0; i < f->n; i++)
		remote |= (unsigned)f->all[i].remote << i;
	return remote;
}

static int home_of(const struct field *f)
{
	const unsigned among = f->kept & remote_ones(f);
	int home = -1;
	if ((among & (among - 1)) == 0)
		return -1;
	double bound = bound_of(f, among);
	for (int i = 0; i < f->n; i++)
		if ((among >> i & 1) != 0 && (home < 0 || is_nearer(&f->all[i], &f->all[home], f->key, bound)))
			home = i;
	return home;
}

/* ---- costs ---- */

static void weigh(const struct field *f, const struct route_candidate *c, double parts[GW_ROUTE_PARTS])
{
	const double *w = f->r->weights;
	parts[GW_ROUTE_OCCUPANCY] = w[GW_ROUTE_OCCUPANCY] * c->occupancy;
	parts[GW_ROUTE_ACTIVE] = w[GW_ROUTE_ACTIVE] * c->n_active;
	parts[GW_ROUTE_CACHE] = -w[GW_ROUTE_CACHE] * c->cached;
	parts[GW_ROUTE_QUEUE] = w[GW_ROUTE_QUEUE] * c->predicted_s;
	parts[GW_ROUTE_RECENT] = -w[GW_ROUTE_RECENT] * c->recent;
	bool is_away = c->remote && f->home >= 0 && c != &f->all[f->home];
	parts[GW_ROUTE_AFFINITY] = is_away ? w[GW_ROUTE_AFFINITY] : 0;
}

static double sum(const double parts[GW_ROUTE_PARTS])
{
	double all = 0;
	for (int i = 0; i < GW_ROUTE_PARTS; i++)
		all += parts[i];
	return all;
}

static double cost_of(const struct field *f, const struct route_candidate *c)
{
	double parts[GW_ROUTE_PARTS];
	weigh(f, c, parts);
	return sum(parts);
}

/* ---- the choice ---- */

/* Is a to be preferred to b? */
static bool is_better(const struct field *f, const struct route_candidate *a, const struct route_candidate *b)
{
	switch ((enum gw_routing_policy)f->r->policy) {
	case GW_ROUTE_BY_COST: return cost_of(f, a) < cost_of(f, b);
	case GW_ROUTE_ROUND_ROBIN: return false;
	case GW_ROUTE_LEAST_REQUESTS: return a->n_active < b->n_active;
	case GW_ROUTE_BY_PREFIX: return is_nearer(a, b, f->key, f->bound);
	case GW_ROUTE_BY_KV: return a->cached != b->cached ? a->cached > b->cached : a->n_active < b->n_active;
	}
	return false;
}

/* Those that get requests now; *spilled: they are not of the kind that gets them first. */
static unsigned keep(const struct field *f, bool *spilled)
{
	const unsigned all = (1u << f->n) - 1, remote = remote_ones(f);
	unsigned first = f->r->first == GW_ROUTE_REMOTE ? remote : all & ~remote, room = 0;
	*spilled = false;
	if (f->r->first == GW_ROUTE_ANY)
		return all;
	for (int i = 0; i < f->n; i++)
		room |= (unsigned)!f->all[i].saturated << i;
	if ((first & room) != 0)
		return first & room;
	*spilled = first != 0 && (room & ~first) != 0;
	return room != 0 ? room : all;
}

static const struct route_candidate *best_of(const struct field *f, uint64_t turn)
{
	const struct route_candidate *best = NULL;
	for (int i = 0; i < f->n; i++) {
		int at = (int)((turn + (uint64_t)i) % (uint64_t)f->n);
		if ((f->kept >> at & 1) != 0 && (best == NULL || is_better(f, &f->all[at], best)))
			best = &f->all[at];
	}
	return best;
}

struct route_choice route_choose(const struct gw_routing *r, const struct route_candidate *all, int n, uint64_t key,
				 uint64_t turn)
{
	struct route_choice choice = {.engine = -1, .policy = r->policy, .n_candidates = n};
	struct field f = {.r = r, .all = all, .n = n, .key = key};
	if (n <= 0)
		return choice;
	f.kept = keep(&f, &choice.spilled);
	f.bound = bound_of(&f, f.kept);
	f.home = home_of(&f);
	const struct route_candidate *best = best_of(&f, turn);
	choice.engine = best->engine;
	choice.cached = best->cached;
	weigh(&f, best, choice.parts);
	choice.cost = sum(choice.parts);
	return choice;
}

bool route_took_turn(const struct route_choice *c)
{
	return c->cached == 0 || (c->policy != GW_ROUTE_BY_COST && c->policy != GW_ROUTE_BY_KV);
}

static const char *const route_policies[] = {"cost", "round_robin", "least_requests", "prefix", "kv", NULL};

const char *route_policy_name(int policy) { return route_policies[policy]; }
