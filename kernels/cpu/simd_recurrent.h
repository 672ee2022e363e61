/* SPDX-License-Identifier: Apache-2.0
 *
 * Inner loops of the delta rule and of state spaces, for every instruction set. A few vectors of columns go through all
 * rows of the state with their sums in registers: in the delta rule twice, first for what the key finds, then for the
 * update and what the query finds; in state spaces once.
 *
 * VERSIONS (instructions for a head of 128 × 128, one row, with 512 bits)
 *   1  row by row over all columns, sums in memory, vectors of 128 bits, in the file for all sets     90,000
 *   2  this                                                                                            8,000
 * A state space's head of 128 × 64: 24 instructions for each row of the state, 3,100 in all.
 */
enum { DELTA_VECTORS = 4 };

/* n vectors of columns from s on. */
INLINE void delta_columns(const struct kn_delta_row *r, float *s, const float *v, float *y, int n)
{
	vf sum[DELTA_VECTORS], change[DELTA_VECTORS], keep = v_set(r->keep), beta = v_set(r->beta);
	const float *key = r->k, *query = r->q;
	size_t row = (size_t)r->v_dim;
	const int k_dim = r->k_dim;
	UNROLL_FOR(int k = 0; k < n; k++)
		sum[k] = v_set(0);
	for (int i = 0; i < k_dim; i++) {
		vf by_key = v_set(key[i]);
		UNROLL_FOR(int k = 0; k < n; k++)
			sum[k] = v_fma(v_load(s + (size_t)i * row + k * LANES), by_key, sum[k]);
	}
	UNROLL_FOR(int k = 0; k < n; k++) {
		change[k] = (v_load(v + k * LANES) - sum[k] * keep) * beta;
		sum[k] = v_set(0);
	}
	for (int i = 0; i < k_dim; i++) {
		vf by_key = v_set(key[i]), by_query = v_set(query[i]);
		UNROLL_FOR(int k = 0; k < n; k++) {
			float *at = s + (size_t)i * row + k * LANES;
			vf now = v_fma(change[k], by_key, v_load(at) * keep);
			v_store(at, now);
			sum[k] = v_fma(now, by_query, sum[k]);
		}
	}
	UNROLL_FOR(int k = 0; k < n; k++)
		v_store(y + k * LANES, sum[k]);
}

/* One column, with the same roundings. */
static void delta_column(const struct kn_delta_row *r, float *s, float v, float *y)
{
	float found = 0, sum = 0;
	size_t row = (size_t)r->v_dim;
	for (int i = 0; i < r->k_dim; i++)
		found = __builtin_fmaf(s[(size_t)i * row], r->k[i], found);
	float change = (v - found * r->keep) * r->beta;
	for (int i = 0; i < r->k_dim; i++) {
		float *at = s + (size_t)i * row;
		*at = __builtin_fmaf(change, r->k[i], *at * r->keep);
		sum = __builtin_fmaf(*at, r->q[i], sum);
	}
	*y = sum;
}

static void delta(const struct kn_delta_row *r, float *s, const float *v, float *y)
{
	int j = 0;
	for (; j + DELTA_VECTORS * LANES <= r->v_dim; j += DELTA_VECTORS * LANES)
		delta_columns(r, s + j, v + j, y + j, DELTA_VECTORS);
	for (; j + LANES <= r->v_dim; j += LANES)
		delta_columns(r, s + j, v + j, y + j, 1);
	for (; j < r->v_dim; j++)
		delta_column(r, s + j, v[j], y + j);
}

/* n vectors of columns of a state space, from s on. */
INLINE void ssm_columns(const struct kn_ssm_row *r, float *s, const float *x, float *y, int n)
{
	vf sum[DELTA_VECTORS], in[DELTA_VECTORS], keep = v_set(r->keep), step = v_set(r->step), skip = v_set(r->skip);
	const float *b = r->b, *c = r->c;
	size_t row = (size_t)r->head_dim;
	const int state = r->state;
	UNROLL_FOR(int k = 0; k < n; k++) {
		in[k] = v_load(x + k * LANES) * step;
		sum[k] = v_set(0);
	}
	for (int i = 0; i < state; i++) {
		vf by_b = v_set(b[i]), by_c = v_set(c[i]);
		UNROLL_FOR(int k = 0; k < n; k++) {
			float *at = s + (size_t)i * row + k * LANES;
			vf now = v_fma(in[k], by_b, v_load(at) * keep);
			v_store(at, now);
			sum[k] = v_fma(now, by_c, sum[k]);
		}
	}
	UNROLL_FOR(int k = 0; k < n; k++)
		v_store(y + k * LANES, v_fma(skip, v_load(x + k * LANES), sum[k]));
}

/* One column, with the same roundings. */
static void ssm_column(const struct kn_ssm_row *r, float *s, float x, float *y)
{
	float in = x * r->step, sum = 0;
	for (int i = 0; i < r->state; i++) {
		float *at = s + (size_t)i * (size_t)r->head_dim;
		*at = __builtin_fmaf(in, r->b[i], *at * r->keep);
		sum = __builtin_fmaf(*at, r->c[i], sum);
	}
	*y = __builtin_fmaf(r->skip, x, sum);
}

static void ssm(const struct kn_ssm_row *r, float *s, const float *x, float *y)
{
	int j = 0;
	for (; j + DELTA_VECTORS * LANES <= r->head_dim; j += DELTA_VECTORS * LANES)
		ssm_columns(r, s + j, x + j, y + j, DELTA_VECTORS);
	for (; j + LANES <= r->head_dim; j += LANES)
		ssm_columns(r, s + j, x + j, y + j, 1);
	for (; j < r->head_dim; j++)
		ssm_column(r, s + j, x[j], y + j);
}
