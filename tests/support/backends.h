/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects the backend for a test's cases. SLUICE_TEST_BACKEND names a shared object ("cuda", "cuda-emulated"): tests
 * over all tables then use that one, and tests of the CUDA kernels use it instead of the emulation (tests/gpu/kit;
 * "cuda-standin": tests/kernels/test_standin.c). Not set: the built-in backends and the emulation.
 */
#ifndef TESTS_SUPPORT_BACKENDS_H
#define TESTS_SUPPORT_BACKENDS_H

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/plugin.h"

/* NULL: none named. */
static inline const char *named_backend(void)
{
	const char *name = getenv("SLUICE_TEST_BACKEND");
	return name != NULL && name[0] != '\0' ? name : NULL;
}

/* Whether the tested CUDA kernels run on a device. */
static inline bool on_device(void)
{
	const char *name = named_backend();
	return name != NULL && strcmp(name, "cuda") == 0;
}

/* Whether they run on CUDA's own device layer, over the stand-in for its runtime (tests/standin). */
static inline bool on_standin(void)
{
	const char *name = named_backend();
	return name != NULL && strcmp(name, "cuda-standin") == 0;
}

/* Whether what was given to the device is done only when it is waited for. */
static inline bool device_is_late(void)
{
	const char *policy = getenv("SLUICE_STANDIN");
	return on_standin() ? policy == NULL || strcmp(policy, "late") == 0 : !on_device();
}

/* A function for tests of the shared object at path, which something else keeps open while it is called; NULL: it has
 * none. */
static inline void *backend_function(const char *path, const char *name)
{
	void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol = so != NULL ? dlsym(so, name) : NULL;
	if (so != NULL)
		dlclose(so);
	return symbol;
}

/* Calls a test function of the shared object at path; false: it has none. */
static inline bool call_backend(const char *path, const char *function, int value)
{
	void (*call)(int);
	void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol = so != NULL ? dlsym(so, function) : NULL;
	if (symbol != NULL) {
		memcpy(&call, &symbol, sizeof call);
		call(value);
	}
	if (so != NULL)
		dlclose(so);
	return symbol != NULL;
}

/* NULL-terminated: kn_available(), or the named one, whose shared object has to be beside the test. Include cmocka.h
 * first. */
static inline const struct kn_ops *const *tested_backends(void)
{
	static const struct kn_ops *one[2];
	const char *name = named_backend();
	struct sl_err err = {0};
	char path[PATH_MAX];
	if (name == NULL)
		return kn_available();
	one[0] = kn_select(name, &err);
	if (one[0] == NULL)
		fail_msg("%s", err.text);
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
	path[n > 0 ? n : 0] = '\0';
	char *slash = strrchr(path, '/');
	if (on_device() && slash != NULL) {
		snprintf(slash + 1, sizeof path - (size_t)(slash + 1 - path), "libsluice-%s.so", name);
		assert_true(call_backend(path, "sluice_device_memory_on_host", 1));
	}
	return one;
}

#endif
