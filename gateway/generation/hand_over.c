/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/generation/hand_over.h"

#include "base/alloc.h"
#include "base/metrics.h"
#include "gateway/generation/engine_link.h"
#include "gateway/generation/role_planner.h"
#include "gateway/loop/random.h"
#include "gateway/loop/thread.h"

struct hand_over {
	struct gw_thread *t;
	uint64_t id;         /* of the sequence that waits; 0: it waits no longer */
	int engine;          /* its engine */
	uint64_t prefill_id; /* 0: it has ended */
	struct proto_hand hand;
};

#define CHOICE(why)                                                                    \
	METRIC_OF(METRIC_COUNTER, "sluice_prefill_choices_total", "where=\"" why "\"", \
		  "Prompts of engines of role decode, by where they were computed and why")
#define END(why) \
	METRIC_OF(METRIC_COUNTER, "sluice_handovers_ended_total", "end=\"" why "\"", "Hand-overs that ended, and how")
/* By enum prefill_why, from PREFILL_APART on. */
static struct metric choices[] = {CHOICE("apart"), CHOICE("short"), CHOICE("queue"),  CHOICE("tier"),
				  CHOICE("none"),  CHOICE("unfit"), CHOICE("refused")};
METRICS(choices);
/* By enum proto_handed_why; the last one: the generation ended first. */
static struct metric ends[] = {END("all"),  END("late"), END("ended"), END("full"), END("foreign"),
			       END("room"), END("gone"), END("unfit"), END("left")};
METRICS(ends);
GAUGE(running, "sluice_handovers", "Hand-overs of prompts between engines that are under way");
COUNTER(pages, "sluice_handover_pages_total", "KV pages that were handed over; each is copied twice");
COUNTER(bytes, "sluice_handover_bytes_total", "Bytes of KV pages that were handed over");
COUNTER(steps, "sluice_handover_steps_total",
	"Steps that decoding engines ran from the last page offered until the first step of its sequence");
static struct metric waited = {.kind = METRIC_COUNTER,
			       .name = "sluice_handover_wait_seconds_total",
			       .help = "How long sequences waited for pages together",
			       .scale = 1e-6};
METRICS(waited);

_Static_assert((int)GW_MAX_ENGINES <= (int)PROTO_HAND_WRITERS, "an engine's number is its writer's");
_Static_assert(sizeof choices / sizeof *choices == PREFILL_WHYS - PREFILL_APART, "one for each choice");
_Static_assert(sizeof ends / sizeof *ends == PROTO_HANDED_WHYS + 1, "one for each end, and one");

/* ---- the decision ---- */

static bool fits(const struct engine_link *l, int engine, const struct proto_submit *s)
{
	return s != NULL && s->prompt_logprobs == 0 && s->n_given == 0 &&
	       (s->flags & (PROTO_SUBMIT_PREFILL_ONLY | PROTO_SUBMIT_EMBED)) == 0 &&
	       engine_link_hands_over(l, s->model, engine);
}

static struct prefill_question question(const struct engine_link *l, int engine, const struct proto_submit *s,
					const struct proto_queued *q)
{
	const bool can = fits(l, engine, s);
	return (struct prefill_question){.fits = can,
					 .n_missing = q->n_prompt - q->n_cached,
					 .n_running = engine_link_engine_stats(l, engine)->running,
					 .priority = can ? s->priority : 0};
}

/* What there is to compute, whichever roles engines have now: for the planner. */
static void count_demand(const struct gw_thread *t, struct prefill_question ask)
{
	ask.has_engine = true;
	role_demand(prefill_choose(&t->cfg->prefill, &ask) == PREFILL_APART, ask.n_missing);
}

static enum prefill_why choose(struct gw_thread *t, const struct proto_submit *s, struct prefill_question ask,
			       struct prefill_choice *out)
{
	const struct engine_link *l = t->link;
	out->n_missing = ask.n_missing;
	out->engine = ask.fits ? engine_link_prefiller(l, s->model) : -1;
	ask.has_engine = out->engine >= 0;
	if (ask.has_engine)
		ask.n_queued = (uint32_t)engine_link_n_active(l, out->engine);
	return prefill_choose(&t->cfg->prefill, &ask);
}

/* ---- the prefill engine's sequence ---- */

/* No more pages come than there are. */
static void over(struct hand_over *h)
{
	h->prefill_id = 0;
	if (h->id == 0)
		return;
	h->hand.what = PROTO_HAND_OVER;
	engine_link_hand(h->t->link, h->id, &h->hand);
}

static void on_done(void *ctx, const struct proto_done *m)
{
	(void)m;
	over(ctx);
}

static void on_lost(void *ctx) { over(ctx); }

static const struct link_listener prefill_listener = {.on_done = on_done, .on_lost = on_lost};

/* The prompt alone, with what its pages depend on. */
static struct proto_submit prompt_of(const struct proto_submit *s, uint32_t wait_ms)
{
	return (struct proto_submit){PROTO_SUBMIT_OFF,
				     .model = s->model,
				     .prompt_kind = s->prompt_kind,
				     .flags =
					 (uint8_t)(PROTO_SUBMIT_PREFILL_ONLY | (s->flags & PROTO_SUBMIT_SHARED_PREFIX)),
				     .priority = s->priority,
				     .tenant = s->tenant,
				     .seed = s->seed,
				     .top_p = 1,
				     .max_tokens = 1,
				     .deadline_ms = wait_ms,
				     .cache_salt = s->cache_salt,
				     .prompt = s->prompt};
}

static bool begin(struct hand_over *h, int engine, const struct proto_submit *s)
{
	struct engine_link *l = h->t->link;
	struct proto_submit its = prompt_of(s, h->hand.wait_ms);
	its.weight = s->weight;
	if (!random_u64(&h->hand.handle) || h->hand.handle == 0 ||
	    engine_link_submit_at(l, engine, &its, &prefill_listener, h, &h->prefill_id) != 0)
		return false;
	h->hand.what = PROTO_HAND_OFFER;
	engine_link_hand(l, h->prefill_id, &h->hand);
	engine_link_credit(l, h->prefill_id, 1);
	h->hand.what = PROTO_HAND_AWAIT;
	engine_link_hand(l, h->id, &h->hand);
	return true;
}

static struct hand_over *create(struct gw_thread *t, uint64_t id, const struct proto_submit *s,
				const struct proto_queued *q, int engine)
{
	struct hand_over *h = sl_zalloc(sizeof *h);
	if (h == NULL)
		return NULL;
	*h = (struct hand_over){
	    .t = t,
	    .id = id,
	    .engine = engine_link_engine_of(t->link, id),
	    .hand = {.writer = (uint8_t)engine, .from = q->n_cached, .wait_ms = (uint32_t)t->cfg->prefill.wait_ms}};
	if (begin(h, engine, s)) {
		metric_add(&running, 1);
		role_awaits(h->engine, 1);
		return h;
	}
	sl_free(h);
	return NULL;
}

struct hand_over *hand_over_begin(struct gw_thread *t, uint64_t id, const struct proto_submit *s,
				  const struct proto_queued *q, struct prefill_choice *out)
{
	struct hand_over *h = NULL;
	int engine = engine_link_engine_of(t->link, id);
	*out = (struct prefill_choice){.engine = -1};
	if (engine < 0)
		return NULL;
	const struct prefill_question ask = question(t->link, engine, s, q);
	count_demand(t, ask);
	if (engine_link_role(t->link, engine) != GW_ENGINE_DECODE)
		return NULL;
	out->why = choose(t, s, ask, out);
	if (out->why == PREFILL_APART && (h = create(t, id, s, q, out->engine)) == NULL)
		out->why = PREFILL_REFUSED;
	if (h == NULL)
		out->engine = -1;
	metric_add(&choices[out->why - PREFILL_APART], 1);
	return h;
}

static void settle(struct hand_over *h, unsigned how)
{
	h->id = 0;
	metric_add(&ends[how], 1);
	metric_add(&running, -1);
	role_awaits(h->engine, -1);
}

void hand_over_take(struct hand_over *h, const struct proto_handed *m, struct prefill_choice *out)
{
	if (h->id == 0)
		return;
	settle(h, m->why);
	metric_add(&pages, m->n_pages);
	metric_add(&bytes, (int64_t)m->bytes);
	metric_add(&steps, m->steps);
	metric_add(&waited, m->waited_us);
	out->handed = true;
	out->end = m->why;
	out->n_pages = m->n_pages;
	out->waited_us = m->waited_us;
	/* It has offered all that there is to offer, or nobody takes what it offers. */
	if (h->prefill_id != 0)
		engine_link_forget(h->t->link, h->prefill_id);
	h->prefill_id = 0;
}

void hand_over_end(struct hand_over *h)
{
	if (h == NULL)
		return;
	if (h->prefill_id != 0)
		engine_link_forget(h->t->link, h->prefill_id);
	if (h->id != 0)
		settle(h, PROTO_HANDED_WHYS);
	sl_free(h);
}
