/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON Schema (2020-12, and what drafts 4 to 2019-09 add) to rules.
 *
 * A literal is a schema or its complement. A goal is a set of literals: the values that satisfy all of them; each goal
 * becomes one rule. For that, its literals are evaluated to sets: the permitted values of each type. Values inside
 * arrays and objects are goals again, evaluated on demand, so recursion ends. Null, booleans, numbers and strings are
 * languages, closed under intersection and complement. Arrays and objects are unions of shapes; a shape is a
 * conjunction of constraints. So allOf is an intersection and anyOf a union. oneOf and not use complements, which are
 * exact: the complement of a shape's constraint is a union of shapes.
 *
 * An unsupported keyword is refused: the error has its JSON pointer and the reason.
 *
 *   schema.c           entry, errors, names, goals            schema_ref.c      $ref, $id, $anchor
 *   schema_keyword.c   the table of keywords; type, enum      schema_logic.c    allOf, anyOf, oneOf, not, if
 *   schema_scalar.c    numbers and strings                    schema_format.c   format
 *   schema_set.c       sets: union, intersection, emptiness
 *   schema_object.c    keywords of objects                    emit_object.c     their rules
 *   schema_array.c     keywords of arrays                     emit_array.c      their rules
 */
#ifndef ENGINE_CONSTRAINT_SCHEMA_H
#define ENGINE_CONSTRAINT_SCHEMA_H

#include "engine/constraint/con.h"
#include "engine/constraint/json_tree.h"

enum {
	SCHEMA_MAX_SHAPES = 1024,   /* of one set */
	SCHEMA_MAX_REGIONS = 64,    /* of the names of one shape */
	SCHEMA_MAX_LEVELS = 400,    /* of references, allOf and such without progress */
	SCHEMA_EMPTY_STATES = 2000, /* derivatives to prove that a language has no string */
	SCHEMA_EMPTY_LEVELS = 12,   /* levels of values examined for emptiness */
};
#define NO_MOST UINT32_MAX

enum schema_draft { DRAFT_4 = 4, DRAFT_6 = 6, DRAFT_7 = 7, DRAFT_2019 = 2019, DRAFT_2020 = 2020 };

/* A schema or (lowest bit set) its complement. */
typedef uintptr_t lit;
static inline lit lit_of(const struct jv *s, bool inverted)
{
	return (uintptr_t)(s->same != NULL ? s->same : s) | inverted;
}
static inline const struct jv *lit_schema(lit l) { return (const struct jv *)(l & ~(uintptr_t)1); }
static inline bool lit_inverted(lit l) { return l & 1; }

struct lits {
	lit *of; /* sorted, each once */
	size_t n;
};

struct goal {
	struct lits lits;
	struct set *set; /* NULL: not evaluated yet */
	struct rules_sym sym;
	struct goal *next; /* of the same hash */
	uint8_t empty;     /* enum emptiness */
	bool has_sym, evaluating;
};

/* ---- shapes ---- */

struct named {
	uint32_t name;
	lit value;
};

/* The keywords of one schema that apply to all members together: properties, patternProperties, additionalProperties.
 * Or, with covers, unevaluatedProperties: rest is for names that none of its groups cover. */
struct pattern {
	rx names;
	lit value;
};
struct group {
	const struct named *properties;
	const struct pattern *patterns;
	size_t n_properties, n_patterns;
	bool has_rest;
	lit rest;
	const struct group *const *covers;
	size_t n_covers;
	uint32_t *index; /* properties by name; n_index is a power of two */
	size_t n_index;
};

/* At least one member with a name in `names` has a value in `value`. */
struct some {
	rx names;
	lit value;
};

struct obj {
	const struct group **groups;
	struct named *named; /* further constraints on members that have these names */
	uint32_t *required;  /* sorted, each once */
	struct some *somes;
	size_t n_groups, n_named, n_required, n_somes;
	rx names; /* of all members */
	uint32_t least, most;
};

/* prefixItems and items of one schema. */
struct tuple {
	const lit *prefix;
	size_t n_prefix;
	bool has_rest;
	lit rest;
};

struct held { /* contains: of the items from index `from` on, between least and most are in value */
	lit value;
	uint32_t from, least, most;
};

struct placed { /* the item at an index, if there is one */
	uint32_t at;
	lit value;
};

struct arr {
	const struct tuple **tuples;
	struct held *held;
	struct placed *placed;
	size_t n_tuples, n_held, n_placed;
	uint32_t least, most;
	bool unique;
};

/* ---- sets ---- */

struct strings {
	rx lang;              /* of their text; RX_NONE: no strings */
	uint32_t least, most; /* length limits besides, in characters; 0 to NO_MOST where strings are listed */
	bool listed;
	const struct proto_str *words; /* all strings, where listed */
	size_t n_words;
};

struct set {
	bool null, yes, no;
	bool whole; /* numbers: a type of integer is among the constraints */
	rx number;
	struct strings string;
	const struct arr **arrs;
	const struct obj **objs;
	size_t n_arrs, n_objs;
};

struct resource {
	struct proto_str uri; /* without fragment */
	const struct jv *at;
};

struct schema {
	struct con *c;
	struct jv *root;
	lit at;                          /* the schema being translated: an error about a limit names it */
	const struct jv *always, *never; /* the schemas true and false */
	enum schema_draft draft;
	bool standard;  /* it has $schema, so OpenAPI's keywords have no meaning */
	bool any_order; /* of members: see emit_object.c */
	size_t n_free;  /* alternatives that it has cost so far */
	struct proto_str *names;
	uint32_t n_names, *name_index;
	size_t cap_names, n_name_index;
	struct goal **goals, **queue;
	size_t n_goals, n_goal_slots, n_queue, cap_queue;
	struct resource *resources;
	size_t n_resources, cap_resources;
	uint32_t *seen; /* by name: the last list that had it */
	size_t n_seen;
	uint32_t n_lists;
	unsigned level, empty_level;
	bool blocked; /* an examination met a set under construction: its result is not kept */
	const struct arr *any_arr;
	const struct obj *any_obj;
	rx any_name;
};

/* ---- schema.c ---- */

/* "#/pointer/keyword: …"; keyword may be NULL. */
void schema_fail(struct schema *s, int code, const struct jv *at, const char *keyword, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
uint32_t schema_name(struct schema *s, struct proto_str text);         /* equal texts have equal numbers */
struct goal *schema_goal(struct schema *s, const lit *lits, size_t n); /* sorts a copy */
struct rules_sym schema_symbol(struct schema *s, struct goal *g);
bool lits_have(struct lits l, lit of);
/* A keyword's value as a whole number, at most NO_MOST - 1 (larger ones become that). False: absent, or a fault. */
bool schema_count(struct schema *s, const struct jv *of, const char *keyword, uint32_t *out);
rx schema_words(struct schema *s, const struct proto_str *words, size_t n); /* any of them */
bool schema_matches(struct schema *s, rx lang, struct proto_str text);

/* ---- schema_ref.c ---- */

void schema_find_resources(struct schema *s);
/* NULL and a fault: no such value, or not in this document. */
const struct jv *schema_resolve(struct schema *s, const struct jv *at, const char *keyword, const struct jv *ref);

/* ---- schema_set.c ---- */

struct set *set_all(struct schema *s);
struct set *set_none(struct schema *s);
struct set *set_and(struct schema *s, const struct set *a, const struct set *b);
struct set *set_or(struct schema *s, const struct set *a, const struct set *b);
struct set *set_objects(struct schema *s, const struct obj *o); /* no other type */
struct set *set_arrays(struct schema *s, const struct arr *a);
rx strings_lang(struct schema *s, const struct strings *a); /* including their lengths */
bool set_is_none(struct schema *s, const struct set *a);    /* true: proven */
bool goal_is_none(struct schema *s, struct goal *g);
const struct set *goal_set(struct schema *s, struct goal *g);

/* ---- schema_keyword.c ---- */

const struct set *schema_set(struct schema *s, lit l);

/* Each returns the set that its keywords in `of` permit or, if inverted, exclude; NULL: `of` has none of its
 * keywords. */
typedef struct set *keyword_fn(struct schema *s, const struct jv *of, bool inverted);
keyword_fn keyword_type, keyword_const, keyword_enum;
keyword_fn keyword_ref, keyword_all_of, keyword_any_of, keyword_one_of, keyword_not, keyword_if;
keyword_fn keyword_minimum, keyword_maximum, keyword_exclusive_minimum, keyword_exclusive_maximum, keyword_multiple;
keyword_fn keyword_min_length, keyword_max_length, keyword_pattern, keyword_format;
keyword_fn keyword_properties, keyword_required, keyword_min_properties, keyword_max_properties, keyword_property_names;
keyword_fn keyword_dependencies;
keyword_fn keyword_items, keyword_min_items, keyword_max_items, keyword_contains, keyword_unique,
    keyword_unevaluated_items;

/* The strings that contain a match of a pattern; bytes: among byte strings, for intersection with text or for a
 * complement. */
const struct set *schema_unevaluated(struct schema *s, const struct jv *at, const struct set *of, bool inverted);
rx schema_pattern(struct schema *s, const struct jv *at, const char *keyword, struct proto_str pattern, bool bytes);
/* The strings of a format; false: unknown, so it is an annotation. */
bool schema_knows_format(struct proto_str name);
bool schema_format(struct schema *s, struct proto_str name, rx *out);

/* ---- shapes ---- */

struct obj *obj_new(struct schema *s);
/* NULL: no object is in both shapes. */
const struct obj *obj_and(struct schema *s, const struct obj *a, const struct obj *b);
bool obj_is_none(struct schema *s, const struct obj *o);
bool obj_within(struct schema *s, const struct obj *a, const struct obj *b); /* does a have every constraint of b? */
const struct group *schema_group(struct schema *s, const struct jv *of);
/* The goal of the member with a name; NULL after a fault. */
struct goal *obj_member(struct schema *s, const struct obj *o, uint32_t name);
struct arr *arr_new(struct schema *s);
const struct arr *arr_and(struct schema *s, const struct arr *a, const struct arr *b);
bool arr_is_none(struct schema *s, const struct arr *a);
bool arr_equal(const struct arr *a, const struct arr *b);
/* The goal of the item at an index, with additional constraints. */
struct goal *arr_item(struct schema *s, const struct arr *a, uint32_t at, const lit *more, size_t n_more);
uint32_t arr_prefix(const struct arr *a); /* from this index on all items have one goal, except for `contains` */

/* ---- emit_*.c: alternatives of a rule ---- */

void emit_goal(struct schema *s, struct goal *g);
void emit_object(struct schema *s, struct rules_sym to, const struct obj *o);
/* Members as literals and texts (con_tags): of all objects in a goal; the value of one. */
struct rules_sym emit_tagged(struct schema *s, struct goal *g, const struct con_tags *tags);
struct rules_sym emit_tagged_value(struct schema *s, struct goal *g, const struct con_tags *tags);
void emit_array(struct schema *s, struct rules_sym to, const struct arr *a);
/* The text of a JSON string, shortest spelling, with its quotes; strings with characters beyond ASCII in any. */
rx emit_string(struct schema *s, struct proto_str text);

#endif
