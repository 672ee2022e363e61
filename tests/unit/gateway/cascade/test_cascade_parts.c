/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run of the cascade is made of: the queue of tokens, the prompt that goes on with a text, the log of outcomes,
 * and tiers' loads and budgets over a reload.
 */
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/cascade/cascade_log.h"
#include "gateway/cascade/cascade_prompt.h"
#include "gateway/cascade/cascade_queue.h"
#include "gateway/cascade/cascade_state.h"

/* ---- the queue ---- */

static const char *const pieces[] = {"", "a", "bb", "\xe2\x82", "d"};
static struct proto_str piece_of(const void *ctx, uint32_t id)
{
	(void)ctx;
	const char *p = pieces[id % 5];
	return (struct proto_str){p, strlen(p)};
}

/* A frame as the engine sends it: three tokens with three rivals each. */
static void make_frame(struct sl_buf *out, struct proto_tokens *m, uint32_t first, bool with_pieces)
{
	const struct proto_token t[3] = {{.id = first, .logprob = -1, .n_bytes = 2},
					 {.id = first + 1, .logprob = -2, .n_bytes = 0},
					 {.id = first + 2, .logprob = -3, .n_bytes = 1}};
	struct proto_id_f32 tops[9];
	for (uint32_t i = 0; i < 9; i++)
		tops[i] = (struct proto_id_f32){first + i, -(float)i};
	struct proto_tokens sent = {.n = 3,
				    .n_top = 3,
				    .tokens = t,
				    .tops = tops,
				    .text = {"xyz", 3},
				    .pieces = {.of = with_pieces ? piece_of : NULL}};
	buf_init(out, 4096);
	assert_int_equal(proto_put_tokens(out, 1, &sent), 0);
	assert_int_equal(proto_get_tokens(buf_data(out) + PROTO_HEAD_BYTES, out->len - PROTO_HEAD_BYTES, m, NULL), 0);
}

/* Two rivals of three are told, or none. */
static void queue_cuts_what_is_not_asked_for(void **state)
{
	(void)state;
	for (uint8_t n_top = 0; n_top <= 4; n_top++) {
		struct cascade_queue q;
		struct cascade_frame f;
		struct proto_tokens m, front;
		struct sl_buf frame;
		uint32_t id = 7;
		cascade_queue_init(&q, n_top, n_top > 0);
		for (int k = 0; k < 2; k++) {
			make_frame(&frame, &m, 7 + 3 * (uint32_t)k, true);
			cascade_frame_begin(&f, &m);
			while (f.at < m.n)
				assert_int_equal(cascade_queue_push(&q, &f), 0);
			assert_int_equal(f.pieces.n, 0);
			buf_dispose(&frame);
		}
		assert_int_equal(q.n, 6);
		/* Taken in other portions than they came in. */
		for (uint32_t want = 4; q.n > 0; want = 2) {
			cascade_queue_front(&q, want, &front);
			assert_int_equal(front.n, want);
			assert_int_equal(front.n_top, n_top);
			struct proto_str left = front.pieces.all;
			size_t text = 0;
			for (uint16_t i = 0; i < front.n; i++, id++) {
				struct proto_token t = proto_token_at(&front, i);
				assert_int_equal(t.id, id);
				text += t.n_bytes;
				struct proto_str own = proto_piece_next(&left);
				if (n_top > 0 && n_top <= 3)
					assert_memory_equal(own.at, pieces[id % 5], own.n);
				for (uint8_t j = 0; j < n_top; j++) {
					struct proto_id_f32 top = proto_top_at(&front, i, j);
					if (j == 3)
						assert_true(isinf(top.v));
					else
						assert_true(top.v == -(float)((id - 7) % 3 * 3 + j));
					if (n_top <= 3)
						proto_piece_next(&left);
				}
			}
			assert_int_equal(left.n, 0);
			assert_int_equal(text, front.text.n);
			cascade_queue_pop(&q, &front);
		}
		cascade_queue_dispose(&q);
	}
}

static void queue_keeps_choices_apart(void **state)
{
	struct cascade_queue q;
	struct cascade_frame f;
	struct proto_tokens m, front;
	struct sl_buf frame;
	(void)state;
	cascade_queue_init(&q, 0, false);
	for (uint8_t choice = 0; choice < 2; choice++) {
		make_frame(&frame, &m, 1, false);
		m.choice = choice;
		cascade_frame_begin(&f, &m);
		while (f.at < m.n)
			assert_int_equal(cascade_queue_push(&q, &f), 0);
		buf_dispose(&frame);
	}
	for (uint8_t choice = 0; choice < 2; choice++) {
		cascade_queue_front(&q, 100, &front);
		assert_int_equal(front.n, 3);
		assert_int_equal(front.choice, choice);
		assert_memory_equal(front.text.at, "xyz", 3);
		cascade_queue_pop(&q, &front);
	}
	cascade_queue_dispose(&q);
}

/* ---- prompts ---- */

static json_t *continued(const char *prompt, const char *text, int want)
{
	struct sl_buf out;
	buf_init(&out, 4096);
	assert_int_equal(cascade_prompt_continue(&out, PROTO_PROMPT_CHAT, (struct proto_str){prompt, strlen(prompt)},
						 text, strlen(text)),
			 want);
	json_t *root = want == 0 ? json_loadb((const char *)buf_data(&out), out.len, 0, NULL) : NULL;
	buf_dispose(&out);
	return root;
}

static void prompts_go_on(void **state)
{
	struct sl_buf out;
	(void)state;
	buf_init(&out, 64);
	assert_int_equal(cascade_prompt_continue(&out, PROTO_PROMPT_TEXT, (struct proto_str){"ab", 2}, "cd", 2), 0);
	assert_memory_equal(buf_data(&out), "abcd", 4);
	assert_int_equal(cascade_prompt_continue(&out, PROTO_PROMPT_TOKENS, (struct proto_str){"abcd", 4}, "x", 1),
			 SL_EUNSUPPORTED);
	buf_dispose(&out);

	json_t *root = continued(
	    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"add_generation_prompt\":true}", "so \"far\"", 0);
	const json_t *last = json_array_get(json_object_get(root, "messages"), 1);
	assert_string_equal(json_string_value(json_object_get(last, "role")), "assistant");
	assert_string_equal(json_string_value(json_object_get(last, "content")), "so \"far\"");
	assert_true(json_is_true(json_object_get(root, "continue_final_message")));
	assert_null(json_object_get(root, "add_generation_prompt"));
	json_decref(root);

	root = continued(
	    "{\"messages\":[{\"role\":\"assistant\",\"content\":\"one \"}],\"continue_final_message\":true}", "two", 0);
	last = json_array_get(json_object_get(root, "messages"), 0);
	assert_string_equal(json_string_value(json_object_get(last, "content")), "one two");
	json_decref(root);
	continued("{\"messages\":[{\"role\":\"assistant\",\"content\":null}],\"continue_final_message\":true}", "two",
		  SL_EUNSUPPORTED);
}

static void prompts_are_scored(void **state)
{
	struct casc_settings s = {.weights = ""};
	struct casc_rule_setting rule = {.name = "r", .model = "large"};
	char *word = "needle";
	struct casc_scorer *scorer;
	struct casc_score score;
	struct sl_err err;
	(void)state;
	rule.contains = (struct conf_strings){.items = &word, .n = 1};
	s.rules = (struct conf_list){.items = &rule, .n = 1};
	assert_int_equal(casc_scorer_create(&s, &scorer, &err), 0);
	static const struct {
		uint8_t kind;
		const char *prompt;
		bool found;
	} cases[] = {
	    {PROTO_PROMPT_TEXT, "a needle", true},
	    {PROTO_PROMPT_TOKENS, "needle12", false},
	    {PROTO_PROMPT_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"needle\"}]}", true},
	    {PROTO_PROMPT_CHAT,
	     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a needle\"}]}]}", true},
	    {PROTO_PROMPT_CHAT,
	     "{\"messages\":[{\"role\":\"user\",\"content\":\"needle\"},{\"role\":\"user\",\"content\":\"x\"}]}",
	     false},
	    {PROTO_PROMPT_CHAT, "no JSON: needle", false}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		cascade_prompt_score(scorer, cases[i].kind,
				     (struct proto_str){cases[i].prompt, strlen(cases[i].prompt)}, 0, &score, NULL);
		assert_int_equal(score.model != NULL, cases[i].found);
	}
	casc_scorer_destroy(scorer);
}

/* ---- the log ---- */

static long size_of(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 ? (long)st.st_size : -1;
}

static void log_is_bounded(void **state)
{
	char path[64], before[72], line[32];
	struct line_file *log;
	struct sl_err err;
	(void)state;
	snprintf(path, sizeof path, "/tmp/sluice-casclog-%d", (int)getpid());
	snprintf(before, sizeof before, "%s.1", path);
	memset(line, 'x', sizeof line);
	assert_int_equal(cascade_log_open("/nowhere/at/all", 100, &log, &err), SL_EIO);
	assert_non_null(strstr(err.text, "/nowhere/at/all"));
	assert_int_equal(cascade_log_open(path, 100, &log, &err), 0);
	for (int i = 0; i < 3; i++)
		cascade_log_write(log, line, sizeof line);
	assert_int_equal(size_of(path), 96);
	assert_int_equal(size_of(before), -1);
	cascade_log_write(log, line, sizeof line);
	assert_int_equal(size_of(path), 32);
	assert_int_equal(size_of(before), 96);
	/* Somebody moves it away: the next line begins a new one. */
	assert_int_equal(unlink(path), 0);
	cascade_log_write(log, line, sizeof line);
	assert_int_equal(size_of(path), 32);
	cascade_log_close(log);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(unlink(before), 0);
}

/* ---- tiers ---- */

static void loads_and_budgets_outlive_a_reload(void **state)
{
	struct gw_tier_config tiers[] = {{.name = "best", .priority = 0}, {.name = "rest", .priority = 1}};
	struct casc_tier_setting settings[] = {{.name = "best", .target_ttft_ms = 100, .race = 1, .hard = 1},
					       {.name = "rest", .target_ttft_ms = 5000, .race = 0, .hard = 1}};
	struct casc_settings casc = {
	    .weights = "", .w_mean = 1, .window = 1, .smooth = 1, .leave_ratio = 0.5, .leave_ms = 100, .recover_ms = 1};
	struct gw_config cfg = {.tiers = {.items = tiers, .n = 2}};
	struct cascade_state *first, *second;
	struct sl_err err;
	uint32_t small[PROTO_PRIORITIES] = {0}, large[PROTO_PRIORITIES] = {0};
	(void)state;
	assert_int_equal(cascade_state_create(&cfg, NULL, &first, &err), 0);
	assert_null(first);
	casc.tiers = (struct conf_list){.items = settings, .n = 2};
	cfg.cascade = &casc;
	assert_int_equal(cascade_state_create(&cfg, NULL, &first, &err), 0);
	struct cascade_tier *best = cascade_state_tier(first, "best"), *rest = cascade_state_tier(first, "rest");
	assert_false(cascade_tier_degraded(rest, 0, 200, 1000));
	/* The engine tells that the better tier is late: then so are both, though nobody asked. */
	large[0] = large[1] = 200;
	cascade_state_see(first, small, large, 1001);
	assert_true(cascade_tier_degraded(best, 0, 200, 1002));
	assert_true(cascade_tier_degraded(rest, 0, 200, 1002));
	/* A race takes from the budget, which has none: the plan is to watch. */
	struct casc c;
	struct casc_actions out;
	struct casc_event start = {
	    .kind = CASC_START,
	    .now_ms = 1002,
	    .plan = {.score = 0.5F, .can_small = true, .can_large = true, .can_watch = true, .can_verify = true}};
	casc_init(&c, cascade_tier_policy(rest));
	assert_int_equal(cascade_tier_step(rest, &c, &start, &out), 0);
	assert_int_equal(c.why, CASC_WHY_BUDGET);

	assert_int_equal(cascade_state_create(&cfg, first, &second, &err), 0);
	assert_true(cascade_tier_degraded(cascade_state_tier(second, "rest"), 0, 200, 1003));
	cascade_state_destroy(first);
	cascade_state_destroy(second);
	cascade_state_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(queue_cuts_what_is_not_asked_for),
	    cmocka_unit_test(queue_keeps_choices_apart),
	    cmocka_unit_test(prompts_go_on),
	    cmocka_unit_test(prompts_are_scored),
	    cmocka_unit_test(log_is_bounded),
	    cmocka_unit_test(loads_and_budgets_outlive_a_reload),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
