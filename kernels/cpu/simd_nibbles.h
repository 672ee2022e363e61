/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of few rows with 4- to 6-bit weights, read directly from memory: no panel is written and read again, which
 * for one row costs more than the products. simd_int8.h includes this; an instruction set's file defines, besides what
 * that header lists,
 *
 *   sums_eights sums_zero        sums that begin at -8 · Σ q of the activations, and at zero
 *   HIGH_IN_PLACE                1 if sums of weights up to 240 are exact, 0 otherwise
 *   DIRECT_K_ROWS                the most rows of the K types whose sums fit the registers
 *
 * The bits are those of panels: integer sums are exact, and the operations after them are the same in the same order.
 */

/* ---- sums of 32, and of 16 ---- */

typedef uint16_t vs __attribute__((vector_size(4 * LANES)));

/* Words 0 to 3 in the low nibbles, 4 to 7 in the high ones; table: their values, NULL: nibbles are the weights. */
INLINE void dot_low_high(const uint8_t *qs, const vb *table, size_t group_bytes, const struct int8_block *x,
			 size_t x_step, struct sums (*s)[VECTORS], int n_r)
{
	UNROLL_FOR(int k = 0; k < 4; k++) {
		vb low[VECTORS], high[VECTORS];
		UNROLL_FOR(int i = 0; i < VECTORS; i++) {
			vb q = b_load(vector_at(qs + k * WORD, group_bytes, i));
			low[i] = table != NULL ? b_lookup(*table, q & 15) : q & 15;
			high[i] = table != NULL ? b_lookup(*table, q >> 4) : q >> 4;
		}
		UNROLL_FOR(int r = 0; r < n_r; r++) {
			const int8_t *xq = x[(size_t)r * x_step].q + 4 * k;
			vb x_low = b_word(xq), x_high = b_word(xq + 16);
			UNROLL_FOR(int i = 0; i < VECTORS; i++)
				s[r][i] = sums_dot(sums_dot(s[r][i], low[i], x_low), high[i], x_high);
		}
	}
}

/* Moves bits 2j and 2j + 1 of every byte to bits 4 and 5, or bit j to bit 4. There are no byte shifts; bits that 16-bit
 * shifts bring from the neighbouring byte are masked. */
INLINE vb two_above(vb bits, int j)
{
	return (j < 2 ? (vb)((vs)bits << (4 - 2 * j)) : (vb)((vs)bits >> (2 * j - 4))) & 48;
}

INLINE vb one_above(vb bits, int j) { return (j < 4 ? (vb)((vs)bits << (4 - j)) : (vb)((vs)bits >> (j - 4))) & 16; }

/* Two adjacent blocks of a K type: the low nibbles of eight words, and the high ones. fifth: with bits 2g and 2g + 1 of
 * the words at qh. Without it, high nibbles stay where they are (HIGH_IN_PLACE): their sums are sixteen times as large.
 */
INLINE void dot_pair(bool fifth, const uint8_t *qs, const uint8_t *qh, int g, size_t group_bytes,
		     const struct int8_block *x, size_t x_step, struct sums (*s)[TILE_ROWS][VECTORS], int n_r)
{
	UNROLL_FOR(int k = 0; k < 8; k++) {
		vb low[VECTORS], high[VECTORS];
		UNROLL_FOR(int i = 0; i < VECTORS; i++) {
			vb q = b_load(vector_at(qs + k * WORD, group_bytes, i));
			low[i] = q & 15;
			high[i] = HIGH_IN_PLACE && !fifth ? q & 240 : q >> 4;
			if (!fifth)
				continue;
			vb bits = b_load(vector_at(qh + k * WORD, group_bytes, i));
			low[i] |= one_above(bits, 2 * g);
			high[i] |= one_above(bits, 2 * g + 1);
		}
		UNROLL_FOR(int r = 0; r < n_r; r++) {
			const struct int8_block *xr = x + (size_t)r * x_step;
			vb x_low = b_word(xr[0].q + 4 * k), x_high = b_word(xr[1].q + 4 * k);
			UNROLL_FOR(int i = 0; i < VECTORS; i++) {
				s[0][r][i] = sums_dot(s[0][r][i], low[i], x_low);
				s[1][r][i] = sums_dot(s[1][r][i], high[i], x_high);
			}
		}
	}
}

/* Four words of Q6_K by the activations from `from` on: the low or the high nibbles, with two bits from 2j on of a word
 * of `above` each. */
INLINE void dot_sixes(const uint8_t *qs, const uint8_t *above, int j, size_t group_bytes, const struct int8_block *x,
		      int from, size_t x_step, struct sums (*s)[VECTORS], int n_r)
{
	UNROLL_FOR(int k = 0; k < 4; k++) {
		vb w[VECTORS];
		UNROLL_FOR(int i = 0; i < VECTORS; i++) {
			vb q = b_load(vector_at(qs + k * WORD, group_bytes, i));
			vb bits = b_load(vector_at(above + k * WORD, group_bytes, i));
			w[i] = (j >= 2 ? q >> 4 : q & 15) | two_above(bits, j);
		}
		UNROLL_FOR(int r = 0; r < n_r; r++) {
			vb xr = b_word(x[(size_t)r * x_step].q + from + 4 * k);
			UNROLL_FOR(int i = 0; i < VECTORS; i++)
				s[r][i] = sums_dot(s[r][i], w[i], xr);
		}
	}
}

/* ---- scales ---- */

/* Integers of a tile's vector of outputs, as floats; `at` is the group's first. */
INLINE vf eights_at(const uint8_t *at, size_t group_bytes, int i)
{
	return v_float(v_i8(at + (size_t)(i * LANES / INT8_OUT) * group_bytes + i * LANES % INT8_OUT));
}

/* Adds a block of 32 to its rows; sums are 2^shift times as large as they should be. */
INLINE void add_block(vf (*acc)[VECTORS], struct sums (*s)[VECTORS], int shift, const vf *scale, const vf *offset,
		      const struct int8_block *x, size_t x_step, int n_r)
{
	UNROLL_FOR(int r = 0; r < n_r; r++) {
		vf d = v_set(x[(size_t)r * x_step].d), total = v_set(x[(size_t)r * x_step].sum);
		UNROLL_FOR(int i = 0; i < VECTORS; i++)
			acc[r][i] = v_fma(v_float(sums_end(s[r][i]) >> shift), scale[i] * d, acc[r][i]);
		if (offset == NULL)
			continue;
		UNROLL_FOR(int i = 0; i < VECTORS; i++)
			acc[r][i] = v_fma(offset[i], total, acc[r][i]);
	}
}

/* Prefetches `bytes` more of each group's stream while this is multiplied. */
struct stream {
	const uint8_t *near[TILE_GROUPS];
	const uint8_t *to[TILE_GROUPS];
};

INLINE void bring_more(struct stream *m, size_t bytes)
{
	UNROLL_FOR(int g = 0; g < TILE_GROUPS; g++) {
		m->to[g] += bytes;
		m->near[g] = bring(m->near[g], m->to[g]);
	}
}

/* ---- blocks of the types ---- */

INLINE void take_q4_0(const uint8_t *at, size_t group_bytes, const struct int8_block *x, size_t x_step,
		      vf (*acc)[VECTORS], struct stream *more, int n_r)
{
	struct sums s[TILE_ROWS][VECTORS];
	vf scale[VECTORS];
	bring_more(more, HALVES + WORDS_4);
	UNROLL_FOR(int r = 0; r < n_r; r++)
		UNROLL_FOR(int i = 0; i < VECTORS; i++)
			s[r][i] = sums_eights(&x[(size_t)r * x_step].begin[0]);
	dot_low_high(at + HALVES, NULL, group_bytes, x, x_step, s, n_r);
	UNROLL_FOR(int i = 0; i < VECTORS; i++)
		scale[i] = v_f16(halves_at(at, group_bytes, i));
	add_block(acc, s, 0, scale, NULL, x, x_step, n_r);
}

INLINE void take_q4_1(const uint8_t *at, size_t group_bytes, const struct int8_block *x, size_t x_step,
		      vf (*acc)[VECTORS], struct stream *more, int n_r)
{
	struct sums s[TILE_ROWS][VECTORS];
	vf scale[VECTORS], offset[VECTORS];
	bring_more(more, 2 * HALVES + WORDS_4);
	UNROLL_FOR(int r = 0; r < n_r; r++)
		UNROLL_FOR(int i = 0; i < VECTORS; i++)
			s[r][i] = sums_zero();
	dot_low_high(at + 2 * HALVES, NULL, group_bytes, x, x_step, s, n_r);
	UNROLL_FOR(int i = 0; i < VECTORS; i++) {
		scale[i] = v_f16(halves_at(at, group_bytes, i));
		offset[i] = v_f16(halves_at(at + HALVES, group_bytes, i));
	}
	add_block(acc, s, 0, scale, offset, x, x_step, n_r);
}

INLINE void take_mxfp4(const uint8_t *at, const vb *table, size_t group_bytes, const struct int8_block *x,
		       size_t x_step, vf (*acc)[VECTORS], struct stream *more, int n_r)
{
	struct sums s[TILE_ROWS][VECTORS];
	vf scale[VECTORS];
	bring_more(more, INT8_OUT + WORDS_4);
	UNROLL_FOR(int r = 0; r < n_r; r++)
		UNROLL_FOR(int i = 0; i < VECTORS; i++)
			s[r][i] = sums_begin(&x[(size_t)r * x_step].begin[0]);
	dot_low_high(at + INT8_OUT, table, group_bytes, x, x_step, s, n_r);
	UNROLL_FOR(int i = 0; i < VECTORS; i++)
		scale[i] = v_e8m0_half(at + (size_t)(i * LANES / INT8_OUT) * group_bytes + i * LANES % INT8_OUT);
	add_block(acc, s, 0, scale, NULL, x, x_step, n_r);
}

/* Eight blocks of 32 of Q4_K, or of Q5_K, whose weights have a fifth bit and an offset of -16. */
INLINE void take_k(bool fifth, const uint8_t *at, size_t group_bytes, const struct int8_block *x, size_t x_step,
		   vf (*acc)[VECTORS], struct stream *more, int n_r)
{
	const uint8_t *sc = at + 2 * HALVES, *qh = sc + 12 * INT8_OUT, *qs = qh + (fifth ? 8 * WORD : 0);
	struct k_scales scales[TILE_GROUPS];
	vf d[VECTORS], m[VECTORS];
	UNROLL_FOR(int i = 0; i < TILE_GROUPS; i++)
		scales_of_k(sc + (size_t)i * group_bytes, scales[i].scale, scales[i].min);
	UNROLL_FOR(int i = 0; i < VECTORS; i++) {
		d[i] = v_f16(halves_at(at, group_bytes, i));
		m[i] = v_set(-1) * v_f16(halves_at(at + HALVES, group_bytes, i));
	}
	UNROLL_FOR(int g = 0; g < 4; g++, x += 2) {
		struct sums s[2][TILE_ROWS][VECTORS];
		bring_more(more, (size_t)(2 * HALVES + 12 * INT8_OUT + (fifth ? 40 : 32) * WORD) / 4);
		UNROLL_FOR(int p = 0; p < 2; p++)
			UNROLL_FOR(int r = 0; r < n_r; r++)
				UNROLL_FOR(int i = 0; i < VECTORS; i++)
					s[p][r][i] = fifth ? sums_begin(&x[(size_t)r * x_step + (size_t)p].begin[0])
							   : sums_zero();
		dot_pair(fifth, qs + g * 8 * WORD, qh, g, group_bytes, x, x_step, s, n_r);
		UNROLL_FOR(int p = 0; p < 2; p++) {
			vf scale[VECTORS], offset[VECTORS];
			UNROLL_FOR(int i = 0; i < VECTORS; i++) {
				scale[i] =
				    d[i] * eights_at(scales[0].scale + (2 * g + p) * INT8_OUT, sizeof scales[0], i);
				offset[i] =
				    m[i] * eights_at(scales[0].min + (2 * g + p) * INT8_OUT, sizeof scales[0], i);
				if (fifth)
					offset[i] = v_fma(scale[i], v_set(16), offset[i]);
			}
			add_block(acc, s[p], HIGH_IN_PLACE && !fifth && p == 1 ? 4 : 0, scale, offset, x + p, x_step,
				  n_r);
		}
	}
}

/* Eight blocks of 32, each with two runs of 16 that have a scale each. */
INLINE void take_q6_k(const uint8_t *at, size_t group_bytes, const struct int8_block *x, size_t x_step,
		      vf (*acc)[VECTORS], struct stream *more, int n_r)
{
	const uint8_t *qh = at + 32 * WORD, *sc = qh + 16 * WORD, *d = sc + 16 * INT8_OUT;
	for (int h = 0; h < 2; h++, at += 16 * WORD, qh += 8 * WORD, sc += 8 * INT8_OUT) {
		UNROLL_FOR(int b = 0; b < 8; b++) {
			struct sums s[TILE_ROWS][VECTORS];
			vf scale[VECTORS];
			const int j = b / 2, p = b % 2;
			bring_more(more, 210 * INT8_OUT / 16);
			UNROLL_FOR(int r = 0; r < n_r; r++)
				UNROLL_FOR(int i = 0; i < VECTORS; i++)
					s[r][i] = sums_begin(&x[(size_t)r * x_step].begin[2 + p]);
			dot_sixes(at + (8 * (j % 2) + 4 * p) * WORD, qh + 4 * p * WORD, j, group_bytes, x,
				  FINE_BLOCK * p, x_step, s, n_r);
			UNROLL_FOR(int i = 0; i < VECTORS; i++)
				scale[i] =
				    v_f16(halves_at(d, group_bytes, i)) * eights_at(sc + b * INT8_OUT, group_bytes, i);
			add_block(acc, s, 0, scale, NULL, x, x_step, n_r);
			x += p;
		}
	}
}

/* ---- a tile ---- */

/* As multiply_n, directly from interleaved weights; `type` is a constant where this is inlined. */
INLINE void direct_n(const uint8_t *at, size_t group_bytes, const struct int8_block *x, size_t x_step, int n_blocks,
		     float *y, size_t y_step, const struct ahead *ahead, int type, int n_r)
{
	const size_t bytes = kn_type_block_bytes(type) * INT8_OUT;
	const int step = (int)(kn_type_block(type) / INT8_BLOCK);
	const vb table = type == KN_MXFP4 ? table_of(kn_fp4_values, BIAS_NARROW) : (vb){0};
	struct stream more;
	memcpy(more.near, ahead->at, sizeof more.near);
	memcpy(more.to, ahead->at, sizeof more.to);
	vf acc[TILE_ROWS][VECTORS];
	UNROLL_FOR(int r = 0; r < n_r; r++)
		UNROLL_FOR(int i = 0; i < VECTORS; i++)
			acc[r][i] = v_load(y + (size_t)r * y_step + i * LANES);
	for (int b = 0; b < n_blocks; b += step, x += step, at += bytes) {
		if (b == ahead->turn) {
			UNROLL_FOR(int g = 0; g < TILE_GROUPS; g++) {
				more.near[g] += ahead->skip;
				more.to[g] += ahead->skip;
			}
		}
		switch (type) {
		case KN_Q4_0: take_q4_0(at, group_bytes, x, x_step, acc, &more, n_r); break;
		case KN_Q4_1: take_q4_1(at, group_bytes, x, x_step, acc, &more, n_r); break;
		case KN_MXFP4: take_mxfp4(at, &table, group_bytes, x, x_step, acc, &more, n_r); break;
		case KN_Q6_K: take_q6_k(at, group_bytes, x, x_step, acc, &more, n_r); break;
		default: take_k(type == KN_Q5_K, at, group_bytes, x, x_step, acc, &more, n_r); break;
		}
	}
	UNROLL_FOR(int r = 0; r < n_r; r++)
		UNROLL_FOR(int i = 0; i < VECTORS; i++)
			v_store(y + (size_t)r * y_step + i * LANES, acc[r][i]);
}

BY_ROWS(direct_q4_0, TILE_ROWS, direct_n, KN_Q4_0)
BY_ROWS(direct_q4_1, TILE_ROWS, direct_n, KN_Q4_1)
BY_ROWS(direct_mxfp4, TILE_ROWS, direct_n, KN_MXFP4)
BY_ROWS(direct_q4_k, DIRECT_K_ROWS, direct_n, KN_Q4_K)
BY_ROWS(direct_q5_k, DIRECT_K_ROWS, direct_n, KN_Q5_K)
BY_ROWS(direct_q6_k, DIRECT_K_ROWS, direct_n, KN_Q6_K)

/* NULL: unsupported type, or so many rows gain nothing. */
static multiply_fn *direct_of(int type, int n_rows)
{
	if (n_rows > (kn_type_block(type) == INT8_BLOCK ? TILE_ROWS : DIRECT_K_ROWS))
		return NULL;
	switch (type) {
	case KN_Q4_0: return direct_q4_0;
	case KN_Q4_1: return direct_q4_1;
	case KN_MXFP4: return direct_mxfp4;
	case KN_Q4_K: return direct_q4_k;
	case KN_Q5_K: return direct_q5_k;
	case KN_Q6_K: return direct_q6_k;
	default: return NULL;
	}
}
