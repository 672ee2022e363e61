/* SPDX-License-Identifier: Apache-2.0
 *
 * What only a chat has: log probabilities by two fields, and a prompt that is a JSON text for the
 * engine's chat templates.
 */
#include "gateway/request/chat_request.h"

#include "gateway/request/chat_messages.h"
#include "gateway/request/request_files.h"

int chat_request_logprobs(const struct request_values *values, struct chat_request *r, struct request_error *e)
{
	const json_t *top = values->at[VALUE_TOP_LOGPROBS];
	bool want = json_is_true(values->at[VALUE_LOGPROBS]);
	json_int_t n = json_integer_value(top);
	if (n > 0 && !want)
		return request_bad(e, "invalid_value", "top_logprobs",
				   "'top_logprobs' is only allowed when 'logprobs' is true.");
	if (want)
		r->c.submit.flags |= PROTO_SUBMIT_WANT_LOGPROBS;
	r->c.submit.n_top_logprobs = (uint8_t)n;
	return 0;
}

/* What a template gets besides the messages. The engine checks names and values: only it knows which
 * its templates have taken. */
static int put_template_fields(const struct request_values *values, struct chat_request *r)
{
	static const struct {
		enum request_value value;
		const char *name;
	} fields[] = {{VALUE_DOCUMENTS, "documents"},
		      {VALUE_ADD_GENERATION_PROMPT, "add_generation_prompt"},
		      {VALUE_CONTINUE_FINAL_MESSAGE, "continue_final_message"}};
	int rc = 0;
	for (size_t i = 0; i < sizeof fields / sizeof fields[0] && rc == 0; i++) {
		const json_t *v = values->at[fields[i].value];
		if (v == NULL)
			continue;
		rc = buf_printf(&r->prompt, ",\"%s\":", fields[i].name);
		if (rc == 0)
			rc = request_put_json(&r->prompt, v);
	}
	return rc == 0 ? request_put_template(&r->prompt, &r->c) : rc;
}

static int check_turn(const struct request_values *values, struct request_error *e)
{
	const json_t *add = values->at[VALUE_ADD_GENERATION_PROMPT];
	const json_t *go_on = values->at[VALUE_CONTINUE_FINAL_MESSAGE];
	if (json_is_true(add) && json_is_true(go_on))
		return request_bad(e, "invalid_value", "continue_final_message",
				   "'continue_final_message' and 'add_generation_prompt' exclude each other.");
	return 0;
}

static int put_prompt(const struct request_values *values, struct chat_request *r, const struct request_limits *l,
		      struct request_error *e)
{
	int rc;
	if ((rc = buf_append_str(&r->prompt, "{")) == 0 &&
	    (rc = chat_messages_put(&r->prompt, values->at[VALUE_MESSAGES], l, &r->c.cleansed, e)) == 0 &&
	    (rc = put_template_fields(values, r)) == 0)
		rc = buf_append_str(&r->prompt, "}");
	return request_too_long(rc, "messages", e);
}

int chat_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct chat_request *out,
		       struct request_error *e)
{
	*out = (struct chat_request){0};
	*e = (struct request_error){0};
	buf_init(&out->prompt, REQUEST_MAX_PROMPT);
	struct request_values values;
	int rc;
	if ((rc = request_parse_doc(bytes, n, l, &out->body, e)) != 0 ||
	    (rc = request_common_read(out->body.root, (struct proto_str){bytes, n}, REQUEST_CHAT, &values, &out->c,
				      e)) != 0 ||
	    (rc = chat_request_logprobs(&values, out, e)) != 0 || (rc = check_turn(&values, e)) != 0 ||
	    (rc = put_prompt(&values, out, l, e)) != 0 || (rc = request_files_lack(l->files) ? SL_EAGAIN : 0) != 0) {
		chat_request_dispose(out);
		return rc;
	}
	out->c.submit.prompt_kind = PROTO_PROMPT_CHAT;
	out->c.submit.prompt = (struct proto_str){.at = (const char *)buf_data(&out->prompt), .n = out->prompt.len};
	return 0;
}

void chat_request_dispose(struct chat_request *r)
{
	request_common_dispose(&r->c);
	json_doc_dispose(&r->body);
	buf_dispose(&r->prompt);
}
