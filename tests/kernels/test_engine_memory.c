/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine on the emulated device when memory is what there is little of: pools planned from what a device of a given
 * size has left; too little of it, and an end of it at every allocation, are errors that say what there was no memory
 * for; so is a device that fails in the first steps; pages of pre-empted answers go to the host's memory and back bit
 * for bit, in every type; and after random cancels, pre-emptions and a device that fails no memory, graph or device is
 * left. Run from the repository's root.
 */
#include "tests/unit/engine/core/engine_run.h"

#include "base/fault.h"
#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "kernels/kv_type.h"
#include "tests/kernels/only_cuda.h"
#include "tests/kernels/orders.h"
#include "tests/support/small_engine.h"

static void set_memory(uint64_t bytes)
{
	void (*set)(uint64_t);
	void *symbol = cuda_function("sluice_emulation_memory");
	memcpy(&set, &symbol, sizeof set);
	set(bytes);
}

static void fail_allocation(int nth)
{
	void (*set)(int);
	void *symbol = cuda_function("sluice_emulation_no_memory");
	memcpy(&set, &symbol, sizeof set);
	set(nth);
}

enum { PAGE = 4, MADE = 10 };

static const struct eng_model_config one[] = {{.name = "small", .path = tiny_path}};
static const struct eng_model_config with_bad[] = {{.name = "bad", .path = "etc/models/README.md"},
						   {.name = "small", .path = tiny_path}};

static struct eng_config config(void)
{
	struct eng_config cfg = small_engine("cuda-emulated", one, 1);
	cfg.page_tokens = PAGE;
	cfg.kv_bytes = 8 << 20;
	cfg.step_tokens = 8;
	cfg.device_memory = 0.9;
	return cfg;
}

static uint64_t page_bytes(const char *kv_type)
{
	struct model_info info;
	struct sl_err err;
	assert_int_equal(model_inspect(one[0].path, &info, &err), 0);
	return kv_page_bytes(kn_kv_type_from_name(kv_type), PAGE, info.arch.n_layers, info.arch.n_kv_heads,
			     info.arch.head_dim);
}

/* How much is taken by a model that has next to no pages. */
static uint64_t without_pages(void)
{
	struct run r;
	struct eng_config cfg = config();
	cfg.device_memory = 0;
	cfg.kv_bytes = 2 * page_bytes("f16");
	run_start(&r, &cfg);
	assert_int_equal(r.states[0], PROTO_MODEL_READY);
	uint64_t bytes = orders_alive().bytes;
	run_stop(&r);
	assert_nothing_left();
	return bytes;
}

/* Pools are what is left; with a model that fails, as large as without it. */
static void planned(void **state)
{
	(void)state;
	struct run r;
	struct proto_stats s;
	uint64_t weights = without_pages(), more = 240u << 20;
	uint32_t pages[3];
	for (int how = 0; how < 3; how++) {
		struct eng_config cfg = config();
		cfg.max_sequences = 512; /* so that no pool is as large as can be used */
		cfg.max_waiting = 4;
		set_memory(weights + more + (how == 1 ? 4u << 20 : 0));
		if (how == 2) {
			cfg.models = with_bad;
			cfg.n_models = 2;
		}
		run_start(&r, &cfg);
		assert_int_equal(r.states[cfg.n_models - 1], PROTO_MODEL_READY);
		do /* once the step thread has told */
			engine_stats(r.e, &s);
		while (s.pages_total == 0);
		pages[how] = s.pages_total;
		assert_true(orders_alive().bytes < (weights + more) * 9 / 10 + (4u << 20));
		run_stop(&r);
		assert_nothing_left();
	}
	assert_true(pages[0] > 100);
	/* 0.9 of what it has more. */
	assert_in_range(pages[1] - pages[0], (uint32_t)(28.7 / 8 * 0x1p20 / (double)page_bytes("f16")),
			(uint32_t)(28.9 / 8 * 0x1p20 / (double)page_bytes("f16")));
	assert_int_equal(pages[2], pages[0]);
	set_memory(0);
}

/* Too little for pages, for steps, for weights. */
static void too_little(void **state)
{
	(void)state;
	uint64_t weights = without_pages();
	static const char *const says[] = {"bytes for a matrix of", "memory", "too small"};
	for (int how = 0; how < 3; how++) {
		struct run r;
		struct eng_config cfg = config();
		set_memory(how == 0 ? weights / 20 : how == 1 ? weights * 3 / 4 : weights + (1u << 20));
		run_start(&r, &cfg);
		assert_int_equal(r.states[0], PROTO_MODEL_FAILED);
		if (strstr(r.reasons[0], says[how]) == NULL)
			fail_msg("%s", r.reasons[0]);
		run_stop(&r);
		assert_nothing_left();
	}
	set_memory(0);
}

/* The nth allocation on the device fails, at the start or in a step: an error that names it, or none, and nothing is
 * left. */
static void every_allocation(void **state)
{
	(void)state;
	int n_failed = 0, n_served = 0;
	for (int nth = 1; nth < 400; nth += nth < 4 ? 1 : nth < 40 ? 9 : 37) {
		struct run r;
		struct eng_config cfg = config();
		cfg.step_tokens = 4;
		fail_allocation(nth);
		assert_int_equal(run_start_rc(&r, &cfg), 0);
		RUN_UNTIL(&r, r.states[0] > PROTO_MODEL_LOADING);
		if (r.states[0] == PROTO_MODEL_READY) {
			struct proto_submit req = run_plain("hens and", 3);
			n_served += run_one(&r, 1, &req)->end.finish != PROTO_FINISH_ERROR;
		}
		if (r.states[0] == PROTO_MODEL_FAILED) {
			n_failed++;
			if (strstr(r.reasons[0], "memory") == NULL)
				fail_msg("allocation %d: %s", nth, r.reasons[0]);
		}
		fail_allocation(0);
		run_stop(&r);
		assert_nothing_left();
	}
	assert_true(n_failed > 3 && n_served > 0);
}

/* Launches until the model is READY, or the nth of them fails. */
static long launches(struct run *r, long nth)
{
	struct eng_config cfg = config();
	long before = fault_passes(FAULT_DEVICE);
	cfg.device_memory = 0;
	fault_arm(FAULT_DEVICE, nth, 1);
	assert_int_equal(run_start_rc(r, &cfg), 0);
	RUN_UNTIL(r, r->states[0] > PROTO_MODEL_LOADING);
	fault_disarm_all();
	return fault_passes(FAULT_DEVICE) - before;
}

/* A device that fails while the loader runs the first steps: the model has failed and says when, and nothing is left.
 */
static void fails_in_rehearsal(void **state)
{
	(void)state;
	struct run r;
	long all = launches(&r, 1L << 30);
	assert_int_equal(r.states[0], PROTO_MODEL_READY);
	run_stop(&r);
	int n_there = 0;
	for (long nth = 1; nth <= all; nth += all / 12) {
		/* The last ones measure: how many these are depends on how long they take. */
		bool reached = launches(&r, nth) >= nth;
		assert_int_equal(r.states[0], reached ? PROTO_MODEL_FAILED : PROTO_MODEL_READY);
		n_there += strstr(r.reasons[0], "the first steps failed") != NULL;
		run_stop(&r);
		assert_nothing_left();
	}
	assert_true(n_there > 3);
}

static char texts[6][64];

static struct proto_submit request(int i)
{
	snprintf(texts[i], sizeof texts[i], "%d foxes and %d hens ran over the", i, i * 3);
	struct proto_submit req = run_plain(texts[i], MADE + (uint32_t)i);
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	req.temperature = i % 2 == 0 ? 0 : 0.8f;
	req.frequency_penalty = i % 3 == 0 ? 0.5f : 0;
	req.seed = 90 + (uint64_t)i;
	req.priority = (uint8_t)(5 - i); /* those who come later take from those before */
	return req;
}

/* Keys and values that were on the host say what they said before, in every type. */
static void swapped_bit_for_bit(void **state)
{
	(void)state;
	static const char *const types[] = {"f16", "q8", "fp8"};
	struct answer *expect = calloc(6, sizeof *expect);
	assert_non_null(expect);
	for (int k = 0; k < 3; k++) {
		struct run r;
		struct proto_stats s;
		struct eng_config cfg = config();
		cfg.device_memory = 0;
		cfg.kv_type = types[k];
		cfg.no_prefix_cache = true; /* what comes back comes from the host */
		run_start(&r, &cfg);
		for (int i = 0; i < 6; i++) {
			struct proto_submit req = request(i);
			expect[i] = *run_one(&r, (uint64_t)i + 1, &req);
		}
		run_stop(&r);
		cfg.kv_bytes = 22 * page_bytes(types[k]);
		cfg.swap_bytes = 8 << 20;
		cfg.swap_fixed = true;
		run_start(&r, &cfg);
		for (int i = 0; i < 6; i++) {
			struct proto_submit req = request(i);
			run_submit(&r, (uint64_t)i + 1, &req);
			run_credit(&r, (uint64_t)i + 1, 2); /* who has none left makes room for the others */
			RUN_UNTIL(&r, r.answers[i + 1].n_tokens == 2);
		}
		for (uint64_t i = 1; i <= 6; i++)
			run_credit(&r, i, 1000);
		for (int i = 0; i < 6; i++)
			run_assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[i]);
		run_until_idle(&r);
		engine_stats(r.e, &s);
		print_message("%s: %llu pre-emptions, %llu pages out, %llu in\n", types[k],
			      (unsigned long long)s.preemptions, (unsigned long long)s.swapped_out,
			      (unsigned long long)s.swapped_in);
		assert_true(s.swapped_in > 0 && s.swapped_in == s.swapped_out);
		run_stop(&r);
		assert_nothing_left();
	}
	free(expect);
}

/* Two models on one device at once, each with its streams, answer as one after the other. */
static void two_models(void **state)
{
	(void)state;
	static const struct eng_model_config two[] = {{.name = "one", .path = tiny_path},
						      {.name = "two", .path = tiny_path}};
	struct answer *expect = calloc(6, sizeof *expect);
	struct run r;
	struct eng_config cfg = config();
	assert_non_null(expect);
	cfg.models = two;
	cfg.n_models = 2;
	cfg.device_memory = 0;
	run_start(&r, &cfg);
	for (int together = 0; together < 2; together++) {
		for (int i = 0; i < 6; i++) {
			struct proto_submit req = request(i);
			req.model = (uint16_t)(i % 2);
			run_submit_again(&r, (uint64_t)i + 1, &req);
			run_credit(&r, (uint64_t)i + 1, 1000);
			if (!together)
				expect[i] = *run_until_done(&r, (uint64_t)i + 1);
		}
		for (int i = 0; i < 6 && together; i++)
			run_assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[i]);
	}
	run_until_idle(&r);
	run_stop(&r);
	assert_nothing_left();
	free(expect);
}

static uint64_t random_state = 5;

static uint32_t at_random(uint32_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % below;
}

/* Random cancels and credit over too few pages, with steps on their way; then the device fails in the midst of it. */
static void nothing_is_left(void **state)
{
	(void)state;
	for (int round = 0; round < 2; round++) {
		struct run r;
		struct proto_stats s;
		struct eng_config cfg = config();
		bool open[7] = {0};
		cfg.device_memory = 0;
		cfg.kv_bytes = 22 * page_bytes("f16");
		cfg.swap_bytes = 4 << 20;
		cfg.swap_fixed = true;
		run_start(&r, &cfg);
		for (int k = 0; k < 60; k++) {
			uint64_t id = 1 + at_random(6);
			if (open[id] && at_random(2) == 0) {
				engine_cancel(r.e, id);
				run_until_done(&r, id);
				open[id] = false;
			} else if (!open[id]) {
				struct proto_submit req = request((int)id - 1);
				req.max_tokens = 30;
				run_submit_again(&r, id, &req);
				run_credit(&r, id, 30);
				open[id] = true;
			}
			for (uint32_t i = at_random(8); i > 0; i--) {
				struct timespec ts = {.tv_nsec = 2000000};
				nanosleep(&ts, NULL);
			}
		}
		engine_stats(r.e, &s);
		assert_true(orders_alive().devices > 0 &&
			    orders_alive().bytes > 0); /* graphs: as far as answers got in that time */
		if (round == 1)
			fault_arm(FAULT_DEVICE, 40, 1);
		for (uint64_t id = 1; id <= 6; id++)
			if (open[id])
				run_until_done(&r, id);
		fault_disarm_all();
		run_until_idle(&r);
		engine_stats(r.e, &s);
		assert_int_equal(s.swap_used, 0);
		run_stop(&r);
		assert_nothing_left();
	}
}

/* ---- in one order of calls (orders.h) ---- */

enum { N_KINDS = 3, N_BOTH = 6 };

/* Two models that share too few pages: the pages of those that wait for credit go to the host and back. */
static void both_in_order(int kind, const char *kv_type)
{
	static const struct eng_model_config two[] = {{.name = "one", .path = tiny_path},
						      {.name = "two", .path = tiny_path}};
	static const char *const prompts[] = {"six foxes", "and a hen",    "seven hens,",
					      "foxes",     "hens hens he", "a fox"};
	struct orders o;
	struct proto_stats s;
	struct proto_submit reqs[N_BOTH];
	struct eng_config cfg = config();
	cfg.models = two;
	cfg.n_models = 2;
	cfg.device_memory = 0;
	cfg.kv_type = kv_type;
	cfg.no_prefix_cache = true;
	cfg.kv_bytes = 20 * page_bytes(kv_type);
	cfg.swap_bytes = 8 << 20;
	cfg.swap_fixed = true;
	orders_start(&o, &cfg);
	for (int i = 0; i < N_BOTH; i++) {
		reqs[i] = request(i);
		reqs[i].prompt = (struct proto_str){.at = prompts[i], .n = strlen(prompts[i])};
		reqs[i].model = (uint16_t)(i % 2);
		reqs[i].max_tokens = MADE;
	}
	orders_serve(&o, 1, reqs, N_BOTH, 2);
	engine_stats(o.r.e, &s);
	for (int i = 0; i < N_BOTH; i++)
		assert_int_equal(o.r.answers[1 + i].n_tokens, MADE);
	assert_true(s.preemptions > 0 && s.swapped_in > 0 && s.swapped_in == s.swapped_out && o.n_beside > 0);
	printf("reached tokens_ahead=%llu tokens_beside=%llu preemptions=%llu pages_out=%llu pages_in=%llu\n",
	       (unsigned long long)o.n_ahead, (unsigned long long)o.n_beside, (unsigned long long)s.preemptions,
	       (unsigned long long)s.swapped_out, (unsigned long long)s.swapped_in);
	uint64_t digest = orders_digest(&o.r.answers[1], N_BOTH);
	run_stop(&o.r);
	assert_nothing_left();
	orders_judge(kind, digest);
}

static void in_one_order(void **state)
{
	static const char *const types[N_KINDS] = {"f16", "q8", "fp8"};
	(void)state;
	for (int kind = 0; kind < N_KINDS; kind++)
		if (in_share(kind, N_KINDS))
			both_in_order(kind, types[kind]);
}

int main(void)
{
	const struct CMUnitTest orders[] = {cmocka_unit_test(in_one_order)};
	if (orders_only())
		return cmocka_run_group_tests(orders, make_tiny_model, drop_tiny_model);
	const struct CMUnitTest tests[] = {cmocka_unit_test(planned),
					   cmocka_unit_test(too_little),
					   cmocka_unit_test(every_allocation),
					   cmocka_unit_test(fails_in_rehearsal),
					   cmocka_unit_test(swapped_bit_for_bit),
					   cmocka_unit_test(two_models),
					   cmocka_unit_test(nothing_is_left)};
	return cmocka_run_group_tests(tests, make_tiny_model, drop_tiny_model);
}
