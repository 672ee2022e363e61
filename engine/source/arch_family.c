/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/source/arch_family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/source/arch_read.h"

/* Of both: layers do not turn. */
#define NEMOTRON_H .act = ARCH_RELU_SQUARE, .ungated = true, .one_half = true, .no_rope_every = 1

static const struct arch_family families[] = {
    {.name = "llama", .may_mix = true, .norm_weights = true},
    {.name = "llama4",
     .hf_pairs = true,
     .experts = true,
     .sigmoid = true,
     .window_pattern = 4,
     .chunks = true,
     .common = {.qk_norm_plain = true, .no_rope_every = 4, .window_chunked = true}},
    {.name = "mistral3", .may_mix = true, .norm_weights = true, .grows = true},
    {.name = "qwen2", .halves = true, .common = {.qkv_bias = true}},
    {.name = "qwen3", .halves = true, .common = {.qk_norm = true}},
    {.name = "qwen2moe",
     .halves = true,
     .experts = true,
     .shares_ff = true,
     .shared_expert = true,
     .common = {.qkv_bias = true}},
    {.name = "qwen3moe",
     .halves = true,
     .experts = true,
     .shares_ff = true,
     .norm_weights = true,
     .common = {.qk_norm = true}},
    {.name = "olmoe", .halves = true, .experts = true, .common = {.qk_norm = true, .qk_norm_row = true}},
    {.name = "olmo2",
     .halves = true,
     .window_pattern = 4,
     .windowed_plain = true,
     .common = {.qk_norm = true, .qk_norm_row = true, .post_norms = true, .no_pre_norms = true}},
    {.name = "gpt-oss",
     .halves = true,
     .window_pattern = 2,
     .experts = true,
     .norm_weights = true,
     .oss = true,
     .common = {.qkv_bias = true, .o_bias = true, .sinks = true, .ffn_norm_is_post = true}},
    {.name = "smollm3", .common = {.no_rope_every = 4}},
    {.name = "granite", .scaled = true},
    {.name = "granitemoe", .scaled = true, .experts = true, .norm_weights = true},
    {.name = "granitehybrid", .scaled = true, .may_mix = true, .norm_weights = true, .mixer = ARCH_SSM},
    {.name = "nemotron_h", .halves = true, .may_mix = true, .mixer = ARCH_SSM, .common = {NEMOTRON_H}},
    {.name = "nemotron_h_moe", .halves = true, .experts = true, .mixer = ARCH_SSM, .common = {NEMOTRON_H}},
    {.name = "seed_oss", .halves = true, .common = {.qkv_bias = true, .ffn_norm_is_post = true}},
    {.name = "ernie4_5", .hf_pairs = true},
    {.name = "glm4", .hf_pairs = true, .bias_if_there = true, .common = {.post_norms = true}},
    {.name = "glm4moe",
     .halves = true,
     .bias_if_there = true,
     .experts = true,
     .sigmoid = true,
     .common = {.ffn_norm_is_post = true}},
    {.name = "minimax-m2",
     .halves = true,
     .experts = true,
     .sigmoid = true,
     .norm_weights = true,
     .common = {.qk_norm = true, .qk_norm_row = true}},
    {.name = "phi3", .halves = true},
    {.name = "phimoe",
     .halves = true,
     .experts = true,
     .sparse = true,
     .rms_key = true,
     .common = {.layer_norm = true, .norm_biases = true, .qkv_bias = true, .o_bias = true, .head_bias = true}},
    {.name = "command-r",
     .hf_pairs = true,
     .tied = true,
     .common = {.layer_norm = true, .parallel = ARCH_PARALLEL_ONE_NORM}},
    {.name = "cohere2",
     .hf_pairs = true,
     .tied = true,
     .window_pattern = 4,
     .common = {.layer_norm = true, .parallel = ARCH_PARALLEL_ONE_NORM, .no_rope_full = true}},
    {.name = "falcon",
     .halves = true,
     .tied = true,
     .common = {.layer_norm = true, .norm_biases = true, .parallel = ARCH_PARALLEL_ONE_NORM, .ungated = true}},
    {.name = "gptneox",
     .halves = true,
     .common = {.layer_norm = true,
		.norm_biases = true,
		.qkv_bias = true,
		.o_bias = true,
		.parallel = ARCH_PARALLEL_TWO_NORMS,
		.ungated = true,
		.ff_biases = true}},
    {.name = "deepseek2", .hf_pairs = true, .may_mix = true, .latent = true},
    {.name = "gemma2",
     .halves = true,
     .scaled_embed = true,
     .window_pattern = 2,
     .odd_scale_layers = 46,
     .tied = true,
     .common = {.act = ARCH_GELU_TANH, .post_norms = true}},
    {.name = "gemma3",
     .halves = true,
     .scaled_embed = true,
     .window_pattern = 6,
     .odd_scale_layers = 62,
     .tied = true,
     .common = {.act = ARCH_GELU_TANH, .post_norms = true, .qk_norm = true}},
    {.name = "lfm2",
     .halves = true,
     .tied = true,
     .mixer = ARCH_SHORT_CONV,
     .common = {.qk_norm = true, .norm_name = "token_embd_norm"}},
    {.name = "lfm2moe",
     .halves = true,
     .tied = true,
     .mixer = ARCH_SHORT_CONV,
     .experts = true,
     .sigmoid = true,
     .norm_weights = true,
     .common = {.qk_norm = true, .norm_name = "token_embd_norm"}},
    {.name = "qwen3next",
     .halves = true,
     .mixer = ARCH_DELTA,
     .experts = true,
     .shares_ff = true,
     .norm_weights = true,
     .shared_expert = true,
     .common = {.qk_norm = true, .attn_gate = true, .ffn_norm_is_post = true, .recurrent.beta_alpha = true}},
    {.name = "qwen35",
     .halves = true,
     .mixer = ARCH_DELTA,
     .tiled = true,
     .common = {.qk_norm = true, .attn_gate = true, .ffn_norm_is_post = true}},
    {.name = "qwen35moe",
     .halves = true,
     .mixer = ARCH_DELTA,
     .tiled = true,
     .experts = true,
     .shares_ff = true,
     .norm_weights = true,
     .shared_expert = true,
     .common = {.qk_norm = true, .attn_gate = true, .ffn_norm_is_post = true}},
    {.name = "bert", .encoder = true},
    {.name = "nomic-bert", .halves = true, .encoder = true, .turns = true},
};

const struct arch_family *arch_family_find(const char *name, size_t n)
{
	for (size_t i = 0; i < sizeof families / sizeof *families; i++)
		if (strlen(families[i].name) == n && memcmp(families[i].name, name, n) == 0)
			return &families[i];
	return NULL;
}

const char *arch_family_eps_key(const struct arch_family *f)
{
	return f->common.layer_norm && !f->rms_key ? "attention.layer_norm_epsilon"
						   : "attention.layer_norm_rms_epsilon";
}

void arch_family_list(char *out, size_t bytes)
{
	size_t n = 0;
	out[0] = '\0';
	for (size_t i = 0; i < sizeof families / sizeof *families && n < bytes; i++)
		n += (size_t)snprintf(out + n, bytes - n, "%s%s", i > 0 ? ", " : "", families[i].name);
}

float arch_latent_scale(const struct model_arch *a)
{
	const struct arch_rope *r = &a->rope;
	double more = r->scaling == ARCH_ROPE_YARN && r->factor > 1 ? 0.1 * r->all_dim * log(r->factor) + 1 : 1;
	return (float)(more * more / sqrt(a->latent.plain + r->n_rot));
}

const char *arch_groups_fault(const struct arch_experts *x)
{
	if (x->n_groups == 0)
		return NULL;
	if (x->n % x->n_groups != 0)
		return "does not divide the number of experts";
	return x->n / x->n_groups * x->n_groups_used < x->n_used
		   ? "and the groups used have fewer experts than a row uses"
		   : NULL;
}

bool arch_latent_finish(struct model_arch *a)
{
	const struct arch_latent *d = &a->latent;
	int query = d->plain + a->rope.n_rot, row = d->n + a->rope.n_rot;
	int widest = query > row ? query : row;
	widest = d->plain + d->n_value > widest ? d->plain + d->n_value : widest;
	a->n_kv_heads = 1;
	a->head_dim = row;
	return a->n_heads <= ARCH_MAX_WIDTH / widest;
}

void arch_family_begin(const struct arch_family *f, struct model_arch *out)
{
	*out = f->common;
	snprintf(out->family, sizeof out->family, "%s", f->name);
	out->encoder = f->encoder;
	out->embed_scale = out->residual_scale = out->logit_scale = 1;
}
