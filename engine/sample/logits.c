/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes over logits. A vocabulary has 10^5 entries and a step draws for many sequences, so that
 * what costs is the number of passes and the exponential, not the few candidates that are left:
 *
 *   exp      own and in vectors of four floats (GNU C vectors: SSE2 and NEON alike, no FMA), degree
 *            seven over |r| ≤ ln 2 / 2. The C library's is scalar and ten times the cost.
 *   sums     of terms in double, four lanes of a block, then lanes, then blocks: one order, whatever
 *            the machine, and of a float's rounding no more than that of the terms.
 *   top k    one pass with a rising threshold: what is above it goes into a buffer of 2k, and when
 *            that is full, quickselect (Hoare, "Find", 1961) raises the threshold to its k-th.
 *   a share  (top-p, typical) first cuts below the best key by 1, 2, 4, 8, …, four masked sums in one
 *            pass, to find a range in which the share is reached, then that range cut into parts
 *            while much is in it; only what is left is gathered and put through a quickselect that
 *            counts mass instead of elements.
 *
 * The order of elements is that of an integer: the float's bits made monotonic, then the complement of
 * the index, so that ties are no case of their own anywhere.
 */
#include "engine/sample/logits.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/err.h"

typedef float f32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef int64_t i64x2 __attribute__((vector_size(16)));
typedef double f64x2 __attribute__((vector_size(16)));

static f32x4 load4(const float *p)
{
	f32x4 v;
	memcpy(&v, p, sizeof v);
	return v;
}

static void store4(float *p, f32x4 v) { memcpy(p, &v, sizeof v); }

static f32x4 all4(float v) { return (f32x4){v, v, v, v}; }

static f32x4 select4(i32x4 mask, f32x4 yes, f32x4 no) { return (f32x4)(((i32x4)yes & mask) | ((i32x4)no & ~mask)); }

/* Two sums in double that four floats are added to. */
static inline __attribute__((always_inline)) void add4(f64x2 sum[2], f32x4 v)
{
	sum[0] += (f64x2){(double)v[0], (double)v[1]};
	sum[1] += (f64x2){(double)v[2], (double)v[3]};
}

static double sum4(const f64x2 sum[2]) { return (sum[0][0] + sum[0][1]) + (sum[1][0] + sum[1][1]); }

static bool any4(i32x4 mask)
{
	i64x2 m = (i64x2)mask;
	return (m[0] | m[1]) != 0;
}

/* ---- largest ---- */

float logits_clean_max(float *l, int n)
{
	const f32x4 none = all4(-INFINITY);
	f32x4 best[2] = {none, none};
	int i = 0;
	for (; i + 8 <= n; i += 8) {
		f32x4 a = load4(l + i), b = load4(l + i + 4);
		i32x4 nan_a = ~(a >= none), nan_b = ~(b >= none); /* only a NaN is not */
		if (any4(nan_a | nan_b)) {
			a = select4(nan_a, none, a);
			b = select4(nan_b, none, b);
			store4(l + i, a);
			store4(l + i + 4, b);
		}
		best[0] = select4(a > best[0], a, best[0]);
		best[1] = select4(b > best[1], b, best[1]);
	}
	float max = -INFINITY;
	for (; i < n; i++) {
		if (isnan(l[i]))
			l[i] = -INFINITY;
		max = l[i] > max ? l[i] : max;
	}
	for (int k = 0; k < 8; k++)
		max = best[k / 4][k % 4] > max ? best[k / 4][k % 4] : max;
	return max;
}

float logits_max(const float *l, int n)
{
	f32x4 best[2] = {all4(-INFINITY), all4(-INFINITY)};
	float max = -INFINITY;
	int i = 0;
	for (; i + 8 <= n; i += 8) {
		f32x4 a = load4(l + i), b = load4(l + i + 4);
		best[0] = select4(a > best[0], a, best[0]);
		best[1] = select4(b > best[1], b, best[1]);
	}
	for (; i < n; i++)
		max = l[i] > max ? l[i] : max;
	for (int k = 0; k < 8; k++)
		max = best[k / 4][k % 4] > max ? best[k / 4][k % 4] : max;
	return max;
}

int logits_list_from(const float *l, int n, float least, uint8_t *at)
{
	const f32x4 least4 = all4(least);
	int m = 0;
	for (int i = 0; i < n; i += 8) {
		if (i + 8 <= n && !any4((load4(l + i) >= least4) | (load4(l + i + 4) >= least4)))
			continue;
		for (int j = i; j < n && j < i + 8; j++) {
			at[m] = (uint8_t)j; /* written whether it counts or not: no branch depends on it */
			m += l[j] >= least;
		}
	}
	return m;
}

int32_t logits_argmax(const float *l, int n)
{
	/* Each lane keeps its first largest and where that was. */
	f32x4 best[2] = {all4(-INFINITY), all4(-INFINITY)};
	i32x4 at[2] = {{0}, {0}}, here = {0, 1, 2, 3};
	int i = 0;
	for (; i + 8 <= n; i += 8) {
		for (int k = 0; k < 2; k++) {
			f32x4 v = load4(l + i + 4 * k);
			i32x4 more = v > best[k];
			best[k] = select4(more, v, best[k]);
			at[k] = (here & more) | (at[k] & ~more);
			here += 4;
		}
	}
	float max = -INFINITY;
	int32_t id = -1;
	for (int k = 0; k < 8; k++) {
		float v = best[k / 4][k % 4];
		int32_t from = at[k / 4][k % 4];
		/* A lane that saw nothing above -inf says 0, which is right when none did. */
		if (id < 0 || v > max || (v == max && from < id)) {
			max = v;
			id = from;
		}
	}
	for (; i < n; i++) {
		if (l[i] > max) {
			max = l[i];
			id = i;
		}
	}
	return id;
}

/* ---- exp ---- */

/* exp(x) for x ≤ 0: 2^k · exp(r). Adding 1.5 · 2^23 rounds to the nearest integer and leaves it in the
 * low bits of the sum. */
static inline __attribute__((always_inline)) f32x4 exp4(f32x4 x)
{
	const f32x4 magic = all4(12582912.0f);
	f32x4 t = x * all4(0x1.715476p+0f) + magic;
	f32x4 k = t - magic;
	/* ln 2 in two parts; the first has so few bits that k times it is exact. */
	f32x4 r = x - k * all4(0x1.62e000p-1f);
	r = r - k * all4(0x1.0bfbe8p-15f);
	f32x4 p = all4(1.0f / 5040);
	p = p * r + all4(1.0f / 720);
	p = p * r + all4(1.0f / 120);
	p = p * r + all4(1.0f / 24);
	p = p * r + all4(1.0f / 6);
	p = p * r + all4(0.5f);
	p = p * r + all4(1);
	p = p * r + all4(1);
	i32x4 bits = (i32x4)((u32x4)p + ((u32x4)t << 23));
	return (f32x4)(bits & (x > all4(-86.0f)));
}

/* One block; n ≤ LOGITS_BLOCK. The end is filled up with terms of 0. */
static double block_mass(const float *l, int n, f32x4 max, f32x4 inv_t, float *w)
{
	f64x2 sum[2] = {{0}, {0}};
	int i = 0;
	for (; i + 8 <= n; i += 8) {
		f32x4 a = exp4((load4(l + i) - max) * inv_t);
		f32x4 b = exp4((load4(l + i + 4) - max) * inv_t);
		if (w != NULL) {
			store4(w + i, a);
			store4(w + i + 4, b);
		}
		add4(sum, a);
		add4(sum, b);
	}
	for (; i < n; i += 4) {
		float rest[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
		size_t bytes = (size_t)(n - i < 4 ? n - i : 4) * sizeof *l;
		memcpy(rest, l + i, bytes);
		f32x4 e = exp4((load4(rest) - max) * inv_t);
		if (w != NULL)
			memcpy(w + i, &e, bytes);
		add4(sum, e);
	}
	return sum4(sum);
}

double logits_mass(const float *l, int n, float max, float inv_t, float *w)
{
	const f32x4 max4 = all4(max), inv4 = all4(inv_t);
	double mass = 0;
	for (int i = 0; i < n; i += LOGITS_BLOCK) {
		int m = n - i < LOGITS_BLOCK ? n - i : LOGITS_BLOCK;
		mass += block_mass(l + i, m, max4, inv4, w != NULL ? w + i : NULL);
	}
	return mass;
}

/* ---- ranks ---- */

static inline logits_rank rank_of(float v, int32_t i)
{
	uint32_t b;
	v += 0.0f; /* -0 and 0 are equal */
	memcpy(&b, &v, sizeof b);
	b = b >> 31 ? ~b : b | 0x80000000u;
	return (uint64_t)b << 32 | (uint32_t) ~(uint32_t)i;
}

logits_rank logits_rank_of(float v, int32_t i) { return rank_of(v, i); }

int32_t logits_rank_index(logits_rank r) { return (int32_t) ~(uint32_t)r; }

float logits_rank_value(logits_rank r)
{
	uint32_t b = (uint32_t)(r >> 32);
	float v;
	b = b >> 31 ? b & 0x7FFFFFFFu : ~b;
	memcpy(&v, &b, sizeof v);
	return v;
}

/* ---- selection ---- */

static void swap(struct logits_item *a, struct logits_item *b)
{
	struct logits_item t = *a;
	*a = *b;
	*b = t;
}

/* Puts items above a pivot in front of those not above it; ranks are all different. How many are
 * in front, the pivot being the last of them: 1 ≤ result ≤ n. Shrinks by a share of n whatever the
 * order of the input: the pivot is the median of three from places that a hash chooses. */
static int partition(struct logits_item *v, int n)
{
	uint32_t h = (uint32_t)n * 0x9E3779B9u;
	struct logits_item *a = &v[h % (uint32_t)n], *b = &v[(h >> 8) % (uint32_t)n], *c = &v[(h >> 16) % (uint32_t)n];
	if (a->rank < b->rank) {
		struct logits_item *t = a;
		a = b;
		b = t;
	}
	/* a ≥ b; the middle of a, b, c */
	struct logits_item *mid = c->rank >= a->rank ? a : c->rank >= b->rank ? c : b;
	swap(mid, &v[n - 1]);
	logits_rank pivot = v[n - 1].rank;
	int above = 0;
	for (int i = 0; i < n - 1; i++) {
		if (v[i].rank > pivot) {
			swap(&v[i], &v[above]);
			above++;
		}
	}
	swap(&v[above], &v[n - 1]);
	return above + 1;
}

logits_rank logits_kth(struct logits_item *items, int n, int k)
{
	BUG_IF(k < 1 || k > n, "the %d-th of %d", k, n);
	for (;;) {
		int front = partition(items, n);
		if (front == k)
			return items[k - 1].rank;
		if (front > k) {
			n = front - 1; /* the pivot is not among the first k */
		} else {
			items += front;
			n -= front;
			k -= front;
		}
	}
}

/* Heapsort (Williams, 1964): in place, and no input is slow. */
static void sift_down(struct logits_item *v, int n, int i)
{
	for (;;) {
		int child = 2 * i + 1;
		if (child >= n)
			return;
		if (child + 1 < n && v[child + 1].rank < v[child].rank)
			child++;
		if (v[i].rank <= v[child].rank)
			return;
		swap(&v[i], &v[child]);
		i = child;
	}
}

void logits_sort(struct logits_item *items, int n)
{
	for (int i = n / 2 - 1; i >= 0; i--)
		sift_down(items, n, i);
	for (int end = n - 1; end > 0; end--) {
		swap(&items[0], &items[end]);
		sift_down(items, end, 0);
	}
}

size_t logits_best_room(int n, int k)
{
	size_t room = (size_t)k * 2 + 64;
	return room < (size_t)n ? room : (size_t)n;
}

int logits_best(const float *l, int n, int k, struct logits_item *room)
{
	int full = (int)logits_best_room(n, k), have = 0;
	f32x4 least = all4(-INFINITY);
	for (int i = 0; i < n; i += 8) {
		if (i + 8 <= n && !any4((load4(l + i) > least) | (load4(l + i + 4) > least)))
			continue;
		int end = i + 8 < n ? i + 8 : n;
		for (int j = i; j < end; j++) {
			/* Later of equal values is lower, so that only larger ones come in. */
			if (!(l[j] > least[0]))
				continue;
			if (have == full) {
				least = all4(logits_rank_value(logits_kth(room, have, k)));
				have = k;
				if (!(l[j] > least[0]))
					continue;
			}
			room[have++].rank = rank_of(l[j], j);
		}
	}
	if (have > k) {
		logits_kth(room, have, k);
		have = k;
	}
	return have;
}

/* ---- a share of the mass ---- */

/* The sum of the weights whose key is at least cut. */
static double mass_above(const float *key, const float *w, int n, float cut)
{
	const f32x4 cut4 = all4(cut);
	f64x2 sum[2] = {{0}, {0}};
	double rest = 0;
	int i = 0;
	for (; i + 8 <= n; i += 8) {
		i32x4 a = (i32x4)load4(w + i) & (load4(key + i) >= cut4);
		i32x4 b = (i32x4)load4(w + i + 4) & (load4(key + i + 4) >= cut4);
		add4(sum, (f32x4)a);
		add4(sum, (f32x4)b);
	}
	for (; i < n; i++)
		rest += key[i] >= cut ? (double)w[i] : 0;
	return sum4(sum) + rest;
}

/* FEW: to be gathered without another look. */
enum { N_CUTS = 4, CUT_BLOCK = 64, FEW = 2048 };

/* What is at least `at`. */
struct cut {
	float at;
	double mass; /* to 1e-6 of itself */
	int count;
};

static inline __attribute__((always_inline)) void weigh_in(f32x4 key, i32x4 w, f32x4 at, f32x4 *sum, i32x4 *count)
{
	i32x4 in = key >= at;
	*sum += (f32x4)(w & in);
	*count -= in;
}

static inline __attribute__((always_inline)) double sum_block(f32x4 v)
{
	return (double)((v[0] + v[1]) + (v[2] + v[3]));
}

/* Four at once, as reading costs as much as comparing. Written out: a loop would keep the sums in
 * memory. */
static void weigh_cuts(const float *key, const float *w, int n, struct cut cuts[N_CUTS])
{
	f32x4 a = all4(cuts[0].at), b = all4(cuts[1].at), c = all4(cuts[2].at), d = all4(cuts[3].at);
	i32x4 count[N_CUTS] = {{0}};
	double mass[N_CUTS] = {0};
	int i = 0;
	for (; i + CUT_BLOCK <= n; i += CUT_BLOCK) {
		f32x4 sa = all4(0), sb = sa, sc = sa, sd = sa;
		i32x4 na = {0}, nb = na, nc = na, nd = na;
		for (int j = i; j < i + CUT_BLOCK; j += 4) {
			f32x4 k = load4(key + j);
			i32x4 v = (i32x4)load4(w + j);
			weigh_in(k, v, a, &sa, &na);
			weigh_in(k, v, b, &sb, &nb);
			weigh_in(k, v, c, &sc, &nc);
			weigh_in(k, v, d, &sd, &nd);
		}
		mass[0] += sum_block(sa);
		mass[1] += sum_block(sb);
		mass[2] += sum_block(sc);
		mass[3] += sum_block(sd);
		count[0] += na;
		count[1] += nb;
		count[2] += nc;
		count[3] += nd;
	}
	for (int q = 0; q < N_CUTS; q++) {
		cuts[q].mass = mass[q];
		cuts[q].count = count[q][0] + count[q][1] + count[q][2] + count[q][3];
		for (int j = i; j < n; j++) {
			cuts[q].mass += key[j] >= cuts[q].at ? (double)w[j] : 0;
			cuts[q].count += key[j] >= cuts[q].at;
		}
	}
}

/* Cuts at from - step · f[c], which narrow the range in which the target is reached: above *high
 * there is surely too little, above *low surely enough. */
static void narrow(const float *key, const float *w, int n, double target, float from, float step,
		   const float f[N_CUTS], struct cut *high, struct cut *low)
{
	struct cut cuts[N_CUTS];
	for (int c = 0; c < N_CUTS; c++)
		cuts[c].at = from - step * f[c];
	weigh_cuts(key, w, n, cuts);
	for (int c = 0; c < N_CUTS; c++) {
		if (cuts[c].mass < target * (1 - 1e-5)) {
			*high = cuts[c];
		} else if (cuts[c].mass > target * (1 + 1e-5)) {
			*low = cuts[c];
			return;
		}
	}
}

/* The lowest rank of the fewest best items that have `target` of mass together. */
static logits_rank mass_kth(struct logits_item *v, int n, double target)
{
	for (;;) {
		int front = partition(v, n);
		double mass = 0;
		for (int i = 0; i < front; i++)
			mass += (double)v[i].w;
		if (mass < target && front < n) {
			v += front;
			n -= front;
			target -= mass;
		} else if (mass - (double)v[front - 1].w >= target && front > 1) {
			n = front - 1; /* enough without the pivot */
		} else {
			return v[front - 1].rank;
		}
	}
}

static inline __attribute__((always_inline)) i32x4 within4(f32x4 v, float low, float high)
{
	return (v >= all4(low)) & (v < all4(high));
}

logits_rank logits_share(const float *key, const float *w, int n, double target, struct logits_item *room)
{
	static const float powers[N_CUTS] = {1, 2, 4, 8}, parts[N_CUTS] = {0.2f, 0.4f, 0.6f, 0.8f};
	BUG_IF(n < 1, "a share of nothing");
	int32_t first = logits_argmax(key, n);
	float best = key[first];
	struct cut high = {.at = INFINITY}, low = {.at = -INFINITY, .count = n};
	for (float step = 1; step <= 16 && low.at == -INFINITY; step *= 16)
		narrow(key, w, n, target, best, step, powers, &high, &low);
	for (int i = 0; i < 3 && low.at > -INFINITY && low.count - high.count > FEW; i++) {
		float top = high.at < INFINITY ? high.at : best;
		narrow(key, w, n, target, top, top - low.at, parts, &high, &low);
	}
	double mass = high.at < INFINITY ? mass_above(key, w, n, high.at) : 0;
	int m = 0;
	for (int i = 0; i < n; i += 8) {
		if (i + 8 <= n &&
		    !any4(within4(load4(key + i), low.at, high.at) | within4(load4(key + i + 4), low.at, high.at)))
			continue;
		for (int j = i; j < n && j < i + 8; j++) {
			/* What weighs nothing can't help to reach the target. */
			room[m] = (struct logits_item){rank_of(key[j], j), w[j]};
			m += (key[j] >= low.at) & (key[j] < high.at) & (w[j] > 0);
		}
	}
	if (m > 0)
		return mass_kth(room, m, target - mass);
	/* Rounding, or a target above all there is: all that weighs anything. */
	logits_rank least = rank_of(best, first);
	for (int i = 0; i < n; i++) {
		logits_rank r = rank_of(key[i], i);
		least = w[i] > 0 && r < least ? r : least;
	}
	return least;
}

int logits_keep(const float *key, const float *l, const int32_t *ids, int n, logits_rank least, float *l_out,
		int32_t *ids_out)
{
	float value = logits_rank_value(least);
	int32_t last = logits_rank_index(least);
	int kept = 0;
	for (int i = 0; i < n; i += 8) {
		if (i + 8 <= n && !any4((load4(key + i) >= all4(value)) | (load4(key + i + 4) >= all4(value))))
			continue;
		for (int j = i; j < n && j < i + 8; j++) {
			/* Written whether it stays or not: no branch depends on it. */
			bool stays = (key[j] > value) | ((key[j] == value) & (j <= last));
			int32_t id = ids != NULL ? ids[j] : j;
			l_out[kept] = l[j];
			ids_out[kept] = id;
			kept += stays;
		}
	}
	return kept;
}
