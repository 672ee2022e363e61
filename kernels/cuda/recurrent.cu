/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers that keep a state. A step's rows of one sequence are a run (kn_run). Rows that pad a step get the outputs of
 * the row that they are copies of, since they write to its pages; they must not move its state on.
 *
 * A convolution's outputs depend on inputs only, so a run is divided: a block has up to KN_ITEM_ROWS rows of 128
 * channels, a thread a channel, whose last inputs are in registers. The block with a run's first rows reads the old
 * state and writes the new one, so no two blocks touch a state.
 *
 * A head with a state has a column of it in the registers of a few lanes for a whole run, so a state is read and
 * written once a step. Positions follow one another in the order of the definition, for decodes and prompts alike;
 * forms of the rule that compute many positions as products of matrices would have other bits.
 *
 * VERSIONS
 *  1  this, with the sums of each position added up before the next. Measured on an H100, microseconds a layer:
 *     qwen3.5-2b (16 heads of 128 x 128), decodes of 1 and 64: convolution 6.4 and 15.6, rule 6.6 and 55.7 (134 MB of
 *     states: 2.4 TB/s); a prompt of 2048: 58.5 and 718, 600 cycles a position. granite-4.0-h-1b (48 heads of 128 x 64):
 *     6.4 and 11.1, 6.7 and 76.4 (2.6 TB/s); a prompt 31.4 and 514. lfm2-1.2b: 5.8 and 7.1; a prompt 27.6.
 *  2  outputs of four positions are added up together, since no later position waits for them: a position of a prompt
 * is
 *     one tree of three shuffles in the delta rule, none in state spaces, where it was two and one. Not measured yet.
 */
#include "kernels/cuda/rows.h"

enum {
	THREADS = 128,
	TAPS = KN_MAX_CONV,
	AHEAD = 4, /* rows whose inputs are on their way together */
};

/* ---- convolutions ---- */

struct conv_call {
	const float *w, *bias, *x;
	float *y, *states; /* states: at this layer's of slot 0 */
	int64_t state_floats;
	const struct kn_item *alone, *together; /* NULL: blocks have whole runs */
	const struct kn_run *runs;
	const int32_t *run_of, *pos;
	int n, width, n_alone;
	bool gated;
};

/* What the taps of channel i see of row r. */
__device__ static inline float conv_input(const struct conv_call &c, int64_t r, int i)
{
	if (!c.gated)
		return c.x[r * c.n + i];
	const float *row = c.x + r * 3 * c.n + i;
	return row[0] * row[2 * c.n];
}

/* Taps are as many as there can be, of which the first, without inputs, are zeros: the sums are the same. */
struct conv_channel {
	float w[TAPS], seen[TAPS - 1], bias;
};

/* Loads the inputs before a row, of this run or of its state; returns the latter's address. */
__device__ static inline float *conv_begin(const struct conv_call &c, const struct kn_run &run, int row, int i,
					   struct conv_channel *now)
{
	float *state = c.states + run.slot * c.state_floats + i;
	int before = c.width - 1;
	bool fresh = c.pos[run.row] == 0;
	UNROLL_FOR(int k = 0; k < TAPS; k++)
		now->w[k] = k >= TAPS - c.width ? c.w[(int64_t)(k - TAPS + c.width) * c.n + i] : 0.0f;
	now->bias = c.bias != NULL ? c.bias[i] : 0.0f;
	UNROLL_FOR(int k = 0; k < TAPS - 1; k++) {
		int r = row - (TAPS - 1) + k, old = r - run.row + before;
		now->seen[k] = 0;
		if (k >= TAPS - c.width && r >= run.row)
			now->seen[k] = conv_input(c, r, i);
		else if (k >= TAPS - c.width && !fresh)
			now->seen[k] = state[(int64_t)old * c.n];
	}
	return state;
}

__device__ static inline void conv_row(const struct conv_call &c, struct conv_channel *now, int64_t r, int i, float in,
				       float gate)
{
	float sum = 0;
	UNROLL_FOR(int k = 0; k < TAPS - 1; k++)
		sum = kn_fma(now->w[k], now->seen[k], sum);
	sum = kn_fma(now->w[TAPS - 1], in, sum) + now->bias;
	c.y[r * c.n + i] = c.gated ? gate * sum : sum / (1.0f + expf(-sum));
	UNROLL_FOR(int k = 0; k < TAPS - 2; k++)
		now->seen[k] = now->seen[k + 1];
	now->seen[TAPS - 2] = in;
}

/* The run's last inputs, which `now` has if it has seen all of them. */
__device__ static inline void conv_end(const struct conv_call &c, const struct kn_run &run, int i,
				       const struct conv_channel &now, bool all, float *state)
{
	UNROLL_FOR(int k = 0; k < TAPS - 1; k++) {
		int at = k - TAPS + c.width;
		int64_t r = run.row + run.n_rows - (TAPS - 1) + k;
		if (at >= 0)
			state[(int64_t)at * c.n] = all ? now.seen[k] : conv_input(c, r, i);
	}
}

__global__ void conv(struct conv_call c)
{
	kn_begin();
	int i = (int)(blockIdx.x * THREADS + threadIdx.x), part = (int)blockIdx.y;
	struct kn_item item;
	struct kn_run run;
	struct conv_channel now;
	if (i >= c.n)
		return;
	if (c.alone != NULL) {
		item = part < c.n_alone ? c.alone[part] : c.together[part - c.n_alone];
		run = c.runs[c.run_of[item.row]];
	} else {
		run = c.runs[part];
		item = {run.row, run.n_rows};
	}
	if (run.n_rows == 0)
		return;
	float *state = conv_begin(c, run, item.row, i, &now);
#pragma unroll 1
	for (int r = 0; r < item.n_rows; r += AHEAD) {
		float in[AHEAD], gate[AHEAD];
		UNROLL_FOR(int j = 0; j < AHEAD; j++) {
			int64_t row = item.row + (r + j < item.n_rows ? r + j : r);
			in[j] = conv_input(c, row, i);
			gate[j] = c.gated ? c.x[(row * 3 + 1) * c.n + i] : 0.0f;
		}
		UNROLL_FOR(int j = 0; j < AHEAD; j++)
			if (r + j < item.n_rows)
				conv_row(c, &now, item.row + r + j, i, in[j], gate[j]);
	}
	int64_t last = run.row + run.n_rows - 1;
	for (int64_t r = last + 1; r <= last + run.n_copies; r++) /* of a single row, in this block */
		c.y[r * c.n + i] = c.y[last * c.n + i];
	if (item.row == run.row)
		conv_end(c, run, i, now, item.n_rows == run.n_rows, state);
}

int kn_cuda_conv(struct kn_backend *b, const struct kn_conv *conv_of, const float *x, int n_rows, float *y)
{
	struct conv_call c = {}; /* padding must be zero in a command */
	bool whole = x == y;     /* blocks would read what others have overwritten */
	(void)n_rows;
	c.w = conv_of->w;
	c.bias = conv_of->bias;
	c.x = x;
	c.y = y;
	c.states = b->step->states + conv_of->at;
	c.state_floats = (int64_t)b->step->state_floats;
	c.alone = whole ? NULL : b->alone;
	c.together = b->together;
	c.runs = b->runs;
	c.run_of = b->run_of;
	c.pos = b->pos;
	c.n = conv_of->n;
	c.width = conv_of->width;
	c.n_alone = b->n_alone;
	c.gated = conv_of->gated;
	unsigned parts = (unsigned)(whole ? b->n_runs : b->n_alone + b->n_together);
	return KN_LAUNCH(b->dev, conv, dim3((unsigned)((c.n + THREADS - 1) / THREADS), parts), THREADS, 0, c);
}

/* ---- heads with a state each ---- */

enum {
	PARTS = 8, /* of a sum over the rows of a state */
	HEAD_WARPS = 4,
	HEAD_THREADS = HEAD_WARPS * KN_WARP,
};

struct heads_call {
	const float *in, *first, *second; /* rows of heads: delta's beta and alpha; ssm's step in second */
	float *y, *states;                /* states: at this layer's of slot 0 */
	int64_t state_floats;
	const float *a, *dt, *d;
	const struct kn_run *runs;
	const int32_t *pos;
	float least, most, query_factor;
	int heads, key_heads, n, width; /* n, width: of a state */
	int in_row, key_at, query_at, value_at;
	bool tiled;
};

/* A block has a head's columns of a run. A column's rows are divided among LANES lanes, so that a warp has as many
 * columns as lanes are left; row 4 · (PARTS · b + p) + e, with e < 4, is in part p. A lane has one part or two. A sum
 * is, of each part, over b for each e, these four, then the parts by a tree: the same for any LANES. R: rows of a part.
 * CHUNK: positions whose keys and queries are in shared memory together. */
template <bool SSM_, int R_, int LANES_, int CHUNK_> struct head_form {
	enum {
		SSM = SSM_,
		R = R_,
		LANES = LANES_,
		CHUNK = CHUNK_,
		OWN = PARTS / LANES, /* parts of a lane */
		N = PARTS * R,       /* rows, of which those past the state's are zeros */
		EACH = KN_WARP / LANES,
		COLUMNS = HEAD_WARPS * EACH,
		VECTORS = (2 * CHUNK + HEAD_WARPS - 1) / HEAD_WARPS, /* that a warp brings of a chunk */
		BUFFERS = CHUNK > 1 ? 2 : 1,
		TOGETHER = CHUNK < 4 ? 1 : 4, /* positions whose outputs are added up together */
	};
};

/* Of a chunk. */
template <class F> struct head_shared {
	float key[F::CHUNK][F::N], query[F::CHUNK][F::N], value[F::CHUNK][F::COLUMNS], keep[F::CHUNK], rate[F::CHUNK];
};

/* What a thread brings of a chunk, on its way. */
template <class F> struct head_taken {
	float vector[F::VECTORS][F::N / KN_WARP], value, first, second;
};

template <class F> struct head_tree {
	template <typename V> __device__ static inline V of(V v)
	{
		for (int step = F::LANES / 2; step > 0; step /= 2)
			v = v + kn_shuffle_xor(v, step * F::EACH);
		return v;
	}
};

/* Vector i of this warp is the key or the query of a position of the chunk. */
template <class F> __device__ static inline int position_of(int i)
{
	return ((int)threadIdx.x / KN_WARP + i * HEAD_WARPS) / 2;
}

__device__ static inline bool is_query(void) { return (int)threadIdx.x / KN_WARP % 2 == 1; }

/* The n positions from row on. */
template <class F>
__device__ static inline void take(const struct heads_call &c, int64_t row, int n, int head, struct head_taken<F> *x)
{
	int t = (int)threadIdx.x, lane = t % KN_WARP, column = (int)blockIdx.x * F::COLUMNS + t % F::COLUMNS;
	int of = c.tiled ? head % c.key_heads : head / (c.heads / c.key_heads);
	UNROLL_FOR(int i = 0; i < F::VECTORS; i++) {
		int p = position_of<F>(i);
		const float *from = c.in + (row + p) * c.in_row + (is_query() ? c.query_at : c.key_at) + of * c.n;
		UNROLL_FOR(int j = 0; j < F::N / KN_WARP; j++)
			x->vector[i][j] = p < n && lane + j * KN_WARP < c.n ? from[lane + j * KN_WARP] : 0.0f;
	}
	int p = t / F::COLUMNS;
	x->value = p < n && column < c.width ? c.in[(row + p) * c.in_row + c.value_at + head * c.width + column] : 0.0f;
	if (t < n) {
		x->first = c.first != NULL ? c.first[(row + t) * c.heads + head] : 0.0f;
		x->second = c.second[(row + t) * c.heads + head];
	}
}

__device__ static inline float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

/* What a position keeps of a state, and the rate of what it adds. */
template <class F>
__device__ static inline void rates(const struct heads_call &c, int head, float first, float second, float *keep,
				    float *rate)
{
	float step = softplus(second + c.dt[head]);
	if (F::SSM)
		step = step < c.least ? c.least : step > c.most ? c.most : step;
	*keep = expf(c.a[head] * step);
	*rate = F::SSM ? step : 1.0f / (1.0f + expf(-first));
}

template <class F>
__device__ static inline void put(const struct heads_call &c, int n, int head, const struct head_taken<F> &x,
				  struct head_shared<F> *to)
{
	const float eps = 1e-6f;
	int t = (int)threadIdx.x, lane = t % KN_WARP;
	UNROLL_FOR(int i = 0; i < F::VECTORS; i++) {
		int p = position_of<F>(i);
		float scale = 1, squares = 0;
		if (p >= n)
			continue; /* the whole warp */
		if (!F::SSM) {
			UNROLL_FOR(int j = 0; j < F::N / KN_WARP; j++)
				squares = kn_fma(x.vector[i][j], x.vector[i][j], squares);
			scale = (is_query() ? c.query_factor : 1.0f) / sqrtf(kn_warp_sum(squares) + eps);
		}
		float *at = is_query() ? to->query[p] : to->key[p];
		UNROLL_FOR(int j = 0; j < F::N / KN_WARP; j++)
			at[lane + j * KN_WARP] = x.vector[i][j] * scale;
	}
	if (t / F::COLUMNS < n)
		to->value[t / F::COLUMNS][t % F::COLUMNS] = x.value;
	if (t < n)
		rates<F>(c, head, x.first, x.second, &to->keep[t], &to->rate[t]);
}

/* What a lane has of its column's sum, of each of its parts in fours. */
template <class F> __device__ static inline float own_sum(const float (*four)[4])
{
	float sum[F::OWN];
	UNROLL_FOR(int j = 0; j < F::OWN; j++)
		sum[j] = (four[j][0] + four[j][1]) + (four[j][2] + four[j][3]);
	UNROLL_FOR(int j = 1; j < F::OWN; j++)
		sum[0] += sum[j];
	return sum[0];
}

/* The column's, in all of its lanes. */
template <class F> __device__ static inline float column_sum(float own) { return kn_tree<struct head_tree<F>>(own); }

/* One position: the lane's rows of its column move on. Returns what it has of the query's sum. */
template <class F>
__device__ static inline float advance(const struct head_shared<F> &x, int i, int part, int column, float (*s)[F::R])
{
	float four[F::OWN][4] = {}, keep = x.keep[i], value = x.value[i][column], change = value * x.rate[i], v[4],
	      q[4];
	if (!F::SSM) {
		UNROLL_FOR(int j = 0; j < F::OWN; j++)
			UNROLL_FOR(int b = 0; b < F::R / 4; b++) {
				kn_take4(&x.key[i][4 * (PARTS * b + part + F::LANES * j)], v);
				UNROLL_FOR(int e = 0; e < 4; e++)
					four[j][e] = kn_fma(s[j][4 * b + e], v[e], four[j][e]);
			}
		change = (value - column_sum<F>(own_sum<F>(four)) * keep) * x.rate[i];
		UNROLL_FOR(int j = 0; j < F::OWN; j++)
			UNROLL_FOR(int e = 0; e < 4; e++)
				four[j][e] = 0;
	}
	UNROLL_FOR(int j = 0; j < F::OWN; j++)
		UNROLL_FOR(int b = 0; b < F::R / 4; b++) {
			int at = 4 * (PARTS * b + part + F::LANES * j);
			kn_take4(&x.key[i][at], v);
			kn_take4(&x.query[i][at], q);
			UNROLL_FOR(int e = 0; e < 4; e++) {
				float *now = &s[j][4 * b + e];
				*now = kn_fma(change, v[e], *now * keep);
				four[j][e] = kn_fma(*now, q[e], four[j][e]);
			}
		}
	return own_sum<F>(four);
}

/* Where a thread's outputs go. */
struct head_out {
	float *y; /* of the run's first row; NULL: another lane has the column */
	int64_t row;
	float skip;
};

/* N positions from number i of the chunk on, which is number `at` of the run. Their outputs, which no later position
 * needs, are added up together. Returns the last. */
template <class F, int N>
__device__ static inline float advance_some(const struct head_shared<F> &x, int i, int at, int part, int column,
					    const struct head_out &out, float (*s)[F::R])
{
	float sum[N];
	UNROLL_FOR(int k = 0; k < N; k++)
		sum[k] = advance<F>(x, i + k, part, column, s);
	UNROLL_FOR(int k = 0; k < N; k++)
		sum[k] = column_sum<F>(sum[k]);
	UNROLL_FOR(int k = 0; k < N; k++) {
		if (F::SSM)
			sum[k] = kn_fma(out.skip, x.value[i + k][column], sum[k]);
		if (out.y != NULL)
			out.y[(at + k) * out.row] = sum[k];
	}
	return sum[N - 1];
}

/* Calls f(float of the state, the lane's) for each of a lane's rows that are there. */
template <class F, class G>
__device__ static inline void each_row(const struct heads_call &c, float *state, int part, int column, float (*s)[F::R],
				       const G &f)
{
	UNROLL_FOR(int j = 0; j < F::OWN; j++)
		UNROLL_FOR(int b = 0; b < F::R / 4; b++)
			UNROLL_FOR(int e = 0; e < 4; e++) {
				int row = 4 * (PARTS * b + part + F::LANES * j) + e;
				if (row < c.n && column < c.width)
					f(&state[(int64_t)row * c.width + column], &s[j][4 * b + e]);
			}
}

/* Positions of the next chunk, of those left; 0 or less: none. */
template <class F> __device__ static inline int chunk_of(int left) { return left < F::CHUNK ? left : (int)F::CHUNK; }

template <class F>
__global__ void __launch_bounds__(HEAD_THREADS, F::R > 16 || F::CHUNK > 1 ? 2 : 4) heads(struct heads_call c)
{
	kn_begin();
	struct head_shared<F> *shared = (struct head_shared<F> *)kn_shared();
	struct head_taken<F> taken;
	struct kn_run run = c.runs[blockIdx.z];
	int t = (int)threadIdx.x, lane = t % KN_WARP, part = lane / F::EACH, head = (int)blockIdx.y;
	int mine = t / KN_WARP * F::EACH + lane % F::EACH, column = (int)blockIdx.x * F::COLUMNS + mine;
	float *state = c.states + run.slot * c.state_floats + (int64_t)head * c.n * c.width;
	float s[F::OWN][F::R] = {}, sum = 0;
	struct head_out out = {NULL, (int64_t)c.heads * c.width, F::SSM ? c.d[head] : 0.0f};
	if (part == 0 && column < c.width)
		out.y = c.y + run.row * out.row + (int64_t)head * c.width + column;
	if (run.n_rows == 0)
		return; /* every thread of the block */
	if (c.pos[run.row] != 0)
		each_row<F>(c, state, part, column, s, [](const float *from, float *to) { *to = *from; });
	int n = chunk_of<F>(run.n_rows);
	take<F>(c, run.row, n, head, &taken);
	put<F>(c, n, head, taken, shared);
	kn_barrier();
#pragma unroll 1
	for (int from = 0; from < run.n_rows; from += F::CHUNK, n = chunk_of<F>(run.n_rows - from)) {
		int next = chunk_of<F>(run.n_rows - from - F::CHUNK), buffer = from / F::CHUNK % F::BUFFERS;
		if (next > 0)
			take<F>(c, run.row + from + F::CHUNK, next, head, &taken);
		int i = 0;
#pragma unroll 1
		for (; F::TOGETHER > 1 && i + F::TOGETHER <= n; i += F::TOGETHER)
			sum = advance_some<F, F::TOGETHER>(shared[buffer], i, from + i, part, mine, out, s);
#pragma unroll 1
		for (; i < n; i++)
			sum = advance_some<F, 1>(shared[buffer], i, from + i, part, mine, out, s);
		if (next <= 0)
			break;
		put<F>(c, next, head, taken, &shared[(buffer + 1) % F::BUFFERS]);
		kn_barrier();
	}
	for (int i = run.n_rows; out.y != NULL && i < run.n_rows + run.n_copies; i++)
		out.y[i * out.row] = sum;
	each_row<F>(c, state, part, column, s, [](float *to, const float *from) { *to = *from; });
}

template <class F> static int launch_heads(struct kn_backend *b, const struct heads_call &c)
{
	dim3 grid((unsigned)((c.width + F::COLUMNS - 1) / F::COLUMNS), (unsigned)c.heads, (unsigned)b->n_runs);
	return KN_LAUNCH(b->dev, heads<F>, grid, HEAD_THREADS, F::BUFFERS * sizeof(struct head_shared<F>), c);
}

/* Of a step of single rows, a lane has two parts of a column, so that it reads a state by whole sectors of memory, and
 * one position is a chunk; else one part, because few heads of a long run keep few warps busy. */
template <bool SSM, int R, int CHUNK> static int launch_rows(struct kn_backend *b, const struct heads_call &c)
{
	if (b->n_together == 0)
		return launch_heads<head_form<SSM, R, (R < 64 ? 4 : 8), 1>>(b, c);
	return launch_heads<head_form<SSM, R, 8, CHUNK>>(b, c);
}

template <bool SSM> static int launch_form(struct kn_backend *b, struct heads_call *c, size_t at)
{
	c->states = b->step->states + at;
	c->state_floats = (int64_t)b->step->state_floats;
	c->runs = b->runs;
	c->pos = b->pos;
	return c->n <= 32    ? launch_rows<SSM, 4, 8>(b, *c)
	       : c->n <= 128 ? launch_rows<SSM, 16, 8>(b, *c)
	       : c->n <= 256 ? launch_rows<SSM, 32, 4>(b, *c)
			     : launch_rows<SSM, 64, 2>(b, *c);
}

int kn_cuda_delta(struct kn_backend *b, const struct kn_delta *d, const float *qkv, const float *beta,
		  const float *alpha, int n_rows, float *y)
{
	struct heads_call c = {}; /* padding must be zero in a command */
	int keys = d->k_heads * d->k_dim;
	(void)n_rows;
	c.in = qkv;
	c.first = beta;
	c.second = alpha;
	c.y = y;
	c.a = d->a;
	c.dt = d->dt;
	c.query_factor = 1.0f / sqrtf((float)d->k_dim);
	c.heads = d->v_heads;
	c.key_heads = d->k_heads;
	c.n = d->k_dim;
	c.width = d->v_dim;
	c.in_row = 2 * keys + d->v_heads * d->v_dim;
	c.key_at = keys;
	c.value_at = 2 * keys;
	c.tiled = d->tiled;
	return launch_form<false>(b, &c, d->at);
}

int kn_cuda_ssm(struct kn_backend *b, const struct kn_ssm *s, const float *xbc, const float *step, int n_rows, float *y)
{
	struct heads_call c = {};
	int inner = s->heads * s->head_dim;
	(void)n_rows;
	c.in = xbc;
	c.second = step;
	c.y = y;
	c.a = s->a;
	c.dt = s->dt;
	c.d = s->d;
	c.least = s->least;
	c.most = s->most;
	c.heads = s->heads;
	c.key_heads = s->groups;
	c.n = s->state;
	c.width = s->head_dim;
	c.in_row = inner + 2 * s->groups * s->state;
	c.key_at = inner;
	c.query_at = inner + s->groups * s->state;
	return launch_form<true>(b, &c, s->at);
}

/* ---- states ---- */

int kn_cuda_state_copy(struct kn_backend *b, const float *from, float *to, size_t n)
{
	return dev_copy(b->dev, to, from, n * sizeof *to);
}
