/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors that Hugging Face folders keep woven together, and the ones that GGUF has in their place:
 *
 *  family    in the folder                                   here
 *  gptneox   attention.query_key_value [heads][q, k, v][..]  attn_q, attn_k, attn_v
 *  falcon    self_attention.query_key_value                  the same, of groups: a key head's queries, k, v
 *            [kv heads][q … q, k, v][..]
 *  gpt-oss   mlp.experts.gate_up_proj [n][in][ff · (g, u)]   ffn_gate_exps, ffn_up_exps [n][ff][in]
 *            mlp.experts.gate_up_proj_bias [n][ff · (g, u)]  ffn_gate_exps.bias, ffn_up_exps.bias
 *            mlp.experts.down_proj [n][ff][out]              ffn_down_exps [n][out][ff]
 *  llama4    feed_forward.experts.gate_up_proj               ffn_gate_exps, ffn_up_exps, ffn_down_exps
 *            [n][in][ff g, ff u], …down_proj [n][ff][out]
 *  qwen35moe mlp.experts.gate_up_proj [n][ff g, ff u][in]    ffn_gate_exps, ffn_up_exps
 *            mlp.experts.down_proj [n][out][ff]              ffn_down_exps
 *  granite-  block_sparse_moe.input_linear                   ffn_gate_exps, ffn_up_exps
 *  hybrid    [n][ff g, ff u][in], …output_linear [n][out][ff] ffn_down_exps
 *            shared_mlp.input_linear [ff g, ff u][in],       ffn_gate_shexp, ffn_up_shexp; without experts
 *            …output_linear                                  ffn_gate, ffn_up; ffn_down_shexp or ffn_down
 *  nemotron_h mixer.experts.up_proj [n][ff][in], …down_proj  ffn_up_exps, ffn_down_exps
 *  qwen3next linear_attn.in_proj_qkvz [key heads][q, k,      attn_qkv (all q, all k, all v), attn_gate (all z)
 *            its value heads' v, their z][in]
 *
 * Each is a view of its source by three strides, or three such views one below the other. gpt-oss's quantized experts
 * are not among them: engine/packed reads these. Source: the modules of those names in the transformers library.
 */
#ifndef ENGINE_HF_WOVEN_H
#define ENGINE_HF_WOVEN_H

#include <stdbool.h>

#include "engine/file/safetensors.h"
#include "engine/source/hf_made.h"

enum { HF_WOVEN_MOST = 3 };

/* What of a model's description decides how it is woven. */
struct hf_weave {
	const char *family;
	uint64_t n_heads, n_kv_heads;            /* 0: unknown */
	uint64_t k_heads, v_heads, k_dim, v_dim; /* of the gated delta rule */
	bool experts;                            /* with "granitehybrid": the configuration has some */
};

struct hf_woven {
	const uint8_t *from; /* the first element */
	int type;
	uint64_t n, n_out, n_in;    /* n matrices [n_out][n_in], one below the other */
	uint64_t step, row, column; /* elements in the source between two of each */
	bool flat;                  /* a vector, or one matrix: n is not a dimension */
	/* Further views below it, of other rows; n_out 0: none. */
	struct {
		const uint8_t *from;
		uint64_t n_out;
	} below[2];
};

/* Rows of all its views. */
static inline uint64_t hf_woven_rows(const struct hf_woven *w)
{
	return w->n * (w->n_out + w->below[0].n_out + w->below[1].n_out);
}

/* Of how many tensors the folder's tensor of that name is woven; 0: of none, it is one itself. */
int hf_woven_parts(const struct hf_weave *how, const char *name);
/* Part k of it: its name in GGUF, whose layer is that of `name`. */
void hf_woven_name(const struct hf_weave *how, const char *name, int k, char *out, size_t out_bytes);
/* Part k of s. path: the folder's, for messages. SL_EINVAL: s has another shape or type. */
int hf_woven_part(const struct hf_weave *how, const struct st_tensor *s, int k, const char *path, struct hf_woven *out,
		  struct sl_err *err);
/* hf_made.make; of is a struct hf_woven. */
int hf_woven_make(const void *of, const char *path, int n_threads, void *out, struct sl_err *err);

#endif
