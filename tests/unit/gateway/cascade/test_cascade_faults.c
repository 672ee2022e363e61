/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers of the cascade with the nth allocation failing, for every n, on every plan: streamed, whole, logged. What
 * comes back is one answer, a piece of one, or a refusal; afterwards nothing goes on, nothing is counted, and the next
 * request is served. And readers and engines that go in the middle.
 */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "cascade/cascade.h"
#include "gateway/request/json_mem.h"
#include "gateway/admission/admission_queue.h"
#include "tests/support/chat_rig.h"

enum { MOST_PASSES = 3000 };

#define CHAT(word) "\"messages\":[{\"role\":\"user\",\"content\":\"" word "\"}]}"

/* The tier's scores make every request one to be watched; words force the other plans. */
static struct casc_tier_setting tier = {.name = "t",
					.easy = 0,
					.race = 1,
					.hard = 1,
					.sure = 0.75,
					.low = 0.5,
					.drop = 0.4,
					.share = 1,
					.disagree = CASC_TELL_IT};
static struct casc_rule_setting rules[] = {{.name = "s", .model = "small"}, {.name = "l", .model = "large"}};
static char *small_words[] = {"easy"}, *large_words[] = {"hard"};
static struct casc_settings settings = {.weights = "",
					.hold_tokens = 16,
					.hold_min = 3,
					.hold_ms = 60000,
					.window = 6,
					.smooth = 0.25,
					.w_mean = 0.5,
					.w_min = 0.2,
					.takeover_ms = 60000,
					.floor = 1000000,
					.fallback = true};

static void settle(void)
{
	rules[0].contains = (struct conf_strings){.items = small_words, .n = 1};
	rules[1].contains = (struct conf_strings){.items = large_words, .n = 1};
	settings.tiers = (struct conf_list){.items = &tier, .n = 1};
	settings.rules = (struct conf_list){.items = rules, .n = 2};
	chat_cascade = &settings;
}

/* The small model's confidence: tokens of this probability's logarithm. */
static const struct way {
	const char *name, *target, *fields, *body;
	float logprob;
	double race; /* the score from which both start */
	uint32_t agreed;
	const char *whole; /* in the answer when nothing fails */
} ways[] = {
    {"small", "POST /v1/chat/completions", "", "{\"model\":\"auto\"," CHAT("easy"), 0, 1, 0,
     "{\"plan\":\"small\",\"why\":\"forced\",\"parts\":[{\"model\":\"s\",\"tokens\":3}],\"escalated\":false}"},
    {"large, streamed", "POST /v1/chat/completions", "", "{\"model\":\"auto\",\"stream\":true," CHAT("hard"), 0, 1, 0,
     "{\"plan\":\"large\",\"why\":\"forced\",\"parts\":[{\"model\":\"m\",\"tokens\":3}],\"escalated\":false}"},
    {"sure, streamed", "POST /v1/chat/completions", "", "{\"model\":\"auto\",\"stream\":true," CHAT("hi"), 0, 1, 0,
     "{\"plan\":\"check\",\"why\":\"middle\",\"parts\":[{\"model\":\"s\",\"tokens\":3}],\"escalated\":false}"},
    {"unsure, all agreed", "POST /v1/chat/completions", "", "{\"model\":\"auto\",\"stream\":true," CHAT("hi"), -5, 1, 3,
     "\"parts\":[{\"model\":\"s\",\"tokens\":3},{\"model\":\"m\",\"tokens\":3}],\"escalated\":true,\"reason\":"
     "\"held\"}"},
    {"unsure, logged", "POST /v1/chat/completions", "x-sluice-events: 1\r\n",
     "{\"model\":\"auto\",\"stream\":true," CHAT("hi"), -5, 1, 1,
     "\"parts\":[{\"model\":\"s\",\"tokens\":1},{\"model\":\"m\",\"tokens\":3}],\"escalated\":true,\"reason\":"
     "\"held\"}"},
    {"unsure, with log probabilities", "POST /v1/completions", "",
     "{\"model\":\"auto\",\"prompt\":\"hi\",\"logprobs\":2}", -5, 1, 0,
     "\"parts\":[{\"model\":\"m\",\"tokens\":3}],\"escalated\":true,\"reason\":\"held\"}"},
    {"unsure, a response", "POST /v1/responses", "", "{\"model\":\"auto\",\"input\":\"hi\"}", -5, 1, 2,
     "{\"plan\":\"check\",\"why\":\"middle\",\"parts\":[{\"model\":\"s\",\"tokens\":2},{\"model\":\"m\",\"tokens\":3}],"
     "\"escalated\":true,"
     "\"reason\":\"held\"}"},
    {"race", "POST /v1/chat/completions", "", "{\"model\":\"auto\",\"stream\":true," CHAT("hi"), 0, 0, 0,
     "{\"plan\":\"race\",\"why\":\"likely_hard\""},
    {"several choices", "POST /v1/completions", "", "{\"model\":\"auto\",\"prompt\":[\"a\",\"b\"],\"stop\":\"x\"}", 0,
     1, 0,
     "\"cascades\":[{\"plan\":\"check\",\"why\":\"middle\",\"parts\":[{\"model\":\"s\",\"tokens\":3}],\"escalated\":"
     "false},"
     "{\"plan\":\"check\",\"why\":\"middle\",\"parts\":[{\"model\":\"s\",\"tokens\":3}],\"escalated\":false}]"},
};

/* A large model (m) and a small one (s). */
static void prepare(struct chat_rig *c)
{
	struct proto_queued queued = {.n_prompt = 3};
	struct proto_done done = {
	    .finish = PROTO_FINISH_STOP, .n_prompt = 3, .n_completion = FAKE_TOKENS, .message = {"", 0}};
	c->r.cfg.limits.window_tokens = 16;
	engine_has_two(c, 7);
	buf_init(&c->queued_other, 4096);
	buf_init(&c->tokens_other, 4096);
	buf_init(&c->done_other, 4096);
	buf_init(&c->verified, 4096);
	assert_int_equal(proto_put_queued(&c->queued_other, 1, &queued), 0);
	assert_int_equal(proto_put_done(&c->done_other, 1, &done), 0);
}

static void set_way(struct chat_rig *c, const struct way *w)
{
	const struct proto_token t[FAKE_TOKENS] = {{.id = 11, .n_bytes = 1, .logprob = w->logprob},
						   {.id = 12, .n_bytes = 1, .logprob = w->logprob},
						   {.id = 13, .n_bytes = 1, .logprob = w->logprob}};
	struct proto_tokens tokens = {.n = FAKE_TOKENS, .tokens = t, .text = {"ABC", 3}};
	struct proto_verified verified = {.n_agreed = w->agreed, .n_used = w->agreed};
	buf_clear(&c->tokens_other, SIZE_MAX);
	buf_clear(&c->verified, SIZE_MAX);
	assert_int_equal(proto_put_tokens(&c->tokens_other, 1, &tokens), 0);
	assert_int_equal(proto_put_verified(&c->verified, 1, &verified), 0);
}

static void expect_at_rest(struct chat_rig *c)
{
	CHAT_UNTIL(c, at_rest(c));
	assert_int_equal(n_running(c), 0);
	assert_int_equal(admission_queue_count(c->app->waiting), 0);
	CHAT_UNTIL(c, n_generations() == 0);
}

static void sweep(struct chat_rig *c, const struct way *w)
{
	long n = 0, passes;
	set_way(c, w);
	do {
		n++;
		assert_true(n < MOST_PASSES);
		CHAT_UNTIL(c, app_ready(c->app) && engine_link_n_models(c->app->link) == 2);
		passes = ask_with_fault(c, FAULT_ALLOC, n, w->target, w->fields, w->body);
		if (c->n_answer >= 12) {
			long status = strtol(c->answer + 9, NULL, 10);
			if (status != 200 && status != 500 && status != 503)
				fail_msg("%s: %s", w->name, c->answer);
			assert_null(strstr(c->answer + 1, "HTTP/1.1 "));
		}
		expect_at_rest(c);
	} while (passes >= n);
	CHAT_UNTIL(c, app_ready(c->app));
	ask(c, w->target, w->fields, w->body);
	CHAT_UNTIL(c, at_rest(c));
	if (strstr(c->answer, w->whole) == NULL)
		fail_msg("%s without a fault: %s", w->name, c->answer);
	print_message("%s: %ld\n", w->name, n - 1);
	assert_true(n > 5);
}

/* A configuration is a state of the application: a new rig for each kind of race. */
static void sweep_all(bool racing)
{
	void *state;
	struct chat_rig *c;
	tier.race = racing ? 0 : 1;
	assert_int_equal(chat_set_up(&state), 0);
	c = state;
	prepare(c);
	json_mem_install();
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if ((ways[i].race < 1) == racing)
			sweep(c, &ways[i]);
	json_set_alloc_funcs(malloc, free);
	chat_tear_down(&state);
}

static void every_allocation(void **state)
{
	(void)state;
	sweep_all(false);
	sweep_all(true);
}

static void every_allocation_with_a_log(void **state)
{
	char path[64];
	(void)state;
	snprintf(path, sizeof path, "/tmp/sluice-casc-%d.jsonl", (int)getpid());
	chat_cascade_log = path;
	sweep_all(false);
	chat_cascade_log = NULL;
	assert_int_equal(unlink(path), 0);
}

/* The reader leaves, or the engine, while the small model's tokens are held and while the large one is asked. */
static void they_go(void **state)
{
	static const struct way unsure = {.logprob = -5, .agreed = 3};
	struct chat_rig *c;
	tier.race = 1;
	assert_int_equal(chat_set_up(state), 0);
	c = *state;
	prepare(c);
	for (int engine_goes = 0; engine_goes < 2; engine_goes++) {
		for (int at = 0; at < 2; at++) {
			set_way(c, &unsure);
			CHAT_UNTIL(c, app_ready(c->app) && engine_link_n_models(c->app->link) == 2);
			/* Silent from its QUEUED on, or the large one only. */
			c->silent = at == 0;
			c->given_id = 0;
			buf_clear(&c->verified, SIZE_MAX);
			struct sl_buf tokens = c->tokens, done = c->done;
			buf_init(&c->tokens, 4096);
			buf_init(&c->done, 4096);
			int fd = send_request(c, "POST /v1/chat/completions", "",
					      "{\"model\":\"auto\",\"stream\":true," CHAT("hi"));
			if (at == 0)
				CHAT_UNTIL(c, c->credited_id != 0 && n_generations() == 1);
			else
				CHAT_UNTIL(c, c->given_id != 0 && c->credited_id == c->given_id);
			if (engine_goes) {
				close(c->engine);
				c->engine = -1;
				take_answer(c, fd);
				/* The small model had come to its end: nothing is lost with the large one. */
				const char *want = at == 0 ? "engine_unavailable" : "\"content\":\"ABC\"";
				if (strstr(c->answer, want) == NULL)
					fail_msg("%d: %s", at, c->answer);
			} else {
				close(fd);
			}
			expect_at_rest(c);
			buf_dispose(&c->tokens);
			buf_dispose(&c->done);
			c->tokens = tokens;
			c->done = done;
			c->silent = false;
			c->credited_id = 0;
		}
	}
	chat_tear_down(state);
}

/* Models whose tokenizers differ: the large one goes on behind the text that was shown, which is neither said again nor
 * lost; where none was shown it answers by itself. */
static void other_tokenizers(void **state)
{
	static const struct {
		const char *target, *body, *prompt, *text, *after, *parts;
		uint32_t n_sure;
		const char *usage; /* what the large one counted, without the small one's tokens */
	} cases[] = {
	    {"POST /v1/chat/completions", "{\"model\":\"auto\",\"max_tokens\":50,\"stream\":true," CHAT("hi"),
	     "{\"role\":\"assistant\",\"content\":\"AB\"}],\"continue_final_message\":true}", "\"content\":\"AB\"",
	     "\"content\":\"abc\"",
	     "\"parts\":[{\"model\":\"s\",\"tokens\":2},{\"model\":\"m\",\"tokens\":3}],\"escalated\":true,\"reason\":"
	     "\"shown\"}",
	     2, ""},
	    {"POST /v1/completions", "{\"model\":\"auto\",\"max_tokens\":50,\"prompt\":\"hi \"}", "hi AB",
	     "\"text\":\"ABabc\"", "",
	     "\"parts\":[{\"model\":\"s\",\"tokens\":2},{\"model\":\"m\",\"tokens\":3}],\"escalated\":true,\"reason\":"
	     "\"shown\"}",
	     2, "\"prompt_tokens\":7"},
	    {"POST /v1/completions", "{\"model\":\"auto\",\"max_tokens\":50,\"prompt\":\"hi \"}", "hi ",
	     "\"text\":\"abc\"", "",
	     "\"parts\":[{\"model\":\"m\",\"tokens\":3}],\"escalated\":true,\"reason\":\"held\"}", 0,
	     "\"prompt_tokens\":9"},
	};
	static const struct way nothing = {.logprob = 0};
	struct chat_rig *c;
	tier.race = 1;
	settings.hold_min = 1;
	assert_int_equal(chat_set_up(state), 0);
	c = *state;
	prepare(c);
	set_way(c, &nothing);
	/* QUEUED's 3 was an estimate. */
	struct proto_done done = {
	    .finish = PROTO_FINISH_STOP, .n_prompt = 9, .n_completion = FAKE_TOKENS, .message = {"", 0}};
	buf_clear(&c->done, SIZE_MAX);
	assert_int_equal(proto_put_done(&c->done, 1, &done), 0);
	struct proto_model small = {.index = 1,
				    .state = PROTO_MODEL_READY,
				    .role = 1,
				    .does = PROTO_DOES_GENERATE,
				    .n_ctx = 100,
				    .name = {"s", 1},
				    .tokenizer = 8};
	struct proto_model large = {.state = PROTO_MODEL_READY,
				    .role = 2,
				    .does = PROTO_DOES_GENERATE | PROTO_DOES_REFUSE_LATE,
				    .n_ctx = 100,
				    .name = {"m", 1},
				    .tokenizer = 7};
	assert_int_equal(proto_put_model(&c->hello, &small), 0);
	assert_int_equal(proto_put_model(&c->hello, &large), 0);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		float sure = cases[i].n_sure > 0 ? 0 : -5;
		const struct proto_token t[FAKE_TOKENS] = {{.id = 11, .n_bytes = 1, .logprob = sure},
							   {.id = 12, .n_bytes = 1, .logprob = sure},
							   {.id = 13, .n_bytes = 1, .logprob = -50}};
		struct proto_tokens tokens = {.n = FAKE_TOKENS, .tokens = t, .text = {"ABC", 3}};
		buf_clear(&c->tokens_other, SIZE_MAX);
		assert_int_equal(proto_put_tokens(&c->tokens_other, 1, &tokens), 0);
		CHAT_UNTIL(c, app_ready(c->app) && engine_link_n_models(c->app->link) == 2);
		CHAT_UNTIL(c, engine_link_model(c->app->link, 1)->tokenizer == 8);
		ask(c, cases[i].target, "", cases[i].body);
		CHAT_UNTIL(c, at_rest(c));
		const char *text = strstr(c->answer, cases[i].text);
		size_t n = strlen(c->prompt), n_end = strlen(cases[i].prompt);
		if (text == NULL || strstr(text + 1, cases[i].after) == NULL ||
		    strstr(c->answer, cases[i].parts) == NULL || strstr(c->answer, cases[i].usage) == NULL ||
		    n < n_end || strcmp(c->prompt + n - n_end, cases[i].prompt) != 0)
			fail_msg("%zu: %s\nprompt: %s", i, c->answer, c->prompt);
		assert_null(strstr(c->answer, "C")); /* what tipped it was not shown */
		assert_int_equal(c->max_tokens, 50 - cases[i].n_sure);
		expect_at_rest(c);
	}
	settings.hold_min = 3;
	chat_tear_down(state);
}

/* The reader leaves, or the engine, in a race: before any token, and with the small one's held; and while the large one
 * checks what was shown. */
static void they_go_in_the_middle(void **state)
{
	enum place { RACE_SILENT, RACE_HELD, VERIFYING, N_PLACES };
	struct chat_rig *c;
	tier.race = 0;
	settings.hold_min = 1;
	assert_int_equal(chat_set_up(state), 0);
	c = *state;
	prepare(c);
	for (int k = 0; k < 2 * N_PLACES; k++) {
		enum place at = (enum place)(k / 2);
		bool engine_goes = k % 2 == 1;
		struct way way = {.logprob = at == RACE_HELD ? logf(0.6f) : 0}; /* neither sure nor below low */
		struct sl_buf kept[] = {c->tokens, c->done, c->done_other};
		set_way(c, &way);
		buf_clear(&c->verified, SIZE_MAX);
		buf_init(&c->tokens, 4096); /* the large one says nothing, the small one does not end */
		buf_init(&c->done, 4096);
		buf_init(&c->done_other, 4096);
		if (at == VERIFYING) { /* the small one wins, and loses its confidence then */
			const struct proto_token t[FAKE_TOKENS] = {{.id = 11, .n_bytes = 1},
								   {.id = 12, .n_bytes = 1},
								   {.id = 13, .n_bytes = 1, .logprob = -50}};
			struct proto_tokens tokens = {.n = FAKE_TOKENS, .tokens = t, .text = {"ABC", 3}};
			buf_clear(&c->tokens_other, SIZE_MAX);
			assert_int_equal(proto_put_tokens(&c->tokens_other, 1, &tokens), 0);
		}
		c->silent = at == RACE_SILENT;
		c->given_id = c->credited_id = 0;
		CHAT_UNTIL(c, app_ready(c->app) && engine_link_n_models(c->app->link) == 2);
		int fd =
		    send_request(c, "POST /v1/chat/completions", "", "{\"model\":\"auto\",\"stream\":true," CHAT("hi"));
		if (at == VERIFYING)
			CHAT_UNTIL(c, c->given_id != 0);
		else
			CHAT_UNTIL(c, c->credited_id != 0 && n_generations() == 1);
		if (engine_goes) {
			close(c->engine);
			c->engine = -1;
			take_answer(c, fd);
			assert_non_null(strstr(c->answer, "engine_unavailable"));
		} else {
			close(fd);
		}
		expect_at_rest(c);
		buf_dispose(&c->tokens);
		buf_dispose(&c->done);
		buf_dispose(&c->done_other);
		c->tokens = kept[0];
		c->done = kept[1];
		c->done_other = kept[2];
		c->silent = false;
	}
	settings.hold_min = 3;
	chat_tear_down(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_allocation),
	    cmocka_unit_test(every_allocation_with_a_log),
	    cmocka_unit_test(they_go),
	    cmocka_unit_test(other_tokenizers),
	    cmocka_unit_test(they_go_in_the_middle),
	};
	log_set_level(LOG_ERROR);
	settle();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
