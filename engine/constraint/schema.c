/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/constraint/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/utf8.h"
#include "engine/constraint/decimal.h"

enum { FIRST_SLOTS = 256 };

void schema_fail(struct schema *s, int code, const struct jv *at, const char *keyword, const char *fmt, ...)
{
	char pointer[256], what[256];
	va_list args;
	va_start(args, fmt);
	vsnprintf(what, sizeof what, fmt, args);
	va_end(args);
	con_fail(s->c, code, "#%s%s%s: %s", jv_pointer(at, pointer, sizeof pointer), keyword != NULL ? "/" : "",
		 keyword != NULL ? keyword : "", what);
}

/* ---- names ---- */

static uint32_t *name_slot(struct schema *s, struct proto_str text)
{
	for (size_t i = XXH3_64bits(text.at, text.n);; i++) {
		uint32_t *slot = &s->name_index[i & (s->n_name_index - 1)];
		if (*slot == 0 || str_equal(s->names[*slot - 1], text))
			return slot;
	}
}

static bool more_names(struct schema *s)
{
	size_t n = s->n_name_index == 0 ? FIRST_SLOTS : s->n_name_index * 2;
	uint32_t *index = con_alloc(s->c, n, sizeof *index);
	if (index == NULL)
		return false;
	s->name_index = index;
	s->n_name_index = n;
	for (uint32_t i = 0; i < s->n_names; i++)
		*name_slot(s, s->names[i]) = i + 1;
	return true;
}

uint32_t schema_name(struct schema *s, struct proto_str text)
{
	if ((size_t)s->n_names * 2 >= s->n_name_index && !more_names(s))
		return 0;
	uint32_t *slot = name_slot(s, text);
	if (*slot != 0)
		return *slot - 1;
	struct proto_str *grown = con_grow(s->c, s->names, s->n_names, &s->cap_names, sizeof *grown);
	if (grown == NULL)
		return 0;
	s->names = grown;
	s->names[s->n_names] = text;
	*slot = ++s->n_names;
	return s->n_names - 1;
}

/* ---- goals ---- */

static int by_value(const void *a, const void *b)
{
	lit x = *(const lit *)a, y = *(const lit *)b;
	return x < y ? -1 : x > y;
}

/* true, {} and the complement of false. */
static bool permits_all(const struct schema *s, lit l)
{
	const struct jv *of = lit_schema(l);
	bool empty = of->kind == JV_TRUE || (of->kind == JV_OBJECT && of->n == 0);
	return lit_inverted(l) ? of == s->never : empty;
}

static struct lits sorted(struct schema *s, const lit *of, size_t n)
{
	struct lits out = {con_alloc(s->c, n + 1, sizeof(lit)), 0};
	if (out.of == NULL)
		return out;
	for (size_t i = 0; i < n; i++)
		if (!permits_all(s, of[i]))
			out.of[out.n++] = of[i];
	qsort(out.of, out.n, sizeof *out.of, by_value);
	size_t kept = 0;
	for (size_t i = 0; i < out.n; i++)
		if (kept == 0 || out.of[kept - 1] != out.of[i])
			out.of[kept++] = out.of[i];
	out.n = kept;
	return out;
}

bool lits_have(struct lits l, lit of)
{
	for (size_t i = 0; i < l.n; i++)
		if (l.of[i] == of)
			return true;
	return false;
}

static struct goal **goal_slot(struct schema *s, struct lits l)
{
	return &s->goals[XXH3_64bits(l.of, l.n * sizeof *l.of) & (s->n_goal_slots - 1)];
}

static bool more_goals(struct schema *s)
{
	size_t n = s->n_goal_slots == 0 ? FIRST_SLOTS : s->n_goal_slots * 2;
	struct goal **old = s->goals, **slots = con_alloc(s->c, n, sizeof(struct goal *));
	size_t n_old = s->n_goal_slots;
	if (slots == NULL)
		return false;
	s->goals = slots;
	s->n_goal_slots = n;
	for (size_t i = 0; i < n_old; i++)
		for (struct goal *g = old[i], *next; g != NULL; g = next) {
			struct goal **slot = goal_slot(s, g->lits);
			next = g->next;
			g->next = *slot;
			*slot = g;
		}
	return true;
}

struct goal *schema_goal(struct schema *s, const lit *lits, size_t n)
{
	struct lits l = sorted(s, lits, n);
	con_step(s->c, 1 + n);
	if (l.of == NULL || (s->n_goals >= s->n_goal_slots && !more_goals(s)))
		return NULL;
	struct goal **slot = goal_slot(s, l);
	for (struct goal *g = *slot; g != NULL; g = g->next)
		if (g->lits.n == l.n && memcmp(g->lits.of, l.of, l.n * sizeof *l.of) == 0)
			return g;
	struct goal *g = con_alloc(s->c, 1, sizeof *g);
	if (g == NULL)
		return NULL;
	*g = (struct goal){.lits = l, .next = *slot};
	*slot = g;
	s->n_goals++;
	return g;
}

struct rules_sym schema_symbol(struct schema *s, struct goal *g)
{
	if (g == NULL || g->lits.n == 0)
		return con_any_value(s->c);
	if (g->has_sym)
		return g->sym;
	g->sym = rules_new(s->c->rules);
	g->has_sym = true;
	struct goal **grown = con_grow(s->c, s->queue, s->n_queue, &s->cap_queue, sizeof(struct goal *));
	if (grown != NULL) {
		s->queue = grown;
		s->queue[s->n_queue++] = g;
	}
	return g->sym;
}

const struct set *goal_set(struct schema *s, struct goal *g)
{
	if (g->set != NULL)
		return g->set;
	struct set *all = set_all(s);
	for (size_t i = 0; i < g->lits.n && con_step(s->c, 1); i++)
		all = set_and(s, all, schema_set(s, g->lits.of[i]));
	if (!s->blocked)
		g->set = all;
	return all;
}

/* ---- helpers ---- */

bool schema_count(struct schema *s, const struct jv *of, const char *keyword, uint32_t *out)
{
	const struct jv *v = jv_get(of, keyword);
	struct decimal d;
	if (v == NULL)
		return false;
	if (v->kind != JV_NUMBER || !decimal_read(s->c, v->text, &d) || d.negative || !decimal_is_whole(&d)) {
		schema_fail(s, SL_EINVAL, of, keyword, "must be a non-negative integer");
		return false;
	}
	uint64_t n = 0;
	for (size_t i = 0; i < d.n_whole && n < NO_MOST; i++)
		n = n * 10 + (uint64_t)(d.whole[i] - '0');
	*out = n >= NO_MOST ? NO_MOST - 1 : (uint32_t)n;
	return true;
}

rx schema_words(struct schema *s, const struct proto_str *words, size_t n)
{
	struct proto_str *of = con_alloc(s->c, n + 1, sizeof *of);
	if (!con_step(s->c, n) || of == NULL)
		return RX_NONE;
	if (n > 0)
		memcpy(of, words, n * sizeof *of);
	return rx_words(s->c->pool, of, n);
}

bool schema_matches(struct schema *s, rx lang, struct proto_str text)
{
	con_step(s->c, 1 + text.n / 4);
	for (size_t i = 0; i < text.n && lang != RX_NONE; i++)
		lang = rx_derive(s->c->pool, lang, (uint8_t)text.at[i]);
	return rx_nullable(s->c->pool, lang);
}

/* ---- translation ---- */

static bool contains_text(struct proto_str text, const char *what)
{
	return text.n > 0 && memmem(text.at, text.n, what, strlen(what)) != NULL;
}

static void find_draft(struct schema *s)
{
	static const struct {
		const char *text;
		enum schema_draft draft;
	} drafts[] = {{"draft-03", DRAFT_4},
		      {"draft-04", DRAFT_4},
		      {"draft-06", DRAFT_6},
		      {"draft-07", DRAFT_7},
		      {"2019-09", DRAFT_2019}};
	const struct jv *v = jv_get(s->root, "$schema");
	s->draft = DRAFT_2020;
	s->standard = jv_is(v, JV_STRING);
	for (size_t i = 0; s->standard && i < sizeof drafts / sizeof *drafts; i++)
		if (contains_text(v->text, drafts[i].text))
			s->draft = drafts[i].draft;
}

static bool begin(struct schema *s, const char *text, size_t n)
{
	struct jv *always = con_alloc(s->c, 1, sizeof *always), *never = con_alloc(s->c, 1, sizeof *never);
	if (always == NULL || never == NULL)
		return false;
	always->kind = JV_TRUE;
	never->kind = JV_FALSE;
	s->always = always;
	s->never = never;
	s->any_arr = arr_new(s);
	s->any_obj = obj_new(s);
	s->root = jv_parse(s->c, text, n);
	if (s->root == NULL)
		return false;
	find_draft(s);
	schema_find_resources(s);
	/* References of equal schemas in different resources may differ. */
	if (s->n_resources <= 1 && s->c->rc == 0)
		jv_unify(s->c, s->root);
	return s->c->rc == 0;
}

/* Limits apply to the translation as a whole. The schema that reached one is where to make it smaller. */
static void name_limit(struct schema *s)
{
	char pointer[256], what[sizeof s->c->err->text];
	con_step(s->c, 0); /* shortages of the rules */
	if (s->c->rc != SL_ELIMIT || s->at == 0 || s->c->err->text[0] == '#')
		return;
	memcpy(what, s->c->err->text, sizeof what);
	sl_errf(s->c->err, SL_ELIMIT, "#%s: %.*s", jv_pointer(lit_schema(s->at), pointer, sizeof pointer), 120, what);
}

/* object: only objects of the schema. */
static struct rules_sym translate(struct con *c, const char *text, size_t n, bool object, const struct con_tags *tags)
{
	static const char only[] = "{\"type\":\"object\"}";
	struct schema s = {.c = c};
	const struct jv *objects = jv_parse(c, only, sizeof only - 1);
	if (objects == NULL || !begin(&s, text, n))
		return rules_new(c->rules);
	const lit all[] = {lit_of(s.root, false), lit_of(objects, false)};
	struct goal *g = schema_goal(&s, all, object ? 2 : 1);
	struct rules_sym value = tags == NULL ? schema_symbol(&s, g) : emit_tagged(&s, g, tags);
	while (s.n_queue > 0 && con_step(c, 1))
		emit_goal(&s, s.queue[--s.n_queue]);
	if (c->rc == 0 && g != NULL && goal_is_none(&s, g))
		con_fail(c, SL_EINVAL, "the schema permits no value");
	name_limit(&s);
	return value;
}

struct rules_sym con_schema(struct con *c, const char *text, size_t n) { return translate(c, text, n, false, NULL); }

struct rules_sym con_schema_object(struct con *c, const char *text, size_t n)
{
	return translate(c, text, n, true, NULL);
}

struct rules_sym con_schema_tagged(struct con *c, const char *text, size_t n, const struct con_tags *tags)
{
	return translate(c, text, n, true, tags);
}

void con_json_schema(struct con *c, const char *text, size_t n)
{
	rules_start(c->rules, con_document(c, con_schema(c, text, n)));
}
