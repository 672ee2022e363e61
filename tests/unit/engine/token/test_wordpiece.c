/* SPDX-License-Identifier: Apache-2.0
 *
 * WordPiece with BERT's normalizer, from tokenizer.json and as GGUF has it: what comes of texts is written down by
 * hand; and, over random words, that pieces put together are the word.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/token/tokenizer_source.h"
#include "engine/token/wordpiece.h"

#define VOCAB                                                                                                    \
	"\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"un\":4,\"##aff\":5,\"##able\":6,\"a\":7,\"##a\":8,"   \
	"\"cafe\":9,\"##s\":10,\",\":11,\"!\":12,\"\xe4\xb8\xad\":13,\"\xe5\x9b\xbd\":14,\"##\xe5\x9b\xbd\":15," \
	"\"strasse\":16,\"x\":17,\"##x\":18,\"$\":19,\"Un\":20,\"caf\xc3\xa9\":21,\"##\xc3\xa9\":22,\"aff\":23"

static struct tokenizer *make(const char *normalizer, const char *post)
{
	char json[4096];
	struct tokenizer *t = NULL;
	struct sl_err err = {0};
	snprintf(
	    json, sizeof json,
	    "{\"added_tokens\":[{\"id\":2,\"content\":\"[CLS]\",\"special\":true},{\"id\":3,\"content\":\"[SEP]\","
	    "\"special\":true}],\"normalizer\":{\"type\":\"BertNormalizer\",%s},\"pre_tokenizer\":{\"type\":"
	    "\"BertPreTokenizer\"},\"post_processor\":%s,\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
	    "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":20,\"vocab\":{%s}}}",
	    normalizer, post, VOCAB);
	if (tokenizer_create_json(json, strlen(json), NULL, 0, &t, &err) != 0)
		fail_msg("%s", err.text);
	return t;
}

static void expect(const struct tokenizer *t, const char *text, const int32_t *want, size_t n)
{
	struct tok_ids ids = {0};
	assert_int_equal(tokenizer_encode(t, text, strlen(text), NULL, &ids), 0);
	if (ids.n != n || (n > 0 && memcmp(ids.ids, want, n * sizeof *want) != 0)) {
		for (size_t i = 0; i < ids.n; i++)
			print_message("%d ", ids.ids[i]);
		fail_msg("is what \"%s\" became", text);
	}
	tok_ids_dispose(&ids);
}
#define EXPECT(t, text, ...)                              \
	do {                                              \
		const int32_t w[] = {__VA_ARGS__};        \
		expect(t, text, w, sizeof w / sizeof *w); \
	} while (0)

static const char bert[] = "{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",3],\"cls\":[\"[CLS]\",2]}";
static const char roberta[] = "{\"type\":\"RobertaProcessing\",\"sep\":[\"[SEP]\",3],\"cls\":[\"[CLS]\",2]}";
static const char template[] =
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"[CLS]\"}},{\"Sequence\":{\"id\":\"A\"}},"
    "{\"SpecialToken\":{\"id\":\"[SEP]\"}}],\"pair\":[{\"SpecialToken\":{\"id\":\"[CLS]\"}},{\"Sequence\":{\"id\":"
    "\"A\"}},"
    "{\"SpecialToken\":{\"id\":\"[SEP]\"}},{\"Sequence\":{\"id\":\"B\"}},{\"SpecialToken\":{\"id\":\"[SEP]\"}}]}";

static void words_are_cut(void **state)
{
	struct tokenizer *t = make("\"lowercase\":true", bert);
	(void)state;
	EXPECT(t, "unaffable", 4, 5, 6);
	EXPECT(t, "Unaffable, a!", 4, 5, 6, 11, 7, 12);
	/* No part of it is a token, or not all: one unknown token for the word. */
	EXPECT(t, "zebra", 1);
	EXPECT(t, "unaffably a", 1, 7);
	/* The longest beginning wins, even where the rest then is none. */
	EXPECT(t, "un aff", 4, 23);
	/* Lower case, accents off, ideographs apart, control characters gone, all kinds of white space. */
	EXPECT(t,
	       "  CAF\xc3\x89s\t\ncaf\xc3\xa9 caf"
	       "e\xcc\x81",
	       9, 10, 9, 9);
	EXPECT(t, "\xe4\xb8\xad\xe5\x9b\xbd\xe5\x9b\xbd", 13, 14, 14);
	EXPECT(t,
	       "u\x01n\xef\xbf\xbd"
	       "a\xc2\x85",
	       4, 8);
	/* Of the control characters only tab and line ends are white space; one that is unassigned is a character. */
	EXPECT(t,
	       "un\x0b\xc2\x85"
	       "a un\r\na\xe2\x80\xa8"
	       "a",
	       4, 8, 4, 7, 7);
	EXPECT(t, "a \xef\xbf\xb3", 7, 1);
	EXPECT(t, "a$a", 7, 19, 7);
	/* As long as a word may be, and one character longer. */
	EXPECT(t, "xxxxxxxxxxxxxxxxxxxx", 17, 18, 18, 18, 18, 18, 18, 18, 18, 18, 18, 18, 18, 18, 18, 18, 18, 18, 18,
	       18);
	EXPECT(t, "xxxxxxxxxxxxxxxxxxxxx", 1);
	/* Control tokens in a text are text. */
	EXPECT(t, "[CLS]", 1, 1, 1);
	expect(t, "", NULL, 0);
	expect(t, " \n ", NULL, 0);
	tokenizer_destroy(t);
	/* With case and accents. */
	t = make("\"lowercase\":false,\"strip_accents\":false", bert);
	EXPECT(t, "Unaffable caf\xc3\xa9 Caf\xc3\xa9", 20, 5, 6, 21, 1);
	tokenizer_destroy(t);
}

static void inputs(const struct tokenizer *t, bool twice)
{
	const struct proto_str texts[] = {{"a", 1}, {"un a", 4}};
	static const int32_t one[] = {2, 7, 3}, two[] = {2, 7, 3, 4, 7, 3}, apart[] = {2, 7, 3, 3, 4, 7, 3};
	struct tok_ids ids = {0};
	size_t n_first = 99;
	assert_int_equal(tokenizer_encode_input(t, texts, 1, &ids, &n_first), 0);
	assert_int_equal(ids.n, 3);
	assert_int_equal(n_first, 3);
	assert_memory_equal(ids.ids, one, sizeof one);
	ids.n = 0;
	assert_int_equal(tokenizer_encode_input(t, texts, 2, &ids, &n_first), 0);
	assert_int_equal(ids.n, twice ? 7 : 6);
	assert_int_equal(n_first, 3);
	assert_memory_equal(ids.ids, twice ? apart : two, ids.n * sizeof *two);
	tok_ids_dispose(&ids);
}

static void inputs_are_framed(void **state)
{
	const char *const posts[] = {bert, template, roberta};
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct tokenizer *t = make("\"lowercase\":true", posts[i]);
		inputs(t, i == 2);
		tokenizer_destroy(t);
	}
}

/* Every word of letters is cut into tokens that are, one behind the other, the word; the first is one that begins. */
static void pieces_make_the_word(void **state)
{
	static const char *const texts[] = {"?", "@a", "@b", "@c", "@ab", "@cab", "a", "b", "c", "bc", "abca", "cc"};
	struct proto_str tokens[12];
	struct wordpiece *w;
	struct sl_err err;
	uint64_t x = 3;
	(void)state;
	for (int i = 0; i < 12; i++)
		tokens[i] = (struct proto_str){texts[i], strlen(texts[i])};
	tokens[0].at = NULL;
	const struct wordpiece_source src = {
	    .tokens = tokens, .n_tokens = 12, .prefix = {"@", 1}, .prefix_begins = true, .max_chars = 30, .unknown = 0};
	assert_int_equal(wordpiece_create(&src, &w, &err), 0);
	for (int round = 0; round < 2000; round++) {
		char word[31] = "", made[40] = "";
		struct tok_ids ids = {0};
		size_t n = 1 + (size_t)round % 30;
		for (size_t i = 0; i < n; i++) {
			x = x * 6364136223846793005u + 1442695040888963407u;
			word[i] = (char)('a' + (x >> 40) % 3);
		}
		assert_int_equal(wordpiece_encode(w, word, n, &ids), 0);
		for (size_t i = 0; i < ids.n; i++) {
			const char *text = texts[ids.ids[i]];
			assert_int_equal(text[0] == '@', i == 0);
			strcat(made, text + (i == 0));
		}
		assert_string_equal(made, word);
		tok_ids_dispose(&ids);
	}
	wordpiece_destroy(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(words_are_cut), cmocka_unit_test(inputs_are_framed),
					   cmocka_unit_test(pieces_make_the_word)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
