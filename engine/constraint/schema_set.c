/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of JSON values, by type. They are immutable, so they share substructures.
 */
#include <string.h>

#include "engine/constraint/schema.h"

enum emptiness { UNKNOWN, NONE, SOME };

struct set *set_none(struct schema *s) { return con_alloc(s->c, 1, sizeof(struct set)); }

static void one_obj(struct schema *s, struct set *a, const struct obj *o)
{
	a->objs = con_alloc(s->c, 1, sizeof *a->objs);
	if (a->objs != NULL)
		a->objs[a->n_objs++] = o;
}

static void one_arr(struct schema *s, struct set *a, const struct arr *of)
{
	a->arrs = con_alloc(s->c, 1, sizeof *a->arrs);
	if (a->arrs != NULL)
		a->arrs[a->n_arrs++] = of;
}

struct set *set_all(struct schema *s)
{
	struct set *a = set_none(s);
	if (a == NULL)
		return NULL;
	a->null = a->yes = a->no = true;
	a->number = con_any_number(s->c);
	a->string = (struct strings){.lang = con_any_text(s->c), .most = NO_MOST};
	one_obj(s, a, s->any_obj);
	one_arr(s, a, s->any_arr);
	return a;
}

struct set *set_objects(struct schema *s, const struct obj *o)
{
	struct set *a = set_none(s);
	if (a != NULL && o != NULL)
		one_obj(s, a, o);
	return a;
}

struct set *set_arrays(struct schema *s, const struct arr *of)
{
	struct set *a = set_none(s);
	if (a != NULL && of != NULL)
		one_arr(s, a, of);
	return a;
}

/* ---- strings ---- */

static bool any_length(const struct strings *a) { return a->least == 0 && a->most == NO_MOST; }

static bool is_any(struct schema *s, const struct strings *a) { return a->lang == con_any_text(s->c) && any_length(a); }

rx strings_lang(struct schema *s, const struct strings *a)
{
	if (a->lang == RX_NONE || a->least > a->most)
		return RX_NONE;
	if (any_length(a))
		return a->lang;
	rx length = rx_repeat(s->c->pool, con_any_char(s->c), a->least, a->most == NO_MOST ? RX_UNBOUNDED : a->most);
	return a->lang == con_any_text(s->c) ? length : rx_and(s->c->pool, a->lang, length);
}

static struct strings filtered(struct schema *s, const struct strings *words, rx lang)
{
	struct strings out = {.listed = true, .most = NO_MOST};
	struct proto_str *kept = con_alloc(s->c, words->n_words + 1, sizeof *kept);
	for (size_t i = 0; kept != NULL && i < words->n_words; i++)
		if (schema_matches(s, lang, words->words[i]))
			kept[out.n_words++] = words->words[i];
	out.words = kept;
	out.lang = schema_words(s, kept, out.n_words);
	return out;
}

static struct strings strings_and(struct schema *s, const struct strings *a, const struct strings *b)
{
	rx any = con_any_text(s->c);
	if (is_any(s, a) || a->lang == RX_NONE)
		return a->lang == RX_NONE ? *a : *b;
	if (is_any(s, b) || b->lang == RX_NONE)
		return b->lang == RX_NONE ? *b : *a;
	if (a->listed)
		return filtered(s, a, strings_lang(s, b));
	if (b->listed)
		return filtered(s, b, strings_lang(s, a));
	struct strings out = {.least = a->least > b->least ? a->least : b->least,
			      .most = a->most < b->most ? a->most : b->most};
	out.lang = a->lang == any || a->lang == b->lang ? b->lang
		   : b->lang == any                     ? a->lang
							: rx_and(s->c->pool, a->lang, b->lang);
	if (out.least > out.most)
		out = (struct strings){0};
	return out;
}

static struct strings strings_or(struct schema *s, const struct strings *a, const struct strings *b)
{
	bool same = a->lang == b->lang && a->least == b->least && a->most == b->most;
	if (a->lang == RX_NONE || is_any(s, b))
		return *b;
	if (b->lang == RX_NONE || is_any(s, a) || same)
		return *a;
	struct strings out = {.lang = rx_or(s->c->pool, strings_lang(s, a), strings_lang(s, b)), .most = NO_MOST};
	if (!a->listed || !b->listed)
		return out;
	struct proto_str *words = con_alloc(s->c, a->n_words + b->n_words, sizeof *words);
	if (words == NULL)
		return out;
	memcpy(words, a->words, a->n_words * sizeof *words);
	size_t n = a->n_words;
	for (size_t i = 0; i < b->n_words; i++) /* no word twice */
		if (!schema_matches(s, a->lang, b->words[i]))
			words[n++] = b->words[i];
	out.listed = true;
	out.words = words;
	out.n_words = n;
	return out;
}

/* ---- unions of shapes ---- */

static bool too_many(struct schema *s, size_t n)
{
	if (n <= SCHEMA_MAX_SHAPES)
		return false;
	con_fail(s->c, SL_ELIMIT, "the schema's alternatives have more than %d combinations", SCHEMA_MAX_SHAPES);
	return true;
}

/* A shape that is inside another one adds nothing. */
static void add_obj(struct schema *s, struct set *out, const struct obj *o)
{
	size_t kept = 0;
	if (o == NULL || !con_step(s->c, 1 + out->n_objs / 4))
		return;
	for (size_t i = 0; i < out->n_objs; i++)
		if (out->objs[i] == o || obj_within(s, o, out->objs[i]))
			return;
	for (size_t i = 0; i < out->n_objs; i++)
		if (!obj_within(s, out->objs[i], o))
			out->objs[kept++] = out->objs[i];
	out->n_objs = kept;
	if (!too_many(s, kept + 1))
		out->objs[out->n_objs++] = o;
}

static void add_arr(struct schema *s, struct set *out, const struct arr *a)
{
	if (a == NULL || !con_step(s->c, 1))
		return;
	for (size_t i = 0; i < out->n_arrs; i++)
		if (out->arrs[i] == s->any_arr || out->arrs[i] == a || arr_equal(out->arrs[i], a))
			return;
	if (a == s->any_arr)
		out->n_arrs = 0;
	out->arrs[out->n_arrs++] = a;
}

static void objs_and(struct schema *s, struct set *out, const struct set *a, const struct set *b)
{
	out->objs = con_alloc(s->c, a->n_objs * b->n_objs + 1, sizeof *out->objs);
	for (size_t i = 0; out->objs != NULL && i < a->n_objs; i++)
		for (size_t j = 0; j < b->n_objs && con_step(s->c, 1); j++)
			add_obj(s, out, obj_and(s, a->objs[i], b->objs[j]));
}

static void arrs_and(struct schema *s, struct set *out, const struct set *a, const struct set *b)
{
	if (too_many(s, a->n_arrs * b->n_arrs))
		return;
	out->arrs = con_alloc(s->c, a->n_arrs * b->n_arrs + 1, sizeof *out->arrs);
	for (size_t i = 0; out->arrs != NULL && i < a->n_arrs; i++)
		for (size_t j = 0; j < b->n_arrs && con_step(s->c, 1); j++)
			add_arr(s, out, arr_and(s, a->arrs[i], b->arrs[j]));
}

static bool any_objs(const struct schema *s, const struct set *a) { return a->n_objs == 1 && a->objs[0] == s->any_obj; }
static bool any_arrs(const struct schema *s, const struct set *a) { return a->n_arrs == 1 && a->arrs[0] == s->any_arr; }

static void take_objs(struct set *out, const struct set *a)
{
	out->objs = a->objs;
	out->n_objs = a->n_objs;
}

static void take_arrs(struct set *out, const struct set *a)
{
	out->arrs = a->arrs;
	out->n_arrs = a->n_arrs;
}

struct set *set_and(struct schema *s, const struct set *a, const struct set *b)
{
	struct set *out = set_none(s);
	if (out == NULL || a == NULL || b == NULL)
		return out;
	out->null = a->null && b->null;
	out->yes = a->yes && b->yes;
	out->no = a->no && b->no;
	out->whole = a->whole || b->whole;
	rx any = con_any_number(s->c);
	out->number = a->number == any   ? b->number
		      : b->number == any ? a->number
					 : rx_and(s->c->pool, a->number, b->number);
	out->string = strings_and(s, &a->string, &b->string);
	if (any_objs(s, a))
		take_objs(out, b);
	else if (any_objs(s, b))
		take_objs(out, a);
	else
		objs_and(s, out, a, b);
	if (any_arrs(s, a))
		take_arrs(out, b);
	else if (any_arrs(s, b))
		take_arrs(out, a);
	else
		arrs_and(s, out, a, b);
	return out;
}

static void objs_or(struct schema *s, struct set *out, const struct set *a, const struct set *b)
{
	out->objs = con_alloc(s->c, a->n_objs + b->n_objs + 1, sizeof *out->objs);
	for (size_t i = 0; out->objs != NULL && i < a->n_objs + b->n_objs; i++)
		add_obj(s, out, i < a->n_objs ? a->objs[i] : b->objs[i - a->n_objs]);
}

static void arrs_or(struct schema *s, struct set *out, const struct set *a, const struct set *b)
{
	if (too_many(s, a->n_arrs + b->n_arrs))
		return;
	out->arrs = con_alloc(s->c, a->n_arrs + b->n_arrs + 1, sizeof *out->arrs);
	for (size_t i = 0; out->arrs != NULL && i < a->n_arrs + b->n_arrs; i++)
		add_arr(s, out, i < a->n_arrs ? a->arrs[i] : b->arrs[i - a->n_arrs]);
}

struct set *set_or(struct schema *s, const struct set *a, const struct set *b)
{
	struct set *out = set_none(s);
	if (out == NULL || a == NULL || b == NULL)
		return out;
	out->null = a->null || b->null;
	out->yes = a->yes || b->yes;
	out->no = a->no || b->no;
	out->whole = (a->whole || a->number == RX_NONE) && (b->whole || b->number == RX_NONE);
	out->number = rx_or(s->c->pool, a->number, b->number);
	out->string = strings_or(s, &a->string, &b->string);
	objs_or(s, out, a, b);
	arrs_or(s, out, a, b);
	return out;
}

/* ---- emptiness ---- */

bool set_is_none(struct schema *s, const struct set *a)
{
	struct rx_pool *p = s->c->pool;
	if (a == NULL || a->null || a->yes || a->no || (a->string.listed && a->string.n_words > 0))
		return false;
	if (a->number != RX_NONE && !rx_is_none(p, a->number, SCHEMA_EMPTY_STATES))
		return false;
	rx text = strings_lang(s, &a->string);
	if (text != RX_NONE && !rx_is_none(p, text, SCHEMA_EMPTY_STATES))
		return false;
	for (size_t i = 0; i < a->n_arrs; i++)
		if (!arr_is_none(s, a->arrs[i]))
			return false;
	for (size_t i = 0; i < a->n_objs; i++)
		if (!obj_is_none(s, a->objs[i]))
			return false;
	return s->c->rc == 0;
}

static bool contradicts(struct schema *s, struct lits l)
{
	if (lits_have(l, lit_of(s->never, false)) || lits_have(l, lit_of(s->always, true)))
		return true;
	for (size_t i = 1; i < l.n; i++) /* neighbours, as only the lowest bit differs */
		if (lit_schema(l.of[i - 1]) == lit_schema(l.of[i]))
			return true;
	return false;
}

/* A value that contains itself never ends, so a set under examination counts as not proven. */
bool goal_is_none(struct schema *s, struct goal *g)
{
	if (g == NULL || g->empty != UNKNOWN)
		return g != NULL && g->empty == NONE;
	if (contradicts(s, g->lits)) {
		g->empty = NONE;
		return true;
	}
	if (g->evaluating || s->empty_level >= SCHEMA_EMPTY_LEVELS || !con_step(s->c, 1))
		return false;
	bool blocked = s->blocked;
	g->evaluating = true;
	s->blocked = false;
	s->empty_level++;
	bool none = set_is_none(s, goal_set(s, g));
	s->empty_level--;
	g->evaluating = false;
	if (!s->blocked)
		g->empty = none ? NONE : SOME;
	none = none && !s->blocked;
	s->blocked = blocked;
	return none;
}
