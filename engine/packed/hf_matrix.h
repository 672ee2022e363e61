/* SPDX-License-Identifier: Apache-2.0
 *
 * The room's front header. Quantized matrices in Hugging Face folders, as other libraries store them, and the weight
 * types of kernels/blocks.h that they become when they are read. Each form's header has its layout, what it becomes and
 * the error. `name` is a module, n_out × n_in its matrix:
 *
 *  form         main tensor            dtype    other components
 *  gptq, awq    name.qweight           I32      .scales .qzeros .g_idx                                  hf_words.h
 *  packed       name.weight_packed     I32      .weight_scale .weight_zero_point .weight_shape .weight_g_idx
 *  int8         name.weight            I8       .weight_scale .weight_zero_point                        hf_bytes.h
 *  fp8          name.weight            F8_E4M3  .weight_scale or .weight_scale_inv
 *  nvfp4        name.weight            U8       .weight_scale .weight_scale_2                           hf_fp4.h
 *  nvfp4        name.weight_packed     U8       .weight_scale .weight_global_scale
 *  mxfp4        name.weight_packed     U8       .weight_scale
 *  mxfp4        name_blocks            U8       name_scales
 *
 * The input's and output's scales, and those of keys and values, are ignored (hf_quant.h).
 */
#ifndef ENGINE_HF_MATRIX_H
#define ENGINE_HF_MATRIX_H

#include <stddef.h>

#include "engine/file/safetensors.h"
#include "engine/packed/hf_quant.h"

/* A matrix, or several of one shape below one another (the experts of a layer), before it is converted. Everything is
 * borrowed from the folder. */
struct hf_matrix {
	const struct hf_scheme *how;
	const struct hf_form_ops *ops;
	const char *name; /* of the main tensor, for messages */
	int type;         /* enum kn_type that it becomes */
	uint32_t n_out, n_in, n;
	/* Row r of matrix e is row e · file_rows + first + step · r of the file's: gpt-oss has gate and up in turn. */
	uint32_t file_rows, first, step;
	const void *q;
	/* The scale of weight k of row r is scale(scales, r / scale_rows · scale_down + k / scale_width · scale_along),
	 * times global. */
	float (*scale)(const void *scales, uint64_t i);
	const void *scales;
	uint32_t scale_rows, scale_width;
	uint64_t scale_down, scale_along;
	float global;
	const void *zeros;    /* NULL: all are in the middle */
	const int32_t *g_idx; /* NULL: column k is of group k / scale_width */
};

/* A tensor of the folder by its name there, or NULL. */
typedef const struct st_tensor *hf_find(const void *ctx, const char *name);

enum hf_role {
	HF_WHOLE,     /* of no quantized matrix */
	HF_MAIN,      /* a matrix's main tensor */
	HF_COMPONENT, /* another one of a matrix */
	HF_IGNORED    /* a scale of activations, or of keys and values */
};

/* The role of a tensor. HF_MAIN: *out is the name that the matrix has as one of floats: the module's with ".weight". */
enum hf_role hf_matrix_role(const struct st_tensor *t, char *out, size_t out_bytes);

/* The name of the module that a main tensor belongs to. */
void hf_matrix_module(const struct st_tensor *main, char *out, size_t out_bytes);

/* Whether the main tensor of that component is in the folder. */
bool hf_matrix_has_main(const struct st_tensor *component, hf_find *find, const void *ctx);

/* The matrix whose main tensor is q. Checks shapes and types and chooses the type; reads no weights. path: the
 * folder's, for messages. SL_EINVAL, SL_EUNSUPPORTED, SL_ELIMIT. */
int hf_matrix_open(const struct hf_quant *how, const struct st_tensor *q, hf_find *find, const void *ctx,
		   const char *path, struct hf_matrix *out, struct sl_err *err);

/* Takes every second row of each matrix, from the first or the second on. */
void hf_matrix_halve(struct hf_matrix *m, bool second);

/* Leaves out rows of one matrix from the n-th on. */
void hf_matrix_trim(struct hf_matrix *m, uint32_t n);

/* Before rows are read: whether the weights are what the configuration says, and numbers. */
int hf_matrix_check(const struct hf_matrix *m, const char *path, struct sl_err *err);

/* How rows of n · n_out are made, by any thread: raw has kn_row_bytes of m->type; where it is NULL, floats has n_in
 * floats, to be converted. ctx is m. */
struct hf_rows {
	void (*raw)(void *ctx, uint64_t row, uint8_t *out);
	void (*floats)(void *ctx, uint64_t row, float *out);
};
struct hf_rows hf_matrix_rows(const struct hf_matrix *m);

/* Bits of a weight in the folder, without its scales. */
int hf_matrix_bits(const struct hf_matrix *m);

#endif
