/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters that do not fit their base, are damaged or hostile, or want what this version does not have: each is refused
 * in one line by the name of its key or tensor.
 */
#include "adapter_fixture.h"

#include <math.h>

#include "engine/adapter/peft_config.h"
#include "engine/source/random_model.h"
#include "kernels/quantize.h"
#include "tests/support/gguf_write.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_config_refused, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_tensors_refused, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_copies, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_gguf_refused, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_gguf_matrices, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
