/* SPDX-License-Identifier: Apache-2.0
 *
 * From config.json: rotary embedding with its ways of stretching, and windows.
 */
#include <math.h>
#include <string.h>

#include "engine/source/arch_conf.h"

/* ---- rope ---- */

static void read_factors(struct conf *r, const json_t *list, const char *key, struct arch_rope *rope)
{
	if (!json_is_array(list) || json_array_size(list) != (size_t)rope->n_rot / 2 ||
	    rope->n_rot / 2 > ARCH_MAX_ROT) {
		conf_fault(r, SL_EINVAL, key, "is not a list of a factor for each pair");
		return;
	}
	rope->n_factors = rope->n_rot / 2;
	for (int i = 0; i < rope->n_factors; i++) {
		const json_t *v = json_array_get(list, (size_t)i);
		double x = json_number_value(v);
		if (!json_is_number(v) || !(x > 0 && x < 1e6))
			conf_fault(r, SL_EINVAL, key, "has a factor that is not possible");
		rope->factors[i] = (float)x;
	}
}

/* The model's full context selects the list, not the prompt's length: a sequence must not change its angles while it
 * grows. */
static void read_longrope(struct conf *r, const json_t *scaling, int n_ctx, struct arch_rope *rope)
{
	int original =
	    conf_int(r, "original_max_position_embeddings", 1, ARCH_MAX_CTX,
		     (int)conf_number(r, scaling, "original_max_position_embeddings", 1, ARCH_MAX_CTX, n_ctx));
	bool is_long = n_ctx > original;
	const char *key = is_long ? "long_factor" : "short_factor";
	rope->scaling = ARCH_ROPE_LONGROPE;
	rope->original_ctx = original;
	read_factors(r, conf_get(r, scaling, key), key, rope);
	double factor = conf_number(r, scaling, "factor", 1, 1024, (double)n_ctx / original), magnitude = 1;
	if (factor > 1 && original > 1)
		magnitude = sqrt(1 + log(factor) / log(original));
	magnitude = conf_number(r, scaling, is_long ? "long_mscale" : "short_mscale", 0.01, 100, magnitude);
	rope->magnitude = conf_number(r, scaling, "attention_factor", 0.01, 100, magnitude);
	(void)conf_get(r, scaling, is_long ? "short_mscale" : "long_mscale");
	(void)conf_get(r, scaling, is_long ? "short_factor" : "long_factor"); /* read: the list for other contexts */
}

/* The magnitude of sine and cosine for a context factor: the paper's rule times mscale. */
static double sharper(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1; }

/* transformers requires mscale and mscale_all_dim together or neither. With only one of them, transformers and
 * DeepSeek's own code differ, except for the values accepted here. */
static void read_yarn(struct conf *r, const json_t *scaling, struct arch_rope *rope)
{
	double mscale = conf_number(r, scaling, "mscale", 0, 100, -1),
	       all = conf_number(r, scaling, "mscale_all_dim", 0, 100, -1), given = 0;
	const json_t *truncate = conf_get(r, scaling, "truncate");
	rope->scaling = ARCH_ROPE_YARN;
	rope->beta_fast = conf_number(r, scaling, "beta_fast", 0, 1e4, 32);
	rope->beta_slow = conf_number(r, scaling, "beta_slow", 0, 1e4, 1);
	rope->beta_fast = rope->beta_fast > 0 ? rope->beta_fast : 32;
	rope->beta_slow = rope->beta_slow > 0 ? rope->beta_slow : 1;
	if (!(rope->beta_fast >= rope->beta_slow))
		conf_fault(r, SL_EINVAL, "beta_fast", "is below beta_slow");
	if (truncate != NULL && !json_is_boolean(truncate))
		conf_fault(r, SL_EINVAL, "truncate", "is not true or false");
	rope->fractional = json_is_false(truncate);
	if (mscale >= 0 && all < 0 && mscale != 1)
		conf_fault(r, SL_EUNSUPPORTED, "mscale", "is not supported without mscale_all_dim");
	if (all > 0 && mscale < 0)
		conf_fault(r, SL_EUNSUPPORTED, "mscale_all_dim", "is not supported without mscale");
	if (mscale > 0 && all > 0)
		given = sharper(rope->factor, mscale) / sharper(rope->factor, all);
	rope->magnitude = conf_number(r, scaling, "attention_factor", 0.01, 100, given);
	rope->all_dim = all > 0 ? all : 0;
}

static void read_scaling(struct conf *r, const json_t *scaling, struct model_arch *a, struct arch_rope *rope)
{
	const char *word = conf_text(r, scaling, "rope_type"), *older = conf_text(r, scaling, "type");
	const char *type = word != NULL ? word : older;
	if (type == NULL || strcmp(type, "default") == 0)
		return;
	double most = 1024, original = a->n_ctx;
	original = conf_number(r, scaling, "original_max_position_embeddings", 1, ARCH_MAX_CTX, original);
	rope->original_ctx = (int)original;
	if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0) {
		read_longrope(r, scaling, a->n_ctx, rope);
		return;
	}
	rope->factor = conf_number(r, scaling, "factor", 1, most, 0);
	if (rope->factor < 1)
		conf_fault(r, SL_EINVAL, "factor", "of the rope scaling is missing");
	if (strcmp(type, "linear") == 0) {
		rope->scaling = ARCH_ROPE_LINEAR;
	} else if (strcmp(type, "llama3") == 0) {
		rope->scaling = ARCH_ROPE_LLAMA3;
		rope->low_freq = conf_number(r, scaling, "low_freq_factor", 1e-3, 1e3, 1);
		rope->high_freq = conf_number(r, scaling, "high_freq_factor", 1e-3, 1e3, 4);
		if (!(rope->high_freq > rope->low_freq))
			conf_fault(r, SL_EINVAL, "high_freq_factor", "is not above low_freq_factor");
	} else if (strcmp(type, "yarn") == 0) {
		read_yarn(r, scaling, rope);
		/* The file may state the context before scaling. */
		if (original * rope->factor > a->n_ctx && original * rope->factor <= ARCH_MAX_CTX)
			a->n_ctx = (int)(original * rope->factor);
	} else {
		conf_fault(r, SL_EUNSUPPORTED, "rope_scaling",
			   "has a type that this version does not support (supported: linear, "
			   "llama3, yarn, longrope)");
	}
}

/* Queries that grow with their positions: Ministral 3. */
static void read_growth(struct conf *r, const json_t *scaling, struct arch_rope *rope)
{
	rope->grow = (float)conf_number(r, scaling, "llama_4_scaling_beta", 0, 100, 0);
	rope->grow_every = rope->original_ctx;
	if (rope->grow > 0 && rope->original_ctx < 1)
		conf_fault(r, SL_EINVAL, "llama_4_scaling_beta", "needs original_max_position_embeddings");
}

/* Older files have rope_theta and rope_scaling; newer ones have one object rope_parameters, which for Gemma 3 contains
 * an object for each kind of layer. */
void conf_rope(struct conf *r, struct model_arch *a, double base, double windowed_base)
{
	const json_t *p = conf_object(r, r->config, "rope_parameters"),
		     *windowed = conf_object(r, p, "sliding_attention"), *full = conf_object(r, p, "full_attention");
	p = full != NULL ? full : p;
	const json_t *scaling = p != NULL ? p : conf_object(r, r->config, "rope_scaling");
	bool glm = strncmp(a->family, "glm4", 4) == 0;
	bool neox = strcmp(a->family, "gptneox") == 0;
	bool quarter = neox || r->family->mixer == ARCH_DELTA;
	double partial = conf_number(r, r->config, "partial_rotary_factor", 0.01, 1, glm ? 0.5 : quarter ? 0.25 : 1);
	if (neox)
		partial = conf_number(r, r->config, "rotary_pct", 0.01, 1, partial);
	if (strcmp(a->family, "minimax-m2") == 0)
		partial = conf_number(r, r->config, "rotary_dim", 2, a->head_dim, partial * a->head_dim) / a->head_dim;
	partial = conf_number(r, p, "partial_rotary_factor", 0.01, 1, partial);
	int n_rot = (int)(partial * a->head_dim + 0.5);
	if (n_rot < 2 || n_rot % 2 != 0)
		conf_fault(r, SL_EINVAL, "partial_rotary_factor", "gives no whole number of pairs");
	if (neox)
		base = conf_number(r, r->config, "rotary_emb_base", 1.01, 1e12, base);
	base = conf_number(r, r->config, "rope_theta", 1.01, 1e12, base);
	base = conf_number(r, p, "rope_theta", 1.01, 1e12, base);
	a->rope = (struct arch_rope){.n_rot = n_rot, .halves = true, .base = base};
	a->rope_windowed = a->rope;
	if (windowed_base > 0) {
		windowed_base = conf_number(r, r->config, "rope_local_base_freq", 1.01, 1e12, windowed_base);
		a->rope_windowed.base = conf_number(r, windowed, "rope_theta", 1.01, 1e12, windowed_base);
	}
	read_scaling(r, scaling, a, &a->rope);
	if (r->family->grows)
		read_growth(r, scaling, &a->rope);
	/* Gemma 3 and OLMo 3 rotate windowed layers differently. */
	if (windowed_base <= 0 && !r->family->windowed_plain)
		a->rope_windowed = a->rope;
}

/* ---- windows ---- */

/* layer_types must follow the pattern. */
static void check_layer_types(struct conf *r, const struct model_arch *a)
{
	const json_t *types = conf_get(r, r->config, "layer_types");
	if (types == NULL || r->family->mixer != ARCH_ATTENTION) /* which reads it itself */
		return;
	if (!json_is_array(types) || json_array_size(types) != (size_t)a->n_layers) {
		conf_fault(r, SL_EINVAL, "layer_types", "is not a list of a word for each layer");
		return;
	}
	for (int i = 0; i < a->n_layers; i++) {
		const char *type = json_string_value(json_array_get(types, (size_t)i));
		const char *windowed = a->window_chunked ? "chunked_attention" : "sliding_attention",
			   *want = arch_window(a, i) > 0 ? windowed : "full_attention";
		if (type == NULL || strcmp(type, want) != 0) {
			conf_fault(r, SL_EUNSUPPORTED, "layer_types", "has an order of layers that is not supported");
			return;
		}
	}
}

void conf_window(struct conf *r, struct model_arch *a, const char *type)
{
	if (strcmp(a->family, "gemma2") == 0) {
		a->window = conf_int(r, "sliding_window", 1, ARCH_MAX_CTX, 4096);
		a->window_pattern = 2;
	} else if (strcmp(a->family, "gemma3") == 0) {
		a->window = conf_int(r, "sliding_window", 1, ARCH_MAX_CTX, 4096);
		a->window_pattern = conf_int(r, "_sliding_window_pattern", 1, ARCH_MAX_LAYERS, 6);
		a->window_pattern = conf_int(r, "sliding_window_pattern", 1, ARCH_MAX_LAYERS, a->window_pattern);
	} else if (strcmp(a->family, "gpt-oss") == 0) {
		a->window = conf_int(r, "sliding_window", 1, ARCH_MAX_CTX, 128);
		a->window_pattern = 2;
	} else if (strcmp(type, "olmo3") == 0 || strcmp(type, "cohere2") == 0) {
		a->window = conf_int(r, "sliding_window", 1, ARCH_MAX_CTX, 4096);
		a->window_pattern = conf_int(r, "_sliding_window_pattern", 1, ARCH_MAX_LAYERS, 4);
		a->window_pattern = conf_int(r, "sliding_window_pattern", 1, ARCH_MAX_LAYERS, a->window_pattern);
	} else if (r->family->chunks) {
		/* null: none */
		int absent = conf_has(r, "attention_chunk_size") ? 0 : ARCH_LLAMA4_CHUNK;
		a->window = conf_int(r, "attention_chunk_size", 1, ARCH_MAX_CTX, absent);
		a->window_pattern = a->no_rope_every;
	} else if (strncmp(type, "qwen", 4) == 0) {
		bool windowed = conf_bool(r, "use_sliding_window", false);
		(void)conf_get(r, r->config, "sliding_window"); /* no effect without use_sliding_window */
		/* Layers from max_window_layers on would be windowed, those below would not. */
		if (conf_int(r, "max_window_layers", 0, ARCH_MAX_LAYERS, a->n_layers) < a->n_layers && windowed)
			conf_fault(r, SL_EUNSUPPORTED, "use_sliding_window", "is not supported");
	} else if (strcmp(type, "llama") != 0 && conf_get(r, r->config, "sliding_window") != NULL) {
		a->window = conf_int(r, "sliding_window", 1, ARCH_MAX_CTX, 0);
	} else if (strcmp(type, "mistral") == 0 && !conf_has(r, "sliding_window")) {
		a->window = 4096; /* the class's default */
	}
	check_layer_types(r, a);
	/* A window that never fills is none, except where it decides how a layer rotates. */
	bool decides = a->no_rope_full || strcmp(a->family, "gemma3") == 0 || r->family->windowed_plain;
	if (a->window >= a->n_ctx && !decides)
		a->window = a->window_pattern = 0;
}
