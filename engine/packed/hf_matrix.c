/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/packed/hf_matrix.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/packed/hf_form.h"
#include "kernels/half.h"
#include "kernels/kv_type.h"
#include "kernels/quantize.h"

/* ---- names ---- */

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), m = strlen(with);
	return n > m && strcmp(s + n - m, with) == 0;
}

static bool ends_in(const char *s, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (ends(s, list[i]))
			return true;
	return false;
}

static const char *const components[] = {".qzeros",
					 ".scales",
					 ".g_idx",
					 ".weight_scale",
					 ".weight_scale_inv",
					 ".weight_scale_2",
					 ".weight_global_scale",
					 ".weight_zero_point",
					 ".weight_shape",
					 ".weight_g_idx",
					 "_scales"};

static const char *const ignored[] = {".input_scale",  ".input_zero_point",  ".input_global_scale", ".input_scale_ub",
				      ".output_scale", ".output_zero_point", ".activation_scale",   ".k_scale",
				      ".v_scale",      ".q_scale",           ".prob_scale",         ".k_zero_point",
				      ".v_zero_point"};

/* The suffixes of main tensors. */
static const char *const mains[] = {".qweight", ".weight_packed", "_blocks", ".weight"};
enum { N_MAINS = sizeof mains / sizeof *mains };

static bool is_bytes(const struct st_tensor *t)
{
	return hf_is_dtype(t, "F8_E4M3") || hf_is_dtype(t, "F8_E5M2") || hf_is_dtype(t, "I8") || hf_is_dtype(t, "U8");
}

/* The suffix of a main tensor's name; NULL: of none. */
static const char *main_suffix(const struct st_tensor *t)
{
	for (size_t i = 0; i < N_MAINS; i++)
		if (ends(t->name, mains[i]) && (i < 2 || is_bytes(t)))
			return mains[i];
	return NULL;
}

enum hf_role hf_matrix_role(const struct st_tensor *t, char *out, size_t out_bytes)
{
	const char *suffix = main_suffix(t);
	if (suffix != NULL) {
		snprintf(out, out_bytes, "%.*s.weight", (int)(strlen(t->name) - strlen(suffix)), t->name);
		return HF_MAIN;
	}
	if (ends_in(t->name, components, sizeof components / sizeof *components))
		return HF_COMPONENT;
	return ends_in(t->name, ignored, sizeof ignored / sizeof *ignored) ? HF_IGNORED : HF_WHOLE;
}

void hf_matrix_module(const struct st_tensor *main, char *out, size_t out_bytes)
{
	const char *suffix = main_suffix(main);
	size_t n = strlen(main->name) - (suffix != NULL ? strlen(suffix) : 0);
	snprintf(out, out_bytes, "%.*s", (int)n, main->name);
}

bool hf_matrix_has_main(const struct st_tensor *component, hf_find *find, const void *ctx)
{
	char name[ST_MAX_NAME + 32];
	for (size_t i = 0; i < sizeof components / sizeof *components; i++) {
		if (!ends(component->name, components[i]))
			continue;
		int n = (int)(strlen(component->name) - strlen(components[i]));
		for (size_t k = 0; k < N_MAINS; k++) {
			snprintf(name, sizeof name, "%.*s%s", n, component->name, mains[k]);
			const struct st_tensor *t = find(ctx, name);
			if (t != NULL && main_suffix(t) != NULL)
				return true;
		}
	}
	return false;
}

/* ---- what forms share ---- */

int hf_wrong(const char *path, const char *name, const char *what, struct sl_err *err)
{
	return sl_errf(err, SL_EINVAL, "%s: tensor %.200s %s", path, name, what);
}

bool hf_is_dtype(const struct st_tensor *t, const char *dtype) { return strcmp(t->dtype, dtype) == 0; }

bool hf_has_shape(const struct st_tensor *t, uint64_t rows, uint64_t width)
{
	return t->n_dims == 2 && t->dims[0] == rows && t->dims[1] == width;
}

bool hf_is_one(const struct st_tensor *t)
{
	for (int d = 0; d < t->n_dims; d++)
		if (t->dims[d] != 1)
			return false;
	return true;
}

const struct st_tensor *hf_part(const struct hf_parts *p, const char *suffix)
{
	char name[ST_MAX_NAME + 32];
	snprintf(name, sizeof name, "%s%s", p->module, suffix);
	return p->find(p->ctx, name);
}

static float f32_at(const void *at, uint64_t i) { return ((const float *)at)[i]; }
static float f16_at(const void *at, uint64_t i) { return kn_f32_from_f16(((const uint16_t *)at)[i]); }
static float bf16_at(const void *at, uint64_t i) { return kn_f32_from_bf16(((const uint16_t *)at)[i]); }
static float fp8_at(const void *at, uint64_t i) { return kn_f32_from_fp8(((const uint8_t *)at)[i]); }

float hf_e8m0_at(const void *at, uint64_t i)
{
	uint8_t e = ((const uint8_t *)at)[i];
	return e == 255 ? NAN : ldexpf(1, e - 127);
}

float (*hf_scale_reader(const struct st_tensor *t))(const void *at, uint64_t i)
{
	static const struct {
		const char *dtype;
		float (*at)(const void *at, uint64_t i);
	} readers[] = {
	    {"F32", f32_at}, {"F16", f16_at}, {"BF16", bf16_at}, {"F8_E4M3", fp8_at}, {"F8_E8M0", hf_e8m0_at}};
	for (size_t i = 0; t != NULL && i < sizeof readers / sizeof *readers; i++)
		if (hf_is_dtype(t, readers[i].dtype))
			return readers[i].at;
	return NULL;
}

void hf_put_half(uint8_t *to, float v) { (void)kn_quantize_row(KN_F16, &v, 1, to); }

int hf_check_scales(const struct hf_matrix *m, float most, const char *path, struct sl_err *err)
{
	uint64_t rows = ((uint64_t)m->n * m->file_rows + m->scale_rows - 1) / m->scale_rows;
	uint64_t groups = ((uint64_t)m->n_in + m->scale_width - 1) / m->scale_width;
	for (uint64_t r = 0; r < rows; r++)
		for (uint64_t g = 0; g < groups; g++) {
			float s = m->scale(m->scales, r * m->scale_down + g * m->scale_along) * m->global;
			if (!(fabsf(s) < most))
				return hf_wrong(path, m->name, "has a scale that is no number or too large", err);
		}
	return 0;
}

/* ---- matrices ---- */

static bool fits_form(const struct st_tensor *q, enum hf_form form)
{
	switch (form) {
	case HF_GPTQ:
	case HF_AWQ: return ends(q->name, ".qweight");
	case HF_PACKED: return ends(q->name, ".weight_packed");
	case HF_INT8:
	case HF_FP8: return ends(q->name, ".weight");
	case HF_NVFP4: return ends(q->name, ".weight_packed") || ends(q->name, ".weight");
	case HF_MXFP4: return ends(q->name, ".weight_packed") || ends(q->name, "_blocks");
	}
	return false;
}

static const struct hf_form_ops *ops_of(enum hf_form form)
{
	switch (form) {
	case HF_GPTQ:
	case HF_AWQ:
	case HF_PACKED: return &hf_words_ops;
	case HF_INT8:
	case HF_FP8: return &hf_bytes_ops;
	case HF_NVFP4:
	case HF_MXFP4: break;
	}
	return &hf_fp4_ops;
}

int hf_matrix_open(const struct hf_quant *how, const struct st_tensor *q, hf_find *find, const void *ctx,
		   const char *path, struct hf_matrix *out, struct sl_err *err)
{
	struct hf_parts p = {.q = q, .find = find, .ctx = ctx, .path = path};
	struct sl_err why = {0};
	const struct hf_scheme *scheme = NULL;
	hf_matrix_module(q, p.module, sizeof p.module);
	int rc = hf_quant_of(how, p.module, &scheme, &why);
	if (rc != 0)
		return sl_errf(err, rc, "%s: %s", path, why.text);
	if (!fits_form(q, scheme->form))
		return hf_wrong(path, q->name, "is of another form than quantization_config says", err);
	*out = (struct hf_matrix){.how = scheme,
				  .ops = ops_of(scheme->form),
				  .name = q->name,
				  .type = -1,
				  .n = 1,
				  .step = 1,
				  .q = q->data,
				  .scale_rows = 1,
				  .global = 1};
	return out->ops->open(&p, out, err);
}

void hf_matrix_halve(struct hf_matrix *m, bool second)
{
	m->n_out /= 2;
	m->first = second;
	m->step = 2;
}

void hf_matrix_trim(struct hf_matrix *m, uint32_t n) { m->n_out = n < m->n_out ? n : m->n_out; }

int hf_matrix_check(const struct hf_matrix *m, const char *path, struct sl_err *err)
{
	return m->ops->check(m, path, err);
}

struct hf_rows hf_matrix_rows(const struct hf_matrix *m) { return m->ops->rows(m); }

int hf_matrix_bits(const struct hf_matrix *m)
{
	switch (m->how->form) {
	case HF_INT8:
	case HF_FP8: return 8;
	case HF_NVFP4:
	case HF_MXFP4: return 4;
	default: return (int)m->how->bits;
	}
}
