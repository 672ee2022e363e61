/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/generation/route_counts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/metrics.h"
#include "gateway/config/gw_config.h"
#include "gateway/generation/routing.h"

enum { POLICIES = GW_ROUTE_BY_KV + 1, NAME_BYTES = 64, LABEL_BYTES = 128 };

/* Names of engines that a new configuration has removed stay. */
static struct route_counts {
	char name[NAME_BYTES], labels[POLICIES][LABEL_BYTES], label[LABEL_BYTES];
	struct metric routed[POLICIES], cached, spilled;
} counts[2 * GW_MAX_ENGINES];
static atomic_int n_counts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct route_counts *find(const char *name)
{
	int n = atomic_load(&n_counts);
	for (int i = 0; i < n; i++)
		if (strcmp(counts[i].name, name) == 0)
			return &counts[i];
	return NULL;
}

static void make(struct route_counts *c, const char *name)
{
	snprintf(c->name, sizeof c->name, "%.63s", name);
	snprintf(c->label, sizeof c->label, "engine=\"%.63s\"", name);
	c->cached =
	    (struct metric){.kind = METRIC_COUNTER,
			    .name = "sluice_routed_cached_total",
			    .labels = c->label,
			    .help = "Sequences sent to an engine that was known to have a part of their prompt"};
	c->spilled =
	    (struct metric){.kind = METRIC_COUNTER,
			    .name = "sluice_routed_spilled_total",
			    .labels = c->label,
			    .help = "Sequences sent to an engine because those that get them first were saturated"};
	metric_register(&c->cached);
	metric_register(&c->spilled);
	for (int p = 0; p < POLICIES; p++) {
		snprintf(c->labels[p], LABEL_BYTES, "engine=\"%.63s\",policy=\"%s\"", name, route_policy_name(p));
		c->routed[p] = (struct metric){.kind = METRIC_COUNTER,
					       .name = "sluice_routed_total",
					       .labels = c->labels[p],
					       .help = "Sequences sent to an engine, by the policy that chose it"};
		metric_register(&c->routed[p]);
	}
}

void route_counts_register(const char *name)
{
	pthread_mutex_lock(&lock);
	int n = atomic_load(&n_counts);
	if (find(name) == NULL && n < (int)(sizeof counts / sizeof *counts)) {
		make(&counts[n], name);
		atomic_store(&n_counts, n + 1);
	}
	pthread_mutex_unlock(&lock);
}

void route_count(const char *name, int policy, bool cached, bool spilled)
{
	struct route_counts *c = find(name);
	if (c == NULL)
		return;
	metric_add(&c->routed[policy], 1);
	if (cached)
		metric_add(&c->cached, 1);
	if (spilled)
		metric_add(&c->spilled, 1);
}
