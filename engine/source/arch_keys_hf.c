/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules for keys of config.json that arch_hf.c does not read. null is neutral everywhere. Sources: the configuration
 * classes of the transformers library for the families here, and the arithmetic that related families add, since their
 * files may declare a supported model_type (Granite's multipliers, Cohere's logit_scale, StableLM's parallel residual
 * …).
 */
#include <stdio.h>

#include "engine/source/arch_read.h"

/* In config.json itself and its text_config. */
static const struct key_rule of_config[] = {
    /* The file, training and its library. */
    {"_name_or_path name_or_path _commit_hash architectures auto_map model_type torch_dtype dtype "
     "transformers_version transformers.js_config unsloth_* use_cache cache_implementation initializer_range "
     "initializer_factor gradient_checkpointing pretraining_tp is_llama_config is_decoder torchscript "
     "use_bfloat16 tf_legacy_loss tie_encoder_decoder chunk_size_feed_forward problem_type id2label label2id "
     "num_labels finetuning_task task_specific_params tokenizer_class prefix output_hidden_states "
     "output_attentions return_dict use_return_dict num_logits_to_keep _attn_implementation* "
     "attn_implementation use_flash_attn use_flash_attention* _flash_attn_2_enabled flash_attn* "
     "attention_dropout attention_probs_dropout_prob attn_pdrop attn_dropout hidden_dropout* embd_pdrop "
     "resid_pdrop classifier_dropout output_router_logits router_aux_loss_coef "
     "router_jitter_noise",
     NULL, NULL},
    /* Sampling is each request's choice. */
    {"max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature "
     "top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size "
     "encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores return_dict_in_generate "
     "forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty "
     "suppress_tokens begin_suppress_tokens",
     NULL, NULL},
    /* Tokens, which hf_folder.c and the tokenizer read; sizes that the weights' shapes repeat. */
    {"bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id decoder_start_token_id vocab_size "
     "seq_length max_sequence_length model_max_length original_max_position_embeddings tie_word_embeddings",
     NULL, NULL},
    /* The other halves of a larger model, and objects that are read separately. */
    {"text_config quantization_config vision_* image_* audio_* video_* mm_* boi_token* eoi_token* projector_* "
     "multimodal_* spatial_merge_size",
     NULL, NULL},
    /* Biases. */
    {"qkv_bias use_qkv_bias", "true", "qwen2"},
    {"qkv_bias use_qkv_bias attention_out_bias attention_output_bias lm_head_bias use_bias add_bias_linear "
     "bias",
     "false", NULL},
    /* Norms. */
    {"qk_norm use_qk_norm", "true", "qwen3"},
    {"qk_norm use_qk_norm", "true", "qwen3moe"},
    {"qk_norm use_qk_norm", "true", "gemma3"},
    {"qk_norm use_qk_norm use_routing_bias", "true", "minimax-m2"},
    {"qk_norm_type", "per_layer", "minimax-m2"},
    {"scoring_func", "sigmoid", "minimax-m2"},
    {"shared_intermediate_size", "0", "minimax-m2"},
    {"layernorm_full_attention_beta layernorm_linear_attention_beta layernorm_mlp_beta", "1", "minimax-m2"},
    {"attn_type_list mtp_transformer_layers num_mtp_modules use_mtp mlp_intermediate_size shared_moe_mode", NULL,
     "minimax-m2"},
    {"position_embedding_type", "rope_gptj", "cohere2"},
    {"use_gated_activation use_parallel_block", "true", "cohere2"},
    {"order_of_interleaved_layers", "local_attn_first", "cohere2"},
    {"layer_switch", "4", "cohere2"},
    {"use_parallel_embedding use_embedding_sharing", NULL, "cohere2"},
    {"attn_output_gate", "true", "qwen35"},
    {"attn_output_gate", "true", "qwen35moe"},
    {"mamba_ssm_dtype mtp_*", NULL, NULL},
    {"mamba_chunk_size time_step_min time_step_max init_method", NULL, "granitehybrid"},
    {"hidden_activation", NULL, "granitehybrid"},
    /* Sizes of training and its kernels; sizes of the convolution and of steps when they are drawn. */
    {"chunk_size expand use_mamba_kernels mamba_ssm_cache_dtype time_step_min time_step_max time_step_floor "
     "time_step_rank rescale_prenorm_residual residual_in_fp32 residual_dtype rms_norm_eps moe_shared_expert_overlap "
     "rope_theta partial_rotary_factor mtp_layers_block_type mamba_dt_min mamba_dt_max mamba_dt_init_floor",
     NULL, "nemotron_h"},
    {"mamba_* ssm_* time_step_limit hybrid_override_pattern layers_block_type attention_head_dim mlp_hidden_act", "",
     NULL},
    {"block_dim conv_dim conv_dim_out num_heads block_norm_eps block_mlp_init_scale block_out_init_scale "
     "block_use_xavier_init conv_use_xavier_init theta",
     NULL, "lfm2"},
    {"conv_dim conv_dim_out theta", NULL, "lfm2moe"},
    {"block_use_swiglu use_pos_enc tie_embedding", "true", "lfm2"},
    {"use_pos_enc tie_embedding", "true", "lfm2moe"},
    {"attn_output_gate conv_bias", "false", NULL},
    {"linear_* conv_L_cache full_attn_idxs full_attention_interval", "", NULL},
    {"initial_context_length", NULL, "gpt-oss"},
    /* The latter of models without experts, of others they are read. */
    {"ep_size aux_loss_alpha seq_aux qk_head_dim head_dim moe_intermediate_size moe_layer_freq n_shared_experts "
     "num_experts_per_tok routed_scaling_factor norm_topk_prob",
     NULL, "deepseek2"},
    {"index_*", "", "deepseek2"},
    {"input_jitter_noise", NULL, "phimoe"},
    {"qk_norm use_qk_norm qk_layernorm use_qk_layernorm apply_residual_connection_post_layernorm use_post_norm",
     "false", NULL},
    {"norm_type normalization_type layer_norm_type normalization_function", "rmsnorm|rms_norm|RMSNorm|rms", NULL},
    {"activation_function hidden_activation", "silu", NULL},
    /* Attention: visible positions, and the computation of scores. */
    {"is_causal causal scale_attn_weights", "true", NULL},
    {"use_bidirectional_attention is_bidirectional bidirectional* is_encoder_decoder add_cross_attention "
     "use_sliding_window scale_attn_by_inverse_layer_idx alibi use_alibi use_logn_attn",
     "false", NULL},
    {"cross_attention_hidden_size sliding_window sliding_window_pattern _sliding_window_pattern "
     "attention_chunk_size layer_types dual_chunk_attention_config query_pre_attn_scalar "
     "attn_logit_softcapping final_logit_softcapping router_logit_softcapping attention_multiplier "
     "attention_scale attn_scale softmax_scale floor_scale clip_qkv qkv_clip",
     "", NULL},
    {"pruned_heads", "{}", NULL},
    {"max_window_layers", NULL, NULL},
    {"attn_temperature_tuning attention_sink*", "false|0", NULL},
    {"num_kv_shared_layers kv_lora_rank q_lora_rank", "0", NULL},
    {"full_attn_mod interpolate_factor", "1", NULL},
    /* Positions. */
    {"rope_scaling rope_parameters", "{}", NULL},
    {"rope_local_base_freq rotary_dim rotary_emb_base rotary_base", "", NULL},
    {"rope_ratio rotary_pct rotary_percent", "1", NULL},
    {"rope_interleaved rope_interleave use_dynamic_ntk use_mrope use_nope", "false", NULL},
    {"use_rope", "true", NULL},
    {"mrope_section no_rope_layers", "[]", NULL},
    {"no_rope_layer_interval", "0", NULL},
    {"position_embedding_type", "rope|rotary", NULL},
    /* Factors between embeddings and logits. */
    {"logit_scale logits_scaling logits_scale embedding_multiplier embedding_scale embed_scale scale_emb "
     "residual_multiplier residual_scale lm_head_multiplier output_multiplier_scale",
     "1", NULL},
    {"scale_embedding use_mup", "false", NULL},
    {"scale_depth dim_model_base", "", NULL},
    {"mup_*", "false|1", NULL},
    /* The residual stream and what runs parallel to it. */
    {"use_parallel_residual parallel_residual parallel_attn", "false", NULL},
    {"num_experts* num_local_experts n_routed_experts n_shared_experts", "0", NULL},
    {"moe_*", "0|false", NULL},
    {"mlp_only_layers", "[]", NULL},
    {"decoder_sparse_step num_nextn_predict_layers", NULL, NULL},
    {"compression_config", "{}", NULL},
    {NULL, NULL, NULL},
};

/* In rope_scaling and rope_parameters, and in the latter's objects for a kind of layer: strict. The keys in use depend
 * on the kind of scaling. */
static const struct key_rule of_rope[] = {
    /* Sections of pairs for images turn alike in text. */
    {"mrope_section mrope_interleaved", NULL, "qwen35"},
    {"mrope_section mrope_interleaved", NULL, "qwen35moe"},
    {"rope_type type", "default", NULL},
    {"factor attention_factor partial_rotary_factor", "1", NULL},
    {"original_max_position_embeddings finetuned max_position_embeddings", NULL, NULL},
    {"low_freq_factor high_freq_factor beta_fast beta_slow mscale mscale_all_dim", "", NULL},
    {"truncate", "true", NULL},
    {NULL, NULL, NULL},
};

/* In quantization_config, in one of its groups and in that group's weights: hf_quant.c refuses what it cannot read. */
static const struct key_rule of_quantization[] = {
    {"quant_method bits w_bit group_size q_group_size desc_act sym checkpoint_format dynamic is_marlin_format "
     "zero_point version format config_groups kv_cache_scheme sparsity_config ignore quantization_status "
     "global_compression_ratio modules_to_not_convert modules_to_fuse do_fuse fuse_max_seq_len backend "
     "exllama_config use_exllama disable_exllama use_cuda_fp16 damp_* dataset model_seqlen model_name_or_path "
     "model_file_base_name block_name_to_quantize module_name_preceding_first_block "
     "modules_in_block_to_quantize batch_size cache_block_outputs max_input_length pad_token_id tokenizer "
     "true_sequential static_groups mse meta quantizer lm_head hyb_act activation_scheme fmt scale_fmt "
     "weight_block_size activation_scale_ub quant_algo kv_cache_quant_algo quantized_layers exclude_modules producer "
     "quantization run_compressed dequantize",
     NULL, NULL},
    {"pack_dtype", "int32", NULL},
    {"rotation", "", NULL},
    {"transform_config", "{}", NULL},
    {NULL, NULL, NULL},
};

static const struct key_rule of_group[] = {
    {"targets weights input_activations output_activations num_bits type symmetric group_size strategy "
     "actorder observer observer_kwargs scale_dtype zp_dtype format block_structure",
     NULL, NULL},
    {"dynamic", "false", NULL},
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

/* Its own keys or, if it has an object for each kind of layer, theirs. */
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
