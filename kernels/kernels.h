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

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { KN_ATTN_BLOCK = 256, KN_ALIGN = 64, KN_MAX_ROTATED = 1024 /* kn_kv.rotate */ };

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
	/* Never in files (kn_type_in_files), numbered by us below 64: other types are converted to it on load. */
	KN_INT4 = 63,
	/* For keys and values only (kv_type.h), numbered by us. */
	KN_KV_Q8 = 1000,
	KN_FP8 = 1001,
	KN_LORA_I8 = 1002, /* for kn_lora only: signed bytes, whose scales are beside them */
};

/* Elements per block and bytes per block; 0 for a type this build does not know. */
int kn_type_block(int type);
size_t kn_type_block_bytes(int type);
/* Bytes of a row of n elements; n must be a multiple of the block. */
size_t kn_row_bytes(int type, size_t n);
const char *kn_type_name(int type);
/* The type of that name ("q4_k", in any case) that this build knows, or -1. */
int kn_type_from_name(const char *name);
/* Whether GGUF files may have it. */
bool kn_type_in_files(int type);
/* Type i of those this build knows, from 0; -1 past the last. */
int kn_type_at(int i);

/* A matrix [n_out][n_in], rows contiguous along n_in, as in the file. */
struct kn_weight {
	const void *data; /* the backend's, after weight_load */
	int type;         /* of data; a backend may have repacked it */
	int n_out, n_in;
	bool borrowed; /* from weight_adopt, or not the first of weights_load: the weight does not own data */
};

/* A step's rows, and the pages with their past. Page p of a sequence holds positions from p·page_tokens on. */
struct kn_step {
	int n_rows;
	const int32_t *row_token; /* [n_rows] token ids */
	const int32_t *row_pos;   /* [n_rows] absolute positions, from 0 */
	const int32_t *row_seq;   /* [n_rows] index into the page tables */
	int n_seqs;
	/* [n_seqs][n_groups][max_pages] page numbers in the pool. Pages of positions that no row of the layer sees are
	 * never read; they may be -1. */
	const int32_t *page_table;
	int max_pages;
	int n_groups;    /* as the pools' (kn_kv); 0: one */
	int page_tokens; /* of every pool in this step, so a backend knows which pages it reads; 0: all pages */
	/* NULL, or [n_rows]: if not negative, the row's token is the result of that draw in the last step with draws,
	 * finished or not, and row_token is ignored. A draw without a result counts as token 0. Only for backends
	 * with `ahead`. */
	const int32_t *row_from;
	/* NULL, or [n_rows]: the kind of each row's token, for embed_add. */
	const int32_t *row_type;
	/* NULL, or [n_rows]: the slot of each row's adapter in its model (engine/model/adapters.h), or -1. Backends do
	 * not read it. */
	const int32_t *row_adapter;
	/* NULL: a row sees the positions up to its own. Or [n_rows]: it sees positions below this, including its own;
	 * all are rows of this step or of earlier ones. */
	const int32_t *row_sees;
	/* For recurrent layers, otherwise NULL: what a sequence keeps of its past. Sequence s has the state_floats
	 * floats from states + state_of[s]·state_floats on, which its rows, adjacent and in order of positions, read
	 * and overwrite. A row at position 0 begins with zeros, whatever is there. states is the backend's, state_of
	 * [n_seqs] the host's. */
	float *states;
	size_t state_floats;
	const int32_t *state_of;
	/* NULL: no row has an adapter. Or what the step's calls of lora_shrink and lora_expand get, but for what
	 * differs among them (lora, site, rank, n_in). */
	const struct kn_lora_rows *adapters;
};

/* Adjacent rows of a step that belong to one text. */
struct kn_text {
	int32_t row, n_rows;
	int32_t slot; /* their row in sums */
	bool begins;  /* the sum starts anew */
};

enum kn_embed_by { KN_EMBED_POS, KN_EMBED_TYPE };

enum { KN_STEPS_AHEAD = 2 }; /* at most this many steps are issued and not waited for */

/* Where a layer of a model lies: in pages of which group, and which of their layers it is. */
struct kn_place {
	int16_t group, layer;
};

/* A pool of pages for one layout. A page of a layer holds, for each key head, a block of
 * kn_kv_head_bytes (kv_type.h); it begins ((page·n_layers + layer)·n_kv_heads + head) blocks from k or v.
 * First in it are page_tokens·head_dim elements: in k they are [head_dim][page_tokens], so that the
 * scores of neighbouring positions are one vector, in v [page_tokens][head_dim]. KN_KV_Q8 and KN_FP8 have
 * page_tokens float32 scales after them, from the next multiple of four bytes on.
 *
 * Latent rows (DeepSeek-AI, "DeepSeek-V2", 2024, 2.1: multi-head latent attention): a position has one row of head_dim
 * elements, its key, whose first `latent` elements are its value. Then n_kv_heads is 1, page_tokens is even, and a
 * layer's block has rows [page_tokens / 2][head_dim], and as many scales: in k of the first half of a page's positions,
 * in v of the others. So the halves of a page have equal sizes, as for every layout. */
struct kn_kv {
	void *k, *v;
	int type; /* KN_F32, KN_F16, KN_BF16, KN_KV_Q8 or KN_FP8, if the backend supports it */
	int n_pages, page_tokens;
	int n_layers, n_kv_heads, head_dim; /* n_layers: of a page */
	int latent;                         /* 0: keys and values of n_kv_heads heads; else latent rows */
	/* 0, or a power of two that divides head_dim: rope_kv_write and qkv_rope_write multiply each block of so many
	 * elements of turned queries and keys by the normalized Hadamard matrix (hadamard.h). Only with `rotates`, and
	 * without latent rows. */
	int rotate;
	/* Groups of layers with pages of their own, so that some may keep fewer positions than others. */
	int n_groups;                  /* 0: one, of all layers */
	int group;                     /* of the layer that an operation is called for */
	const struct kn_place *places; /* of each layer of the model; NULL: in the only group, in order */
};

/* The page numbers of a sequence for the layers of a group. */
static inline const int32_t *kn_table_of(const struct kn_step *s, int32_t seq, int group)
{
	size_t n = s->n_groups > 0 ? (size_t)s->n_groups : 1;
	return s->page_table + ((size_t)seq * n + (size_t)group) * (size_t)s->max_pages;
}

/* Rotary embedding (Su et al., "RoFormer", 2021) of the first n_rot elements of a head: pair i turns
 * by pos · inv_freq[i]. Pairs are (x[2i], x[2i+1]), or (x[i], x[i + n_rot/2]) when halves is set.
 * Every method of context extension is a table of frequencies. */
struct kn_rope {
	int n_rot;
	bool halves;
	float magnitude;        /* of sine and cosine: 1 except for YaRN and longrope */
	const double *inv_freq; /* [n_rot/2], host memory, unchanged while the backend is open */
	/* Not 0: queries, turned or not, are multiplied by 1 + grow · log(1 + (pos + grow_from) / grow_every), the
	 * division rounded down (Nakanishi, "Scalable-Softmax", 2025, as Llama 4 and Ministral 3 have it). */
	float grow;
	int grow_every, grow_from;
};

/* The factor of queries at a position. */
static inline double kn_rope_grown(const struct kn_rope *r, int32_t pos)
{
	return r->grow == 0.0f ? 1
			       : 1 + (double)r->grow * log((double)(1 + ((int64_t)pos + r->grow_from) / r->grow_every));
}

struct kn_attn {
	float scale;   /* of q·k */
	float softcap; /* cap·tanh(score/cap); 0: none */
	int window;    /* positions seen, the row's own included; 0: all */
	/* With a window: instead, positions are chunks of that many, and a row sees those of its own up to itself. */
	bool chunked;
	/* NULL, or [n_heads], of the backend: the score of a position without a value, which takes its share of each
	 * softmax (Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2023, 3.3). Only for
	 * backends with `sinks`. */
	const float *sinks;
	int q_row; /* floats from one row of queries to the next; 0: contiguous. Not 0 only for joined ones. */
};

/* The first position that a row sees which sees those below end. */
static inline int32_t kn_first_seen(const struct kn_attn *a, int32_t end)
{
	if (a->window <= 0 || end <= a->window)
		return 0;
	return a->chunked ? (end - 1) / a->window * a->window : end - a->window;
}

/* Which experts of a mixture compute a row: the n_used of the highest scores, highest first, of equal ones the lower
 * number. Scores are the softmax of all n logits, or their sigmoids; they are also the experts' weights. A row with a
 * logit that is not finite has weights that are not. */
struct kn_route {
	int n, n_used; /* at most KN_MAX_EXPERTS, KN_MAX_EXPERTS_USED */
	bool sigmoid;
	bool norm;         /* weights are divided by their sum */
	float scale;       /* then multiplied by it */
	const float *bias; /* [n], of the backend, added to the scores for the choice only; NULL: none */
	/* Not 0: experts are n_groups groups of adjacent ones, and a row uses only those of the n_groups_used groups
	 * whose two best scores have the largest sum (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, 2.1.2) or,
	 * with group_best, whose best score is largest (DeepSeek-AI, "DeepSeek-V2", 2024, 2.2.2). */
	int n_groups, n_groups_used;
	bool group_best;
	/* Not 0: instead, each chosen expert's weight is its share in the softmax of those logits l that were not
	 * chosen before it and, where m is the largest of them, m - l is at most 2 · sparse · max(|l|, m) (Liu et al.,
	 * "GRIN", 2024, 2.1: SparseMixer without its noise). Without sigmoid, norm, bias and groups. */
	float sparse;
};

/* What is multiplied with up: gate · sigmoid(gate), GELU's tanh form, or, with both limited to ±KN_CLAMP and up + 1 in
 * place of up, gate · sigmoid(KN_CLAMP_SLOPE · gate), where the gate has no lower limit (OpenAI, gpt-oss, 2025). */
enum kn_gate {
	KN_GATE_SILU,
	KN_GATE_GELU,
	KN_GATE_CLAMPED,
	KN_NO_GATE, /* experts without a gate: the square of max(up, 0), as relu_square (So et al., "Primer", 2021, 3)
		     */
};
#define KN_CLAMP 7.0f
#define KN_CLAMP_SLOPE 1.702f

enum { KN_MAX_EXPERTS = 1024, KN_MAX_EXPERTS_USED = 64 };

/* The experts of a layer (Shazeer et al., "Outrageously Large Neural Networks", 2017), all of one shape. */
struct kn_experts {
	struct kn_route route;
	/* [route.n] each: [n_ff][width], twice, and [width][n_ff]; gate is not read with KN_NO_GATE. */
	const struct kn_weight *gate, *up, *down;
	/* NULL, or added to the products, of the backend: [route.n][n_ff] twice, [route.n][width]. */
	const float *gate_bias, *up_bias, *down_bias;
	enum kn_gate act;
	bool weighs_input; /* a row is multiplied by an expert's weight before the expert, not its output after it */
	uint64_t *n_rows;  /* [route.n], of the host: how many rows each has computed; NULL: not counted */
	const struct kn_expert_lora *lora; /* what adapters add to the products of this call; NULL: nothing */
};

/* Floats of kn_ops.experts' scratch memory for each row. */
static inline size_t kn_experts_work(const struct kn_experts *e)
{
	return (size_t)e->route.n_used * 2 * ((size_t)e->up[0].n_in + (size_t)e->up[0].n_out);
}

/* Floats of kn_ops.matmul_heads' scratch memory for each row. */
static inline size_t kn_heads_work(int n_heads, int n_out, int n_in)
{
	return (size_t)n_heads * ((size_t)n_out + (size_t)n_in);
}
/* Low-rank adapters (Hu et al., "LoRA", 2021): what one adds to the products of a step's rows. t = a · x has rank
 * numbers for each row, of all parts one after the other; part i adds scale_i · b_i · t_i to outputs of its own, so
 * that matrices with the same inputs (queries, keys and values) shrink them once. */
enum { KN_LORA_PARTS = 3, KN_LORA_RANK = 256, KN_LORA_TILE = 16, KN_LORA_GROUPS = 64 };

struct kn_lora {
	int type; /* of a and b: KN_F32, KN_F16, KN_BF16 or KN_LORA_I8 */
	int n_in, rank;
	const void *a; /* [rank][n_in], of the backend, as is b */
	/* KN_LORA_I8: [rank], of the backend: what t is multiplied by, the scale of a's row times that of b's column.
	 * NULL: nothing. */
	const float *scales;
	int n_parts;
	struct kn_lora_part {
		/* [⌈n_out / KN_LORA_TILE⌉][rank][KN_LORA_TILE]: tiles of adjacent outputs, which are read in one
		 * stream; outputs past n_out are 0. NULL: this part adds nothing; its rank is 0. */
		const void *b;
		int n_out, rank; /* rank at most KN_LORA_RANK */
		float scale;
	} parts[KN_LORA_PARTS];
};

/* Bytes of a number of an adapter's matrix. */
static inline size_t kn_lora_bytes(int type) { return type == KN_F32 ? 4 : type == KN_LORA_I8 ? 1 : 2; }

/* Rows of a step that have adapters, in the order of these, so that an adapter's weights are read once for all its
 * rows. Host memory. A backend that runs repeated steps again finds which adapters a step has in what sites point to,
 * so its commands are the same for any adapters. */
struct kn_lora_rows {
	struct kn_lora_group {
		const struct kn_lora *lora; /* rank 0: this adapter adds nothing here */
		/* Of the backend: what this adapter adds to each of a model's products, *lora at `site`. Read only by
		 * backends with `ahead`. */
		const struct kn_lora *sites;
		int first, n; /* rows[first] … rows[first + n - 1] */
	} * groups;
	int n_groups;        /* at most KN_LORA_GROUPS */
	const int32_t *rows; /* indices of rows of x and y, each at most once */
	int n_rows;          /* in all groups, which have them in order */
	int t_width;         /* floats from one row of t to the next; row i of t is that of rows[i] */
	int site, n_in;      /* n_in: of x */
	int rank;            /* no group's is greater; at most t_width */
};

/* Where a part's n_out outputs are: y[row · width + o]. */
struct kn_lora_out {
	float *y;
	int width, n_out; /* n_out 0: there is no such part */
};

/* Adapters of a mixture's experts (kn_experts.lora): each expert has two products, of gate and up together, parts 0 and
 * 1, and of down, part 0. */
enum { KN_EXPERT_LORAS = 2 };
struct kn_expert_lora {
	/* Which rows of the call have which adapters; lora, sites, site, n_in and rank are not read. */
	const struct kn_lora_rows *rows;
	const struct kn_lora *const *of; /* of each group [route.n][KN_EXPERT_LORAS]; NULL: it adds nothing here */
	float *t;                        /* scratch, of the backend: n_used rows of t_width for each row of the call */
	int t_width;
};

enum { KN_MAX_CONV = 8, KN_MAX_DELTA = 512 /* of k_dim and v_dim */ };

/* A causal convolution of each channel over positions. A sequence's state is its last width - 1 inputs
 * [width - 1][n], the oldest first. An output is a sum over the taps in order, from the oldest input on. */
struct kn_conv {
	const float *w; /* [width][n], of the backend; the last taps are those of a row's own position */
	int n, width;   /* channels; 1 to KN_MAX_CONV */
	/* Rows of x are [3][n], b, c and u, and y = c · conv(b · u) (Liquid AI, "LFM2 Technical Report", 2025, 2.1).
	 * Otherwise rows are [n], and y = silu(conv(x) + bias), which may be x. */
	bool gated;
	const float *bias; /* [n], of the backend; NULL: none. Not with gated */
	size_t at;         /* of the state in the sequence's floats */
};

/* The gated delta rule (Yang, Kautz, Hatamizadeh, "Gated Delta Networks", 2024, 3.1). A head's state is S
 * [k_dim][v_dim]; for each row in order, with its key head's q and k divided by their lengths, and q by sqrt(k_dim):
 *   S = S · exp(a · log(1 + exp(alpha + dt))); S += k (v - S'k)' · sigmoid(beta); y = S'q
 * The order of sums over k_dim is the table's, for any rows of a step. */
struct kn_delta {
	int k_heads, v_heads, k_dim, v_dim; /* v_heads is a multiple of k_heads */
	bool tiled;          /* value head h has key head h % k_heads, otherwise h / (v_heads / k_heads) */
	const float *a, *dt; /* [v_heads], of the backend */
	size_t at;           /* of the states [v_heads][k_dim][v_dim] in the sequence's floats */
};

/* Mamba-2's state space (Dao, Gu, "Transformers are SSMs", 2024, 7.1). A head's state is S [state][head_dim]; head h
 * reads the B and C of group h / (heads / groups). For each row in order, with
 * t = log(1 + exp(step + dt)), but at least least and at most most:
 *   S = S · exp(a · t) + B (x · t)'; y = S'C + d · x
 * The order of sums over the state is the table's, for any rows of a step. */
struct kn_ssm {
	int groups, heads, state, head_dim; /* heads is a multiple of groups; the latter two at most KN_MAX_DELTA */
	const float *a, *dt, *d;            /* [heads], of the backend */
	float least, most;                  /* of a step; most may be infinite */
	size_t at;                          /* of the states [heads][state][head_dim] in the sequence's floats */
};

/* A random matrix without a file: numbers around 0, generated from a counter. */
struct kn_noise {
	uint64_t seed; /* the same seed gives the same matrix */
	float spread;  /* standard deviation, above 0 */
};

struct kn_backend; /* each backend defines its own */

struct kn_config {
	int n_threads; /* 0: as many as the process may use */
	int pin;       /* enum places_how (kernels/cpu/places.h): where a processor's threads may run; 0: auto */
	int max_rows;  /* the widest step */
	int max_width; /* the widest activation row */
	bool
	    fp8_weights; /* float matrices become e4m3 with a scale per output; SL_EUNSUPPORTED if the backend cannot */
	int priority;    /* above 0: a device runs it before backends of lower priority */
	/* Every activation passed to a step's operations has room for max_rows rows, and memory after the step's rows
	 * may be overwritten. An operation's rows are those of the step, a multiple of them (heads), or those of a
	 * gather. So a backend may pad steps to a few shapes. */
	bool pad_rows;
	/* A row's products may depend on the number of rows, within the usual error bounds: the vendor's library
	 * computes them where it is faster. With fp8_weights it may also round activations to e4m3 (2^-4 of each).
	 * Not set: batch invariance as above. */
	bool loose_products;
	const char
	    *choices_path; /* with loose_products: file of the measured choices; NULL: none. The callee copies it */
};

enum { KN_MAX_TOP = 20, KN_MAX_SAMPLED_VOCAB = 1 << 20 };

/* An adjustment of one logit before a token is drawn. */
struct kn_adjust {
	int32_t id;
	float a, b; /* of a bias: l + a; of a penalty: (l > 0 ? l / a : l · a) - b */
	float more; /* penalty with kn_draw.said: b if that token is this one. Overwritten by the draw */
};

/* How a token is drawn from a row of logits. engine/sample/sampler.h defines it, with sources. */
struct kn_draw {
	int32_t row;
	float temperature, top_p, min_p; /* 0: the arg max; 1 and 0: off */
	uint32_t top_k;                  /* 0: all */
	uint64_t key;                    /* race_key's (kernels/race.h) */
	bool want_logprob;
	uint8_t n_top; /* with want_logprob: number of likeliest tokens to report, at most KN_MAX_TOP */
	/* Biases (an id may occur twice), then penalties (each id once), then excluded ids. Host memory. */
	int32_t n_bias, n_penalties, n_out;
	const struct kn_adjust *adjust;
	/* Bit id % 32 of word id / 32: the token may be drawn. NULL: all may. Host memory. */
	const uint32_t *mask;
	/* 0, or 1 + a row of the step whose token, which the host may not know yet (kn_step.row_from), the penalties
	 * do not count yet: the penalty of that id uses `more` for its b. If there is none, the last penalty, whose
	 * id is -1, becomes that token's. */
	int32_t said;
};

struct kn_id_logprob {
	int32_t id;
	float logprob;
};

struct kn_drawn {
	int32_t id;    /* -1: the largest logit is not finite, before or after the adjustments */
	float logprob; /* from the unadjusted row; NaN if not wanted */
	int32_t n_top;
	struct kn_id_logprob top[KN_MAX_TOP]; /* likeliest first */
};

/* Counters since open. A graph is a step that a device launches as one. */
struct kn_stats {
	uint64_t steps;
	uint64_t graph_hits, graph_misses; /* steps that ran as a graph; steps that could have */
	uint64_t graph_captures, graph_refusals;
	uint64_t graph_compares; /* of a step's commands with those of a graph */
	uint64_t graphs;         /* existing now */
	/* Kernels, those in graphs included; copies of inputs and results between host and device; allocations there.
	 */
	uint64_t launches, transfers, allocations;
	uint64_t device_ns; /* device time, from the start of a step's first work to its end; 0: unknown */
	char pci[16];       /* the device's bus address, "0000:1b:00.0"; "": none */
};

/* Memory of a device, in bytes. */
struct kn_memory {
	uint64_t free, total; /* of the whole device, including other processes */
	uint64_t
	    later; /* upper bound of what this backend allocates for steps and graphs, besides mem_alloc and weights */
};

struct kn_ops {
	const char *name; /* "cpu-ref", "cpu-avx2", "cpu-avx2-int8", "cpu-avx512", "cpu-vnni", "cpu-amx",
			   * "cpu-amx-int8", "cuda", "cuda-emulated" */
	bool eight_bits;  /* products with block-quantized weights use eight-bit activations (cpu/int8.h) */

	int (*open)(const struct kn_config *cfg, struct kn_backend **out, struct sl_err *err);
	void (*close)(struct kn_backend *b);
	/* NULL: nothing to do. Loading is over: from now on no step is held up by measurements (loose_products).
	 * Before, the caller runs steps of each kind once. */
	void (*serve)(struct kn_backend *b);
	/* One line describing the device, for the log. Borrowed from b. */
	const char *(*describe)(struct kn_backend *b);

	/* Zeroed, KN_ALIGN-aligned. On the CPU, large areas become resident only when written. SL_ENOMEM. */
	int (*mem_alloc)(struct kn_backend *b, size_t bytes, void **out);
	void (*mem_free)(struct kn_backend *b, void *p);
	/* n floats from the host; outside of steps. */
	int (*upload)(struct kn_backend *b, float *dst, const float *host, size_t n);

	/* Prepares a matrix in the file's layout (host memory that outlives the weight): in place, repacked or
	 * uploaded. SL_EUNSUPPORTED: unsupported type. */
	int (*weight_load)(struct kn_backend *b, const void *host, int type, int n_out, int n_in, struct kn_weight *out,
			   struct sl_err *err);
	void (*weight_free)(struct kn_backend *b, struct kn_weight *w);

	/* Products of the same rows computed as one, and operations on their joined outputs; all NULL if unsupported.
	 * Bits are the same as with separate products. weight_load_joined: as weight_load, for n ≥ 1 matrices of one
	 * type and width, stacked: matrix i has n_outs[i] rows at host[i]. SL_EUNSUPPORTED: not with these shapes;
	 * the caller loads them separately. */
	int (*weight_load_joined)(struct kn_backend *b, const void *const *host, const int *n_outs, int n, int type,
				  int n_in, struct kn_weight *out, struct sl_err *err);
	/* NULL: unsupported. As weight_load_joined, for matrices generated in place from noise[i], for measurements
	 * without a file. F32, F16 and BF16 have the numbers that engine/source/random_model.c writes; block types
	 * have uniform codes. */
	int (*weight_random)(struct kn_backend *b, const struct kn_noise *noise, const int *n_outs, int n, int type,
			     int n_in, struct kn_weight *out, struct sl_err *err);
	/* NULL: each is loaded by itself. As weight_load for the n matrices of one shape that lie one after the other
	 * at host or, if that is NULL, are the noise of one tensor (weight_random). They share memory, which out[0]
	 * owns until it is freed. */
	int (*weights_load)(struct kn_backend *b, const void *host, const struct kn_noise *noise, int n, int type,
			    int n_out, int n_in, struct kn_weight *out, struct sl_err *err);
	/* Rows of qkv [rows][n_heads + 2·n_kv_heads][head_dim] are queries, then keys, then values. Applies rmsnorm
	 * to each head of the queries and of the keys, with its gain [head_dim]. */
	int (*qkv_norm)(struct kn_backend *b, float *qkv, int n_heads, int n_kv_heads, int head_dim,
			const float *q_gain, const float *k_gain, float eps, int n_rows);
	/* As rope_kv_write. */
	int (*qkv_rope_write)(struct kn_backend *b, const struct kn_rope *rope, float *qkv, int n_heads,
			      const struct kn_kv *kv, int layer);
	/* y[r][i] = act(x[r][i]) · x[r][width + i], of x [n_rows][2·width]: as silu_mul or gelu_mul. */
	int (*gate_mul)(struct kn_backend *b, const float *x, int n_rows, int width, bool gelu, float *y);
	/* NULL: no use for it. The next operation is the gate_mul that makes y; nothing but products will read y, and
	 * nothing its x. Both may stay unwritten. */
	void (*for_products)(struct kn_backend *b, const float *y);

	/* Steps run without the host between step_issue and step_wait, and may take tokens from each other (row_from).
	 */
	bool ahead;
	/* The step's arrays must stay unchanged until step_issue. At most KN_STEPS_AHEAD - 1 others are in flight. */
	int (*step_begin)(struct kn_backend *b, const struct kn_step *s);
	/* Ends recording and starts the step. */
	int (*step_issue)(struct kn_backend *b);
	/* Waits for the oldest issued step and delivers its results. */
	int (*step_wait)(struct kn_backend *b);
	/* Whether step_wait would return at once. */
	bool (*step_ready)(struct kn_backend *b);
	/* Issues the step and waits for it; no other may be in flight. */
	int (*step_end)(struct kn_backend *b);

	/* y[r][n_in] = row row_token[r] of w (an embedding table), dequantized. */
	int (*embed)(struct kn_backend *b, const struct kn_weight *w, float *y);
	/* y[r] += row row_pos[r] or row_type[r] (NULL: 0) of w [..][width], floats of the backend. */
	int (*embed_add)(struct kn_backend *b, const float *w, enum kn_embed_by by, int width, float *y);
	/* y[r][i] = x[r][i] / sqrt(mean(x[r]²) + eps) · gain[i]. y may be x. */
	int (*rmsnorm)(struct kn_backend *b, const float *x, const float *gain, float eps, int n_rows, int width,
		       float *y);
	/* Rows of x are [n_groups][width], each group normalized by itself as by rmsnorm, with gains of its own:
	 * gain is [n_groups][width]. NULL if ssm is. */
	int (*rmsnorm_groups)(struct kn_backend *b, const float *x, const float *gain, float eps, int n_rows,
			      int n_groups, int width, float *y);
	/* x += add, then y = rmsnorm(x), with the same bits as add and rmsnorm in sequence. y may be add, not x. */
	int (*add_rmsnorm)(struct kn_backend *b, float *x, const float *add, const float *gain, float eps, int n_rows,
			   int width, float *y);
	/* y = (s - mean(s)) / sqrt(variance(s) + eps) · gain + bias of each row, s = x + add; add NULL: s = x; bias
	 * NULL: none. y may be x or add; if it is not x, x becomes s. The variance is the mean square after subtracting
	 * the mean (Ba, Kiros, Hinton, "Layer Normalization", 2016). */
	int (*layernorm)(struct kn_backend *b, float *x, const float *add, const float *gain, const float *bias,
			 float eps, int n_rows, int width, float *y);
	/* y[r][o] = Σ_k w[o][k]·x[r][k], accumulated in float32 in a fixed order. */
	int (*matmul)(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y);
	bool sinks;   /* attention supports kn_attn.sinks */
	bool rotates; /* kn_kv.rotate is supported */
	/* Whether this backend supports that type of keys and values (kn_kv.type). */
	bool (*kv_type)(int type);
	/* Turns q [rows][n_heads][head_dim] in place and k likewise, transforms both (kn_kv.rotate), then writes k and
	 * v [rows][n_kv_heads][head_dim] of every row to its page, in the pool's type. */
	int (*rope_kv_write)(struct kn_backend *b, const struct kn_rope *rope, float *q, int n_heads, float *k,
			     const float *v, const struct kn_kv *kv, int layer);
	/* Attention of every row over positions 0…row_pos of its sequence, or the last `window` of them, or those below
	 * row_sees (without a window), grouped heads (head h reads kv head h / (n_heads / n_kv_heads)):
	 * out[r][h] = Σ_p softmax_p(softcap(scale · q[r][h]·k[p])) v[p]. With latent rows out is
	 * [rows][n_heads][latent]. */
	int (*attention)(struct kn_backend *b, const float *q, int n_heads, const struct kn_kv *kv, int layer,
			 const struct kn_attn *attn, float *out);
	/* NULL: no latent rows; else both exist. Of every row: the first kv->latent elements of row [rows][head_dim],
	 * normalized (rmsnorm), and the others, rotated from their first on, go to its page; the last elements of q
	 * [rows][n_heads][q_width], as many as those others, rotated, become the last ones of q_latent
	 * [rows][n_heads][head_dim]. row is overwritten. */
	int (*latent_write)(struct kn_backend *b, const struct kn_rope *rope, const float *gain, float eps,
			    const float *q, int n_heads, int q_width, float *row, float *q_latent,
			    const struct kn_kv *kv, int layer);
	/* A product for each head: the first n_out elements of y[r][h] = w[h] · the first n_in elements of x[r][h]; x
	 * is [n_rows][n_heads][x_width], y [n_rows][n_heads][y_width], and the w[n_heads] have one shape. Their other
	 * elements are left alone. work: kn_heads_work floats per row, scratch. */
	int (*matmul_heads)(struct kn_backend *b, const struct kn_weight *w, int n_heads, const float *x, int x_width,
			    int n_rows, float *work, float *y, int y_width);
	/* NULL: unsupported. y[r] = Σ_e weight_e · down_e(act(gate_e · x[r], up_e · x[r])) over the experts e of row
	 * r, in their order, by logits [n_rows][route.n]. Each expert's weights are read once for all its rows. y may
	 * be x. work: kn_experts_work floats per row, scratch. */
	int (*experts)(struct kn_backend *b, const struct kn_experts *e, const float *logits, const float *x,
		       int n_rows, float *work, float *y);
	/* NULL: nothing to do. The weights of e, which stays where it is, are loaded: prepares steps with it, so that
	 * `memory` counts what they need and no step waits. SL_ENOMEM, SL_EIO, SL_EUNSUPPORTED. */
	int (*experts_ready)(struct kn_backend *b, const struct kn_experts *e);
	/* x[r] += sigmoid(gate[r]) · add[r]; gate is [n_rows]. NULL if experts is. */
	int (*add_gated)(struct kn_backend *b, float *x, const float *add, const float *gate, int n_rows, int width);
	/* Both NULL: unsupported. t = a · x of each row of each group, x [..][n_in]; then y += scale · b · t of each
	 * part, into outs[part]. Rows that are in no group are not read or written. t has room for max_rows rows
	 * (pad_rows). */
	int (*lora_shrink)(struct kn_backend *b, const struct kn_lora_rows *rows, const float *x, float *t);
	int (*lora_expand)(struct kn_backend *b, const struct kn_lora_rows *rows, const float *t,
			   const struct kn_lora_out outs[KN_LORA_PARTS]);
	/* In place of lora_shrink for a table of embeddings, where lora.a is [n_vocab][rank]: t is the row of the
	 * step's token. NULL: unsupported, as are rows of lora_shrink and lora_expand other than those of the step (an
	 * output head's), and kn_experts.lora. */
	int (*lora_lookup)(struct kn_backend *b, const struct kn_lora_rows *rows, float *t);
	/* Recurrent layers; all NULL if unsupported. The rows of kn_conv, and, in rows of delta's inputs, queries and
	 * keys [k_heads][k_dim], then values [v_heads][v_dim]; beta and alpha [v_heads]; y [v_heads][v_dim]. Rows of
	 * ssm's inputs are x [heads][head_dim], then B and C [groups][state]; step is [heads], y like x. */
	int (*conv)(struct kn_backend *b, const struct kn_conv *c, const float *x, int n_rows, float *y);
	int (*delta)(struct kn_backend *b, const struct kn_delta *d, const float *qkv, const float *beta,
		     const float *alpha, int n_rows, float *y);
	int (*ssm)(struct kn_backend *b, const struct kn_ssm *s, const float *xbc, const float *step, int n_rows,
		   float *y);
	/* Copies n floats of the backend, after everything issued before. */
	int (*state_copy)(struct kn_backend *b, const float *from, float *to, size_t n);
	/* x[r] is [2][width]: its first half to first[r], its second to second[r]. */
	int (*halve)(struct kn_backend *b, const float *x, int n_rows, int width, float *first, float *second);
	/* x[r][i] *= sigmoid(gate[r][i]). */
	int (*sigmoid_mul)(struct kn_backend *b, float *x, const float *gate, int n_rows, int width);
	/* gate[r][i] = act(gate[r][i]) · up[r][i], with x·sigmoid(x) or GELU's tanh form (Hendrycks,
	 * Gimpel 2016). */
	int (*silu_mul)(struct kn_backend *b, float *gate, const float *up, int n_rows, int width);
	int (*gelu_mul)(struct kn_backend *b, float *gate, const float *up, int n_rows, int width);
	/* x = x · Φ(x), GELU's exact form, by the error function. */
	int (*gelu)(struct kn_backend *b, float *x, int n_rows, int width);
	/* x = max(x, 0)². NULL if ssm is. */
	int (*relu_square)(struct kn_backend *b, float *x, int n_rows, int width);
	/* sums[slot] += x[row], then x[row + 1] and so on, in order, so the sum does not depend on how a text is
	 * split into steps. texts is host memory, may change once this returns, and has no slot twice. */
	int (*pool_rows)(struct kn_backend *b, const float *x, const struct kn_text *texts, int n_texts, int width,
			 float *sums);
	/* x += y. */
	int (*add)(struct kn_backend *b, float *x, const float *y, int n_rows, int width);
	/* x[r] += row for every r: a bias. */
	int (*add_row)(struct kn_backend *b, float *x, const float *row, int n_rows, int width);
	/* x *= factor. */
	int (*scale)(struct kn_backend *b, float *x, float factor, int n_rows, int width);
	/* x = cap · tanh(x / cap). */
	int (*softcap)(struct kn_backend *b, float *x, float cap, int n_rows, int width);
	/* y[i] = x[rows[i]], i < n: which rows go to the output head. rows is host memory. */
	int (*gather)(struct kn_backend *b, const float *x, const int32_t *rows, int n, int width, float *y);
	/* Copies n floats to the host; valid after step_wait. */
	int (*read_back)(struct kn_backend *b, const float *src, size_t n, float *host);
	/* Copies page src of every layer to page dst (copy on write), after everything issued before. */
	int (*page_copy)(struct kn_backend *b, const struct kn_kv *kv, int src, int dst);

	/* NULL: all memory is the host's. False: the device does not report it. Call after weights are loaded. */
	bool (*memory)(struct kn_backend *b, struct kn_memory *out);
	/* Waits for all calls so far. Outside of steps; issued ones may be in flight. NULL: there is never anything
	 * to wait for. */
	int (*settle)(struct kn_backend *b);
	/* Pages swapped to host memory, byte for byte: keys of every layer, then values. All NULL if all memory is
	 * the host's. host_alloc: aligned to 16 bytes, pinned; SL_ENOMEM; any thread, also while steps run. page_out
	 * and page_in, outside of steps, take effect in the order of issue; steps whose tables have none of their pages
	 * run in parallel. After settle the host sees what page_out wrote. pages_there: whether all copies so far are
	 * done; NULL: always, before the next step. */
	int (*host_alloc)(struct kn_backend *b, size_t bytes, void **out);
	void (*host_free)(struct kn_backend *b, void *p);
	int (*page_out)(struct kn_backend *b, const struct kn_kv *kv, int page, void *host);
	int (*page_in)(struct kn_backend *b, const struct kn_kv *kv, const void *host, int page);
	bool (*pages_there)(struct kn_backend *b);

	/* NULL: tokens are drawn on the host. Draws n tokens from rows of logits [..][n_vocab], at most one per row,
	 * and overwrites the rows; n_vocab ≤ KN_MAX_SAMPLED_VOCAB. draws may change once this returns; step_wait
	 * fills out. The same draws from the same logits give the same tokens, whatever runs in parallel. */
	int (*sample)(struct kn_backend *b, float *logits, int n_vocab, const struct kn_draw *draws, int n,
		      struct kn_drawn *out);
	/* NULL: no counters. */
	void (*stats)(struct kn_backend *b, struct kn_stats *out);

	/* Caching of the weight_load results for later processes; all NULL if there is nothing to cache. weight_made:
	 * the host memory of w, with the same bytes in every process for the same matrix; NULL: w has the file's
	 * layout. Borrowed from w. */
	const void *(*weight_made)(struct kn_backend *b, const struct kn_weight *w, size_t *bytes);
	/* As weight_load, for what weight_made returned for a matrix of that type and shape. `made` is
	 * KN_ALIGN-aligned, used in place and outlives the weight. SL_EINVAL: the wrong number of bytes;
	 * SL_EUNSUPPORTED: the type is not cached; SL_ENOMEM. The content is not checked: any bytes are safe, wrong
	 * ones give wrong answers. */
	int (*weight_adopt)(struct kn_backend *b, const void *made, size_t bytes, int type, int n_out, int n_in,
			    struct kn_weight *out, struct sl_err *err);
	const char *made_layout; /* name and version of the layout */
};

/* The table by name. "auto" selects the best one for this processor; "cuda" and "cuda-emulated" are opened (plugin.h)
 * on demand. NULL and *err: an unknown name, or a backend that cannot run here. */
const struct kn_ops *kn_select(const char *name, struct sl_err *err);
/* Every table of this program that the processor can run, the reference first; NULL-terminated. */
const struct kn_ops *const *kn_available(void);

#endif
