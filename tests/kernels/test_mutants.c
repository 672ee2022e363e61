/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the emulation and its tests would see a mistake: each script in tests/kernels/mutants plants
 * one in a kernel (a missing barrier, a wrong page, a wrong mask), and every one must be found, in some
 * order of threads. What nobody changed must pass in all. Those named watched_… give the right numbers, in a launch whose
 * blocks access each other's memory. Those named fragment_… plant theirs in the emulation's matrix operations.
 *
 * That all were found is remembered by the bytes of the mutants and of this program (seen.h), which is one of its own
 * for that: neither changes with most of the sources. THOROUGH asks again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/kernels/tables.h"

#include "tests/kernels/battery.h"
#include "tests/kernels/fragments.h"
#include "tests/kernels/seen.h"

/* As in tests/emulation/emu.h. */
enum { FORWARD, BACKWARD, SHUFFLED, N_ORDERS };

static void set_order(const char *path, int order)
{
	void (*set)(int, uint32_t);
	void *symbol = backend_function(path, "sluice_emulation_order");
	assert_non_null(symbol);
	memcpy(&set, &symbol, sizeof set);
	set(order, 12345);
}

/* The first thing that some order shows, with warp groups' products or without; *part as in battery_from. */
static const char *any_order(const struct kn_ops *o, const char *path, int *part)
{
	const char *wrong = check_fragments(path);
	for (int processors = 2; processors >= 0 && wrong == NULL; processors -= 2)
		for (int order = FORWARD; order < N_ORDERS && wrong == NULL; order++) {
			assert_true(call_backend(path, "sluice_emulation_wgmma", processors));
			set_order(path, order);
			wrong = battery_from(o, part);
		}
	return wrong;
}

/* In a process of its own, because some mutants write anywhere, and one process has no room for the threads' variables
 * of all. part: as in battery_from, in memory that the two share. */
static const char *mutant(const char *path, int *part)
{
	static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
	static char said[200];
	int ends[2], status = 0;
	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct sl_err err = {0};
		for (int i = 0; i < N(fatal); i++)
			signal(fatal[i], SIG_DFL); /* not the test runner's */
		const struct kn_ops *o = kn_plugin_open(path, &err);
		const char *wrong = o != NULL ? any_order(o, path, part) : err.text;
		_exit((wrong != NULL && write(ends[1], wrong, strlen(wrong)) < 0) || o == NULL);
	}
	close(ends[1]);
	ssize_t n = read(ends[0], said, sizeof said - 1);
	said[n > 0 ? n : 0] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		snprintf(said, sizeof said, "ended by signal %d", WTERMSIG(status));
	else if (WEXITSTATUS(status) != 0)
		fail_msg("%s: %s", path, said);
	return said[0] != '\0' ? said : NULL;
}

static void test_unchanged(void **arg)
{
	(void)arg;
	struct sl_err err = {0};
	const char *path = beside("../../libsluice-cuda-emulated.so");
	const struct kn_ops *o = kn_plugin_open(path, &err);
	int part = 0;
	const char *wrong = o != NULL ? any_order(o, path, &part) : err.text;
	if (wrong != NULL)
		fail_msg("%s", wrong);
}

static int is_object(const struct dirent *e)
{
	const char *dot = strrchr(e->d_name, '.');
	return dot != NULL && strcmp(dot, ".so") == 0;
}

/* Where it is remembered that all of these were found. */
static void mutants_seen(struct dirent *const *all, int n, char *path, size_t size)
{
	XXH3_state_t *x = XXH3_createState();
	assert_true(x != NULL && XXH3_128bits_reset(x) == XXH_OK);
	seen_program(x);
	for (int i = 0; i < n; i++) {
		char name[sizeof all[i]->d_name + 16];
		snprintf(name, sizeof name, "mutants/%s", all[i]->d_name);
		XXH3_128bits_update(x, name, strlen(name) + 1);
		seen_file(x, beside(name));
	}
	seen_path(x, path, size);
	XXH3_freeState(x);
}

/* By their names: what saw one probably sees the next one, and is asked first. */
static void test_mutants(void **arg)
{
	(void)arg;
	int missed = 0;
	struct dirent **all;
	int n = scandir(beside("mutants"), &all, is_object, alphasort);
	int *part = mmap(NULL, sizeof *part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(n >= 60 && part != MAP_FAILED);
	char seen[4096];
	mutants_seen(all, n, seen, sizeof seen);
	const int asked = getenv("THOROUGH") == NULL && seen_before(seen) ? 0 : n;
	if (asked == 0)
		print_message("all %d were found before, in these very bytes: %s\n", n, seen);
	for (int i = 0; i < asked; i++) {
		char name[sizeof all[i]->d_name + 16];
		snprintf(name, sizeof name, "mutants/%s", all[i]->d_name);
		const char *wrong = mutant(beside(name), part);
		missed += wrong == NULL;
		print_message("%s: %s\n", all[i]->d_name, wrong != NULL ? wrong : "NOT SEEN");
	}
	for (int i = 0; i < n; i++)
		free(all[i]);
	free(all);
	munmap(part, sizeof *part);
	assert_int_equal(missed, 0);
	seen_keep(seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_unchanged),
	    cmocka_unit_test(test_mutants),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
