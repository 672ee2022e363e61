/* SPDX-License-Identifier: Apache-2.0
 *
 * One interface for every format of a model on disk. This file has what the formats share: the list of tensors under
 * GGUF's names, its index, and the dispatch to the format's readers. The list borrows names and data that those readers
 * keep mapped.
 */
#include "engine/source/model_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "engine/source/arch_read.h"
#include "engine/source/convert.h"
#include "engine/file/gguf_split.h"
#include "engine/source/hf_folder.h"
#include "engine/source/hf_made.h"
#include "engine/file/map_file.h"
#include "engine/file/name_index.h"
#include "engine/source/random_source.h"
#include "engine/source/weight_plan.h"
#include "kernels/quantize.h"

struct model_file {
	char *path;
	struct gguf **parts; /* or */
	size_t n_parts;
	struct hf_folder *folder; /* or */
	struct random_source *random;
	struct gguf *head; /* NULL: none */
	struct model_tensor *tensors;
	uint32_t *by_name;
	size_t n_tensors;
	void **owned; /* [n_tensors] converted data; NULL: none */
	bool quantized;
	char name[128];
	char form[64];
};

/* ---- the list of tensors ---- */

static struct proto_str tensor_name(const void *f, size_t i)
{
	const char *name = ((const struct model_file *)f)->tensors[i].name;
	return (struct proto_str){.at = name, .n = strlen(name)};
}

static int make_index(struct model_file *f, struct sl_err *err)
{
	size_t twice;
	if (name_index_make(tensor_name, f, f->n_tensors, &f->by_name, &twice) != 0)
		return sl_errf(err, SL_ENOMEM, "%s: no memory for %zu tensors", f->path, f->n_tensors);
	if (twice < f->n_tensors)
		return sl_errf(err, SL_EINVAL, "%s: duplicate tensor \"%s\"", f->path, f->tensors[twice].name);
	return 0;
}

const struct model_tensor *model_file_find(const struct model_file *f, const char *name)
{
	const struct proto_str want = {.at = name, .n = strlen(name)};
	size_t i = name_index_find(f->by_name, f->n_tensors, tensor_name, f, want);
	return i < f->n_tensors ? &f->tensors[i] : NULL;
}

size_t model_file_n_tensors(const struct model_file *f) { return f->n_tensors; }
const struct model_tensor *model_file_tensor_at(const struct model_file *f, size_t i) { return &f->tensors[i]; }

static bool may_own(struct model_file *f)
{
	if (f->owned == NULL)
		f->owned = sl_zalloc_n(f->n_tensors, sizeof(void *));
	return f->owned != NULL;
}

int model_file_bring(struct model_file *f, const struct model_tensor *t, struct sl_err *err)
{
	size_t i = (size_t)(t - f->tensors);
	if (t->made == NULL || t->data != NULL)
		return 0;
	if (!may_own(f) || (f->owned[i] = sl_alloc((size_t)t->bytes)) == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory for tensor %s", f->path, t->name);
	int rc = t->made->make(t->made->of, f->path, 0, f->owned[i], err);
	if (rc != 0) {
		sl_free(f->owned[i]);
		f->owned[i] = NULL;
		return rc;
	}
	map_file_let_go(t->made->source, (size_t)t->made->source_bytes);
	f->tensors[i].data = f->owned[i];
	return 0;
}

void model_file_let_go(struct model_file *f, const struct model_tensor *t)
{
	size_t i = (size_t)(t - f->tensors);
	if (f->owned != NULL && f->owned[i] != NULL) {
		sl_free(f->owned[i]);
		f->owned[i] = NULL;
		f->tensors[i].data = NULL;
	} else if (t->data != NULL && t->made == NULL) {
		map_file_let_go(t->data, (size_t)t->bytes);
	}
}

/* ---- opening ---- */

static void put_gguf_tensors(const struct gguf *g, struct model_tensor *out)
{
	for (size_t i = 0; i < gguf_n_tensors(g); i++, out++) {
		const struct gguf_tensor *t = gguf_tensor_at(g, i);
		*out = (struct model_tensor){
		    .name = t->name, .type = t->type, .n_dims = t->n_dims, .data = t->data, .bytes = t->bytes};
		memcpy(out->dims, t->dims, sizeof t->dims);
	}
}

static int open_gguf(struct model_file *f, struct sl_err *err)
{
	int rc = gguf_open_parts(f->path, &f->parts, &f->n_parts, err);
	if (rc != 0)
		return rc;
	for (size_t p = 0; p < f->n_parts; p++)
		f->n_tensors += gguf_n_tensors(f->parts[p]);
	f->tensors = sl_zalloc_n(f->n_tensors, sizeof *f->tensors);
	if (f->tensors == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory for %zu tensors", f->path, f->n_tensors);
	for (size_t p = 0, at = 0; p < f->n_parts; at += gguf_n_tensors(f->parts[p++]))
		put_gguf_tensors(f->parts[p], f->tensors + at);
	struct proto_str name;
	struct sl_err ignored;
	if (gguf_get_str(f->parts[0], "general.name", &name, &ignored) == 0)
		snprintf(f->name, sizeof f->name, "%.*s", (int)(name.n > 127 ? 127 : name.n), name.at);
	int n = snprintf(f->form, sizeof f->form, "GGUF v%u", gguf_version(f->parts[0]));
	if (f->n_parts > 1)
		snprintf(f->form + n, sizeof f->form - (size_t)n, " in %zu parts", f->n_parts);
	return 0;
}

static int open_folder(struct model_file *f, struct sl_err *err)
{
	int rc = hf_open(f->path, &f->folder, err);
	if (rc == 0)
		rc = hf_tensors(f->folder, &f->tensors, &f->n_tensors, err);
	if (rc != 0)
		return rc;
	const char *slash = strrchr(hf_path(f->folder), '/');
	snprintf(f->name, sizeof f->name, "%s", slash != NULL ? slash + 1 : hf_path(f->folder));
	int n = snprintf(f->form, sizeof f->form, "safetensors");
	if (hf_n_parts(f->folder) > 1)
		snprintf(f->form + n, sizeof f->form - (size_t)n, " in %zu parts", hf_n_parts(f->folder));
	return 0;
}

static int open_random(struct model_file *f, struct sl_err *err)
{
	int rc = random_source_open(f->path, &f->random, err);
	if (rc != 0)
		return rc;
	size_t n = gguf_n_tensors(f->random->head);
	f->n_tensors = n + f->random->n;
	f->tensors = sl_zalloc_n(f->n_tensors, sizeof *f->tensors);
	if (f->tensors == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory for %zu tensors", f->path, f->n_tensors);
	put_gguf_tensors(f->random->head, f->tensors);
	for (size_t i = 0; i < f->random->n; i++) {
		const struct random_matrix *x = &f->random->matrices[i];
		f->tensors[n + i] =
		    (struct model_tensor){.name = x->name,
					  .type = x->type,
					  .n_dims = x->n > 1 ? 3 : 2,
					  .dims = {x->n_in, x->n_out, x->n, 1},
					  .noise = x->noise,
					  .bytes = x->n * x->n_out * kn_row_bytes(x->type, (size_t)x->n_in)};
	}
	snprintf(f->name, sizeof f->name, "%s", f->path);
	snprintf(f->form, sizeof f->form, "made at random");
	return 0;
}

/* ---- the head ---- */

/* The layer in whose name "blk.N." the tensor is; -1: none. */
static long layer_of(const char *name)
{
	char *end;
	long layer = strncmp(name, "blk.", 4) == 0 ? strtol(name + 4, &end, 10) : -1;
	return layer >= 0 && end > name + 4 && *end == '.' ? layer : -1;
}

/* Adds the tensors of layers that the model does not have. */
static int add_head_tensors(struct model_file *f, struct sl_err *err)
{
	size_t n = gguf_n_tensors(f->head), added = 0;
	long last = -1;
	for (size_t i = 0; i < f->n_tensors; i++)
		last = layer_of(f->tensors[i].name) > last ? layer_of(f->tensors[i].name) : last;
	struct model_tensor *all = sl_realloc_n(f->tensors, f->n_tensors + n, sizeof *all);
	if (all == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory for %zu tensors", gguf_path(f->head), n);
	f->tensors = all;
	put_gguf_tensors(f->head, all + f->n_tensors);
	for (size_t i = f->n_tensors; i < f->n_tensors + n; i++)
		if (layer_of(all[i].name) > last)
			all[f->n_tensors + added++] = all[i];
	f->n_tensors += added;
	return added > 0 ? 0
			 : sl_errf(err, SL_EINVAL, "%s: no tensor of a layer after the model's %ld", gguf_path(f->head),
				   last + 1);
}

static int open_head(struct model_file *f, const char *path, struct sl_err *err)
{
	int rc = gguf_open(path, &f->head, err);
	return rc == 0 ? add_head_tensors(f, err) : rc;
}

static int head_number(const struct gguf *g, const char *family, const char *field, uint32_t *out, struct sl_err *err)
{
	char key[96];
	snprintf(key, sizeof key, "%s.%s", family, field);
	int rc = gguf_get_u32(g, key, out, err);
	return rc == SL_ENOTFOUND ? sl_errf(err, SL_EINVAL, "%s: key %s is missing", gguf_path(g), key) : rc;
}

/* Whether the head is one of a model like a, whose layer that drafts it becomes. */
static int check_head(const struct gguf *g, struct model_arch *a, struct sl_err *err)
{
	struct proto_str family;
	uint32_t blocks = 0, drafting = 0, width = 0;
	int rc = gguf_get_str(g, "general.architecture", &family, err);
	if (rc == 0 && (family.n != strlen(a->family) || memcmp(family.at, a->family, family.n) != 0))
		return sl_errf(err, SL_EINVAL, "%s: general.architecture is %.*s, the model's is %s", gguf_path(g),
			       (int)(family.n < 32 ? family.n : 32), family.at, a->family);
	if (rc != 0 || (rc = head_number(g, a->family, "nextn_predict_layers", &drafting, err)) != 0 ||
	    (rc = head_number(g, a->family, "block_count", &blocks, err)) != 0 ||
	    (rc = head_number(g, a->family, "embedding_length", &width, err)) != 0)
		return rc;
	if (a->n_drafting > 0)
		return sl_errf(err, SL_EINVAL, "%s: the model has a layer that drafts", gguf_path(g));
	if (drafting < 1 || drafting > 8 || blocks != (uint32_t)a->n_layers + drafting)
		return sl_errf(err, SL_EINVAL,
			       "%s: %s.block_count %u with %u that draft is for another model than one of %d layers",
			       gguf_path(g), a->family, blocks, drafting, a->n_layers);
	if (width != (uint32_t)a->n_embd)
		return sl_errf(err, SL_EINVAL, "%s: %s.embedding_length is %u, the model's is %d", gguf_path(g),
			       a->family, width, a->n_embd);
	a->n_drafting = (int)drafting;
	return 0;
}

int model_file_open(const char *path, struct model_file **out, struct sl_err *err)
{
	return model_file_open_with(path, NULL, out, err);
}

int model_file_open_with(const char *path, const char *head, struct model_file **out, struct sl_err *err)
{
	struct stat st;
	struct model_file *f = sl_zalloc(sizeof *f);
	if (f != NULL)
		f->path = sl_strdup(path);
	if (f == NULL || f->path == NULL) {
		sl_free(f);
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	}
	bool is_folder = file_stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	int rc = random_source_names(path) ? open_random(f, err) : is_folder ? open_folder(f, err) : open_gguf(f, err);
	if (rc == 0 && head != NULL)
		rc = open_head(f, head, err);
	if (rc == 0)
		rc = make_index(f, err);
	if (rc != 0) {
		model_file_close(f);
		return rc;
	}
	*out = f;
	return 0;
}

void model_file_close(struct model_file *f)
{
	if (f == NULL)
		return;
	for (size_t i = 0; f->owned != NULL && i < f->n_tensors; i++)
		sl_free(f->owned[i]);
	sl_free(f->owned);
	sl_free(f->tensors);
	sl_free(f->by_name);
	gguf_close_parts(f->parts, f->n_parts);
	hf_close(f->folder);
	random_source_close(f->random);
	gguf_close(f->head);
	sl_free(f->path);
	sl_free(f);
}

const char *model_file_path(const struct model_file *f) { return f->path; }
const char *model_file_name(const struct model_file *f) { return f->name; }
const char *model_file_form(const struct model_file *f) { return f->form; }
const char *model_file_note(const struct model_file *f) { return f->folder != NULL ? hf_note(f->folder) : ""; }

/* Where keys are; NULL: in a folder. */
static const struct gguf *keys_of(const struct model_file *f)
{
	return f->random != NULL ? f->random->head : f->n_parts > 0 ? f->parts[0] : NULL;
}

const struct gguf *model_file_gguf(const struct model_file *f) { return keys_of(f); }
bool model_file_is_random(const struct model_file *f) { return f->random != NULL; }

size_t model_file_n_parts(const struct model_file *f) { return f->n_parts + (f->n_parts > 0 && f->head != NULL); }

const struct gguf *model_file_part(const struct model_file *f, size_t i)
{
	return i < f->n_parts ? f->parts[i] : f->head;
}

const struct hf_folder *model_file_folder(const struct model_file *f) { return f->folder; }

uint64_t model_file_bytes(const struct model_file *f)
{
	uint64_t bytes = f->head != NULL ? gguf_file_bytes(f->head) : 0;
	if (f->folder != NULL)
		return bytes + hf_bytes(f->folder);
	for (size_t p = 0; p < f->n_parts; p++)
		bytes += gguf_file_bytes(f->parts[p]);
	for (size_t i = 0; f->random != NULL && i < f->n_tensors; i++)
		bytes += f->tensors[i].bytes;
	return bytes;
}

/* ---- quantizing in memory ---- */

static void float_row(void *ctx, uint64_t row, float *out)
{
	const struct model_tensor *t = ctx;
	size_t width = (size_t)t->dims[0];
	kn_dequantize(t->type, (const uint8_t *)t->data + row * kn_row_bytes(t->type, width), width, out);
}

/* One 4-bit scale for 128 weights is too coarse for embeddings and output: these two keep their types, as in
 * checkpoints of that kind. */
static bool quantizes(const struct model_tensor *t, int type)
{
	bool floats = t->type == KN_F32 || t->type == KN_F16 || t->type == KN_BF16;
	bool ends = strcmp(t->name, "token_embd.weight") == 0 || strcmp(t->name, "output.weight") == 0;
	/* Tables of positions and types are small and are added to every row. */
	bool table = strcmp(t->name, "position_embd.weight") == 0 || strcmp(t->name, "token_types.weight") == 0;
	/* A router is small, and its errors choose other experts. */
	bool router = strstr(t->name, ".ffn_gate_inp") != NULL;
	/* The biases of all experts are one tensor of two dimensions. */
	if ((type == KN_INT4 && ends) || table || router || !weight_plan_covers(t->name, t->n_dims))
		return false;
	return (floats || (type == KN_INT4 && t->type == KN_Q8_0)) && t->type != type &&
	       t->dims[0] % (uint64_t)kn_type_block(type) == 0;
}

static int quantize_tensor(struct model_file *f, size_t i, int type, int n_threads, struct convert_progress *p,
			   struct sl_err *err)
{
	struct model_tensor *t = &f->tensors[i];
	struct convert c = {
	    .row = float_row, .ctx = t, .type = type, .width = (size_t)t->dims[0], .n_threads = n_threads};
	size_t row_bytes = kn_row_bytes(type, c.width);
	uint64_t rows = t->dims[1] * t->dims[2], piece = (4u << 20) / c.width + 1;
	int rc = model_file_bring(f, t, err);
	if (rc != 0)
		return rc;
	void *made = sl_alloc((size_t)rows * row_bytes);
	if (made == NULL)
		rc = sl_errf(err, SL_ENOMEM, "%s: no memory for tensor %s", f->path, t->name);
	for (uint64_t at = 0; at < rows && rc == 0; at += piece) {
		uint64_t n = rows - at < piece ? rows - at : piece;
		rc = convert_rows(&c, at, n, (uint8_t *)made + at * row_bytes);
		if (rc != 0)
			sl_errf(err, rc, "%s: tensor %s can't be converted to %s", f->path, t->name,
				kn_type_name(type));
		convert_advance(p, n * row_bytes);
	}
	if (rc != 0) {
		sl_free(made);
		return rc;
	}
	sl_free(f->owned[i]); /* what a folder's quantized matrix was */
	f->owned[i] = made;
	t->made = NULL;
	t->type = type;
	t->data = f->owned[i];
	t->bytes = rows * row_bytes;
	return 0;
}

int model_file_quantize(struct model_file *f, int type, int n_threads, struct convert_progress *p, struct sl_err *err)
{
	BUG_IF(f->quantized, "%s: quantized twice", f->path);
	f->quantized = true;
	if (f->random != NULL)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: weights without a file cannot be converted", f->path);
	if (!may_own(f))
		return sl_errf(err, SL_ENOMEM, "%s: no memory", f->path);
	for (size_t i = 0; p != NULL && i < f->n_tensors; i++)
		if (quantizes(&f->tensors[i], type))
			p->total += f->tensors[i].dims[1] * f->tensors[i].dims[2] *
				    kn_row_bytes(type, (size_t)f->tensors[i].dims[0]);
	int rc = 0;
	for (size_t i = 0; i < f->n_tensors && rc == 0; i++)
		if (quantizes(&f->tensors[i], type))
			rc = quantize_tensor(f, i, type, n_threads, p, err);
	return rc;
}

/* ---- dispatch to the format ---- */

int model_file_arch(const struct model_file *f, struct model_arch *out, struct sl_err *err)
{
	int rc = f->folder != NULL ? arch_read_hf(f, f->folder, out, err) : arch_read_gguf(f, out, err);
	return rc == 0 && f->head != NULL ? check_head(f->head, out, err) : rc;
}

int model_file_tokenizer(const struct model_file *f, struct tokenizer **out, struct sl_err *err)
{
	int rc = f->folder != NULL ? hf_tokenizer(f->folder, out, err) : tokenizer_create(keys_of(f), out, err);
	const struct model_tensor *embed = model_file_find(f, "token_embd.weight");
	/* Rows without a token are never sampled on purpose, but their ids must exist. */
	if (rc == 0 && embed != NULL && embed->dims[1] <= ARCH_MAX_VOCAB &&
	    tokenizer_pad(*out, (size_t)embed->dims[1]) != 0) {
		tokenizer_destroy(*out);
		rc = sl_errf(err, SL_ENOMEM, "%s: no memory", f->path);
	}
	return rc;
}

int model_file_template(const struct model_file *f, struct proto_str *out, struct sl_err *err)
{
	return f->folder != NULL ? hf_template(f->folder, out, err)
				 : gguf_get_str(keys_of(f), "tokenizer.chat_template", out, err);
}

static bool makes_tokens(struct proto_str key)
{
	static const char prefix[] = "tokenizer.", family[] = "general.architecture";
	return (key.n >= sizeof prefix - 1 && memcmp(key.at, prefix, sizeof prefix - 1) == 0) ||
	       (key.n == sizeof family - 1 && memcmp(key.at, family, sizeof family - 1) == 0);
}

uint64_t model_file_text(const struct model_file *f)
{
	if (f->folder != NULL)
		return 0;
	const struct gguf *g = keys_of(f);
	uint64_t sum = 0; /* a sum: the order of keys does not matter */
	for (size_t i = 0; i < gguf_n_keys(g); i++) {
		enum gguf_value type;
		struct proto_str value, key = gguf_raw_key(g, i, &type, &value);
		if (makes_tokens(key))
			sum += XXH3_64bits_withSeed(value.at, value.n,
						    XXH3_64bits_withSeed(key.at, key.n, (uint64_t)type));
	}
	return sum;
}
