/* SPDX-License-Identifier: Apache-2.0
 *
 * Goodput: which answers count, and which of them are good.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "gateway/observe/observe.h"

#define MS *NS_PER_MS

/* First token after 300 ms, then 20 ms a token. */
static struct observed good(void)
{
	return (struct observed){.tier = "paid",
				 .status = 200,
				 .has_answer = true,
				 .started_ns = 1000 MS,
				 .submitted_ns = 1010 MS,
				 .first_ns = 1300 MS,
				 .ended_ns = 3300 MS,
				 .ttft_target_ns = 300 MS,
				 .itl_target_ns = 20 MS,
				 .gaps = {.sum_ns = 2000 MS, .max_ns = 40 MS, .n = 60, .n_tokens = 100}};
}

static void times_follow_from_what_was_seen(void **unused)
{
	(void)unused;
	struct observed o = good();
	assert_int_equal(observed_ttft_ns(&o), 300 MS);
	assert_int_equal(observed_tpot_ns(&o), 20 MS);
	assert_int_equal(observed_queue_ns(&o), 0);
	o.has_engine = true;
	o.queue_us = 5000;
	assert_int_equal(observed_queue_ns(&o), 15 MS);
	o.first_ns = 0;
	o.gaps.n_tokens = 0;
	assert_int_equal(observed_ttft_ns(&o), 0);
	assert_int_equal(observed_tpot_ns(&o), 0);
}

static void answers_within_their_targets_are_good(void **unused)
{
	(void)unused;
	struct observed o = good();
	assert_int_equal(observed_judge(&o), OBSERVED_GOOD);
	o.first_ns += 1;
	assert_int_equal(observed_judge(&o), OBSERVED_BAD);
	o.ttft_target_ns = 0;
	assert_int_equal(observed_judge(&o), OBSERVED_GOOD);
	o.gaps.sum_ns += 200;
	assert_int_equal(observed_judge(&o), OBSERVED_BAD);
	o.itl_target_ns = 0;
	assert_int_equal(observed_judge(&o), OBSERVED_GOOD);
	/* The reader has left, and what it got was in time. */
	o.left = true;
	assert_int_equal(observed_judge(&o), OBSERVED_GOOD);
}

static void faults_of_the_server_are_bad_and_those_of_clients_do_not_count(void **unused)
{
	(void)unused;
	struct observed o = good();
	o.failed = true;
	assert_int_equal(observed_judge(&o), OBSERVED_BAD);
	o.status = 503;
	o.has_answer = false;
	assert_int_equal(observed_judge(&o), OBSERVED_BAD);
	o.failed = false;
	o.status = 429;
	assert_int_equal(observed_judge(&o), OBSERVED_NOT_JUDGED);
	o.status = 200;
	assert_int_equal(observed_judge(&o), OBSERVED_NOT_JUDGED); /* repeated */
	o = good();
	o.tier = NULL;
	assert_int_equal(observed_judge(&o), OBSERVED_NOT_JUDGED);
	o = good();
	o.vectors = o.failed = true;
	assert_int_equal(observed_judge(&o), OBSERVED_NOT_JUDGED);
}

static void readers_that_leave_before_the_first_token_count_once_it_is_late(void **unused)
{
	(void)unused;
	struct observed o = good();
	o.left = true;
	o.first_ns = 0;
	o.ended_ns = o.started_ns + 300 MS;
	assert_int_equal(observed_judge(&o), OBSERVED_NOT_JUDGED);
	o.ended_ns++;
	assert_int_equal(observed_judge(&o), OBSERVED_BAD);
	o.ttft_target_ns = 0;
	assert_int_equal(observed_judge(&o), OBSERVED_NOT_JUDGED);
}

/* Of judged answers, those whose tier has the target; a failed one tells nothing of times. */
static void missed_targets_are_counted(void **unused)
{
	struct observed_targets was, now;
	struct observed o = good();
	(void)unused;
	observed_targets(&was);
	observe_end(&o, NULL, NULL);
	o.first_ns += 1;
	observe_end(&o, NULL, NULL);
	o.ttft_target_ns = 0;
	o.gaps.sum_ns += 200;
	observe_end(&o, NULL, NULL);
	o.gaps.n_tokens = 0;
	observe_end(&o, NULL, NULL);
	o = good();
	o.failed = true;
	observe_end(&o, NULL, NULL);
	o.failed = false;
	o.status = 429;
	observe_end(&o, NULL, NULL);
	observed_targets(&now);
	assert_int_equal(now.n_first - was.n_first, 2);
	assert_int_equal(now.n_late - was.n_late, 1);
	assert_int_equal(now.ttft_us - was.ttft_us, 2 * 300 * 1000);
	assert_int_equal(now.n_paced - was.n_paced, 3);
	assert_int_equal(now.n_slow - was.n_slow, 1);
	assert_int_equal(now.tpot_us - was.tpot_us, 3 * 20 * 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(times_follow_from_what_was_seen),
	    cmocka_unit_test(answers_within_their_targets_are_good),
	    cmocka_unit_test(faults_of_the_server_are_bad_and_those_of_clients_do_not_count),
	    cmocka_unit_test(missed_targets_are_counted),
	    cmocka_unit_test(readers_that_leave_before_the_first_token_count_once_it_is_late),
	};
	return cmocka_run_group_tests_name("observe", tests, NULL, NULL);
}
