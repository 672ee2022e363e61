/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/packed/hf_quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/text.h"
#include "engine/packed/hf_targets.h"

enum { MOST_GROUPS = 32, SMALL = 32 };

struct group {
	struct hf_scheme scheme;
	struct hf_targets *targets; /* NULL: every module */
	const char *algo;           /* of quantized_layers, instead of targets; NULL: not so */
};

struct hf_quant {
	json_t *config;       /* what is read; a reference */
	const char *file;     /* until hf_quant_read returns */
	char where[64];       /* likewise: ".config_groups.NAME" while that is read, for messages */
	const json_t *layers; /* ModelOpt's quantized_layers; NULL: none */
	const char *excludes; /* the key of `excluded`, for messages */
	struct hf_targets *excluded;
	struct group groups[MOST_GROUPS];
	int n_groups;
	char note[256];
};

/* ---- reading keys ---- */

static int unsupported(const struct hf_quant *q, const char *what, struct sl_err *err)
{
	return sl_errf(err, SL_EUNSUPPORTED,
		       "%s: quantization_config%s: %s is not supported: take the model's F32, F16 or BF16 "
		       "folder, or a GGUF file",
		       q->file, q->where, what);
}

/* Messages name that entry of an object; NULL: none. */
static void enter(struct hf_quant *q, const char *object, const char *name)
{
	q->where[0] = '\0';
	if (name == NULL)
		return;
	snprintf(q->where, sizeof q->where, ".%s.%.40s", object, name);
	text_one_line(q->where, '?');
}

static const json_t *get(const json_t *j, const char *key)
{
	const json_t *v = json_object_get(j, key);
	return json_is_null(v) ? NULL : v;
}

static bool is_text(const json_t *j, const char *key, const char *text)
{
	const char *is = json_string_value(json_object_get(j, key));
	return is != NULL && strcasecmp(is, text) == 0;
}

/* Absent, null or false. */
static bool is_off(const json_t *j, const char *key)
{
	const json_t *v = get(j, key);
	return v == NULL || json_is_false(v);
}

static json_int_t number(const json_t *j, const char *key) { return json_integer_value(json_object_get(j, key)); }

/* A group_size: -1 is a row. */
static int read_group(const struct hf_quant *q, const json_t *v, struct hf_scheme *s, struct sl_err *err)
{
	json_int_t n = json_is_integer(v) ? json_integer_value(v) : -2;
	if (n != -1 && (n < SMALL || n > HF_MOST_SIDE || n % SMALL != 0))
		return unsupported(q, "a group_size that is not -1 or a multiple of 32", err);
	s->group = n == -1 ? 0 : (uint32_t)n;
	s->scales = HF_PER_GROUP;
	return 0;
}

static void note(struct hf_quant *q, const char *what)
{
	size_t n = strlen(q->note);
	if (strstr(q->note, what) == NULL)
		snprintf(q->note + n, sizeof q->note - n, "%s%s", n > 0 ? "; " : "", what);
}

static int exclude(struct hf_quant *q, const json_t *j, const char *key, struct sl_err *err)
{
	char what[160];
	snprintf(what, sizeof what, "%.80s: quantization_config.%s", q->file, key);
	q->excludes = key;
	return hf_targets_read(get(j, key), what, &q->excluded, err);
}

static int add_group(struct hf_quant *q, struct group **out, struct sl_err *err)
{
	if (q->n_groups == MOST_GROUPS)
		return sl_errf(err, SL_ELIMIT, "%s: quantization_config%s: more than %d groups", q->file, q->where,
			       MOST_GROUPS);
	*out = &q->groups[q->n_groups++];
	return 0;
}

/* ---- GPTQ and AWQ ---- */

/* Keys "-:PATTERN" exclude modules, which the tensors say as well; others have settings of their own. */
static bool only_excludes(const json_t *dynamic)
{
	const char *key;
	json_t *value;
	if (dynamic != NULL && !json_is_object(dynamic))
		return false;
	json_object_foreach((json_t *)(uintptr_t)dynamic, key, value)
	{
		if (strncmp(key, "-:", 2) != 0)
			return false;
	}
	return true;
}

static int read_gptq(struct hf_quant *q, const json_t *j, struct hf_scheme *s, struct sl_err *err)
{
	json_int_t bits = number(j, "bits");
	s->form = HF_GPTQ;
	if (bits != 4 && bits != 8)
		return unsupported(q, "gptq with bits other than 4 and 8", err);
	if (!only_excludes(get(j, "dynamic")))
		return unsupported(q, "dynamic (modules of different kinds)", err);
	if (!is_off(j, "is_marlin_format") || is_text(j, "checkpoint_format", "marlin"))
		return unsupported(q, "the marlin format (checkpoint_format, is_marlin_format)", err);
	s->bits = (uint32_t)bits;
	s->ordered = !is_off(j, "desc_act");
	s->symmetric = !json_is_false(json_object_get(j, "sym"));
	s->zero_off = is_text(j, "checkpoint_format", "gptq_v2") ? 0 : 1;
	return read_group(q, json_object_get(j, "group_size"), s, err);
}

static int read_awq(struct hf_quant *q, const json_t *j, struct hf_scheme *s, struct sl_err *err)
{
	const char *bits = json_object_get(j, "bits") != NULL ? "bits" : "w_bit";
	const char *group = json_object_get(j, "group_size") != NULL ? "group_size" : "q_group_size";
	const char *version = json_string_value(json_object_get(j, "version"));
	*s = (struct hf_scheme){.form = HF_AWQ, .bits = 4};
	if (number(j, bits) != 4)
		return unsupported(q, "awq with bits other than 4", err);
	if (version != NULL && strcasecmp(version, "gemm") != 0)
		return unsupported(q, "awq of a version other than gemm", err);
	s->symmetric = json_is_false(json_object_get(j, "zero_point"));
	int rc = read_group(q, json_object_get(j, group), s, err);
	return rc != 0 ? rc : exclude(q, j, "modules_to_not_convert", err);
}

/* ---- compressed-tensors ---- */

/* "128x128" */
static bool read_sides(const char *text, json_int_t *rows, json_int_t *width)
{
	char *at;
	*rows = strtol(text, &at, 10);
	if (*at != 'x')
		return false;
	*width = strtol(at + 1, &at, 10);
	return *at == '\0';
}

/* [rows, width], or as text. */
static int read_block(const struct hf_quant *q, const json_t *j, const char *key, struct hf_scheme *s,
		      struct sl_err *err)
{
	char what[64];
	const json_t *v = get(j, key);
	json_int_t rows = json_integer_value(json_array_get(v, 0)), width = json_integer_value(json_array_get(v, 1));
	const char *text = json_string_value(v);
	if (text != NULL ? !read_sides(text, &rows, &width) : json_array_size(v) != 2)
		rows = 0;
	snprintf(what, sizeof what, "a %s that is not [rows, width]", key);
	if (rows < 1 || width < 1 || rows > HF_MOST_SIDE || width > HF_MOST_SIDE)
		return unsupported(q, what, err);
	s->block_rows = (uint32_t)rows;
	s->block_width = (uint32_t)width;
	s->scales = HF_PER_BLOCK;
	return 0;
}

/* "group" reorders columns (g_idx); "weight" orders them back before it stores them. */
static int read_order(const struct hf_quant *q, const json_t *w, struct hf_scheme *s, struct sl_err *err)
{
	const json_t *v = get(w, "actorder");
	s->ordered = json_is_true(v) || is_text(w, "actorder", "group") || is_text(w, "actorder", "dynamic");
	if (is_off(w, "actorder") || s->ordered || is_text(w, "actorder", "weight") || is_text(w, "actorder", "static"))
		return 0;
	return unsupported(q, "an actorder other than group, weight, dynamic and static", err);
}

static int read_strategy(const struct hf_quant *q, const json_t *w, struct hf_scheme *s, struct sl_err *err)
{
	bool unsaid = get(w, "strategy") == NULL; /* the class then derives it from group_size */
	const json_t *group = get(w, "group_size");
	if (is_text(w, "strategy", "channel"))
		s->scales = HF_PER_OUTPUT;
	else if (is_text(w, "strategy", "tensor") || (unsaid && group == NULL))
		s->scales = HF_PER_TENSOR;
	else if (is_text(w, "strategy", "block"))
		return read_block(q, w, "block_structure", s, err);
	else if (is_text(w, "strategy", "group") || unsaid)
		return read_group(q, group, s, err);
	else
		return unsupported(q, "a strategy other than tensor, channel, group and block", err);
	return 0;
}

static const char *const formats[] = {"pack-quantized",  "int-quantized",        "float-quantized",
				      "naive-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized"};
enum { PACK, INT, FLOAT, NAIVE, NVFP4, MXFP4, N_FORMATS };

static int format_of(const char *text)
{
	for (int i = 0; text != NULL && i < N_FORMATS; i++)
		if (strcmp(text, formats[i]) == 0)
			return i;
	return -1;
}

/* The weights of one group, in one of the formats. */
static int read_weights(const struct hf_quant *q, const json_t *w, int format, struct hf_scheme *s, struct sl_err *err)
{
	json_int_t bits = number(w, "num_bits");
	bool is_int = is_text(w, "type", "int"), is_float = is_text(w, "type", "float");
	*s = (struct hf_scheme){.bits = (uint32_t)(bits == 4 ? 4 : 8),
				.symmetric = !json_is_false(json_object_get(w, "symmetric"))};
	if (format == NVFP4 || format == MXFP4) {
		json_int_t group = format == NVFP4 ? 16 : 32;
		s->form = format == NVFP4 ? HF_NVFP4 : HF_MXFP4;
		s->group = (uint32_t)group;
		if (bits != 4 || !is_float || number(w, "group_size") != group)
			return unsupported(q,
					   "compressed-tensors of that format with weights other than float of 4 bits, "
					   "in groups of 16 (nvfp4) or 32 (mxfp4)",
					   err);
		return 0;
	}
	bool packed = format == PACK, fits = is_int ? bits == 4 || bits == 8 : is_float && bits == 8 && !packed;
	if (!fits || (format == INT && !is_int) || (format == FLOAT && !is_float))
		return unsupported(q,
				   packed ? "pack-quantized with weights other than int of 4 or 8 bits"
					  : "compressed-tensors with weights of other bits, or of another type "
					    "than its format's",
				   err);
	s->form = packed ? HF_PACKED : is_int ? HF_INT8 : HF_FP8;
	int rc = read_order(q, w, s, err);
	if (rc == 0)
		rc = read_strategy(q, w, s, err);
	if (rc == 0 && packed && s->scales != HF_PER_OUTPUT && s->scales != HF_PER_GROUP)
		rc = unsupported(q, "pack-quantized with a strategy other than group and channel", err);
	return rc;
}

/* Scales of activations that were measured in advance; those found while computing have no name in the file. */
static void note_activations(struct hf_quant *q, const json_t *group)
{
	const json_t *in = get(group, "input_activations"), *out = get(group, "output_activations");
	if (in != NULL && is_off(in, "dynamic"))
		note(q, "input_activations are static: their scales are not used, activations keep the backend's "
			"precision");
	if (out != NULL)
		note(q, "output_activations are not rounded");
}

static int read_config_group(struct hf_quant *q, const json_t *j, const char *name, const json_t *one,
			     struct sl_err *err)
{
	struct group *g = NULL;
	char what[160];
	const json_t *weights = get(one, "weights");
	const char *own = json_string_value(get(one, "format"));
	const char *format = own != NULL ? own : json_string_value(get(j, "format"));
	note_activations(q, one);
	if (json_is_object(one) && weights == NULL)
		return 0; /* of activations alone */
	if (format_of(format) < 0) {
		snprintf(what, sizeof what, "compressed-tensors of the format \"%.40s\"", format != NULL ? format : "");
		text_one_line(what, '?');
		return unsupported(q, what, err);
	}
	int rc = add_group(q, &g, err);
	if (rc == 0)
		rc = read_weights(q, weights, format_of(format), &g->scheme, err);
	snprintf(what, sizeof what, "%.80s: quantization_config.config_groups.%.30s.targets", q->file, name);
	text_one_line(what, '?');
	return rc != 0 ? rc : hf_targets_read(get(one, "targets"), what, &g->targets, err);
}

static int read_compressed(struct hf_quant *q, const json_t *j, struct sl_err *err)
{
	const json_t *groups = json_object_get(j, "config_groups"), *sparsity = get(j, "sparsity_config");
	const char *name;
	json_t *one;
	int rc = exclude(q, j, "ignore", err);
	if (rc == 0 && (!json_is_object(groups) || json_object_size(groups) == 0))
		rc = unsupported(q, "config_groups without a group", err);
	if (rc == 0 && json_object_size(sparsity) > 0 && !is_text(sparsity, "format", "dense"))
		rc = unsupported(q, "sparsity_config", err);
	json_object_foreach((json_t *)(uintptr_t)groups, name, one)
	{
		enter(q, "config_groups", name);
		rc = rc != 0 ? rc : read_config_group(q, j, name, one, err);
	}
	enter(q, NULL, NULL);
	return rc;
}

/* ---- fp8 and mxfp4 ---- */

static int read_fp8(struct hf_quant *q, const json_t *j, struct hf_scheme *s, struct sl_err *err)
{
	const json_t *fmt = get(j, "fmt");
	*s = (struct hf_scheme){.form = HF_FP8, .scales = HF_PER_ANY, .symmetric = true};
	if (fmt != NULL && !is_text(j, "fmt", "e4m3") && !is_text(j, "fmt", "float8_e4m3fn"))
		return unsupported(q, "fp8 with a fmt other than e4m3", err);
	if (is_text(j, "activation_scheme", "static"))
		note(q,
		     "activation_scheme is static: its scales are not used, activations keep the backend's precision");
	int rc = get(j, "weight_block_size") != NULL ? read_block(q, j, "weight_block_size", s, err) : 0;
	return rc != 0 ? rc : exclude(q, j, "modules_to_not_convert", err);
}

static int read_mxfp4(struct hf_quant *q, const json_t *j, struct hf_scheme *s, struct sl_err *err)
{
	*s = (struct hf_scheme){.form = HF_MXFP4, .group = 32};
	return exclude(q, j, "modules_to_not_convert", err);
}

/* ---- ModelOpt ---- */

static const struct {
	const char *name;
	struct hf_scheme scheme;
} algos[] = {
    {"FP8", {.form = HF_FP8, .scales = HF_PER_TENSOR}},
    {"FP8_PER_CHANNEL_PER_TOKEN", {.form = HF_FP8, .scales = HF_PER_OUTPUT}},
    {"FP8_PB_WO", {.form = HF_FP8, .scales = HF_PER_BLOCK, .block_rows = 128, .block_width = 128}},
    {"NVFP4", {.form = HF_NVFP4, .group = 16}},
    {"W4A16_NVFP4", {.form = HF_NVFP4, .group = 16}},
};

static int read_algo(struct hf_quant *q, const json_t *j, const char **algo, struct hf_scheme *s, struct sl_err *err)
{
	char what[80];
	const json_t *group = get(j, "group_size");
	*algo = json_string_value(get(j, "quant_algo"));
	for (size_t i = 0; *algo != NULL && i < sizeof algos / sizeof *algos; i++) {
		if (strcasecmp(*algo, algos[i].name) != 0)
			continue;
		*s = algos[i].scheme;
		if (s->form == HF_NVFP4 && group != NULL && json_integer_value(group) != 16)
			return unsupported(q, "nvfp4 with a group_size other than 16", err);
		return 0;
	}
	snprintf(what, sizeof what, "quant_algo \"%.40s\"", *algo != NULL ? *algo : "");
	text_one_line(what, '?');
	return unsupported(q, what, err);
}

/* MIXED_PRECISION: an algorithm for each module. */
static int read_layers(struct hf_quant *q, struct sl_err *err)
{
	const char *name;
	json_t *layer;
	int rc = json_object_size(q->layers) > 0 ? 0 : unsupported(q, "MIXED_PRECISION without quantized_layers", err);
	json_object_foreach((json_t *)(uintptr_t)q->layers, name, layer)
	{
		struct group g = {.targets = NULL}, *to = NULL;
		bool known = false;
		enter(q, "quantized_layers", name);
		rc = rc != 0 ? rc : read_algo(q, layer, &g.algo, &g.scheme, err);
		for (int i = 0; rc == 0 && i < q->n_groups; i++)
			known = known || strcasecmp(q->groups[i].algo, g.algo) == 0;
		if (rc == 0 && !known && (rc = add_group(q, &to, err)) == 0)
			*to = g;
	}
	enter(q, NULL, NULL);
	return rc;
}

static int read_modelopt(struct hf_quant *q, const json_t *j, struct sl_err *err)
{
	const json_t *old = get(j, "quantization"); /* hf_quant_config.json has its keys in there */
	const json_t *groups = get(j, "config_groups");
	const char *name;
	json_t *one;
	j = old != NULL ? old : j;
	int rc = exclude(q, j, old != NULL ? "exclude_modules" : "ignore", err);
	if (get(j, "kv_cache_quant_algo") != NULL)
		note(q, "kv_cache_quant_algo is not used: kv_type decides");
	json_object_foreach((json_t *)(uintptr_t)groups, name, one) { note_activations(q, one); }
	if (rc == 0 && is_text(j, "quant_algo", "MIXED_PRECISION")) {
		q->layers = get(j, "quantized_layers");
		return read_layers(q, err);
	}
	struct group *g = &q->groups[q->n_groups++];
	return rc != 0 ? rc : read_algo(q, j, &(const char *){NULL}, &g->scheme, err);
}

/* ---- all ---- */

static int read_method(struct hf_quant *q, const json_t *j, struct sl_err *err)
{
	static const struct {
		const char *method;
		int (*read)(struct hf_quant *q, const json_t *j, struct hf_scheme *s, struct sl_err *err);
	} methods[] = {
	    {"gptq", read_gptq}, {"awq", read_awq}, {"fp8", read_fp8}, {"fbgemm_fp8", read_fp8}, {"mxfp4", read_mxfp4}};
	if (is_text(j, "quant_method", "compressed-tensors"))
		return read_compressed(q, j, err);
	if (is_text(j, "quant_method", "modelopt") || is_text(j, "quant_method", "modelopt_fp4") ||
	    (json_object_get(j, "quant_method") == NULL && json_is_object(get(j, "quantization"))))
		return read_modelopt(q, j, err);
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
		if (!is_text(j, "quant_method", methods[i].method))
			continue;
		q->n_groups = 1;
		return methods[i].read(q, j, &q->groups[0].scheme, err);
	}
	char what[64];
	const char *name = json_string_value(json_object_get(j, "quant_method"));
	snprintf(what, sizeof what, "quant_method \"%.30s\"", name != NULL ? name : "unknown");
	text_one_line(what, '?');
	return unsupported(q, what, err);
}

int hf_quant_read(const json_t *config, const char *file, struct hf_quant **out, struct sl_err *err)
{
	struct hf_quant *q = sl_zalloc(sizeof *q);
	if (q == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", file);
	q->config = json_incref((json_t *)(uintptr_t)config);
	q->file = file;
	if (get(config, "kv_cache_scheme") != NULL)
		note(q, "kv_cache_scheme is not used: kv_type decides");
	int rc = read_method(q, config, err);
	q->file = NULL;
	if (rc != 0) {
		hf_quant_free(q);
		return rc;
	}
	*out = q;
	return 0;
}

void hf_quant_free(struct hf_quant *q)
{
	if (q == NULL)
		return;
	for (int i = 0; i < q->n_groups; i++)
		hf_targets_free(q->groups[i].targets);
	hf_targets_free(q->excluded);
	json_decref(q->config);
	sl_free(q);
}

const char *hf_quant_note(const struct hf_quant *q) { return q->note; }

/* ---- modules ---- */

static int check_excluded(const struct hf_quant *q, const char *module, struct sl_err *err)
{
	enum hf_match how = HF_NO_MATCH;
	int rc = q->excluded != NULL ? hf_targets_match(q->excluded, module, &how, err) : 0;
	if (rc != 0 || how == HF_NO_MATCH)
		return rc;
	return sl_errf(err, SL_EINVAL, "module %.200s is quantized, but quantization_config.%s names it", module,
		       q->excludes);
}

static int match_group(const struct hf_quant *q, const struct group *g, const char *module, enum hf_match *how,
		       struct sl_err *err)
{
	*how = HF_BY_CLASS;
	if (g->targets != NULL)
		return hf_targets_match(g->targets, module, how, err);
	if (g->algo != NULL)
		*how = is_text(json_object_get(q->layers, module), "quant_algo", g->algo) ? HF_BY_NAME : HF_NO_MATCH;
	return 0;
}

int hf_quant_of(const struct hf_quant *q, const char *module, const struct hf_scheme **out, struct sl_err *err)
{
	enum hf_match best = HF_NO_MATCH, how;
	int rc = check_excluded(q, module, err);
	for (int i = 0; i < q->n_groups && rc == 0; i++) {
		rc = match_group(q, &q->groups[i], module, &how, err);
		if (rc == 0 && how > best) {
			best = how;
			*out = &q->groups[i].scheme;
		}
	}
	if (rc == 0 && best == HF_NO_MATCH)
		rc = sl_errf(err, SL_EINVAL,
			     "module %.200s is quantized, but no group of quantization_config targets it", module);
	return rc;
}
