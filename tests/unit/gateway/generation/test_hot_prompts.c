/* SPDX-License-Identifier: Apache-2.0
 *
 * Which prompts are hot: by their beginning, with time, and within the bounds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "gateway/generation/hot_prompts.h"

static struct hot_prompts all;

static void send(const char *begin, const char *end, uint64_t tenant, uint64_t now_ms)
{
	static char text[2 * HOT_ONE_BYTES];
	int n = snprintf(text, sizeof text, "%-600s%s", begin, end);
	const struct proto_submit req = {PROTO_SUBMIT_OFF, .prompt_kind = PROTO_PROMPT_TEXT, .tenant = tenant,
					 .prompt = {text, (size_t)n}};
	hot_prompts_note(&all, &req, now_ms * NS_PER_MS);
}

static int hottest(uint64_t now_ms, const struct hot_prompt **out, int most)
{
	return hot_prompts_hottest(&all, now_ms * NS_PER_MS, out, most);
}

static void by_use_and_time(void **state)
{
	const struct hot_prompt *h[HOT_PROMPTS];
	(void)state;
	send("once", "", 1, 1);
	assert_int_equal(hottest(1, h, HOT_PROMPTS), 0);
	for (uint64_t i = 0; i < 3; i++)
		send("three times", i == 0 ? "first" : "later", 1, 1 + i);
	for (uint64_t i = 0; i < 8; i++)
		send("often", "", 1, 1 + i);
	send("three times", "", 2, 5); /* another tenant's is another prompt */
	assert_int_equal(hottest(10, h, HOT_PROMPTS), 2);
	assert_memory_equal(buf_data(&h[0]->text), "often", 5);
	assert_memory_equal(buf_data(&h[1]->text), "three times", 11);
	assert_memory_equal(buf_data(&h[1]->text) + 600, "later", 5);
	assert_int_equal(hottest(10, h, 1), 1);
	/* A later text takes the place of an old one; what was often used long ago is colder. */
	uint64_t late = 4 * HOT_HALF_LIFE_MS;
	for (int i = 0; i < 2; i++)
		send("three times", "newest", 1, late);
	assert_int_equal(hottest(late, h, HOT_PROMPTS), 2);
	assert_memory_equal(buf_data(&h[0]->text) + 600, "newest", 6);
	/* Unused for long, it is gone, whether or not anybody asks. */
	assert_int_equal(hottest(10 + HOT_KEPT_MS, h, HOT_PROMPTS), 1);
	hot_prompts_erase(&all, 1);
	assert_int_equal(hottest(late, h, HOT_PROMPTS), 0);
	for (int i = 0; i < 2; i++)
		send("kept for a while", "", 1, late);
	assert_true(all.n_bytes > 0);
	send("another", "", 1, late + HOT_KEPT_MS - 1);
	assert_true(all.n_bytes > 0);
	send("another", "", 1, late + HOT_KEPT_MS + HOT_RENEW_MS);
	assert_int_equal(all.n_bytes, 600); /* the new one's */
	hot_prompts_dispose(&all);
	assert_int_equal(all.n_bytes, 0);
}

/* Of a hundred thousand different prompts, one in twenty is the same. */
static void the_frequent_one_is_found(void **state)
{
	const struct hot_prompt *h[1];
	char begin[32];
	(void)state;
	for (uint64_t i = 0; i < 100000; i++) {
		snprintf(begin, sizeof begin, "other %llu", (unsigned long long)i);
		send(i % 20 == 7 ? "frequent" : begin, "", 1, i / 100);
	}
	assert_int_equal(hottest(1000, h, 1), 1);
	assert_memory_equal(buf_data(&h[0]->text), "frequent", 8);
	hot_prompts_dispose(&all);
}

static void within_bounds(void **state)
{
	static char end[HOT_ONE_BYTES + 1];
	const struct hot_prompt *h[HOT_PROMPTS];
	char begin[16];
	(void)state;
	memset(end, 'e', sizeof end - 1);
	for (uint64_t i = 0; i < 3; i++)
		send("too long", end, 1, i);
	assert_int_equal(hottest(3, h, HOT_PROMPTS), 0);
	end[HOT_ONE_BYTES - 600] = '\0';
	for (int k = 0; k < 8; k++)
		for (int i = 0; i < 2 + k; i++) {
			snprintf(begin, sizeof begin, "long %d", k);
			send(begin, end, 1, 4);
			assert_true(all.n_bytes <= HOT_TEXT_BYTES);
		}
	assert_int_equal(hottest(5, h, HOT_PROMPTS), HOT_TEXT_BYTES / HOT_ONE_BYTES);
	assert_memory_equal(buf_data(&h[0]->text), "long 7", 6);
	/* Too short to matter, or a vector's. */
	const struct proto_submit brief = {PROTO_SUBMIT_OFF, .prompt = {"brief", 5}};
	const struct proto_submit vector = {PROTO_SUBMIT_OFF, .flags = PROTO_SUBMIT_EMBED, .prompt = {end, 1000}};
	for (int i = 0; i < 20; i++) {
		hot_prompts_note(&all, &brief, 5 * NS_PER_MS);
		hot_prompts_note(&all, &vector, 5 * NS_PER_MS);
	}
	assert_int_equal(hottest(5, h, HOT_PROMPTS), HOT_TEXT_BYTES / HOT_ONE_BYTES);
	hot_prompts_dispose(&all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(by_use_and_time),
	    cmocka_unit_test(the_frequent_one_is_found),
	    cmocka_unit_test(within_bounds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
