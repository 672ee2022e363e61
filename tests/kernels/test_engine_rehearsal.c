/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader launches every kernel that a model's steps need before the model is READY: on a device the first launch of
 * a kernel loads it and may compile it, for seconds, which must not happen inside a step. Run from the repository's
 * root.
 */
#include "tests/unit/engine/core/engine_run.h"

#include "tests/kernels/only_cuda.h"
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
	static const struct eng_model_config models[] = {{.name = "small", .path = "etc/models/demo-small.gguf"}};
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

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_rehearsal)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
