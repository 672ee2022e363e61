/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/tokenizer. The vocabulary is all bytes, then tokens and merges from the input; the rest of
 * the input is text with a trust mask. The ids' bytes must be the text again, and special tokens
 * may cover trusted bytes only.
 *
 * Input: a byte that chooses the pre-tokenizer; lines of tokens ("!text": control, "+text":
 * user-defined) up to an empty line; lines of merges up to an empty line; the text, in which each
 * \x01 turns trust on or off and goes.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "engine/token/tokenizer_source.h"
#include "tests/support/tok_make.h"
#include "tests/fuzz/fuzz.h"

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const char *const seeds[] = {
	    "0ab\naba\n!<|im_end|>\n!<|im\n\na b\nab a\n\nab aba \x01<|im_end|>\x01 <|im_end|> abab",
	    "1aa\naaaa\n+hi\n\na a\naa aa\n\naaaaaaaaa\n\n  hi \x01hi\x01 I'm 12345 !?\xFF\xC3",
	    "2\xC4\xA0"
	    "a\n!<s>\n\n\xC4\xA0 a\n\n a  a\t\r\n\x01<s><s\x01>\xE4\xB8\xAD\xF0\x9F\x98\x80",
	    "3\n\nx-y 1234567 don't\xC2\xA0",
	    "4ab\n\na b\nb c\nab bc\n\nabc ab\xE4\xB8\xAD  12\n \xCC\x81\xCC\x81",
	};
	return fuzz_seed_text(seeds, sizeof seeds / sizeof *seeds, i, out, max);
}

enum { BYTES = 256, MAX_LINES = 64 };

static char byte_text[BYTES][2];
static struct proto_str tokens[BYTES + MAX_LINES], merges[MAX_LINES];
static int32_t attrs[BYTES + MAX_LINES];

static void write_bytes(void)
{
	uint32_t next = 0x100;
	for (unsigned b = 0; b < BYTES; b++) {
		bool prints = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
		uint8_t at[4];
		int n = utf8_encode(prints ? b : next++, at);
		memcpy(byte_text[b], at, (size_t)n);
		tokens[b] = (struct proto_str){byte_text[b], (size_t)n};
		attrs[b] = TOK_NORMAL;
	}
}

/* Lines up to an empty one; returns how many. */
static size_t take_lines(const char **at, const char *end, struct proto_str *out)
{
	size_t n = 0;
	while (*at < end) {
		const char *line = *at, *stop = memchr(line, '\n', (size_t)(end - line));
		if (stop == NULL)
			stop = end;
		*at = stop < end ? stop + 1 : end;
		if (stop == line)
			break;
		if (n < MAX_LINES)
			out[n++] = (struct proto_str){line, (size_t)(stop - line)};
	}
	return n;
}

static void check(const struct tokenizer *t, const char *text, const uint8_t *trust, size_t n)
{
	struct tok_ids ids = {0};
	int rc = tokenizer_encode(t, text, n, trust, &ids);
	FUZZ_REQUIRE(rc == 0);
	size_t at = 0;
	for (size_t i = 0; i < ids.n; i++) {
		struct proto_str b = tokenizer_bytes(t, ids.ids[i]);
		FUZZ_REQUIRE(b.n > 0 && b.n <= n - at && memcmp(b.at, text + at, b.n) == 0);
		enum tok_attr attr = tokenizer_attr(t, ids.ids[i]);
		for (size_t k = 0; k < b.n && attr == TOK_CONTROL; k++)
			FUZZ_REQUIRE(trust != NULL && trust[at + k]);
		at += b.n;
	}
	FUZZ_REQUIRE(at == n);
	tok_ids_dispose(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char *const pres[] = {"gpt-2", "llama-bpe", "qwen2", "default", "deepseek-llm"};
	if (n == 0)
		return 0;
	const char *pre = pres[data[0] % (sizeof(pres) / sizeof(pres[0]))];
	const char *at = (const char *)data + 1, *end = (const char *)data + n;
	write_bytes();
	size_t n_words = take_lines(&at, end, tokens + BYTES);
	for (size_t i = BYTES; i < BYTES + n_words; i++) {
		char kind = tokens[i].at[0];
		attrs[i] = kind == '!' ? TOK_CONTROL : kind == '+' ? TOK_USER : TOK_NORMAL;
		if (attrs[i] != TOK_NORMAL) {
			tokens[i].at++;
			tokens[i].n--;
		}
	}
	size_t n_merges = take_lines(&at, end, merges);
	struct tok_source src = {.tokens = tokens,
				 .attrs = attrs,
				 .n_tokens = BYTES + n_words,
				 .n_merges = n_merges,
				 .bos = -1,
				 .eos = -1,
				 .eot = -1,
				 .unknown = -1,
				 .add_bos = -1};
	struct tokenizer *t = NULL;
	struct sl_err err;
	if (tok_make(&src, pre, merges, &t, &err) != 0)
		return 0;
	size_t left = (size_t)(end - at), len = 0;
	char *text = sl_alloc(left + 1);
	uint8_t *trust = sl_alloc(left + 1);
	FUZZ_REQUIRE(text != NULL && trust != NULL);
	bool trusted = false;
	for (; at < end; at++) {
		if (*at == 1) {
			trusted = !trusted;
			continue;
		}
		text[len] = *at;
		trust[len++] = trusted;
	}
	check(t, text, trust, len);
	check(t, text, NULL, len);
	sl_free(text);
	sl_free(trust);
	tokenizer_destroy(t);
	return 0;
}
