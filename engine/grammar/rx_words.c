/* SPDX-License-Identifier: Apache-2.0
 *
 * The union of many words. It is made like a trie, from the leaves, so a node costs one small union, and words that
 * share beginnings or ends share nodes; rx_or_n would first intern every word whole.
 */
#include "engine/grammar/rx_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/proto/proto.h"

/* A union nests as deep as words share a beginning. */
enum { MAX_SHARED = 256 };

static int by_bytes(const void *x, const void *y)
{
	const struct proto_str *a = x, *b = y;
	int c = memcmp(a->at, b->at, a->n < b->n ? a->n : b->n);
	return c != 0 ? c : a->n < b->n ? -1 : a->n > b->n;
}

/* The words without their first `skip` bytes, one by one. */
static rx as_list(struct rx_pool *p, const struct proto_str *words, size_t n, size_t skip)
{
	size_t base = p->n_scratch;
	for (size_t i = 0; i < n; i++)
		if (!rx_push(p, rx_literal(p, words[i].at + skip, words[i].n - skip)))
			return RX_NONE;
	return rx_or_top(p, base);
}

/* The words, which are sorted and share their first `skip` bytes, without these. */
static rx below(struct rx_pool *p, const struct proto_str *words, size_t n, size_t skip)
{
	size_t base = p->n_scratch, i = 0;
	if (n == 1 || skip == MAX_SHARED)
		return as_list(p, words, n, skip);
	for (; i < n && words[i].n == skip; i++)
		if (i == 0 && !rx_push(p, RX_EPS))
			return RX_NONE;
	for (size_t end; i < n; i = end) {
		for (end = i + 1; end < n && words[end].at[skip] == words[i].at[skip];)
			end++;
		rx tail = below(p, words + i, end - i, skip + 1);
		if (!rx_push(p, rx_cat(p, rx_literal(p, words[i].at + skip, 1), tail)))
			return RX_NONE;
	}
	return rx_or_top(p, base);
}

rx rx_words(struct rx_pool *p, struct proto_str *words, size_t n)
{
	if (n == 0 || p->fault != 0)
		return RX_NONE;
	qsort(words, n, sizeof *words, by_bytes);
	return below(p, words, n, 0);
}
