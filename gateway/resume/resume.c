/* SPDX-License-Identifier: Apache-2.0
 *
 * No engine state is kept, and none is needed: the same SUBMIT with the same seed gives the same tokens in any batch,
 * and the events of a logged answer depend on its tokens alone. So the answer is generated again from its first token.
 * Events that the store has are compared and dropped; events that were sent but had not reached the store are sent
 * again, byte for byte and under the same numbers. If an event differs (another model under the same name, another
 * version), the stream ends with an error.
 *
 * The reservation of the key's limits continues under its own name (quota.h), so nothing is charged twice.
 *
 * Not continued: several choices or prompts, whose events come in the order in which the engine generates them;
 * completions that echo; requests too large for one value of the store; answers of the cascade that joined another's
 * (the others: resume_cascade.c); those of an upstream that does not list its tokens.
 */
#include "gateway/resume/resume.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hex.h"
#include "base/log.h"
#include "gateway/answer/answer_priv.h"
#include "gateway/answer/response.h"
#include "gateway/auth/snapshot.h"
#include "gateway/generation/submit_frame.h"
#include "gateway/replay/replay_store_priv.h"
#include "gateway/request/json_mem.h"

/* A continued answer's. */
struct resumed {
	struct answer_continued base;
	uint64_t n_there; /* events in the store */
	uint64_t at;      /* the number of the event that is rendered next, below n_there */
};

static const struct api_error differs = {500, "server_error", "not_continued", NULL, 0};
static const struct api_error not_continued = {503, "server_error", "not_continued", NULL, 0};

static const struct answer_format *const formats[] = {&answer_chat, &answer_completion, &answer_response};

/* ---- the head ---- */

int resume_head_read(struct resume_head *h, const uint8_t *bytes, size_t n)
{
	json_error_t where;
	*h = (struct resume_head){0};
	size_t text = strnlen((const char *)bytes, n);
	h->json = json_mem_load((const char *)bytes, text, JSON_ALLOW_NUL, &where);
	if (h->json == NULL)
		return where.text[0] != '\0' ? SL_EPROTO : SL_ENOMEM;
	h->owner = json_string_value(json_object_get(h->json, "owner"));
	if (h->owner == NULL || strlen(h->owner) >= REPLAY_OWNER_CHARS) {
		resume_head_dispose(h);
		return SL_EPROTO;
	}
	if (text + 1 < n && submit_frame_read(bytes + text + 1, n - text - 1, &h->frame) == SL_ENOMEM) {
		resume_head_dispose(h);
		return SL_ENOMEM;
	}
	return 0;
}

void resume_head_dispose(struct resume_head *h)
{
	json_decref(h->json);
	submit_frame_unref(h->frame);
	*h = (struct resume_head){0};
}

static const char *text_of(const json_t *o, const char *name)
{
	const char *text = json_string_value(json_object_get(o, name));
	return text != NULL ? text : "";
}

static bool is_set(const json_t *o, const char *name) { return json_is_true(json_object_get(o, name)); }

static int64_t number_of(const json_t *o, const char *name)
{
	return (int64_t)json_integer_value(json_object_get(o, name));
}

/* The model that makes the tokens: one that its clients' name does not name is stored, too. */
static const char *model_of(const struct resume_head *h)
{
	const char *by = text_of(h->json, "answered_by");
	return by[0] != '\0' ? by : text_of(h->json, "model");
}

static const struct answer_format *format_of(const json_t *o)
{
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
		if (strcmp(formats[i]->id_prefix, text_of(o, "format")) == 0)
			return formats[i];
	return NULL;
}

/* Does this build draw the same tokens as the other gateway's engine? */
static bool draws_alike(const struct resume_head *h)
{
	return number_of(h->json, "draw") == ANSWER_DRAW || h->frame->s.temperature <= 0;
}

enum resume_chance resume_chance(const struct gw_app *app, const struct resume_head *h)
{
	const json_t *cascade = json_object_get(h->json, "cascade");
	if (h->frame == NULL || !draws_alike(h))
		return RESUME_NEVER;
	if (!engine_link_up(app->link) || app->t->draining)
		return RESUME_LATER;
	if (json_is_object(cascade))
		return resume_cascade_chance(app, cascade);
	int model = engine_link_find_model(app->link, model_of(h));
	if (model < 0)
		return engine_link_n_models(app->link) > 0 ? RESUME_NEVER : RESUME_LATER;
	switch ((enum proto_model_state)engine_link_model(app->link, model)->state) {
	case PROTO_MODEL_READY: return RESUME_NOW;
	case PROTO_MODEL_LOADING: return RESUME_LATER;
	case PROTO_MODEL_GONE:
	case PROTO_MODEL_FAILED: break;
	}
	return RESUME_NEVER;
}

/* The key as the configuration has it now, or as it was. With a reference; NULL: no memory, or its tier no longer
 * exists
 * (*gone). */
static struct auth_key *key_from(const struct gw_app *app, const json_t *key, bool *gone)
{
	const char *name = text_of(key, "name");
	uint64_t tenant = 0;
	*gone = false;
	if (!hex_get(text_of(key, "tenant"), &tenant, sizeof tenant)) {
		*gone = true;
		return NULL;
	}
	struct auth_key *known = auth_find_name(app->auth, name);
	bool same = known != NULL && known->tenant == tenant && known->tier != NULL;
	int kind = (int)number_of(key, "kind");
	if (same && kind == AUTH_CONFIGURED)
		return auth_key_ref(known);
	const struct auth_person p = {.kind = (enum auth_kind)kind,
				      .name = name,
				      .tenant_name = text_of(key, "tenant_name"),
				      .subject = text_of(key, "subject"),
				      .origins = "",
				      .tier = auth_tier(&app->now->cfg, text_of(key, "tier")),
				      .tenant = tenant,
				      .of = same ? known : NULL};
	*gone = p.tier == NULL;
	return *gone ? NULL : auth_key_create(&p);
}

static struct resumed *resumed_of(const struct answer *a) { return (struct resumed *)(void *)a->continued; }

/* ---- repeating the stored events ---- */

static void fail_differing(struct answer *a)
{
	log_error("a continued answer differs from what was sent: event %llu", (unsigned long long)resumed_of(a)->at);
	metric_add(&replay_m_uncontinued, 1);
	answer_leave_runs(a);
	buf_clear(&a->out.carry, 0);
	answer_set_failure(a, &differs, "The gateway of this answer stopped, and the engine now gives another answer.");
	a->settling = false;
	a->stage = ANSWER_SETTLE;
}

static void on_rendered(struct answer *a)
{
	struct resumed *r = resumed_of(a);
	while (a->out.replaying && a->out.carry.len > 0) {
		const char *event = (const char *)buf_data(&a->out.carry),
			   *end = memmem(event, a->out.carry.len, "\n\n", 2);
		BUG_IF(end == NULL, "a part of an event is rendered");
		size_t n = (size_t)(end + 2 - event);
		if (!replay_matches(a->out.log, r->at, event, n)) {
			fail_differing(a);
			return;
		}
		a->out.replaying = ++r->at < r->n_there;
		buf_consume(&a->out.carry, n);
		if (!a->out.replaying && a->budget.left != INT64_MAX) {
			int64_t left = a->budget.left - (int64_t)a->budget.sent;
			a->budget.left = left > 0 ? left : 1; /* then more are requested */
		}
	}
}

static void on_failing(struct answer *a)
{
	replay_break(a->out.log);
	if (!a->out.replaying)
		return;
	a->out.replaying = false;
	if (a->format->renumber != NULL)
		a->format->renumber(a, resumed_of(a)->n_there);
}

/* ---- continuing ---- */

static void on_adopted(void *ctx, struct quota *q, const struct quota_result *r)
{
	struct answer *a = ctx;
	a->budget.quota = r->admitted ? q : NULL;
	if (r->admitted)
		answer_admit(a);
	else
		answer_charge(a);
}

/* Takes over the other gateway's reservation. */
static void adopt(struct answer *a)
{
	int rc = 0;
	if (a->continued->has_ticket)
		rc = quota_adopt(&a->app->quotas, a->key, &a->continued->ticket, on_adopted, a, &a->budget.quota);
	else
		answer_charge(a);
	if (rc < 0)
		answer_refuse(a, &answer_no_memory, answer_no_memory_text);
	else if (rc > 0)
		answer_admit(a);
}

/* Only the quota is checked: the other gateway has admitted it. */
static void on_queued(struct subscriber *s)
{
	struct answer_run *run = list_entry(s, struct answer_run, sub);
	run->n_prompt = gen_queued(run->gen)->n_prompt;
	if (run->answer->state != ANSWER_WAITING)
		return;
	run->queued = true;
	adopt(run->answer);
}

static struct answer *create(struct gw_app *app, const struct resume_head *h, const struct proto_submit *s,
			     struct auth_key *key, const struct answer_format *format)
{
	const json_t *own = json_object_get(h->json, "own");
	struct answer_spec spec = {.format = format,
				   .model = -1,
				   .stream = is_set(h->json, "stream"),
				   .include_usage = is_set(h->json, "usage"),
				   .obfuscate = is_set(h->json, "obfuscate"),
				   .logged = true,
				   .ids = is_set(h->json, "ids"),
				   .background = is_set(h->json, "background"),
				   .keep_text = is_set(h->json, "keep_text"),
				   .token_ids = is_set(h->json, "token_ids"),
				   .tokens_as_ids = is_set(h->json, "tokens_as_ids"),
				   .submit = s,
				   .members = json_string_value(json_object_get(h->json, "told")),
				   .n_prompts = 1};
	const json_t *split = json_object_get(h->json, "split");
	if (json_is_object(split) && (spec.split = answer_split_restore(split)) == NULL)
		return NULL;
	if (format->restore != NULL && (spec.own = format->restore(own)) == NULL) {
		answer_split_free(spec.split);
		return NULL;
	}
	struct answer *a = answer_create(app, NULL, app->now, key, &spec);
	if (a == NULL) {
		if (spec.own != NULL)
			format->dispose(spec.own);
		answer_split_free(spec.split);
		return NULL;
	}
	struct resumed *r = sl_zalloc(sizeof *r);
	a->runs[0].sub.on_queued = on_queued;
	answer_load_exempt(a);
	sl_free(a->model);
	a->model = sl_strdup(text_of(h->json, "model"));
	a->frame = submit_frame_ref(h->frame);
	if (r == NULL || a->model == NULL) {
		sl_free(r);
		answer_free(a);
		return NULL;
	}
	r->base = (struct answer_continued){.rendered = on_rendered, .failing = on_failing};
	a->continued = &r->base;
	return a;
}

/* Restores what was decided when the answer began. */
static void take_over(struct answer *a, const struct resume_head *h, bool stop)
{
	const json_t *quota = json_object_get(h->json, "quota");
	struct quota_ticket *t = &a->continued->ticket;
	int64_t left = number_of(h->json, "tokens_left");
	const char *id = text_of(h->json, "id");
	size_t n = strlen(id) < sizeof a->id ? strlen(id) : sizeof a->id - 1;
	memcpy(a->id, id, n);
	a->id[n] = '\0';
	a->created = number_of(h->json, "created");
	a->max_tokens = (uint32_t)number_of(h->json, "max_tokens");
	a->budget.left = left < 0 ? INT64_MAX : left;
	a->budget.short_by = number_of(h->json, "tokens_short");
	a->load.degraded = strcmp(text_of(h->json, "degraded"), "model") == 0    ? "model"
			   : strcmp(text_of(h->json, "degraded"), "length") == 0 ? "length"
										 : NULL;
	a->load.shortened = is_set(h->json, "shortened");
	a->runs[0].usage.n_cached = (uint32_t)number_of(h->json, "cached");
	a->runs[0].keeps_cached = true;
	a->out.stop_later = stop;
	a->continued->has_ticket = hex_get(text_of(quota, "id"), t->id, sizeof t->id) && !is_set(quota, "local");
	t->requests = number_of(quota, "requests");
	t->tokens = number_of(quota, "tokens");
}

/* cascade: as it was saved; NULL: one model answers. */
static int start_again(struct answer *a, const struct resume_head *h, struct proto_submit *s, const json_t *cascade)
{
	struct answer_run *run = &a->runs[0];
	if (cascade != NULL) {
		answer_auto_init(a);
		return resume_cascade_start(a, cascade, s);
	}
	int model = engine_link_find_model(a->app->link, model_of(h));
	s->model = (uint16_t)model;
	a->load.model = model;
	a->n_ctx = engine_link_model(a->app->link, model)->n_ctx;
	int rc = gen_start(a->app->t, s, (uint32_t)a->app->t->cfg->limits.window_tokens, &run->sub, &run->gen);
	if (rc == 0)
		gen_remake(run->gen, a->frame, s, true);
	return rc;
}

static void submit(struct answer *a, const struct resume_head *h, struct proto_submit *s, const json_t *cascade)
{
	/* Stored events need no pacing. */
	if (s->burst < resumed_of(a)->n_there)
		s->burst = (uint32_t)resumed_of(a)->n_there;
	answer_await_queued(a);
	answer_slots_claim(a);
	if (start_again(a, h, s, cascade) != 0)
		answer_refuse(a, &not_continued,
			      "The gateway of this answer stopped, and the engine does not accept it again.");
	else
		metric_add(&replay_m_continued, 1);
}

static void refuse(struct answer *a, const char *message)
{
	metric_add(&replay_m_uncontinued, 1);
	answer_refuse(a, &not_continued, message);
}

int resume_answer(struct gw_app *app, const struct resume_head *h, struct replay_log *log, bool stop)
{
	struct proto_submit s = {.max_tokens = 1, PROTO_SUBMIT_OFF};
	const struct answer_format *format = format_of(h->json);
	bool gone, whole = h->frame != NULL;
	if (whole)
		s = h->frame->s;
	if (format == NULL)
		return SL_EPROTO;
	struct auth_key *key = key_from(app, json_object_get(h->json, "key"), &gone);
	if (gone)
		return SL_EPROTO;
	struct answer *a = key != NULL ? create(app, h, &s, key, format) : NULL;
	auth_key_unref(key);
	if (a == NULL)
		return SL_ENOMEM;
	take_over(a, h, stop);
	resumed_of(a)->n_there = replay_next(log);
	a->out.replaying = resumed_of(a)->n_there > 0;
	a->out.log = log;
	replay_hand_over(log, answer_on_stop, a);
	list_push_back(&app->answers, &a->in_app);
	answer_put_snapshot(a);
	if (format->opened != NULL)
		format->opened(a);
	enum resume_chance chance = whole ? resume_chance(app, h) : RESUME_NEVER;
	const json_t *cascade = json_object_get(h->json, "cascade");
	if (!json_is_object(cascade))
		cascade = NULL;
	if (chance == RESUME_NOW)
		submit(a, h, &s, cascade);
	else
		refuse(a, !whole ? "The gateway of this answer stopped, and this kind of answer cannot be continued."
			  : !draws_alike(h)
			      ? "The gateway of this answer stopped, and this version draws tokens in another way."
			      : "The gateway of this answer stopped, and its model is no longer available.");
	/* After the start: the cascade's head contains the run. */
	answer_open_spool(a, resumed_of(a)->n_there);
	return 0;
}
