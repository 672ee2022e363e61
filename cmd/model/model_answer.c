/* SPDX-License-Identifier: Apache-2.0
 *
 * Collecting and showing an answer. The JSON has its keys in a fixed order and nine digits for a
 * float (every float has its own text), so that two runs can be compared as text. Tokens are shown
 * by id, and in the form for people with the text that was released with them.
 */
#include "cmd/model/model_answer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/json/json_out.h"

enum { MAX_ANSWER = 64 << 20 };

/* ---- collecting ---- */

void model_answer_init(struct model_answer *a, int n_choices)
{
	*a = (struct model_answer){.n_choices = n_choices};
	for (int i = 0; i < PROTO_MAX_CHOICES; i++)
		buf_init(&a->choices[i].text, MAX_ANSWER);
}

void model_answer_dispose(struct model_answer *a)
{
	json_decref(a->id);
	for (int i = 0; i < PROTO_MAX_CHOICES; i++) {
		buf_dispose(&a->choices[i].text);
		sl_free(a->choices[i].tokens);
		sl_free(a->choices[i].tops);
	}
	sl_free(a->prompt);
	*a = (struct model_answer){0};
}

static bool grow(struct model_choice *c, size_t n, uint8_t n_top)
{
	if (c->n_tokens + n <= c->tokens_cap)
		return true;
	size_t cap = 2 * c->tokens_cap + n;
	struct proto_token *tokens = sl_realloc_n(c->tokens, cap, sizeof *tokens);
	if (tokens == NULL)
		return false;
	c->tokens = tokens;
	if (n_top > 0) {
		struct proto_id_f32 *tops = sl_realloc_n(c->tops, cap * n_top, sizeof *tops);
		if (tops == NULL)
			return false;
		c->tops = tops;
	}
	c->tokens_cap = cap;
	return true;
}

static bool take_tokens(struct model_answer *a, const struct proto_tokens *t)
{
	struct model_choice *c = &a->choices[t->choice];
	if (!grow(c, t->n, t->n_top))
		return false;
	a->n_top = t->n_top;
	memcpy(c->tokens + c->n_tokens, t->tokens, t->n * sizeof *t->tokens);
	if (t->n_top > 0)
		memcpy(c->tops + c->n_tokens * t->n_top, t->tops, (size_t)t->n * t->n_top * sizeof *t->tops);
	c->n_tokens += t->n;
	return buf_append(&c->text, t->text.at, t->text.n) == 0;
}

static bool take_prompt(struct model_answer *a, const struct proto_prompt_logprobs *p)
{
	size_t each = 1u + p->n_top, have = a->n_prompt * each, n = p->n * each;
	struct proto_id_f32 *grown = sl_realloc_n(a->prompt, have + n, sizeof *grown);
	if (grown == NULL)
		return false;
	memcpy(grown + have, p->entries, n * sizeof *grown);
	a->prompt = grown;
	a->n_prompt += p->n;
	a->n_prompt_top = p->n_top;
	return true;
}

void model_answer_take(struct model_answer *a, const struct eng_event *ev)
{
	bool kept = true;
	if (ev->kind == ENG_TOKENS) {
		kept = take_tokens(a, &ev->u.tokens);
	} else if (ev->kind == ENG_PROMPT_LOGPROBS) {
		kept = take_prompt(a, &ev->u.prompt_logprobs);
	} else if (ev->kind == ENG_CHOICE) {
		a->choices[ev->u.choice.choice].end = ev->u.choice;
	} else if (ev->kind == ENG_DONE) {
		a->end = ev->u.done;
		memcpy(a->message, ev->u.done.message.at, ev->u.done.message.n);
		a->message[ev->u.done.message.n] = '\0';
	}
	a->lost = a->lost || !kept;
}

bool model_answer_failed(const struct model_answer *a) { return a->lost || a->end.finish == PROTO_FINISH_ERROR; }

/* ---- JSON ---- */

static const char *finish_name(const struct model_answer *a, uint8_t finish)
{
	if (model_answer_failed(a))
		return "error";
	if (finish == PROTO_FINISH_STOP)
		return "stop";
	return finish == PROTO_FINISH_LENGTH ? "length" : "cancelled";
}

/* JSON has no NaN: it is null. */
static int put_float(struct sl_buf *out, float v)
{
	return isfinite(v) ? buf_printf(out, "%.9g", (double)v) : buf_append_str(out, "null");
}

static int put_pairs(struct sl_buf *out, const struct proto_id_f32 *pairs, size_t n)
{
	int rc = buf_append_str(out, "[");
	for (size_t i = 0; i < n && rc == 0; i++) {
		rc = buf_printf(out, "%s{\"id\":%u,\"logprob\":", i > 0 ? "," : "", pairs[i].id);
		if (rc == 0)
			rc = put_float(out, pairs[i].v);
		if (rc == 0)
			rc = buf_append_str(out, "}");
	}
	return rc != 0 ? rc : buf_append_str(out, "]");
}

static int put_choice(struct sl_buf *out, const struct model_answer *a, const struct model_choice *c)
{
	int rc = buf_append_str(out, "\"text\":");
	if (rc == 0)
		rc = json_out_string(out, c->text.len ? (const char *)buf_data(&c->text) : "", c->text.len);
	if (rc == 0)
		rc = buf_append_str(out, ",\"tokens\":[");
	for (size_t i = 0; i < c->n_tokens && rc == 0; i++)
		rc = buf_printf(out, "%s%u", i > 0 ? "," : "", c->tokens[i].id);
	if (rc == 0)
		rc = buf_append_str(out, "],\"logprobs\":[");
	for (size_t i = 0; i < c->n_tokens && rc == 0; i++) {
		rc = buf_append_str(out, i > 0 ? "," : "");
		if (rc == 0)
			rc = put_float(out, c->tokens[i].logprob);
	}
	if (rc == 0)
		rc = buf_append_str(out, "]");
	if (rc != 0 || a->n_top == 0)
		return rc;
	rc = buf_append_str(out, ",\"top_logprobs\":[");
	for (size_t i = 0; i < c->n_tokens && rc == 0; i++) {
		rc = buf_append_str(out, i > 0 ? "," : "");
		if (rc == 0)
			rc = put_pairs(out, c->tops + i * a->n_top, a->n_top);
	}
	return rc != 0 ? rc : buf_append_str(out, "]");
}

static int put_choices(struct sl_buf *out, const struct model_answer *a)
{
	int rc = buf_append_str(out, "\"choices\":[");
	for (int i = 0; i < a->n_choices && rc == 0; i++) {
		const struct model_choice *c = &a->choices[i];
		rc = buf_append_str(out, i > 0 ? ",{" : "{");
		if (rc == 0)
			rc = put_choice(out, a, c);
		if (rc == 0)
			rc = buf_printf(
			    out, ",\"finish_reason\":\"%s\",\"cumulative_logprob\":", finish_name(a, c->end.finish));
		if (rc == 0)
			rc = put_float(out, c->end.cumulative_logprob);
		if (rc == 0)
			rc = buf_append_str(out, "}");
	}
	return rc != 0 ? rc : buf_append_str(out, "]");
}

static int put_prompt(struct sl_buf *out, const struct model_answer *a)
{
	size_t each = 1u + a->n_prompt_top;
	int rc = buf_append_str(out, ",\"prompt_logprobs\":[");
	for (size_t i = 0; i < a->n_prompt && rc == 0; i++) {
		const struct proto_id_f32 *at = a->prompt + i * each;
		rc = buf_printf(out, "%s{\"id\":%u,\"logprob\":", i > 0 ? "," : "", at->id);
		if (rc == 0)
			rc = put_float(out, at->v);
		if (rc == 0 && a->n_prompt_top > 0) {
			rc = buf_append_str(out, ",\"top\":");
			if (rc == 0)
				rc = put_pairs(out, at + 1, isfinite(at->v) ? a->n_prompt_top : 0);
		}
		if (rc == 0)
			rc = buf_append_str(out, "}");
	}
	return rc != 0 ? rc : buf_append_str(out, "]");
}

static int put_answer(struct sl_buf *line, const struct model_answer *a)
{
	int rc = buf_append_str(line, "{");
	if (rc == 0 && a->id != NULL) {
		char *id = json_dumps(a->id, JSON_ENCODE_ANY | JSON_COMPACT);
		rc = id != NULL ? buf_printf(line, "\"id\":%s,", id) : SL_ENOMEM;
		free(id);
	}
	if (rc == 0)
		rc = a->n_choices > 1 ? put_choices(line, a) : put_choice(line, a, &a->choices[0]);
	if (rc == 0 && a->prompt != NULL)
		rc = put_prompt(line, a);
	if (rc == 0)
		rc = buf_printf(line, ",\"finish_reason\":\"%s\",\"n_prompt\":%u", finish_name(a, a->end.finish),
				a->end.n_prompt);
	if (rc == 0 && a->message[0] != '\0') {
		rc = buf_append_str(line, ",\"error\":");
		if (rc == 0)
			rc = json_out_string(line, a->message, strlen(a->message));
	}
	return rc != 0 ? rc : buf_append_str(line, "}\n");
}

static int write_out(const struct sl_buf *b)
{
	return b->len == 0 || fwrite(buf_data(b), 1, b->len, stdout) == b->len ? 0 : SL_EIO;
}

int model_answer_print_json(const struct model_answer *a)
{
	struct sl_buf line;
	buf_init(&line, (size_t)8 * MAX_ANSWER);
	int rc = put_answer(&line, a);
	if (rc == 0)
		rc = write_out(&line);
	buf_dispose(&line);
	return rc;
}

/* ---- for people ---- */

static void print_pairs(const struct proto_id_f32 *pairs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		printf("  %u %.4f", pairs[i].id, (double)pairs[i].v);
}

static int print_tokens(const struct model_answer *a, const struct model_choice *c)
{
	struct sl_buf text;
	size_t at = 0;
	buf_init(&text, MAX_ANSWER);
	puts("   token     logprob  text; the likeliest, with theirs");
	for (size_t i = 0; i < c->n_tokens; i++) {
		size_t n = c->tokens[i].n_bytes;
		buf_clear(&text, 4096);
		int rc = json_out_string(&text, n > 0 ? (const char *)buf_data(&c->text) + at : "", n);
		if (rc != 0) {
			buf_dispose(&text);
			return rc;
		}
		at += n;
		printf("%8u %11.4f  %.*s", c->tokens[i].id, (double)c->tokens[i].logprob, (int)text.len,
		       (const char *)buf_data(&text));
		print_pairs(c->tops + i * a->n_top, a->n_top);
		putchar('\n');
	}
	buf_dispose(&text);
	return 0;
}

static void print_prompt(const struct model_answer *a)
{
	size_t each = 1u + a->n_prompt_top;
	puts("prompt     logprob  the likeliest, with theirs");
	for (size_t i = 0; i < a->n_prompt; i++) {
		const struct proto_id_f32 *at = a->prompt + i * each;
		if (isfinite(at->v)) {
			printf("%8u %11.4f", at->id, (double)at->v);
			print_pairs(at + 1, a->n_prompt_top);
			putchar('\n');
		} else {
			printf("%8u           -\n", at->id);
		}
	}
}

int model_answer_print(const struct model_answer *a, bool logprobs)
{
	int rc = 0;
	if (a->prompt != NULL)
		print_prompt(a);
	for (int i = 0; i < a->n_choices && rc == 0; i++) {
		const struct model_choice *c = &a->choices[i];
		if (a->n_choices > 1)
			printf("--- %d of %d: %s, log probability %.4f\n", i + 1, a->n_choices,
			       finish_name(a, c->end.finish), (double)c->end.cumulative_logprob);
		rc = write_out(&c->text);
		putchar('\n');
		if (rc == 0 && logprobs)
			rc = print_tokens(a, c);
	}
	return rc == 0 && ferror(stdout) ? SL_EIO : rc;
}
