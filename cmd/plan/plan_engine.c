/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/plan/plan_engine.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/sched/spec.h"

enum { MOST_PREFIXES = 512, AGE_MS = 2000, STARVE_MS = 10000 };

struct plan_seq {
	struct sched_seq s;
	struct list node;   /* of the engine's */
	struct list coming; /* of those without credit */
	struct plan_request *r;
	uint64_t due_ns; /* without credit: when its prompt is tokenized; once counted, when the credit comes */
	bool counted;
	uint32_t n_answer, n_made, n_there;
	uint32_t n_draft; /* of the step that runs */
};

struct prefix {
	uint64_t id, used;
	uint32_t n_tokens;
};

struct plan_engine {
	struct plan_box box;
	struct plan_events events;
	struct sched *sched;
	struct sched_tenants tenants;
	struct list seqs;   /* struct plan_seq */
	struct list coming; /* of them, by their arrival: without credit */
	uint32_t n_seqs, n_pages_used;
	struct prefix prefixes[MOST_PREFIXES];
	int n_prefixes;
	uint64_t order, n_prefilled, n_decoded;
	struct load_random random; /* for drafts: the same in every run */
	struct sched_plan plan;    /* of the step that runs */
	struct plan_step now;      /* the same */
	uint64_t end_ns;           /* of it; UINT64_MAX: none */
	double decode_step_ns;     /* average of steps without prompts */
};

static uint32_t pages_of(uint32_t n_tokens) { return (n_tokens + PLAN_PAGE - 1) / PLAN_PAGE; }

static struct plan_seq *seq_of(struct sched_seq *s) { return list_entry(s, struct plan_seq, s); }

/* ---- beginnings that are there ---- */

static struct prefix *find(const struct plan_engine *e, uint64_t id)
{
	for (int i = 0; i < e->n_prefixes; i++)
		if (e->prefixes[i].id == id)
			return (struct prefix *)(uintptr_t)&e->prefixes[i];
	return NULL;
}

uint32_t plan_engine_has(const struct plan_engine *e, const struct work *w)
{
	const struct prefix *p = w->n_shared >= PLAN_PAGE ? find(e, w->prefix) : NULL;
	uint32_t n = p == NULL ? 0 : p->n_tokens < w->n_shared ? p->n_tokens : w->n_shared;
	n = n < w->n_prompt ? n : w->n_prompt - 1;
	return n < PLAN_PAGE ? 0 : n; /* a page whose beginning is the same is copied */
}

/* How much of a request's text later ones may find. */
static uint32_t leaves(const struct work *w) { return w->n_left > 0 ? w->n_left : w->n_shared; }

/* A new entry, or that which was not used for the longest time. */
static struct prefix *take_entry(struct plan_engine *e)
{
	if (e->n_prefixes < MOST_PREFIXES)
		return &e->prefixes[e->n_prefixes++];
	struct prefix *oldest = e->prefixes;
	for (int i = 1; i < e->n_prefixes; i++)
		oldest = e->prefixes[i].used < oldest->used ? &e->prefixes[i] : oldest;
	return oldest;
}

/* So many tokens of w are in pages. */
static void keep(struct plan_engine *e, const struct work *w, uint32_t n_past, uint64_t now_ns)
{
	const uint32_t n = n_past < leaves(w) ? n_past : leaves(w);
	if (n < PLAN_PAGE)
		return;
	struct prefix *p = find(e, w->prefix);
	if (p == NULL) {
		p = take_entry(e);
		*p = (struct prefix){.id = w->prefix};
	}
	p->n_tokens = p->n_tokens > n ? p->n_tokens : n;
	p->used = now_ns;
}

/* Those that waited for this beginning look again. */
static void wake(struct plan_engine *e, uint64_t now_ns)
{
	list_each(it, &e->seqs) {
		struct plan_seq *q = list_entry(it, struct plan_seq, node);
		if (!q->s.blocked)
			continue;
		q->s.blocked = false;
		sched_update(e->sched, &q->s, now_ns);
	}
}

/* Does another one compute what `than` shares with it, beyond the n tokens that are there? */
static bool is_computing(const struct plan_engine *e, const struct plan_seq *than, uint32_t n)
{
	const uint32_t mine = than->r->work.n_shared;
	if (n + PLAN_PAGE > mine)
		return false;
	list_each(it, &e->seqs) {
		const struct plan_seq *q = list_entry(it, struct plan_seq, node);
		const uint32_t its = leaves(&q->r->work), both = its < mine ? its : mine;
		if (q != than && q->s.started && q->s.prefilling && q->r->work.prefix == than->r->work.prefix &&
		    q->s.n_past < both && n + PLAN_PAGE <= both)
			return true;
	}
	return false;
}

/* ---- the scheduler's owner ---- */

static uint32_t would_have(const struct plan_engine *e, const struct plan_seq *q)
{
	uint32_t n = plan_engine_has(e, &q->r->work);
	return n > q->n_there ? n : q->n_there;
}

static void look(void *ctx, struct sched_seq *s, struct sched_look *out)
{
	struct plan_engine *e = ctx;
	struct plan_seq *q = seq_of(s);
	*out = (struct sched_look){.n_cached = would_have(e, q)};
	out->blocked = is_computing(e, q, out->n_cached);
}

static uint32_t pages_back(void *ctx, const struct sched_seq *s)
{
	(void)ctx;
	return s->n_pages;
}

static void evict(struct plan_engine *e, struct sched_seq *s, uint64_t now_ns)
{
	e->n_pages_used -= s->n_pages;
	s->n_left += s->n_past;
	s->n_past = s->n_pages = 0;
	s->started = false;
	s->prefilling = true;
	sched_update(e->sched, s, now_ns);
}

/* ---- a step ---- */

static void start(struct plan_engine *e, struct plan_seq *q)
{
	struct sched_seq *s = &q->s;
	uint32_t n = would_have(e, q), all = s->n_left;
	n = n < all ? n : all - 1;
	s->started = true;
	s->n_past = n;
	s->n_left = all - n;
}

/* As long as pays, by the cost of the step's rows. Returns its rows. */
static uint32_t draft(struct plan_engine *e, struct plan_seq *q, struct spec_now *now)
{
	struct spec_rate rate;
	struct spec_trial none = {.patience = SPEC_MOST_PATIENCE}; /* what is accepted is known */
	uint32_t left = q->n_answer - q->n_made, most = e->box.max_draft;
	q->n_draft = 0;
	if (q->s.prefilling || most == 0 || left < 2)
		return 0;
	spec_rate_init(&rate, e->box.accept);
	most = most < left - 1 ? most : left - 1;
	uint32_t n = spec_length(&rate, &none, 0, now, q->s.n_past, most < SPEC_MAX_DRAFT ? most : SPEC_MAX_DRAFT,
				 &(struct spec_price){0});
	q->n_draft = sched_grant_draft(e->sched, &e->plan, &q->s, n);
	if (q->n_draft > 0)
		spec_now_add(now, &rate, q->s.n_past, q->n_draft);
	return q->n_draft;
}

static uint32_t n_accepted(struct plan_engine *e, const struct plan_seq *q)
{
	uint32_t n = 0;
	while (n < q->n_draft && load_uniform(&e->random) < e->box.accept)
		n++;
	return n;
}

/* Rows of the step that runs from which tokens are drawn, to be told or compared with a draft's. */
static uint32_t n_drawn(const struct plan_engine *e)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < e->plan.n_run; i++)
		if (e->plan.run[i]->n_left == e->plan.run[i]->n_tokens)
			n += 1 + seq_of(e->plan.run[i])->n_draft;
	return n;
}

/* As the engine averages it. */
static void measure(struct plan_engine *e, double took_ns)
{
	e->decode_step_ns += e->decode_step_ns > 0 ? (took_ns - e->decode_step_ns) / 8 : took_ns;
}

/* An engine takes mail and credit between two steps, so what comes while one runs is counted after it, and the
 * gateway's credit comes during the next one. */
static void take_credit(struct plan_engine *e, uint64_t now_ns)
{
	list_each_safe(it, tmp, &e->coming) {
		struct plan_seq *q = list_entry(it, struct plan_seq, coming);
		if (q->due_ns <= now_ns && !q->counted) {
			q->counted = true;
			q->due_ns = now_ns + e->box.link_ns;
		}
		if (q->due_ns > now_ns)
			continue;
		list_remove(&q->coming);
		q->s.credit = true;
		q->s.served_ns = now_ns; /* it could not be served earlier */
		sched_update(e->sched, &q->s, now_ns);
	}
}

void plan_engine_start(struct plan_engine *e, uint64_t now_ns)
{
	const struct sched_owner owner = {.ctx = e, .look = look, .pages_back = pages_back};
	struct cost_past past = {0};
	uint32_t rows = 0;
	bool evicted = true;
	if (e->end_ns == UINT64_MAX)
		take_credit(e, now_ns);
	/* A plan that only evicts is followed by one that runs. */
	for (int i = 0; i < 2 && rows == 0 && evicted && e->end_ns == UINT64_MAX && e->n_seqs > 0; i++) {
		sched_plan(e->sched, &owner, &e->box.cost, e->box.n_pages - e->n_pages_used, now_ns, &e->plan);
		evicted = e->plan.n_evict > 0;
		for (uint32_t k = 0; k < e->plan.n_evict; k++)
			evict(e, e->plan.evict[k], now_ns);
		struct spec_now now = {
		    .cost = &e->box.cost, .rows = e->plan.n_decode + e->plan.n_prefill, .tokens = e->plan.n_decode};
		for (uint32_t k = 0; k < e->plan.n_run; k++) {
			struct sched_seq *s = e->plan.run[k];
			if (!s->started)
				start(e, seq_of(s));
			s->n_tokens = s->n_tokens < s->n_left ? s->n_tokens : s->n_left;
			const uint32_t its = s->n_tokens + draft(e, seq_of(s), &now);
			rows += its;
			past.positions += (double)cost_positions(s->n_past, its);
			past.reads += s->n_past + its;
			e->n_prefilled += s->prefilling ? s->n_tokens : 0;
			uint32_t pages = pages_of(s->n_past + its);
			e->n_pages_used += pages > s->n_pages ? pages - s->n_pages : 0;
			s->n_pages = pages > s->n_pages ? pages : s->n_pages;
		}
	}
	if (rows == 0)
		return;
	e->now = (struct plan_step){.rows = rows, .wanted = n_drawn(e), .past = past};
	e->now.ns = e->box.curve.n > 0 ? plan_curve_ns(&e->box.curve, &e->now) : cost_step_ns(&e->box.cost, rows, past);
	e->end_ns = now_ns + (uint64_t)(e->now.ns + e->box.step_ns + e->box.token_ns * e->now.wanted) + 1;
	e->n_decoded += e->plan.n_decode;
	if (e->plan.n_prefill == 0)
		measure(e, e->now.ns);
}

uint64_t plan_engine_next(const struct plan_engine *e)
{
	uint64_t at = e->end_ns;
	if (at != UINT64_MAX)
		return at;
	list_each(it, &e->coming) {
		const struct plan_seq *q = list_entry(it, const struct plan_seq, coming);
		at = q->due_ns < at ? q->due_ns : at;
	}
	return at;
}

static void drop(struct plan_engine *e, struct plan_seq *q)
{
	e->n_pages_used -= q->s.n_pages;
	e->n_seqs--;
	list_remove(&q->coming);
	sched_remove(e->sched, &q->s);
	sched_tenant_leave(&e->tenants, q->s.tenant);
	list_remove(&q->node);
	sl_free(q);
}

static void token(struct plan_engine *e, struct plan_seq *q, uint64_t now_ns)
{
	struct plan_request *r = q->r;
	q->s.n_left = 1;
	q->s.prefilling = false;
	q->n_made++;
	r->n_made++;
	const uint64_t gap = r->first_ns == 0 ? 0 : now_ns - r->last_ns;
	r->first_ns = r->first_ns == 0 ? now_ns : r->first_ns;
	r->last_ns = now_ns;
	r->longest_ns = gap > r->longest_ns ? gap : r->longest_ns;
	if (e->events.gap != NULL && r->n_made > 1)
		e->events.gap(e->events.ctx, gap);
	if (q->n_made < q->n_answer) {
		sched_update(e->sched, &q->s, now_ns);
		return;
	}
	drop(e, q);
	e->events.done(e->events.ctx, e, r, now_ns);
}

/* The step's own and those that its draft has right. */
static void tokens(struct plan_engine *e, struct plan_seq *q, uint64_t now_ns)
{
	uint32_t n = 1 + n_accepted(e, q);
	q->s.n_past += n - 1;
	for (; n > 0; n--) {
		const bool last = q->n_made + 1 == q->n_answer;
		token(e, q, now_ns);
		if (last)
			return; /* it is gone */
	}
}

void plan_engine_finish(struct plan_engine *e)
{
	uint64_t now = e->end_ns;
	bool kept = false;
	if (now == UINT64_MAX)
		return;
	e->end_ns = UINT64_MAX;
	if (e->box.curve.n > 0)
		cost_learn(&e->box.cost, e->now.rows, e->now.past, e->now.ns);
	for (uint32_t i = 0; i < e->plan.n_run; i++) {
		struct plan_seq *q = seq_of(e->plan.run[i]);
		struct sched_seq *s = &q->s;
		if (s->n_tokens == 0)
			continue;
		const bool more = s->n_past < leaves(&q->r->work);
		s->n_past += s->n_tokens;
		s->n_left -= s->n_tokens;
		s->served_ns = now;
		if (more)
			keep(e, &q->r->work, s->n_past, now);
		kept = kept || (more && s->prefilling);
		if (s->n_left == 0)
			tokens(e, q, now);
		else
			sched_update(e->sched, s, now);
	}
	if (kept)
		wake(e, now);
}

/* ---- its life ---- */

int plan_engine_add(struct plan_engine *e, struct plan_request *r, uint32_t n_answer, uint32_t n_there, uint64_t now_ns)
{
	struct plan_seq *q = sl_zalloc(sizeof *q);
	if (q == NULL)
		return SL_ENOMEM;
	q->r = r;
	q->n_answer = n_answer;
	q->n_there = n_there;
	q->s = (struct sched_seq){.order = ++e->order,
				  .served_ns = now_ns,
				  .width = 1,
				  .credit = e->box.link_ns == 0 || n_there > 0,
				  .prefilling = true,
				  .n_left = r->work.n_prompt + r->n_made,
				  .tenant = sched_tenant_enter(&e->tenants, 1, 0)};
	if (q->s.tenant == NULL || sched_add(e->sched, &q->s, now_ns) != 0) {
		if (q->s.tenant != NULL)
			sched_tenant_leave(&e->tenants, q->s.tenant);
		sl_free(q);
		return SL_ENOMEM;
	}
	q->due_ns = now_ns + (uint64_t)(e->box.text_ns * r->work.n_prompt);
	list_init(&q->coming);
	if (!q->s.credit)
		list_push_back(&e->coming, &q->coming);
	list_push_back(&e->seqs, &q->node);
	e->n_seqs++;
	return 0;
}

int plan_engine_create(const struct plan_box *box, const struct plan_events *events, struct plan_engine **out)
{
	struct plan_engine *e = sl_zalloc(sizeof *e);
	*out = NULL;
	if (e == NULL)
		return SL_ENOMEM;
	e->box = *box;
	e->events = *events;
	e->end_ns = UINT64_MAX;
	e->random.state = 1;
	list_init(&e->seqs);
	list_init(&e->coming);
	const struct sched_config cfg = {.step_tokens = box->step_tokens,
					 .max_sequences = box->max_sequences,
					 .kv = kv_groups_one(PLAN_PAGE, 1),
					 .n_pages = box->n_pages,
					 .age_ns = AGE_MS * NS_PER_MS,
					 .starve_ns = STARVE_MS * NS_PER_MS,
					 .paused_ns = NS_PER_S,
					 .itl_target_ns = box->itl_target_ns};
	int rc = sched_tenants_init(&e->tenants);
	if (rc != 0) {
		sl_free(e);
		return rc;
	}
	rc = sched_create(&cfg, &e->sched);
	if (rc != 0) {
		sched_tenants_dispose(&e->tenants);
		sl_free(e);
		return rc;
	}
	*out = e;
	return 0;
}

void plan_engine_destroy(struct plan_engine *e)
{
	if (e == NULL)
		return;
	while (!list_empty(&e->seqs))
		drop(e, list_entry(e->seqs.next, struct plan_seq, node));
	sched_destroy(e->sched);
	sched_tenants_dispose(&e->tenants);
	sl_free(e);
}

uint32_t plan_engine_n_active(const struct plan_engine *e) { return e->n_seqs; }
uint64_t plan_engine_n_prefilled(const struct plan_engine *e) { return e->n_prefilled; }

struct plan_figures plan_engine_figures(const struct plan_engine *e)
{
	const uint32_t n = sched_n_started(e->sched), rows = e->box.step_tokens;
	return (struct plan_figures){.running = n,
				     .waiting = e->n_seqs - n,
				     .kv_used = (double)e->n_pages_used / e->box.n_pages,
				     .prefill_tokens = e->n_prefilled,
				     .decode_tokens = e->n_decoded,
				     .prefill_token_us = cost_rows_ns(&e->box.cost, rows) / 1e3 / rows,
				     .decode_step_us = e->decode_step_ns / 1e3};
}
