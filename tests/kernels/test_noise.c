/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that are in no file (kernels.h, weight_random; engine/source/random_source.h): of floats those of a file, bit
 * for bit; of every block type of the spread that was asked for; models of them say something of every token; what
 * can't be made is refused by name, and a failure leaves nothing behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/fault.h"
#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "engine/source/model_file.h"
#include "engine/source/quantize_model.h"
#include "engine/source/random_source.h"
#include "kernels/kv_type.h"
#include "tests/kernels/tables.h"
#include "tests/kernels/weights.h"

enum { OUT = 48, IN = 1024 };

static const struct kn_ops *o;

static struct kn_backend *open_backend(bool fp8)
{
	struct kn_config cfg = {.max_rows = OUT, .max_width = IN, .fp8_weights = fp8};
	struct kn_backend *b = NULL;
	struct sl_err err = {0};
	o = open_cuda();
	assert_int_equal(o->open(&cfg, &b, &err), 0);
	return b;
}

/* All rows of a matrix of that noise, as floats. */
static void rows_of(struct kn_backend *b, const struct kn_noise *noise, int type, float *host)
{
	static int32_t token[OUT];
	struct kn_weight w;
	struct sl_err err = {0};
	const int n_out = OUT;
	struct kn_step s = {.n_rows = OUT, .row_token = token};
	if (o->weight_random(b, noise, &n_out, 1, type, IN, &w, &err) != 0)
		fail_msg("%s: %s", kn_type_name(type), err.text);
	for (int i = 0; i < OUT; i++)
		token[i] = i;
	float *y = guarded(o, b, OUT * IN);
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->embed(b, &w, y), 0);
	assert_int_equal(o->read_back(b, y, OUT * IN, host), 0);
	assert_int_equal(o->step_end(b), 0);
	check_guards(y, OUT * IN);
	drop(o, b, y);
	o->weight_free(b, &w);
}

static void test_spread(void **arg)
{
	static float x[OUT * IN], again[OUT * IN], other[OUT * IN];
	(void)arg;
	for (int fp8 = 0; fp8 < 2; fp8++) {
		struct kn_backend *b = open_backend(fp8 != 0);
		for (int t = 0; kn_type_at(t) >= 0; t++) {
			int type = kn_type_at(t);
			const struct kn_noise noise = {.seed = 7, .spread = 0.02f}, next = {.seed = 8, .spread = 0.02f};
			double sum = 0, squares = 0, together = 0;
			if (fp8 && kn_type_block(type) != 1)
				continue;
			rows_of(b, &noise, type, x);
			rows_of(b, &noise, type, again);
			rows_of(b, &next, type, other);
			assert_memory_equal(x, again, sizeof x);
			for (int r = 0; r < OUT; r++) {
				for (int i = 0; i < IN; i++) {
					double v = (double)x[r * IN + i];
					assert_true(isfinite(v));
					sum += v;
					squares += v * v;
					together += v * (double)other[r * IN + i];
				}
				assert_memory_not_equal(r == 0 ? other : x, x + r * IN, IN * sizeof *x);
			}
			/* Outputs of equal activations have nothing in common: what a block's codes are beside zero has
			 * its scale's sign. A row of
			 * blocks of 256 codes that are off by half a step (of 1 / 2.3 spreads) sums to 3.6 times √IN spreads. */
			double spread = sqrt(squares / (OUT * IN)), common = 5 * 3.6 * 0.02 * sqrt(IN) / sqrt(OUT);
			if (!(fabs(spread / 0.02 - 1) < 0.06 && fabs(sum) / OUT < common &&
			      fabs(together) / squares < 0.05))
				fail_msg("%s: spread %g, %g in a row, %g like another seed's", kn_type_name(type),
					 spread, sum / OUT, together / squares);
		}
		o->close(b);
	}
}

static void test_refused(void **arg)
{
	const struct kn_noise bad[] = {{.spread = 0}, {.spread = -1}, {.spread = NAN}, {.spread = INFINITY}};
	const struct kn_noise good = {.spread = 1};
	struct kn_weight w;
	struct sl_err err = {0};
	const int n_out = 16, none = 0, two[2] = {8, 16};
	const struct kn_noise both[2] = {{.spread = 1}, {.spread = 1}};
	(void)arg;
	struct kn_backend *b = open_backend(false);
	for (int i = 0; i < N(bad); i++)
		assert_int_equal(o->weight_random(b, &bad[i], &n_out, 1, KN_F16, 256, &w, &err), SL_EINVAL);
	assert_int_equal(o->weight_random(b, &good, &none, 1, KN_F16, 256, &w, &err), SL_EINVAL);
	assert_int_equal(o->weight_random(b, &good, &n_out, 1, KN_INT4, 192, &w, &err), SL_EINVAL);
	assert_int_equal(o->weight_random(b, &good, &n_out, 1, 12345, 256, &w, &err), SL_EUNSUPPORTED);
	assert_int_equal(o->weight_random(b, both, two, 2, KN_F16, 256, &w, &err), SL_EUNSUPPORTED);
	if (!on_device()) {
		fault_arm(FAULT_DEVICE, 1, 1);
		int rc = o->weight_random(b, &good, &n_out, 1, KN_F16, 256, &w, &err),
		    end = o->settle(b); /* some is told only then */
		fault_disarm_all();
		assert_true(rc == SL_EIO || end == SL_EIO);
		if (rc == 0)
			o->weight_free(b, &w);
	}
	o->close(b);
}

/* ---- models ---- */

enum { LENGTH = 12 };

/* Logits of the last row of a prompt; *n of them. */
static float *logits_of(const char *path, bool fp8, int *n)
{
	static int32_t token[LENGTH], pos[LENGTH], seq[LENGTH], page[1];
	struct kn_config cfg = {.max_rows = LENGTH, .max_width = 4096, .fp8_weights = fp8};
	struct kn_backend *b = NULL;
	struct model *m = NULL;
	struct kv_pool *pool = NULL;
	struct sl_err err = {0};
	const struct kn_ops *ops = open_cuda();
	assert_int_equal(ops->open(&cfg, &b, &err), 0);
	if (model_load(path, ops, b, LENGTH, 0, &m, &err) != 0)
		fail_msg("%s", err.text);
	const struct model_arch *a = &model_info(m)->arch;
	assert_int_equal(kv_pool_create(ops, b, KN_F16, 1, 16, a->n_layers, a->n_kv_heads, a->head_dim, &pool, &err),
			 0);
	for (int i = 0; i < LENGTH; i++) {
		token[i] = (i * 37 + 11) % a->n_vocab;
		pos[i] = i;
	}
	const int32_t want = LENGTH - 1;
	struct kn_step s = {.n_rows = LENGTH,
			    .row_token = token,
			    .row_pos = pos,
			    .row_seq = seq,
			    .n_seqs = 1,
			    .page_table = page,
			    .max_pages = 1};
	*n = a->n_vocab;
	float *out = calloc((size_t)*n, sizeof *out);
	assert_non_null(out);
	assert_int_equal(model_forward(m, &s, kv_pool_layout(pool), &want, 1, out), 0);
	kv_pool_destroy(pool);
	model_free(m);
	ops->close(b);
	return out;
}

/* A model whose weights are made on the device says what the one in a file of the same seed says. */
static void test_as_the_file(void **arg)
{
	static const struct {
		const char *shape, *type;
		uint64_t seed;
		bool fp8;
	} cases[] = {{"tiny-llama", "bf16", 1, false},
		     {"tiny-phi3", "f16", 5, false},
		     {"tiny-qwen2", "f32", 9, false},
		     {"tiny-gemma3", "bf16", 3, true}};
	char path[PATH_MAX + 64], name[128];
	(void)arg;
	snprintf(path, sizeof path, "%s", beside("test_noise.gguf"));
	for (int i = 0; i < N(cases); i++) {
		struct random_model r = {.path = path, .name = "file", .seed = cases[i].seed};
		struct sl_err err = {0};
		int n, n_made;
		assert_int_equal(random_shape_find(cases[i].shape, &r.arch, &err), 0);
		assert_int_equal(weight_plan_parse(cases[i].type, &r.plan, &err), 0);
		if (random_model_write(&r, NULL, &err) != 0)
			fail_msg("%s", err.text);
		snprintf(name, sizeof name, "random:%s:%s:%d", cases[i].shape, cases[i].type, (int)cases[i].seed);
		float *file = logits_of(path, cases[i].fp8, &n), *made = logits_of(name, cases[i].fp8, &n_made);
		assert_int_equal(n, n_made);
		assert_memory_equal(file, made, (size_t)n * sizeof *file);
		free(file);
		free(made);
	}
	unlink(path);
}

/* Models of block types: logits are numbers, and of a spread that text can be drawn from. */
static void test_says_something(void **arg)
{
	static const char *const paths[] = {"random:tiny-llama:int4",     "random:tiny-mistral:q4_0",
					    "random:tiny-qwen3:q4_k_m:2", "random:tiny-llama:iq4_xs",
					    "random:tiny-llama:mxfp4",    "random:tiny-llama:q8_0"};
	(void)arg;
	for (int i = 0; i < N(paths); i++) {
		int n;
		double sum = 0, squares = 0;
		float *x = logits_of(paths[i], false, &n);
		for (int k = 0; k < n; k++) {
			assert_true(isfinite(x[k]));
			sum += (double)x[k];
			squares += (double)x[k] * (double)x[k];
		}
		double spread = sqrt(squares / n - sum / n * (sum / n));
		if (!(spread > 0.3 && spread < 30))
			fail_msg("%s: logits spread by %g", paths[i], spread);
		free(x);
	}
}

static void refused(const char *path, int code, const char *words)
{
	struct sl_err err = {0};
	struct model_file *f = NULL;
	int rc = model_file_open(path, &f, &err);
	model_file_close(f);
	if (rc != code || strstr(err.text, words) == NULL || strchr(err.text, '\n') != NULL)
		fail_msg("%s: %d \"%s\", not %d with \"%s\"", path, rc, err.text, code, words);
}

static void test_names(void **arg)
{
	struct sl_err err = {0};
	struct model_file *f = NULL;
	struct model_info info;
	struct model *m = NULL;
	(void)arg;
	refused("random:", SL_EINVAL, "not random:SHAPE:TYPE");
	refused("random:tiny-llama", SL_EINVAL, "not random:SHAPE:TYPE");
	refused("random:tiny-llama:", SL_EINVAL, "not random:SHAPE:TYPE");
	refused("random::bf16", SL_EINVAL, "not random:SHAPE:TYPE");
	refused("random:tiny-llama:bf16:", SL_EINVAL, "not random:SHAPE:TYPE");
	refused("random:tiny-llama:bf16:1:2", SL_EINVAL, "not random:SHAPE:TYPE");
	refused("random:tiny-llama:bf16:x", SL_EINVAL, "not a whole number");
	refused("random:tiny-llama:bf16:-1", SL_EINVAL, "not a whole number");
	refused("random:tiny-llama:bf16:1x", SL_EINVAL, "not a whole number");
	refused("random:llama:bf16", SL_EINVAL, "no shape is named llama");
	refused("random:tiny-llama:q9", SL_EINVAL, "no type is named q9");
	refused("random:a-name-that-is-longer-than-any-shape-has-ever-had-or-will-have-in-this-program:bf16", SL_EINVAL,
		"not random");

	assert_int_equal(model_file_open("random:tiny-llama:int4", &f, &err), 0);
	assert_string_equal(model_file_form(f), "made at random");
	assert_int_equal(model_file_find(f, "token_embd.weight")->type, KN_BF16);
	assert_int_equal(model_file_find(f, "output.weight")->type, KN_BF16);
	assert_int_equal(model_file_find(f, "blk.1.ffn_down.weight")->type, KN_INT4);
	assert_int_equal(model_file_n_parts(f), 0);
	assert_int_equal(model_file_quantize(f, KN_Q8_0, 1, NULL, &err), SL_EUNSUPPORTED);
	model_file_close(f);

	/* Bytes are those that its matrices would have. */
	assert_int_equal(model_inspect("random:llama-3.1-8b:int4", &info, &err), 0);
	assert_in_range(info.n_params, 8030000000, 8031000000);
	double step = (double)(info.file_bytes - info.embed_bytes);
	assert_true(step > 4.64e9 && step < 4.67e9);

	/* Backends that make none say what else there is. */
	struct kn_config cfg = {.n_threads = 1, .max_rows = 4, .max_width = 4096};
	struct kn_backend *b = NULL;
	const struct kn_ops *cpu = kn_select("cpu-ref", &err);
	assert_non_null(cpu);
	assert_int_equal(cpu->open(&cfg, &b, &err), 0);
	assert_int_equal(model_load("random:tiny-llama:bf16", cpu, b, 4, 0, &m, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.text, "the backend cpu-ref makes no weights at random"));
	assert_int_equal(model_load("random:tiny-phi3:bf16", cpu, b, 4, 0, &m, &err), SL_EUNSUPPORTED);
	cpu->close(b);
	const struct quantize_how how = {.plan = {KN_Q8_0, KN_Q8_0}, .replace = true, .n_threads = 1};
	assert_int_equal(quantize_model("random:tiny-llama:bf16", beside("test_noise.gguf"), &how, NULL, NULL, &err),
			 SL_EUNSUPPORTED);
	assert_int_equal(access(beside("test_noise.gguf"), F_OK), -1);
}

/* Whichever allocation fails it is not opened, and no error is left out. */
static void test_no_memory(void **arg)
{
	int n_failed = 0;
	(void)arg;
	for (long nth = 1; nth < 4000; nth += nth < 60 ? 1 : 61) {
		struct sl_err err = {0};
		struct model_file *f = NULL;
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, nth, 1);
		int rc = model_file_open("random:tiny-llama:bf16", &f, &err);
		bool struck = fault_passes(FAULT_ALLOC) - before >= nth;
		fault_disarm_all();
		model_file_close(f);
		assert_true(rc == 0 || (rc == SL_ENOMEM && err.text[0] != '\0'));
		n_failed += rc != 0;
		if (!struck)
			break;
	}
	assert_true(n_failed > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_spread),         cmocka_unit_test(test_refused),
					   cmocka_unit_test(test_as_the_file),    cmocka_unit_test(test_names),
					   cmocka_unit_test(test_says_something), cmocka_unit_test(test_no_memory)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
