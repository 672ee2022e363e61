/* SPDX-License-Identifier: Apache-2.0
 *
 * What only a response has: its storage, what it continues, a stored prompt, and items for input.
 * Every field after the common ones is read from a body that request_check passed.
 */
#include "gateway/request/response_request.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json_out.h"

enum { MAX_HISTORY = 4096 };

/* ---- storage ---- */

static int get_storage(const struct request_values *values, struct response_request *r, struct request_error *e)
{
	r->store = !json_is_false(values->at[VALUE_STORE]);
	r->background = json_is_true(values->at[VALUE_BACKGROUND]);
	r->metadata = values->at[VALUE_METADATA];
	if (r->background && !r->store)
		return request_bad(e, "invalid_value", "background",
				   "'background' requires 'store': otherwise the response could not be retrieved.");
	const json_t *previous = values->at[VALUE_PREVIOUS_RESPONSE_ID];
	int rc = request_read_label(previous, "previous_response_id", &r->previous_response_id, e);
	if (rc == 0 && previous != NULL && r->previous_response_id == NULL)
		rc = request_bad(e, "invalid_value", "previous_response_id",
				 "Invalid value for 'previous_response_id': it is empty.");
	return rc;
}

static int get_conversation(const struct request_values *values, struct response_request *r, struct request_error *e)
{
	const json_t *v = values->at[VALUE_CONVERSATION];
	const char *param = json_is_object(v) ? "conversation.id" : "conversation";
	int rc = json_is_object(v) ? request_get_label(v, "id", param, &r->conversation, e)
				   : request_read_label(v, param, &r->conversation, e);
	if (rc != 0 || v == NULL)
		return rc;
	if (r->conversation == NULL)
		return request_bad(e, "invalid_value", param, "Invalid value for '%s': it is empty.", param);
	if (r->previous_response_id != NULL)
		return request_bad(e, "invalid_value", "conversation",
				   "'conversation' and 'previous_response_id' cannot be used together.");
	return 0;
}

/* ---- a stored prompt ---- */

/* A variable is a string; as a part of text it becomes one. */
static int read_variable(json_t *variables, void *at, struct request_error *e)
{
	json_t *v = json_object_iter_value(at);
	char param[96];
	snprintf(param, sizeof param, "prompt.variables.%s", json_object_iter_key(at));
	if (json_is_object(v)) {
		const json_t *type = json_object_get(v, "type");
		if (!json_is_string(type) || strcmp(json_string_value(type), "input_text") != 0)
			return request_bad(e, "unsupported_value", param,
					   "Unsupported value: '%s' is neither a string nor an 'input_text'.", param);
		v = json_object_get(v, "text");
	}
	if (!json_is_string(v))
		return v != NULL ? request_wrong_type(e, param, "a string", v) : request_missing(e, param);
	int rc = request_check_text(v, param, e);
	if (rc == 0 && v != json_object_iter_value(at) && json_object_iter_set(variables, at, v) != 0)
		rc = SL_ENOMEM;
	return rc;
}

static int get_prompt(const struct request_values *values, struct response_request *r, struct request_error *e)
{
	const json_t *prompt = values->at[VALUE_PROMPT];
	if (prompt == NULL)
		return 0;
	int rc;
	if ((rc = request_get_label(prompt, "id", "prompt.id", &r->prompt_id, e)) != 0 ||
	    (rc = request_get_label(prompt, "version", "prompt.version", &r->prompt_version, e)) != 0)
		return rc;
	if (r->prompt_id == NULL)
		return request_missing(e, "prompt.id");
	r->prompt_variables = request_get(prompt, "variables");
	for (void *i = json_object_iter(r->prompt_variables); i != NULL && rc == 0;
	     i = json_object_iter_next(r->prompt_variables, i))
		rc = read_variable(r->prompt_variables, i, e);
	return rc;
}

/* ---- include ---- */

/* Results of tools would always be included; there are none. */
static int get_include(const struct request_values *values, struct response_request *r, struct request_error *e)
{
	static const char logprobs[] = "message.output_text.logprobs";
	static const char *const nothing[] = {
	    "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
	    "message.input_image.image_url", "reasoning.encrypted_content",           "web_search_call.action.sources",
	    "web_search_call.results",
	};
	const json_t *v = values->at[VALUE_INCLUDE];
	json_int_t top = json_integer_value(values->at[VALUE_TOP_LOGPROBS]);
	bool want = top > 0;
	for (size_t i = 0; i < json_array_size(v); i++) {
		const json_t *name = json_array_get(v, i);
		char param[40];
		snprintf(param, sizeof param, "include[%zu]", i);
		if (!json_is_string(name))
			return request_wrong_type(e, param, "a string", name);
		bool known = strcmp(json_string_value(name), logprobs) == 0;
		want = want || known;
		for (size_t k = 0; k < sizeof nothing / sizeof nothing[0] && !known; k++)
			known = strcmp(json_string_value(name), nothing[k]) == 0;
		if (!known)
			return request_bad(e, "invalid_value", param, "Invalid value for '%s': '%.*s'.", param,
					   request_quoted(name), json_string_value(name));
	}
	if (want)
		r->c.submit.flags |= PROTO_SUBMIT_WANT_LOGPROBS;
	r->c.submit.n_top_logprobs = (uint8_t)top;
	return 0;
}

/* ---- input ---- */

static int get_instructions(const struct request_values *values, struct response_request *r, struct request_error *e)
{
	const json_t *v = values->at[VALUE_INSTRUCTIONS];
	r->instructions = json_string_value(v);
	return v != NULL ? request_check_text(v, "instructions", e) : 0;
}

static int get_input(const struct request_values *values, struct response_request *r, const struct request_limits *l,
		     struct request_error *e)
{
	const json_t *v = values->at[VALUE_INPUT];
	bool may_lack = r->prompt_id != NULL || r->previous_response_id != NULL || r->conversation != NULL;
	if (v == NULL && !may_lack)
		return request_missing(e, "input");
	if (json_is_array(v) && json_array_size(v) == 0 && !may_lack)
		return request_bad(e, "empty_array", "input", "Invalid 'input': at least one item is needed.");
	if (!json_is_string(v))
		return response_items_normalise(v, "input", l->messages, &r->input, e);
	int rc = request_check_text(v, "input", e);
	if (rc != 0)
		return rc;
	r->input = response_items_of_text(v);
	return r->input != NULL ? 0 : SL_ENOMEM;
}

int response_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct response_request *out,
			   struct request_error *e)
{
	*out = (struct response_request){0};
	*e = (struct request_error){0};
	struct request_values values;
	int rc;
	if ((rc = request_parse_json(bytes, n, l, &out->body, e)) != 0 ||
	    (rc = request_common_read(out->body, (struct proto_str){bytes, n}, REQUEST_RESPONSE, &values, &out->c,
				      e)) != 0 ||
	    (rc = get_storage(&values, out, e)) != 0 || (rc = get_conversation(&values, out, e)) != 0 ||
	    (rc = get_prompt(&values, out, e)) != 0 || (rc = get_include(&values, out, e)) != 0 ||
	    (rc = get_instructions(&values, out, e)) != 0 || (rc = get_input(&values, out, l, e)) != 0) {
		response_request_dispose(out);
		return rc;
	}
	out->c.submit.prompt_kind = PROTO_PROMPT_CHAT;
	out->cleanse = l->cleanse;
	return 0;
}

void response_request_dispose(struct response_request *r)
{
	request_common_dispose(&r->c);
	json_decref(r->input);
	json_decref(r->body);
	r->input = r->body = NULL;
	request_files_dispose(&r->files);
}

/* ---- for the engine ---- */

static int put_instructions(struct sl_buf *out, const char *text, size_t *n_messages)
{
	int rc = buf_append_str(out, "{\"role\":\"system\",\"content\":");
	if (rc == 0)
		rc = json_out_string(out, text, strlen(text));
	(*n_messages)++;
	return rc != 0 ? rc : buf_append_str(out, "}");
}

static const char *history_param(const struct response_request *r)
{
	return r->conversation != NULL ? "conversation" : "previous_response_id";
}

int response_files(struct response_request *r, const json_t *history, struct request_error *e)
{
	*e = (struct request_error){0};
	int rc = response_items_files(history, history_param(r), true, &r->files, e);
	return rc == 0 ? response_items_files(r->input, "input", false, &r->files, e) : rc;
}

static int put_history(struct response_request *r, struct sl_buf *out, const json_t *history, size_t *n_messages,
		       struct request_error *e)
{
	json_t *items;
	int rc = response_items_normalise(history, history_param(r), MAX_HISTORY, &items, e);
	if (rc == 0)
		rc = response_items_put(out, items, &r->files, r->cleanse, &r->c.cleansed, n_messages);
	json_decref(items);
	return rc;
}

int response_messages(struct response_request *r, const json_t *history, struct sl_buf *out, struct request_error *e)
{
	size_t n = 0;
	*e = (struct request_error){0};
	r->c.cleansed = (struct cleanse_stats){0};
	int rc = buf_append_str(out, "{\"messages\":[");
	if (rc == 0 && r->instructions != NULL && r->instructions[0] != '\0')
		rc = put_instructions(out, r->instructions, &n);
	if (rc == 0 && history != NULL)
		rc = put_history(r, out, history, &n, e);
	if (rc == 0)
		rc = response_items_put(out, r->input, &r->files, r->cleanse, &r->c.cleansed, &n);
	if (rc == SL_EINVAL && e->code == NULL)
		rc = request_bad(e, "invalid_value", "input",
				 "Invalid 'input': the text of a file that it names is missing.");
	if (rc == 0 && n == 0)
		rc = request_missing(e, "input");
	if (rc == 0)
		rc = buf_append_str(out, "]");
	if (rc == 0)
		rc = request_put_template(out, &r->c);
	if (rc == 0)
		rc = buf_append_str(out, "}");
	return request_too_long(rc, "input", e);
}
