/* SPDX-License-Identifier: Apache-2.0
 *
 * A family's description from a Hugging Face config.json. Optional keys default as in that family's configuration class
 * in the transformers library. Unsupported keys that would change answers are refused by name. All Hugging Face layouts
 * rotate halves. /
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "engine/source/arch_read.h"
#include "engine/file/hf_names.h"

struct reader {
	const struct model_file *file;
	const json_t *config;
	const char *path;
	struct key_seen seen;
	struct sl_err *err;
	int rc; /* the first error; then the getters do nothing */
};

static void fault(struct reader *r, int code, const char *key, const char *what)
{
	if (r->rc == 0)
		r->rc = sl_errf(r->err, code, "%s/config.json: %s %s", r->path, key, what);
}

/* NULL if absent or null. arch_check_hf skips keys that were read here. */
static const json_t *get(struct reader *r, const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);
	if (v != NULL)
		key_see(&r->seen, object, key);
	return json_is_null(v) ? NULL : v;
}

/* Whether the key exists, even as null: then the class's default does not apply. */
static bool has(const struct reader *r, const char *key) { return json_object_get(r->config, key) != NULL; }

/* fallback < lo: the key is required. */
static int get_int(struct reader *r, const char *key, int lo, int hi, int fallback)
{
	const json_t *v = get(r, r->config, key);
	if (v == NULL) {
		if (fallback < lo)
			fault(r, SL_EINVAL, key, "is missing");
		return fallback;
	}
	if (!json_is_integer(v) || json_integer_value(v) < lo || json_integer_value(v) > hi) {
		fault(r, SL_EINVAL, key, "is not a whole number in its range");
		return lo;
	}
	return (int)json_integer_value(v);
}

static double number_in(struct reader *r, const json_t *object, const char *key, double lo, double hi, double fallback)
{
	const json_t *v = get(r, object, key);
	if (v == NULL)
		return fallback;
	double x = json_number_value(v);
	if (!json_is_number(v) || !(x >= lo && x <= hi)) {
		fault(r, SL_EINVAL, key, "is not a number in its range");
		return fallback;
	}
	return x;
}

static bool get_bool(struct reader *r, const char *key, bool fallback)
{
	const json_t *v = get(r, r->config, key);
	if (v != NULL && !json_is_boolean(v))
		fault(r, SL_EINVAL, key, "is not true or false");
	return v == NULL ? fallback : json_is_true(v);
}

/* ---- rope ---- */

static void read_factors(struct reader *r, const json_t *list, const char *key, struct arch_rope *rope)
{
	if (!json_is_array(list) || json_array_size(list) != (size_t)rope->n_rot / 2 ||
	    rope->n_rot / 2 > ARCH_MAX_ROT) {
		fault(r, SL_EINVAL, key, "is not a list of a factor for each pair");
		return;
	}
	rope->n_factors = rope->n_rot / 2;
	for (int i = 0; i < rope->n_factors; i++) {
		const json_t *v = json_array_get(list, (size_t)i);
		double x = json_number_value(v);
		if (!json_is_number(v) || !(x > 0 && x < 1e6))
			fault(r, SL_EINVAL, key, "has a factor that is not possible");
		rope->factors[i] = (float)x;
	}
}

/* The model's full context selects the list, not the prompt's length: a sequence must not change its angles while it
 * grows. */
static void read_longrope(struct reader *r, const json_t *scaling, int n_ctx, struct arch_rope *rope)
{
	int original = get_int(r, "original_max_position_embeddings", 1, ARCH_MAX_CTX,
			       (int)number_in(r, scaling, "original_max_position_embeddings", 1, ARCH_MAX_CTX, n_ctx));
	bool is_long = n_ctx > original;
	const char *key = is_long ? "long_factor" : "short_factor";
	rope->scaling = ARCH_ROPE_LONGROPE;
	rope->original_ctx = original;
	read_factors(r, get(r, scaling, key), key, rope);
	double factor = number_in(r, scaling, "factor", 1, 1024, (double)n_ctx / original), magnitude = 1;
	if (factor > 1 && original > 1)
		magnitude = sqrt(1 + log(factor) / log(original));
	rope->magnitude = number_in(r, scaling, "attention_factor", 0.01, 100, magnitude);
	(void)get(r, scaling, is_long ? "short_factor" : "long_factor"); /* read: the list for other contexts */
}

/* The magnitude of sine and cosine for a context factor: the paper's rule times mscale. */
static double sharper(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1; }

/* transformers requires mscale and mscale_all_dim together or neither. With only one of them, transformers and
 * DeepSeek's own code differ, except for the values accepted here. */
static void read_yarn(struct reader *r, const json_t *scaling, struct arch_rope *rope)
{
	double mscale = number_in(r, scaling, "mscale", 0, 100, -1),
	       all = number_in(r, scaling, "mscale_all_dim", 0, 100, -1), given = 0;
	const json_t *truncate = get(r, scaling, "truncate");
	rope->scaling = ARCH_ROPE_YARN;
	rope->beta_fast = number_in(r, scaling, "beta_fast", 0, 1e4, 32);
	rope->beta_slow = number_in(r, scaling, "beta_slow", 0, 1e4, 1);
	rope->beta_fast = rope->beta_fast > 0 ? rope->beta_fast : 32;
	rope->beta_slow = rope->beta_slow > 0 ? rope->beta_slow : 1;
	if (!(rope->beta_fast >= rope->beta_slow))
		fault(r, SL_EINVAL, "beta_fast", "is below beta_slow");
	if (truncate != NULL && !json_is_boolean(truncate))
		fault(r, SL_EINVAL, "truncate", "is not true or false");
	rope->fractional = json_is_false(truncate);
	if (mscale >= 0 && all < 0 && mscale != 1)
		fault(r, SL_EUNSUPPORTED, "mscale", "is not supported without mscale_all_dim");
	if (all > 0 && mscale < 0)
		fault(r, SL_EUNSUPPORTED, "mscale_all_dim", "is not supported without mscale");
	if (mscale > 0 && all > 0)
		given = sharper(rope->factor, mscale) / sharper(rope->factor, all);
	rope->magnitude = number_in(r, scaling, "attention_factor", 0.01, 100, given);
}

static void read_scaling(struct reader *r, const json_t *scaling, struct model_arch *a, struct arch_rope *rope)
{
	const json_t *word = get(r, scaling, "rope_type");
	const json_t *older = get(r, scaling, "type");
	const char *type = json_string_value(word != NULL ? word : older);
	if (scaling == NULL || type == NULL || strcmp(type, "default") == 0)
		return;
	double most = 1024, original = a->n_ctx;
	original = number_in(r, scaling, "original_max_position_embeddings", 1, ARCH_MAX_CTX, original);
	rope->original_ctx = (int)original;
	if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0) {
		read_longrope(r, scaling, a->n_ctx, rope);
		return;
	}
	rope->factor = number_in(r, scaling, "factor", 1, most, 0);
	if (rope->factor < 1)
		fault(r, SL_EINVAL, "factor", "of the rope scaling is missing");
	if (strcmp(type, "linear") == 0) {
		rope->scaling = ARCH_ROPE_LINEAR;
	} else if (strcmp(type, "llama3") == 0) {
		rope->scaling = ARCH_ROPE_LLAMA3;
		rope->low_freq = number_in(r, scaling, "low_freq_factor", 1e-3, 1e3, 1);
		rope->high_freq = number_in(r, scaling, "high_freq_factor", 1e-3, 1e3, 4);
		if (!(rope->high_freq > rope->low_freq))
			fault(r, SL_EINVAL, "high_freq_factor", "is not above low_freq_factor");
	} else if (strcmp(type, "yarn") == 0) {
		read_yarn(r, scaling, rope);
		/* The file may state the context before scaling. */
		if (original * rope->factor > a->n_ctx && original * rope->factor <= ARCH_MAX_CTX)
			a->n_ctx = (int)(original * rope->factor);
	} else {
		fault(r, SL_EUNSUPPORTED, "rope_scaling",
		      "has a type that this version does not support (supported: linear, "
		      "llama3, yarn, longrope)");
	}
}

/* Older files have rope_theta and rope_scaling; newer ones have one object rope_parameters, which for Gemma 3 contains
 * an object for each kind of layer. */
static void read_rope(struct reader *r, struct model_arch *a, double base, double windowed_base)
{
	const json_t *p = get(r, r->config, "rope_parameters"), *windowed = get(r, p, "sliding_attention");
	if (json_is_object(get(r, p, "full_attention")))
		p = get(r, p, "full_attention");
	const json_t *scaling = p != NULL ? p : get(r, r->config, "rope_scaling");
	bool glm = strncmp(a->family, "glm4", 4) == 0;
	double partial = number_in(r, r->config, "partial_rotary_factor", 0.01, 1, glm ? 0.5 : 1);
	partial = number_in(r, p, "partial_rotary_factor", 0.01, 1, partial);
	int n_rot = (int)(partial * a->head_dim + 0.5);
	if (n_rot < 2 || n_rot % 2 != 0)
		fault(r, SL_EINVAL, "partial_rotary_factor", "gives no whole number of pairs");
	base = number_in(r, r->config, "rope_theta", 1.01, 1e12, base);
	base = number_in(r, p, "rope_theta", 1.01, 1e12, base);
	a->rope = (struct arch_rope){.n_rot = n_rot, .halves = true, .base = base};
	a->rope_windowed = a->rope;
	if (windowed_base > 0) {
		windowed_base = number_in(r, r->config, "rope_local_base_freq", 1.01, 1e12, windowed_base);
		a->rope_windowed.base = number_in(r, windowed, "rope_theta", 1.01, 1e12, windowed_base);
	}
	read_scaling(r, scaling, a, &a->rope);
	/* Only Gemma 3 rotates windowed layers differently. */
	if (windowed_base <= 0)
		a->rope_windowed = a->rope;
}

/* ---- windows ---- */

/* layer_types must follow the pattern. */
static void check_layer_types(struct reader *r, const struct model_arch *a)
{
	const json_t *types = get(r, r->config, "layer_types");
	if (types == NULL)
		return;
	if (!json_is_array(types) || json_array_size(types) != (size_t)a->n_layers) {
		fault(r, SL_EINVAL, "layer_types", "is not a list of a word for each layer");
		return;
	}
	for (int i = 0; i < a->n_layers; i++) {
		const char *type = json_string_value(json_array_get(types, (size_t)i));
		const char *want = arch_window(a, i) > 0 ? "sliding_attention" : "full_attention";
		if (type == NULL || strcmp(type, want) != 0) {
			fault(r, SL_EUNSUPPORTED, "layer_types", "has an order of layers that is not supported");
			return;
		}
	}
}

static void read_window(struct reader *r, struct model_arch *a, const char *type)
{
	if (strcmp(a->family, "gemma2") == 0) {
		a->window = get_int(r, "sliding_window", 1, ARCH_MAX_CTX, 4096);
		a->window_pattern = 2;
	} else if (strcmp(a->family, "gemma3") == 0) {
		a->window = get_int(r, "sliding_window", 1, ARCH_MAX_CTX, 4096);
		a->window_pattern = get_int(r, "_sliding_window_pattern", 1, ARCH_MAX_LAYERS, 6);
		a->window_pattern = get_int(r, "sliding_window_pattern", 1, ARCH_MAX_LAYERS, a->window_pattern);
	} else if (strncmp(type, "qwen", 4) == 0) {
		bool windowed = get_bool(r, "use_sliding_window", false);
		(void)get(r, r->config, "sliding_window"); /* no effect without use_sliding_window */
		/* Layers from max_window_layers on would be windowed, those below would not. */
		if (get_int(r, "max_window_layers", 0, ARCH_MAX_LAYERS, a->n_layers) < a->n_layers && windowed)
			fault(r, SL_EUNSUPPORTED, "use_sliding_window", "is not supported");
	} else if (strcmp(type, "llama") != 0 && get(r, r->config, "sliding_window") != NULL) {
		a->window = get_int(r, "sliding_window", 1, ARCH_MAX_CTX, 0);
	} else if (strcmp(type, "mistral") == 0 && !has(r, "sliding_window")) {
		a->window = 4096; /* the class's default */
	}
	check_layer_types(r, a);
	/* A window that never fills. Gemma 3's windowed layers keep it, because they rotate differently. */
	if (a->window >= a->n_ctx && strcmp(a->family, "gemma3") != 0)
		a->window = a->window_pattern = 0;
}

/* ---- the description ---- */

static void read_act(struct reader *r, struct model_arch *a, bool gemma)
{
	const json_t *v = gemma ? get(r, r->config, "hidden_activation") : NULL,
		     *older = get(r, r->config, "hidden_act");
	const char *act = json_string_value(v != NULL ? v : older);
	if (v != NULL && older != NULL && !json_equal(v, older))
		fault(r, SL_EUNSUPPORTED, "hidden_act", "is not what hidden_activation is");
	a->act = gemma ? ARCH_GELU_TANH : ARCH_SILU;
	if (act == NULL)
		return;
	if (strcmp(act, "gelu_pytorch_tanh") == 0)
		a->act = ARCH_GELU_TANH;
	else if (strcmp(act, "silu") == 0)
		a->act = ARCH_SILU;
	else
		fault(r, SL_EUNSUPPORTED, "hidden_act", "is not supported (supported: silu, gelu_pytorch_tanh)");
}

/* Defaults by family, from transformers' configuration classes. */
struct defaults {
	int n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff, n_ctx; /* 0: required, or derived */
	double rope_base;
};

static struct defaults defaults_of(const char *family)
{
	if (strcmp(family, "gemma3") == 0)
		return (struct defaults){26, 2304, 8, 4, 256, 9216, 131072, 1e6};
	if (strcmp(family, "gemma2") == 0)
		return (struct defaults){0, 0, 0, 0, 256, 0, 0, 1e4};
	if (strcmp(family, "qwen3") == 0)
		return (struct defaults){0, 0, 0, 0, 128, 0, 0, 1e4};
	return (struct defaults){.rope_base = 1e4};
}

static void read_shape(struct reader *r, struct model_arch *a, const struct defaults *d)
{
	a->n_layers = get_int(r, "num_hidden_layers", 1, ARCH_MAX_LAYERS, d->n_layers);
	a->n_embd = get_int(r, "hidden_size", 1, ARCH_MAX_WIDTH, d->n_embd);
	a->n_heads = get_int(r, "num_attention_heads", 1, ARCH_MAX_WIDTH, d->n_heads);
	a->n_ff = get_int(r, "intermediate_size", 1, ARCH_MAX_WIDTH, d->n_ff);
	a->n_ctx = get_int(r, "max_position_embeddings", 1, ARCH_MAX_CTX, d->n_ctx);
	if (r->rc != 0)
		return;
	a->n_kv_heads =
	    get_int(r, "num_key_value_heads", 1, a->n_heads, d->n_kv_heads > 0 ? d->n_kv_heads : a->n_heads);
	int head_dim = d->head_dim > 0 ? d->head_dim : a->n_embd / a->n_heads;
	a->head_dim = get_int(r, "head_dim", 2, 1024, head_dim >= 2 ? head_dim : 2);
	if (r->rc == 0 && (a->n_heads % a->n_kv_heads != 0 || a->head_dim % 2 != 0 || a->head_dim > 1024 ||
			   a->n_heads > ARCH_MAX_WIDTH / a->head_dim))
		fault(r, SL_EUNSUPPORTED, "num_attention_heads, num_key_value_heads, head_dim", "do not fit together");
}

/* GLM 4.5's: chosen by sigmoids and a bias, with dense layers first. */
static void read_glm_experts(struct reader *r, struct model_arch *a)
{
	struct arch_experts *x = &a->experts;
	x->n = get_int(r, "n_routed_experts", 1, KN_MAX_EXPERTS, 128);
	x->n_used = get_int(r, "num_experts_per_tok", 1, x->n < KN_MAX_EXPERTS_USED ? x->n : KN_MAX_EXPERTS_USED, 8);
	x->n_ff = get_int(r, "moe_intermediate_size", 1, ARCH_MAX_WIDTH / 64, 1408);
	x->n_ff_shared = x->n_ff * get_int(r, "n_shared_experts", 0, 64, 1);
	x->n_dense = get_int(r, "first_k_dense_replace", 0, a->n_layers, 1);
	x->scale = (float)number_in(r, r->config, "routed_scaling_factor", 1e-6, 1e6, 1);
	x->norm = get_bool(r, "norm_topk_prob", true);
	x->sigmoid = true;
	a->n_drafting = get_int(r, "num_nextn_predict_layers", 0, 8, 0);
	if (get_int(r, "n_group", 1, KN_MAX_EXPERTS, 1) != 1 || get_int(r, "topk_group", 1, KN_MAX_EXPERTS, 1) != 1)
		fault(r, SL_EUNSUPPORTED, "n_group", "above 1 is not supported");
}

/* What Granite multiplies between embeddings and logits. */
static void read_granite(struct reader *r, struct model_arch *a)
{
	a->embed_scale = (float)number_in(r, r->config, "embedding_multiplier", 1e-6, 1e6, 1);
	a->residual_scale = (float)number_in(r, r->config, "residual_multiplier", 1e-6, 1e6, 1);
	a->attn_scale = (float)number_in(r, r->config, "attention_multiplier", 1e-6, 1e3, 1);
	a->logit_scale = 1 / (float)number_in(r, r->config, "logits_scaling", 1e-6, 1e6, 1);
}

/* Layers of SmolLM3 that do not turn: the list must be that of the interval. */
static void read_no_rope(struct reader *r, struct model_arch *a)
{
	const json_t *list = get(r, r->config, "no_rope_layers");
	a->no_rope_every = get_int(r, "no_rope_layer_interval", 1, ARCH_MAX_LAYERS, 4);
	if (list == NULL)
		return;
	bool fits = json_array_size(list) == (size_t)a->n_layers;
	for (int i = 0; i < a->n_layers && fits; i++) {
		const json_t *turns = json_array_get(list, (size_t)i);
		fits = json_is_integer(turns) && (json_integer_value(turns) != 0) == arch_turns(a, i);
	}
	if (!fits)
		fault(r, SL_EUNSUPPORTED, "no_rope_layers", "is not what no_rope_layer_interval says");
}

/* What the newer families have beyond Llama. */
static void read_others(struct reader *r, const char *family, struct model_arch *a)
{
	bool seed = strcmp(family, "seed_oss") == 0, glm = strncmp(family, "glm4", 4) == 0;
	if (seed || glm)
		a->qkv_bias = get_bool(r, "attention_bias", seed);
	if (strcmp(family, "glm4moe") == 0)
		a->qk_norm = get_bool(r, "use_qk_norm", false);
	a->post_norms = a->post_norms || strcmp(family, "glm4") == 0;
	if (strcmp(family, "granite") == 0)
		read_granite(r, a);
	if (strcmp(family, "smollm3") == 0)
		read_no_rope(r, a);
}

/* The feed-forward halves of a mixture. */
static void read_experts(struct reader *r, const char *type, struct model_arch *a)
{
	struct arch_experts *x = &a->experts;
	if (strcmp(type, "glm4_moe") == 0) {
		read_glm_experts(r, a);
		return;
	}
	bool mixtral = strcmp(type, "mixtral") == 0, olmoe = strcmp(type, "olmoe") == 0;
	bool qwen2 = strcmp(type, "qwen2_moe") == 0, qwen3 = strcmp(type, "qwen3_moe") == 0;
	if (!mixtral && !olmoe && !qwen2 && !qwen3)
		return;
	int n = mixtral ? 8 : olmoe ? 64 : qwen2 ? 60 : 128, used = mixtral ? 2 : qwen2 ? 4 : 8;
	x->n = get_int(r, mixtral ? "num_local_experts" : "num_experts", 1, KN_MAX_EXPERTS, n);
	int most = x->n < KN_MAX_EXPERTS_USED ? x->n : KN_MAX_EXPERTS_USED;
	x->n_used = get_int(r, "num_experts_per_tok", 1, most, used <= most ? used : most);
	x->norm = mixtral || get_bool(r, "norm_topk_prob", false);
	x->n_ff = a->n_ff;
	x->scale = 1;
	if (qwen2 || qwen3) {
		x->n_ff = get_int(r, "moe_intermediate_size", 1, ARCH_MAX_WIDTH, qwen2 ? 1408 : 768);
		if (get_int(r, "decoder_sparse_step", 1, ARCH_MAX_LAYERS, 1) != 1)
			fault(r, SL_EUNSUPPORTED, "decoder_sparse_step", "is not supported (supported: 1)");
	}
	if (qwen2) {
		x->n_ff_shared = get_int(r, "shared_expert_intermediate_size", 1, ARCH_MAX_WIDTH, 5632);
		x->shared_gate = true;
	}
}

/* Requires a model that generates text, not a classifier or another architecture with the same layers. */
static void read_kind(struct reader *r, const struct hf_folder *folder, const char *family)
{
	const json_t *classes = json_object_get(hf_root(folder), "architectures"),
		     *inner = get(r, r->config, "model_type");
	for (size_t i = 0; i < json_array_size(classes); i++) {
		const char *name = json_string_value(json_array_get(classes, i));
		if (name == NULL || (!text_ends(name, "ForCausalLM") && !text_ends(name, "ForConditionalGeneration")))
			fault(r, SL_EUNSUPPORTED, "architectures",
			      "names a class that is not supported (supported: …ForCausalLM, "
			      "…ForConditionalGeneration)");
	}
	const char *text = json_string_value(inner), *other = text != NULL ? hf_family(text) : family;
	if (other == NULL || strcmp(other, family) != 0)
		fault(r, SL_EUNSUPPORTED, "model_type", "of text_config is another family's");
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
static void read_encoder_kind(struct reader *r, const struct hf_folder *folder, struct model_arch *a)
{
	const json_t *classes = json_object_get(hf_root(folder), "architectures");
	const char *name = json_string_value(json_array_get(classes, 0));
	if (r->rc == 0)
		r->rc = hf_pooling(folder, &a->pooling, r->err);
	if (name != NULL && is_class(name, "ForSequenceClassification")) {
		size_t n = json_object_size(get(r, r->config, "id2label"));
		if (n != 1 && get_int(r, "num_labels", 1, INT32_MAX, n > 0 ? (int)n : 2) != 1)
			fault(r, SL_EUNSUPPORTED, "num_labels", "is not 1: only models with one score are supported");
		a->pooling = ARCH_POOL_RANK;
	} else if (name == NULL || (!is_class(name, "Model") && !is_class(name, "ForMaskedLM"))) {
		fault(r, SL_EUNSUPPORTED, "architectures",
		      "names a class that is not supported (supported: BertModel, RobertaModel, XLMRobertaModel, their "
		      "…ForMaskedLM and …ForSequenceClassification)");
	} else if (a->pooling == ARCH_POOL_NONE) {
		a->pooling = ARCH_POOL_MEAN;
	}
}

/* As vLLM reads it: either key declares it. */
static void read_lengths(struct reader *r, struct model_arch *a)
{
	const json_t *list = get(r, r->config, "matryoshka_dimensions"), *it;
	size_t i;
	a->shortens = get_bool(r, "is_matryoshka", false) || json_array_size(list) > 0;
	json_array_foreach(list, i, it)
	{
		if (!json_is_integer(it) || json_integer_value(it) < 1 || json_integer_value(it) > a->n_embd ||
		    i >= ARCH_MAX_LENGTHS) {
			fault(r, SL_EINVAL, "matryoshka_dimensions", "is not a list of up to 16 vector lengths");
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

static int read_encoder(struct reader *r, const struct hf_folder *folder, struct model_arch *a)
{
	const char *act = json_string_value(get(r, r->config, "hidden_act")), *type = hf_model_type(folder),
		   *positions = json_string_value(get(r, r->config, "position_embedding_type"));
	struct defaults d = {12, 768, 12, 0, 0, 3072, 512, 0};
	read_shape(r, a, &d);
	a->encoder = a->qkv_bias = a->tied_embeddings = true;
	a->rms_eps = (float)number_in(r, r->config, "layer_norm_eps", 1e-30, 0.1, 1e-12);
	a->attn_scale = r->rc == 0 ? 1.0f / sqrtf((float)a->head_dim) : 1;
	if (act != NULL && strcmp(act, "gelu") != 0)
		fault(r, SL_EUNSUPPORTED, "hidden_act", "is not supported (supported: gelu)");
	if (positions != NULL && strcmp(positions, "absolute") != 0)
		fault(r, SL_EUNSUPPORTED, "position_embedding_type", "is not supported (supported: absolute)");
	if (get_bool(r, "is_decoder", false))
		fault(r, SL_EUNSUPPORTED, "is_decoder", "is true, which is not supported");
	/* RoBERTa counts positions from after the padding's. */
	int padding = get_int(r, "pad_token_id", 0, ARCH_MAX_CTX - 1, 1);
	a->first_pos = strcmp(type, "bert") == 0 ? 0 : padding + 1;
	a->n_ctx -= a->first_pos;
	int n_pos = table_rows(r->file, "position_embd.weight") - a->first_pos;
	a->n_ctx = n_pos < a->n_ctx ? n_pos : a->n_ctx;
	if (a->n_ctx < 1)
		fault(r, SL_EINVAL, "max_position_embeddings", "leaves no positions");
	a->n_types = table_rows(r->file, "token_types.weight");
	(void)get_int(r, "type_vocab_size", 0, ARCH_MAX_CTX, 0); /* according to the shape of the table */
	a->n_vocab = table_rows(r->file, "token_embd.weight");
	if (a->n_vocab < 1 || a->n_vocab > ARCH_MAX_VOCAB)
		fault(r, SL_EINVAL, "vocab_size", "has no proper tensor word_embeddings.weight");
	read_encoder_kind(r, folder, a);
	read_lengths(r, a);
	a->rank_dense = a->pooling == ARCH_POOL_RANK && model_file_find(r->file, "cls.weight") != NULL;
	return r->rc != 0 ? r->rc : arch_check_hf(&r->seen, folder, a, r->err);
}

static void read_pooling(struct reader *r, const struct hf_folder *folder, struct model_arch *a)
{
	if (r->rc == 0)
		r->rc = hf_pooling(folder, &a->pooling, r->err);
	if (a->pooling == ARCH_POOL_CLS && r->rc == 0)
		r->rc = sl_errf(r->err, SL_EUNSUPPORTED,
				"%s/1_Pooling/config.json: the first row of a decoder sees nothing", r->path);
}

int arch_read_hf(const struct model_file *f, const struct hf_folder *folder, struct model_arch *a, struct sl_err *err)
{
	struct reader r = {.file = f, .config = hf_config(folder), .path = hf_path(folder), .err = err};
	const char *type = hf_model_type(folder), *family = hf_family(type);
	if (family == NULL)
		return sl_errf(err, SL_EUNSUPPORTED,
			       "%s/config.json: model_type \"%s\" is not supported (supported: llama, mistral, qwen2, "
			       "qwen3, mixtral, qwen2_moe, qwen3_moe, olmoe, smollm3, granite, seed_oss, ernie4_5, "
			       "glm4, glm4_moe, phi3, gemma2, gemma3, bert, roberta, "
			       "xlm-roberta)",
			       r.path, type);
	*a = (struct model_arch){.embed_scale = 1, .residual_scale = 1, .logit_scale = 1};
	snprintf(a->family, sizeof a->family, "%s", family);
	if (strcmp(family, "bert") == 0)
		return read_encoder(&r, folder, a);
	bool gemma = strncmp(family, "gemma", 5) == 0;
	struct defaults d = defaults_of(family);
	read_shape(&r, a, &d);
	if (r.rc != 0)
		return r.rc;
	a->rms_eps = (float)number_in(
	    &r, r.config, "rms_norm_eps", 1e-12, 0.1,
	    strcmp(family, "phi3") == 0 || strcmp(family, "olmoe") == 0 || strcmp(type, "mixtral") == 0 ? 1e-5 : 1e-6);
	read_act(&r, a, gemma);
	read_experts(&r, type, a);
	a->qkv_bias =
	    strcmp(family, "qwen2") == 0 || (strcmp(family, "qwen2moe") == 0 && get_bool(&r, "qkv_bias", true));
	a->qk_norm_row = strcmp(family, "olmoe") == 0;
	a->qk_norm = a->qk_norm_row || strncmp(family, "qwen3", 5) == 0 || strcmp(family, "gemma3") == 0;
	a->post_norms = gemma;
	a->attn_scale = 1.0f / sqrtf((float)a->head_dim);
	read_others(&r, family, a);
	if (gemma) {
		a->norm_gain_offset = 1;
		a->embed_scale = sqrtf((float)a->n_embd);
		a->attn_scale = (float)(1 / sqrt(number_in(&r, r.config, "query_pre_attn_scalar", 1, 1e6, 256)));
	}
	if (gemma) { /* absent: the class's default; null: none */
		bool gemma2 = strcmp(family, "gemma2") == 0;
		double attn = gemma2 && !has(&r, "attn_logit_softcapping") ? 50 : 0;
		double final = gemma2 && !has(&r, "final_logit_softcapping") ? 30 : 0;
		a->attn_softcap = (float)number_in(&r, r.config, "attn_logit_softcapping", 0.1, 1e4, attn);
		a->final_softcap = (float)number_in(&r, r.config, "final_logit_softcapping", 0.1, 1e4, final);
	}
	read_kind(&r, folder, family);
	if (get_bool(&r, "attention_bias", false) && !a->qkv_bias)
		fault(&r, SL_EUNSUPPORTED, "attention_bias", "is not supported");
	if (get_bool(&r, "mlp_bias", false))
		fault(&r, SL_EUNSUPPORTED, "mlp_bias", "is not supported");
	read_rope(&r, a, d.rope_base, strcmp(family, "gemma3") == 0 ? 1e4 : 0);
	/* Folders of these keep pairs side by side. */
	a->rope.halves = a->rope_windowed.halves = strcmp(family, "glm4") != 0 && strcmp(family, "ernie4_5") != 0;
	read_window(&r, a, type);
	read_pooling(&r, folder, a);
	read_lengths(&r, a);
	if (r.rc != 0)
		return r.rc;
	const struct model_tensor *embed = model_file_find(f, "token_embd.weight");
	if (embed == NULL || embed->n_dims != 2 || embed->dims[1] > ARCH_MAX_VOCAB)
		return sl_errf(err, SL_EINVAL, "%s: no proper tensor embed_tokens.weight", r.path);
	a->n_vocab = (int)embed->dims[1];
	a->tied_embeddings = model_file_find(f, "output.weight") == NULL;
	if (a->tied_embeddings && json_is_false(get(&r, r.config, "tie_word_embeddings"))) {
		fault(&r, SL_EINVAL, "tie_word_embeddings", "is false, but there is no lm_head.weight");
		return r.rc;
	}
	return arch_check_hf(&r.seen, folder, a, err);
}
