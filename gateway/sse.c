/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/sse.h"

#include <string.h>

#include "base/json_out.h"

enum { MAX_HEAD = 4096 };

int sse_chat_init(struct sse_chat *s, const char *id, const char *model, int64_t created, bool include_usage)
{
	s->include_usage = include_usage;
	s->tail = include_usage ? "}],\"usage\":null}\n\n" : "}]}\n\n";
	buf_init(&s->head, MAX_HEAD);
	int rc = buf_printf(&s->head, "data: {\"id\":\"%s\",\"object\":\"chat.completion.chunk\",\"created\":%lld,\"model\":",
			    id, (long long)created);
	if (rc == 0)
		rc = json_out_string(&s->head, model, strlen(model));
	if (rc == 0)
		rc = buf_append_str(&s->head, ",\"system_fingerprint\":null,\"choices\":[");
	if (rc != 0)
		buf_dispose(&s->head);
	return rc;
}

void sse_chat_dispose(struct sse_chat *s)
{
	buf_dispose(&s->head);
}

/* head, the choice up to its last field, then the tail; takes everything back on failure. */
static int event(const struct sse_chat *s, struct sl_buf *out, const char *before, const char *text, size_t n,
		 const char *after)
{
	size_t n_before = strlen(before), n_after = strlen(after), n_tail = strlen(s->tail);
	uint8_t *at;
	int rc = buf_reserve(out, s->head.len + n_before + JSON_ESCAPED_MAX(n) + n_after + n_tail, &at);
	if (rc != 0)
		return rc;
	char *p = (char *)at;
	memcpy(p, buf_data(&s->head), s->head.len);
	p += s->head.len;
	memcpy(p, before, n_before);
	p = json_escape(p + n_before, text, n);
	memcpy(p, after, n_after);
	p += n_after;
	memcpy(p, s->tail, n_tail);
	p += n_tail;
	buf_commit(out, (size_t)(p - (char *)at));
	return 0;
}

int sse_chat_role(const struct sse_chat *s, struct sl_buf *out)
{
	return event(s, out, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}", "", 0,
		     ",\"logprobs\":null,\"finish_reason\":null");
}

int sse_chat_content(const struct sse_chat *s, struct sl_buf *out, const char *text, size_t n)
{
	return event(s, out, "{\"index\":0,\"delta\":{\"content\":\"", text, n,
		     "\"},\"logprobs\":null,\"finish_reason\":null");
}

int sse_chat_finish(const struct sse_chat *s, struct sl_buf *out, const char *reason)
{
	return event(s, out, "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"", reason,
		     strlen(reason), "\"");
}

int usage_print(struct sl_buf *out, const struct sse_usage *u)
{
	return buf_printf(out,
			  "{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%llu,"
			  "\"prompt_tokens_details\":{\"cached_tokens\":%u}}",
			  u->n_prompt, u->n_completion,
			  (unsigned long long)u->n_prompt + u->n_completion, u->n_cached);
}

int sse_chat_usage(const struct sse_chat *s, struct sl_buf *out, const struct sse_usage *u)
{
	size_t start = out->len;
	int rc;
	if ((rc = buf_append(out, buf_data(&s->head), s->head.len)) == 0 &&
	    (rc = buf_append_str(out, "],\"usage\":")) == 0 && (rc = usage_print(out, u)) == 0 &&
	    (rc = buf_append_str(out, "}\n\n")) == 0)
		return 0;
	out->len = start;
	return rc;
}

int sse_done(struct sl_buf *out)
{
	return buf_append_str(out, "data: [DONE]\n\n");
}

int sse_error(struct sl_buf *out, const struct api_error *e, const char *message)
{
	size_t start = out->len;
	int rc;
	if ((rc = buf_append_str(out, "data: ")) == 0 && (rc = api_error_print(out, e, message)) == 0 &&
	    (rc = buf_append_str(out, "\n\n")) == 0)
		return 0;
	out->len = start;
	return rc;
}

int sse_ping(struct sl_buf *out)
{
	return buf_append_str(out, ": ping\n");
}
