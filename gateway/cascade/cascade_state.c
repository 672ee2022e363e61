/* SPDX-License-Identifier: Apache-2.0
 *
 * A tier's load and budget are the process's: they do not depend on a connection's thread. Their lock is taken only for
 * steps that may use the budget: the plan, and events while the small model is watched. Tokens that are only passed on
 * take no lock.
 *
 * A reload makes a new state with new thresholds and the old counts. Requests that began under the old state count
 * there until they end, at most minutes later.
 */
#include "gateway/cascade/cascade_state.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/metrics.h"

enum { DRIFT_EVERY = 20 /* requests between two values of the metric */ };

struct cascade_tier {
	struct cascade_state *state;
	const char *name; /* borrowed from the configuration */
	int64_t priority;
	struct casc_policy policy;
	pthread_mutex_t lock; /* of the next two */
	struct casc_load load;
	struct casc_budget budget;
};

struct cascade_state {
	struct casc_scorer *scorer;
	pthread_mutex_t lock; /* of drift */
	struct casc_drift drift;
	struct line_file *log; /* NULL: none */
	size_t n_tiers;
	struct cascade_tier *tiers; /* [n_tiers] */
};

static struct metric drift = {.kind = METRIC_GAUGE,
			      .name = "sluice_cascade_drift",
			      .help = "How far recent requests' scores are from those that the cascade's weights were "
				      "fitted to (population stability index); 0: unknown",
			      .scale = 1e-3};
METRICS(drift);

static struct cascade_tier *find(const struct cascade_state *s, const char *name)
{
	for (size_t i = 0; s != NULL && i < s->n_tiers; i++)
		if (strcmp(s->tiers[i].name, name) == 0)
			return &s->tiers[i];
	return NULL;
}

static void tier_init(struct cascade_tier *t, struct cascade_state *s, const struct gw_config *cfg, size_t i,
		      struct cascade_state *before)
{
	const struct gw_tier_config *tier = (const struct gw_tier_config *)cfg->tiers.items + i;
	t->state = s;
	t->name = tier->name;
	t->priority = tier->priority;
	casc_policy_make(cfg->cascade, tier->name, &t->policy);
	casc_policy_fit(cfg->cascade, tier->name, casc_scorer_reference(s->scorer), &t->policy);
	pthread_mutex_init(&t->lock, NULL);
	struct cascade_tier *old = find(before, tier->name);
	if (old == NULL)
		return;
	pthread_mutex_lock(&old->lock);
	t->load = old->load;
	t->budget = old->budget;
	pthread_mutex_unlock(&old->lock);
}

int cascade_state_create(const struct gw_config *cfg, struct cascade_state *before, struct cascade_state **out,
			 struct sl_err *err)
{
	*out = NULL;
	if (cfg->cascade == NULL)
		return 0;
	struct cascade_state *s = sl_zalloc(sizeof *s);
	if (s == NULL)
		return sl_errf(err, SL_ENOMEM, "cascade: no memory");
	pthread_mutex_init(&s->lock, NULL);
	metric_set(&drift, 0); /* of the weights from now on */
	int rc = casc_scorer_create(cfg->cascade, &s->scorer, err);
	if (rc == 0 && cfg->cascade_log != NULL && cfg->cascade_log[0] != '\0')
		rc = cascade_log_open(cfg->cascade_log, cfg->cascade_log_bytes, &s->log, err);
	if (rc == 0 && (s->tiers = sl_zalloc_n(cfg->tiers.n > 0 ? cfg->tiers.n : 1, sizeof *s->tiers)) == NULL)
		rc = sl_errf(err, SL_ENOMEM, "cascade: no memory");
	if (rc != 0) {
		cascade_state_destroy(s);
		return rc;
	}
	for (; s->n_tiers < cfg->tiers.n; s->n_tiers++)
		tier_init(&s->tiers[s->n_tiers], s, cfg, s->n_tiers, before);
	*out = s;
	return 0;
}

void cascade_state_destroy(void *state)
{
	struct cascade_state *s = state;
	if (s == NULL)
		return;
	for (size_t i = 0; i < s->n_tiers; i++)
		pthread_mutex_destroy(&s->tiers[i].lock);
	sl_free(s->tiers);
	pthread_mutex_destroy(&s->lock);
	casc_scorer_destroy(s->scorer);
	cascade_log_close(s->log);
	sl_free(s);
}

void cascade_state_scored(struct cascade_state *s, float plain_score)
{
	const struct casc_reference *ref = casc_scorer_reference(s->scorer);
	if (ref == NULL)
		return;
	pthread_mutex_lock(&s->lock);
	casc_drift_add(&s->drift, plain_score);
	if (s->drift.n % DRIFT_EVERY == 0)
		metric_set(&drift, llround(casc_drift_index(&s->drift, ref) * 1000));
	pthread_mutex_unlock(&s->lock);
}

const struct casc_scorer *cascade_state_scorer(const struct cascade_state *s) { return s->scorer; }
struct line_file *cascade_state_log(const struct cascade_state *s) { return s->log; }
const struct casc_policy *cascade_tier_policy(const struct cascade_tier *t) { return &t->policy; }
const char *cascade_tier_name(const struct cascade_tier *t) { return t->name; }

struct cascade_tier *cascade_state_tier(struct cascade_state *s, const char *name)
{
	struct cascade_tier *t = find(s, name);
	BUG_IF(t == NULL, "cascade: no tier '%s' in the configuration", name);
	return t;
}

/* Is a tier of higher priority degraded? */
static bool better_degraded(const struct cascade_tier *t)
{
	bool is = false;
	for (size_t i = 0; i < t->state->n_tiers && !is; i++) {
		struct cascade_tier *other = &t->state->tiers[i];
		if (other->priority >= t->priority)
			continue;
		pthread_mutex_lock(&other->lock);
		is = casc_load_degraded(&other->load);
		pthread_mutex_unlock(&other->lock);
	}
	return is;
}

bool cascade_tier_degraded(struct cascade_tier *t, uint32_t ttft_small_ms, uint32_t ttft_large_ms, uint64_t now_ms)
{
	const struct casc_load_in in = {.now_ms = now_ms,
					.ttft_small_ms = ttft_small_ms,
					.ttft_large_ms = ttft_large_ms,
					.better_degraded = better_degraded(t)};
	pthread_mutex_lock(&t->lock);
	bool is = casc_load_decide(&t->load, &t->policy.load, &in);
	pthread_mutex_unlock(&t->lock);
	return is;
}

void cascade_state_see(struct cascade_state *s, const uint32_t small_ms[PROTO_PRIORITIES],
		       const uint32_t large_ms[PROTO_PRIORITIES], uint64_t now_ms)
{
	for (size_t i = 0; i < s->n_tiers; i++) {
		struct cascade_tier *t = &s->tiers[i];
		int64_t p = t->priority < PROTO_PRIORITIES ? t->priority : PROTO_PRIORITIES - 1;
		const struct casc_load_in in = {.now_ms = now_ms,
						.ttft_small_ms = small_ms[p],
						.ttft_large_ms = large_ms[p],
						.better_degraded = better_degraded(t)};
		pthread_mutex_lock(&t->lock);
		/* A decision of a recovering tier counts as a request. */
		if (t->policy.load.target_ms > 0 && t->load.state != CASC_RECOVERING)
			casc_load_decide(&t->load, &t->policy.load, &in);
		pthread_mutex_unlock(&t->lock);
	}
}

/* A token that is only passed on never needs the budget. */
static bool only_passes(const struct casc *c, const struct casc_event *e)
{
	bool token = e->kind == CASC_SMALL_TOKEN || e->kind == CASC_LARGE_TOKEN;
	return token && (c->phase == CASC_ONE || c->phase == CASC_TAKEN);
}

int cascade_tier_step(struct cascade_tier *t, struct casc *c, const struct casc_event *e, struct casc_actions *out)
{
	if (only_passes(c, e))
		return casc_step(c, NULL, e, out);
	pthread_mutex_lock(&t->lock);
	int rc = casc_step(c, &t->budget, e, out);
	pthread_mutex_unlock(&t->lock);
	return rc;
}
