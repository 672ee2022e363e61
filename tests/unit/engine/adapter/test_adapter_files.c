/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters on disk: both forms say the same of the same numbers, rows of queries and keys follow the base's form, and
 * what does not fit is refused by the name of its key or tensor.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "base/alloc.h"
#include "engine/adapter/adapter_make.h"
#include "engine/adapter/adapter_merge.h"
#include "engine/adapter/peft_config.h"
#include "engine/source/random_model.h"
#include "tests/support/gguf_write.h"
#include "tests/support/model_dir_fixture.h"

static const char tiny[] = "random:tiny-llama:f32";

static const char *in_dir(const char *name)
{
	static char paths[4][256];
	static int next;
	char *path = paths[next++ % 4];
	md_path(path, dir, name);
	return path;
}

static struct adapter_make making(const char *base, const char *out)
{
	struct adapter_make m = {.base = base, .out = out, .type = KN_F32, .seed = 5, .replace = true};
	for (int t = 0; t < ADAPTER_TARGETS; t++) {
		m.ranks[t] = t < ADAPTER_DENSE_TARGETS || !adapter_is_of_a_layer((enum adapter_target)t) ? t + 1 : 0;
		m.alphas[t] = 8;
	}
	return m;
}

static void made(const struct adapter_make *m)
{
	struct sl_err err = {0};
	if (adapter_make(m, &err) != 0)
		fail_msg("%s", err.text);
}

/* base NULL: without one. */
static int open_for(const char *path, const char *base, struct adapter **out, struct sl_err *err)
{
	struct model_file *f;
	struct model_arch arch;
	*err = (struct sl_err){0};
	if (base == NULL)
		return adapter_open(path, NULL, NULL, out, err);
	int rc = model_file_open(base, &f, err);
	if (rc != 0 || (rc = model_file_arch(f, &arch, err)) != 0)
		fail_msg("%s", err->text);
	rc = adapter_open(path, f, &arch, out, err);
	model_file_close(f);
	return rc;
}

static struct adapter *opened(const char *path, const char *base)
{
	struct adapter *a = NULL;
	struct sl_err err;
	if (open_for(path, base, &a, &err) != 0)
		fail_msg("%s", err.text);
	return a;
}

static void refused(const char *path, const char *base, int code, const char *words)
{
	struct adapter *a = NULL;
	struct sl_err err;
	int rc = open_for(path, base, &a, &err);
	if (rc != code || strstr(err.text, words) == NULL || strchr(err.text, '\n') != NULL)
		fail_msg("%d \"%s\", not %d with \"%s\"", rc, err.text, code, words);
	adapter_close(a);
}

static void md_remove_folder(const char *name)
{
	md_remove_file(in_dir(name), "adapter_model.safetensors");
	md_remove_file(in_dir(name), "adapter_config.json");
	md_remove_file(in_dir(name), "adapter_model.bin");
	rmdir(in_dir(name));
}

/* ---- both forms ---- */

static void same_matrix(const struct adapter_matrix *x, const struct adapter_matrix *y)
{
	float *p = malloc((size_t)x->n_in * sizeof *p), *q = malloc((size_t)x->n_in * sizeof *q);
	float b[ADAPTER_MAX_RANK], c[ADAPTER_MAX_RANK];
	assert_int_equal(x->rank, y->rank);
	assert_int_equal(x->n_in, y->n_in);
	assert_int_equal(x->n_out, y->n_out);
	assert_true(x->scale == y->scale);
	for (int j = 0; j < x->rank; j++) {
		adapter_a_row(x, j, p);
		adapter_a_row(y, j, q);
		assert_memory_equal(p, q, (size_t)x->n_in * sizeof *p);
	}
	for (int i = 0; i < x->n_out; i++) {
		adapter_b_row(x, i, b);
		adapter_b_row(y, i, c);
		assert_memory_equal(b, c, (size_t)x->rank * sizeof *b);
	}
	free(p);
	free(q);
}

static void test_forms(void **arg)
{
	(void)arg;
	struct adapter_make m = making(tiny, in_dir("a.gguf"));
	made(&m);
	m.out = in_dir("peft");
	made(&m);
	struct adapter *g = opened(in_dir("a.gguf"), tiny), *p = opened(in_dir("peft"), tiny);
	assert_int_equal(adapter_n_layers(g), 2);
	assert_int_equal(adapter_bytes(g), adapter_bytes(p));
	assert_string_equal(adapter_form(g), "GGUF");
	assert_string_equal(adapter_form(p), "PEFT");
	for (int i = 0; i < 2; i++)
		for (int t = 0; t < ADAPTER_TARGETS; t++) {
			const struct adapter_matrix *x = adapter_at(g, i, (enum adapter_target)t);
			bool of_layer = adapter_is_of_a_layer((enum adapter_target)t);
			if (of_layer ? t >= ADAPTER_DENSE_TARGETS : i > 0) {
				assert_int_equal(x->rank, 0);
				continue;
			}
			assert_int_equal(x->rank, t + 1);
			assert_true(x->scale == (float)(8.0 / (t + 1)));
			same_matrix(x, adapter_at(p, i, (enum adapter_target)t));
		}
	adapter_close(g);
	adapter_close(p);
	/* Without a base ranks and shapes are known, too. */
	p = opened(in_dir("peft"), NULL);
	assert_int_equal(adapter_n_layers(p), 2);
	assert_int_equal(adapter_at(p, 1, ADAPTER_DOWN)->n_in, 512);
	adapter_close(p);
	md_remove_folder("peft");
}

/* Experts: in GGUF one tensor of all of them, in a folder one of each. */
static void test_experts(void **arg)
{
	(void)arg;
	static const char base[] = "random:tiny-qwen2moe:f32";
	struct adapter_make m = {.base = base, .type = KN_F32, .seed = 5, .replace = true};
	for (int t = ADAPTER_SHARED_GATE; t <= ADAPTER_EXPERT_DOWN; t++) {
		m.ranks[t] = 1 + (t - ADAPTER_SHARED_GATE) % 3;
		m.alphas[t] = 4;
	}
	m.out = in_dir("a.gguf");
	made(&m);
	m.out = in_dir("peft");
	made(&m);
	struct adapter *g = opened(in_dir("a.gguf"), base), *p = opened(in_dir("peft"), base);
	assert_int_equal(adapter_bytes(g), adapter_bytes(p));
	assert_true(adapter_has(g, ADAPTER_EXPERT_UP) && !adapter_has(g, ADAPTER_Q) && !adapter_has(p, ADAPTER_UP));
	for (int i = 0; i < 2; i++)
		for (int t = ADAPTER_EXPERT_GATE; t <= ADAPTER_EXPERT_DOWN; t++) {
			assert_int_equal(adapter_n_experts(g, i, (enum adapter_target)t), 6);
			assert_int_equal(adapter_n_experts(p, i, (enum adapter_target)t), 6);
			assert_int_equal(adapter_expert(p, i, (enum adapter_target)t, 6)->rank, 0);
			for (int e = 0; e < 6; e++)
				same_matrix(adapter_expert(g, i, (enum adapter_target)t, e),
					    adapter_expert(p, i, (enum adapter_target)t, e));
		}
	assert_memory_not_equal(adapter_expert(g, 0, ADAPTER_EXPERT_UP, 1)->a.data,
				adapter_expert(g, 0, ADAPTER_EXPERT_UP, 2)->a.data, 64);
	adapter_close(g);
	adapter_close(p);
	p = opened(in_dir("peft"), NULL);
	assert_int_equal(adapter_n_experts(p, 1, ADAPTER_EXPERT_DOWN), 6);
	adapter_close(p);
	/* Modules of one name have one rank. */
	struct sl_err err = {0};
	m.ranks[ADAPTER_SHARED_UP] = 9;
	assert_int_equal(adapter_make(&m, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.text, "one rank and alpha for shared_up and expert_up"));
	m.base = tiny;
	assert_int_equal(adapter_make(&m, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.text, "no matrix blk.1.ffn_gate_shexp.weight"));
	md_remove_folder("peft");
}

/* rsLoRA, patterns of alpha, and modules without an adapter. */
static void test_scales(void **arg)
{
	(void)arg;
	struct adapter_make m = making(tiny, in_dir("peft"));
	m.by_root = true;
	m.ranks[ADAPTER_K] = 0;
	m.alphas[ADAPTER_O] = 3;
	made(&m);
	struct adapter *a = opened(in_dir("peft"), tiny);
	assert_int_equal(adapter_at(a, 0, ADAPTER_K)->rank, 0);
	assert_true(adapter_at(a, 0, ADAPTER_Q)->scale == 8);
	assert_true(adapter_at(a, 1, ADAPTER_O)->scale == (float)(3 / sqrt(4)));
	adapter_close(a);
	struct sl_err err = {0};
	m.out = in_dir("a.gguf");
	assert_int_equal(adapter_make(&m, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.text, "alpha"));
	m.alphas[ADAPTER_O] = 8;
	assert_int_equal(adapter_make(&m, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.text, "rsLoRA"));
	md_remove_folder("peft");
}

/* ---- merging ---- */

static struct model_file *merged(const char *base, const char *adapter, const char *out)
{
	struct sl_err err = {0};
	struct quantize_how how = {.replace = true, .n_threads = 2};
	struct model_file *f;
	assert_int_equal(weight_plan_parse("f32", &how.plan, &err), 0);
	if (adapter_merge(base, adapter, out, &how, NULL, &err) != 0 || model_file_open(out, &f, &err) != 0)
		fail_msg("%s", err.text);
	return f;
}

/* W + scale · B · A in double, of what the merged file has. */
static void check_merged(const struct model_file *base, const struct model_file *with, const struct adapter *a)
{
	for (int layer = 0; layer < adapter_n_layers(a); layer++)
		for (int t = 0; t < ADAPTER_TARGETS; t++) {
			char name[64];
			const struct adapter_place of = {.target = (enum adapter_target)t, .layer = layer};
			const struct adapter_matrix *m = adapter_at(a, layer, (enum adapter_target)t);
			if (m->rank == 0)
				continue;
			adapter_target_full(&of, name);
			const float *w = model_file_find(base, name)->data, *got = model_file_find(with, name)->data;
			float b[ADAPTER_MAX_RANK], *p = malloc((size_t)m->n_in * sizeof *p);
			for (int i = 0; i < m->n_out; i += 7) {
				adapter_b_row(m, i, b);
				double sum = 0;
				for (int j = 0; j < m->rank; j++) {
					adapter_a_row(m, j, p);
					sum += (double)m->scale * (double)b[j] * (double)p[i % m->n_in];
				}
				size_t at = (size_t)i * (size_t)m->n_in + (size_t)(i % m->n_in);
				/* Each of rank + 1 sums rounds once, of numbers below 4. */
				if (!(fabs((double)w[at] + sum - (double)got[at]) <= (m->rank + 1) * 4 * 0x1p-23))
					fail_msg("%s: row %d", name, i);
			}
			free(p);
		}
}

static void test_merge(void **arg)
{
	(void)arg;
	struct sl_err err = {0};
	struct random_model r = {.path = in_dir("base.gguf"), .name = "b", .seed = 4};
	assert_int_equal(random_shape_find("tiny-llama", &r.arch, &err), 0);
	assert_int_equal(weight_plan_parse("f32", &r.plan, &err), 0);
	assert_int_equal(random_model_write(&r, NULL, &err), 0);
	struct adapter_make m = making(in_dir("base.gguf"), in_dir("a.gguf"));
	made(&m);
	struct model_file *base, *with = merged(in_dir("base.gguf"), in_dir("a.gguf"), in_dir("m.gguf"));
	struct adapter *a = opened(in_dir("a.gguf"), in_dir("base.gguf"));
	assert_int_equal(model_file_open(in_dir("base.gguf"), &base, &err), 0);
	check_merged(base, with, a);
	/* What the adapter does not touch is as it was. */
	const struct model_tensor *x = model_file_find(base, "blk.1.ffn_norm.weight"),
				  *y = model_file_find(with, "blk.1.ffn_norm.weight");
	assert_memory_equal(x->data, y->data, x->bytes);
	adapter_close(a);
	model_file_close(base);
	model_file_close(with);
}

/* A head that is the table of embeddings: an adapter of either leaves the other, and the merged model has both. */
static void test_merge_tied(void **arg)
{
	(void)arg;
	static const char *const names[] = {"token_embd.weight", "output.weight"};
	struct sl_err err = {0};
	struct random_model r = {.path = in_dir("base.gguf"), .name = "b", .seed = 4};
	struct model_arch arch;
	assert_int_equal(random_shape_find("tiny-qwen3", &r.arch, &err), 0);
	assert_int_equal(weight_plan_parse("f32", &r.plan, &err), 0);
	assert_int_equal(random_model_write(&r, NULL, &err), 0);
	for (int i = 0; i < 3; i++) {
		struct adapter_make m = {
		    .base = in_dir("base.gguf"), .out = in_dir("a.gguf"), .type = KN_F32, .seed = 5, .replace = true};
		enum adapter_target t = i == 0 ? ADAPTER_EMBED : i == 1 ? ADAPTER_HEAD : ADAPTER_DOWN;
		m.ranks[t] = 3;
		m.alphas[t] = 8;
		made(&m);
		struct model_file *base, *with = merged(in_dir("base.gguf"), in_dir("a.gguf"), in_dir("m.gguf"));
		assert_int_equal(model_file_open(in_dir("base.gguf"), &base, &err), 0);
		assert_int_equal(model_file_arch(with, &arch, &err), 0);
		assert_int_equal(arch.tied_embeddings, i == 2);
		const struct model_tensor *was = model_file_find(base, names[0]);
		for (int k = 0; k < 2 && i < 2; k++)
			assert_int_equal(memcmp(was->data, model_file_find(with, names[k])->data, was->bytes) != 0,
					 k == i);
		struct adapter *a = opened(in_dir("a.gguf"), in_dir("base.gguf"));
		if (i != 1) /* the base has no head of its own to compare with */
			check_merged(base, with, a);
		adapter_close(a);
		model_file_close(base);
		model_file_close(with);
	}
}

/* The folder's file in which half X of one target is written by hand, with values of md_value. */
static void write_peft(const char *module, int n_out, int n_in)
{
	char names[2][128];
	snprintf(names[0], 128, "base_model.model.model.layers.0.%s.lora_A.weight", module);
	snprintf(names[1], 128, "base_model.model.model.layers.0.%s.lora_B.weight", module);
	const struct md_tensor t[] = {{names[0], "F32", 2, n_in}, {names[1], "F32", n_out, 2}};
	mkdir(in_dir("peft"), 0755);
	md_safetensors(in_dir("peft"), "adapter_model.safetensors", t, 2);
	md_text(in_dir("peft"), "adapter_config.json", "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4}");
}

#define PLAIN_TOKENS                                                                                                 \
	"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"e\":4,\"f\":5,\"g\":6,\"h\":7,"   \
	"\"i\":8,\"j\":9,\"k\":10,\"l\":11},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":" \
	"true}}"

/* A PEFT adapter of a folder, merged there, whose rows are then turned: as merged into the folder's GGUF file, whose
 * rows are turned already. */
static void test_rows_of_heads(void **arg)
{
	(void)arg;
	static const char *const modules[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
					      "self_attn.o_proj", "mlp.down_proj"};
	static const int shapes[][2] = {{8, 8}, {4, 8}, {4, 8}, {8, 8}, {8, 16}};
	struct sl_err err = {0};
	struct quantize_how how = {.replace = true};
	mkdir(in_dir("hf"), 0755);
	md_llama_folder(in_dir("hf"));
	md_text(in_dir("hf"), "tokenizer.json", PLAIN_TOKENS);
	assert_int_equal(weight_plan_parse("f32", &how.plan, &err), 0);
	if (quantize_model(in_dir("hf"), in_dir("hf.gguf"), &how, NULL, NULL, &err) != 0)
		fail_msg("%s", err.text);
	for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
		write_peft(modules[i], shapes[i][0], shapes[i][1]);
		struct model_file *x = merged(in_dir("hf"), in_dir("peft"), in_dir("x.gguf"));
		struct model_file *y = merged(in_dir("hf.gguf"), in_dir("peft"), in_dir("y.gguf"));
		int changed = 0;
		struct model_file *plain;
		assert_int_equal(model_file_open(in_dir("hf.gguf"), &plain, &err), 0);
		for (size_t k = 0; k < model_file_n_tensors(x); k++) {
			const struct model_tensor *t = model_file_tensor_at(x, k), *u = model_file_find(y, t->name);
			assert_int_equal(t->bytes, u->bytes);
			assert_memory_equal(t->data, u->data, t->bytes);
			changed += memcmp(t->data, model_file_find(plain, t->name)->data, t->bytes) != 0;
		}
		assert_int_equal(changed, 1);
		model_file_close(plain);
		model_file_close(x);
		model_file_close(y);
	}
	/* And a GGUF adapter of the folder: rows that are pairs there are found as halves. */
	struct adapter_make m = making(in_dir("hf"), in_dir("a.gguf"));
	made(&m);
	struct model_file *x = merged(in_dir("hf"), in_dir("a.gguf"), in_dir("x.gguf"));
	struct model_file *y = merged(in_dir("hf.gguf"), in_dir("a.gguf"), in_dir("y.gguf"));
	for (size_t k = 0; k < model_file_n_tensors(x); k++)
		assert_memory_equal(model_file_tensor_at(x, k)->data, model_file_tensor_at(y, k)->data,
				    model_file_tensor_at(x, k)->bytes);
	model_file_close(x);
	model_file_close(y);
	md_remove_folder("peft");
	md_remove(in_dir("hf"));
}

/* ---- refusals ---- */

#define CONFIG(more) "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4" more "}"
#define EMBED "base_model.model.model.embed_tokens"
#define Q "base_model.model.model.layers.0.self_attn.q_proj"

static void test_config_refused(void **arg)
{
	(void)arg;
	static const struct {
		const char *text, *words;
		int code;
	} cases[] = {
	    {"{\"r\":2,\"lora_alpha\":4}", "peft_type is \"\"", SL_EUNSUPPORTED},
	    {"{\"peft_type\":\"IA3\"}", "\"IA3\"", SL_EUNSUPPORTED},
	    {"[]", "not an object", SL_EINVAL},
	    {"{\"peft_type\":\"LORA\",", "line 1", SL_EINVAL},
	    {"{\"peft_type\":\"LORA\",\"lora_alpha\":4}", "r is not a rank", SL_EINVAL},
	    {"{\"peft_type\":\"LORA\",\"r\":257,\"lora_alpha\":4}", "r is not a rank", SL_EINVAL},
	    {"{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":0}", "lora_alpha", SL_EINVAL},
	    {"{\"peft_type\":\"LORA\",\"r\":2}", "lora_alpha", SL_EINVAL},
	    {CONFIG(",\"bias\":\"lora_only\""), "bias is \"lora_only\"", SL_EUNSUPPORTED},
	    {CONFIG(",\"use_dora\":true"), "use_dora", SL_EUNSUPPORTED},
	    {CONFIG(",\"modules_to_save\":[\"lm_head\"]"), "modules_to_save", SL_EUNSUPPORTED},
	    {CONFIG(",\"fan_in_fan_out\":true"), "fan_in_fan_out", SL_EUNSUPPORTED},
	    {CONFIG(",\"alora_invocation_tokens\":[1]"), "alora_invocation_tokens", SL_EUNSUPPORTED},
	    {CONFIG(",\"layer_replication\":[[0,1]]"), "layer_replication", SL_EUNSUPPORTED},
	    {CONFIG(",\"future\":1"), "key future is not supported by this version, which does not know it",
	     SL_EUNSUPPORTED},
	    {CONFIG(",\"init_lora_weights\":\"pissa_niter_4\""), "init_lora_weights", SL_EUNSUPPORTED},
	    {CONFIG(",\"init_lora_weights\":\"future\""), "init_lora_weights \"future\"", SL_EUNSUPPORTED},
	    {CONFIG(",\"task_type\":\"SEQ_CLS\""), "SEQ_CLS", SL_EUNSUPPORTED},
	    {CONFIG(",\"use_rslora\":1"), "use_rslora", SL_EINVAL},
	    {CONFIG(",\"rank_pattern\":{\"q_proj\":0}"), "rank_pattern: q_proj", SL_EINVAL},
	    {CONFIG(",\"rank_pattern\":{\"q_proj\":1.5}"), "rank_pattern: q_proj", SL_EINVAL},
	    {CONFIG(",\"rank_pattern\":{\".*q\":3}"), "rank_pattern: \".*q\" is not the name", SL_EUNSUPPORTED},
	    {CONFIG(",\"alpha_pattern\":[]"), "alpha_pattern is not an object", SL_EINVAL},
	    {CONFIG(",\"alpha_pattern\":{\"q_proj\":\"x\"}"), "alpha_pattern: q_proj", SL_EINVAL},
	    {CONFIG(",\"x\":[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]"), "too deep", SL_EINVAL},
	    {CONFIG(",\"target_modules\":[\"q_proj\",\"v_proj\"]"), "target_modules names \"v_proj\"", SL_EINVAL},
	    {CONFIG(",\"rank_pattern\":{\"q_proj\":3}"), "has rank 2, but adapter_config.json says 3", SL_EINVAL},
	};
	write_peft("self_attn.q_proj", 8, 8);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		md_text(in_dir("peft"), "adapter_config.json", cases[i].text);
		refused(in_dir("peft"), NULL, cases[i].code, cases[i].words);
	}
	/* What is off, or about training, changes nothing. */
	md_text(in_dir("peft"), "adapter_config.json",
		CONFIG(",\"use_dora\":false,\"modules_to_save\":null,\"future\":null,\"lora_dropout\":0.1,"
		       "\"init_lora_weights\":\"gaussian\",\"target_modules\":[\"q_proj\"],"
		       "\"alpha_pattern\":{\"^model.layers.0.self_attn.q_proj$\":6,\"q_proj\":9}"));
	struct adapter *a = opened(in_dir("peft"), NULL);
	assert_true(adapter_at(a, 0, ADAPTER_Q)->scale == 3);
	adapter_close(a);
	assert_true(peft_names("q_proj", "a.q_proj") && peft_names("a.q_proj", "a.q_proj"));
	assert_false(peft_names("_proj", "a.q_proj") || peft_names("^q_proj", "a.q_proj") || peft_names("^$", "a"));
	md_remove_file(in_dir("peft"), "adapter_config.json");
	refused(in_dir("peft"), NULL, SL_EIO, "adapter_config.json");
	md_remove_folder("peft");
}

static void test_tensors_refused(void **arg)
{
	(void)arg;
	static const struct {
		struct md_tensor t[4];
		const char *words;
		int code;
	} cases[] = {
	    {{{Q ".lora_A.weight", "F32", 2, 8}}, "its other half, B, is missing", SL_EINVAL},
	    {{{Q ".lora_B.weight", "F32", 8, 2}}, "its other half, A, is missing", SL_EINVAL},
	    {{{Q ".lora_A.weight", "F32", 2, 8}, {Q ".lora_B.weight", "F32", 8, 3}}, "B.weight has rank 3", SL_EINVAL},
	    {{{Q ".lora_A.weight", "F32", 2, 8}, {Q ".lora_B.weight", "F32", 9, 2}}, "for 9 outputs", SL_EINVAL},
	    {{{Q ".lora_A.weight", "F32", 2, 9}, {Q ".lora_B.weight", "F32", 8, 2}}, "for 9 inputs", SL_EINVAL},
	    {{{Q ".lora_magnitude_vector", "F32", 0, 8}}, "DoRA", SL_EUNSUPPORTED},
	    {{{Q ".lora_B.bias", "F32", 0, 8}}, "a bias", SL_EUNSUPPORTED},
	    {{{EMBED ".lora_embedding_A", "F32", 2, 7}}, "its other half, B, is missing", SL_EINVAL},
	    {{{EMBED ".lora_embedding_B", "F32", 8, 2}}, "its other half, A, is missing", SL_EINVAL},
	    {{{EMBED ".lora_embedding_A", "F32", 2, 8}},
	     "for 8 outputs, but the base's token_embd.weight has 7",
	     SL_EINVAL},
	    {{{EMBED ".lora_embedding_B", "F32", 9, 2}},
	     "for 9 inputs, but the base's token_embd.weight has 8",
	     SL_EINVAL},
	    {{{EMBED ".lora_embedding_A", "F32", 2, 7}, {EMBED ".lora_embedding_B", "F32", 8, 3}},
	     "has rank 3",
	     SL_EINVAL},
	    {{{EMBED ".lora_A.weight", "F32", 2, 8}}, "token_embd.weight are named lora_embedding_A", SL_EUNSUPPORTED},
	    {{{Q ".lora_embedding_A", "F32", 2, 8}}, "attn_q.weight are named lora_A", SL_EUNSUPPORTED},
	    {{{EMBED ".weight", "F32", 12, 8}}, "a whole matrix", SL_EUNSUPPORTED},
	    {{{"base_model.model.lm_head.modules_to_save.weight", "F32", 12, 8}}, "a whole matrix", SL_EUNSUPPORTED},
	    {{{EMBED ".base_layer.weight", "F32", 7, 8}},
	     "is another matrix than the base's token_embd.weight",
	     SL_EUNSUPPORTED},
	    {{{EMBED ".base_layer.weight", "F32", 11, 8}}, "is another matrix", SL_EUNSUPPORTED},
	    {{{Q ".base_layer.weight", "F32", 8, 8}}, "a whole matrix", SL_EUNSUPPORTED},
	    {{{"base_model.model.lm_head.lora_A.weight", "F32", 2, 9}}, "output.weight has 8", SL_EINVAL},
	    {{{"base_model.model.lm_head.lora_B.weight", "F32", 8, 2}}, "output.weight has 7", SL_EINVAL},
	    {{{"base_model.model.model.layers.0.mlp.experts.1.up_proj.lora_A.weight", "F32", 2, 8}},
	     "is of expert 1, but the base has 0 experts",
	     SL_EINVAL},
	    {{{"base_model.model.model.layers.0.mlp.experts.1024.up_proj.lora_A.weight", "F32", 2, 8}},
	     "adapters of blk.0.ffn_up.1024.weight",
	     SL_EUNSUPPORTED},
	    {{{"base_model.model.model.layers.0.mlp.gate.lora_A.weight", "F32", 2, 8}},
	     "adapters of blk.0.ffn_gate_inp.weight",
	     SL_EUNSUPPORTED},
	    {{{"base_model.model.model.layers.0.mlp.shared_expert.up_proj.lora_A.weight", "F32", 2, 8}},
	     "changes blk.0.ffn_up_shexp.weight, which the base does not have",
	     SL_EINVAL},
	    {{{"base_model.model.model.layers.0.self_attn.qkv_proj.lora_A.weight", "F32", 2, 8}},
	     "adapters of blk.0.attn_qkv.weight",
	     SL_EUNSUPPORTED},
	    {{{"base_model.model.model.layers.1.mlp.up_proj.lora_A.weight", "F32", 2, 8}},
	     "the base has 1 layers",
	     SL_EINVAL},
	    {{{"base_model.model.lm_head.weight", "F32", 12, 8}}, "a whole matrix", SL_EUNSUPPORTED},
	    {{{Q ".lora_C.weight", "F32", 12, 8}}, "neither lora_A.weight", SL_EUNSUPPORTED},
	    {{{Q ".lora_A.weight", "F32", 0, 8}}, "in 1 dimensions", SL_EUNSUPPORTED},
	    {{{Q ".lora_A.weight", "F32", 2, 8},
	      {"base_model.model.layers.0.self_attn.q_proj.lora_A.weight", "F32", 2, 8}},
	     "the same half of blk.0.attn_q.weight",
	     SL_EINVAL},
	};
	mkdir(in_dir("hf"), 0755);
	md_llama_folder(in_dir("hf"));
	write_peft("self_attn.q_proj", 8, 8);
	struct adapter *good = opened(in_dir("peft"), in_dir("hf"));
	adapter_close(good);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		size_t n = 0;
		while (n < 4 && cases[i].t[n].name != NULL)
			n++;
		md_safetensors(in_dir("peft"), "adapter_model.safetensors", cases[i].t, n);
		refused(in_dir("peft"), in_dir("hf"), cases[i].code, cases[i].words);
	}
	md_safetensors(in_dir("peft"), "adapter_model.safetensors", cases[0].t, 0);
	refused(in_dir("peft"), in_dir("hf"), SL_EINVAL, "changes no matrix");
	md_remove_file(in_dir("peft"), "adapter_model.safetensors");
	md_text(in_dir("peft"), "adapter_model.bin", "x");
	refused(in_dir("peft"), in_dir("hf"), SL_EUNSUPPORTED, "adapter_model.bin");
	md_remove_folder("peft");
	md_remove(in_dir("hf"));
}

/* What the library saves beside an adapter of the embeddings: the base's own matrix is no hindrance. */
static void test_copies(void **arg)
{
	(void)arg;
	const struct md_tensor t[] = {{EMBED ".lora_embedding_A", "F32", 2, 7},
				      {EMBED ".lora_embedding_B", "F32", 8, 2},
				      {EMBED ".base_layer.weight", "F32", 7, 8}};
	size_t n;
	struct model_file *base;
	struct sl_err err = {0};
	mkdir(in_dir("hf"), 0755);
	md_llama_folder(in_dir("hf"));
	write_peft("self_attn.q_proj", 8, 8);
	md_safetensors(in_dir("peft"), "adapter_model.safetensors", t, 3);
	refused(in_dir("peft"), in_dir("hf"), SL_EUNSUPPORTED, "is another matrix");
	uint8_t *bytes = md_read(in_dir("peft"), "adapter_model.safetensors", &n);
	assert_int_equal(model_file_open(in_dir("hf"), &base, &err), 0);
	const struct model_tensor *embed = model_file_find(base, "token_embd.weight");
	float copy[7 * 8];
	kn_dequantize(embed->type, embed->data, 7 * 8, copy);
	memcpy(bytes + n - sizeof copy, copy, sizeof copy);
	model_file_close(base);
	md_write(in_dir("peft"), "adapter_model.safetensors", bytes, n);
	free(bytes);
	struct adapter *a = opened(in_dir("peft"), in_dir("hf"));
	assert_int_equal(adapter_at(a, 0, ADAPTER_EMBED)->rank, 2);
	assert_int_equal(adapter_at(a, 0, ADAPTER_EMBED)->n_out, 7);
	adapter_close(a);
	adapter_close(opened(in_dir("peft"), NULL));
	md_text(in_dir("peft"), "adapter_config.json", CONFIG(",\"ensure_weight_tying\":true"));
	refused(in_dir("peft"), in_dir("hf"), SL_EUNSUPPORTED, "ensure_weight_tying");
	/* A base of rounded numbers can't be compared. */
	struct random_model r = {.path = in_dir("base.gguf"), .name = "b", .seed = 4};
	assert_int_equal(random_shape_find("tiny-llama", &r.arch, &err), 0);
	assert_int_equal(weight_plan_parse("q8_0", &r.plan, &err), 0);
	assert_int_equal(random_model_write(&r, NULL, &err), 0);
	const struct md_tensor wide = {EMBED ".base_layer.weight", "F32", 512, 256};
	md_safetensors(in_dir("peft"), "adapter_model.safetensors", &wide, 1);
	md_text(in_dir("peft"), "adapter_config.json", CONFIG(""));
	refused(in_dir("peft"), in_dir("base.gguf"), SL_EUNSUPPORTED, "save_embedding_layers=False");
	md_remove_folder("peft");
	md_remove(in_dir("hf"));
}

/* Numbers that are none, and files that end early. */
static void test_damaged(void **arg)
{
	(void)arg;
	size_t n;
	struct adapter_make m = making(tiny, in_dir("a.gguf"));
	made(&m);
	m.out = in_dir("peft");
	made(&m);
	uint8_t *bytes = md_read(in_dir("peft"), "adapter_model.safetensors", &n);
	const float bad[] = {NAN, INFINITY};
	for (int i = 0; i < 2; i++) {
		memcpy(bytes + n - 40 * sizeof(float), &bad[i], sizeof bad[i]);
		md_write(in_dir("peft"), "adapter_model.safetensors", bytes, n);
		refused(in_dir("peft"), tiny, SL_EINVAL,
			"half B of tensor base_model.model.model.layers.1.mlp.down_proj.lora_B.weight");
	}
	for (size_t cut = 1; cut < n; cut = cut * 3 + 1) {
		md_write(in_dir("peft"), "adapter_model.safetensors", bytes, n - cut);
		refused(in_dir("peft"), tiny, SL_EINVAL, "adapter_model.safetensors");
	}
	free(bytes);
	bytes = md_read(dir, "a.gguf", &n);
	for (size_t cut = 1; cut < n; cut = cut * 3 + 1) {
		md_write(dir, "a.gguf", bytes, n - cut);
		refused(in_dir("a.gguf"), tiny, SL_EINVAL, "a.gguf");
	}
	free(bytes);
	md_remove_folder("peft");
}

static void gguf_adapter(const char *kind, const char *type, const char *family, float alpha, const char *more)
{
	static struct gw w;
	static const uint64_t a[] = {256, 1}, b[] = {1, 256};
	w.n = 0;
	gw_head(&w, 3, 2, 4 + (more != NULL));
	gw_key(&w, "general.type", 8), gw_str(&w, kind);
	gw_key(&w, "adapter.type", 8), gw_str(&w, type);
	gw_key(&w, "general.architecture", 8), gw_str(&w, family);
	gw_key(&w, "adapter.lora.alpha", 6), gw_f32(&w, alpha);
	if (more != NULL)
		gw_key(&w, more, 4), gw_u32(&w, 1);
	gw_tensor(&w, "blk.0.attn_q.weight.lora_a", 2, a, 0, 0);
	gw_tensor(&w, "blk.0.attn_q.weight.lora_b", 2, b, 0, 1024);
	gw_pad(&w, 32);
	for (int i = 0; i < 2048; i += 4)
		gw_f32(&w, 1);
	md_write(dir, "a.gguf", w.at, w.n);
}

static void test_gguf_refused(void **arg)
{
	(void)arg;
	gguf_adapter("adapter", "lora", "llama", 2, NULL);
	struct adapter *a = opened(in_dir("a.gguf"), tiny);
	assert_true(adapter_at(a, 0, ADAPTER_Q)->scale == 2 && adapter_at(a, 1, ADAPTER_Q)->rank == 0);
	adapter_close(a);
	gguf_adapter("model", "lora", "llama", 2, NULL);
	refused(in_dir("a.gguf"), tiny, SL_EINVAL, "general.type is \"model\"");
	gguf_adapter("adapter", "control", "llama", 2, NULL);
	refused(in_dir("a.gguf"), tiny, SL_EUNSUPPORTED, "adapter.type is \"control\"");
	gguf_adapter("adapter", "lora", "qwen2", 2, NULL);
	refused(in_dir("a.gguf"), tiny, SL_EINVAL, "general.architecture is \"qwen2\"");
	gguf_adapter("adapter", "lora", "llama", 0, NULL);
	refused(in_dir("a.gguf"), tiny, SL_EINVAL, "adapter.lora.alpha is 0");
	gguf_adapter("adapter", "lora", "llama", NAN, NULL);
	refused(in_dir("a.gguf"), tiny, SL_EINVAL, "adapter.lora.alpha is");
	gguf_adapter("adapter", "lora", "llama", 2, "adapter.alora.invocation_tokens");
	refused(in_dir("a.gguf"), tiny, SL_EUNSUPPORTED, "adapter.alora.invocation_tokens");
	/* Of another shape, of experts, of joined matrices, of an encoder. */
	gguf_adapter("adapter", "lora", "llama", 2, NULL);
	refused(in_dir("a.gguf"), "random:test-30m:f32", SL_EINVAL, "blk.0.attn_q.weight has 512");
	gguf_adapter("adapter", "lora", "phi3", 2, NULL);
	refused(in_dir("a.gguf"), "random:tiny-phi3:f32", SL_EINVAL, "which the base does not have");
	refused(in_dir("a.gguf"), "random:tiny-bert:f32", SL_EUNSUPPORTED, "encoders");
	refused(in_dir("a.gguf"), "random:tiny-deepseek2:f32", SL_EUNSUPPORTED, "latent attention");
	refused(in_dir("a.gguf"), "random:tiny-lfm2:f32", SL_EUNSUPPORTED, "layers that keep a state");
	refused(in_dir("none.gguf"), tiny, SL_EIO, "none.gguf");
}

/* A file of one matrix, of halves in F16, whose number `bad` is none; b NULL: without B. */
static void gguf_matrix(const char *matrix, const uint64_t a[3], const uint64_t *b, size_t bad)
{
	static struct gw w;
	char name[96];
	uint64_t n_a = a[0] * a[1] * a[2], n_b = b != NULL ? b[0] * b[1] * b[2] : 0, begin = (2 * n_a + 31) / 32 * 32;
	w.n = 0;
	gw_head(&w, 3, 1 + (b != NULL), 4);
	gw_key(&w, "general.type", 8), gw_str(&w, "adapter");
	gw_key(&w, "adapter.type", 8), gw_str(&w, "lora");
	gw_key(&w, "general.architecture", 8), gw_str(&w, "llama");
	gw_key(&w, "adapter.lora.alpha", 6), gw_f32(&w, 2);
	snprintf(name, sizeof name, "%s.lora_a", matrix);
	gw_tensor(&w, name, a[2] > 1 ? 3 : 2, a, 1, 0);
	snprintf(name, sizeof name, "%s.lora_b", matrix);
	if (b != NULL)
		gw_tensor(&w, name, b[2] > 1 ? 3 : 2, b, 1, begin);
	gw_pad(&w, 32);
	for (size_t i = 0; i < begin / 2 + n_b; i++)
		gw_int(&w, i == bad ? 0x7e00 : 0x3c00, 2);
	md_write(dir, "a.gguf", w.at, w.n);
}

static void test_gguf_matrices(void **arg)
{
	(void)arg;
	static const struct {
		const char *matrix;
		uint64_t a[3], b[3]; /* as GGUF has dimensions; b 0: absent */
		size_t bad;
		const char *words;
		int code;
	} cases[] = {
	    {"blk.0.ffn_up_exps.weight", {256, 1, 3}, {1, 512, 3}, 0, "expert 0 to 2, but the base has 4", SL_EINVAL},
	    {"blk.0.ffn_up_exps.weight", {256, 1, 5}, {1, 512, 5}, 0, "expert 0 to 4, but the base has 4", SL_EINVAL},
	    {"blk.0.ffn_up_exps.weight", {256, 1, 4}, {1, 512, 3}, 0, "expert 0 to 2, but the base has 4", SL_EINVAL},
	    {"blk.0.ffn_up_exps.weight", {256, 1, 4}, {1, 511, 4}, 0, "for 511 outputs", SL_EINVAL},
	    {"blk.0.ffn_up_exps.weight", {255, 1, 4}, {1, 512, 4}, 0, "for 255 inputs", SL_EINVAL},
	    {"blk.0.ffn_up_exps.weight", {256, 1, 4}, {0}, 0, "its other half, B, is missing", SL_EINVAL},
	    {"blk.0.ffn_up_exps.weight",
	     {256, 1, 4},
	     {1, 512, 4},
	     1024 + 512 + 7,
	     "half B of tensor blk.0.ffn_up_exps",
	     SL_EINVAL},
	    {"blk.0.ffn_up.4.weight", {256, 1, 1}, {1, 512, 1}, 0, "expert 4, but the base has 4", SL_EINVAL},
	    {"blk.0.ffn_up.99999999.weight",
	     {256, 1, 1},
	     {1, 512, 1},
	     0,
	     "adapters of blk.0.ffn_up.99999999.weight",
	     SL_EUNSUPPORTED},
	    {"blk.0.ffn_up.1.weight", {256, 1, 2}, {1, 512, 2}, 0, "has 3 dimensions", SL_EUNSUPPORTED},
	    {"blk.0.ffn_gate_inp.weight", {256, 1, 1}, {1, 4, 1}, 0, "adapters of blk.0.ffn_gate_inp", SL_EUNSUPPORTED},
	    {"blk.0.ffn_up.weight", {256, 1, 1}, {1, 512, 1}, 0, "which the base does not have", SL_EINVAL},
	    {"blk.0.ffn_up_shexp.weight", {256, 1, 1}, {1, 512, 1}, 0, "which the base does not have", SL_EINVAL},
	    {"blk.0.token_embd.weight", {1, 512, 1}, {1, 256, 1}, 0, "adapters of blk.0.token_embd", SL_EUNSUPPORTED},
	    {"token_embd.weight", {1, 511, 1}, {1, 256, 1}, 0, "for 511 outputs", SL_EINVAL},
	    {"token_embd.weight", {1, 512, 1}, {1, 255, 1}, 0, "for 255 inputs", SL_EINVAL},
	    {"token_embd.weight", {1, 512, 1}, {2, 256, 1}, 0, "has rank 2", SL_EINVAL},
	    {"token_embd.weight", {512, 1, 1}, {1, 256, 1}, 0, "has rank 512", SL_EUNSUPPORTED},
	    {"token_embd.weight", {1, 512, 1}, {0}, 0, "its other half, B, is missing", SL_EINVAL},
	    {"token_embd.weight", {1, 512, 1}, {1, 256, 1}, 9, "half A of tensor token_embd.weight", SL_EINVAL},
	    {"output.weight", {256, 1, 1}, {1, 513, 1}, 0, "for 513 outputs", SL_EINVAL},
	};
	static const char mixture[] = "random:tiny-mixtral:f32";
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		gguf_matrix(cases[i].matrix, cases[i].a, cases[i].b[0] > 0 ? cases[i].b : NULL,
			    cases[i].bad > 0 ? cases[i].bad : SIZE_MAX);
		refused(in_dir("a.gguf"), mixture, cases[i].code, cases[i].words);
	}
	gguf_matrix("blk.0.ffn_up_exps.weight", (const uint64_t[]){256, 1, 4}, (const uint64_t[]){1, 512, 4}, SIZE_MAX);
	adapter_close(opened(in_dir("a.gguf"), mixture));
}

/* ---- what is saved beside an adapter ---- */

#define VOCAB                                                                                                      \
	"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"unk_token\":" \
	"\"k\",\"merges\":[],"                                                                                     \
	"\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"e\":4,\"f\":5,\"g\":6,\"h\":7,\"i\":8,\"j\":9,\"k\":10}}"
#define WITH_T "{\"added_tokens\":[{\"id\":11,\"content\":\"<t>\",\"special\":true}]," VOCAB "}"

static void write_beside(void)
{
	mkdir(in_dir("hf"), 0755);
	md_llama_folder(in_dir("hf"));
	md_text(in_dir("hf"), "tokenizer.json", WITH_T);
	write_peft("self_attn.q_proj", 8, 8);
}

static bool opens(const char *base)
{
	struct adapter *a = NULL;
	struct sl_err err = {0};
	int rc = adapter_open_with(in_dir("peft"), base, &a, &err);
	adapter_close(a);
	return rc == 0;
}

static void test_added_tokens(void **arg)
{
	(void)arg;
	static const struct {
		const char *name, *text, *said; /* said NULL: it fits */
		int code;
	} cases[] = {
	    {"tokenizer.json", WITH_T, NULL, 0},
	    {"tokenizer.json", "{\"added_tokens\":[{\"content\":\"\\u003ct>\",\"id\":11}]}", NULL, 0},
	    {"tokenizer.json", "{\"added_tokens\":[{\"id\":11,\"content\":\"<u>\"}]}",
	     "tokenizer.json: the base's vocabulary does not have the added token \"<u>\" with id 11", SL_EUNSUPPORTED},
	    {"tokenizer.json", "{\"added_tokens\":[{\"id\":10,\"content\":\"<t>\"}]}", "\"<t>\" with id 10",
	     SL_EUNSUPPORTED},
	    {"tokenizer.json", "{\"added_tokens\":[{\"id\":12,\"content\":\"<v>\"}]}", "\"<v>\" with id 12",
	     SL_EUNSUPPORTED},
	    {"tokenizer.json", "{\"added_tokens\":[{\"id\":18446744073709551615,\"content\":\"a\"}]}", "has no id",
	     SL_EINVAL},
	    {"tokenizer.json", "{\"added_tokens\":[{\"id\":4294967296,\"content\":\"a\"}]}", "id 4294967296",
	     SL_EUNSUPPORTED},
	    {"tokenizer.json", "{\"added_tokens\":[{\"id\":11,\"content\":\"x\\n\"}]}", "\"?\" with id 11",
	     SL_EUNSUPPORTED},
	    {"tokenizer.json", "{\"added_tokens\":[{\"id\":11}]}", "has no content", SL_EINVAL},
	    {"tokenizer.json", "{\"added_tokens\":[{\"content\":\"<t>\"}]}", "has no id", SL_EINVAL},
	    {"tokenizer.json", "{\"added_tokens\":[{\"id\":11,\"content\":\"\\ud8zz\"}]}",
	     "tokenizer.json: ", SL_EINVAL},
	    {"tokenizer.json", "{\"added_tokens\":7}", "tokenizer.json: byte", SL_EINVAL},
	    {"tokenizer.json", "{\"added_tokens\":[", "tokenizer.json: byte", SL_EINVAL},
	    {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"11\":{\"content\":\"<t>\",\"lstrip\":false}}}",
	     NULL, 0},
	    {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"12\":{\"content\":\"<u>\"}}}",
	     "tokenizer_config.json: the base's vocabulary does not have the added token \"<u>\"", SL_EUNSUPPORTED},
	    {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"<t>\"}}}", "has no id",
	     SL_EINVAL},
	    {"added_tokens.json", "{\"<t>\":11}", NULL, 0},
	    {"added_tokens.json", "{\"<t>\":11,\"<u>\":12}", "added_tokens.json: the base's", SL_EUNSUPPORTED},
	    {"added_tokens.json", "{\"<t>\":-1}", "added_tokens.json: byte", SL_EINVAL},
	};
	write_beside();
	assert_true(opens(in_dir("hf")));
	struct model_file *f;
	struct tokenizer *t;
	struct sl_err err = {0};
	assert_int_equal(model_file_open(in_dir("hf"), &f, &err), 0);
	if (model_file_tokenizer(f, &t, &err) != 0)
		fail_msg("%s", err.text);
	struct adapter *a = opened(in_dir("peft"), in_dir("hf"));
	assert_false(adapter_has_tokens(a));
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		err = (struct sl_err){0};
		md_text(in_dir("peft"), cases[i].name, cases[i].text);
		int rc = adapter_check_tokens(a, t, &err);
		if (rc != cases[i].code || (rc != 0 && strstr(err.text, cases[i].said) == NULL) ||
		    strchr(err.text, '\n') != NULL)
			fail_msg("%s: %d \"%s\"", cases[i].text, rc, err.text);
		assert_true(adapter_has_tokens(a) && opens(in_dir("hf")) == (rc == 0));
		assert_true(opens(NULL)); /* without a base, nothing is compared */
		md_remove_file(in_dir("peft"), cases[i].name);
	}
	adapter_close(a);
	tokenizer_destroy(t);
	model_file_close(f);
	md_remove_folder("peft");
	md_remove(in_dir("hf"));
}

static void test_own_template(void **arg)
{
	(void)arg;
	static const struct {
		const char *name, *text, *base;
		bool own;
	} cases[] = {
	    {"chat_template.jinja", "{{ a }}\n", "{{ a }}", false},
	    {"chat_template.jinja", "{{ a }}", "{{ a }}\n", false},
	    {"chat_template.jinja", "{{ b }}", "{{ a }}", true},
	    {"chat_template.jinja", "{{ a }}", "", true},
	    {"tokenizer_config.json", "{\"chat_template\":\"{{ a }}\"}", "{{ a }}", false},
	    {"tokenizer_config.json", "{\"chat_template\":\"{{ b }}\"}", "{{ a }}", true},
	    {"tokenizer_config.json", "{}", "{{ a }}", false},
	};
	char *own;
	size_t n;
	struct sl_err err = {0};
	write_beside();
	struct adapter *a = opened(in_dir("peft"), NULL);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct proto_str base = {cases[i].base, strlen(cases[i].base)};
		md_text(in_dir("peft"), cases[i].name, cases[i].text);
		assert_int_equal(adapter_own_template(a, base, &own, &n, &err), 0);
		assert_int_equal(own != NULL, cases[i].own);
		assert_true(own == NULL || memmem(cases[i].text, strlen(cases[i].text), own, n) != NULL);
		sl_free(own);
		md_remove_file(in_dir("peft"), cases[i].name);
	}
	md_text(in_dir("peft"), "tokenizer_config.json", "{\"chat_template\":\"\\q\"}");
	assert_int_equal(adapter_own_template(a, (struct proto_str){"", 0}, &own, &n, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "tokenizer_config.json"));
	md_remove_file(in_dir("peft"), "tokenizer_config.json");
	adapter_close(a);
	md_remove_folder("peft");
	md_remove(in_dir("hf"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_forms, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_experts, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_scales, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_merge, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_merge_tied, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_rows_of_heads, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_config_refused, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_tensors_refused, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_copies, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_gguf_refused, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_gguf_matrices, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_added_tokens, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_own_template, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
