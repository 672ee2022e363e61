/* SPDX-License-Identifier: Apache-2.0
 *
 * What is removed from conversations and what never is; what a summary must say, and whether it does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fault.h"
#include "gateway/compress/compress.h"
#include "gateway/request/json_mem.h"

enum { MAX_TEXT = 1 << 20 };

/* ---- conversations in short: one message a word, "u" user, "a" assistant, "s" system, "d" developer,
 *      "c1" an assistant that calls, "r1" its result; "!" behind: pinned ---- */

static void put_message(struct sl_buf *out, const char *word, size_t i)
{
	static const struct {
		char letter;
		const char *role;
	} roles[] = {{'u', "user"},      {'a', "assistant"}, {'s', "system"},
		     {'d', "developer"}, {'c', "assistant"}, {'r', "tool"}};
	const char *role = NULL;
	for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
		if (roles[k].letter == word[0])
			role = roles[k].role;
	assert_non_null(role);
	assert_int_equal(buf_printf(out, "%s{\"role\":\"%s\",\"content\":\"message %zu\"", i > 0 ? "," : "", role, i),
			 0);
	if (word[0] == 'c')
		assert_int_equal(buf_printf(out,
					    ",\"tool_calls\":[{\"id\":\"call_%c\",\"type\":\"function\",\"function\":"
					    "{\"name\":\"look\",\"arguments\":\"{}\"}}]",
					    word[1]),
				 0);
	if (word[0] == 'r')
		assert_int_equal(buf_printf(out, ",\"tool_call_id\":\"call_%c\"", word[1]), 0);
	assert_int_equal(buf_append_str(out, strchr(word, '!') != NULL ? ",\"pinned\":true}" : "}"), 0);
}

static void spell(struct sl_buf *out, const char *words)
{
	char copy[512];
	size_t i = 0;
	snprintf(copy, sizeof copy, "%s", words);
	buf_init(out, MAX_TEXT);
	assert_int_equal(buf_append_str(out, "{\"messages\":["), 0);
	for (char *save, *w = strtok_r(copy, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save))
		put_message(out, w, i++);
	assert_int_equal(buf_append_str(out, "],\"documents\":[{\"text\":\"d\"}]}"), 0);
}

static struct compress_chat *read_chat(const struct sl_buf *b, uint32_t block_tokens)
{
	struct compress_chat *c;
	assert_int_equal(compress_chat_read((const char *)buf_data(b), b->len, block_tokens, &c), 0);
	return c;
}

/* What is left: "0 1 S 5 …", S the summary's message, "5+" one that the summary is folded into. */
static void left(const struct compress_chat *c, size_t n_blocks, enum compress_form form, const char *summary,
		 char *out)
{
	struct sl_buf b;
	buf_init(&b, MAX_TEXT);
	assert_int_equal(compress_write(c, n_blocks, form, summary, strlen(summary), &b), 0);
	json_t *root = json_loadb((const char *)buf_data(&b), b.len, 0, NULL);
	assert_non_null(root);
	assert_non_null(json_object_get(root, "documents"));
	json_t *list = json_object_get(root, "messages");
	char *p = out;
	*p = '\0';
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *m = json_array_get(list, i);
		const char *text = json_string_value(json_object_get(m, "content"));
		assert_null(json_object_get(m, "pinned"));
		if (i > 0)
			*p++ = ' ';
		if (strcmp(text, summary) == 0) {
			assert_string_equal(json_string_value(json_object_get(m, "role")), "system");
			p += sprintf(p, "S");
		} else {
			const char *at = strstr(text, "message ");
			assert_non_null(at);
			p += sprintf(p, "%s%s", at + 8, at != text ? "+" : "");
		}
	}
	json_decref(root);
	buf_dispose(&b);
}

#define EVERY_TURN 1 /* tokens of a block: each turn is one */

static void check_left(const char *words, size_t n_blocks, const char *want)
{
	struct sl_buf b;
	char got[512];
	spell(&b, words);
	struct compress_chat *c = read_chat(&b, EVERY_TURN);
	left(c, n_blocks <= compress_n_blocks(c) ? n_blocks : compress_n_blocks(c), COMPRESS_MESSAGE, "told", got);
	if (strcmp(got, want) != 0)
		fail_msg("of '%s' without %zu: '%s', not '%s'", words, n_blocks, got, want);
	compress_chat_free(c);
	buf_dispose(&b);
}

static void removes_whole_turns(void **state)
{
	(void)state;
	check_left("u a u a u", 1, "S 2 3 4");
	check_left("u a u a u", 2, "S 4");
	check_left("s u a u a u", 1, "0 S 3 4 5");
	check_left("s d u a u a u", 9, "0 1 S 6");
	check_left("a u a u", 1, "S 1 2 3"); /* what is said before the first user is a turn, too */
	check_left("u a a u u a u", 2, "S 4 5 6");
	/* The last turn stays, however long it is. */
	check_left("u a u a a a", 9, "S 2 3 4 5");
}

static void keeps_what_may_not_go(void **state)
{
	struct sl_buf b;
	(void)state;
	check_left("u a u! a u a u", 9, "2 3 S 6");
	check_left("u a u a! u a u", 9, "2 3 S 6");
	check_left("u! a u a u", 9, "0 1 S 4");
	check_left("u a s u a u", 9, "2 S 5"); /* a system's message in the middle of a turn */
	check_left("s! u a u", 9, "0 S 3");
	spell(&b, "s u a! a u");
	struct compress_chat *c = read_chat(&b, EVERY_TURN);
	assert_int_equal(compress_n_blocks(c), 0);
	compress_chat_free(c);
	buf_dispose(&b);
	spell(&b, "u");
	c = read_chat(&b, EVERY_TURN);
	assert_int_equal(compress_n_blocks(c), 0);
	compress_chat_free(c);
	buf_dispose(&b);
}

static void keeps_calls_with_their_results(void **state)
{
	(void)state;
	check_left("u c1 r1 a u a u", 1, "S 4 5 6");
	/* The user spoke before the result was there. */
	check_left("u c1 u r1 a u a u", 1, "S 5 6 7");
	check_left("u c1 u a u r1 a u", 1, "S 7");
	/* The call is of the last turn, or its result is. */
	check_left("u a u c1 u r1", 9, "S 2 3 4 5");
	check_left("u a u c1! r1 a u", 9, "S 2 3 4 5 6");
	/* A result of no call is as any message. */
	check_left("u a r9 u a u", 1, "S 3 4 5");
}

static void folds_where_it_must(void **state)
{
	struct sl_buf b;
	char got[512];
	(void)state;
	spell(&b, "s u a u a u");
	struct compress_chat *c = read_chat(&b, EVERY_TURN);
	left(c, 1, COMPRESS_FOLDED, "told", got);
	assert_string_equal(got, "0 3+ 4 5");
	left(c, 2, COMPRESS_FOLDED, "", got);
	assert_string_equal(got, "0 5");
	left(c, 0, COMPRESS_MESSAGE, "", got);
	assert_string_equal(got, "0 1 2 3 4 5");
	compress_chat_free(c);
	buf_dispose(&b);
}

/* ---- blocks ---- */

static void long_chat(struct sl_buf *out, size_t n_turns)
{
	buf_init(out, MAX_TEXT);
	assert_int_equal(buf_append_str(out, "{\"messages\":["), 0);
	for (size_t i = 0; i < n_turns; i++)
		assert_int_equal(
		    buf_printf(out,
			       "{\"role\":\"user\",\"content\":\"Turn %zu is about as long as the others.\"},"
			       "{\"role\":\"assistant\",\"content\":\"안녕하세요, 반갑습니다.\"},",
			       i),
		    0);
	assert_int_equal(buf_append_str(out, "{\"role\":\"user\",\"content\":\"and now?\"}],\"documents\":[]}"), 0);
}

/* A block that is there stays the same while the conversation goes on. */
static void blocks_stay(void **state)
{
	uint8_t first[2][COMPRESS_DIGEST_BYTES], again[COMPRESS_DIGEST_BYTES];
	(void)state;
	for (size_t n = 30; n < 60; n++) {
		struct sl_buf b;
		long_chat(&b, n);
		struct compress_chat *c = read_chat(&b, 200);
		assert_true(compress_n_blocks(c) >= 3);
		for (size_t k = 0; k < 2; k++) {
			assert_true(compress_block_estimate(c, k) >= 200);
			assert_true(compress_block_estimate(c, k) < 250);
			assert_int_equal(compress_block_digest(c, k, n == 30 ? first[k] : again), 0);
			if (n > 30)
				assert_memory_equal(first[k], again, sizeof again);
		}
		uint64_t all = 0;
		size_t messages = compress_n_messages(c, compress_n_blocks(c));
		for (size_t k = 0; k < compress_n_blocks(c); k++)
			all += compress_block_estimate(c, k);
		assert_int_equal(messages, 2 * n);
		assert_true(all < compress_estimate(c));
		compress_chat_free(c);
		buf_dispose(&b);
	}
	assert_memory_not_equal(first[0], first[1], sizeof again);
}

/* What came of shortening is short: shortened again by nothing it is the same to the byte. */
static void is_idempotent(void **state)
{
	struct sl_buf b, once, twice;
	(void)state;
	long_chat(&b, 20);
	buf_init(&once, MAX_TEXT);
	buf_init(&twice, MAX_TEXT);
	struct compress_chat *c = read_chat(&b, 200);
	assert_int_equal(compress_write(c, 1, COMPRESS_MESSAGE, "It was said.", 12, &once), 0);
	compress_chat_free(c);
	c = read_chat(&once, 200);
	assert_int_equal(compress_write(c, 0, COMPRESS_MESSAGE, "", 0, &twice), 0);
	compress_chat_free(c);
	assert_int_equal(once.len, twice.len);
	assert_memory_equal(buf_data(&once), buf_data(&twice), once.len);
	buf_dispose(&b);
	buf_dispose(&once);
	buf_dispose(&twice);
}

static void refuses_nonsense(void **state)
{
	static const char *const bad[] = {"",
					  "{",
					  "[]",
					  "{}",
					  "{\"messages\":[]}",
					  "{\"messages\":[1]}",
					  "{\"messages\":[{}]}",
					  "{\"messages\":{\"role\":\"user\"}}"};
	struct compress_chat *c;
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(compress_chat_read(bad[i], strlen(bad[i]), 1, &c), SL_EINVAL);
}

/* ---- transcripts ---- */

static void tells_who_said_what(void **state)
{
	static const char chat[] =
	    "{\"messages\":[{\"role\":\"user\",\"content\":\"I live in Zubo.\"},"
	    "{\"role\":\"assistant\",\"content\":\"Fine.\"},"
	    "{\"role\":\"user\",\"content\":\"and it rains\"},"
	    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"x\",\"type\":\"function\","
	    "\"function\":{\"name\":\"look\",\"arguments\":\"{\\\"a\\\":1}\"}}]},"
	    "{\"role\":\"tool\",\"content\":\"0123456789012345678901234567890123456789가나다라\",\"tool_call_id\":"
	    "\"x\"},"
	    "{\"role\":\"user\",\"content\":\"so?\"}]}";
	static struct compress_facts facts;
	struct compress_chat *c;
	struct sl_buf out;
	(void)state;
	buf_init(&out, MAX_TEXT);
	assert_int_equal(compress_chat_read(chat, sizeof chat - 1, 1000, &c), 0);
	assert_int_equal(compress_n_blocks(c), 1);
	assert_int_equal(
	    compress_block_transcript(c, 0, &(struct compress_excerpt){.max_bytes = 10000, .of_others = 30}, &out), 0);
	assert_string_equal(buf_cstr(&out), "user: I live in Zubo.\nassistant: Fine.\nuser: and it rains\n"
					    "assistant:  look({\"a\":1})\ntool: 01234567890123456789 … 나다라");
	buf_clear(&out, 0);
	compress_block_facts(c, 0, &facts);
	assert_int_equal(facts.n, 1);
	assert_int_equal(
	    compress_block_transcript(c, 0, &(struct compress_excerpt){.max_bytes = 10000, .only = &facts}, &out), 0);
	assert_string_equal(buf_cstr(&out), "user: I live in Zubo.\nassistant: Fine.");
	compress_chat_free(c);
	buf_dispose(&out);
}

/* ---- facts ---- */

static const struct {
	const char *text, *facts; /* in any order, separated by | */
} fact_cases[] = {
    {"", ""},
    {"nothing of note is here.", ""},
    {"My name is Kenji and I live in Zubo.", "Kenji|Zubo"},
    {"Kenji is here. The boat came. It sank!", ""}, /* words that begin sentences */
    {"We met Margaret Hale in New York.", "Margaret Hale|New York"},
    {"I asked, and I was told. So I left.", ""},
    {"It cost 1,176 euros on 14/09/1781 at 12:30.", "1,176|14/09/1781|12:30"},
    {"There are 3 of them, 40% red, $5 each.", "40|5"},
    {"Call \"the old mill\" please.", "the old mill"},
    {"He said “go on” and left «the door» ajar.", "go on|the door"},
    {"See https://example.org/a?b=c, then www.foo.test.", "https://example.org/a?b=c|www.foo.test"},
    {"Run `make -j2 build` in src_dir with parseJson or GPT-4 v1.2.3.",
     "make -j2 build|src_dir|parseJson|GPT-4|v1.2.3"},
    {"HOW MUCH IS THAT THEN", ""},
    {"WHAT IS 16 AND Zubo", "16"},
    {"제 이름은 Kenji이고 주문 번호는 48213입니다.", "Kenji|48213"},
    {"회의는 2024년 3월 15일에 SK하이닉스에서 합니다.", "2024|15|SK"},
    {"私は Zubo に 1998 年から住んでいます。", "Zubo|1998"},
    {"он живёт в Москве, улица Мира", "Москве|Мира"},
    {"Line one\nLine Two", "Two"},
    {"\xff\xfe broken 77 \xe2\x82", "77"},
    {"an unclosed \"quotation ends\nhere", ""},
};

static void finds_facts(void **state)
{
	static struct compress_facts f;
	(void)state;
	for (size_t i = 0; i < sizeof fact_cases / sizeof *fact_cases; i++) {
		char copy[512];
		size_t n_want = 0;
		f = (struct compress_facts){0};
		compress_facts_read(&f, fact_cases[i].text, strlen(fact_cases[i].text), 1);
		snprintf(copy, sizeof copy, "%s", fact_cases[i].facts);
		for (char *save, *w = strtok_r(copy, "|", &save); w != NULL; w = strtok_r(NULL, "|", &save), n_want++) {
			bool found = false;
			for (size_t k = 0; k < f.n; k++)
				found = found || (f.at[k].n == strlen(w) && memcmp(f.at[k].at, w, f.at[k].n) == 0);
			if (!found)
				fail_msg("'%s' is not found in '%s'", w, fact_cases[i].text);
		}
		if (f.n != n_want)
			fail_msg("%zu facts in '%s', the last '%.*s'", f.n, fact_cases[i].text, (int)f.at[f.n - 1].n,
				 f.at[f.n - 1].at);
	}
}

static void chooses_what_matters(void **state)
{
	static struct compress_facts f;
	static char texts[400][32];
	(void)state;
	f = (struct compress_facts){0};
	for (int i = 0; i < 400; i++) {
		snprintf(texts[i], sizeof texts[i], "there are %d of them", 1000 + i);
		compress_facts_read(&f, texts[i], strlen(texts[i]), 1);
	}
	compress_facts_read(&f, "it was Zubo, and Zubo again", 27, 1);
	compress_facts_read(&f, "we saw zubo in Zubo", 19, 4);
	assert_int_equal(f.n, FACTS_SEEN);
	compress_facts_choose(&f, 1);
	assert_int_equal(f.n, FACTS_MOST);
	/* Often said first, then the latest. Once in a text is once. */
	assert_memory_equal(f.at[0].at, "Zubo", 4);
	assert_int_equal(f.at[0].weight, 5);
	assert_memory_equal(f.at[1].at, "1399", 4);
	compress_facts_choose(&f, 2);
	assert_int_equal(f.n, 1);
}

static size_t n_found(const char *text, const char *summary)
{
	static struct compress_facts f;
	size_t n;
	f = (struct compress_facts){0};
	compress_facts_read(&f, text, strlen(text), 1);
	assert_int_equal(compress_facts_check(&f, summary, strlen(summary), &n), 0);
	return n;
}

static void finds_facts_in_summaries(void **state)
{
	(void)state;
	const char *text = "we paid 1,176 to Margaret Hale of Zubo";
	assert_int_equal(n_found(text, "You paid 1176 to Hale, margaret, who is from ZUBO."), 3);
	assert_int_equal(n_found(text, "You paid 11760 to Margaret Halen of Zubos."), 0);
	assert_int_equal(n_found(text, "x1,176 Margaret"), 0);
	assert_int_equal(n_found(text, ""), 0);
	assert_int_equal(n_found("저는 Zubo에 삽니다, 48213", "Zubo에서 48213번"), 2); /* particles follow */
	assert_int_equal(n_found("see https://a.test/x", "the page https://a.test/x."), 1);
}

/* The sentence of a fact is what can stand for it. */
static void knows_sentences(void **state)
{
	static struct compress_facts f;
	const char *text = "Hello there. My cat is Tiger, really! What now";
	(void)state;
	f = (struct compress_facts){0};
	compress_facts_read(&f, text, strlen(text), 1);
	assert_int_equal(f.n, 1);
	assert_int_equal(f.at[0].n_sentence, strlen("My cat is Tiger, really!"));
	assert_memory_equal(f.at[0].sentence, "My cat is Tiger, really!", f.at[0].n_sentence);
}

/* ---- exhaustion ---- */

static int everything(const struct sl_buf *b)
{
	static struct compress_facts facts;
	struct compress_chat *c;
	struct sl_buf out;
	uint8_t digest[COMPRESS_DIGEST_BYTES];
	size_t n;
	int rc = compress_chat_read((const char *)buf_data(b), b->len, 50, &c);
	if (rc != 0)
		return rc;
	buf_init(&out, MAX_TEXT);
	if ((rc = compress_block_digest(c, 0, digest)) == 0 &&
	    (rc = compress_block_transcript(c, 0, &(struct compress_excerpt){.max_bytes = 300}, &out)) == 0) {
		compress_block_facts(c, 0, &facts);
		rc = compress_facts_check(&facts, (const char *)buf_data(&out), out.len, &n);
	}
	if (rc == 0)
		rc = compress_write(c, 1, COMPRESS_MESSAGE, "told", 4, &out);
	if (rc == 0)
		rc = compress_write(c, 1, COMPRESS_FOLDED, "told", 4, &out);
	buf_dispose(&out);
	compress_chat_free(c);
	return rc;
}

static void survives_exhaustion(void **state)
{
	struct sl_buf b;
	(void)state;
	json_mem_install();
	long_chat(&b, 8);
	long n = 1;
	for (;; n++) {
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, n, 1);
		int rc = everything(&b);
		long passes = fault_passes(FAULT_ALLOC) - before;
		fault_disarm_all();
		if (passes < n) {
			assert_int_equal(rc, 0);
			break;
		}
		/* Text that is no JSON and no memory for it look alike. */
		if (rc != SL_ENOMEM && rc != SL_EINVAL)
			fail_msg("the %ldth allocation: %d", n, rc);
	}
	assert_true(n > 20);
	buf_dispose(&b);
	json_set_alloc_funcs(malloc, free);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(removes_whole_turns),
	    cmocka_unit_test(keeps_what_may_not_go),
	    cmocka_unit_test(keeps_calls_with_their_results),
	    cmocka_unit_test(folds_where_it_must),
	    cmocka_unit_test(blocks_stay),
	    cmocka_unit_test(is_idempotent),
	    cmocka_unit_test(refuses_nonsense),
	    cmocka_unit_test(tells_who_said_what),
	    cmocka_unit_test(finds_facts),
	    cmocka_unit_test(chooses_what_matters),
	    cmocka_unit_test(finds_facts_in_summaries),
	    cmocka_unit_test(knows_sentences),
	    cmocka_unit_test(survives_exhaustion),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
