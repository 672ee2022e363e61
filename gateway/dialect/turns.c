/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/dialect/turns.h"

#include <string.h>

#include "base/json/json_out.h"
#include "gateway/request/request_files.h"

void turns_init(struct turns *t, struct sl_buf *out, const struct request_limits *l, struct cleanse_stats *cleansed)
{
	*t = (struct turns){.out = out, .l = l, .cleansed = cleansed};
	buf_init(&t->files, REQUEST_MAX_PROMPT);
	buf_init(&t->text, REQUEST_MAX_PROMPT);
	buf_init(&t->reasoning, REQUEST_MAX_PROMPT);
	buf_init(&t->calls, REQUEST_MAX_PROMPT);
}

void turns_dispose(struct turns *t)
{
	buf_dispose(&t->files);
	buf_dispose(&t->text);
	buf_dispose(&t->reasoning);
	buf_dispose(&t->calls);
}

static int put_text(struct sl_buf *out, const struct sl_buf *text)
{
	return json_out_string(out, text->len > 0 ? (const char *)buf_data(text) : "", text->len);
}

/* A user's: files, then the text, cleansed. */
static int put_user(struct turns *t)
{
	const char *text = t->text.len > 0 ? (const char *)buf_data(&t->text) : "";
	int rc = t->l->cleanse != CLEANSE_OFF ? cleanse(t->l->cleanse, text, t->text.len, &t->files, t->cleansed)
					      : buf_append(&t->files, text, t->text.len);
	return rc == 0 ? put_text(t->out, &t->files) : rc;
}

static int begin_message(struct turns *t, const char *role)
{
	return buf_printf(t->out, "%s{\"role\":\"%s\",\"content\":", t->n++ > 0 ? "," : "", role);
}

int turns_begin(struct turns *t) { return buf_append_str(t->out, "\"messages\":["); }

static int put_assistant(struct turns *t)
{
	int rc = 0;
	if (t->reasoning.len > 0 && ((rc = buf_append_str(t->out, ",\"reasoning_content\":")) != 0 ||
				     (rc = put_text(t->out, &t->reasoning)) != 0))
		return rc;
	if (t->calls.len > 0 && ((rc = buf_append_str(t->out, ",\"tool_calls\":[")) != 0 ||
				 (rc = buf_append(t->out, buf_data(&t->calls), t->calls.len)) != 0 ||
				 (rc = buf_append_str(t->out, "]")) != 0))
		return rc;
	return 0;
}

int turns_close(struct turns *t)
{
	static const char *const roles[] = {"", "system", "user", "assistant"};
	if (t->open == TURN_NONE)
		return 0;
	int rc = begin_message(t, roles[t->open]);
	if (rc == 0)
		rc = t->open == TURN_USER && (t->l->cleanse != CLEANSE_OFF || t->files.len > 0)
			 ? put_user(t)
			 : put_text(t->out, &t->text);
	if (rc == 0)
		rc = put_assistant(t);
	t->open = TURN_NONE;
	buf_clear(&t->files, SIZE_MAX);
	buf_clear(&t->text, SIZE_MAX);
	buf_clear(&t->reasoning, SIZE_MAX);
	buf_clear(&t->calls, SIZE_MAX);
	return rc == 0 ? buf_append_str(t->out, "}") : rc;
}

int turns_open(struct turns *t, enum turn_role role)
{
	int rc = t->open != role ? turns_close(t) : 0;
	t->open = role;
	return rc;
}

int turns_text(struct turns *t, const char *text, size_t n) { return n > 0 ? buf_append(&t->text, text, n) : 0; }

int turns_file(struct turns *t, const char *name, const char *text, size_t n)
{
	return request_file_put(&t->files, name, text, n, t->l->cleanse, t->cleansed);
}

int turns_reasoning(struct turns *t, const char *text, size_t n)
{
	return n > 0 ? buf_append(&t->reasoning, text, n) : 0;
}

/* As a JSON text, the form in which templates receive arguments. */
static int put_arguments(struct sl_buf *out, const json_t *arguments)
{
	struct sl_buf json;
	buf_init(&json, REQUEST_MAX_PROMPT);
	int rc = request_put_json(&json, arguments);
	if (rc == 0)
		rc = put_text(out, &json);
	buf_dispose(&json);
	return rc;
}

int turns_call(struct turns *t, const char *id, const char *name, const json_t *arguments)
{
	struct sl_buf *b = &t->calls;
	int rc;
	if ((rc = buf_append_str(b, b->len > 0 ? ",{\"id\":" : "{\"id\":")) != 0 ||
	    (rc = json_out_string(b, id, strlen(id))) != 0 ||
	    (rc = buf_append_str(b, ",\"type\":\"function\",\"function\":{\"name\":")) != 0 ||
	    (rc = json_out_string(b, name, strlen(name))) != 0 || (rc = buf_append_str(b, ",\"arguments\":")) != 0 ||
	    (rc = put_arguments(b, arguments)) != 0)
		return rc;
	return buf_append_str(b, "}}");
}

int turns_result(struct turns *t, const char *id, const char *name, const char *prefix, const char *text, size_t n)
{
	int rc;
	if ((rc = turns_close(t)) != 0 || (rc = begin_message(t, "tool")) != 0)
		return rc;
	if ((rc = buf_append_str(&t->text, prefix)) != 0 || (rc = turns_text(t, text, n)) != 0 ||
	    (rc = put_text(t->out, &t->text)) != 0)
		return rc;
	buf_clear(&t->text, SIZE_MAX);
	if (name != NULL && ((rc = buf_append_str(t->out, ",\"name\":")) != 0 ||
			     (rc = json_out_string(t->out, name, strlen(name))) != 0))
		return rc;
	if ((rc = buf_append_str(t->out, ",\"tool_call_id\":")) != 0 ||
	    (rc = json_out_string(t->out, id, strlen(id))) != 0)
		return rc;
	return buf_append_str(t->out, "}");
}

int turns_end(struct turns *t)
{
	int rc = turns_close(t);
	return rc == 0 ? buf_append_str(t->out, "]") : rc;
}
