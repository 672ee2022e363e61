/* SPDX-License-Identifier: Apache-2.0
 *
 * What is added to a product is about half as large as the product of a random model (random_model.c), so that tokens
 * change.
 */
#include "engine/adapter/adapter_make.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/out_file.h"
#include "base/text.h"
#include "engine/file/gguf_write.h"
#include "engine/file/safetensors_write.h"
#include "kernels/quantize.h"

struct maker {
	const struct adapter_make *how;
	struct model_arch arch;
	const struct model_file *base;
	struct gguf_writer *gguf; /* or */
	struct st_writer *st;
	struct sl_err *err;
};

/* By their ends adapter_config.json names them. */
static const char *const modules[ADAPTER_TARGETS] = {
    [ADAPTER_Q] = "self_attn.q_proj",
    [ADAPTER_K] = "self_attn.k_proj",
    [ADAPTER_V] = "self_attn.v_proj",
    [ADAPTER_O] = "self_attn.o_proj",
    [ADAPTER_GATE] = "mlp.gate_proj",
    [ADAPTER_UP] = "mlp.up_proj",
    [ADAPTER_DOWN] = "mlp.down_proj",
    [ADAPTER_SHARED_GATE] = "mlp.shared_expert.gate_proj",
    [ADAPTER_SHARED_UP] = "mlp.shared_expert.up_proj",
    [ADAPTER_SHARED_DOWN] = "mlp.shared_expert.down_proj",
    [ADAPTER_EMBED] = "embed_tokens",
    [ADAPTER_HEAD] = "lm_head",
};
/* Of expert %d: Mixtral's names, then all others'. */
static const char *const experts[2][3] = {
    {"block_sparse_moe.experts.%d.w1", "block_sparse_moe.experts.%d.w3", "block_sparse_moe.experts.%d.w2"},
    {"mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj", "mlp.experts.%d.down_proj"},
};

static void module_of(const struct maker *k, int t, int expert, char out[64])
{
	if (adapter_is_of_experts((enum adapter_target)t))
		snprintf(out, 64, experts[strcmp(k->arch.family, "llama") != 0][t - (int)ADAPTER_EXPERT_GATE], expert);
	else
		snprintf(out, 64, "%s", modules[t]);
}

/* What patterns and lists of the configuration call a target's modules. */
static const char *key_of(const struct maker *k, int t, char out[64])
{
	module_of(k, t, 0, out);
	const char *dot = strrchr(out, '.');
	return dot != NULL ? dot + 1 : out;
}

/* ---- numbers ---- */

/* SplitMix64's finalizer (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014). */
static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}

/* Uniform around 0, of standard deviation 1. */
static float number(uint64_t seed, uint64_t i)
{
	double u = (double)(mix(seed + i * 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;
	return (float)((2 * u - 1) * sqrt(3));
}

static uint64_t seed_of(const struct maker *k, const struct adapter_place *at, bool is_b)
{
	uint64_t place = ((uint64_t)at->expert << 16 | (uint64_t)at->layer) * ADAPTER_TARGETS + (uint64_t)at->target;
	return mix(k->how->seed ^ mix(place * 2 + is_b + 1));
}

static double scale_of(const struct adapter_make *m, int t)
{
	return m->alphas[t] / (m->by_root ? sqrt(m->ranks[t]) : (double)m->ranks[t]);
}

/* ---- tensors ---- */

/* A half, or those of all experts in one tensor. */
struct half {
	struct adapter_place at;
	bool is_b; /* as struct adapter_part has it */
	int n_rows, width, n;
	double spread;
	int head_dim; /* of B: rows become pairs; 0: not */
	bool turned;  /* written [width][n_rows] */
};

/* How large a matrix of a random model is beside one of the same width that reads the stream. */
static double size_of(const struct model_arch *a, int t)
{
	double depth = sqrt(2.0 * a->n_layers);
	switch (t) {
	case ADAPTER_O:
	case ADAPTER_DOWN:
	case ADAPTER_SHARED_DOWN: return 1 / depth;
	case ADAPTER_EXPERT_DOWN: return sqrt(a->experts.n_used) / depth;
	case ADAPTER_EMBED:
	case ADAPTER_HEAD: return 2.5 / (double)a->embed_scale;
	default: return 1;
	}
}

static struct half half_of(const struct maker *k, const struct adapter_place *at, bool is_b)
{
	int n_out, n_in, t = (int)at->target, rank = k->how->ranks[t];
	adapter_target_shape(&k->arch, at->target, &n_out, &n_in);
	bool turns = k->gguf != NULL && adapter_turns_rows(&k->arch, at->target);
	double of_b = 0.5 * size_of(&k->arch, t) / (sqrt(rank) * fabs(scale_of(k->how, t)));
	return (struct half){.at = *at,
			     .is_b = is_b,
			     .n_rows = is_b ? n_out : rank,
			     .width = is_b ? rank : n_in,
			     .n = at->expert == ADAPTER_ALL ? k->arch.experts.n : 1,
			     .spread = is_b ? of_b : 1 / sqrt(n_in),
			     .head_dim = is_b && turns ? k->arch.head_dim : 0,
			     .turned = at->target == ADAPTER_EMBED && (k->gguf == NULL || !is_b)};
}

static void declare(struct maker *k, const struct half *h)
{
	char name[160], full[64];
	bool embeds = h->at.target == ADAPTER_EMBED, b_there = h->is_b != embeds;
	uint64_t rows = (uint64_t)(h->turned ? h->width : h->n_rows),
		 width = (uint64_t)(h->turned ? h->n_rows : h->width);
	if (k->gguf != NULL) {
		snprintf(name, sizeof name, "%s.lora_%c", adapter_target_full(&h->at, full), b_there ? 'b' : 'a');
		gguf_add_tensor(k->gguf, name, k->how->type, h->at.expert == ADAPTER_ALL ? 3 : 2,
				(uint64_t[]){width, rows, (uint64_t)h->n});
		return;
	}
	module_of(k, (int)h->at.target, h->at.expert, full);
	if (embeds)
		snprintf(name, sizeof name, "base_model.model.model.%s.lora_embedding_%c", full, b_there ? 'B' : 'A');
	else if (h->at.target == ADAPTER_HEAD)
		snprintf(name, sizeof name, "base_model.model.%s.lora_%c.weight", full, b_there ? 'B' : 'A');
	else
		snprintf(name, sizeof name, "base_model.model.model.layers.%d.%s.lora_%c.weight", h->at.layer, full,
			 b_there ? 'B' : 'A');
	st_add_matrix(k->st, name, k->how->type, rows, width);
}

/* Row i of the file's, of one half. */
static void make_row(const struct half *h, uint64_t seed, int i, size_t n, float *x)
{
	int d = h->head_dim, from = d > 0 ? i / d * d + i % 2 * (d / 2) + i % d / 2 : i;
	for (size_t c = 0; c < n; c++) {
		uint64_t at = h->turned ? c * (uint64_t)h->width + (uint64_t)i : (uint64_t)from * n + c;
		x[c] = (float)h->spread * number(seed, at);
	}
}

static int write_half(struct maker *k, const struct half *h)
{
	int rows = h->turned ? h->width : h->n_rows;
	size_t width = (size_t)(h->turned ? h->n_rows : h->width), bytes = kn_row_bytes(k->how->type, width);
	float *x = sl_alloc(width * sizeof *x);
	void *row = sl_alloc(bytes);
	int rc = x != NULL && row != NULL ? 0 : sl_errf(k->err, SL_ENOMEM, "no memory");
	for (int i = 0; i < h->n * rows && rc == 0; i++) {
		struct adapter_place at = h->at;
		at.expert = h->at.expert == ADAPTER_ALL ? i / rows : h->at.expert;
		make_row(h, seed_of(k, &at, h->is_b), i % rows, width, x);
		rc = kn_quantize_row(k->how->type, x, width, row);
		if (rc != 0)
			rc = sl_errf(k->err, rc, "a number is too large for %s", kn_type_name(k->how->type));
		else if (k->gguf != NULL)
			gguf_write_data(k->gguf, row, bytes);
		else
			st_write_data(k->st, row, bytes);
	}
	sl_free(x);
	sl_free(row);
	return rc;
}

/* Whether a layer has a target at all: dense layers have no experts, and mixtures no dense half. */
static bool is_there(const struct maker *k, const struct adapter_place *at)
{
	bool joined;
	return (at->layer == 0 || adapter_is_of_a_layer(at->target)) &&
	       adapter_target_base(k->base, at, &joined) != NULL;
}

static int each_of(struct maker *k, const struct adapter_place *at, bool data)
{
	int rc = 0;
	for (int is_b = 0; is_b < 2 && rc == 0; is_b++) {
		struct half h = half_of(k, at, is_b);
		if (data)
			rc = write_half(k, &h);
		else
			declare(k, &h);
	}
	return rc;
}

/* Every half, declared or written. */
static int each_half(struct maker *k, bool data)
{
	int rc = 0;
	for (int layer = 0; layer < k->arch.n_layers; layer++)
		for (int t = 0; t < ADAPTER_TARGETS; t++) {
			bool many = adapter_is_of_experts((enum adapter_target)t);
			struct adapter_place at = {.target = (enum adapter_target)t, .layer = layer};
			if (k->how->ranks[t] == 0 || !is_there(k, &at))
				continue;
			at.expert = many && k->gguf != NULL ? ADAPTER_ALL : 0;
			int n = many && k->gguf == NULL ? k->arch.experts.n : 1;
			for (int i = 0; i < n && rc == 0; i++, at.expert++)
				rc = each_of(k, &at, data);
		}
	return rc;
}

/* ---- the two forms ---- */

static int write_gguf(struct maker *k)
{
	const struct adapter_make *m = k->how;
	const char *family = k->arch.family, *name = model_file_name(k->base);
	double alpha = 0;
	for (int t = 0; t < ADAPTER_TARGETS; t++) {
		if (m->ranks[t] > 0 && alpha != 0 && m->alphas[t] != alpha)
			return sl_errf(k->err, SL_EUNSUPPORTED, "%s: a GGUF adapter has one alpha for all", m->out);
		alpha = m->ranks[t] > 0 ? m->alphas[t] : alpha;
	}
	if (m->by_root)
		return sl_errf(k->err, SL_EUNSUPPORTED, "%s: a GGUF adapter has no key for rsLoRA", m->out);
	int rc = gguf_writer_create(m->out, m->replace, &k->gguf, k->err);
	if (rc != 0)
		return rc;
	gguf_put_str(k->gguf, "general.architecture", family, strlen(family));
	gguf_put_str(k->gguf, "general.type", "adapter", 7);
	gguf_put_str(k->gguf, "general.base_model.0.name", name, strlen(name));
	gguf_put_str(k->gguf, "adapter.type", "lora", 4);
	gguf_put_f32(k->gguf, "adapter.lora.alpha", (float)alpha);
	each_half(k, false);
	rc = each_half(k, true);
	if (rc == 0)
		return gguf_writer_finish(k->gguf, k->err);
	gguf_writer_abort(k->gguf);
	return rc;
}

/* The first target that the configuration calls as it calls t: the dense half's modules, a shared expert's and the
 * experts' may have one name, and then have one rank. */
static int first_of(const struct maker *k, int t)
{
	char one[64], other[64];
	const char *key = key_of(k, t, one);
	for (int i = 0; i < t; i++)
		if (k->how->ranks[i] > 0 && strcmp(key, key_of(k, i, other)) == 0)
			return i;
	return t;
}

/* ,"q_proj": 4 … for targets that are not as the first. */
static void put_pattern(FILE *f, const struct maker *k, int first, bool alphas)
{
	const struct adapter_make *m = k->how;
	bool some = false;
	char key[64];
	fprintf(f, ",\n  \"%s\": {", alphas ? "alpha_pattern" : "rank_pattern");
	for (int t = first + 1; t < ADAPTER_TARGETS; t++) {
		bool differs = alphas ? m->alphas[t] != m->alphas[first] : m->ranks[t] != m->ranks[first];
		if (m->ranks[t] == 0 || !differs || first_of(k, t) != t)
			continue;
		fprintf(f, "%s\"%s\": ", some ? ", " : "", key_of(k, t, key));
		if (alphas)
			fprintf(f, "%.17g", m->alphas[t]);
		else
			fprintf(f, "%d", m->ranks[t]);
		some = true;
	}
	fputs("}", f);
}

static int write_config(struct maker *k)
{
	const struct adapter_make *m = k->how;
	char path[4200];
	struct out_file out;
	char key[64];
	int first = 0;
	while (first < ADAPTER_TARGETS - 1 && m->ranks[first] == 0)
		first++;
	snprintf(path, sizeof path, "%.4096s/adapter_config.json", m->out);
	int rc = out_file_open(path, m->replace, &out, k->err);
	if (rc != 0)
		return rc;
	FILE *f = fdopen(dup(out.fd), "w");
	if (f == NULL) {
		out_file_abort(&out);
		return sl_errf(k->err, SL_EIO, "%s: %s", path, strerror(errno));
	}
	fprintf(f,
		"{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n  \"inference_mode\": true,\n"
		"  \"bias\": \"none\",\n  \"r\": %d,\n  \"lora_alpha\": %.17g,\n  \"use_rslora\": %s",
		m->ranks[first], m->alphas[first], m->by_root ? "true" : "false");
	put_pattern(f, k, first, false);
	put_pattern(f, k, first, true);
	fputs(",\n  \"target_modules\": [", f);
	for (int t = 0, n = 0; t < ADAPTER_TARGETS; t++)
		if (m->ranks[t] > 0 && first_of(k, t) == t)
			fprintf(f, "%s\"%s\"", n++ > 0 ? ", " : "", key_of(k, t, key));
	fputs("]\n}\n", f);
	if (fclose(f) != 0) {
		out_file_abort(&out);
		return sl_errf(k->err, SL_EIO, "%s: %s", path, strerror(errno));
	}
	return out_file_finish(&out, k->err);
}

static int write_folder(struct maker *k)
{
	const struct adapter_make *m = k->how;
	char path[4200];
	if (strlen(m->out) > 4096)
		return sl_errf(k->err, SL_ELIMIT, "a path of more than 4096 bytes");
	if (mkdir(m->out, 0755) != 0 && (errno != EEXIST || !m->replace))
		return sl_errf(k->err, errno == EEXIST ? SL_EINVAL : SL_EIO, "%s: %s", m->out, strerror(errno));
	snprintf(path, sizeof path, "%s/adapter_model.safetensors", m->out);
	int rc = st_writer_create(path, m->replace, &k->st, k->err);
	if (rc != 0)
		return rc;
	each_half(k, false);
	rc = each_half(k, true);
	if (rc != 0)
		st_writer_abort(k->st);
	else
		rc = st_writer_finish(k->st, k->err);
	return rc != 0 ? rc : write_config(k);
}

/* ---- the base ---- */

static int check_matrix(const struct maker *k, const struct adapter_place *at)
{
	char name[64];
	bool joined;
	int n_out, n_in;
	const struct model_tensor *m = adapter_target_base(k->base, at, &joined);
	adapter_target_shape(&k->arch, at->target, &n_out, &n_in);
	return m != NULL && m->dims[0] == (uint64_t)n_in && m->dims[1] == (uint64_t)n_out
		   ? 0
		   : sl_errf(k->err, SL_EUNSUPPORTED, "%s: the base has no matrix %s of %d × %d", k->how->base,
			     adapter_target_full(at, name), n_in, n_out);
}

/* A folder's configuration has one rank and one alpha for modules of one name. */
static int check_ranks(const struct maker *k)
{
	const struct adapter_make *m = k->how;
	for (int t = 0; t < ADAPTER_TARGETS && !text_ends(m->out, ".gguf"); t++) {
		int of = first_of(k, t);
		if (m->ranks[t] > 0 && (m->ranks[of] != m->ranks[t] || m->alphas[of] != m->alphas[t]))
			return sl_errf(k->err, SL_EUNSUPPORTED, "%s: a folder has one rank and alpha for %s and %s",
				       m->out, adapter_target_name((enum adapter_target)of),
				       adapter_target_name((enum adapter_target)t));
	}
	return 0;
}

static int check_base(struct maker *k)
{
	int rc = 0;
	if (k->arch.encoder)
		return sl_errf(k->err, SL_EUNSUPPORTED, "%s: encoders take no adapters in this version", k->how->base);
	for (int t = 0; t < ADAPTER_TARGETS && rc == 0; t++) {
		int n = 0;
		for (int layer = 0; layer < k->arch.n_layers && k->how->ranks[t] > 0 && rc == 0; layer++) {
			const struct adapter_place at = {.target = (enum adapter_target)t, .layer = layer};
			bool there = is_there(k, &at);
			n += there;
			if (there || (layer == k->arch.n_layers - 1 && n == 0))
				rc = check_matrix(k, &at);
		}
	}
	return rc != 0 ? rc : check_ranks(k);
}

int adapter_make(const struct adapter_make *m, struct sl_err *err)
{
	struct model_file *base;
	struct maker k = {.how = m, .err = err};
	int rc = model_file_open(m->base, &base, err);
	if (rc != 0)
		return rc;
	k.base = base;
	rc = model_file_arch(base, &k.arch, err);
	if (rc == 0)
		rc = check_base(&k);
	bool file = text_ends(m->out, ".gguf");
	if (rc == 0 && file && model_file_folder(base) == NULL && !model_file_is_random(base))
		rc = out_file_is_not(m->out, m->base, err);
	if (rc == 0)
		rc = file ? write_gguf(&k) : write_folder(&k);
	model_file_close(base);
	return rc;
}
