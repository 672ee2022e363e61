/* SPDX-License-Identifier: Apache-2.0
 *
 * The two halves of low-rank adapters, written once over the vectors of simd_matmul.h. A tile's size changes no bit:
 * the order of each sum is fixed (isa.h).
 *
 *   dots   rows of A times rows of x: each vector of A is widened once for up to LORA_ROWS rows of x
 *   add    a sum over the rank for tiles of KN_LORA_TILE adjacent outputs, which are in memory in the order in which
 *          they are read; with few rows several tiles at once, so that their sums do not wait for each other
 */

enum {
	LORA_ROWS = 4,
	LORA_OUT = LANES / 4,                /* rows of A: as many sums as registers allow */
	LORA_VECTORS = KN_LORA_TILE / LANES, /* of a tile */
	LORA_SUMS = 8,                       /* vectors of sums at once */
};

INLINE vf lora_load(int type, const uint8_t *at)
{
	return type == KN_F32 ? v_load((const void *)at) : type == KN_F16 ? v_f16(at) : (vf)(v_u16(at) << 16);
}

INLINE size_t lora_bytes(int type) { return type == KN_F32 ? 4 : 2; }

static float lora_one(int type, const uint8_t *at)
{
	float v;
	kn_dequantize(type, at, 1, &v);
	return v;
}

/* type, n_a and n_r are constants where this is inlined. */
INLINE void dots_tile(int type, const uint8_t *a, size_t n_in, const float *const *x, int n_a, int n_r, float *const *t)
{
	const size_t bytes = lora_bytes(type);
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

INLINE void dots_rows(int type, const uint8_t *a, size_t n_in, const float *const *x, int n_a, int n_r, float *const *t)
{
	switch (n_r) {
	case 1: dots_tile(type, a, n_in, x, n_a, 1, t); break;
	case 2: dots_tile(type, a, n_in, x, n_a, 2, t); break;
	case 3: dots_tile(type, a, n_in, x, n_a, 3, t); break;
	default: dots_tile(type, a, n_in, x, n_a, LORA_ROWS, t); break;
	}
}

INLINE void dots_all(int type, const uint8_t *a, int n_a, size_t n_in, const float *x, const int32_t *rows, int n_rows,
		     float *t, size_t t_width)
{
	const size_t step = n_in * lora_bytes(type);
	for (int j = 0; j < n_a;) {
		int n_j = n_a - j >= LORA_OUT ? LORA_OUT : 1;
		for (int r = 0; r < n_rows; r += LORA_ROWS) {
			const float *xs[LORA_ROWS];
			float *ts[LORA_ROWS];
			int n = n_rows - r < LORA_ROWS ? n_rows - r : LORA_ROWS;
			for (int i = 0; i < n; i++) {
				xs[i] = x + (size_t)rows[r + i] * n_in;
				ts[i] = t + (size_t)(r + i) * t_width + j;
			}
			if (n_j == LORA_OUT)
				dots_rows(type, a + (size_t)j * step, n_in, xs, LORA_OUT, n, ts);
			else
				dots_rows(type, a + (size_t)j * step, n_in, xs, 1, n, ts);
		}
		j += n_j;
	}
}

static void lora_dots(int type, const void *a, int n_a, int n_in, const float *x, const int32_t *rows, int n_rows,
		      float *t, int t_width)
{
	size_t width = (size_t)n_in, to = (size_t)t_width;
	switch (type) {
	case KN_F32: dots_all(KN_F32, a, n_a, width, x, rows, n_rows, t, to); break;
	case KN_F16: dots_all(KN_F16, a, n_a, width, x, rows, n_rows, t, to); break;
	default: dots_all(KN_BF16, a, n_a, width, x, rows, n_rows, t, to); break;
	}
}

/* Sums of n_tiles tiles of n_r rows; constants, as type is, where this is inlined. */
INLINE void add_tiles(int type, const struct kn_lora_part *p, int o0, int o1, const float *const *t, int n_tiles,
		      int n_r, float *const *y)
{
	const size_t bytes = lora_bytes(type), tile = (size_t)p->rank * KN_LORA_TILE * bytes;
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
	for (int r = 0; r < n_rows; r += LORA_ROWS) {
		const float *ts[LORA_ROWS];
		float *ys[LORA_ROWS];
		int n = n_rows - r < LORA_ROWS ? n_rows - r : LORA_ROWS;
		for (int i = 0; i < n; i++) {
			ts[i] = t + (size_t)(r + i) * t_width;
			ys[i] = y + (size_t)rows[r + i] * width;
		}
		switch (n) {
		case 1: add_some(type, p, o0, o1, ts, 1, ys); break;
		case 2: add_some(type, p, o0, o1, ts, 2, ys); break;
		case 3: add_some(type, p, o0, o1, ts, 3, ys); break;
		default: add_some(type, p, o0, o1, ts, LORA_ROWS, ys); break;
		}
	}
}

static void lora_add(int type, const struct kn_lora_part *p, int o0, int o1, const float *t, int t_width,
		     const int32_t *rows, int n_rows, float *y, int width)
{
	size_t from = (size_t)t_width, to = (size_t)width;
	switch (type) {
	case KN_F32: add_all(KN_F32, p, o0, o1, t, from, rows, n_rows, y, to); break;
	case KN_F16: add_all(KN_F16, p, o0, o1, t, from, rows, n_rows, y, to); break;
	default: add_all(KN_BF16, p, o0, o1, t, from, rows, n_rows, y, to); break;
	}
}
