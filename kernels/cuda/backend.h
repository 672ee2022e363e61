/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA backend's state and what its files share. Its operations run on the thread that calls kn_ops.
 *
 * backend.cu               the table                    memory.cu   device memory, pages on the host
 * step.cu                  a step's inputs and results  list.cu     commands and graphs
 * rows.cu                  row-wise operations          pages.cu    rotary embedding, pages
 * attention.cu, attention_mma.h                         sample.cu   drawing tokens
 * Products: pack.cu (weights, as packed.h defines them), noise.cu (weights without a file), matmul.cu (which kernel),
 * matvec.cu, mma.cu; library.cu and choices.cu (the vendor's library).
 * Device: device.h; device_cuda.cu and library_cuda.cu on CUDA, emu*.cu in the emulation.
 */
#ifndef KERNELS_CUDA_BACKEND_H
#define KERNELS_CUDA_BACKEND_H

#include "kernels/cuda/list.h"
#include "kernels/kv_type.h"

enum {
	KN_TILE = 8,       /* rows, or rows times heads, that a block works on together */
	KN_ITEM_ROWS = 64, /* of an item, at the most */
};

/* Frequencies of one rotation on the device. */
struct kn_freqs {
	const double *host; /* their source; NULL: free */
	double *at;
};

enum { KN_N_FREQS = 4 }; /* a model has two at most */

/* Memory of the device that grows when more is needed. */
struct kn_room {
	void *at;
	size_t bytes;
};

/* The same on the host, pinned where possible. */
struct kn_host_room {
	void *at;
	size_t bytes;
	bool pinned;
};

/* Adjacent rows of a step that belong to one sequence: they read the same pages. */
struct kn_item {
	int32_t row, n_rows;
};

/* Activations that are converted for products (matmul.cu). */
struct kn_converted {
	const float *x; /* NULL: none */
	int n_rows, n_in;
	int numbers;     /* what they are: enum dev_numbers (library.h) */
	uint64_t serial; /* the stream's, after the last product of them */
};

/* Rows n_in wide that weights are multiplied with, and as which numbers. */
struct kn_width {
	int n_in, numbers; /* enum dev_numbers; -1: as several */
};

enum { KN_N_WIDTHS = 16, KN_LATE = 4096 };

/* The destination of consecutive results. */
struct kn_read {
	void *to;
	size_t bytes;
};

/* A step's host memory until it ends: two of them, so that one is filled while the device works on the other. The
 * device needs one copy only: transfers follow the order of the steps. */
struct kn_step_set {
	struct kn_host_room staged, draws_staged; /* what it reads */
	struct kn_host_room results;
	size_t n_results;
	struct kn_read *reads; /* [max_reads] */
	int n_reads, max_reads;
};

struct dev_library;
struct kn_choices;

struct kn_backend {
	const struct kn_plugin_host *host;
	struct dev *dev;
	int max_rows;
	int widest_in, longest_out; /* of the weights that were loaded */
	size_t lacked;              /* bytes that a step needed and the device did not have; 0: none */
	bool fp8_weights;
	bool pad_rows;
	/* The step as the device sees it: rows up to a class, tables of what it reads. NULL: outside of steps. */
	const struct kn_step *step;
	struct kn_step shaped;
	int n_real; /* rows that the caller gave */
	/* Whose step is recorded now, or next; those issued before it: the last n_issued. */
	struct kn_step_set sets[KN_STEPS_AHEAD];
	int set, n_issued;
	/* Its integers, on the host until they are sent (n_staged is 0 then), and on the device. */
	size_t n_staged;
	int32_t *picks_at; /* in staged, for the rows of a gather; NULL: used or sent */
	struct kn_room ints;
	/* Into ints. */
	const int32_t *token, *pos, *seq, *table, *type, *sees;
	int32_t *texts_at; /* in staged, for pool_rows; NULL: used or sent */
	const struct kn_item *alone, *together;
	int n_alone, n_together;
	int32_t
	    *numbers; /* [n_numbers] of sequences in this step, or -1; behind them [n_numbers] sequences by number */
	int n_numbers;
	int32_t last_pos; /* of all rows */
	struct kn_room scratch, picks, texts;
	struct kn_room rows, parts, stage; /* converted activations, parts of products, weights on their way */
	struct kn_converted converted;
	struct kn_width widths[KN_N_WIDTHS]; /* of the weights that were loaded */
	int n_widths;
	/* Products by the vendor's library (library.h); NULL: none is to be used, or there is none. */
	struct dev_library *library;
	struct kn_choices *choices;
	char choices_path[1024]; /* where they are kept; "": nowhere */
	uint64_t tuned_ns;       /* how long the device was at choosing so far */
	struct kn_room flat_weights, flat_rows;
	struct kn_converted flat;
	/* The draws: staged on the host, on the device, and their results. */
	size_t n_draws; /* bytes; 0: nothing, or sent */
	struct kn_room draws, drawn;
	int n_drawn; /* in drawn, by the last step that drew any */
	/* Pages that are being copied aside, by their numbers' last bits, whatever pool they are of; and the stream's
	 * count when the copies were last ordered after it. */
	uint64_t late[KN_LATE / 64];
	bool any_late;
	uint64_t aside_serial;
	struct kn_list list;
	struct kn_graphs graphs;
	uint64_t n_steps;
	struct kn_freqs freqs[KN_N_FREQS];
	int next_freqs;
	char line[256];
};

/* The operations of kn_ops that this backend has: kn_cuda_NAME each, of the very type that the table gives it. An
 * operation on a step's rows is done to kn_cuda_rows of them. */
// clang-format off
#define KN_CUDA_OPS(X)                                                                                             \
	X(open) X(close) X(describe) X(mem_alloc) X(mem_free) X(upload) X(stats) X(kv_type)                        \
	X(weight_load) X(weight_free) X(weight_load_joined) X(weight_random)                                       \
	X(step_begin) X(step_issue) X(step_wait) X(step_ready) X(step_end) X(read_back)                            \
	X(memory) X(settle) X(host_alloc) X(host_free) X(page_out) X(page_in) X(pages_there)                       \
	X(embed) X(matmul) X(attention) X(rope_kv_write) X(qkv_rope_write) X(page_copy) X(sample)                  \
	X(rmsnorm) X(add_rmsnorm) X(silu_mul) X(gelu_mul) X(gate_mul) X(qkv_norm) X(add) X(add_row) X(scale) X(softcap) \
	X(gather) X(embed_add) X(layernorm) X(gelu) X(pool_rows)
// clang-format on
template <class F> struct kn_pointed;
template <class F> struct kn_pointed<F *> {
	typedef F type;
};
#define KN_CUDA_DECLARE(op) kn_pointed<decltype(kn_ops::op)>::type kn_cuda_##op;
KN_CUDA_OPS(KN_CUDA_DECLARE)
#undef KN_CUDA_DECLARE

/* ---- step.cu ---- */
/* Grows to at least so many bytes; the content is lost. Growing runs the recorded commands and waits for the device. */
int kn_cuda_room(struct kn_backend *b, struct kn_room *room, size_t bytes);
void kn_cuda_host_room_free(struct kn_backend *b, struct kn_host_room *room);
/* The rows of a gather, n ≥ 1, as this step's kernels read them at *device: as many as kn_cuda_rows returns. */
int kn_cuda_stage_picks(struct kn_backend *b, const int32_t *from, int n, const int32_t **device);
/* The texts of a pool_rows, as this step's kernels read them at *device. */
int kn_cuda_stage_texts(struct kn_backend *b, const struct kn_text *from, int n, const struct kn_text **device);
/* What an operation on n_rows rows, or a multiple of the step's, is to be done to in a step that was filled up. */
int kn_cuda_rows(const struct kn_backend *b, int n_rows);
int kn_cuda_send(void *backend);
/* read_back for bytes. */
int kn_cuda_read_bytes(struct kn_backend *b, const void *src, size_t bytes, void *host);
/* Room for the draws of this step, to be filled before the next operation; *device: where they will be. NULL after a
 * fault. */
uint8_t *kn_cuda_stage_draws(struct kn_backend *b, size_t bytes, uint8_t **device);

/* ---- memory.cu ---- */
/* The stream's next work touches these pages: it waits for the copies if one of them is in flight. 0 or SL_EIO. */
int kn_cuda_await_page(struct kn_backend *b, int page);
int kn_cuda_await_pages(struct kn_backend *b, const struct kn_step *s);

/* ---- pack.cu ---- */
static inline int64_t kn_cuda_tiles(int n_out) { return ((int64_t)n_out + 15) / 16; }

static inline int64_t kn_cuda_chunks(int n_in) { return ((int64_t)n_in + 255) / 256; }

/* Bytes of a record of a type (packed.h), 0 for one that isn't packed. */
int64_t kn_cuda_record_bytes(int type);
/* Of a matrix in FP8: the scales of its outputs. */
const float *kn_cuda_fp8_scales(const struct kn_weight *w);

/* ---- noise.cu ---- */
/* Rows first…first + n - 1 of that noise on the device, as a file of that type has them. 0 or SL_EIO. */
int kn_cuda_noise_rows(struct kn_backend *b, const struct kn_noise *noise, int type, int64_t row_bytes, int first,
		       int n, int n_in, void *to);

/* ---- matmul.cu ---- */
/* Where an operation that makes rows of activations puts them as products take them, and its
 * layout (matmul.cu). */
struct kn_into {
	uint8_t *units; /* NULL: nowhere */
	float *sums, *inverse;
	int n_slabs, n_rows, n_all; /* rows there are, and with those that fill up the last tile */
	bool bf16;
};
/* Of n_rows rows at x, n_in wide, which all products of such rows take as the same numbers; out->units NULL where they
 * don't or the library may make them. SL_EIO. */
int kn_cuda_into(struct kn_backend *b, int n_rows, int n_in, struct kn_into *out);
/* It was launched: products of the rows at x need no conversion. */
void kn_cuda_converted(struct kn_backend *b, const float *x, int n_in, const struct kn_into *to);
/* Weights n_in wide of a type are loaded. */
void kn_cuda_note_width(struct kn_backend *b, int type, int n_in);
/* Without the library. */
int kn_cuda_own_product(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y);

/* ---- library.cu ---- */
enum { KN_NOT_TAKEN = 1 };
/* Products that the library makes quicker are its from now on; path: where to keep which, or NULL. Nothing fails. */
void kn_cuda_library_open(struct kn_backend *b, const char *path);
void kn_cuda_library_close(struct kn_backend *b);
/* KN_NOT_TAKEN: the own kernels are to do it; 0 or SL_EIO. */
int kn_cuda_library_product(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y);

/* A layer's part of the pool (kernels.h). */
struct kn_pages {
	const int32_t *table;
	int max_pages, page_tokens;
	int page_shift; /* page_tokens is 2 to its power; -1: it is no power of 2 */
	int n_layers, layer, n_kv_heads, head_dim;
	int scales_at;      /* in a block, of types that have them */
	int64_t head_bytes; /* of a block */
};

static inline struct kn_pages kn_pages_of(const struct kn_backend *b, const struct kn_kv *kv, int layer)
{
	struct kn_pages p;
	p.table = b->table;
	p.max_pages = b->step->max_pages;
	p.page_tokens = kv->page_tokens;
	p.page_shift = -1;
	for (int i = 0; i < 30; i++)
		if (kv->page_tokens == 1 << i)
			p.page_shift = i;
	p.n_layers = kv->n_layers;
	p.layer = layer;
	p.n_kv_heads = kv->n_kv_heads;
	p.head_dim = kv->head_dim;
	p.scales_at = (int)kn_kv_scales_at(kv->type, kv->page_tokens, kv->head_dim);
	p.head_bytes = (int64_t)kn_kv_head_bytes(kv->type, kv->page_tokens, kv->head_dim);
	return p;
}

/* kn_kv_has_scales on the device. */
__device__ static inline bool kn_has_scales(int type) { return type == KN_KV_Q8 || type == KN_FP8; }

/* Bytes from the start of k or v to the block of a position of a sequence and a key head. */
__device__ static inline int64_t kn_block_at(const struct kn_pages &p, int seq, int pos, int head)
{
	int index = p.page_shift >= 0 ? pos >> p.page_shift : pos / p.page_tokens;
	int64_t page = p.table[(int64_t)seq * p.max_pages + index];
	return ((page * p.n_layers + p.layer) * p.n_kv_heads + head) * p.head_bytes;
}

__device__ static inline int kn_pos_in_page(const struct kn_pages &p, int pos)
{
	return p.page_shift >= 0 ? pos & (p.page_tokens - 1) : pos % p.page_tokens;
}

#endif
