/* SPDX-License-Identifier: Apache-2.0
 *
 * A JSON text as a tree in the memory of a translation. Unlike jansson's trees, it keeps the spelling of numbers
 * (bounds are decimal and may exceed any machine word), the order of members, and the position of each value.
 */
#ifndef ENGINE_CONSTRAINT_JSON_TREE_H
#define ENGINE_CONSTRAINT_JSON_TREE_H

#include "engine/constraint/con.h"

enum jv_kind { JV_NULL, JV_FALSE, JV_TRUE, JV_NUMBER, JV_STRING, JV_ARRAY, JV_OBJECT };

struct jv_member {
	struct proto_str key; /* decoded */
	struct jv *value;
};

struct jv {
	enum jv_kind kind;
	struct proto_str text; /* of strings, decoded; of numbers, as written */
	size_t n;              /* items or members */
	struct jv **items;
	struct jv_member *members;
	uint32_t *index; /* members by the hash of their keys, of objects with many; n_index is a power of two */
	size_t n_index;
	const struct jv *parent;
	const struct jv *same; /* after jv_unify: the first value with the same spelling; NULL before */
	uint64_t hash;
	size_t at;     /* the position in its parent */
	void *note[3]; /* for the schema reader: its sets, its group */
};

/* NULL after a fault: SL_EINVAL: malformed JSON or duplicate keys; SL_ELIMIT: nested too deep. */
struct jv *jv_parse(struct con *c, const char *text, size_t n);
/* The value of a key; NULL: none, or o is not an object. */
const struct jv *jv_get(const struct jv *o, const char *key);
const struct jv *jv_get_str(const struct jv *o, struct proto_str key);
bool jv_is(const struct jv *v, enum jv_kind kind); /* false for NULL */
bool jv_text_is(const struct jv *v, const char *text);
bool str_equal(struct proto_str a, struct proto_str b);
/* The JSON pointer (RFC 6901) of a value, truncated to room; "" is the root. */
const char *jv_pointer(const struct jv *v, char *out, size_t room);
/* The value at a decoded JSON pointer; NULL: none. */
const struct jv *jv_follow(const struct jv *root, struct proto_str pointer);
/* Sets `same` for values with the same spelling: the same members in the same order, numbers spelled alike. */
void jv_unify(struct con *c, struct jv *root);
/* Are they equal for JSON Schema: numbers by value, members in any order? Also false after a fault. */
bool jv_equal(struct con *c, const struct jv *a, const struct jv *b);

#endif
