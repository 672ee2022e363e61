/* SPDX-License-Identifier: Apache-2.0
 *
 * Of a message everything goes to the engine that a chat template may use: role, content, name, the
 * calls an assistant made, which call a tool answers, and reasoning. Nothing else does, and nothing
 * that a template could use is left out: it is refused by name.
 *
 *   - "developer" becomes "system": only few templates know it, and it means the same.
 *   - Content in parts becomes one string. A refusal was an answer like another: it is content.
 *   - An assistant that only called tools has the empty content: templates that join strings fail on
 *     a null.
 *   - What a user wrote is cleansed (gateway/cleanse/cleanse.h). Text of the operator, the model or a tool
 *     is unchanged.
 *   - A user's files come before the other parts of their message (request_files.h).
 */
#include "gateway/request/chat_messages.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json_out.h"
#include "gateway/request/request_files.h"

enum { MAX_CALLS = 256 };

struct writer {
	struct sl_buf *out;
	struct request_error *e;
	const struct request_limits *l;
	struct cleanse_stats *cleansed;
	size_t i;      /* of the message */
	size_t called; /* the last message with a function_call */
	char param[96];
};

/* "messages[i].NAME", for what goes wrong: formatting it for each member would cost more than the member. */
static const char *at(struct writer *w, const char *name)
{
	snprintf(w->param, sizeof w->param, "messages[%zu].%s", w->i, name);
	return w->param;
}

/* "messages[i].content[k]TAIL" */
static const char *at_part(struct writer *w, size_t k, const char *tail)
{
	char name[64];
	snprintf(name, sizeof name, "content[%zu]%s", k, tail);
	return at(w, name);
}

static int put_string(struct writer *w, const json_t *v, const char *name)
{
	if (!request_text_fits(v))
		return request_check_text(v, at(w, name), w->e);
	return json_out_string(w->out, json_string_value(v), json_string_length(v));
}

enum role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL, ROLE_FUNCTION };

static int get_role(struct writer *w, const json_t *m, enum role *out)
{
	static const struct {
		const char *name;
		enum role role;
	} roles[] = {{"system", ROLE_SYSTEM},       {"developer", ROLE_SYSTEM}, {"user", ROLE_USER},
		     {"assistant", ROLE_ASSISTANT}, {"tool", ROLE_TOOL},        {"function", ROLE_FUNCTION}};
	const json_t *v = request_get(m, "role");
	if (v == NULL)
		return request_missing(w->e, at(w, "role"));
	if (!json_is_string(v))
		return request_wrong_type(w->e, at(w, "role"), "a string", v);
	const char *role = json_string_value(v);
	for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
		if (strcmp(role, roles[i].name) == 0) {
			*out = roles[i].role;
			return 0;
		}
	const char *param = at(w, "role");
	return request_bad(w->e, "invalid_value", param,
			   "Invalid value for '%s': '%.*s'. Supported values are 'system', 'developer', 'user', "
			   "'assistant', 'tool' and 'function'.",
			   param, request_quoted(v), role);
}

/* ---- content ---- */

/* The text of a part, borrowed; SL_EINVAL. */
static int part_text(struct writer *w, const json_t *part, size_t k, enum role role, const json_t **out)
{
	if (!json_is_object(part))
		return request_wrong_type(w->e, at_part(w, k, ""), "an object", part);
	const json_t *type = json_object_get(part, "type");
	if (!json_is_string(type))
		return request_bad(w->e, "invalid_type", at_part(w, k, ".type"), "'%s' must be a string.",
				   at_part(w, k, ".type"));
	const char *key = json_string_value(type);
	bool is_text = strcmp(key, "text") == 0;
	if (!is_text && !(strcmp(key, "refusal") == 0 && role == ROLE_ASSISTANT))
		return request_bad(w->e, "unsupported_value", at_part(w, k, ".type"),
				   "Unsupported value: '%s' is '%.*s', and only 'text'%s is supported by this version.",
				   at_part(w, k, ".type"), request_quoted(type), key,
				   role == ROLE_USER ? ", or a 'file' of text," : "");
	const char *tail = is_text ? ".text" : ".refusal";
	*out = json_object_get(part, key);
	if (!json_is_string(*out))
		return request_bad(w->e, "invalid_type", at_part(w, k, tail), "'%s' must be a string.",
				   at_part(w, k, tail));
	return request_text_fits(*out) ? 0 : request_check_text(*out, at_part(w, k, tail), w->e);
}

static int put_text(struct writer *w, const char *text, size_t n, enum role role)
{
	struct sl_buf clean;
	if (role != ROLE_USER || w->l->cleanse == CLEANSE_OFF)
		return json_out_string(w->out, text, n);
	buf_init(&clean, REQUEST_MAX_PROMPT);
	int rc = cleanse(w->l->cleanse, text, n, &clean, w->cleansed);
	if (rc == 0)
		rc = json_out_string(w->out, clean.len > 0 ? (const char *)buf_data(&clean) : "", clean.len);
	buf_dispose(&clean);
	return rc;
}

/* {"type":"file","file":{"file_id"} or {"file_data", "filename"?}}, in its frame. */
static int put_file(struct writer *w, const json_t *part, size_t k, struct sl_buf *out)
{
	const json_t *file = request_get(part, "file"), *id = request_get(file, "file_id"),
		     *data = request_get(file, "file_data"), *name = request_get(file, "filename");
	int rc;
	if (!json_is_object(file))
		return file == NULL ? request_missing(w->e, at_part(w, k, ".file"))
				    : request_wrong_type(w->e, at_part(w, k, ".file"), "an object", file);
	if (id != NULL && data != NULL)
		return request_bad(w->e, "invalid_value", at_part(w, k, ".file.file_data"),
				   "Invalid '%s': a file has 'file_id' or 'file_data', not both.",
				   at_part(w, k, ".file.file_data"));
	if (id != NULL || data == NULL) {
		const struct request_file *f;
		rc = request_file_named(w->l->files, id, at_part(w, k, ".file.file_id"), &f, w->e);
		if (rc != 0 || f->text == NULL)
			return rc;
		return request_file_put(out, f->name, f->text, f->n, w->l->cleanse, w->cleansed);
	}
	if (name != NULL && !json_is_string(name))
		return request_wrong_type(w->e, at_part(w, k, ".file.filename"), "a string", name);
	if (name != NULL && (rc = request_file_check_name(json_string_value(name), json_string_length(name),
							  at_part(w, k, ".file.filename"), w->e)) != 0)
		return rc;
	struct sl_buf text;
	buf_init(&text, REQUEST_MAX_PROMPT);
	rc = request_file_decode(data, at_part(w, k, ".file.file_data"), &text, w->e);
	if (rc == 0)
		rc = request_file_put(out, name != NULL ? json_string_value(name) : "file",
				      (const char *)buf_data(&text), text.len, w->l->cleanse, w->cleansed);
	buf_dispose(&text);
	return rc;
}

static bool is_file(const json_t *part, enum role role)
{
	const char *type = json_string_value(json_object_get(part, "type"));
	return role == ROLE_USER && type != NULL && strcmp(type, "file") == 0;
}

/* Cleansed, behind the files' frames. */
static int put_after_files(struct writer *w, struct sl_buf *files, const char *text, size_t n)
{
	int rc = w->l->cleanse != CLEANSE_OFF ? cleanse(w->l->cleanse, text, n, files, w->cleansed)
					      : buf_append(files, text, n);
	return rc == 0 ? json_out_string(w->out, (const char *)buf_data(files), files->len) : rc;
}

static int put_parts(struct writer *w, const json_t *parts, enum role role)
{
	struct sl_buf text, files;
	int rc = 0;
	if (json_array_size(parts) == 0)
		return request_bad(w->e, "invalid_value", at(w, "content"), "Invalid value for '%s': it has no parts.",
				   at(w, "content"));
	buf_init(&text, REQUEST_MAX_PROMPT);
	buf_init(&files, REQUEST_MAX_PROMPT);
	for (size_t k = 0; k < json_array_size(parts) && rc == 0; k++) {
		const json_t *v = NULL, *part = json_array_get(parts, k);
		if (is_file(part, role)) {
			rc = put_file(w, part, k, &files);
			continue;
		}
		rc = part_text(w, part, k, role, &v);
		if (rc == 0)
			rc = buf_append(&text, json_string_value(v), json_string_length(v));
	}
	const char *all = text.len > 0 ? (const char *)buf_data(&text) : "";
	if (rc == 0)
		rc = files.len > 0 ? put_after_files(w, &files, all, text.len) : put_text(w, all, text.len, role);
	buf_dispose(&files);
	buf_dispose(&text);
	return rc;
}

/* may_lack: the message is valid without it. */
static int put_content(struct writer *w, const json_t *m, enum role role, bool may_lack)
{
	const json_t *v = request_get(m, "content");
	const json_t *refusal = role == ROLE_ASSISTANT ? request_get(m, "refusal") : NULL;
	const char *name = "content";
	if (v == NULL && refusal != NULL) {
		v = refusal;
		name = "refusal";
		if (!json_is_string(v))
			return request_wrong_type(w->e, at(w, name), "a string", v);
	}
	int rc = buf_append_str(w->out, ",\"content\":");
	if (rc != 0)
		return rc;
	if (v == NULL)
		return may_lack ? buf_append_str(w->out, "\"\"") : request_missing(w->e, at(w, name));
	if (json_is_string(v)) {
		rc = request_text_fits(v) ? 0 : request_check_text(v, at(w, name), w->e);
		return rc != 0 ? rc : put_text(w, json_string_value(v), json_string_length(v), role);
	}
	if (json_is_array(v))
		return put_parts(w, v, role);
	return request_wrong_type(w->e, at(w, name), "a string or an array of parts", v);
}

/* ---- calls of tools ---- */

/* A member of a call that must be a string; `inside` is what is written before it. */
static int put_call_string(struct writer *w, const json_t *object, const char *key, size_t k, const char *path,
			   const char *inside)
{
	char name[64];
	const json_t *v = request_get(object, key);
	snprintf(name, sizeof name, "tool_calls[%zu].%s%s", k, path, key);
	if (v == NULL)
		return request_missing(w->e, at(w, name));
	if (!json_is_string(v))
		return request_wrong_type(w->e, at(w, name), "a string", v);
	int rc = buf_append_str(w->out, inside);
	return rc != 0 ? rc : put_string(w, v, name);
}

static int put_call(struct writer *w, const json_t *call, size_t k)
{
	char name[64];
	snprintf(name, sizeof name, "tool_calls[%zu]", k);
	if (!json_is_object(call))
		return request_wrong_type(w->e, at(w, name), "an object", call);
	const json_t *type = request_get(call, "type"), *function = request_get(call, "function");
	snprintf(name, sizeof name, "tool_calls[%zu].type", k);
	if (type != NULL && !json_is_string(type))
		return request_wrong_type(w->e, at(w, name), "a string", type);
	if (type != NULL && strcmp(json_string_value(type), "function") != 0)
		return request_bad(
		    w->e, "unsupported_value", at(w, name),
		    "Unsupported value: '%s' is '%.*s', and only 'function' is supported by this version.", at(w, name),
		    request_quoted(type), json_string_value(type));
	snprintf(name, sizeof name, "tool_calls[%zu].function", k);
	if (function == NULL)
		return request_missing(w->e, at(w, name));
	if (!json_is_object(function))
		return request_wrong_type(w->e, at(w, name), "an object", function);
	int rc;
	if ((rc = put_call_string(w, call, "id", k, "", k ? ",{\"id\":" : "{\"id\":")) != 0 ||
	    (rc = put_call_string(w, function, "name", k, "function.",
				  ",\"type\":\"function\",\"function\":{\"name\":")) != 0 ||
	    (rc = put_call_string(w, function, "arguments", k, "function.", ",\"arguments\":")) != 0)
		return rc;
	return buf_append_str(w->out, "}}");
}

static int put_calls(struct writer *w, const json_t *calls)
{
	size_t n = json_array_size(calls);
	if (n > MAX_CALLS)
		return request_bad(w->e, "array_above_max_length", at(w, "tool_calls"),
				   "Invalid '%s': at most %d calls, not %zu.", at(w, "tool_calls"), MAX_CALLS, n);
	int rc = buf_append_str(w->out, ",\"tool_calls\":[");
	for (size_t k = 0; k < n && rc == 0; k++)
		rc = put_call(w, json_array_get(calls, k), k);
	return rc != 0 ? rc : buf_append_str(w->out, "]");
}

/* The calls of an assistant's message; *out NULL: none. */
static int get_calls(struct writer *w, const json_t *m, enum role role, const json_t **out)
{
	const json_t *v = request_get(m, "tool_calls");
	*out = NULL;
	if (v != NULL && !json_is_array(v))
		return request_wrong_type(w->e, at(w, "tool_calls"), "an array of objects", v);
	if (json_array_size(v) == 0)
		return 0;
	if (role != ROLE_ASSISTANT)
		return request_bad(w->e, "invalid_value", at(w, "tool_calls"),
				   "Invalid '%s': only a message of the assistant has calls.", at(w, "tool_calls"));
	*out = v;
	return 0;
}

/* ---- the deprecated form: one call, which the next message of a function answers ---- */

/* Ids of calls that have none: the message's number. */
static int put_own_id(struct writer *w) { return buf_printf(w->out, "\"call_%zu\"", w->called); }

static int put_function_call(struct writer *w, const json_t *m)
{
	const json_t *call = request_get(m, "function_call");
	const json_t *name = request_get(call, "name"), *arguments = request_get(call, "arguments");
	int rc;
	if (name == NULL || arguments == NULL)
		return request_missing(w->e, at(w, name == NULL ? "function_call.name" : "function_call.arguments"));
	if (!json_is_string(name))
		return request_wrong_type(w->e, at(w, "function_call.name"), "a string", name);
	if (!json_is_string(arguments))
		return request_wrong_type(w->e, at(w, "function_call.arguments"), "a string", arguments);
	w->called = w->i;
	if ((rc = buf_append_str(w->out, ",\"tool_calls\":[{\"id\":")) != 0 || (rc = put_own_id(w)) != 0 ||
	    (rc = buf_append_str(w->out, ",\"type\":\"function\",\"function\":{\"name\":")) != 0 ||
	    (rc = put_string(w, name, "function_call.name")) != 0 ||
	    (rc = buf_append_str(w->out, ",\"arguments\":")) != 0 ||
	    (rc = put_string(w, arguments, "function_call.arguments")) != 0)
		return rc;
	return buf_append_str(w->out, "}}]");
}

/* 1: it has one, 0: none; SL_EINVAL. */
static int has_function_call(struct writer *w, const json_t *m, enum role role)
{
	const json_t *v = request_get(m, "function_call");
	if (v == NULL || request_is_empty(v))
		return 0;
	if (!json_is_object(v))
		return request_wrong_type(w->e, at(w, "function_call"), "an object", v);
	if (role != ROLE_ASSISTANT || json_array_size(request_get(m, "tool_calls")) > 0)
		return request_bad(w->e, "invalid_value", at(w, "function_call"),
				   "Invalid '%s': only a message of the assistant without 'tool_calls' has one.",
				   at(w, "function_call"));
	return 1;
}

static int put_call_id(struct writer *w)
{
	int rc = buf_append_str(w->out, ",\"tool_call_id\":");
	return rc == 0 ? put_own_id(w) : rc;
}

/* ---- a message ---- */

/* A member that is a string and goes to the template as it is. */
static int put_member(struct writer *w, const json_t *m, const char *key, bool needed)
{
	const json_t *v = request_get(m, key);
	if (v == NULL)
		return needed ? request_missing(w->e, at(w, key)) : 0;
	if (!json_is_string(v))
		return request_wrong_type(w->e, at(w, key), "a string", v);
	int rc;
	if ((rc = buf_append_str(w->out, ",\"")) != 0 || (rc = buf_append_str(w->out, key)) != 0 ||
	    (rc = buf_append_str(w->out, "\":")) != 0)
		return rc;
	return put_string(w, v, key);
}

/* It stays when the conversation is made shorter; no template sees it unless it asks. */
static int put_pinned(struct writer *w, const json_t *m)
{
	const json_t *v = request_get(m, "pinned");
	if (v != NULL && !json_is_boolean(v))
		return request_wrong_type(w->e, at(w, "pinned"), "a boolean", v);
	return json_is_true(v) ? buf_append_str(w->out, ",\"pinned\":true") : 0;
}

static int refuse_unbuilt(struct writer *w, const json_t *m)
{
	static const char *const names[] = {"audio"};
	for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
		const json_t *v = request_get(m, names[k]);
		if (v != NULL && !request_is_empty(v))
			return request_refuse(w->e, at(w, names[k]), NULL);
	}
	return 0;
}

static int put_message(struct writer *w, const json_t *m)
{
	static const char *const heads[] = {"{\"role\":\"system\"", "{\"role\":\"user\"", "{\"role\":\"assistant\"",
					    "{\"role\":\"tool\"", "{\"role\":\"tool\""};
	enum role role = ROLE_USER;
	const json_t *calls = NULL;
	int rc;
	if (!json_is_object(m)) {
		snprintf(w->param, sizeof w->param, "messages[%zu]", w->i);
		return request_wrong_type(w->e, w->param, "an object", m);
	}
	if ((rc = refuse_unbuilt(w, m)) != 0 || (rc = get_role(w, m, &role)) != 0 ||
	    (rc = get_calls(w, m, role, &calls)) != 0 || (rc = has_function_call(w, m, role)) < 0)
		return rc;
	bool function = rc == 1;
	if ((w->i > 0 && (rc = buf_append_str(w->out, ",")) != 0) || (rc = buf_append_str(w->out, heads[role])) != 0 ||
	    (rc = put_content(w, m, role,
			      calls != NULL || function ||
				  (role == ROLE_ASSISTANT && request_get(m, "reasoning_content") != NULL))) != 0 ||
	    (rc = put_member(w, m, "name", role == ROLE_FUNCTION)) != 0 ||
	    (role == ROLE_ASSISTANT && (rc = put_member(w, m, "reasoning_content", false)) != 0) ||
	    (role == ROLE_TOOL && (rc = put_member(w, m, "tool_call_id", true)) != 0) ||
	    (role == ROLE_FUNCTION && (rc = put_call_id(w)) != 0) ||
	    (calls != NULL && (rc = put_calls(w, calls)) != 0) || (function && (rc = put_function_call(w, m)) != 0) ||
	    (rc = put_pinned(w, m)) != 0)
		return rc;
	return buf_append_str(w->out, "}");
}

int chat_messages_put(struct sl_buf *out, const json_t *messages, const struct request_limits *l,
		      struct cleanse_stats *cleansed, struct request_error *e)
{
	struct writer w = {.out = out, .e = e, .l = l, .cleansed = cleansed};
	if (messages == NULL)
		return request_missing(e, "messages");
	size_t n = json_array_size(messages);
	if (n == 0)
		return request_bad(e, "empty_array", "messages", "Invalid 'messages': at least one message is needed.");
	if (n > l->messages)
		return request_bad(e, "array_above_max_length", "messages",
				   "Invalid 'messages': at most %zu messages, not %zu.", l->messages, n);
	int rc = buf_append_str(out, "\"messages\":[");
	for (; w.i < n && rc == 0; w.i++)
		rc = put_message(&w, json_array_get(messages, w.i));
	return rc != 0 ? rc : buf_append_str(out, "]");
}
