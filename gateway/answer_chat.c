/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat completions, as OpenAI's API has them: chat.completion.chunk events, or one chat.completion.
 */
#include <string.h>

#include "base/json_out.h"
#include "gateway/answer.h"

static int begin(struct answer *a, struct sl_buf *out)
{
	int rc = sse_init(&a->sse, &sse_chat_shape, a->id, a->model, a->created, a->include_usage, a->obfuscate);
	for (unsigned i = 0; rc == 0 && i < answer_n_choices(a); i++)
		rc = sse_role(&a->sse, out, i);
	return rc;
}

static int logprobs_of(const struct answer_choice *c, struct sl_buf *out)
{
	int rc = buf_append_str(out, "{\"content\":[");
	if (rc == 0 && c->logprobs[0].len > 0)
		rc = buf_append(out, buf_data(&c->logprobs[0]), c->logprobs[0].len);
	return rc == 0 ? buf_append_str(out, "],\"refusal\":null}") : rc;
}

static int text(struct answer *a, struct sl_buf *out, unsigned index, const char *at, size_t n)
{
	if (!a->wants_logprobs)
		return sse_content(&a->sse, out, index, at, n, NULL);
	buf_clear(&a->list, SIZE_MAX);
	int rc = logprobs_of(&a->choices[index], &a->list);
	return rc == 0 ? sse_content(&a->sse, out, index, at, n, &a->list) : rc;
}

static int close_choice(struct answer *a, struct sl_buf *out, unsigned index, const char *reason)
{
	a->sse.note = a->superseded ? answer_superseded_note : NULL;
	return sse_finish(&a->sse, out, index, reason);
}

static int end(struct answer *a, struct sl_buf *out)
{
	struct sse_usage u = answer_usage(a);
	int rc = a->include_usage ? sse_usage_event(&a->sse, out, &u) : 0;
	return rc == 0 ? sse_done(out) : rc;
}

static int error(struct answer *a, struct sl_buf *out, const struct api_error *e, const char *message)
{
	(void)a;
	return sse_error(out, e, message);
}

static int put_choice(struct answer *a, struct sl_buf *out, unsigned index)
{
	const struct answer_choice *c = &a->choices[index];
	int rc = buf_printf(out, "%s{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":", index > 0 ? "," : "", index);
	if (rc == 0)
		rc = json_out_string(out, c->text.len > 0 ? (const char *)buf_data(&c->text) : "", c->text.len);
	if (rc == 0)
		rc = buf_append_str(out, ",\"refusal\":null},\"logprobs\":");
	if (rc == 0)
		rc = a->wants_logprobs ? logprobs_of(c, out) : buf_append_str(out, "null");
	return rc == 0 ? buf_printf(out, ",\"finish_reason\":\"%s\"}", c->reason) : rc;
}

static int whole(struct answer *a, struct sl_buf *out)
{
	struct sse_usage u = answer_usage(a);
	int rc = buf_printf(out, "{\"id\":\"%s\",\"object\":\"chat.completion\",\"created\":%lld,\"model\":", a->id,
			    (long long)a->created);
	if (rc == 0)
		rc = json_out_string(out, a->model, strlen(a->model));
	if (rc == 0)
		rc = buf_append_str(out, ",\"system_fingerprint\":null,\"choices\":[");
	for (unsigned i = 0; rc == 0 && i < answer_n_choices(a); i++)
		rc = put_choice(a, out, i);
	if (rc == 0)
		rc = buf_append_str(out, "],\"usage\":");
	if (rc == 0)
		rc = usage_print(out, &u);
	if (rc == 0 && a->superseded)
		rc = buf_append_str(out, answer_superseded_note);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

static int logprob(struct answer *a, struct answer_choice *c, const struct gen_token *t)
{
	(void)a;
	return answer_put_logprob(&c->logprobs[0], t);
}

const struct answer_format answer_chat = {
    .id_prefix = "chatcmpl-",
    .prompt_param = "messages",
    .begin = begin,
    .text = text,
    .close = close_choice,
    .end = end,
    .error = error,
    .whole = whole,
    .logprob = logprob,
};
