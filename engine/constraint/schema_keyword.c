/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of keywords, and the keywords for values of any type: type, enum, const.
 */
#include <string.h>

#include "engine/constraint/decimal.h"
#include "engine/constraint/schema.h"

/* Unsupported keywords that affect validity. */
static const char *const refused[] = {"$recursiveRef"};

static keyword_fn *const keywords[] = {
    keyword_ref,
    keyword_type,
    keyword_const,
    keyword_enum,
    keyword_all_of,
    keyword_properties,
    keyword_required,
    keyword_min_properties,
    keyword_max_properties,
    keyword_property_names,
    keyword_items,
    keyword_min_items,
    keyword_max_items,
    keyword_contains,
    keyword_unique,
    keyword_minimum,
    keyword_maximum,
    keyword_exclusive_minimum,
    keyword_exclusive_maximum,
    keyword_multiple,
    keyword_min_length,
    keyword_max_length,
    keyword_pattern,
    keyword_format,
    keyword_dependencies,
    keyword_if,
    keyword_not,
    keyword_any_of,
    keyword_one_of,
};

static const struct set being_made; /* marks an incomplete set */

static void check_refused(struct schema *s, const struct jv *of)
{
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		if (jv_get(of, refused[i]) != NULL)
			schema_fail(s, SL_EUNSUPPORTED, of, refused[i], "this keyword is not supported");
}

/* Members come in the order in which the schema mentions them: its properties before those of a subsequent allOf. */
static const struct set *properties_first(struct schema *s, const struct jv *of, const struct set *out)
{
	const struct jv *all = jv_get(of, "allOf"), *properties = jv_get(of, "properties");
	if (all == NULL || properties == NULL || properties->at > all->at)
		return out;
	return set_and(s, out, keyword_properties(s, of, false));
}

static const struct set *all_keywords(struct schema *s, const struct jv *of, bool inverted)
{
	const struct set *out = inverted ? set_none(s) : set_all(s);
	check_refused(s, of);
	if (!inverted)
		out = properties_first(s, of, out);
	for (size_t i = 0; i < sizeof keywords / sizeof *keywords && con_step(s->c, 1); i++) {
		const struct set *one = keywords[i](s, of, inverted);
		if (one != NULL)
			out = inverted ? set_or(s, out, one) : set_and(s, out, one);
		/* Up to draft 7, a reference disables its sibling keywords. */
		if (i == 0 && one != NULL && s->draft <= DRAFT_7)
			return out;
	}
	out = schema_unevaluated(s, of, out, inverted);
	const struct set *rest = keyword_unevaluated_items(s, of, inverted);
	return rest != NULL ? set_and(s, out, rest) : out;
}

const struct set *schema_set(struct schema *s, lit l)
{
	struct jv *of = (struct jv *)(l & ~(uintptr_t)1);
	bool inverted = lit_inverted(l);
	if (rx_pool_fault(s->c->pool) == 0 && s->c->rc == 0)
		s->at = l;
	if (of->kind == JV_TRUE || of->kind == JV_FALSE)
		return (of->kind == JV_TRUE) != inverted ? set_all(s) : set_none(s);
	if (of->kind != JV_OBJECT) {
		schema_fail(s, SL_EINVAL, of, NULL, "a schema must be an object or a boolean");
		return set_none(s);
	}
	if (of->note[inverted] == &being_made && s->empty_level > 0) {
		s->blocked = true;
		return set_all(s);
	}
	if (of->note[inverted] == &being_made || s->level >= SCHEMA_MAX_LEVELS) {
		schema_fail(s, SL_EINVAL, of, NULL, "its references form a cycle");
		return set_none(s);
	}
	if (of->note[inverted] != NULL)
		return of->note[inverted];
	of->note[inverted] = (void *)(uintptr_t)&being_made;
	s->level++;
	const struct set *out = all_keywords(s, of, inverted);
	s->level--;
	of->note[inverted] = s->blocked ? NULL : (void *)(uintptr_t)out;
	return out != NULL ? out : set_none(s);
}

/* ---- type ---- */

static bool add_type(struct schema *s, struct set *out, struct proto_str name, bool inverted)
{
	static const char *const names[] = {"null", "boolean", "number", "integer", "string", "array", "object"};
	const struct set *all = set_all(s);
	size_t which = 0;
	while (which < 7 && !str_equal(name, (struct proto_str){names[which], strlen(names[which])}))
		which++;
	if (all == NULL)
		return true;
	switch (which) {
	case 0: out->null = true; break;
	case 1: out->yes = out->no = true; break;
	case 2:
		out->number = all->number;
		out->whole = false;
		break;
	case 3:
		if (out->number == RX_NONE) {
			/* 1.0 is an integer, so it belongs to no other number type. But it is not generated as an
			 * integer, because typed clients reject it. */
			out->number = decimal_whole(s->c, inverted && s->draft != DRAFT_4);
			out->whole = !inverted;
		}
		break;
	case 4: out->string = all->string; break;
	case 5: out->arrs = all->arrs, out->n_arrs = 1; break;
	case 6: out->objs = all->objs, out->n_objs = 1; break;
	default: return false;
	}
	return true;
}

/* All values of other types. The non-integers among numbers are plain numbers with a fraction. */
static struct set *other_types(struct schema *s, const struct set *a)
{
	struct set *out = set_all(s);
	if (out == NULL)
		return NULL;
	out->null = !a->null;
	out->yes = !a->yes;
	out->no = !a->no;
	if (a->number == con_any_number(s->c))
		out->number = RX_NONE;
	else if (a->number != RX_NONE)
		out->number = con_minus(s->c, decimal_plain(s->c), a->number);
	if (a->string.lang != RX_NONE)
		out->string = (struct strings){0};
	out->n_arrs = a->n_arrs > 0 ? 0 : out->n_arrs;
	out->n_objs = a->n_objs > 0 ? 0 : out->n_objs;
	return out;
}

struct set *keyword_type(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *v = jv_get(of, "type");
	struct set *out = set_none(s);
	if (v == NULL || out == NULL)
		return NULL;
	bool known = v->kind == JV_STRING ? add_type(s, out, v->text, inverted) : v->kind == JV_ARRAY;
	for (size_t i = 0; v->kind == JV_ARRAY && i < v->n; i++)
		known = v->items[i]->kind == JV_STRING && add_type(s, out, v->items[i]->text, inverted) && known;
	if (!known)
		schema_fail(s, SL_EINVAL, of, "type", "must be a type or a list of types");
	if (!s->standard && jv_is(jv_get(of, "nullable"), JV_TRUE))
		out->null = true;
	return inverted ? other_types(s, out) : out;
}

/* ---- const and enum ---- */

static struct jv *make(struct schema *s, enum jv_kind kind, size_t n)
{
	struct jv *v = con_alloc(s->c, 1, sizeof *v);
	if (v == NULL)
		return NULL;
	v->kind = kind;
	v->members = kind == JV_OBJECT ? con_alloc(s->c, n, sizeof *v->members) : NULL;
	v->items = kind == JV_ARRAY ? con_alloc(s->c, n, sizeof(struct jv *)) : NULL;
	return v->members == NULL && v->items == NULL && n > 0 ? NULL : v;
}

static void put(struct jv *o, const char *key, const struct jv *value)
{
	if (o != NULL && value != NULL)
		o->members[o->n++] = (struct jv_member){{key, strlen(key)}, (struct jv *)(uintptr_t)value};
}

static struct jv *of_text(struct schema *s, enum jv_kind kind, struct proto_str text)
{
	struct jv *v = make(s, kind, 0);
	if (v != NULL)
		v->text = text;
	return v;
}

static struct jv *count_of(struct schema *s, size_t n)
{
	char *text = con_alloc(s->c, 24, 1);
	struct proto_str digits = {text, 0};
	char turned[24];
	size_t len = 0;
	do
		turned[len++] = (char)('0' + n % 10);
	while ((n /= 10) > 0);
	while (text != NULL && len > 0)
		text[digits.n++] = turned[--len];
	return of_text(s, JV_NUMBER, digits);
}

/* {"const": v} */
static struct jv *equal_to(struct schema *s, const struct jv *v)
{
	struct jv *o = make(s, JV_OBJECT, 1);
	put(o, "const", v);
	return o;
}

/* The schema that only an object with exactly these members satisfies. */
static const struct jv *exact_object(struct schema *s, const struct jv *v)
{
	struct jv *o = make(s, JV_OBJECT, 4), *properties = make(s, JV_OBJECT, v->n),
		  *required = make(s, JV_ARRAY, v->n);
	if (o == NULL || properties == NULL || required == NULL)
		return s->never;
	for (size_t i = 0; i < v->n; i++) {
		properties->members[properties->n++] =
		    (struct jv_member){v->members[i].key, equal_to(s, v->members[i].value)};
		required->items[required->n++] = of_text(s, JV_STRING, v->members[i].key);
	}
	put(o, "type", of_text(s, JV_STRING, (struct proto_str){"object", 6}));
	put(o, "properties", properties);
	put(o, "required", required);
	put(o, "additionalProperties", s->never);
	return o;
}

static const struct jv *exact_array(struct schema *s, const struct jv *v)
{
	struct jv *o = make(s, JV_OBJECT, 4), *prefix = make(s, JV_ARRAY, v->n);
	if (o == NULL || prefix == NULL)
		return s->never;
	for (size_t i = 0; i < v->n; i++)
		prefix->items[prefix->n++] = equal_to(s, v->items[i]);
	put(o, "type", of_text(s, JV_STRING, (struct proto_str){"array", 5}));
	put(o, "prefixItems", prefix);
	put(o, "items", s->never);
	put(o, "minItems", count_of(s, v->n));
	return o;
}

static bool add_number(struct schema *s, struct set *out, const struct jv *v)
{
	struct decimal d;
	if (!decimal_read(s->c, v->text, &d))
		return false;
	out->number = decimal_equal(s->c, &d);
	return true;
}

static void add_word(struct schema *s, struct set *out, const struct jv *v)
{
	struct proto_str *word = con_alloc(s->c, 1, sizeof *word);
	if (word == NULL)
		return;
	*word = v->text;
	out->string = (struct strings){rx_literal(s->c->pool, v->text.at, v->text.n), 0, NO_MOST, true, word, 1};
}

/* Exactly one value, or all others. */
static const struct set *one_value(struct schema *s, const struct jv *v, bool inverted)
{
	struct set *out = inverted ? set_all(s) : set_none(s), *one = set_none(s);
	if (out == NULL || one == NULL)
		return NULL;
	switch (v->kind) {
	case JV_NULL: out->null = !inverted; break;
	case JV_TRUE: out->yes = !inverted; break;
	case JV_FALSE: out->no = !inverted; break;
	case JV_NUMBER:
		if (!add_number(s, one, v))
			break;
		out->number = inverted ? con_minus(s->c, decimal_plain(s->c), one->number) : one->number;
		break;
	case JV_STRING:
		add_word(s, one, v);
		if (inverted)
			out->string.lang = con_minus(s->c, con_any_text(s->c), one->string.lang);
		else
			out->string = one->string;
		break;
	case JV_ARRAY: return schema_set(s, lit_of(exact_array(s, v), inverted));
	case JV_OBJECT: return schema_set(s, lit_of(exact_object(s, v), inverted));
	}
	return out;
}

struct set *keyword_const(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *v = jv_get(of, "const");
	if (v == NULL)
		return NULL;
	return set_or(s, set_none(s), one_value(s, v, inverted));
}

/* All strings of an enumeration at once: pairwise unions would be quadratic. */
static void add_words(struct schema *s, struct set *out, const struct jv *v, bool inverted)
{
	struct proto_str *words = con_alloc(s->c, v->n + 1, sizeof *words);
	size_t n = 0;
	for (size_t i = 0; words != NULL && i < v->n; i++)
		if (v->items[i]->kind == JV_STRING)
			words[n++] = v->items[i]->text;
	if (n == 0)
		return;
	rx lang = schema_words(s, words, n);
	if (inverted)
		out->string.lang = con_minus(s->c, con_any_text(s->c), lang);
	else
		out->string = (struct strings){lang, 0, NO_MOST, true, words, n};
}

struct set *keyword_enum(struct schema *s, const struct jv *of, bool inverted)
{
	const struct jv *v = jv_get(of, "enum");
	struct set *out = inverted ? set_all(s) : set_none(s);
	if (v == NULL || out == NULL)
		return NULL;
	if (v->kind != JV_ARRAY) {
		schema_fail(s, SL_EINVAL, of, "enum", "must be an array");
		return NULL;
	}
	add_words(s, out, v, inverted);
	for (size_t i = 0; i < v->n && con_step(s->c, 1); i++)
		if (v->items[i]->kind != JV_STRING)
			out = inverted ? set_and(s, out, one_value(s, v->items[i], true))
				       : set_or(s, out, one_value(s, v->items[i], false));
	return out;
}
