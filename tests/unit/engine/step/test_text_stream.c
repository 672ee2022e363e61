/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/text_stream against an oracle that sees the whole text at once: make it valid UTF-8, find
 * the earliest end of a stop (the longest that ends there), cut. The stream must give the same for
 * every way to cut the input.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "engine/step/text_stream.h"

static struct proto_str str(const char *s) { return (struct proto_str){s, strlen(s)}; }

/* The whole text at once. Returns its length; *stopped as the stream should say before finish. */
static size_t oracle(const char *in, size_t n, const struct proto_str *stops, int n_stops, char *out, bool *stopped)
{
	size_t len = 0, i = 0, tail_at = SIZE_MAX;
	while (i < n) {
		uint32_t cp;
		int c = utf8_decode((const uint8_t *)in + i, n - i, &cp);
		if (c > 0) {
			memcpy(out + len, in + i, (size_t)c);
			len += (size_t)c;
			i += (size_t)c;
			continue;
		}
		if (c == 0)
			tail_at = len; /* only known at the end */
		memcpy(out + len, "\xEF\xBF\xBD", 3);
		len += 3;
		i = c == 0 ? n : i + 1;
	}
	for (size_t end = 1; end <= len; end++) {
		size_t longest = 0;
		for (int s = 0; s < n_stops; s++)
			if (stops[s].n <= end && stops[s].n > longest &&
			    memcmp(out + end - stops[s].n, stops[s].at, stops[s].n) == 0)
				longest = stops[s].n;
		if (longest > 0) {
			*stopped = end <= tail_at;
			return end - longest;
		}
	}
	*stopped = false;
	return len;
}

/* Feeds in by the pieces whose ends are the bits of cuts (or by step when cuts is 0). */
static void check(const char *in, size_t n, const struct proto_str *stops, int n_stops, uint64_t cuts, size_t step)
{
	char want[512];
	bool want_stopped, stopped = false, any = false;
	size_t want_n = oracle(in, n, stops, n_stops, want, &want_stopped);
	struct text_stream s;
	struct sl_buf out;
	buf_init(&out, 4096);
	assert_int_equal(text_stream_init(&s, stops, n_stops), 0);
	for (size_t from = 0; from < n;) {
		size_t to = from + 1;
		while (to < n && (cuts ? !(cuts >> (to - 1) & 1) : to - from < step))
			to++;
		assert_int_equal(text_stream_push(&s, in + from, to - from, &out, &stopped), 0);
		any |= stopped;
		assert_true(stopped == any); /* once stopped, always stopped */
		/* What has left is a beginning of the answer and ends with a whole character. */
		assert_true(out.len <= want_n);
		assert_true(out.len == 0 || memcmp(buf_data(&out), want, out.len) == 0);
		assert_true(utf8_valid(buf_data(&out), out.len));
		from = to;
	}
	assert_int_equal(text_stream_finish(&s, &out), 0);
	assert_int_equal(any, want_stopped);
	assert_int_equal(out.len, want_n);
	assert_true(want_n == 0 || memcmp(buf_data(&out), want, want_n) == 0);
	text_stream_dispose(&s);
	buf_dispose(&out);
}

static const char *const stop_sets[][6] = {
    {NULL},
    {"a"},
    {"ab", "b"},
    {"aab", "ab"},
    {"abab", "aba", "bb"},
    {"aaa"},
    {"\xC3\xA9", "b\xC3\xA9"},
    {"\xE2\x82\xAC"
     "a",
     "\xE2\x82\xAC\xE2\x82\xAC"},
    {"\xEF\xBF\xBD"},
    {"a\xEF\xBF\xBD", "b"},
    {"abcabd", "bcabc", "cab"},
};
enum { N_SETS = sizeof(stop_sets) / sizeof(stop_sets[0]) };

static int set_of(size_t i, struct proto_str *stops)
{
	int n = 0;
	for (; stop_sets[i][n] != NULL; n++)
		stops[n] = str(stop_sets[i][n]);
	return n;
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static size_t random_text(uint64_t *seed, char *text, size_t max)
{
	static const char *const parts[] = {"a",        "b",
					    "c",        "d",
					    "ab",       "\xC3\xA9",
					    "\xC3",     "\xA9",
					    "\xE2\x82", "\xE2\x82\xAC",
					    "\xFF",     "\xF0\x9F\x98\x80",
					    "\xF0\x9F", "abcabd"};
	size_t n = 0;
	for (;;) {
		const char *part = parts[next_random(seed) % (sizeof(parts) / sizeof(parts[0]))];
		if (n + strlen(part) > max)
			return n;
		memcpy(text + n, part, strlen(part));
		n += strlen(part);
	}
}

static void every_cut_of_short_texts(void **state)
{
	(void)state;
	uint64_t seed = 0x5EED;
	char text[10];
	for (size_t set = 0; set < N_SETS; set++) {
		struct proto_str stops[6];
		int n_stops = set_of(set, stops);
		for (int round = 0; round < 60; round++) {
			size_t n = random_text(&seed, text, sizeof(text));
			/* Bit n - 1 keeps cuts from being 0; it cuts nothing. */
			for (uint64_t cuts = 0; cuts < 1u << (n - 1); cuts++)
				check(text, n, stops, n_stops, cuts | 1u << (n - 1), 0);
		}
	}
}

static void random_cuts_of_long_texts(void **state)
{
	(void)state;
	uint64_t seed = 0xC0FFEE;
	char text[64];
	for (int round = 0; round < 6000; round++) {
		struct proto_str stops[6];
		int n_stops = set_of(next_random(&seed) % N_SETS, stops);
		size_t n = random_text(&seed, text, sizeof(text));
		check(text, n, stops, n_stops, next_random(&seed) | 1ull << 63, 0);
		check(text, n, stops, n_stops, 0, 1 + next_random(&seed) % n);
	}
}

static void holds_back_only_what_may_become_a_stop(void **state)
{
	(void)state;
	struct text_stream s;
	struct sl_buf out;
	bool stopped;
	const struct proto_str stop = str("\n\nUser:");
	buf_init(&out, 100);
	assert_int_equal(text_stream_init(&s, &stop, 1), 0);
	assert_int_equal(text_stream_push(&s, "Hi\n\nUs", 6, &out, &stopped), 0);
	assert_int_equal(out.len, 2);
	assert_int_equal(text_stream_push(&s, "ual", 3, &out, &stopped), 0);
	assert_int_equal(out.len, 9);
	assert_memory_equal(buf_data(&out), "Hi\n\nUsual", 9);
	assert_int_equal(text_stream_push(&s, "\n\nUser: x", 9, &out, &stopped), 0);
	assert_true(stopped);
	assert_int_equal(text_stream_push(&s, "more", 4, &out, &stopped), 0);
	assert_true(stopped);
	assert_int_equal(text_stream_finish(&s, &out), 0);
	assert_int_equal(out.len, 9);
	text_stream_dispose(&s);
	buf_dispose(&out);
}

/* Stops that are completed within the first bytes are text; one that begins there and is completed
 * after them is a stop. */
static void a_stop_may_be_kept(void **state)
{
	const struct proto_str stops[] = {str("never"), str("END"), str("Q")};
	struct text_stream s;
	struct sl_buf out;
	bool stopped = false;
	(void)state;
	buf_init(&out, 64);
	assert_int_equal(text_stream_init(&s, stops, 3), 0);
	s.keeps = true;
	assert_int_equal(text_stream_push(&s, "the E", 5, &out, &stopped), 0);
	assert_int_equal(out.len, 4); /* what may be its beginning is held back as ever */
	assert_int_equal(text_stream_push(&s, "ND and", 6, &out, &stopped), 0);
	assert_true(stopped && s.by == 1);
	assert_int_equal(out.len, 7);
	assert_memory_equal(buf_data(&out), "the END", 7);
	assert_int_equal(text_stream_finish(&s, &out), 0);
	assert_int_equal(out.len, 7);
	text_stream_dispose(&s);
	buf_dispose(&out);
}

static void stops_that_come_too_early(void **state)
{
	(void)state;
	uint64_t seed = 0xEA51;
	for (int round = 0; round < 20000; round++) {
		struct proto_str stops[6];
		struct text_stream s;
		struct sl_buf out;
		bool stopped = false;
		char text[24];
		int n_stops = set_of(next_random(&seed) % N_SETS, stops);
		size_t n = 1 + next_random(&seed) % sizeof text, early = next_random(&seed) % (n + 1), cut = n;
		for (size_t i = 0; i < n; i++)
			text[i] = (char)('a' + next_random(&seed) % 2);
		for (size_t end = early + 1; end <= n && cut == n; end++) {
			size_t longest = 0;
			for (int k = 0; k < n_stops; k++)
				if (stops[k].n <= end && stops[k].n > longest &&
				    memcmp(text + end - stops[k].n, stops[k].at, stops[k].n) == 0)
					longest = stops[k].n;
			if (longest > 0) {
				cut = end - longest;
				stopped = true;
			}
		}
		bool want_stopped = stopped;
		buf_init(&out, 64);
		assert_int_equal(text_stream_init(&s, stops, n_stops), 0);
		for (size_t i = 0; i < n; i++) {
			text_stream_may_stop(&s, i >= early);
			assert_int_equal(text_stream_push(&s, text + i, 1, &out, &stopped), 0);
		}
		assert_int_equal(stopped, want_stopped);
		assert_int_equal(text_stream_finish(&s, &out), 0);
		assert_int_equal(out.len, cut);
		assert_true(cut == 0 || memcmp(buf_data(&out), text, cut) == 0);
		text_stream_dispose(&s);
		buf_dispose(&out);
	}
}

/* The text of a constrained answer begins a text of its form also where it is cut within a character. */
static void an_unfinished_character_may_be_dropped(void **state)
{
	(void)state;
	static const char cut[] = "a\xE6\x97";
	for (int whole = 0; whole < 2; whole++) {
		struct text_stream s;
		struct sl_buf out;
		bool stopped;
		buf_init(&out, 64);
		assert_int_equal(text_stream_init(&s, NULL, 0), 0);
		s.whole = whole;
		assert_int_equal(text_stream_push(&s, cut, sizeof cut - 1, &out, &stopped), 0);
		assert_int_equal(text_stream_finish(&s, &out), 0);
		assert_int_equal(out.len, whole ? 1 : 4);
		assert_memory_equal(buf_data(&out), "a\xEF\xBF\xBD", out.len);
		text_stream_dispose(&s);
		buf_dispose(&out);
	}
}

static void bounds(void **state)
{
	(void)state;
	struct text_stream s;
	char longest[PROTO_MAX_STOP_BYTES + 1];
	memset(longest, 'x', sizeof(longest));
	struct proto_str stop = {longest, sizeof(longest)};
	assert_int_equal(text_stream_init(&s, &stop, 1), SL_EINVAL);
	stop.n = 0;
	assert_int_equal(text_stream_init(&s, &stop, 1), SL_EINVAL);
	stop = str("a\xC3");
	assert_int_equal(text_stream_init(&s, &stop, 1), SL_EINVAL);
	stop.at = longest;
	struct proto_str many[PROTO_MAX_STOPS + 1];
	for (size_t i = 0; i < PROTO_MAX_STOPS + 1; i++)
		many[i] = str("x");
	assert_int_equal(text_stream_init(&s, many, PROTO_MAX_STOPS + 1), SL_EINVAL);
	/* All of the longest stop but its last byte is held, and comes out at the end. */
	stop.n = PROTO_MAX_STOP_BYTES;
	struct sl_buf out;
	bool stopped;
	buf_init(&out, 1024);
	assert_int_equal(text_stream_init(&s, &stop, 1), 0);
	assert_int_equal(text_stream_push(&s, longest, stop.n - 1, &out, &stopped), 0);
	assert_int_equal(out.len, 0);
	assert_false(stopped);
	assert_int_equal(text_stream_finish(&s, &out), 0);
	assert_int_equal(out.len, stop.n - 1);
	text_stream_dispose(&s);
	buf_dispose(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_cut_of_short_texts),
	    cmocka_unit_test(random_cuts_of_long_texts),
	    cmocka_unit_test(holds_back_only_what_may_become_a_stop),
	    cmocka_unit_test(a_stop_may_be_kept),
	    cmocka_unit_test(stops_that_come_too_early),
	    cmocka_unit_test(an_unfinished_character_may_be_dropped),
	    cmocka_unit_test(bounds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
