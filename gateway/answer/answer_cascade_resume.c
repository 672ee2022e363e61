/* SPDX-License-Identifier: Apache-2.0
 *
 * Logged answers of the cascade, when their gateway has died (answer_resume.c). What the cascade decided by clocks,
 * budgets, failures and races is not in the tokens; so it stands in the head that is stored, which is written again
 * whenever there is more of it, and a decision shows only once it is stored (cascade_run_on_past). A continued answer
 * is then the same run again (cascade/again.c), with the same events.
 *
 * In the head: {"small": NAME, "large": NAME, "degraded": bool, "size": N, "past": HEX}, of this build's layout.
 */
#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/answer/answer_priv.h"
#include "gateway/auth/snapshot.h"

static const char hex_digits[] = "0123456789abcdef";

json_t *answer_auto_save(const struct answer *a)
{
	const struct cascade_run *run = a->runs[0].cascade;
	char hex[2 * sizeof(struct casc_past) + 1];
	const uint8_t *bytes;
	if (!a->automatic || run == NULL)
		return json_null();
	bytes = (const uint8_t *)cascade_run_past(run);
	for (size_t i = 0; i < sizeof(struct casc_past); i++) {
		hex[2 * i] = hex_digits[bytes[i] >> 4];
		hex[2 * i + 1] = hex_digits[bytes[i] & 15];
	}
	hex[sizeof hex - 1] = '\0';
	return json_pack("{s:s, s:s, s:b, s:I, s:s}", "small", cascade_run_small(run), "large", cascade_run_large(run),
			 "degraded", cascade_run_tells_degraded(run), "size", (json_int_t)sizeof(struct casc_past),
			 "past", hex);
}

static int digit(char c)
{
	const char *at = c != '\0' ? strchr(hex_digits, c) : NULL;
	return at != NULL ? (int)(at - hex_digits) : -1;
}

static bool read_past(const json_t *o, struct casc_past *out)
{
	const char *hex = json_string_value(json_object_get(o, "past"));
	uint8_t bytes[sizeof *out];
	if (hex == NULL || json_integer_value(json_object_get(o, "size")) != (json_int_t)sizeof *out ||
	    strlen(hex) != 2 * sizeof *out)
		return false;
	for (size_t i = 0; i < sizeof *out; i++) {
		int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
		if (high < 0 || low < 0)
			return false;
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	memcpy(out, bytes, sizeof *out);
	return casc_past_is_sound(out);
}

/* 1: it is there; 0: it is not wanted; SL_EAGAIN: it is being loaded; SL_ENOTFOUND. */
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
	case PROTO_MODEL_FAILED: break;
	}
	return SL_ENOTFOUND;
}

static enum answer_chance find_both(const struct gw_app *app, const json_t *saved, struct casc_past *past,
				    struct cascade_models *m)
{
	*m = (struct cascade_models){-1, -1, false, false};
	if (app->now->cascade == NULL || !read_past(saved, past))
		return ANSWER_MAY_NEVER;
	int small = find(app, saved, "small", past->can_small, &m->small),
	    large = find(app, saved, "large", past->can_large, &m->large);
	if (small == SL_ENOTFOUND || large == SL_ENOTFOUND)
		return ANSWER_MAY_NEVER;
	if (small < 0 || large < 0)
		return ANSWER_MAY_LATER;
	m->can_small = small > 0;
	m->can_large = large > 0;
	return ANSWER_MAY_GO_ON;
}

enum answer_chance answer_auto_chance(const struct gw_app *app, const json_t *saved)
{
	struct casc_past past;
	struct cascade_models m;
	return find_both(app, saved, &past, &m);
}

int answer_auto_again(struct answer *a, const json_t *saved, const struct proto_submit *s)
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
	if (find_both(a->app, saved, &past, &ask.models) != ANSWER_MAY_GO_ON)
		return SL_ENOTFOUND;
	int rc = cascade_run_start(a->app->t, &ask, (uint32_t)a->app->t->cfg->limits.window_tokens, &run->sub,
				   &run->gen, &run->cascade);
	if (rc != 0)
		return rc;
	a->load.model = cascade_run_model(run->cascade);
	answer_auto_watch(a);
	return 0;
}

/* ---- the head as it grows ---- */

static void on_saved(void *ctx)
{
	struct answer *a = ctx;
	cascade_run_saved(a->runs[0].cascade);
}

static bool on_past(void *ctx)
{
	struct answer *a = ctx;
	return answer_rewrite_head(a, on_saved);
}

void answer_auto_watch(struct answer *a) { cascade_run_on_past(a->runs[0].cascade, on_past, a); }

bool answer_auto_repeats(const struct answer *a)
{
	return !a->automatic ||
	       (a->n_runs == 1 && a->runs[0].cascade != NULL && cascade_run_repeats(a->runs[0].cascade));
}
