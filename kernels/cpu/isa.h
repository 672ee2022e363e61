/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface of an instruction set: its inner loops. cpu.c has everything around them (memory, threads, pages, the
 * table of operations), the same for all.
 *
 * Order of reduction, fixed for each function whatever the tile or thread:
 *   dot products over K: lane l of one accumulator adds w[k]·x[k] for k = l, l + lanes, … by fused
 *   multiply-add; the lanes are then added pairwise, halves first. What is left over after the last
 *   whole vector (or block) is added one by one at the end.
 */
#ifndef KERNELS_CPU_ISA_H
#define KERNELS_CPU_ISA_H

#include <stdbool.h>

#include "kernels/kernels.h"

/* Arrays of vectors live in registers only where every index is a constant. */
#define UNROLL_FOR(...) _Pragma("GCC unroll 16") for (__VA_ARGS__)

#define INLINE static inline __attribute__((always_inline))

/* The minimum of scratch memory, in floats, for matmul with rows of n_in weights: one tile. With more it decodes more
 * weights at once for all rows. */
static inline size_t kn_least_tile(int n_in)
{
	enum { MAX_LANES = 16, MAX_TILE_OUT = 8 };
	return ((size_t)n_in / MAX_LANES + 1) * MAX_LANES * MAX_TILE_OUT;
}

/* Adjacent positions of an attention block within one page. */
struct kn_run {
	const void *k; /* of the page and key head: [dim][page_tokens] elements of the pool's type, or latent rows */
	const void *v; /* the same: [page_tokens][dim]; or the same rows */
	const float *k_scale, *v_scale; /* [page_tokens], where the type has them */
	/* The memory read after k and after v, of the same sizes, prefetched meanwhile. Never NULL. */
	const void *k_next, *v_next;
	int token; /* index of the first position in its page */
	int at, n; /* index of the first position in the block; number of positions */
};

/* The softmax state of a query over its past, or over a block of it: the largest score, and Σ exp(score - max). */
struct kn_seen {
	float max, sum;
};

/* A head of the delta rule (kernels.h: kn_delta) at one row: its key and query, both divided as they are to be, what
 * the state is multiplied with, and the weight of the change. */
struct kn_delta_row {
	const float *k, *q; /* [k_dim] */
	int k_dim, v_dim;
	float keep, beta;
};

/* A head of a state space (kernels.h: kn_ssm) at one row: B and C of its group, what the state is multiplied with, the
 * step's length, and d. */
struct kn_ssm_row {
	const float *b, *c; /* [state] */
	int state, head_dim;
	float keep, step, skip;
};

/* Packs its share, `part` of n_parts, of rows x [n_rows][n_in]. Shares may run side by side. */
typedef void kn_pack_fn(int type, const float *x, int n_rows, int n_in, int part, int n_parts, void *packed);
/* As kn_isa.matmul, of packed rows. */
typedef void kn_matmul_packed_fn(const struct kn_weight *w, int o0, int o1, const void *packed, int n_rows, float *y,
				 float *tile, size_t tile_floats);

enum { KN_LORA_DOTS = 4 }; /* rows of A that are computed together, at most */

struct kn_isa {
	const char *name; /* of the backend: "cpu-avx2" */
	int tile_outputs; /* whole tiles of a product are multiples of it, a cache line of y at least */
	/* y[r][o] for o in [o0, o1) and all rows; x is [n_rows][n_in], y is [n_rows][n_out]; tile is the calling
	 * thread's scratch memory, KN_ALIGN-aligned, of tile_floats. */
	void (*matmul)(const struct kn_weight *w, int o0, int o1, const float *x, int n_rows, float *y, float *tile,
		       size_t tile_floats);
	/* Products with rows that are packed once for all outputs, for some types; packs is NULL if unsupported.
	 * Parts of a packing may run in parallel; packed is KN_ALIGN-aligned. */
	bool (*packs)(int type); /* from weight_load */
	size_t (*packed_bytes)(int n_rows, int n_in);
	kn_pack_fn *pack;
	kn_matmul_packed_fn *matmul_packed;
	bool packs_alike; /* the packed form is the same for all types */
	/* Weights of these types are interleaved when they are loaded (int8.h). NULL: none. */
	bool (*interleaves)(int type);
	/* s[i][p] = q_i·k_p for n_q queries and every position p of the runs, as raw products: the sum
	 * over d in order, by fused multiply-add, so a score is the same bits whatever the tile. Adjacent positions
	 * may be overwritten; s is [n_q][KN_ATTN_BLOCK]. type: KN_F32, KN_F16,
	 * KN_KV_Q8. */
	void (*scores)(int type, const float *const *q, int n_q, const struct kn_run *runs, int n_runs, int page_tokens,
		       int dim, float *s);
	/* The same for latent rows: the keys are [tokens][width], and the sum is that of a dot product (above). */
	void (*row_scores)(int type, const float *const *q, int n_q, const struct kn_run *runs, int n_runs, int width,
			   float *s);
	/* The block's scores of one query become weights, those outside of from…to-1 zero; *seen is of this
	 * block, its sum 0 where nothing is seen. begin is a multiple of the lanes; writes begin…end-1,
	 * rounded up to the lanes. */
	void (*softmax)(float *s, int begin, int end, int from, int to, const struct kn_attn *attn,
			struct kn_seen *seen);
	/* out_i[d] += Σ_p s[i][p]·v_p[d], d < dim, p in order, for n_q queries; values are `width` elements apart.
	 * Changes s. */
	void (*weigh)(int type, float *s, int n_q, const struct kn_run *runs, int n_runs, int width, int dim,
		      float *const *out);
	/* A block's sums part[dim] join those of the blocks before it; *seen begins as zeros. */
	void (*merge)(const float *part, const struct kn_seen *of_part, struct kn_seen *seen, float *out, int dim);
	/* Stores x[n], one token of a key head, as consecutive elements of a type. Returns their scale. */
	float (*put_kv)(int type, const float *x, int n, void *out);
	/* t[i·t_width + j] = a[j] · x[rows[i]] for n_a rows of a [..][n_in] and all rows, in the order above. tile:
	 * scratch memory, KN_LORA_DOTS · n_in floats; or NULL. */
	void (*lora_dots)(int type, const void *a, int n_a, int n_in, const float *x, const int32_t *rows, int n_rows,
			  float *t, int t_width, float *tile);
	/* y[rows[i]·width + o] += scale · Σ_j t[i·t_width + j] · b[j][o], j in order, for o in [o0, o1); o0 is a
	 * multiple of KN_LORA_TILE, and so is o1, unless it is n_out. */
	void (*lora_add)(int type, const struct kn_lora_part *p, int o0, int o1, const float *t, int t_width,
			 const int32_t *rows, int n_rows, float *y, int width);
	/* Σ x[i]² in the order above. */
	float (*sum_squares)(const float *x, int n);
	/* s [k_dim][v_dim] goes on by the row with these values; y is what the query finds. Sums over k_dim are in
	 * order, by fused multiply-add. */
	void (*delta)(const struct kn_delta_row *r, float *s, const float *v, float *y);
	/* The same of a state space: s [state][head_dim] takes x in, and y is what C reads. */
	void (*ssm)(const struct kn_ssm_row *r, float *s, const float *x, float *y);
};

extern const struct kn_isa kn_isa_avx2, kn_isa_avx2_int8, kn_isa_avx512, kn_isa_vnni, kn_isa_amx, kn_isa_amx_int8;

#endif
