/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/err.h"

enum { BUF_FIRST = 64 };

void buf_init(struct sl_buf *b, size_t max)
{
	*b = (struct sl_buf){.max = (uint32_t)(max < BUF_MOST ? max : BUF_MOST)};
}

void buf_dispose(struct sl_buf *b)
{
	sl_free(b->mem);
	*b = (struct sl_buf){.max = b->max};
}

void buf_clear(struct sl_buf *b, size_t keep_bytes)
{
	b->off = b->len = 0;
	if (b->cap > keep_bytes) {
		sl_free(b->mem);
		b->mem = NULL;
		b->cap = 0;
	}
}

void buf_trim(struct sl_buf *b)
{
	if (b->off > 0 || b->len == 0 || b->len == b->cap)
		return;
	uint8_t *mem = sl_realloc_n(b->mem, b->len, 1);
	if (mem == NULL)
		return;
	b->mem = mem;
	b->cap = b->len;
}

int buf_reserve(struct sl_buf *b, size_t n, uint8_t **out)
{
	size_t need;
	if (__builtin_add_overflow(b->len, n, &need) || need > b->max)
		return SL_ELIMIT;
	if (b->cap - b->off < need || b->mem == NULL) {
		/* Reclaim consumed bytes if that makes enough room and frees at least what it moves. */
		if (b->mem != NULL && b->off > 0 && b->cap >= need && b->off >= b->len) {
			memmove(b->mem, b->mem + b->off, b->len);
		} else {
			uint32_t cap = b->cap ? b->cap : BUF_FIRST; /* need is at most BUF_MOST + 1 */
			while (cap < need)
				cap *= 2;
			uint8_t *mem = sl_alloc(cap);
			if (mem == NULL)
				return SL_ENOMEM;
			if (b->mem != NULL)
				memcpy(mem, b->mem + b->off, b->len);
			sl_free(b->mem);
			b->mem = mem;
			b->cap = cap;
		}
		b->off = 0;
	}
	*out = b->mem + b->off + b->len;
	return 0;
}

void buf_commit(struct sl_buf *b, size_t n)
{
	BUG_IF(n > b->cap - b->off - b->len, "buf_commit: %zu bytes were never reserved", n);
	b->len += (uint32_t)n;
}

int buf_append_slow(struct sl_buf *b, const void *data, size_t n)
{
	uint8_t *at;
	int rc = buf_reserve(b, n, &at);
	if (rc != 0)
		return rc;
	if (n > 0)
		memcpy(at, data, n);
	b->len += (uint32_t)n;
	return 0;
}

int buf_append_uint(struct sl_buf *b, uint64_t v)
{
	char digits[20];
	size_t at = sizeof digits;
	do
		digits[--at] = (char)('0' + v % 10);
	while ((v /= 10) > 0);
	return buf_append(b, digits + at, sizeof digits - at);
}

int buf_printf(struct sl_buf *b, const char *fmt, ...)
{
	va_list ap, again;
	size_t room = b->mem != NULL ? b->cap - b->off - b->len : 0;
	uint8_t *at = room > 0 ? b->mem + b->off + b->len : NULL;
	va_start(ap, fmt);
	va_copy(again, ap);
	/* There usually is room. Uncommitted bytes are harmless. */
	int n = vsnprintf((char *)at, room, fmt, ap);
	va_end(ap);
	int rc = n < 0 ? SL_EINVAL : buf_reserve(b, (size_t)n + 1, &at);
	if (rc == 0 && (size_t)n >= room)
		vsnprintf((char *)at, (size_t)n + 1, fmt, again);
	if (rc == 0)
		b->len += (uint32_t)n;
	va_end(again);
	return rc;
}

void buf_consume(struct sl_buf *b, size_t n)
{
	BUG_IF(n > b->len, "buf_consume: %zu of %u bytes", n, b->len);
	b->off += (uint32_t)n;
	b->len -= (uint32_t)n;
	if (b->len == 0)
		b->off = 0;
}

void buf_cut(struct sl_buf *b, size_t n)
{
	BUG_IF(n > b->len, "buf_cut: %zu of %u bytes", n, b->len);
	b->len = (uint32_t)n;
}

const char *buf_cstr(struct sl_buf *b)
{
	uint8_t *at;
	uint32_t max = b->max;
	b->max = max + 1;
	int rc = buf_reserve(b, 1, &at);
	b->max = max;
	if (rc != 0)
		return NULL;
	*at = '\0';
	return (const char *)buf_data(b);
}
