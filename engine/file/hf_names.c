/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF's names for the tensors of Hugging Face folders. The families differ in one name: post_attention_layernorm is
 * the feed-forward's own norm in Llama's line, and a norm of what attention adds in Gemma's.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "engine/file/hf_names.h"

static const struct {
	const char *model_type, *family;
} families[] = {
    {"llama", "llama"}, {"mistral", "llama"}, {"qwen2", "qwen2"},        {"qwen3", "qwen3"},
    {"phi3", "phi3"},   {"gemma2", "gemma2"}, {"gemma3_text", "gemma3"}, {"gemma3", "gemma3"},
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
    {"lm_head.weight", "output.weight"},
};

static const struct pair in_layers[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.q_proj.bias", "attn_q.bias"},
    {"self_attn.k_proj.bias", "attn_k.bias"},
    {"self_attn.v_proj.bias", "attn_v.bias"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    {"self_attn.qkv_proj.weight", "attn_qkv.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.gate_up_proj.weight", "ffn_up.weight"}, /* both, the gate first, as GGUF's phi3 has it */
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
};

static const char *find(const struct pair *pairs, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(pairs[i].from, name) == 0)
			return pairs[i].to;
	return NULL;
}

static bool begins(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }

bool hf_gguf_name(const char *name, const char *family, char *out, size_t out_bytes)
{
	/* The text model of a larger one is nested: "language_model.model.layers…", and newer writers
	 * turn that around. */
	const char *at = name;
	for (;;) {
		if (begins(at, "model."))
			at += 6;
		else if (begins(at, "language_model."))
			at += 15;
		else
			break;
	}
	if (begins(at, "vision_tower.") || begins(at, "vision_model.") || begins(at, "multi_modal_projector.") ||
	    strstr(at, "rotary_emb.inv_freq") != NULL)
		return false;
	const char *to = find(whole, sizeof whole / sizeof *whole, at);
	if (to != NULL) {
		snprintf(out, out_bytes, "%s", to);
		return true;
	}
	if (begins(at, "layers.") && isdigit((unsigned char)at[7])) {
		size_t digits = strspn(at + 7, "0123456789");
		const char *rest = at + 7 + digits + 1;
		if (digits <= 4 && at[7 + digits] == '.') {
			to = strcmp(rest, "post_attention_layernorm.weight") != 0
				 ? find(in_layers, sizeof in_layers / sizeof *in_layers, rest)
			     : begins(family, "gemma") ? "post_attention_norm.weight"
						       : "ffn_norm.weight";
			if (to != NULL) {
				snprintf(out, out_bytes, "blk.%.*s.%s", (int)digits, at + 7, to);
				return true;
			}
		}
	}
	snprintf(out, out_bytes, "%s", name);
	return true;
}
