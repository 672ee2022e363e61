/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantized weights with float32 activations on AMX's integer tiles (Intel, "Intel
 * Architecture Instruction Set Extensions", chapter on AMX), as exact as float32 itself.
 *
 * Activations become integers of 20 bits and a sign with a power of two for each block of a row, and
 * those integers three digits of seven bits: x = s · (2^14·a + 2^7·b + c). A tile product of 16 outputs
 * by up to 16 rows over one block gives Σ q·a, Σ q·b and Σ q·c as exact int32. What follows is the same
 * for every element whatever else is in its tile:
 *
 *   f = 128 · float(128·Σ q·a + Σ q·b) + float(Σ q·c)
 *   y = fma(f · s, scale, y), and with an offset: y = fma(s · Σ x, offset, y)
 *
 * block after block from the left. So a row has the same bits whatever the other rows. The integers lose at most
 * 2^-20 of the block's largest activation: single bits of a float32, not the percent that activations
 * of eight bits lose.
 *
 * Rows form groups of 16; the last one is padded to one of `sizes`. Digits are rows of the tile of activations,
 * [3][n]: they fit one tile product for n <= 5, two for n <= 10, three for 16. The weights' tile is loaded once for
 * them; a row of the sums has 16 outputs. Weights are unpacked to panels (amx.h): with one group, of one tile and
 * FEW_CHUNK weights; else of as many tiles over all of K as the L2 cache holds, used for all groups.
 *
 * VERSIONS (Sapphire Rapids at 3.6 GHz, a shared virtual machine; one thread)
 *   1  weights as the row operand, activations as columns, sums [output][row]. Expected: a tile product
 *      takes 16 cycles, so 48 for 512 weights and up to 16 rows. Measured: storing a tile takes 16
 *      cycles however few bytes its rows have, and product and store of one register run one after the
 *      other: 25 ns, and 54 with the unpacking, 10 GB/s of Q8_0 for 1 row; 118 GMAC/s for 256 rows.
 *   2  this: activations as rows, and two sets of registers in turns, so that one is stored while the
 *      other is computed. By themselves (tile loads, products, stores): 7 ns for n <= 5, 17 to 19 for
 *      16. Expected: up to 5 rows for the price of one; 256 rows: 112 vector operations for 8192
 *      multiply-adds, 56 cycles.
 */
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "kernels/cpu/amx.h"

enum {
	GROUP = 16, /* rows of a tile */
	DIGITS = 3,
	LANES = 16,
	HEAD = 2 * LANES * (int)sizeof(float), /* of a packed block: s, and s · Σ x, of every row */
	MIN_BLOCK = 16,
	MAX_TILES = 64,
	FEW_CHUNK = 256,   /* weights of a panel tile that stays in the L1 cache */
	FETCH_CHUNK = 128, /* weights whose successors are fetched at a time: few enough not to wait for */
	MANY_CHUNK = 512,  /* of a group of activations that does */
};

/* Rows that a group may have, and by how many tile products: 3n digit rows are shared out evenly. */
enum { N_SIZES = 10 };
static const int sizes[N_SIZES] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16};

INLINE int products_of(int n) { return (DIGITS * n + GROUP - 1) / GROUP; }

bool kn_amx_usable(void)
{
	enum { REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
	return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA) == 0;
}

bool kn_amx_packs(int type) { return kn_amx_type_of(type).unpack != NULL; }

/* ---- activations ---- */

/* The number of the size for n rows. */
static int size_of(int n)
{
	int i = 0;
	while (i < N_SIZES - 1 && sizes[i] < n)
		i++;
	return i;
}

/* Bytes of a block of n rows. */
static inline size_t packed_block(int block, int n)
{
	return HEAD + ((size_t)(DIGITS * block * n) + KN_ALIGN - 1) / KN_ALIGN * KN_ALIGN;
}

size_t kn_amx_packed_bytes(int n_rows, int n_in)
{
	size_t groups = ((size_t)n_rows + GROUP - 1) / GROUP;
	return groups * (size_t)(n_in / MIN_BLOCK) * packed_block(MIN_BLOCK, GROUP);
}

/* A block of one row as row r of n; x NULL: a row that is not there. */
INLINE void pack_block(const float *x, int block, int r, int n, uint8_t *out)
{
	int8_t *digits = (int8_t *)out + HEAD + r * block;
	float *scale = (float *)(void *)out, *sum = scale + LANES;
	__m512i largest = _mm512_setzero_si512(), whole = largest;
	for (int k = 0; x != NULL && k < block; k += LANES)
		largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(_mm512_loadu_ps(x + k)),
								     _mm512_set1_epi32(0x7fffffff)));
	/* The exponent, so that the largest takes 20 bits; one below 20 would not leave room for s. */
	uint32_t bits = _mm512_reduce_max_epu32(largest), e = bits >> 23 < 20 ? 20 : bits >> 23;
	union {
		uint32_t u;
		float f;
	} up = {.u = (273 - e) << 23}, down = {.u = (e - 19) << 23};
	bool finite = e < 255;
	for (int k = 0; k < block; k += LANES) {
		__m512i v = _mm512_setzero_si512();
		if (x != NULL && finite)
			v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + k), _mm512_set1_ps(up.f)));
		__m512i a = _mm512_srai_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(1 << 13)), 14);
		__m512i rest = _mm512_sub_epi32(v, _mm512_slli_epi32(a, 14));
		__m512i b = _mm512_srai_epi32(_mm512_add_epi32(rest, _mm512_set1_epi32(1 << 6)), 7);
		const __m512i digit[DIGITS] = {a, b, _mm512_sub_epi32(rest, _mm512_slli_epi32(b, 7))};
		whole = _mm512_add_epi32(whole, v);
		for (int d = 0; d < DIGITS; d++)
			_mm_storeu_si128((void *)(digits + d * n * block + k), _mm512_cvtepi32_epi8(digit[d]));
	}
	scale[r] = finite ? down.f : __builtin_nanf(""); /* an infinity or no number */
	sum[r] = scale[r] * (float)_mm512_reduce_add_epi32(whole);
}

void kn_amx_pack(int type, const float *x, int n_rows, int n_in, int part, int n_parts, void *packed)
{
	int block = kn_amx_type_of(type).block, n_blocks = n_in / block;
	int from = (int)((int64_t)n_blocks * part / n_parts), to = (int)((int64_t)n_blocks * (part + 1) / n_parts);
	for (int r = 0; r < n_rows; r += GROUP) {
		int n = sizes[size_of(n_rows - r)];
		uint8_t *group =
		    (uint8_t *)packed + (size_t)(r / GROUP) * (size_t)n_blocks * packed_block(block, GROUP);
		for (int b = from; b < to; b++)
			for (int c = 0; c < n; c++) {
				const float *at =
				    r + c < n_rows ? x + (size_t)(r + c) * (size_t)n_in + (size_t)(b * block) : NULL;
				uint8_t *out = group + (size_t)b * packed_block(block, n);
				if (block == KN_ALIGN / 2)
					pack_block(at, KN_ALIGN / 2, c, n, out);
				else
					pack_block(at, MIN_BLOCK, c, n, out);
			}
	}
}

/* ---- products ---- */

/* Tile registers: sums of even blocks in 0, 1, 2, of odd ones in 3, 4, 5. */
enum { N_SUMS = 6, DIGIT_TILE = 6, WEIGHT_TILE = 7 };

TILES static void configure(int block, int n)
{
	_Alignas(KN_ALIGN) struct tile_config c = {.palette = 1};
	int rows = DIGITS * n / products_of(n);
	for (int i = 0; i < N_SUMS; i++) {
		c.rows[i] = (uint8_t)rows;
		c.row_bytes[i] = AMX_OUT * sizeof(int32_t);
	}
	c.rows[DIGIT_TILE] = (uint8_t)rows;
	c.row_bytes[DIGIT_TILE] = (uint16_t)block;
	c.rows[WEIGHT_TILE] = (uint8_t)(block / 4);
	c.row_bytes[WEIGHT_TILE] = AMX_OUT * 4;
	MEMORY_IS_READ();
	_tile_loadconfig(&c);
}

typedef int32_t sums[DIGITS * GROUP][AMX_OUT]; /* the first 3n of them */

/* Register numbers must be literals. */
#define PRODUCT(t)                     \
	_tile_zero(t);                 \
	_tile_loadd(6, digits, block); \
	_tile_dpbssd(t, 6, 7)

/* Begins the products of a block, in registers a, b and c. */
#define BEGIN(name, a, b, c)                                                         \
	TILES INLINE void name(const uint8_t *w, const uint8_t *x, int block, int n) \
	{                                                                            \
		const uint8_t *digits = x + HEAD;                                    \
		size_t step = (size_t)(DIGITS * n / products_of(n) * block);         \
		MEMORY_IS_READ();                                                    \
		_tile_loadd(7, w, 64);                                               \
		PRODUCT(a);                                                          \
		if (products_of(n) > 1) {                                            \
			digits += step;                                              \
			PRODUCT(b);                                                  \
		}                                                                    \
		if (products_of(n) > 2) {                                            \
			digits += step;                                              \
			PRODUCT(c);                                                  \
		}                                                                    \
	}
#define END(name, a, b, c)                                  \
	TILES INLINE void name(sums out, int n)             \
	{                                                   \
		int rows = DIGITS * n / products_of(n);     \
		_tile_stored(a, out[0], 64);                \
		if (products_of(n) > 1)                     \
			_tile_stored(b, out[rows], 64);     \
		if (products_of(n) > 2)                     \
			_tile_stored(c, out[2 * rows], 64); \
	}

BEGIN(begin_even, 0, 1, 2)
BEGIN(begin_odd, 3, 4, 5)
END(end_even, 0, 1, 2)
END(end_odd, 3, 4, 5)

INLINE void add_block(const uint8_t *w, const uint8_t *x, int block, int n, bool has_offset, sums in, __m512 *acc)
{
	const float *scale = (const float *)(const void *)(w + AMX_OUT * block);
	const float *s = (const float *)(const void *)x, *total = s + LANES;
	__m512 scales = _mm512_load_ps(scale), offsets = scales;
	if (has_offset)
		offsets = _mm512_load_ps(scale + AMX_OUT);
	UNROLL_FOR(int r = 0; r < n; r++) {
		__m512i a = _mm512_load_si512(in[r]), b = _mm512_load_si512(in[n + r]),
			c = _mm512_load_si512(in[2 * n + r]);
		__m512 high = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(a, 7), b));
		__m512 f = _mm512_fmadd_ps(high, _mm512_set1_ps(128), _mm512_cvtepi32_ps(c));
		acc[r] = _mm512_fmadd_ps(_mm512_mul_ps(f, _mm512_set1_ps(s[r])), scales, acc[r]);
		if (has_offset)
			acc[r] = _mm512_fmadd_ps(_mm512_set1_ps(total[r]), offsets, acc[r]);
	}
}

/* n_blocks of a panel tile and a group. Three blocks are under way: the products of one run while the
 * sums of the one before are stored and those of the one before that, which are in memory, added up. All but the
 * pointers and n_blocks are constants where this is inlined. */
TILES INLINE void multiply_n(const uint8_t *w, const uint8_t *x, int n_blocks, int block, int n, bool has_offset,
			     __m512 *acc)
{
	_Alignas(KN_ALIGN) sums even, odd;
	size_t w_step = kn_amx_panel_block(block), x_step = packed_block(block, n);
	__m512 a[GROUP];
	UNROLL_FOR(int r = 0; r < n; r++)
		a[r] = acc[r];
	begin_even(w, x, block, n);
	for (int b = 0; b < n_blocks; b++, w += w_step, x += x_step) {
		if (b + 1 < n_blocks)
			begin_odd(w + w_step, x + x_step, block, n);
		if (b > 0)
			add_block(w - w_step, x - x_step, block, n, has_offset, odd, a);
		end_even(even, n);
		if (++b == n_blocks) {
			add_block(w, x, block, n, has_offset, even, a);
			break;
		}
		w += w_step;
		x += x_step;
		if (b + 1 < n_blocks)
			begin_even(w + w_step, x + x_step, block, n);
		add_block(w - w_step, x - x_step, block, n, has_offset, even, a);
		end_odd(odd, n);
		if (b + 1 == n_blocks)
			add_block(w, x, block, n, has_offset, odd, a);
	}
	UNROLL_FOR(int r = 0; r < n; r++)
		acc[r] = a[r];
}

typedef void multiply_fn(const uint8_t *w, const uint8_t *x, int n_blocks, __m512 *acc);

#define MULTIPLY(name, block, n, has_offset)                                                  \
	TILES static void name(const uint8_t *w, const uint8_t *x, int n_blocks, __m512 *acc) \
	{                                                                                     \
		multiply_n(w, x, n_blocks, block, n, has_offset, acc);                        \
	}
#define MULTIPLY_ALL(name, block, has_offset)                                                          \
	MULTIPLY(name##_1, block, 1, has_offset)                                                       \
	MULTIPLY(name##_2, block, 2, has_offset)                                                       \
	MULTIPLY(name##_3, block, 3, has_offset)                                                       \
	MULTIPLY(name##_4, block, 4, has_offset)                                                       \
	MULTIPLY(name##_5, block, 5, has_offset)                                                       \
	MULTIPLY(name##_6, block, 6, has_offset)                                                       \
	MULTIPLY(name##_8, block, 8, has_offset)                                                       \
	MULTIPLY(name##_10, block, 10, has_offset)                                                     \
	MULTIPLY(name##_12, block, 12, has_offset)                                                     \
	MULTIPLY(name##_16, block, 16, has_offset)                                                     \
	static multiply_fn *const name[N_SIZES] = {name##_1, name##_2, name##_3,  name##_4,  name##_5, \
						   name##_6, name##_8, name##_10, name##_12, name##_16};

MULTIPLY_ALL(plain, 32, false)
MULTIPLY_ALL(affine, 32, true)
MULTIPLY_ALL(fine, 16, false)

static void put_rows(const __m512 *acc, int n_r, int n_o, float *y, size_t y_stride)
{
	__mmask16 there = (__mmask16)((1u << n_o) - 1);
	for (int r = 0; r < n_r; r++)
		_mm512_mask_storeu_ps(y + (size_t)r * y_stride, there, acc[r]);
}

struct job {
	const struct kn_weight *w;
	struct kn_amx_type type;
	size_t row_bytes, type_bytes;
	int type_block, n_blocks; /* of the type; of the panel, along K */
	const uint8_t *packed;
	int n_rows;
	float *y;
};

static inline int at_most(int n, int most) { return n < most ? n : most; }

/* A tile's n weights from k on. What the next tile has in the same place is fetched. */
static void fill(const struct job *j, int o, int n_o, int k, int n, uint8_t *out)
{
	const uint8_t *rows[AMX_OUT];
	size_t at = (size_t)(k / j->type_block) * j->type_bytes, ahead = AMX_OUT * j->row_bytes;
	/* Outputs that are missing from the last tile are the last one again; their results are never read. */
	for (int i = 0; i < AMX_OUT; i++)
		rows[i] = (const uint8_t *)j->w->data + (size_t)(o + at_most(i, n_o - 1)) * j->row_bytes + at;
	for (int done = 0, most = j->type_block < FETCH_CHUNK ? FETCH_CHUNK : AMX_CHUNK; done < n; done += most) {
		int some = at_most(n - done, most);
		size_t bytes = (size_t)(some / j->type_block) * j->type_bytes;
		for (int i = 0; i < AMX_OUT; i++)
			for (size_t b = 0; b == 0 || b + 64 <= bytes; b += 64)
				__builtin_prefetch(rows[i] + ahead + b);
		j->type.unpack(rows, some, out);
		out += (size_t)(some / j->type.block) * kn_amx_panel_block(j->type.block);
		for (int i = 0; i < AMX_OUT; i++)
			rows[i] += bytes;
	}
}

static multiply_fn *multiply_of(const struct job *j, int size)
{
	multiply_fn *const *all = j->type.block == MIN_BLOCK ? fine : j->type.has_offset ? affine : plain;
	return all[size];
}

static void matmul_few(const struct job *j, int o0, int o1, uint8_t *panel)
{
	int size = size_of(j->n_rows), n = sizes[size], n_in = j->w->n_in, block = j->type.block;
	multiply_fn *multiply = multiply_of(j, size);
	configure(block, n);
	for (int o = o0; o < o1; o += AMX_OUT) {
		__m512 acc[GROUP] = {0};
		int n_o = at_most(o1 - o, AMX_OUT);
		for (int k = 0; k < n_in; k += FEW_CHUNK) {
			int some = at_most(n_in - k, FEW_CHUNK);
			fill(j, o, n_o, k, some, panel);
			multiply(panel, j->packed + (size_t)(k / block) * packed_block(block, n), some / block, acc);
		}
		put_rows(acc, j->n_rows, n_o, j->y + o, (size_t)j->w->n_out);
	}
}

/* Every tile of the panel with one group. x stays in the L1 cache for all tiles. */
static void multiply_group(const struct job *j, const uint8_t *panel, int o, int used, int o1, int group)
{
	int block = j->type.block, r = group * GROUP, n_r = at_most(j->n_rows - r, GROUP);
	int size = size_of(n_r), n = sizes[size], some = MANY_CHUNK / block;
	const uint8_t *x = j->packed + (size_t)group * (size_t)j->n_blocks * packed_block(block, GROUP);
	size_t tile = (size_t)j->n_blocks * kn_amx_panel_block(block);
	__m512 acc[MAX_TILES][GROUP];
	multiply_fn *multiply = multiply_of(j, size);
	memset(acc, 0, (size_t)used * sizeof *acc);
	configure(block, n);
	for (int b = 0; b < j->n_blocks; b += some)
		for (int t = 0; t < used; t++)
			multiply(panel + (size_t)t * tile + (size_t)b * kn_amx_panel_block(block),
				 x + (size_t)b * packed_block(block, n), at_most(j->n_blocks - b, some), acc[t]);
	for (int t = 0; t < used; t++, o += AMX_OUT)
		put_rows(acc[t], n_r, at_most(o1 - o, AMX_OUT), j->y + (size_t)r * (size_t)j->w->n_out + o,
			 (size_t)j->w->n_out);
}

static void matmul_many(const struct job *j, int o0, int o1, uint8_t *panel, size_t panel_bytes)
{
	size_t tile = (size_t)j->n_blocks * kn_amx_panel_block(j->type.block), fit = panel_bytes / tile;
	int most = fit < MAX_TILES ? (int)fit : MAX_TILES;
	BUG_IF(most < 1, "a panel of %zu bytes, a tile takes %zu", panel_bytes, tile);
	for (int o = o0; o < o1; o += most * AMX_OUT) {
		int used = at_most((o1 - o + AMX_OUT - 1) / AMX_OUT, most);
		for (int t = 0; t < used; t++)
			fill(j, o + t * AMX_OUT, at_most(o1 - o - t * AMX_OUT, AMX_OUT), 0, j->w->n_in,
			     panel + (size_t)t * tile);
		for (int g = 0; g * GROUP < j->n_rows; g++)
			multiply_group(j, panel, o, used, o1, g);
	}
}

TILES void kn_amx_matmul_packed(const struct kn_weight *w, int o0, int o1, const void *packed, int n_rows, float *y,
				float *tile, size_t tile_floats)
{
	struct job j = {.w = w, .type = kn_amx_type_of(w->type), .packed = packed, .n_rows = n_rows, .y = y};
	j.type_block = kn_type_block(w->type);
	j.type_bytes = kn_type_block_bytes(w->type);
	j.row_bytes = kn_row_bytes(w->type, (size_t)w->n_in);
	j.n_blocks = w->n_in / j.type.block;
	if (n_rows <= GROUP)
		matmul_few(&j, o0, o1, (uint8_t *)tile);
	else
		matmul_many(&j, o0, o1, (uint8_t *)tile, tile_floats * sizeof *tile);
	_tile_release();
}
