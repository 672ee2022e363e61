/* SPDX-License-Identifier: Apache-2.0
 *
 * The product of a weight matrix with rows of float32 activations, written once for all instruction sets and types. An
 * instruction set's file includes this after defining
 *
 *   LANES, TILE_OUT, TILE_ROWS   floats in a vector; outputs and rows of the inner tile
 *   vf, vi                       a vector of floats, and of int32
 *   v_load v_store v_set v_fma   of floats, at any address
 *   v_sums                       the lanes of TILE_OUT vectors, each added pairwise, halves first
 *   v_u8 v_i8 v_u16              LANES bytes or halves, widened to int32
 *   v_f16                        LANES float16 to float32
 *   v_float                      int32 to float32
 *   v_bits16                     16 in lane l where bit l is set, else 0
 *   struct map, map_affine, map_at       q → scale · (q & mask) + offset, mask < 16
 *   map_centred                          q → scale · ((q & mask) - middle)
 *   struct lookup, lookup_of, lookup_at  q → d · values[q], q < 16
 *
 * Weights are first decoded to float32 into a tile, with the vectors of TILE_OUT outputs interleaved. This costs one
 * store and one load per vector, on ports that the arithmetic leaves free; the inner loop then needs no types and reads
 * one stream.
 *
 *   few rows    a tile of FEW_CHUNK weights of TILE_OUT outputs stays in the L1 cache and serves all rows,
 *               while the same chunk of the next outputs is prefetched;
 *   more rows   a panel of up to MAX_TILES tiles over the whole of K is decoded once for all rows and
 *               stays in the L2 cache; TILE_ROWS rows by CHUNK of x stay in the L1 cache.
 *
 * Between chunks the accumulators are stored in memory as whole vectors, which changes no bit: every output has isa.h's
 * order, either way and for any number of rows.
 *
 * VERSIONS (one thread of a Sapphire Rapids server at 16 GB/s; AVX-512 unless noted)
 *   1  weights decoded in registers within a tile of 4 × 4 (AVX2 2 × 4), again for every 4 rows. 512 rows: 12 to 14 %
 *      of the peak, with the accumulators in an array in memory (see UNROLL_FOR).
 *   2  this. Expected: prefill near the peak of the multiply-adds for every type, since 24 of them need 10 loads (AVX2:
 *      12 and 8), and all rows share the decoding.
 *      Measured, 2048 × 2048 by 512 rows: 66 to 71 % of the peak for every type (AVX2 72 to 79 %). The inner loop alone
 *      reaches 88 % on a CHUNK and 93 % on two, in the L1 cache; panels from the L2 cache cost 8, activations from the
 *      L3 cache 8, adding lanes 3. Prefetching activations gained nothing; panels of 64 outputs instead of 32 saved 10
 *      % of the time.
 *      One row: F32, F16 and BF16 reach 90 % of the bandwidth, Q8_0 60, 4-bit types 45: the cost is widening to
 *      float32. FEW_CHUNK of 256 instead of 512 gained 15 % on F16: decoding, which waits for memory, then overlaps
 *      with multiplying, which does not. Prefetching the next outputs gained 40 % on 4-bit types.
 */

enum {
	STEP = TILE_OUT * LANES,
	CHUNK = 512, /* both a multiple of every block */
	FEW_CHUNK = 256,
	MAX_TILES = 16,
	FEW_ROWS = 2 * TILE_ROWS,
	AHEAD = 512, /* prefetch distance, in floats of a tile */
};

/* Without it, gcc at -O2 keeps a tile's accumulators in an array in memory instead of registers. */

#include "kernels/cpu/simd_decode.h"

struct job {
	const struct kn_weight *w;
	void (*decode)(const uint8_t *at, size_t n, float *out);
	size_t block, block_bytes, row_bytes;
};

/* Decodes n weights from k on (a multiple of the block) of n_o outputs from o on into a tile. Outputs missing from the
 * last tile keep stale data; results computed from it are never read. */
static void fill(const struct job *j, int o, int n_o, size_t k, size_t n, float *tile)
{
	const uint8_t *at = (const uint8_t *)j->w->data + (size_t)o * j->row_bytes + k / j->block * j->block_bytes;
	size_t bytes = (n + j->block - 1) / j->block * j->block_bytes, later = j->row_bytes * TILE_OUT;
	for (int i = 0; i < n_o; i++, at += j->row_bytes) {
		for (size_t b = 0; b < bytes; b += 64)
			__builtin_prefetch(at + later + b);
		j->decode(at, n, tile + i * LANES);
	}
}

typedef vf accumulators[TILE_ROWS][TILE_OUT];

/* n_r is a constant where this is inlined. */
INLINE void multiply_rows(const float *tile, const float *x, size_t x_stride, size_t n_vectors, int n_r,
			  accumulators acc)
{
	vf a[TILE_ROWS][TILE_OUT];
	UNROLL_FOR(int r = 0; r < n_r; r++)
		UNROLL_FOR(int i = 0; i < TILE_OUT; i++)
			a[r][i] = acc[r][i];
	for (size_t v = 0; v < n_vectors; v++, tile += STEP, x += LANES) {
		vf w[TILE_OUT];
		UNROLL_FOR(int i = 0; n_r == TILE_ROWS && i < STEP; i += 16)
			__builtin_prefetch(tile + AHEAD + i);
		UNROLL_FOR(int i = 0; i < TILE_OUT; i++)
			w[i] = v_load(tile + i * LANES);
		UNROLL_FOR(int r = 0; r < n_r; r++) {
			vf xr = v_load(x + (size_t)r * x_stride);
			UNROLL_FOR(int i = 0; i < TILE_OUT; i++)
				a[r][i] = v_fma(w[i], xr, a[r][i]);
		}
	}
	UNROLL_FOR(int r = 0; r < n_r; r++)
		UNROLL_FOR(int i = 0; i < TILE_OUT; i++)
			acc[r][i] = a[r][i];
}

static void multiply(const float *tile, const float *x, size_t x_stride, size_t n_vectors, int n_r, accumulators acc)
{
	switch (n_r) {
	case 1: multiply_rows(tile, x, x_stride, n_vectors, 1, acc); break;
	case 2: multiply_rows(tile, x, x_stride, n_vectors, 2, acc); break;
	case 3: multiply_rows(tile, x, x_stride, n_vectors, 3, acc); break;
	case 4: multiply_rows(tile, x, x_stride, n_vectors, 4, acc); break;
	case 5: multiply_rows(tile, x, x_stride, n_vectors, 5, acc); break;
	default: multiply_rows(tile, x, x_stride, n_vectors, 6, acc); break;
	}
}

/* Adds up the lanes and the rest of the rows past the last whole vector: n_rest weights of each output at `tile`,
 * activations at x. */
static void finish(accumulators acc, int n_o, int n_r, const float *tile, const float *x, size_t x_stride, int n_rest,
		   float *y, size_t y_stride)
{
	for (int r = 0; r < n_r; r++) {
		float sums[TILE_OUT];
		v_sums(acc[r], sums);
		for (int k = 0; k < n_rest; k++)
			for (int i = 0; i < TILE_OUT; i++)
				sums[i] =
				    __builtin_fmaf(tile[i * LANES + k], x[(size_t)r * x_stride + (size_t)k], sums[i]);
		if (n_o == TILE_OUT)
			memcpy(y + (size_t)r * y_stride, sums, sizeof sums);
		else
			memcpy(y + (size_t)r * y_stride, sums, (size_t)n_o * sizeof *sums);
	}
}

static inline int at_most(int n, int most) { return n < most ? n : most; }

/* The floats of a tile of n weights per output. */
static inline size_t tile_size(size_t n) { return (n + LANES - 1) / LANES * STEP; }

static void matmul_few(const struct job *j, int o0, int o1, const float *x, int n_rows, float *y, float *tile)
{
	size_t n_in = (size_t)j->w->n_in, n_out = (size_t)j->w->n_out, whole = n_in / LANES * LANES;
	for (int o = o0; o < o1; o += TILE_OUT) {
		accumulators acc[FEW_ROWS / TILE_ROWS] = {0};
		int n_o = at_most(o1 - o, TILE_OUT);
		size_t last = 0; /* start of the tile that is complete at the end */
		for (size_t k = 0; k < n_in; k += FEW_CHUNK) {
			size_t n = n_in - k < FEW_CHUNK ? n_in - k : FEW_CHUNK;
			fill(j, o, n_o, k, n, tile);
			for (int r = 0; r < n_rows; r += TILE_ROWS)
				multiply(tile, x + (size_t)r * n_in + k, n_in, n / LANES,
					 at_most(n_rows - r, TILE_ROWS), acc[r / TILE_ROWS]);
			last = k;
		}
		for (int r = 0; r < n_rows; r += TILE_ROWS)
			finish(acc[r / TILE_ROWS], n_o, at_most(n_rows - r, TILE_ROWS),
			       tile + (whole - last) * TILE_OUT, x + (size_t)r * n_in + whole, n_in,
			       (int)(n_in - whole), y + (size_t)r * n_out + (size_t)o, n_out);
	}
}

static void matmul_many(const struct job *j, int o0, int o1, const float *x, int n_rows, float *y, float *panel,
			size_t panel_floats)
{
	size_t n_in = (size_t)j->w->n_in, n_out = (size_t)j->w->n_out, whole = n_in / LANES * LANES;
	size_t fit = panel_floats / tile_size(n_in);
	int n_tiles = fit < MAX_TILES ? (int)fit : MAX_TILES;
	for (int o = o0; o < o1; o += n_tiles * TILE_OUT) {
		int used = at_most((o1 - o + TILE_OUT - 1) / TILE_OUT, n_tiles);
		float *at = panel;
		for (size_t k = 0; k < n_in; k += CHUNK)
			for (int t = 0; t < used; t++) {
				size_t n = n_in - k < CHUNK ? n_in - k : CHUNK;
				fill(j, o + t * TILE_OUT, at_most(o1 - o - t * TILE_OUT, TILE_OUT), k, n, at);
				at += tile_size(n);
			}
		for (int r = 0; r < n_rows; r += TILE_ROWS) {
			accumulators acc[MAX_TILES];
			int n_r = at_most(n_rows - r, TILE_ROWS);
			const float *xr = x + (size_t)r * n_in, *tile = panel, *rest = NULL;
			memset(acc, 0, (size_t)used * sizeof *acc);
			for (size_t k = 0; k < n_in; k += CHUNK) {
				size_t n = n_in - k < CHUNK ? n_in - k : CHUNK;
				rest = tile + n / LANES * STEP;
				for (int t = 0; t < used; t++, tile += tile_size(n))
					multiply(tile, xr + k, n_in, n / LANES, n_r, acc[t]);
			}
			for (int t = 0; t < used; t++)
				finish(acc[t], at_most(o1 - o - t * TILE_OUT, TILE_OUT), n_r,
				       rest + (size_t)t * tile_size((n_in - 1) % CHUNK + 1), xr + whole, n_in,
				       (int)(n_in - whole), y + (size_t)r * n_out + (size_t)(o + t * TILE_OUT), n_out);
		}
	}
}

static void matmul(const struct kn_weight *w, int o0, int o1, const float *x, int n_rows, float *y, float *tile,
		   size_t tile_floats)
{
	struct job j = {.w = w, .decode = decoders[w->type]};
	j.block = (size_t)kn_type_block(w->type);
	j.block_bytes = kn_type_block_bytes(w->type);
	j.row_bytes = kn_row_bytes(w->type, (size_t)w->n_in);
	if (n_rows <= FEW_ROWS)
		matmul_few(&j, o0, o1, x, n_rows, y, tile);
	else
		matmul_many(&j, o0, o1, x, n_rows, y, tile, tile_floats);
}

/* Lanes, then the remainder: isa.h's order. */
static float sum_squares(const float *x, int n)
{
	vf acc = v_set(0);
	int i = 0;
	for (; i + LANES <= n; i += LANES)
		acc = v_fma(v_load(x + i), v_load(x + i), acc);
	float sum = v_sum(acc);
	for (; i < n; i++)
		sum = __builtin_fmaf(x[i], x[i], sum);
	return sum;
}

/* Members of every instruction set's table. */
#include "kernels/cpu/simd_lora.h"

#define LOOPS                                                                                                       \
	.lora_dots = lora_dots, .lora_add = lora_add, .matmul = matmul, .sum_squares = sum_squares, .delta = delta, \
	.ssm = ssm, ATTENTION
