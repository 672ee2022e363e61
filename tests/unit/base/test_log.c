/* SPDX-License-Identifier: Apache-2.0
 *
 * A log that nobody takes: full, unread or closed, it stops nothing and what is lost is counted. Lines of JSON are
 * whole objects, whatever is in them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
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

/* What one call logs as JSON, parsed. */
static json_t *logged(const struct log_field *fields, size_t n, const char *message)
{
	static char line[8192];
	int p[2];
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	dup2(p[1], STDERR_FILENO);
	close(p[1]);
	log_set_format(LOG_JSON);
	log_fields(LOG_WARN, fields, n, "%s", message);
	log_set_format(LOG_TEXT);
	ssize_t got = read(p[0], line, sizeof line);
	close(p[0]);
	assert_true(got > 1 && got <= 4096 && line[got - 1] == '\n');
	json_error_t e;
	json_t *v = json_loadb(line, (size_t)got, JSON_REJECT_DUPLICATES, &e);
	if (v == NULL)
		fail_msg("%s: %.*s", e.text, (int)got, line);
	return v;
}

static const char *text_of(const json_t *v, const char *name) { return json_string_value(json_object_get(v, name)); }

static void json_lines_escape_what_they_hold(void **state)
{
	(void)state;
	const struct log_field fields[] = {{.name = "route", .text = "a\"b\\c\n\x1b[0m\x7f\xff\xc3\xa9"},
					   {.name = "ms", .number = 12.5},
					   {.name = "status", .number = 200}};
	json_t *v = logged(fields, 3, "said \"no\"\r\n");
	assert_string_equal(text_of(v, "level"), "warn");
	assert_string_equal(text_of(v, "process"), "sluice");
	assert_string_equal(text_of(v, "message"), "said \"no\"\r\n");
	assert_string_equal(text_of(v, "route"), "a\"b\\c\n\x1b[0m\x7f\xef\xbf\xbd\xc3\xa9");
	assert_true(json_number_value(json_object_get(v, "ms")) == 12.5);
	assert_int_equal(json_integer_value(json_object_get(v, "status")), 200);
	assert_int_equal(json_integer_value(json_object_get(v, "thread")), gettid());
	assert_int_equal(strlen(text_of(v, "time")), strlen("2026-01-01T00:00:00.000Z"));
	json_decref(v);
}

static void levels_below_the_least_are_not_taken(void **state)
{
	(void)state;
	log_set_level(LOG_WARN);
	assert_false(log_takes(LOG_DEBUG) || log_takes(LOG_INFO));
	assert_true(log_takes(LOG_WARN) && log_takes(LOG_ERROR));
	log_set_level(LOG_INFO);
	assert_true(log_takes(LOG_INFO));
}

static int n_evaluated;

static const char *evaluated(void)
{
	n_evaluated++;
	return "text";
}

static void subsystems_have_levels_of_their_own(void **state)
{
	struct log_levels l;
	(void)state;
	for (int i = 0; i < LOG_N_SUBSYSTEMS; i++)
		assert_non_null(log_subsystem_names[i]);
	assert_null(log_subsystem_names[LOG_N_SUBSYSTEMS]);
	log_set_level(LOG_WARN);
	log_get_levels(&l);
	l.least[LOG_STEP] = LOG_DEBUG;
	l.least[LOG_GENERAL] = LOG_ERROR;
	log_set_levels(&l);
	assert_true(log_takes_of(LOG_STEP, LOG_DEBUG));
	assert_false(log_takes_of(LOG_CACHE, LOG_INFO));
	assert_false(log_takes(LOG_WARN)); /* this file is general */
	log_warn("%s", evaluated());
	assert_int_equal(n_evaluated, 0);
	int full = open("/dev/null", O_WRONLY | O_CLOEXEC);
	dup2(full, STDERR_FILENO);
	close(full);
	log_of(LOG_STEP, LOG_DEBUG, "%s", evaluated());
	assert_int_equal(n_evaluated, 1);
	log_set_level(LOG_INFO);
	log_get_levels(&l);
	for (int i = 0; i < LOG_N_SUBSYSTEMS; i++)
		assert_int_equal(l.least[i], LOG_INFO);
}

static void json_lines_are_cut_at_characters(void **state)
{
	(void)state;
	static char control[3000], wide[3000];
	memset(control, 1, sizeof control - 1);
	for (size_t i = 0; i + 2 < sizeof wide; i += 2)
		memcpy(wide + i, "\xc3\xa9", 2);
	const struct log_field fields[] = {{.name = "first", .text = "kept"},
					   {.name = "large", .text = control},
					   {.name = "last", .text = "kept too"}};
	for (size_t cut = 0; cut < 12; cut++) {
		json_t *v = logged(fields, 3, control + cut);
		assert_string_equal(text_of(v, "first"), "kept");
		assert_null(json_object_get(v, "large"));
		assert_string_equal(text_of(v, "last"), "kept too");
		assert_true(strlen(text_of(v, "message")) > 100);
		json_decref(v);
		v = logged(NULL, 0, wide + 2 * cut);
		assert_int_equal(strlen(text_of(v, "message")) % 2, 0);
		json_decref(v);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(a_full_disk_is_counted),
	    T(an_unread_pipe_does_not_block),
	    T(a_closed_pipe_is_counted),
	    T(json_lines_escape_what_they_hold),
	    T(json_lines_are_cut_at_characters),
	    T(levels_below_the_least_are_not_taken),
	    T(subsystems_have_levels_of_their_own),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
