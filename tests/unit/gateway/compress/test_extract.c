/* SPDX-License-Identifier: Apache-2.0
 *
 * What is extracted from one long message: a corpus of 200 with planted facts, and what must stay as it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/fault.h"
#include "gateway/compress/compress_extract.h"

enum { MESSAGES = 200, PARAGRAPHS = 40, FACTS = 10, MOST = 1 << 20 };

static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (uint32_t)((z ^ (z >> 31)) % below);
}

static const char *const filler[] = {
    "the meeting went on for a while and people said what they always say about such things",
    "nobody was quite sure whether it mattered, but it was written down all the same",
    "in the afternoon the weather was fine and some of us went for a walk along the water",
    "there had been talk of doing it another way, and the talk went on without an end",
    "it is well known that such matters take time, and that patience is a virtue in them",
    "the older papers say little about it, and what they say has often been repeated",
    "on the whole the impression was good, although some would have liked it to be better",
    "as before, questions were asked and answers were given, and then it was time for lunch",
};

static const char *const names[] = {"Marlow", "Tessenow", "Okafor", "Brandt", "Yilmaz", "Castellan"};

/* One of three kinds; key: what a reader would look for. */
static void plant(int kind, char *sentence, size_t size, char *key, size_t key_size)
{
	uint32_t a = 100 + draw(900), c = 10 + draw(90);
	const char *name = names[draw(6)];
	if (kind == 0) {
		snprintf(key, key_size, "%u,%u", c, a);
		snprintf(sentence, size, "The invoice came to $%s in the end.", key);
	} else if (kind == 1) {
		snprintf(key, key_size, "%s%u", name, a);
		snprintf(sentence, size, "The key was handed to %s at the gate.", key);
	} else {
		snprintf(key, key_size, "20%02u-%02u-%02u", 10 + draw(20), 1 + draw(12), 1 + draw(28));
		snprintf(sentence, size, "They agreed that delivery is due on %s.", key);
	}
}

/* A question, a long text with facts here and there, the question again. */
static void make_message(struct sl_buf *out, char keys[FACTS][32])
{
	char sentence[128];
	int where[FACTS];
	for (int i = 0; i < FACTS; i++)
		where[i] = (int)draw(PARAGRAPHS);
	buf_clear(out, MOST);
	assert_int_equal(buf_append_str(out, "Please read the following and tell me about the invoice.\n\n"), 0);
	for (int p = 0; p < PARAGRAPHS; p++) {
		for (uint32_t i = 0, n = 3 + draw(4); i < n; i++)
			assert_int_equal(buf_printf(out, "%s. ", filler[draw(8)]), 0);
		for (int f = 0; f < FACTS; f++)
			if (where[f] == p) {
				plant(f % 3, sentence, sizeof sentence, keys[f], sizeof keys[f]);
				assert_int_equal(buf_printf(out, "%s %s. ", sentence, filler[draw(8)]), 0);
			}
		assert_int_equal(buf_append_str(out, "\n\n"), 0);
	}
	assert_int_equal(buf_append_str(out, "What did the invoice come to, and who has the key?"), 0);
}

/* As the gateway estimates them: four bytes of ASCII. */
static void facts_of_a_corpus_are_kept(void **state)
{
	struct sl_buf text, out;
	char keys[FACTS][32];
	size_t before = 0, after = 0, kept = 0;
	(void)state;
	random_state = 1;
	buf_init(&text, MOST);
	buf_init(&out, MOST);
	for (int i = 0; i < MESSAGES; i++) {
		struct compress_extract r;
		make_message(&text, keys);
		buf_clear(&out, MOST);
		assert_int_equal(compress_extract((const char *)buf_data(&text), text.len, text.len / 2, &out, &r), 0);
		assert_true(out.len <= text.len * 6 / 10);
		before += text.len;
		after += out.len;
		const char *all = buf_cstr(&out);
		for (int f = 0; f < FACTS; f++)
			kept += strstr(all, keys[f]) != NULL;
		assert_non_null(strstr(all, "Please read the following"));
		assert_non_null(strstr(all, "who has the key?"));
		assert_int_equal(r.n_found, r.n_facts);
	}
	print_message("%.1f %% fewer bytes, %.1f %% of the facts\n", 100 - 100 * (double)after / (double)before,
		      100 * (double)kept / (MESSAGES * FACTS));
	assert_true((double)after <= 0.6 * (double)before);
	assert_true((double)kept >= 0.98 * MESSAGES * FACTS);
	buf_dispose(&text);
	buf_dispose(&out);
}

static int of(const char *text, size_t most, struct sl_buf *out, struct compress_extract *r)
{
	buf_clear(out, MOST);
	return compress_extract(text, strlen(text), most, out, r);
}

static void the_question_decides(void **state)
{
	struct sl_buf out;
	struct compress_extract r;
	(void)state;
	buf_init(&out, MOST);
	static const char text[] = "Here are some notes.\n\n"
				   "the garden has roses and a pond with frogs in it, which sing at night.\n\n"
				   "the bicycle needs a new chain and its brakes squeal when it rains.\n\n"
				   "the roof was mended last year by a man from the village.\n\n"
				   "the neighbours are friendly and often bring apples and pears.\n\n"
				   "the kitchen is small and bright and smells of bread.\n\n"
				   "the cellar is dry, and wine is stored there.\n\n"
				   "What is wrong with the bicycle?";
	assert_int_equal(of(text, 200, &out, &r), 0);
	assert_string_equal(buf_cstr(&out),
			    "Here are some notes.\n\n[…]\n\n"
			    "the bicycle needs a new chain and its brakes squeal when it rains.\n\n[…]\n\n"
			    "What is wrong with the bicycle?");
	assert_true(r.n_paragraphs == 8 && r.n_kept == 3);
	/* With room for all, all stays that has anything to do with it; twice gives the same. */
	struct sl_buf again;
	buf_init(&again, MOST);
	assert_int_equal(compress_extract(text, sizeof text - 1, 200, &again, &r), 0);
	assert_int_equal(again.len, out.len);
	assert_memory_equal(buf_data(&again), buf_data(&out), out.len);
	buf_dispose(&again);
	buf_dispose(&out);
}

static void code_is_one_paragraph_and_few_are_left_alone(void **state)
{
	struct sl_buf out;
	struct compress_extract r;
	char lines[600] = "";
	(void)state;
	buf_init(&out, MOST);
	assert_int_equal(of("one\n\ntwo\n\nthree", 4, &out, &r), SL_ENOTFOUND);
	assert_int_equal(of("", 4, &out, &r), SL_ENOTFOUND);
	static const char code[] =
	    "Explain parse.\n\naa bb cc dd\n\n```\nint parse(void)\n\n{ return 1; }\n```\n\nee ff gg hh\n\nii "
	    "jj kk ll\n\nmm nn oo pp\n\nWhat does parse return?";
	assert_int_equal(of(code, 110, &out, &r), 0);
	assert_non_null(strstr(buf_cstr(&out), "```\nint parse(void)\n\n{ return 1; }\n```"));
	assert_null(strstr(buf_cstr(&out), "ee ff"));
	/* A log has lines. */
	for (int i = 0; i < 20; i++)
		snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%s\n",
			 i == 0    ? "Here is a log"
			 : i == 12 ? "error: disk failed"
			 : i == 19 ? "which disk failed?"
				   : "all is well here");
	assert_int_equal(of(lines, 80, &out, &r), 0);
	assert_non_null(strstr(buf_cstr(&out), "error: disk failed"));
	assert_true(out.len < 120);
	/* Bytes that are no text, a fence that does not end, one line. */
	static const char odd[] = "\xff\xfe```\n\n```\n\n\xc3\n\n\n\n~~~\n\n~~~ \xe2\x80\n\nx";
	for (size_t n = 0; n < sizeof odd; n++) {
		buf_clear(&out, MOST);
		int rc = compress_extract(odd, n, 10, &out, &r);
		assert_true(rc == 0 || rc == SL_ENOTFOUND);
	}
	buf_dispose(&out);
}

static void every_allocation_fails_once(void **state)
{
	struct sl_buf text, out;
	char keys[FACTS][32];
	struct compress_extract r;
	int failures = 0;
	(void)state;
	random_state = 3;
	buf_init(&text, MOST);
	make_message(&text, keys);
	for (long nth = 1;; nth++) {
		buf_init(&out, MOST);
		fault_arm(FAULT_ALLOC, nth, 1);
		int rc = compress_extract((const char *)buf_data(&text), text.len, text.len / 2, &out, &r);
		fault_disarm_all();
		buf_dispose(&out);
		if (rc == 0)
			break;
		assert_int_equal(rc, SL_ENOMEM);
		failures++;
	}
	assert_true(failures > 3);
	buf_dispose(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(facts_of_a_corpus_are_kept),
	    cmocka_unit_test(the_question_decides),
	    cmocka_unit_test(code_is_one_paragraph_and_few_are_left_alone),
	    cmocka_unit_test(every_allocation_fails_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
