/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said of a machine whose driver or device does not do, each in words of its own, on the stand-in for CUDA's
 * runtime.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/kernels/tables.h"
#include "tests/standin/standin_api.h"

static char path[PATH_MAX + 64];

static void be(struct standin_device d)
{
	void (*set)(const struct standin_device *);
	void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(so);
	void *symbol = dlsym(so, "sluice_standin_device");
	assert_non_null(symbol);
	memcpy(&set, &symbol, sizeof set);
	set(&d);
}

static void expect(const char *what)
{
	struct sl_err err = {0};
	assert_null(kn_plugin_open(path, &err));
	assert_string_equal(err.text, what);
}

static void test_drivers(void **arg)
{
	(void)arg;
	be((struct standin_device){.driver = -1});
	expect("no NVIDIA driver is installed; one for CUDA 13.0 or later is needed");
	be((struct standin_device){.driver = 12040});
	expect("the NVIDIA driver is too old: it is for CUDA 12.4, and one for CUDA 13.0 or later is needed");
	be((struct standin_device){.driver = 13010});
	struct sl_err err = {0};
	assert_non_null(kn_plugin_open(path, &err));
}

static void test_devices(void **arg)
{
	(void)arg;
	struct sl_err err = {0};
	be((struct standin_device){.driver = 13000, .devices = -1});
	expect("the NVIDIA driver finds no device");
	be((struct standin_device){.devices = 1, .capability = 75});
	expect("CUDA device 0 has compute capability 7.5; 8.0 or later is needed");
	be((struct standin_device){.capability = 80});
	assert_non_null(kn_plugin_open(path, &err));
	be((struct standin_device){.capability = 90});
	assert_non_null(kn_plugin_open(path, &err));
}

int main(void)
{
	snprintf(path, sizeof path, "%s", beside("../../libsluice-cuda-standin.so"));
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_drivers), cmocka_unit_test(test_devices)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
