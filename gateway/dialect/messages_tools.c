/* SPDX-License-Identifier: Apache-2.0
 *
 * A tool is {"name", "description", "input_schema"}; types other than "custom" are tools that Anthropic runs.
 */
#include <stdio.h>
#include <string.h>

#include "gateway/dialect/messages_request.h"

struct reader {
	struct tools_request *out;
	struct request_ignored *ignored;
	struct request_error *e;
	char param[64];
};

/* "tools[i].NAME", or the tool itself. */
static const char *at(struct reader *r, size_t i, const char *name)
{
	snprintf(r->param, sizeof r->param, "tools[%zu]%s%s", i, name[0] != '\0' ? "." : "", name);
	return r->param;
}

static int check_name(struct reader *r, const json_t *v, size_t i)
{
	const char *param = at(r, i, "name");
	if (v == NULL)
		return request_missing(r->e, param);
	if (!json_is_string(v))
		return request_wrong_type(r->e, param, "a string", v);
	if (!tools_name_fits(json_string_value(v), json_string_length(v)))
		return request_bad(r->e, "invalid_value", param,
				   "Invalid value for '%s': a name has 1 to %d letters, digits, '_', '-' or '.'.",
				   param, TOOLS_MAX_NAME);
	if (tools_request_find(r->out, json_string_value(v)) != NULL)
		return request_bad(r->e, "invalid_value", param, "Invalid value for '%s': another tool has that name.",
				   param);
	return 0;
}

static int check_type(struct reader *r, const json_t *v, size_t i)
{
	const char *param = at(r, i, "type");
	if (v == NULL)
		return 0;
	if (!json_is_string(v))
		return request_wrong_type(r->e, param, "a string", v);
	if (strcmp(json_string_value(v), "custom") == 0)
		return 0;
	return request_bad(r->e, "unsupported_value", param,
			   "Unsupported value: '%s' is '%.*s', and only 'custom' is supported by this version.", param,
			   request_quoted(v), json_string_value(v));
}

static int read_tool(struct reader *r, const json_t *v, size_t i, struct tool *out)
{
	const json_t *name = request_get(v, "name"), *description = request_get(v, "description"),
		     *schema = request_get(v, "input_schema"), *strict = request_get(v, "strict");
	int rc;
	if (!json_is_object(v))
		return request_wrong_type(r->e, at(r, i, ""), "an object", v);
	if ((rc = check_type(r, request_get(v, "type"), i)) != 0 || (rc = check_name(r, name, i)) != 0)
		return rc;
	if (description != NULL && !json_is_string(description))
		return request_wrong_type(r->e, at(r, i, "description"), "a string", description);
	if (description != NULL && (rc = request_check_text(description, at(r, i, "description"), r->e)) != 0)
		return rc;
	if (schema == NULL)
		return request_missing(r->e, at(r, i, "input_schema"));
	if (!json_is_object(schema))
		return request_wrong_type(r->e, at(r, i, "input_schema"), "an object", schema);
	if (!tools_schema_fits(schema))
		return request_bad(r->e, "invalid_value", at(r, i, "input_schema"),
				   "Invalid value for '%s': arguments are an object, so its 'type' is 'object'.",
				   at(r, i, "input_schema"));
	if (strict != NULL && !json_is_boolean(strict))
		return request_wrong_type(r->e, at(r, i, "strict"), "a boolean", strict);
	*out = (struct tool){.name = json_string_value(name),
			     .description = json_string_value(description),
			     .parameters = schema,
			     .strict = json_is_true(strict),
			     .allowed = true};
	return 0;
}

static int read_tools(struct reader *r, const json_t *v)
{
	static const char *const known[] = {"type", "name", "description", "input_schema", "strict", NULL};
	int rc = tools_request_reserve(r->out, v, "tools", r->e);
	for (size_t i = 0; i < json_array_size(v) && rc == 0; i++) {
		rc = read_tool(r, json_array_get(v, i), i, &r->out->list[i]);
		if (rc == 0)
			request_ignore_others(r->ignored, json_array_get(v, i), at(r, i, ""), known);
		r->out->n += rc == 0;
	}
	return rc;
}

static int read_named(struct reader *r, const json_t *choice)
{
	const json_t *name = request_get(choice, "name");
	if (name == NULL)
		return request_missing(r->e, "tool_choice.name");
	if (!json_is_string(name))
		return request_wrong_type(r->e, "tool_choice.name", "a string", name);
	const struct tool *tool = tools_request_find(r->out, json_string_value(name));
	if (tool == NULL)
		return request_bad(r->e, "invalid_value", "tool_choice.name",
				   "Invalid value for 'tool_choice.name': there is no tool '%.*s'.",
				   request_quoted(name), json_string_value(name));
	r->out->named = tool->name;
	return 0;
}

static int read_choice(struct reader *r, const json_t *v)
{
	static const struct {
		const char *type;
		enum tool_choice choice;
	} types[] = {{"auto", TOOL_CHOICE_AUTO},
		     {"any", TOOL_CHOICE_REQUIRED},
		     {"tool", TOOL_CHOICE_NAMED},
		     {"none", TOOL_CHOICE_NONE}};
	const json_t *type = request_get(v, "type"), *single = request_get(v, "disable_parallel_tool_use");
	size_t i = 0;
	if (v == NULL)
		return 0;
	if (type == NULL)
		return request_missing(r->e, "tool_choice.type");
	if (!json_is_string(type))
		return request_wrong_type(r->e, "tool_choice.type", "a string", type);
	if (single != NULL && !json_is_boolean(single))
		return request_wrong_type(r->e, "tool_choice.disable_parallel_tool_use", "a boolean", single);
	while (i < sizeof types / sizeof *types && strcmp(types[i].type, json_string_value(type)) != 0)
		i++;
	if (i == sizeof types / sizeof *types)
		return request_bad(r->e, "invalid_value", "tool_choice.type",
				   "Invalid value for 'tool_choice.type': '%.*s'. Supported values are: auto any tool "
				   "none.",
				   request_quoted(type), json_string_value(type));
	r->out->choice = (uint8_t)types[i].choice;
	r->out->parallel = !json_is_true(single);
	if (r->out->n == 0 && types[i].choice != TOOL_CHOICE_AUTO && types[i].choice != TOOL_CHOICE_NONE)
		return request_bad(r->e, "invalid_value", "tool_choice",
				   "'tool_choice' is only allowed when 'tools' are given.");
	return types[i].choice == TOOL_CHOICE_NAMED ? read_named(r, v) : 0;
}

int messages_tools_read(const json_t *body, struct tools_request *out, struct request_ignored *ignored,
			struct request_error *e)
{
	struct reader r = {.out = out, .ignored = ignored, .e = e};
	*out = (struct tools_request){.parallel = true};
	int rc = read_tools(&r, request_get(body, "tools"));
	if (rc == 0)
		rc = read_choice(&r, request_get(body, "tool_choice"));
	/* Tools that must not be called are left out. */
	if (rc != 0 || out->choice == TOOL_CHOICE_NONE)
		tools_request_dispose(out);
	return rc;
}
