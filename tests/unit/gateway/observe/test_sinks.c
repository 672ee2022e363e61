/* SPDX-License-Identifier: Apache-2.0
 *
 * Records and traces as a configuration has them, from where an answer is observed to the file: whatever fails, no
 * answer notices, nothing leaks, and every record is counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/metrics.h"
#include "gateway/observe/observe.h"
#include "gateway/observe/sinks.h"
#include "gateway/observe/trace.h"
#include "gateway/observe/tracer.h"

enum { PATIENCE_MS = 60000 };

static char folder[64], path[96];

static int set_up(void **unused)
{
	(void)unused;
	strcpy(folder, "/tmp/sluice-sinks-XXXXXX");
	if (mkdtemp(folder) == NULL)
		return -1;
	snprintf(path, sizeof path, "%s/records", folder);
	return 0;
}

static int tear_down(void **unused)
{
	char key[96];
	(void)unused;
	fault_disarm_all();
	unlink(path);
	snprintf(key, sizeof key, "%s/records.key", folder);
	unlink(key);
	return rmdir(folder);
}

/* Nothing listens on the collector's port. */
static struct gw_config config(char *to)
{
	static char endpoint[] = "http://127.0.0.1:9/v1/traces";
	return (struct gw_config){.state_dir = folder,
				  .requests = {.to = to, .sample = 1},
				  .trace = {.endpoint = endpoint, .sample = 1, .timeout_ms = 1000}};
}

static const struct observed an_answer = {.request_id = "r",
					  .model = "m",
					  .tier = "t",
					  .ended_by = "stop",
					  .status = 200,
					  .has_answer = true,
					  .started_ns = 1,
					  .submitted_ns = 2,
					  .first_ns = 3,
					  .ended_ns = 4,
					  .n_prompt = 5,
					  .n_answer = 6};

static void observe(struct sinks *s)
{
	struct observed o = an_answer;
	struct trace *t = trace_begin(NULL, NULL, 1);
	o.trace = t;
	observe_end(&o, latency_of("t", "m", ""), s);
	trace_free(t);
}

static int64_t count_lines(const char *file)
{
	struct sl_buf text;
	struct sl_err why;
	int64_t n = 0;
	assert_int_equal(file_read(file, 1 << 20, &text, &why), 0);
	for (uint32_t i = 0; i < text.len; i++)
		n += buf_data(&text)[i] == '\n';
	buf_dispose(&text);
	return n;
}

/* The value of a line of the metrics. */
static int64_t value_of(const char *name)
{
	struct sl_buf b;
	buf_init(&b, 64 << 20);
	assert_int_equal(metrics_print(&b), 0);
	const char *at = strstr(buf_cstr(&b), name);
	assert_non_null(at);
	int64_t v = strtoll(at + strlen(name), NULL, 10);
	buf_dispose(&b);
	return v;
}

#define WRITTEN "\nsluice_request_records_total "
#define LOST_QUEUE "\nsluice_request_records_lost_total{why=\"queue\"} "
#define LOST_WRITE "\nsluice_request_records_lost_total{why=\"write\"} "

static void memory_may_end_at_each_allocation(void **unused)
{
	(void)unused;
	struct gw_config cfg = config(path);
	int64_t written = value_of(WRITTEN), lost = value_of(LOST_QUEUE);
	int n_created = 0, n_refused = 0;
	bool hit = true;
	for (long nth = 1; hit; nth++) {
		struct sinks *s = NULL;
		struct sl_err err = {0};
		assert_true(nth < 1000);
		fault_arm(FAULT_ALLOC, nth, 1);
		long before = fault_passes(FAULT_ALLOC);
		int rc = sinks_create(&cfg, &s, &err);
		if (rc == 0) {
			observe(s);
			sinks_destroy(s);
			sinks_wait(PATIENCE_MS);
			n_created++;
		} else {
			if (strstr(err.text, "no memory") == NULL)
				fail_msg("%s", err.text);
			n_refused++;
		}
		hit = fault_passes(FAULT_ALLOC) - before >= nth;
		fault_disarm_all();
	}
	assert_true(n_refused > 4 && n_created > 1);
	assert_int_equal(value_of(WRITTEN) - written, count_lines(path));
	assert_int_equal(value_of(WRITTEN) - written + value_of(LOST_QUEUE) - lost, n_created);
}

/* Each datagram is one write. The thread is held up by the full socket, so lines wait meanwhile. */
static void records_on_standard_error_are_written_line_by_line(void **unused)
{
	(void)unused;
	enum { LINES = 3000 };
	static char to[] = "stderr", text[1 << 16];
	struct gw_config cfg = config(to);
	struct sinks *s;
	struct sl_err err;
	int pair[2], before = dup(STDERR_FILENO);
	cfg.trace.endpoint = (char[]){""};
	assert_int_equal(sinks_create(&cfg, &s, &err), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
	assert_true(dup2(pair[1], STDERR_FILENO) >= 0);
	for (int i = 0; i < LINES; i++)
		observe_end(&an_answer, NULL, s);
	sinks_destroy(s);
	for (int i = 0; i < LINES; i++) {
		ssize_t n = read(pair[0], text, sizeof text);
		assert_true(n > 0 && memchr(text, '\n', (size_t)n) == text + n - 1);
	}
	sinks_wait(PATIENCE_MS);
	dup2(before, STDERR_FILENO);
	close(before);
	close(pair[0]);
	close(pair[1]);
}

static void a_line_is_counted_as_what_became_of_it(void **unused)
{
	(void)unused;
	struct gw_config cfg = config(path);
	struct sinks *s;
	struct sl_err err;
	int64_t written = value_of(WRITTEN), lost = value_of(LOST_WRITE);
	cfg.trace.endpoint = (char[]){""};
	assert_int_equal(sinks_create(&cfg, &s, &err), 0);
	observe_end(&an_answer, NULL, s);
	sinks_destroy(s);
	sinks_wait(PATIENCE_MS);
	assert_int_equal(value_of(WRITTEN) - written, 1);
	/* Its folder is gone. */
	assert_int_equal(sinks_create(&cfg, &s, &err), 0);
	tear_down(NULL);
	observe_end(&an_answer, NULL, s);
	sinks_destroy(s);
	sinks_wait(PATIENCE_MS);
	assert_int_equal(value_of(LOST_WRITE) - lost, 1);
	assert_int_equal(set_up(NULL), 0);
}

static void an_endpoint_is_an_address_without_more(void **unused)
{
	(void)unused;
	static const char *const good[] = {"http://127.0.0.1:4318/v1/traces", "http://[::1]:4318/", "http://collector"},
				 *const bad[] = {"https://a/",        "http://",       "http:///v1",
						 "http://u@a/",       "http://a:0x1/", "http://a:65536/",
						 "http://a/v1?key=1", "http://a/v1#x", "a:4318"};
	struct sl_err why;
	char longest[400] = "http://";
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		assert_int_equal(tracer_check(good[i], &why), 0);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (tracer_check(bad[i], &why) == 0)
			fail_msg("taken: %s", bad[i]);
	memset(longest + 7, 'a', 255);
	assert_int_equal(tracer_check(longest, &why), 0);
	longest[7 + 255] = 'a';
	assert_int_not_equal(tracer_check(longest, &why), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(memory_may_end_at_each_allocation, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(records_on_standard_error_are_written_line_by_line, set_up, tear_down),
	    cmocka_unit_test(an_endpoint_is_an_address_without_more),
	    cmocka_unit_test_setup_teardown(a_line_is_counted_as_what_became_of_it, set_up, tear_down),
	};
	return cmocka_run_group_tests_name("sinks", tests, NULL, NULL);
}
