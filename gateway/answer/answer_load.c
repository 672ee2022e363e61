/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of an answer while others are before it:
 *
 *   before SUBMIT   the engine's last LOAD and the latest refusals: refused, or degraded,
 *                   at the cost of nothing
 *   at QUEUED       its own prediction, with its prompt counted: the same, at the cost of counting
 *   admitted        it is in the admission queue (admission_queue.h) unless none is ahead. For a moment
 *                   (gateway.queue.tell) nothing is sent, so that a refusal can be an HTTP status; then the 200
 *                   goes out, and its queue position as comments, until the first token. Its events begin only then:
 *                   they name the model, which may have become another.
 *   too long        waited for max_wait: asked of the other model from the beginning, or refused
 *   displaced       by one of a better tier, when the room is full
 *   under load      cut at its tier's limit: finish_reason "length", ended_by "load"
 *
 * One whose generation others share is not degraded any more: they asked for what it was. One that shares
 * another's costs nothing and waits as long as that.
 *
 * Thread: the exchange's. A timer of its own, so that those of answer.c need not know of it.
 */
#define LOG_SUBSYSTEM LOG_ADMISSION

#include "gateway/answer/answer_load.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/flight.h"
#include "base/log.h"
#include "base/metrics.h"
#include "gateway/answer/answer_priv.h"
#include "gateway/admission/refusals.h"
#include "gateway/loop/timer.h"
#include "gateway/admission/admission_queue.h"

enum {
	SHORT_MS = 50, /* a shorter predicted wait does not count as waiting */
	LEAST_TELL_MS = 100,
	SOON_MS = 20, /* a refusal takes no longer, if it can be helped */
};

/* For one that was let through by an estimate and is counted late: enough for what is almost certainly in time. */
static const double counted_margin = 1.05;

#define REFUSED(label)                                                                                         \
	METRIC_OF(METRIC_COUNTER, "sluice_load_refused_total", "reason=\"" label "\"",                         \
		  "Answers refused for load: predicted too late, room full, waited too long, prompt too long " \
		  "under load, displaced, engine fails")
static struct metric refused_total[N_REFUSALS] = {
    [REFUSED_LATE] = REFUSED("late"),           [REFUSED_FULL] = REFUSED("full"),
    [REFUSED_WAITED] = REFUSED("waited"),       [REFUSED_PROMPT] = REFUSED("prompt"),
    [REFUSED_DISPLACED] = REFUSED("displaced"), [REFUSED_ERRORS] = REFUSED("errors")};
METRICS(refused_total);
#define DEGRADED(var, label)                                                           \
	METRIC(var, METRIC_COUNTER, "sluice_load_degraded_total", "how=\"" label "\"", \
	       "Answers degraded for load: by another model, or in length")
DEGRADED(degraded_model, "model");
DEGRADED(degraded_length, "length");
COUNTER(unsubmitted, "sluice_load_unsubmitted_total", "Of the refused ones those that the engine was not asked for");
COUNTER(cut_total, "sluice_load_cut_total", "Answers ended at their tier's output limit under load");
#define WAIT(p)                                                                   \
	METRIC_OF(METRIC_GAUGE, "sluice_predicted_wait_ms", "priority=\"" p "\"", \
		  "Until the first token of a request that came now, by priority; the longest of all models")
static struct metric waits[PROTO_PRIORITIES] = {WAIT("0"), WAIT("1"), WAIT("2"), WAIT("3"),
						WAIT("4"), WAIT("5"), WAIT("6"), WAIT("7")};
METRICS(waits);

/* What is needed of an answer until its first token: many are open for long after it. */
struct load_wait {
	struct answer *answer;
	struct gw_timer timer;
	struct waiting *place;      /* NULL: not queued */
	struct submit_frame **kept; /* [n_runs], counted, while they may be submitted again; NULL */
	uint64_t since_ns;          /* it waits; 0: it does not yet */
	uint64_t predicted_ns;      /* from then */
};

static const struct gw_config *config(const struct answer *a) { return a->app->t->cfg; }
static const struct gw_tier_config *tier_of(const struct answer *a) { return a->key->tier; }

static struct admission_guest guest_of(const struct answer *a)
{
	return (struct admission_guest){.tenant = a->key->tenant, .priority = tier_of(a)->priority};
}

/* ---- saying no ---- */

static struct api_error overloaded(uint64_t retry_ms)
{
	return (struct api_error){503, "server_error", "overloaded", NULL, load_retry_s(retry_ms)};
}

static const char late_text[] = "The server is busy: the first token would come too late.";

static const char errors_text[] =
    "The server is busy: requests for this model fail at the moment, so only a few are tried at once.";

static const char *const refusal_names[N_REFUSALS] = {
    [REFUSED_LATE] = "late",     [REFUSED_FULL] = "full",           [REFUSED_WAITED] = "waited",
    [REFUSED_PROMPT] = "prompt", [REFUSED_DISPLACED] = "displaced", [REFUSED_ERRORS] = "errors"};

/* predicted_ms: until its first token, as far as is known. */
static void note_refusal(struct exchange *x, enum refusal why, uint64_t predicted_ms, uint64_t retry_ms)
{
	if (x != NULL)
		x->retry_ms = retry_ms < UINT32_MAX ? (unsigned)retry_ms : 0;
	metric_add(&refused_total[why], 1);
	flight_note(FLIGHT_LOAD, (uint64_t)why, predicted_ms, retry_ms, 0, 0);
	log_debug("%s: refused for load (%s), predicted wait %llu ms, to retry in %llu ms", x != NULL ? x->id : "-",
		  refusal_names[why], (unsigned long long)predicted_ms, (unsigned long long)retry_ms);
	refusals_note(why, predicted_ms, clock_now_ns());
}

static void refuse(struct answer *a, enum refusal why, uint64_t predicted_ms, uint64_t retry_ms, const char *message)
{
	struct api_error e = overloaded(retry_ms);
	note_refusal(a->x, why, predicted_ms, retry_ms);
	a->load.refused = true;
	if (a->state == ANSWER_WAITING) {
		answer_refuse(a, &e, message);
		return;
	}
	answer_fail(a, &e, message);
	answer_leave_runs(a);
	answer_load_end(a);
}

void answer_load_refuse(struct answer *a, const struct load_ruling *r)
{
	metric_add(&unsubmitted, 1);
	refuse(a, r->why, r->wait_ms, r->retry_ms, r->why == REFUSED_ERRORS ? errors_text : late_text);
}

void answer_load_turn_away(struct exchange *x, const struct load_ruling *r)
{
	struct api_error e = overloaded(r->retry_ms);
	metric_add(&unsubmitted, 1);
	note_refusal(x, r->why, r->wait_ms, r->retry_ms);
	exchange_error(x, &e, "%s", r->why == REFUSED_ERRORS ? errors_text : late_text);
}

/* ---- predictions ---- */

static uint64_t left_ms(const struct generation *g, uint64_t now)
{
	uint64_t predicted = (uint64_t)gen_queued(g)->predicted_ttft_us * 1000, since = now - gen_queued_ns(g);
	return since < predicted ? (predicted - since) / NS_PER_MS : 0;
}

/* Of the run that waits longest. */
static void look(const struct answer *a, uint64_t now, uint32_t *position, uint64_t *ms)
{
	*position = 0;
	*ms = 0;
	for (int i = 0; i < a->n_runs; i++) {
		const struct generation *g = a->runs[i].gen;
		if (g == NULL)
			continue;
		uint64_t left = left_ms(g, now);
		*ms = left > *ms ? left : *ms;
		*position = gen_queued(g)->position > *position ? gen_queued(g)->position : *position;
	}
}

static bool is_absent(const struct engine_link *link, int model)
{
	return model >= 0 && model < engine_link_n_models(link) &&
	       engine_link_model(link, model)->residence != PROTO_RESIDENCE_HERE;
}

/* The model that it waits for and whose weights are not in memory; -1: none. Runs of the cascade may differ. */
static int loading_model(const struct answer *a)
{
	const struct engine_link *link = a->app->link;
	for (int i = 0; a->automatic && i < a->n_runs; i++) {
		int model = a->runs[i].cascade != NULL ? cascade_run_awaits(a->runs[i].cascade) : -1;
		if (a->runs[i].gen != NULL && is_absent(link, model))
			return model;
	}
	return !a->automatic && is_absent(link, a->load.model) ? a->load.model : -1;
}

/* A run of the cascade that begins at once may come to wait for a second model. */
static bool may_load_later(const struct answer *a)
{
	for (int i = 0; a->automatic && i < a->n_runs; i++)
		if (a->runs[i].cascade != NULL && is_absent(a->app->link, cascade_run_second(a->runs[i].cascade)))
			return true;
	return false;
}

/* Its status may still be another one: what another server says of the request comes only once it is sent there. */
static bool may_be_refused(const struct answer *a)
{
	const struct link_model *m = a->load.model >= 0 ? engine_link_model(a->app->link, a->load.model) : NULL;
	return m != NULL && link_model_is_remote(m);
}

/* ---- degrading ---- */

/* The model that may answer instead of `model`; -1: none, or none that would be in time. */
static int model_instead(const struct gw_app *app, const struct gw_tier_config *tier, int model)
{
	const struct engine_link *link = app->link;
	if (tier->when_late != GW_LATE_DEGRADE || tier->degrade_model == NULL || tier->degrade_model[0] == '\0')
		return -1;
	int i = engine_link_find_model(link, tier->degrade_model);
	if (i < 0 || i == model || engine_link_model(link, i)->state != PROTO_MODEL_READY)
		return -1;
	double ms = (double)engine_link_wait_ms(link, i, (uint8_t)tier->priority) *
		    load_margin_factor(&app->margin, clock_now_ns());
	return tier->ttft_target_ms > 0 && ms > (double)tier->ttft_target_ms ? -1 : i;
}

static int other_model(const struct answer *a)
{
	return a->automatic || a->load.degraded != NULL ? -1 : model_instead(a->app, tier_of(a), a->load.model);
}

static bool may_be_shorter(const struct gw_tier_config *tier)
{
	bool only_way = tier->degrade_model == NULL || tier->degrade_model[0] == '\0';
	return only_way && tier->degrade_max_tokens > 0;
}

static bool is_shorter(const struct answer *a)
{
	return a->load.degraded != NULL && strcmp(a->load.degraded, "length") == 0;
}

static struct load_case case_of(const struct gw_app *app, uint64_t predicted_ms)
{
	return (struct load_case){.predicted_ms = predicted_ms,
				  .most_ms = app->t->cfg->limits.first_token_ms,
				  .margin = load_margin_factor(&app->margin, clock_now_ns())};
}

static void set_degraded(struct answer *a, const char *how)
{
	a->load.degraded = how;
	if (a->x != NULL)
		a->x->degraded = how;
	log_debug("%s: degraded for load, by %s", a->seen.request_id, how);
	metric_add(strcmp(how, "model") == 0 ? &degraded_model : &degraded_length, 1);
}

/* False: no memory, and it is as it was. */
static bool take_model(struct answer *a, int model)
{
	const struct link_model *m = engine_link_model(a->app->link, model);
	char *name = sl_strdup(m->name);
	if (name == NULL)
		return false;
	sl_free(a->model);
	a->model = name;
	a->variant = NULL;
	if (a->x != NULL)
		a->x->variant = NULL;
	a->n_ctx = m->n_ctx;
	a->load.model = model;
	return true;
}

static void shorten(struct answer *a, struct proto_submit *s)
{
	int64_t most = tier_of(a)->degrade_max_tokens;
	if (most <= 0 || most >= (int64_t)s->max_tokens)
		return;
	s->max_tokens = (uint32_t)most;
	if (s->min_tokens > s->max_tokens)
		s->min_tokens = s->max_tokens;
	a->max_tokens = s->max_tokens;
	a->load.shortened = true;
}

/* Its engines fail too often to get one more now. */
static void judge_errors(const struct gw_app *app, int model, struct load_ruling *r)
{
	uint64_t retry_ms;
	if (engine_link_admits(app->link, model, &r->retry_ms))
		return;
	if (r->other >= 0 && engine_link_admits(app->link, r->other, &retry_ms)) {
		r->verdict = LOAD_DEGRADE;
		return;
	}
	r->verdict = LOAD_REFUSE;
	r->why = REFUSED_ERRORS;
}

struct load_ruling answer_load_judge(const struct exchange *x, bool automatic, const struct proto_submit *s)
{
	struct gw_app *app = x->app;
	const struct gw_tier_config *tier = x->key->tier;
	const struct admission_guest guest = {.tenant = s->tenant, .priority = s->priority};
	size_t most_waiting = (size_t)app->t->cfg->queue.most;
	uint64_t now = clock_now_ns(), ms = engine_link_wait_ms(app->link, s->model, s->priority);
	struct load_ruling r = {
	    .why = REFUSED_LATE, .wait_ms = ms, .other = automatic ? -1 : model_instead(app, tier, s->model)};
	/* (When no request waits, the tenant's own have gone, too.) */
	uint64_t own = ms < SHORT_MS ? 0 : load_memo_find(&app->memo, s->tenant, s->model, s->priority, now);
	uint64_t room = 2 * engine_link_place_us(app->link, s->model, s->priority) / 1000;
	/* With some margin: a refusal here is immediate, one by the engine comes after a step. */
	own += room < own / 4 ? room : own / 4;
	struct load_case c = case_of(app, own > ms ? own : ms);
	c.other_model = r.other >= 0;
	c.shorter = may_be_shorter(tier);
	c.guess = engine_link_idle(app->link, s->model);
	r.verdict = load_decide(tier, &c, &r.retry_ms);
	if (r.verdict == LOAD_GO && !c.guess && ms >= SHORT_MS && most_waiting > 0 &&
	    !admission_queue_has_room(app->waiting, most_waiting, guest)) {
		r.retry_ms = ms;
		r.verdict = LOAD_REFUSE;
	}
	if (r.verdict == LOAD_GO)
		judge_errors(app, s->model, &r);
	return r;
}

void answer_load_apply(struct answer *a, const struct load_ruling *r, struct proto_submit *s)
{
	bool other = r->other >= 0;
	if (r->verdict == LOAD_REFUSE)
		return;
	if (r->verdict == LOAD_DEGRADE && (!other || take_model(a, r->other))) {
		s->model = (uint16_t)a->load.model;
		shorten(a, s);
		set_degraded(a, other ? "model" : "length");
	}
	load_memo_sent(&a->app->memo, s->tenant, s->model, s->priority,
		       engine_link_place_us(a->app->link, s->model, s->priority), clock_now_ns());
}

void answer_load_keep(struct answer *a, int i, struct submit_frame *frame)
{
	struct load_wait *l = a->load.wait;
	if (l == NULL || other_model(a) < 0)
		return;
	/* Without memory for it, it can't be degraded, that is all. */
	if (l->kept != NULL || (l->kept = sl_zalloc_n((size_t)a->n_runs, sizeof *l->kept)) != NULL)
		l->kept[i] = submit_frame_ref(frame);
}

static void drop_kept(struct answer *a)
{
	struct load_wait *l = a->load.wait;
	for (int i = 0; l->kept != NULL && i < a->n_runs; i++)
		submit_frame_unref(l->kept[i]);
	sl_free(l->kept);
	l->kept = NULL;
}

static bool may_submit_again(const struct answer *a)
{
	const struct load_wait *l = a->load.wait;
	if (l == NULL || l->kept == NULL || a->stage != ANSWER_BEGIN || a->sharing.coalesced || a->budget.sent > 0 ||
	    answer_is_coalesced(a))
		return false;
	for (int i = 0; i < a->n_runs; i++)
		if (l->kept[i] == NULL && !a->runs[i].late)
			return false;
	return other_model(a) >= 0;
}

/* The same of the other model, from its beginning. False: it could not be, and has failed. */
static bool submit_again(struct answer *a)
{
	uint32_t window = (uint32_t)config(a)->limits.window_tokens;
	if (!take_model(a, other_model(a))) {
		answer_fail(a, &answer_no_memory, answer_no_memory_text);
		answer_leave_runs(a);
		return false;
	}
	struct http_hold *hold = a->runs[0].gen != NULL ? gen_take_hold(a->runs[0].gen) : NULL;
	set_degraded(a, "model");
	a->n_queued = 0;
	for (int i = 0; i < a->n_runs; i++) {
		struct answer_run *run = &a->runs[i];
		if (run->late) {
			a->n_queued += run->queued;
			continue;
		}
		run->gen = NULL;
		run->queued = false;
		gen_unsubscribe(&run->sub);
	}
	for (int i = 0; i < a->n_runs; i++) {
		struct answer_run *run = &a->runs[i];
		if (run->late)
			continue;
		struct proto_submit s = a->load.wait->kept[i]->s;
		s.model = (uint16_t)a->load.model;
		shorten(a, &s);
		int rc = gen_start(a->app->t, &s, window, &run->sub, &run->gen);
		if (rc != 0) {
			http_release(hold);
			answer_fail(a, &answer_no_memory, "The server is busy.");
			answer_leave_runs(a);
			return false;
		}
		answer_remake(a, run, a->load.wait->kept[i], &s);
		answer_prefetch(a, run);
		if (i == 0) {
			gen_hold(run->gen, hold);
			hold = NULL;
		}
	}
	drop_kept(a);
	return true;
}

/* ---- at QUEUED ---- */

/* Also of one whose other prompts are all there is to wait for. */
static bool is_guess(const struct answer *a)
{
	for (int i = 0; i < a->n_runs; i++)
		if (a->runs[i].gen != NULL && gen_queued(a->runs[i].gen)->guess)
			return true;
	return false;
}

static bool is_prompt_refused(struct answer *a, uint32_t n_prompt, uint64_t wait_ms)
{
	int64_t most = tier_of(a)->load_prompt;
	char message[160];
	if (most == 0 || n_prompt <= most || !load_is_high(&a->app->levels, a->load.model, tier_of(a)->priority))
		return false;
	snprintf(message, sizeof message,
		 "The server is busy: prompts may currently have at most %lld tokens; yours has %u.", (long long)most,
		 n_prompt);
	refuse(a, REFUSED_PROMPT, wait_ms, wait_ms + config(a)->queue.load_low_ms, message);
	return true;
}

bool answer_load_counted(struct answer *a, uint32_t n_prompt)
{
	return !is_prompt_refused(a, n_prompt,
				  engine_link_wait_ms(a->app->link, a->load.model, (uint8_t)tier_of(a)->priority));
}

bool answer_load_queued(struct answer *a, struct answer_run *run)
{
	const struct proto_queued *q = gen_queued(run->gen);
	uint64_t ms = q->predicted_ttft_us / 1000, retry_ms, now = clock_now_ns();
	uint8_t priority = (uint8_t)tier_of(a)->priority;
	uint64_t each_us = engine_link_place_us(a->app->link, a->load.model, priority), each_ms = each_us / 1000;
	struct load_case c = case_of(a->app, ms);
	c.guess = is_guess(a);
	/* A request that passed here and was counted only after a long step is not refused on a mere estimate. */
	if (now - a->started_ns > SOON_MS * NS_PER_MS)
		c.margin = c.margin < counted_margin ? c.margin : counted_margin;
	if (a->sharing.coalesced) {
		bool hopeless = ms > c.most_ms && !c.guess;
		if (hopeless)
			refuse(a, REFUSED_LATE, ms, ms - c.most_ms, late_text);
		return !hopeless;
	}
	/* The tenant's next one waits as long, or if this one stays, for its turn too. */
	load_memo_put(&a->app->memo, a->key->tenant, a->load.model, priority, ms, now);
	if (!c.guess && is_prompt_refused(a, q->n_prompt, ms))
		return false;
	c.other_model = may_submit_again(a);
	c.shorter = a->load.degraded == NULL && may_be_shorter(tier_of(a)) && !answer_is_coalesced(a);
	c.is_shorter = is_shorter(a);
	switch (load_decide(tier_of(a), &c, &retry_ms)) {
	case LOAD_GO: load_memo_sent(&a->app->memo, a->key->tenant, a->load.model, priority, each_us, now); return true;
	case LOAD_REFUSE:
		/* The next one is let through when it is likely to stay, not as soon as it might. */
		load_memo_put(&a->app->memo, a->key->tenant, a->load.model, priority,
			      ms + (each_ms < ms / 4 ? each_ms : ms / 4), now);
		refuse(a, REFUSED_LATE, ms, retry_ms, late_text);
		return false;
	case LOAD_DEGRADE: break;
	}
	if (c.other_model) {
		if (submit_again(a))
			answer_await_queued(a);
		return false;
	}
	/* The engine continues as requested; tokens beyond the limit are not sent. */
	int64_t most = tier_of(a)->degrade_max_tokens;
	if (most < (int64_t)a->max_tokens) {
		a->max_tokens = (uint32_t)most;
		a->load.short_at = a->load.cut_at = (uint64_t)most * answer_n_choices(a);
	}
	set_degraded(a, "length");
	return true;
}

/* ---- waiting ---- */

static void restart(struct answer *a, uint64_t ms)
{
	gw_timer_start(&a->app->t->timers, &a->load.wait->timer, ms * NS_PER_MS);
}

/* How long a head is held: it has to be there for the first heartbeat. */
static uint64_t hold_ms(const struct answer *a)
{
	uint64_t tell = config(a)->queue.tell_ms, beat = config(a)->heartbeat_ms;
	return beat > 0 && beat < tell && a->load.wait->place == NULL ? beat : tell;
}

static uint64_t tell_ms(const struct answer *a)
{
	uint64_t ms = config(a)->queue.tell_ms;
	return ms > LEAST_TELL_MS ? ms : LEAST_TELL_MS;
}

/* In how long there is something to do; UINT64_MAX: nothing. */
static uint64_t next_ms(const struct answer *a, uint64_t waited_ms)
{
	uint64_t next = UINT64_MAX, most = tier_of(a)->max_wait_ms, tell = hold_ms(a);
	if (most > 0)
		next = waited_ms < most ? most - waited_ms : 1;
	if (a->load.held)
		next = answer_sooner(next, waited_ms < tell ? tell - waited_ms : 1);
	else if (a->load.reporting)
		next = answer_sooner(next, tell_ms(a));
	return next;
}

static void on_displaced(void *ctx)
{
	struct answer *a = ctx;
	uint32_t position;
	uint64_t ms;
	look(a, clock_now_ns(), &position, &ms);
	if (a->end != ANSWER_UNDECIDED || a->state == ANSWER_ENDED || answer_is_coalesced(a))
		return;
	refuse(a, REFUSED_DISPLACED, ms, ms, "The server is busy: this request had to make room for others.");
}

/* The most it may send, after load has risen or fallen. */
static void set_limit(struct answer *a)
{
	int64_t most = tier_of(a)->load_output;
	uint64_t at = a->load.short_at, under_load = (uint64_t)most * answer_n_choices(a);
	if (most > 0 && under_load < at && load_is_high(&a->app->levels, a->load.model, tier_of(a)->priority))
		at = under_load;
	a->load.cut_at = at;
}

bool answer_load_enter(struct answer *a)
{
	const struct gw_queue_config *q = &config(a)->queue;
	struct answer_load *l = &a->load;
	uint32_t position;
	uint64_t ms, now = clock_now_ns();
	if (!l->exempt)
		set_limit(a);
	if (l->wait == NULL || a->sharing.coalesced || a->sharing.released || a->sharing.alone ||
	    a->end != ANSWER_UNDECIDED)
		return true;
	look(a, now, &position, &ms);
	l->wait->since_ns = now;
	l->wait->predicted_ns = ms * NS_PER_MS;
	if ((position > 0 && ms >= SHORT_MS) || (q->tell_ms > 0 && ms > q->tell_ms) || loading_model(a) >= 0) {
		int rc = admission_queue_enter(a->app->waiting, q->most > 0 ? (size_t)q->most : SIZE_MAX, guest_of(a),
					       a->app->t, on_displaced, a, &l->wait->place);
		if (rc == SL_ELIMIT)
			refuse(a, REFUSED_FULL, ms, ms, "The server is busy: too many are waiting.");
		else if (rc != 0)
			answer_refuse(a, &answer_no_memory, answer_no_memory_text);
		if (rc != 0)
			return false;
	}
	if (l->wait->place != NULL || may_load_later(a) || may_be_refused(a))
		l->held = a->out.stream && !a->out.background && q->tell_ms > 0;
	uint64_t next = next_ms(a, 0);
	if (next != UINT64_MAX)
		restart(a, next);
	return true;
}

static void report_position(struct answer *a, uint64_t now)
{
	uint32_t position;
	uint64_t ms;
	look(a, now, &position, &ms);
	char text[112];
	int n = snprintf(text, sizeof text, ": queue position=%u wait_ms=%llu\n", position, (unsigned long long)ms);
	int model = loading_model(a);
	if (model >= 0)
		snprintf(text + n, sizeof text - (size_t)n, ": loading %u %%\n",
			 engine_link_model(a->app->link, model)->percent);
	if (a->out.log != NULL) {
		replay_note(a->out.log, text);
	} else if (a->x != NULL && a->out.carry.len == 0 && buf_append_str(&a->out.carry, text) == 0) {
		http_body_ready(a->x->stream);
	}
}

static void too_long(struct answer *a)
{
	uint32_t position;
	uint64_t ms;
	if (may_submit_again(a)) {
		a->load.wait->since_ns = clock_now_ns();
		if (submit_again(a))
			restart(a, next_ms(a, 0));
		return;
	}
	look(a, clock_now_ns(), &position, &ms);
	refuse(a, REFUSED_WAITED, ms, ms,
	       loading_model(a) >= 0
		   ? "The model is not in memory yet, and those that are there are in use: it did not come in time."
		   : "The server is busy: the first token did not come in time.");
}

static void on_wait_timer(struct gw_timer *timer)
{
	struct load_wait *w = list_entry(timer, struct load_wait, timer);
	struct answer *a = w->answer;
	struct answer_load *l = &a->load;
	uint64_t now = clock_now_ns(), waited = (now - w->since_ns) / NS_PER_MS, most = tier_of(a)->max_wait_ms;
	if (a->state != ANSWER_RUNNING || a->end != ANSWER_UNDECIDED || a->token_ns != 0)
		return;
	if (most > 0 && waited >= most && !answer_is_coalesced(a)) {
		too_long(a);
		return;
	}
	if (l->held && waited >= hold_ms(a)) {
		l->held = false;
		answer_open(a);
		if (l->wait == NULL || a->state != ANSWER_RUNNING || a->end != ANSWER_UNDECIDED)
			return;
		/* From before its first event is asked for: that is at the end of the turn. */
		l->reporting = l->wait->place != NULL || may_load_later(a);
	}
	if (l->reporting)
		report_position(a, now);
	uint64_t next = next_ms(a, waited);
	if (next != UINT64_MAX)
		restart(a, next);
}

void answer_load_begun(struct answer *a, uint64_t now_ns)
{
	const struct load_wait *w = a->load.wait;
	if (w != NULL && w->since_ns != 0)
		load_margin_learn(&a->app->margin, w->predicted_ns, now_ns - w->since_ns, now_ns);
	answer_load_end(a);
}

void answer_load_end(struct answer *a)
{
	struct load_wait *w = a->load.wait;
	if (w == NULL)
		return;
	gw_timer_stop(&a->app->t->timers, &w->timer);
	admission_queue_leave(w->place);
	drop_kept(a);
	sl_free(w);
	a->load.wait = NULL;
}

void answer_load_exempt(struct answer *a)
{
	answer_load_end(a);
	a->load.exempt = true;
}

bool answer_load_has_place(const struct answer *a) { return a->load.wait != NULL && a->load.wait->place != NULL; }

bool answer_load_quiet(const struct answer *a)
{
	return a->load.reporting && a->token_ns == 0 && a->end == ANSWER_UNDECIDED;
}

bool answer_load_init(struct answer *a, int model)
{
	struct load_wait *w = sl_zalloc(sizeof *w);
	a->load = (struct answer_load){.wait = w, .model = model, .short_at = UINT64_MAX, .cut_at = UINT64_MAX};
	if (w == NULL)
		return false;
	w->answer = a;
	gw_timer_init(&w->timer, on_wait_timer);
	return true;
}

/* ---- cutting ---- */

bool answer_load_is_cut(struct answer *a)
{
	if (a->budget.sent < a->load.cut_at || a->load.cut)
		return false;
	a->load.cut = true;
	log_debug("%s: cut under load after %llu tokens", a->seen.request_id, (unsigned long long)a->budget.sent);
	metric_add(&cut_total, 1);
	return true;
}

/* Load has come or gone. */
static void limit(struct answer *a)
{
	if (a->state == ANSWER_ENDED || a->end != ANSWER_UNDECIDED || a->sharing.alone || a->budget.capped ||
	    a->load.exempt)
		return;
	set_limit(a);
	if (a->state != ANSWER_RUNNING || a->budget.sent == 0 || !answer_load_is_cut(a))
		return;
	answer_cap(a);
	answer_more(a);
}

void answers_load(void *ctx, const struct proto_load *load)
{
	struct gw_app *app = ctx;
	const struct gw_queue_config *q = &app->t->cfg->queue;
	answer_auto_load(app);
	if (q->load_high_ms == 0 || !load_levels_see(&app->levels, load, q->load_high_ms, q->load_low_ms))
		return;
	list_each_safe(it, tmp, &app->all_answers) {
		limit(list_entry(it, struct answer, in_all));
	}
}

void answer_load_gauges(const struct gw_app *app)
{
	for (int i = 0; i < PROTO_PRIORITIES; i++) {
		uint64_t most = 0;
		for (int m = 0; m < engine_link_n_models(app->link); m++) {
			uint64_t ms = engine_link_wait_ms(app->link, m, (uint8_t)i);
			most = ms > most ? ms : most;
		}
		metric_set(&waits[i], (int64_t)most);
	}
}
