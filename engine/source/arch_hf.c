/* SPDX-License-Identifier: Apache-2.0
 *
 * A family's description from a Hugging Face config.json. Optional keys default as in that family's configuration class
 * in the transformers library. Unsupported keys that would change answers are refused by name.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "engine/source/arch_conf.h"
#include "engine/file/hf_names.h"

/* ---- the description ---- */

static void read_act(struct conf *r, struct model_arch *a, bool gemma)
{
	const char *own = gemma                              ? conf_text(r, r->config, "hidden_activation")
			  : strcmp(a->family, "falcon") == 0 ? conf_text(r, r->config, "activation")
							     : NULL,
		   *older = conf_text(r, r->config, "hidden_act"), *act = own != NULL ? own : older;
	if (a->act == ARCH_RELU_SQUARE) {
		const char *relu = conf_text(r, r->config, "mlp_hidden_act");
		if (relu != NULL ? strcmp(relu, "relu2") != 0 : act != NULL && strcmp(act, "relu2") != 0)
			conf_fault(r, SL_EUNSUPPORTED, "mlp_hidden_act", "is not supported (supported: relu2)");
		return;
	}
	if (own != NULL && older != NULL && strcmp(own, older) != 0)
		conf_fault(r, SL_EUNSUPPORTED, "hidden_act", "is not what hidden_activation is");
	if (a->ungated) {
		if (act != NULL && strcmp(act, "gelu") != 0)
			conf_fault(r, SL_EUNSUPPORTED, "hidden_act", "is not supported (supported: gelu)");
		return;
	}
	if (act == NULL)
		return;
	if (strcmp(act, "gelu_pytorch_tanh") == 0)
		a->act = ARCH_GELU_TANH;
	else if (strcmp(act, "silu") == 0)
		a->act = ARCH_SILU;
	else
		conf_fault(r, SL_EUNSUPPORTED, "hidden_act", "is not supported (supported: silu, gelu_pytorch_tanh)");
}

/* What config.json of some model_types has, beside what the family has: defaults from transformers' configuration
 * classes, and the names of keys that differ. */
struct kind {
	const char *types[5];
	int n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff, n_ctx; /* 0: required, or derived */
	double rope_base;                                                 /* 0: 10,000 */
	double eps;                                                       /* 0: 1e-6 */
	const char *eps_key;                                              /* NULL: rms_norm_eps */
	const char
	    *bias_key; /* whether q, k and v have biases, and the output where the family's may; NULL: none says */
	bool bias;
	const char *n_ff_key;       /* NULL: intermediate_size */
	const char *n_kv_heads_key; /* NULL: num_key_value_heads */
};

static const struct kind kinds[] = {
    {.types = {"gemma3", "gemma3_text"},
     .n_layers = 26,
     .n_embd = 2304,
     .n_heads = 8,
     .n_kv_heads = 4,
     .head_dim = 256,
     .n_ff = 9216,
     .n_ctx = 131072,
     .rope_base = 1e6},
    {.types = {"gemma2"}, .head_dim = 256},
    {.types = {"qwen3"}, .head_dim = 128},
    {.types = {"phi3", "olmoe", "mixtral", "olmo2", "olmo3"}, .eps = 1e-5},
    {.types = {"qwen2_moe"}, .bias_key = "qkv_bias", .bias = true},
    {.types = {"seed_oss"}, .bias_key = "attention_bias", .bias = true},
    {.types = {"glm4", "glm4_moe"}, .bias_key = "attention_bias"},
    {.types = {"gpt_oss"}, .head_dim = 64, .eps = 1e-5, .rope_base = 1.5e5, .bias_key = "attention_bias", .bias = true},
    {.types = {"llama4_text"},
     .n_layers = 48,
     .n_embd = 5120,
     .n_heads = 40,
     .n_kv_heads = 8,
     .head_dim = 128,
     .n_ctx = 131072,
     .eps = 1e-5,
     .rope_base = 5e5,
     .n_ff_key = "intermediate_size_mlp"},
    {.types = {"ministral3"}, .head_dim = 128, .eps = 1e-5, .rope_base = 1e6},
    {.types = {"minimax_m2"}, .head_dim = 128, .rope_base = 5e6},
    {.types = {"cohere", "cohere2"}, .eps_key = "layer_norm_eps", .eps = 1e-5},
    {.types = {"phimoe"}, .eps = 1e-5, .rope_base = 1e6, .bias_key = "attention_bias"},
    {.types = {"deepseek_v2", "deepseek_v3", "kimi_k2"}, .head_dim = 64},
    {.types = {"gpt_neox"},
     .eps_key = "layer_norm_eps",
     .eps = 1e-5,
     .n_ctx = 2048,
     .bias_key = "attention_bias",
     .bias = true},
    {.types = {"granitemoehybrid"}, .n_ff = 11008, .n_ctx = 2048},
    {.types = {"nemotron_h"},
     .n_embd = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .n_ff = 21504,
     .n_ctx = 4096,
     .eps_key = "layer_norm_epsilon",
     .eps = 1e-5},
    {.types = {"qwen3_next"}, .head_dim = 256, .n_ff = 5632},
    {.types = {"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"}, .head_dim = 256, .n_ff = 12288},
    {.types = {"lfm2"}, .eps_key = "norm_eps", .eps = 1e-5, .rope_base = 1e6, .n_ff = 12288},
    {.types = {"lfm2_moe"}, .eps_key = "norm_eps", .eps = 1e-5, .rope_base = 1e6},
    {.types = {"falcon"},
     .eps_key = "layer_norm_epsilon",
     .eps = 1e-5,
     .n_ctx = 2048,
     .n_ff_key = "ffn_hidden_size",
     .n_kv_heads_key = "num_kv_heads"},
};

static bool is_of(const struct kind *k, const char *type)
{
	for (size_t i = 0; i < sizeof k->types / sizeof *k->types && k->types[i] != NULL; i++)
		if (strcmp(k->types[i], type) == 0)
			return true;
	return false;
}

static const struct kind *kind_of(const char *type)
{
	static const struct kind plain = {.eps = 0};
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (is_of(&kinds[i], type))
			return &kinds[i];
	return &plain;
}

static const char *or_else(const char *key, const char *usual) { return key != NULL ? key : usual; }

/* The kinds of Nemotron-H's layers: a letter of each in older files, a word in newer ones. NULL: no such layer. */
static const char *half_at(struct conf *r, int i)
{
	static const char *const words[][3] = {{"M", "mamba", "linear_attention"},
					       {"*", "attention", "full_attention"},
					       {"-", "mlp", "mlp"},
					       {"E", "moe", "moe"}};
	const char *letters = json_string_value(conf_get(r, r->config, "hybrid_override_pattern"));
	const json_t *list = conf_get(r, r->config, "layers_block_type");
	list = list != NULL ? list : conf_get(r, r->config, "layer_types");
	const char *word = json_string_value(json_array_get(list, (size_t)i));
	for (size_t k = 0; k < sizeof words / sizeof *words; k++)
		if (list != NULL ? word != NULL && (strcmp(word, words[k][1]) == 0 || strcmp(word, words[k][2]) == 0)
				 : letters != NULL && strnlen(letters, (size_t)i + 1) > (size_t)i &&
				       letters[i] == words[k][0][0])
			return words[k][0];
	return NULL;
}

static int count_halves(struct conf *r)
{
	int n = 0;
	while (n < ARCH_MAX_LAYERS && half_at(r, n) != NULL)
		n++;
	return n;
}

static void read_shape(struct conf *r, struct model_arch *a, const struct kind *d)
{
	a->n_layers = conf_int(r, "num_hidden_layers", 1, ARCH_MAX_LAYERS, a->one_half ? count_halves(r) : d->n_layers);
	a->n_embd = conf_int(r, "hidden_size", 1, ARCH_MAX_WIDTH, d->n_embd);
	a->n_heads = conf_int(r, "num_attention_heads", 1, ARCH_MAX_WIDTH, d->n_heads);
	a->n_ff = conf_int(r, or_else(d->n_ff_key, "intermediate_size"), 1, ARCH_MAX_WIDTH,
			   d->n_ff_key != NULL && a->n_embd <= ARCH_MAX_WIDTH / 4 ? 4 * a->n_embd : d->n_ff);
	a->n_ctx = conf_int(r, "max_position_embeddings", 1, ARCH_MAX_CTX, d->n_ctx);
	if (r->rc != 0)
		return;
	a->n_kv_heads = conf_int(r, or_else(d->n_kv_heads_key, "num_key_value_heads"), 1, a->n_heads,
				 d->n_kv_heads > 0 ? d->n_kv_heads : a->n_heads);
	int head_dim = d->head_dim > 0 ? d->head_dim : a->n_embd / a->n_heads;
	a->head_dim = conf_int(r, "head_dim", 2, 1024, head_dim >= 2 ? head_dim : 2);
	if (a->one_half && !conf_has(r, "head_dim"))
		a->head_dim = conf_int(r, "attention_head_dim", 2, 1024, a->head_dim);
	if (r->rc == 0 && (a->n_heads % a->n_kv_heads != 0 || a->head_dim % 2 != 0 || a->head_dim > 1024 ||
			   a->n_heads > ARCH_MAX_WIDTH / a->head_dim))
		conf_fault(r, SL_EUNSUPPORTED, "num_attention_heads, num_key_value_heads, head_dim",
			   "do not fit together");
}

/* GLM 4.5's: chosen by sigmoids and a bias, with dense layers first. */
static void read_glm_experts(struct conf *r, struct model_arch *a)
{
	struct arch_experts *x = &a->experts;
	conf_experts(r, "n_routed_experts", 128, 8, x);
	x->n_ff = conf_int(r, "moe_intermediate_size", 1, ARCH_MAX_WIDTH / 64, 1408);
	x->n_ff_shared = x->n_ff * conf_int(r, "n_shared_experts", 0, 64, 1);
	x->n_dense = conf_int(r, "first_k_dense_replace", 0, a->n_layers, 1);
	x->scale = (float)conf_number(r, r->config, "routed_scaling_factor", 1e-6, 1e6, 1);
	x->norm = conf_bool(r, "norm_topk_prob", true);
	x->sigmoid = true;
	(void)conf_int(r, "num_nextn_predict_layers", 0, 8, 0); /* hf_tensors.c leaves out these layers */
	if (conf_int(r, "n_group", 1, KN_MAX_EXPERTS, 1) != 1 || conf_int(r, "topk_group", 1, KN_MAX_EXPERTS, 1) != 1)
		conf_fault(r, SL_EUNSUPPORTED, "n_group", "above 1 is not supported");
}

/* What Granite multiplies between embeddings and logits. */
static void read_granite(struct conf *r, struct model_arch *a)
{
	a->embed_scale = (float)conf_number(r, r->config, "embedding_multiplier", 1e-6, 1e6, 1);
	a->residual_scale = (float)conf_number(r, r->config, "residual_multiplier", 1e-6, 1e6, 1);
	a->attn_scale = (float)conf_number(r, r->config, "attention_multiplier", 1e-6, 1e3, 1);
	a->logit_scale = 1 / (float)conf_number(r, r->config, "logits_scaling", 1e-6, 1e6, 1);
}

/* Layers of SmolLM3 that do not turn: the list must be that of the interval. */
static void read_no_rope(struct conf *r, struct model_arch *a)
{
	const json_t *list = conf_get(r, r->config, "no_rope_layers");
	a->no_rope_every = conf_int(r, "no_rope_layer_interval", 1, ARCH_MAX_LAYERS, 4);
	if (list == NULL || (r->family->chunks && json_is_array(list) && json_array_size(list) == 0))
		return;
	bool fits = json_array_size(list) == (size_t)a->n_layers;
	for (int i = 0; i < a->n_layers && fits; i++) {
		const json_t *turns = json_array_get(list, (size_t)i);
		fits = json_is_integer(turns) && (json_integer_value(turns) != 0) == arch_turns(a, i);
	}
	if (!fits)
		conf_fault(r, SL_EUNSUPPORTED, "no_rope_layers", "is not what no_rope_layer_interval says");
}

/* Falcon's: one norm of both halves, or two in its larger models. */
static void read_falcon(struct conf *r, struct model_arch *a)
{
	bool newer = conf_bool(r, "new_decoder_architecture", false), one = conf_bool(r, "multi_query", true);
	int norms = conf_int(r, "num_ln_in_parallel_attn", 1, 2, newer ? 2 : 1);
	if (!newer)
		a->n_kv_heads = one ? 1 : a->n_heads;
	if (newer && norms == 2)
		a->parallel = ARCH_PARALLEL_TWO_NORMS;
	a->attn_norm_is_2 = a->parallel == ARCH_PARALLEL_TWO_NORMS;
	if (!conf_bool(r, "parallel_attn", true) && !newer)
		conf_fault(r, SL_EUNSUPPORTED, "parallel_attn", "is false, which is not supported");
	if (conf_bool(r, "alibi", false))
		conf_fault(r, SL_EUNSUPPORTED, "alibi", "is true, which is not supported");
	if (conf_bool(r, "bias", false))
		conf_fault(r, SL_EUNSUPPORTED, "bias", "is true, which is not supported");
}

/* How a layer's halves are put together. */
static void read_halves(struct conf *r, const char *family, struct model_arch *a)
{
	if (strcmp(family, "falcon") == 0)
		read_falcon(r, a);
	if (strcmp(family, "gptneox") == 0 && !conf_bool(r, "use_parallel_residual", true))
		a->parallel = ARCH_PARALLEL_NONE;
	if (a->layer_norm && !a->norm_biases) /* Cohere's line */
		a->logit_scale = (float)conf_number(r, r->config, "logit_scale", 1e-6, 1e6, 0.0625);
	if (a->head_bias)
		a->head_bias = conf_bool(r, "lm_head_bias", false);
}

/* LFM2's feed-forward half: two thirds of the key, times a factor, up to a multiple. */
static void read_lfm2_ff(struct conf *r, struct model_arch *a)
{
	int n = conf_int(r, "block_ff_dim", 1, ARCH_MAX_WIDTH, a->n_ff);
	int of = conf_int(r, "block_multiple_of", 1, ARCH_MAX_WIDTH, 256);
	double factor = conf_number(r, r->config, "block_ffn_dim_multiplier", 0.01, 16, 1);
	if (conf_bool(r, "block_auto_adjust_ff_dim", true)) {
		int two_thirds = 2 * n / 3;
		n = (int)(factor * (double)two_thirds);
		n = (n + of - 1) / of * of;
	}
	a->n_ff = n;
	if (n < 1 || n > ARCH_MAX_WIDTH)
		conf_fault(r, SL_EINVAL, "block_ff_dim", "gives no possible width");
}

/* Which layers keep a state: by name, by the numbers of the others, or all but every `every`-th. */
static void read_layers(struct conf *r, struct model_arch *a, const char *word, const char *numbers, int every)
{
	const json_t *types = conf_get(r, r->config, "layer_types");
	if (types == NULL && r->family->mixer == ARCH_SSM)
		types = conf_get(r, r->config, "layers_block_type");
	const json_t *attend = numbers != NULL ? conf_get(r, r->config, numbers) : NULL;
	bool fits = types == NULL || (json_is_array(types) && json_array_size(types) == (size_t)a->n_layers);
	for (int i = 0; i < a->n_layers && types != NULL && fits; i++) {
		const char *type = json_string_value(json_array_get(types, (size_t)i));
		if (type != NULL && r->family->mixer == ARCH_SSM) /* newer words for the same */
			type = strcmp(type, "linear_attention") == 0 ? word
			       : strcmp(type, "attention") == 0      ? "full_attention"
								     : type;
		fits = type != NULL && (strcmp(type, word) == 0 || strcmp(type, "full_attention") == 0);
		if (fits && strcmp(type, word) == 0)
			arch_set_recurrent(a, i);
	}
	if (!fits)
		conf_fault(r, SL_EUNSUPPORTED, "layer_types", "is not a list of known words for each layer");
	for (int i = 0; i < a->n_layers && types == NULL && attend != NULL; i++)
		arch_set_recurrent(a, i);
	for (size_t k = 0; k < json_array_size(attend) && types == NULL; k++) {
		json_int_t i = json_integer_value(json_array_get(attend, k));
		if (i < 0 || i >= a->n_layers)
			conf_fault(r, SL_EINVAL, numbers, "has a number that is no layer's");
		else
			a->recurrent.layers[i / 64] &= ~((uint64_t)1 << i % 64);
	}
	if (types == NULL && every > 0)
		arch_recurrent_all_but(a, every);
}

/* The bounds of a step, at least 0; the upper one may be infinite, which newer files have as an object. */
static void read_step_limits(struct conf *r, struct arch_recurrent *x)
{
	const json_t *list = conf_get(r, r->config, "time_step_limit"), *most = json_array_get(list, 1);
	double least = json_number_value(json_array_get(list, 0)), upper = json_number_value(most);
	const char *word = json_string_value(json_object_get(most, "__float__"));
	x->least = 0;
	x->most = INFINITY;
	if (list == NULL)
		return;
	if (word != NULL && strcmp(word, "Infinity") == 0)
		upper = HUGE_VAL;
	if (json_array_size(list) != 2 || !json_is_number(json_array_get(list, 0)) ||
	    (word == NULL && !json_is_number(most)) || !(least >= 0 && upper > 0 && least <= upper && least < 1e6)) {
		conf_fault(r, SL_EINVAL, "time_step_limit", "is not a list of two bounds");
		return;
	}
	x->least = (float)least;
	x->most = upper > 1e30 ? INFINITY : (float)upper;
}

/* Granite 4's; without Mamba-2 layers it is a model with attention only. */
static void read_granite_states(struct conf *r, struct model_arch *a)
{
	struct arch_recurrent *x = &a->recurrent;
	const json_t *head = conf_get(r, r->config, "mamba_d_head");
	const char *positions = conf_text(r, r->config, "position_embedding_type");
	read_layers(r, a, "mamba", NULL, 0);
	bool named =
	    conf_get(r, r->config, "layer_types") != NULL || conf_get(r, r->config, "layers_block_type") != NULL;
	for (int i = 0; i < a->n_layers && !named; i++) /* the class's default */
		arch_set_recurrent(a, i);
	x->v_heads = conf_int(r, "mamba_n_heads", 1, ARCH_MAX_WIDTH, 128);
	x->k_heads = conf_int(r, "mamba_n_groups", 1, ARCH_MAX_WIDTH, 1);
	x->k_dim = conf_int(r, "mamba_d_state", 1, KN_MAX_DELTA, 256);
	x->conv = conf_int(r, "mamba_d_conv", 1, KN_MAX_CONV, 4);
	int inner = a->n_embd * conf_int(r, "mamba_expand", 1, 64, 2);
	x->v_dim = inner / x->v_heads;
	if (head != NULL && !json_is_string(head))
		x->v_dim = conf_int(r, "mamba_d_head", 1, KN_MAX_DELTA, 64);
	else if (head != NULL && strcmp(json_string_value(head), "auto") != 0)
		conf_fault(r, SL_EINVAL, "mamba_d_head", "is neither a number nor auto");
	if ((int64_t)x->v_dim * x->v_heads != inner)
		conf_fault(r, SL_EINVAL, "mamba_d_head", "times mamba_n_heads is not mamba_expand times hidden_size");
	x->conv_bias = conf_bool(r, "mamba_conv_bias", true);
	/* transformers' kernels and its plain code norm several groups differently. */
	if (x->k_heads > 1)
		conf_fault(r, SL_EUNSUPPORTED, "mamba_n_groups", "is not supported (supported: 1)");
	if (conf_bool(r, "mamba_proj_bias", false))
		conf_fault(r, SL_EUNSUPPORTED, "mamba_proj_bias", "is true, which is not supported");
	bool rope = positions != NULL && strcmp(positions, "rope") == 0;
	if (!rope && positions != NULL && strcmp(positions, "nope") != 0)
		conf_fault(r, SL_EUNSUPPORTED, "position_embedding_type", "is not supported (supported: rope, nope)");
	a->no_rope_every = rope ? 0 : 1;
	if (arch_n_recurrent(a, a->n_layers) == 0 && r->rc == 0)
		*x = (struct arch_recurrent){.kind = ARCH_ATTENTION};
}

static void read_nemotron_states(struct conf *r, struct model_arch *a)
{
	static const char *const biases[] = {"use_bias", "mamba_proj_bias"};
	struct arch_recurrent *x = &a->recurrent;
	const char *act = conf_text(r, r->config, "mamba_hidden_act");
	bool dense = false, mixes = false;
	for (int i = 0; i < a->n_layers && r->rc == 0; i++) {
		const char *half = half_at(r, i);
		if (half == NULL)
			conf_fault(r, SL_EUNSUPPORTED, "hybrid_override_pattern or layers_block_type",
				   "does not name a known kind for each layer");
		else if (*half == 'M')
			arch_set_recurrent(a, i);
		else if (*half != '*')
			a->only_ff[i / 64] |= (uint64_t)1 << i % 64;
		dense = dense || (half != NULL && *half == '-');
		mixes = mixes || (half != NULL && *half == 'E');
	}
	if (r->rc == 0 && (half_at(r, a->n_layers) != NULL || (dense && mixes)))
		conf_fault(r, SL_EUNSUPPORTED, "hybrid_override_pattern or layers_block_type",
			   dense && mixes ? "has dense layers and mixtures" : "has more layers than num_hidden_layers");
	if (!mixes)
		a->experts = (struct arch_experts){.n = 0};
	x->v_heads = conf_int(r, "mamba_num_heads", 1, ARCH_MAX_WIDTH, 128);
	x->v_dim = conf_int(r, "mamba_head_dim", 1, KN_MAX_DELTA, 64);
	x->k_heads = conf_int(r, "n_groups", 1, ARCH_MAX_WIDTH, 8);
	x->k_dim = conf_int(r, "ssm_state_size", 1, KN_MAX_DELTA, 128);
	x->conv = conf_int(r, "conv_kernel", 1, KN_MAX_CONV, 4);
	x->conv_bias = conf_bool(r, "use_conv_bias", true);
	if (act != NULL && strcmp(act, "silu") != 0)
		conf_fault(r, SL_EUNSUPPORTED, "mamba_hidden_act", "is not supported (supported: silu)");
	for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
		if (conf_bool(r, biases[i], false))
			conf_fault(r, SL_EUNSUPPORTED, biases[i], "is true, which is not supported");
}

static void read_recurrent(struct conf *r, struct model_arch *a)
{
	static const struct arch_recurrent_keys of_kind[] =
	    {[ARCH_SHORT_CONV] = {.layers = "layer_types", .conv = "conv_L_cache"},
	     [ARCH_DELTA] = {"layer_types or full_attention_interval", "linear_conv_kernel_dim",
			     "linear_num_value_heads", "linear_value_head_dim"},
	     [ARCH_SSM] = {"layer_types", "mamba_d_conv", "mamba_n_heads", "mamba_d_head"}},
						nemotron = {"hybrid_override_pattern or layers_block_type",
							    "conv_kernel", "mamba_num_heads", "mamba_head_dim"};
	struct arch_recurrent *x = &a->recurrent;
	x->kind = r->family->mixer;
	if (x->kind == ARCH_SSM) {
		x->log_decay = true;
		read_step_limits(r, x);
		(a->one_half ? read_nemotron_states : read_granite_states)(r, a);
	}
	if (x->kind == ARCH_SHORT_CONV) {
		x->conv = conf_int(r, "conv_L_cache", 1, KN_MAX_CONV, 3);
		read_layers(r, a, "conv", "full_attn_idxs", 0);
		if (conf_bool(r, "conv_bias", false))
			conf_fault(r, SL_EUNSUPPORTED, "conv_bias", "is true, which is not supported");
		if (!r->family->experts)
			read_lfm2_ff(r, a);
	}
	if (x->kind == ARCH_DELTA) {
		x->conv = conf_int(r, "linear_conv_kernel_dim", 1, KN_MAX_CONV, 4);
		x->k_heads = conf_int(r, "linear_num_key_heads", 1, ARCH_MAX_WIDTH, 16);
		x->v_heads = conf_int(r, "linear_num_value_heads", 1, ARCH_MAX_WIDTH, 32);
		x->k_dim = conf_int(r, "linear_key_head_dim", 1, KN_MAX_DELTA, 128);
		x->v_dim = conf_int(r, "linear_value_head_dim", 1, KN_MAX_DELTA, 128);
		x->log_decay = true;
		read_layers(r, a, "linear_attention", NULL,
			    conf_int(r, "full_attention_interval", 2, ARCH_MAX_LAYERS, 4));
		a->norm_gain_offset = 1;
	}
	const char *key, *why = NULL;
	if (r->rc == 0 && x->kind != ARCH_ATTENTION)
		why = arch_recurrent_fault(a, a->one_half ? &nemotron : &of_kind[x->kind], &key);
	if (why != NULL)
		conf_fault(r, SL_EUNSUPPORTED, key, why);
}

/* Whether Llama 4's queries grow in layers that do not turn: true, or a number in older files. */
static bool grows_still(struct conf *r)
{
	const json_t *v = conf_get(r, r->config, "attn_temperature_tuning");
	if (v != NULL && !json_is_boolean(v) && !json_is_integer(v))
		conf_fault(r, SL_EINVAL, "attn_temperature_tuning", "is not true or false");
	return v == NULL || json_is_true(v) || json_integer_value(v) != 0;
}

static void read_llama4(struct conf *r, struct model_arch *a)
{
	double scale = conf_number(r, r->config, "attn_scale", 1e-6, 100, 0.1);
	int every = conf_int(r, "floor_scale", 1, ARCH_MAX_CTX, ARCH_LLAMA4_CHUNK);
	a->qk_norm_plain = conf_bool(r, "use_qk_norm", true);
	read_no_rope(r, a);
	if (!grows_still(r))
		return;
	a->still_grow = (float)scale;
	a->still_grow_every = every;
}

/* Which layers have experts: the list must be that of the interval. */
static void read_moe_layers(struct conf *r, const struct model_arch *a)
{
	const json_t *list = conf_get(r, r->config, "moe_layers"), *it;
	size_t i, n = 0;
	bool fits = true;
	if (list == NULL)
		return;
	for (int k = 0; k < a->n_layers; k++)
		n += arch_mixes(a, k);
	json_array_foreach(list, i, it) fits = fits && json_is_integer(it) && json_integer_value(it) >= 0 &&
					       json_integer_value(it) < a->n_layers &&
					       arch_mixes(a, (int)json_integer_value(it));
	if (!fits || json_array_size(list) != n)
		conf_fault(r, SL_EUNSUPPORTED, "moe_layers", "is not what interleave_moe_layer_step says");
}

static void read_llama4_experts(struct conf *r, struct model_arch *a)
{
	struct arch_experts *x = &a->experts;
	conf_experts(r, "num_local_experts", 16, 1, x);
	x->n_ff = x->n_ff_shared = conf_int(r, "intermediate_size", 1, ARCH_MAX_WIDTH, 8192);
	x->every = conf_int(r, "interleave_moe_layer_step", 1, ARCH_MAX_LAYERS, 1);
	x->scale = 1;
	x->sigmoid = x->unbiased = x->weighs_input = true;
	if (!conf_has(r, "intermediate_size_mlp"))
		conf_fault(r, SL_EINVAL, "intermediate_size_mlp", "is missing");
	read_moe_layers(r, a);
}

/* What the newer families have beyond Llama. */
static void read_others(struct conf *r, const char *family, struct model_arch *a)
{
	if (strcmp(family, "glm4moe") == 0)
		a->qk_norm = conf_bool(r, "use_qk_norm", false);
	if (r->family->scaled)
		read_granite(r, a);
	if (strcmp(family, "smollm3") == 0)
		read_no_rope(r, a);
	if (r->family->mixer != ARCH_ATTENTION)
		read_recurrent(r, a);
	if (strcmp(family, "llama4") == 0)
		read_llama4(r, a);
	read_halves(r, family, a);
}

/* Mixtures whose experts are local_experts, each as wide as the configuration's intermediate_size. */
static void read_local_experts(struct conf *r, struct model_arch *a)
{
	const struct arch_family *f = r->family;
	struct arch_experts *x = &a->experts;
	conf_experts(r, "num_local_experts", 0, 0, x);
	x->n_ff = a->n_ff;
	x->scale = 1;
	x->norm = f->norm_weights;
	x->sigmoid = f->sigmoid;
	x->clamped = x->biases = f->oss;
	if (f->sparse)
		x->sparse = (float)conf_number(r, r->config, "router_jitter_noise", 1e-6, 1, 0.01);
	if (f->oss && conf_number(r, r->config, "swiglu_limit", 0, 1e6, 7) != (double)KN_CLAMP)
		conf_fault(r, SL_EUNSUPPORTED, "swiglu_limit", "is not supported (supported: 7)");
	if (f->oss && conf_int(r, "experts_per_token", 1, KN_MAX_EXPERTS_USED, x->n_used) != x->n_used)
		conf_fault(r, SL_EINVAL, "experts_per_token", "is not num_experts_per_tok");
}

static void read_lfm2_experts(struct conf *r, struct model_arch *a)
{
	struct arch_experts *x = &a->experts;
	conf_experts(r, "num_experts", 32, 4, x);
	x->n_ff = conf_int(r, "moe_intermediate_size", 1, ARCH_MAX_WIDTH, 1792);
	x->n_dense = conf_int(r, "num_dense_layers", 0, a->n_layers, 2);
	x->scale = (float)conf_number(r, r->config, "routed_scaling_factor", 1e-6, 1e6, 1);
	x->norm = conf_bool(r, "norm_topk_prob", true);
	x->sigmoid = true;
	if (!conf_bool(r, "use_expert_bias", true))
		conf_fault(r, SL_EUNSUPPORTED, "use_expert_bias", "is false, which is not supported");
}

/* Qwen3-Next's and Qwen3.5's. */
static void read_delta_experts(struct conf *r, struct model_arch *a)
{
	struct arch_experts *x = &a->experts;
	conf_experts(r, "num_experts", 512, 10, x);
	x->n_ff = conf_int(r, "moe_intermediate_size", 1, ARCH_MAX_WIDTH, 512);
	x->n_ff_shared = conf_int(r, "shared_expert_intermediate_size", 1, ARCH_MAX_WIDTH, 512);
	x->shared_gate = true;
	x->scale = 1;
	x->norm = conf_bool(r, "norm_topk_prob", true);
	if (conf_int(r, "decoder_sparse_step", 1, ARCH_MAX_LAYERS, 1) != 1)
		conf_fault(r, SL_EUNSUPPORTED, "decoder_sparse_step", "is not supported (supported: 1)");
}

/* Granite 4's: without experts, the shared one is the dense half. */
static void read_granite_experts(struct conf *r, struct model_arch *a)
{
	struct arch_experts *x = &a->experts;
	int n = conf_int(r, "num_local_experts", 0, KN_MAX_EXPERTS, 8);
	int shared = conf_int(r, "shared_intermediate_size", 1, ARCH_MAX_WIDTH, 1024);
	if (n == 0) {
		(void)conf_int(r, "num_experts_per_tok", 0, KN_MAX_EXPERTS_USED, 0);
		a->n_ff = shared;
		return;
	}
	conf_experts(r, "num_local_experts", 8, 2, x);
	x->n_ff = a->n_ff;
	x->n_ff_shared = shared;
	x->scale = 1;
	x->norm = true;
}

/* Nemotron 3's; whether there are any, the layers say (read_nemotron_states). */
static void read_nemotron_experts(struct conf *r, struct model_arch *a)
{
	struct arch_experts *x = &a->experts;
	conf_experts(r, "n_routed_experts", 8, 2, x);
	x->n_ff = conf_int(r, "moe_intermediate_size", 1, ARCH_MAX_WIDTH, 7688);
	x->n_ff_shared = conf_int(r, "moe_shared_expert_intermediate_size", 1, ARCH_MAX_WIDTH, 7688);
	x->n_latent = conf_int(r, "moe_latent_size", 0, ARCH_MAX_WIDTH, 0);
	x->scale = (float)conf_number(r, r->config, "routed_scaling_factor", 1e-6, 1e6, 1);
	x->norm = conf_bool(r, "norm_topk_prob", true);
	x->n_groups = conf_int(r, "n_group", 1, x->n, 1);
	x->n_groups_used = conf_int(r, "topk_group", 1, x->n_groups, 1);
	x->sigmoid = true;
	if (x->n_groups == 1)
		x->n_groups = x->n_groups_used = 0;
	if (r->rc == 0 && arch_groups_fault(x) != NULL)
		conf_fault(r, SL_EINVAL, "n_group", arch_groups_fault(x));
	if (conf_int(r, "n_shared_experts", 1, 1, 1) != 1)
		return;
}

/* The feed-forward halves of a mixture. */
static void read_experts(struct conf *r, const char *type, struct model_arch *a)
{
	struct arch_experts *x = &a->experts;
	if (strcmp(type, "glm4_moe") == 0) {
		read_glm_experts(r, a);
		return;
	}
	if (strcmp(type, "llama4_text") == 0) {
		read_llama4_experts(r, a);
		return;
	}
	if (r->family->latent) {
		conf_latent_experts(r, type, a);
		return;
	}
	if (strcmp(type, "minimax_m2") == 0 || strcmp(type, "phimoe") == 0 || strcmp(type, "gpt_oss") == 0) {
		read_local_experts(r, a);
		return;
	}
	if (strcmp(type, "lfm2_moe") == 0) {
		read_lfm2_experts(r, a);
		return;
	}
	if (r->family->mixer == ARCH_DELTA && r->family->experts) {
		read_delta_experts(r, a);
		return;
	}
	if (r->family->mixer == ARCH_SSM) {
		(a->one_half ? read_nemotron_experts : read_granite_experts)(r, a);
		return;
	}
	bool mixtral = strcmp(type, "mixtral") == 0, olmoe = strcmp(type, "olmoe") == 0;
	bool qwen2 = strcmp(type, "qwen2_moe") == 0, qwen3 = strcmp(type, "qwen3_moe") == 0;
	if (!mixtral && !olmoe && !qwen2 && !qwen3)
		return;
	int n = mixtral ? 8 : olmoe ? 64 : qwen2 ? 60 : 128, used = mixtral ? 2 : qwen2 ? 4 : 8;
	conf_experts(r, mixtral ? "num_local_experts" : "num_experts", n, used, x);
	x->norm = mixtral || conf_bool(r, "norm_topk_prob", false);
	x->n_ff = a->n_ff;
	x->scale = 1;
	if (qwen2 || qwen3) {
		x->n_ff = conf_int(r, "moe_intermediate_size", 1, ARCH_MAX_WIDTH, qwen2 ? 1408 : 768);
		if (conf_int(r, "decoder_sparse_step", 1, ARCH_MAX_LAYERS, 1) != 1)
			conf_fault(r, SL_EUNSUPPORTED, "decoder_sparse_step", "is not supported (supported: 1)");
	}
	if (qwen2) {
		x->n_ff_shared = conf_int(r, "shared_expert_intermediate_size", 1, ARCH_MAX_WIDTH, 5632);
		x->shared_gate = true;
	}
}

/* Requires a model that generates text, not a classifier or another architecture with the same layers. */
static void read_kind(struct conf *r, const struct hf_folder *folder, const char *family)
{
	const json_t *classes = json_object_get(hf_root(folder), "architectures");
	if (classes != NULL && !json_is_null(classes) && !json_is_array(classes))
		conf_fault(r, SL_EINVAL, "architectures", "is not a list");
	for (size_t i = 0; i < json_array_size(classes); i++) {
		const char *name = json_string_value(json_array_get(classes, i));
		if (name == NULL || (!text_ends(name, "ForCausalLM") && !text_ends(name, "ForConditionalGeneration")))
			conf_fault(r, SL_EUNSUPPORTED, "architectures",
				   "names a class that is not supported (supported: …ForCausalLM, "
				   "…ForConditionalGeneration)");
	}
	const char *text = conf_text(r, r->config, "model_type"), *other = text != NULL ? hf_family(text) : family;
	if (other == NULL || strcmp(other, family) != 0)
		conf_fault(r, SL_EUNSUPPORTED, "model_type", "of text_config is another family's");
}

static bool is_class(const char *name, const char *end)
{
	static const char *const lines[] = {"Bert", "Roberta", "XLMRoberta"};
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		size_t n = strlen(lines[i]);
		if (strncmp(name, lines[i], n) == 0 && strcmp(name + n, end) == 0)
			return true;
	}
	return false;
}

/* What a class of the BERT family produces: vectors, or one score. */
static void read_encoder_kind(struct conf *r, const struct hf_folder *folder, struct model_arch *a)
{
	const json_t *classes = json_object_get(hf_root(folder), "architectures");
	const char *name = json_string_value(json_array_get(classes, 0));
	if (r->rc == 0)
		r->rc = hf_pooling(folder, &a->pooling, r->err);
	if (name != NULL && is_class(name, "ForSequenceClassification")) {
		size_t n = json_object_size(conf_get(r, r->config, "id2label"));
		if (n != 1 && conf_int(r, "num_labels", 1, INT32_MAX, n > 0 ? (int)n : 2) != 1)
			conf_fault(r, SL_EUNSUPPORTED, "num_labels",
				   "is not 1: only models with one score are supported");
		a->pooling = ARCH_POOL_RANK;
	} else if (name == NULL || (!is_class(name, "Model") && !is_class(name, "ForMaskedLM"))) {
		conf_fault(
		    r, SL_EUNSUPPORTED, "architectures",
		    "names a class that is not supported (supported: BertModel, RobertaModel, XLMRobertaModel, their "
		    "…ForMaskedLM and …ForSequenceClassification)");
	} else if (a->pooling == ARCH_POOL_NONE) {
		a->pooling = ARCH_POOL_MEAN;
	}
}

/* As vLLM reads it: either key declares it. */
static void read_lengths(struct conf *r, struct model_arch *a)
{
	const json_t *list = conf_get(r, r->config, "matryoshka_dimensions"), *it;
	size_t i;
	a->shortens = conf_bool(r, "is_matryoshka", false) || json_array_size(list) > 0;
	json_array_foreach(list, i, it)
	{
		if (!json_is_integer(it) || json_integer_value(it) < 1 || json_integer_value(it) > a->n_embd ||
		    i >= ARCH_MAX_LENGTHS) {
			conf_fault(r, SL_EINVAL, "matryoshka_dimensions", "is not a list of up to 16 vector lengths");
			return;
		}
		a->lengths[a->n_lengths++] = (int)json_integer_value(it);
	}
}

static int table_rows(const struct model_file *f, const char *name)
{
	const struct model_tensor *t = model_file_find(f, name);
	return t != NULL && t->n_dims == 2 && t->dims[1] <= ARCH_MAX_CTX ? (int)t->dims[1] : 0;
}

static int read_encoder(struct conf *r, const struct hf_folder *folder, struct model_arch *a)
{
	const char *act = conf_text(r, r->config, "hidden_act"), *type = hf_model_type(folder),
		   *positions = conf_text(r, r->config, "position_embedding_type");
	const struct kind d = {.n_layers = 12, .n_embd = 768, .n_heads = 12, .n_ff = 3072, .n_ctx = 512};
	read_shape(r, a, &d);
	a->encoder = a->qkv_bias = a->tied_embeddings = a->ungated = a->ff_biases = true;
	a->rms_eps = (float)conf_number(r, r->config, "layer_norm_eps", 1e-30, 0.1, 1e-12);
	a->attn_scale = r->rc == 0 ? 1.0f / sqrtf((float)a->head_dim) : 1;
	if (act != NULL && strcmp(act, "gelu") != 0)
		conf_fault(r, SL_EUNSUPPORTED, "hidden_act", "is not supported (supported: gelu)");
	if (positions != NULL && strcmp(positions, "absolute") != 0)
		conf_fault(r, SL_EUNSUPPORTED, "position_embedding_type", "is not supported (supported: absolute)");
	if (conf_bool(r, "is_decoder", false))
		conf_fault(r, SL_EUNSUPPORTED, "is_decoder", "is true, which is not supported");
	/* RoBERTa counts positions from after the padding's. */
	int padding = conf_int(r, "pad_token_id", 0, ARCH_MAX_CTX - 1, 1);
	a->first_pos = strcmp(type, "bert") == 0 ? 0 : padding + 1;
	a->n_ctx -= a->first_pos;
	int n_pos = table_rows(r->file, "position_embd.weight") - a->first_pos;
	a->n_ctx = n_pos < a->n_ctx ? n_pos : a->n_ctx;
	if (a->n_ctx < 1)
		conf_fault(r, SL_EINVAL, "max_position_embeddings", "leaves no positions");
	a->n_types = table_rows(r->file, "token_types.weight");
	(void)conf_int(r, "type_vocab_size", 0, ARCH_MAX_CTX, 0); /* according to the shape of the table */
	a->n_vocab = table_rows(r->file, "token_embd.weight");
	if (a->n_vocab < 1 || a->n_vocab > ARCH_MAX_VOCAB)
		conf_fault(r, SL_EINVAL, "vocab_size", "has no proper tensor word_embeddings.weight");
	read_encoder_kind(r, folder, a);
	read_lengths(r, a);
	a->rank_dense = a->pooling == ARCH_POOL_RANK && model_file_find(r->file, "cls.weight") != NULL;
	return r->rc != 0 ? r->rc : arch_check_hf(&r->seen, folder, a, r->err);
}

static void read_pooling(struct conf *r, const struct hf_folder *folder, struct model_arch *a)
{
	if (r->rc == 0)
		r->rc = hf_pooling(folder, &a->pooling, r->err);
	if (a->pooling == ARCH_POOL_CLS && r->rc == 0)
		r->rc = sl_errf(r->err, SL_EUNSUPPORTED,
				"%s/1_Pooling/config.json: the first row of a decoder sees nothing", r->path);
}

int arch_read_hf(const struct model_file *f, const struct hf_folder *folder, struct model_arch *a, struct sl_err *err)
{
	struct conf r = {.file = f, .config = hf_config(folder), .path = hf_path(folder), .err = err};
	const char *type = hf_model_type(folder), *family = hf_family(type);
	if (family == NULL)
		return sl_errf(err, SL_EUNSUPPORTED,
			       "%s/config.json: model_type \"%s\" is not supported (supported: llama, mistral, qwen2, "
			       "qwen3, mixtral, qwen2_moe, qwen3_moe, olmoe, smollm3, granite, seed_oss, ernie4_5, "
			       "glm4, glm4_moe, gpt_oss, olmo2, olmo3, cohere, cohere2, phimoe, minimax_m2, "
			       "ministral3, llama4_text, falcon, gpt_neox, deepseek_v2, deepseek_v3, kimi_k2, phi3, "
			       "gemma2, gemma3, "
			       "lfm2, lfm2_moe, qwen3_next, qwen3_5, qwen3_5_moe, granitemoehybrid, nemotron_h, bert, "
			       "roberta, xlm-roberta)",
			       r.path, type);
	const struct arch_family *known = r.family = arch_family_find(family, strlen(family));
	const struct kind *d = kind_of(type);
	arch_family_begin(known, a);
	if (known->encoder)
		return read_encoder(&r, folder, a);
	bool gemma = strncmp(family, "gemma", 5) == 0;
	read_shape(&r, a, d);
	if (known->latent && r.rc == 0)
		conf_latent(&r, a);
	if (r.rc != 0)
		return r.rc;
	a->rms_eps = (float)conf_number(&r, r.config, or_else(d->eps_key, "rms_norm_eps"), 1e-12, 0.1,
					d->eps > 0 ? d->eps : 1e-6);
	read_act(&r, a, gemma);
	read_experts(&r, type, a);
	if (d->bias_key != NULL) {
		a->qkv_bias = conf_bool(&r, d->bias_key, d->bias);
		a->o_bias = a->o_bias && a->qkv_bias;
	}
	a->attn_scale = 1.0f / sqrtf((float)a->head_dim);
	read_others(&r, family, a);
	if (gemma) {
		a->norm_gain_offset = 1;
		a->embed_scale = sqrtf((float)a->n_embd);
		a->attn_scale = (float)(1 / sqrt(conf_number(&r, r.config, "query_pre_attn_scalar", 1, 1e6, 256)));
	}
	if (gemma) { /* absent: the class's default; null: none */
		bool gemma2 = strcmp(family, "gemma2") == 0;
		double attn = gemma2 && !conf_has(&r, "attn_logit_softcapping") ? 50 : 0;
		double final = gemma2 && !conf_has(&r, "final_logit_softcapping") ? 30 : 0;
		a->attn_softcap = (float)conf_number(&r, r.config, "attn_logit_softcapping", 0.1, 1e4, attn);
		a->final_softcap = (float)conf_number(&r, r.config, "final_logit_softcapping", 0.1, 1e4, final);
	}
	read_kind(&r, folder, family);
	if (conf_bool(&r, "attention_bias", false) && !a->qkv_bias)
		conf_fault(&r, SL_EUNSUPPORTED, "attention_bias", "is not supported");
	if (conf_bool(&r, "mlp_bias", false))
		conf_fault(&r, SL_EUNSUPPORTED, "mlp_bias", "is not supported");
	conf_rope(&r, a, d->rope_base > 0 ? d->rope_base : 1e4, strcmp(family, "gemma3") == 0 ? 1e4 : 0);
	a->rope.halves = a->rope_windowed.halves = !known->hf_pairs;
	if (known->latent)
		conf_latent_rope(&r, a);
	conf_window(&r, a, type);
	read_pooling(&r, folder, a);
	read_lengths(&r, a);
	if (r.rc != 0)
		return r.rc;
	const struct model_tensor *embed = model_file_find(f, "token_embd.weight");
	if (embed == NULL || embed->n_dims != 2 || embed->dims[1] > ARCH_MAX_VOCAB)
		return sl_errf(err, SL_EINVAL, "%s: no proper tensor embed_tokens.weight", r.path);
	a->n_vocab = (int)embed->dims[1];
	a->tied_embeddings = model_file_find(f, "output.weight") == NULL;
	if (a->tied_embeddings && json_is_false(conf_get(&r, r.config, "tie_word_embeddings"))) {
		conf_fault(&r, SL_EINVAL, "tie_word_embeddings", "is false, but there is no lm_head.weight");
		return r.rc;
	}
	return arch_check_hf(&r.seen, folder, a, err);
}
