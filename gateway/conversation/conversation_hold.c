/* SPDX-License-Identifier: Apache-2.0
 *
 * The states are in conversation_hold.h. A failed renewal changes nothing here: the store checks the token when the
 * turn is added. A turn has one store operation at a time; a call that comes during one waits for its end.
 */
#include "gateway/conversation/conversation_hold.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "gateway/exchange/app_state.h"
#include "gateway/loop/random.h"
#include "gateway/replay/replay.h"

enum { LEASE_MS = CONVERSATION_LEASE_US / 1000, RENEW_MS = 6000 };

enum turn_state { TAKING, HELD, ADDING, FREEING };

struct conversation_turn {
	struct list node; /* in gw_app.turns */
	struct gw_app *app;
	enum turn_state state;
	bool wanted;   /* the caller still expects a callback */
	bool renewing; /* op is a renewal */
	struct cache_op op;
	struct gw_timer timer;
	uint64_t tenant, rev;
	json_t *doc; /* once HELD */
	void (*taken)(void *ctx, const struct conversation_answer *a, json_t *doc);
	void (*added)(void *ctx, int what);
	void *ctx;
	char token[CONVERSATION_TOKEN_BYTES];
	char id[CONVERSATION_ID_BYTES], response[REPLAY_MAX_ID];
};

static struct conversation_turn *of_op(struct cache_op *op) { return list_entry(op, struct conversation_turn, op); }

static struct conversation_ref ref_of(const struct conversation_turn *t)
{
	return (struct conversation_ref){t->app->t->cache, t->tenant, t->id};
}

static void turn_free(struct conversation_turn *t)
{
	cache_cancel(&t->op);
	gw_timer_stop(&t->app->t->timers, &t->timer);
	list_remove(&t->node);
	json_decref(t->doc);
	sl_free(t);
}

void conversation_turns_stop(struct gw_app *app)
{
	while (!list_empty(&app->turns))
		turn_free(list_entry(app->turns.next, struct conversation_turn, node));
}

static void restart(struct conversation_turn *t)
{
	gw_timer_start(&t->app->t->timers, &t->timer, RENEW_MS * NS_PER_MS);
}

/* ---- freeing ---- */

static void on_freed(struct cache_op *op, const struct cache_result *r)
{
	(void)r; /* on failure, the lease expires */
	turn_free(of_op(op));
}

static void set_free(struct conversation_turn *t)
{
	struct conversation_ref c = ref_of(t);
	t->state = FREEING;
	gw_timer_stop(&t->app->t->timers, &t->timer);
	conversation_let(&c, &t->op, t->token, t->response, on_freed);
}

/* ---- adding ---- */

static void on_added(struct cache_op *op, const struct cache_result *r)
{
	struct conversation_turn *t = of_op(op);
	struct conversation_answer a;
	void (*added)(void *ctx, int what) = t->wanted ? t->added : NULL;
	void *ctx = t->ctx;
	conversation_answer_read(r, &a);
	if (a.what < 0)
		log_warn("cannot append a turn to its conversation: %s", sl_code_name(a.what));
	turn_free(t);
	if (added != NULL)
		added(ctx, a.what);
}

static int add(struct conversation_turn *t)
{
	struct conversation_ref c = ref_of(t);
	const struct conversation_change change = {.token = t->token, .rev = t->rev, .doc = t->doc};
	return conversation_save(&c, t->app->t->cfg, &t->op, &change, on_added);
}

/* ---- holding ---- */

static void on_renewed(struct cache_op *op, const struct cache_result *r)
{
	struct conversation_turn *t = of_op(op);
	(void)r;
	t->renewing = false;
	if (t->state == HELD && !t->wanted) {
		set_free(t);
	} else if (t->state == HELD) {
		restart(t);
	} else if (add(t) != 0) {
		void (*added)(void *ctx, int what) = t->wanted ? t->added : NULL;
		void *ctx = t->ctx;
		turn_free(t);
		if (added != NULL)
			added(ctx, SL_ENOMEM);
	}
}

static void on_timer(struct gw_timer *timer)
{
	struct conversation_turn *t = list_entry(timer, struct conversation_turn, timer);
	struct conversation_ref c = ref_of(t);
	t->renewing = true;
	conversation_take(&c, &t->op, t->token, LEASE_MS, NULL, true, on_renewed);
}

static void on_taken(struct cache_op *op, const struct cache_result *r)
{
	struct conversation_turn *t = of_op(op);
	struct conversation_answer a;
	conversation_answer_read(r, &a);
	json_t *doc = a.what == CONVERSATION_OK ? conversation_load(a.doc, a.n_doc) : NULL;
	bool held = a.what == CONVERSATION_OK;
	if (held && t->wanted && doc != NULL) {
		t->state = HELD;
		t->rev = a.rev;
		t->doc = doc;
		restart(t);
		t->taken(t->ctx, &a, doc);
		return;
	}
	json_decref(doc);
	if (t->wanted) {
		if (held)
			a.what = SL_ENOMEM;
		t->wanted = false;
		t->taken(t->ctx, &a, NULL);
	}
	if (held)
		set_free(t);
	else
		turn_free(t);
}

struct conversation_turn *
conversation_turn_take(struct gw_app *app, uint64_t tenant, const char *id, const char *response,
		       void (*taken)(void *ctx, const struct conversation_answer *a, json_t *doc), void *ctx)
{
	struct conversation_turn *t = sl_zalloc(sizeof *t);
	if (t == NULL)
		return NULL;
	t->app = app;
	t->wanted = true;
	t->tenant = tenant;
	t->taken = taken;
	t->ctx = ctx;
	gw_timer_init(&t->timer, on_timer);
	list_push_back(&app->turns, &t->node);
	size_t n_id = strlen(id), n_response = strlen(response);
	BUG_IF(n_id >= sizeof t->id || n_response >= sizeof t->response,
	       "the id of a conversation or response is too long");
	memcpy(t->id, id, n_id + 1);
	memcpy(t->response, response, n_response + 1);
	if (!random_name(t->token)) {
		turn_free(t);
		return NULL;
	}
	struct conversation_ref c = ref_of(t);
	conversation_take(&c, &t->op, t->token, LEASE_MS, response, false, on_taken);
	return t;
}

int conversation_turn_add(struct conversation_turn *t, json_t *items, void (*added)(void *ctx, int what), void *ctx)
{
	BUG_IF(t->state != HELD, "conversation: a turn is added in state %d", t->state);
	if (json_object_set(t->doc, "items", items) != 0)
		return SL_ENOMEM;
	t->added = added;
	t->ctx = ctx;
	gw_timer_stop(&t->app->t->timers, &t->timer);
	if (!t->renewing && add(t) != 0)
		return SL_ENOMEM;
	t->state = ADDING;
	return 0;
}

void conversation_turn_keep(struct conversation_turn *t)
{
	if (t != NULL)
		t->response[0] = '\0';
}

void conversation_turn_drop(struct conversation_turn *t)
{
	if (t == NULL)
		return;
	t->wanted = false;
	if (t->state == HELD && !t->renewing)
		set_free(t);
}
