/* SPDX-License-Identifier: Apache-2.0
 *
 * Ollama's calls and results have no ids: a result answers the first call of its tool that has no result yet or,
 * without a name, the first such call of any tool. Calls without an id get one of nine letters and digits, which even
 * the strictest templates (Mistral's) accept.
 */
#include <stdio.h>
#include <string.h>

#include "gateway/dialect/ollama_request.h"

enum { MAX_CALLS = 256, OWN_ID_BYTES = 16 };

struct call {
	const char *id, *name; /* id NULL: its own */
	char own[OWN_ID_BYTES];
	bool answered;
};

struct writer {
	struct turns t;
	struct request_error *e;
	size_t i;                     /* of the message */
	struct call calls[MAX_CALLS]; /* of the last message that has any */
	size_t n_calls;
	char param[96];
};

/* "messages[i].NAME" */
static const char *at(struct writer *w, const char *name)
{
	snprintf(w->param, sizeof w->param, "messages[%zu]%s%s", w->i, name[0] != '\0' ? "." : "", name);
	return w->param;
}

static int check_string(struct writer *w, const json_t *v, const char *name)
{
	if (v == NULL)
		return 0;
	if (!json_is_string(v))
		return request_wrong_type(w->e, at(w, name), "a string", v);
	return request_text_fits(v) ? 0 : request_check_text(v, at(w, name), w->e);
}

/* ---- calls ---- */

static const char *id_of(const struct call *c) { return c->id != NULL ? c->id : c->own; }

static int put_call(struct writer *w, const json_t *v, size_t k)
{
	char name[64];
	const json_t *function = request_get(v, "function"), *id = request_get(v, "id");
	const json_t *tool = request_get(function, "name"), *arguments = request_get(function, "arguments");
	struct call *c = &w->calls[w->n_calls];
	int rc;
	snprintf(name, sizeof name, "tool_calls[%zu].function", k);
	if (!json_is_object(function))
		return function == NULL ? request_missing(w->e, at(w, name))
					: request_wrong_type(w->e, at(w, name), "an object", function);
	snprintf(name, sizeof name, "tool_calls[%zu].id", k);
	if ((rc = check_string(w, id, name)) != 0)
		return rc;
	snprintf(name, sizeof name, "tool_calls[%zu].function.name", k);
	if (tool == NULL)
		return request_missing(w->e, at(w, name));
	if ((rc = check_string(w, tool, name)) != 0)
		return rc;
	snprintf(name, sizeof name, "tool_calls[%zu].function.arguments", k);
	if (arguments == NULL)
		return request_missing(w->e, at(w, name));
	if (!json_is_object(arguments))
		return request_wrong_type(w->e, at(w, name), "an object", arguments);
	*c = (struct call){.id = json_string_length(id) > 0 ? json_string_value(id) : NULL,
			   .name = json_string_value(tool)};
	snprintf(c->own, sizeof c->own, "c%05x%03x", (unsigned)w->i & 0xfffff, (unsigned)k & 0xfff);
	w->n_calls++;
	return turns_call(&w->t, id_of(c), c->name, arguments);
}

static int put_calls(struct writer *w, const json_t *v, enum turn_role role)
{
	size_t n = json_array_size(v);
	int rc = 0;
	if (v != NULL && !json_is_array(v))
		return request_wrong_type(w->e, at(w, "tool_calls"), "an array of objects", v);
	if (n == 0)
		return 0;
	if (role != TURN_ASSISTANT)
		return request_bad(w->e, "invalid_value", at(w, "tool_calls"),
				   "Invalid '%s': only a message of the assistant has calls.", at(w, "tool_calls"));
	if (n > MAX_CALLS)
		return request_bad(w->e, "array_above_max_length", at(w, "tool_calls"),
				   "Invalid '%s': at most %d calls, not %zu.", at(w, "tool_calls"), MAX_CALLS, n);
	w->n_calls = 0;
	for (size_t k = 0; k < n && rc == 0; k++)
		rc = put_call(w, json_array_get(v, k), k);
	return rc;
}

/* The call that a result answers; NULL: no call is open. */
static struct call *find_call(struct writer *w, const char *name)
{
	for (size_t k = 0; k < w->n_calls; k++)
		if (!w->calls[k].answered && (name == NULL || strcmp(w->calls[k].name, name) == 0))
			return &w->calls[k];
	return NULL;
}

static int put_result(struct writer *w, const json_t *m, const json_t *content)
{
	const json_t *id = request_get(m, "tool_call_id"), *tool = request_get(m, "tool_name");
	int rc;
	if (tool == NULL)
		tool = request_get(m, "name");
	if ((rc = check_string(w, id, "tool_call_id")) != 0 || (rc = check_string(w, tool, "tool_name")) != 0)
		return rc;
	const char *name = json_string_value(tool);
	struct call *c = find_call(w, name);
	const char *answers = json_string_length(id) > 0 ? json_string_value(id) : c != NULL ? id_of(c) : NULL;
	if (answers == NULL)
		return request_bad(w->e, "invalid_value", at(w, "tool_name"),
				   "Invalid value for '%s': there is no call that the message answers.",
				   at(w, "tool_name"));
	if (c != NULL)
		c->answered = true;
	if (name == NULL && c != NULL)
		name = c->name;
	const char *text = json_string_value(content);
	return turns_result(&w->t, answers, name, "", text != NULL ? text : "", json_string_length(content));
}

/* ---- messages ---- */

static int get_role(struct writer *w, const json_t *m, enum turn_role *out)
{
	static const struct {
		const char *name;
		enum turn_role role;
	} roles[] = {{"system", TURN_SYSTEM}, {"user", TURN_USER}, {"assistant", TURN_ASSISTANT}, {"tool", TURN_NONE}};
	const json_t *v = request_get(m, "role");
	const char *param = at(w, "role");
	if (v == NULL)
		return request_missing(w->e, param);
	if (!json_is_string(v))
		return request_wrong_type(w->e, param, "a string", v);
	for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
		if (strcmp(roles[i].name, json_string_value(v)) == 0) {
			*out = roles[i].role;
			return 0;
		}
	return request_bad(w->e, "invalid_value", param,
			   "Invalid value for '%s': '%.*s'. Supported values are: system user assistant tool.", param,
			   request_quoted(v), json_string_value(v));
}

static int put_message(struct writer *w, const json_t *m)
{
	enum turn_role role = TURN_USER;
	const json_t *content = request_get(m, "content"), *thinking = request_get(m, "thinking"),
		     *images = request_get(m, "images");
	int rc;
	if (!json_is_object(m))
		return request_wrong_type(w->e, at(w, ""), "an object", m);
	if ((rc = get_role(w, m, &role)) != 0 || (rc = check_string(w, content, "content")) != 0 ||
	    (rc = check_string(w, thinking, "thinking")) != 0)
		return rc;
	if (images != NULL && !request_is_empty(images))
		return request_refuse(w->e, at(w, "images"), "Only text is read.");
	if (role == TURN_NONE)
		return put_result(w, m, content);
	if ((rc = turns_close(&w->t)) != 0 || (rc = turns_open(&w->t, role)) != 0 ||
	    (rc = turns_text(&w->t, json_string_value(content), json_string_length(content))) != 0)
		return rc;
	if (role == TURN_ASSISTANT)
		rc = turns_reasoning(&w->t, json_string_value(thinking), json_string_length(thinking));
	return rc == 0 ? put_calls(w, request_get(m, "tool_calls"), role) : rc;
}

int ollama_turns_put(struct sl_buf *out, const json_t *messages, const struct request_limits *l,
		     struct cleanse_stats *cleansed, struct request_error *e)
{
	struct writer w = {.e = e};
	size_t n = json_array_size(messages);
	if (n > l->messages)
		return request_bad(e, "array_above_max_length", "messages",
				   "Invalid 'messages': at most %zu messages, not %zu.", l->messages, n);
	turns_init(&w.t, out, l, cleansed);
	int rc = turns_begin(&w.t);
	for (; w.i < n && rc == 0; w.i++)
		rc = put_message(&w, json_array_get(messages, w.i));
	if (rc == 0)
		rc = turns_end(&w.t);
	turns_dispose(&w.t);
	return rc;
}

static int put_turn(struct turns *t, enum turn_role role, const json_t *text)
{
	int rc = turns_open(t, role);
	return rc == 0 ? turns_text(t, json_string_value(text), json_string_length(text)) : rc;
}

int ollama_prompt_put(struct sl_buf *out, const json_t *prompt, const json_t *system, const struct request_limits *l,
		      struct cleanse_stats *cleansed)
{
	struct turns t;
	turns_init(&t, out, l, cleansed);
	int rc = turns_begin(&t);
	if (rc == 0 && json_string_length(system) > 0)
		rc = put_turn(&t, TURN_SYSTEM, system);
	if (rc == 0)
		rc = put_turn(&t, TURN_USER, prompt);
	if (rc == 0)
		rc = turns_end(&t);
	turns_dispose(&t);
	return rc;
}
