/* SPDX-License-Identifier: Apache-2.0
 *
 * Backends opened at run time: what is said when there is none, what a device's fault does, and that
 * nothing is left when memory runs out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>

#include "base/fault.h"
#include "tests/kernels/tables.h"

#include "tests/kernels/battery.h"

static const struct kn_config cfg = {.n_threads = 1, .max_rows = 8, .max_width = 64};

/* No such file, a file that is no backend, and a name of a backend that is not installed: one line each. */
static void test_missing(void **arg)
{
	(void)arg;
	struct sl_err err = {0};
	assert_null(kn_plugin_open("./none.so", &err));
	assert_non_null(strstr(err.text, "none.so"));
	assert_null(kn_plugin_open("libm.so.6", &err));
	assert_non_null(strstr(err.text, "libm.so.6 is no backend"));
	assert_null(kn_select("cuda-emulated", &err)); /* not beside this test */
	assert_string_equal(err.text,
			    "backend \"cuda-emulated\": libsluice-cuda-emulated.so was not built or installed");
	assert_null(kn_select("cuda-none", &err));
	assert_non_null(strstr(err.text, "is unknown"));
	const char *line = kn_plugin_line();
	assert_string_equal(line, "no CUDA: libsluice-cuda.so was not built or installed");
	assert_ptr_equal(kn_plugin_line(), line);
}

static void *read_line(void *text)
{
	snprintf(text, 64, "%s", kn_plugin_line());
	return NULL;
}

/* A program that uses none asks no driver: the line of the start names the file, and a device only once it is selected.
 * The emulation stands in beside this test. */
static void test_unasked(void **arg)
{
	(void)arg;
	struct sl_err err = {0};
	char file[PATH_MAX + 64], elsewhere[64];
	pthread_t thread;
	snprintf(file, sizeof file, "%s", beside("libsluice-cuda.so"));
	(void)unlink(file);
	if (on_device() || symlink("../../libsluice-cuda-emulated.so", file) != 0)
		skip();
	kn_plugin_load("cpu-ref", true); /* no plug-in */
	kn_plugin_load("cuda", true);
	const char *line = kn_plugin_line();
	const struct kn_ops *o = kn_select("cuda", &err);
	(void)unlink(file);
	assert_non_null(o);
	/* What this thread reads does not change while another asks. */
	assert_int_equal(pthread_create(&thread, NULL, read_line, elsewhere), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_string_equal(elsewhere, "CUDA: a device was found");
	assert_string_equal(line, "CUDA: built; engine.backend: cuda asks for a device");
	assert_string_equal(kn_plugin_line(), "CUDA: a device was found");
}

/* The CUDA one of this build, where there is one: a table, or one line that says why not. */
static void test_cuda(void **arg)
{
	(void)arg;
	struct sl_err err = {0};
	const char *path = beside("../../libsluice-cuda.so");
	if (access(path, R_OK) != 0)
		skip();
	const struct kn_ops *o = kn_plugin_open(path, &err);
	if (o != NULL) {
		assert_string_equal(o->name, "cuda");
		return;
	}
	assert_int_not_equal(err.code, 0);
	assert_true(strlen(err.text) > 0 && strchr(err.text, '\n') == NULL);
}

static void fail_launch(int n) { assert_true(call_backend(cuda_path(), "sluice_emulation_fail", n)); }

/* After a fault every operation fails until the backend is closed; another one is not touched. */
static void test_fault(void **arg)
{
	(void)arg;
	const struct kn_ops *o = open_cuda();
	struct kn_backend *b, *other;
	struct sl_err err = {0};
	struct kn_step s = {.n_rows = 1};
	void *x, *y;
	float host[32];
	assert_int_equal(o->open(&cfg, &b, &err), 0);
	assert_int_equal(o->open(&cfg, &other, &err), 0);
	assert_int_equal(o->mem_alloc(b, sizeof host, &x), 0);
	assert_int_equal(o->mem_alloc(other, sizeof host, &y), 0);
	assert_int_equal(o->step_begin(b, &s), 0);
	fail_launch(2);
	for (int i = 0; i < 3; i++)
		assert_int_equal(o->scale(b, x, 2, 1, 32), 0); /* launched at the step's end */
	assert_int_equal(o->read_back(b, x, 32, host), 0);
	assert_int_equal(o->step_end(b), SL_EIO);
	assert_int_equal(o->add(b, x, x, 1, 32), SL_EIO);
	assert_int_equal(o->read_back(b, x, 32, host), SL_EIO);
	assert_int_equal(o->step_end(b), SL_EIO);
	assert_int_equal(o->step_begin(b, &s), SL_EIO);
	assert_int_equal(o->mem_alloc(b, 64, &x), SL_EIO);
	assert_non_null(strstr(o->describe(b), "an injected fault"));
	assert_int_equal(o->step_begin(other, &s), 0);
	assert_int_equal(o->scale(other, y, 2, 1, 32), 0);
	assert_int_equal(o->step_end(other), 0);
	o->mem_free(b, x);
	o->mem_free(other, y);
	o->close(b);
	o->close(other);
}

/* What a profiler sees of steps. */
static void test_ranges(void **arg)
{
	(void)arg;
	const struct kn_ops *o = open_cuda();
	struct kn_backend *b;
	struct sl_err err = {0};
	const int32_t apart[] = {0, 1, 2}, together[] = {0, 1, 1};
	struct kn_step s = {.n_rows = 3, .row_seq = apart};
	struct kn_draw draw = {.top_p = 1};
	struct kn_drawn drawn;
	void *x;
	assert_int_equal(o->open(&cfg, &b, &err), 0);
	assert_int_equal(o->mem_alloc(b, 8 * sizeof(float), &x), 0);
	const char *(*ranges)(void);
	void *symbol = cuda_function("sluice_emulation_ranges");
	memcpy(&ranges, &symbol, sizeof ranges);
	ranges();
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->sample(b, x, 8, &draw, 1, &drawn), 0);
	assert_int_equal(o->step_end(b), 0);
	s.row_seq = together;
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->step_end(b), 0);
	assert_string_equal(ranges(), "decode;sampling;step;;prefill;step;;");
	o->mem_free(b, x);
	o->close(b);
}

/* Weights that it can't use are refused by name. */
static void test_weights(void **arg)
{
	(void)arg;
	const struct kn_ops *o = open_cuda();
	struct kn_backend *b;
	struct kn_weight w;
	struct sl_err err = {0};
	assert_int_equal(o->open(&cfg, &b, &err), 0);
	assert_int_equal(o->weight_load(b, "", 16, 1, 256, &w, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.text, "IQ2_XXS"));
	assert_int_equal(o->weight_load(b, "", KN_Q4_K, 1, 255, &w, &err), SL_EINVAL);
	assert_int_equal(o->weight_load(b, "", KN_F32, -1, 64, &w, &err), SL_EINVAL);
	assert_int_equal(o->weight_load(b, "", KN_F32, INT32_MAX, INT32_MAX, &w, &err), SL_ENOMEM);
	o->close(b);
}

/* Each allocation of opening and of a step fails in turn. */
static void test_no_memory(void **arg)
{
	(void)arg;
	const struct kn_ops *o = open_cuda();
	struct kn_step s = {.n_rows = 1};
	int failed = 0;
	for (long nth = 1;; nth++) {
		struct kn_backend *b = NULL;
		struct sl_err err = {0};
		fault_arm(FAULT_ALLOC, nth, 1);
		int rc = o->open(&cfg, &b, &err);
		if (rc == 0)
			rc = o->step_begin(b, &s);
		fault_disarm_all();
		if (b != NULL)
			o->close(b);
		if (rc == 0)
			break;
		failed++;
	}
	assert_true(failed >= 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_missing), cmocka_unit_test(test_unasked), cmocka_unit_test(test_cuda),
	    cmocka_unit_test(test_fault),   cmocka_unit_test(test_weights), cmocka_unit_test(test_no_memory),
	    cmocka_unit_test(test_ranges),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
