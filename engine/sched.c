/* SPDX-License-Identifier: Apache-2.0
 *
 * Planning one step. Pages are counted here, not allocated: what the plan grants fits into
 * pages_free plus what the plan evicts.
 *
 * Two passes over the sequences with credit: decodes by rank, then prefills by their order. Both
 * make room by the same function, which either finds enough victims or evicts nobody. Cost: a sort
 * of the candidates and, only when pages are short, a scan for each victim.
 */
#include "engine/sched.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/err.h"

struct planning {
	const struct sched_config *cfg;
	struct sched_seq *seqs;
	size_t n;
	uint64_t now;
	uint32_t free, promised, n_started, n_decode, n_prefill;
};

static uint32_t pages_for(const struct sched_config *cfg, uint64_t n_tokens)
{
	return (uint32_t)((n_tokens + cfg->page_tokens - 1) / cfg->page_tokens);
}

/* Pages that s needs beyond its own to hold n_tokens more. */
static uint32_t pages_more(const struct planning *p, const struct sched_seq *s, uint64_t n_tokens)
{
	uint32_t want = pages_for(p->cfg, s->n_past + n_tokens);
	return want > s->n_pages ? want - s->n_pages : 0;
}

/* All that it has to compute, and the token that follows. */
static uint32_t pages_to_finish(const struct planning *p, const struct sched_seq *s)
{
	return pages_more(p, s, (uint64_t)s->n_left + 1);
}

static bool worse_rank(const struct sched_seq *a, const struct sched_seq *b)
{
	if (a->priority != b->priority)
		return a->priority > b->priority;
	return a->order > b->order;
}

/* ---- eviction ---- */

static bool may_evict(const struct sched_seq *victim, const struct sched_seq *by)
{
	if (victim == by || !victim->started || victim->evict || victim->n_pages == 0)
		return false;
	if (!victim->credit)
		return true;
	return by->started ? worse_rank(victim, by) : victim->priority > by->priority;
}

static bool worse_victim(const struct sched_seq *a, const struct sched_seq *b)
{
	if (a->credit != b->credit)
		return !a->credit;
	return worse_rank(a, b);
}

/* Its own, and what the plan has granted it beyond them. */
static uint32_t pages_back(const struct planning *p, const struct sched_seq *v)
{
	return v->n_pages + (v->n_tokens > 0 ? pages_more(p, v, v->n_tokens) : 0);
}

static void evict(struct planning *p, struct sched_seq *v)
{
	p->free += pages_back(p, v);
	if (v->n_tokens > 0 && v->prefilling)
		p->n_prefill -= v->n_tokens;
	else if (v->n_tokens > 0)
		p->n_decode--;
	p->n_started--;
	v->n_tokens = 0;
	v->evict = true;
}

/* Evicts until `need` pages beside `kept` are free; all or nothing. */
static bool make_room(struct planning *p, const struct sched_seq *by, uint32_t need, uint32_t kept)
{
	uint64_t could = p->free;
	if (could >= (uint64_t)need + kept)
		return true;
	for (size_t i = 0; i < p->n; i++) {
		if (may_evict(&p->seqs[i], by))
			could += pages_back(p, &p->seqs[i]);
	}
	if (could < (uint64_t)need + kept)
		return false;
	while (p->free < (uint64_t)need + kept) {
		struct sched_seq *worst = NULL;
		for (size_t i = 0; i < p->n; i++) {
			struct sched_seq *v = &p->seqs[i];
			if (may_evict(v, by) && (worst == NULL || worse_victim(v, worst)))
				worst = v;
		}
		BUG_IF(worst == NULL, "scheduler: victims were counted but not found");
		evict(p, worst);
	}
	return true;
}

/* All places are taken: one whose reader has stopped reading gives up its own. */
static bool make_place(struct planning *p, const struct sched_seq *by)
{
	struct sched_seq *worst = NULL;
	for (size_t i = 0; i < p->n; i++) {
		struct sched_seq *v = &p->seqs[i];
		if (v != by && v->started && !v->evict && !v->credit &&
		    p->now - v->served_ns >= p->cfg->paused_ns &&
		    (worst == NULL || worse_rank(v, worst)))
			worst = v;
	}
	if (worst == NULL)
		return false;
	evict(p, worst);
	return true;
}

/* ---- the two passes ---- */

static int by_rank(const void *pa, const void *pb)
{
	const struct sched_seq *a = *(struct sched_seq *const *)pa;
	const struct sched_seq *b = *(struct sched_seq *const *)pb;
	return worse_rank(a, b) ? 1 : worse_rank(b, a) ? -1 : 0;
}

static void plan_decodes(struct planning *p, struct sched_seq **order)
{
	size_t n = 0;
	for (size_t i = 0; i < p->n; i++) {
		struct sched_seq *s = &p->seqs[i];
		if (s->started && !s->prefilling && s->credit && s->due_ns <= p->now)
			order[n++] = s;
	}
	qsort(order, n, sizeof(void *), by_rank);
	for (size_t i = 0; i < n; i++) {
		struct sched_seq *s = order[i];
		if (s->evict)
			continue;
		uint32_t need = pages_more(p, s, 1);
		if (!make_room(p, s, need, 0))
			continue;
		p->free -= need;
		s->n_tokens = 1;
		p->n_decode++;
	}
}

/* What is left to do: attention reads everything before each token. */
static uint64_t work_left(const struct sched_seq *s)
{
	uint64_t n = s->n_left;
	return n * s->n_past + n * (n + 1) / 2 + n;
}

static int by_turn(const void *pa, const void *pb)
{
	const struct sched_seq *a = *(struct sched_seq *const *)pa;
	const struct sched_seq *b = *(struct sched_seq *const *)pb;
	if (a->starved != b->starved)
		return a->starved ? -1 : 1;
	if (a->starved && a->served_ns != b->served_ns)
		return a->served_ns < b->served_ns ? -1 : 1;
	if (a->class != b->class)
		return a->class < b->class ? -1 : 1;
	if (a->share != b->share)
		return a->share < b->share ? -1 : 1;
	uint64_t wa = work_left(a), wb = work_left(b);
	if (wa != wb)
		return wa < wb ? -1 : 1;
	return a->order < b->order ? -1 : a->order > b->order;
}

/* Pages and a place for what has not started; false: not now. */
static bool may_start(struct planning *p, struct sched_seq *s)
{
	uint32_t need = pages_to_finish(p, s);
	if (!make_room(p, s, need, p->promised))
		return false;
	if (p->n_started >= p->cfg->max_sequences && !make_place(p, s))
		return false;
	p->n_started++;
	p->promised += need;
	return true;
}

static void plan_prefills(struct planning *p, struct sched_seq **order)
{
	const struct sched_config *cfg = p->cfg;
	/* Even when decodes alone fill a step, prefill gets a quarter: waiting must end. */
	uint32_t budget = cfg->step_tokens / 4 > 0 ? cfg->step_tokens / 4 : 1;
	if (p->n_decode + budget < cfg->step_tokens)
		budget = cfg->step_tokens - p->n_decode;
	size_t n = 0;
	for (size_t i = 0; i < p->n; i++) {
		struct sched_seq *s = &p->seqs[i];
		if (!s->prefilling || s->evict)
			continue;
		if (s->started && s->credit)
			p->promised += pages_to_finish(p, s);
		if (!s->credit || s->due_ns > p->now)
			continue;
		uint64_t waited = p->now > s->served_ns ? p->now - s->served_ns : 0;
		s->starved = waited >= cfg->starve_ns;
		s->class = (int64_t)s->priority - (int64_t)(waited / cfg->age_ns);
		order[n++] = s;
	}
	qsort(order, n, sizeof(void *), by_turn);
	bool starting = true;
	for (size_t i = 0; i < n && budget > 0; i++) {
		struct sched_seq *s = order[i];
		if (s->evict || (!s->started && !starting))
			continue;
		if (!s->started && !may_start(p, s)) {
			/* Smaller ones may pass it, but not for ever. */
			starting = !s->starved;
			continue;
		}
		uint32_t chunk = s->n_left < budget ? s->n_left : budget;
		uint32_t need = pages_more(p, s, chunk);
		if (!make_room(p, s, need, 0))
			continue;
		p->free -= need;
		p->promised -= need < p->promised ? need : p->promised;
		s->n_tokens = chunk;
		p->n_prefill += chunk;
		budget -= chunk;
	}
}

void sched_plan(const struct sched_config *cfg, struct sched_seq *seqs, size_t n,
		struct sched_seq **order_mem, uint32_t pages_free, uint64_t now_ns,
		struct sched_plan *out)
{
	struct planning p = {
	    .cfg = cfg, .seqs = seqs, .n = n, .now = now_ns, .free = pages_free};
	*out = (struct sched_plan){.next_due_ns = UINT64_MAX};
	for (size_t i = 0; i < n; i++) {
		struct sched_seq *s = &seqs[i];
		s->n_tokens = 0;
		s->evict = s->starved = false;
		s->class = 0;
		p.n_started += s->started;
		if (s->credit && s->due_ns > now_ns && s->due_ns < out->next_due_ns)
			out->next_due_ns = s->due_ns;
	}
	plan_decodes(&p, order_mem);
	plan_prefills(&p, order_mem);
	out->n_decode = p.n_decode;
	out->n_prefill = p.n_prefill;
}

/* ---- tenants ---- */

int sched_tenants_init(struct sched_tenants *t)
{
	*t = (struct sched_tenants){0};
	list_init(&t->active);
	list_init(&t->idle);
	return idmap_init(&t->all);
}

static void tenant_free(struct sched_tenants *t, struct sched_tenant *tenant)
{
	list_remove(&tenant->place);
	idmap_remove(&t->all, &tenant->node);
	sl_free(tenant);
}

void sched_tenants_dispose(struct sched_tenants *t)
{
	BUG_IF(!list_empty(&t->active), "a tenant still has sequences");
	list_each_safe(it, tmp, &t->idle)
		tenant_free(t, list_entry(it, struct sched_tenant, place));
	idmap_dispose(&t->all);
}

struct sched_tenant *sched_tenant_enter(struct sched_tenants *t, uint64_t digest)
{
	struct idmap_node *node = idmap_find(&t->all, digest);
	struct sched_tenant *tenant;
	if (node != NULL) {
		tenant = idmap_entry(node, struct sched_tenant, node);
	} else {
		tenant = sl_zalloc(sizeof *tenant);
		if (tenant == NULL)
			return NULL;
		tenant->node.key = digest;
		list_init(&tenant->place);
		idmap_insert(&t->all, &tenant->node);
	}
	if (tenant->n_seqs++ > 0)
		return tenant;
	if (node != NULL)
		t->n_idle--;
	list_remove(&tenant->place);
	uint64_t least = UINT64_MAX;
	list_each(it, &t->active) {
		uint64_t share = list_entry(it, struct sched_tenant, place)->share;
		least = share < least ? share : least;
	}
	if (least != UINT64_MAX && tenant->share < least)
		tenant->share = least;
	list_push_back(&t->active, &tenant->place);
	return tenant;
}

void sched_tenant_leave(struct sched_tenants *t, struct sched_tenant *tenant)
{
	BUG_IF(tenant->n_seqs == 0, "a tenant loses a sequence that it did not have");
	if (--tenant->n_seqs > 0)
		return;
	list_remove(&tenant->place);
	list_push_back(&t->idle, &tenant->place);
	if (++t->n_idle > SCHED_IDLE_TENANTS) {
		tenant_free(t, list_entry(t->idle.next, struct sched_tenant, place));
		t->n_idle--;
	}
}
