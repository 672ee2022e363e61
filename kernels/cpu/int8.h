/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantized weights with eight-bit activations: the shared memory layout. int8_layout.c interleaves
 * weights, simd_int8.h (int8_avx2.c, int8_vnni.c) quantizes activations and multiplies, int8_amx_vnni.c does so for
 * many rows. All give the same bits.
 *
 * Weights are interleaved on load: INT8_OUT adjacent outputs form a group, which has the fields of the file's blocks
 * (blocks.h) for all of them, word by word: a field of n words of 1, 2 or 4 bytes becomes [n][INT8_OUT]. So one
 * vector has the same four weights along K of several outputs, nothing is added across lanes, and a group is read as
 * one stream. The size is that of the file's rows; the last group is padded with zeros.
 *
 * Activations become, for each 32 of a row, integers q of eight bits and a scale d = max |x| / 127 (struct int8_block).
 * The error of a product is at most half a step d for each activation, Σ_k |w_k| d_k / 2, plus float32 rounding: sums
 * within 32 are exact.
 */
#ifndef KERNELS_CPU_INT8_H
#define KERNELS_CPU_INT8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/isa.h"

enum { INT8_OUT = 16, INT8_BLOCK = 32 };

/* Name and version of the interleaved layout, the same for every instruction set. Any change of bytes requires a new
 * number: cache files have it in their names. */
#define KN_INT8_LAYOUT "int8-16/1"

/* Added to the number of a type whose weights are interleaved (kn_weight.type). */
enum { KN_INTERLEAVED = 1 << 8 };

/* 32 activations of a row. An activation is d·q; d is NaN if any of them is not finite. Blocks whose largest magnitude
 * is below 2^-119 count as zeros. */
struct int8_block {
	int8_t q[INT8_BLOCK];
	float d;
	float sum;       /* d · Σ q */
	float halves[2]; /* the same of 16 each */
	/* Initial values of sums with unsigned weights: [0] for all 32, [2] and [3] for 16 each; the instruction set
	 * defines them. */
	int32_t begin[4];
};

/* ---- int8_layout.c ---- */

bool kn_int8_has(int type);
/* Bytes of a matrix, interleaved. n_in is a multiple of the type's block. */
size_t kn_interleaved_bytes(int type, int n_out, int n_in);
/* Interleaves groups [g0, g1) of the matrix at `host`, in the file's layout, into `out`. */
void kn_interleave(const uint8_t *host, int type, int n_out, int n_in, int g0, int g1, uint8_t *out);
/* A row of an interleaved matrix in float32. */
void kn_interleaved_row(const struct kn_weight *w, int row, float *y);

/* ---- the instruction sets: members of struct kn_isa ---- */

bool kn_int8_packs(int type);
size_t kn_int8_packed_bytes(int n_rows, int n_in);
/* AMX (kn_int8_*_amx) gives VNNI's bits. */
size_t kn_int8_packed_bytes_amx(int n_rows, int n_in);
kn_pack_fn kn_int8_pack_avx2, kn_int8_pack_vnni, kn_int8_pack_amx;
kn_matmul_packed_fn kn_int8_matmul_avx2, kn_int8_matmul_vnni, kn_int8_matmul_amx;

#define KN_EIGHT_BITS(set, bytes)                                                  \
	.packs = kn_int8_packs, .packed_bytes = bytes, .pack = kn_int8_pack_##set, \
	.matmul_packed = kn_int8_matmul_##set, .packs_alike = true, .interleaves = kn_int8_has

#endif
