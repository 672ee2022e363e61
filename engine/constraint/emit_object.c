/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules of objects. A declared name cannot occur twice, because the names of other members exclude declared names.
 *
 * In order: declared members in the schema's order, then others. The state of a rule is the next declared member and,
 * where it matters, the number of members. In any order: the state is the set of declared members that have occurred.
 *
 * Plain schemas are generated in order: models are trained to write so, and it forces most keys. If a schema has
 * keywords that apply to the object as a whole (oneOf, not, if, dependencies …), objects with few members are in any
 * order; of larger objects, only the required members are.
 */
#include <string.h>

#include "engine/constraint/schema.h"

enum { MAX_RULES = 200000, MAX_TAIL_SOMES = 3, MAX_FREE = 8, MAX_FREE_EACH = 10000, MAX_FREE_ALL = 40000 };

struct part {
	uint32_t name;
	struct goal *goal;
	bool required;
};

/* A set of names of other members with one goal. */
struct region {
	rx names;
	lit *lits;
	size_t n;
};

struct members {
	struct schema *s;
	const struct obj *o;
	struct part *parts;
	size_t n_parts, cap_parts;
	struct region *regions;
	size_t n_regions, cap_regions;
	rx colon, comma;
	const struct con_tags *tags;       /* NULL: JSON */
	struct some somes[MAX_TAIL_SOMES]; /* that other members must satisfy */
	size_t n_somes;
};

/* ---- declared members ---- */

static bool requires(const struct obj *o, uint32_t name)
{
	for (size_t i = 0; i < o->n_required; i++)
		if (o->required[i] == name)
			return true;
	return false;
}

struct name_list {
	uint32_t *names;
	size_t n, cap;
};

static void add_name(struct schema *s, struct name_list *l, uint32_t name)
{
	if (name >= s->n_seen || s->seen[name] == s->n_lists)
		return;
	uint32_t *grown = con_grow(s->c, l->names, l->n, &l->cap, sizeof *grown);
	if (grown == NULL)
		return;
	l->names = grown;
	l->names[l->n++] = name;
	s->seen[name] = s->n_lists;
}

static bool begin_list(struct schema *s)
{
	s->n_lists++;
	if (s->n_seen >= s->n_names)
		return true;
	s->n_seen = (size_t)s->n_names * 2;
	s->seen = con_alloc(s->c, s->n_seen, sizeof *s->seen);
	return s->seen != NULL;
}

/* In the order in which schemas mention them. */
static struct name_list names_of(struct schema *s, const struct obj *o)
{
	struct name_list l = {0};
	if (!begin_list(s))
		return l;
	for (size_t i = 0; i < o->n_groups; i++)
		for (size_t j = 0; j < o->groups[i]->n_properties; j++)
			add_name(s, &l, o->groups[i]->properties[j].name);
	for (size_t i = 0; i < o->n_named; i++)
		add_name(s, &l, o->named[i].name);
	for (size_t i = 0; i < o->n_required; i++)
		add_name(s, &l, o->required[i]);
	return l;
}

/* False: a required member has no possible value. */
static bool find_parts(struct members *m, const struct name_list *names)
{
	m->parts = con_alloc(m->s->c, names->n + 1, sizeof *m->parts);
	for (size_t i = 0; m->parts != NULL && i < names->n && con_step(m->s->c, 1); i++) {
		struct part part = {names->names[i], obj_member(m->s, m->o, names->names[i]),
				    requires(m->o, names->names[i])};
		if (part.goal == NULL || goal_is_none(m->s, part.goal)) {
			if (part.required)
				return false;
			continue;
		}
		m->parts[m->n_parts++] = part;
	}
	return m->parts != NULL;
}

/* ---- other members ---- */

static void add_region(struct members *m, rx names, const struct region *from, lit more)
{
	struct con *c = m->s->c;
	if (names == RX_NONE || rx_is_none(c->pool, names, SCHEMA_EMPTY_STATES))
		return;
	if (m->n_regions >= SCHEMA_MAX_REGIONS) {
		con_fail(c, SL_ELIMIT, "patternProperties overlap in more than %d ways", SCHEMA_MAX_REGIONS);
		return;
	}
	struct region *grown = con_grow(c, m->regions, m->n_regions, &m->cap_regions, sizeof *grown);
	lit *lits = con_alloc(c, from->n + 1, sizeof *lits);
	if (grown == NULL || lits == NULL)
		return;
	if (from->n > 0)
		memcpy(lits, from->lits, from->n * sizeof *lits);
	m->regions = grown;
	m->regions[m->n_regions] = (struct region){names, lits, from->n};
	if (more != 0)
		lits[m->regions[m->n_regions].n++] = more;
	m->n_regions++;
}

/* Splits all regions by a set of names; those inside get one more literal. */
static void split(struct members *m, rx names, lit value)
{
	struct region *old = m->regions;
	size_t n = m->n_regions;
	m->regions = NULL;
	m->n_regions = m->cap_regions = 0;
	for (size_t i = 0; i < n && con_step(m->s->c, 8); i++) {
		add_region(m, rx_and(m->s->c->pool, old[i].names, names), &old[i], value);
		add_region(m, con_minus(m->s->c, old[i].names, names), &old[i], 0);
	}
}

/* Names that g's properties and patterns cover, or those of its subgroups. */
static rx known_names(struct schema *s, const struct group *g)
{
	struct proto_str *words = con_alloc(s->c, g->n_properties + 1, sizeof *words);
	if (words == NULL)
		return RX_NONE;
	for (size_t i = 0; i < g->n_properties; i++)
		words[i] = s->names[g->properties[i].name];
	rx out = schema_words(s, words, g->n_properties);
	for (size_t i = 0; i < g->n_patterns; i++)
		out = rx_or(s->c->pool, out, g->patterns[i].names);
	for (size_t i = 0; i < g->n_covers; i++)
		out =
		    rx_or(s->c->pool, out, g->covers[i]->has_rest ? con_any_text(s->c) : known_names(s, g->covers[i]));
	return out;
}

static bool is_true(const struct schema *s, lit l)
{
	return l == lit_of(s->always, false) || (lit_schema(l)->kind == JV_TRUE && !lit_inverted(l));
}

static void find_regions(struct members *m, const struct name_list *names)
{
	struct schema *s = m->s;
	struct proto_str *words = con_alloc(s->c, names->n + 1, sizeof *words);
	struct region all = {0};
	for (size_t i = 0; words != NULL && i < names->n; i++)
		words[i] = s->names[names->names[i]];
	add_region(m, con_minus(s->c, m->o->names, schema_words(s, words, names->n)), &all, 0);
	for (size_t i = 0; i < m->o->n_groups; i++) {
		const struct group *g = m->o->groups[i];
		for (size_t j = 0; j < g->n_patterns; j++)
			if (!is_true(s, g->patterns[j].value))
				split(m, g->patterns[j].names, g->patterns[j].value);
		if (g->has_rest && !is_true(s, g->rest))
			split(m, con_minus(s->c, con_any_text(s->c), known_names(s, g)), g->rest);
	}
}

static struct goal *region_goal(struct members *m, const struct region *r, const lit *more, size_t n)
{
	lit *lits = con_alloc(m->s->c, r->n + n + 1, sizeof *lits);
	if (lits == NULL)
		return NULL;
	if (r->n > 0)
		memcpy(lits, r->lits, r->n * sizeof *lits);
	if (n > 0)
		memcpy(lits + r->n, more, n * sizeof *lits);
	return schema_goal(m->s, lits, r->n + n);
}

static rx key_of(struct members *m, rx name) { return rx_cat(m->s->c->pool, name, m->colon); }

static rx key_in(struct members *m, rx names)
{
	struct con *c = m->s->c;
	rx quote = con_text(c, "\"");
	rx name = names == con_any_text(c) ? con_any_string(c)
					   : rx_cat(c->pool, quote, rx_cat(c->pool, rx_json(c->pool, names), quote));
	return key_of(m, name);
}

/* A member of any region that satisfies the somes in `which`; false: there is none. */
static bool other_member(struct members *m, unsigned which, struct rules_sym *out)
{
	struct con *c = m->s->c;
	bool found = false;
	*out = rules_new(c->rules);
	for (size_t i = 0; i < m->n_regions && con_step(c, 1); i++) {
		rx names = m->regions[i].names;
		lit more[MAX_TAIL_SOMES];
		size_t n = 0;
		for (size_t j = 0; j < m->n_somes; j++)
			if (which >> j & 1) {
				names = rx_and(c->pool, names, m->somes[j].names);
				more[n++] = m->somes[j].value;
			}
		struct goal *goal = region_goal(m, &m->regions[i], more, n);
		if (goal == NULL || goal_is_none(m->s, goal) || rx_is_none(c->pool, names, SCHEMA_EMPTY_STATES))
			continue;
		struct rules_sym of[] = {rules_terminal(c->rules, key_in(m, names)), schema_symbol(m->s, goal)};
		rules_add(c->rules, *out, of, 2);
		found = true;
	}
	return found;
}

/* ---- states ---- */

struct states {
	struct members *m;
	uint32_t top;   /* the highest relevant count: larger ones are equivalent */
	uint32_t least; /* minimum number of members; 0: the required members suffice */
	bool others;
	struct rules_sym other, comma;
};

static struct rules_sym other_members(struct states *t, uint32_t count)
{
	const struct obj *o = t->m->o;
	struct rules *r = t->m->s->c->rules;
	uint32_t least = t->least > count ? t->least - count : 0;
	uint32_t most = o->most == NO_MOST ? RX_UNBOUNDED : o->most - count;
	if (count == 0)
		return rules_repeat(r, t->other, &t->comma, 1, least, most);
	struct rules_sym of[] = {t->comma, t->other};
	return rules_repeat(r, con_sequence(t->m->s->c, of, 2), NULL, 0, least, most);
}

/* After the declared members, when other members have nothing to satisfy. */
static struct rules_sym plain_tail(struct states *t, uint32_t count)
{
	struct rules *r = t->m->s->c->rules;
	const struct obj *o = t->m->o;
	if (t->others && (o->most == NO_MOST || count < o->most))
		return other_members(t, count);
	struct rules_sym end = rules_new(r);
	if (count >= t->least)
		rules_add(r, end, NULL, 0);
	return end;
}

/* Rules for each set of satisfied somes. */
static struct rules_sym demanding_tail(struct states *t, uint32_t count)
{
	struct members *m = t->m;
	struct rules *r = m->s->c->rules;
	unsigned n = 1u << m->n_somes;
	struct rules_sym later[1 << MAX_TAIL_SOMES] = {{0}}, first = rules_new(r);
	for (unsigned done = 0; done < n; done++)
		later[done] = rules_new(r);
	rules_add(r, later[n - 1], NULL, 0);
	for (unsigned which = 0; which < n; which++) {
		struct rules_sym other;
		if (!other_member(m, which, &other))
			continue;
		for (unsigned done = 0; done < n; done++) {
			struct rules_sym of[] = {t->comma, other, later[done | which]};
			rules_add(r, later[done], of, 3);
			if (done == 0)
				rules_add(r, first, of + 1, 2);
		}
	}
	return count == 0 ? first : later[0];
}

static rx declared_key(struct members *m, const struct part *part)
{
	struct proto_str name = m->s->names[part->name];
	if (m->tags != NULL)
		return rx_cat(m->s->c->pool, m->tags->before,
			      rx_cat(m->s->c->pool, rx_literal(m->s->c->pool, name.at, name.n), m->tags->after));
	return key_of(m, emit_string(m->s, name));
}

static struct rules_sym declared_value(struct members *m, const struct part *part)
{
	return m->tags != NULL ? emit_tagged_value(m->s, part->goal, m->tags) : schema_symbol(m->s, part->goal);
}

/* The rules of one declared member: by[count] becomes what follows from this member on. */
static void add_part(struct states *t, const struct part *part, struct rules_sym *by)
{
	struct members *m = t->m;
	struct rules *r = m->s->c->rules;
	struct rules_sym value = declared_value(m, part);
	rx key = declared_key(m, part);
	struct rules_sym first = rules_terminal(r, key),
			 later = rules_terminal(r, rx_cat(m->s->c->pool, m->comma, key));
	for (uint32_t count = 0; count <= t->top; count++) {
		struct rules_sym this = rules_new(r), after = by[count < t->top ? count + 1 : count];
		struct rules_sym of[] = {count == 0 ? first : later, value, after};
		if (count < m->o->most)
			rules_add(r, this, of, 3);
		if (!part->required)
			rules_add(r, this, &by[count], 1);
		by[count] = this;
	}
}

static bool measure(struct states *t)
{
	const struct obj *o = t->m->o;
	size_t n = t->m->n_parts;
	t->least = o->least > o->n_required ? o->least : 0;
	t->top = t->least > 1 ? t->least : 1;
	if (o->most != NO_MOST && (t->others || o->most < n))
		t->top = o->most;
	if (n == 0)
		t->top = 0;
	return t->top < MAX_RULES && (t->top + 1) * (n + 1) < MAX_RULES;
}

/* ---- any order ----
 *
 * Up to MAX_FREE free members come anywhere; any others come in order between them. A state is the number of ordered
 * members already passed, and the set of free members present. */

struct free_members {
	struct states *t;
	const struct part *free[MAX_FREE], **ordered;
	struct rules_sym keys[MAX_FREE], next_keys[MAX_FREE], values[MAX_FREE];
	size_t n_free, n_ordered;
	unsigned needed;
	struct rules_sym *any, *rest; /* [n_ordered + 1][1 << n_free]: what may follow; the same, no free one first */
};

static size_t free_cost(const struct members *m, size_t n_free)
{
	return ((size_t)1 << n_free) * (m->n_parts - n_free + 1) * (n_free + 2);
}

/* How many members are free: all, or as many of those required as their cost permits; 0: none. */
static size_t count_free(const struct states *t)
{
	const struct members *m = t->m;
	size_t n = 0;
	bool counted = t->least > 1 || m->o->most < m->n_parts || (m->o->most != NO_MOST && t->others);
	if (!m->s->any_order || m->n_parts < 2 || m->n_somes > 0 || counted)
		return 0;
	if (m->n_parts <= MAX_FREE)
		n = m->n_parts;
	else
		for (size_t i = 0; i < m->n_parts; i++)
			n += m->parts[i].required && n < MAX_FREE;
	while (n > 0 && n < m->n_parts && free_cost(m, n) > MAX_FREE_EACH)
		n--;
	return m->s->n_free + free_cost(m, n) <= MAX_FREE_ALL ? n : 0;
}

static bool choose_free(struct free_members *f, size_t n)
{
	struct members *m = f->t->m;
	struct rules *r = m->s->c->rules;
	bool all = n == m->n_parts;
	f->ordered = con_alloc(m->s->c, m->n_parts + 1, sizeof *f->ordered);
	for (size_t i = 0; f->ordered != NULL && i < m->n_parts; i++) {
		const struct part *part = &m->parts[i];
		if (f->n_free == n || (!all && !part->required)) {
			f->ordered[f->n_ordered++] = part;
			continue;
		}
		rx key = declared_key(m, part);
		f->free[f->n_free] = part;
		f->keys[f->n_free] = rules_terminal(r, key);
		f->next_keys[f->n_free] = rules_terminal(r, rx_cat(m->s->c->pool, m->comma, key));
		f->values[f->n_free] = declared_value(m, part);
		f->needed |= part->required ? 1u << f->n_free : 0;
		f->n_free++;
	}
	size_t n_states = (f->n_ordered + 1) << f->n_free;
	f->any = con_alloc(m->s->c, n_states, sizeof *f->any);
	f->rest = con_alloc(m->s->c, n_states, sizeof *f->rest);
	for (size_t i = 0; f->any != NULL && f->rest != NULL && i < n_states; i++) {
		f->any[i] = rules_new(r);
		f->rest[i] = rules_new(r);
	}
	return f->ordered != NULL && f->any != NULL && f->rest != NULL;
}

/* first: no comma before it. */
static void add_rest(struct free_members *f, struct rules_sym to, struct rules_sym skipped, size_t at, unsigned seen,
		     bool first)
{
	struct members *m = f->t->m;
	struct rules *r = m->s->c->rules;
	if (at == f->n_ordered) {
		struct rules_sym more[] = {f->t->comma, f->t->other, f->any[at << f->n_free | seen]};
		if (f->t->others)
			rules_add(r, to, more + first, 3 - (size_t)first);
		if ((seen & f->needed) == f->needed && (!first || f->t->least == 0))
			rules_add(r, to, NULL, 0);
		return;
	}
	rx key = declared_key(m, f->ordered[at]);
	struct rules_sym of[] = {rules_terminal(r, first ? key : rx_cat(m->s->c->pool, m->comma, key)),
				 declared_value(m, f->ordered[at]), f->any[(at + 1) << f->n_free | seen]};
	rules_add(r, to, of, 3);
	if (!f->ordered[at]->required)
		rules_add(r, to, &skipped, 1);
}

static void add_free_state(struct free_members *f, size_t at, unsigned seen)
{
	struct rules *r = f->t->m->s->c->rules;
	size_t state = at << f->n_free | seen, after = (at + (at < f->n_ordered)) << f->n_free | seen;
	add_rest(f, f->rest[state], f->rest[after], at, seen, false);
	rules_add(r, f->any[state], &f->rest[state], 1);
	for (size_t i = 0; i < f->n_free; i++) {
		struct rules_sym of[] = {f->next_keys[i], f->values[i], f->any[state | 1u << i]};
		if (!(seen >> i & 1))
			rules_add(r, f->any[state], of, 3);
	}
}

static struct rules_sym emit_free(struct states *t, size_t n)
{
	struct members *m = t->m;
	struct rules *r = m->s->c->rules;
	struct free_members f = {.t = t};
	struct rules_sym first = rules_new(r), rest = rules_new(r);
	if (!choose_free(&f, n))
		return first;
	m->s->n_free += free_cost(m, n);
	for (size_t at = 0; at <= f.n_ordered; at++)
		for (unsigned seen = 0; seen < 1u << f.n_free && con_step(m->s->c, f.n_free); seen++)
			add_free_state(&f, at, seen);
	for (size_t i = 0; i < f.n_free; i++) {
		struct rules_sym of[] = {f.keys[i], f.values[i], f.any[1u << i]};
		rules_add(r, first, of, 3);
	}
	rules_add(r, first, &rest, 1);
	for (size_t at = 0; at <= f.n_ordered; at++) {
		struct rules_sym skipped = at < f.n_ordered ? rules_new(r) : rest;
		add_rest(&f, rest, skipped, at, 0, true);
		rest = skipped;
	}
	return first;
}

static struct rules_sym emit_ordered(struct states *t)
{
	struct members *m = t->m;
	struct con *c = m->s->c;
	struct rules_sym *by = con_alloc(c, t->top + 1, sizeof *by);
	if (by == NULL)
		return rules_new(c->rules);
	for (uint32_t count = 0; count <= t->top; count++)
		by[count] = m->n_somes > 0 ? demanding_tail(t, count) : plain_tail(t, count);
	for (size_t i = m->n_parts; i-- > 0 && con_step(c, t->top + 1);)
		add_part(t, &m->parts[i], by);
	return by[0];
}

static void emit_states(struct members *m, struct rules_sym to)
{
	struct con *c = m->s->c;
	struct states t = {.m = m, .comma = con_comma(c)};
	t.others = m->tags == NULL && other_member(m, 0, &t.other);
	if (!measure(&t)) {
		con_fail(c, SL_ELIMIT, "an object has too many members");
		return;
	}
	if (m->n_somes > 0 && (m->o->least > 1 || m->o->most != NO_MOST)) {
		con_fail(c, SL_EUNSUPPORTED, "these bounds on the number of members are not supported");
		return;
	}
	size_t n_free = count_free(&t);
	struct rules_sym inside = n_free > 0 ? emit_free(&t, n_free) : emit_ordered(&t);
	struct rules_sym of[] = {con_open(c, '{'), inside, con_close(c, '}')};
	if (m->tags != NULL)
		rules_add(c->rules, to, &inside, 1);
	else
		rules_add(c->rules, to, of, 3);
}

static void emit_members(struct schema *s, struct rules_sym to, const struct obj *o, const struct some *somes, size_t n,
			 const struct con_tags *tags)
{
	struct members m = {.s = s, .o = o, .n_somes = n, .tags = tags};
	struct name_list names = names_of(s, o);
	m.comma = rx_cat(s->c->pool, con_ws(s->c), rx_cat(s->c->pool, con_text(s->c, ","), con_ws(s->c)));
	m.colon = rx_cat(s->c->pool, con_ws(s->c), rx_cat(s->c->pool, con_text(s->c, ":"), con_ws(s->c)));
	if (tags != NULL)
		m.comma = RX_EPS;
	if (n > 0)
		memcpy(m.somes, somes, n * sizeof *somes);
	if (!find_parts(&m, &names))
		return;
	find_regions(&m, &names);
	if (s->c->rc == 0)
		emit_states(&m, to);
}

/* ---- somes: which member satisfies them ---- */

struct choice {
	struct schema *s;
	struct rules_sym to;
	const struct con_tags *tags;
	struct some left[MAX_TAIL_SOMES]; /* to be satisfied by members that are not declared */
	size_t n_left;
};

static void choose(struct choice *e, const struct obj *o, size_t at);

static void choose_declared(struct choice *e, const struct obj *o, size_t at, const struct name_list *names)
{
	struct some some = o->somes[at];
	for (size_t i = 0; i < names->n && con_step(e->s->c, 1); i++) {
		if (!schema_matches(e->s, some.names, e->s->names[names->names[i]]))
			continue;
		struct obj *more = obj_new(e->s);
		struct named *named = con_alloc(e->s->c, 1, sizeof *named);
		uint32_t *required = con_alloc(e->s->c, 1, sizeof *required);
		if (more == NULL || named == NULL || required == NULL)
			return;
		*named = (struct named){names->names[i], some.value};
		*required = names->names[i];
		more->named = named;
		more->required = required;
		more->n_named = more->n_required = 1;
		const struct obj *both = obj_and(e->s, o, more);
		if (both != NULL)
			choose(e, both, at + 1);
	}
}

static void choose(struct choice *e, const struct obj *o, size_t at)
{
	if (!con_step(e->s->c, 1))
		return;
	if (at == o->n_somes) {
		emit_members(e->s, e->to, o, e->left, e->n_left, e->tags);
		return;
	}
	struct name_list names = names_of(e->s, o);
	choose_declared(e, o, at, &names);
	if (e->n_left == MAX_TAIL_SOMES) {
		con_fail(e->s->c, SL_EUNSUPPORTED,
			 "this combination of complements of patternProperties or "
			 "additionalProperties is not supported");
		return;
	}
	e->left[e->n_left++] = o->somes[at];
	choose(e, o, at + 1);
	e->n_left--;
}

void emit_object(struct schema *s, struct rules_sym to, const struct obj *o)
{
	struct choice e = {.s = s, .to = to};
	if (o == s->any_obj) {
		struct rules_sym any = con_any_object(s->c);
		rules_add(s->c->rules, to, &any, 1);
		return;
	}
	choose(&e, o, 0);
}

/* ---- members between literals ---- */

/* Members with names like identifiers, of any text. */
static void add_any_tagged(struct schema *s, struct rules_sym to, const struct con_tags *tags)
{
	struct con *c = s->c;
	rx name = rx_repeat(c->pool, con_class(c, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."),
			    1, 64);
	rx key = rx_cat(c->pool, tags->before, rx_cat(c->pool, name, tags->after));
	struct rules_sym of[] = {rules_terminal(c->rules, key), emit_tagged_value(s, NULL, tags)};
	struct rules_sym all = rules_repeat(c->rules, con_sequence(c, of, 2), NULL, 0, 0, RX_UNBOUNDED);
	rules_add(c->rules, to, &all, 1);
}

struct rules_sym emit_tagged(struct schema *s, struct goal *g, const struct con_tags *tags)
{
	struct rules_sym to = rules_new(s->c->rules);
	const struct set *of = g != NULL ? goal_set(s, g) : NULL;
	for (size_t i = 0; of != NULL && i < of->n_objs && con_step(s->c, 1); i++) {
		struct choice e = {.s = s, .to = to, .tags = tags};
		if (of->objs[i] == s->any_obj)
			add_any_tagged(s, to, tags);
		else
			choose(&e, of->objs[i], 0);
	}
	return to;
}
