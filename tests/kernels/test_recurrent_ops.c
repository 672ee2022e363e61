/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers that keep a state: convolutions, the delta rule and state spaces of every table against sums in double
 * precision written here, at odd shapes, and bit for bit the same however rows are divided among steps, whatever
 * sequences share a step, and with any number of threads. A state is what its slot says, wherever that is; at position
 * 0 it does not matter.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/model/model.h"
#include "engine/source/random_model.h"
#include "tests/kernels/tables.h"
#include "tests/kernels/weights.h"

enum { ROWS = 21, SEQS = 3, SLOTS = 5, MOST_WIDE = 3072 };

/* Rows of three sequences, of which only the second begins: those of a sequence adjacent, in any order of sequences. */
static const int lengths[SEQS] = {8, 9, 4}, begins_at[SEQS] = {3, 0, 40};

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

struct bench {
	const struct kn_ops *o;
	struct kn_backend *b;
	size_t floats; /* of a state */
	float *states, *before;
	int32_t state_of[SEQS];
};

static void bench_open(struct bench *x, const struct kn_ops *o, int n_threads, size_t floats)
{
	*x = (struct bench){.o = o, .floats = floats, .state_of = {4, 0, 2}};
	x->b = open_with(o, &(struct kn_config){.n_threads = n_threads, .max_rows = ROWS, .max_width = MOST_WIDE});
	x->before = random_floats(o, x->b, floats * SLOTS);
	for (size_t i = 0; i < floats; i++) /* of the sequence that begins */
		x->before[i] = NAN;
	x->states = guarded(o, x->b, floats * SLOTS);
	memcpy(x->states, x->before, floats * SLOTS * sizeof *x->states);
}

static void bench_close(struct bench *x)
{
	check_guards(x->states, x->floats * SLOTS);
	drop(x->o, x->b, x->before);
	drop(x->o, x->b, x->states);
	x->o->close(x->b);
}

struct op {
	const struct kn_conv *conv;
	const struct kn_delta *delta; /* or this */
	const struct kn_ssm *ssm;     /* or this, whose steps are alpha */
	size_t in, out;               /* floats of a row */
	const float *x, *beta, *alpha;
};

/* The rows of the sequences in this order, at most `chunk` of each sequence in a step. */
static void run(struct bench *x, const struct op *op, const int *order, int chunk, float *y)
{
	int done[SEQS] = {0}, first[SEQS] = {0, lengths[0], lengths[0] + lengths[1]};
	for (int left = ROWS; left > 0;) {
		int32_t pos[ROWS], seq[ROWS], token[ROWS] = {0};
		int at[ROWS], n = 0;
		for (int k = 0; k < SEQS; k++) {
			int s = order[k];
			for (int i = 0; i < chunk && done[s] < lengths[s]; i++, n++) {
				pos[n] = begins_at[s] + done[s];
				seq[n] = s;
				at[n] = first[s] + done[s]++;
			}
		}
		struct kn_step step = {.n_rows = n,
				       .row_token = token,
				       .row_pos = pos,
				       .row_seq = seq,
				       .n_seqs = SEQS,
				       .states = x->states,
				       .state_floats = x->floats,
				       .state_of = x->state_of};
		size_t rows = (size_t)n;
		size_t heads = (size_t)(op->delta != NULL ? op->delta->v_heads : op->ssm != NULL ? op->ssm->heads : 0);
		float *in = guarded(x->o, x->b, rows * op->in), *out = guarded(x->o, x->b, rows * op->out);
		float *beta = guarded(x->o, x->b, rows * heads), *alpha = guarded(x->o, x->b, rows * heads);
		for (size_t r = 0; r < rows; r++) {
			size_t from = (size_t)at[r];
			memcpy(in + r * op->in, op->x + from * op->in, op->in * sizeof *in);
			for (size_t h = 0; h < heads; h++) {
				beta[r * heads + h] = op->beta != NULL ? op->beta[from * heads + h] : 0;
				alpha[r * heads + h] = op->alpha[from * heads + h];
			}
		}
		assert_int_equal(x->o->step_begin(x->b, &step), 0);
		assert_int_equal(op->delta != NULL ? x->o->delta(x->b, op->delta, in, beta, alpha, n, out)
				 : op->ssm != NULL ? x->o->ssm(x->b, op->ssm, in, alpha, n, out)
						   : x->o->conv(x->b, op->conv, in, n, out),
				 0);
		assert_int_equal(x->o->step_end(x->b), 0);
		for (size_t r = 0; r < rows; r++)
			memcpy(y + (size_t)at[r] * op->out, out + r * op->out, op->out * sizeof *out);
		check_guards(out, rows * op->out);
		float *all[] = {in, out, beta, alpha};
		for (size_t i = 0; i < N(all); i++)
			drop(x->o, x->b, all[i]);
		left -= n;
	}
}

/* Bits in other orders, chunks and threads, and the states' too; slots of nobody stay as they are. */
static void same_everywhere(const struct kn_ops *o, const struct op *op, size_t floats, const float *want,
			    const float *states, uint64_t seed)
{
	static const struct {
		int order[SEQS], chunk, threads;
	} ways[] = {{{0, 1, 2}, 1, 1}, {{2, 0, 1}, 3, 2}, {{1, 2, 0}, 100, 3}};
	float *got = malloc(ROWS * op->out * sizeof *got);
	for (size_t w = 0; w < N(ways); w++) {
		struct bench x;
		uint64_t now = state;
		state = seed;
		bench_open(&x, o, ways[w].threads, floats);
		state = now;
		run(&x, op, ways[w].order, ways[w].chunk, got);
		assert_memory_equal(got, want, ROWS * op->out * sizeof *got);
		assert_memory_equal(x.states, states, floats * SLOTS * sizeof *states);
		bench_close(&x);
	}
	free(got);
}

/* ---- convolutions ---- */

static void check_conv(const struct kn_ops *o, int n, int width, bool gated, bool biased)
{
	size_t at = 5, floats = at + (size_t)(width - 1) * (size_t)n + 3, in = (size_t)(gated ? 3 * n : n);
	struct bench x;
	uint64_t seed = state;
	bench_open(&x, o, 1, floats);
	float *w = random_floats(o, x.b, (size_t)(n * width)), *rows = random_floats(o, x.b, ROWS * in);
	float *bias = random_floats(o, x.b, (size_t)n);
	struct kn_conv c = {.w = w, .n = n, .width = width, .gated = gated, .bias = biased ? bias : NULL, .at = at};
	struct op op = {.conv = &c, .in = in, .out = (size_t)n, .x = rows};
	float *y = malloc(ROWS * (size_t)n * sizeof *y);
	run(&x, &op, (const int[]){0, 1, 2}, 100, y);
	for (int s = 0, first = 0; s < SEQS; first += lengths[s++])
		for (int t = 0; t < lengths[s]; t++)
			for (int i = 0; i < n; i++) {
				double sum = 0, size = 0;
				for (int k = 0; k < width; k++) {
					int from = t - (width - 1) + k;
					const float *row = rows + (size_t)(first + from) * in;
					const float *old = x.before + (size_t)x.state_of[s] * floats + at;
					double u =
					    from >= 0 ? (double)row[i] * (gated ? (double)row[2 * n + i] : 1)
					    : begins_at[s] == 0
						? 0
						: (double)old[(size_t)(width - 1 + from) * (size_t)n + (size_t)i];
					sum += (double)w[k * n + i] * u;
					size += fabs((double)w[k * n + i] * u);
				}
				sum += biased ? (double)bias[i] : 0;
				size += biased ? fabs((double)bias[i]) : 0;
				const float *row = rows + (size_t)(first + t) * in;
				double want = gated ? (double)row[n + i] * sum : sum * sigmoid(sum);
				double bound =
				    0x1p-22 * (width + 2) * (size + 1) * (gated ? fabs((double)row[n + i]) + 1 : 2);
				expect_near("conv", o, (double)y[(first + t) * n + i], want, bound);
			}
	float *after = malloc(floats * SLOTS * sizeof *after);
	memcpy(after, x.states, floats * SLOTS * sizeof *after);
	for (size_t i = 0; i < floats; i++) /* of nobody; and beside the layer's own */
		assert_true(after[floats + i] == x.before[floats + i] &&
			    after[3 * floats + i] == x.before[3 * floats + i]);
	for (size_t i = 0; i < at; i++)
		assert_true(after[4 * floats + i] == x.before[4 * floats + i]);
	same_everywhere(o, &op, floats, y, after, seed);
	drop(o, x.b, w);
	drop(o, x.b, bias);
	drop(o, x.b, rows);
	bench_close(&x);
	free(y);
	free(after);
}

static void test_conv(void **arg)
{
	(void)arg;
	static const int channels[] = {1, 5, 67, 1024};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		for (size_t i = 0; i < N(channels); i++)
			for (int width = 1; width <= KN_MAX_CONV; width++)
				check_conv(*o, channels[i], width, width % 2 == 0, false);
		check_conv(*o, 33, 3, true, false);
		check_conv(*o, 33, 4, false, false);
		check_conv(*o, 67, 4, false, true);
		check_conv(*o, 1024, 1, false, true);
	}
}

/* Rows of one sequence in a step of all, and in steps of a few, whose outputs may take the place of inputs: the same
 * outputs and states. */
static void check_long(const struct kn_ops *o, int n_steps, bool in_place, float *y, float *states)
{
	enum { LONG = 150, CHANNELS = 3, WIDTH = 4, FLOATS = (WIDTH - 1) * CHANNELS };
	static const int32_t slot = 0;
	int32_t pos[LONG], seq[LONG] = {0}, token[LONG] = {0};
	struct kn_backend *b =
	    open_with(o, &(struct kn_config){.n_threads = 1, .max_rows = LONG, .max_width = MOST_WIDE});
	state = 11;
	float *w = random_floats(o, b, CHANNELS * WIDTH), *x = random_floats(o, b, LONG * CHANNELS);
	float *out = in_place ? x : guarded(o, b, LONG * CHANNELS), *s = guarded(o, b, FLOATS);
	const struct kn_conv c = {.w = w, .n = CHANNELS, .width = WIDTH};
	for (int i = 0; i < LONG; i++)
		pos[i] = i;
	for (int k = 0; k < n_steps; k++) {
		int from = LONG * k / n_steps, n = LONG * (k + 1) / n_steps - from;
		struct kn_step step = {.n_rows = n,
				       .row_token = token,
				       .row_pos = pos + from,
				       .row_seq = seq,
				       .n_seqs = 1,
				       .states = s,
				       .state_floats = FLOATS,
				       .state_of = &slot};
		assert_int_equal(o->step_begin(b, &step), 0);
		assert_int_equal(o->conv(b, &c, x + from * CHANNELS, n, out + from * CHANNELS), 0);
		assert_int_equal(o->step_end(b), 0);
	}
	memcpy(y, out, LONG * CHANNELS * sizeof *y);
	memcpy(states, s, FLOATS * sizeof *s);
	float *all[] = {w, x, s, out};
	for (int i = 0; i < N(all) - in_place; i++)
		drop(o, b, all[i]);
	o->close(b);
}

static void test_long(void **arg)
{
	(void)arg;
	static const struct {
		int n_steps;
		bool in_place;
	} ways[] = {{1, false}, {1, true}, {40, false}, {2, true}};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		float y[2][450], states[2][9];
		for (size_t i = 0; i < N(ways); i++) {
			check_long(*o, ways[i].n_steps, ways[i].in_place, y[i > 0], states[i > 0]);
			assert_memory_equal(y[i > 0], y[0], sizeof y[0]);
			assert_memory_equal(states[i > 0], states[0], sizeof states[0]);
		}
	}
}

/* ---- the delta rule ---- */

static double length_of(const float *x, int n)
{
	double sum = 1e-6;
	for (int i = 0; i < n; i++)
		sum += (double)x[i] * (double)x[i];
	return sqrt(sum);
}

/* One head of one row by the definition; s [k_dim][v_dim]. */
static void by_definition(const struct kn_delta *d, int head, const float *row, double beta, double alpha, double *s,
			  double *y)
{
	int of = d->tiled ? head % d->k_heads : head / (d->v_heads / d->k_heads), keys = d->k_heads * d->k_dim;
	const float *q = row + of * d->k_dim, *k = q + keys, *v = row + 2 * keys + head * d->v_dim;
	double nq = length_of(q, d->k_dim) * sqrt(d->k_dim), nk = length_of(k, d->k_dim);
	double keep = exp((double)d->a[head] * log(1 + exp(alpha + (double)d->dt[head])));
	for (int j = 0; j < d->v_dim; j++) {
		double found = 0;
		for (int i = 0; i < d->k_dim; i++) {
			s[i * d->v_dim + j] *= keep;
			found += s[i * d->v_dim + j] * (double)k[i] / nk;
		}
		y[j] = 0;
		for (int i = 0; i < d->k_dim; i++) {
			s[i * d->v_dim + j] += (double)k[i] / nk * ((double)v[j] - found) * sigmoid(beta);
			y[j] += s[i * d->v_dim + j] * (double)q[i] / nq;
		}
	}
}

static void check_delta(const struct kn_ops *o, struct kn_delta d)
{
	size_t heads = (size_t)d.v_heads, in = (size_t)(2 * d.k_heads * d.k_dim + d.v_heads * d.v_dim);
	size_t out = heads * (size_t)d.v_dim, one = (size_t)(d.k_dim * d.v_dim), floats = 7 + heads * one;
	struct bench x;
	uint64_t seed = state;
	bench_open(&x, o, 1, floats);
	float *a = random_floats(o, x.b, heads), *dt = random_floats(o, x.b, heads);
	float *rows = random_floats(o, x.b, ROWS * in), *beta = random_floats(o, x.b, ROWS * heads);
	float *alpha = random_floats(o, x.b, ROWS * heads), *y = malloc(ROWS * out * sizeof *y);
	for (size_t h = 0; h < heads; h++)
		a[h] = -fabsf(a[h]);
	alpha[0] = 50; /* beyond what exp gives in float */
	d.a = a;
	d.dt = dt;
	d.at = 7;
	struct op op = {.delta = &d, .in = in, .out = out, .x = rows, .beta = beta, .alpha = alpha};
	run(&x, &op, (const int[]){0, 1, 2}, 100, y);
	double *s = malloc(one * sizeof *s), *want = malloc((size_t)d.v_dim * sizeof *want);
	for (int q = 0, first = 0; q < SEQS; first += lengths[q++])
		for (int h = 0; h < d.v_heads; h++) {
			const float *old = x.before + (size_t)x.state_of[q] * floats + d.at + (size_t)h * one;
			for (size_t i = 0; i < one; i++)
				s[i] = begins_at[q] == 0 ? 0 : (double)old[i];
			for (int t = first; t < first + lengths[q]; t++) {
				by_definition(&d, h, rows + (size_t)t * in, (double)beta[t * d.v_heads + h],
					      (double)alpha[t * d.v_heads + h], s, want);
				/* A state's numbers are rounded twice a row, and summed over the keys; all are of order
				 * one. */
				for (int j = 0; j < d.v_dim; j++)
					expect_near("delta", o, (double)y[(size_t)t * out + (size_t)(h * d.v_dim + j)],
						    want[j], 0x1p-21 * (d.k_dim + 8) * 4);
			}
		}
	float *after = malloc(floats * SLOTS * sizeof *after);
	memcpy(after, x.states, floats * SLOTS * sizeof *after);
	for (size_t i = 0; i < floats; i++)
		assert_true(after[floats + i] == x.before[floats + i]);
	same_everywhere(o, &op, floats, y, after, seed);
	float *all[] = {a, dt, rows, beta, alpha};
	for (size_t i = 0; i < N(all); i++)
		drop(o, x.b, all[i]);
	bench_close(&x);
	free(s);
	free(want);
	free(y);
	free(after);
}

static void test_delta(void **arg)
{
	(void)arg;
	static const struct kn_delta shapes[] = {
	    {.k_heads = 1, .v_heads = 1, .k_dim = 1, .v_dim = 1},
	    {.k_heads = 2, .v_heads = 6, .k_dim = 5, .v_dim = 7, .tiled = true},
	    {.k_heads = 3, .v_heads = 6, .k_dim = 33, .v_dim = 18},
	    {.k_heads = 2, .v_heads = 2, .k_dim = 64, .v_dim = 64},
	    {.k_heads = 1, .v_heads = 4, .k_dim = 16, .v_dim = 130, .tiled = true},
	    {.k_heads = 1, .v_heads = 2, .k_dim = 129, .v_dim = 17},
	    {.k_heads = 1, .v_heads = 1, .k_dim = 301, .v_dim = 3},
	};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (size_t i = 0; i < N(shapes) && (*o)->delta != NULL; i++)
			check_delta(*o, shapes[i]);
}

/* ---- state spaces ---- */

static void check_ssm(const struct kn_ops *o, struct kn_ssm p)
{
	size_t heads = (size_t)p.heads, out = heads * (size_t)p.head_dim, group = (size_t)(p.groups * p.state);
	size_t in = out + 2 * group, one = (size_t)(p.state * p.head_dim), floats = 7 + heads * one;
	struct bench x;
	uint64_t seed = state;
	bench_open(&x, o, 1, floats);
	float *a = random_floats(o, x.b, heads), *dt = random_floats(o, x.b, heads), *d = random_floats(o, x.b, heads);
	float *rows = random_floats(o, x.b, ROWS * in), *step = random_floats(o, x.b, ROWS * heads);
	float *y = malloc(ROWS * out * sizeof *y);
	for (size_t h = 0; h < heads; h++)
		a[h] = -fabsf(a[h]);
	step[0] = 50; /* beyond what exp gives in float */
	p.a = a;
	p.dt = dt;
	p.d = d;
	p.at = 7;
	struct op op = {.ssm = &p, .in = in, .out = out, .x = rows, .alpha = step};
	run(&x, &op, (const int[]){0, 1, 2}, 100, y);
	double *s = malloc(one * sizeof *s);
	for (int q = 0, first = 0; q < SEQS; first += lengths[q++])
		for (size_t h = 0; h < heads; h++) {
			const float *old = x.before + (size_t)x.state_of[q] * floats + p.at + h * one;
			for (size_t i = 0; i < one; i++)
				s[i] = begins_at[q] == 0 ? 0 : (double)old[i];
			for (int t = first; t < first + lengths[q]; t++) {
				const float *row = rows + (size_t)t * in + h * (size_t)p.head_dim;
				const float *b =
				    rows + (size_t)t * in + out + h / (heads / (size_t)p.groups) * (size_t)p.state;
				double len = log1p(exp((double)step[(size_t)t * heads + h] + (double)dt[h]));
				len = fmin(fmax(len, (double)p.least), (double)p.most);
				for (int j = 0; j < p.head_dim; j++) {
					double want = (double)d[h] * (double)row[j], size = fabs(want);
					for (int i = 0; i < p.state; i++) {
						double *at = &s[i * p.head_dim + j];
						*at =
						    *at * exp((double)a[h] * len) + (double)b[i] * (double)row[j] * len;
						want += *at * (double)b[group + (size_t)i];
						size += fabs(*at * (double)b[group + (size_t)i]);
					}
					/* A number of the state is rounded twice a row, those of before half as often
					 * as they have rows to go; the sum once for each of its terms. */
					expect_near("ssm", o,
						    (double)y[(size_t)t * out + h * (size_t)p.head_dim + (size_t)j],
						    want, 0x1p-22 * (p.state + 2 * ROWS) * (size + 0x1p-4 * len));
				}
			}
		}
	float *after = malloc(floats * SLOTS * sizeof *after);
	memcpy(after, x.states, floats * SLOTS * sizeof *after);
	for (size_t i = 0; i < floats; i++)
		assert_true(after[floats + i] == x.before[floats + i]);
	same_everywhere(o, &op, floats, y, after, seed);
	float *all[] = {a, dt, d, rows, step};
	for (size_t i = 0; i < N(all); i++)
		drop(o, x.b, all[i]);
	bench_close(&x);
	free(s);
	free(y);
	free(after);
}

static void test_ssm(void **arg)
{
	(void)arg;
	static const struct kn_ssm shapes[] = {
	    {.groups = 1, .heads = 1, .state = 1, .head_dim = 1, .most = INFINITY},
	    {.groups = 3, .heads = 6, .state = 5, .head_dim = 7, .most = INFINITY},
	    {.groups = 1, .heads = 4, .state = 33, .head_dim = 18, .least = 0.5f, .most = 0.75f},
	    {.groups = 2, .heads = 2, .state = 128, .head_dim = 64, .most = INFINITY},
	    {.groups = 1, .heads = 3, .state = 16, .head_dim = 130, .least = 0.01f, .most = 1},
	    {.groups = 1, .heads = 2, .state = 200, .head_dim = 17, .most = INFINITY},
	    {.groups = 1, .heads = 1, .state = 512, .head_dim = 2, .most = INFINITY},
	};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (size_t i = 0; i < N(shapes) && (*o)->ssm != NULL; i++)
			check_ssm(*o, shapes[i]);
}

/* Each sequence's states and outputs have the same bits in every instruction set: a column is a chain of its own. (A
 * device divides it.) */
static void test_ssm_sets(void **arg)
{
	(void)arg;
	enum { HEADS = 3, STATE = 9, DIM = 83, IN = HEADS * DIM + 2 * STATE };
	static float y[2][HEADS * DIM];
	const struct kn_ops *before = NULL;
	uint64_t seed = state;
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		if (strcmp((*o)->name, "cpu-ref") == 0 || strncmp((*o)->name, "cuda", 4) == 0)
			continue;
		state = seed;
		struct bench x;
		bench_open(&x, *o, 1, HEADS * STATE * DIM);
		float *a = random_floats(*o, x.b, HEADS), *rows = random_floats(*o, x.b, IN);
		float *step = random_floats(*o, x.b, HEADS), *out = guarded(*o, x.b, HEADS * DIM);
		struct kn_ssm p = {.groups = 1,
				   .heads = HEADS,
				   .state = STATE,
				   .head_dim = DIM,
				   .a = a,
				   .dt = a,
				   .d = a,
				   .most = INFINITY};
		const int32_t token = 0, pos = 8, seq = 0;
		struct kn_step s = {.n_rows = 1,
				    .row_token = &token,
				    .row_pos = &pos,
				    .row_seq = &seq,
				    .n_seqs = 1,
				    .states = x.states,
				    .state_floats = x.floats,
				    .state_of = x.state_of};
		assert_int_equal((*o)->step_begin(x.b, &s), 0);
		assert_int_equal((*o)->ssm(x.b, &p, rows, step, 1, out), 0);
		assert_int_equal((*o)->step_end(x.b), 0);
		memcpy(y[before != NULL], out, sizeof y[0]);
		if (before != NULL && memcmp(y[0], y[1], sizeof y[0]) != 0)
			fail_msg("%s and %s differ", before->name, (*o)->name);
		before = *o;
		memcpy(y[0], out, sizeof y[0]);
		float *all[] = {a, rows, step, out};
		for (size_t i = 0; i < N(all); i++)
			drop(*o, x.b, all[i]);
		bench_close(&x);
	}
}

/* Norms of groups are norms of each, and squares of what is positive. */
static void beside_ssm(const struct kn_ops *o, int n_groups, int width)
{
	int wide = n_groups * width;
	size_t n = (size_t)(ROWS * wide), row = (size_t)wide, one_group = (size_t)width;
	struct kn_backend *b =
	    open_with(o, &(struct kn_config){.n_threads = 2, .max_rows = ROWS, .max_width = MOST_WIDE});
	float *x = random_floats(o, b, n), *gain = random_floats(o, b, row);
	float *y = guarded(o, b, n), *one = guarded(o, b, one_group);
	struct kn_step s = {.n_rows = ROWS}, alone = {.n_rows = 1};
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->rmsnorm_groups(b, x, gain, 1e-5f, ROWS, n_groups, width, y), 0);
	assert_int_equal(o->step_end(b), 0);
	for (int i = 0; i < ROWS * n_groups; i++) {
		const float *of = gain + i % n_groups * width;
		assert_int_equal(o->step_begin(b, &alone), 0);
		assert_int_equal(o->rmsnorm(b, x + i * width, of, 1e-5f, 1, width, one), 0);
		assert_int_equal(o->step_end(b), 0);
		assert_memory_equal(one, y + i * width, one_group * sizeof *y);
	}
	memcpy(y, x, n * sizeof *y);
	y[5] = NAN;
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->relu_square(b, y, ROWS, wide), 0);
	assert_int_equal(o->step_end(b), 0);
	assert_true(isnan(y[5]));
	for (int i = 6; i < ROWS * wide; i++)
		assert_true(y[i] == (x[i] > 0 ? x[i] * x[i] : 0));
	float *all[] = {x, gain, y, one};
	for (size_t i = 0; i < N(all); i++)
		drop(o, b, all[i]);
	o->close(b);
}

static void test_beside_ssm(void **arg)
{
	(void)arg;
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		if ((*o)->ssm == NULL)
			continue;
		beside_ssm(*o, 3, 37);
		beside_ssm(*o, 2, 1033);
	}
}

/* ---- gates ---- */

static void test_gates(void **arg)
{
	(void)arg;
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		enum { WIDTH = 37 };
		if ((*o)->halve == NULL)
			continue;
		struct kn_backend *b =
		    open_with(*o, &(struct kn_config){.n_threads = 2, .max_rows = ROWS, .max_width = MOST_WIDE});
		float *x = random_floats(*o, b, ROWS * 2 * WIDTH), *first = guarded(*o, b, ROWS * WIDTH);
		float *second = guarded(*o, b, ROWS * WIDTH), *copy = guarded(*o, b, ROWS * WIDTH);
		struct kn_step s = {.n_rows = ROWS};
		assert_int_equal((*o)->step_begin(b, &s), 0);
		assert_int_equal((*o)->halve(b, x, ROWS, WIDTH, first, second), 0);
		assert_int_equal((*o)->state_copy(b, first, copy, ROWS * WIDTH), 0);
		assert_int_equal((*o)->sigmoid_mul(b, copy, second, ROWS, WIDTH), 0);
		assert_int_equal((*o)->step_end(b), 0);
		for (int r = 0; r < ROWS; r++)
			for (int i = 0; i < WIDTH; i++) {
				assert_true(first[r * WIDTH + i] == x[2 * r * WIDTH + i]);
				assert_true(second[r * WIDTH + i] == x[(2 * r + 1) * WIDTH + i]);
				double want = (double)first[r * WIDTH + i] * sigmoid((double)second[r * WIDTH + i]);
				expect_near("sigmoid_mul", *o, (double)copy[r * WIDTH + i], want,
					    0x1p-21 * (fabs(want) + 0x1p-10));
			}
		float *all[] = {x, first, second, copy};
		for (size_t i = 0; i < N(all); i++)
			drop(*o, b, all[i]);
		(*o)->close(b);
	}
}

/* A backend without them refuses such models in one line that names the kind of layer. */
static void test_refused(void **arg)
{
	(void)arg;
	static const struct {
		const char *shape, *said;
	} kinds[] = {{"tiny-lfm2", "has no recurrent layers (short convolutions)"},
		     {"tiny-qwen3.5", "has no recurrent layers (the gated delta rule)"},
		     {"tiny-granite4", "has no recurrent layers (state spaces)"},
		     {"tiny-nemotron-h", "has no recurrent layers (state spaces)"}};
	struct kn_ops without = *kn_available()[0];
	without.conv = NULL;
	without.delta = NULL;
	without.ssm = NULL;
	for (size_t i = 0; i < N(kinds); i++) {
		char path[] = "/tmp/sluice-recurrent-XXXXXX";
		struct random_model r = {.path = path, .name = "random", .seed = 3, .n_threads = 1};
		struct sl_err err = {0};
		struct model *m = NULL;
		int fd = mkstemp(path);
		assert_true(fd >= 0);
		close(fd);
		assert_int_equal(random_shape_find(kinds[i].shape, &r.arch, &err), 0);
		assert_int_equal(weight_plan_parse("f32", &r.plan, &err), 0);
		assert_int_equal(random_model_write(&r, NULL, &err), 0);
		struct kn_backend *b =
		    open_with(&without, &(struct kn_config){.n_threads = 1, .max_rows = 8, .max_width = MOST_WIDE});
		assert_int_equal(model_load(path, &without, b, 8, 0, &m, &err), SL_EUNSUPPORTED);
		if (strstr(err.text, kinds[i].said) == NULL)
			fail_msg("%s", err.text);
		without.close(b);
		unlink(path);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_conv),     cmocka_unit_test(test_long),
					   cmocka_unit_test(test_delta),    cmocka_unit_test(test_ssm),
					   cmocka_unit_test(test_ssm_sets), cmocka_unit_test(test_beside_ssm),
					   cmocka_unit_test(test_gates),    cmocka_unit_test(test_refused)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
