/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the nesting depth on the bytes before parsing: the parser recurses, and its own limit is far deeper than a
 * chat needs.
 */
#include "engine/core/prompt.h"

#include <string.h>

#include "base/json/json_depth.h"
#include "base/proto/proto.h"

#define REFUSE(...) return sl_errf(err, SL_EINVAL, __VA_ARGS__)

/* NULL if the member is missing or null. */
static const json_t *member(const json_t *object, const char *name)
{
	const json_t *j = json_object_get(object, name);
	return json_is_null(j) ? NULL : j;
}

static int check_optional_string(const json_t *m, size_t i, const char *name, struct sl_err *err)
{
	const json_t *j = member(m, name);
	if (j != NULL && !json_is_string(j))
		REFUSE("messages[%zu].%s must be a string.", i, name);
	return 0;
}

static int check_content(const json_t *m, size_t i, bool optional, struct sl_err *err)
{
	const json_t *content = member(m, "content");
	if (json_is_string(content) || (content == NULL && optional))
		return 0;
	size_t n = json_array_size(content);
	if (n == 0 || n > PROMPT_MAX_PARTS)
		REFUSE("messages[%zu].content must be a string or a list of 1 to %d parts.", i, PROMPT_MAX_PARTS);
	for (size_t k = 0; k < n; k++) {
		const json_t *part = json_array_get(content, k);
		const char *type = json_string_value(json_object_get(part, "type"));
		if (type == NULL || strcmp(type, "text") != 0)
			REFUSE("messages[%zu].content[%zu].type must be \"text\".", i, k);
		if (!json_is_string(json_object_get(part, "text")))
			REFUSE("messages[%zu].content[%zu].text must be a string.", i, k);
	}
	return 0;
}

/* Replaces arguments that are the text of a JSON object by that object. Other text stays: earlier model output need not
 * be valid. */
static int open_arguments(json_t *function, struct sl_err *err)
{
	const json_t *arguments = json_object_get(function, "arguments");
	const char *text = json_string_value(arguments);
	if (text == NULL)
		return 0;
	size_t n = json_string_length(arguments);
	json_t *object = NULL;
	if (n == 0)
		object = json_object();
	else if (!json_deeper_than(text, n, PROMPT_MAX_DEPTH))
		object = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(object)) {
		json_decref(object);
		return 0;
	}
	if (json_object_set_new(function, "arguments", object) != 0)
		return sl_errf(err, SL_ENOMEM, "no memory for the chat");
	return 0;
}

static int check_calls(json_t *m, size_t i, struct sl_err *err)
{
	const json_t *calls = member(m, "tool_calls");
	if (calls == NULL)
		return 0;
	size_t n = json_array_size(calls);
	if (!json_is_array(calls) || n > PROMPT_MAX_CALLS)
		REFUSE("messages[%zu].tool_calls must be an array of at most %d calls.", i, PROMPT_MAX_CALLS);
	for (size_t k = 0; k < n; k++) {
		json_t *call = json_array_get(calls, k);
		json_t *function = json_object_get(call, "function");
		const json_t *id = member(call, "id");
		const json_t *arguments = json_object_get(function, "arguments");
		if (!json_is_string(json_object_get(function, "name")))
			REFUSE("messages[%zu].tool_calls[%zu].function.name must be a string.", i, k);
		if (id != NULL && !json_is_string(id))
			REFUSE("messages[%zu].tool_calls[%zu].id must be a string.", i, k);
		if (arguments != NULL && !json_is_string(arguments) && !json_is_object(arguments))
			REFUSE("messages[%zu].tool_calls[%zu].function.arguments must be a string or an object.", i, k);
		int rc = open_arguments(function, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int check_message(json_t *m, size_t i, struct sl_err *err)
{
	static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
	static const char *const texts[] = {"name", "tool_call_id", "reasoning_content"};
	const char *role = json_string_value(json_object_get(m, "role"));
	if (role == NULL)
		REFUSE("messages[%zu].role must be a string.", i);
	bool known = false;
	for (size_t r = 0; r < sizeof roles / sizeof *roles; r++)
		known = known || strcmp(role, roles[r]) == 0;
	if (!known)
		REFUSE("messages[%zu].role must be one of system, user, assistant, tool and developer.", i);
	bool assistant = strcmp(role, "assistant") == 0;
	if (!assistant && member(m, "tool_calls") != NULL)
		REFUSE("messages[%zu].tool_calls is for the assistant.", i);
	bool more = json_array_size(member(m, "tool_calls")) > 0 || member(m, "reasoning_content") != NULL;
	int rc = check_content(m, i, assistant && more, err);
	for (size_t k = 0; rc == 0 && k < sizeof texts / sizeof *texts; k++)
		rc = check_optional_string(m, i, texts[k], err);
	return rc == 0 ? check_calls(m, i, err) : rc;
}

static int check_messages(const json_t *messages, struct sl_err *err)
{
	size_t n = json_array_size(messages);
	int rc = 0;
	if (n == 0 || n > PROMPT_MAX_MESSAGES)
		REFUSE("messages must be an array of 1 to %d objects.", PROMPT_MAX_MESSAGES);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = check_message(json_array_get(messages, i), i, err);
	return rc;
}

static int check_tools(const json_t *tools, struct sl_err *err)
{
	if (tools == NULL)
		return 0;
	if (!json_is_array(tools) || json_array_size(tools) > PROMPT_MAX_TOOLS)
		REFUSE("tools must be an array of at most %d objects.", PROMPT_MAX_TOOLS);
	for (size_t i = 0; i < json_array_size(tools); i++) {
		const json_t *tool = json_array_get(tools, i);
		const char *type = json_string_value(json_object_get(tool, "type"));
		if (type == NULL || strcmp(type, "function") != 0)
			REFUSE("tools[%zu].type must be \"function\".", i);
		const json_t *function = json_object_get(tool, "function");
		if (!json_is_string(json_object_get(function, "name")))
			REFUSE("tools[%zu].function.name must be a string.", i);
		const json_t *parameters = member(function, "parameters");
		if (parameters != NULL && !json_is_object(parameters))
			REFUSE("tools[%zu].function.parameters must be an object.", i);
	}
	return 0;
}

static int check_documents(const json_t *documents, struct sl_err *err)
{
	if (documents != NULL && (!json_is_array(documents) || json_array_size(documents) > PROMPT_MAX_DOCUMENTS))
		REFUSE("documents must be an array of at most %d objects.", PROMPT_MAX_DOCUMENTS);
	for (size_t i = 0; i < json_array_size(documents); i++)
		if (!json_is_object(json_array_get(documents, i)))
			REFUSE("documents[%zu] must be an object.", i);
	return 0;
}

static bool is_identifier(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(s[i] == '_' || (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
		      (i > 0 && s[i] >= '0' && s[i] <= '9')))
			return false;
	return n > 0 && n <= 64;
}

/* A variable must not hide a member of the request, a token of the model or a function of the templates. */
static int check_variable(const char *name, size_t n, const json_t *value, struct sl_err *err)
{
	static const char *const taken[] = {"messages",
					    "tools",
					    "documents",
					    "add_generation_prompt",
					    "continue_final_message",
					    "bos_token",
					    "eos_token",
					    "chat_template",
					    "raise_exception",
					    "strftime_now",
					    "namespace",
					    "range",
					    "dict",
					    "cycler",
					    "joiner",
					    "loop",
					    "caller"};
	int shown = n < 64 ? (int)n : 64;
	if (!is_identifier(name, n))
		REFUSE("chat_template_kwargs has a name that is no identifier.");
	for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
		if (strlen(taken[i]) == n && memcmp(taken[i], name, n) == 0)
			REFUSE("chat_template_kwargs can't set %.*s.", shown, name);
	if (json_is_object(value))
		REFUSE("chat_template_kwargs.%.*s must be a string, number, boolean, null or array.", shown, name);
	return 0;
}

static int check_variables(json_t *variables, struct sl_err *err)
{
	if (variables == NULL)
		return 0;
	if (!json_is_object(variables) || json_object_size(variables) > PROMPT_MAX_VARIABLES)
		REFUSE("chat_template_kwargs must be an object of at most %d members.", PROMPT_MAX_VARIABLES);
	int rc = 0;
	for (void *i = json_object_iter(variables); i != NULL && rc == 0; i = json_object_iter_next(variables, i))
		rc = check_variable(json_object_iter_key(i), json_object_iter_key_len(i), json_object_iter_value(i),
				    err);
	return rc;
}

static int read_flag(const json_t *root, const char *name, bool absent, bool *out, struct sl_err *err)
{
	const json_t *j = member(root, name);
	*out = j != NULL ? json_is_true(j) : absent;
	if (j != NULL && !json_is_boolean(j))
		REFUSE("%s must be true or false.", name);
	return 0;
}

static int check_chat(struct prompt_chat *c, struct sl_err *err)
{
	json_t *variables = json_object_get(c->root, "chat_template_kwargs");
	c->messages = json_object_get(c->root, "messages");
	c->tools = member(c->root, "tools");
	c->documents = member(c->root, "documents");
	c->variables = variables = json_is_null(variables) ? NULL : variables;
	int rc = check_messages(c->messages, err);
	if (rc == 0)
		rc = check_tools(c->tools, err);
	if (rc == 0 && (rc = check_documents(c->documents, err)) != 0)
		c->refused = PROTO_ERR_BAD_DOCUMENTS;
	if (rc == 0 && (rc = check_variables(variables, err)) != 0)
		c->refused = PROTO_ERR_BAD_KWARGS;
	if (rc == 0)
		rc = read_flag(c->root, "continue_final_message", false, &c->continue_final_message, err);
	if (rc == 0)
		rc = read_flag(c->root, "add_generation_prompt", !c->continue_final_message, &c->add_generation_prompt,
			       err);
	if (rc == 0 && c->add_generation_prompt && c->continue_final_message)
		REFUSE("continue_final_message and add_generation_prompt exclude each other.");
	/* Templates test whether tools is defined, so an empty list becomes none. */
	if (json_array_size(c->tools) == 0)
		c->tools = NULL;
	return rc;
}

int prompt_parse_chat(const char *text, size_t n, struct prompt_chat *out, struct sl_err *err)
{
	*out = (struct prompt_chat){0};
	if (json_deeper_than(text, n, PROMPT_MAX_DEPTH))
		REFUSE("The chat is nested deeper than %d levels.", PROMPT_MAX_DEPTH);
	json_error_t je;
	out->root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je);
	if (out->root == NULL)
		REFUSE("The chat is not valid JSON (at byte %d).", je.position);
	int rc = check_chat(out, err);
	if (rc != 0) {
		uint8_t refused = out->refused;
		prompt_chat_dispose(out);
		out->refused = refused;
	}
	return rc;
}

void prompt_chat_dispose(struct prompt_chat *c)
{
	json_decref(c->root);
	*c = (struct prompt_chat){0};
}
