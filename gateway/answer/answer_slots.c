/* SPDX-License-Identifier: Apache-2.0
 *
 * The SUBMIT of a late prompt is kept, and that of every prompt of a list until its first token: one that the engine
 * displaces after others of its answer have produced tokens is submitted again instead of failing them all.
 *
 * An answer keeps the places of a prompt that has ended for its next one, and takes others that are free; so it always
 * advances. Its deadline is that of its first prompt.
 */
#include "gateway/answer/answer_slots.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "gateway/answer/answer_priv.h"
#include "gateway/loop/timer.h"

enum { AGAIN_MS = 500 }; /* the engine has no room: it is asked again in so long */

struct answer_late {
	struct answer *answer;
	struct gw_timer timer;
	uint64_t deadline_ns;          /* 0: none */
	struct submit_frame *frames[]; /* [n_runs], counted; NULL: its first token has come, or it has ended */
};

/* ---- the key's count ---- */

static void give(struct answer *a, int n)
{
	a->slots.n_held -= n;
	atomic_fetch_sub(a->key->n_running, n);
}

/* Places for so many prompts, or fewer. For how many. */
static int take(struct answer *a, int want)
{
	int64_t most = a->key->tier->concurrency;
	int now = atomic_load(a->key->n_running), n;
	do {
		int64_t fit = (most - now) / a->slots.each;
		n = fit < want ? (int)fit : want;
		if (n <= 0)
			return 0;
	} while (!atomic_compare_exchange_weak(a->key->n_running, &now, now + n * a->slots.each));
	a->slots.n_held += n * a->slots.each;
	return n;
}

static void refuse_for_ever(struct answer *a, int64_t most)
{
	const char *field = a->n_made > a->n ? "best_of" : "n";
	char message[160];
	snprintf(message, sizeof message,
		 "Invalid value for '%s': this key may have %lld choices in progress at once, not %d.", field,
		 (long long)most, a->slots.each);
	answer_refuse(a, &(struct api_error){400, "invalid_request_error", "concurrency_limit", field, 0}, message);
}

static void refuse_for_now(struct answer *a, int64_t most)
{
	char message[160];
	snprintf(message, sizeof message, "Rate limit reached: at most %lld answers at once for this key.",
		 (long long)most);
	answer_refuse(a, &(struct api_error){429, "rate_limit_error", "concurrency_limit", NULL, ANSWER_RETRY_AFTER_S},
		      message);
}

bool answer_slots_take(struct answer *a)
{
	int64_t most = a->key->tier->concurrency;
	int n = take(a, a->n_runs);
	a->slots.n_first = n;
	if (n > 0)
		return true;
	quota_count_concurrency();
	if (a->slots.each > most)
		refuse_for_ever(a, most);
	else
		refuse_for_now(a, most);
	return false;
}

void answer_slots_claim(struct answer *a)
{
	int n = a->n_runs * a->slots.each;
	atomic_fetch_add(a->key->n_running, n);
	a->slots.n_held = n;
	a->slots.n_first = a->n_runs;
	for (int i = 0; i < a->n_runs; i++)
		a->runs[i].placed = true;
}

void answer_slots_leave(struct answer *a)
{
	answer_slots_drop(a);
	give(a, a->slots.n_held);
}

/* ---- counting ---- */

static void on_counted(void *ctx, const struct proto_counted *m)
{
	struct answer_run *run = ctx;
	struct answer *a = run->answer;
	char message[PROTO_MAX_MESSAGE + 1];
	run->count_id = 0;
	if (m == NULL) {
		answer_refuse(
		    a, &(struct api_error){503, "server_error", "engine_unavailable", NULL, ANSWER_RETRY_AFTER_S},
		    "The engine stopped unexpectedly. It is being restarted.");
		return;
	}
	if (m->error != PROTO_ERR_NONE) {
		struct api_error e = answer_error_of(a, m->error);
		snprintf(message, sizeof message, "%.*s", (int)m->message.n, m->message.at);
		answer_refuse(a, &e, message);
		return;
	}
	if (m->n_tokens >= a->n_ctx) {
		struct api_error e = answer_error_of(a, PROTO_ERR_CONTEXT_LENGTH);
		snprintf(message, sizeof message,
			 "This model's maximum context length is %u tokens. However, your messages "
			 "resulted in %u tokens.",
			 a->n_ctx, m->n_tokens);
		answer_refuse(a, &e, message);
		return;
	}
	answer_counted(a, run, m->n_tokens);
}

static int count(struct answer *a, struct answer_run *run, const struct proto_submit *s)
{
	const struct proto_count req = {.model = s->model,
					.prompt_kind = s->prompt_kind,
					.priority = s->priority,
					.tenant = s->tenant,
					.prompt = s->prompt};
	return engine_link_count(a->app->link, &req, on_counted, run, &run->count_id);
}

/* ---- the beginning ---- */

static void on_timer(struct gw_timer *timer);

static void drop_frame(struct answer_late *l, ptrdiff_t i)
{
	submit_frame_unref(l->frames[i]);
	l->frames[i] = NULL;
}

static int make_late(struct answer *a, uint32_t deadline_ms)
{
	struct answer_late *l = sl_zalloc(sizeof *l + (size_t)a->n_runs * sizeof *l->frames);
	if (l == NULL)
		return SL_ENOMEM;
	l->answer = a;
	l->deadline_ns = deadline_ms > 0 ? clock_now_ns() + deadline_ms * NS_PER_MS : 0;
	gw_timer_init(&l->timer, on_timer);
	a->slots.late = l;
	return 0;
}

int answer_slots_begin(struct answer *a, int i, struct submit_frame *frame)
{
	struct answer_slots *p = &a->slots;
	struct answer_run *run = &a->runs[i];
	int rc = 0;
	if (a->n_runs > 1 && p->late == NULL)
		rc = make_late(a, frame->s.deadline_ms);
	if (rc == 0 && p->late != NULL)
		p->late->frames[i] = submit_frame_ref(frame);
	run->placed = rc == 0 && i < p->n_first;
	if (rc != 0 || run->placed)
		return rc != 0 ? rc : 1;
	run->late = true;
	p->n_late++;
	return count(a, run, &frame->s);
}

/* ---- late ones ---- */

static bool submit_late(struct answer *a, struct answer_run *run)
{
	struct answer_late *l = a->slots.late;
	uint64_t now = clock_now_ns();
	struct submit_frame *frame = l->frames[run - a->runs];
	struct proto_submit s = frame->s;
	if (!a->automatic)
		s.model = (uint16_t)a->load.model;
	if (a->max_tokens < s.max_tokens)
		s.max_tokens = a->max_tokens;
	if (s.min_tokens > s.max_tokens)
		s.min_tokens = s.max_tokens;
	if (l->deadline_ns != 0)
		s.deadline_ms = l->deadline_ns > now + NS_PER_MS ? (uint32_t)((l->deadline_ns - now) / NS_PER_MS) : 1;
	run->late = false;
	run->placed = true;
	a->slots.n_late--;
	a->slots.n_free--;
	int rc = answer_submit_run(a, run, frame, &s);
	if (rc == 0)
		return true;
	answer_fail(a, &(struct api_error){503, "server_error", "engine_unavailable", NULL, ANSWER_RETRY_AFTER_S},
		    rc == SL_ECLOSED ? "The engine is not there at the moment. It is being restarted."
				     : "The server is busy.");
	return false;
}

/* False: it has failed. */
static bool submit_some(struct answer *a)
{
	struct answer_slots *p = &a->slots;
	p->n_free += take(a, p->n_late - p->n_free);
	for (int i = 0; i < a->n_runs && p->n_free > 0 && p->n_late > 0; i++)
		if (a->runs[i].late && !submit_late(a, &a->runs[i]))
			return false;
	give(a, p->n_free * p->each); /* more than it has prompts for */
	p->n_free = 0;
	return true;
}

bool answer_slots_ended(struct answer *a, struct answer_run *run)
{
	if (!run->placed)
		return true;
	run->placed = false;
	if (a->slots.late != NULL)
		drop_frame(a->slots.late, run - a->runs);
	a->slots.n_free++;
	return submit_some(a);
}

bool answer_slots_again(struct answer *a, struct answer_run *run)
{
	struct answer_slots *p = &a->slots;
	if (p->late == NULL || !run->placed || a->automatic || a->state != ANSWER_RUNNING ||
	    a->end != ANSWER_UNDECIDED || a->token_ns == 0 || gen_n_tokens(run->gen) > 0 ||
	    gen_done(run->gen)->error != PROTO_ERR_OVERLOADED)
		return false;
	run->gen = NULL;
	gen_unsubscribe(&run->sub);
	run->placed = false;
	run->late = true;
	p->n_late++;
	p->n_free++;
	gw_timer_start(&a->app->t->timers, &p->late->timer, AGAIN_MS * NS_PER_MS);
	return true;
}

static void on_timer(struct gw_timer *timer)
{
	struct answer *a = list_entry(timer, struct answer_late, timer)->answer;
	if (a->state == ANSWER_RUNNING && a->end == ANSWER_UNDECIDED)
		(void)submit_some(a);
}

/* ---- the end ---- */

void answer_slots_drop(struct answer *a)
{
	struct answer_slots *p = &a->slots;
	if (p->late == NULL)
		return;
	gw_timer_stop(&a->app->t->timers, &p->late->timer);
	for (int i = 0; a->runs != NULL && i < a->n_runs; i++) {
		struct answer_run *run = &a->runs[i];
		if (run->count_id != 0)
			engine_link_uncount(a->app->link, run->count_id);
		run->count_id = 0;
		run->late = false;
	}
	p->n_late = 0;
}

void answer_slots_free(struct answer *a)
{
	struct answer_late *l = a->slots.late;
	BUG_IF(a->slots.n_held != 0, "an answer is freed with %d places of its key", a->slots.n_held);
	answer_slots_drop(a);
	for (int i = 0; l != NULL && i < a->n_runs; i++)
		drop_frame(l, i);
	sl_free(l);
	a->slots.late = NULL;
}
