/* SPDX-License-Identifier: Apache-2.0
 *
 * Items in their normal form as messages for the engine's chat templates.
 *
 * An assistant's turn is several items here and one message there: reasoning, text and calls gather
 * in `turn` until an item of another role, or a second text, ends it.
 *
 * What a user wrote is cleansed on its way to the engine only: stored, listed and returned it is what
 * was sent. Cleansing is a function of the text alone, so a conversation's earlier turns are the same
 * tokens each time.
 */
#include <stdio.h>
#include <string.h>

#include "base/json/json_out.h"
#include "gateway/request/response_items.h"

struct turn {
	bool open, has_text, pinned;
	struct sl_buf files;                  /* of a user's message */
	struct sl_buf text, reasoning, calls; /* calls: JSON, without the brackets */
};

struct writer {
	struct sl_buf *out;
	size_t *n_messages;
	const struct request_files *files;
	enum cleanse_level level;
	struct cleanse_stats *cleansed;
	struct turn turn;
};

static const char *member(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s != NULL ? s : "";
}

static bool is_pinned(const json_t *item) { return json_is_true(json_object_get(item, "pinned")); }

static int put_text(struct sl_buf *out, const struct sl_buf *text)
{
	return json_out_string(out, text->len ? (const char *)buf_data(text) : "", text->len);
}

static int put_member(struct sl_buf *out, const json_t *o, const char *key)
{
	const char *s = member(o, key);
	return json_out_string(out, s, strlen(s));
}

/* The texts of a list of parts, or a string, one after the other. */
static int gather(struct sl_buf *out, const json_t *v)
{
	int rc = json_is_string(v) ? buf_append(out, json_string_value(v), json_string_length(v)) : 0;
	for (size_t k = 0; k < json_array_size(v) && rc == 0; k++) {
		const json_t *part = json_array_get(v, k);
		const char *text = member(part, json_object_get(part, "refusal") != NULL ? "refusal" : "text");
		rc = buf_append(out, text, strlen(text));
	}
	return rc;
}

/* A user's: files, then the text, cleansed. */
static int put_user(struct writer *w, struct turn *t)
{
	const char *text = t->text.len > 0 ? (const char *)buf_data(&t->text) : "";
	int rc = w->level != CLEANSE_OFF ? cleanse(w->level, text, t->text.len, &t->files, w->cleansed)
					 : buf_append(&t->files, text, t->text.len);
	if (rc == 0)
		rc = put_text(w->out, &t->files);
	buf_clear(&t->files, SIZE_MAX);
	return rc;
}

static const struct request_file *named(const struct request_files *files, const char *id)
{
	for (size_t i = 0; files != NULL && i < files->n; i++)
		if (strcmp(files->at[i].id, id) == 0)
			return files->at[i].text != NULL ? &files->at[i] : NULL;
	return NULL;
}

static int put_file(struct writer *w, const json_t *part)
{
	const json_t *name = json_object_get(part, "filename"), *id = json_object_get(part, "file_id");
	if (id != NULL) {
		const struct request_file *f = named(w->files, json_string_value(id));
		return f != NULL ? request_file_put(&w->turn.files, f->name, f->text, f->n, w->level, w->cleansed)
				 : SL_EINVAL;
	}
	struct request_error e;
	struct sl_buf text;
	buf_init(&text, REQUEST_MAX_PROMPT);
	int rc = request_file_decode(json_object_get(part, "file_data"), "file_data", &text, &e);
	if (rc == 0)
		rc = request_file_put(&w->turn.files, name != NULL ? json_string_value(name) : "file",
				      (const char *)buf_data(&text), text.len, w->level, w->cleansed);
	buf_dispose(&text);
	return rc;
}

static bool is_file(const json_t *part) { return strcmp(member(part, "type"), "input_file") == 0; }

static int put_files(struct writer *w, const json_t *content)
{
	int rc = 0;
	for (size_t k = 0; k < json_array_size(content) && rc == 0; k++)
		if (is_file(json_array_get(content, k)))
			rc = put_file(w, json_array_get(content, k));
	return rc;
}

static int begin_message(struct writer *w, const char *role)
{
	return buf_printf(w->out, "%s{\"role\":\"%s\",\"content\":", (*w->n_messages)++ ? "," : "", role);
}

static int end_message(struct writer *w, bool pinned)
{
	return buf_append_str(w->out, pinned ? ",\"pinned\":true}" : "}");
}

static int end_turn(struct writer *w)
{
	struct turn *t = &w->turn;
	int rc;
	if (!t->open)
		return 0;
	if ((rc = begin_message(w, "assistant")) != 0 || (rc = put_text(w->out, &t->text)) != 0)
		return rc;
	if (t->reasoning.len > 0 && ((rc = buf_append_str(w->out, ",\"reasoning_content\":")) != 0 ||
				     (rc = put_text(w->out, &t->reasoning)) != 0))
		return rc;
	if (t->calls.len > 0 && ((rc = buf_append_str(w->out, ",\"tool_calls\":[")) != 0 ||
				 (rc = buf_append(w->out, buf_data(&t->calls), t->calls.len)) != 0 ||
				 (rc = buf_append_str(w->out, "]")) != 0))
		return rc;
	bool pinned = t->pinned;
	t->open = t->has_text = t->pinned = false;
	buf_clear(&t->text, SIZE_MAX);
	buf_clear(&t->reasoning, SIZE_MAX);
	buf_clear(&t->calls, SIZE_MAX);
	return end_message(w, pinned);
}

static int put_message(struct writer *w, const json_t *item)
{
	struct turn *t = &w->turn;
	const char *role = member(item, "role");
	const json_t *content = json_object_get(item, "content");
	int rc = 0;
	if (strcmp(role, "assistant") == 0) {
		if (t->has_text || t->calls.len > 0)
			rc = end_turn(w);
		t->open = t->has_text = true;
		t->pinned = t->pinned || is_pinned(item);
		return rc != 0 ? rc : gather(&t->text, content);
	}
	if (strcmp(role, "developer") == 0)
		role = "system"; /* only few templates know it, and it means the same */
	if ((rc = end_turn(w)) != 0 || (rc = begin_message(w, role)) != 0 || (rc = gather(&t->text, content)) != 0)
		return rc;
	bool user = strcmp(role, "user") == 0;
	if ((user && (rc = put_files(w, content)) != 0) ||
	    (rc = user && (w->level != CLEANSE_OFF || t->files.len > 0) ? put_user(w, t)
									: put_text(w->out, &t->text)) != 0)
		return rc;
	buf_clear(&t->text, SIZE_MAX);
	return end_message(w, is_pinned(item));
}

static int put_call(struct writer *w, const json_t *item)
{
	struct sl_buf *b = &w->turn.calls;
	int rc;
	w->turn.open = true;
	w->turn.pinned = w->turn.pinned || is_pinned(item);
	if ((rc = buf_append_str(b, b->len ? ",{\"id\":" : "{\"id\":")) != 0 ||
	    (rc = put_member(b, item, "call_id")) != 0 ||
	    (rc = buf_append_str(b, ",\"type\":\"function\",\"function\":{\"name\":")) != 0 ||
	    (rc = put_member(b, item, "name")) != 0 || (rc = buf_append_str(b, ",\"arguments\":")) != 0 ||
	    (rc = put_member(b, item, "arguments")) != 0)
		return rc;
	return buf_append_str(b, "}}");
}

static int put_output(struct writer *w, const json_t *item)
{
	struct turn *t = &w->turn;
	int rc;
	if ((rc = end_turn(w)) != 0 || (rc = begin_message(w, "tool")) != 0 ||
	    (rc = gather(&t->text, json_object_get(item, "output"))) != 0 || (rc = put_text(w->out, &t->text)) != 0 ||
	    (rc = buf_append_str(w->out, ",\"tool_call_id\":")) != 0 || (rc = put_member(w->out, item, "call_id")) != 0)
		return rc;
	buf_clear(&t->text, SIZE_MAX);
	return end_message(w, is_pinned(item));
}

/* The summary is for people; what the model thought is for the template. */
static int put_reasoning(struct writer *w, const json_t *item)
{
	const json_t *content = json_object_get(item, "content");
	if (json_array_size(content) == 0)
		return 0;
	int rc = w->turn.has_text || w->turn.calls.len > 0 ? end_turn(w) : 0;
	w->turn.open = true;
	w->turn.pinned = w->turn.pinned || is_pinned(item);
	return rc != 0 ? rc : gather(&w->turn.reasoning, content);
}

static int put_item(struct writer *w, const json_t *item)
{
	const char *type = member(item, "type");
	if (strcmp(type, "function_call") == 0)
		return put_call(w, item);
	if (strcmp(type, "function_call_output") == 0)
		return put_output(w, item);
	return strcmp(type, "reasoning") == 0 ? put_reasoning(w, item) : put_message(w, item);
}

int response_items_put(struct sl_buf *out, const json_t *items, const struct request_files *files,
		       enum cleanse_level level, struct cleanse_stats *cleansed, size_t *n_messages)
{
	struct writer w = {.out = out, .n_messages = n_messages, .files = files, .level = level, .cleansed = cleansed};
	int rc = 0;
	buf_init(&w.turn.files, REQUEST_MAX_PROMPT);
	buf_init(&w.turn.text, REQUEST_MAX_PROMPT);
	buf_init(&w.turn.reasoning, REQUEST_MAX_PROMPT);
	buf_init(&w.turn.calls, REQUEST_MAX_PROMPT);
	for (size_t i = 0; i < json_array_size(items) && rc == 0; i++)
		rc = put_item(&w, json_array_get(items, i));
	if (rc == 0)
		rc = end_turn(&w);
	buf_dispose(&w.turn.files);
	buf_dispose(&w.turn.text);
	buf_dispose(&w.turn.reasoning);
	buf_dispose(&w.turn.calls);
	return rc;
}

int response_items_files(const json_t *items, const char *param, bool whole, struct request_files *files,
			 struct request_error *e)
{
	for (size_t i = 0; i < json_array_size(items); i++) {
		const json_t *content = json_object_get(json_array_get(items, i), "content");
		for (size_t k = 0; k < json_array_size(content); k++) {
			const json_t *part = json_array_get(content, k), *id = json_object_get(part, "file_id");
			const struct request_file *f;
			char name[96];
			if (id == NULL || !is_file(part))
				continue;
			if (whole)
				snprintf(name, sizeof name, "%.32s", param);
			else
				snprintf(name, sizeof name, "%.32s[%zu].content[%zu].file_id", param, i, k);
			int rc = request_file_named(files, id, name, &f, e);
			if (rc != 0)
				return rc;
		}
	}
	return 0;
}
