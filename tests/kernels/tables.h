/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables that the kernel tests go over: those of the program and, from the shared object beside
 * the tests' build, the CUDA kernels in their emulation; or, where tests/support/backends.h says so, on a device, whose
 * memory is then the host's, so that tests read and write it like the others'.
 */
#ifndef TESTS_KERNELS_TABLES_H
#define TESTS_KERNELS_TABLES_H

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/plugin.h"
#include "tests/support/backends.h"

/* A path from the folder that this test's executable is in. */
static inline const char *beside(const char *name)
{
	static char path[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
	assert_true(n > 0 && n < PATH_MAX);
	path[n] = '\0';
	char *slash = strrchr(path, '/');
	snprintf(slash + 1, sizeof path - (size_t)(slash + 1 - path), "%s", name);
	return path;
}

/* The shared object with the CUDA kernels that are tested. */
static inline const char *cuda_path(void)
{
	return beside(on_device()    ? "../../libsluice-cuda.so"
		      : on_standin() ? "../../libsluice-cuda-standin.so"
				     : "../../libsluice-cuda-emulated.so");
}

static inline const struct kn_ops *open_cuda(void)
{
	struct sl_err err = {0};
	const struct kn_ops *o = kn_plugin_open(cuda_path(), &err);
	if (o == NULL)
		fail_msg("%s", err.text);
	if (on_device())
		assert_true(call_backend(cuda_path(), "sluice_device_memory_on_host", 1));
	return o;
}

/* A function for tests that those kernels' shared object has. */
static inline void *cuda_function(const char *name)
{
	(void)open_cuda(); /* which keeps it open */
	void *symbol = backend_function(cuda_path(), name);
	if (symbol == NULL)
		fail_msg("%s has no %s", cuda_path(), name);
	return symbol;
}

/* NULL-terminated, the reference first; on a device, or its stand-in, only those two. */
static inline const struct kn_ops *const *all_tables(void)
{
	static const struct kn_ops *all[10];
	if (all[0] != NULL)
		return all;
	int n = 0;
	for (const struct kn_ops *const *o = kn_available(); *o != NULL && (n == 0 || !(on_device() || on_standin()));
	     o++)
		all[n++] = *o;
	all[n] = open_cuda();
	return all;
}

static inline struct kn_backend *open_with(const struct kn_ops *o, const struct kn_config *cfg)
{
	struct kn_backend *b = NULL;
	struct sl_err err = {0};
	assert_int_equal(o->open(cfg, &b, &err), 0);
	return b;
}

/* |got - want| ≤ bound; a NaN fails. */
static inline void expect_near(const char *what, const struct kn_ops *o, double got, double want, double bound)
{
	if (!(fabs(got - want) <= bound))
		fail_msg("%s of %s: %.9g, not %.9g within %.3g", what, o->name, got, want, bound);
}

/* Whether it does the same whatever the number of threads it is given. */
static inline bool one_thread(const struct kn_ops *o)
{
	return strcmp(o->name, "cpu-ref") == 0 || strncmp(o->name, "cuda", 4) == 0;
}

/* How far the activations that a table multiplies with weights of a type are from those it was given, relative to
 * each: CUDA's matrix units take float16 or, beside weights of that type, bfloat16, rounded to the nearest. */
static inline double activation_error(const struct kn_ops *o, int type)
{
	if (strncmp(o->name, "cuda", 4) != 0 || type == KN_F32)
		return 0;
	return type == KN_BF16 ? 0x1p-8 : 0x1p-11;
}

/* And relative to the largest of the row: what is that much smaller than it is subnormal. */
static inline double activation_floor(const struct kn_ops *o, int type)
{
	return activation_error(o, type) > 0 ? 0x1p-39 : 0;
}

#endif
