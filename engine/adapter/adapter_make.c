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

static const char *const modules[ADAPTER_TARGETS] = {
    [ADAPTER_Q] = "self_attn.q_proj", [ADAPTER_K] = "self_attn.k_proj", [ADAPTER_V] = "self_attn.v_proj",
    [ADAPTER_O] = "self_attn.o_proj", [ADAPTER_GATE] = "mlp.gate_proj", [ADAPTER_UP] = "mlp.up_proj",
    [ADAPTER_DOWN] = "mlp.down_proj",
};

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

static uint64_t seed_of(const struct maker *k, int layer, int target, bool is_b)
{
	return mix(k->how->seed ^ mix(((uint64_t)layer * ADAPTER_TARGETS + (uint64_t)target) * 2 + is_b + 1));
}

static double scale_of(const struct adapter_make *m, int t)
{
	return m->alphas[t] / (m->by_root ? sqrt(m->ranks[t]) : (double)m->ranks[t]);
}

/* ---- tensors ---- */

struct half {
	int layer, target;
	bool is_b;
	int n_rows, width;
	double spread;
	int head_dim; /* of B: rows become pairs; 0: not */
};

static struct half half_of(const struct maker *k, int layer, int t, bool is_b)
{
	int n_out, n_in, rank = k->how->ranks[t];
	adapter_target_shape(&k->arch, (enum adapter_target)t, &n_out, &n_in);
	double depth = t == ADAPTER_O || t == ADAPTER_DOWN ? sqrt(2.0 * k->arch.n_layers) : 1;
	bool turns = k->gguf != NULL && adapter_turns_rows(&k->arch, (enum adapter_target)t);
	return (struct half){.layer = layer,
			     .target = t,
			     .is_b = is_b,
			     .n_rows = is_b ? n_out : rank,
			     .width = is_b ? rank : n_in,
			     .spread = is_b ? 0.5 / (sqrt(rank) * fabs(scale_of(k->how, t)) * depth) : 1 / sqrt(n_in),
			     .head_dim = is_b && turns ? k->arch.head_dim : 0};
}

static void declare(struct maker *k, const struct half *h)
{
	char name[128];
	uint64_t rows = (uint64_t)h->n_rows, width = (uint64_t)h->width;
	if (k->gguf != NULL) {
		snprintf(name, sizeof name, "blk.%d.%s.lora_%c", h->layer,
			 adapter_target_tensor((enum adapter_target)h->target), h->is_b ? 'b' : 'a');
		gguf_add_tensor(k->gguf, name, k->how->type, 2, (uint64_t[]){width, rows});
		return;
	}
	snprintf(name, sizeof name, "base_model.model.model.layers.%d.%s.lora_%c.weight", h->layer, modules[h->target],
		 h->is_b ? 'B' : 'A');
	st_add_matrix(k->st, name, k->how->type, rows, width);
}

static int write_half(struct maker *k, const struct half *h)
{
	size_t width = (size_t)h->width, bytes = kn_row_bytes(k->how->type, width);
	float *x = sl_alloc(width * sizeof *x);
	void *row = sl_alloc(bytes);
	uint64_t seed = seed_of(k, h->layer, h->target, h->is_b);
	int rc = x != NULL && row != NULL ? 0 : sl_errf(k->err, SL_ENOMEM, "no memory");
	for (int i = 0; i < h->n_rows && rc == 0; i++) {
		int d = h->head_dim, from = d > 0 ? i / d * d + i % 2 * (d / 2) + i % d / 2 : i;
		for (size_t c = 0; c < width; c++)
			x[c] = (float)h->spread * number(seed, (uint64_t)from * width + c);
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

/* Every half, declared or written. */
static int each_half(struct maker *k, bool data)
{
	int rc = 0;
	for (int layer = 0; layer < k->arch.n_layers; layer++)
		for (int t = 0; t < ADAPTER_TARGETS; t++)
			for (int is_b = 0; is_b < 2 && k->how->ranks[t] > 0 && rc == 0; is_b++) {
				struct half h = half_of(k, layer, t, is_b);
				if (data)
					rc = write_half(k, &h);
				else
					declare(k, &h);
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

/* ,"q_proj": 4 … for targets that are not as the first. */
static void put_pattern(FILE *f, const struct adapter_make *m, int first, bool alphas)
{
	bool some = false;
	fprintf(f, ",\n  \"%s\": {", alphas ? "alpha_pattern" : "rank_pattern");
	for (int t = first + 1; t < ADAPTER_TARGETS; t++) {
		bool differs = alphas ? m->alphas[t] != m->alphas[first] : m->ranks[t] != m->ranks[first];
		if (m->ranks[t] == 0 || !differs)
			continue;
		fprintf(f, "%s\"%s\": ", some ? ", " : "", strchr(modules[t], '.') + 1);
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
	put_pattern(f, m, first, false);
	put_pattern(f, m, first, true);
	fputs(",\n  \"target_modules\": [", f);
	for (int t = 0, n = 0; t < ADAPTER_TARGETS; t++)
		if (m->ranks[t] > 0)
			fprintf(f, "%s\"%s\"", n++ > 0 ? ", " : "", strchr(modules[t], '.') + 1);
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

static int check_base(struct maker *k)
{
	char name[64];
	if (k->arch.encoder)
		return sl_errf(k->err, SL_EUNSUPPORTED, "%s: encoders take no adapters in this version", k->how->base);
	for (int layer = 0; layer < k->arch.n_layers; layer++)
		for (int t = 0; t < ADAPTER_TARGETS; t++) {
			int n_out, n_in;
			snprintf(name, sizeof name, "blk.%d.%s", layer, adapter_target_tensor((enum adapter_target)t));
			const struct model_tensor *m = model_file_find(k->base, name);
			adapter_target_shape(&k->arch, (enum adapter_target)t, &n_out, &n_in);
			if (k->how->ranks[t] > 0 && (m == NULL || m->dims[1] != (uint64_t)n_out))
				return sl_errf(k->err, SL_EUNSUPPORTED, "%s: the base has no matrix %s of %d × %d",
					       k->how->base, name, n_in, n_out);
		}
	return 0;
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
