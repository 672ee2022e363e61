/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/packed/hf_bytes.h"

#include "engine/packed/hf_form.h"
#include "kernels/kv_type.h"

enum { BLOCK = 32 };

static bool is_int(const struct hf_matrix *m) { return m->how->form == HF_INT8; }

/* ---- shapes ---- */

static int read_bytes(const struct hf_parts *p, struct hf_matrix *m, struct sl_err *err)
{
	const struct st_tensor *q = p->q;
	if (q->n_dims != 2 || !hf_is_dtype(q, is_int(m) ? "I8" : "F8_E4M3") || q->dims[0] > HF_MOST_SIDE ||
	    q->dims[1] > HF_MOST_SIDE)
		return hf_wrong(p->path, q->name, is_int(m) ? "is no matrix of I8" : "is no matrix of F8_E4M3", err);
	m->n_out = m->file_rows = (uint32_t)q->dims[0];
	m->n_in = (uint32_t)q->dims[1];
	return 0;
}

static bool is_of_outputs(const struct st_tensor *t, uint64_t n_out)
{
	return hf_has_shape(t, n_out, 1) || (t->n_dims == 1 && t->dims[0] == n_out);
}

/* Rows and columns that share a scale, if the tensor has that shape. */
static bool take_scales(const struct st_tensor *t, struct hf_matrix *m)
{
	const struct hf_scheme *s = m->how;
	enum hf_scales of = s->scales;
	if (of == HF_PER_ANY)
		of = hf_is_one(t) ? HF_PER_TENSOR : HF_PER_OUTPUT;
	if (of == HF_PER_GROUP && s->group == 0)
		of = HF_PER_OUTPUT;
	m->scale_rows = of == HF_PER_TENSOR ? m->n_out : of == HF_PER_BLOCK ? s->block_rows : 1;
	m->scale_width = of == HF_PER_GROUP ? s->group : of == HF_PER_BLOCK ? s->block_width : m->n_in;
	m->scale_along = 1;
	m->scale_down = (m->n_in + (uint64_t)m->scale_width - 1) / m->scale_width;
	if (of == HF_PER_TENSOR)
		return hf_is_one(t);
	if (of == HF_PER_OUTPUT)
		return is_of_outputs(t, m->n_out);
	if (of == HF_PER_GROUP && m->n_in % s->group != 0)
		return false;
	return hf_has_shape(t, (m->n_out + (uint64_t)m->scale_rows - 1) / m->scale_rows, m->scale_down);
}

static int read_scales(const struct hf_parts *p, struct hf_matrix *m, struct sl_err *err)
{
	const struct st_tensor *one = hf_part(p, ".weight_scale"), *other = hf_part(p, ".weight_scale_inv");
	const struct st_tensor *s = one != NULL ? one : other;
	if (s == NULL || (one != NULL && other != NULL))
		return hf_wrong(p->path, p->q->name, "has no weight_scale or weight_scale_inv, or both", err);
	m->scales = s->data;
	m->scale = hf_scale_reader(s);
	if (m->scale == NULL || (is_int(m) && s->type < 0))
		return hf_wrong(p->path, s->name, "is not of F32, F16 or BF16", err);
	return take_scales(s, m) ? 0
				 : hf_wrong(p->path, s->name, "is not of the shape that quantization_config says", err);
}

/* Zero points have the scales' shape; those that are all 0 have no effect. */
static int read_zeros(const struct hf_parts *p, struct hf_matrix *m, struct sl_err *err)
{
	const struct st_tensor *z = hf_part(p, ".weight_zero_point");
	const struct st_tensor *s = hf_part(p, ".weight_scale");
	if (z == NULL)
		return m->how->symmetric || !is_int(m) ? 0 : hf_wrong(p->path, p->q->name, "has no zero points", err);
	bool same = s != NULL && s->n_dims == z->n_dims && hf_is_dtype(z, is_int(m) ? "I8" : "F8_E4M3");
	for (int d = 0; same && d < z->n_dims; d++)
		same = z->dims[d] == s->dims[d];
	if (!same)
		return hf_wrong(p->path, z->name, "is not of its scales' shape and its weights' dtype", err);
	bool off = false;
	for (uint64_t i = 0; i < z->bytes; i++)
		off = off || ((const uint8_t *)z->data)[i] != 0;
	if (off && (m->how->symmetric || !is_int(m)))
		return hf_wrong(p->path, z->name, "is not 0, but quantization_config says symmetric", err);
	m->zeros = off ? z->data : NULL;
	return 0;
}

static int open_bytes(const struct hf_parts *p, struct hf_matrix *m, struct sl_err *err)
{
	int rc = read_bytes(p, m, err);
	if (rc != 0 || (rc = read_scales(p, m, err)) != 0 || (rc = read_zeros(p, m, err)) != 0)
		return rc;
	if (hf_part(p, ".weight_g_idx") != NULL)
		return sl_errf(err, SL_EUNSUPPORTED,
			       "%s: tensor %.200s: weights of a byte in another order (weight_g_idx) "
			       "are not supported",
			       p->path, p->q->name);
	bool even = m->n_in % BLOCK == 0 && (m->scale_width % BLOCK == 0 || m->scale_width == m->n_in);
	m->type = even || (!is_int(m) && m->n_in % BLOCK == 0) ? KN_Q8_0 : KN_BF16;
	return 0;
}

/* ---- numbers ---- */

static const uint8_t *row_at(const struct hf_matrix *m, uint64_t file_row)
{
	return (const uint8_t *)m->q + file_row * m->n_in;
}

static void int_row(void *ctx, uint64_t row, uint8_t *out)
{
	const struct hf_matrix *m = ctx;
	uint64_t at = hf_file_row(m, row);
	const uint8_t *q = row_at(m, at);
	for (uint32_t k = 0; k < m->n_in; k += BLOCK, out += 2 + BLOCK) {
		hf_put_half(out, hf_scale_at(m, at, k));
		for (uint32_t i = 0; i < BLOCK; i++)
			out[2 + i] = q[k + i];
	}
}

static float zero_at(const struct hf_matrix *m, uint64_t row, uint32_t k)
{
	uint64_t at = row / m->scale_rows * m->scale_down + k / m->scale_width;
	return m->zeros != NULL ? (float)((const int8_t *)m->zeros)[at] : 0.0f;
}

/* The value of each byte. */
static void fill_values(const struct hf_matrix *m, float values[256])
{
	for (int i = 0; i < 256; i++)
		values[i] = is_int(m) ? (float)(int8_t)i : kn_f32_from_fp8((uint8_t)i);
}

static void float_row(void *ctx, uint64_t row, float *out)
{
	const struct hf_matrix *m = ctx;
	uint64_t at = hf_file_row(m, row);
	const uint8_t *q = row_at(m, at);
	float values[256];
	fill_values(m, values);
	for (uint32_t k = 0, end; k < m->n_in; k = end) {
		float scale = hf_scale_at(m, at, k), zero = zero_at(m, at, k);
		end = m->n_in - k < m->scale_width ? m->n_in : k + m->scale_width;
		for (uint32_t i = k; i < end; i++)
			out[i] = scale * (values[q[i]] - zero);
	}
}

static int check_bytes(const struct hf_matrix *m, const char *path, struct sl_err *err)
{
	return hf_check_scales(m, 65504.0f, path, err);
}

static struct hf_rows rows_of(const struct hf_matrix *m)
{
	bool exact = is_int(m) && m->zeros == NULL && m->type == KN_Q8_0;
	if (exact)
		return (struct hf_rows){.raw = int_row};
	return (struct hf_rows){.floats = float_row};
}

const struct hf_form_ops hf_bytes_ops = {.open = open_bytes, .check = check_bytes, .rows = rows_of};
