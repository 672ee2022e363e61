/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts a run: its models, what they are asked, and its plan.
 */
#define LOG_SUBSYSTEM LOG_CASCADE

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/flight.h"
#include "base/log.h"
#include "base/err.h"
#include "gateway/cascade/cascade_prompt.h"
#include "gateway/cascade/cascade_run_priv.h"
#include "gateway/auth/snapshot.h"

enum { MAX_KEPT = 1 << 20 };

static void side_init(struct cascade_side *s, struct cascade_run *r, int model, const struct proto_submit *submit)
{
	bool logprobs = (submit->flags & PROTO_SUBMIT_WANT_LOGPROBS) != 0;
	s->run = r;
	s->model = model;
	s->most = UINT32_MAX;
	if (model >= 0) {
		const struct link_model *m = engine_link_model(r->t->link, model);
		memcpy(s->name, m->name, sizeof s->name);
		s->estimates = link_model_is_remote(m);
	}
	cascade_queue_init(&s->queue, logprobs ? submit->n_top_logprobs : 0, logprobs);
}

/* The model that a rule names. A third model replaces the large one for this request. */
static uint8_t forced_by(const struct engine_link *link, const char *name, struct cascade_models *m)
{
	if (name == NULL)
		return CASC_NEITHER;
	if (strcmp(name, "small") == 0)
		return CASC_SMALL;
	if (strcmp(name, "large") == 0)
		return CASC_LARGE;
	int i = engine_link_find_model(link, name);
	if (i < 0 || engine_link_model(link, i)->state != PROTO_MODEL_READY)
		return CASC_NEITHER;
	if (i == m->small)
		return CASC_SMALL;
	m->large = i;
	m->can_large = true;
	return CASC_LARGE;
}

static uint32_t predicted_ms(const struct cascade_run *r, int model, uint8_t priority)
{
	uint64_t ms = model >= 0 ? engine_link_wait_ms(r->t->link, model, priority) : 0;
	return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

static bool one_tokenizer(const struct engine_link *link, const struct cascade_models *m)
{
	if (m->small < 0 || m->large < 0)
		return false;
	uint64_t digest = engine_link_model(link, m->small)->tokenizer;
	return digest != 0 && digest == engine_link_model(link, m->large)->tokenizer;
}

/* *e: the start event. */
static void plan(struct cascade_run *r, const struct cascade_ask *ask, struct casc_event *e)
{
	const struct proto_submit *s = ask->submit;
	struct cascade_models m = ask->models;
	struct casc_score score;
	cascade_prompt_score(cascade_state_scorer(ask->snapshot->cascade), s->prompt_kind, s->prompt, ask->asked_tokens,
			     &score, r->features);
	r->score = score.score;
	cascade_state_scored(ask->snapshot->cascade, score.plain);
	*e = (struct casc_event){
	    .kind = CASC_START,
	    .plan = {.score = score.score,
		     .forced = forced_by(r->t->link, score.model, &m),
		     .can_watch = s->n == 1 && s->best_of <= 1 && s->beam_width == 0 && s->prompt_logprobs == 0,
		     .wants_to_know = ask->wants_notice}};
	r->verifiable = one_tokenizer(r->t->link, &m);
	e->plan.can_small = m.can_small;
	e->plan.can_large = m.can_large;
	e->plan.can_verify = r->verifiable;
	if (m.can_small && m.can_large)
		e->plan.degraded =
		    cascade_tier_degraded(r->tier, predicted_ms(r, m.small, s->priority),
					  predicted_ms(r, m.large, s->priority), clock_now_ns() / NS_PER_MS);
	side_init(&r->small, r, m.can_small ? m.small : -1, s);
	side_init(&r->large, r, m.can_large ? m.large : -1, s);
}

/* Starts as the run that it repeats did. */
static int plan_again(struct cascade_run *r, const struct cascade_ask *ask, struct casc_actions *out)
{
	const struct cascade_models *m = &ask->models;
	r->past = *ask->again;
	r->known = r->past.facts;
	r->tells_degraded = ask->told_degraded;
	r->verifiable = r->past.can_verify;
	if (r->past.can_verify != one_tokenizer(r->t->link, m) && r->past.can_small && r->past.can_large)
		return SL_ENOTFOUND;
	side_init(&r->small, r, r->past.can_small ? m->small : -1, ask->submit);
	side_init(&r->large, r, r->past.can_large ? m->large : -1, ask->submit);
	return casc_start_again(&r->casc, ask->again, clock_now_ns() / NS_PER_MS, out);
}

static struct cascade_run *create(struct gw_thread *t, const struct cascade_ask *ask)
{
	struct cascade_run *r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return NULL;
	size_t n_id = strlen(ask->id);
	r->refs = 1;
	r->t = t;
	r->snapshot = gw_snapshot_ref(ask->snapshot);
	r->tier = cascade_state_tier(ask->snapshot->cascade, ask->tier);
	r->log = ask->again == NULL ? cascade_state_log(ask->snapshot->cascade) : NULL;
	r->started_ns = ask->started_ns;
	r->submitted_ns = clock_now_ns();
	r->max_tokens = ask->submit->max_tokens;
	r->lane = ask->lane;
	r->n_choices = ask->submit->n;
	memcpy(r->id_text, ask->id, n_id < sizeof r->id_text ? n_id : sizeof r->id_text - 1);
	gw_timer_init(&r->timer, cascade_run_on_timer);
	buf_init(&r->ids, PROTO_MAX_GIVEN * sizeof(uint32_t));
	buf_init(&r->kept, MAX_KEPT);
	casc_init(&r->casc, cascade_tier_policy(r->tier));
	r->submit = *ask->submit;
	r->frame = submit_frame_ref(ask->frame);
	int rc = 0;
	if (r->log != NULL) {
		r->features = sl_zalloc(sizeof *r->features);
		r->trace = sl_zalloc_n(CASCADE_MAX_TRACE, sizeof *r->trace);
		rc = r->features == NULL || r->trace == NULL ? SL_ENOMEM : 0;
	}
	if (rc == 0 && r->n_choices > 1) {
		r->small.sent_by = sl_zalloc_n(r->n_choices, sizeof *r->small.sent_by);
		r->large.sent_by = sl_zalloc_n(r->n_choices, sizeof *r->large.sent_by);
		rc = r->small.sent_by == NULL || r->large.sent_by == NULL ? SL_ENOMEM : 0;
	}
	if (rc != 0) {
		cascade_run_unref(r);
		return NULL;
	}
	return r;
}

/* Why it could not start. */
static int start_code(const struct cascade_run *r)
{
	if (r->casc.plan == CASC_PLAN_NONE)
		return SL_ENOTFOUND;
	return engine_link_up(r->t->link) ? SL_ELIMIT : SL_ECLOSED;
}

static void note_plan(const struct cascade_run *r)
{
	flight_note(FLIGHT_CASCADE, r->casc.plan, r->casc.why, 0, (uint64_t)(r->score > 0 ? r->score * 1000 : 0), 0);
	log_debug("%s: plan %s because of %s, score %.3f, tier %s", r->id_text, casc_plan_name(r->casc.plan),
		  casc_why_name(r->casc.why), (double)r->score, cascade_tier_name(r->tier));
}

int cascade_run_start(struct gw_thread *t, const struct cascade_ask *ask, uint32_t window_tokens,
		      struct subscriber *first, struct generation **gen, struct cascade_run **out)
{
	struct cascade_run *r = create(t, ask);
	struct casc_event e;
	struct casc_actions first_ones;
	int rc = 0;
	if (r == NULL)
		return SL_ENOMEM;
	if (ask->again != NULL)
		rc = plan_again(r, ask, &first_ones);
	else
		plan(r, ask, &e);
	if (rc != 0) {
		cascade_run_unref(r);
		return rc;
	}
	cascade_run_begin(r);
	if (ask->again != NULL)
		cascade_run_carry_out(r, &first_ones);
	else
		cascade_run_step(r, &e);
	cascade_run_end(r);
	note_plan(r);
	if (ask->again == NULL)
		casc_past_begin(&r->past, &r->casc);
	rc = r->casc.phase == CASC_OVER ? start_code(r) : 0;
	/* Frames of the engine are read only after this returns. */
	if (rc == 0)
		rc = gen_start_fed(t, ask->submit, window_tokens, &cascade_run_source, r, first, &r->gen);
	if (rc != 0) {
		cascade_sides_close(r, NULL);
		cascade_run_unref(r);
		return rc;
	}
	r->refs++;
	*gen = r->gen;
	*out = r;
	return 0;
}

int cascade_run_model(const struct cascade_run *r)
{
	return r->casc.plan == CASC_PLAN_LARGE || r->small.model < 0 ? r->large.model : r->small.model;
}

int cascade_run_awaits(const struct cascade_run *r)
{
	bool large = r->casc.phase == CASC_SWITCH || r->casc.phase == CASC_TAKEN;
	return large ? r->large.model : cascade_run_model(r);
}

int cascade_run_second(const struct cascade_run *r)
{
	bool both = r->casc.plan == CASC_PLAN_CHECK || r->casc.plan == CASC_PLAN_RACE;
	return both ? r->large.model : -1;
}

bool cascade_run_tells_degraded(const struct cascade_run *r) { return r->tells_degraded; }
