/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many rows of 8-bit activations (int8.h) on AMX's tiles (Intel, "Intel Architecture Instruction Set
 * Extensions", chapter on AMX). int8_vnni.c computes few rows, with the same bits: in both, sums over a block are exact
 * and the operations after them have the same order.
 *
 * Interleaved weights have the layout of tdpbssd's second operand: a row of the tile has four weights along K of
 * INT8_OUT outputs. Activations are stored in groups of GROUP rows, block after block (struct group_block); the last
 * group is padded with zeros. A tile product is a block of GROUP rows by INT8_OUT outputs. Its sums go through memory,
 * the only path from tiles to vectors, and are scaled and added there. The accumulators stay in registers for a panel's
 * weights along K.
 *
 * VERSIONS (one thread of a Sapphire Rapids)
 *   1  this. Counted for 8192 multiply-adds: a tile product 16 cycles, storing its sums 16, three vector instructions a
 *      row (convert, scale, add) on two ports 24, where VNNI takes 64 and 24; if all of it overlapped, three times
 *      VNNI. Measured, 512 rows of 2048 × 2048 beside VNNI: 380 to 404 GMAC/s and 256 (Q8_0, Q4_0), 305 and 231 (Q4_K),
 *      208 and 209 (Q6_K): 1.5, 1.3 and 1.0 times. By themselves, on a processor whose other half is in use: loads,
 *      product and store of a block 30 cycles (store and product add up), vectors 35 to 40 (28 would be the loads),
 *      both 55 to 62: little overlaps. Tried: sums stored a block later (nothing), four sets of sums (nothing), 8 rows
 *      by 32 outputs (slower), chunks of 512 and 1024 (3 % slower), Q8_0 through a panel (2 % slower), 7 to 16 rows (a
 *      quarter slower than VNNI). Tiles of bfloat16 add up in the tile and would go past all of this, but one row would
 *      have to be made the same way, and taking weights apart to bfloat16 costs five times what VNNI takes for it.
 */
#include "kernels/cpu/simd_bytes_512.h"

#include "kernels/cpu/amx.h"

enum { BIAS_NARROW = 0, BIAS_FINE = 0, BIAS_WIDE = 0 };

#include "kernels/cpu/simd_unpack.h"

#include "kernels/cpu/simd_quantize.h"

enum {
	GROUP = 16,    /* rows of a tile */
	FEW_ROWS = 16, /* at most so many are VNNI's */
	CHUNK = 2048,  /* weights along K of a panel */
	MAX_PANELS = 16,
};

/* A block of a group. */
struct group_block {
	int8_t q[GROUP][INT8_BLOCK];
	float d[GROUP], sum[GROUP], halves[2][GROUP]; /* int8_block's */
};

/* ---- activations ---- */

size_t kn_int8_packed_bytes_amx(int n_rows, int n_in)
{
	size_t groups = ((size_t)n_rows + GROUP - 1) / GROUP, few = kn_int8_packed_bytes(n_rows, n_in);
	size_t many = groups * ((size_t)n_in / INT8_BLOCK) * sizeof(struct group_block);
	return many > few ? many : few;
}

void kn_int8_pack_amx(int type, const float *x, int n_rows, int n_in, int part, int n_parts, void *packed)
{
	if (n_rows <= FEW_ROWS) {
		kn_int8_pack_vnni(type, x, n_rows, n_in, part, n_parts, packed);
		return;
	}
	const int n_k = n_in / INT8_BLOCK, n_blocks = (n_rows + GROUP - 1) / GROUP * n_k;
	int from = (int)((int64_t)n_blocks * part / n_parts), to = (int)((int64_t)n_blocks * (part + 1) / n_parts);
	for (int b = from; b < to; b++) {
		struct group_block *out = (struct group_block *)packed + b;
		const float *at = x + (size_t)(b / n_k) * GROUP * (size_t)n_in + (size_t)(b % n_k) * INT8_BLOCK;
		int n_r = n_rows - b / n_k * GROUP;
		if (n_r < GROUP)
			memset(out, 0, sizeof *out);
		for (int r = 0; r < GROUP && r < n_r; r++, at += n_in) {
			struct int8_block one;
			quantize_block(at, &one);
			memcpy(out->q[r], one.q, sizeof one.q);
			out->d[r] = one.d;
			out->sum[r] = one.sum;
			out->halves[0][r] = one.halves[0];
			out->halves[1][r] = one.halves[1];
		}
	}
}

/* ---- products ---- */

/* Sums of even blocks in register 0, of odd ones in 1, activations in 2 and 3, weights in 4 and 5. */
TILES static void configure(int block)
{
	_Alignas(KN_ALIGN) struct tile_config c = {.palette = 1};
	for (int i = 0; i < 4; i++)
		c.rows[i] = GROUP;
	for (int i = 0; i < 2; i++) {
		c.row_bytes[i] = INT8_OUT * sizeof(int32_t);
		c.row_bytes[2 + i] = (uint16_t)block;
		c.rows[4 + i] = (uint8_t)(block / 4);
		c.row_bytes[4 + i] = WORD;
	}
	MEMORY_IS_READ();
	_tile_loadconfig(&c);
}

typedef int32_t sums[GROUP][INT8_OUT];

/* Where a block's weights and scales are in a panel, or in a matrix of Q8_0. */
INLINE const uint8_t *weights_of(enum kind kind, const uint8_t *block) { return block + (kind == PLAIN ? HALVES : 0); }

INLINE const uint8_t *scales_of(enum kind kind, const uint8_t *block)
{
	return block + (kind == PLAIN ? 0 : (kind == FINE ? FINE_BLOCK : INT8_BLOCK) * INT8_OUT);
}

/* Register numbers must be literals. */
#define BEGIN(sum, a, b, w, q)         \
	MEMORY_IS_READ();              \
	_tile_loadd(b, w, WORD);       \
	_tile_loadd(a, q, INT8_BLOCK); \
	_tile_zero(sum);               \
	_tile_dpbssd(sum, a, b)

/* The next block of a panel, or half of one of activations. */
struct place {
	const uint8_t *w;
	const struct group_block *x;
	int p;
};

INLINE struct place next_of(enum kind kind, struct place at)
{
	at.w += panel_block(kind);
	if (kind == FINE && at.p == 0) {
		at.p = 1;
	} else {
		at.p = 0;
		at.x++;
	}
	return at;
}

INLINE void add_block(enum kind kind, bool has_offset, struct place place, sums in, vf *acc)
{
	const uint8_t *at = scales_of(kind, place.w);
	vf scale = kind == PLAIN ? v_f16(at) : v_load((const float *)(const void *)at);
	const float *d = place.x->d, *total = kind == FINE ? place.x->halves[place.p] : place.x->sum;
	UNROLL_FOR(int r = 0; r < GROUP; r++) {
		vf sum = _mm512_cvtepi32_ps(_mm512_load_si512(in[r]));
		acc[r] = v_fma(sum, scale * v_set(d[r]), acc[r]);
	}
	if (!has_offset)
		return;
	vf offset = v_load((const float *)(const void *)(at + SCALES));
	UNROLL_FOR(int r = 0; r < GROUP; r++)
		acc[r] = v_fma(offset, v_set(total[r]), acc[r]);
}

/* n weights along K of a group's panel by a group of rows, of which n_r are there. Three blocks are under way: the
 * product of one runs while the sums of the one before are stored and those of the one before that added up. All but
 * pointers, n and n_r are constants where this is inlined. */
TILES INLINE void multiply(enum kind kind, bool has_offset, const uint8_t *w, const struct group_block *x, int n,
			   float *y, size_t y_step, int n_r)
{
	_Alignas(KN_ALIGN) sums even, odd;
	const int n_blocks = n / (kind == FINE ? FINE_BLOCK : INT8_BLOCK);
	struct place at = {w, x, 0}, done = at; /* of the next product, and of the next sums to be added up */
	vf acc[GROUP];
	UNROLL_FOR(int r = 0; r < GROUP; r++)
		acc[r] = r < n_r ? v_load(y + (size_t)r * y_step) : v_set(0);
	for (int b = 0; b < n_blocks; b += 2) {
		BEGIN(0, 2, 4, weights_of(kind, at.w), at.x->q[0] + FINE_BLOCK * at.p);
		at = next_of(kind, at);
		if (b > 0) {
			_tile_stored(1, odd, sizeof odd[0]);
			add_block(kind, has_offset, done, even, acc);
			done = next_of(kind, done);
		}
		if (b + 1 < n_blocks) {
			BEGIN(1, 3, 5, weights_of(kind, at.w), at.x->q[0] + FINE_BLOCK * at.p);
			at = next_of(kind, at);
		}
		_tile_stored(0, even, sizeof even[0]);
		if (b > 0) {
			add_block(kind, has_offset, done, odd, acc);
			done = next_of(kind, done);
		}
	}
	if (n_blocks % 2 == 0)
		_tile_stored(1, odd, sizeof odd[0]);
	add_block(kind, has_offset, done, even, acc);
	if (n_blocks % 2 == 0)
		add_block(kind, has_offset, next_of(kind, done), odd, acc);
	UNROLL_FOR(int r = 0; r < GROUP; r++)
		if (r < n_r)
			v_store(y + (size_t)r * y_step, acc[r]);
}

typedef void multiply_fn(const uint8_t *w, const struct group_block *x, int n, float *y, size_t y_step, int n_r);

#define OF_KIND(name, kind, has_offset)                                                                                \
	TILES static void name(const uint8_t *w, const struct group_block *x, int n, float *y, size_t y_step, int n_r) \
	{                                                                                                              \
		multiply(kind, has_offset, w, x, n, y, y_step, n_r);                                                   \
	}

OF_KIND(multiply_narrow, NARROW, false)
OF_KIND(multiply_narrow_offset, NARROW, true)
OF_KIND(multiply_fine, FINE, false)
OF_KIND(multiply_fine_offset, FINE, true)
OF_KIND(multiply_plain, PLAIN, false)

static multiply_fn *multiply_of(const struct type *t)
{
	switch (t->kind) {
	case FINE: return t->has_offset ? multiply_fine_offset : multiply_fine;
	default: return t->has_offset ? multiply_narrow_offset : multiply_narrow;
	}
}

struct job {
	const struct type *type;
	multiply_fn *multiply;
	const struct kn_weight *w;
	size_t row_bytes, chunk_bytes; /* of a row, and of a chunk of a group, as they lie */
	size_t group_bytes;            /* of a panel */
	const struct group_block *x;
	int n_rows;
	float *y;
};

/* A group's panel with all rows. Outputs past the end are computed beside y and dropped. */
static void multiply_group(const struct job *j, int o, int o1, int k, int n, const uint8_t *panel, int r)
{
	float aside[GROUP * INT8_OUT];
	const size_t n_out = (size_t)j->w->n_out, n_o = (size_t)(o1 - o < INT8_OUT ? o1 - o : INT8_OUT);
	const size_t n_k = (size_t)j->w->n_in / INT8_BLOCK;
	const struct group_block *x = j->x + (size_t)(r / GROUP) * n_k + (size_t)(k / INT8_BLOCK);
	int n_r = j->n_rows - r < GROUP ? j->n_rows - r : GROUP;
	float *y = j->y + (size_t)r * n_out + (size_t)o;
	if (k == 0)
		for (int i = 0; i < n_r; i++)
			memset(y + (size_t)i * n_out, 0, n_o * sizeof *y);
	if (n_o == INT8_OUT) {
		j->multiply(panel, x, n, y, n_out, n_r);
		return;
	}
	memset(aside, 0, sizeof aside);
	for (int i = 0; i < n_r; i++)
		memcpy(aside + i * INT8_OUT, y + (size_t)i * n_out, n_o * sizeof *y);
	j->multiply(panel, x, n, aside, INT8_OUT, n_r);
	for (int i = 0; i < n_r; i++)
		memcpy(y + (size_t)i * n_out, aside + i * INT8_OUT, n_o * sizeof *y);
}

TILES static void release(void) { _tile_release(); }

void kn_int8_matmul_amx(const struct kn_weight *w, int o0, int o1, const void *packed, int n_rows, float *y,
			float *tile, size_t tile_floats)
{
	if (n_rows <= FEW_ROWS) {
		kn_int8_matmul_vnni(w, o0, o1, packed, n_rows, y, tile, tile_floats);
		return;
	}
	const int type = w->type & ~KN_INTERLEAVED, chunk = w->n_in < CHUNK ? w->n_in : CHUNK;
	struct job j = {.type = &types[type], .w = w, .x = packed, .n_rows = n_rows, .y = y};
	const bool plain = type == KN_Q8_0;
	j.multiply = plain ? multiply_plain : multiply_of(j.type);
	j.row_bytes = kn_row_bytes(type, (size_t)w->n_in);
	j.chunk_bytes = kn_row_bytes(type, (size_t)chunk) * INT8_OUT;
	j.group_bytes = panel_bytes(j.type->kind, chunk);
	size_t fit = tile_floats * sizeof *tile / j.group_bytes;
	BUG_IF(fit < 1, "a panel of %zu bytes, there is room for %zu", j.group_bytes, tile_floats * sizeof *tile);
	const uint8_t *panels[MAX_PANELS];
	const int most = fit < MAX_PANELS ? (int)fit : MAX_PANELS;
	configure(j.type->kind == FINE ? FINE_BLOCK : INT8_BLOCK);
	for (int o = o0; o < o1; o += most * INT8_OUT) {
		for (int k = 0; k < w->n_in; k += chunk) {
			const int n = w->n_in - k < chunk ? w->n_in - k : chunk;
			int used = 0;
			for (; used < most && o + used * INT8_OUT < o1; used++) {
				const uint8_t *lies = (const uint8_t *)w->data +
						      (size_t)(o / INT8_OUT + used) * j.row_bytes * INT8_OUT +
						      (size_t)(k / chunk) * j.chunk_bytes;
				panels[used] = plain ? lies : (uint8_t *)tile + (size_t)used * j.group_bytes;
				if (!plain)
					j.type->unpack(lies, n, (uint8_t *)tile + (size_t)used * j.group_bytes);
			}
			for (int r = 0; r < n_rows; r += GROUP)
				for (int t = 0; t < used; t++)
					multiply_group(&j, o + t * INT8_OUT, o1, k, n, panels[t], r);
		}
	}
	release();
}
