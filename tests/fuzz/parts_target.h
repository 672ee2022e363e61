/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway/parts on any tokens, for one format: PARTS_FORMAT and PARTS_THINK are its names. The events are the same
 * however the text is split, a copy that ends early has what the stream had so far, no text is lost where nothing is
 * recognized, text is never invented, repeated or reordered, and converted arguments are JSON.
 *
 * Input: a byte of flags (1: literals are control tokens, 2: starts in reasoning, 4: no tools, 8: one call), a byte
 * that says how the text is split, then text. In it, bytes below 32 that are no blank stand for the format's literals,
 * and those from 0xf8 on for pieces of calls.
 */
#include "base/utf8.h"
#include "gateway/parts/parts_priv.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/parts_rig.h"

enum { MAX_TOKENS = 3000, MAX_INPUT = 2000 };

struct token {
	int32_t id;
	const char *text;
	size_t n;
};

static struct token tokens[MAX_TOKENS];
static size_t n_tokens;
static struct parts_marker markers[PARTS_RIG_MARKERS];
static size_t n_markers;
static struct parts_tools *tools;

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const char *const seeds[] = {
	    "\x01\x05"
	    "Hi.\n\x0e\nhm\x0f\n\n\x01\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Os\\\"lo\"}}\n\x02",
	    "\x08\x03{\"name\": \"noop\", \"parameters\": {}}; {\"parameters\": {\"a\": [1]}, \"name\": \"get\"}",
	    "\x10\x01[get_weather(city=\"Oslo\", days=3), search(tags=['a', {\"b\": None}], limit=-2)] x",
	    "\x10\x02<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n<parameter=limit>\n5\n</"
	    "parameter>\n"
	    "</function>\n</tool_call>",
	    "\x10\x04<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x</arg_value>\n<arg_key>tags</"
	    "arg_key><arg_value>[1]"
	    "</arg_value></tool_call>",
	    "\x10\x04```tool_code\nprint(get_weather(city='Oslo'))\n```\n",
	    "\x11\x01\x01\x03get_weather\x06{\"city\": \"Oslo\"}\x04\x02 after",
	    "\x11\x01\x01\x03 to=functions.noop \x04json\x05{}\x06",
	    "\x11\x01\x01"
	    "call:get_weather{city:\x04x\x04,o:{a:1,b:[true]}}\x02",
	    "\x10\x07\x01\xf8{\"city\": \"x\"}\xf9\x02 \xfa \xfb \xfc \xfd \xfe",
	    "\x01\x05{\"tool_calls\": [{\"function\": {\"name\": \"noop\", \"arguments\": \"{\\\"a\\\": "
	    "\\u00e6\\ud83d\\ude00}\"}}]} "
	    "end",
	};
	return fuzz_seed_text(seeds, sizeof seeds / sizeof *seeds, i, out, max);
}

/* ---- tokens ---- */

static const struct token *piece(uint8_t byte)
{
	static const char *const texts[] = {"{\"name\": \"get_weather\", \"arguments\": ",
					    "}}\n",
					    "functions.search",
					    "\"\"\"",
					    "\n```",
					    "get_weather",
					    "\\u00e9\\ud83d",
					    "[]{}()"};
	static struct token t;
	t = (struct token){.id = -1, .text = texts[byte - 0xf8]};
	t.n = strlen(t.text);
	return &t;
}

static struct token token_of(const uint8_t *at, bool with_markers)
{
	if (*at >= 0xf8)
		return *piece(*at);
	size_t k = *at < 32 && !lex_blank(*at) ? *at : SIZE_MAX;
	k = k > '\r' && k < 32 ? k - 4 : k;
	if (k < n_markers)
		return (struct token){
		    .id = with_markers ? markers[k].id : -1, .text = markers[k].text, .n = strlen(markers[k].text)};
	return (struct token){.id = -1, .text = (const char *)at, .n = 1};
}

static void tokenize(const uint8_t *data, size_t n, bool with_markers)
{
	for (n_tokens = 0; n_tokens < n; n_tokens++)
		tokens[n_tokens] = token_of(&data[n_tokens], with_markers);
}

/* ---- streams ---- */

struct stream {
	struct parts_log log;
	struct parts *p;
	struct sl_buf args, texts; /* of the last call; content and reasoning */
};

static int on_event(void *ctx, const struct parts_event *e)
{
	struct stream *s = ctx;
	if (e->kind == PARTS_CALL_BEGIN)
		buf_clear(&s->args, SIZE_MAX);
	if (e->kind == PARTS_CALL_ARGUMENTS)
		FUZZ_REQUIRE(buf_append(&s->args, e->text, e->n) == 0);
	if (e->kind == PARTS_CALL_END && !e->cut && s->p->mode == ARGS_START &&
	    (s->p->form->syntax == PARTS_SYNTAX_PYTHON || s->p->form->syntax == PARTS_SYNTAX_TAGGED))
		FUZZ_REQUIRE(value_is_json((const char *)buf_data(&s->args), s->args.len));
	if (e->kind == PARTS_CONTENT || e->kind == PARTS_REASONING)
		FUZZ_REQUIRE(buf_append(&s->texts, e->text, e->n) == 0);
	return parts_log_event(&s->log, e);
}

static void stream_open(struct stream *s, uint8_t flags)
{
	struct parts_init init = {.starts_in_reasoning = (flags & 2) != 0,
				  .tools = (flags & 4) != 0 ? NULL : tools,
				  .one_call = (flags & 8) != 0,
				  .markers = markers,
				  .n_markers = (flags & 1) != 0 ? n_markers : 0,
				  .format = PARTS_FORMAT,
				  .reasoning = PARTS_THINK,
				  .on_event = on_event,
				  .ctx = s};
	parts_log_init(&s->log);
	s->log.newlines = true;
	buf_init(&s->args, SIZE_MAX);
	buf_init(&s->texts, SIZE_MAX);
	FUZZ_REQUIRE(parts_create(&init, &s->p) == 0);
}

static void stream_close(struct stream *s)
{
	parts_destroy(s->p);
	buf_dispose(&s->log.text);
	buf_dispose(&s->args);
	buf_dispose(&s->texts);
}

static void stream_finish(struct stream *s)
{
	FUZZ_REQUIRE(parts_finish(s->p) == 0);
	FUZZ_REQUIRE(s->log.n_begun == s->log.n_ended && s->log.n_begun == parts_calls(s->p));
}

static void feed_one(struct stream *s, const struct token *t, size_t step)
{
	if (t->id >= 0) {
		FUZZ_REQUIRE(parts_feed(s->p, t->id, "x", 1) >= 0);
		return;
	}
	for (size_t at = 0; at < t->n; at += step)
		FUZZ_REQUIRE(parts_feed(s->p, -1, t->text + at, t->n - at < step ? t->n - at : step) >= 0);
	FUZZ_REQUIRE(s->p->queue.len <= 2 * PARTS_MAX_HELD);
}

/* Text between markers at once. */
static void feed_all(struct stream *s)
{
	struct sl_buf text;
	buf_init(&text, SIZE_MAX);
	for (size_t i = 0; i <= n_tokens; i++) {
		if (i < n_tokens && tokens[i].id < 0) {
			FUZZ_REQUIRE(buf_append(&text, tokens[i].text, tokens[i].n) == 0);
			continue;
		}
		struct token t = {.id = -1, .text = (const char *)buf_data(&text), .n = text.len};
		feed_one(s, &t, SIZE_MAX / 2);
		buf_clear(&text, SIZE_MAX);
		if (i < n_tokens)
			feed_one(s, &tokens[i], 1);
	}
	buf_dispose(&text);
}

static bool begins_with(const struct sl_buf *whole, const struct sl_buf *part)
{
	return part->len <= whole->len && (part->len == 0 || memcmp(buf_data(whole), buf_data(part), part->len) == 0);
}

static void ends_here(const struct stream *s)
{
	struct stream copy = {.log = s->log};
	buf_init(&copy.log.text, SIZE_MAX);
	buf_init(&copy.args, SIZE_MAX);
	buf_init(&copy.texts, SIZE_MAX);
	FUZZ_REQUIRE(buf_append(&copy.log.text, buf_data(&s->log.text), s->log.text.len) == 0);
	FUZZ_REQUIRE(buf_append(&copy.args, buf_data(&s->args), s->args.len) == 0);
	FUZZ_REQUIRE(parts_copy(s->p, on_event, &copy, &copy.p) == 0);
	stream_finish(&copy);
	FUZZ_REQUIRE(begins_with(&copy.log.text, &s->log.text));
	stream_close(&copy);
}

/* ---- */

static void check_lossless(uint8_t flags)
{
	struct stream s;
	struct sl_buf want;
	if (parts_format_desc(PARTS_FORMAT)->control != NULL || (flags & 3) != 0)
		return;
	buf_init(&want, SIZE_MAX);
	stream_open(&s, 4);
	/* What would be reasoning is not looked for. */
	s.p->n_triggers = 0;
	feed_all(&s);
	stream_finish(&s);
	FUZZ_REQUIRE(n_tokens == 0 || buf_append_str(&want, "content \xc2\xab") == 0);
	for (size_t i = 0; i < n_tokens; i++)
		FUZZ_REQUIRE(buf_append(&want, tokens[i].text, tokens[i].n) == 0);
	FUZZ_REQUIRE(want.len == s.log.text.len && begins_with(&want, &s.log.text));
	buf_dispose(&want);
	stream_close(&s);
}

/* The input without control tokens. */
static void input_text(struct sl_buf *out)
{
	buf_init(out, SIZE_MAX);
	for (size_t i = 0; i < n_tokens; i++)
		if (tokens[i].id < 0)
			FUZZ_REQUIRE(buf_append(out, tokens[i].text, tokens[i].n) == 0);
}

static bool has_literal(const struct sl_buf *text, const char *lit)
{
	return lit != NULL && text->len > 0 && memmem(buf_data(text), text->len, lit, strlen(lit)) != NULL;
}

/* Content and reasoning are the input's bytes in its order; blanks that separate two texts may come later. Without a
 * call and reasoning, content is the input. */
static void check_texts(const struct stream *s, uint8_t flags)
{
	const struct parts_reasoning_desc *think = parts_reasoning_desc(PARTS_THINK);
	struct sl_buf text;
	size_t at = 0;
	input_text(&text);
	const uint8_t *in = buf_data(&text), *out = buf_data(&s->texts);
	for (size_t i = 0; i < s->texts.len; i++) {
		if (lex_blank(out[i]))
			continue;
		while (at < text.len && in[at] != out[i])
			at++;
		FUZZ_REQUIRE(at++ < text.len);
	}
	if (s->log.n_begun == 0 && parts_format_desc(PARTS_FORMAT)->control == NULL && (flags & 3) == 0 &&
	    !has_literal(&text, think->open) && !has_literal(&text, think->close))
		FUZZ_REQUIRE(text.len == s->texts.len && (text.len == 0 || memcmp(in, out, text.len) == 0));
	buf_dispose(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct stream whole, parts, bytes;
	if (n < 2 || n > MAX_INPUT)
		return 0;
	if (tools == NULL) {
		tools = parts_rig_tools();
		n_markers = parts_rig_markers(PARTS_FORMAT, PARTS_THINK, markers);
	}
	uint8_t flags = data[0];
	tokenize(data + 2, n - 2, (flags & 1) != 0);
	stream_open(&whole, flags);
	feed_all(&whole);
	stream_finish(&whole);
	stream_open(&parts, flags);
	stream_open(&bytes, flags);
	for (size_t i = 0; i < n_tokens; i++) {
		feed_one(&parts, &tokens[i], 1 + data[1] % 8);
		feed_one(&bytes, &tokens[i], 1);
		FUZZ_REQUIRE(begins_with(&whole.log.text, &bytes.log.text));
		FUZZ_REQUIRE(begins_with(&bytes.log.text, &parts.log.text) && bytes.log.text.len == parts.log.text.len);
		if ((i + data[1]) % 16 == 0)
			ends_here(&parts);
	}
	stream_finish(&parts);
	stream_finish(&bytes);
	FUZZ_REQUIRE(begins_with(&whole.log.text, &parts.log.text) && whole.log.text.len == parts.log.text.len);
	FUZZ_REQUIRE(begins_with(&whole.log.text, &bytes.log.text) && whole.log.text.len == bytes.log.text.len);
	if ((flags & 1) == 0 && utf8_valid(data + 2, n - 2))
		FUZZ_REQUIRE(utf8_valid(buf_data(&whole.log.text), whole.log.text.len));
	check_lossless(flags);
	check_texts(&whole, flags);
	stream_close(&whole);
	stream_close(&parts);
	stream_close(&bytes);
	return 0;
}
