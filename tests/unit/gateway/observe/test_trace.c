/* SPDX-License-Identifier: Apache-2.0
 *
 * W3C Trace Context, read strictly: valid ones, and every way to be wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "gateway/observe/trace.h"

#define ID "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"
static const char good[] = "00-" ID "-" PARENT "-01";

static bool reads(const char *text)
{
	struct trace t = {0};
	return trace_parent_read(text, &t);
}

static void a_parent_is_read(void **unused)
{
	(void)unused;
	struct trace t = {0};
	assert_true(trace_parent_read(good, &t));
	assert_true(t.has_parent && t.sampled);
	assert_int_equal(t.id[0], 0x4b);
	assert_int_equal(t.id[15], 0x36);
	assert_int_equal(t.parent[7], 0xb7);
	assert_true(trace_parent_read("00-" ID "-" PARENT "-02", &t));
	assert_false(t.sampled);
	assert_true(reads("cc-" ID "-" PARENT "-01"));
	assert_true(reads("01-" ID "-" PARENT "-01-more.of.it"));
}

/* One character less, one wrong character anywhere, one more. */
static void what_is_not_exactly_one_is_none(void **unused)
{
	(void)unused;
	static const char wrong[] = {'g', 'A', ' ', '\t', '\x7f', '\xc3', '_', 'x'};
	char text[sizeof good + 1];
	for (size_t n = 0; n < sizeof good - 1; n++) {
		snprintf(text, sizeof text, "%.*s", (int)n, good);
		assert_false(reads(text));
	}
	for (size_t i = 0; i < sizeof good - 1; i++) {
		for (size_t k = 0; k < sizeof wrong; k++) {
			memcpy(text, good, sizeof good);
			text[i] = wrong[k];
			if (reads(text))
				fail_msg("read: %s", text);
		}
	}
	assert_false(reads("00-" ID "-" PARENT "-01-"));
	assert_false(reads("00-" ID "-" PARENT "-010"));
	assert_false(reads("01-" ID "-" PARENT "-01.more"));
	assert_false(reads("ff-" ID "-" PARENT "-01"));
	assert_false(reads("00-00000000000000000000000000000000-" PARENT "-01"));
	assert_false(reads("00-" ID "-0000000000000000-01"));
}

static void a_state_is_a_list_of_members(void **unused)
{
	(void)unused;
	static const char *const
	    fine[] = {"a=1", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "a=1 , b=2", "a=1,,b=2", "1a-b_c*/@d= x y", ""},
	    *const bad[] = {"a", "=1", "a=", "a=1=2", "A=1", "a=1,b", "a=\x01", "a=1;b\x7f=2", "-a=1", "a =1"};
	for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
		if (!trace_state_valid(fine[i]))
			fail_msg("refused: %s", fine[i]);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (trace_state_valid(bad[i]))
			fail_msg("taken: %s", bad[i]);
	char many[4 * 33 + 1] = "", longest[TRACE_STATE_BYTES + 2];
	for (int i = 0; i < 33; i++)
		strcat(many, i == 32 ? "a=1" : "a=1,");
	assert_false(trace_state_valid(many));
	assert_true(trace_state_valid(many + 4));
	memset(longest, 'x', sizeof longest);
	memcpy(longest, "a=", 2);
	longest[2 + 256] = '\0';
	assert_true(trace_state_valid(longest));
	longest[2 + 256] = 'x';
	longest[2 + 257] = '\0';
	assert_false(trace_state_valid(longest));
	longest[2 + 257] = 'x';
	longest[TRACE_STATE_BYTES + 1] = '\0';
	assert_false(trace_state_valid(longest));
}

static void sampling_decides_without_a_parent_only(void **unused)
{
	(void)unused;
	assert_null(trace_begin(NULL, NULL, 0));
	assert_null(trace_begin("nonsense", "a=1", 0));
	struct trace *t = trace_begin("nonsense", "a=1", 1);
	assert_true(t != NULL && t->sampled && !t->has_parent);
	assert_string_equal(t->state, "");
	assert_int_equal(strlen(t->hex), 32);
	struct trace *other = trace_begin(NULL, NULL, 1);
	assert_string_not_equal(t->hex, other->hex);
	trace_free(t);
	trace_free(other);
	t = trace_begin("00-" ID "-" PARENT "-00", "a=1", 1);
	assert_true(t != NULL && !t->sampled && t->has_parent);
	assert_string_equal(t->hex, ID);
	assert_string_equal(t->state, "a=1");
	trace_free(t);
	int n = 0;
	for (int i = 0; i < 4000; i++) {
		t = trace_begin(NULL, NULL, 0.25);
		n += t != NULL;
		trace_free(t);
	}
	assert_true(n > 800 && n < 1200); /* seven deviations */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_parent_is_read),
	    cmocka_unit_test(what_is_not_exactly_one_is_none),
	    cmocka_unit_test(a_state_is_a_list_of_members),
	    cmocka_unit_test(sampling_decides_without_a_parent_only),
	};
	return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
