/* SPDX-License-Identifier: Apache-2.0
 *
 * Models on disk in all their forms: split GGUF files, Hugging Face folders, what is written is read
 * back, and what is malformed costs a line and little memory: some hundred files, each changed in a
 * few places, the same at every run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "engine/hf_folder.h"
#include "engine/model_file.h"
#include "engine/quantize_model.h"
#include "engine/random_model.h"
#include "kernels/quantize.h"
#include "tests/support/alloc_meter.h"
#include "tests/support/gguf_write.h"
#include "tests/support/model_dir.h"

static char dir[128];

static int setup(void **arg)
{
	(void)arg;
	md_make(dir);
	return 0;
}

static int teardown(void **arg)
{
	(void)arg;
	md_remove(dir);
	return 0;
}

/* Refused with that code and those words in one line. */
static void refused(const char *name, int code, const char *words)
{
	char path[256];
	struct sl_err err = {0};
	struct model_file *f = NULL;
	struct model_arch arch;
	md_path(path, dir, name);
	int rc = model_file_open(path, &f, &err);
	if (rc == 0) {
		rc = model_file_arch(f, &arch, &err);
		model_file_close(f);
	}
	if (rc != code || strstr(err.text, words) == NULL || strchr(err.text, '\n') != NULL)
		fail_msg("%d \"%s\", not %d with \"%s\"", rc, err.text, code, words);
}

static struct model_file *opened(const char *name)
{
	char path[256];
	struct sl_err err = {0};
	struct model_file *f = NULL;
	md_path(path, dir, name);
	if (model_file_open(path, &f, &err) != 0)
		fail_msg("%s", err.text);
	return f;
}

/* ---- split files ---- */

/* Part i of n, with a vector of i + 1 floats, each its part's number. */
static void write_part(const char *name, uint32_t i, uint32_t n, uint32_t in_all)
{
	static struct gw w;
	char tensor[16];
	w.n = 0;
	gw_head(&w, 3, 1, i == 0 ? 5 : 3);
	if (i == 0) {
		gw_key(&w, "general.name", 8), gw_str(&w, "in parts");
		gw_key(&w, "general.architecture", 8), gw_str(&w, "none");
	}
	gw_key(&w, "split.no", 2), gw_int(&w, i, 2);
	gw_key(&w, "split.count", 2), gw_int(&w, n, 2);
	gw_key(&w, "split.tensors.count", 5), gw_u32(&w, in_all);
	snprintf(tensor, sizeof tensor, "t%u", i);
	gw_tensor(&w, tensor, 1, (uint64_t[]){i + 1}, 0, 0);
	gw_pad(&w, 32);
	for (uint32_t k = 0; k <= i; k++)
		gw_f32(&w, (float)i);
	md_write(dir, name, w.at, w.n);
}

static void write_parts(void)
{
	write_part("m-00001-of-00003.gguf", 0, 3, 3);
	write_part("m-00002-of-00003.gguf", 1, 3, 3);
	write_part("m-00003-of-00003.gguf", 2, 3, 3);
}

static void test_split(void **arg)
{
	(void)arg;
	static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"};
	write_parts();
	for (size_t i = 0; i < 3; i++) {
		struct model_file *f = opened(names[i]);
		assert_string_equal(model_file_form(f), "GGUF v3 in 3 parts");
		assert_string_equal(model_file_name(f), "in parts");
		assert_int_equal(model_file_n_tensors(f), 3);
		const struct model_tensor *t = model_file_find(f, "t2");
		assert_non_null(t);
		assert_int_equal(t->dims[0], 3);
		assert_true(((const float *)t->data)[2] == 2);
		assert_null(model_file_find(f, "t3"));
		model_file_close(f);
	}
	md_remove_file(dir, names[1]);
	refused(names[0], SL_EIO, "part 2 of 3: ");
	refused(names[0], SL_EIO, "m-00002-of-00003.gguf: No such file");
	write_part(names[1], 2, 3, 3);
	refused(names[0], SL_EINVAL, "m-00002-of-00003.gguf: says it is part 3 of 3");
	write_part(names[1], 1, 4, 3);
	refused(names[2], SL_EINVAL, "says it is part 2 of 4");
	write_part(names[1], 1, 3, 3);
	write_part(names[0], 0, 3, 4);
	refused(names[0], SL_EINVAL, "split.tensors.count is 4, but the 3 parts have 3");
	write_part("other.gguf", 0, 3, 3);
	refused("other.gguf", SL_EINVAL, "is not named so (-00001-of-00003.gguf)");
	write_part("m-00001-of-00003.gguf", 3, 3, 3);
	refused("m-00001-of-00003.gguf", SL_EINVAL, "split.no is 3 of split.count 3");
	write_part("many.gguf", 0, 2000, 3);
	refused("many.gguf", SL_EINVAL, "split.count is 2000");
	/* The same tensor in two parts. */
	write_part("m-00001-of-00002.gguf", 0, 2, 2);
	size_t n;
	uint8_t *bytes = md_read(dir, "m-00001-of-00002.gguf", &n);
	memcpy((uint8_t *)memmem(bytes, n, "split.no", 8) + 12, "\1", 1);
	md_write(dir, "m-00002-of-00002.gguf", bytes, n);
	free(bytes);
	refused("m-00001-of-00002.gguf", SL_EINVAL, "duplicate tensor \"t0\"");
}

/* ---- folders ---- */

static void check_values(const struct model_file *f, const char *ours, const char *theirs)
{
	const struct model_tensor *t = model_file_find(f, ours);
	if (t == NULL)
		fail_msg("no tensor %s", ours);
	size_t n = (size_t)(t->dims[0] * t->dims[1]);
	float *values = malloc(n * sizeof *values);
	kn_dequantize(t->type, t->data, n, values);
	for (size_t i = 0; i < n; i++)
		if (values[i] != md_value(theirs, i))
			fail_msg("%s[%zu] is %g, not %g", ours, i, (double)values[i], (double)md_value(theirs, i));
	free(values);
}

static void check_llama(const char *form)
{
	struct model_arch a;
	struct sl_err err = {0};
	struct proto_str template;
	size_t n;
	struct model_file *f = opened("");
	assert_string_equal(model_file_form(f), form);
	assert_int_equal(model_file_n_tensors(f), MD_N_LLAMA);
	if (model_file_arch(f, &a, &err) != 0)
		fail_msg("%s", err.text);
	assert_string_equal(a.family, "llama");
	assert_int_equal(a.n_layers, 1);
	assert_int_equal(a.head_dim, 4);
	assert_int_equal(a.n_kv_heads, 1);
	/* Twelve rows, seven tokens. */
	assert_int_equal(a.n_vocab, 7);
	assert_false(a.tied_embeddings);
	assert_true(a.rope.halves && a.rope.base == 20000 && a.rope.n_rot == 4);
	check_values(f, "token_embd.weight", "model.embed_tokens.weight");
	check_values(f, "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight");
	check_values(f, "blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight");
	check_values(f, "output.weight", "lm_head.weight");
	assert_int_equal(model_file_find(f, "blk.0.ffn_down.weight")->dims[0], 16);
	assert_int_equal(model_file_find(f, "blk.0.attn_norm.weight")->type, KN_F32);
	assert_int_equal(model_file_template(f, &template, &err), 0);
	assert_int_equal(template.n, 12);
	assert_memory_equal(template.at, "{{ \"h\xc3\xa9\" }}\n", 12);
	const int32_t *ends = hf_end_ids(model_file_folder(f), &n);
	assert_int_equal(n, 2);
	assert_int_equal(ends[1], 5);
	model_file_close(f);
}

static void test_folder(void **arg)
{
	(void)arg;
	md_llama_folder(dir);
	check_llama("safetensors");
	md_remove_file(dir, "model.safetensors");
	md_llama_sharded(dir);
	check_llama("safetensors in 2 parts");

	md_remove_file(dir, "model-00002-of-00002.safetensors");
	refused("", SL_EIO, "model-00002-of-00002.safetensors: No such file");
	md_text(dir, "model.safetensors.index.json", "{\"weight_map\":{\"a\":\"../../secret\"}}");
	refused("", SL_EINVAL, "not a file's name");
	md_text(dir, "model.safetensors.index.json", "{\"weight_map\":{\"a\":\".hidden\"}}");
	refused("", SL_EINVAL, "not a file's name");
	md_text(dir, "model.safetensors.index.json", "{\"weight_map\":{}}");
	refused("", SL_EINVAL, "names no file");
	md_remove_file(dir, "model.safetensors.index.json");
	refused("", SL_EINVAL, "neither model.safetensors nor");
	md_text(dir, "pytorch_model.bin", "x");
	refused("", SL_EINVAL, "pytorch_model.bin is not supported");
	md_remove_file(dir, "config.json");
	refused("", SL_EINVAL, "no config.json");
}

static void test_config(void **arg)
{
	(void)arg;
	static const struct {
		const char *more; /* after MD_LLAMA_CONFIG's keys, which it can't repeat */
		int code;
		const char *words;
	} wrong[] = {
	    {",\"quantization_config\":{\"quant_method\":\"gptq\"}}", SL_EUNSUPPORTED, "gptq with bits other than 4"},
	    {",\"attention_bias\":true}", SL_EUNSUPPORTED, "attention_bias is not supported"},
	    {",\"head_dim\":3}", SL_EUNSUPPORTED, "do not fit together"},
	    {",\"head_dim\":-4}", SL_EINVAL, "head_dim is not a whole number"},
	    {",\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2}}", SL_EUNSUPPORTED, "rope_scaling is of a kind"},
	    {",\"rope_scaling\":{\"rope_type\":\"linear\"}}", SL_EINVAL, "factor of the rope scaling is missing"},
	    {",\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[1]}}", SL_EINVAL, "short_factor is not a list"},
	    {",\"partial_rotary_factor\":0.3}", SL_EINVAL, "no whole number of pairs"},
	    {",\"model_type\":\"llama\"}", SL_EINVAL, "duplicate object key"},
	    {"", SL_EINVAL, "config.json: line 1"},
	};
	md_llama_folder(dir);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		char text[2048];
		snprintf(text, sizeof text, "%s%s", MD_LLAMA_CONFIG, wrong[i].more);
		md_text(dir, "config.json", text);
		refused("", wrong[i].code, wrong[i].words);
	}
	md_text(dir, "config.json", "{\"model_type\":\"mamba\\n\"}");
	refused("", SL_EUNSUPPORTED, "model_type \"mamba \" is not supported");
	md_text(dir, "config.json", "[]");
	refused("", SL_EINVAL, "not an object");
	char deep[256];
	memset(deep, '[', sizeof deep - 1);
	deep[255] = '\0';
	md_text(dir, "config.json", deep);
	refused("", SL_EINVAL, "nested too deep");
}

static void arch_of(const struct model_file *f, struct model_arch *a)
{
	struct sl_err err = {0};
	if (model_file_arch(f, a, &err) != 0)
		fail_msg("%s", err.text);
}

/* What the families' own keys become. */
static void test_families(void **arg)
{
	(void)arg;
	struct model_arch a;
	md_llama_folder(dir);
#define SHAPE                                                                                        \
	"\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"                        \
	"\"num_key_value_heads\":1,\"intermediate_size\":16,\"max_position_embeddings\":8192,"       \
	"\"rms_norm_eps\":1e-6,\"head_dim\":4"
	md_text(dir, "config.json",
		"{\"model_type\":\"gemma3\",\"text_config\":{" SHAPE ",\"sliding_window\":512,\"query_pre_attn_scalar\":16,"
		"\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}}}");
	struct model_file *f = opened("");
	arch_of(f, &a);
	assert_string_equal(a.family, "gemma3");
	assert_true(a.qk_norm && a.post_norms && a.norm_gain_offset == 1 && a.act == ARCH_GELU_TANH);
	assert_true(a.window == 512 && a.window_pattern == 6 && a.attn_scale == 0.25f);
	assert_true(a.rope.base == 1e6 && a.rope.scaling == ARCH_ROPE_LINEAR && a.rope.factor == 8);
	assert_true(a.rope_windowed.base == 1e4 && a.rope_windowed.scaling == ARCH_ROPE_PLAIN);
	assert_non_null(model_file_find(f, "blk.0.post_attention_norm.weight"));
	model_file_close(f);
	md_text(dir, "config.json",
		"{\"model_type\":\"mistral\"," SHAPE ",\"sliding_window\":4096,\"rope_scaling\":{\"type\":\"yarn\","
		"\"factor\":4,\"original_max_position_embeddings\":4096}}");
	f = opened("");
	arch_of(f, &a);
	assert_string_equal(a.family, "llama");
	assert_true(a.window == 4096 && a.window_pattern == 0 && a.n_ctx == 16384);
	assert_true(a.rope.scaling == ARCH_ROPE_YARN && a.rope.original_ctx == 4096 && a.rope.beta_fast == 32);
	model_file_close(f);
	md_text(dir, "config.json",
		"{\"model_type\":\"phi3\"," SHAPE ",\"original_max_position_embeddings\":4096,\"rope_scaling\":{"
		"\"type\":\"longrope\",\"short_factor\":[1,2],\"long_factor\":[3,4]}}");
	f = opened("");
	arch_of(f, &a);
	assert_true(a.rope.n_factors == 2 && a.rope.factors[1] == 4 && a.window == 0);
	assert_true(fabs(a.rope.magnitude - sqrt(1 + log(2) / log(4096))) < 1e-9);
	model_file_close(f);
	md_text(dir, "config.json", "{\"model_type\":\"qwen2\"," SHAPE ",\"sliding_window\":64,\"use_sliding_window\":false}");
	f = opened("");
	arch_of(f, &a);
	assert_true(a.qkv_bias && a.window == 0 && a.norm_gain_offset == 0);
	model_file_close(f);
}

static void test_names(void **arg)
{
	(void)arg;
	static const struct {
		const char *theirs, *family, *ours; /* NULL: left out */
	} names[] = {
	    {"model.layers.11.self_attn.q_norm.weight", "qwen3", "blk.11.attn_q_norm.weight"},
	    {"model.layers.0.self_attn.k_proj.bias", "qwen2", "blk.0.attn_k.bias"},
	    {"model.layers.2.mlp.gate_up_proj.weight", "phi3", "blk.2.ffn_up.weight"},
	    {"model.layers.2.self_attn.qkv_proj.weight", "phi3", "blk.2.attn_qkv.weight"},
	    {"model.layers.2.post_attention_layernorm.weight", "llama", "blk.2.ffn_norm.weight"},
	    {"model.layers.2.post_attention_layernorm.weight", "gemma2", "blk.2.post_attention_norm.weight"},
	    {"model.layers.2.pre_feedforward_layernorm.weight", "gemma2", "blk.2.ffn_norm.weight"},
	    {"language_model.model.embed_tokens.weight", "gemma3", "token_embd.weight"},
	    {"model.language_model.norm.weight", "gemma3", "output_norm.weight"},
	    {"vision_tower.vision_model.head.weight", "gemma3", NULL},
	    {"model.layers.0.self_attn.rotary_emb.inv_freq", "llama", NULL},
	    {"model.layers.99999.mlp.up_proj.weight", "llama", "model.layers.99999.mlp.up_proj.weight"},
	    {"model.layers.", "llama", "model.layers."},
	    {"model.layers.1", "llama", "model.layers.1"},
	    {"something.else", "llama", "something.else"},
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char out[256];
		bool used = hf_gguf_name(names[i].theirs, names[i].family, out, sizeof out);
		assert_true(used == (names[i].ours != NULL));
		if (used)
			assert_string_equal(out, names[i].ours);
	}
}

/* ---- what is written ---- */

static void random_file(const char *name, const char *shape, const char *type, uint64_t seed, int n_threads)
{
	char path[256];
	struct sl_err err = {0};
	struct random_model m = {.path = path, .name = "a test", .seed = seed, .n_threads = n_threads};
	md_path(path, dir, name);
	if (random_shape_find(shape, &m.arch, &err) != 0 || weight_plan_parse(type, &m.plan, &err) != 0 ||
	    random_model_write(&m, NULL, &err) != 0)
		fail_msg("%s", err.text);
}

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

static int convert(const char *from, const char *to, const char *type, struct sl_err *err)
{
	char in[256], out[256];
	struct weight_plan plan;
	md_path(in, dir, from);
	md_path(out, dir, to);
	*err = (struct sl_err){0};
	int rc = weight_plan_parse(type, &plan, err);
	return rc != 0 ? rc : quantize_model(in, out, &plan, 2, NULL, err);
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
			assert_true(q[row * 8 + i] == md_value("model.layers.0.self_attn.q_proj.weight", from[row] * 8 + i));
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

	/* Gemma's gains have the one added; a window and its pattern are said. */
	md_text(dir, "config.json", "{\"model_type\":\"gemma2\"," SHAPE ",\"attn_logit_softcapping\":50.0,"
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
	md_text(dir, "config.json", MD_LLAMA_CONFIG ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"beta_fast\":16,"
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
	md_text(dir, "tokenizer.json", "{\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"model\":{\"type\":\"BPE\",\"vocab\":{},"
				       "\"merges\":[]}}");
	assert_int_equal(convert("", "out.gguf", "f32", &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.text, "no name in GGUF"));
	md_text(dir, "tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":2000000},\"merges\":[]}}");
	assert_int_equal(convert("", "out.gguf", "f32", &err), SL_EINVAL);
	/* SentencePiece's: a token's score is the rank of its first merge. */
	md_text(dir, "tokenizer.json",
		"{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,\"a\":1,"
		"\"b\":2,\"ab\":3,\"ba\":4,\"<0x0A>\":5},\"merges\":[\"b a\",\"a b\"]}}");
	if (convert("", "out.gguf", "f32", &err) != 0)
		fail_msg("%s", err.text);
	f = opened("out.gguf");
	g = model_file_gguf(f);
	assert_int_equal(gguf_get_array(g, "tokenizer.ggml.scores", &list, &err), 0);
	assert_true(gguf_array_f32(&list, 4) == 0 && gguf_array_f32(&list, 3) == -1 && gguf_array_f32(&list, 1) < -1000);
	assert_int_equal(gguf_get_array(g, "tokenizer.ggml.token_type", &list, &err), 0);
	assert_true(gguf_array_int(&list, 0) == 2 && gguf_array_int(&list, 5) == 6);
	model_file_close(f);
	/* Nothing half-written is left. */
	DIR *d = opendir(dir);
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
		assert_null(strstr(e->d_name, "partial"));
	closedir(d);
}

/* ---- malformed files ---- */

static uint64_t rng;

static uint64_t next(void)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return rng >> 33;
}

/* Bytes that end or begin things in these formats, and ends of ranges. */
static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff, '"', '{', '}', '[', ']', ',', ':', '-', '9', '\\', 'e', ' '};

static size_t mutate(uint8_t *bytes, size_t n, size_t within)
{
	size_t head = n < within ? n : within, at = head > 0 ? next() % head : 0;
	switch (next() % 5) {
	case 0: bytes[at] ^= (uint8_t)(1u << next() % 8); break;
	case 1: bytes[at] = telling[next() % sizeof telling]; break;
	case 2: memset(bytes + at, 0xff, n - at < 8 ? n - at : 8); break;
	case 3: /* a piece goes */
		memmove(bytes + at, bytes + at + (n - at) / 7, n - at - (n - at) / 7);
		return n - (n - at) / 7;
	default: return next() % 4 == 0 ? at : n; /* the end goes */
	}
	return n;
}

/* Everything that a look at the model would touch. */
static void look(const char *path)
{
	struct sl_err err = {0};
	struct model_file *f = NULL;
	struct model_arch arch;
	struct tokenizer *t = NULL;
	struct proto_str template;
	int rc = model_file_open(path, &f, &err);
	if (rc == 0) {
		uint64_t sum = 0;
		for (size_t i = 0; i < model_file_n_tensors(f); i++) {
			const struct model_tensor *x = model_file_tensor_at(f, i);
			assert_ptr_equal(model_file_find(f, x->name), x);
			if (x->bytes > 0)
				sum += ((const uint8_t *)x->data)[0] + ((const uint8_t *)x->data)[x->bytes - 1];
		}
		assert_true(sum <= 510 * model_file_n_tensors(f));
		rc = model_file_arch(f, &arch, &err);
		if (rc == 0 && model_file_template(f, &template, &err) == 0)
			assert_true(template.n == 0 || template.at != NULL);
		if (rc == 0 && model_file_tokenizer(f, &t, &err) == 0)
			tokenizer_destroy(t);
		model_file_close(f);
	}
	if (rc != 0)
		assert_true(err.code == rc && err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
}

static int n_malformed;

/* A file of the model at open changed n times, each time from the whole one. within: where its head
 * is, that is where a change says something. */
static void mutations(const char *file, const char *open, int n, size_t within)
{
	size_t bytes;
	char path[256];
	uint8_t *good = md_read(dir, file, &bytes), *bad = malloc(bytes);
	md_path(path, dir, open);
	for (int i = 0; i < n; i++) {
		size_t left = bytes;
		memcpy(bad, good, bytes);
		for (uint64_t k = 1 + next() % 4; k > 0; k--)
			left = mutate(bad, left, within);
		md_write(dir, file, bad, left);
		size_t before = meter_live;
		meter_reset();
		look(path);
		assert_int_equal(meter_live, before);
		if (meter_peak - before > (64u << 20))
			fail_msg("%s, change %d: %zu bytes of memory", file, i, (size_t)meter_peak - before);
		n_malformed++;
	}
	md_write(dir, file, good, bytes);
	free(good);
	free(bad);
}

static void test_malformed(void **arg)
{
	(void)arg;
	rng = 1;
	n_malformed = 0;
	md_llama_sharded(dir);
	mutations("config.json", "", 80, 1024);
	mutations("generation_config.json", "", 20, 1024);
	mutations("tokenizer_config.json", "", 30, 1024);
	mutations("tokenizer.json", "", 40, 1024);
	mutations("model.safetensors.index.json", "", 40, 2048);
	mutations("model-00001-of-00002.safetensors", "", 120, 1024);
	mutations("model-00002-of-00002.safetensors", "", 40, 1 << 16);
	write_parts();
	mutations("m-00001-of-00003.gguf", "m-00001-of-00003.gguf", 60, 256);
	mutations("m-00002-of-00003.gguf", "m-00001-of-00003.gguf", 40, 256);
	struct gw w;
	gw_good(&w, 3);
	md_write(dir, "good.gguf", w.at, w.n);
	mutations("good.gguf", "good.gguf", 60, 1024);
	random_file("r.gguf", "tiny-llama", "q4_0", 1, 0);
	mutations("r.gguf", "r.gguf", 60, 20000);
	assert_true(n_malformed >= 500);
}

/* Heads that promise more than the file has, or ask for much in few bytes. */
static void test_greedy_heads(void **arg)
{
	(void)arg;
	static const struct {
		const char *head;
		const char *words;
	} heads[] = {
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", "has 4 bytes, but its shape"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],\"data_offsets\":[0,8]}}", "impossible shape"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", "impossible shape"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", "is at bytes 4 to 12"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", "is at bytes 8 to 0"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "belong to no tensor"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", "comes after bytes"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
	     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", "overlaps another"},
	    {"{\"a\":{\"dtype\":\"Q7\",\"shape\":[2],\"data_offsets\":[0,8]}}", "dtype Q7"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", "too many dimensions"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", "not a whole number"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "data_offsets is missing"},
	    {"{\"\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "no proper name"},
	    {"{\"a\\u0000\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "no proper name"},
	    {"{\"a\":[]}", "not an object"},
	    {"{\"a\":{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]}}", "nested too deep"},
	    {"{}x", "more follows"},
	};
	md_llama_folder(dir);
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
		uint8_t file[1024] = {0};
		size_t n = strlen(heads[i].head), padded = (n + 7) / 8 * 8;
		file[0] = (uint8_t)padded;
		file[1] = (uint8_t)(padded >> 8);
		memset(file + 8, ' ', padded);
		memcpy(file + 8, heads[i].head, n);
		md_write(dir, "model.safetensors", file, 8 + padded + 8);
		char path[256];
		struct sl_err err = {0};
		struct model_file *f;
		md_path(path, dir, "");
		if (model_file_open(path, &f, &err) == 0)
			fail_msg("opened: %s", heads[i].head);
		if (strstr(err.text, heads[i].words) == NULL)
			fail_msg("\"%s\", without \"%s\"", err.text, heads[i].words);
	}
	md_write(dir, "model.safetensors", "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
	refused("", SL_EINVAL, "not a safetensors file");
	md_write(dir, "model.safetensors", "{}", 2);
	refused("", SL_EINVAL, "it has 2 bytes");
	/* A million numbers in a file that is read into a tree. */
	size_t n = 1 << 20;
	char *text = malloc(n + 1);
	memset(text, '0', n);
	for (size_t i = 1; i < n; i += 2)
		text[i] = ',';
	memcpy(text, "{\"a\":[", 6);
	memcpy(text + n - 2, "]}", 2);
	md_write(dir, "config.json", text, n);
	meter_reset();
	size_t before = meter_live;
	refused("", SL_EINVAL, "");
	assert_true(meter_peak - before < (64u << 20));
	md_write(dir, "config.json", text, n);
	md_write(dir, "model.safetensors.index.json", text, n);
	free(text);
}

/* Every allocation fails once: a line, nothing left behind. */
static void no_memory(const char *open)
{
	char path[256], out[256];
	long n = 1;
	md_path(path, dir, open);
	md_path(out, dir, "never.gguf");
	for (bool failed = true; failed; n++) {
		struct sl_err err = {0};
		struct model_file *f = NULL;
		struct tokenizer *t;
		struct model_arch arch;
		size_t before = meter_live;
		atomic_store(&meter_fail_at, n);
		int rc = model_file_open(path, &f, &err);
		if (rc == 0) {
			rc = model_file_arch(f, &arch, &err);
			if (rc == 0 && (rc = model_file_tokenizer(f, &t, &err)) == 0)
				tokenizer_destroy(t);
			if (rc == 0)
				rc = model_file_quantize(f, KN_Q8_0, 1, NULL, &err);
			model_file_close(f);
		}
		failed = atomic_load(&meter_fail_at) <= 0;
		atomic_store(&meter_fail_at, 0);
		assert_int_equal(meter_live, before);
		assert_true(rc == 0 || err.text[0] != '\0');
		assert_true(n < 5000);
	}
	assert_true(n > 10);
	for (long k = 1; k < 40; k++) {
		struct sl_err err = {0};
		struct weight_plan plan = {KN_F16, KN_F16};
		size_t before = meter_live;
		atomic_store(&meter_fail_at, k);
		int rc = quantize_model(path, out, &plan, 1, NULL, &err);
		atomic_store(&meter_fail_at, 0);
		assert_int_equal(meter_live, before);
		assert_true(rc == 0 || err.text[0] != '\0');
		assert_int_equal(access(out, F_OK) == 0, rc == 0);
		unlink(out);
	}
}

static void test_no_memory(void **arg)
{
	(void)arg;
	md_llama_sharded(dir);
	no_memory("");
	random_file("r.gguf", "tiny-llama", "f16", 1, 0);
	no_memory("r.gguf");
}

int main(void)
{
	meter_install();
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_split, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_folder, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_config, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_families, setup, teardown),
	    cmocka_unit_test(test_names),
	    cmocka_unit_test_setup_teardown(test_random, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_quantize, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_quantize_in_memory, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_quantize_folder, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_malformed, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_greedy_heads, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
