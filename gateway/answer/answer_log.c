/* SPDX-License-Identifier: Apache-2.0
 *
 * Logged answers: resumable streams and responses in the background. Their events go into a replay log,
 * at the end of each turn of the loop that brought something, and the log continues without readers.
 */
#include "gateway/answer/answer_priv.h"

#include "base/alloc.h"
#include "base/log.h"
#include "gateway/replay/replay_store.h"
#include "gateway/answer/stream_out.h"

/* ---- the reply to a request for the background ---- */

/* The reply is sent only when other gateways could continue the answer: what was promised is kept even if this
 * gateway is killed at that moment. */
struct held_reply {
	struct answer *answer;
	struct exchange *x;
	struct sl_buf json;
	bool spool, store; /* which are waited for */
};

/* What is promised is the answer to its key, too. */
static void end_held_key(struct held_reply *h, bool well)
{
	idempotent_keep(h->answer->sharing.idempotent, buf_data(&h->json), h->json.len);
	answer_end_key(h->answer, well);
}

/* Its client has gone. */
static void held_closed(struct exchange *x)
{
	struct held_reply *h = x->state;
	end_held_key(h, true);
	h->answer->out.held = NULL;
	buf_dispose(&h->json);
	sl_free(h);
}

static struct exchange *part_held(struct answer *a, struct sl_buf *json)
{
	struct held_reply *h = a->out.held;
	struct exchange *x = h->x;
	*json = h->json;
	a->out.held = NULL;
	sl_free(h);
	x->state = NULL;
	x->on_close = NULL;
	return x;
}

static void reply_held(struct answer *a)
{
	struct sl_buf json;
	if (a->out.held == NULL)
		return;
	end_held_key(a->out.held, true);
	struct exchange *x = part_held(a, &json);
	exchange_reply(x, 200, "application/json", NULL, 0, buf_data(&json), json.len);
	buf_dispose(&json);
}

static void refuse_held(struct answer *a)
{
	struct sl_buf json;
	end_held_key(a->out.held, false);
	struct exchange *x = part_held(a, &json);
	buf_dispose(&json);
	exchange_error(x, &(struct api_error){503, "server_error", "store_unavailable", NULL, 1},
		       "The response cannot be stored at the moment, so it cannot run in the background.");
	answer_on_stop(a);
}

static void reply_when_ready(struct answer *a)
{
	if (a->out.held != NULL && !a->out.held->spool && !a->out.held->store)
		reply_held(a);
}

static void on_spool_begun(void *ctx)
{
	struct answer *a = ctx;
	if (a->out.held != NULL)
		a->out.held->spool = false;
	reply_when_ready(a);
}

bool answer_await(struct answer *a)
{
	if (a->out.held != NULL)
		a->out.held->store = true;
	return a->out.held != NULL;
}

void answer_begun(struct answer *a, bool well)
{
	if (a->out.held == NULL)
		return;
	a->out.held->store = false;
	if (well)
		reply_when_ready(a);
	else
		refuse_held(a);
}

/* Takes json, and a's exchange. */
static int hold_reply(struct answer *a, struct sl_buf *json)
{
	struct held_reply *h = sl_zalloc(sizeof *h);
	if (h == NULL)
		return SL_ENOMEM;
	*h = (struct held_reply){.answer = a, .x = a->x, .json = *json};
	buf_init(json, 0);
	a->out.held = h;
	a->x->state = h;
	a->x->on_close = held_closed;
	return 0;
}

/* ---- the log ---- */

/* *json is what was put there. */
static int put_snapshot(struct answer *a, struct sl_buf *json)
{
	int rc = 0;
	buf_init(json, ANSWER_MAX_WHOLE);
	if (a->format->snapshot != NULL && (rc = a->format->snapshot(a, json)) == 0)
		rc = replay_set_snapshot(a->out.log, buf_data(json), json->len);
	return rc;
}

void answer_put_snapshot(struct answer *a)
{
	struct sl_buf json;
	(void)put_snapshot(a, &json);
	buf_dispose(&json);
}

static void close_log(struct answer *a)
{
	struct sse_usage u = answer_usage(a);
	reply_held(a);
	const struct replay_usage usage = {u.n_prompt, u.n_completion};
	spool_end(a->out.spool, &usage);
	a->out.spool = NULL;
	replay_end(a->out.log, &usage);
	a->out.log = NULL;
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
	if (a->sharing.alone)
		answer_run_alone(a);
	if (a->out.log == NULL || a->state == ANSWER_ENDED)
		return;
	while ((rc = answer_render(a, &a->out.carry)) > 0)
		if (a->continued != NULL)
			a->continued->rendered(a);
	/* Readers of the end find the final state. Without memory for it the last one remains. */
	if (a->stage == ANSWER_OVER)
		answer_put_snapshot(a);
	if (a->out.stream)
		idempotent_keep(a->sharing.idempotent, buf_data(&a->out.carry), a->out.carry.len);
	if (a->out.carry.len > 0 && !a->out.spooled)
		answer_open_spool(a, 0);
	if (a->out.carry.len > 0 && rc == 0)
		rc = replay_append(a->out.log, buf_data(&a->out.carry), a->out.carry.len);
	buf_clear(&a->out.carry, ANSWER_KEEP_CARRY);
	spool_moved(a->out.spool);
	if (rc < 0) {
		log_warn("the stream %s is broken off: %s", a->id, rc == SL_ENOMEM ? "out of memory" : "too large");
		answer_set_failure(a, &answer_too_large, answer_too_large_text);
		a->stage = ANSWER_OVER;
	}
	if (a->stage == ANSWER_OVER) {
		answer_finish(a);
		close_log(a);
	} else if (a->out.stop_later && !a->out.replaying && a->state == ANSWER_RUNNING) {
		a->out.stop_later = false;
		answer_on_stop(a);
	}
}

void answer_on_pump(struct gw_deferred *d) { pump(list_entry(d, struct answer, pump)); }

/* Its end was requested: what was produced so far is sent, then it ends well. */
void answer_on_stop(void *ctx)
{
	struct answer *a = ctx;
	if (a->end != ANSWER_UNDECIDED || a->state == ANSWER_ENDED)
		return;
	if (a->out.replaying) {
		a->out.stop_later = true;
		return;
	}
	pump(a);
	if (a->state == ANSWER_ENDED)
		return;
	a->end = ANSWER_STOPPED;
	answer_drop_runs(a);
	pump(a);
}

int answer_open_log(struct answer *a)
{
	int rc = replay_open(a->app->replay, a->app->t, a->id, a->key->tenant, answer_on_stop, a, &a->out.log);
	if (rc != 0)
		return rc;
	list_push_back(&a->app->answers, &a->in_app);
	struct sl_buf json;
	rc = put_snapshot(a, &json);
	if (rc == 0 && a->out.background && !a->out.stream) {
		rc = hold_reply(a, &json);
	} else if (rc == 0) {
		rc = stream_out_start(a->x, a->out.log, 0, a->out.ids);
	}
	buf_dispose(&json);
	if (rc != 0) {
		replay_end(a->out.log, &(struct replay_usage){0});
		a->out.log = NULL;
		list_remove(&a->in_app);
		return rc;
	}
	a->x = NULL;
	if (a->format->opened != NULL)
		a->format->opened(a);
	if (!answer_load_has_place(a)) /* it may become another's model while it waits */
		answer_open_spool(a, 0);
	if (a->out.held != NULL)
		a->out.held->spool = a->out.spool != NULL && spool_await(a->out.spool, on_spool_begun, a);
	reply_when_ready(a);
	return 0;
}

/* Its spool has what is needed to continue it, and its readers see no end. */
static void leave(struct answer *a)
{
	reply_held(a);
	spool_leave(a->out.spool);
	a->out.spool = NULL;
	quota_leave(a->budget.quota);
	a->budget.quota = NULL;
	a->end = ANSWER_STOPPED;
	a->seen.elsewhere = true;
	answer_finish_now(a);
	close_log(a);
}

void answers_stop(struct gw_app *app)
{
	while (!list_empty(&app->answers)) {
		struct answer *a = list_entry(app->answers.next, struct answer, in_app);
		if (answer_can_be_left(a)) {
			leave(a);
			continue;
		}
		if (a->end == ANSWER_UNDECIDED)
			a->end = ANSWER_STOPPED;
		answer_finish_now(a);
		if (a->out.log == NULL) {
			answer_release(a);
			continue;
		}
		answer_put_snapshot(a);
		close_log(a);
	}
}
