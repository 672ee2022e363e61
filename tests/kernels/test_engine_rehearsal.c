/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader launches every kernel that a model's steps need before the model is READY: on a device the first launch of
 * a kernel loads it and may compile it, for seconds, which must not happen inside a step. It ends early with an engine
 * that stops, and gives its pages back at whatever point it ends. Run from the repository's root.
 */
#include "tests/unit/engine/core/engine_run.h"

#include "base/fault.h"
#include "engine/core/rehearsal.h"
#include "tests/kernels/only_cuda.h"
#include "tests/kernels/shallow_model.h"
#include "tests/support/small_engine.h"

enum { LONG = 330 }; /* tokens: over a block of positions */

static int kernels(void)
{
	int (*count)(void);
	void *symbol = cuda_function("sluice_emulation_kernels");
	memcpy(&count, &symbol, sizeof count);
	return count();
}

static struct proto_submit request(const char *text, int kind)
{
	struct proto_submit req = run_plain(text, 4);
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	req.temperature = kind == 0 ? 0 : 0.8f;
	req.top_p = kind == 1 ? 0.5f : 1;
	req.top_k = kind == 2 ? 3 : 0;
	req.min_p = kind == 3 ? 0.2f : 0;
	req.presence_penalty = kind == 4 ? 0.4f : 0;
	req.repetition_penalty = kind == 5 ? 1.2f : 1;
	req.seed = 9 + (uint64_t)kind;
	return req;
}

/* Short prompts and long ones, few rows and many, alone and together, every kind of draw. */
static void serve(struct run *r)
{
	static char text[8 * LONG];
	uint64_t id = 1;
	for (int i = 0; i < LONG; i++)
		strcat(text, i % 3 == 0 ? "hen " : "fox ");
	for (int kind = 0; kind < 6; kind++) {
		struct proto_submit req = request("The capital of France is", kind);
		run_one(r, id++, &req);
	}
	for (int kind = 0; kind < 6; kind++) {
		struct proto_submit req = request(kind < 2 ? text : "A fox", kind);
		run_submit(r, id + (uint64_t)kind, &req);
		run_credit(r, id + (uint64_t)kind, 4);
	}
	for (int kind = 0; kind < 6; kind++)
		assert_int_equal(run_until_done(r, id + (uint64_t)kind)->n_tokens, 4);
	run_until_idle(r);
}

static void case_of(const char *kv_type)
{
	static const struct eng_model_config models[] = {{.name = "small", .path = shallow_path}};
	struct eng_config cfg = small_engine("cuda-emulated", models, 1);
	cfg.kv_bytes = 32 << 20;
	cfg.kv_type = kv_type;
	cfg.max_sequences = 12;
	cfg.step_tokens = 24;
	struct run r;
	int before = kernels();
	run_start(&r, &cfg);
	int ready = kernels();
	assert_true(ready > before);
	serve(&r);
	assert_int_equal(kernels(), ready);
	run_stop(&r);
}

static void test_rehearsal(void **state)
{
	(void)state;
	case_of("f16");
	case_of("f32");
}

/* A model that is READY, of which the step thread has let go. */
static struct eng_model *alone(struct run *r)
{
	static const struct eng_model_config models[] = {{.name = "small", .path = shallow_path}};
	struct eng_config cfg = {.models = models,
				 .n_models = 1,
				 .backend = "cuda-emulated",
				 .n_threads = 1,
				 .n_text_workers = 1,
				 .page_tokens = 16,
				 .kv_bytes = 8 << 20,
				 .max_sequences = 2,
				 .max_waiting = 16,
				 .step_tokens = 4,
				 .max_prompt_bytes = 1 << 20};
	run_start(r, &cfg);
	assert_int_equal(r->states[0], PROTO_MODEL_READY);
	atomic_store(&r->e->stopping, true);
	mailbox_nudge(&r->e->box);
	assert_int_equal(pthread_join(r->e->step_thread, NULL), 0);
	r->e->step_running = false;
	return &r->e->models[0];
}

static uint64_t steps_of(const struct eng_model *m)
{
	struct kn_stats s = {0};
	m->ops->stats(m->backend, &s);
	return s.steps;
}

static void test_stopping(void **state)
{
	(void)state;
	struct run r;
	struct eng_model *m = alone(&r);
	uint64_t before = steps_of(m);
	int n_free = kv_pool_n_free(m->pool);
	assert_true(before > 10);
	assert_int_equal(rehearse(m), 0);
	assert_int_equal(steps_of(m), before);
	atomic_store(&r.e->stopping, false);
	assert_int_equal(rehearse(m), 0);
	assert_true(steps_of(m) > before + 10);
	assert_int_equal(kv_pool_n_free(m->pool), n_free);
	run_stop(&r);
}

/* At every allocation of its own, since no step runs, and at the first page. */
static void test_no_memory(void **state)
{
	(void)state;
	struct run r;
	struct eng_model *m = alone(&r);
	int n_free = kv_pool_n_free(m->pool), nth = 0;
	bool struck = true;
	while (struck) {
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, ++nth, 1);
		int rc = rehearse(m);
		struck = fault_passes(FAULT_ALLOC) - before >= nth;
		fault_disarm_all();
		assert_int_equal(rc, struck ? SL_ENOMEM : 0);
		assert_int_equal(kv_pool_n_free(m->pool), n_free);
	}
	assert_true(nth > 10);
	fault_arm(FAULT_KV_PAGE, 1, 1);
	assert_int_equal(rehearse(m), SL_ENOMEM);
	fault_disarm_all();
	assert_int_equal(kv_pool_n_free(m->pool), n_free);
	run_stop(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_rehearsal),
	    cmocka_unit_test(test_stopping),
	    cmocka_unit_test(test_no_memory),
	};
	return cmocka_run_group_tests(tests, make_shallow_model, drop_shallow_model);
}
