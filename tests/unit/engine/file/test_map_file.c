/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapped files: what can't be mapped is said, and a file cut under a running process ends it with the
 * file's name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "engine/file/map_file.h"
#include "tests/support/model_dir_fixture.h"

static void test_open(void **arg)
{
	(void)arg;
	struct map_file m;
	struct sl_err err;
	char path[256];
	md_text(dir, "a", "hello");
	md_text(dir, "empty", "");
	md_path(path, dir, "a");
	assert_int_equal(map_file_open(path, &m, &err), 0);
	assert_int_equal(m.bytes, 5);
	assert_memory_equal(m.at, "hello", 5);
	map_file_close(&m);
	map_file_close(&m);
	assert_int_equal(map_file_open(dir, &m, &err), SL_EIO);
	assert_non_null(strstr(err.text, ": it is a folder"));
	md_path(path, dir, "empty");
	assert_int_equal(map_file_open(path, &m, &err), SL_EINVAL);
	md_path(path, dir, "none");
	assert_int_equal(map_file_open(path, &m, &err), SL_EIO);
	assert_non_null(strstr(err.text, "none: No such file"));
	assert_null(m.at);
}

/* Reads behind the end of a file that was cut, or of none; what it wrote to standard error. */
static int child_that_reads(const char *path, bool ours, char *said, size_t said_bytes)
{
	int fds[2], status;
	assert_int_equal(pipe(fds), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct map_file m;
		dup2(fds[1], STDERR_FILENO);
		map_file_guard();
		if (map_file_open(path, &m, NULL) != 0)
			_exit(99);
		const volatile uint8_t *last = m.at + m.bytes - 1;
		if (!ours) {
			map_file_close(&m);
			raise(SIGBUS); /* of no file: the handler gives it back */
			raise(SIGBUS);
			_exit(98);
		}
		if (truncate(path, 4096) != 0)
			_exit(97);
		_exit(*last);
	}
	close(fds[1]);
	ssize_t n = read(fds[0], said, said_bytes - 1);
	said[n > 0 ? n : 0] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void test_cut(void **arg)
{
	(void)arg;
	static uint8_t bytes[1 << 18];
	char path[256], said[1024];
	md_write(dir, "weights", bytes, sizeof bytes);
	md_path(path, dir, "weights");
	int status = child_that_reads(path, true, said, sizeof said);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), MAP_FILE_EXIT);
	assert_non_null(strstr(said, "weights: the file became shorter while it was in use"));
	status = child_that_reads(path, false, said, sizeof said);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGBUS);
	assert_null(strstr(said, "weights"));
}

/* Pages of this process that belong to files. */
static long file_pages(void)
{
	long all, resident, shared;
	FILE *f = fopen("/proc/self/statm", "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%ld %ld %ld", &all, &resident, &shared), 3);
	fclose(f);
	return shared;
}

/* What is let go leaves memory and comes back as it was; memory that is no mapping stays. */
static void test_let_go(void **arg)
{
	(void)arg;
	enum { PAGE = 4096, BYTES = 2048 * PAGE };
	struct map_file m;
	struct sl_err err;
	char path[256];
	uint8_t *bytes = malloc(BYTES);
	assert_non_null(bytes);
	for (int i = 0; i < BYTES; i++)
		bytes[i] = (uint8_t)(i * 31 + i / PAGE);
	md_write(dir, "weights", bytes, BYTES);
	md_path(path, dir, "weights");
	assert_int_equal(map_file_open(path, &m, &err), 0);
	assert_memory_equal(m.at, bytes, BYTES);
	long before = file_pages();
	map_file_let_go(m.at + 100, BYTES - 200);
	assert_true(before - file_pages() > 1800);
	assert_memory_equal(m.at, bytes, BYTES);
	before = file_pages();
	map_file_let_go(m.at + 1, 10);
	map_file_let_go(m.at, (size_t)BYTES + 1);
	map_file_let_go(m.at + BYTES, SIZE_MAX);
	assert_true(before - file_pages() < 200);
	map_file_let_go(bytes, BYTES);
	assert_memory_equal(m.at, bytes, BYTES);
	map_file_close(&m);
	map_file_let_go(bytes, BYTES);
	assert_int_equal(bytes[PAGE], (uint8_t)(PAGE * 31 + 1));
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_open, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_cut, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_let_go, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
