/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/observe/otlp.h"

#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "base/json/json_out.h"
#include "gateway/observe/trace.h"
#include "version.h"

enum { KIND_INTERNAL = 1, KIND_SERVER = 2 };

/* What is being written; after a failure nothing more is. Small pieces gather in text: a trace has two hundred of them.
 */
struct writer {
	struct sl_buf *out;
	const struct trace *t;
	uint64_t offset_ns;
	bool first; /* of a list: no comma before it */
	int rc;
	size_t n;
	char text[4096];
};

static void flush(struct writer *w)
{
	if (w->rc == 0)
		w->rc = buf_append(w->out, w->text, w->n);
	w->n = 0;
}

static void put_bytes(struct writer *w, const char *text, size_t n)
{
	if (n > sizeof w->text - w->n)
		flush(w);
	if (n <= sizeof w->text) {
		memcpy(w->text + w->n, text, n);
		w->n += n;
	} else if (w->rc == 0) {
		w->rc = buf_append(w->out, text, n);
	}
}

static void put(struct writer *w, const char *text) { put_bytes(w, text, strlen(text)); }

static bool is_plain(const char *text)
{
	for (; *text != '\0'; text++)
		if (*text < ' ' || *text > '~' || *text == '"' || *text == '\\')
			return false;
	return true;
}

static void put_string(struct writer *w, const char *text)
{
	if (is_plain(text)) {
		put(w, "\"");
		put(w, text);
		put(w, "\"");
		return;
	}
	flush(w);
	if (w->rc == 0)
		w->rc = json_out_string(w->out, text, strlen(text));
}

/* In quotes, as OTLP has numbers of 64 bits. */
static void put_number(struct writer *w, uint64_t v)
{
	char text[24];
	size_t at = sizeof text;
	text[--at] = '"';
	do
		text[--at] = (char)('0' + v % 10);
	while ((v /= 10) > 0);
	text[--at] = '"';
	put_bytes(w, text + at, sizeof text - at);
}

static void put_key(struct writer *w, const char *name)
{
	put(w, w->first ? "{\"key\":\"" : ",{\"key\":\"");
	put(w, name);
	w->first = false;
}

static void put_text(struct writer *w, const char *name, const char *text)
{
	if (text == NULL || text[0] == '\0')
		return;
	put_key(w, name);
	put(w, "\",\"value\":{\"stringValue\":");
	put_string(w, text);
	put(w, "}}");
}

static void put_int(struct writer *w, const char *name, uint64_t n)
{
	put_key(w, name);
	put(w, "\",\"value\":{\"intValue\":");
	put_number(w, n);
	put(w, "}}");
}

static void put_time(struct writer *w, const char *name, uint64_t at_ns)
{
	put(w, ",\"");
	put(w, name);
	put(w, "\":");
	put_number(w, at_ns + w->offset_ns);
}

static void put_id(struct writer *w, const char *name, const uint8_t id[SPAN_ID_BYTES])
{
	char hex[2 * SPAN_ID_BYTES + 1];
	hex_put(id, SPAN_ID_BYTES, hex);
	put(w, ",\"");
	put(w, name);
	put(w, "\":\"");
	put(w, hex);
	put(w, "\"");
}

/* The beginning of a span, up to its times. */
static void begin(struct writer *w, const uint8_t id[SPAN_ID_BYTES], const uint8_t *parent, int kind)
{
	put(w, "{\"traceId\":\"");
	put(w, w->t->hex);
	put(w, "\"");
	put_id(w, "spanId", id);
	if (parent != NULL)
		put_id(w, "parentSpanId", parent);
	if (w->t->state[0] != '\0') {
		put(w, ",\"traceState\":");
		put_string(w, w->t->state);
	}
	put(w, kind == KIND_SERVER ? ",\"kind\":2,\"name\":" : ",\"kind\":1,\"name\":");
}

static void put_times(struct writer *w, uint64_t from_ns, uint64_t to_ns)
{
	put_time(w, "startTimeUnixNano", from_ns);
	put_time(w, "endTimeUnixNano", to_ns > from_ns ? to_ns : from_ns);
}

/* A part of the request; number: which, for its identifier, which follows from the request's. */
static void put_part(struct writer *w, uint8_t number, const char *name, uint64_t from_ns, uint64_t to_ns)
{
	uint8_t id[SPAN_ID_BYTES];
	memcpy(id, w->t->span, sizeof id);
	id[0] ^= (uint8_t)(number * 0x9d);
	put(w, ",");
	begin(w, id, w->t->span, KIND_INTERNAL);
	put_string(w, name);
	put_times(w, from_ns, to_ns);
	put(w, "}");
}

static void put_event(struct writer *w, const char *name, uint64_t at_ns)
{
	if (at_ns == 0)
		return;
	put(w, w->first ? "{\"timeUnixNano\":" : ",{\"timeUnixNano\":");
	put_number(w, at_ns + w->offset_ns);
	put(w, ",\"name\":\"");
	put(w, name);
	put(w, "\"}");
	w->first = false;
}

static void put_attributes(struct writer *w, const struct observed *o)
{
	w->first = true;
	put(w, ",\"attributes\":[");
	put_text(w, "gen_ai.operation.name", "chat");
	put_text(w, "gen_ai.provider.name", "sluice");
	put_text(w, "gen_ai.request.model", o->model);
	put_text(w, "sluice.request_id", o->request_id);
	put_text(w, "sluice.tier", o->tier);
	put_text(w, "sluice.ended_by", o->ended_by);
	put_text(w, "sluice.cascade", o->cascade);
	put_int(w, "http.response.status_code", (unsigned)o->status);
	if (o->n_prompt > 0) {
		put_int(w, "gen_ai.usage.input_tokens", o->n_prompt);
		put_int(w, "gen_ai.usage.output_tokens", o->n_answer);
		put_int(w, "sluice.cached_tokens", o->n_cached);
	}
	if (o->n_drafted > 0) {
		put_int(w, "sluice.drafted_tokens", o->n_drafted);
		put_int(w, "sluice.accepted_tokens", o->n_accepted);
	}
	put(w, "]");
}

static void put_request(struct writer *w, const struct observed *o)
{
	char name[192];
	snprintf(name, sizeof name, "chat%s%.150s", o->model[0] != '\0' ? " " : "", o->model);
	begin(w, w->t->span, w->t->has_parent ? w->t->parent : NULL, KIND_SERVER);
	put_string(w, name);
	put_times(w, o->started_ns, o->ended_ns);
	put_attributes(w, o);
	w->first = true;
	put(w, ",\"events\":[");
	put_event(w, "first token", o->first_ns);
	put_event(w, "switch", o->switched_ns);
	put(w, "]");
	if (o->failed)
		put(w, ",\"status\":{\"code\":2}"); /* error */
	put(w, "}");
}

static void put_parts(struct writer *w, const struct observed *o)
{
	uint64_t at = o->submitted_ns;
	if (!o->has_answer || at == 0)
		return;
	put_part(w, 1, "admission", o->started_ns, at);
	if (o->has_engine) {
		uint64_t prefill = at + o->queue_us * (uint64_t)1000;
		put_part(w, 2, "queue", at, prefill);
		put_part(w, 3, "prefill", prefill, prefill + o->prefill_us * (uint64_t)1000);
	} else {
		put_part(w, 2, "queue and prefill", at, o->first_ns > 0 ? o->first_ns : o->ended_ns);
	}
	if (o->first_ns > 0)
		put_part(w, 4, "decode", o->first_ns, o->ended_ns);
	if (o->switched_ns > 0)
		put_part(w, 5, "switch", o->switched_ns, o->ended_ns);
}

int otlp_print(struct sl_buf *out, const struct observed *o, const struct trace *t, uint64_t offset_ns)
{
	struct writer w;
	w.out = out;
	w.t = t;
	w.offset_ns = offset_ns;
	w.first = true;
	w.rc = 0;
	w.n = 0;
	put_request(&w, o);
	put_parts(&w, o);
	put(&w, "\n");
	flush(&w);
	return w.rc;
}

int otlp_wrap(struct sl_buf *out, const char *lines, size_t n)
{
	static const char head[] = "{\"resourceSpans\":[{\"resource\":{\"attributes\":["
				   "{\"key\":\"service.name\",\"value\":{\"stringValue\":\"sluice\"}},"
				   "{\"key\":\"service.version\",\"value\":{\"stringValue\":\"" SLUICE_VERSION "\"}}]},"
				   "\"scopeSpans\":[{\"scope\":{\"name\":\"sluice\"},\"spans\":[";
	int rc = buf_append_str(out, head);
	while (rc == 0 && n > 0) {
		const char *end = memchr(lines, '\n', n);
		size_t line = end != NULL ? (size_t)(end - lines) : n;
		rc = buf_append(out, lines, line);
		n -= end != NULL ? line + 1 : line;
		lines += line + 1;
		if (rc == 0 && n > 0)
			rc = buf_append_str(out, ",");
	}
	return rc == 0 ? buf_append_str(out, "]}]}]}") : rc;
}
