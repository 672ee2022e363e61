/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of a sequence: submit → QUEUED → credit → a slot (of `connections`) → its stream → TOKENS … → DONE. It is freed in
 * remote_seq_end only, which the timer, credit, bytes, the end of the response, a cancellation or the breaker lead to.
 *
 * Prediction is learned from the upstream's own answers: how long its first token takes and how long an answer keeps a
 * slot.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/beat.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/remote/remote_count.h"
#include "engine/remote/remote_priv.h"

enum { KEY_BYTES = REMOTE_KEY_MAX, CA_BYTES = 4 << 20 };
#define LEARN_RATE 0.2

static struct proto_str str_of(const char *s) { return (struct proto_str){.at = s, .n = strlen(s)}; }

static double mean(double old, double v) { return old > 0 ? old + LEARN_RATE * (v - old) : v; }

/* ---- the end of a sequence ---- */

static void seq_start(struct remote_seq *s, uint64_t now);

static double ratio_of(const struct remote *r)
{
	return r->bytes_per_token > 0 ? r->bytes_per_token : REMOTE_BYTES_PER_TOKEN;
}

static void learn(struct remote *r, const struct remote_seq *s, uint64_t now)
{
	const struct remote_usage *u = &s->answer.usage;
	if (s->first_ns == 0)
		return;
	r->ttft_ns = mean(r->ttft_ns, (double)(s->first_ns - s->started_ns));
	r->each_ns = mean(r->each_ns, (double)(now - s->started_ns));
	if (u->known && !u->is_false && s->length.bytes > 64 && u->n_prompt > s->length.fixed) {
		double ratio = (double)s->length.bytes / (u->n_prompt - s->length.fixed);
		r->bytes_per_token = mean(r->bytes_per_token, ratio < 1 ? 1 : ratio > 16 ? 16 : ratio);
	}
}

/* What the upstream computed of its prompt, as it says at the end. */
static void count_prompt(struct remote *r, const struct remote_usage *u, struct proto_figures *f)
{
	uint32_t n = u->n_prompt - u->n_cached;
	if (!u->known || u->is_false)
		return;
	r->stats.prefill_tokens += n;
	r->stats.prefix_queries += u->n_prompt;
	r->stats.prefix_hits += u->n_cached;
	f->prefill_tokens += n;
	f->prefix_queries += u->n_prompt;
	f->prefix_hits += u->n_cached;
}

static void count_end(struct remote *r, const struct remote_seq *s, uint8_t finish)
{
	struct proto_figures *f = &r->models[s->asked.model].figures;
	count_prompt(r, &s->answer.usage, f);
	if (s->started) {
		r->stats.running--;
		f->running--;
	} else {
		r->stats.waiting--;
		f->waiting--;
	}
	if (finish == PROTO_FINISH_CANCELLED)
		r->stats.cancelled++;
	else if (finish == PROTO_FINISH_ERROR)
		r->stats.failed++;
	else
		r->stats.finished++;
	if (s->answer.usage.known && s->answer.usage.is_false)
		r->stats.upstream.false_usages++;
}

static void post_done(const struct remote_seq *s, uint8_t finish, const struct remote_failure *failure, uint64_t now)
{
	const struct remote_usage *u = &s->answer.usage;
	const struct remote_choice *first = &s->answer.choices[0];
	bool counted = u->known && !u->is_false;
	bool late = finish == PROTO_FINISH_LENGTH && first->finish == 0;
	struct eng_event ev = {.kind = ENG_DONE,
			       .id = s->node.key,
			       .u.done = {.finish = finish,
					  .error = failure != NULL ? failure->error : PROTO_ERR_NONE,
					  .length_why = late ? PROTO_LENGTH_DEADLINE : 0,
					  .stop = finish == PROTO_FINISH_STOP ? first->stop : 0,
					  .stop_at = finish == PROTO_FINISH_STOP ? first->stop_at : 0,
					  .n_prompt = counted ? u->n_prompt : s->n_prompt,
					  .n_cached = counted ? u->n_cached : 0,
					  .n_completion = remote_answer_tokens(&s->answer),
					  .queue_us = clock_us_between(s->arrived_ns, s->started ? s->started_ns : now),
					  .prefill_us = clock_us_between(s->started_ns, s->first_ns),
					  .decode_us = clock_us_between(s->first_ns, now),
					  .retry_after_s = failure != NULL ? failure->retry_after_s : 0,
					  .message = str_of(failure != NULL ? failure->message : "")}};
	hub_post_here(s->r->hub, &ev);
}

static void seq_free(struct remote_seq *s)
{
	if (s->stream != NULL)
		remote_stream_leave(s);
	idmap_remove(&s->r->seqs, &s->node);
	event_free(s->timer);
	sse_read_dispose(&s->sse);
	remote_answer_dispose(&s->answer);
	sl_free(s->stops);
	sl_free(s);
}

void remote_seq_end(struct remote_seq *s, uint8_t finish, const struct remote_failure *failure)
{
	struct remote *r = s->r;
	uint64_t now = clock_now_ns();
	post_done(s, finish, failure, now);
	count_end(r, s, finish);
	if (finish != PROTO_FINISH_ERROR)
		learn(r, s, now);
	if (failure == NULL && s->first_ns != 0)
		remote_worked(r, false);
	wait_limits_leave(&r->wait_limits, &s->wait_entry);
	list_remove(&s->in_waiting);
	struct run_slot *next = run_slot_leave(&r->slots, &s->slot, now);
	seq_free(s);
	if (next != NULL)
		seq_start(list_entry(next, struct remote_seq, slot), now);
}

static void end_with(struct remote_seq *s, uint8_t error, const char *message)
{
	struct remote_failure f = {.error = error};
	snprintf(f.message, sizeof f.message, "%s", message);
	remote_seq_end(s, PROTO_FINISH_ERROR, &f);
}

/* It has credit and a slot. Its timer does the rest, because an ending sequence may start several others. */
static void seq_start(struct remote_seq *s, uint64_t now)
{
	static const struct timeval at_once;
	struct remote *r = s->r;
	struct proto_figures *f = &r->models[s->asked.model].figures;
	s->started = true;
	s->started_ns = s->byte_ns = now;
	list_remove(&s->in_waiting);
	wait_limits_start(&r->wait_limits, &s->wait_entry);
	r->stats.waiting--;
	r->stats.running++;
	f->waiting--;
	f->running++;
	s->armed_ns = now;
	event_add(s->timer, &at_once);
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
	struct remote_seq *s = ctx;
	s->armed_ns = UINT64_MAX;
	bool begins = s->started && s->stream->call.http == NULL && s->stream->call.kind == REMOTE_STREAM &&
		      s->stream->call.path == NULL;
	(void)fd;
	(void)what;
	if (begins && remote_stream_start(s) != 0)
		end_with(s, PROTO_ERR_OVERLOADED, "The engine is out of memory.");
	else
		remote_seq_advance(s);
}

/* ---- the upstream's state ---- */

void remote_model_info(const struct remote *r, int index, struct proto_model *out)
{
	const struct remote_model *m = &r->models[index];
	enum breaker_state state = r->breaker.state;
	bool failed = state == BREAKER_OPEN || state == BREAKER_HALF_OPEN;
	*out = (struct proto_model){.index = (uint16_t)index,
				    .state = failed                     ? PROTO_MODEL_FAILED
					     : state == BREAKER_UNKNOWN ? PROTO_MODEL_LOADING
									: PROTO_MODEL_READY,
				    .role = m->role,
				    .does = m->does,
				    .n_ctx = m->n_ctx,
				    .n_embd = m->n_embd,
				    .name = str_of(m->name),
				    .reason = str_of(failed ? r->reason : "")};
	remote_model_parts(out);
}

void remote_announce(struct remote *r)
{
	for (int i = 0; i < r->n_models; i++) {
		struct eng_event ev = {.kind = ENG_MODEL};
		remote_model_info(r, i, &ev.u.model);
		hub_post_here(r->hub, &ev);
	}
}

/* Nothing is sent to it for now: who waits for it need not wait. */
static void open_up(struct remote *r)
{
	log_error("upstream %s is not used for now: %s", r->cfg.url, r->reason);
	remote_announce(r);
	while (!list_empty(&r->waiting))
		end_with(list_entry(r->waiting.next, struct remote_seq, in_waiting), PROTO_ERR_NOT_READY, r->reason);
}

void remote_failed(struct remote *r, bool probe, enum proto_fault fault, const char *why)
{
	uint64_t now = clock_now_ns();
	r->stats.upstream.faults[fault]++;
	remote_fault_log(&r->notes, r->cfg.url, fault, why, now);
	if (!remote_fault_breaks(fault))
		return;
	struct remote_call c = {.fault = fault};
	struct remote_failure f;
	remote_failure_of(&c, &f);
	snprintf(r->reason, sizeof r->reason, "%s", f.message);
	enum breaker_state was = r->breaker.state;
	bool changed = breaker_failed(&r->breaker, probe, now);
	r->stats.upstream.openings = r->breaker.n_openings;
	r->stats.upstream.open = r->breaker.state == BREAKER_OPEN || r->breaker.state == BREAKER_HALF_OPEN;
	if (changed || (was == BREAKER_UNKNOWN && r->breaker.state == BREAKER_OPEN))
		open_up(r);
	else if (!probe)
		remote_health_hurry(r);
}

void remote_worked(struct remote *r, bool probe)
{
	if (!breaker_ok(&r->breaker, probe))
		return;
	r->stats.upstream.open = 0;
	log_info("upstream %s is there (%d models)", r->cfg.url, r->n_models);
	remote_announce(r);
}

/* ---- the backend ---- */

static int be_n_models(void *be) { return ((const struct remote *)be)->n_models; }

static void be_model_info(void *be, int index, struct proto_model *out) { remote_model_info(be, index, out); }

static void be_stats(void *be, struct proto_stats *out)
{
	const struct remote *r = be;
	*out = r->stats;
	remote_load_stats(r, &out->upstream);
}

static bool be_load(void *be, int index, struct proto_load *out)
{
	const struct remote *r = be;
	if (!breaker_closed(&r->breaker))
		return false;
	run_slots_load(&r->slots, (uint64_t)r->ttft_ns, clock_now_ns(), out);
	out->idle = r->stats.running + r->stats.waiting == 0;
	remote_load_add(r, out);
	out->figures = r->models[index].figures;
	out->model = (uint16_t)index;
	return true;
}

static void tell_queued(const struct remote_seq *s, uint32_t ahead, uint64_t now)
{
	const struct remote *r = s->r;
	uint64_t us = ((uint64_t)r->ttft_ns + run_slots_wait_ns(&r->slots, ahead, now)) / 1000;
	uint64_t there = remote_load_wait_us(r);
	bool waits = r->slots.n_running >= r->slots.most, alone = r->stats.running + r->stats.waiting <= 1;
	us = us > there ? us : there;
	struct eng_event ev = {.kind = ENG_QUEUED,
			       .id = s->node.key,
			       .u.queued = {.n_prompt = s->n_prompt,
					    .position = waits ? ahead : 0,
					    .predicted_ttft_us = us < UINT32_MAX ? (uint32_t)us : UINT32_MAX,
					    .guess = r->ttft_ns <= 0 || (alone && remote_load_is_free(r))}};
	hub_post_here(r->hub, &ev);
}

/* Ends the sequences that s displaces. Returns what wait_limits_enter does. */
static int enter_wait_limits(struct remote *r, struct wait_entry *entry, const struct proto_submit *req)
{
	const struct wait_request ask = {
	    .tenant = req->tenant, .priority = req->priority, .n = req->best_of, .prompt_bytes = req->prompt.n};
	struct list displaced;
	list_init(&displaced);
	int rc = wait_limits_enter(&r->wait_limits, entry, &ask, &displaced);
	list_each_safe(it, tmp, &displaced) {
		struct remote_seq *victim = list_entry(it, struct remote_seq, wait_entry.displaced);
		list_remove(it);
		r->stats.displaced++;
		end_with(victim, PROTO_ERR_OVERLOADED, "The server is busy: this request had to make room for others.");
	}
	return rc;
}

/* The scalars and stops of a request; the rest is in the body. */
static int keep_asked(struct remote_seq *s, const struct proto_submit *req)
{
	size_t n = 1;
	for (uint8_t i = 0; i < req->n_stops; i++)
		n += req->stops[i].n;
	s->asked = *req;
	s->asked.prompt = s->asked.constraint = s->asked.bad_word_records = (struct proto_str){"", 0};
	s->asked.logit_bias_records = s->asked.given_records = NULL;
	s->asked.n_logit_bias = s->asked.n_given = s->asked.n_bad_words = 0;
	char *to = s->stops = sl_alloc(n);
	for (uint8_t i = 0; s->stops != NULL && i < req->n_stops; i++) {
		memcpy(to, req->stops[i].at, req->stops[i].n);
		s->asked.stops[i].at = to;
		to += req->stops[i].n;
	}
	return s->stops != NULL ? 0 : SL_ENOMEM;
}

static void seq_discard(struct remote_seq *s)
{
	if (s->stream != NULL)
		remote_stream_free(s->stream);
	if (s->timer != NULL)
		event_free(s->timer);
	sl_free(s->stops);
	sl_free(s);
}

static struct remote_seq *seq_new(struct remote *r, uint64_t id, const struct proto_submit *req)
{
	struct remote_seq *s = sl_zalloc(sizeof *s);
	struct remote_stream *st = sl_zalloc(sizeof *st);
	if (s == NULL || st == NULL) {
		sl_free(s);
		sl_free(st);
		return NULL;
	}
	s->r = st->r = r;
	s->stream = st;
	st->seq = s;
	list_init(&st->node);
	list_init(&s->in_waiting);
	buf_init(&st->body, REMOTE_BODY_BYTES);
	s->node.key = id;
	s->at = hub_seq(r->hub, id);
	s->armed_ns = UINT64_MAX;
	s->timer = event_new(r->base, -1, 0, on_timer, s);
	if (s->timer == NULL || keep_asked(s, req) != 0) {
		seq_discard(s);
		return NULL;
	}
	return s;
}

static void read_lengths(struct remote_seq *s, const struct proto_submit *req)
{
	const struct remote *r = s->r;
	s->length = remote_length_of(req->prompt_kind, req->prompt);
	s->n_prompt = remote_length_guess(s->length, ratio_of(r));
	s->arrived_ns = clock_now_ns();
	s->deadline_ns = req->deadline_ms > 0 ? s->arrived_ns + req->deadline_ms * NS_PER_MS : UINT64_MAX;
	remote_answer_init(&s->answer, &s->asked, remote_length_most(s->length));
}

/* Why it can't be served, or PROTO_ERR_NONE. */
static uint8_t check(struct remote_seq *s, const struct proto_submit *req, struct remote_failure *f)
{
	struct remote *r = s->r;
	struct remote_refusal why = {0};
	bool embeds = (req->flags & PROTO_SUBMIT_EMBED) != 0;
	*f = (struct remote_failure){0};
	if (req->model >= r->n_models || embeds != ((r->models[req->model].does & PROTO_DOES_GENERATE) == 0)) {
		snprintf(f->message, sizeof f->message, "There is no model %u for this.", (unsigned)req->model);
		return f->error = PROTO_ERR_NO_MODEL;
	}
	if (!breaker_closed(&r->breaker)) {
		snprintf(f->message, sizeof f->message, "%s",
			 r->reason[0] != '\0' ? r->reason : "The model's server is not there yet.");
		return f->error = PROTO_ERR_NOT_READY;
	}
	int rc = remote_body_put(req, r->models[req->model].upstream, (enum eng_remote_dialect)r->cfg.dialect,
				 &s->stream->body, &s->path, &why);
	if (rc == 0)
		return PROTO_ERR_NONE;
	snprintf(f->message, sizeof f->message, "%s", rc == SL_EINVAL ? why.message : "The request is too large.");
	return f->error = rc == SL_EINVAL ? why.error : PROTO_ERR_OVERLOADED;
}

static int be_submit(void *be, uint64_t id, const struct proto_submit *req)
{
	struct remote *r = be;
	struct remote_failure failure;
	struct remote_seq *s = r->seqs.n < REMOTE_MAX_SEQUENCES ? seq_new(r, id, req) : NULL;
	if (s == NULL)
		return r->seqs.n < REMOTE_MAX_SEQUENCES ? SL_ENOMEM : SL_ELIMIT;
	int rc = enter_wait_limits(r, &s->wait_entry, req);
	if (rc != 0) {
		seq_discard(s);
		return rc;
	}
	read_lengths(s, req);
	s->asked.model = req->model < r->n_models ? req->model : 0;
	uint32_t ahead = run_slots_ahead(&r->slots, req->priority);
	run_slot_enter(&r->slots, &s->slot, req->priority, r->each_ns);
	idmap_insert(&r->seqs, &s->node);
	r->stats.submitted++;
	r->stats.waiting++;
	r->models[s->asked.model].figures.waiting++;
	if (check(s, req, &failure) != PROTO_ERR_NONE) {
		remote_seq_end(s, PROTO_FINISH_ERROR, &failure);
		return 0;
	}
	list_push_back(&r->waiting, &s->in_waiting);
	tell_queued(s, ahead, s->arrived_ns);
	remote_seq_advance(s);
	return 0;
}

static int be_count(void *be, uint64_t id, const struct proto_count *req) { return remote_count(be, id, req); }

static struct remote_seq *find(const struct remote *r, uint64_t id)
{
	struct idmap_node *node = idmap_find(&r->seqs, id);
	return node != NULL ? idmap_entry(node, struct remote_seq, node) : NULL;
}

static void be_credit(void *be, uint64_t id, uint32_t n_tokens)
{
	struct remote *r = be;
	struct remote_seq *s = find(r, id);
	uint64_t now = clock_now_ns();
	if (s == NULL)
		return;
	if (__builtin_add_overflow(s->credit, n_tokens, &s->credit))
		s->credit = UINT32_MAX;
	if (s->slot.state != RUN_SLOT_NO_CREDIT || s->credit == 0)
		remote_seq_advance(s);
	else if (run_slot_take(&r->slots, &s->slot, now))
		seq_start(s, now);
}

static void be_cancel(void *be, uint64_t id)
{
	struct remote_seq *s = find(be, id);
	if (s != NULL)
		remote_seq_end(s, PROTO_FINISH_CANCELLED, NULL);
}

static const struct eng_backend backend = {
    .submit = be_submit,
    .count = be_count,
    .credit = be_credit,
    .cancel = be_cancel,
    .stats = be_stats,
    .load = be_load,
    .n_models = be_n_models,
    .model_info = be_model_info,
};

/* ---- life ---- */

static int read_key(const char *path, char out[KEY_BYTES + 1], struct sl_err *err)
{
	struct sl_buf text = {0};
	struct sl_err why = {0};
	out[0] = '\0';
	if (path[0] == '\0')
		return 0;
	int rc = file_read(path, KEY_BYTES, &text, &why);
	size_t n = rc == 0 && text.len > 0 ? text.len : 0;
	const char *at = n > 0 ? (const char *)buf_data(&text) : "";
	for (size_t i = 0; i < n && at[i] > ' ' && at[i] <= '~'; i++) {
		out[i] = at[i];
		out[i + 1] = '\0';
	}
	if (rc != 0)
		sl_errf(err, SL_EINVAL, "engine.upstream.key_file: %s: %s", path, why.text);
	else if (out[0] == '\0')
		rc = sl_errf(err, SL_EINVAL, "engine.upstream.key_file: %s: its first line is no key", path);
	if (n > 0)
		explicit_bzero(buf_data(&text), n);
	buf_dispose(&text);
	return rc != 0 ? SL_EINVAL : 0;
}

static int connect_http(struct remote *r, struct sl_err *err)
{
	char key[KEY_BYTES + 1];
	struct sl_buf ca = {0};
	struct sl_err why = {0};
	int rc = read_key(r->cfg.key_file, key, err);
	if (rc == 0 && r->cfg.ca_file[0] != '\0' && file_read(r->cfg.ca_file, CA_BYTES, &ca, &why) != 0)
		rc = sl_errf(err, SL_EINVAL, "engine.upstream.ca_file: %s: %s", r->cfg.ca_file, why.text);
	const struct remote_http_config http = {.url = r->cfg.url,
						.key = key,
						.ca = ca.len > 0 ? (const char *)buf_data(&ca) : NULL,
						.n_ca = ca.len,
						.verify = r->cfg.verify,
						.connect_ms = r->cfg.connect_ms,
						.connections = r->cfg.connections};
	if (rc == 0)
		rc = remote_http_create(r->base, &http, &r->http, err);
	explicit_bzero(key, sizeof key);
	buf_dispose(&ca);
	return rc;
}

uint8_t remote_model_does(const struct eng_remote_model *m, int dialect)
{
	if (m->scores)
		return PROTO_DOES_RANK;
	if (m->n_embd > 0)
		return PROTO_DOES_EMBED | (m->shorten ? PROTO_DOES_SHORTEN : 0);
	return PROTO_DOES_GENERATE | PROTO_DOES_REFUSE_LATE | (dialect == ENG_REMOTE_VLLM ? PROTO_DOES_GIVE_IDS : 0);
}

static void copy_models(struct remote *r)
{
	r->n_models = r->cfg.n_models < PROTO_MAX_MODELS ? r->cfg.n_models : PROTO_MAX_MODELS;
	for (int i = 0; i < r->n_models; i++) {
		const struct eng_remote_model *c = &r->cfg.models[i];
		struct remote_model *m = &r->models[i];
		m->role = (uint8_t)c->role;
		m->fixed_ctx = c->n_ctx > 0;
		m->n_ctx = c->n_ctx > 0 ? c->n_ctx : REMOTE_DEFAULT_CTX;
		m->n_embd = c->scores ? 0 : c->n_embd;
		m->does = remote_model_does(c, r->cfg.dialect);
		snprintf(m->name, sizeof m->name, "%s", c->name);
		snprintf(m->upstream, sizeof m->upstream, "%s", c->model[0] != '\0' ? c->model : c->name);
	}
}

int remote_create(const struct eng_remote_config *cfg, struct server *server, struct remote **out, struct sl_err *err)
{
	struct remote *r = sl_zalloc(sizeof *r);
	if (r == NULL || idmap_init(&r->seqs) != 0) {
		sl_free(r);
		return sl_errf(err, SL_ENOMEM, "no memory");
	}
	r->cfg = *cfg;
	r->base = server_base(server);
	r->hub = server_hub(server);
	list_init(&r->waiting);
	list_init(&r->lingering);
	list_init(&r->counts);
	r->stats.upstream.known = 1;
	copy_models(r);
	remote_frame_init(&r->frame);
	breaker_init(&r->breaker, (uint32_t)cfg->failures, cfg->cool_down_ms * NS_PER_MS);
	run_slots_init(&r->slots, (uint32_t)cfg->connections);
	wait_limits_init(&r->wait_limits, (uint64_t)cfg->max_waiting, (uint64_t)cfg->connections);
	int rc = connect_http(r, err);
	if (rc == 0 && (remote_health_init(r) != 0 || remote_load_init(r) != 0))
		rc = sl_errf(err, SL_ENOMEM, "no memory");
	if (rc != 0) {
		remote_destroy(r);
		return rc;
	}
	hub_attach(r->hub, &backend, r);
	r->hub->calm = true;
	remote_announce(r);
	*out = r;
	return 0;
}

void remote_destroy(struct remote *r)
{
	struct idmap_node *node;
	while ((node = idmap_any(&r->seqs)) != NULL)
		remote_seq_end(idmap_entry(node, struct remote_seq, node), PROTO_FINISH_CANCELLED, NULL);
	while (!list_empty(&r->lingering))
		remote_stream_free(list_entry(r->lingering.next, struct remote_stream, node));
	BUG_IF(r->stats.running != 0 || r->stats.waiting != 0, "remote: counters are not back at 0");
	remote_count_dispose(r);
	remote_health_dispose(r);
	remote_load_dispose(r);
	remote_http_destroy(r->http);
	wait_limits_dispose(&r->wait_limits);
	idmap_dispose(&r->seqs);
	remote_frame_dispose(&r->frame);
	sl_free(r);
}

static int create(const void *cfg, struct server *s, void **be, struct sl_err *err)
{
	const struct eng_remote_config *c = cfg;
	struct remote *r = NULL;
	int rc = remote_create(c, s, &r, err);
	if (rc == 0)
		log_info("the models are those of %s", c->url);
	*be = r;
	return rc;
}

static void destroy(void *be) { remote_destroy(be); }

int engine_serve_remote(const struct eng_remote_config *cfg, const struct eng_server_config *srv)
{
	static const struct server_backend served = {"remote engine", create, destroy};
	struct eng_server_config coarse = *srv;
	coarse.coarse_timers = true;
	return server_serve(&coarse, &served, cfg);
}
