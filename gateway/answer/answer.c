/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of an answer: admission, time limits, ends. How it begins is in answer_start.c, its ways out in
 * answer_out.c and answer_log.c, what its events look like in answer_render.c and the formats.
 */
#include "gateway/answer/answer_priv.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/flight.h"
#include "gateway/observe/tier_counts.h"

static const struct api_error too_late = {503, "server_error", "overloaded", NULL, ANSWER_RETRY_AFTER_S};
static const char too_late_text[] = "The server is busy: the first token did not come in time.";
const struct api_error answer_too_large = {500, "server_error", NULL, NULL, 0};
const char answer_too_large_text[] = "The answer did not fit into memory.";
const struct api_error answer_no_memory = {503, "server_error", "overloaded", NULL, ANSWER_RETRY_AFTER_S};
const char answer_no_memory_text[] = "The server is out of memory.";

enum { MAX_RETRY_AFTER_S = 3600 };

static void answer_set_state(struct answer *a, enum answer_state to)
{
	BUG_IF(to <= a->state, "an answer from state %d to %d", a->state, to);
	a->state = to;
}

/* ---- counting ---- */

unsigned answer_n_choices(const struct answer *a) { return (unsigned)a->n_runs * a->n; }

static struct sse_usage usage_of_run(const struct answer_run *run)
{
	const struct generation *g = run->gen;
	if (!answer_live(run))
		return run->usage;
	enum gen_state state = gen_state(g);
	if (state == GEN_FINISHED || state == GEN_FAILED) {
		const struct proto_done *d = gen_done(g);
		return (struct sse_usage){.n_prompt = d->n_prompt,
					  .n_cached = run->keeps_cached ? run->usage.n_cached : d->n_cached,
					  .n_completion = d->n_completion};
	}
	return (struct sse_usage){.n_prompt = gen_queued(g)->n_prompt,
				  .n_cached = gen_queued(g)->n_cached,
				  .n_completion = (uint32_t)gen_n_tokens(g)};
}

struct sse_usage answer_usage(const struct answer *a)
{
	struct sse_usage all = {0};
	for (int i = 0; i < a->n_runs; i++) {
		struct sse_usage u = usage_of_run(&a->runs[i]);
		all.n_prompt += u.n_prompt;
		all.n_cached += u.n_cached;
		all.n_completion += u.n_completion;
	}
	/* The end token is not sent; without budget left for it, it is not charged either. */
	if (a->budget.left != INT64_MAX && all.n_completion > a->budget.sent + (uint64_t)a->budget.left)
		all.n_completion = (uint32_t)(a->budget.sent + (uint64_t)a->budget.left);
	for (unsigned i = 0; i < answer_n_choices(a); i++)
		all.n_reasoning += a->choices[i].parts != NULL ? a->choices[i].parts->n_reasoning : 0;
	return all;
}

void answer_leave_runs(struct answer *a)
{
	answer_slots_drop(a);
	for (int i = 0; i < a->n_runs; i++) {
		struct answer_run *run = &a->runs[i];
		if (run->gen == NULL)
			continue;
		run->usage = usage_of_run(run);
		answer_observe_keep(run);
		if (a->budget.capped) {
			run->usage.n_completion = (uint32_t)run->sub.next_token;
			gen_end_shared(run->gen, PROTO_FINISH_LENGTH);
		}
		run->gen = NULL;
		gen_unsubscribe(&run->sub);
	}
}

/* Its reader gets no more of them. */
void answer_drop_runs(struct answer *a)
{
	if (!answer_is_coalesced(a)) {
		answer_leave_runs(a);
		return;
	}
	a->runs[0].usage = usage_of_run(&a->runs[0]);
	answer_observe_keep(&a->runs[0]);
	a->sharing.released = true;
}

/* ---- ends ---- */

/* As much of the name as fits. */
static void name_model(struct exchange *x, const char *name)
{
	size_t n = strnlen(name, sizeof x->model - 1);
	memcpy(x->model, name, n);
	x->model[n] = '\0';
}

static void report_usage(struct answer *a)
{
	struct sse_usage u = answer_usage(a);
	if (a->x == NULL)
		return;
	a->x->n_prompt = u.n_prompt;
	a->x->n_completion = u.n_completion;
	a->x->n_cached = u.n_cached;
	a->x->first_token_ns = a->first_token_ns;
	name_model(a->x, a->model != NULL ? a->model : "");
	answer_route(a, &a->x->by_engine);
	char line[256];
	if (answer_auto_line(a, line, sizeof line)[0] != '\0') {
		sl_free(a->x->cascade);
		a->x->cascade = sl_strdup(line);
	}
}

/* whole: its reader has received everything, and a repeated request gets the same. */
void answer_end_key(struct answer *a, bool whole)
{
	idempotent_end(a->sharing.idempotent, whole, a->out.stream);
	a->sharing.idempotent = NULL;
}

/* Ends it for its reader and for all requests that joined it. */
void answer_finish_now(struct answer *a)
{
	if (a->state == ANSWER_ENDED)
		return;
	answer_set_state(a, ANSWER_ENDED);
	answer_end_key(a, a->end == ANSWER_DONE && !a->unkept && (a->stage == ANSWER_OVER || !a->out.stream));
	if (!a->sharing.alone)
		report_usage(a);
	a->sharing.released = false;
	answer_leave_runs(a);
	if (!a->sharing.alone)
		answer_observe_end(a);
	answer_unshare(a);
	gw_timer_stop(&a->app->t->timers, &a->timer);
	answer_load_end(a);
	/* What is shared is used once. */
	struct sse_usage u = {0};
	if (!a->sharing.coalesced && !a->load.refused)
		u = answer_usage(a);
	tier_counts_tokens(a->key->tier->name, u.n_prompt, u.n_completion);
	answer_slots_leave(a);
	answer_budget_settle(a, (int64_t)u.n_prompt + u.n_completion);
}

/* Ends it for its reader. Its run continues for requests that joined it. */
void answer_finish(struct answer *a)
{
	if (a->sharing.alone || a->state == ANSWER_ENDED)
		return;
	if (a->end == ANSWER_FAILED || !answer_is_coalesced(a)) {
		answer_finish_now(a);
		return;
	}
	answer_drop_runs(a);
	report_usage(a);
	answer_observe_end(a);
	a->sharing.alone = true;
	answer_load_end(a);
	answer_end_key(a, false);
	supersede_end(a->sharing.prompt);
	a->sharing.prompt = NULL;
	gen_follow_readers(a->runs[0].gen);
	if (a->state == ANSWER_RUNNING)
		gw_timer_stop(&a->app->t->timers, &a->timer);
	gw_defer(a->app->t, &a->pump); /* drops what there is */
}

/* It has ended, and no exchange frees it. */
void answer_release(struct answer *a)
{
	list_remove(&a->in_app);
	gw_defer(a->app->t, &a->reap);
}

/* What came for its coalesced requests, which take it from their own log. */
void answer_run_alone(struct answer *a)
{
	struct answer_run *run = &a->runs[0];
	if (a->state == ANSWER_ENDED)
		return;
	gen_advance(&run->sub, (uint32_t)(gen_n_tokens(run->gen) - run->sub.next_token));
	if (gen_state(run->gen) < GEN_FINISHED && gen_is_shared_by_others(run->gen))
		return;
	answer_finish_now(a);
	if (a->x == NULL && a->out.log == NULL)
		answer_release(a);
}

/* The exchange goes, and it is still this answer's. */
void answer_on_exchange_close(struct exchange *x)
{
	struct answer *a = x->state;
	if (a->end == ANSWER_UNDECIDED)
		a->end = ANSWER_STOPPED;
	answer_finish(a);
	x->state = NULL;
	a->x = NULL;
	if (a->state == ANSWER_ENDED)
		answer_free(a);
	else
		list_push_back(&a->app->answers, &a->in_app);
}

/* It has readers already, since another gateway began it: the error is an event. */
static void refuse_in_log(struct answer *a, const struct api_error *e, const char *message)
{
	answer_leave_runs(a);
	answer_set_state(a, ANSWER_RUNNING);
	if (a->end == ANSWER_UNDECIDED)
		answer_fail(a, e, message);
	else
		answer_notify(a);
}

void answer_refuse(struct answer *a, const struct api_error *e, const char *message)
{
	if (a->out.log != NULL && a->state == ANSWER_WAITING) {
		refuse_in_log(a, e, message);
		return;
	}
	a->end = ANSWER_FAILED;
	a->seen.status = e->status;
	answer_finish_now(a);
	if (a->x != NULL)
		exchange_error(a->x, e, "%s", message);
	else
		answer_release(a);
}

static struct api_error bad_field(const char *code, const char *param)
{
	return (struct api_error){400, "invalid_request_error", code, param, 0};
}

struct api_error answer_error_of(const struct answer *a, uint8_t error)
{
	if (proto_error_field(error) != NULL)
		return bad_field("unsupported_value", proto_error_field(error));
	switch ((enum proto_error)error) {
	case PROTO_ERR_BAD_REQUEST: return bad_field("invalid_value", a->format->prompt_param);
	case PROTO_ERR_BAD_STOP_IDS: return bad_field("invalid_value", "stop_token_ids");
	case PROTO_ERR_BAD_LOGIT_BIAS: return bad_field("invalid_value", "logit_bias");
	case PROTO_ERR_BAD_DOCUMENTS: return bad_field("invalid_value", "documents");
	case PROTO_ERR_BAD_KWARGS: return bad_field("invalid_value", "chat_template_kwargs");
	case PROTO_ERR_BAD_CONSTRAINT:
		return bad_field("invalid_value", a->constraint != NULL ? a->constraint : "response_format");
	case PROTO_ERR_BAD_WORDS: return bad_field("invalid_value", "bad_words");
	case PROTO_ERR_NO_CHAT: return bad_field("invalid_value", "model");
	case PROTO_ERR_CONTEXT_LENGTH: return bad_field("context_length_exceeded", a->format->prompt_param);
	case PROTO_ERR_NO_MODEL: return (struct api_error){404, "invalid_request_error", "model_not_found", "model", 0};
	case PROTO_ERR_NOT_READY:
		return (struct api_error){503, "server_error", "engine_unavailable", NULL, ANSWER_RETRY_AFTER_S};
	case PROTO_ERR_OVERLOADED:
		return (struct api_error){503, "server_error", "overloaded", NULL, ANSWER_RETRY_AFTER_S};
	case PROTO_ERR_NONE:
	case PROTO_ERR_FIELD:
	case PROTO_ERR_BAD_ADAPTER_NAME: /* of no answer, as is the next */
	case PROTO_ERR_NO_FOLDER:
	case PROTO_ERR_INTERNAL: break;
	}
	return (struct api_error){500, "server_error", "engine_error", NULL, 0};
}

void answer_notify(struct answer *a)
{
	a->load.reporting = false;
	if (a->load.held) {
		a->load.held = false;
		answer_open(a);
	} else if (a->out.log != NULL) {
		gw_defer(a->app->t, &a->pump);
	} else if (a->out.stream) {
		http_body_ready(a->x->stream);
	}
}

void answer_set_failure(struct answer *a, const struct api_error *e, const char *message)
{
	size_t n = strlen(message) + 1;
	a->end = ANSWER_FAILED;
	sl_free(a->failure);
	a->failure = sl_alloc(sizeof *a->failure + n);
	if (a->failure == NULL)
		return;
	a->failure->error = *e;
	memcpy(a->failure->message, message, n);
}

const struct api_error *answer_error(const struct answer *a)
{
	return a->failure != NULL ? &a->failure->error : &answer_no_memory;
}

const char *answer_error_text(const struct answer *a)
{
	return a->failure != NULL ? a->failure->message : answer_no_memory_text;
}

/* It fails, now or as its stream's last event. */
void answer_fail(struct answer *a, const struct api_error *e, const char *message)
{
	if (a->end != ANSWER_UNDECIDED)
		return;
	answer_set_failure(a, e, message);
	if (a->state == ANSWER_WAITING || a->load.held || !answer_sends_events(a))
		answer_refuse(a, answer_error(a), answer_error_text(a));
	else
		answer_notify(a);
}

static void fail_by_run(struct answer *a, const struct answer_run *run)
{
	const struct proto_done *d = gen_done(run->gen);
	struct api_error e = answer_error_of(a, d->error);
	char message[PROTO_MAX_MESSAGE + 1];
	if (d->error == PROTO_ERR_OVERLOADED && d->retry_after_s > 0)
		e.retry_after_s = d->retry_after_s < MAX_RETRY_AFTER_S ? d->retry_after_s : MAX_RETRY_AFTER_S;
	snprintf(message, sizeof message, "%.*s", (int)d->message.n, d->message.at);
	answer_fail(a, &e, message[0] ? message : "The engine failed.");
}

void answers_break_off(struct gw_app *app)
{
	static const struct api_error over = {503, "server_error", "shutting_down", NULL, ANSWER_RETRY_AFTER_S};
	list_each_safe(it, tmp, &app->all_answers) {
		struct answer *a = list_entry(it, struct answer, in_all);
		if (a->state != ANSWER_ENDED && !answer_can_be_left(a))
			answer_fail(a, &over,
				    "The server is shutting down, and the answer has not become ready in time.");
	}
}

static void cancel(struct answer *a)
{
	/* A status that clients do not take for a reason to try again. */
	static const struct api_error cancelled = {403, "invalid_request_error", "cancelled", NULL, 0};
	const bool refused = a->state == ANSWER_WAITING || a->load.held || !answer_sends_events(a);
	answer_fail(a, &cancelled, "An administrator of the server has cancelled this answer.");
	if (refused)
		return; /* its runs were left, and it may be gone */
	answer_leave_runs(a);
	answer_load_end(a);
}

bool answers_cancel(struct gw_app *app, const char *id)
{
	list_each_safe(it, tmp, &app->all_answers) {
		struct answer *a = list_entry(it, struct answer, in_all);
		if (strcmp(a->id, id) != 0 || a->state == ANSWER_ENDED || a->end != ANSWER_UNDECIDED)
			continue;
		cancel(a);
		return true;
	}
	return false;
}

/* ---- admission ---- */

void answer_restart_timer(struct answer *a, uint64_t ms)
{
	gw_timer_start(&a->app->t->timers, &a->timer, ms * NS_PER_MS);
}

/* Constraints compile at the lowest priority: on a busy machine that takes many times the processor time it needs, as
 * a wait for a first token does. */
void answer_await_queued(struct answer *a)
{
	const struct gw_limits *l = &a->app->t->cfg->limits;
	bool longer = a->constrained && l->first_token_ms > l->submit_wait_ms;
	answer_restart_timer(a, longer ? l->first_token_ms : l->submit_wait_ms);
}

void answer_admit(struct answer *a)
{
	if (!answer_load_enter(a))
		return;
	answer_set_state(a, ANSWER_RUNNING);
	a->admitted_ns = clock_now_ns();
	flight_note(FLIGHT_ADMIT, (uint64_t)a->key->tier->priority, a->runs[0].n_prompt,
		    (a->admitted_ns - a->started_ns) / 1000, a->max_tokens, (uint64_t)a->n_runs);
	for (int i = 0; i < a->n_runs; i++)
		if (!a->runs[i].late)
			gen_admit(a->runs[i].gen);
	if (a->sharing.alone) {
		gw_timer_stop(&a->app->t->timers, &a->timer);
		return;
	}
	if (a->load.held)
		answer_restart_timer(a, a->app->t->cfg->limits.first_token_ms);
	else
		answer_open(a);
	if (a->sharing.superseded && !answer_sends_events(a) && a->state == ANSWER_RUNNING)
		answer_gather(a);
}

/* Ends with what was produced so far, like an answer that was stopped. */
void answer_supersede(struct answer *a)
{
	if (a->end != ANSWER_UNDECIDED || a->state == ANSWER_ENDED)
		return;
	a->sharing.superseded = true;
	a->end = ANSWER_STOPPED;
	answer_drop_runs(a);
	if (a->state == ANSWER_WAITING && a->sharing.released)
		return; /* it is charged and admitted for its coalesced requests first */
	if (a->state == ANSWER_RUNNING) {
		answer_notify(a);
	} else {
		answer_budget_settle(a, 0);
		answer_set_state(a, ANSWER_RUNNING);
		answer_open(a);
	}
	if (a->state == ANSWER_RUNNING && !answer_sends_events(a))
		answer_gather(a);
}

/* More than its tier may send; then it is refused. */
static bool is_prompt_too_long(struct answer *a, uint32_t n_prompt)
{
	int64_t most = a->key->tier->max_prompt;
	char message[160];
	if (most == 0 || n_prompt <= most)
		return false;
	snprintf(message, sizeof message,
		 "This key's prompts may have at most %lld tokens; yours has %u. Please shorten it.", (long long)most,
		 n_prompt);
	answer_refuse(
	    a, &(struct api_error){400, "invalid_request_error", "context_length_exceeded", a->format->prompt_param, 0},
	    message);
	return true;
}

static void is_counted(struct answer *a, struct answer_run *run)
{
	run->queued = true;
	if (++a->n_queued == a->n_runs)
		answer_charge(a);
}

void answer_on_queued(struct subscriber *s)
{
	struct answer_run *run = list_entry(s, struct answer_run, sub);
	struct answer *a = run->answer;
	run->n_prompt = gen_queued(run->gen)->n_prompt;
	if (a->state == ANSWER_RUNNING && (a->load.degraded != NULL || a->slots.late != NULL)) {
		gen_admit(run->gen); /* it was admitted as what it has been before, or with the others */
		return;
	}
	if (a->state != ANSWER_WAITING)
		return;
	if (is_prompt_too_long(a, run->n_prompt))
		return;
	if (!answer_load_queued(a, run))
		return;
	is_counted(a, run);
}

void answer_counted(struct answer *a, struct answer_run *run, uint32_t n_prompt)
{
	run->n_prompt = n_prompt;
	if (a->state == ANSWER_WAITING && !is_prompt_too_long(a, n_prompt) && answer_load_counted(a, n_prompt))
		is_counted(a, run);
}

static void observe_tokens(struct answer *a, const struct answer_run *run)
{
	uint64_t now = gw_now(a->app->t);
	if (gen_n_tokens(run->gen) == 0)
		return;
	if (a->token_ns == 0) {
		answer_observe_first(a, run, now);
		answer_load_begun(a, now);
	}
	a->token_ns = now;
}

void answer_on_progress(struct subscriber *s)
{
	struct answer_run *run = list_entry(s, struct answer_run, sub);
	struct answer *a = run->answer;
	if (a->state == ANSWER_ENDED)
		return;
	if (a->sharing.alone) {
		answer_run_alone(a);
		return;
	}
	observe_tokens(a, run);
	if (gen_state(run->gen) == GEN_FAILED) {
		if (!answer_slots_again(a, run))
			fail_by_run(a, run);
		return;
	}
	if (gen_state(run->gen) == GEN_FINISHED && !answer_slots_ended(a, run))
		return;
	if (a->state == ANSWER_RUNNING)
		answer_more(a);
}

/* ---- time limits ---- */

/* Not so once it has ended: an answer may have no token at all. */
static bool awaits_first_token(const struct answer *a)
{
	if (a->token_ns != 0 || a->end != ANSWER_UNDECIDED)
		return false;
	for (int i = 0; i < a->n_runs; i++)
		if (a->runs[i].gen != NULL && gen_state(a->runs[i].gen) < GEN_FINISHED)
			return true;
	return false;
}

/* How long the first token may still take; 0: it is late. */
static uint64_t first_token_left_ms(const struct answer *a)
{
	uint64_t waited = (clock_now_ns() - a->admitted_ns) / NS_PER_MS, most = a->app->t->cfg->limits.first_token_ms;
	return waited < most ? most - waited : 0;
}

static int ping(struct answer *a)
{
	return a->format->ping != NULL ? a->format->ping(a, &a->out.carry) : sse_ping(&a->out.carry);
}

/* A heartbeat when it is due; in how long to look again. */
static uint64_t beat(struct answer *a)
{
	uint64_t interval = a->app->t->cfg->heartbeat_ms * NS_PER_MS, silent = clock_now_ns() - a->out.moved_ns;
	/* Only between events: a comment inside one would end up in its text. */
	if (silent >= interval && a->out.carry.len == 0 && ping(a) == 0)
		http_body_ready(a->x->stream);
	return (silent >= interval ? interval : interval - silent) / NS_PER_MS + 1;
}

void answer_wait(struct answer *a, uint64_t ns)
{
	/* In between heartbeats may be due: it looks, and waits again. */
	uint64_t most = a->app->t->cfg->heartbeat_ms * NS_PER_MS;
	a->out.waits = true;
	gw_timer_start(&a->app->t->timers, &a->timer, most > 0 && most < ns ? most : ns);
}

void answer_on_timer(struct gw_timer *timer)
{
	struct answer *a = list_entry(timer, struct answer, timer);
	const struct gw_config *cfg = a->app->t->cfg;
	uint64_t next = UINT64_MAX;
	if (a->state == ANSWER_WAITING) {
		answer_refuse(a, &answer_no_memory, "The engine did not take the request in time.");
		return;
	}
	if (a->state == ANSWER_ENDED)
		return;
	if (awaits_first_token(a) && first_token_left_ms(a) == 0) {
		answer_fail(a, &too_late, too_late_text);
		answer_leave_runs(a);
		return;
	}
	bool waits = a->out.waits;
	a->out.waits = false;
	if (waits)
		answer_notify(a);
	if (a->out.log != NULL) {
		if (!a->out.background && replay_abandoned(a->out.log, cfg->resume.grace_ms * NS_PER_MS)) {
			answer_on_stop(a);
			return;
		}
		next = answer_glance_ms(a);
	} else if (a->out.stream && !a->load.held) {
		next = beat(a);
	}
	if (awaits_first_token(a))
		next = answer_sooner(next, first_token_left_ms(a) + 1);
	if (next != UINT64_MAX && !a->out.waits)
		answer_restart_timer(a, next);
}
