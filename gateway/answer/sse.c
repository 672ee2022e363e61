/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/answer/sse.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/json/json_out.h"

enum {
	MAX_HEAD = 4096,
	INDEX_BYTES = 12,
	/* Padded events have one of few lengths: an observer of the encrypted stream can't read the tokens'
	 * lengths from it (Weiss et al., "What Was Your Prompt?", 2024). */
	PAD_TO = 64,
};

const struct sse_shape sse_chat_shape = {
    .object = "chat.completion.chunk",
    .role = ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"}",
    .text = ",\"delta\":{\"content\":\"",
    .after = "\"}",
    .empty = ",\"delta\":{}",
};

const struct sse_shape sse_completion_shape = {
    .object = "text_completion",
    .text = ",\"text\":\"",
    .after = "\"",
    .empty = ",\"text\":\"\"",
};

static const char before_id[] = "data: {\"id\":\"";

void sse_rest_unref(struct sse_rest *r)
{
	if (r != NULL && --r->refs == 0)
		sl_free(r);
}

static bool rest_fits(const struct sse_rest *r, const struct sse_shape *shape, const char *model, size_t n_model,
		      int64_t created)
{
	return r != NULL && r->shape == shape && r->created == created && r->n_model == n_model &&
	       memcmp(r->text, model, n_model) == 0;
}

static struct sse_rest *rest_create(const struct sse_shape *shape, const char *model, size_t n_model, int64_t created)
{
	struct sse_rest *r = NULL;
	struct sl_buf text;
	buf_init(&text, MAX_HEAD);
	if (buf_append(&text, model, n_model) == 0 &&
	    buf_printf(&text, "\",\"object\":\"%s\",\"created\":%lld,\"model\":", shape->object, (long long)created) ==
		0 &&
	    json_out_string(&text, model, n_model) == 0 &&
	    buf_append_str(&text, ",\"system_fingerprint\":null,\"choices\":[") == 0 &&
	    (r = sl_alloc(sizeof *r + text.len)) != NULL) {
		*r = (struct sse_rest){
		    .refs = 1, .shape = shape, .created = created, .n_model = n_model, .n = text.len - n_model};
		memcpy(r->text, buf_data(&text), text.len);
	}
	buf_dispose(&text);
	return r;
}

int sse_init(struct sse_stream *s, const struct sse_shape *shape, const char *id, const char *model, int64_t created,
	     bool include_usage, bool obfuscate, struct sse_rest **last)
{
	size_t n_model = strlen(model);
	*s = (struct sse_stream){
	    .shape = shape, .id = id, .n_id = strlen(id), .include_usage = include_usage, .obfuscate = obfuscate};
	if (!rest_fits(*last, shape, model, n_model, created)) {
		struct sse_rest *r = rest_create(shape, model, n_model, created);
		if (r == NULL)
			return SL_ENOMEM;
		sse_rest_unref(*last);
		*last = r;
	}
	s->rest = *last;
	s->rest->refs++;
	return 0;
}

void sse_dispose(struct sse_stream *s)
{
	sse_rest_unref(s->rest);
	s->rest = NULL;
}

static char *put(char *p, const void *at, size_t n)
{
	memcpy(p, at, n);
	return p + n;
}

static char *put_str(char *p, const char *s) { return put(p, s, strlen(s)); }

/* From "data: {" to just before the choices. */
static size_t head_bytes(const struct sse_stream *s) { return sizeof before_id - 1 + s->n_id + s->rest->n; }

static char *put_head(char *p, const struct sse_stream *s)
{
	p = put(put(p, before_id, sizeof before_id - 1), s->id, s->n_id);
	return put(p, s->rest->text + s->rest->n_model, s->rest->n);
}

static char *put_index(char *p, unsigned index)
{
	char digits[INDEX_BYTES];
	int n = 0;
	do
		digits[n++] = (char)('0' + index % 10);
	while ((index /= 10) > 0);
	while (n > 0)
		*p++ = digits[--n];
	return p;
}

/* ,"obfuscation":"…" after so_far bytes of an event that is then closed by `}` and a blank line. */
static char *put_pad(char *p, size_t so_far)
{
	static const char before[] = ",\"obfuscation\":\"";
	p = put(p, before, sizeof before - 1);
	so_far += sizeof before - 1 + strlen("\"}\n\n");
	size_t n = (PAD_TO - so_far % PAD_TO) % PAD_TO;
	memset(p, '.', n);
	return put_str(p + n, "\"");
}

int sse_pad(struct sl_buf *out, size_t so_far)
{
	uint8_t *at;
	int rc = buf_reserve(out, 2 * PAD_TO, &at);
	if (rc == 0)
		buf_commit(out, (size_t)(put_pad((char *)at, so_far) - (char *)at));
	return rc;
}

enum { MAX_ABOUT = 512 };

/* What sse_about_print prints, but for what the cascade did and the last brace; its length. */
static size_t about_text(char out[MAX_ABOUT], const struct sse_about *about)
{
	const char *by = about->ended_by, *how = about->degraded, *members = about->members;
	bool cascade = about->cascade != NULL;
	if (by == NULL && how == NULL && members == NULL && !cascade)
		return 0;
	int n = snprintf(out, MAX_ABOUT, ",\"sluice\":{%s%s%s%s%s%s%s%s%s%s%s", by != NULL ? "\"ended_by\":\"" : "",
			 by != NULL ? by : "", by != NULL ? "\"" : "", by != NULL && how != NULL ? "," : "",
			 how != NULL ? "\"degraded\":\"" : "", how != NULL ? how : "", how != NULL ? "\"" : "",
			 members != NULL && (by != NULL || how != NULL) ? "," : "", members != NULL ? members : "",
			 cascade && (by != NULL || how != NULL || members != NULL) ? "," : "",
			 cascade ? "\"cascade\":" : "");
	BUG_IF(n < 0 || n >= MAX_ABOUT, "metadata of an answer do not fit");
	return (size_t)n;
}

/* One choice: the envelope, the text, logprobs and reason. Takes everything back on failure. */
static int event(const struct sse_stream *s, struct sl_buf *out, unsigned index, const char *before, const char *text,
		 size_t n, const char *after, const struct sl_buf *logprobs, const char *reason,
		 const struct sse_about *about, const struct sl_buf *more)
{
	static const char tail[] = "}]", usage[] = ",\"usage\":null";
	size_t n_logprobs = logprobs != NULL ? logprobs->len : 4, n_about = 0, n_cascade = 0;
	size_t n_more = more != NULL ? more->len : 0;
	char about_at[MAX_ABOUT];
	if (about != NULL) {
		n_about = about_text(about_at, about);
		n_cascade = about->cascade != NULL ? about->n_cascade : 0;
	}
	size_t most = head_bytes(s) + INDEX_BYTES + strlen(before) + JSON_ESCAPED_MAX(n) + strlen(after) + n_logprobs +
		      strlen(reason) + n_about + n_cascade + n_more + 160 + PAD_TO;
	uint8_t *at;
	int rc = buf_reserve(out, most, &at);
	if (rc != 0)
		return rc;
	char *p = put_str(put_head((char *)at, s), "{\"index\":");
	p = put_str(put_index(p, index), before);
	p = put_str(json_escape(p, text, n), after);
	p = put_str(p, ",\"logprobs\":");
	p = logprobs != NULL ? put(p, buf_data(logprobs), logprobs->len) : put_str(p, "null");
	p = put_str(put_str(p, ",\"finish_reason\":"), reason);
	if (n_more > 0)
		p = put(p, buf_data(more), n_more);
	p = put(p, tail, sizeof tail - 1);
	if (s->include_usage)
		p = put(p, usage, sizeof usage - 1);
	if (n_about > 0) {
		p = put(p, about_at, n_about);
		if (n_cascade > 0)
			p = put(p, about->cascade, n_cascade);
		*p++ = '}';
	}
	if (s->obfuscate)
		p = put_pad(p, (size_t)(p - (char *)at));
	p = put(p, "}\n\n", 3);
	buf_commit(out, (size_t)(p - (char *)at));
	return 0;
}

int sse_role(const struct sse_stream *s, struct sl_buf *out, unsigned index)
{
	return event(s, out, index, s->shape->role, "", 0, "", NULL, "null", NULL, NULL);
}

int sse_content(const struct sse_stream *s, struct sl_buf *out, unsigned index, const char *text, size_t n,
		const struct sl_buf *logprobs)
{
	return sse_content_more(s, out, index, text, n, logprobs, NULL);
}

int sse_content_more(const struct sse_stream *s, struct sl_buf *out, unsigned index, const char *text, size_t n,
		     const struct sl_buf *logprobs, const struct sl_buf *more)
{
	return event(s, out, index, s->shape->text, text, n, s->shape->after, logprobs, "null", NULL, more);
}

int sse_delta(const struct sse_stream *s, struct sl_buf *out, unsigned index, const struct sl_buf *delta)
{
	struct sl_buf before;
	buf_init(&before, delta->len + 16);
	int rc = buf_append_str(&before, ",\"delta\":");
	if (rc == 0)
		rc = buf_append(&before, buf_data(delta), delta->len);
	if (rc == 0)
		rc = buf_append(&before, "", 1);
	if (rc == 0)
		rc = event(s, out, index, (const char *)buf_data(&before), "", 0, "", NULL, "null", NULL, NULL);
	buf_dispose(&before);
	return rc;
}

int sse_finish(const struct sse_stream *s, struct sl_buf *out, unsigned index, const char *reason,
	       const struct sse_about *about, const struct sl_buf *more)
{
	char quoted[64];
	snprintf(quoted, sizeof quoted, "\"%s\"", reason);
	return event(s, out, index, s->shape->empty, "", 0, "", NULL, quoted, about, more);
}

int sse_about_print(struct sl_buf *out, const struct sse_about *about)
{
	char text[MAX_ABOUT];
	size_t n = about_text(text, about);
	if (n == 0)
		return 0;
	int rc = buf_append(out, text, n);
	if (rc == 0 && about->cascade != NULL)
		rc = buf_append(out, about->cascade, about->n_cascade);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

int usage_print(struct sl_buf *out, const struct sse_usage *u)
{
	int rc;
	if ((rc = buf_append_str(out, "{\"prompt_tokens\":")) == 0 && (rc = buf_append_uint(out, u->n_prompt)) == 0 &&
	    (rc = buf_append_str(out, ",\"completion_tokens\":")) == 0 &&
	    (rc = buf_append_uint(out, u->n_completion)) == 0 &&
	    (rc = buf_append_str(out, ",\"total_tokens\":")) == 0 &&
	    (rc = buf_append_uint(out, (uint64_t)u->n_prompt + u->n_completion)) == 0 &&
	    (rc = buf_append_str(out, ",\"prompt_tokens_details\":{\"cached_tokens\":")) == 0 &&
	    (rc = buf_append_uint(out, u->n_cached)) == 0)
		rc = buf_append_str(out, "}");
	if (rc == 0 && u->n_reasoning > 0)
		rc = buf_printf(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":%u}", u->n_reasoning);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

int sse_usage_event(const struct sse_stream *s, struct sl_buf *out, const struct sse_usage *u)
{
	size_t start = out->len;
	uint8_t *at;
	int rc = buf_reserve(out, head_bytes(s), &at);
	if (rc == 0)
		buf_commit(out, (size_t)(put_head((char *)at, s) - (char *)at));
	if (rc == 0 && (rc = buf_append_str(out, "],\"usage\":")) == 0 && (rc = usage_print(out, u)) == 0 &&
	    (rc = buf_append_str(out, "}\n\n")) == 0)
		return 0;
	buf_cut(out, start);
	return rc;
}

int sse_done(struct sl_buf *out) { return buf_append_str(out, "data: [DONE]\n\n"); }

int sse_error(struct sl_buf *out, const struct api_error *e, const char *message)
{
	size_t start = out->len;
	int rc;
	if ((rc = buf_append_str(out, "data: ")) == 0 && (rc = api_error_print(out, e, message)) == 0 &&
	    (rc = buf_append_str(out, "\n\n")) == 0)
		return 0;
	buf_cut(out, start);
	return rc;
}

int sse_ping(struct sl_buf *out) { return buf_append_str(out, ": ping\n"); }
