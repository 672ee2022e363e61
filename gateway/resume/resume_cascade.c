/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers of the cascade. Decisions that depend on clocks, budgets, failures and races do not follow from the tokens,
 * so they are read from the stored head (answer_head.c). The run repeats them (cascade/again.c) and makes the same
 * events.
 */
#include <jansson.h>

#include "base/hex.h"
#include "gateway/answer/answer_priv.h"
#include "gateway/auth/snapshot.h"
#include "gateway/resume/resume.h"

static bool read_past(const json_t *o, struct casc_past *out)
{
	return json_integer_value(json_object_get(o, "size")) == (json_int_t)sizeof *out &&
	       hex_get(json_string_value(json_object_get(o, "past")), out, sizeof *out) && casc_past_is_sound(out);
}

/* 1: found and ready; 0: not wanted; SL_EAGAIN: being loaded; SL_ENOTFOUND. */
static int find(const struct gw_app *app, const json_t *o, const char *role, bool wanted, int *model)
{
	const char *name = json_string_value(json_object_get(o, role));
	*model = -1;
	if (!wanted)
		return 0;
	*model = name != NULL ? engine_link_find_model(app->link, name) : -1;
	if (*model < 0)
		return engine_link_n_models(app->link) > 0 ? SL_ENOTFOUND : SL_EAGAIN;
	switch ((enum proto_model_state)engine_link_model(app->link, *model)->state) {
	case PROTO_MODEL_READY: return 1;
	case PROTO_MODEL_LOADING: return SL_EAGAIN;
	case PROTO_MODEL_GONE:
	case PROTO_MODEL_FAILED: break;
	}
	return SL_ENOTFOUND;
}

static enum resume_chance find_both(const struct gw_app *app, const json_t *saved, struct casc_past *past,
				    struct cascade_models *m)
{
	*m = (struct cascade_models){-1, -1, false, false};
	if (app->now->cascade == NULL || !read_past(saved, past))
		return RESUME_NEVER;
	int small = find(app, saved, "small", past->can_small, &m->small),
	    large = find(app, saved, "large", past->can_large, &m->large);
	if (small == SL_ENOTFOUND || large == SL_ENOTFOUND)
		return RESUME_NEVER;
	if (small < 0 || large < 0)
		return RESUME_LATER;
	m->can_small = small > 0;
	m->can_large = large > 0;
	return RESUME_NOW;
}

enum resume_chance resume_cascade_chance(const struct gw_app *app, const json_t *saved)
{
	struct casc_past past;
	struct cascade_models m;
	return find_both(app, saved, &past, &m);
}

int resume_cascade_start(struct answer *a, const json_t *saved, const struct proto_submit *s)
{
	struct answer_run *run = &a->runs[0];
	struct casc_past past;
	struct cascade_ask ask = {.snapshot = a->snapshot,
				  .tier = a->key->tier->name,
				  .id = a->id,
				  .submit = s,
				  .frame = a->frame,
				  .started_ns = a->started_ns,
				  .again = &past,
				  .told_degraded = json_is_true(json_object_get(saved, "degraded"))};
	if (find_both(a->app, saved, &past, &ask.models) != RESUME_NOW)
		return SL_ENOTFOUND;
	int rc = cascade_run_start(a->app->t, &ask, (uint32_t)a->app->t->cfg->limits.window_tokens, &run->sub,
				   &run->gen, &run->cascade);
	if (rc != 0)
		return rc;
	a->load.model = cascade_run_model(run->cascade);
	answer_auto_watch(a);
	return 0;
}
