/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of keys in config.json that arch_hf.c does not ask for. null is neutral everywhere. Sources: the
 * configuration classes of the transformers library for the families here, and what their relatives, whose files are
 * sometimes given a
 * supported model_type, add to the arithmetic (Granite's multipliers, Cohere's logit_scale, StableLM's parallel residual …).
 */
#include <stdio.h>

#include "engine/source/arch_read.h"

/* Of config.json itself and its text_config. */
static const struct key_rule of_config[] = {
    /* Of the file, training and its library. */
    {"_name_or_path", NULL, NULL},
    {"name_or_path", NULL, NULL},
    {"_commit_hash", NULL, NULL},
    {"architectures", NULL, NULL},
    {"auto_map", NULL, NULL},
    {"model_type", NULL, NULL},
    {"torch_dtype", NULL, NULL},
    {"dtype", NULL, NULL},
    {"transformers_version", NULL, NULL},
    {"transformers.js_config", NULL, NULL},
    {"unsloth_*", NULL, NULL},
    {"use_cache", NULL, NULL},
    {"cache_implementation", NULL, NULL},
    {"initializer_range", NULL, NULL},
    {"initializer_factor", NULL, NULL},
    {"gradient_checkpointing", NULL, NULL},
    {"pretraining_tp", NULL, NULL},
    {"is_llama_config", NULL, NULL},
    {"is_decoder", NULL, NULL},
    {"torchscript", NULL, NULL},
    {"use_bfloat16", NULL, NULL},
    {"tf_legacy_loss", NULL, NULL},
    {"tie_encoder_decoder", NULL, NULL},
    {"chunk_size_feed_forward", NULL, NULL},
    {"problem_type", NULL, NULL},
    {"id2label", NULL, NULL},
    {"label2id", NULL, NULL},
    {"num_labels", NULL, NULL},
    {"finetuning_task", NULL, NULL},
    {"task_specific_params", NULL, NULL},
    {"tokenizer_class", NULL, NULL},
    {"prefix", NULL, NULL},
    {"output_hidden_states", NULL, NULL},
    {"output_attentions", NULL, NULL},
    {"return_dict", NULL, NULL},
    {"use_return_dict", NULL, NULL},
    {"num_logits_to_keep", NULL, NULL},
    {"_attn_implementation*", NULL, NULL},
    {"attn_implementation", NULL, NULL},
    {"use_flash_attn", NULL, NULL},
    {"use_flash_attention*", NULL, NULL},
    {"_flash_attn_2_enabled", NULL, NULL},
    {"flash_attn*", NULL, NULL},
    {"attention_dropout", NULL, NULL},
    {"attention_probs_dropout_prob", NULL, NULL},
    {"attn_pdrop", NULL, NULL},
    {"attn_dropout", NULL, NULL},
    {"hidden_dropout*", NULL, NULL},
    {"embd_pdrop", NULL, NULL},
    {"resid_pdrop", NULL, NULL},
    {"classifier_dropout", NULL, NULL},
    {"output_router_logits", NULL, NULL},
    {"router_aux_loss_coef", NULL, NULL},
    /* How to sample is each request's. */
    {"max_length", NULL, NULL},
    {"min_length", NULL, NULL},
    {"do_sample", NULL, NULL},
    {"early_stopping", NULL, NULL},
    {"num_beams", NULL, NULL},
    {"num_beam_groups", NULL, NULL},
    {"diversity_penalty", NULL, NULL},
    {"temperature", NULL, NULL},
    {"top_k", NULL, NULL},
    {"top_p", NULL, NULL},
    {"typical_p", NULL, NULL},
    {"repetition_penalty", NULL, NULL},
    {"length_penalty", NULL, NULL},
    {"no_repeat_ngram_size", NULL, NULL},
    {"encoder_no_repeat_ngram_size", NULL, NULL},
    {"bad_words_ids", NULL, NULL},
    {"num_return_sequences", NULL, NULL},
    {"output_scores", NULL, NULL},
    {"return_dict_in_generate", NULL, NULL},
    {"forced_bos_token_id", NULL, NULL},
    {"forced_eos_token_id", NULL, NULL},
    {"remove_invalid_values", NULL, NULL},
    {"exponential_decay_length_penalty", NULL, NULL},
    {"suppress_tokens", NULL, NULL},
    {"begin_suppress_tokens", NULL, NULL},
    /* Tokens, whose numbers hf_folder.c and the tokenizer read; what the weights' shapes say again. */
    {"bos_token_id", NULL, NULL},
    {"eos_token_id", NULL, NULL},
    {"pad_token_id", NULL, NULL},
    {"unk_token_id", NULL, NULL},
    {"sep_token_id", NULL, NULL},
    {"decoder_start_token_id", NULL, NULL},
    {"vocab_size", NULL, NULL},
    {"seq_length", NULL, NULL},
    {"max_sequence_length", NULL, NULL},
    {"model_max_length", NULL, NULL},
    {"original_max_position_embeddings", NULL, NULL},
    {"tie_word_embeddings", NULL, NULL},
    /* The other halves of a larger model, and objects that are read on their own. */
    {"text_config", NULL, NULL},
    {"quantization_config", NULL, NULL},
    {"vision_*", NULL, NULL},
    {"image_*", NULL, NULL},
    {"audio_*", NULL, NULL},
    {"video_*", NULL, NULL},
    {"mm_*", NULL, NULL},
    {"boi_token*", NULL, NULL},
    {"eoi_token*", NULL, NULL},
    {"projector_*", NULL, NULL},
    {"multimodal_*", NULL, NULL},
    {"spatial_merge_size", NULL, NULL},
    /* Biases. */
    {"qkv_bias", "true", "qwen2"},
    {"qkv_bias", "false", NULL},
    {"use_qkv_bias", "true", "qwen2"},
    {"use_qkv_bias", "false", NULL},
    {"attention_out_bias", "false", NULL},
    {"attention_output_bias", "false", NULL},
    {"lm_head_bias", "false", NULL},
    {"use_bias", "false", NULL},
    {"add_bias_linear", "false", NULL},
    {"bias", "false", NULL},
    /* Norms. */
    {"qk_norm", "true", "qwen3"},
    {"qk_norm", "true", "gemma3"},
    {"qk_norm", "false", NULL},
    {"use_qk_norm", "true", "qwen3"},
    {"use_qk_norm", "true", "gemma3"},
    {"use_qk_norm", "false", NULL},
    {"qk_layernorm", "false", NULL},
    {"use_qk_layernorm", "false", NULL},
    {"norm_type", "rmsnorm|rms_norm|RMSNorm|rms", NULL},
    {"normalization_type", "rmsnorm|rms_norm|RMSNorm|rms", NULL},
    {"layer_norm_type", "rmsnorm|rms_norm|RMSNorm|rms", NULL},
    {"normalization_function", "rmsnorm|rms_norm|RMSNorm|rms", NULL},
    {"apply_residual_connection_post_layernorm", "false", NULL},
    {"use_post_norm", "false", NULL},
    {"activation_function", "silu", NULL},
    {"hidden_activation", "silu", NULL},
    /* Attention: who sees what, and how scores are made. */
    {"is_causal", "true", NULL},
    {"causal", "true", NULL},
    {"use_bidirectional_attention", "false", NULL},
    {"is_bidirectional", "false", NULL},
    {"bidirectional*", "false", NULL},
    {"is_encoder_decoder", "false", NULL},
    {"add_cross_attention", "false", NULL},
    {"cross_attention_hidden_size", "", NULL},
    {"pruned_heads", "{}", NULL},
    {"sliding_window", "", NULL},
    {"use_sliding_window", "false", NULL},
    {"max_window_layers", NULL, NULL},
    {"sliding_window_pattern", "", NULL},
    {"_sliding_window_pattern", "", NULL},
    {"attention_chunk_size", "", NULL},
    {"layer_types", "", NULL},
    {"dual_chunk_attention_config", "", NULL},
    {"query_pre_attn_scalar", "", NULL},
    {"attn_logit_softcapping", "", NULL},
    {"final_logit_softcapping", "", NULL},
    {"router_logit_softcapping", "", NULL},
    {"attention_multiplier", "", NULL},
    {"attention_scale", "", NULL},
    {"attn_scale", "", NULL},
    {"softmax_scale", "", NULL},
    {"scale_attn_weights", "true", NULL},
    {"scale_attn_by_inverse_layer_idx", "false", NULL},
    {"attn_temperature_tuning", "false|0", NULL},
    {"floor_scale", "", NULL},
    {"clip_qkv", "", NULL},
    {"qkv_clip", "", NULL},
    {"alibi", "false", NULL},
    {"use_alibi", "false", NULL},
    {"use_logn_attn", "false", NULL},
    {"attention_sink*", "false|0", NULL},
    {"num_kv_shared_layers", "0", NULL},
    {"kv_lora_rank", "0", NULL},
    {"q_lora_rank", "0", NULL},
    {"full_attn_mod", "1", NULL},
    {"interpolate_factor", "1", NULL},
    /* Positions. */
    {"rope_scaling", "{}", NULL},
    {"rope_parameters", "{}", NULL},
    {"rope_local_base_freq", "", NULL},
    {"rope_ratio", "1", NULL},
    {"rope_interleaved", "false", NULL},
    {"rope_interleave", "false", NULL},
    {"use_rope", "true", NULL},
    {"use_dynamic_ntk", "false", NULL},
    {"use_mrope", "false", NULL},
    {"mrope_section", "[]", NULL},
    {"rotary_dim", "", NULL},
    {"rotary_pct", "1", NULL},
    {"rotary_percent", "1", NULL},
    {"rotary_emb_base", "", NULL},
    {"rotary_base", "", NULL},
    {"no_rope_layers", "[]", NULL},
    {"no_rope_layer_interval", "0", NULL},
    {"use_nope", "false", NULL},
    {"position_embedding_type", "rope|rotary", NULL},
    /* Factors on the way from embeddings to logits. */
    {"logit_scale", "1", NULL},
    {"logits_scaling", "1", NULL},
    {"logits_scale", "1", NULL},
    {"embedding_multiplier", "1", NULL},
    {"embedding_scale", "1", NULL},
    {"embed_scale", "1", NULL},
    {"scale_embedding", "false", NULL},
    {"scale_emb", "1", NULL},
    {"residual_multiplier", "1", NULL},
    {"residual_scale", "1", NULL},
    {"scale_depth", "", NULL},
    {"dim_model_base", "", NULL},
    {"lm_head_multiplier", "1", NULL},
    {"output_multiplier_scale", "1", NULL},
    {"mup_*", "false|1", NULL},
    {"use_mup", "false", NULL},
    /* The residual stream and what is beside it. */
    {"use_parallel_residual", "false", NULL},
    {"parallel_residual", "false", NULL},
    {"parallel_attn", "false", NULL},
    {"num_experts*", "0", NULL},
    {"num_local_experts", "0", NULL},
    {"n_routed_experts", "0", NULL},
    {"n_shared_experts", "0", NULL},
    {"moe_*", "0|false", NULL},
    {"mlp_only_layers", "[]", NULL},
    {"decoder_sparse_step", NULL, NULL},
    {"num_nextn_predict_layers", NULL, NULL},
    {"compression_config", "{}", NULL},
    {NULL, NULL, NULL},
};

/* Of rope_scaling and rope_parameters, and of one kind of layer in the latter: strict. What a kind of scaling reads
 * depends on the kind. */
static const struct key_rule of_rope[] = {
    {"rope_type", "default", NULL},
    {"type", "default", NULL},
    {"factor", "1", NULL},
    {"attention_factor", "1", NULL},
    {"original_max_position_embeddings", NULL, NULL},
    {"partial_rotary_factor", "1", NULL},
    {"finetuned", NULL, NULL},
    {"low_freq_factor", "", NULL},
    {"high_freq_factor", "", NULL},
    {"beta_fast", "", NULL},
    {"beta_slow", "", NULL},
    {"truncate", "true", NULL},
    {"mscale", "", NULL},
    {"mscale_all_dim", "", NULL},
    {"max_position_embeddings", NULL, NULL},
    {NULL, NULL, NULL},
};

/* Of quantization_config, of a group in it and of that group's weights: hf_int4.c refuses what it can't read of them.
 */
static const struct key_rule of_quantization[] = {
    {"quant_method", NULL, NULL},
    {"bits", NULL, NULL},
    {"w_bit", NULL, NULL},
    {"group_size", NULL, NULL},
    {"q_group_size", NULL, NULL},
    {"desc_act", NULL, NULL},
    {"sym", NULL, NULL},
    {"checkpoint_format", NULL, NULL},
    {"dynamic", NULL, NULL},
    {"is_marlin_format", NULL, NULL},
    {"zero_point", NULL, NULL},
    {"version", NULL, NULL},
    {"format", NULL, NULL},
    {"config_groups", NULL, NULL},
    {"kv_cache_scheme", NULL, NULL},
    {"sparsity_config", NULL, NULL},
    {"ignore", NULL, NULL},
    {"quantization_status", NULL, NULL},
    {"global_compression_ratio", NULL, NULL},
    {"modules_to_not_convert", NULL, NULL},
    {"modules_to_fuse", NULL, NULL},
    {"do_fuse", NULL, NULL},
    {"fuse_max_seq_len", NULL, NULL},
    {"backend", NULL, NULL},
    {"exllama_config", NULL, NULL},
    {"use_exllama", NULL, NULL},
    {"disable_exllama", NULL, NULL},
    {"use_cuda_fp16", NULL, NULL},
    {"damp_*", NULL, NULL},
    {"dataset", NULL, NULL},
    {"model_seqlen", NULL, NULL},
    {"model_name_or_path", NULL, NULL},
    {"model_file_base_name", NULL, NULL},
    {"block_name_to_quantize", NULL, NULL},
    {"module_name_preceding_first_block", NULL, NULL},
    {"modules_in_block_to_quantize", NULL, NULL},
    {"batch_size", NULL, NULL},
    {"cache_block_outputs", NULL, NULL},
    {"max_input_length", NULL, NULL},
    {"pad_token_id", NULL, NULL},
    {"tokenizer", NULL, NULL},
    {"true_sequential", NULL, NULL},
    {"static_groups", NULL, NULL},
    {"mse", NULL, NULL},
    {"meta", NULL, NULL},
    {"quantizer", NULL, NULL},
    {"lm_head", NULL, NULL},
    {"hyb_act", NULL, NULL},
    {"pack_dtype", "int32", NULL},
    {"rotation", "", NULL},
    {"transform_config", "{}", NULL},
    {NULL, NULL, NULL},
};

static const struct key_rule of_group[] = {
    {"targets", NULL, NULL},
    {"weights", NULL, NULL},
    {"input_activations", NULL, NULL},
    {"output_activations", NULL, NULL},
    {"format", "pack-quantized", NULL},
    {"num_bits", NULL, NULL},
    {"type", NULL, NULL},
    {"symmetric", NULL, NULL},
    {"group_size", NULL, NULL},
    {"strategy", NULL, NULL},
    {"actorder", NULL, NULL},
    {"observer", NULL, NULL},
    {"observer_kwargs", NULL, NULL},
    {"scale_dtype", NULL, NULL},
    {"zp_dtype", NULL, NULL},
    {"dynamic", "false", NULL},
    {"block_structure", "", NULL},
    {NULL, NULL, NULL},
};

static const char *printed(const json_t *v, char *out, size_t size)
{
	switch (json_typeof(v)) {
	case JSON_NULL: return "null";
	case JSON_TRUE: return "true";
	case JSON_FALSE: return "false";
	case JSON_STRING: return json_string_value(v);
	case JSON_ARRAY: return json_array_size(v) == 0 ? "[]" : "a list";
	case JSON_OBJECT: return json_object_size(v) == 0 ? "{}" : "an object";
	case JSON_INTEGER:
	case JSON_REAL: break;
	}
	snprintf(out, size, "%.9g", json_number_value(v));
	return out;
}

static int check_object(const struct key_check *c, const struct key_seen *seen, const json_t *object)
{
	json_t *it = (json_t *)object; /* the iterator only reads */
	int rc = 0;
	for (void *i = json_object_iter(it); i != NULL && rc == 0; i = json_object_iter_next(it, i)) {
		char number[32];
		const char *key = json_object_iter_key(i);
		if (!key_was_seen(seen, object, key))
			rc = key_check(c, key, printed(json_object_iter_value(i), number, sizeof number));
	}
	return rc;
}

/* Its own keys, or, where it has an object for each kind of layer, theirs. */
static int check_rope(const struct key_check *c, const struct key_seen *seen, const json_t *config, const char *name)
{
	const json_t *rope = json_object_get(config, name);
	char prefix[64];
	static const char *const kinds[] = {"full_attention", "sliding_attention"};
	struct key_check part = *c;
	part.rules = of_rope;
	part.strict = true;
	part.prefix = prefix;
	snprintf(prefix, sizeof prefix, "%s.", name);
	if (!json_is_object(rope) || !key_was_seen(seen, config, name))
		return 0;
	int rc = check_object(&part, seen, rope);
	for (int k = 0; k < 2 && rc == 0; k++) {
		snprintf(prefix, sizeof prefix, "%s.%s.", name, kinds[k]);
		rc = check_object(&part, seen, json_object_get(rope, kinds[k]));
	}
	return rc;
}

static int check_quantization(struct key_check c, const struct key_seen *seen, const json_t *config)
{
	const json_t *q = json_object_get(config, "quantization_config");
	json_t *groups = json_object_get(q, "config_groups"), *group;
	const char *name;
	if (!json_is_object(q))
		return 0;
	c.prefix = "quantization_config.";
	c.rules = of_quantization;
	int rc = check_object(&c, seen, q);
	c.rules = of_group;
	json_object_foreach(groups, name, group)
	{
		if (rc == 0)
			rc = check_object(&c, seen, group);
		if (rc == 0)
			rc = check_object(&c, seen, json_object_get(group, "weights"));
	}
	return rc;
}

int arch_check_hf(const struct key_seen *seen, const struct hf_folder *folder, struct model_arch *a, struct sl_err *err)
{
	char where[512];
	const json_t *config = hf_config(folder), *root = hf_root(folder);
	struct key_check c = {.where = where,
			      .prefix = root != config ? "text_config." : "",
			      .family = a->family,
			      .rules = of_config,
			      .arch = a,
			      .err = err};
	snprintf(where, sizeof where, "%s/config.json", hf_path(folder));
	int rc = check_object(&c, seen, config);
	if (rc == 0)
		rc = check_rope(&c, seen, config, "rope_scaling");
	if (rc == 0)
		rc = check_rope(&c, seen, config, "rope_parameters");
	if (rc == 0)
		rc = check_quantization(c, seen, config);
	if (rc != 0 || root == config)
		return rc;
	c.prefix = "";
	rc = check_object(&c, seen, root);
	return rc != 0 ? rc : check_quantization(c, seen, root);
}
