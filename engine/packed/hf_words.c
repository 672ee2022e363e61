/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/packed/hf_words.h"

#include <math.h>
#include <string.h>

#include "engine/packed/hf_form.h"
#include "kernels/quantize.h"

enum { SMALL = 32, LARGE = 128 };

/* The nibble, in AWQ's words, of output k of eight. */
static const uint32_t awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

/* ---- shapes ---- */

static bool is_packed(const struct hf_matrix *m) { return m->how->form == HF_PACKED; }
static uint32_t in_word(const struct hf_matrix *m) { return 32 / m->how->bits; }
static uint32_t middle(const struct hf_matrix *m) { return 1u << (m->how->bits - 1); }
static uint32_t groups_of(const struct hf_matrix *m) { return m->n_in / m->scale_width; }

/* weight_shape, which repeats what other tensors imply. */
static bool shape_agrees(const struct st_tensor *t, const struct hf_matrix *m)
{
	int64_t side[2];
	int32_t half[2];
	if (t == NULL)
		return true;
	if (t->n_dims != 1 || t->dims[0] != 2 || (!hf_is_dtype(t, "I64") && !hf_is_dtype(t, "I32")))
		return false;
	if (hf_is_dtype(t, "I64")) {
		memcpy(side, t->data, sizeof side);
	} else {
		memcpy(half, t->data, sizeof half);
		side[0] = half[0], side[1] = half[1];
	}
	return side[0] == (int64_t)m->n_out && side[1] == (int64_t)m->n_in;
}

static int read_integers(const struct hf_parts *p, struct hf_matrix *m, struct sl_err *err)
{
	const struct st_tensor *q = p->q;
	enum hf_form form = m->how->form;
	if (q->n_dims != 2 || !hf_is_dtype(q, "I32") || q->dims[0] > HF_MOST_SIDE || q->dims[1] > HF_MOST_SIDE)
		return hf_wrong(p->path, q->name, "is no matrix of I32", err);
	uint64_t each = in_word(m), n_out = is_packed(m)      ? q->dims[0]
					    : form == HF_GPTQ ? q->dims[1]
							      : q->dims[1] * each;
	uint64_t n_in = is_packed(m) ? q->dims[1] * each : form == HF_GPTQ ? q->dims[0] * each : q->dims[0];
	uint64_t group = m->how->group > 0 ? m->how->group : n_in;
	if (n_in > HF_MOST_SIDE || n_out > HF_MOST_SIDE || n_in % group != 0 || group % SMALL != 0)
		return hf_wrong(p->path, q->name, "has a width that is no multiple of the group size", err);
	m->n_out = m->file_rows = (uint32_t)n_out;
	m->n_in = (uint32_t)n_in;
	m->scale_width = (uint32_t)group;
	return 0;
}

static int read_scales(const struct hf_parts *p, struct hf_matrix *m, struct sl_err *err)
{
	const struct st_tensor *s = hf_part(p, is_packed(m) ? ".weight_scale" : ".scales");
	uint64_t groups = groups_of(m);
	if (s == NULL || s->type < 0 ||
	    !hf_has_shape(s, is_packed(m) ? m->n_out : groups, is_packed(m) ? groups : m->n_out))
		return hf_wrong(p->path, p->q->name, "has no scales of its shape", err);
	m->scales = s->data;
	m->scale = hf_scale_reader(s);
	m->scale_down = is_packed(m) ? groups : 1;
	m->scale_along = is_packed(m) ? 1 : m->n_out;
	return 0;
}

static int read_zeros(const struct hf_parts *p, struct hf_matrix *m, struct sl_err *err)
{
	const struct st_tensor *z = hf_part(p, is_packed(m) ? ".weight_zero_point" : ".qzeros");
	uint32_t each = in_word(m), groups = groups_of(m);
	if (z != NULL &&
	    (m->n_out % each != 0 || !hf_is_dtype(z, "I32") ||
	     !hf_has_shape(z, is_packed(m) ? m->n_out / each : groups, is_packed(m) ? groups : m->n_out / each)))
		return hf_wrong(p->path, p->q->name, "has zero points of another shape", err);
	if (z == NULL && !m->how->symmetric)
		return hf_wrong(p->path, p->q->name, "has no zero points", err);
	m->zeros = z != NULL ? z->data : NULL;
	return 0;
}

/* Whether columns are in groups one after the other, as without g_idx. */
static bool in_order(const struct hf_matrix *m, const int32_t *g_idx)
{
	for (uint32_t k = 0; k < m->n_in; k++)
		if (g_idx[k] != (int32_t)(k / m->scale_width))
			return false;
	return true;
}

/* compressed-tensors leaves an index that it has not used at -1. */
static bool is_unused(const struct hf_matrix *m, const int32_t *g_idx)
{
	for (uint32_t k = 0; k < m->n_in; k++)
		if (g_idx[k] != -1)
			return false;
	return true;
}

static int read_order(const struct hf_parts *p, struct hf_matrix *m, struct sl_err *err)
{
	const struct st_tensor *t = hf_part(p, is_packed(m) ? ".weight_g_idx" : ".g_idx");
	if (t == NULL)
		return m->how->ordered && !is_packed(m) ? hf_wrong(p->path, p->q->name, "has no g_idx", err) : 0;
	if (t->n_dims != 1 || t->dims[0] != m->n_in || !hf_is_dtype(t, "I32"))
		return hf_wrong(p->path, p->q->name, "has a g_idx of another shape", err);
	const int32_t *g_idx = t->data;
	if (!m->how->ordered) {
		m->g_idx = g_idx; /* hf_form_ops.check looks at it: files have it without need */
		return 0;
	}
	if (in_order(m, g_idx) || (is_packed(m) && is_unused(m, g_idx)))
		return 0;
	for (uint32_t k = 0; k < m->n_in; k++)
		if (g_idx[k] < 0 || (uint32_t)g_idx[k] >= groups_of(m))
			return hf_wrong(p->path, p->q->name, "has a g_idx beyond its groups", err);
	m->g_idx = g_idx;
	return 0;
}

static int open_words(const struct hf_parts *p, struct hf_matrix *m, struct sl_err *err)
{
	int rc = read_integers(p, m, err);
	if (rc != 0 || (rc = read_scales(p, m, err)) != 0 || (rc = read_zeros(p, m, err)) != 0 ||
	    (rc = read_order(p, m, err)) != 0)
		return rc;
	if (!shape_agrees(is_packed(m) ? hf_part(p, ".weight_shape") : NULL, m))
		return hf_wrong(p->path, p->q->name, "has a weight_shape that is another", err);
	bool reordered = m->how->ordered && m->g_idx != NULL;
	m->type = m->how->bits == 8 || reordered ? KN_Q8_0
		  : !m->how->symmetric           ? KN_Q4_1
		  : m->scale_width % LARGE == 0  ? KN_INT4
						 : KN_Q4_0;
	return 0;
}

/* ---- numbers ---- */

static uint32_t field(const struct hf_matrix *m, const void *words, uint64_t at, uint32_t place)
{
	return ((const uint32_t *)words)[at] >> m->how->bits * place & (2 * middle(m) - 1);
}

static uint32_t integer_at(const struct hf_matrix *m, uint32_t out, uint32_t k)
{
	uint32_t each = in_word(m);
	switch (m->how->form) {
	case HF_GPTQ: return field(m, m->q, (uint64_t)(k / each) * m->file_rows + out, k % each);
	case HF_AWQ: return field(m, m->q, (uint64_t)k * (m->file_rows / each) + out / each, awq_place[out % each]);
	default: return field(m, m->q, (uint64_t)out * (m->n_in / each) + k / each, k % each);
	}
}

/* From 0 to twice the middle. */
static uint32_t zero_at(const struct hf_matrix *m, uint32_t out, uint32_t group)
{
	uint32_t groups = groups_of(m), each = in_word(m);
	if (m->zeros == NULL)
		return middle(m);
	if (is_packed(m))
		return field(m, m->zeros, (uint64_t)(out / each) * groups + group, out % each);
	uint32_t place = m->how->form == HF_AWQ ? awq_place[out % each] : out % each;
	return field(m, m->zeros, (uint64_t)group * (m->file_rows / each) + out / each, place) + m->how->zero_off;
}

/* Four bits of 32 weights from k on, in the order of all types here: nibble i is low for i < 16. */
static void put_integers(const struct hf_matrix *m, uint32_t out, uint32_t k, uint8_t *to)
{
	for (uint32_t i = 0; i < SMALL / 2; i++)
		to[i] = (uint8_t)(integer_at(m, out, k + i) | integer_at(m, out, k + SMALL / 2 + i) << 4);
}

static void nibble_row(void *ctx, uint64_t row, uint8_t *out)
{
	const struct hf_matrix *m = ctx;
	uint32_t at = (uint32_t)hf_file_row(m, row), block = m->type == KN_INT4 ? LARGE : SMALL;
	for (uint32_t k = 0; k < m->n_in; k += block) {
		float scale = hf_scale_at(m, at, k);
		hf_put_half(out, scale);
		out += 2;
		if (m->type == KN_Q4_1) {
			hf_put_half(out, -scale * (float)zero_at(m, at, k / m->scale_width));
			out += 2;
		}
		for (uint32_t i = 0; i < block; i += SMALL, out += SMALL / 2)
			put_integers(m, at, k + i, out);
	}
}

static void byte_row(void *ctx, uint64_t row, uint8_t *out)
{
	const struct hf_matrix *m = ctx;
	uint32_t at = (uint32_t)hf_file_row(m, row);
	for (uint32_t k = 0; k < m->n_in; k += SMALL) {
		hf_put_half(out, hf_scale_at(m, at, k));
		out += 2;
		for (uint32_t i = 0; i < SMALL; i++)
			*out++ = (uint8_t)(integer_at(m, at, k + i) - middle(m));
	}
}

static void float_row(void *ctx, uint64_t row, float *out)
{
	const struct hf_matrix *m = ctx;
	uint32_t at = (uint32_t)hf_file_row(m, row);
	for (uint32_t k = 0; k < m->n_in; k++) {
		uint32_t group = m->g_idx != NULL ? (uint32_t)m->g_idx[k] : k / m->scale_width;
		int zero = (int)zero_at(m, at, group);
		out[k] = (float)((int)integer_at(m, at, k) - zero) * hf_scale_at(m, at, k);
	}
}

/* The weights must agree with the configuration. */
static int check_words(const struct hf_matrix *m, const char *path, struct sl_err *err)
{
	if (m->g_idx != NULL && !m->how->ordered && !in_order(m, m->g_idx))
		return hf_wrong(path, m->name,
				"has a g_idx in another order, but the configuration says none (desc_act)", err);
	for (uint32_t out = 0; m->how->symmetric && m->zeros != NULL && out < m->n_out; out++)
		for (uint32_t g = 0; g < groups_of(m); g++)
			if (zero_at(m, (uint32_t)hf_file_row(m, out), g) != middle(m))
				return hf_wrong(path, m->name,
						"has a zero point other than the middle, but the configuration says "
						"symmetric",
						err);
	/* The minimum of Q4_1 is up to 16 scales. */
	return hf_check_scales(m, m->type == KN_Q4_1 ? 4094.0f : 65504.0f, path, err);
}

static struct hf_rows rows_of(const struct hf_matrix *m)
{
	if (m->type != KN_Q8_0)
		return (struct hf_rows){.raw = nibble_row};
	bool exact = m->how->symmetric && (m->g_idx == NULL || !m->how->ordered);
	if (exact)
		return (struct hf_rows){.raw = byte_row};
	return (struct hf_rows){.floats = float_row};
}

const struct hf_form_ops hf_words_ops = {.open = open_words, .check = check_words, .rows = rows_of};
