/* SPDX-License-Identifier: Apache-2.0
 *
 * Models that are written: random ones and converted ones are read back, and what is converted on load
 * is what would have been written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "engine/source/quantize_model.h"
#include "tests/unit/engine/source/model_files.h"

static void same_bytes(const char *a, const char *b, bool same)
{
	size_t na, nb;
	uint8_t *x = md_read(dir, a, &na), *y = md_read(dir, b, &nb);
	assert_int_equal(na == nb && memcmp(x, y, na) == 0, same);
	free(x);
	free(y);
}

static void test_random(void **arg)
{
	(void)arg;
	struct model_arch a;
	struct sl_err err = {0};
	random_file("a.gguf", "tiny-llama", "q4_k", 7, 1);
	random_file("b.gguf", "tiny-llama", "q4_k", 7, 3);
	random_file("c.gguf", "tiny-llama", "q4_k", 8, 3);
	same_bytes("a.gguf", "b.gguf", true);
	same_bytes("a.gguf", "c.gguf", false);
	struct model_file *f = opened("a.gguf");
	struct tokenizer *t;
	assert_int_equal(model_file_arch(f, &a, &err), 0);
	assert_true(a.n_embd == 256 && a.n_vocab == 512 && a.rope.n_factors == 32);
	assert_int_equal(model_file_tokenizer(f, &t, &err), 0);
	assert_int_equal(tokenizer_n_vocab(t), 512);
	/* " the" is one letter and three merges that the made-up vocabulary has in part. */
	struct tok_ids ids = {0};
	assert_int_equal(tokenizer_encode(t, "hello the", 9, NULL, &ids), 0);
	assert_true(ids.n < 9);
	tok_ids_dispose(&ids);
	tokenizer_destroy(t);
	model_file_close(f);
	/* A vocabulary of words of up to four letters: no token stands twice. */
	random_file("v.gguf", "test-30m", "q8_0", 1, 0);
	f = opened("v.gguf");
	assert_int_equal(model_file_tokenizer(f, &t, &err), 0);
	assert_int_equal(tokenizer_n_vocab(t), 8192);
	tokenizer_destroy(t);
	model_file_close(f);
	assert_int_equal(random_shape_find("llama-9", &a, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "qwen3-0.6b"));
	/* Every shape is one that heads can be cut from. */
	const char *name;
	for (size_t i = 0; (name = random_shape_at(i, &a)) != NULL; i++)
		assert_true(a.n_heads % a.n_kv_heads == 0 && a.head_dim % 2 == 0 && a.n_vocab >= RANDOM_LEAST_VOCAB);
}

/* The converter of Phi-3.5-MoE names the epsilon of its layer norms as that of RMS norms. */
static void test_epsilon_keys(void **arg)
{
	static const struct {
		const char *shape, *key, *other;
	} cases[] = {{"tiny-phimoe", "phimoe.attention.layer_norm_rms_epsilon", "phimoe.attention.layer_norm_epsilon"},
		     {"tiny-falcon", "falcon.attention.layer_norm_epsilon", "falcon.attention.layer_norm_rms_epsilon"},
		     {"tiny-olmo2", "olmo2.attention.layer_norm_rms_epsilon", "olmo2.attention.layer_norm_epsilon"}};
	(void)arg;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct model_arch a;
		struct sl_err err = {0};
		float eps = 0;
		random_file("e.gguf", cases[i].shape, "q8_0", 3, 0);
		struct model_file *f = opened("e.gguf");
		assert_int_equal(gguf_get_f32(model_file_gguf(f), cases[i].key, &eps, &err), 0);
		assert_int_equal(gguf_get_f32(model_file_gguf(f), cases[i].other, &eps, &err), SL_ENOTFOUND);
		arch_of(f, &a);
		assert_true(a.rms_eps == eps && eps > 0);
		model_file_close(f);
	}
}

static int convert(const char *from, const char *to, const char *type, struct sl_err *err)
{
	char in[256], out[256];
	struct quantize_how how = {.replace = true, .n_threads = 2};
	md_path(in, dir, from);
	md_path(out, dir, to);
	*err = (struct sl_err){0};
	int rc = weight_plan_parse(type, &how.plan, err);
	return rc != 0 ? rc : quantize_model(in, out, &how, NULL, NULL, err);
}

static int type_of(const struct model_file *f, const char *name)
{
	const struct model_tensor *t = model_file_find(f, name);
	return t != NULL ? t->type : -1;
}

static void test_quantize(void **arg)
{
	(void)arg;
	struct sl_err err;
	random_file("f.gguf", "tiny-gemma3", "f32", 3, 0);
	assert_int_equal(convert("f.gguf", "m.gguf", "Q4_K_M", &err), 0);
	struct model_file *from = opened("f.gguf"), *to = opened("m.gguf");
	assert_int_equal(model_file_n_tensors(from), model_file_n_tensors(to));
	assert_int_equal(gguf_n_keys(model_file_gguf(from)), gguf_n_keys(model_file_gguf(to)));
	/* Tied: the embeddings are the output. Of 7 layers the first eighth is none, the last layer 6. */
	assert_int_equal(type_of(to, "token_embd.weight"), KN_Q6_K);
	assert_int_equal(type_of(to, "blk.0.attn_q.weight"), KN_Q4_K);
	assert_int_equal(type_of(to, "blk.1.attn_v.weight"), KN_Q4_K);
	assert_int_equal(type_of(to, "blk.2.attn_v.weight"), KN_Q6_K);
	assert_int_equal(type_of(to, "blk.6.ffn_down.weight"), KN_Q6_K);
	assert_int_equal(type_of(to, "blk.6.attn_norm.weight"), KN_F32);
	for (size_t i = 0; i < model_file_n_tensors(from); i++) {
		const struct model_tensor *a = model_file_tensor_at(from, i), *b = model_file_find(to, a->name);
		size_t n = (size_t)(a->dims[0] * a->dims[1]);
		float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
		double wrong = 0, sum = 0;
		kn_dequantize(a->type, a->data, n, x);
		kn_dequantize(b->type, b->data, n, y);
		for (size_t k = 0; k < n; k++) {
			wrong += (double)(x[k] - y[k]) * (double)(x[k] - y[k]);
			sum += (double)x[k] * (double)x[k];
		}
		/* Four bits: a step of a fifteenth of some 5 deviations, so an error of a tenth. */
		if (!(wrong <= 0.015 * sum))
			fail_msg("%s: relative squared error %g", a->name, wrong / sum);
		free(x);
		free(y);
	}
	model_file_close(from);
	model_file_close(to);
	/* The same type is a copy; a wrong name and a place that can't be written are told. */
	assert_int_equal(convert("m.gguf", "n.gguf", "q8_0", &err), 0);
	assert_int_equal(convert("n.gguf", "o.gguf", "q8_0", &err), 0);
	same_bytes("n.gguf", "o.gguf", true);
	assert_int_equal(convert("n.gguf", "o.gguf", "q9", &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "Q4_K"));
	/* What is made on load only is in no file. */
	assert_int_equal(convert("n.gguf", "o.gguf", "int4", &err), SL_EINVAL);
	assert_null(strstr(err.text, "INT4,"));
	assert_int_equal(convert("n.gguf", "nowhere/o.gguf", "q8_0", &err), SL_EIO);
	assert_int_equal(convert("none.gguf", "o.gguf", "q8_0", &err), SL_EIO);
}

/* On load it becomes what `quantize` writes. */
static void test_quantize_in_memory(void **arg)
{
	(void)arg;
	struct sl_err err;
	struct convert_progress p = {0};
	random_file("f.gguf", "tiny-llama", "bf16", 3, 0);
	assert_int_equal(convert("f.gguf", "q.gguf", "q8_0", &err), 0);
	struct model_file *a = opened("f.gguf"), *b = opened("q.gguf");
	assert_int_equal(model_file_quantize(a, KN_Q8_0, 3, &p, &err), 0);
	assert_true(p.total > 0 && p.done == p.total);
	for (size_t i = 0; i < model_file_n_tensors(b); i++) {
		const struct model_tensor *want = model_file_tensor_at(b, i), *got = model_file_find(a, want->name);
		assert_int_equal(got->type, want->type);
		assert_int_equal(got->bytes, want->bytes);
		assert_memory_equal(got->data, want->data, want->bytes);
	}
	model_file_close(b);
	model_file_close(a);
	/* INT4 is made of Q8_0 too, not of other blocks, and not of what tokens begin and end with. */
	a = opened("q.gguf");
	const struct model_tensor *q8 = model_file_find(a, "blk.1.attn_q.weight");
	size_t n4 = (size_t)(q8->dims[0] * q8->dims[1]);
	float *x = calloc(n4, sizeof *x);
	uint8_t *want = calloc(n4 / 128, 66);
	kn_dequantize(KN_Q8_0, q8->data, n4, x);
	assert_int_equal(kn_quantize_row(KN_INT4, x, n4, want), 0);
	p = (struct convert_progress){0};
	assert_int_equal(model_file_quantize(a, KN_INT4, 2, &p, &err), 0);
	assert_true(p.total > 0 && p.done == p.total);
	assert_int_equal(q8->type, KN_INT4);
	assert_int_equal(q8->bytes, n4 / 128 * 66);
	assert_memory_equal(q8->data, want, n4 / 128 * 66);
	free(x);
	free(want);
	assert_int_equal(type_of(a, "token_embd.weight"), KN_Q8_0);
	assert_true(model_file_find(a, "output.weight") == NULL || type_of(a, "output.weight") == KN_Q8_0);
	model_file_close(a);
	assert_int_equal(convert("f.gguf", "q4.gguf", "q4_0", &err), 0);
	a = opened("q4.gguf");
	assert_int_equal(model_file_quantize(a, KN_INT4, 2, NULL, &err), 0);
	assert_int_equal(type_of(a, "blk.1.attn_q.weight"), KN_Q4_0);
	model_file_close(a);
	/* Rows that no block fits stay as they are. */
	md_llama_folder(dir);
	a = opened("");
	assert_int_equal(model_file_quantize(a, KN_Q8_0, 1, NULL, &err), 0);
	assert_int_equal(type_of(a, "token_embd.weight"), KN_BF16);
	model_file_close(a);
	/* A weight that is not a number is a fault of the file. */
	size_t n;
	uint8_t *bytes = md_read(dir, "f.gguf", &n);
	memset(bytes + n - 64, 0xff, 64);
	md_write(dir, "f.gguf", bytes, n);
	free(bytes);
	a = opened("f.gguf");
	assert_int_equal(model_file_quantize(a, KN_Q8_0, 1, NULL, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "blk.1.ffn_down.weight can't be converted to Q8_0"));
	model_file_close(a);
	assert_int_equal(convert("f.gguf", "q.gguf", "q8_0", &err), SL_EINVAL);
}

static void test_quantize_folder(void **arg)
{
	(void)arg;
	struct sl_err err;
	struct model_arch a;
	md_llama_folder(dir);
	/* With a token whose id leaves a gap. */
	char *gap = strdup(md_tokenizer);
	memcpy(strstr(gap, "\"b\":3"), "\"z\":8", 5);
	md_text(dir, "tokenizer.json", gap);
	free(gap);
	if (convert("", "out.gguf", "f32", &err) != 0)
		fail_msg("%s", err.text);
	struct model_file *f = opened("out.gguf");
	assert_int_equal(model_file_arch(f, &a, &err), 0);
	assert_true(!a.rope.halves && a.rope.base == 20000 && a.n_ctx == 64 && a.n_kv_heads == 1);
	check_values(f, "blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight");
	/* Rows 0 1 2 3 of a head become 0 2 1 3: the pair (i, i + 2) are neighbours. */
	static const size_t from[] = {0, 2, 1, 3, 4, 6, 5, 7};
	const float *q = model_file_find(f, "blk.0.attn_q.weight")->data;
	for (size_t row = 0; row < 8; row++)
		for (size_t i = 0; i < 8; i++)
			assert_true(q[row * 8 + i] ==
				    md_value("model.layers.0.self_attn.q_proj.weight", from[row] * 8 + i));
	struct gguf_array list;
	struct proto_str s;
	const struct gguf *g = model_file_gguf(f);
	uint32_t id;
	bool bos;
	assert_int_equal(gguf_get_array(g, "tokenizer.ggml.tokens", &list, &err), 0);
	assert_int_equal(list.n, 9);
	static const char *const tokens[] = {"<s>", "</s>", "a", "[PAD3]", "\xc4\xa0", "ab", "\"", "[PAD7]", "z"};
	for (size_t i = 0; i < 9; i++) {
		assert_true(gguf_next_string(&list, &s));
		assert_true(s.n == strlen(tokens[i]) && memcmp(s.at, tokens[i], s.n) == 0);
	}
	assert_int_equal(gguf_get_array(g, "tokenizer.ggml.token_type", &list, &err), 0);
	assert_int_equal(gguf_array_int(&list, 0), 3);
	assert_int_equal(gguf_array_int(&list, 2), 1);
	assert_int_equal(gguf_array_int(&list, 7), 5);
	assert_int_equal(gguf_get_array(g, "tokenizer.ggml.merges", &list, &err), 0);
	assert_int_equal(list.n, 2);
	assert_int_equal(gguf_get_str(g, "tokenizer.ggml.pre", &s, &err), 0);
	assert_true(s.n == 5 && memcmp(s.at, "gpt-2", 5) == 0);
	assert_int_equal(gguf_get_u32(g, "tokenizer.ggml.eos_token_id", &id, &err), 0);
	assert_int_equal(id, 1);
	assert_int_equal(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &bos, &err), 0);
	assert_true(bos);
	assert_int_equal(model_file_template(f, &s, &err), 0);
	model_file_close(f);

	/* The rows of families whose pairs GGUF has side by side, too; of those whose folders have them so, not. */
	static const struct {
		const char *config;
		bool turned;
	} others[] = {{"{\"model_type\":\"smollm3\"," SHAPE "}", true},
		      {"{\"model_type\":\"granite\"," SHAPE "}", true},
		      {"{\"model_type\":\"ernie4_5\"," SHAPE "}", false}};
	for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
		md_text(dir, "config.json", others[k].config);
		if (convert("", "out.gguf", "f32", &err) != 0)
			fail_msg("%s", err.text);
		f = opened("out.gguf");
		q = model_file_find(f, "blk.0.attn_q.weight")->data;
		size_t second = others[k].turned ? 2 : 1;
		for (size_t i = 0; i < 8; i++)
			assert_true(q[8 + i] == md_value("model.layers.0.self_attn.q_proj.weight", second * 8 + i));
		model_file_close(f);
	}

	/* Gemma's gains have the one added; a window and its pattern are said. */
	md_text(dir, "config.json",
		"{\"model_type\":\"gemma2\"," SHAPE ",\"attn_logit_softcapping\":50.0,"
		"\"final_logit_softcapping\":null}");
	if (convert("", "out.gguf", "bf16", &err) != 0)
		fail_msg("%s", err.text);
	f = opened("out.gguf");
	const float *gain = model_file_find(f, "output_norm.weight")->data;
	for (size_t i = 0; i < 8; i++)
		assert_true(gain[i] == md_value("model.norm.weight", i) + 1);
	assert_int_equal(gguf_get_u32(model_file_gguf(f), "gemma2.attention.sliding_window", &id, &err), 0);
	assert_int_equal(id, 4096);
	assert_int_equal(gguf_get_u32(model_file_gguf(f), "gemma2.final_logit_softcapping", &id, &err), SL_ENOTFOUND);
	model_file_close(f);
	/* Yarn with a factor of its own comes back as it was. */
	md_text(dir, "config.json",
		MD_LLAMA_CONFIG ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"beta_fast\":16,"
				"\"attention_factor\":1.5}}");
	if (convert("", "out.gguf", "bf16", &err) != 0)
		fail_msg("%s", err.text);
	f = opened("out.gguf");
	arch_of(f, &a);
	assert_true(a.rope.scaling == ARCH_ROPE_YARN && a.rope.beta_fast == 16 && a.rope.beta_slow == 1);
	assert_true(fabs(a.rope.magnitude - 1.5) < 1e-6 && a.n_ctx == 256 && a.rope.original_ctx == 64);
	model_file_close(f);
	md_text(dir, "config.json", MD_LLAMA_CONFIG "}");

	md_text(dir, "tokenizer.json", "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0.5]]}}");
	assert_int_equal(convert("", "out.gguf", "f32", &err), SL_EUNSUPPORTED);
	md_text(dir, "tokenizer.json",
		"{\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"model\":{\"type\":\"BPE\",\"vocab\":{},"
		"\"merges\":[]}}");
	assert_int_equal(convert("", "out.gguf", "f32", &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.text, "no name in GGUF"));
	md_text(dir, "tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":2000000},\"merges\":[]}}");
	assert_int_equal(convert("", "out.gguf", "f32", &err), SL_EINVAL);
	/* SentencePiece's: a token's score is the rank of its first merge. */
	md_text(dir, "tokenizer.json",
		"{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,"
		"\"a\":1,"
		"\"b\":2,\"ab\":3,\"ba\":4,\"<0x0A>\":5},\"merges\":[\"b a\",\"a b\"]}}");
	if (convert("", "out.gguf", "f32", &err) != 0)
		fail_msg("%s", err.text);
	f = opened("out.gguf");
	g = model_file_gguf(f);
	assert_int_equal(gguf_get_array(g, "tokenizer.ggml.scores", &list, &err), 0);
	assert_true(gguf_array_f32(&list, 4) == 0 && gguf_array_f32(&list, 3) == -1 &&
		    gguf_array_f32(&list, 1) < -1000);
	assert_int_equal(gguf_get_array(g, "tokenizer.ggml.token_type", &list, &err), 0);
	assert_true(gguf_array_int(&list, 0) == 2 && gguf_array_int(&list, 5) == 6);
	model_file_close(f);
	/* Nothing half-written is left. */
	DIR *d = opendir(dir);
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
		assert_null(strstr(e->d_name, "partial"));
	closedir(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_random, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_epsilon_keys, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_quantize, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_quantize_in_memory, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_quantize_folder, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
