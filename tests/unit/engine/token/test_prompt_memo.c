/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fault.h"
#include "engine/token/prompt_memo.h"

static const struct prompt_memo_key key = {
    .tenant = 1, .salt = 2, .text = 3, .kind = PROTO_PROMPT_CHAT, .prompt = {"abc", 3}};
static int32_t numbers[] = {7, 8, 9};
static const struct tok_ids ids = {.ids = numbers, .n = 3, .cap = 3};

static bool is_found(struct prompt_memo *m, const struct prompt_memo_key *k, uint64_t now_ns)
{
	struct tok_ids got = {0};
	bool found = prompt_memo_find(m, k, &got, now_ns);
	if (found) {
		assert_int_equal(got.n, 3);
		assert_memory_equal(got.ids, numbers, sizeof numbers);
	} else {
		assert_null(got.ids);
	}
	tok_ids_dispose(&got);
	return found;
}

static void only_the_same_is_found(void **state)
{
	(void)state;
	struct prompt_memo m;
	prompt_memo_init(&m);
	assert_false(is_found(&m, &key, 0));
	prompt_memo_put(&m, &key, &ids, 0);
	assert_true(is_found(&m, &key, 0));
	struct prompt_memo_key other = key;
	other.tenant++;
	assert_false(is_found(&m, &other, 0));
	other = key, other.salt++;
	assert_false(is_found(&m, &other, 0));
	other = key, other.text++;
	assert_false(is_found(&m, &other, 0));
	other = key, other.kind = PROTO_PROMPT_TEXT;
	assert_false(is_found(&m, &other, 0));
	other = key, other.prompt.at = "abd";
	assert_false(is_found(&m, &other, 0));
	other = key, other.prompt.n = 2;
	assert_false(is_found(&m, &other, 0));
	prompt_memo_dispose(&m);
}

static void bounds(void **state)
{
	(void)state;
	struct prompt_memo m;
	static char text[PROMPT_MEMO_BYTES + 1];
	memset(text, 'a', sizeof text);
	prompt_memo_init(&m);
	/* For a few seconds; told again it lasts longer. */
	prompt_memo_put(&m, &key, &ids, 0);
	assert_true(is_found(&m, &key, PROMPT_MEMO_MS * NS_PER_MS - 1));
	assert_false(is_found(&m, &key, PROMPT_MEMO_MS * NS_PER_MS));
	prompt_memo_put(&m, &key, &ids, NS_PER_MS);
	assert_true(is_found(&m, &key, PROMPT_MEMO_MS * NS_PER_MS));
	/* Of a length; and of models that are known to read alike. */
	struct prompt_memo_key long_one = key, unknown = key;
	long_one.prompt = (struct proto_str){text, sizeof text};
	prompt_memo_put(&m, &long_one, &ids, 0);
	assert_false(is_found(&m, &long_one, 0));
	long_one.prompt.n--;
	prompt_memo_put(&m, &long_one, &ids, 0);
	assert_true(is_found(&m, &long_one, 0));
	unknown.text = 0;
	prompt_memo_put(&m, &unknown, &ids, 0);
	assert_false(is_found(&m, &unknown, 0));
	/* More tokens than are wanted. */
	struct tok_ids few = {.max = 2};
	assert_false(prompt_memo_find(&m, &key, &few, 0));
	/* As many as there are slots: the oldest makes room. */
	for (uint64_t i = 0; i < PROMPT_MEMO_SLOTS; i++) {
		struct prompt_memo_key k = key;
		k.tenant = 100 + i;
		prompt_memo_put(&m, &k, &ids, 0);
		assert_true(is_found(&m, &k, 0));
	}
	assert_false(is_found(&m, &key, 0));
	assert_false(is_found(&m, &long_one, 0));
	prompt_memo_dispose(&m);
}

static void without_memory(void **state)
{
	(void)state;
	struct prompt_memo m;
	prompt_memo_init(&m);
	for (int nth = 1; nth <= 2; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		prompt_memo_put(&m, &key, &ids, 0);
		fault_disarm_all();
		assert_false(is_found(&m, &key, 0));
	}
	prompt_memo_put(&m, &key, &ids, 0);
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_false(is_found(&m, &key, 0));
	fault_disarm_all();
	assert_true(is_found(&m, &key, 0));
	prompt_memo_dispose(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(only_the_same_is_found), cmocka_unit_test(bounds),
					   cmocka_unit_test(without_memory)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
