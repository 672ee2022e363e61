/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/embedding/embed_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "gateway/answer/answer.h"
#include "gateway/exchange/app_state.h"
#include "gateway/observe/tier_counts.h"
#include "gateway/generation/engine_link.h"

enum embed_state { EMBED_IDLE, EMBED_COUNTING, EMBED_CHARGING, EMBED_RUNNING, EMBED_OVER };

COUNTER(texts_total, "sluice_embedding_texts_total", "Texts and pairs of texts whose vector or score was computed");

/* One sequence in the engine. */
struct slot {
	struct embed_run *run;
	uint64_t id; /* 0: free */
	int item;
};

struct embed_run {
	struct exchange *x;
	struct auth_key *key;
	enum embed_state state;
	int model;
	uint32_t n_ctx, width;
	const struct embed_item *items;
	int n;
	uint32_t *n_tokens; /* [n] */
	bool *there;        /* [n]: its result has arrived */
	float *results;     /* [n][width] */
	/* Reset with each state: texts from `next` on are not sent yet, those in `again` must be sent again. */
	int next, n_again, n_ended, n_busy, n_window;
	int again[EMBED_WINDOW];
	struct slot slots[EMBED_WINDOW];
	struct sl_buf pair; /* the text being sent */
	struct quota *quota;
	uint64_t n_sent; /* tokens that were submitted */
	bool placed;
	struct gw_timer timer;
	embed_done *done;
	void *ctx;
};

static struct engine_link *link_of(const struct embed_run *r) { return r->x->app->link; }
static struct gw_timers *timers_of(const struct embed_run *r) { return &r->x->app->t->timers; }

static void embed_set_state(struct embed_run *r, enum embed_state to)
{
	BUG_IF(to <= r->state, "a run of texts from state %d to %d", (int)r->state, (int)to);
	r->state = to;
	r->next = r->n_again = r->n_ended = 0;
	r->n_window = EMBED_WINDOW;
}

/* Restarts the time limit for the next result. */
static void restart_timer(struct embed_run *r)
{
	gw_timer_start(timers_of(r), &r->timer, r->x->app->t->cfg->limits.first_token_ms * NS_PER_MS);
}

/* ---- ends ---- */

/* Cancels work in progress and charges it, because the engine may have computed it. */
static void stop(struct embed_run *r)
{
	for (int i = 0; i < EMBED_WINDOW; i++) {
		if (r->slots[i].id == 0)
			continue;
		if (r->state == EMBED_COUNTING)
			engine_link_uncount(link_of(r), r->slots[i].id);
		else
			engine_link_forget(link_of(r), r->slots[i].id);
		r->slots[i].id = 0;
	}
	r->n_busy = 0;
	gw_timer_stop(timers_of(r), &r->timer);
	quota_settle(r->quota, (int64_t)r->n_sent);
	r->quota = NULL;
	if (r->placed)
		atomic_fetch_sub(r->key->n_running, 1);
	r->placed = false;
}

static void end(struct embed_run *r)
{
	if (r->state == EMBED_OVER)
		return;
	stop(r);
	r->x->n_prompt = (uint32_t)r->n_sent;
	tier_counts_tokens(r->key->tier->name, (uint32_t)r->n_sent, 0);
	embed_set_state(r, EMBED_OVER);
}

/* An item's param for errors. */
static const char *param_of(const struct embed_item *it, char out[64])
{
	if (it->index < 0)
		snprintf(out, 64, "%s", it->field);
	else
		snprintf(out, 64, "%s[%d]", it->field, it->index);
	return out;
}

static void __attribute__((format(printf, 5, 6)))
fail(struct embed_run *r, int status, const char *code, const char *param, const char *fmt, ...)
{
	char message[PROTO_MAX_MESSAGE + 64];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(message, sizeof message, fmt, ap);
	va_end(ap);
	end(r);
	exchange_refuse(r->x, status, code, param, "%s", message);
}

static void fail_lost(struct embed_run *r)
{
	end(r);
	exchange_refuse(r->x, 503, "engine_unavailable", NULL,
			"The engine stopped unexpectedly. It is being restarted.");
}

static void fail_busy(struct embed_run *r, const char *why)
{
	end(r);
	exchange_refuse(r->x, 503, "overloaded", NULL, "%s", why);
}

static void on_timer(struct gw_timer *timer)
{
	fail_busy(list_entry(timer, struct embed_run, timer), "The server is busy: the result did not come in time.");
}

/* The engine refused an item. */
static void fail_item(struct embed_run *r, const struct embed_item *it, uint8_t error, struct proto_str why)
{
	char param[64], message[PROTO_MAX_MESSAGE + 1];
	snprintf(message, sizeof message, "%.*s", (int)why.n, why.at);
	param_of(it, param);
	switch (error) {
	case PROTO_ERR_CONTEXT_LENGTH: fail(r, 400, "context_length_exceeded", param, "%s", message); break;
	case PROTO_ERR_BAD_REQUEST: fail(r, 400, "invalid_value", param, "Invalid '%s': %s", param, message); break;
	case PROTO_ERR_OVERLOADED: fail_busy(r, message); break;
	case PROTO_ERR_NO_MODEL:
	case PROTO_ERR_NOT_READY: fail(r, 503, "engine_unavailable", NULL, "%s", message); break;
	default: fail(r, 500, "engine_error", NULL, "%s", message[0] != '\0' ? message : "The engine failed.");
	}
}

/* ---- sending ---- */

static void pump(struct embed_run *r);
static void on_counted(void *ctx, const struct proto_counted *m);
static const struct link_listener listener;

static struct slot *free_slot(struct embed_run *r)
{
	int i = 0;
	while (r->slots[i].id != 0)
		i++;
	return &r->slots[i];
}

/* The item's prompt for the engine. 0, SL_ENOMEM. */
static int prompt_of(struct embed_run *r, const struct embed_item *it, struct proto_str *out)
{
	uint32_t n = (uint32_t)it->text.n;
	const uint8_t head[4] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24)};
	int rc;
	*out = it->text;
	if (it->kind != PROTO_PROMPT_PAIR)
		return 0;
	buf_clear(&r->pair, PROTO_MAX_PAYLOAD);
	if ((rc = buf_append(&r->pair, head, sizeof head)) != 0 ||
	    (rc = buf_append(&r->pair, it->text.at, it->text.n)) != 0 ||
	    (rc = buf_append(&r->pair, it->second.at, it->second.n)) != 0)
		return rc;
	*out = (struct proto_str){(const char *)buf_data(&r->pair), r->pair.len};
	return 0;
}

static int send_count(struct embed_run *r, struct slot *s, const struct embed_item *it, struct proto_str prompt)
{
	const struct proto_count req = {.model = (uint16_t)r->model,
					.prompt_kind = it->kind,
					.priority = (uint8_t)r->key->tier->priority,
					.tenant = r->key->tenant,
					.prompt = prompt};
	return engine_link_count(link_of(r), &req, on_counted, s, &s->id);
}

static struct proto_submit submit_of(const struct embed_run *r)
{
	const struct gw_tier_config *tier = r->key->tier;
	struct proto_submit s = {PROTO_SUBMIT_OFF,
				 .model = (uint16_t)r->model,
				 .flags = PROTO_SUBMIT_EMBED,
				 .priority = (uint8_t)tier->priority,
				 .tenant = r->key->tenant,
				 .top_p = 1,
				 .max_tokens = 1};
	if (tier->weight > 0)
		s.weight = (uint32_t)tier->weight;
	return s;
}

/* Its tokens are charged already, so it gets its credit at once. */
static int send_submit(struct embed_run *r, struct slot *s, const struct embed_item *it, struct proto_str prompt)
{
	struct proto_submit req = submit_of(r);
	req.prompt_kind = it->kind;
	req.prompt = prompt;
	int rc = engine_link_submit(link_of(r), &req, &listener, s, &s->id);
	if (rc != 0)
		return rc;
	engine_link_credit(link_of(r), s->id, 1);
	r->n_sent += r->n_tokens[s->item];
	return 0;
}

static int send_item(struct embed_run *r, int i)
{
	const struct embed_item *it = &r->items[i];
	struct slot *s = free_slot(r);
	struct proto_str prompt;
	int rc = prompt_of(r, it, &prompt);
	s->item = i;
	if (rc == 0)
		rc = r->state == EMBED_COUNTING ? send_count(r, s, it, prompt) : send_submit(r, s, it, prompt);
	if (rc == 0)
		r->n_busy++;
	else
		s->id = 0;
	return rc;
}

/* Sends texts while the window has room. If the link has no room, the rest waits until another text ends. */
static void pump(struct embed_run *r)
{
	while (r->n_busy < r->n_window && (r->n_again > 0 || r->next < r->n)) {
		int i = r->n_again > 0 ? r->again[r->n_again - 1] : r->next;
		int rc = send_item(r, i);
		if (rc == SL_ELIMIT && r->n_busy > 0)
			return;
		if (rc != 0) {
			if (rc == SL_ECLOSED)
				fail_lost(r);
			else
				fail_busy(r, "The server is busy.");
			return;
		}
		if (r->n_again > 0)
			r->n_again--;
		else
			r->next++;
	}
}

/* The engine's queue is full: sends i again when another text ends, in a smaller window. */
static bool send_later(struct embed_run *r, int i)
{
	if (r->n_busy == 0)
		return false;
	r->again[r->n_again++] = i;
	r->n_window = r->n_busy;
	return true;
}

/* ---- counting and charging ---- */

static bool is_too_long(struct embed_run *r, int i, uint32_t n)
{
	int64_t most = r->key->tier->max_prompt;
	char param[64];
	param_of(&r->items[i], param);
	if (n > r->n_ctx)
		fail(r, 400, "context_length_exceeded", param,
		     "This model's maximum context length is %u tokens. However, '%s' has %u tokens.", r->n_ctx, param,
		     n);
	else if (most > 0 && n > most)
		fail(r, 400, "context_length_exceeded", param,
		     "This key's prompts may have at most %lld tokens; '%s' has %u.", (long long)most, param, n);
	else
		return false;
	return true;
}

static void begin_running(struct embed_run *r)
{
	embed_set_state(r, EMBED_RUNNING);
	restart_timer(r);
	pump(r);
}

static void on_charged(void *ctx, struct quota *q, const struct quota_result *result)
{
	struct embed_run *r = ctx;
	if (result->code == 0)
		exchange_set_quota(r->x, result);
	r->quota = result->admitted ? q : NULL;
	if (result->admitted) {
		begin_running(r);
		return;
	}
	end(r);
	quota_refuse(r->x, result);
}

static void charge(struct embed_run *r)
{
	int64_t all = (int64_t)embed_n_tokens(r);
	const struct quota_ask ask = {.key = r->key,
				      .requests = 1,
				      .tokens = all,
				      .least = all,
				      .wait_ms = r->x->app->t->cfg->limits.quota_wait_ms};
	embed_set_state(r, EMBED_CHARGING);
	gw_timer_stop(timers_of(r), &r->timer); /* the quota limits this wait */
	int rc = quota_take(&r->x->app->quotas, &ask, on_charged, r, &r->quota);
	if (rc > 0)
		begin_running(r);
	else if (rc < 0)
		fail_busy(r, "The server is out of memory.");
}

static void on_counted(void *ctx, const struct proto_counted *m)
{
	struct slot *s = ctx;
	struct embed_run *r = s->run;
	s->id = 0;
	r->n_busy--;
	if (m == NULL) {
		fail_lost(r);
		return;
	}
	if (m->error != PROTO_ERR_NONE) {
		if (m->error != PROTO_ERR_OVERLOADED || !send_later(r, s->item))
			fail_item(r, &r->items[s->item], m->error, m->message);
		return;
	}
	if (is_too_long(r, s->item, m->n_tokens))
		return;
	r->n_tokens[s->item] = m->n_tokens;
	restart_timer(r);
	if (++r->n_ended == r->n)
		charge(r);
	else
		pump(r);
}

/* ---- results ---- */

static void on_embedding(void *ctx, const struct proto_embedding *m)
{
	struct slot *s = ctx;
	struct embed_run *r = s->run;
	if (m->n != r->width)
		return; /* on_done finds that there is no result */
	proto_embedding_read(m, r->results + (size_t)s->item * r->width);
	r->there[s->item] = true;
}

static void on_done(void *ctx, const struct proto_done *m)
{
	struct slot *s = ctx;
	struct embed_run *r = s->run;
	s->id = 0;
	r->n_busy--;
	if (m->finish != PROTO_FINISH_STOP || !r->there[s->item]) {
		r->n_sent -= m->error == PROTO_ERR_OVERLOADED ? r->n_tokens[s->item] : 0;
		if (m->error != PROTO_ERR_OVERLOADED || !send_later(r, s->item))
			fail_item(r, &r->items[s->item], m->error, m->message);
		return;
	}
	metric_add(&texts_total, 1);
	restart_timer(r);
	if (++r->n_ended < r->n) {
		pump(r);
		return;
	}
	end(r);
	r->done(r->ctx);
}

static void on_lost(void *ctx)
{
	struct slot *s = ctx;
	s->id = 0;
	s->run->n_busy--;
	fail_lost(s->run);
}

static const struct link_listener listener = {.on_done = on_done, .on_lost = on_lost, .on_embedding = on_embedding};

/* ---- lifetime ---- */

int embed_choose_model(struct exchange *x, const char *name, unsigned does, bool *pairs)
{
	int model = answer_choose_model_for(x, name, does);
	if (model >= 0)
		*pairs = (engine_link_model(x->app->link, model)->does & PROTO_DOES_RANK) != 0;
	return model;
}

/* False: x has its error response. */
static bool take_place(struct embed_run *r)
{
	int64_t most = r->key->tier->concurrency;
	int now = atomic_load(r->key->n_running);
	do {
		if (now >= most) {
			quota_count_concurrency();
			return exchange_refuse(r->x, 429, "concurrency_limit", NULL,
					       "Rate limit reached: at most %lld answers at once for this key.",
					       (long long)most);
		}
	} while (!atomic_compare_exchange_weak(r->key->n_running, &now, now + 1));
	r->placed = true;
	return true;
}

static bool may_begin(struct embed_run *r)
{
	const struct proto_submit s = submit_of(r);
	struct load_ruling ruling = answer_load_judge(r->x, true, &s);
	if (ruling.verdict != LOAD_REFUSE)
		return take_place(r);
	answer_load_turn_away(r->x, &ruling);
	return false;
}

static struct embed_run *create(struct exchange *x, int model, int n)
{
	const struct link_model *m = engine_link_model(x->app->link, model);
	struct embed_run *r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return NULL;
	r->x = x;
	r->key = auth_key_ref(x->key);
	r->model = model;
	r->n = n;
	r->n_ctx = m->n_ctx;
	const size_t n_name = strnlen(m->name, sizeof x->model - 1);
	memcpy(x->model, m->name, n_name);
	x->model[n_name] = '\0';
	r->width = (m->does & PROTO_DOES_RANK) != 0 ? 1 : m->n_embd;
	buf_init(&r->pair, PROTO_MAX_PAYLOAD);
	gw_timer_init(&r->timer, on_timer);
	for (int i = 0; i < EMBED_WINDOW; i++)
		r->slots[i].run = r;
	r->n_tokens = sl_zalloc_n((size_t)n, sizeof *r->n_tokens);
	r->there = sl_zalloc_n((size_t)n, sizeof *r->there);
	r->results = sl_zalloc_n((size_t)n, r->width * sizeof *r->results);
	if (r->n_tokens != NULL && r->there != NULL && r->results != NULL)
		return r;
	embed_free(r);
	return NULL;
}

int embed_start(struct exchange *x, int model, const struct embed_item *items, int n, embed_done *done, void *ctx,
		struct embed_run **out)
{
	struct embed_run *r = create(x, model, n);
	*out = NULL;
	if (r == NULL) {
		exchange_reply_no_memory(x);
		return SL_ENOMEM;
	}
	r->items = items;
	r->done = done;
	r->ctx = ctx;
	if (!may_begin(r)) {
		embed_free(r);
		return SL_ELIMIT;
	}
	*out = r;
	embed_set_state(r, EMBED_COUNTING);
	restart_timer(r);
	pump(r);
	return 0;
}

void embed_free(struct embed_run *r)
{
	if (r == NULL)
		return;
	if (r->state != EMBED_IDLE)
		end(r);
	auth_key_unref(r->key);
	buf_dispose(&r->pair);
	sl_free(r->n_tokens);
	sl_free(r->there);
	sl_free(r->results);
	sl_free(r);
}

uint32_t embed_width(const struct embed_run *r) { return r->width; }
const float *embed_result(const struct embed_run *r, int i) { return r->results + (size_t)i * r->width; }

uint64_t embed_n_tokens(const struct embed_run *r)
{
	uint64_t all = 0;
	for (int i = 0; i < r->n; i++)
		all += r->n_tokens[i];
	return all;
}
