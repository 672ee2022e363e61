/* SPDX-License-Identifier: Apache-2.0
 *
 * Which experts compute a row, as kernels/cpu/route.c decides it: in double, with its sums in its order, so that a
 * choice depends on the logits alone. Then the rows in the order of their experts.
 *
 * A block has a row. An expert's place is the number of experts before it, which each thread counts for its own: no
 * rounds that wait for each other. Ordering takes a block for each expert, which counts the slots of all: integers, so
 * the atomics' order does not matter; slots of one expert keep their order, because each thread has adjacent ones.
 *
 * VERSIONS
 *  1  this one. Counted for 128 experts of which a row uses 8, on an H200: a row 128 additions of doubles one after the
 *     other, 8 cycles each, for the softmax's sum, and 128 comparisons a thread, some 4 cycles each: 1 µs. Ordering 512
 *     slots: 4 atomics and 2 times 4 slots a thread, 1 µs; 16384 slots of a prompt: 2 times 128, some 5 µs. Not measured
 *     on a device.
 */
#include "kernels/cuda/experts.h"

enum { THREADS = KN_ROUTE_THREADS, WARPS = THREADS / KN_WARP };

#define LARGEST 3.402823466e38f

/* struct kn_route without padding, since it is part of a command. */
struct route_call {
	const float *logits, *bias;
	int32_t *chosen;
	float *weight;
	int n, n_used, n_groups, n_groups_used;
	int sigmoid, norm, group_best, none;
	float scale, sparse;
};

/* A row's shared memory. */
struct row_state {
	double *score, *rank, *group; /* [n]; group: [n_groups] */
	int32_t *chosen;              /* [KN_MAX_EXPERTS_USED] */
	float *most;                  /* [2][WARPS] */
};

__device__ static inline struct row_state state_of(int n)
{
	struct row_state s;
	s.score = (double *)kn_shared();
	s.rank = s.score + n;
	s.group = s.rank + n;
	s.chosen = (int32_t *)(s.group + n);
	s.most = (float *)(s.chosen + KN_MAX_EXPERTS_USED);
	return s;
}

static size_t state_bytes(int n)
{
	return 3 * (size_t)n * sizeof(double) + KN_MAX_EXPERTS_USED * sizeof(int32_t) + 2 * WARPS * sizeof(float);
}

/* The largest logit, in all threads; NaN: some logit is not finite. */
__device__ static inline float largest_logit(const float *logits, int n, const struct row_state &s, int t)
{
	float most = -INFINITY;
	bool finite = true;
	for (int e = t; e < n; e += THREADS) {
		most = fmaxf(most, logits[e]);
		finite = finite && fabsf(logits[e]) <= LARGEST;
	}
	most = kn_warp_max(most);
	finite = !kn_any(!finite);
	if (t % KN_WARP == 0) {
		s.most[t / KN_WARP] = most;
		s.most[WARPS + t / KN_WARP] = finite ? 0.0f : 1.0f;
	}
	kn_barrier();
	for (int i = 0; i < WARPS; i++) {
		most = fmaxf(most, s.most[i]);
		finite = finite && s.most[WARPS + i] == 0.0f;
	}
	return finite ? most : kn_bits_float(0x7FC00000u);
}

/* How many of x[n] come before number i: the larger ones, of equal ones the lower numbers. */
__device__ static inline int before(const double *x, int n, int i)
{
	int count = 0;
	double mine = x[i];
#pragma unroll 4
	for (int j = 0; j < n; j++)
		count += x[j] > mine || (x[j] == mine && j < i);
	return count;
}

/* The sum of x[n], from the first on, in all threads. */
__device__ static inline double sum_of(const double *x, int n)
{
	double sum = 0;
#pragma unroll 8
	for (int i = 0; i < n; i++)
		sum += x[i];
	return sum;
}

__device__ static inline void find_scores(const struct route_call &c, const float *logits, float most,
					  const struct row_state &s, int t)
{
	for (int e = t; e < c.n; e += THREADS)
		s.score[e] = c.sigmoid ? 1 / (1 + exp(-(double)logits[e])) : exp((double)logits[e] - (double)most);
	kn_barrier();
	double sum = c.sigmoid ? 1 : sum_of(s.score, c.n);
	kn_barrier(); /* all have read the scores */
	for (int e = t; e < c.n; e += THREADS) {
		double score = c.sigmoid ? s.score[e] : s.score[e] / sum;
		double rank = score + (c.bias != NULL ? (double)c.bias[e] : 0);
		s.score[e] = score;
		s.rank[e] = rank == rank ? rank : -INFINITY; /* a bias that is no number: last */
	}
	kn_barrier();
}

/* What a group of experts is chosen by: its best score, or its two best ones. */
__device__ static inline double group_rank(const double *rank, int n, bool best)
{
	double first = -INFINITY, second = -INFINITY;
	for (int i = 0; i < n; i++) {
		double x = rank[i];
		second = x > first ? first : x > second ? x : second;
		first = x > first ? x : first;
	}
	return best || n == 1 ? first : first + second;
}

/* Excludes experts outside of the best groups. */
__device__ static inline void keep_groups(const struct route_call &c, const struct row_state &s, int t)
{
	int each = c.n / c.n_groups;
	for (int g = t; g < c.n_groups; g += THREADS)
		s.group[g] = group_rank(s.rank + g * each, each, c.group_best != 0);
	kn_barrier();
	for (int e = t; e < c.n; e += THREADS)
		if (before(s.group, c.n_groups, e / each) >= c.n_groups_used)
			s.rank[e] = -INFINITY;
	kn_barrier();
}

/* The chosen ones, the best first, for all threads. */
__device__ static inline void choose(const struct route_call &c, const struct row_state &s, int t)
{
	for (int e = t; e < c.n; e += THREADS) {
		int place = before(s.rank, c.n, e);
		if (place < c.n_used)
			s.chosen[place] = e;
	}
	kn_barrier();
}

/* A choice's share among the logits that are close to it and were not chosen before it (kernels/cpu/route.c). rank: the
 * logits; score: room. */
__device__ static inline void weigh_sparse(const struct route_call &c, const struct row_state &s, float *weight, int t)
{
	for (int k = 0; k < c.n_used; k++) {
		double m = s.rank[s.chosen[k]];
		for (int e = t; e < c.n; e += THREADS) {
			double x = s.rank[e], most = fabs(x) > m ? fabs(x) : m;
			bool passed = x > m || (x == m && e < s.chosen[k]);
			s.score[e] = !passed && m - x <= 2 * (double)c.sparse * most ? exp(x - m) : 0;
		}
		kn_barrier();
		if (t == 0)
			weight[k] = (float)((double)c.scale * (1 / sum_of(s.score, c.n)));
		kn_barrier();
	}
}

__device__ static inline void weigh(const struct route_call &c, const struct row_state &s, float *weight, int t)
{
	double sum = 0;
	for (int k = 0; k < c.n_used; k++)
		sum += s.score[s.chosen[k]];
	double factor = (double)c.scale / (c.norm ? sum : 1);
	for (int k = t; k < c.n_used; k += THREADS)
		weight[k] = (float)(s.score[s.chosen[k]] * factor);
}

__global__ void route(struct route_call c)
{
	kn_begin();
	int t = (int)threadIdx.x;
	const float *logits = c.logits + (int64_t)blockIdx.x * c.n;
	int32_t *chosen = c.chosen + (int64_t)blockIdx.x * c.n_used;
	float *weight = c.weight + (int64_t)blockIdx.x * c.n_used;
	struct row_state s = state_of(c.n);
	float most = largest_logit(logits, c.n, s, t);
	if (!(most == most)) { /* the same in all threads */
		for (int k = t; k < c.n_used; k += THREADS) {
			chosen[k] = k;
			weight[k] = most;
		}
		return;
	}
	if (c.sparse > 0) {
		for (int e = t; e < c.n; e += THREADS)
			s.rank[e] = (double)logits[e];
		kn_barrier();
	} else {
		find_scores(c, logits, most, s, t);
		if (c.n_groups > 0)
			keep_groups(c, s, t);
	}
	choose(c, s, t);
	for (int k = t; k < c.n_used; k += THREADS)
		chosen[k] = s.chosen[k];
	if (c.sparse > 0)
		weigh_sparse(c, s, weight, t);
	else
		weigh(c, s, weight, t);
}

/* ---- the order ---- */

struct order_call {
	struct kn_order out;
	struct kn_real_rows rows;
	uint32_t *counts; /* NULL: not wanted */
	int n_used, group_rows;
};

/* What experts before this one have. */
enum { BEFORE_SLOTS, BEFORE_TILES, BEFORE_GROUPS, N_BEFORE };

__device__ static inline uint32_t parts_of(uint32_t n, uint32_t each) { return (n + each - 1) / each; }

/* Leaves in of[n] each expert's number of slots, and in sums what those before expert e have. */
__device__ static inline void count_slots(const struct order_call &c, int n_slots, int e, int n, uint32_t *of,
					  uint32_t *sums, int t)
{
	uint32_t mine[N_BEFORE] = {0, 0, 0};
	for (int i = t; i < n; i += THREADS)
		of[i] = 0;
	if (t < N_BEFORE)
		sums[t] = 0;
	kn_barrier();
	for (int i = t; i < n_slots; i += THREADS)
		kn_add_shared(&of[c.out.chosen[i]], 1u);
	kn_barrier();
	for (int i = t; i < e; i += THREADS) {
		mine[BEFORE_SLOTS] += of[i];
		mine[BEFORE_TILES] += parts_of(of[i], KN_ROWS);
		mine[BEFORE_GROUPS] += parts_of(of[i], (uint32_t)c.group_rows);
	}
	for (int i = 0; i < N_BEFORE; i++)
		if (mine[i] > 0)
			kn_add_shared(&sums[i], mine[i]);
	kn_barrier();
}

/* Places the expert's slots, each thread some adjacent ones. */
__device__ static inline void place_slots(const struct order_call &c, int n_slots, int e, int first, int tile,
					  uint32_t *found, int t)
{
	int from = (int)((int64_t)n_slots * t / THREADS), to = (int)((int64_t)n_slots * (t + 1) / THREADS), n = 0;
	for (int i = from; i < to; i++)
		n += c.out.chosen[i] == e;
	found[t] = (uint32_t)n;
	kn_barrier();
	if (n == 0)
		return;
	n = 0;
	for (int i = 0; i < t; i++)
		n += (int)found[i];
	for (int i = from; i < to; i++)
		if (c.out.chosen[i] == e) {
			c.out.place[i] = first + n;
			c.out.slot[first + n] = i;
			c.out.unit_row[first + n] = tile * KN_ROWS + n;
			n++;
		}
}

/* A block for each expert. */
__global__ void order(struct order_call c)
{
	kn_begin();
	int t = (int)threadIdx.x, e = (int)blockIdx.x, n = (int)gridDim.x, n_slots = kn_real(c.rows) * c.n_used;
	uint32_t *of = (uint32_t *)kn_shared(), *sums = of + n, *found = sums + N_BEFORE;
	count_slots(c, n_slots, e, n, of, sums, t);
	int all = (int)of[e], first = (int)sums[BEFORE_SLOTS], tile = (int)sums[BEFORE_TILES];
	int groups = (int)parts_of(of[e], (uint32_t)c.group_rows), group = (int)sums[BEFORE_GROUPS];
	for (int i = t; i < groups; i += THREADS) {
		int at = i * c.group_rows, left = all - at;
		c.out.groups[group + i] = {e, first + at, left < c.group_rows ? left : c.group_rows,
					   tile + at / KN_ROWS};
	}
	if (t == 0 && c.counts != NULL)
		c.counts[e] = (uint32_t)all;
	if (t == 0 && e == n - 1) {
		c.out.totals[0] = group + groups;
		c.out.totals[1] = n_slots;
	}
	place_slots(c, n_slots, e, first, tile, found, t);
}

int kn_cuda_route(struct kn_backend *b, const struct kn_route *r, const float *logits, const struct kn_real_rows *rows,
		  int group_rows, const struct kn_order *out, uint32_t *counts)
{
	struct route_call c = {logits,      r->bias,        out->chosen,       out->weight,
			       r->n,        r->n_used,      r->n_groups,       r->n_groups_used,
			       r->sigmoid,  r->norm,        r->group_best,     0,
			       r->scale,    r->sparse};
	struct order_call o = {*out, *rows, counts, r->n_used, group_rows};
	int rc = KN_LAUNCH(b->dev, route, (unsigned)rows->all, THREADS, state_bytes(r->n), c);
	if (rc != 0)
		return rc;
	return KN_LAUNCH(b->dev, order, (unsigned)r->n, THREADS,
			 ((size_t)r->n + N_BEFORE + THREADS) * sizeof(uint32_t), o);
}
