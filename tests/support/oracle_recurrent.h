/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers that keep a state, in double precision (oracle.h): a whole text at once, by the definitions of Lfm2ShortConv,
 * of Qwen3NextGatedDeltaNet's recurrent form and of Mamba2Mixer in the transformers library. Included by oracle.h only.
 */
#ifndef TESTS_ORACLE_RECURRENT_H
#define TESTS_ORACLE_RECURRENT_H

/* The last `width` inputs up to row t, weighted: w [width] of channel c. */
static inline double oracle_conv(const double *x, int row, int t, int c, const double *w, int width)
{
	double sum = 0;
	for (int k = 0; k < width; k++)
		if (t - (width - 1) + k >= 0)
			sum += w[k] * x[(size_t)(t - (width - 1) + k) * (size_t)row + (size_t)c];
	return sum;
}

static inline double oracle_sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* in [n][n_embd], normed, to out, likewise. */
static inline void oracle_short_conv(const struct oracle *m, const struct model_file *f, int l, const double *in, int n,
				     double *out)
{
	size_t e = (size_t)m->n_embd;
	double *w = oracle_tensor(f, l, "shortconv.in_proj.weight", 3 * e * e);
	double *o = oracle_tensor(f, l, "shortconv.out_proj.weight", e * e);
	double *taps = oracle_tensor(f, l, "shortconv.conv.weight", e * (size_t)m->conv);
	double *bcu = malloc((size_t)n * 3 * e * sizeof *bcu), *gated = malloc((size_t)n * e * sizeof *gated);
	double *y = malloc(e * sizeof *y);
	for (int t = 0; t < n; t++) {
		double *row = bcu + (size_t)t * 3 * e;
		oracle_product(w, in + (size_t)t * e, (int)(3 * e), (int)e, row);
		for (size_t i = 0; i < e; i++)
			gated[(size_t)t * e + i] = row[i] * row[2 * e + i];
		for (size_t i = 0; i < e; i++)
			y[i] = row[e + i] * oracle_conv(gated, (int)e, t, (int)i, taps + i * (size_t)m->conv, m->conv);
		oracle_product(o, y, (int)e, (int)e, out + (size_t)t * e);
	}
	double *all[] = {w, o, taps, bcu, gated, y};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

static inline void oracle_unit(const double *x, int n, double scale, double *y)
{
	double sum = 1e-6;
	for (int i = 0; i < n; i++)
		sum += x[i] * x[i];
	for (int i = 0; i < n; i++)
		y[i] = x[i] / sqrt(sum) * scale;
}

/* One head over all rows: q, k and v of row t at a distance of `row` from those of row t - 1. */
static inline void oracle_delta_head(const struct oracle *m, const double *q, const double *k, const double *v, int row,
				     const double *keep, const double *beta, int n, double *y)
{
	int dk = m->k_dim, dv = m->v_dim;
	double *s = calloc((size_t)(dk * dv), sizeof *s), *qt = malloc((size_t)dk * sizeof *qt);
	double *kt = malloc((size_t)dk * sizeof *kt);
	for (int t = 0; t < n; t++) {
		size_t at = (size_t)t * (size_t)row;
		oracle_unit(q + at, dk, 1 / sqrt(dk), qt);
		oracle_unit(k + at, dk, 1, kt);
		for (int j = 0; j < dv; j++) {
			double found = 0, sum = 0;
			for (int i = 0; i < dk; i++) {
				s[i * dv + j] *= keep[t];
				found += s[i * dv + j] * kt[i];
			}
			for (int i = 0; i < dk; i++) {
				s[i * dv + j] += kt[i] * (v[at + (size_t)j] - found) * beta[t];
				sum += s[i * dv + j] * qt[i];
			}
			y[t * dv + j] = sum;
		}
	}
	free(s);
	free(qt);
	free(kt);
}

static inline void oracle_delta(const struct oracle *m, const struct model_file *f, int l, const double *in, int n,
				double *out)
{
	size_t e = (size_t)m->n_embd, keys = (size_t)(m->k_heads * m->k_dim), values = (size_t)(m->v_heads * m->v_dim);
	size_t row = 2 * keys + values, heads = (size_t)m->v_heads, per = heads / (size_t)m->k_heads;
	double *w = oracle_tensor(f, l, "attn_qkv.weight", row * e),
	       *z = oracle_tensor(f, l, "attn_gate.weight", values * e);
	double *taps = oracle_tensor(f, l, "ssm_conv1d.weight", row * (size_t)m->conv);
	double *both = oracle_tensor(f, l, "ssm_ba.weight", 2 * heads * e);
	double *wb = oracle_tensor(f, l, "ssm_beta.weight", heads * e),
	       *wa = oracle_tensor(f, l, "ssm_alpha.weight", heads * e);
	double *a = oracle_tensor(f, l, "ssm_a", heads), *dt = oracle_tensor(f, l, "ssm_dt.bias", heads);
	double *norm = oracle_tensor(f, l, "ssm_norm.weight", (size_t)m->v_dim);
	double *o = oracle_tensor(f, l, "ssm_out.weight", e * values);
	size_t rows = (size_t)n;
	double *qkv = malloc(rows * row * sizeof *qkv), *mixed = malloc(rows * row * sizeof *mixed);
	double *gate = malloc(rows * values * sizeof *gate), *y = malloc(rows * values * sizeof *y);
	double *beta = malloc(rows * heads * sizeof *beta), *keep = malloc(rows * heads * sizeof *keep);
	double *ab = malloc(2 * heads * sizeof *ab), *one = malloc(rows * (size_t)m->v_dim * sizeof *one);
	for (size_t t = 0; t < rows; t++) {
		oracle_product(w, in + t * e, (int)row, (int)e, qkv + t * row);
		oracle_product(z, in + t * e, (int)values, (int)e, gate + t * values);
		if (both != NULL) {
			oracle_product(both, in + t * e, (int)(2 * heads), (int)e, ab);
		} else {
			oracle_product(wb, in + t * e, (int)heads, (int)e, ab);
			oracle_product(wa, in + t * e, (int)heads, (int)e, ab + heads);
		}
		for (size_t h = 0; h < heads; h++) {
			size_t group = h / per * 2 * per + h % per; /* of `both`: by key heads */
			double b = both != NULL ? ab[group] : ab[h],
			       alpha = both != NULL ? ab[group + per] : ab[heads + h];
			beta[h * rows + t] = oracle_sigmoid(b);
			keep[h * rows + t] = exp(a[h] * log1p(exp(alpha + dt[h])));
		}
		for (size_t c = 0; c < row; c++) {
			double x = oracle_conv(qkv, (int)row, (int)t, (int)c, taps + c * (size_t)m->conv, m->conv);
			mixed[t * row + c] = x * oracle_sigmoid(x);
		}
	}
	for (size_t h = 0; h < heads; h++) {
		size_t k = (m->tiled ? h % (size_t)m->k_heads : h / per) * (size_t)m->k_dim, dv = (size_t)m->v_dim;
		oracle_delta_head(m, mixed + k, mixed + keys + k, mixed + 2 * keys + h * dv, (int)row, keep + h * rows,
				  beta + h * rows, n, one);
		for (size_t t = 0; t < rows; t++) {
			double *to = y + t * values + h * dv;
			oracle_norm(one + t * dv, norm, m->v_dim, m->eps, to);
			for (size_t i = 0; i < dv; i++) {
				double g = gate[t * values + h * dv + i];
				to[i] *= g * oracle_sigmoid(g);
			}
		}
	}
	for (size_t t = 0; t < rows; t++)
		oracle_product(o, y + t * values, (int)e, (int)values, out + t * e);
	double *all[] = {w, z, taps, both, wb, wa, a, dt, norm, o, qkv, mixed, gate, y, beta, keep, ab, one};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

/* Mamba-2 without a recurrence: position t reads what all positions up to it have put in, each as much as is left of it
 * then (Dao, Gu, "Transformers are SSMs", 2024, 3.1: the dual form). x, B and C of row t are `row` after those before.
 */
static inline void oracle_ssm_head(const struct oracle *m, const double *x, const double *b, const double *c, int row,
				   const double *step, double a, double d, int n, double *y)
{
	for (int t = 0; t < n; t++) {
		double left = 1;
		for (int j = 0; j < m->v_dim; j++)
			y[t * m->v_dim + j] = d * x[(size_t)t * (size_t)row + (size_t)j];
		for (int s = t; s >= 0; s--) {
			size_t at = (size_t)s * (size_t)row;
			double share = left * step[s] * oracle_dot(c + (size_t)t * (size_t)row, b + at, m->k_dim);
			for (int j = 0; j < m->v_dim; j++)
				y[t * m->v_dim + j] += share * x[at + (size_t)j];
			left *= exp(a * step[s]);
		}
	}
}

static inline void oracle_mamba(const struct oracle *m, const struct model_file *f, int l, const double *in, int n,
				double *out)
{
	size_t e = (size_t)m->n_embd, heads = (size_t)m->v_heads, dv = (size_t)m->v_dim, inner = heads * dv;
	size_t group = (size_t)(m->k_heads * m->k_dim), row = inner + 2 * group, all_in = inner + row + heads;
	size_t rows = (size_t)n, width = inner / (size_t)m->k_heads;
	double *w = oracle_tensor(f, l, "ssm_in.weight", all_in * e), *a = oracle_tensor(f, l, "ssm_a", heads);
	double *taps = oracle_tensor(f, l, "ssm_conv1d.weight", row * (size_t)m->conv);
	double *bias = oracle_tensor(f, l, "ssm_conv1d.bias", row), *dt = oracle_tensor(f, l, "ssm_dt.bias", heads);
	double *d = oracle_tensor(f, l, "ssm_d", heads), *norm = oracle_tensor(f, l, "ssm_norm.weight", inner);
	double *o = oracle_tensor(f, l, "ssm_out.weight", e * inner);
	double *all_rows = malloc(rows * all_in * sizeof *all_rows), *mixed = malloc(rows * row * sizeof *mixed);
	double *step = malloc(rows * heads * sizeof *step), *y = malloc(rows * inner * sizeof *y);
	double *one = malloc(rows * dv * sizeof *one);
	for (size_t t = 0; t < rows; t++) {
		double *z = all_rows + t * all_in;
		oracle_product(w, in + t * e, (int)all_in, (int)e, z);
		for (size_t h = 0; h < heads; h++) {
			double s = log1p(exp(z[inner + row + h] + dt[h]));
			step[h * rows + t] = m->most > 0 ? fmin(s, m->most) : s;
		}
		for (size_t c = 0; c < row; c++) {
			double x = bias[c] + oracle_conv(all_rows + inner, (int)all_in, (int)t, (int)c,
							 taps + c * (size_t)m->conv, m->conv);
			mixed[t * row + c] = x * oracle_sigmoid(x);
		}
	}
	for (size_t h = 0; h < heads; h++) {
		const double *b = mixed + inner + h / (heads / (size_t)m->k_heads) * (size_t)m->k_dim;
		oracle_ssm_head(m, mixed + h * dv, b, b + group, (int)row, step + h * rows, a[h], d[h], n, one);
		for (size_t t = 0; t < rows; t++)
			for (size_t i = 0; i < dv; i++) {
				double z = all_rows[t * all_in + h * dv + i];
				y[t * inner + h * dv + i] = one[t * dv + i] * z * oracle_sigmoid(z);
			}
	}
	for (size_t t = 0; t < rows; t++) {
		for (size_t g = 0; g < (size_t)m->k_heads; g++)
			oracle_norm(y + t * inner + g * width, norm + g * width, (int)width, m->eps,
				    y + t * inner + g * width);
		oracle_product(o, y + t * inner, (int)e, (int)inner, out + t * e);
	}
	double *all[] = {w, a, taps, bias, dt, d, norm, o, all_rows, mixed, step, y, one};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

/* What layer l has in place of attention, of x [n][n_embd]; NULL: attention. The caller frees it. */
static inline double *oracle_recurrent(const struct oracle *m, const struct model_file *f, int l, const double *x,
				       int n)
{
	size_t e = (size_t)m->n_embd;
	if ((m->recurrent >> l & 1) == 0)
		return NULL;
	double *gain = oracle_tensor(f, l, "attn_norm.weight", e), *in = malloc((size_t)n * e * sizeof *in);
	double *out = malloc((size_t)n * e * sizeof *out);
	for (size_t t = 0; t < (size_t)n; t++)
		oracle_stream(m, x + t * e, gain, NULL, in + t * e);
	(m->ssm ? oracle_mamba : m->v_heads > 0 ? oracle_delta : oracle_short_conv)(m, f, l, in, n, out);
	free(gain);
	free(in);
	return out;
}

#endif
