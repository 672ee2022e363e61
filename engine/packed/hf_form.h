/* SPDX-License-Identifier: Apache-2.0
 *
 * What the forms of quantized matrices share. Private to the room.
 */
#ifndef ENGINE_HF_FORM_H
#define ENGINE_HF_FORM_H

#include "engine/packed/hf_matrix.h"
#include "kernels/kernels.h"

/* The tensors around a main tensor. */
struct hf_parts {
	const struct st_tensor *q;
	char module[ST_MAX_NAME + 1];
	hf_find *find;
	const void *ctx;
	const char *path;
};

/* The module's component of that suffix, or NULL. */
const struct st_tensor *hf_part(const struct hf_parts *p, const char *suffix);

struct hf_form_ops {
	/* Fills the rest of *m: how, ops and name are set. */
	int (*open)(const struct hf_parts *p, struct hf_matrix *m, struct sl_err *err);
	/* Before rows are read. */
	int (*check)(const struct hf_matrix *m, const char *path, struct sl_err *err);
	struct hf_rows (*rows)(const struct hf_matrix *m);
};

extern const struct hf_form_ops hf_words_ops, hf_bytes_ops, hf_fp4_ops;

/* SL_EINVAL: "path: tensor name what". */
int hf_wrong(const char *path, const char *name, const char *what, struct sl_err *err);

bool hf_is_dtype(const struct st_tensor *t, const char *dtype);
/* Whether it is [rows][width]. */
bool hf_has_shape(const struct st_tensor *t, uint64_t rows, uint64_t width);
/* Whether it has one element. */
bool hf_is_one(const struct st_tensor *t);

/* A reader of elements: F32, F16, BF16, F8_E4M3, F8_E8M0; NULL for another dtype. */
float (*hf_scale_reader(const struct st_tensor *t))(const void *at, uint64_t i);
/* 2^(e - 127); 255: NaN. */
float hf_e8m0_at(const void *at, uint64_t i);

static inline float hf_scale_at(const struct hf_matrix *m, uint64_t row, uint32_t k)
{
	uint64_t group = m->g_idx != NULL ? (uint64_t)m->g_idx[k] : k / m->scale_width;
	return m->scale(m->scales, row / m->scale_rows * m->scale_down + group * m->scale_along) * m->global;
}

/* A row's place among the file's. */
static inline uint64_t hf_file_row(const struct hf_matrix *m, uint64_t row)
{
	return row / m->n_out * m->file_rows + m->first + m->step * (row % m->n_out);
}

/* v as float16, which hf_form_ops.check has verified to fit. */
void hf_put_half(uint8_t *to, float v);

/* Whether all scales are numbers of a magnitude below most. SL_EINVAL names the tensor. */
int hf_check_scales(const struct hf_matrix *m, float most, const char *path, struct sl_err *err);

#endif
