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
 * block after block from the left. So a row has the same bits in any company. The integers lose at most
 * 2^-20 of the block's largest activation: single bits of a float32, not the percent that activations
 * of eight bits lose.
 *
 * Rows go in groups of 16 columns, the last one of 1, 2, 4, 8 or 16: a tile is stored densely, so n
 * columns are n vectors of work. Weights come to panels (amx.h): of one tile and AMX_CHUNK weights where
 * there is one group, else of as many tiles over the whole of K as the second-level cache holds, used
 * for all groups.
 *
 * VERSIONS (Sapphire Rapids, a shared virtual machine)
 *   1  this. Expected: one tile product takes 16 cycles, so 48 for 512 weights and up to 16 rows, some
 *      28 GB/s of Q8_0 a thread: reading binds up to 16 rows. 256 rows: 112 vector operations for 8192
 *      multiply-adds, 56 cycles, 146 a cycle; VNNI's peak is 128.
 */
#include <immintrin.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "kernels/cpu/amx.h"

#define INLINE static inline __attribute__((always_inline))
/* gcc 12's tile loads do not say which memory they read. */
#define MEMORY_IS_READ() __asm__ volatile("" ::: "memory")
#define TILES __attribute__((target("amx-tile,amx-int8")))

enum {
	GROUP = 16,  /* rows of a tile */
	DIGITS = 3,
	LANES = 16,
	HEAD = 2 * LANES * (int)sizeof(float), /* of a packed block: s, and s · Σ x, for every lane */
	MIN_BLOCK = 16,
	MAX_TILES = 64,
};

bool kn_amx_usable(void)
{
	enum { REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
	return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA) == 0;
}

bool kn_amx_packs(int type)
{
	return kn_amx_type_of(type).unpack != NULL;
}

/* ---- activations ---- */

/* Columns that n rows of a group take. */
static inline int columns_of(int n)
{
	int c = 1;
	while (c < n && c < GROUP)
		c *= 2;
	return c;
}

/* Bytes of a block for n columns. */
static inline size_t packed_block(int block, int n)
{
	return HEAD + ((size_t)(DIGITS * block * n) + KN_ALIGN - 1) / KN_ALIGN * KN_ALIGN;
}

size_t kn_amx_packed_bytes(int n_rows, int n_in)
{
	size_t groups = ((size_t)n_rows + GROUP - 1) / GROUP;
	return groups * (size_t)(n_in / MIN_BLOCK) * packed_block(MIN_BLOCK, GROUP);
}

/* A block of one row into column c of n; x NULL: a row that is not there. */
INLINE void pack_block(const float *x, int block, int c, int n, uint8_t *out)
{
	uint8_t *digits = out + HEAD;
	float *scale = (float *)(void *)out, *sum = scale + LANES, s = 0, total = 0;
	__m512i largest = _mm512_setzero_si512();
	for (int k = 0; x != NULL && k < block; k += LANES)
		largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(_mm512_loadu_ps(x + k)),
								     _mm512_set1_epi32(0x7fffffff)));
	/* The exponent, so that the largest takes 20 bits; one below 20 would not leave room for s. */
	uint32_t bits = _mm512_reduce_max_epu32(largest), e = bits >> 23 < 20 ? 20 : bits >> 23;
	union {
		uint32_t u;
		float f;
	} up = {.u = (273 - e) << 23}, down = {.u = (e - 19) << 23};
	int whole = 0;
	for (int k = 0; k < block; k += LANES) {
		__m512i v = _mm512_setzero_si512();
		if (x != NULL && e < 255)
			v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + k), _mm512_set1_ps(up.f)));
		__m512i a = _mm512_srai_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(1 << 13)), 14);
		__m512i rest = _mm512_sub_epi32(v, _mm512_slli_epi32(a, 14));
		__m512i b = _mm512_srai_epi32(_mm512_add_epi32(rest, _mm512_set1_epi32(1 << 6)), 7);
		const __m512i digit[DIGITS] = {a, b, _mm512_sub_epi32(rest, _mm512_slli_epi32(b, 7))};
		whole += _mm512_reduce_add_epi32(v);
		for (int d = 0; d < DIGITS; d++) {
			uint32_t fours[4];
			_mm_storeu_si128((void *)fours, _mm512_cvtepi32_epi8(digit[d]));
			for (int i = 0; i < 4; i++)
				memcpy(digits + (((size_t)(d * block + k) / 4 + (size_t)i) * (size_t)n + (size_t)c) * 4, &fours[i], 4);
		}
	}
	if (x != NULL) {
		s = e < 255 ? down.f : __builtin_nanf(""); /* an infinity or no number */
		total = s * (float)whole;
	}
	for (int l = c; l < LANES; l += n) {
		scale[l] = s;
		sum[l] = total;
	}
}

void kn_amx_pack(int type, const float *x, int n_rows, int n_in, int part, int n_parts, void *packed)
{
	int block = kn_amx_type_of(type).block, n_blocks = n_in / block;
	int from = (int)((int64_t)n_blocks * part / n_parts), to = (int)((int64_t)n_blocks * (part + 1) / n_parts);
	for (int r = 0; r < n_rows; r += GROUP) {
		int n = columns_of(n_rows - r);
		uint8_t *group = (uint8_t *)packed + (size_t)(r / GROUP) * (size_t)n_blocks * packed_block(block, GROUP);
		for (int b = from; b < to; b++)
			for (int c = 0; c < n; c++) {
				const float *at = r + c < n_rows ? x + (size_t)(r + c) * (size_t)n_in + (size_t)(b * block) : NULL;
				uint8_t *out = group + (size_t)b * packed_block(block, n);
				if (block == KN_ALIGN / 2)
					pack_block(at, KN_ALIGN / 2, c, n, out);
				else
					pack_block(at, MIN_BLOCK, c, n, out);
			}
	}
}

/* ---- products ---- */

struct tile_config { /* of palette 1, as the processor reads it */
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
};

enum { SUMS = 0 /* 0, 1, 2: of the digits */, WEIGHTS = 6, COLUMNS = 7 };

TILES static void configure(int block, int n)
{
	_Alignas(KN_ALIGN) struct tile_config c = {.palette = 1};
	for (int d = 0; d < DIGITS; d++) {
		c.rows[SUMS + d] = AMX_OUT;
		c.row_bytes[SUMS + d] = (uint16_t)(4 * n);
	}
	c.rows[WEIGHTS] = AMX_OUT;
	c.row_bytes[WEIGHTS] = (uint16_t)block;
	c.rows[COLUMNS] = (uint8_t)(block / 4);
	c.row_bytes[COLUMNS] = (uint16_t)(4 * n);
	MEMORY_IS_READ();
	_tile_loadconfig(&c);
}

typedef int32_t sums[DIGITS][AMX_OUT * GROUP];

/* The three products of a block, [AMX_OUT][n] each. */
TILES INLINE void multiply_block(const uint8_t *w, const uint8_t *x, int block, int n, sums out)
{
	const uint8_t *digits = x + HEAD;
	size_t digit = (size_t)(block * n);
	MEMORY_IS_READ();
	_tile_loadd(6, w, block);
	_tile_zero(0);
	_tile_loadd(7, digits, 4 * n);
	_tile_dpbssd(0, 6, 7);
	_tile_stored(0, out[0], 4 * n);
	_tile_zero(1);
	_tile_loadd(7, digits + digit, 4 * n);
	_tile_dpbssd(1, 6, 7);
	_tile_stored(1, out[1], 4 * n);
	_tile_zero(2);
	_tile_loadd(7, digits + 2 * digit, 4 * n);
	_tile_dpbssd(2, 6, 7);
	_tile_stored(2, out[2], 4 * n);
}

/* Lane l of vector j is output (16j + l) / n and column l % n. */
INLINE __m512 of_outputs(const float *values, __m512 all, int j, int n)
{
	if (n == 1)
		return all;
	if (n == GROUP)
		return _mm512_set1_ps(values[j]);
	__m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
	__m512i at = _mm512_add_epi32(_mm512_set1_epi32(j * (LANES / n)),
				      _mm512_srli_epi32(lane, (unsigned)__builtin_ctz((unsigned)n)));
	return _mm512_permutexvar_ps(at, all);
}

INLINE void add_block(const uint8_t *w, const uint8_t *x, int block, int n, bool has_offset, sums in, __m512 *acc)
{
	const float *scale = (const float *)(const void *)(w + AMX_OUT * block), *offset = scale + AMX_OUT;
	__m512 scales = _mm512_load_ps(scale), offsets = _mm512_load_ps(offset);
	__m512 s = _mm512_load_ps(x), total = _mm512_load_ps((const float *)(const void *)x + LANES);
	UNROLL for (int j = 0; j < n; j++) {
		__m512i a = _mm512_load_si512(&in[0][j * LANES]), b = _mm512_load_si512(&in[1][j * LANES]);
		__m512i c = _mm512_load_si512(&in[2][j * LANES]);
		__m512 high = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(a, 7), b));
		__m512 f = _mm512_fmadd_ps(high, _mm512_set1_ps(128), _mm512_cvtepi32_ps(c));
		acc[j] = _mm512_fmadd_ps(_mm512_mul_ps(f, s), of_outputs(scale, scales, j, n), acc[j]);
		if (has_offset)
			acc[j] = _mm512_fmadd_ps(total, of_outputs(offset, offsets, j, n), acc[j]);
	}
}

/* n_blocks of a panel tile and a group; each block's sums are looked at after the next one's products
 * have begun. All but the pointers are constants where this is inlined. */
TILES INLINE void multiply_n(const uint8_t *w, const uint8_t *x, int n_blocks, int block, int n, bool has_offset,
			     __m512 *acc)
{
	_Alignas(KN_ALIGN) sums two[2];
	size_t w_step = kn_amx_panel_block(block), x_step = packed_block(block, n);
	__m512 a[GROUP];
	UNROLL for (int j = 0; j < n; j++)
		a[j] = acc[j];
	multiply_block(w, x, block, n, two[0]);
	for (int b = 0; b < n_blocks; b++, w += w_step, x += x_step) {
		if (b + 1 < n_blocks)
			multiply_block(w + w_step, x + x_step, block, n, two[(b + 1) & 1]);
		add_block(w, x, block, n, has_offset, two[b & 1], a);
	}
	UNROLL for (int j = 0; j < n; j++)
		acc[j] = a[j];
}

typedef void multiply_fn(const uint8_t *w, const uint8_t *x, int n_blocks, __m512 *acc);

#define MULTIPLY(name, block, n, has_offset)                                                           \
	TILES static void name(const uint8_t *w, const uint8_t *x, int n_blocks, __m512 *acc)          \
	{                                                                                              \
		multiply_n(w, x, n_blocks, block, n, has_offset, acc);                                 \
	}
#define MULTIPLY_ALL(name, block, has_offset)                                                          \
	MULTIPLY(name##_1, block, 1, has_offset)                                                       \
	MULTIPLY(name##_2, block, 2, has_offset)                                                       \
	MULTIPLY(name##_4, block, 4, has_offset)                                                       \
	MULTIPLY(name##_8, block, 8, has_offset)                                                       \
	MULTIPLY(name##_16, block, 16, has_offset)                                                     \
	static multiply_fn *const name[] = {name##_1, name##_2, name##_4, name##_8, name##_16};

MULTIPLY_ALL(plain, 32, false)
MULTIPLY_ALL(affine, 32, true)
MULTIPLY_ALL(fine, 16, false)

/* acc, [AMX_OUT][n] in all, to rows of y. */
static void put_rows(const __m512 *acc, int n, int n_r, int n_o, float *y, size_t y_stride)
{
	__mmask16 there = (__mmask16)((1u << n_o) - 1);
	__m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
	__m512i at = _mm512_mullo_epi32(lane, _mm512_set1_epi32(n));
	for (int r = 0; r < n_r; r++)
		_mm512_mask_storeu_ps(y + (size_t)r * y_stride, there,
				      _mm512_i32gather_ps(at, (const float *)acc + r, sizeof(float)));
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

/* A tile's n weights from k on; what the next tile has in the same place is fetched. */
static void fill(const struct job *j, int o, int n_o, int k, int n, uint8_t *out)
{
	const uint8_t *at = (const uint8_t *)j->w->data + (size_t)o * j->row_bytes +
			    (size_t)(k / j->type_block) * j->type_bytes;
	size_t bytes = (size_t)(n / j->type_block) * j->type_bytes;
	for (int i = 0; i < AMX_OUT; i++)
		for (size_t b = 0; b < bytes; b += 64)
			__builtin_prefetch(at + (size_t)(AMX_OUT + i) * j->row_bytes + b);
	j->type.unpack(at, j->row_bytes, n_o, n, out);
}

static inline int at_most(int n, int most)
{
	return n < most ? n : most;
}

static multiply_fn *multiply_of(const struct job *j, int n)
{
	multiply_fn *const *all = j->type.block == MIN_BLOCK ? fine : j->type.has_offset ? affine : plain;
	return all[__builtin_ctz((unsigned)n)];
}

static void matmul_few(const struct job *j, int o0, int o1, uint8_t *panel)
{
	int n = columns_of(j->n_rows), n_in = j->w->n_in, block = j->type.block;
	multiply_fn *multiply = multiply_of(j, n);
	configure(block, n);
	for (int o = o0; o < o1; o += AMX_OUT) {
		__m512 acc[GROUP] = {0};
		int n_o = at_most(o1 - o, AMX_OUT);
		for (int k = 0; k < n_in; k += AMX_CHUNK) {
			int some = at_most(n_in - k, AMX_CHUNK);
			fill(j, o, n_o, k, some, panel);
			multiply(panel, j->packed + (size_t)(k / block) * packed_block(block, n), some / block, acc);
		}
		put_rows(acc, n, j->n_rows, n_o, j->y + o, (size_t)j->w->n_out);
	}
}

/* Every tile of the panel with one group. x stays in the first-level cache for all tiles. */
static void multiply_group(const struct job *j, const uint8_t *panel, int o, int used, int o1, int group)
{
	int block = j->type.block, r = group * GROUP, n_r = at_most(j->n_rows - r, GROUP), n = columns_of(n_r);
	const uint8_t *x = j->packed + (size_t)group * (size_t)j->n_blocks * packed_block(block, GROUP);
	size_t tile = (size_t)j->n_blocks * kn_amx_panel_block(block);
	__m512 acc[MAX_TILES][GROUP];
	multiply_fn *multiply = multiply_of(j, n);
	memset(acc, 0, (size_t)used * sizeof *acc);
	configure(block, n);
	for (int b = 0; b < j->n_blocks; b += AMX_CHUNK / block)
		for (int t = 0; t < used; t++)
			multiply(panel + (size_t)t * tile + (size_t)b * kn_amx_panel_block(block),
				 x + (size_t)b * packed_block(block, n), at_most(j->n_blocks - b, AMX_CHUNK / block), acc[t]);
	for (int t = 0; t < used; t++, o += AMX_OUT)
		put_rows(acc[t], n, n_r, at_most(o1 - o, AMX_OUT), j->y + (size_t)r * (size_t)j->w->n_out + o,
			 (size_t)j->w->n_out);
}

static void matmul_many(const struct job *j, int o0, int o1, uint8_t *panel, size_t panel_bytes)
{
	size_t tile = (size_t)j->n_blocks * kn_amx_panel_block(j->type.block), fit = panel_bytes / tile;
	int most = fit < MAX_TILES ? (int)fit : MAX_TILES, n_in = j->w->n_in;
	BUG_IF(most < 1, "a panel of %zu bytes, a tile takes %zu", panel_bytes, tile);
	for (int o = o0; o < o1; o += most * AMX_OUT) {
		int used = at_most((o1 - o + AMX_OUT - 1) / AMX_OUT, most);
		for (int t = 0; t < used; t++)
			for (int k = 0; k < n_in; k += AMX_CHUNK)
				fill(j, o + t * AMX_OUT, at_most(o1 - o - t * AMX_OUT, AMX_OUT), k, at_most(n_in - k, AMX_CHUNK),
				     panel + (size_t)t * tile + (size_t)(k / j->type.block) * kn_amx_panel_block(j->type.block));
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
