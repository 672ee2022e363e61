/* SPDX-License-Identifier: Apache-2.0
 *
 * Which experts compute a row, as kernels/cpu/route.c decides it: in double, with its sums in its order, so that a
 * choice depends on the logits alone. Then the rows in the order of their experts.
 *
 * A block has a row. An expert's place is the number of experts before it, which each thread counts for its own: no
 * rounds that wait for each other. Ordering many slots takes a block for each expert, which counts the slots of all:
 * integers, so the atomics' order does not matter; slots of one expert keep their order, because each thread has
 * adjacent ones.
 *
 * VERSIONS
 *  2  up to 256 slots are ordered by the last block that chooses: a launch fewer a layer. A slot compares itself with
 * all
 *     before it, 2 times 256 of them a thread, less than 1 µs.
 *  1  two kernels. Counted for 128 experts of which a row uses 8, on an H200: a row 128 additions of doubles one after
 * the
 *     other, 8 cycles each, for the softmax's sum, and 128 comparisons a thread, some 4 cycles each: 1 µs. Ordering 512
 *     slots: 4 atomics and 2 times 4 slots a thread, 1 µs; 16384 slots of a prompt: 2 times 128, some 5 µs. Not measured
 *     on a device.
 */
#include "kernels/cuda/experts.h"

enum {
	THREADS = KN_ROUTE_THREADS,
	WARPS = THREADS / KN_WARP,
#ifdef KN_EMULATED
	FEW_SLOTS = 16, /* so that small tests cover both */
#else
	FEW_SLOTS = 256, /* that one block orders */
#endif
};

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

/* A row's choice, by a block. */
__device__ static inline void choose_row(const struct route_call &c, int t)
{
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
	int n, n_used, group_rows, none;
};

/* What experts before one have. */
enum { BEFORE_SLOTS, BEFORE_TILES, BEFORE_GROUPS, N_BEFORE };

__device__ static inline uint32_t parts_of(uint32_t n, uint32_t each) { return (n + each - 1) / each; }

__device__ static inline void add_before(const struct order_call &c, uint32_t n, uint32_t *before)
{
	before[BEFORE_SLOTS] += n;
	before[BEFORE_TILES] += parts_of(n, KN_ROWS);
	before[BEFORE_GROUPS] += parts_of(n, (uint32_t)c.group_rows);
}

/* Leaves in of[n] each expert's number of slots, in all threads. */
__device__ static inline void count_slots(const struct order_call &c, int n_slots, uint32_t *of, int t)
{
	for (int i = t; i < c.n; i += THREADS)
		of[i] = 0;
	kn_barrier();
	for (int i = t; i < n_slots; i += THREADS)
		kn_add_shared(&of[c.out.chosen[i]], 1u);
	kn_barrier();
}

/* Writes group i of expert e, which has n slots. */
__device__ static inline void put_group(const struct order_call &c, int e, int n, const uint32_t *before, int i)
{
	int at = i * c.group_rows, left = n - at;
	c.out.groups[(int)before[BEFORE_GROUPS] + i] = {e, (int)before[BEFORE_SLOTS] + at,
							left < c.group_rows ? left : c.group_rows,
							(int)before[BEFORE_TILES] + at / KN_ROWS};
}

__device__ static inline void put_slot(const struct order_call &c, int slot, uint32_t first, uint32_t tile, int n)
{
	int place = (int)first + n;
	c.out.place[slot] = place;
	c.out.slot[place] = slot;
	c.out.unit_row[place] = (int)tile * KN_ROWS + n;
}

/* What the last expert's block, or thread, knows of all. */
__device__ static inline void put_totals(const struct order_call &c, int n_slots, int n, const uint32_t *before)
{
	c.out.totals[0] = (int)(before[BEFORE_GROUPS] + parts_of((uint32_t)n, (uint32_t)c.group_rows));
	c.out.totals[1] = n_slots;
}

/* Places the expert's slots, each thread some adjacent ones. */
__device__ static inline void place_slots(const struct order_call &c, int n_slots, int e, const uint32_t *before,
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
		if (c.out.chosen[i] == e)
			put_slot(c, i, before[BEFORE_SLOTS], before[BEFORE_TILES], n++);
}

/* A block for each expert. */
__global__ void order(struct order_call c)
{
	kn_begin();
	int t = (int)threadIdx.x, e = (int)blockIdx.x, n_slots = kn_real(c.rows) * c.n_used;
	uint32_t *of = (uint32_t *)kn_shared(), *before = of + c.n, *found = before + N_BEFORE;
	uint32_t mine[N_BEFORE] = {0, 0, 0};
	if (t < N_BEFORE)
		before[t] = 0;
	count_slots(c, n_slots, of, t);
	for (int i = t; i < e; i += THREADS)
		add_before(c, of[i], mine);
	for (int i = 0; i < N_BEFORE; i++)
		if (mine[i] > 0)
			kn_add_shared(&before[i], mine[i]);
	kn_barrier();
	for (int i = t; i < (int)parts_of(of[e], (uint32_t)c.group_rows); i += THREADS)
		put_group(c, e, (int)of[e], before, i);
	if (t == 0 && c.counts != NULL)
		c.counts[e] = of[e];
	if (t == 0 && e == c.n - 1)
		put_totals(c, n_slots, (int)of[e], before);
	place_slots(c, n_slots, e, before, found, t);
}

/* The same by one block, where that is quicker than another launch: a thread has adjacent experts, then every
 * THREADS-th slot. */
__device__ static inline void order_few(const struct order_call &c, int t)
{
	int n_slots = kn_real(c.rows) * c.n_used, each = (c.n + THREADS - 1) / THREADS;
	uint32_t *of = (uint32_t *)kn_shared(), *first = of + c.n, *tile = first + c.n, *sums = tile + c.n;
	uint32_t mine[N_BEFORE] = {0, 0, 0};
	int from = t * each < c.n ? t * each : c.n, to = from + each < c.n ? from + each : c.n;
	count_slots(c, n_slots, of, t);
	for (int e = from; e < to; e++)
		add_before(c, of[e], mine);
	for (int i = 0; i < N_BEFORE; i++) {
		sums[i * THREADS + t] = mine[i];
		mine[i] = 0;
	}
	kn_barrier();
	for (int i = 0; i < N_BEFORE; i++)
#pragma unroll 8
		for (int j = 0; j < t; j++)
			mine[i] += sums[i * THREADS + j];
	for (int e = from; e < to; e++) {
		first[e] = mine[BEFORE_SLOTS];
		tile[e] = mine[BEFORE_TILES];
		for (int i = 0; i < (int)parts_of(of[e], (uint32_t)c.group_rows); i++)
			put_group(c, e, (int)of[e], mine, i);
		if (c.counts != NULL)
			c.counts[e] = of[e];
		if (e == c.n - 1)
			put_totals(c, n_slots, (int)of[e], mine);
		add_before(c, of[e], mine);
	}
	kn_barrier();
	for (int i = t; i < n_slots; i += THREADS) {
		int e = c.out.chosen[i], n = 0;
		for (int j = 0; j < i; j++)
			n += c.out.chosen[j] == e;
		put_slot(c, i, first[e], tile[e], n);
	}
}

__global__ void route(struct route_call c)
{
	kn_begin();
	choose_row(c, (int)threadIdx.x);
}

/* The last block also orders the slots. */
__global__ void route_few(struct route_call c, struct order_call o, uint32_t *arrived)
{
	kn_begin();
	choose_row(c, (int)threadIdx.x);
	if (kn_is_last_block(arrived, gridDim.x))
		order_few(o, (int)threadIdx.x);
}

int kn_cuda_route(struct kn_backend *b, const struct kn_route *r, const float *logits, const struct kn_real_rows *rows,
		  int group_rows, const struct kn_order *out, uint32_t *counts)
{
	struct route_call c = {logits,           r->bias,    out->chosen, out->weight,   r->n, r->n_used, r->n_groups,
			       r->n_groups_used, r->sigmoid, r->norm,     r->group_best, 0,    r->scale,  r->sparse};
	struct order_call o = {*out, *rows, counts, r->n, r->n_used, group_rows, 0};
	size_t few_bytes = (3 * (size_t)r->n + N_BEFORE * THREADS) * sizeof(uint32_t), bytes = state_bytes(r->n);
	if (rows->all * r->n_used <= FEW_SLOTS && b->arrived != NULL)
		return KN_LAUNCH(b->dev, route_few, (unsigned)rows->all, THREADS, few_bytes > bytes ? few_bytes : bytes,
				 c, o, b->arrived);
	int rc = KN_LAUNCH(b->dev, route, (unsigned)rows->all, THREADS, bytes, c);
	if (rc != 0)
		return rc;
	return KN_LAUNCH(b->dev, order, (unsigned)r->n, THREADS, ((size_t)r->n + N_BEFORE + THREADS) * sizeof(uint32_t),
			 o);
}
