/* SPDX-License-Identifier: Apache-2.0
 *
 * An answer whose gateway has died continues in another. No engine state is kept, and none is
 * needed: the same SUBMIT with the same seed makes the same tokens, whatever runs beside it, and the events of
 * a logged answer depend on its tokens alone. So it is made again from its first token, and what the store has is
 * compared and dropped; what was sent but had not reached the store comes again byte for byte under the same
 * numbers. If an event differs (another model under the same name, another version), the stream ends with an error
 * rather than with a text that does not fit.
 *
 * The head is JSON, a zero byte and the SUBMIT as a frame. It is written when the log opens: what is decided
 * before (the seed that was drawn, the model, the tokens that its key has left) is in it, what is decided after
 * by time is not: the deadline begins anew. The reservation of its limits goes on under its own name (quota.h), so
 * that nothing is charged twice.
 *
 * What can't be continued: several choices or prompts, whose events come in the order in which the engine
 * makes them; completions that echo; requests too large for one value of the store; answers of the cascade that joined
 * another's, and those of two models with different tokenizers (the others: answer_cascade_resume.c).
 */
#include "gateway/answer/answer_priv.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "gateway/request/json_mem.h"
#include "gateway/replay/replay_store_priv.h"
#include "gateway/request/request_fields.h"
#include "gateway/answer/response.h"
#include "gateway/auth/snapshot.h"

struct answer_resume {
	uint64_t n_there; /* events that the store had */
	uint64_t at;      /* the number of the one that is rendered next, up to there */
	bool stop;        /* at its end, once it is there */
	bool has_ticket;
	struct quota_ticket ticket;
};

static const struct api_error differs = {500, "server_error", "not_continued", NULL, 0};
static const struct api_error cant_go_on = {503, "server_error", "not_continued", NULL, 0};

static const struct answer_format *const formats[] = {&answer_chat, &answer_completion, &answer_response};

/* ---- writing the head ---- */

void answer_keep_frame(struct answer *a, struct submit_frame *frame)
{
	if (a->out.logged && replay_store_on(a->app->replay_store) && answer_n_choices(a) == 1 && a->n_made == 1 &&
	    (a->own == NULL || a->format->save != NULL))
		a->frame = submit_frame_ref(frame);
}

static void drop_frame(struct answer *a)
{
	submit_frame_unref(a->frame);
	a->frame = NULL;
}

static void hex_of(const uint8_t *bytes, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < n; i++) {
		*out++ = digits[bytes[i] >> 4];
		*out++ = digits[bytes[i] & 15];
	}
	*out = '\0';
}

static bool from_hex(const char *text, uint8_t *out, size_t n)
{
	if (text == NULL || strlen(text) != 2 * n || strspn(text, "0123456789abcdef") != 2 * n)
		return false;
	for (size_t i = 0; i < n; i++) {
		char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};
		out[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
	return true;
}

static json_t *key_of(const struct answer *a)
{
	const struct auth_key *k = a->key;
	char tenant[17];
	hex_of((const uint8_t *)&k->tenant, sizeof k->tenant, tenant);
	return json_pack("{s:s, s:i, s:s, s:s, s:s, s:s}", "name", k->name, "kind", (int)k->kind, "tier", k->tier->name,
			 "tenant_name", k->tenant_name, "subject", k->subject, "tenant", tenant);
}

static json_t *ticket_of(const struct answer *a)
{
	struct quota_ticket t;
	char id[2 * sizeof t.id + 1];
	if (a->budget.quota != NULL)
		quota_ticket(a->budget.quota, &t);
	else if (a->again != NULL && a->again->has_ticket)
		t = a->again->ticket;
	else
		return json_null();
	hex_of(t.id, sizeof t.id, id);
	return json_pack("{s:s, s:I, s:I, s:b}", "id", id, "requests", (json_int_t)t.requests, "tokens",
			 (json_int_t)t.tokens, "local", t.local);
}

static uint32_t cached_of(const struct answer *a)
{
	if (a->runs[0].keeps_cached)
		return a->runs[0].usage.n_cached;
	return a->runs[0].cascade != NULL ? cascade_run_cached(a->runs[0].cascade)
					  : gen_queued(a->runs[0].gen)->n_cached;
}

/* A new reference; NULL: no memory. */
static json_t *describe(const struct answer *a)
{
	json_t *own = a->format->save != NULL ? a->format->save(a) : json_null();
	/* Of what was granted; what was sent since will be sent again. */
	int64_t left =
	    a->budget.left == INT64_MAX ? -1 : a->budget.left + (a->out.replaying ? 0 : (int64_t)a->budget.told);
	return json_pack("{s:s, s:s, s:I, s:s, s:s, s:b, s:b, s:b, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:s?, s:b, s:s?, "
			 "s:o, s:o, s:o, s:o}",
			 "owner", replay_store_owner(a->app->replay_store), "id", a->id, "created",
			 (json_int_t)a->created, "model", a->model, "format", a->format->id_prefix, "stream",
			 a->out.stream, "usage", a->out.include_usage, "obfuscate", a->out.obfuscate, "background",
			 a->out.background, "keep_text", a->out.keep_text, "ids", a->out.ids, "max_tokens",
			 (json_int_t)a->max_tokens, "cached", (json_int_t)cached_of(a), "tokens_left", (json_int_t)left,
			 "tokens_short", (json_int_t)a->budget.short_by, "degraded", a->load.degraded, "shortened",
			 a->load.shortened || a->load.short_at != UINT64_MAX, "told", a->told, "key", key_of(a),
			 "quota", ticket_of(a), "own", own, "cascade", answer_auto_save(a));
}

/* With the seed of its generation. */
static int put_frame(const struct answer *a, struct sl_buf *out)
{
	if (a->frame == NULL)
		return 0;
	struct proto_submit s = a->frame->s;
	if (a->runs[0].gen != NULL)
		s.seed = gen_seed(a->runs[0].gen);
	/* What load has made of it. */
	if (s.max_tokens > a->max_tokens)
		s.max_tokens = a->max_tokens;
	if (s.min_tokens > s.max_tokens)
		s.min_tokens = s.max_tokens;
	return proto_put_submit(out, 0, &s);
}

static int put_head(const struct answer *a, struct sl_buf *out)
{
	json_t *o = describe(a);
	int rc = o != NULL ? request_put_json(out, o) : SL_ENOMEM;
	json_decref(o);
	if (rc == 0)
		rc = buf_append(out, "", 1);
	return rc == 0 ? put_frame(a, out) : rc;
}

void answer_open_spool(struct answer *a, uint64_t from)
{
	struct sl_buf head;
	a->out.spooled = true;
	if (!replay_store_on(a->app->replay_store))
		return;
	if (!answer_auto_repeats(a))
		drop_frame(a);
	buf_init(&head, ANSWER_MAX_WHOLE);
	if (put_head(a, &head) == 0)
		a->out.spool = spool_open(a->app->replay_store, a->out.log, a->key->tenant, from, buf_data(&head),
					  head.len, a->out.background);
	if (a->out.spool == NULL)
		log_warn("a stream is kept in this process only: no memory");
	buf_dispose(&head);
	/* That of the cascade will be written again. */
	if (!a->automatic || a->out.spool == NULL)
		drop_frame(a);
}

bool answer_rewrite_head(struct answer *a, void (*saved)(void *ctx))
{
	struct sl_buf head;
	bool is_on_its_way = false;
	if (a->out.spool == NULL || a->frame == NULL || a->runs[0].gen == NULL)
		return false;
	buf_init(&head, ANSWER_MAX_WHOLE);
	if (put_head(a, &head) == 0)
		is_on_its_way = spool_rewrite(a->out.spool, buf_data(&head), head.len, saved, a);
	buf_dispose(&head);
	return is_on_its_way;
}

/* ---- reading it ---- */

int answer_head_read(struct answer_head *h, const uint8_t *bytes, size_t n)
{
	json_error_t where;
	*h = (struct answer_head){0};
	size_t text = strnlen((const char *)bytes, n);
	h->json = json_mem_load((const char *)bytes, text, JSON_ALLOW_NUL, &where);
	if (h->json == NULL)
		return where.text[0] != '\0' ? SL_EPROTO : SL_ENOMEM;
	h->owner = json_string_value(json_object_get(h->json, "owner"));
	if (h->owner == NULL || strlen(h->owner) >= REPLAY_OWNER_CHARS) {
		answer_head_dispose(h);
		return SL_EPROTO;
	}
	if (text + 1 < n && submit_frame_read(bytes + text + 1, n - text - 1, &h->frame) == SL_ENOMEM) {
		answer_head_dispose(h);
		return SL_ENOMEM;
	}
	return 0;
}

void answer_head_dispose(struct answer_head *h)
{
	json_decref(h->json);
	submit_frame_unref(h->frame);
	*h = (struct answer_head){0};
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

static const struct answer_format *format_of(const json_t *o)
{
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
		if (strcmp(formats[i]->id_prefix, text_of(o, "format")) == 0)
			return formats[i];
	return NULL;
}

enum answer_chance answer_resume_chance(const struct gw_app *app, const struct answer_head *h)
{
	const json_t *cascade = json_object_get(h->json, "cascade");
	if (h->frame == NULL)
		return ANSWER_MAY_NEVER;
	if (!engine_link_up(app->link) || app->t->draining)
		return ANSWER_MAY_LATER;
	if (json_is_object(cascade))
		return answer_auto_chance(app, cascade);
	int model = engine_link_find_model(app->link, text_of(h->json, "model"));
	if (model < 0)
		return engine_link_n_models(app->link) > 0 ? ANSWER_MAY_NEVER : ANSWER_MAY_LATER;
	switch ((enum proto_model_state)engine_link_model(app->link, model)->state) {
	case PROTO_MODEL_READY: return ANSWER_MAY_GO_ON;
	case PROTO_MODEL_LOADING: return ANSWER_MAY_LATER;
	case PROTO_MODEL_FAILED: break;
	}
	return ANSWER_MAY_NEVER;
}

/* The key: as the configuration has it now, or as it was. With a reference; NULL: no memory, or its tier is
 * gone (*gone). */
static struct auth_key *key_from(const struct gw_app *app, const json_t *key, bool *gone)
{
	const char *name = text_of(key, "name");
	uint64_t tenant = 0;
	*gone = false;
	if (!from_hex(text_of(key, "tenant"), (uint8_t *)&tenant, sizeof tenant)) {
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

/* ---- going on ---- */

static void on_adopted(void *ctx, struct quota *q, const struct quota_result *r)
{
	struct answer *a = ctx;
	a->budget.quota = r->admitted ? q : NULL;
	if (r->admitted)
		answer_admit(a);
	else
		answer_charge(a);
}

/* What the other gateway reserved is taken over. */
static void adopt(struct answer *a)
{
	int rc = 0;
	if (a->again->has_ticket)
		rc = quota_adopt(&a->app->quotas, a->key, &a->again->ticket, on_adopted, a, &a->budget.quota);
	else
		answer_charge(a);
	if (rc < 0)
		answer_refuse(a, &answer_no_memory, answer_no_memory_text);
	else if (rc > 0)
		answer_admit(a);
}

/* No limit but the quota's: the other gateway admitted it. */
static void on_queued(struct subscriber *s)
{
	struct answer_run *run = list_entry(s, struct answer_run, sub);
	run->n_prompt = gen_queued(run->gen)->n_prompt;
	if (run->answer->state != ANSWER_WAITING)
		return;
	run->queued = true;
	adopt(run->answer);
}

static struct answer *create(struct gw_app *app, const struct answer_head *h, const struct proto_submit *s,
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
				   .submit = s,
				   .told = json_string_value(json_object_get(h->json, "told")),
				   .n_prompts = 1};
	if (format->restore != NULL && (spec.own = format->restore(own)) == NULL)
		return NULL;
	struct answer *a = answer_create(app, NULL, app->now, key, &spec);
	if (a == NULL) {
		if (spec.own != NULL)
			format->dispose(spec.own);
		return NULL;
	}
	a->again = sl_zalloc(sizeof *a->again);
	a->runs[0].sub.on_queued = on_queued;
	answer_load_exempt(a);
	sl_free(a->model);
	a->model = sl_strdup(text_of(h->json, "model"));
	a->frame = submit_frame_ref(h->frame);
	if (a->again == NULL || a->model == NULL) {
		answer_free(a);
		return NULL;
	}
	return a;
}

/* What was decided when it began. */
static void take_over(struct answer *a, const struct answer_head *h, bool stop)
{
	const json_t *quota = json_object_get(h->json, "quota");
	struct quota_ticket *t = &a->again->ticket;
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
	a->again->stop = stop;
	a->again->has_ticket = from_hex(text_of(quota, "id"), t->id, sizeof t->id) && !is_set(quota, "local");
	t->requests = number_of(quota, "requests");
	t->tokens = number_of(quota, "tokens");
}

/* cascade: as it was saved; NULL: one model answers. */
static int start_again(struct answer *a, struct proto_submit *s, const json_t *cascade)
{
	struct answer_run *run = &a->runs[0];
	int model = cascade == NULL ? engine_link_find_model(a->app->link, a->model) : 0;
	if (cascade != NULL) {
		a->automatic = true;
		answer_auto_model(a, &a->n_ctx, &model);
		return answer_auto_again(a, cascade, s);
	}
	s->model = (uint16_t)model;
	a->load.model = model;
	a->n_ctx = engine_link_model(a->app->link, model)->n_ctx;
	return gen_start(a->app->t, s, (uint32_t)a->app->t->cfg->limits.window_tokens, &run->sub, &run->gen);
}

static void submit(struct answer *a, struct proto_submit *s, const json_t *cascade)
{
	struct gw_thread *t = a->app->t;
	/* Up to where it was it need not be paced. */
	if (s->burst < a->again->n_there)
		s->burst = (uint32_t)a->again->n_there;
	answer_restart_timer(a, t->cfg->limits.submit_wait_ms);
	answer_slots_claim(a);
	if (start_again(a, s, cascade) != 0)
		answer_refuse(a, &cant_go_on,
			      "The gateway of this answer stopped, and the engine does not take it again.");
	else
		metric_add(&replay_m_continued, 1);
}

static void refuse(struct answer *a, const char *message)
{
	metric_add(&replay_m_uncontinued, 1);
	answer_refuse(a, &cant_go_on, message);
}

int answer_resume(struct gw_app *app, const struct answer_head *h, struct replay_log *log, bool stop)
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
	a->again->n_there = replay_next(log);
	a->out.replaying = a->again->n_there > 0;
	a->out.log = log;
	replay_hand_over(log, answer_on_stop, a);
	list_push_back(&app->answers, &a->in_app);
	answer_put_snapshot(a);
	if (format->opened != NULL)
		format->opened(a);
	enum answer_chance chance = whole ? answer_resume_chance(app, h) : ANSWER_MAY_NEVER;
	const json_t *cascade = json_object_get(h->json, "cascade");
	if (!json_is_object(cascade))
		cascade = NULL;
	if (chance == ANSWER_MAY_GO_ON)
		submit(a, &s, cascade);
	else
		refuse(a, whole ? "The gateway of this answer stopped, and its model is not there any more."
				: "The gateway of this answer stopped, and it is not one that can be gone on with.");
	/* Of the cascade the head is made of the run. */
	answer_open_spool(a, a->again->n_there);
	return 0;
}

/* ---- up to where the other gateway was ---- */

void answer_resume_catch_up(struct answer *a)
{
	if (a->again == NULL)
		return;
	replay_break(a->out.log);
	if (!a->out.replaying)
		return;
	a->out.replaying = false;
	if (a->format->renumber != NULL)
		a->format->renumber(a, a->again->n_there);
}

static void fail_differing(struct answer *a)
{
	log_error("an answer is not what it was: its event %llu differs", (unsigned long long)a->again->at);
	metric_add(&replay_m_uncontinued, 1);
	answer_leave_runs(a);
	buf_clear(&a->out.carry, 0);
	answer_set_failure(a, &differs, "The gateway of this answer stopped, and the engine now gives another answer.");
	a->settling = false;
	a->stage = ANSWER_SETTLE;
}

void answer_resume_drop(struct answer *a)
{
	while (a->out.replaying && a->out.carry.len > 0) {
		const char *event = (const char *)buf_data(&a->out.carry),
			   *end = memmem(event, a->out.carry.len, "\n\n", 2);
		BUG_IF(end == NULL, "a part of an event is rendered");
		size_t n = (size_t)(end + 2 - event);
		if (!replay_matches(a->out.log, a->again->at, event, n)) {
			fail_differing(a);
			return;
		}
		a->out.replaying = ++a->again->at < a->again->n_there;
		buf_consume(&a->out.carry, n);
		if (!a->out.replaying && a->budget.left != INT64_MAX) {
			int64_t left = a->budget.left - (int64_t)a->budget.told;
			a->budget.left = left > 0 ? left : 1; /* then more are asked for */
		}
	}
}

void answer_resume_stop_later(struct answer *a) { a->again->stop = true; }

bool answer_resume_must_stop(struct answer *a)
{
	if (a->again == NULL || !a->again->stop || a->out.replaying || a->state != ANSWER_RUNNING)
		return false;
	a->again->stop = false;
	return true;
}

void answer_resume_free(struct answer *a) { sl_free(a->again); }

bool answer_can_be_left(const struct answer *a)
{
	const struct gw_thread *t = a->app->t;
	return a->out.log != NULL && a->x == NULL && a->end == ANSWER_UNDECIDED && !a->sharing.alone && t->draining &&
	       (a->out.background || t->replaced) && spool_works(a->out.spool);
}
