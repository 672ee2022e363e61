/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of operations between the engine and what computes. The engine includes this header only; a backend sees
 * flat arrays, never sequences, requests or models. `kernels/backend` chooses a backend, `kernels/cpu` and
 * `kernels/cuda` are backends.
 *
 * Backend     a table (kn_ops) and its state (kn_backend). One thread at a time calls it: the engine's step thread, or
 *             its loader before the first step.
 * Memory      activations, KV and weights are the backend's: plain pointers that only it may dereference (device
 *             addresses on a GPU). Adding floats to one is allowed. Activations are float32 [n_rows][width],
 *             64-byte aligned at row 0.
 * Step        operations between step_begin and step_end take effect in call order; the host sees results after
 *             step_end. step_end is step_issue, which starts the step, and step_wait, which delivers the oldest issued
 *             step. Steps take effect in the order of issue. Without `ahead` a step has run when step_issue returns.
 * Fault       operations return 0, or SL_EIO after a device fault; from then on the backend can only be closed.
 * Invariance  an output row depends on its own inputs only. The order of reduction over K is fixed by weight type and
 *             instruction set; attention reduces at absolute multiples of KN_ATTN_BLOCK positions, left to right.
 */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { KN_ATTN_BLOCK = 256, KN_ALIGN = 64 };

/* Element types, numbered as GGUF numbers them. blocks.h has their layouts. */
enum kn_type {
	KN_F32 = 0,
	KN_F16 = 1,
	KN_Q4_0 = 2,
	KN_Q4_1 = 3,
	KN_Q5_0 = 6,
	KN_Q5_1 = 7,
	KN_Q8_0 = 8,
	KN_Q2_K = 10,
	KN_Q3_K = 11,
	KN_Q4_K = 12,
	KN_Q5_K = 13,
	KN_Q6_K = 14,
	KN_IQ4_NL = 20,
	KN_IQ4_XS = 23,
	KN_BF16 = 30,
	KN_MXFP4 = 39,
	/* In no file (kn_type_in_files), with a number of our own below 64: what others become on load. */
	KN_INT4 = 63,
	/* Of keys and values only (kv_type.h), with numbers of our own. */
	KN_KV_Q8 = 1000,
	KN_FP8 = 1001,
};

/* Elements per block and bytes per block; 0 for a type this build does not know. */
int kn_type_block(int type);
size_t kn_type_block_bytes(int type);
/* Bytes of a row of n elements; n must be a multiple of the block. */
size_t kn_row_bytes(int type, size_t n);
const char *kn_type_name(int type);
/* The type of that name ("q4_k", in any case) that this build knows, or -1. */
int kn_type_from_name(const char *name);
/* Whether files may have it: GGUF's own number. */
bool kn_type_in_files(int type);
/* Type i of those this build knows, from 0; -1 past the last. */
int kn_type_at(int i);

/* A matrix [n_out][n_in], rows contiguous along n_in, as in the file. */
struct kn_weight {
	const void *data; /* the backend's, after weight_load */
	int type;         /* of data; a backend may have repacked it */
	int n_out, n_in;
	bool borrowed; /* weight_adopt has made it: data is not the weight's own */
};

/* Which pages hold a row's past. Page p of a sequence holds positions p·page_tokens and up. */
struct kn_step {
	int n_rows;
	const int32_t *row_token; /* [n_rows] token ids */
	const int32_t *row_pos;   /* [n_rows] absolute positions, from 0 */
	const int32_t *row_seq;   /* [n_rows] index into the page tables */
	int n_seqs;
	const int32_t *page_table; /* [n_seqs][max_pages] page numbers in the pool */
	int max_pages;
	int page_tokens; /* of every pool in this step, so that a backend knows which pages it reads; 0: all of them */
	/* NULL, or [n_rows]: where it is not negative, the row's token is the one that this draw made in the last step
	 * that drew any, finished or not, and row_token is ignored. A draw that made none counts as token 0. Backends
	 * with `ahead` only. */
	const int32_t *row_from;
	/* NULL, or [n_rows]: the kind of each row's token, for embed_add. */
	const int32_t *row_type;
	/* NULL: a row sees the positions up to its own. Or [n_rows]: positions below this, its own among them; all of
	 * them are rows of this step or were before. */
	const int32_t *row_sees;
};

/* Neighbouring rows of a step that belong to one text. */
struct kn_text {
	int32_t row, n_rows;
	int32_t slot; /* the row of sums that is theirs */
	bool begins;  /* what the sum was is dropped */
};

enum kn_embed_by { KN_EMBED_POS, KN_EMBED_TYPE };

enum { KN_STEPS_AHEAD = 2 }; /* issued and not waited for, at the most */

/* A pool of pages for one layout. A page of a layer holds, for each key head, a block of
 * kn_kv_head_bytes (kv_type.h); it begins ((page·n_layers + layer)·n_kv_heads + head) blocks from k or v.
 * First in it are page_tokens·head_dim elements: in k they are [head_dim][page_tokens], so that the
 * scores of neighbouring positions are one vector, in v [page_tokens][head_dim]. KN_KV_Q8 and KN_FP8 have
 * page_tokens float32 scales after them, from the next multiple of four bytes on. */
struct kn_kv {
	void *k, *v;
	int type; /* KN_F32, KN_F16, KN_BF16, KN_KV_Q8 or KN_FP8, if the backend takes it */
	int n_pages, page_tokens;
	int n_layers, n_kv_heads, head_dim;
};

/* Rotary embedding (Su et al., "RoFormer", 2021) of the first n_rot elements of a head: pair i turns
 * by pos · inv_freq[i]. Pairs are (x[2i], x[2i+1]), or (x[i], x[i + n_rot/2]) when halves is set.
 * Every way of stretching a context is a table of frequencies. */
struct kn_rope {
	int n_rot;
	bool halves;
	float magnitude;        /* of sine and cosine: 1 but for YaRN and longrope */
	const double *inv_freq; /* [n_rot/2], host memory, unchanged while the backend is open */
};

struct kn_attn {
	float scale;   /* of q·k */
	float softcap; /* cap·tanh(score/cap); 0: none */
	int window;    /* positions seen, the row's own included; 0: all */
	int q_row; /* floats from a row of queries to the next; 0: they lie one after another. Otherwise of joined ones
		      only. */
};

/* A matrix that is in no file: numbers around 0 that are drawn by a counter. */
struct kn_noise {
	uint64_t seed; /* the same one gives the same matrix */
	float spread;  /* standard deviation, above 0 */
};

struct kn_backend; /* each backend defines its own */

struct kn_config {
	int n_threads;    /* 0: as many as the process may use */
	int max_rows;     /* the widest step */
	int max_width;    /* the widest activation row */
	bool fp8_weights; /* matrices of floats become e4m3 with a scale for each output; SL_EUNSUPPORTED where not */
	int priority;     /* above 0: on a device, before backends of lower priority */
	/* Every activation that operations of a step get has room for max_rows rows, and memory behind the step's
	 * rows may be overwritten; an operation's rows are those of the step, a multiple of them (heads), or
	 * those of a gather. So a backend may compute more rows than it was given, in steps of few shapes. */
	bool pad_rows;
	/* A row's products may depend, within the bounds that all have, on how many rows there are: where a vendor's
	 * library is quicker, it makes them. With fp8_weights it may round activations to e4m3 too (2^-4 of each). Not
	 * set: batch invariance as above. */
	bool loose_products;
	const char
	    *choices_path; /* with it: a file to keep in what was found quicker; NULL: none. Not kept by the callee. */
};

enum { KN_MAX_TOP = 20, KN_MAX_SAMPLED_VOCAB = 1 << 20 };

/* What is done to one logit before a token is drawn. */
struct kn_adjust {
	int32_t id;
	float a, b; /* of a bias: l + a; of a penalty: (l > 0 ? l / a : l · a) - b */
	float more; /* of a penalty where kn_draw.said counts: b, if that token is this one. Lost by the draw */
};

/* How a token is drawn from a row of logits: defined, with its sources, in engine/sample/sampler.h. */
struct kn_draw {
	int32_t row;
	float temperature, top_p, min_p; /* 0: the arg max; 1 and 0: off */
	uint32_t top_k;                  /* 0: all */
	uint64_t key;                    /* race_key's (kernels/race.h) */
	bool want_logprob;
	uint8_t n_top; /* with want_logprob: likeliest to report, at most KN_MAX_TOP */
	/* Biases (an id may come twice), then penalties (each id once), then ids that are out. Host memory. */
	int32_t n_bias, n_penalties, n_out;
	const struct kn_adjust *adjust;
	/* Bit id % 32 of word id / 32: the token may be drawn, whatever its logit; NULL: all may. Host memory. */
	const uint32_t *mask;
	/* 0, or 1 + a row of the step whose token, which the host may not know yet (kn_step.row_from), occurs once more
	 * than the penalties count: the penalty of that id uses `more` for its b. Where there is none, the last one,
	 * whose id is -1, is that token's. */
	int32_t said;
};

struct kn_id_logprob {
	int32_t id;
	float logprob;
};

struct kn_drawn {
	int32_t id;    /* -1: the largest logit is not finite, before or after the adjustments */
	float logprob; /* of the row as it was; NaN where it was not wanted */
	int32_t n_top;
	struct kn_id_logprob top[KN_MAX_TOP]; /* likeliest first */
};

/* Counts since open. A graph is a step that a device launches as one. */
struct kn_stats {
	uint64_t steps;
	uint64_t graph_hits, graph_misses; /* steps that a graph was there for, or could have been */
	uint64_t graph_captures, graph_refusals;
	uint64_t graphs;    /* there are now */
	uint64_t device_ns; /* from when a step's first work was on the device to its end; 0: unknown */
	char pci[16];       /* the device by its bus, "0000:1b:00.0"; "": none */
};

/* Of a device with memory of its own: bytes. */
struct kn_memory {
	uint64_t free, total; /* of the whole device, all processes together */
	uint64_t later; /* at most what this backend will take beside mem_alloc and weights: for steps and graphs */
};

struct kn_ops {
	const char *name; /* "cpu-ref", "cpu-avx2", "cpu-avx2-int8", "cpu-avx512", "cpu-vnni", "cpu-amx",
			   * "cpu-amx-int8", "cuda", "cuda-emulated" */
	bool eight_bits;  /* products with weights in blocks take activations of eight bits (cpu/int8.h) */

	int (*open)(const struct kn_config *cfg, struct kn_backend **out, struct sl_err *err);
	void (*close)(struct kn_backend *b);
	/* One line about the device, for the log. Borrowed from b. */
	const char *(*describe)(struct kn_backend *b);

	/* Zeroed, KN_ALIGN-aligned. On the CPU, what is large is resident only once it is written to. SL_ENOMEM. */
	int (*mem_alloc)(struct kn_backend *b, size_t bytes, void **out);
	void (*mem_free)(struct kn_backend *b, void *p);
	/* n floats from the host; outside of steps. */
	int (*upload)(struct kn_backend *b, float *dst, const float *host, size_t n);

	/* Takes a matrix as it lies in the file (host memory that outlives the weight) and makes
	 * it usable: in place, repacked or uploaded. SL_EUNSUPPORTED for a type it can't use. */
	int (*weight_load)(struct kn_backend *b, const void *host, int type, int n_out, int n_in, struct kn_weight *out,
			   struct sl_err *err);
	void (*weight_free)(struct kn_backend *b, struct kn_weight *w);

	/* Products of the same rows made as one, and what reads their joined outputs; all NULL where there are none.
	 * Every number has the bits that it has without.
	 * weight_load_joined: as weight_load, of n ≥ 1 matrices of one type and width, matrix i with n_outs[i] rows at
	 * host[i], one below the other. SL_EUNSUPPORTED: not of these shapes, so they are loaded one by one. */
	int (*weight_load_joined)(struct kn_backend *b, const void *const *host, const int *n_outs, int n, int type,
				  int n_in, struct kn_weight *out, struct sl_err *err);
	/* NULL where there is none. As weight_load_joined, of matrices that are made where they lie, noise[i] matrix i:
	 * for measuring without a file. Of F32, F16 and BF16 they are the numbers that engine/source/random_model.c
	 * writes to one, of block types all codes are as likely. */
	int (*weight_random)(struct kn_backend *b, const struct kn_noise *noise, const int *n_outs, int n, int type,
			     int n_in, struct kn_weight *out, struct sl_err *err);
	/* Rows of qkv [rows][n_heads + 2·n_kv_heads][head_dim] are queries, then keys, then values. Each head of the
	 * queries and of the keys as rmsnorm does, with its gain [head_dim]. */
	int (*qkv_norm)(struct kn_backend *b, float *qkv, int n_heads, int n_kv_heads, int head_dim,
			const float *q_gain, const float *k_gain, float eps, int n_rows);
	/* As rope_kv_write. */
	int (*qkv_rope_write)(struct kn_backend *b, const struct kn_rope *rope, float *qkv, int n_heads,
			      const struct kn_kv *kv, int layer);
	/* y[r][i] = act(x[r][i]) · x[r][width + i], of x [n_rows][2·width]: as silu_mul or gelu_mul. */
	int (*gate_mul)(struct kn_backend *b, const float *x, int n_rows, int width, bool gelu, float *y);

	/* Steps run without the host between step_issue and step_wait, and may take tokens from each other (row_from).
	 */
	bool ahead;
	/* The step's arrays must stay unchanged until step_issue. At most KN_STEPS_AHEAD - 1 others are on their way.
	 */
	int (*step_begin)(struct kn_backend *b, const struct kn_step *s);
	/* What was begun is complete and on its way. */
	int (*step_issue)(struct kn_backend *b);
	/* Waits for the oldest step that was issued, and fills in its results. */
	int (*step_wait)(struct kn_backend *b);
	/* Whether step_wait would not have to wait. */
	bool (*step_ready)(struct kn_backend *b);
	/* Issues the step, and waits for it; no other may be on its way. */
	int (*step_end)(struct kn_backend *b);

	/* y[r][n_in] = row row_token[r] of w (an embedding table), dequantized. */
	int (*embed)(struct kn_backend *b, const struct kn_weight *w, float *y);
	/* y[r] += row row_pos[r] or row_type[r] (NULL: 0) of w [..][width], floats of the backend. */
	int (*embed_add)(struct kn_backend *b, const float *w, enum kn_embed_by by, int width, float *y);
	/* y[r][i] = x[r][i] / sqrt(mean(x[r]²) + eps) · gain[i]. y may be x. */
	int (*rmsnorm)(struct kn_backend *b, const float *x, const float *gain, float eps, int n_rows, int width,
		       float *y);
	/* x += add, then y as rmsnorm makes it of x: what add and rmsnorm give one after the other, bit for bit. y may
	 * be add, not x. */
	int (*add_rmsnorm)(struct kn_backend *b, float *x, const float *add, const float *gain, float eps, int n_rows,
			   int width, float *y);
	/* x = (s - mean(s)) / sqrt(variance(s) + eps) · gain + bias of each row, s = x + add; add NULL: s = x. The mean
	 * of squares of what is left without the mean (Ba, Kiros, Hinton, "Layer Normalization", 2016). */
	int (*layernorm)(struct kn_backend *b, float *x, const float *add, const float *gain, const float *bias,
			 float eps, int n_rows, int width);
	/* y[r][o] = Σ_k w[o][k]·x[r][k], accumulated in float32 in a fixed order. */
	int (*matmul)(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y);
	/* Whether this backend can compute with keys and values of a type (kn_kv.type). */
	bool (*kv_type)(int type);
	/* Rotates q [rows][n_heads][head_dim] in place and k likewise, then writes k and v
	 * [rows][n_kv_heads][head_dim] of every row to its page, in the pool's type. */
	int (*rope_kv_write)(struct kn_backend *b, const struct kn_rope *rope, float *q, int n_heads, float *k,
			     const float *v, const struct kn_kv *kv, int layer);
	/* Attention of every row over positions 0…row_pos of its sequence, or the last `window` of them, or those below
	 * row_sees (without a window), grouped heads (head h reads kv head h / (n_heads / n_kv_heads)):
	 * out[r][h] = Σ_p softmax_p(softcap(scale · q[r][h]·k[p])) v[p]. */
	int (*attention)(struct kn_backend *b, const float *q, int n_heads, const struct kn_kv *kv, int layer,
			 const struct kn_attn *attn, float *out);
	/* gate[r][i] = act(gate[r][i]) · up[r][i], with x·sigmoid(x) or GELU's tanh form (Hendrycks,
	 * Gimpel 2016). */
	int (*silu_mul)(struct kn_backend *b, float *gate, const float *up, int n_rows, int width);
	int (*gelu_mul)(struct kn_backend *b, float *gate, const float *up, int n_rows, int width);
	/* x = x · Φ(x), GELU's exact form, by the error function. */
	int (*gelu)(struct kn_backend *b, float *x, int n_rows, int width);
	/* sums[slot] += x[row], then x[row + 1] and so on, one after the other: the same sum however the rows of a text
	 * are cut into steps. texts is host memory, may be changed once this returns, and has no slot twice. */
	int (*pool_rows)(struct kn_backend *b, const float *x, const struct kn_text *texts, int n_texts, int width,
			 float *sums);
	/* x += y. */
	int (*add)(struct kn_backend *b, float *x, const float *y, int n_rows, int width);
	/* x[r] += row, for every r: a bias. */
	int (*add_row)(struct kn_backend *b, float *x, const float *row, int n_rows, int width);
	/* x *= factor. */
	int (*scale)(struct kn_backend *b, float *x, float factor, int n_rows, int width);
	/* x = cap · tanh(x / cap). */
	int (*softcap)(struct kn_backend *b, float *x, float cap, int n_rows, int width);
	/* y[i] = x[rows[i]], i < n: which rows go to the output head. rows is host memory. */
	int (*gather)(struct kn_backend *b, const float *x, const int32_t *rows, int n, int width, float *y);
	/* Host copy of n floats, valid after step_wait (on the CPU the pointer itself would do). */
	int (*read_back)(struct kn_backend *b, const float *src, size_t n, float *host);
	/* Copies page src of every layer to page dst (copy on write), after what was issued before. */
	int (*page_copy)(struct kn_backend *b, const struct kn_kv *kv, int src, int dst);

	/* NULL where all memory is the host's. False: the device does not report it. Weights are loaded by then. */
	bool (*memory)(struct kn_backend *b, struct kn_memory *out);
	/* Waits for all that was called so far; outside of steps, others may be on their way. NULL: there is never
	 * anything to wait for. */
	int (*settle)(struct kn_backend *b);
	/* Pages in memory of the host, as they are, byte for byte: keys of every layer, then values. All NULL where all
	 * memory is the host's. host_alloc: aligned to 16 bytes, copies reach it directly; SL_ENOMEM. page_out and
	 * page_in, outside of steps, take effect in the order of what is issued; steps that have none of their pages in
	 * their tables run beside them. The host sees what page_out wrote after settle. pages_there: whether all
	 * copies so far are done; NULL: they always are before the next step. */
	int (*host_alloc)(struct kn_backend *b, size_t bytes, void **out);
	void (*host_free)(struct kn_backend *b, void *p);
	int (*page_out)(struct kn_backend *b, const struct kn_kv *kv, int page, void *host);
	int (*page_in)(struct kn_backend *b, const struct kn_kv *kv, const void *host, int page);
	bool (*pages_there)(struct kn_backend *b);

	/* NULL where tokens are drawn on the host. Draws n tokens from rows of logits [..][n_vocab], each row
	 * at most once, which are lost; n_vocab ≤ KN_MAX_SAMPLED_VOCAB. draws may be changed once this returns, out is
	 * filled by step_wait. The same draws from the same logits give the same tokens, whatever runs beside them. */
	int (*sample)(struct kn_backend *b, float *logits, int n_vocab, const struct kn_draw *draws, int n,
		      struct kn_drawn *out);
	/* NULL where there is nothing to count. */
	void (*stats)(struct kn_backend *b, struct kn_stats *out);

	/* Keeping what weight_load makes for later processes; all NULL where it makes nothing that could be kept.
	 * weight_made: the host's memory that w lies in and its bytes, the same in every process for the same matrix;
	 * NULL: w lies as in the file. Borrowed from w. */
	const void *(*weight_made)(struct kn_backend *b, const struct kn_weight *w, size_t *bytes);
	/* As weight_load, of what weight_made returned for a matrix of that type and shape. `made` is KN_ALIGN-aligned,
	 * used in place and outlives the weight. SL_EINVAL: that matrix has another number of bytes; SL_EUNSUPPORTED:
	 * nothing is made of the type; SL_ENOMEM. What the bytes mean is not checked: any are safe, wrong ones answer
	 * wrongly. */
	int (*weight_adopt)(struct kn_backend *b, const void *made, size_t bytes, int type, int n_out, int n_in,
			    struct kn_weight *out, struct sl_err *err);
	const char *made_layout; /* name and version of how it lies */
};

/* The table by name: "auto" takes the best this processor has; "cuda" and "cuda-emulated" are opened
 * (plugin.h) when they are asked for. NULL and *err for an unknown name or one that can't run here. */
const struct kn_ops *kn_select(const char *name, struct sl_err *err);
/* Every table of this program that the processor can run, the reference first; NULL-terminated. */
const struct kn_ops *const *kn_available(void);

#endif
