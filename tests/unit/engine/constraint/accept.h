/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a text satisfies a constraint, for tests: byte by byte through the grammar's automaton.
 */
#ifndef TESTS_CONSTRAINT_ACCEPT_H
#define TESTS_CONSTRAINT_ACCEPT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/constraint/constraint.h"
#include "engine/grammar/grammar.h"
#include "tests/unit/engine/grammar/small_vocab.h"

static struct grammar_vocab *accept_vocab;

static inline int accept_open(void **state)
{
	(void)state;
	small_open();
	return grammar_vocab_create(small_tokenizer, &accept_vocab);
}

static inline int accept_close(void **state)
{
	(void)state;
	grammar_vocab_unref(accept_vocab);
	small_close();
	return 0;
}

/* NULL: refused, err says why. */
static inline struct grammar *accept_compile(enum constraint_kind kind, const char *source, size_t n,
					     struct sl_err *err)
{
	struct rules *rules = NULL;
	struct grammar *g = NULL;
	*err = (struct sl_err){0};
	int rc = constraint_rules(kind, source, n, NULL, &rules, err);
	assert_true((rc == 0) == (rules != NULL));
	assert_true((rc == 0) == (err->code == 0));
	if (rc == 0)
		rc = grammar_create(accept_vocab, rules, NULL, &g, err);
	assert_true((rc == 0) == (g != NULL));
	err->code = rc;
	return g;
}

static inline bool accept_walk(struct grammar *g, const char *text, size_t n)
{
	struct grammar_state s;
	assert_int_equal(grammar_state_init(&s, g), 0);
	bool good = (n == 0 || grammar_accept_bytes(&s, text, n) == 0) && grammar_may_end(&s);
	grammar_state_dispose(&s);
	return good;
}

static inline void accept_expect(struct grammar *g, const char *source, const char *text, bool good)
{
	if (accept_walk(g, text, strlen(text)) != good)
		fail_msg("%s: %s is %s", source, text, good ? "refused" : "accepted");
}

/* A constraint with the texts that satisfy it and those that do not; lists end at NULL. */
struct accept_case {
	const char *source;
	const char *yes[12], *no[16];
};

static inline void accept_table(enum constraint_kind kind, const struct accept_case *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct sl_err err;
		struct grammar *g = accept_compile(kind, cases[i].source, strlen(cases[i].source), &err);
		if (g == NULL)
			fail_msg("%s: %s", cases[i].source, err.text);
		for (size_t j = 0; j < 12 && cases[i].yes[j] != NULL; j++)
			accept_expect(g, cases[i].source, cases[i].yes[j], true);
		for (size_t j = 0; j < 16 && cases[i].no[j] != NULL; j++)
			accept_expect(g, cases[i].source, cases[i].no[j], false);
		grammar_unref(g);
	}
}

/* A constraint that is refused with a message that has all of `says`. */
struct refuse_case {
	const char *source;
	int code;
	const char *says;
};

static inline void refuse_table(enum constraint_kind kind, const struct refuse_case *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct sl_err err;
		struct grammar *g = accept_compile(kind, cases[i].source, strlen(cases[i].source), &err);
		if (g != NULL)
			fail_msg("%s is taken", cases[i].source);
		if (err.code != cases[i].code || strstr(err.text, cases[i].says) == NULL)
			fail_msg("%s: %s", cases[i].source, err.text);
	}
}

#define ACCEPT_TABLE(kind, cases) accept_table(kind, cases, sizeof(cases) / sizeof *(cases))
#define REFUSE_TABLE(kind, cases) refuse_table(kind, cases, sizeof(cases) / sizeof *(cases))

#endif
