/* SPDX-License-Identifier: Apache-2.0
 *
 * Completions, OpenAI's older API: text_completion objects, the same for events and for the whole. Its
 * log probabilities are four lists side by side: tokens, token_logprobs, top_logprobs, text_offset.
 */
#include <math.h>

#include "base/alloc.h"
#include "base/json/json_out.h"
#include "base/utf8.h"
#include "gateway/answer/answer.h"

enum { TOKENS, TOKEN_LOGPROBS, TOP_LOGPROBS, TEXT_OFFSET };

static const struct sl_buf *echoed(const struct answer *a, unsigned index)
{
	const struct answer_echo *echo = a->own;
	return echo == NULL ? NULL : &echo->prompts[index / a->n];
}

static int begin(struct answer *a, struct sl_buf *out)
{
	int rc = sse_init(&a->out.sse, &sse_completion_shape, a->id, a->model, a->created, a->out.include_usage,
			  a->out.obfuscate, &a->app->sse_last);
	for (unsigned i = 0; rc == 0 && a->own != NULL && i < answer_n_choices(a); i++) {
		const struct sl_buf *prompt = echoed(a, i);
		rc = sse_content(&a->out.sse, out, i, (const char *)buf_data(prompt), prompt->len, NULL);
	}
	return rc;
}

static int put_list(struct sl_buf *out, const char *name, const struct sl_buf *items)
{
	int rc = buf_printf(out, "\"%s\":[", name);
	if (rc == 0 && items->len > 0)
		rc = buf_append(out, buf_data(items), items->len);
	return rc == 0 ? buf_append_str(out, "]") : rc;
}

static int logprobs_of(const struct answer_choice *c, struct sl_buf *out)
{
	int rc = buf_append_str(out, "{");
	if (rc == 0)
		rc = put_list(out, "tokens", &c->logprobs[TOKENS]);
	if (rc == 0)
		rc = buf_append_str(out, ",");
	if (rc == 0)
		rc = put_list(out, "token_logprobs", &c->logprobs[TOKEN_LOGPROBS]);
	if (rc == 0)
		rc = buf_append_str(out, ",");
	if (rc == 0)
		rc = put_list(out, "top_logprobs", &c->logprobs[TOP_LOGPROBS]);
	if (rc == 0)
		rc = buf_append_str(out, ",");
	if (rc == 0)
		rc = put_list(out, "text_offset", &c->logprobs[TEXT_OFFSET]);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

static int text(struct answer *a, struct sl_buf *out, unsigned index, const char *at, size_t n)
{
	return answer_chunk_text(a, out, index, at, n, logprobs_of);
}

static int put_choice(struct answer *a, struct sl_buf *out, unsigned index)
{
	const struct answer_choice *c = &a->choices[index];
	const struct sl_buf *before = echoed(a, index);
	struct sl_buf all;
	buf_init(&all, c->text.max + (before != NULL ? before->len : 0));
	int rc = before != NULL ? buf_append(&all, buf_data(before), before->len) : 0;
	if (rc == 0 && c->text.len > 0)
		rc = buf_append(&all, buf_data(&c->text), c->text.len);
	if (rc == 0)
		rc = buf_append_str(out, index > 0 ? ",{\"text\":" : "{\"text\":");
	if (rc == 0)
		rc = json_out_string(out, all.len > 0 ? (const char *)buf_data(&all) : "", all.len);
	buf_dispose(&all);
	if (rc == 0)
		rc = buf_printf(out, ",\"index\":%u,\"logprobs\":", index);
	if (rc == 0)
		rc = a->out.wants_logprobs ? logprobs_of(c, out) : buf_append_str(out, "null");
	if (rc == 0)
		rc = buf_printf(out, ",\"finish_reason\":\"%s\"", c->reason);
	if (rc == 0)
		rc = answer_put_extras(a, c, true, out);
	if (rc == 0)
		rc = answer_put_prompt(a, &a->runs[index / a->n], out);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

static int whole(struct answer *a, struct sl_buf *out)
{
	return answer_chunk_whole(a, out, "text_completion", put_choice);
}

static int add(struct sl_buf *list) { return list->len > 0 ? buf_append_str(list, ",") : 0; }

/* {"token":logprob,…}: the likeliest, and the chosen one. */
static int put_tops(const struct answer *a, struct sl_buf *list, const struct gen_token *t, struct proto_str chosen,
		    struct proto_str rivals)
{
	bool has_chosen = false, first = true;
	int rc = add(list);
	if (rc == 0 && t->n_top == 0)
		return buf_append_str(list, "null");
	if (rc == 0)
		rc = buf_append_str(list, "{");
	for (uint8_t i = 0; rc == 0 && i < t->n_top; i++) {
		struct proto_str piece = proto_piece_next(&rivals);
		if (t->tops[i].v == -INFINITY)
			continue;
		has_chosen = has_chosen || t->tops[i].id == t->id;
		rc = first ? 0 : buf_append_str(list, ",");
		first = false;
		if (rc == 0)
			rc = answer_put_name(a, list, t->tops[i].id, piece, true);
		if (rc == 0)
			rc = buf_append_str(list, ":");
		if (rc == 0)
			rc = answer_put_number(list, t->tops[i].v);
	}
	if (rc == 0 && !has_chosen) {
		rc = first ? 0 : buf_append_str(list, ",");
		if (rc == 0)
			rc = answer_put_name(a, list, t->id, chosen, true);
		if (rc == 0)
			rc = buf_append_str(list, ":");
		if (rc == 0)
			rc = answer_put_number(list, t->logprob);
	}
	return rc == 0 ? buf_append_str(list, "}") : rc;
}

static int logprob(struct answer *a, struct answer_choice *c, const struct gen_token *t)
{
	struct proto_str left = t->pieces, chosen = proto_piece_next(&left);
	const struct sl_buf *before = echoed(a, (unsigned)(c - a->choices));
	int rc = add(&c->logprobs[TOKENS]);
	if (rc == 0)
		rc = answer_put_name(a, &c->logprobs[TOKENS], t->id, chosen, true);
	if (rc == 0)
		rc = add(&c->logprobs[TOKEN_LOGPROBS]);
	if (rc == 0)
		rc = answer_put_number(&c->logprobs[TOKEN_LOGPROBS], t->logprob);
	if (rc == 0)
		rc = put_tops(a, &c->logprobs[TOP_LOGPROBS], t, chosen, left);
	if (rc == 0)
		rc = add(&c->logprobs[TEXT_OFFSET]);
	/* Characters, not bytes: how the API counts offsets. */
	size_t at =
	    c->n_characters + (before != NULL ? utf8_characters((const char *)buf_data(before), before->len) : 0);
	if (rc == 0)
		rc = buf_printf(&c->logprobs[TEXT_OFFSET], "%zu", at);
	return rc;
}

static void dispose(void *own)
{
	struct answer_echo *echo = own;
	if (echo == NULL)
		return;
	for (int i = 0; i < echo->n_prompts; i++)
		buf_dispose(&echo->prompts[i]);
	sl_free(echo->prompts);
	sl_free(echo);
}

const struct answer_format answer_completion = {
    .id_prefix = "cmpl-",
    .prompt_param = "prompt",
    .begin = begin,
    .text = text,
    .close = answer_chunk_close,
    .end = answer_chunk_end,
    .error = answer_chunk_error,
    .whole = whole,
    .logprob = logprob,
    .dispose = dispose,
};
