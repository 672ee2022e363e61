/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/grammar: masks of random strings (lengths, classes, patterns, excluded names) over a random vocabulary against
 * one token after the other. The vocabulary is large enough that whole subtrees are accepted: its tokens begin and end
 * within characters, escapes and strings.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "engine/grammar/grammar_priv.h"
#include "engine/token/tokenizer.h"
#include "tests/support/tok_make.h"

enum { N_TOKENS = 1600, MAX_PIECES = 7, MAX_SPELLED = 96, N_GRAMMARS = 60, STEPS = 8 };

static uint64_t seed;
static struct tokenizer *tok;
static struct grammar_vocab *vocab;

static uint32_t below(uint32_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % n;
}

/* ---- the vocabulary ---- */

static char spelled[N_TOKENS][MAX_SPELLED];
static uint32_t byte_char[256];

/* Appends bytes in the spelling of byte-level BPE. */
static size_t spell(char *to, const char *bytes)
{
	size_t n = 0;
	for (; *bytes != '\0'; bytes++)
		n += (size_t)utf8_encode(byte_char[(uint8_t)*bytes], (uint8_t *)to + n);
	return n;
}

static size_t random_token(char *to)
{
	static const char *const pieces[] = {"a",
					     "b",
					     "ab",
					     "z",
					     "A",
					     "0",
					     "17",
					     " ",
					     "  ",
					     "_",
					     "-",
					     "\"",
					     ",",
					     "\\n",
					     "\\\"",
					     "\\u00",
					     "\n",
					     "e9",
					     "name",
					     "\xC3\xA9",
					     "\xE4",
					     "\xB8",
					     "\xE4\xB8",
					     "\x96",
					     "\xE4\xB8\x96",
					     "tag",
					     "\xE2\x80\x83",
					     "\xF0\x9F\x98\x80",
					     "\x80",
					     "}"};
	size_t n = 0;
	for (uint32_t left = 1 + below(MAX_PIECES); left > 0; left--)
		n += spell(to + n, pieces[below(below(3) > 0 ? 8 : sizeof(pieces) / sizeof(*pieces))]);
	return n;
}

static int open_vocab(void **state)
{
	(void)state;
	static struct proto_str tokens[N_TOKENS];
	static int32_t attrs[N_TOKENS];
	struct sl_err err;
	uint32_t next = 0x100;
	for (unsigned b = 0; b < 256; b++) {
		bool prints = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
		byte_char[b] = prints ? b : next++;
	}
	seed = 7;
	for (unsigned i = 0; i < N_TOKENS; i++) {
		size_t n =
		    i < 256 ? (size_t)utf8_encode(byte_char[i], (uint8_t *)spelled[i]) : random_token(spelled[i]);
		tokens[i] = (struct proto_str){spelled[i], n};
		attrs[i] = i == N_TOKENS - 1 ? TOK_CONTROL : TOK_NORMAL;
	}
	struct tok_source src = {.tokens = tokens,
				 .attrs = attrs,
				 .n_tokens = N_TOKENS,
				 .bos = -1,
				 .eos = N_TOKENS - 1,
				 .eot = -1,
				 .unknown = -1,
				 .add_bos = -1};
	if (tok_make(&src, "gpt-2", NULL, &tok, &err) != 0)
		fail_msg("%s", err.text);
	return grammar_vocab_create(tok, &vocab);
}

static int close_vocab(void **state)
{
	(void)state;
	grammar_vocab_unref(vocab);
	tokenizer_destroy(tok);
	return 0;
}

/* ---- random strings ---- */

static rx text(struct rx_pool *p, const char *s) { return rx_literal(p, s, strlen(s)); }

static rx counted(struct rx_pool *p, rx a)
{
	static const uint32_t most[] = {0, 1, 2, 3, 5, 9, 17, 40, 300, RX_UNBOUNDED};
	uint32_t m = most[below(10)], l = below(3) > 0 ? 0 : below(5);
	return rx_repeat(p, a, l < m ? l : m, m);
}

static rx class(struct rx_pool *p)
{
	static const struct rx_range spaces[] = {{' ', ' '}, {0x2000, 0x200A}, {'\n', '\n'}},
				     words[] = {{'a', 'z'}, {'0', '9'}}, letter[] = {{'a', 'a'}};
	switch (below(4)) {
	case 0: return rx_chars(p, letter, 1);
	case 1: return rx_chars(p, words, 2);
	case 2: return rx_chars_except(p, spaces, 3);
	default: return rx_chars_except(p, NULL, 0);
	}
}

/* Any text that has it. */
static rx anywhere(struct rx_pool *p, const char *word)
{
	rx any = rx_repeat(p, rx_chars_except(p, NULL, 0), 0, RX_UNBOUNDED);
	return rx_cat(p, any, rx_cat(p, text(p, word), any));
}

static rx contains(struct rx_pool *p)
{
	static const char *const words[] = {"ab", "name", "\xC3\xA9", "a a"};
	return anywhere(p, words[below(4)]);
}

static rx random_text(struct rx_pool *p, int depth)
{
	rx any = rx_repeat(p, rx_chars_except(p, NULL, 0), 0, RX_UNBOUNDED);
	rx names[] = {text(p, "name"), text(p, "a"), text(p, "tag17"), text(p, "\"")};
	switch (below(depth > 2 ? 3 : 7)) {
	case 0: return counted(p, rx_chars_except(p, NULL, 0));
	case 1: return counted(p, class(p));
	case 2: return contains(p);
	case 3: return rx_and(p, any, rx_not(p, rx_or_n(p, names, 1 + below(4))));
	case 4: return rx_and(p, random_text(p, depth + 1), random_text(p, depth + 1));
	case 5: return rx_cat(p, random_text(p, depth + 1), random_text(p, depth + 1));
	default: {
		rx a = random_text(p, depth + 1), b = random_text(p, depth + 1);
		return rx_or(p, rx_and(p, a, rx_not(p, b)), rx_and(p, b, rx_and(p, any, rx_not(p, a))));
	}
	}
}

/* A list of strings of one language; NULL: there are none. */
static struct grammar *strings_of(rx (*language)(struct rx_pool *))
{
	struct rules *r = NULL;
	struct grammar *g = NULL;
	struct sl_err err;
	assert_int_equal(rules_create(NULL, &r), 0);
	struct rx_pool *p = rules_pool(r);
	rx quote = text(p, "\""), one = rx_cat(p, quote, rx_cat(p, rx_json(p, language(p)), quote));
	struct rules_sym item = rules_terminal(r, one), comma = rules_terminal(r, text(p, ",")), start = rules_new(r);
	struct rules_sym list = rules_repeat(r, item, &comma, 1, 1, RX_UNBOUNDED);
	struct rules_sym of[] = {list, rules_terminal(r, text(p, "}"))};
	rules_add(r, start, of, 2);
	rules_start(r, start);
	int rc = grammar_create(vocab, r, NULL, &g, &err);
	assert_true(rc == 0 || rc == SL_EINVAL || rc == SL_ELIMIT);
	return rc == 0 ? g : NULL;
}

static rx some_text(struct rx_pool *p) { return random_text(p, 0); }
static struct grammar *random_grammar(void) { return strings_of(some_text); }

/* ---- masks ---- */

static bool has(const uint32_t *mask, int32_t id) { return (mask[id / 32] >> (id % 32) & 1) != 0; }

static bool follows(const struct grammar_state *s, int32_t id)
{
	struct grammar_state t;
	grammar_state_copy(&t, s);
	struct proto_str b = tokenizer_bytes(tok, id);
	bool may = id < N_TOKENS - 1 && grammar_accept_bytes(&t, b.at, b.n) == 0;
	grammar_state_dispose(&t);
	return may;
}

/* Compares, and counts what is permitted. */
static uint32_t check(const struct grammar_state *s, const uint32_t *mask, unsigned grammar)
{
	uint32_t n = 0;
	for (int32_t id = 0; id < N_TOKENS; id++) {
		struct proto_str b = tokenizer_bytes(tok, id);
		if (has(mask, id) != follows(s, id))
			fail_msg("grammar %u, token %d (%.*s) after %.*s: %d", grammar, id, (int)b.n, b.at, s->n_tail,
				 s->tail, has(mask, id));
		n += has(mask, id);
	}
	return n;
}

static int32_t nth(const uint32_t *mask, uint32_t n)
{
	int32_t id = 0;
	while (!has(mask, id) || n-- > 0)
		id++;
	return id;
}

static uint32_t walk(struct grammar *g, unsigned grammar)
{
	struct grammar_state s;
	uint32_t mask[(N_TOKENS + 31) / 32], total = 0;
	int32_t forced;
	assert_int_equal(grammar_state_init(&s, g), 0);
	for (int i = 0; i < STEPS; i++) {
		int rc = grammar_mask(&s, mask);
		assert_true(rc == 0 || rc == SL_ELIMIT);
		if (rc != 0)
			break;
		uint32_t n = grammar_forced(&s, &forced, 1) == 1 ? 1 : check(&s, mask, grammar);
		if (n == 0)
			break;
		total += n;
		assert_int_equal(grammar_accept(&s, nth(mask, below(n))), 0);
	}
	grammar_state_dispose(&s);
	return total;
}

static void test_random(void **state)
{
	(void)state;
	uint32_t made = 0, permitted = 0;
	for (unsigned i = 0; i < N_GRAMMARS; i++) {
		seed = i;
		struct grammar *g = random_grammar();
		if (g == NULL)
			continue;
		made++;
		permitted += walk(g, i);
		permitted += walk(g, i);
		grammar_unref(g);
	}
	assert_true(made > N_GRAMMARS / 3);
	assert_true(permitted > made * 100);
}

/* A mask that takes too much work leaves the next one of the same grammar as it should be. */
static void test_after_shortage(void **state)
{
	(void)state;
	seed = 378922;
	struct grammar *g = random_grammar();
	assert_non_null(g);
	walk(g, 0);
	walk(g, 0);
	grammar_unref(g);
}

/* ---- states expanded in advance ---- */

/* Exactly one of the words occurs: a oneOf of patterns. */
static rx exactly_one(struct rx_pool *p, const char *const *words, size_t n)
{
	rx one[4], r = RX_NONE;
	assert_true(n <= 4);
	for (size_t i = 0; i < n; i++)
		one[i] = anywhere(p, words[i]);
	for (size_t i = 0; i < n; i++) {
		rx only = one[i];
		for (size_t k = 0; k < n; k++)
			only = k == i ? only : rx_and(p, only, rx_not(p, one[k]));
		r = rx_or(p, r, only);
	}
	return r;
}

static rx short_words(struct rx_pool *p)
{
	static const char *const words[] = {"name", "tag17", "ab", "zzA"};
	return exactly_one(p, words, 4);
}

/* More states than are expanded in advance. */
static rx long_words(struct rx_pool *p)
{
	char words[3][201] = {{0}};
	for (int i = 0; i < 3; i++)
		memset(words[i], "azA"[i], 200);
	return exactly_one(p, (const char *const[]){words[0], words[1], words[2]}, 3);
}

static rx no_names(struct rx_pool *p) { return rx_not(p, rx_or(p, text(p, "name"), text(p, "tag17"))); }

static uint32_t expanded(const struct grammar *g)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < g->a.dfa.n; i++)
		n += g->a.dfa.states[i].pruned;
	return n;
}

/* All masks along a text are those of the same grammar without states in advance. */
static void compare_masks(struct grammar *ahead, struct grammar *lazy, const char *along)
{
	struct grammar_state s, t;
	uint32_t a[(N_TOKENS + 31) / 32] = {0}, b[(N_TOKENS + 31) / 32] = {0};
	assert_int_equal(grammar_state_init(&s, ahead), 0);
	assert_int_equal(grammar_state_init(&t, lazy), 0);
	for (; *along != '\0'; along++) {
		assert_int_equal(grammar_mask(&s, a), 0);
		assert_int_equal(grammar_mask(&t, b), 0);
		assert_memory_equal(a, b, sizeof(a));
		assert_int_equal(grammar_accept_bytes(&s, along, 1), 0);
		assert_int_equal(grammar_accept_bytes(&t, along, 1), 0);
	}
	grammar_state_dispose(&s);
	grammar_state_dispose(&t);
}

/* Dropping what can be computed again drops the states in advance too. */
static void test_ahead(void **state)
{
	(void)state;
	static rx (*const of[])(struct rx_pool *) = {short_words, long_words};
	for (int i = 0; i < 2; i++) {
		struct grammar *ahead = strings_of(of[i]), *lazy = strings_of(of[i]);
		uint32_t n = ahead->a.n_ahead;
		assert_true(n > 20 && n <= AUTO_AHEAD);
		assert_int_equal(expanded(ahead), n);
		assert_int_equal(auto_collect(&lazy->a), 0);
		assert_int_equal(expanded(lazy), 0);
		compare_masks(ahead, lazy, i == 0 ? "\"a \xC3\xA9 a\\u0062 zz--\",\"tag1tag17\"" : "\"aaa zA17aaaa");
		/* The masks used them. */
		assert_true(expanded(lazy) > 20);
		assert_true(expanded(ahead) - n < expanded(lazy));
		grammar_unref(ahead);
		grammar_unref(lazy);
	}
}

static void test_ahead_bound(void **state)
{
	(void)state;
	struct grammar *many = strings_of(long_words), *light = strings_of(no_names);
	assert_int_equal(many->a.n_ahead, AUTO_AHEAD);
	assert_int_equal(auto_fault(&many->a), 0);
	assert_int_equal(light->a.n_ahead, 0);
	grammar_unref(many);
	grammar_unref(light);
}

/* ---- slices ---- */

/* The mask in slices. After each, `other` wants one too, which finishes what is unfinished first. */
static uint32_t mask_in_slices(struct grammar_state *s, struct grammar_state *other, uint32_t *mask)
{
	uint32_t n = 0, ignored[(N_TOKENS + 31) / 32];
	int rc;
	while ((rc = grammar_mask_within(s, mask, 1 + below(20))) == SL_EAGAIN) {
		assert_true(++n < 1000000);
		rc = grammar_mask_within(other, ignored, 1);
		assert_true(rc == 0 || rc == SL_EAGAIN);
	}
	assert_int_equal(rc, 0);
	return n;
}

/* All masks along an answer are the same at once and in slices. *n: slices that did not finish theirs. */
static void compare_slices(struct grammar *whole, struct grammar *sliced, uint32_t *n)
{
	struct grammar_state s, t, other;
	uint32_t a[(N_TOKENS + 31) / 32] = {0}, b[(N_TOKENS + 31) / 32] = {0};
	assert_int_equal(grammar_state_init(&s, whole), 0);
	assert_int_equal(grammar_state_init(&t, sliced), 0);
	assert_int_equal(grammar_state_init(&other, sliced), 0);
	for (int i = 0; i < STEPS; i++) {
		uint32_t n_ids = 0;
		if (grammar_mask(&s, a) != 0)
			break; /* and t would fail likewise */
		*n += mask_in_slices(&t, &other, b);
		assert_memory_equal(a, b, sizeof(a));
		for (int32_t id = 0; id < N_TOKENS; id++)
			n_ids += has(a, id);
		if (n_ids == 0)
			break;
		int32_t id = nth(a, below(n_ids));
		assert_int_equal(grammar_accept(&s, id), 0);
		assert_int_equal(grammar_accept(&t, id), 0);
	}
	grammar_state_dispose(&s);
	grammar_state_dispose(&t);
	grammar_state_dispose(&other);
}

static void test_slices(void **state)
{
	(void)state;
	uint32_t n = 0, n_random = 0;
	for (int i = 0; i < 8; i++) {
		seed = (uint64_t)i;
		struct grammar *whole = strings_of(i % 2 == 0 ? short_words : long_words);
		struct grammar *sliced = strings_of(i % 2 == 0 ? short_words : long_words);
		compare_slices(whole, sliced, &n);
		grammar_unref(whole);
		grammar_unref(sliced);
	}
	for (unsigned i = 0; i < N_GRAMMARS; i++) {
		seed = i;
		struct grammar *whole = random_grammar();
		seed = i;
		struct grammar *sliced = random_grammar();
		if (whole != NULL)
			compare_slices(whole, sliced, &n_random);
		grammar_unref(whole);
		grammar_unref(sliced);
	}
	assert_true(n > 1000 && n_random > 1000);
}

/* What is dropped between two slices is made again. */
static void test_slices_after_collection(void **state)
{
	(void)state;
	struct grammar *whole = strings_of(short_words), *sliced = strings_of(short_words);
	struct grammar_state s, t;
	uint32_t a[(N_TOKENS + 31) / 32] = {0}, b[(N_TOKENS + 31) / 32] = {0};
	assert_int_equal(grammar_state_init(&s, whole), 0);
	assert_int_equal(grammar_state_init(&t, sliced), 0);
	assert_int_equal(grammar_accept_bytes(&s, "\"ab", 3), 0);
	assert_int_equal(grammar_accept_bytes(&t, "\"ab", 3), 0);
	assert_int_equal(grammar_mask(&s, a), 0);
	for (int i = 0; i < 20; i++)
		assert_int_equal(grammar_mask_within(&t, b, 1), SL_EAGAIN);
	assert_true(sliced->unfinished.config != 0);
	sliced->next_states = 0; /* its caches are too large from now on */
	assert_int_equal(grammar_mask_within(&t, b, 1), SL_EAGAIN);
	assert_true(expanded(sliced) <= 2);
	assert_int_equal(grammar_mask(&t, b), 0);
	assert_memory_equal(a, b, sizeof(a));
	grammar_state_dispose(&s);
	grammar_state_dispose(&t);
	grammar_unref(whole);
	grammar_unref(sliced);
}

/* Without work nothing is computed, so nothing is spent; what is known is answered. */
static void test_no_work(void **state)
{
	(void)state;
	struct grammar *g = strings_of(short_words);
	struct grammar_state s;
	uint32_t mask[(N_TOKENS + 31) / 32] = {0};
	assert_int_equal(grammar_state_init(&s, g), 0);
	assert_int_equal(grammar_accept_bytes(&s, "\"", 1), 0);
	uint64_t before = grammar_spent();
	for (int i = 0; i < 3; i++)
		assert_int_equal(grammar_mask_within(&s, mask, 0), SL_EAGAIN);
	const uint32_t at = s.at;
	assert_int_equal(grammar_accept_within(&s, 'b', 0), SL_EAGAIN);
	assert_int_equal(s.at, at);
	assert_int_equal(grammar_spent(), before);
	assert_int_equal(grammar_mask(&s, mask), 0);
	assert_true(grammar_spent() > before);
	before = grammar_spent();
	assert_int_equal(grammar_mask_within(&s, mask, 0), 0);
	assert_int_equal(grammar_spent(), before);
	grammar_state_dispose(&s);
	grammar_unref(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_work),
					   cmocka_unit_test(test_slices),
					   cmocka_unit_test(test_slices_after_collection),
					   cmocka_unit_test(test_random),
					   cmocka_unit_test(test_after_shortage),
					   cmocka_unit_test(test_ahead),
					   cmocka_unit_test(test_ahead_bound)};
	return cmocka_run_group_tests(tests, open_vocab, close_vocab);
}
