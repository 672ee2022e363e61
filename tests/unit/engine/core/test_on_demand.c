/* SPDX-License-Identifier: Apache-2.0
 *
 * Models on demand through the engine's own door: five models with room for two answer as if all were in memory,
 * tenants at random; unused ones go, sooner or later as tenants ask; weights that can't be read, and a wait that is too
 * long, end requests with their cause; a pair of small and large drafts and fits together, or is refused.
 */
#include "tests/unit/engine/core/engine_run.h"

#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "engine/step/internal.h"
#include "tests/support/tiny_gguf.h"

enum { N = 5, ROUNDS = 60, ALIVE = 12, MADE = 6 };

static char paths[N][64];
static struct eng_model_config models[N];

static struct eng_config config(bool on_demand, uint64_t weights_bytes)
{
	static char names[N][8];
	for (int i = 0; i < N; i++) {
		snprintf(names[i], sizeof names[i], "m%d", i);
		models[i] = (struct eng_model_config){.name = names[i], .path = paths[i], .on_demand = on_demand};
	}
	return (struct eng_config){.models = models,
				   .n_models = N,
				   .backend = "cpu-ref",
				   .n_threads = 1,
				   .n_text_workers = 1,
				   .page_tokens = 16,
				   .kv_bytes = 8 << 20,
				   .weights_bytes = weights_bytes,
				   .turn_ms = 5,
				   .max_sequences = 8,
				   .max_waiting = 64,
				   .step_tokens = 32,
				   .max_prompt_bytes = 1 << 20};
}

static struct proto_submit request(int model, unsigned prompt)
{
	static const char *const texts[] = {"hens and eggs", "a pair of wings", "the farmer's dog barks at"};
	struct proto_submit req = run_plain(texts[prompt % 3], MADE);
	req.model = (uint16_t)model;
	req.tenant = prompt % 4;
	return req;
}

/* The weights of one model, as they lie in its file. */
static uint64_t bytes_of_one(struct answer expected[N][3])
{
	static struct run r;
	struct eng_config cfg = config(true, 1ull << 40);
	run_start(&r, &cfg);
	uint64_t bytes = r.e->models[0].weights_bytes;
	for (int i = 0; i < N; i++) {
		assert_int_equal(r.states[i], PROTO_MODEL_READY);
		assert_true(r.e->models[i].on_demand);
		for (unsigned k = 0; k < 3; k++) {
			struct proto_submit req = request(i, k);
			expected[i][k] = *run_one(&r, 1, &req);
			assert_int_not_equal(expected[i][k].end.finish, PROTO_FINISH_ERROR);
		}
	}
	run_stop(&r);
	assert_true(bytes > 0);
	return bytes;
}

static uint64_t one;
static struct answer expected[N][3];

static void room_for_two(void **state)
{
	(void)state;
	static struct run r;
	struct eng_config cfg = config(true, 2 * one + one / 2);
	struct {
		int model;
		unsigned prompt;
	} alive[ALIVE + 1];
	struct proto_stats s;
	unsigned seed = 7;
	int n = 0;
	run_start(&r, &cfg);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t id = 1 + (uint64_t)(round % ALIVE);
		if (n == ALIVE) {
			const struct answer *a = run_until_done(&r, id);
			run_assert_same(a, &expected[alive[id].model][alive[id].prompt]);
		} else {
			n++;
		}
		alive[id].model = (int)((unsigned)rand_r(&seed) % N);
		alive[id].prompt = (unsigned)rand_r(&seed) % 3;
		struct proto_submit req = request(alive[id].model, alive[id].prompt);
		run_submit_again(&r, id, &req);
		run_credit(&r, id, MADE);
		engine_stats(r.e, &s);
		assert_true(s.models_here <= 2);
	}
	for (uint64_t id = 1; id <= ALIVE; id++)
		run_assert_same(run_until_done(&r, id), &expected[alive[id].model][alive[id].prompt]);
	engine_stats(r.e, &s);
	assert_true(s.model_loads > N && s.model_drops >= s.model_loads - 2);
	assert_true(s.model_loads < 2 * ROUNDS);
	run_until_idle(&r);
	run_stop(&r);
}

static void until(struct run *r, bool (*met)(const struct proto_stats *s))
{
	uint64_t end = clock_now_ns() + RUN_WAIT_S * NS_PER_S;
	struct proto_stats s;
	do {
		engine_stats(r->e, &s);
		if (met(&s))
			return;
		struct timespec ts = {.tv_nsec = 1000000};
		nanosleep(&ts, NULL);
	} while (clock_now_ns() < end);
	fail_msg("%u models are in memory, %u requests wait", s.models_here, s.load_waiting);
}

static bool none_here(const struct proto_stats *s) { return s->models_here == 0 && s->model_drops > 0; }

static void unused_ones_go(void **state)
{
	(void)state;
	static struct run r;
	struct eng_config cfg = config(true, 1ull << 40);
	for (int i = 0; i < N; i++)
		models[i].keep_alive_ms = 20;
	run_start(&r, &cfg);
	for (int i = 0; i < 3; i++) {
		struct proto_submit req = request(i, 0);
		run_assert_same(run_one(&r, 1, &req), &expected[i][0]);
	}
	until(&r, none_here);
	struct proto_submit req = request(1, 1);
	run_assert_same(run_one(&r, 2, &req), &expected[1][1]);
	run_stop(&r);
}

static void weights_that_cannot_be_read(void **state)
{
	(void)state;
	static struct run r;
	struct eng_config cfg = config(true, 1ull << 40);
	run_start(&r, &cfg);
	fault_arm(FAULT_READ, 1, 1);
	struct proto_submit req = request(0, 0);
	const struct answer *a = run_one(&r, 1, &req);
	fault_disarm_all();
	assert_int_equal(a->end.finish, PROTO_FINISH_ERROR);
	assert_int_equal(a->end.error, PROTO_ERR_NOT_READY);
	assert_non_null(strstr(a->message, "can't be read"));
	/* Refused at once until the next attempt; others are not concerned. */
	a = run_one(&r, 2, &req);
	assert_int_equal(a->end.error, PROTO_ERR_NOT_READY);
	struct proto_submit other = request(1, 0);
	run_assert_same(run_one(&r, 3, &other), &expected[1][0]);
	uint64_t end = clock_now_ns() + RUN_WAIT_S * NS_PER_S;
	while ((a = run_one(&r, 4, &req))->end.finish == PROTO_FINISH_ERROR && clock_now_ns() < end) {
		struct timespec ts = {.tv_nsec = 20000000};
		nanosleep(&ts, NULL);
	}
	run_assert_same(a, &expected[0][0]);
	run_stop(&r);
}

/* Room for one, which keeps it for its turn: a request for another ends with the cause. */
static void a_wait_that_is_too_long(void **state)
{
	(void)state;
	static struct run r;
	struct eng_config cfg = config(true, one + one / 2);
	cfg.turn_ms = 3600 * 1000;
	cfg.load_wait_ms = 30;
	run_start(&r, &cfg);
	struct proto_submit req = request(0, 0), other = request(1, 0);
	const struct answer *a;
	do /* on a machine that is busy its own weights may be late, too */
		a = run_one(&r, 1, &req);
	while (a->end.finish == PROTO_FINISH_ERROR);
	run_assert_same(a, &expected[0][0]);
	a = run_one(&r, 2, &other);
	assert_int_equal(a->end.error, PROTO_ERR_OVERLOADED);
	assert_non_null(strstr(a->message, "not in memory"));
	/* Cancelled ones and ones that wait when the engine stops are no trouble. */
	run_submit(&r, 3, &other);
	run_credit(&r, 3, MADE);
	engine_cancel(r.e, 3);
	assert_int_equal(run_until_done(&r, 3)->end.finish, PROTO_FINISH_CANCELLED);
	run_submit(&r, 4, &other);
	run_credit(&r, 4, MADE);
	run_stop(&r);
}

/* Polls by real time, whatever the engine's clock says. */
static void until_waiting(struct run *r, unsigned n)
{
	struct proto_stats s;
	for (int i = 0; i < RUN_WAIT_S * 1000; i++) {
		engine_stats(r->e, &s);
		if (s.load_waiting == n)
			return;
		struct timespec ts = {.tv_nsec = 1000000};
		nanosleep(&ts, NULL);
	}
	fail_msg("%u requests wait, not %u", s.load_waiting, n);
}

/* Each request waits for as long as it may, and no longer: on a clock that the test moves. */
static void the_wait_is_bounded(void **state)
{
	(void)state;
	static struct run r;
	struct eng_config cfg = config(true, one + one / 2);
	cfg.turn_ms = 24 * 3600 * 1000;
	cfg.load_wait_ms = 45000;
	run_start(&r, &cfg);
	struct proto_submit req = request(0, 0), other = request(1, 0);
	run_assert_same(run_one(&r, 1, &req), &expected[0][0]);
	run_clock_hold();
	run_submit(&r, 2, &other);
	run_credit(&r, 2, MADE);
	RUN_UNTIL(&r, r.answers[2].queued);
	run_clock_move(&r, 2, 20);
	until_waiting(&r, 1);
	assert_true(r.answers[2].queued_as.guess); /* nothing may be refused by its prediction */
	run_clock_move(&r, 2, 44900);
	run_submit(&r, 3, &other);
	run_credit(&r, 3, MADE);
	RUN_UNTIL(&r, r.answers[3].queued);
	run_clock_move(&r, 2, 20);
	until_waiting(&r, 2); /* counted at a moment when the first one would have ended, if early */
	assert_false(r.answers[2].done);
	run_clock_move(&r, 2, 100);
	const struct answer *a = run_until_done(&r, 2);
	assert_int_equal(a->end.error, PROTO_ERR_OVERLOADED);
	assert_non_null(strstr(a->message, "did not come in time"));
	run_clock_move(&r, 3, 20);
	until_waiting(&r, 1);
	assert_false(r.answers[3].done);
	run_clock_move(&r, 3, 45000);
	assert_int_equal(run_until_done(&r, 3)->end.error, PROTO_ERR_OVERLOADED);
	run_stop(&r);
}

static void keep(struct run *r, int model, uint64_t tenant, uint32_t ms)
{
	engine_keep(r->e, &(struct proto_keep){.model = (uint16_t)model, .tenant = tenant, .keep_ms = ms});
}

static bool one_gone(const struct proto_stats *s) { return s->models_here == 1 && s->model_drops == 1; }
static bool two_gone(const struct proto_stats *s) { return s->models_here == 1 && s->model_drops == 2; }

/* Tenants that ask for a time: their own uses count by it, those of others by the configuration. */
static void tenants_ask_for_a_time(void **state)
{
	(void)state;
	static struct run r;
	struct eng_config cfg = config(true, 1ull << 40);
	struct proto_stats s;
	for (int i = 0; i < N; i++)
		models[i].keep_alive_ms = 0; /* for ever */
	run_start(&r, &cfg);
	struct proto_submit mine = request(0, 0), theirs = request(1, 0);
	mine.tenant = 1;
	theirs.tenant = 2;
	run_assert_same(run_one(&r, 1, &mine), &expected[0][0]);
	run_assert_same(run_one(&r, 2, &theirs), &expected[1][0]);
	keep(&r, 1, 1, 0);                    /* another tenant uses that */
	keep(&r, 0, 1, 0);                    /* none but this one does */
	keep(&r, PROTO_MAX_MODELS - 1, 1, 0); /* there is no such model */
	until(&r, one_gone);
	/* What was asked for is over: it comes again and stays. */
	run_assert_same(run_one(&r, 3, &mine), &expected[0][0]);
	keep(&r, 1, 2, 0);
	until(&r, two_gone);
	run_assert_same(run_one(&r, 4, &mine), &expected[0][0]);
	engine_stats(r.e, &s);
	assert_int_equal(s.model_loads, 3); /* the last one found it there */
	run_stop(&r);
}

/* Advances the held clock, woken by sequence id, until so many models have left. */
static void move_until_gone(struct run *r, uint64_t id, uint64_t n)
{
	struct proto_stats s = {0};
	for (int i = 0; i < RUN_WAIT_S * 1000 && s.model_drops < n; i++) {
		run_clock_move(r, id, 20);
		struct timespec ts = {.tv_nsec = 1000000};
		nanosleep(&ts, NULL);
		engine_stats(r->e, &s);
	}
	assert_int_equal(s.model_drops, n);
}

/* A use that is too short for any look at what runs counts, too: the clock, and with it the looks, stand still. */
static void a_short_use_counts(void **state)
{
	(void)state;
	static struct run r;
	struct eng_config cfg = config(true, 1ull << 40);
	struct proto_model m;
	for (int i = 0; i < N; i++)
		models[i].keep_alive_ms = 0;
	run_start(&r, &cfg);
	struct proto_submit mine[2] = {request(0, 0), request(1, 0)}, theirs = request(0, 0), third = request(2, 0);
	mine[0].tenant = mine[1].tenant = 1;
	theirs.tenant = 2;
	run_assert_same(run_one(&r, 1, &mine[0]), &expected[0][0]);
	run_assert_same(run_one(&r, 2, &mine[1]), &expected[1][0]);
	run_submit(&r, 5, &third); /* wakes the engine whenever the clock is moved */
	run_credit(&r, 5, 1);
	RUN_UNTIL(&r, r.answers[5].n_tokens == 1);
	run_clock_hold();
	run_clock_move(&r, 5, 20);
	run_assert_same(run_one(&r, 3, &theirs), &expected[0][0]);
	keep(&r, 0, 1, 0); /* it would go first */
	keep(&r, 1, 1, 0);
	move_until_gone(&r, 5, 1);
	engine_model_info(r.e, 0, &m);
	assert_int_equal(m.residence, PROTO_RESIDENCE_HERE);
	engine_model_info(r.e, 1, &m);
	assert_int_not_equal(m.residence, PROTO_RESIDENCE_HERE);
	run_stop(&r);
}

static void give_roles(void)
{
	models[0].role = PROTO_ROLE_SMALL;
	models[1].role = PROTO_ROLE_LARGE;
}

/* Drafts come from the small model while it is in memory, and the answer is the same with and without. */
static void a_pair_drafts(void **state)
{
	(void)state;
	static struct run r;
	struct eng_config cfg = config(true, 1ull << 40);
	struct proto_stats s;
	give_roles();
	for (int i = 0; i < N; i++)
		models[i].keep_alive_ms = 0;
	cfg.spec_mode = ENG_SPEC_DRAFT;
	cfg.spec_max_draft = 3;
	cfg.spec_fixed = true;
	run_start(&r, &cfg);
	struct proto_submit small = request(0, 0), large = request(1, 0);
	large.tenant = small.tenant = 1;
	run_assert_same(run_one(&r, 1, &large), &expected[1][0]);
	engine_stats(r.e, &s);
	assert_int_equal(s.spec_drafts, 0);
	assert_int_equal(s.model_loads, 1); /* a draft brings nothing in */
	run_assert_same(run_one(&r, 2, &small), &expected[0][0]);
	run_assert_same(run_one(&r, 3, &large), &expected[1][0]);
	engine_stats(r.e, &s);
	assert_true(s.spec_drafts > 0);
	uint64_t drafts = s.spec_drafts;
	keep(&r, 0, 1, 0);
	until(&r, one_gone);
	run_assert_same(run_one(&r, 4, &large), &expected[1][0]);
	engine_stats(r.e, &s);
	assert_int_equal(s.spec_drafts, drafts);
	run_stop(&r);
}

/* Room for one of two that a cascade needs both of: the one that loads second is refused, with the numbers. */
static void a_pair_fits_together_or_not(void **state)
{
	(void)state;
	static struct run r;
	struct eng_config cfg = config(true, one + one / 2);
	give_roles();
	run_start(&r, &cfg);
	int refused = r.states[0] == PROTO_MODEL_FAILED ? 0 : 1;
	assert_int_equal(r.states[refused], PROTO_MODEL_FAILED);
	assert_int_equal(r.states[1 - refused], PROTO_MODEL_READY);
	assert_non_null(strstr(r.reasons[refused], "do not fit together"));
	assert_non_null(strstr(r.reasons[refused], "engine.on_demand.memory"));
	for (int i = 2; i < N; i++)
		assert_int_equal(r.states[i], PROTO_MODEL_READY);
	run_stop(&r);
	cfg = config(true, 2 * one);
	give_roles();
	run_start(&r, &cfg);
	for (int i = 0; i < N; i++)
		assert_int_equal(r.states[i], PROTO_MODEL_READY);
	run_stop(&r);
}

/* One that is larger than the bound fails at the start, with both numbers. */
static void larger_than_the_bound(void **state)
{
	(void)state;
	static struct run r;
	struct eng_config cfg = config(true, one / 2);
	run_start(&r, &cfg);
	assert_int_equal(r.states[0], PROTO_MODEL_FAILED);
	assert_non_null(strstr(r.reasons[0], "for models on demand"));
	run_stop(&r);
}

int main(void)
{
	log_init("test", LOG_ERROR);
	for (int i = 0; i < N; i++) {
		snprintf(paths[i], sizeof paths[i], "/tmp/sluice-demand-%d-%d.gguf", i, (int)getpid());
		if (!tiny_gguf_write(paths[i], (unsigned)i + 1))
			return 1;
	}
	one = bytes_of_one(expected);
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(room_for_two),
	    cmocka_unit_test(unused_ones_go),
	    cmocka_unit_test(weights_that_cannot_be_read),
	    cmocka_unit_test(a_wait_that_is_too_long),
	    cmocka_unit_test(the_wait_is_bounded),
	    cmocka_unit_test(tenants_ask_for_a_time),
	    cmocka_unit_test(a_short_use_counts),
	    cmocka_unit_test(a_pair_drafts),
	    cmocka_unit_test(a_pair_fits_together_or_not),
	    cmocka_unit_test(larger_than_the_bound),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	for (int i = 0; i < N; i++)
		unlink(paths[i]);
	return rc;
}
