/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of an answer: admission, the ways out, time limits, ends. What its events look like is in
 * answer_render.c and the formats.
 *
 * Streaming is pulled: an event is rendered when the transport asks for bytes, into `carry`, from
 * which it may leave in pieces; between two pulls nothing is formatted. A logged answer is pumped at
 * the end of each turn of the loop that brought something.
 */
#include "gateway/answer.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/chat_metrics.h"
#include "gateway/random.h"
#include "gateway/snapshot.h"
#include "gateway/stream_out.h"

enum {
	MAX_ANSWER = 4 << 20,     /* text of a choice that is kept as a whole */
	MAX_LOGPROBS = 32 << 20,
	MAX_WHOLE = 64 << 20,     /* also of one event: there are those that tell all again */
	KEEP_CARRY = 64 << 10,
	RETRY_AFTER_S = 1,
};

static const struct api_error too_late = {503, "server_error", "overloaded", NULL, RETRY_AFTER_S};
static const char too_late_text[] = "The server is busy: the first token did not come in time.";
static const struct api_error too_large = {500, "server_error", NULL, NULL, 0};
static const char too_large_text[] = "The answer did not fit into memory.";
static const struct api_error no_memory = {503, "server_error", "overloaded", NULL, RETRY_AFTER_S};
static const char no_memory_text[] = "The server is out of memory.";

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
		return (struct sse_usage){d->n_prompt, d->n_cached, d->n_completion};
	}
	return (struct sse_usage){gen_queued(g)->n_prompt, gen_queued(g)->n_cached, (uint32_t)gen_n_tokens(g)};
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
	return all;
}

static void leave_runs(struct answer *a)
{
	for (int i = 0; i < a->n_runs; i++) {
		struct answer_run *run = &a->runs[i];
		if (run->gen == NULL)
			continue;
		run->usage = usage_of_run(run);
		if (a->capped) {
			run->usage.n_completion = (uint32_t)run->sub.next_token;
			gen_end_twins(run->gen, PROTO_FINISH_LENGTH);
		}
		run->gen = NULL;
		gen_unsubscribe(&run->sub);
	}
}

/* Its reader gets no more of them. */
static void drop_runs(struct answer *a)
{
	if (!answer_has_twins(a)) {
		leave_runs(a);
		return;
	}
	a->runs[0].usage = usage_of_run(&a->runs[0]);
	a->released = true;
}

/* ---- ends ---- */

static void tell_usage(struct answer *a)
{
	struct sse_usage u = answer_usage(a);
	if (a->x == NULL)
		return;
	a->x->n_prompt = u.n_prompt;
	a->x->n_completion = u.n_completion;
}

/* Its reader has got all: it can be had again. Or not all, and then not. */
static void end_key(struct answer *a, bool whole)
{
	idempotent_end(a->idempotent, whole, a->stream);
	a->idempotent = NULL;
}

/* Nothing more will come of it, for anybody. */
static void finish_now(struct answer *a)
{
	if (a->state == ANSWER_ENDED)
		return;
	answer_set_state(a, ANSWER_ENDED);
	end_key(a, a->end == ANSWER_DONE && (a->stage == ANSWER_OVER || !a->stream));
	if (!a->alone)
		tell_usage(a);
	a->released = false;
	leave_runs(a);
	answer_unshare(a);
	gw_timer_stop(&a->app->t->timers, &a->timer);
	/* What is shared is used once. */
	struct sse_usage u = a->twin ? (struct sse_usage){0} : answer_usage(a);
	chat_metrics_tokens(a->key->tier->name, u.n_prompt, u.n_completion);
	if (a->counted)
		atomic_fetch_sub(a->key->n_running, 1);
	a->counted = false;
	quota_settle(a->quota, (int64_t)u.n_prompt + u.n_completion);
	a->quota = NULL;
}

/* Nothing more will come of it for its reader, and nobody need be told. */
static void finish(struct answer *a)
{
	if (a->alone || a->state == ANSWER_ENDED)
		return;
	if (a->end == ANSWER_FAILED || !answer_has_twins(a)) {
		finish_now(a);
		return;
	}
	drop_runs(a);
	tell_usage(a);
	a->alone = true;
	end_key(a, false);
	talks_end(a->talk);
	a->talk = NULL;
	gen_follow_twins(a->runs[0].gen);
	if (a->state == ANSWER_RUNNING)
		gw_timer_stop(&a->app->t->timers, &a->timer);
	gw_defer(a->app->t, &a->pump); /* drops what there is */
}

/* It has ended, and no exchange frees it. */
static void let_go(struct answer *a)
{
	list_remove(&a->in_app);
	gw_defer(a->app->t, &a->reap);
}

/* What came for its twins, which take it from their own log. */
static void go_on_alone(struct answer *a)
{
	struct answer_run *run = &a->runs[0];
	if (a->state == ANSWER_ENDED)
		return;
	gen_advance(&run->sub, (uint32_t)(gen_n_tokens(run->gen) - run->sub.next_token));
	if (gen_state(run->gen) < GEN_FINISHED && gen_has_twins(run->gen))
		return;
	finish_now(a);
	if (a->x == NULL && a->log == NULL)
		let_go(a);
}

void answer_cap(struct answer *a)
{
	a->capped = true;
	leave_runs(a);
}

/* Of every choice that tells none; only read. */
static struct sl_buf no_logprobs[ANSWER_LISTS];

static void answer_free(struct answer *a)
{
	BUG_IF(a->log != NULL || a->lead != NULL || a->talk != NULL || a->idempotent != NULL,
	       "an answer is freed in the middle of something");
	list_remove(&a->in_all);
	gw_defer_cancel(&a->pump);
	gw_defer_cancel(&a->reap);
	gw_timer_stop(&a->app->t->timers, &a->timer);
	for (unsigned i = 0; a->choices != NULL && i < answer_n_choices(a); i++) {
		struct answer_choice *c = &a->choices[i];
		buf_dispose(&c->text);
		buf_dispose(&c->told);
		for (int k = 0; a->wants_logprobs && c->logprobs != NULL && k < ANSWER_LISTS; k++)
			buf_dispose(&c->logprobs[k]);
		if (c->logprobs != no_logprobs)
			sl_free(c->logprobs);
	}
	if (a->format->dispose != NULL)
		a->format->dispose(a->own);
	sse_dispose(&a->sse);
	buf_dispose(&a->carry);
	sl_free(a->choices);
	sl_free(a->runs);
	auth_key_unref(a->key);
	sl_free(a->model);
	sl_free(a->message_copy);
	sl_free(a->told);
	gw_snapshot_unref(a->snapshot);
	sl_free(a);
}

static void on_reap(struct gw_deferred *d) { answer_free(list_entry(d, struct answer, reap)); }

/* The exchange goes, and it is still this answer's. */
static void on_exchange_close(struct exchange *x)
{
	struct answer *a = x->state;
	if (a->end == ANSWER_UNDECIDED)
		a->end = ANSWER_STOPPED;
	finish(a);
	x->state = NULL;
	a->x = NULL;
	if (a->state == ANSWER_ENDED)
		answer_free(a);
	else
		list_push_back(&a->app->answers, &a->in_app);
}

static void part_from_exchange(struct answer *a)
{
	a->x->state = NULL;
	a->x->on_close = NULL;
}

/* Instead of an answer. */
static void refuse(struct answer *a, const struct api_error *e, const char *message)
{
	a->end = ANSWER_FAILED;
	finish_now(a);
	if (a->x != NULL)
		exchange_error(a->x, e, "%s", message);
	else
		let_go(a);
}

/* What a failed generation means as an HTTP answer. */
static struct api_error error_of(const struct proto_done *d)
{
	switch ((enum proto_error)d->error) {
	case PROTO_ERR_BAD_REQUEST:
		return (struct api_error){400, "invalid_request_error", "invalid_value", "messages", 0};
	case PROTO_ERR_CONTEXT_LENGTH:
		return (struct api_error){400, "invalid_request_error", "context_length_exceeded", "messages", 0};
	case PROTO_ERR_NO_MODEL:
		return (struct api_error){404, "invalid_request_error", "model_not_found", "model", 0};
	case PROTO_ERR_NOT_READY:
		return (struct api_error){503, "server_error", "engine_unavailable", NULL, RETRY_AFTER_S};
	case PROTO_ERR_OVERLOADED:
		return (struct api_error){503, "server_error", "overloaded", NULL, RETRY_AFTER_S};
	case PROTO_ERR_NONE:
	case PROTO_ERR_INTERNAL: break;
	}
	return (struct api_error){500, "server_error", "engine_error", NULL, 0};
}

static void tell(struct answer *a)
{
	if (a->log != NULL)
		gw_defer(a->app->t, &a->pump);
	else if (a->stream)
		http_body_ready(a->x->stream);
}

/* It fails, now or as its stream's last event. */
static void fail(struct answer *a, const struct api_error *e, const char *message)
{
	if (a->end != ANSWER_UNDECIDED)
		return;
	a->end = ANSWER_FAILED;
	a->error = *e;
	a->message_copy = sl_strdup(message);
	a->message = a->message_copy != NULL ? a->message_copy : no_memory_text;
	if (a->state == ANSWER_WAITING || (!a->stream && a->log == NULL))
		refuse(a, &a->error, a->message);
	else
		tell(a);
}

static void fail_by_run(struct answer *a, const struct answer_run *run)
{
	const struct proto_done *d = gen_done(run->gen);
	struct api_error e = error_of(d);
	if (e.param != NULL && strcmp(e.param, "messages") == 0)
		e.param = a->format->prompt_param;
	char message[PROTO_MAX_MESSAGE + 1];
	snprintf(message, sizeof message, "%.*s", (int)d->message.n, d->message.at);
	fail(a, &e, message[0] ? message : "The engine failed.");
}

/* ---- streamed ---- */

static ssize_t pull(void *ctx, uint8_t *dst, size_t room, bool *end)
{
	struct answer *a = ctx;
	size_t n = 0;
	while (n < room) {
		/* Rendered where the answer before was, which is in the cache; what finds no room waits. */
		struct sl_buf *from = a->carry.len > 0 ? &a->carry : &a->app->scratch;
		if (from != &a->carry) {
			buf_clear(from, KEEP_CARRY);
			int rc = answer_render(a, from);
			if (rc < 0)
				return rc;
			if (rc == 0)
				break;
			idempotent_keep(a->idempotent, buf_data(from), from->len);
		}
		size_t take = from->len < room - n ? from->len : room - n;
		if (take > 0)
			memcpy(dst + n, buf_data(from), take);
		buf_consume(from, take);
		n += take;
		if (from != &a->carry && from->len > 0 && buf_append(&a->carry, buf_data(from), from->len) != 0)
			return SL_ENOMEM;
		if (a->carry.len == 0)
			buf_clear(&a->carry, 0);
	}
	*end = a->stage == ANSWER_OVER && a->carry.len == 0;
	if (n > 0)
		a->moved_ns = gw_now(a->app->t);
	if (*end)
		finish(a);
	return (ssize_t)n;
}

static void start_streaming(struct answer *a)
{
	a->moved_ns = clock_now_ns();
	exchange_reply_stream(a->x, stream_fields, STREAM_FIELDS, (struct http_source){.pull = pull, .ctx = a});
	http_body_ready(a->x->stream);
}

/* ---- logged ---- */

/* *json, if the caller wants it, is what was put there. */
static int put_snapshot(struct answer *a, struct sl_buf *json)
{
	int rc = 0;
	buf_init(json, MAX_WHOLE);
	if (a->format->snapshot != NULL && (rc = a->format->snapshot(a, json)) == 0)
		rc = replay_set_snapshot(a->log, buf_data(json), json->len);
	return rc;
}

static void close_log(struct answer *a)
{
	struct sse_usage u = answer_usage(a);
	replay_end(a->log, &(struct replay_usage){u.n_prompt, u.n_completion});
	a->log = NULL;
	list_remove(&a->in_app);
	if (a->state == ANSWER_ENDED)
		gw_defer(a->app->t, &a->reap);
	else
		list_push_back(&a->app->answers, &a->in_app);
}

/* Everything there is into the log. */
static void pump(struct answer *a)
{
	int rc;
	if (a->alone)
		go_on_alone(a);
	if (a->log == NULL || a->state == ANSWER_ENDED)
		return;
	while ((rc = answer_render(a, &a->carry)) > 0)
		;
	/* Who reads the end finds the final state. Without the memory for it the last one stands. */
	if (a->stage == ANSWER_OVER) {
		struct sl_buf json;
		(void)put_snapshot(a, &json);
		buf_dispose(&json);
	}
	if (a->stream)
		idempotent_keep(a->idempotent, buf_data(&a->carry), a->carry.len);
	if (a->carry.len > 0 && rc == 0)
		rc = replay_append(a->log, buf_data(&a->carry), a->carry.len);
	buf_clear(&a->carry, KEEP_CARRY);
	if (rc < 0) {
		log_warn("the stream %s is broken off: %s", a->id, rc == SL_ENOMEM ? "out of memory" : "too large");
		a->end = ANSWER_FAILED;
		a->error = too_large;
		a->stage = ANSWER_OVER;
	}
	if (a->stage == ANSWER_OVER) {
		finish(a);
		close_log(a);
	}
}

static void on_pump(struct gw_deferred *d) { pump(list_entry(d, struct answer, pump)); }

/* Somebody asks for its end: what was made up to now is told, then it ends well. */
static void on_stop(void *ctx)
{
	struct answer *a = ctx;
	if (a->end != ANSWER_UNDECIDED || a->state == ANSWER_ENDED)
		return;
	pump(a);
	if (a->state == ANSWER_ENDED)
		return;
	a->end = ANSWER_STOPPED;
	drop_runs(a);
	pump(a);
}

static int open_log(struct answer *a)
{
	int rc = replay_open(a->app->replay, a->app->t, a->id, a->key->tenant, on_stop, a, &a->log);
	if (rc != 0)
		return rc;
	list_push_back(&a->app->answers, &a->in_app);
	struct sl_buf json;
	rc = put_snapshot(a, &json);
	if (rc == 0 && a->background && !a->stream) {
		idempotent_keep(a->idempotent, buf_data(&json), json.len);
		end_key(a, true);
		exchange_reply(a->x, 200, "application/json", NULL, 0, buf_data(&json), json.len);
	}
	buf_dispose(&json);
	if (rc == 0 && (a->stream || !a->background))
		rc = stream_out_start(a->x, a->log, 0, a->ids);
	else if (rc == 0)
		part_from_exchange(a);
	if (rc != 0) {
		replay_end(a->log, &(struct replay_usage){0});
		a->log = NULL;
		list_remove(&a->in_app);
		return rc;
	}
	a->x = NULL;
	if (a->format->opened != NULL)
		a->format->opened(a);
	return 0;
}

void answers_break_off(struct gw_app *app)
{
	static const struct api_error over = {503, "server_error", "shutting_down", NULL, RETRY_AFTER_S};
	list_each_safe(it, tmp, &app->all_answers)
	{
		struct answer *a = list_entry(it, struct answer, in_all);
		if (a->state != ANSWER_ENDED)
			fail(a, &over, "The server is shutting down, and the answer has not become ready in time.");
	}
}

void answers_stop(struct gw_app *app)
{
	while (!list_empty(&app->answers)) {
		struct answer *a = list_entry(app->answers.next, struct answer, in_app);
		struct sl_buf json;
		if (a->end == ANSWER_UNDECIDED)
			a->end = ANSWER_STOPPED;
		finish_now(a);
		if (a->log == NULL) {
			let_go(a);
			continue;
		}
		(void)put_snapshot(a, &json);
		buf_dispose(&json);
		close_log(a);
	}
}

/* ---- whole ---- */

static void reply_whole(struct answer *a)
{
	struct sl_buf out;
	buf_init(&out, MAX_WHOLE);
	if (a->format->whole(a, &out) != 0) {
		refuse(a, &too_large, too_large_text);
	} else {
		idempotent_keep(a->idempotent, buf_data(&out), out.len);
		finish(a);
		exchange_reply(a->x, 200, "application/json", NULL, 0, buf_data(&out), out.len);
	}
	buf_dispose(&out);
}

static void collect(struct answer *a)
{
	int rc = answer_collect(a);
	if (rc < 0)
		fail(a, &too_large, too_large_text);
	else if (rc > 0)
		reply_whole(a);
}

void answer_settled(struct answer *a)
{
	a->settled = true;
	if (a->state != ANSWER_RUNNING || a->alone)
		return;
	if (a->stream || a->log != NULL)
		tell(a);
	else
		reply_whole(a);
}

/* ---- admission ---- */

static void restart_timer(struct answer *a, uint64_t ms)
{
	gw_timer_start(&a->app->t->timers, &a->timer, ms * NS_PER_MS);
}

static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* How often a log without readers is looked at. */
static uint64_t glance_ms(const struct answer *a) { return a->app->t->cfg->resume.grace_ms / 4 + 1; }

/* The way out is open from here on. */
static void begin(struct answer *a)
{
	const struct gw_config *cfg = a->app->t->cfg;
	if (a->logged && open_log(a) == 0) {
		restart_timer(a, sooner(glance_ms(a), cfg->limits.first_token_ms));
		tell(a);
		return;
	}
	if (a->background) {
		refuse(a, &no_memory, "There is no room for another response in the background.");
		return;
	}
	/* Without room for a log it can't be resumed, and does not say that it could. */
	if (a->stream) {
		start_streaming(a);
		restart_timer(a, sooner(cfg->heartbeat_ms, cfg->limits.first_token_ms));
	} else {
		restart_timer(a, cfg->limits.first_token_ms);
	}
}

static void admit(struct answer *a)
{
	answer_set_state(a, ANSWER_RUNNING);
	a->admitted_ns = clock_now_ns();
	for (int i = 0; i < a->n_runs; i++)
		gen_admit(a->runs[i].gen);
	if (a->alone) {
		gw_timer_stop(&a->app->t->timers, &a->timer);
		return;
	}
	begin(a);
	if (a->superseded && !a->stream && a->log == NULL && a->state == ANSWER_RUNNING)
		collect(a);
}

/* What was made up to now is all: its end is told as that of an answer that was stopped. */
void answer_supersede(struct answer *a)
{
	if (a->end != ANSWER_UNDECIDED || a->state == ANSWER_ENDED)
		return;
	a->superseded = true;
	a->end = ANSWER_STOPPED;
	drop_runs(a);
	if (a->state == ANSWER_WAITING && a->released)
		return; /* it is charged and admitted for its twins first */
	if (a->state == ANSWER_RUNNING) {
		tell(a);
	} else {
		quota_settle(a->quota, 0);
		a->quota = NULL;
		answer_set_state(a, ANSWER_RUNNING);
		begin(a);
	}
	if (a->state == ANSWER_RUNNING && !a->stream && a->log == NULL)
		collect(a);
}

/* The tokens it takes at most, and the fewest it is of any use with. Those of a twin are charged to the
 * one that it joined. */
static struct quota_ask quota_ask_of(const struct answer *a)
{
	struct quota_ask ask = {.key = a->key, .requests = a->n_runs};
	if (a->twin)
		return ask;
	for (int i = 0; i < a->n_runs; i++) {
		uint32_t n_prompt = gen_queued(a->runs[i].gen)->n_prompt;
		uint32_t room = a->n_ctx > n_prompt ? a->n_ctx - n_prompt : 1;
		ask.tokens += (int64_t)n_prompt + (int64_t)(a->max_tokens < room ? a->max_tokens : room) * a->n_made;
		ask.least += (int64_t)n_prompt + 1;
	}
	return ask;
}

static void on_charged(void *ctx, struct quota *q, const struct quota_result *r)
{
	struct answer *a = ctx;
	if (a->x != NULL && r->code == 0)
		exchange_set_quota(a->x, r);
	if (!r->admitted) {
		a->quota = NULL;
		a->end = ANSWER_FAILED;
		finish_now(a);
		if (a->x != NULL)
			quota_refuse(a->x, r);
		else
			let_go(a);
		return;
	}
	a->quota = q;
	struct quota_ask ask = quota_ask_of(a);
	/* Of the prompts' tokens none is told. */
	if (r->granted < ask.tokens)
		a->tokens_left = r->granted - (ask.least - a->n_runs);
	admit(a);
}

/* Every prompt is counted: what it may cost is known. */
static void charge(struct answer *a)
{
	struct quota_ask ask = quota_ask_of(a);
	int rc = quota_take(&a->app->quotas, &ask, on_charged, a, &a->quota);
	if (rc < 0)
		refuse(a, &no_memory, no_memory_text);
	else if (rc > 0)
		admit(a);
}

/* More than its tier may send; then it is refused. */
static bool is_prompt_too_long(struct answer *a, uint32_t n_prompt)
{
	int64_t most = a->key->tier->max_prompt;
	char message[160];
	if (most == 0 || n_prompt <= most)
		return false;
	snprintf(message, sizeof message, "This key's prompts may have %lld tokens at most; yours has %u. Please shorten it.",
		 (long long)most, n_prompt);
	refuse(a, &(struct api_error){400, "invalid_request_error", "context_length_exceeded", a->format->prompt_param, 0},
	       message);
	return true;
}

static void on_queued(struct subscriber *s)
{
	struct answer_run *run = list_entry(s, struct answer_run, sub);
	struct answer *a = run->answer;
	uint64_t most = a->app->t->cfg->limits.first_token_ms;
	uint64_t predicted_ms = gen_queued(run->gen)->predicted_ttft_us / 1000;
	if (a->state != ANSWER_WAITING)
		return;
	if (predicted_ms > most) {
		struct api_error e = too_late;
		e.retry_after_s = (unsigned)((predicted_ms - most) / 1000 + 1);
		refuse(a, &e, "The server is busy: the first token would come too late.");
		return;
	}
	if (is_prompt_too_long(a, gen_queued(run->gen)->n_prompt))
		return;
	run->queued = true;
	if (++a->n_queued == a->n_runs)
		charge(a);
}

static void observe_tokens(struct answer *a, const struct answer_run *run)
{
	uint64_t now = gw_now(a->app->t);
	if (gen_n_tokens(run->gen) == 0)
		return;
	if (a->token_ns == 0)
		chat_metrics_ttft(now - a->started_ns);
	else
		chat_metrics_itl(now - a->token_ns);
	a->token_ns = now;
}

static void on_progress(struct subscriber *s)
{
	struct answer_run *run = list_entry(s, struct answer_run, sub);
	struct answer *a = run->answer;
	if (a->state == ANSWER_ENDED)
		return;
	if (a->alone) {
		go_on_alone(a);
		return;
	}
	observe_tokens(a, run);
	if (gen_state(run->gen) == GEN_FAILED)
		fail_by_run(a, run);
	else if (a->state == ANSWER_RUNNING && (a->stream || a->log != NULL))
		tell(a);
	else if (a->state == ANSWER_RUNNING)
		collect(a);
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

/* A heartbeat when it is due; in how long to look again. */
static uint64_t beat(struct answer *a)
{
	uint64_t interval = a->app->t->cfg->heartbeat_ms * NS_PER_MS, silent = clock_now_ns() - a->moved_ns;
	/* Only between events: a comment inside one would end up in its text. */
	if (silent >= interval && a->carry.len == 0 && sse_ping(&a->carry) == 0)
		http_body_ready(a->x->stream);
	return (silent >= interval ? interval : interval - silent) / NS_PER_MS + 1;
}

void answer_wait(struct answer *a, uint64_t ns)
{
	a->waits = true;
	gw_timer_start(&a->app->t->timers, &a->timer, ns);
}

static void on_timer(struct gw_timer *timer)
{
	struct answer *a = list_entry(timer, struct answer, timer);
	const struct gw_config *cfg = a->app->t->cfg;
	uint64_t next = UINT64_MAX;
	if (a->state == ANSWER_WAITING) {
		refuse(a, &no_memory, "The engine did not take the request in time.");
		return;
	}
	if (a->state == ANSWER_ENDED)
		return;
	if (awaits_first_token(a) && first_token_left_ms(a) == 0) {
		fail(a, &too_late, too_late_text);
		leave_runs(a);
		return;
	}
	bool waits = a->waits;
	a->waits = false;
	if (waits)
		tell(a);
	if (a->log != NULL) {
		if (!a->background && replay_abandoned(a->log, cfg->resume.grace_ms * NS_PER_MS)) {
			on_stop(a);
			return;
		}
		next = glance_ms(a);
	} else if (a->stream) {
		next = beat(a);
	}
	if (awaits_first_token(a))
		next = sooner(next, first_token_left_ms(a) + 1);
	if (next != UINT64_MAX && !a->waits)
		restart_timer(a, next);
}

/* ---- the beginning ---- */

/* Takes one of the key's places; false with the answer given. */
static bool take_place(struct answer *a)
{
	const struct auth_key *key = a->key;
	int64_t most = key->tier->concurrency;
	char message[128];
	if (atomic_fetch_add(key->n_running, 1) < most) {
		a->counted = true;
		return true;
	}
	atomic_fetch_sub(key->n_running, 1);
	snprintf(message, sizeof message, "Rate limit reached: at most %lld requests at once for this key.", (long long)most);
	refuse(a, &(struct api_error){429, "rate_limit_error", "concurrency_limit", NULL, RETRY_AFTER_S}, message);
	return false;
}

/* False: no memory. */
static bool init_choices(struct answer *a)
{
	for (unsigned i = 0; i < answer_n_choices(a); i++) {
		struct answer_choice *c = &a->choices[i];
		buf_init(&c->text, MAX_ANSWER);
		buf_init(&c->told, MAX_LOGPROBS);
		c->logprobs = a->wants_logprobs ? sl_zalloc_n(ANSWER_LISTS, sizeof *c->logprobs) : no_logprobs;
		if (c->logprobs == NULL)
			return false;
		for (int k = 0; a->wants_logprobs && k < ANSWER_LISTS; k++)
			buf_init(&c->logprobs[k], MAX_LOGPROBS);
	}
	return true;
}

/* Takes spec->own unless it fails. */
static struct answer *answer_create(struct exchange *x, const struct answer_spec *spec)
{
	struct answer *a = sl_zalloc(sizeof *a);
	if (a == NULL)
		return NULL;
	a->app = x->app;
	a->x = x;
	a->format = spec->format;
	a->stream = spec->stream;
	a->include_usage = spec->include_usage;
	a->obfuscate = spec->obfuscate;
	a->logged = spec->logged || spec->background;
	a->ids = spec->ids;
	a->background = spec->background;
	a->keep_text = spec->keep_text;
	a->wants_logprobs = (spec->submit->flags & PROTO_SUBMIT_WANT_LOGPROBS) != 0;
	a->n = spec->submit->n;
	a->n_made = spec->submit->best_of > a->n ? spec->submit->best_of : a->n;
	a->tokens_left = INT64_MAX;
	a->n_runs = spec->n_prompts;
	list_init(&a->in_app);
	a->snapshot = gw_snapshot_ref(x->snapshot);
	a->key = auth_key_ref(x->key);
	a->created = clock_unix_s();
	a->started_ns = x->started_ns;
	size_t n_prefix = strlen(spec->format->id_prefix);
	BUG_IF(n_prefix + RANDOM_NAME_CHARS >= sizeof a->id, "a long prefix: %s", spec->format->id_prefix);
	memcpy(a->id, spec->format->id_prefix, n_prefix);
	bool named = random_name(a->id + n_prefix);
	const struct link_model *model = engine_link_model(x->app->link, spec->model);
	a->model = sl_strdup(model->name);
	a->n_ctx = model->n_ctx;
	a->message = "";
	a->told = spec->told != NULL ? sl_strdup(spec->told) : NULL;
	buf_init(&a->carry, MAX_WHOLE);
	list_push_back(&x->app->all_answers, &a->in_all);
	gw_defer_init(&a->pump, on_pump);
	gw_defer_init(&a->reap, on_reap);
	gw_timer_init(&a->timer, on_timer);
	a->runs = sl_zalloc_n((size_t)a->n_runs, sizeof *a->runs);
	a->choices = sl_zalloc_n(answer_n_choices(a), sizeof *a->choices);
	if (!named || a->model == NULL || (spec->told != NULL && a->told == NULL) || a->runs == NULL || a->choices == NULL ||
	    !init_choices(a)) {
		answer_free(a);
		return NULL;
	}
	for (int i = 0; i < a->n_runs; i++) {
		a->runs[i].answer = a;
		a->runs[i].sub.on_queued = on_queued;
		a->runs[i].sub.on_progress = on_progress;
	}
	a->own = spec->own;
	return a;
}

/* What the tier says, on top of what the request says. */
static void fill_submit(struct answer *a, const struct answer_spec *spec, struct proto_submit *s)
{
	const struct gw_tier_config *tier = a->key->tier;
	uint32_t most = (uint32_t)tier->max_output;
	*s = *spec->submit;
	s->model = (uint16_t)spec->model;
	s->priority = (uint8_t)tier->priority;
	s->tenant = a->key->tenant;
	if (tier->weight > 0)
		s->weight = (uint32_t)tier->weight;
	s->rate_tps = (float)tier->pace_tps;
	s->burst = (uint32_t)tier->pace_burst;
	s->deadline_ms = (uint32_t)tier->deadline_ms;
	s->max_tokens = spec->has_max_tokens && spec->max_tokens < most ? spec->max_tokens : most;
	if (s->min_tokens > s->max_tokens)
		s->min_tokens = s->max_tokens;
	a->max_tokens = s->max_tokens;
}

static void submit(struct answer *a, const struct answer_spec *spec, struct proto_submit *s)
{
	uint32_t window = (uint32_t)a->app->t->cfg->limits.window_tokens;
	for (int i = 0; i < a->n_runs; i++) {
		struct answer_run *run = &a->runs[i];
		s->prompt_kind = spec->prompts[i].kind;
		s->prompt = spec->prompts[i].text;
		BUG_IF(!spec->has_seed && !random_u64(&s->seed), "no random bytes");
		int rc = gen_start(a->app->t, s, window, &run->sub, &run->gen);
		if (rc != 0) {
			refuse(a, &(struct api_error){503, "server_error", "engine_unavailable", NULL, RETRY_AFTER_S},
			       rc == SL_ECLOSED ? "The engine is not there at the moment. It is being restarted."
						: "The server is busy.");
			return;
		}
		/* The stream's place is kept until the engine has stopped; one of them stands for all. */
		if (i == 0 && !a->logged)
			gen_hold(run->gen, http_hold(a->x->stream));
	}
	if (a->lead != NULL) {
		gen_share(a->runs[0].gen, a->lead);
		twin_log_unref(a->lead);
		a->lead = NULL;
	}
}

void answer_start(struct exchange *x, const struct answer_spec *spec)
{
	BUG_IF(spec->n_prompts < 1 || spec->n_prompts > ANSWER_MAX_RUNS, "an answer to %d prompts", spec->n_prompts);
	struct answer *a = answer_create(x, spec);
	struct proto_submit s;
	if (a == NULL) {
		exchange_error(x, &no_memory, no_memory_text);
		if (spec->format->dispose != NULL)
			spec->format->dispose(spec->own);
		return;
	}
	x->state = a;
	x->on_close = on_exchange_close;
	a->idempotent = x->idempotent;
	x->idempotent = NULL;
	fill_submit(a, spec, &s);
	restart_timer(a, a->app->t->cfg->limits.submit_wait_ms);
	/* Who joins takes no place: it makes no work. */
	int rc = answer_share(a, spec, &s);
	if (rc < 0)
		refuse(a, &no_memory, "The answer that is asked for again can't be had at the moment.");
	else if (rc == 0 && take_place(a))
		submit(a, spec, &s);
}
