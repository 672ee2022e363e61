/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a shared object of the emulation deals a warp's matrices to its lanes as the instruction set does. The places
 * are from the manual (PTX ISA 8.5, "Matrix fragments for mma.m16n8k16 with floating point type" and "ldmatrix"),
 * written here apart from the emulation, which has them in its own words.
 *
 *   A, 16 × 16, elements a0…a7 of a lane: row groupID, or groupID + 8 for a2, a3, a6, a7; column 2 · threadID_in_group plus
 *      the element's lowest bit, plus 8 from a4 on.
 *   B, 16 × 8, elements b0…b3: row 2 · threadID_in_group plus the lowest bit, plus 8 from b2 on; column groupID.
 *   C and D, 16 × 8, elements c0…c3: row groupID, or groupID + 8 from c2 on; column 2 · threadID_in_group plus the lowest bit.
 *   groupID = laneid >> 2, threadID_in_group = laneid % 4.
 *   ldmatrix.x4: addresses of lanes 8i…8i+7 are the rows of matrix i, which goes to register i. Lane l gets elements 2 · (l %
 *      4) and the next of row l / 4; with .trans, of column l / 4.
 */
#ifndef TESTS_KERNELS_FRAGMENTS_H
#define TESTS_KERNELS_FRAGMENTS_H

#include <stdint.h>
#include <string.h>

#include "tests/support/backends.h"

enum { LANES = 32 };

/* Relative to groupID and to 2 · threadID_in_group. */
struct place {
	int row, column;
};

static const struct place places_a[8] = {{0, 0}, {0, 1}, {8, 0}, {8, 1}, {0, 8}, {0, 9}, {8, 8}, {8, 9}};
static const struct place places_b[4] = {{0, 0}, {1, 0}, {8, 0}, {9, 0}};
static const struct place places_d[4] = {{0, 0}, {0, 1}, {8, 0}, {8, 1}};

/* Small whole numbers, whose products and sums are exact, in both formats of 16 bits. */
static inline uint16_t whole_bits(int v, int bf16)
{
	int sign = v < 0 ? 0x8000 : 0, left = v < 0 ? -v : v, exponent = 0;
	if (left == 0)
		return 0;
	while (left >> (exponent + 1) > 0)
		exponent++;
	int fraction = left - (1 << exponent);
	return (uint16_t)(bf16 ? sign | (127 + exponent) << 7 | fraction << 7 >> exponent
			       : sign | (15 + exponent) << 10 | fraction << 10 >> exponent);
}

static inline const char *check_products(const char *(*mma)(int, uint32_t (*)[4], uint32_t (*)[2], float (*)[4]),
					 int bf16)
{
	static uint32_t a[LANES][4], b[LANES][2];
	static float d[LANES][4];
	int x[16][16], y[16][8];
	for (int i = 0; i < 16; i++)
		for (int k = 0; k < 16; k++) {
			x[i][k] = (i * 31 + k * 17 + i * k) % 41 - 20;
			y[k][i % 8] = (k * 23 + i % 8 * 11 + k * (i % 8) * 3) % 37 - 18;
		}
	memset(a, 0, sizeof a);
	memset(b, 0, sizeof b);
	for (int lane = 0; lane < LANES; lane++) {
		int group = lane >> 2, in_group = lane % 4;
		for (int i = 0; i < 8; i++)
			a[lane][i / 2] |=
			    (uint32_t)whole_bits(x[group + places_a[i].row][2 * in_group + places_a[i].column], bf16)
			    << 16 * (i % 2);
		for (int i = 0; i < 4; i++)
			b[lane][i / 2] |= (uint32_t)whole_bits(y[2 * in_group + places_b[i].row][group], bf16)
					  << 16 * (i % 2);
		for (int i = 0; i < 4; i++)
			d[lane][i] = (float)(lane * 4 + i);
	}
	const char *wrong = mma(bf16, a, b, d);
	for (int lane = 0; lane < LANES && wrong == NULL; lane++)
		for (int i = 0; i < 4; i++) {
			int row = (lane >> 2) + places_d[i].row, column = 2 * (lane % 4) + places_d[i].column;
			int sum = lane * 4 + i;
			for (int k = 0; k < 16; k++)
				sum += x[row][k] * y[k][column];
			if (d[lane][i] != (float)sum)
				wrong = "a lane has another element of a product";
		}
	return wrong;
}

static inline const char *check_matrices(const char *(*ldmatrix)(int, const uint16_t *, uint32_t (*)[4]), int turned)
{
	static uint32_t pairs[LANES][4];
	uint16_t m[4][8][8];
	for (int i = 0; i < 4; i++)
		for (int row = 0; row < 8; row++)
			for (int k = 0; k < 8; k++)
				m[i][row][k] = (uint16_t)(1000 * i + 100 * row + k);
	const char *wrong = ldmatrix(turned, &m[0][0][0], pairs);
	for (int lane = 0; lane < LANES && wrong == NULL; lane++)
		for (int i = 0; i < 4; i++)
			for (int e = 0; e < 2; e++) {
				int line = lane / 4, at = 2 * (lane % 4) + e;
				uint16_t want = turned ? m[i][at][line] : m[i][line][at];
				if ((uint16_t)(pairs[lane][i] >> 16 * e) != want)
					wrong = "a lane has another element of a matrix";
			}
	return wrong;
}

/* NULL, or the first thing that is wrong with the object at path, which is open. */
static inline const char *check_fragments(const char *path)
{
	const char *(*mma)(int, uint32_t(*)[4], uint32_t(*)[2], float(*)[4]);
	const char *(*ldmatrix)(int, const uint16_t *, uint32_t(*)[4]);
	void *functions[] = {backend_function(path, "sluice_emulation_mma"),
			     backend_function(path, "sluice_emulation_ldmatrix")};
	const char *wrong = NULL;
	if (functions[0] == NULL || functions[1] == NULL)
		return "the emulation has no probes";
	memcpy(&mma, &functions[0], sizeof mma);
	memcpy(&ldmatrix, &functions[1], sizeof ldmatrix);
	for (int way = 0; way < 2 && wrong == NULL; way++) {
		wrong = check_products(mma, way);
		if (wrong == NULL)
			wrong = check_matrices(ldmatrix, way);
	}
	return wrong;
}

#endif
