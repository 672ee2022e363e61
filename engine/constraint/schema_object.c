/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes of objects: intersection, members, emptiness. schema_members.c has the keywords.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/constraint/schema.h"

struct obj *obj_new(struct schema *s)
{
	struct obj *o = con_alloc(s->c, 1, sizeof *o);
	if (o == NULL)
		return NULL;
	o->names = con_any_text(s->c);
	o->most = NO_MOST;
	return o;
}

/* ---- groups ---- */

static const struct named *group_property(const struct group *g, uint32_t name)
{
	if (g->n_properties == 0)
		return NULL;
	for (size_t i = name * 2654435761u;; i++) {
		uint32_t slot = g->index[i & (g->n_index - 1)];
		if (slot == 0)
			return NULL;
		if (g->properties[slot - 1].name == name)
			return &g->properties[slot - 1];
	}
}

/* Adds the literals that g has for a member of this name; false: none. */
static bool group_lits(struct schema *s, const struct group *g, uint32_t name, lit *out, size_t *n)
{
	const struct named *property = group_property(g, name);
	bool known = property != NULL;
	if (known && out != NULL)
		out[(*n)++] = property->value;
	for (size_t i = 0; i < g->n_patterns; i++) {
		if (!schema_matches(s, g->patterns[i].names, s->names[name]))
			continue;
		known = true;
		if (out != NULL)
			out[(*n)++] = g->patterns[i].value;
	}
	for (size_t i = 0; i < g->n_covers && !known; i++)
		known = g->covers[i]->has_rest || group_lits(s, g->covers[i], name, NULL, NULL);
	if (!known && g->has_rest && out != NULL)
		out[(*n)++] = g->rest;
	return known;
}

struct goal *obj_member(struct schema *s, const struct obj *o, uint32_t name)
{
	size_t n = 0, most = o->n_named + 1;
	for (size_t i = 0; i < o->n_groups; i++)
		most += o->groups[i]->n_patterns + 2;
	lit *lits = con_alloc(s->c, most, sizeof *lits);
	if (lits == NULL)
		return NULL;
	for (size_t i = 0; i < o->n_groups; i++)
		group_lits(s, o->groups[i], name, lits, &n);
	for (size_t i = 0; i < o->n_named; i++)
		if (o->named[i].name == name)
			lits[n++] = o->named[i].value;
	if (o->names != s->any_obj->names && !schema_matches(s, o->names, s->names[name]))
		lits[n++] = lit_of(s->never, false);
	return schema_goal(s, lits, n);
}

/* ---- intersection ---- */

static void *joined(struct schema *s, const void *a, size_t n, const void *b, size_t m, size_t each)
{
	if (m == 0)
		return (void *)(uintptr_t)a;
	if (n == 0)
		return (void *)(uintptr_t)b;
	char *out = con_alloc(s->c, n + m, each);
	if (out == NULL)
		return NULL;
	memcpy(out, a, n * each);
	memcpy(out + n * each, b, m * each);
	return out;
}

static void join_groups(struct schema *s, struct obj *out, const struct obj *a, const struct obj *b)
{
	out->groups = con_alloc(s->c, a->n_groups + b->n_groups + 1, sizeof *out->groups);
	for (size_t i = 0; out->groups != NULL && i < a->n_groups + b->n_groups; i++) {
		const struct group *g = i < a->n_groups ? a->groups[i] : b->groups[i - a->n_groups];
		size_t j = 0;
		while (j < out->n_groups && out->groups[j] != g)
			j++;
		if (j == out->n_groups)
			out->groups[out->n_groups++] = g;
	}
}

static void join_named(struct schema *s, struct obj *out, const struct obj *a, const struct obj *b)
{
	out->named = con_alloc(s->c, a->n_named + b->n_named + 1, sizeof *out->named);
	for (size_t i = 0; out->named != NULL && i < a->n_named + b->n_named; i++) {
		struct named one = i < a->n_named ? a->named[i] : b->named[i - a->n_named];
		size_t j = 0;
		while (j < out->n_named && (out->named[j].name != one.name || out->named[j].value != one.value))
			j++;
		if (j == out->n_named)
			out->named[out->n_named++] = one;
	}
}

static void join_required(struct schema *s, struct obj *out, const struct obj *a, const struct obj *b)
{
	size_t i = 0, j = 0;
	out->required = con_alloc(s->c, a->n_required + b->n_required + 1, sizeof *out->required);
	while (out->required != NULL && (i < a->n_required || j < b->n_required)) {
		uint32_t x = i < a->n_required ? a->required[i] : UINT32_MAX;
		uint32_t y = j < b->n_required ? b->required[j] : UINT32_MAX;
		out->required[out->n_required++] = x < y ? x : y;
		i += x <= y;
		j += y <= x;
	}
}

static bool requires(const struct obj *o, uint32_t name)
{
	for (size_t i = 0; i < o->n_required; i++)
		if (o->required[i] == name)
			return true;
	return false;
}

/* Is a required member forbidden? */
static bool forbids_required(const struct schema *s, const struct obj *o)
{
	for (size_t i = 0; i < o->n_named; i++)
		if (o->named[i].value == lit_of(s->never, false) && requires(o, o->named[i].name))
			return true;
	return o->least > o->most || o->n_required > o->most;
}

const struct obj *obj_and(struct schema *s, const struct obj *a, const struct obj *b)
{
	if (a == s->any_obj || a == b)
		return b;
	if (b == s->any_obj)
		return a;
	struct obj *out = obj_new(s);
	if (out == NULL)
		return NULL;
	con_step(s->c, 1 + (a->n_named + b->n_named + a->n_required + b->n_required) / 4);
	join_groups(s, out, a, b);
	join_named(s, out, a, b);
	join_required(s, out, a, b);
	out->somes = joined(s, a->somes, a->n_somes, b->somes, b->n_somes, sizeof *out->somes);
	out->n_somes = a->n_somes + b->n_somes;
	if (a->names != b->names && a->names != out->names)
		out->names = b->names == out->names ? a->names : rx_and(s->c->pool, a->names, b->names);
	else if (a->names == b->names || a->names == out->names)
		out->names = b->names;
	out->least = a->least > b->least ? a->least : b->least;
	out->most = a->most < b->most ? a->most : b->most;
	/* Members that distinguish objects by their value, such as "kind", make most intersections empty. Checking for
	 * them here keeps unions short. */
	return s->c->rc != 0 || forbids_required(s, out) || obj_is_none(s, out) ? NULL : out;
}

bool obj_is_none(struct schema *s, const struct obj *o)
{
	if (forbids_required(s, o))
		return true;
	for (size_t i = 0; i < o->n_required && con_step(s->c, 1); i++)
		if (goal_is_none(s, obj_member(s, o, o->required[i])))
			return true;
	return false;
}

static bool has_group(const struct obj *o, const struct group *g)
{
	for (size_t i = 0; i < o->n_groups; i++)
		if (o->groups[i] == g)
			return true;
	return false;
}

static bool has_named(const struct obj *o, struct named n)
{
	for (size_t i = 0; i < o->n_named; i++)
		if (o->named[i].name == n.name && o->named[i].value == n.value)
			return true;
	return false;
}

static bool has_some(const struct obj *o, struct some n)
{
	for (size_t i = 0; i < o->n_somes; i++)
		if (o->somes[i].names == n.names && o->somes[i].value == n.value)
			return true;
	return false;
}

bool obj_within(struct schema *s, const struct obj *a, const struct obj *b)
{
	if (a->least < b->least || a->most > b->most || (a->names != b->names && b->names != s->any_obj->names))
		return false;
	if (a->n_required < b->n_required || a->n_named < b->n_named || a->n_groups < b->n_groups)
		return false;
	for (size_t i = 0; i < b->n_named; i++)
		if (!has_named(a, b->named[i]))
			return false;
	for (size_t i = 0; i < b->n_required; i++)
		if (!requires(a, b->required[i]))
			return false;
	for (size_t i = 0; i < b->n_groups; i++)
		if (!has_group(a, b->groups[i]))
			return false;
	for (size_t i = 0; i < b->n_somes; i++)
		if (!has_some(a, b->somes[i]))
			return false;
	return true;
}

/* ---- the groups of schemas ---- */

static void index_group(struct schema *s, struct group *g)
{
	size_t n = 8;
	while (n < g->n_properties * 2)
		n *= 2;
	g->index = con_alloc(s->c, n, sizeof *g->index);
	if (g->index == NULL) {
		g->n_properties = 0;
		return;
	}
	g->n_index = n;
	for (uint32_t i = 0; g->properties != NULL && i < g->n_properties; i++) {
		size_t at = g->properties[i].name * 2654435761u;
		while (g->index[at & (n - 1)] != 0)
			at++;
		g->index[at & (n - 1)] = i + 1;
	}
}

static bool is_object(struct schema *s, const struct jv *of, const char *keyword, const struct jv *v)
{
	if (v == NULL)
		return false;
	if (v->kind != JV_OBJECT)
		schema_fail(s, SL_EINVAL, of, keyword, "must be an object of schemas");
	return v->kind == JV_OBJECT;
}

static void read_properties(struct schema *s, struct group *g, const struct jv *of)
{
	const struct jv *v = jv_get(of, "properties");
	if (!is_object(s, of, "properties", v) || v->n == 0)
		return;
	struct named *list = con_alloc(s->c, v->n, sizeof *list);
	for (size_t i = 0; list != NULL && i < v->n && con_step(s->c, 1); i++)
		list[g->n_properties++] =
		    (struct named){schema_name(s, v->members[i].key), lit_of(v->members[i].value, false)};
	g->properties = list;
	if (list != NULL)
		index_group(s, g);
}

static void read_patterns(struct schema *s, struct group *g, const struct jv *of)
{
	const struct jv *v = jv_get(of, "patternProperties");
	if (!is_object(s, of, "patternProperties", v) || v->n == 0)
		return;
	struct pattern *list = con_alloc(s->c, v->n, sizeof *list);
	for (size_t i = 0; list != NULL && i < v->n && con_step(s->c, 1); i++)
		list[g->n_patterns++] = (struct pattern){schema_pattern(s, v, NULL, v->members[i].key, true),
							 lit_of(v->members[i].value, false)};
	g->patterns = list;
}

const struct group *schema_group(struct schema *s, const struct jv *of)
{
	struct jv *owner = (struct jv *)(uintptr_t)of;
	if (owner->note[2] != NULL)
		return owner->note[2];
	const struct jv *rest = jv_get(of, "additionalProperties");
	struct group *g = con_alloc(s->c, 1, sizeof *g);
	if (g == NULL)
		return NULL;
	read_properties(s, g, of);
	read_patterns(s, g, of);
	g->has_rest = rest != NULL;
	g->rest = rest != NULL ? lit_of(rest, false) : 0;
	owner->note[2] = g;
	return g;
}
