/* SPDX-License-Identifier: Apache-2.0
 *
 * 4-bit matrices in Hugging Face folders: GPTQ's, AWQ's and compressed-tensors' "pack-quantized" tensors. They have
 * 4-bit integers, and a scale and a zero point for each group of weights along K of an output.
 *
 *  form    integers, I32                             zero points                          scales
 *  gptq    qweight [K/8][out], 8 of K in a word      qzeros [groups][out/8], less one     scales [groups][out]
 *  awq     qweight [K][out/8], outputs 0 2 4 6 1 3   qzeros [groups][out/8], like them    scales [groups][out]
 *          5 7 of eight from the low bits on
 *  packed  weight_packed [out][K/8]                  weight_zero_point [out/8][groups]    weight_scale [out][groups]
 *
 * A weight is scale · (q - zero). If all zero points are 8, weights become INT4 (group size a multiple of 128) or Q4_0
 * (a multiple of 32). This is exact for float16 scales; other scales are rounded to float16, with an error of at most
 * 2^-11 of the scale. Other zero points give Q4_1 with a minimum of -scale · zero in float16, with an error of at most
 * 2^-11 of it.
 *
 * Sources: Frantar et al., "GPTQ", 2023, and AutoGPTQ's qlinear_cuda; Lin et al., "AWQ", 2024, and AutoAWQ's pack
 * functions; compressed-tensors' pack_to_int32.
 */
#ifndef ENGINE_HF_INT4_H
#define ENGINE_HF_INT4_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/file/safetensors.h"
#include "engine/source/hf_made.h"

enum hf_int4_form { HF_INT4_NONE, HF_INT4_GPTQ, HF_INT4_AWQ, HF_INT4_PACKED };

/* Their description in config.json. */
struct hf_int4 {
	enum hf_int4_form form;
	uint32_t group;    /* weights per scale; 0: a whole row */
	bool symmetric;    /* all zero points are 8 */
	uint32_t zero_off; /* added to each stored zero point */
};

/* Reads a quantization_config. path: the folder's, for an error that names what is not supported. */
int hf_int4_config(const json_t *config, const char *path, struct hf_int4 *out, struct sl_err *err);

/* Whether a tensor of that name has a matrix's integers: then *out is the name of the matrix. If false, *belongs:
 * it is another component of a matrix. */
bool hf_int4_names(const struct hf_int4 *how, const char *name, char *out, size_t out_bytes, bool *belongs);

struct hf_int4_matrix {
	const struct hf_int4 *how;
	const char *name;          /* of its integers */
	const uint32_t *q, *zeros; /* NULL: all are 8 */
	const int32_t *g_idx;      /* NULL: none */
	const void *scales;
	int scale_type;
	uint32_t n_out, n_in, group;
};

/* The matrix whose integers are q; find returns a tensor by name, or NULL. Checks shapes and types; reads no data. */
int hf_int4_matrix(const struct hf_int4 *how, const struct st_tensor *q,
		   const struct st_tensor *(*find)(const void *ctx, const char *name), const void *ctx,
		   const char *path, struct hf_int4_matrix *out, struct sl_err *err);
/* The weight type of the converted matrix. */
int hf_int4_type(const struct hf_int4_matrix *m);
/* hf_made.make, to that type; of is a struct hf_int4_matrix. SL_EINVAL: it contradicts the configuration;
 * SL_EUNSUPPORTED: its weights are reordered (desc_act). */
int hf_int4_make(const void *of, const char *path, int n_threads, void *out, struct sl_err *err);

#endif
