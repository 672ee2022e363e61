/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/generation/succession.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "gateway/generation/engine_link_priv.h"
#include "gateway/loop/thread.h"

enum { LOOK_MS = 20, LAST_PRIORITY = 255 };

COUNTER(switched, "sluice_engine_successions_total",
	"Times that a thread's requests went over to a new process of an engine");
COUNTER(warmed, "sluice_succession_prompts_total", "Hot prompts that a new process computed before it got requests");

/* ---- warming ---- */

static void on_warm_end(struct succession *s) { s->n_warming -= s->n_warming > 0; }

static void on_done(void *ctx, const struct proto_done *m)
{
	on_warm_end(ctx);
	if (m->error == PROTO_ERR_NONE)
		metric_add(&warmed, 1);
}

static void on_lost(void *ctx) { on_warm_end(ctx); }

static const struct link_listener listener = {.on_done = on_done, .on_lost = on_lost};

/* The heir's number of a model of the list; -1: it has none that is READY and in memory. */
static int heirs_model(const struct engine_link *l, const struct engine_conn *heir, uint16_t model)
{
	for (int i = 0; i < engine_conn_n_models(heir); i++) {
		const struct link_model *m = engine_conn_model(heir, i);
		if (m->state == PROTO_MODEL_READY && m->residence == PROTO_RESIDENCE_HERE &&
		    strcmp(m->name, l->names_of[model]) == 0)
			return i;
	}
	return -1;
}

static void warm_one(struct engine_link *l, struct succession *s, const struct hot_prompt *p)
{
	int model = heirs_model(l, s->other, p->model);
	const struct proto_submit req = {PROTO_SUBMIT_OFF,
					 .model = (uint16_t)model,
					 .prompt_kind = p->kind,
					 .flags = (uint8_t)(PROTO_SUBMIT_PREFILL_ONLY | p->shared),
					 .priority = LAST_PRIORITY,
					 .tenant = p->tenant,
					 .cache_salt = p->cache_salt,
					 .top_p = 1,
					 .max_tokens = 1,
					 .prompt = {(const char *)buf_data(&p->text), p->text.len}};
	uint64_t id;
	if (model < 0 || engine_conn_submit(s->other, &req, &listener, s, &id) != 0)
		return;
	s->n_warming++;
	engine_conn_credit(s->other, id, 1);
}

/* Once the heir is up and knows of each model whether it is READY. */
static void warm(struct engine_link *l, struct succession *s, uint64_t now)
{
	const struct hot_prompt *hottest[SUCCESSION_WARM_PROMPTS];
	int n = hot_prompts_hottest(&l->hot, now, hottest, SUCCESSION_WARM_PROMPTS);
	s->warming = true;
	s->until_ns = now + SUCCESSION_WARM_MS * NS_PER_MS;
	for (int i = 0; i < n; i++)
		warm_one(l, s, hottest[i]);
}

/* ---- states ---- */

static bool is_settled(const struct engine_conn *heir)
{
	if (!engine_conn_up(heir))
		return false;
	for (int i = 0; i < engine_conn_n_models(heir); i++) {
		const struct link_model *m = engine_conn_model(heir, i);
		if (m->name[0] == '\0' || m->state == PROTO_MODEL_LOADING)
			return false;
	}
	return true;
}

/* HEIR → FORMER. */
static void hand_over(struct engine_link *l, int k)
{
	struct succession *s = &l->successions[k];
	struct engine_conn *former = l->conns[k];
	l->conns[k] = s->other;
	s->other = former;
	s->half = !s->half;
	s->state = SUCCESSION_FORMER;
	engine_conn_retire(former);
	for (int i = 0; i < PROTO_MAX_MODELS; i++)
		l->told[i][k] = false;
	metric_add(&switched, 1);
	log_info("engine %s: requests go to its new process; %zu end on the former one", l->names[k],
		 engine_conn_n_own(former));
	engine_link_merge(l);
	if (l->on_state != NULL)
		l->on_state(l->on_state_ctx);
}

/* NONE → HEIR. Without memory it is tried again. */
static void connect_heir(struct engine_link *l, int k)
{
	struct succession *s = &l->successions[k];
	struct sl_err err;
	if (engine_link_conn(l, k, l->paths[k], !s->half, &s->other, &err) != 0)
		return;
	s->wanted = s->warming = false;
	s->n_warming = 0;
	s->state = SUCCESSION_HEIR;
}

static void look_at_heir(struct engine_link *l, int k, uint64_t now)
{
	struct succession *s = &l->successions[k];
	bool settled = is_settled(s->other);
	if (!engine_conn_up(l->conns[k])) {
		hand_over(l, k);
		return;
	}
	if (settled && !s->warming)
		warm(l, s, now);
	if (settled && (s->n_warming == 0 || now >= s->until_ns))
		hand_over(l, k);
}

/* FORMER → NONE. */
static void look_at_former(struct succession *s)
{
	if (engine_conn_n_own(s->other) > 0)
		return;
	engine_conn_destroy(s->other);
	s->other = NULL;
	s->state = SUCCESSION_NONE;
}

static void look(struct engine_link *l)
{
	uint64_t now = gw_read_clock(l->t);
	bool any = false;
	for (int k = 0; k < l->n_conns; k++) {
		struct succession *s = &l->successions[k];
		if (s->state == SUCCESSION_FORMER)
			look_at_former(s);
		else if (s->state == SUCCESSION_HEIR)
			look_at_heir(l, k, now);
		if (s->state == SUCCESSION_NONE && s->wanted)
			connect_heir(l, k);
		any = any || s->state != SUCCESSION_NONE || s->wanted;
	}
	if (any)
		gw_timer_start(&l->t->timers, &l->succession_timer, LOOK_MS * NS_PER_MS);
}

static void on_timer(struct gw_timer *timer) { look(list_entry(timer, struct engine_link, succession_timer)); }

void succession_begin(struct engine_link *l, int k)
{
	l->successions[k].wanted = l->successions[k].state != SUCCESSION_HEIR;
	gw_timer_start(&l->t->timers, &l->succession_timer, 0);
}

/* What the former process loses is submitted again in the same call, to the heir. */
void succession_on_state(struct engine_link *l, const struct engine_conn *c)
{
	for (int k = 0; k < l->n_conns; k++)
		if (l->conns[k] == c && !engine_conn_up(c) && l->successions[k].state == SUCCESSION_HEIR &&
		    is_settled(l->successions[k].other))
			hand_over(l, k);
}

void succession_init(struct engine_link *l) { gw_timer_init(&l->succession_timer, on_timer); }

void succession_dispose(struct engine_link *l)
{
	gw_timer_stop(&l->t->timers, &l->succession_timer);
	for (int k = 0; k < l->n_conns; k++)
		engine_conn_destroy(l->successions[k].other);
}
