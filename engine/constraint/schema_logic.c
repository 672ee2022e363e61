/* SPDX-License-Identifier: Apache-2.0
 *
 * Keywords that combine schemas.
 */
#include "engine/constraint/schema.h"

enum { MAX_BRANCHES = 256 };

struct set *keyword_ref(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *ref = jv_get(of, "$ref");
	const char *keyword = "$ref";
	if (ref == NULL && s->draft >= DRAFT_2020) {
		keyword = "$dynamicRef";
		ref = jv_get(of, keyword);
	}
	if (ref == NULL || (ref->kind == JV_OBJECT && of->parent != NULL))
		return NULL; /* a property named $ref has a schema */
	const struct jv *target = schema_resolve(s, of, keyword, ref);
	if (target == NULL)
		return set_none(s);
	return set_or(s, set_none(s), schema_set(s, lit_of(target, inverted)));
}

static const struct jv *branches(struct schema *s, const struct jv *of, const char *keyword)
{
	const struct jv *v = jv_get(of, keyword);
	if (v == NULL)
		return NULL;
	if (v->kind != JV_ARRAY || v->n == 0)
		schema_fail(s, SL_EINVAL, of, keyword, "must be a list of schemas");
	else if (v->n > MAX_BRANCHES * 16)
		schema_fail(s, SL_ELIMIT, of, keyword, "more than %d schemas", MAX_BRANCHES * 16);
	return s->c->rc == 0 ? v : NULL;
}

static struct set *all_of(struct schema *s, const struct jv *v, bool inverted)
{
	struct set *out = set_all(s);
	for (size_t i = 0; i < v->n && con_step(s->c, 1); i++)
		out = set_and(s, out, schema_set(s, lit_of(v->items[i], inverted)));
	return out;
}

static struct set *any_of(struct schema *s, const struct jv *v, bool inverted)
{
	struct set *out = set_none(s);
	for (size_t i = 0; i < v->n && con_step(s->c, 1); i++)
		out = set_or(s, out, schema_set(s, lit_of(v->items[i], inverted)));
	return out;
}

struct set *keyword_all_of(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *v = branches(s, of, "allOf");
	return v == NULL ? NULL : inverted ? any_of(s, v, true) : all_of(s, v, false);
}

struct set *keyword_any_of(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *v = branches(s, of, "anyOf");
	return v == NULL ? NULL : inverted ? all_of(s, v, true) : any_of(s, v, false);
}

/* ---- oneOf ---- */

/* Intersects the branches with the schema's other keywords before they are made exclusive: most overlaps vanish. */
static const struct set *siblings(struct schema *s, const struct jv *of)
{
	static keyword_fn *const narrowing[] = {keyword_type, keyword_required, keyword_properties};
	const struct set *out = set_all(s);
	for (size_t i = 0; i < sizeof narrowing / sizeof *narrowing; i++) {
		const struct set *one = narrowing[i](s, of, false);
		if (one != NULL)
			out = set_and(s, out, one);
	}
	return out;
}

static struct set *disjoint(struct schema *s, const struct set *a, const struct jv *v, size_t except)
{
	const struct set *out = a;
	for (size_t j = 0; j < v->n && con_step(s->c, 1); j++) {
		if (j == except)
			continue;
		const struct set *both = set_and(s, out, schema_set(s, lit_of(v->items[j], false)));
		if (!set_is_none(s, both))
			out = set_and(s, out, schema_set(s, lit_of(v->items[j], true)));
	}
	return set_or(s, set_none(s), out);
}

static struct set *one_of(struct schema *s, const struct jv *of, const struct jv *v)
{
	const struct set *narrow = siblings(s, of);
	struct set *out = set_none(s);
	if (v->n == 1)
		return all_of(s, v, false);
	for (size_t i = 0; i < v->n && con_step(s->c, 1); i++) {
		const struct set *one = set_and(s, schema_set(s, lit_of(v->items[i], false)), narrow);
		out = set_or(s, out, disjoint(s, one, v, i));
	}
	return out;
}

/* None of them, or at least two. */
static struct set *not_one_of(struct schema *s, const struct jv *v)
{
	struct set *out = all_of(s, v, true);
	for (size_t i = 0; i < v->n; i++)
		for (size_t j = i + 1; j < v->n && con_step(s->c, 1); j++)
			out = set_or(s, out,
				     set_and(s, schema_set(s, lit_of(v->items[i], false)),
					     schema_set(s, lit_of(v->items[j], false))));
	return out;
}

struct set *keyword_one_of(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *v = branches(s, of, "oneOf");
	if (v == NULL)
		return NULL;
	if (v->n > MAX_BRANCHES) {
		schema_fail(s, SL_ELIMIT, of, "oneOf", "more than %d schemas", MAX_BRANCHES);
		return NULL;
	}
	return inverted ? not_one_of(s, v) : one_of(s, of, v);
}

/* ---- not, if ---- */

struct set *keyword_not(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *v = jv_get(of, "not");
	return v == NULL ? NULL : set_or(s, set_none(s), schema_set(s, lit_of(v, !inverted)));
}

struct set *keyword_if(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *condition = jv_get(of, "if"), *then = jv_get(of, "then"), *otherwise = jv_get(of, "else");
	if (condition == NULL || (then == NULL && otherwise == NULL) || s->draft < DRAFT_7)
		return NULL;
	then = then != NULL ? then : s->always;
	otherwise = otherwise != NULL ? otherwise : s->always;
	const struct set *yes =
	    set_and(s, schema_set(s, lit_of(condition, false)), schema_set(s, lit_of(then, inverted)));
	const struct set *no =
	    set_and(s, schema_set(s, lit_of(condition, true)), schema_set(s, lit_of(otherwise, inverted)));
	return set_or(s, yes, no);
}
