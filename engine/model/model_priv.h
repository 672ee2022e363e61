/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's weights and activations, for the files of the room: model.c loads it by way of tensors.c and layers.c,
 * forward.c runs steps and has the decoders' layers, recurrent.c those that keep states, mamba.c state spaces among
 * them, latent.c latent attention, encoder.c BERT's layers, pooling.c what becomes of a text's rows, adapters.c what
 * adapters add (adapter_pack.c: from their files), draft_head.c the layer that drafts.
 */
#ifndef ENGINE_MODEL_PRIV_H
#define ENGINE_MODEL_PRIV_H

#include "engine/model/model.h"
#include "engine/source/model_file.h"
#include "engine/model/weight_store.h"

/* Vectors in backend memory; those that the family does not have are NULL. */
struct layer_experts;
struct layer_recurrent;
struct layer {
	float *attn_norm, *ffn_norm, *post_attn_norm, *post_ffn_norm;
	float *q_norm, *k_norm, *q_bias, *k_bias, *v_bias; /* of a joined product all biases are in q_bias */
	float *attn_norm_bias, *ffn_norm_bias, *up_bias, *down_bias, *o_bias, *sinks;
	/* Of joined products q, k, v, gate and up are empty, and qkv and gate_up hold them; where none are joined, qkv
	 * and gate_up are empty. A half without a gate has up only. */
	struct kn_weight q, k, v, o, gate, up, down, qkv, gate_up;
	int n_ff; /* of gate, up and down: the dense half, or a mixture's shared expert; 0: it has none */
	struct layer_experts *experts;     /* NULL: a dense layer */
	struct layer_latent *latent;       /* NULL: keys and values of heads */
	struct layer_recurrent *recurrent; /* NULL: attention; otherwise q, k, v and o are empty */
	struct kn_attn attn;
	const struct kn_rope *rope;
};

/* Latent attention (latent.c). Queries are a product of the stream, or of a vector of it, in layer.q. */
struct layer_latent {
	struct kn_weight q_a, kv_a;
	struct kn_weight *k_b, *v_b; /* [n_heads] each: [latent][plain], [value][latent] */
	float *q_a_norm, *kv_a_norm;
	void *turned; /* NULL, or the memory of k_b, of the host */
};

/* A mixture (experts.c). */
struct layer_experts {
	struct kn_weight router, shared_gate;
	/* Between the stream and the vectors that experts read and write; empty: they do so with the stream. */
	struct kn_weight latent_down, latent_up;
	struct kn_weight *weights;      /* [3·n]: gates, ups, downs */
	float *choice_bias;             /* NULL, or added to the scores for the choice */
	float *router_bias, *biases[3]; /* NULL: none; of gates, ups, downs of all experts */
	struct kn_experts op;
};

/* A layer that keeps a state (recurrent.c). Products: what the convolution reads, the output; DELTA: gates of the
 * output, beta and alpha; SSM: gates, and steps in alpha. */
struct layer_recurrent {
	struct kn_weight in, out, gate, beta, alpha;
	float *taps, *a, *dt, *norm, *conv_bias, *d;
	struct kn_conv conv;
	struct kn_delta delta;
	struct kn_ssm ssm;
};

struct draft_head;

struct model {
	const struct kn_ops *ops;
	struct kn_backend *backend;
	struct model_file *file;
	struct weight_store *store;
	struct model_info info;
	struct tokenizer *tokenizer;
	struct chat_template *template;
	struct layer *layers;
	struct kn_weight embed, head; /* head is embed when tied */
	float *output_norm;           /* NULL in encoders */
	float *output_norm_bias, *head_bias;
	/* Encoders: tables as floats, the norm of embeddings. RANK: its head. */
	float *positions, *types, *embed_norm, *embed_norm_bias, *rank_dense_bias, *rank_out_bias;
	struct kn_weight rank_dense, rank_out;
	struct kn_rope rope, rope_windowed;
	struct kn_rope no_rope; /* for layers that do not turn */
	double inv_freq[2][ARCH_MAX_ROT], no_freq[ARCH_MAX_ROT];
	bool *used; /* [tensors of the file], until the weights are loaded */
	int max_rows;
	int logit_rows; /* of logits; as many may be wanted, or half of them where it is less than max_rows */
	/* Activations: [max_rows][…]. qkv and gate_up are joined outputs; what no layer needs is NULL. */
	float *x, *normed, *q, *k, *v, *qkv, *attn, *gate, *up, *gate_up, *logits;
	/* Latent attention: the vector of queries, queries and outputs of heads in the latent, scratch memory. Queries
	 * are in q, rows in k. */
	float *q_low, *q_latent, *out_latent, *heads_work;
	/* Recurrent layers: the convolution's rows in and out, what the delta rule gives and its gate, beta, alpha.
	 * Gated attention: queries with gates, and the latter alone. */
	float *conv_in, *conv_out, *delta, *delta_gate, *beta, *alpha, *q_gated, *attn_gate;
	float *beside; /* what attention adds, while the other half runs on the same rows */
	/* Mixtures: logits of the router, the shared expert's output and its gate, scratch memory. */
	float *routed, *shared, *shared_gate, *work, *latent_rows;
	float *sums;                     /* [max_rows][n_embd], by slot: of MEAN */
	struct model_adapters *adapters; /* adapters.c; NULL: none */
	struct draft_head *draft_head;   /* draft_head.c; NULL: none; its layer is layers[n_layers] */
	int32_t *picks;                  /* [max_rows], of the host */
	struct kn_text *runs;            /* [max_rows], of the host */
};

/* Of m->layers: its own, and the one that drafts. */
static inline int model_n_layers(const struct model *m) { return m->info.arch.n_layers + (m->draft_head != NULL); }

/* ---- tensors.c: 0 or an error with *err; what was loaded is freed by model_free ---- */

/* SL_EUNSUPPORTED, with *err. */
int model_unknown_type(const struct model *m, const struct model_tensor *t, struct sl_err *err);
/* The tensor of that name, marked as used; NULL with *err when there is none. */
const struct model_tensor *model_take_tensor(struct model *m, const char *name, struct sl_err *err);
int model_load_matrix(struct model *m, const char *name, int n_out, int n_in, struct kn_weight *out,
		      struct sl_err *err);
/* The tensor of that name, marked as used: a matrix [n_out][n_in], brought. */
int model_find_matrix(struct model *m, const char *name, int n_out, int n_in, const struct model_tensor **out,
		      struct sl_err *err);
/* Its rows first_row and on as a matrix. */
int model_load_rows(struct model *m, const struct model_tensor *t, int first_row, int n_out, int n_in,
		    struct kn_weight *out, struct sl_err *err);
/* The n matrices [n_out][n_in] of a tensor [n][n_out][n_in]. */
int model_load_matrices(struct model *m, const char *name, int n, int n_out, int n_in, struct kn_weight *out,
			struct sl_err *err);
/* n matrices of one width below one another, as one: SL_EUNSUPPORTED, and nothing else has changed, where the backend
 * or their types don't allow it. */
int model_load_joined(struct model *m, const char *const *names, const int *n_outs, int n, int n_in,
		      struct kn_weight *out, struct sl_err *err);
/* offset is added to each number. */
int model_load_vector(struct model *m, const char *name, int n, float offset, float **out, struct sl_err *err);
/* Floats first to first + n of a tensor of `all`, with offset added, to floats of the backend. */
int model_put_part(struct model *m, const char *name, int all, int first, int n, float offset, float *to,
		   struct sl_err *err);
/* n floats of a tensor of so many, on the host; the caller frees them. */
int model_host_floats(struct model *m, const char *name, int n, float **out, struct sl_err *err);
/* n floats of the backend, in *out; put: with those of the host. `what` is for errors. */
int model_alloc_floats(struct model *m, const char *what, size_t n, float **out, struct sl_err *err);
int model_put_floats(struct model *m, const char *what, const float *host, size_t n, float **out, struct sl_err *err);
/* What was not loaded is ignored. */
void model_free_weight(struct model *m, struct kn_weight *w);
void model_free_floats(struct model *m, float *p);
const char *model_in_layer(int layer, const char *what, char name[64]);

/* ---- layers.c: as in tensors.c ---- */

int layers_load(struct model *m, struct sl_err *err);
void layers_free(struct model *m);
/* Queries, keys and values, one product or three; and their biases. */
int model_load_qkv(struct model *m, int layer, struct sl_err *err);
int model_load_biases(struct model *m, int layer, struct sl_err *err);
int model_load_gate_up(struct model *m, int layer, struct sl_err *err);

/* ---- forward.c ---- */

/* Of n normed rows: queries in m->q or m->qkv, keys and values in their pages. */
int model_project(struct model *m, const struct layer *l, const float *from, int n, const struct kn_kv *kv, int layer);
/* bias NULL: nothing. */
int model_add_bias(struct model *m, float *x, const float *bias, int n, int width);
/* What goes into the second matrix of a feed-forward half, in m->gate. */
int model_widen(struct model *m, const struct layer *l, const float *from, int n);

/* Layer i, from n rows of m->x to m->x; kv.places has it. */
int model_run_layer(struct model *m, int i, int n, const struct kn_kv *kv);
/* Of n rows in m->normed, normed for it, a head's logits in m->logits; want: which of the step's rows they are, for
 * adapters, or NULL: without these. */
int model_logits(struct model *m, const struct kn_weight *head, const int32_t *want, int n);

/* ---- draft_head.c ---- */

/* Whether the file has tensors of a layer that drafts, which must then be whole, and this forward pass can run it. */
bool draft_head_in(const struct model_file *f, const struct model_arch *a);
/* All but the layer itself. As in tensors.c. */
int draft_head_load(struct model *m, struct sl_err *err);
void draft_head_free(struct model *m);

/* ---- experts.c ---- */

int experts_load(struct model *m, int layer, struct sl_err *err);
void experts_free(struct model *m, struct layer_experts *x); /* NULL: nothing */
/* m->normed of n rows becomes what the layer's mixture makes of it. */
int experts_run(struct model *m, const struct layer *l, int n);

/* ---- latent.c ---- */

int latent_load(struct model *m, int layer, struct sl_err *err);
void latent_free(struct model *m, struct layer_latent *x); /* NULL: nothing */
/* Floats of m->heads_work for each row. */
size_t latent_work(const struct model_arch *a);
/* What heads make of the n rows at `from`, in m->attn. */
int latent_attend(struct model *m, const struct layer *l, const float *from, int n, const struct kn_kv *kv, int layer);

/* ---- recurrent.c ---- */

int recurrent_load(struct model *m, int layer, struct sl_err *err);
void recurrent_free(struct model *m, struct layer_recurrent *x); /* NULL: nothing */
/* From n rows at `from` to out, by the states of the step's sequences. */
int recurrent_run(struct model *m, const struct layer *l, const float *from, int n, float *out);
/* The convolution's taps, and the decays of all heads: each SL_EINVAL for another shape or numbers that are none. */
int recurrent_load_taps(struct model *m, int layer, const char *what, struct sl_err *err);
int recurrent_load_decay(struct model *m, int layer, struct sl_err *err);

/* ---- mamba.c ---- */

int mamba_load(struct model *m, int layer, struct sl_err *err);
int mamba_run(struct model *m, const struct layer_recurrent *x, const float *from, int n, float *out);

/* ---- encoder.c ---- */

int encoder_load(struct model *m, struct sl_err *err);
int encoder_load_layer(struct model *m, int i, struct sl_err *err);
/* Embeddings of the step's rows, normed, in m->x. */
int encoder_begin(struct model *m, int n);
int encoder_layer(struct model *m, int i, int n, const struct kn_kv *kv);

/* ---- pooling.c ---- */

int pooling_load(struct model *m, struct sl_err *err);
/* After the layers: results of p to the host, by the end of the step of n rows. */
int pooling_run(struct model *m, const struct model_pooling *p, int n);

#endif
