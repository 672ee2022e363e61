/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine on the emulated device, with a small model: what requests say, log probabilities bit for
 * bit, is the same alone and together, and whether the next step is launched while one runs or not. The emulated device
 * does nothing before somebody waits for it (tests/emulation/emu_queue.h), so whatever is changed or read too early
 * shows. Run from the repository's root.
 */
#include "tests/unit/engine/core/engine_run.h"

#include <math.h>

#include "base/fault.h"
#include "tests/kernels/only_cuda.h"
#include "tests/kernels/orders.h"
#include "tests/kernels/shallow_model.h"
#include "tests/support/small_engine.h"

enum { N_REQUESTS = 5, MADE = 6 };

static const struct eng_model_config models[] = {{.name = "small", .path = shallow_path}};
static const char *const said[N_REQUESTS] = {"The capital of France is", "One two three four five six",
					     "The capital of France is not", "A fox",
					     "Tell me of hens and of foxes, and"};

static struct eng_config config(bool ahead)
{
	struct eng_config cfg = small_engine("cuda-emulated", models, 1);
	cfg.page_tokens = 4;
	cfg.kv_bytes = 8 << 20;
	cfg.step_tokens = 8;
	cfg.no_launch_ahead = !ahead;
	return cfg;
}

static struct proto_submit request(int i)
{
	struct proto_submit req = run_plain(said[i], MADE);
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	req.temperature = i % 2 == 0 ? 0 : 0.8f;
	req.top_p = i == 3 ? 0.9f : 1;
	req.presence_penalty = i == 4 ? 0.4f : 0; /* depend on what was said, which the device counts itself */
	req.frequency_penalty = i >= 3 ? 0.7f : 0;
	req.repetition_penalty = i == 2 ? 1.2f : 1;
	req.seed = 50 + (uint64_t)i;
	return req;
}

static void together(bool ahead, struct answer *expect, bool first)
{
	struct run r;
	struct eng_config cfg = config(ahead);
	run_start(&r, &cfg);
	for (int i = 0; i < N_REQUESTS; i++) {
		struct proto_submit req = request(i);
		run_submit(&r, (uint64_t)i + 1, &req);
		run_credit(&r, (uint64_t)i + 1, i == 0 ? 3 : MADE);
		if (first) {
			run_credit(&r, (uint64_t)i + 1, MADE);
			expect[i] = *run_until_done(&r, (uint64_t)i + 1);
			assert_int_equal(expect[i].n_tokens, MADE);
		}
	}
	run_credit(&r, 1, MADE);
	for (int i = 0; i < N_REQUESTS && !first; i++)
		run_assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[i]);
	/* Stop strings that end an answer whose next row is on its way; a cancelled one beside it. */
	struct proto_submit stops = request(3), cut = request(1);
	cut.max_tokens = 40;
	stops.n_stops = 1;
	stops.stops[0] = (struct proto_str){.at = expect[3].text + expect[3].text_end[3],
					    .n = expect[3].text_end[4] - expect[3].text_end[3]};
	run_submit(&r, 20, &cut);
	run_credit(&r, 20, 40);
	if (stops.stops[0].n > 0) {
		const struct answer *a = run_one(&r, 21, &stops);
		assert_int_equal(a->end.finish, PROTO_FINISH_STOP);
		assert_in_range(a->end.n_completion, 1, 5);
		assert_memory_equal(a->text, expect[3].text, a->n_text);
	}
	engine_cancel(r.e, 20);
	run_until_done(&r, 20);
	run_until_idle(&r);
	run_stop(&r);
}

/* What each request alone gets where nothing is launched ahead: the tests below expect it. */
static struct answer *plain;

static void same_ahead(void **state)
{
	(void)state;
	plain = calloc(N_REQUESTS, sizeof *plain);
	assert_non_null(plain);
	together(false, plain, true);
	together(true, plain, false);
}

/* In other chunks and pages, all at once with places for all, and again, when the prompts are in the prefix tree: the
 * switch for batch-invariant products is on. */
static void same_in_other_chunks(void **state)
{
	(void)state;
	assert_non_null(plain);
	static const int rows[] = {5, 64}, page[] = {2, 16};
	for (int k = 0; k < 2; k++) {
		struct run r;
		struct eng_config cfg = config(true);
		cfg.step_tokens = rows[k];
		cfg.page_tokens = page[k];
		cfg.max_sequences = N_REQUESTS;
		assert_false(cfg.loose_products);
		run_start(&r, &cfg);
		uint32_t cached = 0;
		for (int again = 0; again < (page[k] > 2 ? 1 : 2); again++) {
			for (int i = 0; i < N_REQUESTS; i++) {
				struct proto_submit req = request(i);
				run_submit_again(&r, (uint64_t)i + 1, &req);
				run_credit(&r, (uint64_t)i + 1, MADE);
			}
			for (int i = 0; i < N_REQUESTS; i++) {
				const struct answer *a = run_until_done(&r, (uint64_t)i + 1);
				run_assert_same(a, &plain[i]);
				cached += again > 0 ? a->end.n_cached : 0;
			}
		}
		assert_true(page[k] > 2 || cached > 0);
		run_stop(&r);
	}
	free(plain);
	plain = NULL;
}

static void assert_same_tokens(const struct answer *a, const struct answer *b)
{
	assert_int_equal(a->n_tokens, b->n_tokens);
	assert_memory_equal(a->ids, b->ids, a->n_tokens * sizeof *a->ids);
	assert_int_equal(a->n_text, b->n_text);
	assert_memory_equal(a->text, b->text, a->n_text);
	for (uint32_t i = 0; i < a->n_tokens; i++)
		assert_true(fabsf(a->logprobs[i] - b->logprobs[i]) <= 1e-4f * (1 + fabsf(b->logprobs[i])));
}

/* With drafts from the text, that pay or not, or by the layer that drafts: tokens are those of plain steps, whether
 * steps without a draft are launched ahead or none is. The rows of a draft are drawn from on the host
 * (sampler_device.h), whose sums of a row for log probabilities are in another order than the device's: gamma of the
 * vocabulary's length in the logarithm, and an ulp or two. */
static void same_with_drafts(void **state)
{
	(void)state;
	enum { N_DRAFTED = 2 };
	static const struct proto_id_f32 likely[2] = {{.id = 300, .v = 60},
						      {.id = 301, .v = 60}}; /* so that they come again and again */
	struct answer *expect = calloc(N_DRAFTED, sizeof *expect);
	assert_non_null(expect);
	static const struct {
		bool ahead, always;
		int mode;
	} ways[] = {{.mode = ENG_SPEC_OFF},        {true, false, ENG_SPEC_NGRAM}, {true, true, ENG_SPEC_NGRAM},
		    {false, true, ENG_SPEC_NGRAM}, {true, true, ENG_SPEC_HEAD},   {false, true, ENG_SPEC_HEAD},
		    {true, false, ENG_SPEC_AUTO}};
	for (size_t how = 0; how < sizeof ways / sizeof *ways; how++) {
		struct run r;
		struct proto_stats s;
		struct eng_config cfg = config(ways[how].ahead);
		cfg.step_tokens = 12; /* both sequences and their drafts; a step of so many runs before READY */
		cfg.page_tokens = 16;
		cfg.spec_mode = ways[how].mode;
		cfg.spec_max_draft = 4;
		cfg.spec_fixed = ways[how].always;
		run_start(&r, &cfg);
		for (int i = 0; i < N_DRAFTED; i++) {
			struct proto_submit req = run_plain(said[i], MADE);
			req.n_logit_bias = 2;
			req.logit_bias = likely;
			req.flags |= PROTO_SUBMIT_IGNORE_EOS;
			req.temperature = i == 0 ? 0 : 0.7f;
			req.seed = 7;
			run_submit(&r, (uint64_t)i + 1, &req);
			run_credit(&r, (uint64_t)i + 1, MADE);
		}
		for (int i = 0; i < N_DRAFTED; i++) {
			const struct answer *a = run_until_done(&r, (uint64_t)i + 1);
			if (how == 0)
				expect[i] = *a;
			else
				assert_same_tokens(a, &expect[i]);
		}
		run_until_idle(&r);
		engine_stats(r.e, &s);
		assert_true(!ways[how].always || s.spec_drafts > 0);
		run_stop(&r);
	}
	free(expect);
}

static void count_fault(void *ctx) { atomic_fetch_add((atomic_int *)ctx, 1); }

/* A launch fails: in the second of two steps on their way, or where the layer that drafts may run. */
static void fails_with(int mode)
{
	struct run r;
	struct eng_config cfg = config(true);
	atomic_int faults = 0;
	cfg.on_fault = count_fault;
	cfg.on_fault_ctx = &faults;
	cfg.spec_mode = mode;
	cfg.spec_max_draft = 4;
	cfg.spec_fixed = true;
	run_start(&r, &cfg);
	for (uint64_t i = 1; i <= 3; i++) {
		struct proto_submit req = request((int)i - 1);
		req.max_tokens = 60;
		run_submit(&r, i, &req);
		run_credit(&r, i, 60);
	}
	RUN_UNTIL(&r, r.answers[2].n_tokens >= 4);
	fault_arm(FAULT_DEVICE, 30, 1);
	for (uint64_t i = 1; i <= 3; i++)
		assert_int_equal(run_until_done(&r, i)->end.finish, PROTO_FINISH_ERROR);
	fault_disarm_all();
	run_until_idle(&r);
	run_stop(&r);
	assert_int_equal(atomic_load(&faults), 1);
}

static void fails_ahead(void **state)
{
	(void)state;
	fails_with(ENG_SPEC_OFF);
	fails_with(ENG_SPEC_HEAD);
}

/* ---- in one order of calls (orders.h) ---- */

enum { N_KINDS = 2, N_TOGETHER = 5, N_FAULTY = 3 };

static struct eng_config tiny_config(int kind)
{
	static const struct eng_model_config tiny[] = {{.name = "tiny", .path = tiny_path}};
	struct eng_config cfg = config(true);
	cfg.models = tiny;
	cfg.max_sequences = N_TOGETHER;
	cfg.step_tokens = kind == 0 ? 8 : 24;
	cfg.page_tokens = kind == 0 ? 4 : 16;
	cfg.spec_mode = kind == 0 ? ENG_SPEC_OFF : ENG_SPEC_NGRAM;
	cfg.spec_max_draft = 4;
	cfg.spec_fixed = true;
	return cfg;
}

/* Prompts of a few bytes; with drafts, answers that repeat themselves. */
static struct proto_submit tiny_request(int i, int kind)
{
	static const char *const prompts[] = {"A fox", "and six hens", "ran", "over the hill.", "hens hens"};
	static const struct proto_id_f32 likely[] = {{.id = 'a', .v = 60}, {.id = 'b', .v = 60}};
	struct proto_submit req = request(i % N_REQUESTS);
	req.prompt = (struct proto_str){.at = prompts[i], .n = strlen(prompts[i])};
	if (kind == 1) {
		req.logit_bias = likely;
		req.n_logit_bias = 2;
	}
	return req;
}

/* Alone, so that it is known what stops it; then beside others, one of which is cancelled; then a device that fails.
 * None of it depends on the order in which the device does its work. */
static void ahead_in_order(int kind)
{
	struct orders o;
	struct proto_stats s;
	struct proto_submit reqs[N_TOGETHER];
	atomic_int faults = 0;
	struct eng_config cfg = tiny_config(kind);
	cfg.on_fault = count_fault;
	cfg.on_fault_ctx = &faults;
	orders_start(&o, &cfg);
	reqs[0] = tiny_request(0, kind);
	orders_serve(&o, 1, reqs, 1, 2);
	const struct answer *alone = &o.r.answers[1];
	assert_int_equal(alone->n_tokens, MADE);
	for (int i = 0; i < N_TOGETHER; i++)
		reqs[i] = tiny_request(i, kind);
	reqs[3].max_tokens = 40;
	o.cancel = 13;
	o.cancel_at = 3;
	reqs[4] = reqs[0];
	reqs[4].n_stops = alone->text_end[2] > 0;
	reqs[4].stops[0] = (struct proto_str){.at = alone->text, .n = alone->text_end[2]};
	orders_serve(&o, 10, reqs, N_TOGETHER, 2);
	run_assert_same(&o.r.answers[10], alone);
	assert_int_equal(o.r.answers[13].end.finish, PROTO_FINISH_CANCELLED);
	uint64_t digest = orders_digest(&o.r.answers[10], N_TOGETHER);
	engine_stats(o.r.e, &s);
	for (int i = 0; i < N_FAULTY; i++) {
		reqs[i] = tiny_request(i, kind);
		reqs[i].max_tokens = 60;
	}
	o.fault = 1 + (uint64_t)(orders_seed() > 0 ? orders_seed() * 7 % 60 : 30);
	orders_serve(&o, 20, reqs, N_FAULTY, 2);
	for (int i = 0; i < N_FAULTY; i++)
		assert_int_equal(o.r.answers[20 + i].end.finish, PROTO_FINISH_ERROR);
	assert_int_equal(atomic_load(&faults), 1);
	bool stopped = o.r.answers[14].end.finish == PROTO_FINISH_STOP;
	assert_true(o.n_ahead > 0 && (kind == 0 || (s.spec_drafts > 0 && stopped)));
	printf("reached tokens_ahead=%llu drafts=%llu stops=%d cancels=1 faults=1\n", (unsigned long long)o.n_ahead,
	       (unsigned long long)s.spec_drafts, stopped);
	run_stop(&o.r);
	assert_nothing_left();
	orders_judge(kind, digest);
}

static void in_one_order(void **state)
{
	(void)state;
	for (int kind = 0; kind < N_KINDS; kind++)
		if (in_share(kind, N_KINDS))
			ahead_in_order(kind);
}

int main(void)
{
	const struct CMUnitTest orders[] = {cmocka_unit_test(in_one_order)};
	if (orders_only())
		return cmocka_run_group_tests(orders, make_tiny_model, drop_tiny_model);
	const struct CMUnitTest tests[] = {cmocka_unit_test(same_ahead), cmocka_unit_test(same_in_other_chunks),
					   cmocka_unit_test(same_with_drafts), cmocka_unit_test(fails_ahead)};
	return cmocka_run_group_tests(tests, make_shallow_model, drop_shallow_model);
}
