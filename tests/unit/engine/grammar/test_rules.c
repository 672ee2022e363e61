/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/grammar: random grammars (left recursion, nullable symbols, repetitions, rules without strings) against a
 * naive recognizer of spans on all short texts; a text that is followed can be completed; masks against one token
 * after the other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/grammar/grammar.h"
#include "tests/unit/engine/grammar/small_vocab.h"

static uint64_t seed;

static uint32_t below(uint32_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % n;
}

/* ---- a grammar as data ---- */

enum { RULES = 5, ALTS = 3, SYMS = 3, TERMS = 6, MAX_TEXT = 6 };

/* Symbols: 0 to RULES - 1 are rules, then terminals. */
struct alt {
	int n, of[SYMS];
};
struct rule {
	bool repeat;
	int n_alts;
	struct alt alts[ALTS];
	int s, n_between, between[2];
	uint32_t least, most;
};
static struct rule rule[RULES];

/* Terminals, and what they match, as a test of text[i, j). */
static rx terminal(struct rx_pool *p, int t)
{
	rx a = rx_literal(p, "a", 1), b = rx_literal(p, "b", 1);
	switch (t) {
	case 0: return a;
	case 1: return b;
	case 2: return rx_repeat(p, a, 0, RX_UNBOUNDED);
	case 3: return rx_literal(p, "ab", 2);
	case 4: return RX_EPS;
	default: return rx_and(p, rx_repeat(p, a, 1, 2), rx_repeat(p, b, 1, 2)); /* none */
	}
}

static bool is_terminal(int t, const char *text, int n)
{
	switch (t) {
	case 0: return n == 1 && text[0] == 'a';
	case 1: return n == 1 && text[0] == 'b';
	case 2: return memchr(text, 'b', (size_t)n) == NULL;
	case 3: return n == 2 && memcmp(text, "ab", 2) == 0;
	case 4: return n == 0;
	default: return false;
	}
}

static int symbol(void)
{
	return (int)(below(5) < 2 ? below(RULES) : below(20) == 0 ? RULES + 4 + below(2) : RULES + below(4));
}

static void grow(void)
{
	for (int i = 0; i < RULES; i++) {
		struct rule *r = &rule[i];
		*r = (struct rule){.repeat = i > 0 && below(4) == 0, .n_alts = 1 + (int)below(ALTS)};
		for (int k = 0; k < ALTS; k++) {
			r->alts[k].n = (int)below(SYMS + 1);
			for (int m = 0; m < SYMS; m++)
				r->alts[k].of[m] = symbol();
		}
		r->s = symbol();
		r->n_between = (int)below(3);
		r->between[0] = symbol();
		r->between[1] = symbol();
		r->least = below(4);
		r->most = below(3) == 0 ? RX_UNBOUNDED : r->least + below(3);
	}
}

/* ---- the naive recognizer: derives[rule] has bit j of row i where it derives text[i, j) ---- */

static int limits;
static unsigned derives[RULES][MAX_TEXT + 1];

static unsigned from_one(int sym, const char *text, int n, int i)
{
	unsigned to = 0;
	if (sym < RULES)
		return derives[sym][i];
	for (int j = i; j <= n; j++)
		if (is_terminal(sym - RULES, text + i, j - i))
			to |= 1u << j;
	return to;
}

static unsigned from_all(int sym, const char *text, int n, unsigned at)
{
	unsigned to = 0;
	for (int i = 0; i <= n; i++)
		if ((at >> i & 1) != 0)
			to |= from_one(sym, text, n, i);
	return to;
}

static unsigned repeat_from(const struct rule *r, const char *text, int n, int i)
{
	unsigned all = r->least == 0 ? 1u << i : 0;
	unsigned at = r->most > 0 ? from_one(r->s, text, n, i) : 0;
	for (uint32_t k = 1; k <= r->most && k <= r->least + (uint32_t)n + 2; k++) {
		if (k >= r->least)
			all |= at;
		for (int b = 0; b < r->n_between; b++)
			at = from_all(r->between[b], text, n, at);
		at = from_all(r->s, text, n, at);
	}
	return all;
}

static unsigned rule_from(const struct rule *r, const char *text, int n, int i)
{
	unsigned all = 0;
	if (r->repeat)
		return repeat_from(r, text, n, i);
	for (int k = 0; k < r->n_alts; k++) {
		unsigned at = 1u << i;
		for (int m = 0; m < r->alts[k].n; m++)
			at = from_all(r->alts[k].of[m], text, n, at);
		all |= at;
	}
	return all;
}

static bool recognizes(const char *text, int n)
{
	memset(derives, 0, sizeof(derives));
	for (bool more = true; more;) {
		more = false;
		for (int r = 0; r < RULES; r++)
			for (int i = 0; i <= n; i++) {
				unsigned now = derives[r][i] | rule_from(&rule[r], text, n, i);
				more |= now != derives[r][i];
				derives[r][i] = now;
			}
	}
	return (derives[0][0] >> n & 1) != 0;
}

/* ---- the same grammar, built ---- */

static struct rules *build(void)
{
	struct rules *r = NULL;
	struct rules_sym of[RULES + TERMS], alt[SYMS];
	assert_int_equal(rules_create(NULL, &r), 0);
	for (int t = 0; t < TERMS; t++)
		of[RULES + t] = rules_terminal(r, terminal(rules_pool(r), t));
	/* A repetition is a rule of one alternative here, so that it can be named before it is made. */
	for (int i = 0; i < RULES; i++)
		of[i] = rules_new(r);
	for (int i = 0; i < RULES; i++) {
		const struct rule *g = &rule[i];
		if (g->repeat) {
			struct rules_sym between[2] = {of[g->between[0]], of[g->between[1]]};
			alt[0] = rules_repeat(r, of[g->s], between, (size_t)g->n_between, g->least, g->most);
			rules_add(r, of[i], alt, 1);
			continue;
		}
		for (int k = 0; k < g->n_alts; k++) {
			for (int m = 0; m < g->alts[k].n; m++)
				alt[m] = of[g->alts[k].of[m]];
			rules_add(r, of[i], alt, (size_t)g->alts[k].n);
		}
	}
	rules_start(r, of[0]);
	assert_int_equal(rules_fault(r), 0);
	return r;
}

static void spell(int code, int n, char *text)
{
	for (int i = 0; i < n; i++)
		text[i] = (code >> i & 1) != 0 ? 'b' : 'a';
}

static void check_texts(struct grammar *g, int round)
{
	for (int n = 0; n <= MAX_TEXT; n++)
		for (int code = 0; code < 1 << n; code++) {
			char text[MAX_TEXT];
			struct grammar_state s;
			spell(code, n, text);
			assert_int_equal(grammar_state_init(&s, g), 0);
			int rc = grammar_accept_bytes(&s, text, (size_t)n);
			bool is = rc == 0 && grammar_may_end(&s);
			if (rc != SL_EINVAL && rc != 0)
				fail_msg("round %d: %s", round, sl_code_name(rc));
			if (is != recognizes(text, n))
				fail_msg("round %d: %.*s is %d", round, n, text, is);
			grammar_state_dispose(&s);
		}
}

/* From every state some text leads to an end: a search, breadth first by copies of states. */
static bool completes(const struct grammar_state *from, int depth)
{
	struct grammar_state s;
	grammar_state_copy(&s, from);
	bool ends = grammar_may_end(&s), must = grammar_must_end(&s);
	grammar_state_dispose(&s);
	assert_true(ends || !must);
	for (int b = 0; b < 2 && !ends && depth > 0; b++) {
		grammar_state_copy(&s, from);
		if (grammar_accept_bytes(&s, b == 0 ? "a" : "b", 1) == 0)
			ends = completes(&s, depth - 1);
		grammar_state_dispose(&s);
	}
	return ends;
}

static void check_masks(struct grammar *g, const struct grammar_state *from, int depth)
{
	struct grammar_state s;
	uint32_t mask[SMALL_WORDS];
	grammar_state_copy(&s, from);
	int rc = grammar_mask(&s, mask);
	/* As ambiguous as a few are, a mask may be too much work. */
	if (rc == SL_ELIMIT) {
		limits++;
		grammar_state_dispose(&s);
		return;
	}
	assert_int_equal(rc, 0);
	size_t any = 0;
	for (int32_t id = 0; id < SMALL_TOKENS; id++) {
		bool has = (mask[id / 32] >> (id % 32) & 1) != 0;
		struct grammar_state t;
		grammar_state_copy(&t, from);
		struct proto_str text = tokenizer_bytes(small_tokenizer, id);
		bool may = small_is_text(id) && grammar_accept_bytes(&t, text.at, text.n) == 0;
		if (has != may)
			fail_msg("token %d (%.*s): %d", id, (int)text.n, text.at, has);
		assert_int_equal(grammar_permits(&s, id), may);
		if (may && depth > 0)
			check_masks(g, &t, depth - 1);
		any += may;
		grammar_state_dispose(&t);
	}
	assert_true(any > 0 || grammar_must_end(&s));
	grammar_state_dispose(&s);
}

static void test_random(void **state)
{
	struct grammar_vocab *v = *state;
	int strings = 0;
	for (int round = 0; round < 1500; round++) {
		struct grammar *g = NULL;
		struct sl_err err;
		seed = (uint64_t)round * 77;
		grow();
		int rc = grammar_create(v, build(), NULL, &g, &err);
		if (rc == SL_EINVAL) {
			for (int n = 0; n <= MAX_TEXT; n++)
				for (int code = 0; code < 1 << n; code++) {
					char text[MAX_TEXT];
					spell(code, n, text);
					assert_false(recognizes(text, n));
				}
			continue;
		}
		if (rc != 0)
			fail_msg("round %d: %s", round, sl_code_name(rc));
		strings++;
		check_texts(g, round);
		struct grammar_state s;
		grammar_state_init(&s, g);
		assert_true(completes(&s, 16));
		check_masks(g, &s, 1);
		grammar_state_dispose(&s);
		grammar_unref(g);
	}
	assert_true(limits < 10);
	assert_true(strings > 500);
}

static int setup(void **state)
{
	struct grammar_vocab *v = NULL;
	small_open();
	assert_int_equal(grammar_vocab_create(small_tokenizer, &v), 0);
	*state = v;
	return 0;
}

static int teardown(void **state)
{
	grammar_vocab_unref(*state);
	small_close();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
