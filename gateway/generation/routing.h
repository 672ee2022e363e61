/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of the engines that have a model gets a request. Pure: no clock, no sockets; what it decides follows from its
 * arguments alone, and the result says why.
 *
 *   cost            the least of
 *                       occupancy · share of KV pages in use      (3)
 *                     + active    · requests there                (1)
 *                     − cache     · share of the prompt cached    (10)
 *                     + queue     · predicted seconds to the first token  (0.5)
 *                     − recent    · how much of the prompt went there lately  (1)
 *                     + affinity  · 1 if another remote engine is the prompt's home  (5)
 *                   with the weights of the configuration; these are the defaults
 *   round_robin     the next one in turn
 *   least_requests  the one with the fewest requests
 *   prefix          by the digest of the prompt's beginning: rendezvous hashing (Thaler, Ravishankar, "Using name-based
 *                   mappings to increase hit rates", 1998), so that an engine that comes or goes moves its own prompts
 *                   only; with bounded loads (Mirrokni, Thorup, Zadimoghaddam, 2016): one with more than 5/4 of the
 *                   average load is passed over
 *   kv              the one where most of the prompt is cached; of equals the one with the fewest requests
 *
 * What a remote engine has cached nobody publishes. Its cache helps only if prompts that begin alike go to the same
 * one: where the cost decides among several, each prompt has a home among them, the one that the policy prefix would
 * choose, and the others cost more.
 *
 * Before the policy decides, `first` may leave a part of the engines: those of the kind that it names (local or remote)
 * as long as one of them is not saturated, then those of the other kind that are not. If all are, the policy decides
 * among all.
 *
 * Of equals the next one in turn gets it, so engines without any difference take turns under every policy.
 */
#ifndef GATEWAY_ROUTING_H
#define GATEWAY_ROUTING_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/config/gw_config.h"

/* An engine that can serve the request. */
struct route_candidate {
	int engine;         /* its number */
	uint64_t name;      /* a digest of its name */
	double occupancy;   /* KV pages in use, 0 … 1 */
	double n_active;    /* requests that run or wait there */
	double cached;      /* share of the prompt, 0 … 1 */
	double predicted_s; /* until the first token */
	double recent;      /* 0 … 1 */
	bool remote;        /* another server runs its models */
	bool saturated;     /* a request would wait there */
};

struct route_choice {
	int engine; /* -1: there is no candidate */
	int policy; /* enum gw_routing_policy */
	int n_candidates;
	bool spilled; /* all engines of the kind that gets requests first were saturated, this one is of the other */
	double cost;  /* under the policy cost, whichever policy has decided */
	double parts[GW_ROUTE_PARTS]; /* of the cost, by enum gw_route_part, weighted */
	double cached;                /* share of the prompt */
};

/* turn: grows by one with each choice for which route_took_turn is true. key: of the prompt's beginning. */
struct route_choice route_choose(const struct gw_routing *r, const struct route_candidate *all, int n, uint64_t key,
				 uint64_t turn);
/* Was it made among equals, as far as its policy goes? Not where the cache has decided: prompts that are new to all
 * engines are dealt out evenly only if those do not count. */
bool route_took_turn(const struct route_choice *c);
/* "cost", "round_robin", … */
const char *route_policy_name(int policy);

#endif
