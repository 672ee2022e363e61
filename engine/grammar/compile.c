/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles rules: scan (compile_scan.c) → groups of left-recursive rules (compile_left.c) → positions and entries →
 * ranks.
 */
#include "engine/grammar/compile_priv.h"

#include "base/alloc.h"

/* The most positions that a grammar of n symbols may need. */
enum { MAX_POSITIONS = 1 << 24 };

void gram_dispose(struct gram *g)
{
	sl_free(g->pos);
	sl_free(g->entries);
	sl_free(g->rules);
	*g = (struct gram){0};
}

static bool room(struct work *w, void **at, uint64_t need, uint32_t *cap, size_t each)
{
	if (w->fault != 0)
		return false;
	if (need <= *cap)
		return true;
	if (need > MAX_POSITIONS) {
		w->fault = SL_ELIMIT;
		return false;
	}
	void *more = sl_realloc_n(*at, 2 * need + 64, each);
	if (more == NULL) {
		w->fault = SL_ENOMEM;
		return false;
	}
	*at = more;
	*cap = (uint32_t)(2 * need + 64);
	return true;
}

uint32_t work_new_rules(struct work *w, uint32_t n)
{
	struct gram *g = w->g;
	if (!room(w, (void **)&g->rules, (uint64_t)g->n_rules + n, &g->cap_rules, sizeof(*g->rules)))
		return 0;
	for (uint32_t i = 0; i < n; i++)
		g->rules[g->n_rules + i] = (struct gram_rule){0};
	g->n_rules += n;
	return g->n_rules - n;
}

uint32_t work_position(struct work *w, uint32_t sym, uint32_t next)
{
	struct gram *g = w->g;
	if (!room(w, (void **)&g->pos, (uint64_t)g->n_pos + 1, &g->cap_pos, sizeof(*g->pos)))
		return GRAM_END;
	bool nullable = (sym & GRAM_RULE) != 0 ? g->rules[sym & ~GRAM_RULE].nullable : work_nullable(w, sym);
	g->pos[g->n_pos] = (struct gram_pos){.sym = sym, .next = next, .nullable = nullable};
	return g->n_pos++;
}

uint32_t work_chain(struct work *w, const uint32_t *syms, uint32_t n, uint32_t next)
{
	for (uint32_t i = n; i-- > 0;)
		if (work_nonempty(w, syms[i]))
			next = work_position(w, syms[i], next);
	return next;
}

void work_entry(struct work *w, uint32_t pos, uint32_t count)
{
	struct gram *g = w->g;
	if (room(w, (void **)&g->entries, (uint64_t)g->n_entries + 1, &g->cap_entries, sizeof(*g->entries)))
		g->entries[g->n_entries++] = (struct gram_entry){pos, count};
}

void work_entries(struct work *w, uint32_t pos, uint32_t stop, uint32_t count)
{
	while (w->fault == 0 && pos != stop) {
		work_entry(w, pos, count);
		if (!w->g->pos[pos].nullable)
			return;
		pos = w->g->pos[pos].next;
	}
}

static void write_plain(struct work *w, uint32_t rule)
{
	const struct work_rule *r = &w->rules[rule];
	uint32_t from = w->g->n_entries;
	for (uint32_t i = 0; i < r->n && w->fault == 0; i++) {
		const struct work_alt *a = &w->alts[r->from + i];
		if (a->productive)
			work_entries(w, work_chain(w, w->syms + a->from, a->n, GRAM_END), GRAM_END, 0);
	}
	w->g->rules[rule].entries = from;
	w->g->rules[rule].n_entries = w->g->n_entries - from;
}

/* Whether the repetition's alternative "s between s" can occur. */
static bool has_second(const struct work *w, const struct work_rule *r)
{
	for (uint32_t i = 0; i < r->n; i++)
		if (w->alts[r->from + i].n > 1 && w->alts[r->from + i].productive)
			return true;
	return false;
}

/* If a copy, with its separator, may be empty, empty copies can make up any count, so only nonempty ones count. */
static void write_repeat(struct work *w, uint32_t rule)
{
	const struct work_rule *r = &w->rules[rule];
	const struct rules_rule rep = w->r->rules[rule];
	struct gram_rule *to = &w->g->rules[rule];
	to->entries = to->body = w->g->n_entries;
	if (r->n == 0 || !r->productive)
		return;
	bool second = has_second(w, r), all_nullable = true;
	uint32_t loop = GRAM_LOOP | rule, n = rep.n_between;
	const uint32_t *syms = w->syms + w->alts[r->from].from;
	for (uint32_t i = 0; i <= n; i++)
		all_nullable &= work_nullable(w, syms[i]);
	to->least = all_nullable ? 0 : rep.least;
	to->most = second ? rep.most : 1;
	if (second) {
		uint32_t first = work_chain(w, syms + 1, n + 1, loop);
		work_entries(w, first, loop, 1);
		to->n_body = w->g->n_entries - to->body;
		to->entries = work_nullable(w, syms[0]) ? to->body : w->g->n_entries;
	}
	if (rep.most >= 1)
		work_entries(w, work_chain(w, syms, 1, loop), loop, 0);
	to->n_entries = w->g->n_entries - to->entries;
}

static void write_rules(struct work *w)
{
	uint32_t *members = w->queue;
	for (uint32_t i = 0; i < w->n_rules && w->fault == 0; i++) {
		if (w->rules[i].left || !w->rules[i].productive)
			continue;
		if (w->r->rules[i].is_repeat)
			write_repeat(w, i);
		else
			write_plain(w, i);
	}
	for (uint32_t i = 0; i < w->n_rules && w->fault == 0; i++) {
		const struct work_rule *r = &w->rules[i];
		if (!r->left || !r->root)
			continue;
		for (uint32_t k = i, n = r->place + 1; n > 0; n--, k = w->rules[k].link)
			members[w->rules[k].place] = k;
		work_write_left(w, members, r->place + 1);
	}
}

/* ---- ranks: by depth-first search, a rule before those it may begin with ---- */

struct rank_visit {
	uint32_t rule, entry;
};

/* The first rule in the entry without a rank, or UINT32_MAX. */
static uint32_t next_unranked(const struct gram *g, struct rank_visit *v, const uint8_t *seen)
{
	const struct gram_rule *r = &g->rules[v->rule];
	while (v->entry < r->n_entries + r->n_body) {
		uint32_t e = v->entry < r->n_entries ? r->entries + v->entry : r->body + v->entry - r->n_entries;
		v->entry++;
		uint32_t sym = g->pos[g->entries[e].pos].sym;
		if ((sym & GRAM_RULE) != 0 && !seen[sym & ~GRAM_RULE])
			return sym & ~GRAM_RULE;
	}
	return UINT32_MAX;
}

static int find_ranks(struct gram *g)
{
	struct rank_visit *stack = sl_zalloc_n((size_t)g->n_rules + 1, sizeof(*stack));
	uint8_t *seen = sl_zalloc((size_t)g->n_rules + 1);
	uint32_t rank = g->n_rules, n = 0;
	for (uint32_t i = 0; stack != NULL && seen != NULL && i < g->n_rules; i++) {
		if (!seen[i])
			stack[n++] = (struct rank_visit){i, 0};
		seen[i] = 1;
		while (n > 0) {
			uint32_t next = next_unranked(g, &stack[n - 1], seen);
			if (next == UINT32_MAX) {
				g->rules[stack[--n].rule].rank = --rank;
				continue;
			}
			seen[next] = 1;
			stack[n++] = (struct rank_visit){next, 0};
		}
	}
	bool ok = stack != NULL && seen != NULL;
	sl_free(stack);
	sl_free(seen);
	return ok ? 0 : SL_ENOMEM;
}

static int scan(struct work *w)
{
	for (bool again = true; again;) {
		work_dispose(w);
		int rc = work_scan(w);
		if (rc == 0)
			rc = work_groups(w, &again);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int gram_compile(struct rules *r, struct rx_dfa *dfa, struct gram *out, struct sl_err *err)
{
	struct work w = {.r = r, .dfa = dfa, .g = out};
	*out = (struct gram){0};
	int rc = rules_fault(r);
	BUG_IF(rc == 0 && r->start == RULES_END, "a grammar without a start");
	if (rc == 0)
		rc = scan(&w);
	if (rc == 0 && !w.rules[r->start].productive)
		rc = sl_errf(err, SL_EINVAL, "the grammar has no string");
	if (rc == 0) {
		work_new_rules(&w, w.n_rules);
		work_position(&w, DFA_DEAD, GRAM_END); /* position 0 is never used */
		for (uint32_t i = 0; w.fault == 0 && i < w.n_rules; i++)
			out->rules[i].nullable = w.rules[i].nullable;
		write_rules(&w);
		out->start = r->start;
		rc = w.fault != 0 ? w.fault : find_ranks(out);
	}
	work_dispose(&w);
	return rc;
}
