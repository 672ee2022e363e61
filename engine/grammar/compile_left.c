/* SPDX-License-Identifier: Apache-2.0
 *
 * Left recursion, direct, through other rules and past nullable symbols. Rules that begin with each other are a group.
 * Each rule A of a group is rewritten by left corners (Rosenkrantz, Lewis, "Deterministic left corner parsing", 1970):
 *
 *   A      → s β T(X,A)   for each alternative X → s β of the group whose first nonempty symbol s is outside it
 *   T(X,A)                what may follow in A once an X at its beginning is complete:
 *          → β T(Z,A)     for each Z → Y β of the group, Y being X or complete with it (β derives nothing else then)
 *          → nothing      if A is complete with X
 *
 * A group of n rules makes n² of T.
 */
#include "engine/grammar/compile_priv.h"

#include <string.h>

#include "base/alloc.h"

enum { MAX_UNROLL = 4096, MAX_GROUP = 512 };

static bool is_rule(uint32_t sym) { return (sym & GRAM_RULE) != 0; }

/* ---- groups: Tarjan's strongly connected components, without recursion ---- */

struct visit {
	uint32_t rule, alt, sym;
};

struct tarjan {
	struct work *w;
	uint32_t *index, *low, *stack;
	struct visit *visits;
	uint32_t n_index, n_stack, n_visits, n_groups;
};

/* The next rule that v's rule may begin with; false: none left. */
static bool next_head(const struct work *w, struct visit *v, uint32_t *head)
{
	const struct work_rule *r = &w->rules[v->rule];
	for (; v->alt < r->n; v->alt++, v->sym = 0) {
		const struct work_alt *a = &w->alts[r->from + v->alt];
		while (a->productive && v->sym < a->n) {
			uint32_t s = w->syms[a->from + v->sym];
			/* Past the last nullable symbol: no more heads in this alternative. */
			v->sym = work_nullable(w, s) ? v->sym + 1 : a->n;
			if (is_rule(s) && work_nonempty(w, s)) {
				*head = s & ~GRAM_RULE;
				return true;
			}
		}
	}
	return false;
}

static void begin(struct tarjan *t, uint32_t rule)
{
	t->index[rule] = t->low[rule] = ++t->n_index;
	t->stack[t->n_stack++] = rule;
	t->visits[t->n_visits++] = (struct visit){.rule = rule};
}

static void close_group(struct tarjan *t, uint32_t rule)
{
	struct work *w = t->w;
	uint32_t place = 0, member, link = 0;
	do {
		member = t->stack[--t->n_stack];
		struct work_rule *r = &w->rules[member];
		r->group = t->n_groups;
		r->place = place++;
		r->link = link;
		link = member;
		t->index[member] = UINT32_MAX;
	} while (member != rule);
	w->rules[rule].root = true;
	t->n_groups++;
	for (uint32_t i = rule, n = place; place > 1 && n > 0; n--, i = w->rules[i].link)
		w->rules[i].left = true;
}

static void visit_from(struct tarjan *t, uint32_t rule)
{
	begin(t, rule);
	while (t->n_visits > 0) {
		struct visit *v = &t->visits[t->n_visits - 1];
		uint32_t head, of = v->rule;
		if (next_head(t->w, v, &head)) {
			if (head == of)
				t->w->rules[of].left = true;
			if (t->index[head] == 0)
				begin(t, head);
			else if (t->index[head] != UINT32_MAX && t->index[head] < t->low[of])
				t->low[of] = t->index[head];
			continue;
		}
		t->n_visits--;
		if (t->n_visits > 0) {
			uint32_t up = t->visits[t->n_visits - 1].rule;
			if (t->low[of] < t->low[up])
				t->low[up] = t->low[of];
		}
		if (t->low[of] == t->index[of])
			close_group(t, of);
	}
}

static int find_groups(struct work *w)
{
	size_t n = (size_t)w->n_rules + 1;
	struct tarjan t = {.w = w,
			   .index = sl_zalloc_n(n, sizeof(uint32_t)),
			   .low = sl_zalloc_n(n, sizeof(uint32_t)),
			   .stack = sl_zalloc_n(n, sizeof(uint32_t)),
			   .visits = sl_zalloc_n(n, sizeof(struct visit))};
	int rc = t.index && t.low && t.stack && t.visits ? 0 : SL_ENOMEM;
	for (uint32_t i = 0; rc == 0 && i < w->n_rules; i++)
		if (t.index[i] == 0)
			visit_from(&t, i);
	sl_free(t.index);
	sl_free(t.low);
	sl_free(t.stack);
	sl_free(t.visits);
	return rc;
}

/* ---- repetitions in a group become plain rules ---- */

static void add_copy(struct rules *r, struct rules_sym to, uint32_t from, uint32_t n, struct rules_sym then)
{
	struct rules_sym of[64];
	if (n + 1 > sizeof(of) / sizeof(of[0])) {
		r->fault = SL_ELIMIT;
		return;
	}
	memcpy(of, r->syms + from, n * sizeof(*of));
	of[n] = then;
	rules_add(r, to, of, n + 1);
}

/* the separator, in the order of the copies after the first */
static uint32_t copy_between(struct rules *r, const struct rules_rule *rep, struct rules_sym to, struct rules_sym then)
{
	struct rules_sym of[64];
	if (rep->n_between + 2 > sizeof(of) / sizeof(of[0])) {
		r->fault = SL_ELIMIT;
		return 0;
	}
	memcpy(of, r->syms + rep->from + 1, rep->n_between * sizeof(*of));
	of[rep->n_between] = r->syms[rep->from];
	of[rep->n_between + 1] = then;
	rules_add(r, to, of, (size_t)rep->n_between + 2);
	return 0;
}

static void unroll(struct rules *r, uint32_t rule)
{
	struct rules_rule rep = r->rules[rule];
	bool unbounded = rep.most == RX_UNBOUNDED;
	uint32_t last = unbounded ? (rep.least > 1 ? rep.least : 1) : rep.most;
	if (last > MAX_UNROLL) {
		r->fault = SL_ELIMIT;
		return;
	}
	struct rules_sym at = {.is_rule = 1, .of = rule & 0x7FFFFFFF}, next = {0};
	r->rules[rule] = (struct rules_rule){.first = RULES_END, .last = RULES_END};
	for (uint32_t k = 0; k <= last && r->fault == 0; k++, at = next) {
		if (k >= rep.least)
			rules_add(r, at, NULL, 0);
		next = k == last ? at : rules_new(r);
		if (r->fault != 0 || (k == last && !unbounded))
			return;
		if (k == 0)
			add_copy(r, at, rep.from, 1, next);
		else
			copy_between(r, &rep, at, next);
	}
}

int work_groups(struct work *w, bool *unrolled)
{
	*unrolled = false;
	int rc = find_groups(w);
	for (uint32_t i = 0; rc == 0 && i < w->n_rules; i++) {
		if (!w->rules[i].left || !w->r->rules[i].is_repeat)
			continue;
		unroll(w->r, i);
		*unrolled = true;
		rc = rules_fault(w->r);
	}
	return rc;
}

/* ---- rewriting a group ---- */

struct group {
	struct work *w;
	const uint32_t *members;
	uint32_t n, group;
	uint32_t first_tail; /* T(X,A) is rule first_tail + X * n + A */
	bool *same;          /* [X * n + Y]: Y is complete with X */
};

static uint32_t tail_rule(const struct group *g, uint32_t x, uint32_t a) { return g->first_tail + x * g->n + a; }

static bool in_group(const struct group *g, uint32_t sym)
{
	return is_rule(sym) && (sym & ~GRAM_RULE) < g->w->n_rules && g->w->rules[sym & ~GRAM_RULE].group == g->group;
}

static bool derives_nothing_else(const struct work *w, const uint32_t *syms, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (!work_nullable(w, syms[i]))
			return false;
	return true;
}

static bool any_nonempty(const struct work *w, const uint32_t *syms, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (work_nonempty(w, syms[i]))
			return true;
	return false;
}

/* Calls fn for each alternative of the group and each symbol that its nonempty strings may begin with. */
typedef void corner_fn(struct group *g, uint32_t x, const uint32_t *syms, uint32_t n, uint32_t arg);

static void each_corner(struct group *g, corner_fn *fn, uint32_t arg)
{
	const struct work *w = g->w;
	for (uint32_t x = 0; x < g->n; x++) {
		const struct work_rule *r = &w->rules[g->members[x]];
		for (uint32_t i = 0; i < r->n; i++) {
			const struct work_alt a = w->alts[r->from + i];
			for (uint32_t k = 0; a.productive && k < a.n; k++) {
				uint32_t s = w->syms[a.from + k];
				if (work_nonempty(w, s))
					fn(g, x, w->syms + a.from + k, a.n - k, arg);
				if (!work_nullable(w, s))
					break;
			}
		}
	}
}

static void write_beginning(struct group *g, uint32_t x, const uint32_t *syms, uint32_t n, uint32_t a)
{
	if (in_group(g, syms[0]))
		return;
	uint32_t then = work_position(g->w, GRAM_RULE | tail_rule(g, x, a), GRAM_END);
	work_entry(g->w, work_chain(g->w, syms, n, then), 0);
}

static void note_same(struct group *g, uint32_t z, const uint32_t *syms, uint32_t n, uint32_t unused)
{
	(void)unused;
	if (in_group(g, syms[0]) && derives_nothing_else(g->w, syms + 1, n - 1))
		g->same[g->w->rules[syms[0] & ~GRAM_RULE].place * g->n + z] = true;
}

/* arg: X and A of the T(X,A) being written. */
static void write_step(struct group *g, uint32_t z, const uint32_t *syms, uint32_t n, uint32_t arg)
{
	uint32_t x = arg / g->n, a = arg % g->n;
	if (!in_group(g, syms[0]) || !g->same[x * g->n + g->w->rules[syms[0] & ~GRAM_RULE].place])
		return;
	if (!any_nonempty(g->w, syms + 1, n - 1))
		return;
	uint32_t then = work_position(g->w, GRAM_RULE | tail_rule(g, z, a), GRAM_END);
	work_entries(g->w, work_chain(g->w, syms + 1, n - 1, then), then, 0);
}

static void close_same(struct group *g)
{
	for (uint32_t x = 0; x < g->n; x++)
		g->same[x * g->n + x] = true;
	for (uint32_t k = 0; k < g->n; k++)
		for (uint32_t x = 0; x < g->n; x++)
			for (uint32_t y = 0; y < g->n && g->same[x * g->n + k]; y++)
				g->same[x * g->n + y] |= g->same[k * g->n + y];
}

static void write_rule(struct group *g, uint32_t rule, corner_fn *fn, uint32_t arg)
{
	uint32_t from = g->w->g->n_entries;
	each_corner(g, fn, arg);
	g->w->g->rules[rule].entries = from;
	g->w->g->rules[rule].n_entries = g->w->g->n_entries - from;
}

void work_write_left(struct work *w, const uint32_t *members, uint32_t n)
{
	struct group g = {.w = w, .members = members, .n = n, .group = w->rules[members[0]].group};
	if (n > MAX_GROUP)
		w->fault = SL_ELIMIT;
	g.same = sl_zalloc_n((size_t)n * n, sizeof(*g.same));
	if (g.same == NULL)
		w->fault = SL_ENOMEM;
	g.first_tail = w->fault == 0 ? work_new_rules(w, n * n) : 0;
	if (w->fault == 0) {
		each_corner(&g, note_same, 0);
		close_same(&g);
		/* Whether a T is nullable must be known before positions that contain it are made. */
		for (uint32_t i = 0; i < n * n; i++)
			w->g->rules[g.first_tail + i].nullable = g.same[i];
	}
	for (uint32_t a = 0; a < n && w->fault == 0; a++)
		write_rule(&g, members[a], write_beginning, a);
	for (uint32_t i = 0; i < n * n && w->fault == 0; i++)
		write_rule(&g, g.first_tail + i, write_step, i);
	sl_free(g.same);
}
