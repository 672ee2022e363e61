/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules for keys of a GGUF head that arch_gguf.c does not read. Source: the GGUF specification, and the keys that
 * llama.cpp reads.
 */
#include <stdio.h>
#include <string.h>

#include "engine/source/arch_read.h"

/* After "<family>.". Unknown keys of attention, rope, experts and recurrent layers are refused. */
static const struct key_rule of_family[] = {
    {"rope.scaling.finetuned", "true", "granite"},
    {"rope.scaling.finetuned", "true", "granitemoe"},
    {"vocab_size tensor_data_layout features_length rope.scaling.finetuned "
     "rope.scaling.original_context_length nextn_predict_layers",
     NULL, NULL},
    {"attention.causal", "true", NULL},
    {"attention.clamp_kqv attention.max_alibi_bias attention.temperature_scale "
     "attention.temperature_length attention.shared_kv_layers attention.q_lora_rank attention.kv_lora_rank "
     "attention.relative_buckets_count rope.scaling.yarn_log_multiplier leading_dense_block_count "
     "moe_every_n_layers interleave_moe_layer_step router_logit_softcapping rescale_every_n_layers",
     "0", NULL},
    {"attention.output_scale rope.scaling.factor expert_weights_scale expert_gating_func logit_scale "
     "embedding_scale residual_scale",
     "0|1", NULL},
    {"rope.scaling.attn_factor rope.scaling.yarn_attn_factor rope.scaling.yarn_beta_slow", "1", NULL},
    {"rope.scaling.yarn_ext_factor", "-1|1", NULL},
    {"rope.scaling.yarn_beta_fast", "32", NULL},
    {"expert_weights_norm use_parallel_residual swin_norm", "false", NULL},
    {"expert_weights_norm", "true", "qwen3moe"},
    {"expert_gating_func", "3", "gpt-oss"},
    {"expert_group_count expert_group_used_count", "1", "glm4moe"},
    {"rope.* attention.layer_norm_epsilon", NULL, "nemotron_h"}, /* nothing turns; the other epsilon counts */
    {"rope.* attention.layer_norm_epsilon", NULL, "nemotron_h_moe"},
    {"activation_sparsity_scale", "", NULL},
    {"expert_*", "0", NULL},
    {"moe_latent_size", "0", NULL},
    {"ssm.* wkv.* altup.* classifier.* shortconv.* full_attention_interval", "", NULL},
    {NULL, NULL, NULL},
};

static const struct key_rule of_file[] = {
    {"general.type", "model", NULL},
    {"general.* split.* quantize.* quantization.* imatrix.*", NULL, NULL},
    /* The tokenizer's reader checks the rest. */
    {"tokenizer.ggml.treat_whitespace_as_suffix", "false", NULL},
    {"tokenizer.ggml.escape_whitespaces", "true", NULL},
    {"tokenizer.ggml.model tokenizer.ggml.pre tokenizer.ggml.tokens tokenizer.ggml.scores "
     "tokenizer.ggml.merges tokenizer.ggml.added_tokens tokenizer.ggml.add_bos_token "
     "tokenizer.ggml.add_eos_token tokenizer.ggml.add_sep_token "
     "tokenizer.ggml.add_space_prefix tokenizer.ggml.remove_extra_whitespaces "
     "tokenizer.ggml.precompiled_charsmap tokenizer.ggml.bos_token_id tokenizer.ggml.eos_token_id "
     "tokenizer.ggml.eot_token_id tokenizer.ggml.eom_token_id tokenizer.ggml.unknown_token_id "
     "tokenizer.ggml.padding_token_id tokenizer.ggml.seperator_token_id tokenizer.ggml.separator_token_id "
     "tokenizer.ggml.cls_token_id tokenizer.ggml.mask_token_id tokenizer.ggml.prefix_token_id "
     "tokenizer.ggml.suffix_token_id tokenizer.ggml.middle_token_id tokenizer.huggingface.json",
     NULL, NULL},
    {"tokenizer.ggml.token_type* tokenizer.ggml.fim_* tokenizer.chat_template*", NULL, NULL},
    {NULL, NULL, NULL},
};

static bool begins(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }

int arch_check_gguf(const struct key_seen *seen, const struct gguf *g, struct model_arch *a, struct sl_err *err)
{
	const struct key_check file = {
	    .where = gguf_path(g), .prefix = "", .family = a->family, .rules = of_file, .arch = a, .err = err};
	size_t n = strlen(a->family);
	int rc = 0;
	for (size_t i = 0; i < gguf_n_keys(g) && rc == 0; i++) {
		char key[128], value[64], prefix[40];
		struct proto_str name = gguf_key_at(g, i, value, sizeof value);
		snprintf(key, sizeof key, "%.*s", (int)(name.n < sizeof key ? name.n : sizeof key - 1), name.at);
		if (!begins(key, a->family) || key[n] != '.') {
			rc = key_check(&file, key, value);
			continue;
		}
		const char *field = key + n + 1;
		struct key_check c = file;
		snprintf(prefix, sizeof prefix, "%s.", a->family);
		c.rules = of_family;
		c.prefix = prefix;
		c.strict = begins(field, "attention.") || begins(field, "rope.") || begins(field, "expert");
		if (!key_was_seen(seen, NULL, field))
			rc = key_check(&c, field, value);
	}
	return rc;
}
