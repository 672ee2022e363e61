/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat completions, as OpenAI's API has them: chat.completion.chunk events, or one chat.completion.
 */
#include "base/json/json_out.h"
#include "gateway/answer/answer.h"

static int begin(struct answer *a, struct sl_buf *out)
{
	int rc = sse_init(&a->out.sse, &sse_chat_shape, a->id, a->model, a->created, a->out.include_usage,
			  a->out.obfuscate, &a->app->sse_last);
	for (unsigned i = 0; rc == 0 && i < answer_n_choices(a); i++)
		rc = sse_role(&a->out.sse, out, i);
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
	return answer_chunk_text(a, out, index, at, n, logprobs_of);
}

static int put_choice(struct answer *a, struct sl_buf *out, unsigned index)
{
	const struct answer_choice *c = &a->choices[index];
	int rc = buf_append_str(out, index > 0 ? ",{\"index\":" : "{\"index\":");
	if (rc == 0)
		rc = buf_append_uint(out, index);
	if (rc == 0)
		rc = buf_append_str(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
	if (rc == 0)
		rc = json_out_string(out, c->text.len > 0 ? (const char *)buf_data(&c->text) : "", c->text.len);
	if (rc == 0)
		rc = buf_append_str(out, ",\"refusal\":null},\"logprobs\":");
	if (rc == 0)
		rc = a->out.wants_logprobs ? logprobs_of(c, out) : buf_append_str(out, "null");
	if (rc == 0)
		rc = buf_append_str(out, ",\"finish_reason\":\"");
	if (rc == 0)
		rc = buf_append_str(out, c->reason);
	if (rc == 0)
		rc = buf_append_str(out, "\"");
	if (rc == 0)
		rc = answer_put_extras(a, c, true, out);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

static int whole(struct answer *a, struct sl_buf *out)
{
	return answer_chunk_whole(a, out, "chat.completion", put_choice);
}

static int logprob(struct answer *a, struct answer_choice *c, const struct gen_token *t)
{
	return answer_put_logprob(a, &c->logprobs[0], t);
}

const struct answer_format answer_chat = {
    .id_prefix = "chatcmpl-",
    .prompt_param = "messages",
    .begin = begin,
    .text = text,
    .close = answer_chunk_close,
    .end = answer_chunk_end,
    .error = answer_chunk_error,
    .whole = whole,
    .logprob = logprob,
};
