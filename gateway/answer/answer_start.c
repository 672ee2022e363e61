/* SPDX-License-Identifier: Apache-2.0
 *
 * The beginning of an answer: what a request asks for and its tier allows becomes one SUBMIT for each
 * prompt, unless it shares another's generation. And its memory, to the end.
 */
#include "gateway/answer/answer_priv.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "gateway/auth/owned_name.h"
#include "gateway/auth/snapshot.h"
#include "gateway/observe/trace.h"
#include "gateway/variant/variant.h"

enum {
	MAX_ANSWER = 4 << 20, /* text of a choice that is kept as a whole */
	MAX_LOGPROBS = 32 << 20,
	/* How far the engine may be ahead of a paced reader: its steps are uneven, the flow is even. */
	PACE_AHEAD = 4,
};

/* Of every choice without log probabilities; only read. */
static struct sl_buf no_logprobs[ANSWER_ALL_LISTS];

void answer_free(struct answer *a)
{
	BUG_IF(a->out.log != NULL || a->out.spool != NULL || a->out.held != NULL || a->sharing.lead != NULL ||
		   a->sharing.prompt != NULL || a->sharing.idempotent != NULL,
	       "an answer is freed in the middle of something");
	list_remove(&a->in_all);
	gw_defer_cancel(&a->pump);
	gw_defer_cancel(&a->reap);
	gw_timer_stop(&a->app->t->timers, &a->timer);
	for (unsigned i = 0; a->choices != NULL && i < answer_n_choices(a); i++) {
		struct answer_choice *c = &a->choices[i];
		buf_dispose(&c->text);
		answer_parts_free(c->parts);
		buf_dispose(&c->ids);
		for (int k = 0; a->out.wants_logprobs && c->logprobs != NULL && k < ANSWER_ALL_LISTS; k++)
			buf_dispose(&c->logprobs[k]);
		if (c->logprobs != no_logprobs)
			sl_free(c->logprobs);
	}
	answer_load_end(a);
	answer_slots_free(a);
	trace_free(a->seen.trace);
	if (a->format->dispose != NULL)
		a->format->dispose(a->own);
	sse_dispose(&a->out.sse);
	buf_dispose(&a->out.carry);
	submit_frame_unref(a->frame);
	submit_frame_unref(a->shadow.frame);
	buf_dispose(&a->cascade_text);
	sl_free(a->continued);
	sl_free(a->choices);
	for (int i = 0; a->runs != NULL && i < a->n_runs; i++) {
		if (a->runs[i].cascade != NULL)
			cascade_run_on_past(a->runs[i].cascade, NULL, NULL);
		cascade_run_unref(a->runs[i].cascade);
		buf_dispose(&a->runs[i].prompt);
	}
	sl_free(a->stops);
	sl_free(a->runs);
	auth_key_unref(a->key);
	sl_free(a->model);
	sl_free(a->failure);
	sl_free(a->members);
	answer_split_free(a->split);
	gw_snapshot_unref(a->snapshot);
	sl_free(a);
}

void answer_on_reap(struct gw_deferred *d) { answer_free(list_entry(d, struct answer, reap)); }

/* ---- the beginning ---- */

/* False: no memory. */
static bool init_choices(struct answer *a)
{
	for (unsigned i = 0; i < answer_n_choices(a); i++) {
		struct answer_choice *c = &a->choices[i];
		buf_init(&c->text, MAX_ANSWER);
		buf_init(&c->ids, MAX_LOGPROBS);
		c->logprobs = a->out.wants_logprobs ? sl_zalloc_n(ANSWER_ALL_LISTS, sizeof *c->logprobs) : no_logprobs;
		if (c->logprobs == NULL)
			return false;
		for (int k = 0; a->out.wants_logprobs && k < ANSWER_ALL_LISTS; k++)
			buf_init(&c->logprobs[k], MAX_LOGPROBS);
	}
	return true;
}

/* The one it has already, or a new one of its format's kind; false: there is no randomness for it. */
static bool give_id(struct answer *a, const struct answer_spec *spec)
{
	const char *prefix = spec->format->id_prefix;
	size_t n = strlen(prefix);
	BUG_IF(n + OWNED_NAME_CHARS >= sizeof a->id, "a long prefix: %s", prefix);
	if (spec->id != NULL) {
		snprintf(a->id, sizeof a->id, "%s", spec->id);
		return true;
	}
	memcpy(a->id, prefix, n);
	return owned_name(a->key, a->id + n);
}

struct answer *answer_create(struct gw_app *app, struct exchange *x, struct gw_snapshot *snapshot, struct auth_key *key,
			     const struct answer_spec *spec)
{
	struct answer *a = sl_zalloc(sizeof *a);
	if (a == NULL)
		return NULL;
	a->app = app;
	a->x = x;
	a->format = spec->format;
	a->out.stream = spec->stream;
	a->out.include_usage = spec->include_usage;
	a->out.obfuscate = spec->obfuscate;
	a->out.logged = spec->logged || spec->background;
	a->out.ids = spec->ids;
	a->out.background = spec->background;
	a->out.keep_text = spec->keep_text;
	a->out.token_ids = spec->token_ids;
	a->out.tokens_as_ids = spec->tokens_as_ids;
	a->constraint = spec->constraint;
	a->constrained = spec->submit->constraint_kind != PROTO_CONSTRAINT_NONE;
	a->out.wants_logprobs = (spec->submit->flags & PROTO_SUBMIT_WANT_LOGPROBS) != 0;
	a->n = spec->submit->n;
	a->n_made = spec->submit->best_of > a->n ? spec->submit->best_of : a->n;
	a->slots.each = a->n_made > spec->submit->beam_width ? a->n_made : spec->submit->beam_width;
	a->asked_tokens = spec->has_max_tokens ? spec->max_tokens : 0;
	a->budget.left = INT64_MAX;
	a->n_runs = spec->n_prompts;
	list_init(&a->in_app);
	a->snapshot = gw_snapshot_ref(snapshot);
	a->key = auth_key_ref(key);
	a->created = clock_unix_s();
	a->started_ns = x != NULL ? x->complete_ns : clock_now_ns();
	if (x != NULL)
		memcpy(a->seen.request_id, x->id, sizeof a->seen.request_id);
	bool named = give_id(a, spec);
	if (spec->model == ANSWER_AUTO) {
		answer_auto_init(a);
		a->model = sl_strdup(answer_auto_name);
	} else {
		a->variant = x != NULL ? x->variant : NULL;
		a->variant_user = x != NULL ? x->variant_user : 0;
		a->model = sl_strdup(a->variant != NULL ? a->variant->group->of
				     : spec->model >= 0 ? engine_link_model(app->link, spec->model)->name
							: "");
		a->n_ctx = spec->model >= 0 ? engine_link_model(app->link, spec->model)->n_ctx : 0;
	}
	a->members = spec->members != NULL ? sl_strdup(spec->members) : NULL;
	buf_init(&a->out.carry, ANSWER_MAX_WHOLE);
	buf_init(&a->cascade_text, ANSWER_MAX_WHOLE);
	list_push_back(&app->all_answers, &a->in_all);
	gw_defer_init(&a->pump, answer_on_pump);
	gw_defer_init(&a->reap, answer_on_reap);
	gw_timer_init(&a->timer, answer_on_timer);
	bool waits = answer_load_init(a, spec->model);
	a->runs = sl_zalloc_n((size_t)a->n_runs, sizeof *a->runs);
	a->choices = sl_zalloc_n(answer_n_choices(a), sizeof *a->choices);
	if (!named || !waits || a->model == NULL || (spec->members != NULL && a->members == NULL) || a->runs == NULL ||
	    a->choices == NULL || !init_choices(a) || !answer_keep_stops(a, spec->submit)) {
		answer_free(a);
		return NULL;
	}
	for (int i = 0; i < a->n_runs; i++) {
		a->runs[i].answer = a;
		a->runs[i].sub.on_queued = answer_on_queued;
		a->runs[i].sub.on_progress = answer_on_progress;
		a->runs[i].sub.on_prompt = answer_on_prompt;
	}
	a->own = spec->own;
	a->split = spec->split;
	return a;
}

/* A request may go behind those of its tier, never before them. */
static uint8_t priority_of(const struct gw_tier_config *tier, uint8_t behind)
{
	int64_t last = PROTO_PRIORITIES - 1, own = tier->priority;
	return (uint8_t)(own >= last || behind == 0 ? own : own + behind < last ? own + behind : last);
}

/* What the request asks for, within what its tier allows. */
static void fill_submit(const struct exchange *x, const struct answer_spec *spec, struct proto_submit *s)
{
	const struct gw_tier_config *tier = x->key->tier;
	uint32_t most = (uint32_t)tier->max_output;
	int model = spec->model != ANSWER_AUTO ? spec->model : answer_auto_model(x->app, x->snapshot, tier);
	*s = *spec->submit;
	s->model = (uint16_t)model;
	s->priority = priority_of(tier, spec->submit->priority);
	s->tenant = x->key->tenant;
	if (tier->weight > 0)
		s->weight = (uint32_t)tier->weight;
	s->rate_tps = (float)tier->pace_tps;
	s->burst = (uint32_t)tier->pace_burst + PACE_AHEAD;
	s->deadline_ms = (uint32_t)tier->deadline_ms;
	if (spec->logged || spec->background)
		s->flags |= PROTO_SUBMIT_WANT_IDS; /* another gateway repeats its events */
	s->max_tokens = spec->has_max_tokens && spec->max_tokens < most ? spec->max_tokens : most;
	if (s->min_tokens > s->max_tokens)
		s->min_tokens = s->max_tokens;
}

int answer_submit_run(struct answer *a, struct answer_run *run, struct submit_frame *frame,
		      const struct proto_submit *s)
{
	uint32_t window = (uint32_t)a->app->t->cfg->limits.window_tokens;
	int rc =
	    a->automatic ? answer_auto_submit(a, run, frame, s) : gen_start(a->app->t, s, window, &run->sub, &run->gen);
	if (rc == 0 && !a->automatic)
		answer_remake(a, run, frame, s);
	if (rc == 0)
		answer_prefetch(a, run);
	return rc;
}

/* Prompt i's SUBMIT; s: what all have in common. */
static int encode(const struct answer_spec *spec, int i, struct proto_submit *s, struct submit_frame **out)
{
	s->prompt_kind = spec->prompts[i].kind;
	s->prompt = spec->prompts[i].text;
	BUG_IF(!spec->has_seed && !random_u64(&s->seed), "no random bytes");
	return submit_frame_create(s, out);
}

/* As answer_submit_run. */
static int begin_run(struct answer *a, int i, struct submit_frame *frame)
{
	int rc = answer_slots_begin(a, i, frame);
	if (rc <= 0)
		return rc;
	answer_load_keep(a, i, frame);
	return answer_submit_run(a, &a->runs[i], frame, &frame->s);
}

/* first: of the first prompt. */
static void submit(struct answer *a, const struct answer_spec *spec, struct proto_submit *s, struct submit_frame *first)
{
	for (int i = 0; i < a->n_runs; i++) {
		struct submit_frame *frame = i == 0 ? submit_frame_ref(first) : NULL;
		int rc = i == 0 ? 0 : encode(spec, i, s, &frame);
		if (rc == 0)
			rc = begin_run(a, i, frame);
		submit_frame_unref(frame);
		if (rc != 0) {
			answer_refuse(
			    a,
			    &(struct api_error){503, "server_error", "engine_unavailable", NULL, ANSWER_RETRY_AFTER_S},
			    rc == SL_ECLOSED     ? "The engine is not there at the moment. It is being restarted."
			    : rc == SL_ENOTFOUND ? "None of its models can answer at the moment."
						 : "The server is busy.");
			return;
		}
		/* The stream's slot is held until the engine has stopped the first run. */
		if (i == 0 && !a->out.logged)
			gen_hold(a->runs[0].gen, http_hold(a->x->stream));
	}
	if (a->sharing.lead != NULL) {
		gen_share(a->runs[0].gen, a->sharing.lead);
		token_log_unref(a->sharing.lead);
		a->sharing.lead = NULL;
	}
}

/* 0; SL_ENOMEM, with spec->own as it was. */
static int build(struct exchange *x, const struct answer_spec *spec, const struct load_ruling *ruling,
		 struct proto_submit *s, struct answer **out)
{
	struct answer *a = answer_create(x->app, x, x->snapshot, x->key, spec);
	if (a == NULL)
		return SL_ENOMEM;
	x->state = a;
	x->on_close = answer_on_exchange_close;
	x->observed = true;
	a->seen.trace = x->trace;
	x->trace = NULL;
	a->sharing.idempotent = x->idempotent;
	x->idempotent = NULL;
	a->load.model = s->model;
	a->max_tokens = s->max_tokens;
	/* What it becomes under load is what it may share. */
	answer_load_apply(a, ruling, s);
	answer_await_queued(a);
	*out = a;
	return 0;
}

/* Its copy for another variant, if one is to get it. */
static void want_shadow(struct answer *a, struct submit_frame *frame)
{
	uint64_t random;
	if (a->variant == NULL || a->n_runs != 1 || a->n_made != 1 || frame->s.beam_width > 0 || !random_u64(&random))
		return;
	a->shadow.variant = shadow_pick(a->variant, (double)(random >> 11) * 0x1p-53);
	if (a->shadow.variant == NULL)
		return;
	a->shadow.frame = submit_frame_ref(frame);
	a->shadow.given = a->x->variant_given;
}

/* A request that joins another takes no slot, and is not refused for load: it adds no work. */
static void share_or_submit(struct answer *a, const struct answer_spec *spec, const struct load_ruling *ruling,
			    struct proto_submit *s)
{
	struct submit_frame *frame = NULL;
	if (encode(spec, 0, s, &frame) != 0) {
		answer_refuse(a, &answer_no_memory, answer_no_memory_text);
		return;
	}
	answer_keep_frame(a, frame);
	int rc = answer_share(a, spec, frame);
	if (rc < 0) {
		answer_refuse(a, &answer_no_memory,
			      "The original response for this Idempotency-Key is temporarily unavailable.");
	} else if (rc == 0 && ruling->verdict == LOAD_REFUSE) {
		answer_load_refuse(a, ruling);
	} else if (rc == 0 && answer_slots_take(a)) {
		want_shadow(a, frame);
		submit(a, spec, s, frame);
	}
	submit_frame_unref(frame);
}

void answer_start(struct exchange *x, const struct answer_spec *spec)
{
	BUG_IF(spec->n_prompts < 1 || spec->n_prompts > ANSWER_MAX_RUNS, "an answer to %d prompts", spec->n_prompts);
	struct answer *a = NULL;
	struct proto_submit s;
	fill_submit(x, spec, &s);
	struct load_ruling ruling = answer_load_judge(x, spec->model == ANSWER_AUTO, &s);
	bool refused = ruling.verdict == LOAD_REFUSE && x->idempotent == NULL && !answer_may_join(x->key, spec);
	if (!refused && build(x, spec, &ruling, &s, &a) == 0) {
		share_or_submit(a, spec, &ruling, &s);
		return;
	}
	if (refused) {
		answer_observe_refused(x);
		answer_load_turn_away(x, &ruling);
	}
	if (!refused)
		exchange_error(x, &answer_no_memory, "%s", answer_no_memory_text);
	if (spec->format->dispose != NULL)
		spec->format->dispose(spec->own);
	answer_split_free(spec->split);
}
