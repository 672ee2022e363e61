/* SPDX-License-Identifier: Apache-2.0
 *
 * A family's description from the keys of a GGUF head ("llama.block_count" and its like). Every
 * number is held to a range before anybody multiplies with it; a key that would change the answers
 * and is not built is refused by name. Source: the GGUF specification in the ggml repository.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/arch_read.h"
#include "kernels/kernels.h"

/* What a family is, apart from what its file says in keys. */
struct family {
	const char *name;
	bool halves, qkv_bias, qk_norm, post_norms, gelu, scaled_embed;
	int window_pattern; /* when there is a window: 0 every layer */
	/* Gemma scales q·k by the width of the largest model's heads, which is not n_embd / n_heads. */
	int odd_scale_layers; /* so many layers: by n_embd / n_heads after all */
};

static const struct family families[] = {
    {.name = "llama"},
    {.name = "qwen2", .halves = true, .qkv_bias = true},
    {.name = "qwen3", .halves = true, .qk_norm = true},
    {.name = "phi3", .halves = true},
    {.name = "gemma2", .halves = true, .gelu = true, .scaled_embed = true, .post_norms = true,
     .window_pattern = 2, .odd_scale_layers = 46},
    {.name = "gemma3", .halves = true, .gelu = true, .scaled_embed = true, .post_norms = true, .qk_norm = true,
     .window_pattern = 6, .odd_scale_layers = 62},
};

static int get_int(const struct gguf *g, const char *family, const char *field, int lo, int hi, int *out,
		   struct sl_err *err)
{
	char key[96];
	uint32_t v;
	snprintf(key, sizeof key, "%s.%s", family, field);
	int rc = gguf_get_u32(g, key, &v, err);
	if (rc != 0)
		return rc;
	if (v < (uint32_t)lo || v > (uint32_t)hi)
		return sl_errf(err, SL_EINVAL, "%s: %s is %u, not from %d to %d", gguf_path(g), key, v, lo, hi);
	*out = (int)v;
	return 0;
}

/* As get_int, but an absent key leaves *out as it is. */
static int get_int_or(const struct gguf *g, const char *family, const char *field, int lo, int hi, int *out,
		      struct sl_err *err)
{
	int rc = get_int(g, family, field, lo, hi, out, err);
	return rc == SL_ENOTFOUND ? 0 : rc;
}

/* A float that may be absent; SL_EINVAL outside of lo…hi. */
static int get_float_or(const struct gguf *g, const char *family, const char *field, double lo, double hi,
			double *out, struct sl_err *err)
{
	char key[96];
	float v;
	snprintf(key, sizeof key, "%s.%s", family, field);
	int rc = gguf_get_f32(g, key, &v, err);
	if (rc == SL_ENOTFOUND)
		return 0;
	if (rc != 0)
		return rc;
	if (!(v >= lo && v <= hi))
		return sl_errf(err, SL_EINVAL, "%s: %s is %g", gguf_path(g), key, (double)v);
	*out = v;
	return 0;
}

/* ---- rotary embedding ---- */

/* Divisors of the frequencies, computed by whoever wrote the file. */
static int read_factors(const struct model_file *f, const char *name, struct arch_rope *r, struct sl_err *err)
{
	const struct model_tensor *t = model_file_find(f, name);
	int n = r->n_rot / 2;
	if (t == NULL)
		return 0;
	if (t->type != KN_F32 || t->n_dims != 1 || t->dims[0] != (uint64_t)n || n > ARCH_MAX_ROT)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s is not a vector of %d F32", model_file_path(f), name, n);
	memcpy(r->factors, t->data, (size_t)n * sizeof *r->factors);
	for (int i = 0; i < n; i++)
		if (!(r->factors[i] > 1e-6f && r->factors[i] < 1e9f))
			return sl_errf(err, SL_EINVAL, "%s: tensor %s has the divisor %g", model_file_path(f), name,
				       (double)r->factors[i]);
	r->n_factors = n;
	return 0;
}

static bool is_word(struct proto_str s, const char *word)
{
	return s.n == strlen(word) && memcmp(s.at, word, s.n) == 0;
}

static int read_yarn(const struct gguf *g, const char *family, struct arch_rope *r, struct sl_err *err)
{
	double sharper = 1;
	r->scaling = ARCH_ROPE_YARN;
	r->beta_fast = 32;
	r->beta_slow = 1;
	int rc = get_int(g, family, "rope.scaling.original_context_length", 1, ARCH_MAX_CTX, &r->original_ctx, err);
	if (rc == 0)
		rc = get_float_or(g, family, "rope.scaling.yarn_beta_fast", 0.01, 1e6, &r->beta_fast, err);
	if (rc == 0)
		rc = get_float_or(g, family, "rope.scaling.yarn_beta_slow", 0.01, 1e6, &r->beta_slow, err);
	if (rc == 0)
		rc = get_float_or(g, family, "rope.scaling.attn_factor", 0.01, 100, &sharper, err);
	r->magnitude = sharper != 1 ? sharper * (0.1 * log(r->factor) + 1) : 0;
	return rc;
}

static int read_rope_scaling(const struct gguf *g, const char *family, struct arch_rope *r, struct sl_err *err)
{
	char key[96];
	float old;
	snprintf(key, sizeof key, "%s.rope.scale_linear", family);
	if (gguf_get_f32(g, key, &old, err) != SL_ENOTFOUND)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: %s is not supported (supported: rope.scaling.factor)",
			       gguf_path(g), key);
	struct proto_str scaling;
	snprintf(key, sizeof key, "%s.rope.scaling.type", family);
	int rc = gguf_get_str(g, key, &scaling, err);
	if (rc == SL_ENOTFOUND || (rc == 0 && is_word(scaling, "none")))
		return 0;
	if (rc != 0)
		return rc;
	if (is_word(scaling, "longrope"))
		return 0; /* by its factors */
	if (!is_word(scaling, "linear") && !is_word(scaling, "yarn"))
		return sl_errf(err, SL_EUNSUPPORTED,
			       "%s: rope scaling \"%.*s\" is not supported (supported: linear, yarn, longrope)",
			       gguf_path(g), (int)(scaling.n > 40 ? 40 : scaling.n), scaling.at);
	r->factor = 0;
	rc = get_float_or(g, family, "rope.scaling.factor", 1, 1024, &r->factor, err);
	if (rc == 0 && r->factor == 0)
		return sl_errf(err, SL_EINVAL, "%s: %s.rope.scaling.factor is missing", gguf_path(g), family);
	r->scaling = ARCH_ROPE_LINEAR;
	return rc == 0 && is_word(scaling, "yarn") ? read_yarn(g, family, r, err) : rc;
}

static int read_longrope(const struct model_file *f, struct model_arch *a, struct sl_err *err)
{
	const struct gguf *g = model_file_gguf(f);
	struct arch_rope *r = &a->rope;
	if (model_file_find(f, "rope_factors_long.weight") == NULL)
		return 0;
	r->scaling = ARCH_ROPE_LONGROPE;
	int rc = get_int(g, a->family, "rope.scaling.original_context_length", 1, ARCH_MAX_CTX, &r->original_ctx, err);
	if (rc == 0)
		rc = get_float_or(g, a->family, "rope.scaling.attn_factor", 0.01, 100, &r->magnitude, err);
	bool far = a->n_ctx > r->original_ctx;
	return rc != 0 ? rc : read_factors(f, far ? "rope_factors_long.weight" : "rope_factors_short.weight", r, err);
}

static int read_rope(const struct model_file *f, const struct family *family, struct model_arch *a,
		     struct sl_err *err)
{
	const struct gguf *g = model_file_gguf(f);
	bool gemma3 = strcmp(a->family, "gemma3") == 0;
	a->rope = (struct arch_rope){.n_rot = a->head_dim, .halves = family->halves, .base = gemma3 ? 1e6 : 10000};
	int rc = get_int_or(g, a->family, "rope.dimension_count", 2, a->head_dim, &a->rope.n_rot, err);
	if (rc != 0)
		return rc;
	if (a->rope.n_rot % 2 != 0)
		return sl_errf(err, SL_EINVAL, "%s: %s.rope.dimension_count %d is odd", gguf_path(g), a->family,
			       a->rope.n_rot);
	rc = get_float_or(g, a->family, "rope.freq_base", 1.001, 1e12, &a->rope.base, err);
	if (rc == 0)
		rc = read_rope_scaling(g, a->family, &a->rope, err);
	if (rc == 0)
		rc = read_factors(f, "rope_freqs.weight", &a->rope, err);
	if (rc == 0)
		rc = read_longrope(f, a, err);
	a->rope_windowed = a->rope;
	if (gemma3) { /* layers with a window keep the plain embedding of short contexts */
		a->rope_windowed = (struct arch_rope){.n_rot = a->rope.n_rot, .halves = true, .base = 10000};
		if (rc == 0)
			rc = get_float_or(g, a->family, "rope.freq_base_swa", 1.001, 1e12, &a->rope_windowed.base, err);
	}
	return rc;
}

/* ---- the whole ---- */

static const struct family *find_family(struct proto_str name)
{
	for (size_t i = 0; i < sizeof families / sizeof *families; i++)
		if (is_word(name, families[i].name))
			return &families[i];
	return NULL;
}

static int unknown_family(const struct gguf *g, struct proto_str name, struct sl_err *err)
{
	char known[160];
	size_t n = 0;
	for (size_t i = 0; i < sizeof families / sizeof *families; i++)
		n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i > 0 ? ", " : "", families[i].name);
	return sl_errf(err, SL_EUNSUPPORTED, "%s: architecture \"%.*s\" is not supported (supported: %s)",
		       gguf_path(g), (int)(name.n > 40 ? 40 : name.n), name.at, known);
}

static int read_shape(const struct gguf *g, struct model_arch *a, struct sl_err *err)
{
	int n_experts = 0, rc;
	if ((rc = get_int(g, a->family, "block_count", 1, ARCH_MAX_LAYERS, &a->n_layers, err)) != 0 ||
	    (rc = get_int(g, a->family, "embedding_length", 1, ARCH_MAX_WIDTH, &a->n_embd, err)) != 0 ||
	    (rc = get_int(g, a->family, "attention.head_count", 1, a->n_embd, &a->n_heads, err)) != 0 ||
	    (rc = get_int(g, a->family, "feed_forward_length", 1, ARCH_MAX_WIDTH, &a->n_ff, err)) != 0 ||
	    (rc = get_int(g, a->family, "context_length", 1, ARCH_MAX_CTX, &a->n_ctx, err)) != 0 ||
	    (rc = get_int_or(g, a->family, "expert_count", 0, 1 << 16, &n_experts, err)) != 0)
		return rc;
	if (n_experts > 0)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: models of experts (%d) are not supported", gguf_path(g),
			       n_experts);
	a->n_kv_heads = a->n_heads;
	a->head_dim = a->n_embd / a->n_heads;
	if ((rc = get_int_or(g, a->family, "attention.head_count_kv", 1, a->n_heads, &a->n_kv_heads, err)) != 0 ||
	    (rc = get_int_or(g, a->family, "attention.key_length", 1, 1024, &a->head_dim, err)) != 0)
		return rc;
	int value_dim = a->head_dim;
	if ((rc = get_int_or(g, a->family, "attention.value_length", 1, 1024, &value_dim, err)) != 0)
		return rc;
	if (a->n_heads % a->n_kv_heads != 0 || value_dim != a->head_dim || a->head_dim > 1024 || a->head_dim % 2 != 0)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: %d heads, %d KV heads, keys of %d and values of %d",
			       gguf_path(g), a->n_heads, a->n_kv_heads, a->head_dim, value_dim);
	return 0;
}

static int read_attention(const struct gguf *g, const struct family *family, struct model_arch *a,
			  struct sl_err *err)
{
	double softcap = 0, final = 0;
	int rc = get_int_or(g, a->family, "attention.sliding_window", 1, ARCH_MAX_CTX, &a->window, err);
	if (rc == 0)
		rc = get_float_or(g, a->family, "attn_logit_softcapping", 0, 1e6, &softcap, err);
	if (rc == 0)
		rc = get_float_or(g, a->family, "final_logit_softcapping", 0, 1e6, &final, err);
	a->window_pattern = family->window_pattern;
	if (rc == 0)
		rc = get_int_or(g, a->family, "attention.sliding_window_pattern", 1, ARCH_MAX_LAYERS,
				&a->window_pattern, err);
	a->attn_softcap = (float)softcap;
	a->final_softcap = (float)final;
	int by = family->odd_scale_layers > 0 && a->n_layers == family->odd_scale_layers ? a->n_embd / a->n_heads
											 : a->head_dim;
	a->attn_scale = 1.0f / sqrtf((float)by);
	return rc;
}

int arch_read_gguf(const struct model_file *f, struct model_arch *a, struct sl_err *err)
{
	const struct gguf *g = model_file_gguf(f);
	struct proto_str name;
	int rc = gguf_get_str(g, "general.architecture", &name, err);
	if (rc != 0)
		return rc;
	const struct family *family = find_family(name);
	if (family == NULL)
		return unknown_family(g, name, err);
	*a = (struct model_arch){.embed_scale = 1,
				 .act = family->gelu ? ARCH_GELU_TANH : ARCH_SILU,
				 .qkv_bias = family->qkv_bias,
				 .qk_norm = family->qk_norm,
				 .post_norms = family->post_norms};
	snprintf(a->family, sizeof a->family, "%s", family->name);
	if ((rc = read_shape(g, a, err)) != 0 || (rc = read_attention(g, family, a, err)) != 0)
		return rc;
	if (family->scaled_embed)
		a->embed_scale = sqrtf((float)a->n_embd);
	double eps = 0;
	rc = get_float_or(g, a->family, "attention.layer_norm_rms_epsilon", 1e-30, 0.999, &eps, err);
	if (rc != 0)
		return rc;
	if (eps == 0)
		return sl_errf(err, SL_EINVAL, "%s: %s.attention.layer_norm_rms_epsilon is missing", gguf_path(g),
			       a->family);
	a->rms_eps = (float)eps;

	const struct model_tensor *embed = model_file_find(f, "token_embd.weight");
	if (embed == NULL || embed->n_dims != 2 || embed->dims[1] > ARCH_MAX_VOCAB)
		return sl_errf(err, SL_EINVAL, "%s: no proper tensor token_embd.weight", gguf_path(g));
	a->n_vocab = (int)embed->dims[1];
	a->tied_embeddings = model_file_find(f, "output.weight") == NULL;
	return read_rope(f, family, a, err);
}
