/* SPDX-License-Identifier: Apache-2.0
 *
 * The formats. Sources: the models' chat templates and model cards; for harmony, OpenAI's description of it.
 */
#include "base/parts/parts_format.h"

#include <string.h>

#include "base/err.h"

#define DS_CALLS                        \
	"<\xef\xbd\x9ctool\xe2\x96\x81" \
	"calls\xe2\x96\x81"             \
	"begin\xef\xbd\x9c>"
#define DS_CALLS_END                    \
	"<\xef\xbd\x9ctool\xe2\x96\x81" \
	"calls\xe2\x96\x81"             \
	"end\xef\xbd\x9c>"
#define DS_CALL                         \
	"<\xef\xbd\x9ctool\xe2\x96\x81" \
	"call\xe2\x96\x81"              \
	"begin\xef\xbd\x9c>"
#define DS_CALL_END                     \
	"<\xef\xbd\x9ctool\xe2\x96\x81" \
	"call\xe2\x96\x81"              \
	"end\xef\xbd\x9c>"
#define DS_SEP                          \
	"<\xef\xbd\x9ctool\xe2\x96\x81" \
	"sep\xef\xbd\x9c>"

#define DEEPSEEK_FORM                                                                                   \
	{                                                                                               \
		.syntax = PARTS_SYNTAX_NAMED, .open = DS_CALLS, .close = DS_CALLS_END, .call = DS_CALL, \
		.name_end = DS_SEP, .end = DS_CALL_END, .labelled = true                                \
	}

#define XML_FORM(open_, close_)                                                              \
	{                                                                                    \
		.syntax = PARTS_SYNTAX_TAGGED, .open = (open_), .close = (close_),           \
		.call = "<function=", .name_end = ">", .key = "<parameter=", .key_end = ">", \
		.value_end = "</parameter>", .end = "</function>", .lined = true             \
	}

#define MISTRAL_FORMS                                                                                                 \
	{                                                                                                             \
		{.syntax = PARTS_SYNTAX_JSON, .open = "[TOOL_CALLS]"},                                                \
		{                                                                                                     \
			.syntax = PARTS_SYNTAX_NAMED, .call = "[TOOL_CALLS]", .id = "[CALL_ID]", .name_end = "[ARGS]" \
		}                                                                                                     \
	}

static const char *const mistral_control[] = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", NULL};
static const char *const harmony_control[] = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>",
					      "<|end|>",   "<|return|>",  "<|call|>",    NULL};

static const struct parts_format_desc formats[PARTS_N_FORMATS] = {
    [PARTS_PLAIN] = {.name = "plain"},
    [PARTS_HERMES] = {.name = "hermes",
		      .forms = {{.syntax = PARTS_SYNTAX_JSON, .open = "<tool_call>", .close = "</tool_call>"},
				XML_FORM("<tool_call>", "</tool_call>")},
		      .n_forms = 2,
		      .render = {.begin = "",
				 .call = "<tool_call>\n{\"name\": \"%s\", \"arguments\": ",
				 .suffix = "}\n</tool_call>",
				 .separator = "\n",
				 .end = ""}},
    [PARTS_QWEN_CODER] = {.name = "qwen-coder",
			  .forms = {XML_FORM("<tool_call>", "</tool_call>"),
				    {.syntax = PARTS_SYNTAX_JSON, .open = "<tool_call>", .close = "</tool_call>"}},
			  .n_forms = 2,
			  .render = {.begin = "",
				     .call = "<tool_call>\n<function=%s>\n",
				     .suffix = "</function>\n</tool_call>",
				     .separator = "\n",
				     .end = "",
				     .member = "<parameter=%s>\n",
				     .member_end = "\n</parameter>\n"}},
    [PARTS_LLAMA3] =
	{.name = "llama3",
	 .forms = {{.syntax = PARTS_SYNTAX_JSON, .open = "<|python_tag|>"},
		   {.syntax = PARTS_SYNTAX_JSON, .bare = true},
		   {.syntax = PARTS_SYNTAX_PYTHON, .bare = true, .listed = true, .around = '('},
		   {.syntax = PARTS_SYNTAX_NAMED, .call = "<function=", .name_end = ">", .end = "</function>"}},
	 .n_forms = 4,
	 .render =
	     {.begin = "", .call = "{\"name\": \"%s\", \"parameters\": ", .suffix = "}", .separator = "; ", .end = ""}},
    [PARTS_LLAMA4] = {.name = "llama4",
		      .forms = {{.syntax = PARTS_SYNTAX_PYTHON, .bare = true, .listed = true, .around = '('},
				{.syntax = PARTS_SYNTAX_PYTHON,
				 .open = "<|python_start|>",
				 .close = "<|python_end|>",
				 .listed = true,
				 .around = '('},
				{.syntax = PARTS_SYNTAX_JSON, .bare = true},
				{.syntax = PARTS_SYNTAX_JSON, .open = "<|python_start|>", .close = "<|python_end|>"}},
		      .n_forms = 4,
		      .render = {.begin = "[",
				 .call = "{\"name\": \"%s\", \"parameters\": ",
				 .suffix = "}",
				 .separator = ", ",
				 .end = "]",
				 .list_only = true}},
    [PARTS_MISTRAL] = {.name = "mistral",
		       .forms = MISTRAL_FORMS,
		       .n_forms = 2,
		       .control = mistral_control,
		       .render = {.begin = "[TOOL_CALLS][",
				  .call = "{\"name\": \"%s\", \"arguments\": ",
				  .suffix = "}",
				  .separator = ", ",
				  .end = "]"}},
    [PARTS_MISTRAL_ARGS] =
	{.name = "mistral-args",
	 .forms = MISTRAL_FORMS,
	 .n_forms = 2,
	 .control = mistral_control,
	 .render = {.begin = "", .call = "[TOOL_CALLS]%s[ARGS]", .suffix = "", .separator = "", .end = ""}},
    [PARTS_HARMONY] = {.name = "harmony",
		       .forms = {{.syntax = PARTS_SYNTAX_CHANNEL,
				  .open = "<|start|>",
				  .call = "<|channel|>",
				  .message = "<|message|>",
				  .end = "<|call|>"}},
		       .n_forms = 1,
		       .control = harmony_control,
		       .prefix = "functions.",
		       .render = {.begin = "",
				  .call = "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>",
				  .suffix = "", /* <|call|> ends the answer */
				  .end = ""}},
    [PARTS_DEEPSEEK] = {.name = "deepseek",
			.forms = {DEEPSEEK_FORM},
			.n_forms = 1,
			.render = {.begin = DS_CALLS,
				   .call = DS_CALL "function" DS_SEP "%s\n```json\n",
				   .suffix = "\n```" DS_CALL_END,
				   .separator = "\n",
				   .end = DS_CALLS_END}},
    [PARTS_DEEPSEEK31] = {.name = "deepseek31",
			  .forms = {DEEPSEEK_FORM},
			  .n_forms = 1,
			  .render = {.begin = DS_CALLS,
				     .call = DS_CALL "%s" DS_SEP,
				     .suffix = DS_CALL_END,
				     .separator = "",
				     .end = DS_CALLS_END}},
    [PARTS_GLM] = {.name = "glm",
		   .forms = {{.syntax = PARTS_SYNTAX_TAGGED,
			      .call = "<tool_call>",
			      .key = "<arg_key>",
			      .key_end = "</arg_key>",
			      .value = "<arg_value>",
			      .value_end = "</arg_value>",
			      .end = "</tool_call>"}},
		   .n_forms = 1,
		   .render = {.begin = "",
			      .call = "<tool_call>%s\n",
			      .suffix = "</tool_call>",
			      .separator = "\n",
			      .end = "",
			      .member = "<arg_key>%s</arg_key>\n<arg_value>",
			      .member_end = "</arg_value>\n"}},
    [PARTS_GEMMA] = {.name = "gemma",
		     .forms = {{.syntax = PARTS_SYNTAX_PYTHON, .open = "```tool_code", .close = "```", .around = '('},
			       {.syntax = PARTS_SYNTAX_JSON, .careful = true, .open = "```tool_code", .close = "```"},
			       {.syntax = PARTS_SYNTAX_JSON, .careful = true, .open = "```json", .close = "```"},
			       {.syntax = PARTS_SYNTAX_JSON, .bare = true},
			       {.syntax = PARTS_SYNTAX_PYTHON, .bare = true, .listed = true, .around = '('}},
		     .n_forms = 5,
		     .prefix = "default_api.",
		     .render = {.begin = "[",
				.call = "{\"name\": \"%s\", \"parameters\": ",
				.suffix = "}",
				.separator = ", ",
				.end = "]",
				.list_only = true}},
    [PARTS_GEMMA4] =
	{.name = "gemma4",
	 .forms = {{.syntax = PARTS_SYNTAX_PYTHON,
		    .open = "<|tool_call>",
		    .close = "<tool_call|>",
		    .call = "call:",
		    .around = '{',
		    .quote = "<|\"|>"},
		   {.syntax = PARTS_SYNTAX_PYTHON,
		    .open = "<start_function_call>",
		    .close = "<end_function_call>",
		    .call = "call:",
		    .around = '{',
		    .quote = "<escape>"}},
	 .n_forms = 2,
	 .render = {.begin = "", .call = "<|tool_call>call:%s", .suffix = "<tool_call|>", .separator = "", .end = ""}},
    [PARTS_KIMI] = {.name = "kimi",
		    .forms = {{.syntax = PARTS_SYNTAX_NAMED,
			       .open = "<|tool_calls_section_begin|>",
			       .close = "<|tool_calls_section_end|>",
			       .call = "<|tool_call_begin|>",
			       .name_end = "<|tool_call_argument_begin|>",
			       .end = "<|tool_call_end|>"}},
		    .n_forms = 1,
		    .prefix = "functions.",
		    .numbered = true,
		    .render = {.begin = "<|tool_calls_section_begin|>",
			       .call = "<|tool_call_begin|>functions.%s:",
			       .number = "<|tool_call_argument_begin|>",
			       .suffix = "<|tool_call_end|>",
			       .separator = "",
			       .end = "<|tool_calls_section_end|>"}},
    [PARTS_MINIMAX] = {.name = "minimax",
		       .forms = {{.syntax = PARTS_SYNTAX_TAGGED,
				  .open = "<minimax:tool_call>",
				  .close = "</minimax:tool_call>",
				  .call = "<invoke name=\"",
				  .name_end = "\">",
				  .key = "<parameter name=\"",
				  .key_end = "\">",
				  .value_end = "</parameter>",
				  .end = "</invoke>",
				  .lined = true}},
		       .n_forms = 1,
		       .render = {.begin = "<minimax:tool_call>\n",
				  .call = "<invoke name=\"%s\">\n",
				  .suffix = "</invoke>\n",
				  .separator = "",
				  .end = "</minimax:tool_call>",
				  .member = "<parameter name=\"%s\">",
				  .member_end = "</parameter>\n"}},
    [PARTS_SEED] = {.name = "seed",
		    .forms = {XML_FORM("<seed:tool_call>", "</seed:tool_call>")},
		    .n_forms = 1,
		    .render = {.begin = "",
			       .call = "<seed:tool_call>\n<function=%s>\n",
			       .suffix = "</function>\n</seed:tool_call>",
			       .separator = "\n",
			       .end = "",
			       .member = "<parameter=%s>\n",
			       .member_end = "\n</parameter>\n"}},
    [PARTS_GRANITE] = {.name = "granite",
		       .forms = {{.syntax = PARTS_SYNTAX_JSON, .open = "<|tool_call|>", .close = "<|/tool_call|>"},
				 {.syntax = PARTS_SYNTAX_JSON, .open = "<tool_call>", .close = "</tool_call>"}},
		       .n_forms = 2,
		       .render = {.begin = "<|tool_call|>[",
				  .call = "{\"name\": \"%s\", \"arguments\": ",
				  .suffix = "}",
				  .separator = ", ",
				  .end = "]"}},
    [PARTS_LFM2] =
	{.name = "lfm2",
	 .forms = {{.syntax = PARTS_SYNTAX_PYTHON,
		    .open = "<|tool_call_start|>",
		    .close = "<|tool_call_end|>",
		    .listed = true,
		    .around = '('},
		   {.syntax = PARTS_SYNTAX_JSON, .open = "<|tool_call_start|>", .close = "<|tool_call_end|>"}},
	 .n_forms = 2,
	 .render = {.begin = "<|tool_call_start|>[",
		    .call = "{\"name\": \"%s\", \"arguments\": ",
		    .suffix = "}",
		    .separator = ", ",
		    .end = "]<|tool_call_end|>"}},
    [PARTS_COHERE] = {.name = "cohere",
		      .forms = {{.syntax = PARTS_SYNTAX_JSON, .open = "<|START_ACTION|>", .close = "<|END_ACTION|>"}},
		      .n_forms = 1,
		      .render = {.begin = "<|START_ACTION|>[",
				 .call = "{\"tool_name\": \"%s\", \"parameters\": ",
				 .suffix = "}",
				 .separator = ", ",
				 .end = "]<|END_ACTION|>"}},
    [PARTS_JSON] = {.name = "json",
		    .forms = {{.syntax = PARTS_SYNTAX_JSON, .bare = true},
			      {.syntax = PARTS_SYNTAX_JSON, .careful = true, .open = "```json", .close = "```"},
			      {.syntax = PARTS_SYNTAX_JSON, .open = "<tool_call>", .close = "</tool_call>"}},
		    .n_forms = 3,
		    .prefix = "functions.",
		    .render = {.begin = "[",
			       .call = "{\"name\": \"%s\", \"arguments\": ",
			       .suffix = "}",
			       .separator = ", ",
			       .end = "]",
			       .list_only = true}},
};

static const struct parts_reasoning_desc reasonings[PARTS_N_REASONINGS] = {
    [PARTS_REASONING_NONE] = {.name = "none"},
    [PARTS_REASONING_THINK] = {.name = "think", .open = "<think>", .close = "</think>"},
    [PARTS_REASONING_MISTRAL] = {.name = "mistral", .open = "[THINK]", .close = "[/THINK]"},
    [PARTS_REASONING_SEED] = {.name = "seed", .open = "<seed:think>", .close = "</seed:think>"},
    [PARTS_REASONING_GEMMA4] = {.name = "gemma4", .open = "<|channel>", .close = "<channel|>", .label = "thought\n"},
    [PARTS_REASONING_COHERE] = {.name = "cohere", .open = "<|START_THINKING|>", .close = "<|END_THINKING|>"},
    [PARTS_REASONING_HARMONY] = {.name = "harmony"},
};

const struct parts_format_desc *parts_format_desc(enum parts_format f)
{
	BUG_IF((unsigned)f >= PARTS_N_FORMATS, "parts: unknown format %d", (int)f);
	return &formats[f];
}

const struct parts_reasoning_desc *parts_reasoning_desc(enum parts_reasoning r)
{
	BUG_IF((unsigned)r >= PARTS_N_REASONINGS, "parts: unknown kind of reasoning %d", (int)r);
	return &reasonings[r];
}

bool parts_format_named(const char *name, size_t n, enum parts_format *out)
{
	for (int f = 0; f < PARTS_N_FORMATS; f++)
		if (strlen(formats[f].name) == n && memcmp(formats[f].name, name, n) == 0) {
			*out = (enum parts_format)f;
			return true;
		}
	return false;
}

/* ---- the literals of a format ---- */

struct literals {
	const char **out;
	size_t max, n;
};

static bool listed(const struct literals *l, const char *text)
{
	for (size_t i = 0; i < l->n && i < l->max; i++)
		if (strcmp(l->out[i], text) == 0)
			return true;
	return false;
}

/* No vocabulary has a control token for a single character of syntax. */
static bool may_be_token(const char *text)
{
	return text != NULL && strlen(text) > 2 && text[0] != '`' && text[strlen(text) - 1] != '"' &&
	       text[strlen(text) - 1] != '=' && text[strlen(text) - 1] != ':';
}

static void add(struct literals *l, const char *text)
{
	if (!may_be_token(text) || listed(l, text))
		return;
	if (l->n < l->max)
		l->out[l->n] = text;
	l->n++;
}

static void add_form(struct literals *l, const struct parts_form *f)
{
	const char *const all[] = {f->open, f->close,   f->call,  f->end,       f->id,    f->name_end,
				   f->key,  f->key_end, f->value, f->value_end, f->quote, f->message};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		add(l, all[i]);
}

size_t parts_format_literals(enum parts_format f, enum parts_reasoning r, const char **out, size_t max)
{
	struct literals l = {.out = out, .max = max};
	const struct parts_format_desc *d = parts_format_desc(f);
	const struct parts_reasoning_desc *think = parts_reasoning_desc(r);
	for (int i = 0; i < d->n_forms; i++)
		add_form(&l, &d->forms[i]);
	for (const char *const *c = d->control; c != NULL && *c != NULL; c++)
		add(&l, *c);
	add(&l, think->open);
	add(&l, think->close);
	return l.n;
}
