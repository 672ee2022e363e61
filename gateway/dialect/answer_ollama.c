/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers in the form of Ollama's API: lines of JSON, or one object. The last line, or the one object, has "done":
 * true, counts and durations. A call is one line, written once its arguments are complete; arguments are an object.
 *
 * Durations: prompt_eval is the time from admission to the first token, eval from there to the last one; load is 0,
 * since models load before they serve.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json/json_out.h"
#include "gateway/dialect/dialect.h"

enum { MAX_ARGUMENTS = 4 << 20 };

struct ollama {
	struct sl_buf arguments; /* of the call being written */
};

void *answer_ollama_create(void)
{
	struct ollama *o = sl_zalloc(sizeof *o);
	if (o != NULL)
		buf_init(&o->arguments, MAX_ARGUMENTS);
	return o;
}

static void dispose(void *own)
{
	struct ollama *o = own;
	if (o == NULL)
		return;
	buf_dispose(&o->arguments);
	sl_free(o);
}

static bool is_chat(const struct answer *a) { return a->format == &answer_ollama_chat; }
static const char *string_of(const struct sl_buf *text) { return text->len > 0 ? (const char *)buf_data(text) : ""; }

/* ---- members ---- */

/* {"model":…,"created_at":… */
static int put_head(const struct answer *a, struct sl_buf *out)
{
	char at[DIALECT_TIME_BYTES];
	uint64_t since = clock_now_ns() - a->started_ns;
	dialect_time(a->created + (int64_t)(since / NS_PER_S), (uint32_t)(since % NS_PER_S), at);
	int rc = buf_append_str(out, "{\"model\":");
	if (rc == 0)
		rc = json_out_string(out, a->model, strlen(a->model));
	return rc == 0 ? buf_printf(out, ",\"created_at\":\"%s\"", at) : rc;
}

static int put_logprobs(const struct answer *a, struct sl_buf *out)
{
	const struct sl_buf *list = &a->choices[0].logprobs[0];
	if (!a->out.wants_logprobs || list->len == 0)
		return 0;
	int rc = buf_append_str(out, ",\"logprobs\":[");
	if (rc == 0)
		rc = buf_append(out, buf_data(list), list->len);
	return rc == 0 ? buf_append_str(out, "]") : rc;
}

/* The text. A chat has it in its message object, which stays open. */
static int put_text(const struct answer *a, const char *text, size_t n, struct sl_buf *out)
{
	int rc =
	    buf_append_str(out, is_chat(a) ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"response\":");
	return rc == 0 ? json_out_string(out, text, n) : rc;
}

static int put_thinking(const char *text, size_t n, struct sl_buf *out)
{
	int rc = buf_append_str(out, ",\"thinking\":");
	return rc == 0 ? json_out_string(out, text, n) : rc;
}

static int end_message(const struct answer *a, struct sl_buf *out) { return is_chat(a) ? buf_append_str(out, "}") : 0; }

static int put_call(const struct answer_item *item, const struct sl_buf *arguments, struct sl_buf *out)
{
	int rc = buf_printf(out, "{\"id\":\"%s\",\"function\":{\"index\":%d,\"name\":", item->id, item->call);
	if (rc == 0)
		rc = json_out_string(out, item->name, strlen(item->name));
	if (rc == 0)
		rc = buf_append_str(out, ",\"arguments\":");
	if (rc == 0)
		rc = dialect_put_arguments(out, arguments);
	return rc == 0 ? buf_append_str(out, "}}") : rc;
}

static uint64_t between(uint64_t from, uint64_t to) { return from == 0 || to < from ? 0 : to - from; }

static int put_end(struct answer *a, struct sl_buf *out)
{
	const struct sse_about about = answer_about(a, ANSWER_ALL);
	const struct sse_usage u = answer_usage(a);
	const char *reason = a->choices[0].reason;
	bool is_cut = reason != NULL && strcmp(reason, "length") == 0;
	int rc = buf_printf(out, ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%llu,\"load_duration\":0",
			    is_cut ? "length" : "stop", (unsigned long long)between(a->started_ns, clock_now_ns()));
	if (rc == 0)
		rc = buf_printf(out,
				",\"prompt_eval_count\":%u,\"prompt_eval_duration\":%llu,\"eval_count\":%u,"
				"\"eval_duration\":%llu",
				u.n_prompt, (unsigned long long)between(a->admitted_ns, a->first_token_ns),
				u.n_completion, (unsigned long long)between(a->first_token_ns, a->token_ns));
	if (rc == 0)
		rc = sse_about_print(out, &about);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

/* ---- streamed ---- */

static int end_line(struct sl_buf *out, int rc) { return rc == 0 ? buf_append_str(out, ",\"done\":false}\n") : rc; }

static int text(struct answer *a, struct sl_buf *out, unsigned index, const char *at, size_t n)
{
	(void)index;
	int rc = put_head(a, out);
	if (rc == 0)
		rc = put_text(a, at, n, out);
	if (rc == 0)
		rc = end_message(a, out);
	return end_line(out, rc == 0 ? put_logprobs(a, out) : rc);
}

static int thinking(struct answer *a, struct sl_buf *out, const char *at, size_t n)
{
	int rc = put_head(a, out);
	if (rc == 0)
		rc = put_text(a, "", 0, out);
	if (rc == 0)
		rc = put_thinking(at, n, out);
	return end_line(out, rc == 0 ? end_message(a, out) : rc);
}

static int call(struct answer *a, struct sl_buf *out, const struct answer_item *item)
{
	const struct ollama *o = a->own;
	int rc = put_head(a, out);
	if (rc == 0)
		rc = put_text(a, "", 0, out);
	if (rc == 0)
		rc = buf_append_str(out, ",\"tool_calls\":[");
	if (rc == 0)
		rc = put_call(item, &o->arguments, out);
	if (rc == 0)
		rc = buf_append_str(out, "]");
	return end_line(out, rc == 0 ? end_message(a, out) : rc);
}

static int item(struct answer *a, struct sl_buf *out, unsigned index, const struct answer_item *item,
		enum answer_item_event e, const char *at, size_t n)
{
	struct ollama *o = a->own;
	if (item->kind != ANSWER_CALL) {
		if (e != ANSWER_ITEM_TEXT)
			return 0;
		return item->kind == ANSWER_REASONING ? thinking(a, out, at, n) : text(a, out, index, at, n);
	}
	switch (e) {
	case ANSWER_ITEM_OPEN: buf_clear(&o->arguments, SIZE_MAX); return 0;
	case ANSWER_ITEM_TEXT: return buf_append(&o->arguments, at, n);
	case ANSWER_ITEM_CLOSE: break;
	}
	return call(a, out, item);
}

static int end(struct answer *a, struct sl_buf *out)
{
	int rc = put_head(a, out);
	if (rc == 0)
		rc = put_text(a, "", 0, out);
	if (rc == 0)
		rc = end_message(a, out);
	if (rc == 0)
		rc = put_end(a, out);
	return rc == 0 ? buf_append_str(out, "\n") : rc;
}

static int error(struct answer *a, struct sl_buf *out, const struct api_error *e, const char *message)
{
	int rc = ollama_form.print_error(out, a->x, e, message);
	return rc == 0 ? buf_append_str(out, "\n") : rc;
}

/* A line without text, because clients parse every line. */
static int ping(struct answer *a, struct sl_buf *out)
{
	int rc = put_head(a, out);
	if (rc == 0)
		rc = put_text(a, "", 0, out);
	return end_line(out, rc == 0 ? end_message(a, out) : rc);
}

/* ---- whole ---- */

static int gather(const struct answer *a, enum answer_item_kind kind, struct sl_buf *all)
{
	buf_clear(all, SIZE_MAX);
	return answer_parts_text(a->choices[0].parts, kind, all);
}

static int put_calls(const struct answer_parts *p, struct sl_buf *out)
{
	int rc = answer_parts_calls(p) > 0 ? buf_append_str(out, ",\"tool_calls\":[") : 0;
	for (size_t i = 0; rc == 0 && p != NULL && i < p->n_items; i++) {
		if (p->items[i].kind != ANSWER_CALL)
			continue;
		rc = p->items[i].call > 0 ? buf_append_str(out, ",") : 0;
		if (rc == 0)
			rc = put_call(&p->items[i], &p->items[i].text, out);
	}
	return rc == 0 && answer_parts_calls(p) > 0 ? buf_append_str(out, "]") : rc;
}

/* Text, thinking and calls. */
static int put_message(const struct answer *a, struct sl_buf *out)
{
	const struct answer_choice *c = &a->choices[0];
	struct sl_buf *all = &a->app->list;
	if (a->split == NULL)
		return put_text(a, string_of(&c->text), c->text.len, out);
	int rc = gather(a, ANSWER_CONTENT, all);
	if (rc == 0)
		rc = put_text(a, string_of(all), all->len, out);
	if (rc == 0)
		rc = gather(a, ANSWER_REASONING, all);
	if (rc == 0 && all->len > 0)
		rc = put_thinking(string_of(all), all->len, out);
	return rc == 0 ? put_calls(c->parts, out) : rc;
}

static int whole(struct answer *a, struct sl_buf *out)
{
	int rc = put_head(a, out);
	if (rc == 0)
		rc = put_message(a, out);
	if (rc == 0)
		rc = end_message(a, out);
	if (rc == 0)
		rc = put_logprobs(a, out);
	return rc == 0 ? put_end(a, out) : rc;
}

static int logprob(struct answer *a, struct answer_choice *c, const struct gen_token *t)
{
	return answer_put_logprob(a, &c->logprobs[0], t);
}

#define FORMAT(param_, item_)                                                                            \
	{                                                                                                \
		.id_prefix = "ollama-", .prompt_param = param_, .text = text, .item = item_, .end = end, \
		.error = error, .ping = ping, .whole = whole, .logprob = logprob, .dispose = dispose     \
	}

const struct answer_format answer_ollama_chat = FORMAT("messages", item),
			   answer_ollama_generate = FORMAT("prompt", item), answer_ollama_raw = FORMAT("prompt", NULL);
