/* SPDX-License-Identifier: Apache-2.0
 *
 * Files named from outside: what is not a regular file is refused at once and by its kind, and none is read past its
 * bound.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"

enum { MOST = 2048 };

static char dir[] = "/tmp/sluice-file-XXXXXX";
static char path[64], other[64];

static int setup(void **state)
{
	(void)state;
	strcpy(strrchr(dir, '-'), "-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/it", dir);
	snprintf(other, sizeof other, "%s/other", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fault_disarm_all();
	unlink(other);
	if (unlink(path) != 0)
		rmdir(path);
	return rmdir(dir);
}

static void write_bytes(size_t n, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, mode), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(write(fd, &(char){(char)('a' + i % 26)}, 1), 1);
	close(fd);
}

static void refused(int code, const char *why)
{
	struct sl_buf b;
	struct sl_err err = {0};
	assert_int_equal(file_read(path, MOST, &b, &err), code);
	assert_string_equal(err.text, why);
	buf_dispose(&b);
}

static void a_file_is_read_whole_up_to_its_bound(void **state)
{
	(void)state;
	static const size_t sizes[] = {0, 1, MOST - 1, MOST};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct sl_buf b;
		struct sl_err err = {0};
		write_bytes(sizes[i], 0644);
		assert_int_equal(file_read(path, MOST, &b, &err), 0);
		assert_int_equal(b.len, sizes[i]);
		for (size_t k = 0; k < b.len; k++)
			assert_int_equal(buf_data(&b)[k], 'a' + k % 26);
		buf_dispose(&b);
	}
	write_bytes(MOST + 1, 0644);
	refused(SL_ELIMIT, "larger than 2 KiB");
}

/* Its size says nothing about it, and it never ends. */
static void one_that_grows_ends_at_its_bound(void **state)
{
	(void)state;
	int fds[2];
	struct sl_buf b;
	struct sl_err err = {0};
	assert_int_equal(pipe(fds), 0);
	char more[MOST + 1] = {0};
	assert_int_equal(write(fds[1], more, sizeof more), sizeof more);
	buf_init(&b, 1 << 20);
	assert_int_equal(file_read_fd(fds[0], MOST, &b, &err), SL_ELIMIT);
	assert_string_equal(err.text, "larger than 2 KiB");
	buf_dispose(&b);
	close(fds[0]);
	close(fds[1]);
}

static void what_is_no_file_is_named_at_once(void **state)
{
	(void)state;
	refused(SL_ENOTFOUND, "No such file or directory");
	assert_int_equal(mkfifo(path, 0600), 0);
	refused(SL_EINVAL, "it is a FIFO"); /* with nobody at its other end */
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	refused(SL_EINVAL, "it is a folder");
	rmdir(path);
	assert_int_equal(symlink("/dev/zero", path), 0);
	refused(SL_EINVAL, "it is a device");
	unlink(path);
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
	refused(SL_EINVAL, "it is a socket");
	close(fd);
}

static void private_is_ones_own_and_nobody_elses(void **state)
{
	(void)state;
	struct sl_err err = {0};
	write_bytes(3, 0600);
	int fd = file_open_private(path, &err);
	assert_true(fd >= 0);
	close(fd);
	write_bytes(3, 0640);
	assert_int_equal(file_open_private(path, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "mode 0600"));
	write_bytes(3, 0600);
	assert_int_equal(rename(path, other), 0);
	assert_int_equal(symlink(other, path), 0);
	assert_int_equal(file_open_private(path, &err), SL_EINVAL);
	assert_string_equal(err.text, "it is a symbolic link");
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(file_open_private(path, &err), SL_EINVAL);
	assert_string_equal(err.text, "it is a FIFO");
}

static void failures_are_told(void **state)
{
	(void)state;
	struct sl_buf b;
	struct sl_err err = {0};
	write_bytes(100, 0600);
	fault_arm(FAULT_READ, 1, 1);
	assert_int_equal(file_read(path, MOST, &b, &err), SL_EIO);
	buf_dispose(&b);
	fault_disarm_all();
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(file_read(path, MOST, &b, &err), SL_ENOMEM);
	assert_string_equal(err.text, "no memory");
	buf_dispose(&b);
}

static void a_text_of_the_system_is_read_as_far_as_there_is_room(void **state)
{
	(void)state;
	char text[64];
	write_bytes(100, 0600);
	assert_int_equal(file_read_text(dir, "/it", text, sizeof text), sizeof text - 1);
	assert_int_equal(strlen(text), sizeof text - 1);
	assert_int_equal(file_read_text(dir, "/none", text, sizeof text), 0);
	assert_string_equal(text, "");
	assert_int_equal(file_read_text("", path, text, 8), 7);
	assert_true(file_read_text("", "/proc/self/cgroup", text, sizeof text) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(a_file_is_read_whole_up_to_its_bound, setup, teardown),
	    cmocka_unit_test_setup_teardown(one_that_grows_ends_at_its_bound, setup, teardown),
	    cmocka_unit_test_setup_teardown(what_is_no_file_is_named_at_once, setup, teardown),
	    cmocka_unit_test_setup_teardown(private_is_ones_own_and_nobody_elses, setup, teardown),
	    cmocka_unit_test_setup_teardown(failures_are_told, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_text_of_the_system_is_read_as_far_as_there_is_room, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
