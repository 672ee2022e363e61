/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON keys have a fixed order, and floats have nine digits, enough to tell any two apart. So the output of two runs
 * can be compared as text.
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

/* JSON has no NaN; null stands for it. */
static json_t *number(float v) { return isfinite(v) ? json_real((double)v) : json_null(); }

static json_t *pair(const struct proto_id_f32 *p)
{
	return json_pack("{s:I, s:o}", "id", (json_int_t)p->id, "logprob", number(p->v));
}

static json_t *pairs(const struct proto_id_f32 *at, size_t n)
{
	json_t *list = json_array();
	int rc = 0;
	for (size_t i = 0; i < n; i++)
		rc |= json_array_append_new(list, pair(&at[i]));
	if (rc == 0)
		return list;
	json_decref(list);
	return NULL;
}

/* set_*: 0, or nonzero if out of memory. */
static int set_choice(json_t *to, const struct model_answer *a, const struct model_choice *c)
{
	json_t *tokens = json_array(), *logprobs = json_array(), *tops = a->n_top > 0 ? json_array() : NULL;
	int rc = json_object_set_new(
	    to, "text", json_stringn(c->text.len > 0 ? (const char *)buf_data(&c->text) : "", c->text.len));
	for (size_t i = 0; i < c->n_tokens; i++) {
		rc |= json_array_append_new(tokens, json_integer(c->tokens[i].id));
		rc |= json_array_append_new(logprobs, number(c->tokens[i].logprob));
		if (a->n_top > 0)
			rc |= json_array_append_new(tops, pairs(c->tops + i * a->n_top, a->n_top));
	}
	rc |= json_object_set_new(to, "tokens", tokens);
	rc |= json_object_set_new(to, "logprobs", logprobs);
	return a->n_top > 0 ? rc | json_object_set_new(to, "top_logprobs", tops) : rc;
}

static int set_choices(json_t *to, const struct model_answer *a)
{
	json_t *list = json_array();
	int rc = 0;
	for (int i = 0; i < a->n_choices; i++) {
		const struct model_choice *c = &a->choices[i];
		json_t *choice = json_object();
		rc |= set_choice(choice, a, c);
		rc |= json_object_set_new(choice, "finish_reason", json_string(finish_name(a, c->end.finish)));
		rc |= json_object_set_new(choice, "cumulative_logprob", number(c->end.cumulative_logprob));
		rc |= json_array_append_new(list, choice);
	}
	return rc | json_object_set_new(to, "choices", list);
}

static int set_prompt(json_t *to, const struct model_answer *a)
{
	size_t each = 1u + a->n_prompt_top;
	json_t *list = json_array();
	int rc = 0;
	for (size_t i = 0; i < a->n_prompt; i++) {
		const struct proto_id_f32 *at = a->prompt + i * each;
		json_t *token = pair(at);
		if (a->n_prompt_top > 0)
			rc |= json_object_set_new(token, "top", pairs(at + 1, isfinite(at->v) ? a->n_prompt_top : 0));
		rc |= json_array_append_new(list, token);
	}
	return rc | json_object_set_new(to, "prompt_logprobs", list);
}

static int write_out(const struct sl_buf *b)
{
	return b->len == 0 || fwrite(buf_data(b), 1, b->len, stdout) == b->len ? 0 : SL_EIO;
}

int model_answer_print_json(const struct model_answer *a)
{
	json_t *o = json_object();
	int rc = a->id != NULL ? json_object_set(o, "id", a->id) : 0;
	rc |= a->n_choices > 1 ? set_choices(o, a) : set_choice(o, a, &a->choices[0]);
	if (a->prompt != NULL)
		rc |= set_prompt(o, a);
	rc |= json_object_set_new(o, "finish_reason", json_string(finish_name(a, a->end.finish)));
	rc |= json_object_set_new(o, "n_prompt", json_integer(a->end.n_prompt));
	if (a->message[0] != '\0')
		rc |= json_object_set_new(o, "error", json_string(a->message));
	char *line = rc == 0 ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
	json_decref(o);
	if (line == NULL)
		return SL_ENOMEM;
	rc = puts(line) != EOF ? 0 : SL_EIO;
	free(line);
	return rc;
}

/* ---- text ---- */

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
	puts("   token     logprob  text; likeliest tokens, each with its logprob");
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
	puts("prompt     logprob  likeliest tokens, each with its logprob");
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
