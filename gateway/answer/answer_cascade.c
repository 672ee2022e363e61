/* SPDX-License-Identifier: Apache-2.0
 *
 * To the rest of an answer's life one of "auto" is like any other: its generation comes from cascade_run.h
 * instead of from the link. Load (answer_load.c) does not give it another model: that is the cascade's own
 * business (cascade.tiers: target_ttft). Each of several prompts is a run of its own.
 */
#include "gateway/answer/answer_cascade.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "gateway/answer/answer_priv.h"
#include "gateway/auth/snapshot.h"

const char answer_auto_name[] = "auto";

static int with_role(const struct engine_link *link, uint8_t role)
{
	for (int i = 0; i < engine_link_n_models(link); i++)
		if (engine_link_model(link, i)->name[0] != '\0' && engine_link_model(link, i)->role == role)
			return i;
	return -1;
}

/* A tier that may ask for "auto" by name may use both through it. */
static bool may(const struct gw_tier_config *tier, const struct link_model *m)
{
	return auth_tier_may(tier, answer_auto_name) || auth_tier_may(tier, m->name);
}

bool answer_auto_find(const struct gw_app *app, const struct gw_snapshot *now, const struct gw_tier_config *tier,
		      struct cascade_models *out)
{
	const struct engine_link *link = app->link;
	*out = (struct cascade_models){.small = with_role(link, PROTO_ROLE_SMALL),
				       .large = with_role(link, PROTO_ROLE_LARGE)};
	if (now->cascade == NULL || out->small < 0 || out->large < 0)
		return false;
	const struct link_model *small = engine_link_model(link, out->small),
				*large = engine_link_model(link, out->large);
	out->can_small = may(tier, small) && small->state == PROTO_MODEL_READY;
	out->can_large = may(tier, large) && large->state == PROTO_MODEL_READY;
	return may(tier, small) || may(tier, large);
}

/* 0 until a new engine has reported its models: nothing is submitted before. */
static int longest(const struct engine_link *link, const struct cascade_models *m)
{
	if (m->small < 0 || m->large < 0)
		return 0;
	if (!m->can_small || !m->can_large)
		return m->can_small ? m->small : m->large;
	return engine_link_model(link, m->large)->n_ctx >= engine_link_model(link, m->small)->n_ctx ? m->large
												    : m->small;
}

int answer_longest_model(const struct exchange *x, int model)
{
	struct cascade_models m;
	if (model != ANSWER_AUTO)
		return model;
	(void)answer_auto_find(x->app, x->snapshot, x->key->tier, &m);
	return longest(x->app->link, &m);
}

/* x-sluice-notify: degraded */
static bool wants_notice(const struct exchange *x)
{
	static const char word[] = "degraded";
	const char *p = http_header(http_request(x->stream), "x-sluice-notify");
	while (p != NULL && *p != '\0') {
		p += strspn(p, ", \t");
		size_t n = strcspn(p, ", \t");
		if (n == sizeof word - 1 && strncasecmp(p, word, n) == 0)
			return true;
		p += n;
	}
	return false;
}

/* Of two models the one whose requests fail is not asked, while few of them are tried. */
static void avoid_failing(const struct engine_link *link, struct cascade_models *m)
{
	uint64_t retry_ms;
	if (!m->can_small || !m->can_large)
		return;
	const bool small = engine_link_admits(link, m->small, &retry_ms),
		   large = engine_link_admits(link, m->large, &retry_ms);
	m->can_small = small || !large;
	m->can_large = large || !small;
}

int answer_auto_model(const struct gw_app *app, const struct gw_snapshot *now, const struct gw_tier_config *tier)
{
	const struct engine_link *link = app->link;
	struct cascade_models m;
	(void)answer_auto_find(app, now, tier, &m);
	avoid_failing(link, &m);
	uint8_t priority = (uint8_t)tier->priority;
	if (m.can_large && (!m.can_small || engine_link_wait_ms(link, m.large, priority) <
						engine_link_wait_ms(link, m.small, priority)))
		return m.large;
	return m.small >= 0 ? m.small : 0;
}

void answer_auto_init(struct answer *a)
{
	struct cascade_models m;
	(void)answer_auto_find(a->app, a->snapshot, a->key->tier, &m);
	a->automatic = true;
	a->wants_notice = a->x != NULL && wants_notice(a->x);
	a->n_ctx = engine_link_model(a->app->link, longest(a->app->link, &m))->n_ctx;
}

int answer_auto_submit(struct answer *a, struct answer_run *run, struct submit_frame *frame,
		       const struct proto_submit *s)
{
	struct cascade_ask ask = {.snapshot = a->snapshot,
				  .tier = a->key->tier->name,
				  .id = a->id,
				  .submit = s,
				  .frame = frame,
				  .asked_tokens = a->asked_tokens,
				  .wants_notice = a->wants_notice,
				  .started_ns = a->started_ns,
				  .lane = answer_lane(a)};
	(void)answer_auto_find(a->app, a->snapshot, a->key->tier, &ask.models);
	avoid_failing(a->app->link, &ask.models);
	int rc = cascade_run_start(a->app->t, &ask, (uint32_t)a->app->t->cfg->limits.window_tokens, &run->sub,
				   &run->gen, &run->cascade);
	if (rc != 0)
		return rc;
	a->load.model = cascade_run_model(run->cascade);
	if (a->frame != NULL)
		answer_auto_watch(a);
	if (cascade_run_tells_degraded(run->cascade) && a->x != NULL)
		a->x->degraded = "model";
	return 0;
}

void answer_auto_load(const struct gw_app *app)
{
	const struct engine_link *link = app->link;
	uint32_t small_ms[PROTO_PRIORITIES], large_ms[PROTO_PRIORITIES];
	int small = with_role(link, PROTO_ROLE_SMALL), large = with_role(link, PROTO_ROLE_LARGE);
	if (app->now->cascade == NULL || small < 0 || large < 0)
		return;
	for (int i = 0; i < PROTO_PRIORITIES; i++) {
		uint64_t s = engine_link_wait_ms(link, small, (uint8_t)i),
			 l = engine_link_wait_ms(link, large, (uint8_t)i);
		small_ms[i] = s < UINT32_MAX ? (uint32_t)s : UINT32_MAX;
		large_ms[i] = l < UINT32_MAX ? (uint32_t)l : UINT32_MAX;
	}
	cascade_state_see(app->now->cascade, small_ms, large_ms, clock_now_ns() / NS_PER_MS);
}

/* null for one that was never submitted. */
static int put_about(const struct answer *a, unsigned index, struct sl_buf *out)
{
	const struct cascade_run *run = a->runs[index / a->n].cascade;
	return run != NULL ? cascade_run_about(run, (uint8_t)(index % a->n), out) : buf_append_str(out, "null");
}

/* ,"cascades":[…] */
static int put_all(const struct answer *a, struct sl_buf *out)
{
	unsigned n = answer_n_choices(a);
	int rc = 0;
	for (unsigned i = 0; rc == 0 && n > 1 && i < n; i++) {
		rc = buf_append_str(out, i == 0 ? ",\"cascades\":[" : ",");
		if (rc == 0)
			rc = put_about(a, i, out);
	}
	return rc == 0 && n > 1 ? buf_append_str(out, "]") : rc;
}

void answer_auto_about(struct answer *a, unsigned index, struct sse_about *out)
{
	unsigned one = index != ANSWER_ALL ? index : 0;
	if (a->runs[one / a->n].cascade == NULL)
		return;
	buf_clear(&a->cascade_text, SIZE_MAX);
	int rc = put_about(a, one, &a->cascade_text);
	if (rc == 0 && index == ANSWER_ALL)
		rc = put_all(a, &a->cascade_text);
	out->cascade = rc == 0 ? (const char *)buf_data(&a->cascade_text) : NULL;
	out->n_cascade = a->cascade_text.len;
	for (int i = 0; i < a->n_runs && out->degraded == NULL; i++)
		if ((index == ANSWER_ALL || one / a->n == (unsigned)i) && a->runs[i].cascade != NULL &&
		    cascade_run_tells_degraded(a->runs[i].cascade))
			out->degraded = "model";
}

/* Of several prompts each one's, as far as there is room. */
const char *answer_auto_line(const struct answer *a, char *line, size_t room)
{
	size_t at = 0;
	line[0] = '\0';
	for (int i = 0; i < a->n_runs && at + 1 < room; i++) {
		if (a->runs[i].cascade == NULL)
			continue;
		if (at > 0)
			at += (size_t)snprintf(line + at, room - at, " | ");
		if (at + 1 < room)
			cascade_run_line(a->runs[i].cascade, line + at, room - at);
		at += strlen(line + at);
	}
	return line;
}
