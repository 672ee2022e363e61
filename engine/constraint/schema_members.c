/* SPDX-License-Identifier: Apache-2.0
 *
 * Keywords of objects.
 */
#include "engine/constraint/schema.h"

/* All values except objects, and objects of the shape; inverted: only these objects. */
static struct set *objects(struct schema *s, const struct obj *o, bool inverted)
{
	if (inverted)
		return set_objects(s, o);
	struct set *out = set_all(s), *only = set_objects(s, o);
	if (out != NULL && only != NULL) {
		out->objs = only->objs;
		out->n_objs = only->n_objs;
	}
	return out;
}

static struct obj *with_named(struct schema *s, uint32_t name, lit value, bool required)
{
	struct obj *o = obj_new(s);
	if (o == NULL)
		return NULL;
	o->named = con_alloc(s->c, 1, sizeof *o->named);
	o->required = con_alloc(s->c, 1, sizeof *o->required);
	if (o->named == NULL || o->required == NULL)
		return NULL;
	o->named[o->n_named++] = (struct named){name, value};
	if (required)
		o->required[o->n_required++] = name;
	return o;
}

static struct obj *without(struct schema *s, uint32_t name)
{
	return with_named(s, name, lit_of(s->never, false), false);
}

static struct obj *with_required(struct schema *s, uint32_t name)
{
	struct obj *o = obj_new(s);
	if (o == NULL)
		return NULL;
	o->required = con_alloc(s->c, 1, sizeof *o->required);
	if (o->required != NULL)
		o->required[o->n_required++] = name;
	return o;
}

static struct obj *with_some(struct schema *s, rx names, lit value)
{
	struct obj *o = obj_new(s);
	if (o == NULL)
		return NULL;
	o->somes = con_alloc(s->c, 1, sizeof *o->somes);
	if (o->somes != NULL)
		o->somes[o->n_somes++] = (struct some){names, value};
	return o;
}

/* Names that are neither in a group's properties nor match its patterns. */
static rx unknown_names(struct schema *s, const struct group *g)
{
	struct proto_str *words = con_alloc(s->c, g->n_properties + 1, sizeof *words);
	if (words == NULL)
		return RX_NONE;
	for (size_t i = 0; i < g->n_properties; i++)
		words[i] = s->names[g->properties[i].name];
	rx names = con_minus(s->c, con_any_text(s->c), schema_words(s, words, g->n_properties));
	for (size_t i = 0; i < g->n_patterns; i++)
		names = con_minus(s->c, names, g->patterns[i].names);
	return names;
}

/* At least one member violates its schema. */
static struct set *not_group(struct schema *s, const struct group *g)
{
	struct set *out = set_none(s);
	for (size_t i = 0; i < g->n_properties && con_step(s->c, 1); i++) {
		lit broken = g->properties[i].value ^ 1;
		struct goal *goal = schema_goal(s, &broken, 1);
		if (!goal_is_none(s, goal))
			out = set_or(s, out, set_objects(s, with_named(s, g->properties[i].name, broken, true)));
	}
	for (size_t i = 0; i < g->n_patterns && con_step(s->c, 1); i++)
		out = set_or(s, out, set_objects(s, with_some(s, g->patterns[i].names, g->patterns[i].value ^ 1)));
	lit rest = g->rest ^ 1;
	if (g->has_rest && !goal_is_none(s, schema_goal(s, &rest, 1)))
		out = set_or(s, out, set_objects(s, with_some(s, unknown_names(s, g), rest)));
	return out;
}

struct set *keyword_properties(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *rest = jv_get(of, "additionalProperties");
	bool open = rest == NULL || rest->kind == JV_TRUE;
	if (jv_get(of, "properties") == NULL && jv_get(of, "patternProperties") == NULL && open)
		return NULL;
	const struct group *g = schema_group(s, of);
	struct obj *o = obj_new(s);
	if (g == NULL || o == NULL)
		return NULL;
	if (inverted)
		return not_group(s, g);
	o->groups = con_alloc(s->c, 1, sizeof *o->groups);
	if (o->groups != NULL)
		o->groups[o->n_groups++] = g;
	return objects(s, o, false);
}

static bool is_list(struct schema *s, const struct jv *of, const char *keyword, const struct jv *v)
{
	bool good = v->kind == JV_ARRAY;
	for (size_t i = 0; good && i < v->n; i++)
		good = v->items[i]->kind == JV_STRING;
	if (!good)
		schema_fail(s, SL_EINVAL, of, keyword, "must be a list of names");
	return good;
}

/* Objects with all the names, or (inverted) without at least one of them. */
static struct set *with_names(struct schema *s, const struct jv *names, bool inverted)
{
	const struct obj *all = s->any_obj;
	struct set *out = set_none(s);
	for (size_t i = 0; i < names->n && con_step(s->c, 1); i++) {
		uint32_t name = schema_name(s, names->items[i]->text);
		if (inverted)
			out = set_or(s, out, set_objects(s, without(s, name)));
		else
			all = all == NULL ? NULL : obj_and(s, all, with_required(s, name));
	}
	return inverted ? out : set_objects(s, all);
}

struct set *keyword_required(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *v = jv_get(of, "required");
	if (v == NULL || v->kind == JV_TRUE || v->kind == JV_FALSE) /* draft 3's flag of a property */
		return NULL;
	if (!is_list(s, of, "required", v))
		return NULL;
	struct set *out = with_names(s, v, inverted);
	return inverted || out == NULL ? out : objects(s, out->n_objs > 0 ? out->objs[0] : NULL, false);
}

static struct set *counted(struct schema *s, uint32_t least, uint32_t most, bool inverted)
{
	struct obj *o = obj_new(s);
	if (o == NULL)
		return NULL;
	o->least = least;
	o->most = most;
	return objects(s, o, inverted);
}

struct set *keyword_min_properties(struct schema *s, const struct jv *of, bool inverted)
{
	uint32_t n;
	if (!schema_count(s, of, "minProperties", &n))
		return NULL;
	if (inverted)
		return n == 0 ? set_none(s) : counted(s, 0, n - 1, true);
	return counted(s, n, NO_MOST, false);
}

struct set *keyword_max_properties(struct schema *s, const struct jv *of, bool inverted)
{
	uint32_t n;
	if (!schema_count(s, of, "maxProperties", &n))
		return NULL;
	return inverted ? counted(s, n + 1, NO_MOST, true) : counted(s, 0, n, false);
}

struct set *keyword_property_names(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *v = jv_get(of, "propertyNames");
	if (v == NULL)
		return NULL;
	const struct set *names = schema_set(s, lit_of(v, inverted));
	if (inverted)
		return set_objects(s, with_some(s, strings_lang(s, &names->string), lit_of(s->always, false)));
	struct obj *o = obj_new(s);
	if (o == NULL)
		return NULL;
	o->names = strings_lang(s, &names->string);
	return objects(s, o, false);
}

/* ---- dependencies ---- */

/* The presence of a member requires other members, or the object as a whole to satisfy a schema. */
static struct set *dependency(struct schema *s, const struct jv *of, const char *keyword, const struct jv_member *m,
			      bool inverted)
{
	uint32_t name = schema_name(s, m->key);
	struct set *there = set_objects(s, with_required(s, name)), *absent = objects(s, without(s, name), false);
	const struct set *then;
	if (m->value->kind == JV_ARRAY && is_list(s, of, keyword, m->value))
		then = with_names(s, m->value, inverted);
	else
		then = schema_set(s, lit_of(m->value, inverted));
	there = set_and(s, there, then);
	return inverted ? there : set_or(s, absent, there);
}

static struct set *dependencies(struct schema *s, const struct jv *of, const char *keyword, struct set *out,
				bool inverted)
{
	const struct jv *v = jv_get(of, keyword);
	if (!jv_is(v, JV_OBJECT))
		return out;
	for (size_t i = 0; i < v->n && con_step(s->c, 1); i++) {
		struct set *one = dependency(s, of, keyword, &v->members[i], inverted);
		out = inverted ? set_or(s, out, one) : set_and(s, out, one);
	}
	return out;
}

struct set *keyword_dependencies(struct schema *s, const struct jv *of, bool inverted)
{
	static const char *const names[] = {"dependentRequired", "dependentSchemas", "dependencies"};
	struct set *out = inverted ? set_none(s) : set_all(s);
	bool found = false;
	for (size_t i = 0; i < 3; i++) {
		found = found || jv_get(of, names[i]) != NULL;
		out = dependencies(s, of, names[i], out, inverted);
	}
	return found ? out : NULL;
}

/* ---- unevaluatedProperties ---- */

/* o with another group, whose `rest` is for the names that none of its groups cover. */
static const struct obj *with_unevaluated(struct schema *s, const struct obj *o, lit rest)
{
	struct obj *out = obj_new(s);
	struct group *g = con_alloc(s->c, 1, sizeof *g);
	if (out == NULL || g == NULL)
		return NULL;
	out->groups = con_alloc(s->c, 1, sizeof *out->groups);
	if (out->groups == NULL)
		return NULL;
	*g = (struct group){.has_rest = true, .rest = rest, .covers = o->groups, .n_covers = o->n_groups};
	out->groups[out->n_groups++] = g;
	return obj_and(s, o, out);
}

/* of: what the other keywords permit; each of its shapes has the groups that evaluated its members. An instance that
 * several branches of an anyOf permit is judged by only one of them: too strictly, never too loosely. */
const struct set *schema_unevaluated(struct schema *s, const struct jv *at, const struct set *of, bool inverted)
{
	const struct jv *v = jv_get(at, "unevaluatedProperties");
	if (v == NULL || v->kind == JV_TRUE || s->draft < DRAFT_2019)
		return of;
	if (inverted) {
		schema_fail(s, SL_EUNSUPPORTED, at, "unevaluatedProperties", "its complement is not supported");
		return of;
	}
	struct set *objs = set_none(s), *others = set_all(s);
	for (size_t i = 0; objs != NULL && i < of->n_objs && con_step(s->c, 1); i++)
		objs = set_or(s, objs, set_objects(s, with_unevaluated(s, of->objs[i], lit_of(v, false))));
	if (others == NULL || objs == NULL)
		return of;
	others->n_objs = 0;
	return set_or(s, set_and(s, of, others), objs);
}
