/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts float32 to blocks of 256, whose runs of 16 or 32 have small integer scales relative to one float16. Each run
 * is fitted alone; the largest scale gives the float16. Each run then takes the neighbouring stored scale (and minimum)
 * with the least error, and its values are quantized with it.
 */
#include "kernels/quantize_blocks.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "kernels/blocks.h"
#include "kernels/quantize_fit.h"

enum { BLOCK = KN_K_BLOCK, MAX_RUNS = 16 };

/* ---- one signed scale to a run ---- */

/* The float16 at d_at, a stored scale of each run from -extent to extent - 1, the index of each value. */
static int on_grid(const struct kn_grid *g, int run, int extent, const float *x, uint8_t *d_at, int *sc, uint8_t *q)
{
	float scale[MAX_RUNS], most = 0, d;
	int n_runs = BLOCK / run;
	for (int j = 0; j < n_runs; j++) {
		scale[j] = kn_fit_scale(g, x + j * run, run);
		most = fabsf(scale[j]) > fabsf(most) ? scale[j] : most;
	}
	int rc = kn_put_f16(d_at, -most / (float)extent, &d);
	for (int j = 0; j < n_runs; j++, x += run, q += run) {
		int near = kn_round_to(kn_over(scale[j], d), -extent, extent - 1);
		float best = -1;
		for (int s = near - 1; s <= near + 1; s++) {
			if (s < -extent || s >= extent)
				continue;
			float error = kn_scale_error(g, x, run, d * (float)s);
			if (best < 0 || error < best) {
				best = error;
				sc[j] = s;
			}
		}
		for (int i = 0; i < run; i++)
			q[i] = (uint8_t)kn_grid_index(g, kn_over(x[i], d * (float)sc[j]));
	}
	return rc;
}

void kn_pack_q6_k(const uint8_t *q, uint8_t *at)
{
	uint8_t *ql = at, *qh = at + 128;
	memset(qh, 0, 64);
	for (int h = 0; h < 2; h++, ql += 64, qh += 32)
		for (int l = 0; l < 64; l++) {
			int low = q[128 * h + l], high = q[128 * h + 64 + l];
			ql[l] = (uint8_t)((low & 15) | (high & 15) << 4);
			qh[l % 32] |= (uint8_t)(low >> 4 << l / 32 * 2 | high >> 4 << (l / 32 * 2 + 4));
		}
}

int kn_encode_q6_k(const float *x, uint8_t *at)
{
	uint8_t q[BLOCK];
	int sc[MAX_RUNS];
	int rc = on_grid(&(struct kn_grid){.lowest = -32, .n = 64}, 16, 128, x, at + 208, sc, q);
	kn_pack_q6_k(q, at);
	for (int j = 0; j < 16; j++)
		at[192 + j] = (uint8_t)sc[j];
	return rc;
}

/* The lower two bits of 256 indices in 64 bytes. */
static void put_twos(uint8_t *qs, const uint8_t *q)
{
	memset(qs, 0, 64);
	for (int i = 0; i < BLOCK; i++)
		qs[i / 128 * 32 + i % 32] |= (uint8_t)((q[i] & 3) << i / 32 % 4 * 2);
}

void kn_pack_q3_k(const uint8_t *q, uint8_t *at)
{
	memset(at, 0, 32);
	for (int i = 0; i < BLOCK; i++)
		at[i % 32] |= (uint8_t)(q[i] >> 2 << i / 32);
	put_twos(at + 32, q);
}

int kn_encode_q3_k(const float *x, uint8_t *at)
{
	uint8_t q[BLOCK];
	int sc[MAX_RUNS];
	int rc = on_grid(&(struct kn_grid){.lowest = -4, .n = 8}, 16, 32, x, at + 108, sc, q);
	kn_pack_q3_k(q, at);
	memset(at + 96, 0, 12);
	for (int j = 0; j < 16; j++) {
		int s = sc[j] + 32;
		at[96 + j % 8] |= (uint8_t)((s & 15) << j / 8 * 4);
		at[104 + j % 4] |= (uint8_t)(s >> 4 << j / 4 * 2);
	}
	return rc;
}

int kn_encode_iq4_xs(const float *x, uint8_t *at)
{
	uint8_t q[BLOCK];
	int sc[MAX_RUNS], high = 0;
	int rc = on_grid(&(struct kn_grid){.values = kn_nl_values, .n = 16}, 32, 32, x, at, sc, q);
	memset(at + 2, 0, 6);
	for (int j = 0; j < 8; j++) {
		int s = sc[j] + 32;
		high |= s >> 4 << 2 * j;
		at[4 + j / 2] |= (uint8_t)((s & 15) << j % 2 * 4);
		kn_put_nibbles(at + 8 + 16 * j, q + 32 * j);
	}
	at[2] = (uint8_t)high;
	at[3] = (uint8_t)(high >> 8);
	return rc;
}

/* ---- a scale and a minimum to a run ---- */

/* The float16 of scales at d_at and that of minimums behind it, stored scales and minimums from 0 to
 * extent, the index of each value from 0 to max. */
static int affine(int max, int run, int extent, const float *x, uint8_t *d_at, int *sc, int *mn, uint8_t *q)
{
	float scale[MAX_RUNS], offset[MAX_RUNS], most = 0, least = 0, d, m;
	int n_runs = BLOCK / run;
	for (int j = 0; j < n_runs; j++) {
		kn_fit_affine(max, true, x + j * run, run, &scale[j], &offset[j]);
		most = scale[j] > most ? scale[j] : most;
		least = offset[j] < least ? offset[j] : least;
	}
	int rc = kn_put_f16(d_at, most / (float)extent, &d);
	rc = kn_put_f16(d_at + 2, -least / (float)extent, &m) != 0 ? SL_EINVAL : rc;
	for (int j = 0; j < n_runs; j++, x += run, q += run) {
		int s0 = kn_round_to(kn_over(scale[j], d), 0, extent);
		int m0 = kn_round_to(kn_over(-offset[j], m), 0, extent);
		float best = -1;
		for (int s = s0 - 1; s <= s0 + 1; s++)
			for (int o = m0 - 1; o <= m0 + 1; o++) {
				if (s < 0 || s > extent || o < 0 || o > extent)
					continue;
				float error = kn_affine_error(max, x, run, d * (float)s, -m * (float)o);
				if (best < 0 || error < best) {
					best = error;
					sc[j] = s;
					mn[j] = o;
				}
			}
		for (int i = 0; i < run; i++)
			q[i] = (uint8_t)kn_round_to(kn_over(x[i] + m * (float)mn[j], d * (float)sc[j]), 0, max);
	}
	return rc;
}

void kn_pack_q2_k(const uint8_t *q, uint8_t *at) { put_twos(at + 16, q); }

int kn_encode_q2_k(const float *x, uint8_t *at)
{
	uint8_t q[BLOCK];
	int sc[MAX_RUNS], mn[MAX_RUNS];
	int rc = affine(3, 16, 15, x, at + 80, sc, mn, q);
	for (int j = 0; j < 16; j++)
		at[j] = (uint8_t)(sc[j] | mn[j] << 4);
	kn_pack_q2_k(q, at);
	return rc;
}

/* The inverse of kn_scale_min. */
static void put_scales(uint8_t *at, const int *sc, const int *mn)
{
	for (int j = 0; j < 4; j++) {
		at[j] = (uint8_t)(sc[j] | sc[4 + j] >> 4 << 6);
		at[4 + j] = (uint8_t)(mn[j] | mn[4 + j] >> 4 << 6);
		at[8 + j] = (uint8_t)((sc[4 + j] & 15) | (mn[4 + j] & 15) << 4);
	}
}

/* In runs of 64, the first 32 low and the others high. */
static void put_long_nibbles(uint8_t *qs, const uint8_t *q)
{
	for (int i = 0; i < 128; i++) {
		const uint8_t *run = q + i / 32 * 64 + i % 32;
		qs[i] = (uint8_t)((run[0] & 15) | (run[32] & 15) << 4);
	}
}

void kn_pack_q4_k(const uint8_t *q, uint8_t *at) { put_long_nibbles(at + 16, q); }

int kn_encode_q4_k(const float *x, uint8_t *at)
{
	uint8_t q[BLOCK];
	int sc[MAX_RUNS], mn[MAX_RUNS];
	int rc = affine(15, 32, 63, x, at, sc, mn, q);
	put_scales(at + 4, sc, mn);
	kn_pack_q4_k(q, at);
	return rc;
}

void kn_pack_q5_k(const uint8_t *q, uint8_t *at)
{
	memset(at + 16, 0, 32);
	for (int i = 0; i < BLOCK; i++)
		at[16 + i % 32] |= (uint8_t)(q[i] >> 4 << i / 32);
	put_long_nibbles(at + 48, q);
}

int kn_encode_q5_k(const float *x, uint8_t *at)
{
	uint8_t q[BLOCK];
	int sc[MAX_RUNS], mn[MAX_RUNS];
	int rc = affine(31, 32, 63, x, at, sc, mn, q);
	put_scales(at + 4, sc, mn);
	kn_pack_q5_k(q, at);
	return rc;
}
