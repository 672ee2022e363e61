/* SPDX-License-Identifier: Apache-2.0
 *
 * What each rule derives: anything at all, the empty string, a nonempty string. Linear: an alternative waits for its
 * symbols, and a rule that becomes known is propagated to its uses.
 */
#include "engine/grammar/compile_priv.h"

#include <string.h>

#include "base/alloc.h"

static uint32_t symbol(struct work *w, struct rules_sym s)
{
	return s.is_rule ? GRAM_RULE | s.of : dfa_state(w->dfa, s.of);
}

static bool is_rule(uint32_t sym) { return (sym & GRAM_RULE) != 0; }

bool work_nullable(const struct work *w, uint32_t sym)
{
	return is_rule(sym) ? w->rules[sym & ~GRAM_RULE].nullable : w->dfa->states[sym].nullable != 0;
}

bool work_nonempty(const struct work *w, uint32_t sym)
{
	if (is_rule(sym))
		return w->rules[sym & ~GRAM_RULE].nonempty;
	const struct dfa_state *s = &w->dfa->states[sym];
	if (s->pruned)
		return !set_empty(&s->alive);
	return sym != DFA_DEAD && s->of != RX_EPS;
}

static bool terminal_productive(struct work *w, uint32_t sym)
{
	if (sym == DFA_DEAD || !dfa_is_live(w->dfa, sym))
		return false;
	/* Only for an RX_SURE expression is a nonempty string certain without a search. */
	return rx_has(w->dfa->pool, w->dfa->states[sym].of, RX_SURE) || dfa_expand(w->dfa, sym);
}

/* ---- the alternatives ---- */

static void add_alt(struct work *w, uint32_t rule, uint32_t from, uint32_t n)
{
	w->alts[w->n_alts++] = (struct work_alt){.rule = rule, .from = from, .n = n};
	w->rules[rule].n++;
}

static void add_repeat(struct work *w, uint32_t i, const struct rules_rule *r)
{
	uint32_t from = w->n_syms, n = r->n_between + 2;
	for (uint32_t k = 0; k <= r->n_between; k++)
		w->syms[w->n_syms++] = symbol(w, w->r->syms[r->from + k]);
	w->syms[w->n_syms++] = w->syms[from];
	if (r->least == 0)
		add_alt(w, i, from, 0);
	if (r->least <= 1 && r->most >= 1)
		add_alt(w, i, from, 1);
	if (r->most >= 2 && r->most >= r->least)
		add_alt(w, i, from, n);
}

static void add_plain(struct work *w, uint32_t i, const struct rules_rule *r)
{
	for (uint32_t a = r->first; a != RULES_END; a = w->r->alts[a].next) {
		const struct rules_alt *alt = &w->r->alts[a];
		uint32_t from = w->n_syms;
		for (uint32_t k = 0; k < alt->n; k++)
			w->syms[w->n_syms++] = symbol(w, w->r->syms[alt->from + k]);
		add_alt(w, i, from, alt->n);
	}
}

static int allocate(struct work *w)
{
	const struct rules *r = w->r;
	w->n_rules = r->n_rules;
	w->alts = sl_zalloc_n((size_t)r->n_alts + 3 * (size_t)r->n_rules + 1, sizeof(*w->alts));
	w->syms = sl_zalloc_n((size_t)r->n_syms + r->n_rules + 1, sizeof(*w->syms));
	w->rules = sl_zalloc_n((size_t)r->n_rules + 1, sizeof(*w->rules));
	w->uses_from = sl_zalloc_n((size_t)r->n_rules + 2, sizeof(*w->uses_from));
	w->uses = sl_zalloc_n(3 * ((size_t)r->n_syms + r->n_rules) + 1, sizeof(*w->uses));
	w->queue = sl_zalloc_n((size_t)r->n_rules + 1, sizeof(*w->queue));
	bool ok = w->alts && w->syms && w->rules && w->uses_from && w->uses && w->queue;
	return ok ? 0 : SL_ENOMEM;
}

void work_dispose(struct work *w)
{
	sl_free(w->alts);
	sl_free(w->syms);
	sl_free(w->rules);
	sl_free(w->uses_from);
	sl_free(w->uses);
	sl_free(w->queue);
	w->alts = NULL;
	w->syms = w->uses_from = w->uses = w->queue = NULL;
	w->rules = NULL;
	w->n_alts = w->n_syms = w->n_rules = 0;
}

static void find_uses(struct work *w)
{
	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t a = 0; a < w->n_alts; a++)
			for (uint32_t k = 0; k < w->alts[a].n; k++) {
				uint32_t s = w->syms[w->alts[a].from + k];
				if (!is_rule(s))
					continue;
				if (pass == 0)
					w->uses_from[(s & ~GRAM_RULE) + 1]++;
				else
					w->uses[--w->uses_from[(s & ~GRAM_RULE) + 1]] = a;
			}
		for (uint32_t i = 0; pass == 0 && i < w->n_rules; i++)
			w->uses_from[i + 1] += w->uses_from[i];
	}
	/* Each offset now is where its own uses begin, one entry further right than needed. */
	memmove(w->uses_from, w->uses_from + 1, w->n_rules * sizeof(*w->uses_from));
	uint32_t total = 0;
	for (uint32_t a = 0; a < w->n_alts; a++)
		for (uint32_t k = 0; k < w->alts[a].n; k++)
			total += is_rule(w->syms[w->alts[a].from + k]);
	w->uses_from[w->n_rules] = total;
}

/* ---- what they derive ---- */

enum property { PRODUCTIVE, NULLABLE };

static bool *property_of(struct work *w, uint32_t rule, enum property p)
{
	return p == PRODUCTIVE ? &w->rules[rule].productive : &w->rules[rule].nullable;
}

/* A rule has the property if all symbols of one of its alternatives have it. */
static void complete(struct work *w, uint32_t a, enum property p, uint32_t *n_queue)
{
	if (p == PRODUCTIVE)
		w->alts[a].productive = true;
	bool *has = property_of(w, w->alts[a].rule, p);
	if (*has)
		return;
	*has = true;
	w->queue[(*n_queue)++] = w->alts[a].rule;
}

static void spread(struct work *w, enum property p)
{
	uint32_t n = 0;
	for (uint32_t a = 0; a < w->n_alts; a++) {
		struct work_alt *alt = &w->alts[a];
		alt->open = 0;
		for (uint32_t k = 0; k < alt->n; k++) {
			uint32_t s = w->syms[alt->from + k];
			alt->open += is_rule(s) || !(p == PRODUCTIVE ? terminal_productive(w, s) : work_nullable(w, s));
		}
		if (alt->open == 0)
			complete(w, a, p, &n);
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t rule = w->queue[i];
		for (uint32_t u = w->uses_from[rule]; u < w->uses_from[rule + 1]; u++)
			if (--w->alts[w->uses[u]].open == 0)
				complete(w, w->uses[u], p, &n);
	}
}

static void make_nonempty(struct work *w, uint32_t rule, uint32_t *n)
{
	if (!w->rules[rule].nonempty)
		w->queue[(*n)++] = rule;
	w->rules[rule].nonempty = true;
}

static void spread_nonempty(struct work *w)
{
	uint32_t n = 0;
	for (uint32_t a = 0; a < w->n_alts; a++)
		for (uint32_t k = 0; k < w->alts[a].n && w->alts[a].productive; k++) {
			uint32_t s = w->syms[w->alts[a].from + k];
			if (!is_rule(s) && work_nonempty(w, s))
				make_nonempty(w, w->alts[a].rule, &n);
		}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t rule = w->queue[i];
		for (uint32_t u = w->uses_from[rule]; u < w->uses_from[rule + 1]; u++)
			if (w->alts[w->uses[u]].productive)
				make_nonempty(w, w->alts[w->uses[u]].rule, &n);
	}
}

int work_scan(struct work *w)
{
	int rc = allocate(w);
	if (rc != 0)
		return rc;
	for (uint32_t i = 0; i < w->n_rules; i++) {
		const struct rules_rule *r = &w->r->rules[i];
		w->rules[i].from = w->n_alts;
		if (r->is_repeat)
			add_repeat(w, i, r);
		else
			add_plain(w, i, r);
	}
	find_uses(w);
	spread(w, PRODUCTIVE);
	spread(w, NULLABLE);
	spread_nonempty(w);
	return rx_pool_fault(w->dfa->pool);
}
