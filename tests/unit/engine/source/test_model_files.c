/* SPDX-License-Identifier: Apache-2.0
 *
 * Models on disk in all their forms: split GGUF files and Hugging Face folders, what their keys become and
 * what is refused in one line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "engine/source/hf_folder.h"
#include "engine/file/hf_names.h"
#include "engine/source/quantize_model.h"
#include "tests/support/spm_write.h"
#include "tests/unit/engine/source/model_files.h"

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
	refused(names[0], SL_EINVAL, "m-00002-of-00003.gguf: declares itself part 3 of 3");
	write_part(names[1], 1, 4, 3);
	refused(names[2], SL_EINVAL, "declares itself part 2 of 4");
	write_part(names[1], 1, 3, 3);
	write_part(names[0], 0, 3, 4);
	refused(names[0], SL_EINVAL, "split.tensors.count is 4, but the 3 parts have 3");
	write_part("other.gguf", 0, 3, 3);
	refused("other.gguf", SL_EINVAL, "its name does not end in that form (-00001-of-00003.gguf)");
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
	    {",\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2}}", SL_EUNSUPPORTED, "rope_scaling has a type"},
	    {",\"rope_scaling\":{\"rope_type\":\"linear\"}}", SL_EINVAL, "factor of the rope scaling is missing"},
	    {",\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[1]}}", SL_EINVAL, "short_factor is not a list"},
	    {",\"rope_scaling\":\"yarn\"}", SL_EINVAL, "rope_scaling is not an object"},
	    {",\"rope_scaling\":{\"rope_type\":5,\"factor\":2}}", SL_EINVAL, "rope_type is not a string"},
	    {",\"rope_scaling\":{\"type\":[],\"factor\":2}}", SL_EINVAL, "type is not a string"},
	    {",\"rope_parameters\":7}", SL_EINVAL, "rope_parameters is not an object"},
	    {",\"rope_parameters\":{\"full_attention\":1}}", SL_EINVAL, "full_attention is not an object"},
	    {",\"architectures\":\"LlamaForSequenceClassification\"}", SL_EINVAL, "architectures is not a list"},
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

/* What the families' own keys become. */
static void test_families(void **arg)
{
	(void)arg;
	struct model_arch a;
	md_llama_folder(dir);
	md_text(dir, "config.json",
		"{\"model_type\":\"gemma3\",\"text_config\":{" SHAPE
		",\"sliding_window\":512,\"query_pre_attn_scalar\":16,"
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
	md_text(dir, "config.json",
		"{\"model_type\":\"qwen2\"," SHAPE ",\"sliding_window\":64,\"use_sliding_window\":false}");
	f = opened("");
	arch_of(f, &a);
	assert_true(a.qkv_bias && a.window == 0 && a.norm_gain_offset == 0);
	model_file_close(f);
}

static void described(const char *config, struct model_arch *a)
{
	md_text(dir, "config.json", config);
	struct model_file *f = opened("");
	arch_of(f, a);
	model_file_close(f);
}

/* Mixtures of experts: what their keys become, and what is refused. */
static void test_experts(void **arg)
{
	(void)arg;
	struct model_arch a;
	md_llama_folder(dir);
	described("{\"model_type\":\"qwen3_moe\"," SHAPE
		  ",\"num_experts\":12,\"num_experts_per_tok\":3,\"moe_intermediate_size\":24,\"norm_topk_prob\":true,"
		  "\"decoder_sparse_step\":1,\"mlp_only_layers\":[]}",
		  &a);
	assert_string_equal(a.family, "qwen3moe");
	assert_true(a.experts.n == 12 && a.experts.n_used == 3 && a.experts.n_ff == 24 && a.experts.norm);
	assert_true(a.qk_norm && !a.qk_norm_row && !a.qkv_bias && a.experts.n_ff_shared == 0);
	assert_int_equal(a.n_unknown_keys, 0);
	described("{\"model_type\":\"mixtral\"," SHAPE ",\"num_local_experts\":4,\"router_jitter_noise\":0.0}", &a);
	assert_string_equal(a.family, "llama");
	assert_true(a.experts.n == 4 && a.experts.n_used == 2 && a.experts.n_ff == 16 && a.experts.norm);
	described("{\"model_type\":\"olmoe\"," SHAPE ",\"clip_qkv\":null}", &a);
	assert_true(a.experts.n == 64 && a.experts.n_used == 8 && a.qk_norm && a.qk_norm_row && !a.experts.norm);
	described("{\"model_type\":\"qwen2_moe\"," SHAPE ",\"shared_expert_intermediate_size\":40,\"num_experts\":6}",
		  &a);
	assert_true(a.experts.n == 6 && a.experts.n_used == 4 && a.experts.n_ff_shared == 40);
	assert_true(a.experts.shared_gate && a.qkv_bias && !a.experts.norm);
	static const struct {
		const char *more, *said;
		int code;
	} bad[] = {
	    {"\"mlp_only_layers\":[0]", "mlp_only_layers", SL_EUNSUPPORTED},
	    {"\"decoder_sparse_step\":2", "decoder_sparse_step", SL_EUNSUPPORTED},
	    {"\"num_experts\":4,\"num_experts_per_tok\":5", "num_experts_per_tok", SL_EINVAL},
	    {"\"num_experts\":0", "num_experts", SL_EINVAL},
	    {"\"num_experts\":100000", "num_experts", SL_EINVAL},
	    {"\"moe_intermediate_size\":-1", "moe_intermediate_size", SL_EINVAL},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		char text[512];
		snprintf(text, sizeof text, "{\"model_type\":\"qwen3_moe\"," SHAPE ",%s}", bad[i].more);
		md_text(dir, "config.json", text);
		refused("", bad[i].code, bad[i].said);
	}
}

/* Families beside Llama's: their factors, their layers that do not turn, their order of pairs. */
static void test_newer(void **arg)
{
	(void)arg;
	struct model_arch a;
	md_llama_folder(dir);
	described("{\"model_type\":\"granite\"," SHAPE ",\"embedding_multiplier\":12.0,\"residual_multiplier\":0.22,"
		  "\"attention_multiplier\":0.015625,\"logits_scaling\":8.0,\"attention_bias\":false}",
		  &a);
	assert_true(a.embed_scale == 12 && a.residual_scale == 0.22f && a.attn_scale == 0.015625f);
	assert_true(a.logit_scale == 0.125f && a.n_unknown_keys == 0);
	described("{\"model_type\":\"smollm3\"," SHAPE ",\"no_rope_layers\":[1],\"no_rope_layer_interval\":4}", &a);
	assert_true(a.no_rope_every == 4 && a.rope.halves && a.residual_scale == 1 && a.logit_scale == 1);
	described("{\"model_type\":\"seed_oss\"," SHAPE ",\"attention_out_bias\":false}", &a);
	assert_true(a.qkv_bias && a.ffn_norm_is_post);
	described("{\"model_type\":\"ernie4_5\"," SHAPE ",\"use_bias\":false}", &a);
	assert_true(!a.rope.halves && !a.rope_windowed.halves && !a.qkv_bias);
	described("{\"model_type\":\"glm4\"," SHAPE ",\"attention_bias\":true}", &a);
	assert_true(a.qkv_bias && a.post_norms && a.rope.n_rot == 2 && !a.rope.halves);
	described(
	    "{\"model_type\":\"glm4_moe\"," SHAPE
	    ",\"n_routed_experts\":8,\"n_shared_experts\":2,\"num_experts_per_tok\":3,\"moe_intermediate_size\":24,"
	    "\"first_k_dense_replace\":1,\"routed_scaling_factor\":2.5,\"n_group\":1,\"topk_group\":1,"
	    "\"attention_bias\":true,\"use_qk_norm\":true,\"num_nextn_predict_layers\":1}",
	    &a);
	assert_true(a.experts.sigmoid && a.experts.n_ff_shared == 48 && a.experts.scale == 2.5f && a.experts.norm);
	assert_true(a.experts.n_dense == 1 && a.qk_norm && a.qkv_bias && a.rope.n_rot == 2 && a.rope.halves);
	/* A folder's layers that draft are left out, and a GGUF file that it becomes has none. */
	assert_true(a.n_unknown_keys == 0 && a.n_drafting == 0);
	md_text(dir, "config.json", "{\"model_type\":\"smollm3\"," SHAPE ",\"no_rope_layers\":[0]}");
	refused("", SL_EUNSUPPORTED, "no_rope_layers");
	md_text(dir, "config.json", "{\"model_type\":\"glm4_moe\"," SHAPE ",\"n_group\":8}");
	refused("", SL_EUNSUPPORTED, "n_group");
	md_text(dir, "config.json", "{\"model_type\":\"smollm3\"," SHAPE ",\"hidden_act\":5}");
	refused("", SL_EINVAL, "hidden_act is not a string");
	md_text(dir, "config.json", "{\"model_type\":\"glm4_moe\"," SHAPE ",\"n_routed_experts\":4}");
	refused("", SL_EINVAL, "num_experts_per_tok is missing, and its usual value is too large");
	md_text(dir, "config.json", "{\"model_type\":\"granite\"," SHAPE ",\"logits_scaling\":0}");
	refused("", SL_EINVAL, "logits_scaling");
}

/* Families whose halves are put together in other ways. */
static void test_halves(void **arg)
{
	(void)arg;
	struct model_arch a;
	md_llama_folder(dir);
	described(
	    "{\"model_type\":\"olmo3\"," SHAPE ",\"sliding_window\":4096,\"layer_types\":[\"sliding_attention\"]}", &a);
	assert_true(a.no_pre_norms && a.post_norms && a.qk_norm_row && a.window == 4096 && a.window_pattern == 4);
	described("{\"model_type\":\"cohere\"," SHAPE ",\"layer_norm_eps\":1e-5,\"use_qk_norm\":false}", &a);
	assert_true(a.layer_norm && !a.norm_biases && a.parallel == ARCH_PARALLEL_ONE_NORM && !a.rope.halves);
	assert_true(a.logit_scale == 0.0625f && a.rms_eps == 1e-5f);
	described("{\"model_type\":\"cohere2\"," SHAPE
		  ",\"logit_scale\":0.25,\"sliding_window\":4096,\"sliding_window_pattern\":4}",
		  &a);
	assert_true(a.no_rope_full && a.logit_scale == 0.25f && arch_turns(&a, 0) && !arch_turns(&a, 3));
	described("{\"model_type\":\"minimax_m2\"," SHAPE
		  ",\"num_local_experts\":8,\"num_experts_per_tok\":3,\"rotary_dim\":2,\"use_qk_norm\":true}",
		  &a);
	assert_true(a.experts.sigmoid && a.experts.norm && a.experts.n == 8 && a.rope.n_rot == 2 && a.qk_norm_row);
	described("{\"model_type\":\"phimoe\"," SHAPE ",\"num_local_experts\":8,\"num_experts_per_tok\":2,"
		  "\"attention_bias\":true,\"lm_head_bias\":true,\"router_jitter_noise\":0.02}",
		  &a);
	assert_true(a.layer_norm && a.norm_biases && a.qkv_bias && a.o_bias && a.head_bias);
	assert_true(a.experts.sparse == 0.02f && !a.experts.norm);
	described("{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"ministral3\"," SHAPE
		  ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":16,\"mscale\":1,\"mscale_all_dim\":1,"
		  "\"original_max_position_embeddings\":16384,\"llama_4_scaling_beta\":0.1}}}",
		  &a);
	assert_true(a.rope.grow == 0.1f && a.rope.grow_every == 16384 && a.rope.magnitude == 1);
	assert_string_equal(a.family, "mistral3");
#define LLAMA4 "{\"model_type\":\"llama4_text\"," SHAPE ",\"num_local_experts\":4,\"num_experts_per_tok\":1"
	described("{\"model_type\":\"llama4\",\"text_config\":" LLAMA4
		  ",\"intermediate_size_mlp\":32,\"moe_layers\":[0],"
		  "\"no_rope_layers\":[],\"attention_chunk_size\":512,\"attn_temperature_tuning\":4}}",
		  &a);
	assert_true(a.n_ff == 32 && a.experts.n_ff == 16 && a.experts.n_ff_shared == 16 && a.experts.weighs_input);
	assert_true(a.window == 512 && a.window_chunked && a.still_grow == 0.1f && a.qk_norm_plain && !a.qk_norm);
	assert_string_equal(a.family, "llama4");
	md_text(dir, "config.json", LLAMA4 "}");
	refused("", SL_EINVAL, "intermediate_size_mlp is missing");
	md_text(dir, "config.json", LLAMA4 ",\"intermediate_size_mlp\":32,\"moe_layers\":[1]}");
	refused("", SL_EUNSUPPORTED, "moe_layers");
	md_text(dir, "config.json", LLAMA4 ",\"intermediate_size_mlp\":32,\"no_rope_layers\":[0]}");
	refused("", SL_EUNSUPPORTED, "no_rope_layers");
	described("{\"model_type\":\"gpt_neox\"," SHAPE ",\"use_parallel_residual\":false,\"rotary_pct\":0.5,"
		  "\"hidden_act\":\"gelu\"}",
		  &a);
	assert_true(a.ungated && a.ff_biases && a.parallel == ARCH_PARALLEL_NONE && a.rope.n_rot == 2);
	described("{\"model_type\":\"falcon\",\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
		  "\"new_decoder_architecture\":true,\"num_kv_heads\":1,\"activation\":\"gelu\"}",
		  &a);
	assert_true(a.parallel == ARCH_PARALLEL_TWO_NORMS && a.attn_norm_is_2 && a.n_ff == 32 && !a.ff_biases);
	static const struct {
		const char *config, *said;
	} bad[] = {
	    {"{\"model_type\":\"cohere\"," SHAPE ",\"use_qk_norm\":true}", "use_qk_norm"},
	    {"{\"model_type\":\"gpt_neox\"," SHAPE ",\"hidden_act\":\"relu\"}", "hidden_act"},
	    {"{\"model_type\":\"gpt_oss\"," SHAPE
	     ",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"swiglu_limit\":5}",
	     "swiglu_limit"},
	    {"{\"model_type\":\"falcon\",\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
	     "\"alibi\":true}",
	     "alibi"},
	    {"{\"model_type\":\"falcon\",\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
	     "\"parallel_attn\":false}",
	     "parallel_attn"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		md_text(dir, "config.json", bad[i].config);
		refused("", SL_EUNSUPPORTED, bad[i].said);
	}
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
	    {"model.layers.2.post_attention_layernorm.weight", "seed_oss", "blk.2.post_attention_norm.weight"},
	    {"model.layers.2.post_attention_layernorm.weight", "olmo2", "blk.2.post_attention_norm.weight"},
	    {"model.layers.2.input_layernorm.bias", "phimoe", "blk.2.attn_norm.bias"},
	    {"model.layers.2.self_attn.sinks", "gpt-oss", "blk.2.attn_sinks.weight"},
	    {"transformer.h.39.ln_mlp.bias", "falcon", "blk.39.attn_norm.bias"},
	    {"gpt_neox.layers.3.attention.masked_bias", "gptneox", NULL},
	    {"gpt_neox.layers.3.attention.dense.bias", "gptneox", "blk.3.attn_output.bias"},
	    {"embed_out.weight", "gptneox", "output.weight"},
	    {"model.layers.2.pre_feedforward_layernorm.weight", "gemma2", "blk.2.ffn_norm.weight"},
	    {"language_model.model.embed_tokens.weight", "gemma3", "token_embd.weight"},
	    {"model.language_model.norm.weight", "gemma3", "output_norm.weight"},
	    {"vision_tower.vision_model.head.weight", "gemma3", NULL},
	    {"model.layers.0.self_attn.rotary_emb.inv_freq", "llama", NULL},
	    {"model.layers.3.mlp.gate.weight", "qwen3moe", "blk.3.ffn_gate_inp.weight"},
	    {"model.layers.3.mlp.experts.127.up_proj.weight", "qwen3moe", "blk.3.ffn_up.127.weight"},
	    {"model.layers.3.mlp.experts.0.down_proj.weight", "olmoe", "blk.3.ffn_down.0.weight"},
	    {"model.layers.3.mlp.shared_expert.gate_proj.weight", "qwen2moe", "blk.3.ffn_gate_shexp.weight"},
	    {"model.layers.3.mlp.shared_expert_gate.weight", "qwen2moe", "blk.3.ffn_gate_inp_shexp.weight"},
	    {"model.layers.3.mlp.gate.e_score_correction_bias", "glm4moe", "blk.3.exp_probs_b.bias"},
	    {"model.layers.3.mlp.shared_experts.up_proj.weight", "glm4moe", "blk.3.ffn_up_shexp.weight"},
	    {"model.layers.3.post_self_attn_layernorm.weight", "glm4", "blk.3.post_attention_norm.weight"},
	    {"model.layers.3.post_attention_layernorm.weight", "glm4", "blk.3.ffn_norm.weight"},
	    {"model.layers.3.post_mlp_layernorm.weight", "glm4", "blk.3.post_ffw_norm.weight"},
	    {"model.layers.0.block_sparse_moe.gate.weight", "llama", "blk.0.ffn_gate_inp.weight"},
	    {"model.layers.0.block_sparse_moe.experts.7.w1.weight", "llama", "blk.0.ffn_gate.7.weight"},
	    {"model.layers.0.block_sparse_moe.experts.7.w2.weight", "llama", "blk.0.ffn_down.7.weight"},
	    {"model.layers.0.block_sparse_moe.experts.7.w3.weight", "llama", "blk.0.ffn_up.7.weight"},
	    {"model.layers.0.mlp.experts.gate_up_proj", "qwen3moe", "model.layers.0.mlp.experts.gate_up_proj"},
	    {"model.layers.0.mlp.experts..up_proj.weight", "olmoe", "model.layers.0.mlp.experts..up_proj.weight"},
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

/* tokenizer.model with six pieces, and a token beside it. */
static void write_spm(struct spm_file *spm, unsigned kind, bool collapse)
{
	sw_begin(spm, false);
	sw_piece(spm, "\xE2\x96\x81", -2, TOK_NORMAL);
	sw_piece(spm, "a", -3, TOK_NORMAL);
	sw_piece(spm,
		 "\xE2\x96\x81"
		 "a",
		 -1, TOK_NORMAL);
	sw_trainer(spm, kind, false);
	sw_normalizer(spm, NULL, 0, true, collapse);
	md_write(dir, "tokenizer.model", spm->bytes, spm->n);
	md_text(dir, "added_tokens.json", "{\"<t>\":6}");
	md_text(dir, "tokenizer_config.json",
		"{\"add_bos_token\":false,\"added_tokens_decoder\":{\"6\":{\"content\":\"<t>\",\"special\":false}}}");
}

/* SentencePiece's model where there is no tokenizer.json, with what is beside it. */
static void test_spm_folder(void **arg)
{
	static struct spm_file spm;
	struct tokenizer *t;
	struct sl_err err = {0};
	(void)arg;
	md_llama_folder(dir);
	md_remove_file(dir, "tokenizer.json");
	struct model_file *f = opened("");
	assert_int_equal(model_file_tokenizer(f, &t, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.text, "it has neither tokenizer.json nor tokenizer.model"));
	model_file_close(f);
	write_spm(&spm, 2, false);
	f = opened("");
	/* Of 12 rows, those beyond the tokens go. */
	assert_int_equal(model_file_find(f, "token_embd.weight")->dims[1], 7);
	if (model_file_tokenizer(f, &t, &err) != 0)
		fail_msg("%s", err.text);
	struct tok_ids ids = {0};
	assert_int_equal(tokenizer_encode(t, "a<t>a", 5, NULL, &ids), 0);
	assert_true(ids.n == 3 && ids.ids[0] == 5 && ids.ids[1] == 6 && ids.ids[2] == 5);
	assert_true(tokenizer_n_vocab(t) == 7 && tokenizer_is_end(t, 1) && tokenizer_is_end(t, 2));
	tok_ids_dispose(&ids);
	tokenizer_destroy(t);
	model_file_close(f);
	md_write(dir, "tokenizer.model", spm.bytes, spm.n - 3);
	f = opened("");
	assert_int_equal(model_file_tokenizer(f, &t, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "/tokenizer.model: not a SentencePiece model: malformed at byte"));
	model_file_close(f);
}

/* The ids of a folder with a SentencePiece model are those of the GGUF file that it becomes. */
static void test_spm_written(void **arg)
{
	static struct spm_file spm;
	static const char *const texts[] = {"a<t>a", " aa  a", "", "<s>a", "xa"};
	struct quantize_how how = {.replace = true, .n_threads = 1};
	struct sl_err err = {0};
	char in[256], out[256];
	(void)arg;
	md_llama_folder(dir);
	md_remove_file(dir, "tokenizer.json");
	for (int unigram = 0; unigram < 2; unigram++) {
		struct tokenizer *t, *u;
		write_spm(&spm, unigram ? 1 : 2, unigram);
		md_path(in, dir, "");
		md_path(out, dir, "out.gguf");
		assert_int_equal(weight_plan_parse("f32", &how.plan, &err), 0);
		if (quantize_model(in, out, &how, NULL, NULL, &err) != 0)
			fail_msg("%s", err.text);
		struct model_file *f = opened(""), *g = opened("out.gguf");
		assert_int_equal(model_file_tokenizer(f, &t, &err), 0);
		if (model_file_tokenizer(g, &u, &err) != 0)
			fail_msg("%s", err.text);
		assert_true(tokenizer_digest(t) == tokenizer_digest(u) && tokenizer_bos(t) == tokenizer_bos(u));
		for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
			struct tok_ids x = {0}, y = {0};
			assert_int_equal(tokenizer_add_bos(t, &x), 0);
			assert_int_equal(tokenizer_add_bos(u, &y), 0);
			assert_int_equal(tokenizer_encode(t, texts[i], strlen(texts[i]), NULL, &x), 0);
			assert_int_equal(tokenizer_encode(u, texts[i], strlen(texts[i]), NULL, &y), 0);
			assert_true(x.n == y.n && (x.n == 0 || memcmp(x.ids, y.ids, x.n * sizeof *x.ids) == 0));
			tok_ids_dispose(&x);
			tok_ids_dispose(&y);
		}
		tokenizer_destroy(t);
		tokenizer_destroy(u);
		model_file_close(f);
		model_file_close(g);
	}
	write_spm(&spm, 2, true);
	assert_int_equal(quantize_model(in, out, &how, NULL, NULL, &err), SL_EUNSUPPORTED);
	assert_non_null(
	    strstr(err.text, "tokenizer.model: GGUF has no key for remove_extra_whitespaces of a bpe model"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_split, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_folder, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_spm_folder, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_spm_written, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_config, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_families, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_experts, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_newer, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_halves, setup, teardown),
	    cmocka_unit_test(test_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
