/* SPDX-License-Identifier: Apache-2.0
 *
 * Which model an answer is asked of: by name, or the default of who asks; and whether it can serve now.
 */
#include <string.h>

#include "gateway/answer.h"

enum { RETRY_AFTER_S = 1 };

/* "default": the configured name, or the large one of those the tier may use, or the first of them. */
static int default_model(const struct gw_app *app, const struct gw_tier_config *tier)
{
	const char *name = app->t->cfg->default_model;
	int found = -1;
	if (name != NULL && name[0] != '\0')
		return engine_link_find_model(app->link, name);
	for (int i = 0; i < engine_link_n_models(app->link); i++) {
		const struct link_model *m = engine_link_model(app->link, i);
		if (m->name[0] == '\0' || !auth_tier_may(tier, m->name))
			continue;
		if (m->role == 2)
			return i;
		found = found < 0 ? i : found;
	}
	return found;
}

int answer_choose_model(struct exchange *x, const char *name)
{
	const struct engine_link *link = x->app->link;
	if (engine_link_n_models(link) == 0) {
		exchange_error(x, &(struct api_error){503, "server_error", "engine_unavailable", NULL, RETRY_AFTER_S},
			       "The engine is starting.");
		return -1;
	}
	int index = strcmp(name, "default") == 0 ? default_model(x->app, x->key->tier) : engine_link_find_model(link, name);
	if (index < 0 || !auth_tier_may(x->key->tier, engine_link_model(link, index)->name)) {
		exchange_error(x, &(struct api_error){404, "invalid_request_error", "model_not_found", "model", 0},
			       "The model '%s' does not exist or you do not have access to it.", name);
		return -1;
	}
	const struct link_model *m = engine_link_model(link, index);
	if (!engine_link_up(link)) {
		exchange_error(x, &(struct api_error){503, "server_error", "engine_unavailable", NULL, RETRY_AFTER_S},
			       "The engine is not there at the moment. It is being restarted.");
		return -1;
	}
	if (m->state != PROTO_MODEL_READY) {
		bool failed = m->state == PROTO_MODEL_FAILED;
		exchange_error(x, &(struct api_error){503, "server_error", failed ? "model_failed" : "model_loading", "model",
						      failed ? 60 : RETRY_AFTER_S},
			       failed ? "The model '%s' could not be loaded." : "The model '%s' is being loaded.", m->name);
		return -1;
	}
	return index;
}
