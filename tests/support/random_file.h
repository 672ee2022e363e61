/* SPDX-License-Identifier: Apache-2.0
 *
 * Models with random weights in the folder of model_dir_fixture.h: written, changed by hand, refused.
 */
#ifndef TESTS_RANDOM_FILE_H
#define TESTS_RANDOM_FILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/model/model.h"
#include "engine/source/random_model.h"
#include "tests/support/model_dir_fixture.h"

static inline struct model_arch random_arch(const char *shape)
{
	struct sl_err err = {0};
	struct model_arch a;
	if (random_shape_find(shape, &a, &err) != 0)
		fail_msg("%s", err.text);
	return a;
}

/* The file `name` in the folder becomes such a model. */
static inline void random_file_of(const char *name, const struct model_arch *a, const char *type, uint64_t seed,
				  int n_threads)
{
	char path[256];
	struct sl_err err = {0};
	struct random_model m = {.path = path, .name = "a test", .arch = *a, .seed = seed, .n_threads = n_threads};
	md_path(path, dir, name);
	if (weight_plan_parse(type, &m.plan, &err) != 0 || random_model_write(&m, NULL, &err) != 0)
		fail_msg("%s", err.text);
}

static inline void random_file(const char *name, const char *shape, const char *type, uint64_t seed, int n_threads)
{
	struct model_arch a = random_arch(shape);
	random_file_of(name, &a, type, seed, n_threads);
}

/* The bytes after the first occurrence of `text` in a file of n bytes. */
static inline uint8_t *random_file_after(uint8_t *file, size_t n, const char *text)
{
	uint8_t *at = memmem(file, n, text, strlen(text));
	if (at == NULL)
		fail_msg("no %s in the file", text);
	return at + strlen(text);
}

/* The file is refused in one line that says so; o loads it. */
static inline void random_file_refused(const char *name, const struct kn_ops *o, const char *said)
{
	char path[256];
	struct sl_err err = {0};
	const struct kn_config kc = {.n_threads = 1, .max_rows = 4, .max_width = 4096};
	struct kn_backend *b;
	struct model *m = NULL;
	md_path(path, dir, name);
	assert_int_equal(o->open(&kc, &b, &err), 0);
	int rc = model_load(path, o, b, 4, 0, &m, &err);
	o->close(b);
	if (rc == 0 || strstr(err.text, said) == NULL || strchr(err.text, '\n') != NULL)
		fail_msg("%d \"%s\", not \"%s\"", rc, err.text, said);
}

#endif
