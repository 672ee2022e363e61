/* SPDX-License-Identifier: Apache-2.0
 *
 * A device is chosen where it can compute every model; else the reason names what it lacks, and the processor is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "engine/core/backend_choice.h"
#include "tests/kernels/tables.h"
#include "tests/support/random_file.h"

enum { MOST = 3 };

/* Whether a device with these operations is one for these models. */
static bool can(const struct kn_ops *ops, const char *const *names, int n, int n_adapters, struct sl_err *why)
{
	static char paths[MOST][256];
	struct eng_model_config models[MOST];
	struct eng_config cfg = {.models = models, .n_models = n, .backend = "auto", .n_adapters = n_adapters};
	memset(models, 0, sizeof models);
	for (int i = 0; i < n; i++) {
		md_path(paths[i], dir, names[i]);
		models[i].name = names[i];
		models[i].path = paths[i];
	}
	return backend_can_compute(&cfg, ops, why);
}

static void test_can(void **state)
{
	(void)state;
	static const char *const names[] = {"plain.gguf", "experts.gguf", "not-there.gguf"};
	struct sl_err why = {0};
	random_file(names[0], "tiny-llama", "f16", 1, 1);
	random_file(names[1], "tiny-gpt-oss", "f16", 1, 1); /* with sinks, too */
	if (!can(open_cuda(), names, 3, 0, &why))
		fail_msg("%s", why.text);
}

static void test_cannot(void **state)
{
	(void)state;
	static const char *const names[] = {"plain.gguf", "experts.gguf"};
	struct sl_err why = {0};
	struct kn_ops ops = *open_cuda();
	ops.experts = NULL;
	random_file(names[0], "tiny-llama", "f16", 1, 1);
	random_file(names[1], "tiny-mixtral", "f16", 1, 1);
	assert_false(can(&ops, names, 2, 0, &why));
	assert_non_null(strstr(why.text, "experts.gguf needs mixtures of experts"));
}

/* The device has adapters; one that lacked them would not be taken. */
static void test_adapters(void **state)
{
	(void)state;
	static const char *const names[] = {"plain.gguf"};
	struct sl_err why = {0};
	random_file(names[0], "tiny-llama", "f16", 1, 1);
	if (!can(open_cuda(), names, 1, 1, &why))
		fail_msg("%s", why.text);
	struct kn_ops without = *open_cuda();
	without.lora_shrink = NULL;
	assert_false(backend_can_compute(&(struct eng_config){.backend = "auto", .n_adapters = 1}, &without, &why));
	assert_non_null(strstr(why.text, "adapters"));
}

/* Another name than auto is taken as it is, and auto without a device is the processor's best. */
static void test_named(void **state)
{
	(void)state;
	struct eng_config cfg = {.backend = "cpu-ref"};
	struct sl_err why, err;
	assert_string_equal(backend_choose(&cfg, true, &why, &err)->name, "cpu-ref");
	assert_string_equal(why.text, "");
	cfg.backend = "cuda-none";
	assert_null(backend_choose(&cfg, true, &why, &err));
	cfg.backend = "auto";
	assert_int_equal(strncmp(backend_choose(&cfg, false, &why, &err)->name, "cpu-", 4), 0);
	assert_string_equal(why.text, "");
}

/* A device whose driver does not answer, or whose kernels are not there, leaves the processor, and is named. */
static void test_broken(void **state)
{
	(void)state;
	struct eng_config cfg = {.backend = "auto"};
	struct sl_err why, err;
	const struct kn_ops *ops = backend_choose(&cfg, true, &why, &err);
	assert_non_null(ops);
	if (strcmp(ops->name, "cuda") == 0)
		skip(); /* there is one, and it works */
	assert_non_null(strstr(why.text, "cuda"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_can, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_cannot, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_adapters, setup, teardown),
	    cmocka_unit_test(test_named),
	    cmocka_unit_test(test_broken),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
