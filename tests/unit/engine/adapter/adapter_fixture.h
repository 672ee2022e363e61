/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters in the folder of model_dir_fixture.h: made, written by hand, opened, refused.
 */
#ifndef TESTS_ADAPTER_FIXTURE_H
#define TESTS_ADAPTER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/adapter/adapter_make.h"
#include "tests/support/model_dir_fixture.h"

static const char tiny[] = "random:tiny-llama:f32";

static inline const char *in_dir(const char *name)
{
	static char paths[4][256];
	static int next;
	char *path = paths[next++ % 4];
	md_path(path, dir, name);
	return path;
}

static inline struct adapter_make making(const char *base, const char *out)
{
	struct adapter_make m = {.base = base, .out = out, .type = KN_F32, .seed = 5, .replace = true};
	for (int t = 0; t < ADAPTER_TARGETS; t++) {
		m.ranks[t] = t < ADAPTER_DENSE_TARGETS || !adapter_is_of_a_layer((enum adapter_target)t) ? t + 1 : 0;
		m.alphas[t] = 8;
	}
	return m;
}

static inline void made(const struct adapter_make *m)
{
	struct sl_err err = {0};
	if (adapter_make(m, &err) != 0)
		fail_msg("%s", err.text);
}

/* base NULL: without one. */
static inline int open_for(const char *path, const char *base, struct adapter **out, struct sl_err *err)
{
	struct model_file *f;
	struct model_arch arch;
	*err = (struct sl_err){0};
	if (base == NULL)
		return adapter_open(path, NULL, NULL, out, err);
	int rc = model_file_open(base, &f, err);
	if (rc != 0 || (rc = model_file_arch(f, &arch, err)) != 0)
		fail_msg("%s", err->text);
	rc = adapter_open(path, f, &arch, out, err);
	model_file_close(f);
	return rc;
}

static inline struct adapter *opened(const char *path, const char *base)
{
	struct adapter *a = NULL;
	struct sl_err err;
	if (open_for(path, base, &a, &err) != 0)
		fail_msg("%s", err.text);
	return a;
}

static inline void refused(const char *path, const char *base, int code, const char *words)
{
	struct adapter *a = NULL;
	struct sl_err err;
	int rc = open_for(path, base, &a, &err);
	if (rc != code || strstr(err.text, words) == NULL || strchr(err.text, '\n') != NULL)
		fail_msg("%d \"%s\", not %d with \"%s\"", rc, err.text, code, words);
	adapter_close(a);
}

static inline void md_remove_folder(const char *name)
{
	md_remove_file(in_dir(name), "adapter_model.safetensors");
	md_remove_file(in_dir(name), "adapter_config.json");
	md_remove_file(in_dir(name), "adapter_model.bin");
	rmdir(in_dir(name));
}

/* The folder's file in which half X of one target is written by hand, with values of md_value. */
static inline void write_peft(const char *module, int n_out, int n_in)
{
	char names[2][128];
	snprintf(names[0], 128, "base_model.model.model.layers.0.%s.lora_A.weight", module);
	snprintf(names[1], 128, "base_model.model.model.layers.0.%s.lora_B.weight", module);
	const struct md_tensor t[] = {{names[0], "F32", 2, n_in}, {names[1], "F32", n_out, 2}};
	mkdir(in_dir("peft"), 0755);
	md_safetensors(in_dir("peft"), "adapter_model.safetensors", t, 2);
	md_text(in_dir("peft"), "adapter_config.json", "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4}");
}

#endif
