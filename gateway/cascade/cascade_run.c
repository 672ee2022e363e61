/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles the events of a run. Each is handled completely before the next:
 *
 *   cascade_run_begin -> cascade_run_step (casc_step and its actions) -> cascade_run_end (flush, credit, timer)
 *
 * Delivering tokens may make the last subscriber leave during an event (on_leave). Then both sequences are closed at
 * once, and the state machine learns of it at the end of the event.
 *
 * Lengths. max_tokens limits the whole answer. After a switch, the large model's limit depends on how many tokens it
 * accepted, which only VERIFIED reports. So this file ends the answer by length (end_by_length), not the engine.
 *
 * Ownership: the generation and the answer each hold a reference; the last one frees the run and its reference to the
 * configuration.
 */
#define LOG_SUBSYSTEM LOG_CASCADE

#include "gateway/cascade/cascade_run_priv.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/flight.h"
#include "base/log.h"
#include "base/err.h"
#include "gateway/transport/http.h"
#include "gateway/auth/snapshot.h"

static const char strange[] = "The engine sent an impossible event.", stopping[] = "The engine is being stopped.";
const char cascade_run_failed_before[] = "The model has failed on this request before.";
const char cascade_run_gone[] = "The engine stopped unexpectedly. It is being restarted.";

bool cascade_run_is_watched(const struct cascade_run *r)
{
	return r->casc.phase == CASC_HELD || r->casc.phase == CASC_RACING || r->casc.phase == CASC_SHOWN;
}

static struct cascade_side *other(struct cascade_side *s)
{
	return s == &s->run->small ? &s->run->large : &s->run->small;
}

/* ---- lifetime ---- */

static void free_run(struct cascade_run *r)
{
	BUG_IF(r->small.id != 0 || r->large.id != 0 || r->gen != NULL, "cascade: a run is freed before its end");
	gw_timer_stop(&r->t->timers, &r->timer);
	cascade_queue_dispose(&r->small.queue);
	cascade_queue_dispose(&r->large.queue);
	submit_frame_unref(r->frame);
	buf_dispose(&r->ids);
	buf_dispose(&r->kept);
	sl_free(r->message);
	sl_free(r->features);
	sl_free(r->trace);
	sl_free(r->small.sent_by);
	sl_free(r->large.sent_by);
	gw_snapshot_unref(r->snapshot);
	sl_free(r);
}

void cascade_run_unref(struct cascade_run *r)
{
	if (r != NULL && --r->refs == 0)
		free_run(r);
}

/* ---- actions ---- */

static void cancel(struct cascade_side *s)
{
	cascade_feed_flush(s->run);
	cascade_side_forget(s);
	cascade_queue_keep(&s->queue, s->n_ready); /* released, but waiting for the store; usually none */
}

static void note_switch(const struct cascade_run *r, const struct casc_action *a)
{
	flight_note(FLIGHT_CASCADE, r->casc.plan, r->casc.escalated, 1, 0, 0);
	log_debug("%s: %s takes over because of %s, with %u tokens of %s", r->id_text, r->large.name,
		  casc_reason_name(r->casc.escalated), a->n, r->small.name);
}

static void act(struct cascade_run *r, const struct casc_action *a)
{
	switch ((enum casc_action_kind)a->kind) {
	case CASC_DO_START_SMALL: cascade_side_submit(&r->small, 0, 0); break;
	case CASC_DO_START_LARGE: cascade_side_submit(&r->large, 0, 0); break;
	case CASC_DO_HOLD: break; /* held tokens stay in the queue */
	case CASC_DO_RELEASE:
		if (r->shown_ns == 0)
			r->shown_ns = clock_now_ns();
		(a->model == CASC_SMALL ? &r->small : &r->large)->n_ready += a->n;
		break;
	case CASC_DO_ESCALATE:
		r->switched_ns = clock_now_ns();
		note_switch(r, a);
		cascade_feed_flush(r);
		cascade_side_submit(&r->large, a->n, a->keep);
		break;
	case CASC_DO_PAUSE_SMALL: r->paused = true; break;
	case CASC_DO_RESUME_SMALL: r->paused = false; break;
	case CASC_DO_CANCEL_SMALL: cancel(&r->small); break;
	case CASC_DO_CANCEL_LARGE: cancel(&r->large); break;
	case CASC_DO_TELL:
		if (a->n == CASC_TELL_DEGRADED) {
			r->tells_degraded = true;
		} else {
			r->tells_disagreement = true;
			r->disagreed_at = a->keep;
		}
		break;
	case CASC_DO_END:
		cascade_feed_flush(r);
		cascade_feed_end(r, a->n);
		break;
	case CASC_N_ACTIONS: break;
	}
}

void cascade_run_carry_out(struct cascade_run *r, const struct casc_actions *out)
{
	casc_check(&r->casc);
	if (r->casc.held_by != CASC_NOT_HELD && r->decided_ns == 0)
		r->decided_ns = clock_now_ns();
	if (casc_past_note(&r->past, &r->casc) && r->note != NULL && r->gen != NULL && r->note(r->note_ctx))
		r->saving = true;
	for (uint32_t i = 0; i < out->n; i++)
		act(r, &out->at[i]);
}

bool cascade_run_step(struct cascade_run *r, struct casc_event *e)
{
	struct casc_actions out;
	e->now_ms = clock_now_ns() / NS_PER_MS;
	if (r->casc.phase == CASC_OVER || cascade_tier_step(r->tier, &r->casc, e, &out) != 0)
		return false;
	cascade_run_carry_out(r, &out);
	return true;
}

static void step_kind(struct cascade_run *r, enum casc_event_kind kind)
{
	cascade_run_step(r, &(struct casc_event){.kind = (uint8_t)kind});
}

/* ---- timer ---- */

static void arm(struct cascade_run *r)
{
	uint64_t due = casc_due(&r->casc), now = clock_now_ns();
	if (due == r->due_ms)
		return;
	r->due_ms = due;
	if (due == 0)
		gw_timer_stop(&r->t->timers, &r->timer);
	else
		gw_timer_start(&r->t->timers, &r->timer, due * NS_PER_MS > now ? due * NS_PER_MS - now : 0);
}

/* Is nothing more to be submitted? */
static bool is_settled(const struct cascade_run *r)
{
	const struct casc *c = &r->casc;
	return c->phase == CASC_OVER || c->phase == CASC_TAKEN ||
	       (c->phase == CASC_ONE && c->small.shown + c->large.shown > 0);
}

/* ---- events ---- */

void cascade_run_begin(struct cascade_run *r)
{
	BUG_IF(r->busy, "cascade: nested events");
	r->busy = true;
	r->refs++;
}

void cascade_run_end(struct cascade_run *r)
{
	while (r->small_failed || r->large_failed) {
		enum casc_event_kind kind = r->small_failed ? CASC_SMALL_FAILED : CASC_LARGE_FAILED;
		*(r->small_failed ? &r->small_failed : &r->large_failed) = false;
		step_kind(r, kind);
	}
	cascade_feed_flush(r);
	if (r->ends_later && !r->saving)
		cascade_feed_end(r, r->end_how);
	if (r->gen == NULL && r->is_queued)
		step_kind(r, CASC_CLIENT_GONE);
	cascade_side_give(&r->small);
	cascade_side_give(&r->large);
	arm(r);
	if (is_settled(r)) {
		submit_frame_unref(r->frame);
		r->frame = NULL;
	}
	if (r->casc.phase == CASC_OVER)
		cascade_run_book(r);
	r->busy = false;
	cascade_run_unref(r);
}

void cascade_run_on_timer(struct gw_timer *timer)
{
	struct cascade_run *r = list_entry(timer, struct cascade_run, timer);
	r->due_ms = 0;
	cascade_run_begin(r);
	step_kind(r, CASC_TIMER);
	cascade_run_end(r);
}

static void on_queued(void *ctx, const struct proto_queued *m)
{
	struct cascade_side *s = ctx;
	struct cascade_run *r = s->run;
	bool alone = other(s)->id == 0 || !other(s)->queued;
	cascade_run_begin(r);
	s->queued = true;
	s->n_prompt = m->n_prompt;
	if (!r->is_queued)
		r->queued = *m;
	r->is_queued = true;
	/* The client sees the first sequence's queue position until something is shown. */
	if (r->gen != NULL && alone && r->shown_ns == 0)
		gen_told.on_queued(r->gen, m);
	cascade_run_end(r);
}

static void take_confidence(const struct proto_tokens *m, uint16_t i, struct casc_token *out)
{
	struct proto_token t = proto_token_at(m, i);
	*out = (struct casc_token){.logprob = t.logprob};
	/* Rounding may raise certainty slightly above 0. */
	if (out->logprob > 0 && out->logprob < 1e-3F)
		out->logprob = 0;
	for (; out->n_top < m->n_top && out->n_top < CASC_TOP; out->n_top++) {
		float v = proto_top_at(m, i, out->n_top).v;
		out->top[out->n_top] = v > 0 && v < 1e-3F ? 0 : v;
	}
}

/* Out of memory: the whole answer fails, because another model would need no less. */
static void fail_all(struct cascade_run *r)
{
	cascade_sides_close(r, NULL);
	r->small.done.error = PROTO_ERR_OVERLOADED;
	sl_free(r->message);
	r->message = NULL;
	cascade_feed_flush(r);
	step_kind(r, CASC_CLIENT_GONE);
	cascade_feed_failed(r, &r->small);
}

static void note_small(struct cascade_run *r, const struct proto_tokens *m, uint16_t i)
{
	uint32_t id = proto_token_at(m, i).id;
	/* A longer draft is not verifiable. */
	if (cascade_run_is_watched(r) && r->verifiable && r->ids.len < PROTO_MAX_GIVEN * sizeof id)
		(void)buf_append(&r->ids, &id, sizeof id);
}

static void note_confidence(struct cascade_run *r)
{
	if (r->trace != NULL && r->n_trace < CASCADE_MAX_TRACE && r->n_trace < r->casc.conf.n)
		r->trace[r->n_trace++] = casc_conf_value(&r->casc.conf, &r->casc.policy.conf);
}

/* The answer has max_tokens. */
static void end_by_length(struct cascade_side *s)
{
	cascade_side_forget(s);
	s->done = (struct proto_done){.finish = PROTO_FINISH_LENGTH, .n_completion = s->made};
	step_kind(s->run, CASC_LARGE_DONE);
}

/* Repeated run: has the small model reached the token at which it failed? */
static bool fails_again(const struct cascade_run *r)
{
	bool may = cascade_run_is_watched(r) || r->casc.phase == CASC_ONE;
	return may && r->small.id != 0 && (r->known & CASC_PAST_SMALL_FAILED) && r->small.made >= r->past.failed;
}

static void take_token(struct cascade_side *s, struct cascade_frame *f)
{
	struct cascade_run *r = s->run;
	bool is_small = s == &r->small;
	struct casc_event e = {.kind = is_small ? CASC_SMALL_TOKEN : CASC_LARGE_TOKEN};
	uint16_t i = f->at;
	s->made++;
	if (r->first_ns == 0)
		r->first_ns = clock_now_ns();
	if (cascade_queue_push(&s->queue, f) != 0) {
		fail_all(r);
		return;
	}
	if (is_small && cascade_run_is_watched(r)) {
		note_small(r, f->m, i);
		take_confidence(f->m, i, &e.token);
	}
	if (!cascade_run_step(r, &e) && r->casc.phase != CASC_OVER)
		cascade_side_fail(s, PROTO_ERR_INTERNAL, strange);
	if (is_small)
		note_confidence(r);
	if (is_small && fails_again(r))
		cascade_side_fail(s, PROTO_ERR_INTERNAL, cascade_run_failed_before);
	else if (s->made >= s->most && s->id != 0)
		end_by_length(s);
}

static void on_tokens(void *ctx, const struct proto_tokens *m)
{
	struct cascade_side *s = ctx;
	struct cascade_run *r = s->run;
	struct cascade_frame f;
	cascade_run_begin(r);
	if (s->verifying || m->n > s->credited - s->made)
		cascade_side_fail(s, PROTO_ERR_INTERNAL, strange);
	cascade_frame_begin(&f, m);
	while (f.at < m->n && s->id != 0 && r->gen != NULL)
		take_token(s, &f);
	cascade_run_end(r);
}

/* Only unwatched runs have several choices: one model generates them all. */
static void on_choice(void *ctx, const struct proto_choice *m)
{
	struct cascade_side *s = ctx;
	struct cascade_run *r = s->run;
	cascade_run_begin(r);
	cascade_feed_flush(r);
	if (r->gen != NULL && r->casc.phase == CASC_ONE)
		gen_told.on_choice(r->gen, m);
	cascade_run_end(r);
}

static void on_verified(void *ctx, const struct proto_verified *m)
{
	struct cascade_side *s = ctx;
	struct cascade_run *r = s->run;
	cascade_run_begin(r);
	bool expected = s->verifying && m->n_used <= r->max_tokens &&
			m->n_used == (m->n_agreed > r->casc.small.shown ? m->n_agreed : r->casc.small.shown);
	s->verifying = false;
	s->most = expected ? r->max_tokens - m->n_used : 0;
	struct casc_event e = {.kind = CASC_VERIFIED, .n = m->n_agreed};
	if (!expected || !cascade_run_step(r, &e))
		cascade_side_fail(s, PROTO_ERR_INTERNAL, strange);
	else if (s->most == 0 && s->id != 0)
		end_by_length(s);
	cascade_run_end(r);
}

/* Prompts of an upstream are estimated until it has counted them. After a switch, this is the only count of the
 * request's own prompt: the small model's end was not awaited. */
static void take_count(struct cascade_side *s, uint32_t n_prompt)
{
	struct proto_queued *told = &s->run->queued;
	if (!s->estimates || n_prompt <= s->n_behind)
		return;
	s->n_prompt = n_prompt;
	told->n_prompt = n_prompt - s->n_behind;
}

static void on_done(void *ctx, const struct proto_done *m)
{
	struct cascade_side *s = ctx;
	struct cascade_run *r = s->run;
	cascade_run_begin(r);
	s->id = 0;
	if (m->finish == PROTO_FINISH_CANCELLED) {
		cascade_side_set_failed(s, PROTO_ERR_NOT_READY, stopping, strlen(stopping));
	} else if (m->finish == PROTO_FINISH_ERROR) {
		cascade_side_set_failed(s, m->error, m->message.at, m->message.n);
	} else {
		s->done = *m;
		s->done.message = (struct proto_str){"", 0};
		take_count(s, m->n_prompt);
		struct casc_event e = {.kind = s == &r->small ? CASC_SMALL_DONE : CASC_LARGE_DONE};
		if (!cascade_run_step(r, &e) && r->casc.phase != CASC_OVER)
			cascade_side_set_failed(s, PROTO_ERR_INTERNAL, strange, strlen(strange));
	}
	cascade_run_end(r);
}

static void on_lost(void *ctx)
{
	struct cascade_side *s = ctx;
	cascade_run_begin(s->run);
	s->id = 0;
	cascade_side_set_failed(s, PROTO_ERR_NOT_READY, cascade_run_gone, strlen(cascade_run_gone));
	cascade_run_end(s->run);
}

const struct link_listener cascade_side_listener = {.on_queued = on_queued,
						    .on_tokens = on_tokens,
						    .on_choice = on_choice,
						    .on_done = on_done,
						    .on_lost = on_lost,
						    .on_verified = on_verified};

/* ---- calls of the generation ---- */

static void on_credit(void *ctx, uint32_t n_tokens)
{
	struct cascade_run *r = ctx;
	if (__builtin_add_overflow(r->room, n_tokens, &r->room))
		r->room = UINT32_MAX;
	if (r->busy)
		return; /* cascade_run_end gives it */
	cascade_side_give(&r->small);
	cascade_side_give(&r->large);
}

static void on_leave(void *ctx, struct http_hold *hold)
{
	struct cascade_run *r = ctx;
	r->gen = NULL;
	r->is_queued = true;
	cascade_sides_close(r, hold);
	if (!r->busy) {
		cascade_run_begin(r);
		cascade_run_end(r);
	}
	cascade_run_unref(r);
}

const struct gen_source cascade_run_source = {on_credit, on_leave};

/* ---- for gateways that may continue it ---- */

bool cascade_run_repeats(const struct cascade_run *r) { return r->n_choices == 1 && casc_past_is_sound(&r->past); }

const struct casc_past *cascade_run_past(const struct cascade_run *r) { return &r->past; }
const char *cascade_run_small(const struct cascade_run *r) { return r->small.name; }
const char *cascade_run_large(const struct cascade_run *r) { return r->large.name; }
uint32_t cascade_run_cached(const struct cascade_run *r) { return r->queued.n_cached; }

void cascade_run_on_past(struct cascade_run *r, bool (*note)(void *ctx), void *ctx)
{
	r->note = note;
	r->note_ctx = ctx;
	if (note == NULL && r->saving)
		cascade_run_saved(r);
}

void cascade_run_saved(struct cascade_run *r)
{
	r->saving = false;
	if (r->busy)
		return; /* cascade_run_end handles it */
	cascade_run_begin(r);
	cascade_run_end(r);
}
