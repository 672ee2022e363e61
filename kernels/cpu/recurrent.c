/* SPDX-License-Identifier: Apache-2.0
 *
 * Recurrent layers: causal convolutions, the gated delta rule and state spaces. Threads divide channels or heads;
 * positions follow one another, so neither chunks nor threads change a result. Adjacent rows of one sequence are a run.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/some.h"

enum { EXP_COST = 16, LEAST_CHANNELS = 64 };

/* The rows from `row` on that belong to its sequence. */
static int run_length(const struct kn_step *s, int row, int n_rows)
{
	int n = 1;
	while (row + n < n_rows && s->row_seq[row + n] == s->row_seq[row])
		n++;
	return n;
}

static float *state_of(const struct kn_step *s, int row, size_t at)
{
	return s->states + (size_t)s->state_of[s->row_seq[row]] * s->state_floats + at;
}

/* ---- convolutions ---- */

struct conv {
	const struct kn_step *step;
	const struct kn_conv *c;
	const float *x;
	float *y;
	int n_rows, n_parts;
};

/* The taps of n adjacent channels, a vector of them at a time: of each, y = Σ w · state, then w · in; state moves on.
 * y may be in. stride: from one tap to the next. */
static void taps(const struct kn_conv *c, const float *w, float *state, const float *in, int n, float *y)
{
	size_t stride = (size_t)c->n;
	int i = 0;
	for (; i + SOME <= n; i += SOME) {
		some now = some_load(in + i), sum = {0};
		const float *tap = w + i;
		float *s = state + i;
		for (int k = 0; k + 1 < c->width; k++, tap += stride, s += stride) {
			sum += some_load(tap) * some_load(s);
			some_store(s, k + 2 < c->width ? some_load(s + stride) : now);
		}
		some_store(y + i, sum + some_load(tap) * now);
	}
	for (; i < n; i++) {
		float now = in[i], sum = 0, *s = state + i;
		const float *tap = w + i;
		for (int k = 0; k + 1 < c->width; k++, tap += stride, s += stride) {
			sum += *tap * *s;
			*s = k + 2 < c->width ? s[stride] : now;
		}
		y[i] = sum + *tap * now;
	}
}

/* Channels from … to - 1 of a row; x, state and y: of the whole row. */
static void conv_row(const struct kn_conv *c, const float *x, float *state, int from, int to, float *y)
{
	const float *gate = x + c->n, *u = x + 2 * (size_t)c->n;
	if (!c->gated) {
		taps(c, c->w + from, state + from, x + from, to - from, y + from);
		for (int i = from; i < to && c->bias != NULL; i++)
			y[i] += c->bias[i];
		for (int i = from; i < to; i++)
			y[i] = y[i] / (1.0f + expf(-y[i]));
		return;
	}
	for (int i = from; i < to; i++)
		y[i] = x[i] * u[i];
	taps(c, c->w + from, state + from, y + from, to - from, y + from);
	for (int i = from; i < to; i++)
		y[i] *= gate[i];
}

static void run_conv(void *ctx, int part)
{
	const struct conv *j = ctx;
	const struct kn_conv *c = j->c;
	size_t n = (size_t)c->n, x_row = c->gated ? 3 * n : n;
	int from = (int)((int64_t)c->n * part / j->n_parts), to = (int)((int64_t)c->n * (part + 1) / j->n_parts);
	for (int r = 0; r < j->n_rows; r++) {
		float *state = state_of(j->step, r, c->at);
		for (int k = 0; k + 1 < c->width && j->step->row_pos[r] == 0; k++)
			memset(state + (size_t)k * n + from, 0, (size_t)(to - from) * sizeof *state);
		conv_row(c, j->x + (size_t)r * x_row, state, from, to, j->y + (size_t)r * n);
	}
}

int kn_cpu_conv(struct kn_backend *b, const struct kn_conv *c, const float *x, int n_rows, float *y)
{
	struct conv j = {.step = b->step, .c = c, .x = x, .y = y, .n_rows = n_rows};
	int most = (c->n + LEAST_CHANNELS - 1) / LEAST_CHANNELS;
	b->packed_of = NULL;
	j.n_parts = kn_parts_of(b, (int64_t)n_rows * c->n * (c->width + (c->gated ? 2 : EXP_COST)));
	j.n_parts = j.n_parts < most ? j.n_parts : most;
	kn_run_parts(b, j.n_parts, run_conv, &j);
	return 0;
}

/* ---- heads with a state each ---- */

static float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

/* Calls each(ctx, row, head, state) for the rows of a part's heads, run by run; a state of `floats` begins as zeros. */
static void for_heads(const struct kn_step *step, int n_rows, int part, int n_parts, int heads, size_t floats,
		      size_t at, void (*each)(const void *ctx, int row, int head, float *state), const void *ctx)
{
	for (int r = 0, n; r < n_rows; r += n) {
		n = run_length(step, r, n_rows);
		float *states = state_of(step, r, at);
		for (int head = part; head < heads; head += n_parts) {
			float *state = states + (size_t)head * floats;
			if (step->row_pos[r] == 0)
				memset(state, 0, floats * sizeof *state);
			for (int i = 0; i < n; i++)
				each(ctx, r + i, head, state);
		}
	}
}

/* ---- the delta rule ---- */

struct delta {
	const struct kn_backend *b;
	const struct kn_step *step;
	const struct kn_delta *d;
	const float *qkv, *beta, *alpha;
	float *y;
	int n_rows, n_parts;
};

/* x[n] divided by its length, then multiplied. */
static void unit(const struct kn_backend *b, const float *x, int n, float factor, float *y)
{
	static const float eps = 1e-6f;
	float scale = factor / sqrtf(b->isa->sum_squares(x, n) + eps);
	for (int i = 0; i < n; i++)
		y[i] = x[i] * scale;
}

static void delta_row(const void *ctx, int r, int head, float *state)
{
	const struct delta *j = ctx;
	const struct kn_delta *d = j->d;
	size_t keys = (size_t)d->k_heads * (size_t)d->k_dim, values = (size_t)d->v_heads * (size_t)d->v_dim;
	int of = d->tiled ? head % d->k_heads : head / (d->v_heads / d->k_heads), at = r * d->v_heads + head;
	const float *row = j->qkv + (size_t)r * (2 * keys + values), *q = row + (size_t)of * (size_t)d->k_dim;
	const float *v = row + 2 * keys + (size_t)head * (size_t)d->v_dim;
	float k_unit[KN_MAX_DELTA], q_unit[KN_MAX_DELTA];
	unit(j->b, q, d->k_dim, 1.0f / sqrtf((float)d->k_dim), q_unit);
	unit(j->b, q + keys, d->k_dim, 1, k_unit);
	struct kn_delta_row one = {.k = k_unit,
				   .q = q_unit,
				   .k_dim = d->k_dim,
				   .v_dim = d->v_dim,
				   .keep = expf(d->a[head] * softplus(j->alpha[at] + d->dt[head])),
				   .beta = 1.0f / (1.0f + expf(-j->beta[at]))};
	j->b->isa->delta(&one, state, v, j->y + (size_t)r * values + (size_t)head * (size_t)d->v_dim);
}

static void run_delta(void *ctx, int part)
{
	const struct delta *j = ctx;
	const struct kn_delta *d = j->d;
	for_heads(j->step, j->n_rows, part, j->n_parts, d->v_heads, (size_t)d->k_dim * (size_t)d->v_dim, d->at,
		  delta_row, j);
}

int kn_cpu_delta(struct kn_backend *b, const struct kn_delta *d, const float *qkv, const float *beta,
		 const float *alpha, int n_rows, float *y)
{
	struct delta j = {
	    .b = b, .step = b->step, .d = d, .qkv = qkv, .beta = beta, .alpha = alpha, .y = y, .n_rows = n_rows};
	b->packed_of = NULL;
	j.n_parts = kn_parts_of(b, (int64_t)n_rows * d->v_heads * d->k_dim * d->v_dim * 4);
	j.n_parts = j.n_parts < d->v_heads ? j.n_parts : d->v_heads;
	kn_run_parts(b, j.n_parts, run_delta, &j);
	return 0;
}

/* ---- state spaces ---- */

struct ssm {
	const struct kn_backend *b;
	const struct kn_ssm *s;
	const float *xbc, *step;
	float *y;
	int n_rows, n_parts;
};

static void ssm_row(const void *ctx, int r, int head, float *state)
{
	const struct ssm *j = ctx;
	const struct kn_ssm *s = j->s;
	size_t inner = (size_t)s->heads * (size_t)s->head_dim, group = (size_t)s->groups * (size_t)s->state;
	size_t x = (size_t)head * (size_t)s->head_dim, of = (size_t)(head / (s->heads / s->groups)) * (size_t)s->state;
	const float *row = j->xbc + (size_t)r * (inner + 2 * group);
	float step = softplus(j->step[(size_t)r * (size_t)s->heads + (size_t)head] + s->dt[head]);
	step = step < s->least ? s->least : step > s->most ? s->most : step;
	struct kn_ssm_row one = {.b = row + inner + of,
				 .c = row + inner + group + of,
				 .state = s->state,
				 .head_dim = s->head_dim,
				 .keep = expf(s->a[head] * step),
				 .step = step,
				 .skip = s->d[head]};
	j->b->isa->ssm(&one, state, row + x, j->y + (size_t)r * inner + x);
}

static void run_ssm(void *ctx, int part)
{
	const struct ssm *j = ctx;
	const struct kn_ssm *s = j->s;
	for_heads(j->b->step, j->n_rows, part, j->n_parts, s->heads, (size_t)s->state * (size_t)s->head_dim, s->at,
		  ssm_row, j);
}

int kn_cpu_ssm(struct kn_backend *b, const struct kn_ssm *s, const float *xbc, const float *step, int n_rows, float *y)
{
	struct ssm j = {.b = b, .s = s, .xbc = xbc, .step = step, .y = y, .n_rows = n_rows};
	b->packed_of = NULL;
	j.n_parts = kn_parts_of(b, (int64_t)n_rows * s->heads * s->state * s->head_dim * 2);
	j.n_parts = j.n_parts < s->heads ? j.n_parts : s->heads;
	kn_run_parts(b, j.n_parts, run_ssm, &j);
	return 0;
}

/* ---- gates ---- */

int kn_cpu_halve(struct kn_backend *b, const float *x, int n_rows, int width, float *first, float *second)
{
	size_t n = (size_t)width;
	b->packed_of = NULL;
	for (int r = 0; r < n_rows; r++, x += 2 * n, first += n, second += n) {
		memcpy(first, x, n * sizeof *x);
		memcpy(second, x + n, n * sizeof *x);
	}
	return 0;
}
