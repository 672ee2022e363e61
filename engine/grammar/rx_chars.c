/* SPDX-License-Identifier: Apache-2.0
 *
 * Characters as their bytes in UTF-8 (RFC 3629). A range of code points is split into ranges whose encodings are
 * products of byte ranges, as in the compilers of RE2 and Rust's regex.
 */
#include "engine/grammar/rx_priv.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/utf8.h"

enum { LAST = 0x10FFFF, SURROGATES = 0xD800, AFTER_SURROGATES = 0xE000 };

static rx byte_range(struct rx_pool *p, unsigned from, unsigned to)
{
	struct rx_set s = {{0}};
	set_add_range(&s, from, to);
	return rx_bytes(p, &s);
}

/* Pushes the alternatives of from..to, which all have encodings of n bytes. */
static bool push_products(struct rx_pool *p, uint32_t from, uint32_t to, int n)
{
	for (int k = 1; k < n; k++) {
		uint32_t low = ((uint32_t)1 << (6 * k)) - 1;
		if ((from & ~low) == (to & ~low))
			continue;
		if ((from & low) != 0)
			return push_products(p, from, from | low, n) && push_products(p, (from | low) + 1, to, n);
		if ((to & low) != low)
			return push_products(p, from, (to & ~low) - 1, n) && push_products(p, to & ~low, to, n);
	}
	uint8_t a[4], b[4];
	utf8_encode(from, a);
	utf8_encode(to, b);
	rx r = RX_EPS;
	for (int i = n; i-- > 0;)
		r = rx_cat(p, byte_range(p, a[i], b[i]), r);
	return rx_push(p, rx_mark(p, r, r == RX_NONE ? 0 : RX_UTF8));
}

static bool push_range(struct rx_pool *p, uint32_t from, uint32_t to)
{
	static const uint32_t last[] = {0x7F, 0x7FF, SURROGATES - 1, 0xFFFF, LAST};
	static const uint32_t first[] = {0, 0x80, 0x800, AFTER_SURROGATES, 0x10000};
	static const int length[] = {1, 2, 3, 3, 4};
	for (int i = 0; i < 5; i++) {
		uint32_t a = from > first[i] ? from : first[i], b = to < last[i] ? to : last[i];
		if (a <= b && !push_products(p, a, b, length[i]))
			return false;
	}
	return true;
}

/* The union of the scratch stack from base on. */
static rx take(struct rx_pool *p, size_t base)
{
	size_t n = p->n_scratch - base;
	rx *of = sl_alloc(n * sizeof(*of) + 1);
	if (of == NULL)
		return rx_fail(p, SL_ENOMEM);
	for (size_t i = 0; i < n; i++)
		of[i] = p->scratch[base + i];
	p->n_scratch = base;
	rx r = rx_or_n(p, of, n);
	sl_free(of);
	return r;
}

rx rx_chars(struct rx_pool *p, const struct rx_range *ranges, size_t n)
{
	size_t base = p->n_scratch;
	for (size_t i = 0; i < n; i++)
		if (!push_range(p, ranges[i].from, ranges[i].to))
			return RX_NONE;
	return take(p, base);
}

static int by_from(const void *x, const void *y)
{
	const struct rx_range *a = x, *b = y;
	return a->from < b->from ? -1 : a->from > b->from;
}

rx rx_chars_except(struct rx_pool *p, const struct rx_range *ranges, size_t n)
{
	struct rx_range *sorted = sl_alloc(n * sizeof(*sorted) + 1);
	if (sorted == NULL)
		return rx_fail(p, SL_ENOMEM);
	for (size_t i = 0; i < n; i++)
		sorted[i] = ranges[i];
	qsort(sorted, n, sizeof(*sorted), by_from);
	size_t base = p->n_scratch;
	uint32_t next = 0;
	bool ok = true;
	for (size_t i = 0; i < n && ok; i++) {
		if (sorted[i].from > next && sorted[i].from <= sorted[i].to)
			ok = push_range(p, next, sorted[i].from - 1);
		if (sorted[i].to >= next && sorted[i].from <= sorted[i].to)
			next = sorted[i].to == UINT32_MAX ? UINT32_MAX : sorted[i].to + 1;
	}
	ok = ok && (next > LAST || push_range(p, next, LAST));
	sl_free(sorted);
	rx r = ok ? take(p, base) : RX_NONE;
	if (n == 0)
		p->any_char = r;
	return r;
}
