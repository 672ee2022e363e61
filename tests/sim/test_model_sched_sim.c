/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose step is next, on a fake device: models with steps of different length and loads that come and go.
 * What is checked is what engine/sched/model_sched.h says. The last case is the whole engine: a stream on one model
 * among a crowd on the other one. TURNS_SEED chooses another random run.
 */
#include "tests/unit/engine/core/engine_run.h"
#include "fake_model.h"

#include "base/log.h"
#include "engine/sched/model_sched.h"

enum { MODELS = 3, MS = 1000000 };

struct device {
	struct model_share shares[MODELS];
	uint64_t step_ns[MODELS], had_ns[MODELS], now_ns;
};

static void set(struct device *d, int i, int tier, uint32_t n, bool prompt)
{
	d->shares[i].demand = (struct sched_demand){.load = n << (SCHED_TIERS - 1 - tier),
						    .best_tier = (uint8_t)(n > 0 ? tier : SCHED_TIERS),
						    .best_prompt = (uint8_t)(prompt ? tier : SCHED_TIERS)};
}

/* One step; whose it was. -1: nobody has anything to do. */
static int turn(struct device *d)
{
	bool skip[MODELS];
	for (int i = 0; i < MODELS; i++)
		skip[i] = d->shares[i].demand.load == 0;
	model_sched_level(d->shares, MODELS);
	int i = model_sched_next(d->shares, MODELS, skip);
	if (i < 0)
		return i;
	d->now_ns += d->step_ns[i];
	d->had_ns[i] += d->step_ns[i];
	d->shares[i].vtime_ns += model_sched_charge(d->shares, MODELS, i, d->step_ns[i]);
	return i;
}

static void turn_for(struct device *d, uint64_t ns)
{
	uint64_t until = d->now_ns + ns;
	memset(d->had_ns, 0, sizeof d->had_ns);
	while (d->now_ns < until)
		assert_true(turn(d) >= 0);
}

static double part(const struct device *d, int i)
{
	double all = 0;
	for (int k = 0; k < MODELS; k++)
		all += (double)d->had_ns[k];
	return (double)d->had_ns[i] / all;
}

static struct device begin(void)
{
	struct device d = {.step_ns = {2 * MS, 20 * MS, 5 * MS}};
	for (int i = 0; i < MODELS; i++)
		set(&d, i, 0, 0, false);
	return d;
}

static void parts(void **state)
{
	(void)state;
	static const struct {
		int tier[2];
		uint32_t n[2];
		double first; /* its part of the device */
	} cases[] = {
	    {{1, 1}, {4, 4}, 0.5}, /* the same load: the same time, whatever a step costs */
	    {{1, 1}, {12, 4}, 0.75},       {{1, 1}, {4, 12}, 0.25},
	    {{0, 1}, {4, 4}, 2.0 / 3}, /* a better tier weighs twice */
	    {{0, 1}, {1, 2}, 0.5},         {{2, 0}, {4, 4}, 0.2},
	    {{1, 1}, {1, 1000}, 1.0 / 17}, /* and none less than about an eighth of half of it */
	    {{7, 0}, {1, 64}, 1.0 / 17},
	};
	for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
		for (int swap = 0; swap < 2; swap++) {
			struct device d = begin();
			for (int i = 0; i < 2; i++)
				set(&d, i ^ swap, cases[k].tier[i], cases[k].n[i], false);
			turn_for(&d, 60ull * 1000 * MS);
			double got = part(&d, swap), want = cases[k].first;
			if (got < want - 0.01 || got > want + 0.01)
				fail_msg("case %zu: %.3f of the device, not %.3f", k, got, cases[k].first);
		}
	}
}

/* Alone, a model has all of it, and owes nothing for it when another one comes. */
static void idling_saves_nothing_and_owes_nothing(void **state)
{
	(void)state;
	struct device d = begin();
	set(&d, 0, 1, 4, false);
	turn_for(&d, 3600ull * 1000 * MS);
	set(&d, 1, 1, 4, false);
	turn_for(&d, 1000ull * MS);
	assert_true(part(&d, 0) > 0.45 && part(&d, 0) < 0.55);
	/* Nobody, then both at once. */
	set(&d, 0, 1, 0, false);
	turn_for(&d, 60ull * 1000 * MS);
	set(&d, 1, 1, 0, false);
	assert_int_equal(turn(&d), -1);
	set(&d, 0, 1, 4, false);
	set(&d, 1, 1, 4, false);
	set(&d, 2, 1, 4, false);
	turn_for(&d, 3000ull * MS);
	for (int i = 0; i < MODELS; i++)
		assert_true(part(&d, i) > 0.3 && part(&d, i) < 0.37);
}

static void a_better_prompt_goes_first(void **state)
{
	(void)state;
	for (int m = 0; m < 2; m++) {
		struct device d = begin();
		set(&d, 1 - m, 1, 30, true);
		turn_for(&d, 10ull * 1000 * MS);
		set(&d, m, 0, 1, true);
		/* Of a better tier: at once, over and over, but not for ever. */
		uint64_t since = d.now_ns;
		assert_int_equal(turn(&d), m);
		while (turn(&d) == m)
			assert_true(d.now_ns < since + 4ull * MODEL_SCHED_LEAD_MS * MS);
		turn_for(&d, 60ull * 1000 * MS);
		assert_true(part(&d, 1 - m) > 0.5);
		/* Of the same tier: in its turn. */
		set(&d, m, 1, 1, true);
		turn_for(&d, 60ull * 1000 * MS);
		assert_true(part(&d, m) < 0.2);
	}
}

/* Whatever comes and goes: who has something to do waits no longer than the others' parts take. */
static void nobody_starves(void **state)
{
	(void)state;
	const char *text = getenv("TURNS_SEED");
	uint64_t random = text != NULL ? strtoull(text, NULL, 10) : 1;
	struct device d = begin();
	uint64_t since[MODELS] = {0}, longest = 0;
	for (int i = 0; i < 300000; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		uint32_t draw = (uint32_t)(random >> 33);
		if (draw % 16 == 0) {
			int m = (int)(draw >> 4) % MODELS;
			bool idle = d.shares[m].demand.load == 0;
			set(&d, m, (int)(draw >> 8) % SCHED_TIERS, (draw >> 12) % 3 == 0 ? 0 : 1 + (draw >> 14) % 200,
			    (draw >> 24) % 2);
			if (idle)
				since[m] = d.now_ns;
		}
		int m = turn(&d);
		if (m < 0) {
			d.now_ns += MS;
			continue;
		}
		for (int k = 0; k < MODELS; k++) {
			if (d.shares[k].demand.load == 0 || k == m)
				since[k] = d.now_ns;
			longest = d.now_ns - since[k] > longest ? d.now_ns - since[k] : longest;
		}
	}
	/* Its own step at an eighth, the others' at nearly their whole, and what prompts may lead by. */
	uint64_t most = (20ull * MODEL_SCHED_LEAST_SHARE * MODELS + 2ull * MODEL_SCHED_LEAD_MS) * MODELS * MS;
	if (longest > most)
		fail_msg("seed %s: somebody waited for %llu ms", text != NULL ? text : "1",
			 (unsigned long long)(longest / MS));
}

/* The engine itself: forty streams on one model, one on the other. */
static void a_stream_beside_a_crowd(void **state)
{
	(void)state;
	enum { CROWD = 40, LONG = 100 };
	static const struct eng_model_config models[] = {{.name = "a", .path = "a.gguf"},
							 {.name = "b", .path = "b.gguf"}};
	struct eng_config cfg = {.models = models,
				 .n_models = 2,
				 .backend = "cpu-ref",
				 .n_threads = 1,
				 .n_text_workers = 1,
				 .page_tokens = 4,
				 .kv_bytes = 16 << 20,
				 .max_sequences = CROWD,
				 .max_waiting = 64,
				 .step_tokens = 64,
				 .max_prompt_bytes = 1 << 20};
	struct run r;
	atomic_store(&fake.end_never, 1);
	run_start(&r, &cfg);
	struct proto_submit req = run_plain("hello", LONG);
	for (int m = 0; m < 2; m++) {
		for (uint64_t i = 1; i <= CROWD; i++) {
			req.model = (uint16_t)m;
			run_submit(&r, i, &req);
			RUN_UNTIL(&r, r.answers[i].queued);
		}
		req.model = (uint16_t)(1 - m);
		run_submit(&r, CROWD + 1, &req);
		RUN_UNTIL(&r, r.answers[CROWD + 1].queued);
		atomic_store(&fake.step_us, 300);
		pthread_mutex_lock(&fake.gate);
		for (uint64_t i = 1; i <= CROWD + 1; i++)
			run_credit(&r, i, LONG);
		pthread_mutex_unlock(&fake.gate);
		/* When the crowd has ended the one has had its steps, an eighth of an even part at least. */
		for (uint64_t i = 1; i <= CROWD; i++)
			run_until_done(&r, i);
		pthread_mutex_lock(&r.lock);
		uint32_t n = r.answers[CROWD + 1].n_tokens;
		pthread_mutex_unlock(&r.lock);
		assert_true(n >= LONG / MODEL_SCHED_LEAST_SHARE / 4);
		run_until_done(&r, CROWD + 1);
		atomic_store(&fake.step_us, 0);
	}
	run_until_idle(&r);
	run_stop(&r);
	atomic_store(&fake.end_never, 0);
}

int main(void)
{
	log_init("test", LOG_ERROR);
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(parts),
	    cmocka_unit_test(idling_saves_nothing_and_owes_nothing),
	    cmocka_unit_test(a_better_prompt_goes_first),
	    cmocka_unit_test(nobody_starves),
	    cmocka_unit_test(a_stream_beside_a_crowd),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
