/* SPDX-License-Identifier: Apache-2.0
 *
 * The product of interleaved weights with activations of eight bits (int8.h), written once for all
 * instruction sets. An instruction set's file includes this after it has defined
 *
 *   LANES, TILE_ROWS             floats in a vector; rows of the inner tile, which has 2·LANES outputs
 *   vf, vi, vb                   a vector of floats, of int32, of bytes
 *   v_load v_store v_set v_fma v_max v_float v_round     of floats, as in simd_matmul.h
 *   v_f16 v_u8 v_i8              LANES halves to floats, LANES bytes to int32
 *   v_sum v_largest              of the lanes of a vector of floats
 *   b_lookup                     values[q] of every byte q < 16
 *   b_word                       four bytes from memory, in every lane
 *   BIAS_WIDE                    what is added to a signed weight of eight bits in a panel
 *   begin_of                     int8_block.begin, from the sums of the lanes of both halves
 *   struct sums; sums_begin sums_dot sums_end    Σ of products of small unsigned weights (below 64, at
 *                                most 32 along K) as int32, exact
 *   wide_begin wide_dot          the same of weights of eight bits, straight to int32
 *   WIDE_MASKED                  if that is done another way in panels: masked_of masked_begin masked_dot, and
 *                                masked_less, what sums begin with, which lies where other kinds have an offset
 *
 * Weights come into a panel first, taken apart to bytes, with scale and offset in float32: what is
 * done once for all rows, and the inner loop knows three kinds of weights instead of thirteen types:
 *
 *   narrow  a scale for 32 weights from -16 to 15, stored with 16 added; an offset for some
 *   fine    a scale for 16 weights from -32 to 31, stored with 32 added; an offset for Q2_K
 *   wide    a scale for 32 weights from -128 to 127
 *   plain   the same as Q8_0 lies in memory, for instruction sets that add nothing to it: no panel is made
 *
 * What was added is taken off again by where the sums begin: at -16 · Σ q of the activations, which is
 * exact whatever wraps on the way.
 *
 * Order, for every element whatever else is in its tile: block after block from the left,
 *
 *   y = fma(float(Σ q_w·q_x), scale · d, y), and with an offset: y = fma(offset, d · Σ q_x, y)
 *
 * Between chunks along K the accumulators rest in y itself, which changes no bit. Few rows: a panel of
 * FEW_CHUNK weights of one tile stays in the first-level cache. More rows: a panel of MANY_CHUNK weights of
 * as many tiles as half a second-level cache holds is used for all of them.
 */
#include <string.h>

#include "kernels/blocks.h"
#include "kernels/cpu/int8.h"

#define INLINE static inline __attribute__((always_inline))

enum {
	BYTES = 4 * LANES, /* of a vector */
	VECTORS = 2,       /* of outputs in a tile */
	TILE_GROUPS = VECTORS * LANES / INT8_OUT,
	WORD = 4 * INT8_OUT, /* bytes of a panel: four weights of all outputs of a group */
	SCALES = 4 * INT8_OUT,
	FINE_BLOCK = INT8_BLOCK / 2,
	FEW_ROWS = 16,
	FEW_CHUNK = 512,
	MANY_CHUNK = 2048,
	MAX_TILES = 16,
	AHEAD = 8192, /* bytes of weights between what is multiplied and what is asked for */
};

enum kind { NARROW, FINE, WIDE, PLAIN };

/* Where 32 weights of Q8_0 begin in a block, behind the scales. */
enum { HALVES = 2 * INT8_OUT, WORDS_4 = 4 * WORD };

/* A panel block: the weights of a group, [weights / 4][INT8_OUT][4], scale [INT8_OUT], offset the same. */
INLINE size_t panel_block(enum kind kind)
{
	if (kind == PLAIN)
		return HALVES + 8 * WORD;
	return (kind == FINE ? FINE_BLOCK : INT8_BLOCK) * INT8_OUT + 2 * SCALES;
}

/* Bytes of a group's panel of n weights. */
INLINE size_t panel_bytes(enum kind kind, int n)
{
	return (size_t)(n / (kind == FINE ? FINE_BLOCK : INT8_BLOCK)) * panel_block(kind);
}

/* ---- weights ---- */

typedef uint8_t vb16 __attribute__((vector_size(16)));
typedef uint16_t vh16 __attribute__((vector_size(32)));

INLINE vb b_load(const uint8_t *at)
{
	vb v;
	memcpy(&v, at, sizeof v);
	return v;
}

INLINE void b_store(uint8_t *at, vb v)
{
	memcpy(at, &v, sizeof v);
}

INLINE vb16 b16_load(const uint8_t *at)
{
	vb16 v;
	memcpy(&v, at, sizeof v);
	return v;
}

/* Scale and offset of a panel block, from float16s of the file, each times a small integer for every
 * output: d·s and m·o, and extra times the scale added to the offset. */
struct factors {
	const uint8_t *d, *m; /* float16 [INT8_OUT]; m NULL: no offset */
	float m_sign, extra;
};

INLINE void put_scales(uint8_t *out, struct factors f, vb16 s, vb16 o)
{
	float *scale = (float *)(void *)out;
	uint8_t bytes[2][INT8_OUT];
	memcpy(bytes[0], &s, sizeof s);
	memcpy(bytes[1], &o, sizeof o);
	UNROLL for (int l = 0; l < INT8_OUT; l += LANES) {
		vf d = v_f16(f.d + 2 * l) * v_float(v_i8(bytes[0] + l));
		v_store(scale + l, d);
		if (f.m != NULL)
			v_store(scale + INT8_OUT + l, v_fma(d, v_set(f.extra), v_set(f.m_sign) * v_f16(f.m + 2 * l) *
									     v_float(v_i8(bytes[1] + l))));
	}
}

/* The same without the integers. */
INLINE void put_halves(uint8_t *out, const uint8_t *d, const uint8_t *m, float extra)
{
	float *scale = (float *)(void *)out;
	UNROLL for (int l = 0; l < INT8_OUT; l += LANES) {
		vf ds = v_f16(d + 2 * l);
		v_store(scale + l, ds);
		if (m != NULL)
			v_store(scale + INT8_OUT + l, v_fma(ds, v_set(extra), v_f16(m + 2 * l)));
	}
}

#ifdef WIDE_MASKED
enum { HAS_MASKED = 1 };
#else
enum { HAS_MASKED = 0 };
#endif

/* The weights and scales of a block of a wide panel are there. */
INLINE void end_wide(uint8_t *out)
{
#ifdef WIDE_MASKED
	UNROLL for (int i = 0; i < WORD; i += BYTES)
		masked_less(out + i, WORD, out + 8 * WORD + SCALES + i);
#else
	(void)out;
#endif
}

static void unpack_q8_0(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= INT8_BLOCK, at += HALVES + 8 * WORD, out += panel_block(WIDE)) {
		UNROLL for (int i = 0; i < 8 * WORD; i += BYTES)
			b_store(out + i, b_load(at + HALVES + i) + (uint8_t)BIAS_WIDE);
		put_halves(out + 8 * WORD, at, NULL, 0);
		end_wide(out);
	}
}

/* 32 nibbles of each output, `added` to each. */
INLINE void put_nibbles(uint8_t *out, const uint8_t *qs, uint8_t added)
{
	UNROLL for (int i = 0; i < WORDS_4; i += BYTES) {
		vb q = b_load(qs + i);
		b_store(out + i, (q & 15) + added);
		b_store(out + WORDS_4 + i, (q >> 4) + added);
	}
}

static void unpack_q4_0(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= INT8_BLOCK, at += HALVES + WORDS_4, out += panel_block(NARROW)) {
		put_nibbles(out, at + HALVES, 8);
		put_halves(out + 8 * WORD, at, NULL, 0);
	}
}

static void unpack_q4_1(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= INT8_BLOCK, at += 2 * HALVES + WORDS_4, out += panel_block(NARROW)) {
		put_nibbles(out, at + 2 * HALVES, 16);
		put_halves(out + 8 * WORD, at, at + HALVES, 0);
	}
}

typedef uint32_t vw __attribute__((vector_size(4 * LANES)));

/* Nibbles and their fifth bits. */
INLINE void put_fives(uint8_t *out, const uint8_t *qh, const uint8_t *qs)
{
	put_nibbles(out, qs, 0);
	UNROLL for (int l = 0; l < WORD; l += BYTES) {
		vw bits = (vw)b_load(qh + l);
		UNROLL for (int i = 0; i < 8; i++) {
			/* Four bits to where four bytes begin: bit i to 8i = i + 7i. */
			vw spread = ((bits >> 4 * i & 15) * 0x00204081u & 0x01010101u) << 4;
			uint8_t *word = out + i * WORD + l;
			b_store(word, b_load(word) | (vb)spread);
		}
	}
}

static void unpack_q5_0(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= INT8_BLOCK, at += HALVES + WORD + WORDS_4, out += panel_block(NARROW)) {
		put_fives(out, at + HALVES, at + HALVES + WORD);
		put_halves(out + 8 * WORD, at, NULL, 0);
	}
}

static void unpack_q5_1(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= INT8_BLOCK, at += 2 * HALVES + WORD + WORDS_4, out += panel_block(NARROW)) {
		put_fives(out, at + 2 * HALVES, at + 2 * HALVES + WORD);
		put_halves(out + 8 * WORD, at, at + HALVES, 16);
	}
}

/* 32 nibbles of each output through a table. */
INLINE void put_values(uint8_t *out, const uint8_t *qs, vb table)
{
	UNROLL for (int i = 0; i < WORDS_4; i += BYTES) {
		vb q = b_load(qs + i);
		b_store(out + i, b_lookup(table, q & 15));
		b_store(out + WORDS_4 + i, b_lookup(table, q >> 4));
	}
}

/* The table in every 16 bytes of a vector, `added` to each. */
INLINE vb table_of(const int8_t *values, uint8_t added)
{
	uint8_t all[BYTES];
	for (int i = 0; i < BYTES; i++)
		all[i] = (uint8_t)(values[i % 16] + added);
	return b_load(all);
}

static void unpack_iq4_nl(const uint8_t *at, int n, uint8_t *out)
{
	vb table = table_of(kn_nl_values, BIAS_WIDE);
	for (; n > 0; n -= INT8_BLOCK, at += HALVES + WORDS_4, out += panel_block(WIDE)) {
		put_values(out, at + HALVES, table);
		put_halves(out + 8 * WORD, at, NULL, 0);
		end_wide(out);
	}
}

static void unpack_mxfp4(const uint8_t *at, int n, uint8_t *out)
{
	vb table = table_of(kn_fp4_values, 16);
	for (; n > 0; n -= INT8_BLOCK, at += INT8_OUT + WORDS_4, out += panel_block(NARROW)) {
		float *scale = (float *)(void *)(out + 8 * WORD);
		put_values(out, at + INT8_OUT, table);
		for (int o = 0; o < INT8_OUT; o++)
			scale[o] = kn_e8m0_half(at[o]);
	}
}

static void unpack_iq4_xs(const uint8_t *at, int n, uint8_t *out)
{
	vb table = table_of(kn_nl_values, BIAS_WIDE);
	for (; n > 0; n -= KN_K_BLOCK, at += 2 * HALVES + 4 * INT8_OUT + 32 * WORD) {
		const uint8_t *sl = at + 2 * HALVES;
		vh16 high;
		memcpy(&high, at + HALVES, sizeof high);
		UNROLL for (int b = 0; b < 8; b++, out += panel_block(WIDE)) {
			vb16 upper = __builtin_convertvector((high >> 2 * b & 3) << 4, vb16);
			vb16 low = b16_load(sl + b / 2 * INT8_OUT) >> 4 * (b % 2) & 15;
			put_values(out, sl + 4 * INT8_OUT + b * WORDS_4, table);
			put_scales(out + 8 * WORD, (struct factors){.d = at}, (low | upper) - 32, low);
			end_wide(out);
		}
	}
}

/* Scale and minimum j of Q4_K and Q5_K, of all outputs (kn_scale_min). */
INLINE vb16 scale_k(const uint8_t *sc, int j)
{
	if (j < 4)
		return b16_load(sc + j * INT8_OUT) & 63;
	return (b16_load(sc + (j + 4) * INT8_OUT) & 15) | (b16_load(sc + (j - 4) * INT8_OUT) >> 2 & 48);
}

INLINE vb16 min_k(const uint8_t *sc, int j)
{
	if (j < 4)
		return b16_load(sc + (j + 4) * INT8_OUT) & 63;
	return b16_load(sc + (j + 4) * INT8_OUT) >> 4 | (b16_load(sc + j * INT8_OUT) >> 2 & 48);
}

INLINE void unpack_k(bool fifth, const uint8_t *at, int n, uint8_t *out)
{
	size_t heads = 2 * HALVES + 12 * INT8_OUT;
	for (; n > 0; n -= KN_K_BLOCK) {
		const uint8_t *sc = at + 2 * HALVES, *qh = at + heads, *qs = qh + (fifth ? 8 * WORD : 0);
		struct factors f = {.d = at, .m = at + HALVES, .m_sign = -1, .extra = fifth ? 16 : 0};
		UNROLL for (int g = 0; g < 4; g++, qs += 8 * WORD, out += 2 * panel_block(NARROW)) {
			uint8_t *next = out + panel_block(NARROW);
			UNROLL for (int i = 0; i < 8 * WORD; i += BYTES) {
				vb q = b_load(qs + i), low = q & 15, high = q >> 4;
				vb h = fifth ? b_load(qh + i) : q;
				b_store(out + i, fifth ? low | (h >> 2 * g & 1) << 4 : low + 16);
				b_store(next + i, fifth ? high | (h >> (2 * g + 1) & 1) << 4 : high + 16);
			}
			put_scales(out + 8 * WORD, f, scale_k(sc, 2 * g), min_k(sc, 2 * g));
			put_scales(next + 8 * WORD, f, scale_k(sc, 2 * g + 1), min_k(sc, 2 * g + 1));
		}
		at = qs;
	}
}

static void unpack_q4_k(const uint8_t *at, int n, uint8_t *out)
{
	unpack_k(false, at, n, out);
}

static void unpack_q5_k(const uint8_t *at, int n, uint8_t *out)
{
	unpack_k(true, at, n, out);
}

/* Where the four weights 32j + i … of half h are, i in bytes of a vector of words. */
INLINE uint8_t *fine_at(uint8_t *out, int h, int j, int i)
{
	return out + (size_t)(8 * h + 2 * j + i / (4 * WORD)) * panel_block(FINE) + i % (4 * WORD);
}

static void unpack_q6_k(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= KN_K_BLOCK, at += 210 * INT8_OUT, out += 16 * panel_block(FINE)) {
		const uint8_t *qh = at + 32 * WORD, *sc = qh + 16 * WORD;
		struct factors f = {.d = sc + 16 * INT8_OUT};
		for (int h = 0; h < 2; h++)
			for (int i = 0; i < 8 * WORD; i += BYTES) {
				vb high = b_load(qh + 8 * h * WORD + i);
				vb q[2] = {b_load(at + 16 * h * WORD + i), b_load(at + (16 * h + 8) * WORD + i)};
				UNROLL for (int j = 0; j < 4; j++)
					b_store(fine_at(out, h, j, i), (j < 2 ? q[j % 2] & 15 : q[j % 2] >> 4) | (high >> 2 * j & 3) << 4);
			}
		for (int s = 0; s < 16; s++) {
			vb16 scale = b16_load(sc + s * INT8_OUT);
			put_scales(out + (size_t)s * panel_block(FINE) + 4 * WORD, f, scale, scale);
		}
	}
}

static void unpack_q2_k(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= KN_K_BLOCK, at += 84 * INT8_OUT, out += 16 * panel_block(FINE)) {
		const uint8_t *qs = at + 16 * INT8_OUT;
		struct factors f = {.d = qs + 16 * WORD, .m = qs + 16 * WORD + HALVES, .m_sign = -1};
		for (int h = 0; h < 2; h++)
			for (int i = 0; i < 8 * WORD; i += BYTES) {
				vb q = b_load(qs + 8 * h * WORD + i);
				UNROLL for (int j = 0; j < 4; j++)
					b_store(fine_at(out, h, j, i), (q >> 2 * j & 3) + 32);
			}
		for (int s = 0; s < 16; s++) {
			vb16 sc = b16_load(at + s * INT8_OUT);
			put_scales(out + (size_t)s * panel_block(FINE) + 4 * WORD, f, sc & 15, sc >> 4);
		}
	}
}

static void unpack_q3_k(const uint8_t *at, int n, uint8_t *out)
{
	for (; n > 0; n -= KN_K_BLOCK, at += 110 * INT8_OUT, out += 16 * panel_block(FINE)) {
		const uint8_t *qs = at + 8 * WORD, *sc = qs + 16 * WORD;
		struct factors f = {.d = sc + 12 * INT8_OUT};
		for (int h = 0; h < 2; h++)
			for (int i = 0; i < 8 * WORD; i += BYTES) {
				vb q = b_load(qs + 8 * h * WORD + i), third = b_load(at + i) >> 4 * h;
				UNROLL for (int j = 0; j < 4; j++)
					b_store(fine_at(out, h, j, i), ((q >> 2 * j & 3) | (third >> j & 1) << 2) + 28);
			}
		for (int s = 0; s < 16; s++) {
			vb16 low = b16_load(sc + s % 8 * INT8_OUT), high = b16_load(sc + (8 + s % 4) * INT8_OUT);
			low = (s < 8 ? low & 15 : low >> 4) | (high >> 2 * (s / 4) & 3) << 4;
			put_scales(out + (size_t)s * panel_block(FINE) + 4 * WORD, f, low - 32, low);
		}
	}
}

struct type {
	void (*unpack)(const uint8_t *at, int n, uint8_t *out);
	enum kind kind;
	bool has_offset;
};

static const struct type types[] = {
    [KN_Q4_0] = {unpack_q4_0, NARROW, false},  [KN_Q4_1] = {unpack_q4_1, NARROW, true},
    [KN_Q5_0] = {unpack_q5_0, NARROW, false},  [KN_Q5_1] = {unpack_q5_1, NARROW, true},
    [KN_Q8_0] = {unpack_q8_0, WIDE, false},    [KN_Q2_K] = {unpack_q2_k, FINE, true},
    [KN_Q3_K] = {unpack_q3_k, FINE, false},    [KN_Q4_K] = {unpack_q4_k, NARROW, true},
    [KN_Q5_K] = {unpack_q5_k, NARROW, true},   [KN_Q6_K] = {unpack_q6_k, FINE, false},
    [KN_IQ4_NL] = {unpack_iq4_nl, WIDE, false}, [KN_IQ4_XS] = {unpack_iq4_xs, WIDE, false},
    [KN_MXFP4] = {unpack_mxfp4, NARROW, false},
};

/* ---- activations ---- */

INLINE void quantize_block(const float *x, struct int8_block *out)
{
	vf most = v_set(0), spoiled = most;
	vi total[2] = {0};
	UNROLL for (int k = 0; k < INT8_BLOCK; k += LANES) {
		vf v = v_load(x + k);
		most = v_max((vf)((vi)v & 0x7fffffff), most);
		spoiled = v_fma(v, v_set(0), spoiled); /* no number where v is not finite */
	}
	float largest = v_largest(most);
	bool finite = v_sum(spoiled) == 0, zero = !(largest >= 0x1p-119f);
	float inverse = !finite || zero ? 0 : 127 / largest;
	UNROLL for (int k = 0; k < INT8_BLOCK; k += LANES) {
		vi q = {0};
		if (finite)
			q = v_round(v_load(x + k) * v_set(inverse));
		b_put(out->q + k, q);
		total[k / FINE_BLOCK] += q;
	}
	int32_t half[2] = {0};
	begin_of(total, half, out->begin);
	out->d = !finite ? __builtin_nanf("") : zero ? 0 : largest / 127;
	out->sum = out->d * (float)(half[0] + half[1]);
	out->halves[0] = out->d * (float)half[0];
	out->halves[1] = out->d * (float)half[1];
}

static void pack(int type, const float *x, int n_rows, int n_in, int part, int n_parts, void *packed)
{
	struct int8_block *out = packed;
	int n_blocks = n_rows * (n_in / INT8_BLOCK);
	int from = (int)((int64_t)n_blocks * part / n_parts), to = (int)((int64_t)n_blocks * (part + 1) / n_parts);
	(void)type;
	for (int b = from; b < to; b++)
		quantize_block(x + (size_t)b * INT8_BLOCK, out + b);
}

/* ---- products ---- */

/* Where a tile's vectors of outputs are: both in one group, or in neighbouring ones. */
INLINE const uint8_t *vector_at(const uint8_t *panel, size_t group_bytes, int i)
{
	return panel + (size_t)(i * LANES / INT8_OUT) * group_bytes + i * LANES % INT8_OUT * 4;
}

INLINE vf scale_at(enum kind kind, const uint8_t *scales, size_t group_bytes, int i)
{
	if (kind == PLAIN)
		return v_f16(scales + i * LANES * 2);
	return v_load((const float *)(const void *)vector_at(scales, group_bytes, i));
}

/* Weights that are unpacked after this panel: they are asked for while it is multiplied, evenly, so that memory is never
 * idle. Of each group of a tile a stream, `each` bytes for every block of 32. */
struct ahead {
	const uint8_t *at[TILE_GROUPS];
	size_t each;
};

enum { LINE = 64 };

/* The next share of a stream. Some of it may lie behind the matrix: asking for what isn't there does nothing. */
INLINE const uint8_t *bring(const uint8_t *at, const uint8_t *to)
{
	for (; at < to; at += LINE)
		__builtin_prefetch(at);
	return at;
}

/* The sums of a block of a tile, or of half a block (p) of a fine one. */
INLINE void sum_words(const uint8_t *weights, size_t group_bytes, const struct int8_block *x, size_t x_step, enum kind kind, int p,
		      int words, int n_r, struct sums s[][VECTORS])
{
	const bool is_wide = kind == WIDE || kind == PLAIN;
	UNROLL for (int r = 0; r < n_r; r++)
		UNROLL for (int i = 0; i < VECTORS; i++)
			s[r][i] = is_wide ? wide_begin(&x[(size_t)r * x_step])
					       : sums_begin(&x[(size_t)r * x_step].begin[kind == FINE ? 2 + p : 0]);
	UNROLL for (int k = 0; k < words; k++) {
		vb w[VECTORS];
		UNROLL for (int i = 0; i < VECTORS; i++)
			w[i] = b_load(vector_at(weights + k * WORD, group_bytes, i));
		UNROLL for (int r = 0; r < n_r; r++) {
			vb xr = b_word(x[(size_t)r * x_step].q + 4 * (p * words + k));
			UNROLL for (int i = 0; i < VECTORS; i++)
				s[r][i] = is_wide ? wide_dot(s[r][i], w[i], xr) : sums_dot(s[r][i], w[i], xr);
		}
	}
}

/* The same of a wide panel's block with signs as masks. */
INLINE void sum_masked(const uint8_t *weights, const uint8_t *less, size_t group_bytes, const struct int8_block *x, size_t x_step,
		       int n_r, struct sums s[][VECTORS])
{
#ifdef WIDE_MASKED
	UNROLL for (int r = 0; r < n_r; r++)
		UNROLL for (int i = 0; i < VECTORS; i++)
			s[r][i] = masked_begin(vector_at(less, group_bytes, i));
	UNROLL for (int k = 0; k < 8; k++) {
		struct masked w[VECTORS];
		UNROLL for (int i = 0; i < VECTORS; i++)
			w[i] = masked_of(b_load(vector_at(weights + k * WORD, group_bytes, i)));
		UNROLL for (int r = 0; r < n_r; r++) {
			vb xr = b_word(x[(size_t)r * x_step].q + 4 * k);
			UNROLL for (int i = 0; i < VECTORS; i++)
				s[r][i] = masked_dot(s[r][i], w[i], xr);
		}
	}
#else
	(void)weights, (void)less, (void)group_bytes, (void)x, (void)x_step, (void)n_r, (void)s;
#endif
}

/* Blocks of 32 of a tile with n_r rows. All but pointers, steps and n_blocks are constants where this is
 * inlined. y has rows y_step apart, x x_step. */
INLINE void multiply_n(const uint8_t *panel, size_t group_bytes, const struct int8_block *x, size_t x_step, int n_blocks,
		       float *y, size_t y_step, const struct ahead *ahead, enum kind kind, bool has_offset, int n_r)
{
	const uint8_t *near[TILE_GROUPS];
	size_t brought = 0;
	memcpy(near, ahead->at, sizeof near);
	vf acc[TILE_ROWS][VECTORS];
	UNROLL for (int r = 0; r < n_r; r++)
		UNROLL for (int i = 0; i < VECTORS; i++)
			acc[r][i] = v_load(y + (size_t)r * y_step + i * LANES);
	const int parts = kind == FINE ? 2 : 1, words = 8 / parts;
	const bool is_wide = kind == WIDE || kind == PLAIN;
	for (int b = 0; b < n_blocks; b++, x++) {
		brought += ahead->each;
		UNROLL for (int g = 0; g < TILE_GROUPS; g++)
			near[g] = bring(near[g], ahead->at[g] + brought);
		UNROLL for (int p = 0; p < parts; p++, panel += panel_block(kind)) {
			const uint8_t *weights = panel + (kind == PLAIN ? HALVES : 0);
			const uint8_t *scales = kind == PLAIN ? panel : panel + words * WORD;
			struct sums s[TILE_ROWS][VECTORS];
			if (kind == WIDE && HAS_MASKED)
				sum_masked(weights, scales + SCALES, group_bytes, x, x_step, n_r, s);
			else
				sum_words(weights, group_bytes, x, x_step, kind, p, words, n_r, s);
			UNROLL for (int r = 0; r < n_r; r++) {
				const struct int8_block *xr = x + (size_t)r * x_step;
				vf d = v_set(xr->d);
				UNROLL for (int i = 0; i < VECTORS; i++) {
					vf sum = v_float(is_wide ? wide_end(s[r][i]) : sums_end(s[r][i]));
					acc[r][i] = v_fma(sum, scale_at(kind, scales, group_bytes, i) * d, acc[r][i]);
				}
				if (!has_offset)
					continue;
				vf total = v_set(kind == FINE ? xr->halves[p] : xr->sum);
				UNROLL for (int i = 0; i < VECTORS; i++)
					acc[r][i] = v_fma(scale_at(kind, scales + SCALES, group_bytes, i), total, acc[r][i]);
			}
		}
	}
	UNROLL for (int r = 0; r < n_r; r++)
		UNROLL for (int i = 0; i < VECTORS; i++)
			v_store(y + (size_t)r * y_step + i * LANES, acc[r][i]);
}

typedef void multiply_fn(const uint8_t *panel, size_t group_bytes, const struct int8_block *x, size_t x_step, int n_blocks,
			 float *y, size_t y_step, const struct ahead *ahead, int n_r);

#define CASE(n, most, of, ...)                                                                        \
	case n:                                                                                        \
		if ((n) <= (most))                                                                     \
			of(at, group_bytes, x, x_step, n_blocks, y, y_step, ahead, __VA_ARGS__, (n) < (most) ? (n) : (most)); \
		break;
/* A multiply_fn of `of`, whose constants are given, for at most so many rows. */
#define BY_ROWS(name, most, of, ...)                                                                   \
	static void name(const uint8_t *at, size_t group_bytes, const struct int8_block *x, size_t x_step, \
			 int n_blocks, float *y, size_t y_step, const struct ahead *ahead, int n_r)    \
	{                                                                                              \
		switch (n_r) {                                                                         \
			CASE(1, most, of, __VA_ARGS__)                                                 \
			CASE(2, most, of, __VA_ARGS__)                                                 \
			CASE(3, most, of, __VA_ARGS__)                                                 \
			CASE(4, most, of, __VA_ARGS__)                                                 \
			CASE(5, most, of, __VA_ARGS__)                                                 \
			CASE(6, most, of, __VA_ARGS__)                                                 \
		default: BUG_IF(true, "a tile of %d rows", n_r);                                       \
		}                                                                                      \
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

/* Where groups are as wide as tiles and nothing is added to weights, few rows take Q8_0 from where it lies. */
enum { PLAIN_Q8_0 = BIAS_WIDE == 0 && TILE_GROUPS == 1 };

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

INLINE int at_most(int n, int most)
{
	return n < most ? n : most;
}

/* Where the weights of a group begin, from k on, a multiple of the chunk. */
INLINE const uint8_t *weights_at(const struct job *j, int group, int k)
{
	return (const uint8_t *)j->w->data + (size_t)group * j->row_bytes * INT8_OUT + (size_t)(k / j->chunk) * j->chunk_bytes;
}

/* n weights from k on of the groups of a tile to its panel. */
static void fill(const struct job *j, int group, int n_groups, int k, int n, uint8_t *panel)
{
	for (int g = 0; g < n_groups; g++)
		j->type->unpack(weights_at(j, group + g, k), n, panel + (size_t)g * j->group_bytes);
}

/* A tile with all rows, K from k on. Outputs past the end are computed beside y and dropped. */
static void multiply_tile(const struct job *j, int o, int o1, int k, int n, const uint8_t *panel, const struct ahead *ahead, int r,
			  int n_r)
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

/* A tile's panel with all rows, of which there are few: it takes memory longer to bring weights than the processor to multiply
 * them, so the tile's next chunk along K, or behind the last one the next tile's first, is asked for meanwhile. */
static void multiply_few(const struct job *j, int o, int o1, int k, int n, size_t each, const uint8_t *panel)
{
	bool last = k + n >= j->w->n_in;
	const int group = (last ? o + VECTORS * LANES : o) / INT8_OUT, next_k = last ? 0 : k + n;
	struct ahead ahead = {.each = each};
	for (int r = 0, pass = 0; r < j->n_rows; r += TILE_ROWS, pass++) {
		for (int g = 0; g < TILE_GROUPS; g++)
			ahead.at[g] = weights_at(j, group + g, next_k) + (size_t)(pass * (n / INT8_BLOCK)) * each;
		multiply_tile(j, o, o1, k, n, panel, &ahead, r, at_most(j->n_rows - r, TILE_ROWS));
	}
}

/* No more rows than a tile has, of weights that need no panel: a whole row of the matrix at once. */
static void multiply_at_once(const struct job *j, int o0, int o1)
{
	const size_t group = j->row_bytes * INT8_OUT;
	struct job tile = *j;
	for (int o = o0; o < o1; o += VECTORS * LANES) {
		const uint8_t *weights = weights_at(j, o / INT8_OUT, 0);
		struct ahead ahead = {.each = group / j->n_blocks};
		/* Of the last tile there may be one group only: its outputs twice, and the second ones are dropped. */
		tile.group_bytes = o + (TILE_GROUPS - 1) * INT8_OUT < o1 ? group : 0;
		for (int g = 0; g < TILE_GROUPS; g++)
			ahead.at[g] = weights + (size_t)g * tile.group_bytes + AHEAD;
		multiply_tile(&tile, o, o1, 0, j->w->n_in, weights, &ahead, 0, j->n_rows);
	}
}

/* Panels of `used` tiles with all rows, of which there are many. */
static void multiply_many(const struct job *j, int o, int o1, int k, int n, int used, const uint8_t *panels)
{
	const struct ahead none = {.each = 0};
	for (int r = 0; r < j->n_rows; r += TILE_ROWS)
		for (int t = 0; t < used; t++)
			multiply_tile(j, o + t * VECTORS * LANES, o1, k, n, panels + (size_t)t * TILE_GROUPS * j->group_bytes, &none, r,
				      at_most(j->n_rows - r, TILE_ROWS));
}

static void matmul(const struct kn_weight *w, int o0, int o1, const void *packed, int n_rows, float *y, float *tile,
		   size_t tile_floats)
{
	enum { OUTPUTS = VECTORS * LANES };
	const struct type *type = &types[w->type & ~KN_INTERLEAVED];
	bool few = n_rows <= FEW_ROWS, plain = few && PLAIN_Q8_0 && (w->type & ~KN_INTERLEAVED) == KN_Q8_0;
	int chunk = at_most(w->n_in, few ? FEW_CHUNK : MANY_CHUNK), n_tiles = 1;
	struct job j = {.w = w, .type = type, .kind = plain ? PLAIN : type->kind, .chunk = chunk, .x = packed, .n_rows = n_rows, .y = y};
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
	/* Of what is asked for, with a block of 32 of a pass. */
	size_t n_passes = ((size_t)n_rows + TILE_ROWS - 1) / TILE_ROWS, each = j.chunk_bytes / (n_passes * (size_t)(chunk / INT8_BLOCK)) + 1;
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
			for (int t = 0; t < used && !plain; t++) {
				int from = o + t * OUTPUTS, n_groups = at_most((o1 - from + INT8_OUT - 1) / INT8_OUT, TILE_GROUPS);
				fill(&j, from / INT8_OUT, n_groups, k, n, panel + (size_t)t * tile_bytes);
			}
			if (few)
				multiply_few(&j, o, o1, k, n, each, plain ? weights_at(&j, o / INT8_OUT, k) : panel);
			else
				multiply_many(&j, o, o1, k, n, used, panel);
		}
	}
}
