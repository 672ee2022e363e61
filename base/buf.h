/* SPDX-License-Identifier: Apache-2.0
 *
 * A growing byte buffer with a bound. Bytes are appended at the end and consumed at the front;
 * consuming moves no memory until room is needed. Appending past the bound fails with SL_ELIMIT
 * and appends nothing.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sl_buf {
	uint8_t *mem; /* owned */
	uint32_t off; /* first byte not consumed */
	uint32_t len; /* bytes from off */
	uint32_t cap; /* bytes at mem */
	uint32_t max; /* bound on len */
};

/* Every open stream has several buffers, so the struct is small. No buffer holds more than this. */
#define BUF_MOST ((size_t)1 << 30)

/* max is capped at BUF_MOST. */
void buf_init(struct sl_buf *b, size_t max);
void buf_dispose(struct sl_buf *b);
/* Frees memory that the content does not need. May move the content. */
void buf_trim(struct sl_buf *b);
/* Empties the buffer. Frees its memory if it exceeds keep_bytes. */
void buf_clear(struct sl_buf *b, size_t keep_bytes);

static inline uint8_t *buf_data(const struct sl_buf *b) { return b->mem == NULL ? NULL : b->mem + b->off; }

/* Reserves n bytes at the end, at *out. buf_commit adds them to the content. 0, SL_ELIMIT or SL_ENOMEM. */
int buf_reserve(struct sl_buf *b, size_t n, uint8_t **out);
void buf_commit(struct sl_buf *b, size_t n);
int buf_append_slow(struct sl_buf *b, const void *data, size_t n);

/* An event or frame takes about fifty appends, nearly all of constant length with room available: then an append is a
 * comparison and a store. */
static inline int buf_append(struct sl_buf *b, const void *data, size_t n)
{
	if (b->mem == NULL || n > b->cap - b->off - b->len || n > b->max - b->len)
		return buf_append_slow(b, data, n);
	if (n > 0)
		memcpy(b->mem + b->off + b->len, data, n);
	b->len += (uint32_t)n;
	return 0;
}

static inline int buf_append_str(struct sl_buf *b, const char *s) { return buf_append(b, s, strlen(s)); }

int buf_append_uint(struct sl_buf *b, uint64_t v); /* in decimal digits */
int buf_printf(struct sl_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_consume(struct sl_buf *b, size_t n);
/* Keeps the first n bytes. The content has at least n. */
void buf_cut(struct sl_buf *b, size_t n);
/* A terminating NUL after the content (not counted in len); NULL on exhaustion. */
const char *buf_cstr(struct sl_buf *b);

#endif
