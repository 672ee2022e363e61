/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs of tokens in a chained hash table over positions: a token costs one entry; a look-up walks along equal pairs,
 * youngest first, until the third token matches too. A text that repeats one pair makes long chains, so the walk is
 * bounded; then the youngest pair is used.
 *
 * The text's own last pair is not in the index: nothing follows it yet. Where the text runs into its own end while it
 * is copied (a loop shorter than the draft), the copy continues with what was drafted.
 *
 * Owned by one sequence, one thread. Out of memory, there is no index and no draft, with no other effect.
 */
#include "engine/sched/ngram.h"

#include "base/alloc.h"
#include "base/err.h"

enum { WALK = 32, FIRST = 256 };

static uint32_t slot_of(const struct ngram *g, const int32_t *end)
{
	uint64_t pair = (uint64_t)(uint32_t)end[-1] << 32 | (uint32_t)end[0];
	return (uint32_t)(pair * 0x9E3779B97F4A7C15ull >> 32) & (g->n_heads - 1);
}

void ngram_dispose(struct ngram *g)
{
	sl_free(g->heads);
	sl_free(g->before);
	*g = (struct ngram){0};
}

/* Makes room for n tokens. Entries must be added again. */
static int grow(struct ngram *g, uint32_t n)
{
	uint32_t cap = g->cap > 0 ? g->cap : FIRST;
	while (cap < n) {
		if (__builtin_mul_overflow(cap, 2u, &cap))
			return SL_ELIMIT;
	}
	struct ngram bigger = {.heads = sl_zalloc_n(cap, sizeof *bigger.heads),
			       .before = sl_zalloc_n(cap, sizeof *bigger.before),
			       .n_heads = cap,
			       .cap = cap};
	ngram_dispose(g);
	if (bigger.heads == NULL || bigger.before == NULL) {
		ngram_dispose(&bigger);
		return SL_ENOMEM;
	}
	*g = bigger;
	return 0;
}

/* All pairs that something follows. */
static int add(struct ngram *g, const int32_t *tokens, uint32_t n)
{
	BUG_IF(n < g->n, "n-grams of a text that became shorter");
	if (n > g->cap) {
		int rc = grow(g, n);
		if (rc != 0)
			return rc;
	}
	for (uint32_t end = g->n > 1 ? g->n - 1 : 1; end + 1 < n; end++) {
		uint32_t *head = &g->heads[slot_of(g, tokens + end)];
		g->before[end] = *head;
		*head = end + 1;
	}
	g->n = n;
	return 0;
}

/* The end of the pair whose text may continue tokens[n]; 0: none. */
static uint32_t find(const struct ngram *g, const int32_t *tokens, uint32_t n)
{
	const int32_t *last = tokens + n - 1;
	uint32_t pair = 0, at = g->heads[slot_of(g, last)];
	for (int i = 0; i < WALK && at > 0; i++, at = g->before[at - 1]) {
		const int32_t *end = tokens + at - 1;
		if (end[0] != last[0] || end[-1] != last[-1])
			continue;
		if (at >= 3 && end[-2] == last[-2])
			return at - 1;
		pair = pair > 0 ? pair : at - 1;
	}
	return pair;
}

uint32_t ngram_draft(struct ngram *g, const int32_t *tokens, uint32_t n, int32_t *out, uint32_t most)
{
	if (n < 3 || add(g, tokens, n) != 0)
		return 0;
	uint32_t at = find(g, tokens, n);
	if (at == 0)
		return 0;
	for (uint32_t i = 0; i < most; i++) {
		uint32_t from = at + 1 + i;
		out[i] = from < n ? tokens[from] : out[from - n];
	}
	return most;
}
