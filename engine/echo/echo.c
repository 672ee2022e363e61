/* SPDX-License-Identifier: Apache-2.0
 *
 * The echo engine: the real protocol with no model behind it, for tests and measurements of the gateway. It answers the
 * last user message's words once and stops. If that message begins with "repeat" or the request ignores end tokens, the
 * words repeat until max_tokens. If it begins with "clock", every token is `t` and the 20 digits of CLOCK_MONOTONIC in
 * nanoseconds at its creation, so that a client on the same machine can measure each token's latency. The setting
 * `stamp` makes every answer such a clock.
 *
 * With `step_ms` tokens come in common steps at equal intervals, as from a real engine: one burst per sequence with
 * credit, at most `step_active` sequences per step in rotation. A step's tokens all carry the time of its beginning.
 *
 * Its models give the same answers, so one accepts another's tokens (n_given) as far as they match; with "differ N" at
 * the message's start, at most N of them.
 *
 * A last message of the assistant that is to be continued and begins as the answer does is continued.
 *
 * Several choices are equal and are made one after the other.
 *
 * Words anywhere in the message control its two models separately (echo_text.h).
 *
 * With `slots` only so many answers of a model run at once; the others wait, by priority, and get reports of their
 * queue position and a prediction (run_slots.h).
 *
 * Everything runs on the I/O thread: a sequence has one timer for its next event (the first token, the pace, the
 * deadline); the steps share one. Events go out through the hub's mailbox as the real engine's do. A sequence is freed
 * in its timer's callback or when it is cancelled, never in between.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/beat.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/echo/echo_priv.h"

/* ---- the end of a sequence ---- */

static struct proto_str str_of(const char *s) { return (struct proto_str){.at = s, .n = strlen(s)}; }

static void leave_step(struct echo_seq *s)
{
	if (list_empty(&s->in_due))
		return;
	list_remove(&s->in_due);
	s->e->n_due--;
}

static void join_step(struct echo_seq *s)
{
	if (!list_empty(&s->in_due))
		return;
	list_push_back(&s->e->due, &s->in_due);
	s->e->n_due++;
}

static void arm(struct echo_seq *s, uint64_t at_ns)
{
	uint64_t now = clock_now_ns();
	uint64_t us = at_ns > now ? (at_ns - now + 999) / 1000 : 0;
	struct timeval tv = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
	event_add(s->timer, &tv);
}

/* It has credit and a slot. Its timer does the rest, because an ending sequence may start several others. */
static void seq_start(struct echo_seq *s, uint64_t now)
{
	s->started = true;
	s->started_ns = now;
	wait_limits_start(&s->e->wait_limits, &s->wait_entry);
	s->e->stats.waiting--;
	s->e->stats.running++;
	s->e->figures[s->model].waiting--;
	s->e->figures[s->model].running++;
	arm(s, now);
}

static void seq_end(struct echo_seq *s, uint8_t finish, uint8_t error, const char *message)
{
	struct echo *e = s->e;
	uint64_t now = clock_now_ns();
	struct eng_event ev = {.kind = ENG_DONE,
			       .id = s->node.key,
			       .u.done = {.finish = s->first_finish != 0 && error == 0 ? s->first_finish : finish,
					  .error = error,
					  .length_why = s->length_why,
					  .n_prompt = s->n_prompt,
					  .n_completion = s->n_before + s->n_made - s->n_used,
					  .queue_us = clock_us_between(s->arrived_ns, s->started ? s->started_ns : now),
					  .prefill_us = clock_us_between(s->started_ns, s->first_ns),
					  .decode_us = clock_us_between(s->first_ns, now),
					  .message = str_of(message)}};
	hub_post(e->hub, &ev);
	if (s->started) {
		e->stats.running--;
		e->figures[s->model].running--;
	} else {
		e->stats.waiting--;
		e->figures[s->model].waiting--;
	}
	if (finish == PROTO_FINISH_CANCELLED)
		e->stats.cancelled++;
	else if (finish == PROTO_FINISH_ERROR)
		e->stats.failed++;
	else
		e->stats.finished++;
	leave_step(s);
	wait_limits_leave(&e->wait_limits, &s->wait_entry);
	struct run_slot *next = run_slot_leave(&e->slots[s->model], &s->slot, now);
	if (next != NULL)
		seq_start(list_entry(next, struct echo_seq, slot), now);
	idmap_remove(&e->seqs, &s->node);
	event_free(s->timer);
	sl_free(s->words);
	sl_free(s);
}

/* ---- making tokens ---- */

/* How many of at most `most` tokens may be made now; *due_ns: when there may be more.
 *
 * Two clocks: the engine's own rate makes groups of tokens_per_burst at equal distances; the
 * request's pace is a bucket of `burst` tokens filled at rate_tps, kept as the time at which the
 * next token would be due if none were early (GCRA). */
static uint32_t allowed_now(struct echo_seq *s, uint64_t now, uint32_t most, uint64_t *due_ns)
{
	const struct eng_echo_config *cfg = &s->e->cfg;
	uint32_t group = cfg->tokens_per_burst > 0 ? (uint32_t)cfg->tokens_per_burst : UINT32_MAX;
	*due_ns = now;
	most = most < group ? most : group;
	if (cfg->rate_tps > 0 && now < s->made_ns) {
		*due_ns = s->made_ns;
		return 0;
	}
	uint32_t n = most;
	if (s->rate_tps > 0) {
		uint64_t each = (uint64_t)(1e9 / s->rate_tps) + 1;
		uint64_t early = each * (s->burst > 0 ? s->burst - 1 : 0);
		if (s->pace_ns < now)
			s->pace_ns = now;
		for (n = 0; n < most && s->pace_ns <= now + early; n++)
			s->pace_ns += each;
		*due_ns = s->pace_ns - early;
	}
	if (cfg->rate_tps > 0 && n > 0) {
		uint64_t distance = (uint64_t)(1e9 * n / cfg->rate_tps);
		/* Keeps the rhythm; does not catch up after a pause. */
		s->made_ns = now - s->made_ns > distance ? now + distance : s->made_ns + distance;
		if (s->made_ns > *due_ns)
			*due_ns = s->made_ns;
	}
	return n;
}

/* Makes the tokens allowed now. Returns when to check again (UINT64_MAX: at the next request). */
static uint64_t seq_make(struct echo_seq *s, uint64_t now)
{
	uint64_t first = s->started_ns + ((unsigned)s->e->cfg.ttft_ms + s->drives.slow_ms) * NS_PER_MS, due;
	if (!s->started || s->credit == 0 || echo_hangs(s))
		return UINT64_MAX;
	if (now < first)
		return first;
	if (s->prefill_only)
		return now;
	if (s->e->step != NULL && !s->e->stepping) {
		join_step(s);
		return UINT64_MAX;
	}
	if (s->first_ns == 0)
		s->first_ns = s->made_ns = now;
	echo_tell_verified(s);
	uint32_t most = s->max_tokens - s->n_made;
	most = most < s->credit ? most : s->credit;
	most = most < ECHO_FRAME_TOKENS ? most : ECHO_FRAME_TOKENS;
	echo_send_tokens(s, allowed_now(s, now, most, &due));
	if (s->credit == 0 || echo_hangs(s))
		return UINT64_MAX;
	if (s->e->step != NULL && due <= now) {
		join_step(s);
		return UINT64_MAX;
	}
	return due;
}

/* A choice is over: the next one begins, or all have ended. */
static void choice_end(struct echo_seq *s, uint8_t finish)
{
	struct eng_event ev = {.kind = ENG_CHOICE,
			       .id = s->node.key,
			       .u.choice = {.choice = s->choice,
					    .finish = finish,
					    .length_why = finish == PROTO_FINISH_LENGTH ? s->length_why : 0,
					    .n_completion = s->n_made - s->n_used}};
	if (s->n_choices > 1)
		hub_post(s->e->hub, &ev);
	if (s->choice == 0)
		s->first_finish = finish;
	if (s->choice + 1 >= s->n_choices) {
		seq_end(s, finish, 0, "");
		return;
	}
	s->choice++;
	s->n_before += s->n_made;
	s->n_made = 0;
	s->at = 0;
	arm(s, clock_now_ns());
}

/* One function decides what a sequence does next; the timer, credit and creation all lead here. It
 * may free s. */
static void seq_advance(struct echo_seq *s)
{
	uint64_t now = clock_now_ns();
	uint64_t next = seq_make(s, now);

	if (echo_fails(s)) {
		seq_end(s, PROTO_FINISH_ERROR, PROTO_ERR_INTERNAL, "The echo engine fails as configured.");
		return;
	}
	if (s->prefill_only && next == now) {
		seq_end(s, PROTO_FINISH_LENGTH, 0, "");
		return;
	}
	if (!echo_hangs(s) && s->n_made >= s->max_tokens) {
		choice_end(s, PROTO_FINISH_LENGTH);
		return;
	}
	if (!echo_hangs(s) && s->first_ns != 0 && echo_ended(s)) {
		s->n_made++; /* the end token */
		choice_end(s, PROTO_FINISH_STOP);
		return;
	}
	if (now >= s->deadline_ns) {
		s->length_why = PROTO_LENGTH_DEADLINE;
		seq_end(s, PROTO_FINISH_LENGTH, 0, "");
		return;
	}
	if (s->deadline_ns < next)
		next = s->deadline_ns;
	if (next != UINT64_MAX)
		arm(s, next);
	else
		event_del(s->timer);
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	seq_advance(ctx);
}

/* ---- common steps ---- */

static void arm_step(struct echo *e)
{
	uint64_t now = clock_now_ns(), each = (unsigned)e->cfg.step_ms * NS_PER_MS;
	/* Keeps the rhythm; missed steps are skipped. */
	e->step_ns += each;
	if (e->step_ns <= now)
		e->step_ns += (now - e->step_ns) / each * each + each;
	uint64_t us = (e->step_ns - now) / 1000;
	struct timeval tv = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
	event_add(e->step, &tv);
}

static void on_step(evutil_socket_t fd, short what, void *ctx)
{
	struct echo *e = ctx;
	(void)fd;
	(void)what;
	size_t n = e->n_due, most = (size_t)e->cfg.step_active;
	if (most > 0 && n > most)
		n = most;
	echo_write_stamp(e->stamp, clock_now_ns());
	e->stepping = true;
	for (size_t i = 0; i < n; i++) {
		struct echo_seq *s = list_entry(e->due.next, struct echo_seq, in_due);
		leave_step(s);
		seq_advance(s);
	}
	e->stepping = false;
	arm_step(e);
}

/* ---- the backend ---- */

static const char *const model_names[ECHO_MODELS] = {"demo-small", "demo-large"};

static int echo_n_models(void *be)
{
	(void)be;
	return ECHO_MODELS;
}

static void echo_model_info(void *be, int index, struct proto_model *out)
{
	const struct echo *e = be;
	*out = (struct proto_model){.index = (uint16_t)index,
				    .state = PROTO_MODEL_READY,
				    .role = (uint8_t)(index + 1),
				    .does = PROTO_DOES_GENERATE,
				    .n_ctx = (uint32_t)e->cfg.n_ctx,
				    .n_vocab = ECHO_FIRST_ID,
				    .tokenizer = 1,
				    .name = str_of(model_names[index]),
				    .reason = str_of("")};
}

static void echo_stats(void *be, struct proto_stats *out)
{
	const struct echo *e = be;
	*out = e->stats;
}

static bool echo_load(void *be, int index, struct proto_load *out)
{
	const struct echo *e = be;
	run_slots_load(&e->slots[index], (unsigned)e->cfg.ttft_ms * NS_PER_MS, clock_now_ns(), out);
	out->idle = e->stats.running + e->stats.waiting == 0;
	out->figures = e->figures[index];
	out->model = (uint16_t)index;
	return true;
}

/* ---- waiting for a slot ---- */

/* How long it will have its slot. */
static double need_ns(const struct echo_seq *s, uint32_t max_tokens)
{
	double rate = s->e->cfg.rate_tps, tokens = max_tokens;
	uint32_t words = echo_count_words(s->words, s->n_words_bytes);
	if (!s->round && !s->clock && words < max_tokens)
		tokens = words;
	if (s->rate_tps > 0 && (rate == 0 || s->rate_tps < rate))
		rate = s->rate_tps;
	tokens *= s->n_choices;
	return s->e->cfg.ttft_ms * 1e6 + (rate > 0 ? tokens / rate * 1e9 : 0);
}

static void tell_queued(const struct echo_seq *s, uint32_t ahead, uint64_t now)
{
	const struct echo *e = s->e;
	uint64_t ns = (unsigned)e->cfg.ttft_ms * NS_PER_MS + run_slots_wait_ns(&e->slots[s->model], ahead, now);
	struct eng_event ev = {
	    .kind = ENG_QUEUED,
	    .id = s->node.key,
	    .u.queued = {.n_prompt = s->n_prompt,
			 .position = e->cfg.slots > 0 ? ahead : 0,
			 .predicted_ttft_us = ns / 1000 < UINT32_MAX ? (uint32_t)(ns / 1000) : UINT32_MAX,
			 .guess = e->stats.running + e->stats.waiting <= 1}};
	hub_post(e->hub, &ev);
}

static void arm_tell(struct echo *e)
{
	const struct timeval tv = {.tv_usec = ECHO_TELL_MS * 1000};
	if (e->tell != NULL && !event_pending(e->tell, EV_TIMEOUT, NULL))
		event_add(e->tell, &tv);
}

static void on_tell(evutil_socket_t fd, short what, void *ctx)
{
	struct echo *e = ctx;
	uint64_t now = clock_now_ns();
	bool any = false;
	(void)fd;
	(void)what;
	for (int m = 0; m < ECHO_MODELS; m++) {
		uint32_t ahead = 0;
		for (int i = 0; i < PROTO_PRIORITIES; i++)
			list_each(it, &e->slots[m].queues[i]) {
				any = true;
				if (ahead < ECHO_TELL_MOST)
					tell_queued(
					    list_entry(list_entry(it, struct run_slot, node), struct echo_seq, slot),
					    ahead++, now);
			}
	}
	if (any)
		arm_tell(e);
}

/* The request's error with its message, or PROTO_ERR_NONE. */
static uint8_t check(const struct echo *e, uint16_t model, const struct echo_prompt *view, int rc, struct sl_err *err)
{
	if (model >= ECHO_MODELS) {
		sl_errf(err, SL_ENOTFOUND, "There is no model %u.", (unsigned)model);
		return PROTO_ERR_NO_MODEL;
	}
	if (rc != 0 && view->refused != 0)
		return view->refused;
	if (rc != 0)
		return rc == SL_EINVAL ? PROTO_ERR_BAD_REQUEST : PROTO_ERR_OVERLOADED;
	if (view->n_tokens >= (uint32_t)e->cfg.n_ctx) {
		sl_errf(err, SL_ELIMIT,
			"This model's maximum context length is %d tokens. However, your messages "
			"resulted in %u tokens.",
			e->cfg.n_ctx, view->n_tokens);
		return PROTO_ERR_CONTEXT_LENGTH;
	}
	return PROTO_ERR_NONE;
}

static bool begins_with(const struct echo_seq *s, const char *word)
{
	size_t n = strlen(word);
	return s->n_words_bytes >= n && memcmp(s->words, word, n) == 0;
}

/* Ends the sequences that s displaces. Returns what wait_limits_enter does. */
static int enter_wait_limits(struct echo *e, struct echo_seq *s, const struct proto_submit *req)
{
	const struct wait_request ask = {.tenant = req->tenant,
					 .priority = req->priority,
					 .n = req->best_of > 0 ? req->best_of : 1,
					 .prompt_bytes = req->prompt.n};
	struct list displaced;
	if (e->cfg.waiting == 0)
		return 0;
	list_init(&displaced);
	int rc = wait_limits_enter(&e->wait_limits, &s->wait_entry, &ask, &displaced);
	list_each_safe(it, tmp, &displaced) {
		struct echo_seq *victim = list_entry(it, struct echo_seq, wait_entry.displaced);
		list_remove(it);
		e->stats.displaced++;
		seq_end(victim, PROTO_FINISH_ERROR, PROTO_ERR_OVERLOADED,
			"The server is busy: this request had to make room for others.");
	}
	return rc;
}

static int echo_submit(void *be, uint64_t id, const struct proto_submit *req)
{
	struct echo *e = be;
	if (e->seqs.n >= ECHO_MAX_SEQUENCES)
		return SL_ELIMIT;
	struct echo_seq *s = sl_zalloc(sizeof *s);
	if (s == NULL)
		return SL_ENOMEM;
	s->timer = event_new(e->base, -1, 0, on_timer, s);
	if (s->timer == NULL) {
		sl_free(s);
		return SL_ENOMEM;
	}
	int rc = enter_wait_limits(e, s, req);
	if (rc != 0) {
		event_free(s->timer);
		sl_free(s);
		return rc;
	}
	struct echo_prompt view;
	struct sl_err err = {0};
	rc = echo_read_prompt(req->prompt_kind, req->prompt, &view, &err);
	s->e = e;
	list_init(&s->in_due);
	s->node.key = id;
	s->words = view.last;
	s->n_words_bytes = view.last_bytes;
	s->n_prompt = view.n_tokens;
	s->arrived_ns = clock_now_ns();
	s->clock = e->cfg.stamp || begins_with(s, "clock");
	s->round = s->n_words_bytes > 0 && (begins_with(s, "repeat") || (req->flags & PROTO_SUBMIT_IGNORE_EOS) != 0);
	s->rate_tps = (double)req->rate_tps;
	s->burst = req->burst;
	s->deadline_ns = UINT64_MAX;
	if (req->deadline_ms > 0)
		s->deadline_ns = s->arrived_ns + req->deadline_ms * NS_PER_MS;
	s->model = req->model < ECHO_MODELS ? req->model : 0;
	s->n_choices = req->n > 0 ? req->n : 1;
	uint32_t ahead = run_slots_ahead(&e->slots[s->model], req->priority);
	run_slot_enter(&e->slots[s->model], &s->slot, req->priority, need_ns(s, req->max_tokens));
	idmap_insert(&e->seqs, &s->node);
	e->stats.submitted++;
	e->stats.waiting++;
	e->figures[s->model].waiting++;

	uint8_t error = check(e, req->model, &view, rc, &err);
	if (error != PROTO_ERR_NONE) {
		seq_end(s, PROTO_FINISH_ERROR, error, err.text);
		return 0;
	}
	uint32_t room = (uint32_t)e->cfg.n_ctx - s->n_prompt;
	s->prefill_only = (req->flags & PROTO_SUBMIT_PREFILL_ONLY) != 0;
	s->max_tokens = req->max_tokens;
	s->drives = echo_drives_of(s->words, s->model == 1);
	echo_take_given(s, req, view.n_begun);
	s->wants_logprobs = (req->flags & PROTO_SUBMIT_WANT_LOGPROBS) != 0;
	s->wants_top = s->wants_logprobs && req->n_top_logprobs > 0;
	if (s->max_tokens > room) {
		s->max_tokens = room;
		s->length_why = PROTO_LENGTH_CONTEXT;
	}
	e->stats.prefill_tokens += s->n_prompt;
	e->figures[s->model].prefill_tokens += s->n_prompt;
	tell_queued(s, ahead, s->arrived_ns);
	seq_advance(s);
	return 0;
}

static struct echo_seq *find(const struct echo *e, uint64_t id)
{
	struct idmap_node *node = idmap_find(&e->seqs, id);
	return node != NULL ? idmap_entry(node, struct echo_seq, node) : NULL;
}

/* Of words, which have no ids of their own: one after the other. */
static int echo_list_ids(struct sl_buf *out, uint32_t n)
{
	uint8_t *at;
	int rc = buf_reserve(out, 4 * (size_t)n, &at);
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		for (int k = 0; k < 4; k++)
			at[4 * i + (uint32_t)k] = (uint8_t)((ECHO_FIRST_ID + i) >> 8 * k);
	if (rc == 0)
		buf_commit(out, 4 * (size_t)n);
	return rc;
}

static int echo_count(void *be, uint64_t id, const struct proto_count *req)
{
	struct echo *e = be;
	struct echo_prompt view;
	struct sl_err err = {0};
	int rc = echo_read_prompt(req->prompt_kind, req->prompt, &view, &err);
	uint8_t error = check(e, req->model, &view, rc, &err);
	if (error == PROTO_ERR_CONTEXT_LENGTH) { /* a count may be anything */
		error = PROTO_ERR_NONE;
		err.text[0] = '\0';
	}
	struct eng_event ev = {.kind = ENG_COUNTED,
			       .id = id,
			       .u.counted = {.error = error, .n_tokens = view.n_tokens, .message = str_of(err.text)}};
	struct sl_buf ids;
	buf_init(&ids, 4 * PROTO_MAX_LISTED);
	if (error == PROTO_ERR_NONE && (req->wants & PROTO_COUNT_IDS) != 0 && echo_list_ids(&ids, view.n_tokens) == 0)
		ev.u.counted.ids = (struct proto_str){ids.len > 0 ? (const char *)buf_data(&ids) : "", ids.len};
	if (error == PROTO_ERR_NONE && (req->wants & PROTO_COUNT_TEXT) != 0)
		ev.u.counted.text = (struct proto_str){view.last, view.last_bytes};
	hub_post(e->hub, &ev);
	buf_dispose(&ids);
	sl_free(view.last);
	return 0;
}

static void echo_credit(void *be, uint64_t id, uint32_t n_tokens)
{
	struct echo *e = be;
	struct echo_seq *s = find(e, id);
	if (s == NULL)
		return;
	if (__builtin_add_overflow(s->credit, n_tokens, &s->credit))
		s->credit = UINT32_MAX;
	if (s->slot.state == RUN_SLOT_NO_CREDIT && s->credit > 0) {
		uint64_t now = clock_now_ns();
		if (!run_slot_take(&e->slots[s->model], &s->slot, now)) {
			arm_tell(e);
			return; /* its timer waits for the deadline */
		}
		seq_start(s, now);
	}
	seq_advance(s);
}

static void echo_cancel(void *be, uint64_t id)
{
	struct echo_seq *s = find(be, id);
	if (s != NULL)
		seq_end(s, PROTO_FINISH_CANCELLED, 0, "");
}

static const struct eng_backend echo_backend = {
    .submit = echo_submit,
    .count = echo_count,
    .credit = echo_credit,
    .cancel = echo_cancel,
    .stats = echo_stats,
    .load = echo_load,
    .n_models = echo_n_models,
    .model_info = echo_model_info,
};

/* ---- the process ---- */

/* The timers of steps and of waiting sequences, where there are such. */
static bool make_timers(struct echo *e)
{
	if (e->cfg.step_ms > 0)
		e->step = event_new(e->base, -1, 0, on_step, e);
	if (e->cfg.slots > 0)
		e->tell = event_new(e->base, -1, 0, on_tell, e);
	return (e->cfg.step_ms <= 0 || e->step != NULL) && (e->cfg.slots <= 0 || e->tell != NULL);
}

int echo_create(const struct eng_echo_config *cfg, struct server *server, struct echo **out)
{
	struct echo *e = sl_zalloc(sizeof *e);
	if (e == NULL || idmap_init(&e->seqs) != 0) {
		sl_free(e);
		return SL_ENOMEM;
	}
	e->cfg = *cfg;
	list_init(&e->due);
	wait_limits_init(&e->wait_limits, (uint64_t)cfg->waiting,
			 cfg->slots > 0 ? (uint64_t)cfg->slots : ECHO_MAX_SEQUENCES);
	for (int i = 0; i < ECHO_MODELS; i++)
		run_slots_init(&e->slots[i], (uint32_t)cfg->slots);
	e->base = server_base(server);
	if (!make_timers(e)) {
		echo_destroy(e);
		return SL_ENOMEM;
	}
	if (e->step != NULL) {
		e->cfg.rate_tps = 0; /* the steps are the rate */
		e->step_ns = clock_now_ns();
		arm_step(e);
	}
	e->hub = server_hub(server);
	hub_attach(e->hub, &echo_backend, e);
	for (int i = 0; i < ECHO_MODELS; i++) {
		struct eng_event ev = {.kind = ENG_MODEL};
		echo_model_info(e, i, &ev.u.model);
		hub_post(e->hub, &ev);
	}
	*out = e;
	return 0;
}

void echo_destroy(struct echo *e)
{
	struct idmap_node *node;
	while ((node = idmap_any(&e->seqs)) != NULL)
		seq_end(idmap_entry(node, struct echo_seq, node), PROTO_FINISH_CANCELLED, 0, "");
	BUG_IF(e->stats.running != 0 || e->stats.waiting != 0, "echo: counters are not back at 0");
	wait_limits_dispose(&e->wait_limits);
	idmap_dispose(&e->seqs);
	if (e->step != NULL)
		event_free(e->step);
	if (e->tell != NULL)
		event_free(e->tell);
	sl_free(e);
}

static int create(const void *cfg, struct server *s, void **be, struct sl_err *err)
{
	(void)err;
	struct echo *e = NULL;
	int rc = echo_create(cfg, s, &e);
	*be = e;
	return rc;
}

static void destroy(void *be) { echo_destroy(be); }

int engine_serve_echo(const struct eng_echo_config *cfg, const struct eng_server_config *srv)
{
	static const struct server_backend backend = {"echo engine", create, destroy};
	return server_serve(srv, &backend, cfg);
}
