/* SPDX-License-Identifier: Apache-2.0
 *
 * What an upstream sends, as a stream of events and as an error's body: the tokens that come of it stay within their
 * bounds, their text is whole characters, and it is the same however the bytes are cut.
 *
 * Input: a byte of choices (chat or text, log probabilities, choices, piece length), then the stream.
 */
#include <string.h>

#include "base/http/sse_read.h"
#include "base/utf8.h"
#include "engine/remote/remote_answer.h"
#include "engine/remote/remote_fault.h"
#include "tests/fuzz/fuzz.h"

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const char *const seeds[] = {
	    "\x01"
	    "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n"
	    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a \\ud83d\\ude00\"}}]}\n\n"
	    "data: "
	    "{\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\","
	    "\"arguments\":"
	    "\"{\\\"a\\\":\"}}]}}]}\n\n"
	    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
	    "\x0e"
	    "data: "
	    "{\"choices\":[{\"index\":1,\"text\":\"ab\",\"logprobs\":{\"tokens\":[\"a\",\"b\"],\"token_logprobs\":[-1,"
	    "null],"
	    "\"top_logprobs\":[{\"a\":-1,\"c\":-2},null]}}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}"
	    "\n\n",
	    "\x03"
	    "data: "
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"logprobs\":{\"content\":[{\"token\":\"x\","
	    "\"logprob\":-1,"
	    "\"bytes\":[120],\"top_logprobs\":[{\"token\":\"y\",\"logprob\":-2}]}]}}]}\r\n\r\ndata: "
	    "{\"error\":{\"message\":\"m\"}}\r\n\r\n",
	    "\x05{\"error\":{\"message\":\"maximum context length\",\"code\":5,\"param\":\"tools\"}}",
	};
	return fuzz_seed_text(seeds, sizeof seeds / sizeof *seeds, i, out, max);
}

struct run {
	struct proto_submit asked;
	struct remote_answer a;
	struct remote_frame f;
	struct sl_buf text;
	bool bad;
};

static void on_event(void *ctx, const char *data, size_t n)
{
	struct run *r = ctx;
	r->bad = r->bad || !remote_answer_event(&r->a, data, n);
}

static void check_frame(struct run *r)
{
	const struct proto_tokens *t = &r->f.tokens;
	size_t n = 0;
	FUZZ_REQUIRE(t->n >= 1 && t->n <= 7 && t->choice < r->asked.n && t->n_top <= r->asked.n_top_logprobs);
	for (uint16_t i = 0; i < t->n; i++) {
		FUZZ_REQUIRE(r->f.list[i].n_bytes <= REMOTE_TOKEN_TEXT);
		FUZZ_REQUIRE(utf8_valid(t->text.at + n, r->f.list[i].n_bytes));
		n += r->f.list[i].n_bytes;
		FUZZ_REQUIRE(t->pieces.of == NULL || t->pieces.of(t->pieces.ctx, r->f.list[i].id).n <= PROTO_MAX_PIECE);
	}
	FUZZ_REQUIRE(n == t->text.n);
}

static void drain(struct run *r)
{
	enum remote_next next;
	while ((next = remote_answer_next(&r->a)) != REMOTE_NEXT_NONE) {
		if (next == REMOTE_NEXT_END) {
			FUZZ_REQUIRE(remote_answer_take_end(&r->a) < r->asked.n);
			continue;
		}
		FUZZ_REQUIRE(remote_answer_look(&r->a, 7, &r->f) == 0);
		check_frame(r);
		FUZZ_REQUIRE(buf_append(&r->text, r->f.tokens.text.at, r->f.tokens.text.n) == 0);
		remote_answer_drop(&r->a, &r->f);
	}
}

static void read_in(uint8_t how, size_t piece, const uint8_t *data, size_t n, struct run *r)
{
	struct sse_read sse;
	bool logprobs = how & 2;
	*r = (struct run){.asked = {PROTO_SUBMIT_OFF, .prompt_kind = how & 1 ? PROTO_PROMPT_CHAT : PROTO_PROMPT_TEXT,
				    .max_tokens = 100, .flags = logprobs ? PROTO_SUBMIT_WANT_LOGPROBS : 0,
				    .n_top_logprobs = logprobs ? 2 : 0}};
	r->asked.n = r->asked.best_of = how & 4 ? 2 : 1;
	remote_answer_init(&r->a, &r->asked, 100);
	remote_frame_init(&r->f);
	buf_init(&r->text, 1 << 20);
	sse_read_init(&sse, REMOTE_EVENT_MAX, on_event, r);
	for (size_t from = 0; from < n && !r->bad; from += piece) {
		FUZZ_REQUIRE(sse_read_feed(&sse, data + from, n - from < piece ? n - from : piece) == 0);
		drain(r);
	}
	drain(r);
	FUZZ_REQUIRE(remote_answer_tokens(&r->a) <= 200);
	sse_read_dispose(&sse);
	remote_answer_dispose(&r->a);
	remote_frame_dispose(&r->f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct run whole, cut;
	struct remote_error e;
	if (n == 0 || n > 8192)
		return 0;
	read_in(data[0], n, data + 1, n - 1, &whole);
	read_in(data[0], 1 + data[0] / 8u, data + 1, n - 1, &cut);
	FUZZ_REQUIRE(whole.bad == cut.bad && whole.text.len == cut.text.len);
	FUZZ_REQUIRE(whole.text.len == 0 || memcmp(buf_data(&whole.text), buf_data(&cut.text), cut.text.len) == 0);
	buf_dispose(&whole.text);
	buf_dispose(&cut.text);
	if (remote_error_read((const char *)data + 1, n - 1, &e))
		FUZZ_REQUIRE(utf8_valid(e.message, strlen(e.message)) && utf8_valid(e.code, strlen(e.code)));
	return 0;
}
