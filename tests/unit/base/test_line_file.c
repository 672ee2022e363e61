/* SPDX-License-Identifier: Apache-2.0
 *
 * A full disk, as a limit of the file's size stands in for it: the write fails, and the line that was cut off spoils no
 * later one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/line_file.h"

static char folder[64], path[96];

static int set_up(void **unused)
{
	(void)unused;
	strcpy(folder, "/tmp/sluice-lines-XXXXXX");
	if (mkdtemp(folder) == NULL)
		return -1;
	snprintf(path, sizeof path, "%s/lines", folder);
	return 0;
}

static int tear_down(void **unused)
{
	(void)unused;
	unlink(path);
	return rmdir(folder);
}

static void limit(rlim_t bytes)
{
	struct rlimit r;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
	r.rlim_cur = bytes < r.rlim_max ? bytes : r.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void a_full_disk_cuts_one_line_only(void **unused)
{
	(void)unused;
	struct line_file *f = NULL;
	struct sl_err err;
	char text[64] = "";
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(line_file_open("key", path, 0, &f, &err), 0);
	assert_true(line_file_write(f, "one\n", 4));
	limit(7);
	assert_false(line_file_write(f, "second\n", 7)); /* a part of it fits */
	assert_false(line_file_write(f, "third\n", 6));
	limit(RLIM_INFINITY);
	assert_true(line_file_write(f, "fourth\n", 7));
	assert_true(line_file_write(f, "fifth\n", 6));
	line_file_close(f);
	FILE *in = fopen(path, "r");
	assert_non_null(in);
	size_t n = fread(text, 1, sizeof text - 1, in);
	fclose(in);
	text[n] = '\0';
	assert_string_equal(text, "one\nsec\nfourth\nfifth\n");
}

static void faults_name_the_key_and_the_file(void **unused)
{
	(void)unused;
	struct line_file *f = NULL;
	struct sl_err err;
	assert_int_not_equal(line_file_open("some.key", "/dev/null", 0, &f, &err), 0);
	assert_non_null(strstr(err.text, "some.key: /dev/null: not a regular file"));
	assert_int_not_equal(line_file_open("some.key", "/no/such/folder/file", 0, &f, &err), 0);
	assert_non_null(strstr(err.text, "some.key: /no/such/folder/file: "));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(a_full_disk_cuts_one_line_only, set_up, tear_down),
	    cmocka_unit_test(faults_name_the_key_and_the_file),
	};
	return cmocka_run_group_tests_name("line_file", tests, NULL, NULL);
}
