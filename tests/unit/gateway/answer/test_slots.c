/* SPDX-License-Identifier: Apache-2.0
 *
 * A key's concurrency counts sequences: prompts × choices. A list of prompts that is larger than what is free runs in
 * turns; a fan-out of one prompt that no key of the tier can have is refused by the field's name. With each allocation
 * failing, with an engine that goes at any frame, with clients that leave and with prompts that are displaced: every
 * place comes back.
 */
#include "base/log.h"
#include "base/metrics.h"
#include "gateway/request/json_mem.h"
#include "tests/support/chat_rig.h"

#define COMPLETIONS "POST /v1/completions"

enum { MOST_PASSES = 4000 };

static const char five[] = "{\"model\":\"m\",\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}";
static const char five_streamed[] = "{\"model\":\"m\",\"stream\":true,\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}";
static const char ids[] = "{\"model\":\"m\",\"n\":2,\"prompt\":[[1,2],[3],[4,5,6]]}";

static int count_of(const char *text, const char *what)
{
	int n = 0;
	for (const char *p = text; (p = strstr(p, what)) != NULL; p++)
		n++;
	return n;
}

static long counter(const char *name)
{
	struct sl_buf b;
	buf_init(&b, 1 << 20);
	assert_int_equal(metrics_print(&b), 0);
	const char *p = strstr(buf_cstr(&b), name);
	long n = p != NULL ? atol(p + strlen(name)) : -1;
	buf_dispose(&b);
	return n;
}

#define REFUSED "sluice_quota_refused_total{limit=\"concurrency\"} "

/* Asks, and sees how many places are taken at most. */
static int ask_and_watch(struct chat_rig *c, const char *body)
{
	int most = 0, fd = send_request(c, COMPLETIONS, "", body);
	time_t end = rig_now() + RIG_PATIENCE_S;
	while (!answer_ended(c, fd)) {
		assert_true(rig_now() <= end);
		turn(c);
		int n = n_running(c);
		most = n > most ? n : most;
	}
	c->answer[c->n_answer] = '\0';
	close(fd);
	CHAT_UNTIL(c, at_rest(c) && n_generations() == 0);
	assert_int_equal(n_running(c), 0);
	return most;
}

static void lists_run_in_turns(void **state)
{
	struct chat_rig *c = *state;
	CHAT_UNTIL(c, app_ready(c->app));
	for (int most = 1; most <= 6; most++) {
		c->tier.concurrency = most;
		for (int stream = 0; stream < 2; stream++) {
			c->n_submits = c->n_counts = 0;
			int seen = ask_and_watch(c, stream ? five_streamed : five);
			assert_int_equal(atoi(c->answer + 9), 200);
			assert_int_equal(c->n_submits, 5);
			assert_int_equal(c->n_counts, most < 5 ? 5 - most : 0);
			assert_int_equal(seen, most < 5 ? most : 5);
			for (int i = 0; i < 5; i++) {
				char index[16];
				snprintf(index, sizeof index, "\"index\":%d", i);
				assert_non_null(strstr(c->answer, index));
			}
			assert_int_equal(count_of(c->answer, "\"finish_reason\":\"stop\""), 5);
			if (stream)
				assert_non_null(strstr(c->answer, "data: [DONE]"));
		}
	}
}

static void choices_count_each(void **state)
{
	struct chat_rig *c = *state;
	CHAT_UNTIL(c, app_ready(c->app));
	static const struct {
		int most, submits_at_once;
	} cases[] = {{2, 1}, {3, 1}, {4, 2}, {5, 2}, {6, 3}, {9, 3}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		c->tier.concurrency = cases[i].most;
		c->n_submits = c->n_counts = 0;
		assert_int_equal(ask_and_watch(c, ids), 2 * cases[i].submits_at_once);
		assert_int_equal(atoi(c->answer + 9), 200);
		assert_int_equal(c->n_submits, 3);
		assert_int_equal(c->n_counts, 3 - cases[i].submits_at_once);
	}
}

/* What can never be had is a 400 that names the field and the limit, nothing is submitted, and it is counted. */
static void what_never_fits_is_named(void **state)
{
	struct chat_rig *c = *state;
	static const struct {
		const char *target, *body, *param;
	} cases[] = {
	    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"a\",\"n\":3}", "\"param\":\"n\""},
	    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":[\"a\",\"b\"],\"n\":3}", "\"param\":\"n\""},
	    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"a\",\"best_of\":3}", "\"param\":\"best_of\""},
	    {"POST /v1/chat/completions",
	     "{\"model\":\"m\",\"n\":3,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", "\"param\":\"n\""},
	};
	CHAT_UNTIL(c, app_ready(c->app));
	c->tier.concurrency = 2;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		long before = counter(REFUSED);
		c->n_submits = c->n_counts = 0;
		ask(c, cases[i].target, "", cases[i].body);
		CHAT_UNTIL(c, at_rest(c));
		assert_int_equal(atoi(c->answer + 9), 400);
		assert_non_null(strstr(c->answer, cases[i].param));
		assert_non_null(strstr(c->answer, "\"code\":\"concurrency_limit\""));
		assert_non_null(strstr(c->answer, "may have 2 choices"));
		assert_null(strstr(c->answer, "retry-after"));
		assert_int_equal(c->n_submits + c->n_counts, 0);
		assert_int_equal(n_running(c), 0);
		assert_int_equal(counter(REFUSED), before + 1);
	}
}

/* All places are taken: 429, to be tried again, and counted. */
static void what_does_not_fit_now_is_429(void **state)
{
	struct chat_rig *c = *state;
	CHAT_UNTIL(c, app_ready(c->app));
	c->tier.concurrency = 3;
	c->silent = true;
	int held = send_request(c, COMPLETIONS, "", "{\"model\":\"m\",\"prompt\":[\"a\",\"b\"]}");
	CHAT_UNTIL(c, n_running(c) == 2);
	long before = counter(REFUSED);
	ask(c, COMPLETIONS, "", "{\"model\":\"m\",\"prompt\":\"x\",\"n\":2}");
	assert_int_equal(atoi(c->answer + 9), 429);
	assert_non_null(strstr(c->answer, "retry-after: "));
	assert_int_equal(counter(REFUSED), before + 1);
	/* A list takes what there is. */
	c->n_counts = 0;
	int list = send_request(c, COMPLETIONS, "", "{\"model\":\"m\",\"prompt\":[\"a\",\"b\",\"c\"]}");
	CHAT_UNTIL(c, n_running(c) == 3 && c->n_counts == 2);
	close(held);
	close(list);
	CHAT_UNTIL(c, at_rest(c) && n_generations() == 0);
	assert_int_equal(n_running(c), 0);
}

/* One of a list is displaced when others have been told: it is asked for again, and the answer is whole. */
static void the_displaced_are_asked_again(void **state)
{
	struct chat_rig *c = *state;
	CHAT_UNTIL(c, app_ready(c->app));
	for (int most = 1; most <= 3; most++)
		for (int at = 2; at <= 5; at++) {
			c->tier.concurrency = most;
			c->n_submits = c->n_credits = 0;
			c->displace_at = at;
			ask_and_watch(c, five);
			assert_int_equal(atoi(c->answer + 9), 200);
			assert_int_equal(count_of(c->answer, "\"finish_reason\":\"stop\""), 5);
			if (c->n_submits != 6)
				fail_msg("%d at once, answer %d displaced: %d", most, at, c->n_submits);
		}
	/* Before anything was told the request is refused, and may come again. */
	c->n_credits = 0;
	c->displace_at = 1;
	ask_and_watch(c, five);
	assert_int_equal(atoi(c->answer + 9), 503);
	assert_non_null(strstr(c->answer, "retry-after: "));
}

/* A late prompt that is too long is refused before anything is computed. */
static void late_prompts_are_checked_first(void **state)
{
	struct chat_rig *c = *state;
	char body[1024], words[400];
	CHAT_UNTIL(c, app_ready(c->app));
	c->tier.concurrency = 1;
	memset(words, 'x', sizeof words - 1);
	words[sizeof words - 1] = '\0';
	snprintf(body, sizeof body, "{\"model\":\"m\",\"stream\":true,\"prompt\":[\"a\",\"%s\"]}", words);
	c->n_credits = 0;
	ask_and_watch(c, body);
	assert_int_equal(atoi(c->answer + 9), 400);
	assert_non_null(strstr(c->answer, "context_length_exceeded"));
	assert_non_null(strstr(c->answer, "\"param\":\"prompt\""));
	assert_int_equal(c->n_credits, 0);
	c->tier.max_prompt = 20;
	words[60] = '\0';
	snprintf(body, sizeof body, "{\"model\":\"m\",\"prompt\":[\"a\",\"%s\"]}", words);
	ask_and_watch(c, body);
	assert_int_equal(atoi(c->answer + 9), 400);
	assert_int_equal(c->n_credits, 0);
}

static void every_allocation(void **state)
{
	struct chat_rig *c = *state;
	static const char *const bodies[] = {five, five_streamed, ids};
	json_mem_install();
	c->tier.concurrency = 2;
	for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
		long n = 0, passes;
		do {
			n++;
			assert_true(n < MOST_PASSES);
			CHAT_UNTIL(c, app_ready(c->app));
			passes = ask_with_fault(c, FAULT_ALLOC, n, COMPLETIONS, "", bodies[i]);
			CHAT_UNTIL(c, n_generations() == 0);
			assert_int_equal(n_running(c), 0);
		} while (passes >= n);
		CHAT_UNTIL(c, app_ready(c->app));
		ask(c, COMPLETIONS, "", bodies[i]);
		CHAT_UNTIL(c, at_rest(c));
		assert_int_equal(atoi(c->answer + 9), 200);
	}
	json_set_alloc_funcs(malloc, free);
}

/* The engine goes at each frame in turn, and clients leave after each turn. */
static void ends_at_any_time(void **state)
{
	struct chat_rig *c = *state;
	c->tier.concurrency = 2;
	for (int at = 1; at <= 24; at++) {
		CHAT_UNTIL(c, app_ready(c->app));
		c->n_frames = 0;
		c->drop_at = at;
		ask_and_watch(c, five);
		c->drop_at = 0;
		CHAT_UNTIL(c, app_ready(c->app));
	}
	for (int turns = 0; turns < 60; turns++) {
		int fd = send_request(c, COMPLETIONS, "", turns & 1 ? five : five_streamed);
		for (int i = 0; i < turns; i++)
			turn(c);
		close(fd);
		CHAT_UNTIL(c, at_rest(c) && n_generations() == 0);
		assert_int_equal(n_running(c), 0);
	}
	ask_and_watch(c, five);
	assert_int_equal(atoi(c->answer + 9), 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(lists_run_in_turns, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(choices_count_each, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(what_never_fits_is_named, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(what_does_not_fit_now_is_429, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(the_displaced_are_asked_again, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(late_prompts_are_checked_first, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(every_allocation, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(ends_at_any_time, chat_set_up, chat_tear_down),
	};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
