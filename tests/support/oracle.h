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

static inline void oracle_product(const double *w, const double *x, int n_out, int n_in, double *y)
{
	/* Sums side by side, each of the even and of the odd terms: a single one would wait for its previous addition.
	 */
	typedef double pair __attribute__((vector_size(16)));
	enum { BESIDE = 8 };
	for (int o = 0; o < n_out; o += BESIDE) {
		int n = n_out - o < BESIDE ? n_out - o : BESIDE;
		const double *row[BESIDE];
		pair sum[BESIDE] = {{0}};
		for (int k = 0; k < BESIDE; k++)
			row[k] = w + (size_t)(o + (k < n ? k : 0)) * (size_t)n_in;
		for (int i = 0; i + 1 < n_in; i += 2)
#pragma GCC unroll 8
			for (int k = 0; k < BESIDE; k++)
				sum[k] += (pair){row[k][i], row[k][i + 1]} * (pair){x[i], x[i + 1]};
		for (int k = 0; k < n; k++)
			y[o + k] = sum[k][0] + sum[k][1] + (n_in % 2 > 0 ? row[k][n_in - 1] * x[n_in - 1] : 0);
	}
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

static inline void oracle_turn(const struct oracle *m, const double *freq, double *head, int pos)
{
	int half = m->head_dim / 2;
	for (int i = 0; i < half; i++) {
		int a = m->halves ? i : 2 * i, b = m->halves ? i + half : 2 * i + 1;
		double c = m->magnitude * cos(pos * freq[i]), s = m->magnitude * sin(pos * freq[i]);
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

/* Applies one layer to x [n][n_embd]; only to the rows [n] that somebody reads, NULL: all. Each row's keys and values
 * count in either case. */
static inline void oracle_layer(const struct oracle *m, const struct model_file *f, int l, double *x, int n,
				const bool *read)
{
	size_t e = (size_t)m->n_embd, qw = (size_t)(m->n_heads * m->head_dim), kw = (size_t)(m->n_kv * m->head_dim);
	size_t ff = (size_t)m->n_ff;
	int hd = m->head_dim;
	double *wqkv = NULL, *wq, *wk, *wv, *gate, *up;
	if (m->fused) {
		wqkv = oracle_tensor(f, l, "attn_qkv.weight", (qw + 2 * kw) * e);
		wq = wqkv;
		wk = wqkv + qw * e;
		wv = wk + kw * e;
		gate = oracle_tensor(f, l, "ffn_up.weight", 2 * ff * e);
		up = gate + ff * e;
	} else {
		wq = oracle_tensor(f, l, "attn_q.weight", qw * e);
		wk = oracle_tensor(f, l, "attn_k.weight", kw * e);
		wv = oracle_tensor(f, l, "attn_v.weight", kw * e);
		gate = oracle_tensor(f, l, "ffn_gate.weight", ff * e);
		up = oracle_tensor(f, l, "ffn_up.weight", ff * e);
	}
	double *wo = oracle_tensor(f, l, "attn_output.weight", e * qw);
	double *down = oracle_tensor(f, l, "ffn_down.weight", e * ff);
	double *n1 = oracle_tensor(f, l, "attn_norm.weight", e), *n2 = oracle_tensor(f, l, "ffn_norm.weight", e);
	double *p1 = m->post_norms ? oracle_tensor(f, l, "post_attention_norm.weight", e) : NULL;
	double *p2 = m->post_norms ? oracle_tensor(f, l, "post_ffw_norm.weight", e) : NULL;
	double *bq = m->bias ? oracle_tensor(f, l, "attn_q.bias", qw) : NULL;
	double *bk = m->bias ? oracle_tensor(f, l, "attn_k.bias", kw) : NULL;
	double *bv = m->bias ? oracle_tensor(f, l, "attn_v.bias", kw) : NULL;
	double *nq = m->qk_norm ? oracle_tensor(f, l, "attn_q_norm.weight", (size_t)hd) : NULL;
	double *nk = m->qk_norm ? oracle_tensor(f, l, "attn_k_norm.weight", (size_t)hd) : NULL;
	bool local = m->window > 0 && !(m->every > 0 && l % m->every == m->every - 1);
	const double *freq = local && m->freq_local != NULL ? m->freq_local : m->freq;

	double *q = malloc((size_t)n * qw * sizeof *q), *k = malloc((size_t)n * kw * sizeof *k);
	double *v = malloc((size_t)n * kw * sizeof *v), *p = malloc((size_t)n * sizeof *p);
	double *a = malloc((qw > e ? qw : e) * sizeof *a), *b = malloc((ff > e ? ff : e) * sizeof *b);
	double *c = malloc((ff > e ? ff : e) * sizeof *c);
	for (int t = 0; t < n; t++) {
		double *qt = q + (size_t)t * qw, *kt = k + (size_t)t * kw, *vt = v + (size_t)t * kw;
		oracle_norm(x + (size_t)t * e, n1, m->n_embd, m->eps, a);
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
			if (m->qk_norm)
				oracle_norm(qt + h * hd, nq, hd, m->eps, qt + h * hd);
			oracle_turn(m, freq, qt + h * hd, t);
		}
		for (int h = 0; h < m->n_kv; h++) {
			if (m->qk_norm)
				oracle_norm(kt + h * hd, nk, hd, m->eps, kt + h * hd);
			oracle_turn(m, freq, kt + h * hd, t);
		}
	}
	for (int t = 0; t < n; t++) {
		if (read != NULL && !read[t])
			continue;
		double *xt = x + (size_t)t * e;
		int from = local && t + 1 > m->window ? t + 1 - m->window : 0;
		for (int h = 0; h < m->n_heads; h++) {
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
			for (int d = 0; d < hd; d++)
				a[h * hd + d] = 0;
			for (int j = from; j <= t; j++) {
				double share = p[j] / sum;
				for (int d = 0; d < hd; d++)
					a[h * hd + d] += share * v[(size_t)j * kw + (size_t)(g * hd + d)];
			}
		}
		oracle_product(wo, a, m->n_embd, (int)qw, c);
		if (m->post_norms)
			oracle_norm(c, p1, m->n_embd, m->eps, c);
		for (size_t i = 0; i < e; i++)
			xt[i] += c[i];
		oracle_norm(xt, n2, m->n_embd, m->eps, a);
		oracle_product(gate, a, m->n_ff, m->n_embd, b);
		oracle_product(up, a, m->n_ff, m->n_embd, c);
		for (size_t i = 0; i < ff; i++) {
			double act =
			    m->gelu ? 0.5 * b[i] * (1 + tanh(sqrt(2 / M_PI) * (b[i] + 0.044715 * b[i] * b[i] * b[i])))
				    : b[i] / (1 + exp(-b[i]));
			b[i] = act * c[i];
		}
		oracle_product(down, b, m->n_embd, m->n_ff, c);
		if (m->post_norms)
			oracle_norm(c, p2, m->n_embd, m->eps, c);
		for (size_t i = 0; i < e; i++)
			xt[i] += c[i];
	}
	double *all[] = {wqkv,
			 m->fused ? NULL : wq,
			 m->fused ? NULL : wk,
			 m->fused ? NULL : wv,
			 gate,
			 m->fused ? NULL : up,
			 wo,
			 down,
			 n1,
			 n2,
			 p1,
			 p2,
			 bq,
			 bk,
			 bv,
			 nq,
			 nk,
			 q,
			 k,
			 v,
			 p,
			 a,
			 b,
			 c};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

/* Logits [n_want][n_vocab] of the requested rows of a text of n tokens. */
static inline void oracle_logits(const struct oracle *m, const struct model_file *f, const int *tokens, int n,
				 const int *want, int n_want, double *logits)
{
	size_t e = (size_t)m->n_embd;
	double *embed = oracle_tensor(f, -1, "token_embd.weight", (size_t)m->n_vocab * e);
	double *head = oracle_tensor(f, -1, "output.weight", (size_t)m->n_vocab * e);
	double *gain = oracle_tensor(f, -1, "output_norm.weight", e);
	double *x = malloc((size_t)n * e * sizeof *x), *y = malloc(e * sizeof *y);
	bool *read = calloc((size_t)n, sizeof *read); /* of the last layer */
	for (int w = 0; w < n_want; w++)
		read[want[w]] = true;
	for (int t = 0; t < n; t++)
		for (size_t i = 0; i < e; i++)
			x[(size_t)t * e + i] = embed[(size_t)tokens[t] * e + i] * m->embed_scale;
	for (int l = 0; l < m->n_layers; l++)
		oracle_layer(m, f, l, x, n, l == m->n_layers - 1 ? read : NULL);
	for (int w = 0; w < n_want; w++) {
		double *out = logits + (size_t)w * (size_t)m->n_vocab;
		oracle_norm(x + (size_t)want[w] * e, gain, m->n_embd, m->eps, y);
		oracle_product(head != NULL ? head : embed, y, m->n_vocab, m->n_embd, out);
		for (int i = 0; i < m->n_vocab && m->logit_cap > 0; i++)
			out[i] = m->logit_cap * tanh(out[i] / m->logit_cap);
	}
	free(embed);
	free(head);
	free(gain);
	free(read);
	free(x);
	free(y);
}

#endif
