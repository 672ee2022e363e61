/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics of the servers that are known, and of some that lie.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "engine/remote/remote_gauges.h"

static char why[256];

static int read_text(const char *text, struct remote_gauges *out)
{
	why[0] = '\0';
	return remote_gauges_read(text, strlen(text), out, why, sizeof why);
}

static void expect(const char *text, uint32_t running, uint32_t waiting, uint32_t kv_permille)
{
	struct remote_gauges g;
	if (read_text(text, &g) != 0)
		fail_msg("%s", why);
	assert_int_equal(g.running, running);
	assert_int_equal(g.waiting, waiting);
	assert_int_equal(g.kv_permille, kv_permille);
}

static void each_server_by_its_names(void **state)
{
	(void)state;
	expect("# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
	       "# TYPE vllm:num_requests_running gauge\n"
	       "vllm:num_requests_running{engine=\"0\",model_name=\"meta/l\"} 3.0\n"
	       "vllm:num_requests_waiting{engine=\"0\",model_name=\"meta/l\"} 2.0\n"
	       "vllm:num_requests_waiting_by_reason{reason=\"x\"} 9.0\n"
	       "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"meta/l\"} 0.25\n",
	       3, 2, 250);
	expect("vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 1.0\n", 1, 0, 1000);
	expect("sglang:num_running_reqs{model_name=\"a\"} 7.0\r\nsglang:num_queue_reqs{model_name=\"a\"} 11.0\r\n"
	       "sglang:token_usage{model_name=\"a\"} 5e-1 1700000000\r\n",
	       7, 11, 500);
	expect("llamacpp:requests_processing 4\nllamacpp:requests_deferred 0\nllamacpp:kv_cache_usage_ratio 0.125", 4,
	       0, 125);
}

static void ranks_and_models_are_added(void **state)
{
	(void)state;
	expect("vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_running{engine=\"1\"} 5\n"
	       "vllm:kv_cache_usage_perc{engine=\"0\"} 0.2\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.6\n",
	       8, 0, 400);
}

static void labels_may_be_anything(void **state)
{
	(void)state;
	expect("vllm:num_requests_running{model_name=\"a} 77 \\\" 5\",engine=\"0\"} 3\n"
	       "other{x=\"vllm:num_requests_running 9\"} 9\nvllm:num_requests_running_x 9\n",
	       3, 0, 0);
}

static void refuse(const char *text, const char *because)
{
	struct remote_gauges g = {.running = 42};
	assert_int_equal(read_text(text, &g), SL_EPROTO);
	if (strstr(why, because) == NULL)
		fail_msg("'%s' is said, not '%s'", why, because);
	assert_int_equal(g.running, 42);
}

static void lies(void **state)
{
	(void)state;
	static const char *const values[] = {"-1", "NaN", "+Inf", "1e300", "1000001", "x", "", "3.0x", "0x"};
	char text[128];
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		snprintf(text, sizeof text, "vllm:num_requests_running %s\n", values[i]);
		refuse(text, "its vllm:num_requests_running can't be ");
	}
	refuse("vllm:num_requests_running 1\nsglang:token_usage 1.5\n", "its sglang:token_usage can't be 1.5");
	refuse("vllm:num_requests_running 1\nvllm:num_requests_waiting{a=\"b 5\n", "its vllm:num_requests_waiting");
	refuse("", "no number of running requests");
	refuse("<html>{\"not\":\"metrics\"}</html>\n\n\n", "no number of running requests");
	refuse("# vllm:num_requests_running 3\n", "no number of running requests");
}

/* Each line is believable, their sum is not. */
static void many_lines(void **state)
{
	(void)state;
	enum { LINES = 3000 };
	static char text[LINES * 40];
	size_t n = 0;
	for (int i = 0; i < LINES; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "sglang:num_running_reqs 900\n");
	refuse(text, "its sglang:num_running_reqs can't be");
}

/* Not one byte behind the text is looked at. */
static void every_beginning(void **state)
{
	(void)state;
	static const char text[] = "vllm:num_requests_running{a=\"\\\"}\"} 12 5\nvllm:kv_cache_usage_perc 0.5";
	for (size_t n = 0; n < sizeof text; n++) {
		char *exact = test_malloc(n > 0 ? n : 1);
		struct remote_gauges g = {0};
		memcpy(exact, text, n);
		int rc = remote_gauges_read(exact, n, &g, why, sizeof why);
		assert_true(rc == SL_EPROTO || (rc == 0 && (g.running == 12 || g.running == 1)));
		test_free(exact);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_server_by_its_names),
	    cmocka_unit_test(ranks_and_models_are_added),
	    cmocka_unit_test(labels_may_be_anything),
	    cmocka_unit_test(lies),
	    cmocka_unit_test(many_lines),
	    cmocka_unit_test(every_beginning),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
