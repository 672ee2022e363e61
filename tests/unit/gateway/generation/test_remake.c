/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens of an answer that is made again: those that were there are skipped wherever frames are cut, and others are
 * found.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/generation/remake.h"
#include "gateway/generation/submit_frame.h"

static struct remake *make(struct proto_submit *s)
{
	struct submit_frame *f;
	*s = (struct proto_submit){PROTO_SUBMIT_OFF,    .prompt_kind = PROTO_PROMPT_TEXT,
				   .top_p = 1,          .max_tokens = 90,
				   .rate_tps = 10,      .burst = 5,
				   .deadline_ms = 1000, .seed = 3,
				   .prompt = {"hi", 2}};
	assert_int_equal(submit_frame_create(s, &f), 0);
	struct remake *r = remake_create(f, &f->s, true, NS_PER_MS);
	submit_frame_unref(f);
	assert_non_null(r);
	return r;
}

/* Tokens first … first + n - 1 of a choice, each with its letter; into got what passed. False: they are others. */
static bool take(struct remake *r, uint8_t choice, uint32_t first, uint16_t n, const char *letters, char *got)
{
	struct proto_token tokens[16];
	struct proto_tokens m, rest;
	struct sl_buf b;
	struct sl_err err;
	for (uint16_t i = 0; i < n; i++)
		tokens[i] = (struct proto_token){.id = (uint32_t)letters[first + i], .n_bytes = 1};
	m = (struct proto_tokens){.n = n, .choice = choice, .tokens = tokens, .text = {letters + first, n}};
	buf_init(&b, 1 << 16);
	assert_int_equal(proto_put_tokens(&b, 1, &m), 0);
	assert_int_equal(proto_get_tokens(buf_data(&b) + PROTO_HEAD_BYTES, b.len - PROTO_HEAD_BYTES, &m, &err), 0);
	bool same = remake_take(r, &m, &rest);
	if (same) {
		assert_int_equal(rest.text.n, rest.n);
		for (uint16_t i = 0; i < rest.n; i++)
			assert_int_equal(proto_token_at(&rest, i).id, (uint8_t)rest.text.at[i]);
		strncat(got, rest.text.at, rest.text.n);
	}
	buf_dispose(&b);
	return same;
}

static void frames_may_be_cut_anywhere(void **state)
{
	(void)state;
	static const char story[] = "once upon a ti";
	for (uint16_t died = 0; died <= 12; died++) {
		for (uint16_t step = 1; step <= 7; step++) {
			struct proto_submit s;
			struct remake *r = make(&s);
			char got[32] = "";
			if (died > 0)
				assert_true(take(r, 0, 0, died, story, got));
			assert_true(remake_is_even(r));
			const struct proto_submit *again = remake_begin(r, 301 * NS_PER_MS);
			assert_non_null(again);
			assert_int_equal(again->seed, 3);
			assert_int_equal(again->deadline_ms, 700);
			assert_int_equal(again->burst, 5 + died);
			assert_int_equal(remake_is_even(r), died == 0);
			for (uint16_t at = 0; at < 14; at = (uint16_t)(at + step))
				assert_true(take(r, 0, at, at + step <= 14 ? step : (uint16_t)(14 - at), story, got));
			assert_true(remake_is_even(r));
			assert_string_equal(got, story);
			remake_destroy(r);
		}
	}
}

static void other_tokens_are_found_at_the_seam(void **state)
{
	(void)state;
	struct proto_submit s;
	struct remake *r = make(&s);
	char got[32] = "";
	assert_true(take(r, 0, 0, 4, "abcdefgh", got));
	assert_non_null(remake_begin(r, 2 * NS_PER_MS));
	assert_true(take(r, 0, 0, 3, "abxdefgh", got));
	assert_false(take(r, 0, 3, 3, "abxdefgh", got));
	assert_string_equal(got, "abcd");
	remake_destroy(r);
}

static void choices_are_skipped_each_by_itself(void **state)
{
	(void)state;
	struct proto_submit s;
	struct remake *r = make(&s);
	char a[32] = "", b[32] = "";
	assert_true(take(r, 0, 0, 3, "abcdef", a));
	assert_true(take(r, 1, 0, 1, "uvwxyz", b));
	assert_non_null(remake_begin(r, 2 * NS_PER_MS));
	assert_true(take(r, 1, 0, 4, "uvwxyz", b));
	assert_false(remake_is_even(r));
	assert_true(take(r, 0, 0, 5, "abcdef", a));
	assert_true(remake_is_even(r));
	/* And once more. */
	assert_non_null(remake_begin(r, 3 * NS_PER_MS));
	assert_true(take(r, 0, 0, 6, "abcdef", a));
	assert_true(take(r, 1, 0, 6, "uvwxyz", b));
	assert_string_equal(a, "abcdef");
	assert_string_equal(b, "uvwxyz");
	remake_destroy(r);
}

static void what_cannot_be_made_again(void **state)
{
	(void)state;
	struct proto_submit s;
	struct remake *r = make(&s);
	assert_null(remake_begin(r, 1001 * NS_PER_MS)); /* its deadline has passed */
	assert_false(remake_is_spent(r));
	remake_destroy(r);
	struct submit_frame *f;
	s.prompt_logprobs = 1;
	assert_int_equal(submit_frame_create(&s, &f), 0);
	r = remake_create(f, &f->s, true, 0);
	assert_true(remake_is_spent(r)); /* with its first token: they would be reported twice */
	remake_destroy(r);
	remake_destroy(NULL);
	submit_frame_unref(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(frames_may_be_cut_anywhere),
	    cmocka_unit_test(other_tokens_are_found_at_the_seam),
	    cmocka_unit_test(choices_are_skipped_each_by_itself),
	    cmocka_unit_test(what_cannot_be_made_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
