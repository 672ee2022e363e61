/* SPDX-License-Identifier: Apache-2.0
 *
 * Items are built anew from the members that are known: what is stored and sent again is then what
 * was checked, and nothing a client added. Strings are shared with the items they came from.
 *
 * What can't be shown to a model is refused by name: images, files that are no text, calls of tools that run on a
 * server, references to items, and reasoning that is encrypted.
 */
#include "gateway/request/response_items.h"

#include <stdio.h>
#include <string.h>

struct reader {
	const char *name; /* of the array */
	size_t i;         /* of the item */
	struct request_error *e;
	char param[128];
};

/* "input[i].NAME"; NAME empty: the item itself. */
static const char *at(struct reader *r, const char *name)
{
	snprintf(r->param, sizeof r->param, "%.32s[%zu]%s%s", r->name, r->i, name[0] ? "." : "", name);
	return r->param;
}

/* Takes the reference. */
static int set(json_t *o, const char *key, json_t *v) { return json_object_set_new(o, key, v) == 0 ? 0 : SL_ENOMEM; }

/* A string of an item; *out borrowed, NULL when it is absent and not needed. */
static int get_string(struct reader *r, const json_t *o, const char *key, const char *name, bool needed, json_t **out)
{
	*out = request_get(o, key);
	if (*out == NULL)
		return needed ? request_missing(r->e, at(r, name)) : 0;
	if (!json_is_string(*out))
		return request_wrong_type(r->e, at(r, name), "a string", *out);
	return request_check_text(*out, at(r, name), r->e);
}

/* The same into a new object. */
static int copy_string(struct reader *r, const json_t *o, const char *key, bool needed, json_t *to)
{
	json_t *v;
	int rc = get_string(r, o, key, key, needed, &v);
	return rc != 0 || v == NULL ? rc : set(to, key, json_incref(v));
}

/* ---- parts ---- */

/* Which types a list of parts may have, and which member holds their text. */
struct part_kind {
	const char *type, *text;
};

static const struct part_kind input_parts[] = {{"input_text", "text"}, {NULL, NULL}};
static const struct part_kind user_parts[] = {{"input_text", "text"}, {NULL, NULL}}; /* and input_file */
static const struct part_kind output_parts[] = {{"output_text", "text"}, {"refusal", "refusal"}, {NULL, NULL}};
static const struct part_kind reasoning_parts[] = {{"reasoning_text", "text"}, {NULL, NULL}};
static const struct part_kind summary_parts[] = {{"summary_text", "text"}, {NULL, NULL}};

static int new_part(const struct part_kind *kind, json_t *text, json_t **out)
{
	json_t *part = json_object();
	int rc;
	*out = NULL;
	if (part == NULL)
		return SL_ENOMEM;
	if ((rc = set(part, "type", json_string(kind->type))) == 0 &&
	    (rc = set(part, kind->text, json_incref(text))) == 0 && strcmp(kind->type, "output_text") == 0 &&
	    (rc = set(part, "annotations", json_array())) == 0)
		rc = set(part, "logprobs", json_array());
	if (rc != 0)
		json_decref(part);
	else
		*out = part;
	return rc;
}

/* A file of a user: by its id, or with its text, which is decoded to check it. The item keeps what was sent: a file
 * that is deleted has gone from conversations, too. */
static int read_file(struct reader *r, const json_t *v, const char *key, size_t k, json_t *to)
{
	static const char *const members[] = {"file_id", "filename", "file_data"};
	char name[64];
	json_t *found[3] = {NULL};
	int rc = set(to, "type", json_string("input_file"));
	for (size_t i = 0; i < 3 && rc == 0; i++) {
		snprintf(name, sizeof name, "%s[%zu].%s", key, k, members[i]);
		rc = get_string(r, v, members[i], name, false, &found[i]);
		bool kept = rc == 0 && found[i] != NULL && (i == 0 || found[0] == NULL);
		if (kept)
			rc = set(to, members[i], json_incref(found[i]));
	}
	snprintf(name, sizeof name, "%s[%zu].%s", key, k,
		 found[0] != NULL || found[2] == NULL ? "file_id" : "file_data");
	if (rc != 0)
		return rc;
	if (found[0] == NULL && found[2] == NULL)
		return request_missing(r->e, at(r, name));
	if (found[0] != NULL && found[2] != NULL)
		return request_bad(r->e, "invalid_value", at(r, name),
				   "Invalid '%s': a file has 'file_id' or 'file_data', not both.", at(r, name));
	if (found[0] != NULL)
		return 0;
	struct sl_buf text;
	buf_init(&text, REQUEST_MAX_PROMPT);
	rc = request_file_decode(found[2], at(r, name), &text, r->e);
	buf_dispose(&text);
	if (rc != 0 || found[1] == NULL)
		return request_too_long(rc, r->param, r->e);
	snprintf(name, sizeof name, "%s[%zu].filename", key, k);
	return request_file_check_name(json_string_value(found[1]), json_string_length(found[1]), at(r, name), r->e);
}

static int new_file(struct reader *r, const json_t *v, const char *key, size_t k, json_t **out)
{
	json_t *part = json_object();
	int rc = part != NULL ? read_file(r, v, key, k, part) : SL_ENOMEM;
	if (rc != 0) {
		json_decref(part);
		part = NULL;
	}
	*out = part;
	return rc;
}

static int read_part(struct reader *r, const json_t *v, const char *key, size_t k, const struct part_kind *kinds,
		     json_t **out)
{
	char name[64];
	json_t *type, *text;
	snprintf(name, sizeof name, "%s[%zu]", key, k);
	if (!json_is_object(v))
		return request_wrong_type(r->e, at(r, name), "an object", v);
	snprintf(name, sizeof name, "%s[%zu].type", key, k);
	int rc = get_string(r, v, "type", name, true, &type);
	if (rc != 0)
		return rc;
	if (kinds == user_parts && strcmp(json_string_value(type), "input_file") == 0)
		return new_file(r, v, key, k, out);
	while (kinds->type != NULL && strcmp(kinds->type, json_string_value(type)) != 0)
		kinds++;
	if (kinds->type == NULL)
		return request_bad(r->e, "unsupported_value", at(r, name),
				   "Unsupported value: '%s' is '%.*s', which is not supported here by this version.",
				   at(r, name), request_quoted(type), json_string_value(type));
	snprintf(name, sizeof name, "%s[%zu].%s", key, k, kinds->text);
	rc = get_string(r, v, kinds->text, name, true, &text);
	return rc != 0 ? rc : new_part(kinds, text, out);
}

/* Takes list, which was filled with that result. */
static int set_list(int rc, json_t *to, const char *key, json_t *list)
{
	if (rc == 0)
		return set(to, key, list);
	json_decref(list);
	return rc;
}

/* The parts at `key` into `to`. */
static int copy_parts(struct reader *r, const json_t *v, const char *key, const struct part_kind *kinds, json_t *to)
{
	json_t *list = json_array();
	int rc = list != NULL ? 0 : SL_ENOMEM;
	for (size_t k = 0; k < json_array_size(v) && rc == 0; k++) {
		json_t *part = NULL;
		rc = read_part(r, json_array_get(v, k), key, k, kinds, &part);
		if (rc == 0 && json_array_append_new(list, part) != 0)
			rc = SL_ENOMEM;
	}
	return set_list(rc, to, key, list);
}

/* A string as a list of one part. */
static int copy_as_part(json_t *text, const char *key, const struct part_kind *kind, json_t *to)
{
	json_t *list = json_array(), *part = NULL;
	int rc = list != NULL ? new_part(kind, text, &part) : SL_ENOMEM;
	if (rc == 0 && json_array_append_new(list, part) != 0)
		rc = SL_ENOMEM;
	return set_list(rc, to, key, list);
}

/* ---- items ---- */

static int read_message(struct reader *r, const json_t *v, json_t *to)
{
	static const char *const roles[] = {"user", "assistant", "system", "developer"};
	json_t *role, *content = request_get(v, "content");
	bool known = false;
	int rc = get_string(r, v, "role", "role", true, &role);
	for (size_t i = 0; i < sizeof roles / sizeof roles[0] && rc == 0; i++)
		known = known || strcmp(json_string_value(role), roles[i]) == 0;
	if (rc == 0 && !known)
		rc = request_bad(r->e, "invalid_value", at(r, "role"),
				 "Invalid value for '%s': '%.*s'. Supported values are 'user', 'assistant', 'system' "
				 "and 'developer'.",
				 at(r, "role"), request_quoted(role), json_string_value(role));
	if (rc == 0)
		rc = set(to, "role", json_incref(role));
	if (rc != 0)
		return rc;
	const struct part_kind *kinds = strcmp(json_string_value(role), "assistant") == 0 ? output_parts
					: strcmp(json_string_value(role), "user") == 0    ? user_parts
											  : input_parts;
	if (content == NULL)
		return request_missing(r->e, at(r, "content"));
	if (json_is_string(content)) {
		rc = request_check_text(content, at(r, "content"), r->e);
		return rc != 0 ? rc : copy_as_part(content, "content", &kinds[0], to);
	}
	if (!json_is_array(content))
		return request_wrong_type(r->e, at(r, "content"), "a string or an array of parts", content);
	/* An answer may have ended before its first part. */
	if (json_array_size(content) == 0 && kinds != output_parts)
		return request_bad(r->e, "invalid_value", at(r, "content"), "Invalid value for '%s': it has no parts.",
				   at(r, "content"));
	return copy_parts(r, content, "content", kinds, to);
}

static int read_call(struct reader *r, const json_t *v, json_t *to)
{
	static const char *const names[] = {"call_id", "name", "arguments"};
	int rc = 0;
	for (size_t i = 0; i < sizeof names / sizeof names[0] && rc == 0; i++)
		rc = copy_string(r, v, names[i], true, to);
	return rc;
}

static int read_output(struct reader *r, const json_t *v, json_t *to)
{
	const json_t *output = request_get(v, "output");
	int rc = copy_string(r, v, "call_id", true, to);
	if (rc != 0)
		return rc;
	if (json_is_array(output))
		return copy_parts(r, output, "output", input_parts, to);
	if (output != NULL && !json_is_string(output))
		return request_wrong_type(r->e, at(r, "output"), "a string or an array of parts", output);
	return copy_string(r, v, "output", true, to);
}

static int read_reasoning(struct reader *r, const json_t *v, json_t *to)
{
	static const struct {
		const char *key;
		const struct part_kind *kinds;
	} lists[] = {{"summary", summary_parts}, {"content", reasoning_parts}};
	int rc = 0;
	if (request_get(v, "encrypted_content") != NULL)
		return request_refuse(r->e, at(r, "encrypted_content"), NULL);
	for (size_t i = 0; i < sizeof lists / sizeof lists[0] && rc == 0; i++) {
		const json_t *list = request_get(v, lists[i].key);
		if (list != NULL && !json_is_array(list))
			return request_wrong_type(r->e, at(r, lists[i].key), "an array of parts", list);
		if (list != NULL || i == 0)
			rc = copy_parts(r, list, lists[i].key, lists[i].kinds, to);
	}
	return rc;
}

static int read_pinned(struct reader *r, const json_t *v, json_t *to)
{
	json_t *pinned = request_get(v, "pinned");
	if (pinned != NULL && !json_is_boolean(pinned))
		return request_wrong_type(r->e, at(r, "pinned"), "a boolean", pinned);
	return json_is_true(pinned) ? set(to, "pinned", json_true()) : 0;
}

static const struct item_kind {
	const char *type;
	int (*read)(struct reader *r, const json_t *v, json_t *to);
	bool has_status;
} item_kinds[] = {
    {"message", read_message, true},
    {"function_call", read_call, true},
    {"function_call_output", read_output, true},
    {"reasoning", read_reasoning, false},
};

static int item_kind_of(struct reader *r, const json_t *v, const struct item_kind **out)
{
	json_t *type;
	*out = &item_kinds[0]; /* a message may lack its type */
	int rc = get_string(r, v, "type", "type", false, &type);
	if (rc != 0 || type == NULL)
		return rc;
	for (size_t i = 0; i < sizeof item_kinds / sizeof item_kinds[0]; i++)
		if (strcmp(item_kinds[i].type, json_string_value(type)) == 0) {
			*out = &item_kinds[i];
			return 0;
		}
	return request_bad(r->e, "unsupported_value", at(r, "type"),
			   "Unsupported value: '%s' is '%.*s', which is not supported by this version.", at(r, "type"),
			   request_quoted(type), json_string_value(type));
}

static int read_status(struct reader *r, const json_t *v, json_t *to)
{
	json_t *status;
	int rc = get_string(r, v, "status", "status", false, &status);
	if (rc != 0)
		return rc;
	if (status == NULL)
		return set(to, "status", json_string("completed"));
	const char *s = json_string_value(status);
	if (strcmp(s, "completed") != 0 && strcmp(s, "incomplete") != 0 && strcmp(s, "in_progress") != 0)
		return request_bad(
		    r->e, "invalid_value", at(r, "status"),
		    "Invalid value for '%s': '%.*s'. Supported values are 'in_progress', 'completed' and 'incomplete'.",
		    at(r, "status"), request_quoted(status), s);
	return set(to, "status", json_incref(status));
}

static int read_item(struct reader *r, const json_t *v, json_t *list)
{
	const struct item_kind *kind = NULL;
	if (!json_is_object(v))
		return request_wrong_type(r->e, at(r, ""), "an object", v);
	json_t *to = json_object();
	if (to == NULL)
		return SL_ENOMEM;
	int rc;
	if ((rc = item_kind_of(r, v, &kind)) == 0 && (rc = copy_string(r, v, "id", false, to)) == 0 &&
	    (rc = set(to, "type", json_string(kind->type))) == 0 && (rc = kind->read(r, v, to)) == 0 &&
	    (rc = read_pinned(r, v, to)) == 0 && kind->has_status)
		rc = read_status(r, v, to);
	if (rc != 0) {
		json_decref(to);
		return rc;
	}
	return json_array_append_new(list, to) == 0 ? 0 : SL_ENOMEM;
}

int response_items_normalise(const json_t *items, const char *param, size_t most, json_t **out, struct request_error *e)
{
	struct reader r = {.name = param, .e = e};
	size_t n = json_array_size(items);
	*out = NULL;
	if (n > most)
		return request_bad(e, "array_above_max_length", param, "Invalid '%s': at most %zu items, not %zu.",
				   param, most, n);
	json_t *list = json_array();
	int rc = list != NULL ? 0 : SL_ENOMEM;
	for (; r.i < n && rc == 0; r.i++)
		rc = read_item(&r, json_array_get(items, r.i), list);
	if (rc != 0)
		json_decref(list);
	else
		*out = list;
	return rc;
}

json_t *response_items_of_text(const json_t *text)
{
	json_t *list = json_array(), *item = json_object();
	int rc = list != NULL && item != NULL ? 0 : SL_ENOMEM;
	if (rc == 0 && (rc = set(item, "type", json_string("message"))) == 0 &&
	    (rc = set(item, "role", json_string("user"))) == 0 &&
	    (rc = set(item, "status", json_string("completed"))) == 0)
		rc = copy_as_part((json_t *)(uintptr_t)text, "content", &input_parts[0], item);
	if (rc == 0 && json_array_append(list, item) != 0)
		rc = SL_ENOMEM;
	json_decref(item);
	if (rc != 0) {
		json_decref(list);
		return NULL;
	}
	return list;
}
