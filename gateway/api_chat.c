/* SPDX-License-Identifier: Apache-2.0
 *
 * POST /v1/chat/completions: one generation, one subscriber, one answer, streamed or whole.
 *
 *   WAITING ──QUEUED──► STREAMING (200 is out) ──► ENDED          stream: true
 *      │       └──────► COLLECTING ──────────────► ENDED          stream: false
 *      └── refused, engine lost, too slow ───────► ENDED (an HTTP status)
 *
 * chat_set_state owns the transitions. The chat is freed by the exchange's close, which also leaves
 * the generation: a client that goes in any state stops its work in the engine.
 *
 * Streaming is pulled: an event is rendered when the transport asks for bytes, into `carry`, from
 * which it may leave in pieces. Between two pulls nothing is formatted.
 */
#include <event2/event.h>
#include <math.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json_out.h"
#include "base/metrics.h"
#include "gateway/app_state.h"
#include "gateway/chat_metrics.h"
#include "gateway/chat_request.h"
#include "gateway/exchange.h"
#include "gateway/generation.h"
#include "gateway/handlers.h"
#include "gateway/sse.h"

enum {
	COLLECT_TEXT = 4096,     /* text taken at once of an answer that is not streamed */
	/* One event: a single token may carry a frame's text, held back until then. */
	MAX_CARRY = 6 * PROTO_MAX_TEXT_PER_FRAME + 8192,
	MAX_ANSWER = 4 << 20,    /* text of an answer that is not streamed */
	RETRY_AFTER_S = 1,
};

enum chat_state { CHAT_WAITING, CHAT_STREAMING, CHAT_COLLECTING, CHAT_ENDED };

enum stage { STAGE_ROLE, STAGE_CONTENT, STAGE_USAGE, STAGE_DONE, STAGE_END };

struct chat {
	struct exchange *x;
	enum chat_state state;
	struct subscriber sub;
	struct generation *gen;
	struct event *timer;      /* WAITING: the longest wait for QUEUED; then heartbeats */
	bool stream, include_usage;
	bool late; /* STREAMING: given up before the first token */
	char id[48];
	char model[PROTO_MAX_NAME + 1];
	int64_t created;
	enum stage stage;
	struct sse_chat sse;
	struct sl_buf carry;      /* rendered, not yet pulled */
	struct sl_buf text;       /* COLLECTING */
	uint64_t admitted_ns;     /* when the engine got its first credit */
	uint64_t moved_ns;        /* the last bytes out, for heartbeats */
	uint64_t token_ns;        /* the last tokens in, for ITL; 0: none yet */
	struct auth_key *counted; /* the key whose running count holds one for this chat */
};

static void chat_set_state(struct chat *c, enum chat_state to)
{
	BUG_IF(to <= c->state || c->state == CHAT_ENDED, "chat from state %d to %d", c->state, to);
	c->state = to;
}

/* ---- ends ---- */

static void stop_counting(struct chat *c)
{
	if (c->counted != NULL)
		atomic_fetch_sub(c->counted->n_running, 1);
	c->counted = NULL;
}

/* For the access log and the metrics: what the answer cost up to now. */
static void note_tokens(struct chat *c)
{
	enum gen_state state = gen_state(c->gen);
	bool over = state == GEN_FINISHED || state == GEN_FAILED;
	c->x->n_prompt = over ? gen_done(c->gen)->n_prompt : gen_queued(c->gen)->n_prompt;
	c->x->n_completion = over ? gen_done(c->gen)->n_completion : (uint32_t)gen_n_tokens(c->gen);
}

static void chat_close(struct exchange *x)
{
	struct chat *c = x->state;
	if (c->sub.gen != NULL) {
		note_tokens(c);
		gen_unsubscribe(&c->sub);
	}
	stop_counting(c);
	chat_metrics_tokens(x->key->tier->name, x->n_prompt, x->n_completion);
	if (c->timer != NULL)
		event_free(c->timer);
	sse_chat_dispose(&c->sse);
	buf_dispose(&c->carry);
	buf_dispose(&c->text);
	sl_free(c);
	x->state = NULL;
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

static const struct api_error too_late = {503, "server_error", "overloaded", NULL, RETRY_AFTER_S};
static const char too_late_text[] = "The server is busy: the first token did not come in time.";

static struct sse_usage usage_of(const struct proto_done *d)
{
	return (struct sse_usage){d->n_prompt, d->n_cached, d->n_completion};
}

static const char *finish_of(const struct proto_done *d)
{
	return d->finish == PROTO_FINISH_LENGTH ? "length" : "stop";
}

static void refuse(struct chat *c, const struct api_error *e, const char *message)
{
	chat_set_state(c, CHAT_ENDED);
	if (c->sub.gen != NULL) {
		note_tokens(c);
		gen_unsubscribe(&c->sub);
	}
	exchange_error(c->x, e, "%s", message);
}

static void fail_whole(struct chat *c, const struct proto_done *d)
{
	struct api_error e = error_of(d);
	char message[PROTO_MAX_MESSAGE + 1];
	snprintf(message, sizeof message, "%.*s", (int)d->message.n, d->message.at);
	refuse(c, &e, message[0] ? message : "The engine failed.");
}

/* ---- streamed ---- */

/* The next event into carry. False: nothing now. Sets the stage to END after the last. */
static int render_next(struct chat *c, bool *something)
{
	struct gen_chunk chunk;
	int rc = 0;
	*something = true;
	if (c->late) {
		*something = c->stage != STAGE_END;
		if (*something)
			rc = sse_error(&c->carry, &too_late, too_late_text);
		c->stage = STAGE_END;
		return rc;
	}
	enum gen_state state = gen_state(c->gen);
	if (c->stage == STAGE_ROLE) {
		rc = sse_chat_role(&c->sse, &c->carry);
		c->stage = STAGE_CONTENT;
	} else if (c->stage == STAGE_CONTENT && gen_peek(c->gen, &c->sub, 1, &chunk)) {
		/* One event a token, however many have come: so the same answer is the same events. */
		/* Tokens whose text is held back (an unfinished character) make no event. */
		if (chunk.n_bytes > 0)
			rc = sse_chat_content(&c->sse, &c->carry, chunk.text, chunk.n_bytes);
		gen_advance(&c->sub, chunk.n_tokens);
	} else if (c->stage == STAGE_CONTENT && state == GEN_FINISHED) {
		rc = sse_chat_finish(&c->sse, &c->carry, finish_of(gen_done(c->gen)));
		c->stage = c->include_usage ? STAGE_USAGE : STAGE_DONE;
	} else if (c->stage == STAGE_CONTENT && state == GEN_FAILED) {
		const struct proto_done *d = gen_done(c->gen);
		struct api_error e = error_of(d);
		char message[PROTO_MAX_MESSAGE + 1];
		snprintf(message, sizeof message, "%.*s", (int)d->message.n, d->message.at);
		rc = sse_error(&c->carry, &e, message);
		c->stage = STAGE_END;
	} else if (c->stage == STAGE_USAGE) {
		struct sse_usage u = usage_of(gen_done(c->gen));
		rc = sse_chat_usage(&c->sse, &c->carry, &u);
		c->stage = STAGE_DONE;
	} else if (c->stage == STAGE_DONE) {
		rc = sse_done(&c->carry);
		c->stage = STAGE_END;
	} else {
		*something = false;
	}
	return rc;
}

static ssize_t chat_pull(void *ctx, uint8_t *dst, size_t room, bool *end)
{
	struct chat *c = ctx;
	size_t n = 0;
	while (n < room) {
		if (c->carry.len == 0) {
			bool something;
			if (render_next(c, &something) != 0)
				return SL_ENOMEM;
			if (!something)
				break;
		}
		size_t take = c->carry.len < room - n ? c->carry.len : room - n;
		if (take > 0)
			memcpy(dst + n, buf_data(&c->carry), take);
		buf_consume(&c->carry, take);
		n += take;
	}
	*end = c->stage == STAGE_END && c->carry.len == 0;
	if (n > 0)
		c->moved_ns = clock_now_ns();
	if (*end && c->state != CHAT_ENDED)
		chat_set_state(c, CHAT_ENDED);
	return (ssize_t)n;
}

static void start_streaming(struct chat *c)
{
	static const struct http_field fields[] = {
	    {"cache-control", "no-cache, no-transform"},
	    {"x-accel-buffering", "no"},
	};
	chat_set_state(c, CHAT_STREAMING);
	c->moved_ns = clock_now_ns();
	exchange_reply_stream(c->x, fields, sizeof fields / sizeof fields[0],
			      (struct http_source){.pull = chat_pull, .ctx = c});
	http_body_ready(c->x->stream);
}

/* ---- whole ---- */

static void reply_whole(struct chat *c)
{
	const struct proto_done *d = gen_done(c->gen);
	struct sse_usage u = usage_of(d);
	struct sl_buf out;
	buf_init(&out, MAX_ANSWER * 6 + 4096);
	int rc;
	if ((rc = buf_printf(&out, "{\"id\":\"%s\",\"object\":\"chat.completion\",\"created\":%lld,\"model\":", c->id,
			     (long long)c->created)) == 0 &&
	    (rc = json_out_string(&out, c->model, strlen(c->model))) == 0 &&
	    (rc = buf_append_str(&out, ",\"system_fingerprint\":null,\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":")) == 0 &&
	    (rc = json_out_string(&out, c->text.len ? (const char *)buf_data(&c->text) : "", c->text.len)) == 0 &&
	    (rc = buf_printf(&out, ",\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"%s\"}],\"usage\":",
			     finish_of(d))) == 0 &&
	    (rc = usage_print(&out, &u)) == 0)
		rc = buf_append_str(&out, "}");
	if (rc != 0) {
		refuse(c, &(struct api_error){500, "server_error", NULL, NULL, 0}, "The answer did not fit into memory.");
	} else {
		chat_set_state(c, CHAT_ENDED);
		note_tokens(c);
		gen_unsubscribe(&c->sub);
		exchange_reply(c->x, 200, "application/json", NULL, 0, buf_data(&out), out.len);
	}
	buf_dispose(&out);
}

static void collect(struct chat *c)
{
	struct gen_chunk chunk;
	while (gen_peek(c->gen, &c->sub, UINT32_MAX, &chunk)) {
		if (buf_append(&c->text, chunk.text, chunk.n_bytes) != 0) {
			refuse(c, &(struct api_error){500, "server_error", NULL, NULL, 0}, "The answer did not fit into memory.");
			return;
		}
		gen_advance(&c->sub, chunk.n_tokens);
	}
	if (gen_state(c->gen) == GEN_FINISHED)
		reply_whole(c);
	else if (gen_state(c->gen) == GEN_FAILED)
		fail_whole(c, gen_done(c->gen));
}

/* ---- what the generation says ---- */

static void restart_timer(struct chat *c, uint64_t ms)
{
	struct timeval tv = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000) * 1000};
	evtimer_add(c->timer, &tv);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void on_queued(struct subscriber *s)
{
	struct chat *c = list_entry(s, struct chat, sub);
	const struct gw_config *cfg = c->x->app->t->cfg;
	uint64_t predicted_ms = gen_queued(c->gen)->predicted_ttft_us / 1000;
	if (predicted_ms > cfg->limits.first_token_ms) {
		unsigned wait_s = (unsigned)((predicted_ms - cfg->limits.first_token_ms) / 1000 + 1);
		refuse(c, &(struct api_error){503, "server_error", "overloaded", NULL, wait_s},
		       "The server is busy: the first token would come too late.");
		return;
	}
	gen_admit(c->gen);
	c->admitted_ns = clock_now_ns();
	if (c->stream) {
		start_streaming(c);
		restart_timer(c, sooner(cfg->heartbeat_ms, cfg->limits.first_token_ms));
	} else {
		chat_set_state(c, CHAT_COLLECTING);
		restart_timer(c, cfg->limits.first_token_ms);
	}
}

static void observe_tokens(struct chat *c)
{
	uint64_t now = clock_now_ns();
	if (gen_n_tokens(c->gen) == 0)
		return;
	if (c->token_ns == 0)
		chat_metrics_ttft(now - c->x->started_ns);
	else
		chat_metrics_itl(now - c->token_ns);
	c->token_ns = now;
}

static void on_progress(struct subscriber *s)
{
	struct chat *c = list_entry(s, struct chat, sub);
	observe_tokens(c);
	switch (c->state) {
	case CHAT_WAITING: /* it ended before it was queued */
		if (gen_state(c->gen) == GEN_FAILED)
			fail_whole(c, gen_done(c->gen));
		break;
	case CHAT_STREAMING: http_body_ready(c->x->stream); break;
	case CHAT_COLLECTING: collect(c); break;
	case CHAT_ENDED: break;
	}
}

/* How long the first token may still take; 0: it is late. */
static uint64_t first_token_left_ms(const struct chat *c)
{
	uint64_t waited = (clock_now_ns() - c->admitted_ns) / NS_PER_MS, most = c->x->app->t->cfg->limits.first_token_ms;
	return waited < most ? most - waited : 0;
}

/* Not so once it has ended: an answer may have no token at all. */
static bool awaits_first_token(const struct chat *c)
{
	return c->token_ns == 0 && gen_state(c->gen) < GEN_FINISHED;
}

/* True when the first token is late: the work is cancelled and the client told. */
static bool give_up(struct chat *c)
{
	if (c->late)
		return true;
	if (!awaits_first_token(c) || first_token_left_ms(c) > 0)
		return false;
	if (c->state == CHAT_COLLECTING) {
		refuse(c, &too_late, too_late_text);
		return true;
	}
	c->late = true;
	note_tokens(c);
	gen_unsubscribe(&c->sub);
	http_body_ready(c->x->stream);
	return true;
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
	struct chat *c = ctx;
	(void)fd;
	(void)what;
	if (c->state == CHAT_WAITING) {
		refuse(c, &(struct api_error){503, "server_error", "overloaded", NULL, RETRY_AFTER_S},
		       "The engine did not take the request in time.");
		return;
	}
	if (c->state == CHAT_ENDED || give_up(c))
		return;
	if (c->state == CHAT_COLLECTING) {
		/* A timer may come a little early: libevent counts from the turn's beginning. */
		if (awaits_first_token(c))
			restart_timer(c, first_token_left_ms(c) + 1);
		return;
	}
	uint64_t interval = c->x->app->t->cfg->heartbeat_ms * NS_PER_MS, silent = clock_now_ns() - c->moved_ns;
	/* Only between events: a comment inside one would end up in its text. */
	if (silent >= interval && c->carry.len == 0 && sse_ping(&c->carry) == 0)
		http_body_ready(c->x->stream);
	uint64_t next = (silent >= interval ? interval : interval - silent) / NS_PER_MS + 1;
	restart_timer(c, awaits_first_token(c) ? sooner(next, first_token_left_ms(c) + 1) : next);
}

/* ---- the beginning ---- */

static uint64_t random_u64(void)
{
	uint64_t v;
	BUG_IF(RAND_bytes((uint8_t *)&v, sizeof v) != 1, "no random bytes");
	return v;
}

static bool tier_may(const struct gw_tier_config *tier, const char *model)
{
	for (size_t i = 0; i < tier->models.n; i++)
		if (strcmp(tier->models.items[i], model) == 0)
			return true;
	return tier->models.n == 0;
}

/* "default": the configured name, or the large one of those the tier may use, or the first of them. */
static int default_model(const struct gw_app *app, const struct gw_tier_config *tier)
{
	const char *name = app->t->cfg->default_model;
	int found = -1;
	if (name != NULL && name[0] != '\0')
		return engine_link_find_model(app->link, name);
	for (int i = 0; i < engine_link_n_models(app->link); i++) {
		const struct link_model *m = engine_link_model(app->link, i);
		if (m->name[0] == '\0' || !tier_may(tier, m->name))
			continue;
		if (m->role == 2)
			return i;
		found = found < 0 ? i : found;
	}
	return found;
}

/* The model's index, or -1 with the answer given. */
static int choose_model(struct exchange *x, const char *name)
{
	const struct engine_link *link = x->app->link;
	if (engine_link_n_models(link) == 0) {
		exchange_error(x, &(struct api_error){503, "server_error", "engine_unavailable", NULL, RETRY_AFTER_S},
			       "The engine is starting.");
		return -1;
	}
	int index = strcmp(name, "default") == 0 ? default_model(x->app, x->key->tier) : engine_link_find_model(link, name);
	if (index < 0 || !tier_may(x->key->tier, engine_link_model(link, index)->name)) {
		exchange_error(x, &(struct api_error){404, "invalid_request_error", "model_not_found", "model", 0},
			       "The model '%s' does not exist or you do not have access to it.", name);
		return -1;
	}
	const struct link_model *m = engine_link_model(link, index);
	if (!engine_link_up(link)) {
		exchange_error(x, &(struct api_error){503, "server_error", "engine_unavailable", NULL, RETRY_AFTER_S},
			       "The engine is not there at the moment. It is being restarted.");
		return -1;
	}
	if (m->state != PROTO_MODEL_READY) {
		exchange_error(x, &(struct api_error){503, "server_error",
						      m->state == PROTO_MODEL_FAILED ? "model_failed" : "model_loading",
						      "model", m->state == PROTO_MODEL_FAILED ? 60 : RETRY_AFTER_S},
			       m->state == PROTO_MODEL_FAILED ? "The model '%s' could not be loaded." : "The model '%s' is being loaded.",
			       m->name);
		return -1;
	}
	return index;
}

/* Takes one of the key's places; false with the answer given. */
static bool take_place(struct exchange *x)
{
	struct auth_key *key = (struct auth_key *)(uintptr_t)x->key;
	int64_t most = key->tier->concurrency;
	if (atomic_fetch_add(key->n_running, 1) < most)
		return true;
	atomic_fetch_sub(key->n_running, 1);
	exchange_error(x, &(struct api_error){429, "rate_limit_error", "concurrency_limit", NULL, RETRY_AFTER_S},
		       "Rate limit reached: at most %lld requests at once for this key.", (long long)most);
	return false;
}

static struct chat *chat_create(struct exchange *x, const struct chat_request *r, const char *model)
{
	struct chat *c = sl_zalloc(sizeof *c);
	if (c == NULL)
		return NULL;
	c->x = x;
	c->stream = r->stream;
	c->include_usage = r->include_usage;
	c->created = clock_unix_s();
	snprintf(c->id, sizeof c->id, "chatcmpl-%016llx%016llx", (unsigned long long)random_u64(),
		 (unsigned long long)random_u64());
	snprintf(c->model, sizeof c->model, "%s", model);
	c->sub.on_queued = on_queued;
	c->sub.on_progress = on_progress;
	buf_init(&c->carry, MAX_CARRY);
	buf_init(&c->text, MAX_ANSWER);
	c->timer = evtimer_new(x->app->t->base, on_timer, c);
	if (c->timer == NULL || sse_chat_init(&c->sse, c->id, c->model, c->created, r->include_usage) != 0) {
		if (c->timer != NULL)
			event_free(c->timer);
		sl_free(c);
		return NULL;
	}
	return c;
}

/* What the tier says, on top of what the request says. */
static void fill_submit(struct chat_request *r, const struct exchange *x, int model)
{
	const struct gw_tier_config *tier = x->key->tier;
	struct proto_submit *s = &r->submit;
	uint32_t most = (uint32_t)tier->max_output;
	s->model = (uint16_t)model;
	s->priority = (uint8_t)tier->priority;
	s->tenant = x->key->tenant;
	s->rate_tps = (float)tier->pace_tps;
	s->burst = (uint32_t)tier->pace_burst;
	s->deadline_ms = (uint32_t)tier->deadline_ms;
	s->max_tokens = r->has_max_tokens && r->max_tokens < most ? r->max_tokens : most;
	if (!r->has_seed)
		s->seed = random_u64();
}

static void start(struct exchange *x, struct chat_request *r)
{
	int model = choose_model(x, r->model);
	if (model < 0 || !take_place(x))
		return;
	struct chat *c = chat_create(x, r, engine_link_model(x->app->link, model)->name);
	if (c == NULL) {
		atomic_fetch_sub(x->key->n_running, 1);
		exchange_error(x, &(struct api_error){503, "server_error", "overloaded", NULL, RETRY_AFTER_S},
			       "The server is out of memory.");
		return;
	}
	c->counted = (struct auth_key *)(uintptr_t)x->key;
	x->state = c;
	x->on_close = chat_close;
	fill_submit(r, x, model);
	const struct gw_config *cfg = x->app->t->cfg;
	restart_timer(c, cfg->limits.submit_wait_ms);
	int rc = gen_start(x->app->t, &r->submit, (uint32_t)cfg->limits.window_tokens, &c->sub, &c->gen);
	if (rc != 0)
		refuse(c, &(struct api_error){503, "server_error", "engine_unavailable", NULL, RETRY_AFTER_S},
		       rc == SL_ECLOSED ? "The engine is not there at the moment. It is being restarted."
					: "The server is busy.");
	else
		gen_hold(c->gen, http_hold(x->stream));
}

void api_chat(struct exchange *x)
{
	const struct gw_limits *limits = &x->app->t->cfg->limits;
	struct chat_limits bounds = {.messages = (size_t)limits->messages, .json_depth = (size_t)limits->json_depth};
	struct chat_request r;
	struct chat_error e;
	int rc = chat_request_parse(x->body.len ? (const char *)buf_data(&x->body) : "", x->body.len, &bounds, &r, &e);
	if (rc == SL_EINVAL) {
		exchange_error(x, &(struct api_error){400, "invalid_request_error", e.code, e.param, 0}, "%s", e.message);
		return;
	}
	if (rc != 0) {
		exchange_error(x, &(struct api_error){503, "server_error", "overloaded", NULL, RETRY_AFTER_S},
			       "The server is out of memory.");
		return;
	}
	buf_clear(&x->body, 0);
	start(x, &r);
	chat_request_dispose(&r);
}
