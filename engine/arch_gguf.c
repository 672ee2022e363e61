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

/* rope_freqs.weight: the file's own divisors of the frequencies, computed by whoever wrote it. */
static int read_rope_freqs(const struct model_file *f, struct arch_rope *r, struct sl_err *err)
{
	const struct model_tensor *t = model_file_find(f, "rope_freqs.weight");
	int n = r->n_rot / 2;
	if (t == NULL)
		return 0;
	if (t->type != KN_F32 || t->n_dims != 1 || t->dims[0] != (uint64_t)n || n > ARCH_MAX_ROT)
		return sl_errf(err, SL_EINVAL, "%s: tensor rope_freqs.weight is not a vector of %d F32",
			       model_file_path(f), n);
	memcpy(r->factors, t->data, (size_t)n * sizeof *r->factors);
	r->n_factors = n;
	return 0;
}

static int read_rope_scaling(const struct gguf *g, const char *family, struct arch_rope *r, struct sl_err *err)
{
	char key[96];
	float old, factor;
	snprintf(key, sizeof key, "%s.rope.scale_linear", family);
	if (gguf_get_f32(g, key, &old, err) != SL_ENOTFOUND)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: %s is not supported (supported: rope.scaling.factor)",
			       gguf_path(g), key);

	struct proto_str scaling;
	snprintf(key, sizeof key, "%s.rope.scaling.type", family);
	int rc = gguf_get_str(g, key, &scaling, err);
	if (rc == SL_ENOTFOUND || (rc == 0 && scaling.n == 4 && memcmp(scaling.at, "none", 4) == 0))
		return 0;
	if (rc != 0)
		return rc;
	if (scaling.n != 6 || memcmp(scaling.at, "linear", 6) != 0)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: rope scaling \"%.*s\" is not supported (supported: linear)",
			       gguf_path(g), (int)(scaling.n > 40 ? 40 : scaling.n), scaling.at);
	snprintf(key, sizeof key, "%s.rope.scaling.factor", family);
	rc = gguf_get_f32(g, key, &factor, err);
	if (rc != 0)
		return rc;
	if (!(factor >= 1 && factor <= 1024))
		return sl_errf(err, SL_EINVAL, "%s: %s is %g", gguf_path(g), key, (double)factor);
	r->scaling = ARCH_ROPE_LINEAR;
	r->factor = factor;
	return 0;
}

static int read_rope(const struct model_file *f, struct model_arch *a, struct sl_err *err)
{
	const struct gguf *g = model_file_gguf(f);
	a->rope = (struct arch_rope){.n_rot = a->head_dim, .base = 10000};
	int rc = get_int_or(g, a->family, "rope.dimension_count", 2, a->head_dim, &a->rope.n_rot, err);
	if (rc != 0)
		return rc;
	if (a->rope.n_rot % 2 != 0)
		return sl_errf(err, SL_EINVAL, "%s: %s.rope.dimension_count %d is odd", gguf_path(g), a->family,
			       a->rope.n_rot);
	char key[96];
	float base = 10000;
	snprintf(key, sizeof key, "%s.rope.freq_base", a->family);
	rc = gguf_get_f32(g, key, &base, err);
	if (rc != 0 && rc != SL_ENOTFOUND)
		return rc;
	if (!(base > 1 && base < 1e12f))
		return sl_errf(err, SL_EINVAL, "%s: %s is %g", gguf_path(g), key, (double)base);
	a->rope.base = base;
	rc = read_rope_scaling(g, a->family, &a->rope, err);
	if (rc == 0)
		rc = read_rope_freqs(f, &a->rope, err);
	a->rope_windowed = a->rope;
	return rc;
}

int arch_read_gguf(const struct model_file *f, struct model_arch *a, struct sl_err *err)
{
	const struct gguf *g = model_file_gguf(f);
	struct proto_str family;
	int rc = gguf_get_str(g, "general.architecture", &family, err);
	if (rc != 0)
		return rc;
	if (family.n != 5 || memcmp(family.at, "llama", 5) != 0)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: architecture \"%.*s\" is not supported (supported: llama)",
			       gguf_path(g), (int)(family.n > 40 ? 40 : family.n), family.at);
	*a = (struct model_arch){.family = "llama", .embed_scale = 1, .act = ARCH_SILU};

	int n_experts = 0;
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
	a->attn_scale = 1.0f / sqrtf((float)a->head_dim);

	char key[96];
	snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", a->family);
	rc = gguf_get_f32(g, key, &a->rms_eps, err);
	if (rc != 0)
		return rc;
	if (!(a->rms_eps > 0 && a->rms_eps < 1))
		return sl_errf(err, SL_EINVAL, "%s: %s is %g", gguf_path(g), key, (double)a->rms_eps);

	const struct model_tensor *embed = model_file_find(f, "token_embd.weight");
	if (embed == NULL || embed->n_dims != 2 || embed->dims[1] > ARCH_MAX_VOCAB)
		return sl_errf(err, SL_EINVAL, "%s: no proper tensor token_embd.weight", gguf_path(g));
	a->n_vocab = (int)embed->dims[1];
	a->tied_embeddings = model_file_find(f, "output.weight") == NULL;
	return read_rope(f, a, err);
}
