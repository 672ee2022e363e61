/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of mixtures of experts that are wrong: each is refused in one line that names the key or the tensor.
 */
#include "tests/support/random_file.h"

#include <math.h>

#include "engine/kv/kv.h"
#include "engine/source/model_file.h"
#include "kernels/plugin.h"

static const char name[] = "model.gguf";
static uint8_t *file;
static size_t n_file;

static void write_model(const char *shape) { random_file(name, shape, "q8_0", 3, 1); }

static void read_model(const char *shape)
{
	write_model(shape);
	free(file);
	file = md_read(dir, name, &n_file);
}

static void write_file(void) { md_write(dir, name, file, n_file); }

static uint8_t *after(const char *text) { return random_file_after(file, n_file, text); }

static void refused(const char *said)
{
	struct sl_err err = {0};
	random_file_refused(name, kn_select("auto", &err), said);
}

static void refused_using(int n_used, const char *said)
{
	struct model_arch a = random_arch("tiny-qwen3moe");
	a.experts.n_used = n_used;
	random_file_of(name, &a, "q8_0", 3, 1);
	refused(said);
}

static void test_keys(void **state)
{
	(void)state;
	refused_using(17, "qwen3moe.expert_used_count is 17, not from 1 to 16");
	refused_using(0, "qwen3moe.expert_used_count is 0, not from 1 to 16");
	/* A number after a key: its type in four bytes, then the value. */
	read_model("tiny-olmoe");
	after("olmoe.expert_count")[4] = 7;
	write_file();
	refused("tensor blk.0.ffn_gate_inp.weight is 256 × 8, not 256 × 7");
	read_model("tiny-qwen2moe");
	after("qwen2moe.expert_feed_forward_length")[4] = 128;
	write_file();
	refused("tensor blk.0.ffn_gate_exps.weight is 256 × 256 × 6, not 256 × ");
	read_model("tiny-qwen2moe");
	memcpy(after("qwen2moe.expert_count") - 5, "xxxxx", 5);
	write_file();
	refused("qwen2moe.expert_count");
}

static void test_tensors(void **state)
{
	(void)state;
	static const char *const names[] = {"blk.1.ffn_gate_inp.weight", "blk.0.ffn_down_shexp.weight",
					    "blk.1.ffn_gate_inp_shexp.weight"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char said[96];
		read_model("tiny-qwen2moe");
		after(names[i])[-1] = 'x';
		write_file();
		snprintf(said, sizeof said, "tensor %s is missing", names[i]);
		refused(said);
	}
	/* All experts of one kind: the first of them is looked for under its own name. */
	read_model("tiny-olmoe");
	after("blk.1.ffn_up_exps.weight")[-1] = 'x';
	write_file();
	refused("tensor blk.1.ffn_up.0.weight is missing");
}

/* A layer beyond the last is refused; test_key_rules.c has those that the file says only draft. */
static void test_more_layers(void **state)
{
	(void)state;
	read_model("tiny-glm4moe");
	after("glm4moe.block_count")[4] = 2;
	write_file();
	refused("tensor blk.2.");
}

static uint64_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* Loads the file whatever it says, and computes a row if it can be loaded. Returns whether it could. first: the row's
 * first logit. */
static bool loads(float *first)
{
	struct sl_err err = {0};
	const struct kn_ops *o = kn_select("auto", &err);
	const struct kn_config kc = {.n_threads = 1, .max_rows = 4, .max_width = 4096};
	struct kn_backend *b;
	struct kv_pool *pool;
	struct model *m = NULL;
	char path[256];
	md_path(path, dir, name);
	assert_int_equal(o->open(&kc, &b, &err), 0);
	int rc = model_load(path, o, b, 4, 64 << 20, &m, &err);
	if (rc != 0) {
		assert_true(err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
	} else {
		const struct model_arch *a = &model_info(m)->arch;
		const int32_t zero = 0;
		const struct kn_step s = {.n_rows = 1,
					  .row_token = &zero,
					  .row_pos = &zero,
					  .row_seq = &zero,
					  .n_seqs = 1,
					  .page_table = &zero,
					  .max_pages = 1};
		float *logits = malloc((size_t)a->n_vocab * sizeof *logits);
		struct kn_kv layout = model_kv_layout(a, KN_F32, 16, a->n_layers);
		layout.n_pages = 1;
		assert_int_equal(kv_pool_make(o, b, &layout, &pool, &err), 0);
		assert_int_equal(model_forward(m, &s, kv_pool_layout(pool), &zero, 1, logits), 0);
		*first = logits[0];
		free(logits);
		kv_pool_destroy(pool);
	}
	model_free(m);
	o->close(b);
	return rc == 0;
}

/* Heads with changed bytes: most are refused, and what is loaded runs. */
static void test_mutated(void **state)
{
	(void)state;
	static const char *const shapes[] = {"tiny-glm4moe", "tiny-gpt-oss", "tiny-qwen2moe", "tiny-deepseek3"};
	int loaded = 0, all = 0;
	float first;
	uint64_t seed = 7;
	for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
		read_model(shapes[k]);
		size_t begin = (size_t)(after("general.architecture") - file), end;
		end = (size_t)(after("tokenizer.ggml") - file); /* the keys of the family lie between */
		for (int i = 0; i < 40; i++, all++) {
			size_t at = begin + next(&seed) % (end - begin);
			uint8_t was = file[at];
			uint8_t junk = (uint8_t)next(&seed), flipped = (uint8_t)(was ^ 1u << next(&seed) % 8);
			file[at] = (uint8_t)(next(&seed) % 2 == 0 ? junk : flipped);
			write_file();
			loaded += loads(&first);
			file[at] = was;
		}
	}
	assert_in_range(loaded, 1, all - 1);
}

/* A router whose weights are no numbers: some experts are chosen, and the row is no number, which ends its answer. */
static void test_nan_router(void **state)
{
	(void)state;
	struct sl_err err = {0};
	struct model_file *f;
	char path[256];
	float first = 0;
	md_path(path, dir, name);
	read_model("tiny-olmoe");
	assert_int_equal(model_file_open(path, &f, &err), 0);
	const struct model_tensor *t = model_file_find(f, "blk.1.ffn_gate_inp.weight");
	assert_non_null(t);
	uint8_t *at = memmem(file, n_file, t->data, (size_t)t->bytes);
	assert_non_null(at);
	memset(at, 0xFF, (size_t)t->bytes);
	model_file_close(f);
	write_file();
	assert_true(loads(&first));
	assert_true(isnan(first));
}

/* A backend without the operation says so; no step ever finds it missing. */
static void test_backend(void **state)
{
	(void)state;
	struct sl_err err = {0};
	struct kn_ops o = *kn_select("auto", &err);
	const struct kn_config kc = {.n_threads = 1, .max_rows = 4, .max_width = 4096};
	struct kn_backend *b;
	struct model *m = NULL;
	char path[256];
	md_path(path, dir, name);
	o.experts = NULL;
	write_model("tiny-mixtral");
	assert_int_equal(o.open(&kc, &b, &err), 0);
	assert_int_equal(model_load(path, &o, b, 4, 0, &m, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.text, "has no mixtures of experts"));
	o.close(b);
}

static int remove_all(void **state)
{
	free(file);
	return teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys),        cmocka_unit_test(test_tensors),
					   cmocka_unit_test(test_more_layers), cmocka_unit_test(test_mutated),
					   cmocka_unit_test(test_nan_router),  cmocka_unit_test(test_backend)};
	return cmocka_run_group_tests(tests, setup, remove_all);
}
