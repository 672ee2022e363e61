/* SPDX-License-Identifier: Apache-2.0
 *
 * Every family against an independent forward pass in double precision (tests/support/oracle.h) at
 * random weights: the relative error of F32 logits, and the error of log-probabilities, stay under 1e-4
 * on every backend, at rows before and beyond the window and an attention block. What is specific to a family is
 * written down here once more, by hand. And bit for bit the same logits whatever the chunks and the threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/oracle.h"
#include "engine/kv/kv.h"
#include "engine/kv/kv_states.h"
#include "engine/model/model.h"
#include "engine/source/random_model.h"
#include "tests/support/backends.h"

enum { N = 264, PAGE = 16, N_PAGES = (N + PAGE - 1) / PAGE, VOCAB = 512 };
static const int want[] = {0, 63, 64, 130, 255, 256, 263};
enum { N_WANT = sizeof want / sizeof *want };
#define TOLERANCE 1e-4

static int tokens[N];
static char folder[] = "/tmp/sluice-families-XXXXXX", path[sizeof folder + 16];

static double plain_freq[64], local_freq[64];

static void plain(double *freq, int head_dim, double base)
{
	for (int i = 0; i < head_dim / 2; i++)
		freq[i] = exp(-log(base) * 2 * i / head_dim);
}

/* ---- the families, by hand ---- */

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

/* Families that only combine the operations of others differ in no instruction set: SOME_SETS runs them on the
 * reference and on what this machine would choose. */
enum where { EVERYWHERE, SOME_SETS };

struct family {
	const char *name, *shape;
	struct oracle (*describe)(struct model_arch *a);
	enum where where;
};

static const struct family cases[] = {
    {"llama 3", "tiny-llama", llama3, EVERYWHERE},
    {"mistral", "tiny-mistral", mistral, EVERYWHERE},
    {"linear", "tiny-mistral", linear, EVERYWHERE},
    {"yarn", "tiny-mistral", yarn, EVERYWHERE},
    {"qwen 2", "tiny-qwen2", qwen2, EVERYWHERE},
    {"qwen 3", "tiny-qwen3", qwen3, EVERYWHERE},
    {"phi 3", "tiny-phi3", phi3, EVERYWHERE},
    {"gemma 2", "tiny-gemma2", gemma2, EVERYWHERE},
    {"gemma 3", "tiny-gemma3", gemma3, EVERYWHERE},
    {"gemma 3, capped", "tiny-gemma3", gemma3_capped, EVERYWHERE},
    {"qwen 3, experts", "tiny-qwen3moe", qwen3moe, EVERYWHERE},
    {"gpt-oss", "tiny-gpt-oss", gpt_oss, EVERYWHERE},
    {"mixtral", "tiny-mixtral", mixtral, SOME_SETS},
    {"olmoe", "tiny-olmoe", olmoe, SOME_SETS},
    {"qwen 2, experts", "tiny-qwen2moe", qwen2moe, SOME_SETS},
    {"smollm 3", "tiny-smollm3", smollm3, SOME_SETS},
    {"granite", "tiny-granite", granite, SOME_SETS},
    {"granite, experts", "tiny-granitemoe", granitemoe, SOME_SETS},
    {"seed", "tiny-seed-oss", seed_oss, SOME_SETS},
    {"ernie 4.5", "tiny-ernie", ernie, SOME_SETS},
    {"glm 4", "tiny-glm4", glm4, SOME_SETS},
    {"glm 4.5", "tiny-glm4moe", glm4moe, SOME_SETS},
    {"olmo 2", "tiny-olmo2", olmo2, SOME_SETS},
    {"olmo 3", "tiny-olmo3", olmo3, SOME_SETS},
    {"command-r", "tiny-command-r", command_r, EVERYWHERE},
    {"cohere 2", "tiny-cohere2", cohere2, SOME_SETS},
    {"minimax-m2", "tiny-minimax-m2", minimax_m2, SOME_SETS},
    {"ministral 3", "tiny-mistral3", ministral3, EVERYWHERE},
    {"phi 3.5, experts", "tiny-phimoe", phimoe, SOME_SETS},
    {"falcon", "tiny-falcon", falcon, SOME_SETS},
    {"falcon 40b", "tiny-falcon-40b", falcon_40b, SOME_SETS},
    {"gpt-neox", "tiny-gptneox", gptneox, EVERYWHERE},
    {"gpt-neox, in turn", "tiny-gptneox-2", gptneox_in_turn, SOME_SETS},
    {"deepseek 2", "tiny-deepseek2", deepseek2, EVERYWHERE},
    {"deepseek 2, grouped", "tiny-deepseek2", deepseek2_grouped, EVERYWHERE},
    {"deepseek 3", "tiny-deepseek3", deepseek3, EVERYWHERE},
    {"deepseek, one expert", "tiny-deepseek3", deepseek_one, SOME_SETS},
    {"deepseek, all experts", "tiny-deepseek2", deepseek_all, SOME_SETS},
    {"lfm 2", "tiny-lfm2", lfm2, EVERYWHERE},
    {"lfm 2, odd", "tiny-lfm2-2", lfm2_odd, SOME_SETS},
    {"lfm 2, two positions", "tiny-lfm2-2", lfm2_two, SOME_SETS},
    {"lfm 2, experts", "tiny-lfm2moe", lfm2moe, SOME_SETS},
    {"qwen 3.5", "tiny-qwen3.5", qwen35, EVERYWHERE},
    {"qwen 3.5, odd", "tiny-qwen3.5-2", qwen35_odd, SOME_SETS},
    {"qwen 3.5, experts", "tiny-qwen3.5moe", qwen35moe, SOME_SETS},
    {"qwen 3 next", "tiny-qwen3next", qwen3next, SOME_SETS},
    {"llama 4", "tiny-llama4", llama4, EVERYWHERE},
    {"one expert", "tiny-mixtral", one_expert, SOME_SETS},
    {"all experts", "tiny-olmoe", all_experts, SOME_SETS},
};
enum { N_FIRST = sizeof cases / sizeof *cases };

/* Second shapes, of odd sizes: the numbers that are 0 stay those of the first. */
struct odd_shape {
	int heads, kv;
	int window;
	int n, used; /* experts */
};

static const struct {
	struct family family;
	struct odd_shape odd;
} seconds[] = {
    {{"qwen 2, odd", "tiny-qwen2", qwen2, SOME_SETS}, {3, 1, 0, 0, 0}},
    {{"qwen 3, odd", "tiny-qwen3", qwen3, SOME_SETS}, {5, 5, 0, 0, 0}},
    {{"phi 3, odd", "tiny-phi3", phi3, SOME_SETS}, {2, 2, 11, 0, 0}},
    {{"gemma 2, odd", "tiny-gemma2", gemma2, SOME_SETS}, {3, 3, 7, 0, 0}},
    {{"gemma 3, odd", "tiny-gemma3", gemma3, SOME_SETS}, {2, 2, 5, 0, 0}},
    {{"qwen 3, one expert", "tiny-qwen3moe", qwen3moe, SOME_SETS}, {3, 1, 0, 1, 1}},
    {{"gpt-oss, all experts", "tiny-gpt-oss", gpt_oss, SOME_SETS}, {3, 1, 9, 5, 5}},
    {{"qwen 2, all experts", "tiny-qwen2moe", qwen2moe, SOME_SETS}, {6, 2, 0, 3, 3}},
    {{"smollm 3, odd", "tiny-smollm3", smollm3, SOME_SETS}, {3, 1, 0, 0, 0}},
    {{"granite, odd", "tiny-granite", granite, SOME_SETS}, {6, 3, 0, 0, 0}},
    {{"granite, all experts", "tiny-granitemoe", granitemoe, SOME_SETS}, {3, 3, 0, 3, 3}},
    {{"seed, odd", "tiny-seed-oss", seed_oss, SOME_SETS}, {3, 1, 0, 0, 0}},
    {{"ernie 4.5, odd", "tiny-ernie", ernie, SOME_SETS}, {3, 1, 0, 0, 0}},
    {{"glm 4, odd", "tiny-glm4", glm4, SOME_SETS}, {3, 1, 0, 0, 0}},
    {{"glm 4.5, odd", "tiny-glm4moe", glm4moe, SOME_SETS}, {3, 1, 0, 9, 1}},
    {{"command-r, odd", "tiny-command-r", command_r, SOME_SETS}, {3, 3, 0, 0, 0}},
    {{"cohere 2, odd", "tiny-cohere2", cohere2, SOME_SETS}, {3, 3, 40, 0, 0}},
    {{"minimax-m2, all experts", "tiny-minimax-m2", minimax_m2, SOME_SETS}, {3, 1, 0, 3, 3}},
    {{"ministral 3, odd", "tiny-mistral3", ministral3, SOME_SETS}, {3, 1, 0, 0, 0}},
    {{"phi 3.5, two experts", "tiny-phimoe", phimoe, SOME_SETS}, {3, 1, 0, 2, 2}},
};
enum { N_CASES = N_FIRST + sizeof seconds / sizeof *seconds };

static const struct family *family_at(size_t c) { return c < N_FIRST ? &cases[c] : &seconds[c - N_FIRST].family; }

/* Widths that no block and hardly a vector divides. Heads keep theirs where a scaling of the rotary embedding was
 * computed for it. */
static struct oracle odd_sizes(const struct odd_shape *odd, struct oracle m, struct model_arch *a)
{
	enum { FF = 75, FF_EXPERT = 53, HEAD = 30, TURNED = 14 };
	bool scaled_scores = fabs(m.score_scale * sqrt(m.head_dim) - 1) > 1e-9;
	bool plain_rope = a->rope.scaling == ARCH_ROPE_PLAIN;
	a->n_heads = m.n_heads = odd->heads;
	a->n_kv_heads = m.n_kv = odd->kv;
	a->n_embd = m.n_embd = odd->heads * (plain_rope ? HEAD : m.head_dim);
	a->n_ff = m.n_ff = odd->n > 0 && m.n_dense == 0 ? FF_EXPERT : FF;
	if (m.gelu)
		a->embed_scale = (float)(m.embed_scale = sqrt(m.n_embd));
	if (odd->window > 0)
		a->window = m.window = odd->window;
	if (plain_rope) {
		a->head_dim = m.head_dim = HEAD;
		a->rope.n_rot = a->rope_windowed.n_rot = m.turned = m.turned > 0 ? TURNED : HEAD;
		plain(plain_freq, m.turned, a->rope.base);
		if (!scaled_scores)
			a->attn_scale = (float)(m.score_scale = 1 / sqrt(HEAD));
	}
	if (odd->n == 0)
		return m;
	a->experts.n = m.n_experts = odd->n;
	a->experts.n_used = m.n_used = odd->used;
	a->experts.n_ff = m.n_ff_expert = FF_EXPERT;
	if (m.n_ff_shared > 0) /* GLM's shared experts are as wide as the others */
		a->experts.n_ff_shared = m.n_ff_shared = m.sigmoid ? 2 * FF_EXPERT : FF;
	return m;
}

/* What these have of their own are products of weights that are not F32 (test_weight_types.c); the weights here are,
 * and go through the loops of cpu-avx2 and cpu-avx512. */
static bool repeats(const char *name)
{
	static const char *const others[] = {"cpu-avx2-int8", "cpu-vnni", "cpu-amx", "cpu-amx-int8"};
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (strcmp(name, others[i]) == 0)
			return true;
	return false;
}

static bool runs_on(enum where where, const char *name)
{
	struct sl_err err;
	const struct kn_ops *chosen = kn_select("auto", &err);
	return strcmp(name, "cpu-ref") == 0 || strcmp(name, chosen->name) == 0 ||
	       (where == EVERYWHERE && !repeats(name));
}

/* ---- running the engine's own ---- */

struct bench {
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct model *m;
	struct kv_pool *pool;
	struct kv_states *states;
	int32_t pages[N_PAGES];
};

static void bench_open(struct bench *x, const struct kn_ops *ops, int n_threads)
{
	struct sl_err err = {0};
	struct kn_config kc = {.n_threads = n_threads, .max_rows = N, .max_width = 1024};
	x->ops = ops;
	assert_int_equal(ops->open(&kc, &x->b, &err), 0);
	if (model_load(path, ops, x->b, N, 0, &x->m, &err) != 0)
		fail_msg("%s", err.text);
	const struct model_arch *a = &model_info(x->m)->arch;
	struct kn_kv layout = model_kv_layout(a, KN_F32, PAGE, a->n_layers);
	layout.n_pages = 2 * N_PAGES;
	assert_int_equal(kv_pool_make(ops, x->b, &layout, &x->pool, &err), 0);
	/* What stands in pages that were not written must not matter. */
	const struct kn_kv *kv = kv_pool_layout(x->pool);
	size_t n = (size_t)(2 * N_PAGES) * kv_layout_bytes(kv) / 2 / sizeof(float);
	for (size_t i = 0; i < n; i++)
		((float *)kv->k)[i] = ((float *)kv->v)[i] = NAN;
	/* Nor what a state was before. */
	float *dirty = NULL;
	x->states = NULL;
	if (arch_is_recurrent(a)) {
		struct kn_step s = {0};
		assert_int_equal(kv_states_create(ops, x->b, arch_state(a), 1, 0, &x->states, &err), 0);
		kv_states_in_step(x->states, &s);
		dirty = s.states;
	}
	for (size_t i = 0; i < arch_state(a); i++)
		dirty[i] = NAN;
	for (int i = 0; i < N_PAGES; i++)
		x->pages[i] = (i * 7 + 3) % (2 * N_PAGES);
}

static void bench_close(struct bench *x)
{
	kv_states_destroy(x->states);
	kv_pool_destroy(x->pool);
	model_free(x->m);
	x->ops->close(x->b);
}

/* The text in chunks; logits [N_WANT][VOCAB]. */
static void forward(struct bench *x, int chunk, float *logits)
{
	int32_t token[N], pos[N], seq[N] = {0};
	int done = 0;
	for (int from = 0; from < N; from += chunk) {
		int n = from + chunk < N ? chunk : N - from, n_want = 0;
		int32_t rows[N_WANT];
		for (int i = 0; i < n; i++) {
			token[i] = tokens[from + i];
			pos[i] = from + i;
		}
		while (done + n_want < N_WANT && want[done + n_want] < from + n) {
			rows[n_want] = want[done + n_want] - from;
			n_want++;
		}
		struct kn_step s = {.n_rows = n,
				    .row_token = token,
				    .row_pos = pos,
				    .row_seq = seq,
				    .n_seqs = 1,
				    .page_table = x->pages,
				    .max_pages = N_PAGES};
		kv_states_in_step(x->states, &s);
		assert_int_equal(
		    model_forward(x->m, &s, kv_pool_layout(x->pool), rows, n_want, logits + (size_t)done * VOCAB), 0);
		done += n_want;
	}
	assert_int_equal(done, N_WANT);
}

static double relative_error(const float *got, const double *expected)
{
	double diff = 0, size = 0;
	for (int i = 0; i < VOCAB; i++) {
		diff = fmax(diff, fabs((double)got[i] - expected[i]));
		size = fmax(size, fabs(expected[i]));
		assert_true(isfinite(got[i]));
	}
	return diff / size;
}

/* What becomes of logits: log-probabilities, in nats. */
static double log_sum(const double *logits)
{
	double sum = 0, most = logits[0];
	for (int i = 0; i < VOCAB; i++)
		most = fmax(most, logits[i]);
	for (int i = 0; i < VOCAB; i++)
		sum += exp(logits[i] - most);
	return most + log(sum);
}

static double logprob_error(const double *got, const double *expected)
{
	double diff = 0, off = log_sum(got) - log_sum(expected);
	for (int i = 0; i < VOCAB; i++)
		diff = fmax(diff, fabs(got[i] - expected[i] - off));
	return diff;
}

static double logprob_error_f32(const float *got, const double *expected)
{
	double wide[VOCAB];
	for (int i = 0; i < VOCAB; i++)
		wide[i] = (double)got[i];
	return logprob_error(wide, expected);
}

/* The case's file, written once, and its oracle. */
static void write_model(size_t c, struct oracle *m)
{
	struct sl_err err = {0};
	struct convert_progress p = {0};
	struct random_model r = {.path = path, .name = "random", .seed = 11, .n_threads = 2};
	snprintf(path, sizeof path, "%s/%zu", folder, c);
	assert_int_equal(random_shape_find(family_at(c)->shape, &r.arch, &err), 0);
	*m = family_at(c)->describe(&r.arch);
	if (c >= N_FIRST)
		*m = odd_sizes(&seconds[c - N_FIRST].odd, *m, &r.arch);
	if (access(path, F_OK) == 0)
		return;
	if (weight_plan_parse("f32", &r.plan, &err) != 0 || random_model_write(&r, &p, &err) != 0)
		fail_msg("%s", err.text);
}

static void test_families(void **state)
{
	(void)state;
	static float logits[N_WANT * VOCAB], again[N_WANT * VOCAB];
	static double expected[N_WANT * VOCAB];
	for (size_t c = 0; c < N_CASES; c++) {
		struct oracle m;
		struct model_file *f;
		struct sl_err err = {0};
		write_model(c, &m);
		assert_int_equal(model_file_open(path, &f, &err), 0);
		oracle_logits(&m, f, tokens, N, want, N_WANT, expected);
		model_file_close(f);
		for (const struct kn_ops *const *o = tested_backends(); *o != NULL; o++) {
			struct bench x;
			double worst = 0;
			if (!runs_on(family_at(c)->where, (*o)->name))
				continue;
			bench_open(&x, *o, 1);
			forward(&x, N, logits);
			double worst_nats = 0;
			for (int w = 0; w < N_WANT; w++) {
				const double *want_row = expected + w * VOCAB;
				worst = fmax(worst, relative_error(logits + w * VOCAB, want_row));
				worst_nats = fmax(worst_nats, logprob_error_f32(logits + w * VOCAB, want_row));
			}
			print_message("%s on %s: relative error %.2g, of log-probabilities %.2g\n", family_at(c)->name,
				      (*o)->name, worst, worst_nats);
			if (!(worst < TOLERANCE && worst_nats < TOLERANCE))
				fail_msg("%s on %s: relative error %g, of log-probabilities %g", family_at(c)->name,
					 (*o)->name, worst, worst_nats);
			/* Chunks of other sizes, and token by token. */
			static const int chunks[] = {37, 1};
			for (int k = 0; k < 2 && strcmp((*o)->name, "cpu-ref") != 0; k++) {
				forward(&x, chunks[k], again);
				assert_memory_equal(again, logits, sizeof logits);
			}
			bench_close(&x);
			if (strcmp((*o)->name, "cpu-ref") == 0)
				continue;
			bench_open(&x, *o, 2);
			forward(&x, 64, again);
			assert_memory_equal(again, logits, sizeof logits);
			bench_close(&x);
		}
	}
}

/* The weights are such that what is special about a family shows: an oracle that is off in one of its
 * numbers is far off in the logits. */
static void every_number_counts(void **state)
{
	(void)state;
	static double expected[VOCAB], other[VOCAB];
	enum { FEWER = 72 }; /* beyond half of every window */
	const int last = FEWER - 1;
	for (size_t c = 0; c < N_FIRST; c++) {
		struct oracle m, off;
		struct model_file *f;
		struct sl_err err = {0};
		write_model(c, &m);
		assert_int_equal(model_file_open(path, &f, &err), 0);
		oracle_logits(&m, f, tokens, FEWER, &last, 1, expected);
		for (int what = 0; what < 27; what++) {
			off = m;
			double faster[64];
			for (int i = 0; i < 64; i++)
				faster[i] = plain_freq[i] * 1.1;
			if (what == 0)
				off.freq = faster;
			else if (what == 1 && m.window > 0)
				off.window = m.window / 2;
			else if (what == 2 && m.score_cap > 0)
				off.score_cap = 1;
			else if (what == 3 && m.logit_cap > 0)
				off.logit_cap = 0;
			else if (what == 4 && m.magnitude != 1)
				off.magnitude = 1;
			else if (what == 5)
				off.halves = !m.halves;
			else if (what == 6 && m.n_used < m.n_experts)
				off.n_used = m.n_used + 1;
			else if (what == 7 && m.n_used < m.n_experts && m.close <= 0 && !m.weighs_input)
				off.normed_weights = !m.normed_weights;
			else if (what == 8 && m.n_ff_shared > 0)
				off.n_ff_shared = 0;
			else if (what == 9 && m.still_every > 0)
				off.still_every = 0;
			else if (what == 10 && m.half_scale > 0)
				off.half_scale = 1;
			else if (what == 11 && m.logit_scale > 0)
				off.logit_scale = 1;
			else if (what == 12 && m.sigmoid && m.weight_scale != 1)
				off.weight_scale = 1;
			else if (what == 13 && m.grow > 0)
				off.grow = 0;
			else if (what == 14 && m.still_full)
				off.still_full = false;
			else if (what == 15 && m.mean)
				off.mean = false;
			else if (what == 16 && m.norm_bias)
				off.norm_bias = false;
			else if (what == 17 && m.head_bias)
				off.head_bias = false;
			else if (what == 18 && m.ff_bias)
				off.ff_bias = false;
			else if (what == 19 && m.close > 0)
				off.close = 0;
			else if (what == 20 && m.ungated)
				off.gelu = true;
			else if (what == 21 && m.recurrent > 0)
				off.conv = m.conv - 1;
			else if (what == 22 && m.v_heads > m.k_heads)
				off.tiled = !m.tiled;
			else if (what == 23 && m.chunked)
				off.chunked = false;
			else if (what == 24 && m.plain_norms)
				off.plain_norms = false;
			else if (what == 25 && m.weighs_input)
				off.weighs_input = false;
			else if (what == 26 && m.still_grow > 0)
				off.still_grow_every = 16;
			else
				continue;
			oracle_logits(&off, f, tokens, FEWER, &last, 1, other);
			double diff = 0, size = 0;
			for (int i = 0; i < VOCAB; i++) {
				diff = fmax(diff, fabs(other[i] - expected[i]));
				size = fmax(size, fabs(expected[i]));
			}
			/* The two forms of GELU are closer than any other two numbers here. */
			if (what == 20 ? logprob_error(other, expected) < 2 * TOLERANCE : diff / size < 2 * TOLERANCE)
				fail_msg("%s: number %d changes the logits by %g only", cases[c].name, what,
					 diff / size);
		}
		model_file_close(f);
	}
}

static int setup(void **state)
{
	(void)state;
	uint64_t x = 5;
	for (int i = 0; i < N; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		tokens[i] = (int)((x >> 33) % VOCAB);
	}
	return mkdtemp(folder) != NULL ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	for (size_t c = 0; c < N_CASES; c++) {
		snprintf(path, sizeof path, "%s/%zu", folder, c);
		unlink(path);
	}
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_families), cmocka_unit_test(every_number_counts)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
