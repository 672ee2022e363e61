/* SPDX-License-Identifier: Apache-2.0
 *
 * The cascade's part of the configuration, and its log of outcomes: written, read again, and lines that
 * can't be.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "cascade/outcome.h"
#include "cmd/cascade/outcomes.h"
#include "cmd/config/schema.h"

/* ---- configuration ---- */

static int load(struct sluice_config *cfg, const char *const *sets, size_t n, struct sl_err *err)
{
	return sluice_config_load(cfg, NULL, sets, n, err);
}

static void defaults(void **state)
{
	(void)state;
	struct sluice_config cfg;
	struct sl_err err = {0};
	struct casc_policy p;
	struct casc_scorer *s;
	assert_int_equal(load(&cfg, NULL, 0, &err), 0);
	casc_policy_make(&cfg.cascade, "free", &p);
	assert_true(p.mode == CASC_MODE_AUTO && p.easy == 0 && p.race == 0.6f && p.hard == 0.85f);
	assert_true(p.sure == 0.75f && p.low == 0.5f && p.drop == 0.4f && p.share == 0.5f && p.tell_degraded);
	assert_true(p.hold_tokens == 16 && p.hold_min == 3 && p.hold_ms == 250 && p.takeover_ms == 5000 && p.fallback);
	assert_true(p.floor == 2 && p.conf.window == 6 && p.load.target_ms == 0 && p.load.recover_ms == 10000);
	assert_int_equal(casc_scorer_create(&cfg.cascade, &s, &err), 0);
	casc_scorer_destroy(s);
	sluice_config_free(&cfg);
}

static void a_tier(void **state)
{
	(void)state;
	static const char *const sets[] = {"gateway.tiers.free.priority=1",
					   "cascade.tiers.free.low=0.3",
					   "cascade.tiers.free.drop=0.2",
					   "cascade.tiers.free.mode=large",
					   "cascade.tiers.free.disagree=tell",
					   "cascade.tiers.free.target_ttft=2s",
					   "cascade.tiers.free.tell_degraded=false",
					   "cascade.hold.tokens=9",
					   "cascade.rules.long.min_bytes=500",
					   "cascade.rules.long.model=large",
					   "cascade.cues.code.weight=7"};
	struct sluice_config cfg;
	struct sl_err err = {0};
	struct casc_policy p;
	int rc = load(&cfg, sets, sizeof sets / sizeof *sets, &err);
	if (rc != 0)
		fail_msg("%s", err.text);
	casc_policy_make(&cfg.cascade, "free", &p);
	assert_true(p.mode == CASC_MODE_LARGE && p.disagree == CASC_TELL_IT && p.low == 0.3f && p.sure == 0.75f);
	assert_true(p.load.target_ms == 2000 && !p.tell_degraded && p.hold_tokens == 9);
	casc_policy_make(&cfg.cascade, "paid", &p);
	assert_true(p.mode == CASC_MODE_AUTO && p.low == 0.5f && p.tell_degraded);
	sluice_config_free(&cfg);
}

static void what_can_not_be(void **state)
{
	(void)state;
	static const struct {
		const char *set, *said;
	} cases[] = {
	    {"cascade.tiers.none.share=0.3", "cascade.tiers.none.name: no tier is named 'none'"},
	    {"cascade.tiers.free.low=0.8", "cascade.tiers.free.low: must not be above sure"},
	    {"cascade.tiers.free.drop=0.6", "cascade.tiers.free.drop: must not be above low"},
	    {"cascade.tiers.free.easy=0.7", "cascade.tiers.free.easy: must not be above race"},
	    {"cascade.tiers.free.race=0.9", "cascade.tiers.free.race: must not be above hard"},
	    {"cascade.tiers.free.hard=1.5", "cascade.tiers.free.hard"},
	    {"cascade.hold.min_tokens=17", "cascade.hold.min_tokens: must not be above cascade.hold.tokens"},
	    {"cascade.confidence.window=33", "cascade.confidence.window"},
	    {"cascade.cues.nothing.weight=1", "cascade.cues.nothing.name: there is no feature"},
	    {"cascade.rules.x.contains=a,,b", "cascade.rules.x.contains"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct sluice_config cfg;
		struct sl_err err = {0};
		const char *const sets[] = {"gateway.tiers.free.priority=1", cases[i].set};
		assert_int_not_equal(load(&cfg, sets, 2, &err), 0);
		if (strstr(err.text, cases[i].said) == NULL)
			fail_msg("%s: %s", cases[i].set, err.text);
	}
	/* Two keys at fault only together. */
	static const char *const both[] = {"cascade.confidence.mean=0", "cascade.confidence.minimum=0"};
	static const char *const bounds[] = {"cascade.rules.x.min_bytes=9", "cascade.rules.x.max_bytes=8"};
	struct sluice_config cfg;
	struct sl_err err = {0};
	assert_int_not_equal(load(&cfg, both, 2, &err), 0);
	assert_non_null(strstr(err.text, "cascade.confidence.mean"));
	assert_int_not_equal(load(&cfg, bounds, 2, &err), 0);
	assert_non_null(strstr(err.text, "cascade.rules.x.max_bytes"));
}

/* ---- outcomes ---- */

static char path[] = "/tmp/sluice-test-XXXXXX";

static int read_text(const char *text, size_t n, struct outcomes *out, struct sl_err *err)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
	return outcomes_read(path, out, err);
}

static struct casc escalated(void)
{
	struct casc c;
	struct casc_budget b = {0};
	struct casc_actions out;
	struct casc_policy p;
	memset(&p, 0, sizeof p);
	p.race = p.hard = 1;
	p.low = p.sure = 0.9f;
	p.hold_tokens = p.hold_min = 2;
	p.floor = 5;
	p.conf = (struct casc_conf_policy){.w_mean = 1, .smooth = 1, .window = 1};
	const struct casc_event events[] = {
	    {.kind = CASC_START,
	     .plan = {.can_small = true,
		      .can_large = true,
		      .can_watch = true,
		      .can_verify = true,
		      .prompt_small = 7,
		      .prompt_large = 8}},
	    {.kind = CASC_SMALL_TOKEN, .token = {.logprob = -1}},
	    {.kind = CASC_SMALL_DONE},
	    {.kind = CASC_VERIFIED, .n = 1},
	    {.kind = CASC_LARGE_TOKEN},
	    {.kind = CASC_LARGE_DONE},
	};
	casc_init(&c, &p);
	for (size_t i = 0; i < sizeof events / sizeof *events; i++)
		assert_int_equal(casc_step(&c, &b, &events[i], &out), 0);
	return c;
}

static void written_and_read(void **state)
{
	(void)state;
	struct casc c = escalated();
	static struct casc_features f;
	const char text[] = "Explain \"tides\" 조수";
	const struct casc_message m = {CASC_USER, text, sizeof text - 1};
	const struct casc_ask ask = {&m, 1, 0, 0};
	const float trace[] = {0.25f, 1};
	struct sl_buf b;
	struct outcomes o;
	struct sl_err err = {0};
	casc_features(&ask, &f);
	struct casc_outcome_log log = {.id = "a\"b",
				       .tier = "free",
				       .at_unix_s = 17,
				       .request = &c,
				       .score = 0.25f,
				       .features = &f,
				       .trace = trace,
				       .n_trace = 2,
				       .ttft_ms = 31};
	buf_init(&b, SIZE_MAX);
	assert_int_equal(casc_outcome_print(&b, &log), 0);
	log.features = NULL;
	log.n_trace = 0;
	assert_int_equal(casc_outcome_print(&b, &log), 0);
	if (read_text((const char *)buf_data(&b), b.len, &o, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(o.n, 2);
	struct casc_cost cost = {0};
	casc_cost_add(&cost, &c);
	assert_memory_equal(&cost, &o.at[0].cost, sizeof cost);
	assert_memory_equal(&cost, &o.at[1].cost, sizeof cost);
	assert_true(o.at[0].plan == CASC_PLAN_CHECK && o.at[0].why == CASC_WHY_MIDDLE &&
		    o.at[0].escalated == CASC_FOR_HELD);
	assert_true(o.at[0].ttft_ms == 31 && o.at[0].small_right == VERDICT_NONE);
	assert_int_equal(o.at[0].n_grams, f.n_grams);
	assert_memory_equal(o.at[0].grams, f.grams, f.n_grams * sizeof *f.grams);
	for (int i = 0; i < CASC_N_FEATURES; i++)
		assert_true(fabsf(o.at[0].dense[i] - f.dense[i]) < 1e-5f);
	assert_true(o.at[0].n_trace == 2 && o.at[0].trace[0] == 0.25f && o.at[1].dense == NULL &&
		    o.at[1].trace == NULL);
	outcomes_dispose(&o);
	/* A line that does not fit leaves nothing behind. */
	struct sl_buf little;
	buf_init(&little, 100);
	assert_int_equal(casc_outcome_print(&little, &log), SL_ELIMIT);
	assert_int_equal(little.len, 0);
	buf_dispose(&little);
	/* Nowhere does memory lack without its being said. */
	int failed = 0;
	for (long nth = 1; nth < 12; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		int rc = outcomes_read(path, &o, &err);
		fault_disarm_all();
		failed += rc == SL_ENOMEM;
		if (rc == 0)
			outcomes_dispose(&o);
	}
	assert_true(failed >= 4);
	buf_dispose(&b);
}

static void features_of_messages(void **state)
{
	(void)state;
	static const char line[] =
	    "\n  {\"messages\":[{\"role\":\"system\",\"content\":\"x\"},{\"role\":\"user\",\"content\":\"explain\"}],"
	    "\"tools\":8,\"max_tokens\":100,\"small_right\":false,\"right\":true,\"large_right\":null,"
	    "\"more\":[1]}\n\n";
	struct outcomes o;
	struct sl_err err = {0};
	assert_int_equal(read_text(line, sizeof line - 1, &o, &err), 0);
	assert_int_equal(o.n, 1);
	assert_true(o.at[0].dense[CASC_F_EXPLAIN] > 0 && o.at[0].dense[CASC_F_TOOLS] == 1 &&
		    o.at[0].dense[CASC_F_SYSTEM] > 0);
	assert_true(o.at[0].small_right == VERDICT_WRONG && o.at[0].right == VERDICT_RIGHT &&
		    o.at[0].large_right == VERDICT_NONE);
	assert_int_equal(o.at[0].n_grams, 1);
	outcomes_dispose(&o);
}

static void bad_lines(void **state)
{
	(void)state;
	static const struct {
		const char *line, *said;
	} cases[] = {
	    {"{", ":2: "},
	    {"[]", "line: must be an object"},
	    {"{\"v\":2}", ":2: v: must be 1"},
	    {"{\"plan\":\"soon\"}", ":2: plan"},
	    {"{\"why\":3}", "why"},
	    {"{\"escalated\":\"up\"}", "escalated"},
	    {"{\"small_right\":1}", "small_right"},
	    {"{\"ttft_ms\":-1}", "ttft_ms"},
	    {"{\"small\":{\"made\":-1}}", "made"},
	    {"{\"small\":{\"made\":1,\"shown\":2}}", "small.shown"},
	    {"{\"large\":{\"made\":1,\"shown\":2}}", "large.shown"},
	    {"{\"offered\":1,\"accepted\":2}", "accepted"},
	    {"{\"offered\":1e3}", "offered"},
	    {"{\"trace\":[0.5,1.5]}", "trace"},
	    {"{\"trace\":3}", "trace"},
	    {"{\"features\":{\"dense\":[1],\"grams\":[]}}", "features.dense"},
	    {"{\"features\":{\"dense\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}}", "features.grams"},
	    {"{\"features\":{\"dense\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],\"grams\":[4294967296]}}",
	     "features.grams"},
	    {"{\"messages\":[{\"role\":\"nobody\",\"content\":\"\"}]}", "messages"},
	    {"{\"messages\":[{\"role\":\"user\"}]}", "messages"},
	    {"{\"messages\":{}}", "messages"},
	    {"{\"v\":1,\"v\":1}", ":2: "},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char text[400];
		struct outcomes o;
		struct sl_err err = {0};
		int n = snprintf(text, sizeof text, "{\"v\":1}\n%s\n", cases[i].line);
		assert_int_equal(read_text(text, (size_t)n, &o, &err), SL_EINVAL);
		if (strstr(err.text, cases[i].said) == NULL || strstr(err.text, path) == NULL)
			fail_msg("%s: %s", cases[i].line, err.text);
		assert_int_equal(o.n, 0);
	}
	struct outcomes o;
	struct sl_err err = {0};
	assert_int_equal(outcomes_read("/nowhere", &o, &err), SL_EIO);
	assert_int_equal(read_text("", 0, &o, &err), 0);
	assert_int_equal(o.n, 0);
	outcomes_dispose(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(defaults),
					   cmocka_unit_test(a_tier),
					   cmocka_unit_test(what_can_not_be),
					   cmocka_unit_test(written_and_read),
					   cmocka_unit_test(features_of_messages),
					   cmocka_unit_test(bad_lines)};
	int fd = mkstemp(path);
	if (fd < 0)
		return 1;
	close(fd);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
