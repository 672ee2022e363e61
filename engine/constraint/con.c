/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/constraint/con.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { BLOCK_BYTES = 64 << 10, ALIGN = 16 };

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
