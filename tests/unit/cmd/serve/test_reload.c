/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the configuration again: what is taken, what keeps its value and is said so, what is refused
 * without a trace; and that what is pinned comes out again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "cmd/serve/reload.h"

static char path[64];
static struct cmd_options options;

static void write_config(const char *text)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static int make_file(void **unused)
{
	(void)unused;
	snprintf(path, sizeof path, "/tmp/sluice-reload-XXXXXX");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	options = (struct cmd_options){.path = path, .beat_fd = -1, .handover_fd = -1};
	options.sets[options.n_sets++] = "gateway.drain=9s";
	return 0;
}

static int remove_file(void **unused)
{
	(void)unused;
	return unlink(path);
}

#define MODELS "engine: {models: [{name: a, path: /a}]}\n"

static struct sluice_config *first(const char *text)
{
	struct sluice_config *cfg;
	write_config(text);
	assert_int_equal(reload_config_first(&options, "test", &cfg), 0);
	return cfg;
}

static void some_is_taken_some_stays(void **unused)
{
	(void)unused;
	struct sluice_config *now, *next;
	struct reload_pins pins = {.n = 0};
	struct sl_err err;
	now = first(MODELS "gateway: {threads: 2, heartbeat: 5s, http: \"*:81\"}\n");
	write_config("engine: {models: [{name: b, path: /b}, {name: a, path: /c}]}\n"
		     "gateway: {threads: 3, heartbeat: 6s, drain: 1s, http: \"*:82\"}\n"
		     "supervisor: {hang: 9s, drain: 20s}\n");
	assert_int_equal(reload_config(&options, now, KEPT_BY_ALL, false, &pins, &next, &err), 0);
	assert_int_equal(next->gateway.heartbeat_ms, 6000);
	assert_int_equal(next->gateway.drain_ms, 9000); /* overridden, as at the start */
	assert_int_equal(next->supervisor.drain_ms, 20000);
	assert_int_equal(next->supervisor.hang_ms, now->supervisor.hang_ms);
	assert_int_equal(next->gateway.threads, 2);
	assert_int_equal(next->gateway.http.port, 81);
	assert_int_equal(next->engine.models.n, 1);
	const struct model_settings *m = next->engine.models.items;
	assert_string_equal(m->name, "a");
	assert_string_equal(m->path, "/a");

	/* Those pins, and nothing else, make the same of the same file. */
	struct cmd_options pinned = options;
	for (size_t i = 0; i < pins.n; i++)
		pinned.sets[pinned.n_sets++] = pins.sets[i];
	struct sluice_config *again;
	assert_int_equal(reload_config_first(&pinned, "test", &again), 0);
	assert_int_equal(again->gateway.threads, 2);
	assert_int_equal(again->gateway.heartbeat_ms, 6000);
	assert_int_equal(again->engine.models.n, 1);
	reload_config_free(again);

	/* An upgrade takes what a new gateway can take, and keeps the engine's. */
	struct sluice_config *upgraded;
	assert_int_equal(reload_config(&options, next, KEPT_IN_UPGRADE, false, &pins, &upgraded, &err), 0);
	assert_int_equal(upgraded->gateway.threads, 3);
	assert_int_equal(upgraded->gateway.http.port, 82);
	assert_int_equal(upgraded->engine.models.n, 1);
	assert_int_equal(upgraded->supervisor.hang_ms, now->supervisor.hang_ms);
	reload_config_free(upgraded);

	/* Back to what it was: nothing is pinned. */
	write_config(MODELS "gateway: {threads: 2, http: \"*:81\"}\n");
	struct sluice_config *back;
	assert_int_equal(reload_config(&options, next, KEPT_BY_ALL, false, &pins, &back, &err), 0);
	assert_int_equal(pins.n, 0);
	reload_config_free(back);
	reload_pins_dispose(&pins);
	reload_config_free(next);
	reload_config_free(now);
}

/* What a reload takes once new engines serve, and what asks for them. */
static void engines_are_asked_for(void **unused)
{
	(void)unused;
	struct sluice_config *now = first(MODELS "gateway: {threads: 2}\n"), *next;
	struct reload_pins pins = {.n = 0};
	struct sl_err err;
	write_config("engine: {models: [{name: a, path: /c}], role: both}\ngateway: {threads: 3, heartbeat: 6s}\n");
	assert_int_equal(reload_config(&options, now, KEPT_IN_RELOAD, false, &pins, &next, &err), 0);
	assert_string_equal(((const struct model_settings *)next->engine.models.items)->path, "/c");
	assert_int_equal(next->gateway.threads, 2);
	assert_true(reload_touches_engines(now, next));
	assert_true(pins.n == 1 && strcmp(pins.sets[0], "gateway.threads=2") == 0);
	reload_config_free(next);
	write_config(MODELS "gateway: {heartbeat: 6s}\n");
	assert_int_equal(reload_config(&options, now, KEPT_IN_RELOAD, false, &pins, &next, &err), 0);
	assert_false(reload_touches_engines(now, next));
	reload_pins_dispose(&pins);
	reload_config_free(next);
	reload_config_free(now);
}

static void put_file(const char *folder, const char *name, const char *text)
{
	char file[160];
	snprintf(file, sizeof file, "%s/%s", folder, name);
	FILE *f = fopen(file, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void files_of_models_count(void **unused)
{
	(void)unused;
	char folder[] = "/tmp/sluice-files-XXXXXX", text[256], command[160];
	assert_non_null(mkdtemp(folder));
	put_file(folder, "one", "1");
	snprintf(text, sizeof text,
		 "engine: {models: [{name: a, path: %s/one}, {name: b, path: %s}, {name: c, path: /none}]}\n", folder,
		 folder);
	struct sluice_config *cfg = first(text);
	uint64_t before = reload_model_files(cfg);
	assert_int_equal(reload_model_files(cfg), before);
	put_file(folder, "one", "12");
	uint64_t written = reload_model_files(cfg);
	assert_int_not_equal(written, before);
	put_file(folder, "two", "1"); /* of the model that is a folder */
	uint64_t added = reload_model_files(cfg);
	assert_int_not_equal(added, written);
	put_file(folder, ".lock", "1");
	assert_int_equal(reload_model_files(cfg), added);
	snprintf(command, sizeof command, "cp -p %s/two %s/.x && mv %s/.x %s/two", folder, folder, folder, folder);
	assert_int_equal(system(command), 0); /* another file of the same size and time */
	assert_int_not_equal(reload_model_files(cfg), added);
	reload_config_free(cfg);
	snprintf(command, sizeof command, "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

static void wrong_ones_are_refused(void **unused)
{
	(void)unused;
	static const char *const wrong[][2] = {
	    {"gateway: {heartbeat: never}\n", "gateway.heartbeat"},
	    {"gateway: {heartbeats: 1s}\n", "gateway.heartbeats"},
	    {"gateway: [\n", ":"},
	    /* Good by itself, wrong together with what stays. */
	    {"supervisor: {heartbeat: 1ms}\n", "supervisor.heartbeat"},
	};
	struct sluice_config *now = first(MODELS), *next = NULL;
	struct reload_pins pins = {.n = 0};
	struct sl_err err;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		write_config(wrong[i][0]);
		assert_true(reload_config(&options, now, KEPT_BY_ALL, false, &pins, &next, &err) < 0);
		assert_non_null(strstr(err.text, path));
		assert_non_null(strstr(err.text, wrong[i][1]));
		assert_null(next);
		assert_int_equal(pins.n, 0);
	}
	/* What is pinned must go with the rest. */
	write_config("gateway: {default_model: b}\nengine: {models: [{name: b, path: /b}]}\n");
	assert_int_equal(reload_config(&options, now, KEPT_BY_ALL, false, &pins, &next, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "gateway.default_model"));
	/* And there is a bound. */
	struct cmd_options full = options;
	while (full.n_sets < CMD_MAX_SETS)
		full.sets[full.n_sets++] = "gateway.drain=9s";
	write_config("gateway: {threads: 9}\n");
	assert_true(reload_config(&full, now, KEPT_BY_ALL, false, &pins, &next, &err) < 0);
	reload_config_free(now);
}

static void every_allocation_fails_once(void **unused)
{
	(void)unused;
	struct sluice_config *now = first(MODELS), *next;
	struct reload_pins pins = {.n = 0};
	struct sl_err err;
	int failures = 0;
	write_config("gateway: {threads: 3}\n");
	for (long nth = 1;; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		int rc = reload_config(&options, now, KEPT_BY_ALL, false, &pins, &next, &err);
		fault_disarm_all();
		if (rc == 0)
			break;
		assert_int_equal(pins.n, 0);
		failures++;
	}
	assert_true(failures > 20);
	assert_true(pins.n > 0);
	reload_pins_dispose(&pins);
	reload_config_free(next);
	reload_config_free(now);
}

static void every_key_has_an_answer(void **unused)
{
	(void)unused;
	assert_int_equal(sluice_config_restart("state"), RESTART_ALL);
	assert_int_equal(sluice_config_restart("engine.models"), RESTART_ENGINE);
	assert_int_equal(sluice_config_restart("engine.echo.rate"), RESTART_ENGINE);
	assert_int_equal(sluice_config_restart("engine.socket"), RESTART_ALL);
	assert_int_equal(sluice_config_restart("engine.role"), RESTART_ALL);
	assert_int_equal(sluice_config_restart("gateway.http"), RESTART_GATEWAY);
	assert_int_equal(sluice_config_restart("gateway.threads"), RESTART_GATEWAY);
	assert_int_equal(sluice_config_restart("gateway.tiers"), RESTART_NOT);
	assert_int_equal(sluice_config_restart("gateway.limits.idle"), RESTART_NOT);
	assert_int_equal(sluice_config_restart("log_level"), RESTART_NOT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(some_is_taken_some_stays),    cmocka_unit_test(engines_are_asked_for),
	    cmocka_unit_test(files_of_models_count),       cmocka_unit_test(wrong_ones_are_refused),
	    cmocka_unit_test(every_allocation_fails_once), cmocka_unit_test(every_key_has_an_answer),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
