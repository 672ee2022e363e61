/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA backend's state and what its files share. Its operations run on the thread that calls kn_ops.
 *
 * backend.cu               the table                    memory.cu   device memory, pages on the host
 * step.cu                  a step's inputs and results  pages.cu, rope.h  rotary embedding, pages
 * rows.cu, rows.h          row-wise operations         recurrent.cu  layers that keep a state
 * attention.cu, attention_mma.h, attention_units.h,     sample.cu   drawing tokens
 * attention_alone.h (single rows), attention_merge.h    latent.cu   latent rows: writing, attention, heads' products
 * experts.h, route.cu, experts.cu                       mixtures of experts
 * lora.cu, lora.h           low-rank adapters
 * Products: upload.cu, pack.cu (weights, as packed.h defines them), noise.cu (weights without a file), matmul.cu (which
 * kernel), matvec.cu, then.h (what follows a product), mma.cu, wgmma.cu, stages.h; library.cu and choices.cu (the
 * vendor's library).
 * Below: kernels/cuda/device.
 */
#ifndef KERNELS_CUDA_BACKEND_H
#define KERNELS_CUDA_BACKEND_H

#include "kernels/cuda/device/list.h"
#include "kernels/kv_type.h"

enum {
	KN_TILE = 8,       /* rows, or rows times heads, that a block processes together */
	KN_ITEM_ROWS = 64, /* upper bound per item */
};

/* Device memory that grows on demand. Its content is undefined when a step begins, unless kept. */
struct kn_room {
	void *at;
	size_t bytes;
	bool kept;
};

/* Frequencies of a rotary embedding, on the device, and the angles of the step's rows. */
struct kn_freqs {
	const double *host; /* their source; NULL: free */
	double *at;
	struct kn_room turns; /* [row][pair][cosine, sine] */
	bool turned;          /* in this step, by that magnitude */
	float magnitude;
};

enum { KN_N_FREQS = 4 }; /* a model has at most two */

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

/* All adjacent rows of a sequence, with the slot of its state. Rows that pad the step are copies of its last one, which
 * the run of that computes: n_copies follow it. Their own runs have n_rows 0 and touch no state. */
struct kn_run {
	int32_t row, n_rows, n_copies, slot;
};

/* Activations converted for products (matmul.cu). */
struct kn_converted {
	const float *x; /* NULL: none */
	int n_rows, n_in;
	int numbers;     /* their format: enum dev_numbers (library.h) */
	int room;        /* of kn_backend.rows */
	uint64_t serial; /* dev_serial after the last product of them */
};

/* Rows of width n_in that are multiplied with weights, and the format they are converted to. */
struct kn_width {
	int n_in, numbers; /* enum dev_numbers; -1: several formats; -2: none */
	bool rows;         /* some weights read the rows themselves, of float32 */
};

enum { KN_N_WIDTHS = 16, KN_LATE = 4096, KN_LEAST_ARRIVED = 4096 };

/* The destination of consecutive results. */
struct kn_read {
	void *to;
	size_t bytes;
};

/* A step's host memory until it ends. There are two, so that one is filled while the device works on the other.
 * Device memory needs one copy only, because transfers follow the order of the steps. */
struct kn_step_set {
	struct kn_host_room staged, draws_staged; /* the step's inputs */
	struct kn_host_room results;
	size_t n_results;
	struct kn_read *reads; /* [max_reads] */
	int n_reads, max_reads;
	/* Counts that the step makes, to be added to the host's; results_at: of kn_backend.counts among the results. */
	struct kn_counted *counted; /* [max_counted] */
	int n_counted, max_counted;
	size_t counts_at;
};

/* Counts n numbers from number `at` of kn_backend.counts on. */
struct kn_counted {
	uint64_t *to;
	int n, at;
};

/* The adapters of a step's rows, on the device (lora.cu). */
struct kn_lora_tile {
	const struct kn_lora *sites; /* the adapter of */
	int32_t first, n;            /* rows[first] … rows[first + n - 1]; n 0: none */
};

struct kn_lora_step {
	const struct kn_lora_tile *tiles;   /* [n_tiles] */
	const struct kn_lora *const *sites; /* of each row of the step, its adapter's; NULL: none */
	const int32_t *rows;                /* of the step, in the order of their adapters */
	const int32_t *at;                  /* of each row of the step with an adapter, its place in rows */
	int n_tiles;                        /* by the number of the step's rows; 0: no adapters */
};

/* Memory that a piece of a matrix passes through (upload.cu). */
struct kn_upload {
	struct kn_host_room pinned;
	struct kn_room stage;
	bool busy; /* until its mark is reached */
};

enum { KN_UPLOADS = DEV_MARKS - KN_STEPS_AHEAD };

/* The matrices of heads as a product of all of them reads them (latent.cu). */
struct kn_head_weight {
	const uint8_t *data;
	const float *scale; /* per output, or NULL */
};
struct kn_head_table {
	const struct kn_weight *of; /* the caller's array */
	struct kn_head_weight *host, *at;
	int n;
};

struct dev_library;
struct kn_choices;

struct kn_backend {
	const struct kn_plugin_host *host;
	struct dev *dev;
	int max_rows;
	int widest_in, longest_out; /* of the loaded weights */
	size_t lacked;              /* bytes that a step needed and the device lacked; 0: none */
	bool fp8_weights;
	bool pad_rows;
	/* The step as the device sees it, padded to a class of rows, with tables of the pages it reads. NULL: outside
	 * of steps. */
	const struct kn_step *step;
	struct kn_step shaped;
	int n_real; /* rows given by the caller */
	/* The set of the current or next step; the n_issued preceding ones belong to issued steps. */
	struct kn_step_set sets[KN_STEPS_AHEAD];
	int set, n_issued;
	/* The step's integers, on the host until they are sent (n_staged is then 0), and on the device. */
	size_t n_staged;
	int32_t *picks_at; /* in staged: room for the rows of a gather; NULL: used or sent */
	struct kn_room ints;
	/* They point into ints. */
	const int32_t *token, *pos, *seq, *table, *type, *sees;
	const int32_t *real; /* n_real */
	int32_t *texts_at;   /* in staged: room for pool_rows; NULL: used or sent */
	const struct kn_item *alone, *together;
	int n_alone, n_together;
	/* Of steps with states: [n_runs], and of each row the number of its run. */
	const struct kn_run *runs;
	const int32_t *run_of;
	int n_runs;
	int32_t *numbers; /* [n_numbers]: a sequence's number in this step, or -1; then [n_numbers]: the sequence of a
			     number */
	int n_numbers;
	int32_t last_pos; /* of all rows */
	struct kn_room scratch, picks, texts;
	struct kn_room rows[2];      /* converted activations; the second: of at most eight rows (KN_ROWS) */
	struct kn_room parts, stage; /* parts of products, weights being generated */
	struct kn_upload uploads[KN_UPLOADS];
	int next_upload;
	struct kn_converted converted;
	struct kn_width widths[KN_N_WIDTHS]; /* of the loaded weights */
	int n_widths;
	/* The vendor's library (library.h); NULL: not used or not available. */
	struct dev_library *library;
	struct kn_choices *choices;
	char choices_path[1024]; /* file of its choices; "": none */
	uint64_t tuned_ns;       /* device time spent on choosing so far */
	char lacks[128];         /* for the log: what the library lacks; "": nothing */
	bool serving;            /* no more measurements */
	struct kn_room flat_weights, flat_rows;
	struct kn_converted flat;
	/* The draws: staged on the host, on the device, and their results. */
	size_t n_draws; /* bytes; 0: none, or sent */
	struct kn_room draws, drawn;
	int n_drawn; /* tokens in drawn, from the last step with draws */
	/* Pages with a copy in flight, by the low bits of their numbers, of all pools; and dev_serial when the copies
	 * were last ordered after the stream. */
	uint64_t late[KN_LATE / 64];
	bool any_late;
	uint64_t aside_serial;
	struct kn_list list;
	struct kn_graphs graphs;
	/* The last product by matvec.cu: its command's offset, dev_serial after it, its weights' type, whether it adds
	 * what adapters add. */
	struct {
		size_t at;
		uint64_t serial;
		int type;
		bool adds;
	} last;
	/* The same of the last product by wgmma.cu, if its blocks have all of K, and the tiles of rows that they have.
	 */
	struct {
		size_t at;
		uint64_t serial;
		int type, tiles;
	} last_wide;
	const float *only_products; /* kn_ops.for_products */
	uint32_t *arrived;          /* [n_arrived] of the device, zero between kernels; NULL: no memory for them */
	int n_arrived;              /* at least max_rows */
	uint64_t n_steps;
	/* Mixtures of experts (experts.cu). */
	struct kn_mixture *mixtures; /* [max_mixtures] */
	int n_mixtures, max_mixtures, last_mixture;
	uint64_t freed; /* weights so far */
	struct kn_room routed;
	size_t routed_most;    /* bytes that it may get */
	struct kn_room counts; /* of rows, by the last step, [n_counts] */
	int n_counts;
	struct kn_freqs freqs[KN_N_FREQS];
	int next_freqs;
	struct kn_head_table *head_tables; /* [max_head_tables] */
	int n_head_tables, max_head_tables, next_head_table;
	char line[512];
	struct kn_lora_step lora;
	uint64_t shrunk; /* dev_serial after a product that lora_shrink put behind itself (lora.cu); 0: there is none */
};

/* The operations of kn_ops in this backend, each kn_cuda_NAME with the type of its member. An operation on a step's
 * rows processes kn_cuda_rows of them. */
// clang-format off
#define KN_CUDA_OPS(X)                                                                                             \
	X(open) X(close) X(serve) X(describe) X(mem_alloc) X(mem_free) X(upload) X(stats) X(kv_type)                        \
	X(weight_load) X(weight_free) X(weight_load_joined) X(weight_random)                                       \
	X(step_begin) X(step_issue) X(step_wait) X(step_ready) X(step_end) X(read_back)                            \
	X(memory) X(settle) X(host_alloc) X(host_free) X(page_out) X(page_in) X(pages_there)                       \
	X(embed) X(matmul) X(attention) X(rope_kv_write) X(qkv_rope_write) X(page_copy) X(sample)                  \
	X(rmsnorm) X(add_rmsnorm) X(silu_mul) X(gelu_mul) X(gate_mul) X(for_products) X(qkv_norm) X(add) X(add_row) X(scale) X(softcap) \
	X(gather) X(embed_add) X(layernorm) X(gelu) X(pool_rows)                                                   \
	X(conv) X(delta) X(ssm) X(state_copy) X(halve) X(sigmoid_mul) X(relu_square) X(rmsnorm_groups)             \
	X(latent_write) X(matmul_heads) X(weights_load) X(experts) X(experts_ready) X(add_gated) X(lora_shrink) X(lora_expand)
// clang-format on
template <class F> struct kn_pointed;
template <class F> struct kn_pointed<F *> {
	typedef F type;
};
#define KN_CUDA_DECLARE(op) kn_pointed<decltype(kn_ops::op)>::type kn_cuda_##op;
KN_CUDA_OPS(KN_CUDA_DECLARE)
#undef KN_CUDA_DECLARE

/* ---- step.cu ---- */
/* Grows to at least `bytes`; the content is lost. Growing runs the recorded commands and waits for the device. */
int kn_cuda_room(struct kn_backend *b, struct kn_room *room, size_t bytes);
/* The same on the host. Falls back to pageable memory. SL_EIO. */
int kn_cuda_host_room(struct kn_backend *b, struct kn_host_room *room, size_t bytes);
void kn_cuda_host_room_free(struct kn_backend *b, struct kn_host_room *room);
/* Stages the n ≥ 1 rows of a gather; this step's kernels read kn_cuda_rows(n) of them at *device. */
int kn_cuda_stage_picks(struct kn_backend *b, const int32_t *from, int n, const int32_t **device);
/* Stages the texts of a pool_rows; this step's kernels read them at *device. */
int kn_cuda_stage_texts(struct kn_backend *b, const struct kn_text *from, int n, const struct kn_text **device);
/* The rows that an operation on n_rows rows (or a multiple of the step's rows) processes in a padded step. */
int kn_cuda_rows(const struct kn_backend *b, int n_rows);
int kn_cuda_send(void *backend);
/* As read_back, in bytes. */
int kn_cuda_read_bytes(struct kn_backend *b, const void *src, size_t bytes, void *host);
/* Adds to to[n], after the step, what its kernels write to *device: numbers `at` and on of kn_backend.counts. One copy
 * brings the counts of all layers. SL_EIO, SL_ENOMEM. */
int kn_cuda_count(struct kn_backend *b, uint64_t *to, int n, int at, uint32_t **device);
/* Host room for this step's draws, to be filled before the next operation; *device: their address on the device. NULL
 * after a fault. */
uint8_t *kn_cuda_stage_draws(struct kn_backend *b, size_t bytes, uint8_t **device);

/* ---- lora.cu ---- */
/* Integers of the inputs of a step with adapters, whose rows, padding included, are so many. */
size_t kn_cuda_lora_ints(int n_rows);
/* Fills in these, at `here`, on the device at `device`; both aligned to 16 bytes. The step's rows from n_real on are
 * copies of the one before them, so they have its adapter. SL_EUNSUPPORTED: more groups than there may be. */
int kn_cuda_lora_stage(const struct kn_lora_rows *from, int n_real, int n_rows, int32_t *here, const int32_t *device,
		       struct kn_lora_step *out);

/* ---- memory.cu ---- */
/* Call before work on these pages: the stream then waits for copies in flight, if any touches them. 0 or SL_EIO. */
int kn_cuda_await_page(struct kn_backend *b, int page);
int kn_cuda_await_pages(struct kn_backend *b, const struct kn_step *s);

/* ---- pack.cu ---- */
static inline int64_t kn_cuda_tiles(int n_out) { return ((int64_t)n_out + 15) / 16; }

static inline int64_t kn_cuda_chunks(int n_in) { return ((int64_t)n_in + 255) / 256; }

/* Bytes of a record of that type (packed.h); 0: the type is not packed. */
int64_t kn_cuda_record_bytes(int type);
/* The scales per output of an FP8 matrix. */
const float *kn_cuda_fp8_scales(const struct kn_weight *w);

/* ---- upload.cu ---- */
/* Brings bytes of a matrix to the device: to `to`, or if NULL to memory of its own; *at: where. Commands given from now
 * on see them there until kn_cuda_brought, which must follow them. Outside of steps. 0, SL_ENOMEM, SL_EIO. */
int kn_cuda_bring(struct kn_backend *b, const void *from, size_t bytes, void *to, uint8_t **at);
/* The commands that read the bytes were given. */
int kn_cuda_brought(struct kn_backend *b);
/* Frees what uploads use. */
void kn_cuda_uploads_end(struct kn_backend *b);

/* ---- noise.cu ---- */
/* Generates rows [first, first + n) of that noise on the device, in the file layout of that type. 0 or SL_EIO. */
int kn_cuda_noise_rows(struct kn_backend *b, const struct kn_noise *noise, int type, int64_t row_bytes, int first,
		       int n, int n_in, void *to);

/* ---- matmul.cu ---- */
/* Destination and layout for an operation that also writes its rows in the format of products (matmul.cu). */
struct kn_into {
	uint8_t *units;             /* NULL: none */
	float *sums, *inverse;      /* sums: at kn_sum_at */
	int n_slabs, n_rows, n_all; /* real rows; rows including the padding of the last tile */
	bool bf16;
	bool matrices; /* the order of units (matmul.h) */
};
/* The index of a sum: of row `in` of a tile's slab's half; at: tile * n_slabs + slab. */
__device__ static inline int64_t kn_sum_at(int64_t at, int half, int in)
{
	return at * 16 + in / 2 * 4 + half * 2 + in % 2;
}
/* Destination for n_rows rows of width n_in. out->units is NULL if products of that width use different formats, or
 * if the library may compute them. SL_EIO. */
int kn_cuda_into(struct kn_backend *b, int n_rows, int n_in, struct kn_into *out);
/* The operation was launched: products of the rows at x need no conversion. */
void kn_cuda_converted(struct kn_backend *b, const float *x, int n_in, const struct kn_into *to);
/* Records that weights of that type and width exist. */
void kn_cuda_note_width(struct kn_backend *b, int type, int n_in);
/* Whether some weights of that width may read rows as they are, and not converted. */
bool kn_cuda_reads_rows(struct kn_backend *b, int n_in);
/* A product by the kernels here. */
int kn_cuda_own_product(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y);

/* ---- latent.cu ---- */
/* Frees the tables of heads' matrices. */
void kn_cuda_head_tables_end(struct kn_backend *b);
/* ---- experts.cu ---- */
/* Frees what is known of mixtures. */
void kn_cuda_experts_end(struct kn_backend *b);

/* ---- library.cu ---- */
enum { KN_NOT_TAKEN = 1 };
/* From now on the library computes the products that it is faster at. path: file of choices, or NULL. Never fails. */
void kn_cuda_library_open(struct kn_backend *b, const char *path);
void kn_cuda_library_close(struct kn_backend *b);
/* 0, SL_EIO, or KN_NOT_TAKEN: use the kernels here. */
int kn_cuda_library_product(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y);

/* One layer's pages of a pool (kernels.h). */
struct kn_pages {
	const int32_t *table; /* of its group, of the first sequence */
	int row;              /* numbers from one sequence to the next */
	int page_tokens;
	int page_shift; /* log2 of page_tokens; -1: not a power of two */
	int n_layers, layer, n_kv_heads, head_dim;
	int scales_at;      /* offset of the scales in a block, for types with scales */
	int64_t head_bytes; /* bytes of a block */
};

static inline struct kn_pages kn_pages_of(const struct kn_backend *b, const struct kn_kv *kv, int layer)
{
	struct kn_pages p;
	p.table = b->table + (int64_t)kv->group * b->step->max_pages;
	p.row = b->step->n_groups * b->step->max_pages;
	p.page_tokens = kv->page_tokens;
	p.page_shift = -1;
	for (int i = 0; i < 30; i++)
		if (kv->page_tokens == 1 << i)
			p.page_shift = i;
	p.n_layers = kv->n_layers;
	p.layer = layer;
	p.n_kv_heads = kv->n_kv_heads;
	p.head_dim = kv->head_dim;
	p.scales_at = (int)kn_kv_scales_at(kv->type, kn_kv_block_tokens(kv), kv->head_dim);
	p.head_bytes = (int64_t)kn_kv_head_bytes(kv->type, kn_kv_block_tokens(kv), kv->head_dim);
	return p;
}

/* As kn_kv_has_scales, on the device. */
__device__ static inline bool kn_has_scales(int type) { return type == KN_KV_Q8 || type == KN_FP8; }

/* Offset in k or v of the block for a sequence's position and a key head. */
__device__ static inline int64_t kn_block_at(const struct kn_pages &p, int seq, int pos, int head)
{
	int index = p.page_shift >= 0 ? pos >> p.page_shift : pos / p.page_tokens;
	int64_t page = p.table[(int64_t)seq * p.row + index];
	return ((page * p.n_layers + p.layer) * p.n_kv_heads + head) * p.head_bytes;
}

__device__ static inline int kn_pos_in_page(const struct kn_pages &p, int pos)
{
	return p.page_shift >= 0 ? pos & (p.page_tokens - 1) : pos % p.page_tokens;
}

#endif
