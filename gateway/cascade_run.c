/* SPDX-License-Identifier: Apache-2.0
 *
 * Between three parties: the machine that decides (casc_step), the link's sequences, and the generation
 * that is fed. An event of any of them is handled whole before the next one is looked at:
 *
 *   begin → casc_step, its actions … → what is ready is told → credit, timer → end
 *
 * Telling may make the last subscriber leave in the middle of it (leave); then its sequences are closed at
 * once and the machine hears of it at the end of the event. A sequence that can't be submitted fails like one
 * that the engine ends, but after the actions that are on their way (small_failed, large_failed).
 *
 * Credit. The generation's credit is a number of tokens that it wants in all (room), of whichever model.
 * While the small model is watched it gets a few tokens ahead only: credit can't be taken back, and what it
 * makes beyond the token that tips the scale is wasted. Paused it gets none. The large one, given a draft,
 * gets what is left when all of it is agreed with, at least one, since without credit nothing is computed.
 *
 * Lengths. max_tokens is the answer's: after a switch the large model may tell so many less than the tokens it
 * goes on behind, and that number is known only with VERIFIED. So the end by length is made here.
 *
 * Usage is what a reader can count: the prompt once, and the tokens that were told with the end tokens. What
 * was computed besides is in the metrics and in the log of outcomes.
 *
 * Ownership: a run is its generation's and its answer's; it goes with the later of both, and with it its hold on
 * the configuration.
 */
#include "gateway/cascade_run_priv.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "gateway/cascade_prompt.h"
#include "gateway/http.h"
#include "gateway/snapshot.h"

enum {
	WATCH_AHEAD = 8, /* tokens that the small model may be ahead while it is watched: some steps of the engine */
	MAX_KEPT = 1 << 20,
};

static const char no_memory[] = "The server is out of memory.", strange[] = "The engine told what can't be.",
		  gone[] = "The engine stopped unexpectedly. It is being restarted.", stopping[] = "The engine is being stopped.",
		  busy[] = "The server is busy.";

static uint64_t now_ms(void) { return clock_now_ns() / NS_PER_MS; }

static bool is_watched(const struct cascade_run *r)
{
	return r->casc.phase == CASC_HELD || r->casc.phase == CASC_RACING || r->casc.phase == CASC_SHOWN;
}

static struct engine_link *link_of(const struct cascade_run *r) { return r->t->link; }
static struct cascade_side *other(struct cascade_side *s) { return s == &s->run->small ? &s->run->large : &s->run->small; }

/* ---- life ---- */

static void free_run(struct cascade_run *r)
{
	BUG_IF(r->small.id != 0 || r->large.id != 0 || r->gen != NULL, "a run of the cascade is freed in the middle");
	gw_timer_stop(&r->t->timers, &r->timer);
	cascade_queue_dispose(&r->small.queue);
	cascade_queue_dispose(&r->large.queue);
	buf_dispose(&r->frame);
	buf_dispose(&r->ids);
	buf_dispose(&r->kept);
	buf_dispose(&r->about);
	sl_free(r->message);
	sl_free(r->features);
	sl_free(r->trace);
	gw_snapshot_unref(r->snapshot);
	sl_free(r);
}

void cascade_run_unref(struct cascade_run *r)
{
	if (r != NULL && --r->refs == 0)
		free_run(r);
}

/* ---- ends of sequences ---- */

static void forget(struct cascade_side *s)
{
	if (s->id != 0)
		engine_link_forget(link_of(s->run), s->id);
	s->id = 0;
}

static void on_stopped(void *hold) { http_release(hold); }

/* hold: released when the first of them is done; NULL allowed. */
static void close_sides(struct cascade_run *r, struct http_hold *hold)
{
	struct cascade_side *s = r->large.id != 0 ? &r->large : &r->small;
	if (s->id != 0 && hold != NULL) {
		engine_link_abandon(link_of(r), s->id, on_stopped, hold);
		s->id = 0;
	} else {
		http_release(hold);
	}
	forget(&r->small);
	forget(&r->large);
}

/* message: copied. */
static void set_failed(struct cascade_side *s, uint8_t error, const char *message, size_t n)
{
	struct cascade_run *r = s->run;
	sl_free(r->message);
	r->message = sl_strndup(message, n);
	s->done = (struct proto_done){.finish = PROTO_FINISH_ERROR, .error = error};
	*(s == &r->small ? &r->small_failed : &r->large_failed) = true;
}

static void fail_side(struct cascade_side *s, uint8_t error, const char *message)
{
	forget(s);
	set_failed(s, error, message, strlen(message));
}

/* ---- what the generation is told ---- */

/* Text that a large model of another tokenizer would go on behind. */
static void keep_text(struct cascade_run *r, const struct proto_tokens *m)
{
	bool may_switch = r->casc.phase != CASC_ONE && r->casc.phase != CASC_OVER;
	if (!r->verifiable && may_switch && buf_append(&r->kept, m->text.at, m->text.n) != 0)
		r->large.model = -1; /* then there is no switch */
}

static void flush_side(struct cascade_side *s)
{
	struct cascade_run *r = s->run;
	while (s->n_ready > 0 && r->gen != NULL) {
		struct proto_tokens m;
		cascade_queue_front(&s->queue, s->n_ready, &m);
		if (s == &r->small)
			keep_text(r, &m);
		s->n_told += m.n;
		s->n_ready -= m.n;
		gen_told.on_tokens(r->gen, &m);
		cascade_queue_pop(&s->queue, &m);
	}
}

static void flush(struct cascade_run *r)
{
	flush_side(&r->small);
	flush_side(&r->large);
}

/* The end of what it is fed with: no call of it follows. */
static void tell_done(struct cascade_run *r, const struct proto_done *m)
{
	struct generation *g = r->gen;
	r->over = true;
	cascade_run_book(r);
	if (g == NULL)
		return;
	r->gen = NULL;
	gen_told.on_done(g, m);
	cascade_run_unref(r);
}

static void tell_failed(struct cascade_run *r, const struct cascade_side *s)
{
	const char *message = r->message != NULL ? r->message : no_memory;
	tell_done(r, &(struct proto_done){.finish = PROTO_FINISH_ERROR,
					  .error = s->done.error != 0 ? s->done.error : PROTO_ERR_OVERLOADED,
					  .n_prompt = r->queued.n_prompt,
					  .n_cached = r->queued.n_cached,
					  .n_completion = r->small.n_told + r->large.n_told,
					  .message = {message, strlen(message)}});
}

static void tell_end(struct cascade_run *r, uint32_t how)
{
	/* Whose end it is: the large one's if it has come to one; a small one that went on without it has outlived it. */
	enum casc_run_state want = how == CASC_END_FAILED ? CASC_RUN_FAILED : CASC_RUN_DONE;
	struct cascade_side *last = r->casc.large.state == want ? &r->large : &r->small;
	if (how == CASC_END_FAILED) {
		tell_failed(r, last);
		return;
	}
	if (how != CASC_END_DONE) {
		r->over = true;
		return;
	}
	struct proto_done done = last->done;
	uint32_t before = last == &r->large ? r->small.n_told : 0;
	done.n_prompt = r->queued.n_prompt;
	done.n_cached = r->queued.n_cached;
	done.n_completion = before + last->done.n_completion;
	done.message = (struct proto_str){"", 0};
	tell_done(r, &done);
}

/* ---- submitting ---- */

static const struct link_listener listener;

/* Answers of other models have no tokens that this one could read: it gets their text. */
static int put_kept(struct cascade_run *r, struct proto_submit *s, struct sl_buf *prompt)
{
	if (r->kept.len == 0)
		return 0;
	int rc = cascade_prompt_continue(prompt, s->prompt_kind, s->prompt, (const char *)buf_data(&r->kept), r->kept.len);
	if (rc == 0)
		s->prompt = (struct proto_str){(const char *)buf_data(prompt), prompt->len};
	return rc;
}

/* The large model is to check n_given tokens, and keep n_keep of them. */
static int put_given(struct cascade_run *r, struct proto_submit *s, uint32_t n_given, uint32_t n_keep)
{
	if (n_given > PROTO_MAX_GIVEN || n_given * sizeof(uint32_t) > r->ids.len || n_keep >= r->max_tokens)
		return SL_ELIMIT;
	s->n_given = (uint16_t)n_given;
	s->n_keep = (uint16_t)n_keep;
	s->given = (const uint32_t *)(const void *)buf_data(&r->ids);
	s->max_tokens = r->max_tokens - n_keep;
	return 0;
}

static void watch(const struct cascade_run *r, struct proto_submit *s)
{
	if (r->casc.plan != CASC_PLAN_CHECK && r->casc.plan != CASC_PLAN_RACE)
		return;
	s->flags |= PROTO_SUBMIT_WANT_LOGPROBS;
	if (s->n_top_logprobs < CASC_TOP)
		s->n_top_logprobs = CASC_TOP;
}

static int submit_frame(struct cascade_side *side, struct proto_submit *s, uint32_t n_given, uint32_t n_keep)
{
	struct cascade_run *r = side->run;
	uint64_t waited_ms = (clock_now_ns() - r->submitted_ns) / NS_PER_MS;
	struct sl_buf prompt;
	int rc = 0;
	s->model = (uint16_t)side->model;
	if (s->deadline_ms > 0)
		s->deadline_ms = waited_ms < s->deadline_ms ? s->deadline_ms - (uint32_t)waited_ms : 1;
	buf_init(&prompt, PROTO_MAX_PAYLOAD);
	if (side == &r->small)
		watch(r, s);
	else if (n_given > 0)
		rc = put_given(r, s, n_given, n_keep);
	else if (n_keep > 0)
		rc = put_kept(r, s, &prompt);
	if (rc == 0 && n_given == 0 && n_keep > 0)
		s->max_tokens = r->max_tokens > n_keep ? r->max_tokens - n_keep : 1;
	if (rc == 0)
		rc = engine_link_submit(link_of(r), s, &listener, side, &side->id);
	buf_dispose(&prompt);
	return rc;
}

static void submit(struct cascade_side *side, uint32_t n_given, uint32_t n_keep)
{
	struct cascade_run *r = side->run;
	struct proto_submit s;
	if (r->gen == NULL && r->is_queued)
		return; /* nobody is there any more */
	if (r->frame.len == 0 || side->model < 0) {
		set_failed(side, PROTO_ERR_OVERLOADED, busy, strlen(busy));
		return;
	}
	int rc = proto_get_submit((const uint8_t *)buf_data(&r->frame) + PROTO_HEAD_BYTES, r->frame.len - PROTO_HEAD_BYTES, &s, NULL);
	BUG_IF(rc != 0, "a request that was kept can't be read: %s", sl_code_name(rc));
	side->lost_prompt += side->n_prompt;
	side->n_prompt = side->made = side->credited = side->n_ready = side->n_told = 0;
	side->queued = false;
	side->verifying = n_given > 0;
	side->most = UINT32_MAX;
	cascade_queue_clear(&side->queue);
	rc = submit_frame(side, &s, n_given, n_keep);
	if (rc == SL_ECLOSED)
		set_failed(side, PROTO_ERR_NOT_READY, gone, strlen(gone));
	else if (rc != 0)
		set_failed(side, PROTO_ERR_OVERLOADED, busy, strlen(busy));
}

/* ---- actions ---- */

static void cancel(struct cascade_side *s)
{
	flush(s->run); /* what was released before is shown */
	forget(s);
	s->n_ready = 0;
	cascade_queue_clear(&s->queue);
}

static void act(struct cascade_run *r, const struct casc_action *a)
{
	switch ((enum casc_action_kind)a->kind) {
	case CASC_DO_START_SMALL: submit(&r->small, 0, 0); break;
	case CASC_DO_START_LARGE: submit(&r->large, 0, 0); break;
	case CASC_DO_HOLD: break; /* what is not released is not told */
	case CASC_DO_RELEASE:
		if (r->shown_ns == 0)
			r->shown_ns = clock_now_ns();
		(a->model == CASC_SMALL ? &r->small : &r->large)->n_ready += a->n;
		break;
	case CASC_DO_ESCALATE:
		flush(r);
		submit(&r->large, a->n, a->keep);
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
		flush(r);
		tell_end(r, a->n);
		break;
	case CASC_N_ACTIONS: break;
	}
}

/* False: it can't come now. */
static bool step(struct cascade_run *r, struct casc_event *e)
{
	struct casc_actions out;
	e->now_ms = now_ms();
	if (r->casc.phase == CASC_OVER || cascade_tier_step(r->tier, &r->casc, e, &out) != 0)
		return false;
	casc_check(&r->casc);
	for (uint32_t i = 0; i < out.n; i++)
		act(r, &out.at[i]);
	return true;
}

static void tell_kind(struct cascade_run *r, enum casc_event_kind kind)
{
	step(r, &(struct casc_event){.kind = (uint8_t)kind});
}

/* ---- credit, timer ---- */

static uint32_t may_make(const struct cascade_side *s)
{
	const struct cascade_run *r = s->run;
	uint32_t before = r->small.n_told, most;
	if (s == &r->small) {
		if (r->paused)
			return 0;
		most = s->made + WATCH_AHEAD;
		return is_watched(r) && most < r->room ? most : r->room;
	}
	if (r->casc.phase == CASC_SWITCH)
		before = r->casc.small.made;
	return r->room > before ? r->room - before : 1;
}

static void give(struct cascade_side *s)
{
	struct cascade_run *r = s->run;
	if (s->id == 0 || !s->queued || r->room == 0 || r->gen == NULL)
		return;
	uint32_t most = may_make(s);
	/* Not for every token, and never late. */
	if (most <= s->credited || (is_watched(r) && s->credited - s->made > WATCH_AHEAD / 2))
		return;
	engine_link_credit(link_of(r), s->id, most - s->credited);
	s->credited = most;
}

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

/* Nothing is submitted any more. */
static bool is_settled(const struct cascade_run *r)
{
	const struct casc *c = &r->casc;
	return c->phase == CASC_OVER || c->phase == CASC_TAKEN || (c->phase == CASC_ONE && c->small.shown + c->large.shown > 0);
}

/* ---- events ---- */

static void begin(struct cascade_run *r)
{
	BUG_IF(r->busy, "an event of the cascade in the middle of another");
	r->busy = true;
	r->refs++;
}

static void end(struct cascade_run *r)
{
	while (r->small_failed || r->large_failed) {
		enum casc_event_kind kind = r->small_failed ? CASC_SMALL_FAILED : CASC_LARGE_FAILED;
		*(r->small_failed ? &r->small_failed : &r->large_failed) = false;
		tell_kind(r, kind);
	}
	flush(r);
	if (r->gen == NULL && r->is_queued)
		tell_kind(r, CASC_CLIENT_GONE);
	give(&r->small);
	give(&r->large);
	arm(r);
	if (is_settled(r))
		buf_dispose(&r->frame);
	if (r->casc.phase == CASC_OVER)
		cascade_run_book(r);
	r->busy = false;
	cascade_run_unref(r);
}

static void on_timer(struct gw_timer *timer)
{
	struct cascade_run *r = list_entry(timer, struct cascade_run, timer);
	r->due_ms = 0;
	begin(r);
	tell_kind(r, CASC_TIMER);
	end(r);
}

static void on_queued(void *ctx, const struct proto_queued *m)
{
	struct cascade_side *s = ctx;
	struct cascade_run *r = s->run;
	bool alone = other(s)->id == 0 || !other(s)->queued;
	begin(r);
	s->queued = true;
	s->n_prompt = m->n_prompt;
	if (!r->is_queued)
		r->queued = *m;
	r->is_queued = true;
	/* Its place is the answer's until something is told. */
	if (r->gen != NULL && alone && r->shown_ns == 0)
		gen_told.on_queued(r->gen, m);
	end(r);
}

static void take_confidence(const struct proto_tokens *m, uint16_t i, struct casc_token *out)
{
	struct proto_token t = proto_token_at(m, i);
	*out = (struct casc_token){.logprob = t.logprob};
	/* Certainty may come out a rounding above 0. */
	if (out->logprob > 0 && out->logprob < 1e-3F)
		out->logprob = 0;
	for (; out->n_top < m->n_top && out->n_top < CASC_TOP; out->n_top++) {
		float v = proto_top_at(m, i, out->n_top).v;
		out->top[out->n_top] = v > 0 && v < 1e-3F ? 0 : v;
	}
}

/* Without memory for one more the answer fails as a whole: no other model has more. */
static void fail_all(struct cascade_run *r)
{
	close_sides(r, NULL);
	r->small.done.error = PROTO_ERR_OVERLOADED;
	sl_free(r->message);
	r->message = NULL;
	flush(r);
	tell_kind(r, CASC_CLIENT_GONE);
	tell_failed(r, &r->small);
}

static void note_small(struct cascade_run *r, const struct proto_tokens *m, uint16_t i)
{
	uint32_t id = proto_token_at(m, i).id;
	/* Beyond that they are no draft, and whoever asks for one is told so. */
	if (is_watched(r) && r->verifiable && r->ids.len < PROTO_MAX_GIVEN * sizeof id)
		(void)buf_append(&r->ids, &id, sizeof id);
}

static void note_confidence(struct cascade_run *r)
{
	if (r->trace != NULL && r->n_trace < CASCADE_MAX_TRACE && r->n_trace < r->casc.conf.n)
		r->trace[r->n_trace++] = casc_conf_value(&r->casc.conf, &r->casc.policy.conf);
}

/* The answer has as many tokens as it may have. */
static void end_by_length(struct cascade_side *s)
{
	forget(s);
	s->done = (struct proto_done){.finish = PROTO_FINISH_LENGTH, .n_completion = s->made};
	tell_kind(s->run, CASC_LARGE_DONE);
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
	if (is_small && is_watched(r)) {
		note_small(r, f->m, i);
		take_confidence(f->m, i, &e.token);
	}
	if (!step(r, &e) && r->casc.phase != CASC_OVER)
		fail_side(s, PROTO_ERR_INTERNAL, strange);
	if (is_small)
		note_confidence(r);
	else if (s->made >= s->most && s->id != 0)
		end_by_length(s);
}

static void on_tokens(void *ctx, const struct proto_tokens *m)
{
	struct cascade_side *s = ctx;
	struct cascade_run *r = s->run;
	struct cascade_frame f;
	begin(r);
	if (s->verifying || m->n > s->credited - s->made)
		fail_side(s, PROTO_ERR_INTERNAL, strange);
	cascade_frame_begin(&f, m);
	while (f.at < m->n && s->id != 0 && r->gen != NULL)
		take_token(s, &f);
	end(r);
}

/* Of several choices, which nobody watches: one model tells them all. */
static void on_choice(void *ctx, const struct proto_choice *m)
{
	struct cascade_side *s = ctx;
	struct cascade_run *r = s->run;
	begin(r);
	flush(r);
	if (r->gen != NULL && r->casc.phase == CASC_ONE)
		gen_told.on_choice(r->gen, m);
	end(r);
}

static void on_verified(void *ctx, const struct proto_verified *m)
{
	struct cascade_side *s = ctx;
	struct cascade_run *r = s->run;
	begin(r);
	bool expected = s->verifying && m->n_used <= r->max_tokens &&
			m->n_used == (m->n_agreed > r->small.n_told ? m->n_agreed : r->small.n_told);
	s->verifying = false;
	s->most = expected ? r->max_tokens - m->n_used : 0;
	struct casc_event e = {.kind = CASC_VERIFIED, .n = m->n_agreed};
	if (!expected || !step(r, &e))
		fail_side(s, PROTO_ERR_INTERNAL, strange);
	else if (s->most == 0 && s->id != 0)
		end_by_length(s);
	end(r);
}

static void on_done(void *ctx, const struct proto_done *m)
{
	struct cascade_side *s = ctx;
	struct cascade_run *r = s->run;
	begin(r);
	s->id = 0;
	if (m->finish == PROTO_FINISH_CANCELLED) {
		set_failed(s, PROTO_ERR_NOT_READY, stopping, strlen(stopping));
	} else if (m->finish == PROTO_FINISH_ERROR) {
		set_failed(s, m->error, m->message.at, m->message.n);
	} else {
		s->done = *m;
		s->done.message = (struct proto_str){"", 0};
		struct casc_event e = {.kind = s == &r->small ? CASC_SMALL_DONE : CASC_LARGE_DONE};
		if (!step(r, &e) && r->casc.phase != CASC_OVER)
			set_failed(s, PROTO_ERR_INTERNAL, strange, strlen(strange));
	}
	end(r);
}

static void on_lost(void *ctx)
{
	struct cascade_side *s = ctx;
	begin(s->run);
	s->id = 0;
	set_failed(s, PROTO_ERR_NOT_READY, gone, strlen(gone));
	end(s->run);
}

static const struct link_listener listener = {on_queued, on_tokens, on_choice, on_done, on_lost, on_verified};

/* ---- the generation's ---- */

static void on_credit(void *ctx, uint32_t n_tokens)
{
	struct cascade_run *r = ctx;
	if (__builtin_add_overflow(r->room, n_tokens, &r->room))
		r->room = UINT32_MAX;
	if (r->busy)
		return; /* given at the end of it */
	give(&r->small);
	give(&r->large);
}

static void on_leave(void *ctx, struct http_hold *hold)
{
	struct cascade_run *r = ctx;
	r->gen = NULL;
	r->is_queued = true;
	close_sides(r, hold);
	if (!r->busy) {
		begin(r);
		end(r);
	}
	cascade_run_unref(r);
}

static const struct gen_source source = {on_credit, on_leave};

/* ---- the beginning ---- */

static void side_init(struct cascade_side *s, struct cascade_run *r, int model, const struct proto_submit *submit)
{
	bool logprobs = (submit->flags & PROTO_SUBMIT_WANT_LOGPROBS) != 0;
	s->run = r;
	s->model = model;
	s->most = UINT32_MAX;
	if (model >= 0)
		memcpy(s->name, engine_link_model(link_of(r), model)->name, sizeof s->name);
	cascade_queue_init(&s->queue, logprobs ? submit->n_top_logprobs : 0, logprobs);
}

/* A rule of the configuration names a model; one that is neither of the two is the large one of this request. */
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
	uint64_t ms = model >= 0 ? engine_link_wait_ms(link_of(r), model, priority) : 0;
	return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

static bool one_tokenizer(const struct engine_link *link, const struct cascade_models *m)
{
	if (m->small < 0 || m->large < 0)
		return false;
	uint64_t digest = engine_link_model(link, m->small)->tokenizer;
	return digest != 0 && digest == engine_link_model(link, m->large)->tokenizer;
}

/* What it asks of the machine. */
static void plan(struct cascade_run *r, const struct cascade_ask *ask, struct casc_event *e)
{
	const struct proto_submit *s = ask->submit;
	struct cascade_models m = ask->models;
	struct casc_score score;
	cascade_prompt_score(cascade_state_scorer(ask->snapshot->cascade), s->prompt_kind, s->prompt, ask->asked_tokens, &score, r->features);
	r->score = score.score;
	*e = (struct casc_event){.kind = CASC_START,
				 .plan = {.score = score.score,
					  .forced = forced_by(link_of(r), score.model, &m),
					  .can_watch = s->n == 1 && s->best_of <= 1 && s->beam_width == 0 && s->prompt_logprobs == 0,
					  .wants_to_know = ask->wants_to_know}};
	r->verifiable = one_tokenizer(link_of(r), &m);
	e->plan.can_small = m.can_small;
	e->plan.can_large = m.can_large;
	e->plan.can_verify = r->verifiable;
	if (m.can_small && m.can_large)
		e->plan.degraded = cascade_tier_degraded(r->tier, predicted_ms(r, m.small, s->priority),
							 predicted_ms(r, m.large, s->priority), now_ms());
	side_init(&r->small, r, m.can_small ? m.small : -1, s);
	side_init(&r->large, r, m.can_large ? m.large : -1, s);
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
	r->log = cascade_state_log(ask->snapshot->cascade);
	r->started_ns = ask->started_ns;
	r->submitted_ns = clock_now_ns();
	r->max_tokens = ask->submit->max_tokens;
	memcpy(r->id_text, ask->id, n_id < sizeof r->id_text ? n_id : sizeof r->id_text - 1);
	gw_timer_init(&r->timer, on_timer);
	buf_init(&r->frame, PROTO_HEAD_BYTES + PROTO_MAX_PAYLOAD);
	buf_init(&r->ids, PROTO_MAX_GIVEN * sizeof(uint32_t));
	buf_init(&r->kept, MAX_KEPT);
	buf_init(&r->about, 4096);
	casc_init(&r->casc, cascade_tier_policy(r->tier));
	int rc = proto_put_submit(&r->frame, 0, ask->submit);
	if (rc == 0 && r->log != NULL) {
		r->features = sl_zalloc(sizeof *r->features);
		r->trace = sl_zalloc_n(CASCADE_MAX_TRACE, sizeof *r->trace);
		rc = r->features == NULL || r->trace == NULL ? SL_ENOMEM : 0;
	}
	if (rc != 0) {
		cascade_run_unref(r);
		return NULL;
	}
	return r;
}

/* What has kept it from starting. */
static int start_code(const struct cascade_run *r)
{
	if (r->casc.plan == CASC_PLAN_NONE)
		return SL_ENOTFOUND;
	return engine_link_up(link_of(r)) ? SL_ELIMIT : SL_ECLOSED;
}

int cascade_run_start(struct gw_thread *t, const struct cascade_ask *ask, uint32_t window_tokens, struct subscriber *first,
		      struct generation **gen, struct cascade_run **out)
{
	struct cascade_run *r = create(t, ask);
	struct casc_event e;
	if (r == NULL)
		return SL_ENOMEM;
	plan(r, ask, &e);
	begin(r);
	step(r, &e);
	end(r);
	int rc = r->casc.phase == CASC_OVER ? start_code(r) : 0;
	/* No frame of the engine is read before this returns. */
	if (rc == 0)
		rc = gen_start_fed(t, ask->submit, window_tokens, &source, r, first, &r->gen);
	if (rc != 0) {
		close_sides(r, NULL);
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

bool cascade_run_tells_degraded(const struct cascade_run *r) { return r->tells_degraded; }
