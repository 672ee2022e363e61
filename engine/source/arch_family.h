/* SPDX-License-Identifier: Apache-2.0
 *
 * What all models of a family have in common, whatever file they come from: the readers (arch_gguf.c, arch_hf.c) add
 * what their files say.
 */
#ifndef ENGINE_ARCH_FAMILY_H
#define ENGINE_ARCH_FAMILY_H

#include <stddef.h>

#include "base/err.h"
#include "engine/source/arch.h"

struct arch_family {
	const char *name;    /* as GGUF's general.architecture */
	bool halves;         /* pairs of the rotary embedding in GGUF */
	bool hf_pairs;       /* in Hugging Face folders pairs lie side by side, too */
	int window_pattern;  /* if there is a window: 0 means every layer */
	bool windowed_plain; /* windowed layers turn without the scaling for long contexts */
	/* Gemma scales q·k by head_dim, except the largest model: by n_embd / n_heads. */
	int odd_scale_layers; /* the layers of that largest model */
	bool scaled_embed;    /* embeddings are multiplied by sqrt(n_embd) */
	bool encoder, turns;  /* encoders; turns: rotary embedding, no biases, and a gate */
	bool scaled;          /* has factors between embeddings and logits: Granite */
	bool bias_if_there;   /* qkv_bias and qk_norm according to the tensors: GLM */
	bool oss;             /* OpenAI's: clamped experts with biases, a ramp of YaRN that is not rounded */
	bool tied;            /* the head is the table of embeddings where no key says otherwise */
	/* Of mixtures of experts. shares_ff: without a key, a row's experts together are as wide as the dense half. */
	bool experts, shares_ff, norm_weights, shared_expert, sigmoid;
	bool may_mix;          /* files with and without experts are of this family */
	enum arch_mixer mixer; /* of the layers that keep a state; ATTENTION: none do */
	bool tiled;            /* kn_delta.tiled, in GGUF */
	bool chunks;           /* chunked attention in layers that turn, and what belongs to it: Llama 4 */
	bool grows;            /* queries may grow with their positions: Ministral 3 */
	bool sparse;           /* Phi-3.5-MoE's choice: kn_route.sparse */
	bool rms_key;          /* with layer_norm: its epsilon has the name that of an RMS norm has, Phi-3.5-MoE */
	bool latent; /* attends to latent rows; experts by softmax or sigmoid, maybe of the best groups: DeepSeek */
	/* What they all have; numbers are 0, and each reader fills in what its files have keys for. */
	struct model_arch common;
};

/* The key of its norms' epsilon in GGUF, after "<family>.". */
const char *arch_family_eps_key(const struct arch_family *f);
/* NULL: unknown. */
const struct arch_family *arch_family_find(const char *name, size_t n);
/* "llama, qwen2, …", of families that GGUF files may have. */
void arch_family_list(char *out, size_t bytes);
/* The scale of q·k of latent attention: with YaRN it grows by the square of mscale_all_dim's factor. */
float arch_latent_scale(const struct model_arch *a);
/* Of arch.experts: NULL, or in which way the groups of experts do not fit (a sentence without its subject). */
const char *arch_groups_fault(const struct arch_experts *x);
/* Whether the widths of latent attention are possible, and sets what follows from them. */
bool arch_latent_finish(struct model_arch *a);
/* A model of the family: all that they have in common, every factor 1. */
void arch_family_begin(const struct arch_family *f, struct model_arch *out);

#endif
