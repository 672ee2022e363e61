/* SPDX-License-Identifier: Apache-2.0
 *
 * A log that nobody takes: full, unread or closed, it stops nothing and what is lost is counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/metrics.h"

static int saved;

static int setup(void **state)
{
	(void)state;
	saved = dup(STDERR_FILENO);
	return saved < 0;
}

static int teardown(void **state)
{
	(void)state;
	dup2(saved, STDERR_FILENO);
	return close(saved);
}

static long dropped(void)
{
	struct sl_buf b;
	buf_init(&b, 1 << 20);
	assert_int_equal(metrics_print(&b), 0);
	assert_int_equal(buf_append(&b, "", 1), 0);
	const char *at = strstr((const char *)buf_data(&b), "\nsluice_log_lines_dropped_total ");
	assert_non_null(at);
	long n = atol(at + strlen("\nsluice_log_lines_dropped_total "));
	buf_dispose(&b);
	return n;
}

static void a_full_disk_is_counted(void **state)
{
	(void)state;
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	if (full < 0)
		skip();
	long before = dropped();
	dup2(full, STDERR_FILENO);
	close(full);
	for (int i = 0; i < 10; i++)
		log_error("line %d", i);
	assert_int_equal(dropped() - before, 10);
}

static void an_unread_pipe_does_not_block(void **state)
{
	(void)state;
	enum { LINES = 20000 };
	int p[2];
	char text[4096];
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	long before = dropped();
	dup2(p[1], STDERR_FILENO);
	close(p[1]);
	alarm(20); /* where it blocks, it ends here */
	for (int i = 0; i < LINES; i++)
		log_error("line %d", i);
	long lost = dropped() - before;
	assert_true(lost > 0 && lost < LINES);
	/* Read again, it goes on, and what came is whole lines. */
	ssize_t n = read(p[0], text, sizeof text);
	assert_true(n > 0);
	while (n == (ssize_t)sizeof text)
		n = read(p[0], text, sizeof text);
	log_error("the last");
	n = read(p[0], text, sizeof text - 1);
	assert_true(n > 0 && text[n - 1] == '\n');
	text[n] = '\0';
	assert_non_null(strstr(text, "error sluice: the last\n"));
	assert_int_equal(dropped() - before, lost);
	alarm(0);
	close(p[0]);
}

static void a_closed_pipe_is_counted(void **state)
{
	(void)state;
	int p[2];
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	signal(SIGPIPE, SIG_IGN);
	long before = dropped();
	dup2(p[1], STDERR_FILENO);
	close(p[1]);
	close(p[0]);
	log_error("to nobody");
	assert_int_equal(dropped() - before, 1);
	signal(SIGPIPE, SIG_DFL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(a_full_disk_is_counted),
	    T(an_unread_pipe_does_not_block),
	    T(a_closed_pipe_is_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
