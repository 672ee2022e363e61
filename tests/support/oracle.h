/* SPDX-License-Identifier: Apache-2.0
 *
 * A forward pass in double precision, independent of the engine's: written from the families' own definitions (their
 * papers and the configuration classes of the transformers library), a whole text at once, no pages, no cache, no
 * blocks. The caller describes a family with numbers; of the engine it uses only the lookup of a tensor by name.
 */
#ifndef TESTS_ORACLE_H
#define TESTS_ORACLE_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/source/model_file.h"
#include "kernels/quantize.h"

struct oracle {
	int n_layers, n_embd, n_heads, n_kv, head_dim, n_ff, n_vocab;
	double eps;
	bool halves; /* pairs of the rotary embedding */
	bool bias, qk_norm, post_norms, gelu, fused;
	double embed_scale;
	double score_scale, score_cap, logit_cap;
	int window, every;         /* every `every`th layer sees all; 0: none does */
	double *freq, *freq_local; /* [head_dim / 2] radians a position */
	double magnitude;
	bool qk_norm_row; /* with qk_norm: one norm of all heads */
	/* Mixtures of experts in every layer; n_ff_shared: of the gated one that computes every row, 0: none. */
	int n_experts, n_used, n_ff_expert, n_ff_shared;
	bool normed_weights;
	/* gpt-oss: sinks, a bias of every product, a limited gate, and another name for the feed-forward half's norm.
	 */
	bool oss;
	int turned;         /* elements of a head that turn; 0: all */
	int still_every;    /* every still_every-th layer does not turn; 0: all do */
	double half_scale;  /* of what each half of a layer adds; 0: 1 */
	double logit_scale; /* 0: 1 */
	bool wide_up;       /* gate and up in one matrix, but not q, k and v */
	bool norm_is_post;  /* oss' name of the feed-forward half's norm */
	/* Sigmoids choose, with a bias, and count times weight_scale; the first n_dense layers are dense. */
	bool sigmoid;
	int n_dense;
	double weight_scale;
	/* Norms subtract the mean; they have biases, and so have the outputs of attention and head. */
	bool mean, norm_bias, o_bias, head_bias;
	int parallel;          /* attention and feed-forward read the same stream: by one norm or by two; 0: not */
	bool second;           /* with two: attention's is attn_norm_2, the other attn_norm */
	bool ungated, ff_bias; /* the feed-forward half is up, GELU by the error function, down; with biases */
	bool bare;             /* halves read the stream itself */
	bool still_full;       /* layers that see all do not turn */
	double grow;           /* queries are multiplied by 1 + grow · log(1 + floor(pos / grow_every)) */
	int grow_every;
	/* Latent attention: elements of the latent vector (0: none), of the queries' (0: none), of a head's keys that
	 * do not turn, of a head's values; then head_dim is plain + turned, and n_kv is n_heads. */
	int n_latent, n_low, plain, n_value;
	bool latent_joined;
	/* Only experts of the n_groups_used groups count whose two best, or whose best, are largest. */
	int n_groups, n_groups_used;
	bool group_best;
	/* Llama 4: chunks instead of windows; RMS norms without gains behind rope; weights that are sigmoids and count
	 * before an expert; a mixture in every mix_every-th layer; queries of layers that do not turn as with grow,
	 * from the second position on. */
	bool chunked, plain_norms, weighs_input;
	int mix_every;
	double still_grow;
	int still_grow_every;
	double close; /* weights are shares among logits that are this close, one expert after the other; 0: not */
	/* Layers that keep a state (oracle_recurrent.h), bit by bit; with v_heads they are of the gated delta rule or,
	 * with ssm, state spaces: groups, heads, elements of a state and of a head; steps are at most `most`, if that
	 * is not 0.
	 */
	unsigned recurrent;
	int conv, k_heads, v_heads, k_dim, v_dim;
	bool ssm;
	double most;
	/* Layers are one half each, those of the bits only a feed-forward one; without a gate, by the square of what is
	 * positive. Experts read and write vectors of n_low_ff elements; 0: the stream. */
	bool one_half, square;
	unsigned only_ff;
	int n_low_ff;
	bool tiled;
	bool q_gate;       /* queries come with gates of attention's output, head by head */
	bool norm_of_embd; /* the last norm is token_embd_norm */
};

static inline double *oracle_tensor(const struct model_file *f, int layer, const char *what, size_t n)
{
	char name[64];
	if (layer >= 0)
		snprintf(name, sizeof name, "blk.%d.%s", layer, what);
	else
		snprintf(name, sizeof name, "%s", what);
	const struct model_tensor *t = model_file_find(f, name);
	if (t == NULL)
		return NULL;
	float *plain = malloc(n * sizeof *plain);
	double *out = malloc(n * sizeof *out);
	kn_dequantize(t->type, t->data, n, plain);
	for (size_t i = 0; i < n; i++)
		out[i] = (double)plain[i];
	free(plain);
	return out;
}

/* Sums side by side, each of every fourth term: a single one would wait for its previous addition. */
static inline __attribute__((always_inline)) void oracle_sums(const double *w, const double *x, int n_out, int n_in,
							      double *y)
{
	typedef double four __attribute__((vector_size(32), aligned(8), may_alias));
	enum { BESIDE = 8, AT_ONCE = 4 };
	for (int o = 0; o < n_out; o += BESIDE) {
		int n = n_out - o < BESIDE ? n_out - o : BESIDE, i = 0;
		const double *row[BESIDE];
		four sum[BESIDE] = {{0}};
		for (int k = 0; k < BESIDE; k++)
			row[k] = w + (size_t)(o + (k < n ? k : 0)) * (size_t)n_in;
		for (; i + AT_ONCE <= n_in; i += AT_ONCE)
#pragma GCC unroll 8
			for (int k = 0; k < BESIDE; k++)
				sum[k] +=
				    *(const four *)(const void *)(row[k] + i) * *(const four *)(const void *)(x + i);
		for (int k = 0; k < n; k++)
			y[o + k] = (sum[k][0] + sum[k][1]) + (sum[k][2] + sum[k][3]);
		for (; i < n_in; i++)
			for (int k = 0; k < n; k++)
				y[o + k] += row[k][i] * x[i];
	}
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static inline void oracle_sums_avx2(const double *w, const double *x, int n_out,
								    int n_in, double *y)
{
	oracle_sums(w, x, n_out, n_in, y);
}
#endif

/* y = w x; w [n_out][n_in]. */
static inline void oracle_product(const double *w, const double *x, int n_out, int n_in, double *y)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2")) {
		oracle_sums_avx2(w, x, n_out, n_in, y);
		return;
	}
#endif
	oracle_sums(w, x, n_out, n_in, y);
}

static inline void oracle_norm(const double *x, const double *gain, int n, double eps, double *y)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += x[i] * x[i];
	double scale = 1 / sqrt(sum / n + eps);
	for (int i = 0; i < n; i++)
		y[i] = x[i] * scale * gain[i];
}

/* A norm of the stream; bias NULL: none. */
static inline void oracle_stream(const struct oracle *m, const double *x, const double *gain, const double *bias,
				 double *y)
{
	double mean = 0, sum = 0;
	for (int i = 0; i < m->n_embd && m->mean; i++)
		mean += x[i] / m->n_embd;
	for (int i = 0; i < m->n_embd; i++)
		sum += (x[i] - mean) * (x[i] - mean);
	for (int i = 0; i < m->n_embd; i++)
		y[i] = (x[i] - mean) / sqrt(sum / m->n_embd + m->eps) * gain[i] + (bias != NULL ? bias[i] : 0);
}

static inline void oracle_turn(const struct oracle *m, const double *freq, double *head, int pos)
{
	double magnitude = freq == m->freq ? m->magnitude : 1;
	int half = (m->turned > 0 ? m->turned : m->head_dim) / 2;
	for (int i = 0; i < half; i++) {
		int a = m->halves ? i : 2 * i, b = m->halves ? i + half : 2 * i + 1;
		double c = magnitude * cos(pos * freq[i]), s = magnitude * sin(pos * freq[i]);
		double x = head[a], y = head[b];
		head[a] = x * c - y * s;
		head[b] = y * c + x * s;
	}
}

static inline double oracle_dot(const double *a, const double *b, int n)
{
	double sum[4] = {0}; /* side by side, as in oracle_product */
	int i = 0;
	for (; i + 3 < n; i += 4)
		for (int k = 0; k < 4; k++)
			sum[k] += a[i + k] * b[i + k];
	for (; i < n; i++)
		sum[0] += a[i] * b[i];
	return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static inline double oracle_act(const struct oracle *m, double g)
{
	return m->gelu ? 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) : g / (1 + exp(-g));
}

/* out = down(act(gate(x)) · up(x)), of one matrix each; bias: NULL, or of the three. */
static inline void oracle_wide(const struct oracle *m, const double *gate, const double *up, const double *down,
			       const double *const *bias, int n_ff, const double *x, double *out)
{
	double *g = malloc((size_t)n_ff * sizeof *g), *u = malloc((size_t)n_ff * sizeof *u);
	oracle_product(gate, x, n_ff, m->n_embd, g);
	oracle_product(up, x, n_ff, m->n_embd, u);
	for (int i = 0; i < n_ff && bias != NULL; i++) {
		g[i] += bias[0][i];
		u[i] += bias[1][i];
	}
	for (int i = 0; i < n_ff; i++) {
		double limited = fmin(g[i], 7);
		g[i] = m->oss ? limited / (1 + exp(-1.702 * limited)) * (fmax(-7, fmin(u[i], 7)) + 1)
			      : oracle_act(m, g[i]) * u[i];
	}
	oracle_product(down, g, m->n_embd, n_ff, out);
	for (int i = 0; i < m->n_embd && bias != NULL; i++)
		out[i] += bias[2][i];
	free(g);
	free(u);
}

/* out = down(GELU(up(x) + bias)) + bias, by the error function or, with gelu, by tanh; biases may be NULL. */
static inline void oracle_narrow(const struct oracle *m, const double *up, const double *up_bias, const double *down,
				 const double *down_bias, const double *x, double *out)
{
	double *u = malloc((size_t)m->n_ff * sizeof *u);
	oracle_product(up, x, m->n_ff, m->n_embd, u);
	for (int i = 0; i < m->n_ff; i++) {
		u[i] += up_bias != NULL ? up_bias[i] : 0;
		u[i] = m->square ? pow(fmax(u[i], 0), 2)
		       : m->gelu ? oracle_act(m, u[i])
				 : 0.5 * u[i] * (1 + erf(u[i] / sqrt(2)));
	}
	oracle_product(down, u, m->n_embd, m->n_ff, out);
	for (int i = 0; i < m->n_embd && down_bias != NULL; i++)
		out[i] += down_bias[i];
	free(u);
}

/* A layer's feed-forward half: dense, or of experts. */
struct oracle_half {
	double *gate, *up, *down;                   /* of all experts */
	double *router, *shared_router, *shared[3]; /* shared: gate, up, down */
	double *router_bias, *choice_bias, *bias[3];
	double *low, *high; /* into experts' vectors and out of them */
	bool mixes;
};

static inline struct oracle_half oracle_half_read(const struct oracle *m, const struct model_file *f, int l)
{
	size_t e = (size_t)m->n_embd, ff = (size_t)m->n_ff, n = (size_t)m->n_experts, low = (size_t)m->n_low_ff;
	size_t one = (size_t)m->n_ff_expert * (low > 0 ? low : e);
	size_t shared = (size_t)m->n_ff_shared * e;
	struct oracle_half h = {.mixes = n > 0 && l >= m->n_dense &&
					 (m->mix_every == 0 || l % m->mix_every == m->mix_every - 1)};
	bool wide = m->fused || m->wide_up;
	if (!h.mixes && m->ungated) {
		h.up = oracle_tensor(f, l, "ffn_up.weight", ff * e);
		h.down = oracle_tensor(f, l, "ffn_down.weight", e * ff);
		h.bias[1] = m->ff_bias ? oracle_tensor(f, l, "ffn_up.bias", ff) : NULL;
		h.bias[2] = m->ff_bias ? oracle_tensor(f, l, "ffn_down.bias", e) : NULL;
		return h;
	}
	if (!h.mixes) {
		h.gate = wide ? NULL : oracle_tensor(f, l, "ffn_gate.weight", ff * e);
		h.up = oracle_tensor(f, l, "ffn_up.weight", (wide ? 2 : 1) * ff * e);
		h.down = oracle_tensor(f, l, "ffn_down.weight", e * ff);
		return h;
	}
	h.gate = oracle_tensor(f, l, "ffn_gate_exps.weight", n * one);
	h.up = oracle_tensor(f, l, "ffn_up_exps.weight", n * one);
	h.down = oracle_tensor(f, l, "ffn_down_exps.weight", n * one);
	h.router = oracle_tensor(f, l, "ffn_gate_inp.weight", n * e);
	h.low = oracle_tensor(f, l, "ffn_latent_down.weight", low * e);
	h.high = oracle_tensor(f, l, "ffn_latent_up.weight", low * e);
	if (m->sigmoid && !m->weighs_input)
		h.choice_bias = oracle_tensor(f, l, "exp_probs_b.bias", n);
	if (m->oss) {
		h.router_bias = oracle_tensor(f, l, "ffn_gate_inp.bias", n);
		h.bias[0] = oracle_tensor(f, l, "ffn_gate_exps.bias", n * (size_t)m->n_ff_expert);
		h.bias[1] = oracle_tensor(f, l, "ffn_up_exps.bias", n * (size_t)m->n_ff_expert);
		h.bias[2] = oracle_tensor(f, l, "ffn_down_exps.bias", n * e);
	}
	if (shared == 0)
		return h;
	h.shared_router = oracle_tensor(f, l, "ffn_gate_inp_shexp.weight", e);
	h.shared[0] = oracle_tensor(f, l, "ffn_gate_shexp.weight", shared);
	h.shared[1] = oracle_tensor(f, l, "ffn_up_shexp.weight", shared);
	h.shared[2] = oracle_tensor(f, l, "ffn_down_shexp.weight", shared);
	return h;
}

static inline void oracle_half_free(struct oracle_half *h)
{
	double *all[] = {h->gate,      h->up,        h->down,      h->router,      h->shared_router,
			 h->shared[0], h->shared[1], h->shared[2], h->router_bias, h->choice_bias,
			 h->bias[0],   h->bias[1],   h->bias[2],   h->low,         h->high};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

/* By hand for two experts: the largest logit, then the largest of the others, each among those close to it. */
static inline void oracle_two_close(const struct oracle *m, const double *logits, int chosen[2], double weight[2])
{
	chosen[0] = -1;
	for (int k = 0; k < 2; k++) {
		double most = -INFINITY, sum = 0;
		for (int i = 0; i < m->n_experts; i++)
			if (!(k == 1 && i == chosen[0]) && logits[i] > most)
				most = logits[i], chosen[k] = i;
		for (int i = 0; i < m->n_experts; i++)
			if (!(k == 1 && i == chosen[0]) &&
			    (most - logits[i]) / fmax(fabs(logits[i]), most) <= 2 * m->close)
				sum += exp(logits[i] - most);
		weight[k] = 1 / sum;
	}
}

/* Ranks of experts outside of the chosen groups become -inf: a group is chosen that fewer than n_groups_used others
 * exceed. */
static inline void oracle_groups(const struct oracle *m, double *rank)
{
	int each = m->n_experts / m->n_groups;
	double sum[64];
	for (int g = 0; g < m->n_groups; g++) {
		double first = -INFINITY, second = -INFINITY;
		for (int i = g * each; i < (g + 1) * each; i++)
			first = fmax(first, rank[i]);
		for (int i = g * each; i < (g + 1) * each; i++)
			if (rank[i] < first)
				second = fmax(second, rank[i]);
		sum[g] = m->group_best ? first : first + second;
	}
	for (int g = 0; g < m->n_groups; g++) {
		int larger = 0;
		for (int k = 0; k < m->n_groups; k++)
			larger += sum[k] > sum[g];
		for (int i = g * each; i < (g + 1) * each && larger >= m->n_groups_used; i++)
			rank[i] = -INFINITY;
	}
}

/* Expert i, or with i -1 the one that computes every row. */
static inline void oracle_expert(const struct oracle *m, const struct oracle_half *h, int i, const double *x,
				 double *out)
{
	struct oracle of = *m;
	bool shared = i < 0;
	of.n_embd = m->n_low_ff > 0 && !shared ? m->n_low_ff : m->n_embd;
	of.n_ff = shared ? m->n_ff_shared : m->n_ff_expert;
	size_t at = shared ? 0 : (size_t)i * (size_t)of.n_ff * (size_t)of.n_embd;
	const double *up = (shared ? h->shared[1] : h->up) + at, *down = (shared ? h->shared[2] : h->down) + at;
	if (m->ungated) {
		oracle_narrow(&of, up, NULL, down, NULL, x, out);
		return;
	}
	size_t ff = shared ? 0 : (size_t)(i * of.n_ff), e = shared ? 0 : (size_t)(i * of.n_embd);
	const double *const bias[] = {h->bias[0] + ff, h->bias[1] + ff, h->bias[2] + e};
	oracle_wide(&of, (shared ? h->shared[0] : h->gate) + at, up, down, m->oss && !shared ? bias : NULL, of.n_ff, x,
		    out);
}

/* Each expert counts that fewer than n_used others are likelier than. */
static inline void oracle_mixture(const struct oracle *m, const struct oracle_half *h, const double *stream,
				  double *out)
{
	size_t e = (size_t)(m->n_low_ff > 0 ? m->n_low_ff : m->n_embd);
	const double *x = stream;
	double low[1024];
	if (m->n_low_ff > 0) {
		oracle_product(h->low, stream, m->n_low_ff, m->n_embd, low);
		x = low;
	}
	double *p = malloc((size_t)m->n_experts * sizeof *p), all = 0, used = 0;
	double *y = malloc((size_t)m->n_embd * sizeof *y);
	double *weighed = malloc(e * sizeof *weighed);
	double *rank = malloc((size_t)m->n_experts * sizeof *rank), scale = m->weight_scale > 0 ? m->weight_scale : 1;
	oracle_product(h->router, stream, m->n_experts, m->n_embd, p);
	int two[2] = {-1, -1};
	double close[2] = {0};
	if (m->close > 0)
		oracle_two_close(m, p, two, close);
	for (int i = 0; i < m->n_experts; i++) {
		p[i] = m->sigmoid ? 1 / (1 + exp(-p[i])) : exp(p[i] + (m->oss ? h->router_bias[i] : 0));
		rank[i] = p[i] + (h->choice_bias != NULL ? h->choice_bias[i] : 0);
		all += p[i];
	}
	if (m->n_groups > 0)
		oracle_groups(m, rank);
	for (size_t i = 0; i < e; i++)
		out[i] = 0;
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < m->n_experts; i++) {
			int likelier = 0;
			for (int k = 0; k < m->n_experts; k++)
				likelier += rank[k] > rank[i];
			if (likelier >= m->n_used || rank[i] == -INFINITY)
				continue;
			used += pass == 0 ? p[i] : 0;
			if (pass == 0)
				continue;
			for (size_t k = 0; k < e; k++)
				weighed[k] = m->weighs_input ? p[i] * x[k] : x[k];
			oracle_expert(m, h, i, weighed, y);
			double share = m->weighs_input ? 1
				       : m->close > 0  ? close[i == two[1]]
						       : p[i] / (m->normed_weights ? used : all);
			for (size_t k = 0; k < e; k++)
				out[k] += share * scale * y[k];
		}
	if (m->n_low_ff > 0) {
		oracle_product(h->high, out, m->n_embd, m->n_low_ff, y);
		memcpy(out, y, (size_t)m->n_embd * sizeof *out);
	}
	if (m->n_ff_shared > 0) {
		double gate =
		    h->shared_router == NULL ? 1 : 1 / (1 + exp(-oracle_dot(h->shared_router, stream, m->n_embd)));
		oracle_expert(m, h, -1, stream, y);
		for (int k = 0; k < m->n_embd; k++)
			out[k] += gate * y[k];
	}
	free(p);
	free(rank);
	free(weighed);
	free(y);
}

/* Queries, keys and values of all heads as the paper has them, with keys and values of each head (DeepSeek-V2, 2.1.2
 * and 2.1.3), from the normed stream `a`, at position t. */
struct oracle_latent {
	double *q_a, *q_a_norm, *q, *kv_a, *kv_a_norm, *k_b, *v_b, *kv_b;
};

static inline struct oracle_latent oracle_latent_read(const struct oracle *m, const struct model_file *f, int l)
{
	size_t e = (size_t)m->n_embd, low = (size_t)m->n_low, n = (size_t)m->n_latent, heads = (size_t)m->n_heads;
	size_t plain = (size_t)m->plain, value = (size_t)m->n_value, hd = (size_t)m->head_dim;
	struct oracle_latent x = {.kv_a = oracle_tensor(f, l, "attn_kv_a_mqa.weight", (n + (size_t)m->turned) * e),
				  .kv_a_norm = oracle_tensor(f, l, "attn_kv_a_norm.weight", n)};
	x.q = low == 0 ? oracle_tensor(f, l, "attn_q.weight", heads * hd * e)
		       : oracle_tensor(f, l, "attn_q_b.weight", heads * hd * low);
	x.q_a = low > 0 ? oracle_tensor(f, l, "attn_q_a.weight", low * e) : NULL;
	x.q_a_norm = low > 0 ? oracle_tensor(f, l, "attn_q_a_norm.weight", low) : NULL;
	x.kv_b = m->latent_joined ? oracle_tensor(f, l, "attn_kv_b.weight", heads * (plain + value) * n) : NULL;
	x.k_b = m->latent_joined ? NULL : oracle_tensor(f, l, "attn_k_b.weight", heads * n * plain);
	x.v_b = m->latent_joined ? NULL : oracle_tensor(f, l, "attn_v_b.weight", heads * value * n);
	return x;
}

static inline void oracle_latent_free(struct oracle_latent *x)
{
	double *all[] = {x->q_a, x->q_a_norm, x->q, x->kv_a, x->kv_a_norm, x->k_b, x->v_b, x->kv_b};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

static inline void oracle_latent_row(const struct oracle *m, const struct oracle_latent *x, const double *a, int t,
				     double *q, double *k, double *v)
{
	int n = m->n_latent, hd = m->head_dim, plain = m->plain, value = m->n_value;
	double *low = malloc((size_t)(m->n_low + n + m->turned) * sizeof *low), *row = low + m->n_low;
	if (m->n_low > 0) {
		oracle_product(x->q_a, a, m->n_low, m->n_embd, low);
		oracle_norm(low, x->q_a_norm, m->n_low, m->eps, low);
	}
	oracle_product(x->q, m->n_low > 0 ? low : a, m->n_heads * hd, m->n_low > 0 ? m->n_low : m->n_embd, q);
	oracle_product(x->kv_a, a, n + m->turned, m->n_embd, row);
	oracle_norm(row, x->kv_a_norm, n, m->eps, row);
	oracle_turn(m, m->freq, row + n, t);
	for (int h = 0; h < m->n_heads; h++, q += hd, k += hd, v += value) {
		oracle_turn(m, m->freq, q + plain, t);
		for (int i = 0; i < plain; i++) {
			k[i] = 0;
			for (int j = 0; j < n; j++)
				k[i] += row[j] * (x->kv_b != NULL ? x->kv_b[(h * (plain + value) + i) * n + j]
								  : x->k_b[(h * n + j) * plain + i]);
		}
		for (int i = 0; i < m->turned; i++)
			k[plain + i] = row[n + i];
		oracle_product(x->kv_b != NULL ? x->kv_b + (h * (plain + value) + plain) * n : x->v_b + h * value * n,
			       row, value, n, v);
	}
	free(low);
}

#include "tests/support/oracle_recurrent.h"

/* Queries with gates of the output: q [heads][head_dim], gate likewise. */
static inline void oracle_gated_queries(const struct oracle *m, const double *wq, const double *x, double *q,
					double *gate)
{
	size_t hd = (size_t)m->head_dim, heads = (size_t)m->n_heads;
	double *both = malloc(2 * heads * hd * sizeof *both);
	oracle_product(wq, x, (int)(2 * heads * hd), m->n_embd, both);
	for (size_t i = 0; i < heads * hd; i++) {
		q[i] = both[i / hd * 2 * hd + i % hd];
		gate[i] = both[(i / hd * 2 + 1) * hd + i % hd];
	}
	free(both);
}

/* Applies one layer to x [n][n_embd]; only to the rows [n] that somebody reads, NULL: all. Each row's keys and values
 * count in either case. */
static inline void oracle_layer(const struct oracle *m, const struct model_file *f, int l, double *x, int n,
				const bool *read)
{
	size_t e = (size_t)m->n_embd, qw = (size_t)(m->n_heads * m->head_dim), kw = (size_t)(m->n_kv * m->head_dim);
	size_t vw = m->n_latent > 0 ? (size_t)(m->n_heads * m->n_value) : kw, ow = m->n_latent > 0 ? vw : qw;
	int hd = m->head_dim, vd = m->n_latent > 0 ? m->n_value : hd;
	double *wqkv = NULL, *wq = NULL, *wk = NULL, *wv = NULL;
	struct oracle_latent latent = {0};
	struct oracle_half half = oracle_half_read(m, f, l);
	int q_heads = m->qk_norm_row ? m->n_heads : 1, k_heads = m->qk_norm_row ? m->n_kv : 1; /* in a norm */
	if (m->n_latent > 0) {
		latent = oracle_latent_read(m, f, l);
	} else if (m->fused) {
		wqkv = oracle_tensor(f, l, "attn_qkv.weight", (qw + 2 * kw) * e);
		wq = wqkv;
		wk = wqkv + qw * e;
		wv = wk + kw * e;
	} else {
		wq = oracle_tensor(f, l, "attn_q.weight", (m->q_gate ? 2 : 1) * qw * e);
		wk = oracle_tensor(f, l, "attn_k.weight", kw * e);
		wv = oracle_tensor(f, l, "attn_v.weight", kw * e);
	}
	double *wo = oracle_tensor(f, l, "attn_output.weight", e * ow);
	const char *first = m->second ? "attn_norm_2.weight" : "attn_norm.weight";
	const char *after = m->second                   ? "attn_norm.weight"
			    : m->oss || m->norm_is_post ? "post_attention_norm.weight"
							: "ffn_norm.weight";
	double *n1 = m->bare ? NULL : oracle_tensor(f, l, first, e);
	double *n2 = m->bare || m->one_half || m->parallel == 1 ? NULL : oracle_tensor(f, l, after, e);
	double *b1 = m->norm_bias ? oracle_tensor(f, l, m->second ? "attn_norm_2.bias" : "attn_norm.bias", e) : NULL;
	double *b2 =
	    m->norm_bias && n2 != NULL ? oracle_tensor(f, l, m->second ? "attn_norm.bias" : "ffn_norm.bias", e) : NULL;
	double *sinks = m->oss ? oracle_tensor(f, l, "attn_sinks.weight", (size_t)m->n_heads) : NULL;
	double *bo = m->oss || m->o_bias ? oracle_tensor(f, l, "attn_output.bias", e) : NULL;
	double *p1 = m->post_norms ? oracle_tensor(f, l, "post_attention_norm.weight", e) : NULL;
	double *p2 = m->post_norms ? oracle_tensor(f, l, "post_ffw_norm.weight", e) : NULL;
	bool together = m->bias && m->fused;
	double *bqkv = together ? oracle_tensor(f, l, "attn_qkv.bias", qw + 2 * kw) : NULL;
	double *bq = together ? bqkv : m->bias ? oracle_tensor(f, l, "attn_q.bias", qw) : NULL;
	double *bk = together ? bqkv + qw : m->bias ? oracle_tensor(f, l, "attn_k.bias", kw) : NULL;
	double *bv = together ? bk + kw : m->bias ? oracle_tensor(f, l, "attn_v.bias", kw) : NULL;
	double *nq = m->qk_norm ? oracle_tensor(f, l, "attn_q_norm.weight", (size_t)(hd * q_heads)) : NULL;
	double *nk = m->qk_norm ? oracle_tensor(f, l, "attn_k_norm.weight", (size_t)(hd * k_heads)) : NULL;
	bool local = m->window > 0 && !(m->every > 0 && l % m->every == m->every - 1);
	const double *freq = local && m->freq_local != NULL ? m->freq_local : m->freq;
	bool turns =
	    !m->ssm && (m->still_every == 0 || l % m->still_every != m->still_every - 1) && (local || !m->still_full);
	double added = m->half_scale > 0 ? m->half_scale : 1;
	bool only_ff = m->one_half && (m->only_ff >> l & 1) != 0;

	double *mixed = oracle_recurrent(m, f, l, x, n);
	double *gates = malloc((size_t)n * qw * sizeof *gates);
	double one[1024]; /* gains where a norm has none */
	for (int i = 0; i < hd; i++)
		one[i] = 1;
	double *q = malloc((size_t)n * qw * sizeof *q), *k = malloc((size_t)n * kw * sizeof *k);
	double *v = malloc((size_t)n * vw * sizeof *v), *p = malloc((size_t)n * sizeof *p);
	double *a = malloc((qw + ow > e ? qw + ow : e) * sizeof *a), *c = malloc(e * sizeof *c);
	for (int t = 0; t < n && mixed == NULL && !only_ff; t++) {
		double *qt = q + (size_t)t * qw, *kt = k + (size_t)t * kw, *vt = v + (size_t)t * vw;
		if (m->bare)
			memcpy(a, x + (size_t)t * e, e * sizeof *a);
		else
			oracle_stream(m, x + (size_t)t * e, n1, b1, a);
		if (m->n_latent > 0) {
			oracle_latent_row(m, &latent, a, t, qt, kt, vt);
			continue;
		}
		if (m->q_gate)
			oracle_gated_queries(m, wq, a, qt, gates + (size_t)t * qw);
		else
			oracle_product(wq, a, (int)qw, m->n_embd, qt);
		oracle_product(wk, a, (int)kw, m->n_embd, kt);
		oracle_product(wv, a, (int)kw, m->n_embd, vt);
		for (size_t i = 0; i < qw && m->bias; i++)
			qt[i] += bq[i];
		for (size_t i = 0; i < kw && m->bias; i++) {
			kt[i] += bk[i];
			vt[i] += bv[i];
		}
		for (int h = 0; h < m->n_heads; h++) {
			if (m->qk_norm && h % q_heads == 0)
				oracle_norm(qt + h * hd, nq, hd * q_heads, m->eps, qt + h * hd);
			if (turns)
				oracle_turn(m, freq, qt + h * hd, t);
			for (int i = 0; i < hd && m->grow > 0; i++)
				qt[h * hd + i] *= 1 + m->grow * log(1 + t / m->grow_every);
			for (int i = 0; i < hd && m->still_grow > 0 && !turns; i++)
				qt[h * hd + i] *= 1 + m->still_grow * log(1 + (t + 1) / m->still_grow_every);
			if (m->plain_norms && turns)
				oracle_norm(qt + h * hd, one, hd, m->eps, qt + h * hd);
		}
		for (int h = 0; h < m->n_kv; h++) {
			if (m->qk_norm && h % k_heads == 0)
				oracle_norm(kt + h * hd, nk, hd * k_heads, m->eps, kt + h * hd);
			if (turns)
				oracle_turn(m, freq, kt + h * hd, t);
			if (m->plain_norms && turns)
				oracle_norm(kt + h * hd, one, hd, m->eps, kt + h * hd);
		}
	}
	for (int t = 0; t < n; t++) {
		if (read != NULL && !read[t])
			continue;
		double *xt = x + (size_t)t * e;
		int from = local && t + 1 > m->window ? t + 1 - m->window : 0;
		if (local && m->chunked)
			from = t - t % m->window;
		for (int h = 0; h < m->n_heads && mixed == NULL && !only_ff; h++) {
			int g = h / (m->n_heads / m->n_kv);
			double sum = 0, max = -INFINITY;
			for (int j = from; j <= t; j++) {
				p[j] = m->score_scale * oracle_dot(q + (size_t)t * qw + (size_t)(h * hd),
								   k + (size_t)j * kw + (size_t)(g * hd), hd);
				if (m->score_cap > 0)
					p[j] = m->score_cap * tanh(p[j] / m->score_cap);
				max = p[j] > max ? p[j] : max;
			}
			for (int j = from; j <= t; j++)
				sum += p[j] = exp(p[j] - max);
			sum += sinks != NULL ? exp(sinks[h] - max) : 0;
			for (int d = 0; d < vd; d++)
				a[h * vd + d] = 0;
			for (int j = from; j <= t; j++) {
				double share = p[j] / sum;
				for (int d = 0; d < vd; d++)
					a[h * vd + d] += share * v[(size_t)j * vw + (size_t)(g * vd + d)];
			}
		}
		for (size_t i = 0; i < qw && m->q_gate && mixed == NULL; i++)
			a[i] *= oracle_sigmoid(gates[(size_t)t * qw + i]);
		if (only_ff)
			memset(c, 0, e * sizeof *c);
		else if (mixed != NULL)
			memcpy(c, mixed + (size_t)t * e, e * sizeof *c);
		else
			oracle_product(wo, a, m->n_embd, (int)ow, c);
		for (size_t i = 0; i < e && bo != NULL; i++)
			c[i] += bo[i];
		if (m->post_norms)
			oracle_norm(c, p1, m->n_embd, m->eps, c);
		if (m->parallel > 0)
			oracle_stream(m, xt, n2 != NULL ? n2 : n1, n2 != NULL ? b2 : b1, a);
		for (size_t i = 0; i < e; i++)
			xt[i] += added * c[i];
		if (m->one_half && !only_ff)
			continue;
		if (m->bare)
			memcpy(a, xt, e * sizeof *a);
		else if (m->parallel == 0)
			oracle_stream(m, xt, only_ff ? n1 : n2, b2, a);
		if (half.mixes)
			oracle_mixture(m, &half, a, c);
		else if (m->ungated)
			oracle_narrow(m, half.up, half.bias[1], half.down, half.bias[2], a, c);
		else if (m->fused || m->wide_up)
			oracle_wide(m, half.up, half.up + (size_t)m->n_ff * e, half.down, NULL, m->n_ff, a, c);
		else
			oracle_wide(m, half.gate, half.up, half.down, NULL, m->n_ff, a, c);
		if (m->post_norms)
			oracle_norm(c, p2, m->n_embd, m->eps, c);
		for (size_t i = 0; i < e; i++)
			xt[i] += added * c[i];
	}
	double *all[] = {wqkv,
			 m->fused ? NULL : wq,
			 m->fused ? NULL : wk,
			 m->fused ? NULL : wv,
			 wo,
			 sinks,
			 bo,
			 n1,
			 n2,
			 b1,
			 b2,
			 bqkv,
			 p1,
			 p2,
			 together ? NULL : bq,
			 together ? NULL : bk,
			 together ? NULL : bv,
			 nq,
			 nk,
			 mixed,
			 gates,
			 q,
			 k,
			 v,
			 p,
			 a,
			 c};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
	oracle_half_free(&half);
	oracle_latent_free(&latent);
}

/* Logits [n_want][n_vocab] of the requested rows of a text of n tokens. */
static inline void oracle_logits(const struct oracle *m, const struct model_file *f, const int *tokens, int n,
				 const int *want, int n_want, double *logits)
{
	size_t e = (size_t)m->n_embd;
	double *embed = oracle_tensor(f, -1, "token_embd.weight", (size_t)m->n_vocab * e);
	double *head = oracle_tensor(f, -1, "output.weight", (size_t)m->n_vocab * e);
	double *gain = oracle_tensor(f, -1, m->norm_of_embd ? "token_embd_norm.weight" : "output_norm.weight", e);
	double *x = malloc((size_t)n * e * sizeof *x), *y = malloc(e * sizeof *y);
	bool *read = calloc((size_t)n, sizeof *read); /* of the last layer */
	for (int w = 0; w < n_want; w++)
		read[want[w]] = true;
	for (int t = 0; t < n; t++)
		for (size_t i = 0; i < e; i++)
			x[(size_t)t * e + i] = embed[(size_t)tokens[t] * e + i] * m->embed_scale;
	double *bias = m->norm_bias ? oracle_tensor(f, -1, "output_norm.bias", e) : NULL;
	double *of_head = m->head_bias ? oracle_tensor(f, -1, "output.bias", (size_t)m->n_vocab) : NULL;
	for (int l = 0; l < m->n_layers; l++)
		oracle_layer(m, f, l, x, n, l == m->n_layers - 1 ? read : NULL);
	for (int w = 0; w < n_want; w++) {
		double *out = logits + (size_t)w * (size_t)m->n_vocab;
		oracle_stream(m, x + (size_t)want[w] * e, gain, bias, y);
		oracle_product(head != NULL ? head : embed, y, m->n_vocab, m->n_embd, out);
		for (int i = 0; i < m->n_vocab && of_head != NULL; i++)
			out[i] += of_head[i];
		for (int i = 0; i < m->n_vocab && m->logit_scale > 0; i++)
			out[i] *= m->logit_scale;
		for (int i = 0; i < m->n_vocab && m->logit_cap > 0; i++)
			out[i] = m->logit_cap * tanh(out[i] / m->logit_cap);
	}
	free(embed);
	free(head);
	free(gain);
	free(bias);
	free(of_head);
	free(read);
	free(x);
	free(y);
}

#endif
