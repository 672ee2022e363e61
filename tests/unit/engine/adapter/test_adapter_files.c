/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters on disk: both forms say the same of the same numbers, and rows of queries and keys follow the base's form;
 * merged models; what trainers save beside an adapter.
 */
#include "adapter_fixture.h"

#include <math.h>

#include "base/alloc.h"
#include "engine/adapter/adapter_merge.h"
#include "engine/source/random_model.h"

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
	    cmocka_unit_test_setup_teardown(test_added_tokens, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_own_template, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
