/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations of every kind of attention and mixture, with each key in turn at the ends of its range and far beyond,
 * and of other types: read, so that all widths and sums that follow are possible, or refused in one line that names the
 * file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <jansson.h>

#include "engine/source/arch_read.h"
#include "tests/support/part.h"
#include "tests/unit/engine/source/model_files.h"

#define DEEP                                                                                                \
	SHAPE ",\"kv_lora_rank\":8,\"qk_nope_head_dim\":4,\"qk_rope_head_dim\":4,\"v_head_dim\":4,"         \
	      "\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":8,\"n_group\":4," \
	      "\"topk_group\":2,\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"moe_layer_freq\":1,"   \
	      "\"routed_scaling_factor\":2.5,\"num_nextn_predict_layers\":1,\"rope_theta\":10000,"          \
	      "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"beta_fast\":32,\"beta_slow\":1,"         \
	      "\"mscale\":1,\"mscale_all_dim\":1,\"original_max_position_embeddings\":4096}"
#define LFM                                                                                                        \
	SHAPE ",\"norm_eps\":1e-5,\"num_hidden_layers\":2,\"layer_types\":[\"conv\",\"full_attention\"],\"conv_L_" \
	      "cache\":3"
#define DELTA                                                                                       \
	SHAPE ",\"num_hidden_layers\":4,\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"   \
	      "\"linear_key_head_dim\":4,\"linear_value_head_dim\":4,\"linear_conv_kernel_dim\":4," \
	      "\"full_attention_interval\":4,\"partial_rotary_factor\":0.5,\"rope_theta\":10000"
#define MAMBA                                                                                                      \
	SHAPE ",\"num_hidden_layers\":4,\"layer_types\":[\"mamba\",\"attention\",\"mamba\",\"mamba\"],\"mamba_n_"  \
	      "heads\":4,"                                                                                         \
	      "\"mamba_d_head\":4,\"mamba_n_groups\":1,\"mamba_d_state\":4,\"mamba_d_conv\":4,\"mamba_expand\":2," \
	      "\"shared_intermediate_size\":8,\"embedding_multiplier\":12,\"residual_multiplier\":0.25,"           \
	      "\"attention_multiplier\":0.1,\"logits_scaling\":8,\"time_step_limit\":[0,100]"
#define HALVES                                                                                      \
	SHAPE ",\"num_hidden_layers\":4,\"mamba_num_heads\":4,\"mamba_head_dim\":4,\"n_groups\":2," \
	      "\"ssm_state_size\":4,\"conv_kernel\":4,\"layer_norm_epsilon\":1e-5,\"time_step_limit\":[0,100]"
#define LIKE_QWEN ",\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":8"

static const char *const configs[] = {
    "{\"model_type\":\"deepseek_v3\",\"q_lora_rank\":8," DEEP "}",
    "{\"model_type\":\"deepseek_v2\",\"q_lora_rank\":null,\"scoring_func\":\"softmax\","
    "\"topk_method\":\"group_limited_greedy\",\"norm_topk_prob\":false," DEEP "}",
    "{\"model_type\":\"lfm2\"," LFM ",\"block_ff_dim\":16,\"block_multiple_of\":8,\"block_ffn_dim_multiplier\":1}",
    "{\"model_type\":\"lfm2_moe\"," LFM LIKE_QWEN ",\"num_dense_layers\":1,\"routed_scaling_factor\":1}",
    "{\"model_type\":\"qwen3_5_text\"," DELTA "}",
    "{\"model_type\":\"qwen3_next\"," DELTA LIKE_QWEN ",\"shared_expert_intermediate_size\":8}",
    "{\"model_type\":\"granitemoehybrid\"," MAMBA ",\"num_local_experts\":4,\"num_experts_per_tok\":2}",
    "{\"model_type\":\"nemotron_h\"," HALVES ",\"hybrid_override_pattern\":\"M-*M\"}",
    "{\"model_type\":\"nemotron_h\"," HALVES ",\"hybrid_override_pattern\":\"ME*E\",\"n_routed_experts\":8,"
    "\"num_experts_per_tok\":2,\"moe_intermediate_size\":8,\"moe_shared_expert_intermediate_size\":8,"
    "\"n_shared_experts\":1,\"moe_latent_size\":8,\"n_group\":4,\"topk_group\":2,\"routed_scaling_factor\":2.5}",
    "{\"model_type\":\"llama4_text\"," SHAPE ",\"num_local_experts\":4,\"num_experts_per_tok\":1,"
    "\"intermediate_size_mlp\":32,\"interleave_moe_layer_step\":1,\"moe_layers\":[0],\"no_rope_layers\":[1],"
    "\"no_rope_layer_interval\":4,\"attention_chunk_size\":512,\"attn_temperature_tuning\":4,\"attn_scale\":0.1,"
    "\"floor_scale\":8192}",
};

static const char *const values[] = {
    "0",
    "-1",
    "1",
    "2",
    "3",
    "511",
    "512",
    "513",
    "262143",
    "262144",
    "262145",
    "262146",
    "16777216",
    "2147483647",
    "2147483648",
    "1e300",
    "-1e9",
    "1e-300",
    "0.5",
    "7",
    "16384",
    "-0.0",
    "\"x\"",
    "[1,[2]]",
    "{\"a\":1}",
    "true",
    "null",
    "[]",
    "\"\\u0001\"",
    "65536",
    "9223372036854775807",
    "-9223372036854775808",
};

/* What others compute of a description. */
static void check_sums(const struct model_arch *a)
{
	uint64_t rows = arch_attn_floats(a) + arch_ff_floats(a) + arch_recurrent_floats(a);
	assert_true(a->n_layers >= 1 && a->n_layers <= ARCH_MAX_LAYERS && a->n_heads >= 1 && a->head_dim >= 1);
	assert_true(arch_widest(a) > 0 && arch_query_width(a) > 0 && arch_value_width(a) > 0 && arch_channels(a) > 0);
	assert_true(rows < UINT64_C(1) << 40 && arch_state(a) < UINT64_C(1) << 48);
	assert_true(a->rope.n_rot <= 2 * ARCH_MAX_ROT && a->rope.n_rot % 2 == 0);
	for (int i = 0; i < a->n_layers; i++)
		assert_true(arch_window(a, i) >= 0 && !(arch_attends(a, i) && arch_recurs(a, i)) &&
			    (!arch_mixes(a, i) || arch_has_ff(a, i)));
}

/* Whether it is read. */
static bool reads(const json_t *config)
{
	struct sl_err err = {0};
	struct model_file *f = NULL;
	struct model_arch a;
	char *text = json_dumps(config, 0);
	md_text(dir, "config.json", text);
	int rc = model_file_open(dir, &f, &err);
	if (rc == 0)
		rc = model_file_arch(f, &a, &err);
	if (rc == 0)
		check_sums(&a);
	else if ((rc != SL_EINVAL && rc != SL_EUNSUPPORTED) || strstr(err.text, "config.json: ") == NULL ||
		 strchr(err.text, '\n') != NULL)
		fail_msg("%d \"%s\": %s", rc, err.text, text);
	model_file_close(f);
	free(text);
	return rc == 0;
}

/* Every key of the object in turn; root has it. Returns how many changed configurations are read. */
static int change_each(json_t *root, json_t *object)
{
	const char *key;
	json_t *was;
	void *tmp;
	int n_read = 0;
	json_object_foreach_safe(object, tmp, key, was)
	{
		char name[64];
		json_incref(was);
		snprintf(name, sizeof name, "%s", key);
		n_read += json_is_object(was) ? change_each(root, was) : 0;
		for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
			json_object_set_new(object, name, json_loads(values[i], JSON_DECODE_ANY, NULL));
			n_read += reads(root);
		}
		json_object_set_new(object, name, was);
	}
	return n_read;
}

/* Every pair of keys with numbers at the ends of their ranges: what they are together must be possible, too. Every
 * fourth one without THOROUGH. */
static void change_pairs(json_t *root)
{
	static const int ends[] = {1, 1024, 262144};
	enum { N = sizeof ends / sizeof *ends };
	int nth = 0;
	const char *a, *b;
	json_t *was_a, *was_b, *copy = json_copy(root);
	json_object_foreach(copy, a, was_a)
	{
		for (int i = 0; i < N && json_is_integer(was_a); i++) {
			json_object_set_new(root, a, json_integer(ends[i]));
			json_object_foreach(copy, b, was_b)
			{
				for (int k = 0; k < N && json_is_integer(was_b) && strcmp(a, b) < 0; k++) {
					if (nth++ % some_of(4, 1) != 0)
						continue;
					json_object_set_new(root, b, json_integer(ends[k]));
					(void)reads(root);
				}
				if (strcmp(a, b) != 0)
					json_object_set(root, b, was_b);
			}
		}
		json_object_set(root, a, was_a);
	}
	json_decref(copy);
}

static void each_number(void **arg)
{
	(void)arg;
	md_llama_folder(dir);
	for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
		json_t *root = json_loads(configs[i], 0, NULL);
		assert_non_null(root);
		if (!reads(root))
			fail_msg("%s", configs[i]);
		assert_true(change_each(root, root) > 0);
		change_pairs(root);
		json_decref(root);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(each_number, setup, teardown)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
