/* SPDX-License-Identifier: Apache-2.0
 *
 * A copy is gone once the engine is done with it, or has gone, or is told to forget it. Its credit is all it may
 * produce: nobody reads it.
 */
#include "gateway/variant/shadow.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "gateway/generation/engine_link.h"
#include "gateway/generation/submit_frame.h"
#include "gateway/loop/thread.h"
#include "gateway/loop/timer.h"
#include "gateway/observe/latency.h"
#include "gateway/variant/variant_counts.h"

enum { LOOK_MS = 50, WAIT_MS = 2000, LAST_PRIORITY = 255 };

struct shadow {
	struct shadows *home;       /* NULL: free */
	struct submit_frame *frame; /* until it is submitted; NULL: it is */
	struct proto_submit s;      /* of frame */
	uint64_t since_ns;          /* it waits, or runs */
	uint64_t id, begun_ns, token_ns;
	struct latency_cells *cells;
	struct variant_counts *counts;
	enum latency_cached cached;
	bool has_first, by_length; /* of the answer that it copies, as the next two */
	uint32_t first_id, n_answer;
	uint32_t n; /* its own tokens */
};

struct shadows {
	struct gw_thread *t;
	struct gw_timer timer;
	struct shadow all[SHADOW_MOST];
};

const struct variant *shadow_pick(const struct variant *by, double draw)
{
	const struct variant_group *g = by->group;
	for (size_t i = 1; i < g->n; i++) {
		const struct variant *v = &g->all[i];
		if (v == by)
			continue;
		if (draw < v->cfg->shadow)
			return v;
		draw -= v->cfg->shadow;
	}
	return NULL;
}

/* ---- one copy ---- */

static void end(struct shadow *sh, enum variant_shadow how)
{
	variant_counts_shadow(sh->counts, how, 1);
	submit_frame_unref(sh->frame);
	sh->frame = NULL;
	sh->home = NULL;
}

static void on_queued(void *ctx, const struct proto_queued *m)
{
	struct shadow *sh = ctx;
	sh->cached = m->n_cached == 0                    ? LATENCY_CACHED_NONE
		     : m->miss_reason == PROTO_MISS_NONE ? LATENCY_CACHED_FULL
							 : LATENCY_CACHED_PART;
}

static void on_tokens(void *ctx, const struct proto_tokens *m)
{
	struct shadow *sh = ctx;
	const uint64_t now = clock_now_ns();
	if (m->n == 0)
		return;
	if (sh->n == 0) {
		latency_first_token(sh->cells, sh->cached, now - sh->begun_ns);
		variant_counts_shadow(sh->counts, SHADOW_OTHER_TOKEN,
				      sh->has_first && proto_token_at(m, 0).id != sh->first_id);
	} else {
		latency_gap(sh->cells, false, now - sh->token_ns, m->n);
	}
	sh->token_ns = now;
	sh->n += m->n;
}

static void count(const struct shadow *sh, const struct proto_done *m, bool failed)
{
	const bool by_length = m->finish == PROTO_FINISH_LENGTH;
	const struct latency_answer a = {.finish = failed      ? LATENCY_ERROR
						   : by_length ? LATENCY_LENGTH
							       : LATENCY_STOP,
					 .cached = sh->cached,
					 .e2e_ns = clock_now_ns() - sh->begun_ns,
					 .prompt = m->n_prompt,
					 .answer = m->n_completion};
	latency_end(sh->cells, &a);
	if (failed)
		return;
	variant_counts_shadow(sh->counts, SHADOW_OTHER_END, by_length != sh->by_length);
	variant_counts_shadow(sh->counts, SHADOW_TOKENS, m->n_completion);
	variant_counts_shadow(sh->counts, SHADOW_ANSWER_TOKENS, sh->n_answer);
}

static void on_done(void *ctx, const struct proto_done *m)
{
	struct shadow *sh = ctx;
	const bool failed = m->error != PROTO_ERR_NONE;
	count(sh, m, failed);
	end(sh, failed ? SHADOW_FAILED : SHADOW_DONE);
}

static void on_lost(void *ctx)
{
	struct shadow *sh = ctx;
	end(sh, SHADOW_INTERRUPTED);
}

static const struct link_listener listener = {
    .on_queued = on_queued, .on_tokens = on_tokens, .on_done = on_done, .on_lost = on_lost};

/* ---- all of a thread ---- */

static bool is_loaded(const struct shadows *s) { return engine_link_stats(s->t->link)->waiting > 0; }

static void interrupt(struct shadow *sh)
{
	if (sh->frame == NULL)
		engine_link_forget(sh->home->t->link, sh->id);
	end(sh, sh->frame == NULL ? SHADOW_INTERRUPTED : SHADOW_SKIPPED);
}

static void submit(struct shadow *sh);

static void look(struct shadow *sh, bool loaded)
{
	const uint64_t most_ms = sh->frame != NULL ? WAIT_MS : SHADOW_MS;
	const bool late = clock_now_ns() - sh->since_ns > most_ms * NS_PER_MS;
	if (late || (loaded && sh->frame == NULL))
		interrupt(sh);
	else if (!loaded && sh->frame != NULL)
		submit(sh);
}

static void on_timer(struct gw_timer *timer)
{
	struct shadows *s = list_entry(timer, struct shadows, timer);
	const bool loaded = is_loaded(s);
	bool any = false;
	for (int i = 0; i < SHADOW_MOST; i++) {
		if (s->all[i].home != NULL)
			look(&s->all[i], loaded);
		any = any || s->all[i].home != NULL;
	}
	if (any)
		gw_timer_start(&s->t->timers, &s->timer, LOOK_MS * NS_PER_MS);
}

static struct shadow *free_one(struct shadows *s)
{
	for (int i = 0; i < SHADOW_MOST; i++)
		if (s->all[i].home == NULL)
			return &s->all[i];
	return NULL;
}

/* The copy of ask's request for that model. */
static struct proto_submit copy_of(const struct shadow_ask *ask, int model)
{
	struct proto_submit s = ask->frame->s;
	bool has_max_tokens = true;
	const struct variant_submit to = {
	    .submit = &s, .has_max_tokens = &has_max_tokens, .max_tokens = &s.max_tokens, .given = ask->given};
	variant_apply(ask->variant, &to);
	s.model = (uint16_t)model;
	s.priority = LAST_PRIORITY;
	s.rate_tps = 0;
	s.flags &= (uint8_t)~PROTO_SUBMIT_WANT_LOGPROBS;
	s.n_top_logprobs = s.prompt_logprobs = 0;
	if (s.deadline_ms == 0 || s.deadline_ms > SHADOW_MS)
		s.deadline_ms = SHADOW_MS;
	return s;
}

/* Its request goes to the engine. */
static void submit(struct shadow *sh)
{
	struct engine_link *link = sh->home->t->link;
	uint64_t retry_ms;
	sh->begun_ns = clock_now_ns();
	sh->since_ns = sh->begun_ns;
	/* The few requests that a failing engine gets are those of clients. */
	if (!engine_link_admits(link, sh->s.model, &retry_ms) ||
	    engine_link_submit(link, &sh->s, &listener, sh, &sh->id) != 0) {
		end(sh, SHADOW_SKIPPED);
		return;
	}
	engine_link_credit(link, sh->id, sh->s.max_tokens);
	submit_frame_unref(sh->frame);
	sh->frame = NULL;
}

/* Apart from the model's own figures, which are its users'. */
static struct latency_cells *cells_of(const struct variant *v)
{
	char model[PROTO_MAX_NAME + 16];
	snprintf(model, sizeof model, "shadow:%s", v->group->of);
	return latency_of("shadow", model, v->cfg->name);
}

/* One that is loaded at the moment. */
static bool is_here(const struct shadows *s, int model)
{
	const struct engine_link *link = s->t->link;
	return model >= 0 && engine_link_serves(link, model) &&
	       engine_link_model(link, model)->residence == PROTO_RESIDENCE_HERE;
}

void shadow_begin(struct shadows *s, const struct shadow_ask *ask, uint32_t n_tokens, bool by_length)
{
	const struct variant *v = ask->variant;
	const int model = engine_link_find_model(s->t->link, v->cfg->model);
	struct shadow *sh = free_one(s);
	if (sh == NULL || s->t->draining || !is_here(s, model)) {
		variant_counts_shadow(v->counts, SHADOW_SKIPPED, 1);
		return;
	}
	*sh = (struct shadow){.home = s,
			      .frame = submit_frame_ref(ask->frame),
			      .s = copy_of(ask, model),
			      .since_ns = clock_now_ns(),
			      .cells = cells_of(v),
			      .counts = v->counts,
			      .by_length = by_length,
			      .has_first = ask->has_first,
			      .first_id = ask->first_id,
			      .n_answer = n_tokens};
	gw_timer_start(&s->t->timers, &s->timer, LOOK_MS * NS_PER_MS);
}

struct shadows *shadows_create(struct gw_thread *t)
{
	struct shadows *s = sl_zalloc(sizeof *s);
	if (s == NULL)
		return NULL;
	s->t = t;
	gw_timer_init(&s->timer, on_timer);
	return s;
}

void shadows_destroy(struct shadows *s)
{
	if (s == NULL)
		return;
	for (int i = 0; i < SHADOW_MOST; i++)
		if (s->all[i].home != NULL)
			interrupt(&s->all[i]);
	gw_timer_stop(&s->t->timers, &s->timer);
	sl_free(s);
}
