/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/packed/hf_fp4.h"

#include <math.h>
#include <string.h>

#include "engine/packed/hf_form.h"
#include "kernels/blocks.h"

enum { IN_BLOCK = 32, IN_GROUP = 16, GROUPS = KN_K_BLOCK / IN_GROUP };

/* ---- shapes ---- */

/* One matrix, two weights in a byte. */
static int read_pairs(const struct hf_parts *p, struct hf_matrix *m, struct sl_err *err)
{
	const struct st_tensor *q = p->q;
	uint32_t group = m->how->group;
	if (q->n_dims != 2 || !hf_is_dtype(q, "U8") || q->dims[0] > HF_MOST_SIDE || q->dims[1] > HF_MOST_SIDE / 2)
		return hf_wrong(p->path, q->name, "is no matrix of U8", err);
	m->n_out = m->file_rows = (uint32_t)q->dims[0];
	m->n_in = (uint32_t)q->dims[1] * 2;
	m->scale_width = group;
	m->scale_down = m->n_in / group;
	m->scale_along = 1;
	return m->n_in % group == 0 ? 0
				    : hf_wrong(p->path, q->name, "has a width that is no multiple of its groups", err);
}

static int read_scales(const struct hf_parts *p, const struct st_tensor *s, bool powers, struct hf_matrix *m,
		       struct sl_err *err)
{
	bool typed =
	    s != NULL && (powers ? hf_is_dtype(s, "U8") || hf_is_dtype(s, "F8_E8M0") : hf_is_dtype(s, "F8_E4M3"));
	if (!typed || !hf_has_shape(s, m->n_out, m->n_in / m->scale_width))
		return hf_wrong(p->path, p->q->name,
				powers ? "has no weight_scale of U8 or F8_E8M0 for every 32 weights"
				       : "has no weight_scale of F8_E4M3 for every 16 weights",
				err);
	m->scales = s->data;
	m->scale = powers ? hf_e8m0_at : hf_scale_reader(s);
	return 0;
}

/* The tensor's own scale: to be multiplied, or to be divided by. */
static int read_global(const struct hf_parts *p, struct hf_matrix *m, struct sl_err *err)
{
	const struct st_tensor *by = hf_part(p, ".weight_scale_2"), *over = hf_part(p, ".weight_global_scale");
	const struct st_tensor *one = by != NULL ? by : over;
	if (one == NULL || (by != NULL && over != NULL) || !hf_is_one(one) || !hf_is_dtype(one, "F32"))
		return hf_wrong(p->path, p->q->name,
				"has no weight_scale_2 or weight_global_scale, an F32 of one element", err);
	float g = *(const float *)one->data;
	m->global = by != NULL ? g : 1 / g;
	if (!(m->global > 0 && m->global < 16384))
		return hf_wrong(p->path, one->name, "is not a positive number in its range", err);
	return 0;
}

static int open_nvfp4(const struct hf_parts *p, struct hf_matrix *m, struct sl_err *err)
{
	int rc = read_pairs(p, m, err);
	if (rc != 0 || (rc = read_scales(p, hf_part(p, ".weight_scale"), false, m, err)) != 0)
		return rc;
	m->type = m->n_in % KN_K_BLOCK == 0 ? KN_Q6_K : m->n_in % IN_BLOCK == 0 ? KN_Q8_0 : KN_BF16;
	return read_global(p, m, err);
}

/* Blocks [n][n_out][n_in/32][16] and scales without the last dimension, or both without n. */
static int read_blocks(const struct st_tensor *q, const struct st_tensor *s, const char *path, struct hf_matrix *m,
		       struct sl_err *err)
{
	int first = q->n_dims - 3;
	if ((q->n_dims != 3 && q->n_dims != 4) || !hf_is_dtype(q, "U8") || q->dims[q->n_dims - 1] != IN_BLOCK / 2)
		return hf_wrong(path, q->name, "is no U8 of blocks of 16 bytes in 3 or 4 dimensions", err);
	bool same = s != NULL && (hf_is_dtype(s, "U8") || hf_is_dtype(s, "F8_E8M0")) && s->n_dims == q->n_dims - 1;
	for (int d = 0; same && d < s->n_dims; d++)
		same = s->dims[d] == q->dims[d];
	if (!same)
		return hf_wrong(path, q->name, "has no scales of U8 or F8_E8M0, one for each block", err);
	if (q->dims[first] > HF_MOST_SIDE || q->dims[first + 1] > HF_MOST_SIDE / IN_BLOCK ||
	    (first == 1 && q->dims[0] > HF_MOST_SIDE / q->dims[first]))
		return hf_wrong(path, q->name, "is too large", err);
	m->n = first == 1 ? (uint32_t)q->dims[0] : 1;
	m->n_out = m->file_rows = (uint32_t)q->dims[first];
	m->n_in = (uint32_t)q->dims[first + 1] * IN_BLOCK;
	m->scale_width = IN_BLOCK;
	m->scale_down = m->n_in / IN_BLOCK;
	m->scale_along = 1;
	m->scales = s->data;
	m->scale = hf_e8m0_at;
	m->type = KN_MXFP4;
	return 0;
}

static int open_mxfp4(const struct hf_parts *p, struct hf_matrix *m, struct sl_err *err)
{
	const char *suffix = strrchr(p->q->name, '_');
	if (suffix != NULL && strcmp(suffix, "_blocks") == 0)
		return read_blocks(p->q, hf_part(p, "_scales"), p->path, m, err);
	m->type = KN_MXFP4;
	int rc = read_pairs(p, m, err);
	return rc != 0 ? rc : read_scales(p, hf_part(p, ".weight_scale"), true, m, err);
}

static int open_fp4(const struct hf_parts *p, struct hf_matrix *m, struct sl_err *err)
{
	return m->how->form == HF_NVFP4 ? open_nvfp4(p, m, err) : open_mxfp4(p, m, err);
}

/* ---- numbers ---- */

/* Twice a weight of e2m1. */
static int twice(const struct hf_matrix *m, uint64_t file_row, uint32_t k)
{
	const uint8_t *q = m->q;
	uint8_t pair = q[file_row * (m->n_in / 2) + k / 2];
	return kn_fp4_values[k % 2 == 0 ? pair & 15 : pair >> 4];
}

static void mxfp4_row(void *ctx, uint64_t row, uint8_t *out)
{
	const struct hf_matrix *m = ctx;
	uint64_t at = hf_file_row(m, row);
	const uint8_t *q = (const uint8_t *)m->q + at * (m->n_in / 2),
		      *e = (const uint8_t *)m->scales + at * m->scale_down;
	for (uint32_t b = 0; b < m->n_in / IN_BLOCK; b++, q += IN_BLOCK / 2) {
		*out++ = e[b];
		/* Weights i and i + 16 share a byte there, neighbours here. */
		for (int i = 0; i < IN_BLOCK / 2; i++) {
			uint8_t low = q[i / 2], high = q[8 + i / 2];
			*out++ = (uint8_t)(i % 2 == 0 ? (low & 15) | high << 4 : low >> 4 | (high & 0xF0));
		}
	}
}

static void float_row(void *ctx, uint64_t row, float *out)
{
	const struct hf_matrix *m = ctx;
	uint64_t at = hf_file_row(m, row);
	for (uint32_t k = 0; k < m->n_in; k++)
		out[k] = (float)twice(m, at, k) * (hf_scale_at(m, at, k) / 2);
}

/* 128 weights from k on in six bits: two bytes of low nibbles and one of high bits for four that are 32 apart
 * (blocks.h). */
static void put_q6(const struct hf_matrix *m, uint64_t file_row, uint32_t k, uint8_t *low, uint8_t *high)
{
	for (uint32_t l = 0; l < 32; l++) {
		uint32_t q[4];
		for (uint32_t j = 0; j < 4; j++)
			q[j] = (uint32_t)(twice(m, file_row, k + 32 * j + l) + 32);
		low[l] = (uint8_t)((q[0] & 15) | (q[2] & 15) << 4);
		low[32 + l] = (uint8_t)((q[1] & 15) | (q[3] & 15) << 4);
		high[l] = (uint8_t)(q[0] >> 4 | q[1] >> 4 << 2 | q[2] >> 4 << 4 | q[3] >> 4 << 6);
	}
}

/* The 16 scales of a block of 256 as integers, in units of *unit: at most 120 by construction. */
static void integer_scales(const struct hf_matrix *m, uint64_t file_row, uint32_t k, int8_t out[GROUPS], float *unit)
{
	float most = 0, s[GROUPS];
	int e = 0;
	for (uint32_t g = 0; g < GROUPS; g++) {
		s[g] = m->scale(m->scales, file_row * m->scale_down + k / IN_GROUP + g);
		most = fmaxf(most, fabsf(s[g]));
	}
	(void)frexpf(most, &e); /* most < 2^e, so its binade is e - 1 */
	*unit = ldexpf(1, e - 7);
	for (int g = 0; g < GROUPS; g++)
		out[g] = (int8_t)lrintf(s[g] / *unit);
}

static void nvfp4_row(void *ctx, uint64_t row, uint8_t *out)
{
	const struct hf_matrix *m = ctx;
	uint64_t at = hf_file_row(m, row);
	for (uint32_t k = 0; k < m->n_in; k += KN_K_BLOCK, out += 210) {
		float unit;
		put_q6(m, at, k, out, out + 128);
		put_q6(m, at, k + 128, out + 64, out + 160);
		integer_scales(m, at, k, (int8_t *)out + 192, &unit);
		hf_put_half(out + 208, unit * m->global / 2);
	}
}

static int check_fp4(const struct hf_matrix *m, const char *path, struct sl_err *err)
{
	if (m->how->form == HF_NVFP4)
		return hf_check_scales(m, 448.5f * 16384, path, err);
	const uint8_t *e = m->scales;
	for (uint64_t i = 0; i < (uint64_t)m->n * m->file_rows * m->scale_down; i++)
		if (e[i] == 255)
			return hf_wrong(path, m->name, "has a scale that is no number", err);
	return 0;
}

static struct hf_rows rows_of(const struct hf_matrix *m)
{
	if (m->type == KN_MXFP4)
		return (struct hf_rows){.raw = mxfp4_row};
	if (m->type == KN_Q6_K)
		return (struct hf_rows){.raw = nvfp4_row};
	return (struct hf_rows){.floats = float_row};
}

const struct hf_form_ops hf_fp4_ops = {.open = open_fp4, .check = check_fp4, .rows = rows_of};
