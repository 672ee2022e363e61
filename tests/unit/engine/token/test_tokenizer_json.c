/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json: small ones of each kind, written here, with ids worked out by hand from the
 * format's definition; and damaged ones, which must be refused by name and must not crash.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/token/tokenizer.h"

/* Llama 2's way: characters, U+2581 for spaces, bytes for what is not in the vocabulary. */
static const char spm[] =
    "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},"
    "{\"id\":1,\"content\":\"<s>\",\"special\":true},"
    "{\"id\":20,\"content\":\"<tag>\",\"special\":false,\"rstrip\":true}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\\u2581\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"}]},"
    "\"pre_tokenizer\":null,"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"
    "{\"Sequence\":{\"id\":\"A\"}}]},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\\u2581\"},"
    "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,"
    "\"vocab\":{\"<unk>\":0,\"<s>\":1,\"<0xC3>\":2,\"<0xA9>\":3,\"<0x0A>\":4,\"\\u2581\":5,\"a\":6,\"b\":7,"
    "\"ab\":8,\"\\u2581a\":9,\"\\u2581ab\":10,\"ba\":11,\"\\u2581\\u2581\":12},"
    "\"merges\":[\"a b\",[\"\\u2581\",\"ab\"],\"\\u2581 a\",\"b a\",\"\\u2581 \\u2581\"]}}";

static const char spm_config[] = "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"<unk>\"},\"model_max_length\":"
				 "1000000000000000019884624838656}";

static const char unigram[] =
    "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true}],"
    "\"normalizer\":{\"type\":\"NFKC\"},"
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",\"prepend_scheme\":\"always\",\"split\":"
    "true},"
    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"\\u2581\",-3],[\"a\",-2],[\"b\",-2.5],"
    "[\"ab\",-3.5],[\"\\u2581ab\",-6],[\"fi\",-1],[\"abb\",-5.75]]}}";

static struct tokenizer *read_json(const char *json, const char *config)
{
	struct tokenizer *t = NULL;
	struct sl_err err = {0};
	if (tokenizer_create_json(json, strlen(json), config, config != NULL ? strlen(config) : 0, &t, &err) != 0)
		fail_msg("%s", err.text);
	return t;
}

static void encodes(const struct tokenizer *t, const char *text, bool trusted, const int32_t *want, size_t n)
{
	struct tok_ids ids = {0};
	uint8_t trust[256];
	memset(trust, 1, sizeof trust);
	assert_int_equal(tokenizer_encode(t, text, strlen(text), trusted ? trust : NULL, &ids), 0);
	bool same = ids.n == n && memcmp(ids.ids, want, n * sizeof *want) == 0;
	if (!same) {
		for (size_t i = 0; i < ids.n; i++)
			print_error("%d ", (int)ids.ids[i]);
		fail_msg("are the ids of \"%s\"", text);
	}
	tok_ids_dispose(&ids);
}
#define ENCODES(t, text, trusted, ...) \
	encodes(t, text, trusted, (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / 4)

static void characters(void **state)
{
	(void)state;
	struct tokenizer *t = read_json(spm, spm_config);
	assert_int_equal(tokenizer_n_vocab(t), 21);
	assert_int_equal(tokenizer_bos(t), 1);
	assert_int_equal(tokenizer_eos(t), 0);
	assert_true(tokenizer_strips_space(t));
	ENCODES(t, "ab", false, 10);
	ENCODES(t, "ab ab", false, 10, 10);
	ENCODES(t, "a", false, 9);
	ENCODES(t, "aba", false, 10, 6); /* "ab" is made before "ba" */
	ENCODES(t, "  a", false, 12, 9); /* three marks: the last belongs to the word */
	ENCODES(t, "b\xC3\xA9\n", false, 5, 7, 2, 3, 4);
	ENCODES(t, "b\xE2\x82\xAC?!", false, 5, 7, 0); /* neighbouring unknown ones are one token */
	ENCODES(t, "<s>ab", true, 1, 10);
	ENCODES(t, "<s>", false, 5, 0); /* text: no control token, but unknown characters */
	tokenizer_destroy(t);
}

static void added_tokens(void **state)
{
	(void)state;
	struct tokenizer *t = read_json(spm, spm_config);
	/* Found in any text; the white space behind it goes with it. */
	ENCODES(t, "a<tag>  b", false, 9, 20, 5, 7);
	struct tok_ids ids = {0};
	assert_int_equal(tokenizer_add_bos(t, &ids), 0);
	assert_int_equal(ids.n, 1);
	assert_int_equal(ids.ids[0], 1);
	tok_ids_dispose(&ids);
	assert_int_equal(tokenizer_attr(t, 20), TOK_USER);
	assert_int_equal(tokenizer_attr(t, 19), TOK_UNUSED);
	struct proto_str space = tokenizer_bytes(t, 9), byte = tokenizer_bytes(t, 4);
	assert_int_equal(space.n, 2);
	assert_memory_equal(space.at, " a", 2);
	assert_int_equal(byte.n, 1);
	assert_int_equal(byte.at[0], '\n');
	assert_int_equal(tokenizer_pad(t, 64), 0);
	assert_int_equal(tokenizer_n_vocab(t), 64);
	assert_int_equal(tokenizer_bytes(t, 63).n, 0);
	tokenizer_destroy(t);
}

static void best_path(void **state)
{
	(void)state;
	struct tokenizer *t = read_json(unigram, NULL);
	ENCODES(t, "a", false, 1, 2);
	ENCODES(t, "ab", false, 5);              /* -6 beats -3 -3.5 */
	ENCODES(t, "bab", false, 1, 3, 4);       /* "ab" -3.5 beats "a" "b" -4.5 */
	ENCODES(t, "abb", false, 5, 3);          /* -8.5 beats -3 -5.75 */
	ENCODES(t, "\xEF\xAC\x81", false, 1, 6); /* the ligature is "fi" in compatibility form */
	ENCODES(t, "xyz a", false, 1, 0, 1, 2);
	tokenizer_destroy(t);
}

static void byte_level(void **state)
{
	(void)state;
	/* All 256 bytes, in GPT-2's writing, then merges. */
	char json[16384], *at = json;
	uint32_t next = 0x100;
	at += sprintf(
	    at,
	    "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\","
	    "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}{1,2}|\\\\s+|[^\\\\s\\\\p{N}]+\"},"
	    "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
	    "\"use_regex\":false}]},\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{");
	for (unsigned b = 0; b < 256; b++) {
		bool prints = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
		unsigned cp = prints ? b : next++;
		at += sprintf(at, "%s\"\\u%04x\":%u", b > 0 ? "," : "", cp, b);
	}
	sprintf(at, ",\"ab\":256,\"12\":257,\"abc\":258},\"merges\":[\"a b\"]}}");
	struct tokenizer *t = read_json(json, NULL);
	ENCODES(t, "ab1234", false, 256, 257, '3', '4');
	ENCODES(t, "abc", false, 258); /* no merge makes it, but it is a token as a whole */
	ENCODES(t, "a b\xFF", false, 'a', ' ', 'b', 0xFF);
	assert_false(tokenizer_strips_space(t));
	tokenizer_destroy(t);
}

static void refused(const char *json, const char *what)
{
	struct tokenizer *t = NULL;
	struct sl_err err = {0};
	assert_int_not_equal(tokenizer_create_json(json, strlen(json), NULL, 0, &t, &err), 0);
	if (strstr(err.text, what) == NULL)
		fail_msg("\"%s\" does not name \"%s\"", err.text, what);
}

static void refusals(void **state)
{
	(void)state;
	refused("", "tokenizer.json");
	refused("[]", "the file");
	refused("{}", "model");
	refused("{\"model\":{\"type\":\"WordLevel\"}}", "WordLevel");
	refused("{\"model\":{\"type\":\"WordPiece\"}}", "vocab");
	refused("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", "unknown text");
	refused("{\"model\":{\"type\":\"BPE\",\"vocab\":[]}}", "vocab");
	refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "merges");
	refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"ab\"]}}", "merge");
	refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "token");
	refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999},\"merges\":[]}}", "id");
	refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "score");
	refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]]}}", "unknown text");
	refused("{\"pre_tokenizer\":{\"type\":\"NoSuch\"}}", "NoSuch");
	refused("{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"(\"}}}",
		"pattern");
	refused("{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Odd\",\"pattern\":{\"Regex\":\"a\"}}}", "Odd");
	refused("{\"normalizer\":{\"type\":\"NoSuch\"}}", "NoSuch");
	refused("{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}}", "table");
	refused("{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}}", "empty");
}

/* Every file that differs in one or some bytes is read or refused. */
static void damaged_files(void **state)
{
	(void)state;
	const char *files[] = {spm, unigram};
	uint64_t x = 99;
	for (int f = 0; f < 2; f++) {
		size_t n = strlen(files[f]);
		char *copy = malloc(n);
		assert_non_null(copy);
		for (int round = 0; round < 1500; round++) {
			memcpy(copy, files[f], n);
			for (int k = 0; k <= round % 4; k++) {
				x = x * 6364136223846793005u + 1442695040888963407u;
				static const char odd[] = "\"\\{}[],:0-9e\x7F\xFF";
				copy[(x >> 33) % n] = odd[(x >> 20) % (sizeof odd - 1)];
			}
			struct tokenizer *t = NULL;
			struct sl_err err = {0};
			size_t length = round % 7 == 0 ? (x >> 40) % n : n;
			if (tokenizer_create_json(copy, length, NULL, 0, &t, &err) != 0) {
				assert_true(err.text[0] != '\0');
				continue;
			}
			struct tok_ids ids = {0};
			assert_int_equal(tokenizer_encode(t, "ab <tag> \xC3\xA9\xFF x", 14, NULL, &ids), 0);
			tok_ids_dispose(&ids);
			tokenizer_destroy(t);
		}
		free(copy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(characters), cmocka_unit_test(added_tokens), cmocka_unit_test(best_path),
	    cmocka_unit_test(byte_level), cmocka_unit_test(refusals),     cmocka_unit_test(damaged_files),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
