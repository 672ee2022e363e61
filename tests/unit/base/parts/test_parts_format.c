/* SPDX-License-Identifier: Apache-2.0
 *
 * Formats and their detection, from published templates (tests/data/templates) and from the characteristic lines of
 * others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/parts/parts_format.h"

static void check(const char *text, size_t n, enum parts_format f, enum parts_reasoning r)
{
	struct parts_detected d = parts_format_detect(text, n);
	if (d.format != f || d.reasoning != r)
		fail_msg("%.60s: %s, %s", text, parts_format_desc(d.format)->name,
			 parts_reasoning_desc(d.reasoning)->name);
}

static void test_published(void **state)
{
	(void)state;
	static const struct {
		const char *file;
		enum parts_format format;
		enum parts_reasoning reasoning;
	} templates[] = {
	    {"qwen2.5-instruct", PARTS_HERMES, PARTS_REASONING_NONE},
	    {"qwen3", PARTS_HERMES, PARTS_REASONING_THINK},
	    {"mistral-nemo-instruct", PARTS_MISTRAL, PARTS_REASONING_NONE},
	};
	for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
		char path[200], text[20000];
		snprintf(path, sizeof path, "tests/data/templates/%s.jinja", templates[i].file);
		FILE *f = fopen(path, "r");
		assert_non_null(f);
		size_t n = fread(text, 1, sizeof text - 1, f);
		fclose(f);
		text[n] = '\0';
		check(text, n, templates[i].format, templates[i].reasoning);
	}
}

static void test_characteristic(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		enum parts_format format;
		enum parts_reasoning reasoning;
	} lines[] = {
	    {"", PARTS_PLAIN, PARTS_REASONING_NONE},
	    {"{{ '<|im_start|>' + message.role }}", PARTS_PLAIN, PARTS_REASONING_NONE},
	    {"{{- \"<|start|>assistant<|channel|>final<|message|>\" }}", PARTS_HARMONY, PARTS_REASONING_HARMONY},
	    {"'<tool_call>\\n<function=' + name + '>\\n' '<parameter='", PARTS_QWEN_CODER, PARTS_REASONING_NONE},
	    {"'<tool_call>\\n{\"name\": ' {%- if '</think>' in content", PARTS_HERMES, PARTS_REASONING_THINK},
	    {"'<|start_header_id|>' {%- if tools is not none %} <|python_tag|>", PARTS_LLAMA3, PARTS_REASONING_NONE},
	    {"'<|start_header_id|>' tools [func_name1(params_name1=params_value1)]", PARTS_LLAMA4,
	     PARTS_REASONING_NONE},
	    {"'<|header_start|>' tools '<|python_start|>'", PARTS_LLAMA4, PARTS_REASONING_NONE},
	    {"'[TOOL_CALLS]' + name + '[ARGS]' '[THINK]'", PARTS_MISTRAL_ARGS, PARTS_REASONING_MISTRAL},
	    {"'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + type + '<｜tool▁sep｜>' + '```json' </think>",
	     PARTS_DEEPSEEK, PARTS_REASONING_THINK},
	    {"'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + name '<｜tool▁sep｜>'</think>", PARTS_DEEPSEEK31,
	     PARTS_REASONING_THINK},
	    {"'<tool_call>' + name '<arg_key>' <think>", PARTS_GLM, PARTS_REASONING_THINK},
	    {"'<|tool_call>call:' '<|channel>thought'", PARTS_GEMMA4, PARTS_REASONING_GEMMA4},
	    {"'<start_function_call>call:'", PARTS_GEMMA4, PARTS_REASONING_NONE},
	    {"'<start_of_turn>' {% if tools %}", PARTS_GEMMA, PARTS_REASONING_NONE},
	    {"'<|tool_calls_section_begin|>'", PARTS_KIMI, PARTS_REASONING_NONE},
	    {"'<minimax:tool_call>' <think>", PARTS_MINIMAX, PARTS_REASONING_THINK},
	    {"toolcall_begin_token = '<seed:tool_call>' '<seed:think>'", PARTS_SEED, PARTS_REASONING_SEED},
	    {"'<|tool_call|>' ", PARTS_GRANITE, PARTS_REASONING_NONE},
	    {"'<|tool_list_start|>'", PARTS_LFM2, PARTS_REASONING_NONE},
	    {"'<|START_THINKING|>' '<|START_ACTION|>['", PARTS_COHERE, PARTS_REASONING_COHERE},
	    {"{% if message.tool_calls %}", PARTS_JSON, PARTS_REASONING_NONE},
	};
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		check(lines[i].text, strlen(lines[i].text), lines[i].format, lines[i].reasoning);
	check(NULL, 0, PARTS_PLAIN, PARTS_REASONING_NONE);
}

static void test_prompt_opens(void **state)
{
	(void)state;
	static const struct {
		enum parts_reasoning r;
		const char *prompt;
		bool opens;
	} prompts[] = {
	    {PARTS_REASONING_THINK, "assistant\n<think>\n", true},
	    {PARTS_REASONING_THINK, "<think>", true},
	    {PARTS_REASONING_THINK, "<think>\n\n</think>\n\n", false},
	    {PARTS_REASONING_THINK, "assistant\n", false},
	    {PARTS_REASONING_THINK, "", false},
	    {PARTS_REASONING_NONE, "<think>\n", false},
	    {PARTS_REASONING_GEMMA4, "<|channel>thought\n", true},
	    {PARTS_REASONING_GEMMA4, "<|channel>", true},
	    {PARTS_REASONING_GEMMA4, "thought\n", false},
	};
	for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++)
		assert_int_equal(parts_prompt_opens(prompts[i].r, prompts[i].prompt, strlen(prompts[i].prompt)),
				 prompts[i].opens);
}

static void test_names(void **state)
{
	(void)state;
	enum parts_format found;
	for (int f = 0; f < PARTS_N_FORMATS; f++) {
		const char *name = parts_format_desc((enum parts_format)f)->name;
		assert_true(parts_format_named(name, strlen(name), &found));
		assert_int_equal(found, f);
	}
	assert_false(parts_format_named("herme", 5, &found));
	assert_false(parts_format_named("", 0, &found));
}

static bool among(const char *const *all, size_t n, const char *text)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(all[i], text) == 0)
			return true;
	return false;
}

static void test_literals(void **state)
{
	(void)state;
	const char *all[PARTS_MAX_LITERALS], *one[1];
	for (int f = 0; f < PARTS_N_FORMATS; f++) {
		const struct parts_format_desc *d = parts_format_desc((enum parts_format)f);
		size_t n = parts_format_literals((enum parts_format)f, PARTS_REASONING_THINK, all, PARTS_MAX_LITERALS);
		assert_in_range(n, 2, PARTS_MAX_LITERALS);
		assert_true(among(all, n, "<think>") && among(all, n, "</think>"));
		for (const char *const *c = d->control; c != NULL && *c != NULL; c++)
			assert_true(among(all, n, *c));
		for (size_t i = 0; i < n; i++)
			assert_false(among(all, i, all[i]));
		assert_true(parts_format_literals((enum parts_format)f, PARTS_REASONING_THINK, one, 1) >= n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_published),    cmocka_unit_test(test_characteristic),
	    cmocka_unit_test(test_prompt_opens), cmocka_unit_test(test_names),
	    cmocka_unit_test(test_literals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
