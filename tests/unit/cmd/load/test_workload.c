/* SPDX-License-Identifier: Apache-2.0
 *
 * What a load sends, and when: arrivals, kinds of requests, recorded traffic.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/load/workload.h"

/* ---- arrivals ---- */

static void check_gaps(const char *text, double rate, double want_cv)
{
	enum { N = 200000 };
	struct arrivals a = {.rate = rate};
	struct load_random r = {.state = 7};
	double sum = 0, squares = 0;
	assert_int_equal(arrivals_parse(text, &a), 0);
	for (int i = 0; i < N; i++) {
		double gap = arrivals_gap(&a, &r);
		assert_true(gap >= 0);
		sum += gap;
		squares += gap * gap;
	}
	double mean = sum / N, cv = sqrt(squares / N - mean * mean) / mean;
	assert_true(fabs(mean * rate - 1) < 0.02);
	assert_true(fabs(cv - want_cv) < 0.03 * (1 + want_cv));
}

static void arrivals_have_their_rate_and_variation(void **state)
{
	(void)state;
	check_gaps("poisson", 3, 1);
	check_gaps("even", 0.25, 0);
	check_gaps("gamma:0.25", 100, 2);
	check_gaps("gamma:1", 1, 1);
	check_gaps("gamma:9", 10, 1.0 / 3);
	/* Of eight gaps seven are 0, and one is exponential with eight times the mean: E[x²] = 2·64/8. */
	check_gaps("burst:8", 5, sqrt(15));
}

static void wrong_arrivals(void **state)
{
	(void)state;
	static const char *const texts[] = {"",         "poison",    "gamma",    "gamma:",    "gamma:0", "gamma:nan",
					    "gamma:2x", "burst:0.5", "burst:-1", "burst:1e9", "even:2x"};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct arrivals a = {.rate = 1, .shape = 42};
		assert_int_equal(arrivals_parse(texts[i], &a), SL_EINVAL);
		assert_true(a.shape == 42);
	}
}

/* ---- kinds ---- */

static void kinds_come_by_weight(void **state)
{
	(void)state;
	enum { N = 100000 };
	struct workload w = {.n_shared = 40, .n_prefixes = 4};
	struct load_random r = {.state = 1};
	int n_long = 0, of_prefix[4] = {0};
	assert_int_equal(workload_parse_mix("3:20:64,1:2000:128", &w), 0);
	for (int i = 0; i < N; i++) {
		struct work one = workload_draw(&w, &r);
		bool is_long = one.n_prompt == 2000;
		n_long += is_long;
		assert_int_equal(one.n_answer, is_long ? 128 : 64);
		assert_int_equal(one.n_shared, is_long ? 40 : 20);
		assert_true(one.prefix < 4);
		of_prefix[one.prefix]++;
	}
	assert_true(abs(n_long - N / 4) < N / 100);
	for (int i = 0; i < 4; i++)
		assert_true(abs(of_prefix[i] - N / 4) < N / 100);
}

static void wrong_kinds(void **state)
{
	(void)state;
	static const char *const texts[] = {"",        "1",      "1:2",    "1:2:",    "0:2:3",   "1:0:3",   "1:2:0",
					    "1:2:3,,", "1:2:3;", "-1:2:3", "1:2:3:4", "nan:2:3", "1:1e7:3", "1:2:3,x"};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct workload w = {0};
		assert_int_equal(workload_parse_mix(texts[i], &w), SL_EINVAL);
	}
	char many[512] = "";
	for (int i = 0; i < WORKLOAD_MAX_KINDS; i++)
		strcat(many, i == 0 ? "1:2:3" : ",1:2:3");
	struct workload w = {0};
	assert_int_equal(workload_parse_mix(many, &w), 0);
	assert_int_equal(workload_parse_mix(strcat(many, ",1:2:3"), &w), SL_EINVAL);
}

static char *text_of(const struct work *w, struct load_random *r)
{
	struct sl_buf out;
	buf_init(&out, 1 << 20);
	assert_int_equal(work_write(w, r, &out), 0);
	char *text = strndup((const char *)buf_data(&out), out.len);
	buf_dispose(&out);
	return text;
}

static size_t same_beginning(const char *a, const char *b)
{
	size_t n = 0;
	while (a[n] != '\0' && a[n] == b[n])
		n++;
	return n;
}

static void prompts_share_their_prefix(void **state)
{
	(void)state;
	struct load_random r = {.state = 5};
	const struct work one = {.n_prompt = 100, .n_shared = 60, .prefix = 1},
			  other = {.n_prompt = 100, .n_shared = 60};
	const struct work prefix = {.n_prompt = 60, .n_shared = 60, .prefix = 1};
	char *a = text_of(&one, &r), *b = text_of(&one, &r), *c = text_of(&other, &r), *p = text_of(&prefix, &r);
	int n_words = 0;
	for (const char *at = a; *at != '\0'; at++)
		n_words += *at == ' ';
	assert_int_equal(n_words, 100);
	assert_true(same_beginning(a, b) >= strlen(p) && strncmp(a, p, strlen(p)) == 0);
	assert_true(strcmp(a, b) != 0);
	assert_true(same_beginning(a, c) < strlen(p) / 2);
	free(a);
	free(b);
	free(c);
	free(p);
}

/* ---- recorded traffic ---- */

static int read_text(const char *text, struct load_trace *out, struct sl_err *err)
{
	char path[] = "/tmp/sluice-trace-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	int rc = load_trace_read(path, out, err);
	unlink(path);
	return rc;
}

static void traces_of_both_forms(void **state)
{
	(void)state;
	struct load_trace t;
	struct sl_err err = {0};
	assert_int_equal(
	    read_text("{\"at\":2.5,\"prompt_tokens\":10,\"answer_tokens\":3}\n\n"
		      "{\"at\":0.5,\"prompt_tokens\":20,\"answer_tokens\":4,\"prefix\":\"x\",\"prefix_tokens\":8}",
		      &t, &err),
	    0);
	assert_int_equal(t.n, 2);
	assert_true(t.items[0].at == 0 && t.items[1].at == 2);
	assert_int_equal(t.items[0].work.n_prompt, 20);
	assert_int_equal(t.items[0].work.n_shared, 8);
	assert_true(t.items[0].work.prefix != 0);
	load_trace_free(&t);
	assert_int_equal(
	    read_text("{\"time\":\"2026-01-31T23:59:59.900Z\",\"status\":429}\n"
		      "{\"time\":\"2026-02-01T00:00:01.500Z\",\"tenant\":\"a\",\"e2e_ms\":500,\"tokens_in\":30,"
		      "\"tokens_cached\":16,\"tokens_out\":4,\"ttft_ms\":12.5,\"itl_ms\":3,\"itl_max_ms\":7.25}\n"
		      "{\"time\":\"2026-01-31T23:59:59.750Z\",\"e2e_ms\":250,\"tokens_in\":7,\"tokens_out\":9}\n",
		      &t, &err),
	    0);
	assert_int_equal(t.n, 2);
	assert_int_equal(t.items[0].work.n_prompt, 7);
	assert_true(fabs(t.items[1].at - 1.5) < 1e-6);
	assert_int_equal(t.items[1].work.n_answer, 4);
	assert_int_equal(t.items[1].work.n_shared, 16);
	assert_int_equal(t.items[1].work.n_left, 34);
	assert_true(t.items[1].ttft_ms == 12.5 && t.items[1].itl_ms == 3 && t.items[1].itl_max_ms == 7.25);
	assert_true(t.items[0].ttft_ms == 0 && t.items[0].itl_ms == 0 && t.items[0].itl_max_ms == 0);
	load_trace_free(&t);
}

static void wrong_traces(void **state)
{
	(void)state;
	static const struct {
		const char *text, *why;
	} cases[] = {{"", "no requests"},
		     {"{\"x\":1}", "line 1: at is no number"},
		     {"\n[1]", "line 2: not a JSON object"},
		     {"{\"at\":1", "line 1: not a JSON object"},
		     {"{\"at\":-1,\"prompt_tokens\":1,\"answer_tokens\":1}", "at is no number"},
		     {"{\"at\":1e300,\"prompt_tokens\":1,\"answer_tokens\":1}", "at is no number"},
		     {"{\"at\":1,\"prompt_tokens\":0,\"answer_tokens\":1}", "prompt_tokens"},
		     {"{\"at\":1,\"prompt_tokens\":9999999,\"answer_tokens\":1}", "prompt_tokens"},
		     {"{\"at\":1,\"prompt_tokens\":1}", "answer_tokens"},
		     {"{\"at\":1,\"prompt_tokens\":1,\"answer_tokens\":1.5}", "answer_tokens"},
		     {"{\"at\":1,\"prompt_tokens\":1,\"answer_tokens\":1,\"prefix_tokens\":\"x\"}", "prefix_tokens"},
		     {"{\"time\":\"yesterday\",\"tokens_in\":1,\"tokens_out\":1}", "time is not"},
		     {"{\"time\":\"2026-01-31T23:59:59.9\",\"tokens_in\":1,\"tokens_out\":1}", "time is not"},
		     {"{\"time\":\"2026-01-31T23:59:59.9Z\",\"tokens_in\":-1,\"tokens_out\":1}", "tokens_in"}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct load_trace t;
		struct sl_err err = {0};
		assert_true(read_text(cases[i].text, &t, &err) != 0);
		if (strstr(err.text, cases[i].why) == NULL)
			fail_msg("%s: %s", cases[i].text, err.text);
		assert_null(t.items);
	}
	struct load_trace t;
	struct sl_err err = {0};
	assert_int_equal(load_trace_read("/nonexistent/trace", &t, &err), SL_ENOTFOUND);
	assert_non_null(strstr(err.text, "/nonexistent/trace"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(arrivals_have_their_rate_and_variation),
	    cmocka_unit_test(wrong_arrivals),
	    cmocka_unit_test(kinds_come_by_weight),
	    cmocka_unit_test(wrong_kinds),
	    cmocka_unit_test(prompts_share_their_prefix),
	    cmocka_unit_test(traces_of_both_forms),
	    cmocka_unit_test(wrong_traces),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
