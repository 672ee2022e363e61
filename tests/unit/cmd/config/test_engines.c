/* SPDX-License-Identifier: Apache-2.0
 *
 * `engines`: what a further engine has from its item and what from `engine`, and what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/config/schema.h"
#include "engine/core/backend_choice.h"

#define MODELS "engine.models.small.path=s.gguf", "engine.models.large.path=l.gguf"
#define N(a) (sizeof(a) / sizeof *(a))

static const char *const sets[] = {MODELS,
				   "state=/tmp/s",
				   "engine.threads=3",
				   "engine.kv_memory=64MiB",
				   "engine.adapters.x.path=x",
				   "engine.adapters.x.model=large",
				   "engine.adapters.y.path=y",
				   "engine.adapters.y.model=small",
				   "engine.adapter_folders.f.path=/f",
				   "engine.adapter_folders.f.model=large",
				   "engine.adapter_folders.g.path=/g",
				   "engine.adapter_folders.g.model=small",
				   "engines.b.threads=5",
				   "engines.b.models=large",
				   "engines.b.echo.rate=9",
				   "engines.b.cores=1,4-5",
				   "engines.c.share_prefixes=true"};

static void an_item_is_a_section_with_a_name(void **state)
{
	(void)state;
	struct sluice_config cfg;
	struct sl_err err;
	struct eng_model_config models[PROTO_MAX_MODELS];
	struct eng_config eng;
	assert_int_equal(sluice_config_load_engine(&cfg, NULL, sets, N(sets), "b", &err), 0);
	sluice_engine_config(&cfg, models, &eng);
	assert_int_equal(eng.n_threads, 5);
	assert_int_equal(eng.kv_bytes, 64 << 20);
	assert_true(cfg.echo.rate == 9);
	assert_string_equal(cfg.engine.cores, "1,4-5");
	assert_string_equal(cfg.engine.socket, "/tmp/s/run/engine-b.sock");
	assert_int_equal(eng.n_models, 1);
	assert_string_equal(models[0].name, "large");
	assert_int_equal(eng.n_adapters, 1);
	assert_string_equal(eng.adapters[0].name, "large:x");
	assert_int_equal(eng.adapters[0].model, 0);
	assert_int_equal(eng.n_adapter_folders, 1);
	assert_string_equal(eng.adapter_folders[0].path, "/f");
	assert_int_equal(eng.adapter_folders[0].model, 0);
	sluice_config_free(&cfg);
	assert_int_equal(sluice_config_load_engine(&cfg, NULL, sets, N(sets), "c", &err), 0);
	sluice_engine_config(&cfg, models, &eng);
	assert_true(eng.share_prefixes && eng.n_threads == 3 && eng.n_models == 2 && eng.n_adapters == 2);
	sluice_config_free(&cfg);
}

/* Its models are names that engine.models need not have; what engine.upstream.models says of one holds. */
static void an_item_with_an_upstream(void **state)
{
	(void)state;
	static const char *const all[] = {MODELS,
					  "engine.upstream.models.far.context=77",
					  "engine.upstream.models.far.model=inner",
					  "engine.upstream.models.other.context=5",
					  "engines.b.upstream.url=http://b/v1",
					  "engines.b.models=far,near",
					  "engines.c.upstream.url=http://c/v1"};
	struct sluice_config cfg;
	struct sl_err err;
	struct eng_remote_model models[8];
	struct eng_remote_config remote;
	if (sluice_config_load_engine(&cfg, NULL, all, N(all), "b", &err) != 0)
		fail_msg("%s", err.text);
	assert_in_range(sluice_remote_models(&cfg), 2, N(models));
	sluice_remote_config(&cfg, models, &remote);
	assert_string_equal(remote.url, "http://b/v1");
	assert_int_equal(remote.n_models, 2);
	assert_string_equal(models[0].name, "far");
	assert_string_equal(models[0].model, "inner");
	assert_int_equal(models[0].n_ctx, 77);
	assert_string_equal(models[1].name, "near");
	assert_string_equal(models[1].model, "");
	sluice_config_free(&cfg);
	assert_int_equal(sluice_config_load_engine(&cfg, NULL, all, N(all), "c", &err), 0);
	sluice_remote_config(&cfg, models, &remote);
	assert_int_equal(remote.n_models, 2);
	assert_string_equal(models[1].name, "other");
	sluice_config_free(&cfg);
}

static void the_first_one_and_the_gateway(void **state)
{
	(void)state;
	struct sluice_config cfg;
	struct sl_err err;
	assert_int_equal(sluice_config_load_engine(&cfg, NULL, sets, N(sets), NULL, &err), 0);
	assert_int_equal(cfg.engine.threads, 3);
	assert_false(cfg.engine.share_prefixes);
	assert_string_equal(cfg.engine.socket, "/tmp/s/run/engine.sock");
	const struct gw_config *g = &cfg.gateway;
	assert_int_equal(g->n_engines, 2);
	assert_string_equal(g->engines[0].name, "b");
	assert_string_equal(g->engines[0].socket, "/tmp/s/run/engine-b.sock");
	assert_string_equal(g->engines[1].name, "c");
	assert_int_equal(g->n_models, 2);
	assert_true(g->routing.policy == GW_ROUTE_BY_COST && g->routing.weights[GW_ROUTE_CACHE] == 10 &&
		    g->routing.weights[GW_ROUTE_QUEUE] == 0.5);
	/* What an item does not give is not shown. */
	struct sl_buf out;
	buf_init(&out, 1 << 20);
	assert_int_equal(conf_show(cfg.conf, NULL, &out), 0);
	assert_int_equal(buf_append(&out, "", 1), 0);
	const char *text = (const char *)buf_data(&out);
	assert_non_null(strstr(text, "\nengines.b.threads: 5  # command line\n"));
	assert_null(strstr(text, "engines.c.threads"));
	buf_dispose(&out);
	sluice_config_free(&cfg);
}

static int changed(void *ctx, const char *key)
{
	assert_string_equal(key, "engines");
	++*(int *)ctx;
	return 0;
}

static char *kept[64];
static size_t n_kept;

static int keep(void *ctx, const char *set)
{
	(void)ctx;
	kept[n_kept] = strdup(set);
	return kept[n_kept++] != NULL ? 0 : SL_ENOMEM;
}

/* A reload keeps them by overrides, which must give the same list again. */
static void the_list_can_be_kept(void **state)
{
	(void)state;
	struct sluice_config a, b;
	struct sl_err err;
	int n = 0;
	for (size_t i = 0; i < N(sets); i++)
		assert_int_equal(keep(NULL, sets[i]), 0);
	assert_int_equal(keep(NULL, "engines.b.threads=7"), 0);
	assert_int_equal(keep(NULL, "engines.d.threads=1"), 0);
	assert_int_equal(sluice_config_load(&a, NULL, sets, N(sets), &err), 0);
	assert_int_equal(conf_overrides(a.conf, "engines", keep, NULL), 0);
	assert_int_equal(sluice_config_load(&b, NULL, (const char *const *)kept, n_kept, &err), 0);
	assert_int_equal(conf_compare(a.conf, b.conf, changed, &n), 0);
	assert_int_equal(n, 0);
	sluice_config_free(&a);
	sluice_config_free(&b);
	while (n_kept > 0)
		free(kept[--n_kept]);
}

static void a_changed_item_needs_a_restart(void **state)
{
	(void)state;
	struct sluice_config a, b;
	struct sl_err err;
	const char *more[N(sets) + 1];
	int n = 0;
	memcpy(more, sets, sizeof sets);
	more[N(sets)] = "engines.c.threads=3";
	assert_int_equal(sluice_config_load(&a, NULL, sets, N(sets), &err), 0);
	assert_int_equal(sluice_config_load(&b, NULL, more, N(more), &err), 0);
	assert_int_equal(conf_compare(a.conf, b.conf, changed, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(conf_compare(a.conf, a.conf, changed, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(sluice_config_restart("engines"), RESTART_ALL);
	sluice_config_free(&a);
	sluice_config_free(&b);
}

static void what_is_refused(void **state)
{
	(void)state;
	static const struct {
		const char *set, *line;
	} cases[] = {
	    {"engines.b.models=other", "--set: engines.b.models: engine.models has no 'other'"},
	    {"engine.serves=none", "--set: engine.serves: engine.models has no 'none'"},
	    {"engines.b.cores=3-1", "--set: engines.b.cores: a list of processors is wanted, such as 0-3,8"},
	    {"engines.b.cores=1,", "--set: engines.b.cores: a list of processors is wanted, such as 0-3,8"},
	    {"engines.b.cores=99999", "--set: engines.b.cores: a list of processors is wanted, such as 0-3,8"},
	    {"engine.cores=x", "--set: engine.cores: a list of processors is wanted, such as 0-3,8"},
	    {"engines.b.threads=5000", "--set: engines.b.threads: "},
	    {"engines.b.socket=/x", "--set: engines.b.socket: no such key"},
	    {"engines.engine.threads=1", "--set: engines.engine.name: letters, digits"},
	    {"engines.a/b.threads=1", "--set: engines.a/b.name: letters, digits"},
	    {"engines.b.role=small", "--set: engines.b.role: "},
	    {"engines.b.role=prefill", "--set: engines.b.role: 'prefill' needs another engine of role decode"},
	    {"engine.role=decode", "--set: engine.role: 'decode' needs another engine of role prefill"},
	    {"handover.memory=1MiB", "--set: handover.memory: "},
	    {"handover.wait=0", "--set: handover.wait: "},
	    {"gateway.routing.policy=best", "--set: gateway.routing.policy: "},
	    {"gateway.routing.first=near", "--set: gateway.routing.first: "},
	    {"engine.upstream.metrics_interval=1ms", "--set: engine.upstream.metrics_interval: "},
	    {"gateway.routing.weights.cache=-1", "--set: gateway.routing.weights.cache: "},
	};
	for (size_t i = 0; i < N(cases); i++) {
		struct sluice_config cfg;
		struct sl_err err;
		const char *all[] = {MODELS, cases[i].set};
		assert_int_not_equal(sluice_config_load(&cfg, NULL, all, N(all), &err), 0);
		if (strncmp(err.text, cases[i].line, strlen(cases[i].line)) != 0)
			fail_msg("%s: %s", cases[i].set, err.text);
	}
	struct sluice_config cfg;
	struct sl_err err;
	assert_int_not_equal(sluice_config_load_engine(&cfg, NULL, sets, N(sets), "d", &err), 0);
	assert_string_equal(err.text, "--engine: no engine is called 'd' in engines");
	const char *many[] = {"engines.a.threads=1", "engines.b.threads=1", "engines.c.threads=1",
			      "engines.d.threads=1", "engines.e.threads=1", "engines.f.threads=1",
			      "engines.g.threads=1", "engines.h.threads=1"};
	assert_int_equal(sluice_config_load(&cfg, NULL, many, N(many) - 1, &err), 0);
	sluice_config_free(&cfg);
	assert_int_equal(sluice_config_load(&cfg, NULL, many, N(many), &err), SL_ERANGE);
}

/* Roles are the gateway's and the supervisor's: an engine's own process needs only its number. */
static void roles(void **state)
{
	(void)state;
	static const char *const split[] = {MODELS, "engine.role=decode", "engines.b.threads=1",
					    "engines.p.role=prefill", "engines.d.role=decode"};
	struct sluice_config cfg;
	struct sl_err err;
	assert_int_equal(sluice_config_load_engine(&cfg, NULL, sets, N(sets), NULL, &err), 0);
	assert_int_equal(engines_prefill(&cfg), 0);
	sluice_config_free(&cfg);
	assert_int_equal(sluice_config_load_engine(&cfg, NULL, split, N(split), NULL, &err), 0);
	const struct gw_config *g = &cfg.gateway;
	assert_int_equal(g->engine_role, GW_ENGINE_DECODE);
	assert_int_equal(g->engines[0].role, GW_ENGINE_BOTH); /* not as the first one's */
	assert_int_equal(g->engines[1].role, GW_ENGINE_PREFILL);
	assert_int_equal(g->engines[2].role, GW_ENGINE_DECODE);
	assert_int_equal(engines_prefill(&cfg), 1 << 2);
	assert_int_equal(engines_number(&cfg, NULL), 0);
	assert_int_equal(engines_number(&cfg, "p"), 2);
	assert_int_equal(g->prefill.tokens, 256);
	assert_int_equal(g->prefill.queue, 10);
	assert_int_equal(g->prefill.wait_ms, 30000);
	assert_int_equal(cfg.handover_memory, 256 << 20);
	sluice_config_free(&cfg);
	assert_int_equal(sluice_config_load_engine(&cfg, NULL, split, N(split), "p", &err), 0);
	assert_int_equal(engines_number(&cfg, "p"), 2);
	sluice_config_free(&cfg);
	assert_int_equal(sluice_config_restart("handover.memory"), RESTART_ALL);
	assert_int_equal(sluice_config_restart("handover.tokens"), RESTART_NOT);
}

/* Engines of role auto may compute prompts for others and decode from theirs, so all of them write to the area. */
static void roles_that_change(void **state)
{
	(void)state;
	static const char *const two[] = {MODELS, "engine.role=auto", "engines.b.role=auto", "engines.c.threads=1"};
	static const char *const beside[] = {MODELS, "engine.role=decode", "engines.b.role=auto"};
	static const char *const alone[] = {MODELS, "engine.role=auto", "engines.b.threads=1"};
	static const char *const second[] = {MODELS, "engines.b.role=auto"};
	struct sluice_config cfg;
	struct sl_err err;
	assert_int_equal(sluice_config_load(&cfg, NULL, two, N(two), &err), 0);
	assert_int_equal(engines_prefill(&cfg), 1 << 0 | 1 << 1);
	assert_int_equal(cfg.gateway.engine_role, GW_ENGINE_AUTO);
	assert_int_equal(cfg.gateway.engines[1].role, GW_ENGINE_BOTH);
	assert_int_equal(cfg.gateway.planner.period_ms, 1000);
	assert_int_equal(cfg.gateway.planner.dwell_ms, 10000);
	sluice_config_free(&cfg);
	assert_int_equal(sluice_config_load(&cfg, NULL, beside, N(beside), &err), 0);
	assert_int_equal(engines_prefill(&cfg), 1 << 1);
	assert_int_equal(engines_of_role(&cfg, GW_ENGINE_DECODE), 1 << 0);
	sluice_config_free(&cfg);
	assert_true(sluice_config_load(&cfg, NULL, alone, N(alone), &err) != 0);
	assert_non_null(strstr(err.text, "engine.role: 'auto' needs another engine of role auto, prefill or decode"));
	assert_true(sluice_config_load(&cfg, NULL, second, N(second), &err) != 0);
	assert_non_null(strstr(err.text, "engines.b.role: 'auto' needs"));
	assert_int_equal(sluice_config_restart("planner.dwell"), RESTART_NOT);
}

/* An engine gets each priority's floor: of tiers that share one, the strictest. */
static void floors_of_tiers(void **state)
{
	(void)state;
	static const char *const tiers[] = {MODELS,
					    "gateway.tiers.a.priority=0",
					    "gateway.tiers.a.floor_tps=10",
					    "gateway.tiers.b.priority=0",
					    "gateway.tiers.b.floor_tps=5",
					    "gateway.tiers.c.priority=3",
					    "gateway.tiers.d.priority=5",
					    "gateway.tiers.d.floor_tps=0"};
	struct sluice_config cfg;
	struct eng_model_config models[8];
	struct eng_config out;
	struct sl_err err;
	assert_int_equal(sluice_config_load(&cfg, NULL, tiers, N(tiers), &err), 0);
	assert_true(cfg.engine.models.n <= 8);
	sluice_engine_config(&cfg, models, &out);
	assert_int_equal(out.floor_us[0], 100000);
	assert_int_equal(out.floor_us[3], 250000); /* reading speed */
	assert_int_equal(out.floor_us[5], 0);
	assert_int_equal(out.floor_us[7], 0); /* no tier has it */
	sluice_config_free(&cfg);
}

/* Which engine gets the files and calls of a device's driver: one that names a device, or takes one where there is one,
 * and computes. */
static void a_device_is_wanted(void **state)
{
	(void)state;
	static const struct {
		const char *set, *other;
		bool wanted, plausible; /* plausible: only where there may be a device */
	} cases[] = {{"engine.backend=cuda", NULL, true, false},
		     {"engine.backend=auto", NULL, true, true},
		     {"engine.backend=cpu-ref", NULL, false, false},
		     {"engine.backend=cuda-emulated", NULL, false, false},
		     {"engine.backend=cuda", "engine.echo.enabled=true", false, false}};
	for (size_t i = 0; i < N(cases); i++) {
		const char *const given[] = {MODELS, cases[i].set, cases[i].other};
		struct sluice_config cfg;
		struct sl_err err;
		size_t n = N(given) - (cases[i].other == NULL);
		if (sluice_config_load_engine(&cfg, NULL, given, n, NULL, &err) != 0)
			fail_msg("%s", err.text);
		bool wanted = cases[i].wanted && (!cases[i].plausible || backend_device_plausible());
		if (sluice_wants_device(&cfg) != wanted)
			fail_msg("%s %s", cases[i].set, cases[i].other != NULL ? cases[i].other : "");
		sluice_config_free(&cfg);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_item_is_a_section_with_a_name),
	    cmocka_unit_test(a_device_is_wanted),
	    cmocka_unit_test(an_item_with_an_upstream),
	    cmocka_unit_test(the_first_one_and_the_gateway),
	    cmocka_unit_test(the_list_can_be_kept),
	    cmocka_unit_test(a_changed_item_needs_a_restart),
	    cmocka_unit_test(what_is_refused),
	    cmocka_unit_test(roles),
	    cmocka_unit_test(roles_that_change),
	    cmocka_unit_test(floors_of_tiers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
