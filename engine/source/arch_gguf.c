/* SPDX-License-Identifier: Apache-2.0
 *
 * A family's description from the keys of a GGUF head ("llama.block_count" and its like). Every
 * number is held to a range before anybody multiplies with it; a key that would change the answers
 * and is not built is refused by name. Source: the GGUF specification in the ggml repository.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/source/arch_read.h"
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
    {.name = "gemma2",
     .halves = true,
     .gelu = true,
     .scaled_embed = true,
     .post_norms = true,
     .window_pattern = 2,
     .odd_scale_layers = 46},
    {.name = "gemma3",
     .halves = true,
     .gelu = true,
     .scaled_embed = true,
     .post_norms = true,
     .qk_norm = true,
     .window_pattern = 6,
     .odd_scale_layers = 62},
};

struct reader {
	const struct gguf *g;
	const char *family;
	struct key_seen seen; /* fields that were asked for: literals */
	struct sl_err *err;
};

/* "<family>.<field>". */
static const char *key_of(struct reader *r, const char *field, char out[96])
{
	snprintf(out, 96, "%s.%s", r->family, field);
	key_see(&r->seen, NULL, field);
	return out;
}

static int get_int(struct reader *r, const char *field, int lo, int hi, int *out)
{
	char key[96];
	uint32_t v;
	int rc = gguf_get_u32(r->g, key_of(r, field, key), &v, r->err);
	if (rc != 0)
		return rc;
	if (v < (uint32_t)lo || v > (uint32_t)hi)
		return sl_errf(r->err, SL_EINVAL, "%s: %s is %u, not from %d to %d", gguf_path(r->g), key, v, lo, hi);
	*out = (int)v;
	return 0;
}

/* As get_int, but an absent key leaves *out as it is. */
static int get_int_or(struct reader *r, const char *field, int lo, int hi, int *out)
{
	int rc = get_int(r, field, lo, hi, out);
	return rc == SL_ENOTFOUND ? 0 : rc;
}

/* A float that may be absent; SL_EINVAL outside of lo…hi. */
static int get_float_or(struct reader *r, const char *field, double lo, double hi, double *out)
{
	char key[96];
	float v;
	int rc = gguf_get_f32(r->g, key_of(r, field, key), &v, r->err);
	if (rc == SL_ENOTFOUND)
		return 0;
	if (rc != 0)
		return rc;
	if (!(v >= lo && v <= hi))
		return sl_errf(r->err, SL_EINVAL, "%s: %s is %g", gguf_path(r->g), key, (double)v);
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

static int read_yarn(struct reader *r, struct arch_rope *rope)
{
	double sharper = 1;
	rope->scaling = ARCH_ROPE_YARN;
	rope->beta_fast = 32;
	rope->beta_slow = 1;
	int rc = get_int(r, "rope.scaling.original_context_length", 1, ARCH_MAX_CTX, &rope->original_ctx);
	if (rc == 0)
		rc = get_float_or(r, "rope.scaling.yarn_beta_fast", 0.01, 1e6, &rope->beta_fast);
	if (rc == 0)
		rc = get_float_or(r, "rope.scaling.yarn_beta_slow", 0.01, 1e6, &rope->beta_slow);
	if (rc == 0)
		rc = get_float_or(r, "rope.scaling.attn_factor", 0.01, 100, &sharper);
	rope->magnitude = sharper != 1 ? sharper * (0.1 * log(rope->factor) + 1) : 0;
	return rc;
}

static int read_rope_scaling(struct reader *r, struct arch_rope *rope)
{
	char key[96];
	float old;
	if (gguf_get_f32(r->g, key_of(r, "rope.scale_linear", key), &old, r->err) != SL_ENOTFOUND)
		return sl_errf(r->err, SL_EUNSUPPORTED, "%s: %s is not supported (supported: rope.scaling.factor)",
			       gguf_path(r->g), key);
	struct proto_str scaling;
	int rc = gguf_get_str(r->g, key_of(r, "rope.scaling.type", key), &scaling, r->err);
	if (rc == SL_ENOTFOUND || (rc == 0 && is_word(scaling, "none")))
		return 0;
	if (rc != 0)
		return rc;
	if (is_word(scaling, "longrope"))
		rope->scaling = ARCH_ROPE_LONGROPE; /* by its factors: read_longrope */
	if (is_word(scaling, "longrope"))
		return 0;
	if (!is_word(scaling, "linear") && !is_word(scaling, "yarn"))
		return sl_errf(r->err, SL_EUNSUPPORTED,
			       "%s: rope scaling \"%.*s\" is not supported (supported: linear, yarn, longrope)",
			       gguf_path(r->g), (int)(scaling.n > 40 ? 40 : scaling.n), scaling.at);
	rope->factor = 0;
	rc = get_float_or(r, "rope.scaling.factor", 1, 1024, &rope->factor);
	if (rc == 0 && rope->factor == 0)
		return sl_errf(r->err, SL_EINVAL, "%s: %s.rope.scaling.factor is missing", gguf_path(r->g), r->family);
	rope->scaling = ARCH_ROPE_LINEAR;
	return rc == 0 && is_word(scaling, "yarn") ? read_yarn(r, rope) : rc;
}

static int read_longrope(struct reader *r, const struct model_file *f, struct model_arch *a)
{
	struct arch_rope *rope = &a->rope;
	if (model_file_find(f, "rope_factors_long.weight") == NULL)
		return rope->scaling != ARCH_ROPE_LONGROPE ? 0
							   : sl_errf(r->err, SL_EINVAL,
								     "%s: %s.rope.scaling.type is longrope, but tensor "
								     "rope_factors_long.weight is missing",
								     gguf_path(r->g), r->family);
	rope->scaling = ARCH_ROPE_LONGROPE;
	int rc = get_int(r, "rope.scaling.original_context_length", 1, ARCH_MAX_CTX, &rope->original_ctx);
	if (rc == 0)
		rc = get_float_or(r, "rope.scaling.attn_factor", 0.01, 100, &rope->magnitude);
	bool far = a->n_ctx > rope->original_ctx;
	return rc != 0 ? rc
		       : read_factors(f, far ? "rope_factors_long.weight" : "rope_factors_short.weight", rope, r->err);
}

static int read_rope(struct reader *r, const struct model_file *f, const struct family *family, struct model_arch *a)
{
	bool gemma3 = strcmp(a->family, "gemma3") == 0;
	a->rope = (struct arch_rope){.n_rot = a->head_dim, .halves = family->halves, .base = gemma3 ? 1e6 : 10000};
	int rc = get_int_or(r, "rope.dimension_count", 2, a->head_dim, &a->rope.n_rot);
	if (rc != 0)
		return rc;
	if (a->rope.n_rot % 2 != 0)
		return sl_errf(r->err, SL_EINVAL, "%s: %s.rope.dimension_count %d is odd", gguf_path(r->g), a->family,
			       a->rope.n_rot);
	rc = get_float_or(r, "rope.freq_base", 1.001, 1e12, &a->rope.base);
	if (rc == 0)
		rc = read_rope_scaling(r, &a->rope);
	if (rc == 0)
		rc = read_factors(f, "rope_freqs.weight", &a->rope, r->err);
	if (rc == 0)
		rc = read_longrope(r, f, a);
	a->rope_windowed = a->rope;
	if (gemma3) { /* layers with a window keep the plain embedding of short contexts */
		a->rope_windowed = (struct arch_rope){.n_rot = a->rope.n_rot, .halves = true, .base = 10000};
		if (rc == 0)
			rc = get_float_or(r, "rope.freq_base_swa", 1.001, 1e12, &a->rope_windowed.base);
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
	return sl_errf(err, SL_EUNSUPPORTED, "%s: architecture \"%.*s\" is not supported (supported: %s)", gguf_path(g),
		       (int)(name.n > 40 ? 40 : name.n), name.at, known);
}

static int read_shape(struct reader *r, struct model_arch *a)
{
	int n_experts = 0, rc;
	if ((rc = get_int(r, "block_count", 1, ARCH_MAX_LAYERS, &a->n_layers)) != 0 ||
	    (rc = get_int(r, "embedding_length", 1, ARCH_MAX_WIDTH, &a->n_embd)) != 0 ||
	    (rc = get_int(r, "attention.head_count", 1, a->n_embd, &a->n_heads)) != 0 ||
	    (rc = get_int(r, "feed_forward_length", 1, ARCH_MAX_WIDTH, &a->n_ff)) != 0 ||
	    (rc = get_int(r, "context_length", 1, ARCH_MAX_CTX, &a->n_ctx)) != 0 ||
	    (rc = get_int_or(r, "expert_count", 0, 1 << 16, &n_experts)) != 0)
		return rc;
	if (n_experts > 0)
		return sl_errf(r->err, SL_EUNSUPPORTED, "%s: models of experts (%d) are not supported", gguf_path(r->g),
			       n_experts);
	a->n_kv_heads = a->n_heads;
	a->head_dim = a->n_embd / a->n_heads;
	if ((rc = get_int_or(r, "attention.head_count_kv", 1, a->n_heads, &a->n_kv_heads)) != 0 ||
	    (rc = get_int_or(r, "attention.key_length", 1, 1024, &a->head_dim)) != 0)
		return rc;
	int value_dim = a->head_dim;
	if ((rc = get_int_or(r, "attention.value_length", 1, 1024, &value_dim)) != 0)
		return rc;
	if (a->n_heads % a->n_kv_heads != 0 || value_dim != a->head_dim || a->head_dim > 1024 || a->head_dim % 2 != 0)
		return sl_errf(r->err, SL_EUNSUPPORTED, "%s: %d heads, %d KV heads, keys of %d and values of %d",
			       gguf_path(r->g), a->n_heads, a->n_kv_heads, a->head_dim, value_dim);
	return 0;
}

float arch_gguf_attn_scale(const struct model_arch *a)
{
	const struct family *f = find_family((struct proto_str){a->family, strlen(a->family)});
	bool odd = f != NULL && f->odd_scale_layers > 0 && a->n_layers == f->odd_scale_layers;
	return 1.0f / sqrtf((float)(odd ? a->n_embd / a->n_heads : a->head_dim));
}

static int read_attention(struct reader *r, const struct family *family, struct model_arch *a)
{
	double softcap = 0, final = 0, scale = 0;
	int rc = get_int_or(r, "attention.sliding_window", 0, ARCH_MAX_CTX, &a->window);
	if (rc == 0)
		rc = get_float_or(r, "attn_logit_softcapping", 0, 1e6, &softcap);
	if (rc == 0)
		rc = get_float_or(r, "final_logit_softcapping", 0, 1e6, &final);
	if (rc == 0)
		rc = get_float_or(r, "attention.scale", 0, 1e3, &scale);
	a->window_pattern = family->window_pattern;
	if (rc == 0)
		rc = get_int_or(r, "attention.sliding_window_pattern", 1, ARCH_MAX_LAYERS, &a->window_pattern);
	a->attn_softcap = (float)softcap;
	a->final_softcap = (float) final;
	a->attn_scale = scale > 0 ? (float)scale : arch_gguf_attn_scale(a);
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
	struct reader r = {.g = g, .family = family->name, .err = err};
	*a = (struct model_arch){.embed_scale = 1,
				 .act = family->gelu ? ARCH_GELU_TANH : ARCH_SILU,
				 .qkv_bias = family->qkv_bias,
				 .qk_norm = family->qk_norm,
				 .post_norms = family->post_norms};
	snprintf(a->family, sizeof a->family, "%s", family->name);
	if ((rc = read_shape(&r, a)) != 0 || (rc = read_attention(&r, family, a)) != 0)
		return rc;
	if (family->scaled_embed)
		a->embed_scale = sqrtf((float)a->n_embd);
	double eps = 0;
	rc = get_float_or(&r, "attention.layer_norm_rms_epsilon", 1e-30, 0.999, &eps);
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
	rc = read_rope(&r, f, family, a);
	return rc != 0 ? rc : arch_check_gguf(&r.seen, g, a, err);
}
