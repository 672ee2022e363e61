/* SPDX-License-Identifier: Apache-2.0
 *
 * Recurrent layers of the reference: one row after the other, sums in double precision.
 */
#include <math.h>

#include "kernels/cpu/ref.h"

static float *state_of(const struct kn_step *s, int row, size_t at, size_t n)
{
	float *state = s->states + (size_t)s->state_of[s->row_seq[row]] * s->state_floats + at;
	for (size_t i = 0; s->row_pos[row] == 0 && i < n; i++)
		state[i] = 0;
	return state;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

int ref_conv_rows(const struct kn_step *s, const struct kn_conv *c, const float *x, int n_rows, float *y)
{
	int n = c->n, before = c->width - 1;
	for (int r = 0; r < n_rows; r++, x += c->gated ? 3 * n : n, y += n) {
		float *state = state_of(s, r, c->at, (size_t)before * (size_t)n);
		for (int i = 0; i < n; i++) {
			float in = c->gated ? x[i] * x[2 * n + i] : x[i];
			double sum = (double)c->w[before * n + i] * (double)in;
			for (int k = 0; k < before; k++) {
				sum += (double)c->w[k * n + i] * (double)state[k * n + i];
				state[k * n + i] = k + 1 < before ? state[(k + 1) * n + i] : in;
			}
			sum += c->bias != NULL ? (double)c->bias[i] : 0;
			y[i] = (float)(c->gated ? (double)x[n + i] * sum : sum * sigmoid(sum));
		}
	}
	return 0;
}

static double length_of(const float *x, int n)
{
	double sum = 1e-6;
	for (int i = 0; i < n; i++)
		sum += (double)x[i] * (double)x[i];
	return sqrt(sum);
}

/* A head of one row. */
static void delta_head(const struct kn_delta *d, const float *q, const float *k, const float *v, double keep,
		       double beta, float *state, float *y)
{
	double q_size = length_of(q, d->k_dim) * sqrt(d->k_dim), k_size = length_of(k, d->k_dim);
	for (int j = 0; j < d->v_dim; j++) {
		double found = 0, sum = 0;
		for (int i = 0; i < d->k_dim; i++)
			found += keep * (double)state[i * d->v_dim + j] * (double)k[i] / k_size;
		for (int i = 0; i < d->k_dim; i++) {
			float *s = &state[i * d->v_dim + j];
			*s = (float)(keep * (double)*s + ((double)v[j] - found) * beta * (double)k[i] / k_size);
			sum += (double)*s * (double)q[i] / q_size;
		}
		y[j] = (float)sum;
	}
}

int ref_delta_rows(const struct kn_step *s, const struct kn_delta *d, const float *qkv, const float *beta,
		   const float *alpha, int n_rows, float *y)
{
	int keys = d->k_heads * d->k_dim, values = d->v_heads * d->v_dim, floats = d->k_dim * d->v_dim;
	for (int r = 0; r < n_rows; r++, qkv += 2 * keys + values, y += values) {
		float *state = state_of(s, r, d->at, (size_t)d->v_heads * (size_t)floats);
		for (int h = 0; h < d->v_heads; h++) {
			int of = d->tiled ? h % d->k_heads : h / (d->v_heads / d->k_heads);
			double step = log1p(exp((double)alpha[r * d->v_heads + h] + (double)d->dt[h]));
			delta_head(d, qkv + of * d->k_dim, qkv + keys + of * d->k_dim, qkv + 2 * keys + h * d->v_dim,
				   exp((double)d->a[h] * step), sigmoid((double)beta[r * d->v_heads + h]),
				   state + h * floats, y + h * d->v_dim);
		}
	}
	return 0;
}

int ref_ssm_rows(const struct kn_step *s, const struct kn_ssm *m, const float *xbc, const float *step, int n_rows,
		 float *y)
{
	int inner = m->heads * m->head_dim, group = m->groups * m->state, floats = m->state * m->head_dim;
	for (int r = 0; r < n_rows; r++, xbc += inner + 2 * group, y += inner) {
		float *states = state_of(s, r, m->at, (size_t)m->heads * (size_t)floats);
		for (int h = 0; h < m->heads; h++) {
			const float *b = xbc + inner + h / (m->heads / m->groups) * m->state,
				    *x = xbc + h * m->head_dim;
			double t = log1p(exp((double)step[r * m->heads + h] + (double)m->dt[h]));
			t = fmin(fmax(t, (double)m->least), (double)m->most);
			for (int j = 0; j < m->head_dim; j++) {
				double sum = (double)m->d[h] * (double)x[j];
				for (int i = 0; i < m->state; i++) {
					float *at = &states[h * floats + i * m->head_dim + j];
					*at = (float)((double)*at * exp((double)m->a[h] * t) +
						      (double)b[i] * (double)x[j] * t);
					sum += (double)*at * (double)b[group + i];
				}
				y[h * m->head_dim + j] = (float)sum;
			}
		}
	}
	return 0;
}
