/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of config.json and of GGUF heads: each is honoured, or known to change no answer, or refused by name, or named
 * as unknown. And the keys of rope scaling against their formulas, in double precision and written down once more here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/file/gguf_write.h"
#include "engine/model/model.h"
#include "engine/model/rope.h"
#include "tests/unit/engine/source/model_files.h"

static void config(const char *text) { md_text(dir, "config.json", text); }

static void read_config(const char *text, struct model_arch *a)
{
	config(text);
	struct model_file *f = opened("");
	struct sl_err err = {0};
	if (model_file_arch(f, a, &err) != 0)
		fail_msg("%s\n%s", text, err.text);
	model_file_close(f);
}

/* ---- config.json ---- */

static void test_refused_by_name(void **state)
{
	(void)state;
	static const struct {
		const char *more, *name; /* added to MD_LLAMA_CONFIG; in the message */
	} cases[] = {
	    {"\"use_bidirectional_attention\":true", "use_bidirectional_attention is true"},
	    {"\"is_causal\":false", "is_causal is false"},
	    {"\"mlp_bias\":true", "mlp_bias"},
	    {"\"lm_head_bias\":true", "lm_head_bias is true"},
	    {"\"sliding_window\":32", "sliding_window is 32"},
	    {"\"use_sliding_window\":true", "use_sliding_window is true"},
	    {"\"layer_types\":[\"sliding_attention\"]", "layer_types"},
	    {"\"hidden_activation\":\"gelu\"", "hidden_activation is gelu, which is not supported (supported: silu)"},
	    {"\"query_pre_attn_scalar\":16", "query_pre_attn_scalar is 16"},
	    {"\"attn_logit_softcapping\":50.0", "attn_logit_softcapping is 50"},
	    {"\"final_logit_softcapping\":30.0", "final_logit_softcapping is 30"},
	    {"\"logit_scale\":0.0625", "logit_scale is 0.0625"},
	    {"\"logits_scaling\":8", "logits_scaling is 8"},
	    {"\"embedding_multiplier\":12", "embedding_multiplier is 12"},
	    {"\"residual_multiplier\":0.22", "residual_multiplier is 0.22"},
	    {"\"attention_multiplier\":0.0078125", "attention_multiplier is 0.0078125"},
	    {"\"attn_temperature_tuning\":true", "attn_temperature_tuning is true"},
	    {"\"clip_qkv\":8", "clip_qkv is 8"},
	    {"\"qk_norm\":true", "qk_norm is true"},
	    {"\"use_qk_norm\":true", "use_qk_norm is true"},
	    {"\"norm_type\":\"layernorm\"", "norm_type is layernorm"},
	    {"\"use_parallel_residual\":true", "use_parallel_residual is true"},
	    {"\"rope_interleaved\":true", "rope_interleaved is true"},
	    {"\"no_rope_layers\":[1]", "no_rope_layers is a list"},
	    {"\"rope_local_base_freq\":10000", "rope_local_base_freq is 10000"},
	    {"\"rotary_pct\":0.5", "rotary_pct is 0.5"},
	    {"\"num_local_experts\":8", "num_local_experts is 8"},
	    {"\"pruned_heads\":{\"0\":[1]}", "pruned_heads is an object"},
	    {"\"dual_chunk_attention_config\":{\"chunk_size\":1}", "dual_chunk_attention_config is an object"},
	    {"\"compression_config\":{\"format\":\"x\"}", "compression_config is an object"},
	    {"\"architectures\":[\"LlamaForSequenceClassification\"]", "architectures names a class"},
	    /* Nothing knows these, but their names tell. */
	    {"\"rope_wobble\":2", "rope_wobble is 2"},
	    {"\"new_attention_gate\":true", "new_attention_gate is true"},
	    {"\"value_multiplier\":2.5", "value_multiplier is 2.5"},
	    /* In groups where anything counts. */
	    {"\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2,\"wobble\":1}", "rope_scaling.wobble is 1"},
	    {"\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2,\"attention_factor\":1.5}",
	     "rope_scaling.attention_factor is 1.5"},
	    {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":2,\"mscale\":1}", "rope_scaling.mscale is 1"},
	    {"\"rope_scaling\":{\"rope_type\":\"default\",\"mrope_section\":[16,24]}",
	     "rope_scaling.mrope_section is a list"},
	    {"\"rope_parameters\":{\"rope_theta\":10000,\"llama_4_scaling_beta\":0.1}",
	     "rope_parameters.llama_4_scaling_beta is 0.1"},
	    {"\"rope_parameters\":{\"rope_theta\":10000},\"rope_scaling\":{\"factor\":2}", "rope_scaling is an object"},
	    {"\"rope_parameters\":{\"full_attention\":{\"rope_theta\":10000},\"sliding_attention\":{\"factor\":2}}",
	     "rope_parameters.sliding_attention.factor is 2"},
	    {"\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"zero_point\":true,"
	     "\"version\":\"gemm\","
	     "\"rotation\":\"hadamard\"}",
	     "quantization_config.rotation is hadamard"},
	};
	md_llama_folder(dir);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char text[2048];
		snprintf(text, sizeof text, "%s,%s}", MD_LLAMA_CONFIG, cases[i].more);
		config(text);
		refused("", SL_EUNSUPPORTED, cases[i].name);
	}
	/* What is off says nothing. */
	struct model_arch a;
	read_config(
	    MD_LLAMA_CONFIG
	    ",\"use_bidirectional_attention\":false,\"is_causal\":true,\"sliding_window\":null,\"logit_scale\":1.0,"
	    "\"rope_wobble\":null,\"new_attention_gate\":false,\"clip_qkv\":null,\"num_local_experts\":0,"
	    "\"rope_scaling\":{\"rope_type\":\"default\",\"factor\":1.0,\"wobble\":null}}",
	    &a);
	assert_int_equal(a.n_unknown_keys, 0);
}

static void test_unknown_is_named(void **state)
{
	(void)state;
	struct model_arch a;
	char text[4096];
	md_llama_folder(dir);
	read_config(MD_LLAMA_CONFIG ",\"flavour\":\"sweet\",\"be\\u0007ll\":[1]}", &a);
	assert_int_equal(a.n_unknown_keys, 2);
	assert_string_equal(a.unknown_keys, "flavour, be ll");
	/* More than the line holds: the number stays true. */
	size_t n = (size_t)snprintf(text, sizeof text, "%s", MD_LLAMA_CONFIG);
	for (int i = 0; i < 40; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, ",\"a_rather_long_name_%02d\":1", i);
	snprintf(text + n, sizeof text - n, "}");
	read_config(text, &a);
	assert_int_equal(a.n_unknown_keys, 40);
	assert_true(strlen(a.unknown_keys) < sizeof a.unknown_keys);
	assert_int_equal(strlen(a.unknown_keys) % strlen("a_rather_long_name_00, "), strlen("a_rather_long_name_00"));
}

/* Configurations as they are published, with shapes of this folder: nothing of them is unknown. */
static void test_published(void **state)
{
	(void)state;
	static const char *const configs[] = {
	    /* Llama 3.2 */
	    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\"," SHAPE
	    ",\"attention_bias\":false,\"attention_dropout\":0.0,"
	    "\"bos_token_id\":128000,\"eos_token_id\":[128001],\"hidden_act\":\"silu\",\"initializer_range\":0.02,"
	    "\"mlp_bias\":false,"
	    "\"pretraining_tp\":1,\"rope_scaling\":{\"factor\":32.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"
	    "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},\"rope_theta\":500000.0,\"tie_word_"
	    "embeddings\":true,"
	    "\"torch_dtype\":\"bfloat16\",\"transformers_version\":\"4.45.0\",\"use_cache\":true,\"vocab_size\":"
	    "128256}",
	    /* SmolLM 2 */
	    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\"," SHAPE
	    ",\"is_llama_config\":true,\"pad_token_id\":2,"
	    "\"rope_interleaved\":false,\"rope_scaling\":null,\"rope_theta\":130000,\"transformers.js_config\":{"
	    "\"dtype\":\"q4\"}}",
	    /* Mistral 0.3 */
	    "{\"architectures\":[\"MistralForCausalLM\"],\"model_type\":\"mistral\"," SHAPE
	    ",\"sliding_window\":null,\"rope_theta\":1e6}",
	    /* Qwen 2.5, with the scaling that its page proposes */
	    "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\"," SHAPE
	    ",\"max_window_layers\":28,\"sliding_window\":131072,"
	    "\"use_sliding_window\":false,\"use_mrope\":false,\"rope_theta\":1000000.0,\"rope_scaling\":{\"factor\":4."
	    "0,"
	    "\"original_max_position_embeddings\":32768,\"type\":\"yarn\"}}",
	    /* Qwen 3 */
	    "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\"," SHAPE
	    ",\"attention_bias\":false,\"max_window_layers\":1,"
	    "\"rope_scaling\":null,\"sliding_window\":null,\"use_sliding_window\":false,\"layer_types\":[\"full_"
	    "attention\"],"
	    "\"dtype\":\"bfloat16\"}",
	    /* Phi 4 mini */
	    "{\"architectures\":[\"Phi3ForCausalLM\"],\"auto_map\":{\"AutoConfig\":\"a.B\"},\"model_type\":"
	    "\"phi3\"," SHAPE ",\"embd_pdrop\":0.0,\"full_attn_mod\":1,\"interpolate_factor\":1,\"lm_head_bias\":false,"
	    "\"original_max_position_embeddings\":4096,"
	    "\"resid_pdrop\":0.0,\"rope_scaling\":{\"long_factor\":[1,2],\"short_factor\":[1,1],\"type\":\"longrope\"},"
	    "\"sliding_window\":262144,\"tie_word_embeddings\":true}",
	    /* Gemma 2 */
	    "{\"architectures\":[\"Gemma2ForCausalLM\"],\"model_type\":\"gemma2\"," SHAPE
	    ",\"attn_logit_softcapping\":50.0,"
	    "\"cache_implementation\":\"hybrid\",\"final_logit_softcapping\":30.0,\"hidden_act\":\"gelu_pytorch_tanh\","
	    "\"hidden_activation\":\"gelu_pytorch_tanh\",\"query_pre_attn_scalar\":256,\"sliding_window\":4096}",
	    /* Gemma 3, the text model and the whole; as transformers 5 writes it */
	    "{\"architectures\":[\"Gemma3ForCausalLM\"],\"model_type\":\"gemma3_text\"," SHAPE
	    ",\"attn_logit_softcapping\":null,"
	    "\"final_logit_softcapping\":null,\"hidden_activation\":\"gelu_pytorch_tanh\",\"query_pre_attn_scalar\":"
	    "256,"
	    "\"rope_local_base_freq\":10000,\"sliding_window\":512,\"sliding_window_pattern\":6,\"use_bidirectional_"
	    "attention\":false}",
	    "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"boi_token_index\":255999,\"eoi_token_index\":"
	    "256000,"
	    "\"image_token_index\":262144,\"mm_tokens_per_image\":256,\"model_type\":\"gemma3\",\"vision_config\":{"
	    "\"hidden_act\":\"x\"},"
	    "\"text_config\":{" SHAPE
	    ",\"model_type\":\"gemma3_text\",\"layer_types\":[\"sliding_attention\"],\"_sliding_window_pattern\":6,"
	    "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"}}}",
	    "{\"architectures\":[\"Gemma3ForCausalLM\"],\"model_type\":\"gemma3_text\"," SHAPE
	    ",\"rope_parameters\":{\"full_attention\":{"
	    "\"rope_theta\":1000000,\"rope_type\":\"default\"},\"sliding_attention\":{\"rope_theta\":10000,\"rope_"
	    "type\":\"default\"}}}",
	};
	md_llama_folder(dir);
	for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
		struct model_arch a;
		read_config(configs[i], &a);
		if (a.n_unknown_keys > 0)
			fail_msg("%s\n%s", configs[i], a.unknown_keys);
	}
}

static void test_gemma(void **state)
{
	(void)state;
	struct model_arch a;
	md_llama_folder(dir);
	/* Gemma 3's classes cap nothing unless the file says so. */
	read_config("{\"model_type\":\"gemma3_text\"," SHAPE "}", &a);
	assert_true(a.attn_softcap == 0 && a.final_softcap == 0 && a.tied_embeddings);
	read_config("{\"model_type\":\"gemma3_text\"," SHAPE
		    ",\"attn_logit_softcapping\":50.0,\"final_logit_softcapping\":30.0}",
		    &a);
	assert_true(a.attn_softcap == 50 && a.final_softcap == 30);
	/* Gemma 2's do unless it says null. */
	read_config("{\"model_type\":\"gemma2\"," SHAPE "}", &a);
	assert_true(a.attn_softcap == 50 && a.final_softcap == 30);
	read_config("{\"model_type\":\"gemma2\"," SHAPE
		    ",\"attn_logit_softcapping\":null,\"final_logit_softcapping\":null}",
		    &a);
	assert_true(a.attn_softcap == 0 && a.final_softcap == 0);
	config("{\"model_type\":\"gemma3_text\"," SHAPE ",\"use_bidirectional_attention\":true}");
	refused("", SL_EUNSUPPORTED, "use_bidirectional_attention is true");
	config("{\"model_type\":\"gemma3\",\"text_config\":{" SHAPE ",\"use_bidirectional_attention\":true}}");
	refused("", SL_EUNSUPPORTED, "text_config.use_bidirectional_attention is true");
	config("{\"model_type\":\"gemma3\",\"rope_scaling\":{\"factor\":2},\"text_config\":{" SHAPE "}}");
	refused("", SL_EUNSUPPORTED, "rope_scaling is an object");
	config("{\"model_type\":\"gemma3\",\"text_config\":{" SHAPE ",\"model_type\":\"llama\"}}");
	refused("", SL_EUNSUPPORTED, "model_type of text_config");
	/* A window that is never full is still another rope. */
	read_config("{\"model_type\":\"gemma3_text\"," SHAPE ",\"sliding_window\":9000}", &a);
	assert_int_equal(a.window, 9000);
}

static void test_defaults_of_classes(void **state)
{
	(void)state;
	struct model_arch a;
	md_llama_folder(dir);
	read_config("{\"model_type\":\"mistral\"," SHAPE "}", &a);
	assert_int_equal(a.window, 4096);
	read_config("{\"model_type\":\"mistral\"," SHAPE ",\"sliding_window\":null}", &a);
	assert_int_equal(a.window, 0);
	config("{\"model_type\":\"qwen2\"," SHAPE ",\"layer_types\":[\"sliding_attention\"]}");
	refused("", SL_EUNSUPPORTED, "layer_types has an order");
	read_config("{\"model_type\":\"qwen2\"," SHAPE ",\"attention_bias\":true}",
		    &a); /* which its class always has */
	/* A head that is missing is not the embeddings where the file says that it isn't. */
	md_safetensors(dir, "model.safetensors", md_llama, MD_N_LLAMA - 1);
	config(MD_LLAMA_CONFIG "}");
	refused("", SL_EINVAL, "tie_word_embeddings is false, but there is no lm_head.weight");
}

/* ---- YaRN ---- */

/* Peng et al. 2023 as transformers computes it: correction range, ramp over n_rot / 2 pairs. */
static double yarn_frequency(int i, int n_rot, double base, double factor, double original, double fast, double slow,
			     bool truncate)
{
	double low = n_rot * log(original / (fast * 2 * M_PI)) / (2 * log(base)),
	       high = n_rot * log(original / (slow * 2 * M_PI)) / (2 * log(base));
	if (truncate) {
		low = floor(low);
		high = ceil(high);
	}
	low = low > 0 ? low : 0;
	high = high < n_rot - 1 ? high : n_rot - 1;
	if (low == high)
		high += 0.001;
	double ramp = (i - low) / (high - low), plain = 1 / pow(base, 2.0 * i / n_rot);
	ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
	return plain / factor * ramp + plain * (1 - ramp);
}

static double get_mscale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1; }

static void test_yarn(void **state)
{
	(void)state;
	static const struct {
		const char *more;
		double fast, slow, magnitude;
		bool truncate;
	} cases[] = {
	    {"", 32, 1, 0, true},
	    {",\"truncate\":true", 32, 1, 0, true},
	    {",\"truncate\":false", 32, 1, 0, false},
	    {",\"truncate\":null", 32, 1, 0, true},
	    {",\"truncate\":false,\"beta_fast\":20,\"beta_slow\":3", 20, 3, 0, false},
	    {",\"beta_fast\":20.5,\"beta_slow\":null", 20.5, 1, 0, true},
	    {",\"mscale\":0.707,\"mscale_all_dim\":1.2", 32, 1, -1, true},
	    {",\"mscale\":0.707,\"mscale_all_dim\":0.707", 32, 1, 1, true},
	    {",\"mscale\":0.707,\"mscale_all_dim\":1.2,\"attention_factor\":1.25", 32, 1, 1.25, true},
	    {",\"mscale\":0.707,\"mscale_all_dim\":0", 32, 1, 0, true},
	    {",\"mscale\":1.0", 32, 1, 0, true},
	    {",\"mscale_all_dim\":0", 32, 1, 0, true},
	};
	const int n_rot = 64;
	md_llama_folder(dir);
	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
		struct model_arch a;
		double freq[ARCH_MAX_ROT];
		char text[2048];
		snprintf(
		    text, sizeof text,
		    "{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
		    "\"num_key_value_heads\":1,\"intermediate_size\":16,\"max_position_embeddings\":8192,\"head_dim\":%"
		    "d,\"rope_theta\":150000,"
		    "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":16.0,\"original_max_position_embeddings\":"
		    "4096%s}}",
		    n_rot, cases[c].more);
		read_config(text, &a);
		rope_frequencies(&a.rope, freq);
		for (int i = 0; i < n_rot / 2; i++) {
			double want =
			    yarn_frequency(i, n_rot, 150000, 16, 4096, cases[c].fast, cases[c].slow, cases[c].truncate);
			if (!(fabs(freq[i] - want) <= 1e-12 * want))
				fail_msg("%s: pair %d turns by %.15g, not %.15g", cases[c].more, i, freq[i], want);
		}
		double magnitude = cases[c].magnitude == 0    ? get_mscale(16, 1)
				   : cases[c].magnitude == -1 ? get_mscale(16, 0.707) / get_mscale(16, 1.2)
							      : cases[c].magnitude;
		if (!(fabs(rope_magnitude(&a.rope, a.n_ctx) - magnitude) < 1e-12))
			fail_msg("%s: %.15g, not %.15g", cases[c].more, rope_magnitude(&a.rope, a.n_ctx), magnitude);
	}
	static const char *const wrong[][2] = {
	    {"\"truncate\":1", "truncate is not true or false"},
	    {"\"mscale\":0.707", "mscale is not supported without mscale_all_dim"},
	    {"\"mscale_all_dim\":0.707", "mscale_all_dim is not supported without mscale"},
	    {"\"mscale\":\"1\"", "mscale is not a number"},
	    {"\"beta_fast\":1,\"beta_slow\":2", "beta_fast is below beta_slow"},
	    {"\"low_freq_factor\":1", "rope_scaling.low_freq_factor is 1"},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		char text[2048];
		struct model_arch a;
		struct sl_err err = {0};
		snprintf(text, sizeof text, "%s,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,%s}}",
			 MD_LLAMA_CONFIG, wrong[i][0]);
		config(text);
		struct model_file *f = opened("");
		assert_int_not_equal(model_file_arch(f, &a, &err), 0);
		if (strstr(err.text, wrong[i][1]) == NULL)
			fail_msg("%s, not %s", err.text, wrong[i][1]);
		model_file_close(f);
	}
}

/* ---- GGUF ---- */

struct extra {
	const char *key;
	char type; /* u, f, b, s, a: a list of as many, at least one */
	double value;
	const char *text;
};

/* base.gguf with keys changed or added, as edited.gguf. */
static void edit(const struct extra *extras, size_t n)
{
	char path[256];
	struct sl_err err = {0};
	struct gguf_writer *w;
	struct model_file *f = opened("base.gguf");
	const struct gguf *g = model_file_gguf(f);
	md_path(path, dir, "edited.gguf");
	assert_int_equal(gguf_writer_create(path, true, &w, &err), 0);
	for (size_t i = 0; i < gguf_n_keys(g); i++) {
		enum gguf_value type;
		struct proto_str value, key = gguf_raw_key(g, i, &type, &value);
		bool changed = false;
		for (size_t k = 0; k < n; k++)
			changed =
			    changed || (strlen(extras[k].key) == key.n && memcmp(extras[k].key, key.at, key.n) == 0);
		if (!changed)
			gguf_put_raw(w, key, type, value);
	}
	for (size_t k = 0; k < n; k++) {
		const struct extra *x = &extras[k];
		if (x->type == 'u')
			gguf_put_u32(w, x->key, (uint32_t)x->value);
		else if (x->type == 'f')
			gguf_put_f32(w, x->key, (float)x->value);
		else if (x->type == 'b')
			gguf_put_bool(w, x->key, x->value != 0);
		else if (x->type == 's')
			gguf_put_str(w, x->key, x->text, strlen(x->text));
		else {
			gguf_put_array(w, x->key, GGUF_U32, x->value > 1 ? (uint64_t)x->value : 1);
			for (int item = 0; item < 1 || item < (int)x->value; item++)
				gguf_item_bytes(w, "\1\0\0\0", 4);
		}
	}
	for (size_t i = 0; i < gguf_n_tensors(g); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(g, i);
		gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims);
	}
	for (size_t i = 0; i < gguf_n_tensors(g); i++)
		gguf_write_data(w, gguf_tensor_at(g, i)->data, (size_t)gguf_tensor_at(g, i)->bytes);
	assert_int_equal(gguf_writer_finish(w, &err), 0);
	model_file_close(f);
}

static void test_gguf_refused(void **state)
{
	(void)state;
	static const struct extra cases[] = {
	    {"llama.attention.causal", 'b', 0, "llama.attention.causal is false"},
	    {"llama.pooling_type", 'u', 2, "llama.pooling_type 2 is not supported"},
	    {"llama.attention.clamp_kqv", 'f', 8, "llama.attention.clamp_kqv is 8"},
	    {"llama.attention.max_alibi_bias", 'f', 8, "llama.attention.max_alibi_bias is 8"},
	    {"llama.attention.temperature_length", 'u', 8192, "llama.attention.temperature_length is 8192"},
	    {"llama.attention.anything", 'u', 1, "llama.attention.anything is 1"},
	    {"llama.rope.anything", 'f', 1, "llama.rope.anything is 1"},
	    {"llama.rope.dimension_sections", 'a', 0, "llama.rope.dimension_sections is 1 × u32"},
	    {"llama.rope.freq_base_swa", 'f', 10000, "llama.rope.freq_base_swa is 10000"},
	    {"llama.rope.scaling.factor", 'f', 4, "llama.rope.scaling.factor is 4"},
	    {"llama.rope.scaling.attn_factor", 'f', 1.5, "llama.rope.scaling.attn_factor is 1.5"},
	    {"llama.rope.scaling.yarn_log_multiplier", 'f', 0.125, "llama.rope.scaling.yarn_log_multiplier is 0.125"},
	    {"llama.rope.scaling.yarn_beta_fast", 'f', 16, "llama.rope.scaling.yarn_beta_fast is 16"},
	    {"llama.expert_used_count", 'u', 2, "llama.expert_used_count is 2"},
	    {"llama.expert_anything", 'u', 2, "llama.expert_anything is 2"},
	    {"llama.logit_scale", 'f', 0.0625, "llama.logit_scale is 0.0625"},
	    {"llama.embedding_scale", 'f', 12, "llama.embedding_scale is 12"},
	    {"llama.residual_scale", 'f', 0.25, "llama.residual_scale is 0.25"},
	    {"llama.use_parallel_residual", 'b', 1, "llama.use_parallel_residual is true"},
	    {"llama.router_logit_softcapping", 'f', 30, "llama.router_logit_softcapping is 30"},
	    {"llama.new_softcapping", 'f', 30, "llama.new_softcapping is 30"},
	    {"llama.ssm.state_size", 'u', 16, "llama.ssm.state_size is 16"},
	    {"general.type", 's', 0, "general.type is adapter"},
	    {"tokenizer.ggml.treat_whitespace_as_suffix", 'b', 1, "tokenizer.ggml.treat_whitespace_as_suffix is true"},
	};
	random_file("base.gguf", "tiny-mistral", "f32", 1, 1);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct extra x = cases[i];
		if (x.type == 's')
			x.text = "adapter";
		edit(&x, 1);
		refused("edited.gguf", SL_EUNSUPPORTED, cases[i].text);
	}
}

static void test_gguf_taken(void **state)
{
	(void)state;
	struct model_arch a, plain;
	struct model_file *f;
	const struct extra neutral[] = {{"llama.attention.causal", 'b', 1, NULL},
					{"llama.pooling_type", 'u', 0, NULL},
					{"llama.logit_scale", 'f', 1, NULL},
					{"llama.rope.scaling.finetuned", 'b', 1, NULL},
					{"llama.rope.scaling.type", 's', 0, "none"},
					{"llama.rope.scaling.attn_factor", 'f', 1, NULL},
					{"llama.rope.scaling.original_context_length", 'u', 4096, NULL},
					{"llama.expert_count", 'u', 0, NULL},
					{"llama.expert_used_count", 'u', 0, NULL},
					{"llama.attention.sliding_window", 'u', 0, NULL},
					{"general.file_type", 'u', 7, NULL},
					{"general.type", 's', 0, "model"},
					{"quantize.imatrix.entries_count", 'u', 7, NULL},
					{"tokenizer.ggml.add_eos_token", 'b', 1, NULL}};
	const struct extra counts[] = {{"llama.attention.scale", 'f', 0.25, NULL},
				       {"llama.final_logit_softcapping", 'f', 30, NULL},
				       {"llama.attn_logit_softcapping", 'f', 50, NULL},
				       {"llama.flavour", 'u', 1, NULL},
				       {"zest", 'u', 1, NULL}};
	const struct extra longrope[] = {{"llama.rope.scaling.type", 's', 0, "longrope"}};
	random_file("base.gguf", "tiny-mistral", "f32", 1, 1);
	f = opened("base.gguf");
	arch_of(f, &plain);
	model_file_close(f);
	assert_int_equal(plain.n_unknown_keys, 0);
	edit(neutral, sizeof neutral / sizeof *neutral);
	f = opened("edited.gguf");
	arch_of(f, &a);
	model_file_close(f);
	assert_memory_equal(&a, &plain, sizeof a);
	edit(counts, sizeof counts / sizeof *counts);
	f = opened("edited.gguf");
	arch_of(f, &a);
	model_file_close(f);
	assert_true(a.attn_scale == 0.25f && a.attn_softcap == 50 && a.final_softcap == 30);
	assert_int_equal(a.n_unknown_keys, 2);
	assert_string_equal(a.unknown_keys, "llama.flavour, zest");
	edit(longrope, 1);
	refused("edited.gguf", SL_EINVAL, "rope_factors_long.weight is missing");
}

/* Converters name the labels of a classifier, though there is one. */
static void test_gguf_labels(void **state)
{
	(void)state;
	const struct extra one = {"bert.classifier.output_labels", 'a', 1, NULL},
			   two = {"bert.classifier.output_labels", 'a', 2, NULL},
			   odd = {"bert.classifier.output_labels", 'u', 1, NULL};
	struct model_arch a;
	random_file("base.gguf", "tiny-reranker", "f32", 1, 1);
	edit(&one, 1);
	struct model_file *f = opened("edited.gguf");
	arch_of(f, &a);
	model_file_close(f);
	assert_true(a.pooling == ARCH_POOL_RANK && a.rank_dense && a.n_unknown_keys == 0);
	edit(&two, 1);
	refused("edited.gguf", SL_EUNSUPPORTED, "bert.classifier.output_labels names 2 labels");
	edit(&odd, 1);
	refused("edited.gguf", SL_EINVAL, "bert.classifier.output_labels");
	/* Of no consequence where the head is not used. */
	random_file("base.gguf", "tiny-bert", "f32", 1, 1);
	edit(&two, 1);
	f = opened("edited.gguf");
	arch_of(f, &a);
	model_file_close(f);
	assert_int_equal(a.pooling, ARCH_POOL_CLS);
}

/* The last layers of some files only draft. */
static void test_gguf_drafting(void **state)
{
	(void)state;
	const struct extra one = {"glm4moe.nextn_predict_layers", 'u', 1, NULL}, all = {one.key, 'u', 3, NULL};
	struct model_arch a;
	random_file("base.gguf", "tiny-glm4moe", "f32", 1, 1);
	edit(&one, 1);
	struct model_file *f = opened("edited.gguf");
	arch_of(f, &a);
	assert_true(a.n_layers == 2 && a.n_drafting == 1);
	model_file_close(f);
	const struct kn_config kc = {.n_threads = 1, .max_rows = 4, .max_width = 4096};
	struct sl_err err = {0};
	const struct kn_ops *o = kn_select("auto", &err);
	struct kn_backend *b;
	struct model *m;
	char path[256];
	md_path(path, dir, "edited.gguf");
	assert_int_equal(o->open(&kc, &b, &err), 0);
	if (model_load(path, o, b, 4, 0, &m, &err) != 0)
		fail_msg("%s", err.text);
	model_free(m);
	o->close(b);
	edit(&all, 1);
	refused("edited.gguf", SL_EINVAL, "glm4moe.block_count is 3, not from 4");
}

/* What every shape is written with is known again. */
static void test_gguf_of_every_family(void **state)
{
	(void)state;
	static const char *const shapes[] = {"tiny-llama",   "tiny-mistral",  "tiny-qwen2",      "tiny-qwen3",
					     "tiny-phi3",    "tiny-gemma2",   "tiny-gemma3",     "tiny-mixtral",
					     "tiny-olmoe",   "tiny-qwen2moe", "tiny-qwen3moe",   "tiny-gpt-oss",
					     "tiny-smollm3", "tiny-granite",  "tiny-granitemoe", "tiny-seed-oss",
					     "tiny-ernie",   "tiny-glm4",     "tiny-glm4moe"};
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		struct model_arch a;
		random_file("base.gguf", shapes[i], "f32", 1, 1);
		struct model_file *f = opened("base.gguf");
		arch_of(f, &a);
		assert_string_equal(a.unknown_keys, "");
		model_file_close(f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_refused_by_name, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_unknown_is_named, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_published, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_gemma, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_defaults_of_classes, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_yarn, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_gguf_refused, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_gguf_taken, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_gguf_drafting, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_gguf_labels, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_gguf_of_every_family, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
