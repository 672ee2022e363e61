/* SPDX-License-Identifier: Apache-2.0
 *
 * Which model an answer is asked of: by name, or the key's default, or a variant of it (gateway/variant); and whether
 * it can serve now.
 */
#define LOG_SUBSYSTEM LOG_ROUTING

#include <string.h>

#include "base/log.h"
#include "gateway/auth/snapshot.h"
#include "gateway/answer/answer.h"
#include "gateway/variant/variant.h"

enum { RETRY_AFTER_S = 1 };

/* What "default" is called for this tier; "": as default_model finds it. */
static const char *default_name(const struct gw_app *app, const struct gw_tier_config *tier)
{
	const char *own = tier->default_model, *name = app->t->cfg->default_model;
	return own != NULL && own[0] != '\0' ? own : name != NULL ? name : "";
}

/* Whether it does one of them, as far as is known: only a model that is READY has said so. */
static bool may_do(const struct link_model *m, unsigned does)
{
	return m->state != PROTO_MODEL_READY || (m->does & does) != 0;
}

/* "default": for tokens the configured name, or the large one of those the tier may use, or the first of them. */
static int default_model(const struct gw_app *app, const struct gw_tier_config *tier, unsigned does)
{
	const char *name = does == PROTO_DOES_GENERATE ? default_name(app, tier) : "";
	int found = -1;
	if (name[0] != '\0')
		return engine_link_find_model(app->link, name);
	for (int i = 0; i < engine_link_n_models(app->link); i++) {
		const struct link_model *m = engine_link_model(app->link, i);
		if (m->name[0] == '\0' || !auth_tier_may(tier, m->name) || !may_do(m, does))
			continue;
		if (m->role == 2)
			return i;
		found = found < 0 ? i : found;
	}
	return found;
}

static int loading_at(struct exchange *x, const char *name, unsigned percent)
{
	exchange_error(x, &(struct api_error){503, "server_error", "model_loading", "model", RETRY_AFTER_S},
		       "The model '%s' is being loaded (%u %%).", name, percent);
	return -1;
}

static int loading(struct exchange *x, const char *name, bool failed)
{
	exchange_error(x,
		       &(struct api_error){503, "server_error", failed ? "model_failed" : "model_loading", "model",
					   failed ? 60 : RETRY_AFTER_S},
		       failed ? "The model '%s' could not be loaded." : "The model '%s' is being loaded.", name);
	return -1;
}

static int engine_down(struct exchange *x)
{
	exchange_error(x, &(struct api_error){503, "server_error", "engine_unavailable", NULL, RETRY_AFTER_S},
		       "The engine is not there at the moment. It is being restarted.");
	return -1;
}

/* ANSWER_AUTO, or -1 with x answered; 0: it is no name of the cascade, or there is none. */
static int choose_auto(struct exchange *x, const char *name)
{
	struct cascade_models m;
	if (strcmp(name, "default") == 0)
		name = default_name(x->app, x->key->tier);
	if (strcmp(name, answer_auto_name) != 0 || !answer_auto_find(x->app, x->snapshot, x->key->tier, &m))
		return 0;
	if (!engine_link_up(x->app->link))
		return engine_down(x);
	if (!m.can_small && !m.can_large)
		return loading(x, answer_auto_name, false);
	log_debug("%s: goes to the cascade, tier %s", x->id, x->key->tier->name);
	return ANSWER_AUTO;
}

static int cannot(struct exchange *x, const char *name, unsigned does)
{
	exchange_refuse(x, 400, "invalid_value", "model",
			does == PROTO_DOES_GENERATE
			    ? "The model '%s' is not a generator: it makes embeddings or scores."
			: does == PROTO_DOES_EMBED ? "The model '%s' is not an embedding model."
						   : "The model '%s' is neither an embedding model nor a reranker.",
			name);
	return -1;
}

static int not_found(struct exchange *x, const char *name)
{
	exchange_error(x, &(struct api_error){404, "invalid_request_error", "model_not_found", "model", 0},
		       "The model '%s' does not exist or you do not have access to it.", name);
	return -1;
}

/* index, or -1 with x answered. */
static int if_serving(struct exchange *x, int index, unsigned does)
{
	const struct engine_link *link = x->app->link;
	const struct link_model *m = engine_link_model(link, index);
	if (!engine_link_up(link))
		return engine_down(x);
	if (m->state != PROTO_MODEL_READY)
		return m->state == PROTO_MODEL_FAILED ? loading(x, m->name, true) : loading_at(x, m->name, m->percent);
	return may_do(m, does) ? index : cannot(x, m->name, does);
}

static int engine_starts(struct exchange *x)
{
	exchange_error(x, &(struct api_error){503, "server_error", "engine_unavailable", NULL, RETRY_AFTER_S},
		       "The engine is starting.");
	return -1;
}

/* ---- variants ---- */

static bool serves(const void *ctx, const char *model)
{
	const struct engine_link *link = ctx;
	int i = engine_link_find_model(link, model);
	return i >= 0 && engine_link_serves(link, i) && may_do(engine_link_model(link, i), PROTO_DOES_GENERATE);
}

static const struct variant_group *variants_of(const struct exchange *x, const char *name)
{
	if (x->snapshot->variants == NULL)
		return NULL;
	if (strcmp(name, "default") == 0)
		name = default_name(x->app, x->key->tier);
	return variants_find(x->snapshot->variants, name);
}

/* As answer_choose_model. */
static int choose_variant(struct exchange *x, const struct variant_group *g, const char *user)
{
	const struct engine_link *link = x->app->link;
	const char *conversation = http_header(http_request(x->stream), "x-sluice-conversation");
	if (engine_link_n_models(link) == 0)
		return engine_starts(x);
	if (!auth_may(&x->snapshot->cfg, x->key, g->of))
		return not_found(x, g->of);
	const uint64_t who = variant_user(x->key->tenant, exchange_user(x, user), conversation);
	const struct variant *v = variant_choose(g, who, serves, link);
	int index = engine_link_find_model(link, v->cfg->model);
	if (index < 0)
		return loading(x, g->of, false);
	if (if_serving(x, index, PROTO_DOES_GENERATE) < 0)
		return -1;
	x->variant = v;
	x->variant_user = who;
	log_debug("%s: gets the variant %s of %s, tier %s", x->id, v->cfg->name, g->of, x->key->tier->name);
	return index;
}

int answer_choose_model(struct exchange *x, const char *name, const char *user)
{
	const struct variant_group *g = variants_of(x, name);
	x->variant = NULL;
	return g != NULL ? choose_variant(x, g, user) : answer_choose_model_for(x, name, PROTO_DOES_GENERATE);
}

int answer_choose_model_for(struct exchange *x, const char *name, unsigned does)
{
	const struct engine_link *link = x->app->link;
	if (engine_link_n_models(link) == 0)
		return engine_starts(x);
	int index = does == PROTO_DOES_GENERATE ? choose_auto(x, name) : 0;
	if (index != 0)
		return index;
	index = strcmp(name, "default") == 0 ? default_model(x->app, x->key->tier, does)
					     : engine_link_find_model(link, name);
	if (index < 0 || !auth_may(&x->snapshot->cfg, x->key, engine_link_model(link, index)->name))
		return not_found(x, name);
	if (if_serving(x, index, does) < 0)
		return -1;
	const struct link_model *m = engine_link_model(link, index);
	log_debug("%s: gets the model %s%s, tier %s", x->id, m->name, strcmp(name, m->name) == 0 ? "" : ", by default",
		  x->key->tier->name);
	return index;
}
