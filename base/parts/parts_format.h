/* SPDX-License-Identifier: Apache-2.0
 *
 * How models write tool calls and reasoning, as data. The engine finds a model's format and its marker tokens with it;
 * gateway/parts splits answers by it. An example of each format stands beside its enumerator.
 *
 *   literal   a fixed text of a format: "<tool_call>", "[ARGS]"
 *   marker    a literal that is one control token of the model. Clients never see its text, and text that spells it is
 *             not a marker. A literal without a control token in the model is ordinary text
 *   section   calls between two literals; each call in it may have literals of its own
 *   form      one way to write calls. A format has one or several; the first bytes distinguish them
 *   bare      without a literal before it: counts only where content begins
 *
 * Pure; any thread. Callers: engine, gateway/parts.
 */
#ifndef BASE_PARTS_FORMAT_H
#define BASE_PARTS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

enum parts_format {
	PARTS_PLAIN, /* no calls */
	/* Qwen 2.5, Qwen 3, Hermes: <tool_call>{"name": "f", "arguments": {}}</tool_call> */
	PARTS_HERMES,
	/* Qwen3-Coder: <tool_call><function=f><parameter=k>v</parameter></function></tool_call> */
	PARTS_QWEN_CODER,
	/* Llama 3.1 to 3.3: {"name": "f", "parameters": {}}, <|python_tag|> before, "; " between */
	PARTS_LLAMA3,
	/* Llama 4, 3.2 pythonic: [f(k="v"), g()] */
	PARTS_LLAMA4,
	/* Mistral, tokenizers v3 to v7: [TOOL_CALLS][{"name": "f", "arguments": {}}] */
	PARTS_MISTRAL,
	/* Mistral, tokenizers v11 and later: [TOOL_CALLS]f[ARGS]{} */
	PARTS_MISTRAL_ARGS,
	/* gpt-oss: <|channel|>commentary to=functions.f<|constrain|>json<|message|>{}<|call|> */
	PARTS_HARMONY,
	/* DeepSeek V3, R1: calls, call begin; function, sep, f, ```json {} ```; call, calls end */
	PARTS_DEEPSEEK,
	/* DeepSeek V3.1: calls, call begin; f, sep, {}; call, calls end */
	PARTS_DEEPSEEK31,
	/* GLM 4.5 to 4.7: <tool_call>f <arg_key>k</arg_key><arg_value>v</arg_value></tool_call> */
	PARTS_GLM,
	/* Gemma 3: ```tool_code f(k="v") ```, or {"name": "f", "parameters": {}} */
	PARTS_GEMMA,
	/* Gemma 4, FunctionGemma: <|tool_call>call:f{k:<|"|>v<|"|>}<tool_call|> */
	PARTS_GEMMA4,
	/* Kimi K2: section begin, call begin, functions.f:0, argument begin, {}, ends */
	PARTS_KIMI,
	/* MiniMax M2: <minimax:tool_call><invoke name="f"><parameter name="k">v</parameter>… */
	PARTS_MINIMAX,
	/* Seed-OSS: <seed:tool_call><function=f><parameter=k>v</parameter>… */
	PARTS_SEED,
	/* Granite 3, Phi-4-mini: <|tool_call|>[{"name": "f", "arguments": {}}] */
	PARTS_GRANITE,
	/* LFM2: <|tool_call_start|>[f(k="v")]<|tool_call_end|> */
	PARTS_LFM2,
	/* Command R7B, Command A: <|START_ACTION|>[{"tool_name": "f", "parameters": {}}]<|END_ACTION|> */
	PARTS_COHERE,
	/* Any model that is prompted for it: {"name": "f", "arguments": {}}, a list of these, {"tool_calls": […]} */
	PARTS_JSON,
	PARTS_N_FORMATS
};

/* How reasoning is marked; harmony's channels mark it themselves. */
enum parts_reasoning {
	PARTS_REASONING_NONE,
	PARTS_REASONING_THINK,   /* <think>…</think> */
	PARTS_REASONING_MISTRAL, /* [THINK]…[/THINK] */
	PARTS_REASONING_SEED,    /* <seed:think>…</seed:think> */
	PARTS_REASONING_GEMMA4,  /* <|channel>thought\n…<channel|> */
	PARTS_REASONING_COHERE,  /* <|START_THINKING|>…<|END_THINKING|> */
	PARTS_REASONING_HARMONY, /* the channel "analysis" */
	PARTS_N_REASONINGS
};

enum parts_syntax {
	PARTS_SYNTAX_JSON,   /* an object with name and arguments, or a list of these */
	PARTS_SYNTAX_NAMED,  /* the name, then the arguments as JSON */
	PARTS_SYNTAX_TAGGED, /* the name, then each argument between literals */
	PARTS_SYNTAX_PYTHON, /* f(k="v", n=1), or call:f{k:v} */
	PARTS_SYNTAX_CHANNEL /* messages with headers; the recipient is the name */
};

/* A literal that is NULL does not exist. Blanks are allowed between any two literals. */
struct parts_form {
	enum parts_syntax syntax;
	bool bare;                     /* counts only where content begins, and only with known keys and arguments */
	bool careful;                  /* like bare, but after `open` */
	const char *open, *close;      /* around the section */
	const char *call, *end;        /* around a call */
	const char *id;                /* NAMED: precedes an identifier after the name, which is ignored */
	bool labelled;                 /* NAMED: a word and name_end may precede the name */
	const char *name_end;          /* between the name and the arguments */
	const char *key, *key_end;     /* TAGGED */
	const char *value, *value_end; /* TAGGED */
	bool lined;                    /* TAGGED: one newline at each end is not part of a value */
	bool listed;                   /* PYTHON: [f(), g()] */
	char around;                   /* PYTHON: opens the arguments: ( or { */
	const char *quote;             /* PYTHON: around strings, instead of Python's quotes */
	const char *message;           /* CHANNEL: between header and text; open: start, call: channel */
};

/* The text of forced calls, for a grammar. The %s in `call` is the name of the tool, and in `member` of an argument.
 * Arguments are JSON, which every syntax reads, or, with member, texts between member and member_end. */
struct parts_render {
	const char *begin, *call, *suffix, *separator, *end; /* call NULL: no calls; separator NULL: one call */
	const char *member, *member_end;                     /* NULL: JSON */
	const char *number; /* follows the call's number, which follows `call`; NULL: no numbers */
	bool list_only;     /* begin and end only around several calls */
};

enum { PARTS_MAX_FORMS = 5 };

struct parts_format_desc {
	const char *name;
	struct parts_form forms[PARTS_MAX_FORMS];
	int n_forms;
	const char *const *control; /* literals that only count as control tokens; ends with NULL; NULL: none */
	const char *prefix;         /* may precede a tool's name: "functions." */
	bool numbered;              /* calls are "functions.f:0", counted over the conversation; so are their ids */
	struct parts_render render;
};

struct parts_reasoning_desc {
	const char *name;
	const char *open, *close; /* NULL: none */
	const char *label;        /* text that follows `open`, not part of the reasoning */
};

const struct parts_format_desc *parts_format_desc(enum parts_format f);
const struct parts_reasoning_desc *parts_reasoning_desc(enum parts_reasoning r);

/* Finds a format by its name in the table. False: none. */
bool parts_format_named(const char *name, size_t n, enum parts_format *out);

struct parts_detected {
	enum parts_format format;
	enum parts_reasoning reasoning;
};

/* Detects a model's format by characteristic strings in the source of its chat template. A template without tools gives
 * PARTS_PLAIN. */
struct parts_detected parts_format_detect(const char *template_text, size_t n);

/* Does a prompt that ends in these bytes leave the answer inside reasoning? The template may have opened it. */
bool parts_prompt_opens(enum parts_reasoning r, const char *prompt, size_t n);

/* The literals that may be control tokens, which the engine looks up in the vocabulary. Writes at most max and returns
 * how many there are, or more if max is too small. The strings are constants. */
enum { PARTS_MAX_LITERALS = 48 };
size_t parts_format_literals(enum parts_format f, enum parts_reasoning r, const char **out, size_t max);

#endif
