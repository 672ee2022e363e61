/* SPDX-License-Identifier: Apache-2.0
 *
 * What the driver tells of a device: read by name from a library that is not there, lacks functions, does not start,
 * knows another device, falls silent or hangs; and the thread that asks it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "engine/core/device_watch.h"
#include "kernels/backend/nvml.h"

enum { FINE, NO_START, SILENT, HANGS, BARE, LIES };

static const char pci[] = "0000:1b:00.0";
static char path[PATH_MAX + 64];
static void *fake;

static void *symbol_of(const char *name)
{
	void *symbol = dlsym(fake, name);
	assert_non_null(symbol);
	return symbol;
}

static void mode(int how)
{
	void (*set)(int);
	void *symbol = symbol_of("fake_nvml_mode");
	memcpy(&set, &symbol, sizeof set);
	set(how);
}

static int count(const char *name)
{
	int (*counted)(void);
	void *symbol = symbol_of(name);
	memcpy(&counted, &symbol, sizeof counted);
	return counted();
}

static void xids(int n, int which)
{
	void (*set)(int, int);
	void *symbol = symbol_of("fake_nvml_xids");
	memcpy(&set, &symbol, sizeof set);
	set(n, which);
}

static int begun(void) { return count("fake_nvml_begun"); }

static void test_read(void **arg)
{
	struct kn_nvml *n;
	struct kn_device_state s;
	struct sl_err err = {0};
	(void)arg;
	mode(FINE);
	assert_int_equal(kn_nvml_open(path, pci, &n, &err), 0);
	assert_int_equal(kn_nvml_read(n, &s), 0);
	assert_int_equal(s.busy_percent, 87);
	assert_int_equal(s.memory_busy_percent, 41);
	assert_int_equal(s.memory_bytes, 1000000);
	assert_int_equal(s.memory_used_bytes, 600000);
	assert_int_equal(s.celsius, 64);
	assert_int_equal(s.milliwatts, 512345);
	assert_int_equal(s.limit_milliwatts, 700000);
	assert_int_equal(s.sm_mhz, 1755);
	assert_int_equal(s.memory_mhz, 3201);
	assert_int_equal(s.slowed, KN_SLOWED_POWER | KN_SLOWED_THERMAL | KN_SLOWED_OTHER);
	assert_int_equal(s.ecc_uncorrected, 3);
	assert_int_equal(s.nvlinks, 5);
	assert_int_equal(s.nvlink_replays, 10 * (0 + 1 + 2 + 3 + 4 + 5));
	assert_int_equal(s.nvlink_crc, 6 * 1100);
	assert_int_equal(s.pcie_replays, 4);
	assert_int_equal(s.pcie_sent, 2000 * 1024);
	assert_int_equal(s.pcie_received, 3000 * 1024);
	assert_int_equal(s.xids + s.last_xid, 0);
	assert_null(s.absurd);
	xids(3, 79);
	assert_int_equal(kn_nvml_read(n, &s), 0);
	assert_int_equal(s.xids, 3);
	assert_int_equal(s.last_xid, 79);
	mode(BARE); /* what a device does not have is 0 */
	assert_int_equal(kn_nvml_read(n, &s), 0);
	assert_int_equal(s.slowed + s.nvlinks, 0);
	assert_int_equal(s.pcie_sent + s.pcie_received, 0);
	/* A count that can't be read now is no reset. */
	assert_int_equal(s.ecc_uncorrected, 3);
	assert_int_equal(s.nvlink_crc, 6600);
	assert_int_equal(s.pcie_replays, 4);
	assert_int_equal(s.xids, 3);
	assert_int_equal(s.celsius, 64);
	mode(SILENT);
	assert_int_equal(kn_nvml_read(n, &s), SL_EIO);
	assert_int_equal(s.celsius + s.milliwatts + s.sm_mhz, 0);
	kn_nvml_close(n);
	assert_int_equal(begun() + count("fake_nvml_sets"), 0);
	mode(BARE);
	assert_int_equal(kn_nvml_open(path, pci, &n, &err), 0);
	assert_int_equal(kn_nvml_read(n, &s), 0);
	assert_int_equal(s.ecc_uncorrected + s.nvlink_replays + s.nvlink_crc + s.pcie_replays + s.xids, 0);
	kn_nvml_close(n);
}

/* Figures that cannot be are left out, and what is told stays within what there is. */
static void test_lies(void **arg)
{
	struct kn_nvml *n;
	struct kn_device_state s;
	struct sl_err err = {0};
	int n_absurd = 0;
	(void)arg;
	mode(LIES);
	assert_int_equal(kn_nvml_open(path, pci, &n, &err), 0);
	for (int i = 0; i < 100; i++) {
		if (kn_nvml_read(n, &s) != 0)
			continue;
		n_absurd += s.absurd != NULL;
		assert_int_equal(s.busy_percent, 0);
		assert_true(s.memory_busy_percent <= 100);
		assert_int_equal(s.memory_bytes + s.memory_used_bytes, 0);
		assert_int_equal(s.celsius + s.milliwatts + s.sm_mhz + s.memory_mhz, 0);
		assert_int_equal(s.ecc_uncorrected, 0);
		assert_int_equal(s.nvlink_replays + s.nvlink_crc + s.pcie_sent + s.pcie_received, 0);
		assert_int_equal(s.xids + s.last_xid, 0);
		assert_true(s.nvlinks <= 18);
	}
	assert_true(n_absurd > 50);
	kn_nvml_close(n);
}

static void test_refused(void **arg)
{
	struct kn_nvml *n = NULL;
	struct sl_err err = {0};
	(void)arg;
	assert_int_equal(kn_nvml_open("./no-such-library.so", pci, &n, &err), SL_ENOTFOUND);
	assert_non_null(strstr(err.text, "no-such-library.so"));
	assert_int_equal(kn_nvml_open("libm.so.6", pci, &n, &err), SL_ENOTFOUND);
	assert_non_null(strstr(err.text, "lacks a function"));
	mode(NO_START);
	assert_int_equal(kn_nvml_open(path, pci, &n, &err), SL_ENOTFOUND);
	assert_non_null(strstr(err.text, "code 9"));
	mode(FINE);
	assert_int_equal(kn_nvml_open(path, "0000:00:00.0", &n, &err), SL_ENOTFOUND);
	assert_non_null(strstr(err.text, "0000:00:00.0: code 6"));
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(kn_nvml_open(path, pci, &n, &err), SL_ENOMEM);
	assert_null(device_watch_start("./no-such-library.so", pci));
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_null(device_watch_start(path, pci));
	fault_disarm_all();
	assert_null(n);
	assert_int_equal(begun(), 0);
}

static void test_watched(void **arg)
{
	struct proto_device d = {0};
	(void)arg;
	mode(FINE);
	struct device_watch *w = device_watch_start(path, pci);
	assert_non_null(w);
	for (int i = 0; i < 6000 && !d.known; i++) {
		usleep(10000);
		device_watch_read(w, &d);
	}
	assert_int_equal(d.known, 1);
	assert_int_equal(d.busy_percent, 87);
	assert_int_equal(d.milliwatts, 512345);
	assert_int_equal(d.memory_used_bytes, 600000);
	assert_int_equal(d.slowed, PROTO_SLOWED_POWER | PROTO_SLOWED_THERMAL | PROTO_SLOWED_OTHER);
	mode(SILENT);
	for (int i = 0; i < 6000 && d.known; i++) {
		usleep(10000);
		device_watch_read(w, &d);
	}
	assert_int_equal(d.known, 0);
	assert_int_equal(d.milliwatts, 0);
	device_watch_stop(w);
	assert_int_equal(begun(), 0);
	device_watch_read(NULL, &d);
	assert_int_equal(d.known, 0);
	device_watch_stop(NULL);
}

/* A driver that answers nothing for seconds keeps nobody from stopping. */
static void test_hanging(void **arg)
{
	struct proto_device d;
	(void)arg;
	mode(HANGS);
	struct device_watch *w = device_watch_start(path, pci);
	assert_non_null(w);
	for (int i = 0; i < 6000 && count("fake_nvml_hanging") == 0; i++)
		usleep(10000);
	assert_int_equal(begun(), 1);
	assert_int_equal(count("fake_nvml_hanging"), 1);
	uint64_t begin = clock_now_ns();
	device_watch_read(w, &d);
	device_watch_stop(w);
	assert_true(clock_now_ns() - begin > 1500 * NS_PER_MS);
	assert_int_equal(begun(), 1); /* it hangs still: neither waited for it */
	mode(FINE);
	for (int i = 0; i < 6000 && begun() != 0; i++) /* it ends by itself, so that nothing is left */
		usleep(10000);
	assert_int_equal(begun(), 0);
	usleep(50000);
}

static int setup(void **arg)
{
	(void)arg;
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
	assert_true(n > 0);
	path[n] = '\0';
	char *slash = strrchr(path, '/');
	snprintf(slash + 1, sizeof path - (size_t)(slash + 1 - path), "../../../../libfake-nvml.so");
	fake = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	return fake == NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_read),    cmocka_unit_test(test_lies),    cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_watched), cmocka_unit_test(test_hanging),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
