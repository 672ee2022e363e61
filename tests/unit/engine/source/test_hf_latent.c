/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of DeepSeek's line: what their published configurations mean, by hand, and what is refused by the key's name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

#include "engine/file/hf_names.h"
#include "tests/unit/engine/source/model_files.h"

static void config_is(const char *text, struct model_arch *a)
{
	md_text(dir, "config.json", text);
	struct model_file *f = opened("");
	arch_of(f, a);
	model_file_close(f);
}

/* Of V2-Lite: queries are one product, experts are chosen by a softmax. */
static const char v2_lite[] =
    "{\"architectures\":[\"DeepseekV2ForCausalLM\"],\"attention_bias\":false,\"aux_loss_alpha\":0.001,\"bos_token_id\":"
    "1,"
    "\"first_k_dense_replace\":1,\"hidden_act\":\"silu\",\"hidden_size\":2048,\"initializer_range\":0.02,"
    "\"intermediate_size\":10944,\"kv_lora_rank\":512,\"max_position_embeddings\":163840,\"model_type\":\"deepseek_"
    "v2\","
    "\"moe_intermediate_size\":1408,\"moe_layer_freq\":1,\"n_group\":1,\"n_routed_experts\":64,\"n_shared_experts\":2,"
    "\"norm_topk_prob\":false,\"num_attention_heads\":16,\"num_experts_per_tok\":6,\"num_hidden_layers\":27,"
    "\"num_key_value_heads\":16,\"pretraining_tp\":1,\"q_lora_rank\":null,\"qk_nope_head_dim\":128,"
    "\"qk_rope_head_dim\":64,\"rms_norm_eps\":1e-06,\"rope_scaling\":{\"beta_fast\":32,\"beta_slow\":1,\"factor\":40,"
    "\"mscale\":0.707,\"mscale_all_dim\":0.707,\"original_max_position_embeddings\":4096,\"type\":\"yarn\"},"
    "\"rope_theta\":10000,\"routed_scaling_factor\":1.0,\"scoring_func\":\"softmax\",\"seq_aux\":true,"
    "\"tie_word_embeddings\":false,\"topk_group\":1,\"topk_method\":\"greedy\",\"torch_dtype\":\"bfloat16\","
    "\"use_cache\":true,\"v_head_dim\":128,\"vocab_size\":102400}";

static void test_v2_lite(void **arg)
{
	(void)arg;
	struct model_arch a;
	md_llama_folder(dir);
	config_is(v2_lite, &a);
	assert_string_equal(a.family, "deepseek2");
	assert_true(a.n_heads == 16 && a.n_kv_heads == 1 && a.head_dim == 576);
	assert_true(a.latent.n == 512 && a.latent.n_query == 0 && a.latent.plain == 128 && a.latent.n_value == 128);
	assert_true(a.latent.joined && a.rope.n_rot == 64 && !a.rope.halves);
	assert_true(a.experts.n == 64 && a.experts.n_used == 6 && a.experts.n_ff == 1408);
	assert_true(a.experts.n_ff_shared == 2816 && a.experts.n_dense == 1 && a.experts.n_groups == 0);
	assert_true(!a.experts.sigmoid && !a.experts.norm && a.experts.scale == 1);
	assert_true(a.rope.magnitude == 1 && a.rope.factor == 40);
	double grown = 0.1 * 0.707 * log(40) + 1;
	assert_true(fabs((double)a.attn_scale / (grown * grown / sqrt(192)) - 1) < 1e-6);
}

#define V3                                                                                                        \
	"\"model_type\":\"deepseek_v3\",\"architectures\":[\"DeepseekV3ForCausalLM\"],\"hidden_size\":7168,"      \
	"\"num_hidden_layers\":61,\"num_attention_heads\":128,\"num_key_value_heads\":128,"                       \
	"\"intermediate_size\":18432,\"max_position_embeddings\":163840,\"rms_norm_eps\":1e-6,"                   \
	"\"q_lora_rank\":1536,\"qk_nope_head_dim\":128,\"v_head_dim\":128,\"moe_intermediate_size\":2048,"        \
	"\"num_experts_per_tok\":8,\"first_k_dense_replace\":3,\"num_nextn_predict_layers\":1,\"ep_size\":1,"     \
	"\"moe_layer_freq\":1,\"tie_word_embeddings\":false,\"rope_theta\":10000,\"routed_scaling_factor\":2.5,"  \
	"\"rope_scaling\":{\"beta_fast\":32,\"beta_slow\":1,\"factor\":40,\"mscale\":1.0,\"mscale_all_dim\":1.0," \
	"\"original_max_position_embeddings\":4096,\"type\":\"yarn\"}"
#define V3_ATTENTION ",\"kv_lora_rank\":512,\"qk_rope_head_dim\":64"
#define V3_EXPERTS                                                                                               \
	",\"n_routed_experts\":256,\"n_shared_experts\":1,\"norm_topk_prob\":true,\"scoring_func\":\"sigmoid\"," \
	"\"topk_method\":\"noaux_tc\",\"n_group\":8,\"topk_group\":4"

static void test_v3(void **arg)
{
	(void)arg;
	struct model_arch a, b;
	md_llama_folder(dir);
	config_is("{" V3 V3_ATTENTION V3_EXPERTS "}", &a);
	assert_true(a.latent.n_query == 1536 && a.n_drafting == 0 && a.experts.n_dense == 3);
	assert_true(a.experts.n_groups == 8 && a.experts.n_groups_used == 4 && !a.experts.group_best);
	assert_true(a.experts.sigmoid && a.experts.norm && a.experts.scale == 2.5f && a.experts.n_ff_shared == 2048);
	double grown = 0.1 * log(40) + 1;
	assert_true(fabs((double)a.attn_scale / (grown * grown / sqrt(192)) - 1) < 1e-6);
	/* What its class has for absent keys. */
	config_is("{" V3 V3_ATTENTION ",\"n_routed_experts\":256}", &b);
	assert_true(b.experts.n_groups == 8 && b.experts.n_groups_used == 4 && b.experts.sigmoid && b.experts.norm);
	/* Pairs that lie apart. */
	config_is("{" V3 V3_ATTENTION V3_EXPERTS ",\"rope_interleave\":false}", &b);
	assert_true(b.rope.halves && b.rope_windowed.halves);
	/* No experts. */
	config_is("{" V3 V3_ATTENTION ",\"n_routed_experts\":null}", &b);
	assert_int_equal(b.experts.n, 0);
}

/* V2 chooses among groups by their best expert. */
static void test_v2_groups(void **arg)
{
	(void)arg;
	struct model_arch a;
	char text[sizeof v2_lite + 64];
	md_llama_folder(dir);
	snprintf(text, sizeof text, "%s", v2_lite);
	memcpy(strstr(text, "\"n_group\":1"), "\"n_group\":8", 11);
	memcpy(strstr(text, "\"topk_group\":1"), "\"topk_group\":3", 14);
	config_is(text, &a);
	assert_int_equal(a.experts.n_groups, 0); /* greedy */
	char *method = strstr(text, "\"greedy\"");
	memmove(method + 22, method + 8, strlen(method + 8) + 1);
	memcpy(method, "\"group_limited_greedy\"", 22);
	config_is(text, &a);
	assert_true(a.experts.n_groups == 8 && a.experts.n_groups_used == 3 && a.experts.group_best);
}

static void test_refused(void **arg)
{
	(void)arg;
	static const struct {
		const char *text;
		int code;
		const char *said;
	} bad[] = {
	    {"{" V3 V3_EXPERTS ",\"kv_lora_rank\":0,\"qk_rope_head_dim\":64}", SL_EINVAL,
	     "kv_lora_rank is not a whole"},
	    {"{" V3 V3_EXPERTS ",\"qk_rope_head_dim\":64}", SL_EINVAL, "kv_lora_rank is missing"},
	    {"{" V3 V3_EXPERTS ",\"kv_lora_rank\":512,\"qk_rope_head_dim\":63}", SL_EINVAL, "qk_rope_head_dim is odd"},
	    {"{" V3 V3_EXPERTS ",\"kv_lora_rank\":512}", SL_EINVAL, "qk_rope_head_dim is missing"},
	    {"{" V3 V3_EXPERTS ",\"kv_lora_rank\":16000,\"qk_rope_head_dim\":64}", SL_EUNSUPPORTED,
	     "num_attention_heads is too much"},
	    {"{" V3 V3_ATTENTION "}", SL_EINVAL, "n_routed_experts is missing"},
	    {"{" V3 V3_ATTENTION ",\"n_routed_experts\":256,\"n_group\":7}", SL_EINVAL,
	     "n_group does not divide the number of experts"},
	    {"{" V3 V3_ATTENTION ",\"n_routed_experts\":64,\"n_group\":32,\"topk_group\":3}", SL_EINVAL,
	     "n_group and the groups used have fewer experts than a row uses"},
	    {"{" V3 V3_ATTENTION ",\"n_routed_experts\":256,\"topk_group\":9}", SL_EINVAL, "topk_group is not a whole"},
	    {"{" V3 V3_ATTENTION ",\"n_routed_experts\":256,\"topk_method\":\"greedy\"}", SL_EUNSUPPORTED,
	     "topk_method is not supported with sigmoid"},
	    {"{" V3 V3_ATTENTION ",\"n_routed_experts\":256,\"scoring_func\":\"tanh\"}", SL_EUNSUPPORTED,
	     "scoring_func"},
	    {"{" V3 V3_ATTENTION V3_EXPERTS ",\"attention_bias\":true}", SL_EUNSUPPORTED, "attention_bias"},
	    {"{" V3 V3_ATTENTION V3_EXPERTS ",\"index_topk\":2048}", SL_EUNSUPPORTED, "index_topk"},
	};
	md_llama_folder(dir);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		md_text(dir, "config.json", bad[i].text);
		refused("", bad[i].code, bad[i].said);
	}
}

/* One more layer than num_hidden_layers drafts, and is not listed; the one after it is. */
static void test_drafting(void **arg)
{
	(void)arg;
	static const char head[] =
	    "{\"model.layers.1.eh_proj.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
	    "\"model.layers.2.eh_proj.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[8,16]},"
	    "\"model.layers.1.mlp.up_proj.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[16,24]},"
	    "\"model.layers.0.mlp.up_proj.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[24,32]}}";
	uint8_t file[8 + sizeof head + 8 + 32] = {0};
	size_t n = (sizeof head - 1 + 7) / 8 * 8;
	memset(file + 8, ' ', n);
	memcpy(file + 8, head, sizeof head - 1);
	file[0] = (uint8_t)n;
	file[1] = (uint8_t)(n >> 8);
	md_text(dir, "config.json",
		"{\"model_type\":\"deepseek_v3\",\"num_hidden_layers\":1,\"num_nextn_predict_layers\":1}");
	md_write(dir, "model.safetensors", file, 8 + n + 32);
	struct model_file *f = opened("");
	assert_int_equal(model_file_n_tensors(f), 2);
	assert_non_null(model_file_find(f, "blk.0.ffn_up.weight"));
	assert_non_null(model_file_find(f, "model.layers.2.eh_proj.weight"));
	model_file_close(f);
}

static void test_names(void **arg)
{
	(void)arg;
	static const char *const names[][2] = {
	    {"model.layers.3.self_attn.q_a_proj.weight", "blk.3.attn_q_a.weight"},
	    {"model.layers.3.self_attn.q_a_layernorm.weight", "blk.3.attn_q_a_norm.weight"},
	    {"model.layers.3.self_attn.q_b_proj.weight", "blk.3.attn_q_b.weight"},
	    {"model.layers.3.self_attn.kv_a_proj_with_mqa.weight", "blk.3.attn_kv_a_mqa.weight"},
	    {"model.layers.3.self_attn.kv_a_layernorm.weight", "blk.3.attn_kv_a_norm.weight"},
	    {"model.layers.3.self_attn.kv_b_proj.weight", "blk.3.attn_kv_b.weight"},
	    {"model.layers.3.mlp.gate.e_score_correction_bias", "blk.3.exp_probs_b.bias"},
	    {"model.layers.3.mlp.experts.17.up_proj.weight", "blk.3.ffn_up.17.weight"},
	};
	char out[96];
	assert_string_equal(hf_family("kimi_k2"), "deepseek2");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		assert_true(hf_gguf_name(names[i][0], "deepseek2", out, sizeof out));
		assert_string_equal(out, names[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_v2_lite, setup, teardown),
					   cmocka_unit_test_setup_teardown(test_v3, setup, teardown),
					   cmocka_unit_test_setup_teardown(test_v2_groups, setup, teardown),
					   cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
					   cmocka_unit_test_setup_teardown(test_drafting, setup, teardown),
					   cmocka_unit_test(test_names)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
