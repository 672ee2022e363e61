/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/constraint/con.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { BLOCK_BYTES = 64 << 10, ALIGN = 16 };
enum { MAX_SPACES = 64, MAX_TABS = 16 };

struct con_block {
	struct con_block *next;
	size_t used, cap;
	_Alignas(ALIGN) unsigned char mem[];
};

void con_dispose(struct con *c)
{
	while (c->blocks != NULL) {
		struct con_block *b = c->blocks;
		c->blocks = b->next;
		sl_free(b);
	}
}

static struct con_block *new_block(struct con *c, size_t bytes)
{
	size_t cap = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
	if (c->bytes + cap > CON_MAX_BYTES) {
		con_fail(c, SL_ELIMIT, "the constraint needs too much memory to translate");
		return NULL;
	}
	struct con_block *b = sl_zalloc(sizeof *b + cap);
	if (b == NULL) {
		con_fail(c, SL_ENOMEM, "out of memory");
		return NULL;
	}
	*b = (struct con_block){.next = c->blocks, .cap = cap};
	c->bytes += cap;
	c->blocks = b;
	return b;
}

void *con_alloc(struct con *c, size_t n, size_t each)
{
	size_t bytes;
	if (__builtin_mul_overflow(n, each, &bytes) || bytes > CON_MAX_BYTES) {
		con_fail(c, SL_ELIMIT, "the constraint needs too much memory to translate");
		return NULL;
	}
	bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
	struct con_block *b = c->blocks;
	if (b == NULL || b->cap - b->used < bytes)
		b = new_block(c, bytes);
	if (b == NULL)
		return NULL;
	void *p = b->mem + b->used;
	b->used += bytes;
	return p;
}

void *con_grow(struct con *c, void *list, size_t n, size_t *cap, size_t each)
{
	if (n < *cap)
		return list;
	size_t more = *cap == 0 ? 4 : *cap * 2;
	void *p = con_alloc(c, more, each);
	if (p == NULL)
		return NULL;
	if (n > 0)
		memcpy(p, list, n * each);
	*cap = more;
	return p;
}

int con_fail(struct con *c, int code, const char *fmt, ...)
{
	if (c->rc != 0)
		return c->rc;
	char text[sizeof c->err->text];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	c->rc = code;
	sl_errf(c->err, code, "%s", text);
	return code;
}

bool con_step(struct con *c, size_t n)
{
	c->work += n;
	if (c->rc == 0 && c->work > c->max_work)
		con_fail(c, SL_ELIMIT, "the constraint takes too many steps to translate");
	if (c->rc == 0 && rules_fault(c->rules) == SL_ELIMIT)
		con_fail(c, SL_ELIMIT, "the constraint's grammar is too large");
	if (c->rc == 0 && rules_fault(c->rules) != 0)
		con_fail(c, SL_ENOMEM, "out of memory");
	return c->rc == 0;
}

rx con_any_char(struct con *c)
{
	if (c->any_char == RX_NONE)
		c->any_char = rx_chars_except(c->pool, NULL, 0);
	return c->any_char;
}

rx con_any_text(struct con *c)
{
	if (c->any_text == RX_NONE)
		c->any_text = rx_repeat(c->pool, con_any_char(c), 0, RX_UNBOUNDED);
	return c->any_text;
}

rx con_class(struct con *c, const char *bytes)
{
	struct rx_set set = {{0}};
	for (; *bytes != '\0'; bytes++)
		set.bits[(unsigned char)*bytes >> 6] |= (uint64_t)1 << (*bytes & 63);
	return rx_bytes(c->pool, &set);
}

rx con_text(struct con *c, const char *s) { return rx_literal(c->pool, s, strlen(s)); }

rx con_optional(struct con *c, rx a) { return rx_or(c->pool, RX_EPS, a); }

rx con_minus(struct con *c, rx a, rx b)
{
	if (a == RX_NONE || b == RX_NONE)
		return a;
	return rx_and(c->pool, a, rx_not(c->pool, b));
}

struct rules_sym con_sequence(struct con *c, const struct rules_sym *of, size_t n)
{
	struct rules_sym s = rules_new(c->rules);
	rules_add(c->rules, s, of, n);
	return s;
}

/* ---- any JSON (RFC 8259), and the tokens between values ---- */

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
	rx whole =
	    rx_or(p, con_text(c, "0"), rx_cat(p, con_class(c, "123456789"), rx_repeat(p, digit, 0, RX_UNBOUNDED)));
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
	struct rules_sym of[] = {value, rules_terminal(c->rules, con_ws(c))};
	return con_sequence(c, of, 2);
}
