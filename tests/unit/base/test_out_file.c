/* SPDX-License-Identifier: Apache-2.0
 *
 * base/out_file: what a command may write to, and what is there afterwards.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/out_file.h"
#include "engine/file/gguf_write.h"
#include "kernels/kernels.h"

static char folder[64];

static const char *in(const char *name)
{
	static char paths[8][128];
	static int next;
	char *path = paths[next++ % 8];
	snprintf(path, sizeof paths[0], "%s/%s", folder, name);
	return path;
}

static int set_up(void **state)
{
	(void)state;
	snprintf(folder, sizeof folder, "/tmp/sluice-test-XXXXXX");
	return mkdtemp(folder) == NULL;
}

static int tear_down(void **state)
{
	char command[128];
	(void)state;
	snprintf(command, sizeof command, "rm -rf %s", folder);
	return system(command);
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void holds(const char *path, const char *text)
{
	char got[64] = "";
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	got[fread(got, 1, sizeof got - 1, f)] = '\0';
	fclose(f);
	assert_string_equal(got, text);
}

static void write_new(struct out_file *o, const char *path, bool replace)
{
	struct sl_err err = {0};
	if (out_file_open(path, replace, o, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(write(o->fd, "new", 3), 3);
}

static void appears_whole(void **state)
{
	struct out_file o;
	struct sl_err err = {0};
	struct stat st;
	(void)state;
	write_new(&o, in("a"), false);
	assert_int_equal(stat(in("a"), &st), -1);
	assert_int_equal(stat(o.partial, &st), 0);
	assert_non_null(strstr(o.partial, "/a.partial-"));
	assert_int_equal(out_file_finish(&o, &err), 0);
	holds(in("a"), "new");
	/* A name that is taken by a partial file of an earlier process does no harm. */
	char stale[160];
	snprintf(stale, sizeof stale, "%s.partial-%ld", in("b"), (long)getpid());
	put(stale, "old");
	write_new(&o, in("b"), false);
	assert_string_not_equal(o.partial, stale);
	char partial[200];
	snprintf(partial, sizeof partial, "%s", o.partial);
	out_file_abort(&o);
	out_file_abort(&o);
	assert_int_equal(stat(in("b"), &st), -1);
	assert_int_equal(stat(partial, &st), -1);
	holds(stale, "old");
}

static void says(const char *path, bool replace, const char *what)
{
	struct out_file o;
	struct sl_err err = {0};
	assert_int_equal(out_file_open(path, replace, &o, &err), SL_EINVAL);
	if (strstr(err.text, what) == NULL)
		fail_msg("%s, not %s", err.text, what);
	assert_null(o.partial);
}

static void replaces_only_files_and_only_when_asked(void **state)
{
	struct out_file o;
	struct sl_err err = {0};
	(void)state;
	put(in("old"), "old");
	says(in("old"), false, "already exists");
	holds(in("old"), "old");
	write_new(&o, in("old"), true);
	assert_int_equal(out_file_finish(&o, &err), 0);
	holds(in("old"), "new");
	assert_int_equal(mkfifo(in("pipe"), 0600), 0);
	says(in("pipe"), true, "is not a regular file");
	says("/dev/null", true, "is not a regular file");
	says(folder, true, "is a folder");
	/* A link is replaced, not what it leads to; one to nowhere is there too. */
	put(in("target"), "old");
	assert_int_equal(symlink(in("target"), in("link")), 0);
	assert_int_equal(symlink(in("nowhere"), in("dangling")), 0);
	says(in("link"), false, "already exists");
	says(in("dangling"), false, "already exists");
	write_new(&o, in("link"), true);
	assert_int_equal(out_file_finish(&o, &err), 0);
	holds(in("link"), "new");
	holds(in("target"), "old");
}

static void a_file_made_meanwhile_stays(void **state)
{
	struct out_file o;
	struct sl_err err = {0};
	struct stat st;
	char partial[200];
	(void)state;
	write_new(&o, in("meanwhile"), false);
	snprintf(partial, sizeof partial, "%s", o.partial);
	put(in("meanwhile"), "theirs");
	assert_int_equal(out_file_finish(&o, &err), SL_EINVAL);
	holds(in("meanwhile"), "theirs");
	assert_int_equal(stat(partial, &st), -1);
}

static void knows_what_is_read(void **state)
{
	struct sl_err err = {0};
	(void)state;
	put(in("source"), "x");
	put(in("other"), "x");
	assert_int_equal(link(in("source"), in("hard")), 0);
	assert_int_equal(symlink(in("source"), in("soft")), 0);
	for (int i = 0; i < 3; i++) {
		const char *path = in(((const char *[]){"source", "hard", "soft"})[i]);
		assert_int_equal(out_file_is_not(path, in("source"), &err), SL_EINVAL);
		assert_non_null(strstr(err.text, "is the same file as"));
	}
	assert_int_equal(out_file_is_not(in("other"), in("source"), &err), 0);
	assert_int_equal(out_file_is_not(in("none"), in("source"), &err), 0);
	char model[128];
	snprintf(model, sizeof model, "%s", in("model"));
	assert_int_equal(mkdir(model, 0700), 0);
	put(in("model/config.json"), "{}");
	assert_int_equal(link(in("model/config.json"), in("alias")), 0);
	assert_int_equal(out_file_is_not_in(in("model/config.json"), model, ".gguf", &err), SL_EINVAL);
	assert_int_equal(out_file_is_not_in(in("alias"), model, ".gguf", &err), SL_EINVAL);
	assert_int_equal(out_file_is_not_in(model, model, ".gguf", &err), SL_EINVAL);
	assert_int_equal(out_file_is_not_in(in("model/new.gguf"), model, ".gguf", &err), 0);
	put(in("model/new.gguf"), "x");
	assert_int_equal(out_file_is_not_in(in("model/new.gguf"), model, ".gguf", &err), 0);
	assert_int_equal(out_file_is_not_in(in("other"), model, ".gguf", &err), 0);
}

static void a_disk_that_is_too_full(void **state)
{
	const uint64_t dims[] = {1u << 20, 1u << 30}; /* four pebibytes of F32 */
	struct gguf_writer *w;
	struct sl_err err = {0};
	struct stat st;
	(void)state;
	assert_int_equal(gguf_writer_create(in("huge.gguf"), false, &w, &err), 0);
	gguf_put_u32(w, "general.alignment", 32);
	gguf_add_tensor(w, "x", KN_F32, 2, dims);
	gguf_write_data(w, "1234", 4);
	assert_int_equal(gguf_writer_status(w), SL_ELIMIT);
	assert_int_equal(gguf_writer_finish(w, &err), SL_ELIMIT);
	assert_non_null(strstr(err.text, "huge.gguf needs 4294967296 MiB, its disk has"));
	assert_int_equal(stat(in("huge.gguf"), &st), -1);
}

/* The child is at its end only once the signal has ended it. */
static void signals_remove_the_partial_file(void **state)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct stat st;
		char partial[200];
		int status;
		pid_t pid = fork();
		if (pid == 0) {
			struct out_file o;
			struct sl_err err;
			signal(SIGHUP, SIG_DFL);
			out_file_on_signals();
			if (out_file_open(in("signal"), false, &o, &err) != 0 || stat(o.partial, &st) != 0)
				_exit(1);
			raise(signals[i]);
			_exit(2);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
		snprintf(partial, sizeof partial, "%s.partial-%ld", in("signal"), (long)pid);
		assert_int_equal(stat(partial, &st), -1);
	}
	/* What a parent had ignored (nohup) stays so. */
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGHUP, SIG_IGN);
		out_file_on_signals();
		raise(SIGHUP);
		_exit(3);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(appears_whole, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(replaces_only_files_and_only_when_asked, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_file_made_meanwhile_stays, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(knows_what_is_read, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_disk_that_is_too_full, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(signals_remove_the_partial_file, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
