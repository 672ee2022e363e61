/* SPDX-License-Identifier: Apache-2.0
 *
 * The program of a folder's tests. Each test file is compiled with its main renamed (see the Makefile's test_room), and
 * ROOM_TESTS names them all: T(test_a) T(test_b) ...
 *
 *   room             runs every file, each in a process of its own; TAP, with a line `# test_a` before each
 *   room test_a ...  runs that file in this process, with the arguments that follow
 *   test_a ...       the same: a link of that name to this program
 *
 * The exit status is the file's; of all files, 1 when one failed.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define T(name) int name##_main();
ROOM_TESTS
#undef T

static const struct {
	const char *name;
	int (*run)();
} tests[] = {
#define T(name) {#name, name##_main},
    ROOM_TESTS
#undef T
};

enum { N_TESTS = sizeof tests / sizeof tests[0] };

static int find(const char *name)
{
	const char *slash = strrchr(name, '/');
	for (int i = 0; i < N_TESTS; i++)
		if (strcmp(tests[i].name, slash != NULL ? slash + 1 : name) == 0)
			return i;
	return -1;
}

static int run_all(void)
{
	int failed = 0;
	for (int i = 0; i < N_TESTS; i++) {
		printf("# %s\n", tests[i].name);
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) {
			execl("/proc/self/exe", tests[i].name, (char *)NULL);
			_exit(127);
		}
		int status = 0;
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
			failed = 1;
			printf("# %s: %s %d\n", tests[i].name, WIFSIGNALED(status) ? "killed by signal" : "exit status",
			       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		}
	}
	return failed;
}

int main(int argc, char **argv)
{
	int i = find(argv[0]);
	if (i >= 0)
		return tests[i].run(argc, argv);
	if (argc < 2)
		return run_all();
	i = find(argv[1]);
	if (i >= 0)
		return tests[i].run(argc - 1, argv + 1);
	fprintf(stderr, "%s: no test of this folder; it has\n", argv[1]);
	for (i = 0; i < N_TESTS; i++)
		fprintf(stderr, "  %s\n", tests[i].name);
	return 2;
}
