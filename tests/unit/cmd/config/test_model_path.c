/* SPDX-License-Identifier: Apache-2.0
 *
 * Models by their names in the models folder, and what a configuration makes of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "cmd/config/model_path.h"
#include "cmd/config/schema.h"

static char dir[64];

/* Files and folders (with a slash at the end) of one models folder. */
static const char *const entries[] = {"split/",
				      "split/m-00002-of-00002.gguf",
				      "split/m-00001-of-00002.gguf",
				      "split/a-mmproj.gguf",
				      "split/.sluice.json",
				      "folder/",
				      "folder/config.json",
				      "folder/a.gguf",
				      "empty/",
				      "plain.gguf",
				      ".hidden.gguf"};

static int setup(void **unused)
{
	char path[160];
	(void)unused;
	snprintf(dir, sizeof dir, "/tmp/sluice-models-XXXXXX");
	if (mkdtemp(dir) == NULL)
		return 1;
	for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, entries[i]);
		FILE *f = path[strlen(path) - 1] == '/' ? NULL : fopen(path, "w");
		if (f == NULL && mkdir(path, 0700) != 0)
			return 1;
		if (f != NULL)
			fclose(f);
	}
	return 0;
}

static int teardown(void **unused)
{
	char path[160];
	(void)unused;
	for (size_t i = sizeof entries / sizeof *entries; i-- > 0;) {
		snprintf(path, sizeof path, "%s/%s", dir, entries[i]);
		remove(path);
	}
	for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) { /* folders are empty now */
		snprintf(path, sizeof path, "%s/%s", dir, entries[i]);
		remove(path);
	}
	return rmdir(dir);
}

static void test_find(void **unused)
{
	static const struct {
		const char *name, *found;
	} cases[] = {{"split", "/split/m-00001-of-00002.gguf"},
		     {"folder", "/folder"},
		     {"plain", "/plain.gguf"},
		     {"plain.gguf", "/plain.gguf"},
		     {"empty", NULL},
		     {"other", NULL},
		     {".hidden", NULL},
		     {"../etc", NULL},
		     {"split/m-00001-of-00002.gguf", NULL},
		     {"", NULL}};
	char path[160], want[160];
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		bool found = model_path_find(dir, cases[i].name, path, sizeof path);
		assert_int_equal(found, cases[i].found != NULL);
		if (!found)
			continue;
		snprintf(want, sizeof want, "%s%s", dir, cases[i].found);
		assert_string_equal(path, want);
	}
	assert_false(model_path_find(dir, "plain", path, 20));
}

static void test_configured(void **unused)
{
	char folder[96], want[160];
	const char *sets[] = {folder, "engine.models.a.path=split", "engine.models.b.path=none",
			      "engine.models.c.path=etc/models/demo-small.gguf"};
	struct sluice_config cfg;
	struct sl_err err;
	(void)unused;
	snprintf(folder, sizeof folder, "hub.folder=%s", dir);
	snprintf(want, sizeof want, "%s/split/m-00001-of-00002.gguf", dir);
	if (sluice_config_load(&cfg, NULL, sets, 4, &err) != 0)
		fail_msg("%s", err.text);
	const struct model_settings *m = cfg.engine.models.items;
	assert_string_equal(m[0].path, want);
	assert_string_equal(m[1].path, "none");
	assert_string_equal(m[2].path, "etc/models/demo-small.gguf");
	sluice_config_free(&cfg);
}

/* Adapters are named with their base, and refused by their key. */
static void test_adapters(void **unused)
{
	static const struct {
		const char *sets[2], *key, *words;
	} wrong[] = {
	    {{"engine.adapters.x.path=x", "engine.adapters.x.model=c"},
	     "engine.adapters.x.model",
	     "no model is named 'c'"},
	    {{"engine.adapters.y:z.path=x", "engine.adapters.y:z.model=a"}, "engine.adapters.y:z", "letters, digits"},
	    {{"engine.adapters.b.path=x", "engine.adapters.b.model=a"},
	     "engine.adapters.b.name",
	     "two models are named 'a:b'"},
	    {{"engine.adapters.x.path=x", "gateway.default_model=a:y"}, "engine.adapters.x", "model"},
	    {{"engine.adapters.x.model=a", "engine.adapters.x.path="}, "engine.adapters.x.path", ""},
	    {{"gateway.default_model=a:y", "state=/tmp/s"}, "gateway.default_model", "no model is named 'a:y'"},
	};
	const char *sets[] = {"engine.models.a.path=p", "engine.models.a:b.path=q", "engine.adapters.x.path=r",
			      "engine.adapters.x.model=a:b", "gateway.default_model=a:b:x"};
	struct eng_model_config models[PROTO_MAX_MODELS];
	struct eng_config eng;
	struct sluice_config cfg;
	struct sl_err err = {0};
	(void)unused;
	if (sluice_config_load(&cfg, NULL, sets, 5, &err) != 0)
		fail_msg("%s", err.text);
	sluice_engine_config(&cfg, models, &eng);
	assert_int_equal(eng.n_adapters, 1);
	assert_string_equal(eng.adapters[0].name, "a:b:x");
	assert_string_equal(eng.adapters[0].path, "r");
	assert_string_equal(models[eng.adapters[0].model].name, "a:b");
	sluice_config_free(&cfg);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		const char *with[] = {sets[0], sets[1], wrong[i].sets[0], wrong[i].sets[1]};
		err = (struct sl_err){0};
		assert_int_not_equal(sluice_config_load(&cfg, NULL, with, 4, &err), 0);
		if (strstr(err.text, wrong[i].key) == NULL || strstr(err.text, wrong[i].words) == NULL)
			fail_msg("\"%s\", not %s: %s", err.text, wrong[i].key, wrong[i].words);
	}
}

/* An emptied list of models takes its adapters along; those that follow stay. */
static void test_emptied(void **unused)
{
	const char *sets[] = {"engine.models=", "engine.models.a.path=p", "engine.adapters.x.path=r",
			      "engine.adapters.x.model=a", "gateway.default_model=a"};
	struct sluice_config cfg;
	struct sl_err err = {0};
	(void)unused;
	if (sluice_config_load(&cfg, "etc/sluice.yaml", sets, 2, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(cfg.engine.models.n, 1);
	assert_int_equal(cfg.engine.adapters.n, 0);
	sluice_config_free(&cfg);
	if (sluice_config_load(&cfg, "etc/sluice.yaml", sets, 5, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(cfg.engine.adapters.n, 1);
	assert_string_equal(cfg.adapters[0].name, "a:x");
	sluice_config_free(&cfg);
}

static void test_default_folder(void **unused)
{
	const char *sets[] = {"state=/tmp/s"}, *wrong[] = {"hub.endpoint=ftp://hub.example"};
	struct sluice_config cfg;
	struct sl_err err;
	(void)unused;
	assert_int_equal(sluice_config_load(&cfg, NULL, sets, 1, &err), 0);
	assert_string_equal(cfg.models_folder, "/tmp/s/models");
	sluice_config_free(&cfg);
	assert_int_not_equal(sluice_config_load(&cfg, NULL, wrong, 1, &err), 0);
	assert_non_null(strstr(err.text, "hub.endpoint"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_find), cmocka_unit_test(test_configured),
					   cmocka_unit_test(test_adapters), cmocka_unit_test(test_emptied),
					   cmocka_unit_test(test_default_folder)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
