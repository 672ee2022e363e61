/* SPDX-License-Identifier: Apache-2.0
 *
 * What a Hugging Face folder says of its quantized matrices: the object quantization_config of config.json, or
 * ModelOpt's hf_quant_config.json. The tensors say which matrices are quantized; this says how, module by module.
 *
 *  quant_method        keys that are read
 *  gptq                bits 4 and 8, group_size, sym, desc_act, checkpoint_format, dynamic (exclusions)
 *  awq                 bits 4, group_size, zero_point, version gemm, modules_to_not_convert
 *  compressed-tensors  config_groups (targets, format, weights), format, ignore
 *  fp8                 weight_block_size, fmt, modules_to_not_convert
 *  fbgemm_fp8          modules_to_not_convert
 *  mxfp4               modules_to_not_convert
 *  modelopt            quant_algo FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4, W4A16_NVFP4, MIXED_PRECISION;
 *                      ignore or exclude_modules, quantized_layers
 *
 * Activations are computed in the backend's own precision: what the file says of rounding them is not used, since it
 * could only lose. Scales for it that were measured in advance (input_activations that are not dynamic,
 * activation_scheme static) and for keys and values (kv_cache_scheme) are ignored, and hf_quant_note says so.
 *
 * Sources: the configuration classes of compressed-tensors and of transformers' quantizers; ModelOpt's documentation of
 * its unified checkpoints.
 */
#ifndef ENGINE_HF_QUANT_H
#define ENGINE_HF_QUANT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum hf_form {
	HF_GPTQ,   /* integers in words of 32 bits: hf_words.h */
	HF_AWQ,    /* likewise */
	HF_PACKED, /* likewise */
	HF_INT8,   /* an integer in a byte: hf_bytes.h */
	HF_FP8,    /* an e4m3 float in a byte: likewise */
	HF_NVFP4,  /* pairs of e2m1 floats with e4m3 scales: hf_fp4.h */
	HF_MXFP4,  /* pairs of e2m1 floats with scales that are powers of two: likewise */
};

enum hf_scales { HF_PER_ANY /* the tensor or an output */, HF_PER_TENSOR, HF_PER_OUTPUT, HF_PER_GROUP, HF_PER_BLOCK };

/* How the matrices of some modules are stored. */
struct hf_scheme {
	enum hf_form form;
	enum hf_scales scales;
	uint32_t bits;                    /* of an integer in a word: 4 or 8 */
	uint32_t group;                   /* weights along K with one scale; 0: a row */
	uint32_t block_rows, block_width; /* of HF_PER_BLOCK */
	uint32_t zero_off;                /* added to each stored zero point */
	bool symmetric;                   /* all zero points are in the middle */
	bool ordered;                     /* groups may have any columns (g_idx) */
};

enum { HF_MOST_SIDE = 1 << 24 }; /* of a matrix */

struct hf_quant;

/* config is a quantization_config, or all of hf_quant_config.json; `file` is its path, for messages. SL_EUNSUPPORTED
 * and SL_EINVAL name the key; SL_ENOMEM. */
int hf_quant_read(const json_t *config, const char *file, struct hf_quant **out, struct sl_err *err);
void hf_quant_free(struct hf_quant *q);

/* How the matrix of a module ("model.layers.0.mlp.up_proj") is stored if it is quantized; it lives as long as q.
 * SL_EINVAL: the configuration excludes the module, or no group has it; SL_ELIMIT: a pattern takes too long. */
int hf_quant_of(const struct hf_quant *q, const char *module, const struct hf_scheme **out, struct sl_err *err);

/* What of the configuration is ignored, in one line; "": nothing. */
const char *hf_quant_note(const struct hf_quant *q);

#endif
