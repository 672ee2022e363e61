/* SPDX-License-Identifier: Apache-2.0
 *
 * The state folder: whose it may be, who may write to it and to what leads there, and what is given to the user that
 * processes run as.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/state/state.h"

enum { SOMEBODY = 54321, RUNNER = 54322 };

static char dir[64], state[128];

static int setup(void **unused)
{
	(void)unused;
	snprintf(dir, sizeof dir, "/tmp/sluice-state-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(state, sizeof state, "%s/state", dir);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st, (void)kind, (void)at;
	return remove(path);
}

static int teardown(void **unused)
{
	(void)unused;
	return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *in(const char *name)
{
	static char path[4][256];
	static int next;
	char *to = path[next++ % 4];
	snprintf(to, sizeof path[0], "%s/%s", state, name);
	return to;
}

static void make_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	close(fd);
}

static uid_t owner(const char *path)
{
	struct stat st;
	assert_int_equal(lstat(path, &st), 0);
	return st.st_uid;
}

static struct run_user self(void) { return (struct run_user){.uid = geteuid(), .gid = getegid()}; }
static struct run_user runner(void) { return (struct run_user){.change = true, .uid = RUNNER, .gid = RUNNER}; }

static void taken_by(struct run_user u)
{
	struct sl_err err = {0};
	int fd = state_open(state, &u, &err);
	if (fd < 0)
		fail_msg("%s", err.text);
	close(fd);
}

static void refused_to(struct run_user u, const char *why)
{
	struct sl_err err = {0};
	assert_true(state_open(state, &u, &err) < 0);
	if (strstr(err.text, why) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}

static void it_is_made_for_us_alone(void **unused)
{
	(void)unused;
	struct stat st;
	taken_by(self());
	assert_int_equal(stat(state, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(stat(in("run"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	taken_by(self()); /* and found again */
	assert_int_equal(chmod(state, 0755), 0);
	taken_by(self()); /* others may look */
}

static void one_that_others_may_write_to_is_refused(void **unused)
{
	(void)unused;
	static const mode_t modes[] = {0770, 0707, 0777, 01777, 0720, 0702};
	taken_by(self());
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
		assert_int_equal(chmod(state, modes[i]), 0);
		refused_to(self(), "other users may write to it");
	}
	assert_int_equal(chmod(state, 0700), 0);
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
		assert_int_equal(chmod(in("run"), modes[i]), 0);
		refused_to(self(), "/run: other users may write to it");
	}
}

static void run_is_a_folder_and_no_link(void **unused)
{
	(void)unused;
	char elsewhere[128];
	taken_by(self());
	snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", dir);
	assert_int_equal(mkdir(elsewhere, 0700), 0);
	assert_int_equal(rmdir(in("run")), 0);
	assert_int_equal(symlink(elsewhere, in("run")), 0);
	refused_to(self(), "/run: exists and is not a folder");
}

static void it_is_no_file(void **unused)
{
	(void)unused;
	make_file(state);
	refused_to(self(), "is not a folder");
}

static void what_leads_there_may_not_be_changed_by_all(void **unused)
{
	(void)unused;
	char link[128];
	taken_by(self());
	assert_int_equal(chmod(dir, 0777), 0);
	refused_to(self(), "any user may write to this folder");
	/* Nor where only a link's target shows it. */
	snprintf(link, sizeof link, "/tmp/sluice-state-link-%d", (int)getpid());
	assert_int_equal(symlink(state, link), 0);
	struct sl_err err = {0};
	struct run_user u = self();
	int fd = state_open(link, &u, &err);
	unlink(link);
	assert_true(fd < 0);
	assert_non_null(strstr(err.text, "any user may write to this folder"));
	assert_int_equal(chmod(dir, 01777), 0); /* as /tmp is */
	taken_by(self());
}

static void anothers_is_refused(void **unused)
{
	(void)unused;
	if (geteuid() != 0)
		skip();
	taken_by(self());
	assert_int_equal(chown(state, SOMEBODY, SOMEBODY), 0);
	refused_to(self(), "belongs to another user (uid 54321)");
	refused_to(runner(), "belongs to another user (uid 54321)");
	assert_int_equal(chown(state, RUNNER, RUNNER), 0);
	taken_by(runner());
	assert_int_equal(chown(in("run"), SOMEBODY, SOMEBODY), 0);
	refused_to(runner(), "/run: belongs to another user");
}

static void what_root_left_becomes_the_users(void **unused)
{
	(void)unused;
	if (geteuid() != 0)
		skip();
	char outside[128];
	snprintf(outside, sizeof outside, "%s/outside", dir);
	make_file(outside);
	assert_int_equal(mkdir(state, 0700), 0);
	assert_int_equal(mkdir(in("tls"), 0700), 0);
	assert_int_equal(mkdir(in("tls/deeper"), 0700), 0);
	make_file(in("dev-keys.yaml"));
	make_file(in("tls/key.pem"));
	make_file(in("tls/deeper/x"));
	make_file(in("mine.pem"));
	make_file(in("tls/anothers"));
	assert_int_equal(chown(in("tls/anothers"), SOMEBODY, SOMEBODY), 0);
	assert_int_equal(link(outside, in("tls/linked")), 0);
	assert_int_equal(symlink(outside, in("tls/pointed")), 0);
	taken_by(runner());
	assert_int_equal(owner(state), RUNNER);
	assert_int_equal(owner(in("run")), RUNNER);
	assert_int_equal(owner(in("dev-keys.yaml")), RUNNER);
	assert_int_equal(owner(in("tls/key.pem")), RUNNER);
	assert_int_equal(owner(in("tls/deeper/x")), RUNNER);
	/* Not what has another name elsewhere, what a link leads to, what is somebody's or what Sluice did not make. */
	assert_int_equal(owner(outside), 0);
	assert_int_equal(owner(in("tls/anothers")), SOMEBODY);
	assert_int_equal(owner(in("mine.pem")), 0);
}

static void a_folder_of_the_system_is_not_taken(void **unused)
{
	(void)unused;
	if (geteuid() != 0)
		skip();
	assert_int_equal(mkdir(state, 0755), 0);
	taken_by(runner()); /* empty: the administrator made it */
	assert_int_equal(owner(state), RUNNER);
	assert_int_equal(chown(state, 0, 0), 0);
	assert_int_equal(mkdir(in("postgresql"), 0700), 0);
	refused_to(runner(), "holds postgresql");
	assert_int_equal(owner(state), 0);
}

static void users_are_named_or_numbered(void **unused)
{
	(void)unused;
	static const char *const bad[] = {"",   "x",  "-1", "1:",         ":1",         "1:2:3",
					  "1x", " 1", "+1", "4294967295", "99999999999"};
	struct run_user u;
	char text[32];
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(privileges_user_parse(bad[i], &u), SL_EINVAL);
	assert_int_equal(privileges_user_parse("12:34", &u), 0);
	assert_true(u.change && u.uid == 12 && u.gid == 34);
	privileges_user_put(&u, text, sizeof text);
	assert_string_equal(text, "12:34");
	assert_int_equal(privileges_user_parse("7", &u), 0);
	assert_true(u.change && u.uid == 7 && u.gid == 7);
	assert_int_equal(privileges_user_parse("0:0", &u), 0);
	assert_false(u.change);
}

static void an_unknown_user_is_refused(void **unused)
{
	(void)unused;
	struct sl_err err = {0};
	struct run_user u;
	if (geteuid() != 0) {
		assert_int_equal(privileges_user("no-such-user", &u, &err), 0); /* nothing would become it */
		assert_true(!u.change && u.uid == geteuid());
		return;
	}
	assert_int_equal(privileges_user("no-such-user", &u, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "no-such-user"));
	assert_int_equal(privileges_user("", &u, &err), 0);
	assert_true(u.change && u.uid != 0);
	assert_int_equal(geteuid(), 0);
	assert_int_equal(privileges_user("root", &u, &err), 0);
	assert_false(u.change);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(it_is_made_for_us_alone, setup, teardown),
	    cmocka_unit_test_setup_teardown(one_that_others_may_write_to_is_refused, setup, teardown),
	    cmocka_unit_test_setup_teardown(run_is_a_folder_and_no_link, setup, teardown),
	    cmocka_unit_test_setup_teardown(it_is_no_file, setup, teardown),
	    cmocka_unit_test_setup_teardown(what_leads_there_may_not_be_changed_by_all, setup, teardown),
	    cmocka_unit_test_setup_teardown(anothers_is_refused, setup, teardown),
	    cmocka_unit_test_setup_teardown(what_root_left_becomes_the_users, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_folder_of_the_system_is_not_taken, setup, teardown),
	    cmocka_unit_test(users_are_named_or_numbered),
	    cmocka_unit_test(an_unknown_user_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
