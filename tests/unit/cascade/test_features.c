/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "cascade/cues.h"
#include "cascade/weights.h"

static struct casc_features f;

static const float *of_text(const char *text, size_t n)
{
	const struct casc_message m = {CASC_USER, text, n};
	const struct casc_ask ask = {&m, 1, 0, 0};
	casc_features(&ask, &f);
	return f.dense;
}

static const float *of(const char *text) { return of_text(text, strlen(text)); }

static void cues(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		enum casc_feature feature;
	} cases[] = {
	    {"Explain how tides work", CASC_F_EXPLAIN},
	    {"EXPLAIN it", CASC_F_EXPLAIN},
	    {"analyse this poem", CASC_F_ANALYSE},
	    {"Compare cats and dogs", CASC_F_COMPARE},
	    {"the difference, please", CASC_F_COMPARE},
	    {"write a poem", CASC_F_WRITE},
	    {"a python function", CASC_F_CODE},
	    {"solve the equation", CASC_F_MATHS},
	    {"think step by step", CASC_F_REASON},
	    {"thanks!", CASC_F_SIMPLE},
	    {"What is it", CASC_F_ASKS},
	    {"조수가 왜 생기는지 설명해 주세요", CASC_F_EXPLAIN},
	    {"두 글을 비교해줘", CASC_F_COMPARE},
	    {"시장 동향을 분석하고", CASC_F_ANALYSE},
	    {"파이썬으로 짜줘", CASC_F_CODE},
	    {"이 방정식을 풀어", CASC_F_MATHS},
	    {"보고서를 작성해", CASC_F_WRITE},
	    {"그 이유를 말해", CASC_F_REASON},
	    {"안녕하세요", CASC_F_SIMPLE},
	    {"프랑스는 어디에 있나요", CASC_F_ASKS},
	    {"수도는 무엇입니까", CASC_F_ASKS},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (!(of(cases[i].text)[cases[i].feature] > 0))
			fail_msg("'%s' has no %s", cases[i].text, casc_feature_name(cases[i].feature));
	const float *d = of("The sky is blue.");
	for (int i = CASC_F_ASKS; i <= CASC_F_FENCES; i++)
		assert_true(d[i] == 0);
	/* Words, not parts of words. */
	assert_true(of("rewritten codes")[CASC_F_CODE] == 0);
	assert_int_equal(casc_cue_of(12345), -1);
}

static void counts(void **state)
{
	(void)state;
	const float *d = of("```c\nint x = 1;\n```\nWhat? Why?\n12 345");
	assert_true(d[CASC_F_FENCES] == 0.5f && d[CASC_F_QUESTIONS] == 0.5f && d[CASC_F_SYMBOLS] > 0);
	assert_true(d[CASC_F_NUMBERS] == 3.0f / 16 && d[CASC_F_LINES] == 4.0f / 32);
	const struct casc_message talk[] = {{CASC_SYSTEM, "You are terse.", 14},
					    {CASC_USER, "write code", 10},
					    {CASC_ASSISTANT, "ok", 2},
					    {CASC_USER, "thanks", 6},
					    {CASC_TOOL, "{}", 2}};
	const struct casc_ask ask = {talk, 5, 4, 1000};
	casc_features(&ask, &f);
	assert_true(f.dense[CASC_F_TURNS] == 2.0f / 16 && f.dense[CASC_F_TOOLS] == 0.5f);
	assert_true(f.dense[CASC_F_SYSTEM] > 0 && f.dense[CASC_F_ASKED] > 0.5f);
	/* Words are those of the last user message. */
	assert_true(f.dense[CASC_F_SIMPLE] > 0 && f.dense[CASC_F_CODE] == 0);
	/* Nobody asks anything. */
	const struct casc_ask none = {NULL, 0, 0, 0};
	casc_features(&none, &f);
	for (int i = 0; i < CASC_N_FEATURES; i++)
		assert_true(f.dense[i] == 0);
	assert_int_equal(f.n_grams, 0);
	for (int i = 0; i < CASC_N_FEATURES; i++)
		assert_int_equal(casc_feature_find(casc_feature_name(i)), i);
	assert_int_equal(casc_feature_find("nothing"), -1);
	assert_null(casc_feature_name(CASC_N_FEATURES));
	assert_null(casc_feature_name(-1));
}

static bool has_gram(uint32_t gram)
{
	for (uint32_t i = 0; i < f.n_grams; i++)
		if (f.grams[i] == gram)
			return true;
	return false;
}

static void grams(void **state)
{
	(void)state;
	of("alpha beta");
	assert_int_equal(f.n_grams, 3); /* two words and their pair */
	uint32_t alpha = f.grams[0], pair = f.grams[2];
	of("ALPHA, Beta!");
	assert_true(f.n_grams == 3 && f.grams[0] == alpha && f.grams[2] == pair);
	of("beta alpha");
	assert_true(has_gram(alpha) && !has_gram(pair));
	of("1234 gamma");
	uint32_t number = f.grams[0];
	of("9876");
	assert_true(has_gram(number));
	/* Korean words share what their characters share. */
	of("설명해");
	uint32_t stem = f.grams[1];
	of("설명을");
	assert_true(has_gram(stem));
	/* Known values: part of the format of weights files. */
	of("a");
	assert_int_equal(f.grams[0], casc_hash_mix((CASC_HASH_SEED ^ 'a') * 16777619u));
}

/* The time is bounded by windows; what lies between them does not count. */
static void windows(void **state)
{
	(void)state;
	size_t n = 3 * CASC_WINDOW;
	char *text = malloc(n);
	assert_non_null(text);
	memset(text, ' ', n);
	memcpy(text + CASC_WINDOW + 100, "explain", 7);
	assert_true(of_text(text, n)[CASC_F_EXPLAIN] == 0);
	memcpy(text + 10, "explain", 7);
	memcpy(text + n - 7, "explain", 7);
	assert_true(of_text(text, n)[CASC_F_EXPLAIN] == 2.0f / 3);
	for (size_t i = 0; i < n; i++)
		text[i] = i % 2 == 0 ? 'a' : ' ';
	of_text(text, n);
	assert_int_equal(f.n_grams, CASC_MAX_GRAMS);
	free(text);
}

/* Bytes that are no text, each at the very end of its memory. */
static void any_bytes(void **state)
{
	(void)state;
	uint64_t random = 3;
	for (int round = 0; round < 20000; round++) {
		size_t n = (size_t)(random >> 60) + (size_t)(round % 7);
		char *text = malloc(n > 0 ? n : 1);
		assert_non_null(text);
		for (size_t i = 0; i < n; i++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			uint32_t v = (uint32_t)(random >> 40);
			text[i] = (char)(v % 3 == 0 ? 0xea + v / 3 % 4 : v % 3 == 1 ? (uint32_t)'`' : v >> 8);
		}
		const float *d = of_text(text, n);
		for (int i = 0; i < CASC_N_FEATURES; i++)
			assert_true(d[i] >= 0 && d[i] <= 1.5f);
		free(text);
	}
}

/* ---- scorer ---- */

static struct casc_settings plain_settings(void)
{
	static char none[] = "";
	return (struct casc_settings){.weights = none};
}

static float score_of(const struct casc_scorer *s, const char *text, struct casc_score *out)
{
	const struct casc_message m = {CASC_USER, text, strlen(text)};
	const struct casc_ask ask = {&m, 1, 0, 0};
	casc_score(s, &ask, out);
	return out->score;
}

static void order_of_scores(void **state)
{
	(void)state;
	struct casc_settings c = plain_settings();
	struct casc_scorer *s;
	struct casc_score out;
	assert_int_equal(casc_scorer_create(&c, &s, NULL), 0);
	static const char *const easy[] = {"What is the capital of France?", "Hello!", "thanks",
					   "프랑스의 수도는 어디인가요?", "안녕하세요"};
	static const char *const hard[] = {
	    "Compare TCP and UDP and analyse which one is better for a video call; explain your reasoning step by "
	    "step.",
	    "Write a Python function that computes the prime factors of n, and prove that it is correct.",
	    "두 정렬 알고리즘을 비교하고 시간 복잡도를 분석해서 증명과 함께 설명해 주세요."};
	for (size_t i = 0; i < sizeof easy / sizeof *easy; i++)
		if (!(score_of(s, easy[i], &out) < 0.4f))
			fail_msg("%s: %g", easy[i], (double)out.score);
	for (size_t i = 0; i < sizeof hard / sizeof *hard; i++)
		if (!(score_of(s, hard[i], &out) > 0.7f))
			fail_msg("%s: %g", hard[i], (double)out.score);
	assert_true(out.rule == -1 && out.model == NULL);
	casc_scorer_destroy(s);
	casc_scorer_destroy(NULL);
}

static char *words_a[] = {"SQL", "계약서"};
static char *words_b[] = {"poem"};

static struct casc_settings settings_with_rules(void)
{
	static struct casc_rule_setting rules[] = {
	    {.name = "long", .min_bytes = 50, .max_bytes = 60, .model = "large"},
	    {.name = "weighs", .contains = {words_b, 1}, .model = "", .weight = 9},
	    {.name = "data", .contains = {words_a, 2}, .model = "coder"},
	};
	static struct casc_cue_setting cue[] = {{"bias", -1}, {"code", 5}};
	struct casc_settings c = plain_settings();
	c.rules = (struct conf_list){rules, 3};
	c.cues = (struct conf_list){cue, 2};
	return c;
}

static void rules(void **state)
{
	(void)state;
	struct casc_settings c = settings_with_rules();
	struct casc_scorer *s;
	struct casc_score out;
	assert_int_equal(casc_scorer_create(&c, &s, NULL), 0);
	score_of(s, "an sQl question", &out);
	assert_true(out.rule == 2 && strcmp(out.model, "coder") == 0);
	score_of(s, "이 계약서를 봐줘", &out);
	assert_int_equal(out.rule, 2);
	score_of(s, "a SQ L question", &out);
	assert_int_equal(out.rule, -1);
	assert_true(score_of(s, "a poem", &out) > 0.99f && out.model == NULL);
	/* The first that names a model. */
	score_of(s, "a question about sql that is just as long as it must be", &out);
	assert_true(out.rule == 0 && strcmp(out.model, "large") == 0);
	assert_true(score_of(s, "code", &out) > 0.6f);
	casc_scorer_destroy(s);
	((struct casc_cue_setting *)c.cues.items)[0].name = "no such";
	struct sl_err err;
	assert_int_equal(casc_scorer_create(&c, &s, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "no such"));
	((struct casc_cue_setting *)c.cues.items)[0].name = "bias";
}

static void faults(void **state)
{
	(void)state;
	struct casc_settings c = settings_with_rules();
	struct casc_scorer *s;
	int failed = 0;
	for (long nth = 1; nth < 20; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		int rc = casc_scorer_create(&c, &s, NULL);
		fault_disarm_all();
		if (rc == 0)
			casc_scorer_destroy(s);
		else
			assert_int_equal(rc, SL_ENOMEM);
		failed += rc != 0;
	}
	assert_true(failed >= 5 && failed < 19);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(cues),    cmocka_unit_test(counts),    cmocka_unit_test(grams),
	    cmocka_unit_test(windows), cmocka_unit_test(any_bytes), cmocka_unit_test(order_of_scores),
	    cmocka_unit_test(rules),   cmocka_unit_test(faults),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
