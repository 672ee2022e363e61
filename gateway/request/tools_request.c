/* SPDX-License-Identifier: Apache-2.0
 *
 * Chats have a tool's definition in a member `function`, responses have it flat. The deprecated `functions` are the
 * definitions alone; `function_call` is their `tool_choice`.
 *
 * What a template gets is one form: {"type":"function","function":{"name","description","parameters"}}, in the order in
 * which models have seen it, with the client's own order of the schema's properties.
 */
#include "gateway/request/tools_request.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_out.h"
#include "gateway/request/request_fields.h"

struct reader {
	struct tools_request *out;
	struct request_ignored *ignored;
	struct request_error *e;
	enum request_endpoint endpoint;
	const char *field;
	char param[96];
};

/* "FIELD[i].TAIL", or without the tail. */
static const char *at(struct reader *r, size_t i, const char *tail)
{
	snprintf(r->param, sizeof r->param, "%s[%zu]%s%s", r->field, i, tail[0] ? "." : "", tail);
	return r->param;
}

bool tools_name_fits(const char *s, size_t n)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
	return n > 0 && n <= TOOLS_MAX_NAME && strspn(s, plain) == n;
}

static bool is_object_type(const json_t *type)
{
	return json_is_string(type) && strcmp(json_string_value(type), "object") == 0;
}

bool tools_schema_fits(const json_t *schema)
{
	const json_t *type = request_get(schema, "type");
	bool fits = type == NULL || is_object_type(type);
	for (size_t i = 0; !fits && i < json_array_size(type); i++)
		fits = is_object_type(json_array_get(type, i));
	return fits;
}

struct tool *tools_request_find(const struct tools_request *t, const char *name)
{
	for (size_t i = 0; i < t->n; i++)
		if (strcmp(t->list[i].name, name) == 0)
			return &t->list[i];
	return NULL;
}

/* ---- definitions ---- */

/* within: "function." where that holds the definition. */
static int read_definition(struct reader *r, const json_t *o, size_t i, const char *within, struct tool *out)
{
	char tail[40];
	const json_t *name = request_get(o, "name"), *description = request_get(o, "description"),
		     *parameters = request_get(o, "parameters"), *strict = request_get(o, "strict");
	snprintf(tail, sizeof tail, "%sname", within);
	if (name == NULL)
		return request_missing(r->e, at(r, i, tail));
	if (!json_is_string(name))
		return request_wrong_type(r->e, at(r, i, tail), "a string", name);
	if (!tools_name_fits(json_string_value(name), json_string_length(name)))
		return request_bad(r->e, "invalid_value", at(r, i, tail),
				   "Invalid value for '%s': a name has 1 to %d letters, digits, '_', '-' or '.'.",
				   at(r, i, tail), TOOLS_MAX_NAME);
	if (tools_request_find(r->out, json_string_value(name)) != NULL)
		return request_bad(r->e, "invalid_value", at(r, i, tail),
				   "Invalid value for '%s': another tool has that name.", at(r, i, tail));
	snprintf(tail, sizeof tail, "%sdescription", within);
	if (description != NULL && !json_is_string(description))
		return request_wrong_type(r->e, at(r, i, tail), "a string", description);
	if (description != NULL && !request_text_fits(description))
		return request_check_text(description, at(r, i, tail), r->e);
	snprintf(tail, sizeof tail, "%sparameters", within);
	if (parameters != NULL && !json_is_object(parameters))
		return request_wrong_type(r->e, at(r, i, tail), "an object", parameters);
	if (parameters != NULL && !tools_schema_fits(parameters))
		return request_bad(r->e, "invalid_value", at(r, i, tail),
				   "Invalid value for '%s': arguments are an object, so its 'type' is 'object'.",
				   at(r, i, tail));
	snprintf(tail, sizeof tail, "%sstrict", within);
	if (strict != NULL && !json_is_boolean(strict))
		return request_wrong_type(r->e, at(r, i, tail), "a boolean", strict);
	*out = (struct tool){.name = json_string_value(name),
			     .description = json_string_value(description),
			     .parameters = parameters,
			     .strict = json_is_true(strict),
			     .allowed = true};
	return 0;
}

static int check_type(struct reader *r, const json_t *v, const char *param)
{
	const json_t *type = request_get(v, "type");
	if (type == NULL)
		return request_missing(r->e, param);
	if (!json_is_string(type))
		return request_wrong_type(r->e, param, "a string", type);
	if (strcmp(json_string_value(type), "function") == 0)
		return 0;
	return request_bad(r->e, "unsupported_value", param,
			   "Unsupported value: '%s' is '%.*s', and only 'function' is supported by this version.",
			   param, request_quoted(type), json_string_value(type));
}

static int read_tool(struct reader *r, const json_t *v, size_t i, struct tool *out)
{
	if (!json_is_object(v))
		return request_wrong_type(r->e, at(r, i, ""), "an object", v);
	if (r->out->functions)
		return read_definition(r, v, i, "", out);
	int rc = check_type(r, v, at(r, i, "type"));
	if (rc != 0 || r->endpoint == REQUEST_RESPONSE)
		return rc != 0 ? rc : read_definition(r, v, i, "", out);
	const json_t *function = request_get(v, "function");
	if (function == NULL)
		return request_missing(r->e, at(r, i, "function"));
	if (!json_is_object(function))
		return request_wrong_type(r->e, at(r, i, "function"), "an object", function);
	return read_definition(r, function, i, "function.", out);
}

int tools_request_reserve(struct tools_request *t, const json_t *v, const char *field, struct request_error *e)
{
	size_t n = json_array_size(v);
	if (n == 0)
		return 0;
	if (n > TOOLS_MAX)
		return request_bad(e, "array_above_max_length", field,
				   "Invalid '%s': it has at most %d elements, not %zu.", field, TOOLS_MAX, n);
	t->list = sl_zalloc_n(n, sizeof *t->list);
	return t->list != NULL ? 0 : SL_ENOMEM;
}

static void list_unknown(struct reader *r, const json_t *v, size_t i)
{
	static const char *const definition[] = {"name", "description", "parameters", "strict", NULL};
	static const char *const outer[] = {"type", "function", NULL};
	static const char *const flat[] = {"type", "name", "description", "parameters", "strict", NULL};
	bool nested = !r->out->functions && r->endpoint != REQUEST_RESPONSE;
	request_ignore_others(r->ignored, v, at(r, i, ""), nested ? outer : r->out->functions ? definition : flat);
	if (nested)
		request_ignore_others(r->ignored, request_get(v, "function"), at(r, i, "function"), definition);
}

static int read_tools(struct reader *r, const json_t *v)
{
	int rc = tools_request_reserve(r->out, v, r->field, r->e);
	for (size_t i = 0; i < json_array_size(v) && rc == 0; i++) {
		rc = read_tool(r, json_array_get(v, i), i, &r->out->list[i]);
		if (rc == 0)
			list_unknown(r, json_array_get(v, i), i);
		r->out->n += rc == 0;
	}
	return rc;
}

/* ---- the choice ---- */

/* A function that is named by {"name"}, or by {"function":{"name"}} in a chat's tool_choice. */
static int read_named(struct reader *r, const json_t *v, const char *param, struct tool **out)
{
	const json_t *o = v, *name;
	if (r->endpoint == REQUEST_CHAT && !r->out->functions)
		o = request_get(v, "function");
	name = request_get(o, "name");
	if (!json_is_string(name))
		return request_bad(r->e, "invalid_value", param, "Invalid value for '%s': it names no function.",
				   param);
	*out = tools_request_find(r->out, json_string_value(name));
	if (*out == NULL)
		return request_bad(r->e, "invalid_value", param, "Invalid value for '%s': there is no tool '%.*s'.",
				   param, request_quoted(name), json_string_value(name));
	return 0;
}

static const struct {
	const char *name;
	enum tool_choice choice;
} modes[] = {{"auto", TOOL_CHOICE_AUTO}, {"none", TOOL_CHOICE_NONE}, {"required", TOOL_CHOICE_REQUIRED}};

static int read_mode(struct reader *r, const json_t *v, const char *param)
{
	size_t n = r->out->functions ? 2 : 3;
	if (!json_is_string(v))
		return v == NULL ? request_missing(r->e, param) : request_wrong_type(r->e, param, "a string", v);
	for (size_t i = 0; i < n; i++)
		if (strcmp(json_string_value(v), modes[i].name) == 0) {
			r->out->choice = (uint8_t)modes[i].choice;
			return 0;
		}
	return request_bad(r->e, "invalid_value", param, "Invalid value for '%s': '%.*s'. Supported values are: %s.",
			   param, request_quoted(v), json_string_value(v), n == 2 ? "auto none" : "auto none required");
}

/* {"type":"allowed_tools", …}: only those may be called. */
static int read_allowed(struct reader *r, const json_t *v, const char *field)
{
	const json_t *o = r->endpoint == REQUEST_CHAT ? request_get(v, "allowed_tools") : v;
	const json_t *list = request_get(o, "tools");
	char param[96];
	snprintf(param, sizeof param, "%s%s.mode", field, r->endpoint == REQUEST_CHAT ? ".allowed_tools" : "");
	int rc = read_mode(r, request_get(o, "mode"), param);
	if (rc != 0)
		return rc;
	snprintf(param, sizeof param, "%s%s.tools", field, r->endpoint == REQUEST_CHAT ? ".allowed_tools" : "");
	if (json_array_size(list) == 0 || json_array_size(list) > TOOLS_MAX)
		return request_bad(r->e, "invalid_value", param, "Invalid value for '%s': it is a list of tools.",
				   param);
	for (size_t i = 0; i < r->out->n; i++)
		r->out->list[i].allowed = false;
	for (size_t i = 0; i < json_array_size(list) && rc == 0; i++) {
		struct tool *tool = NULL;
		rc = read_named(r, json_array_get(list, i), param, &tool);
		if (rc == 0)
			tool->allowed = true;
	}
	return rc;
}

static int read_choice(struct reader *r, const json_t *v, const char *field)
{
	struct tool *tool = NULL;
	char param[64];
	if (json_is_string(v))
		return read_mode(r, v, field);
	const json_t *type = request_get(v, "type");
	snprintf(param, sizeof param, "%s.type", field);
	if (!r->out->functions && json_is_string(type) && strcmp(json_string_value(type), "allowed_tools") == 0)
		return read_allowed(r, v, field);
	int rc = r->out->functions ? 0 : check_type(r, v, param);
	if (rc == 0)
		rc = read_named(r, v, field, &tool);
	if (rc != 0)
		return rc;
	r->out->choice = TOOL_CHOICE_NAMED;
	r->out->named = tool->name;
	return 0;
}

/* Without tools there is nothing to choose. */
static int check_choice_alone(struct reader *r, const json_t *v, const char *field)
{
	const char *s = json_string_value(v);
	if (s != NULL && (strcmp(s, "none") == 0 || strcmp(s, "auto") == 0))
		return 0;
	return request_bad(r->e, "invalid_value", field, "'%s' is only allowed when '%s' are given.", field, r->field);
}

int tools_request_read(const struct request_values *values, enum request_endpoint endpoint, struct tools_request *out,
		       struct request_ignored *ignored, struct request_error *e)
{
	const json_t *tools = values->at[VALUE_TOOLS], *functions = values->at[VALUE_FUNCTIONS];
	const json_t *parallel = values->at[VALUE_PARALLEL_TOOL_CALLS];
	*out = (struct tools_request){.parallel = !json_is_false(parallel)};
	out->functions = json_array_size(tools) == 0 && json_array_size(functions) > 0;
	if (json_array_size(tools) > 0 && json_array_size(functions) > 0)
		return request_bad(e, "invalid_value", "functions", "'functions' and 'tools' exclude each other.");
	struct reader r = {.out = out,
			   .ignored = ignored,
			   .e = e,
			   .endpoint = endpoint,
			   .field = out->functions ? "functions" : "tools"};
	const char *field = out->functions ? "function_call" : "tool_choice";
	const json_t *choice = values->at[out->functions ? VALUE_FUNCTION_CALL : VALUE_TOOL_CHOICE];
	int rc = read_tools(&r, out->functions ? functions : tools);
	if (rc == 0 && choice != NULL)
		rc = out->n > 0 ? read_choice(&r, choice, field) : check_choice_alone(&r, choice, field);
	if (rc != 0 || out->choice == TOOL_CHOICE_NONE)
		tools_request_dispose(out);
	return rc;
}

void tools_request_dispose(struct tools_request *t)
{
	sl_free(t->list);
	t->list = NULL;
	t->n = 0;
}

/* ---- for the template ---- */

static int put_tool(struct sl_buf *out, const struct tool *t, bool first)
{
	int rc = buf_append_str(out, first ? "" : ",");
	if (rc == 0)
		rc = buf_printf(out, "{\"type\":\"function\",\"function\":{\"name\":\"%s\"", t->name);
	if (rc == 0 && t->description != NULL) {
		rc = buf_append_str(out, ",\"description\":");
		if (rc == 0)
			rc = json_out_string(out, t->description, strlen(t->description));
	}
	if (rc == 0 && t->parameters != NULL) {
		rc = buf_append_str(out, ",\"parameters\":");
		if (rc == 0)
			rc = request_put_json(out, t->parameters);
	}
	return rc == 0 ? buf_append_str(out, "}}") : rc;
}

int tools_request_put(struct sl_buf *out, const struct tools_request *t)
{
	bool first = true;
	int rc = t->n > 0 ? buf_append_str(out, ",\"tools\":[") : 0;
	for (size_t i = 0; i < t->n && rc == 0; i++) {
		if (!t->list[i].allowed)
			continue;
		rc = put_tool(out, &t->list[i], first);
		first = false;
	}
	return rc == 0 && t->n > 0 ? buf_append_str(out, "]") : rc;
}
