/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter's memory (blocks that are released together) and the jump that ends a failed pass.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "engine/jinja/jinja.h"

int jinja_catch(struct jescape *e, void (*work)(void *), void *arg)
{
	if (setjmp(e->to) != 0)
		return e->code;
	work(arg);
	return 0;
}

void jinja_fail(struct jescape *e, int code, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	e->code = sl_errf(e->err, code, "%s", text);
	longjmp(e->to, 1);
}

struct jarena_block {
	struct jarena_block *next;
	_Alignas(16) char mem[];
};

enum { BLOCK = 16 << 10 };

void jarena_init(struct jarena *a, size_t max) { *a = (struct jarena){.max = max}; }

void jarena_dispose(struct jarena *a)
{
	while (a->blocks != NULL) {
		struct jarena_block *next = a->blocks->next;
		sl_free(a->blocks);
		a->blocks = next;
	}
	*a = (struct jarena){.max = a->max};
}

void *jarena_alloc(struct jarena *a, size_t n)
{
	if (n > a->max) {
		a->full = true;
		return NULL;
	}
	n = (n + 15) & ~(size_t)15;
	if (a->cap - a->used < n) {
		size_t cap = n > BLOCK ? n : BLOCK;
		if (a->total + cap > a->max) {
			a->full = true;
			return NULL;
		}
		struct jarena_block *block = sl_alloc(sizeof(*block) + cap);
		if (block == NULL)
			return NULL;
		block->next = a->blocks;
		a->blocks = block;
		a->total += cap;
		a->used = 0;
		a->cap = cap;
	}
	char *at = a->blocks->mem + a->used;
	a->used += n;
	return memset(at, 0, n);
}
