/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/core/grammar_cache.h: its bounds, of all and of a tenant; what was used last stays; what is in use outlives
 * its entry; one vocabulary for all constraints of a tokenizer, however many tokenizers there were before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "engine/core/grammar_cache.h"
#include "engine/grammar/grammar_priv.h"
#include "engine/token/tokenizer.h"
#include "tests/support/tok_make.h"

enum { TOKENIZER = 7, PRINTED = 94, UNKNOWN = PRINTED, END, N_TOKENS, WORDS = (N_TOKENS + 31) / 32 };

static struct tokenizer *tok;
static struct grammar_cache *cache;

static int setup(void **state)
{
	(void)state;
	static char spelled[N_TOKENS][2];
	static struct proto_str tokens[N_TOKENS];
	static int32_t attrs[N_TOKENS];
	struct sl_err err;
	for (int i = 0; i < PRINTED; i++) {
		spelled[i][0] = (char)('!' + i);
		tokens[i] = (struct proto_str){spelled[i], 1};
		attrs[i] = TOK_NORMAL;
	}
	tokens[UNKNOWN] = (struct proto_str){"<unknown>", 9};
	tokens[END] = (struct proto_str){"<end>", 5};
	attrs[UNKNOWN] = TOK_UNKNOWN;
	attrs[END] = TOK_CONTROL;
	struct tok_source src = {.tokens = tokens,
				 .attrs = attrs,
				 .n_tokens = N_TOKENS,
				 .bos = -1,
				 .eos = END,
				 .eot = -1,
				 .unknown = UNKNOWN,
				 .add_bos = -1};
	if (tok_make(&src, "gpt-2", NULL, &tok, &err) != 0)
		fail_msg("%s", err.text);
	return grammar_cache_create(&cache);
}

static int teardown(void **state)
{
	(void)state;
	grammar_cache_destroy(cache);
	tokenizer_destroy(tok);
	return 0;
}

/* The key of expression n: its digits and an x. */
static struct grammar_cache_key key_of(uint64_t tenant, uint64_t tokenizer, int n)
{
	static char text[16];
	int length = snprintf(text, sizeof text, "%dx", n);
	return (struct grammar_cache_key){
	    .tenant = tenant, .tokenizer = tokenizer, .kind = CONSTRAINT_REGEX, .text = {text, (size_t)length}};
}

static struct grammar *get(uint64_t tenant, uint64_t tokenizer, int n)
{
	struct grammar *g;
	struct sl_err err;
	const struct grammar_cache_key key = key_of(tenant, tokenizer, n);
	if (grammar_cache_get(cache, tok, &key, &g, &err) != 0)
		fail_msg("%s", err.text);
	return g;
}

static void put(uint64_t tenant, int n) { grammar_unref(get(tenant, TOKENIZER, n)); }

static bool is_there(uint64_t tenant, int n)
{
	const struct grammar_cache_key key = key_of(tenant, TOKENIZER, n);
	struct grammar *g = grammar_cache_find(cache, &key);
	if (g != NULL)
		grammar_unref(g);
	return g != NULL;
}

/* g permits the digits of n and an x, one after the other, then the end, and nothing else. */
static void assert_permits(struct grammar *g, int n)
{
	struct grammar_state s;
	char text[16];
	uint32_t mask[WORDS];
	snprintf(text, sizeof text, "%dx", n);
	assert_int_equal(grammar_state_init(&s, g), 0);
	for (const char *c = text; *c != '\0'; c++) {
		uint32_t expected[WORDS] = {0};
		int id = *c - '!';
		expected[id / 32] |= 1u << id % 32;
		assert_int_equal(grammar_mask(&s, mask), 0);
		assert_memory_equal(mask, expected, sizeof mask);
		assert_int_equal(grammar_accept(&s, id), 0);
	}
	assert_true(grammar_must_end(&s));
	grammar_state_dispose(&s);
}

static void a_tenant_evicts_its_own(void **state)
{
	(void)state;
	put(2, 0);
	for (int i = 0; i < GRAMMAR_CACHE_OF_TENANT; i++)
		put(1, i);
	assert_true(is_there(1, 0)); /* and so used last */
	put(1, GRAMMAR_CACHE_OF_TENANT);
	assert_true(is_there(1, 0));
	assert_false(is_there(1, 1));
	for (int i = 0; i < 3 * GRAMMAR_CACHE_ENTRIES; i++)
		put(1, 1000 + i);
	int n = 0;
	for (int i = 0; i < 3 * GRAMMAR_CACHE_ENTRIES; i++)
		n += is_there(1, 1000 + i);
	assert_int_equal(n, GRAMMAR_CACHE_OF_TENANT);
	assert_true(is_there(2, 0));
}

static void of_all_the_least_recently_used_goes(void **state)
{
	(void)state;
	enum { TENANTS = GRAMMAR_CACHE_ENTRIES / GRAMMAR_CACHE_OF_TENANT + 2 };
	struct grammar *in_use = get(1, TOKENIZER, 0);
	put(1, 1);
	for (uint64_t tenant = 2; tenant < 2 + TENANTS; tenant++)
		for (int i = 0; i < GRAMMAR_CACHE_OF_TENANT; i++) {
			put(tenant, i);
			assert_true(is_there(1, 1)); /* it is used all the time */
		}
	int n = 0;
	for (uint64_t tenant = 1; tenant < 2 + TENANTS; tenant++)
		for (int i = 0; i < GRAMMAR_CACHE_OF_TENANT; i++)
			n += is_there(tenant, i);
	assert_int_equal(n, GRAMMAR_CACHE_ENTRIES);
	assert_false(is_there(1, 0));
	assert_permits(in_use, 0); /* without its entry */
	struct grammar *anew = get(1, TOKENIZER, 0);
	assert_ptr_not_equal(anew, in_use);
	assert_permits(anew, 0);
	grammar_unref(anew);
	grammar_unref(in_use);
}

static void equal_texts_are_one_grammar(void **state)
{
	(void)state;
	struct grammar *a = get(1, TOKENIZER, 5), *b = get(1, TOKENIZER, 5), *other = get(2, TOKENIZER, 5);
	assert_ptr_equal(a, b);
	assert_ptr_not_equal(a, other);
	grammar_unref(a);
	grammar_unref(b);
	grammar_unref(other);
}

static void vocabularies_are_bounded_and_shared(void **state)
{
	(void)state;
	struct grammar *first = get(1, 100, 12);
	for (uint64_t tokenizer = 101; tokenizer < 100 + 2 * GRAMMAR_CACHE_VOCABS; tokenizer++) {
		struct grammar *a = get(1, tokenizer, 1), *b = get(1, tokenizer, 2);
		assert_ptr_equal(a->vocab, b->vocab); /* built once, of the latest tokenizer too */
		grammar_unref(a);
		grammar_unref(b);
	}
	assert_permits(first, 12); /* whose vocabulary has no entry any more */
	struct grammar *anew = get(1, 100, 13);
	assert_ptr_not_equal(anew->vocab, first->vocab);
	grammar_unref(anew);
	grammar_unref(first);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(a_tenant_evicts_its_own, setup, teardown),
	    cmocka_unit_test_setup_teardown(of_all_the_least_recently_used_goes, setup, teardown),
	    cmocka_unit_test_setup_teardown(equal_texts_are_one_grammar, setup, teardown),
	    cmocka_unit_test_setup_teardown(vocabularies_are_bounded_and_shared, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
