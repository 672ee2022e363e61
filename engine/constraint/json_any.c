/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON that nothing constrains (RFC 8259), and the tokens between values. Blanks are bounded, so that a model cannot
 * emit blanks for ever: none, one space, or one line break with an indentation.
 */
#include "engine/constraint/con.h"

enum { MAX_SPACES = 64, MAX_TABS = 16 };

rx con_ws(struct con *c)
{
	if (c->ws != RX_NONE)
		return c->ws;
	struct rx_pool *p = c->pool;
	rx spaces = rx_repeat(p, con_text(c, " "), 0, MAX_SPACES), tabs = rx_repeat(p, con_text(c, "\t"), 0, MAX_TABS);
	rx line = rx_cat(p, con_optional(c, con_text(c, "\r")), con_text(c, "\n"));
	line = rx_cat(p, line, rx_or(p, spaces, tabs));
	c->ws = con_optional(c, rx_or(p, con_text(c, " "), line));
	return c->ws;
}

rx con_any_string(struct con *c)
{
	if (c->any_string == RX_NONE) {
		rx q = con_text(c, "\"");
		c->any_string = rx_cat(c->pool, rx_cat(c->pool, q, rx_json(c->pool, con_any_text(c))), q);
	}
	return c->any_string;
}

rx con_any_number(struct con *c)
{
	if (c->any_number != RX_NONE)
		return c->any_number;
	struct rx_pool *p = c->pool;
	rx digit = con_class(c, "0123456789"), digits = rx_repeat(p, digit, 1, RX_UNBOUNDED);
	rx whole = rx_or(p, con_text(c, "0"),
			 rx_cat(p, con_class(c, "123456789"), rx_repeat(p, digit, 0, RX_UNBOUNDED)));
	rx fraction = rx_cat(p, con_text(c, "."), digits);
	rx exponent = rx_cat(p, con_class(c, "eE"), rx_cat(p, con_optional(c, con_class(c, "+-")), digits));
	c->any_number = rx_cat(p, rx_cat(p, con_optional(c, con_text(c, "-")), whole),
			       rx_cat(p, con_optional(c, fraction), con_optional(c, exponent)));
	return c->any_number;
}

struct rules_sym con_open(struct con *c, char bracket)
{
	return rules_terminal(c->rules, rx_cat(c->pool, rx_literal(c->pool, &bracket, 1), con_ws(c)));
}

struct rules_sym con_close(struct con *c, char bracket)
{
	return rules_terminal(c->rules, rx_cat(c->pool, con_ws(c), rx_literal(c->pool, &bracket, 1)));
}

struct rules_sym con_comma(struct con *c)
{
	rx comma = rx_cat(c->pool, con_ws(c), rx_cat(c->pool, con_text(c, ","), con_ws(c)));
	return rules_terminal(c->rules, comma);
}

/* { … } or [ … ] of any number of items. */
static void add_container(struct con *c, struct rules_sym to, const char *brackets, struct rules_sym item)
{
	struct rules_sym comma = con_comma(c);
	struct rules_sym items = rules_repeat(c->rules, item, &comma, 1, 1, RX_UNBOUNDED);
	struct rules_sym full[] = {con_open(c, brackets[0]), items, con_close(c, brackets[1])};
	rx empty = rx_cat(c->pool, rx_literal(c->pool, brackets, 1),
			  rx_cat(c->pool, con_ws(c), rx_literal(c->pool, brackets + 1, 1)));
	struct rules_sym none = rules_terminal(c->rules, empty);
	rules_add(c->rules, to, full, 3);
	rules_add(c->rules, to, &none, 1);
}

static void make_any(struct con *c)
{
	struct rules *r = c->rules;
	struct rx_pool *p = c->pool;
	if (c->any_value.is_rule)
		return;
	c->any_value = rules_new(r);
	c->any_object = rules_new(r);
	c->any_array = rules_new(r);
	rx words = rx_or(p, con_text(c, "null"), rx_or(p, con_text(c, "true"), con_text(c, "false")));
	struct rules_sym scalar = rules_terminal(r, rx_or(p, words, rx_or(p, con_any_number(c), con_any_string(c))));
	rx colon = rx_cat(p, con_ws(c), rx_cat(p, con_text(c, ":"), con_ws(c)));
	struct rules_sym pair[] = {rules_terminal(r, rx_cat(p, con_any_string(c), colon)), c->any_value};
	rules_add(r, c->any_value, &scalar, 1);
	rules_add(r, c->any_value, &c->any_object, 1);
	rules_add(r, c->any_value, &c->any_array, 1);
	add_container(c, c->any_object, "{}", con_sequence(c, pair, 2));
	add_container(c, c->any_array, "[]", c->any_value);
}

struct rules_sym con_any_value(struct con *c)
{
	make_any(c);
	return c->any_value;
}

struct rules_sym con_any_object(struct con *c)
{
	make_any(c);
	return c->any_object;
}

struct rules_sym con_any_array(struct con *c)
{
	make_any(c);
	return c->any_array;
}

struct rules_sym con_document(struct con *c, struct rules_sym value)
{
	struct rules_sym blank = rules_terminal(c->rules, con_ws(c));
	struct rules_sym of[] = {blank, value, blank};
	return con_sequence(c, of, 3);
}
