/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of keys in a GGUF head that arch_gguf.c does not ask for. Source: the GGUF specification, and the keys
 * that llama.cpp reads.
 */
#include <stdio.h>
#include <string.h>

#include "engine/source/arch_read.h"

/* Behind "<family>.". Of attention, rope, experts and recurrent layers unknown ones are refused. */
static const struct key_rule of_family[] = {
    {"vocab_size", NULL, NULL},
    {"tensor_data_layout", NULL, NULL},
    {"features_length", NULL, NULL},
    {"attention.causal", "true", NULL},
    {"pooling_type", "0", NULL},
    {"attention.clamp_kqv", "0", NULL},
    {"attention.max_alibi_bias", "0", NULL},
    {"attention.output_scale", "0|1", NULL},
    {"attention.temperature_scale", "0", NULL},
    {"attention.temperature_length", "0", NULL},
    {"attention.shared_kv_layers", "0", NULL},
    {"attention.q_lora_rank", "0", NULL},
    {"attention.kv_lora_rank", "0", NULL},
    {"attention.relative_buckets_count", "0", NULL},
    {"rope.scaling.finetuned", NULL, NULL},
    {"rope.scaling.original_context_length", NULL, NULL},
    {"rope.scaling.factor", "0|1", NULL},
    {"rope.scaling.attn_factor", "1", NULL},
    {"rope.scaling.yarn_ext_factor", "-1|1", NULL},
    {"rope.scaling.yarn_attn_factor", "1", NULL},
    {"rope.scaling.yarn_log_multiplier", "0", NULL},
    {"rope.scaling.yarn_beta_fast", "32", NULL},
    {"rope.scaling.yarn_beta_slow", "1", NULL},
    {"expert_weights_scale", "0|1", NULL},
    {"expert_weights_norm", "false", NULL},
    {"expert_gating_func", "0|1", NULL},
    {"expert_*", "0", NULL},
    {"leading_dense_block_count", "0", NULL},
    {"moe_every_n_layers", "0", NULL},
    {"interleave_moe_layer_step", "0", NULL},
    {"nextn_predict_layers", NULL, NULL},
    {"use_parallel_residual", "false", NULL},
    {"logit_scale", "0|1", NULL},
    {"embedding_scale", "0|1", NULL},
    {"residual_scale", "0|1", NULL},
    {"router_logit_softcapping", "0", NULL},
    {"swin_norm", "false", NULL},
    {"rescale_every_n_layers", "0", NULL},
    {"activation_sparsity_scale", "", NULL},
    {"ssm.*", "", NULL},
    {"wkv.*", "", NULL},
    {"altup.*", "", NULL},
    {"classifier.*", "", NULL},
    {NULL, NULL, NULL},
};

static const struct key_rule of_file[] = {
    {"general.type", "model", NULL},
    {"general.*", NULL, NULL},
    {"split.*", NULL, NULL},
    {"quantize.*", NULL, NULL},
    {"quantization.*", NULL, NULL},
    {"imatrix.*", NULL, NULL},
    /* The tokenizer's own reader has the rest. */
    {"tokenizer.ggml.add_eos_token", "false", NULL},
    {"tokenizer.ggml.add_sep_token", "false", NULL},
    {"tokenizer.ggml.escape_whitespaces", "true", NULL},
    {"tokenizer.ggml.treat_whitespace_as_suffix", "false", NULL},
    {"tokenizer.ggml.model", NULL, NULL},
    {"tokenizer.ggml.pre", NULL, NULL},
    {"tokenizer.ggml.tokens", NULL, NULL},
    {"tokenizer.ggml.scores", NULL, NULL},
    {"tokenizer.ggml.token_type*", NULL, NULL},
    {"tokenizer.ggml.merges", NULL, NULL},
    {"tokenizer.ggml.added_tokens", NULL, NULL},
    {"tokenizer.ggml.add_bos_token", NULL, NULL},
    {"tokenizer.ggml.add_space_prefix", NULL, NULL},
    {"tokenizer.ggml.remove_extra_whitespaces", NULL, NULL},
    {"tokenizer.ggml.precompiled_charsmap", NULL, NULL},
    {"tokenizer.ggml.bos_token_id", NULL, NULL},
    {"tokenizer.ggml.eos_token_id", NULL, NULL},
    {"tokenizer.ggml.eot_token_id", NULL, NULL},
    {"tokenizer.ggml.eom_token_id", NULL, NULL},
    {"tokenizer.ggml.unknown_token_id", NULL, NULL},
    {"tokenizer.ggml.padding_token_id", NULL, NULL},
    {"tokenizer.ggml.seperator_token_id", NULL, NULL},
    {"tokenizer.ggml.separator_token_id", NULL, NULL},
    {"tokenizer.ggml.cls_token_id", NULL, NULL},
    {"tokenizer.ggml.mask_token_id", NULL, NULL},
    {"tokenizer.ggml.prefix_token_id", NULL, NULL},
    {"tokenizer.ggml.suffix_token_id", NULL, NULL},
    {"tokenizer.ggml.middle_token_id", NULL, NULL},
    {"tokenizer.ggml.fim_*", NULL, NULL},
    {"tokenizer.huggingface.json", NULL, NULL},
    {"tokenizer.chat_template*", NULL, NULL},
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
