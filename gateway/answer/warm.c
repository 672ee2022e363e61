/* SPDX-License-Identifier: Apache-2.0
 *
 *   REST ──another epoch──► CLAIMING ──ours──► LISTING ──► LOADING … ──► WAITING ⇄ READING → RUNNING → NOTING
 *    ▲                         │ another's: look again later              │ nothing left
 *    └──────── done by them ───┴───────────────────────────────────────────┘ (DONE is written)
 *
 * An epoch is new with each start of the engine, and when another variant of a model gets most of its users: then the
 * prompts are computed by that one, whose answers continue them from now on. The gateway that puts the epoch's lease
 * first warms; the lease is renewed with each prompt, so that another thread takes over from one that died, and becomes
 * a mark that stays when all is done. Prompts are made again from stored responses, as the next turn will make them:
 * the same messages (compared by digest), and the answer to them.
 *
 * Other work goes first: a prompt is submitted only when two looks in a row found the engine idle, and is
 * cancelled when anything else shows up (what was computed of it stays in the engine's tree). It is tried
 * again at most so often.
 */
#include "gateway/answer/warm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "gateway/answer/response.h"
#include "gateway/auth/snapshot.h"
#include "gateway/variant/variant.h"

enum {
	VERSION = 1, /* of the lease */
	LEASE_MS = 30000,
	RENEW_MS = 10000,
	MARK_MS = 24 * 3600 * 1000,
	TICK_MS = 250,
	RUNNING_TICK_MS = 50,
	AGAIN_MS = 5000,
	MOST_MS = 60000, /* of one prompt */
	MOST_TRIES = 8,
	LISTED_EACH = 4, /* so many entries are looked at for each that is warmed */
	NOTES = 16,
	LAST_PRIORITY = 255,
	HALF_LIFE_S = 1800,
};

enum warm_state { REST, CLAIMING, LISTING, LOADING, WAITING, READING, RUNNING, NOTING };

struct note {
	struct cache_op op;
	struct warm *of;
	uint64_t tenant;
	char instead[PREFIX_NAME_BYTES];
};

struct warm {
	struct gw_app *app;
	enum warm_state state;
	struct gw_timer timer;
	struct cache_op op;
	uint64_t epoch, done_epoch; /* which is worked on; nothing is left to do for */
	uint64_t not_before_ns, since_ns, renewed_ns;
	char (*digests)[CACHE_DIGEST_LEN]; /* of entries; owned */
	size_t n_digests, at_digest;
	struct prefix_entry *entries; /* owned */
	size_t n_entries, at;
	unsigned idle_looks, tries;
	uint64_t sequence; /* while RUNNING */
	size_t n_warmed;
	struct note notes[NOTES];
};

COUNTER(warmed, "sluice_prefixes_warmed_total",
	"Prompts of conversations computed again after a restart of the engine");
COUNTER(warmed_tokens, "sluice_prefix_tokens_warmed_total", "Tokens of those prompts");
COUNTER(interrupted, "sluice_prefixes_interrupted_total",
	"Times that one was put off because the engine had other work");

static struct warm *of_op(struct cache_op *op)
{
	return (struct warm *)(void *)((char *)op - offsetof(struct warm, op));
}

/* ---- the registry ---- */

static void on_old_forgotten(struct cache_op *op, const struct cache_result *r)
{
	(void)op;
	(void)r;
}

static void on_noted(struct cache_op *op, const struct cache_result *r)
{
	struct note *n = (struct note *)(void *)((char *)op - offsetof(struct note, op));
	if (r->code == 0 && n->instead[0] != '\0')
		prefix_forget(n->of->app->t->cache, &n->op, n->tenant, n->instead, on_old_forgotten);
}

void warm_note(struct warm *w, const struct prefix_entry *e, const char *instead)
{
	if (w->app->t->cfg->warm == 0)
		return;
	for (size_t i = 0; i < NOTES; i++) {
		struct note *n = &w->notes[i];
		if (cache_op_busy(&n->op))
			continue;
		n->of = w;
		n->tenant = e->tenant;
		snprintf(n->instead, sizeof n->instead, "%s", instead != NULL ? instead : "");
		prefix_put(w->app->t->cache, &n->op, e, on_noted);
		return;
	}
}

uint64_t warm_epoch(const struct gw_app *app)
{
	return engine_link_epoch(app->link) ^ variants_heaviest(app->now->variants);
}

/* The model that will be asked for the next turn. -1: there is none. */
static int model_of(const struct warm *w, const struct prefix_entry *e)
{
	return engine_link_find_model(w->app->link, variants_successor(w->app->now->variants, e->model));
}

/* ---- the lease ---- */

static void lease_key(const struct warm *w, struct cache_key *key)
{
	cache_key_make(key, CACHE_SHARED, prefix_registry, &w->epoch, sizeof w->epoch);
}

static void restart(struct warm *w, uint64_t ms) { gw_timer_start(&w->app->t->timers, &w->timer, ms * NS_PER_MS); }

static void clear(struct warm *w)
{
	cache_cancel(&w->op);
	if (w->state == RUNNING)
		engine_link_forget(w->app->link, w->sequence);
	sl_free(w->digests);
	sl_free(w->entries);
	w->digests = NULL;
	w->entries = NULL;
	w->n_digests = w->at_digest = w->n_entries = w->at = w->n_warmed = 0;
	w->idle_looks = w->tries = 0;
}

static void rest(struct warm *w, uint64_t ms)
{
	clear(w);
	w->state = REST;
	w->not_before_ns = clock_now_ns() + ms * NS_PER_MS;
}

static void on_marked(struct cache_op *op, const struct cache_result *r)
{
	struct warm *w = of_op(op);
	(void)r;
	w->done_epoch = w->epoch;
	rest(w, 0);
}

static void finish(struct warm *w)
{
	struct cache_key key;
	if (w->n_entries > 0)
		log_info("%zu of %zu prompts of conversations were computed again", w->n_warmed, w->n_entries);
	lease_key(w, &key);
	cache_put(w->app->t->cache, &w->op, &key, VERSION, "d", 1, MARK_MS, on_marked);
}

/* ---- the hottest ---- */

/* Uses, halved with every half an hour. */
static double heat(const struct prefix_entry *e)
{
	int64_t age = clock_unix_s() - e->used_s;
	return (double)e->uses * exp2(-(double)(age > 0 ? age : 0) / HALF_LIFE_S);
}

static int hotter(const void *a, const void *b)
{
	double x = heat(a), y = heat(b);
	return x > y ? -1 : x < y;
}

static void await_idle(struct warm *w)
{
	w->state = WAITING;
	w->idle_looks = 0;
}

static void load_next(struct warm *w);

static void on_entry(struct cache_op *op, const struct cache_result *r)
{
	struct warm *w = of_op(op);
	struct prefix_entry *e = &w->entries[w->n_entries];
	if (r->code == 0 && prefix_read(r->bytes, r->n, e) && e->epoch != w->epoch)
		w->n_entries++;
	load_next(w);
}

static void load_next(struct warm *w)
{
	struct cache_key key;
	size_t most = (size_t)w->app->t->cfg->warm;
	while (w->at_digest < w->n_digests) {
		const char *digest = w->digests[w->at_digest++];
		if (cache_key_from_digest(&key, CACHE_SESSION, prefix_registry, digest, CACHE_DIGEST_LEN) == 0) {
			cache_get(w->app->t->cache, &w->op, &key, PREFIX_VERSION, on_entry);
			return;
		}
	}
	if (w->n_entries > 1)
		qsort(w->entries, w->n_entries, sizeof *w->entries, hotter);
	if (w->n_entries > most)
		w->n_entries = most;
	await_idle(w);
}

static void on_listed(struct cache_op *op, const struct cache_result *r)
{
	struct warm *w = of_op(op);
	size_t most = (size_t)w->app->t->cfg->warm * LISTED_EACH, n = r->n_items < most ? r->n_items : most;
	if (r->code != 0) {
		rest(w, AGAIN_MS);
		return;
	}
	/* The last are those that were used last. */
	w->digests = sl_zalloc_n(n + 1, sizeof *w->digests);
	w->entries = sl_zalloc_n(n + 1, sizeof *w->entries);
	if (w->digests == NULL || w->entries == NULL) {
		rest(w, AGAIN_MS);
		return;
	}
	for (size_t i = r->n_items - n; i < r->n_items; i++)
		if (r->items[i].n == CACHE_DIGEST_LEN)
			memcpy(w->digests[w->n_digests++], r->items[i].bytes, CACHE_DIGEST_LEN);
	w->state = LOADING;
	load_next(w);
}

static void on_claimed(struct cache_op *op, const struct cache_result *r)
{
	struct warm *w = of_op(op);
	if (r->code != 0) {
		rest(w, AGAIN_MS);
	} else if (r->found) {
		if (r->n == 1 && r->bytes[0] == 'd')
			w->done_epoch = w->epoch;
		rest(w, AGAIN_MS);
	} else {
		w->state = LISTING;
		cache_list(w->app->t->cache, &w->op, CACHE_SESSION, prefix_registry, on_listed);
	}
}

static void claim(struct warm *w)
{
	struct cache_key key;
	w->epoch = warm_epoch(w->app);
	w->state = CLAIMING;
	lease_key(w, &key);
	cache_put_absent(w->app->t->cache, &w->op, &key, VERSION, "r", 1, LEASE_MS, on_claimed);
}

/* ---- one prompt ---- */

static void go_on(struct warm *w)
{
	w->at++;
	w->tries = 0;
	await_idle(w);
}

static void on_renoted(struct cache_op *op, const struct cache_result *r)
{
	(void)r;
	go_on(of_op(op));
}

static void on_done(void *ctx, const struct proto_done *m)
{
	struct warm *w = ctx;
	struct prefix_entry *e = &w->entries[w->at];
	w->state = NOTING;
	if (m->error != PROTO_ERR_NONE || m->finish != PROTO_FINISH_LENGTH) {
		go_on(w);
		return;
	}
	w->n_warmed++;
	metric_add(&warmed, 1);
	metric_add(&warmed_tokens, (int64_t)m->n_prompt - m->n_cached);
	e->epoch = w->epoch;
	e->n_prompt = m->n_prompt;
	const char *model = variants_successor(w->app->now->variants, e->model);
	if (model != e->model)
		snprintf(e->model, sizeof e->model, "%s", model);
	prefix_put(w->app->t->cache, &w->op, e, on_renoted);
}

static void on_lost(void *ctx)
{
	struct warm *w = ctx;
	w->state = REST; /* its sequence has gone */
	rest(w, 0);
}

static const struct link_listener listener = {.on_done = on_done, .on_lost = on_lost};

static void submit(struct warm *w, int model, const struct sl_buf *messages)
{
	const struct prefix_entry *e = &w->entries[w->at];
	const struct proto_submit s = {PROTO_SUBMIT_OFF,
				       .model = (uint16_t)model,
				       .prompt_kind = PROTO_PROMPT_CHAT,
				       .flags = PROTO_SUBMIT_PREFILL_ONLY,
				       .priority = LAST_PRIORITY,
				       .tenant = e->tenant,
				       .top_p = 1,
				       .max_tokens = 1,
				       .prompt = {(const char *)buf_data(messages), messages->len}};
	if (engine_link_submit(w->app->link, &s, &listener, w, &w->sequence) != 0) {
		go_on(w);
		return;
	}
	w->state = RUNNING;
	w->since_ns = clock_now_ns();
	engine_link_credit(w->app->link, w->sequence, 1);
	restart(w, RUNNING_TICK_MS);
}

/* The prompt of the stored response, when it is still that, and then with the answer to it. */
static int make_messages(const struct prefix_entry *e, json_t *record, struct sl_buf *out)
{
	json_t *items = json_object_get(record, "items"), *response = json_object_get(record, "response");
	struct response_request r = {.instructions = json_string_value(json_object_get(response, "instructions")),
				     .cleanse = (enum cleanse_level)e->cleanse};
	struct request_error err;
	r.input = json_array();
	int rc = r.input != NULL ? response_messages(&r, items, out, &err) : SL_ENOMEM;
	if (rc == 0 && prefix_digest(buf_data(out), out->len) != e->digest)
		rc = SL_ENOTFOUND;
	buf_clear(out, 0);
	if (rc == 0)
		rc = json_array_extend(items, json_object_get(response, "output")) == 0 ? 0 : SL_ENOMEM;
	if (rc == 0)
		rc = response_messages(&r, items, out, &err);
	json_decref(r.input);
	return rc;
}

/* Nothing is read into memory for it: a model on demand that is absent is left alone. */
static bool is_here(const struct warm *w, int model)
{
	return model >= 0 && engine_link_model(w->app->link, model)->residence == PROTO_RESIDENCE_HERE;
}

static void on_record(struct cache_op *op, const struct cache_result *r)
{
	struct warm *w = of_op(op);
	const struct prefix_entry *e = &w->entries[w->at];
	json_t *record = r->code == 0 ? response_record_read(r->bytes, r->n) : NULL;
	int model = model_of(w, e);
	struct sl_buf messages;
	buf_init(&messages, REQUEST_MAX_PROMPT);
	if (record != NULL && is_here(w, model) && make_messages(e, record, &messages) == 0)
		submit(w, model, &messages);
	else
		go_on(w);
	buf_dispose(&messages);
	json_decref(record);
}

static void on_renewed(struct cache_op *op, const struct cache_result *r)
{
	struct warm *w = of_op(op);
	const struct prefix_entry *e = &w->entries[w->at];
	const struct auth_key who = {.tenant = e->tenant};
	struct cache_key key;
	(void)r;
	response_key(&key, &who, e->response);
	cache_get(w->app->t->cache, &w->op, &key, RESPONSE_VERSION, on_record);
}

static void begin(struct warm *w)
{
	struct cache_key key;
	w->state = READING;
	w->tries++;
	w->renewed_ns = clock_now_ns();
	lease_key(w, &key);
	cache_put(w->app->t->cache, &w->op, &key, VERSION, "r", 1, LEASE_MS, on_renewed);
}

/* ---- looking ---- */

/* LOADING: it may yet be READY. */
static bool may_serve(const struct warm *w, const struct prefix_entry *e)
{
	int i = model_of(w, e);
	return i >= 0 && engine_link_model(w->app->link, i)->state != PROTO_MODEL_FAILED;
}

static bool is_ready(const struct warm *w, const struct prefix_entry *e)
{
	int i = model_of(w, e);
	return engine_link_model(w->app->link, i)->state == PROTO_MODEL_READY;
}

static void on_kept(struct cache_op *op, const struct cache_result *r)
{
	(void)op;
	(void)r; /* losing the lease meanwhile does no harm: both find the pages there */
}

/* The engine is busy for long: the lease is renewed meanwhile. */
static void keep(struct warm *w)
{
	struct cache_key key;
	w->renewed_ns = clock_now_ns();
	lease_key(w, &key);
	cache_put(w->app->t->cache, &w->op, &key, VERSION, "r", 1, LEASE_MS, on_kept);
}

static void look_for_idleness(struct warm *w)
{
	if (cache_op_busy(&w->op))
		return;
	const struct proto_stats *st = engine_link_stats(w->app->link);
	bool idle = st->running == 0 && st->waiting == 0;
	while (w->at < w->n_entries && (!may_serve(w, &w->entries[w->at]) || w->tries >= MOST_TRIES)) {
		w->at++;
		w->tries = 0;
	}
	if (w->at == w->n_entries) {
		finish(w);
		return;
	}
	w->idle_looks = idle && is_ready(w, &w->entries[w->at]) ? w->idle_looks + 1 : 0;
	if (w->idle_looks >= 2)
		begin(w);
	else if (clock_now_ns() - w->renewed_ns > RENEW_MS * NS_PER_MS)
		keep(w);
}

static void look_at_running(struct warm *w)
{
	const struct proto_stats *st = engine_link_stats(w->app->link);
	bool late = clock_now_ns() - w->since_ns > MOST_MS * NS_PER_MS;
	if (!late && st->running + st->waiting <= 1)
		return;
	engine_link_forget(w->app->link, w->sequence);
	metric_add(&interrupted, 1);
	if (late)
		w->tries = MOST_TRIES;
	await_idle(w);
}

static bool any_ready(const struct warm *w)
{
	for (int i = 0; i < engine_link_n_models(w->app->link); i++)
		if (engine_link_model(w->app->link, i)->state == PROTO_MODEL_READY)
			return true;
	return false;
}

static void on_timer(struct gw_timer *timer)
{
	struct warm *w = list_entry(timer, struct warm, timer);
	const struct engine_link *link = w->app->link;
	bool up = link != NULL && engine_link_up(link) && w->app->t->cfg->warm > 0 && !w->app->t->draining;
	/* What was begun for an engine that has gone is of no use. */
	if (w->state != REST && (!up || warm_epoch(w->app) != w->epoch))
		rest(w, 0);
	else if (w->state == REST && up && warm_epoch(w->app) != w->done_epoch && any_ready(w) &&
		 clock_now_ns() >= w->not_before_ns)
		claim(w);
	else if (w->state == WAITING)
		look_for_idleness(w);
	else if (w->state == RUNNING)
		look_at_running(w);
	restart(w, w->state == RUNNING ? RUNNING_TICK_MS : TICK_MS);
}

/* ---- life ---- */

struct warm *warm_create(struct gw_app *app)
{
	struct warm *w = sl_zalloc(sizeof *w);
	if (w == NULL)
		return NULL;
	w->app = app;
	gw_timer_init(&w->timer, on_timer);
	restart(w, TICK_MS);
	return w;
}

void warm_destroy(struct warm *w)
{
	if (w == NULL)
		return;
	clear(w);
	gw_timer_stop(&w->app->t->timers, &w->timer);
	for (size_t i = 0; i < NOTES; i++)
		cache_cancel(&w->notes[i].op);
	sl_free(w);
}
