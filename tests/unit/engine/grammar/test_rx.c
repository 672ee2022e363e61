/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/grammar/rx: random expressions against their definition on all short strings; JSON strings against a decoder;
 * characters against UTF-8; sizes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/utf8.h"
#include "base/proto/proto.h"
#include "engine/grammar/rx_dfa.h"

static uint64_t seed;

static uint32_t below(uint32_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % n;
}

static bool matches(struct rx_pool *p, rx r, const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		r = rx_derive(p, r, (uint8_t)text[i]);
	return rx_nullable(p, r);
}

/* ---- an expression as a tree, and what it means ---- */

enum op { NONE, EPS, ALL, SET, CAT, OR, AND, NOT, REPEAT };
struct node {
	enum op op;
	struct node *a, *b;
	unsigned set;         /* of a, b, c */
	uint32_t least, most; /* REPEAT */
};
enum { MAX_TEXT = 5, MAX_TREE = 64 };

static struct node tree[MAX_TREE];
static int n_tree;

static struct node *grow(int depth)
{
	struct node *n = &tree[n_tree++];
	*n = (struct node){.op = depth == 0 || n_tree > MAX_TREE - 8 ? SET : (enum op)below(REPEAT + 1)};
	n->set = below(8);
	if (n->op <= ALL && below(3) != 0)
		n->op = SET;
	if (n->op >= CAT)
		n->a = grow(depth - 1);
	if (n->op == CAT || n->op == OR || n->op == AND)
		n->b = grow(depth - 1);
	n->least = below(4);
	n->most = below(3) == 0 ? RX_UNBOUNDED : n->least + below(4);
	return n;
}

/* Bit j: text[i, j) is in n. */
static unsigned ends(const struct node *n, const char *text, unsigned len, unsigned i);

static unsigned ends_from(const struct node *n, const char *text, unsigned len, unsigned from)
{
	unsigned to = 0;
	for (unsigned i = 0; i <= len; i++)
		if ((from >> i & 1) != 0)
			to |= ends(n, text, len, i);
	return to;
}

static unsigned repeat_ends(const struct node *n, const char *text, unsigned len, unsigned i)
{
	unsigned at = 1u << i, all = 0;
	/* More copies than bytes change nothing but for empty ones, of which any number may be. */
	for (uint32_t k = 0; k <= n->most && k <= n->least + len + 1; k++) {
		if (k >= n->least)
			all |= at;
		at = ends_from(n->a, text, len, at);
	}
	return all;
}

static unsigned ends(const struct node *n, const char *text, unsigned len, unsigned i)
{
	unsigned later = ((1u << (len + 1)) - 1) & ~((1u << i) - 1);
	switch (n->op) {
	case NONE: return 0;
	case EPS: return 1u << i;
	case ALL: return later;
	case SET: return i < len && (n->set >> (text[i] - 'a') & 1) != 0 ? 1u << (i + 1) : 0;
	case CAT: return ends_from(n->b, text, len, ends(n->a, text, len, i));
	case OR: return ends(n->a, text, len, i) | ends(n->b, text, len, i);
	case AND: return ends(n->a, text, len, i) & ends(n->b, text, len, i);
	case NOT: return later & ~ends(n->a, text, len, i);
	default: return repeat_ends(n, text, len, i);
	}
}

static rx build(struct rx_pool *p, const struct node *n)
{
	struct rx_set s = {{0}};
	s.bits[1] = (uint64_t)n->set << ('a' - 64);
	switch (n->op) {
	case NONE: return RX_NONE;
	case EPS: return RX_EPS;
	case ALL: return RX_ALL;
	case SET: return rx_bytes(p, &s);
	case CAT: return rx_cat(p, build(p, n->a), build(p, n->b));
	case OR: return rx_or(p, build(p, n->a), build(p, n->b));
	case AND: return rx_and(p, build(p, n->a), build(p, n->b));
	case NOT: return rx_not(p, build(p, n->a));
	default: return rx_repeat(p, build(p, n->a), n->least, n->most);
	}
}

static void test_random(void **state)
{
	(void)state;
	for (int round = 0; round < 3000; round++) {
		seed = (uint64_t)round;
		n_tree = 0;
		struct node *n = grow(5);
		struct rx_pool *p = NULL;
		assert_int_equal(rx_pool_create(1 << 20, &p), 0);
		rx r = build(p, n);
		bool any = false;
		for (unsigned len = 0; len <= MAX_TEXT; len++) {
			for (unsigned code = 0; code < 243; code++) {
				char text[MAX_TEXT];
				unsigned c = code, size = 1;
				for (unsigned i = 0; i < len; i++, c /= 3, size *= 3)
					text[i] = (char)('a' + c % 3);
				if (code >= size)
					break;
				bool want = (ends(n, text, len, 0) >> len & 1) != 0;
				any |= want;
				if (matches(p, r, text, len) != want)
					fail_msg("round %d: %.*s", round, (int)len, text);
			}
		}
		if (any)
			assert_false(rx_is_none(p, r, 1000));
		assert_int_equal(rx_pool_fault(p), 0);
		rx_pool_destroy(p);
	}
}

/* ---- characters ---- */

static void test_chars(void **state)
{
	(void)state;
	static const struct rx_range ranges[] = {{'b', 'd'},          {0x7E, 0x81},      {0x7F0, 0x810},
						 {0xD000, 0xF000},    {0xFFFE, 0x10001}, {0x3FFFF, 0x40000},
						 {0x10FFF0, 0x110005}};
	enum { N = sizeof(ranges) / sizeof(ranges[0]) };
	struct rx_pool *p = NULL;
	assert_int_equal(rx_pool_create(1 << 20, &p), 0);
	rx in = rx_chars(p, ranges, N), out = rx_chars_except(p, ranges, N);
	for (uint32_t cp = 0; cp <= 0x10FFFF;
	     cp += cp > 0x11000 && cp % 0x10000 > 20 && cp % 0x10000 < 0xFFE0 ? 31 : 1) {
		if (cp >= 0xD800 && cp < 0xE000)
			continue;
		bool want = false;
		for (int i = 0; i < N; i++)
			want |= cp >= ranges[i].from && cp <= ranges[i].to;
		uint8_t at[4];
		int n = utf8_encode(cp, at);
		assert_int_equal(matches(p, in, (char *)at, (size_t)n), want);
		assert_int_equal(matches(p, out, (char *)at, (size_t)n), !want);
	}
	assert_false(matches(p, rx_chars_except(p, NULL, 0), "\xED\xA0\x80", 3));
	assert_int_equal(rx_chars(p, NULL, 0), RX_NONE);
	rx_pool_destroy(p);
}

/* ---- JSON ---- */

static void json(struct rx_pool *p, rx r, const char *spelling, bool want)
{
	if (matches(p, r, spelling, strlen(spelling)) != want)
		fail_msg("%s", spelling);
}

static void test_json(void **state)
{
	(void)state;
	struct rx_pool *p = NULL;
	assert_int_equal(rx_pool_create(1 << 20, &p), 0);
	rx all = rx_json(p, RX_ALL);
	static const char *const good[] = {
	    "",         "ab",   "\\\"\\\\\\/\\b\\f\\n\\r\\t", "\\u0041", "\\uD83D\\uDe00",
	    "\xC3\xA9", "\x7F", "\xF0\x9F\x98\x80",           "\\u0000"};
	static const char *const bad[] = {
	    "\"", "\n",   "\\x",      "\\u004",       "\\ud83d",  "\\udc00",   "\\ud83d\\u0041",
	    "\\", "\xC3", "\xC0\x80", "\xED\xA0\x80", "\\ud83dx", "\\uD83D\\", "\xFF"};
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		json(p, all, good[i], true);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		json(p, all, bad[i], false);
	rx word = rx_json(p, rx_literal(p, "a/\n\xC3\xA9\xF0\x9F\x98\x80", 9));
	json(p, word, "a/\\n\xC3\xA9\xF0\x9F\x98\x80", true);
	json(p, word, "\\u0061\\/\\u000A\\u00e9\\uD83D\\uDE00", true);
	json(p, word, "a/\\r\xC3\xA9\xF0\x9F\x98\x80", false);
	rx_pool_destroy(p);
}

/* No beginning of a spelling that is followed is without a completion. */
static void test_json_feasible(void **state)
{
	(void)state;
	struct rx_pool *p = NULL;
	assert_int_equal(rx_pool_create(1 << 20, &p), 0);
	rx lower = rx_json(p, rx_chars(p, &(struct rx_range){'a', 'z'}, 1));
	static const char *const dead[] = {"\\n", "\\u1", "\\u01", "\\u000", "\\ud", "\\u008", "\\u005"};
	static const char *const live[] = {"\\", "\\u", "\\u00", "\\u006", "\\u007"};
	for (size_t i = 0; i < sizeof(dead) / sizeof(dead[0]); i++) {
		rx r = lower;
		for (const char *c = dead[i]; *c != '\0'; c++)
			r = rx_derive(p, r, (uint8_t)*c);
		assert_int_equal(r, RX_NONE);
	}
	for (size_t i = 0; i < sizeof(live) / sizeof(live[0]); i++) {
		rx r = lower;
		for (const char *c = live[i]; *c != '\0'; c++)
			r = rx_derive(p, r, (uint8_t)*c);
		assert_true(r != RX_NONE);
	}
	/* Not even where every text may come: no character begins with half of a pair's second half. */
	rx half = rx_json(p, RX_ALL);
	for (const char *c = "\\uD"; *c != '\0'; c++)
		half = rx_derive(p, half, (uint8_t)*c);
	assert_true(half != RX_NONE);
	assert_int_equal(rx_derive(p, half, 'd'), RX_NONE);
	rx high = rx_json(p, rx_chars(p, &(struct rx_range){0x1F600, 0x1F603}, 1));
	rx r = high;
	for (const char *c = "\\uD83D\\uDE0"; *c != '\0'; c++)
		r = rx_derive(p, r, (uint8_t)*c);
	assert_true(r != RX_NONE);
	assert_int_equal(rx_derive(p, r, '4'), RX_NONE);
	assert_true(rx_derive(p, r, '3') == RX_EPS);
	rx_pool_destroy(p);
}

/* ---- sizes and limits ---- */

static void test_counters(void **state)
{
	(void)state;
	struct rx_pool *p = NULL;
	assert_int_equal(rx_pool_create(1000, &p), 0);
	rx a = rx_literal(p, "a", 1), r = rx_repeat(p, a, 1000000, 1000000);
	for (int i = 0; i < 300; i++)
		r = rx_derive(p, r, 'a');
	assert_int_equal(rx_pool_fault(p), 0);
	assert_false(rx_nullable(p, r));
	assert_int_equal(rx_repeat(p, rx_repeat(p, a, 0, RX_UNBOUNDED), 3, 7), rx_repeat(p, a, 0, RX_UNBOUNDED));
	assert_int_equal(rx_cat(p, rx_repeat(p, a, 1, 2), rx_repeat(p, a, 3, 4)), rx_repeat(p, a, 4, 6));
	assert_int_equal(rx_repeat(p, a, 3, 2), RX_NONE);
	rx_pool_destroy(p);
}

static void test_limit(void **state)
{
	(void)state;
	struct rx_pool *p = NULL;
	char text[4000];
	memset(text, 'a', sizeof(text));
	assert_int_equal(rx_pool_create(1000, &p), 0);
	assert_int_equal(rx_literal(p, text, sizeof(text)), RX_NONE);
	assert_int_equal(rx_pool_fault(p), SL_ELIMIT);
	assert_int_equal(rx_literal(p, "b", 1), RX_NONE);
	rx_pool_destroy(p);
}

/* Literals in one list: a trie, so its states are few bytes' derivatives. */
static void test_many_literals(void **state)
{
	(void)state;
	enum { N = 20000 };
	struct rx_pool *p = NULL;
	assert_int_equal(rx_pool_create(1 << 20, &p), 0);
	rx *of = calloc(N, sizeof(*of));
	char text[16];
	for (int i = 0; i < N; i++) {
		snprintf(text, sizeof(text), "%05d-x", i * 4);
		of[i] = rx_literal(p, text, strlen(text));
	}
	rx r = rx_or_n(p, of, N);
	assert_int_equal(rx_pool_fault(p), 0);
	for (int i = 0; i < N; i += 37) {
		snprintf(text, sizeof(text), "%05d-x", i);
		assert_int_equal(matches(p, r, text, strlen(text)), i % 4 == 0);
	}
	free(of);
	rx_pool_destroy(p);
}

/* ---- lists of words ---- */

enum { WORDS = 40, WORD_BYTES = 320, SHARED = 300 };

/* Over few letters, so that words are equal, begin and end alike, and are beginnings of others. Some share more bytes
 * than a union may nest. */
static size_t random_word(char *to, uint32_t letters)
{
	size_t n = below(8) == 0 ? SHARED : 0;
	memset(to, 'a', n);
	for (size_t more = below(6); more > 0; more--)
		to[n++] = (char)("ab\"\xC3\xA9z\0"[below(letters)]);
	return n;
}

static bool is_listed(const struct proto_str *words, size_t n, struct proto_str w)
{
	for (size_t i = 0; i < n; i++)
		if (words[i].n == w.n && memcmp(words[i].at, w.at, w.n) == 0)
			return true;
	return false;
}

/* The automaton's transitions are the derivatives. */
static void assert_derivatives(struct rx_pool *p, rx r, struct proto_str along)
{
	struct rx_dfa d;
	assert_int_equal(dfa_init(&d, p, 1000), 0);
	uint32_t s = dfa_state(&d, r);
	for (size_t i = 0; s != DFA_DEAD; i++) {
		assert_true(dfa_expand(&d, s));
		for (unsigned b = 0; b < 256; b++)
			assert_int_equal(d.states[d.states[s].next[b]].of, rx_derive(p, d.states[s].of, (uint8_t)b));
		if (i == along.n)
			break;
		s = d.states[s].next[(uint8_t)along.at[i]];
	}
	dfa_dispose(&d);
}

static void test_words(void **state)
{
	(void)state;
	static char bytes[WORDS][WORD_BYTES];
	struct proto_str words[WORDS], sorted[WORDS];
	char other[WORD_BYTES];
	for (unsigned round = 0; round < 300; round++) {
		seed = round;
		struct rx_pool *p = NULL;
		assert_int_equal(rx_pool_create(1 << 20, &p), 0);
		size_t n = below(WORDS + 1);
		uint32_t letters = 1 + below(7);
		rx slow = RX_NONE;
		for (size_t i = 0; i < n; i++) {
			words[i] = (struct proto_str){bytes[i], random_word(bytes[i], letters)};
			slow = rx_or(p, slow, rx_literal(p, words[i].at, words[i].n));
		}
		memcpy(sorted, words, n * sizeof *words);
		rx fast = rx_words(p, sorted, n);
		assert_int_equal(rx_pool_fault(p), 0);
		assert_int_equal(fast == RX_NONE, n == 0);
		assert_true(rx_is_none(p, rx_and(p, fast, rx_not(p, slow)), 100000));
		assert_true(rx_is_none(p, rx_and(p, slow, rx_not(p, fast)), 100000));
		for (size_t i = 0; i < n; i++)
			assert_true(matches(p, fast, words[i].at, words[i].n));
		for (int i = 0; i < 20; i++) {
			struct proto_str w = {other, random_word(other, 7)};
			assert_int_equal(matches(p, fast, w.at, w.n), is_listed(words, n, w));
		}
		if (n > 0)
			assert_derivatives(p, fast, words[below((uint32_t)n)]);
		rx_pool_destroy(p);
	}
}

/* An intersection of so many parts that the lists in which they are gathered move. */
static void test_many_parts(void **state)
{
	(void)state;
	struct rx_pool *p;
	assert_int_equal(rx_pool_create(1 << 20, &p), 0);
	const struct rx_range any = {0, 0x10FFFF};
	rx text = rx_repeat(p, rx_chars(p, &any, 1), 0, RX_UNBOUNDED), all = text;
	for (uint32_t i = 0; i < 400; i++) {
		rx middle = rx_repeat(p, rx_chars(p, &any, 1), i, i);
		rx part = rx_cat(p, rx_literal(p, "x", 1), rx_cat(p, middle, rx_literal(p, "y", 1)));
		all = rx_and(p, all, rx_cat(p, text, rx_cat(p, part, text)));
	}
	assert_true(rx_pool_fault(p) != 0 || all != RX_NONE);
	rx_pool_destroy(p);
}

static void test_is_none(void **state)
{
	(void)state;
	struct rx_pool *p = NULL;
	assert_int_equal(rx_pool_create(1 << 20, &p), 0);
	rx a = rx_literal(p, "a", 1), b = rx_literal(p, "b", 1);
	rx as = rx_repeat(p, a, 1, RX_UNBOUNDED), bs = rx_repeat(p, b, 1, RX_UNBOUNDED);
	assert_true(rx_is_none(p, rx_and(p, as, bs), 100));
	rx ab = rx_repeat(p, rx_or(p, a, b), 0, RX_UNBOUNDED);
	rx even = rx_repeat(p, rx_repeat(p, a, 2, 2), 1, RX_UNBOUNDED);
	rx odd = rx_cat(p, a, rx_repeat(p, rx_repeat(p, a, 2, 2), 0, RX_UNBOUNDED));
	assert_true(rx_is_none(p, rx_and(p, even, odd), 100));
	assert_true(rx_is_none(p, rx_and(p, rx_cat(p, ab, a), rx_cat(p, ab, b)), 100));
	assert_false(rx_is_none(p, rx_and(p, rx_cat(p, ab, a), rx_cat(p, a, ab)), 100));
	/* Not proven within so few states: so it is not said. */
	rx far = rx_and(p, rx_cat(p, rx_repeat(p, a, 50, 50), b), rx_repeat(p, a, 0, RX_UNBOUNDED));
	assert_false(rx_is_none(p, far, 10));
	assert_true(rx_is_none(p, far, 1000));
	assert_int_equal(rx_pool_fault(p), 0);
	rx_pool_destroy(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_random),        cmocka_unit_test(test_chars),    cmocka_unit_test(test_json),
	    cmocka_unit_test(test_json_feasible), cmocka_unit_test(test_counters), cmocka_unit_test(test_limit),
	    cmocka_unit_test(test_many_literals), cmocka_unit_test(test_words),    cmocka_unit_test(test_many_parts),
	    cmocka_unit_test(test_is_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
