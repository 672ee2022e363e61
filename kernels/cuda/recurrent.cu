/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers that keep a state. A step's rows of one sequence are a run (kn_run). Rows that pad a step get the outputs of
 * the row that they are copies of, since they write to its pages; they must not move its state on.
 *
 * A convolution's outputs depend on inputs only, so a run is divided: a block has up to KN_ITEM_ROWS rows of 128
 * channels, a thread a channel, whose last inputs are in registers. The block with a run's first rows reads the old
 * state and writes the new one, so no two blocks touch a state.
 *
 * VERSIONS
 *  1  this. Counted for a decode of LFM2 1.2B (2048 channels, 3 taps, gated): 20 kB in and 16 kB out a row; the loads
 * of
 *     a thread are on their way together, two waits for memory. Not measured on a device.
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

/* ---- states ---- */

int kn_cuda_state_copy(struct kn_backend *b, const float *from, float *to, size_t n)
{
	return dev_copy(b->dev, to, from, n * sizeof *to);
}
