/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder's tensors under GGUF's names: as they are, or made on demand of quantized components (engine/packed)
 * or of woven ones (hf_woven.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "engine/file/hf_names.h"
#include "engine/source/arch_family.h"
#include "engine/source/arch_read.h"
#include "engine/source/convert.h"
#include "engine/source/hf_folder_priv.h"
#include "kernels/quantize.h"

enum { MAX_CONVERTED = 32 << 20 /* bytes of vectors that become F32 */ };

/* A part's tensor as the engine uses it, but for its name. */
static int convert(const struct hf_folder *f, const struct st_tensor *s, struct model_tensor *t, struct sl_err *err)
{
	if (s->type < 0 || s->n_dims > GGUF_MAX_DIMS)
		return sl_errf(err, SL_EUNSUPPORTED,
			       "%s: tensor %s has dtype %s in %d dimensions (supported: F32, F16, "
			       "BF16 in up to %d)",
			       f->path, s->name, s->dtype, s->n_dims, GGUF_MAX_DIMS);
	*t = (struct model_tensor){
	    .type = s->type, .n_dims = s->n_dims, .dims = {1, 1, 1, 1}, .data = s->data, .bytes = s->bytes};
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

/* Embeddings and output have a row for each token. */
static bool is_of_tokens(const char *name)
{
	return strcmp(name, "token_embd.weight") == 0 || strcmp(name, "output.weight") == 0;
}

/* n_tokens 0: unknown. */
static void trim_rows(uint64_t n_tokens, struct model_tensor *tensors, size_t n)
{
	for (size_t i = 0; i < n && n_tokens > 0; i++) {
		struct model_tensor *t = &tensors[i];
		if (t->n_dims == 2 && t->made == NULL && t->dims[1] > n_tokens && is_of_tokens(t->name)) {
			t->bytes = t->bytes / t->dims[1] * n_tokens;
			t->dims[1] = n_tokens;
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

/* ---- what woven tensors depend on ---- */

/* 0: unknown. */
static uint64_t count_in(const json_t *config, const char *key)
{
	const json_t *v = json_object_get(config, key);
	return json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) <= ARCH_MAX_WIDTH
		   ? (uint64_t)json_integer_value(v)
		   : 0;
}

/* How many key heads Falcon's configuration means. */
static uint64_t falcon_kv_heads(const json_t *config, uint64_t n_heads)
{
	const json_t *one = json_object_get(config, "multi_query"), *n = json_object_get(config, "num_kv_heads");
	if (json_is_true(json_object_get(config, "new_decoder_architecture")))
		return n == NULL || json_is_null(n) ? n_heads : count_in(config, "num_kv_heads");
	return one == NULL || json_is_null(one) || json_is_true(one) ? 1 : n_heads;
}

static struct hf_weave weave_of(const struct hf_folder *f)
{
	const char *family = hf_family(f->model_type);
	struct hf_weave w = {.family = family != NULL ? family : "",
			     .n_heads = count_in(f->config, "num_attention_heads")};
	w.k_heads = count_in(f->config, "linear_num_key_heads");
	w.v_heads = count_in(f->config, "linear_num_value_heads");
	w.k_dim = count_in(f->config, "linear_key_head_dim");
	w.v_dim = count_in(f->config, "linear_value_head_dim");
	w.experts = count_in(f->config, "num_local_experts") > 0 ||
		    json_object_get(f->config, "num_local_experts") == NULL; /* the class's default is 8 */
	w.n_kv_heads = strcmp(w.family, "falcon") == 0 ? falcon_kv_heads(f->config, w.n_heads) : w.n_heads;
	return w;
}

/* ---- the list ---- */

/* What a tensor of a part is in GGUF: none, or up to HF_WOVEN_MOST tensors. A quantized one is two where gate and up of
 * experts take turns, row by row. */
struct translation {
	char names[HF_WOVEN_MOST][ST_MAX_NAME + 32];
	int n;
	bool quantized, woven;
};

/* The list while it is made. */
struct listing {
	struct hf_folder *f;
	struct hf_weave weave;
	struct model_tensor *tensors;
	size_t n, n_matrices, n_woven, n_made, name_bytes;
	uint32_t n_tokens; /* 0: unknown */
	char *name;        /* of the next one */
	struct sl_err *err;
};

static const char both[] = ".ffn_gate_up_exps.weight";

/* Layers after the last of the configuration's, which draft (arch.h: n_drafting): nothing reads them. */
static bool only_drafts(const struct hf_folder *f, const char *name)
{
	uint64_t n = count_in(f->config, "num_hidden_layers"), more = count_in(f->config, "num_nextn_predict_layers");
	const char *at = strncmp(name, "model.layers.", 13) == 0 ? name + 13 : "";
	size_t digits = strspn(at, "0123456789");
	uint64_t layer = digits > 0 && digits <= 4 && at[digits] == '.' ? strtoull(at, NULL, 10) : 0;
	return n > 0 && layer >= n && layer < n + more;
}

/* SL_EINVAL: it is a component of a matrix that is not there, which would change the weights. */
static int translate(const struct listing *l, const struct st_tensor *s, struct translation *t)
{
	const struct hf_folder *f = l->f;
	char plain[ST_MAX_NAME + 16];
	enum hf_role role = f->quant != NULL ? hf_matrix_role(s, plain, sizeof plain) : HF_WHOLE;
	*t = (struct translation){.n = 0, .quantized = role == HF_MAIN};
	if (only_drafts(f, s->name))
		return 0;
	if (role == HF_WHOLE && (t->n = hf_woven_parts(&l->weave, s->name)) > 0) {
		t->woven = true;
		for (int k = 0; k < t->n; k++)
			hf_woven_name(&l->weave, s->name, k, t->names[k], sizeof t->names[k]);
		return 0;
	}
	bool ours = hf_gguf_name(t->quantized ? plain : s->name, l->weave.family, t->names[0], sizeof t->names[0]);
	if (ours && role == HF_COMPONENT && !hf_matrix_has_main(s, hf_find_theirs, f))
		return sl_errf(l->err, SL_EINVAL, "%s: tensor %s belongs to no quantized matrix", f->path, s->name);
	if (!ours || role == HF_COMPONENT || role == HF_IGNORED ||
	    (strcmp(t->names[0], "output.weight") == 0 && is_tied(f)))
		return 0;
	t->n = 1;
	if (t->quantized && text_ends(t->names[0], both)) {
		size_t stem = strlen(t->names[0]) - sizeof both + 1, room = sizeof t->names[0] - stem;
		memcpy(t->names[1], t->names[0], stem);
		snprintf(t->names[0] + stem, room, ".ffn_gate_exps.weight");
		snprintf(t->names[1] + stem, room, ".ffn_up_exps.weight");
		t->n = 2;
	}
	return 0;
}

/* hf_made.make; of is a struct hf_matrix. */
static int make_matrix(const void *of, const char *path, int n_threads, void *out, struct sl_err *err)
{
	struct hf_matrix m = *(const struct hf_matrix *)of;
	struct hf_rows rows = hf_matrix_rows(&m);
	struct convert c = {.row = rows.floats,
			    .raw_row = rows.raw,
			    .ctx = &m,
			    .type = m.type,
			    .width = m.n_in,
			    .n_threads = n_threads};
	int rc = hf_matrix_check(&m, path, err);
	if (rc != 0)
		return rc;
	rc = convert_rows(&c, 0, (uint64_t)m.n * m.n_out, out);
	if (rc == SL_EINVAL)
		return sl_errf(err, rc, "%s: tensor %.200s has a weight that is no number or too large", path, m.name);
	return rc == 0 ? 0 : sl_errf(err, rc, "%s: tensor %.200s: %s", path, m.name, sl_code_name(rc));
}

/* A quantized matrix, converted on demand, or half of one. */
static int list_matrix(struct listing *l, const struct st_tensor *s, const struct translation *tr, int k,
		       struct model_tensor *t)
{
	struct hf_folder *f = l->f;
	struct hf_matrix *m = &f->matrices[l->n_matrices++];
	struct hf_made *made = &f->made[l->n_made++];
	int rc = hf_matrix_open(f->quant, s, hf_find_theirs, f, f->path, m, l->err);
	if (rc == 0 && tr->n == 2 && m->n_out % 2 != 0)
		rc = sl_errf(l->err, SL_EINVAL, "%s: tensor %s has an odd number of rows", f->path, s->name);
	if (rc != 0)
		return rc;
	if (tr->n == 2)
		hf_matrix_halve(m, k == 1);
	if (l->n_tokens > 0 && is_of_tokens(tr->names[k]))
		hf_matrix_trim(m, l->n_tokens);
	*made = (struct hf_made){
	    .make = make_matrix, .of = m, .source = s->data, .source_bytes = s->bytes, .bits = hf_matrix_bits(m)};
	*t = (struct model_tensor){.type = m->type,
				   .n_dims = s->n_dims == 4 ? 3 : 2,
				   .dims = {m->n_in, m->n_out, m->n, 1},
				   .made = made,
				   .bytes = (uint64_t)m->n * m->n_out * kn_row_bytes(m->type, m->n_in)};
	return 0;
}

/* Part k of a woven tensor. */
static int list_woven(struct listing *l, const struct st_tensor *s, int k, struct model_tensor *t)
{
	struct hf_woven *w = &l->f->woven[l->n_woven++];
	struct hf_made *made = &l->f->made[l->n_made++];
	int rc = hf_woven_part(&l->weave, s, k, l->f->path, w, l->err);
	if (rc != 0)
		return rc;
	uint64_t rows = hf_woven_rows(w);
	*made = (struct hf_made){.make = hf_woven_make, .of = w, .source = s->data, .source_bytes = s->bytes};
	*t = (struct model_tensor){.type = w->type,
				   .n_dims = w->flat ? s->n_dims : 3,
				   .dims = {w->n_in, w->flat ? rows : w->n_out, w->flat ? 1 : w->n, 1},
				   .made = made,
				   .bytes = rows * kn_row_bytes(w->type, (size_t)w->n_in)};
	if (t->n_dims == 1) {
		t->dims[0] *= rows;
		t->dims[1] = 1;
	}
	return 0;
}

/* The tensors as they are listed: first counted, then filled in. */
static int count_tensors(struct listing *l)
{
	struct translation tr;
	int rc = 0;
	for (size_t i = 0; i < l->f->n_theirs && rc == 0; i++) {
		rc = translate(l, l->f->theirs[i], &tr);
		for (int k = 0; rc == 0 && k < tr.n; k++) {
			l->name_bytes += strlen(tr.names[k]) + 1;
			l->n_matrices += tr.quantized;
			l->n_woven += tr.woven;
			l->n++;
		}
	}
	return rc;
}

static int list_tensor(struct listing *l, const struct st_tensor *s)
{
	struct translation tr;
	int rc = translate(l, s, &tr);
	for (int k = 0; k < tr.n && rc == 0; k++) {
		size_t bytes = strlen(tr.names[k]) + 1;
		struct model_tensor *t = &l->tensors[l->n++];
		rc = tr.quantized ? list_matrix(l, s, &tr, k, t)
		     : tr.woven   ? list_woven(l, s, k, t)
				  : convert(l->f, s, t, l->err);
		t->name = memcpy(l->name, tr.names[k], bytes);
		l->name += bytes;
	}
	return rc;
}

int hf_tensors(struct hf_folder *f, struct model_tensor **out, size_t *n, struct sl_err *err)
{
	struct listing l = {.f = f, .weave = weave_of(f), .n_tokens = (uint32_t)hf_count_tokens(f), .err = err};
	int rc = count_tensors(&l);
	if (rc != 0)
		return rc;
	l.tensors = sl_zalloc_n(l.n, sizeof *l.tensors);
	f->matrices = sl_zalloc_n(l.n_matrices, sizeof *f->matrices);
	f->woven = sl_zalloc_n(l.n_woven, sizeof *f->woven);
	f->made = sl_zalloc_n(l.n_matrices + l.n_woven, sizeof *f->made);
	f->names = l.name = sl_alloc(l.name_bytes);
	if (l.tensors == NULL || f->names == NULL || f->matrices == NULL || f->woven == NULL || f->made == NULL)
		rc = sl_errf(err, SL_ENOMEM, "%s: no memory for %zu tensors", f->path, l.n);
	l.n = l.n_matrices = l.n_woven = 0;
	for (size_t i = 0; i < f->n_theirs && rc == 0; i++)
		rc = list_tensor(&l, f->theirs[i]);
	if (rc == 0)
		rc = widen_vectors(f, l.tensors, l.n, err);
	if (rc != 0) {
		sl_free(l.tensors);
		return rc;
	}
	trim_rows(l.n_tokens, l.tensors, l.n);
	*out = l.tensors;
	*n = l.n;
	return 0;
}
