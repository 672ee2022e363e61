/* SPDX-License-Identifier: Apache-2.0
 *
 * The two halves of low-rank adapters, written once over the vectors of simd_matmul.h. A tile's size changes no bit:
 * the order of each sum is fixed (isa.h), and widening is exact.
 *
 *   dots   rows of A times rows of x, LORA_OUT by LORA_ROWS at once. For more rows than that A is widened to floats
 *          before, since widening takes as many operations of the multiply-adds' ports as two of them
 *   add    a sum over the rank for tiles of KN_LORA_TILE adjacent outputs, which are in memory in the order in which
 *          they are read; with few rows several tiles at once, so that their sums do not wait for each other
 *
 * VERSIONS (one thread of a Sapphire Rapids server, AVX-512, rank 16 of three matrices of 2048 × 2048 in bf16; thousand
 * millions of multiply-adds per second by processor time; the peak is about 96)
 *   1  both with 4 rows, nothing widened. 1, 8, 256 rows: dots 31, 54, 55; add 29, 56, 51
 *   2  this: dots with 6 rows and widening. Expected: dots near the peak, from two thirds of it. Measured: 31, 60, 87.
 *      add with 6 rows, or widened, gained nothing (28, 51, 47): at 256 rows it reads and writes 8 bytes of y for 16
 *      multiply-adds, which the L2 cache does not deliver any faster.
 */

enum {
	LORA_ROWS = 6, /* of dots */
	LORA_ADD_ROWS = 4,
	LORA_OUT = LANES / 4,                /* rows of A: as many sums as registers allow */
	LORA_VECTORS = KN_LORA_TILE / LANES, /* of a tile */
	LORA_SUMS = 8,                       /* vectors of sums at once */
};

INLINE vf lora_load(int type, const uint8_t *at)
{
	return type == KN_F32       ? v_load((const void *)at)
	       : type == KN_LORA_I8 ? v_float(v_i8(at))
	       : type == KN_F16     ? v_f16(at)
				    : (vf)(v_u16(at) << 16);
}

static float lora_one(int type, const uint8_t *at)
{
	float v;
	if (type == KN_LORA_I8)
		return *(const int8_t *)at;
	kn_dequantize(type, at, 1, &v);
	return v;
}

/* type, n_a and n_r are constants where this is inlined. */
INLINE void dots_tile(int type, const uint8_t *a, size_t n_in, const float *const *x, int n_a, int n_r, float *const *t)
{
	const size_t bytes = kn_lora_bytes(type);
	vf acc[LORA_ROWS][LORA_OUT] = {0};
	size_t k = 0;
	for (; k + LANES <= n_in; k += LANES) {
		vf w[LORA_OUT];
		UNROLL_FOR(int i = 0; i < n_a; i++)
			w[i] = lora_load(type, a + ((size_t)i * n_in + k) * bytes);
		UNROLL_FOR(int r = 0; r < n_r; r++) {
			vf v = v_load(x[r] + k);
			UNROLL_FOR(int i = 0; i < n_a; i++)
				acc[r][i] = v_fma(w[i], v, acc[r][i]);
		}
	}
	UNROLL_FOR(int r = 0; r < n_r; r++)
		UNROLL_FOR(int i = 0; i < n_a; i++) {
			float sum = v_sum(acc[r][i]);
			for (size_t rest = k; rest < n_in; rest++)
				sum += lora_one(type, a + ((size_t)i * n_in + rest) * bytes) * x[r][rest];
			t[r][i] = sum;
		}
}

/* n floats. */
INLINE void lora_widen(int type, const uint8_t *at, size_t n, float *out)
{
	size_t i = 0;
	for (; i + LANES <= n; i += LANES)
		v_store(out + i, lora_load(type, at + i * kn_lora_bytes(type)));
	for (; i < n; i++)
		out[i] = lora_one(type, at + i * kn_lora_bytes(type));
}

INLINE void dots_rows(int type, const uint8_t *a, size_t n_in, const float *const *x, int n_a, int n_r, float *const *t)
{
	switch (n_r) {
	case 1: dots_tile(type, a, n_in, x, n_a, 1, t); break;
	case 2: dots_tile(type, a, n_in, x, n_a, 2, t); break;
	case 3: dots_tile(type, a, n_in, x, n_a, 3, t); break;
	case 4: dots_tile(type, a, n_in, x, n_a, 4, t); break;
	case 5: dots_tile(type, a, n_in, x, n_a, 5, t); break;
	default: dots_tile(type, a, n_in, x, n_a, LORA_ROWS, t); break;
	}
}

/* Of n_j rows of A; LORA_OUT or 1. */
INLINE void dots_block(int type, const uint8_t *a, int n_j, size_t n_in, const float *x, const int32_t *rows,
		       int n_rows, float *t, size_t t_width)
{
	for (int r = 0; r < n_rows; r += LORA_ROWS) {
		const float *xs[LORA_ROWS];
		float *ts[LORA_ROWS];
		int n = n_rows - r < LORA_ROWS ? n_rows - r : LORA_ROWS;
		for (int i = 0; i < n; i++) {
			xs[i] = x + (size_t)rows[r + i] * n_in;
			ts[i] = t + (size_t)(r + i) * t_width;
		}
		if (n_j == LORA_OUT)
			dots_rows(type, a, n_in, xs, LORA_OUT, n, ts);
		else
			dots_rows(type, a, n_in, xs, 1, n, ts);
	}
}

static void dots_floats(const float *a, int n_j, size_t n_in, const float *x, const int32_t *rows, int n_rows, float *t,
			size_t t_width)
{
	dots_block(KN_F32, (const void *)a, n_j, n_in, x, rows, n_rows, t, t_width);
}

INLINE void dots_all(int type, const uint8_t *a, int n_a, size_t n_in, const float *x, const int32_t *rows, int n_rows,
		     float *t, size_t t_width, float *tile)
{
	const size_t step = n_in * kn_lora_bytes(type);
	for (int j = 0, n_j; j < n_a; j += n_j) {
		const uint8_t *at = a + (size_t)j * step;
		n_j = n_a - j >= LORA_OUT ? LORA_OUT : 1;
		if (type == KN_F32) {
			dots_floats((const void *)at, n_j, n_in, x, rows, n_rows, t + j, t_width);
		} else if (n_rows > LORA_ROWS && tile != NULL) {
			lora_widen(type, at, (size_t)n_j * n_in, tile);
			dots_floats(tile, n_j, n_in, x, rows, n_rows, t + j, t_width);
		} else {
			dots_block(type, at, n_j, n_in, x, rows, n_rows, t + j, t_width);
		}
	}
}

static void lora_dots(int type, const void *a, int n_a, int n_in, const float *x, const int32_t *rows, int n_rows,
		      float *t, int t_width, float *tile)
{
	size_t width = (size_t)n_in, to = (size_t)t_width;
	switch (type) {
	case KN_F32: dots_all(KN_F32, a, n_a, width, x, rows, n_rows, t, to, tile); break;
	case KN_LORA_I8: dots_all(KN_LORA_I8, a, n_a, width, x, rows, n_rows, t, to, tile); break;
	case KN_F16: dots_all(KN_F16, a, n_a, width, x, rows, n_rows, t, to, tile); break;
	default: dots_all(KN_BF16, a, n_a, width, x, rows, n_rows, t, to, tile); break;
	}
}

/* Sums of n_tiles tiles of n_r rows; constants, as type is, where this is inlined. */
INLINE void add_tiles(int type, const struct kn_lora_part *p, int o0, int o1, const float *const *t, int n_tiles,
		      int n_r, float *const *y)
{
	const size_t bytes = kn_lora_bytes(type), tile = (size_t)p->rank * KN_LORA_TILE * bytes;
	const uint8_t *b = (const uint8_t *)p->b + (size_t)(o0 / KN_LORA_TILE) * tile;
	vf acc[LORA_SUMS] = {0};
	for (int j = 0; j < p->rank; j++)
		UNROLL_FOR(int i = 0; i < n_tiles * LORA_VECTORS; i++) {
			size_t at = (size_t)(i % LORA_VECTORS * LANES) + (size_t)j * KN_LORA_TILE;
			vf w = lora_load(type, b + (size_t)(i / LORA_VECTORS) * tile + at * bytes);
			UNROLL_FOR(int r = 0; r < n_r; r++)
				acc[i * n_r + r] = v_fma(v_set(t[r][j]), w, acc[i * n_r + r]);
		}
	UNROLL_FOR(int i = 0; i < n_tiles * LORA_VECTORS; i++)
		UNROLL_FOR(int r = 0; r < n_r; r++) {
			int o = o0 + i * LANES;
			float rest[LANES], *to = y[r] + o;
			if (o + LANES <= o1) {
				v_store(to, v_fma(v_set(p->scale), acc[i * n_r + r], v_load(to)));
				continue;
			}
			v_store(rest, acc[i * n_r + r]);
			for (int k = 0; k < o1 - o; k++)
				to[k] += p->scale * rest[k];
		}
}

/* As many tiles as there are sums for, then one by one. */
INLINE void add_some(int type, const struct kn_lora_part *p, int o0, int o1, const float *const *t, int n_r,
		     float *const *y)
{
	enum { ROW_SUMS = LORA_SUMS / LORA_VECTORS };
	const int many = ROW_SUMS / n_r;
	int o = o0;
	for (; many > 1 && o + many * KN_LORA_TILE <= o1; o += many * KN_LORA_TILE)
		add_tiles(type, p, o, o1, t, many, n_r, y);
	for (; o < o1; o += KN_LORA_TILE)
		add_tiles(type, p, o, o1, t, 1, n_r, y);
}

INLINE void add_all(int type, const struct kn_lora_part *p, int o0, int o1, const float *t, size_t t_width,
		    const int32_t *rows, int n_rows, float *y, size_t width)
{
	for (int r = 0; r < n_rows; r += LORA_ADD_ROWS) {
		const float *ts[LORA_ADD_ROWS];
		float *ys[LORA_ADD_ROWS];
		int n = n_rows - r < LORA_ADD_ROWS ? n_rows - r : LORA_ADD_ROWS;
		for (int i = 0; i < n; i++) {
			ts[i] = t + (size_t)(r + i) * t_width;
			ys[i] = y + (size_t)rows[r + i] * width;
		}
		switch (n) {
		case 1: add_some(type, p, o0, o1, ts, 1, ys); break;
		case 2: add_some(type, p, o0, o1, ts, 2, ys); break;
		case 3: add_some(type, p, o0, o1, ts, 3, ys); break;
		default: add_some(type, p, o0, o1, ts, LORA_ADD_ROWS, ys); break;
		}
	}
}

static void lora_add(int type, const struct kn_lora_part *p, int o0, int o1, const float *t, int t_width,
		     const int32_t *rows, int n_rows, float *y, int width)
{
	size_t from = (size_t)t_width, to = (size_t)width;
	switch (type) {
	case KN_F32: add_all(KN_F32, p, o0, o1, t, from, rows, n_rows, y, to); break;
	case KN_LORA_I8: add_all(KN_LORA_I8, p, o0, o1, t, from, rows, n_rows, y, to); break;
	case KN_F16: add_all(KN_F16, p, o0, o1, t, from, rows, n_rows, y, to); break;
	default: add_all(KN_BF16, p, o0, o1, t, from, rows, n_rows, y, to); break;
	}
}
