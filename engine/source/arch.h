/* SPDX-License-Identifier: Apache-2.0
 *
 * A family of models as data: each difference from plain Llama is a field here, never a copy of the forward pass.
 * Filled from a GGUF head (arch_gguf.c) or a Hugging Face config.json (arch_hf.c); read by the forward pass and by
 * everything that needs a shape.
 */
#ifndef ENGINE_ARCH_H
#define ENGINE_ARCH_H

#include <stdbool.h>
#include <stdint.h>

enum arch_act { ARCH_SILU, ARCH_GELU_TANH, ARCH_RELU_SQUARE /* with ungated only */ };

enum arch_rope_scaling {
	ARCH_ROPE_PLAIN,
	ARCH_ROPE_LINEAR,   /* positions / factor (Chen et al. 2023) */
	ARCH_ROPE_LLAMA3,   /* low frequencies / factor, a ramp between (Llama 3.1) */
	ARCH_ROPE_YARN,     /* Peng et al. 2023 */
	ARCH_ROPE_LONGROPE, /* a factor for each pair, one list for short and one for long contexts */
};

/* How a text's rows become one vector; numbered as GGUF numbers them. */
enum arch_pooling {
	ARCH_POOL_NONE,
	ARCH_POOL_MEAN,
	ARCH_POOL_CLS, /* the first row */
	ARCH_POOL_LAST,
	ARCH_POOL_RANK, /* the first row, through a head that turns it into a score */
};

/* Whether attention and feed-forward of a layer both read the stream before it, and what they add is added together. */
enum arch_parallel {
	ARCH_PARALLEL_NONE, /* feed-forward reads what attention has added */
	ARCH_PARALLEL_ONE_NORM,
	ARCH_PARALLEL_TWO_NORMS, /* each has a norm of its own */
};

enum { ARCH_MAX_LENGTHS = 16 };
enum { ARCH_LLAMA4_CHUNK = 8192 }; /* positions of a chunk in Llama 4, and from which on its queries grow */
enum { ARCH_MAX_ROT = 512 };       /* the limit for pairs of one head */

struct arch_rope {
	int n_rot;   /* of head_dim: the first n_rot elements are rotated */
	bool halves; /* pairs (i, i + n_rot/2) as Hugging Face has them, else (2i, 2i + 1) */
	double base;
	enum arch_rope_scaling scaling;
	double factor;               /* LINEAR, LLAMA3, YARN */
	double low_freq, high_freq;  /* LLAMA3 */
	double beta_fast, beta_slow; /* YARN */
	bool fractional;             /* YARN: the ramp's ends are not rounded to whole pairs */
	double magnitude;            /* YARN, LONGROPE: on cosine and sine; 0: the scaling's own rule */
	double all_dim;              /* YARN: mscale_all_dim, by which scores of latent attention grow; 0: not */
	int original_ctx;            /* LLAMA3, YARN, LONGROPE */
	float grow;                  /* of queries by position (kn_rope): Ministral 3; 0: none */
	int grow_every, grow_from;
	/* Divisors of each pair's frequency, n_rot/2 of them: LONGROPE (chosen by whether the model's
	 * n_ctx exceeds original_ctx) or a file's own rope_freqs; n_factors is 0 when there are none. */
	int n_factors;
	float factors[ARCH_MAX_ROT];
};

/* Mixtures of experts (kernels.h: kn_experts); layers from n_dense on have one instead of a dense feed-forward half. */
struct arch_experts {
	int n, n_used;               /* n 0: none */
	int n_ff;                    /* of each expert */
	int n_ff_shared;             /* of the expert that computes every row; 0: none */
	int n_dense;                 /* dense layers before the first mixture */
	int every;                   /* only every every-th layer has one: Llama 4; 0: all from n_dense on */
	bool sigmoid;                /* scores are sigmoids, else a softmax; with a bias for the choice: GLM 4.5 */
	bool norm;                   /* the weights of a row's experts are divided by their sum */
	float scale;                 /* of the weights */
	bool clamped, biases;        /* KN_GATE_CLAMPED; the router and all products have biases: gpt-oss */
	float sparse;                /* kn_route.sparse; 0: not */
	bool unbiased;               /* with sigmoid: no bias for the choice */
	bool weighs_input;           /* kn_experts.weighs_input: Llama 4 */
	bool shared_gate;            /* the shared expert's output is multiplied by the sigmoid of a product */
	int n_groups, n_groups_used; /* as kn_route's; 0: no groups */
	bool group_best;
	int n_latent; /* experts read and write vectors of so many elements, products of the stream; 0: the stream */
};

/* Multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024, 2.1). A head's query and key are `plain` elements that
 * do not turn and rope.n_rot that do; the plain ones of all keys, and the values, are products of the position's latent
 * vector, and the turned ones are one key's, shared by all heads. What is kept of a position is a row of the latent and
 * that shared key: n_kv_heads is 1, and head_dim the row's width, n + rope.n_rot. */
struct arch_latent {
	int n;       /* elements of a latent vector; 0: none, the model keeps keys and values */
	int n_query; /* of the vector that queries are products of; 0: of the stream */
	int plain, n_value;
	bool joined; /* both products of the latent are one tensor, head by head: attn_kv_b */
};

/* What a layer has in place of attention; all such layers of a model have the same. */
enum arch_mixer {
	ARCH_ATTENTION,
	ARCH_SHORT_CONV, /* a gated causal convolution: LFM2 */
	ARCH_DELTA,      /* the gated delta rule after a convolution: Qwen3-Next, Qwen3.5 */
	ARCH_SSM,        /* a state space after a convolution, Mamba-2: Granite 4, Nemotron-H */
};

enum { ARCH_MOST_LAYERS = 512 };

/* Layers that keep a state instead of keys and values (kernels.h: kn_conv, kn_delta, kn_ssm). */
struct arch_recurrent {
	enum arch_mixer kind;                   /* ATTENTION: there are none */
	uint64_t layers[ARCH_MOST_LAYERS / 64]; /* bit i % 64 of word i / 64: layer i is one */
	int conv;                               /* positions of the convolution, a row's own included */
	int k_heads, v_heads, k_dim, v_dim;     /* DELTA; SSM: groups, heads, elements of a state and of a head */
	bool tiled;                             /* kn_delta.tiled */
	bool beta_alpha;                        /* both in one product, by key head: [k_heads][2][v_heads / k_heads] */
	bool log_decay;    /* the file has the logarithm of -a: Hugging Face folders; in GGUF it is a itself */
	bool conv_bias;    /* SSM: the convolution has one */
	float least, most; /* SSM: bounds of a step (kn_ssm) */
};

struct model_arch {
	char family[32]; /* as GGUF's general.architecture: "llama", "qwen2", "gemma3" */
	int n_drafting;  /* layers of a GGUF file after the n_layers, which only draft (model/draft_head.h) */
	int n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff, n_vocab, n_ctx;
	float rms_eps;
	bool tied_embeddings;
	bool qkv_bias;      /* Qwen2 */
	bool qk_norm;       /* RMS norm of each head of q and k before rope: Qwen3, Gemma 3 */
	bool qk_norm_plain; /* RMS norms of each head without gains, in layers that turn: Llama 4 */
	bool qk_norm_row;   /* with qk_norm: over all heads at once, OLMoE */
	bool o_bias, sinks; /* attention's output has a bias, its softmax sinks: gpt-oss */
	/* The feed-forward half's norm is named as the one of what attention adds is elsewhere: gpt-oss. */
	bool ffn_norm_is_post;
	/* A layer is one half: attention, or what is in its place, or a feed-forward half, by bits as recurrent.layers.
	 * Its norm is attn_norm: Nemotron-H. */
	bool one_half;
	uint64_t only_ff[ARCH_MOST_LAYERS / 64];
	bool post_norms;   /* norms of the outputs of attention and feed-forward: Gemma 2, 3 */
	bool no_pre_norms; /* neither reads a norm: OLMo 2, 3 */
	bool layer_norm;   /* norms subtract the mean, with rms_eps: Command-R, Phi-3.5-MoE, Falcon, GPT-NeoX */
	bool norm_biases;  /* with layer_norm: and add a bias */
	enum arch_parallel parallel;
	bool attn_norm_is_2; /* TWO_NORMS: attention's is named attn_norm_2, the other attn_norm: Falcon 40B */
	/* Feed-forward is up, an activation, and down: GELU by the error function (BERT, Falcon, GPT-NeoX), or act, if
	 * that is RELU_SQUARE (Nemotron-H). */
	bool ungated;
	bool ff_biases;         /* with ungated: up and down have biases */
	bool head_bias;         /* the output matrix has one: Phi-3.5-MoE */
	float norm_gain_offset; /* added to every norm's gain when it is read: 1 for Gemma in
				   Hugging Face folders, 0 in GGUF where it is already in the weights */
	enum arch_act act;
	struct arch_experts experts;
	struct arch_latent latent;
	struct arch_recurrent recurrent;
	bool attn_gate;                    /* queries come with gates of attention's output: [n_heads][2][head_dim] */
	const char *norm_name;             /* of the last norm's tensor; NULL: output_norm */
	float embed_scale;                 /* of the embeddings: sqrt(n_embd) for Gemma, else 1 */
	float attn_scale;                  /* of q·k: usually 1/sqrt(head_dim) */
	float residual_scale;              /* of what each half of a layer adds: Granite, else 1 */
	float logit_scale;                 /* of the logits: Granite, else 1 */
	bool no_rope_full;                 /* layers without a window do not turn: Cohere 2 */
	int no_rope_every;                 /* every no_rope_every-th layer does not turn: SmolLM3; 0: all do */
	float attn_softcap, final_softcap; /* cap·tanh(x/cap); 0: none */
	float still_grow;                  /* of queries in layers that do not turn, as rope.grow: Llama 4; 0: none */
	int still_grow_every;
	bool window_chunked; /* kn_attn.chunked */
	int window;          /* positions that a windowed layer sees, its own included; 0: none */
	int window_pattern;  /* every window_pattern-th layer sees all positions; 0: every layer is windowed */
	enum arch_pooling pooling;
	bool shortens; /* matryoshka: a vector's first numbers are a vector too: those counts in lengths, or any */
	int n_lengths, lengths[ARCH_MAX_LENGTHS];
	/* The BERT family: rows see their whole text, layer norms (with rms_eps) follow what they normalize, every
	 * product has a bias; positions and types have tables. There is no head: such a model makes vectors and
	 * scores. */
	bool encoder;
	int n_types;     /* entries of the table of types; 0: none */
	int first_pos;   /* row of the position table for position 0 */
	bool no_biases;  /* encoder: products have no biases */
	bool rank_dense; /* RANK: a dense layer with tanh before the score */
	struct arch_rope rope;
	struct arch_rope rope_windowed; /* for windowed layers: Gemma 3 has another base there */
	/* Keys of its file that are unknown (key_rules.h): their number, and the names of the first ones. */
	int n_unknown_keys;
	char unknown_keys[256];
};

/* Whether layers keep a state; whether layer i does. */
static inline bool arch_is_recurrent(const struct model_arch *a) { return a->recurrent.kind != ARCH_ATTENTION; }
static inline bool arch_recurs(const struct model_arch *a, int layer)
{
	return arch_is_recurrent(a) && (a->recurrent.layers[layer / 64] >> layer % 64 & 1) != 0;
}

/* Of the first `layer` layers: how many keep a state. */
static inline int arch_n_recurrent(const struct model_arch *a, int layer)
{
	int n = 0;
	for (int i = 0; i < layer; i++)
		n += arch_recurs(a, i);
	return n;
}

/* Of a layer: whether it has a feed-forward half; whether it attends, and so has pages. */
static inline bool arch_has_ff(const struct model_arch *a, int layer)
{
	return !a->one_half || (a->only_ff[layer / 64] >> layer % 64 & 1) != 0;
}
static inline bool arch_attends(const struct model_arch *a, int layer)
{
	return !arch_recurs(a, layer) && !(a->one_half && arch_has_ff(a, layer));
}

/* Of the first `layer` layers: how many attend. */
static inline int arch_n_attending(const struct model_arch *a, int layer)
{
	int n = 0;
	for (int i = 0; i < layer; i++)
		n += arch_attends(a, i);
	return n;
}

/* Channels of a recurrent layer's convolution. */
static inline int arch_channels(const struct model_arch *a)
{
	const struct arch_recurrent *r = &a->recurrent;
	bool heads = r->kind == ARCH_DELTA || r->kind == ARCH_SSM;
	return heads ? 2 * r->k_heads * r->k_dim + r->v_heads * r->v_dim : a->n_embd;
}

/* Floats of a sequence's state: of one such layer, of all. */
static inline uint64_t arch_layer_state(const struct model_arch *a)
{
	const struct arch_recurrent *r = &a->recurrent;
	if (!arch_is_recurrent(a))
		return 0;
	return (uint64_t)(r->conv - 1) * (uint64_t)arch_channels(a) +
	       (uint64_t)r->v_heads * (uint64_t)r->k_dim * (uint64_t)r->v_dim;
}
static inline uint64_t arch_state(const struct model_arch *a)
{
	return (uint64_t)arch_n_recurrent(a, a->n_layers) * arch_layer_state(a);
}

/* Floats of activations that recurrent layers and gates need for each row of a step. */
static inline uint64_t arch_recurrent_floats(const struct model_arch *a)
{
	const struct arch_recurrent *r = &a->recurrent;
	uint64_t gates = a->attn_gate ? 3 * (uint64_t)a->n_heads * (uint64_t)a->head_dim : 0;
	if (r->kind == ARCH_SHORT_CONV)
		return 4 * (uint64_t)a->n_embd + gates;
	if (r->kind == ARCH_ATTENTION)
		return gates;
	return 2 * (uint64_t)arch_channels(a) + 2 * (uint64_t)r->v_heads * (uint64_t)(r->v_dim + 2) + gates;
}

/* Whether layer i has experts. */
static inline bool arch_mixes(const struct model_arch *a, int layer)
{
	const struct arch_experts *x = &a->experts;
	return x->n > 0 && arch_has_ff(a, layer) && layer >= x->n_dense &&
	       (x->every == 0 || (layer + 1) % x->every == 0);
}

/* Elements of all queries as products make them, and of all heads' outputs. */
static inline int arch_query_width(const struct model_arch *a)
{
	return a->n_heads * (a->latent.n > 0 ? a->latent.plain + a->rope.n_rot : a->head_dim);
}

static inline int arch_value_width(const struct model_arch *a)
{
	return a->n_heads * (a->latent.n > 0 ? a->latent.n_value : a->head_dim);
}

/* The widest input or output of a product. */
static inline int arch_widest(const struct model_arch *a)
{
	bool conv = a->recurrent.kind == ARCH_SHORT_CONV, heads = arch_is_recurrent(a) && !conv;
	const int widths[] = {a->n_ff,
			      a->n_heads * a->head_dim * (a->attn_gate ? 2 : 1),
			      arch_query_width(a),
			      arch_value_width(a),
			      a->latent.n_query,
			      a->n_vocab,
			      a->experts.n_ff,
			      a->experts.n_ff_shared,
			      a->experts.n,
			      conv ? 3 * a->n_embd : 0,
			      a->experts.n_latent,
			      a->n_drafting > 0 ? 2 * a->n_embd : 0,
			      heads ? arch_channels(a) : 0};
	int widest = a->n_embd;
	for (unsigned i = 0; i < sizeof widths / sizeof *widths; i++)
		widest = widths[i] > widest ? widths[i] : widest;
	return widest;
}

/* Floats of activations that the feed-forward halves need for each row of a step. */
static inline uint64_t arch_ff_floats(const struct model_arch *a)
{
	const struct arch_experts *x = &a->experts;
	uint64_t embd = (uint64_t)a->n_embd, dense = (uint64_t)(a->n_ff > x->n_ff_shared ? a->n_ff : x->n_ff_shared);
	uint64_t in = x->n_latent > 0 ? (uint64_t)x->n_latent : embd;
	uint64_t mixture = 2 * (uint64_t)x->n_used * (in + (uint64_t)x->n_ff) + embd + (uint64_t)x->n + 1;
	return 4 * dense + (x->n > 0 ? mixture : 0) + (uint64_t)x->n_latent +
	       (a->parallel != ARCH_PARALLEL_NONE ? embd : 0);
}

/* Floats of activations that attention needs for each row of a step. */
static inline uint64_t arch_attn_floats(const struct model_arch *a)
{
	uint64_t heads = (uint64_t)a->n_heads, row = (uint64_t)a->head_dim, latent = (uint64_t)a->latent.n;
	uint64_t query = (uint64_t)arch_query_width(a), value = (uint64_t)arch_value_width(a);
	if (latent == 0)
		return query + value + 2 * (uint64_t)a->n_kv_heads * row;
	uint64_t widest = query > value ? query : value;
	return query + value + row + (uint64_t)a->latent.n_query + heads * (row + latent) + widest + heads * latent;
}

/* Positions that layer i sees, including its own; 0: all. */
static inline int arch_window(const struct model_arch *a, int layer)
{
	if (a->window == 0 || (a->window_pattern > 0 && (layer + 1) % a->window_pattern == 0))
		return 0;
	return a->window;
}

/* Whether layer i turns queries and keys by their positions. */
static inline bool arch_turns(const struct model_arch *a, int layer)
{
	if (a->no_rope_full && arch_window(a, layer) == 0)
		return false;
	return a->no_rope_every == 0 || (layer + 1) % a->no_rope_every != 0;
}

#endif
