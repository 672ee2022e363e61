/* SPDX-License-Identifier: Apache-2.0
 *
 * A tokenizer of a few tokens over a and b, with duplicates, control, unused and byte tokens, for tests of grammars.
 */
#ifndef TESTS_SMALL_VOCAB_H
#define TESTS_SMALL_VOCAB_H

#include "base/utf8.h"
#include "engine/token/tokenizer.h"
#include "tests/support/tok_make.h"

/* Then come the 256 bytes. */
static const struct {
	const char *text;
	int32_t attr;
} small_list[] = {{"aa", TOK_NORMAL},   {"ab", TOK_NORMAL},   {"ba", TOK_NORMAL},  {"bb", TOK_NORMAL},
		  {"aab", TOK_NORMAL},  {"abab", TOK_NORMAL}, {"bbb", TOK_NORMAL}, {"<end>", TOK_CONTROL},
		  {"aaaa", TOK_NORMAL}, {"ab", TOK_USER},     {"<u>", TOK_UNUSED}, {"a", TOK_CONTROL},
		  {"b", TOK_NORMAL}};
enum {
	SMALL_LIST = sizeof(small_list) / sizeof(small_list[0]),
	SMALL_TOKENS = SMALL_LIST + 256,
	SMALL_WORDS = (SMALL_TOKENS + 31) / 32
};

static struct tokenizer *small_tokenizer;

static inline bool small_is_text(int32_t id)
{
	return id >= SMALL_LIST || small_list[id].attr == TOK_NORMAL || small_list[id].attr == TOK_USER;
}

static inline void small_open(void)
{
	static char bytes[256][4];
	struct proto_str tokens[SMALL_TOKENS];
	int32_t attrs[SMALL_TOKENS];
	struct sl_err err;
	uint32_t next = 0x100;
	for (int i = 0; i < SMALL_LIST; i++) {
		tokens[i] = (struct proto_str){small_list[i].text, strlen(small_list[i].text)};
		attrs[i] = small_list[i].attr;
	}
	for (unsigned b = 0; b < 256; b++) {
		bool prints = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
		int n = utf8_encode(prints ? b : next++, (uint8_t *)bytes[b]);
		tokens[SMALL_LIST + b] = (struct proto_str){bytes[b], (size_t)n};
		attrs[SMALL_LIST + b] = TOK_NORMAL;
	}
	struct tok_source src = {.tokens = tokens,
				 .attrs = attrs,
				 .n_tokens = SMALL_TOKENS,
				 .bos = -1,
				 .eos = 7,
				 .eot = -1,
				 .unknown = -1,
				 .add_bos = -1};
	if (tok_make(&src, "gpt-2", NULL, &small_tokenizer, &err) != 0)
		fail_msg("%s", err.text);
}

static inline void small_close(void) { tokenizer_destroy(small_tokenizer); }

#endif
