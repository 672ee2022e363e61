/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/grammar with a tokenizer of a demonstration model: masks of JSON against one token after the other, forced
 * tokens, copies, limits, hostile grammars.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/grammar/grammar.h"
#include "engine/token/tokenizer.h"

static struct tokenizer *tok;
static struct grammar_vocab *vocab;

/* ---- grammars ---- */

static rx chars(struct rx_pool *p, uint32_t from, uint32_t to) { return rx_chars(p, &(struct rx_range){from, to}, 1); }
static rx text(struct rx_pool *p, const char *s) { return rx_literal(p, s, strlen(s)); }

static rx quoted(struct rx_pool *p, rx inside)
{
	return rx_cat(p, text(p, "\""), rx_cat(p, rx_json(p, inside), text(p, "\"")));
}

static rx any_text(struct rx_pool *p, uint32_t least, uint32_t most)
{
	return rx_repeat(p, rx_chars_except(p, NULL, 0), least, most);
}

static rx number(struct rx_pool *p)
{
	rx digits = rx_repeat(p, chars(p, '0', '9'), 1, RX_UNBOUNDED);
	return rx_cat(p, rx_repeat(p, text(p, "-"), 0, 1), digits);
}

/* {"name":<string of at most 40>,"tags":[<lower case words>],<other>:<number or object>} */
static struct rules *person(void)
{
	struct rules *r = NULL;
	assert_int_equal(rules_create(NULL, &r), 0);
	struct rx_pool *p = rules_pool(r);
	struct rules_sym start = rules_new(r), value = rules_new(r), member = rules_new(r);
	struct rules_sym comma = rules_terminal(r, text(p, ","));
	rx names[] = {text(p, "name"), text(p, "tags")};
	rx other = quoted(p, rx_and(p, any_text(p, 0, RX_UNBOUNDED), rx_not(p, rx_or_n(p, names, 2))));
	rx word = quoted(p, rx_and(p, any_text(p, 2, 12), rx_repeat(p, chars(p, 'a', 'z'), 1, RX_UNBOUNDED)));
	rules_add(r, member, (struct rules_sym[]){rules_terminal(r, other), rules_terminal(r, text(p, ":")), value}, 3);
	rules_add(r, value, (struct rules_sym[]){rules_terminal(r, number(p))}, 1);
	struct rules_sym members = rules_repeat(r, member, &comma, 1, 0, RX_UNBOUNDED);
	rules_add(r, value,
		  (struct rules_sym[]){rules_terminal(r, text(p, "{")), members, rules_terminal(r, text(p, "}"))}, 3);
	struct rules_sym list[] = {rules_terminal(r, text(p, "{\"name\":")),
				   rules_terminal(r, quoted(p, any_text(p, 0, 40))),
				   rules_terminal(r, text(p, ",\"tags\":[")),
				   rules_repeat(r, rules_terminal(r, word), &comma, 1, 0, 3),
				   rules_terminal(r, text(p, "],")),
				   member,
				   rules_terminal(r, text(p, "}"))};
	rules_add(r, start, list, sizeof(list) / sizeof(list[0]));
	rules_start(r, start);
	assert_int_equal(rules_fault(r), 0);
	return r;
}

static struct grammar *make(struct rules *r, const struct grammar_limits *limits)
{
	struct grammar *g = NULL;
	struct sl_err err;
	assert_int_equal(grammar_create(vocab, r, limits, &g, &err), 0);
	return g;
}

static const char *const people[] = {
    "{\"name\":\"Ann\",\"tags\":[],\"age\":42}",
    "{\"name\":\"A \\\"b\\\" \\u00e9\xC3\xA9\xF0\x9F\x98\x80 of the "
    "wall\",\"tags\":[\"red\",\"green\"],\"x\":{\"y\":{},\"z\":-1}}",
    "{\"name\":\"0123456789012345678901234567890123456789\",\"tags\":[\"ab\"],\"tagsy\":{}}",
};
enum { N_PEOPLE = sizeof(people) / sizeof(people[0]) };

static size_t words(void) { return grammar_vocab_mask_words(vocab); }
static bool has(const uint32_t *mask, int32_t id) { return (mask[id / 32] >> (id % 32) & 1) != 0; }

static bool is_text(int32_t id)
{
	enum tok_attr a = tokenizer_attr(tok, id);
	return (a == TOK_NORMAL || a == TOK_USER || a == TOK_BYTE) && tokenizer_bytes(tok, id).n > 0;
}

/* ---- masks ---- */

/* Of the grammar alone: whether a token's bytes may follow. */
static bool follows(const struct grammar_state *s, int32_t id)
{
	struct grammar_state t;
	grammar_state_copy(&t, s);
	struct proto_str b = tokenizer_bytes(tok, id);
	bool may = is_text(id) && grammar_accept_bytes(&t, b.at, b.n) == 0;
	grammar_state_dispose(&t);
	return may;
}

static void check_mask(struct grammar_state *s, const uint32_t *mask)
{
	int32_t forced[1];
	size_t n_forced = grammar_forced(s, forced, 1);
	for (int32_t id = 0; id < tokenizer_n_vocab(tok); id++) {
		bool may = n_forced > 0 ? id == forced[0] : follows(s, id);
		if (has(mask, id) != may)
			fail_msg("token %d (%.*s) after %.*s: %d", id, (int)tokenizer_bytes(tok, id).n,
				 tokenizer_bytes(tok, id).at, s->n_tail, s->tail, has(mask, id));
		if (id % 16 == 0)
			assert_int_equal(grammar_permits(s, id), may);
	}
	if (n_forced > 0)
		assert_true(follows(s, forced[0]));
}

/* The canonical tokens of a whole text pass, and every mask on the way is what it should be. */
static void walk(struct grammar *g, const char *of, bool check)
{
	struct grammar_state s;
	struct tok_ids ids = {0};
	uint32_t *mask = malloc(words() * sizeof(*mask));
	assert_int_equal(tokenizer_encode(tok, of, strlen(of), NULL, &ids), 0);
	assert_int_equal(grammar_state_init(&s, g), 0);
	for (size_t i = 0; i < ids.n; i++) {
		assert_int_equal(grammar_mask(&s, mask), 0);
		if (check)
			check_mask(&s, mask);
		assert_true(has(mask, ids.ids[i]));
		assert_int_equal(grammar_accept(&s, ids.ids[i]), 0);
	}
	assert_true(grammar_may_end(&s));
	assert_true(grammar_must_end(&s));
	grammar_state_dispose(&s);
	tok_ids_dispose(&ids);
	free(mask);
}

static void test_masks(void **state)
{
	(void)state;
	struct grammar *g = make(person(), NULL);
	for (int i = 0; i < N_PEOPLE; i++)
		walk(g, people[i], true);
	grammar_unref(g);
}

/* With caches dropped at every turn, masks are the same. */
static void test_dropped(void **state)
{
	(void)state;
	struct grammar *g = make(person(), NULL), *h = make(person(), &(struct grammar_limits){.max_states = 1});
	uint32_t *a = malloc(words() * sizeof(*a)), *b = malloc(words() * sizeof(*b));
	for (int i = 0; i < N_PEOPLE; i++) {
		struct grammar_state s, t, kept;
		grammar_state_init(&s, g);
		grammar_state_init(&t, h);
		grammar_state_init(&kept, h);
		for (const char *c = people[i]; *c != '\0'; c++) {
			assert_int_equal(grammar_accept_bytes(&s, c, 1), 0);
			assert_int_equal(grammar_accept_bytes(&t, c, 1), 0);
			assert_int_equal(grammar_mask(&s, a), 0);
			assert_int_equal(grammar_mask(&t, b), 0);
			assert_memory_equal(a, b, words() * sizeof(*a));
			if (c == people[i] + 12) {
				grammar_state_dispose(&kept);
				grammar_state_copy(&kept, &t);
			}
		}
		assert_true(grammar_may_end(&t));
		/* A state that waited through it all is as it was. */
		assert_int_equal(grammar_accept_bytes(&kept, people[i] + 13, strlen(people[i]) - 13), 0);
		assert_true(grammar_must_end(&kept));
		grammar_state_dispose(&s);
		grammar_state_dispose(&t);
		grammar_state_dispose(&kept);
	}
	free(a);
	free(b);
	grammar_unref(g);
	grammar_unref(h);
}

/* ---- forced tokens ---- */

static void test_forced(void **state)
{
	(void)state;
	struct grammar *g = make(person(), NULL);
	struct grammar_state s, t;
	int32_t ids[16], again[16];
	struct tok_ids whole = {0};
	assert_int_equal(tokenizer_encode(tok, people[0], strlen(people[0]), NULL, &whole), 0);
	grammar_state_init(&s, g);
	/* Asked for again, the text is not encoded again. */
	assert_int_equal(grammar_forced(&s, ids, 1), 1);
	uint64_t spent = grammar_spent();
	assert_int_equal(grammar_forced(&s, ids, 1), 1);
	assert_int_equal(grammar_spent(), spent);
	size_t n = grammar_forced(&s, ids, 16);
	assert_true(n > 0 && n <= whole.n);
	assert_memory_equal(ids, whole.ids, n * sizeof(*ids));
	for (size_t i = 0; i < n; i++) {
		/* In the middle of them a copy, and a state that came here by bytes, have the same ones to come. */
		grammar_state_copy(&t, &s);
		assert_int_equal(grammar_forced(&t, again, 16), n - i);
		assert_memory_equal(again, ids + i, (n - i) * sizeof(*ids));
		assert_int_equal(grammar_forced(&t, again, 1), 1);
		assert_false(grammar_permits(&t, ids[i] + 1));
		assert_int_equal(grammar_accept(&t, ids[i] + 1), SL_EINVAL);
		grammar_state_dispose(&t);
		struct proto_str b = tokenizer_bytes(tok, ids[i]);
		if (i % 2 == 0)
			assert_int_equal(grammar_accept(&s, ids[i]), 0);
		else
			assert_int_equal(grammar_accept_bytes(&s, b.at, b.n), 0);
	}
	assert_int_equal(grammar_forced(&s, ids, 16), 0);
	tok_ids_dispose(&whole);
	grammar_state_dispose(&s);
	grammar_unref(g);
}

/* ---- hostile ---- */

static int feed(struct rules *r, const char *unit, size_t times)
{
	struct grammar *g = NULL;
	struct grammar_state s;
	struct sl_err err;
	uint32_t *mask = malloc(words() * sizeof(*mask));
	int rc = grammar_create(vocab, r, NULL, &g, &err);
	if (rc == 0) {
		grammar_state_init(&s, g);
		for (size_t i = 0; i < times && rc == 0; i++) {
			rc = grammar_accept_bytes(&s, unit, strlen(unit));
			if (rc == 0 && i % 100 == 0)
				rc = grammar_mask(&s, mask);
		}
		grammar_state_dispose(&s);
		grammar_unref(g);
	}
	free(mask);
	return rc;
}

static struct rules *of_terminal(struct rules *r, rx t)
{
	struct rules_sym start = rules_new(r), sym = rules_terminal(r, t);
	rules_add(r, start, &sym, 1);
	rules_start(r, start);
	return r;
}

static struct rules *begin(void)
{
	struct rules *r = NULL;
	assert_int_equal(rules_create(NULL, &r), 0);
	return r;
}

static void test_counters(void **state)
{
	(void)state;
	struct rules *r = begin();
	struct rx_pool *p = rules_pool(r);
	assert_int_equal(feed(of_terminal(r, rx_repeat(p, text(p, "a"), 1000000, 1000000)), "a", 1000), 0);
	r = begin();
	p = rules_pool(r);
	rx one = text(p, "a"), many = rx_repeat(p, rx_or(p, one, rx_or(p, one, one)), 0, RX_UNBOUNDED);
	assert_int_equal(feed(of_terminal(r, many), "a", 1000), 0);
	/* Ambiguous counters in counters: it ends, one way or another. */
	r = begin();
	p = rules_pool(r);
	rx nested = text(p, "a");
	for (int i = 0; i < 6; i++)
		nested = rx_repeat(p, rx_or(p, nested, rx_cat(p, nested, nested)), 2, 50);
	int rc = feed(of_terminal(r, nested), "a", 300);
	assert_true(rc == 0 || rc == SL_ELIMIT);
	r = begin();
	struct rules_sym s = rules_terminal(r, text(rules_pool(r), "a")), start = rules_new(r);
	for (int i = 0; i < 6; i++)
		s = rules_repeat(r, s, NULL, 0, 0, 1000000);
	rules_add(r, start, &s, 1);
	rules_start(r, start);
	rc = feed(r, "a", 300);
	assert_true(rc == 0 || rc == SL_ELIMIT);
}

static void test_deep(void **state)
{
	(void)state;
	/* S → ( S ) | S S | nothing: deep, and as ambiguous as can be. */
	struct rules *r = begin();
	struct rx_pool *p = rules_pool(r);
	struct rules_sym start = rules_new(r), open = rules_terminal(r, text(p, "(")),
			 shut = rules_terminal(r, text(p, ")"));
	rules_add(r, start, (struct rules_sym[]){open, start, shut}, 3);
	rules_add(r, start, NULL, 0);
	rules_start(r, start);
	assert_int_equal(feed(r, "(", 20000), 0);
	r = begin();
	p = rules_pool(r);
	start = rules_new(r);
	struct rules_sym a = rules_terminal(r, text(p, "a"));
	rules_add(r, start, (struct rules_sym[]){start, start}, 2);
	rules_add(r, start, &a, 1);
	rules_add(r, start, NULL, 0);
	rules_start(r, start);
	int rc = feed(r, "a", 300);
	assert_true(rc == 0 || rc == SL_ELIMIT);
	/* a long left recursion, and a right one */
	for (int left = 0; left < 2; left++) {
		r = begin();
		a = rules_terminal(r, text(rules_pool(r), "a"));
		start = rules_new(r);
		rules_add(r, start, left ? (struct rules_sym[]){start, a} : (struct rules_sym[]){a, start}, 2);
		rules_add(r, start, &a, 1);
		rules_start(r, start);
		assert_int_equal(feed(r, "a", 5000), 0);
	}
}

static void test_large(void **state)
{
	(void)state;
	enum { N = 40000 };
	struct rules *r = begin();
	struct rx_pool *p = rules_pool(r);
	rx *of = malloc(N * sizeof(*of));
	char line[40];
	for (int i = 0; i < N; i++) {
		snprintf(line, sizeof(line), "%08x-value-%d", (unsigned)i * 2654435761u, i);
		of[i] = text(p, line);
	}
	rx all = quoted(p, rx_or_n(p, of, N));
	free(of);
	assert_int_equal(rules_fault(r), 0);
	snprintf(line, sizeof(line), "\"%08x-value-%d\"", 7u * 2654435761u, 7);
	assert_int_equal(feed(of_terminal(r, all), line, 1), 0);
}

static void test_none(void **state)
{
	(void)state;
	struct rules *r = begin();
	struct rules_sym start = rules_new(r);
	rules_add(r, start, &start, 1);
	rules_start(r, start);
	struct grammar *g = NULL;
	struct sl_err err = {0};
	assert_int_equal(grammar_create(vocab, r, NULL, &g, &err), SL_EINVAL);
	assert_string_equal(err.text, "the grammar has no string");
	assert_null(g);
}

/* ---- control tokens ---- */

static int32_t control(int32_t from)
{
	for (int32_t id = from; id < tokenizer_n_vocab(tok); id++)
		if (tokenizer_attr(tok, id) == TOK_CONTROL && tokenizer_bytes(tok, id).n > 0)
			return id;
	fail_msg("the tokenizer has no control token");
	return -1;
}

static rx word_of(struct rx_pool *p, int32_t id)
{
	struct proto_str b = tokenizer_bytes(tok, id);
	rx mark = rx_literal(p, "\xFF", 1);
	return rx_cat(p, mark, rx_cat(p, rx_literal(p, b.at, b.n), mark));
}

static void accept_text(struct grammar_state *s, const char *of)
{
	struct tok_ids ids = {0};
	assert_int_equal(tokenizer_encode(tok, of, strlen(of), NULL, &ids), 0);
	for (size_t i = 0; i < ids.n; i++)
		assert_int_equal(grammar_accept(s, ids.ids[i]), 0);
	tok_ids_dispose(&ids);
}

/* Exactly the tokens of the list may come. */
static void expect_only(struct grammar_state *s, const int32_t *ids, size_t n)
{
	uint32_t *mask = calloc(words(), sizeof(*mask));
	assert_int_equal(grammar_mask(s, mask), 0);
	for (int32_t id = 0; id < tokenizer_n_vocab(tok); id++) {
		bool want = false;
		for (size_t i = 0; i < n; i++)
			want |= ids[i] == id;
		if (has(mask, id) != want || grammar_permits(s, id) != want)
			fail_msg("token %d: %d", id, has(mask, id));
	}
	free(mask);
}

/* A grammar requires a control token; its text is not taken for it. Forced text ends before it. */
static void test_control(void **state)
{
	(void)state;
	const int32_t one = control(0), two = control(one + 1);
	struct rules *r = begin();
	struct rx_pool *p = rules_pool(r);
	struct proto_str spelled = tokenizer_bytes(tok, one);
	rx both = rx_or(p, rx_cat(p, word_of(p, two), text(p, "x")), text(p, "y"));
	rx all = rx_cat(p, text(p, "calls: "), rx_cat(p, word_of(p, one), rx_cat(p, text(p, "name"), both)));
	struct grammar *g = make(of_terminal(r, all), NULL);
	struct grammar_state s;
	int32_t forced[8];
	assert_int_equal(grammar_state_init(&s, g), 0);
	assert_false(grammar_permits(&s, one));
	assert_true(grammar_forced(&s, forced, 8) > 0);
	accept_text(&s, "calls: ");
	assert_int_equal(grammar_forced(&s, forced, 8), 1);
	assert_int_equal(forced[0], one);
	expect_only(&s, &one, 1);
	assert_int_equal(grammar_accept_bytes(&s, spelled.at, spelled.n), SL_EINVAL);
	assert_int_equal(grammar_accept(&s, two), SL_EINVAL);
	assert_int_equal(grammar_accept(&s, one), 0);
	accept_text(&s, "name");
	assert_true(grammar_permits(&s, two));
	assert_false(grammar_permits(&s, one));
	assert_int_equal(grammar_accept(&s, two), 0);
	assert_false(grammar_must_end(&s));
	accept_text(&s, "x");
	assert_true(grammar_must_end(&s));
	grammar_state_dispose(&s);
	grammar_unref(g);
}

/* Where any text may come, no control token may. A counted text before one does not hide it. */
static void test_no_control_in_text(void **state)
{
	(void)state;
	const int32_t one = control(0);
	struct rules *r = begin();
	struct rx_pool *p = rules_pool(r);
	struct grammar *g = make(of_terminal(r, rx_cat(p, any_text(p, 3, 20), word_of(p, one))), NULL);
	struct grammar_state s;
	uint32_t *mask = calloc(words(), sizeof(*mask));
	assert_int_equal(grammar_state_init(&s, g), 0);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(grammar_mask(&s, mask), 0);
		for (int32_t id = 0; id < tokenizer_n_vocab(tok); id++)
			if (has(mask, id) && !is_text(id))
				assert_true(id == one && i >= 3);
		assert_int_equal(has(mask, one), i >= 3);
		assert_int_equal(grammar_accept_bytes(&s, "a", 1), 0);
	}
	expect_only(&s, &one, 1);
	free(mask);
	grammar_state_dispose(&s);
	grammar_unref(g);
}

/* ---- threads ---- */

static void *walk_beside(void *of)
{
	for (int round = 0; round < 5; round++)
		for (int i = 0; i < N_PEOPLE; i++)
			walk(of, people[i], false);
	return NULL;
}

static void test_threads(void **state)
{
	(void)state;
	struct grammar *g = make(person(), &(struct grammar_limits){.max_states = 50});
	pthread_t t[3];
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, walk_beside, g), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	grammar_unref(g);
}

static int setup(void **state)
{
	(void)state;
	struct gguf *file;
	struct sl_err err;
	if (gguf_open("etc/models/demo-small.gguf", &file, &err) != 0 || tokenizer_create(file, &tok, &err) != 0)
		fail_msg("%s", err.text);
	gguf_close(file);
	return grammar_vocab_create(tok, &vocab);
}

static int teardown(void **state)
{
	(void)state;
	grammar_vocab_unref(vocab);
	tokenizer_destroy(tok);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_masks),   cmocka_unit_test(test_dropped),
	    cmocka_unit_test(test_forced),  cmocka_unit_test(test_counters),
	    cmocka_unit_test(test_deep),    cmocka_unit_test(test_large),
	    cmocka_unit_test(test_none),    cmocka_unit_test(test_threads),
	    cmocka_unit_test(test_control), cmocka_unit_test(test_no_control_in_text),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
