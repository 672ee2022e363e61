/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU backend's state and what its files share. Operations run on the calling thread and the pool's (pool.h).
 *
 * cpu.c        products, the tables           rows.c       row-wise operations
 * attention.c  rotary embedding, pages, attention
 * weights.c    interleaved weights            memory.c     host memory (host.h)
 * recurrent.c  layers that keep a state
 * experts.c    mixtures of experts            route.c      the choice of a row's experts
 * grouped.c    products of many matrices      latent.c     latent rows, products of heads
 * lora.c       low-rank adapters
 * isa.h        the inner loops of an instruction set: simd_*.h, included by *_avx2.c, *_avx512.c and *_vnni.c
 * ref.c        the reference: a backend of its own, and the oracle of the tests
 */
#ifndef KERNELS_CPU_BACKEND_H
#define KERNELS_CPU_BACKEND_H

#include <stdbool.h>

#include "kernels/cpu/host.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/pool.h"

enum { KN_MIN_PART = 1 << 17 };  /* multiply-adds that justify a separate part: about 10 µs */
enum { KN_MIN_SHARE = 1 << 16 }; /* the same for a share of a product, which needs no fork */
enum { KN_PACK_COST = 8 };       /* cost of packing an activation, in multiply-adds */
/* Steps of fewer multiply-adds do not wake sleeping threads. Waking takes as long as it saves (two threads, a step of
 * 1.2 million: 0.22 ms with both, 0.16 alone), and other processes keep the cores. */
enum { KN_LONE_STEP = 3 << 20 };

/* Cosines and sines of the step's rows for one rotation, computed at the first layer that uses it: [n_rows][n_rot / 2]
 * each, in one block. */
struct kn_turns {
	float *at;
	size_t n;               /* capacity in floats */
	const double *inv_freq; /* their source; NULL: unused in this step */
	float magnitude;
};

/* The weights that a product reads first. */
struct kn_first {
	const void *at;
	size_t stride, bytes; /* as kn_pool_soon */
};

enum { KN_N_ROPES = 2 }; /* the limit per model */

struct kn_backend {
	const struct kn_isa *isa;
	struct kn_pool *pool;
	const struct kn_step *step;
	/* Per thread: decoded weights, half an L2 cache or as much as the longest rows need. */
	void *tiles;
	size_t tiles_bytes, tile_floats; /* of all threads, and of one */
	/* Packed rows, if the instruction set packs, and their source. They stay valid while only products are called:
	 * gate and up, or q, k and v, share them. */
	void *packed;
	size_t packed_bytes;
	const float *packed_of; /* NULL: none */
	int packed_rows, packed_width;
	/* The products of the last step, in order, for prefetching the next one. One entry per weight. */
	struct kn_first *order;
	int n_order, room, at_product;
	int64_t work;     /* multiply-adds of this step's products so far */
	int64_t row_work; /* per row of the last step, rounded down; 0: no step yet */
	bool lone;        /* this step runs on the caller's thread only */
	struct kn_turns turns[KN_N_ROPES];
	/* For attention: sums of a block for each thread, or of all blocks where a sequence is divided. */
	float *sums;
	size_t n_sums;
	void *lora_tiles; /* lora.c: of all threads */
	size_t lora_bytes;
	struct kn_by_expert *by_expert;     /* experts.c; NULL: no step had experts */
	struct kn_expert_rows *expert_rows; /* lora.c; NULL: no experts had adapters */
	struct kn_pieces *pieces;           /* grouped.c; NULL likewise */
	char line[64];
};

/* The number of parts for `work` multiply-adds: each at least KN_MIN_PART, and a few per thread so that a delayed
 * thread does not delay all. */
static inline int kn_parts_of(const struct kn_backend *b, int64_t work)
{
	int64_t most = (int64_t)kn_pool_n_threads(b->pool) * 4, parts = work / KN_MIN_PART;
	return parts < 2 || b->lone ? 1 : (int)(parts < most ? parts : most);
}

static inline void kn_run_parts(struct kn_backend *b, int n_parts, void (*run)(void *ctx, int i), void *ctx)
{
	if (n_parts == 1)
		run(ctx, 0);
	else
		kn_pool_run(b->pool, n_parts, run, ctx);
}

/* Functions behind kn_ops, named kn_cpu_NAME: weights.c, rows.c, attention.c. Those that write activations drop the
 * packed rows (packed_of). */
#define KN_CPU_OPS(X)     \
	X(weight_free)    \
	X(weight_made)    \
	X(rmsnorm)        \
	X(add_rmsnorm)    \
	X(embed_add)      \
	X(layernorm)      \
	X(experts)        \
	X(add_gated)      \
	X(latent_write)   \
	X(matmul_heads)   \
	X(lora_shrink)    \
	X(lora_expand)    \
	X(lora_lookup)    \
	X(conv)           \
	X(delta)          \
	X(ssm)            \
	X(relu_square)    \
	X(rmsnorm_groups) \
	X(halve)          \
	X(sigmoid_mul)    \
	X(silu_mul) X(gelu_mul) X(gelu) X(add) X(add_row) X(scale) X(softcap) X(kv_type) X(rope_kv_write) X(attention)
#define KN_CPU_ENTRY(op) .op = kn_cpu_##op,
#define KN_CPU_DECLARE(op) __typeof__(*((struct kn_ops *)NULL)->op) kn_cpu_##op;
KN_CPU_OPS(KN_CPU_DECLARE)

/* Grows the area *at of *have bytes to at least `bytes`; its content is lost. SL_ENOMEM. */
int kn_reserve_bytes(void **at, size_t *have, size_t bytes);
/* Room for packed rows of n_in floats, at least n_rows of them and `least` bytes, where the instruction set packs.
 * Earlier content is lost. SL_ENOMEM. */
int kn_reserve_packed(struct kn_backend *b, int n_rows, int n_in, size_t least);

/* ---- attention.c ---- */

/* Cosines and sines [n_rot / 2] of the step's rows for a rotation, one after the other; NULL: out of memory. */
const float *kn_turns_of_step(struct kn_backend *b, const struct kn_rope *rope);
void kn_rotate(const struct kn_rope *rope, float *head, const float *cosines, const float *sines);

/* ---- rows.c ---- */
/* y[width] = x, normalized and scaled by the gain, as rmsnorm; y may be x. */
void kn_norm_floats(const struct kn_backend *b, const float *x, const float *gain, float eps, int width, float *y);
/* As silu_mul, with KN_GATE_CLAMPED. */
int kn_cpu_clamped_mul(struct kn_backend *b, float *gate, const float *up, int n_rows, int width);

/* ---- experts.c ---- */
void kn_by_expert_free(struct kn_by_expert *s); /* NULL: nothing */

/* ---- lora.c ---- */
/* A step's rows in the order of their experts: slot k of row r is number r·n_used + k, which is row place[number] of
 * those that experts read and write. */
struct kn_slots {
	const int32_t *chosen, *place; /* [n_rows · n_used] */
	int n_used;
};
/* Groups of the rows of e->lora, by adapter and expert; before the other two. SL_ENOMEM. */
int kn_expert_lora_begin(struct kn_backend *b, const struct kn_experts *e, const struct kn_slots *s);
/* What product `which` (0: gate and up, 1: down) of x [..][n_in], in the order of experts, gets. */
int kn_expert_lora_add(struct kn_backend *b, const struct kn_experts *e, int which, const float *x, int n_in,
		       const struct kn_lora_out outs[KN_LORA_PARTS]);
void kn_expert_rows_free(struct kn_expert_rows *r); /* NULL: nothing */

/* ---- weights.c ---- */
/* Interleaves the weight w, which has the file's layout; w then owns memory. SL_ENOMEM. */
int kn_weight_interleave(struct kn_backend *b, struct kn_weight *w, struct sl_err *err);
/* Prefetches the weights that a share of w from output o0 on begins with, to the L2 cache. */
void kn_bring_share(const struct kn_backend *b, const struct kn_weight *w, int o0);
/* A weight that uses interleaved bytes in place, without owning them. SL_EINVAL: the wrong number of bytes for such a
 * matrix. */
int kn_weight_adopt(const void *made, size_t bytes, int type, int n_out, int n_in, struct kn_weight *out,
		    struct sl_err *err);

#endif
