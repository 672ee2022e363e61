/* SPDX-License-Identifier: Apache-2.0
 *
 * Variants of models: what is known of them, and an administrator's word on one. It counts in this process at once; the
 * store, and by it the other gateways, have it within a second.
 */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "gateway/admin/admin.h"
#include "gateway/auth/snapshot.h"
#include "gateway/exchange/exchange.h"
#include "gateway/request/json_mem.h"
#include "gateway/variant/variant.h"
#include "gateway/variant/variant_state.h"

enum { BODY_MOST = 4096, WEIGHT_MOST = 1000 };

/* Of both arms: the variant's and, for the same time, its base's. */
static json_t *counts_of(const struct trial_sums *s, enum trial_sum which)
{
	return json_pack("{s:I, s:I}", "variant", (json_int_t)s->of[which + TRIAL_VARIANT], "base",
			 (json_int_t)s->of[which + TRIAL_BASE]);
}

static json_t *evidence_of(const struct variant_view *v)
{
	json_t *all = json_object();
	for (int c = TRIAL_FAILS; c < TRIAL_CAUSES; c++)
		json_object_set_new(all, trial_cause_name((enum trial_cause)c), json_real(v->evidence[c]));
	return all;
}

static const char *state_of(const struct variant_view *v)
{
	const bool rolled = v->word.rolled != TRIAL_ALIKE || v->word.by_hand;
	return rolled ? "rolled_back" : v->known ? "running" : "starting";
}

static void add_trial(json_t *to, struct variant_state *state)
{
	const struct variant_view v = variant_state_view(state);
	const char *cause = v.word.by_hand ? "administrator" : trial_cause_name(v.word.rolled);
	json_object_set_new(to, "state", json_string(state_of(&v)));
	json_object_set_new(to, "cause", cause[0] != '\0' ? json_string(cause) : json_null());
	json_object_set_new(to, "answers", counts_of(&v.sums, TRIAL_ANSWERS));
	json_object_set_new(to, "failed", counts_of(&v.sums, TRIAL_FAILURES));
	json_object_set_new(to, "left", counts_of(&v.sums, TRIAL_DEPARTURES));
	json_object_set_new(to, "evidence", evidence_of(&v));
}

static json_t *variant_of(const struct variant *v)
{
	json_t *one = json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:b}", "model", v->group->of, "variant", v->cfg->name,
				"answered_by", v->cfg->model, "weight", variant_weight(v), "configured_weight",
				v->cfg->weight, "shadow", v->cfg->shadow, "base", v == &v->group->all[0]);
	if (one != NULL && v->state != NULL)
		add_trial(one, v->state);
	return one;
}

static void reply_variants(struct exchange *x)
{
	json_t *all = json_array();
	for (size_t i = 0; i < variants_n_groups(x->snapshot->variants); i++) {
		const struct variant_group *g = variants_group(x->snapshot->variants, i);
		for (size_t k = 0; k < g->n; k++)
			json_array_append_new(all, variant_of(&g->all[k]));
	}
	exchange_reply_json_no_store(x, json_pack("{s:s, s:o}", "object", "variants", "variants", all));
}

void admin_variants(struct exchange *x)
{
	if (admin_gate(x, ADMIN_LOOK))
		reply_variants(x);
}

/* ---- an administrator's word ---- */

/* NULL with x answered. */
static const struct variant *named(struct exchange *x, const json_t *body)
{
	const char *of = json_string_value(json_object_get(body, "model")),
		   *name = json_string_value(json_object_get(body, "variant"));
	const struct variant_group *g = of != NULL ? variants_find(x->snapshot->variants, of) : NULL;
	if (g == NULL) {
		exchange_refuse(x, 404, "model_not_found", "model", "model must name a model that has variants.");
		return NULL;
	}
	for (size_t i = 0; name != NULL && i < g->n; i++)
		if (strcmp(g->all[i].cfg->name, name) == 0 && g->all[i].state != NULL)
			return &g->all[i];
	exchange_refuse(x, 404, "variant_not_found", "variant",
			"variant must name one of the model's that is not its base and has rollback.");
	return NULL;
}

/* False with x answered. */
static bool set_weight(struct exchange *x, const struct variant *v, const json_t *weight)
{
	const double w = json_number_value(weight);
	if (json_is_null(weight)) {
		variant_state_set_weight(v->state, VARIANT_NO_WEIGHT);
		admin_audit(x, "weight of variant %s of %s as configured", v->cfg->name, v->group->of);
		return true;
	}
	if (!json_is_number(weight) || !(w >= 0 && w <= WEIGHT_MOST))
		return exchange_refuse(x, 400, "invalid_value", "weight",
				       "weight must be a number from 0 to %d, or null: as configured.", WEIGHT_MOST);
	variant_state_set_weight(v->state, llround(w * 1000));
	admin_audit(x, "weight of variant %s of %s %g", v->cfg->name, v->group->of, w);
	return true;
}

/* False with x answered. */
static bool act(struct exchange *x, const struct variant *v, const json_t *body)
{
	const json_t *given = json_object_get(body, "action"), *weight = json_object_get(body, "weight");
	const char *action = json_is_string(given) ? json_string_value(given) : "";
	if ((given != NULL) == (weight != NULL))
		return exchange_refuse(x, 400, "invalid_value", "action", "Either action or weight must be given.");
	if (weight != NULL)
		return set_weight(x, v, weight);
	if (strcmp(action, "restore") == 0)
		variant_state_restore(v->state);
	else if (strcmp(action, "roll_back") == 0)
		variant_state_roll_back(v->state);
	else
		return exchange_refuse(x, 400, "invalid_value", "action", "action must be restore or roll_back.");
	admin_audit(x, "%s variant %s of %s", action, v->cfg->name, v->group->of);
	return true;
}

void admin_variants_set(struct exchange *x)
{
	json_error_t where;
	if (!admin_gate(x, ADMIN_ACT))
		return;
	json_t *body = x->body.len <= BODY_MOST
			   ? json_mem_load(exchange_body(x), x->body.len, JSON_REJECT_DUPLICATES, &where)
			   : NULL;
	const struct variant *v;
	if (!json_is_object(body))
		exchange_refuse(x, 400, NULL, NULL, "The body must be a JSON object of at most %d bytes.", BODY_MOST);
	else if ((v = named(x, body)) != NULL && act(x, v, body))
		reply_variants(x);
	json_decref(body);
}
