/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules of arrays. Without `contains`, an array is its prefix, item by item, and a repetition. With `contains`, each
 * item either satisfies the counted schema or, if too many could, its complement. Then rules are states: a position and
 * counts.
 */
#include <string.h>

#include "engine/constraint/schema.h"

enum { MAX_HELD = 3, MAX_STATES = 4096, MAX_UNIQUE = 6 };

struct items {
	struct schema *s;
	const struct arr *a;
	struct rules_sym comma;
};

static void in_brackets(struct items *e, struct rules_sym to, struct rules_sym inside)
{
	struct con *c = e->s->c;
	struct rules_sym of[] = {con_open(c, '['), inside, con_close(c, ']')};
	rules_add(c->rules, to, of, 3);
}

/* ---- without contains ---- */

static struct rules_sym rest_of(struct items *e, uint32_t n, struct goal *goal)
{
	struct rules *r = e->s->c->rules;
	const struct arr *a = e->a;
	uint32_t least = a->least > n ? a->least - n : 0, most = a->most == NO_MOST ? RX_UNBOUNDED : a->most - n;
	struct rules_sym item = schema_symbol(e->s, goal);
	if (n == 0)
		return rules_repeat(r, item, &e->comma, 1, least, most);
	struct rules_sym of[] = {e->comma, item};
	return rules_repeat(r, con_sequence(e->s->c, of, 2), NULL, 0, least, most);
}

static void plain(struct items *e, struct rules_sym to)
{
	struct rules *r = e->s->c->rules;
	uint32_t n = arr_prefix(e->a);
	bool ends = n > e->a->most;
	n = ends ? e->a->most : n;
	struct goal *rest = arr_item(e->s, e->a, n, NULL, 0);
	struct rules_sym tail = rules_new(r);
	if (!ends && e->a->most > n && !goal_is_none(e->s, rest)) {
		struct rules_sym more = rest_of(e, n, rest);
		rules_add(r, tail, &more, 1);
	} else if (e->a->least <= n) {
		rules_add(r, tail, NULL, 0);
	}
	for (uint32_t i = n; i-- > 0 && con_step(e->s->c, 1);) {
		struct goal *goal = arr_item(e->s, e->a, i, NULL, 0);
		struct rules_sym of[] = {e->comma, schema_symbol(e->s, goal), tail}, this = rules_new(r);
		if (!goal_is_none(e->s, goal))
			rules_add(r, this, of + (i == 0), 3 - (i == 0));
		if (i >= e->a->least)
			rules_add(r, this, NULL, 0);
		tail = this;
	}
	in_brackets(e, to, tail);
}

/* ---- with contains: states ---- */

struct counted {
	struct items *e;
	uint32_t last;           /* represents all later positions */
	uint32_t top[MAX_HELD];  /* the highest counts */
	size_t n_states;         /* of counts */
	struct rules_sym *rules; /* [last + 1][n_states] */
};

static size_t state_of(const struct counted *m, const uint32_t *counts)
{
	size_t state = 0;
	for (size_t i = 0; i < m->e->a->n_held; i++)
		state = state * (m->top[i] + 1) + counts[i];
	return state;
}

static void counts_of(const struct counted *m, size_t state, uint32_t *counts)
{
	for (size_t i = m->e->a->n_held; i-- > 0; state /= m->top[i] + 1)
		counts[i] = (uint32_t)(state % (m->top[i] + 1));
}

static bool complete(const struct counted *m, uint32_t at, const uint32_t *counts)
{
	const struct arr *a = m->e->a;
	bool good = at >= a->least;
	for (size_t i = 0; i < a->n_held; i++)
		good = good && counts[i] >= a->held[i].least && counts[i] <= a->held[i].most;
	return good;
}

/* One more item, which satisfies the counted schemas in `in`. */
static void add_step(struct counted *m, uint32_t at, const uint32_t *counts, unsigned in)
{
	const struct arr *a = m->e->a;
	uint32_t next[MAX_HELD];
	lit more[MAX_HELD];
	size_t n = 0;
	for (size_t i = 0; i < a->n_held; i++) {
		bool inside = in >> i & 1;
		next[i] = counts[i];
		if (at < a->held[i].from) {
			if (inside)
				return;
			continue;
		}
		if (inside && next[i] < m->top[i])
			next[i]++;
		if (inside || a->held[i].most != NO_MOST)
			more[n++] = a->held[i].value ^ !inside;
		if (next[i] > a->held[i].most)
			return;
	}
	struct goal *goal = arr_item(m->e->s, a, at, more, n);
	if (goal_is_none(m->e->s, goal))
		return;
	uint32_t after = at < m->last ? at + 1 : at;
	struct rules_sym of[] = {m->e->comma, schema_symbol(m->e->s, goal),
				 m->rules[after * m->n_states + state_of(m, next)]};
	rules_add(m->e->s->c->rules, m->rules[at * m->n_states + state_of(m, counts)], of + (at == 0), 3 - (at == 0));
}

static bool measure(struct counted *m)
{
	const struct arr *a = m->e->a;
	uint32_t last = arr_prefix(a);
	m->n_states = 1;
	if (a->n_held > MAX_HELD)
		return false;
	last = a->least > last ? a->least : last;
	last = a->most != NO_MOST && a->most > last ? a->most : last;
	for (size_t i = 0; i < a->n_held; i++) {
		m->top[i] = a->held[i].most != NO_MOST ? a->held[i].most + 1 : a->held[i].least;
		m->n_states *= m->top[i] < MAX_STATES ? m->top[i] + 1 : MAX_STATES + 1;
		last = a->held[i].from > last ? a->held[i].from : last;
	}
	m->last = last > 0 ? last : 1;
	return m->n_states <= MAX_STATES && m->last < MAX_STATES && (m->last + 1) * m->n_states <= MAX_STATES;
}

static void with_contains(struct items *e, struct rules_sym to)
{
	struct counted m = {.e = e};
	struct con *c = e->s->c;
	if (!measure(&m)) {
		con_fail(c, SL_EUNSUPPORTED, "contains with these counts is not supported");
		return;
	}
	m.rules = con_alloc(c, (m.last + 1) * m.n_states, sizeof *m.rules);
	if (m.rules == NULL)
		return;
	for (size_t i = 0; i < (m.last + 1) * m.n_states; i++)
		m.rules[i] = rules_new(c->rules);
	for (uint32_t at = 0; at <= m.last; at++)
		for (size_t state = 0; state < m.n_states && con_step(c, 4); state++) {
			uint32_t counts[MAX_HELD];
			counts_of(&m, state, counts);
			if (complete(&m, at, counts))
				rules_add(c->rules, m.rules[at * m.n_states + state], NULL, 0);
			for (unsigned in = 0; at < e->a->most && in < 1u << e->a->n_held; in++)
				add_step(&m, at, counts, in);
		}
	in_brackets(e, to, m.rules[0]);
}

/* ---- uniqueItems: of a few known values ---- */

/* The spellings of all values of a goal; 0: too many, or not known. */
static size_t values_of(struct schema *s, struct goal *goal, rx *out)
{
	const struct set *of = goal_set(s, goal);
	size_t n = 0;
	if (of == NULL || of->number != RX_NONE || of->n_arrs + of->n_objs > 0)
		return 0;
	if (of->string.lang != RX_NONE && (!of->string.listed || of->string.n_words + 3 > MAX_UNIQUE + 3))
		return 0;
	if (of->null)
		out[n++] = con_text(s->c, "null");
	if (of->yes)
		out[n++] = con_text(s->c, "true");
	if (of->no)
		out[n++] = con_text(s->c, "false");
	for (size_t i = 0; i < of->string.n_words; i++)
		out[n++] = emit_string(s, of->string.words[i]);
	return n <= MAX_UNIQUE ? n : 0;
}

/* A rule for each set of values already used. */
static void unique(struct items *e, struct rules_sym to)
{
	struct con *c = e->s->c;
	rx values[MAX_UNIQUE + 4];
	struct rules_sym rules[1 << MAX_UNIQUE], terminals[MAX_UNIQUE];
	size_t n = arr_prefix(e->a) > 0 ? 0 : values_of(e->s, arr_item(e->s, e->a, 0, NULL, 0), values);
	if (n == 0 || e->a->n_held > 0) {
		con_fail(c, SL_EUNSUPPORTED, "uniqueItems is supported for at most %d listed values only", MAX_UNIQUE);
		return;
	}
	for (size_t i = 0; i < n; i++)
		terminals[i] = rules_terminal(c->rules, values[i]);
	for (unsigned used = 0; used < 1u << n; used++)
		rules[used] = rules_new(c->rules);
	for (unsigned used = 0; used < 1u << n; used++) {
		uint32_t count = (uint32_t)__builtin_popcount(used);
		for (size_t i = 0; count < e->a->most && i < n; i++) {
			struct rules_sym of[] = {e->comma, terminals[i], rules[used | 1u << i]};
			if (!(used >> i & 1))
				rules_add(c->rules, rules[used], of + (used == 0), 3 - (used == 0));
		}
		if (count >= e->a->least)
			rules_add(c->rules, rules[used], NULL, 0);
	}
	in_brackets(e, to, rules[0]);
}

void emit_array(struct schema *s, struct rules_sym to, const struct arr *a)
{
	struct items e = {s, a, con_comma(s->c)};
	if (a == s->any_arr) {
		struct rules_sym any = con_any_array(s->c);
		rules_add(s->c->rules, to, &any, 1);
	} else if (a->unique && a->most > 1) {
		unique(&e, to);
	} else if (a->n_held > 0) {
		with_contains(&e, to);
	} else {
		plain(&e, to);
	}
}
