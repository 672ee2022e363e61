/* SPDX-License-Identifier: Apache-2.0
 *
 * Unigram: the best of all segmentations, found here from the other end; byte fallback and white space of GGUF files;
 * and SentencePiece's table of normal forms, which this test builds, in both readings.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <unistd.h>

#include "engine/token/tokenizer_source.h"
#include "engine/token/unigram.h"
#include "tests/support/charsmap.h"
#include "tests/support/tiny_gguf.h"

#define MARK "\xE2\x96\x81"

/* ---- segmentations ---- */

enum { N_TOKENS = 60, N_ROUNDS = 400, MOST = 24 };

static char words[N_TOKENS][8];
static float scores[N_TOKENS];
static uint32_t dice;

static uint32_t roll(uint32_t sides)
{
	dice = dice * 1664525 + 1013904223;
	return (dice >> 8) % sides;
}

/* Token 0 is the unknown one. Scores are sixty-fourths, so that sums are exact. */
static void make_vocabulary(struct proto_str texts[N_TOKENS])
{
	static const char *const letters[] = {"a", "b", "c", E_ACUTE};
	int n = 1;
	while (n < N_TOKENS) {
		char word[8] = "";
		bool known = false;
		for (uint32_t i = roll(3) + 1; i > 0; i--)
			strcat(word, letters[roll(4)]);
		for (int i = 1; i < n; i++)
			known |= strcmp(words[i], word) == 0;
		if (known)
			continue;
		strcpy(words[n], word);
		scores[n++] = -(float)(roll(900) + 64) / 64;
	}
	for (int i = 1; i < N_TOKENS; i++)
		texts[i] = (struct proto_str){words[i], strlen(words[i])};
}

static size_t char_bytes(const char *at) { return (*at & 0xC0) == 0xC0 ? 2 : 1; }

/* The best score of each suffix of text. */
static double best_score(const char *text, size_t n, double unknown)
{
	double best[MOST + 1];
	best[n] = 0;
	for (size_t i = n; i-- > 0;) {
		best[i] = -INFINITY;
		if ((text[i] & 0xC0) == 0x80)
			continue;
		size_t one = char_bytes(text + i);
		bool single = false;
		for (int k = 1; k < N_TOKENS; k++) {
			size_t len = strlen(words[k]);
			if (len > n - i || memcmp(words[k], text + i, len) != 0)
				continue;
			single |= len == one;
			best[i] = fmax(best[i], (double)scores[k] + best[i + len]);
		}
		if (!single)
			best[i] = fmax(best[i], unknown + best[i + one]);
	}
	return best[0];
}

/* The score of ids, which must spell the text; an unknown token is a run of unknown letters. */
static double score_of(const struct tok_ids *ids, const char *text, double unknown)
{
	double sum = 0;
	for (size_t i = 0; i < ids->n; i++) {
		const char *word = words[ids->ids[i]];
		if (ids->ids[i] != 0) {
			assert_int_equal(strncmp(text, word, strlen(word)), 0);
			sum += (double)scores[ids->ids[i]];
			text += strlen(word);
			continue;
		}
		size_t next = i + 1 < ids->n ? strlen(words[ids->ids[i + 1]]) : 0;
		while (*text != '\0' && (next == 0 || strncmp(text, words[ids->ids[i + 1]], next) != 0)) {
			text += char_bytes(text);
			sum += unknown;
		}
	}
	assert_int_equal(*text, '\0');
	return sum;
}

static void segmentations_are_the_best(void **state)
{
	static const char *const letters[] = {"a", "b", "c", E_ACUTE, "z", "\xC3\xB6"};
	struct proto_str texts[N_TOKENS] = {{0}};
	struct unigram_source src = {.tokens = texts, .scores = scores, .n_tokens = N_TOKENS};
	struct unigram *u;
	struct sl_err err;
	double unknown = 0;
	(void)state;
	dice = 7;
	make_vocabulary(texts);
	for (int i = 1; i < N_TOKENS; i++)
		unknown = fmin(unknown, (double)scores[i] - 10);
	assert_int_equal(unigram_create(&src, &u, &err), 0);
	for (int round = 0; round < N_ROUNDS; round++) {
		char text[MOST + 1] = "";
		struct tok_ids ids = {0};
		for (uint32_t i = roll(MOST / 2) + 1; i > 0; i--)
			strcat(text, letters[roll(round % 2 == 0 ? 4 : 6)]);
		assert_int_equal(unigram_encode(u, text, strlen(text), &ids), 0);
		if (score_of(&ids, text, unknown) != best_score(text, strlen(text), unknown))
			fail_msg("\"%s\" has a better segmentation", text);
		tok_ids_dispose(&ids);
	}
	unigram_destroy(u);
}

/* ---- files ---- */

struct word {
	const char *text;
	float score;
	enum tok_attr attr;
};

static void put_flag(struct tiny *t, const char *key, bool on)
{
	tiny_key(t, key, 7);
	fputc(on, t->f);
}

static struct tokenizer *from_file(const struct word *all, uint64_t n)
{
	char path[] = "/tmp/sluice-unigram-XXXXXX";
	struct tiny t = {.f = fdopen(mkstemp(path), "wb")};
	struct tokenizer *out = NULL;
	struct gguf *g;
	struct sl_err err = {0};
	fwrite("GGUF\3\0\0", 1, 8, t.f);
	tiny_u64(&t, 0);
	tiny_u64(&t, 7);
	tiny_kv_str(&t, "tokenizer.ggml.model", "t5");
	tiny_key(&t, "tokenizer.ggml.tokens", TINY_ARR);
	tiny_u32(&t, TINY_STR);
	tiny_u64(&t, n);
	for (uint64_t i = 0; i < n; i++)
		tiny_str(&t, all[i].text, strlen(all[i].text));
	tiny_key(&t, "tokenizer.ggml.scores", TINY_ARR);
	tiny_u32(&t, TINY_F32);
	tiny_u64(&t, n);
	for (uint64_t i = 0; i < n; i++)
		fwrite(&all[i].score, 4, 1, t.f);
	tiny_key(&t, "tokenizer.ggml.token_type", TINY_ARR);
	tiny_u32(&t, TINY_I32);
	tiny_u64(&t, n);
	for (uint64_t i = 0; i < n; i++)
		tiny_u32(&t, (uint32_t)all[i].attr);
	tiny_kv_u32(&t, "tokenizer.ggml.unknown_token_id", 0);
	put_flag(&t, "tokenizer.ggml.remove_extra_whitespaces", true);
	put_flag(&t, "tokenizer.ggml.add_bos_token", false);
	while (ftell(t.f) % TINY_ALIGN != 0)
		fputc(0, t.f);
	fclose(t.f);
	if (gguf_open(path, &g, &err) != 0 || tokenizer_create(g, &out, &err) != 0)
		fail_msg("%s", err.text);
	gguf_close(g);
	unlink(path);
	return out;
}

static void expect(const struct tokenizer *t, const char *text, const int32_t *want, size_t n)
{
	struct tok_ids ids = {0};
	assert_int_equal(tokenizer_encode(t, text, strlen(text), NULL, &ids), 0);
	if (ids.n != n || memcmp(ids.ids, want, n * sizeof *want) != 0) {
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

static void spaces_of_a_file(void **state)
{
	static const struct word all[] = {{"<unk>", 0, TOK_UNKNOWN},
					  {"</s>", 0, TOK_CONTROL},
					  {MARK, -2, TOK_NORMAL},
					  {MARK "a", -3, TOK_NORMAL},
					  {"b", -4, TOK_NORMAL}};
	struct tokenizer *t = from_file(all, sizeof all / sizeof *all);
	(void)state;
	EXPECT(t, "a", 3);
	EXPECT(t, "  a   b ", 3, 2, 4);
	/* Only U+0020 goes. U+0085 is white space, too, and a tab, but they are characters that the model doesn't know.
	 */
	EXPECT(t, "\xC2\x85 a", 2, 0, 3);
	EXPECT(t, "a\t", 3, 0);
	/* A control token's text is text. */
	EXPECT(t, "a</s>", 3, 0);
	tokenizer_destroy(t);
}

static void bytes_of_a_file(void **state)
{
	static struct word all[3 + 256];
	static char names[256][8];
	(void)state;
	all[0] = (struct word){"<unk>", 0, TOK_UNKNOWN};
	all[1] = (struct word){MARK, -2, TOK_NORMAL};
	all[2] = (struct word){"a", -3, TOK_NORMAL};
	for (int i = 0; i < 256; i++) {
		snprintf(names[i], sizeof names[i], "<0x%02X>", (unsigned)i & 255);
		all[3 + i] = (struct word){names[i], 0, TOK_BYTE};
	}
	struct tokenizer *t = from_file(all, sizeof all / sizeof *all);
	EXPECT(t, "a" E_ACUTE "\n", 1, 2, 3 + 0xC3, 3 + 0xA9, 3 + '\n');
	/* The name of a byte is text. */
	EXPECT(t, "<0x0A>", 1, 3 + '<', 3 + '0', 3 + 'x', 3 + '0', 3 + 'A', 3 + '>');
	tokenizer_destroy(t);
}

/* ---- the table of normal forms ---- */

static void becomes(enum norm_kind kind, struct proto_str table, const char *text, const char *want)
{
	struct norm *m;
	struct sl_err err;
	struct sl_buf out;
	buf_init(&out, 1024);
	assert_int_equal(norm_create(&m), 0);
	assert_int_equal(norm_add(m, kind, table, (struct proto_str){"", 0}, &err), 0);
	assert_int_equal(norm_apply(m, text, strlen(text), &out), 0);
	if (out.len != strlen(want) || (out.len > 0 && memcmp(buf_data(&out), want, out.len) != 0))
		fail_msg("\"%s\" became \"%.*s\"", text, (int)out.len, (const char *)buf_data(&out));
	buf_dispose(&out);
	norm_destroy(m);
}

static void tables_are_read_in_two_ways(void **state)
{
	static char bytes[CM_BYTES];
	struct proto_str table = {bytes, cm_make(bytes)};
	static const enum norm_kind both[] = {NORM_CHARSMAP, NORM_CHARSMAP_GRAPHEMES};
	(void)state;
	for (int i = 0; i < 2; i++) {
		becomes(both[i], table, "", "");
		becomes(both[i], table, "caf" E_ACUTE " z", "caf" E_ACUTE " z");
		becomes(both[i], table, "cafe" ACCENT "s", "caf" E_ACUTE "s");
		becomes(both[i], table, "\xEF\xAC\x81" ODD_SPACE "\xE2\x91\xA0" ODD_SPACE, "fi 1 ");
		becomes(both[i], table,
			"a\xC2\xAD"
			"b",
			"ab");
		becomes(both[i], table, "\xFF" ODD_SPACE "\xE3\x80", "\xFF \xE3\x80"); /* not UTF-8 */
	}
	/* The longest entry; the shortest of a short grapheme, which takes all of it. */
	becomes(NORM_CHARSMAP, table, ODD_SPACE ACCENT "x", "\xC2\xB4x");
	becomes(NORM_CHARSMAP_GRAPHEMES, table, ODD_SPACE ACCENT "x", " x");
	becomes(NORM_CHARSMAP, table, ODD_SPACE "\xCC\x80x", " \xCC\x80x");
	becomes(NORM_CHARSMAP_GRAPHEMES, table, ODD_SPACE "\xCC\x80x", " x");
	/* One of six bytes is read character by character. */
	becomes(NORM_CHARSMAP_GRAPHEMES, table, "e" ACCENT ACCENT ACCENT, "e" ACCENT ACCENT ACCENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(segmentations_are_the_best),
	    cmocka_unit_test(spaces_of_a_file),
	    cmocka_unit_test(bytes_of_a_file),
	    cmocka_unit_test(tables_are_read_in_two_ways),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
