/* SPDX-License-Identifier: Apache-2.0
 *
 * Detects a model's format from its chat template. A template writes the calls of earlier turns as the model was
 * trained to, so it has the literals of the format.
 */
#include <string.h>

#include "base/parts/parts_format.h"

/* The first row whose `with` are all in the template applies. */
struct format_rule {
	enum parts_format format;
	const char *with[2];
};

static const struct format_rule format_rules[] = {
    {PARTS_HARMONY, {"<|channel|>", "<|message|>"}},
    {PARTS_GEMMA4, {"<|tool_call>", NULL}},
    {PARTS_GEMMA4, {"<start_function_call>", NULL}},
    {PARTS_DEEPSEEK,
     {"tool\xe2\x96\x81"
      "calls\xe2\x96\x81"
      "begin",
      "```json"}},
    {PARTS_DEEPSEEK31,
     {"tool\xe2\x96\x81"
      "calls\xe2\x96\x81"
      "begin",
      NULL}},
    {PARTS_KIMI, {"<|tool_calls_section_begin|>", NULL}},
    {PARTS_GLM, {"<arg_key>", NULL}},
    {PARTS_MINIMAX, {"minimax:tool_call", NULL}},
    {PARTS_SEED, {"seed:tool_call", NULL}},
    {PARTS_SEED, {"<seed:", "<function="}},
    {PARTS_QWEN_CODER, {"<function=", "<parameter="}},
    {PARTS_LFM2, {"<|tool_call_start|>", NULL}},
    {PARTS_LFM2, {"<|tool_list_start|>", NULL}},
    {PARTS_GRANITE, {"<|tool_call|>", NULL}},
    {PARTS_GRANITE, {"<|tool|>", NULL}},
    {PARTS_COHERE, {"<|START_ACTION|>", NULL}},
    {PARTS_HERMES, {"<tool_call>", NULL}},
    {PARTS_MISTRAL_ARGS, {"[TOOL_CALLS]", "[ARGS]"}},
    {PARTS_MISTRAL, {"[TOOL_CALLS]", NULL}},
    {PARTS_LLAMA4, {"<|header_start|>", "tools"}},
    {PARTS_LLAMA4, {"<|start_header_id|>", "func_name1"}},
    {PARTS_LLAMA3, {"<|start_header_id|>", "tools"}},
    {PARTS_GEMMA, {"tool_code", NULL}},
    {PARTS_GEMMA, {"<start_of_turn>", "tools"}},
    {PARTS_JSON, {"tool_calls", NULL}},
    {PARTS_JSON, {"if tools", NULL}},
};

struct reasoning_rule {
	enum parts_reasoning reasoning;
	const char *with;
};

static const struct reasoning_rule reasoning_rules[] = {
    {PARTS_REASONING_SEED, "seed:think"},   {PARTS_REASONING_MISTRAL, "[THINK]"},
    {PARTS_REASONING_GEMMA4, "<|channel>"}, {PARTS_REASONING_COHERE, "<|START_THINKING|>"},
    {PARTS_REASONING_THINK, "<think>"},     {PARTS_REASONING_THINK, "</think>"},
    {PARTS_REASONING_THINK, "<think"},
};

static bool has(const char *text, size_t n, const char *what)
{
	return what == NULL || (n > 0 && memmem(text, n, what, strlen(what)) != NULL);
}

static enum parts_format format_of(const char *text, size_t n)
{
	for (size_t i = 0; i < sizeof format_rules / sizeof *format_rules; i++) {
		const struct format_rule *r = &format_rules[i];
		if (has(text, n, r->with[0]) && has(text, n, r->with[1]))
			return r->format;
	}
	return PARTS_PLAIN;
}

struct parts_detected parts_format_detect(const char *template_text, size_t n)
{
	struct parts_detected d = {.format = format_of(template_text, n), .reasoning = PARTS_REASONING_NONE};
	if (d.format == PARTS_HARMONY) {
		d.reasoning = PARTS_REASONING_HARMONY;
		return d;
	}
	for (size_t i = 0; i < sizeof reasoning_rules / sizeof *reasoning_rules; i++)
		if (has(template_text, n, reasoning_rules[i].with)) {
			d.reasoning = reasoning_rules[i].reasoning;
			break;
		}
	return d;
}

bool parts_prompt_opens(enum parts_reasoning r, const char *prompt, size_t n)
{
	const struct parts_reasoning_desc *d = parts_reasoning_desc(r);
	size_t open = d->open != NULL ? strlen(d->open) : 0, label = d->label != NULL ? strlen(d->label) : 0;
	if (open == 0)
		return false;
	if (label > 0 && n >= label && memcmp(prompt + n - label, d->label, label) == 0)
		n -= label;
	while (n > 0 && (prompt[n - 1] == '\n' || prompt[n - 1] == ' '))
		n--;
	return n >= open && memcmp(prompt + n - open, d->open, open) == 0;
}
