/* SPDX-License-Identifier: Apache-2.0
 *
 * What the lanes of a warp do together: shuffles, fixed trees over their values, operations on matrices. Each lane
 * gives its part and waits; the last one computes for all.
 */
#include "tests/emulation/emu_thread.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* The place for what this lane gives next. */
static struct given *next_turn(struct emu_thread *t, int together)
{
	t->turn++;
	t->block->together[t->n] = (uint8_t)together;
	return &t->given[t->turn % 2];
}

void kn_warp_barrier(void)
{
	next_turn(emu_self, MEET);
	emu_all_lanes(NULL);
}

float kn_shuffle_xor(float v, int mask)
{
	struct emu_thread *t = emu_self;
	next_turn(t, SHUFFLE)->f = v;
	emu_all_lanes(NULL);
	return (t - t->n)[t->n ^ mask].given[t->turn % 2].f;
}

int kn_shuffle_int(int v, int lane)
{
	struct emu_thread *t = emu_self;
	uint32_t bits = (uint32_t)v;
	memcpy(&next_turn(t, SHUFFLE)->f, &bits, sizeof bits);
	emu_all_lanes(NULL);
	memcpy(&bits, &(t - t->n % KN_WARP)[lane].given[t->turn % 2].f, sizeof bits);
	return (int)bits;
}

bool kn_any(bool v) { return kn_warp_max(v ? 1.0f : 0.0f) > 0; }

struct emu_lanes operator+(const struct emu_lanes &a, const struct emu_lanes &b)
{
	struct emu_lanes r;
	for (int l = 0; l < KN_WARP; l++)
		r.of[l] = a.of[l] + b.of[l];
	return r;
}

struct emu_lanes fmaxf(const struct emu_lanes &a, const struct emu_lanes &b)
{
	struct emu_lanes r;
	for (int l = 0; l < KN_WARP; l++)
		r.of[l] = fmaxf(a.of[l], b.of[l]);
	return r;
}

struct emu_lanes kn_shuffle_xor(const struct emu_lanes &v, int mask)
{
	struct emu_lanes r;
	for (int l = 0; l < KN_WARP; l++)
		r.of[l] = v.of[l ^ mask];
	return r;
}

static void run_tree(struct emu_thread *lanes, struct emu_warp *w, unsigned turn)
{
	struct emu_lanes v; /* on this thread's stack, which kernels may read */
	for (int l = 0; l < KN_WARP; l++) {
		const struct given *g = &lanes[l].given[turn % 2];
		v.of[l] = g->f;
		if (g->tree != lanes[0].given[turn % 2].tree)
			lanes->block->misuse = "lanes of a warp in different trees";
	}
	lanes[0].given[turn % 2].tree(&v);
	w->got[turn % 2].lanes = v;
}

float emu_tree(float v, void (*tree)(struct emu_lanes *))
{
	struct emu_thread *t = emu_self;
	struct given *g = next_turn(t, TREE);
	g->f = v;
	g->tree = tree;
	emu_all_lanes(run_tree);
	return t->block->warps[t->n / KN_WARP].got[t->turn % 2].lanes.of[t->n % KN_WARP];
}

static void widen_bf16(const uint16_t *from, float *to, int n)
{
	for (int i = 0; i < n; i++)
		to[i] = kn_bf16_float(from[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) static void widen_f16_f16c(const uint16_t *from, float *to, int n)
{
	for (int i = 0; i < n; i += 8)
		_mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
}
#endif

/* n: a multiple of 8. */
static void widen_f16(const uint16_t *from, float *to, int n)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("f16c")) {
		widen_f16_f16c(from, to, n);
		return;
	}
#endif
	for (int i = 0; i < n; i++)
		to[i] = kn_f16_float(from[i]);
}

/* Products in float32 (those of two 11-bit numbers are exact), added to the sum one after the other. A device
 * adds them up in an order of its own. */
template <void (*WIDEN)(const uint16_t *from, float *to, int n)>
static void multiply(struct emu_thread *lanes, struct emu_warp *w, unsigned turn)
{
	uint16_t rows[16][16], columns[8][16];
	float a[16][16], turned[8][16], b[16][8], d[16][8];
	for (int l = 0; l < KN_WARP; l++) {
		const struct given *v = &lanes[l].given[turn % 2];
		int g = l / 4, t = l % 4;
		for (int r = 0; r < 4; r++)
			memcpy(&rows[g + r % 2 * 8][2 * t + r / 2 * 8], &v->a[r], sizeof v->a[r]);
		for (int r = 0; r < 2; r++)
			memcpy(&columns[g][2 * t + r * 8], &v->b[r], sizeof v->b[r]);
	}
	WIDEN(rows[0], a[0], 16 * 16);
	WIDEN(columns[0], turned[0], 8 * 16);
	for (int k = 0; k < 16; k++)
		for (int n = 0; n < 8; n++)
			b[k][n] = turned[n][k];
	for (int i = 0; i < 16; i++) {
		float sum[8] = {};
		for (int k = 0; k < 16; k++)
			for (int n = 0; n < 8; n++)
				sum[n] += a[i][k] * b[k][n];
		memcpy(d[i], sum, sizeof sum);
	}
	for (int l = 0; l < KN_WARP; l++)
		for (int r = 0; r < 4; r++)
			w->got[turn % 2].product[l][r] = d[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2];
}

static void mma(int kind, float *d, const uint32_t *a, const uint32_t *b)
{
	struct emu_thread *t = emu_self;
	struct given *v = next_turn(t, kind);
	memcpy(v->a, a, sizeof v->a);
	memcpy(v->b, b, sizeof v->b);
	emu_all_lanes(kind == MMA_BF16 ? multiply<widen_bf16> : multiply<widen_f16>);
	const float *sum = t->block->warps[t->n / KN_WARP].got[t->turn % 2].product[t->n % KN_WARP];
	for (int i = 0; i < 4; i++)
		d[i] += sum[i];
}

void kn_mma_bf16_16816(float *d, const uint32_t *a, const uint32_t *b) { mma(MMA_BF16, d, a, b); }

void kn_mma_f16_16816(float *d, const uint32_t *a, const uint32_t *b) { mma(MMA_F16, d, a, b); }

static void read_matrices(struct emu_thread *lanes, struct emu_warp *w, unsigned turn)
{
	uint16_t m[32][8];
	bool turned = lanes->block->together[lanes->n] == MATRICES_TURNED;
	const void *rows[KN_WARP];
	for (int l = 0; l < KN_WARP; l++) {
		rows[l] = lanes[l].given[turn % 2].row;
		memcpy(m[l], rows[l], sizeof m[l]);
	}
	if (emu_counting)
		emu_count_matrices(rows);
	for (int l = 0; l < KN_WARP; l++)
		for (int i = 0; i < 4; i++) {
			int g = l / 4, k = l % 4 * 2;
			uint16_t low = turned ? m[8 * i + k][g] : m[8 * i + g][k];
			uint16_t high = turned ? m[8 * i + k + 1][g] : m[8 * i + g][k + 1];
			w->got[turn % 2].pairs[l][i] = low | (uint32_t)high << 16;
		}
}

static void matrices(int kind, uint32_t *r, const void *row)
{
	struct emu_thread *t = emu_self;
	if ((uintptr_t)row % 16 != 0)
		t->block->misuse = "a row of a matrix that is not aligned";
	next_turn(t, kind)->row = row;
	emu_all_lanes(read_matrices);
	memcpy(r, t->block->warps[t->n / KN_WARP].got[t->turn % 2].pairs[t->n % KN_WARP], 4 * sizeof *r);
}

void kn_ldmatrix_x4(uint32_t *r, const void *row) { matrices(MATRICES, r, row); }

void kn_ldmatrix_x4_trans(uint32_t *r, const void *row) { matrices(MATRICES_TURNED, r, row); }
