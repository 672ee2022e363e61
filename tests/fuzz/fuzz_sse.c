/* SPDX-License-Identifier: Apache-2.0
 *
 * The encoder of streamed completions and a reader of event streams, against each other: what the
 * reader finds in the encoder's bytes, however they are cut, is what was encoded. And the reader alone
 * on any bytes: it finds the same events in one piece as in many.
 *
 * Input: a byte of choices (shape, padding, usage, piece length), then texts, each ended by 0xff.
 */
#include <jansson.h>
#include <string.h>

#include "base/utf8.h"
#include "base/http/sse_read.h"
#include "gateway/answer/sse.h"
#include "tests/fuzz/fuzz.h"

enum { MAX_EVENTS = 64 };

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const char *const seeds[] = {
	    "\x01hello\xff \"you\"\n\xff\\\b\x01\x7f\xff\xe2\x80\xa8",
	    "\x1f\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7\xff\xec\x95\x88\xff\xff",
	    "\x02"
	    "data: x\n\ndata: y\r\rid: 4\r\n: c\n\ndata\ndata:z\n\n",
	    "\x06\xef\xbb\xbf"
	    "data: 1\n\n\n\nevent: e\ndata: a\ndata: b\n\n",
	};
	return fuzz_seed_text(seeds, sizeof seeds / sizeof *seeds, i, out, max);
}

struct found {
	struct sl_buf bytes; /* each event's data, ended by a NUL */
	size_t n;
};

static void on_event(void *ctx, const char *data, size_t n)
{
	struct found *f = ctx;
	FUZZ_REQUIRE(buf_append(&f->bytes, data, n) == 0 && buf_append(&f->bytes, "", 1) == 0);
	f->n++;
}

static void read_in(size_t piece, const void *bytes, size_t n, struct found *f)
{
	struct sse_read r;
	buf_init(&f->bytes, 1 << 20);
	f->n = 0;
	sse_read_init(&r, SSE_READ_MAX, on_event, f);
	for (size_t from = 0; from < n; from += piece)
		FUZZ_REQUIRE(sse_read_feed(&r, (const uint8_t *)bytes + from, n - from < piece ? n - from : piece) ==
			     0);
	sse_read_dispose(&r);
}

static void same_in_pieces(const uint8_t *data, size_t n, size_t piece)
{
	struct found whole, cut;
	read_in(n > 0 ? n : 1, data, n, &whole);
	read_in(piece, data, n, &cut);
	FUZZ_REQUIRE(whole.n == cut.n && whole.bytes.len == cut.bytes.len);
	FUZZ_REQUIRE(whole.bytes.len == 0 || memcmp(buf_data(&whole.bytes), buf_data(&cut.bytes), cut.bytes.len) == 0);
	buf_dispose(&whole.bytes);
	buf_dispose(&cut.bytes);
}

struct text {
	const char *at;
	size_t n;
};

/* Those that are text at all: the engine's always are. */
static size_t split(const uint8_t *data, size_t n, struct text out[MAX_EVENTS])
{
	size_t k = 0;
	while (n > 0 && k < MAX_EVENTS) {
		const uint8_t *end = memchr(data, 0xff, n);
		size_t len = end != NULL ? (size_t)(end - data) : n;
		if (utf8_valid(data, len))
			out[k++] = (struct text){(const char *)data, len};
		size_t used = len + (end != NULL);
		data += used;
		n -= used;
	}
	return k;
}

/* What the event says of its one choice. */
static void check_event(const char *json, const struct text *t, bool chat, unsigned index)
{
	json_t *o = json_loads(json, JSON_ALLOW_NUL, NULL);
	json_t *choice = json_array_get(json_object_get(o, "choices"), 0);
	json_t *text =
	    chat ? json_object_get(json_object_get(choice, "delta"), "content") : json_object_get(choice, "text");
	FUZZ_REQUIRE(o != NULL && json_is_string(text));
	FUZZ_REQUIRE(json_string_length(text) == t->n && memcmp(json_string_value(text), t->at, t->n) == 0);
	FUZZ_REQUIRE(json_integer_value(json_object_get(choice, "index")) == (json_int_t)index);
	json_decref(o);
}

static void round_trip(uint8_t choices, const uint8_t *data, size_t n)
{
	struct text texts[MAX_EVENTS];
	size_t n_texts = split(data, n, texts);
	bool chat = choices & 1, pad = choices & 2, usage = choices & 4;
	struct sse_stream s;
	struct sse_rest *last = NULL;
	struct sl_buf out;
	struct found f;
	buf_init(&out, 1 << 20);
	FUZZ_REQUIRE(sse_init(&s, chat ? &sse_chat_shape : &sse_completion_shape, "id", "a \"model\"\n", 1, usage, pad,
			      &last) == 0);
	for (size_t i = 0; i < n_texts; i++) {
		size_t before = out.len;
		FUZZ_REQUIRE(sse_content(&s, &out, (unsigned)i, texts[i].at, texts[i].n, NULL) == 0);
		FUZZ_REQUIRE(!pad || (out.len - before) % 64 == 0);
		FUZZ_REQUIRE(sse_ping(&out) == 0);
	}
	FUZZ_REQUIRE(sse_done(&out) == 0);
	read_in(1 + choices / 8u, buf_data(&out), out.len, &f);
	FUZZ_REQUIRE(f.n == n_texts + 1);
	const char *at = (const char *)buf_data(&f.bytes);
	for (size_t i = 0; i < n_texts; i++, at += strlen(at) + 1)
		check_event(at, &texts[i], chat, (unsigned)i);
	FUZZ_REQUIRE(strcmp(at, "[DONE]") == 0);
	buf_dispose(&f.bytes);
	buf_dispose(&out);
	sse_dispose(&s);
	sse_rest_unref(last);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n == 0 || n > 4096)
		return 0;
	same_in_pieces(data + 1, n - 1, 1 + data[0] / 8u);
	round_trip(data[0], data + 1, n - 1);
	return 0;
}
