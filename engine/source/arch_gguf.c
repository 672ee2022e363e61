/* SPDX-License-Identifier: Apache-2.0
 *
 * A family's description from the keys of a GGUF head ("llama.block_count" and its like). Every number is range-checked
 * before it is used in a product. Unsupported keys that would change answers are refused by name. Source: the GGUF
 * specification in the ggml repository.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/source/arch_family.h"
#include "engine/source/arch_read.h"
#include "kernels/kernels.h"

struct reader {
	const struct model_file *file;
	const struct gguf *g;
	const char *family;
	struct key_seen seen; /* fields already read: literals */
	struct sl_err *err;
	int rc; /* the first error; then the getters do nothing */
};

/* Keeps the first error. */
static void __attribute__((format(printf, 3, 4))) fault(struct reader *r, int code, const char *fmt, ...)
{
	char text[400];
	va_list ap;
	if (r->rc != 0)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	r->rc = sl_errf(r->err, code, "%s: %s", gguf_path(r->g), text);
}

/* "<family>.<field>". */
static const char *key_of(struct reader *r, const char *field, char out[96])
{
	snprintf(out, 96, "%s.%s", r->family, field);
	key_see(&r->seen, NULL, field);
	return out;
}

enum { REQUIRED = -1 };

/* fallback: when the key is absent; REQUIRED: it must be there. */
static int get_int(struct reader *r, const char *field, int lo, int hi, int fallback)
{
	char key[96];
	uint32_t v = 0;
	if (r->rc != 0)
		return lo;
	int rc = gguf_get_u32(r->g, key_of(r, field, key), &v, r->err);
	if (rc == SL_ENOTFOUND && fallback != REQUIRED)
		return fallback;
	r->rc = rc;
	if (v < (uint32_t)lo || v > (uint32_t)hi)
		fault(r, SL_EINVAL, "%s is %u, not from %d to %d", key, v, lo, hi);
	return r->rc == 0 ? (int)v : lo;
}

/* An optional float. */
static double get_float(struct reader *r, const char *field, double lo, double hi, double fallback)
{
	char key[96];
	float v;
	if (r->rc != 0)
		return fallback;
	int rc = gguf_get_f32(r->g, key_of(r, field, key), &v, r->err);
	if (rc != 0) {
		r->rc = rc == SL_ENOTFOUND ? 0 : rc;
		return fallback;
	}
	if (!(v >= lo && v <= hi))
		fault(r, SL_EINVAL, "%s is %g", key, (double)v);
	return v;
}

/* An optional one; *out keeps its value if the key is absent. */
static void get_bool(struct reader *r, const char *field, bool *out)
{
	char key[96];
	int rc = r->rc == 0 ? gguf_get_bool(r->g, key_of(r, field, key), out, r->err) : 0;
	if (rc != 0 && rc != SL_ENOTFOUND)
		r->rc = rc;
}

/* ---- rotary embedding ---- */

/* Divisors of the frequencies, computed by the file's writer. */
static void read_factors(struct reader *r, const char *name, struct arch_rope *rope)
{
	const struct model_tensor *t = model_file_find(r->file, name);
	int n = rope->n_rot / 2;
	if (t == NULL || r->rc != 0)
		return;
	if (t->type != KN_F32 || t->n_dims != 1 || t->dims[0] != (uint64_t)n || n > ARCH_MAX_ROT) {
		fault(r, SL_EINVAL, "tensor %s is not a vector of %d F32", name, n);
		return;
	}
	memcpy(rope->factors, t->data, (size_t)n * sizeof *rope->factors);
	for (int i = 0; i < n; i++)
		if (!(rope->factors[i] > 1e-6f && rope->factors[i] < 1e9f))
			fault(r, SL_EINVAL, "tensor %s has the divisor %g", name, (double)rope->factors[i]);
	rope->n_factors = n;
}

static bool is_word(struct proto_str s, const char *word)
{
	return s.n == strlen(word) && memcmp(s.at, word, s.n) == 0;
}

static const struct arch_family *find(const struct reader *r) { return arch_family_find(r->family, strlen(r->family)); }

static void read_yarn(struct reader *r, struct arch_rope *rope)
{
	rope->scaling = ARCH_ROPE_YARN;
	rope->original_ctx = get_int(r, "rope.scaling.original_context_length", 1, ARCH_MAX_CTX, REQUIRED);
	rope->beta_fast = get_float(r, "rope.scaling.yarn_beta_fast", 0.01, 1e6, 32);
	rope->beta_slow = get_float(r, "rope.scaling.yarn_beta_slow", 0.01, 1e6, 1);
	rope->fractional = find(r)->oss; /* its configuration's truncate; GGUF has no key for it */
	if (find(r)->latent) {
		/* The key is a tenth of mscale_all_dim; mscale has none and is taken to be equal. */
		float tenth = (float)get_float(r, "rope.scaling.yarn_log_multiplier", 0, 10, 0);
		rope->all_dim = (double)(tenth / 0.1f);
		rope->magnitude = tenth > 0 ? 1 : 0;
		return;
	}
	double sharper = get_float(r, "rope.scaling.attn_factor", 0.01, 100, 1);
	/* transformers' mscale_all_dim beside an mscale of 1: DeepSeek's line, and Ministral 3. */
	double all = find(r)->grows ? get_float(r, "rope.scaling.yarn_log_multiplier", 0, 100, 0) : 0;
	double own = 0.1 * log(rope->factor) + 1;
	if (all > 0)
		rope->magnitude = sharper * own / (0.1 * all * log(rope->factor) + 1);
	else
		rope->magnitude = sharper != 1 ? sharper * own : 0;
}

static void read_rope_scaling(struct reader *r, struct arch_rope *rope)
{
	char key[96];
	float old;
	struct proto_str scaling;
	if (r->rc != 0)
		return;
	if (gguf_get_f32(r->g, key_of(r, "rope.scale_linear", key), &old, r->err) != SL_ENOTFOUND) {
		fault(r, SL_EUNSUPPORTED, "%s is not supported (supported: rope.scaling.factor)", key);
		return;
	}
	int rc = gguf_get_str(r->g, key_of(r, "rope.scaling.type", key), &scaling, r->err);
	if (rc != 0) {
		r->rc = rc == SL_ENOTFOUND ? 0 : rc;
	} else if (is_word(scaling, "longrope")) {
		rope->scaling = ARCH_ROPE_LONGROPE; /* by its factors: read_longrope */
	} else if (is_word(scaling, "linear") || is_word(scaling, "yarn")) {
		rope->factor = get_float(r, "rope.scaling.factor", 1, 1024, 0);
		if (rope->factor == 0)
			fault(r, SL_EINVAL, "%s.rope.scaling.factor is missing", r->family);
		rope->scaling = ARCH_ROPE_LINEAR;
		if (is_word(scaling, "yarn"))
			read_yarn(r, rope);
	} else if (!is_word(scaling, "none")) {
		fault(r, SL_EUNSUPPORTED, "rope scaling \"%.*s\" is not supported (supported: linear, yarn, longrope)",
		      (int)(scaling.n > 40 ? 40 : scaling.n), scaling.at);
	}
}

static void read_longrope(struct reader *r, const struct model_arch *a, struct arch_rope *rope)
{
	if (model_file_find(r->file, "rope_factors_long.weight") == NULL) {
		if (rope->scaling == ARCH_ROPE_LONGROPE)
			fault(r, SL_EINVAL,
			      "%s.rope.scaling.type is longrope, but tensor rope_factors_long.weight is missing",
			      r->family);
		return;
	}
	rope->scaling = ARCH_ROPE_LONGROPE;
	rope->original_ctx = get_int(r, "rope.scaling.original_context_length", 1, ARCH_MAX_CTX, REQUIRED);
	rope->magnitude = get_float(r, "rope.scaling.attn_factor", 0.01, 100, rope->magnitude);
	bool far = a->n_ctx > rope->original_ctx;
	read_factors(r, far ? "rope_factors_long.weight" : "rope_factors_short.weight", rope);
}

/* Queries that grow with their positions: Ministral 3. */
static void read_growth(struct reader *r, struct arch_rope *rope)
{
	rope->grow = (float)get_float(r, "attention.temperature_scale", 0, 100, 0);
	rope->grow_every = rope->original_ctx;
	if (rope->grow > 0 && rope->original_ctx < 1)
		fault(r, SL_EINVAL, "%s.attention.temperature_scale needs rope.scaling.original_context_length",
		      r->family);
}

static void read_rope(struct reader *r, const struct arch_family *family, struct model_arch *a)
{
	bool gemma3 = strcmp(a->family, "gemma3") == 0;
	a->rope = (struct arch_rope){.halves = family->halves, .n_rot = a->head_dim, .base = 10000};
	if (family->common.no_rope_every == 1) { /* nothing turns */
		a->rope_windowed = a->rope;
		return;
	}
	a->rope.n_rot = get_int(r, "rope.dimension_count", 2, a->head_dim, family->latent ? REQUIRED : a->head_dim);
	if (a->rope.n_rot % 2 != 0)
		fault(r, SL_EINVAL, "%s.rope.dimension_count %d is odd", a->family, a->rope.n_rot);
	a->rope.base = get_float(r, "rope.freq_base", 1.001, 1e12, gemma3 ? 1e6 : 10000);
	read_rope_scaling(r, &a->rope);
	read_factors(r, "rope_freqs.weight", &a->rope);
	read_longrope(r, a, &a->rope);
	if (family->grows)
		read_growth(r, &a->rope);
	a->rope_windowed = a->rope;
	if (family->windowed_plain)
		a->rope_windowed =
		    (struct arch_rope){.n_rot = a->rope.n_rot, .halves = a->rope.halves, .base = a->rope.base};
	if (gemma3) /* windowed layers keep the plain embedding of short contexts */
		a->rope_windowed = (struct arch_rope){.n_rot = a->rope.n_rot,
						      .halves = true,
						      .base = get_float(r, "rope.freq_base_swa", 1.001, 1e12, 10000)};
}

/* ---- the description ---- */

static int unknown_family(const struct gguf *g, struct proto_str name, struct sl_err *err)
{
	char known[400];
	arch_family_list(known, sizeof known);
	return sl_errf(err, SL_EUNSUPPORTED, "%s: architecture \"%.*s\" is not supported (supported: %s)", gguf_path(g),
		       (int)(name.n > 40 ? 40 : name.n), name.at, known);
}

/* Latent attention. Files whose keys' and values' products are split have keys of heads' widths that end in _mla, and
 * the others are those of a latent row. */
static void read_latent(struct reader *r, struct model_arch *a)
{
	struct arch_latent *d = &a->latent;
	enum { MOST = 1 << 14 };
	d->n = get_int(r, "attention.kv_lora_rank", 1, MOST, REQUIRED);
	d->n_query = get_int(r, "attention.q_lora_rank", 0, ARCH_MAX_WIDTH, 0);
	int n_rot = get_int(r, "rope.dimension_count", 2, 2 * ARCH_MAX_ROT, REQUIRED);
	int own = get_int(r, "attention.key_length", 1, 2 * MOST, REQUIRED);
	int value = get_int(r, "attention.value_length", 1, MOST, REQUIRED);
	int query = get_int(r, "attention.key_length_mla", 0, MOST, 0);
	d->n_value = get_int(r, "attention.value_length_mla", query > 0, MOST, query > 0 ? REQUIRED : 0);
	d->joined = model_file_find(r->file, "blk.0.attn_kv_b.weight") != NULL;
	a->rope.n_rot = n_rot;
	if (query > 0 && (own != d->n + n_rot || value != d->n))
		fault(r, SL_EINVAL,
		      "%s.attention.key_length %d and value_length %d are not attention.kv_lora_rank %d with and "
		      "without rope.dimension_count %d",
		      a->family, own, value, d->n, n_rot);
	d->n_value = query > 0 ? d->n_value : value;
	query = query > 0 ? query : own;
	d->plain = query - n_rot;
	if (d->plain < 1)
		fault(r, SL_EINVAL, "%s.rope.dimension_count %d leaves nothing of a key of %d that does not turn",
		      a->family, n_rot, query);
	if (r->rc == 0 && !arch_latent_finish(a))
		fault(r, SL_EUNSUPPORTED, "%s.attention.head_count %d is too much for latent rows of %d", a->family,
		      a->n_heads, a->head_dim);
}

/* A list of a number for each layer, those that only draft included: 0, or the same for all others, which is returned;
 * 0: there are none. Sets the bits of layers that have it. */
static int read_layer_list(struct reader *r, const struct model_arch *a, const char *field, int most, uint64_t *bits)
{
	char key[96];
	struct gguf_array list;
	int all = a->n_layers + a->n_drafting, value = 0;
	if (r->rc == 0)
		r->rc = gguf_get_array(r->g, key_of(r, field, key), &list, r->err);
	if (r->rc != 0)
		return 0;
	if (list.n != (uint64_t)all || list.type == GGUF_STRING || list.type == GGUF_F32 || list.type == GGUF_F64) {
		fault(r, SL_EINVAL, "%s is not a list of a number for each of %d layers", key, all);
		return 0;
	}
	for (int i = 0; i < a->n_layers && r->rc == 0; i++) {
		int64_t n = gguf_array_int(&list, (uint64_t)i);
		if (n < 0 || n > most || (value > 0 && n > 0 && n != value))
			fault(r, SL_EUNSUPPORTED, "%s has %lld for layer %d", key, (long long)n, i);
		else if (n > 0)
			value = (int)n;
		bits[i / 64] |= (uint64_t)(n > 0) << i % 64;
	}
	return value;
}

/* The list of key heads: layers with none keep a state. */
static void read_layer_heads(struct reader *r, struct model_arch *a)
{
	uint64_t attend[ARCH_MOST_LAYERS / 64] = {0};
	a->n_kv_heads = read_layer_list(r, a, "attention.head_count_kv", a->n_heads, attend);
	if (r->rc == 0 && a->n_kv_heads == 0)
		fault(r, SL_EUNSUPPORTED, "%s.attention.head_count_kv gives no layer with attention", r->family);
	for (int i = 0; i < a->n_layers; i++)
		if ((attend[i / 64] >> i % 64 & 1) == 0)
			arch_set_recurrent(a, i);
}

/* Nemotron-H's list of widths: layers with one are a feed-forward half, and only that. */
static void read_layer_halves(struct reader *r, struct model_arch *a)
{
	a->n_ff = read_layer_list(r, a, "feed_forward_length", ARCH_MAX_WIDTH, a->only_ff);
	for (int i = 0; i < a->n_layers && r->rc == 0; i++) {
		if (!arch_has_ff(a, i))
			continue;
		if ((a->recurrent.layers[i / 64] >> i % 64 & 1) == 0)
			fault(r, SL_EUNSUPPORTED, "%s.feed_forward_length has %d for layer %d, which attends",
			      r->family, a->n_ff, i);
		a->recurrent.layers[i / 64] &= ~((uint64_t)1 << i % 64);
	}
	a->n_ff = a->n_ff > 0 ? a->n_ff : 1; /* no layer has one */
}

/* The heads of states, and their sizes. */
static void read_state_heads(struct reader *r, struct model_arch *a)
{
	struct arch_recurrent *x = &a->recurrent;
	x->conv = get_int(r, "ssm.conv_kernel", 1, KN_MAX_CONV, REQUIRED);
	x->k_heads = get_int(r, "ssm.group_count", 1, ARCH_MAX_WIDTH, REQUIRED);
	x->v_heads = get_int(r, "ssm.time_step_rank", 1, ARCH_MAX_WIDTH, REQUIRED);
	x->k_dim = get_int(r, "ssm.state_size", 1, KN_MAX_DELTA, REQUIRED);
	int inner = get_int(r, "ssm.inner_size", 1, ARCH_MAX_WIDTH, REQUIRED);
	if (r->rc != 0)
		return;
	x->v_dim = inner / x->v_heads;
	if (x->v_dim * x->v_heads != inner)
		fault(r, SL_EINVAL, "%s.ssm.inner_size %d is no multiple of ssm.time_step_rank %d", a->family, inner,
		      x->v_heads);
}

/* Mamba-2's; steps have no bounds. */
static void read_ssm(struct reader *r, struct model_arch *a)
{
	struct arch_recurrent *x = &a->recurrent;
	char name[64];
	int first = 0;
	read_state_heads(r, a);
	while (first < a->n_layers - 1 && (x->layers[first / 64] >> first % 64 & 1) == 0)
		first++;
	snprintf(name, sizeof name, "blk.%d.ssm_conv1d.bias", first);
	x->conv_bias = model_file_find(r->file, name) != NULL;
	x->most = INFINITY;
}

/* The gated delta rule's; a list of layers, or an interval. */
static void read_delta(struct reader *r, const struct arch_family *family, struct model_arch *a)
{
	char key[96];
	struct gguf_array list;
	read_state_heads(r, a);
	a->recurrent.tiled = family->tiled;
	if (r->rc != 0)
		return;
	int rc = gguf_get_array(r->g, key_of(r, "attention.recurrent_layers", key), &list, r->err);
	if (rc == SL_ENOTFOUND) {
		arch_recurrent_all_but(a, get_int(r, "full_attention_interval", 2, ARCH_MAX_LAYERS, 4));
		return;
	}
	r->rc = rc;
	if (rc == 0 && (list.type != GGUF_BOOL || list.n < (uint64_t)a->n_layers))
		fault(r, SL_EINVAL, "%s is not a list of a truth for each layer", key);
	for (int i = 0; i < a->n_layers && r->rc == 0; i++)
		if (gguf_array_int(&list, (uint64_t)i) != 0)
			arch_set_recurrent(a, i);
}

/* Sections of pairs for images turn alike in text, but for the fourth, which does not turn. */
static void read_sections(struct reader *r)
{
	char key[96];
	struct gguf_array list;
	int rc =
	    r->rc == 0 ? gguf_get_array(r->g, key_of(r, "rope.dimension_sections", key), &list, r->err) : SL_ENOTFOUND;
	if (rc == SL_ENOTFOUND)
		return;
	r->rc = rc;
	if (rc == 0 && (list.type == GGUF_STRING || list.type == GGUF_F32 || list.type == GGUF_F64 ||
			(list.n > 3 && gguf_array_int(&list, 3) != 0)))
		fault(r, SL_EUNSUPPORTED, "%s has a fourth section", key);
}

static void read_recurrent(struct reader *r, const struct arch_family *family, struct model_arch *a)
{
	static const struct arch_recurrent_keys of[] = {
	    [ARCH_SHORT_CONV] = {.layers = "attention.head_count_kv", .conv = "shortconv.l_cache"},
	    [ARCH_DELTA] = {"attention.recurrent_layers or full_attention_interval", "ssm.conv_kernel",
			    "ssm.time_step_rank", "ssm.inner_size"},
	    [ARCH_SSM] = {"attention.head_count_kv", "ssm.conv_kernel", "ssm.time_step_rank", "ssm.inner_size"}};
	a->recurrent.kind = family->mixer;
	if (family->mixer == ARCH_SHORT_CONV)
		a->recurrent.conv = get_int(r, "shortconv.l_cache", 1, KN_MAX_CONV, REQUIRED);
	if (family->mixer == ARCH_DELTA) {
		read_delta(r, family, a);
		read_sections(r);
	}
	if (family->mixer == ARCH_SSM)
		read_ssm(r, a);
	const char *key, *why = NULL;
	if (r->rc == 0 && family->mixer != ARCH_ATTENTION)
		why = arch_recurrent_fault(a, &of[family->mixer], &key);
	if (why != NULL)
		fault(r, SL_EUNSUPPORTED, "%s.%s %s", a->family, key, why);
}

static void read_shape(struct reader *r, const struct arch_family *family, struct model_arch *a)
{
	a->n_drafting = get_int(r, "nextn_predict_layers", 0, 8, 0);
	a->n_layers = get_int(r, "block_count", 1 + a->n_drafting, ARCH_MAX_LAYERS, REQUIRED) - a->n_drafting;
	a->n_embd = get_int(r, "embedding_length", 1, ARCH_MAX_WIDTH, REQUIRED);
	a->n_heads = get_int(r, "attention.head_count", 1, a->n_embd, REQUIRED);
	/* Where every layer has experts, the key may be absent. */
	bool mixes = family->mixer == ARCH_DELTA && family->experts;
	if (!a->one_half)
		a->n_ff = get_int(r, "feed_forward_length", 1, ARCH_MAX_WIDTH, mixes ? 1 : REQUIRED);
	a->n_ctx = get_int(r, "context_length", 1, ARCH_MAX_CTX, REQUIRED);
	if (family->mixer == ARCH_SHORT_CONV || family->mixer == ARCH_SSM)
		read_layer_heads(r, a);
	else
		a->n_kv_heads = get_int(r, "attention.head_count_kv", 1, a->n_heads, a->n_heads);
	if (a->one_half)
		read_layer_halves(r, a);
	if (family->latent)
		read_latent(r, a);
	if (r->rc != 0 || family->latent)
		return;
	a->head_dim = get_int(r, "attention.key_length", 1, 1024, a->n_embd / a->n_heads);
	int value_dim = get_int(r, "attention.value_length", 1, 1024, a->head_dim);
	if (a->n_heads % a->n_kv_heads != 0 || value_dim != a->head_dim || a->head_dim > 1024 || a->head_dim % 2 != 0)
		fault(r, SL_EUNSUPPORTED, "%d heads, %d KV heads, keys of %d and values of %d", a->n_heads,
		      a->n_kv_heads, a->head_dim, value_dim);
}

float arch_gguf_attn_scale(const struct model_arch *a)
{
	if (a->latent.n > 0)
		return arch_latent_scale(a);
	const struct arch_family *f = arch_family_find(a->family, strlen(a->family));
	bool odd = f != NULL && f->odd_scale_layers > 0 && a->n_layers == f->odd_scale_layers;
	return 1.0f / sqrtf((float)(odd ? a->n_embd / a->n_heads : a->head_dim));
}

/* GLM 4.5's: chosen by sigmoids and a bias, with dense layers first. */
static void read_sigmoid(struct reader *r, struct model_arch *a)
{
	struct arch_experts *x = &a->experts;
	int n_shared = get_int(r, "expert_shared_count", 0, 64, 0);
	get_bool(r, "expert_weights_norm", &x->norm);
	x->sigmoid = true;
	x->scale = (float)get_float(r, "expert_weights_scale", 1e-6, 1e6, 1);
	x->n_dense = get_int(r, "leading_dense_block_count", 0, a->n_layers, 0);
	(void)get_int(r, "expert_gating_func", 2, 2, 2);
	x->n_ff_shared = n_shared * get_int(r, "expert_feed_forward_length", 1, ARCH_MAX_WIDTH / 64, REQUIRED);
}

/* DeepSeek's: V2 chooses by a softmax, V3 by sigmoids and a bias; their larger models of the best groups only. */
static void read_deepseek(struct reader *r, struct model_arch *a)
{
	struct arch_experts *x = &a->experts;
	int n_shared = get_int(r, "expert_shared_count", 0, 64, 0);
	x->n_ff_shared = n_shared * get_int(r, "expert_feed_forward_length", 1, ARCH_MAX_WIDTH / 64, REQUIRED);
	get_bool(r, "expert_weights_norm", &x->norm);
	x->sigmoid = get_int(r, "expert_gating_func", 1, 2, 1) == 2;
	x->scale = (float)get_float(r, "expert_weights_scale", 1e-6, 1e6, 1);
	x->n_dense = get_int(r, "leading_dense_block_count", 0, a->n_layers, 0);
	x->n_groups = get_int(r, "expert_group_count", 1, x->n, 1);
	x->n_groups_used = get_int(r, "expert_group_used_count", 1, x->n_groups, x->n_groups);
	x->group_best = !x->sigmoid;
	if (x->n_groups == 1)
		x->n_groups = x->n_groups_used = 0;
	if (r->rc == 0 && arch_groups_fault(x) != NULL)
		fault(r, SL_EINVAL, "%s.expert_group_count %d %s", a->family, x->n_groups, arch_groups_fault(x));
}

/* Llama 4's: sigmoids on the inputs, and an expert of the same width that computes every row. */
static void read_interleaved(struct reader *r, struct arch_experts *x)
{
	x->sigmoid = x->unbiased = x->weighs_input = true;
	x->every = get_int(r, "interleave_moe_layer_step", 1, ARCH_MAX_LAYERS, REQUIRED);
	x->n_ff_shared = get_int(r, "expert_feed_forward_length", 1, ARCH_MAX_WIDTH, REQUIRED);
}

/* Llama 4's chunks; its files have no keys for numbers that all such models share. A window of 0: none of it. */
static void read_chunks(struct reader *r, struct model_arch *a)
{
	a->window = get_int(r, "attention.sliding_window", 0, ARCH_MAX_CTX, ARCH_LLAMA4_CHUNK);
	a->qk_norm_plain = a->experts.n != 128; /* the larger one has no such norms */
	if (a->window == 0) {
		a->window_pattern = a->no_rope_every = 0;
		return;
	}
	a->still_grow = 0.1f;
	a->still_grow_every = ARCH_LLAMA4_CHUNK;
}

/* Nemotron 3's: chosen by sigmoids and a bias, maybe on vectors that are narrower than the stream. */
static void read_nemotron(struct reader *r, struct arch_experts *x)
{
	int shared = get_int(r, "expert_shared_feed_forward_length", 1, ARCH_MAX_WIDTH, REQUIRED);
	(void)get_int(r, "expert_shared_count", 1, 1, 1);
	(void)get_int(r, "expert_gating_func", 2, 2, 2);
	(void)get_int(r, "expert_group_count", 1, 1, 1);
	get_bool(r, "expert_weights_norm", &x->norm);
	x->sigmoid = true;
	x->scale = (float)get_float(r, "expert_weights_scale", 1e-6, 1e6, 1);
	x->n_ff_shared = shared;
	x->n_latent = get_int(r, "moe_latent_size", 0, ARCH_MAX_WIDTH, 0);
}

/* The feed-forward halves of a mixture. Files of Mixtral are of the family llama. */
static void read_experts(struct reader *r, const struct arch_family *family, struct model_arch *a)
{
	struct arch_experts *x = &a->experts;
	bool may = family->experts || family->may_mix;
	x->n = get_int(r, "expert_count", family->experts ? 1 : 0, KN_MAX_EXPERTS, family->experts ? REQUIRED : 0);
	/* Granite's dense files have it, too: there it is the dense half. */
	int shared = !family->scaled || family->mixer != ARCH_SSM
			 ? 0
			 : get_int(r, "expert_shared_feed_forward_length", 0, ARCH_MAX_WIDTH, 0);
	if (x->n == 0 || r->rc != 0)
		return;
	if (!may) {
		fault(r, SL_EUNSUPPORTED, "experts (%d) are not supported in the family %s", x->n, family->name);
		return;
	}
	int most = x->n < KN_MAX_EXPERTS_USED ? x->n : KN_MAX_EXPERTS_USED;
	x->n_used = get_int(r, "expert_used_count", 1, most, REQUIRED);
	x->norm = family->norm_weights;
	x->clamped = x->biases = family->oss;
	x->sparse = family->sparse ? 0.01f : 0; /* router_jitter_noise of all such models; GGUF has no key for it */
	x->scale = 1;
	if (family->chunks)
		read_interleaved(r, x);
	else if (family->sigmoid)
		read_sigmoid(r, a);
	if (family->latent)
		read_deepseek(r, a);
	if (a->one_half)
		read_nemotron(r, x);
	x->n_ff_shared = shared > 0 ? shared : x->n_ff_shared;
	int absent = family->shares_ff && x->n_used > 0 ? a->n_ff / x->n_used : a->n_ff;
	x->n_ff = get_int(r, "expert_feed_forward_length", 1, ARCH_MAX_WIDTH, absent);
	if (family->shared_expert) {
		x->n_ff_shared = get_int(r, "expert_shared_feed_forward_length", 1, ARCH_MAX_WIDTH, a->n_ff);
		x->shared_gate = true;
	}
	if (x->n_ff < 1)
		fault(r, SL_EINVAL, "%s.feed_forward_length %d is less than expert_used_count %d", a->family, a->n_ff,
		      x->n_used);
}

static void read_attention(struct reader *r, const struct arch_family *family, struct model_arch *a)
{
	a->window = get_int(r, "attention.sliding_window", 0, ARCH_MAX_CTX, 0);
	a->attn_softcap = (float)get_float(r, "attn_logit_softcapping", 0, 1e6, 0);
	a->final_softcap = (float)get_float(r, "final_logit_softcapping", 0, 1e6, 0);
	a->attn_scale = family->latent ? 0 : (float)get_float(r, "attention.scale", 0, 1e3, 0);
	if (!(a->attn_scale > 0))
		a->attn_scale = arch_gguf_attn_scale(a);
	a->window_pattern = get_int(r, "attention.sliding_window_pattern", 1, ARCH_MAX_LAYERS, family->window_pattern);
	if (family->chunks)
		read_chunks(r, a);
}

static void read_pooling(struct reader *r, struct model_arch *a)
{
	int absent = a->encoder ? ARCH_POOL_MEAN : ARCH_POOL_NONE;
	a->pooling = (enum arch_pooling)get_int(r, "pooling_type", ARCH_POOL_NONE, ARCH_POOL_RANK, absent);
	if (!a->encoder && a->pooling != ARCH_POOL_NONE && a->pooling != ARCH_POOL_MEAN && a->pooling != ARCH_POOL_LAST)
		fault(r, SL_EUNSUPPORTED, "%s.pooling_type %d is not supported (supported: 1 mean, 3 last)", a->family,
		      (int)a->pooling);
}

static void read_norm(struct reader *r, struct model_arch *a)
{
	const char *key = arch_family_eps_key(find(r));
	a->rms_eps = (float)get_float(r, key, 1e-30, 0.999, 0);
	if (a->rms_eps == 0)
		fault(r, SL_EINVAL, "%s.%s is missing", a->family, key);
}

/* The number of rows of a table; 0: there is none. */
static int rows_of(struct reader *r, const char *name)
{
	const struct model_tensor *t = model_file_find(r->file, name);
	if (t == NULL)
		return 0;
	if (t->n_dims != 2 || t->dims[1] > ARCH_MAX_CTX)
		fault(r, SL_EINVAL, "no proper tensor %s", name);
	return r->rc == 0 ? (int)t->dims[1] : 0;
}

/* With several scores, the head would need a choice among them. */
static void read_labels(struct reader *r, const struct model_arch *a)
{
	char key[96];
	struct gguf_array labels;
	int rc = r->rc == 0 ? gguf_get_array(r->g, key_of(r, "classifier.output_labels", key), &labels, r->err) : 0;
	if (rc != 0 && rc != SL_ENOTFOUND)
		r->rc = rc;
	if (r->rc == 0 && rc == 0 && a->pooling == ARCH_POOL_RANK && labels.n > 1)
		fault(r, SL_EUNSUPPORTED, "%s names %llu labels: only models with one score are supported", key,
		      (unsigned long long)labels.n);
}

static void read_encoder(struct reader *r, const struct arch_family *family, struct model_arch *a)
{
	bool causal = false;
	get_bool(r, "attention.causal", &causal);
	if (causal)
		fault(r, SL_EUNSUPPORTED, "%s.attention.causal is true, which is not supported", a->family);
	a->rms_eps = (float)get_float(r, "attention.layer_norm_epsilon", 1e-30, 0.999, 0);
	if (a->rms_eps == 0)
		fault(r, SL_EINVAL, "%s.attention.layer_norm_epsilon is missing", a->family);
	a->n_types = rows_of(r, "token_types.weight");
	a->no_biases = family->turns;
	a->ungated = a->ff_biases = !family->turns;
	a->qkv_bias = !family->turns;
	a->tied_embeddings = true;
	a->rank_dense = model_file_find(r->file, "cls.weight") != NULL;
	read_labels(r, a);
	int n_pos = rows_of(r, "position_embd.weight");
	if (!family->turns && n_pos < a->n_ctx)
		a->n_ctx = n_pos;
	if (a->n_ctx < 1)
		fault(r, SL_EINVAL, "tensor position_embd.weight is missing");
	if (family->turns)
		read_rope(r, family, a);
}

/* Granite's factors between embeddings and logits. */
static void read_granite(struct reader *r, struct model_arch *a)
{
	a->embed_scale = (float)get_float(r, "embedding_scale", 1e-6, 1e6, 1);
	a->residual_scale = (float)get_float(r, "residual_scale", 1e-6, 1e6, 1);
	a->logit_scale = 1 / (float)get_float(r, "logit_scale", 1e-6, 1e6, 1);
	if (arch_is_recurrent(a)) { /* whether queries and keys turn at all */
		bool turns = true;
		get_bool(r, "rope.scaling.finetuned", &turns);
		a->no_rope_every = turns ? 0 : 1;
	}
}

/* How a layer's halves are put together, and what is added to products, as keys and tensors say. */
static void read_halves(struct reader *r, struct model_arch *a)
{
	bool parallel = a->parallel != ARCH_PARALLEL_NONE;
	if (a->layer_norm && !a->norm_biases) /* Cohere's line */
		a->logit_scale = (float)get_float(r, "logit_scale", 1e-6, 1e6, 1);
	if (a->parallel == ARCH_PARALLEL_TWO_NORMS)
		get_bool(r, "use_parallel_residual", &parallel);
	a->attn_norm_is_2 = model_file_find(r->file, "blk.0.attn_norm_2.weight") != NULL;
	if (a->attn_norm_is_2 && a->parallel == ARCH_PARALLEL_ONE_NORM)
		a->parallel = ARCH_PARALLEL_TWO_NORMS;
	if (!parallel)
		a->parallel = ARCH_PARALLEL_NONE;
	if (a->head_bias)
		a->head_bias = model_file_find(r->file, "output.bias") != NULL;
}

int arch_read_gguf(const struct model_file *f, struct model_arch *a, struct sl_err *err)
{
	const struct gguf *g = model_file_gguf(f);
	struct proto_str name;
	int rc = gguf_get_str(g, "general.architecture", &name, err);
	if (rc != 0)
		return rc;
	const struct arch_family *family = arch_family_find(name.at, name.n);
	if (family == NULL)
		return unknown_family(g, name, err);
	struct reader r = {.file = f, .g = g, .family = family->name, .err = err};
	arch_family_begin(family, a);
	read_shape(&r, family, a);
	read_recurrent(&r, family, a);
	read_experts(&r, family, a);
	read_attention(&r, family, a);
	read_pooling(&r, a);
	if (family->scaled)
		read_granite(&r, a);
	read_halves(&r, a);
	if (family->bias_if_there) {
		a->qkv_bias = model_file_find(f, "blk.0.attn_q.bias") != NULL;
		a->qk_norm = model_file_find(f, "blk.0.attn_q_norm.weight") != NULL;
	}
	if (family->scaled_embed)
		a->embed_scale = sqrtf((float)a->n_embd);
	if (!family->encoder)
		read_norm(&r, a);
	const struct model_tensor *embed = model_file_find(f, "token_embd.weight");
	if (r.rc == 0 && (embed == NULL || embed->n_dims != 2 || embed->dims[1] > ARCH_MAX_VOCAB))
		fault(&r, SL_EINVAL, "no proper tensor token_embd.weight");
	if (r.rc != 0 || embed == NULL)
		return r.rc;
	a->n_vocab = (int)embed->dims[1];
	if (family->encoder) {
		read_encoder(&r, family, a);
	} else {
		a->tied_embeddings = model_file_find(f, "output.weight") == NULL;
		read_rope(&r, family, a);
		if (family->latent)
			a->attn_scale = arch_latent_scale(a);
	}
	return r.rc != 0 ? r.rc : arch_check_gguf(&r.seen, g, a, err);
}
