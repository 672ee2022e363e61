/* SPDX-License-Identifier: Apache-2.0
 *
 * Every row of every matrix has its own generator, seeded by the file's seed, the tensor's number and the row, so rows
 * can be made in any order. Values are sums of four uniform ones: close to normal for one draw of 64 bits. Their spread
 * keeps activations near one: 1/sqrt(width) for what reads the normed stream, and less by sqrt(2 · layers) for what
 * adds to it, so that the stream does not grow with depth.
 *
 * The output matrix repeats the embeddings, as in shapes where it is the same. If the final stream were still mostly
 * the token's own row, that token would always win. So embeddings are small relative to what the layers add: a token's
 * own logit is 2.5 deviations above the noise. Greedy text then varies before it repeats, and repeats before another
 * engine's rounding changes it. The last norm's gain compensates for the size: logits have a spread of about three in
 * every shape.
 */
#include "engine/source/random_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/out_file.h"
#include "engine/source/arch_write.h"
#include "kernels/kernels.h"

struct noise {
	uint64_t seed; /* the tensor's */
	size_t width;
	float mean, spread;
	/* For types whose scales are searched: quantized blocks to choose from; otherwise NULL. */
	uint8_t *pool;
	size_t block_bytes, blocks_of_row;
};

enum { POOL_FLOATS = 1 << 19 };

static uint64_t mix(uint64_t z)
{
	z += 0x9E3779B97F4A7C15u;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}

static void noise_row(void *ctx, uint64_t row, float *out)
{
	const struct noise *n = ctx;
	uint64_t state = mix(n->seed ^ mix(row));
	/* Four uniform values of 16 bits: a spread of sqrt(4/12) · 65536, a mean of 131070. */
	const float scale = n->spread * 1.7320508f / 65536.0f;
	for (size_t i = 0; i < n->width; i++) {
		uint64_t z = mix(state + i * 0xD1342543DE82EF95u);
		int32_t sum = (int32_t)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
		out[i] = n->mean + (float)(sum - 131070) * scale;
	}
}

static void pooled_row(void *ctx, uint64_t row, uint8_t *out)
{
	const struct noise *n = ctx;
	uint64_t state = mix(n->seed ^ mix(row)), pool_blocks = POOL_FLOATS / (n->width / n->blocks_of_row);
	for (size_t i = 0; i < n->blocks_of_row; i++)
		memcpy(out + i * n->block_bytes, n->pool + mix(state + i) % pool_blocks * n->block_bytes,
		       n->block_bytes);
}

struct tensor_spec {
	char name[64];
	uint64_t n_in, n_out; /* n_out 0: a vector */
	uint64_t n_vectors;   /* of n_in floats each, or 0: one, of one dimension */
	uint64_t n;           /* matrices in the tensor, or 0: one, of two dimensions */
	float mean, spread;
	bool as_first; /* the same values as the first tensor's, the embeddings' */
};

/* What a pass over the file's tensors does with each: the first pass declares, the second writes. */
struct run {
	const struct random_model *m;
	struct gguf_writer *w;
	struct convert_progress *progress;
	struct sl_err *err;
	bool data;
	/* Called in the first pass for each matrix, which is then left out of the file; NULL: the file has all
	 * matrices. */
	void (*matrix)(void *ctx, const struct random_matrix *x);
	void *ctx;
	uint64_t tensor; /* number of the current tensor */
	int rc;
};

/* Searching the best scales for a billion weights takes minutes. Searching them for POOL_FLOATS per tensor and choosing
 * among those blocks for the rest takes seconds. */
static int make_pool(struct noise *n, struct convert c, struct sl_err *err)
{
	size_t block = (size_t)kn_type_block(c.type), width = n->width;
	n->block_bytes = kn_type_block_bytes(c.type);
	n->blocks_of_row = width / block;
	n->pool = sl_alloc(POOL_FLOATS / block * n->block_bytes);
	if (n->pool == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory");
	/* The pool's own rows are of one block of the largest type. */
	n->width = c.width = 256;
	int rc = convert_rows(&c, 0, POOL_FLOATS / 256, n->pool);
	n->width = width;
	return rc != 0 ? sl_errf(err, rc, "can't write %s", kn_type_name(c.type)) : 0;
}

static uint64_t seed_of(const struct random_model *m, const struct tensor_spec *t, uint64_t number)
{
	return mix(m->seed + (t->as_first ? 0 : number) * 0x9FB21C651E98DF25u);
}

static void each(struct run *r, const struct tensor_spec *t)
{
	const struct random_model *m = r->m;
	if (r->rc != 0)
		return;
	int type = t->n_out == 0
		       ? KN_F32
		       : weight_plan_type(&m->plan, t->name, t->n_in, m->arch.n_layers, m->arch.tied_embeddings);
	uint64_t rows = (t->n_out > 0 ? t->n_out : t->n_vectors > 0 ? t->n_vectors : 1) * (t->n > 0 ? t->n : 1);
	uint64_t number = r->tensor++;
	if (r->matrix != NULL && t->n_out > 0) {
		struct random_matrix x = {.type = type,
					  .n_in = t->n_in,
					  .n_out = t->n_out,
					  .n = t->n > 0 ? t->n : 1,
					  .noise = {.seed = seed_of(m, t, number), .spread = t->spread}};
		snprintf(x.name, sizeof x.name, "%s", t->name);
		if (!r->data)
			r->matrix(r->ctx, &x);
		return;
	}
	if (!r->data) {
		gguf_add_tensor(r->w, t->name, type,
				t->n > 0                      ? 3
				: t->n_out + t->n_vectors > 0 ? 2
							      : 1,
				(uint64_t[]){t->n_in, t->n_out + t->n_vectors, t->n});
		r->progress->total += rows * kn_row_bytes(type, (size_t)t->n_in);
		return;
	}
	struct noise n = {
	    .seed = seed_of(m, t, number), .width = (size_t)t->n_in, .mean = t->mean, .spread = t->spread};
	struct convert c = {
	    .row = noise_row, .ctx = &n, .type = type, .width = (size_t)t->n_in, .n_threads = m->n_threads};
	if (rows * t->n_in > POOL_FLOATS && type != KN_F32 && type != KN_F16 && type != KN_BF16 && type != KN_Q8_0) {
		r->rc = make_pool(&n, c, r->err);
		c.raw_row = pooled_row;
	}
	if (r->rc == 0)
		r->rc = convert_write(&c, t->name, rows, r->w, r->progress, r->err);
	sl_free(n.pool);
}

/* layer -1: the tensor belongs to no layer. */
static void named(struct run *r, int layer, const char *name, const char *suffix, struct tensor_spec t)
{
	char prefix[32] = "";
	if (layer >= 0)
		snprintf(prefix, sizeof prefix, "blk.%d.", layer);
	snprintf(t.name, sizeof t.name, "%s%s%s", prefix, name, suffix);
	each(r, &t);
}

static void matrix(struct run *r, int layer, const char *name, int n_out, int n_in, double spread)
{
	named(r, layer, name, ".weight",
	      (struct tensor_spec){.n_in = (uint64_t)n_in, .n_out = (uint64_t)n_out, .spread = (float)spread});
}

static void matrices(struct run *r, int layer, const char *name, int n, int n_out, int n_in, double spread)
{
	named(r, layer, name, ".weight",
	      (struct tensor_spec){
		  .n_in = (uint64_t)n_in, .n_out = (uint64_t)n_out, .n = (uint64_t)n, .spread = (float)spread});
}

static void vector(struct run *r, int layer, const char *name, int n, double mean, double spread)
{
	named(r, layer, name, "",
	      (struct tensor_spec){.n_in = (uint64_t)n, .mean = (float)mean, .spread = (float)spread});
}

/* n vectors of floats in one tensor, around a mean. */
static void vectors_around(struct run *r, int layer, const char *name, int n, int width, double mean, double spread)
{
	named(r, layer, name, "",
	      (struct tensor_spec){
		  .n_in = (uint64_t)width, .n_vectors = (uint64_t)n, .mean = (float)mean, .spread = (float)spread});
}

static void vectors(struct run *r, int layer, const char *name, int n, int width, double spread)
{
	vectors_around(r, layer, name, n, width, 0, spread);
}

/* A norm's gains, a tenth around their mean. */
static void gains(struct run *r, int layer, const char *name, int n, double mean)
{
	vector(r, layer, name, n, mean, mean / 10);
}

/* A matrix with its bias. */
static void biased(struct run *r, int layer, const char *name, int n_out, int n_in, double spread)
{
	char bias[64];
	snprintf(bias, sizeof bias, "%s.bias", name);
	matrix(r, layer, name, n_out, n_in, spread);
	if (!r->m->arch.no_biases || layer < 0)
		vector(r, layer, bias, n_out, 0, 0.1);
}

static void layer_norm(struct run *r, int layer, const char *name)
{
	char full[64];
	snprintf(full, sizeof full, "%s.weight", name);
	gains(r, layer, full, r->m->arch.n_embd, 1);
	snprintf(full, sizeof full, "%s.bias", name);
	vector(r, layer, full, r->m->arch.n_embd, 0, 0.1);
}

/* A norm follows every sum, so outputs may be as large as the stream. */
static void run_encoder_layer(struct run *r, int i)
{
	const struct model_arch *a = &r->m->arch;
	double in = 1 / sqrt(a->n_embd);
	if (a->no_biases) {
		matrix(r, i, "attn_qkv", 3 * a->n_embd, a->n_embd, in);
	} else {
		biased(r, i, "attn_q", a->n_embd, a->n_embd, in);
		biased(r, i, "attn_k", a->n_embd, a->n_embd, in);
		biased(r, i, "attn_v", a->n_embd, a->n_embd, in);
	}
	biased(r, i, "attn_output", a->n_embd, a->n_embd, in);
	layer_norm(r, i, "attn_output_norm");
	if (!a->ungated)
		matrix(r, i, "ffn_gate", a->n_ff, a->n_embd, in);
	biased(r, i, "ffn_up", a->n_ff, a->n_embd, in);
	biased(r, i, "ffn_down", a->n_embd, a->n_ff, 1 / sqrt(a->n_ff));
	layer_norm(r, i, "layer_output_norm");
}

static void run_encoder(struct run *r)
{
	const struct model_arch *a = &r->m->arch;
	matrix(r, -1, "token_embd", a->n_vocab, a->n_embd, 1);
	if (a->rope.n_rot == 0)
		matrix(r, -1, "position_embd", a->n_ctx, a->n_embd, 0.3);
	matrix(r, -1, "token_types", a->n_types, a->n_embd, 0.3);
	layer_norm(r, -1, "token_embd_norm");
	for (int i = 0; i < a->n_layers; i++)
		run_encoder_layer(r, i);
	if (a->pooling != ARCH_POOL_RANK)
		return;
	biased(r, -1, "cls", a->n_embd, a->n_embd, 1 / sqrt(a->n_embd));
	biased(r, -1, "cls.output", 1, a->n_embd, 3 / sqrt(a->n_embd));
}

enum { POST_GAIN = 4 };

/* A layer's experts. Their outputs are averaged, so each is larger. */
static void run_experts(struct run *r, int i)
{
	const struct model_arch *a = &r->m->arch;
	const struct arch_experts *x = &a->experts;
	double in = 1 / sqrt(a->n_embd), depth = sqrt(2.0 * a->n_layers);
	matrix(r, i, "ffn_gate_inp", x->n, a->n_embd, 2 * in);
	int width = x->n_latent > 0 ? x->n_latent : a->n_embd;
	double of_width = 1 / sqrt(width);
	if (x->n_latent > 0) {
		matrix(r, i, "ffn_latent_down", x->n_latent, a->n_embd, in);
		matrix(r, i, "ffn_latent_up", a->n_embd, x->n_latent, of_width);
	}
	if (!a->ungated)
		matrices(r, i, "ffn_gate_exps", x->n, x->n_ff, width, of_width);
	matrices(r, i, "ffn_up_exps", x->n, x->n_ff, width, of_width);
	matrices(r, i, "ffn_down_exps", x->n, width, x->n_ff, sqrt(x->n_used) / sqrt(x->n_ff) / depth);
	if (x->biases) {
		vector(r, i, "ffn_gate_inp.bias", x->n, 0, 0.5);
		vectors(r, i, "ffn_gate_exps.bias", x->n, x->n_ff, 0.5);
		vectors(r, i, "ffn_up_exps.bias", x->n, x->n_ff, 0.5);
		vectors(r, i, "ffn_down_exps.bias", x->n, a->n_embd, 0.1 / depth);
	}
	if (x->sigmoid && !x->unbiased)
		vector(r, i, "exp_probs_b.bias", x->n, 0, 0.1);
	if (x->n_ff_shared == 0)
		return;
	if (x->shared_gate)
		vector(r, i, "ffn_gate_inp_shexp.weight", a->n_embd, 0, in);
	if (!a->ungated)
		matrix(r, i, "ffn_gate_shexp", x->n_ff_shared, a->n_embd, in);
	matrix(r, i, "ffn_up_shexp", x->n_ff_shared, a->n_embd, in);
	matrix(r, i, "ffn_down_shexp", a->n_embd, x->n_ff_shared, 1 / sqrt(x->n_ff_shared) / depth);
}

/* A norm of the stream. */
static void stream_norm(struct run *r, int i, const char *name)
{
	char full[64];
	if (r->m->arch.norm_biases) {
		layer_norm(r, i, name);
		return;
	}
	snprintf(full, sizeof full, "%s.weight", name);
	gains(r, i, full, r->m->arch.n_embd, 1);
}

/* Between the halves. */
static void run_norms(struct run *r, int i)
{
	const struct model_arch *a = &r->m->arch;
	if (a->post_norms)
		gains(r, i, "post_attention_norm.weight", a->n_embd, POST_GAIN);
	if (!a->no_pre_norms && !a->one_half && a->parallel != ARCH_PARALLEL_ONE_NORM)
		stream_norm(r, i,
			    a->attn_norm_is_2     ? "attn_norm"
			    : a->ffn_norm_is_post ? "post_attention_norm"
						  : "ffn_norm");
}

/* Latent vectors are normed, so what reads them is as large as what reads the stream. */
static void run_latent(struct run *r, int i)
{
	const struct model_arch *a = &r->m->arch;
	const struct arch_latent *d = &a->latent;
	int query = arch_query_width(a), value = arch_value_width(a);
	double in = 1 / sqrt(a->n_embd), depth = sqrt(2.0 * a->n_layers);
	if (d->n_query > 0) {
		matrix(r, i, "attn_q_a", d->n_query, a->n_embd, in);
		gains(r, i, "attn_q_a_norm.weight", d->n_query, 1);
		matrix(r, i, "attn_q_b", query, d->n_query, 1 / sqrt(d->n_query));
	} else {
		matrix(r, i, "attn_q", query, a->n_embd, in);
	}
	matrix(r, i, "attn_kv_a_mqa", a->head_dim, a->n_embd, in);
	gains(r, i, "attn_kv_a_norm.weight", d->n, 1);
	if (d->joined) {
		matrix(r, i, "attn_kv_b", a->n_heads * (d->plain + d->n_value), d->n, 1 / sqrt(d->n));
	} else {
		matrices(r, i, "attn_k_b", a->n_heads, d->n, d->plain, 1 / sqrt(d->n));
		matrices(r, i, "attn_v_b", a->n_heads, d->n_value, d->n, 1 / sqrt(d->n));
	}
	matrix(r, i, "attn_output", a->n_embd, value, 1 / sqrt(value) / depth);
}

/* A convolution's taps: their outputs are about as large as their inputs. */
static void run_taps(struct run *r, int i, const char *name)
{
	const struct model_arch *a = &r->m->arch;
	vectors(r, i, name, arch_channels(a), a->recurrent.conv, 1 / sqrt(a->recurrent.conv));
}

/* Steps are about 0.3, decays about -1, so that states keep some ten positions. */
static void run_ssm(struct run *r, int i)
{
	const struct model_arch *a = &r->m->arch;
	const struct arch_recurrent *x = &a->recurrent;
	int inner = x->v_heads * x->v_dim, channels = arch_channels(a);
	double in = 1 / sqrt(a->n_embd), depth = sqrt(2.0 * a->n_layers);
	run_taps(r, i, "ssm_conv1d.weight");
	if (x->conv_bias)
		vector(r, i, "ssm_conv1d.bias", channels, 0, 0.3);
	matrix(r, i, "ssm_in", inner + channels + x->v_heads, a->n_embd, 2 * in);
	vectors_around(r, i, "ssm_a", x->v_heads, 1, -1, 0.25);
	vectors_around(r, i, "ssm_d", x->v_heads, 1, 1, 0.3);
	vector(r, i, "ssm_dt.bias", x->v_heads, -1, 1);
	vectors_around(r, i, "ssm_norm.weight", x->k_heads, inner / x->k_heads, 1, 0.1);
	matrix(r, i, "ssm_out", a->n_embd, inner, 1 / sqrt(inner) / depth);
}

static void run_recurrent(struct run *r, int i)
{
	const struct model_arch *a = &r->m->arch;
	const struct arch_recurrent *x = &a->recurrent;
	int values = x->v_heads * x->v_dim;
	double in = 1 / sqrt(a->n_embd), depth = sqrt(2.0 * a->n_layers);
	if (x->kind == ARCH_SSM) {
		run_ssm(r, i);
		return;
	}
	if (x->kind == ARCH_SHORT_CONV) {
		run_taps(r, i, "shortconv.conv.weight");
		matrix(r, i, "shortconv.in_proj", 3 * a->n_embd, a->n_embd, in);
		matrix(r, i, "shortconv.out_proj", a->n_embd, a->n_embd, in / depth);
		return;
	}
	run_taps(r, i, "ssm_conv1d.weight");
	matrix(r, i, "attn_qkv", arch_channels(a), a->n_embd, 2 * in);
	matrix(r, i, "attn_gate", values, a->n_embd, in);
	if (x->beta_alpha) {
		matrix(r, i, "ssm_ba", 2 * x->v_heads, a->n_embd, in);
	} else {
		matrix(r, i, "ssm_beta", x->v_heads, a->n_embd, in);
		matrix(r, i, "ssm_alpha", x->v_heads, a->n_embd, in);
	}
	vector(r, i, "ssm_a", x->v_heads, -0.3, 0.1);
	vector(r, i, "ssm_dt.bias", x->v_heads, 0, 1);
	gains(r, i, "ssm_norm.weight", x->v_dim, 1);
	matrix(r, i, "ssm_out", a->n_embd, values, 2 / sqrt(values) / depth);
}

static void run_attention(struct run *r, int i)
{
	const struct model_arch *a = &r->m->arch;
	int q = a->n_heads * a->head_dim, kv = a->n_kv_heads * a->head_dim;
	double in = 1 / sqrt(a->n_embd), depth = sqrt(2.0 * a->n_layers);
	bool joined = strcmp(a->family, "phi3") == 0 || (a->ungated && a->act != ARCH_RELU_SQUARE);
	if (joined) {
		matrix(r, i, "attn_qkv", q + 2 * kv, a->n_embd, in);
	} else {
		matrix(r, i, "attn_q", a->attn_gate ? 2 * q : q, a->n_embd, in);
		matrix(r, i, "attn_k", kv, a->n_embd, in);
		matrix(r, i, "attn_v", kv, a->n_embd, in);
	}
	if (a->qkv_bias && joined) {
		vector(r, i, "attn_qkv.bias", q + 2 * kv, 0, 0.1);
	} else if (a->qkv_bias) {
		vector(r, i, "attn_q.bias", q, 0, 0.1);
		vector(r, i, "attn_k.bias", kv, 0, 0.1);
		vector(r, i, "attn_v.bias", kv, 0, 0.1);
	}
	if (a->qk_norm) {
		gains(r, i, "attn_q_norm.weight", a->qk_norm_row ? q : a->head_dim, 1);
		gains(r, i, "attn_k_norm.weight", a->qk_norm_row ? kv : a->head_dim, 1);
	}
	matrix(r, i, "attn_output", a->n_embd, q, 1 / sqrt(q) / depth);
	if (a->o_bias)
		vector(r, i, "attn_output.bias", a->n_embd, 0, 0.1 / depth);
	if (a->sinks)
		vector(r, i, "attn_sinks.weight", a->n_heads, 1, 1);
}

static void run_dense(struct run *r, int i)
{
	const struct model_arch *a = &r->m->arch;
	bool wide = strcmp(a->family, "phi3") == 0 || strcmp(a->family, "glm4") == 0;
	double in = 1 / sqrt(a->n_embd), depth = sqrt(2.0 * a->n_layers);
	if (!wide && !a->ungated)
		matrix(r, i, "ffn_gate", a->n_ff, a->n_embd, in);
	matrix(r, i, "ffn_up", wide ? 2 * a->n_ff : a->n_ff, a->n_embd, in);
	matrix(r, i, "ffn_down", a->n_embd, a->n_ff, 1 / sqrt(a->n_ff) / depth);
	if (a->ff_biases) {
		vector(r, i, "ffn_up.bias", a->n_ff, 0, 0.1);
		vector(r, i, "ffn_down.bias", a->n_embd, 0, 0.1 / depth);
	}
}

static void run_layer(struct run *r, int i)
{
	const struct model_arch *a = &r->m->arch;
	if (!a->no_pre_norms)
		stream_norm(r, i, a->attn_norm_is_2 ? "attn_norm_2" : "attn_norm");
	if (a->latent.n > 0)
		run_latent(r, i);
	else if (arch_recurs(a, i))
		run_recurrent(r, i);
	else if (arch_attends(a, i))
		run_attention(r, i);
	run_norms(r, i);
	if (arch_mixes(a, i))
		run_experts(r, i);
	else if (arch_has_ff(a, i))
		run_dense(r, i);
	if (a->post_norms)
		gains(r, i, "post_ffw_norm.weight", a->n_embd, POST_GAIN);
}

/* A layer that drafts, and what joins what it reads. Its results are as large as the model's last rows. */
static void run_drafting(struct run *r, int i)
{
	const struct model_arch *a = &r->m->arch;
	run_layer(r, i);
	matrix(r, i, "nextn.eh_proj", a->n_embd, 2 * a->n_embd, 1 / sqrt(2.0 * a->n_embd));
	gains(r, i, "nextn.enorm.weight", a->n_embd, 1);
	gains(r, i, "nextn.hnorm.weight", a->n_embd, 1);
	gains(r, i, "nextn.shared_head_norm.weight", a->n_embd, 1);
}

static void run_all(struct run *r)
{
	const struct model_arch *a = &r->m->arch;
	struct arch_extra extras[ARCH_EXTRA_TENSORS];
	/* The layers add about one; Gemma's post norms scale it to this: */
	double added = a->post_norms ? POST_GAIN * sqrt(2.0 * a->n_layers) : 1, width = sqrt(a->n_embd);
	if (a->recurrent.kind == ARCH_SSM)
		added *= (double)a->residual_scale;
	double spread = 2.5 * added / width / (double)a->embed_scale;
	struct tensor_spec output = {.name = "output.weight",
				     .n_in = (uint64_t)a->n_embd,
				     .n_out = (uint64_t)a->n_vocab,
				     .spread = (float)spread,
				     .as_first = true};
	if (a->encoder) {
		run_encoder(r);
		return;
	}
	matrix(r, -1, "token_embd", a->n_vocab, a->n_embd, spread);
	/* A layer norm divides by the same spread; where a factor follows, logits are that much larger before it. */
	char norm[64];
	snprintf(norm, sizeof norm, "%s.weight", a->norm_name != NULL ? a->norm_name : "output_norm");
	gains(r, -1, norm, a->n_embd, 3 / (spread * width) / (a->layer_norm ? (double)a->logit_scale : 1));
	if (a->norm_biases)
		vector(r, -1, "output_norm.bias", a->n_embd, 0, 0.3 / (spread * width));
	if (!a->tied_embeddings)
		each(r, &output);
	if (a->head_bias)
		vector(r, -1, "output.bias", a->n_vocab, 0, 0.5);
	int n = arch_write_extras(a, extras);
	for (int i = 0; i < n && r->rc == 0; i++) {
		size_t bytes = (size_t)extras[i].n * sizeof(float);
		if (r->data)
			gguf_write_data(r->w, extras[i].values, bytes);
		else
			gguf_add_tensor(r->w, extras[i].name, KN_F32, 1, (uint64_t[]){(uint64_t)extras[i].n});
	}
	for (int i = 0; i < a->n_layers; i++)
		run_layer(r, i);
	for (int i = 0; i < a->n_drafting; i++)
		run_drafting(r, a->n_layers + i);
}

/* ---- the tokenizer ---- */

static int vocabulary_size(const struct gguf *g, int *out, struct sl_err *err)
{
	struct gguf_array tokens;
	int rc = gguf_get_array(g, "tokenizer.ggml.tokens", &tokens, err);
	if (rc == 0 && (tokens.n == 0 || tokens.n > RANDOM_MOST_VOCAB))
		rc = sl_errf(err, SL_EINVAL, "%s: a vocabulary of %llu tokens", gguf_path(g),
			     (unsigned long long)tokens.n);
	if (rc == 0)
		*out = (int)tokens.n;
	return rc;
}

static void copy_tokenizer(const struct gguf *g, struct gguf_writer *w)
{
	for (size_t i = 0; i < gguf_n_keys(g); i++) {
		enum gguf_value type;
		struct proto_str value, key = gguf_raw_key(g, i, &type, &value);
		if (key.n > 10 && memcmp(key.at, "tokenizer.", 10) == 0)
			gguf_put_raw(w, key, type, value);
	}
}

/* Finishes w. matrix: as in struct run. */
static int write_file(struct random_model *m, const struct gguf *tokenizer, struct gguf_writer *w,
		      struct convert_progress *p, void (*declare)(void *ctx, const struct random_matrix *x), void *ctx,
		      struct sl_err *err)
{
	int rc = arch_write_keys(&m->arch, w, err);
	gguf_put_str(w, "general.name", m->name, strlen(m->name));
	if (tokenizer != NULL)
		copy_tokenizer(tokenizer, w);
	else
		random_vocab_write(w, m->arch.n_vocab, m->arch.encoder);
	struct run r = {.m = m, .w = w, .progress = p, .err = err, .rc = rc, .matrix = declare, .ctx = ctx};
	run_all(&r);
	r.data = true;
	r.tensor = 0;
	run_all(&r);
	if (r.rc == 0 || gguf_writer_status(w) != 0)
		return gguf_writer_finish(w, err);
	gguf_writer_abort(w);
	return r.rc;
}

int random_model_write(const struct random_model *m, struct convert_progress *p, struct sl_err *err)
{
	struct convert_progress mine = {0};
	struct random_model copy = *m;
	struct gguf *g = NULL;
	int rc = m->tokenizer != NULL ? gguf_open(m->tokenizer, &g, err) : 0;
	struct gguf_writer *w = NULL;
	if (rc == 0 && g != NULL)
		rc = vocabulary_size(g, &copy.arch.n_vocab, err);
	if (rc == 0 && g != NULL)
		rc = out_file_is_not(m->path, m->tokenizer, err);
	if (rc == 0)
		rc = gguf_writer_create(m->path, !m->keep, &w, err);
	if (rc == 0)
		rc = write_file(&copy, g, w, p != NULL ? p : &mine, NULL, NULL, err);
	gguf_close(g);
	return rc;
}

int random_model_head(const struct random_model *m, int fd, void (*declare)(void *ctx, const struct random_matrix *x),
		      void *ctx, struct sl_err *err)
{
	struct convert_progress mine = {0};
	struct random_model copy = *m;
	struct gguf_writer *w;
	BUG_IF(m->tokenizer != NULL, "%s: the head of a model with another one's tokenizer", m->name);
	int rc = gguf_writer_create_fd(fd, m->path, &w, err);
	return rc != 0 ? rc : write_file(&copy, NULL, w, &mine, declare, ctx, err);
}
