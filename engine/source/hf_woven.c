/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/source/hf_woven.h"

#include <stdio.h>
#include <string.h>

#include "engine/source/convert.h"
#include "kernels/kernels.h"

enum { MOST_SIDE = 1 << 24 };

struct weave {
	const char *family, *name; /* after "layers.N." or "h.N." */
	int n_parts;
	const char *parts[HF_WOVEN_MOST]; /* after "blk.N." */
	int (*view)(const struct hf_weave *how, const struct st_tensor *s, int k, struct hf_woven *out);
	enum { ANYWAY, WITH_EXPERTS, WITHOUT_EXPERTS } when;
};

/* ---- views: 0, or -1 for a tensor of another shape ---- */

static bool has_floats(const struct st_tensor *s, int n_dims)
{
	bool fits = s->n_dims == n_dims && s->type >= 0;
	for (int i = 0; i < s->n_dims; i++)
		fits = fits && s->dims[i] <= MOST_SIDE;
	return fits;
}

/* Rows [groups][queries, k, v][head_dim] of a matrix, or of a vector with a row's width of one. */
static int view_heads(const struct hf_weave *how, const struct st_tensor *s, int k, struct hf_woven *out)
{
	if (!has_floats(s, s->n_dims == 1 ? 1 : 2) || how->n_heads == 0 || how->n_kv_heads == 0 ||
	    how->n_heads % how->n_kv_heads != 0)
		return -1;
	uint64_t queries = how->n_heads / how->n_kv_heads, heads = (queries + 2) * how->n_kv_heads;
	uint64_t head_dim = s->dims[0] / heads, width = s->n_dims == 2 ? s->dims[1] : 1;
	if (head_dim * heads != s->dims[0])
		return -1;
	uint64_t before = k == 0 ? 0 : queries + (uint64_t)k - 1;
	*out = (struct hf_woven){.n = how->n_kv_heads,
				 .n_out = (k == 0 ? queries : 1) * head_dim,
				 .n_in = width,
				 .step = (queries + 2) * head_dim * width,
				 .row = width,
				 .column = 1,
				 .flat = true};
	if (s->n_dims == 1) { /* a row of each group */
		out->n_in = out->n_out;
		out->n_out = 1;
	}
	out->from = (const uint8_t *)s->data + before * head_dim * width * kn_type_block_bytes(s->type);
	return 0;
}

/* [n][in][2 · out], where the outputs of gate and up take turns. */
static int view_turns(const struct hf_weave *how, const struct st_tensor *s, int k, struct hf_woven *out)
{
	(void)how;
	if (!has_floats(s, 3) || s->dims[2] % 2 != 0)
		return -1;
	*out = (struct hf_woven){.from = (const uint8_t *)s->data + (size_t)k * kn_type_block_bytes(s->type),
				 .n = s->dims[0],
				 .n_out = s->dims[2] / 2,
				 .n_in = s->dims[1],
				 .step = s->dims[1] * s->dims[2],
				 .row = 2,
				 .column = s->dims[2]};
	return 0;
}

/* [n][in][gates, ups]. */
static int view_halves(const struct hf_weave *how, const struct st_tensor *s, int k, struct hf_woven *out)
{
	if (view_turns(how, s, 0, out) != 0)
		return -1;
	out->row = 1;
	out->from += (uint64_t)k * out->n_out * kn_type_block_bytes(s->type);
	return 0;
}

/* [n][in][out]. */
static int view_transposed(const struct hf_weave *how, const struct st_tensor *s, int k, struct hf_woven *out)
{
	(void)how;
	(void)k;
	if (!has_floats(s, 3))
		return -1;
	*out = (struct hf_woven){.from = s->data,
				 .n = s->dims[0],
				 .n_out = s->dims[2],
				 .n_in = s->dims[1],
				 .step = s->dims[1] * s->dims[2],
				 .row = 1,
				 .column = s->dims[2]};
	return 0;
}

/* [n][out][in]. */
static int view_plain(const struct hf_weave *how, const struct st_tensor *s, int k, struct hf_woven *out)
{
	(void)how;
	(void)k;
	if (!has_floats(s, 3))
		return -1;
	*out = (struct hf_woven){.from = s->data,
				 .n = s->dims[0],
				 .n_out = s->dims[1],
				 .n_in = s->dims[2],
				 .step = s->dims[1] * s->dims[2],
				 .row = s->dims[2],
				 .column = 1};
	return 0;
}

/* [n][gates, ups][in]. */
static int view_stacked(const struct hf_weave *how, const struct st_tensor *s, int k, struct hf_woven *out)
{
	if (view_plain(how, s, 0, out) != 0 || out->n_out % 2 != 0)
		return -1;
	out->n_out /= 2;
	out->from += (uint64_t)k * out->n_out * out->n_in * kn_type_block_bytes(s->type);
	return 0;
}

/* [gates, ups][in]. */
static int view_rows(const struct hf_weave *how, const struct st_tensor *s, int k, struct hf_woven *out)
{
	(void)how;
	if (!has_floats(s, 2) || s->dims[0] % 2 != 0)
		return -1;
	*out = (struct hf_woven){
	    .n = 1, .n_out = s->dims[0] / 2, .n_in = s->dims[1], .row = s->dims[1], .column = 1, .flat = true};
	out->from = (const uint8_t *)s->data + (uint64_t)k * out->n_out * out->n_in * kn_type_block_bytes(s->type);
	return 0;
}

/* A matrix as it is. */
static int view_whole(const struct hf_weave *how, const struct st_tensor *s, int k, struct hf_woven *out)
{
	(void)how;
	(void)k;
	if (!has_floats(s, 2))
		return -1;
	*out = (struct hf_woven){.from = s->data,
				 .n = 1,
				 .n_out = s->dims[0],
				 .n_in = s->dims[1],
				 .row = s->dims[1],
				 .column = 1,
				 .flat = true};
	return 0;
}

/* Rows [key heads][q, k, its value heads' v, their z]: all q, all k and all v, or all z. */
static int view_qkvz(const struct hf_weave *how, const struct st_tensor *s, int k, struct hf_woven *out)
{
	if (!has_floats(s, 2) || how->k_heads == 0 || how->v_heads % how->k_heads != 0)
		return -1;
	uint64_t keys = how->k_dim, values = how->v_heads / how->k_heads * how->v_dim, width = s->dims[1];
	if (s->dims[0] != how->k_heads * 2 * (keys + values) || keys == 0 || values == 0)
		return -1;
	size_t row = width * kn_type_block_bytes(s->type);
	const uint8_t *at = s->data;
	*out = (struct hf_woven){.from = at,
				 .n = how->k_heads,
				 .n_out = keys,
				 .n_in = width,
				 .step = 2 * (keys + values) * width,
				 .row = width,
				 .column = 1,
				 .flat = true};
	if (k == 1) {
		out->from = at + (2 * keys + values) * row;
		out->n_out = values;
		return 0;
	}
	out->below[0].from = at + keys * row;
	out->below[0].n_out = keys;
	out->below[1].from = at + 2 * keys * row;
	out->below[1].n_out = values;
	return 0;
}

/* A bias of each expert: [n][2 · out]. */
static int view_bias(const struct hf_weave *how, const struct st_tensor *s, int k, struct hf_woven *out)
{
	(void)how;
	if (!has_floats(s, 2) || s->dims[1] % 2 != 0)
		return -1;
	*out = (struct hf_woven){.from = (const uint8_t *)s->data + (size_t)k * kn_type_block_bytes(s->type),
				 .n = 1,
				 .n_out = s->dims[0],
				 .n_in = s->dims[1] / 2,
				 .row = s->dims[1],
				 .column = 2,
				 .flat = true};
	return 0;
}

/* ---- names ---- */

#define QKV(suffix) 3, {"attn_q." suffix, "attn_k." suffix, "attn_v." suffix}, view_heads
#define GATE_UP \
	2, { "ffn_gate_exps.weight", "ffn_up_exps.weight" }
#define DOWN \
	1, { "ffn_down_exps.weight" }

static const struct weave weaves[] = {
    {"gptneox", "attention.query_key_value.weight", QKV("weight"), ANYWAY},
    {"gptneox", "attention.query_key_value.bias", QKV("bias"), ANYWAY},
    {"falcon", "self_attention.query_key_value.weight", QKV("weight"), ANYWAY},
    {"gpt-oss", "mlp.experts.gate_up_proj", GATE_UP, view_turns, ANYWAY},
    {"gpt-oss", "mlp.experts.down_proj", DOWN, view_transposed, ANYWAY},
    {"gpt-oss", "mlp.experts.gate_up_proj_bias", 2, {"ffn_gate_exps.bias", "ffn_up_exps.bias"}, view_bias, ANYWAY},
    {"qwen35moe", "mlp.experts.gate_up_proj", GATE_UP, view_stacked, ANYWAY},
    {"qwen35moe", "mlp.experts.down_proj", DOWN, view_plain, ANYWAY},
    {"qwen3next", "linear_attn.in_proj_qkvz.weight", 2, {"attn_qkv.weight", "attn_gate.weight"}, view_qkvz, ANYWAY},
    {"granitehybrid", "block_sparse_moe.input_linear.weight", GATE_UP, view_stacked, ANYWAY},
    {"granitehybrid", "block_sparse_moe.output_linear.weight", DOWN, view_plain, ANYWAY},
    {"granitehybrid",
     "shared_mlp.input_linear.weight",
     2,
     {"ffn_gate_shexp.weight", "ffn_up_shexp.weight"},
     view_rows,
     WITH_EXPERTS},
    {"granitehybrid",
     "shared_mlp.input_linear.weight",
     2,
     {"ffn_gate.weight", "ffn_up.weight"},
     view_rows,
     WITHOUT_EXPERTS},
    {"granitehybrid", "shared_mlp.output_linear.weight", 1, {"ffn_down_shexp.weight"}, view_whole, WITH_EXPERTS},
    {"granitehybrid", "shared_mlp.output_linear.weight", 1, {"ffn_down.weight"}, view_whole, WITHOUT_EXPERTS},
    {"nemotron_h", "mixer.experts.up_proj", 1, {"ffn_up_exps.weight"}, view_plain, ANYWAY},
    {"nemotron_h", "mixer.experts.down_proj", DOWN, view_plain, ANYWAY},
    {"llama4", "feed_forward.experts.gate_up_proj", GATE_UP, view_halves, ANYWAY},
    {"llama4", "feed_forward.experts.down_proj", DOWN, view_transposed, ANYWAY},
};

/* What follows the layer's number, and that number's digits; NULL: there is none. */
static const char *in_layer(const char *name, int *layer, int *digits)
{
	for (const char *at = name; (at = strpbrk(at, "0123456789")) != NULL; at += strspn(at, "0123456789")) {
		size_t n = strspn(at, "0123456789");
		if (n > 4 || at[n] != '.' || at == name || at[-1] != '.')
			continue;
		*layer = (int)(at - name);
		*digits = (int)n;
		return at + n + 1;
	}
	return NULL;
}

static const struct weave *weave_of(const struct hf_weave *how, const char *rest)
{
	for (size_t i = 0; rest != NULL && i < sizeof weaves / sizeof *weaves; i++)
		if (strcmp(weaves[i].family, how->family) == 0 && strcmp(weaves[i].name, rest) == 0 &&
		    (weaves[i].when == ANYWAY || (weaves[i].when == WITH_EXPERTS) == how->experts))
			return &weaves[i];
	return NULL;
}

int hf_woven_parts(const struct hf_weave *how, const char *name)
{
	int layer, digits;
	const struct weave *w = weave_of(how, in_layer(name, &layer, &digits));
	return w != NULL ? w->n_parts : 0;
}

void hf_woven_name(const struct hf_weave *how, const char *name, int k, char *out, size_t out_bytes)
{
	int layer = 0, digits = 0;
	const struct weave *w = weave_of(how, in_layer(name, &layer, &digits));
	snprintf(out, out_bytes, "blk.%.*s.%s", digits, name + layer, w != NULL ? w->parts[k] : "");
}

int hf_woven_part(const struct hf_weave *how, const struct st_tensor *s, int k, const char *path, struct hf_woven *out,
		  struct sl_err *err)
{
	int layer, digits;
	const struct weave *w = weave_of(how, in_layer(s->name, &layer, &digits));
	if (w == NULL || w->view(how, s, k, out) != 0)
		return sl_errf(err, SL_EINVAL, "%s: tensor %.200s has a shape or dtype that does not fit its model",
			       path, s->name);
	out->type = s->type;
	return 0;
}

/* ---- numbers ---- */

static void make_row(void *ctx, uint64_t row, uint8_t *out)
{
	const struct hf_woven *w = ctx;
	const uint8_t *from = w->from;
	uint64_t n_out = w->n_out;
	for (int i = 0; row >= w->n * n_out; i++) {
		row -= w->n * n_out;
		from = w->below[i].from;
		n_out = w->below[i].n_out;
	}
	uint64_t at = row / n_out * w->step + row % n_out * w->row;
	size_t bytes = kn_type_block_bytes(w->type);
	if (w->column == 1) {
		memcpy(out, from + at * bytes, w->n_in * bytes);
		return;
	}
	for (uint64_t i = 0; i < w->n_in; i++)
		memcpy(out + i * bytes, from + (at + i * w->column) * bytes, bytes);
}

int hf_woven_make(const void *of, const char *path, int n_threads, void *out, struct sl_err *err)
{
	struct hf_woven copy = *(const struct hf_woven *)of;
	struct convert c = {
	    .raw_row = make_row, .ctx = &copy, .type = copy.type, .width = (size_t)copy.n_in, .n_threads = n_threads};
	int rc = convert_rows(&c, 0, hf_woven_rows(&copy), out);
	return rc == 0 ? 0 : sl_errf(err, rc, "%s: %s", path, sl_code_name(rc));
}
