/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaving (int8.h) permutes the file's bytes, alike for all instruction sets. A table of fields describes it, so a
 * single row can be restored.
 *
 * VERSIONS (one thread of an AVX2 machine, 8192 × 2048; memcpy 8.5 to 10 GB/s)
 *   1  this, word by word: Q8_0 5.0 GB/s, Q4_0 3.8, Q4_K 4.0, Q6_K 4.4. The limit of loading a file is the kernel's
 *      clearing of new pages, not this.
 */
#include <string.h>

#include "kernels/blocks.h"
#include "kernels/cpu/int8.h"
#include "kernels/quantize.h"

enum { MAX_FIELDS = 4, MOST_BYTES = 210 /* of a block */ };

/* n words of `size` bytes, starting at byte `at` of a block */
struct field {
	uint8_t at, n, size;
};

static const struct field fields[][MAX_FIELDS] = {
    [KN_Q4_0] = {{0, 1, 2}, {2, 4, 4}},
    [KN_Q4_1] = {{0, 2, 2}, {4, 4, 4}},
    [KN_Q5_0] = {{0, 1, 2}, {2, 1, 4}, {6, 4, 4}},
    [KN_Q5_1] = {{0, 2, 2}, {4, 1, 4}, {8, 4, 4}},
    [KN_Q8_0] = {{0, 1, 2}, {2, 8, 4}},
    [KN_Q2_K] = {{0, 16, 1}, {16, 16, 4}, {80, 2, 2}},
    [KN_Q3_K] = {{0, 8, 4}, {32, 16, 4}, {96, 12, 1}, {108, 1, 2}},
    [KN_Q4_K] = {{0, 2, 2}, {4, 12, 1}, {16, 32, 4}},
    [KN_Q5_K] = {{0, 2, 2}, {4, 12, 1}, {16, 8, 4}, {48, 32, 4}},
    [KN_Q6_K] = {{0, 32, 4}, {128, 16, 4}, {192, 16, 1}, {208, 1, 2}},
    [KN_IQ4_NL] = {{0, 1, 2}, {2, 4, 4}},
    [KN_IQ4_XS] = {{0, 2, 2}, {4, 4, 1}, {8, 32, 4}},
    [KN_MXFP4] = {{0, 1, 1}, {1, 4, 4}},
};

enum { N_FIELDS = sizeof fields / sizeof fields[0] };

bool kn_int8_has(int type) { return type >= 0 && type < N_FIELDS && fields[type][0].n > 0; }

bool kn_int8_packs(int type) { return (type & KN_INTERLEAVED) != 0; }

size_t kn_int8_packed_bytes(int n_rows, int n_in)
{
	return (size_t)n_rows * ((size_t)n_in / INT8_BLOCK + 1) * sizeof(struct int8_block);
}

size_t kn_interleaved_bytes(int type, int n_out, int n_in)
{
	size_t groups = ((size_t)n_out + INT8_OUT - 1) / INT8_OUT;
	return groups * INT8_OUT * kn_row_bytes(type, (size_t)n_in);
}

/* The words of one field, of all outputs of a group. rows[o] points at the block. */
INLINE uint8_t *put_words(const uint8_t *const *rows, struct field f, size_t size, uint8_t *out)
{
	for (size_t i = 0; i < f.n; i++)
		UNROLL_FOR(int o = 0; o < INT8_OUT; o++, out += size)
			memcpy(out, rows[o] + f.at + i * size, size);
	return out;
}

void kn_interleave(const uint8_t *host, int type, int n_out, int n_in, int g0, int g1, uint8_t *out)
{
	static const uint8_t zeros[MOST_BYTES];
	size_t bytes = kn_type_block_bytes(type), row = kn_row_bytes(type, (size_t)n_in);
	const struct field *all = fields[type];
	for (int g = g0; g < g1; g++) {
		const uint8_t *rows[INT8_OUT];
		size_t step[INT8_OUT];
		uint8_t *to = out + (size_t)g * INT8_OUT * row;
		for (int o = 0; o < INT8_OUT; o++) {
			bool there = g * INT8_OUT + o < n_out;
			rows[o] = there ? host + (size_t)(g * INT8_OUT + o) * row : zeros;
			step[o] = there ? bytes : 0;
		}
		for (size_t at = 0; at < row; at += bytes) {
			for (int i = 0; i < MAX_FIELDS && all[i].n > 0; i++)
				to = all[i].size == 4   ? put_words(rows, all[i], 4, to)
				     : all[i].size == 2 ? put_words(rows, all[i], 2, to)
							: put_words(rows, all[i], 1, to);
			for (int o = 0; o < INT8_OUT; o++)
				rows[o] += step[o];
		}
	}
}

void kn_interleaved_row(const struct kn_weight *w, int row, float *y)
{
	int type = w->type & ~KN_INTERLEAVED;
	size_t bytes = kn_type_block_bytes(type), whole = kn_row_bytes(type, (size_t)w->n_in),
	       of_group = (size_t)(row % INT8_OUT);
	size_t block = (size_t)kn_type_block(type);
	const uint8_t *at = (const uint8_t *)w->data + (size_t)(row / INT8_OUT) * INT8_OUT * whole;
	for (size_t k = 0; k < (size_t)w->n_in; k += block, y += block) {
		uint8_t plain[MOST_BYTES];
		for (int i = 0; i < MAX_FIELDS && fields[type][i].n > 0; i++) {
			struct field f = fields[type][i];
			for (size_t n = 0; n < f.n; n++, at += (size_t)f.size * INT8_OUT)
				memcpy(plain + f.at + n * f.size, at + of_group * f.size, f.size);
		}
		kn_dequantize(type, plain, block, y);
	}
	BUG_IF(bytes > MOST_BYTES, "a block of %zu bytes", bytes);
}
