/* SPDX-License-Identifier: Apache-2.0
 *
 * The product of interleaved weights with 8-bit activations (int8.h), written once for all vector instruction sets. The
 * file of an instruction set includes this after defining what simd_unpack.h and simd_quantize.h need, and
 *
 *   INT8                         the name of a function of the set: INT8(pack), INT8(matmul)
 *   TILE_ROWS                    rows of the inner tile, which has 2·LANES outputs
 *   AHEAD                        prefetch distance, in bytes of weights, for few rows without a panel
 *   struct sums; sums_begin sums_dot sums_end    Σ of products of small unsigned weights (below 64, at
 *                                most 32 along K) as int32, exact
 *   wide_begin wide_dot          the same for 8-bit weights, directly in int32
 *   WIDE_MASKED                  defined if panels do this another way: masked_of masked_begin masked_dot
 *
 * Adding a constant makes weights unsigned. The initial values of the sums compensate for it: -16 · Σ q of the
 * activations, for example, which is exact even if intermediate sums wrap.
 *
 * The order is the same for every element, whatever else is in its tile: block after block from the left,
 *
 *   y = fma(float(Σ q_w·q_x), scale · d, y), and with an offset: y = fma(offset, d · Σ q_x, y)
 *
 * Between chunks along K the accumulators are stored in y, which changes no bit. Few rows: a panel of FEW_CHUNK weights
 * of one tile stays in the L1 cache. More rows: all of them use a panel of MANY_CHUNK weights, of as many tiles as fit
 * in half an L2 cache.
 */
#include "kernels/cpu/simd_unpack.h"

#include "kernels/cpu/simd_quantize.h"

enum {
	VECTORS = 2, /* of outputs in a tile */
	TILE_GROUPS = VECTORS * LANES / INT8_OUT,
	FEW_ROWS = 16,
	FEW_CHUNK = 512,
	MANY_CHUNK = 2048,
	MAX_TILES = 16,
};

/* ---- activations ---- */

void INT8(pack)(int type, const float *x, int n_rows, int n_in, int part, int n_parts, void *packed)
{
	struct int8_block *out = packed;
	int n_blocks = n_rows * (n_in / INT8_BLOCK);
	int from = (int)((int64_t)n_blocks * part / n_parts), to = (int)((int64_t)n_blocks * (part + 1) / n_parts);
	(void)type;
	for (int b = from; b < to; b++)
		quantize_block(x + (size_t)b * INT8_BLOCK, out + b);
}

/* ---- products ---- */

/* Address of a tile's vector i of outputs, in the same group or the next one. */
INLINE const uint8_t *vector_at(const uint8_t *panel, size_t group_bytes, int i)
{
	return panel + (size_t)(i * LANES / INT8_OUT) * group_bytes + i * LANES % INT8_OUT * 4;
}

/* Where float16s of a tile's outputs begin, of vector i. */
INLINE const uint8_t *halves_at(const uint8_t *at, size_t group_bytes, int i)
{
	return at + (size_t)(i * LANES / INT8_OUT) * group_bytes + i * LANES % INT8_OUT * 2;
}

INLINE vf scale_at(enum kind kind, const uint8_t *scales, size_t group_bytes, int i)
{
	if (kind == PLAIN)
		return v_f16(halves_at(scales, group_bytes, i));
	return v_load((const float *)(const void *)vector_at(scales, group_bytes, i));
}

/* Weights to read later. They are prefetched evenly while others are multiplied, so that memory is never idle: one
 * stream per group of a tile, `each` bytes per block of 32. At the block `turn` (-1: never) a stream reaches the end of
 * its group, and goes on `skip` bytes later, in the next tile. */
struct ahead {
	const uint8_t *at[TILE_GROUPS];
	size_t each, skip;
	int turn;
};

enum { LINE = 64 };

/* Prefetches the next share of a stream. It may extend past the matrix: such prefetches have no effect. */
INLINE const uint8_t *bring(const uint8_t *at, const uint8_t *to)
{
	for (; at < to; at += LINE)
		__builtin_prefetch(at);
	return at;
}

/* The sums of a block of a tile, or of half a block (p) of a fine one. */
INLINE void sum_words(const uint8_t *weights, size_t group_bytes, const struct int8_block *x, size_t x_step,
		      enum kind kind, int p, int words, int n_r, struct sums s[][VECTORS])
{
	const bool is_wide = kind == WIDE || kind == PLAIN;
	UNROLL_FOR(int r = 0; r < n_r; r++)
		UNROLL_FOR(int i = 0; i < VECTORS; i++)
			s[r][i] = is_wide ? wide_begin(&x[(size_t)r * x_step])
					  : sums_begin(&x[(size_t)r * x_step].begin[kind == FINE ? 2 + p : 0]);
	UNROLL_FOR(int k = 0; k < words; k++) {
		vb w[VECTORS];
		UNROLL_FOR(int i = 0; i < VECTORS; i++)
			w[i] = b_load(vector_at(weights + k * WORD, group_bytes, i)) +
			       (uint8_t)(kind == PLAIN ? BIAS_WIDE : 0);
		UNROLL_FOR(int r = 0; r < n_r; r++) {
			vb xr = b_word(x[(size_t)r * x_step].q + 4 * (p * words + k));
			UNROLL_FOR(int i = 0; i < VECTORS; i++)
				s[r][i] = is_wide ? wide_dot(s[r][i], w[i], xr) : sums_dot(s[r][i], w[i], xr);
		}
	}
}

/* The same for a block of a wide panel, with signs as masks. */
INLINE void sum_masked(const uint8_t *weights, const uint8_t *less, size_t group_bytes, const struct int8_block *x,
		       size_t x_step, int n_r, struct sums s[][VECTORS])
{
#ifdef WIDE_MASKED
	UNROLL_FOR(int r = 0; r < n_r; r++)
		UNROLL_FOR(int i = 0; i < VECTORS; i++)
			s[r][i] = masked_begin(vector_at(less, group_bytes, i));
	UNROLL_FOR(int k = 0; k < 8; k++) {
		struct masked w[VECTORS];
		UNROLL_FOR(int i = 0; i < VECTORS; i++)
			w[i] = masked_of(b_load(vector_at(weights + k * WORD, group_bytes, i)));
		UNROLL_FOR(int r = 0; r < n_r; r++) {
			vb xr = b_word(x[(size_t)r * x_step].q + 4 * k);
			UNROLL_FOR(int i = 0; i < VECTORS; i++)
				s[r][i] = masked_dot(s[r][i], w[i], xr);
		}
	}
#else
	(void)weights, (void)less, (void)group_bytes, (void)x, (void)x_step, (void)n_r, (void)s;
#endif
}

/* Blocks of 32 of a tile with n_r rows. All but pointers, steps and n_blocks are constants where this is
 * inlined. y has rows y_step apart, x x_step. */
INLINE void multiply_n(const uint8_t *panel, size_t group_bytes, const struct int8_block *x, size_t x_step,
		       int n_blocks, float *y, size_t y_step, const struct ahead *ahead, enum kind kind,
		       bool has_offset, int n_r)
{
	const uint8_t *near[TILE_GROUPS];
	size_t brought = 0;
	memcpy(near, ahead->at, sizeof near);
	vf acc[TILE_ROWS][VECTORS];
	UNROLL_FOR(int r = 0; r < n_r; r++)
		UNROLL_FOR(int i = 0; i < VECTORS; i++)
			acc[r][i] = v_load(y + (size_t)r * y_step + i * LANES);
	const int parts = kind == FINE ? 2 : 1, words = 8 / parts;
	const bool is_wide = kind == WIDE || kind == PLAIN;
	for (int b = 0; b < n_blocks; b++, x++) {
		if (b == ahead->turn) {
			brought += ahead->skip;
			UNROLL_FOR(int g = 0; g < TILE_GROUPS; g++)
				near[g] += ahead->skip;
		}
		brought += ahead->each;
		UNROLL_FOR(int g = 0; g < TILE_GROUPS; g++)
			near[g] = bring(near[g], ahead->at[g] + brought);
		UNROLL_FOR(int p = 0; p < parts; p++, panel += panel_block(kind)) {
			const uint8_t *weights = panel + (kind == PLAIN ? HALVES : 0);
			const uint8_t *scales = kind == PLAIN ? panel : panel + words * WORD;
			struct sums s[TILE_ROWS][VECTORS];
			if (kind == WIDE && HAS_MASKED)
				sum_masked(weights, scales + SCALES, group_bytes, x, x_step, n_r, s);
			else
				sum_words(weights, group_bytes, x, x_step, kind, p, words, n_r, s);
			UNROLL_FOR(int r = 0; r < n_r; r++) {
				const struct int8_block *xr = x + (size_t)r * x_step;
				vf d = v_set(xr->d);
				UNROLL_FOR(int i = 0; i < VECTORS; i++) {
					vf sum = v_float(is_wide ? wide_end(s[r][i]) : sums_end(s[r][i]));
					acc[r][i] = v_fma(sum, scale_at(kind, scales, group_bytes, i) * d, acc[r][i]);
				}
				if (!has_offset)
					continue;
				vf total = v_set(kind == FINE ? xr->halves[p] : xr->sum);
				UNROLL_FOR(int i = 0; i < VECTORS; i++)
					acc[r][i] =
					    v_fma(scale_at(kind, scales + SCALES, group_bytes, i), total, acc[r][i]);
			}
		}
	}
	UNROLL_FOR(int r = 0; r < n_r; r++)
		UNROLL_FOR(int i = 0; i < VECTORS; i++)
			v_store(y + (size_t)r * y_step + i * LANES, acc[r][i]);
}

typedef void multiply_fn(const uint8_t *panel, size_t group_bytes, const struct int8_block *x, size_t x_step,
			 int n_blocks, float *y, size_t y_step, const struct ahead *ahead, int n_r);

#define CASE(n, most, of, ...)                                                                  \
	case n:                                                                                 \
		if ((n) <= (most))                                                              \
			of(at, group_bytes, x, x_step, n_blocks, y, y_step, ahead, __VA_ARGS__, \
			   (n) < (most) ? (n) : (most));                                        \
		break;
/* A multiply_fn that calls `of` with constants, for at most that many rows. */
#define BY_ROWS(name, most, of, ...)                                                                       \
	static void name(const uint8_t *at, size_t group_bytes, const struct int8_block *x, size_t x_step, \
			 int n_blocks, float *y, size_t y_step, const struct ahead *ahead, int n_r)        \
	{                                                                                                  \
		switch (n_r) {                                                                             \
			CASE(1, most, of, __VA_ARGS__)                                                     \
			CASE(2, most, of, __VA_ARGS__)                                                     \
			CASE(3, most, of, __VA_ARGS__)                                                     \
			CASE(4, most, of, __VA_ARGS__)                                                     \
			CASE(5, most, of, __VA_ARGS__)                                                     \
			CASE(6, most, of, __VA_ARGS__)                                                     \
		default: BUG_IF(true, "a tile of %d rows", n_r);                                           \
		}                                                                                          \
	}

BY_ROWS(multiply_narrow, TILE_ROWS, multiply_n, NARROW, false)
BY_ROWS(multiply_narrow_offset, TILE_ROWS, multiply_n, NARROW, true)
BY_ROWS(multiply_fine, TILE_ROWS, multiply_n, FINE, false)
BY_ROWS(multiply_fine_offset, TILE_ROWS, multiply_n, FINE, true)
BY_ROWS(multiply_wide, TILE_ROWS, multiply_n, WIDE, false)
BY_ROWS(multiply_plain, TILE_ROWS, multiply_n, PLAIN, false)

static multiply_fn *multiply_of(enum kind kind, const struct type *t)
{
	switch (kind) {
	case NARROW: return t->has_offset ? multiply_narrow_offset : multiply_narrow;
	case FINE: return t->has_offset ? multiply_fine_offset : multiply_fine;
	case PLAIN: return multiply_plain;
	default: return multiply_wide;
	}
}

#include "kernels/cpu/simd_nibbles.h"

struct job {
	const struct kn_weight *w;
	const struct type *type;
	enum kind kind; /* the type's, or plain */
	multiply_fn *multiply;
	size_t row_bytes;   /* of the file */
	int chunk;          /* weights along K of a panel */
	size_t chunk_bytes; /* of so many weights of a group */
	size_t group_bytes; /* of a panel's group */
	const struct int8_block *x;
	size_t n_blocks; /* of a row of x */
	int n_rows;
	float *y;
};

INLINE int at_most(int n, int most) { return n < most ? n : most; }

/* A group's weights from k on; k is a multiple of the chunk. */
INLINE const uint8_t *weights_at(const struct job *j, int group, int k)
{
	return (const uint8_t *)j->w->data + (size_t)group * j->row_bytes * INT8_OUT +
	       (size_t)(k / j->chunk) * j->chunk_bytes;
}

/* Unpacks n weights of a tile's groups, from k on, into its panel. */
static void fill(const struct job *j, int group, int n_groups, int k, int n, uint8_t *panel)
{
	for (int g = 0; g < n_groups; g++)
		j->type->unpack(weights_at(j, group + g, k), n, panel + (size_t)g * j->group_bytes);
}

/* Multiplies a tile with all rows, from k on. Outputs past the end are computed in scratch memory and dropped. */
static void multiply_tile(const struct job *j, int o, int o1, int k, int n, const uint8_t *panel,
			  const struct ahead *ahead, int r, int n_r)
{
	enum { OUTPUTS = VECTORS * LANES };
	float aside[TILE_ROWS * OUTPUTS];
	size_t n_out = (size_t)j->w->n_out, n_o = (size_t)at_most(o1 - o, OUTPUTS);
	float *y = j->y + (size_t)r * n_out + (size_t)o;
	const struct int8_block *x = j->x + (size_t)r * j->n_blocks + (size_t)(k / INT8_BLOCK);
	if (k == 0)
		for (int i = 0; i < n_r; i++)
			memset(y + (size_t)i * n_out, 0, n_o * sizeof *y);
	if (n_o == OUTPUTS) {
		j->multiply(panel, j->group_bytes, x, j->n_blocks, n / INT8_BLOCK, y, n_out, ahead, n_r);
		return;
	}
	memset(aside, 0, sizeof aside);
	for (int i = 0; i < n_r; i++)
		memcpy(aside + i * OUTPUTS, y + (size_t)i * n_out, n_o * sizeof *y);
	j->multiply(panel, j->group_bytes, x, j->n_blocks, n / INT8_BLOCK, aside, OUTPUTS, ahead, n_r);
	for (int i = 0; i < n_r; i++)
		memcpy(y + (size_t)i * n_out, aside + i * OUTPUTS, n_o * sizeof *y);
}

/* Multiplies a tile's panel with few rows. Memory is the limit then, so the tile's next chunk along K (after the last
 * one, the next tile's first) is prefetched meanwhile. */
static void multiply_few(const struct job *j, int o, int o1, int k, int n, size_t each, const uint8_t *panel)
{
	bool last = k + n >= j->w->n_in;
	const int group = (last ? o + VECTORS * LANES : o) / INT8_OUT, next_k = last ? 0 : k + n;
	struct ahead ahead = {.each = each, .turn = -1};
	/* Passes of equal size: otherwise the last one would unpack weights for few rows. */
	const int n_passes = (j->n_rows + TILE_ROWS - 1) / TILE_ROWS;
	for (int r = 0, pass = 0; pass < n_passes; pass++) {
		const int n_r = (j->n_rows - r + n_passes - pass - 1) / (n_passes - pass);
		for (int g = 0; g < TILE_GROUPS; g++)
			ahead.at[g] = weights_at(j, group + g, next_k) + (size_t)(pass * (n / INT8_BLOCK)) * each;
		multiply_tile(j, o, o1, k, n, panel, &ahead, r, n_r);
		r += n_r;
	}
}

/* Distance between the weights of a tile's two groups, without a panel. If the last tile has only one group, it is used
 * twice and the second result is dropped. */
INLINE size_t group_step(const struct job *j, int o, int o1)
{
	return o + (TILE_GROUPS - 1) * INT8_OUT < o1 ? j->row_bytes * INT8_OUT : 0;
}

/* Multiplies at most a tile's rows with weights that need no panel, over all of K at once. */
static void multiply_at_once(const struct job *j, int o0, int o1)
{
	const size_t group = j->row_bytes * INT8_OUT, each = group / j->n_blocks;
	const int step = kn_type_block(j->w->type & ~KN_INTERLEAVED) / INT8_BLOCK, n = (int)j->n_blocks;
	const int blocks = at_most(((int)(AHEAD / each) + step) / step * step, n);
	struct job tile = *j;
	for (int o = o0; o < o1; o += VECTORS * LANES) {
		const uint8_t *weights = weights_at(j, o / INT8_OUT, 0);
		struct ahead ahead = {.each = each, .skip = (TILE_GROUPS - 1) * group, .turn = n - blocks};
		tile.group_bytes = group_step(j, o, o1);
		for (int g = 0; g < TILE_GROUPS; g++)
			ahead.at[g] = weights + (size_t)g * tile.group_bytes + (size_t)blocks * each;
		multiply_tile(&tile, o, o1, 0, j->w->n_in, weights, &ahead, 0, j->n_rows);
	}
}

/* Multiplies panels of `used` tiles with many rows. */
static void multiply_many(const struct job *j, int o, int o1, int k, int n, int used, const uint8_t *panels)
{
	const struct ahead none = {.each = 0, .turn = -1};
	for (int r = 0; r < j->n_rows; r += TILE_ROWS)
		for (int t = 0; t < used; t++)
			multiply_tile(j, o + t * VECTORS * LANES, o1, k, n,
				      panels + (size_t)t * TILE_GROUPS * j->group_bytes, &none, r,
				      at_most(j->n_rows - r, TILE_ROWS));
}

void INT8(matmul)(const struct kn_weight *w, int o0, int o1, const void *packed, int n_rows, float *y, float *tile,
		  size_t tile_floats)
{
	enum { OUTPUTS = VECTORS * LANES };
	const struct type *type = &types[w->type & ~KN_INTERLEAVED];
	bool few = n_rows <= FEW_ROWS, plain = few && (w->type & ~KN_INTERLEAVED) == KN_Q8_0;
	int chunk = at_most(w->n_in, few ? FEW_CHUNK : MANY_CHUNK), n_tiles = 1;
	struct job j = {.w = w,
			.type = type,
			.kind = plain ? PLAIN : type->kind,
			.chunk = chunk,
			.x = packed,
			.n_rows = n_rows,
			.y = y};
	j.multiply = multiply_of(j.kind, type);
	j.row_bytes = kn_row_bytes(w->type & ~KN_INTERLEAVED, (size_t)w->n_in);
	j.chunk_bytes = kn_row_bytes(w->type & ~KN_INTERLEAVED, (size_t)chunk) * INT8_OUT;
	j.n_blocks = (size_t)w->n_in / INT8_BLOCK;
	multiply_fn *direct = plain && n_rows <= TILE_ROWS ? j.multiply : direct_of(w->type & ~KN_INTERLEAVED, n_rows);
	if (direct != NULL) {
		j.multiply = direct;
		multiply_at_once(&j, o0, o1);
		return;
	}
	/* Prefetches per pass over a block of 32. */
	size_t n_passes = ((size_t)n_rows + TILE_ROWS - 1) / TILE_ROWS,
	       each = j.chunk_bytes / (n_passes * (size_t)(chunk / INT8_BLOCK)) + 1;
	j.group_bytes = panel_bytes(j.kind, chunk);
	size_t tile_bytes = TILE_GROUPS * j.group_bytes, fit = tile_floats * sizeof *tile / tile_bytes;
	BUG_IF(fit < 1, "a tile of %zu bytes, there is room for %zu", tile_bytes, tile_floats * sizeof *tile);
	if (!few)
		n_tiles = fit < MAX_TILES ? (int)fit : MAX_TILES;
	for (int o = o0; o < o1; o += n_tiles * OUTPUTS) {
		int used = at_most((o1 - o + OUTPUTS - 1) / OUTPUTS, n_tiles);
		for (int k = 0; k < w->n_in; k += chunk) {
			int n = at_most(w->n_in - k, chunk);
			uint8_t *panel = (uint8_t *)tile;
			if (plain)
				j.group_bytes = group_step(&j, o, o1);
			for (int t = 0; t < used && !plain; t++) {
				int from = o + t * OUTPUTS,
				    n_groups = at_most((o1 - from + INT8_OUT - 1) / INT8_OUT, TILE_GROUPS);
				fill(&j, from / INT8_OUT, n_groups, k, n, panel + (size_t)t * tile_bytes);
			}
			if (few)
				multiply_few(&j, o, o1, k, n, each, plain ? weights_at(&j, o / INT8_OUT, k) : panel);
			else
				multiply_many(&j, o, o1, k, n, used, panel);
		}
	}
}
