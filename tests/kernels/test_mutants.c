/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the emulation and its tests would see a mistake: each script in tests/kernels/mutants plants
 * one in a kernel (a missing barrier, a wrong page, a wrong mask), and every one must be found, in some
 * order of threads. What nobody changed must pass in all. Those named watched_… give the right numbers, in a launch whose
 * blocks access each other's memory. Those named fragment_… plant theirs in the emulation's matrix operations.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>

#include "tests/kernels/tables.h"

#include "tests/kernels/battery.h"
#include "tests/kernels/fragments.h"

/* As in tests/emulation/emu.h. */
enum { FORWARD, BACKWARD, SHUFFLED, N_ORDERS };

static void set_order(const char *path, int order)
{
	void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* the one that is open */
	assert_non_null(so);
	void (*set)(int, uint32_t);
	void *symbol = dlsym(so, "sluice_emulation_order");
	assert_non_null(symbol);
	memcpy(&set, &symbol, sizeof set);
	set(order, 12345);
	dlclose(so);
}

/* The first thing that some order shows. */
static const char *any_order(const char *path)
{
	struct sl_err err = {0};
	const struct kn_ops *o = kn_plugin_open(path, &err);
	if (o == NULL)
		fail_msg("%s", err.text);
	const char *wrong = check_fragments(path);
	for (int order = FORWARD; order < N_ORDERS && wrong == NULL; order++) {
		set_order(path, order);
		wrong = battery(o);
	}
	return wrong;
}

static void test_unchanged(void **arg)
{
	(void)arg;
	const char *wrong = any_order(beside("../../libsluice-cuda-emulated.so"));
	if (wrong != NULL)
		fail_msg("%s", wrong);
}

static void test_mutants(void **arg)
{
	(void)arg;
	int n = 0, missed = 0;
	DIR *dir = opendir(beside("mutants"));
	assert_non_null(dir);
	for (struct dirent *e; (e = readdir(dir)) != NULL;) {
		char name[sizeof e->d_name + 16];
		const char *dot = strrchr(e->d_name, '.');
		if (dot == NULL || strcmp(dot, ".so") != 0)
			continue;
		snprintf(name, sizeof name, "mutants/%s", e->d_name);
		const char *wrong = any_order(beside(name));
		n++;
		missed += wrong == NULL;
		print_message("%s: %s\n", e->d_name, wrong != NULL ? wrong : "NOT SEEN");
	}
	closedir(dir);
	assert_true(n >= 30);
	assert_int_equal(missed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_unchanged),
	    cmocka_unit_test(test_mutants),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
