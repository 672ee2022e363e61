/* SPDX-License-Identifier: Apache-2.0
 *
 * Differences from a chat besides the names: max_tokens is required, and a model thinks only if the request enables it,
 * because other clients take the first block for the text.
 */
#include "gateway/dialect/messages_request.h"

#include "gateway/request/request_files.h"

static int check_format(const json_t *format, const char *type, const char *schema, struct request_error *e)
{
	if (format == NULL)
		return 0;
	if (request_get(format, "type") == NULL)
		return request_missing(e, type);
	return request_get(format, "schema") == NULL ? request_missing(e, schema) : 0;
}

static int check_formats(const json_t *body, struct request_error *e)
{
	int rc = check_format(request_get(request_get(body, "output_config"), "format"), "output_config.format.type",
			      "output_config.format.schema", e);
	return rc == 0
		   ? check_format(request_get(body, "output_format"), "output_format.type", "output_format.schema", e)
		   : rc;
}

static void set_reasoning(const struct request_values *values, struct reasoning_request *r)
{
	if (values->at[VALUE_THINKING] == NULL && r->effort == NULL)
		r->thinking = REASONING_OFF;
}

static int put_prompt(struct chat_request *r, const struct request_limits *l, struct request_error *e)
{
	bool prefill = false;
	int rc = buf_append_str(&r->prompt, "{");
	if (rc == 0)
		rc = messages_turns_put(&r->prompt, r->body.root, l, &r->c.cleansed, &prefill, e);
	if (rc == 0 && prefill)
		rc = buf_append_str(&r->prompt, ",\"continue_final_message\":true");
	if (rc == 0)
		rc = request_put_template(&r->prompt, &r->c);
	if (rc == 0)
		rc = buf_append_str(&r->prompt, "}");
	return request_too_long(rc, "messages", e);
}

static int read_body(const void *bytes, size_t n, const struct request_limits *l, bool counts, struct chat_request *r,
		     struct request_error *e)
{
	struct request_values values;
	int rc;
	if ((rc = request_parse_doc(bytes, n, l, &r->body, e)) != 0 ||
	    (rc = request_common_read_shape(r->body.root, (struct proto_str){bytes, n}, &messages_shape, &values, &r->c,
					    e)) != 0)
		return rc;
	if (!counts && values.at[VALUE_MAX_TOKENS] == NULL)
		return request_missing(e, "max_tokens");
	if ((rc = messages_tools_read(r->body.root, &r->c.tools, &r->c.ignored, e)) != 0 ||
	    (rc = check_formats(r->body.root, e)) != 0)
		return rc;
	set_reasoning(&values, &r->c.reasoning);
	rc = put_prompt(r, l, e);
	return rc == 0 && request_files_lack(l->files) ? SL_EAGAIN : rc;
}

static int parse(const void *bytes, size_t n, const struct request_limits *l, bool counts, struct chat_request *out,
		 struct request_error *e)
{
	*out = (struct chat_request){0};
	*e = (struct request_error){0};
	buf_init(&out->prompt, REQUEST_MAX_PROMPT);
	int rc = read_body(bytes, n, l, counts, out, e);
	if (rc != 0) {
		chat_request_dispose(out);
		return rc;
	}
	out->c.submit.prompt_kind = PROTO_PROMPT_CHAT;
	out->c.submit.prompt = (struct proto_str){.at = (const char *)buf_data(&out->prompt), .n = out->prompt.len};
	return 0;
}

int messages_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct chat_request *out,
			   struct request_error *e)
{
	return parse(bytes, n, l, false, out, e);
}

int messages_count_parse(const void *bytes, size_t n, const struct request_limits *l, struct chat_request *out,
			 struct request_error *e)
{
	return parse(bytes, n, l, true, out, e);
}
