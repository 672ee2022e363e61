/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields that mean the same switch must agree. Templates call it enable_thinking (Qwen, GLM) or thinking (DeepSeek,
 * Granite) and the effort reasoning_effort (gpt-oss); a template that knows none of them is not changed by them.
 */
#include "gateway/request/reasoning_request.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json_out.h"
#include "gateway/request/request_fields.h"

static int set_switch(struct reasoning_request *r, bool on, const char *param, struct request_error *e)
{
	uint8_t to = on ? REASONING_ON : REASONING_OFF;
	if (r->thinking != REASONING_DEFAULT && r->thinking != to)
		return request_bad(e, "invalid_value", param,
				   "Invalid value for '%s': another field of the request says the opposite.", param);
	r->thinking = to;
	return 0;
}

static int set_effort(struct reasoning_request *r, const json_t *v, const char *param, struct request_error *e)
{
	const char *effort = json_string_value(v);
	if (strcmp(effort, "none") == 0)
		return set_switch(r, false, param, e);
	if (r->effort != NULL && strcmp(r->effort, effort) != 0)
		return request_bad(e, "invalid_value", param,
				   "Invalid value for '%s': another field of the request has another effort.", param);
	r->effort = effort;
	return 0;
}

/* {"type":"enabled","budget_tokens":N}, or a boolean. */
static int read_thinking(struct reasoning_request *r, const json_t *v, struct request_error *e)
{
	static const char param[] = "thinking.type", budget_param[] = "thinking.budget_tokens";
	if (v == NULL || json_is_boolean(v))
		return v != NULL ? set_switch(r, json_is_true(v), "thinking", e) : 0;
	const json_t *type = request_get(v, "type"), *budget = request_get(v, "budget_tokens");
	if (budget != NULL && !json_is_integer(budget))
		return request_wrong_type(e, budget_param, "an integer", budget);
	if (budget != NULL && (json_integer_value(budget) < 0 || json_integer_value(budget) > INT32_MAX))
		return request_out_of_range(e, budget_param, 0, false, INT32_MAX, (double)json_integer_value(budget));
	r->has_budget = budget != NULL;
	r->budget = (uint32_t)json_integer_value(budget);
	if (type == NULL)
		return request_missing(e, param);
	if (!json_is_string(type))
		return request_wrong_type(e, param, "a string", type);
	const char *s = json_string_value(type);
	if (strcmp(s, "enabled") == 0 || strcmp(s, "disabled") == 0)
		return set_switch(r, s[0] == 'e', param, e);
	if (strcmp(s, "auto") == 0 || strcmp(s, "adaptive") == 0)
		return 0;
	return request_bad(e, "invalid_value", param,
			   "Invalid value for '%s': '%.*s'. Supported values are: enabled disabled auto adaptive.",
			   param, request_quoted(type), s);
}

static int read_think(struct reasoning_request *r, const json_t *v, struct request_error *e)
{
	if (v == NULL)
		return 0;
	return json_is_string(v) ? set_effort(r, v, "think", e) : set_switch(r, json_is_true(v), "think", e);
}

static int read_budget(struct reasoning_request *r, const struct request_values *values, struct request_error *e)
{
	const json_t *v = values->at[VALUE_THINKING_BUDGET];
	const char *param = values->name[VALUE_THINKING_BUDGET];
	if (v == NULL)
		return 0;
	if (r->has_budget && r->budget != json_integer_value(v))
		return request_bad(e, "invalid_value", param,
				   "Invalid value for '%s': 'thinking.budget_tokens' has another one.", param);
	r->has_budget = true;
	r->budget = (uint32_t)json_integer_value(v);
	return 0;
}

int reasoning_request_read(const struct request_values *values, struct reasoning_request *out, struct request_error *e)
{
	const json_t *enable = values->at[VALUE_ENABLE_THINKING], *effort = values->at[VALUE_REASONING_EFFORT];
	int rc = 0;
	*out = (struct reasoning_request){0};
	if (enable != NULL)
		rc = set_switch(out, json_is_true(enable), "enable_thinking", e);
	if (rc == 0)
		rc = read_thinking(out, values->at[VALUE_THINKING], e);
	if (rc == 0 && effort != NULL)
		rc = set_effort(out, effort, values->name[VALUE_REASONING_EFFORT], e);
	if (rc == 0)
		rc = read_think(out, values->at[VALUE_THINK], e);
	return rc == 0 ? read_budget(out, values, e) : rc;
}

/* ---- for the template ---- */

/* One variable, unless the client has set it. */
static int put_variable(struct sl_buf *out, const json_t *own, const char *name, const char *value, bool *any)
{
	if (value == NULL || json_object_get(own, name) != NULL)
		return 0;
	const char *before = *any ? "," : "";
	*any = true;
	return buf_printf(out, "%s\"%s\":%s", before, name, value);
}

static int put_own(struct sl_buf *out, json_t *own, bool *any)
{
	const char *key;
	json_t *v;
	json_object_foreach(own, key, v)
	{
		int rc = *any ? buf_append_str(out, ",") : 0;
		if (rc == 0)
			rc = json_out_string(out, key, strlen(key));
		if (rc == 0)
			rc = buf_append_str(out, ":");
		if (rc == 0)
			rc = request_put_json(out, v);
		if (rc != 0)
			return rc;
		*any = true;
	}
	return 0;
}

int reasoning_request_put(struct sl_buf *out, const struct reasoning_request *r, json_t *kwargs)
{
	bool any = false;
	char effort[32];
	const char *on = r->thinking == REASONING_DEFAULT ? NULL : r->thinking == REASONING_ON ? "true" : "false";
	if (on == NULL && r->effort == NULL && kwargs == NULL)
		return 0;
	if (r->effort != NULL)
		BUG_IF((size_t)snprintf(effort, sizeof effort, "\"%s\"", r->effort) >= sizeof effort, "an effort: %s",
		       r->effort);
	int rc;
	if ((rc = buf_append_str(out, ",\"chat_template_kwargs\":{")) != 0 || (rc = put_own(out, kwargs, &any)) != 0 ||
	    (rc = put_variable(out, kwargs, "enable_thinking", on, &any)) != 0 ||
	    (rc = put_variable(out, kwargs, "thinking", on, &any)) != 0 ||
	    (rc = put_variable(out, kwargs, "reasoning_effort", r->effort != NULL ? effort : NULL, &any)) != 0)
		return rc;
	return buf_append_str(out, "}");
}
