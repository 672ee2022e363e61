/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages and tools of a chat. The gateway has checked them; their members pass as they are, except that arguments
 * of earlier calls become the text of JSON again.
 *
 * Forced calls come as a grammar (CALLS; engine/constraint/constraint.c has its form), made for the format of calls
 * that remote_model_parts announces. From it follow tool_choice, parallel_tool_calls and which tools are strict.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_depth.h"
#include "engine/remote/remote_body.h"

#define REFUSE(...) return remote_refuse(why, PROTO_ERR_BAD_REQUEST, __VA_ARGS__)

/* ---- messages ---- */

static bool text_arguments(json_t *function)
{
	const json_t *arguments = json_object_get(function, "arguments");
	if (json_is_string(arguments))
		return true;
	char *text = arguments != NULL ? json_dumps(arguments, JSON_COMPACT | JSON_ENCODE_ANY) : strdup("{}");
	int rc = text != NULL ? json_object_set_new(function, "arguments", json_string(text)) : -1;
	free(text);
	return rc == 0;
}

/* Earlier calls need an id and a type. */
static bool complete_call(json_t *call, size_t at)
{
	json_t *function = json_object_get(call, "function");
	if (!json_is_object(function) || !text_arguments(function))
		return false;
	if (!json_is_string(json_object_get(call, "id")) &&
	    json_object_set_new(call, "id", json_sprintf("call_%zu", at)) != 0)
		return false;
	return json_object_set_new(call, "type", json_string("function")) == 0;
}

static bool complete_calls(const json_t *messages)
{
	size_t at = 0;
	for (size_t i = 0; i < json_array_size(messages); i++) {
		const json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");
		for (size_t k = 0; k < json_array_size(calls); k++)
			if (!complete_call(json_array_get(calls, k), at++))
				return false;
	}
	return true;
}

static int put_json(struct sl_buf *out, const char *name, const json_t *v)
{
	char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
	int rc = text != NULL ? buf_printf(out, ",\"%s\":", name) : SL_ENOMEM;
	rc = rc == 0 ? buf_append_str(out, text) : rc;
	free(text);
	return rc;
}

/* ---- what a template gets besides ---- */

static int put_template(const json_t *root, enum eng_remote_dialect dialect, struct sl_buf *out,
			struct remote_refusal *why)
{
	static const struct {
		const char *name;
		uint8_t error;
	} members[] = {{"documents", PROTO_ERR_BAD_DOCUMENTS},
		       {"chat_template_kwargs", PROTO_ERR_BAD_KWARGS},
		       {"add_generation_prompt", PROTO_ERR_FIELD + PROTO_FIELD_CONTINUE},
		       {"continue_final_message", PROTO_ERR_FIELD + PROTO_FIELD_CONTINUE}};
	const json_t *variables = json_object_get(root, "chat_template_kwargs");
	const json_t *effort = json_object_get(variables, "reasoning_effort");
	int rc = 0;
	/* OpenAI's field of that name is what fills the variable. */
	if (dialect == ENG_REMOTE_OPENAI && json_is_string(effort) && json_object_size(variables) == 1)
		return put_json(out, "reasoning_effort", effort);
	for (size_t i = 0; rc == 0 && i < sizeof members / sizeof *members; i++) {
		const json_t *v = json_object_get(root, members[i].name);
		if (v == NULL || json_is_null(v))
			continue;
		if (dialect == ENG_REMOTE_OPENAI)
			return remote_refuse(
			    why, members[i].error,
			    "'%s' can't be used with this model: the server that runs it does not have it.",
			    members[i].name);
		rc = put_json(out, members[i].name, v);
	}
	return rc;
}

/* ---- tools ---- */

static const char *tool_name(const json_t *tool)
{
	return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

/* The name that a call's prefix has: {"name": "NAME", "arguments": */
static json_t *call_name(const json_t *call)
{
	const char *prefix = json_string_value(json_object_get(call, "prefix"));
	const char *from = prefix != NULL ? strstr(prefix, "{\"name\":") : NULL;
	if (from == NULL)
		return NULL;
	from += strcspn(from + 8, "\"") + 8;
	json_t *name = json_loads(from, JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, NULL);
	if (json_is_string(name))
		return name;
	json_decref(name);
	return NULL;
}

/* Is the call's schema one to be held to? */
static bool is_held(const json_t *call)
{
	const char *schema = json_string_value(json_object_get(call, "schema"));
	json_t *parsed = schema != NULL ? json_loads(schema, JSON_DECODE_ANY, NULL) : NULL;
	bool held = json_object_size(json_object_get(parsed, "properties")) > 0;
	json_decref(parsed);
	return held;
}

static json_t *find_tool(const json_t *tools, const char *name)
{
	for (size_t i = 0; i < json_array_size(tools); i++) {
		json_t *tool = json_array_get(tools, i);
		const char *its = tool_name(tool);
		if (its != NULL && strcmp(its, name) == 0)
			return tool;
	}
	return NULL;
}

/* The tools that the calls name, strict where their arguments are held. NULL: a call that is none, or no memory. */
static json_t *tools_of(const json_t *calls, const json_t *tools, bool at_will)
{
	json_t *list = json_array();
	for (size_t i = 0; i < json_array_size(calls); i++) {
		const json_t *call = json_array_get(calls, i);
		json_t *name = call_name(call);
		json_t *tool = name != NULL ? find_tool(tools, json_string_value(name)) : NULL;
		json_decref(name);
		json_t *function = json_object_get(tool, "function");
		bool bad = tool == NULL || json_array_append(list, tool) != 0;
		if (!bad && at_will && is_held(call))
			bad = json_object_set_new(function, "strict", json_true()) != 0;
		if (bad) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static int put_choice(const json_t *list, bool at_will, struct sl_buf *out)
{
	if (at_will || json_array_size(list) != 1)
		return buf_printf(out, ",\"tool_choice\":\"%s\"", at_will ? "auto" : "required");
	json_t *choice =
	    json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", tool_name(json_array_get(list, 0)));
	int rc = choice != NULL ? put_json(out, "tool_choice", choice) : SL_ENOMEM;
	json_decref(choice);
	return rc;
}

static int put_calls(const struct proto_submit *s, const json_t *tools, struct sl_buf *out, struct remote_refusal *why)
{
	json_t *form = json_loadb(s->constraint.at, s->constraint.n, 0, NULL);
	bool at_will = json_is_true(json_object_get(form, "at_will"));
	json_t *list = tools_of(json_object_get(form, "calls"), tools, at_will);
	int rc = json_array_size(list) > 0 ? put_json(out, "tools", at_will ? tools : list) : SL_EINVAL;
	if (rc == 0)
		rc = put_choice(list, at_will, out);
	if (rc == 0 && !json_is_true(json_object_get(form, "several")))
		rc = buf_append_str(out, ",\"parallel_tool_calls\":false");
	json_decref(list);
	json_decref(form);
	return rc == SL_EINVAL ? remote_refuse(why, PROTO_ERR_BAD_CONSTRAINT, "The calls of tools can't be carried.")
			       : rc;
}

static int put_tools(const struct proto_submit *s, const json_t *tools, struct sl_buf *out, struct remote_refusal *why)
{
	if (s->constraint_kind == PROTO_CONSTRAINT_CALLS)
		return put_calls(s, tools, out, why);
	return json_array_size(tools) > 0 ? put_json(out, "tools", tools) : 0;
}

/* ---- length ---- */

enum { MESSAGE_TOKENS = 4 }; /* that templates put around a message */

/* Bytes of all strings in it; it is not nested deeper than REMOTE_PROMPT_DEPTH. */
static size_t text_bytes(const json_t *v)
{
	size_t n = json_string_length(v), i;
	const char *name;
	json_t *item;
	json_array_foreach(v, i, item) n += text_bytes(item);
	json_object_foreach((json_t *)v, name, item) if (strcmp(name, "role") != 0 && strcmp(name, "type") != 0) n +=
	    text_bytes(item);
	return n;
}

static size_t tools_bytes(const json_t *tools)
{
	char *text = json_array_size(tools) > 0 ? json_dumps(tools, JSON_COMPACT) : NULL;
	size_t n = text != NULL ? strlen(text) : 0;
	free(text);
	return n;
}

struct remote_length remote_chat_length(struct proto_str prompt)
{
	bool deep = json_deeper_than(prompt.at, prompt.n, REMOTE_PROMPT_DEPTH);
	json_t *root = !deep ? json_loadb(prompt.at, prompt.n, 0, NULL) : NULL;
	const json_t *messages = json_object_get(root, "messages");
	size_t n = text_bytes(messages) + tools_bytes(json_object_get(root, "tools"));
	struct remote_length l = {.bytes = n < UINT32_MAX / 2 ? (uint32_t)n : UINT32_MAX / 2,
				  .fixed = (uint32_t)json_array_size(messages) * MESSAGE_TOKENS};
	json_decref(root);
	return l;
}

/* ---- the chat ---- */

int remote_chat_put(const struct proto_submit *s, enum eng_remote_dialect dialect, struct sl_buf *out,
		    struct remote_refusal *why)
{
	if (json_deeper_than(s->prompt.at, s->prompt.n, REMOTE_PROMPT_DEPTH))
		REFUSE("The chat is nested deeper than %d levels.", REMOTE_PROMPT_DEPTH);
	json_t *root = json_loadb(s->prompt.at, s->prompt.n, JSON_REJECT_DUPLICATES, NULL);
	const json_t *messages = json_object_get(root, "messages");
	int rc = SL_EINVAL;
	if (json_array_size(messages) == 0)
		remote_refuse(why, PROTO_ERR_BAD_REQUEST, "The chat has no messages.");
	else if (!complete_calls(messages))
		remote_refuse(why, PROTO_ERR_BAD_REQUEST, "The chat has a call that is none.");
	else
		rc = put_json(out, "messages", messages);
	if (rc == 0)
		rc = put_tools(s, json_object_get(root, "tools"), out, why);
	if (rc == 0)
		rc = put_template(root, dialect, out, why);
	json_decref(root);
	return rc;
}
