/* SPDX-License-Identifier: Apache-2.0
 *
 * A small world around the scheduler, the page pool and the prefix tree, with one group of layers or several, some of
 * them windowed: a fake clock, a "kernel" that writes each token where the page table says and finds every earlier one
 * there that its group sees, and random lives:
 * bursts of requests, tenants of several weights, all tiers, conversations that go on, readers that
 * stop reading, paces, cancels in every phase, allocations and pages that fail. After every step
 * everything that must hold is checked. SIM_STEPS and SIM_SEED choose another run; a violation names
 * its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "engine/kv/prefix.h"
#include "engine/sched/sched.h"
#include "tests/support/part.h"

enum {
	PAGE = 4,
	PLACES = 12,
	LIVES = 48,
	TENANTS = 5,
	MAX_TOKENS = 160,
	MAX_DRAFT = 8,
	MAX_PAGES = MAX_TOKENS / PAGE,
	ROW = MAX_PAGES + 2,
	GROUPS = 4,
	MOST_POOL = 512,
	STEP = 24,
};

/* Everybody with credit gets on within this much fake time: some forty requests of at most 160 tokens
 * each, at most 48 of them at a time, take the machine under a minute together; ageing and fairness
 * can only change whose turn it is. */
static const uint64_t longest_wait_ns = 180 * NS_PER_S;

enum phase { OUT, WAITING, PREFILL, DECODE };

struct life {
	struct sched_seq s;
	struct prefix_path path;
	struct prefix_waiter waiter;
	enum phase phase;
	int tenant, talk; /* which conversation it goes on with */
	uint64_t salt;
	int32_t tokens[MAX_TOKENS + 1], pages[GROUPS * ROW];
	uint32_t n, n_prompt, want, credit;
	uint64_t pace_ns, seen_ns; /* when it last got on, or could not */
	int32_t draft[MAX_DRAFT];
	uint32_t n_draft; /* rows granted in this step, of tokens that may follow */
};

struct world {
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct kv_pool *pool;
	struct kv_groups g;
	struct prefix_tree *tree;
	struct sched *sched;
	struct sched_tenants tenants;
	struct cost cost;
	struct life lives[LIVES];
	/* What was said so far in each conversation. */
	int32_t talk[16][MAX_TOKENS];
	uint32_t n_talk[16];
	uint64_t now, random, seed;
	unsigned long step;
	uint64_t n_done, n_cancelled, n_evicted, n_cached, n_prompt, n_blocked, n_drafted, n_right;
	int n_pages;
};

#define HOLDS(w, cond, ...)                                                                                 \
	do {                                                                                                \
		if (!(cond)) {                                                                              \
			print_error("SIM_SEED=%llu, step %lu: ", (unsigned long long)(w)->seed, (w)->step); \
			print_error(__VA_ARGS__);                                                           \
			fail_msg("%s", #cond);                                                              \
		}                                                                                           \
	} while (0)

static uint32_t draw(struct world *w, uint32_t below)
{
	w->random = w->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(w->random >> 33) % below;
}

/* ---- the kernel ---- */

static float *slot(const struct world *w, int32_t page, uint32_t token)
{
	return (float *)kv_pool_layout(w->pool)->k + ((size_t)page * PAGE + token) * 2;
}

static void write(struct world *w, const struct life *l, uint32_t at, int32_t token)
{
	for (uint32_t g = 0; g < w->g.n_groups; g++) {
		int32_t page = l->pages[g * ROW + at / PAGE];
		HOLDS(w, kv_page_refs(w->pool, page) == 1, "a shared page is written\n");
		*slot(w, page, at % PAGE) = (float)(token + 1);
	}
}

static void compute(struct world *w, const struct life *l, uint32_t from, uint32_t n)
{
	for (uint32_t i = from; i < from + n; i++)
		write(w, l, i, l->tokens[i]);
	for (uint32_t g = 0; g < w->g.n_groups; g++) {
		uint32_t seen = g >= w->g.n_full && from >= w->g.window ? from - w->g.window + 1 : 0;
		for (uint32_t i = seen; i < from + n; i++)
			HOLDS(w, (int)*slot(w, l->pages[g * ROW + i / PAGE], i % PAGE) == l->tokens[i] + 1,
			      "position %u of %u holds another token in group %u\n", i, from + n, g);
	}
}

/* ---- lives ---- */

static struct life *life_of(const struct sched_seq *s)
{
	return (struct life *)(void *)((char *)(uintptr_t)s - offsetof(struct life, s));
}

static uint32_t pages_back(void *ctx, const struct sched_seq *view)
{
	const struct world *w = ctx;
	const struct life *l = life_of(view);
	return kv_groups_held(&w->g, view->first_page, view->n_pages) -
	       kv_groups_held(&w->g, l->path.n_passed, l->path.n_pages) + prefix_n_exclusive(w->tree, &l->path);
}

/* Gives up the pages with these indices; of windowed groups only those that it still has. */
static void drop_pages(struct world *w, struct life *l, uint32_t group, uint32_t from, uint32_t to)
{
	for (; group < w->g.n_groups; group++)
		for (uint32_t i = from; i < to; i++) {
			int32_t *page = &l->pages[group * ROW + i];
			if (group >= w->g.n_full && i < l->s.first_page)
				continue;
			kv_page_unref(w->pool, *page);
			*page = -1;
		}
}

/* The window passes. */
static void pass(struct world *w, struct life *l)
{
	uint32_t first = kv_groups_first(&w->g, l->s.n_past);
	if (first <= l->s.first_page)
		return;
	prefix_pass(w->tree, &l->path, l->tokens, first);
	drop_pages(w, l, w->g.n_full, l->s.first_page, first);
	l->s.first_page = first;
}

static void release(struct world *w, struct life *l)
{
	prefix_end(w->tree, &l->path, l->tokens, l->s.n_past, l->pages);
	drop_pages(w, l, 0, 0, l->s.n_pages);
	l->s.n_cached = l->s.n_past;
	l->s.n_pages = l->s.first_page = l->s.n_past = 0;
	l->s.n_left = l->n;
	l->s.started = false;
	l->s.prefilling = true;
}

static void wake(struct world *w)
{
	struct prefix_waiter *p;
	while ((p = prefix_woken(w->tree)) != NULL) {
		struct life *l = (struct life *)(void *)((char *)p - offsetof(struct life, waiter));
		l->s.blocked = false;
		sched_update(w->sched, &l->s, w->now);
	}
}

static void leave(struct world *w, struct life *l)
{
	uint32_t before = (uint32_t)kv_pool_n_free(w->pool) + prefix_n_reclaimable(w->tree);
	if (l->s.started) {
		/* Whatever nobody else is using can be had at once. */
		uint32_t own = pages_back(w, &l->s);
		release(w, l);
		HOLDS(w, (uint32_t)kv_pool_n_free(w->pool) + prefix_n_reclaimable(w->tree) >= before + own,
		      "a page is not free at once\n");
	}
	list_remove(&l->waiter.link);
	sched_remove(w->sched, &l->s);
	sched_tenant_leave(&w->tenants, l->s.tenant);
	memcpy(w->talk[l->talk], l->tokens, l->n * sizeof *l->tokens);
	w->n_talk[l->talk] = l->n;
	l->phase = OUT;
	wake(w);
}

static void arrive(struct world *w, struct life *l)
{
	static const uint32_t weights[TENANTS] = {100, 100, 300, 10, 1000};
	*l = (struct life){.tenant = (int)draw(w, TENANTS), .talk = (int)draw(w, 16)};
	list_init(&l->waiter.link);
	/* A conversation goes on, or one of a few beginnings, and something of its own. */
	uint32_t n = draw(w, 3) > 0 ? w->n_talk[l->talk] : 0;
	if (n > 0)
		memcpy(l->tokens, w->talk[l->talk], n * sizeof *l->tokens);
	else
		for (int32_t beginning = (int32_t)draw(w, 3); n < 30; n++)
			l->tokens[n] = beginning * 50 + (int32_t)n;
	uint32_t most = n + 1 + draw(w, 40);
	while (n < most && n < MAX_TOKENS - 20)
		l->tokens[n++] = (int32_t)draw(w, 9);
	if (n > MAX_TOKENS - 20)
		n = MAX_TOKENS - 20;
	l->n = l->n_prompt = n;
	l->want = 1 + draw(w, 18);
	l->credit = draw(w, 4) > 0 ? 1000 : draw(w, 5);
	l->salt = draw(w, 4) == 0 ? 0 : (uint64_t)l->tenant + 1;
	l->pace_ns = draw(w, 6) == 0 ? 50 * NS_PER_MS : 0;
	l->seen_ns = w->now;
	l->s.tenant = sched_tenant_enter(&w->tenants, (uint64_t)l->tenant + 1, weights[l->tenant]);
	l->s.order = (uint64_t)w->step * LIVES + (uint64_t)(l - w->lives);
	l->s.priority = (uint8_t)(draw(w, 3) == 0 ? draw(w, SCHED_TIERS + 2) : 0);
	l->s.width = 1;
	l->s.prefilling = true;
	l->s.n_left = l->n;
	l->s.served_ns = w->now;
	l->s.credit = l->credit > 0;
	if (l->s.tenant == NULL)
		return;
	if (sched_add(w->sched, &l->s, w->now) != 0) {
		sched_tenant_leave(&w->tenants, l->s.tenant);
		return;
	}
	l->phase = WAITING;
}

static void give_credit(struct world *w, struct life *l, uint32_t n)
{
	if (l->credit == 0) {
		l->seen_ns = l->s.served_ns = w->now;
		l->s.credit = true;
	}
	l->credit += n;
	sched_update(w->sched, &l->s, w->now);
}

/* ---- a step ---- */

static void look(void *ctx, struct sched_seq *view, struct sched_look *out)
{
	struct world *w = ctx;
	struct life *l = life_of(view);
	struct prefix_match m;
	prefix_lookup(w->tree, l->salt, l->tokens, l->n, &m);
	if (m.pending != NULL) {
		struct life *other =
		    (struct life *)(void *)((char *)prefix_claimant(m.pending) - offsetof(struct life, path));
		sched_boost(w->sched, &other->s, view->priority, w->now);
		prefix_await(m.pending, &l->waiter);
		out->blocked = true;
		w->n_blocked++;
		return;
	}
	out->n_cached = m.n_tokens;
	out->n_cached_pages = m.n_pages;
	out->n_unpinned = m.n_unpinned;
}

static void check_plan(struct world *w, const struct sched_plan *p, uint32_t n_free)
{
	uint32_t prefill = 0, decode = 0;
	for (uint32_t i = 0; i < p->n_run; i++) {
		const struct sched_seq *s = p->run[i];
		for (uint32_t k = 0; k < i; k++)
			HOLDS(w, p->run[k] != s, "one runs twice\n");
		HOLDS(w, s->n_tokens > 0 && s->n_tokens <= s->n_left, "%u tokens of %u\n", s->n_tokens, s->n_left);
		HOLDS(w, s->credit && !s->blocked && !s->evict, "one runs that must not\n");
		HOLDS(w, s->prefilling || s->due_ns <= w->now, "before its time\n");
		if (s->prefilling)
			prefill += s->n_tokens;
		else
			decode++;
	}
	HOLDS(w, prefill == p->n_prefill && prefill <= STEP && decode == p->n_decode, "%u rows\n", prefill);
	/* Who decodes, has credit and is due makes a token, unless pages or a fairer turn are in the way. */
	for (int i = 0; i < LIVES; i++) {
		const struct life *l = &w->lives[i];
		if (l->phase == DECODE && l->s.credit && l->s.due_ns <= w->now && l->s.n_tokens == 0 && !l->s.evict)
			HOLDS(w, prefill > 0 || n_free < PLACES * w->g.n_groups, "a decode is left out\n");
	}
}

/* Some that decode draft; what is granted is within the step and the pages. */
static void draft(struct world *w, struct sched_plan *p)
{
	uint32_t n_pages = p->pages_left, n_rows = 0;
	for (uint32_t i = 0; i < p->n_run; i++) {
		struct life *l = life_of(p->run[i]);
		l->n_draft = 0;
		if (l->s.prefilling || draw(w, 2) == 0)
			continue;
		uint32_t most = l->credit < l->want ? l->credit - 1 : l->want - 1, n = 1 + draw(w, MAX_DRAFT);
		uint32_t before = l->s.n_past / PAGE + 1, rows = p->rows_left, pages = p->pages_left / w->g.n_groups;
		n = n < most ? n : most;
		l->n_draft = sched_grant_draft(w->sched, p, &l->s, n);
		HOLDS(w, l->n_draft <= n && rows - p->rows_left == l->n_draft, "%u rows of a draft of %u\n", l->n_draft,
		      n);
		uint32_t after = (l->s.n_past + l->n_draft) / PAGE + 1;
		before = before > l->s.n_pages ? before : l->s.n_pages;
		HOLDS(w, pages - p->pages_left / w->g.n_groups == (after > before ? after - before : 0),
		      "pages that are not there\n");
		n_rows += l->n_draft;
		for (uint32_t k = 0; k < l->n_draft; k++)
			l->draft[k] = (int32_t)draw(w, 9);
		w->n_drafted += l->n_draft;
	}
	HOLDS(w, n_rows + p->n_prefill <= STEP && p->pages_left <= n_pages, "%u rows of drafts\n", n_rows);
}

static void start(struct world *w, struct life *l)
{
	l->s.n_past = prefix_begin(w->tree, l->salt, l->tokens, l->n, l->n, &l->path, l->pages, &l->s.n_pages);
	l->s.first_page = l->path.n_passed;
	l->s.n_left = l->n - l->s.n_past;
	l->s.started = true;
	l->phase = PREFILL;
	w->n_cached += l->s.n_past;
	w->n_prompt += l->n;
}

static bool take_index(struct world *w, struct life *l)
{
	for (uint32_t g = 0; g < w->g.n_groups; g++) {
		if (prefix_page_alloc(w->tree, &l->pages[g * ROW + l->s.n_pages]) == 0)
			continue;
		while (g-- > 0)
			kv_page_unref(w->pool, l->pages[g * ROW + l->s.n_pages]);
		return false;
	}
	l->s.n_pages++;
	return true;
}

static bool run_one(struct world *w, struct life *l)
{
	if (!l->s.started)
		start(w, l);
	uint32_t n = l->s.n_tokens < l->s.n_left ? l->s.n_tokens : l->s.n_left;
	while (l->s.n_pages * PAGE < l->s.n_past + n + l->n_draft) {
		if (!take_index(w, l)) {
			l->n_draft = 0;
			sched_update(w->sched, &l->s, w->now);
			return false; /* it sits this step out */
		}
	}
	compute(w, l, l->s.n_past, n);
	for (uint32_t i = 0; i < l->n_draft; i++)
		write(w, l, l->s.n_past + n + i, l->draft[i]);
	l->s.n_past += n;
	l->s.n_left -= n;
	l->s.served_ns = l->seen_ns = w->now;
	if (l->s.n_left > 0)
		sched_update(w->sched, &l->s, w->now);
	prefix_computed(w->tree, &l->path, l->tokens, l->s.n_past, l->pages);
	return true;
}

static void token(struct world *w, struct life *l, int32_t id)
{
	if (l->s.n_left > 0)
		return;
	l->tokens[l->n++] = id;
	l->credit--;
	if (--l->want == 0) {
		w->n_done++;
		leave(w, l);
		return;
	}
	l->phase = DECODE;
	l->s.prefilling = false;
	l->s.n_left = 1;
	l->s.credit = l->credit > 0;
	l->s.due_ns = l->pace_ns > 0 ? w->now + l->pace_ns : 0;
	sched_update(w->sched, &l->s, w->now);
}

/* The tokens of one step: as many of the draft as the die says are right, then one that was not drafted. */
static void tokens(struct world *w, struct life *l)
{
	uint32_t n_right = l->n_draft > 0 ? draw(w, l->n_draft + 1) : 0;
	l->n_draft = 0;
	for (uint32_t i = 0; i < n_right; i++) {
		token(w, l, l->draft[i]);
		if (l->phase != DECODE)
			return;
		l->s.n_past++;
		l->s.n_left = 0;
		prefix_computed(w->tree, &l->path, l->tokens, l->s.n_past, l->pages);
		w->n_right++;
	}
	token(w, l, (int32_t)draw(w, 9));
	uint32_t keep = l->s.n_past / PAGE + 1;
	if (l->phase == DECODE && l->s.n_pages > keep) {
		drop_pages(w, l, 0, keep, l->s.n_pages);
		l->s.n_pages = keep;
	}
}

static void step(struct world *w)
{
	struct sched_plan p;
	const struct sched_owner owner = {.ctx = w, .look = look, .pages_back = pages_back};
	for (int i = 0; i < LIVES; i++)
		if (w->lives[i].phase != OUT && w->lives[i].s.started)
			pass(w, &w->lives[i]);
	uint32_t n_free = (uint32_t)kv_pool_n_free(w->pool) + prefix_n_reclaimable(w->tree);
	sched_plan(w->sched, &owner, &w->cost, n_free, w->now, &p);
	check_plan(w, &p, n_free);
	for (uint32_t i = 0; i < p.n_evict; i++) {
		struct life *l = life_of(p.evict[i]);
		HOLDS(w, l->s.started, "one without pages is evicted\n");
		release(w, l);
		l->phase = WAITING;
		l->seen_ns = w->now;
		sched_update(w->sched, &l->s, w->now);
		w->n_evicted++;
	}
	wake(w);
	draft(w, &p);
	bool ran[2 * PLACES] = {false};
	uint32_t rows = 0;
	struct cost_past past = {0};
	for (uint32_t i = 0; i < p.n_run; i++) {
		uint32_t n_past = p.run[i]->n_past, n = p.run[i]->n_tokens;
		ran[i] = run_one(w, life_of(p.run[i]));
		if (!ran[i])
			continue;
		rows += n;
		past.positions += (double)cost_positions(n_past, n);
		past.reads += (double)n_past + n;
	}
	double ns = 2e6 + (rows * 1e5 + past.positions * 20 + past.reads * 50) * (0.8 + draw(w, 5) / 10.0);
	if (rows > 0)
		cost_learn(&w->cost, rows, past, ns);
	w->now += (uint64_t)ns;
	for (uint32_t i = 0; i < p.n_run; i++)
		if (ran[i])
			tokens(w, life_of(p.run[i]));
	wake(w);
}

/* ---- what must hold after every step ---- */

static void check_world(struct world *w)
{
	static uint32_t held[MOST_POOL];
	memset(held, 0, sizeof held);
	uint32_t mine = 0, all = 0, n_started = 0;
	for (int i = 0; i < LIVES; i++) {
		const struct life *l = &w->lives[i];
		if (l->phase == OUT)
			continue;
		n_started += l->s.started;
		for (uint32_t k = 0; k < kv_groups_held(&w->g, l->s.first_page, l->s.n_pages); k++, mine++) {
			uint32_t group, index;
			kv_groups_at(&w->g, l->s.first_page, l->s.n_pages, k, &group, &index);
			held[l->pages[group * ROW + index]]++;
		}
		HOLDS(w, l->s.n_pages * PAGE >= l->s.n_past, "tokens without pages\n");
		HOLDS(w, l->s.n_past + l->s.n_left == l->n || !l->s.started, "tokens are lost\n");
		if (l->s.credit && (l->s.prefilling || l->s.due_ns <= w->now))
			HOLDS(w, w->now - l->seen_ns < longest_wait_ns,
			      "somebody waits for ever (tenant %d, tier %d)\n", l->tenant, l->s.priority);
	}
	for (int i = 0; i < w->n_pages; i++) {
		uint32_t refs = kv_page_refs(w->pool, i);
		HOLDS(w, refs == held[i] || refs == held[i] + 1, "page %d: %u references, %u holders\n", i, refs,
		      held[i]);
		all += refs;
	}
	HOLDS(w, all == mine + prefix_n_pages(w->tree), "references are lost\n");
	HOLDS(w, sched_n_started(w->sched) == n_started && n_started <= PLACES, "%u have places\n", n_started);
	sched_validate(w->sched);
	prefix_validate(w->tree);
	kv_pool_validate(w->pool);
}

static const struct kv_groups one = {.page_tokens = PAGE, .n_groups = 1, .n_full = 1, .n_layers = 1};

static void world_open(struct world *w, uint64_t seed, struct kv_groups g, int n_pages)
{
	struct sl_err err;
	struct kn_config kc = {.n_threads = 1, .max_rows = 1, .max_width = 8};
	memset(w, 0, sizeof *w);
	w->seed = w->random = seed;
	w->n_pages = n_pages;
	w->now = NS_PER_S;
	w->ops = kn_select("cpu-ref", &err);
	assert_int_equal(w->ops->open(&kc, &w->b, &err), 0);
	assert_int_equal(kv_pool_create(w->ops, w->b, KN_F32, n_pages, PAGE, 1, 1, 2, &w->pool, &err), 0);
	kv_pool_set_groups(w->pool, &g, NULL);
	w->g = g;
	assert_int_equal(prefix_create(w->pool, ROW, &w->tree), 0);
	assert_int_equal(sched_tenants_init(&w->tenants), 0);
	struct sched_config cfg = {.step_tokens = STEP,
				   .max_sequences = PLACES,
				   .kv = g,
				   .n_pages = (uint32_t)n_pages,
				   .age_ns = NS_PER_S,
				   .starve_ns = 5 * NS_PER_S,
				   .paused_ns = NS_PER_S / 2,
				   .itl_target_ns = 3 * NS_PER_MS};
	assert_int_equal(sched_create(&cfg, &w->sched), 0);
	cost_init(&w->cost, 2e6, 1e5);
}

/* Everybody goes, and everything is back. */
static void world_close(struct world *w)
{
	for (int i = 0; i < LIVES; i++)
		if (w->lives[i].phase != OUT)
			leave(w, &w->lives[i]);
	HOLDS(w, (uint32_t)kv_pool_n_free(w->pool) + prefix_n_reclaimable(w->tree) == (uint32_t)w->n_pages,
	      "pages are not back\n");
	HOLDS(w, sched_n_started(w->sched) == 0 && sched_n_queued(w->sched) == 0, "sequences are left\n");
	sched_destroy(w->sched);
	sched_tenants_dispose(&w->tenants);
	prefix_destroy(w->tree);
	kv_pool_destroy(w->pool);
	w->ops->close(w->b);
}

static void live(struct world *w, unsigned long n_steps)
{
	for (w->step = 0; w->step < n_steps; w->step++) {
		/* Bursts: some times nobody comes, some times everybody. */
		unsigned long hurry = w->step / 500 % 3;
		if (draw(w, hurry == 0 ? 8 : 2) == 0) {
			struct life *l = &w->lives[draw(w, LIVES)];
			if (l->phase == OUT)
				arrive(w, l);
			else if (draw(w, 12) == 0) {
				w->n_cancelled++;
				leave(w, l);
			} else if (l->credit == 0 || draw(w, 4) == 0)
				give_credit(w, l, 1 + draw(w, 10));
		}
		if (draw(w, 50) == 0)
			fault_arm(draw(w, 2) == 0 ? FAULT_ALLOC : FAULT_KV_PAGE, 1 + draw(w, 4), 1 + draw(w, 2));
		step(w);
		fault_disarm_all();
		/* Readers that had stopped begin again, or nobody could tell waiting from starving. */
		if (w->step % 64 == 0)
			for (int i = 0; i < LIVES; i++)
				if (w->lives[i].phase != OUT && w->lives[i].credit == 0 && draw(w, 2) == 0)
					give_credit(w, &w->lives[i], 1 + draw(w, 6));
		check_world(w);
	}
}

static unsigned long number(const char *name, unsigned long otherwise)
{
	const char *v = getenv(name);
	return v != NULL && v[0] != '\0' ? strtoul(v, NULL, 10) : otherwise;
}

static void everything_holds(void **state)
{
	(void)state;
	static struct world w;
	static const struct {
		int n_pages;
		bool scarce;
		uint32_t n_full, n_windowed, window;
	} pools[] = {{44, true, 1, 0, 0},  {72, false, 1, 0, 0}, {200, false, 1, 0, 0},
		     {80, true, 1, 1, 3},  {90, true, 1, 3, 10}, {300, false, 1, 3, 10},
		     {110, true, 2, 2, 9}, {40, true, 0, 1, 30}, {150, false, 0, 2, 24}};
	enum { POOLS = sizeof pools / sizeof *pools };
	unsigned long steps = number("SIM_STEPS", (unsigned long)some_of(160000, 400000)), seed = number("SIM_SEED", 1);
	for (int i = 0; i < POOLS; i++) {
		struct kv_groups g = {.page_tokens = PAGE,
				      .n_groups = pools[i].n_full + pools[i].n_windowed,
				      .n_full = pools[i].n_full,
				      .n_layers = 1,
				      .window = pools[i].window};
		world_open(&w, seed + (unsigned long)i, g, pools[i].n_pages);
		live(&w, steps / POOLS);
		print_message("%u full of %u groups, window %u, %d pages, %lu steps: %llu done, %llu cancelled, %llu "
			      "pre-empted, %llu waited for a prefix, "
			      "%llu of %llu prompt tokens were there, %llu of %llu drafted ones were right\n",
			      g.n_full, g.n_groups, g.window, pools[i].n_pages, steps / POOLS,
			      (unsigned long long)w.n_done, (unsigned long long)w.n_cancelled,
			      (unsigned long long)w.n_evicted, (unsigned long long)w.n_blocked,
			      (unsigned long long)w.n_cached, (unsigned long long)w.n_prompt,
			      (unsigned long long)w.n_right, (unsigned long long)w.n_drafted);
		unsigned long each = steps / POOLS;
		assert_true(w.n_right > each / 100);
		assert_true(w.n_done > each / 100 && w.n_cancelled > each / 1000 && w.n_cached > 0);
		assert_true(w.n_blocked > 0);
		assert_true(!pools[i].scarce || w.n_evicted > 0);
		world_close(&w);
	}
}

/* Five tenants who all have more to compute than there is time for, and nothing else: what each has
 * had, for its weight, stays within one step's chunk of what the others have had; and a worse tier is
 * served by its age only. */
static void shares_are_fair(void **state)
{
	(void)state;
	static struct world w;
	enum { UNIT = 64 }; /* of a share, for a token at the usual weight */
	world_open(&w, 9, one, 250);
	uint64_t worse = 0, better = 0;
	const uint64_t steps = (uint64_t)some_of(8000, 20000);
	for (w.step = 0; w.step < steps; w.step++) {
		for (int i = 0; i < LIVES; i++) {
			struct life *l = &w.lives[i];
			if (l->phase != OUT)
				continue;
			do {
				if (l->phase != OUT)
					leave(&w, l);
				arrive(&w, l);
			} while (l->tenant != i % TENANTS);
			for (uint32_t k = 0; k < l->n; k++) /* nothing is alike */
				l->tokens[k] = (int32_t)(draw(&w, 1 << 20) + 100);
			l->want = 1;
			l->pace_ns = 0;
			l->credit = 1000;
			l->s.priority = 0;
			sched_remove(w.sched, &l->s);
			l->s.credit = true;
			/* One in twelve is of a worse tier. */
			l->s.priority = i % 12 == 11 ? 3 : 0;
			assert_int_equal(sched_add(w.sched, &l->s, w.now), 0);
		}
		struct life was[LIVES];
		memcpy(was, w.lives, sizeof was);
		step(&w);
		check_world(&w);
		for (int i = 0; i < LIVES; i++) {
			uint32_t got =
			    w.lives[i].phase == OUT ? was[i].s.n_left : w.lives[i].s.n_past - was[i].s.n_past;
			*(was[i].s.priority > 0 ? &worse : &better) += got <= STEP ? got : 0;
		}
		if (w.step < 100)
			continue;
		uint64_t least = UINT64_MAX, most = 0;
		for (int i = 0; i < LIVES; i++) {
			const struct sched_tenant *t = w.lives[i].phase != OUT ? w.lives[i].s.tenant : NULL;
			if (t == NULL || w.lives[i].s.priority > 0)
				continue;
			/* A chunk weighs most for the tenant of the smallest weight. */
			least = t->share < least ? t->share : least;
			most = t->share > most ? t->share : most;
		}
		/* A little more: who can't start for want of pages is passed. */
		HOLDS(&w, most - least <= (uint64_t)(STEP + STEP / 4) * UNIT * 100 / 10, "shares from %llu to %llu\n",
		      (unsigned long long)least, (unsigned long long)most);
	}
	/* Three ranks at a second each: a chunk of some 25 ms of steps every three seconds. */
	print_message("%llu tokens of the better tier, %llu of the worse\n", (unsigned long long)better,
		      (unsigned long long)worse);
	assert_true(worse > 0 && worse * 20 < better);
	world_close(&w);
}

/* Whoever was served alone is not made to wait for it when others come after a pause. */
static void a_pause_forgets(void **state)
{
	(void)state;
	struct sched_tenants t;
	assert_int_equal(sched_tenants_init(&t), 0);
	struct sched_tenant *a = sched_tenant_enter(&t, 1, 0);
	a->share = 1000000;
	sched_tenant_leave(&t, a);
	struct sched_tenant *b = sched_tenant_enter(&t, 2, 0);
	a = sched_tenant_enter(&t, 1, 0);
	assert_true(b->share + 1 >= a->share);
	/* Nor does idling save anything up. */
	b->share = 5000000;
	a->share = 4000000;
	struct sched_tenant *c = sched_tenant_enter(&t, 3, 0);
	assert_int_equal(c->share, 4000000 - 1);
	sched_tenant_leave(&t, a);
	sched_tenant_leave(&t, b);
	sched_tenant_leave(&t, c);
	for (uint64_t i = 0; i < 3 * SCHED_IDLE_TENANTS; i++)
		sched_tenant_leave(&t, sched_tenant_enter(&t, 100 + i, 0));
	assert_int_equal(t.n_idle, SCHED_IDLE_TENANTS);
	sched_tenants_dispose(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(everything_holds), cmocka_unit_test(shares_are_fair),
					   cmocka_unit_test(a_pause_forgets)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
