/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers under load with the nth allocation failing, for every n: late ones that are degraded to another model, are
 * shortened, wait and are refused, streamed, whole and logged. What comes back is one answer, a piece of one, or a
 * refusal; afterwards nothing goes on, nobody waits, nothing is counted, and the next request is served.
 */
#include <string.h>

#include "base/log.h"
#include "gateway/request/json_mem.h"
#include "gateway/admission/admission_queue.h"
#include "tests/support/chat_rig.h"

enum { MOST_PASSES = 2000, LATE_US = 5000000 };

#define CHAT "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"

static const struct way {
	const char *name, *target, *fields, *body;
	int when_late;
	int64_t max_tokens;
	const char *other; /* model */
	const char *whole; /* in the answer when nothing fails */
} ways[] = {
    {"refused", "POST /v1/chat/completions", "", "{\"model\":\"m\",\"stream\":true," CHAT, GW_LATE_REFUSE, 0, "",
     "retry-after: 5\r\n"},
    {"waits, streamed", "POST /v1/chat/completions", "", "{\"model\":\"m\",\"stream\":true," CHAT, GW_LATE_QUEUE, 0, "",
     "data: [DONE]"},
    {"waits, logged", "POST /v1/chat/completions", "x-sluice-events: 1\r\n", "{\"model\":\"m\",\"stream\":true," CHAT,
     GW_LATE_QUEUE, 0, "", "data: [DONE]"},
    {"another model, streamed", "POST /v1/chat/completions", "", "{\"model\":\"m\",\"stream\":true," CHAT,
     GW_LATE_DEGRADE, 0, "s", "\"sluice\":{\"degraded\":\"model\"}"},
    {"another model, whole", "POST /v1/completions", "", "{\"model\":\"m\",\"prompt\":[\"a\",\"b\"],\"stop\":\"x\"}",
     GW_LATE_DEGRADE, 2, "s", "\"degraded\":\"model\""},
    {"another model, a response", "POST /v1/responses", "", "{\"model\":\"m\",\"input\":\"hi\"}", GW_LATE_DEGRADE, 0,
     "s", "\"sluice\":{\"degraded\":\"model\"}"},
    {"shorter", "POST /v1/chat/completions", "", "{\"model\":\"m\",\"stream\":true," CHAT, GW_LATE_DEGRADE, 2, "",
     "\"ended_by\":\"load\",\"degraded\":\"length\""},
};

/* Two models, of which the first is late. */
static void prepare(struct chat_rig *c)
{
	struct proto_queued late = {.n_prompt = 3, .position = 4, .predicted_ttft_us = LATE_US}, soon = {.n_prompt = 3};
	engine_has_two(c, 0);
	buf_clear(&c->queued, SIZE_MAX);
	buf_init(&c->queued_other, 4096);
	assert_int_equal(proto_put_queued(&c->queued, 1, &late), 0);
	assert_int_equal(proto_put_queued(&c->queued_other, 1, &soon), 0);
	c->r.cfg.queue =
	    (struct gw_queue_config){.most = 4, .tell_ms = 10000, .load_high_ms = 2000, .load_low_ms = 500};
}

static void set_tier(struct chat_rig *c, const struct way *w)
{
	static char model[2];
	memcpy(model, w->other, strlen(w->other) + 1);
	c->tier.ttft_target_ms = 1000;
	c->tier.when_late = w->when_late;
	c->tier.degrade_max_tokens = w->max_tokens;
	c->tier.degrade_model = model;
	/* What one was refused for a moment ago is not this one's. */
	memset(&c->app->memo, 0, sizeof c->app->memo);
	c->app->margin = (struct load_margin){0};
}

static void sweep(struct chat_rig *c, const struct way *w)
{
	long n = 0, passes;
	CHAT_UNTIL(c, app_ready(c->app));
	do {
		n++;
		assert_true(n < MOST_PASSES);
		CHAT_UNTIL(c, app_ready(c->app));
		set_tier(c, w);
		passes = ask_with_fault(c, FAULT_ALLOC, n, w->target, w->fields, w->body);
		if (c->n_answer >= 12) {
			int status = atoi(c->answer + 9);
			if (status != 200 && status != 400 && status != 404 && status != 500 && status != 503)
				fail_msg("%s: %s", w->name, c->answer);
			assert_null(strstr(c->answer + 1, "HTTP/1.1 "));
		}
		assert_int_equal(n_running(c), 0);
		assert_int_equal(admission_queue_count(c->app->waiting), 0);
		CHAT_UNTIL(c, n_generations() == 0);
	} while (passes >= n);
	CHAT_UNTIL(c, app_ready(c->app));
	set_tier(c, w);
	ask(c, w->target, w->fields, w->body);
	CHAT_UNTIL(c, at_rest(c));
	if (strstr(c->answer, w->whole) == NULL)
		fail_msg("%s without a fault: %s", w->name, c->answer);
	print_message("%s: %ld\n", w->name, n - 1);
	assert_true(n > 5);
}

static void every_allocation(void **state)
{
	struct chat_rig *c = *state;
	prepare(c);
	json_mem_install();
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		sweep(c, &ways[i]);
	json_set_alloc_funcs(malloc, free);
}

/* The reader leaves while nothing was said yet, and while it is told its place. */
static void readers_leave(void **state)
{
	struct chat_rig *c = *state;
	const struct way *w = &ways[1];
	prepare(c);
	c->silent = true;
	for (int told = 0; told < 2; told++) {
		c->r.cfg.queue.tell_ms = told ? 1 : 10000;
		CHAT_UNTIL(c, app_ready(c->app));
		set_tier(c, w);
		int fd = send_request(c, w->target, w->fields, w->body);
		CHAT_UNTIL(c, admission_queue_count(c->app->waiting) == 1);
		if (told)
			CHAT_UNTIL(c,
				   !answer_ended(c, fd) && strstr(c->answer, "\n: queue position=4 wait_ms=") != NULL);
		else
			assert_int_equal(c->n_answer, 0);
		close(fd);
		CHAT_UNTIL(c, at_rest(c) && n_generations() == 0);
		assert_int_equal(admission_queue_count(c->app->waiting), 0);
		assert_int_equal(n_running(c), 0);
	}
}

/* The engine goes while answers wait: a status where nothing was said, an event where it was. */
static void engine_goes(void **state)
{
	struct chat_rig *c = *state;
	const struct way *w = &ways[1];
	prepare(c);
	c->silent = true;
	for (int told = 0; told < 2; told++) {
		c->r.cfg.queue.tell_ms = told ? 1 : 10000;
		CHAT_UNTIL(c, app_ready(c->app));
		set_tier(c, w);
		memset(c->answer, 0, sizeof c->answer);
		int fd = send_request(c, w->target, w->fields, w->body);
		CHAT_UNTIL(c, admission_queue_count(c->app->waiting) == 1);
		if (told)
			CHAT_UNTIL(c, !answer_ended(c, fd) && strstr(c->answer, "\n: queue ") != NULL);
		shutdown(c->engine, SHUT_RDWR);
		take_answer(c, fd);
		assert_int_equal(atoi(c->answer + 9), told ? 200 : 503);
		assert_non_null(strstr(c->answer, "engine_unavailable"));
		CHAT_UNTIL(c, at_rest(c) && n_generations() == 0);
		assert_int_equal(admission_queue_count(c->app->waiting), 0);
	}
}

/* What QUEUED says, and LOAD of every priority; alone: that nothing else is there. */
static void engine_will_say_of(struct chat_rig *c, uint32_t queued_us, uint32_t load_us, bool alone)
{
	struct proto_queued queued = {
	    .n_prompt = 3, .position = alone ? 0 : 4, .predicted_ttft_us = queued_us, .guess = alone};
	struct proto_load load = {.idle = alone};
	for (int i = 0; i < PROTO_PRIORITIES; i++) {
		load.of[i].wait_us = load_us;
		load.of[i].us_per_place = 100000;
	}
	buf_dispose(&c->queued_other);
	prepare(c);
	buf_clear(&c->queued, SIZE_MAX);
	assert_int_equal(proto_put_queued(&c->queued, 1, &queued), 0);
	assert_int_equal(proto_put_load(&c->hello, &load), 0);
}

static void engine_will_say(struct chat_rig *c, uint32_t queued_us, uint32_t load_us)
{
	engine_will_say_of(c, queued_us, load_us, false);
}

static int status_of(struct chat_rig *c, const struct way *w)
{
	memset(c->answer, 0, sizeof c->answer);
	ask(c, w->target, w->fields, w->body);
	CHAT_UNTIL(c, at_rest(c) && n_generations() == 0);
	return atoi(c->answer + 9);
}

/* Who was told by the engine that it waits too long is not asked for again, until the engine has gone. */
static void words_are_kept(void **state)
{
	struct chat_rig *c = *state;
	const struct way *w = &ways[0];
	engine_will_say(c, LATE_US, 500000);
	CHAT_UNTIL(c, app_ready(c->app) && engine_link_wait_ms(c->app->link, 0, 0) == 500);
	set_tier(c, w);
	assert_int_equal(status_of(c, w), 503);
	assert_int_equal(c->n_submits, 1);
	assert_int_equal(status_of(c, w), 503);
	assert_int_equal(c->n_submits, 1);
	/* The next engine has nobody waiting. */
	engine_will_say(c, 1000, 0);
	shutdown(c->engine, SHUT_RDWR);
	CHAT_UNTIL(c, !app_ready(c->app));
	CHAT_UNTIL(c, app_ready(c->app) && engine_link_wait_ms(c->app->link, 0, 0) == 0);
	assert_int_equal(status_of(c, w), 200);
	assert_int_equal(c->n_submits, 2);
}

/* Just under what the engine said, another of its own is asked for: it may have become less. Near it none is, for a
 * refusal that comes from there takes a step. */
static void near_words_are_refused_here(void **state)
{
	struct chat_rig *c = *state;
	const struct way *w = &ways[0];
	for (int near = 0; near < 2; near++) {
		engine_will_say(c, near ? 900000 : 500000, 300000);
		CHAT_UNTIL(c, app_ready(c->app) && engine_link_wait_ms(c->app->link, 0, 0) >= 300);
		set_tier(c, w);
		c->n_submits = 0;
		assert_int_equal(status_of(c, w), 200);
		assert_int_equal(status_of(c, w), near ? 503 : 200);
		assert_int_equal(c->n_submits, near ? 1 : 2);
	}
}

/* A prediction is believed with a margin that was learnt; who was let in and counted late is not sent away by it. */
static void counted_late(void **state)
{
	struct chat_rig *c = *state;
	const struct way *w = &ways[0];
	static const struct {
		uint32_t predicted_us;
		unsigned slow_ms;
		int status;
	} cases[] = {{900000, 0, 503}, {900000, 40, 200}, {990000, 40, 503}, {400000, 0, 200}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		engine_will_say(c, cases[i].predicted_us, 0);
		CHAT_UNTIL(c, app_ready(c->app));
		set_tier(c, w);
		c->app->margin = (struct load_margin){0.69, clock_now_ns()}; /* twice */
		c->slow_ms = cases[i].slow_ms;
		assert_int_equal(status_of(c, w), cases[i].status);
	}
}

/* An engine that has nothing to do but believes that everything takes a minute: requests are served, by all ways. With
 * something beside them the same words refuse them, and /health has the reason. */
static void idle_servers_refuse_nothing(void **state)
{
	struct chat_rig *c = *state;
	const uint32_t minute_us = 67000000;
	engine_will_say_of(c, minute_us, minute_us, true);
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		/* Each meets an engine that has just said so. */
		if (c->engine >= 0)
			shutdown(c->engine, SHUT_RDWR);
		CHAT_UNTIL(c, !app_ready(c->app));
		CHAT_UNTIL(c, app_ready(c->app) && engine_link_idle(c->app->link, 0));
		set_tier(c, &ways[i]);
		c->tier.load_prompt = 1;
		if (status_of(c, &ways[i]) != 200)
			fail_msg("%s: %s", ways[i].name, c->answer);
		assert_null(strstr(c->answer, "degraded"));
	}
	ask(c, "GET /health", "", "");
	CHAT_UNTIL(c, at_rest(c));
	assert_non_null(strstr(c->answer, "\"refusals\":[]"));
	engine_will_say_of(c, minute_us, 0, false);
	shutdown(c->engine, SHUT_RDWR);
	CHAT_UNTIL(c, !app_ready(c->app));
	CHAT_UNTIL(c, app_ready(c->app));
	set_tier(c, &ways[0]);
	assert_int_equal(status_of(c, &ways[0]), 503);
	ask(c, "GET /health", "", "");
	CHAT_UNTIL(c, at_rest(c));
	assert_non_null(strstr(c->answer,
			       "\"refusals\":[{\"reason\":\"late\",\"message\":\"the first token was predicted later "
			       "than the tier allows\",\"total\":1,\"seconds_ago\":0,\"predicted_ms\":67000}]"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(idle_servers_refuse_nothing, chat_set_up,
					    chat_tear_down), /* before any refusal */
	    cmocka_unit_test_setup_teardown(every_allocation, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(readers_leave, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(engine_goes, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(words_are_kept, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(near_words_are_refused_here, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(counted_late, chat_set_up, chat_tear_down),
	};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
