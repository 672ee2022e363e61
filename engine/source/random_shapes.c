/* SPDX-License-Identifier: Apache-2.0
 *
 * The shapes of models as their config.json publish them, and tiny ones of every family for tests:
 * widths of 256 so that every weight type fits, and more layers than the window's pattern.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/source/arch_family.h"
#include "engine/source/arch_read.h"
#include "engine/source/random_model.h"

struct shape {
	const char *name, *family;
	int n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff, n_vocab, n_ctx;
	double eps, base;
	bool tied;
	int window;
	enum arch_rope_scaling scaling;
	double factor;
	int original_ctx;
	enum arch_pooling pooling;
};

static const struct shape shapes[] = {
    {"llama-3.2-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 1e-5, 5e5, true, 0, ARCH_ROPE_LLAMA3, 32, 8192,
     ARCH_POOL_NONE},
    {"llama-3.2-3b", "llama", 28, 3072, 24, 8, 128, 8192, 128256, 131072, 1e-5, 5e5, true, 0, ARCH_ROPE_LLAMA3, 32,
     8192, ARCH_POOL_NONE},
    {"llama-3.1-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072, 1e-5, 5e5, false, 0, ARCH_ROPE_LLAMA3, 8,
     8192, ARCH_POOL_NONE},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, 1e-6, 1e6, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"qwen2.5-7b", "qwen2", 28, 3584, 28, 4, 128, 18944, 152064, 32768, 1e-6, 1e6, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1e-6, 1e6, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"qwen3-4b", "qwen3", 36, 2560, 32, 8, 128, 9728, 151936, 40960, 1e-6, 1e6, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 40960, 1e-6, 1e6, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"mistral-7b", "llama", 32, 4096, 32, 8, 128, 14336, 32768, 32768, 1e-5, 1e6, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"phi-3-mini", "phi3", 32, 3072, 32, 32, 96, 8192, 32064, 4096, 1e-5, 1e4, false, 2047, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"gemma-2-2b", "gemma2", 26, 2304, 8, 4, 256, 9216, 256000, 8192, 1e-6, 1e4, true, 4096, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"gemma-2-9b", "gemma2", 42, 3584, 16, 8, 256, 14336, 256000, 8192, 1e-6, 1e4, true, 4096, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"gemma-3-1b", "gemma3", 26, 1152, 4, 1, 256, 6912, 262144, 32768, 1e-6, 1e6, true, 512, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"gemma-3-4b", "gemma3", 34, 2560, 8, 4, 256, 10240, 262208, 131072, 1e-6, 1e6, true, 1024, ARCH_ROPE_LINEAR, 8, 0,
     ARCH_POOL_NONE},
    {"mixtral-8x7b", "llama", 32, 4096, 32, 8, 128, 14336, 32000, 32768, 1e-5, 1e6, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"olmoe-1b-7b", "olmoe", 16, 2048, 16, 16, 128, 1024, 50304, 4096, 1e-5, 1e4, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"qwen1.5-moe-a2.7b", "qwen2moe", 24, 2048, 16, 16, 128, 5632, 151936, 8192, 1e-6, 1e6, false, 0, ARCH_ROPE_PLAIN,
     0, 0, ARCH_POOL_NONE},
    {"qwen3-30b-a3b", "qwen3moe", 48, 2048, 32, 4, 128, 6144, 151936, 40960, 1e-6, 1e6, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"gpt-oss-20b", "gpt-oss", 24, 2880, 64, 8, 64, 2880, 201088, 131072, 1e-5, 1.5e5, false, 128, ARCH_ROPE_YARN, 32,
     4096, ARCH_POOL_NONE},
    {"deepseek-v2-lite", "deepseek2", 27, 2048, 16, 1, 576, 10944, 102400, 163840, 1e-6, 1e4, false, 0, ARCH_ROPE_YARN,
     40, 4096, ARCH_POOL_NONE},
    {"test-30m", "llama", 8, 512, 8, 4, 64, 1536, 8192, 32768, 1e-5, 5e5, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"test-latent-1b", "deepseek2", 16, 2048, 16, 1, 576, 8192, 32768, 32768, 1e-6, 1e4, false, 0, ARCH_ROPE_PLAIN, 0,
     0, ARCH_POOL_NONE},
    {"tiny-llama", "llama", 2, 256, 4, 2, 64, 512, 512, 1024, 1e-5, 1e4, false, 0, ARCH_ROPE_LLAMA3, 8, 128,
     ARCH_POOL_NONE},
    {"tiny-mistral", "llama", 2, 256, 4, 2, 64, 512, 512, 1024, 1e-5, 1e6, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-qwen2", "qwen2", 2, 256, 4, 2, 64, 512, 512, 1024, 1e-6, 1e6, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-qwen3", "qwen3", 2, 256, 4, 2, 96, 512, 512, 1024, 1e-6, 1e6, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-mixtral", "llama", 2, 256, 4, 2, 64, 512, 512, 1024, 1e-5, 1e6, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-olmoe", "olmoe", 2, 256, 4, 4, 64, 256, 512, 1024, 1e-5, 1e4, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-qwen2moe", "qwen2moe", 2, 256, 4, 2, 64, 512, 512, 1024, 1e-6, 1e6, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-qwen3moe", "qwen3moe", 2, 256, 4, 2, 96, 512, 512, 1024, 1e-6, 1e6, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-gpt-oss", "gpt-oss", 4, 256, 8, 2, 64, 256, 512, 1024, 1e-5, 1.5e5, false, 64, ARCH_ROPE_YARN, 4, 256,
     ARCH_POOL_NONE},
    {"tiny-smollm3", "smollm3", 5, 256, 4, 2, 64, 512, 512, 1024, 1e-6, 5e6, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-granite", "granite", 2, 256, 4, 2, 64, 512, 512, 1024, 1e-5, 1e7, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-granitemoe", "granitemoe", 2, 256, 4, 2, 64, 192, 512, 1024, 1e-6, 1e4, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-seed-oss", "seed_oss", 2, 256, 4, 2, 96, 512, 512, 1024, 1e-6, 1e7, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-ernie", "ernie4_5", 2, 256, 4, 2, 64, 512, 512, 1024, 1e-5, 5e5, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-glm4", "glm4", 2, 256, 4, 2, 64, 512, 512, 1024, 1e-5, 1e4, false, 0, ARCH_ROPE_PLAIN, 0, 0, ARCH_POOL_NONE},
    {"tiny-glm4moe", "glm4moe", 3, 256, 4, 2, 64, 512, 512, 1024, 1e-5, 1e6, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-olmo2", "olmo2", 2, 256, 4, 2, 64, 512, 512, 1024, 1e-6, 5e5, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-olmo3", "olmo2", 5, 192, 6, 3, 32, 320, 512, 1024, 1e-6, 5e5, false, 10, ARCH_ROPE_YARN, 4, 256,
     ARCH_POOL_NONE},
    {"tiny-command-r", "command-r", 2, 256, 4, 2, 64, 512, 512, 1024, 1e-5, 1e4, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-cohere2", "cohere2", 5, 192, 6, 2, 32, 320, 512, 1024, 1e-5, 5e4, true, 12, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-minimax-m2", "minimax-m2", 2, 256, 4, 2, 96, 192, 512, 1024, 1e-6, 5e6, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-mistral3", "mistral3", 2, 256, 4, 2, 64, 512, 512, 1024, 1e-5, 1e6, false, 0, ARCH_ROPE_YARN, 16, 64,
     ARCH_POOL_NONE},
    {"tiny-llama4", "llama4", 4, 128, 4, 2, 32, 160, 512, 1024, 1e-5, 5e5, false, 40, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-phimoe", "phimoe", 2, 256, 4, 2, 64, 192, 512, 1024, 1e-5, 1e4, false, 0, ARCH_ROPE_LONGROPE, 0, 512,
     ARCH_POOL_NONE},
    {"tiny-falcon", "falcon", 2, 256, 4, 1, 64, 1024, 512, 1024, 1e-5, 1e4, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-falcon-40b", "falcon", 3, 192, 6, 2, 32, 768, 512, 1024, 1e-5, 1e4, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-gptneox", "gptneox", 2, 256, 4, 4, 64, 1024, 512, 1024, 1e-5, 1e4, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-gptneox-2", "gptneox", 3, 192, 6, 6, 32, 320, 512, 1024, 1e-5, 1e4, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-deepseek2", "deepseek2", 2, 256, 4, 1, 80, 512, 512, 1024, 1e-6, 1e4, false, 0, ARCH_ROPE_YARN, 4, 256,
     ARCH_POOL_NONE},
    {"tiny-deepseek3", "deepseek2", 3, 192, 3, 1, 46, 320, 512, 1024, 1e-6, 1e4, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-phi3", "phi3", 2, 256, 4, 4, 64, 512, 512, 1024, 1e-5, 1e4, false, 0, ARCH_ROPE_LONGROPE, 0, 512,
     ARCH_POOL_NONE},
    {"tiny-gemma2", "gemma2", 4, 256, 4, 2, 64, 512, 512, 1024, 1e-6, 1e4, true, 64, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-gemma3", "gemma3", 7, 256, 4, 1, 64, 512, 512, 1024, 1e-6, 1e6, true, 64, ARCH_ROPE_LINEAR, 8, 0,
     ARCH_POOL_NONE},
    {"lfm2-1.2b", "lfm2", 16, 2048, 32, 8, 64, 8192, 65536, 128000, 1e-5, 1e6, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"qwen3.5-2b", "qwen35", 24, 2048, 8, 2, 256, 6144, 248320, 262144, 1e-6, 1e7, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-lfm2", "lfm2", 4, 256, 4, 2, 64, 512, 512, 1024, 1e-5, 1e6, true, 0, ARCH_ROPE_PLAIN, 0, 0, ARCH_POOL_NONE},
    {"tiny-lfm2-2", "lfm2", 5, 192, 6, 2, 32, 320, 512, 1024, 1e-5, 1e4, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-lfm2moe", "lfm2moe", 4, 256, 4, 2, 64, 512, 512, 1024, 1e-5, 1e6, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-qwen3next", "qwen3next", 4, 256, 4, 2, 64, 256, 512, 1024, 1e-6, 1e7, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-qwen3.5", "qwen35", 4, 256, 4, 2, 64, 512, 512, 1024, 1e-6, 1e7, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-qwen3.5-2", "qwen35", 5, 192, 6, 2, 64, 320, 512, 1024, 1e-6, 1e6, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-qwen3.5moe", "qwen35moe", 4, 256, 4, 2, 64, 256, 512, 1024, 1e-6, 1e7, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"granite-4.0-h-1b", "granitehybrid", 40, 1536, 12, 4, 128, 4096, 100352, 131072, 1e-5, 1e4, true, 0,
     ARCH_ROPE_PLAIN, 0, 0, ARCH_POOL_NONE},
    {"tiny-granite4", "granitehybrid", 4, 256, 4, 2, 64, 512, 512, 1024, 1e-5, 1e4, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-granite4-2", "granitehybrid", 5, 192, 6, 3, 32, 320, 512, 1024, 1e-5, 1e4, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-granite4moe", "granitehybrid", 4, 256, 4, 2, 64, 192, 512, 1024, 1e-5, 1e4, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-nemotron-h", "nemotron_h", 6, 256, 4, 2, 64, 512, 512, 1024, 1e-5, 1e4, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-nemotron-h-2", "nemotron_h", 7, 192, 6, 2, 48, 320, 512, 1024, 1e-5, 1e4, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-nemotron3", "nemotron_h_moe", 6, 256, 4, 2, 64, 128, 512, 1024, 1e-5, 1e4, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"tiny-nemotron3-2", "nemotron_h_moe", 5, 192, 6, 2, 48, 96, 512, 1024, 1e-5, 1e4, false, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_NONE},
    {"bge-small", "bert", 12, 384, 12, 12, 32, 1536, 30522, 512, 1e-12, 0, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_CLS},
    {"bge-base", "bert", 12, 768, 12, 12, 64, 3072, 30522, 512, 1e-12, 0, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_CLS},
    {"tiny-bert", "bert", 2, 256, 4, 4, 64, 512, 512, 256, 1e-12, 0, true, 0, ARCH_ROPE_PLAIN, 0, 0, ARCH_POOL_CLS},
    {"tiny-reranker", "bert", 2, 256, 4, 4, 64, 512, 512, 256, 1e-12, 0, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_RANK},
    {"tiny-nomic-bert", "nomic-bert", 2, 256, 4, 4, 64, 512, 512, 1024, 1e-12, 1e3, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_MEAN},
    {"tiny-embedding", "qwen3", 2, 256, 4, 2, 96, 512, 512, 1024, 1e-6, 1e6, true, 0, ARCH_ROPE_PLAIN, 0, 0,
     ARCH_POOL_LAST},
};

/* Of those shapes that are mixtures of experts. */
static const struct mixture {
	const char *shape;
	struct arch_experts experts;
} mixtures[] = {
    {"mixtral-8x7b", {.n = 8, .n_used = 2, .n_ff = 14336, .norm = true}},
    {"olmoe-1b-7b", {.n = 64, .n_used = 8, .n_ff = 1024}},
    {"qwen1.5-moe-a2.7b", {.n = 60, .n_used = 4, .n_ff = 1408, .n_ff_shared = 5632, .shared_gate = true}},
    {"qwen3-30b-a3b", {.n = 128, .n_used = 8, .n_ff = 768, .norm = true}},
    {"gpt-oss-20b", {.n = 32, .n_used = 4, .n_ff = 2880, .norm = true, .clamped = true, .biases = true}},
    {"tiny-gpt-oss", {.n = 8, .n_used = 3, .n_ff = 192, .norm = true, .clamped = true, .biases = true}},
    {"tiny-granitemoe", {.n = 8, .n_used = 3, .n_ff = 192, .norm = true}},
    {"tiny-glm4moe",
     {.n = 8,
      .n_used = 3,
      .n_ff = 192,
      .n_ff_shared = 192,
      .n_dense = 1,
      .sigmoid = true,
      .norm = true,
      .scale = 1.5f}},
    {"tiny-lfm2moe", {.n = 8, .n_used = 3, .n_ff = 192, .n_dense = 1, .sigmoid = true, .norm = true}},
    {"tiny-qwen3next", {.n = 8, .n_used = 3, .n_ff = 128, .n_ff_shared = 192, .shared_gate = true, .norm = true}},
    {"tiny-qwen3.5moe", {.n = 6, .n_used = 2, .n_ff = 128, .n_ff_shared = 256, .shared_gate = true, .norm = true}},
    {"tiny-llama4",
     {.n = 6,
      .n_used = 2,
      .n_ff = 96,
      .n_ff_shared = 96,
      .every = 2,
      .sigmoid = true,
      .unbiased = true,
      .weighs_input = true}},
    {"tiny-granite4moe", {.n = 8, .n_used = 3, .n_ff = 192, .n_ff_shared = 256, .norm = true}},
    {"tiny-nemotron3",
     {.n = 8, .n_used = 3, .n_ff = 128, .n_ff_shared = 192, .sigmoid = true, .norm = true, .scale = 2.5f}},
    {"tiny-nemotron3-2",
     {.n = 6,
      .n_used = 2,
      .n_ff = 96,
      .n_ff_shared = 160,
      .n_latent = 64,
      .sigmoid = true,
      .norm = true,
      .scale = 1.5f}},
    {"tiny-minimax-m2", {.n = 8, .n_used = 3, .n_ff = 192, .sigmoid = true, .norm = true}},
    {"tiny-phimoe", {.n = 6, .n_used = 2, .n_ff = 192, .sparse = 0.01f}},
    {"deepseek-v2-lite", {.n = 64, .n_used = 6, .n_ff = 1408, .n_ff_shared = 2816, .n_dense = 1}},
    {"tiny-deepseek2", {.n = 6, .n_used = 3, .n_ff = 192, .n_ff_shared = 384, .n_dense = 1, .scale = 1.5f}},
    {"tiny-deepseek3",
     {.n = 12,
      .n_used = 3,
      .n_ff = 96,
      .n_ff_shared = 96,
      .n_dense = 1,
      .sigmoid = true,
      .norm = true,
      .scale = 2.5f,
      .n_groups = 4,
      .n_groups_used = 2}},
    {"tiny-mixtral", {.n = 4, .n_used = 2, .n_ff = 512, .norm = true}},
    {"tiny-olmoe", {.n = 8, .n_used = 3, .n_ff = 256}},
    {"tiny-qwen2moe", {.n = 6, .n_used = 4, .n_ff = 256, .n_ff_shared = 512, .shared_gate = true}},
    {"tiny-qwen3moe", {.n = 16, .n_used = 2, .n_ff = 256, .norm = true}},
};

/* Of those shapes that attend to latent rows; and what turns. */
static const struct {
	const char *shape;
	struct arch_latent latent;
	int n_rot;
} latents[] = {
    {"deepseek-v2-lite", {.n = 512, .plain = 128, .n_value = 128}, 64},
    {"test-latent-1b", {.n = 512, .plain = 128, .n_value = 128}, 64},
    {"tiny-deepseek2", {.n = 64, .plain = 32, .n_value = 48}, 16},
    {"tiny-deepseek3", {.n = 36, .n_query = 40, .plain = 22, .n_value = 20}, 10},
};

static void describe_latent(const char *shape, struct model_arch *a)
{
	for (size_t i = 0; i < sizeof latents / sizeof *latents; i++)
		if (strcmp(latents[i].shape, shape) == 0) {
			a->latent = latents[i].latent;
			a->rope.n_rot = latents[i].n_rot;
			a->experts.group_best = !a->experts.sigmoid;
			if (a->rope.scaling == ARCH_ROPE_YARN) {
				a->rope.all_dim = 0.707;
				a->rope.magnitude = 1; /* mscale is the same */
			}
			a->attn_scale = arch_latent_scale(a);
		}
}

static struct arch_experts experts_of(const char *shape)
{
	for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++)
		if (strcmp(mixtures[i].shape, shape) == 0) {
			struct arch_experts x = mixtures[i].experts;
			x.scale = x.scale > 0 ? x.scale : 1;
			return x;
		}
	return (struct arch_experts){0};
}

/* Of those shapes whose layers keep a state; every `every`-th one attends, or those of the list. */
static const struct recurrent {
	const char *shape;
	int every;
	uint64_t attend; /* bits of layers; 0: by `every` */
	int conv, k_heads, v_heads, k_dim, v_dim;
	uint64_t only_ff; /* bits of layers */
} recurrent[] = {
    {"lfm2-1.2b", 0, 1 << 2 | 1 << 5 | 1 << 8 | 1 << 10 | 1 << 12 | 1 << 14, 3, 0, 0, 0, 0, 0},
    {"tiny-lfm2", 0, 1 << 2, 3, 0, 0, 0, 0, 0},
    {"tiny-lfm2-2", 0, 1 << 1 | 1 << 4, 4, 0, 0, 0, 0, 0},
    {"tiny-lfm2moe", 0, 1 << 1, 3, 0, 0, 0, 0, 0},
    {"qwen3.5-2b", 4, 0, 4, 16, 16, 128, 128, 0},
    {"tiny-qwen3next", 4, 0, 4, 2, 4, 32, 32, 0},
    {"tiny-qwen3.5", 4, 0, 4, 2, 4, 32, 32, 0},
    {"tiny-qwen3.5-2", 2, 0, 3, 3, 3, 64, 64, 0},
    {"tiny-qwen3.5moe", 2, 0, 4, 2, 6, 32, 32, 0},
    {"granite-4.0-h-1b", 0, 1 << 5 | 1 << 15 | 1 << 25 | UINT64_C(1) << 35, 4, 1, 48, 128, 64, 0},
    {"tiny-granite4", 0, 1 << 2, 4, 1, 8, 32, 64, 0},
    {"tiny-granite4-2", 0, 1 << 1 | 1 << 3, 3, 2, 12, 24, 32, 0},
    {"tiny-granite4moe", 0, 1 << 1, 4, 1, 16, 64, 32, 0},
    {"tiny-nemotron-h", 0, 1 << 3, 4, 2, 8, 32, 64, 1 << 1 | 1 << 4},
    {"tiny-nemotron-h-2", 0, 1 << 0 | 1 << 5, 2, 4, 12, 40, 32, 1 << 2 | 1 << 3},
    {"tiny-nemotron3", 0, 1 << 3, 4, 2, 8, 32, 64, 1 << 1 | 1 << 4},
    {"tiny-nemotron3-2", 0, 1 << 2, 3, 1, 6, 16, 64, 1 << 1 | 1 << 4},
};

static void describe_recurrent(const struct shape *s, const struct arch_family *f, struct model_arch *a)
{
	for (size_t i = 0; i < sizeof recurrent / sizeof *recurrent; i++) {
		const struct recurrent *r = &recurrent[i];
		if (strcmp(r->shape, s->name) != 0)
			continue;
		a->recurrent.kind = f->mixer;
		a->recurrent.conv = r->conv;
		a->recurrent.k_heads = r->k_heads;
		a->recurrent.v_heads = r->v_heads;
		a->recurrent.k_dim = r->k_dim;
		a->recurrent.v_dim = r->v_dim;
		a->recurrent.tiled = f->tiled;
		a->only_ff[0] = r->only_ff;
		if (f->mixer == ARCH_SSM) {
			a->recurrent.conv_bias = true;
			a->recurrent.most = INFINITY;
			a->no_rope_every = 1;
		}
		for (int k = 0; k < a->n_layers; k++)
			if (r->attend > 0 ? ((r->attend | r->only_ff) >> k & 1) == 0 : (k + 1) % r->every != 0)
				arch_set_recurrent(a, k);
	}
}

/* Elements of a head that turn. */
static int partial_of(const char *family, int head_dim)
{
	if (strncmp(family, "glm4", 4) == 0)
		return head_dim / 2;
	if (strncmp(family, "qwen35", 6) == 0 || strcmp(family, "qwen3next") == 0)
		return head_dim / 4;
	return strcmp(family, "gptneox") == 0 ? head_dim / 4 : strcmp(family, "minimax-m2") == 0 ? 64 : head_dim;
}

static void describe(const struct shape *s, struct model_arch *a)
{
	const struct arch_family *f = arch_family_find(s->family, strlen(s->family));
	bool granite = f->scaled, glm = f->bias_if_there, gemma2 = strcmp(s->family, "gemma2") == 0;
	arch_family_begin(f, a);
	a->n_layers = s->n_layers;
	a->n_embd = s->n_embd;
	a->n_heads = s->n_heads;
	a->n_kv_heads = s->n_kv_heads;
	a->head_dim = s->head_dim;
	a->n_ff = s->n_ff;
	a->n_vocab = s->n_vocab;
	a->n_ctx = s->n_ctx;
	a->rms_eps = (float)s->eps;
	a->tied_embeddings = s->tied;
	a->experts = experts_of(s->name);
	describe_recurrent(s, f, a);
	a->qkv_bias = a->qkv_bias || glm;
	a->qk_norm = a->qk_norm || strcmp(s->family, "glm4moe") == 0;
	a->embed_scale = f->scaled_embed ? sqrtf((float)s->n_embd) : granite ? 12 : 1;
	a->residual_scale = granite ? 0.25f : 1;
	a->logit_scale = granite ? 1 / 8.0f : a->layer_norm && !a->norm_biases ? 0.25f : 1;
	a->attn_scale = granite ? 0.0625f : 1.0f / sqrtf((float)s->head_dim);
	a->attn_softcap = gemma2 ? 50 : 0;
	a->final_softcap = gemma2 ? 30 : 0;
	a->window = s->window;
	a->window_pattern = s->window > 0 ? f->window_pattern : 0;
	a->rope = (struct arch_rope){.n_rot = partial_of(s->family, s->head_dim),
				     .halves = f->halves,
				     .base = s->base,
				     .scaling = s->scaling,
				     .factor = s->factor,
				     .original_ctx = s->original_ctx,
				     .beta_fast = 32,
				     .beta_slow = 1,
				     .fractional = f->oss,
				     .low_freq = 1,
				     .high_freq = 4};
	if (f->chunks) {
		a->still_grow = 0.1f;
		a->still_grow_every = ARCH_LLAMA4_CHUNK;
	}
	if (f->grows) {
		a->rope.grow = 0.1f;
		a->rope.grow_every = s->original_ctx;
		a->rope.magnitude = 1; /* mscale and mscale_all_dim are 1 */
	}
	if (strcmp(s->name, "tiny-falcon-40b") == 0) {
		a->parallel = ARCH_PARALLEL_TWO_NORMS;
		a->attn_norm_is_2 = true;
	}
	if (strcmp(s->name, "tiny-gptneox-2") == 0)
		a->parallel = ARCH_PARALLEL_NONE;
	a->pooling = s->pooling;
	if (strcmp(s->family, "bert") == 0 || strcmp(s->family, "nomic-bert") == 0) {
		bool turns = s->base > 0;
		a->n_types = 2;
		a->qkv_bias = !turns;
		a->no_biases = turns;
		a->ungated = a->ff_biases = !turns;
		a->rope.n_rot = turns ? s->head_dim : 0;
		a->rank_dense = s->pooling == ARCH_POOL_RANK;
	}
	if (s->scaling == ARCH_ROPE_LONGROPE) {
		double ratio = (double)s->n_ctx / s->original_ctx;
		a->rope.magnitude = sqrt(1 + log(ratio) / log(s->original_ctx));
		a->rope.n_factors = s->head_dim / 2;
		for (int i = 0; i < a->rope.n_factors; i++)
			a->rope.factors[i] = 1 + (float)i * 0.25f;
	}
	describe_latent(s->name, a);
	a->rope_windowed = a->rope;
	if (f->windowed_plain || strcmp(s->family, "gemma3") == 0)
		a->rope_windowed = (struct arch_rope){
		    .n_rot = s->head_dim, .halves = true, .base = f->windowed_plain ? s->base : 10000};
}

const char *random_shape_at(size_t i, struct model_arch *out)
{
	if (i >= sizeof shapes / sizeof *shapes)
		return NULL;
	describe(&shapes[i], out);
	return shapes[i].name;
}

int random_shape_find(const char *name, struct model_arch *out, struct sl_err *err)
{
	char all[1024];
	size_t n = 0;
	all[0] = '\0';
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		if (strcmp(shapes[i].name, name) == 0) {
			describe(&shapes[i], out);
			return 0;
		}
		if (n < sizeof all)
			n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i > 0 ? ", " : "", shapes[i].name);
	}
	return sl_errf(err, SL_EINVAL, "no shape is named %.40s (there are %s)", name, all);
}
