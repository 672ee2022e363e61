/* SPDX-License-Identifier: Apache-2.0
 *
 * Low-rank adapters of a step's rows (lora.h). Rows are in the order of their adapters, in tiles of rows of one, so an
 * adapter's weights are read once for a tile.
 *
 * A block of shrink computes some ranks of a tile of rows; each of its warps has a part of x, as a product's have
 * (matvec.cu). How many tiles there are follows from the step's rows: there may be as many adapters as rows. Blocks
 * without a tile, or past their adapter's rank, end at once.
 *
 * VERSIONS
 *  1  two kernels a product: shrink after it, then expand, which reads and writes the outputs once more: eight launches
 *     a layer, and the ones before that do more than one thing (then.h) come apart: of Llama 3.1 8B, 171 launches of a
 *     step of one row become 523.
 *  2  up to eight rows shrink goes before the product, whose blocks add what adapters add to their tile at its end: 4
 *     launches a layer more than without adapters, and the outputs are written once. The product is let start while
 *     shrink runs and waits for it at its end alone, so that shrink's latency (three loads one after the other, some
 *     2 us) passes beside the weights' bytes. Counted for rank 16, eight adapters and all seven matrices of an 8B layer:
 *     21 MB beside 436 MB of bfloat16.
 *  3  as 2, but the product looks for what its rows add between two pieces of its weights, not before the first, where
 *     a warp of each block waited for three loads; and a block takes several tiles, as most steps have far fewer than
 *     there may be (64 rows: 64), whose blocks only end. On an H100, 8B of bfloat16, rank 16, every matrix, against no
 *     adapter: 1.11, 1.15, 1.34 for 1, 8 and 64 rows of up to 8 adapters, 1.39 for a prompt of 2048.
 *  4  as 3, but what a block reads of its rows is asked for at once: behind a condition each row was waited for before
 *     the next. 1.105, 1.124, 1.235, 1.33. Counted for a layer of that prompt: outputs are read and written again, 704
 *     MB and 235 us of the 830 that adapters add; its gates are no longer part of their product (wgmma.cu).
 */
#include "kernels/cuda/then.h"

enum {
	WARPS = KN_PARTS,
	THREADS = WARPS * KN_WARP,
	FEW = 8,        /* rows of a tile, */
	MANY = 16,      /* and in steps of more than FEW_ROWS */
	FEW_ROWS = 256, /* such steps are repeated, and rarely have as many rows of an adapter */
	FEW_RANKS = 4,  /* that a block computes, of few rows, */
	MANY_RANKS = 8, /* and of many */
	MOST_BLOCKS = 16,
	RANKS_AT_ONCE = 16, /* of expand */
	TILE_INTS = sizeof(struct kn_lora_tile) / sizeof(int32_t),
	SITES_INTS = sizeof(const struct kn_lora *) / sizeof(int32_t),
};

/* ---- which rows have which adapter ---- */

static int tile_rows(int n_rows) { return n_rows <= FEW_ROWS ? FEW : MANY; }

/* As many as there can be: of each adapter the last one may have one row. */
static int tiles_of(int n_rows)
{
	int adapters = n_rows < KN_LORA_GROUPS ? n_rows : (int)KN_LORA_GROUPS, each = tile_rows(n_rows);
	int most = (n_rows + adapters * (each - 1)) / each;
	return most < n_rows ? most : n_rows;
}

/* Tiles and sites, which are aligned, come first. */
size_t kn_cuda_lora_ints(int n_rows)
{
	return (size_t)tiles_of(n_rows) * TILE_INTS + (size_t)n_rows * (SITES_INTS + 2);
}

int kn_cuda_lora_stage(const struct kn_lora_rows *from, int n_real, int n_rows, int32_t *here, const int32_t *device,
		       struct kn_lora_step *out)
{
	int n_tiles = tiles_of(n_rows), each = tile_rows(n_rows);
	struct kn_lora_tile *tile = (struct kn_lora_tile *)(void *)here;
	const struct kn_lora **sites = (const struct kn_lora **)(void *)(tile + n_tiles);
	int32_t *rows = (int32_t *)(void *)(sites + n_rows), *at = rows + n_rows, n = 0;
	if (from->n_groups > KN_LORA_GROUPS || from->n_rows > n_real)
		return SL_EUNSUPPORTED;
	for (int r = 0; r < n_rows; r++)
		sites[r] = NULL;
	for (int g = 0; g < from->n_groups; g++) {
		const struct kn_lora_rows::kn_lora_group *group = &from->groups[g];
		int32_t first = n;
		for (int i = 0; i < group->n; i++) {
			const int32_t row = from->rows[group->first + i];
			rows[n++] = row;
			for (int r = n_real; row == n_real - 1 && r < n_rows; r++)
				rows[n++] = r;
		}
		for (int32_t i = first; i < n; i++) {
			at[rows[i]] = i;
			sites[rows[i]] = group->sites;
		}
		for (int32_t i = first; i < n; i += each)
			*tile++ = {group->sites, i, n - i < each ? n - i : each};
	}
	const int32_t *sites_at = device + n_tiles * TILE_INTS, *rows_at = sites_at + n_rows * SITES_INTS;
	/* One by one: padding must be zero in a command. */
	out->tiles = (const struct kn_lora_tile *)(const void *)device;
	out->sites = (const struct kn_lora *const *)(const void *)sites_at;
	out->rows = rows_at;
	out->at = rows_at + n_rows;
	out->n_tiles = n_tiles;
	return 0;
}

/* Blocks for the tiles. In steps that are repeated each block does several tiles, if there are: most have fewer than
 * there may be. */
static unsigned blocks_of(const struct kn_lora_step &s, int rows)
{
	return (unsigned)(rows == MANY || s.n_tiles < MOST_BLOCKS ? s.n_tiles : (int)MOST_BLOCKS);
}

/* ---- shrink ---- */

struct shrink_call {
	struct kn_lora_step step;
	const float *x;
	float *t;
	int t_width, site, n_in;
	bool wide; /* rows of x and of every A begin at 16 bytes, eight-bit ones at 8 */
};

/* N numbers, 4 or 8, of a row of A, from k on, of n; zeros past its end. */
template <int TYPE, int N>
__device__ static inline void take_a(const uint8_t *a, int64_t row, int k, int n, bool wide, float *v)
{
	constexpr int each = kn_lora_each<TYPE>();
	const uint8_t *at = a + (row * n + k) * each;
	uint32_t word[N * each / 4];
	if (!wide) {
		UNROLL_FOR(int i = 0; i < N; i++)
			v[i] = k + i < n ? kn_lora_number<TYPE>(a, row * n + k + i) : 0;
		return;
	}
	if constexpr (N * each < 8) {
		word[0] = *(const uint32_t *)(const void *)at;
	} else if constexpr (N * each < 16) {
		struct kn_f2 two = *(const struct kn_f2 *)(const void *)at;
		word[0] = kn_float_bits(two.x);
		word[1] = kn_float_bits(two.y);
	} else {
		UNROLL_FOR(int i = 0; i < N * each / 16; i++) {
			struct kn_u4 four = kn_load_again(at + 16 * i);
			UNROLL_FOR(int k4 = 0; k4 < 4; k4++)
				word[4 * i + k4] = kn_word(four, k4);
		}
	}
	UNROLL_FOR(int i = 0; i < N; i++) {
		uint32_t bits = word[i * each / 4] >> i * each % 4 * 8;
		if (TYPE == KN_F32)
			v[i] = kn_bits_float(bits);
		else if (TYPE == KN_LORA_I8)
			v[i] = (float)(int8_t)bits;
		else
			v[i] = TYPE == KN_F16 ? kn_f16_float((uint16_t)bits) : kn_bf16_float((uint16_t)bits);
	}
}

template <int N> __device__ static inline void take_x(const float *x, int k, int n, bool wide, float *v)
{
	UNROLL_FOR(int i = 0; i < N; i += 4) {
		if (wide)
			kn_take4(x + k + i, v + i);
		else
			UNROLL_FOR(int e = i; e < i + 4; e++)
				v[e] = k + e < n ? x[k + e] : 0;
	}
}

/* The sums over all lanes of each of N numbers, by kn_warp_sum's tree: lane l gets those from l · N / 32 on, in v[0]
 * and up. A step halves what a lane has, so it is N - N / 32 shuffles and not 5 · N. */
template <int N, int STEP = KN_WARP / 2> __device__ static inline void sum_apart(float *v, int lane)
{
	constexpr int half = N / 2;
	bool upper = (lane & STEP) != 0;
	UNROLL_FOR(int i = 0; i < half; i++) {
		float give = upper ? v[i] : v[i + half], keep = upper ? v[i + half] : v[i];
		v[i] = keep + kn_shuffle_xor(give, STEP);
	}
	if constexpr (STEP > 1)
		sum_apart<half, STEP / 2>(v, lane);
}

/* sum[N][RANKS] += the products of N numbers of each row, from k on, with w. All of them are asked for before the first
 * is used. */
template <int N, int RANKS, int AT_ONCE>
__device__ static inline void add_rows(const struct shrink_call &c, const int32_t *row, int k,
				       const float (*w)[AT_ONCE], float *sum)
{
	float x[N][AT_ONCE];
	UNROLL_FOR(int r = 0; r < N; r++)
		take_x<AT_ONCE>(c.x + (int64_t)row[r] * c.n_in, k, c.n_in, c.wide, x[r]);
	UNROLL_FOR(int r = 0; r < N; r++)
		UNROLL_FOR(int j = 0; j < RANKS; j++)
			UNROLL_FOR(int i = 0; i < AT_ONCE; i++)
				sum[r * RANKS + j] = kn_fma(w[j][i], x[r][i], sum[r * RANKS + j]);
}

/* Rows and ranks that are not there are computed as others are, and not stored: a load behind a condition would be
 * waited for before the next. Many ranks leave no registers for all of a lane's numbers at once. */
template <int TYPE, int RANKS>
__device__ static inline void shrink_tile(const struct shrink_call &c, const struct kn_lora &l,
					  const struct kn_lora_tile &tile, int j0)
{
	int lane = (int)threadIdx.x % KN_WARP, part = (int)threadIdx.x / KN_WARP;
	const uint8_t *a = (const uint8_t *)l.a;
	int pieces = (c.n_in + KN_LORA_PIECE - 1) / KN_LORA_PIECE, end = kn_part_begin(part + 1, pieces);
	int32_t row[FEW];
	constexpr int AT_ONCE = RANKS == FEW_RANKS ? KN_LORA_EACH : KN_LORA_EACH / 2;
	float sum[FEW * RANKS] = {};
	UNROLL_FOR(int r = 0; r < FEW; r++)
		row[r] = c.step.rows[tile.first + (r < tile.n ? r : 0)];
	for (int piece = kn_part_begin(part, pieces); piece < end; piece++) {
		UNROLL_FOR(int half = 0; half < KN_LORA_EACH; half += AT_ONCE) {
			int k = piece * KN_LORA_PIECE + lane * KN_LORA_EACH + half;
			float w[RANKS][AT_ONCE];
			if (k >= c.n_in)
				continue;
			UNROLL_FOR(int j = 0; j < RANKS; j++)
				take_a<TYPE, AT_ONCE>(a, j0 + j < l.rank ? j0 + j : l.rank - 1, k, c.n_in, c.wide,
						      w[j]);
			if (tile.n == 1)
				add_rows<1, RANKS, AT_ONCE>(c, row, k, w, sum);
			else
				add_rows<FEW, RANKS, AT_ONCE>(c, row, k, w, sum);
		}
	}
	sum_apart<FEW * RANKS>(sum, lane);
	float *parts = (float *)kn_shared(); /* [part][row][rank] */
	constexpr int all = FEW * RANKS, each = all / KN_WARP;
	UNROLL_FOR(int i = 0; i < each; i++)
		parts[part * all + lane * each + i] = sum[i];
	kn_barrier();
	for (int i = (int)threadIdx.x; i < all; i += THREADS) {
		int r = i / RANKS, j = j0 + i % RANKS;
		float total = 0;
		for (int p = 0; p < KN_PARTS; p++)
			total += parts[p * all + i];
		if (r < tile.n && j < l.rank)
			c.t[(int64_t)(tile.first + r) * c.t_width + j] = l.scales != NULL ? total * l.scales[j] : total;
	}
}

/* blockIdx.z: which FEW rows of a tile. */
template <int RANKS> __global__ void __launch_bounds__(THREADS) shrink(struct shrink_call c)
{
	kn_begin();
	kn_let_next();
	int j0 = (int)blockIdx.x * RANKS, skip = (int)blockIdx.z * FEW;
	for (int i = (int)blockIdx.y; i < c.step.n_tiles; i += (int)gridDim.y) {
		struct kn_lora_tile tile = c.step.tiles[i];
		if (tile.n == 0)
			return;
		tile.first += skip;
		tile.n = tile.n - skip < FEW ? tile.n - skip : FEW;
		const struct kn_lora *l = tile.sites + c.site;
		if (j0 >= l->rank || tile.n <= 0)
			continue;
		switch (l->type) {
		case KN_BF16: shrink_tile<KN_BF16, RANKS>(c, *l, tile, j0); break;
		case KN_F16: shrink_tile<KN_F16, RANKS>(c, *l, tile, j0); break;
		case KN_LORA_I8: shrink_tile<KN_LORA_I8, RANKS>(c, *l, tile, j0); break;
		default: shrink_tile<KN_F32, RANKS>(c, *l, tile, j0); break;
		}
		kn_barrier(); /* its sums have been read */
	}
}

template <int RANKS> static int launch_shrink(struct kn_backend *b, const struct shrink_call *c, int rank, int rows)
{
	dim3 grid((unsigned)((rank + RANKS - 1) / RANKS), blocks_of(c->step, rows), (unsigned)(rows / FEW));
	return KN_LAUNCH(b->dev, shrink<RANKS>, grid, THREADS, FEW * RANKS * KN_PARTS * sizeof(float), *c);
}

/* Takes back a product of few rows that was just recorded, unless x is what it makes. */
static bool take_product(struct kn_backend *b, const float *x, struct kn_taken *last)
{
	if (b->step->n_rows > KN_ROWS || !kn_cuda_take_back(b, last))
		return false;
	const float *y = last->p.y;
	if (x < y || x >= y + (int64_t)last->p.x.n_rows * last->p.n_out)
		return true;
	(void)kn_cuda_put_back(b, last); /* a fault stays in the device */
	return false;
}

/* A product of few rows that was just recorded goes behind it: it may then add what adapters add (kn_lora_after). */
int kn_cuda_lora_shrink(struct kn_backend *b, const struct kn_lora_rows *rows, const float *x, float *t)
{
	struct shrink_call c = {}; /* padding must be zero in a command */
	struct kn_taken last;
	if (b->step == NULL || b->lora.n_tiles == 0 || rows->rank > rows->t_width)
		return SL_EUNSUPPORTED;
	c.step = b->lora;
	c.x = x;
	c.t = t;
	c.t_width = rows->t_width;
	c.site = rows->site;
	c.n_in = rows->n_in;
	c.wide = rows->n_in % 16 == 0 && (uintptr_t)x % 16 == 0;
	bool back = take_product(b, x, &last);
	int rc = tile_rows(b->step->n_rows) == FEW ? launch_shrink<FEW_RANKS>(b, &c, rows->rank, FEW)
						   : launch_shrink<MANY_RANKS>(b, &c, rows->rank, MANY);
	if (rc == 0 && back)
		rc = kn_cuda_put_back(b, &last);
	b->shrunk = back ? dev_serial(b->dev) : 0;
	return rc;
}

/* ---- expand ---- */

struct expand_call {
	struct kn_lora_step step;
	const float *t;
	int t_width, site;
	int stride;                /* floats of a row of t in shared memory; a multiple of RANKS_AT_ONCE */
	int begins[KN_LORA_PARTS]; /* each part's first block */
	struct kn_lora_out outs[KN_LORA_PARTS];
};

/* The numbers of a tile's rows for a part, to shared memory. */
__device__ static inline void take_t(const struct expand_call &c, const struct kn_lora &l,
				     const struct kn_lora_tile &tile, int part, int rank)
{
	float *to = (float *)kn_shared();
	int first = 0;
	UNROLL_FOR(int i = 0; i < KN_LORA_PARTS - 1; i++)
		first += i < part ? l.parts[i].rank : 0;
	for (int i = (int)threadIdx.x; i < tile.n * rank; i += THREADS)
		to[i / rank * c.stride + i % rank] =
		    c.t[(int64_t)(tile.first + i / rank) * c.t_width + first + i % rank];
}

/* The numbers of an output from rank `from` on; some other's where there are none. */
template <int TYPE> __device__ static inline void take_b(const void *b, int o, int from, int rank, float *w)
{
	int64_t first = (int64_t)(o / KN_LORA_TILE) * rank * KN_LORA_TILE + o % KN_LORA_TILE;
	UNROLL_FOR(int j = 0; j < RANKS_AT_ONCE; j++)
		w[j] = kn_lora_number<TYPE>((const uint8_t *)b,
					    first + (int64_t)(from + j < rank ? from + j : 0) * KN_LORA_TILE);
}

/* Output o of a part, for a tile's rows. What comes from memory is asked for at once. Rows, ranks and outputs that are
 * not there are computed as others are, and not stored. An address is made again for its store: those of all rows would
 * take as many registers as their sums and numbers together. */
template <int TYPE, int ROWS>
__device__ static inline void expand_output(const struct expand_call &c, const struct kn_lora &l,
					    const struct kn_lora_tile &tile, const struct kn_lora_out &out, int part,
					    int o)
{
	const struct kn_lora::kn_lora_part p = l.parts[part];
	const float *t = (const float *)kn_shared();
	bool there = o < out.n_out;
	float sum[ROWS] = {}, was[ROWS], w[RANKS_AT_ONCE];
	int32_t row[ROWS];
	if (!there)
		o = out.n_out - 1;
	UNROLL_FOR(int r = 0; r < ROWS; r++)
		row[r] = c.step.rows[tile.first + (r < tile.n ? r : 0)];
	UNROLL_FOR(int r = 0; r < ROWS; r++)
		was[r] = out.y[(int64_t)row[r] * out.width + o];
	take_b<TYPE>(p.b, o, 0, p.rank, w);
	take_t(c, l, tile, part, p.rank);
	kn_barrier();
	for (int from = 0; from < p.rank; from += RANKS_AT_ONCE) {
		if (from > 0)
			take_b<TYPE>(p.b, o, from, p.rank, w);
		UNROLL_FOR(int j = 0; j < RANKS_AT_ONCE; j += 4)
			UNROLL_FOR(int r = 0; r < ROWS; r++) {
				struct kn_u4 four = kn_shared_load16(t + (r < tile.n ? r : 0) * c.stride + from + j);
				UNROLL_FOR(int i = 0; i < 4; i++)
					if (from + j + i < p.rank)
						sum[r] = kn_fma(w[j + i], kn_bits_float(kn_word(four, i)), sum[r]);
			}
	}
	UNROLL_FOR(int r = 0; r < ROWS; r++)
		if (there && r < tile.n)
			out.y[(int64_t)kn_anew(row[r]) * out.width + o] = kn_fma(p.scale, sum[r], was[r]);
}

/* A block has THREADS outputs of a part, for a tile of rows. */
template <int ROWS> __global__ void __launch_bounds__(THREADS, 1) expand(struct expand_call c)
{
	kn_begin();
	int part = 0, o = (int)blockIdx.x * THREADS + (int)threadIdx.x;
	struct kn_lora_out out = c.outs[0];
	UNROLL_FOR(int i = 1; i < KN_LORA_PARTS; i++)
		if ((int)blockIdx.x >= c.begins[i]) { /* the last of these is the block's */
			part = i;
			out = c.outs[i];
		}
	UNROLL_FOR(int i = 0; i < KN_LORA_PARTS; i++)
		o -= i == part ? c.begins[i] * THREADS : 0;
	for (int i = (int)blockIdx.y; i < c.step.n_tiles; i += (int)gridDim.y) {
		struct kn_lora_tile tile = c.step.tiles[i];
		if (tile.n == 0)
			return;
		const struct kn_lora *l = tile.sites + c.site;
		if (l->parts[part].rank == 0)
			continue;
		switch (l->type) {
		case KN_BF16: expand_output<KN_BF16, ROWS>(c, *l, tile, out, part, o); break;
		case KN_F16: expand_output<KN_F16, ROWS>(c, *l, tile, out, part, o); break;
		case KN_LORA_I8: expand_output<KN_LORA_I8, ROWS>(c, *l, tile, out, part, o); break;
		default: expand_output<KN_F32, ROWS>(c, *l, tile, out, part, o); break;
		}
		kn_barrier(); /* its numbers have been read */
	}
}

template <int ROWS> static int launch_expand(struct kn_backend *b, struct expand_call *c)
{
	int blocks = 0;
	for (int i = 0; i < KN_LORA_PARTS; i++) {
		c->begins[i] = blocks;
		blocks += (c->outs[i].n_out + THREADS - 1) / THREADS;
	}
	return KN_LAUNCH(b->dev, expand<ROWS>, dim3((unsigned)blocks, blocks_of(c->step, ROWS)), THREADS,
			 (size_t)(ROWS * c->stride) * sizeof(float), *c);
}

/* Whether the parts' outputs are those of one product's rows, and each part's begin with a tile. */
static bool joined_as(const struct kn_lora_out *outs, const struct kn_product *p, struct kn_lora_after *c)
{
	for (int i = 0; i < KN_LORA_PARTS; i++) {
		int64_t at = outs[i].y - p->y;
		if (outs[i].n_out == 0)
			continue;
		if (outs[i].width != p->n_out || at < 0 || at % KN_OUTS != 0 || at + outs[i].n_out > p->n_out)
			return false;
		c->at[i] = (int)at;
		c->n[i] = outs[i].n_out;
	}
	return true;
}

/* By the end of the product that shrink put behind itself. KN_NOT_TAKEN: it can't. */
static int expand_after(struct kn_backend *b, const struct kn_lora_rows *rows, const float *t,
			const struct kn_lora_out *outs)
{
	struct kn_taken last;
	if (b->shrunk == 0 || b->shrunk != dev_serial(b->dev) || !kn_cuda_take_back(b, &last))
		return KN_NOT_TAKEN;
	bool can = last.lora.step.n_tiles == 0 && joined_as(outs, &last.p, &last.lora); /* once */
	if (can) {
		last.lora.step = b->lora;
		last.lora.t = t;
		last.lora.t_width = rows->t_width;
		last.lora.site = rows->site;
	}
	int rc = kn_cuda_put_back(b, &last);
	return rc != 0 || can ? rc : (int)KN_NOT_TAKEN;
}

int kn_cuda_lora_expand(struct kn_backend *b, const struct kn_lora_rows *rows, const float *t,
			const struct kn_lora_out outs[KN_LORA_PARTS])
{
	struct expand_call c = {};
	if (b->step == NULL || b->lora.n_tiles == 0)
		return SL_EUNSUPPORTED;
	int rc = expand_after(b, rows, t, outs), rank = rows->rank < KN_LORA_RANK ? rows->rank : (int)KN_LORA_RANK;
	if (rc != KN_NOT_TAKEN)
		return rc;
	c.step = b->lora;
	c.t = t;
	c.t_width = rows->t_width;
	c.site = rows->site;
	c.stride = (rank + RANKS_AT_ONCE - 1) / RANKS_AT_ONCE * RANKS_AT_ONCE;
	for (int i = 0; i < KN_LORA_PARTS; i++) {
		c.outs[i].y = outs[i].y;
		c.outs[i].width = outs[i].width;
		c.outs[i].n_out = outs[i].n_out;
	}
	return tile_rows(b->step->n_rows) == FEW ? launch_expand<FEW>(b, &c) : launch_expand<MANY>(b, &c);
}
