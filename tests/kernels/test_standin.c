/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's own device layer (device_cuda.cu, list.cu, library_cuda.cu) on the stand-in for its runtime (tests/standin):
 * the cases of standin_battery.h, and the programs that test steps, pages and whole models, pass as late as a device
 * may be, at once, and in random orders; and every fault that a script in tests/standin/faults plants is found.
 *
 * STANDIN_SEEDS: how many random orders the cases get (`make soak`: 200); STANDIN_SLOW_SEEDS: how many those programs
 * get that take long, which do not run without it (in many orders, what is essential of them: tests/soak/standin.sh).
 * STANDIN_ONLY: one of the tests here. Each runs in a process of its own, because a finding ends it. Run from the
 * repository's root.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/kernels/standin_battery.h"
#include "tests/support/part.h"

enum { CPU_SECONDS = 600, N_SEEDS_FAULTS = 3 };

/* ---- the cases, in a process of their own ---- */

static const struct kn_ops *tested(void)
{
	const char *path = getenv("SLUICE_STANDIN_SO");
	struct sl_err err = {0};
	const struct kn_ops *o = kn_plugin_open(path, &err);
	if (o == NULL)
		fail_msg("%s", err.text);
	if (sb_so == NULL)
		sb_so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(sb_so);
	return o;
}

static const struct standin_library library = {.version = 130000, .ways = 2, .scales_since = 120900, .capability = 90};

/* The library is found by its name once it is open. */
static const struct kn_ops *with_library(const struct standin_library *l)
{
	const struct kn_ops *o = tested();
	if (sb_library == NULL)
		sb_library = dlopen(beside("../../standin/libcublasLt.so.13"), RTLD_NOW | RTLD_LOCAL);
	if (sb_library == NULL)
		fail_msg("%s", dlerror());
	sb_library_is(l);
	return o;
}

#define CASE(name)                   \
	static void name(void **arg) \
	{                            \
		(void)arg;           \
		sb_##name(tested()); \
	}
CASE(in_flight)
CASE(local_memory)
CASE(two_gathers)
CASE(growth)
CASE(shapes)
CASE(allocations)
CASE(uploads)
CASE(weights)
CASE(no_graph)
CASE(broken)
CASE(two_models)
CASE(two_threads)
CASE(pages)
CASE(two_readers)
CASE(new_pool)
CASE(adapters)

static void product(void **arg)
{
	(void)arg;
	sb_product(with_library(&library), false, SB_BATCH);
}

static void product_of_eight_bits(void **arg)
{
	(void)arg;
	sb_product(with_library(&library), true, SB_BATCH);
}

static void sb_capability(int capability)
{
	struct standin_device d = {.capability = capability};
	SB_CALL(sb_so, void (*)(const struct standin_device *), "sluice_standin_device", &d);
}

/* On which no kernel may start before the one before it ends. */
static void older_device(void **arg)
{
	(void)arg;
	const struct kn_ops *o = tested();
	sb_capability(80);
	sb_in_flight(o);
	sb_capability(90);
}

/* Of a device that has no scales for each row. */
static void product_without_scales(void **arg)
{
	struct standin_library l = library;
	l.capability = 100;
	(void)arg;
	const struct kn_ops *o = with_library(&l);
	sb_capability(100);
	sb_product(o, true, SB_BATCH);
	sb_capability(90);
}

static int cases(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(in_flight),
	    cmocka_unit_test(local_memory),
	    cmocka_unit_test(two_gathers),
	    cmocka_unit_test(growth),
	    cmocka_unit_test(pages),
	    cmocka_unit_test(two_readers),
	    cmocka_unit_test(new_pool),
	    cmocka_unit_test(adapters),
	    cmocka_unit_test(allocations),
	    cmocka_unit_test(uploads),
	    cmocka_unit_test(weights),
	    cmocka_unit_test(older_device),
	    cmocka_unit_test(no_graph),
	    cmocka_unit_test(broken),
	    cmocka_unit_test(two_models),
	    cmocka_unit_test(two_threads),
	    cmocka_unit_test(product),
	    cmocka_unit_test(product_of_eight_bits),
	    cmocka_unit_test(product_without_scales),
	    cmocka_unit_test(shapes),
	};
	cmocka_set_test_filter(getenv("SLUICE_STANDIN_CASE"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ---- other processes ---- */

/* What a process said last, or what of it says why it failed. */
static char said[4096];

/* What programs whose calls come in one order say: digests of their answers, joined, and of the device's order. */
static char answers[256], order_said[32];

static void keep_digests(const char *text)
{
	size_t n = 0;
	answers[0] = order_said[0] = '\0';
	for (const char *at = text; (at = strstr(at, "answers ")) != NULL && n + 18 < sizeof answers; at++)
		n += (size_t)snprintf(answers + n, sizeof answers - n, "%s%.16s", n > 0 ? "," : "", at + 8);
	const char *at = strstr(text, "\norder ");
	if (at != NULL)
		snprintf(order_said, sizeof order_said, "%.16s", at + 7);
}

static void keep_reason(int fd)
{
	static const char *const marks[] = {"stand-in for CUDA", "[  ERROR", "error: ", "FAILED"};
	char text[65536], *at = NULL;
	ssize_t n = pread(fd, text, sizeof text - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	keep_digests(text);
	for (int i = 0; i < N(marks) && at == NULL; i++)
		at = strstr(text, marks[i]);
	size_t length = at != NULL ? strcspn(at, "\n") : 0;
	if (at != NULL && *at == '[' && at[length] != '\0') /* the line after has the place */
		length += 1 + strcspn(at + length + 1, "\n");
	snprintf(said, sizeof said, "%.*s", (int)length, at != NULL ? at : text);
}

/* Runs a program with these settings; whether it passed. Else `said` has why not. */
static bool runs(const char *program, const char *so, const char *policy)
{
	char output[] = "/tmp/sluice-standin-XXXXXX";
	int fd = mkstemp(output), status = -1;
	assert_true(fd >= 0);
	unlink(output);
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		const struct rlimit cpu = {CPU_SECONDS, CPU_SECONDS}, core = {0, 0};
		setrlimit(RLIMIT_CPU, &cpu);
		setrlimit(RLIMIT_CORE, &core);
		dup2(fd, 1);
		dup2(fd, 2);
		setenv("SLUICE_STANDIN", policy, 1);
		setenv("SLUICE_TEST_BACKEND", "cuda-standin", 1);
		if (so != NULL)
			setenv("SLUICE_STANDIN_SO", so, 1);
		setenv("CMOCKA_MESSAGE_OUTPUT", "STDOUT", 1);
		execl(program, program, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	keep_reason(fd);
	close(fd);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static char own[PATH_MAX + 64], object[PATH_MAX + 64];

static int find_self(void **arg)
{
	(void)arg;
	snprintf(own, sizeof own, "%s", beside("test_standin"));
	snprintf(object, sizeof object, "%s", beside("../../libsluice-cuda-standin.so"));
	return 0;
}

static void must_run(const char *program, const char *policy)
{
	if (!runs(program, object, policy))
		fail_msg("%s, %s: %s", program, policy, said);
}

static int seeds_of(const char *name, int usual)
{
	const char *s = getenv(name);
	return s != NULL ? (int)strtol(s, NULL, 10) : usual;
}

static const char *random_order(int seed)
{
	static char policy[32];
	snprintf(policy, sizeof policy, "random:%d", seed);
	return policy;
}

static void test_cases(void **arg)
{
	(void)arg;
	must_run(own, "late");
	must_run(own, "early");
	for (int seed = 1; seed <= seeds_of("STANDIN_SEEDS", 3); seed++)
		must_run(own, random_order(seed));
}

/* Each in one of the policies, in turn; in all with THOROUGH and where numbers of orders are given. */
static void test_programs(void **arg)
{
	(void)arg;
	static const struct {
		const char *name;
		bool slow;
	} programs[] = {{"test_aside", false}, {"test_graphs", false},       {"test_ops", true},
			{"test_steps", true},  {"test_engine_memory", true}, {"test_engine_ahead", true}};
	const bool all = some_of(0, 1) || getenv("STANDIN_SEEDS") != NULL || getenv("STANDIN_SLOW_SEEDS") != NULL;
	for (int i = 0; i < N(programs); i++) {
		const char *name = programs[i].slow ? "STANDIN_SLOW_SEEDS" : "STANDIN_SEEDS";
		int n = seeds_of(name, programs[i].slow ? -1 : 1);
		if (n < 0)
			continue;
		char path[PATH_MAX + 64];
		snprintf(path, sizeof path, "%s", beside(programs[i].name));
		if (all || i % 2 == 0)
			must_run(path, "late");
		for (int seed = 1; seed <= n && (all || i % 2 == 1); seed++)
			must_run(path, random_order(seed));
	}
}

/* In some policy. */
static bool found(const char *so)
{
	if (!runs(own, so, "late"))
		return true;
	for (int seed = 1; seed <= N_SEEDS_FAULTS; seed++)
		if (!runs(own, so, random_order(seed)))
			return true;
	return false;
}

/* Programs whose calls come in one order, as tests/soak/standin.sh runs them: with the answers of a device that does
 * everything at once, and in the same order again: one of them, with THOROUGH all. */
static void test_orders(void **arg)
{
	(void)arg;
	static const char *const programs[] = {"test_engine_ahead", "test_engine_memory"};
	setenv("SLUICE_ORDERS", "1", 1);
	setenv("SLUICE_STANDIN_REPORT", "1", 1);
	for (int i = 0; i < N(programs); i++) {
		char path[PATH_MAX + 64], first[sizeof order_said];
		snprintf(path, sizeof path, "%s", beside(programs[i]));
		must_run(path, "early");
		assert_true(strlen(answers) > 16);
		setenv("SLUICE_ORDERS_ANSWERS", answers, 1);
		must_run(path, random_order(1));
		assert_int_equal(strlen(order_said), 16);
		memcpy(first, order_said, sizeof first);
		for (int k = 0; k < some_of(i == 0, 1); k++) {
			must_run(path, random_order(1));
			assert_string_equal(order_said, first);
		}
		unsetenv("SLUICE_ORDERS_ANSWERS");
	}
	unsetenv("SLUICE_STANDIN_REPORT");
	unsetenv("SLUICE_ORDERS");
}

/* In which the stream of copies read before that of the steps did, and the writer knows of the latter alone. */
static void test_two_readers(void **arg)
{
	(void)arg;
	char so[PATH_MAX + 64];
	snprintf(so, sizeof so, "%s", beside("../../standin/faults/order_aside_before.so"));
	setenv("SLUICE_STANDIN_CASE", "two_readers", 1);
	bool passes = runs(own, object, "early"), seen = !runs(own, so, "early");
	unsetenv("SLUICE_STANDIN_CASE");
	assert_true(passes);
	if (!seen || strstr(said, "which an operation of another stream read") == NULL)
		fail_msg("%s", seen ? said : "not seen");
}

static void test_faults(void **arg)
{
	(void)arg;
	int n = 0, order = 0, missed = 0;
	char folder[PATH_MAX + 64];
	snprintf(folder, sizeof folder, "%s", beside("../../standin/faults"));
	DIR *dir = opendir(folder);
	assert_non_null(dir);
	for (struct dirent *e; (e = readdir(dir)) != NULL;) {
		char so[PATH_MAX * 2];
		const char *dot = strrchr(e->d_name, '.');
		if (dot == NULL || strcmp(dot, ".so") != 0)
			continue;
		snprintf(so, sizeof so, "%s/%s", folder, e->d_name);
		/* A program that dies of the fault has not found it. */
		bool seen = found(so) && strstr(said, "failed with exception") == NULL;
		n++;
		order += strncmp(e->d_name, "order_", 6) == 0;
		missed += !seen;
		print_message("%s: %s\n", e->d_name, seen ? said : "NOT SEEN");
	}
	closedir(dir);
	assert_int_equal(missed, 0);
	assert_true(n >= 60 && order >= 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_cases),       cmocka_unit_test(test_programs), cmocka_unit_test(test_orders),
	    cmocka_unit_test(test_two_readers), cmocka_unit_test(test_faults),
	};
	if (getenv("SLUICE_STANDIN_SO") != NULL)
		return cases();
	cmocka_set_test_filter(getenv("STANDIN_ONLY"));
	return cmocka_run_group_tests(tests, find_self, NULL);
}
