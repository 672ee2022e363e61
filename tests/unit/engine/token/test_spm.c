/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece's own models: ids as its library gives them for the same files, the files beside a model, the same
 * tokenizer written as tokenizer.json, and models that are malformed or not supported.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/fault.h"
#include "tests/support/charsmap.h"
#include "tests/support/spm_write.h"

#define MARK "\xE2\x96\x81"

static const struct proto_str nothing = {"", 0};
static struct spm_file file;

static struct proto_str text_of(const char *s) { return (struct proto_str){s, strlen(s)}; }

static struct tokenizer *opened(const char *added, const char *config)
{
	struct tokenizer *t = NULL;
	struct sl_err err = {0};
	if (tokenizer_create_spm(sw_text(&file), text_of(added), text_of(config), &t, &err) != 0)
		fail_msg("%s", err.text);
	return t;
}

static void expect(const struct tokenizer *t, const char *text, const char *want)
{
	struct tok_ids ids = {0};
	struct sl_buf got;
	uint8_t trust[64];
	memset(trust, 1, sizeof trust);
	buf_init(&got, 4096);
	assert_true(strlen(text) <= sizeof trust);
	assert_int_equal(tokenizer_encode(t, text, strlen(text), trust, &ids), 0);
	for (size_t i = 0; i < ids.n; i++)
		assert_int_equal(buf_printf(&got, i > 0 ? " %d" : "%d", ids.ids[i]), 0);
	if (strcmp(buf_cstr(&got), want) != 0)
		fail_msg("\"%s\" is %s, not %s", text, buf_cstr(&got), want);
	buf_dispose(&got);
	tok_ids_dispose(&ids);
}

/* ---- ids ---- */

struct ids {
	const char *text, *ids;
};

/* Bytes are 3 to 258. */
static void write_bpe(bool prefix, bool collapse)
{
	sw_begin(&file, true);
	sw_piece(&file, MARK, -7, TOK_NORMAL); /* 259 */
	sw_piece(&file, "a", -8, TOK_NORMAL);
	sw_piece(&file, "b", -9, TOK_NORMAL);
	sw_piece(&file, "c", -10, TOK_NORMAL);
	sw_piece(&file, "ab", -1, TOK_NORMAL); /* 263 */
	sw_piece(&file, MARK "ab", -2, TOK_NORMAL);
	sw_piece(&file, "bc", -3, TOK_NORMAL);
	sw_piece(&file, "abc", -4, TOK_NORMAL);
	sw_piece(&file, MARK MARK, 0, TOK_USER); /* 267 */
	sw_piece(&file, "<u>", 0, TOK_USER);
	sw_piece(&file, "c<u>b", 0, TOK_USER);
	sw_trainer(&file, 2, true);
	sw_normalizer(&file, NULL, 0, prefix, collapse);
}

static void check_ids(const struct tokenizer *t, const struct ids *cases, size_t n)
{
	for (size_t i = 0; i < n; i++)
		expect(t, cases[i].text, cases[i].ids);
}

static void merges_by_score(void **state)
{
	static const struct ids cases[] = {
	    {"", ""},
	    {"ab", "264"},
	    {"abc", "264 262"},
	    {"bca bc", "259 265 260 259 265"},
	    {" a", "267 260"}, /* the space that is put before it makes two */
	    {"   ab", "267 267 263"},
	    {"a<u>b", "259 260 268 261"},
	    {"ac<u>bab", "259 260 269 263"}, /* the longest */
	    {"a" E_ACUTE "\n", "259 260 198 172 13"},
	    {"<s>", "1"},
	    {"<0x41>", "259 63 51 123 55 52 65"}, /* the name of a byte is text */
	};
	(void)state;
	write_bpe(true, false);
	struct tokenizer *t = opened("", "");
	check_ids(t, cases, sizeof cases / sizeof *cases);
	assert_true(tokenizer_bos(t) == 1 && tokenizer_eos(t) == 2 && tokenizer_strips_space(t));
	assert_true(tokenizer_is_end(t, 2) && tokenizer_attr(t, 268) == TOK_USER);
	tokenizer_destroy(t);
	write_bpe(false, false);
	t = opened("", "");
	expect(t, "ab ab  c", "263 264 267 262");
	assert_false(tokenizer_strips_space(t));
	tokenizer_destroy(t);
}

/* 3 to 12. */
static void write_unigram(bool prefix, bool collapse)
{
	static char table[CM_BYTES];
	sw_begin(&file, false);
	sw_piece(&file, MARK, -2.5f, TOK_NORMAL);
	sw_piece(&file, "a", -3, TOK_NORMAL);
	sw_piece(&file, "b", -3.5f, TOK_NORMAL);
	sw_piece(&file, MARK "ab", -8, TOK_NORMAL);
	sw_piece(&file, E_ACUTE, -5, TOK_NORMAL);
	sw_piece(&file, "fi", -6, TOK_NORMAL);
	sw_piece(&file, "a" ODD_SPACE "b", 0, TOK_USER); /* 9 */
	sw_piece(&file, "bb", 0, TOK_USER);
	sw_piece(&file, MARK "b", -1, TOK_UNUSED);
	sw_piece(&file, "aaaa", -12, TOK_NORMAL);
	sw_trainer(&file, 1, false);
	sw_normalizer(&file, table, cm_make(table), prefix, collapse);
}

static void best_paths(void **state)
{
	static const struct ids cases[] = {
	    {"  ", ""},
	    {"  ab" ODD_SPACE " ab ", "6 6"},
	    {"cafe" ACCENT, "3 0 4 0 7"},
	    {"\xEF\xAC\x81"
	     "a",
	     "3 8 4"},                  /* a ligature */
	    {"a" ODD_SPACE "b", "3 9"}, /* not as the table has it */
	    {"bbb", "3 5 10"},
	    {"aaaaa b", "3 4 12 3 5"}, /* equal sums: the last found; the unused piece does not count */
	    {"xyz x", "3 0 3 0"},
	    {"a" MARK MARK, "3 4"},
	};
	(void)state;
	write_unigram(true, true);
	struct tokenizer *t = opened("", "");
	check_ids(t, cases, sizeof cases / sizeof *cases);
	tokenizer_destroy(t);
	write_unigram(false, false);
	t = opened("", "");
	expect(t, "  ab ", "3 6 3");
	tokenizer_destroy(t);
}

/* ---- what is beside it ---- */

static void files_beside(void **state)
{
	(void)state;
	write_bpe(true, false);
	struct tokenizer *t = opened("{\"<t>\":270,\"<more>\":271}",
				     "{\"added_tokens_decoder\":{\"0\":{\"content\":\"<unk>\",\"special\":true},"
				     "\"271\":{\"content\":\"<end>\",\"special\":true,\"rstrip\":true}},"
				     "\"bos_token\":null,\"eos_token\":{\"content\":\"<end>\"},\"add_eos_token\":true,"
				     "\"model_max_length\":1000000000000000019884624838656}");
	assert_true(tokenizer_bos(t) == -1 && tokenizer_eos(t) == 271 && tokenizer_n_vocab(t) == 272);
	expect(t, "a<t>ab<end> b", "259 260 270 264 271 259 261"); /* the space goes, each stretch has its own */
	tokenizer_destroy(t);
	t = opened(
	    "", "{\"legacy\":false,\"add_bos_token\":true,\"added_tokens_decoder\":{\"270\":{\"content\":\"<t>\"}}}");
	expect(t, "ab<t>ab", "264 270 263"); /* only the whole text has one */
	struct tok_ids ids = {0};
	assert_int_equal(tokenizer_add_bos(t, &ids), 0);
	assert_true(ids.n == 1 && ids.ids[0] == 1);
	tok_ids_dispose(&ids);
	tokenizer_destroy(t);
	t = opened("", "{\"add_prefix_space\":false}");
	expect(t, "ab", "263");
	tokenizer_destroy(t);
}

/* ---- the same tokenizer in two forms ---- */

static void quote(struct sl_buf *out, const char *text)
{
	buf_append_str(out, "\"");
	for (; *text != '\0'; text++)
		assert_int_equal(buf_append(out, text, 1), 0);
	buf_append_str(out, "\"");
}

static void same_ids(const struct tokenizer *a, const struct tokenizer *b)
{
	static const char *const bits[] = {"a", "b", "ab", "bb", " ", "  ", E_ACUTE, "f", "i", "x", "aaa", "<", MARK};
	uint32_t dice = 9;
	for (int round = 0; round < 3000; round++) {
		char text[64] = "";
		struct tok_ids x = {0}, y = {0};
		for (int i = 0; i < 12; i++) {
			dice = dice * 1664525 + 1013904223;
			strcat(text, bits[(dice >> 8) % (sizeof bits / sizeof *bits)]);
		}
		assert_int_equal(tokenizer_encode(a, text, strlen(text), NULL, &x), 0);
		assert_int_equal(tokenizer_encode(b, text, strlen(text), NULL, &y), 0);
		if (x.n != y.n || memcmp(x.ids, y.ids, x.n * sizeof *x.ids) != 0)
			fail_msg("\"%s\": other ids", text);
		tok_ids_dispose(&x);
		tok_ids_dispose(&y);
	}
}

/* Tokens of which no two orders are the best path for one text: among equal sums the two libraries choose otherwise. */
static const struct {
	const char *text;
	float score;
} both[] = {{MARK, -2.53f}, {"a", -3.11f}, {"b", -3.57f},  {MARK "ab", -7.9f}, {E_ACUTE, -5.3f},
	    {"fi", -6.2f},  {"ba", -6.6f}, {"fia", -9.0f}, {"f", -7.1f},       {MARK "a", -4.9f}};
enum { N_BOTH = sizeof both / sizeof *both };

static void unigram_in_two_forms(void **state)
{
	struct sl_buf json;
	struct sl_err err = {0};
	struct tokenizer *theirs;
	(void)state;
	buf_init(&json, 1 << 20);
	buf_append_str(
	    &json, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
		   "{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"},"
		   "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK "\"}]},"
		   "\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true},"
		   "{\"id\":2,\"content\":\"</s>\",\"special\":true}],"
		   "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"<s>\",0],[\"</s>\",0]");
	sw_begin(&file, false);
	for (size_t i = 0; i < N_BOTH; i++) {
		sw_piece(&file, both[i].text, both[i].score, TOK_NORMAL);
		buf_append_str(&json, ",[");
		quote(&json, both[i].text);
		assert_int_equal(buf_printf(&json, ",%.9g]", (double)both[i].score), 0);
	}
	sw_trainer(&file, 1, false);
	sw_normalizer(&file, NULL, 0, true, false);
	buf_append_str(&json, "]}}");
	struct tokenizer *ours = opened("", "");
	if (tokenizer_create_json((const char *)buf_data(&json), json.len, NULL, 0, &theirs, &err) != 0)
		fail_msg("%s", err.text);
	same_ids(ours, theirs);
	assert_true(tokenizer_n_vocab(ours) == tokenizer_n_vocab(theirs));
	tokenizer_destroy(ours);
	tokenizer_destroy(theirs);
	buf_dispose(&json);
}

/* Merges in the order of the scores of what they make. */
static void bpe_in_two_forms(void **state)
{
	struct sl_buf json;
	struct sl_err err = {0};
	struct tokenizer *theirs;
	(void)state;
	buf_init(&json, 1 << 20);
	buf_append_str(&json,
		       "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
		       "{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"},"
		       "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK "\"}]},"
		       "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"fuse_unk\":true,\"unk_token\":\"<unk>\","
		       "\"merges\":[[\"a\",\"b\"],[\"" MARK "\",\"ab\"],[\"b\",\"b\"],[\"" MARK "\",\"a\"]],"
		       "\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</s>\":2");
	sw_begin(&file, true);
	for (int i = 0; i < 256; i++)
		assert_int_equal(buf_printf(&json, ",\"<0x%02X>\":%d", (unsigned)i & 255, 3 + i), 0);
	static const char *const pieces[] = {"ab", MARK "ab", "bb", MARK "a", "a", "b", MARK, "f", "i"};
	for (int i = 0; i < 9; i++) {
		sw_piece(&file, pieces[i], -(float)i, TOK_NORMAL);
		buf_append_str(&json, ",");
		quote(&json, pieces[i]);
		assert_int_equal(buf_printf(&json, ":%d", 259 + i), 0);
	}
	sw_trainer(&file, 2, true);
	sw_normalizer(&file, NULL, 0, true, false);
	buf_append_str(&json, "}}}");
	struct tokenizer *ours = opened("", "");
	if (tokenizer_create_json((const char *)buf_data(&json), json.len, NULL, 0, &theirs, &err) != 0)
		fail_msg("%s", err.text);
	same_ids(ours, theirs);
	tokenizer_destroy(ours);
	tokenizer_destroy(theirs);
	buf_dispose(&json);
}

/* ---- refused ---- */

static void refused(struct proto_str model, const char *added, const char *config, int code, const char *words)
{
	struct tokenizer *t = NULL;
	struct sl_err err = {0};
	int rc = tokenizer_create_spm(model, text_of(added), text_of(config), &t, &err);
	if (rc != code || strstr(err.text, words) == NULL || strchr(err.text, '\n') != NULL || t != NULL)
		fail_msg("%d \"%s\", not %d with \"%s\"", rc, err.text, code, words);
}

static void refused_file(int code, const char *words) { refused(sw_text(&file), "", "", code, words); }

static void wrong_models(void **state)
{
	(void)state;
	refused(nothing, "", "", SL_EINVAL, "0 pieces are for unknown text");
	refused(text_of("GGUF\x03"), "", "", SL_EINVAL, "malformed at byte");
	write_bpe(true, false);
	sw_trainer(&file, 3, true);
	refused_file(SL_EUNSUPPORTED, "model_type");
	write_bpe(true, false);
	sw_bytes(&file, 2, "\xC0\x01\x01", 3); /* treat_whitespace_as_suffix */
	refused_file(SL_EUNSUPPORTED, "treat_whitespace_as_suffix");
	write_bpe(true, false);
	sw_bytes(&file, 3, "\x28\x00", 2);
	refused_file(SL_EUNSUPPORTED, "escape_whitespaces");
	write_bpe(true, false);
	sw_bytes(&file, 5, "\x12\x01x", 3);
	refused_file(SL_EUNSUPPORTED, "denormalizer_spec");
	write_bpe(true, false);
	sw_bytes(&file, 3, "\x12\x01x", 3);
	refused_file(SL_EINVAL, "table is malformed");
	write_bpe(true, false);
	sw_bytes(&file, 2, "\x18", 1);
	refused_file(SL_EINVAL, "trainer_spec is malformed");
	write_bpe(true, false);
	sw_piece(&file, "u", 0, TOK_UNKNOWN);
	refused_file(SL_EINVAL, "2 pieces are for unknown text");
	write_bpe(true, false);
	sw_piece(&file, "u", 0, TOK_UNUSED);
	refused_file(SL_EUNSUPPORTED, "unused pieces");
	write_bpe(true, false);
	sw_piece(&file, "x", 0, 7);
	refused_file(SL_EINVAL, "piece 270 is malformed");
	write_bpe(true, false);
	sw_piece(&file, "", 0, TOK_NORMAL);
	refused_file(SL_EINVAL, "piece 270 is malformed");
	write_bpe(true, false);
	sw_piece(&file, "x", 1.0f / 0.0f, TOK_NORMAL);
	refused_file(SL_EINVAL, "piece 270 is malformed");
	write_bpe(true, false);
	sw_piece(&file, "<0x1>", 0, TOK_BYTE);
	refused_file(SL_EINVAL, "piece 270 is of a byte");
	for (int i = 0; i < 2; i++) { /* nor in other letters, nor longer */
		write_bpe(true, false);
		sw_piece(&file, i == 0 ? "<0x0a>" : "<0x0A>>", 0, TOK_BYTE);
		refused_file(SL_EINVAL, "piece 270 is of a byte");
	}
	sw_begin(&file, false);
	sw_trainer(&file, 2, true);
	refused_file(SL_EINVAL, "byte_fallback needs 256 pieces of bytes, and there are 0");
}

static void wrong_files_beside(void **state)
{
	(void)state;
	write_bpe(true, false);
	refused(sw_text(&file), "[", "", SL_EINVAL, "added_tokens.json, line 1");
	refused(sw_text(&file), "", "{", SL_EINVAL, "tokenizer_config.json, line 1");
	refused(sw_text(&file), "{\"x\":-1}", "", SL_EINVAL, "added_tokens.json: the added token \"x\"");
	refused(sw_text(&file), "{\"x\":99999999}", "", SL_EINVAL, "added token");
	refused(sw_text(&file), "", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}", SL_EINVAL,
		"tokenizer_config.json: the added token \"x\"");
	refused(sw_text(&file), "", "{\"added_tokens_decoder\":{\"270\":{}}}", SL_EINVAL,
		"tokenizer_config.json: the added token \"270\"");
	refused(sw_text(&file), "{\"a\\nb\":-1}", "", SL_EINVAL, "the added token \"?\"");
}

/* Every file that ends too early is read or refused in one line. */
static void cut_files(void **state)
{
	(void)state;
	write_unigram(true, true);
	size_t n = file.n, n_read = 0;
	for (size_t i = 0; i<n; i += i> 400 && i + 400 < n ? 97 : 1) {
		struct tokenizer *t = NULL;
		struct sl_err err = {0};
		char *copy = malloc(i + 1); /* so that a sanitizer sees its end */
		assert_non_null(copy);
		memcpy(copy, file.bytes, i);
		int rc = tokenizer_create_spm((struct proto_str){copy, i}, nothing, nothing, &t, &err);
		n_read += rc == 0;
		assert_true(rc == 0 || (err.text[0] != '\0' && strchr(err.text, '\n') == NULL));
		tokenizer_destroy(t);
		free(copy);
	}
	assert_true(n_read > 0 && n_read < 40); /* whole pieces without the rest are a model */
}

/* Whatever allocation fails: it is no memory, nothing is lost, and the next try has the tokenizer. */
static void no_memory(void **state)
{
	(void)state;
	static const char config[] = "{\"legacy\":false,\"added_tokens_decoder\":{\"14\":{\"content\":\"<t>\"}}}";
	for (int bpe = 0; bpe < 2; bpe++) {
		int rc = SL_ENOMEM, n_failed = 0;
		if (bpe)
			write_bpe(true, false);
		else
			write_unigram(true, true);
		for (long nth = 1; rc != 0; nth++) {
			struct tokenizer *t = NULL;
			struct sl_err err = {0};
			fault_arm(FAULT_ALLOC, nth, 1);
			rc = tokenizer_create_spm(sw_text(&file), nothing, text_of(config), &t, &err);
			fault_disarm_all();
			if (rc != 0 && (rc != SL_ENOMEM || err.text[0] == '\0' || t != NULL))
				fail_msg("%d: %s", rc, err.text);
			n_failed += rc != 0;
			tokenizer_destroy(t);
		}
		assert_true(n_failed > 10);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(merges_by_score),      cmocka_unit_test(best_paths),       cmocka_unit_test(files_beside),
	    cmocka_unit_test(unigram_in_two_forms), cmocka_unit_test(bpe_in_two_forms), cmocka_unit_test(wrong_models),
	    cmocka_unit_test(wrong_files_beside),   cmocka_unit_test(cut_files),        cmocka_unit_test(no_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
