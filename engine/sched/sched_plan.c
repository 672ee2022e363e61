/* SPDX-License-Identifier: Apache-2.0
 *
 * Making a plan. Pages are counted here, not allocated: what the plan grants fits into pages_free plus what the plan
 * evicts.
 *
 * First the decodes: when the pages they need are there, all of them, else by rank, the worst ones making room. Then
 * prompts, one pick after another until the step is full; if the step was kept short, a better waiting prompt joins it.
 * Then, if a prompt is computed, decodes of tenants beyond their share are taken out again.
 *
 * A picked sequence is set aside until the plan is made, so that the next pick is another one; so are those that could
 * not start. The latter are few: after MAX_ASIDE of them, or a starved one, this plan starts no more.
 */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/sched/sched_state.h"

enum {
	MAX_ASIDE = 16,
	SHORT_STEP_MS = 300,
};

/* The share of a better prompt's time that worse tiers may decode beside it. */
static const double part_of_worse_tier = 0.1;

struct planning {
	struct sched *sc;
	const struct sched_config *cfg;
	const struct sched_owner *owner;
	const struct cost *cost;
	struct sched_plan *plan;
	uint64_t now;
	uint64_t free;     /* pages */
	uint64_t promised; /* to prompts that have begun, beyond what they hold */
	uint32_t n_slots;
	struct list aside;
	uint32_t n_aside;
	int n_tiers; /* those that may still be picked from */
	/* The step's room for prompts. */
	uint32_t rows_left;
	double ns_left;
	double step_ns;   /* what the step may take, while it is eased; 0: no bound */
	uint32_t n_begun; /* slots of sequences that start in it */
	bool floored;     /* floor is looked at: */
	struct sched_floor floor;
	bool spared;    /* a decoding sequence is to be spared: ns_left counts */
	uint32_t least; /* then: of the first prompt, whatever they are predicted to cost */
	bool joined;
	const struct sched_seq *first; /* picked; or the better one that joined it */
	/* Of the step, beside decodes: prompts worse than the first, and the others. */
	struct taken {
		uint32_t rows;
		double ns;
	} better, worse;
};

/* Pages that s needs beyond its own to hold n_tokens more. A beam may have to copy its last pages. */
static uint32_t pages_more(const struct planning *p, const struct sched_seq *s, uint64_t n_tokens)
{
	if (s->width > 1 && !s->prefilling)
		return s->width * p->cfg->kv.n_groups;
	return kv_groups_more(&p->cfg->kv, s->n_past, s->n_pages, s->n_past + n_tokens);
}

/* Everything left to compute, plus the next token; of one that has not started, without what it would find. */
static uint32_t pages_to_finish(const struct planning *p, const struct sched_seq *s)
{
	return kv_groups_rest(&p->cfg->kv, s->n_past, (uint64_t)s->n_left + 1, p->cfg->step_tokens, s->first_page,
			      s->n_pages);
}

/* The same with what it would find. */
static uint32_t pages_to_start(const struct planning *p, const struct sched_seq *s, const struct sched_look *look)
{
	uint32_t cached = look->n_cached < s->n_left ? look->n_cached : s->n_left - 1;
	return kv_groups_rest(&p->cfg->kv, cached, (uint64_t)s->n_left + 1 - cached, p->cfg->step_tokens, 0,
			      look->n_cached_pages);
}

static bool worse_rank(const struct sched_seq *a, const struct sched_seq *b)
{
	if (a->priority != b->priority)
		return a->priority > b->priority;
	return a->order > b->order;
}

/* ---- eviction ---- */

/* Without s its tenant would still hold its share of the tier's slots. */
static bool holds_too_much(const struct planning *p, const struct sched_seq *s)
{
	const struct sched_queue *q = s->queue;
	const struct sched_tier *tier = &p->sc->tiers[q->tier];
	return (uint64_t)(q->n_slots - s->width) * tier->weight >= (uint64_t)tier->n_slots * q->weight;
}

static bool holds_less(const struct planning *p, const struct sched_seq *s)
{
	const struct sched_queue *q = s->queue;
	const struct sched_tier *tier = &p->sc->tiers[q->tier];
	return (uint64_t)(q->n_slots + s->width) * tier->weight <= (uint64_t)tier->n_slots * q->weight;
}

static bool may_evict(const struct planning *p, const struct sched_seq *victim, const struct sched_seq *by)
{
	if (victim == by || victim->evict)
		return false;
	if (!victim->credit)
		return true;
	if (by->started)
		return worse_rank(victim, by);
	if (victim->queue->tier != by->queue->tier)
		return victim->queue->tier > by->queue->tier;
	return victim->tenant != by->tenant && holds_less(p, by) && holds_too_much(p, victim);
}

static bool worse_victim(const struct sched_seq *a, const struct sched_seq *b)
{
	if (a->credit != b->credit)
		return !a->credit;
	return worse_rank(a, b);
}

/* Its own pages that no other sequence shares, and those that the plan has granted it. */
static uint32_t pages_back(const struct planning *p, const struct sched_seq *v)
{
	uint32_t own = v->n_pages == 0 ? 0 : p->owner->pages_back(p->owner->ctx, v);
	return own + (v->n_tokens > 0 ? pages_more(p, v, v->n_tokens) : 0);
}

static void stand_aside(struct planning *p, struct sched_seq *s)
{
	sched_set_aside(p->sc, s);
	list_push_back(&p->aside, &s->aside);
}

static void evict(struct planning *p, struct sched_seq *v)
{
	p->free += pages_back(p, v);
	p->n_slots -= v->width;
	if (v->n_tokens > 0 && v->prefilling)
		p->plan->n_prefill -= v->n_tokens;
	else if (v->n_tokens > 0)
		p->plan->n_decode -= v->width;
	v->n_tokens = 0;
	v->evict = true;
	p->plan->evict[p->plan->n_evict++] = v;
	if (v->by_turn.in)
		stand_aside(p, v);
}

/* Without credit, or of a worse tier. */
static bool goes_with_others(const struct planning *p, const struct sched_seq *v, const struct sched_seq *by)
{
	return may_evict(p, v, by) && (!v->credit || v->queue->tier > by->queue->tier);
}

/* They give up their slots and pages if that may be enough for `by`. Pages that they share only with each other (a
 * flood of equal prompts) are in no pages_back, and come back when all of them leave; the next plan counts them. */
static void evict_sharing(struct planning *p, const struct sched_seq *by, uint64_t want)
{
	uint64_t at_most = p->free;
	for (uint32_t i = 0; i < p->sc->n_started; i++) {
		const struct sched_seq *v = p->sc->started[i];
		at_most += goes_with_others(p, v, by) ? kv_groups_held(&p->cfg->kv, v->first_page, v->n_pages) : 0;
	}
	if (at_most < want)
		return;
	if (p->owner->gentle) {
		p->plan->wants_room = true;
		return;
	}
	for (uint32_t i = 0; i < p->sc->n_started; i++) {
		struct sched_seq *v = p->sc->started[i];
		if (goes_with_others(p, v, by))
			evict(p, v);
	}
}

/* Evicts until `need` pages beside `kept` are free; false: not in this plan. */
static bool make_room(struct planning *p, const struct sched_seq *by, uint32_t need, uint64_t kept)
{
	if (p->free < need + kept && p->owner->gentle && p->owner->more_pages != NULL) {
		p->plan->wants_room = true;
		return false;
	}
	if (p->free < need + kept && p->owner->more_pages != NULL)
		p->free += p->owner->more_pages(p->owner->ctx, by, need + kept - p->free);
	uint64_t could = p->free;
	if (could >= need + kept)
		return true;
	for (uint32_t i = 0; i < p->sc->n_started; i++) {
		if (may_evict(p, p->sc->started[i], by))
			could += pages_back(p, p->sc->started[i]);
	}
	if (could < need + kept) {
		evict_sharing(p, by, need + kept);
		return false;
	}
	if (p->owner->gentle) {
		p->plan->wants_room = true;
		return false;
	}
	while (p->free < need + kept) {
		struct sched_seq *worst = NULL;
		for (uint32_t i = 0; i < p->sc->n_started; i++) {
			struct sched_seq *v = p->sc->started[i];
			if (may_evict(p, v, by) && (worst == NULL || worse_victim(v, worst)))
				worst = v;
		}
		/* With pages shared, less may come back than was counted. */
		if (worst == NULL)
			return false;
		evict(p, worst);
	}
	return true;
}

/* All slots are taken: a sequence whose client has stopped reading yields its slot, or one of a worse tier, or of a
 * tenant above its share. */
static bool make_slot(struct planning *p, const struct sched_seq *by)
{
	while (p->n_slots + by->width > p->cfg->max_sequences) {
		struct sched_seq *worst = NULL;
		for (uint32_t i = 0; i < p->sc->n_started; i++) {
			struct sched_seq *v = p->sc->started[i];
			bool paused = !v->credit && p->now - v->served_ns >= p->cfg->paused_ns;
			if (may_evict(p, v, by) && (v->credit || paused) && (worst == NULL || worse_victim(v, worst)))
				worst = v;
		}
		if (worst == NULL)
			return false;
		if (p->owner->gentle) {
			p->plan->wants_room = true;
			return false;
		}
		evict(p, worst);
	}
	return true;
}

static void charge(struct sched_tenant *t, uint64_t n_tokens, unsigned kind)
{
	t->share += n_tokens * kind * SHARE_UNIT * SCHED_WEIGHT / t->weight;
}

static void grant(struct planning *p, struct sched_seq *s, uint32_t n_tokens)
{
	s->n_tokens = n_tokens;
	s->evict = false; /* of an earlier plan */
	p->plan->run[p->plan->n_run++] = s;
	if (s->prefilling)
		p->plan->n_prefill += n_tokens;
	else
		p->plan->n_decode += s->width;
}

/* ---- decodes ---- */

static int by_rank(const void *pa, const void *pb)
{
	const struct sched_seq *a = *(struct sched_seq *const *)pa;
	const struct sched_seq *b = *(struct sched_seq *const *)pb;
	return worse_rank(a, b) ? 1 : worse_rank(b, a) ? -1 : 0;
}

/* Whether `by`, of several rows, needs more pages than it would have once all others have ended: what it may need in
 * all is not known when it starts. Prompts may pin pages that they do not hold yet, so while there are any it is not
 * known either. */
static bool is_hopeless(const struct planning *p, const struct sched_seq *by, uint32_t need)
{
	uint64_t most = p->free;
	for (uint32_t i = 0; i < p->sc->n_started; i++) {
		const struct sched_seq *v = p->sc->started[i];
		if (v == by || v->evict)
			continue;
		if (v->prefilling)
			return false;
		most += kv_groups_held(&p->cfg->kv, v->first_page, v->n_pages) * (uint64_t)v->width;
		most += v->n_tokens > 0 ? pages_more(p, v, v->n_tokens) : 0;
	}
	return by->width > 1 && most < need && !p->owner->gentle;
}

static void plan_decodes(struct planning *p)
{
	struct sched_seq **order = p->sc->order;
	uint32_t n = 0;
	uint64_t need = 0;
	for (uint32_t i = 0; i < p->sc->n_started; i++) {
		struct sched_seq *s = p->sc->started[i];
		if (s->prefilling || !s->credit)
			continue;
		if (s->due_ns > p->now) {
			if (s->due_ns < p->plan->next_due_ns)
				p->plan->next_due_ns = s->due_ns;
			continue;
		}
		need += pages_more(p, s, 1);
		order[n++] = s;
	}
	if (need > p->free)
		qsort(order, n, sizeof(void *), by_rank);
	p->sc->ease.n_held = 0;
	if (sched_ease_on(&p->sc->ease))
		n = sched_ease_choose(&p->sc->ease, order, n, p->cost, p->cfg->starve_ns, p->now, &p->step_ns);
	for (uint32_t i = 0; i < n; i++) {
		struct sched_seq *s = order[i];
		if (s->evict)
			continue;
		uint32_t more = pages_more(p, s, 1);
		if (!make_room(p, s, more, 0)) {
			p->plan->hopeless = is_hopeless(p, s, more) ? s : p->plan->hopeless;
			continue;
		}
		p->free -= more;
		grant(p, s, 1);
	}
}

/* Of a better tier, or in the same one of more weight. */
static bool is_better(const struct sched_seq *a, const struct sched_seq *b)
{
	const struct sched_queue *x = a->queue, *y = b->queue;
	return x->tier != y->tier ? x->tier < y->tier : x->weight > y->weight;
}

/* The share of a better prompt's time or rows that a worse one may use beside it. */
static double part_beside(const struct sched_seq *worse, const struct sched_seq *better)
{
	const struct sched_queue *w = worse->queue, *b = better->queue;
	return w->tier != b->tier ? part_of_worse_tier : (double)w->weight / b->weight;
}

/* Whether t has had more than the one whose prompt is to be computed, beyond what a step gives. */
static bool has_had_more(const struct planning *p, const struct sched_seq *s, const struct sched_seq *than)
{
	if (s->queue->tier != than->queue->tier)
		return s->queue->tier > than->queue->tier;
	if (s->tenant == than->tenant)
		return false;
	/* A lighter tenant that holds more than its share, however briefly it has run. */
	if (s->queue->weight < than->queue->weight && holds_too_much(p, s))
		return true;
	uint64_t step = (uint64_t)p->cfg->step_tokens * SHARE_UNIT;
	return s->tenant->share > than->tenant->share + step;
}

static int by_wait(const void *pa, const void *pb)
{
	const struct sched_seq *a = *(struct sched_seq *const *)pa;
	const struct sched_seq *b = *(struct sched_seq *const *)pb;
	if (a->served_ns != b->served_ns)
		return a->served_ns < b->served_ns ? -1 : 1;
	return a->order < b->order ? -1 : a->order > b->order;
}

/* Rows that a tenant above its share may decode beside another tenant's prompt. */
static uint32_t rows_beside(const struct planning *p, const struct sched_seq *s)
{
	const struct sched_seq *f = p->first;
	double rows = cost_rows_within(p->cost, p->plan->n_prefill, part_beside(s, f) * p->better.ns, s->n_past,
				       p->cfg->max_sequences);
	return rows < 1 ? 1 : rows < UINT32_MAX ? (uint32_t)rows : UINT32_MAX;
}

/* Decodes of worse tiers beside a better one's prompt. They have one share for all tenants and tiers: otherwise the
 * prompt takes longer the more of them there are. At least one of them runs in any step, so they age and none starves.
 */
struct beside_worse {
	uint32_t n_kept;
	double left_ns;
};

static bool keep_worse(const struct planning *p, struct beside_worse *b, const struct sched_seq *s)
{
	double ns = cost_added_ns(p->cost, p->plan->n_prefill + b->n_kept, s->n_past, s->width);
	if (b->n_kept > 0 && ns > b->left_ns)
		return false;
	b->left_ns -= ns;
	b->n_kept += s->width;
	return true;
}

static bool keep_equal(const struct planning *p, const struct sched_seq *s)
{
	if (s->tenant->n_kept >= rows_beside(p, s))
		return false;
	s->tenant->n_kept += s->width;
	return true;
}

static void hold_back_decodes(struct planning *p)
{
	struct sched_plan *plan = p->plan;
	struct sched_seq **order = p->sc->order;
	struct beside_worse beside = {.left_ns = part_of_worse_tier * p->better.ns};
	uint32_t n = 0;
	for (uint32_t i = 0; i < plan->n_run; i++) {
		struct sched_seq *s = plan->run[i];
		if (s->n_tokens > 0 && !s->prefilling && has_had_more(p, s, p->first)) {
			s->tenant->n_kept = 0;
			order[n++] = s;
		}
	}
	if (n == 0)
		return;
	qsort(order, n, sizeof(void *), by_wait);
	for (uint32_t i = 0; i < n; i++) {
		struct sched_seq *s = order[i];
		bool worse = s->queue->tier > p->first->queue->tier;
		if (worse ? keep_worse(p, &beside, s) : keep_equal(p, s))
			continue;
		s->n_tokens = 0;
		plan->n_decode -= s->width;
	}
}

/* ---- prompts ---- */

/* What an eased step has left for prompts and drafts. */
static double eased_ns(const struct planning *p)
{
	const struct sched_plan *plan = p->plan;
	struct cost_past past = {0};
	for (uint32_t i = 0; i < plan->n_run; i++) {
		const struct sched_seq *s = plan->run[i];
		past.positions += (double)cost_positions(s->n_past, s->n_tokens) * s->width;
		past.reads += ((double)s->n_past + s->n_tokens) * s->width;
	}
	double ns = p->step_ns - cost_step_ns(p->cost, plan->n_decode + plan->n_prefill, past);
	return ns > 0 ? ns : 0;
}

/* What prompts may add to a step; a fifth of the target is reserved for unpredicted costs. */
static double itl_budget_ns(const struct sched_config *cfg) { return 0.8 * (double)cfg->itl_target_ns; }

static uint32_t at_least_a_chunk(uint32_t rows, uint32_t most)
{
	rows = rows > MIN_CHUNK ? rows : MIN_CHUNK;
	return rows < most ? rows : most;
}

uint32_t sched_chunk_rows(const struct sched_config *cfg, const struct cost *cost, uint32_t beside, uint32_t n_past)
{
	uint32_t most = cfg->step_tokens;
	if (cfg->itl_target_ns == 0)
		return most;
	uint32_t within = cost_rows_within(cost, beside, itl_budget_ns(cfg), n_past, most);
	uint32_t knee = cost_knee_rows(cost, most, 0.9);
	return at_least_a_chunk(within < knee ? within : knee, most);
}

uint32_t sched_step_rows(const struct sched *sc, const struct sched_queue *q, const struct cost *cost, uint32_t beside,
			 uint32_t n_past)
{
	uint32_t most = sc->cfg.step_tokens;
	if (q->tier == sc->best_tier && q->weight >= sc->best_weight)
		return most;
	uint32_t rows = cost_rows_within(cost, beside, SHORT_STEP_MS * (double)NS_PER_MS, n_past, most);
	uint32_t knee = cost_knee_rows(cost, most, 0.8);
	rows = rows > knee ? rows : knee;
	return at_least_a_chunk(rows, most);
}

/* As many rows as take a step to its target if each costs what those of a usual step do. What larger steps cost is not
 * learnt from smaller ones: once they were slow, as beside other work, nothing would ask for them again. */
static uint32_t further_rows(const struct planning *p, uint32_t rows)
{
	const uint32_t beside = p->plan->n_decode, most = p->cfg->step_tokens;
	double each = cost_rows_ns(p->cost, beside + rows) / (beside + rows);
	double all = each > 0 ? (double)p->cfg->itl_target_ns / each - beside : most;
	uint32_t further = all < most ? (uint32_t)fmax(all, 0) : most;
	return further > rows ? further : rows;
}

static struct sched_tier *tier_due(const struct planning *p)
{
	struct sched_tier *best = NULL;
	int64_t best_rank = INT64_MAX;
	for (int i = 0; i < p->n_tiers; i++) {
		struct sched_tier *t = &p->sc->tiers[i];
		if (t->queues.n == 0)
			continue;
		uint64_t waited = p->now > t->served_ns ? p->now - t->served_ns : 0;
		int64_t rank = i - (int64_t)(waited / p->cfg->age_ns);
		if (rank < best_rank) {
			best_rank = rank;
			best = t;
		}
	}
	return best;
}

static bool has_starved(const struct planning *p, const struct sched_seq *s)
{
	return p->now >= s->served_ns + p->cfg->starve_ns;
}

static struct sched_seq *pick(const struct planning *p, const struct sched_queue *q)
{
	struct sched_seq *oldest = list_entry(q->by_age.next, struct sched_seq, by_age);
	if (has_starved(p, oldest))
		return oldest;
	return heap_entry(q->by_turn.top, struct sched_seq, by_turn);
}

/* Not beyond what runs in a step: one of them would be held. Worse tiers are held first. */
static bool ease_lets_start(const struct planning *p, const struct sched_seq *s)
{
	uint32_t n = p->n_begun;
	for (int i = 0; i <= s->queue->tier; i++)
		n += p->sc->tiers[i].n_slots;
	return n == 0 || !sched_ease_on(&p->sc->ease) || n + s->width <= sched_ease_slots(&p->sc->ease);
}

/* A plan without sequences of worse tiers that would start does not look. */
static bool floor_lets_start(struct planning *p, const struct sched_seq *s)
{
	if (s->queue->tier == 0)
		return true;
	if (!p->floored)
		sched_floor_look(p->sc, &p->floor);
	p->floored = true;
	return sched_floor_lets(&p->floor, p->cfg, p->cost, s->queue->tier, s->width, s->n_past + s->n_left);
}

/* Pages and a slot for what has not started; false: not now. What it would find is counted. */
static bool may_start(struct planning *p, struct sched_seq *s)
{
	struct sched_look look = {0};
	if (p->sc->holds || !ease_lets_start(p, s) || !floor_lets_start(p, s))
		return false;
	p->owner->look(p->owner->ctx, s, &look);
	s->blocked = look.blocked;
	if (look.blocked)
		return false;
	s->n_cached = look.n_cached;
	s->n_found = look.n_cached_pages;
	uint32_t need = pages_to_start(p, s, &look) + look.n_unpinned;
	if (!make_room(p, s, need, p->promised) || !make_slot(p, s))
		return false;
	p->free -= look.n_unpinned;
	p->n_slots += s->width;
	p->n_begun += s->width;
	if (p->floored)
		sched_floor_add(&p->floor, s->queue->tier, s->width, s->n_past + s->n_left);
	p->promised += need - look.n_unpinned;
	return true;
}

/* Whether a sequence decodes that the prompt of s must not delay. */
static bool anybody_to_spare(const struct planning *p, const struct sched_seq *s)
{
	if (p->step_ns > 0)
		return true;
	if (p->cfg->itl_target_ns == 0)
		return false;
	for (uint32_t i = 0; i < p->plan->n_run; i++) {
		const struct sched_seq *d = p->plan->run[i];
		if (d->n_tokens > 0 && !d->prefilling && !has_had_more(p, d, s))
			return true;
	}
	return false;
}

struct better {
	const struct sched_seq *than;
	struct sched_queue *found;
};

static bool see_better(void *ctx, struct heap_node *node)
{
	struct better *b = ctx;
	struct sched_queue *q = heap_entry(node, struct sched_queue, by_share);
	if (q->weight > b->than->queue->weight && (b->found == NULL || q->share_key < b->found->share_key))
		b->found = q;
	return true;
}

/* The prompt of a tier better than `than`, for which no decode has to be spared; NULL: none waits. */
static struct sched_seq *better_waiting(const struct planning *p, const struct sched_seq *than)
{
	enum { LOOK = 64 };
	struct better b = {.than = than};
	int tier = than->queue->tier;
	for (int i = 0; i < p->n_tiers && i < tier && b.found == NULL; i++)
		b.found = sched_first_queue(&p->sc->tiers[i]);
	if (b.found == NULL && tier < p->n_tiers)
		heap_walk(&p->sc->tiers[tier].queues, LOOK, see_better, &b);
	struct sched_seq *s = b.found != NULL ? pick(p, b.found) : NULL;
	return s != NULL && !anybody_to_spare(p, s) ? s : NULL;
}

/* An estimate that does not look up reusable pages. */
static bool can_start(const struct planning *p, const struct sched_seq *s)
{
	return s->started ||
	       (p->n_slots + s->width <= p->cfg->max_sequences && p->free >= p->promised + pages_to_finish(p, s));
}

/* A step that is eased has the less of both budgets. */
static void ease_prompts(struct planning *p, uint32_t n_past)
{
	double ns = eased_ns(p);
	if (p->cfg->itl_target_ns == 0 || ns < p->ns_left)
		p->ns_left = ns;
	uint32_t rows = cost_rows_within(p->cost, p->plan->n_decode, p->ns_left, n_past, p->rows_left);
	p->rows_left = at_least_a_chunk(rows, p->rows_left);
}

static void open_step(struct planning *p, const struct sched_seq *s, uint32_t n_past)
{
	p->first = s;
	p->rows_left = sched_step_rows(p->sc, s->queue, p->cost, p->plan->n_decode, n_past);
	p->spared = anybody_to_spare(p, s);
	const struct sched_seq *better = better_waiting(p, s);
	if (better != NULL && can_start(p, better)) {
		double part = part_beside(s, better);
		p->rows_left = at_least_a_chunk((uint32_t)(p->cfg->step_tokens * part / (1 + part)), p->rows_left);
	}
	if (p->spared) {
		uint32_t rows = sched_chunk_rows(p->cfg, p->cost, p->plan->n_decode, n_past);
		p->least = MIN_CHUNK;
		if (p->cfg->itl_target_ns > 0 && p->step_ns == 0 && ++p->sc->n_spared % LOOK_EVERY == 0)
			p->least = rows = further_rows(p, rows);
		p->rows_left = rows < p->rows_left ? rows : p->rows_left;
		p->ns_left = itl_budget_ns(p->cfg);
	}
	if (p->step_ns > 0)
		ease_prompts(p, n_past);
}

/* A better prompt may lengthen the step of the due one by its own share. */
static bool may_join(const struct planning *p, const struct sched_seq *s)
{
	return !p->joined && is_better(s, p->first) && !anybody_to_spare(p, s);
}

/* The larger of rows and time: few rows may take as long as many. */
static uint32_t rows_of_part(const struct planning *p, struct taken part, uint32_t n_past)
{
	uint32_t beside = p->plan->n_decode + p->plan->n_prefill, most = p->cfg->step_tokens;
	uint32_t within = part.ns > 0 ? cost_rows_within(p->cost, beside, part.ns, n_past, most) : 0;
	return within > part.rows ? within : part.rows;
}

static void join_step(struct planning *p, const struct sched_seq *s, uint32_t n_past)
{
	uint32_t before = p->plan->n_prefill,
		 rows = sched_step_rows(p->sc, s->queue, p->cost, p->plan->n_decode, n_past);
	double times = 1 / part_beside(p->first, s);
	uint32_t part =
	    rows_of_part(p, (struct taken){(uint32_t)(times * p->better.rows), times * p->better.ns}, n_past);
	rows = rows > before ? rows - before : 0;
	if (s->queue->tier == p->first->queue->tier && before > 0 && rows > part)
		rows = part;
	p->joined = true;
	p->first = s;
	p->spared = false;
	p->worse = (struct taken){p->worse.rows + p->better.rows, p->worse.ns + p->better.ns};
	p->better = (struct taken){0};
	p->rows_left = rows;
}

/* What remains for worse prompts beside the first. */
static uint32_t rows_beside_first(const struct planning *p, const struct sched_seq *s)
{
	if (p->first == NULL || !is_better(p->first, s))
		return UINT32_MAX;
	double part = part_beside(s, p->first), rows = part * p->better.rows;
	struct taken left = {rows > p->worse.rows ? (uint32_t)(rows - p->worse.rows) : 0,
			     part * p->better.ns - p->worse.ns};
	return rows_of_part(p, left, s->n_past);
}

static uint32_t chunk_of(struct planning *p, const struct sched_seq *s, uint32_t n_past, uint32_t n_left)
{
	bool is_first = p->first == NULL;
	if (is_first)
		open_step(p, s, n_past);
	else if (may_join(p, s))
		join_step(p, s, n_past);
	uint32_t chunk = n_left < p->rows_left ? n_left : p->rows_left, beside_first = rows_beside_first(p, s);
	chunk = chunk < beside_first ? chunk : beside_first;
	if (p->cfg->most_chunk > 0 && !s->whole && chunk > p->cfg->most_chunk)
		chunk = p->cfg->most_chunk;
	if (p->spared) {
		uint32_t beside = p->plan->n_decode + p->plan->n_prefill;
		uint32_t within = cost_rows_within(p->cost, beside, p->ns_left, n_past, chunk);
		uint32_t least = is_first ? p->least : 0;
		least = least < chunk ? least : chunk;
		chunk = within > least ? within : least;
	}
	if (s->whole && chunk < n_left)
		chunk = is_first ? n_left : 0;
	return chunk;
}

/* The next chunk of s, whose pages are promised to it. */
static void run_prompt(struct planning *p, struct sched_seq *s)
{
	uint32_t cached = s->started ? 0 : s->n_cached < s->n_left ? s->n_cached : s->n_left - 1;
	uint32_t n_past = s->n_past + cached;
	uint32_t chunk = chunk_of(p, s, n_past, s->n_left - cached);
	if (chunk == 0) {
		/* A shorter one may still fit. */
		if (s->whole)
			p->n_aside++;
		else
			p->rows_left = 0;
		return;
	}
	uint32_t found = cached / p->cfg->kv.page_tokens;
	uint32_t held = s->started ? s->n_pages : found < s->n_found ? found : s->n_found;
	uint32_t need = kv_groups_more(&p->cfg->kv, n_past, held, (uint64_t)n_past + chunk);
	if (!make_room(p, s, need, 0))
		return;
	p->free -= need;
	p->promised -= need < p->promised ? need : p->promised;
	double ns = cost_added_ns(p->cost, p->plan->n_decode + p->plan->n_prefill, n_past, chunk);
	p->ns_left -= ns;
	p->rows_left -= chunk < p->rows_left ? chunk : p->rows_left;
	struct taken *taken = is_better(p->first, s) ? &p->worse : &p->better;
	taken->rows += chunk;
	taken->ns += ns;
	charge(s->tenant, chunk, SCHED_PREFILL_WEIGHT);
	p->sc->tiers[s->queue->tier].served_ns = p->now;
	grant(p, s, chunk);
}

static int by_share(const void *pa, const void *pb)
{
	const struct sched_seq *a = *(struct sched_seq *const *)pa;
	const struct sched_seq *b = *(struct sched_seq *const *)pb;
	if (a->queue->tier != b->queue->tier)
		return a->queue->tier < b->queue->tier ? -1 : 1;
	if (a->tenant->share != b->tenant->share)
		return a->tenant->share < b->tenant->share ? -1 : 1;
	return a->order < b->order ? -1 : a->order > b->order;
}

/* No sequence may start any more; running ones continue in the same order of tiers and shares. */
static void go_on(struct planning *p)
{
	struct sched_seq **order = p->sc->order;
	uint32_t n = 0;
	for (uint32_t i = 0; i < p->sc->n_started; i++) {
		struct sched_seq *s = p->sc->started[i];
		if (s->by_turn.in && !s->evict)
			order[n++] = s;
	}
	qsort(order, n, sizeof(void *), by_share);
	for (uint32_t i = 0; i < n && p->rows_left > 0; i++) {
		if (order[i]->evict || rows_beside_first(p, order[i]) == 0)
			continue;
		stand_aside(p, order[i]);
		run_prompt(p, order[i]);
	}
}

/* The step was kept short (for decodes, or for better tiers), and a better prompt waits: it joins. */
static void call_better(struct planning *p)
{
	struct sched_seq *s = better_waiting(p, p->first);
	if (s == NULL || p->joined)
		return;
	stand_aside(p, s);
	if (s->started || may_start(p, s))
		run_prompt(p, s);
	p->rows_left = 0;
}

static void plan_prompts(struct planning *p)
{
	for (uint32_t i = 0; i < p->sc->n_started; i++) {
		struct sched_seq *s = p->sc->started[i];
		if (s->prefilling && s->credit && !s->evict)
			p->promised += pages_to_finish(p, s);
	}
	struct sched_tier *tier;
	while (p->rows_left > 0 && p->n_aside < MAX_ASIDE && (tier = tier_due(p)) != NULL) {
		struct sched_seq *s = pick(p, sched_first_queue(tier));
		bool starved = has_starved(p, s);
		stand_aside(p, s);
		if (rows_beside_first(p, s) == 0) {
			p->n_aside++;
		} else if (s->started || may_start(p, s)) {
			run_prompt(p, s);
		} else if (!s->blocked) {
			/* Its tier has had its chance; smaller ones may pass it, but not for ever. */
			tier->served_ns = p->now;
			p->n_aside++;
			if (starved)
				p->n_tiers = s->queue->tier;
		}
	}
	if (p->rows_left > 0)
		go_on(p);
	else if (p->first != NULL)
		call_better(p);
}

void sched_plan(struct sched *sc, const struct sched_owner *owner, const struct cost *cost, uint32_t pages_free,
		uint64_t now_ns, struct sched_plan *out)
{
	*out = (struct sched_plan){.run = sc->run, .evict = sc->evicted, .next_due_ns = UINT64_MAX};
	struct planning p = {.sc = sc,
			     .cfg = &sc->cfg,
			     .owner = owner,
			     .cost = cost,
			     .plan = out,
			     .now = now_ns,
			     .free = pages_free,
			     .n_slots = sc->n_slots,
			     .n_tiers = SCHED_TIERS,
			     .rows_left = sc->cfg.step_tokens};
	list_init(&p.aside);
	sched_learn_turns(sc, cost);
	for (uint32_t i = 0; i < sc->n_started; i++) {
		sc->started[i]->n_tokens = 0;
		sc->started[i]->evict = false;
	}
	plan_decodes(&p);
	plan_prompts(&p);
	if (p.first != NULL)
		hold_back_decodes(&p);
	uint32_t kept = 0;
	for (uint32_t i = 0; i < out->n_run; i++) {
		struct sched_seq *s = out->run[i];
		if (s->n_tokens == 0)
			continue;
		out->run[kept++] = s;
		if (!s->prefilling)
			charge(s->tenant, s->width, SCHED_DECODE_WEIGHT);
	}
	out->n_run = kept;
	out->rows_left = sc->cfg.step_tokens - out->n_prefill;
	if (p.step_ns > 0 && out->n_run > 0)
		out->rows_left = cost_rows_within(cost, out->n_decode + out->n_prefill, eased_ns(&p),
						  out->run[0]->n_past, out->rows_left);
	uint64_t pages = p.free > p.promised ? p.free - p.promised : 0;
	out->pages_left = pages < UINT32_MAX ? (uint32_t)pages : UINT32_MAX;
	list_each_safe(it, tmp, &p.aside) {
		struct sched_seq *s = list_entry(it, struct sched_seq, aside);
		list_remove(it);
		sched_bring_back(sc, s, now_ns);
	}
}

uint32_t sched_grant_draft(const struct sched *sc, struct sched_plan *plan, const struct sched_seq *s, uint32_t n)
{
	uint64_t most = kv_groups_room(&sc->cfg.kv, s->n_past, s->n_pages, plan->pages_left);
	n = n < plan->rows_left ? n : plan->rows_left;
	n = n < most ? n : (uint32_t)most;
	plan->rows_left -= n;
	/* The plan has granted the page of its next token. */
	uint32_t next = kv_groups_indices(&sc->cfg.kv, (uint64_t)s->n_past + 1);
	plan->pages_left -=
	    kv_groups_more(&sc->cfg.kv, s->n_past, next > s->n_pages ? next : s->n_pages, (uint64_t)s->n_past + n + 1);
	charge(s->tenant, n, SCHED_PREFILL_WEIGHT);
	return n;
}
