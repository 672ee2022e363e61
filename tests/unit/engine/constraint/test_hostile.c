/* SPDX-License-Identifier: Apache-2.0
 *
 * Hostile GBNF and Lark: each is refused with the reason, or its answers end within bounded work, at a mask too.
 */
#include "tests/unit/engine/constraint/accept.h"

#include <stdio.h>
#include "base/buf.h"

enum { WALKS = 4, TOKENS = 60, MOST_SOURCE = 16 << 20 };

/* ---- sources ---- */

static struct sl_buf made;

static void put(const char *text) { assert_int_equal(buf_append(&made, text, strlen(text)), 0); }

static void put_times(const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put(text);
}

static void put_rule(const char *fmt, size_t a, size_t b, size_t c)
{
	char text[128];
	snprintf(text, sizeof text, fmt, a, b, c);
	put(text);
}

static void deep_groups(void)
{
	put("root ::= ");
	put_times("(", 100000);
	put("\"a\"");
	put_times(")", 100000);
}

static void long_chain(void)
{
	put("root ::= r0\n");
	for (size_t i = 0; i < 20000; i++)
		put_rule("r%zu ::= r%zu\n", i, i + 1, 0);
	put("r20000 ::= \"a\"\n");
}

/* A finite text of 2^40 bytes; half of its rules may be empty. */
static void doubled(void)
{
	put("root ::= r0\n");
	for (size_t i = 0; i < 40; i++)
		put_rule(i % 2 ? "r%zu ::= r%zu r%zu\n" : "r%zu ::= (r%zu r%zu)?\n", i, i + 1, i + 1);
	put("r40 ::= \"a\"\n");
}

/* Every rule begins with every other. */
static void all_left(void)
{
	put("root ::= r0\n");
	for (size_t i = 0; i < 60; i++) {
		put_rule("r%zu ::= \"a\"", i, 0, 0);
		for (size_t j = 0; j < 60; j++)
			put_rule(" | r%zu \"b\"", j, 0, 0);
		put("\n");
	}
}

static void many_alternatives(void)
{
	put("root ::= \"a\"");
	for (size_t i = 0; i < 50000; i++)
		put_rule(" | \"a%zu\"", i, 0, 0);
	put("\n");
}

static void large_literal(void)
{
	put("root ::= \"");
	put_times("ab", 500000);
	put("\"\n");
}

static void too_large(void)
{
	put("root ::= \"");
	put_times("abababababababab", (MOST_SOURCE >> 4) - 16);
	put("\"\n");
}

/* Which of the last characters was an a: as many states as subsets, and as many masks. */
static void subsets(void)
{
	put("root ::= [ab]* \"a\" ");
	put_times("[ab]", 24);
	put("\n");
}

static void lark_deep(void)
{
	put("start: ");
	put_times("[", 100000);
	put("\"a\"");
	put_times("]", 100000);
}

static void lark_terminals(void)
{
	put("start: T0\n");
	for (size_t i = 0; i < 30; i++)
		put_rule("T%zu: T%zu T%zu\n", i, i + 1, i + 1);
	put("T30: \"a\"\n");
}

/* ---- judging ---- */

struct hostile {
	const char *source;
	void (*make)(void); /* where source is NULL */
	int code;           /* 0: it is taken */
	const char *says;
};

static uint32_t random_state = 1;

static uint32_t at_random(uint32_t below)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (random_state >> 8) % below;
}

static int32_t any_of(const uint32_t *mask)
{
	int32_t ids[SMALL_TOKENS];
	uint32_t n = 0;
	for (int32_t id = 0; id < SMALL_TOKENS; id++)
		if (mask[id / 32] >> (id % 32) & 1)
			ids[n++] = id;
	return n > 0 ? ids[at_random(n)] : -1;
}

/* An answer of random tokens ends: whole, cut, or because a mask takes too much. Never is nothing permitted. */
static void answer(struct grammar *g, const char *source)
{
	struct grammar_state s;
	uint32_t mask[SMALL_WORDS];
	assert_int_equal(grammar_state_init(&s, g), 0);
	for (int i = 0; i < TOKENS && !grammar_must_end(&s); i++) {
		int rc = grammar_mask(&s, mask);
		int32_t id = rc == 0 ? any_of(mask) : -1;
		if (rc != 0 && rc != SL_ELIMIT)
			fail_msg("%.60s: %d at token %d", source, rc, i);
		if (rc != 0)
			break;
		if (id < 0 && !grammar_may_end(&s))
			fail_msg("%.60s: nothing follows token %d", source, i);
		if (id < 0)
			break;
		rc = grammar_accept(&s, id);
		if (rc != 0 && rc != SL_ELIMIT)
			fail_msg("%.60s: %d for a permitted token", source, rc);
		if (rc != 0)
			break;
	}
	grammar_state_dispose(&s);
}

static void check(enum constraint_kind kind, const struct hostile *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct sl_err err;
		buf_init(&made, MOST_SOURCE);
		if (cases[i].source != NULL)
			put(cases[i].source);
		else
			cases[i].make();
		size_t n_source = made.len;
		assert_int_equal(buf_append(&made, "", 1), 0);
		const char *source = (const char *)buf_data(&made);
		struct grammar *g = accept_compile(kind, source, n_source, &err);
		if (err.code != cases[i].code || (g == NULL && strstr(err.text, cases[i].says) == NULL))
			fail_msg("%zu, %.60s: %d, %s", i, source, err.code, err.text);
		for (int k = 0; k < WALKS && g != NULL; k++)
			answer(g, source);
		if (g != NULL)
			grammar_unref(g);
		buf_dispose(&made);
	}
}

#define CHECK(kind, cases) check(kind, cases, sizeof(cases) / sizeof *(cases))

/* ---- tests ---- */

static void test_gbnf(void **state)
{
	(void)state;
	static const struct hostile cases[] = {
	    /* left recursion: direct, through others, behind what may be empty */
	    {"root ::= root \"x\" | root \"y\" root | \"z\"", NULL, 0, NULL},
	    {"root ::= a | \"a\"\na ::= b \"x\" | \"y\"\nb ::= root \"z\" | a", NULL, 0, NULL},
	    {"root ::= e root \"x\" | \"y\"\ne ::= \"\" | \"e\" | e e", NULL, 0, NULL},
	    {NULL, all_left, 0, NULL},
	    /* cycles, and loops of nothing */
	    {"root ::= root", NULL, SL_EINVAL, "no string"},
	    {"root ::= a\na ::= b\nb ::= a", NULL, SL_EINVAL, "no string"},
	    {"root ::= a\na ::= b | root\nb ::= a | \"x\"", NULL, 0, NULL},
	    {"root ::= \"\"*", NULL, 0, NULL},
	    {"root ::= ((\"\"?)*)*", NULL, 0, NULL},
	    {"root ::= ((\"a\"?)*)+ \"b\"", NULL, 0, NULL},
	    {"root ::= e* \"a\"\ne ::= \"\" | e", NULL, 0, NULL},
	    /* ambiguity */
	    {"root ::= root root | root root root | \"a\" | \"\"", NULL, 0, NULL},
	    {"root ::= s s s s\ns ::= s s | \"a\" s | s \"a\" | \"\"", NULL, 0, NULL},
	    {"root ::= (\"a\" | \"aa\" | \"aaa\" | \"a\"*)* (\"a\"* \"b\"?)*", NULL, 0, NULL},
	    {NULL, subsets, 0, NULL},
	    /* size */
	    {NULL, deep_groups, SL_ELIMIT, "nest"},
	    {NULL, long_chain, SL_ELIMIT, "rules are nested too deep"},
	    {NULL, doubled, SL_ELIMIT, "the constraint's grammar is too large"},
	    {NULL, many_alternatives, SL_ELIMIT, "too much memory"},
	    {NULL, large_literal, 0, NULL},
	    {NULL, too_large, SL_ELIMIT, ""},
	    {"root ::= \"a\"{65536}", NULL, 0, NULL},
	    {"root ::= ((\"a\"{999}){999}){999}", NULL, 0, NULL},
	    {"root ::= [a-z]{1,1000000}", NULL, 0, NULL},
	    {"root ::= \"a\"{4294967297}", NULL, SL_ELIMIT, "repetitions"},
	    {"root ::= \"a\"{99999999999999999999999}", NULL, SL_ELIMIT, "repetitions"},
	    /* names */
	    {"root ::= a\na ::= b\nb ::= c", NULL, SL_EINVAL, "3:7: c is not defined"},
	    {"root ::= \"x\"\nroot ::= root", NULL, SL_EINVAL, "root is defined twice"},
	};
	CHECK(CONSTRAINT_GBNF, cases);
}

static void test_lark(void **state)
{
	(void)state;
	static const struct hostile cases[] = {
	    {"start: start \"x\" | start start | \"y\"", NULL, 0, NULL},
	    {"start: e start | \"y\"\ne: | e e", NULL, 0, NULL},
	    {"start: start", NULL, SL_EINVAL, "no string"},
	    {"start: a\na: b\nb: a | start", NULL, SL_EINVAL, "no string"},
	    {"start: A\nA: B\nB: A", NULL, SL_EINVAL, "refers to itself"},
	    {"start: (\"\"?)* (\"a\"?)*", NULL, 0, NULL},
	    {"start: /(a*)*(a|a)*b/", NULL, 0, NULL},
	    {"start: /([ab]*a[ab]{30})+/", NULL, 0, NULL},
	    {"start: /a{1000000}/", NULL, 0, NULL},
	    {"start: /((a{1,999}){1,999}){1,999}/", NULL, 0, NULL},
	    {"start: (((\"a\"~999)~999)~999)", NULL, 0, NULL},
	    {"start: \"a\" \"b\"\n%ignore /a*/\n%ignore /(a|b)*/", NULL, 0, NULL},
	    {NULL, lark_deep, SL_ELIMIT, "nest"},
	    {NULL, lark_terminals, SL_ELIMIT, "the constraint's grammar is too large"},
	    {"start: b C\nb: d", NULL, SL_EINVAL, "is not defined"},
	    {"%ignore NOPE\nstart: \"a\"", NULL, SL_EINVAL, "NOPE is not defined"},
	};
	CHECK(CONSTRAINT_LARK, cases);
}

/* A mask that takes too much work fails its own answer: the grammar goes on serving others, from the same caches. */
static void test_late(void **state)
{
	(void)state;
	static const char source[] = "root ::= s s s s\ns ::= s s | \"a\" s | s \"a\" | \"\"";
	struct sl_err err = {0};
	struct rules *rules;
	struct grammar *g;
	struct grammar_state s, other;
	uint32_t first[SMALL_WORDS], mask[SMALL_WORDS];
	assert_int_equal(constraint_rules(CONSTRAINT_GBNF, source, sizeof source - 1, NULL, &rules, &err), 0);
	assert_int_equal(grammar_create(accept_vocab, rules, &(struct grammar_limits){.max_work = 20000}, &g, &err), 0);
	assert_int_equal(grammar_state_init(&s, g), 0);
	assert_int_equal(grammar_mask(&s, first), 0);
	int rc = 0, n = 0;
	for (; rc == 0 && n < 1000; n++) {
		rc = grammar_accept_bytes(&s, "a", 1);
		rc = rc == 0 ? grammar_mask(&s, mask) : rc;
	}
	assert_int_equal(rc, SL_ELIMIT);
	assert_true(n > 1);
	assert_int_equal(grammar_state_init(&other, g), 0);
	assert_int_equal(grammar_mask(&other, mask), 0);
	assert_memory_equal(mask, first, sizeof mask);
	assert_true(grammar_may_end(&other));
	grammar_state_dispose(&other);
	grammar_state_dispose(&s);
	grammar_unref(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_gbnf), cmocka_unit_test(test_lark),
					   cmocka_unit_test(test_late)};
	return cmocka_run_group_tests(tests, accept_open, accept_close);
}
