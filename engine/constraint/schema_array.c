/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes of arrays and their keywords.
 */
#include <string.h>

#include "engine/constraint/schema.h"

struct arr *arr_new(struct schema *s)
{
	struct arr *a = con_alloc(s->c, 1, sizeof *a);
	if (a != NULL)
		a->most = NO_MOST;
	return a;
}

/* ---- intersection ---- */

static void *joined(struct schema *s, const void *a, size_t n, const void *b, size_t m, size_t each)
{
	char *out = con_alloc(s->c, n + m + 1, each);
	if (out != NULL && n > 0)
		memcpy(out, a, n * each);
	if (out != NULL && m > 0)
		memcpy(out + n * each, b, m * each);
	return out;
}

const struct arr *arr_and(struct schema *s, const struct arr *a, const struct arr *b)
{
	if (a == s->any_arr || a == b)
		return b;
	if (b == s->any_arr)
		return a;
	struct arr *out = arr_new(s);
	if (out == NULL)
		return NULL;
	out->tuples = joined(s, a->tuples, a->n_tuples, b->tuples, b->n_tuples, sizeof *out->tuples);
	out->held = joined(s, a->held, a->n_held, b->held, b->n_held, sizeof *out->held);
	out->placed = joined(s, a->placed, a->n_placed, b->placed, b->n_placed, sizeof *out->placed);
	out->n_tuples = a->n_tuples + b->n_tuples;
	out->n_held = a->n_held + b->n_held;
	out->n_placed = a->n_placed + b->n_placed;
	out->least = a->least > b->least ? a->least : b->least;
	out->most = a->most < b->most ? a->most : b->most;
	out->unique = a->unique || b->unique;
	return s->c->rc != 0 || arr_is_none(s, out) ? NULL : out;
}

bool arr_equal(const struct arr *a, const struct arr *b)
{
	return a->n_held + b->n_held + a->n_placed + b->n_placed == 0 && a->least == b->least && a->most == b->most &&
	       a->unique == b->unique && a->n_tuples == b->n_tuples &&
	       (a->n_tuples == 0 || memcmp(a->tuples, b->tuples, a->n_tuples * sizeof *a->tuples) == 0);
}

uint32_t arr_prefix(const struct arr *a)
{
	size_t n = 0;
	for (size_t i = 0; i < a->n_tuples; i++)
		n = a->tuples[i]->n_prefix > n ? a->tuples[i]->n_prefix : n;
	for (size_t i = 0; i < a->n_placed; i++)
		n = a->placed[i].at >= n ? (size_t)a->placed[i].at + 1 : n;
	return (uint32_t)n;
}

struct goal *arr_item(struct schema *s, const struct arr *a, uint32_t at, const lit *more, size_t n_more)
{
	lit *lits = con_alloc(s->c, a->n_tuples + a->n_placed + n_more + 1, sizeof *lits);
	size_t n = 0;
	if (lits == NULL)
		return NULL;
	for (size_t i = 0; i < a->n_tuples; i++) {
		const struct tuple *t = a->tuples[i];
		if (at < t->n_prefix)
			lits[n++] = t->prefix[at];
		else if (t->has_rest)
			lits[n++] = t->rest;
	}
	for (size_t i = 0; i < a->n_placed; i++)
		if (a->placed[i].at == at)
			lits[n++] = a->placed[i].value;
	for (size_t i = 0; i < n_more; i++)
		lits[n++] = more[i];
	return schema_goal(s, lits, n);
}

bool arr_is_none(struct schema *s, const struct arr *a)
{
	uint32_t n = arr_prefix(a);
	if (a->least > a->most)
		return true;
	for (uint32_t i = 0; i < a->least && i <= n && con_step(s->c, 1); i++)
		if (goal_is_none(s, arr_item(s, a, i, NULL, 0)))
			return true;
	for (size_t i = 0; i < a->n_held; i++)
		if (a->held[i].least > a->held[i].most || a->held[i].least > a->most)
			return true;
	return false;
}

/* ---- items ---- */

static struct set *arrays(struct schema *s, const struct arr *a, bool inverted)
{
	if (inverted)
		return set_arrays(s, a);
	struct set *out = set_all(s), *only = set_arrays(s, a);
	if (out != NULL && only != NULL) {
		out->arrs = only->arrs;
		out->n_arrs = only->n_arrs;
	}
	return out;
}

static struct tuple *read_tuple(struct schema *s, const struct jv *of)
{
	const struct jv *prefix = jv_get(of, "prefixItems"), *items = jv_get(of, "items"), *rest = items;
	if (prefix == NULL && jv_is(items, JV_ARRAY)) {
		prefix = items;
		rest = jv_get(of, "additionalItems");
	}
	if (prefix == NULL && rest == NULL)
		return NULL;
	if ((prefix != NULL && prefix->kind != JV_ARRAY) || jv_is(rest, JV_ARRAY)) {
		schema_fail(s, SL_EINVAL, of, "prefixItems", "must be a list of schemas");
		return NULL;
	}
	struct tuple *t = con_alloc(s->c, 1, sizeof *t);
	lit *list = con_alloc(s->c, prefix != NULL ? prefix->n + 1 : 1, sizeof *list);
	if (t == NULL || list == NULL)
		return NULL;
	for (size_t i = 0; prefix != NULL && i < prefix->n; i++)
		list[t->n_prefix++] = lit_of(prefix->items[i], false);
	t->prefix = list;
	t->has_rest = rest != NULL;
	t->rest = rest != NULL ? lit_of(rest, false) : 0;
	return t;
}

static struct set *broken_item(struct schema *s, uint32_t at, lit broken)
{
	struct arr *a = arr_new(s);
	if (a == NULL || goal_is_none(s, schema_goal(s, &broken, 1)))
		return set_none(s);
	a->placed = con_alloc(s->c, 1, sizeof *a->placed);
	if (a->placed != NULL)
		a->placed[a->n_placed++] = (struct placed){at, broken};
	a->least = at + 1;
	return set_arrays(s, a);
}

static struct arr *holding(struct schema *s, struct held h)
{
	struct arr *a = arr_new(s);
	if (a == NULL)
		return NULL;
	a->held = con_alloc(s->c, 1, sizeof *a->held);
	if (a->held != NULL)
		a->held[a->n_held++] = h;
	a->least = h.least > 0 ? h.from + h.least : 0;
	return a;
}

static struct set *not_tuple(struct schema *s, const struct tuple *t)
{
	struct set *out = set_none(s);
	lit rest = t->rest ^ 1;
	for (uint32_t i = 0; i < t->n_prefix && con_step(s->c, 1); i++)
		out = set_or(s, out, broken_item(s, i, t->prefix[i] ^ 1));
	if (t->has_rest && !goal_is_none(s, schema_goal(s, &rest, 1)))
		out = set_or(s, out, set_arrays(s, holding(s, (struct held){rest, (uint32_t)t->n_prefix, 1, NO_MOST})));
	return out;
}

struct set *keyword_items(struct schema *s, const struct jv *of, bool inverted)
{
	const struct tuple *t = read_tuple(s, of);
	struct arr *a = arr_new(s);
	if (t == NULL || a == NULL)
		return NULL;
	if (inverted)
		return not_tuple(s, t);
	a->tuples = con_alloc(s->c, 1, sizeof *a->tuples);
	if (a->tuples != NULL)
		a->tuples[a->n_tuples++] = t;
	return arrays(s, a, false);
}

/* ---- counts ---- */

static struct set *counted(struct schema *s, uint32_t least, uint32_t most, bool inverted)
{
	struct arr *a = arr_new(s);
	if (a == NULL)
		return NULL;
	a->least = least;
	a->most = most;
	return arrays(s, a, inverted);
}

struct set *keyword_min_items(struct schema *s, const struct jv *of, bool inverted)
{
	uint32_t n;
	if (!schema_count(s, of, "minItems", &n))
		return NULL;
	if (inverted)
		return n == 0 ? set_none(s) : counted(s, 0, n - 1, true);
	return counted(s, n, NO_MOST, false);
}

struct set *keyword_max_items(struct schema *s, const struct jv *of, bool inverted)
{
	uint32_t n;
	if (!schema_count(s, of, "maxItems", &n))
		return NULL;
	return inverted ? counted(s, n + 1, NO_MOST, true) : counted(s, 0, n, false);
}

struct set *keyword_contains(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *v = jv_get(of, "contains");
	uint32_t least = 1, most = NO_MOST;
	if (v == NULL || s->draft < DRAFT_6)
		return NULL;
	if (s->draft >= DRAFT_2019) {
		schema_count(s, of, "minContains", &least);
		schema_count(s, of, "maxContains", &most);
	}
	lit value = lit_of(v, false);
	if (!inverted)
		return arrays(s, holding(s, (struct held){value, 0, least, most}), false);
	struct set *out = set_none(s);
	if (least > 0)
		out = set_or(s, out, set_arrays(s, holding(s, (struct held){value, 0, 0, least - 1})));
	if (most != NO_MOST)
		out = set_or(s, out, set_arrays(s, holding(s, (struct held){value, 0, most + 1, NO_MOST})));
	return out;
}

struct set *keyword_unique(struct schema *s, const struct jv *of, bool inverted)
{
	struct arr *a = arr_new(s);
	if (!jv_is(jv_get(of, "uniqueItems"), JV_TRUE) || a == NULL)
		return NULL;
	if (inverted) {
		schema_fail(s, SL_EUNSUPPORTED, of, "uniqueItems", "its complement is not supported");
		return NULL;
	}
	a->unique = true;
	return arrays(s, a, false);
}

struct set *keyword_unevaluated_items(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *v = jv_get(of, "unevaluatedItems");
	if (v == NULL || v->kind == JV_TRUE || s->draft < DRAFT_2019)
		return NULL;
	(void)inverted;
	schema_fail(s, SL_EUNSUPPORTED, of, "unevaluatedItems", "this keyword is not supported");
	return NULL;
}
