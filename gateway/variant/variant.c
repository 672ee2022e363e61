/* SPDX-License-Identifier: Apache-2.0
 *
 * A variant's state is found by a digest of what its trial compares: the settings of the variant and of its base, but
 * not their weights. So a reload that changes weights keeps the evidence and a rollback, and one that puts another
 * model in the variant's place begins a new trial.
 */
#include "gateway/variant/variant.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "gateway/request/request_fields.h"
#include "gateway/variant/variant_counts.h"
#include "gateway/variant/variant_past.h"
#include "gateway/variant/variant_state.h"

struct variants {
	size_t n;
	struct variant_group groups[];
};

/* ---- making them ---- */

static uint64_t digest_of(const char *text) { return XXH3_64bits(text, strlen(text)); }

static int put_settings(struct sl_buf *out, const struct gw_variant_config *c)
{
	return buf_printf(out, "%s\n%s\n%.17g %.17g %.17g %.17g %lld\n", c->name, c->model, c->temperature, c->top_p,
			  c->min_p, c->repetition_penalty, (long long)c->max_tokens);
}

/* 0: no memory. */
static uint64_t key_of(const struct gw_variant_config *base, const struct gw_variant_config *c)
{
	struct sl_buf text;
	buf_init(&text, 4096);
	int rc = buf_printf(&text, "%s\n", c->of);
	if (rc == 0)
		rc = put_settings(&text, base);
	if (rc == 0)
		rc = put_settings(&text, c);
	uint64_t key = rc == 0 ? XXH3_64bits(buf_data(&text), text.len) : 0;
	buf_dispose(&text);
	return key;
}

/* What the answers of a base depend on, whatever it is called. 0: no memory. */
static uint64_t past_key_of(const struct gw_variant_config *base)
{
	struct gw_variant_config c = *base;
	c.name = "";
	return key_of(&c, &c);
}

static struct variant_group *group_of(struct variants *v, const char *of)
{
	for (size_t i = 0; i < v->n; i++)
		if (strcmp(v->groups[i].of, of) == 0)
			return &v->groups[i];
	struct variant_group *g = &v->groups[v->n++];
	*g = (struct variant_group){.of = of, .digest = digest_of(of)};
	return g;
}

/* The configuration was checked: it has at most TRIAL_MAX_VARIANTS of one name. */
static int add_variant(struct variants *all, const struct gw_variant_config *c)
{
	struct variant_group *g = group_of(all, c->of);
	BUG_IF(g->n == TRIAL_MAX_VARIANTS, "more variants of %s than are checked for", c->of);
	struct variant *v = &g->all[g->n];
	*v = (struct variant){
	    .cfg = c, .group = g, .counts = variant_counts_get(c->of, c->name), .digest = digest_of(c->name)};
	if (g->n == 0) {
		const uint64_t key = past_key_of(c);
		g->past = key != 0 ? variant_past_get(key) : NULL;
		if (g->past == NULL)
			return SL_ENOMEM;
	} else if (c->rollback) {
		const uint64_t key = key_of(g->all[0].cfg, c);
		v->state = key != 0 ? variant_state_get(key, c->of, c->name, g->past) : NULL;
		if (v->state == NULL)
			return SL_ENOMEM;
	}
	g->n++;
	return 0;
}

int variants_create(const struct gw_config *cfg, struct variants **out, struct sl_err *err)
{
	const struct gw_variant_config *all = cfg->variants.items;
	*out = NULL;
	if (cfg->variants.n == 0)
		return 0;
	struct variants *v = sl_zalloc(sizeof *v + cfg->variants.n * sizeof *v->groups);
	int rc = v != NULL ? 0 : SL_ENOMEM;
	for (size_t i = 0; rc == 0 && i < cfg->variants.n; i++)
		rc = add_variant(v, &all[i]);
	if (rc != 0) {
		variants_destroy(v);
		return sl_errf(err, rc, "no memory for variants");
	}
	*out = v;
	return 0;
}

void variants_destroy(void *all)
{
	struct variants *v = all;
	if (v == NULL)
		return;
	for (size_t i = 0; i < v->n; i++) {
		for (size_t k = 0; k < v->groups[i].n; k++)
			variant_state_unref(v->groups[i].all[k].state);
		variant_past_unref(v->groups[i].past);
	}
	sl_free(v);
}

size_t variants_n_groups(const struct variants *v) { return v != NULL ? v->n : 0; }
const struct variant_group *variants_group(const struct variants *v, size_t i) { return &v->groups[i]; }

const struct variant_group *variants_find(const struct variants *v, const char *of)
{
	for (size_t i = 0; i < variants_n_groups(v); i++)
		if (strcmp(v->groups[i].of, of) == 0)
			return &v->groups[i];
	return NULL;
}

/* ---- choosing ---- */

uint64_t variant_user(uint64_t tenant, const char *user, const char *conversation)
{
	const bool has_user = user != NULL && user[0] != '\0';
	const char *who = has_user ? user : conversation != NULL ? conversation : "";
	/* The names of users and conversations are apart. */
	uint64_t seed = XXH3_64bits_withSeed(&tenant, sizeof tenant, has_user);
	return XXH3_64bits_withSeed(who, strlen(who), seed);
}

double variant_weight(const struct variant *v)
{
	return v->state != NULL ? variant_state_weight(v->state, v->cfg->weight) : v->cfg->weight;
}

const struct variant *variant_choose(const struct variant_group *g, uint64_t user, variant_serves *serves,
				     const void *ctx)
{
	struct trial_choice of[TRIAL_MAX_VARIANTS];
	for (size_t i = 0; i < g->n; i++) {
		const struct variant *v = &g->all[i];
		const bool can = i == 0 || serves(ctx, v->cfg->model);
		of[i] = (struct trial_choice){v->digest, can ? variant_weight(v) : 0};
	}
	/* By the group's digest, so that a user's places in two experiments are independent. */
	const int i = trial_assign(of, g->n, user ^ g->digest);
	return &g->all[i > 0 ? i : 0];
}

static const struct variant *heaviest(const struct variant_group *g)
{
	const struct variant *most = &g->all[0];
	for (size_t i = 1; i < g->n; i++)
		if (variant_weight(&g->all[i]) > variant_weight(most))
			most = &g->all[i];
	return most;
}

const char *variants_successor(const struct variants *v, const char *model)
{
	for (size_t i = 0; i < variants_n_groups(v); i++) {
		const struct variant_group *g = &v->groups[i];
		for (size_t k = 0; k < g->n; k++)
			if (strcmp(g->all[k].cfg->model, model) == 0)
				return heaviest(g)->cfg->model;
	}
	return model;
}

uint64_t variants_heaviest(const struct variants *v)
{
	uint64_t digest = 0;
	for (size_t i = 0; i < variants_n_groups(v); i++) {
		const char *model = heaviest(&v->groups[i])->cfg->model;
		digest = XXH3_64bits_withSeed(model, strlen(model), digest + v->groups[i].digest);
	}
	return digest;
}

void variant_apply(const struct variant *v, const struct variant_submit *to)
{
	const struct gw_variant_config *c = v->cfg;
	struct proto_submit *s = to->submit;
	if (c->max_tokens > 0 && !*to->has_max_tokens) {
		*to->has_max_tokens = true;
		*to->max_tokens = (uint32_t)c->max_tokens;
		if (s->min_tokens > *to->max_tokens)
			s->min_tokens = *to->max_tokens;
	}
	if (s->beam_width > 0) /* it does not sample */
		return;
	if (c->temperature >= 0 && (to->given & REQUEST_TEMPERATURE) == 0)
		s->temperature = (float)c->temperature;
	if (c->top_p > 0 && (to->given & REQUEST_TOP_P) == 0)
		s->top_p = (float)c->top_p;
	if (c->min_p >= 0 && (to->given & REQUEST_MIN_P) == 0)
		s->min_p = (float)c->min_p;
	if (c->repetition_penalty > 0 && (to->given & REQUEST_REPETITION_PENALTY) == 0)
		s->repetition_penalty = (float)c->repetition_penalty;
}

/* ---- what comes of it ---- */

void variant_note(const struct variant *v, const struct variant_answer *a)
{
	const struct variant_group *g = v->group;
	variant_counts_add(v->counts, a->end);
	if (v != &g->all[0]) {
		if (v->state != NULL)
			variant_state_take(v->state, TRIAL_VARIANT, &a->trial);
		return;
	}
	for (size_t i = 1; i < g->n; i++)
		if (g->all[i].state != NULL)
			variant_state_take(g->all[i].state, TRIAL_BASE, &a->trial);
	variant_past_take(g->past, a->trial.failed, a->trial.user);
}

void variants_show(const struct variants *v)
{
	for (size_t i = 0; i < variants_n_groups(v); i++)
		for (size_t k = 0; k < v->groups[i].n; k++) {
			const struct variant *one = &v->groups[i].all[k];
			variant_counts_show(one->counts, variant_weight(one), one->state);
		}
}
