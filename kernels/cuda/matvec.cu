/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of up to 16 rows. Memory is the bound, so every byte of the weights is read once for all rows, by loads of
 * 16 bytes per lane and 512 per warp.
 *
 * A block computes 16 outputs for all rows. Each of its eight warps has a part of K (matmul.h); shared memory adds
 * the parts in order. Rows are the narrow side of the matrix unit's tile: a single row wastes seven of eight, and
 * even so the unit is not the bottleneck (below).
 *
 * VERSIONS
 *  1  a lane decodes eight weights at a time to float32, as the file has them, and multiplies them with every
 *     row. Counted for Q4_K on an H200: 4.3 TB/s over 132 multiprocessors at 1.755 GHz are 18.6 bytes or 33
 *     weights a cycle; 9 operations a weight for one row and 16 for eight are 297 and 528 lanes' work of the 128
 *     there are: 43 % and 24 % of a copy. Loads of 8 bytes a lane at best.
 *  2  by matrix units. Counted for a slab of a tile (512 weights, 15.5 cycles of memory for Q4_K, so 62 issue slots on
 *     the four schedulers; one warp's instructions): 1 load of weights (of 16 bytes, for two slabs), 1 of
 *     activations, 22 to decode (6 shifts, 8 and-ors, 8 subtractions of pairs), 12 for scales and
 *     minimums, 2 of the matrix unit, 14 to add up (8 of them multiply-adds), 4 loads of sums: some 55, 89 % of
 *     the slots. Types without minimums: 37. Q8_0 (272 bytes a slab-tile of 16, 29 cycles, 117 slots): 1 + 1 + 16
 *     + 4 + 2 + 4. bf16 (55 cycles, 220 slots): 2 + 1 + 2. The matrix units: 2 × 2048 multiply-adds in 15.5
 *     cycles are 264 a cycle of about 1300 that mma.sync reaches. In flight: 2 KiB a warp for four-bit types, 16
 *     warps a multiprocessor or more: 32 KiB, where 4.3 TB/s at 700 ns want 23. Activations of eight rows are 16
 *     bytes a lane and slab, as many as two slabs of four-bit weights: from the first-level cache, which weights
 *     go past. So expected: 85 to 90 % of a copy, Q4_K and Q5_K 75 to 85 %; at 9 to 16 rows the cache is read
 *     twice as much. dp4a was counted too: int8 activations, 8 rows: 1 dp4a for four weights and row is 64
 *     instructions a slab-tile and 16 more to scale, against 2 and 4 here. Not measured on a device.
 *     INT4: a scale for four slabs, whose 8 matrix operations go into one accumulator: 1/2 + 1 + 22 + 2 + a quarter of 8
 *     and no head but 2 of the chunk: 28 of 62 slots, so bound by memory; 4.125 bits a weight: 3.9 times bf16's rate.
 *  3  as 2, but rows that are not there are not loaded (one row: 64 bytes of activations a slab, not 512), and a lane's
 *     four sums are one load.
 *  4  for one or two rows the last block of a product also does the norm or gate after it, since it has the threads:
 *     three launches fewer a layer. A norm's kernel has one block a row anyway, so what goes is the time from the end of
 *     one kernel to the start of the next, 1 to 1.5 us, for an atomic add and a fence of each block. Counted for 32
 *     layers: 96 launches of 330, some 100 us of 3.5 ms. For more rows a block each in parallel is quicker. Not measured
 *     on a device.
 *  5  up to eight rows: a rotation of queries and keys, and a gate whose numbers become bfloat16, follow by shares
 *     (then.h), so they run beside the other tiles' products instead of after all of them. Each block has a fence and
 *     an atomic add for it, as in 4. Counted for an 8B model: a rotation has 8 shares of 48 tiles; a warp a row reads 5
 *     heads in 3 rounds and writes 256 numbers, some 4 waits for the second-level cache, 1.5 us at the end of the
 *     kernel that would be 2 to 2.5 as one of its own. A gate has 896 shares of two tiles; each reads 1 KB of eight
 *     rows, where its kernel read 0.9 MB in 8 blocks. What it costs: the gate writes the next product's rows while
 *     other tiles read this one's, so few rows are converted to two places in turn (8 rows of 14336: 0.23 MB more).
 *     Not done by shares: a norm, which needs its whole row: of eight rows one block would read 0.25 MB and write
 *     0.3, 5 us against 2 for 8 blocks; and gates that become float16, which need the row's largest number first.
 *     Launches of a step, counted in tests/kernels/test_steps.c, with attention's (attention.cu): bf16 234, now 171;
 *     eight rows 329, now 234; q4_k_m, half of whose layers have three products for one, 266, now 235. Eight rows of
 *     float16 activations keep the kernels of their gates and attention's merging. On an H200, the products of an 8B layer for
 *     1 and 8 rows: BF16 118 and 123 us, where a copy of the bytes takes 102; Q8_0 73 and 74 (54); INT4 62 and 61 (26); Q4_0
 *     61 and 63, Q4_K 77 and 77 (29); FP8 82 and 83 (51).
 *  6  four codes by one shift: those that are 16 times too large are multiplied by 1/16 as they lose their offset
 *     (packed.h), and a mask and the exponent are one instruction. Of a chunk of Q4_0 280 instructions, not 376. On an
 *     H100, in turns: INT4 65.2, now 60.2 us, Q4_0 65.5 and 60.1, Q4_K 78.6 and 74.4; 256 rows (wgmma.cu) 431 and 397,
 *     505 and 470, 826 and 790. So instructions are not all of it. Tried there, too: asking for the next chunk while one
 *     is multiplied: INT4 78, Q4_0 78, Q4_K 94, Q8_0 98 (92), FP8 93.7 (99), BF16 160 (159): what a lane holds, the loads
 *     of activations lack. Three blocks a multiprocessor for four bits, of 80 registers: 61.6, 65.5, 78.0.
 */
#include "kernels/cuda/experts.h"
#include "kernels/cuda/matvec.h"
#include "kernels/cuda/then.h"

enum {
	THREADS = MATVEC_THREADS,
	MOST_OPENED = 4096, /* numbers of a row that a warp opens */
	FEW = 2,            /* rows: one block does what follows, where a kernel of its own would have a block a row */
};
static_assert((int)THREADS == (int)NORM_THREADS, "a block does a row's norm or gate");

template <int TYPE, int NT> __global__ void __launch_bounds__(THREADS, 2) matvec(struct kn_product p)
{
	kn_begin();
	multiply<TYPE, NT>(p);
}

template <int TYPE>
__global__ void __launch_bounds__(THREADS, 2) matvec_grouped(struct kn_product p, struct kn_grouped g)
{
	kn_begin();
	if (kn_take_group<TYPE>(g, (int)blockIdx.y, (int)blockIdx.z, &p))
		multiply<TYPE, 1>(p);
}

template <int TYPE>
__global__ void __launch_bounds__(THREADS, 2)
    matvec_opened(struct kn_product p, struct kn_grouped g, struct kn_gate_call c, uint32_t *arrived)
{
	kn_begin();
	int i = (int)blockIdx.y, warp = (int)threadIdx.x / KN_WARP, lane = (int)threadIdx.x % KN_WARP;
	if (!kn_take_group<TYPE>(g, i, (int)blockIdx.z, &p))
		return; /* the whole block */
	multiply<TYPE, 1>(p);
	if (!kn_is_last_block(arrived + i, gridDim.x * gridDim.z))
		return;
	struct kn_group at = g.groups[i];
	if (warp < at.n && c.into.bf16)
		kn_open_row<KN_AS_BF16, true>(c, at.row + warp, lane);
	else if (warp < at.n)
		kn_open_row<KN_AS_F16, true>(c, at.row + warp, lane);
}

/* The last block of each share also does what follows. */
__device__ static inline void follow(const struct kn_then &then)
{
	struct kn_share share = kn_share_of(then, (int)blockIdx.x, (int)gridDim.x);
	if (kn_is_last_block(then.arrived + share.i, (uint32_t)share.n))
		kn_then_share(then, share.i);
}

template <int TYPE> __global__ void __launch_bounds__(THREADS, 2) matvec_then(struct kn_product p, struct kn_then then)
{
	kn_begin();
	multiply<TYPE, 1>(p);
	follow(then);
}

/* Adds what adapters add, by what the kernel before made, and is let start while that runs (device.h). */
template <int TYPE>
__global__ void __launch_bounds__(THREADS, 2)
    matvec_lora(struct kn_product p, struct kn_lora_after lora, struct kn_then then)
{
	multiply<TYPE, 1>(p, 0, &lora);
	if (then.what != KN_THEN_NOTHING)
		follow(then);
}

template <int TYPE, int NT> static int launch(struct kn_backend *b, const struct kn_product *p)
{
	return KN_LAUNCH(b->dev, (matvec<TYPE, NT>), (unsigned)kn_cuda_tiles(p->n_out), THREADS, matvec_shared<NT>(),
			 *p);
}

/* ---- what follows ---- */

/* The recorded product that was launched last, if nothing followed it; NULL. */
static const struct kn_product *last_product(struct kn_backend *b)
{
	struct kn_list *l = dev_recording(b->dev);
	if (l == NULL || b->last.serial != dev_serial(b->dev) || b->last.at >= l->n)
		return NULL;
	return (const struct kn_product *)kn_args_of(kn_list_at(l, b->last.at));
}

typedef struct kn_args<struct kn_product, struct kn_lora_after, struct kn_then> lora_args;

static int launch_lora(struct kn_backend *b, int type, const struct kn_product &p, const struct kn_lora_after &lora,
		       const struct kn_then &then)
{
	size_t shared = matvec_shared<1>() + KN_ROWS * sizeof(struct kn_lora_tile_row);
	return kn_of_packed(type, (int)SL_EUNSUPPORTED, [&](auto t) {
		return KN_LAUNCH(b->dev, matvec_lora<decltype(t)::type>, (unsigned)kn_cuda_tiles(p.n_out), THREADS,
				 shared, p, lora, then);
	});
}

static int rows_of(const struct kn_then *then)
{
	return then->what == KN_THEN_ROPE ? then->rope.n_rows : then->c.n_rows;
}

/* Whether the blocks of a product of n_out outputs can share it out. */
static bool can_share(const struct kn_backend *b, int n_out, const struct kn_then *then)
{
	const struct kn_pages *pages = &then->rope.pages;
	if (then->what < KN_THEN_PAIRED_SILU)
		return rows_of(then) <= FEW;
	if (rows_of(then) > KN_ROWS)
		return false;
	if (then->what < KN_THEN_ROPE)
		return then->c.wide && then->c.width % KN_OUTS == 0 && then->c.width / KN_OUTS <= b->n_arrived;
	return pages->head_dim % KN_OUTS == 0 && pages->n_kv_heads <= b->n_arrived &&
	       n_out % (pages->n_kv_heads * pages->head_dim) == 0;
}

int kn_cuda_then(struct kn_backend *b, const float *y, int n_out, struct kn_then *then)
{
	const struct kn_product *last = last_product(b);
	if (last == NULL || b->arrived == NULL || last->y != y || last->n_out != n_out ||
	    last->x.n_rows != rows_of(then) || !can_share(b, n_out, then))
		return KN_NOT_TAKEN;
	struct kn_taken taken;
	then->arrived = b->arrived;
	(void)kn_cuda_take_back(b, &taken);
	const struct kn_product &p = taken.p;
	if (taken.lora.step.n_tiles > 0)
		return launch_lora(b, taken.type, p, taken.lora, *then);
	return kn_of_packed(taken.type, (int)SL_EUNSUPPORTED, [&](auto t) {
		return KN_LAUNCH(b->dev, matvec_then<decltype(t)::type>, (unsigned)kn_cuda_tiles(p.n_out), THREADS,
				 matvec_shared<1>(), p, *then);
	});
}

bool kn_cuda_take_back(struct kn_backend *b, struct kn_taken *out)
{
	const struct kn_product *last = last_product(b);
	*out = {}; /* padding must be zero in a command */
	if (last == NULL)
		return false;
	out->p = *last;
	out->type = b->last.type;
	if (b->last.adds)
		out->lora = ((const lora_args *)(const void *)last)->tail.head;
	kn_list_undo(b->dev, b->last.at);
	return true;
}

/* Where the next command is recorded. */
static size_t next_at(struct kn_backend *b) { return dev_recording(b->dev) != NULL ? dev_recording(b->dev)->n : 0; }

int kn_cuda_put_back(struct kn_backend *b, const struct kn_taken *taken)
{
	struct kn_then nothing = {};
	size_t at = next_at(b);
	nothing.what = KN_THEN_NOTHING;
	if (taken->lora.step.n_tiles == 0)
		return kn_cuda_matvec(b, taken->type, &taken->p);
	int rc = launch_lora(b, taken->type, taken->p, taken->lora, nothing);
	b->last = {at, dev_serial(b->dev), taken->type, true};
	return rc;
}

int kn_cuda_matvec(struct kn_backend *b, int type, const struct kn_product *p)
{
	size_t at = next_at(b);
	int rc = kn_of_packed(type, (int)SL_EUNSUPPORTED, [&](auto t) {
		constexpr int of = decltype(t)::type;
		return p->x.n_rows <= KN_ROWS ? launch<of, 1>(b, p) : launch<of, 2>(b, p);
	});
	b->last = {at, dev_serial(b->dev), type, false};
	return rc;
}

int kn_cuda_matvec_grouped(struct kn_backend *b, int type, const struct kn_product *p, const struct kn_grouped *g)
{
	dim3 grid((unsigned)kn_cuda_tiles(p->n_out), (unsigned)g->most, (unsigned)g->n_sides);
	return kn_of_packed(type, (int)SL_EUNSUPPORTED, [&](auto t) {
		return KN_LAUNCH(b->dev, matvec_grouped<decltype(t)::type>, grid, THREADS, matvec_shared<1>(), *p, *g);
	});
}

int kn_cuda_matvec_opened(struct kn_backend *b, int type, const struct kn_product *p, const struct kn_grouped *g,
			  const struct kn_gate_call *c)
{
	static_assert((int)THREADS / KN_WARP >= (int)KN_ROWS, "a warp for each row");
	dim3 grid((unsigned)kn_cuda_tiles(p->n_out), (unsigned)g->most, (unsigned)g->n_sides);
	if (b->arrived == NULL || g->most > b->n_arrived || c->n_ff > MOST_OPENED)
		return KN_NOT_TAKEN;
	return kn_of_packed(type, (int)KN_NOT_TAKEN, [&](auto t) {
		return KN_LAUNCH(b->dev, matvec_opened<decltype(t)::type>, grid, THREADS, matvec_shared<1>(), *p, *g,
				 *c, b->arrived);
	});
}
