/* SPDX-License-Identifier: Apache-2.0
 *
 * The common form of GBNF and Lark grammars: one tree per rule. A rule that does not refer back to itself is a regular
 * language and becomes one terminal; the others become rules.
 */
#ifndef ENGINE_CONSTRAINT_EBNF_H
#define ENGINE_CONSTRAINT_EBNF_H

#include "engine/constraint/con.h"

enum ebnf_kind { EBNF_RX, EBNF_REF, EBNF_SEQ, EBNF_ALT, EBNF_REPEAT };

struct ebnf_node {
	enum ebnf_kind kind;
	rx of;         /* EBNF_RX */
	uint32_t rule; /* EBNF_REF */
	struct ebnf_node **kids;
	size_t n, cap;
	uint32_t least, most; /* EBNF_REPEAT of kids[0] */
};

struct ebnf_rule {
	struct proto_str name;
	struct ebnf_node *body; /* NULL: not defined yet */
	size_t at;              /* the offset of its first mention */
	bool terminal;          /* Lark: nothing is ignored inside it */
	uint8_t state;          /* of ebnf.c */
	bool has_sym;
	rx lang;
	struct rules_sym sym;
};

struct ebnf {
	struct con *c;
	const char *text;
	size_t n, at;
	struct ebnf_rule *rules;
	uint32_t n_rules;
	size_t cap_rules, depth;
	rx ignored; /* may follow any terminal of a rule; RX_NONE: nothing is ignored */
	uint32_t *index;
	size_t n_index;
};

struct ebnf_node *ebnf_node(struct ebnf *g, enum ebnf_kind kind);
struct ebnf_node *ebnf_rx(struct ebnf *g, rx of);
void ebnf_add(struct ebnf *g, struct ebnf_node *to, struct ebnf_node *kid);
struct ebnf_node *ebnf_repeat(struct ebnf *g, struct ebnf_node *kid, uint32_t least, uint32_t most);
/* The rule of a name; created if it is new. */
uint32_t ebnf_rule(struct ebnf *g, struct proto_str name, size_t at);
/* "LINE:COLUMN: …" */
void ebnf_fail(struct ebnf *g, int code, size_t at, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* A number up to 1,000,000; false: no digits, or a fault. */
bool ebnf_number(struct ebnf *g, uint32_t *out);
/* The character of n hexadecimal digits, for escapes; 0: a fault. */
uint32_t ebnf_hex(struct ebnf *g, size_t n);
/* The language of a node, without ignored text; a fault if it refers back to itself. */
rx ebnf_terminal(struct ebnf *g, const struct ebnf_node *n);
/* Writes the rules; the one of this name is the start. */
void ebnf_write(struct ebnf *g, const char *start);

#endif
