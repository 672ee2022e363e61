/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder's tensors under GGUF's names: as they are, or made on demand of 4-bit components (hf_int4.h) or of woven
 * ones (hf_woven.h).
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/file/hf_names.h"
#include "engine/source/arch_family.h"
#include "engine/source/arch_read.h"
#include "engine/source/hf_folder_priv.h"
#include "kernels/quantize.h"

enum {
	MAX_CONVERTED = 32 << 20, /* bytes of vectors that become F32 */
	MAX_OUR_NAME = 64,
};

/* A part's tensor as the engine uses it; *name has ST_MAX_NAME + 1 bytes for its name. */
static int convert(struct hf_folder *f, const struct st_tensor *s, const char *name, struct model_tensor *t,
		   struct sl_err *err)
{
	if (s->type < 0 || s->n_dims > GGUF_MAX_DIMS)
		return sl_errf(err, SL_EUNSUPPORTED,
			       "%s: tensor %s has dtype %s in %d dimensions (supported: F32, F16, "
			       "BF16 in up to %d)",
			       f->path, s->name, s->dtype, s->n_dims, GGUF_MAX_DIMS);
	*t = (struct model_tensor){.name = name,
				   .type = s->type,
				   .n_dims = s->n_dims,
				   .dims = {1, 1, 1, 1},
				   .data = s->data,
				   .bytes = s->bytes};
	for (int d = 0; d < s->n_dims; d++)
		t->dims[d] = s->dims[s->n_dims - 1 - d];
	return 0;
}

static bool is_narrow_vector(const struct model_tensor *t)
{
	return t->data != NULL && t->n_dims == 1 && t->type != KN_F32 && t->dims[0] <= ARCH_MAX_WIDTH;
}

/* Norms and biases are few, and floats everywhere. */
static int widen_vectors(struct hf_folder *f, struct model_tensor *tensors, size_t n, struct sl_err *err)
{
	size_t floats = 0;
	for (size_t i = 0; i < n; i++)
		floats += is_narrow_vector(&tensors[i]) ? (size_t)tensors[i].dims[0] : 0;
	if (floats > MAX_CONVERTED / sizeof(float))
		return sl_errf(err, SL_ELIMIT, "%s: vectors of %zu elements in all", f->path, floats);
	float *at = f->converted = sl_alloc(floats * sizeof(float));
	if (at == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", f->path);
	for (size_t i = 0; i < n; i++) {
		struct model_tensor *t = &tensors[i];
		if (!is_narrow_vector(t))
			continue;
		kn_dequantize(t->type, t->data, (size_t)t->dims[0], at);
		t->type = KN_F32;
		t->data = at;
		t->bytes = t->dims[0] * sizeof(float);
		at += t->dims[0];
	}
	return 0;
}

static void trim_rows(const struct hf_folder *f, struct model_tensor *tensors, size_t n)
{
	uint64_t rows = (uint64_t)hf_count_tokens(f);
	for (size_t i = 0; i < n && rows > 0; i++) {
		struct model_tensor *t = &tensors[i];
		if (t->n_dims == 2 && t->dims[1] > rows &&
		    (strcmp(t->name, "token_embd.weight") == 0 || strcmp(t->name, "output.weight") == 0)) {
			t->bytes = t->bytes / t->dims[1] * rows;
			t->dims[1] = rows;
		}
	}
}

/* Some writers store the tied output matrix a second time. */
static bool is_tied(const struct hf_folder *f)
{
	const json_t *tied = json_object_get(f->config, "tie_word_embeddings");
	if (tied == NULL)
		tied = json_object_get(f->root, "tie_word_embeddings");
	const char *name = hf_family(f->model_type);
	const struct arch_family *family = name != NULL ? arch_family_find(name, strlen(name)) : NULL;
	return tied != NULL && !json_is_null(tied) ? json_is_true(tied) : family != NULL && family->tied;
}

static const struct st_tensor *find_theirs(const void *folder, const char *name)
{
	const struct hf_folder *f = folder;
	for (size_t i = 0; i < f->n_parts; i++)
		for (size_t k = 0; k < safetensors_n(f->parts[i].file); k++)
			if (strcmp(safetensors_at(f->parts[i].file, k)->name, name) == 0)
				return safetensors_at(f->parts[i].file, k);
	return NULL;
}

/* ---- made tensors ---- */

static uint64_t count_in(const json_t *config, const char *key, const char *older)
{
	const json_t *v = json_object_get(config, key);
	if (v == NULL)
		v = json_object_get(config, older);
	return json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) <= ARCH_MAX_WIDTH
		   ? (uint64_t)json_integer_value(v)
		   : 0;
}

/* How many key heads Falcon's configuration means. */
static uint64_t falcon_kv_heads(const json_t *config, uint64_t n_heads)
{
	if (json_is_true(json_object_get(config, "new_decoder_architecture")))
		return count_in(config, "num_kv_heads", "n_head_kv");
	const json_t *one = json_object_get(config, "multi_query");
	return one == NULL || json_is_true(one) ? 1 : n_heads;
}

static struct hf_weave weave_of(const struct hf_folder *f)
{
	const char *family = hf_family(f->model_type);
	struct hf_weave w = {.family = family != NULL ? family : "",
			     .n_heads = count_in(f->config, "num_attention_heads", "n_head")};
	w.n_kv_heads = strcmp(w.family, "falcon") == 0 ? falcon_kv_heads(f->config, w.n_heads) : w.n_heads;
	return w;
}

/* The tensors as they are listed: their names, and what those that are made are made of. */
struct listing {
	struct hf_folder *f;
	struct hf_weave weave;
	struct model_tensor *tensors;
	size_t n, n_packed, n_woven, n_made, name_bytes;
	char *name; /* of the next one */
	struct sl_err *err;
};

enum form { NO_TENSOR, PLAIN, PACKED, WOVEN };

/* What becomes of a part's tensor: for PLAIN and PACKED its name in GGUF, for WOVEN the number of tensors. NO_TENSOR:
 * it does not belong to a text model, or it is a component of another tensor. */
static enum form form_of(const struct listing *l, const struct st_tensor *s, char *name, size_t size, int *n)
{
	const struct hf_folder *f = l->f;
	char plain[ST_MAX_NAME + 16];
	bool belongs = false, also = false;
	bool packed = f->int4.form != HF_INT4_NONE && hf_int4_names(&f->int4, s->name, plain, sizeof plain, &belongs);
	*n = packed ? 0 : hf_woven_parts(&l->weave, s->name, &also);
	if (*n > 0)
		return WOVEN;
	*n = 1;
	if (belongs || also || !hf_gguf_name(packed ? plain : s->name, l->weave.family, name, size))
		return NO_TENSOR;
	if (strcmp(name, "output.weight") == 0 && is_tied(f))
		return NO_TENSOR;
	return packed ? PACKED : PLAIN;
}

/* Takes the name of the next tensor into the folder's storage. */
static const char *keep_name(struct listing *l, const char *name)
{
	char *at = l->name;
	size_t bytes = strlen(name) + 1;
	memcpy(at, name, bytes);
	l->name += bytes;
	return at;
}

static struct hf_made *made_of(struct listing *l, const struct st_tensor *s,
			       int (*make)(const void *, const char *, int, void *, struct sl_err *), const void *of)
{
	struct hf_made *m = &l->f->made[l->n_made++];
	*m = (struct hf_made){.make = make, .of = of, .source = s->data, .source_bytes = s->bytes};
	return m;
}

/* A 4-bit matrix, converted on demand. */
static int list_packed(struct listing *l, const struct st_tensor *s, const char *name)
{
	struct hf_int4_matrix *m = &l->f->matrices[l->n_packed++];
	int rc = hf_int4_matrix(&l->f->int4, s, find_theirs, l->f, l->f->path, m, l->err);
	if (rc != 0)
		return rc;
	int type = hf_int4_type(m);
	l->tensors[l->n++] = (struct model_tensor){.name = keep_name(l, name),
						   .type = type,
						   .n_dims = 2,
						   .dims = {m->n_in, m->n_out, 1, 1},
						   .made = made_of(l, s, hf_int4_make, m),
						   .bytes = m->n_out * kn_row_bytes(type, m->n_in)};
	return 0;
}

/* A tensor that is a view of s. */
static int list_woven(struct listing *l, const struct st_tensor *s, int k)
{
	char name[MAX_OUR_NAME];
	struct hf_woven *w = &l->f->woven[l->n_woven++];
	int rc = hf_woven_part(&l->weave, s, k, find_theirs, l->f, l->f->path, name, sizeof name, w, l->err);
	if (rc != 0)
		return rc;
	uint64_t rows = w->n * w->n_out;
	struct model_tensor *t = &l->tensors[l->n++];
	*t = (struct model_tensor){.name = keep_name(l, name),
				   .type = w->type,
				   .n_dims = w->flat ? s->n_dims : 3,
				   .dims = {w->n_in, w->flat ? rows : w->n_out, w->flat ? 1 : w->n, 1},
				   .made = made_of(l, s, hf_woven_make, w),
				   .bytes = rows * kn_row_bytes(w->type, (size_t)w->n_in)};
	if (t->n_dims == 1) {
		t->dims[0] *= rows;
		t->dims[1] = 1;
	}
	return 0;
}

static int list_tensor(struct listing *l, const struct st_tensor *s)
{
	char name[ST_MAX_NAME + 16];
	int n, rc = 0;
	switch (form_of(l, s, name, sizeof name, &n)) {
	case NO_TENSOR: return 0;
	case PACKED: return list_packed(l, s, name);
	case PLAIN: return convert(l->f, s, keep_name(l, name), &l->tensors[l->n++], l->err);
	case WOVEN: break;
	}
	for (int k = 0; k < n && rc == 0; k++)
		rc = list_woven(l, s, k);
	return rc;
}

/* How much memory the list needs. */
static void count_tensor(struct listing *l, const struct st_tensor *s)
{
	char name[ST_MAX_NAME + 16];
	int n;
	enum form form = form_of(l, s, name, sizeof name, &n);
	if (form == NO_TENSOR)
		return;
	l->n += (size_t)n;
	l->n_packed += form == PACKED;
	l->n_woven += form == WOVEN ? (size_t)n : 0;
	l->name_bytes += form == WOVEN ? (size_t)n * MAX_OUR_NAME : strlen(name) + 1;
}

static int for_each(struct listing *l, bool count)
{
	int rc = 0;
	for (size_t i = 0; i < l->f->n_parts; i++)
		for (size_t k = 0; k < safetensors_n(l->f->parts[i].file) && rc == 0; k++) {
			const struct st_tensor *s = safetensors_at(l->f->parts[i].file, k);
			if (count)
				count_tensor(l, s);
			else
				rc = list_tensor(l, s);
		}
	return rc;
}

int hf_tensors(struct hf_folder *f, struct model_tensor **out, size_t *n, struct sl_err *err)
{
	struct listing l = {.f = f, .weave = weave_of(f), .err = err};
	(void)for_each(&l, true);
	l.tensors = sl_zalloc_n(l.n, sizeof *l.tensors);
	f->matrices = sl_zalloc_n(l.n_packed, sizeof *f->matrices);
	f->woven = sl_zalloc_n(l.n_woven, sizeof *f->woven);
	f->made = sl_zalloc_n(l.n_packed + l.n_woven, sizeof *f->made);
	f->names = l.name = sl_alloc(l.name_bytes);
	if (l.tensors == NULL || f->names == NULL || f->matrices == NULL || f->woven == NULL || f->made == NULL) {
		sl_free(l.tensors);
		return sl_errf(err, SL_ENOMEM, "%s: no memory for %zu tensors", f->path, l.n);
	}
	l.n = l.n_packed = l.n_woven = 0;
	int rc = for_each(&l, false);
	if (rc == 0)
		rc = widen_vectors(f, l.tensors, l.n, err);
	if (rc != 0) {
		sl_free(l.tensors);
		return rc;
	}
	trim_rows(f, l.tensors, l.n);
	*out = l.tensors;
	*n = l.n;
	return 0;
}
