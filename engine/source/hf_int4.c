/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/source/hf_int4.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/source/convert.h"
#include "kernels/kernels.h"
#include "kernels/quantize.h"

enum { IN_WORD = 8, SMALL = 32, LARGE = 128, MOST_SIDE = 1 << 24 };

/* The nibble, in AWQ's words, of output k of eight. */
static const uint32_t awq_place[IN_WORD] = {0, 4, 1, 5, 2, 6, 3, 7};

/* ---- the configuration ---- */

static int unsupported(const char *path, const char *what, struct sl_err *err)
{
	return sl_errf(err, SL_EUNSUPPORTED,
		       "%s/config.json: quantization_config: %s is not supported: take the model's F32, F16 or BF16 "
		       "folder, or a GGUF file",
		       path, what);
}

static bool is_text(const json_t *j, const char *key, const char *text)
{
	const char *is = json_string_value(json_object_get(j, key));
	return is != NULL && strcmp(is, text) == 0;
}

/* Absent, null or false. */
static bool is_off(const json_t *j, const char *key)
{
	const json_t *v = json_object_get(j, key);
	return v == NULL || json_is_null(v) || json_is_false(v);
}

/* group_size: -1 is a row. */
static int read_group(const json_t *j, const char *path, struct hf_int4 *out, struct sl_err *err)
{
	const json_t *v = json_object_get(j, "group_size");
	json_int_t n = json_is_integer(v) ? json_integer_value(v) : -2;
	if (n != -1 && (n < SMALL || n > MOST_SIDE || n % SMALL != 0))
		return unsupported(path, "a group_size that is not -1 or a multiple of 32", err);
	out->group = n == -1 ? 0 : (uint32_t)n;
	return 0;
}

static int read_gptq(const json_t *j, const char *path, struct hf_int4 *out, struct sl_err *err)
{
	const json_t *dynamic = json_object_get(j, "dynamic");
	out->form = HF_INT4_GPTQ;
	if (json_integer_value(json_object_get(j, "bits")) != 4)
		return unsupported(path, "gptq with bits other than 4", err);
	if (!is_off(j, "desc_act"))
		return unsupported(path, "desc_act (weights in another order)", err);
	if (json_is_object(dynamic) && json_object_size(dynamic) > 0)
		return unsupported(path, "dynamic (modules of different kinds)", err);
	if (!is_off(j, "is_marlin_format") || is_text(j, "checkpoint_format", "marlin"))
		return unsupported(path, "the marlin format", err);
	out->symmetric = !json_is_false(json_object_get(j, "sym"));
	out->zero_off = is_text(j, "checkpoint_format", "gptq_v2") ? 0 : 1;
	return read_group(j, path, out, err);
}

static int read_awq(const json_t *j, const char *path, struct hf_int4 *out, struct sl_err *err)
{
	const char *bits = json_object_get(j, "bits") != NULL ? "bits" : "w_bit";
	out->form = HF_INT4_AWQ;
	if (json_integer_value(json_object_get(j, bits)) != 4)
		return unsupported(path, "awq with bits other than 4", err);
	const char *version = json_string_value(json_object_get(j, "version"));
	if (version != NULL && strcmp(version, "gemm") != 0 && strcmp(version, "GEMM") != 0)
		return unsupported(path, "awq of a version other than gemm", err);
	out->symmetric = json_is_false(json_object_get(j, "zero_point"));
	return read_group(j, path, out, err);
}

static int read_packed(const json_t *j, const char *path, struct hf_int4 *out, struct sl_err *err)
{
	const json_t *groups = json_object_get(j, "config_groups"), *sparsity = json_object_get(j, "sparsity_config");
	out->form = HF_INT4_PACKED;
	if (!is_text(j, "format", "pack-quantized"))
		return unsupported(path, "compressed-tensors of a format other than pack-quantized", err);
	if (!json_is_object(groups) || json_object_size(groups) != 1)
		return unsupported(path, "config_groups with other than one group", err);
	if (!is_off(j, "kv_cache_scheme"))
		return unsupported(path, "kv_cache_scheme", err);
	if (json_is_object(sparsity) && json_object_size(sparsity) > 0 && !is_text(sparsity, "format", "dense"))
		return unsupported(path, "sparsity_config", err);
	const json_t *one = json_object_iter_value(json_object_iter((json_t *)(uintptr_t)groups)),
		     *w = json_object_get(one, "weights");
	if (!is_off(one, "input_activations") || !is_off(one, "output_activations"))
		return unsupported(path, "compressed-tensors with quantized activations", err);
	if (json_integer_value(json_object_get(w, "num_bits")) != 4 || !is_text(w, "type", "int"))
		return unsupported(path, "compressed-tensors with weights other than int of 4 bits", err);
	if (!is_off(w, "actorder"))
		return unsupported(path, "actorder (weights in another order)", err);
	out->symmetric = !json_is_false(json_object_get(w, "symmetric"));
	if (is_text(w, "strategy", "channel"))
		return 0;
	if (!is_text(w, "strategy", "group"))
		return unsupported(path, "a strategy other than group and channel", err);
	return read_group(w, path, out, err);
}

int hf_int4_config(const json_t *config, const char *path, struct hf_int4 *out, struct sl_err *err)
{
	static const struct {
		const char *method;
		int (*read)(const json_t *j, const char *path, struct hf_int4 *out, struct sl_err *err);
	} methods[] = {{"gptq", read_gptq}, {"awq", read_awq}, {"compressed-tensors", read_packed}};
	*out = (struct hf_int4){.form = HF_INT4_NONE};
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
		if (is_text(config, "quant_method", methods[i].method))
			return methods[i].read(config, path, out, err);
	char what[64];
	const char *name = json_string_value(json_object_get(config, "quant_method"));
	snprintf(what, sizeof what, "quant_method \"%.30s\"", name != NULL ? name : "unknown");
	return unsupported(path, what, err);
}

/* ---- tensors ---- */

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), m = strlen(with);
	return n > m && strcmp(s + n - m, with) == 0;
}

static const char *integers_of(const struct hf_int4 *how)
{
	return how->form == HF_INT4_PACKED ? ".weight_packed" : ".qweight";
}

bool hf_int4_names(const struct hf_int4 *how, const char *name, char *out, size_t out_bytes, bool *belongs)
{
	static const char *const others[2][4] = {
	    {".qzeros", ".scales", ".g_idx", ".scales"},
	    {".weight_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx"}};
	const char *suffix = integers_of(how);
	*belongs = false;
	for (size_t i = 0; i < 4; i++)
		*belongs = *belongs || ends(name, others[how->form == HF_INT4_PACKED][i]);
	if (!ends(name, suffix))
		return false;
	snprintf(out, out_bytes, "%.*s.weight", (int)(strlen(name) - strlen(suffix)), name);
	return true;
}

static int wrong(const char *path, const char *name, const char *what, struct sl_err *err)
{
	return sl_errf(err, SL_EINVAL, "%s: tensor %.200s %s", path, name, what);
}

static bool has_shape(const struct st_tensor *t, const char *dtype, uint64_t rows, uint64_t width)
{
	return t->n_dims == 2 && t->dims[0] == rows && t->dims[1] == width &&
	       (dtype == NULL || strcmp(t->dtype, dtype) == 0);
}

/* The tensor of that name next to q. */
static const struct st_tensor *companion(const struct hf_int4 *how, const struct st_tensor *q, const char *suffix,
					 const struct st_tensor *(*find)(const void *ctx, const char *name),
					 const void *ctx)
{
	char name[ST_MAX_NAME + 32];
	snprintf(name, sizeof name, "%.*s%s", (int)(strlen(q->name) - strlen(integers_of(how))), q->name, suffix);
	return find(ctx, name);
}

/* weight_shape, which repeats what other tensors imply. */
static bool shape_agrees(const struct st_tensor *t, const struct hf_int4_matrix *m)
{
	int64_t side[2];
	if (t == NULL)
		return true;
	if (t->n_dims != 1 || t->dims[0] != 2 || strcmp(t->dtype, "I64") != 0)
		return false;
	memcpy(side, t->data, sizeof side);
	return side[0] == (int64_t)m->n_out && side[1] == (int64_t)m->n_in;
}

int hf_int4_matrix(const struct hf_int4 *how, const struct st_tensor *q,
		   const struct st_tensor *(*find)(const void *ctx, const char *name), const void *ctx,
		   const char *path, struct hf_int4_matrix *out, struct sl_err *err)
{
	bool packed = how->form == HF_INT4_PACKED, gptq = how->form == HF_INT4_GPTQ;
	const struct st_tensor *scales = companion(how, q, packed ? ".weight_scale" : ".scales", find, ctx);
	const struct st_tensor *zeros = companion(how, q, packed ? ".weight_zero_point" : ".qzeros", find, ctx);
	const struct st_tensor *order = companion(how, q, packed ? ".weight_g_idx" : ".g_idx", find, ctx);
	if (q->n_dims != 2 || strcmp(q->dtype, "I32") != 0 || q->dims[0] > MOST_SIDE || q->dims[1] > MOST_SIDE)
		return wrong(path, q->name, "is no matrix of I32", err);
	uint64_t n_out = packed ? q->dims[0] : gptq ? q->dims[1] : q->dims[1] * IN_WORD;
	uint64_t n_in = packed ? q->dims[1] * IN_WORD : gptq ? q->dims[0] * IN_WORD : q->dims[0];
	uint64_t group = how->group > 0 ? how->group : n_in;
	*out = (struct hf_int4_matrix){.how = how,
				       .name = q->name,
				       .q = q->data,
				       .n_out = (uint32_t)n_out,
				       .n_in = (uint32_t)n_in,
				       .group = (uint32_t)group};
	if (n_in > MOST_SIDE || n_out > MOST_SIDE || n_in % group != 0 || group % SMALL != 0)
		return wrong(path, q->name, "has a width that is no multiple of the group size", err);
	uint64_t groups = n_in / group;
	if (scales == NULL || scales->type < 0 ||
	    !has_shape(scales, NULL, packed ? n_out : groups, packed ? groups : n_out))
		return wrong(path, q->name, "has no scales of its shape", err);
	if (zeros != NULL && (n_out % IN_WORD != 0 || !has_shape(zeros, "I32", packed ? n_out / IN_WORD : groups,
								 packed ? groups : n_out / IN_WORD)))
		return wrong(path, q->name, "has zero points of another shape", err);
	if (zeros == NULL && !how->symmetric)
		return wrong(path, q->name, "has no zero points", err);
	if (order != NULL && (order->n_dims != 1 || order->dims[0] != n_in || strcmp(order->dtype, "I32") != 0))
		return wrong(path, q->name, "has a g_idx of another shape", err);
	if (!shape_agrees(packed ? companion(how, q, ".weight_shape", find, ctx) : NULL, out))
		return wrong(path, q->name, "has a weight_shape that is another", err);
	out->scales = scales->data;
	out->scale_type = scales->type;
	out->zeros = zeros != NULL ? zeros->data : NULL;
	out->g_idx = order != NULL ? order->data : NULL;
	return 0;
}

/* ---- numbers ---- */

int hf_int4_type(const struct hf_int4_matrix *m)
{
	return !m->how->symmetric ? KN_Q4_1 : m->group % LARGE == 0 ? KN_INT4 : KN_Q4_0;
}

static uint32_t nibble(const uint32_t *words, uint64_t at, uint32_t place) { return words[at] >> 4 * place & 15; }

static uint32_t integer_at(const struct hf_int4_matrix *m, uint32_t out, uint32_t k)
{
	switch (m->how->form) {
	case HF_INT4_GPTQ: return nibble(m->q, (uint64_t)(k / IN_WORD) * m->n_out + out, k % IN_WORD);
	case HF_INT4_AWQ:
		return nibble(m->q, (uint64_t)k * (m->n_out / IN_WORD) + out / IN_WORD, awq_place[out % IN_WORD]);
	default: return nibble(m->q, (uint64_t)out * (m->n_in / IN_WORD) + k / IN_WORD, k % IN_WORD);
	}
}

/* From 0 to 16. */
static uint32_t zero_at(const struct hf_int4_matrix *m, uint32_t out, uint32_t group)
{
	uint32_t groups = m->n_in / m->group;
	if (m->zeros == NULL)
		return 8;
	if (m->how->form == HF_INT4_PACKED)
		return nibble(m->zeros, (uint64_t)(out / IN_WORD) * groups + group, out % IN_WORD);
	uint32_t place = m->how->form == HF_INT4_AWQ ? awq_place[out % IN_WORD] : out % IN_WORD;
	return nibble(m->zeros, (uint64_t)group * (m->n_out / IN_WORD) + out / IN_WORD, place) + m->how->zero_off;
}

static float scale_at(const struct hf_int4_matrix *m, uint32_t out, uint32_t group)
{
	uint64_t at = m->how->form == HF_INT4_PACKED ? (uint64_t)out * (m->n_in / m->group) + group
						     : (uint64_t)group * m->n_out + out;
	float f;
	size_t bytes = kn_type_block_bytes(m->scale_type);
	kn_dequantize(m->scale_type, (const uint8_t *)m->scales + at * bytes, 1, &f);
	return f;
}

/* check() has verified that it fits. */
static void put_half(uint8_t *to, float f) { (void)kn_quantize_row(KN_F16, &f, 1, to); }

/* 32 integers from k on, in the order of all types here: nibble i is low for i < 16. */
static void put_integers(const struct hf_int4_matrix *m, uint32_t out, uint32_t k, uint8_t *to)
{
	for (uint32_t i = 0; i < SMALL / 2; i++)
		to[i] = (uint8_t)(integer_at(m, out, k + i) | integer_at(m, out, k + SMALL / 2 + i) << 4);
}

static void make_row(void *ctx, uint64_t row, uint8_t *out)
{
	const struct hf_int4_matrix *m = ctx;
	uint32_t at = (uint32_t)row;
	int type = hf_int4_type(m);
	uint32_t block = type == KN_INT4 ? LARGE : SMALL;
	for (uint32_t k = 0; k < m->n_in; k += block) {
		float scale = scale_at(m, at, k / m->group);
		put_half(out, scale);
		out += 2;
		if (type == KN_Q4_1) {
			put_half(out, -scale * (float)zero_at(m, at, k / m->group));
			out += 2;
		}
		for (uint32_t i = 0; i < block; i += SMALL, out += SMALL / 2)
			put_integers(m, at, k + i, out);
	}
}

/* The weights must agree with the configuration. */
static int check(const struct hf_int4_matrix *m, const char *path, struct sl_err *err)
{
	for (uint32_t k = 0; m->g_idx != NULL && k < m->n_in; k++)
		if (m->g_idx[k] != (int32_t)(k / m->group))
			return sl_errf(err, SL_EUNSUPPORTED,
				       "%s: tensor %.200s: its weights are in another order (desc_act), which is not "
				       "supported",
				       path, m->name);
	for (uint32_t out = 0; out < m->n_out; out++)
		for (uint32_t g = 0; g < m->n_in / m->group; g++) {
			float most = fabsf(scale_at(m, out, g)) * (m->how->symmetric ? 1.0f : 16.0f);
			if (!(most < 65504.0f))
				return wrong(path, m->name, "has a scale that is no number or too large", err);
			if (m->how->symmetric && zero_at(m, out, g) != 8)
				return wrong(path, m->name,
					     "has a zero point other than 8, but the configuration says symmetric",
					     err);
		}
	return 0;
}

int hf_int4_make(const void *of, const char *path, int n_threads, void *out, struct sl_err *err)
{
	const struct hf_int4_matrix *m = of;
	struct hf_int4_matrix copy = *m;
	struct convert c = {
	    .raw_row = make_row, .ctx = &copy, .type = hf_int4_type(m), .width = m->n_in, .n_threads = n_threads};
	int rc = check(m, path, err);
	if (rc != 0)
		return rc;
	rc = convert_rows(&c, 0, m->n_out, out);
	return rc == 0 ? 0 : sl_errf(err, rc, "%s: tensor %.200s: %s", path, m->name, sl_code_name(rc));
}
