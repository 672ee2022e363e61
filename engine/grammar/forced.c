/* SPDX-License-Identifier: Apache-2.0
 *
 * Forced text as tokens (the rule is in grammar.h). A seam is a boundary between two bytes that no token has side by
 * side. So every tokenization has a boundary there, and the text on one side does not affect the tokens on the other.
 * Between two seams, the tokens are those of that text alone.
 *
 * The piece around the state's position begins at the last seam of the text so far, of which the state keeps the last
 * bytes, and ends at the last seam of the forced text. Without such a piece, or if the text so far is not tokenized
 * canonically, nothing is forced. Text ends at a control token: there is a seam before it, and the text after it is
 * tokenized separately.
 */
#include <string.h>

#include "base/alloc.h"
#include "engine/grammar/grammar_priv.h"
#include "engine/token/tokenizer.h"

enum { BYTES_OF_WORK = 4 }; /* to encode, for a unit of work */

static bool is_seam(const struct grammar_vocab *v, char left, char right)
{
	uint32_t pair = (uint32_t)(uint8_t)left << 8 | (uint8_t)right;
	return (v->pairs[pair / 64] >> (pair % 64) & 1) == 0;
}

/* The only permitted next byte, or -1. */
static int only_byte(struct automaton *a, uint32_t config)
{
	if (a->configs[config].may_end || !auto_expand(a, config))
		return -1;
	const struct rx_set *s = &a->configs[config].alive;
	int found = -1;
	for (int i = 0; i < 4; i++) {
		if (s->bits[i] == 0)
			continue;
		if (found >= 0 || (s->bits[i] & (s->bits[i] - 1)) != 0)
			return -1;
		found = 64 * i + __builtin_ctzll(s->bits[i]);
	}
	return found;
}

/* Appends the forced text up to the mark of a control token, or only that token's word. Returns its bytes, or -1 on a
 * shortage. */
static int forced_text(struct automaton *a, uint32_t config, char *text, int max)
{
	int n = 0;
	bool over = false;
	for (int b; n < max && !over && (b = only_byte(a, config)) >= 0; n++) {
		text[n] = (char)b;
		over = n > 0 && b == VOCAB_MARK;
		config = auto_step(a, config, (uint8_t)b);
		if (config == AUTO_FAIL)
			return -1;
	}
	return auto_fault(a) != 0 ? -1 : n;
}

/* Offset of the first byte of the piece, or -1. */
static int piece_begin(const struct grammar_state *s, const char *text)
{
	for (int i = s->n_tail; i > 0; i--)
		if (is_seam(s->g->vocab, text[i - 1], text[i]))
			return i;
	return s->cut ? -1 : 0;
}

static int piece_end(const struct grammar_vocab *v, const char *text, int from, int to)
{
	for (int i = to - 1; i > from; i--)
		if (is_seam(v, text[i - 1], text[i]))
			return i;
	return from;
}

/* Copies the tokens from `skip` bytes on, if a token begins there and the tokens' bytes equal the text. */
static size_t take(const struct tokenizer *t, const struct tok_ids *all, const char *text, size_t n, size_t skip,
		   int32_t *ids, size_t max)
{
	size_t at = 0, n_ids = 0;
	bool boundary = false;
	for (size_t i = 0; i < all->n; i++) {
		struct proto_str b = tokenizer_bytes(t, all->ids[i]);
		boundary |= at == skip;
		if (b.n > n - at || memcmp(b.at, text + at, b.n) != 0)
			return 0;
		if (at >= skip && n_ids < max)
			ids[n_ids++] = all->ids[i];
		at += b.n;
	}
	return boundary && at == n ? n_ids : 0;
}

static size_t find(struct grammar_state *s, int32_t *ids, size_t max)
{
	char text[GRAMMAR_TAIL + FORCED_BYTES];
	memcpy(text, s->tail, s->n_tail);
	int n = forced_text(&s->g->a, s->at, text + s->n_tail, FORCED_BYTES);
	if (n <= 1)
		return 0;
	if ((uint8_t)text[s->n_tail] == VOCAB_MARK)
		return (ids[0] = vocab_mark(s->g->vocab, text + s->n_tail, (size_t)n)) >= 0;
	int from = piece_begin(s, text), to = piece_end(s->g->vocab, text, s->n_tail, s->n_tail + n);
	if (from < 0 || to <= s->n_tail)
		return 0;
	struct tok_ids all = {0};
	size_t skip = (size_t)(s->n_tail - from), len = (size_t)(to - from), n_ids = 0;
	s->g->forced_work += (size_t)n / BYTES_OF_WORK;
	if (tokenizer_encode(s->g->vocab->tok, text + from, len, NULL, &all) == 0)
		n_ids = take(s->g->vocab->tok, &all, text + from, len, skip, ids, max);
	tok_ids_dispose(&all);
	return n_ids;
}

static uint32_t hash_of(const struct grammar_state *s)
{
	uint64_t h = (uint64_t)s->at << 8 | s->n_tail;
	for (int i = 0; i < GRAMMAR_TAIL; i += 8) {
		uint64_t w;
		memcpy(&w, s->tail + i, sizeof(w));
		h = (h ^ w) * 0x9E3779B97F4A7C15u;
		h ^= h >> 31;
	}
	return (uint32_t)(h >> 32);
}

/* max: at least FORCED_KEPT, so that the memo knows whether there are more. */
static size_t find_kept(struct grammar_state *s, int32_t *ids, size_t max)
{
	struct forced_memo *m = &s->g->forced[hash_of(s) % FORCED_MEMO];
	if (m->at == s->at && m->n_tail == s->n_tail && m->cut == s->cut &&
	    memcmp(m->tail, s->tail, GRAMMAR_TAIL) == 0) {
		size_t n = m->n < max ? m->n : max;
		if (m->n < FORCED_KEPT || max <= FORCED_KEPT) {
			memcpy(ids, m->ids, n * sizeof(*ids));
			return n;
		}
	}
	size_t n = find(s, ids, max);
	if (auto_fault(&s->g->a) == 0) {
		*m = (struct forced_memo){.at = s->at, .n_tail = s->n_tail, .cut = s->cut};
		memcpy(m->tail, s->tail, GRAMMAR_TAIL);
		m->n = n < FORCED_KEPT ? n : FORCED_KEPT;
		memcpy(m->ids, ids, m->n * sizeof(*ids));
	}
	return n;
}

size_t forced_find(struct grammar_state *s, int32_t *ids, size_t max)
{
	int32_t kept[FORCED_KEPT];
	if (only_byte(&s->g->a, s->at) < 0)
		return 0;
	if (max >= FORCED_KEPT)
		return find_kept(s, ids, max);
	size_t n = find_kept(s, kept, FORCED_KEPT);
	n = n < max ? n : max;
	memcpy(ids, kept, n * sizeof(*ids));
	return n;
}

void forced_note_mark(struct grammar_state *s)
{
	s->n_tail = 0;
	s->cut = false;
	memset(s->tail, 0, sizeof(s->tail));
}

void forced_note(struct grammar_state *s, const char *text, size_t n)
{
	if (n >= GRAMMAR_TAIL) {
		s->cut = s->cut || n > GRAMMAR_TAIL || s->n_tail > 0;
		s->n_tail = GRAMMAR_TAIL;
		memcpy(s->tail, text + n - GRAMMAR_TAIL, GRAMMAR_TAIL);
		return;
	}
	size_t have = s->n_tail, keep = have + n > GRAMMAR_TAIL ? GRAMMAR_TAIL - n : have;
	s->cut = s->cut || keep < have;
	memmove(s->tail, s->tail + have - keep, keep);
	memcpy(s->tail + keep, text, n);
	s->n_tail = (uint8_t)(keep + n);
}
