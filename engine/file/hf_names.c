/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF's names for the tensors of Hugging Face folders. The families differ in one name: post_attention_layernorm is
 * the feed-forward's own norm in Llama's line, and a norm of what attention adds in Gemma's.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "engine/file/hf_names.h"

static const struct {
	const char *model_type, *family;
} families[] = {
    {"llama", "llama"},
    {"mistral", "llama"},
    {"qwen2", "qwen2"},
    {"qwen3", "qwen3"},
    {"bert", "bert"},
    {"roberta", "bert"},
    {"xlm-roberta", "bert"},
    {"phi3", "phi3"},
    {"qwen2_moe", "qwen2moe"},
    {"qwen3_moe", "qwen3moe"},
    {"mixtral", "llama"},
    {"smollm3", "smollm3"},
    {"granite", "granite"},
    {"granitemoehybrid", "granitehybrid"},
    {"nemotron_h", "nemotron_h"},
    {"seed_oss", "seed_oss"},
    {"ernie4_5", "ernie4_5"},
    {"glm4", "glm4"},
    {"glm4_moe", "glm4moe"},
    {"olmoe", "olmoe"},
    {"gemma2", "gemma2"},
    {"gemma3_text", "gemma3"},
    {"gemma3", "gemma3"},
    {"gpt_oss", "gpt-oss"},
    {"olmo2", "olmo2"},
    {"olmo3", "olmo2"},
    {"cohere", "command-r"},
    {"cohere2", "cohere2"},
    {"phimoe", "phimoe"},
    {"minimax_m2", "minimax-m2"},
    {"llama4_text", "llama4"},
    {"ministral3", "mistral3"},
    {"falcon", "falcon"},
    {"gpt_neox", "gptneox"},
    {"deepseek_v2", "deepseek2"},
    {"deepseek_v3", "deepseek2"},
    {"kimi_k2", "deepseek2"},
    {"lfm2", "lfm2"},
    {"lfm2_moe", "lfm2moe"},
    {"qwen3_next", "qwen3next"},
    {"qwen3_5", "qwen35"},
    {"qwen3_5_text", "qwen35"},
    {"qwen3_5_moe", "qwen35moe"},
    {"qwen3_5_moe_text", "qwen35moe"},
};

const char *hf_family(const char *model_type)
{
	for (size_t i = 0; i < sizeof families / sizeof *families; i++)
		if (strcmp(families[i].model_type, model_type) == 0)
			return families[i].family;
	return NULL;
}

struct pair {
	const char *from, *to;
};

static const struct pair whole[] = {
    {"embed_tokens.weight", "token_embd.weight"},
    {"norm.weight", "output_norm.weight"},
    {"norm.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"lm_head.bias", "output.bias"},
    {"word_embeddings.weight", "token_embd.weight"},
    {"ln_f.weight", "output_norm.weight"},
    {"ln_f.bias", "output_norm.bias"},
    {"embed_in.weight", "token_embd.weight"},
    {"final_layer_norm.weight", "output_norm.weight"},
    {"final_layer_norm.bias", "output_norm.bias"},
    {"embed_out.weight", "output.weight"},
    {"embedding_norm.weight", "token_embd_norm.weight"},
    {"embeddings.weight", "token_embd.weight"},
    {"norm_f.weight", "output_norm.weight"},
};

static const struct pair in_layers[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"input_layernorm.bias", "attn_norm.bias"},
    {"post_attention_layernorm.bias", "ffn_norm.bias"},
    {"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"},
    /* Falcon, GPT-NeoX; their queries, keys and values are one tensor (engine/source/hf_woven.h). */
    {"ln_attn.weight", "attn_norm_2.weight"},
    {"ln_attn.bias", "attn_norm_2.bias"},
    {"ln_mlp.weight", "attn_norm.weight"},
    {"ln_mlp.bias", "attn_norm.bias"},
    {"self_attention.dense.weight", "attn_output.weight"},
    {"attention.dense.weight", "attn_output.weight"},
    {"attention.dense.bias", "attn_output.bias"},
    {"mlp.dense_h_to_4h.weight", "ffn_up.weight"},
    {"mlp.dense_h_to_4h.bias", "ffn_up.bias"},
    {"mlp.dense_4h_to_h.weight", "ffn_down.weight"},
    {"mlp.dense_4h_to_h.bias", "ffn_down.bias"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.q_proj.bias", "attn_q.bias"},
    {"self_attn.k_proj.bias", "attn_k.bias"},
    {"self_attn.v_proj.bias", "attn_v.bias"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    {"self_attn.q_a_proj.weight", "attn_q_a.weight"},
    {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"},
    {"self_attn.q_b_proj.weight", "attn_q_b.weight"},
    {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"},
    {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"},
    {"self_attn.kv_b_proj.weight", "attn_kv_b.weight"},
    {"self_attn.qkv_proj.weight", "attn_qkv.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.gate_up_proj.weight", "ffn_up.weight"}, /* both, the gate first, as GGUF's phi3 has it */
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"self_attn.o_proj.bias", "attn_output.bias"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"mlp.router.weight", "ffn_gate_inp.weight"},
    {"mlp.router.bias", "ffn_gate_inp.bias"},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias"},
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
    {"post_self_attn_layernorm.weight", "post_attention_norm.weight"},
    {"post_mlp_layernorm.weight", "post_ffw_norm.weight"},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"},
    {"block_sparse_moe.gate.weight", "ffn_gate_inp.weight"},
    {"feed_forward.router.weight", "ffn_gate_inp.weight"},
    {"feed_forward.gate_proj.weight", "ffn_gate.weight"},
    {"feed_forward.up_proj.weight", "ffn_up.weight"},
    {"feed_forward.down_proj.weight", "ffn_down.weight"},
    {"feed_forward.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"feed_forward.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
    {"feed_forward.shared_expert.down_proj.weight", "ffn_down_shexp.weight"},
    /* Quantized, gpt-oss's (hf_matrix.h): gate and up take turns, row by row. */
    {"mlp.experts.gate_up_proj.weight", "ffn_gate_up_exps.weight"},
    {"mlp.experts.down_proj.weight", "ffn_down_exps.weight"},
    /* LFM2 */
    {"operator_norm.weight", "attn_norm.weight"},
    {"ffn_norm.weight", "ffn_norm.weight"},
    {"conv.in_proj.weight", "shortconv.in_proj.weight"},
    {"conv.out_proj.weight", "shortconv.out_proj.weight"},
    {"conv.conv.weight", "shortconv.conv.weight"},
    {"self_attn.out_proj.weight", "attn_output.weight"},
    {"self_attn.q_layernorm.weight", "attn_q_norm.weight"},
    {"self_attn.k_layernorm.weight", "attn_k_norm.weight"},
    {"feed_forward.w1.weight", "ffn_gate.weight"},
    {"feed_forward.w3.weight", "ffn_up.weight"},
    {"feed_forward.w2.weight", "ffn_down.weight"},
    {"feed_forward.gate.weight", "ffn_gate_inp.weight"},
    {"feed_forward.expert_bias", "exp_probs_b.bias"},
    /* Qwen3-Next, Qwen3.5; the former's queries, keys, values and gates are one tensor (engine/source/hf_woven.h). */
    {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight"},
    {"linear_attn.in_proj_z.weight", "attn_gate.weight"},
    {"linear_attn.in_proj_b.weight", "ssm_beta.weight"},
    {"linear_attn.in_proj_a.weight", "ssm_alpha.weight"},
    {"linear_attn.in_proj_ba.weight", "ssm_ba.weight"},
    {"linear_attn.conv1d.weight", "ssm_conv1d.weight"},
    {"linear_attn.A_log", "ssm_a"},
    {"linear_attn.dt_bias", "ssm_dt.bias"},
    {"linear_attn.norm.weight", "ssm_norm.weight"},
    {"linear_attn.out_proj.weight", "ssm_out.weight"},
    /* Granite 4; its experts, and gate and up of its dense half, are tensors together (engine/source/hf_woven.h). */
    {"mamba.in_proj.weight", "ssm_in.weight"},
    {"mamba.conv1d.weight", "ssm_conv1d.weight"},
    {"mamba.conv1d.bias", "ssm_conv1d.bias"},
    {"mamba.dt_bias", "ssm_dt.bias"},
    {"mamba.A_log", "ssm_a"},
    {"mamba.D", "ssm_d"},
    {"mamba.norm.weight", "ssm_norm.weight"},
    {"mamba.out_proj.weight", "ssm_out.weight"},
    {"block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight"},
    /* Nemotron-H, whose layers are one half each. */
    {"norm.weight", "attn_norm.weight"},
    {"mixer.in_proj.weight", "ssm_in.weight"},
    {"mixer.conv1d.weight", "ssm_conv1d.weight"},
    {"mixer.conv1d.bias", "ssm_conv1d.bias"},
    {"mixer.dt_bias", "ssm_dt.bias"},
    {"mixer.A_log", "ssm_a"},
    {"mixer.D", "ssm_d"},
    {"mixer.norm.weight", "ssm_norm.weight"},
    {"mixer.out_proj.weight", "ssm_out.weight"},
    {"mixer.q_proj.weight", "attn_q.weight"},
    {"mixer.k_proj.weight", "attn_k.weight"},
    {"mixer.v_proj.weight", "attn_v.weight"},
    {"mixer.o_proj.weight", "attn_output.weight"},
    {"mixer.up_proj.weight", "ffn_up.weight"},
    {"mixer.down_proj.weight", "ffn_down.weight"},
    {"mixer.gate.weight", "ffn_gate_inp.weight"},
    {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mixer.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
    {"mixer.shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
    {"mixer.fc1_latent_proj.weight", "ffn_latent_down.weight"},
    {"mixer.fc2_latent_proj.weight", "ffn_latent_up.weight"},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
};

/* Of each expert, with its number between the two halves: GGUF's names before all were one tensor. */
static const char *const expert_prefixes[] = {"mlp.experts.", "block_sparse_moe.experts.", "feed_forward.experts.",
					      "mixer.experts."};
static const struct pair of_experts[] = {
    {"gate_proj.weight", "ffn_gate"}, {"up_proj.weight", "ffn_up"}, {"down_proj.weight", "ffn_down"},
    {"w1.weight", "ffn_gate"},        {"w3.weight", "ffn_up"},      {"w2.weight", "ffn_down"},
};

/* BERT's; each has a weight and a bias, or a table only the former. */
static const struct pair bert_whole[] = {
    {"embeddings.word_embeddings", "token_embd"},
    {"embeddings.position_embeddings", "position_embd"},
    {"embeddings.token_type_embeddings", "token_types"},
    {"embeddings.LayerNorm", "token_embd_norm"},
    {"pooler.dense", "cls"},
    {"classifier.dense", "cls"},
    {"classifier.out_proj", "cls.output"},
    {"classifier", "cls.output"},
};

static const struct pair bert_layers[] = {
    {"attention.self.query", "attn_q"},
    {"attention.self.key", "attn_k"},
    {"attention.self.value", "attn_v"},
    {"attention.output.dense", "attn_output"},
    {"attention.output.LayerNorm", "attn_output_norm"},
    {"intermediate.dense", "ffn_up"},
    {"output.dense", "ffn_down"},
    {"output.LayerNorm", "layer_output_norm"},
};

static const char *find(const struct pair *pairs, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(pairs[i].from, name) == 0)
			return pairs[i].to;
	return NULL;
}

static bool begins(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }

/* The digits of a layer's number that a dot ends; 0: none, or more than four. */
static int layer_digits(const char *s)
{
	size_t n = strspn(s, "0123456789");
	return n <= 4 && s[n] == '.' ? (int)n : 0;
}

/* Old files call a norm's gain gamma, its bias beta. */
static const char *suffix_of(const char *name, size_t *n)
{
	const char *dot = strrchr(name, '.'), *what = dot != NULL ? dot + 1 : "";
	*n = dot != NULL ? (size_t)(dot - name) : strlen(name);
	if (strcmp(what, "weight") == 0 || strcmp(what, "gamma") == 0)
		return "weight";
	return strcmp(what, "bias") == 0 || strcmp(what, "beta") == 0 ? "bias" : NULL;
}

static bool bert_name(const char *name, char *out, size_t out_bytes)
{
	const char *at = name, *to;
	char stem[128];
	size_t n;
	if (begins(at, "bert."))
		at += 5;
	else if (begins(at, "roberta."))
		at += 8;
	/* A table of the numbers 0, 1, 2 …, and the head for masked words. */
	if (begins(at, "embeddings.position_ids") || begins(at, "cls.predictions.") ||
	    begins(at, "cls.seq_relationship.") || begins(at, "lm_head."))
		return false;
	const char *layer = begins(at, "encoder.layer.") ? at + 14 : "";
	int digits = layer_digits(layer);
	if (digits > 0)
		at = layer + digits + 1;
	const char *suffix = suffix_of(at, &n);
	snprintf(stem, sizeof stem, "%.*s", (int)(n < sizeof stem ? n : sizeof stem - 1), at);
	to = digits == 0 ? find(bert_whole, sizeof bert_whole / sizeof *bert_whole, stem)
			 : find(bert_layers, sizeof bert_layers / sizeof *bert_layers, stem);
	if (to == NULL || suffix == NULL)
		snprintf(out, out_bytes, "%s", name);
	else if (digits == 0)
		snprintf(out, out_bytes, "%s.%s", to, suffix);
	else
		snprintf(out, out_bytes, "blk.%.*s.%s.%s", digits, layer, to, suffix);
	return true;
}

/* "ffn_gate.3.weight" of "mlp.experts.3.gate_proj.weight"; false: no expert's. */
static bool expert_name(const char *rest, char *out, size_t out_bytes)
{
	for (size_t i = 0; i < sizeof expert_prefixes / sizeof *expert_prefixes; i++) {
		size_t n = strlen(expert_prefixes[i]);
		int digits = strncmp(rest, expert_prefixes[i], n) == 0 ? layer_digits(rest + n) : 0;
		const char *to =
		    digits > 0 ? find(of_experts, sizeof of_experts / sizeof *of_experts, rest + n + digits + 1) : NULL;
		if (to != NULL) {
			snprintf(out, out_bytes, "%s.%.*s.weight", to, digits, rest + n);
			return true;
		}
	}
	return false;
}

/* Whether GGUF names a folder's post_attention_layernorm like a norm of what attention adds: it is one in these, or it
 * is the feed-forward half's own in those of whose files GGUF has that name. */
static bool norm_is_post(const char *family)
{
	static const char *const those[] = {"gemma2",  "gemma3",    "olmo2",  "seed_oss", "glm4moe",
					    "gpt-oss", "qwen3next", "qwen35", "qwen35moe"};
	for (size_t i = 0; i < sizeof those / sizeof *those; i++)
		if (strcmp(those[i], family) == 0)
			return true;
	return false;
}

bool hf_gguf_name(const char *name, const char *family, char *out, size_t out_bytes)
{
	/* The text model of a larger one is nested: "language_model.model.layers…", and newer writers
	 * turn that around. */
	const char *at = name;
	if (strcmp(family, "bert") == 0)
		return bert_name(name, out, out_bytes);
	for (;;) {
		if (begins(at, "model."))
			at += 6;
		else if (begins(at, "language_model."))
			at += 15;
		else if (begins(at, "transformer."))
			at += 12;
		else if (begins(at, "gpt_neox.") || begins(at, "backbone."))
			at += 9;
		else
			break;
	}
	/* Layers that only draft (n_drafting), and Qwen3.5's vision. */
	if ((strncmp(family, "qwen3", 5) == 0 && (begins(at, "mtp.") || begins(at, "visual."))) ||
	    (strcmp(family, "nemotron_h") == 0 && begins(at, "mtp.")))
		return false;
	if (begins(at, "vision_tower.") || begins(at, "vision_model.") || begins(at, "multi_modal_projector.") ||
	    strstr(at, "rotary_emb.inv_freq") != NULL || text_ends(at, ".attention.bias") ||
	    text_ends(at, ".attention.masked_bias"))
		return false;
	const char *to = find(whole, sizeof whole / sizeof *whole, at);
	if (to != NULL) {
		snprintf(out, out_bytes, "%s", to);
		return true;
	}
	const char *layer = begins(at, "layers.") ? at + 7 : begins(at, "h.") ? at + 2 : "";
	int digits = layer_digits(layer);
	if (digits > 0) {
		const char *rest = layer + digits + 1;
		char expert[48];
		to = expert_name(rest, expert, sizeof expert) ? expert
		     : strcmp(rest, "post_attention_layernorm.weight") != 0
			 ? find(in_layers, sizeof in_layers / sizeof *in_layers, rest)
		     : norm_is_post(family) ? "post_attention_norm.weight"
					    : "ffn_norm.weight";
		if (to != NULL) {
			snprintf(out, out_bytes, "blk.%.*s.%s", digits, layer, to);
			return true;
		}
	}
	snprintf(out, out_bytes, "%s", name);
	return true;
}
