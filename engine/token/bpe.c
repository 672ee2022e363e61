/* SPDX-License-Identifier: Apache-2.0
 *
 * The merge loop: of all neighbouring pairs that have a rank, the lowest rank is merged first, the leftmost of equals.
 * Candidates are in a heap of (rank, position); an entry is stale when the pair that now begins at its position has
 * another rank, which the node itself stores. Each merge adds at most two entries and removes one node, so a piece of n
 * bytes costs O(n log n) and at most 3n entries, whatever its text: one letter a million times is not a special case.
 *
 * Positions are byte offsets in the piece, so a node's text needs no storage. Ranks are found in an open-addressed
 * table keyed by the two symbols' numbers.
 */
#include "engine/token/bpe.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/utf8.h"

enum { NONE = 0xFFFFFFFFu, LEAST_SCRATCH = 256 };

struct pair {
	uint64_t key;    /* left << 32 | right; of a single character: NONE << 32 | code point */
	uint32_t rank;   /* NONE: a free slot */
	uint32_t merged; /* the symbol it makes */
};

struct bpe {
	int32_t byte_token[256]; /* -1: only where never_in_utf8 */
	uint32_t byte_symbol[256];
	int32_t *symbol_token; /* by symbol; -1: not a token */
	struct pair *pairs;
	uint64_t pair_mask; /* slots - 1 */
	bool chars;         /* begins with characters, else with bytes */
	/* Of characters only. */
	int32_t unknown;
	bool falls_back, fuse_unknown;
	/* No token continues from another character into U+2581, which begins words: so a text may be cut there, which
	 * keeps pieces small. */
	bool cuts_at_marks;
};

struct bpe_node {
	uint32_t symbol;
	uint32_t prev, next; /* offsets; NONE at the ends */
	uint32_t rank;       /* of the pair that begins here; NONE: no merge, or the node is gone */
	uint32_t merged;     /* what that pair makes */
};

/* ---- a table from byte strings to symbols, needed only while the vocabulary is read ---- */

struct interner {
	struct proto_str *texts; /* by symbol */
	char **extra;            /* owned texts of results that are no token */
	size_t n, n_extra;
	uint32_t *slots;
	size_t mask;
};

/* A power of two of at least twice n. */
static size_t table_size(size_t n)
{
	size_t size = 16;
	while (size < n * 2)
		size *= 2;
	return size;
}

static uint32_t *intern_slot(const struct interner *in, struct proto_str text)
{
	size_t i = XXH3_64bits(text.at, text.n) & in->mask;
	while (in->slots[i] != NONE) {
		const struct proto_str *at = &in->texts[in->slots[i]];
		if (at->n == text.n && memcmp(at->at, text.at, text.n) == 0)
			break;
		i = (i + 1) & in->mask;
	}
	return &in->slots[i];
}

static uint32_t intern(struct interner *in, struct proto_str text)
{
	uint32_t *slot = intern_slot(in, text);
	if (*slot == NONE) {
		in->texts[in->n] = text;
		*slot = (uint32_t)in->n++;
	}
	return *slot;
}

/* The same, as a symbol that is no token unless the vocabulary has it. */
static uint32_t intern_symbol(struct bpe *b, struct interner *in, struct proto_str text)
{
	size_t before = in->n;
	uint32_t symbol = intern(in, text);
	if (in->n > before)
		b->symbol_token[symbol] = -1;
	return symbol;
}

static void interner_dispose(struct interner *in)
{
	for (size_t i = 0; i < in->n_extra; i++)
		sl_free(in->extra[i]);
	sl_free(in->extra);
	sl_free(in->texts);
	sl_free(in->slots);
}

/* ---- pairs ---- */

static uint64_t pair_hash(uint64_t key)
{
	key ^= key >> 31;
	key *= 0x9E3779B97F4A7C15u;
	return key ^ key >> 32;
}

static uint64_t pair_key(uint32_t left, uint32_t right) { return (uint64_t)left << 32 | right; }

static struct pair *pair_slot(const struct bpe *b, uint64_t key)
{
	uint64_t i = pair_hash(key) & b->pair_mask;
	while (b->pairs[i].rank != NONE && b->pairs[i].key != key)
		i = (i + 1) & b->pair_mask;
	return &b->pairs[i];
}

/* ---- reading the vocabulary ---- */

/* Vocabularies trained on valid text often lack these, and need them only for broken input. */
static bool never_in_utf8(unsigned c) { return c == 0xC0 || c == 0xC1 || c >= 0xF5; }

static int read_tokens(struct bpe *b, struct interner *in, const struct bpe_source *src, struct sl_err *err)
{
	static char bytes[256];
	for (int c = 0; c < 256; c++) {
		bytes[c] = (char)c;
		b->byte_symbol[c] = intern_symbol(b, in, (struct proto_str){&bytes[c], 1});
	}
	for (size_t i = 0; i < src->n_tokens; i++) {
		if (src->tokens[i].at == NULL || src->tokens[i].n == 0)
			continue;
		/* Of two tokens with one text the later is used, as the format's other readers do. */
		b->symbol_token[intern(in, src->tokens[i])] = (int32_t)i;
	}
	if (src->chars)
		return 0;
	for (int c = 0; c < 256; c++) {
		int32_t id = b->symbol_token[b->byte_symbol[c]];
		b->byte_token[c] = id >= 0 ? id : src->unknown;
		if (b->byte_token[c] < 0 && !never_in_utf8((unsigned)c))
			return sl_errf(err, SL_EINVAL,
				       "the vocabulary has no token for the byte 0x%02X and none for unknown text",
				       (unsigned)c);
	}
	return 0;
}

static bool is_char(struct proto_str t, uint32_t *cp)
{
	return t.n <= 4 && utf8_decode((const uint8_t *)t.at, t.n, cp) == (int)t.n;
}

/* Room for n pairs, and for the symbols that are single characters if the model begins with those. */
static int alloc_pairs(struct bpe *b, const struct interner *in, size_t n)
{
	uint32_t cp;
	for (size_t i = 0; b->chars && i < in->n; i++)
		n += is_char(in->texts[i], &cp);
	size_t slots = table_size(n);
	b->pairs = sl_zalloc_n(slots, sizeof(*b->pairs));
	if (b->pairs == NULL)
		return SL_ENOMEM;
	b->pair_mask = slots - 1;
	for (size_t i = 0; i < slots; i++)
		b->pairs[i].rank = NONE;
	return 0;
}

/* All symbols are interned before the pairs, whose table has room for the characters among them. */
static int read_merges(struct bpe *b, struct interner *in, const struct bpe_source *src)
{
	struct pair *made = sl_zalloc_n(src->n_merges + 1, sizeof *made);
	int rc = made != NULL ? 0 : SL_ENOMEM;
	for (size_t i = 0; i < src->n_merges && rc == 0; i++) {
		struct proto_str left = src->halves[2 * i], right = src->halves[2 * i + 1];
		char *text = sl_alloc(left.n + right.n);
		if (text == NULL) {
			rc = SL_ENOMEM;
			break;
		}
		memcpy(text, left.at, left.n);
		memcpy(text + left.n, right.at, right.n);
		size_t before = in->n;
		uint32_t merged = intern_symbol(b, in, (struct proto_str){text, left.n + right.n});
		if (in->n > before)
			in->extra[in->n_extra++] = text;
		else
			sl_free(text);
		uint32_t l = intern_symbol(b, in, left), r = intern_symbol(b, in, right);
		made[i] = (struct pair){pair_key(l, r), (uint32_t)i, merged};
	}
	if (rc == 0)
		rc = alloc_pairs(b, in, src->n_merges);
	for (size_t i = 0; i < src->n_merges && rc == 0; i++) {
		struct pair *slot = pair_slot(b, made[i].key);
		if (slot->rank == NONE)
			*slot = made[i];
	}
	sl_free(made);
	return rc;
}

/* ---- without merges: from scores ---- */

struct scored {
	float score;
	uint32_t i;
};

static int higher_score(const void *pa, const void *pb)
{
	const struct scored *a = pa, *b = pb;
	if (a->score != b->score)
		return a->score > b->score ? -1 : 1;
	return a->i < b->i ? -1 : a->i > b->i;
}

/* The order in which tokens are made: equal scores have equal ranks, so that the leftmost wins. */
static int rank_scores(const struct bpe_source *src, uint32_t *ranks)
{
	size_t n = src->n_tokens;
	struct scored *order = sl_zalloc_n(n + 1, sizeof *order);
	if (order == NULL)
		return SL_ENOMEM;
	for (size_t i = 0; i < n; i++)
		order[i] = (struct scored){src->scores[i], (uint32_t)i};
	qsort(order, n, sizeof *order, higher_score);
	for (size_t i = 0; i < n; i++)
		ranks[order[i].i] = i > 0 && order[i].score == order[i - 1].score ? ranks[order[i - 1].i] : (uint32_t)i;
	sl_free(order);
	return 0;
}

static bool char_begins(char c) { return ((uint8_t)c & 0xC0) != 0x80; }

static bool find_token(const struct bpe *b, const struct interner *in, struct proto_str text, uint32_t *symbol)
{
	*symbol = *intern_slot(in, text);
	return *symbol != NONE && b->symbol_token[*symbol] >= 0;
}

/* Visits the pairs of tokens that make a token; with ranks NULL it only counts them. */
static size_t pairs_of_scores(struct bpe *b, const struct interner *in, const struct bpe_source *src,
			      const uint32_t *ranks)
{
	size_t n = 0;
	for (size_t i = 0; i < src->n_tokens; i++) {
		struct proto_str t = src->tokens[i];
		uint32_t whole, left, right;
		if (t.at == NULL || !find_token(b, in, t, &whole) || b->symbol_token[whole] != (int32_t)i)
			continue;
		for (size_t cut = 1; cut < t.n; cut++) {
			struct proto_str l = {t.at, cut}, r = {t.at + cut, t.n - cut};
			if (!char_begins(*r.at) || !find_token(b, in, l, &left) || !find_token(b, in, r, &right))
				continue;
			n++;
			if (ranks != NULL)
				*pair_slot(b, pair_key(left, right)) =
				    (struct pair){pair_key(left, right), ranks[i], whole};
		}
	}
	return n;
}

static int read_scores(struct bpe *b, const struct interner *in, const struct bpe_source *src)
{
	uint32_t *ranks = sl_zalloc_n(src->n_tokens + 1, sizeof *ranks);
	int rc = ranks != NULL ? rank_scores(src, ranks) : SL_ENOMEM;
	if (rc == 0)
		rc = alloc_pairs(b, in, pairs_of_scores(b, in, src, NULL));
	if (rc == 0)
		pairs_of_scores(b, in, src, ranks);
	sl_free(ranks);
	return rc;
}

/* ---- characters ---- */

static bool is_mark(const char *at, size_t n) { return n >= 3 && memcmp(at, "\xE2\x96\x81", 3) == 0; }

/* Where a word begins after the first character; n: nowhere. */
static size_t next_word(const char *at, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (is_mark(at + i, n - i) && !(i >= 3 && is_mark(at + i - 3, 3)))
			return i;
	return n;
}

static void index_chars(struct bpe *b, const struct interner *in)
{
	b->cuts_at_marks = true;
	for (size_t i = 0; i < in->n; i++)
		b->cuts_at_marks &= next_word(in->texts[i].at, in->texts[i].n) == in->texts[i].n;
	for (size_t i = 0; i < in->n; i++) {
		uint32_t cp;
		const struct proto_str t = in->texts[i];
		if (is_char(t, &cp))
			*pair_slot(b, pair_key(NONE, cp)) = (struct pair){pair_key(NONE, cp), 0, (uint32_t)i};
	}
}

int bpe_create(const struct bpe_source *src, struct bpe **out, struct sl_err *err)
{
	/* Symbols are numbered in 32 bits; files are far below this. */
	if (src->n_tokens > 1u << 24 || src->n_merges > 1u << 24)
		return sl_errf(err, SL_EINVAL, "%zu tokens and %zu merges are more than is supported", src->n_tokens,
			       src->n_merges);
	for (size_t i = 0; src->halves != NULL && i < 2 * src->n_merges; i++)
		if (src->halves[i].n == 0)
			return sl_errf(err, SL_EINVAL, "merge %zu has an empty half", i / 2);
	size_t max_symbols = 256 + src->n_tokens + 3 * src->n_merges;
	struct bpe *b = sl_zalloc(sizeof(*b));
	if (b == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the vocabulary");
	struct interner in = {0};
	size_t n_slots = table_size(max_symbols);
	in.texts = sl_zalloc_n(max_symbols, sizeof(*in.texts));
	in.extra = sl_zalloc_n(src->n_merges + 1, sizeof(*in.extra));
	in.slots = sl_zalloc_n(n_slots, sizeof(*in.slots));
	in.mask = n_slots - 1;
	b->symbol_token = sl_zalloc_n(max_symbols, sizeof(*b->symbol_token));
	b->chars = src->chars;
	b->unknown = src->unknown;
	b->fuse_unknown = src->fuse_unknown;
	b->falls_back = src->chars && src->byte_tokens != NULL;
	int rc = SL_ENOMEM;
	if (in.texts && in.extra && in.slots && b->symbol_token) {
		memset(in.slots, 0xFF, n_slots * sizeof(*in.slots));
		rc = read_tokens(b, &in, src, err);
		if (src->chars && src->byte_tokens != NULL)
			memcpy(b->byte_token, src->byte_tokens, sizeof b->byte_token);
		if (rc == 0 && src->halves == NULL)
			rc = read_scores(b, &in, src);
		else if (rc == 0)
			rc = read_merges(b, &in, src);
		if (rc == 0 && src->chars)
			index_chars(b, &in);
	}
	interner_dispose(&in);
	if (rc != 0) {
		bpe_destroy(b);
		return rc == SL_ENOMEM ? sl_errf(err, rc, "no memory for the vocabulary") : rc;
	}
	*out = b;
	return 0;
}

void bpe_destroy(struct bpe *b)
{
	if (b == NULL)
		return;
	sl_free(b->symbol_token);
	sl_free(b->pairs);
	sl_free(b);
}

/* ---- encoding ---- */

int tok_ids_push(struct tok_ids *l, int32_t id)
{
	if (l->max != 0 && l->n >= l->max)
		return SL_ELIMIT;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;
		int32_t *ids = sl_realloc_n(l->ids, cap, sizeof(*ids));
		if (ids == NULL)
			return SL_ENOMEM;
		l->ids = ids;
		l->cap = cap;
	}
	l->ids[l->n++] = id;
	return 0;
}

void bpe_scratch_dispose(struct bpe_scratch *s)
{
	sl_free(s->nodes);
	sl_free(s->heap);
	*s = (struct bpe_scratch){0};
}

static int scratch_reserve(struct bpe_scratch *s, size_t n)
{
	if (n <= s->cap)
		return 0;
	/* Twice as large each time, and not cleared: most pieces are a few bytes long. */
	size_t cap = n < 2 * s->cap ? 2 * s->cap : n < LEAST_SCRATCH ? LEAST_SCRATCH : n;
	bpe_scratch_dispose(s);
	s->nodes = sl_realloc_n(NULL, cap, sizeof(*s->nodes));
	s->heap = sl_realloc_n(NULL, cap, 3 * sizeof(*s->heap));
	if (s->nodes == NULL || s->heap == NULL) {
		bpe_scratch_dispose(s);
		return SL_ENOMEM;
	}
	s->cap = cap;
	return 0;
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t entry)
{
	size_t i = (*n)++;
	while (i > 0 && heap[(i - 1) / 2] > entry) {
		heap[i] = heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap[i] = entry;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
	uint64_t least = heap[0], last = heap[--*n];
	size_t i = 0;
	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= *n)
			break;
		if (child + 1 < *n && heap[child + 1] < heap[child])
			child++;
		if (heap[child] >= last)
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = last;
	return least;
}

struct merge {
	const struct bpe *b;
	struct bpe_node *nodes;
	uint64_t *heap;
	size_t n_heap;
};

/* Ranks the pair that begins at node i and queues it. */
static void rank_pair(struct merge *m, uint32_t i)
{
	struct bpe_node *node = &m->nodes[i];
	node->rank = NONE;
	if (node->next == NONE || node->symbol == NONE || m->nodes[node->next].symbol == NONE)
		return;
	const struct pair *pair = pair_slot(m->b, pair_key(node->symbol, m->nodes[node->next].symbol));
	node->rank = pair->rank;
	node->merged = pair->merged;
	if (node->rank != NONE)
		heap_push(m->heap, &m->n_heap, (uint64_t)node->rank << 32 | i);
}

static void merge_all(struct merge *m)
{
	while (m->n_heap > 0) {
		uint64_t least = heap_pop(m->heap, &m->n_heap);
		uint32_t i = (uint32_t)least, rank = (uint32_t)(least >> 32);
		struct bpe_node *left = &m->nodes[i];
		if (left->rank != rank)
			continue;
		struct bpe_node *right = &m->nodes[left->next];
		right->rank = NONE;
		left->symbol = left->merged;
		left->next = right->next;
		if (left->next != NONE)
			m->nodes[left->next].prev = i;
		rank_pair(m, i);
		if (left->prev != NONE)
			rank_pair(m, left->prev);
	}
}

static int push_bytes(const struct bpe *b, const uint8_t *at, size_t n, struct tok_ids *out)
{
	int rc = 0;
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = tok_ids_push(out, b->byte_token[at[i]]);
	return rc;
}

/* A byte that has no token, and none for unknown text, becomes U+FFFD. */
static int push_byte(const struct bpe *b, uint8_t c, struct tok_ids *out)
{
	static const uint8_t replacement[] = {0xEF, 0xBF, 0xBD};
	if (b->byte_token[c] >= 0)
		return tok_ids_push(out, b->byte_token[c]);
	return push_bytes(b, replacement, sizeof replacement, out);
}

/* A character without a token: its bytes when each of them has one, or the unknown token. */
static int push_unknown(const struct bpe *b, const char *at, size_t n, bool *was_unknown, struct tok_ids *out)
{
	bool all = b->falls_back;
	for (size_t i = 0; i < n && all; i++)
		all = b->byte_token[(uint8_t)at[i]] >= 0;
	int rc = all ? push_bytes(b, (const uint8_t *)at, n, out) : 0;
	bool again = *was_unknown && b->fuse_unknown;
	*was_unknown = !all;
	if (all || again || b->unknown < 0)
		return rc;
	return tok_ids_push(out, b->unknown);
}

/* The first nodes: a byte each, or a character each. */
static void make_nodes(const struct bpe *b, struct bpe_node *nodes, const char *piece, uint32_t n)
{
	uint32_t prev = NONE;
	for (uint32_t i = 0; i < n;) {
		uint32_t symbol = b->byte_symbol[(uint8_t)piece[i]], cp;
		int len = 1;
		if (b->chars) {
			len = utf8_decode((const uint8_t *)piece + i, n - i, &cp);
			const struct pair *one = len > 0 ? pair_slot(b, pair_key(NONE, cp)) : NULL;
			symbol = one != NULL && one->rank != NONE ? one->merged : NONE;
			len = len > 0 ? len : 1;
		}
		uint32_t next = i + (uint32_t)len;
		nodes[i] =
		    (struct bpe_node){.symbol = symbol, .prev = prev, .rank = NONE, .next = next >= n ? NONE : next};
		prev = i;
		i = next;
	}
}

static int encode_part(const struct bpe *b, struct bpe_scratch *s, const char *piece, size_t n, bool *was_unknown,
		       struct tok_ids *out)
{
	int rc = scratch_reserve(s, n);
	if (rc != 0)
		return rc;
	struct merge m = {.b = b, .nodes = s->nodes, .heap = s->heap};
	uint32_t end = (uint32_t)n;
	make_nodes(b, m.nodes, piece, end);
	for (uint32_t i = 0; i != NONE; i = m.nodes[i].next)
		rank_pair(&m, i);
	merge_all(&m);
	for (uint32_t i = 0; i != NONE && rc == 0; i = m.nodes[i].next) {
		uint32_t symbol = m.nodes[i].symbol;
		int32_t id = symbol != NONE ? b->symbol_token[symbol] : -1;
		uint32_t stop = m.nodes[i].next == NONE ? end : m.nodes[i].next;
		if (id >= 0) {
			*was_unknown = false;
			rc = tok_ids_push(out, id);
		} else if (b->chars) {
			rc = push_unknown(b, piece + i, stop - i, was_unknown, out);
		} else {
			for (uint32_t k = i; k < stop && rc == 0; k++)
				rc = push_byte(b, (uint8_t)piece[k], out);
		}
	}
	return rc;
}

int bpe_encode(const struct bpe *b, struct bpe_scratch *s, const char *piece, size_t n, struct tok_ids *out)
{
	bool was_unknown = false;
	if (n == 0)
		return 0;
	if (n == 1 && !b->chars)
		return push_byte(b, (uint8_t)piece[0], out);
	if (n >= NONE)
		return SL_ELIMIT;
	if (!b->cuts_at_marks)
		return encode_part(b, s, piece, n, &was_unknown, out);
	int rc = 0;
	while (n > 0 && rc == 0) {
		size_t word = next_word(piece, n);
		rc = encode_part(b, s, piece, word, &was_unknown, out);
		piece += word;
		n -= word;
	}
	return rc;
}
