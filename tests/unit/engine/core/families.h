/* SPDX-License-Identifier: Apache-2.0
 *
 * What is specific to each family, for the forward pass of tests/support/oracle.h: written down by hand, from papers
 * and reference implementations, beside what engine/source makes of the same shapes. Included by test_families.c.
 */
#ifndef TESTS_FAMILIES_H
#define TESTS_FAMILIES_H

#include <math.h>
#include <string.h>

#include "engine/source/random_model.h"
#include "tests/support/oracle.h"

enum { VOCAB = 512 };

static double plain_freq[64], local_freq[64];

static void plain(double *freq, int head_dim, double base)
{
	for (int i = 0; i < head_dim / 2; i++)
		freq[i] = exp(-log(base) * 2 * i / head_dim);
}

static struct oracle llama_like(int n_layers, double base, double eps)
{
	plain(plain_freq, 64, base);
	return (struct oracle){.n_layers = n_layers,
			       .n_embd = 256,
			       .n_heads = 4,
			       .n_kv = 2,
			       .head_dim = 64,
			       .n_ff = 512,
			       .n_vocab = VOCAB,
			       .eps = eps,
			       .embed_scale = 1,
			       .score_scale = 0.125,
			       .freq = plain_freq,
			       .magnitude = 1};
}

/* Llama 3.1's rule, from Meta's reference code's description: factor 8, 128 positions before. */
static struct oracle llama3(struct model_arch *a)
{
	struct oracle m = llama_like(2, 1e4, 1e-5);
	(void)a;
	for (int i = 0; i < 32; i++) {
		double wave = 2 * M_PI / plain_freq[i];
		if (wave > 128.0 / 1)
			plain_freq[i] /= 8;
		else if (wave >= 128.0 / 4) {
			double s = (128 / wave - 1) / 3;
			plain_freq[i] = (1 - s) * plain_freq[i] / 8 + s * plain_freq[i];
		}
	}
	return m;
}

static struct oracle mistral(struct model_arch *a)
{
	struct oracle m = llama_like(2, 1e6, 1e-5);
	a->window = 100;
	a->window_pattern = 0;
	m.window = 100;
	return m;
}

static struct oracle linear(struct model_arch *a)
{
	struct oracle m = llama_like(2, 1e6, 1e-5);
	a->rope.scaling = ARCH_ROPE_LINEAR;
	a->rope.factor = 4;
	a->rope_windowed = a->rope;
	for (int i = 0; i < 32; i++)
		plain_freq[i] /= 4;
	return m;
}

/* The frequencies of 32 pairs, by a factor of 4: unchanged up to pair lo, divided from pair hi on, a ramp between. */
static void ramp(double lo, double hi)
{
	for (int i = 0; i < 32; i++) {
		double keep = 1 - fmin(1, fmax(0, (i - lo) / (hi - lo)));
		plain_freq[i] = plain_freq[i] / 4 * (1 - keep) + plain_freq[i] * keep;
	}
}

/* Peng et al. 2023, §3.4: pairs that turn more than 32 times within the 64 old positions keep their
 * frequency, those below one turn are divided, a ramp between; attention as in its §3.4. */
static struct oracle yarn(struct model_arch *a)
{
	struct oracle m = llama_like(2, 1e6, 1e-5);
	a->rope.scaling = ARCH_ROPE_YARN;
	a->rope.factor = 4;
	a->rope.original_ctx = 256;
	a->rope.beta_fast = 32;
	a->rope.beta_slow = 1;
	a->rope_windowed = a->rope;
	double lo = 64 * log(256 / (32 * 2 * M_PI)) / (2 * log(1e6)),
	       hi = 64 * log(256 / (1 * 2 * M_PI)) / (2 * log(1e6));
	lo = floor(lo) < 0 ? 0 : floor(lo);
	hi = ceil(hi) > 63 ? 63 : ceil(hi);
	ramp(lo, hi);
	m.magnitude = 1 + 0.1 * log(4);
	return m;
}

static struct oracle qwen2(struct model_arch *a)
{
	struct oracle m = llama_like(2, 1e6, 1e-6);
	(void)a;
	m.halves = m.bias = true;
	return m;
}

static struct oracle qwen3(struct model_arch *a)
{
	struct oracle m = llama_like(2, 1e6, 1e-6);
	(void)a;
	m.halves = m.qk_norm = true;
	m.head_dim = 96;
	m.score_scale = 1 / sqrt(96);
	plain(plain_freq, 96, 1e6);
	return m;
}

/* longrope: 512 positions stretched to 1024, divisors 1 + i/4. */
static void stretch(struct oracle *m)
{
	for (int i = 0; i < 32; i++)
		plain_freq[i] /= 1 + i * 0.25;
	m->magnitude = sqrt(1 + log(1024.0 / 512) / log(512));
}

/* Fused matrices, a window, and longrope. */
static struct oracle phi3(struct model_arch *a)
{
	struct oracle m = llama_like(2, 1e4, 1e-5);
	a->window = 120;
	a->window_pattern = 0;
	m.window = 120;
	m.halves = m.fused = true;
	m.n_kv = 4;
	stretch(&m);
	return m;
}

static struct oracle gemma2(struct model_arch *a)
{
	struct oracle m = llama_like(4, 1e4, 1e-6);
	(void)a;
	m.halves = m.post_norms = m.gelu = true;
	m.embed_scale = 16;
	m.score_cap = 50;
	m.logit_cap = 30;
	m.window = 64;
	m.every = 2;
	return m;
}

static struct oracle gemma3(struct model_arch *a)
{
	struct oracle m = llama_like(7, 1e6, 1e-6);
	(void)a;
	m.halves = m.post_norms = m.gelu = m.qk_norm = true;
	m.n_kv = 1;
	m.embed_scale = 16;
	m.window = 64;
	m.every = 6;
	plain(local_freq, 64, 1e4);
	m.freq_local = local_freq;
	for (int i = 0; i < 32; i++)
		plain_freq[i] /= 8;
	return m;
}

/* Later checkpoints of that family may say caps, which its first ones have not. */
static struct oracle gemma3_capped(struct model_arch *a)
{
	struct oracle m = gemma3(a);
	a->attn_softcap = 20;
	a->final_softcap = 10;
	m.score_cap = 20;
	m.logit_cap = 10;
	return m;
}

static struct oracle mixture(double base, int n, int n_used, int n_ff)
{
	struct oracle m = llama_like(2, base, 1e-6);
	m.n_experts = n;
	m.n_used = n_used;
	m.n_ff_expert = n_ff;
	m.halves = true;
	return m;
}

static struct oracle mixtral(struct model_arch *a)
{
	struct oracle m = mixture(1e6, 4, 2, 512);
	(void)a;
	m.normed_weights = true;
	m.halves = false;
	m.eps = 1e-5;
	return m;
}

static struct oracle olmoe(struct model_arch *a)
{
	struct oracle m = mixture(1e4, 8, 3, 256);
	(void)a;
	m.n_kv = 4;
	m.qk_norm = m.qk_norm_row = true;
	m.eps = 1e-5;
	return m;
}

static struct oracle qwen2moe(struct model_arch *a)
{
	struct oracle m = mixture(1e6, 6, 4, 256);
	(void)a;
	m.bias = true;
	m.n_ff_shared = 512;
	return m;
}

static struct oracle qwen3moe(struct model_arch *a)
{
	struct oracle m = mixture(1e6, 16, 2, 256);
	(void)a;
	m.normed_weights = m.qk_norm = true;
	m.head_dim = 96;
	m.score_scale = 1 / sqrt(96);
	plain(plain_freq, 96, 1e6);
	return m;
}

/* The ramp's ends are not rounded to whole pairs. */
static struct oracle gpt_oss(struct model_arch *a)
{
	struct oracle m = mixture(1.5e5, 8, 3, 192);
	(void)a;
	m.n_layers = 4;
	m.n_heads = 8;
	m.normed_weights = m.bias = m.oss = true;
	m.window = 64;
	m.every = 2;
	m.eps = 1e-5;
	double lo = 64 * log(256 / (32 * 2 * M_PI)) / (2 * log(1.5e5)),
	       hi = 64 * log(256 / (2 * M_PI)) / (2 * log(1.5e5));
	ramp(lo, hi);
	m.magnitude = 1 + 0.1 * log(4);
	return m;
}

static struct oracle smollm3(struct model_arch *a)
{
	struct oracle m = llama_like(5, 5e6, 1e-6);
	(void)a;
	m.still_every = 4;
	return m;
}

static struct oracle granite(struct model_arch *a)
{
	struct oracle m = llama_like(2, 1e7, 1e-5);
	(void)a;
	m.embed_scale = 12;
	m.score_scale = 0.0625;
	m.half_scale = 0.25;
	m.logit_scale = 0.125;
	return m;
}

static struct oracle granitemoe(struct model_arch *a)
{
	struct oracle m = granite(a), with = mixture(1e4, 8, 3, 192);
	m.n_experts = with.n_experts;
	m.n_used = with.n_used;
	m.n_ff_expert = with.n_ff_expert;
	m.normed_weights = true;
	m.eps = 1e-6;
	return m;
}

static struct oracle seed_oss(struct model_arch *a)
{
	struct oracle m = llama_like(2, 1e7, 1e-6);
	(void)a;
	m.halves = m.bias = m.norm_is_post = true;
	m.head_dim = 96;
	m.score_scale = 1 / sqrt(96);
	plain(plain_freq, 96, 1e7);
	return m;
}

static struct oracle ernie(struct model_arch *a)
{
	(void)a;
	return llama_like(2, 5e5, 1e-5);
}

static struct oracle glm4(struct model_arch *a)
{
	struct oracle m = llama_like(2, 1e4, 1e-5);
	(void)a;
	m.post_norms = m.bias = m.wide_up = true;
	m.turned = 32;
	plain(plain_freq, 32, 1e4);
	return m;
}

static struct oracle glm4moe(struct model_arch *a)
{
	struct oracle m = mixture(1e6, 8, 3, 192);
	(void)a;
	m.n_layers = 3;
	m.eps = 1e-5;
	m.bias = m.qk_norm = m.norm_is_post = m.sigmoid = m.normed_weights = true;
	m.n_dense = 1;
	m.n_ff_shared = 192;
	m.weight_scale = 1.5;
	m.turned = 32;
	plain(plain_freq, 32, 1e6);
	return m;
}

/* A shape of other sizes: six heads of 32, a width of 192. */
static struct oracle odd(int n_layers, int n_kv, int n_ff, double base, double eps)
{
	struct oracle m = llama_like(n_layers, base, eps);
	m.n_embd = 192;
	m.n_heads = 6;
	m.n_kv = n_kv;
	m.head_dim = 32;
	m.n_ff = n_ff;
	m.score_scale = 1 / sqrt(32);
	plain(plain_freq, 32, base);
	return m;
}

static struct oracle olmo2(struct model_arch *a)
{
	struct oracle m = llama_like(2, 5e5, 1e-6);
	(void)a;
	m.halves = m.qk_norm = m.qk_norm_row = m.post_norms = m.bare = true;
	return m;
}

/* Windows of ten positions, less than a page, in all but every fourth layer, which alone is stretched. */
static struct oracle olmo3(struct model_arch *a)
{
	struct oracle m = odd(5, 3, 320, 5e5, 1e-6);
	(void)a;
	m.halves = m.qk_norm = m.qk_norm_row = m.post_norms = m.bare = true;
	m.window = 10;
	m.every = 4;
	memcpy(local_freq, plain_freq, sizeof local_freq);
	m.freq_local = local_freq;
	double lo = floor(32 * log(256 / (32 * 2 * M_PI)) / (2 * log(5e5))),
	       hi = ceil(32 * log(256 / (2 * M_PI)) / (2 * log(5e5)));
	ramp(lo, hi);
	m.magnitude = 1 + 0.1 * log(4);
	return m;
}

static struct oracle command_r(struct model_arch *a)
{
	struct oracle m = llama_like(2, 1e4, 1e-5);
	(void)a;
	m.mean = true;
	m.parallel = 1;
	m.logit_scale = 0.25;
	return m;
}

static struct oracle cohere2(struct model_arch *a)
{
	struct oracle m = odd(5, 2, 320, 5e4, 1e-5);
	(void)a;
	m.mean = m.still_full = true;
	m.parallel = 1;
	m.logit_scale = 0.25;
	m.window = 12;
	m.every = 4;
	return m;
}

static struct oracle minimax_m2(struct model_arch *a)
{
	struct oracle m = mixture(5e6, 8, 3, 192);
	(void)a;
	m.head_dim = 96;
	m.score_scale = 1 / sqrt(96);
	m.turned = 64;
	m.qk_norm = m.qk_norm_row = m.sigmoid = m.normed_weights = true;
	m.weight_scale = 1;
	return m;
}

/* Of 64 positions before a stretch by 16 no pair turns more than 32 times. */
static struct oracle ministral3(struct model_arch *a)
{
	struct oracle m = llama_like(2, 1e6, 1e-5);
	(void)a;
	double hi = ceil(64 * log(64 / (2 * M_PI)) / (2 * log(1e6)));
	for (int i = 0; i < 32; i++)
		plain_freq[i] *= 1 - fmin(1, i / hi) * 15 / 16;
	m.grow = 0.1;
	m.grow_every = 64;
	return m;
}

static struct oracle phimoe(struct model_arch *a)
{
	struct oracle m = mixture(1e4, 6, 2, 192);
	m.mean = m.norm_bias = m.bias = m.o_bias = m.head_bias = true;
	m.eps = 1e-5;
	/* At random weights few logits are as close as the model's own 0.01. */
	a->experts.sparse = 0.01f;
	m.close = 0.01;
	stretch(&m);
	return m;
}

static struct oracle falcon(struct model_arch *a)
{
	struct oracle m = llama_like(2, 1e4, 1e-5);
	(void)a;
	m.n_kv = 1;
	m.n_ff = 1024;
	m.halves = m.fused = m.mean = m.norm_bias = m.ungated = true;
	m.parallel = 1;
	return m;
}

static struct oracle falcon_40b(struct model_arch *a)
{
	struct oracle m = odd(3, 2, 768, 1e4, 1e-5);
	(void)a;
	m.halves = m.fused = m.mean = m.norm_bias = m.ungated = m.second = true;
	m.parallel = 2;
	return m;
}

static struct oracle neox_like(struct oracle m)
{
	m.halves = m.fused = m.mean = m.norm_bias = m.ungated = m.bias = m.o_bias = m.ff_bias = true;
	m.turned = m.head_dim / 4;
	plain(plain_freq, m.turned, 1e4);
	return m;
}

static struct oracle gptneox(struct model_arch *a)
{
	struct oracle m = neox_like(llama_like(2, 1e4, 1e-5));
	(void)a;
	m.n_kv = 4;
	m.n_ff = 1024;
	m.parallel = 2;
	return m;
}

static struct oracle gptneox_in_turn(struct model_arch *a)
{
	(void)a;
	return neox_like(odd(3, 6, 320, 1e4, 1e-5));
}

/* Stretched by 4 from 256 positions, by whose mscale_all_dim scores grow, squared; one dense layer, then a softmax over
 * all experts, whose shares are scaled. */
static struct oracle deepseek2(struct model_arch *a)
{
	struct oracle m = mixture(1e4, 6, 3, 192);
	(void)a;
	m.halves = false;
	m.n_kv = 4;
	m.n_latent = 64;
	m.plain = 32;
	m.turned = 16;
	m.head_dim = 48;
	m.n_value = 48;
	m.n_dense = 1;
	m.n_ff_shared = 384;
	m.weight_scale = 1.5;
	plain(plain_freq, 16, 1e4);
	double lo = floor(16 * log(256 / (32 * 2 * M_PI)) / (2 * log(1e4))),
	       hi = ceil(16 * log(256 / (2 * M_PI)) / (2 * log(1e4)));
	ramp(lo, hi);
	m.score_scale = pow(1 + 0.1 * 0.707 * log(4), 2) / sqrt(48);
	return m;
}

/* The same with queries from a vector, the best groups only, and keys' and values' products in one
 * tensor. */
static struct oracle deepseek2_grouped(struct model_arch *a)
{
	struct oracle m = deepseek2(a);
	a->latent.joined = m.latent_joined = true;
	a->latent.n_query = m.n_low = 72;
	a->experts.n_groups = m.n_groups = 3;
	a->experts.n_groups_used = m.n_groups_used = 2;
	m.group_best = true;
	return m;
}

/* Sizes that no vector divides; sigmoids with a bias, of the two groups whose two best are largest. */
static struct oracle deepseek3(struct model_arch *a)
{
	struct oracle m = odd(3, 3, 320, 1e4, 1e-6);
	(void)a;
	m.n_heads = 3;
	m.n_latent = 36;
	m.n_low = 40;
	m.plain = 22;
	m.turned = 10;
	m.n_value = 20;
	m.n_dense = 1;
	m.n_experts = 12;
	m.n_used = 3;
	m.n_ff_expert = m.n_ff_shared = 96;
	m.n_groups = 4;
	m.n_groups_used = 2;
	m.sigmoid = m.normed_weights = true;
	m.weight_scale = 2.5;
	plain(plain_freq, 10, 1e4);
	return m;
}

/* One head, one expert, which all rows use, beside none that is shared; and no layer is dense. */
static struct oracle deepseek_one(struct model_arch *a)
{
	struct oracle m = deepseek3(a);
	a->n_heads = m.n_heads = m.n_kv = 1;
	a->experts.n = a->experts.n_used = m.n_experts = m.n_used = 1;
	a->experts.n_groups = a->experts.n_groups_used = a->experts.n_dense = a->experts.n_ff_shared = 0;
	m.n_groups = m.n_dense = m.n_ff_shared = 0;
	return m;
}

/* All experts of every row, heads that no tile divides, no layer that mixes before the last. */
static struct oracle deepseek_all(struct model_arch *a)
{
	struct oracle m = deepseek2(a);
	a->n_heads = m.n_heads = m.n_kv = 21;
	a->experts.n_used = m.n_used = 6;
	return m;
}

static struct oracle lfm2(struct model_arch *a)
{
	struct oracle m = llama_like(4, 1e6, 1e-5);
	(void)a;
	m.halves = m.qk_norm = m.norm_of_embd = true;
	m.recurrent = 0xF & ~(1u << 2);
	m.conv = 3;
	return m;
}

static struct oracle lfm2_odd(struct model_arch *a)
{
	struct oracle m = odd(5, 2, 320, 1e4, 1e-5);
	(void)a;
	m.halves = m.qk_norm = m.norm_of_embd = true;
	m.recurrent = 0x1F & ~(1u << 1 | 1u << 4);
	m.conv = 4;
	return m;
}

/* A convolution of two positions: the state is one input. */
static struct oracle lfm2_two(struct model_arch *a)
{
	struct oracle m = lfm2_odd(a);
	a->recurrent.conv = m.conv = 2;
	return m;
}

static struct oracle lfm2moe(struct model_arch *a)
{
	struct oracle m = lfm2(a), with = mixture(1e6, 8, 3, 192);
	m.recurrent = 0xF & ~(1u << 1);
	m.n_experts = with.n_experts;
	m.n_used = with.n_used;
	m.n_ff_expert = with.n_ff_expert;
	m.n_dense = 1;
	m.sigmoid = m.normed_weights = true;
	m.weight_scale = 1;
	return m;
}

static struct oracle delta_like(struct oracle m, unsigned recurrent, double base)
{
	m.halves = m.qk_norm = m.q_gate = m.norm_is_post = m.tiled = true;
	m.recurrent = recurrent;
	m.conv = 4;
	m.k_heads = 2;
	m.v_heads = 4;
	m.k_dim = m.v_dim = 32;
	m.turned = 16;
	m.eps = 1e-6;
	plain(plain_freq, 16, base);
	return m;
}

static struct oracle qwen35(struct model_arch *a)
{
	(void)a;
	return delta_like(llama_like(4, 1e7, 1e-6), 0x7, 1e7);
}

/* Three heads of their own, keys wider than values, a shorter convolution. */
static struct oracle qwen35_odd(struct model_arch *a)
{
	struct oracle m = odd(5, 2, 320, 1e6, 1e-6);
	m.head_dim = 64;
	m.score_scale = 1 / sqrt(64);
	m = delta_like(m, 0x15, 1e6);
	m.k_heads = m.v_heads = 3;
	m.k_dim = 64;
	a->recurrent.v_dim = m.v_dim = 24;
	m.conv = 3;
	return m;
}

static struct oracle with_mixture(struct oracle m, int n, int n_used, int n_ff, int n_shared)
{
	m.n_experts = n;
	m.n_used = n_used;
	m.n_ff_expert = n_ff;
	m.n_ff_shared = n_shared;
	m.normed_weights = true;
	return m;
}

static struct oracle qwen35moe(struct model_arch *a)
{
	struct oracle m = delta_like(with_mixture(llama_like(4, 1e7, 1e-6), 6, 2, 128, 256), 0x5, 1e7);
	(void)a;
	m.v_heads = 6;
	return m;
}

static struct oracle qwen3next(struct model_arch *a)
{
	struct oracle m = delta_like(with_mixture(llama_like(4, 1e7, 1e-6), 8, 3, 128, 192), 0x7, 1e7);
	(void)a;
	m.tiled = false;
	return m;
}

static struct oracle ssm_like(struct oracle m, unsigned recurrent, int groups, int heads, int state, int head_dim)
{
	m.ssm = true;
	m.recurrent = recurrent;
	m.conv = 4;
	m.k_heads = groups;
	m.v_heads = heads;
	m.k_dim = state;
	m.v_dim = head_dim;
	m.eps = 1e-5;
	return m;
}

static struct oracle granite4(struct model_arch *a)
{
	struct oracle m = granite(a);
	m.n_layers = 4;
	return ssm_like(m, 0xF & ~(1u << 2), 1, 8, 32, 64);
}

/* Several groups, sizes that no vector divides, a shorter convolution. */
static struct oracle granite4_odd(struct model_arch *a)
{
	struct oracle m = granite(a), of = odd(5, 3, 320, 1e4, 1e-5);
	of.embed_scale = m.embed_scale;
	of.score_scale = m.score_scale;
	of.half_scale = m.half_scale;
	of.logit_scale = m.logit_scale;
	m = ssm_like(of, 0x1F & ~(1u << 1 | 1u << 3), 2, 12, 24, 32);
	m.conv = 3;
	a->recurrent.k_dim = m.k_dim = 21;
	a->recurrent.v_dim = m.v_dim = 19;
	return m;
}

static struct oracle granite4moe(struct model_arch *a)
{
	struct oracle m = granite4(a), with = mixture(1e4, 8, 3, 192);
	m.n_experts = with.n_experts;
	m.n_used = with.n_used;
	m.n_ff_expert = with.n_ff_expert;
	m.n_ff_shared = 256;
	m.normed_weights = true;
	return ssm_like(m, 0xF & ~(1u << 1), 1, 16, 64, 32);
}

static struct oracle halves_like(struct oracle m, unsigned only_ff)
{
	m.one_half = m.ungated = m.square = true;
	m.only_ff = only_ff;
	return m;
}

static struct oracle nemotron_h(struct model_arch *a)
{
	(void)a;
	return halves_like(ssm_like(llama_like(6, 1e4, 1e-5), 0x3F & ~(1u << 1 | 1u << 3 | 1u << 4), 2, 8, 32, 64),
			   1u << 1 | 1u << 4);
}

static struct oracle nemotron_h_odd(struct model_arch *a)
{
	struct oracle m = odd(7, 2, 320, 1e4, 1e-5);
	(void)a;
	m.head_dim = 48;
	m.score_scale = 1 / sqrt(48);
	m = halves_like(ssm_like(m, 1u << 1 | 1u << 4 | 1u << 6, 4, 12, 40, 32), 1u << 2 | 1u << 3);
	m.conv = 2;
	return m;
}

static struct oracle sigmoid_mixture(struct oracle m, int n, int n_used, int n_ff, int n_shared, double scale)
{
	m = with_mixture(m, n, n_used, n_ff, n_shared);
	m.sigmoid = true;
	m.weight_scale = scale;
	return m;
}

static struct oracle nemotron3(struct model_arch *a)
{
	struct oracle m = sigmoid_mixture(nemotron_h(a), 8, 3, 128, 192, 2.5);
	m.n_ff = 128;
	return m;
}

/* Experts on vectors of 64 elements. */
static struct oracle nemotron3_latent(struct model_arch *a)
{
	struct oracle m = odd(5, 2, 96, 1e4, 1e-5);
	(void)a;
	m.head_dim = 48;
	m.score_scale = 1 / sqrt(48);
	m = halves_like(ssm_like(m, 1u << 0 | 1u << 3, 1, 6, 16, 64), 1u << 1 | 1u << 4);
	m = sigmoid_mixture(m, 6, 2, 96, 160, 1.5);
	m.conv = 3;
	m.n_low_ff = 64;
	return m;
}

/* At 40 positions a chunk, and a temperature that grows from the same; GGUF has no keys for the latter. */
static struct oracle llama4(struct model_arch *a)
{
	struct oracle m = llama_like(4, 5e5, 1e-5);
	(void)a;
	m.n_embd = 128;
	m.head_dim = 32;
	m.n_ff = 160;
	m.score_scale = 1 / sqrt(32);
	plain(plain_freq, 32, 5e5);
	m.still_every = 4;
	m.window = 40;
	m.every = 4;
	m.chunked = m.plain_norms = m.weighs_input = m.sigmoid = true;
	m.weight_scale = 1;
	m.mix_every = 2;
	m.n_experts = 6;
	m.n_used = 2;
	m.n_ff_expert = m.n_ff_shared = 96;
	m.still_grow = 0.1;
	m.still_grow_every = ARCH_LLAMA4_CHUNK;
	return m;
}

/* One expert, which is the dense half; and all of them. */
static struct oracle one_expert(struct model_arch *a)
{
	struct oracle m = mixtral(a);
	a->experts.n = a->experts.n_used = m.n_experts = m.n_used = 1;
	return m;
}

static struct oracle all_experts(struct model_arch *a)
{
	struct oracle m = olmoe(a);
	a->experts.n = a->experts.n_used = m.n_experts = m.n_used = 5;
	a->experts.n_ff = m.n_ff_expert = 96;
	return m;
}

#endif
